/* SPDX-License-Identifier: GPL-2.0-or-later */
/* pool.h - the slabs: how much memory is lent, and how much may be */
#ifndef DCM_POOL_H
#define DCM_POOL_H

#include <pthread.h>
#include <uv.h>

#include "config.h"
#include "fair.h"
#include "export.h"
#include "list.h"

struct dcm_rdma_pd;
struct dcm_session;
struct dcm_tenant;
struct ibv_mr;

/**
 * enum dcm_slab_state - states of a slab
 * @DCM_SLAB_SPARE: allocated, never had an owner
 * @DCM_SLAB_MAPPED: lent to a session
 * @DCM_SLAB_EVICTING: lent, and asked back
 * @DCM_SLAB_RELEASING: without owner; the last reader or the release job has it
 *
 * SPARE -> MAPPED -> [EVICTING ->] RELEASING -> gone. Never backwards: a memfd
 * has one owner in its life, so the next owner's is zero.
 */
enum dcm_slab_state {
	DCM_SLAB_SPARE,
	DCM_SLAB_MAPPED,
	DCM_SLAB_EVICTING,
	DCM_SLAB_RELEASING,
};

struct dcm_slab;
/* Called on the event loop when its memory is freed, before the record is. */
typedef void (*dcm_slab_done_fn)(void *arg, struct dcm_slab *slab);

/**
 * struct dcm_slab - one unit of lending
 * @id: on the wire; its low bits are the index in the pool's table, the rest a
 *	count, so that no id is used twice
 * @refs: one of the table, and one for each data operation under way
 * @ops: pages read and written through the donor (workers add)
 * @ewma_milli: of @ops, 0.2 and one second, times 1000
 * @said_milli: its activity by its host's last report
 * @backed: bytes that are in memory, at the last sample
 *
 * Only the event loop uses it, but @refs and @ops; workers read @map, @bytes
 * and
 * @export of a slab they have a reference to.
 */
struct dcm_slab {
	u64 id;
	u64 bytes;
	int fd;
	void *map;
	u64 addr;
	u32 rkey;
	struct dcm_rdma_pd *pd;	/* verbs: a reference */
	struct ibv_mr *mr;
	const struct dcm_export_ops *export;
	unsigned int refs;	/* __atomic */
	u64 ops;		/* __atomic */
	struct dcm_pool *pool;
	enum dcm_slab_state state;
	struct dcm_session *session;
	struct dcm_tenant *tenant;
	u64 cookie;
	struct dcm_list node;		/* pool->slabs */
	struct dcm_list session_node;
	struct dcm_list dead_node;	/* pool->dead, under its lock */
	u64 ops_last;
	u64 ewma_milli;
	u64 said_milli;
	u64 backed;
	/* eviction */
	bool candidate;
	bool answered;
	bool evict_sent;
	u64 evict_deadline;
	/* the host that is told when it is gone */
	u64 done_session;
	u64 done_tag;
	bool done_wanted;
};

#define DCM_POOL_SHARDS	64u

/*
 * A MAP that waits for its slab to be filled. Tenants take turns. It is joined
 * to their line for a session's life, waiting or not, so that the line
 * remembers which tenants have had a slab.
 */
struct dcm_pool_want {
	struct dcm_fair_entry turn;
	void (*fn)(struct dcm_pool_want *want, struct dcm_slab *slab);
};

/**
 * struct dcm_pool - all slabs
 * @allowed: bytes that may be lent now: the smaller of the capacity and what
 *	the head room and @charged leave
 * @charged: bytes promised to GC workers, beside slabs
 * @charged_backed: of these, bytes in memory, at the last sample
 * @room: EWMA (beta 0.2, one second) of what would be free without any slab
 *
 * @table is read by workers under @shards; all else is the event loop's.
 */
struct dcm_pool {
	uv_loop_t *loop;
	uv_async_t async;
	struct dcm_slab **table;
	pthread_mutex_t shards[DCM_POOL_SHARDS];
	pthread_mutex_t dead_lock;
	struct dcm_list dead;
	struct dcm_list slabs;
	struct dcm_fair wants;
	u32 nr_wants;
	u64 serial;
	u64 slab_bytes;
	u64 huge_bytes;
	u64 capacity;
	u64 head_room;
	struct dcm_size head_room_size;
	u32 spare_wanted;
	u32 nr_spare;
	u32 nr_mapped;
	u32 nr_evicting;
	u32 nr_releasing;
	u32 jobs;
	bool creating;
	bool stopping;
	u64 retry_at;		/* no pre-allocation before, loop time */
	u64 total;
	u64 free_now;
	double room;
	bool room_known;
	u64 allowed;
	u64 charged;
	u64 charged_backed;
	u64 backed;
	u64 made_total;
	u64 released_total;
	u64 failed_total;
	dcm_slab_done_fn done;
	void *done_arg;
};

int dcm_pool_init(struct dcm_pool *pool, uv_loop_t *loop,
		  const struct dcm_config *cfg, char *err, size_t err_len);

/* Set the sizes that a reload may change. */
void dcm_pool_limits(struct dcm_pool *pool, const struct dcm_config *cfg);

/* Sample the host's memory; once a second, and after dcm_pool_limits(). */
void dcm_pool_sample(struct dcm_pool *pool, bool tick);

/* Make or drop spare slabs towards what is wanted and allowed. */
void dcm_pool_balance(struct dcm_pool *pool);

/**
 * dcm_pool_charge() - promise memory of the host beside slabs
 * @bytes: the most that will be used; dcm_pool_uncharge() takes it back
 *
 * No slab is evicted for it: false if the head room, and what is lent and
 * promised already, leave too little.
 */
bool dcm_pool_charge(struct dcm_pool *pool, u64 bytes);
void dcm_pool_uncharge(struct dcm_pool *pool, u64 bytes);

/* Slabs that could be mapped now; slabs that have to be asked back. */
u64 dcm_pool_free_slabs(const struct dcm_pool *pool);
u32 dcm_pool_excess_slabs(const struct dcm_pool *pool);

/**
 * dcm_pool_take() - take a slab, all zero
 * @pool: the pool
 * @want: the waiting MAP: if no slab is ready @want->fn is called later with
 *	it, or with %NULL
 * @status: an enum dcm_wire_status on failure
 *
 * Return: the slab, state MAPPED, not published; or %NULL: with *@status
 * %DCM_WS_OK @want was queued.
 */
struct dcm_slab *dcm_pool_take(struct dcm_pool *pool,
			       struct dcm_pool_want *want, u32 *status);

/* From here on @want may wait, as @tenant's. -1: out of memory. */
int dcm_pool_want_init(struct dcm_pool *pool, struct dcm_pool_want *want,
		       const struct dcm_tenant *tenant);
void dcm_pool_want_end(struct dcm_pool *pool, struct dcm_pool_want *want);

static inline bool dcm_pool_want_waits(const struct dcm_pool_want *want)
{
	return want->turn.waits;
}

void dcm_pool_want_cancel(struct dcm_pool *pool, struct dcm_pool_want *want);

/* @slab was published over @export: from now on lookups by @session find it. */
void dcm_pool_lend(struct dcm_pool *pool, struct dcm_slab *slab,
		   struct dcm_session *session,
		   const struct dcm_export_ops *export);

/* Hide it from lookups; its memory is freed when the last reader is done. */
void dcm_pool_release(struct dcm_pool *pool, struct dcm_slab *slab);

/* For the event loop: takes no reference. */
struct dcm_slab *dcm_pool_find(struct dcm_pool *pool, u64 id,
			       const struct dcm_session *session);

/* For a worker: takes a reference, dropped by dcm_slab_put(). */
struct dcm_slab *dcm_slab_get(struct dcm_pool *pool, u64 id,
			      const struct dcm_session *session);
void dcm_slab_put(struct dcm_slab *slab);

/* Drop the spare slabs and make no more; true when no slab is left. */
bool dcm_pool_stop(struct dcm_pool *pool);
void dcm_pool_free(struct dcm_pool *pool);

#endif /* DCM_POOL_H */

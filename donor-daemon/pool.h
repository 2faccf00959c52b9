/* SPDX-License-Identifier: GPL-2.0-or-later */
/* pool.h - how much memory is lent, and how much may be */
#ifndef DCM_POOL_H
#define DCM_POOL_H

#include <pthread.h>
#include <uv.h>

#include "config.h"
#include "fair.h"
#include "list.h"
#include "slab.h"

struct dcm_tenant;

/* Called on the event loop when its memory is freed, before the record is. */
typedef void (*dcm_slab_done_fn)(void *arg, struct dcm_slab *slab);

#define DCM_POOL_SHARDS	64u

/*
 * A session's MAP that may wait until a slab is filled. Tenants take turns. It stays
 * joined to that queue for the session's life, waiting or not, so that the queue
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
 * @charged_backed: how many of these bytes were in use, at the last sample
 * @dir: medium = file: the directory of the slabs' files, and @path its name; all
 *	figures of memory are about its disk then. -1: slabs are memory
 * @room: EWMA (beta 0.2, one second) of the memory that would be free without slabs
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
	int dir;
	char path[DCM_CONFIG_PATH_MAX];
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

/* Read size and free space of memory or of the disk: 0 or -errno. Any thread. */
struct dcm_hostmem;
int dcm_pool_space(const struct dcm_pool *pool, struct dcm_hostmem *hm);

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

/* How many slabs could be mapped now; how many have to be asked back. */
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

/* Let @want wait for slabs, as @tenant's: 0 or -ENOMEM. */
int dcm_pool_want_init(struct dcm_pool *pool, struct dcm_pool_want *want,
		       const struct dcm_tenant *tenant);
void dcm_pool_want_end(struct dcm_pool *pool, struct dcm_pool_want *want);

static inline bool dcm_pool_want_waits(const struct dcm_pool_want *want)
{
	return want->turn.waits;
}

void dcm_pool_want_cancel(struct dcm_pool *pool, struct dcm_pool_want *want);

/* End a slab's use; its memory is freed when the last reader is done. */
void dcm_pool_release(struct dcm_pool *pool, struct dcm_slab *slab);

/*
 * Called by slab.c: dcm_slab_make() is done, @slab is %NULL after an @error; and: the
 * memory of a released slab is free, and its record will be freed next.
 */
void dcm_pool_slab_made(struct dcm_pool *pool, struct dcm_slab *slab,
			int error);
void dcm_pool_slab_dropped(struct dcm_pool *pool, struct dcm_slab *slab);

/* Drop the spare slabs and make no more; true when no slab is left. */
bool dcm_pool_stop(struct dcm_pool *pool);
void dcm_pool_free(struct dcm_pool *pool);

#endif /* DCM_POOL_H */

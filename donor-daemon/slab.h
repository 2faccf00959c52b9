/* SPDX-License-Identifier: GPL-2.0-or-later */
/* slab.h - one slab: its memory, its id, and the references to it */
#ifndef DCM_SLAB_H
#define DCM_SLAB_H

#include "export.h"
#include "list.h"

struct dcm_pool;
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
 * or file has one owner in its life, so the next owner's is zero.
 */
enum dcm_slab_state {
	DCM_SLAB_SPARE,
	DCM_SLAB_MAPPED,
	DCM_SLAB_EVICTING,
	DCM_SLAB_RELEASING,
};

/**
 * struct dcm_slab - one unit of lending
 * @id: on the wire; its low bits are the index in the pool's table, the rest a
 *	count, so that no id is used twice
 * @serial: the count that @id was made of
 * @keep: number of its record in donor->keep; 0: none
 * @stored: systemd has a descriptor of it as well
 * @restored: it was lent before the donor's restart; EVICTs sent then are forgotten
 * @refs: one of the table, and one for each data operation under way
 * @ops: pages read and written through the donor (workers add)
 * @ewma_milli: average of @ops a second (alpha 0.2), times 1000
 * @said_milli: its activity as its host last reported it
 * @backed: bytes that were in memory, or on the disk, at the last sample
 *
 * Only the event loop uses it, except @refs and @ops; workers read @map, @bytes
 * and @export of a slab that they have a reference to.
 */
struct dcm_slab {
	u64 id;
	u64 serial;
	u64 bytes;
	u32 keep;
	bool stored;
	bool restored;
	int fd;
	void *map;
	u64 addr;
	u32 rkey;
	struct dcm_rdma_pd *pd;	/* verbs: a reference */
	struct ibv_mr *mr;
	const struct dcm_export_ops *export;
	unsigned int refs;	/* __atomic */
	u64 ops;		/* __atomic */
	bool failed;		/* __atomic: the disk failed, and that was logged */
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
	/* the session that gets DONE when the memory is free */
	u64 done_session;
	u64 done_tag;
	bool done_wanted;
};

/* Make the table of @pool's slabs. 0 or a negative errno. */
int dcm_slab_table_init(struct dcm_pool *pool);
void dcm_slab_table_free(struct dcm_pool *pool);

/* Try to make a slab's memfd or file. 0 or a negative errno. */
int dcm_slab_probe(const struct dcm_pool *pool);

/* Start a job that makes a SPARE slab; false: out of memory. */
bool dcm_slab_make(struct dcm_pool *pool);

/* The id that a slab with this serial has. */
u64 dcm_slab_id(u64 serial);

/**
 * dcm_slab_adopt() - make the record of a slab that was lent before the restart
 * @serial: its serial before the restart, at most @pool->serial
 * @fd: its memfd, with all its pages; on success the slab owns it
 *
 * Return: the slab, SPARE and in no list; %NULL: no memory, or another slab has
 * its place in the table.
 */
struct dcm_slab *dcm_slab_adopt(struct dcm_pool *pool, u64 serial, int fd);

/* @slab was published over @export: from now on lookups by @session find it. */
void dcm_slab_lend(struct dcm_slab *slab, struct dcm_session *session,
		   const struct dcm_export_ops *export);

/* Hide it from lookups, and drop the table's reference. */
void dcm_slab_hide(struct dcm_slab *slab);

/* Start jobs that free the slabs without references. */
void dcm_slab_reap(struct dcm_pool *pool);

/* For the event loop: takes no reference. */
struct dcm_slab *dcm_slab_find(struct dcm_pool *pool, u64 id,
			       const struct dcm_session *session);

/* For a worker: takes a reference, dropped by dcm_slab_put(). */
struct dcm_slab *dcm_slab_get(struct dcm_pool *pool, u64 id,
			      const struct dcm_session *session);
void dcm_slab_put(struct dcm_slab *slab);

#endif /* DCM_SLAB_H */

/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * slab_worker.h - a pager's slabs as they come and go: attached, moved, lost
 *
 * A pager embeds a struct dcm_slab_worker, fills in a table of operations, puts
 * the four callbacks below into its struct dcm_client_ops, with the worker as
 * their argument, and calls dcm_slab_worker_round() in a thread of its own.
 */
#ifndef DCM_CLIENT_SLAB_WORKER_H
#define DCM_CLIENT_SLAB_WORKER_H

#include <pthread.h>

#include "client.h"
#include "loss.h"
#include "risk.h"
#include "../lib/log.h"

/* struct dcm_slab_record.todo */
#define DCM_SLAB_ATTACH 0x1u /* give it to the pager */
#define DCM_SLAB_EVICT 0x2u /* the donor wants it back: move its pages */
#define DCM_SLAB_LOST 0x4u /* mark its pages lost */
/* copy pages to slabs of its extent that lack them */
#define DCM_SLAB_FILL 0x8u
/* as FILL; only files lack pages, as lag_pages allows */
#define DCM_SLAB_LAG 0x10u

/**
 * struct dcm_slab_record - a slab and its tasks
 * @next: the next older record of the extent
 * @prev: the pointer that points at this record
 * @next_todo: the next record in the queue
 * @slab: the client's record, whose @priv is this one
 * @extent: the slab's extent
 * @todo: its tasks, DCM_SLAB_*; under the worker's lock
 * @queued: it is in the queue, or a round is working on it; under the worker's lock
 * @since_ns: when it came, or was asked back; under the worker's lock
 * @patient: nobody needs the slab back soon; under the worker's lock
 * @attached: the pager has the slab; the worker's thread's
 * @order: a number that grows with each slab that the pager gets; under the
 *	worker's lock
 */
struct dcm_slab_record {
	struct dcm_slab_record *next;
	struct dcm_slab_record **prev;
	struct dcm_slab_record *next_todo;
	struct dcm_client_slab *slab;
	u32 extent;
	u32 todo;
	bool queued;
	u64 since_ns;
	bool patient;
	bool attached;
	u32 order;
};

struct dcm_slab_worker;

#define DCM_LAG_LOOK_MS 100 /* between looks while files are far behind */

/* The pause after a pass of @fill that could not copy some pages. */
#define DCM_FILL_PASS_MS 50

/**
 * struct dcm_slab_worker_ops - a pager's operations on slabs
 * @record_bytes: size of the pager's records, whose first member is a struct
 *	dcm_slab_record
 * @other_wait_ns: a slab that is asked back is moved when its extent has
 *	another slab, or after this time
 * @one_move: move one slab at a time, so that it can be released early
 * @wake: make the worker's thread call dcm_slab_worker_round(); any thread
 * @attach: give a slab to the pager. 0; -EAGAIN: not now: the extent has no free slot;
 *	else the pager refuses the slab, and has logged why
 * @held: a GC worker uses the extent's slab: it is neither moved nor filled for
 *	now; may be %NULL
 * @move: move pages off a slab for a little while. 0, -ENOENT: the slab is
 *	empty; -EAGAIN: there is more to move; -EIO: the slab is gone; else it
 *	has to wait for another slab or for memory
 * @fill: copy pages to slabs of the record's extent that lack them, for a little
 *	while. 0: none lacks any; -EAGAIN: there is more; above 0: there is more,
 *	and the next call may come this many ms later. %NULL: an extent has one slab
 * @thin: may a slab of the extent lack pages? May be %NULL, as @fill
 * @lag: how many pages of an extent its files lack, at most; %NULL: pages never lag
 * @lag_bound: set how many pages of all extents may lag; may be %NULL, as @lag
 * @lose: mark the slab's pages lost. Returns the number of pages that had no other
 *	copy; -EAGAIN: call it again; else the pager does not have the slab
 *
 * All but @wake are called in the worker's thread, without a lock.
 */
struct dcm_slab_worker_ops {
	size_t record_bytes;
	u64 other_wait_ns;
	bool one_move;
	void (*wake)(struct dcm_slab_worker *w);
	int (*attach)(struct dcm_slab_worker *w, struct dcm_slab_record *r);
	bool (*held)(struct dcm_slab_worker *w, u32 extent);
	int (*move)(struct dcm_slab_worker *w, struct dcm_slab_record *r);
	int (*fill)(struct dcm_slab_worker *w, struct dcm_slab_record *r);
	bool (*thin)(struct dcm_slab_worker *w, u32 extent);
	u64 (*lag)(struct dcm_slab_worker *w, u32 extent);
	void (*lag_bound)(struct dcm_slab_worker *w, u64 pages);
	s64 (*lose)(struct dcm_slab_worker *w, struct dcm_slab_record *r);
};

/**
 * struct dcm_slab_donor - slabs that were lost with one donor
 * @loss: losses that are not logged yet; used by the worker's thread alone
 * @donor: name and address; under the lock
 * @since_ns: when the last slab was lost; under the lock
 * @nr_losing: slabs whose pages are not marked yet; under the lock
 */
struct dcm_slab_donor {
	struct dcm_loss loss;
	struct dcm_host_donor donor;
	u64 since_ns;
	u32 nr_losing;
};

/**
 * struct dcm_slab_worker - the slabs of one VM
 * @ops: the pager's part
 * @name: of the VM, for log lines
 * @on_loss: what an access to a lost page does, for log lines
 * @lock: see slab_worker.c
 * @record: the newest record of each extent
 * @nr_extents: their number
 * @todo: the queue of records that have tasks
 * @todo_end: the pointer at its end, to which the next record is added
 * @nr_losing: slabs whose pages are not marked lost yet
 * @lag_most: how many pages may lag behind in files; any thread, WRITE_ONCE()
 * @lag_set: the value of @lag_most that the pager was told last
 * @lag_presses: more than half of @lag_set pages lag
 * @hurry: ops->fill() is called for a fill that ignores the rebuild's rate
 * @orders: the largest order of a slab so far; under the lock
 * @looked_ns: when extents were last looked at
 * @risk: the result of that look; under the lock
 * @nr_filling: extents that are being filled; READ_ONCE()
 * @nr_lost: extents of which pages were lost so far; READ_ONCE()
 * @say_starved: when extents without a slab were last logged; the client thread's
 * @donor: losses by donor, by the client's numbers
 */
struct dcm_slab_worker {
	const struct dcm_slab_worker_ops *ops;
	const char *name;
	const char *on_loss;
	pthread_mutex_t lock;
	struct dcm_slab_record **record;
	u32 nr_extents;
	struct dcm_slab_record *todo;
	struct dcm_slab_record **todo_end;
	u32 nr_losing;
	u64 lag_most;
	u64 lag_set;
	bool lag_presses;
	bool hurry;
	u32 orders;
	u64 looked_ns;
	struct dcm_risk risk;
	u32 nr_filling;
	u32 nr_lost;
	struct dcm_log_rate say_starved;
	struct dcm_slab_donor donor[DCM_CONFIG_DONORS_MAX];
};

/**
 * dcm_slab_worker_init() - set up @w, before the client is started
 * @w: all zero; every member is set here
 * @ops: must outlive @w, as must @name and @on_loss
 * @nr_extents: more than the largest number of an extent
 *
 * Return: 0 or -ENOMEM.
 */
int dcm_slab_worker_init(struct dcm_slab_worker *w,
			 const struct dcm_slab_worker_ops *ops,
			 const char *name, const char *on_loss, u32 nr_extents);

/* Free @w's memory, after the client has ended. @w may also be all zero. */
void dcm_slab_worker_free(struct dcm_slab_worker *w);

/**
 * dcm_slab_worker_round() - do the tasks of all queued records; the worker's thread
 *
 * Return: milliseconds until the next call, unless ops->wake() asks for an
 * earlier one; -1: there is nothing to do.
 */
int dcm_slab_worker_round(struct dcm_slab_worker *w);

/**
 * dcm_slab_worker_adopt() - record a slab that the pager has already
 * @order: larger than that of slabs that its extent got before
 * @evict: its extent is being moved off it
 *
 * Called before other threads use @w.
 *
 * Return: %NULL: no memory, or there is no such extent.
 */
struct dcm_slab_record *dcm_slab_worker_adopt(struct dcm_slab_worker *w,
					      struct dcm_client_slab *slab,
					      u32 order, bool evict);

/* slab_worker.c and slab_look.c call each other by these. */
u32 dcm_slab_worker_todo(struct dcm_slab_worker *w, u32 extent);
void dcm_slab_worker_fill(struct dcm_slab_worker *w, struct dcm_slab_record *r,
			  u32 how);
void dcm_slab_worker_look(struct dcm_slab_worker *w, u64 now);

/* The newest record of an extent; @next leads to the others. Worker's thread. */
struct dcm_slab_record *dcm_slab_worker_first(struct dcm_slab_worker *w,
					      u32 extent);

/* Another slab of the record's extent that the pager has, or %NULL. Worker's thread. */
struct dcm_slab_record *dcm_slab_worker_other(struct dcm_slab_worker *w,
					      const struct dcm_slab_record *r);

/* Call @fn for each slab that the pager has. The worker's thread. */
void dcm_slab_worker_each(struct dcm_slab_worker *w,
			  void (*fn)(struct dcm_slab_worker *w,
				     struct dcm_slab_record *r, void *arg),
			  void *arg);

/**
 * dcm_slab_worker_where() - the slab of an extent that GC workers use; any thread
 * @donor: filled in, by the client's numbers
 * @slab: filled in: the donor's id
 *
 * This is the primary, as in the core (dcm_slot_primary()): it stays the primary until
 * it is moved or lost.
 *
 * Return: false: the extent has no slab, or the primary is being moved, is lost, or is
 * an orphan.
 */
bool dcm_slab_worker_where(struct dcm_slab_worker *w, u32 extent, u32 *donor,
			   u64 *slab);

/* Copy the risk (risk.c) that the last look found, up to a second old. Any thread. */
void dcm_slab_worker_risk(struct dcm_slab_worker *w, struct dcm_risk *risk);

/* Is there a lost slab whose pages are not all marked yet? Any thread. */
bool dcm_slab_worker_losing(struct dcm_slab_worker *w);

/* struct dcm_client_ops; the argument is the worker. */
void dcm_slab_worker_attached(void *arg, u32 extent,
			      struct dcm_client_slab *slab);
void dcm_slab_worker_evict(void *arg, struct dcm_client_slab *slab);
void dcm_slab_worker_lost(void *arg, struct dcm_client_slab *slab,
			  const struct dcm_host_donor *donor);
void dcm_slab_worker_starved(void *arg, u32 extent);

#endif /* DCM_CLIENT_SLAB_WORKER_H */

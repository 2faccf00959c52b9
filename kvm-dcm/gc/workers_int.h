/* SPDX-License-Identifier: GPL-2.0-or-later */
/* workers_int.h - shared by the workers*.c files; workers.h is the interface */
#ifndef DCM_GC_WORKERS_INT_H
#define DCM_GC_WORKERS_INT_H

#include <endian.h>
#include <stdlib.h>

#include "conn.h"
#include "../proto/gc_quiet.h"
#include "workers.h"

/* A request that is sent again to each new worker. */
struct replay {
	struct replay *next;
	size_t bytes;
	u64 request[];
};

/**
 * struct workers_space - a space
 * @replay: SPACE_CREATE, then TYPES_ADD, in order; %NULL: no such space
 * @replay_end: the pointer to set to the next one; %NULL: @replay
 * @place: by region: its place
 * @top: by region: its end in the trace, as a space offset
 * @write_count: by region: its write count when the trace began
 * @hit: by region, a byte: may workers have changed it? (workers_copies.c)
 * @source: by region, a byte: does the search for cards read it? (workers_cards.c)
 * @flags: flags of the trace
 * @mask: donors that hold a region, a bit each
 * @epoch: epoch of the trace, once all workers have begun it
 * @begun: epoch of the last trace that some worker may have begun
 * @searched: epoch of the trace whose search for cards goes on; 0: none does
 * @lost: a worker of the trace is gone
 * @finished: the trace has ended well
 */
struct workers_space {
	struct replay *replay;
	struct replay **replay_end;
	u64 replay_bytes;
	struct dcm_gc_layout l;
	u32 nr_regions;
	struct dcm_gc_place_of *place;
	u64 *top;
	u32 *write_count;
	u8 *hit;
	u8 *source;
	u64 mask;
	u32 flags;
	u32 epoch;
	u32 begun;
	u32 searched;
	bool lost;
	bool finished;
};

/**
 * struct workers_donor - a donor, and our worker there
 * @knows: spaces that the worker knows, a bit each
 * @slab: slab ids, by the number that the worker has for them
 * @tag: tag of the question that it has not answered; 0: none
 * @logged_ms: when a line about it was last logged
 */
struct workers_donor {
	struct dcm_gc_conn conn;
	u32 knows;
	u64 *slab;
	u32 nr_slabs;
	u64 tag;
	u64 logged_ms;
};

struct dcm_gc_workers {
	struct dcm_client *client;
	const struct dcm_gc_workers_ops *ops;
	void *arg;
	u64 bytes;
	u64 tag;
	u64 expires_ms;
	u32 nr_donors;
	u32 about; /* donor that a failure concerns */
	struct workers_donor *donor;
	struct pollfd *fds;
	struct workers_space space[DCM_GC_SPACES_MAX];
};

/* A command: @r is read from @raw, of @bytes; @out is its answer. */
struct gc_call {
	const struct dcm_gc_request *r;
	const void *raw;
	size_t bytes;
	struct dcm_gc_reply *out;
};

/**
 * struct ask - a question to workers, and the outcome
 * @take: takes an answer; %NULL: gc_take_done()
 * @status: the first status of a DONE that is not OK
 * @at: the address or reference that the status concerns
 */
struct ask {
	u32 space;
	struct dcm_wire_msg msg;
	void (*take)(void *arg, u32 donor, const struct dcm_wire_msg *msg);
	u32 status;
	u64 at;
};

struct entries_ask {
	struct ask ask;
	const struct dcm_gc_request *r;
	const struct workers_space *sp;
	struct dcm_gc_reply *out;
	u32 entry;
	u32 count;
	u32 room;
	u64 value;
};

/* workers.c: connections and questions */
bool gc_conn_up(const struct dcm_gc_workers *t, u32 donor);
/* Close the connection to a donor's worker, which ends; its traces are lost. */
void gc_donor_close(struct dcm_gc_workers *t, u32 donor);
u32 gc_donor_open(struct dcm_gc_workers *t, u32 donor);
void gc_close_all(struct dcm_gc_workers *t);
/* Take messages of all workers for up to @ms, or until @wake is readable. */
void gc_workers_turn(struct dcm_gc_workers *t, struct ask *ask, int wake,
		     int ms);
/* Stop the space's trace; a worker that does not answer soon is killed. */
void gc_workers_stop(struct dcm_gc_workers *t, struct ask *ask, u64 mask,
		     u32 status);
/* Make a worker forget a space; it is killed if it does not. */
void gc_forget(struct dcm_gc_workers *t, u32 donor, u32 space);
/* The status for a donor that has no worker: is the worker gone, or the donor? */
u32 gc_gone_status(struct dcm_gc_workers *t, u32 donor);
/*
 * Ask the workers of all donors of @mask, and wait for their answers. Returns a status:
 * why the wait ended early, or @ask->status.
 */
u32 gc_ask(struct dcm_gc_workers *t, struct ask *ask, u64 mask);
void gc_take_done(void *arg, u32 donor, const struct dcm_wire_msg *msg);
struct ask gc_ask_request(u32 space, const void *raw, size_t bytes);
/*
 * The entries of a DONE with any status, or %NULL: then the question's status
 * has the reason.
 */
const void *gc_take_entries(struct entries_ask *e,
			    const struct dcm_wire_msg *msg, u32 *n);
/* A command whose answers have entries of @entry bytes, to be concatenated. */
struct entries_ask gc_ask_entries(const struct dcm_gc_workers *t,
				  const struct gc_call *c, size_t entry);

/* workers_space.c: what workers know of a space */
void gc_space_forget(struct workers_space *sp);
/* Look up all regions' places. True: they are the same as last time. */
bool gc_space_find(struct dcm_gc_workers *t, u32 space);
/* Make sure that each donor of a region has a worker that knows the space. A status. */
u32 gc_space_place(struct dcm_gc_workers *t, u32 space);
/*
 * Tell workers of regions that have got a place on one of these donors since. @traced:
 * also while the trace runs, for ranges in regions that are not traced. A status.
 */
u32 gc_space_grow(struct dcm_gc_workers *t, u32 space, bool traced);
/* Has every region that the request lists with objects a place? */
bool gc_space_has(const struct dcm_gc_workers *t,
		  const struct dcm_gc_request *r);
/* Are the regions of its ranges still at the places that workers know? */
bool gc_space_has_ranges(const struct dcm_gc_workers *t,
			 const struct dcm_gc_request *r);
/* A command whose answers are only a status. */
u32 gc_do_status(struct dcm_gc_workers *t, const struct gc_call *c);
/* Are all regions (or @n from @first on) still at the places that workers know? */
bool gc_space_stays(const struct dcm_gc_workers *t, u32 space);
bool gc_space_stays_at(const struct dcm_gc_workers *t, u32 space, u32 first,
		       u32 n);
u32 gc_do_create(struct dcm_gc_workers *t, const struct gc_call *c);
u32 gc_do_destroy(struct dcm_gc_workers *t, const struct gc_call *c);
u32 gc_do_types(struct dcm_gc_workers *t, const struct gc_call *c);
u32 gc_do_donors(struct dcm_gc_workers *t, const struct gc_call *c);

/* workers_trace.c */
u32 gc_do_start(struct dcm_gc_workers *t, const struct gc_call *c);
u32 gc_do_roots(struct dcm_gc_workers *t, const struct gc_call *c);
u32 gc_do_state(struct dcm_gc_workers *t, const struct gc_call *c);
u32 gc_do_trace_ask(struct dcm_gc_workers *t, const struct gc_call *c);
u32 gc_do_bitmaps(struct dcm_gc_workers *t, const struct gc_call *c);
u32 gc_do_finish(struct dcm_gc_workers *t, const struct gc_call *c);
u32 gc_do_met(struct dcm_gc_workers *t, const struct gc_call *c);
u32 gc_do_results(struct dcm_gc_workers *t, const struct gc_call *c);

/* workers_cards.c */
u32 gc_do_cards(struct dcm_gc_workers *t, const struct gc_call *c);

/* workers_move.c */
u32 gc_do_evacuate(struct dcm_gc_workers *t, const struct gc_call *c);
u32 gc_do_update(struct dcm_gc_workers *t, const struct gc_call *c);
u32 gc_do_forward(struct dcm_gc_workers *t, const struct gc_call *c);
u32 gc_do_compact(struct dcm_gc_workers *t, const struct gc_call *c);

/* workers_copies.c */
/*
 * Mark regions that workers are about to change: none; those of a range; those listed.
 */
void gc_hit_none(struct workers_space *sp);
void gc_hit_bytes(struct workers_space *sp, u64 at, u64 bytes);
void gc_hit_listed(struct workers_space *sp, const struct dcm_gc_request *r);
/*
 * Copy the changes in marked regions to the other slabs, if their worker still answers,
 * also when the command failed (@status). If it does not, undo them where there are
 * copies. Returns the command's status.
 */
u32 gc_changes_spread(struct dcm_gc_workers *t, u32 space, u32 status);

#endif /* DCM_GC_WORKERS_INT_H */

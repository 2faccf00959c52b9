/* SPDX-License-Identifier: GPL-2.0-or-later */
/* workers_int.h - what the gc_team*.c files share; see workers.h for the outside */
#ifndef DCM_GC_WORKERS_INT_H
#define DCM_GC_WORKERS_INT_H

#include <endian.h>
#include <stdlib.h>

#include "conn.h"
#include "../proto/gc_quiet.h"
#include "workers.h"

/* A request that a new worker is told again. */
struct told {
	struct told *next;
	size_t bytes;
	u64 request[];
};

/**
 * struct workers_space - a space
 * @told: SPACE_CREATE, then TYPES_ADD, in order; %NULL: no such space
 * @place: of each region, @top of the trace, as a space offset
 * @tag: of each region's place when the trace began
 * @flags: of the trace
 * @mask: donors that hold a region
 * @epoch: of the trace, once all have begun it
 * @begun: of the last that some may have begun
 * @lost: a worker of the trace is gone
 */
struct workers_space {
	struct told *told;
	struct dcm_gc_layout l;
	u32 nr_regions;
	struct dcm_gc_place_of *place;
	u64 *top;
	u32 *tag;
	u64 mask;
	u32 flags;
	u32 epoch;
	u32 begun;
	bool lost;
};

/**
 * struct workers_donor - a donor, and our worker there
 * @knows: spaces it was told of, a bit each
 * @slab: ids by the number it knows them by
 * @tag: of the question it has not answered; 0: none
 * @said_ms: when the log had a line about it
 */
struct workers_donor {
	struct dcm_gc_conn link;
	u32 knows;
	u64 *slab;
	u32 nr_slabs;
	u64 tag;
	u64 said_ms;
};

struct dcm_gc_workers {
	struct dcm_client *client;
	const struct dcm_gc_workers_ops *ops;
	void *arg;
	u64 bytes;
	u64 tag;
	u64 expires_ms;
	u32 nr_donors;
	u32 about; /* donor a failure is about */
	struct workers_donor *donor;
	struct pollfd *fds;
	struct workers_space space[DCM_GC_WORKERS_SPACES];
};

/* A question to workers, and who takes the answers. */
struct ask {
	u32 space;
	struct dcm_wire_msg msg;
	void (*take)(void *arg, u32 donor, const struct dcm_wire_msg *msg);
	void *arg;
	u32 status; /* the first that is not OK, of DONE */
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

/* workers.c: links and questions */
bool gc_conn_up(const struct dcm_gc_workers *t, u32 donor);
/* Its traces are lost with it. */
void gc_donor_close(struct dcm_gc_workers *t, u32 donor);
u32 gc_donor_open(struct dcm_gc_workers *t, u32 donor);
void gc_close_all(struct dcm_gc_workers *t);
/* Listen to all for up to @ms, or until @wake is readable. */
void gc_workers_turn(struct dcm_gc_workers *t, struct ask *ask, int wake,
		     int ms);
/* End what runs for the space; who does not answer soon is killed. */
void gc_workers_stop(struct dcm_gc_workers *t, struct ask *ask, u64 mask,
		     u32 status);
/* A worker is to know nothing of a space any more; it is killed if it goes on. */
void gc_forget(struct dcm_gc_workers *t, u32 donor, u32 space);
/* Why a donor's worker is not there. */
u32 gc_gone(struct dcm_gc_workers *t, u32 donor);
/*
 * Ask all of @mask and take their answers. What is returned is about the
 * asking; what they answered is the taker's.
 */
u32 gc_ask(struct dcm_gc_workers *t, struct ask *ask, u64 mask);
/* The same, and their first status that is not OK. */
u32 gc_tell(struct dcm_gc_workers *t, struct ask *ask, u64 mask);
void gc_take_done(void *arg, u32 donor, const struct dcm_wire_msg *msg);
struct ask gc_ask_request(u32 space, const void *raw, size_t bytes);
/*
 * Entries of a DONE, which may come with any status, or %NULL: then the ask's
 * says why.
 */
const void *gc_take_entries(struct entries_ask *e,
			    const struct dcm_wire_msg *msg, u32 *n);
/* A request whose answers' entries of @entry bytes come behind each other. */
struct entries_ask gc_ask_entries(const struct dcm_gc_workers *t,
				  const struct dcm_gc_request *r,
				  const void *raw, size_t bytes,
				  struct dcm_gc_reply *out, size_t entry);
u32 gc_entries_done(struct dcm_gc_workers *t, struct entries_ask *e, u64 mask);

/* workers_space.c: what workers know */
void gc_space_forget(struct workers_space *sp);
/* Where regions are now, for gc_space_place(); the same as when last looked? */
bool gc_space_find(struct dcm_gc_workers *t, u32 space);
/* On every donor that has one a worker that knows. */
u32 gc_space_place(struct dcm_gc_workers *t, u32 space);
/* Regions that were nowhere then, and by now are with one of these donors. */
u32 gc_space_grow(struct dcm_gc_workers *t, u32 space);
/* Has a donor each region that the request lists with objects? */
bool gc_space_has(const struct dcm_gc_workers *t,
		  const struct dcm_gc_request *r);
/* What a worker would write to is where it was told. */
bool gc_space_stays(const struct dcm_gc_workers *t, u32 space);
u32 gc_do_create(struct dcm_gc_workers *t, const struct dcm_gc_request *r,
		 const void *raw, size_t bytes);
u32 gc_do_destroy(struct dcm_gc_workers *t, const struct dcm_gc_request *r);
u32 gc_do_types(struct dcm_gc_workers *t, const struct dcm_gc_request *r,
		const void *raw, size_t bytes);
u32 gc_do_donors(struct dcm_gc_workers *t, const struct dcm_gc_request *r,
		 struct dcm_gc_reply *out);

/* workers_trace.c */
u32 gc_do_start(struct dcm_gc_workers *t, const struct dcm_gc_request *r,
		const void *raw, size_t bytes);
struct dcm_gc_result gc_do_finish(struct dcm_gc_workers *t,
				  const struct dcm_gc_request *r);
u32 gc_do_met(struct dcm_gc_workers *t, const struct dcm_gc_request *r,
	      const void *raw, size_t bytes, struct dcm_gc_reply *out);
u32 gc_do_results(struct dcm_gc_workers *t, const struct dcm_gc_request *r,
		  const void *raw, size_t bytes, struct dcm_gc_reply *out);

/* workers_move.c */
u32 gc_do_evacuate(struct dcm_gc_workers *t, const struct dcm_gc_request *r,
		   const void *raw, struct dcm_gc_reply *out);
u32 gc_do_update(struct dcm_gc_workers *t, const struct dcm_gc_request *r,
		 const void *raw, size_t bytes, struct dcm_gc_reply *out);
u32 gc_do_forward(struct dcm_gc_workers *t, const struct dcm_gc_request *r,
		  const void *raw, size_t bytes, struct dcm_gc_reply *out);
u32 gc_do_compact(struct dcm_gc_workers *t, const struct dcm_gc_request *r,
		  const void *raw, size_t bytes, struct dcm_gc_reply *out);

#endif /* DCM_GC_WORKERS_INT_H */

/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * work.h - the work that is left of a trace, and its threads
 *
 * An entry is 64 bits: the unit (space offset / 8) of an object and a slice.
 * Slice 0 is an object that was just marked, to be counted and scanned; slice
 * n is the rest of an array from its n * %GC_SLICE_REFS'th reference, so that a
 * large array neither fills a ring nor occupies one thread alone; slice
 * %GC_SLICE_AGAIN is an object to be scanned and not counted.
 */
#ifndef DCM_GC_WORK_H
#define DCM_GC_WORK_H

#include "object.h"

#define GC_UNIT_BITS	41u
#define GC_UNIT_MASK	((1ull << GC_UNIT_BITS) - 1)
#define GC_SLICE_AGAIN	((1ull << (64 - GC_UNIT_BITS)) - 1)
#define GC_SLICE_REFS	512u
#define GC_AHEAD	16u	/* objects between prefetch and use */
#define GC_EDGES	16u	/* references between prefetch and use */
#define GC_STEAL	64u	/* entries in a batch */
#define GC_PUBLIC	16u	/* open batches of a thread */
#define GC_INJECT	128u	/* batches from outside */
#define GC_OPAQUE_WAIT	16384u	/* so many are not taken: threads wait */
#define GC_RANGES_MAX	16384u
#define GC_UNACKED_MAX	16u	/* unacknowledged messages to one donor */
#define GC_SENT		1024u
#define GC_LOOK		64u	/* objects between checks for idle threads */
#define GC_STACK_BYTES	(256u << 10)	/* of a thread */

static_assert(DCM_GC_SPACE_MAX >> 3 <= 1ull << GC_UNIT_BITS, "units");
static_assert(DCM_GC_REGION_MAX / 4 / GC_SLICE_REFS < GC_SLICE_AGAIN, "slices");

struct gc_batch {
	u32 n;
	u64 entry[GC_STEAL];
};

/* A range of references that are roots, as space offsets; in any regions. */
struct gc_range {
	u64 next;
	u64 end;
};

/* References to another donor's objects, until there are enough to send. */
struct gc_ghosts {
	u32 n;
	u64 offset[DCM_GC_BATCH];
};

/* Counts of a region, by one thread; private while the trace runs. */
struct gc_tally {
	u64 bytes;
	u64 objects;
};

/**
 * struct gc_worker - a thread of a trace
 * @ring: its own entries, from @head (oldest) to @tail; it uses it as a stack
 * @ahead: entries whose objects are being prefetched
 * @edge: units found, whose marks are being prefetched
 * @open: batches for other threads, the oldest at @open_first; under @lock
 * @grey: bits left of the grey word @grey_at
 * @tally: objects counted, by region
 * @sent: references recently sent to other donors
 * @seen: a bit for each type, by its index (__atomic)
 * @met: objects counted (__atomic), but those of WHOLE regions
 */
struct gc_worker {
	pthread_t thread;
	struct dcm_gc_trace *trace;
	u64 *ring;
	u32 ring_mask;
	u32 head;
	u32 tail;
	u64 ahead[GC_AHEAD];
	u64 edge[GC_EDGES];
	u32 edge_next;
	pthread_mutex_t lock;
	struct gc_batch *open;
	u32 open_first;
	u32 open_n;
	u64 grey;
	u64 grey_at;
	struct gc_tally *tally;
	u64 *sent;
	struct gc_ghosts *ghosts[DCM_WIRE_GC_DONORS];
	u64 *seen;
	u32 met;
} ____cacheline_aligned;

/**
 * struct dcm_gc_trace - a trace on one donor
 * @avail: batches that are open or injected, ranges, and grey words that are
 *	not 0: what a thread without work can find (__atomic)
 * @idle: threads that found nothing (__atomic, written under @lock)
 * @stop: a status: why to stop; %GC_STOP_END: threads are to end (__atomic)
 * @activity: counts messages and entries that came or left; @activity_reported,
 *	@busy_reported: values at the last poll
 * @closed: other donors' references are refused (under the space's
 *	@trace_lock)
 *
 * The donor is quiet if @idle = @threads and @avail = 0 under @lock: only a
 * thread that is not idle, or an injection, which takes @lock, makes work.
 */
struct dcm_gc_trace {
	struct dcm_gc_space *space;
	u32 epoch;
	u32 flags;
	u32 threads;
	const struct dcm_gc_peers *peers;
	struct gc_worker *workers;	/* @threads, and one for injected entries */
	u64 ring_bytes;
	pthread_mutex_t lock;
	pthread_cond_t work;
	pthread_cond_t quiet;
	pthread_cond_t acked;
	pthread_cond_t taken;
	u32 avail;
	u32 idle;
	u32 stop;
	u64 stop_at;
	struct gc_batch *inject;
	u32 inject_first;
	u32 inject_n;
	struct gc_range *ranges;
	u32 ranges_n;
	u64 activity;
	u64 activity_reported;
	bool busy_reported;
	u32 unacked[DCM_WIRE_GC_DONORS];
	u32 unacked_all;
	u64 *opaque;
	u32 opaque_first;
	u32 opaque_n;
	u32 opaque_waits;
	u32 say_n;	/* regions with @say */
	u32 say_next;
	u32 nr_started;
	bool closed;
	bool joined;
	bool finished;
	u64 *weak;	/* a bit for each word of marks with weak objects (__atomic) */
	u64 weak_next;	/* units where TRACE_MET goes on: of weak objects, */
	u64 clear_next;	/* and of those to be cleared */
	u64 *types_said;	/* as @seen: types that TRACE_MET has answered */
	bool types_gone;
};

#define GC_STOP_END	VIRTIO_GC_STATUSES

#define GC_SEEN_WORDS	(DCM_GC_TYPES_MAX / 64)

static inline void gc_type_seen(struct gc_worker *w, const struct gc_type *t)
{
	u64 *word = &w->seen[t->index / 64];

	/* only @w's thread writes */
	if (unlikely(!(*word & t->bit)))
		WRITE_ONCE(*word, *word | t->bit);
}

static inline u32 gc_stopped(const struct dcm_gc_trace *t)
{
	return READ_ONCE(t->stop);
}

/* work.c */
/* Set up a worker's memory. 0 or -ENOMEM; free it in both cases. */
int gc_worker_init(struct gc_worker *w, struct dcm_gc_trace *t, bool thread);
void gc_worker_free(struct gc_worker *w);
/* Open the oldest entries: the ring is full, or a thread has no work. */
bool gc_work_open(struct gc_worker *w);
/* Get entries into the ring; false: the trace ends. */
bool gc_work_get(struct gc_worker *w);
/* Make the object at @unit grey: it is marked and counted, and scanned later. */
void gc_work_grey(struct dcm_gc_trace *t, u64 unit);
void gc_stop(struct dcm_gc_trace *t, u32 status, u64 at);
/* Under @t->lock: add entries from outside; false: no room. */
bool gc_work_inject(struct dcm_gc_trace *t, const u64 *entries, u32 n);

/* ghost.c */
void gc_ghost_add(struct gc_worker *w, u32 donor, u64 offset);
void gc_ghost_flush(struct gc_worker *w);

/* met.c */
/*
 * Most opaque objects that wait to be taken, as those from outside can't wait for
 * room: a quarter of a percent of the space [VGC-D-31].
 */
static inline u32 gc_opaque_max(const struct dcm_gc_space *s)
{
	u64 most = max(s->l.bytes / 3072, 2ull * GC_OPAQUE_WAIT);

	return (u32)min(most, (u64)U32_MAX);
}

/*
 * Add an opaque object. @wait: wait for room; else no room ends the trace with LIMIT.
 */
void gc_opaque_add(struct dcm_gc_trace *t, u64 offset, bool wait);
void gc_weak_add(struct dcm_gc_trace *t, u64 unit);
/* Bytes of @weak: a bit for each 64 units of the space. */
static inline u64 gc_weak_bytes(const struct dcm_gc_space *s)
{
	return s->l.bytes >> 12;
}
/* The object of a whole region was met: TRACE_MET must answer it. */
void gc_whole_say(struct dcm_gc_trace *t, u32 region);

/* scan.c */
/* A unit without an object, always marked: fills empty queue places. */
static inline u64 gc_unit_none(const struct dcm_gc_space *s)
{
	return s->l.bytes >> 3;
}

/* Add a reference to an object of this donor, below its region's top. */
void gc_edge(struct gc_worker *w, u64 unit);
/* Scan @n references at @p, which are roots. */
void gc_scan_roots(struct gc_worker *w, const u8 *p, u64 n);
/* Do all work there is; returns when the trace ends. */
void gc_scan(struct gc_worker *w);
/* A reference into a WHOLE region of this donor: mark and count its object. */
void gc_whole_met(struct dcm_gc_trace *t, u64 offset);
/* Is @offset inside the object of a WHOLE region, where no object starts? */
static inline bool gc_whole_inside(const struct dcm_gc_space *s, u64 offset)
{
	const struct gc_region *r = &s->regions[offset >> s->region_shift];
	u64 in = offset & (s->l.region_bytes - 1);

	return gc_region_whole(r) && in && in < r->top;
}
/* Add @w's counts to the regions'. */
void gc_tally_flush(struct gc_worker *w);
/* Mark and count an object for which there is no room, and make it grey. */
void gc_scan_later(struct gc_worker *w, u64 unit);

#endif /* DCM_GC_WORK_H */

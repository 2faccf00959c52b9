// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * trace.c - which objects of a space are reachable
 *
 * Nothing is looked at when it is first known of. A reference that is found
 * goes into a short queue and the word with its target's mark is prefetched;
 * GC_EDGES references later the mark is tested, and set by whoever is first.
 * What was marked goes on the thread's ring (work.h). What is taken from the
 * ring, newest first, goes through a second short queue while its first bytes
 * are prefetched, and is scanned GC_AHEAD objects later.
 *
 * The roots are tested before they are taken; the heap is not. The first
 * object that is not what it should be stops the trace.
 *
 * With VIRTIO_GC_TRACE_LOCAL this is semeru-osdi20, 4.2: every region for
 * itself, and one that was written meanwhile is stale, fig. 6. Without, it is
 * mako-pldi22, 5.2, over all donors.
 */
#include <stdlib.h>
#include <time.h>

#include "work.h"

static void tally_flush(struct gc_worker *w, u32 i)
{
	struct gc_cold *c;

	if (w->tally[i].region == U32_MAX)
		return;
	c = &w->trace->space->cold[w->tally[i].region];
	__atomic_add_fetch(&c->live_bytes, w->tally[i].bytes, __ATOMIC_RELAXED);
	__atomic_add_fetch(&c->live_objects, w->tally[i].objects,
			   __ATOMIC_RELAXED);
	w->tally[i].region = U32_MAX;
}

static inline void tally(struct gc_worker *w, u32 region, u64 bytes)
{
	u32 i = region % GC_TALLY;

	if (unlikely(w->tally[i].region != region)) {
		tally_flush(w, i);
		w->tally[i].region = region;
		w->tally[i].bytes = 0;
		w->tally[i].objects = 0;
	}
	w->tally[i].bytes += bytes;
	w->tally[i].objects++;
}

static inline bool mark(struct dcm_gc_space *s, u64 unit)
{
	u64 bit = 1ull << (unit & 63), *word = &s->marks[unit >> 6];

	if (READ_ONCE(*word) & bit)
		return false;
	return !(__atomic_fetch_or(word, bit, __ATOMIC_RELAXED) & bit);
}

/* The object at @offset counts: it has just been marked. */
static void object_met(struct gc_worker *w, u64 offset, u32 region,
		       const struct gc_object *o, bool wait)
{
	tally(w, region, o->bytes);
	w->seen[o->type - w->trace->space->types] = 1;
	if (unlikely(o->type->flags & VIRTIO_GC_TYPE_OPAQUE))
		gc_opaque_add(w->trace, offset, wait);
}

/* Count the object at @unit now, as there is no room to do it later. */
static void object_note(struct gc_worker *w, u64 unit)
{
	const struct dcm_gc_space *s = w->trace->space;
	u64 offset = unit << 3, in = offset & (s->l.region_bytes - 1);
	u32 region = (u32)(offset >> s->region_shift);
	const struct gc_region *r = &s->regions[region];
	struct gc_object o;
	u32 status = gc_object_read(s, r->base + in, r->top - in, &o);

	if (status)
		gc_stop(w->trace, status, s->l.address + offset);
	else
		object_met(w, offset, region, &o, w->ring);
}

static void ring_push(struct gc_worker *w, u64 entry)
{
	if (unlikely(w->tail - w->head > w->ring_mask) && !gc_work_open(w)) {
		if (!(entry >> GC_UNIT_BITS))
			object_note(w, entry);
		gc_work_grey(w->trace, entry & GC_UNIT_MASK);
		return;
	}
	w->ring[w->tail++ & w->ring_mask] = entry;
}

static inline void edge_settle(struct gc_worker *w, u64 unit)
{
	if (unit != GC_EDGE_NONE && mark(w->trace->space, unit))
		ring_push(w, unit);
}

static inline void edge_add(struct gc_worker *w, u64 unit)
{
	u64 due = w->edge[w->edge_next];

	__builtin_prefetch(&w->trace->space->marks[unit >> 6], 1);
	w->edge[w->edge_next] = unit;
	w->edge_next = (w->edge_next + 1) % GC_EDGES;
	edge_settle(w, due);
}

void gc_edge(struct gc_worker *w, u64 unit)
{
	edge_add(w, unit);
}

static void edges_settle(struct gc_worker *w)
{
	for (u32 i = 0; i < GC_EDGES; i++) {
		u64 due = w->edge[i];

		w->edge[i] = GC_EDGE_NONE;
		edge_settle(w, due);
	}
}

/* @n references at @p, of an object in @region. */
static inline __attribute__((always_inline)) void
refs_scan(struct gc_worker *w, const u8 *p, u64 n, u32 region, u32 ref_bytes)
{
	struct dcm_gc_trace *t = w->trace;
	const struct dcm_gc_space *s = t->space;
	u64 mask = s->l.region_bytes - 1, offset;

	for (u64 i = 0; i < n; i++) {
		u64 ref = gc_ref_load(p + i * ref_bytes, ref_bytes);
		const struct gc_region *r;
		u32 to;

		switch (gc_ref_decode(&s->l, ref, &offset)) {
		case GC_REF_NONE:
			continue;
		case GC_REF_BAD:
			gc_stop(t, VIRTIO_GC_BAD_REFERENCE, ref);
			return;
		case GC_REF_HERE:
			break;
		}
		to = (u32)(offset >> s->region_shift);
		r = &s->regions[to];
		if ((offset & mask) >= r->top ||
		    (to != region && t->flags & VIRTIO_GC_TRACE_LOCAL))
			continue;
		if (likely(r->base))
			gc_edge(w, offset >> 3);
		else
			gc_ghost_add(w, r->donor, offset);
	}
}

static inline void runs_scan(struct gc_worker *w, const u8 *p,
			     const struct gc_type *type, u32 region,
			     u32 ref_bytes)
{
	const struct gc_run *run = &w->trace->space->runs[type->run];

	for (u32 i = 0; i < type->runs; i++)
		refs_scan(w, p + run[i].offset, run[i].count, region,
			  ref_bytes);
}

static inline __attribute__((always_inline)) void
entry_scan(struct gc_worker *w, u64 entry, u32 ref_bytes)
{
	struct dcm_gc_trace *t = w->trace;
	struct dcm_gc_space *s = t->space;
	u64 unit = entry & GC_UNIT_MASK, slice = entry >> GC_UNIT_BITS;
	u64 offset = unit << 3, in = offset & (s->l.region_bytes - 1);
	u32 region = (u32)(offset >> s->region_shift);
	const struct gc_region *r = &s->regions[region];
	struct gc_object o;
	u32 status;
	u64 n;

	status = gc_object_read(s, r->base + in, r->top - in, &o);
	if (unlikely(status)) {
		gc_stop(t, status, s->l.address + offset);
		return;
	}
	if (!slice)
		object_met(w, offset, region, &o, true);
	if (unlikely(o.type->flags & VIRTIO_GC_TYPE_OPAQUE))
		return;
	if (!slice || slice == GC_SLICE_AGAIN) {
		runs_scan(w, r->base + in, o.type, region, ref_bytes);
		slice = 0;
	}
	n = slice * GC_SLICE_REFS;
	if (n >= o.refs)
		return;
	o.refs -= n;
	if (o.refs > GC_SLICE_REFS) {
		o.refs = GC_SLICE_REFS;
		ring_push(w, unit + ((slice + 1) << GC_UNIT_BITS));
	}
	refs_scan(w, r->base + in + o.type->first + n * ref_bytes, o.refs,
		  region, ref_bytes);
}

static inline __attribute__((always_inline)) void work_loop(struct gc_worker *w,
							    u32 ref_bytes)
{
	struct dcm_gc_trace *t = w->trace;
	struct dcm_gc_space *s = t->space;
	u64 mask = s->l.region_bytes - 1;
	u32 first = 0, n = 0, look = 0;

	for (;;) {
		while (n < GC_AHEAD && w->tail != w->head) {
			u64 e = w->ring[--w->tail & w->ring_mask];
			u64 offset = (e & GC_UNIT_MASK) << 3;

			__builtin_prefetch(
				s->regions[offset >> s->region_shift].base +
				(offset & mask));
			w->ahead[(first + n++) % GC_AHEAD] = e;
		}
		if (!n) {
			edges_settle(w);
			if (w->tail == w->head && !gc_work_get(w))
				return;
			continue;
		}
		entry_scan(w, w->ahead[first], ref_bytes);
		first = (first + 1) % GC_AHEAD;
		n--;
		if (unlikely(++look >= GC_LOOK)) {
			look = 0;
			if (gc_stopped(t))
				return;
			if (__atomic_load_n(&t->idle, __ATOMIC_RELAXED) &&
			    !__atomic_load_n(&t->avail, __ATOMIC_RELAXED))
				gc_work_open(w);
		}
	}
}

static void *worker_main(void *arg)
{
	struct gc_worker *w = arg;

	if (w->trace->space->l.ref_bytes == 4)
		work_loop(w, 4);
	else
		work_loop(w, 8);
	for (u32 i = 0; i < GC_TALLY; i++)
		tally_flush(w, i);
	return NULL;
}

/* What TRACE_START lists, checked, in the regions' table. */
static u32 regions_take(struct dcm_gc_space *s, const struct dcm_gc_start *how)
{
	for (u32 i = 0; i < s->nr_regions; i++) {
		s->regions[i].top = 0;
		s->regions[i].stale = false;
	}
	for (u32 i = 0; i < how->nr_regions; i++) {
		u32 n = le32toh(how->regions[i].region);
		u64 top = le64toh(how->regions[i].top), start;

		if (n >= s->nr_regions || how->regions[i].reserved)
			return VIRTIO_GC_INVALID;
		start = (u64)n << s->region_shift;
		if (top < start || top - start > s->l.region_bytes || top & 7 ||
		    s->regions[n].stale)
			return VIRTIO_GC_INVALID;
		s->regions[n].stale = true;	/* seen */
		s->regions[n].top = top - start;
	}
	return VIRTIO_GC_OK;
}

static void regions_prepare(struct dcm_gc_space *s)
{
	for (u32 i = 0; i < s->nr_regions; i++) {
		struct gc_region *r = &s->regions[i];
		struct gc_cold *c = &s->cold[i];

		r->grey = 0;
		c->live_bytes = 0;
		c->live_objects = 0;
		c->moved = false;
		c->moved_there = false;
		c->target = false;
		if (r->donor == VIRTIO_GC_NO_DONOR)
			r->top = 0;
		if (!r->base || !r->top)
			continue;
		memset(gc_region_marks(s, i), 0, s->l.region_bytes / 64);
		memset(&s->grey[i * gc_grey_words(s)], 0,
		       s->l.region_bytes / 512);
		if (c->tag) {
			c->tag_before =
				__atomic_load_n(c->tag, __ATOMIC_ACQUIRE);
			r->stale = c->tag_before & 1;
		}
	}
}

static void trace_join(struct dcm_gc_trace *t)
{
	if (t->joined)
		return;
	gc_stop(t, GC_STOP_END, VIRTIO_GC_NONE);
	for (u32 i = 0; i < t->nr_started; i++)
		pthread_join(t->workers[i].thread, NULL);
	t->joined = true;
}

void gc_trace_free(struct dcm_gc_space *s)
{
	struct dcm_gc_trace *t = s->trace;

	if (!t)
		return;
	trace_join(t);
	pthread_mutex_lock(&s->trace_lock);
	s->trace = NULL;
	pthread_mutex_unlock(&s->trace_lock);
	for (u32 i = 0; t->workers && i <= t->threads; i++)
		gc_worker_free(&t->workers[i]);
	free(t->workers);
	free(t->inject);
	free(t->opaque);
	pthread_mutex_destroy(&t->lock);
	pthread_cond_destroy(&t->work);
	pthread_cond_destroy(&t->quiet);
	pthread_cond_destroy(&t->acked);
	pthread_cond_destroy(&t->taken);
	free(t);
}

/* 1/256 of the space for rings, 64 KiB to 4 MiB each. */
static u64 ring_bytes(const struct dcm_gc_space *s, u32 threads)
{
	u64 bytes = (s->l.bytes >> 8) / threads;

	if (bytes < 64u << 10)
		return 64u << 10;
	return bytes > 4u << 20 ? 4u << 20 : 1ull << ilog2(bytes);
}

u32 dcm_gc_trace_start(struct dcm_gc_space *s, const struct dcm_gc_start *how)
{
	struct dcm_gc_trace *t;
	pthread_condattr_t attr;
	pthread_attr_t stack;
	u32 status;

	if (!how->epoch || !how->threads || how->threads > DCM_GC_THREADS_MAX ||
	    (s->trace && s->trace->epoch == how->epoch))
		return VIRTIO_GC_INVALID;
	if (how->flags &
		    ~(VIRTIO_GC_TRACE_CONCURRENT | VIRTIO_GC_TRACE_LOCAL) ||
	    how->flags == (VIRTIO_GC_TRACE_CONCURRENT | VIRTIO_GC_TRACE_LOCAL))
		return VIRTIO_GC_INVALID;
	gc_trace_free(s);
	status = regions_take(s, how);
	for (u32 i = 0; i < s->nr_regions; i++)
		s->regions[i].stale = false;
	if (status)
		return status;
	regions_prepare(s);
	t = calloc(1, sizeof(*t));
	if (!t)
		return VIRTIO_GC_LIMIT;
	t->space = s;
	t->epoch = how->epoch;
	t->flags = how->flags;
	t->threads = how->threads;
	t->peers = how->peers;
	t->ring_bytes = ring_bytes(s, t->threads);
	pthread_mutex_init(&t->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&t->work, NULL);
	pthread_cond_init(&t->quiet, &attr);
	pthread_cond_init(&t->acked, NULL);
	pthread_cond_init(&t->taken, NULL);
	pthread_condattr_destroy(&attr);
	t->inject = calloc(GC_INJECT, sizeof(*t->inject));
	t->opaque = calloc(GC_OPAQUE_MAX, sizeof(*t->opaque));
	t->workers = aligned_alloc(64, (t->threads + 1) * sizeof(*t->workers));
	status = t->inject && t->opaque && t->workers ? VIRTIO_GC_OK :
							VIRTIO_GC_LIMIT;
	if (t->workers)
		memset(t->workers, 0, (t->threads + 1) * sizeof(*t->workers));
	for (u32 i = 0; !status && i <= t->threads; i++)
		if (gc_worker_init(&t->workers[i], t, i < t->threads))
			status = VIRTIO_GC_LIMIT;
	/* ghosts may come as soon as it is seen */
	pthread_mutex_lock(&s->trace_lock);
	s->trace = t;
	pthread_mutex_unlock(&s->trace_lock);
	if (status)
		goto fail;
	status = VIRTIO_GC_LIMIT;
	pthread_attr_init(&stack);
	pthread_attr_setstacksize(&stack, GC_STACK_BYTES);
	for (; t->nr_started < t->threads; t->nr_started++)
		if (pthread_create(&t->workers[t->nr_started].thread, &stack,
				   worker_main, &t->workers[t->nr_started]))
			break;
	pthread_attr_destroy(&stack);
	if (t->nr_started == t->threads)
		return VIRTIO_GC_OK;
fail:
	gc_trace_free(s);
	return status;
}

/*
 * An object from outside when there is no room for its entry: it is counted
 * here, and scanned when grey words are. One thread at a time.
 */
static void entry_note(struct dcm_gc_trace *t, u64 unit)
{
	struct gc_worker *w = &t->workers[t->threads];

	pthread_mutex_lock(&w->lock);
	if (mark(t->space, unit)) {
		object_note(w, unit);
		for (u32 i = 0; i < GC_TALLY; i++)
			tally_flush(w, i);
		gc_work_grey(t, unit);
	}
	pthread_mutex_unlock(&w->lock);
}

/* Space offsets, of which those below a top of ours are taken in. */
static void trace_take(struct dcm_gc_trace *t, const u64 *offsets, u32 n)
{
	const struct dcm_gc_space *s = t->space;
	u64 unit[GC_STEAL];
	u32 have = 0;

	for (u32 i = 0; i < n || have; i++) {
		bool room;

		if (i < n) {
			const struct gc_region *r =
				&s->regions[offsets[i] >> s->region_shift];

			if (r->base &&
			    (offsets[i] & (s->l.region_bytes - 1)) < r->top)
				unit[have++] = offsets[i] >> 3;
			if (have < GC_STEAL)
				continue;
		}
		pthread_mutex_lock(&t->lock);
		t->activity++;
		room = gc_work_inject(t, unit, have);
		pthread_mutex_unlock(&t->lock);
		for (u32 j = 0; !room && j < have; j++)
			entry_note(t, unit[j]);
		have = 0;
	}
}

u32 dcm_gc_trace_ghosts(struct dcm_gc_space *s, u32 epoch, const u64 *offsets,
			u32 n)
{
	struct dcm_gc_trace *t;
	u32 status = VIRTIO_GC_OK;

	for (u32 i = 0; i < n; i++)
		if (offsets[i] >= s->l.bytes || offsets[i] & 7)
			return VIRTIO_GC_INVALID;
	/* whoever sends does not know whether we still trace */
	pthread_mutex_lock(&s->trace_lock);
	t = s->trace;
	if (!t || t->epoch != epoch || t->closed)
		status = VIRTIO_GC_NO_TRACE;
	else
		trace_take(t, offsets, n);
	pthread_mutex_unlock(&s->trace_lock);
	return status;
}

struct dcm_gc_result dcm_gc_trace_roots(struct dcm_gc_space *s, u32 epoch,
					const __le64 *addresses, u32 n)
{
	struct dcm_gc_result result = { VIRTIO_GC_OK, VIRTIO_GC_NONE };
	struct dcm_gc_trace *t = s->trace;
	u64 offset[GC_STEAL];
	u32 have = 0;

	if (!t || t->epoch != epoch || t->finished) {
		result.status = VIRTIO_GC_NO_TRACE;
		return result;
	}
	for (u32 i = 0; i < n; i++) {
		u64 a = le64toh(addresses[i]);

		if (a && (a - s->l.address >= s->l.bytes || a & 7)) {
			result.status = VIRTIO_GC_BAD_REFERENCE;
			result.at = a;
			return result;
		}
	}
	for (u32 i = 0; i < n || have; i++) {
		if (i < n && addresses[i])
			offset[have++] = le64toh(addresses[i]) - s->l.address;
		if (have == GC_STEAL || (i >= n && have)) {
			trace_take(t, offset, have);
			have = 0;
		}
	}
	return result;
}

static struct dcm_gc_result trace_result(const struct dcm_gc_trace *t)
{
	struct dcm_gc_result result = { gc_stopped(t), t->stop_at };

	if (result.status == GC_STOP_END)
		result.status = VIRTIO_GC_OK;
	if (!result.status)
		result.at = VIRTIO_GC_NONE;
	return result;
}

u32 dcm_gc_trace_poll(struct dcm_gc_space *s, u32 epoch,
		      struct dcm_gc_flags *flags)
{
	struct dcm_gc_trace *t = s->trace;

	memset(flags, 0, sizeof(*flags));
	if (!t || t->epoch != epoch)
		return VIRTIO_GC_NO_TRACE;
	pthread_mutex_lock(&t->lock);
	flags->tracing = !t->joined &&
			 (t->idle != t->threads ||
			  __atomic_load_n(&t->avail, __ATOMIC_SEQ_CST));
	flags->roots = t->inject_n;
	flags->ghosts = t->unacked_all;
	flags->changed = t->activity != t->activity_said || t->said_busy;
	flags->opaque = t->opaque_n;
	flags->result = trace_result(t);
	t->activity_said = t->activity;
	t->said_busy = flags->tracing || flags->roots || flags->ghosts;
	pthread_mutex_unlock(&t->lock);
	return VIRTIO_GC_OK;
}

void dcm_gc_trace_wait(struct dcm_gc_space *s, u64 ns)
{
	struct dcm_gc_trace *t = s->trace;
	struct timespec until;

	if (!t)
		return;
	clock_gettime(CLOCK_MONOTONIC, &until);
	ns += (u64)until.tv_nsec;
	until.tv_sec += (time_t)(ns / 1000000000u);
	until.tv_nsec = (long)(ns % 1000000000u);
	pthread_mutex_lock(&t->lock);
	while (!gc_stopped(t) && !t->opaque_waits &&
	       (t->idle != t->threads ||
		__atomic_load_n(&t->avail, __ATOMIC_SEQ_CST) || t->inject_n))
		if (pthread_cond_timedwait(&t->quiet, &t->lock, &until))
			break;
	pthread_mutex_unlock(&t->lock);
}

/* What became of regions that were not to change. */
static u32 trace_stale(struct dcm_gc_trace *t)
{
	struct dcm_gc_space *s = t->space;
	u32 status = VIRTIO_GC_OK;

	if (t->flags & VIRTIO_GC_TRACE_CONCURRENT)
		return VIRTIO_GC_OK;
	/* the threads are joined: they read the heap before this reads tags */
	for (u32 i = 0; i < s->nr_regions; i++) {
		struct gc_region *r = &s->regions[i];
		const struct gc_cold *c = &s->cold[i];

		if (!r->base || !r->top || !c->tag)
			continue;
		if (__atomic_load_n(c->tag, __ATOMIC_ACQUIRE) != c->tag_before)
			r->stale = true;
		if (r->stale && !(t->flags & VIRTIO_GC_TRACE_LOCAL))
			status = VIRTIO_GC_STALE;
	}
	return status;
}

struct dcm_gc_result dcm_gc_trace_finish(struct dcm_gc_space *s, u32 epoch)
{
	struct dcm_gc_result result = { VIRTIO_GC_NO_TRACE, VIRTIO_GC_NONE };
	struct dcm_gc_trace *t = s->trace;
	bool met;

	if (!t || t->epoch != epoch)
		return result;
	pthread_mutex_lock(&t->lock);
	met = t->opaque_n && !t->stop;
	pthread_mutex_unlock(&t->lock);
	if (met) {
		result.status = VIRTIO_GC_MET;
		return result;
	}
	/* what another donor says too late must not change the marks */
	pthread_mutex_lock(&s->trace_lock);
	t->closed = true;
	pthread_mutex_unlock(&s->trace_lock);
	trace_join(t);
	result = trace_result(t);
	if (!result.status)
		result.status = trace_stale(t);
	t->finished = !result.status;
	return result;
}

void dcm_gc_trace_cancel(struct dcm_gc_space *s, u32 status)
{
	if (s->trace && !s->trace->joined)
		gc_stop(s->trace, status, VIRTIO_GC_NONE);
}

bool gc_trace_running(const struct dcm_gc_space *s)
{
	return s->trace && !s->trace->joined;
}

u32 gc_trace_epoch(const struct dcm_gc_space *s)
{
	return s->trace ? s->trace->epoch : 0;
}

u32 gc_trace_finished(const struct dcm_gc_space *s, u32 epoch)
{
	if (!s->trace || s->trace->epoch != epoch)
		return VIRTIO_GC_NO_TRACE;
	return s->trace->finished ? VIRTIO_GC_OK : VIRTIO_GC_BUSY;
}

u32 dcm_gc_trace_live(struct dcm_gc_space *s, u32 epoch, u32 region,
		      struct virtio_gc_live *live)
{
	u32 status = gc_trace_finished(s, epoch);

	memset(live, 0, sizeof(*live));
	live->region = htole32(region);
	if (!status && region >= s->nr_regions)
		status = VIRTIO_GC_INVALID;
	if (!status && !s->regions[region].base)
		status = VIRTIO_GC_NO_TRACE;
	if (!status && s->regions[region].stale)
		status = VIRTIO_GC_STALE;
	if (!status) {
		live->bytes = htole64(s->cold[region].live_bytes);
		live->objects = htole64(s->cold[region].live_objects);
	}
	live->status = htole32(status);
	return status;
}

const u64 *dcm_gc_trace_bitmap(struct dcm_gc_space *s, u32 epoch, u32 region)
{
	if (gc_trace_finished(s, epoch) || region >= s->nr_regions ||
	    !s->regions[region].base || !s->regions[region].top)
		return NULL;
	return gc_region_marks(s, region);
}

u64 gc_trace_memory(const struct dcm_gc_space *s)
{
	const struct dcm_gc_trace *t = s->trace;
	u64 bytes;

	if (!t)
		return 0;
	bytes = sizeof(*t) + (t->threads + 1) * sizeof(*t->workers) +
		GC_INJECT * sizeof(*t->inject) +
		GC_OPAQUE_MAX * sizeof(*t->opaque);
	bytes += t->threads *
		 (t->ring_bytes + GC_PUBLIC * sizeof(*t->workers->open) +
		  GC_SENT * sizeof(*t->workers->sent) + s->nr_types);
	for (u32 i = 0; i < t->threads; i++)
		for (u32 d = 0; d < DCM_GC_DONORS_MAX; d++)
			bytes += t->workers[i].ghosts[d] ?
					 sizeof(struct gc_ghosts) :
					 0;
	return bytes;
}

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * trace.c - a trace: start, input, end
 *
 * scan.c has its threads' work, work.c how they share it. This file sets a
 * trace up as TRACE_START says, takes references from outside, and reports
 * progress and results.
 *
 * Roots are checked before they are taken; the heap is not. The first invalid
 * object stops the trace.
 *
 * With VIRTIO_GC_TRACE_LOCAL this is semeru-osdi20, 4.2: every region is traced by
 * itself, and the result of a region that is written meanwhile is stale (fig. 6).
 * Without it, it is mako-pldi22, 5.2: one trace over all donors.
 */
#include <stdlib.h>
#include <time.h>

#include "../../kvm-dcm/proto/gc_request.h"
#include "work.h"

static void *worker_main(void *arg)
{
	struct gc_worker *w = arg;

	gc_scan(w);
	gc_tally_flush(w);
	return NULL;
}

/* Store TRACE_START's regions in the table. */
static void regions_take(struct dcm_gc_space *s, const struct dcm_gc_start *how)
{
	for (u32 i = 0; i < s->nr_regions; i++) {
		s->regions[i].top = 0;
		s->regions[i].stale = false;
		s->regions[i].flags = 0;
		s->regions[i].say = false;
	}
	for (u32 i = 0; i < how->nr_regions; i++) {
		u32 n = le32toh(how->regions[i].region);

		s->regions[n].top = le64toh(how->regions[i].top) -
				    ((u64)n << s->region_shift);
		s->regions[n].flags = (u8)le32toh(how->regions[i].flags);
	}
}

static void regions_prepare(struct dcm_gc_space *s)
{
	for (u32 i = 0; i < s->nr_regions; i++) {
		struct gc_region *r = &s->regions[i];
		struct gc_cold *c = &s->cold[i];
		u64 start;

		r->grey = 0;
		s->reach[i].end = 0;
		c->live_bytes = 0;
		c->live_objects = 0;
		c->moved = false;
		c->moved_there = false;
		c->target = false;
		if (r->donor == VIRTIO_GC_NO_DONOR)
			r->top = 0;
		if (!r->base || !r->top)
			continue;
		start = (u64)i << s->region_shift;
		/*
		 * whole regions keep end 0: ref_elsewhere() handles references to them
		 */
		if (!gc_region_whole(r))
			s->reach[i].end = (start + r->top) >> 3;
		s->reach[i].zero = (uintptr_t)r->base - start;
		memset(gc_region_marks(s, i), 0, s->l.region_bytes / 64);
		memset(&s->grey[i * gc_grey_words(s)], 0,
		       s->l.region_bytes / 512);
		if (c->write_count) {
			c->count_before = smp_load_acquire(c->write_count);
			r->stale = c->count_before & 1;
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
	gc_unmap(t->opaque, gc_opaque_max(s) * sizeof(*t->opaque));
	gc_unmap(t->weak, gc_weak_bytes(s));
	gc_unmap(t->ranges, GC_RANGES_MAX * sizeof(*t->ranges));
	gc_unmap(t->types_said, GC_SEEN_WORDS * sizeof(*t->types_said));
	pthread_mutex_destroy(&t->lock);
	pthread_cond_destroy(&t->work);
	pthread_cond_destroy(&t->quiet);
	pthread_cond_destroy(&t->acked);
	pthread_cond_destroy(&t->taken);
	free(t);
}

/* The size of a thread's ring: all take 1/256 of the space; each 64 KiB to 4 MiB. */
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
	status = dcm_gc_start_check(&s->l, how->flags, how->regions,
				    how->nr_regions);
	if (status)
		return status;
	gc_trace_free(s);
	regions_take(s, how);
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
	t->opaque = gc_map(gc_opaque_max(s) * sizeof(*t->opaque));
	t->workers = aligned_alloc(64, (t->threads + 1) * sizeof(*t->workers));
	t->types_said = gc_map(GC_SEEN_WORDS * sizeof(*t->types_said));
	t->ranges = gc_map(GC_RANGES_MAX * sizeof(*t->ranges));
	t->weak = gc_map(gc_weak_bytes(s));
	status = VIRTIO_GC_LIMIT;
	if (t->inject && t->opaque && t->workers && t->types_said &&
	    t->ranges && t->weak)
		status = VIRTIO_GC_OK;
	if (t->workers)
		memset(t->workers, 0, (t->threads + 1) * sizeof(*t->workers));
	for (u32 i = 0; !status && i <= t->threads; i++)
		if (gc_worker_init(&t->workers[i], t, i < t->threads))
			status = VIRTIO_GC_LIMIT;
	/* ghosts may come as soon as the trace is visible */
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
 * Mark and count an object from outside for whose entry there is no room; it will be
 * scanned with the grey words. One thread at a time.
 */
static void entry_mark(struct dcm_gc_trace *t, u64 unit)
{
	struct gc_worker *w = &t->workers[t->threads];

	pthread_mutex_lock(&w->lock);
	gc_scan_later(w, unit);
	gc_tally_flush(w);
	pthread_mutex_unlock(&w->lock);
}

/*
 * Take references from outside; only those below the tops of this donor's regions
 * count.
 */
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

			if (r->base && gc_region_whole(r))
				gc_whole_met(t, offsets[i]);
			else if (r->base && (offsets[i] &
					     (s->l.region_bytes - 1)) < r->top)
				unit[have++] = offsets[i] >> 3;
			if (have < GC_STEAL)
				continue;
		}
		pthread_mutex_lock(&t->lock);
		t->activity++;
		room = gc_work_inject(t, unit, have);
		pthread_mutex_unlock(&t->lock);
		for (u32 j = 0; !room && j < have; j++)
			entry_mark(t, unit[j]);
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
	/* the trace may have ended here: the sender does not know that */
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

	/* a trace that has ended has no thread to take roots */
	if (!t || t->epoch != epoch || t->closed) {
		result.status = VIRTIO_GC_NO_TRACE;
		return result;
	}
	for (u32 i = 0; i < n; i++) {
		u64 a = le64toh(addresses[i]);

		if (a && (a - s->l.address >= s->l.bytes || a & 7 ||
			  gc_whole_inside(s, a - s->l.address))) {
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

struct dcm_gc_result dcm_gc_trace_ranges(struct dcm_gc_space *s, u32 epoch,
					 const struct virtio_gc_refs *refs,
					 u32 n)
{
	struct dcm_gc_result result = { VIRTIO_GC_OK, VIRTIO_GC_NONE };
	struct dcm_gc_trace *t = s->trace;

	if (!t || t->epoch != epoch || t->closed) {
		result.status = VIRTIO_GC_NO_TRACE;
		return result;
	}
	result.status = dcm_gc_ranges_check(&s->l, refs, n);
	/* in a local trace all roots are objects, given by TRACE_ROOTS */
	if (t->flags & VIRTIO_GC_TRACE_LOCAL)
		result.status = VIRTIO_GC_INVALID;
	pthread_mutex_lock(&t->lock);
	if (!result.status && n > GC_RANGES_MAX - t->ranges_n)
		result.status = VIRTIO_GC_LIMIT;
	for (u32 i = 0; !result.status && i < n; i++) {
		struct gc_range *r = &t->ranges[t->ranges_n + i];

		r->next = le64toh(refs[i].address) - s->l.address;
		r->end = r->next + le64toh(refs[i].count) * s->l.ref_bytes;
	}
	if (!result.status) {
		WRITE_ONCE(t->ranges_n, t->ranges_n + n);
		__atomic_add_fetch(&t->avail, n, __ATOMIC_SEQ_CST);
		t->activity++;
		pthread_cond_broadcast(&t->work);
	}
	pthread_mutex_unlock(&t->lock);
	return result;
}

void gc_trace_place(struct dcm_gc_space *s, u32 region, u32 donor, void *memory)
{
	/* threads use this region only for ranges, which they take under the lock */
	pthread_mutex_lock(&s->trace->lock);
	s->regions[region].donor = donor;
	s->regions[region].base = memory;
	pthread_mutex_unlock(&s->trace->lock);
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
	flags->changed = t->activity != t->activity_reported ||
			 t->busy_reported;
	flags->opaque = t->opaque_n + t->say_n;
	for (u32 i = 0; i <= t->threads; i++)
		flags->objects += READ_ONCE(t->workers[i].met);
	flags->result = trace_result(t);
	t->activity_reported = t->activity;
	t->busy_reported = flags->tracing || flags->roots || flags->ghosts;
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

/* Mark regions as stale that were written during the trace. */
static u32 trace_stale(struct dcm_gc_trace *t)
{
	struct dcm_gc_space *s = t->space;
	u32 status = VIRTIO_GC_OK;

	if (t->flags & VIRTIO_GC_TRACE_CONCURRENT)
		return VIRTIO_GC_OK;
	/* the threads are joined: they read the heap before the counts are read */
	for (u32 i = 0; i < s->nr_regions; i++) {
		struct gc_region *r = &s->regions[i];
		const struct gc_cold *c = &s->cold[i];

		if (!r->base || !r->top || !c->write_count)
			continue;
		if (smp_load_acquire(c->write_count) != c->count_before)
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
	met = (t->opaque_n || t->say_n) && !t->stop;
	pthread_mutex_unlock(&t->lock);
	if (met) {
		result.status = VIRTIO_GC_MET;
		return result;
	}
	/* another donor's late message must not change the marks */
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

bool gc_trace_rests(struct dcm_gc_space *s)
{
	struct dcm_gc_trace *t = s->trace;

	if (t && !t->joined && !gc_stopped(t))
		return false;
	/* threads of one that has failed may still be ending */
	if (t)
		trace_join(t);
	return true;
}

void gc_trace_types_gone(struct dcm_gc_space *s)
{
	if (s->trace)
		s->trace->types_gone = true;
}

bool gc_trace_types_are_gone(const struct dcm_gc_space *s)
{
	return s->trace && s->trace->types_gone;
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
		gc_opaque_max(s) * sizeof(*t->opaque) +
		t->ranges_n * sizeof(*t->ranges) + gc_weak_bytes(s);
	bytes += t->threads *
		 (t->ring_bytes + s->nr_regions * sizeof(*t->workers->tally) +
		  GC_PUBLIC * sizeof(*t->workers->open) +
		  GC_SENT * sizeof(*t->workers->sent) + s->types.nr / 8);
	for (u32 i = 0; i < t->threads; i++)
		for (u32 d = 0; d < DCM_WIRE_GC_DONORS; d++)
			bytes += t->workers[i].ghosts[d] ?
					 sizeof(struct gc_ghosts) :
					 0;
	return bytes;
}

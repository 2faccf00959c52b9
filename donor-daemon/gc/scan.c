// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * scan.c - the inner loops of a trace, from object to object
 *
 * Nothing is read as soon as it is found. A reference goes into a short queue,
 * and the word with its target's mark is prefetched; GC_EDGES references later
 * the mark is tested, and set by the first thread. The marked object goes on
 * the thread's ring (work.h). Entries taken from the ring, newest first, go
 * through a second short queue while their first bytes are prefetched, and are
 * scanned GC_AHEAD objects later. Small objects often lie across two cache
 * lines: the second one is prefetched too, else half of the time is spent
 * waiting for it.
 *
 * Nothing that is read is trusted, but checks cost little. A reference is
 * rotated so that one comparison tests alignment and that it is in the space.
 * Another tests that it is below the end of what is traced of its region; that
 * end is 0 for regions of other donors, and for regions that are one object
 * which is not read. All other cases are out of line.
 *
 * When a ring is full its older half is taken out: each object is counted, and
 * if it has references it becomes grey (work.c). These objects are in random
 * order, so they are prefetched, too; later grey objects are found in the order of
 * addresses, which suits caches better.
 */
#include "work.h"

/* Offset of the second line of an object that starts late in its first. */
#define SECOND_LINE	32u

void gc_tally_flush(struct gc_worker *w)
{
	struct dcm_gc_space *s = w->trace->space;

	for (u32 i = 0; i < s->nr_regions; i++) {
		struct gc_tally *t = &w->tally[i];

		if (!t->objects)
			continue;
		__atomic_add_fetch(&s->cold[i].live_bytes, t->bytes,
				   __ATOMIC_RELAXED);
		__atomic_add_fetch(&s->cold[i].live_objects, t->objects,
				   __ATOMIC_RELAXED);
		*t = (struct gc_tally){ 0 };
	}
}

/* Set a mark. True: this thread has set it, not another one before. */
static inline bool unit_mark(struct dcm_gc_space *s, u64 unit)
{
	u64 bit = 1ull << (unit & 63), *word = &s->marks[unit >> 6];

	if (READ_ONCE(*word) & bit)
		return false;
	return !(__atomic_fetch_or(word, bit, __ATOMIC_RELAXED) & bit);
}

static inline u32 unit_region(const struct dcm_gc_space *s, u64 unit)
{
	return (u32)(unit >> (s->region_shift - 3));
}

static inline const u8 *unit_at(const struct dcm_gc_space *s, u64 unit)
{
	return (const u8 *)(s->reach[unit_region(s, unit)].zero + (unit << 3));
}

/* A macro: gcc 12 drops a function that only prefetches. */
#define object_fetch(s, unit)                                            \
	do {                                                             \
		const u8 *first_line_ = unit_at(s, unit);                \
		__builtin_prefetch(first_line_);                         \
		__builtin_prefetch(first_line_ + SECOND_LINE);           \
	} while (0)

/*
 * Read the object at @unit. If there is no valid one, stop the trace and return false.
 */
static __always_inline bool object_look(struct gc_worker *w, u64 unit,
					struct gc_object *o)
{
	const struct dcm_gc_space *s = w->trace->space;
	u64 end = s->reach[unit_region(s, unit)].end;
	u32 status = gc_object_read(s, unit_at(s, unit), (end - unit) << 3, o);

	if (likely(!status))
		return true;
	gc_stop(w->trace, status, s->l.address + (unit << 3));
	return false;
}

/* Count the object at @unit, which has just been marked. */
static inline void object_met(struct gc_worker *w, u64 unit,
			      const struct gc_object *o, bool wait)
{
	const struct dcm_gc_space *s = w->trace->space;
	struct gc_tally *t = &w->tally[unit_region(s, unit)];

	t->bytes += o->bytes;
	t->objects++;
	/* only @w's thread writes this, or a thread that holds @w's lock */
	WRITE_ONCE(w->met, w->met + 1);
	gc_type_seen(w, o->type);
	if (likely(!o->type->flags))
		return;
	if (o->type->flags & VIRTIO_GC_TYPE_WEAK)
		gc_weak_add(w->trace, unit);
	if (o->type->flags & VIRTIO_GC_TYPE_OPAQUE)
		gc_opaque_add(w->trace, unit << 3, wait);
}

/*
 * Make an entry for which there is no room grey; first count it, if that is not done.
 */
static void entry_put_off(struct gc_worker *w, u64 entry)
{
	u64 unit = entry & GC_UNIT_MASK;
	struct gc_object o;

	if (!(entry >> GC_UNIT_BITS)) {
		if (!object_look(w, unit, &o))
			return;
		object_met(w, unit, &o, w->ring);
		if (!o.type->runs && !o.refs)
			return;
	}
	gc_work_grey(w->trace, unit);
}

void gc_scan_later(struct gc_worker *w, u64 unit)
{
	if (unit_mark(w->trace->space, unit))
		entry_put_off(w, unit);
}

static __attribute__((noinline)) void ring_empty(struct gc_worker *w)
{
	const struct dcm_gc_space *s = w->trace->space;
	u32 n = (w->ring_mask + 1) / 2;

	if (READ_ONCE(w->trace->idle) && gc_work_open(w))
		return;
	for (u32 i = 0; i < n; i++) {
		object_fetch(s, w->ring[(w->head + GC_AHEAD) & w->ring_mask] &
					GC_UNIT_MASK);
		entry_put_off(w, w->ring[w->head++ & w->ring_mask]);
	}
}

static inline void ring_push(struct gc_worker *w, u64 entry)
{
	if (unlikely(w->tail - w->head > w->ring_mask))
		ring_empty(w);
	w->ring[w->tail++ & w->ring_mask] = entry;
}

/* Prefetch a unit's mark; then test the mark of the unit GC_EDGES before it. */
static inline void edge_add(struct gc_worker *w, u64 unit)
{
	u64 due = w->edge[w->edge_next];

	__builtin_prefetch(&w->trace->space->marks[unit >> 6], 1);
	w->edge[w->edge_next] = unit;
	w->edge_next = (w->edge_next + 1) % GC_EDGES;
	if (unit_mark(w->trace->space, due))
		ring_push(w, due);
}

void gc_edge(struct gc_worker *w, u64 unit)
{
	edge_add(w, unit);
}

static void edges_flush(struct gc_worker *w)
{
	for (u32 i = 0; i < GC_EDGES; i++)
		edge_add(w, gc_unit_none(w->trace->space));
}

void gc_whole_met(struct dcm_gc_trace *t, u64 offset)
{
	struct dcm_gc_space *s = t->space;
	u32 region = (u32)(offset >> s->region_shift);
	const struct gc_region *r = &s->regions[region];

	/* a valid reference is to the region's start; another donor may lie */
	if (offset & (s->l.region_bytes - 1) || !r->top ||
	    !unit_mark(s, offset >> 3))
		return;
	__atomic_add_fetch(&s->cold[region].live_objects, 1, __ATOMIC_RELAXED);
	if (r->flags & VIRTIO_GC_REGION_SAY)
		gc_whole_say(t, region);
}

/* Handle a reference that leads to no object traced here. False: the trace ends. */
static __attribute__((noinline)) bool ref_elsewhere(struct gc_worker *w,
						    u64 ref)
{
	struct dcm_gc_trace *t = w->trace;
	const struct dcm_gc_space *s = t->space;
	const struct gc_region *r;
	u64 offset;

	switch (gc_ref_decode(&s->l, ref, &offset)) {
	case GC_REF_NONE:
		return true;
	case GC_REF_BAD:
		gc_stop(t, VIRTIO_GC_BAD_REFERENCE, ref);
		return false;
	case GC_REF_HERE:
		break;
	}
	r = &s->regions[offset >> s->region_shift];
	if ((offset & (s->l.region_bytes - 1)) >= r->top ||
	    t->flags & VIRTIO_GC_TRACE_LOCAL)
		return true;
	if (gc_whole_inside(s, offset)) {
		gc_stop(t, VIRTIO_GC_BAD_REFERENCE, ref);
		return false;
	}
	if (!r->base)
		gc_ghost_add(w, r->donor, offset);
	else if (gc_region_whole(r))
		gc_whole_met(t, offset);
	return true;
}

/* Scan @n references at @p, of the object at @from. False: the trace ends. */
static __always_inline bool refs_scan(struct gc_worker *w, const u8 *p, u64 n,
				      u64 from, u32 ref_bytes)
{
	const struct dcm_gc_space *s = w->trace->space;
	const struct gc_reach *reach = s->reach;
	u64 bias = s->l.ref_base - s->l.address, units = s->l.bytes >> 3;
	u32 shift = s->l.ref_shift, region_shift = s->region_shift - 3;
	bool local = w->trace->flags & VIRTIO_GC_TRACE_LOCAL;

	for (u64 i = 0; i < n; i++) {
		u64 ref = gc_ref_load(p + i * ref_bytes, ref_bytes), unit;

		if (!ref)
			continue;
		unit = bias + (ref << shift);
		/* rotate the low bits up: if one is set it is too large */
		unit = unit >> 3 | unit << 61;
		if (unlikely(unit >= units ||
			     unit >= reach[unit >> region_shift].end)) {
			if (!ref_elsewhere(w, ref))
				return false;
			continue;
		}
		if (local && (unit ^ from) >> region_shift)
			continue;
		edge_add(w, unit);
	}
	return true;
}

void gc_scan_roots(struct gc_worker *w, const u8 *p, u64 n)
{
	if (w->trace->space->l.ref_bytes == 4)
		refs_scan(w, p, n, 0, 4);
	else
		refs_scan(w, p, n, 0, 8);
}

static __always_inline void entry_scan(struct gc_worker *w, u64 entry,
				       u32 ref_bytes)
{
	const struct dcm_gc_space *s = w->trace->space;
	u64 unit = entry & GC_UNIT_MASK, slice = entry >> GC_UNIT_BITS, n;
	const u8 *p = unit_at(s, unit);
	const struct gc_run *run;
	struct gc_object o;

	if (unlikely(!object_look(w, unit, &o)))
		return;
	if (likely(!slice))
		object_met(w, unit, &o, true);
	if (unlikely(o.type->flags & VIRTIO_GC_TYPE_OPAQUE))
		return;
	if (likely(!slice) || slice == GC_SLICE_AGAIN) {
		run = o.type->run;
		for (u32 i = o.type->runs; i; i--, run++)
			if (!refs_scan(w, p + run->offset, run->count, unit,
				       ref_bytes))
				return;
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
	refs_scan(w, p + o.type->first + n * ref_bytes, o.refs, unit,
		  ref_bytes);
}

static __always_inline void work_scan(struct gc_worker *w, u32 ref_bytes)
{
	struct dcm_gc_trace *t = w->trace;
	const struct dcm_gc_space *s = t->space;
	u32 first = 0, n = 0, look = 0;

	for (;;) {
		while (n < GC_AHEAD && w->tail != w->head) {
			u64 e = w->ring[--w->tail & w->ring_mask];

			object_fetch(s, e & GC_UNIT_MASK);
			w->ahead[(first + n++) % GC_AHEAD] = e;
		}
		if (!n) {
			edges_flush(w);
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
			if (READ_ONCE(t->idle) && !READ_ONCE(t->avail))
				gc_work_open(w);
		}
	}
}

void gc_scan(struct gc_worker *w)
{
	if (w->trace->space->l.ref_bytes == 4)
		work_scan(w, 4);
	else
		work_scan(w, 8);
}

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * move.c - evacuation: copy the live objects out of a region
 *
 * semeru-osdi20 computes new addresses while it traces, into a table in the
 * worker's memory. Here copying and numbering are one pass after the trace, and
 * the table is in the space, where the runtime reads it as ordinary memory;
 * nothing crosses the network, and the worker needs no memory for it.
 *
 * The from-region is never written. If a worker dies the region is whole, and
 * the runtime, which got no answer, goes on with it.
 *
 * Depth first: a copied object's reference fields, as offsets in the to-region,
 * go on a stack; a field taken from it has its target copied, if that was not
 * done yet, and is then set to the new address. Breadth first: the copies
 * themselves are the queue, as in Cheney's algorithm. When the stack is full,
 * fields are left out and the copies are walked once more at the end.
 *
 * In both orders a field goes through a short queue before its target is read.
 * Meanwhile the target and its word of the table are prefetched, and then its entry. So
 * depth first follows several references side by side; if it followed one at a time it
 * would wait for memory at each object. A parent and its first child end up a
 * few objects apart, not pages. All of it is inlined, once for each width of a
 * reference: calls, and testing the width at each field, took a sixth of the
 * time.
 *
 * Other processes may write to the table: a value read back from it is only
 * used as the index of an entry or as a reference to store, never as an address
 * to write to. With a corrupted table, copying still ends at the to-region's end.
 */
#include <stdlib.h>

#include "object.h"

#define MOVE_STACK	262144u	/* 2 MiB, as far as it is used */
#define MOVE_AHEAD	8u	/* fields between prefetch and use */
#define MOVE_ROOM	512u	/* bytes of copies to be fetched ahead */
#define MOVE_PLACE_NONE	U32_MAX

/* A reference field of a copy, and its target's unit in the from-region. */
struct step {
	u32 field;
	u32 unit;
};

/**
 * struct move - a move in progress
 * @from: memory of the from-region, @top bytes of objects
 * @to: memory of the to-region; copies begin at @start, the next goes to @end
 * @bias: turns a reference into an offset in the from-region
 * @words: words of the forward table, followed by @places
 */
struct move {
	struct dcm_gc_space *s;
	const u64 *marks;
	const u8 *from;
	u64 from_start;		/* space offsets */
	u64 to_start;
	u64 top;
	u64 bias;
	u8 *to;
	u64 start;
	u64 end;
	struct virtio_gc_forward *words;
	__le32 *places;
	u32 objects;
	u32 depth;
	bool dropped;
	struct step stack[MOVE_STACK];
};

/*
 * The memory of @bytes at @offset of the space; %NULL unless in one region of this
 * donor.
 */
static void *memory_at(const struct dcm_gc_space *s, u64 offset, u64 bytes)
{
	const struct gc_region *r;
	u64 in = offset & (s->l.region_bytes - 1);

	if (offset >= s->l.bytes || bytes > s->l.region_bytes - in)
		return NULL;
	r = &s->regions[offset >> s->region_shift];
	return r->base ? r->base + in : NULL;
}

/* Index of the object at @unit in @places; U32_MAX: it has none. */
static __always_inline u32 place_index(const struct move *m, u64 unit)
{
	const struct virtio_gc_forward *w = &m->words[unit >> 6];
	u64 starts = le64toh(READ_ONCE(w->starts)), bit = 1ull << (unit & 63);
	u32 index;

	if (!(starts & bit))
		return U32_MAX;
	index = le32toh(READ_ONCE(w->before)) + gc_popcount(starts & (bit - 1));
	/* other processes may write to the table */
	return likely(index < m->objects) ? index : U32_MAX;
}

/* Write the table's words, and entries without a place. */
static void table_begin(struct move *m)
{
	u64 words = gc_unit_words(m->s), live = (m->top + 511) >> 9;
	u32 n = 0;

	for (u64 i = 0; i < words; i++) {
		u64 starts = i < live ? m->marks[i] : 0;

		m->words[i] = (struct virtio_gc_forward){
			.starts = htole64(starts),
			.before = htole32(n),
		};
		n += gc_popcount(starts);
	}
	memset(m->places, 0xff, (size_t)m->objects * sizeof(*m->places));
}

/* Copy the object at @unit; @place gets its unit in the to-region. */
static __always_inline u32 object_copy(struct move *m, u64 unit, u32 index,
				       struct gc_object *o, u32 *place)
{
	const u8 *p = m->from + unit * 8;
	u32 status = gc_object_read(m->s, p, m->top - unit * 8, o);

	if (status)
		return status;
	if (o->bytes > m->s->l.region_bytes - m->end)
		return VIRTIO_GC_NO_SPACE;
	__builtin_prefetch(m->to + m->end + MOVE_ROOM, 1);
	memcpy(m->to + m->end, p, o->bytes);
	*place = (u32)(m->end >> 3);
	m->end += o->bytes;
	WRITE_ONCE(m->places[index], htole32(*place));
	return VIRTIO_GC_OK;
}

/* Does @field refer into the from-region? Then make its step. */
static __always_inline bool step_make(const struct move *m, u32 field,
				      struct step *step, u32 ref_bytes)
{
	const struct dcm_gc_layout *l = &m->s->l;
	u64 ref = gc_ref_load(m->to + field, ref_bytes), unit;

	if (!ref)
		return false;
	unit = m->bias + (ref << l->ref_shift);
	/* as in scan.c: an unaligned unit becomes too large */
	unit = unit >> 3 | unit << 61;
	*step = (struct step){ field, (u32)unit };
	return unit < m->top >> 3;
}

static __always_inline void field_push(struct move *m, u32 field, u32 ref_bytes)
{
	if (m->depth == MOVE_STACK)
		m->dropped = true;
	else
		m->depth += step_make(m, field, &m->stack[m->depth], ref_bytes);
}

/* Push all reference fields of the copy at @at, last first. */
static __always_inline void
fields_push(struct move *m, u32 at, const struct gc_object *o, u32 ref_bytes)
{
	const struct gc_type *t = o->type;
	const struct gc_run *run = t->run;

	if (t->flags & VIRTIO_GC_TYPE_OPAQUE)
		return;
	for (u64 i = o->refs; i-- > 0;)
		field_push(m, at + t->first + (u32)i * ref_bytes, ref_bytes);
	if (t->flags & VIRTIO_GC_TYPE_WEAK)
		field_push(m, at + t->referent, ref_bytes);
	for (u32 i = t->runs; i-- > 0;)
		for (u32 j = run[i].count; j-- > 0;)
			field_push(m, at + run[i].offset + j * ref_bytes,
				   ref_bytes);
}

/*
 * Steps in order, while their memory is prefetched: first the object and its
 * word of the table, then, once the word is there, the entry.
 */
struct queue {
	struct step step[2 * MOVE_AHEAD];
	u32 index[2 * MOVE_AHEAD];	/* of their places */
	u32 first;
	u32 known;	/* first whose @index is not set yet */
	u32 end;
};

static __always_inline void queue_know(struct move *m, struct queue *q)
{
	u32 i = q->known++ % (2 * MOVE_AHEAD);

	q->index[i] = place_index(m, q->step[i].unit);
	if (q->index[i] != U32_MAX)
		__builtin_prefetch(&m->places[q->index[i]], 1);
}

/* Add a step; there is room. */
static __always_inline void queue_put(struct move *m, struct queue *q,
				      const struct step *step)
{
	const u8 *p = m->from + step->unit * 8ull;

	__builtin_prefetch(&m->words[step->unit >> 6]);
	/* most objects end within these lines */
	__builtin_prefetch(p);
	__builtin_prefetch(p + 64);
	__builtin_prefetch(p + 128);
	q->step[q->end++ % (2 * MOVE_AHEAD)] = *step;
	if (q->end - q->known == MOVE_AHEAD)
		queue_know(m, q);
}

static __always_inline bool queue_full(const struct queue *q)
{
	return q->end - q->first == 2 * MOVE_AHEAD;
}

/*
 * Set the first field to the new address of its target; if the target has to be
 * copied first, @copied is set, and @o and @place describe the copy.
 */
static __always_inline u32 queue_take(struct move *m, struct queue *q,
				      struct gc_object *o, u32 *place,
				      bool *copied, u32 ref_bytes)
{
	const struct dcm_gc_layout *l = &m->s->l;
	const struct step *step;
	u32 status, index;
	u64 ref;

	if (q->known == q->first)
		queue_know(m, q);
	step = &q->step[q->first % (2 * MOVE_AHEAD)];
	index = q->index[q->first++ % (2 * MOVE_AHEAD)];
	*copied = false;
	if (index == U32_MAX)
		return VIRTIO_GC_OK;
	*place = le32toh(READ_ONCE(m->places[index]));
	if (*place == MOVE_PLACE_NONE) {
		status = object_copy(m, step->unit, index, o, place);
		if (status)
			return status;
		*copied = true;
	}
	ref = gc_ref_encode(l, m->to_start + (u64)*place * 8);
	if (!ref)
		return VIRTIO_GC_BAD_REFERENCE;
	gc_ref_store(m->to + step->field, ref_bytes, ref);
	return VIRTIO_GC_OK;
}

static __always_inline u32 depth_first(struct move *m, u32 at,
				       const struct gc_object *first,
				       u32 ref_bytes)
{
	struct queue q = { .end = 0 };
	u32 status = VIRTIO_GC_OK, place;
	struct gc_object o = { 0 };
	bool copied;

	fields_push(m, at, first, ref_bytes);
	while (!status && (m->depth || q.first != q.end)) {
		if (m->depth && !queue_full(&q)) {
			queue_put(m, &q, &m->stack[--m->depth]);
			continue;
		}
		status = queue_take(m, &q, &o, &place, &copied, ref_bytes);
		if (copied)
			fields_push(m, place * 8, &o, ref_bytes);
	}
	return status;
}

static __always_inline u32 queue_add(struct move *m, struct queue *q, u64 field,
				     u32 ref_bytes)
{
	u32 status = VIRTIO_GC_OK, place;
	struct gc_object o;
	struct step step;
	bool copied;

	if (!step_make(m, (u32)field, &step, ref_bytes))
		return VIRTIO_GC_OK;
	if (queue_full(q))
		status = queue_take(m, q, &o, &place, &copied, ref_bytes);
	queue_put(m, q, &step);
	return status;
}

static __always_inline u32 fields_add(struct move *m, struct queue *q, u64 at,
				      const struct gc_object *o, u32 ref_bytes)
{
	const struct gc_type *t = o->type;
	const struct gc_run *run = t->run;
	u32 status = VIRTIO_GC_OK;

	if (t->flags & VIRTIO_GC_TYPE_OPAQUE)
		return VIRTIO_GC_OK;
	for (u32 i = 0; !status && i < t->runs; i++)
		for (u32 j = 0; !status && j < run[i].count; j++)
			status = queue_add(m, q,
					   at + run[i].offset + j * ref_bytes,
					   ref_bytes);
	if (!status && t->flags & VIRTIO_GC_TYPE_WEAK)
		status = queue_add(m, q, at + t->referent, ref_bytes);
	for (u64 i = 0; !status && i < o->refs; i++)
		status = queue_add(m, q, at + t->first + i * ref_bytes,
				   ref_bytes);
	return status;
}

/* Update all fields of the copies from @at on, including copies that this makes. */
static __always_inline u32 copies_update(struct move *m, u64 at, u32 ref_bytes)
{
	struct queue q = { .end = 0 };
	u32 status = VIRTIO_GC_OK, place;
	struct gc_object o;
	bool copied;

	while (!status && (at < m->end || q.first != q.end)) {
		if (at == m->end) {
			status = queue_take(m, &q, &o, &place, &copied,
					    ref_bytes);
			continue;
		}
		status = gc_object_read(m->s, m->to + at, m->end - at, &o);
		if (!status)
			status = fields_add(m, &q, at, &o, ref_bytes);
		at += o.bytes;
	}
	return status;
}

static __always_inline u32 move_all(struct move *m, u32 flags, u32 ref_bytes)
{
	u64 words = (m->top + 511) >> 9, from_end = m->start;
	struct gc_object o;
	u32 status, place;

	for (u64 i = 0; i < words; i++) {
		for (u64 w = m->marks[i]; w; w &= w - 1) {
			u64 unit = i * 64 + (u64)__builtin_ctzll(w);
			u32 index = place_index(m, unit);

			/* without an index the table was overwritten */
			if (index == U32_MAX ||
			    READ_ONCE(m->places[index]) !=
				    htole32(MOVE_PLACE_NONE))
				continue;
			status = READ_ONCE(m->s->stop);
			if (!status)
				status =
					object_copy(m, unit, index, &o, &place);
			if (!status && flags & VIRTIO_GC_MOVE_BREADTH_FIRST) {
				status = copies_update(m, from_end, ref_bytes);
				from_end = m->end;
			} else if (!status) {
				status = depth_first(m, place * 8, &o,
						     ref_bytes);
			}
			if (status)
				return status;
		}
	}
	return m->dropped ? copies_update(m, m->start, ref_bytes) :
			    VIRTIO_GC_OK;
}

static bool ranges_overlap(u64 a, u64 a_bytes, u64 b, u64 b_bytes)
{
	return a < b + b_bytes && b < a + a_bytes;
}

static u64 marks_count(const u64 *marks, u64 words)
{
	u64 n = 0;

	for (u64 i = 0; i < words; i++)
		n += gc_popcount(marks[i]);
	return n;
}

static u32 move_check(struct dcm_gc_space *s, const struct virtio_gc_move *le,
		      struct move *m)
{
	u32 from = le32toh(le->from), to = le32toh(le->to);
	u64 start = le64toh(le->start), table = le64toh(le->table);
	u64 room = le64toh(le->table_bytes), words, bytes;
	const struct gc_region *f, *t;

	if (from >= s->nr_regions || to >= s->nr_regions || from == to ||
	    s->cold[from].moved || s->cold[from].target || s->cold[to].moved ||
	    gc_region_whole(&s->regions[from]) ||
	    gc_region_whole(&s->regions[to]))
		return VIRTIO_GC_INVALID;
	m->to_start = (u64)to << s->region_shift;
	m->from_start = (u64)from << s->region_shift;
	/* below its top UPDATE would look for marks, which copies lack */
	if (start & 7 || start < m->to_start + s->regions[to].top ||
	    start > m->to_start + s->l.region_bytes || table & 15 ||
	    table >= s->l.bytes || room > s->l.bytes - table ||
	    ranges_overlap(table, room, m->from_start, s->l.region_bytes))
		return VIRTIO_GC_INVALID;
	f = &s->regions[from];
	t = &s->regions[to];
	if (!f->base || !t->base || !memory_at(s, table, 0))
		return VIRTIO_GC_CROSS_DONOR;
	/* a host may place two regions on the same memory: no copy between */
	if (ranges_overlap((uintptr_t)f->base, s->l.region_bytes,
			   (uintptr_t)t->base, s->l.region_bytes))
		return VIRTIO_GC_INVALID;
	if (!f->top)
		return VIRTIO_GC_NO_TRACE;
	if (f->stale)
		return VIRTIO_GC_STALE;
	words = (f->top + 511) >> 9;
	m->s = s;
	m->bias = s->l.ref_base - s->l.address - m->from_start;
	m->marks = gc_region_marks(s, from);
	m->objects = (u32)marks_count(m->marks, words);
	m->top = f->top;
	m->from = f->base;
	m->to = t->base;
	m->start = start - m->to_start;
	m->end = m->start;
	bytes = gc_unit_words(s) * sizeof(*m->words) +
		(u64)m->objects * sizeof(*m->places);
	if (bytes > room ||
	    s->cold[from].live_bytes > s->l.region_bytes - m->start)
		return VIRTIO_GC_NO_SPACE;
	/* the table must not reach into another donor's region */
	m->words = memory_at(s, table, bytes);
	if (!m->words)
		return VIRTIO_GC_CROSS_DONOR;
	m->places = (__le32 *)(m->words + gc_unit_words(s));
	return VIRTIO_GC_OK;
}

u32 dcm_gc_move(struct dcm_gc_space *s, u32 epoch,
		const struct virtio_gc_move *le, u32 flags,
		struct virtio_gc_moved *moved)
{
	u32 status = gc_trace_finished(s, epoch), from = le32toh(le->from);
	u64 table = le64toh(le->table), bytes = 0;
	struct move *m = malloc(sizeof(*m));

	memset(moved, 0, sizeof(*moved));
	moved->from = le->from;
	moved->to = le->to;
	if (m) {
		m->depth = 0;
		m->dropped = false;
	} else {
		status = VIRTIO_GC_LIMIT;
	}
	if (!status)
		status = move_check(s, le, m);
	if (!status)
		bytes = gc_unit_words(s) * sizeof(*m->words) +
			(u64)m->objects * sizeof(*m->places);
	/* copies of all live bytes must not reach the table */
	if (!status && ranges_overlap(table, bytes, m->to_start + m->start,
				      s->cold[from].live_bytes))
		status = VIRTIO_GC_INVALID;
	if (!status) {
		table_begin(m);
		status = s->l.ref_bytes == 4 ? move_all(m, flags, 4) :
					       move_all(m, flags, 8);
		/* the heap may lie, so live bytes may be wrong: check */
		if (!status &&
		    ranges_overlap(table, bytes, m->to_start + m->start,
				   m->end - m->start))
			status = VIRTIO_GC_BAD_OBJECT;
	}
	if (!status) {
		struct gc_cold *c = &s->cold[from];

		c->to = le32toh(le->to);
		c->table = table;
		c->objects = m->objects;
		__atomic_store_n(&c->moved, true, __ATOMIC_RELEASE);
		s->cold[c->to].target = true;
		moved->objects = htole32(m->objects);
		moved->end = htole64(m->to_start + m->end);
		moved->table = htole64(table);
		moved->table_bytes = htole64(bytes);
	}
	moved->status = htole32(status);
	free(m);
	return status;
}

u32 dcm_gc_moved_there(struct dcm_gc_space *s, u32 from)
{
	/* only regions of other donors can have been moved there */
	if (from >= s->nr_regions || s->regions[from].base ||
	    s->regions[from].donor >= DCM_WIRE_GC_DONORS)
		return VIRTIO_GC_INVALID;
	s->cold[from].moved_there = true;
	return VIRTIO_GC_OK;
}

void dcm_gc_stop(struct dcm_gc_space *s, u32 status)
{
	__atomic_store_n(&s->stop, status, __ATOMIC_RELAXED);
}

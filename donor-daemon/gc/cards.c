// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * cards.c - find the cards that refer into chosen regions: remembered sets
 *
 * A generational runtime rebuilds its remembered sets after a trace by reading
 * every live object of its old regions: G1 does so between Remark and Cleanup.
 * That brings in what the trace left on the donors. Here each donor reads its
 * own regions, and answers a number for each card with a reference.
 *
 * The regions are walked as in update.c: below the trace's top the marked objects,
 * above it one object after the other; then ranges of references. The walk
 * goes through the regions once, in the order of addresses. A request walks
 * until its answer is full, or it has looked at GC_CARDS_LOOK objects, and the
 * next one goes on there, if need be inside an object. A table has the card that was
 * answered last for each target, so that a card is not repeated for each of its
 * references.
 *
 * Nothing is written. The runtime may write meanwhile; its own barrier has to record
 * references that it stores then.
 */
#include <stdlib.h>

#include "../../kvm-dcm/proto/gc_request.h"
#include "object.h"

#define GC_CARDS_LOOK	(1u << 22)
#define GC_CARDS_RANGES	16384u

/**
 * struct gc_cards - a search for cards, and how far it has got
 * @end: by region: the offset in it where objects end; 0: no source
 * @target: by region, a byte: is it a target?
 * @last: by region: the last card that was answered for it
 * @ranges: the ranges that are left, in space offsets
 * @region: the walk goes on at @at of it, behind @field fields of the object
 */
struct gc_cards {
	u32 epoch;
	u32 shift;
	u64 *end;
	u8 *target;
	u32 *last;
	struct virtio_gc_refs *ranges;
	u32 ranges_n;
	u32 region;
	u64 at;
	u64 field;
};

/* A request's walk. @index: of the next field in the object */
struct walk {
	struct dcm_gc_space *s;
	struct gc_cards *c;
	struct virtio_gc_card *out;
	u32 max;
	u32 n;
	u32 look;
	u64 index;
	bool full;
};

void gc_cards_free(struct dcm_gc_space *s)
{
	struct gc_cards *c = s->cards;

	if (!c)
		return;
	free(c->end);
	free(c->target);
	free(c->last);
	free(c->ranges);
	free(c);
	s->cards = NULL;
}

u64 gc_cards_memory(const struct dcm_gc_space *s)
{
	const struct gc_cards *c = s->cards;

	if (!c)
		return 0;
	return sizeof(*c) +
	       s->nr_regions * (sizeof(*c->end) + sizeof(*c->target) +
				sizeof(*c->last)) +
	       (c->ranges ? GC_CARDS_RANGES * sizeof(*c->ranges) : 0);
}

u32 dcm_gc_cards_begin(struct dcm_gc_space *s, u32 epoch, u32 shift,
		       const struct virtio_gc_region *regions, u32 n)
{
	u32 status = gc_trace_finished(s, epoch);
	struct gc_cards *c;

	if (!status)
		status = dcm_gc_cards_check(&s->l, shift, regions, n);
	if (status)
		return status;
	gc_cards_free(s);
	c = calloc(1, sizeof(*c));
	s->cards = c;
	if (c) {
		c->end = calloc(s->nr_regions, sizeof(*c->end));
		c->target = calloc(s->nr_regions, sizeof(*c->target));
		c->last = malloc(s->nr_regions * sizeof(*c->last));
	}
	if (!c || !c->end || !c->target || !c->last) {
		gc_cards_free(s);
		return VIRTIO_GC_LIMIT;
	}
	c->epoch = epoch;
	c->shift = shift;
	memset(c->last, 0xff, s->nr_regions * sizeof(*c->last));
	for (u32 i = 0; i < n; i++) {
		u32 region = le32toh(regions[i].region);
		u32 flags = le32toh(regions[i].flags);

		c->target[region] = !!(flags & VIRTIO_GC_REGION_TARGET);
		if (flags & VIRTIO_GC_REGION_SOURCE)
			c->end[region] = le64toh(regions[i].top) -
					 ((u64)region << s->region_shift);
	}
	return VIRTIO_GC_OK;
}

/* Is there a search of @epoch? OK, or a status that says why not. */
static u32 cards_find(const struct dcm_gc_space *s, u32 epoch)
{
	if (!s->cards || s->cards->epoch != epoch)
		return VIRTIO_GC_NO_TRACE;
	return gc_trace_finished(s, epoch);
}

u32 dcm_gc_cards_ranges(struct dcm_gc_space *s, u32 epoch,
			const struct virtio_gc_refs *refs, u32 n)
{
	struct gc_cards *c = s->cards;
	u32 status = cards_find(s, epoch);

	if (!status)
		status = dcm_gc_ranges_check(&s->l, refs, n);
	if (status)
		return status;
	if (!c->ranges)
		c->ranges = calloc(GC_CARDS_RANGES, sizeof(*c->ranges));
	if (!c->ranges || n > GC_CARDS_RANGES - c->ranges_n)
		return VIRTIO_GC_LIMIT;
	memcpy(c->ranges + c->ranges_n, refs, n * sizeof(*refs));
	c->ranges_n += n;
	return VIRTIO_GC_OK;
}

/* Append to the answer; false: it is full. */
static bool card_add(struct walk *w, u64 offset, u32 region)
{
	if (w->n == w->max) {
		w->full = true;
		return false;
	}
	w->out[w->n].card = htole32((u32)(offset >> w->c->shift));
	w->out[w->n++].region = htole32(region);
	return true;
}

/*
 * Answer a reference at @offset of the space to region @to; false: the answer is full.
 */
static inline bool ref_say(struct walk *w, u64 offset, u32 to)
{
	u32 card = (u32)(offset >> w->c->shift);

	if (w->c->last[to] == card)
		return true;
	if (!card_add(w, offset, to))
		return false;
	w->c->last[to] = card;
	return true;
}

/* Answer @n references at @p, which is at @offset; those before @field are done. */
static u32 fields_say(struct walk *w, const u8 *p, u64 offset, u64 n)
{
	const struct dcm_gc_space *s = w->s;
	u32 from = (u32)(offset >> s->region_shift), bytes = s->l.ref_bytes;
	u64 i = w->c->field > w->index ? w->c->field - w->index : 0, to;

	for (; i < n; i++) {
		switch (gc_ref_decode(&s->l, gc_ref_load(p + i * bytes, bytes),
				      &to)) {
		case GC_REF_NONE:
			continue;
		case GC_REF_BAD:
			return VIRTIO_GC_BAD_REFERENCE;
		case GC_REF_HERE:
			break;
		}
		to >>= s->region_shift;
		if (to == from || !w->c->target[to])
			continue;
		if (!ref_say(w, offset + i * bytes, (u32)to)) {
			w->c->field = w->index + i;
			return VIRTIO_GC_OK;
		}
	}
	w->index += n;
	return VIRTIO_GC_OK;
}

static u32 object_say(struct walk *w, const u8 *p, u64 offset, u64 limit,
		      u64 *bytes)
{
	const struct gc_run *run;
	struct gc_object o;
	u32 status = gc_object_read(w->s, p, limit, &o);

	if (status)
		return status;
	*bytes = o.bytes;
	w->index = 0;
	if (o.type->flags & VIRTIO_GC_TYPE_OPAQUE) {
		card_add(w, offset, VIRTIO_GC_NO_REGION);
		return VIRTIO_GC_OK;
	}
	run = o.type->run;
	for (u32 i = 0; !status && !w->full && i < o.type->runs; i++)
		status = fields_say(w, p + run[i].offset,
				    offset + run[i].offset, run[i].count);
	if (!status && !w->full && o.type->flags & VIRTIO_GC_TYPE_WEAK)
		status = fields_say(w, p + o.type->referent,
				    offset + o.type->referent, 1);
	if (!status && !w->full)
		status = fields_say(w, p + o.type->first,
				    offset + o.type->first, o.refs);
	return status;
}

/* Go on to the next marked object below @top; false: there is none. */
static bool marked_find(struct walk *w, const u64 *marks, u64 top)
{
	struct gc_cards *c = w->c;

	while (c->at < top && w->look) {
		u64 word = marks[c->at >> 9] >> (c->at >> 3 & 63), next;

		next = word ? c->at + (u64)__builtin_ctzll(word) * 8 :
			      (c->at | 511) + 1;
		c->at = min(next, top);
		if (word)
			return c->at < top;
		w->look--;
	}
	return false;
}

/* Walk the rest of the walk's region. */
static struct dcm_gc_result region_walk(struct walk *w)
{
	struct dcm_gc_result result = { VIRTIO_GC_OK, VIRTIO_GC_NONE };
	struct dcm_gc_space *s = w->s;
	struct gc_cards *c = w->c;
	const struct gc_region *r = &s->regions[c->region];
	const u64 *marks = gc_region_marks(s, c->region);
	u64 start = (u64)c->region << s->region_shift, end = c->end[c->region];
	u64 top = min(r->top, end), bytes;

	while (w->look) {
		bool marked = marked_find(w, marks, top);

		if (!w->look)
			break;
		/* from the trace's top on there are no marks: every object counts */
		if (!marked && c->at >= end)
			break;
		result.status = READ_ONCE(s->stop);
		if (!result.status)
			result.status =
				object_say(w, r->base + c->at, start + c->at,
					   (marked ? r->top : end) - c->at,
						   &bytes);
		if (result.status)
			result.at = s->l.address + start + c->at;
		if (result.status || w->full)
			break;
		c->at += marked ? 8 : bytes;
		c->field = 0;
		w->look--;
	}
	return result;
}

static struct dcm_gc_result regions_walk(struct walk *w)
{
	struct dcm_gc_result result = { VIRTIO_GC_OK, VIRTIO_GC_NONE };
	struct gc_cards *c = w->c;

	for (; c->region < w->s->nr_regions; c->region++) {
		const struct gc_region *r = &w->s->regions[c->region];

		if (c->end[c->region] && r->base && !gc_region_whole(r) &&
		    !w->s->cold[c->region].moved)
			result = region_walk(w);
		if (result.status || w->full || !w->look)
			break;
		c->at = 0;
	}
	return result;
}

/* Walk a range from @at to @end, as far as it lies in this donor's regions. */
static u32 range_walk(struct walk *w, u64 *at, u64 end)
{
	struct dcm_gc_space *s = w->s;
	u32 status = VIRTIO_GC_OK, bytes = s->l.ref_bytes;

	while (!status && *at < end) {
		u64 region = *at >> s->region_shift;
		u64 next = min(end, (region + 1) << s->region_shift);
		const u8 *base = s->regions[region].base;

		status = READ_ONCE(s->stop);
		if (base && !status) {
			next = min(next, *at + (u64)DCM_GC_BATCH * bytes);
			w->index = 0;
			status = fields_say(w,
					    base + (*at &
						    (s->l.region_bytes - 1)),
					    *at, (next - *at) / bytes);
			w->look -= min(w->look, DCM_GC_BATCH);
		}
		if (w->full)
			next = *at + w->c->field * bytes;
		w->c->field = 0;
		*at = next;
		if (w->full || !w->look)
			break;
	}
	return status;
}

static u32 ranges_walk(struct walk *w)
{
	struct dcm_gc_space *s = w->s;
	u32 status = VIRTIO_GC_OK;

	while (!status && !w->full && w->look && w->c->ranges_n) {
		struct virtio_gc_refs *r = &w->c->ranges[w->c->ranges_n - 1];
		u64 at = le64toh(r->address) - s->l.address;
		u64 end = at + le64toh(r->count) * s->l.ref_bytes;

		status = range_walk(w, &at, end);
		r->address = htole64(s->l.address + at);
		r->count = htole64((end - at) / s->l.ref_bytes);
		if (at == end)
			w->c->ranges_n--;
	}
	return status;
}

struct dcm_gc_result dcm_gc_cards_next(struct dcm_gc_space *s, u32 epoch,
				       struct virtio_gc_card *out, u32 max,
				       u32 *n, u64 *left)
{
	struct dcm_gc_result result = { cards_find(s, epoch), VIRTIO_GC_NONE };
	struct walk w = {
		.s = s,
		.c = s->cards,
		.out = out,
		.max = max,
		.look = GC_CARDS_LOOK,
	};

	*n = 0;
	*left = 0;
	if (!result.status && gc_trace_types_are_gone(s))
		result.status = VIRTIO_GC_NO_TRACE;
	if (!result.status)
		result = regions_walk(&w);
	if (!result.status && w.c->region == s->nr_regions)
		result.status = ranges_walk(&w);
	if (result.status) {
		gc_cards_free(s);
		return result;
	}
	*n = w.n;
	*left = w.c->region < s->nr_regions || w.c->ranges_n;
	return result;
}

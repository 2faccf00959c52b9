// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * update.c - make references to moved objects refer to the copies
 *
 * From-regions and copies never overlap, so updating a reference twice is the same as
 * updating it once. So an update that was cut short can be finished by another one, or
 * by the runtime from the forward tables.
 *
 * Below the trace's top of a region the marked objects are walked, above it one
 * object after the other. Fields that refer to objects another donor moved are
 * gathered, asked about in messages of %DCM_GC_BATCH, and written when the
 * answer has come.
 */
#include <stdlib.h>

#include "../../kvm-dcm/proto/gc_request.h"
#include "object.h"

/* Fields that wait for another donor's answer. */
struct ask {
	u32 n;
	u64 offset[DCM_GC_BATCH];
	u8 *field[DCM_GC_BATCH];
};

struct update {
	struct dcm_gc_space *s;
	const struct dcm_gc_peers *peers;
	struct ask *ask[DCM_WIRE_GC_DONORS];
	u64 updated;
};

/* The new offset of the object at @offset, if this donor has moved it; else @offset. */
static u64 object_forwarded(const struct dcm_gc_space *s, u64 offset)
{
	u32 region = (u32)(offset >> s->region_shift);
	const struct gc_cold *c = &s->cold[region];
	const struct gc_region *holder =
		&s->regions[c->table >> s->region_shift];
	u64 unit = (offset & (s->l.region_bytes - 1)) >> 3, starts, place;
	const struct virtio_gc_forward *word;
	u32 i;

	if (!holder->base)
		return offset;
	word = (const void *)(holder->base +
			      (c->table & (s->l.region_bytes - 1)));
	/* trust this donor's marks for whether it moved, the table only for where */
	starts = gc_region_marks(s, region)[unit >> 6];
	if (!(starts >> (unit & 63) & 1) || unit >= s->regions[region].top >> 3)
		return offset;
	i = le32toh(READ_ONCE(word[unit >> 6].before)) +
	    gc_popcount(starts & ((1ull << (unit & 63)) - 1));
	if (i >= c->objects)
		return offset;
	place = le32toh(
		READ_ONCE(((const __le32 *)(word + gc_unit_words(s)))[i]));
	if (place >= s->l.region_bytes >> 3)
		return offset;
	return ((u64)c->to << s->region_shift) + place * 8;
}

void dcm_gc_forward(struct dcm_gc_space *s, u64 *offsets, u32 n)
{
	for (u32 i = 0; i < n; i++)
		if (offsets[i] < s->l.bytes &&
		    smp_load_acquire(
			    &s->cold[offsets[i] >> s->region_shift].moved))
			offsets[i] = object_forwarded(s, offsets[i]);
}

static u32 field_store(struct update *u, u8 *field, u64 offset)
{
	u64 ref = gc_ref_encode(&u->s->l, offset);

	if (!ref)
		return VIRTIO_GC_BAD_REFERENCE;
	gc_ref_store(field, u->s->l.ref_bytes, ref);
	u->updated++;
	return VIRTIO_GC_OK;
}

static u32 ask_answer(struct update *u, u32 donor)
{
	struct ask *a = u->ask[donor];
	u64 answer[DCM_GC_BATCH];
	u32 status = VIRTIO_GC_OK;

	memcpy(answer, a->offset, a->n * sizeof(*answer));
	if (!u->peers || !u->peers->forward(u->peers->arg, donor, answer, a->n))
		return VIRTIO_GC_DONOR_LOST;
	for (u32 i = 0; !status && i < a->n; i++) {
		if (answer[i] == a->offset[i])
			continue;
		if (answer[i] >= u->s->l.bytes || answer[i] & 7)
			return VIRTIO_GC_DONOR_LOST;
		status = field_store(u, a->field[i], answer[i]);
	}
	a->n = 0;
	return status;
}

static u32 ask_add(struct update *u, u32 donor, u8 *field, u64 offset)
{
	struct ask *a = u->ask[donor];

	if (!a) {
		a = malloc(sizeof(*a));
		if (!a)
			return VIRTIO_GC_LIMIT;
		a->n = 0;
		u->ask[donor] = a;
	}
	a->offset[a->n] = offset;
	a->field[a->n++] = field;
	return a->n == DCM_GC_BATCH ? ask_answer(u, donor) : VIRTIO_GC_OK;
}

static inline u32 field_update(struct update *u, u8 *field)
{
	struct dcm_gc_space *s = u->s;
	u64 ref = gc_ref_load(field, s->l.ref_bytes), offset, now;
	const struct gc_cold *c;
	u32 region;

	switch (gc_ref_decode(&s->l, ref, &offset)) {
	case GC_REF_NONE:
		return VIRTIO_GC_OK;
	case GC_REF_BAD:
		return VIRTIO_GC_BAD_REFERENCE;
	case GC_REF_HERE:
		break;
	}
	region = (u32)(offset >> s->region_shift);
	c = &s->cold[region];
	if (c->moved_there)
		return ask_add(u, s->regions[region].donor, field, offset);
	if (!c->moved)
		return VIRTIO_GC_OK;
	now = object_forwarded(s, offset);
	return now == offset ? VIRTIO_GC_OK : field_store(u, field, now);
}

static u32 fields_update(struct update *u, u8 *p, u64 n)
{
	u32 status = VIRTIO_GC_OK;

	for (u64 i = 0; !status && i < n; i++)
		status = field_update(u, p + i * u->s->l.ref_bytes);
	return status;
}

static u32 object_update(struct update *u, u8 *p, u64 limit, u64 *bytes)
{
	const struct gc_run *run;
	struct gc_object o;
	u32 status = gc_object_read(u->s, p, limit, &o);

	if (status)
		return status;
	*bytes = o.bytes;
	if (o.type->flags & VIRTIO_GC_TYPE_OPAQUE)
		return VIRTIO_GC_OK;
	run = o.type->run;
	for (u32 i = 0; !status && i < o.type->runs; i++)
		status = fields_update(u, p + run[i].offset, run[i].count);
	if (!status && o.type->flags & VIRTIO_GC_TYPE_WEAK)
		status = fields_update(u, p + o.type->referent, 1);
	return status ? status : fields_update(u, p + o.type->first, o.refs);
}

/* Update a region's references. @end: offset in the region at which objects end. */
static struct dcm_gc_result region_update(struct update *u, u32 region, u64 end)
{
	struct dcm_gc_space *s = u->s;
	const struct gc_region *r = &s->regions[region];
	const u64 *marks = gc_region_marks(s, region);
	u64 bytes, at, top = min(r->top, end), words = (top + 511) >> 9;
	struct dcm_gc_result result = { VIRTIO_GC_OK, VIRTIO_GC_NONE };

	for (u64 i = 0; !result.status && i < words; i++) {
		for (u64 w = marks[i]; !result.status && w; w &= w - 1) {
			at = i * 512 + (u64)__builtin_ctzll(w) * 8;
			result.status = object_update(u, r->base + at,
						      r->top - at, &bytes);
			if (result.status)
				result.at = at;
		}
		if (!result.status)
			result.status = READ_ONCE(s->stop);
	}
	for (at = r->top; !result.status && at < end; at += bytes) {
		result.status = READ_ONCE(s->stop);
		if (!result.status)
			result.status = object_update(u, r->base + at, end - at,
						      &bytes);
		if (result.status)
			result.at = at;
	}
	if (result.at != VIRTIO_GC_NONE)
		result.at += s->l.address + ((u64)region << s->region_shift);
	return result;
}

/* Send the questions that are left, and end an update. */
static void update_end(struct update *u, struct dcm_gc_result *result,
		       u64 *updated)
{
	for (u32 i = 0; i < DCM_WIRE_GC_DONORS; i++) {
		if (u->ask[i] && u->ask[i]->n && !result->status)
			result->status = ask_answer(u, i);
		free(u->ask[i]);
	}
	*updated = u->updated;
}

struct dcm_gc_result dcm_gc_update(struct dcm_gc_space *s,
				   const struct virtio_gc_region *regions,
				   u32 n, const struct dcm_gc_peers *peers,
				   u64 *updated)
{
	struct dcm_gc_result result = { VIRTIO_GC_OK, VIRTIO_GC_NONE };
	struct update u = { .s = s, .peers = peers };

	if (gc_trace_finished(s, gc_trace_epoch(s)))
		result.status = VIRTIO_GC_NO_TRACE;
	for (u32 i = 0; !result.status && i < n; i++) {
		u32 region = le32toh(regions[i].region);
		u64 top = le64toh(regions[i].top), start;

		start = (u64)region << s->region_shift;
		if (region >= s->nr_regions || regions[i].flags ||
		    top < start || top - start > s->l.region_bytes || top & 7)
			result.status = VIRTIO_GC_INVALID;
		else if (s->cold[region].moved ||
			 gc_region_whole(&s->regions[region]))
			continue;	/* never write a from-region; not read */
		else if (s->regions[region].base)
			result = region_update(&u, region, top - start);
	}
	update_end(&u, &result, updated);
	return result;
}

/* Update @n references at @p, some at a time. */
static u32 refs_update(struct update *u, u8 *p, u64 n)
{
	u32 bytes = u->s->l.ref_bytes, status = VIRTIO_GC_OK;

	for (u64 i = 0; !status && i < n; i += DCM_GC_BATCH) {
		status = READ_ONCE(u->s->stop);
		if (!status)
			status = fields_update(u, p + i * bytes,
					       min(n - i, (u64)DCM_GC_BATCH));
	}
	return status;
}

/* Update the part of a range that lies in this donor's regions. */
static u32 range_update(struct update *u, u64 at, u64 end)
{
	struct dcm_gc_space *s = u->s;
	u32 status = VIRTIO_GC_OK;
	u64 next;

	for (; !status && at < end; at = next) {
		u64 region = at >> s->region_shift;

		next = min(end, (region + 1) << s->region_shift);
		/* never write a from-region */
		if (s->regions[region].base && !s->cold[region].moved)
			status = refs_update(u,
				s->regions[region].base +
						     (at &
						      (s->l.region_bytes - 1)),
				(next - at) / s->l.ref_bytes);
	}
	return status;
}

struct dcm_gc_result
dcm_gc_update_ranges(struct dcm_gc_space *s, const struct virtio_gc_refs *refs,
		     u32 n, const struct dcm_gc_peers *peers, u64 *updated)
{
	struct dcm_gc_result result = { VIRTIO_GC_OK, VIRTIO_GC_NONE };
	struct update u = { .s = s, .peers = peers };

	result.status = dcm_gc_ranges_check(&s->l, refs, n);
	if (!result.status && gc_trace_finished(s, gc_trace_epoch(s)))
		result.status = VIRTIO_GC_NO_TRACE;
	for (u32 i = 0; !result.status && i < n; i++) {
		u64 at = le64toh(refs[i].address) - s->l.address;

		result.status = range_update(&u, at,
					     at + le64toh(refs[i].count) *
							     s->l.ref_bytes);
		if (result.status)
			result.at = le64toh(refs[i].address);
	}
	update_end(&u, &result, updated);
	return result;
}

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * types.c - check and store types
 *
 * TYPES_ADD is checked as a whole before any of it is kept: with a type of the
 * table, one comparison (struct gc_type.head) covers all fixed fields of an
 * object. A type is published by its hash slot, written last, so that a running
 * trace needs no lock.
 */
#include <stdlib.h>

#include "space.h"

static bool field_fits(u64 offset, u64 bytes, u64 limit)
{
	return offset % bytes == 0 && offset + bytes <= limit;
}

static bool width_valid(u32 bytes, bool two)
{
	return bytes == 4 || bytes == 8 || (two && bytes == 2);
}

/* Read @le into @t, but its runs; @t->head is the end of its fields. */
static bool type_read(const struct dcm_gc_layout *l,
		      const struct virtio_gc_type *le, struct gc_type *t)
{
	u64 fixed;	/* bytes that every such object has */
	bool self;

	*t = (struct gc_type){
		.id = le32toh(le->id),
		.kind = le->kind,
		.flags = le->flags,
		.length_bytes = le->length_bytes,
		.size_bytes = le->size_bytes,
		.bytes = le32toh(le->bytes),
		.length_offset = le32toh(le->length_offset),
		.size_offset = le32toh(le->size_offset),
		.first = le32toh(le->first),
		.referent = le32toh(le->referent),
		.runs = le16toh(le->runs),
		.shift = le->shift,
	};
	self = t->kind == VIRTIO_GC_SELF;
	if (t->kind < VIRTIO_GC_FIXED || t->kind > VIRTIO_GC_SELF ||
	    t->flags & ~(VIRTIO_GC_TYPE_WEAK | VIRTIO_GC_TYPE_OPAQUE) ||
	    le->reserved || t->shift > 16 || t->id & ~l->type_mask)
		return false;
	if (t->kind == VIRTIO_GC_FIXED) {
		if (!t->bytes || t->bytes % 8 || t->first || t->shift ||
		    t->length_bytes)
			return false;
		fixed = t->bytes;
	} else {
		if (t->bytes || t->flags & VIRTIO_GC_TYPE_WEAK)
			return false;
		fixed = self ? DCM_GC_SELF_HEAD_MAX : t->first;
		if (t->kind == VIRTIO_GC_REFS && t->shift)
			return false;
		if (t->kind != VIRTIO_GC_DATA && t->first % l->ref_bytes)
			return false;
	}
	if (t->length_bytes ? !width_valid(t->length_bytes, true) ||
				      !field_fits(t->length_offset,
						  t->length_bytes, fixed) :
			      t->length_offset || t->kind == VIRTIO_GC_REFS ||
				      t->kind == VIRTIO_GC_DATA)
		return false;
	if (self ? !width_valid(t->size_bytes, true) ||
			    !field_fits(t->size_offset, t->size_bytes, fixed) ||
			    (!t->length_bytes && t->first) ||
			    t->first > DCM_GC_SELF_HEAD_MAX :
		   t->size_bytes || t->size_offset)
		return false;
	if (t->flags & VIRTIO_GC_TYPE_WEAK ?
		    !field_fits(t->referent, l->ref_bytes, fixed) :
		    t->referent)
		return false;
	if (!field_fits(l->type_offset, l->type_bytes, fixed))
		return false;
	t->head = (u32)fixed;
	if (self) {
		t->head = l->type_offset + l->type_bytes;
		t->head = max(t->head, t->size_offset + t->size_bytes);
		if (t->length_bytes)
			t->head = max(t->head,
				      t->length_offset + t->length_bytes);
	}
	return true;
}

/* Check the runs of @t at @le: ascending, disjoint, inside; raises @t->head. */
static bool runs_check(const struct dcm_gc_layout *l, struct gc_type *t,
		       const struct virtio_gc_run *le)
{
	u64 limit = t->kind == VIRTIO_GC_SELF ? DCM_GC_SELF_HEAD_MAX : t->head;
	u64 end = 0;

	for (u32 i = 0; i < t->runs; i++) {
		u64 offset = le32toh(le[i].offset);
		u64 count = le32toh(le[i].count);

		if (!count || offset < end || offset % l->ref_bytes ||
		    offset + count * l->ref_bytes > limit)
			return false;
		end = offset + count * l->ref_bytes;
		if (t->flags & VIRTIO_GC_TYPE_WEAK && t->referent >= offset &&
		    t->referent < end)
			return false;
	}
	if (t->kind == VIRTIO_GC_SELF)
		t->head = max(t->head, (u32)end);
	return true;
}

static void type_publish(struct dcm_gc_space *s, u32 index)
{
	u32 h = (s->types[index].id * 0x9e3779b1u) >> (32 - GC_HASH_BITS);

	while (s->hash[h])
		h = (h + 1) & ((1u << GC_HASH_BITS) - 1);
	smp_store_release(&s->hash[h], index + 1);
}

/* Sift @ids[@i] down, in a max-heap of @n. */
static void ids_sift(u32 *ids, u32 i, u32 n)
{
	u32 id = ids[i];

	for (u32 k; (k = 2 * i + 1) < n; i = k) {
		if (k + 1 < n && ids[k + 1] > ids[k])
			k++;
		if (ids[k] <= id)
			break;
		ids[i] = ids[k];
	}
	ids[i] = id;
}

/*
 * Whether an id occurs twice in @ids. A heap sort. Not qsort(): glibc's asks
 * how much memory the host has, for which the worker's sandbox kills it
 * (SIGSYS).
 */
static bool ids_repeat(u32 *ids, u32 n)
{
	for (u32 i = n / 2; i--;)
		ids_sift(ids, i, n);
	while (n > 1) {
		u32 most = ids[0];

		ids[0] = ids[--n];
		ids_sift(ids, 0, n);
		if (ids[0] == most)
			return true;
	}
	return false;
}

/* Fill all into the tables, behind the types that count. */
static u32 types_fill(struct dcm_gc_space *s, const struct virtio_gc_type *le,
		      u32 count, const struct virtio_gc_run *run, u32 runs)
{
	u32 used = 0, *ids = calloc(count ? count : 1, sizeof(*ids));
	bool repeat;

	if (!ids)
		return VIRTIO_GC_LIMIT;
	for (u32 i = 0; i < count; i++) {
		struct gc_type *t = &s->types[s->nr_types + i];

		if (!type_read(&s->l, &le[i], t) || t->runs > runs - used ||
		    !runs_check(&s->l, t, run + used) ||
		    gc_type_find(s, t->id)) {
			free(ids);
			return VIRTIO_GC_INVALID;
		}
		t->run = s->nr_runs + used;
		used += t->runs;
		ids[i] = t->id;
	}
	repeat = ids_repeat(ids, count);
	free(ids);
	if (repeat || used != runs)
		return VIRTIO_GC_INVALID;
	for (u32 i = 0; i < runs; i++)
		s->runs[s->nr_runs + i] =
			(struct gc_run){ le32toh(run[i].offset),
					 le32toh(run[i].count) };
	return VIRTIO_GC_OK;
}

u32 dcm_gc_types_add(struct dcm_gc_space *s, const void *types, size_t bytes,
		     u32 count, u32 runs)
{
	const struct virtio_gc_type *le = types;
	u32 status;

	if (bytes != (u64)count * sizeof(struct virtio_gc_type) +
			     (u64)runs * sizeof(struct virtio_gc_run))
		return VIRTIO_GC_INVALID;
	pthread_mutex_lock(&s->types_lock);
	if (count > DCM_GC_TYPES_MAX - s->nr_types ||
	    runs > DCM_GC_RUNS_MAX - s->nr_runs) {
		status = VIRTIO_GC_LIMIT;
	} else {
		status = types_fill(s, le, count,
				    (const struct virtio_gc_run *)(le + count),
				    runs);
	}
	if (!status) {
		u32 from = s->nr_types;

		s->nr_runs += runs;
		smp_store_release(&s->nr_types, from + count);
		for (u32 i = 0; i < count; i++)
			type_publish(s, from + i);
	}
	pthread_mutex_unlock(&s->types_lock);
	return status;
}

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * types.c - check and store types
 *
 * TYPES_ADD is checked as a whole before any of it is kept. So a trace needs only one
 * comparison (struct gc_type.head) to check all fixed fields of an object. A type
 * is published by its hash slot, which is written last, so that a running trace needs
 * no lock.
 *
 * Memory is allocated as types are added: types in chunks, which never move; a
 * request's runs in one piece; and when the hash is half full, one of twice the size.
 * Smaller hashes are kept until all types are removed, as a trace may be reading them.
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
		.tail = le->tail,
	};
	self = t->kind == VIRTIO_GC_SELF;
	if (t->kind < VIRTIO_GC_FIXED || t->kind > VIRTIO_GC_SELF ||
	    t->flags & ~(VIRTIO_GC_TYPE_WEAK | VIRTIO_GC_TYPE_OPAQUE) ||
	    t->tail > 2 || (t->tail && t->kind != VIRTIO_GC_DATA) ||
	    t->shift > 16 || t->id & ~l->type_mask)
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

/* ---- tables ---- */

#define HASH_BITS_MIN	9u

static void *types_alloc(struct gc_types *types, size_t bytes)
{
	void *p = calloc(1, bytes);

	if (p)
		types->bytes += bytes;
	return p;
}

/* Add a type to a hash; readers may look meanwhile. */
static void hash_put(struct gc_hash *h, const struct gc_type *t)
{
	u32 i = gc_hash_first(h, t->id);

	while (h->slot[i])
		i = (i + 1) & h->mask;
	smp_store_release(&h->slot[i], t);
}

/* Make room in the hash for @n types in all. */
static bool hash_grow(struct gc_types *types, u32 n)
{
	struct gc_hash *old = types->hash, *h;
	u32 bits = old ? 32 - old->shift : HASH_BITS_MIN;

	while (1u << bits < 2 * n)
		bits++;
	if (old && 1u << bits == old->mask + 1)
		return true;
	h = types_alloc(types, sizeof(*h) + (sizeof(h->slot[0]) << bits));
	if (!h)
		return false;
	h->old = old;
	h->shift = 32 - bits;
	h->mask = (1u << bits) - 1;
	for (u32 i = 0; i < types->nr; i++)
		hash_put(h, gc_type_at(types, i));
	smp_store_release(&types->hash, h);
	return true;
}

bool gc_types_init(struct gc_types *types)
{
	memset(types, 0, sizeof(*types));
	return hash_grow(types, 0);
}

void gc_types_free(struct gc_types *types)
{
	while (types->hash) {
		struct gc_hash *h = types->hash;

		types->hash = h->old;
		free(h);
	}
	while (types->runs) {
		struct gc_runs *runs = types->runs;

		types->runs = runs->next;
		free(runs);
	}
	for (u32 i = 0; i < ARRAY_SIZE(types->chunk); i++)
		free(types->chunk[i]);
}

/* Memory for @count more types, and for their hash slots. */
static bool types_room(struct gc_types *types, u32 count)
{
	u32 end = types->nr + count;

	for (u32 i = types->nr / GC_TYPES_CHUNK; i * GC_TYPES_CHUNK < end;
	     i++) {
		if (types->chunk[i])
			continue;
		types->chunk[i] =
			types_alloc(types,
				    GC_TYPES_CHUNK * sizeof(struct gc_type));
		if (!types->chunk[i])
			return false;
	}
	return hash_grow(types, end);
}

/* ---- a request ---- */

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
 * Does an id occur twice in @ids? Sorts them, by a heap sort: glibc's qsort() asks how
 * much memory the host has, for which the worker's sandbox kills it (SIGSYS).
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

/* Fill all types of a request into the tables; they don't count yet. */
static u32 types_fill(const struct dcm_gc_layout *l, struct gc_types *types,
		      const struct virtio_gc_type *le, u32 count,
		      const struct virtio_gc_run *run, struct gc_run *to,
		      u32 runs)
{
	u32 used = 0, *ids = calloc(count ? count : 1, sizeof(*ids));
	bool repeat;

	if (!ids)
		return VIRTIO_GC_LIMIT;
	for (u32 i = 0; i < count; i++) {
		u32 index = types->nr + i;
		struct gc_type *t = &types->chunk[index / GC_TYPES_CHUNK]
						 [index % GC_TYPES_CHUNK];

		if (!type_read(l, &le[i], t) || t->runs > runs - used ||
		    !runs_check(l, t, run + used) ||
		    gc_type_find(types, t->id)) {
			free(ids);
			return VIRTIO_GC_INVALID;
		}
		t->index = index;
		t->bit = 1ull << index % 64;
		t->run = to + used;
		used += t->runs;
		ids[i] = t->id;
	}
	repeat = ids_repeat(ids, count);
	free(ids);
	if (repeat || used != runs)
		return VIRTIO_GC_INVALID;
	for (u32 i = 0; i < runs; i++)
		to[i] = (struct gc_run){ le32toh(run[i].offset),
					 le32toh(run[i].count) };
	return VIRTIO_GC_OK;
}

static u32 types_take(const struct dcm_gc_layout *l, struct gc_types *types,
		      const struct virtio_gc_type *le, u32 count, u32 runs)
{
	const u64 bytes = runs * sizeof(struct gc_run);
	struct gc_runs *to;
	u32 status, from = types->nr;

	if (count > DCM_GC_TYPES_MAX - types->nr ||
	    runs > DCM_GC_RUNS_MAX - types->nr_runs)
		return VIRTIO_GC_LIMIT;
	if (!count)
		return runs ? VIRTIO_GC_INVALID : VIRTIO_GC_OK;
	to = malloc(sizeof(*to) + bytes);
	if (!to || !types_room(types, count)) {
		free(to);
		return VIRTIO_GC_LIMIT;
	}
	status = types_fill(l, types, le, count, (const void *)(le + count),
			    to->run, runs);
	if (status) {
		free(to);
		return status;
	}
	to->next = types->runs;
	types->runs = to;
	types->bytes += sizeof(*to) + bytes;
	types->nr_runs += runs;
	smp_store_release(&types->nr, from + count);
	for (u32 i = from; i < types->nr; i++)
		hash_put(types->hash, gc_type_at(types, i));
	return VIRTIO_GC_OK;
}

/* Replace all types, if the new ones are valid. */
static u32 types_replace(struct dcm_gc_space *s,
			 const struct virtio_gc_type *le, u32 count, u32 runs)
{
	u32 status = VIRTIO_GC_LIMIT;
	struct gc_types types;

	if (!gc_trace_rests(s))
		return VIRTIO_GC_BUSY;
	if (gc_types_init(&types))
		status = types_take(&s->l, &types, le, count, runs);
	gc_types_free(status ? &types : &s->types);
	if (status)
		return status;
	s->types = types;
	gc_trace_types_gone(s);
	return VIRTIO_GC_OK;
}

u32 dcm_gc_types_add(struct dcm_gc_space *s, u32 flags, const void *types,
		     size_t bytes, u32 count, u32 runs)
{
	u32 status;

	if (bytes != (u64)count * sizeof(struct virtio_gc_type) +
			     (u64)runs * sizeof(struct virtio_gc_run))
		return VIRTIO_GC_INVALID;
	pthread_mutex_lock(&s->types_lock);
	status = flags & VIRTIO_GC_TYPES_REPLACE ?
			 types_replace(s, types, count, runs) :
			 types_take(&s->l, &s->types, types, count, runs);
	pthread_mutex_unlock(&s->types_lock);
	return status;
}

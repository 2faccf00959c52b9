// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * gc_space.c - the spaces of a virtio-gc window: SPACE_CREATE's conditions
 *
 * A table of fixed size, as ids are below a limit and small. Nothing of a
 * request is used before all of it was checked; sums are checked by
 * subtraction, so that they can't wrap.
 *
 * Invariant: pieces do not overlap, and each lies in the window.
 */
#include <endian.h>
#include <stddef.h>
#include <string.h>

#include "gc_space.h"

static bool power_of_two(uint64_t n)
{
	return n && !(n & (n - 1));
}

/* The part of VGC-D-14 that says how objects are read. */
static bool layout_ok(const struct virtio_gc_space *s)
{
	uint8_t width = s->type_bytes;

	if (s->ref_bytes != 4 && s->ref_bytes != 8)
		return false;
	if (s->ref_shift > 8)
		return false;
	if (width != 1 && width != 2 && width != 4 && width != 8)
		return false;
	if (s->type_shift >= 8 * width)
		return false;
	if (le16toh(s->type_offset) % width)
		return false;
	return s->type_mask && !s->reserved && !s->reserved2 &&
	       !(s->flags & ~VIRTIO_GC_SPACE_OUTSIDE);
}

static bool overlaps(const struct dcm_gc_pieces *t, uint64_t window,
		     uint64_t bytes)
{
	uint32_t i;

	for (i = 0; i < DCM_GC_PIECES_MAX; i++) {
		const struct dcm_gc_piece *p = &t->piece[i];

		if (p->bytes && window < p->window + p->bytes &&
		    p->window < window + bytes)
			return true;
	}
	return false;
}

uint32_t dcm_gc_piece_add(struct dcm_gc_pieces *t, uint32_t id,
			  const struct virtio_gc_space *space)
{
	struct dcm_gc_piece p = {
		.window = le64toh(space->window),
		.bytes = le64toh(space->bytes),
		.region_bytes = le64toh(space->region_bytes),
		.address = le64toh(space->address),
		.as_said = *space,
	};

	if (id >= DCM_GC_PIECES_MAX || t->piece[id].bytes || !layout_ok(space))
		return VIRTIO_GC_INVALID;
	if (!power_of_two(p.region_bytes) || p.region_bytes < t->region_min ||
	    p.region_bytes > t->region_max)
		return VIRTIO_GC_INVALID;
	if (!p.bytes || (p.window | p.bytes | p.address) & (p.region_bytes - 1))
		return VIRTIO_GC_INVALID;
	if (p.bytes > t->window_bytes || p.window > t->window_bytes - p.bytes)
		return VIRTIO_GC_INVALID;
	if (p.address > UINT64_MAX - p.bytes)
		return VIRTIO_GC_INVALID;
	if (overlaps(t, p.window, p.bytes))
		return VIRTIO_GC_INVALID;
	if (p.bytes / p.region_bytes > t->regions_max)
		return VIRTIO_GC_LIMIT;
	t->piece[id] = p;
	__atomic_store_n(&t->nr, t->nr + 1, __ATOMIC_RELAXED);
	return VIRTIO_GC_OK;
}

struct dcm_gc_piece *dcm_gc_piece_find(struct dcm_gc_pieces *t, uint32_t id)
{
	if (id >= DCM_GC_PIECES_MAX || !t->piece[id].bytes)
		return NULL;
	return &t->piece[id];
}

void dcm_gc_piece_drop(struct dcm_gc_pieces *t, struct dcm_gc_piece *p)
{
	memset(p, 0, sizeof(*p));
	__atomic_store_n(&t->nr, t->nr - 1, __ATOMIC_RELAXED);
}

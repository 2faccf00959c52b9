// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * space.c - the table of a virtio-gc window's spaces, and the checks of SPACE_CREATE
 *
 * A table of fixed size, as ids are small. dcm_gc_layout_check() has checked the
 * layout of objects. The position of a space in the window is checked here, by
 * subtractions, which can't overflow.
 *
 * Invariant: spaces do not overlap, and each lies in the window.
 */
#include <stddef.h>
#include <string.h>

#include "space.h"

static bool space_overlaps(const struct dcm_gc_host_spaces *t, u64 window,
			   u64 bytes)
{
	u32 i;

	for (i = 0; i < DCM_GC_SPACES_MAX; i++) {
		const struct dcm_gc_host_space *p = &t->space[i];

		if (p->bytes && window < p->window + p->bytes &&
		    p->window < window + bytes)
			return true;
	}
	return false;
}

u32 dcm_gc_host_space_add(struct dcm_gc_host_spaces *t, u32 id,
			       const struct dcm_gc_layout *l, u64 window)
{
	u32 status = dcm_gc_layout_check(l);

	if (id >= DCM_GC_SPACES_MAX || t->space[id].bytes)
		return VIRTIO_GC_INVALID;
	if (status)
		return status;
	if (l->region_bytes < t->region_min || l->region_bytes > t->region_max)
		return VIRTIO_GC_INVALID;
	if (window % l->region_bytes || l->bytes > t->window_bytes ||
	    window > t->window_bytes - l->bytes)
		return VIRTIO_GC_INVALID;
	if (space_overlaps(t, window, l->bytes))
		return VIRTIO_GC_INVALID;
	if (l->bytes / l->region_bytes > t->regions_max)
		return VIRTIO_GC_LIMIT;
	t->space[id] = (struct dcm_gc_host_space){
		.window = window,
		.bytes = l->bytes,
		.layout = *l,
	};
	WRITE_ONCE(t->nr, t->nr + 1);
	return VIRTIO_GC_OK;
}

struct dcm_gc_host_space *dcm_gc_host_space_find(struct dcm_gc_host_spaces *t,
						 u32 id)
{
	if (id >= DCM_GC_SPACES_MAX || !t->space[id].bytes)
		return NULL;
	return &t->space[id];
}

void dcm_gc_host_space_drop(struct dcm_gc_host_spaces *t,
			    struct dcm_gc_host_space *p)
{
	memset(p, 0, sizeof(*p));
	WRITE_ONCE(t->nr, t->nr - 1);
}

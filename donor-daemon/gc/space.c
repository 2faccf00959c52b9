// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * space.c - a space: its layout, its regions' places, its tables
 *
 * Tables that could be large are mapped at their full size and take only the
 * pages that are touched: none for bitmaps of other donors' regions.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "../../kvm-dcm/proto/gc_request.h"
#include "space.h"

void *gc_map(u64 bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

void gc_unmap(void *p, u64 bytes)
{
	if (p)
		munmap(p, bytes);
}

struct dcm_gc_space *dcm_gc_space_new(const struct dcm_gc_layout *l, u32 donor,
				      u32 *status)
{
	struct dcm_gc_space *s;

	*status = dcm_gc_layout_check(l);
	if (*status)
		return NULL;
	*status = VIRTIO_GC_LIMIT;
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->l = *l;
	s->donor = donor;
	s->region_shift = (u32)ilog2(l->region_bytes);
	s->nr_regions = (u32)(l->bytes >> s->region_shift);
	pthread_mutex_init(&s->types_lock, NULL);
	pthread_mutex_init(&s->trace_lock, NULL);
	/* one more word, of marks that are always set (scan.c) */
	s->marks_bytes = l->bytes / 64 + sizeof(*s->marks);
	s->marks = gc_map(s->marks_bytes);
	s->grey_bytes = l->bytes >> 9;
	s->grey = gc_map(s->grey_bytes);
	s->regions = calloc(s->nr_regions, sizeof(*s->regions));
	s->reach = calloc(s->nr_regions, sizeof(*s->reach));
	s->cold = calloc(s->nr_regions, sizeof(*s->cold));
	if (!s->marks || !s->grey || !gc_types_init(&s->types) || !s->regions ||
	    !s->reach || !s->cold) {
		dcm_gc_space_free(s);
		return NULL;
	}
	for (u32 i = 0; i < s->nr_regions; i++)
		s->regions[i].donor = VIRTIO_GC_NO_DONOR;
	s->marks[l->bytes >> 9] = U64_MAX;
	*status = VIRTIO_GC_OK;
	return s;
}

void dcm_gc_space_free(struct dcm_gc_space *s)
{
	if (!s)
		return;
	gc_trace_free(s);
	gc_cards_free(s);
	gc_unmap(s->marks, s->marks_bytes);
	gc_unmap(s->grey, s->grey_bytes);
	gc_types_free(&s->types);
	free(s->regions);
	free(s->reach);
	free(s->cold);
	pthread_mutex_destroy(&s->types_lock);
	pthread_mutex_destroy(&s->trace_lock);
	free(s);
}

u32 dcm_gc_space_regions(const struct dcm_gc_space *s)
{
	return s->nr_regions;
}

u64 dcm_gc_space_region_bytes(const struct dcm_gc_space *s)
{
	return s->l.region_bytes;
}

u64 dcm_gc_space_address(const struct dcm_gc_space *s)
{
	return s->l.address;
}

static void region_clear(struct gc_region *r)
{
	r->top = 0;
	r->flags = 0;
}

u32 dcm_gc_release(struct dcm_gc_space *s, u32 from)
{
	if (from >= s->nr_regions)
		return VIRTIO_GC_INVALID;
	/* the region is free: its marked objects were moved away, or there are none */
	if (s->cold[from].moved || !s->cold[from].live_objects)
		region_clear(&s->regions[from]);
	if (s->cold[from].moved)
		s->cold[s->cold[from].to].target = false;
	s->cold[from].moved = false;
	s->cold[from].moved_there = false;
	return VIRTIO_GC_OK;
}

/* Forget what an earlier trace found in @region, and its move. */
static void region_forget(struct dcm_gc_space *s, u32 region)
{
	struct gc_cold *c = &s->cold[region];

	dcm_gc_release(s, region);
	region_clear(&s->regions[region]);
	s->regions[region].stale = false;
	c->live_bytes = 0;
	c->live_objects = 0;
}

u32 dcm_gc_space_place(struct dcm_gc_space *s, u32 region, u32 donor,
		       void *memory, const u32 *write_count)
{
	struct gc_region *r;

	if (region >= s->nr_regions || (donor == s->donor) != !!memory ||
	    (donor >= DCM_WIRE_GC_DONORS && donor != VIRTIO_GC_NO_DONOR))
		return VIRTIO_GC_INVALID;
	r = &s->regions[region];
	if (gc_trace_running(s)) {
		if (r->donor == donor && r->base == memory)
			return VIRTIO_GC_OK;
		if (r->donor != VIRTIO_GC_NO_DONOR || r->top)
			return VIRTIO_GC_BUSY;
		s->cold[region].write_count = write_count;
		gc_trace_place(s, region, donor, memory);
		return VIRTIO_GC_OK;
	}
	/* a new place: marks, top and table are about the old memory */
	if (r->donor != donor || r->base != memory)
		region_forget(s, region);
	r->donor = donor;
	r->base = memory;
	s->cold[region].write_count = write_count;
	return VIRTIO_GC_OK;
}

u64 dcm_gc_space_memory(const struct dcm_gc_space *s)
{
	u64 bytes = sizeof(*s) +
		    s->nr_regions * (sizeof(*s->regions) + sizeof(*s->reach) +
				     sizeof(*s->cold)) +
		    s->types.bytes;

	for (u32 i = 0; i < s->nr_regions; i++)
		if (s->regions[i].base && s->regions[i].top)
			bytes += s->l.region_bytes / 64 +
				 s->l.region_bytes / 512;
	return bytes + gc_trace_memory(s) + gc_cards_memory(s);
}

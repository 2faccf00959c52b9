// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * compact.c - choose which regions to move where, so that some become free
 *
 * The least filled regions, one after the other, are moved into free regions. Their
 * number is chosen so that the most regions are free afterwards. Each move is like one
 * that a runtime asks for (move.c): none is left half done, and a donor needs one free
 * region and room for tables.
 */
#include <stdlib.h>

#include "space.h"

struct candidate {
	u32 region;
	u64 live;
	u64 table;	/* bytes */
};

struct compact {
	struct dcm_gc_space *s;
	struct candidate *from;
	u32 nr_from;
	u32 *free;
	u32 nr_free;
	u64 tables;	/* the part of the area left, as space offsets */
	u64 tables_end;
};

/* Sift @c[@i] down, in a max-heap of @n by live bytes. */
static void heap_sift(struct candidate *c, u32 i, u32 n)
{
	for (u32 k; (k = 2 * i + 1) < n; i = k) {
		struct candidate swap = c[i];

		if (k + 1 < n && c[k + 1].live > c[k].live)
			k++;
		if (c[k].live <= swap.live)
			return;
		c[i] = c[k];
		c[k] = swap;
	}
}

/* Sort by live bytes, ascending. Not qsort(): glibc's asks for memory size. */
static void live_sort(struct candidate *c, u32 n)
{
	for (u32 i = n / 2; i--;)
		heap_sift(c, i, n);
	while (n > 1) {
		struct candidate most = c[0];

		c[0] = c[--n];
		c[n] = most;
		heap_sift(c, 0, n);
	}
}

/* Split the listed regions into from-regions and free ones. */
static u32 regions_sort(struct compact *c, const struct virtio_gc_region *le,
			u32 n)
{
	struct dcm_gc_space *s = c->s;

	for (u32 i = 0; i < n; i++) {
		u32 region = le32toh(le[i].region);
		u64 start = (u64)region << s->region_shift;
		u64 top = le64toh(le[i].top), live;

		if (region >= s->nr_regions || le[i].flags || top < start ||
		    top - start > s->l.region_bytes || top & 7 ||
		    (start < c->tables_end &&
		     c->tables < start + s->l.region_bytes) ||
		    s->cold[region].moved || s->cold[region].target)
			return VIRTIO_GC_INVALID;
		/* skip regions of other donors, and regions that are one object */
		if (!s->regions[region].base ||
		    gc_region_whole(&s->regions[region]))
			continue;
		if (top == start) {
			/* a region freed since the trace is no target yet */
			if (s->regions[region].top)
				continue;
			c->free[c->nr_free++] = region;
			continue;
		}
		live = s->cold[region].live_bytes;
		/* objects above the trace's top have no marks */
		if (s->regions[region].top != top - start || !live ||
		    s->regions[region].stale || live >= top - start)
			continue;
		c->from[c->nr_from++] = (struct candidate){
			.region = region,
			.live = live,
			.table = gc_unit_words(s) *
					 sizeof(struct virtio_gc_forward) +
				 s->cold[region].live_objects * sizeof(__le32),
		};
	}
	live_sort(c->from, c->nr_from);
	return VIRTIO_GC_OK;
}

/* Take @bytes for a table, in one region of this donor; NONE: no room is left. */
static u64 table_take(struct compact *c, u64 bytes)
{
	struct dcm_gc_space *s = c->s;

	while (c->tables < c->tables_end) {
		u64 at = c->tables;
		u64 end = (at | (s->l.region_bytes - 1)) + 1;

		if (s->regions[at >> s->region_shift].base &&
		    bytes <= min(end, c->tables_end) - at) {
			c->tables = (at + bytes + 15) & ~15ull;
			return at;
		}
		c->tables = end;
	}
	return VIRTIO_GC_NONE;
}

/* Choose how many of the from-regions to move. */
static u32 moves_plan(const struct compact *c)
{
	u64 room = 0, region_bytes = c->s->l.region_bytes;
	u32 used = 0, best = 0, best_gain = 0;

	for (u32 i = 0; i < c->nr_from; i++) {
		if (c->from[i].live > room) {
			if (used == c->nr_free)
				break;
			used++;
			room = region_bytes;
		}
		room -= c->from[i].live;
		if (i + 1 > used && i + 1 - used > best_gain) {
			best_gain = i + 1 - used;
			best = i + 1;
		}
	}
	return best;
}

static u32 moves_make(struct compact *c, u32 epoch,
		      struct virtio_gc_moved *moved, u32 *nr_moved)
{
	struct dcm_gc_space *s = c->s;
	u32 n = moves_plan(c), target = 0;
	u64 at = 0, end = 0, table;

	for (u32 i = 0; i < n; i++) {
		struct virtio_gc_move move = {
			.from = htole32(c->from[i].region),
		};
		u32 status;

		if (c->from[i].live > end - at) {
			/* copies took more than the live bytes counted */
			if (target == c->nr_free)
				return VIRTIO_GC_BAD_OBJECT;
			at = (u64)c->free[target++] << s->region_shift;
			end = at + s->l.region_bytes;
		}
		table = table_take(c, c->from[i].table);
		if (table == VIRTIO_GC_NONE)
			return VIRTIO_GC_NO_SPACE;
		move.to = htole32((u32)((end - 1) >> s->region_shift));
		move.start = htole64(at);
		move.table = htole64(table);
		move.table_bytes = htole64(c->from[i].table);
		status = dcm_gc_move(s, epoch, &move, 0, &moved[*nr_moved]);
		if (status)
			return status;
		at = le64toh(moved[(*nr_moved)++].end);
	}
	return VIRTIO_GC_OK;
}

u32 dcm_gc_compact(struct dcm_gc_space *s, u32 epoch,
		   const struct virtio_gc_region *regions, u32 nr_regions,
		   u64 tables, u64 table_bytes, struct virtio_gc_moved *moved,
		   u32 *nr_moved)
{
	struct compact c = { .s = s };
	u32 status = gc_trace_finished(s, epoch);

	*nr_moved = 0;
	if (status)
		return status;
	if (tables >= s->l.bytes || table_bytes > s->l.bytes - tables ||
	    tables & 15 || nr_regions > s->nr_regions)
		return VIRTIO_GC_INVALID;
	c.tables = tables;
	c.tables_end = tables + table_bytes;
	c.from = calloc(nr_regions + 1, sizeof(*c.from));
	c.free = calloc(nr_regions + 1, sizeof(*c.free));
	status = c.from && c.free ? regions_sort(&c, regions, nr_regions) :
				    VIRTIO_GC_LIMIT;
	if (!status)
		status = moves_make(&c, epoch, moved, nr_moved);
	free(c.from);
	free(c.free);
	return status;
}

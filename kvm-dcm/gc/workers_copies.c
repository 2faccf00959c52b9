// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * workers_copies.c - copy workers' changes to the extents' other slabs, or undo them
 *
 * A worker uses one slab of an extent, the primary. When it has changed regions, the
 * changes are copied to the other slabs before the runtime gets its answer (spread);
 * also if the command has failed but the worker still lives. If the worker is gone, and
 * its donor perhaps with it, its changes are undone (revert). If the worker lives but
 * the changes can't be copied in time, a donor of copies does not answer: then pages
 * stay on the primary alone, thin (keep).
 *
 * So if a donor dies in the middle, each page of the regions is as before the command
 * or as after it. Such a mixture is right for everything that workers write: if a move
 * is not answered with OK, to-region and table may be anything above the move's start;
 * updating references that were updated has no effect; and a from-region is never
 * written to.
 *
 * A move is committed and spread before the next one begins, and before references
 * to the moved objects are updated. So reverting an update never reverts a move.
 *
 * (semeru-osdi20 and mako-pldi22 have one copy: there a donor's death ends the
 * program.)
 *
 * Locking: none, only the GC thread uses it.
 */
#include "workers_int.h"
#include "../lib/clock.h"

#define END_MS \
	1000u /* beyond the deadline, to end what a failed command began */

void gc_hit_none(struct workers_space *sp)
{
	memset(sp->hit, 0, sp->nr_regions);
}

void gc_hit_bytes(struct workers_space *sp, u64 at, u64 bytes)
{
	u64 size = sp->l.region_bytes, r;

	for (r = at / size;
	     bytes && r <= (at + bytes - 1) / size && r < sp->nr_regions; r++)
		sp->hit[r] = 1;
}

void gc_hit_listed(struct workers_space *sp, const struct dcm_gc_request *r)
{
	const struct virtio_gc_region *region = r->entries;
	u32 i;

	if (dcm_gc_request_ranges(r)) {
		dcm_gc_ranges_mark(&sp->l, r->entries, r->count, sp->hit);
		return;
	}
	for (i = 0; i < r->count; i++)
		if (le32toh(region[i].region) < sp->nr_regions)
			sp->hit[le32toh(region[i].region)] = 1;
}

/*
 * Find the next run of hit regions that are on one donor, from @first on. Returns their
 * number; 0: there are no more.
 */
static u32 run_next(const struct workers_space *sp, u32 *first)
{
	u32 n = 0, donor;

	while (*first < sp->nr_regions &&
	       (!sp->hit[*first] ||
		sp->place[*first].donor == VIRTIO_GC_NO_DONOR))
		++*first;
	if (*first == sp->nr_regions)
		return 0;
	donor = sp->place[*first].donor;
	while (*first + n < sp->nr_regions && sp->hit[*first + n] &&
	       sp->place[*first + n].donor == donor)
		n++;
	return n;
}

/* Spread, keep or revert one run, on which its worker has ended. Returns a status. */
static u32 run_spread(struct dcm_gc_workers *t, u32 space, u32 first, u32 n,
		      u64 until_ms)
{
	u32 donor = t->space[space].place[first].donor;
	bool well = false;

	if (gc_conn_up(t, donor))
		well = !t->ops->spread(t->arg, space, first, n, until_ms);
	/* if the regions have moved, another slab than the worker's was spread */
	if (!gc_space_stays_at(t, space, first, n)) {
		if (!well)
			t->ops->revert(t->arg, space, first, n, false);
		t->about = donor;
		return VIRTIO_GC_WORKER_LOST;
	}
	if (well)
		return VIRTIO_GC_OK;
	/* is the worker gone by now, or does a donor of a copy not answer? */
	gc_workers_turn(t, NULL, -1, 0);
	if (gc_conn_up(t, donor)) {
		t->ops->revert(t->arg, space, first, n, true);
		return VIRTIO_GC_OK;
	}
	t->ops->revert(t->arg, space, first, n, false);
	return gc_gone_status(t, donor);
}

u32 gc_changes_spread(struct dcm_gc_workers *t, u32 space, u32 status)
{
	struct workers_space *sp = &t->space[space];
	u64 until = t->expires_ms;
	u32 first = 0, n, one;

	if (status)
		until = max(until, dcm_clock_ms() + END_MS);
	for (; (n = run_next(sp, &first)); first += n) {
		one = run_spread(t, space, first, n, until);
		if (status || !one)
			continue;
		/* workers take the command for done, so the trace must end */
		sp->lost = true;
		status = one;
	}
	return status;
}

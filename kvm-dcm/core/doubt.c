// SPDX-License-Identifier: GPL-2.0-only
/*
 * doubt.c - WRITEs that failed with their connection and may still land
 *
 * A WRITE that ends in -ENOTCONN may still be under way: in a buffer of the
 * network, or of a donor that was only late. If another lane wrote the page
 * again over a working connection, the old WRITE could land on top of the new
 * one after the new one was answered. So the pages of such a WRITE stay
 * PD_INFLIGHT, and are not written back, until the WRITE can't land any more:
 *
 *   - the donor has welcomed another connection of the same lane. Before it
 *     does, it closes the older connection and does or drops what that brought
 *     (docs/protocol.md, "After a broken connection"): dcm_lane_fenced();
 *   - or the extent no longer uses the slab: it was lost, or moved off.
 *
 * The write-back itself ends at once: its frame and descriptor are free, and
 * the block is Inactive and dirty. A move of such a page needs no check: all
 * moves are one lane's, which posts nothing to that donor before the donor has
 * welcomed it again. dcm-tc18 has one queue pair for all processors and no
 * reconnection, so it has no such case.
 *
 * A lane remembers its own doubts. Its table always has room for what is in
 * flight: a lane whose table is full starts no write-back and no move.
 *
 * Locking: a lane's table belongs to the lane. PD_INFLIGHT is set under the
 * block's lock, or while the block is BUSY, and cleared atomically.
 */
#include "internal.h"

/* Pages of a block (a bit each) that a WRITE may still land on. */
u16 dcm_block_inflight(const struct dcm_vm *vm, u32 head, unsigned int order)
{
	u16 pages = 0;
	u32 i;

	for (i = 0; i < 1u << order; i++)
		if (pd_inflight(pd_of(vm, head + i)))
			pages |= (u16)(1u << i);
	return pages;
}

/* Room for the doubts there are, and one for each operation in flight? */
bool dcm_doubt_room(const struct dcm_lane *lane)
{
	return lane->nr_doubt + lane->nr_wb + lane->move.left < DCM_DOUBTS_MAX;
}

/**
 * dcm_doubt_add() - a WRITE failed with its connection
 * @lane: the lane that posted it; the caller's
 * @gfn: first page
 * @pages: pages of the WRITE, counted from @gfn, a bit each; their block is
 *	locked or BUSY, and its extent still has the slab
 * @slab: which of the extent's slabs
 * @peer: the donor of that slab
 */
void dcm_doubt_add(struct dcm_lane *lane, u32 gfn, u16 pages, u8 slab, u32 peer)
{
	const struct dcm_extent *e = extent_of(lane->vm, gfn);
	u32 i;

	for (i = 0; pages >> i; i++)
		if (pages >> i & 1)
			pd_set(pd_of(lane->vm, gfn + i), PD_INFLIGHT);
	lane->doubt[lane->nr_doubt++] = (struct dcm_doubt){
		.gfn = gfn,
		.peer = peer,
		.attached = READ_ONCE(e->attached[slab]),
		.pages = pages,
		.slab = slab,
	};
	atomic64_add(1, &lane->vm->doubts);
	dcm_count(lane, DCM_C_DOUBTED_PAGES, hweight16(pages));
}

/* The WRITE of entry @i has happened or never will. */
static void doubt_end(struct dcm_lane *lane, u32 i)
{
	const struct dcm_doubt *d = &lane->doubt[i];
	u32 k;

	for (k = 0; d->pages >> k; k++)
		if (d->pages >> k & 1)
			pd_landed(pd_of(lane->vm, d->gfn + k));
	lane->doubt[i] = lane->doubt[--lane->nr_doubt];
	atomic64_sub(1, &lane->vm->doubts);
}

void dcm_lane_fenced(struct dcm_lane *lane, u32 peer)
{
	lane->fenced |= 1ull << peer;
}

/*
 * Act on dcm_lane_fenced(). This can't be done in that call: the core may be
 * working on completions of the older connection, and still add doubts. Called
 * after all that io_poll() returned is handled, and before the next io_poll().
 */
void dcm_doubt_fence(struct dcm_lane *lane)
{
	u64 fenced = lane->fenced;
	u32 i = lane->nr_doubt;

	lane->fenced = 0;
	while (i--)
		if (fenced >> lane->doubt[i].peer & 1)
			doubt_end(lane, i);
	/* Write-backs of which some WRITEs failed and others are not posted. */
	for (i = 0; lane->nr_wb && i < DCM_WBS_MAX; i++)
		if (lane->wb[i].in_use && fenced >> lane->wb[i].peer & 1)
			lane->wb[i].doubt = 0;
}

/* End the doubts about slabs that their extents do not use any more. */
unsigned int dcm_doubt_poll(struct dcm_lane *lane)
{
	unsigned int n = 0;
	u32 i = lane->nr_doubt;

	while (i--) {
		const struct dcm_doubt *d = &lane->doubt[i];
		const struct dcm_extent *e = extent_of(lane->vm, d->gfn);

		/* Pairs with dcm_extent_lost(). */
		bool gone = smp_load_acquire(&e->gone[d->slab]);

		/* Pairs with dcm_extent_attach(). */
		if (!gone && smp_load_acquire(&e->slab[d->slab]) &&
		    READ_ONCE(e->attached[d->slab]) == d->attached)
			continue;
		doubt_end(lane, i);
		n++;
	}
	return n;
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * spread.c - copy pages that a GC worker changed to their extents' other slabs
 *
 * A GC worker that moves objects, or updates references, writes to one slab of an
 * extent, the primary (dcm_slot_primary()). Before it begins, dcm_sync() has written
 * all pages of the range to the primary, and none is direct. While it works the pager
 * keeps accesses out of the range, and no fill or drain of the extent begins. The
 * pages' sets stay as they are, though only the primary has the worker's changes; the
 * other slots have the pages as they were before. Afterwards the pager calls one of
 *
 *	dcm_spread()	the worker has ended well: each page is read from the
 *			primary and written to the other open slots
 *	dcm_revert()	the worker failed, or spreading did, and the primary's donor may
 *			be dead: the primary leaves the sets of pages that others have
 *	dcm_keep()	as dcm_revert(), but the primary's donor is alive: the other
 *			slots leave the sets
 *
 *	page        the worker   spread:    READ      WRITEs ended
 *	{P, C}      changes P               {P}       {P, C}, or {P}: thin
 *	            of P's donor revert:    {C}: thin; a fill makes it {P, C} again
 *	                         keep:      {P}: thin, likewise
 *
 * So whenever the primary's donor dies, the other slots have each page either as it
 * was before, or, if it was spread, as the worker left it. A page is on the primary
 * alone only while its own WRITEs are under way. The caller must cope with a mixture of
 * old and new pages; it can, as a worker's changes can be made again.
 *
 * Bytes that a worker wrote have no sum until they are spread, so that READ is not
 * checked. If their sum is the one that the page had, the worker did not change it, and
 * it is not written. semeru-osdi20 and mako-pldi22 have no copies.
 *
 * Locking: operations belong to a lane whose fetches' buffers they use, as in
 * move.c.
 */
#include "internal.h"

/* Is nothing under way on the lane any more? */
static bool lane_rests(struct dcm_lane *lane)
{
	dcm_poll(lane);
	return !lane->move.left && !lane->nr_fetch;
}

/* Where to go on: at the first page that has to be done again, or at @gfn. */
static u64 failed_take(struct dcm_move *mv, u64 gfn)
{
	gfn = min(gfn, (u64)mv->failed);
	mv->failed = DCM_NIL;
	return gfn;
}

/* Skip an extent that has one slab, as there is nothing to spread. */
static u64 extent_alone(const struct dcm_vm *vm, u64 gfn)
{
	u8 used = READ_ONCE(extent_of(vm, (u32)gfn)->used);

	if (used & (used - 1))
		return gfn;
	return ((gfn >> vm->extent_shift) + 1) << vm->extent_shift;
}

/* Leave the page on the primary alone, without a sum; its extent is thin then. */
static void page_alone(struct dcm_lane *lane, u32 gfn, u32 primary)
{
	struct dcm_vm *vm = lane->vm;

	pd_clear(pd_of(vm, gfn), PD_AT & ~primary);
	dcm_sums_renew(lane, gfn, NULL, 1);
	if (READ_ONCE(extent_of(vm, gfn)->open) &
	    (u8)~pd_at(pd_word(pd_of(vm, gfn))))
		WRITE_ONCE(extent_of(vm, gfn)->thin, true);
}

/* Has the range a page that the primary has and on which a WRITE may still land? */
static bool range_doubtful(const struct dcm_vm *vm, u32 gfn, u32 end,
			   u32 primary)
{
	while (gfn < end && !((pd_word(pd_of(vm, gfn)) & primary) &&
			      pd_inflight(pd_of(vm, gfn))))
		gfn++;
	return gfn < end;
}

/*
 * Find the next run of pages that one operation can spread: moves @gfn to its first
 * page, and returns the number of pages. Pages that can't be written elsewhere now stay
 * on the primary alone.
 */
static u32 run_find(struct dcm_lane *lane, u32 *gfn, u32 end, u32 primary,
		    bool targets)
{
	struct dcm_vm *vm = lane->vm;
	u32 i = *gfn, nr = 0;
	u8 at = 0;

	for (; i < end; i++) {
		const struct dcm_pd *pd = pd_of(vm, i);
		u32 w = pd_word(pd);
		bool needs = w & primary;

		/* no slot to write to, or an older WRITE may land on top of ours */
		if (needs && (!targets || pd_inflight(pd))) {
			page_alone(lane, i, primary);
			needs = false;
		}
		if (nr && (!needs || pd_at(w) != at))
			break;
		if (!needs)
			continue;
		if (!nr)
			*gfn = i;
		at = pd_at(w);
		nr++;
	}
	return nr;
}

/*
 * Spread the first pages of a block that have the same set. True: go on at @next;
 * false: the block has to wait, try again.
 */
static bool block_spread(struct dcm_lane *lane, u32 gfn, u64 end, u64 *next)
{
	struct dcm_vm *vm = lane->vm;
	unsigned int order;
	u32 head = dcm_block_lock(vm, gfn, &order),
	    after = head + (1u << order);
	u32 primary = dcm_primary_bits(vm, head), w = pd_word(pd_of(vm, head));
	u8 others = READ_ONCE(extent_of(vm, head)->open) & (u8)~pd_at(primary);
	struct dcm_move_op what = { .gfn = head, .changed = true };
	u8 left;
	u32 nr;

	*next = after;
	if ((w & PD_BUSY) || pd_state(w) == DCM_WRITEBACK ||
	    !dcm_doubt_room(lane)) {
		pd_unlock(pd_of(vm, head));
		return false;
	}
	/* direct in spite of the freeze: its content is not the worker's */
	if (pd_state(w) != DCM_NOTDIRECT || primary == PD_AT) {
		pd_unlock(pd_of(vm, head));
		return true;
	}
	after = (u32)min((u64)after, end);
	what.targets = dcm_slots_well(lane, head, others);
	left = others & (u8)~what.targets;
	/* as a write-back: wait for a donor that may be back soon, or a fence */
	if (left ? dcm_slots_wait(lane, head, left) :
		   others && range_doubtful(vm, gfn, after, primary)) {
		pd_unlock(pd_of(vm, head));
		return false;
	}
	if (left)
		WRITE_ONCE(extent_of(vm, head)->thin, true);
	nr = run_find(lane, &gfn, after, primary, what.targets);
	if (!nr) {
		pd_unlock(pd_of(vm, head));
		return true;
	}
	what.first = (u8)(gfn - head);
	what.nr = (u8)nr;
	what.sources = pd_at(primary);
	what.off = pd_at(pd_word(pd_of(vm, gfn))) & (u8)~what.sources;
	*next = gfn + nr;
	if (dcm_move_start(lane, &what))
		return true;
	/* all targets were closed since we looked: try again */
	pd_unlock(pd_of(vm, head));
	return false;
}

int dcm_spread(struct dcm_lane *lane, u64 *gfn, u64 end)
{
	struct dcm_vm *vm = lane->vm;
	struct dcm_move *mv = &lane->move;
	u64 at, next;

	if (!lane_rests(lane))
		return -EAGAIN;
	end = min(end, (u64)vm->nr_pages);
	at = failed_take(mv, *gfn);
	mv->nr = 0;
	while ((at = dcm_chunk_next(vm, at, end)) < end &&
	       mv->nr < DCM_MOVES_MAX) {
		next = extent_alone(vm, at);
		if (next == at && !block_spread(lane, (u32)at, end, &next))
			break;
		at = next;
	}
	vm->ops->io_flush(lane);
	*gfn = at;
	return at < end || mv->nr ? -EAGAIN : 0;
}

/* dcm_revert(), or with @keep dcm_keep(), for one block. False: it is busy. */
static bool block_end(struct dcm_lane *lane, u32 gfn, u64 end, bool keep,
		      u64 *next)
{
	struct dcm_vm *vm = lane->vm;
	unsigned int order;
	u32 head = dcm_block_lock(vm, gfn, &order),
	    after = head + (1u << order);
	u32 primary = dcm_primary_bits(vm, head), w = pd_word(pd_of(vm, head));
	struct dcm_extent *e = extent_of(vm, head);
	/* read after the primary: a slab that was lost in between is not in it */
	u8 open = READ_ONCE(e->open);
	bool busy = (w & PD_BUSY) || pd_state(w) == DCM_WRITEBACK;

	*next = after;
	if (busy || pd_state(w) != DCM_NOTDIRECT || primary == PD_AT) {
		pd_unlock(pd_of(vm, head));
		return !busy;
	}
	for (; gfn < min((u64)after, end); gfn++) {
		u32 at = pd_word(pd_of(vm, gfn)) & PD_AT;

		if (!(at & primary))
			continue;
		if (keep || !(pd_at(at & ~primary) & open)) {
			page_alone(lane, gfn, primary);
		} else {
			WRITE_ONCE(e->thin, true);
			pd_clear(pd_of(vm, gfn), primary);
		}
	}
	pd_unlock(pd_of(vm, head));
	return true;
}

static int range_end(struct dcm_lane *lane, u64 *gfn, u64 end, bool keep)
{
	struct dcm_vm *vm = lane->vm;
	u64 next;

	if (!lane_rests(lane))
		return -EAGAIN;
	lane->move.failed = DCM_NIL;
	end = min(end, (u64)vm->nr_pages);
	while ((*gfn = dcm_chunk_next(vm, *gfn, end)) < end) {
		next = extent_alone(vm, *gfn);
		if (next == *gfn &&
		    !block_end(lane, (u32)*gfn, end, keep, &next))
			return -EAGAIN;
		*gfn = next;
	}
	return 0;
}

int dcm_revert(struct dcm_lane *lane, u64 *gfn, u64 end)
{
	return range_end(lane, gfn, end, false);
}

int dcm_keep(struct dcm_lane *lane, u64 *gfn, u64 end)
{
	return range_end(lane, gfn, end, true);
}

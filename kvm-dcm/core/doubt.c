// SPDX-License-Identifier: GPL-2.0-only
/*
 * doubt.c - WRITEs that failed with their connection and may still land
 *
 * A WRITE that ends in -ENOTCONN may still be under way: in a buffer of the
 * network, or of a donor that was only late. If another lane wrote the page
 * again over a working connection, the old WRITE could land on top of the new
 * one after the new one was answered. So the pages of such a WRITE stay
 * PD_INFLIGHT, and are not written back, until the WRITE can't land any more. That
 * is certain when
 *
 *   - the donor has welcomed another connection of the same lane
 *     (dcm_lane_fenced()). Before it does, it closes the older connection, and
 *     carries out or drops each request that came over it (docs/protocol.md,
 *     "After a broken connection");
 *   - or the extent no longer uses the slab: it was lost, or was emptied.
 *
 * The write-back itself ends at once: its frame and descriptor are free. If
 * another slot has the pages the block is NotDirect, and is read from there;
 * else it is Inactive and dirty. dcm-tc18 has one queue pair for all processors and no
 * reconnection, so it has no such case.
 *
 * A page in doubt is not written again, so it is in one doubt at a time. The WRITEs
 * of one block to several slots are one doubt, which ends with the last of them.
 *
 * A lane remembers its own doubts. Its table always has room for all operations in
 * flight to fail: if it has not, the lane starts no write-back and no move.
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

/* Has the table room if each operation in flight, and one more, becomes a doubt? */
bool dcm_doubt_room(const struct dcm_lane *lane)
{
	return lane->nr_doubt + lane->nr_wb + lane->move.left < DCM_DOUBTS_MAX;
}

/**
 * dcm_doubt_add() - WRITEs of a block failed with their connections
 * @lane: the lane that posted them; the caller's
 * @gfn: first page
 * @pages: pages of the WRITEs, counted from @gfn, a bit each; their block is
 *	locked or BUSY
 * @slots: the extent's slots that were written to; the write-back or move still
 *	counts there
 */
void dcm_doubt_add(struct dcm_lane *lane, u32 gfn, u16 pages, u8 slots)
{
	const struct dcm_extent *e = extent_of(lane->vm, gfn);
	struct dcm_doubt *d = &lane->doubt[lane->nr_doubt++];
	u32 i;

	for (i = 0; pages >> i; i++)
		if (pages >> i & 1)
			pd_set(pd_of(lane->vm, gfn + i), PD_INFLIGHT);
	d->gfn = gfn;
	d->pages = pages;
	d->slots = slots;
	for (; slots; slots &= slots - 1) {
		i = ffs_u32(slots) - 1;
		d->peer[i] = READ_ONCE(e->peer[i]);
		d->since[i] = READ_ONCE(e->slot[i].since);
	}
	atomic64_add(1, &lane->vm->doubts);
	dcm_count(lane, DCM_C_DOUBTED_PAGES, hweight16(pages));
}

/*
 * The WRITEs of entry @i to these slots have happened or never will. True: no other
 * slot is in doubt, so the entry is gone.
 */
static bool doubt_end(struct dcm_lane *lane, u32 i, u8 slots)
{
	struct dcm_doubt *d = &lane->doubt[i];
	u32 k;

	d->slots &= (u8)~slots;
	if (d->slots)
		return false;
	for (k = 0; d->pages >> k; k++)
		if (d->pages >> k & 1)
			pd_landed(pd_of(lane->vm, d->gfn + k));
	lane->doubt[i] = lane->doubt[--lane->nr_doubt];
	atomic64_sub(1, &lane->vm->doubts);
	return true;
}

void dcm_lane_fenced(struct dcm_lane *lane, u32 peer)
{
	lane->fenced |= 1ull << peer;
	lane->down &= ~(1ull << peer);
}

/* As doubt_end(), for a write-back that has failed WRITEs and is still under way. */
static void wb_fence(struct dcm_wb *wb, u64 fenced)
{
	const struct dcm_extent *e = extent_of(wb->lane->vm, wb->gfn);
	u32 s;

	for (s = 0; s < DCM_SLOTS; s++)
		if (wb->doubt[s] && fenced >> READ_ONCE(e->peer[s]) & 1)
			wb->doubt[s] = 0;
}

/*
 * Act on dcm_lane_fenced(). This can't be done in that call: the core may be
 * working on completions of the older connection, and still add doubts. Called
 * after all that io_poll() returned is handled, and before the next io_poll().
 */
void dcm_doubt_fence(struct dcm_lane *lane)
{
	u64 fenced = lane->fenced;
	u32 i = lane->nr_doubt, s;

	lane->fenced = 0;
	while (i--) {
		const struct dcm_doubt *d = &lane->doubt[i];
		u8 slots = 0;

		for (s = 0; s < DCM_SLOTS; s++)
			if (d->slots >> s & 1 && fenced >> d->peer[s] & 1)
				slots |= (u8)(1u << s);
		if (slots)
			doubt_end(lane, i, slots);
	}
	for (i = 0; lane->nr_wb && i < DCM_WBS_MAX; i++)
		if (lane->wb[i].in_use)
			wb_fence(&lane->wb[i], fenced);
}

/* Slots of a doubt whose slab the extent does not use any more. */
static u8 doubt_over(const struct dcm_vm *vm, const struct dcm_doubt *d)
{
	const struct dcm_extent *e = extent_of(vm, d->gfn);
	u8 over = 0, m;

	for (m = d->slots; m; m &= m - 1) {
		u32 s = ffs_u32(m) - 1;
		/* Pairs with dcm_extent_lost(). */
		u8 gone = smp_load_acquire(&e->gone);

		/* Pairs with dcm_extent_attach(). */
		if ((gone >> s & 1) || !smp_load_acquire(&e->slot[s].slab) ||
		    READ_ONCE(e->slot[s].since) != d->since[s])
			over |= (u8)(1u << s);
	}
	return over;
}

/* End the doubts about slabs that their extents do not use any more. */
unsigned int dcm_doubt_poll(struct dcm_lane *lane)
{
	unsigned int n = 0;
	u32 i = lane->nr_doubt;

	while (i--) {
		u8 over = doubt_over(lane->vm, &lane->doubt[i]);

		n += over && doubt_end(lane, i, over);
	}
	return n;
}

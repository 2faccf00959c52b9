// SPDX-License-Identifier: GPL-2.0-only
/*
 * wrong.c - what to do when a READ brought wrong bytes
 *
 * sum.c and seal.c find them. The slot that gave them leaves the page's set, and the
 * page is read from another slot; the next write-back or fill writes the page to that
 * slot again. If it is the last slot that has the page, it is read once more first, as
 * bytes may also change on their way. With no slot left the page is LOST, never
 * wrong. (The papers trust donors.)
 *
 *	wrong for the first time, and no other
 *	slot has one of the pages               -> READ once more
 *	else                                    -> strike: the slot leaves their sets
 *
 * Locking: the pages' block is BUSY by the caller.
 */
#include "internal.h"

/**
 * dcm_pages_wrong() - check the bytes that a READ brought
 * @lane: caller's lane
 * @gfn: first page; its block is BUSY by the caller
 * @io: the READ; its slab is still attached
 * @pages: which to look at, counted from @gfn, a bit each
 * @move: they will be copied to another slab as they are. If false, sealed pages are
 *	also opened, in place
 *
 * Return: pages that are wrong.
 */
u16 dcm_pages_wrong(struct dcm_lane *lane, u32 gfn, const struct dcm_io *io,
		    u16 pages, bool move)
{
	if (READ_ONCE(lane->vm->sealed))
		return dcm_seals_wrong(lane, gfn, io, pages, move);
	return dcm_sums_of(lane->vm, gfn) ?
		       dcm_sums_wrong(lane, gfn, io, pages, move) :
		       0;
}

/* Count wrong pages, and have the pager log them. */
static void wrong_note(struct dcm_lane *lane, u32 gfn, u16 wrong, u8 slot,
		       u32 lost)
{
	struct dcm_vm *vm = lane->vm;

	dcm_count(lane, DCM_C_WRONG_PAGES, hweight16(wrong));
	dcm_count(lane, DCM_C_LOST_PAGES, lost);
	vm->ops->wrong(lane, gfn, wrong,
		       READ_ONCE(extent_of(vm, gfn)->peer[slot]), lost);
}

/**
 * dcm_wrong_again() - whether to read wrong pages from the same slot once more
 * @lane: caller's lane
 * @gfn: as in dcm_pages_wrong()
 * @wrong: the pages, counted from @gfn, a bit each
 * @slot: the slot
 *
 * Return: true if the slot is the last that has one of them: the slab may have the
 * right bytes, which changed on their way. The pages are counted as wrong, and the slot
 * stays in their sets.
 */
bool dcm_wrong_again(struct dcm_lane *lane, u32 gfn, u16 wrong, u8 slot)
{
	struct dcm_vm *vm = lane->vm;
	u8 others = (u8) ~(1u << slot | READ_ONCE(extent_of(vm, gfn)->gone));
	u16 m;

	for (m = wrong; m; m &= m - 1)
		if (!(pd_at(pd_word(pd_of(vm, gfn + ffs_u32(m) - 1))) & others))
			break;
	if (m)
		wrong_note(lane, gfn, wrong, slot, 0);
	return m;
}

/**
 * dcm_wrong_strike() - take pages off a slot that had wrong bytes for them
 * @lane: caller's lane
 * @gfn: as in dcm_pages_wrong(); the pages are not direct
 * @wrong: the pages, counted from @gfn, a bit each
 * @slot: the slot
 *
 * Pages that no other slot has are LOST.
 */
void dcm_wrong_strike(struct dcm_lane *lane, u32 gfn, u16 wrong, u8 slot)
{
	struct dcm_vm *vm = lane->vm;
	struct dcm_extent *e = extent_of(vm, gfn);
	u32 bit = pd_at_bits(1u << slot), lost = 0, head;
	unsigned int order;
	u16 m;

	/* the slab worker may take a lost slot out of the same sets */
	head = dcm_block_lock(vm, gfn, &order);
	for (m = wrong; m; m &= m - 1) {
		struct dcm_pd *pd = pd_of(vm, gfn + ffs_u32(m) - 1);

		if (pd_at(pd_word(pd)) & (u8) ~(1u << slot)) {
			pd_clear(pd, bit);
		} else {
			pd_assign(pd, PD_AT, PD_LOST);
			lost++;
		}
	}
	pd_unlock(pd_of(vm, head));
	WRITE_ONCE(e->thin, true);
	wrong_note(lane, gfn, wrong, slot, lost);
}

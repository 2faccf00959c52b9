// SPDX-License-Identifier: GPL-2.0-only
/*
 * sum.c - sums of pages: no wrong byte of a donor is ever mapped
 *
 * A page that is written to an extent with more than one slab has a sum kept
 * here, in this host's memory. The bytes that a READ brings are compared with it: bytes
 * that a donor's memory, disk or software changed, or that belong to another
 * page or to an earlier time, do not match. wrong.c says what happens then. (None
 * of the papers has sums.)
 *
 *	write-back   sum := sum of the frame's bytes    (claimed, before WRITE)
 *	READ         bytes match, or none is known      -> mapped, or copied
 *	             bytes do not match                 -> wrong
 *
 * If a write-back of a direct page failed or was cancelled, its sum is newer than
 * the bytes on its slots. The page is read from a slot only after a write-back that
 * went well, and then the sum is that of those bytes.
 *
 * Sum 0 means that none is known: the page was written while its extent had one
 * slab, or the tunable "sums" was off. A fill that reads such a page stores the sum of
 * the bytes that it reads. When an extent has only one slab left, all its sums are
 * cleared, so that a GC worker may change that slab. They are cleared once more when it
 * gets a second slab, as a lane may have set a sum after the first time. (That lane had
 * the block BUSY until then, so no worker changed that page in between.) Pages that a
 * worker changed in an extent with several slabs are summed when they are copied to the
 * others (spread.c). Bytes of a slab that is mapped in this host are not compared, as
 * its donor can still change them.
 *
 * Locking: a page's sum is changed and compared by the lane that has its block
 * BUSY; the slab worker clears sums. An extent keeps its table once it has one.
 */
#include "internal.h"

/* Do write-backs to this extent set sums? */
static bool sums_kept(const struct dcm_vm *vm, u32 gfn)
{
	u8 used = READ_ONCE(extent_of(vm, gfn)->used);

	return (used & (used - 1)) && dcm_tune(vm, DCM_T_sums);
}

/* A page's sum. Never 0, which means that none is known. */
static u32 page_sum(struct dcm_lane *lane, const void *data, u32 page)
{
	u32 sum = lane->vm->ops->sum(lane, data, page);

	return sum ? sum : 1;
}

/**
 * dcm_sums_set() - store the sums of pages that are about to be written
 * @lane: caller's lane
 * @head: the block; BUSY by the caller
 * @frame: its bytes
 * @pages: those that are written, a bit each
 */
void dcm_sums_set(struct dcm_lane *lane, u32 head, u32 frame, u16 pages)
{
	struct dcm_vm *vm = lane->vm;
	u32 *sum = dcm_sums_of(vm, head), at = head & (vm->extent_pages - 1), i,
	    v;
	bool keep;

	if (likely(!sum))
		return;
	keep = sums_kept(vm, head);
	for (; pages; pages &= pages - 1) {
		i = ffs_u32(pages) - 1;
		v = keep ? page_sum(lane, vm->ops->frame_data(lane, frame, i),
				    0) :
			   0;
		WRITE_ONCE(sum[at + i], v);
	}
}

/**
 * dcm_sums_wrong() - compare what a READ brought with the sums
 * @lane: caller's lane
 * @gfn: first page; its block is BUSY by the caller
 * @io: the READ; its slab is still attached
 * @pages: which to look at, counted from @gfn, a bit each
 * @learn: take the sum of pages that have none
 *
 * Return: pages that do not match.
 */
u16 dcm_sums_wrong(struct dcm_lane *lane, u32 gfn, const struct dcm_io *io,
		   u16 pages, bool learn)
{
	struct dcm_vm *vm = lane->vm;
	u32 *sum = dcm_sums_of(vm, gfn), at = gfn & (vm->extent_pages - 1), i;
	u32 known, got;
	u16 wrong = 0;

	if (likely(!sum) || !sums_kept(vm, gfn))
		return 0;
	/* the bytes are still in the slab, mapped, which its donor may truncate */
	if (io->slab->map)
		return 0;
	for (; pages; pages &= pages - 1) {
		i = ffs_u32(pages) - 1;
		known = READ_ONCE(sum[at + i]);
		if (!known && !learn)
			continue;
		got = page_sum(lane, io->data, i);
		if (!known)
			WRITE_ONCE(sum[at + i], got);
		else if (got != known)
			wrong |= (u16)(1u << i);
	}
	return wrong;
}

/**
 * dcm_sums_same() - has a GC worker left pages as they were?
 * @lane: caller's lane
 * @gfn: as in dcm_sums_wrong()
 * @io: a READ of the slab that the worker uses
 * @pages: which to look at, counted from @gfn, a bit each
 *
 * Return: false: a page has changed, or has no sum, so that it may have.
 */
bool dcm_sums_same(struct dcm_lane *lane, u32 gfn, const struct dcm_io *io,
		   u16 pages)
{
	const struct dcm_vm *vm = lane->vm;
	const u32 *sum = dcm_sums_of(vm, gfn);
	u32 at = gfn & (vm->extent_pages - 1), i, known;

	if (!sum || !sums_kept(vm, gfn) || io->slab->map)
		return false;
	for (; pages; pages &= pages - 1) {
		i = ffs_u32(pages) - 1;
		known = READ_ONCE(sum[at + i]);
		if (!known || page_sum(lane, io->data, i) != known)
			return false;
	}
	return true;
}

/**
 * dcm_sums_renew() - store the sums of pages that a GC worker has changed
 * @lane: caller's lane
 * @gfn: as in dcm_sums_wrong(); no other slot has the pages any more
 * @io: the READ that brought them; %NULL: they were not read, so clear their sums
 * @pages: which, counted from @gfn, a bit each
 */
void dcm_sums_renew(struct dcm_lane *lane, u32 gfn, const struct dcm_io *io,
		    u16 pages)
{
	struct dcm_vm *vm = lane->vm;
	u32 *sum = dcm_sums_of(vm, gfn), at = gfn & (vm->extent_pages - 1), i,
	    v;
	bool keep = io && sums_kept(vm, gfn) && !io->slab->map;

	for (; sum && pages; pages &= pages - 1) {
		i = ffs_u32(pages) - 1;
		v = keep ? page_sum(lane, io->data, i) : 0;
		WRITE_ONCE(sum[at + i], v);
	}
}

/* Clear all sums of an extent: it has one slab. */
void dcm_sums_forget(struct dcm_vm *vm, u32 extent)
{
	u32 *sum = dcm_sums_of(vm, extent << vm->extent_shift), i;

	for (i = 0; sum && i < vm->extent_pages; i++)
		WRITE_ONCE(sum[i], 0);
}

void dcm_extent_sums(struct dcm_vm *vm, u32 extent, u32 *mem)
{
	/* Pairs with dcm_sums_of(): a table that is seen is zero. */
	smp_store_release(&vm->extent[extent].sum, mem);
}

u32 *dcm_extent_sums_of(const struct dcm_vm *vm, u32 extent)
{
	return READ_ONCE(vm->extent[extent].sum);
}

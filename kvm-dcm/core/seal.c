// SPDX-License-Identifier: GPL-2.0-only
/*
 * seal.c - sealed pages: donors can neither read nor change what they hold
 *
 * In a sealed VM each page is encrypted and authenticated (AES-256-GCM, by the
 * pager) before it leaves. A donor has the sealed bytes only. The page's *seal*,
 * a version and a tag, stays in this host's memory; the pager has the VM's key. If a
 * donor changes the bytes, or gives those of another page or of an earlier time, they
 * do not open (fail authentication). wrong.c says what happens then. (None of the
 * papers encrypts.)
 *
 *	write-back   version++, tag := seal(frame -> wb->sealed)   (before WRITE)
 *	READ         opens where it landed                         -> mapped
 *	             does not open                                 -> wrong
 *	fill, drain  checked, and copied as it is, still sealed
 *
 * A nonce is the gfn and the version. Every sealing takes the next version, also one
 * of a write-back that fails or is cancelled, so no nonce is used twice. A version has
 * 48 bits: at a microsecond for each sealing they last nine years for one page. If a
 * page's versions are used up, or if the pager can't encrypt, the write-back fails, and
 * the page stays in this host.
 *
 * There is one seal for all slots of a page's set. So a page that is written gets
 * other bytes on all open slots: a clean page that some slot lacks becomes dirty
 * first (dcm_seals_set()).
 *
 * Invariant: if a page is not dirty, every slot of its set has the bytes that its seal
 * opens. The seal of a dirty page may be newer than the bytes on its slots; such a page
 * is read from a slot only after a write-back that went well.
 *
 * A page that is all zero is not written, and needs no seal: donors learn which
 * pages these are, as they learn which pages are used, and when.
 *
 * Locking: a page's seal belongs to the lane that has its block BUSY. An extent gets
 * its table before its first slab and keeps it; a VM is sealed before it has a slab,
 * and stays sealed.
 */
#include "internal.h"

#define VERSION_MAX ((1ull << 48) - 1)

/* A page's seal; its extent has had a slab. */
static struct dcm_seal *seal_of(const struct dcm_vm *vm, u32 gfn)
{
	/* Pairs with dcm_extent_seals(). */
	return smp_load_acquire(&extent_of(vm, gfn)->seal) +
	       (gfn & (vm->extent_pages - 1));
}

/* Seal one page of a frame. 0 or a negative errno. */
static int page_seal(struct dcm_lane *lane, const struct dcm_wb *wb, u32 i)
{
	const struct dcm_ops *ops = lane->vm->ops;
	struct dcm_seal *s = seal_of(lane->vm, wb->gfn + i);
	u64 version = dcm_seal_version(s);

	if (version == VERSION_MAX)
		return -EOVERFLOW;
	version++;
	s->version = (u32)version;
	s->version_high = (u16)(version >> 32);
	return ops->seal(lane, ops->frame_data(lane, wb->sealed, i),
			 ops->frame_data(lane, wb->frame, i), wb->gfn + i, s);
}

/**
 * dcm_seals_set() - pages of a write-back are about to be written: seal them
 * @lane: caller's lane
 * @wb: its frame, pages and @clean are set; the block is BUSY by the caller
 *
 * Clean pages become dirty, as they are written with other bytes: @clean is 0 then.
 *
 * Return: false: one could not be sealed, and none may be written.
 */
bool dcm_seals_set(struct dcm_lane *lane, struct dcm_wb *wb)
{
	u16 m;

	dcm_pages_write_over(wb, wb->clean);
	for (m = wb->pages; m; m &= m - 1)
		if (page_seal(lane, wb, ffs_u32(m) - 1))
			return false;
	return true;
}

/**
 * dcm_seals_wrong() - open what a READ brought
 * @lane: caller's lane
 * @gfn: first page; its block is BUSY by the caller
 * @io: the READ
 * @pages: which to open, counted from @gfn, a bit each
 * @keep: only look whether they open: the sealed bytes stay
 *
 * Return: pages that do not open.
 */
u16 dcm_seals_wrong(struct dcm_lane *lane, u32 gfn, const struct dcm_io *io,
		    u16 pages, bool keep)
{
	struct dcm_vm *vm = lane->vm;
	u16 wrong = 0;
	u32 i;

	for (; pages; pages &= pages - 1) {
		i = ffs_u32(pages) - 1;
		if (vm->ops->open(lane, io->data, i, gfn + i,
				  seal_of(vm, gfn + i), keep))
			wrong |= (u16)(1u << i);
	}
	return wrong;
}

void dcm_vm_seal(struct dcm_vm *vm)
{
	/* No barrier: lanes look at it after they saw a slab: dcm_extent_attach(). */
	WRITE_ONCE(vm->sealed, true);
}

void dcm_extent_seals(struct dcm_vm *vm, u32 extent, struct dcm_seal *mem)
{
	/* Pairs with seal_of(): a table that is seen is zero. */
	smp_store_release(&vm->extent[extent].seal, mem);
}

struct dcm_seal *dcm_extent_seals_of(const struct dcm_vm *vm, u32 extent)
{
	return READ_ONCE(vm->extent[extent].seal);
}

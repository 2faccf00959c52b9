// SPDX-License-Identifier: GPL-2.0-only
/*
 * lag.c - pages that left direct memory and are not in a file yet
 *
 * A donor's disk may be slower than the guest writes. So write-backs of an extent
 * that has slabs both in memory and in files may leave the files out: the frame
 * is free once the slabs in memory have the page. The files get it later, by
 * dcm_extent_fill(). Until then the page *lags*: it is lost if the donors whose memory
 * holds it die. At most lag_pages (a tunable) of the VM's pages lag. While that many
 * do, write-backs go to the files too, and clean pages that the files lack are
 * written instead of dropped.
 *
 *	direct --write-back--> memory: lags --fill--> memory, file
 *	                  '--- lag_pages do ------->  memory, file
 *
 * A page is counted before it lags (dcm_lag_take()), so the count is never too small.
 * It may be too large: a page that comes back, or is discarded, stays counted until
 * the extent's next fill has ended. That fill has seen all pages that were counted
 * when it began. So those are subtracted, and the pages that it could not copy are
 * counted again.
 *
 *	begin        old = lag
 *	a page left  lag += 1
 *	end          lag -= old
 *
 * infiniswap-nsdi17, 4.1, also writes every page to the host's disk after the remote
 * write, without a bound on how far the disk is behind.
 *
 * Pages of an extent whose @thin is set need not be counted: the client knows that
 * they lack slabs, and fills it.
 *
 * Locking: pages are counted while their block is locked or BUSY, so a fill that
 * begins later looks at the block after that. @lag_old and @fill are the slab worker's.
 */
#include "internal.h"

/* Slots of files that write-backs may leave out: none if all open slots are files. */
static u8 slots_lazy(const struct dcm_extent *e)
{
	u8 open = READ_ONCE(e->open), files = open & READ_ONCE(e->files);

	return files != open ? files : 0;
}

/* Pages of a block that are on some slot, but not on all of @slots. */
static u16 pages_lack(const struct dcm_vm *vm, u32 head, unsigned int order,
		      u8 slots)
{
	u16 pages = 0;
	u32 i;

	for (i = 0; i < 1u << order; i++)
		if (pd_lacks(pd_word(pd_of(vm, head + i)), slots))
			pages |= (u16)(1u << i);
	return pages;
}

/**
 * dcm_lag_pages() - pages of a block that are on some slot, but not in all files
 * @vm: the VM
 * @head: the block, locked or BUSY
 * @order: its size
 */
u16 dcm_lag_pages(const struct dcm_vm *vm, u32 head, unsigned int order)
{
	const struct dcm_extent *e = extent_of(vm, head);

	if (likely(!READ_ONCE(e->files)))
		return 0;
	return pages_lack(vm, head, order, slots_lazy(e));
}

/**
 * dcm_lag_left() - how many pages of a block may lag, if a fill can't copy them now
 * @vm: the VM
 * @head: the block, locked, perhaps BUSY by another lane
 * @order: its size
 *
 * A block that another lane writes back or evicts counts in full: that lane may have
 * counted its pages before the fill began, and the fill's end subtracts those.
 */
u32 dcm_lag_left(const struct dcm_vm *vm, u32 head, unsigned int order)
{
	const struct dcm_extent *e = extent_of(vm, head);
	const struct dcm_pd *pd = pd_of(vm, head);
	u32 w = pd_word(pd);

	if (likely(!READ_ONCE(e->files)))
		return 0;
	switch (pd_state(w)) {
	case DCM_NOTDIRECT:
		return hweight16(pages_lack(vm, head, order,
					    READ_ONCE(e->open) & e->files));
	case DCM_INACTIVE:
		return w & PD_BUSY ? 1u << order : 0;
	case DCM_WRITEBACK:
		return vm->lane[pd->next].wb[pd->prev].behind ? 1u << order : 0;
	default:
		return 0;
	}
}

/**
 * dcm_lag_slots() - slots that a write-back may leave out
 * @lane: caller's lane
 * @gfn: a page of the extent
 * @pages: how many pages would lag
 *
 * None unless the donor of some other open slot is up, and lag_pages has room. A
 * caller that leaves slots out must call dcm_lag_take(), which may still fail.
 */
u8 dcm_lag_slots(const struct dcm_lane *lane, u32 gfn, u32 pages)
{
	const struct dcm_vm *vm = lane->vm;
	const struct dcm_extent *e = extent_of(vm, gfn);
	u64 most = dcm_tune(vm, DCM_T_lag_pages);
	u8 lazy;

	if (likely(!most) || !READ_ONCE(e->files) ||
	    (u64)atomic64_read(&vm->lag) + pages > most)
		return 0;
	lazy = slots_lazy(e);
	if (dcm_slots_down(lane, gfn, READ_ONCE(e->open) & (u8)~lazy))
		return 0;
	return lazy;
}

/* Count @pages more pages of an extent as lagging, whether there is room or not. */
static void lag_add(struct dcm_vm *vm, struct dcm_extent *e, u32 pages)
{
	atomic64_add(pages, &vm->lag);
	atomic64_add(pages, &e->lag);
}

/**
 * dcm_lag_take() - count pages of a block that are going to lag
 * @vm: the VM
 * @gfn: a page of the block, which is locked or BUSY
 * @pages: how many
 *
 * Return: false: lag_pages has no room for them.
 */
bool dcm_lag_take(struct dcm_vm *vm, u32 gfn, u32 pages)
{
	u64 most = dcm_tune(vm, DCM_T_lag_pages);

	if ((u64)atomic64_add_return(pages, &vm->lag) > most) {
		atomic64_sub(pages, &vm->lag);
		return false;
	}
	atomic64_add(pages, &extent_of(vm, gfn)->lag);
	return true;
}

/**
 * dcm_lag_drop() - may a block be dropped though files lack some of its pages?
 * @vm: the VM
 * @head: the block, locked or BUSY
 * @pages: the pages that files lack: dcm_lag_pages()
 *
 * Return: true: yes; they are counted as lagging now, or their extent is thin and they
 * need no count.
 */
bool dcm_lag_drop(struct dcm_vm *vm, u32 head, u16 pages)
{
	return likely(!pages) || READ_ONCE(extent_of(vm, head)->thin) ||
	       dcm_lag_take(vm, head, hweight16(pages));
}

/* A fill of an extent begins. */
void dcm_lag_fill_begins(struct dcm_extent *e)
{
	/* if an earlier pass did not end, keep its count: only that was surely seen */
	if (!e->lag_old)
		e->lag_old = (u64)atomic64_read(&e->lag);
	/*
	 * A page that becomes thin from here on sets @thin again, which asks for
	 * another pass. Test and clear in one step, so that no such mark is lost.
	 */
	if (cmpxchg(&e->thin, true, false))
		WRITE_ONCE(e->fill, (u8)(e->fill | DCM_FILL_THIN));
}

/**
 * dcm_lag_fill_leaves() - a fill could not copy pages of an extent
 * @vm: the VM
 * @e: the extent
 * @pages: how many, at most
 *
 * If the extent was thin it stays so; else these pages only lag.
 */
void dcm_lag_fill_leaves(struct dcm_vm *vm, struct dcm_extent *e, u32 pages)
{
	if (e->fill & DCM_FILL_THIN || !e->files)
		WRITE_ONCE(e->thin, true);
	if (e->files)
		lag_add(vm, e, pages);
}

/* A fill of an extent has seen all of its pages. */
void dcm_lag_fill_ends(struct dcm_vm *vm, struct dcm_extent *e)
{
	atomic64_sub((s64)e->lag_old, &e->lag);
	atomic64_sub((s64)e->lag_old, &vm->lag);
	e->lag_old = 0;
	WRITE_ONCE(e->fill, (u8)(e->fill & ~DCM_FILL_THIN));
}

/* An extent has no slab of files any more. */
void dcm_lag_forget(struct dcm_vm *vm, struct dcm_extent *e)
{
	atomic64_sub(atomic64_xchg(&e->lag, 0), &vm->lag);
	e->lag_old = 0;
}

u64 dcm_extent_lag(const struct dcm_vm *vm, u32 extent)
{
	return extent < vm->nr_extents ?
		       (u64)atomic64_read(&vm->extent[extent].lag) :
		       0;
}

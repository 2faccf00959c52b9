// SPDX-License-Identifier: GPL-2.0-only
/*
 * extent.c - extents and the slabs under them: attach, detach, lose
 *
 * An extent is a slab-sized, slab-aligned part of the VM; page p of it is at
 * offset p of its slabs, always. It has slots for slabs, and each page has a set:
 * the slots that hold its content (slot.c). The code that takes pages from slot to
 * slot is in move.c.
 *
 * When a donor dies its slot leaves the sets of all pages. A page whose set is then
 * empty becomes dirty if it is in direct memory, and will be written elsewhere; if
 * not, it is LOST.
 *
 * A slot may get another slab when nothing is in flight to it and it is in no page's
 * set.
 *
 * Locking: slab pointers, open and gone are written by the slab worker
 * alone; see slot.c.
 */
#include "internal.h"

/** dcm_slot_of() - the slot that a slab is in, or -ENOENT */
int dcm_slot_of(const struct dcm_extent *e, const struct dcm_slab_ref *slab)
{
	int i;

	for (i = 0; slab && i < (int)DCM_SLOTS; i++)
		if (READ_ONCE(e->slot[i].slab) == slab)
			return i;
	return -ENOENT;
}

int dcm_extent_attach(struct dcm_vm *vm, u32 extent, struct dcm_slab_ref *slab)
{
	struct dcm_extent *e;
	u32 to;

	if (extent >= vm->nr_extents || !slab || slab->peer >= DCM_PEERS_MAX ||
	    slab->bytes < (u64)vm->extent_pages << DCM_PAGE_SHIFT)
		return -EINVAL;
	e = &vm->extent[extent];
	if (vm->sealed && (!e->seal || slab->map))
		return -EINVAL;
	if (e->used == DCM_SLOTS_ALL)
		return -EBUSY;
	to = ffs_u32(~(u32)e->used) - 1;
	if (e->used)
		WRITE_ONCE(e->thin, true);
	WRITE_ONCE(e->fill, (u8)(e->fill & ~DCM_FILL_DONE));
	/* while it had one slab, a GC worker may have changed that: sums don't match */
	if (!(e->used & (e->used - 1)))
		dcm_sums_forget(vm, extent);
	WRITE_ONCE(e->used, (u8)(e->used | 1u << to));
	e->attached++;
	WRITE_ONCE(e->gone, (u8)(e->gone & ~(1u << to)));
	WRITE_ONCE(e->slot[to].since, e->attached);
	WRITE_ONCE(e->peer[to], (u8)slab->peer);
	WRITE_ONCE(e->rank[to], slab->rank);
	if (slab->rank == DCM_RANK_FILE)
		WRITE_ONCE(e->files, (u8)(e->files | 1u << to));
	/* Pair with dcm_slot_io(): if it sees the slab, all flags are set. */
	smp_store_release(&e->slot[to].slab, slab);
	/* after the slab: who sees the bit sees the slab */
	smp_store_release(&e->open, (u8)(e->open | 1u << to));
	return 0;
}

/* Does slot @slot hold this page's content? */
static bool page_on(const struct dcm_vm *vm, u32 gfn, int slot)
{
	return pd_at(pd_word(pd_of(vm, gfn))) >> slot & 1;
}

/**
 * dcm_slot_detach() - take a slab out of its slot
 * @vm: the VM
 * @extent: its extent
 * @slot: its slot; not open
 *
 * Return: false, and nothing changed, when something is in flight to the slot, or it is
 * in a page's set.
 */
bool dcm_slot_detach(struct dcm_vm *vm, u32 extent, int slot)
{
	struct dcm_extent *e = &vm->extent[extent];
	u32 gfn = extent << vm->extent_shift;
	u32 end = min(gfn + vm->extent_pages, vm->nr_pages);

	/* With no I/O under way no page's set gains the slot: now look for pages. */
	if (atomic_fetch_or(0, &e->slot[slot].inflight))
		return false;
	for (; (gfn = (u32)dcm_chunk_next(vm, gfn, end)) < end; gfn++)
		if (page_on(vm, gfn, slot))
			return false;
	/* After the last operation has ended. Pairs with dcm_slot_io(). */
	smp_store_release(&e->slot[slot].slab, (struct dcm_slab_ref *)NULL);
	WRITE_ONCE(e->used, (u8)(e->used & ~(1u << slot)));
	WRITE_ONCE(e->files, (u8)(e->files & ~(1u << slot)));
	if (!e->files)
		dcm_lag_forget(vm, e);
	if (!(e->used & (e->used - 1))) {
		WRITE_ONCE(e->thin, false);
		dcm_sums_forget(vm, extent);
	}
	return true;
}

/* ---- losing ---- */

/*
 * Take a page off a slot that is gone. If no other slot has the page, it is LOST, or
 * dirty if it is direct. False: another lane works on its block: try again.
 */
static bool page_lose(struct dcm_lane *lane, struct dcm_extent *e, u32 gfn,
		      int slot)
{
	struct dcm_vm *vm = lane->vm;
	struct dcm_pd *pd = pd_of(vm, gfn);
	u32 head, hw;
	unsigned int order;
	bool done = true, last;

	if (!page_on(vm, gfn, slot))
		return true;
	head = dcm_block_lock(vm, gfn, &order);
	hw = pd_word(pd_of(vm, head));
	last = pd_at(pd_word(pd)) == 1u << slot;
	if (!page_on(vm, gfn, slot)) {
		;
	} else if (pd_state(hw) == DCM_WRITEBACK ||
		   ((hw & PD_BUSY) &&
		    (last || pd_state(hw) != DCM_NOTDIRECT))) {
		done = false;
	} else if (!last) {
		/* though BUSY: a fetch from another, silent slot may last long */
		pd_clear(pd, pd_at_bits(1u << slot));
	} else if (pd_state(hw) == DCM_NOTDIRECT) {
		pd_assign(pd, PD_AT, PD_LOST);
		atomic64_add(1, &e->lost_pages);
		dcm_count(lane, DCM_C_LOST_PAGES, 1);
	} else {
		pd_assign(pd, PD_AT, PD_DIRTY);
	}
	pd_unlock(pd_of(vm, head));
	return done;
}

s64 dcm_extent_lost(struct dcm_lane *lane, u32 extent,
		    struct dcm_slab_ref *slab)
{
	struct dcm_vm *vm = lane->vm;
	struct dcm_extent *e;
	u32 gfn, end;
	bool again = false;
	int slot;

	if (extent >= vm->nr_extents)
		return -ENOENT;
	e = &vm->extent[extent];
	slot = dcm_slot_of(e, slab);
	if (slot < 0)
		return slot;
	/* Pairs with dcm_slots_begin(): no new write-back from here on. */
	smp_store_release(&e->open, (u8)(e->open & ~(1u << slot)));
	/* Pairs with dcm_slot_io(): no new operation from here on. */
	smp_store_release(&e->gone, (u8)(e->gone | 1u << slot));
	dcm_poll(lane);
	/* Pages that this lane moves may still be in the slab's own memory. */
	if (lane->move.left || atomic_fetch_or(0, &e->slot[slot].inflight))
		return -EAGAIN;
	gfn = extent << vm->extent_shift;
	end = min(gfn + vm->extent_pages, vm->nr_pages);
	for (; (gfn = (u32)dcm_chunk_next(vm, gfn, end)) < end; gfn++)
		again |= !page_lose(lane, e, gfn, slot);
	if (again || !dcm_slot_detach(vm, extent, slot))
		return -EAGAIN;
	return atomic64_xchg(&e->lost_pages, 0);
}

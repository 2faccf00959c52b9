// SPDX-License-Identifier: GPL-2.0-only
/*
 * discard.c - the owner gave up the content of pages
 *
 * Balloon, free page reporting, MADV_DONTNEED, hole punching: from now on the
 * pages read zero and count as never written: no slab, no network. The copy
 * on a donor is just forgotten; it is never read again, because a page without
 * a slot is not fetched. A discard also makes a LOST page usable again.
 *
 * Pages without descriptors read zero already, and are skipped. Whole blocks
 * are dropped in any state, and adjacent mapped ones by one operation of the
 * pager: a program that frees memory mostly frees much of it. A block that is
 * only partly discarded is split first; an unmapped one is mapped again for that.
 *
 * Locking: the blocks of such a run are BUSY until they are dropped. The run is
 * dropped before anything is waited for.
 */
#include "internal.h"

#define RUN_MAX 512u /* pages dropped by one operation: 2 MiB */
#define PD_FORGET (PD_AT | PD_LOST | PD_DIRECT | PD_RESIDENCY)

static void pages_forget(struct dcm_vm *vm, u32 head, unsigned int order)
{
	struct dcm_pd *pd = pd_of(vm, head);
	u32 i;

	for (i = 0; i < 1u << order; i++)
		pd_clear(&pd[i], PD_FORGET);
}

/**
 * struct discard_run - adjacent blocks that one operation drops: mapped, BUSY
 * @from: first page
 * @nr: pages
 */
struct discard_run {
	u32 from;
	u32 nr;
};

static void run_drop(struct dcm_lane *lane, struct discard_run *run)
{
	struct dcm_vm *vm = lane->vm;
	u32 head = run->from, end = head + run->nr;

	if (!run->nr)
		return;
	vm->ops->discard(lane, run->from, run->nr);
	while (head < end) {
		struct dcm_pd *pd = pd_of(vm, head);
		unsigned int order = pd_order(pd_word(pd));

		pages_forget(vm, head, order);
		pd_lock(pd);
		dcm_state_set(lane, head, DCM_NOTDIRECT);
		dcm_block_unbusy(lane, head, order);
		head += 1u << order;
	}
	dcm_frames_put(vm, run->nr);
	run->nr = 0;
}

/* Add a mapped block. Locked and not BUSY on entry, not locked on return. */
static void run_add(struct dcm_lane *lane, struct discard_run *run, u32 head,
		    unsigned int order)
{
	dcm_queue_out(lane->vm, head, order);
	pd_set(pd_of(lane->vm, head), PD_BUSY);
	pd_unlock(pd_of(lane->vm, head));
	/* Not across 2 MiB: a huge page then goes as a whole. */
	if (run->from + run->nr != head || !(head & (RUN_MAX - 1)))
		run_drop(lane, run);
	if (!run->nr)
		run->from = head;
	run->nr += 1u << order;
}

/*
 * Drop a whole block, or add it to those that are dropped together. Locked and
 * not BUSY on entry, not locked on return.
 */
static void block_discard(struct dcm_lane *lane, struct discard_run *run,
			  u32 head, unsigned int order)
{
	struct dcm_vm *vm = lane->vm;
	struct dcm_pd *pd = pd_of(vm, head);
	u32 frame = pd->frame;

	switch (pd_state(pd_word(pd))) {
	case DCM_NOTDIRECT:
		pages_forget(vm, head, order);
		pd_unlock(pd);
		return;
	case DCM_WRITEBACK:
		/* The write-back descriptor gives the frame back. */
		dcm_wb_cancel(lane, head, false);
		pd->frame = DCM_NIL;
		pages_forget(vm, head, order);
		dcm_state_set(lane, head, DCM_NOTDIRECT);
		pd_unlock(pd);
		return;
	case DCM_INACTIVE:
		dcm_queue_out(vm, head, order);
		pd->frame = DCM_NIL;
		pages_forget(vm, head, order);
		dcm_state_set(lane, head, DCM_NOTDIRECT);
		pd_unlock(pd);
		vm->ops->release(lane, frame, order);
		dcm_frames_put(vm, 1u << order);
		return;
	default:
		run_add(lane, run, head, order);
	}
}

/* A block was discarded: forget what the sample (reuse.c) knows of its page. */
static void block_forget(struct dcm_vm *vm, u32 head, unsigned int order)
{
	u16 page = dcm_reuse_mask(vm, head, order, DCM_NIL);

	if (unlikely(page))
		dcm_reuse_forget(vm, head + ffs_u32(page) - 1);
}

/* Split a block. Locked, not BUSY, order > 0; not locked on return. */
static void block_split(struct dcm_lane *lane, u32 head, unsigned int order)
{
	struct dcm_vm *vm = lane->vm;
	struct dcm_pd *pd = pd_of(vm, head);
	enum dcm_state s = pd_state(pd_word(pd));
	u16 sampled = dcm_reuse_mask(vm, head, order, DCM_NIL);
	u32 frame = pd->frame, i;

	if (s == DCM_NOTDIRECT) {
		dcm_eblk_reduce(lane, head, order);
		pd_unlock(pd);
		return;
	}
	dcm_queue_out(vm, head, order);
	pd_set(pd, PD_BUSY);
	if (s == DCM_INACTIVE) {
		u16 dirty = dcm_block_flag(vm, head, order, PD_DIRTY);

		dcm_state_set(lane, head, DCM_PROACTIVE);
		pd->frame = DCM_NIL;
		pd_unlock(pd);
		vm->ops->remap(lane, head, order, frame, dirty, 0, false);
	} else {
		pd_unlock(pd);
		/* A page left unmapped to sample must not stay so alone. */
		for (i = 0; i < 1u << order; i++)
			vm->ops->reveal(lane, head + i,
					!!(pd_word(pd_of(vm, head + i)) &
					   PD_DIRTY));
	}
	if (unlikely(sampled))
		dcm_reuse_mapped(lane, head + ffs_u32(sampled) - 1, false);
	pd_lock(pd);
	dcm_eblk_reduce(lane, head, order);
	dcm_queue_in(lane, head, 0);
	dcm_block_unbusy(lane, head, order);
}

bool dcm_discard(struct dcm_lane *lane, u64 gfn, u64 nr)
{
	struct dcm_vm *vm = lane->vm;
	struct discard_run run = { 0 };
	u64 end = gfn + nr;

	if (gfn >= vm->nr_pages || end < gfn)
		return true;
	end = min(end, (u64)vm->nr_pages);
	dcm_count(lane, DCM_C_DISCARDED_PAGES, end - gfn);
	while ((gfn = dcm_chunk_next(vm, gfn, end)) < end) {
		unsigned int order;
		u32 head = dcm_block_lock(vm, (u32)gfn, &order);
		u32 w = pd_word(pd_of(vm, head));
		bool whole = head >= gfn && head + (1ull << order) <= end;

		if ((w & PD_BUSY) || (!whole && pd_state(w) == DCM_WRITEBACK)) {
			pd_unlock(pd_of(vm, head));
			run_drop(lane, &run);
			dcm_poll(lane);
			if (!vm->ops->relax(lane))
				return false;
		} else if (whole) {
			block_discard(lane, &run, head, order);
			block_forget(vm, head, order);
			gfn = head + (1ull << order);
		} else {
			block_split(lane, head, order);
		}
	}
	run_drop(lane, &run);
	return true;
}

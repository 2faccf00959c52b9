// SPDX-License-Identifier: GPL-2.0-only
/*
 * fault.c - an access needs a page
 *
 * The block's state decides (dcm-tc18, 3.2):
 *
 *	NotDirect            fetch, or make zero, perhaps a run (fresh.c);
 *	                     choose victims meanwhile
 *	Inactive             map again from the local copy, promote
 *	Writeback            the same, and the write-back loses its ownership
 *	Active, Proactive    first write to a clean page, or a page left out to
 *	                     sample; or another fault was quicker: nothing to do
 *	any, BUSY            the lane that works on it will wake the access
 *	LOST page            there is no content; the pager stops the access
 *
 * Locking: the block's lock while deciding, BUSY while acting.
 */
#include "internal.h"

#define FF_NOGROW 0x100 /* take the block in the size it has */
#define FRAME_TRIES 4 /* times to evict and look again before STALL */
#define TIMED_EVERY 64 /* of faults that need no fetch one in 64 is timed */

/*
 * The second write to a block makes all of it writable: this trades more bytes
 * written back for fewer faults. Where dirty pages are written time and again
 * (dcm_sync()), a quarter of the block has to be dirty first.
 */
static bool dirty_enough(const struct dcm_vm *vm, u32 head, unsigned int order)
{
	unsigned int dirty =
		hweight16(dcm_block_flag(vm, head, order, PD_DIRTY));

	if (pd_word(pd_of(vm, head)) & PD_SYNCED)
		return dirty << 2 >= 1u << order;
	return dirty;
}

/* A fault on a page of a mapped block. Locked on entry, not on return. */
static enum dcm_fault_result fault_mapped(struct dcm_lane *lane, u32 head,
					  unsigned int order, u32 gfn,
					  u32 flags)
{
	struct dcm_vm *vm = lane->vm;
	struct dcm_pd *page = pd_of(vm, gfn);
	u32 from = gfn, nr = 1, i;

	pd_set(pd_of(vm, head), PD_BUSY);
	pd_set(page, PD_TOUCHED | PD_OBSERVED);
	if (flags & DCM_FF_WP) {
		if (order && dirty_enough(vm, head, order)) {
			from = head;
			nr = 1u << order;
		}
		for (i = 0; i < nr; i++)
			pd_set(pd_of(vm, from + i), PD_DIRTY);
		pd_clear(page, PD_GUESSED);
		dcm_count(lane, DCM_C_FAULT_WP, 1);
		pd_unlock(pd_of(vm, head));
		vm->ops->unprotect(lane, from, nr);
	} else {
		bool write = flags & DCM_FF_WRITE;

		pd_unlock(pd_of(vm, head));
		/* Mark it dirty before it can be written. */
		if (write)
			pd_set(page, PD_DIRTY);
		if (vm->ops->reveal(lane, gfn, !!(pd_word(page) & PD_DIRTY)))
			dcm_count(lane, DCM_C_FAULT_SAMPLE, 1);
		else
			dcm_count(lane, DCM_C_FAULT_SPURIOUS, 1);
	}
	pd_lock(pd_of(vm, head));
	dcm_block_unbusy(lane, head, order);
	return DCM_FAULT_DONE;
}

/*
 * A page of the sample (reuse.c) was mapped again with its block, or left out (@hidden)
 * so that its next touch faults. While it was mapped before, touches may have gone
 * unseen: a hidden page counts as touched unless it is known that it was not.
 */
static void unwatched_or_hidden(struct dcm_lane *lane, u32 gfn, bool hidden)
{
	struct dcm_pd *pd = pd_of(lane->vm, gfn);

	if (!hidden)
		dcm_reuse_mapped(lane, gfn, false);
	else if (!(pd_word(pd) & PD_OBSERVED))
		pd_set(pd, PD_TOUCHED | PD_OBSERVED);
}

/*
 * Choose a page of a block that is mapped again to be left out, so that its next touch
 * is seen, as one of a fetched block is. Blocks that are re-referenced are not fetched
 * for long, and one hot page would keep the others. Returns a bit; 0: none.
 */
static u16 page_leave_out(struct dcm_lane *lane, u32 head, unsigned int order,
			  u32 asked, u16 watched)
{
	struct dcm_vm *vm = lane->vm;
	u32 i;

	if (vm->dirty_late || !dcm_tune(vm, DCM_T_elastic))
		return 0;
	i = (u32)dcm_random(lane) & ((1u << order) - 1);
	if (head + i == asked || watched >> i & 1 ||
	    !dcm_chance(lane, dcm_tune(vm, DCM_T_sample_bp)))
		return 0;
	pd_clear(pd_of(vm, head + i), PD_TOUCHED | PD_OBSERVED);
	return (u16)(1u << i);
}

/*
 * A fault on a block that is direct but unmapped: map and promote it. Locked on
 * entry, not on return. Dirty pages need no further faults and are mapped writable.
 */
static enum dcm_fault_result fault_unmapped(struct dcm_lane *lane, u32 head,
					    unsigned int order, u32 gfn,
					    u32 flags)
{
	struct dcm_vm *vm = lane->vm;
	struct dcm_pd *pd = pd_of(vm, head);
	bool cancel = pd_state(pd_word(pd)) == DCM_WRITEBACK;
	u16 writable, sampled = dcm_reuse_mask(vm, head, order, gfn), hide = 0;
	u32 frame = pd->frame;
	struct dcm_wb *wb = NULL;
	bool apart;

	if (cancel) {
		/* The write-back keeps the frame, the guest gets a new one. */
		atomic64_add(1 << order, &vm->direct);
		wb = dcm_wb_cancel(lane, head, true);
		dcm_count(lane, DCM_C_CANCELLED, 1);
		dcm_count(lane, DCM_C_FAULT_CANCEL, 1);
	} else {
		dcm_queue_out(vm, head, order);
		dcm_count(lane, DCM_C_FAULT_MINOR, 1);
	}
	pd_set(pd, PD_BUSY);
	if (flags & DCM_FF_WRITE)
		pd_set(pd_of(vm, gfn), PD_DIRTY);
	pd_set(pd_of(vm, gfn), PD_TOUCHED | PD_OBSERVED | PD_AGAIN);
	dcm_state_set(lane, head, DCM_PROACTIVE);
	writable = dcm_block_flag(vm, head, order, PD_DIRTY);
	pd->frame = DCM_NIL;
	pd_unlock(pd);
	if (unlikely(sampled)) {
		hide = dcm_reuse_hide(lane, sampled);
		unwatched_or_hidden(lane, head + ffs_u32(sampled) - 1, hide);
	}
	apart = order && dcm_eblk_judge(lane, head, order);
	if (order && !apart && !hide)
		hide = page_leave_out(lane, head, order, gfn, sampled);
	vm->ops->remap(lane, head, order, frame, writable, hide, cancel);
	if (wb)
		dcm_wb_unhold(wb);
	pd_lock(pd);
	if (apart)
		dcm_eblk_reduce(lane, head, order);
	dcm_queue_in(lane, head, apart ? 0 : order);
	dcm_block_unbusy(lane, head, order);
	return DCM_FAULT_DONE;
}

/*
 * Fetch the block as a whole? Where prefetched pages go unused it is split before the
 * fetch; fetched whole, it would waste frames and be split when it is evicted.
 */
static bool block_worth(struct dcm_lane *lane, u32 head, struct dcm_sets sets)
{
	return !dcm_tune(lane->vm, DCM_T_elastic) || !sets.some ||
	       dcm_eblk_worth(lane, head);
}

/* Evict until a fetch of @nr pages fits, or no more can be evicted now. */
static bool room_make(struct dcm_lane *lane, u32 nr)
{
	struct dcm_vm *vm = lane->vm;
	unsigned int i;

	for (i = 0; i < FRAME_TRIES; i++) {
		unsigned int steps = dcm_evict_for(lane, nr);

		steps += dcm_poll(lane);
		if (atomic64_read(&vm->direct) + nr <=
		    (s64)READ_ONCE(vm->budget))
			return true;
		if (!steps)
			break;
	}
	return false;
}

/*
 * A fault on a block that is not direct. Locked on entry, not on return. *@f is set
 * when a fetch has begun.
 */
static enum dcm_fault_result fault_notdirect(struct dcm_lane *lane, u32 head,
					     unsigned int *size, u32 gfn,
					     u32 flags, struct dcm_fetch **f)
{
	struct dcm_vm *vm = lane->vm;
	u64 budget = READ_ONCE(vm->budget);
	unsigned int order = *size;
	struct dcm_sets sets = dcm_block_at(vm, head, order);

	if (unlikely(pd_word(pd_of(vm, gfn)) & PD_LOST)) {
		pd_unlock(pd_of(vm, head));
		dcm_count(lane, DCM_C_FAULT_LOST, 1);
		vm->ops->lost(lane, gfn, 1);
		return DCM_FAULT_LOST;
	}
	if (!(flags & FF_NOGROW)) {
		if (!dcm_tune(vm, DCM_T_elastic)) {
			head = dcm_eblk_grow_cold(lane, head, &order);
			sets = dcm_block_at(vm, head, order);
		} else if (!sets.some && sets.at) {
			/* the pages that it grows by were never written either */
			head = dcm_eblk_grow_fresh(lane, head, &order);
		}
	}
	/* Split it: one READ can't bring it, it is too large, or not worth fetching. */
	if (order && (!sets.at || (4ull << order) > budget ||
		      !block_worth(lane, head, sets))) {
		dcm_eblk_reduce(lane, head, order);
		pd_unlock(pd_of(vm, head));
		*size = 0;
		return DCM_FAULT_STALL;
	}
	*size = order;
	if (!dcm_frames_take(vm, 1u << order)) {
		pd_unlock(pd_of(vm, head));
		return DCM_FAULT_STALL;
	}
	*f = dcm_fetch_begin(lane, head, order, gfn,
			     flags & DCM_FF_WRITE ? DCM_FOR_WRITE :
						    DCM_FOR_READ,
			     sets);
	pd_unlock(pd_of(vm, head));
	if (!*f) {
		dcm_frames_put(vm, 1u << order);
		return DCM_FAULT_STALL;
	}
	dcm_count(lane, (*f)->nr ? DCM_C_FAULT_MISSING : DCM_C_FAULT_ZERO, 1);
	return DCM_FAULT_PENDING;
}

static enum dcm_fault_result fault_once(struct dcm_lane *lane, u32 gfn,
					u32 flags, struct dcm_fetch **f,
					unsigned int *order)
{
	struct dcm_vm *vm = lane->vm;
	u32 head = dcm_block_lock(vm, gfn, order);
	u32 w = pd_word(pd_of(vm, head)), run;

	if (w & PD_BUSY) {
		pd_set(pd_of(vm, head), PD_WAITER);
		pd_unlock(pd_of(vm, head));
		dcm_count(lane, DCM_C_FAULT_BUSY, 1);
		return DCM_FAULT_BUSY;
	}
	switch (pd_state(w)) {
	case DCM_ACTIVE:
	case DCM_PROACTIVE:
		return fault_mapped(lane, head, *order, gfn, flags);
	case DCM_INACTIVE:
	case DCM_WRITEBACK:
		return fault_unmapped(lane, head, *order, gfn, flags);
	default:
		if (flags & (DCM_FF_ALONE | FF_NOGROW))
			run = 0;
		else if (flags & DCM_FF_SPAN)
			run = dcm_fresh_span(vm, gfn);
		else
			run = dcm_fresh_run(lane, head, *order);
		if (!run)
			return fault_notdirect(lane, head, order, gfn, flags,
					       f);
		pd_unlock(pd_of(vm, head));
		if (dcm_fresh_make(lane, gfn, run, flags & DCM_FF_WRITE))
			return DCM_FAULT_DONE;
		return fault_once(lane, gfn, flags | DCM_FF_ALONE, f, order);
	}
}

enum dcm_counter_id dcm_stall_cause(const struct dcm_lane *lane)
{
	if (lane->down)
		return DCM_C_WAIT_RETRY_NS;
	/* Frames of write-backs come free as soon as donors have answered. */
	if (atomic64_read(&lane->vm->wb_pages) > 0)
		return DCM_C_WAIT_OUT_NS;
	return DCM_C_WAIT_FRAMES_NS;
}

void dcm_waited(struct dcm_lane *lane, enum dcm_counter_id cause, u64 ns)
{
	dcm_count(lane, cause, ns);
}

/* Evict until the fault finds the frames that it needs, or give up for now. */
static enum dcm_fault_result fault_stalled(struct dcm_lane *lane, u32 gfn,
					   u32 flags, struct dcm_fetch **f,
					   unsigned int *order)
{
	enum dcm_fault_result r = DCM_FAULT_STALL;
	u64 began = lane->vm->ops->now_ns();
	unsigned int i;

	for (i = 0; r == DCM_FAULT_STALL && i < FRAME_TRIES; i++) {
		if (!room_make(lane, 1u << *order))
			break;
		/* The block may just have been split: don't grow it again. */
		r = fault_once(lane, gfn, flags | FF_NOGROW, f, order);
	}
	/* If a fetch has begun, its t_fault is the current time. */
	dcm_count(lane, DCM_C_WAIT_FRAMES_NS,
		  (*f ? (*f)->t_fault : lane->vm->ops->now_ns()) - began);
	return r;
}

enum dcm_fault_result dcm_fault(struct dcm_lane *lane, u64 gfn, u32 flags)
{
	struct dcm_vm *vm = lane->vm;
	struct dcm_fetch *f = NULL;
	enum dcm_fault_result r;
	unsigned int order = 0;
	struct dcm_miss miss;
	u64 began = 0;

	if (unlikely(gfn >= vm->nr_pages))
		return DCM_FAULT_DONE;
	if (unlikely(!dcm_chunk_there(vm, (u32)gfn)))
		return DCM_FAULT_BARE;
	if (flags & DCM_FF_WP)
		flags |= DCM_FF_WRITE;
	dcm_count(lane, DCM_C_FAULTS, 1);
	dcm_reuse_touch(lane, (u32)gfn);
	if (unlikely(!(lane->count[DCM_C_FAULTS] % TIMED_EVERY)))
		began = vm->ops->now_ns();
	r = fault_once(lane, (u32)gfn, flags, &f, &order);
	if (unlikely(began) && r == DCM_FAULT_DONE)
		dcm_count(lane, DCM_C_WAIT_HERE_NS,
			  (vm->ops->now_ns() - began) * TIMED_EVERY);
	if (r == DCM_FAULT_STALL)
		r = fault_stalled(lane, (u32)gfn, flags, &f, &order);
	if (r == DCM_FAULT_STALL) {
		dcm_count(lane, DCM_C_FAULT_STALL, 1);
		return r;
	}
	if (r != DCM_FAULT_PENDING) {
		if (!(flags & DCM_FF_WP))
			dcm_stream_access(lane, (u32)gfn, NULL);
		return r;
	}

	/*
	 * The overlap (dcm-tc18, fig. 5): with the READ posted, evict for the
	 * next fault while it is in flight. If the READ has completed already,
	 * the guest runs while this evicts.
	 */
	miss.gfn = (u32)gfn;
	miss.head = f->gfn;
	miss.end = f->nr ? f->gfn + (1u << f->order) : 0;
	dcm_fetch_start(lane, f);
	vm->ops->io_flush(lane);
	dcm_poll(lane);
	r = f->state == DCM_FETCH_FREE ? DCM_FAULT_DONE : DCM_FAULT_PENDING;
	dcm_balance(lane);
	/*
	 * If the access waits until dcm_fault() returns (@waits), and its block is
	 * here already, bringing in more pages would only delay it.
	 */
	if (miss.end && (r == DCM_FAULT_PENDING || !vm->waits))
		dcm_stream_access(lane, (u32)gfn, &miss);
	return r;
}

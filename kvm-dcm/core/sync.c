// SPDX-License-Identifier: GPL-2.0-only
/*
 * sync.c - write a page range back until the donor's copy is complete
 *
 * Eviction writes the oldest blocks, and of those only what the donor must
 * know: a page that is all zero is forgotten, and its place in the slab keeps
 * old bytes. A worker on the donor (garbage collection, as in semeru-osdi20,
 * 4.1) needs more: every page of a range in the slab, zero pages as zeroes. If
 * it also writes, no page may stay direct here, or a later write-back would
 * overwrite the worker's result.
 *
 * Where an extent has several slabs the worker uses one, the *primary*
 * (dcm_slot_primary()), and only that one must have the range. Write-backs go to
 * the others as always.
 *
 * dcm_sync() works block by block. Mapped blocks are unmapped, and dirty ones written
 * back; pages that no donor has are brought in as zeroes and then written too; pages
 * that only other slabs have are fetched and written. For a worker that only reads (a
 * tracer) pages may stay direct (DCM_SYNC_KEEP): then mapped blocks stay mapped, and only
 * changes are written. The pager has to keep accesses out meanwhile; if it does not,
 * pages may change after they were written, as after an eviction.
 *
 * With DCM_SYNC_KEEP a block that was written to since the last sync stays writable, and
 * dirty: no write to it faults, and the next sync or its eviction writes it once more.
 * A page that is not written to any more is written back five times on average, then.
 *
 * The guest may write to pages that stay mapped, so a donor gets each page as it was
 * at some time since syncing began. lane->seen has a bit for each page of the current
 * window that was sent; without it a page that is written all the time would be sent
 * again and again.
 */
#include "internal.h"

#define STAY_BP 7500 /* see stays_writable(); in 10000 */
#define STEPS 4 /* make zero, unmap, begin write-back; and one more */

enum sync_result {
	SYNC_DONE, /* the donor has it */
	SYNC_SOON, /* on its way */
	SYNC_NEXT, /* one step done; take the next at once */
	SYNC_AGAIN, /* another lane works on it, or something is full */
};

/*
 * The word of @seen for pages of one block, and their bits in it; %NULL if the
 * pages are outside the window.
 */
static u16 *seen_of(struct dcm_lane *lane, u32 gfn, u32 nr, u16 *mask)
{
	u32 at = (gfn - lane->seen_from) >> DCM_ORDER_MAX;

	*mask = (u16)(((1u << nr) - 1) << (gfn & (DCM_BLOCK_MAX - 1)));
	return gfn >= lane->seen_from && at < DCM_SEEN_MAX ? &lane->seen[at] :
							     NULL;
}

static bool seen_all(struct dcm_lane *lane, u32 gfn, u32 nr)
{
	u16 mask, *seen = seen_of(lane, gfn, nr, &mask);

	return seen && (*seen & mask) == mask;
}

static void seen_add(struct dcm_lane *lane, u32 gfn, u32 nr)
{
	u16 mask, *seen = seen_of(lane, gfn, nr, &mask);

	if (seen)
		*seen |= mask;
}

/**
 * dcm_sync_failed() - a copy did not get to the primary: forget that it was sent
 * @lane: the lane that wrote it; the caller's
 * @head: its block
 * @order: its size
 */
void dcm_sync_failed(struct dcm_lane *lane, u32 head, unsigned int order)
{
	u16 mask, *seen = seen_of(lane, head, 1u << order, &mask);

	if (seen)
		*seen &= (u16)~mask;
}

/* Pages of a block that the primary lacks. */
static u16 pages_missing(const struct dcm_vm *vm, u32 head, unsigned int order)
{
	return page_mask(order) &
	       (u16)~dcm_block_flag(vm, head, order,
				    dcm_primary_bits(vm, head));
}

/* Pages of a direct block whose current content the primary lacks. */
static u16 pages_unwritten(const struct dcm_vm *vm, u32 head,
			   unsigned int order)
{
	return dcm_block_flag(vm, head, order, PD_DIRTY) |
	       pages_missing(vm, head, order);
}

/* Prepare to unmap a mapped block: locked, in no queue; BUSY, not locked on return. */
static void unmap_prepare(struct dcm_lane *lane, u32 head, unsigned int order)
{
	struct dcm_vm *vm = lane->vm;

	lane->unmap[0] = (struct dcm_unmap){
		.gfn = head,
		.order = (u8)order,
		.dirty = dcm_block_flag(vm, head, order, PD_DIRTY),
		.frame = DCM_NIL,
	};
	pd_set(pd_of(vm, head), PD_BUSY);
	pd_unlock(pd_of(vm, head));
}

/* Make a mapped block Inactive. Locked and not BUSY; not locked on return. */
static int sync_unmap(struct dcm_lane *lane, u32 head, unsigned int order)
{
	struct dcm_vm *vm = lane->vm;
	struct dcm_unmap *v = &lane->unmap[0];

	dcm_queue_out(vm, head, order);
	if (pd_state(pd_word(pd_of(vm, head))) == DCM_PROACTIVE)
		dcm_state_set(lane, head, DCM_ACTIVE);
	unmap_prepare(lane, head, order);
	vm->ops->unmap(lane, v, 1);
	return dcm_demoted(lane, v) ? 0 : -EBUSY;
}

/* Copy @pages, and other dirty pages, to a frame; all stay mapped. */
static void pages_copy(struct dcm_lane *lane, struct dcm_unmap *v, u16 pages)
{
	struct dcm_vm *vm = lane->vm;

	if (!vm->dirty_late) {
		v->dirty = pages;
		vm->ops->copy(lane, v);
		if (!v->err)
			dcm_unmap_note(vm, v);
		return;
	}
	vm->ops->unmap(lane, v, 1);
	if (v->err)
		return;
	dcm_unmap_note(vm, v);
	v->dirty |= pages;
	vm->ops->remap(lane, v->gfn, v->order, v->frame, 0, 0, v->dirty != 0);
}

/*
 * Should a mapped block stay writable, and dirty, though it is written now? Yes, if it
 * was written to since the last sync: most likely it is written to again. If that is not
 * known (PD_GUESSED), three times of four: a fault for each write after a sync costs
 * more than that the page is written back again.
 */
static bool stays_writable(struct dcm_lane *lane, u32 head, unsigned int order)
{
	struct dcm_vm *vm = lane->vm;
	u16 dirty = dcm_block_flag(vm, head, order, PD_DIRTY);

	return dirty & (u16)~dcm_block_flag(vm, head, order, PD_GUESSED) ||
	       (dirty && dcm_chance(lane, STAY_BP));
}

/* Write a mapped block, leave it mapped. Locked and not BUSY; not locked on return. */
static int sync_copy(struct dcm_lane *lane, u32 head, unsigned int order,
		     enum dcm_sync_how how)
{
	struct dcm_vm *vm = lane->vm;
	struct dcm_pd *pd = pd_of(vm, head);
	u16 pages = pages_unwritten(vm, head, order);
	struct dcm_unmap *v = &lane->unmap[0];
	struct dcm_wb *wb;
	int err;

	if (!(pd_word(pd) & PD_SYNCED))
		pd_set(pd, PD_SYNCED);
	if (!pages && !vm->dirty_late) {
		pd_unlock(pd);
		return SYNC_DONE;
	}
	if (dcm_block_inflight(vm, head, order)) {
		pd_unlock(pd);
		return SYNC_AGAIN;
	}
	wb = dcm_wb_claim(lane, head, 0, 0, &err);
	if (!wb) {
		pd_unlock(pd);
		if (err == -ENODEV)
			vm->ops->want_slab(vm, head >> vm->extent_shift);
		return SYNC_AGAIN;
	}
	/* the primary's donor is down, so the copy would not go there */
	if (unlikely(!(pd_at_bits(wb->targets) & dcm_primary_bits(vm, head)))) {
		dcm_wb_unclaim(lane, wb);
		pd_unlock(pd);
		return SYNC_AGAIN;
	}
	dcm_queue_out(vm, head, order);
	unmap_prepare(lane, head, order);
	v->open = how == DCM_SYNC_KEEP && !vm->dirty_late &&
		  stays_writable(lane, head, order);
	pages_copy(lane, v, pages);
	if (v->err) {
		dcm_wb_unclaim(lane, wb);
		dcm_demoted(lane, v);
		return -EBUSY;
	}
	if (v->dirty) {
		/* before the copy can fail, and dcm_sync_failed() clears the bits */
		seen_add(lane, head, 1u << order);
		dcm_wb_copy(lane, wb, order, v->dirty, v->open, v->frame);
		return SYNC_SOON;
	}
	dcm_wb_unclaim(lane, wb);
	pd_lock(pd);
	dcm_queue_in(lane, head, order);
	dcm_block_unbusy(lane, head, order);
	return SYNC_DONE;
}

/*
 * Bring in the block of a page that the primary lacks, by a write fault, so that it
 * becomes dirty. Pages that no donor has come in as zeroes.
 */
static int sync_bring(struct dcm_lane *lane, u32 head, u16 missing)
{
	switch (dcm_fault(lane, head + ffs_u32(missing) - 1,
			  DCM_FF_WRITE | DCM_FF_ALONE)) {
	case DCM_FAULT_LOST:
		return -EIO;
	case DCM_FAULT_STALL:
		return SYNC_AGAIN;
	case DCM_FAULT_DONE:
		return SYNC_NEXT;
	default:
		return SYNC_SOON;
	}
}

/*
 * Have pages mapped read-only when they are next fetched, even if they were written the
 * last time. Else fetch.c guesses a write and maps them writable and
 * dirty, and the next sync would write them back though nobody wrote to them.
 */
static void writes_forget(struct dcm_vm *vm, u32 head, unsigned int order)
{
	u16 wrote = dcm_block_flag(vm, head, order, PD_WROTE);

	for (u32 i = 0; wrote >> i; i++)
		if (wrote >> i & 1)
			pd_clear(pd_of(vm, head + i), PD_WROTE);
}

static int sync_block(struct dcm_lane *lane, u32 gfn, enum dcm_sync_how how,
		      u32 *next)
{
	bool keep = how != DCM_SYNC_OUT;
	struct dcm_vm *vm = lane->vm;
	unsigned int order;
	u32 head = dcm_block_lock(vm, gfn, &order);
	struct dcm_pd *pd = pd_of(vm, head);
	u32 w = pd_word(pd);
	u16 missing;
	int err;

	*next = head + (1u << order);
	if (w & PD_BUSY) {
		pd_unlock(pd);
		/* Most likely another step of this sync is writing its copy. */
		return keep ? SYNC_SOON : SYNC_AGAIN;
	}
	if (keep && seen_all(lane, head, 1u << order)) {
		pd_unlock(pd);
		return SYNC_DONE;
	}
	switch (pd_state(w)) {
	case DCM_NOTDIRECT:
		missing = pages_missing(vm, head, order);
		err = dcm_block_flag(vm, head, order, PD_LOST) ? -EIO : 0;
		if (how == DCM_SYNC_EXACT)
			writes_forget(vm, head, order);
		if (!err && !dcm_block_flag(vm, head, order, PD_AT)) {
			head = dcm_eblk_grow_empty(lane, head, &order);
			*next = head + (1u << order);
		}
		pd_unlock(pd_of(vm, head));
		if (err || !missing)
			return err ? err : SYNC_DONE;
		return sync_bring(lane, head, missing);
	case DCM_WRITEBACK:
		pd_unlock(pd);
		return SYNC_SOON;
	case DCM_INACTIVE:
		if (keep && !pages_unwritten(vm, head, order)) {
			pd_unlock(pd);
			return SYNC_DONE;
		}
		dcm_queue_out(vm, head, order);
		return dcm_evict_block(lane, head, true) ? SYNC_SOON :
							   SYNC_AGAIN;
	default:
		if (keep)
			return sync_copy(lane, head, order, how);
		err = sync_unmap(lane, head, order);
		return err ? err : SYNC_NEXT;
	}
}

/*
 * Take all steps for a block that can be taken without waiting. A zero page that was
 * brought in must be written in the same call: if it were left between two steps,
 * eviction (which syncing more than the budget causes) would drop it.
 */
static int sync_steps(struct dcm_lane *lane, u32 gfn, enum dcm_sync_how how,
		      u32 *next)
{
	int r = SYNC_NEXT, i;

	for (i = 0; r == SYNC_NEXT && i < STEPS; i++)
		r = sync_block(lane, gfn, how, next);
	if (r == SYNC_DONE && how != DCM_SYNC_OUT)
		seen_add(lane, gfn, *next - gfn);
	return r;
}

static int sync_window(struct dcm_lane *lane, u64 *gfn, u64 end,
		       enum dcm_sync_how how, u64 until_ns)
{
	struct dcm_vm *vm = lane->vm;

	while (*gfn < end) {
		u32 next = 0;
		bool all = true;
		u64 at;

		/* start as many write-backs as can be in flight */
		for (at = *gfn; at < end; at = next) {
			int r = sync_steps(lane, (u32)at, how, &next);

			if (r < 0) {
				/* return the block with the lost page in @gfn */
				if (r == -EIO)
					*gfn = at;
				return r;
			}
			if (r == SYNC_DONE && all)
				*gfn = next;
			else
				all = false;
			if (r == SYNC_AGAIN)
				break;
		}
		vm->ops->io_flush(lane);
		if (*gfn >= end)
			break;
		/* wait until several write-backs have room, to send them together */
		do {
			if (!dcm_poll(lane) && !vm->ops->relax(lane))
				return -EINTR;
			if (vm->ops->now_ns() >= until_ns)
				return -ETIMEDOUT;
		} while (lane->nr_wb > dcm_tune(vm, DCM_T_writebacks) / 2);
	}
	return 0;
}

int dcm_sync(struct dcm_lane *lane, u64 *gfn, u64 end, enum dcm_sync_how how,
	     u64 until_ns)
{
	int err = 0;

	end = min(end, (u64)lane->vm->nr_pages);
	while (!err && *gfn < end) {
		lane->seen_from = (u32)*gfn & ~(DCM_BLOCK_MAX - 1);
		memset(lane->seen, 0, sizeof(lane->seen));
		err = sync_window(lane, gfn,
				  min(end,
				      lane->seen_from + (u64)DCM_SEEN_MAX *
							     DCM_BLOCK_MAX),
				    how, until_ns);
	}
	return err;
}

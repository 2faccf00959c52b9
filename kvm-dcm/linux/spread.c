// SPDX-License-Identifier: GPL-2.0-only
/*
 * spread.c - copy a GC worker's changes to an extent's other slabs, or revert them
 *
 * A worker changes one slab of an extent, the primary. When it has ended well, the
 * control plane asks to copy the changes to the extent's other slabs (SPREAD). If not,
 * it asks to undo them, or to keep them on the primary alone (both REVERT).
 * core/spread.c does the work; uffd/gc_pages.c has the same for libdcm.
 *
 *	freeze -> sync -> a worker -> SPREAD ---------------------> thaw
 *	                     |          '--> not in time --> REVERT --^
 *	                     '--> the open file is closed: all is reverted
 *
 * So when the control plane is killed, all slabs in a page's set have the page either
 * as it was before the worker, or as the worker left it and SPREAD copied it. Primaries
 * are not in the sets of reverted pages, until a fill copies these back. Reverting
 * allocates nothing. It waits only for operations in flight, which end, at the latest
 * with their link if a donor does not answer.
 *
 * Both run on the control lane, whose buffers moves use. A thread takes the lane for
 * a part of the range at a time, and waits without it, as the lane is needed to give up
 * a donor that does not answer. Fills and drains of other extents may come in between.
 *
 * Locking: freeze_lock, so that pages stay frozen and one thread at a time does this;
 * then the control lane. Not the control mutex: a DETACH holds that while it waits for
 * the end of a freeze.
 */
#include <linux/sched/signal.h>

#include "dcmfs.h"

#define PART_PAGES	4096u /* pages of a part: others get the lane between two */
#define BATCHES		16u /* batches before others get the lane, if all end at once */

static_assert(PART_PAGES % DCM_PDS_PAGES == 0, "parts are whole chunks");

/* dcm_spread(), dcm_revert() or dcm_keep(); called with the control lane. */
typedef int (*step_fn)(struct dcm_lane *lane, u64 *gfn, u64 end);

/* Has each extent of these pages at most one slab, so that there is nothing to copy? */
static bool pages_alone(const struct dcm_vm *vm, u64 gfn, u64 end)
{
	for (; gfn < end;
	     gfn = round_down(gfn, vm->extent_pages) + vm->extent_pages) {
		u8 used = READ_ONCE(vm->extent[gfn / vm->extent_pages].used);

		if (used & (used - 1))
			return false;
	}
	return true;
}

static int step_spread(struct dcm_lane *lane, u64 *gfn, u64 end)
{
	unsigned int i = 0;
	int err;

	/* without copies no buffers are needed */
	if (pages_alone(lane->vm, *gfn, end))
		return 0;
	err = dcmfs_move_buffers(lane);
	if (err)
		return err;
	/* go on at once while dcm_poll() ends operations, as on slabs of this host */
	do {
		err = dcm_spread(lane, gfn, end);
	} while (err == -EAGAIN && ++i < BATCHES && dcm_poll(lane));
	dcmfs_move_buffers_free(lane);
	return err;
}

/* Do a part of the range, and move @gfn on. 0: done; else call it again. */
static int part_do(struct dcmfs_lane *lane, u64 *gfn, u64 end, step_fn step)
{
	u64 to = min(end, *gfn - *gfn % PART_PAGES + PART_PAGES);
	int err = step(lane->core, gfn, to);

	if (!err)
		*gfn = to;
	return err;
}

/* Do a range, part by part. @gfn: out: the first page not done. Under freeze_lock. */
static int range_do(struct dcmfs_vm *vm, u64 *gfn, u64 end, u64 until_ns,
		    step_fn step)
{
	while (*gfn < end) {
		struct dcmfs_lane *lane = dcmfs_control_try(vm);
		int err;

		if (!lane)
			return -EINTR;
		err = part_do(lane, gfn, end, step);
		dcmfs_lane_put(vm, lane);
		if (!err) {
			cond_resched();
			continue;
		}
		if (ktime_get_ns() >= until_ns)
			return -ETIMEDOUT;
		/* The VM's thread polls too. */
		if (dcm_pending(lane->core))
			wait_event_killable_timeout(lane->wait,
						    READ_ONCE(lane->event), 1);
		else
			schedule_timeout_killable(1);
		if (fatal_signal_pending(current))
			return -EINTR;
	}
	return 0;
}

/* Take freeze_lock, if the range is frozen by this open file. */
static int range_begin(struct dcmfs_vm *vm, const struct file *file, u64 first,
		       u64 pages)
{
	unsigned long end;

	if (!dcmfs_range_good(vm, first, pages))
		return -EINVAL;
	if (mutex_lock_killable(&vm->freeze_lock))
		return -EINTR;
	end = (unsigned long)((first + pages) / DCM_BLOCK_MAX);
	if (vm->freezer == file &&
	    find_next_zero_bit(vm->frozen, end,
			       (unsigned long)(first / DCM_BLOCK_MAX)) >= end)
		return 0;
	mutex_unlock(&vm->freeze_lock);
	return -EINVAL;
}

/**
 * dcmfs_spread() - copy a GC worker's changes to the other slabs
 * @vm: the VM
 * @file: the open file that froze the range
 * @r: range, and time limit; unless invalid, out: the part that is left
 *
 * Return: 0, or a negative errno; see struct dcmfs_range.
 */
int dcmfs_spread(struct dcmfs_vm *vm, const struct file *file,
		 struct dcmfs_range *r)
{
	u64 until = ktime_get_ns() + (u64)r->limit_ms * NSEC_PER_MSEC;
	u64 gfn = r->first, end = r->first + r->pages;
	int err;

	if (r->flags || !r->limit_ms || r->limit_ms > DCMFS_LIMIT_MAX_MS)
		return -EINVAL;
	err = range_begin(vm, file, r->first, r->pages);
	if (err)
		return err;
	err = range_do(vm, &gfn, end, until, step_spread);
	mutex_unlock(&vm->freeze_lock);
	/* dcm_spread() remembers on the lane if an earlier page must be done again. */
	gfn = min(round_down(gfn, DCM_BLOCK_MAX), end);
	r->first = gfn;
	r->pages = end - gfn;
	return err;
}

/**
 * dcmfs_revert() - undo a GC worker's changes, or keep them on the primary alone
 * @vm: the VM
 * @file: the open file that froze the range
 * @r: range and flags
 *
 * Return: 0, or a negative errno; see struct dcmfs_range.
 */
int dcmfs_revert(struct dcmfs_vm *vm, const struct file *file,
		 const struct dcmfs_range *r)
{
	u64 gfn = r->first;
	int err;

	if (r->flags & ~DCMFS_REVERT_KEEP || r->limit_ms)
		return -EINVAL;
	err = range_begin(vm, file, r->first, r->pages);
	if (err)
		return err;
	err = range_do(vm, &gfn, r->first + r->pages, U64_MAX,
		       r->flags & DCMFS_REVERT_KEEP ? dcm_keep : dcm_revert);
	mutex_unlock(&vm->freeze_lock);
	return err;
}

/**
 * dcmfs_revert_frozen() - revert all frozen pages, as the control plane is gone
 * @vm: the VM; under its freeze_lock
 *
 * No signal ends it, as it must work in a process that is being killed.
 */
void dcmfs_revert_frozen(struct dcmfs_vm *vm)
{
	unsigned long nr = DIV_ROUND_UP(vm->core->nr_pages, DCM_BLOCK_MAX);
	unsigned long at = 0, end;

	while ((at = find_next_bit(vm->frozen, nr, at)) < nr) {
		u64 gfn = (u64)at * DCM_BLOCK_MAX, to;

		end = find_next_zero_bit(vm->frozen, nr, at);
		to = min((u64)end * DCM_BLOCK_MAX, (u64)vm->core->nr_pages);
		while (gfn < to) {
			struct dcmfs_lane *lane = dcmfs_control_get(vm);
			int err = part_do(lane, &gfn, to, dcm_revert);

			dcmfs_lane_put(vm, lane);
			if (err)
				schedule_timeout_uninterruptible(1);
			cond_resched();
		}
		at = end;
	}
}

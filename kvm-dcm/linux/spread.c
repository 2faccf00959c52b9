// SPDX-License-Identifier: GPL-2.0-only
/*
 * spread.c - what GC workers of donors changed, where a file has copies
 *
 * A worker changes one slab of an extent, the primary. When it has ended well, the
 * control plane asks that the extent's other slabs get the same (SPREAD), else that
 * what it did does not count, or that only it counts (REVERT): core/spread.c. This is
 * the counterpart of what libdcm has in uffd/gc_pages.c.
 *
 *	freeze -> sync -> a worker -> SPREAD ---------------------> thaw
 *	                     |          '--> not in time --> REVERT --^
 *	                     '--> the open file is closed: all is reverted
 *
 * So when the control plane is killed, each page is, on all slabs that count, as it was
 * before the worker, or as the worker left it and SPREAD copied it. The primaries lack
 * what was reverted, until it is filled. Reverting allocates nothing, and ends: what is
 * in flight does, with its link if a donor does not answer.
 *
 * Both are done on the control lane, whose buffers moves use. A thread has the lane for
 * a part of the range at a time, and waits without it: it is needed to give up a donor
 * that does not answer. Fills and drains of other extents may come in between.
 *
 * Locking: freeze_lock, so that pages stay frozen, and one thread does this; then the
 * control lane. Not the control mutex, which a DETACH that waits for the end of a
 * freeze holds.
 */
#include <linux/sched/signal.h>

#include "dcmfs.h"

#define PART_PAGES	4096u /* looked at before other threads get the lane */
#define BATCHES		16u /* begun before they do, if all end at once */

static_assert(PART_PAGES % DCM_PDS_PAGES == 0, "parts are whole chunks");

/* Called with the control lane: dcm_spread() or its like. */
typedef int (*step_fn)(struct dcm_lane *lane, u64 *gfn, u64 end);

/* Have the extents of these pages one slab each, at most? */
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

	/* without copies it needs no memory */
	if (pages_alone(lane->vm, *gfn, end))
		return 0;
	err = dcmfs_move_buffers(lane);
	if (err)
		return err;
	/* I/O on slabs of this host has ended already */
	do {
		err = dcm_spread(lane, gfn, end);
	} while (err == -EAGAIN && ++i < BATCHES && dcm_poll(lane));
	dcmfs_move_buffers_free(lane);
	return err;
}

/* Do a part of what is left. 0: @gfn is behind it; else it is to be gone on with. */
static int part_do(struct dcmfs_lane *lane, u64 *gfn, u64 end, step_fn step)
{
	u64 to = min(end, *gfn - *gfn % PART_PAGES + PART_PAGES);
	int err = step(lane->core, gfn, to);

	if (!err)
		*gfn = to;
	return err;
}

/* Under freeze_lock. @gfn: out: where it ended. */
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
 * dcmfs_spread() - copy what a GC worker changed to the other slabs
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
	/* The lane knows of a page before it that has to be done again. */
	gfn = min(round_down(gfn, DCM_BLOCK_MAX), end);
	r->first = gfn;
	r->pages = end - gfn;
	return err;
}

/**
 * dcmfs_revert() - what a GC worker did does not count, or it alone does
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
 * dcmfs_revert_frozen() - revert all frozen pages: nobody is left to ask for it
 * @vm: the VM; under its freeze_lock
 *
 * For a process that is being killed as well, so no signal ends it.
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

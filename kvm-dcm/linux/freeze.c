// SPDX-License-Identifier: GPL-2.0-only
/*
 * freeze.c - block faults on a range while a GC worker accesses its slabs
 *
 * Garbage collection on donors (docs/design/virtio-gc.md) needs the donors'
 * copy of a range to be the only one, or at least the newest, and no access to
 * it meanwhile. This is the counterpart of libdcm's uffd/gc_pages.c:
 *
 *	freeze: bits set; threads that were in the core with a lane have left it
 *	sync: written to the slab; unmapped, frames given back, or kept
 *	... a donor works ...
 *	spread, or reverted, where there are copies: spread.c
 *	release: bits cleared, faults retry, and fetch the donor's result
 *
 * A fault looks at the bits while it holds its lane, and the thread that sets them
 * takes every lane for a moment: so either the fault sees the bits, or the thread waits
 * for the fault. A fault may have its page already, but not have put it into the page
 * table: then the page is locked, and syncing finds it busy, and retries. Syncing
 * unmaps mapped pages.
 *
 * Frozen pages belong to one open file, and are thawed when that is closed, so that a
 * control plane that is killed does not block accesses for long. Nobody knows then
 * which pages a worker has changed, so where there are copies they are reverted first.
 * The worker goes on until its donor notices that the control plane is gone, so pages
 * that it may change stay frozen for another GRACE: an access could change them too,
 * and one of the two changes would be lost. While a page of an extent is frozen, the
 * extent is neither moved off a slab nor filled (slab.c).
 *
 * A file is sparse: syncing adds descriptors for pages that never had any, as
 * a fault does. It is done step by step under the discard lane, so that they
 * are not taken away, and not under the control lane, which is needed to give
 * up a donor that does not answer.
 *
 * Locking: freeze_lock, then lanes. Bits are read without it.
 */
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "dcmfs.h"

#define STEP_PAGES	4096u /* pages synced before other threads get the lane */
/* tries for a page that I/O uses, mostly for a moment */
#define BUSY_TRIES 200u
/* A donor ends a worker some ms after the host's connection has ended. */
#define GRACE		(HZ * 3 / 10)

/* dcmfs_vm.freezer during GRACE, when the file was closed. */
#define NO_FILE		((const struct file *)1)

static_assert(STEP_PAGES % DCM_PDS_PAGES == 0, "steps are whole chunks");

static u64 freeze_bits(const struct dcmfs_vm *vm)
{
	return DIV_ROUND_UP(vm->core->nr_pages, DCM_BLOCK_MAX);
}

/** dcmfs_extent_frozen() - is a page of an extent frozen? The caller has a lane */
bool dcmfs_extent_frozen(const struct dcmfs_vm *vm, u32 extent)
{
	unsigned long first = (unsigned long)extent *
			      (vm->core->extent_pages / DCM_BLOCK_MAX);
	unsigned long end = first + vm->core->extent_pages / DCM_BLOCK_MAX;

	end = min(end, (unsigned long)freeze_bits(vm));
	return READ_ONCE(vm->freezer) &&
	       find_next_bit(vm->frozen, end, first) < end;
}

/* Thaw all pages, and wake the threads that wait for them. Under freeze_lock. */
static void pages_thaw(struct dcmfs_vm *vm)
{
	u32 i;

	bitmap_zero(vm->frozen, freeze_bits(vm));
	WRITE_ONCE(vm->handed, false);
	/* Bits first: a thread that sees a freezer sees its bits. */
	smp_wmb();
	WRITE_ONCE(vm->freezer, NULL);
	for (i = 0; i < DCMFS_BUCKETS; i++) {
		atomic_inc(&vm->bucket[i].seq);
		wake_up_all(&vm->bucket[i].wait);
	}
}

static void freeze_end(struct dcmfs_vm *vm, const struct file *file,
		       bool closed)
{
	if (READ_ONCE(vm->freezer) != file)
		return;
	mutex_lock(&vm->freeze_lock);
	if (vm->freezer == file && closed && vm->handed) {
		dcmfs_revert_frozen(vm);
		WRITE_ONCE(vm->thaw_at, jiffies + GRACE);
		WRITE_ONCE(vm->freezer, NO_FILE);
		dcmfs_kick(vm);
	} else if (vm->freezer == file) {
		pages_thaw(vm);
	}
	mutex_unlock(&vm->freeze_lock);
}

/**
 * dcmfs_thaw_due() - if the freezing file was closed, thaw its pages once GRACE is over
 * @vm: the VM
 *
 * Called by the VM's thread, which must not wait for freeze_lock.
 *
 * Return: true: call it again soon.
 */
bool dcmfs_thaw_due(struct dcmfs_vm *vm)
{
	if (READ_ONCE(vm->freezer) != NO_FILE)
		return false;
	if (time_before(jiffies, READ_ONCE(vm->thaw_at)) ||
	    !mutex_trylock(&vm->freeze_lock))
		return true;
	if (vm->freezer == NO_FILE)
		pages_thaw(vm);
	mutex_unlock(&vm->freeze_lock);
	return false;
}

/** dcmfs_freeze_end() - an open file is closed: thaw the pages it froze, soon */
void dcmfs_freeze_end(struct dcmfs_vm *vm, const struct file *file)
{
	freeze_end(vm, file, true);
}

/* Wait until all lanes that were in use before the bits were set are free. */
static int lanes_pass(struct dcmfs_vm *vm)
{
	u32 i;

	for (i = 0; i < vm->nr_lanes; i++) {
		if (mutex_lock_killable(&vm->lane[i].lock))
			return -EINTR;
		mutex_unlock(&vm->lane[i].lock);
	}
	return 0;
}

/** dcmfs_range_good() - is a range whole blocks, inside the file? */
bool dcmfs_range_good(const struct dcmfs_vm *vm, u64 first, u64 pages)
{
	return pages && first < vm->core->nr_pages &&
	       pages <= vm->core->nr_pages - first &&
	       !(first % DCM_BLOCK_MAX) && !(pages % DCM_BLOCK_MAX);
}

/**
 * dcmfs_freeze() - make accesses to a range wait; or thaw everything
 * @vm: the VM
 * @file: the open file that asks
 * @r: the range to freeze; empty: thaw all that @file has frozen
 *
 * Return: 0, or a negative errno; see struct dcmfs_range.
 */
int dcmfs_freeze(struct dcmfs_vm *vm, const struct file *file,
	       const struct dcmfs_range *r)
{
	int err = 0;

	if (r->flags || r->limit_ms)
		return -EINVAL;
	if (!r->pages && !r->first) {
		freeze_end(vm, file, false);
		return 0;
	}
	if (!dcmfs_range_good(vm, r->first, r->pages))
		return -EINVAL;
	if (mutex_lock_killable(&vm->freeze_lock))
		return -EINTR;
	/* Pages of a file that was closed (NO_FILE) become the next file's. */
	if (vm->freezer && vm->freezer != file && vm->freezer != NO_FILE)
		err = -EBUSY;
	/* Allocated once, a bit for 64 KiB. */
	if (!err && !vm->frozen) {
		vm->frozen = kvcalloc(BITS_TO_LONGS(freeze_bits(vm)),
				      sizeof(long), GFP_KERNEL_ACCOUNT);
		if (!vm->frozen)
			err = -ENOMEM;
	}
	if (!err) {
		u64 i;

		for (i = r->first; i < r->first + r->pages; i += DCM_BLOCK_MAX)
			set_bit(i / DCM_BLOCK_MAX, vm->frozen);
		smp_wmb(); /* as in pages_thaw() */
		WRITE_ONCE(vm->freezer, file);
		err = lanes_pass(vm);
	}
	mutex_unlock(&vm->freeze_lock);
	return err;
}

/* Add missing descriptors of a part; the caller has a lane, so that they stay. */
static int chunks_make(struct dcmfs_vm *vm, u64 first, u64 end)
{
	u64 gfn;

	for (gfn = first; gfn < end; gfn = (gfn | (DCM_PDS_PAGES - 1)) + 1) {
		void *chunk;

		if (dcm_chunk_there(vm->core, (u32)gfn))
			continue;
		chunk = dcmfs_chunk_alloc(vm);
		if (IS_ERR_OR_NULL(chunk))
			return chunk ? PTR_ERR(chunk) : -ENOMEM;
		if (!dcm_chunk_add(vm->core, (u32)gfn, chunk))
			dcmfs_chunk_free(vm, chunk);
		cond_resched();
	}
	return 0;
}

static int sync_step(struct dcmfs_vm *vm, u64 *gfn, u64 end,
		     enum dcm_sync_how how, u64 until_ns)
{
	struct dcmfs_lane *lane = &vm->lane[vm->nr_lanes - 2];
	int err;

	if (mutex_lock_killable(&lane->lock))
		return -EINTR;
	err = chunks_make(vm, *gfn, end);
	if (!err)
		err = dcm_sync(lane->core, gfn, end, how, until_ns);
	dcmfs_lane_put(vm, lane);
	return err;
}

/**
 * dcmfs_sync() - write a range back until the slabs' copy is complete
 * @vm: the VM
 * @r: range and flags; unless invalid, out: the part that is left
 *
 * Return: 0, or a negative errno; see struct dcmfs_range.
 */
int dcmfs_sync(struct dcmfs_vm *vm, struct dcmfs_range *r)
{
	u64 until = ktime_get_ns() + (u64)r->limit_ms * NSEC_PER_MSEC;
	enum dcm_sync_how how = r->flags & DCMFS_SYNC_EXACT ? DCM_SYNC_EXACT :
				r->flags & DCMFS_SYNC_KEEP  ? DCM_SYNC_KEEP :
							      DCM_SYNC_OUT;
	u64 gfn = r->first, end = r->first + r->pages;
	u32 tries = 0;

	if (r->flags & ~(DCMFS_SYNC_KEEP | DCMFS_SYNC_EXACT) ||
	    r->flags == DCMFS_SYNC_EXACT || !r->limit_ms ||
	    r->limit_ms > DCMFS_LIMIT_MAX_MS ||
	    !dcmfs_range_good(vm, r->first, r->pages))
		return -EINVAL;
	if (how == DCM_SYNC_OUT)
		WRITE_ONCE(vm->handed, true);
	while (gfn < end) {
		u64 from = gfn, to = from - from % STEP_PAGES + STEP_PAGES;
		int err = sync_step(vm, &gfn, min(end, to), how, until);

		/* Go on at the block's first page: pages that are done cost little. */
		r->first = round_down(gfn, DCM_BLOCK_MAX);
		r->pages = end - r->first;
		if (gfn != from)
			tries = 0;
		if (!err) {
			cond_resched();
			continue;
		}
		if ((err != -EBUSY && err != -ENOMEM) || tries++ == BUSY_TRIES)
			return err;
		if (ktime_get_ns() >= until)
			return err;
		schedule_timeout_killable(1);
		if (fatal_signal_pending(current))
			return -EINTR;
	}
	return 0;
}

/**
 * dcmfs_hint() - take a hint about a range's use
 * @vm: the VM
 * @r: range and hint
 *
 * Return: 0, or a negative errno; see struct dcmfs_range.
 */
int dcmfs_hint(struct dcmfs_vm *vm, const struct dcmfs_range *r)
{
	struct dcmfs_lane *lane = &vm->lane[vm->nr_lanes - 2];
	u64 gfn = r->first, end = r->first + r->pages;
	bool queue = r->flags >= DCM_HINT_FETCH, done = true;

	if (r->flags > DCM_HINT_FORGET || r->limit_ms || !r->pages ||
	    gfn >= vm->core->nr_pages || r->pages > vm->core->nr_pages - gfn)
		return -EINVAL;
	static_assert(DCMFS_HINT_DIRECT == (int)DCM_HINT_DIRECT &&
		      DCMFS_HINT_NORMAL == (int)DCM_HINT_NORMAL &&
		      DCMFS_HINT_COLD == (int)DCM_HINT_COLD &&
		      DCMFS_HINT_FETCH == (int)DCM_HINT_FETCH &&
		      DCMFS_HINT_FORGET == (int)DCM_HINT_FORGET);
	while (gfn < end && done) {
		u64 n = min_t(u64, end - gfn, STEP_PAGES - gfn % STEP_PAGES);

		/* FETCH and FORGET only change the queue: do all at once */
		if (queue)
			n = end - gfn;
		if (mutex_lock_killable(&lane->lock))
			return -EINTR;
		done = dcm_hint(lane->core, gfn, n, (enum dcm_hint)r->flags);
		dcmfs_lane_put(vm, lane);
		gfn += n;
		cond_resched();
	}
	/* the VM's thread brings in what was queued */
	if (queue)
		dcmfs_kick(vm);
	return done ? 0 : -EINTR;
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * memory.c - struct dcmfs_vm: one file's memory, its lanes and its thread
 *
 * Made when the file is first given a size, which is the most it can have, and
 * freed with the inode. Lanes are for threads that fault: a vCPU's thread
 * always gets the same lane, and another one while that is busy (dcm-tc18, 3.4
 * has one for each vCPU; here it is not known which threads are vCPUs). The
 * last is the control lane, the one before is for discards.
 *
 * The VM's thread polls operations that faults leave in flight, keeps the budget,
 * evicts when frames had to be taken from the reserve, and brings in pages that hints
 * have named, while the host has frames (core/ahead.c). It sleeps until kicked. Once a
 * second it sends donors a sign of life. While there are faults it wakes up often
 * enough to hide pages of the core's sample (core/reuse.c).
 *
 * Locking: a lane's mutex is held while in the core with it.
 */
#include <linux/cpumask.h>
#include <linux/hash.h>
#include <linux/kthread.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "compat.h"
#include "dcmfs.h"

#define IDLE_TICKS (HZ / 100 + 1) /* while something is in flight */
#define PING_TICKS HZ /* between signs of life to donors */
#define ROUND_STEPS 64u /* steps before other threads get the control lane */
#define DISCARD_STEP 4096u /* pages discarded before others get the lane */

static_assert(DISCARD_STEP % DCM_PDS_PAGES == 0, "steps are whole chunks");

/** dcmfs_kick() - wake the VM's thread */
void dcmfs_kick(struct dcmfs_vm *vm)
{
	if (!atomic_xchg(&vm->kicked, 1))
		wake_up(&vm->work);
}

/** dcmfs_lane_get() - lock a lane for a fault of this thread; never fails */
struct dcmfs_lane *dcmfs_lane_get(struct dcmfs_vm *vm)
{
	u32 nr = vm->nr_lanes - 2, own = hash_32((u32)current->pid, 16) % nr, i;
	u64 began;

	for (i = 0; i < nr; i++) {
		struct dcmfs_lane *lane = &vm->lane[(own + i) % nr];

		if (mutex_trylock(&lane->lock))
			return lane;
	}
	began = ktime_get_ns();
	mutex_lock(&vm->lane[own].lock);
	dcm_waited(vm->lane[own].core, DCM_C_WAIT_QUEUE_NS,
		   ktime_get_ns() - began);
	return &vm->lane[own];
}

/** dcmfs_control_get() - lock the control lane: that of moves and of the VM's thread */
struct dcmfs_lane *dcmfs_control_get(struct dcmfs_vm *vm)
{
	struct dcmfs_lane *lane = &vm->lane[vm->nr_lanes - 1];

	mutex_lock(&lane->lock);
	return lane;
}

/** dcmfs_control_try() - as dcmfs_control_get(), but %NULL if the thread is killed */
struct dcmfs_lane *dcmfs_control_try(struct dcmfs_vm *vm)
{
	struct dcmfs_lane *lane = &vm->lane[vm->nr_lanes - 1];

	return mutex_lock_killable(&lane->lock) ? NULL : lane;
}

/* Is I/O in flight, or may a failed WRITE still land? */
static bool lane_pending(const struct dcmfs_lane *lane)
{
	return dcm_pending(lane->core) || dcm_doubtful(lane->core);
}

/** dcmfs_lane_put() - unlock a lane; its I/O in flight goes on */
void dcmfs_lane_put(struct dcmfs_vm *vm, struct dcmfs_lane *lane)
{
	bool pending;

	if (lane_pending(lane))
		dcm_poll(lane->core);
	pending = lane_pending(lane);
	mutex_unlock(&lane->lock);
	smp_mb(); /* pairs with thread_rest() */
	if (pending && READ_ONCE(vm->dormant))
		dcmfs_kick(vm);
}

/*
 * After a discard: free chunks of descriptors that hold no state any more, and
 * the lanes' spare frames. Takes all lanes, as no thread may be in the core when
 * chunks are freed. Under the inode's lock.
 */
static void chunks_free(struct dcmfs_vm *vm, u64 first, u64 end)
{
	u64 gfn = round_up(first, DCM_PDS_PAGES);
	u32 i;

	if (end < vm->core->nr_pages)
		end = round_down(end, DCM_PDS_PAGES);
	if (dcm_chunk_next(vm->core, gfn, end) >= end)
		return;
	for (i = 0; i < vm->nr_lanes; i++) {
		mutex_lock_nest_lock(&vm->lane[i].lock, &vm->inode->i_rwsem);
		dcmfs_spares_free(vm, &vm->lane[i]);
	}
	while ((gfn = dcm_chunk_next(vm->core, gfn, end)) < end) {
		dcmfs_chunk_free(vm,
				 dcm_chunk_remove(vm->core, (u32)gfn, false));
		gfn += DCM_PDS_PAGES;
	}
	while (i--)
		mutex_unlock(&vm->lane[i].lock);
}

/**
 * dcmfs_discard() - pages read zero from now on
 * @vm: the VM
 * @first: first page
 * @nr: how many
 *
 * Waits for threads that work on the pages, and so perhaps for a donor that does not
 * answer, until the process is killed. So it does not use the control lane, which is
 * needed to give up such a donor. Descriptors of small holes are kept, as most holes
 * are filled again soon.
 *
 * Return: 0, or -EINTR: killed, a part is not done.
 */
int dcmfs_discard(struct dcmfs_vm *vm, u64 first, u64 nr)
{
	struct dcmfs_lane *lane = &vm->lane[vm->nr_lanes - 2];
	bool done = true, large = nr >= DISCARD_STEP;

	while (nr && done) {
		u64 n = min_t(u64, nr, DISCARD_STEP - first % DISCARD_STEP);

		if (mutex_lock_killable(&lane->lock))
			return -EINTR;
		done = dcm_discard(lane->core, first, n);
		dcmfs_lane_put(vm, lane);
		if (large)
			chunks_free(vm, first, first + n);
		first += n;
		nr -= n;
		cond_resched();
	}
	return done ? 0 : -EINTR;
}

/* Call dcm_balance() for some steps. True: there is more to do. */
static bool control_balance(struct dcm_lane *control)
{
	u32 i;

	for (i = 0; i < ROUND_STEPS; i++) {
		if (!dcm_poll(control) && !dcm_balance(control))
			return false;
		cond_resched();
	}
	return true;
}

/* The host has no frames: evict twice the reserve. */
static void control_shrink(struct dcmfs_vm *vm, struct dcm_lane *control)
{
	struct dcm_vm *core = vm->core;
	u64 budget = READ_ONCE(core->budget);
	s64 goal = atomic64_read(&core->direct) - 2 * DCMFS_RESERVE;

	goal = max(goal, (s64)dcm_min_budget(core));
	if (goal >= (s64)budget || dcm_set_budget(core, (u64)goal))
		return;
	control_balance(control);
	dcm_set_budget(core, budget);
}

/*
 * Bring in pages that hints have named, unless the host is @short_of frames. True: call
 * again soon, as frames for them have to come free first.
 */
static bool control_ahead(struct dcmfs_vm *vm, struct dcm_lane *control,
			  bool short_of)
{
	int again;

	if (short_of)
		dcm_hint(control, 0, vm->core->nr_pages, DCM_HINT_FORGET);
	again = dcm_ahead(control);
	if (!again)
		dcmfs_kick(vm);
	return again > 0;
}

/* One round of the VM's thread. True: the next one should begin soon. */
static bool thread_round(struct dcmfs_vm *vm)
{
	struct dcmfs_lane *lane = dcmfs_control_get(vm);
	bool pending, short_of = atomic_xchg(&vm->short_of, 0);
	u64 dead;
	u32 i;

	if (short_of)
		control_shrink(vm, lane->core);
	if (control_balance(lane->core))
		dcmfs_kick(vm);
	vm->tick_ms = dcm_reuse_tick(lane->core);
	pending = control_ahead(vm, lane->core, short_of);
	pending |= lane_pending(lane);
	dcmfs_move_buffers_free(lane->core);
	dead = dcmfs_links_dead(lane);
	mutex_unlock(&lane->lock);
	dcmfs_links_reap(vm, lane, dead);
	for (i = 0; i < vm->nr_lanes - 1; i++) {
		lane = &vm->lane[i];
		/* The thread that has the lane polls it itself. */
		if (!mutex_trylock(&lane->lock))
			continue;
		dcm_poll(lane->core);
		pending |= lane_pending(lane);
		dead = dcmfs_links_dead(lane);
		if (short_of)
			dcmfs_spares_free(vm, lane);
		mutex_unlock(&lane->lock);
		dcmfs_links_reap(vm, lane, dead);
	}
	pending |= dcmfs_thaw_due(vm);
	/* While extents want slabs evictions wait, and may be over the budget. */
	return pending || atomic_read(&vm->wanted);
}

/*
 * Sleep until kicked; only briefly while something is in flight, because links
 * wake the thread when something arrives, but not when a donor falls silent.
 */
static void thread_rest(struct dcmfs_vm *vm, bool pending)
{
	u32 i;

	WRITE_ONCE(vm->dormant, !pending);
	smp_mb(); /* pairs with dcmfs_lane_put() */
	for (i = 0; i < vm->nr_lanes && !pending; i++)
		pending = lane_pending(&vm->lane[i]);
	wait_event_idle_timeout(vm->work,
				atomic_read(&vm->kicked) ||
					kthread_should_stop(),
				pending ? IDLE_TICKS :
					  min_t(long, PING_TICKS,
						msecs_to_jiffies(vm->tick_ms)));
	WRITE_ONCE(vm->dormant, false);
}

static int thread_main(void *arg)
{
	struct dcmfs_vm *vm = arg;

	while (!kthread_should_stop()) {
		atomic_set(&vm->kicked, 0);
		if (time_after_eq(jiffies, vm->ping_at)) {
			vm->ping_at = jiffies + PING_TICKS;
			dcmfs_links_ping(vm);
		}
		thread_rest(vm, thread_round(vm));
	}
	return 0;
}

static struct dcmfs_sb *sb_of(const struct dcmfs_vm *vm)
{
	return vm->inode->i_sb->s_fs_info;
}

/**
 * dcmfs_metadata_take() - account for memory that no eviction gives back
 * @vm: the VM
 * @bytes: how much
 *
 * Return: 0, or -ENOSPC: the files of the mount would exceed its metadata
 * limit.
 */
int dcmfs_metadata_take(struct dcmfs_vm *vm, u64 bytes)
{
	struct dcmfs_sb *sb = sb_of(vm);
	s64 was = atomic64_read(&sb->metadata);

	do {
		if (bytes > sb->opt.metadata ||
		    (u64)was > sb->opt.metadata - bytes)
			return -ENOSPC;
	} while (!atomic64_try_cmpxchg(&sb->metadata, &was, was + (s64)bytes));
	return 0;
}

/** dcmfs_metadata_give() - undo dcmfs_metadata_take() */
void dcmfs_metadata_give(struct dcmfs_vm *vm, u64 bytes)
{
	atomic64_sub((s64)bytes, &sb_of(vm)->metadata);
}

/**
 * dcmfs_metadata_add() - take memory that the VM keeps to its end
 * @vm: the VM, new or under its control
 * @bytes: how much
 *
 * Return: as dcmfs_metadata_take().
 */
int dcmfs_metadata_add(struct dcmfs_vm *vm, u64 bytes)
{
	int err = dcmfs_metadata_take(vm, bytes);

	if (!err)
		WRITE_ONCE(vm->own_bytes, vm->own_bytes + bytes);
	return err;
}

/** dcmfs_metadata_drop() - undo dcmfs_metadata_add() */
void dcmfs_metadata_drop(struct dcmfs_vm *vm, u64 bytes)
{
	WRITE_ONCE(vm->own_bytes, vm->own_bytes - bytes);
	dcmfs_metadata_give(vm, bytes);
}

/**
 * dcmfs_table_alloc() - allocate a table with an entry for each page of an extent
 * @vm: the VM, under its control
 * @entry: bytes of an entry
 *
 * Return: the table, all zero; or ERR_PTR(): -ENOSPC, more than is left of the mount's
 * metadata=; -ENOMEM.
 */
void *dcmfs_table_alloc(struct dcmfs_vm *vm, size_t entry)
{
	u64 bytes = (u64)vm->core->extent_pages * entry;
	int err = dcmfs_metadata_add(vm, bytes);
	void *mem;

	if (err)
		return ERR_PTR(err);
	mem = kvzalloc(bytes, GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (mem)
		return mem;
	dcmfs_metadata_drop(vm, bytes);
	return ERR_PTR(-ENOMEM);
}

/** dcmfs_table_free() - free a table of dcmfs_table_alloc(), or %NULL */
void dcmfs_table_free(struct dcmfs_vm *vm, void *mem, size_t entry)
{
	if (!mem)
		return;
	kvfree(mem);
	dcmfs_metadata_drop(vm, (u64)vm->core->extent_pages * entry);
}

static u64 budget_pages(const struct dcmfs_options *opt, u64 pages)
{
	return opt->budget ? opt->budget >> PAGE_SHIFT :
			     pages * opt->share / 100;
}

static int core_create(struct dcmfs_vm *vm, u64 pages)
{
	struct dcm_vm_config cfg = {
		.nr_pages = pages,
		.extent_pages = (u32)(vm->opt->extent >> PAGE_SHIFT),
		.nr_lanes = vm->nr_lanes,
		.sparse = true,
		.dirty_late = true,
		.waits = true,
		.seed = get_random_u64(),
		.ops = &dcmfs_ops,
		.priv = vm,
	};
	u64 bytes;
	int err;

	/* This is kernel memory: one file may take a quarter of the host's at most. */
	if (pages >= U32_MAX ||
	    dcm_vm_bytes(&cfg) >> PAGE_SHIFT > totalram_pages() / 4)
		return -EFBIG;
	cfg.budget_pages =
		max(budget_pages(vm->opt, pages), 64 + 16ull * vm->nr_lanes);
	bytes = dcm_vm_bytes(&cfg) + sizeof(*vm) +
		vm->nr_lanes * sizeof(*vm->lane) +
		BITS_TO_LONGS(DIV_ROUND_UP(pages, cfg.extent_pages)) *
			sizeof(long);
	err = dcmfs_metadata_add(vm, bytes);
	if (err)
		return err;
	vm->core = dcm_vm_create(&cfg, &err);
	return vm->core ? 0 : err;
}

static void vm_free(struct dcmfs_vm *vm)
{
	if (vm->core) {
		dcmfs_sums_free(vm);
		dcmfs_seals_free(vm);
		dcm_vm_destroy(vm->core);
	}
	dcmfs_huge_exit(vm);
	dcmfs_metadata_drop(vm, vm->own_bytes);
	dcmfs_frames_exit(vm);
	bitmap_free(vm->want);
	kvfree(vm->frozen);
	kvfree(vm->write_counts);
	kvfree(vm->lane);
	kvfree(vm);
}

/**
 * dcmfs_vm_create() - give a file its memory
 * @inode: the file, locked; it has none yet
 * @bytes: whole pages; the most it can have
 *
 * Return: 0, -ENOMEM, -EFBIG: an empty file, which takes 0.04 bytes a page,
 * would take more than a quarter of this host; -ENOSPC: more than is left of
 * the mount's metadata=. May sleep.
 */
int dcmfs_vm_create(struct inode *inode, u64 bytes)
{
	const struct dcmfs_sb *sb = inode->i_sb->s_fs_info;
	struct dcmfs_vm *vm;
	u64 pages = bytes >> PAGE_SHIFT;
	int err = -ENOMEM;
	u32 i;

	vm = kvzalloc(sizeof(*vm), GFP_KERNEL);
	if (!vm)
		return -ENOMEM;
	vm->inode = inode;
	vm->opt = &sb->opt;
	vm->ping_at = jiffies;
	vm->sum_secret = get_random_u64();
	mutex_init(&vm->control);
	mutex_init(&vm->freeze_lock);
	init_waitqueue_head(&vm->events);
	init_waitqueue_head(&vm->work);
	for (i = 0; i < DCMFS_BUCKETS; i++)
		init_waitqueue_head(&vm->bucket[i].wait);
	if (dcmfs_frames_init(vm))
		goto fail;
	vm->nr_lanes = sb->opt.lanes + 2;
	vm->lane = kvcalloc(vm->nr_lanes, sizeof(*vm->lane), GFP_KERNEL);
	if (!vm->lane)
		goto fail;
	err = core_create(vm, pages);
	if (!err)
		err = dcmfs_huge_init(vm);
	if (err)
		goto fail;
	err = -ENOMEM;
	vm->want = bitmap_zalloc(vm->core->nr_extents, GFP_KERNEL);
	if (!vm->want)
		goto fail;
	for (i = 0; i < vm->nr_lanes; i++) {
		struct dcmfs_lane *lane = &vm->lane[i];

		mutex_init(&lane->lock);
		lane->core = &vm->core->lane[i];
		lane->core->priv = lane;
		lane->max_spare = i < sb->opt.lanes ? DCM_BLOCK_MAX : 0;
		dcm_done_init(&lane->done);
		init_waitqueue_head(&lane->wait);
	}
	vm->thread = kthread_run(thread_main, vm, "dcm/%lu", dcmfs_ino(inode));
	if (IS_ERR(vm->thread)) {
		err = PTR_ERR(vm->thread);
		goto fail;
	}
	dcmfs_inspect_add(vm);
	/* Pairs with dcmfs_vm_of(). */
	smp_store_release((struct dcmfs_vm **)&inode->i_private, vm);
	return 0;
fail:
	vm_free(vm);
	return err;
}

/** dcmfs_vm_destroy() - free a file's memory with its inode: not mapped, not open */
void dcmfs_vm_destroy(struct dcmfs_vm *vm)
{
	u32 i, j;

	dcmfs_inspect_remove(vm);
	kthread_stop(vm->thread);
	dcmfs_links_close(vm);
	dcmfs_kept_close(vm);
	for (i = 0; i < vm->nr_lanes; i++) {
		struct dcm_lane *lane = vm->lane[i].core;

		/* Those that can't be posted are dropped below, with their frames. */
		while (dcm_poll(lane))
			cond_resched();
		for (j = 0; j < DCM_FETCHES_MAX; j++)
			dcmfs_landing_free(lane, j);
		for (j = 0; j < DCM_FETCHES_MAX; j++)
			if (lane->fetch[j].buf)
				dcmfs_chain_free(lane, lane->fetch[j].buf,
						 DCM_BLOCK_MAX);
	}
	dcmfs_frames_drop(vm);
	for (i = 0; i < vm->nr_lanes; i++)
		dcmfs_spares_free(vm, &vm->lane[i]);
	WARN_ON_ONCE(atomic64_read(&vm->frames));
	dcmfs_slabs_free(vm);
	vm_free(vm);
}

/** dcmfs_metadata_bytes() - bytes a VM takes besides frames and links */
u64 dcmfs_metadata_bytes(const struct dcmfs_vm *vm)
{
	const struct dcm_vm *core = vm->core;

	return READ_ONCE(vm->own_bytes) +
	       (u64)READ_ONCE(vm->nr_slabs) * sizeof(struct dcmfs_vm_slab) +
	       (u64)atomic64_read(&core->nr_chunks) * DCM_PAGE_SIZE;
}

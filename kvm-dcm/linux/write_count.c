// SPDX-License-Identifier: GPL-2.0-only
/*
 * write_count.c - has a part of a file been written to on its slab?
 *
 * A GC worker that reads slabs at their donor without a barrier has to know of
 * every write: semeru-osdi20, 4.2, fig. 6. There the host's write-back sets a
 * dirty bit in the donor's memory, and counts a version. Here one word for each
 * 64 KiB does both, in this host's memory, as lanes see every write over any
 * transport. A file whose counts were never asked for has no such words.
 *
 *	begun: counted before its first byte can be in the slab
 *	ended: counted once more, whatever the result
 *
 * Locking: words are atomic; they are made once, under freeze_lock, and freed
 * with the file. The first reader must SYNC the range before it asks, so
 * writes that began before the words were made do not matter.
 */
#include <linux/slab.h>

#include "dcmfs.h"

static u64 counts_nr(const struct dcmfs_vm *vm)
{
	return DIV_ROUND_UP(vm->core->nr_pages, DCM_BLOCK_MAX);
}

/**
 * dcmfs_write_count_change() - a write to a slab begins, or has ended
 * @vm: the VM
 * @slab: the slab
 * @io: the write, of a block at most
 * @by: 1; -1: it could not be posted
 */
void dcmfs_write_count_change(struct dcmfs_vm *vm,
			      const struct dcmfs_vm_slab *slab,
		     const struct dcm_io *io, int by)
{
	/* pairs with counts_make() */
	atomic_t *counts = smp_load_acquire(&vm->write_counts);
	const struct dcm_extent *e = &vm->core->extent[slab->extent];
	u64 gfn;

	/* workers read the primary: writes to copies do not matter */
	if (!counts || dcm_slot_of(e, &slab->ref) != dcm_slot_primary(e))
		return;
	gfn = (u64)slab->extent * vm->core->extent_pages +
	      (io->offset >> PAGE_SHIFT);
	/* If it has ended: count it after all its bytes are written. */
	smp_mb__before_atomic();
	atomic_add(by, &counts[gfn / DCM_BLOCK_MAX]);
	/* If it begins: count it before its first byte can be seen. */
	smp_mb__after_atomic();
}

/* Allocate the words, once, under freeze_lock; 64 MiB for a file of 1 TiB. */
static int counts_make(struct dcmfs_vm *vm)
{
	atomic_t *counts;
	int err = 0;

	if (mutex_lock_killable(&vm->freeze_lock))
		return -EINTR;
	if (!vm->write_counts) {
		counts = kvcalloc(counts_nr(vm), sizeof(*counts),
				  GFP_KERNEL_ACCOUNT);
		if (!counts)
			err = -ENOMEM;
		/* zeroes, for dcmfs_write_count_add() */
		smp_store_release(&vm->write_counts, counts);
	}
	mutex_unlock(&vm->freeze_lock);
	return err;
}

/**
 * dcmfs_write_count() - the write count of a range
 * @vm: the VM
 * @arg: in: the range; out: its write count
 *
 * Return: 0, or a negative errno; see struct dcmfs_write_count.
 */
int dcmfs_write_count(struct dcmfs_vm *vm, struct dcmfs_write_count *arg)
{
	u64 i, end;
	u32 sum = 0;
	int err;

	if (arg->reserved || arg->count ||
	    !dcmfs_range_good(vm, arg->first, arg->pages))
		return -EINVAL;
	err = READ_ONCE(vm->write_counts) ? 0 : counts_make(vm);
	if (err)
		return err;
	end = (arg->first + arg->pages) / DCM_BLOCK_MAX;
	for (i = arg->first / DCM_BLOCK_MAX; i < end; i++) {
		sum += (u32)atomic_read(&vm->write_counts[i]);
		if (!(i % 65536))
			cond_resched();
	}
	arg->count = sum;
	return 0;
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * sum.c - sums of pages: the function, the tables, and the log of wrong bytes
 *
 * core/sum.c compares sums. A sum is half of XXH64's 64 bits: of pages that are
 * changed by chance one in 2^32 goes unnoticed. The hash is seeded with a secret number
 * of this host, so a donor can't make other bytes with the same sum. An extent
 * gets its table of sums before its second slab, and keeps it.
 *
 * Locking: tables are added under dcmfs_vm.control.
 */
#include <linux/highmem.h>
#include <linux/xxhash.h>

#include "compat.h"
#include "dcmfs.h"

u32 dcmfs_op_sum(struct dcm_lane *lane, const void *data, u32 nr)
{
	struct page *page = (struct page *)data;
	struct dcmfs_vm *vm = lane->vm->priv;
	void *p;
	u32 sum;

	while (nr--)
		page = dcmfs_chain_next(page);
	p = kmap_local_page(page);
	sum = (u32)xxh64(p, PAGE_SIZE, vm->sum_secret);
	kunmap_local(p);
	return sum;
}

void dcmfs_op_wrong(struct dcm_lane *lane, u32 gfn, u16 pages, u32 peer,
		    u32 lost)
{
	const struct dcmfs_vm *vm = lane->vm->priv;

	pr_err_ratelimited(
		"kvm-dcm: file %lu: donor %u gave wrong bytes of %u pages at page %u; %u of them no other donor has: lost\n",
		dcmfs_ino(vm->inode), peer, hweight16(pages), gfn, lost);
}

/**
 * dcmfs_sums_add() - make the table of an extent that gets its second slab
 * @vm: the VM
 * @extent: the extent
 *
 * Return: 0, -ENOSPC: more than is left of the mount's metadata=; -ENOMEM.
 * Takes control.
 */
int dcmfs_sums_add(struct dcmfs_vm *vm, u32 extent)
{
	u32 *mem;

	/* sealed pages need no sums */
	if (vm->cipher || !READ_ONCE(vm->core->extent[extent].used) ||
	    dcm_extent_sums_of(vm->core, extent))
		return 0;
	mem = dcmfs_table_alloc(vm, sizeof(*mem));
	if (IS_ERR(mem))
		return PTR_ERR(mem);
	dcm_extent_sums(vm->core, extent, mem);
	return 0;
}

/** dcmfs_sums_free() - free all tables with the VM, after its last I/O */
void dcmfs_sums_free(struct dcmfs_vm *vm)
{
	u32 e;

	for (e = 0; e < vm->core->nr_extents; e++)
		dcmfs_table_free(vm, dcm_extent_sums_of(vm->core, e),
				 sizeof(u32));
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * chunk.c - descriptors in chunks, so that unused memory has none
 *
 * A table has, for each 256 pages (1 MiB), a pointer to their descriptors
 * (4 KiB). In user space all descriptors are one mapping, which costs only the
 * pages that are touched. A kernel module has no such memory: there a VM is
 * sparse, and the pager adds a chunk when a fault finds none. Until then the
 * pointer leads to one shared chunk of zeroes, so readers need no check. That
 * chunk is constant: a write to it without a check is a fault.
 *
 *	table  [ . | . | . | . ]            256 pages each
 *	         |   \   |   /
 *	       chunk  absent                zeroes, never written
 *
 * Only a fault adds a chunk; walks over pages (discards, moves, losses) skip
 * pages without one. A chunk that holds no state any more can be taken back
 * while no lane is inside the core. A block never lies in two chunks.
 *
 * Locking: none. A chunk is added by cmpxchg, all zero, and stays while any
 * lane may read it.
 */
#include "internal.h"

static_assert(DCM_PDS_PAGES % DCM_BLOCK_MAX == 0, "a block is in one chunk");

const struct dcm_pd dcm_chunk_absent[DCM_PDS_PAGES];

#define ABSENT ((struct dcm_pd *)(uintptr_t)dcm_chunk_absent)

static u32 table_len(u64 nr_pages)
{
	return (u32)((nr_pages + DCM_PDS_PAGES - 1) >> DCM_PDS_SHIFT);
}

u64 dcm_chunk_bytes(u64 nr_pages, bool sparse)
{
	return table_len(nr_pages) * sizeof(struct dcm_pd *) +
	       (sparse ? 0 : nr_pages * sizeof(struct dcm_pd));
}

/* Allocates the table, and all descriptors unless they are added later. */
bool dcm_chunks_init(struct dcm_vm *vm, bool sparse)
{
	u32 n = table_len(vm->nr_pages), i;

	vm->chunk = vzalloc(n * sizeof(*vm->chunk));
	if (!vm->chunk)
		return false;
	if (!sparse) {
		vm->pd = vzalloc((u64)vm->nr_pages * sizeof(*vm->pd));
		if (!vm->pd)
			return false;
		atomic64_set(&vm->nr_chunks, n);
	}
	for (i = 0; i < n; i++)
		vm->chunk[i] = sparse ? ABSENT :
					&vm->pd[(u64)i << DCM_PDS_SHIFT];
	return true;
}

void dcm_chunks_exit(struct dcm_vm *vm)
{
	vfree(vm->pd);
	vfree(vm->chunk);
}

bool dcm_chunk_add(struct dcm_vm *vm, u32 gfn, void *mem)
{
	if (cmpxchg(&vm->chunk[gfn >> DCM_PDS_SHIFT], ABSENT,
		    (struct dcm_pd *)mem) != ABSENT)
		return false;
	atomic64_add(1, &vm->nr_chunks);
	return true;
}

/* Does any descriptor in the chunk hold state that must survive? */
static bool chunk_used(const struct dcm_pd *pd)
{
	u32 i;

	for (i = 0; i < DCM_PDS_PAGES; i++) {
		u32 w = pd_word(&pd[i]), nothing = PD_ORDER_MASK | PD_LANE_MASK;

		/* Only the head's state counts: ignore the others'. */
		if (i & ((1u << pd_order(w)) - 1))
			nothing |= PD_STATE_MASK;
		if (w & ~nothing)
			return true;
	}
	return false;
}

static void buffer_forget(struct dcm_vm *vm, struct dcm_buffer *b)
{
	u32 i, kept = 0;

	for (i = b->first; i < b->nr; i++)
		if (dcm_chunk_there(vm, b->gfn[i]))
			b->gfn[kept++] = b->gfn[i];
	b->nr = kept;
	b->first = 0;
}

void *dcm_chunk_remove(struct dcm_vm *vm, u32 gfn, bool used)
{
	struct dcm_pd *pd = dcm_chunk_of(vm, gfn);
	u32 i;

	if (pd == ABSENT || (!used && chunk_used(pd)))
		return NULL;
	WRITE_ONCE(vm->chunk[gfn >> DCM_PDS_SHIFT], ABSENT);
	atomic64_sub(1, &vm->nr_chunks);
	/* Buffers may still name pages in it: see fifo.c on stale hints. */
	for (i = 0; i < vm->nr_lanes; i++) {
		buffer_forget(vm, &vm->lane[i].ins[0]);
		buffer_forget(vm, &vm->lane[i].ins[1]);
		buffer_forget(vm, &vm->lane[i].victims);
	}
	return pd;
}

u64 dcm_chunk_next(const struct dcm_vm *vm, u64 gfn, u64 end)
{
	while (gfn < end && !dcm_chunk_there(vm, (u32)gfn))
		gfn = (gfn | (DCM_PDS_PAGES - 1)) + 1;
	return min(gfn, end);
}

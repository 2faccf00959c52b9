// SPDX-License-Identifier: GPL-2.0-only
/*
 * frame.c - page frames of a VM's direct memory
 *
 * Ordinary pages, on no LRU, charged to the memory cgroup of the thread that
 * faults. Each has its file and offset set (mapping, index), so that KVM's
 * quick lookup of host pages accepts it and reverse mapping works; the page
 * cache does not hold it. A mapped page's number is in its descriptor
 * (pd.frame); the pages of an unmapped block are chained through their private
 * field, and the first page's number is the core's handle.
 *
 * The reserve: memory is freed by evicting, which allocates none. But a fault
 * needs a frame before it has freed one. On a host without a free page it takes
 * one from the reserve, and the VM's thread evicts until the reserve is full
 * again. A fault that needs a page for descriptors does the same; such pages are the
 * only others that stay for long.
 *
 * A lane keeps frames that it evicts for its next fetches, up to a block's worth, which
 * saves calls of the kernel's allocator and of the cgroup's accounting. Such a frame
 * stays charged to the first thread that needed it. Frames go to the reserve first,
 * until that is full.
 *
 * Invariant: between dcmfs_frame_alloc() and _free() the VM holds one
 * reference; any other belongs to a mapping or to I/O.
 */
#include <linux/highmem.h>

#include "dcmfs.h"
#include "jitter.h"

/* No retries here: the fault path evicts and tries again. */
#define FRAME_GFP (GFP_USER | __GFP_ACCOUNT | __GFP_NORETRY | __GFP_NOWARN)

/**
 * dcmfs_frames_init() - fill the reserve
 * @vm: the VM
 *
 * Return: 0 or -ENOMEM.
 */
int dcmfs_frames_init(struct dcmfs_vm *vm)
{
	return mempool_init_page_pool(&vm->reserve, DCMFS_RESERVE, 0);
}

/** dcmfs_frames_exit() - give the reserve back; no frame is in use any more */
void dcmfs_frames_exit(struct dcmfs_vm *vm)
{
	mempool_exit(&vm->reserve);
}

/* Allocate a page; from the reserve if the host has none. */
static struct page *page_new(struct dcmfs_vm *vm)
{
	struct page *page = alloc_page(FRAME_GFP);

	if (page)
		return page;
	atomic_inc(&vm->short_of);
	page = mempool_alloc(&vm->reserve, GFP_NOWAIT | __GFP_NOWARN);
	dcmfs_kick(vm);
	return page;
}

/* Refuse a page beyond 16 TiB of host memory: the core's handle has 32 bits. */
static struct page *page_within(struct page *page)
{
	if (!page || likely(page_to_pfn(page) < DCM_NIL))
		return page;
	__free_page(page);
	return NULL;
}

/* A frame from the lane's spares, or a new one. */
static struct page *frame_new(struct dcm_lane *lane)
{
	struct dcmfs_lane *dl = dcmfs_lane_of(lane);
	struct dcmfs_vm *vm = lane_vm(lane);
	struct page *page = dl->spare;

	if (dcmfs_jitter_fails())
		return NULL;
	if (likely(page)) {
		dl->spare = dcmfs_chain_next(page);
		dl->nr_spare--;
		set_page_private(page, 0);
		return page;
	}
	page = page_within(page_new(vm));
	if (!page)
		return NULL;
	set_page_private(page, 0);
	atomic64_inc(&vm->frames);
	return page;
}

/**
 * dcmfs_frame_alloc() - allocate a frame
 * @lane: the lane
 * @zero: clear it; else its content is undefined
 *
 * Return: the page, with the VM's one reference, or %NULL when the host has
 * none and the reserve is used up: evict and try again. May sleep.
 */
struct page *dcmfs_frame_alloc(struct dcm_lane *lane, bool zero)
{
	struct page *page = frame_new(lane);

	if (page && zero)
		clear_highpage(page);
	return page;
}

/** dcmfs_frame_must() - allocate a frame; waits until there is one */
struct page *dcmfs_frame_must(struct dcm_lane *lane)
{
	struct page *page;

	while (!(page = dcmfs_frame_alloc(lane, false)))
		schedule_timeout_uninterruptible(1);
	return page;
}

/**
 * dcmfs_frame_used() - read and clear a frame's accessed and dirty marks
 * @page: mapped nowhere, locked
 * @touched: out: it was accessed
 *
 * Page tables and KVM leave these marks.
 *
 * Return: whether it was written.
 */
bool dcmfs_frame_used(struct page *page, bool *touched)
{
	struct folio *folio = dcmfs_frame_folio(page);
	bool referenced = folio_test_referenced(folio);
	bool workingset = folio_test_workingset(folio);
	bool dirty = folio_test_dirty(folio);

	/* Most marks are clear, and clearing is an atomic operation. */
	if (referenced)
		folio_clear_referenced(folio);
	if (workingset)
		folio_clear_workingset(folio);
	if (dirty)
		folio_clear_dirty(folio);
	*touched = referenced || workingset;
	return dirty;
}

/**
 * dcmfs_frame_free() - free a frame
 * @lane: the lane
 * @page: the frame
 *
 * The frame is not mapped any more. If I/O still has a reference, it is freed when that
 * is dropped.
 */
void dcmfs_frame_free(struct dcm_lane *lane, struct page *page)
{
	struct dcmfs_lane *dl = dcmfs_lane_of(lane);
	struct dcmfs_vm *vm = lane_vm(lane);
	struct folio *folio = dcmfs_frame_folio(page);
	bool touched;

	folio->mapping = NULL;
	folio->index = 0;
	set_page_private(page, 0);
	dcmfs_frame_used(page, &touched);
	if (folio_ref_count(folio) != 1) {
		atomic64_dec(&vm->frames);
		put_page(page);
	} else if (dl->nr_spare < dl->max_spare &&
		   READ_ONCE(vm->reserve.curr_nr) >= DCMFS_RESERVE) {
		set_page_private(page, (unsigned long)dl->spare);
		dl->spare = page;
		dl->nr_spare++;
	} else {
		atomic64_dec(&vm->frames);
		mempool_free(page, &vm->reserve);
	}
}

/** dcmfs_spares_free() - free a lane's spares; it is locked, or not in use */
void dcmfs_spares_free(struct dcmfs_vm *vm, struct dcmfs_lane *dl)
{
	struct page *page;

	while ((page = dl->spare)) {
		dl->spare = dcmfs_chain_next(page);
		dl->nr_spare--;
		set_page_private(page, 0);
		atomic64_dec(&vm->frames);
		mempool_free(page, &vm->reserve);
	}
}

/**
 * dcmfs_chunk_alloc() - allocate a chunk of descriptors, all zero
 * @vm: the VM
 *
 * Return: the chunk; %NULL: evict and try again; ERR_PTR(-ENOSPC): the mount's
 * metadata limit is reached. May sleep.
 */
void *dcmfs_chunk_alloc(struct dcmfs_vm *vm)
{
	struct page *page;
	int err = dcmfs_metadata_take(vm, DCM_PAGE_SIZE);

	static_assert(DCM_PDS_PAGES * sizeof(struct dcm_pd) == DCM_PAGE_SIZE);
	if (err)
		return ERR_PTR(err);
	page = dcmfs_jitter_fails() ? NULL : page_new(vm);
	if (!page) {
		dcmfs_metadata_give(vm, DCM_PAGE_SIZE);
		return NULL;
	}
	clear_page(page_address(page));
	return page_address(page);
}

/** dcmfs_chunk_free() - free a chunk of dcmfs_chunk_alloc(), or %NULL */
void dcmfs_chunk_free(struct dcmfs_vm *vm, void *chunk)
{
	if (!chunk)
		return;
	mempool_free(virt_to_page(chunk), &vm->reserve);
	dcmfs_metadata_give(vm, DCM_PAGE_SIZE);
}

/**
 * dcmfs_chain_alloc() - allocate a chain of frames
 * @lane: the lane
 * @nr: how many
 *
 * Return: the first, or %NULL.
 */
struct page *dcmfs_chain_alloc(struct dcm_lane *lane, unsigned int nr)
{
	struct page *first = NULL;
	unsigned int i;

	for (i = 0; i < nr; i++) {
		struct page *page = dcmfs_frame_alloc(lane, false);

		if (!page) {
			dcmfs_chain_free(lane, first, i);
			return NULL;
		}
		set_page_private(page, (unsigned long)first);
		first = page;
	}
	return first;
}

/** dcmfs_chain_free() - free the first @nr frames of a chain */
void dcmfs_chain_free(struct dcm_lane *lane, struct page *page, unsigned int nr)
{
	while (nr--) {
		struct page *next = dcmfs_chain_next(page);

		dcmfs_frame_free(lane, page);
		page = next;
	}
}

/**
 * dcmfs_plain_alloc() - allocate a chain of pages without a lane
 * @nr: how many
 *
 * They are not taken from the reserve, and are not counted in dcmfs_vm.frames.
 *
 * Return: the first frame, or %NULL.
 */
struct page *dcmfs_plain_alloc(unsigned int nr)
{
	struct page *first = NULL;

	if (dcmfs_jitter_fails())
		return NULL;
	while (nr--) {
		struct page *page = page_within(alloc_page(FRAME_GFP));

		if (!page) {
			dcmfs_plain_free(first);
			return NULL;
		}
		set_page_private(page, (unsigned long)first);
		first = page;
	}
	return first;
}

/** dcmfs_plain_free() - free a chain of dcmfs_plain_alloc(), or %NULL */
void dcmfs_plain_free(struct page *page)
{
	while (page) {
		struct page *next = dcmfs_chain_next(page);

		set_page_private(page, 0);
		__free_page(page);
		page = next;
	}
}

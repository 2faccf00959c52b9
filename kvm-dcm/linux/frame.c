// SPDX-License-Identifier: GPL-2.0-only
/*
 * frame.c - page frames of a VM's direct memory
 *
 * Ordinary pages, on no LRU, charged to the memory cgroup of who faults. Each
 * knows its file and offset (mapping, index), so that KVM's quick lookup of
 * host pages takes them and reverse mapping works; the page cache does not
 * hold them. A mapped page's number is in its descriptor (pd.frame); the
 * pages of a block that is out of the guest are chained through their private
 * field, and the first one's number is the handle the core keeps.
 *
 * The reserve: memory is freed by evicting, and evicting needs none. But a
 * fault needs a frame before it has freed one; on a host without a free page
 * it takes one of these, and the VM's thread evicts until they are back. So
 * does one that finds no descriptors; theirs are the only pages that are here
 * for long and are no frames.
 *
 * What a lane evicts it keeps for what it fetches next, up to a block's worth: the
 * kernel's allocator and the cgroup's books see only the difference. Who paid for
 * such a frame is the one who needed it first; the reserve is filled before.
 *
 * Invariant: between dcmfs_frame_alloc() and _free() the VM holds one
 * reference; every other is a mapping's or somebody's I/O.
 */
#include <linux/highmem.h>

#include "dcmfs.h"
#include "jitter.h"

/* Patience is the fault path's: it evicts and comes again. */
#define FRAME_GFP (GFP_USER | __GFP_ACCOUNT | __GFP_NORETRY | __GFP_NOWARN)

/**
 * dcmfs_frames_init() - fill the reserve
 * @vm: whose
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

/* Any page; of the reserve when the host has none. */
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

/* Out of a lane's spares, or new. */
static struct page *frame_new(struct dcm_lane *lane)
{
	struct dcmfs_lane *home = lane_home(lane);
	struct dcmfs_vm *vm = lane_vm(lane);
	struct page *page = home->spare;

	if (dcmfs_jitter_fails())
		return NULL;
	if (likely(page)) {
		home->spare = dcmfs_chain_next(page);
		home->nr_spare--;
		set_page_private(page, 0);
		return page;
	}
	page = page_new(vm);
	if (!page)
		return NULL;
	/* A frame's number has 32 bits: 16 TiB of host memory. */
	if (unlikely(page_to_pfn(page) >= DCM_NIL)) {
		__free_page(page);
		return NULL;
	}
	set_page_private(page, 0);
	atomic64_inc(&vm->frames);
	return page;
}

/**
 * dcmfs_frame_alloc() - one frame
 * @lane: whose
 * @zero: all zero, else of any content
 *
 * Return: the page, with the VM's one reference, or %NULL when the host has
 * none and the reserve is used up: evict and come again. May sleep.
 */
struct page *dcmfs_frame_alloc(struct dcm_lane *lane, bool zero)
{
	struct page *page = frame_new(lane);

	if (page && zero)
		clear_highpage(page);
	return page;
}

/** dcmfs_frame_must() - one frame, as long as it takes */
struct page *dcmfs_frame_must(struct dcm_lane *lane)
{
	struct page *page;

	while (!(page = dcmfs_frame_alloc(lane, false)))
		schedule_timeout_uninterruptible(1);
	return page;
}

/**
 * dcmfs_frame_used() - what page tables and KVM have left on a frame, cleared
 * @page: mapped nowhere, locked
 * @touched: out: it was accessed
 *
 * Return: it was written.
 */
bool dcmfs_frame_used(struct page *page, bool *touched)
{
	struct folio *folio = dcmfs_frame_folio(page);
	bool referenced = folio_test_referenced(folio);
	bool workingset = folio_test_workingset(folio);
	bool dirty = folio_test_dirty(folio);

	/* Mostly there is little to clear, and each is an atomic operation. */
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
 * dcmfs_frame_free() - the VM lets a frame go
 * @lane: by whom
 * @page: the frame
 *
 * Not mapped any more. Somebody's I/O may still hold it: it is freed after.
 */
void dcmfs_frame_free(struct dcm_lane *lane, struct page *page)
{
	struct dcmfs_lane *home = lane_home(lane);
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
	} else if (home->nr_spare < home->max_spare &&
		   READ_ONCE(vm->reserve.curr_nr) >= DCMFS_RESERVE) {
		set_page_private(page, (unsigned long)home->spare);
		home->spare = page;
		home->nr_spare++;
	} else {
		atomic64_dec(&vm->frames);
		mempool_free(page, &vm->reserve);
	}
}

/** dcmfs_spares_free() - what a lane has kept; it is held, or in use no more */
void dcmfs_spares_free(struct dcmfs_vm *vm, struct dcmfs_lane *home)
{
	struct page *page;

	while ((page = home->spare)) {
		home->spare = dcmfs_chain_next(page);
		home->nr_spare--;
		set_page_private(page, 0);
		atomic64_dec(&vm->frames);
		mempool_free(page, &vm->reserve);
	}
}

/**
 * dcmfs_chunk_alloc() - room for descriptors, all zero
 * @vm: whose
 *
 * Return: it; %NULL: evict and come again; ERR_PTR(-ENOSPC): the mount may have no
 * more. May sleep.
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

/** dcmfs_chunk_free() - the end of what dcmfs_chunk_alloc() gave; or of %NULL */
void dcmfs_chunk_free(struct dcmfs_vm *vm, void *chunk)
{
	if (!chunk)
		return;
	mempool_free(virt_to_page(chunk), &vm->reserve);
	dcmfs_metadata_give(vm, DCM_PAGE_SIZE);
}

/**
 * dcmfs_chain_alloc() - frames, each leading to the next
 * @lane: whose
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

/** dcmfs_chain_free() - let the first @nr frames of a chain go */
void dcmfs_chain_free(struct dcm_lane *lane, struct page *page, unsigned int nr)
{
	while (nr--) {
		struct page *next = dcmfs_chain_next(page);

		dcmfs_frame_free(lane, page);
		page = next;
	}
}

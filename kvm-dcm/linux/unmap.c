// SPDX-License-Identifier: GPL-2.0-only
/*
 * unmap.c - the core's ops that take pages out of page tables
 *
 * Pages are unmapped from all page tables at once: the file's reverse map covers
 * every process, and KVM is told by its MMU notifier.
 *
 * Races with faults: a fault gets its page locked, and the page stays locked until it
 * is in the page table. Unmapping first tries to lock all pages of a block, then unmaps
 * them, then checks reference counts. One more reference than the VM's is of I/O, or of
 * an access that just looked the page up: then the block stays, with the accessed and
 * dirty marks on its pages, and faults map it again. Discarding waits for the locks;
 * a thread that has looked the page up keeps it, but it is no longer the file's.
 */
#include <linux/pagemap.h>

#include "dcmfs.h"
#include "jitter.h"

static void frames_unlock(const struct dcm_pd *pd, unsigned int nr)
{
	while (nr--)
		folio_unlock(dcmfs_frame_at(&pd[nr]));
}

/* Lock all pages of a block if only mappings use them; else lock none. */
static bool frames_lock_idle(const struct dcm_pd *pd, unsigned int nr)
{
	unsigned int i;

	for (i = 0; i < nr; i++) {
		struct folio *folio = dcmfs_frame_at(&pd[i]);

		if (!folio_trylock(folio))
			break;
		if (folio_ref_count(folio) != 1 + folio_mapcount(folio)) {
			folio_unlock(folio);
			break;
		}
	}
	if (i == nr)
		return true;
	frames_unlock(pd, i);
	return false;
}

static void pages_unmap(struct dcm_lane *lane, u32 gfn, unsigned int nr)
{
	unmap_mapping_pages(lane_vm(lane)->inode->i_mapping, gfn, nr, false);
}

/* Take all of a block's pages, unmapped and locked; or none, if one is in use. */
static void frames_collect(struct dcm_lane *lane, struct dcm_unmap *v)
{
	const struct dcm_pd *pd = pd_of(lane->vm, v->gfn);
	unsigned int nr = 1u << v->order, i;
	struct page *next = NULL;

	for (i = 0; i < nr; i++)
		if (folio_ref_count(dcmfs_frame_at(&pd[i])) != 1)
			v->err = -EBUSY;
	for (i = nr; i-- && !v->err;) {
		struct page *page = pfn_to_page(pd[i].frame);
		bool touched;

		if (dcmfs_frame_used(page, &touched))
			v->dirty |= (u16)(1u << i);
		if (touched)
			v->touched |= (u16)(1u << i);
		v->observed |= (u16)(1u << i);
		set_page_private(page, (unsigned long)next);
		next = page;
	}
	frames_unlock(pd, nr);
	if (v->err)
		return;
	if (v->drop && !v->dirty)
		dcmfs_chain_free(lane, next, nr);
	else
		v->frame = (u32)page_to_pfn(next);
}

/** dcmfs_op_unmap() - take blocks out of all page tables: dcm_ops.unmap */
void dcmfs_op_unmap(struct dcm_lane *lane, struct dcm_unmap *v, unsigned int nr)
{
	unsigned int i, from, end;

	for (i = 0; i < nr; i++)
		if ((dcmfs_huge_there(lane_vm(lane), v[i].gfn) &&
		     dcmfs_huge_apart(lane, v[i].gfn, 1u << v[i].order)) ||
		    !frames_lock_idle(pd_of(lane->vm, v[i].gfn),
				      1u << v[i].order))
			v[i].err = -EBUSY;
	dcmfs_jitter(DCMFS_AT_UNMAP);
	/* Adjacent blocks together: one walk, one flush, one notification. */
	for (i = 0; i < nr; i = end) {
		u32 pages = 1u << v[i].order;

		from = i;
		end = i + 1;
		if (v[i].err)
			continue;
		while (end < nr && !v[end].err &&
		       v[end].gfn == v[from].gfn + pages)
			pages += 1u << v[end++].order;
		pages_unmap(lane, v[from].gfn, pages);
	}
	dcmfs_jitter(DCMFS_AT_UNMAPPED);
	for (i = 0; i < nr; i++)
		if (!v[i].err)
			frames_collect(lane, &v[i]);
}

/* Discard frames of a block. A thread that has just looked one up keeps the page. */
static void pages_discard(struct dcm_lane *lane, u32 gfn, u32 nr)
{
	u32 i;

	for (i = 0; i < nr; i++)
		lock_page(pfn_to_page(pd_of(lane->vm, gfn + i)->frame));
	dcmfs_jitter(DCMFS_AT_DISCARD);
	pages_unmap(lane, gfn, nr);
	for (i = 0; i < nr; i++) {
		struct page *page =
			pfn_to_page(pd_of(lane->vm, gfn + i)->frame);

		/* For threads that wait to write: dcmfs_mkwrite() */
		dcmfs_frame_folio(page)->mapping = NULL;
		unlock_page(page);
		pd_of(lane->vm, gfn + i)->frame = DCM_NIL;
		dcmfs_frame_free(lane, page);
	}
}

/**
 * dcmfs_op_discard() - take pages out and free them: dcm_ops.discard
 * @lane: the lane that has them
 * @gfn: the first, all of them in frames
 * @nr: how many
 *
 * No more pages than a block has are locked at a time.
 */
void dcmfs_op_discard(struct dcm_lane *lane, u32 gfn, u32 nr)
{
	u32 end = gfn + nr, n;

	for (; gfn < end; gfn += n) {
		n = dcmfs_huge_discard(lane, gfn, end - gfn);
		if (n)
			continue;
		n = dcmfs_huge_there(lane_vm(lane), gfn) ?
			    1 :
			    min(end - gfn, DCM_BLOCK_MAX - gfn % DCM_BLOCK_MAX);
		pages_discard(lane, gfn, n);
	}
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * huge.c - spans: an aligned 2 MiB of a file in one huge page (a folio of 512 pages)
 *
 * A guest that fits in its budget should run as fast as on ordinary memory of the
 * host, which would come in huge pages: one fault and one KVM exit for 512 pages, and
 * page tables of one level less in both. So a first touch brings in the whole aligned
 * 2 MiB where the kernel would do so (THP), while the budget has room (core/fresh.c).
 * The papers have no such thing.
 *
 *	first touch --> whole: one folio of 512 pages; in each process one entry
 *	                (PMD), and so one entry in KVM
 *	whole --> split: a block of it has to leave, or a part is discarded. The
 *	                bytes are copied to 512 frames; the folio is freed
 *	whole --> gone: all of it is discarded
 *
 * The kernel exports no function that splits a folio in place. Memory that was split
 * stays so until it is discarded, as a module can't remove the page table.
 *
 * The entry is made as a driver's for device memory is (vmf_insert_pfn_pmd()): in
 * mappings like these the kernel drops no reference when it removes a huge entry. So
 * the entry holds no reference, and no mark tells which pages were written: all of a
 * span counts as dirty. That is right, as it is new, and no donor has any of it. Pages
 * that are all zero when they leave need no donor. A process whose mapping is not
 * aligned gets single entries for the same pages.
 *
 * A span is split to free memory, but that takes 2 MiB. So a file that has spans keeps
 * 512 frames in a spare, without which no new span is made. On a host without a free
 * page one span can still be split then, and evicting its pages frees memory. The
 * frames are charged to the cgroup that the span was charged to.
 *
 * While I/O uses a part of a span it can't be split. If another part is discarded
 * then, the span is no longer whole (@private < 512 pages): it gets single entries
 * only, and is freed with its last page, or split later.
 *
 * Locking: the folio's lock is held to map any page of it, to split it and to discard.
 * A split changes the descriptors of all its pages from the folio to frames, even of
 * blocks that other lanes have BUSY. It does so under huge_lock, under which
 * dcmfs_huge_page() takes its reference. A descriptor that refers to a frame does not
 * change while the lane has the block.
 */
#include <linux/highmem.h>
#include <linux/memcontrol.h>
#include <linux/pagemap.h>
#include <linux/sched/mm.h>

#include "compat.h"
#include "dcmfs.h"
#include "jitter.h"

/* Let the kernel compact memory, once: a span that is not made now never will be. */
#define HUGE_GFP                                                          \
	(GFP_USER | __GFP_ACCOUNT | __GFP_ZERO | __GFP_NOMEMALLOC |       \
	 __GFP_NORETRY | __GFP_NOWARN)

static_assert(DCMFS_SPAN_PAGES == 1u << DCM_HABIT_SHIFT);

static u32 spans_of(const struct dcmfs_vm *vm)
{
	return dcmfs_span_of((u32)(vm->core->nr_pages - 1)) + 1;
}

static spinlock_t *huge_lock(struct dcmfs_vm *vm, u32 gfn)
{
	return &vm->huge_lock[dcmfs_span_of(gfn) % DCMFS_HUGE_LOCKS];
}

/* How many pages of the folio descriptors refer to. Under the folio's lock. */
static u32 huge_left(const struct folio *folio)
{
	return (u32)(uintptr_t)folio->private;
}

/* Does a page's descriptor refer to the folio? Under the folio's lock. */
static bool huge_has(const struct dcmfs_vm *vm, struct folio *folio, u32 gfn)
{
	return pd_of(vm->core, gfn)->frame ==
	       folio_pfn(folio) + (gfn - folio->index);
}

static u32 huge_page_gfn(struct folio *folio, const struct page *page)
{
	return (u32)folio->index + (u32)folio_page_idx(folio, page);
}

/**
 * dcmfs_huge_init() - set up a file without spans
 * @vm: the VM, with its core
 *
 * Return: 0, -ENOMEM, or -ENOSPC: more than is left of the mount's metadata=.
 */
int dcmfs_huge_init(struct dcmfs_vm *vm)
{
	u64 bytes = BITS_TO_LONGS(spans_of(vm)) * sizeof(long);
	int err = dcmfs_metadata_add(vm, bytes);
	u32 i;

	if (err)
		return err;
	for (i = 0; i < DCMFS_HUGE_LOCKS; i++)
		spin_lock_init(&vm->huge_lock[i]);
	vm->huge = kvzalloc(bytes, GFP_KERNEL);
	return vm->huge ? 0 : -ENOMEM;
}

/** dcmfs_huge_exit() - free the spare and the bitmap; there is no span any more */
void dcmfs_huge_exit(struct dcmfs_vm *vm)
{
	dcmfs_plain_free(vm->huge_spare);
	kvfree(vm->huge);
}

/** dcmfs_huge_count() - how many spans have a folio */
u32 dcmfs_huge_count(const struct dcmfs_vm *vm)
{
	return (u32)bitmap_weight(vm->huge, spans_of(vm));
}

/**
 * dcmfs_huge_page() - look a page up in its span
 * @vm: the VM
 * @gfn: a page of a mapped block that the caller's lane has BUSY
 *
 * Return: the span's page, with a reference; %NULL: the page has a frame of its own,
 * and keeps it.
 */
struct page *dcmfs_huge_page(struct dcmfs_vm *vm, u32 gfn)
{
	struct page *page;

	if (likely(!dcmfs_huge_there(vm, gfn)))
		return NULL;
	spin_lock(huge_lock(vm, gfn));
	page = pfn_to_page(pd_of(vm->core, gfn)->frame);
	if (PageCompound(page))
		get_page(page);
	else
		page = NULL;
	spin_unlock(huge_lock(vm, gfn));
	return page;
}

/* Must accesses to a part of the span wait? The caller has a lane. */
static bool span_frozen(const struct dcmfs_vm *vm, u32 gfn)
{
	u32 i;

	for (i = 0; i < DCMFS_SPAN_PAGES; i += DCM_BLOCK_MAX)
		if (dcmfs_frozen(vm, gfn + i))
			return true;
	return false;
}

/* Has the file its spare, to split a span when the host has no frames? Else make it. */
static bool spare_there(struct dcmfs_vm *vm)
{
	struct page *spare;

	if (READ_ONCE(vm->huge_spare))
		return true;
	spare = dcmfs_plain_alloc(DCMFS_SPAN_PAGES);
	if (!spare)
		return false;
	if (cmpxchg(&vm->huge_spare, NULL, spare))
		dcmfs_plain_free(spare);
	return true;
}

/**
 * dcmfs_huge_make() - make a new span, all zero
 * @lane: the lane
 * @gfn: its first page; its blocks are BUSY
 *
 * Return: 0, or -ENOMEM: the host has no huge page, or a part of the span is frozen.
 */
int dcmfs_huge_make(struct dcm_lane *lane, u32 gfn)
{
	struct dcmfs_vm *vm = lane_vm(lane);
	struct folio *folio;
	unsigned long pfn;
	u32 i;

	if (span_frozen(vm, gfn) || dcmfs_jitter_fails() || !spare_there(vm))
		return -ENOMEM;
	folio = folio_alloc(HUGE_GFP, PMD_ORDER);
	if (!folio)
		return -ENOMEM;
	pfn = folio_pfn(folio);
	if (unlikely(pfn + DCMFS_SPAN_PAGES > DCM_NIL)) {
		folio_put(folio);
		return -ENOMEM;
	}
	folio->mapping = vm->inode->i_mapping;
	folio->index = gfn;
	folio->private = (void *)(uintptr_t)DCMFS_SPAN_PAGES;
	atomic64_add(DCMFS_SPAN_PAGES, &vm->frames);
	for (i = 0; i < DCMFS_SPAN_PAGES; i++)
		pd_of(vm->core, gfn + i)->frame = (u32)(pfn + i);
	set_bit(dcmfs_span_of(gfn), vm->huge);
	return 0;
}

/* Free a folio, locked, to which no descriptor refers any more. */
static void huge_free(struct dcmfs_vm *vm, struct folio *folio)
{
	clear_bit(dcmfs_span_of((u32)folio->index), vm->huge);
	atomic64_sub(DCMFS_SPAN_PAGES, &vm->frames);
	/* For threads that wait to write: dcmfs_mkwrite() */
	folio->mapping = NULL;
	folio->index = 0;
	folio->private = NULL;
	folio_put(folio);
}

/*
 * Descriptors refer to @nr pages of the folio less: free it with the last one. It is
 * locked, or the VM ends.
 */
static void huge_less(struct dcmfs_vm *vm, struct folio *folio, u32 nr)
{
	u32 left = huge_left(folio) - nr;

	folio->private = (void *)(uintptr_t)left;
	if (!left)
		huge_free(vm, folio);
}

static void huge_unmap(struct dcmfs_vm *vm, const struct folio *folio)
{
	unmap_mapping_pages(vm->inode->i_mapping, folio->index,
			    DCMFS_SPAN_PAGES, false);
}

/* Is the page all zero, so that most likely it was never written? */
static bool page_is_zero(struct page *page)
{
	void *p = kmap_local_page(page);
	bool zero = !memchr_inv(p, 0, PAGE_SIZE);

	kunmap_local(p);
	return zero;
}

/* Copy pages that descriptors refer to into frames. Returns the frames left over. */
static struct page *pages_copy(struct dcmfs_vm *vm, struct folio *folio,
			       struct page *to)
{
	u32 gfn = (u32)folio->index, i;

	for (i = 0; i < DCMFS_SPAN_PAGES; i++) {
		struct page *from = folio_page(folio, i);

		if (!huge_has(vm, folio, gfn + i))
			continue;
		copy_highpage(to, from);
		if (!page_is_zero(from))
			folio_set_referenced(dcmfs_frame_folio(to));
		to = dcmfs_chain_next(to);
	}
	return to;
}

/* Make descriptors refer to the frames in place of the folio's pages. */
static void pages_replace(struct dcm_lane *lane, struct folio *folio,
			  struct page *at)
{
	struct dcmfs_vm *vm = lane_vm(lane);
	u32 gfn = (u32)folio->index, i;

	spin_lock(huge_lock(vm, gfn));
	for (i = 0; i < DCMFS_SPAN_PAGES; i++) {
		struct page *next;

		if (!huge_has(vm, folio, gfn + i))
			continue;
		next = dcmfs_chain_next(at);
		set_page_private(at, 0);
		dcmfs_frame_put_under(lane, gfn + i, at);
		at = next;
	}
	spin_unlock(huge_lock(vm, gfn));
}

/* Frames to split a span: new ones, charged as the span is; or the spare; or %NULL. */
static struct page *frames_for(struct dcmfs_vm *vm, struct folio *folio)
{
	struct mem_cgroup *group, *was;
	struct page *frames;

	rcu_read_lock();
	group = folio_memcg(folio);
	if (!mem_cgroup_tryget(group))
		group = NULL;
	rcu_read_unlock();
	was = set_active_memcg(group);
	frames = dcmfs_plain_alloc(DCMFS_SPAN_PAGES);
	set_active_memcg(was);
	mem_cgroup_put(group);
	return frames ? frames : xchg(&vm->huge_spare, NULL);
}

/* Split a span. Its folio is locked, with a reference of the caller's. */
static int huge_split(struct dcm_lane *lane, struct folio *folio)
{
	struct dcmfs_vm *vm = lane_vm(lane);
	struct page *copies, *over;

	if (folio_ref_count(folio) != 2 + folio_mapcount(folio))
		return -EBUSY;
	copies = frames_for(vm, folio);
	if (!copies)
		return -EBUSY;
	dcmfs_jitter(DCMFS_AT_UNMAP);
	huge_unmap(vm, folio);
	dcmfs_jitter(DCMFS_AT_UNMAPPED);
	/* Another reference: of I/O, or of an access that just looked a page up. */
	if (folio_ref_count(folio) != 2) {
		if (cmpxchg(&vm->huge_spare, NULL, copies))
			dcmfs_plain_free(copies);
		return -EBUSY;
	}
	over = pages_copy(vm, folio, copies);
	atomic64_add(huge_left(folio), &vm->frames);
	pages_replace(lane, folio, copies);
	dcmfs_plain_free(over);
	huge_free(vm, folio);
	atomic64_inc(&vm->huge_split);
	return 0;
}

/**
 * dcmfs_huge_apart() - split a span, so that a block of it can leave
 * @lane: the lane
 * @gfn: the block's first page; it is BUSY
 * @nr: its pages; some may have frames of their own (if the span is not whole)
 *
 * Return: 0: all pages have frames of their own now; -EBUSY: I/O uses the span, or it
 * is just being mapped, or the host has no memory.
 */
int dcmfs_huge_apart(struct dcm_lane *lane, u32 gfn, u32 nr)
{
	struct page *page = NULL;
	struct folio *folio;
	int err = -EBUSY;

	while (nr && !page)
		page = dcmfs_huge_page(lane_vm(lane), gfn + --nr);
	if (!page)
		return 0;
	folio = page_folio(page);
	if (folio_trylock(folio)) {
		/* No mapping: another lane has split it meanwhile. */
		err = folio->mapping ? huge_split(lane, folio) : 0;
		folio_unlock(folio);
	}
	folio_put(folio);
	return err;
}

/* How many pages in a row from @gfn, at most @most, are in this folio. */
static u32 pages_of(struct dcmfs_vm *vm, struct folio *folio, u32 gfn, u32 most)
{
	u32 end = (u32)folio->index + DCMFS_SPAN_PAGES, n = 0;

	while (n < most && gfn + n < end && huge_has(vm, folio, gfn + n))
		n++;
	return n;
}

/* Take these pages out of a span that can't be split: it is no longer whole. */
static void pages_leave(struct dcmfs_vm *vm, struct folio *folio, u32 gfn,
			u32 nr)
{
	u32 i;

	huge_unmap(vm, folio);
	spin_lock(huge_lock(vm, gfn));
	for (i = 0; i < nr; i++)
		pd_of(vm->core, gfn + i)->frame = DCM_NIL;
	spin_unlock(huge_lock(vm, gfn));
	huge_less(vm, folio, nr);
}

/**
 * dcmfs_huge_discard() - discard pages of a span
 * @lane: the lane
 * @gfn: the first page; its block and the following ones are BUSY
 * @most: how many pages should be discarded
 *
 * Return: how many were; 0: the first page has a frame of its own. May sleep.
 */
u32 dcmfs_huge_discard(struct dcm_lane *lane, u32 gfn, u32 most)
{
	struct dcmfs_vm *vm = lane_vm(lane);
	struct page *page = dcmfs_huge_page(vm, gfn);
	struct folio *folio;
	u32 nr = 0;

	if (likely(!page))
		return 0;
	folio = page_folio(page);
	folio_lock(folio);
	dcmfs_jitter(DCMFS_AT_DISCARD);
	if (folio->mapping) {
		nr = pages_of(vm, folio, gfn, most);
		if (nr < huge_left(folio) && !huge_split(lane, folio))
			nr = 0;
		else
			pages_leave(vm, folio, gfn, nr);
	}
	folio_unlock(folio);
	folio_put(folio);
	return nr;
}

/** dcmfs_huge_drop() - drop one page of a span, as the VM ends */
void dcmfs_huge_drop(struct dcmfs_vm *vm, struct page *page)
{
	huge_less(vm, page_folio(page), 1);
}

/**
 * dcmfs_huge_fits() - may a fault be answered with a huge entry?
 * @vmf: the fault
 *
 * Return: true if its mapping has all of the 2 MiB, at an aligned address.
 */
bool dcmfs_huge_fits(const struct vm_fault *vmf)
{
	const struct vm_area_struct *vma = vmf->vma;
	unsigned long start = vmf->address & PMD_MASK;

	return start >= vma->vm_start && start + PMD_SIZE <= vma->vm_end &&
	       IS_ALIGNED((vma->vm_start >> PAGE_SHIFT) - vma->vm_pgoff,
			  DCMFS_SPAN_PAGES);
}

/**
 * dcmfs_huge_map() - answer a fault with a huge entry
 * @vmf: the fault; its mapping fits
 * @page: a page of a span, locked
 *
 * Return: %VM_FAULT_FALLBACK: the span is not whole, or beyond the file's end.
 */
vm_fault_t dcmfs_huge_map(struct vm_fault *vmf, struct page *page)
{
	struct folio *folio = page_folio(page);
	loff_t size = i_size_read(file_inode(vmf->vma->vm_file));
	pmd_t there = pmdp_get_lockless(vmf->pmd);

	/* There is a page table by now, made for earlier pages of this span. */
	if (!pmd_none(there) && !pmd_leaf(there))
		return VM_FAULT_FALLBACK;
	if (huge_left(folio) != DCMFS_SPAN_PAGES ||
	    (folio->index + DCMFS_SPAN_PAGES) << PAGE_SHIFT > size)
		return VM_FAULT_FALLBACK;
	return dcmfs_insert_pmd(vmf, folio_pfn(folio),
				vmf->vma->vm_flags & VM_WRITE);
}

/**
 * dcmfs_huge_map_some() - answer a fault with single entries
 * @vmf: the fault
 * @page: its page, of a span, locked
 *
 * Also maps the span's pages that follow it in the same aligned 64 KiB.
 */
vm_fault_t dcmfs_huge_map_some(struct vm_fault *vmf, struct page *page)
{
	const struct vm_area_struct *vma = vmf->vma;
	struct folio *folio = page_folio(page);
	struct dcmfs_vm *vm = dcmfs_vm_of(file_inode(vma->vm_file));
	u32 gfn = huge_page_gfn(folio, page), i;
	u32 first = gfn & ~(DCM_BLOCK_MAX - 1);
	u32 n = pages_of(vm, folio, gfn, first + DCM_BLOCK_MAX - gfn);
	loff_t pages = i_size_read(file_inode(vma->vm_file)) >> PAGE_SHIFT;
	unsigned long addr = vmf->address & PAGE_MASK;
	int err = 0;

	for (i = 0; i < n && gfn + i < pages && addr < vma->vm_end; i++) {
		int one = vm_insert_page(vmf->vma, addr,
					 folio_page(folio,
						    gfn + i - folio->index));

		if (!i)
			err = one;
		addr += PAGE_SIZE;
	}
	return err && err != -EBUSY ? vmf_error(err) : VM_FAULT_NOPAGE;
}

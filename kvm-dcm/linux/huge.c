// SPDX-License-Identifier: GPL-2.0-only
/*
 * huge.c - 2 MiB of memory in one page of the host's: a span
 *
 * A guest that fits its budget should run as on the host's own memory, which would
 * come in huge pages: one fault and one KVM exit for 512 pages, and page tables of
 * one level less in both. So a first touch brings in the whole aligned 2 MiB where
 * the kernel would do so (THP), while the budget has room (core/fresh.c). The
 * papers have no such thing.
 *
 *	first touch --> whole: one folio of 512 pages, one entry (PMD) each
 *	                process, and so one of KVM's
 *	whole --> apart: a block of it is to leave, or a part is discarded. The
 *	                bytes are copied to 512 frames; the folio is freed
 *	whole --> gone: all of it is discarded
 *
 * The kernel exports nothing to take a folio apart in place. Memory of a folio that was
 * taken apart stays so until it is discarded, as a module can't remove the page table.
 *
 * The entry is made as a driver's for device memory is (vmf_insert_pfn_pmd()): in
 * mappings like these the kernel drops no reference when it drops a huge entry. So
 * such an entry counts for nothing, no mark says what was written, and all of a
 * span is dirty: it is new, and no donor has any of it. Pages that are zero when
 * they leave cost no donor anything. A process whose mapping is not aligned gets
 * single entries of the same pages.
 *
 * A span is taken apart to free memory, and needs 2 MiB for it. So a file that has
 * spans keeps as many frames in a spare, without which no new span is made; on a
 * host without a free page one span can still be taken apart, and evicting its
 * pages frees memory. The frames are charged to the cgroup that the span was.
 *
 * A part of a span that I/O uses can't be copied. If another part is discarded it
 * is no longer whole (@private < 512 pages), gets single entries only, and is freed
 * with its last page, or taken apart later.
 *
 * Locking: the folio's lock is held to map any page of it, to take it apart and to
 * discard. A page's descriptor changes from the folio to a frame under huge_lock,
 * though another lane has the block: dcmfs_huge_page() takes its reference under
 * that. A block's own lane may otherwise rely on what it found.
 */
#include <linux/highmem.h>
#include <linux/memcontrol.h>
#include <linux/pagemap.h>
#include <linux/sched/mm.h>

#include "compat.h"
#include "dcmfs.h"
#include "jitter.h"

/* The kernel may make room by moving pages, once: a span that is missed stays so. */
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

/* Pages of the folio that descriptors refer to. Under its lock. */
static u32 huge_left(const struct folio *folio)
{
	return (u32)(uintptr_t)folio->private;
}

/* Does a page's descriptor refer to the folio? Under its lock. */
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
 * dcmfs_huge_init() - a file has no spans yet
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

/** dcmfs_huge_exit() - the file has no spans any more */
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
 * dcmfs_huge_page() - the page of a span, if a page here is one
 * @vm: the VM
 * @gfn: a page of a mapped block that the caller's lane has
 *
 * Return: it, with a reference; %NULL: it is a frame of its own, and stays one.
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

/* Whether accesses to a part of the span must wait. The caller has a lane. */
static bool span_frozen(const struct dcmfs_vm *vm, u32 gfn)
{
	u32 i;

	for (i = 0; i < DCMFS_SPAN_PAGES; i += DCM_BLOCK_MAX)
		if (dcmfs_frozen(vm, gfn + i))
			return true;
	return false;
}

/* Frames to take a span apart when the host has none. */
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
 * dcmfs_huge_make() - a new span, all zero
 * @lane: the lane
 * @gfn: its first page; its blocks are BUSY
 *
 * Return: 0, or -ENOMEM: the host has none, or a part of it is frozen.
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

/* No descriptor refers to it any more. It is locked. */
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

/* Descriptors refer to @nr pages less of it. It is locked, or the VM ends. */
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

/* Whether a page has never been written, most likely. */
static bool page_is_zero(struct page *page)
{
	void *p = kmap_local_page(page);
	bool zero = !memchr_inv(p, 0, PAGE_SIZE);

	kunmap_local(p);
	return zero;
}

/* Copy what descriptors refer to into frames. Returns the frames left over. */
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

/* Descriptors refer to the frames from now on. */
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

/* Frames to take a span apart, charged as the span is; the spare; or %NULL. */
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

/* Take a span apart. It is locked, with the caller's reference. */
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
	/* I/O, or an access that just looked a page up. */
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
 * dcmfs_huge_apart() - take a span apart, so that a block of it can leave
 * @lane: the lane
 * @gfn: the block's first page; it is BUSY
 * @nr: its pages, some of which may be frames of their own (a span that is not whole)
 *
 * Return: 0: all are frames of their own; -EBUSY: I/O uses the span, or it is just
 * being mapped, or the host has no memory.
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
		/* Another lane may have been faster. */
		err = folio->mapping ? huge_split(lane, folio) : 0;
		folio_unlock(folio);
	}
	folio_put(folio);
	return err;
}

/* How many of @most pages from @gfn are this folio's, one after another. */
static u32 pages_of(struct dcmfs_vm *vm, struct folio *folio, u32 gfn, u32 most)
{
	u32 end = (u32)folio->index + DCMFS_SPAN_PAGES, n = 0;

	while (n < most && gfn + n < end && huge_has(vm, folio, gfn + n))
		n++;
	return n;
}

/* It can't be taken apart: these pages leave it, and it is no longer whole. */
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
 * dcmfs_huge_discard() - discard pages that are a span's
 * @lane: the lane
 * @gfn: the first; its block and those after it are BUSY
 * @most: how many are to be discarded
 *
 * Return: how many were; 0: the first is a frame of its own. May sleep.
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

/** dcmfs_huge_drop() - the VM ends: one page of a span less */
void dcmfs_huge_drop(struct dcmfs_vm *vm, struct page *page)
{
	huge_less(vm, page_folio(page), 1);
}

/**
 * dcmfs_huge_fits() - may a fault be answered with a huge entry?
 * @vmf: the fault
 *
 * Return: whether its mapping has all of the 2 MiB, at an aligned place.
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

	/* A page table, made since the kernel looked: for what was here before. */
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
 * The pages around it get entries as well, as those of a block do.
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

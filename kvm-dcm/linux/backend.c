// SPDX-License-Identifier: GPL-2.0-only
/*
 * backend.c - the core's ops in the kernel: map blocks in page tables
 *
 * A block is "mapped" for the core when its frames may be in page tables. They
 * get there lazily: the faulting thread maps its page, and the rest of the
 * block around it in the same page tables. Other processes that map the file,
 * and KVM, map the page at a fault of their own, which costs no I/O (reveal).
 * unmap.c takes frames out of all page tables.
 *
 * When a mapping is removed, the kernel marks the page as touched or written: from
 * accessed and dirty bits of page tables, and of KVM's own entries. So pages are mapped
 * writable and not young from the start. No first write faults (except in a VMM:
 * dcmfs_vm_guest_ops), and nothing is guessed: a page that the core predicts to be
 * written (its writable mask) is dirty here only if it was written.
 */
#include <linux/delay.h>
#include <linux/highmem.h>
#include <linux/pagemap.h>
#include <linux/sched/signal.h>

#include "../core/reuse.h"
#include "compat.h"
#include "dcmfs.h"
#include "jitter.h"

/* Dirtying a page only sets PG_dirty: there is no page cache to account for. */
const struct address_space_operations dcmfs_aops = {
	.dirty_folio = noop_dirty_folio,
};

static struct page *page_of(const struct dcm_lane *lane, u32 gfn)
{
	return pfn_to_page(pd_of(lane->vm, gfn)->frame);
}

/** dcmfs_frame_put_under() - make @page the frame of @gfn */
void dcmfs_frame_put_under(struct dcm_lane *lane, u32 gfn, struct page *page)
{
	struct folio *folio = dcmfs_frame_folio(page);

	folio->mapping = lane_vm(lane)->inode->i_mapping;
	folio->index = gfn;
	pd_of(lane->vm, gfn)->frame = (u32)page_to_pfn(page);
}

/* Lock the page for the access that this lane serves, if that needs it. */
static void page_hand_over(struct dcm_lane *lane, u32 gfn, struct page *page)
{
	struct dcmfs_access *a = dcmfs_lane_of(lane)->access;
	struct folio *folio;

	if (!a || !a->want || a->gfn != gfn || a->page)
		return;
	folio = page_folio(page);
	folio_get(folio);
	if (folio_trylock(folio))
		a->page = page;
	else if (!a->busy)
		a->busy = page;
	else
		put_page(page);
}

/*
 * Map pages from @addr on. A page that is mapped already is left as it is. If there is
 * no memory for a page table the rest stays unmapped, until a fault maps it.
 */
static void pages_map(struct vm_area_struct *vma, unsigned long addr,
		      struct page **page, unsigned long nr)
{
	while (nr) {
		unsigned long left = nr, did;

		if (vm_insert_pages(vma, addr, page, &left) != -EBUSY)
			return;
		did = nr - left + 1;
		addr += did << PAGE_SHIFT;
		page += did;
		nr -= did;
	}
}

/*
 * Map the pages around the one asked for in the same page table, but not those whose
 * next touch should fault: @hidden, and the page of the sample (core/reuse.c).
 */
static noinline_for_stack void block_map_around(struct dcm_lane *lane, u32 head,
						unsigned int order, u16 hidden)
{
	struct dcmfs_access *a = dcmfs_lane_of(lane)->access;
	u32 watched = dcm_reuse_page(lane->vm, head);
	struct page *page[DCM_BLOCK_MAX];
	struct vm_area_struct *vma;
	u64 first, end, i;
	unsigned int n = 0;

	/* In a span, a page may be mapped only while its folio is locked (huge.c). */
	if (!a || !a->vmf || dcmfs_huge_there(lane_vm(lane), head))
		return;
	vma = a->vmf->vma;
	first = max((u64)head, (u64)vma->vm_pgoff);
	end = min3(head + (1ull << order),
		   (u64)i_size_read(lane_vm(lane)->inode) >> PAGE_SHIFT,
		   (u64)vma->vm_pgoff + vma_pages(vma));
	for (i = first; i <= end; i++) {
		if (i < end && i != a->gfn && i != watched &&
		    !(hidden & 1u << (i - head))) {
			page[n++] = page_of(lane, (u32)i);
			continue;
		}
		pages_map(vma,
			  vma->vm_start +
				  ((i - n - vma->vm_pgoff) << PAGE_SHIFT),
			  page, n);
		n = 0;
	}
}

/* As block_map_around(), which has nothing to do for a block of one page. */
static void pages_map_around(struct dcm_lane *lane, u32 head,
			     unsigned int order, u16 hidden)
{
	if (order)
		block_map_around(lane, head, order, hidden);
}

/* Did the READ put page @i of a block into a frame that the guest can get as it is? */
static bool page_landed(const struct dcm_fetch *f, unsigned int i)
{
	return f->nr && f->io.data != f->buf && i >= f->first &&
	       i < (u32)f->first + f->nr && !(f->zero & (1u << i));
}

/* Collect the frames of a fetched block: those that the READ filled, and new ones. */
static int frames_gather(struct dcm_lane *lane, struct dcm_fetch *f,
		  struct page **page)
{
	struct page *at = f->nr ? f->io.data : NULL;
	unsigned int i;

	for (i = 0; i < 1u << f->order; i++) {
		struct page *from = NULL;

		if (f->nr && i >= f->first && i < (u32)f->first + f->nr) {
			from = at;
			at = dcmfs_chain_next(at);
		}
		if (page_landed(f, i)) {
			page[i] = from;
			continue;
		}
		page[i] = dcmfs_frame_alloc(lane, f->zero & (1u << i));
		if (!page[i])
			goto fail;
		/* The READ landed in a buffer of the control lane: copy it. */
		if (from && !(f->zero & (1u << i)))
			copy_highpage(page[i], from);
	}
	return 0;
fail:
	while (i--)
		if (!page_landed(f, i))
			dcmfs_frame_free(lane, page[i]);
	return -ENOMEM;
}

/* Take the pages a READ filled out of the landing chain; free the others. */
static void landing_used(struct dcm_lane *lane, struct dcm_fetch *f)
{
	struct dcmfs_lane *dl = dcmfs_lane_of(lane);
	struct page *at = f->io.data;
	unsigned int i;

	if (!f->nr || f->io.data == f->buf)
		return;
	for (i = f->first; i < (u32)f->first + f->nr; i++) {
		struct page *next = dcmfs_chain_next(at);

		if (!page_landed(f, i))
			dcmfs_frame_free(lane, at);
		at = next;
	}
	dl->landing[f - lane->fetch] = NULL;
	dl->landing_nr[f - lane->fetch] = 0;
}

/* Set the frames of a whole block; -ENOMEM: nothing has changed. */
static int frames_put_under(struct dcm_lane *lane, struct dcm_fetch *f)
{
	struct page *page[DCM_BLOCK_MAX];
	unsigned int i;

	if (frames_gather(lane, f, page))
		return -ENOMEM;
	landing_used(lane, f);
	dcmfs_jitter(DCMFS_AT_INSTALL);
	for (i = 0; i < 1u << f->order; i++)
		dcmfs_frame_put_under(lane, f->gfn + i, page[i]);
	return 0;
}

/* The common case: the block is one page, and a READ has filled it. */
static void landing_put_under(struct dcm_lane *lane, struct dcm_fetch *f)
{
	struct dcmfs_lane *dl = dcmfs_lane_of(lane);
	unsigned int i = (unsigned int)(f - lane->fetch);

	dl->landing[i] = NULL;
	dl->landing_nr[i] = 0;
	dcmfs_jitter(DCMFS_AT_INSTALL);
	dcmfs_frame_put_under(lane, f->gfn, f->io.data);
}

static void op_wake(struct dcm_lane *lane, u32 gfn, u32 nr)
{
	struct dcmfs_vm *vm = lane_vm(lane);
	u32 i;

	/* All pages of a block are in one bucket. */
	for (i = gfn / DCM_BLOCK_MAX; i <= (gfn + nr - 1) / DCM_BLOCK_MAX;
	     i++) {
		struct dcmfs_bucket *b = &vm->bucket[i % DCMFS_BUCKETS];

		atomic_inc(&b->seq);
		wake_up_all(&b->wait);
	}
	/* Also threads that wait for their fetch on this lane (fault.c). */
	if (wq_has_sleeper(&dcmfs_lane_of(lane)->wait))
		wake_up_all(&dcmfs_lane_of(lane)->wait);
}

static int op_install(struct dcm_lane *lane, struct dcm_fetch *f)
{
	struct dcmfs_access *a = dcmfs_lane_of(lane)->access;

	if (!f->order && page_landed(f, 0))
		landing_put_under(lane, f);
	else if (frames_put_under(lane, f))
		return -ENOMEM;
	/* Mapping takes no time compared to a READ: don't read the clock again. */
	f->t_there = f->t_read;
	/* Page tables show what is dirty: nothing is guessed. */
	f->writable = 0;
	if (f->write && f->fault_page < DCM_BLOCK_MAX)
		f->writable = (u16)(1u << f->fault_page);
	f->hidden = f->hide;
	if (f->fault_page < DCM_BLOCK_MAX)
		page_hand_over(lane, f->gfn + f->fault_page,
			  page_of(lane, f->gfn + f->fault_page));
	pages_map_around(lane, f->gfn, f->order, f->hidden);
	if (a && f->nr && a->gfn == f->gfn + f->fault_page)
		a->major = true;
	/* The thread that asked for it waits without this lane: wake it. */
	if (f->fault_page < DCM_BLOCK_MAX &&
	    (!a || a->gfn != f->gfn + f->fault_page))
		op_wake(lane, f->gfn, 1u << f->order);
	return 0;
}

static void op_remap(struct dcm_lane *lane, u32 gfn, unsigned int order,
		     u32 frame, u16 writable, u16 hide, bool keep)
{
	struct dcmfs_access *a = dcmfs_lane_of(lane)->access;
	struct page *page = pfn_to_page(frame);
	unsigned int i;

	for (i = 0; i < 1u << order; i++) {
		struct page *next = dcmfs_chain_next(page);

		if (keep) {
			struct page *copy = dcmfs_frame_must(lane);

			copy_highpage(copy, page);
			dcmfs_frame_put_under(lane, gfn + i, copy);
		} else {
			dcmfs_frame_put_under(lane, gfn + i, page);
		}
		page = next;
	}
	if (a && a->want && a->gfn >= gfn && a->gfn < gfn + (1u << order)) {
		page_hand_over(lane, a->gfn, page_of(lane, a->gfn));
		pages_map_around(lane, gfn, order, 0);
	}
}

/*
 * An access to a block that is mapped for the core, but not in this page table: the
 * fault is of another process, or the block came while no fault held the mmap lock.
 * Give the access its page.
 */
static int op_reveal(struct dcm_lane *lane, u32 gfn, bool write)
{
	unsigned int order = pd_order(pd_word(pd_of(lane->vm, gfn)));
	struct page *page = dcmfs_huge_page(lane_vm(lane), gfn);

	if (page) {
		page_hand_over(lane, gfn, page);
		put_page(page);
		return 0;
	}
	page_hand_over(lane, gfn, page_of(lane, gfn));
	pages_map_around(lane, gfn & ~((1u << order) - 1), order, 0);
	return 0;
}

/* Make a new span. Runs of other lengths are refused, and come block by block. */
static int op_fresh(struct dcm_lane *lane, u32 gfn, u32 nr)
{
	struct dcmfs_access *a = dcmfs_lane_of(lane)->access;
	int err = nr == DCMFS_SPAN_PAGES ? dcmfs_huge_make(lane, gfn) : -ENOMEM;

	if (!err && a && a->gfn - gfn < nr)
		page_hand_over(lane, a->gfn, page_of(lane, a->gfn));
	return err;
}

/*
 * Unmap one page. The next access to it faults, as on a page that no fault has mapped
 * yet. A span is not split for this.
 */
static int op_hide(struct dcm_lane *lane, u32 gfn, bool dirty)
{
	struct page *page = dcmfs_huge_page(lane_vm(lane), gfn);

	if (page) {
		put_page(page);
		return -EBUSY;
	}
	if (!folio_mapped(dcmfs_frame_at(pd_of(lane->vm, gfn))))
		return 1;
	unmap_mapping_pages(lane_vm(lane)->inode->i_mapping, gfn, 1, false);
	return 0;
}

static void op_unprotect(struct dcm_lane *lane, u32 gfn, u32 nr)
{
	/* No page is write-protected here: dcm_fault() gets no DCM_FF_WP. */
	WARN_ON_ONCE(1);
}

static u16 op_zero_mask(struct dcm_lane *lane, u32 frame, unsigned int order,
			u16 mask)
{
	struct page *page = pfn_to_page(frame);
	u16 zero = 0;
	unsigned int i;

	for (i = 0; i < 1u << order; i++, page = dcmfs_chain_next(page)) {
		void *p;

		if (!(mask & (1u << i)))
			continue;
		p = kmap_local_page(page);
		if (!memchr_inv(p, 0, PAGE_SIZE))
			zero |= (u16)(1u << i);
		kunmap_local(p);
	}
	return zero;
}

static void *op_frame_data(struct dcm_lane *lane, u32 frame, unsigned int nr)
{
	struct page *page = pfn_to_page(frame);

	while (nr--)
		page = dcmfs_chain_next(page);
	return page;
}

static void op_release(struct dcm_lane *lane, u32 frame, unsigned int order)
{
	dcmfs_chain_free(lane, pfn_to_page(frame), 1u << order);
}

/* Has an extent a slab that takes writes? */
static bool extent_served(const struct dcm_vm *core, u32 extent)
{
	return READ_ONCE(core->extent[extent].open);
}

static bool op_frozen(struct dcm_lane *lane, u32 gfn)
{
	return dcmfs_frozen(lane_vm(lane), gfn);
}

static void op_want_slab(struct dcm_vm *core, u32 extent)
{
	struct dcmfs_vm *vm = core->priv;

	if (test_bit(extent, vm->want) || test_and_set_bit(extent, vm->want))
		return;
	atomic_inc(&vm->wanted);
	/*
	 * A slab may have been attached since the core looked, and have
	 * cleared the bit before we set it. test_and_set_bit() is a barrier.
	 */
	if (extent_served(core, extent)) {
		dcmfs_unwant(vm, extent);
		return;
	}
	wake_up_all(&vm->events);
}

/**
 * dcmfs_unwant() - an extent needs no slab any more
 * @vm: the VM
 * @extent: the extent
 */
void dcmfs_unwant(struct dcmfs_vm *vm, u32 extent)
{
	if (test_and_clear_bit(extent, vm->want))
		atomic_dec(&vm->wanted);
}

/**
 * dcmfs_wanting() - the next extent that wants a slab
 * @vm: the VM
 * @first: first extent to look at
 *
 * op_want_slab() sets the bit of an extent before it checks that no slab has come
 * meanwhile, so the bit may be set for an extent that has one: that is skipped here.
 *
 * Return: an extent, or the number of extents if there is none.
 */
u32 dcmfs_wanting(struct dcmfs_vm *vm, u32 first)
{
	u32 nr = vm->core->nr_extents, n;

	for (n = (u32)find_next_bit(vm->want, nr, first); n < nr;
	     n = (u32)find_next_bit(vm->want, nr, n + 1)) {
		if (!extent_served(vm->core, n))
			break;
		dcmfs_unwant(vm, n);
	}
	return n;
}

static void op_lost(struct dcm_lane *lane, u32 gfn, u32 nr)
{
	struct dcmfs_access *a = dcmfs_lane_of(lane)->access;

	if (a && a->gfn >= gfn && a->gfn < gfn + nr)
		a->lost = true;
}

static u64 op_now_ns(void)
{
	return ktime_get_ns();
}

static bool op_relax(struct dcm_lane *lane)
{
	/* The lane that has the block may be waiting for a donor. */
	usleep_range(10, 50);
	return !fatal_signal_pending(current);
}

const struct dcm_ops dcmfs_ops = {
	.install = op_install,
	.remap = op_remap,
	.fresh = op_fresh,
	.reveal = op_reveal,
	.hide = op_hide,
	.unprotect = op_unprotect,
	.unmap = dcmfs_op_unmap,
	.wake = op_wake,
	.zero_mask = op_zero_mask,
	.sum = dcmfs_op_sum,
	.seal = dcmfs_op_seal,
	.open = dcmfs_op_open,
	.wrong = dcmfs_op_wrong,
	.frame_data = op_frame_data,
	.release = op_release,
	.discard = dcmfs_op_discard,
	.io_post = dcmfs_io_post,
	.io_flush = dcmfs_io_flush,
	.io_poll = dcmfs_io_poll,
	.frozen = op_frozen,
	.want_slab = op_want_slab,
	.lost = op_lost,
	.now_ns = op_now_ns,
	.relax = op_relax,
};

static void frame_drop(struct dcm_lane *lane, struct page *page)
{
	if (PageCompound(page))
		dcmfs_huge_drop(lane_vm(lane), page);
	else
		dcmfs_frame_free(lane, page);
}

/**
 * dcmfs_frames_drop() - free every frame and descriptor of a VM
 * @vm: the VM, mapped nowhere
 *
 * Called last before the core's part is freed: no lane is in use, no I/O in
 * flight.
 */
void dcmfs_frames_drop(struct dcmfs_vm *vm)
{
	struct dcm_vm *core = vm->core;
	struct dcm_lane *lane = &core->lane[0];
	u64 end = core->nr_pages, gfn = 0;

	while ((gfn = dcm_chunk_next(core, gfn, end)) < end) {
		const struct dcm_pd *pd = pd_of(core, (u32)gfn);
		u32 w = pd_word(pd), nr = 1u << pd_order(w), i;

		if (pd_state(w) != DCM_NOTDIRECT)
			for (i = 0; i < nr; i++)
				frame_drop(lane, pfn_to_page(pd[i].frame));
		gfn += nr;
		if (gfn % DCM_PDS_PAGES && gfn < end)
			continue;
		dcmfs_chunk_free(vm,
				 dcm_chunk_remove(core, (u32)gfn - 1, true));
		cond_resched();
	}
}

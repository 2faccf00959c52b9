// SPDX-License-Identifier: GPL-2.0-only
/*
 * fault.c - a page fault on a dcmfs file
 *
 * Accesses of QEMU itself, of KVM (which looks the guest's page up in QEMU's
 * memory), of vhost and of any other process that maps the file come here. The
 * thread takes a lane, calls the core, and goes on until it gets the page it
 * needs, locked, for the caller to map. Waiting for a donor or for another lane
 * is killable, and done without the mmap lock where the fault may be retried:
 * a donor that does not answer must not stop mmap() or other vCPUs' faults.
 *
 * Where there is no page table yet and the kernel's rules for huge pages allow one, it
 * first asks for an entry of 2 MiB (->huge_fault): the page is then brought in with its
 * span (huge.c). If the page is not part of a span, the kernel asks for a single entry.
 *
 * A fault is major if it fetched, whether or not it had to be retried. It is not if it
 * made a page of zeroes, found the page here, or found that another fault fetches
 * it. A module can't update the cgroup's count of major faults.
 */
#include <linux/file.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/sched/signal.h>

#include "compat.h"
#include "dcmfs.h"
#include "jitter.h"
#include "trace.h"

#define WAIT_TICKS (HZ / 100 + 1)

/**
 * struct fault - one fault being served
 * @a: the lane's view of it
 * @vm: the VM
 * @vmf: the fault
 * @file: a reference that keeps @vm once the mmap lock was dropped; else %NULL
 * @until: when a thread that can't be killed gives up
 * @stalled_ns: how long it waited for a frame; not counted yet
 * @cause: the counter to add @stalled_ns to
 * @full: the mount has no memory left for the page's descriptor
 * @span: an entry of 2 MiB is asked for
 */
struct fault {
	struct dcmfs_access a;
	struct dcmfs_vm *vm;
	struct vm_fault *vmf;
	struct file *file;
	unsigned long until;
	u64 stalled_ns;
	enum dcm_counter_id cause;
	bool full;
	bool span;
};

/*
 * Prepare to wait: drop the mmap lock if the fault may be retried. False: the fault
 * must not wait at all.
 */
static bool fault_may_wait(struct fault *f)
{
	unsigned int flags = f->vmf->flags;

	if (f->file)
		return true;
	if (flags & FAULT_FLAG_RETRY_NOWAIT)
		return false;
	if (fault_flag_allow_retry_first(flags)) {
		f->file = get_file(f->vmf->vma->vm_file);
		release_fault_lock(f->vmf);
		f->a.vmf = NULL;
		f->a.want = false;
	}
	return true;
}

/*
 * Should the fault give up? Yes if the thread was killed; a kernel thread can't be
 * killed, and gives up after a while. KVM's thread that faults ahead for a vCPU holds
 * the mm meanwhile, so a killed VM would wait for it; if the vCPU still exists it
 * faults itself.
 */
static bool fault_gives_up(const struct fault *f)
{
	return fatal_signal_pending(current) ||
	       ((current->flags & PF_KTHREAD) && time_after(jiffies, f->until));
}

/*
 * KVM's thread that faults a page in while a vCPU does something else (async
 * page faults) asks to write, whatever the guest wants, and ignores the result.
 * The page is brought in, but not mapped: mapped writable it would be dirty,
 * and be written back though nothing was written. The vCPU faults itself. HMM's
 * threads, which fault for other processes, do not allow the lock to be
 * dropped.
 */
static bool fault_is_ahead(const struct vm_fault *vmf)
{
	const unsigned int flags = FAULT_FLAG_WRITE | FAULT_FLAG_REMOTE |
				   FAULT_FLAG_ALLOW_RETRY;

	return (current->flags & PF_WQ_WORKER) &&
	       (vmf->flags & flags) == flags &&
	       vmf->vma->vm_ops == &dcmfs_vm_guest_ops;
}

static void fault_drop_busy(struct fault *f)
{
	put_page(f->a.busy);
	f->a.busy = NULL;
}

static struct dcmfs_bucket *bucket_of(struct fault *f)
{
	return &f->vm->bucket[f->a.gfn / DCM_BLOCK_MAX % DCMFS_BUCKETS];
}

/*
 * Wait, without the lane, until the fetch posted on it has ended; or, if
 * @stalled, until any operation on it has, which may free a frame. One of the
 * waiting threads handles what arrives; other faults use the lane meanwhile, as
 * their donors may answer when this one does not.
 */
static bool wait_lane(struct fault *f, struct dcmfs_lane *lane, int seq,
		      bool stalled)
{
	struct dcmfs_bucket *b = bucket_of(f);

	if (!fault_may_wait(f))
		return false;
	while (atomic_read(&b->seq) == seq) {
		wait_event_killable_timeout(lane->wait,
					    READ_ONCE(lane->event) ||
						    atomic_read(&b->seq) != seq,
					    WAIT_TICKS);
		if (fault_gives_up(f))
			return false;
		if (atomic_read(&b->seq) != seq)
			break;
		if (mutex_trylock(&lane->lock))
			dcmfs_lane_put(f->vm, lane);
		else /* the holder handles what has come before it unlocks */
			WRITE_ONCE(lane->event, false);
		if (stalled || !dcm_pending(lane->core))
			break;
	}
	return true;
}

/* Wait, without the lane, until the block changes. */
static bool wait_change(struct fault *f, int seq)
{
	struct dcmfs_bucket *b = bucket_of(f);

	if (!fault_may_wait(f))
		return false;
	wait_event_killable_timeout(b->wait, atomic_read(&b->seq) != seq,
				    WAIT_TICKS);
	return !fault_gives_up(f);
}

/*
 * First access to this chunk: allocate its descriptors. Another thread may have
 * done so; a host without a free page has some after an eviction.
 */
static bool fault_describe(struct fault *f, int seq)
{
	void *chunk = dcmfs_chunk_alloc(f->vm);

	f->full = IS_ERR(chunk);
	if (f->full)
		return false;
	if (!chunk)
		return wait_change(f, seq);
	if (!dcm_chunk_add(f->vm->core, f->a.gfn, chunk))
		dcmfs_chunk_free(f->vm, chunk);
	return true;
}

/* A page that was never used, and no memory left for its descriptor. */
static vm_fault_t fault_full(const struct fault *f)
{
	pr_warn_ratelimited(
		"kvm-dcm: %s[%d]: page %u of file %lu can't be used: the files of its mount have all memory they may have besides frames, %llu bytes; SIGBUS. Mount with a larger metadata=\n",
		current->comm, task_pid_nr(current), f->a.gfn,
		dcmfs_ino(f->vm->inode), f->vm->opt->metadata);
	return VM_FAULT_SIGBUS;
}

/* Lost memory: an error, or a pause that only a signal ends. */
static vm_fault_t fault_lost(struct fault *f)
{
	pr_warn_ratelimited(
		"kvm-dcm: %s[%d]: page %u of file %lu is lost with its donor: %s\n",
			    current->comm, task_pid_nr(current), f->a.gfn,
			    dcmfs_ino(f->vm->inode),
		f->vm->opt->pause ? "the thread is paused" : "SIGBUS");
	if (!f->vm->opt->pause)
		return VM_FAULT_SIGBUS;
	if (!fault_may_wait(f))
		return VM_FAULT_RETRY;
	/* Look again soon: a discard makes the page usable; a signal ends the wait. */
	if (!fatal_signal_pending(current))
		schedule_timeout_killable(HZ / 4);
	if (fault_gives_up(f))
		return f->file ? VM_FAULT_RETRY : VM_FAULT_SIGBUS;
	return 0;
}

/* Call the core once. Returns 0 to continue. */
static vm_fault_t fault_once(struct fault *f, bool write)
{
	struct dcmfs_lane *lane = dcmfs_lane_get(f->vm);
	int seq = atomic_read(&bucket_of(f)->seq);
	enum dcm_fault_result r;
	bool ok = true;

	if (unlikely(dcmfs_frozen(f->vm, f->a.gfn))) {
		dcmfs_lane_put(f->vm, lane);
		ok = wait_change(f, seq);
		if (fault_gives_up(f))
			return f->file ? VM_FAULT_RETRY : VM_FAULT_SIGBUS;
		return ok ? 0 : VM_FAULT_RETRY;
	}
	if (unlikely(f->stalled_ns)) {
		dcm_waited(lane->core, f->cause, f->stalled_ns);
		f->stalled_ns = 0;
	}
	f->a.lost = false;
	lane->access = &f->a;
	dcmfs_jitter(DCMFS_AT_FAULT);
	r = dcm_fault(lane->core, f->a.gfn,
		      (write ? DCM_FF_WRITE : 0) |
			      (f->span ? DCM_FF_SPAN : DCM_FF_ALONE));
	/* If its slab is on this host, the page has come already: install it. */
	if (r == DCM_FAULT_PENDING) {
		f->a.major = true;
		dcm_poll(lane->core);
	}
	lane->access = NULL;
	if (r == DCM_FAULT_STALL)
		f->cause = dcm_stall_cause(lane->core);
	dcmfs_lane_put(f->vm, lane);

	if (f->a.page) {
		dcmfs_jitter(DCMFS_AT_LOCKED);
		return VM_FAULT_LOCKED;
	}
	if (r == DCM_FAULT_LOST || f->a.lost)
		return fault_lost(f);
	if (r == DCM_FAULT_BARE) {
		ok = fault_describe(f, seq);
		if (f->full)
			return fault_full(f);
	} else if (f->a.busy) {
		/* Another fault has the page locked until it has mapped it. */
		ok = fault_may_wait(f);
		if (ok)
			ok = !folio_wait_locked_killable(page_folio(f->a.busy));
		fault_drop_busy(f);
	} else if (r == DCM_FAULT_PENDING) {
		ok = wait_lane(f, lane, seq, false);
	} else if (r == DCM_FAULT_STALL) {
		u64 began = ktime_get_ns();

		ok = wait_lane(f, lane, seq, true);
		f->stalled_ns = ktime_get_ns() - began;
	} else if (r == DCM_FAULT_BUSY) {
		ok = wait_change(f, seq);
	} else if (f->file && r == DCM_FAULT_DONE) {
		return VM_FAULT_RETRY;
	}
	/*
	 * The fault must not wait; or the thread was killed, and a system call
	 * must return EFAULT instead of retrying for ever.
	 */
	if (fault_gives_up(f))
		return f->file ? VM_FAULT_RETRY : VM_FAULT_SIGBUS;
	return ok ? 0 : VM_FAULT_RETRY;
}

static void page_let_go(struct page *page)
{
	unlock_page(page);
	put_page(page);
}

static vm_fault_t fault_work(struct fault *f, struct vm_fault *vmf, bool write)
{
	vm_fault_t r = 0;

	while (!(r = fault_once(f, write)))
		cond_resched();
	if (f->a.busy)
		fault_drop_busy(f);
	/* The kernel itself counts the thread's faults, a retried one once. */
	if (f->a.major) {
		count_vm_event(PGMAJFAULT);
		r |= VM_FAULT_MAJOR;
	}
	if (!f->file) {
		vmf->page = f->a.page;
		return r;
	}
	/* The lock was dropped: the fault has to be retried. */
	if (f->a.page)
		page_let_go(f->a.page);
	fput(f->file);
	return VM_FAULT_RETRY | (r & VM_FAULT_MAJOR);
}

/* Serve a fault: until its page is locked, or it has to be retried, or fails. */
static vm_fault_t fault_serve(struct dcmfs_vm *vm, struct vm_fault *vmf,
			      bool write, bool span)
{
	struct fault f = {
		.vm = vm,
		.vmf = vmf,
		.until = jiffies + HZ,
		.span = span,
	};
	unsigned long ino = dcmfs_ino(vm->inode);
	u64 begin = trace_dcm_fault_enabled() ? ktime_get_ns() : 0;
	vm_fault_t r;

	/* For an entry of 2 MiB, map no single entries around the page. */
	f.a.vmf = span ? NULL : vmf;
	f.a.gfn = (u32)vmf->pgoff;
	f.a.want = true;
	r = fault_work(&f, vmf, write);
	trace_dcm_fault(ino, f.a.gfn, write, (__force u32)r,
			begin ? ktime_get_ns() - begin : 0);
	return r;
}

static bool fault_beyond_end(const struct inode *inode, pgoff_t pgoff)
{
	return pgoff >= (pgoff_t)i_size_read(inode) >> PAGE_SHIFT;
}

static vm_fault_t dcmfs_fault(struct vm_fault *vmf)
{
	struct inode *inode = file_inode(vmf->vma->vm_file);
	struct dcmfs_vm *vm = dcmfs_vm_of(inode);
	pgoff_t pgoff = vmf->pgoff;
	bool ahead = fault_is_ahead(vmf);
	vm_fault_t r;

	if (!vm || fault_beyond_end(inode, pgoff))
		return VM_FAULT_SIGBUS;
	r = fault_serve(vm, vmf, !ahead && vmf->flags & FAULT_FLAG_WRITE,
			false);
	if (!(r & VM_FAULT_LOCKED))
		return r;
	/* Truncated meanwhile? The page's lock prevents unmapping. */
	if (ahead || fault_beyond_end(inode, pgoff))
		r = VM_FAULT_SIGBUS;
	else if (PageCompound(vmf->page))
		r = dcmfs_huge_map_some(vmf, vmf->page);
	else
		return r;
	page_let_go(vmf->page);
	vmf->page = NULL;
	return r;
}

/*
 * Is the page in a span, or may its fault make one? If the page is new, add descriptors
 * for all of the span: the core adds none, and a fault adds only one chunk.
 */
static bool span_possible(struct dcmfs_vm *vm, u32 gfn)
{
	u32 at = gfn & ~(DCMFS_SPAN_PAGES - 1), end = at + DCMFS_SPAN_PAGES;

	if (dcmfs_huge_there(vm, gfn))
		return true;
	if (!dcm_fresh_span(vm->core, gfn))
		return false;
	if (dcm_chunk_there(vm->core, gfn))
		return true;
	for (; at < end; at += DCM_PDS_PAGES) {
		void *chunk = dcm_chunk_there(vm->core, at) ?
				      NULL :
				      dcmfs_chunk_alloc(vm);

		if (!IS_ERR_OR_NULL(chunk) &&
		    !dcm_chunk_add(vm->core, at, chunk))
			dcmfs_chunk_free(vm, chunk);
	}
	return true;
}

/*
 * A fault where there is no page table yet. If it fetched a page that is not in a span,
 * the kernel must be told that it was major, so it can't be told to fall back at once:
 * it faults again, and is then told to use a single entry.
 */
static vm_fault_t dcmfs_huge_fault(struct vm_fault *vmf, unsigned int order)
{
	struct inode *inode = file_inode(vmf->vma->vm_file);
	struct dcmfs_vm *vm = dcmfs_vm_of(inode);
	vm_fault_t r, mapped = VM_FAULT_FALLBACK;

	if (!vm || order != PMD_ORDER || !dcmfs_huge_fits(vmf) ||
	    fault_beyond_end(inode, vmf->pgoff | (DCMFS_SPAN_PAGES - 1)) ||
	    fault_is_ahead(vmf) || !span_possible(vm, (u32)vmf->pgoff))
		return VM_FAULT_FALLBACK;
	r = fault_serve(vm, vmf, vmf->flags & FAULT_FLAG_WRITE, true);
	if (!(r & VM_FAULT_LOCKED))
		return r;
	if (PageCompound(vmf->page))
		mapped = dcmfs_huge_map(vmf, vmf->page);
	else if (r & VM_FAULT_MAJOR)
		mapped = VM_FAULT_NOPAGE;
	page_let_go(vmf->page);
	vmf->page = NULL;
	return mapped | (r & VM_FAULT_MAJOR);
}

/*
 * Maps nothing: this function has to exist only because without it the kernel assumes
 * that ->fault needs the mmap lock; then each fault would begin under its VMA's lock,
 * be refused, and begin again.
 */
static vm_fault_t dcmfs_map_pages(struct vm_fault *vmf, pgoff_t start,
				  pgoff_t end)
{
	return 0;
}

/*
 * The first write through a page table entry that a read has made. While the page is
 * locked it is not evicted, until it is writable. A page that was discarded meanwhile
 * has no mapping.
 */
static vm_fault_t dcmfs_mkwrite(struct vm_fault *vmf)
{
	struct inode *inode = file_inode(vmf->vma->vm_file);
	struct folio *folio = page_folio(vmf->page);

	if (fault_is_ahead(vmf))
		return VM_FAULT_SIGBUS;
	folio_lock(folio);
	if (folio->mapping == inode->i_mapping &&
	    folio->index + folio_page_idx(folio, vmf->page) == vmf->pgoff &&
	    !fault_beyond_end(inode, vmf->pgoff))
		return VM_FAULT_LOCKED;
	folio_unlock(folio);
	return VM_FAULT_NOPAGE;
}

/*
 * For a process with a guest. When a guest reads a page, KVM maps it writable if the
 * process may write to it, and then counts it as dirty; so all pages that a guest reads
 * would be written back. Therefore a read maps the page read-only, and the first write
 * is another fault (dcmfs_mkwrite()). Other processes don't need these faults.
 */
const struct vm_operations_struct dcmfs_vm_guest_ops = {
	.fault = dcmfs_fault,
	.huge_fault = dcmfs_huge_fault,
	.map_pages = dcmfs_map_pages,
	.page_mkwrite = dcmfs_mkwrite,
};

const struct vm_operations_struct dcmfs_vm_ops = {
	.fault = dcmfs_fault,
	.huge_fault = dcmfs_huge_fault,
	.map_pages = dcmfs_map_pages,
};

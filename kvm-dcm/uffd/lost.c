// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * lost.c - accesses to memory that was lost with its donor
 *
 * Such a page is never replaced by zeroes. With on-loss=sigbus an access raises
 * SIGBUS, by UFFDIO_POISON (6.6), or on older kernels by an empty file mapped
 * over the page; a system call gets EFAULT. With on-loss=pause the thread stays
 * in its fault: for a vCPU this is a paused VM, which its operator can look at
 * and kill. The loss itself is logged with its donor and extents
 * (slab_worker.c); the first stopped access is logged here.
 */
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../core/internal.h"
#include "../lib/log.h"
#include "pager.h"

static void page_map_none(struct dcm_pager *pg, u32 gfn, u64 va)
{
	int fd = (int)syscall(SYS_memfd_create, "dcm:lost", MFD_CLOEXEC);

	if (fd < 0)
		return;
	if (mmap((void *)va, DCM_PAGE_SIZE, PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED)
		__atomic_fetch_or(&pg->guest.bus[gfn / 8],
				  (u8)(1u << (gfn % 8)), __ATOMIC_SEQ_CST);
	close(fd);
	dcm_uffd_wake(&pg->uffd, va, DCM_PAGE_SIZE);
}

static bool page_is_lost(const struct dcm_pager *pg, u64 gfn)
{
	return pd_word(pd_of(pg->vm, (u32)gfn)) & PD_LOST;
}

/** dcm_lost_access() - stop an access to pages whose content is gone */
void dcm_lost_access(struct dcm_pager *pg, u32 gfn, u32 nr)
{
	bool bus = pg->cfg.on_loss == DCM_ON_LOSS_SIGBUS;
	bool first =
		!__atomic_exchange_n(&pg->lost_said, true, __ATOMIC_RELAXED);
	u32 i;

	/* first the line that names a donor whose wrong bytes have caused the loss */
	if (first) {
		dcm_page_sums_log(pg, dcm_now_ns());
		dcm_log(DCM_LOG_ERR,
			"%s: an access to lost memory (page %u) %s",
			pg->cfg.name, gfn,
			bus ? "gets SIGBUS" :
			      "is stopped; the thread waits until the process is killed");
	}
	if (!bus)
		return;
	/* The process may die of it before the log thread runs. */
	if (first)
		dcm_log_flush(1000);
	/*
	 * A discard is under way and may be waiting for this lane: let the
	 * access try again.
	 */
	if (pthread_mutex_trylock(&pg->lost_lock)) {
		dcm_uffd_wake(&pg->uffd, dcm_guest_va(&pg->guest, gfn),
			      (u64)nr << DCM_PAGE_SHIFT);
		return;
	}
	for (i = 0; i < nr; i++) {
		u64 va = dcm_guest_va(&pg->guest, gfn + i);

		if (!page_is_lost(pg, gfn + i)) {
			dcm_uffd_wake(&pg->uffd, va, DCM_PAGE_SIZE);
			continue;
		}
		if (!pg->uffd.poison ||
		    dcm_uffd_poison(&pg->uffd, va, DCM_PAGE_SIZE))
			page_map_none(pg, gfn + i, va);
		__atomic_fetch_add(&pg->poisoned, 1, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&pg->lost_lock);
}

static void page_forget(struct dcm_pager *pg, u32 gfn)
{
	struct dcm_guest *g = &pg->guest;
	u64 va = dcm_guest_va(g, gfn);
	u8 bit = (u8)(1u << (gfn % 8));

	if (__atomic_fetch_and(&g->bus[gfn / 8], (u8)~bit, __ATOMIC_SEQ_CST) &
	    bit)
		dcm_guest_renew(pg, va);
	else if (pg->uffd.poison && page_is_lost(pg, gfn))
		madvise((void *)va, DCM_PAGE_SIZE, MADV_DONTNEED);
}

/**
 * dcm_lost_forget() - the content of pages is about to be discarded
 *
 * Called before dcm_guest_discard(), with lost_lock held until that is done:
 * lost pages read as zero then. While a page is LOST no lane maps it, so its
 * poison can be removed. Later a block around it may be mapped, and must not
 * contain a poisoned page: reading that to evict it would kill the process.
 */
void dcm_lost_forget(struct dcm_pager *pg, u64 va, u64 nr)
{
	u64 end = va + (nr << DCM_PAGE_SHIFT), len, gfn, i;

	if (!READ_ONCE(pg->poisoned))
		return;
	while ((va = dcm_guest_next(&pg->guest, va, end, &len, &gfn)), len) {
		for (i = gfn; i < gfn + (len >> DCM_PAGE_SHIFT); i++)
			page_forget(pg, (u32)i);
		va += len;
	}
}

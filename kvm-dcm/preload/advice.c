// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * advice.c - a program's advice on, protection and locking of paged memory
 *
 * MADV_DONTNEED and its like discard pages, at donors as well; MADV_WILLNEED brings
 * pages in, in the background, as far as there is room. Advice that would
 * undo what the pager set up (huge pages, merging, memory in children) is taken
 * and has no effect on paged memory. Pages of memory that may not be read
 * (PROT_NONE) stay direct while that lasts, as they could not be evicted. Paged
 * memory is never locked: mlock() of it succeeds, and a notice says so once.
 *
 * Locking: none. System calls are made raw (shim.c).
 */
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../lib/log.h"
#include "shim.h"

/* True: the call is done, with @rc. */
static bool range_advise(struct dcm_pager *pg, void *addr, u64 len, int advice,
			 int *rc)
{
	*rc = 0;
	switch (advice) {
	case MADV_DONTNEED:
	case MADV_FREE:
#ifdef MADV_DONTNEED_LOCKED
	case MADV_DONTNEED_LOCKED:
#endif
	case MADV_WILLNEED:
		*rc = advice == MADV_WILLNEED ?
			      dcm_pager_fetch(pg, addr, len) :
			      dcm_pager_discard(pg, addr, len);
		/* Parts that are not paged are left to the kernel. */
		if (!*rc)
			*rc = dcm_pager_rest(pg, addr, len, advice);
		return true;
	case MADV_HUGEPAGE:
	case MADV_NOHUGEPAGE:
	case MADV_MERGEABLE:
	case MADV_UNMERGEABLE:
	case MADV_DOFORK:
	case MADV_COLD:
	case MADV_PAGEOUT:
	case MADV_SEQUENTIAL:
	case MADV_RANDOM:
	case MADV_NORMAL:
#ifdef MADV_COLLAPSE
	case MADV_COLLAPSE:
#endif
		return true;
	default:
		return false;
	}
}

DCM_EXPORT int madvise(void *addr, size_t bytes, int advice)
{
	struct dcm_pager *pg = shim_pager();
	u64 len = shim_page_up(bytes);
	int rc;

	if (likely(!pg) || ((u64)addr & (SHIM_PAGE - 1)) || !len ||
	    !dcm_pager_owns(pg, addr, len) ||
	    !range_advise(pg, addr, len, advice, &rc))
		return (int)syscall(SYS_madvise, addr, bytes, advice);
	return shim_result(rc);
}

DCM_EXPORT int posix_madvise(void *addr, size_t bytes, int advice)
{
	/* As in the C library: DONTNEED drops nothing here. */
	if (advice == POSIX_MADV_DONTNEED)
		return 0;
	return madvise(addr, bytes, advice) ? errno : 0;
}

DCM_EXPORT int mprotect(void *addr, size_t bytes, int prot)
{
	struct dcm_pager *pg = shim_pager();
	u64 len = shim_page_up(bytes);
	int rc;

	if (likely(!pg) || ((u64)addr & (SHIM_PAGE - 1)) || !len ||
	    !dcm_pager_owns(pg, addr, len))
		return (int)syscall(SYS_mprotect, addr, bytes, prot);
	WRITE_ONCE(dcm_shim.protected, true);
	if (!(prot & PROT_READ))
		dcm_pager_hold(pg, addr, len, true);
	rc = (int)syscall(SYS_mprotect, addr, bytes, prot);
	if (!rc && (prot & PROT_READ))
		dcm_pager_hold(pg, addr, len, false);
	return rc;
}

static void mlock_log(void)
{
	static bool said;

	if (!__atomic_exchange_n(&said, true, __ATOMIC_RELAXED))
		dcm_log(DCM_LOG_NOTICE,
			"the program locks memory; memory that libdcm pages is not locked");
}

/* glibc 2.41 declares that mlock() reads nothing: nor does this function. */
#if __has_attribute(access)
__attribute__((
	access(none, 2))) extern __typeof__(dcm_pager_owns) dcm_pager_owns;
#endif

DCM_EXPORT int mlock(const void *addr, size_t bytes)
{
	struct dcm_pager *pg = shim_pager();

	if (pg && dcm_pager_owns(pg, addr, bytes)) {
		mlock_log();
		return 0;
	}
	return (int)syscall(SYS_mlock, addr, bytes);
}

DCM_EXPORT int mlock2(const void *addr, size_t bytes, unsigned int flags)
{
	struct dcm_pager *pg = shim_pager();

	if (pg && dcm_pager_owns(pg, addr, bytes)) {
		mlock_log();
		return 0;
	}
	return (int)syscall(SYS_mlock2, addr, bytes, flags);
}

DCM_EXPORT int munlock(const void *addr, size_t bytes)
{
	struct dcm_pager *pg = shim_pager();

	if (pg && dcm_pager_owns(pg, addr, bytes))
		return 0;
	return (int)syscall(SYS_munlock, addr, bytes);
}

DCM_EXPORT int mlockall(int flags)
{
	if (shim_pager()) {
		mlock_log();
		return 0;
	}
	return (int)syscall(SYS_mlockall, flags);
}

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * calls.c - libdcm's functions on ranges of paged memory: discard, unmap, replace
 *
 * Giving memory back, unmapping, discarding and replacing wait for blocks that
 * fault threads work on. If the caller's stack is itself paged memory, the caller
 * would fault while it holds locks that fault threads want; then the work is done
 * by a thread with a stack of libdcm's own.
 *
 * During a call the thread has signals blocked, and is marked as inside libdcm
 * (thread.h).
 *
 * Locking: that of ranges.c and lost.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../lib/thread.h"
#include "covers.h"
#include "pager.h"

enum call {
	CALL_PUNCH,
	CALL_REPLACE,
	CALL_DISCARD,
	CALL_FETCH,
};

static long call_carry_out(struct dcm_pager *pg, enum call what, u64 va,
			   u64 bytes, const struct dcm_map_call *with)
{
	u64 nr = bytes >> DCM_PAGE_SHIFT;
	long rc = 0;

	switch (what) {
	case CALL_PUNCH:
		rc = dcm_guest_punch(pg, va, nr);
		madvise((void *)va, bytes, MADV_DONTNEED);
		break;
	case CALL_REPLACE:
		rc = dcm_guest_replace(pg, va, nr, with);
		break;
	case CALL_DISCARD:
		pthread_mutex_lock(&pg->lost_lock);
		dcm_lost_forget(pg, va, nr);
		dcm_guest_discard(pg, va, nr);
		pthread_mutex_unlock(&pg->lost_lock);
		break;
	case CALL_FETCH:
		dcm_guest_hint(pg, va, bytes, DCM_HINT_FETCH);
		break;
	}
	return rc;
}

struct call_arg {
	struct dcm_pager *pg;
	enum call what;
	u64 va;
	u64 bytes;
	struct dcm_map_call with;
	long rc;
};

static void *call_main(void *p)
{
	struct call_arg *a = p;

	a->rc = call_carry_out(a->pg, a->what, a->va, a->bytes, &a->with);
	return NULL;
}

static long call_run(struct dcm_pager *pg, enum call what, u64 va, u64 bytes,
		 const struct dcm_map_call *with)
{
	u64 sp = (u64)__builtin_frame_address(0);
	struct call_arg *a;
	sigset_t old;
	pthread_t t;
	u64 gfn;
	long rc;

	if ((va | bytes) & (DCM_PAGE_SIZE - 1) || va + bytes < va)
		return -EINVAL;
	dcm_thread_enter(&old);
	if (likely(!dcm_guest_gfn(&pg->guest, sp & ~(u64)(DCM_PAGE_SIZE - 1),
				  &gfn))) {
		rc = call_carry_out(pg, what, va, bytes, with);
		dcm_thread_leave(&old);
		return rc;
	}
	/* The argument must not be on the caller's stack either. */
	a = malloc(sizeof(*a));
	rc = a ? 0 : -ENOMEM;
	if (a) {
		*a = (struct call_arg){ pg, what, va, bytes, .rc = 0 };
		if (with)
			a->with = *with;
		rc = dcm_thread_start(&t, call_main, a);
	}
	if (!rc) {
		pthread_join(t, NULL);
		rc = a->rc;
	}
	free(a);
	dcm_thread_leave(&old);
	return rc;
}

int dcm_pager_release(struct dcm_pager *pg, void *addr, size_t bytes)
{
	return (int)call_run(pg, CALL_PUNCH, (u64)addr, bytes, NULL);
}

int dcm_pager_unmap(struct dcm_pager *pg, void *addr, size_t bytes)
{
	struct dcm_map_call unmap = { SYS_munmap, { (u64)addr, bytes } };

	return (int)call_run(pg, CALL_REPLACE, (u64)addr, bytes, &unmap);
}

int dcm_pager_discard(struct dcm_pager *pg, void *addr, size_t bytes)
{
	return (int)call_run(pg, CALL_DISCARD, (u64)addr, bytes, NULL);
}

int dcm_pager_fetch(struct dcm_pager *pg, void *addr, size_t bytes)
{
	return (int)call_run(pg, CALL_FETCH, (u64)addr, bytes, NULL);
}

int dcm_pager_replace(struct dcm_pager *pg, void *addr, size_t bytes, void *by,
		      size_t by_bytes, int flags)
{
	struct dcm_map_call move = {
		SYS_mremap, { (u64)by, by_bytes, bytes, (u64)flags, (u64)addr }
	};
	long rc = call_run(pg, CALL_REPLACE, (u64)addr, bytes, &move);

	return rc < 0 ? (int)rc : 0;
}

bool dcm_pager_pin_safe(struct dcm_pager *pg)
{
	return pg->uffd.move;
}

bool dcm_pager_covers(struct dcm_pager *pg, void *addr, size_t bytes)
{
	u64 len, gfn;

	return dcm_guest_next(&pg->guest, (u64)addr, (u64)addr + bytes, &len,
			      &gfn) == (u64)addr &&
	       len == bytes;
}

int dcm_pager_rest(struct dcm_pager *pg, void *addr, size_t bytes, int advice)
{
	u64 va = (u64)addr, end = va + bytes, len, gfn, next;
	int rc = 0;

	while (va < end) {
		next = dcm_guest_next(&pg->guest, va, end, &len, &gfn);
		if (next > va && syscall(SYS_madvise, va, next - va, advice))
			rc = -errno;
		va = next + len;
	}
	return rc;
}

int dcm_pager_owns(struct dcm_pager *pg, const void *addr, size_t bytes)
{
	u64 va = (u64)addr, len, gfn;

	dcm_guest_next(&pg->guest, va & ~(u64)(DCM_PAGE_SIZE - 1), va + bytes,
		       &len, &gfn);
	return len != 0;
}

uint64_t dcm_pager_extent(struct dcm_pager *pg, const void *addr)
{
	u64 gfn;

	if (!dcm_guest_gfn(&pg->guest, (u64)addr, &gfn) ||
	    gfn & (pg->vm->extent_pages - 1))
		return 0;
	return (u64)pg->vm->extent_pages << DCM_PAGE_SHIFT;
}

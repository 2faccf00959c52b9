// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * pins.c - pages that must stay where they are
 *
 * A byte a page: how often it is pinned, and whether it is held, because its
 * mapping may not be read just now (the pager could not take its bytes out), or
 * a system call is about to replace it.
 * Evictions look at it after they have said that they run (unmap_seq), and who
 * sets it waits for those that may not have seen it. Pins of I/O that the
 * program does not announce need none of this: UFFDIO_MOVE refuses them.
 *
 * Locking: the guest's lock for changes.
 */
#include <errno.h>

#include "../lib/inside.h"
#include "pager.h"
#include "covers.h"

#define PIN_MAX 63u

static int pins_take(struct dcm_pager *pg, u64 gfn, u64 nr)
{
	struct dcm_guest *g = &pg->guest;
	u64 limit = pg->budget_bytes >> (DCM_PAGE_SHIFT + 1), i, fresh = 0;

	for (i = 0; i < nr; i++) {
		if ((g->pins[gfn + i] & PIN_MAX) == PIN_MAX)
			return -EOVERFLOW;
		fresh += !g->pins[gfn + i];
	}
	if (g->pinned + fresh > limit)
		return -ENOMEM;
	__atomic_fetch_add(&g->pinned, fresh, __ATOMIC_SEQ_CST);
	for (i = 0; i < nr; i++)
		__atomic_fetch_add(&g->pins[gfn + i], 1, __ATOMIC_SEQ_CST);
	return 0;
}

/** dcm_pins_wait() - evictions that did not see a new pin are over */
void dcm_pins_wait(struct dcm_pager *pg)
{
	u32 i;

	for (i = 0; i < pg->nr_lanes; i++) {
		u32 *seq = &pg->lane[i].unmap_seq;
		u32 was = __atomic_load_n(seq, __ATOMIC_SEQ_CST);

		while ((was & 1) &&
		       __atomic_load_n(seq, __ATOMIC_SEQ_CST) == was)
			cpu_relax();
	}
}

/* Whole range paged, without holes: its first gfn, or a negative errno. */
static int range_gfn(struct dcm_pager *pg, void *addr, size_t bytes, u64 *gfn)
{
	u64 len;

	if (((u64)addr | bytes) & (DCM_PAGE_SIZE - 1) || !bytes)
		return -EINVAL;
	if (dcm_guest_next(&pg->guest, (u64)addr, (u64)addr + bytes, &len,
			   gfn) != (u64)addr ||
	    len != bytes)
		return -EFAULT;
	return 0;
}

int dcm_pager_pin(struct dcm_pager *pg, void *addr, size_t bytes)
{
	volatile const char *p = addr;
	sigset_t old;
	size_t off;
	u64 gfn;
	int rc = range_gfn(pg, addr, bytes, &gfn);

	if (rc)
		return rc;
	dcm_enter(&old);
	pthread_mutex_lock(&pg->guest.lock);
	rc = pins_take(pg, gfn, bytes >> DCM_PAGE_SHIFT);
	pthread_mutex_unlock(&pg->guest.lock);
	if (!rc)
		dcm_pins_wait(pg);
	dcm_leave(&old);
	/* Bring it in, with no lock held. */
	for (off = 0; !rc && off < bytes; off += DCM_PAGE_SIZE)
		(void)p[off];
	return rc;
}

int dcm_pager_unpin(struct dcm_pager *pg, void *addr, size_t bytes)
{
	struct dcm_guest *g = &pg->guest;
	u64 gfn, nr = bytes >> DCM_PAGE_SHIFT, i;
	int rc = range_gfn(pg, addr, bytes, &gfn);
	sigset_t old;

	if (rc)
		return rc;
	dcm_enter(&old);
	pthread_mutex_lock(&g->lock);
	for (i = 0; i < nr && !rc; i++)
		if (!(g->pins[gfn + i] & PIN_MAX))
			rc = -EINVAL;
	for (i = 0; i < nr && !rc; i++)
		if (!__atomic_sub_fetch(&g->pins[gfn + i], 1, __ATOMIC_SEQ_CST))
			__atomic_fetch_sub(&g->pinned, 1, __ATOMIC_SEQ_CST);
	pthread_mutex_unlock(&g->lock);
	dcm_leave(&old);
	return rc;
}

/**
 * dcm_pins_hold() - pages keep their place, or need not any more
 * @bit: why: DCM_PIN_HELD or DCM_PIN_CALL
 *
 * Under the guest's lock. To be sure of it call dcm_pins_wait().
 */
void dcm_pins_hold(struct dcm_guest *g, u64 gfn, u64 nr, u8 bit, bool hold)
{
	u64 i;

	for (i = gfn; i < gfn + nr; i++) {
		u8 was = __atomic_load_n(&g->pins[i], __ATOMIC_RELAXED);

		if (!!(was & bit) == hold)
			continue;
		__atomic_store_n(&g->pins[i], was ^ bit, __ATOMIC_SEQ_CST);
		if (hold && !was)
			__atomic_fetch_add(&g->pinned, 1, __ATOMIC_SEQ_CST);
		if (!hold && was == bit)
			__atomic_fetch_sub(&g->pinned, 1, __ATOMIC_SEQ_CST);
	}
}

/** dcm_pins_forget() - pages that are paged no more are not pinned either */
void dcm_pins_forget(struct dcm_guest *g, u64 gfn, u64 nr)
{
	u64 i;

	for (i = gfn; i < gfn + nr; i++)
		if (__atomic_exchange_n(&g->pins[i], 0, __ATOMIC_SEQ_CST))
			__atomic_fetch_sub(&g->pinned, 1, __ATOMIC_SEQ_CST);
}

/**
 * dcm_pager_hold() - what is there of a range stays, what is not may come
 *
 * For ranges that are about to lose their permission to be read.
 */
void dcm_pager_hold(struct dcm_pager *pg, void *addr, size_t bytes, bool hold)
{
	struct dcm_guest *g = &pg->guest;
	u64 va = (u64)addr, end = va + bytes, len, gfn;
	sigset_t old;

	dcm_enter(&old);
	pthread_mutex_lock(&g->lock);
	while ((va = dcm_guest_next(g, va, end, &len, &gfn)), len) {
		dcm_pins_hold(g, gfn, len >> DCM_PAGE_SHIFT, DCM_PIN_HELD,
			      hold);
		va += len;
	}
	pthread_mutex_unlock(&g->lock);
	if (hold)
		dcm_pins_wait(pg);
	dcm_leave(&old);
}

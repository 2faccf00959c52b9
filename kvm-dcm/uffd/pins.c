// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * pins.c - pages that must not be unmapped
 *
 * Each page has a byte: how often it is pinned, and two flags. %DCM_PIN_HELD: the
 * mapping may not be read just now, so the pager could not copy its bytes.
 * %DCM_PIN_CALL: a system call is about to replace the mapping. An eviction looks at
 * the byte after it has announced itself (unmap_seq), and the thread that sets the byte
 * waits for evictions that may not have seen it. Pages that the kernel pins for I/O
 * need no byte here: UFFDIO_MOVE refuses them.
 *
 * Locking: the guest's lock for changes.
 */
#include <errno.h>

#include "../lib/thread.h"
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

/** dcm_pins_wait() - wait for evictions that may not have seen a new pin */
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

/* Find the first gfn of a range, all of which must be paged. 0 or a negative errno. */
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
	dcm_thread_enter(&old);
	pthread_mutex_lock(&pg->guest.lock);
	rc = pins_take(pg, gfn, bytes >> DCM_PAGE_SHIFT);
	pthread_mutex_unlock(&pg->guest.lock);
	if (!rc)
		dcm_pins_wait(pg);
	dcm_thread_leave(&old);
	/* Touch the pages to bring them in, with no lock held. */
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
	dcm_thread_enter(&old);
	pthread_mutex_lock(&g->lock);
	for (i = 0; i < nr && !rc; i++)
		if (!(g->pins[gfn + i] & PIN_MAX))
			rc = -EINVAL;
	for (i = 0; i < nr && !rc; i++)
		if (!__atomic_sub_fetch(&g->pins[gfn + i], 1, __ATOMIC_SEQ_CST))
			__atomic_fetch_sub(&g->pinned, 1, __ATOMIC_SEQ_CST);
	pthread_mutex_unlock(&g->lock);
	dcm_thread_leave(&old);
	return rc;
}

/**
 * dcm_pins_hold() - set or clear a flag that keeps pages mapped
 * @bit: DCM_PIN_HELD or DCM_PIN_CALL
 *
 * Under the guest's lock. Evictions under way may miss it: dcm_pins_wait().
 */
void dcm_pins_hold(struct dcm_guest *g, u64 gfn, u64 nr, u8 bit, bool hold)
{
	u64 i;

	for (i = gfn; i < gfn + nr; i++) {
		u8 was = READ_ONCE(g->pins[i]);

		if (!!(was & bit) == hold)
			continue;
		__atomic_store_n(&g->pins[i], was ^ bit, __ATOMIC_SEQ_CST);
		if (hold && !was)
			__atomic_fetch_add(&g->pinned, 1, __ATOMIC_SEQ_CST);
		if (!hold && was == bit)
			__atomic_fetch_sub(&g->pinned, 1, __ATOMIC_SEQ_CST);
	}
}

/** dcm_pins_forget() - drop the pins of pages that are no longer paged */
void dcm_pins_forget(struct dcm_guest *g, u64 gfn, u64 nr)
{
	u64 i;

	for (i = gfn; i < gfn + nr; i++)
		if (__atomic_exchange_n(&g->pins[i], 0, __ATOMIC_SEQ_CST))
			__atomic_fetch_sub(&g->pinned, 1, __ATOMIC_SEQ_CST);
}

/**
 * dcm_pager_hold() - keep the mapped pages of a range mapped; others may still come in
 *
 * For ranges that are about to become unreadable.
 */
void dcm_pager_hold(struct dcm_pager *pg, void *addr, size_t bytes, bool hold)
{
	struct dcm_guest *g = &pg->guest;
	u64 va = (u64)addr, end = va + bytes, len, gfn;
	sigset_t old;

	dcm_thread_enter(&old);
	pthread_mutex_lock(&g->lock);
	while ((va = dcm_guest_next(g, va, end, &len, &gfn)), len) {
		dcm_pins_hold(g, gfn, len >> DCM_PAGE_SHIFT, DCM_PIN_HELD,
			      hold);
		va += len;
	}
	pthread_mutex_unlock(&g->lock);
	if (hold)
		dcm_pins_wait(pg);
	dcm_thread_leave(&old);
}

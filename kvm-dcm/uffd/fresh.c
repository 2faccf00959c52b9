// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * fresh.c - the core's operation that maps many new pages at once
 *
 * A run of 2 MiB becomes a huge page if possible: the kernel makes it in the lane's
 * *nursery*, an aligned 2 MiB of libdcm's own with MADV_HUGEPAGE, and UFFDIO_MOVE moves
 * it as a whole to its place. All other runs are mapped as zeroes by UFFDIO_COPY: runs
 * of other lengths, on kernels without MOVE, if no huge page is free, and in spans
 * where the kernel maps, or has mapped, single pages (dcm_guest.small).
 *
 * If the span has a page table, even an empty one, MOVE splits the huge page, which
 * costs twice as much as COPY. The fault itself has made such a table. MADV_DONTNEED
 * frees it (since Linux 6.14), unless another thread's fault in the span makes it
 * again. When MOVE has split a huge page the nursery is left with a page table, too,
 * and can hold no huge page any more: it is mapped anew, and a number of runs, more
 * each time, come without a huge page. On an older kernel one run in 64 is tried.
 *
 * The kernel splits a huge page when its first page is moved out, at an eviction. No
 * clean page is part of one: clean pages come by COPY.
 *
 * If any page of the run is pinned, or if anything is frozen, no run is mapped.
 *
 * Locking: none; the blocks are BUSY, and the nursery is the lane's own.
 */
#include <errno.h>
#include <sys/mman.h>

#include "../core/internal.h"
#include "op.h"
#include "pages.h"

#define SPAN_BYTES ((u64)DCM_PAGE_SIZE << DCM_SPAN_SHIFT)
/* at most so many runs without a try, after failed ones */
#define PAUSE_MAX 64u

static void nurseries_advise(void *p, u64 bytes)
{
	madvise(p, bytes, MADV_HUGEPAGE);
	madvise(p, bytes, MADV_DONTFORK);
	madvise(p, bytes, MADV_DONTDUMP);
}

int dcm_fresh_init(struct dcm_pager *pg)
{
	u64 bytes = pg->nr_lanes * SPAN_BYTES;
	void *p = dcm_map_aligned(bytes);
	u32 i;

	if (!p)
		return -ENOMEM;
	pg->nurseries = p;
	nurseries_advise(p, bytes);
	for (i = 0; i < pg->nr_lanes; i++)
		pg->lane[i].nursery = (u64)p + i * SPAN_BYTES;
	return 0;
}

void dcm_fresh_free(struct dcm_pager *pg)
{
	if (pg->nurseries)
		munmap(pg->nurseries, pg->nr_lanes * SPAN_BYTES);
}

static void span_drop(struct dcm_pager *pg, u64 va)
{
	struct iovec iov = { (void *)va, SPAN_BYTES };

	dcm_uffd_drop(&pg->uffd, &iov, 1);
}

/* Map the nursery anew, without pages or page table; and pause before the next try. */
static void nursery_renew(struct dcm_pg_lane *l)
{
	void *p = (void *)l->nursery;

	if (mmap(p, SPAN_BYTES, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
		 0) != MAP_FAILED)
		nurseries_advise(p, SPAN_BYTES);
	l->huge_fails = min(2 * l->huge_fails + 1, PAUSE_MAX);
	l->huge_pause = l->huge_fails;
	l->huge_worked = false;
}

/* Are all pages of the nursery there after one touch: is it a huge page? */
static bool nursery_is_whole(const struct dcm_pg_lane *l)
{
	unsigned char there[DCM_SPAN_PAGES];
	u32 i;

	if (mincore((void *)l->nursery, SPAN_BYTES, there))
		return false;
	for (i = 0; i < DCM_SPAN_PAGES; i++)
		if (!(there[i] & 1))
			return false;
	return true;
}

static bool span_may_be_huge(const struct dcm_guest *g, u32 gfn, u32 nr)
{
	u32 i;

	if (nr != DCM_SPAN_PAGES || dcm_guest_va(g, gfn) & (SPAN_BYTES - 1) ||
	    READ_ONCE(g->small[gfn >> DCM_SPAN_SHIFT]))
		return false;
	for (i = 0; i < nr; i += DCM_BLOCK_MAX)
		if (READ_ONCE(g->hole[(gfn + i) >> DCM_ORDER_MAX]))
			return false;
	return true;
}

/* Map a span as a huge page. False: it failed; pages that were moved stay mapped. */
static bool span_map_huge(struct dcm_pg_lane *l, u32 gfn)
{
	struct dcm_pager *pg = l->pg;
	u64 va = dcm_guest_va(&pg->guest, gfn), moved;

	if (!pg->uffd.move)
		return false;
	if (l->huge_pause) {
		l->huge_pause--;
		return false;
	}
	WRITE_ONCE(*(u8 *)l->nursery, 0);
	if (!nursery_is_whole(l)) {
		nursery_renew(l);
		return false;
	}
	/* the last MOVE did not split its huge page: the nursery holds one again */
	if (l->huge_worked)
		l->huge_fails = 0;
	l->huge_worked = true;
	/* nothing is mapped there: this is to free the span's page table */
	span_drop(pg, va);
	if (dcm_uffd_move(&pg->uffd, va, l->nursery, SPAN_BYTES, true,
			  &moved)) {
		span_drop(pg, l->nursery);
		return false;
	}
	WRITE_ONCE(l->huge, l->huge + 1);
	return true;
}

/* Is any of these pages pinned, or any page at all frozen? */
static bool pages_held(const struct dcm_guest *g, u32 gfn, u32 nr)
{
	u32 i;

	if (__atomic_load_n(&g->any_frozen, __ATOMIC_SEQ_CST))
		return true;
	for (i = 0; i < nr; i++)
		if (READ_ONCE(g->pins[gfn + i]))
			return true;
	return false;
}

int dcm_op_fresh(struct dcm_lane *lane, u32 gfn, u32 nr)
{
	struct dcm_pager *pg = pager_of(lane);
	struct dcm_pg_lane *l = pg_lane_of(lane);
	u32 at, end = gfn + nr, n;

	if (pages_held(&pg->guest, gfn, nr))
		return -EBUSY;
	if (span_may_be_huge(&pg->guest, gfn, nr) && span_map_huge(l, gfn))
		return 0;
	dcm_guest_small(&pg->guest, gfn);
	for (at = gfn; at < end; at += n) {
		u16 done = 0;
		int err;

		n = dcm_guest_piece(at, end);
		err = dcm_pages_copy_in(pg, dcm_guest_va(&pg->guest, at), NULL,
					dcm_guest_pages(&pg->guest, at, n), 0,
					&done);
		if (err) {
			dcm_op_discard(lane, gfn, at + n - gfn);
			return err;
		}
	}
	return 0;
}

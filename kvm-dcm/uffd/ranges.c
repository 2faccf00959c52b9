// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * ranges.c - ranges of paged memory, and the map between addresses and gfns
 *
 * Paged memory is private and anonymous, in one or more ranges. A range
 * takes whole, adjacent 2 MiB spans of gfn space. So a gfn leads to an address
 * by one table look-up, which every eviction needs; an address leads to a gfn
 * by bisection, once a fault. Pages of a range that were unmapped since, and
 * the rest of its last span, are holes: the core may count them into a block,
 * and every operation leaves them out. So a range keeps its numbering for as
 * long as any page of it lives.
 *
 *	addresses    |----range A----|   |-range B-|
 *	gfn spans    [  0  ][  1  ][ 2....][  3  ]      '.' holes
 *
 * Locking: @lock for changes. Readers of @range use @seq; the other tables
 * are single words, changed only while no fault on their pages can be taken. Pages
 * are discarded by dcm_discard() on the discard lane, in the calling thread, with
 * signals blocked: a signal handler that touched paged memory would wait for a
 * lane, which may wait for a lock that this thread holds.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pager.h"
#include "slab_worker.h"

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif

int dcm_guest_init(struct dcm_pager *pg, u64 nr_pages)
{
	struct dcm_guest *g = &pg->guest;

	pthread_mutex_init(&g->lock, NULL);
	g->nr_spans = (u32)(nr_pages >> DCM_SPAN_SHIFT);
	g->range = vzalloc(sizeof(*g->range) * DCM_RANGES_MAX);
	g->base = vzalloc(sizeof(*g->base) * g->nr_spans);
	g->hole = vzalloc(nr_pages / 16 * sizeof(*g->hole));
	g->pins = vzalloc(nr_pages);
	g->bus = vzalloc(nr_pages / 8);
	g->used = vzalloc(g->nr_spans);
	g->small = vzalloc(g->nr_spans);
	g->frozen = vzalloc(nr_pages / DCM_BLOCK_MAX / 8 + 1);
	if (!g->range || !g->base || !g->hole || !g->pins || !g->bus ||
	    !g->used || !g->small || !g->frozen)
		return -ENOMEM;
	return 0;
}

void dcm_guest_free(struct dcm_pager *pg)
{
	struct dcm_guest *g = &pg->guest;
	u32 i;

	for (i = 0; i < g->nr; i++) {
		struct dcm_range *r = &g->range[i];

		if (r->mapped)
			munmap((void *)r->va, r->nr << DCM_PAGE_SHIFT);
	}
	vfree(g->range);
	vfree(g->base);
	vfree(g->hole);
	vfree(g->pins);
	vfree(g->bus);
	vfree(g->used);
	vfree(g->small);
	vfree(g->frozen);
}

/* First range that ends after @va. Under the lock, or checked by @seq. */
static u32 range_find(const struct dcm_guest *g, u64 va)
{
	u32 lo = 0, hi = smp_load_acquire(&g->nr);

	while (lo < hi) {
		u32 mid = (lo + hi) / 2;
		const struct dcm_range *r = &g->range[mid];

		if (smp_load_acquire(&r->va) +
			    (smp_load_acquire(&r->nr) << DCM_PAGE_SHIFT) <=
		    va)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static bool page_hole(const struct dcm_guest *g, u64 gfn)
{
	return READ_ONCE(g->hole[gfn >> 4]) & (1u << (gfn & 15));
}

/** dcm_guest_gfn() - the gfn of an address; false if it is not paged */
bool dcm_guest_gfn(const struct dcm_guest *g, u64 va, u64 *gfn)
{
	u32 seq, i;
	bool found;

	do {
		seq = smp_load_acquire(&g->seq);
		if (seq & 1) {
			cpu_relax();
			continue;
		}
		i = range_find(g, va);
		found = i < smp_load_acquire(&g->nr) &&
			smp_load_acquire(&g->range[i].va) <= va;
		if (found)
			*gfn = smp_load_acquire(&g->range[i].gfn) +
			       ((va - smp_load_acquire(&g->range[i].va)) >>
				DCM_PAGE_SHIFT);
	} while ((seq & 1) || READ_ONCE(g->seq) != seq);
	return found && !page_hole(g, *gfn);
}

/**
 * dcm_guest_next() - the next part of paged memory in [@va, @end)
 * @len: its bytes, 0: there is none
 * @gfn: its first page
 *
 * Return: its address. It has no holes.
 */
u64 dcm_guest_next(const struct dcm_guest *g, u64 va, u64 end, u64 *len,
		   u64 *gfn)
{
	*len = 0;
	while (va < end) {
		u64 n = 0, page, rva, rnr, rgfn;
		u32 i, seq;
		bool found;

		do {
			seq = smp_load_acquire(&g->seq);
			i = range_find(g, va);
			found = i < smp_load_acquire(&g->nr);
			rva = found ? smp_load_acquire(&g->range[i].va) : 0;
			rnr = found ? smp_load_acquire(&g->range[i].nr) : 0;
			rgfn = found ? smp_load_acquire(&g->range[i].gfn) : 0;
				if (seq & 1)
				cpu_relax();
		} while ((seq & 1) || READ_ONCE(g->seq) != seq);
		if (!found || rva >= end)
			return end;
		if (va < rva)
			va = rva;
		page = (va - rva) >> DCM_PAGE_SHIFT;
		while (page < rnr && va < end && page_hole(g, rgfn + page)) {
			page++;
			va += DCM_PAGE_SIZE;
		}
		while (page + n < rnr && va + (n << DCM_PAGE_SHIFT) < end &&
		       !page_hole(g, rgfn + page + n))
			n++;
		if (n) {
			*len = n << DCM_PAGE_SHIFT;
			*gfn = rgfn + page;
			return va;
		}
	}
	return end;
}

static void page_set_hole(struct dcm_guest *g, u64 gfn, u64 nr, bool hole)
{
	u64 i;

	for (i = gfn; i < gfn + nr;) {
		u16 bit = (u16)(1u << (i & 15));

		if (!(i & 15) && i + 16 <= gfn + nr) {
			WRITE_ONCE(g->hole[i >> 4], hole ? 0xffff : 0);
			i += 16;
			continue;
		}
		if (hole)
			__atomic_fetch_or(&g->hole[i >> 4], bit,
					  __ATOMIC_SEQ_CST);
		else
			__atomic_fetch_and(&g->hole[i >> 4], (u16)~bit,
					   __ATOMIC_SEQ_CST);
		i++;
	}
}

/* Find free spans: first fit, from the end of the last allocation, then from 0. */
static bool spans_find(struct dcm_guest *g, u32 want, u32 *first)
{
	u32 start = g->next_span, i, run = 0, pass;

	for (pass = 0; pass < 2; pass++) {
		run = 0;
		for (i = pass ? 0 : start; i < g->nr_spans; i++) {
			run = g->base[i] ? 0 : run + 1;
			if (run == want) {
				*first = i + 1 - want;
				g->next_span = i + 1;
				return true;
			}
		}
	}
	return false;
}

static int range_prepare(struct dcm_pager *pg, u64 va, u64 bytes)
{
	void *p = (void *)va;

	/* A huge page could not be evicted in pieces. */
	madvise(p, bytes, MADV_NOHUGEPAGE);
	/* Else fork() would share pages, and copy-on-write would double them. */
	if (madvise(p, bytes, MADV_DONTFORK) ||
	    madvise(p, bytes, MADV_DONTNEED))
		return -errno;
	prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, va, bytes, "dcm:guest");
	return dcm_uffd_register(&pg->uffd, va, bytes, true);
}

/** dcm_guest_renew() - make a page with a replaced mapping paged memory again */
void dcm_guest_renew(struct dcm_pager *pg, u64 va)
{
	if (mmap((void *)va, DCM_PAGE_SIZE, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
		 0) != MAP_FAILED)
		range_prepare(pg, va, DCM_PAGE_SIZE);
}

/* Make holes of an existing range paged memory again. */
static int range_refill(struct dcm_pager *pg, struct dcm_range *r, u64 va,
			 u64 nr)
{
	struct dcm_guest *g = &pg->guest;
	u64 gfn = r->gfn + ((va - r->va) >> DCM_PAGE_SHIFT), i;
	int err;

	for (i = 0; i < nr; i++)
		if (!page_hole(g, gfn + i))
			return -EEXIST;
	/* Before a fault can arrive. */
	page_set_hole(g, gfn, nr, false);
	r->holes -= (u32)nr;
	err = range_prepare(pg, va, nr << DCM_PAGE_SHIFT);
	if (err) {
		page_set_hole(g, gfn, nr, true);
		r->holes += (u32)nr;
	}
	return err;
}

/**
 * dcm_guest_add() - put mapped anonymous memory under the pager
 * @va: first byte
 * @nr: pages
 * @mapped: dcm_guest_free() should unmap it
 */
int dcm_guest_add(struct dcm_pager *pg, u64 va, u64 nr, bool mapped)
{
	struct dcm_guest *g = &pg->guest;
	u64 end = va + (nr << DCM_PAGE_SHIFT), spans, k;
	struct dcm_range *r;
	u32 i, first;
	int err = 0;

	if (!nr || (va & (DCM_PAGE_SIZE - 1)))
		return -EINVAL;
	pthread_mutex_lock(&g->lock);
	i = range_find(g, va);
	r = &g->range[i];
	if (i < g->nr && r->va < end) {
		if (r->va <= va && end <= r->va + (r->nr << DCM_PAGE_SHIFT))
			err = range_refill(pg, r, va, nr);
		else
			err = -EEXIST;
		goto out;
	}
	spans = (nr + DCM_SPAN_PAGES - 1) >> DCM_SPAN_SHIFT;
	if (g->nr == DCM_RANGES_MAX || spans > g->nr_spans ||
	    !spans_find(g, (u32)spans, &first)) {
		err = -ENOSPC;
		goto out;
	}
	for (k = 0; k < spans; k++) {
		g->base[first + k] =
			va + (k << (DCM_SPAN_SHIFT + DCM_PAGE_SHIFT));
		g->small[first + k] = 0;
	}
	page_set_hole(g, (u64)first << DCM_SPAN_SHIFT, nr, false);
	page_set_hole(g, ((u64)first << DCM_SPAN_SHIFT) + nr,
		 (spans << DCM_SPAN_SHIFT) - nr, true);
	__atomic_store_n(&g->seq, g->seq + 1, __ATOMIC_SEQ_CST);
	memmove(r + 1, r, (g->nr - i) * sizeof(*r));
	*r = (struct dcm_range){
		.va = va,
		.nr = nr,
		.gfn = first << DCM_SPAN_SHIFT,
		.mapped = mapped,
	};
	WRITE_ONCE(g->nr, g->nr + 1);
	__atomic_store_n(&g->seq, g->seq + 1, __ATOMIC_SEQ_CST);
	err = range_prepare(pg, va, nr << DCM_PAGE_SHIFT);
	if (err) {
		__atomic_store_n(&g->seq, g->seq + 1, __ATOMIC_SEQ_CST);
		memmove(r, r + 1, (g->nr - i - 1) * sizeof(*r));
		WRITE_ONCE(g->nr, g->nr - 1);
		__atomic_store_n(&g->seq, g->seq + 1, __ATOMIC_SEQ_CST);
		for (k = 0; k < spans; k++)
			g->base[first + k] = 0;
	}
out:
	pthread_mutex_unlock(&g->lock);
	return err;
}

/*
 * Discard pages, on the discard lane. The caller has blocked signals, and its stack is
 * not paged memory.
 */
static void pages_discard(struct dcm_pager *pg, u64 gfn, u64 nr)
{
	struct dcm_pg_lane *l = dcm_discard_lane(pg);
	u64 end = gfn + nr, next;

	pthread_mutex_lock(&pg->discard_lock);
	for (; gfn < end; gfn = next) {
		next = min((gfn | (DCM_SPAN_PAGES - 1)) + 1, end);
		if (__atomic_load_n(&pg->guest.used[gfn >> DCM_SPAN_SHIFT],
				    __ATOMIC_SEQ_CST))
			dcm_discard(l->core, gfn, next - gfn);
	}
	dcm_lane_drain(l);
	pthread_mutex_unlock(&pg->discard_lock);
}

/** dcm_guest_discard() - make all paged memory of a range read as zero */
void dcm_guest_discard(struct dcm_pager *pg, u64 va, u64 nr)
{
	u64 end = va + (nr << DCM_PAGE_SHIFT), len, gfn;

	while ((va = dcm_guest_next(&pg->guest, va, end, &len, &gfn)), len) {
		pages_discard(pg, gfn, len >> DCM_PAGE_SHIFT);
		va += len;
	}
}

/**
 * dcm_guest_hint() - pass a hint about the use of paged memory to the core
 * @pg: the pager
 * @va: first byte
 * @bytes: how many; memory that is not paged is skipped
 * @what: the hint
 *
 * On the discard lane, as pages_discard().
 */
void dcm_guest_hint(struct dcm_pager *pg, u64 va, u64 bytes, enum dcm_hint what)
{
	struct dcm_pg_lane *l = dcm_discard_lane(pg);
	u64 end = va + bytes, len, gfn;

	pthread_mutex_lock(&pg->discard_lock);
	while ((va = dcm_guest_next(&pg->guest, va, end, &len, &gfn)), len) {
		dcm_hint(l->core, gfn, len >> DCM_PAGE_SHIFT, what);
		va += len;
	}
	pthread_mutex_unlock(&pg->discard_lock);
	if (what == DCM_HINT_FETCH)
		dcm_pg_worker_wake(pg);
}

/*
 * Remove range @i, which has no page left. Its gfns are NotDirect and never written, as
 * at first, and may be used for another range.
 */
static void range_drop(struct dcm_guest *g, u32 i)
{
	struct dcm_range *r = &g->range[i];
	u32 first = r->gfn >> DCM_SPAN_SHIFT;
	u64 spans = (r->nr + DCM_SPAN_PAGES - 1) >> DCM_SPAN_SHIFT, k;

	__atomic_store_n(&g->seq, g->seq + 1, __ATOMIC_SEQ_CST);
	memmove(r, r + 1, (g->nr - i - 1) * sizeof(*r));
	WRITE_ONCE(g->nr, g->nr - 1);
	__atomic_store_n(&g->seq, g->seq + 1, __ATOMIC_SEQ_CST);
	for (k = 0; k < spans; k++)
		g->base[first + k] = 0;
}

/*
 * Stop paging the pages of one part: make them holes, then discard them in the core.
 * Holes are not unmapped, so whatever is mapped at these addresses stays.
 */
static void pages_forget(struct dcm_pager *pg, u64 va, u64 gfn, u64 nr)
{
	struct dcm_guest *g = &pg->guest;
	u32 i = range_find(g, va);
	u64 k;

	page_set_hole(g, gfn, nr, true);
	dcm_pins_forget(g, gfn, nr);
	for (k = gfn; k < gfn + nr; k++)
		__atomic_fetch_and(&g->bus[k / 8], (u8) ~(1u << (k % 8)),
				   __ATOMIC_SEQ_CST);
	pages_discard(pg, gfn, nr);
	g->range[i].holes += (u32)nr;
	if (g->range[i].holes == g->range[i].nr)
		range_drop(g, i);
}

/**
 * dcm_guest_punch() - stop paging the pages of a range
 *
 * They stay mapped, as ordinary empty memory.
 */
int dcm_guest_punch(struct dcm_pager *pg, u64 va, u64 nr)
{
	struct dcm_guest *g = &pg->guest;
	u64 end = va + (nr << DCM_PAGE_SHIFT), len, gfn;

	pthread_mutex_lock(&g->lock);
	while ((va = dcm_guest_next(g, va, end, &len, &gfn)), len) {
		/* A fault after this may map a page; pages_forget() discards it. */
		pages_discard(pg, gfn, len >> DCM_PAGE_SHIFT);
		pages_forget(pg, va, gfn, len >> DCM_PAGE_SHIFT);
		dcm_uffd_unregister(&pg->uffd, va, len);
		dcm_uffd_wake(&pg->uffd, va, len);
		va += len;
	}
	pthread_mutex_unlock(&g->lock);
	return 0;
}

/*
 * Has a system call that failed unmapped this range? Before Linux 6.17 mremap() unmaps
 * its target before it checks whether it can map there.
 */
static bool range_is_unmapped(u64 va, u64 bytes)
{
	return msync((void *)va, bytes, MS_ASYNC) && errno == ENOMEM;
}

/**
 * dcm_guest_replace() - have the kernel unmap or map over a range
 * @call: the system call
 *
 * If it succeeds the range is no longer paged; if it fails nothing changes: the
 * kernel replaces the mapping first, the core forgets its pages after that. No
 * page of the range is evicted meanwhile, since that would read the new
 * mapping, or drop its pages; and none can be installed, since the new mapping
 * is not registered with userfaultfd.
 *
 * Return: what the call returned, or its negative errno.
 */
long dcm_guest_replace(struct dcm_pager *pg, u64 va, u64 nr,
		       const struct dcm_map_call *call)
{
	struct dcm_guest *g = &pg->guest;
	u64 end = va + (nr << DCM_PAGE_SHIFT), at, len, gfn;
	long rc;

	/* So that no access to lost memory maps a file there meanwhile (lost.c). */
	pthread_mutex_lock(&pg->lost_lock);
	pthread_mutex_lock(&g->lock);
	for (at = va; (at = dcm_guest_next(g, at, end, &len, &gfn)), len;
	     at += len)
		dcm_pins_hold(g, gfn, len >> DCM_PAGE_SHIFT, DCM_PIN_CALL,
			      true);
	dcm_pins_wait(pg);
	rc = syscall(call->nr, call->arg[0], call->arg[1], call->arg[2],
		     call->arg[3], call->arg[4]);
	if (rc == -1)
		rc = -errno;
	for (at = va; (at = dcm_guest_next(g, at, end, &len, &gfn)), len;
	     at += len) {
		if (rc >= 0 || range_is_unmapped(at, len)) {
			pages_forget(pg, at, gfn, len >> DCM_PAGE_SHIFT);
			/* Threads that fault on the old mapping try again. */
			dcm_uffd_wake(&pg->uffd, at, len);
		} else {
			dcm_pins_hold(g, gfn, len >> DCM_PAGE_SHIFT,
				      DCM_PIN_CALL, false);
		}
	}
	pthread_mutex_unlock(&g->lock);
	pthread_mutex_unlock(&pg->lost_lock);
	return rc;
}

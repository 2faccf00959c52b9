// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * gc_pages.c - freeze, sync and thaw the pages of a GC window for donors' GC workers
 *
 * semeru-osdi20, 4.1 unmaps the pages a memory server is about to move and
 * brings them back by its swap; here the pager keeps accesses out. The lane
 * that takes a fault on a frozen page puts it aside, as a fault that found no
 * free frame, and tries it again every millisecond. So only threads that touch
 * the page wait, and no longer than the freeze lasts. An extent with a frozen page
 * is neither moved off its slab nor filled.
 *
 *	freeze: bits set, lanes that were in a fault have left it
 *	sync: written to the donor; unmapped, frames given back, or kept
 *	... the donor works ...
 *	spread: its changes are copied to the extents' other slabs; or reverted
 *	release: bits cleared, lanes retry, and fetch the donor's result
 *
 * Locking: only the GC thread sets and clears bits. A lane announces that it is
 * in a fault before it reads the bits, and the GC thread looks at the lanes
 * after it has set them: one sees the other; so does the slab worker around a fill.
 * Syncing and spreading are done on the discard lane, under its lock.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "slab_worker.h"
#include "../gc/backend.h"
#include "../lib/log.h"
#include "../lib/thread.h"

#define BUSY_US 1000u
/* try so often, for about 3 s, to sync a page that I/O uses */
#define BUSY_TRIES 3000u

/* A window that begins at @base in a pager's memory. */
struct paged {
	struct dcm_pager *pg;
	u64 base;
};

static void frozen_set(struct dcm_guest *g, u64 gfn, u64 nr, bool frozen)
{
	u64 end = gfn + nr;

	for (gfn >>= DCM_ORDER_MAX; gfn << DCM_ORDER_MAX < end; gfn++) {
		u8 bit = (u8)(1u << (gfn & 7));

		if (frozen)
			__atomic_fetch_or(&g->frozen[gfn >> 3], bit,
					  __ATOMIC_SEQ_CST);
		else
			__atomic_fetch_and(&g->frozen[gfn >> 3], (u8)~bit,
					   __ATOMIC_SEQ_CST);
	}
}

/* Wait for lanes that took a fault before the bits were set. */
static void lanes_wait(struct dcm_pager *pg)
{
	/* and for the slab worker's lane, which fills and brings pages in ahead */
	for (u32 i = 0; i <= pg->nr_fault; i++) {
		u32 *seq = &pg->lane[i].fault_seq;
		u32 was = __atomic_load_n(seq, __ATOMIC_SEQ_CST);

		while (was & 1 && __atomic_load_n(seq, __ATOMIC_SEQ_CST) == was)
			sched_yield();
	}
}

static u32 paged_freeze(void *priv, u64 at, u64 bytes)
{
	const struct paged *p = priv;
	struct dcm_guest *g = &p->pg->guest;
	u64 va = p->base + at, end = va + bytes, len, gfn;

	__atomic_store_n(&g->any_frozen, true, __ATOMIC_SEQ_CST);
	while ((va = dcm_guest_next(g, va, end, &len, &gfn)), len) {
		frozen_set(g, gfn, len >> DCM_PAGE_SHIFT, true);
		va += len;
	}
	lanes_wait(p->pg);
	return VIRTIO_GC_OK;
}

static void paged_thaw(void *priv)
{
	struct dcm_pager *pg = ((struct paged *)priv)->pg;
	struct dcm_guest *g = &pg->guest;
	u64 bytes = (u64)g->nr_spans << (DCM_SPAN_SHIFT - DCM_ORDER_MAX - 3);

	if (!g->any_frozen)
		return;
	for (u64 i = 0; i < bytes; i++)
		if (g->frozen[i])
			__atomic_store_n(&g->frozen[i], 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&g->any_frozen, false, __ATOMIC_SEQ_CST);
	for (u32 i = 0; i < pg->nr_fault; i++)
		dcm_lane_kick(&pg->lane[i]);
}

/*
 * Under the discard lane's lock. A page in use by I/O can't be unmapped; most
 * are so only for a moment (the kernel reads them), so wait and retry. Tries are counted,
 * not time: each may have waited seconds for a donor.
 */
static int pages_sync(struct dcm_pager *pg, u64 *gfn, u64 end,
		      enum dcm_sync_how how, u64 until_ns)
{
	struct dcm_pg_lane *l = dcm_discard_lane(pg);
	u32 tries = 0;
	u64 from;
	int err;

	for (;;) {
		from = *gfn;
		err = dcm_sync(l->core, gfn, end, how, until_ns);
		if (*gfn != from)
			tries = 0;
		if (err != -EBUSY || tries++ == BUSY_TRIES ||
		    dcm_now_ns() >= until_ns)
			return err;
		usleep(BUSY_US);
	}
}

static u32 paged_sync(void *priv, u64 *at, u64 to, enum dcm_gc_sync how,
		      u64 until_ms)
{
	static const enum dcm_sync_how ways[] = {
		[DCM_GC_SYNC_OUT] = DCM_SYNC_OUT,
		[DCM_GC_SYNC_KEEP] = DCM_SYNC_KEEP,
		[DCM_GC_SYNC_EXACT] = DCM_SYNC_EXACT,
	};
	const struct paged *p = priv;
	struct dcm_pager *pg = p->pg;
	struct dcm_pg_lane *l = dcm_discard_lane(pg);
	u64 va = p->base + *at, end = p->base + to, len, gfn, from, i;
	int err = 0;

	pthread_mutex_lock(&pg->discard_lock);
	while (!err &&
	       ((va = dcm_guest_next(&pg->guest, va, end, &len, &gfn)), len)) {
		for (i = gfn; i < gfn + (len >> DCM_PAGE_SHIFT);
		     i += DCM_SPAN_PAGES)
			__atomic_store_n(&pg->guest.used[i >> DCM_SPAN_SHIFT],
					 1, __ATOMIC_SEQ_CST);
		from = gfn;
		err = pages_sync(pg, &gfn, from + (len >> DCM_PAGE_SHIFT),
				 ways[how], until_ms * 1000000);
		va += (gfn - from) << DCM_PAGE_SHIFT;
	}
	*at = err ? va - p->base : to;
	dcm_lane_drain(l);
	pthread_mutex_unlock(&pg->discard_lock);
	switch (err) {
	case 0:
		return VIRTIO_GC_OK;
	case -EIO:
		return VIRTIO_GC_DONOR_LOST;
	case -EBUSY:
		return VIRTIO_GC_BUSY;
	default:
		return VIRTIO_GC_TIMED_OUT;
	}
}

/* Call dcm_spread(), dcm_revert() or dcm_keep() until a range is done, or @until_ns. */
static int paged_step_all(const struct paged *p, u64 at, u64 to, u64 until_ns,
			  int (*step)(struct dcm_lane *lane, u64 *gfn, u64 end))
{
	struct dcm_pager *pg = p->pg;
	struct dcm_pg_lane *l = dcm_discard_lane(pg);
	u64 va = p->base + at, end = p->base + to, len, gfn, last, from;
	int err = 0;

	pthread_mutex_lock(&pg->discard_lock);
	while (!err &&
	       ((va = dcm_guest_next(&pg->guest, va, end, &len, &gfn)), len)) {
		last = gfn + (len >> DCM_PAGE_SHIFT);
		va += len;
		while ((from = gfn), (err = step(l->core, &gfn, last))) {
			if (dcm_now_ns() >= until_ns) {
				err = -ETIMEDOUT;
				break;
			}
			/* no progress and nothing in flight: a donor does not answer */
			if (gfn == from && !dcm_pending(l->core))
				usleep(BUSY_US);
		}
	}
	pthread_mutex_unlock(&pg->discard_lock);
	return err;
}

static u32 paged_spread(void *priv, u64 at, u64 end, u64 until_ms)
{
	return paged_step_all(priv, at, end, until_ms * 1000000, dcm_spread) ?
		       VIRTIO_GC_TIMED_OUT :
		       VIRTIO_GC_OK;
}

/*
 * Revert or @keep a range. Has no time limit: it only waits for operations under way,
 * and these end, at the latest when a silent donor's connection is given up.
 */
static void paged_revert(void *priv, u64 at, u64 end, bool keep)
{
	paged_step_all(priv, at, end, U64_MAX, keep ? dcm_keep : dcm_revert);
}

static bool paged_losing(void *priv)
{
	return dcm_slab_worker_losing(&((struct paged *)priv)->pg->slabs);
}

static void paged_hint(void *priv, u64 at, u64 bytes, u32 what)
{
	static const enum dcm_hint hints[] = {
		[VIRTIO_GC_HINT_DIRECT] = DCM_HINT_DIRECT,
		[VIRTIO_GC_HINT_NORMAL] = DCM_HINT_NORMAL,
		[VIRTIO_GC_HINT_COLD] = DCM_HINT_COLD,
		[VIRTIO_GC_HINT_FETCH] = DCM_HINT_FETCH,
	};
	const struct paged *p = priv;

	dcm_guest_hint(p->pg, p->base + at, bytes, hints[what]);
}

static void paged_forget(void *priv, u64 at, u64 bytes)
{
	const struct paged *p = priv;

	dcm_guest_hint(p->pg, p->base + at, bytes, DCM_HINT_FORGET);
}

static int paged_discard(void *priv, u64 at, u64 bytes)
{
	const struct paged *p = priv;

	return dcm_pager_discard(p->pg, (void *)(p->base + at), bytes);
}

static bool paged_place(void *priv, u64 at, struct dcm_gc_place_of *place)
{
	const struct paged *p = priv;
	u32 pages = p->pg->vm->extent_pages;
	u64 gfn;

	if (!dcm_guest_gfn(&p->pg->guest, p->base + at, &gfn) ||
	    !dcm_slab_worker_where(&p->pg->slabs, (u32)(gfn / pages),
				   &place->donor, &place->slab))
		return false;
	place->offset = (gfn & (pages - 1)) << DCM_PAGE_SHIFT;
	return true;
}

static bool paged_write_count(void *priv, u64 at, u64 bytes,
		      const struct dcm_gc_place_of *place, u32 *count)
{
	(void)at;
	*count = dcm_client_write_count(((struct paged *)priv)->pg->client,
					place->donor, place->slab,
					place->offset, bytes);
	return true;
}

/* Writes to paged memory, which no other function of libdcm does. */
static void paged_bits(void *priv, u64 at, const void *bits, size_t bytes)
{
	memcpy((void *)(((struct paged *)priv)->base + at), bits, bytes);
}

static u64 paged_budget(void *priv)
{
	return dcm_pager_budget(((struct paged *)priv)->pg);
}

static void paged_end(void *priv)
{
	free(priv);
}

static const struct dcm_gc_backend_ops paged_ops = {
	.freeze = paged_freeze,
	.thaw = paged_thaw,
	.sync = paged_sync,
	.spread = paged_spread,
	.revert = paged_revert,
	.losing = paged_losing,
	.hint = paged_hint,
	.forget = paged_forget,
	.discard = paged_discard,
	.place = paged_place,
	.write_count = paged_write_count,
	.bits = paged_bits,
	.budget = paged_budget,
	.end = paged_end,
};

uint64_t dcm_gc_host_limits(struct dcm_pager *pg, struct virtio_gc_config *c)
{
	u64 extent = (u64)pg->vm->extent_pages << DCM_PAGE_SHIFT;
	u64 bytes = (u64)pg->vm->nr_pages << DCM_PAGE_SHIFT;

	return dcm_gc_config_fill(dcm_pager_donors(pg), bytes & ~(extent - 1),
				  extent, c);
}

/* Refuse a GC window; also log why, as a runtime's library may not pass @err on. */
static struct dcm_gc_host *gc_refuse(const struct dcm_pager *pg, char *err,
				     size_t len, const char *why)
{
	snprintf(err, len, "%s", why);
	dcm_log(DCM_LOG_WARNING, "%s: %s", pg->slabs.name, why);
	/* The runtime may end the process before the log thread runs. */
	dcm_log_flush(1000);
	errno = EOPNOTSUPP;
	return NULL;
}

struct dcm_gc_host *dcm_gc_host_open(struct dcm_pager *pg, void *window,
				     size_t bytes,
				     const struct dcm_gc_host_ops *ops,
				     void *priv, char *err, size_t len)
{
	struct dcm_gc_backend backend = {
		.ops = &paged_ops,
		.client = pg->client,
		.donors = dcm_pager_donors(pg),
		.bytes = bytes,
		.extent = dcm_pager_extent(pg, window),
	};
	struct dcm_gc_host *gc;
	struct paged *p;
	sigset_t old;

	if (pg->cfg.seal)
		return gc_refuse(
			pg, err, len,
			"donors collect no garbage of a VM whose pages are sealed: set seal = no");
	dcm_thread_enter(&old);
	p = malloc(sizeof(*p));
	if (p)
		*p = (struct paged){ pg, (u64)window };
	backend.priv = p;
	gc = p ? dcm_gc_host_new(&backend, ops, priv, err, len) : NULL;
	if (!p) {
		snprintf(err, len, "no memory");
		errno = ENOMEM;
	}
	if (!gc)
		free(p);
	dcm_thread_leave(&old);
	return gc;
}

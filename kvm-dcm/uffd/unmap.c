// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * unmap.c - the core's operations that take pages out of guest memory
 *
 * ops.c has the picture. Clean pages are copied to frames, and many are dropped
 * by one call with one TLB flush. No thread can write to them meanwhile: they are
 * write-protected, and the write fault waits as the block is BUSY. A dirty block is
 * moved to a frame by
 * UFFDIO_MOVE, which refuses pages pinned for I/O. (A clean page pinned for
 * reading does no harm; pinning for writing is a write.) Kernels without MOVE
 * protect, copy and drop; there a device may still write to a page after its
 * eviction, so the shim keeps programs off O_DIRECT.
 *
 * Locking: none; the block is BUSY. dcm_pager_pin() (pins.c) and these operations
 * see each other through a lane's @unmap_seq, which is odd while one runs.
 */
#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "../core/internal.h"
#include "op.h"
#include "pages.h"

/* Prefetch the first cache lines of a page that is copied next. */
static void page_prefetch(const char *p)
{
	unsigned int i;

	for (i = 0; i < 8 * 64; i += 64)
		__builtin_prefetch(p + i);
}

static bool block_is_pinned(const struct dcm_guest *g, u32 gfn,
			    unsigned int order)
{
	u32 i;

	if (!READ_ONCE(g->pinned))
		return false;
	for (i = 0; i < 1u << order; i++)
		if (READ_ONCE(g->pins[gfn + i]))
			return true;
	return false;
}

/* A page of the block is pinned: map again what was moved. */
static void pages_move_back(struct dcm_pg_lane *l, u64 va, char *src, u16 moved,
			    u16 dirty)
{
	struct dcm_pager *pg = l->pg;
	u16 done = 0, back = 0;

	dcm_pages_copy_in(pg, va, src, moved & (u16)~dirty, DCM_UFFD_WP, &done);
	moved &= dirty;
	dcm_pages_move(pg, va, (u64)src, moved, true, &back);
	dcm_pages_copy_in(pg, va, src, moved & (u16)~back, 0, &done);
}

/* Move the block's pages under @mask to an empty frame. */
static int block_unmap_move(struct dcm_pg_lane *l, struct dcm_unmap *v,
			    u16 mask)
{
	struct dcm_pager *pg = l->pg;
	u64 va = dcm_guest_va(&pg->guest, v->gfn);
	bool full = false;
	u32 frame = dcm_frame_get(pg, v->order, &full);
	char *dst = dcm_frame_addr(&pg->frames, frame);
	u16 moved = 0;
	int err;

	err = dcm_pages_move(pg, (u64)dst, va, mask, false, &moved);
	if (err) {
		moved &= (u16)~dcm_sample_mask(pg, v->gfn, 1u << v->order);
		pages_move_back(l, va, dst, moved, v->dirty);
		dcm_frame_put(l, frame, true);
		return err;
	}
	v->frame = frame;
	return 0;
}

/* Copy the block's pages under @mask; the batch drops them later. */
static void block_unmap_copy(struct dcm_pg_lane *l, struct dcm_unmap *v,
			     u16 mask, unsigned int *nr_iov)
{
	struct dcm_pager *pg = l->pg;
	u64 va = dcm_guest_va(&pg->guest, v->gfn);
	bool full = true;
	char *dst;
	unsigned int i = 0, n;

	v->frame = dcm_frame_get(pg, v->order, &full);
	dst = dcm_frame_addr(&pg->frames, v->frame);
	for (; dcm_mask_next_run(mask, &i, &n); i += n) {
		u64 off = (u64)i * DCM_PAGE_SIZE;
		size_t len = (size_t)n * DCM_PAGE_SIZE;

		/* Dirty, and no MOVE: stop writers first. */
		if (v->dirty)
			dcm_uffd_protect(&pg->uffd, va + off, len, true);
		memcpy(dst + off, (void *)(va + off), len);
		l->iov[(*nr_iov)++] = (struct iovec){ (void *)(va + off), len };
	}
}

/* Dirty blocks are moved; large clean ones too, if no free frame has memory. */
static bool block_wants_move(struct dcm_pager *pg, const struct dcm_unmap *v)
{
	if (!pg->uffd.move)
		return false;
	if (v->dirty)
		return true;
	return v->order > 1 && !READ_ONCE(pg->frames.slots[v->order].nr_full);
}

void dcm_op_unmap(struct dcm_lane *lane, struct dcm_unmap *v, unsigned int nr)
{
	struct dcm_pager *pg = pager_of(lane);
	struct dcm_pg_lane *l = pg_lane_of(lane);
	unsigned int nr_iov = 0, i;

	/* Pairs with dcm_pager_pin(). */
	__atomic_fetch_add(&l->unmap_seq, 1, __ATOMIC_SEQ_CST);
	for (i = 0; i < nr; i++, v++) {
		u16 hidden, mask;

		/* The next victim is old, and not in the CPU's cache any more. */
		if (i + 1 < nr && !v[1].dirty && !v[1].drop)
			page_prefetch(
				(char *)dcm_guest_va(&pg->guest, v[1].gfn));
		if (block_is_pinned(&pg->guest, v->gfn, v->order)) {
			v->err = -EBUSY;
			continue;
		}
		dcm_guest_small(&pg->guest, v->gfn);
		hidden = dcm_sample_mask(pg, v->gfn, 1u << v->order);
		mask = dcm_guest_mask(&pg->guest, v->gfn, v->order) &
		       (u16)~hidden;
		v->observed |= hidden;
		if (v->drop) {
			/* A donor has its bytes: keep nothing. */
			dcm_pages_drop_add(l, dcm_guest_va(&pg->guest, v->gfn),
					   mask, &nr_iov);
			if (hidden)
				dcm_pages_collect_hidden(l, v->gfn, hidden,
							 NULL);
			continue;
		}
		/* Pages left unmapped are holes, which MOVE allows. */
		v->err = !block_wants_move(pg, v) ?
				 -EINVAL :
			 mask + hidden == page_mask(v->order) ?
					     block_unmap_move(l, v, mask | hidden) :
					     block_unmap_move(l, v, mask);
		if (v->err == -EBUSY)
			continue;
		/* Copy also if MOVE can't: the block is in two VMAs, or read-only. */
		if (v->err)
			block_unmap_copy(l, v, mask, &nr_iov);
		v->err = 0;
		if (hidden)
			dcm_pages_collect_hidden(l, v->gfn, hidden,
					     dcm_frame_addr(&pg->frames,
							    v->frame));
	}
	dcm_uffd_drop(&pg->uffd, l->iov, nr_iov);
	__atomic_fetch_add(&l->unmap_seq, 1, __ATOMIC_SEQ_CST);
}

/*
 * Copy pages that the guest may write to meanwhile, by words: the copy of a word is its
 * old or its new value.
 */
static void pages_copy_open(struct dcm_pg_lane *l, struct dcm_unmap *v,
			    u16 mask)
{
	struct dcm_pager *pg = l->pg;
	const char *src = (const char *)dcm_guest_va(&pg->guest, v->gfn);
	unsigned int i = 0, n;
	bool full = true;
	char *dst;

	v->frame = dcm_frame_get(pg, v->order, &full);
	dst = dcm_frame_addr(&pg->frames, v->frame);
	for (; dcm_mask_next_run(mask, &i, &n); i += n) {
		const u64 *from = (const u64 *)(src + (u64)i * DCM_PAGE_SIZE);
		u64 *to = (u64 *)(dst + (u64)i * DCM_PAGE_SIZE), k;

		for (k = 0; k < n * (DCM_PAGE_SIZE / sizeof(u64)); k++)
			to[k] = __atomic_load_n(&from[k], __ATOMIC_RELAXED);
	}
}

/*
 * dcm_ops.copy. Dirty pages are moved to a frame, which fails if I/O uses them. Then
 * copies of them are mapped write-protected, so that the next write faults.
 */
void dcm_op_copy(struct dcm_lane *lane, struct dcm_unmap *v)
{
	struct dcm_pager *pg = pager_of(lane);
	struct dcm_pg_lane *l = pg_lane_of(lane);
	u64 va = dcm_guest_va(&pg->guest, v->gfn);
	u16 mask = dcm_guest_mask(&pg->guest, v->gfn, v->order) & v->dirty;
	u16 hidden = dcm_sample_mask(pg, v->gfn, 1u << v->order), done = 0;
	unsigned int stays = 0;
	char *bytes;

	if (v->open && !(mask & hidden)) {
		pages_copy_open(l, v, mask);
		v->err = 0;
		return;
	}
	v->open = false;
	dcm_guest_small(&pg->guest, v->gfn);
	/* Pairs with dcm_pager_pin(). */
	__atomic_fetch_add(&l->unmap_seq, 1, __ATOMIC_SEQ_CST);
	v->err = -EBUSY;
	if (!block_is_pinned(&pg->guest, v->gfn, v->order))
		v->err = pg->uffd.move ?
				 block_unmap_move(l, v, mask & (u16)~hidden) :
					 -EINVAL;
	if (v->err != -EBUSY) {
		if (v->err)
			block_unmap_copy(l, v, mask & (u16)~hidden, &stays);
		hidden &= mask;
		v->observed |= hidden;
		bytes = dcm_frame_addr(&pg->frames, v->frame);
		if (hidden)
			dcm_pages_collect_hidden(l, v->gfn, hidden, bytes);
		dcm_pages_copy_in(pg, va, bytes, v->err ? hidden : mask,
			      DCM_UFFD_WP, &done);
		v->err = 0;
	}
	__atomic_fetch_add(&l->unmap_seq, 1, __ATOMIC_SEQ_CST);
}

/*
 * Move one page into a frame of its own (sample.c). But not out of a huge page: that
 * would split it, and slow down a program that fits in its budget.
 */
static int page_hide(struct dcm_pg_lane *l, u32 gfn, bool dirty)
{
	struct dcm_pager *pg = l->pg;
	struct dcm_unmap v = {
		.gfn = gfn,
		.dirty = dirty,
		.frame = DCM_NIL,
	};
	unsigned int nr_iov = 0;
	u16 done = 0;

	if (block_is_pinned(&pg->guest, gfn, 0) ||
	    !READ_ONCE(pg->guest.small[gfn >> DCM_SPAN_SHIFT]) ||
	    !dcm_guest_mask(&pg->guest, gfn, 0))
		return -EBUSY;
	v.err = block_wants_move(pg, &v) ? block_unmap_move(l, &v, 1) : -EINVAL;
	if (v.err == -EBUSY)
		return -EBUSY;
	if (v.err) {
		block_unmap_copy(l, &v, 1, &nr_iov);
		dcm_uffd_drop(&pg->uffd, l->iov, nr_iov);
	}
	if (dcm_sample_add(pg, gfn, v.frame, dirty))
		return 0;
	dcm_pages_copy_in(pg, dcm_guest_va(&pg->guest, gfn),
			  dcm_frame_addr(&pg->frames, v.frame), 1,
			  dirty ? 0 : DCM_UFFD_WP, &done);
	dcm_frame_put(l, v.frame, true);
	return -ENOSPC;
}

int dcm_op_hide(struct dcm_lane *lane, u32 gfn, bool dirty)
{
	struct dcm_pg_lane *l = pg_lane_of(lane);
	int err;

	if (dcm_sample_mask(l->pg, gfn, 1))
		return 1;
	/* Pairs with dcm_pager_pin(). */
	__atomic_fetch_add(&l->unmap_seq, 1, __ATOMIC_SEQ_CST);
	err = page_hide(l, gfn, dirty);
	__atomic_fetch_add(&l->unmap_seq, 1, __ATOMIC_SEQ_CST);
	return err;
}

/* dcm_ops.discard: drops adjacent pages by one call, with one TLB flush. */
void dcm_op_discard(struct dcm_lane *lane, u32 gfn, u32 nr)
{
	struct dcm_pager *pg = pager_of(lane);
	struct dcm_pg_lane *l = pg_lane_of(lane);
	u32 end = gfn + nr, n;
	unsigned int nr_iov = 0;

	/* A whole span leaves no page table: it may be a huge page again. */
	if (nr < DCM_SPAN_PAGES)
		dcm_guest_small(&pg->guest, gfn);
	for (; gfn < end; gfn += n) {
		u16 hidden;

		n = dcm_guest_piece(gfn, end);
		hidden = dcm_sample_mask(pg, gfn, n);
		if (hidden)
			dcm_pages_collect_hidden(l, gfn, hidden, NULL);
		dcm_pages_drop_add(l, dcm_guest_va(&pg->guest, gfn),
				   dcm_guest_pages(&pg->guest, gfn, n) &
					   (u16)~hidden,
				   &nr_iov);
	}
	dcm_uffd_drop(&pg->uffd, l->iov, nr_iov);
}

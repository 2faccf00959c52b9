// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * frames.c - memory for blocks that are direct but not mapped
 *
 * Each block size has an area of address space for frames, the *slots*, as many as
 * the worst case needs. A slot with memory is full, one without is empty: UFFDIO_MOVE
 * needs an empty one, and memcpy() is much cheaper into a full one. Slots that come
 * free keep their memory, up to a small bound, which the pager subtracts from the
 * budget that it gives the core. Memory beyond the bound is dropped, many slots at a
 * time.
 *
 *	dirty block --MOVE--> empty slot --written back--> full, free
 *	clean block --copy--> full slot  --evicted-------> full, free
 *	                      full, free --beyond bound, batch--> empty, free
 *
 * The areas are registered with the guest's userfaultfd, as UFFDIO_MOVE
 * demands of both sides, but only for write protection, which is never set:
 * the kernel itself fills a missing page in them.
 *
 * Locking: a spinlock for each size, held for a push or a pop.
 */
#include <errno.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "pager.h"

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif

#define FULL_MAX 4096u

int dcm_frames_init(struct dcm_pager *pg, u64 nr_pages)
{
	struct dcm_frames *fr = &pg->frames;
	/* the area of the largest size has more slots, for write-backs' sealed bytes */
	u64 more = pg->cfg.seal ? (u64)pg->nr_lanes * DCM_WBS_MAX : 0;
	unsigned int o;
	void *p;
	int err;

	fr->bytes = (nr_pages << DCM_PAGE_SHIFT) * (DCM_ORDER_MAX + 1) +
		    (more << (DCM_ORDER_MAX + DCM_PAGE_SHIFT));
	p = mmap(NULL, fr->bytes, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return -errno;
	fr->base = (u64)p;
	madvise(p, fr->bytes, MADV_NOHUGEPAGE);
	madvise(p, fr->bytes, MADV_DONTFORK);
	madvise(p, fr->bytes, MADV_DONTDUMP);
	prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, fr->base, fr->bytes,
	      "dcm:frames");
	err = dcm_uffd_register(&pg->uffd, fr->base, fr->bytes, false);
	if (err)
		return err;
	for (o = 0; o <= DCM_ORDER_MAX; o++) {
		struct dcm_slots *s = &fr->slots[o];

		spin_lock_init(&s->lock);
		s->base = fr->base + o * (nr_pages << DCM_PAGE_SHIFT);
		s->max = (u32)min((nr_pages >> o) +
					  (o == DCM_ORDER_MAX ? more : 0),
				  (u64)DCM_FRAME_SLOT(~0u));
		s->empty = vzalloc((u64)s->max * sizeof(u32));
		s->full = vzalloc(FULL_MAX * sizeof(u32));
		if (!s->empty || !s->full)
			return -ENOMEM;
	}
	return 0;
}

void dcm_frames_free(struct dcm_pager *pg)
{
	struct dcm_frames *fr = &pg->frames;
	unsigned int o;

	for (o = 0; o <= DCM_ORDER_MAX; o++) {
		vfree(fr->slots[o].empty);
		vfree(fr->slots[o].full);
	}
	if (fr->base)
		munmap((void *)fr->base, fr->bytes);
}

void *dcm_frame_addr(const struct dcm_frames *fr, u32 frame)
{
	unsigned int o = DCM_FRAME_ORDER(frame);

	return (void *)(fr->slots[o].base +
			((u64)DCM_FRAME_SLOT(frame) << (o + DCM_PAGE_SHIFT)));
}

/**
 * dcm_frame_get() - take a free slot
 * @order: its size
 * @full: in: whether a slot with memory is wanted; out: whether it has memory
 *
 * There always is a slot: the areas are as large as the guest.
 */
u32 dcm_frame_get(struct dcm_pager *pg, unsigned int order, bool *full)
{
	struct dcm_slots *s = &pg->frames.slots[order];
	bool want = *full;
	u32 slot;

	spin_lock(&s->lock);
	*full = true;
	if (want && s->nr_full) {
		slot = s->full[--s->nr_full];
	} else if (s->nr_empty) {
		slot = s->empty[--s->nr_empty];
		*full = false;
	} else if (s->next < s->max) {
		slot = s->next++;
		*full = false;
	} else {
		slot = s->full[--s->nr_full];
	}
	spin_unlock(&s->lock);
	if (*full)
		__atomic_fetch_sub(&pg->frames.cached, 1 << order,
				   __ATOMIC_RELAXED);
	slot |= order << DCM_FRAME_SHIFT;
	if (*full && !want) {
		struct iovec iov = {
			.iov_base = dcm_frame_addr(&pg->frames, slot),
			.iov_len = (size_t)DCM_PAGE_SIZE << order,
		};

		dcm_uffd_drop(&pg->uffd, &iov, 1);
		*full = false;
	}
	return slot;
}

static void slot_push_empty(struct dcm_slots *s, u32 slot)
{
	spin_lock(&s->lock);
	s->empty[s->nr_empty++] = slot;
	spin_unlock(&s->lock);
}

/** dcm_frames_drop() - free the memory of the slots a lane has collected */
void dcm_frames_drop(struct dcm_pg_lane *l)
{
	struct dcm_pager *pg = l->pg;
	struct dcm_frames *fr = &pg->frames;
	struct iovec iov[DCM_PG_DROPS_MAX];
	u64 pages = 0;
	u32 i;

	if (!l->nr_drop)
		return;
	for (i = 0; i < l->nr_drop; i++) {
		unsigned int o = DCM_FRAME_ORDER(l->drop[i]);

		iov[i].iov_base = dcm_frame_addr(fr, l->drop[i]);
		iov[i].iov_len = (size_t)DCM_PAGE_SIZE << o;
		pages += 1u << o;
	}
	dcm_uffd_drop(&pg->uffd, iov, l->nr_drop);
	for (i = 0; i < l->nr_drop; i++)
		slot_push_empty(&fr->slots[DCM_FRAME_ORDER(l->drop[i])],
			   DCM_FRAME_SLOT(l->drop[i]));
	__atomic_fetch_sub(&fr->cached, (s64)pages, __ATOMIC_RELAXED);
	l->nr_drop = 0;
}

/**
 * dcm_frame_put() - give a slot back
 * @full: the slot has memory
 */
void dcm_frame_put(struct dcm_pg_lane *l, u32 frame, bool full)
{
	struct dcm_frames *fr = &l->pg->frames;
	unsigned int order = DCM_FRAME_ORDER(frame);
	struct dcm_slots *s = &fr->slots[order];
	u64 cached;

	if (!full) {
		slot_push_empty(s, DCM_FRAME_SLOT(frame));
		return;
	}
	cached = (u64)__atomic_add_fetch(&fr->cached, 1 << order,
					 __ATOMIC_SEQ_CST);
	if (cached <= READ_ONCE(fr->cached_max)) {
		bool kept;

		spin_lock(&s->lock);
		kept = s->nr_full < FULL_MAX;
		if (kept)
			s->full[s->nr_full++] = DCM_FRAME_SLOT(frame);
		spin_unlock(&s->lock);
		if (kept)
			return;
	}
	l->drop[l->nr_drop++] = frame;
	if (l->nr_drop == DCM_PG_DROPS_MAX ||
	    cached > 2 * READ_ONCE(fr->cached_max))
		dcm_frames_drop(l);
}

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * install.c - the core's operations that map pages into guest memory
 *
 * ops.c has the picture. A fetched block is installed by UFFDIO_COPY from
 * wherever its bytes are, for shm the donor's slab itself. A donor may truncate
 * such a slab at any instant, so libdcm never reads it; the kernel does, and returns
 * EFAULT if it was truncated. A block must be installed whole or not at all, so its
 * pages are mapped write-protected first, and made writable when all are there: until
 * then they can be unmapped again.
 *
 * A block that comes back from its frame is moved there by UFFDIO_MOVE where the
 * kernel has it and all of the block may be written, and copied otherwise.
 *
 * Locking: none; the block is BUSY or being fetched, so one lane at a time
 * changes its mapping.
 */
#include "../core/internal.h"
#include "op.h"
#include "pages.h"

#define TIMED_EVERY 32u /* of a yielding lane's installs one in 32 is timed */

/* Leave one page of the block unmapped; its bytes go into a frame. */
static void page_sample(struct dcm_pg_lane *l, struct dcm_fetch *f, u16 mask,
		       bool slab)
{
	struct dcm_pager *pg = l->pg;
	unsigned int nr = 1u << f->order;
	unsigned int k = (unsigned int)(dcm_random(l->core) % nr), i;
	bool full = true;
	char *src;
	u32 frame;
	void *dst;

	mask &= (u16)~f->zero;
	if (f->fault_page < nr)
		mask &= (u16) ~(1u << f->fault_page);
	if (!mask)
		return;
	if (f->hide & mask)
		k = ffs_u32(f->hide) - 1;
	for (i = 0; !(mask & (1u << k)) && i < nr; i++)
		k = (k + 1) % nr;
	if (k < f->first || k >= f->first + (unsigned int)f->nr)
		return;
	src = (char *)f->io.data + (k - f->first) * DCM_PAGE_SIZE;
	frame = dcm_frame_get(pg, 0, &full);
	dst = dcm_frame_addr(&pg->frames, frame);
	if (slab) {
		struct iovec to = { dst, DCM_PAGE_SIZE };
		struct iovec from = { src, DCM_PAGE_SIZE };

		if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) !=
		    DCM_PAGE_SIZE)
			goto no;
	} else {
		memcpy(dst, src, DCM_PAGE_SIZE);
	}
	if (dcm_sample_add(pg, f->gfn + k, frame, f->writable & (1u << k))) {
		f->hidden = (u16)(1u << k);
		return;
	}
no:
	dcm_frame_put(l, frame, true);
}

int dcm_op_install(struct dcm_lane *lane, struct dcm_fetch *f)
{
	struct dcm_pager *pg = pager_of(lane);
	struct dcm_pg_lane *l = pg_lane_of(lane);
	u64 va = dcm_guest_va(&pg->guest, f->gfn);
	u16 mask = dcm_guest_mask(&pg->guest, f->gfn, f->order);
	bool slab = f->nr && f->io.data != f->buf;
	/*
	 * The woken thread preempts a yielding lane, and COPY wakes. So to time an
	 * install, copy without a wake-up.
	 */
	bool timed = l->yield.on && !(l->installs++ % TIMED_EVERY);
	unsigned int quiet = timed ? DCM_UFFD_QUIET : 0;
	u16 data, zero, wr, done = 0, zdone = 0;
	const char *src;
	int err;

	dcm_guest_small(&pg->guest, f->gfn);
	f->hidden = 0;
	f->t_there = l->yield.on ? DCM_TIME_NONE : 0;
	if (f->hide || (f->sample && f->order))
		page_sample(l, f, mask, slab);
	zero = mask & f->zero;
	data = mask & (u16)~f->zero & (u16)~f->hidden;
	wr = data & f->writable;
	/* The READ may begin after the block's first page: compute with numbers. */
	src = (const char *)((uintptr_t)f->io.data - f->first * DCM_PAGE_SIZE);
	if (!slab || !(data & (data - 1))) {
		/* One run, or no slab that may be cut off: this can't fail half-way. */
		err = dcm_pages_copy_in(pg, va, src, data & (u16)~wr,
				    DCM_UFFD_WP | quiet, &done);
		if (!err)
			err = dcm_pages_copy_in(pg, va, src, wr, quiet, &done);
	} else {
		err = dcm_pages_copy_in(pg, va, src, data,
					DCM_UFFD_WP |
						(wr ? DCM_UFFD_QUIET : quiet),
			      &done);
	}
	if (err) {
		bool w;
		u32 frame;

		/* The donor has truncated the slab. */
		if (slab)
			dcm_client_stale(pg->client,
					 container_of(f->io.slab,
						      struct dcm_client_slab,
						      ref));
		dcm_pages_take_out(l, va, done);
		if (f->hidden) {
			frame = dcm_sample_take(pg,
						f->gfn + ffs_u32(f->hidden) - 1,
						&w);
			dcm_frame_put(l, frame, true);
		}
		return err;
	}
	if (zero)
		dcm_pages_copy_in(pg, va, NULL, zero, quiet, &zdone);
	if (timed)
		f->t_there = dcm_now_ns();
	if (slab && wr && (data & (data - 1))) {
		unsigned int i = 0, n;

		for (; dcm_mask_next_run(wr, &i, &n); i += n)
			dcm_uffd_protect(&pg->uffd, va + i * DCM_PAGE_SIZE,
					 n * DCM_PAGE_SIZE, false);
		if (wr != data)
			dcm_uffd_wake(&pg->uffd, va,
				      (u64)DCM_PAGE_SIZE << f->order);
	} else if (f->hidden) {
		dcm_uffd_wake(&pg->uffd,
			      va + (ffs_u32(f->hidden) - 1) * DCM_PAGE_SIZE,
			      DCM_PAGE_SIZE);
	}
	if (timed)
		dcm_uffd_wake(&pg->uffd, va, (u64)DCM_PAGE_SIZE << f->order);
	return 0;
}

/* Leave a page of a block that comes back unmapped; its bytes are at @src. */
static bool frame_page_hide(struct dcm_pg_lane *l, u32 gfn, const char *src,
			    bool writable)
{
	struct dcm_pager *pg = l->pg;
	bool full = true;
	u32 frame = dcm_frame_get(pg, 0, &full);

	memcpy(dcm_frame_addr(&pg->frames, frame), src, DCM_PAGE_SIZE);
	if (dcm_sample_add(pg, gfn, frame, writable))
		return true;
	dcm_frame_put(l, frame, true);
	return false;
}

void dcm_op_remap(struct dcm_lane *lane, u32 gfn, unsigned int order, u32 frame,
		  u16 writable, u16 hide, bool keep)
{
	struct dcm_pager *pg = pager_of(lane);
	struct dcm_pg_lane *l = pg_lane_of(lane);
	u64 va = dcm_guest_va(&pg->guest, gfn);
	u16 mask = dcm_guest_mask(&pg->guest, gfn, order);
	char *src = dcm_frame_addr(&pg->frames, frame);
	u16 done = 0, moved = 0;

	dcm_guest_small(&pg->guest, gfn);
	hide &= mask;
	if (hide && frame_page_hide(l, gfn + ffs_u32(hide) - 1,
				    src + (ffs_u32(hide) - 1) * DCM_PAGE_SIZE,
				    writable & hide))
		mask &= (u16)~hide;
	else
		hide = 0;
	if (!keep && pg->uffd.move &&
	    ((mask & writable) | hide) == page_mask(order)) {
		dcm_pages_move(pg, va, (u64)src, mask, true, &moved);
		mask &= (u16)~moved;
		if (!mask && !hide) {
			dcm_frame_put(l, frame, false);
			return;
		}
	}
	/* Copy the pages that were not moved. */
	dcm_pages_copy_in(pg, va, src, mask & (u16)~writable, DCM_UFFD_WP,
			  &done);
	dcm_pages_copy_in(pg, va, src, mask & writable, 0, &done);
	/* a thread may wait for the page that is left out: it faults again */
	if (hide)
		dcm_uffd_wake(&pg->uffd,
			      va + (ffs_u32(hide) - 1) * DCM_PAGE_SIZE,
			      DCM_PAGE_SIZE);
	if (!keep)
		dcm_frame_put(l, frame, true);
}

int dcm_op_reveal(struct dcm_lane *lane, u32 gfn, bool write)
{
	struct dcm_pager *pg = pager_of(lane);
	u64 va = dcm_guest_va(&pg->guest, gfn);
	bool w = false;
	u32 frame = dcm_sample_take(pg, gfn, &w);

	if (frame == DCM_NIL) {
		/*
		 * The page was not hidden. It is mapped (then COPY returns
		 * EEXIST); or the program dropped it by a system call of its
		 * own, and expects zeroes.
		 */
		if (dcm_guest_mask(&pg->guest, gfn, 0))
			dcm_uffd_copy(&pg->uffd, va, pg->zero, DCM_PAGE_SIZE,
				      write ? 0 : DCM_UFFD_WP);
		dcm_uffd_wake(&pg->uffd, va, DCM_PAGE_SIZE);
		return 0;
	}
	dcm_uffd_copy(&pg->uffd, va, dcm_frame_addr(&pg->frames, frame),
		      DCM_PAGE_SIZE, write || w ? 0 : DCM_UFFD_WP);
	dcm_frame_put(pg_lane_of(lane), frame, true);
	return 1;
}

void dcm_op_unprotect(struct dcm_lane *lane, u32 gfn, u32 nr)
{
	struct dcm_pager *pg = pager_of(lane);
	u16 mask = dcm_guest_mask(&pg->guest, gfn, (unsigned int)ilog2(nr));
	u64 va = dcm_guest_va(&pg->guest, gfn);
	unsigned int i = 0, n;

	for (; dcm_mask_next_run(mask, &i, &n); i += n)
		dcm_uffd_protect(&pg->uffd, va + i * DCM_PAGE_SIZE,
				 n * DCM_PAGE_SIZE, false);
}

void dcm_op_wake(struct dcm_lane *lane, u32 gfn, u32 nr)
{
	struct dcm_pager *pg = pager_of(lane);

	dcm_uffd_wake(&pg->uffd, dcm_guest_va(&pg->guest, gfn),
		      (u64)nr << DCM_PAGE_SHIFT);
}

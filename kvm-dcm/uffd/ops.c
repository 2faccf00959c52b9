// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * ops.c - the core's operations (struct dcm_ops) on a process's memory
 *
 * Guest memory G is private anonymous memory under userfaultfd, missing and
 * write-protect. A clean page is mapped write-protected: its first write is a
 * fault, so at any time it is certain which pages are clean. (Asynchronous
 * write-protection would save that fault, but on anonymous memory a write
 * between reading the marker and dropping the page is lost.)
 *
 * Pages come in by UFFDIO_COPY (install.c). They leave by a copy to a frame and
 * MADV_DONTNEED, or by UFFDIO_MOVE to a frame (unmap.c). Functions take a mask of the
 * pages of a block that come or leave together (pages.c).
 *
 *	           COPY                  copy + DONTNEED, or MOVE
 *	slab, buffer -----> G, mapped -------------------------> frame
 *	                    ^                                      |
 *	                    '------------ COPY, or MOVE -----------'
 *
 * Differences from the paper (dcm-tc18, 3.2): Inactive pages are unmapped
 * from the page tables in place there; in user space that is a move.
 */
#include <errno.h>
#include <sys/uio.h>
#include <unistd.h>

#include "../core/internal.h"
#include "../lib/clock.h"
#include "op.h"

u64 dcm_now_ns(void)
{
	return dcm_clock_ns();
}

static bool page_is_zero(const void *p)
{
	const u64 *w = p;
	unsigned int i;

	for (i = 0; i < DCM_PAGE_SIZE / sizeof(*w); i += 4)
		if (w[i] | w[i + 1] | w[i + 2] | w[i + 3])
			return false;
	return true;
}

static u16 op_zero_mask(struct dcm_lane *lane, u32 frame, unsigned int order,
			u16 mask)
{
	const char *p = dcm_frame_addr(&pager_of(lane)->frames, frame);
	unsigned int i;
	u16 zero = 0;

	for (i = 0; i < 1u << order; i++)
		if ((mask & (1u << i)) && page_is_zero(p + i * DCM_PAGE_SIZE))
			zero |= (u16)(1u << i);
	return zero;
}

static void *op_frame_data(struct dcm_lane *lane, u32 frame, unsigned int page)
{
	char *p = dcm_frame_addr(&pager_of(lane)->frames, frame);

	return p + page * DCM_PAGE_SIZE;
}

static void op_release(struct dcm_lane *lane, u32 frame, unsigned int order)
{
	(void)order;
	dcm_frame_put(pg_lane_of(lane), frame, true);
}

/* ---- I/O ---- */

/*
 * The WRITE of a move from a slab of shm: the donor may truncate that slab while it is
 * read, so copy the bytes to the fetch's buffer first.
 */
static int io_bounce(struct dcm_lane *lane, struct dcm_io *io)
{
	const struct dcm_move_op *m = io->owner;
	void *buf = lane->fetch[m - lane->move.op].buf;
	struct iovec to = { buf, io->bytes }, from = { io->data, io->bytes };

	if (io->data == buf)
		return 0;
	if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) !=
	    (ssize_t)io->bytes)
		return -EIO;
	io->data = buf;
	return 0;
}

static int op_io_post(struct dcm_lane *lane, struct dcm_io *io)
{
	struct dcm_pager *pg = pager_of(lane);
	int err;

	if (io->kind == DCM_IO_MOVE && io->op == DCM_IO_WRITE) {
		err = io_bounce(lane, io);
		if (err)
			return err;
	}
	return dcm_client_io_post(pg->client, lane->id, io);
}

static void op_io_flush(struct dcm_lane *lane)
{
	dcm_client_io_flush(pager_of(lane)->client, lane->id);
}

static int op_io_poll(struct dcm_lane *lane, struct dcm_io **done, int max)
{
	return dcm_client_io_poll(pager_of(lane)->client, lane->id, done, max);
}

static bool op_frozen(struct dcm_lane *lane, u32 gfn)
{
	return dcm_guest_frozen(&pager_of(lane)->guest, gfn);
}

static void op_want_slab(struct dcm_vm *vm, u32 extent)
{
	struct dcm_pager *pg = vm->priv;

	dcm_client_want(pg->client, extent);
}

static void op_lost(struct dcm_lane *lane, u32 gfn, u32 nr)
{
	dcm_lost_access(pager_of(lane), gfn, nr);
}

static bool op_relax(struct dcm_lane *lane)
{
	(void)lane;
	cpu_relax();
	return true;
}

const struct dcm_ops dcm_pager_ops = {
	.install = dcm_op_install,
	.remap = dcm_op_remap,
	.fresh = dcm_op_fresh,
	.reveal = dcm_op_reveal,
	.hide = dcm_op_hide,
	.unprotect = dcm_op_unprotect,
	.unmap = dcm_op_unmap,
	.copy = dcm_op_copy,
	.wake = dcm_op_wake,
	.zero_mask = op_zero_mask,
	.sum = dcm_op_sum,
	.seal = dcm_op_seal,
	.open = dcm_op_open,
	.wrong = dcm_op_wrong,
	.frame_data = op_frame_data,
	.release = op_release,
	.discard = dcm_op_discard,
	.io_post = op_io_post,
	.io_flush = op_io_flush,
	.io_poll = op_io_poll,
	.frozen = op_frozen,
	.want_slab = op_want_slab,
	.lost = op_lost,
	.now_ns = dcm_now_ns,
	.relax = op_relax,
};

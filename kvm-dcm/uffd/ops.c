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
 * In: UFFDIO_COPY from wherever the bytes are, for shm the donor's slab
 * itself. Out: a clean page is copied to a frame, and many are dropped by one
 * call with one TLB flush; no thread can write it meanwhile, as its fault would
 * come here and the block is BUSY. A dirty block is moved to a frame by
 * UFFDIO_MOVE, which refuses pages pinned for I/O. (A clean page pinned for
 * reading does no harm; pinning for writing is a write.) Kernels without MOVE
 * protect, copy and drop; there a device may still write to a page after its
 * eviction, so the shim keeps programs off O_DIRECT.
 *
 *	           COPY                  copy + DONTNEED, or MOVE
 *	slab, buffer -----> G, mapped -------------------------> frame
 *	                    ^                                      |
 *	                    '------------ COPY, or MOVE -----------'
 *
 * Differences from the paper (dcm-tc18, 3.2): Inactive pages are unmapped
 * from the page tables in place there; in user space that is a move.
 *
 * A donor may cut off a slab of shm at any instant: only the kernel reads it
 * for us, and then returns EFAULT. A block must be installed whole or not at
 * all, so its pages are mapped write-protected, and made writable when all are
 * there: until then they can be unmapped again.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "../core/internal.h"
#include "../lib/clock.h"
#include "pager.h"

#define TIMED_EVERY 32u /* installs of a yielding lane */

u64 dcm_now_ns(void)
{
	return dcm_clock_ns();
}

/* Prefetch the first cache lines of a page that is copied next. */
static void page_prefetch(const char *p)
{
	unsigned int i;

	for (i = 0; i < 8 * 64; i += 64)
		__builtin_prefetch(p + i);
}

/* The next run of set bits in @mask from @i on; false: none. */
static bool mask_next_run(u16 mask, unsigned int *i, unsigned int *n)
{
	u32 m = (u32)mask >> *i;

	if (!m)
		return false;
	*i += ffs_u32(m) - 1;
	m = (u32)mask >> *i;
	*n = ffs_u32(~m) - 1;
	return true;
}

/* Add pages under @mask to the ranges that one call drops. */
static void drop_add(struct dcm_pg_lane *l, u64 va, u16 mask, unsigned int *nr)
{
	unsigned int i = 0, n;

	for (; mask_next_run(mask, &i, &n); i += n)
		l->iov[(*nr)++] =
			(struct iovec){ (void *)(va + i * DCM_PAGE_SIZE),
					(size_t)n * DCM_PAGE_SIZE };
}

/* Unmap pages again that were mapped write-protected. */
static void pages_take_out(struct dcm_pg_lane *l, u64 va, u16 mask)
{
	unsigned int nr = 0;

	drop_add(l, va, mask, &nr);
	dcm_uffd_drop(&l->pg->uffd, l->iov, nr);
}

/* Copy the pages under @mask; @src is the block's first byte. */
static int pages_copy_in(struct dcm_pager *pg, u64 va, const char *src,
			 u16 mask, unsigned int mode, u16 *done)
{
	unsigned int i = 0, n;

	for (; mask_next_run(mask, &i, &n); i += n) {
		int err = dcm_uffd_copy(&pg->uffd, va + i * DCM_PAGE_SIZE,
					src ? src + i * DCM_PAGE_SIZE :
					      (char *)pg->zero,
					n * DCM_PAGE_SIZE, mode);

		/*
		 * ENOENT: the run spans two VMAs, as after mprotect() of a
		 * part; or, for one page, there is none. EEXIST should not
		 * happen; if it does, the page is there.
		 */
		if (n > 1 && (err == -ENOENT || err == -EEXIST)) {
			unsigned int k;

			for (k = i; k < i + n; k++) {
				err = pages_copy_in(pg, va, src, (u16)(1u << k),
						    mode, done);
				if (err)
					return err;
			}
			continue;
		}
		if (err && err != -EEXIST && err != -ENOENT)
			return err;
		*done |= (u16)(((1u << n) - 1) << i);
	}
	return 0;
}

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

static int op_install(struct dcm_lane *lane, struct dcm_fetch *f)
{
	struct dcm_pager *pg = pager_of(lane);
	struct dcm_pg_lane *l = pg_lane_of(lane);
	u64 va = dcm_guest_va(&pg->guest, f->gfn);
	u16 mask = dcm_guest_mask(&pg->guest, f->gfn, f->order);
	bool slab = f->nr && f->io.data != f->buf;
	/* A yielding lane goes on only when the woken thread faults again. */
	bool timed = l->yield.on && !(l->installs++ % TIMED_EVERY);
	unsigned int quiet = timed ? DCM_UFFD_QUIET : 0;
	u16 data, zero, wr, done = 0, zdone = 0;
	const char *src;
	int err;

	f->hidden = 0;
	f->t_there = l->yield.on ? DCM_TIME_NONE : 0;
	if (f->sample && f->order)
		page_sample(l, f, mask, slab);
	zero = mask & f->zero;
	data = mask & (u16)~f->zero & (u16)~f->hidden;
	wr = data & f->writable;
	/* The block's first byte may not exist: compute it as a number. */
	src = (const char *)((uintptr_t)f->io.data - f->first * DCM_PAGE_SIZE);
	if (!slab || !(data & (data - 1))) {
		/* Can't fail halfway. */
		err = pages_copy_in(pg, va, src, data & (u16)~wr,
				    DCM_UFFD_WP | quiet, &done);
		if (!err)
			err = pages_copy_in(pg, va, src, wr, quiet, &done);
	} else {
		err = pages_copy_in(pg, va, src, data,
			      DCM_UFFD_WP | (wr ? DCM_UFFD_QUIET : quiet),
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
		pages_take_out(l, va, done);
		if (f->hidden) {
			frame = dcm_sample_take(pg,
						f->gfn + ffs_u32(f->hidden) - 1,
						&w);
			dcm_frame_put(l, frame, true);
		}
		return err;
	}
	if (zero)
		pages_copy_in(pg, va, NULL, zero, quiet, &zdone);
	if (timed)
		f->t_there = dcm_now_ns();
	if (slab && wr && (data & (data - 1))) {
		unsigned int i = 0, n;

		for (; mask_next_run(wr, &i, &n); i += n)
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

static void op_remap(struct dcm_lane *lane, u32 gfn, unsigned int order,
		     u32 frame, u16 writable, bool keep)
{
	struct dcm_pager *pg = pager_of(lane);
	struct dcm_pg_lane *l = pg_lane_of(lane);
	u64 va = dcm_guest_va(&pg->guest, gfn);
	u16 mask = dcm_guest_mask(&pg->guest, gfn, order);
	char *src = dcm_frame_addr(&pg->frames, frame);
	u64 bytes = (u64)DCM_PAGE_SIZE << order, moved = 0;
	u16 done = 0;

	if (!keep && pg->uffd.move && (mask & writable) == page_mask(order)) {
		if (!dcm_uffd_move(&pg->uffd, va, (u64)src, bytes, true,
				   &moved)) {
			dcm_frame_put(l, frame, false);
			return;
		}
		/* Copy the pages that were not moved. */
		mask &= (u16) ~((1u << (moved >> DCM_PAGE_SHIFT)) - 1);
	}
	pages_copy_in(pg, va, src, mask & (u16)~writable, DCM_UFFD_WP, &done);
	pages_copy_in(pg, va, src, mask & writable, 0, &done);
	if (!keep)
		dcm_frame_put(l, frame, true);
}

static int op_reveal(struct dcm_lane *lane, u32 gfn, bool write)
{
	struct dcm_pager *pg = pager_of(lane);
	u64 va = dcm_guest_va(&pg->guest, gfn);
	bool w = false;
	u32 frame = dcm_sample_take(pg, gfn, &w);

	if (frame == DCM_NIL) {
		/*
		 * The page is there (EEXIST); or the program dropped it by a
		 * system call of its own and expects zeroes.
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

static void op_unprotect(struct dcm_lane *lane, u32 gfn, u32 nr)
{
	struct dcm_pager *pg = pager_of(lane);
	u16 mask = dcm_guest_mask(&pg->guest, gfn, (unsigned int)ilog2(nr));
	u64 va = dcm_guest_va(&pg->guest, gfn);
	unsigned int i = 0, n;

	for (; mask_next_run(mask, &i, &n); i += n)
		dcm_uffd_protect(&pg->uffd, va + i * DCM_PAGE_SIZE,
				 n * DCM_PAGE_SIZE, false);
}

static void op_wake(struct dcm_lane *lane, u32 gfn, u32 nr)
{
	struct dcm_pager *pg = pager_of(lane);

	dcm_uffd_wake(&pg->uffd, dcm_guest_va(&pg->guest, gfn),
		      (u64)nr << DCM_PAGE_SHIFT);
}

/* ---- out ---- */

static bool block_is_pinned(const struct dcm_guest *g, u32 gfn,
			    unsigned int order)
{
	u32 i;

	if (!__atomic_load_n(&g->pinned, __ATOMIC_RELAXED))
		return false;
	for (i = 0; i < 1u << order; i++)
		if (__atomic_load_n(&g->pins[gfn + i], __ATOMIC_RELAXED))
			return true;
	return false;
}

/* Collect the bytes of the pages left unmapped in the block's frame. */
static void pages_collect_hidden(struct dcm_pg_lane *l, u32 gfn, u16 hidden,
			   char *dst)
{
	struct dcm_pager *pg = l->pg;
	unsigned int i = 0, n;
	bool w;

	for (; mask_next_run(hidden, &i, &n); i++) {
		u32 frame = dcm_sample_take(pg, gfn + i, &w);

		if (frame == DCM_NIL)
			continue;
		if (dst)
			memcpy(dst + i * DCM_PAGE_SIZE,
			       dcm_frame_addr(&pg->frames, frame),
			       DCM_PAGE_SIZE);
		dcm_frame_put(l, frame, true);
	}
}

/* A page of the block is pinned: move back what was moved. */
static void pages_move_back(struct dcm_pg_lane *l, u64 va, char *src, u16 moved,
		      u16 dirty)
{
	struct dcm_pager *pg = l->pg;
	unsigned int i = 0, n;
	u64 bytes;
	u16 done = 0;

	pages_copy_in(pg, va, src, moved & (u16)~dirty, DCM_UFFD_WP, &done);
	for (moved &= dirty; mask_next_run(moved, &i, &n); i += n) {
		u64 off = (u64)i * DCM_PAGE_SIZE, len = n * DCM_PAGE_SIZE;

		if (dcm_uffd_move(&pg->uffd, va + off, (u64)src + off, len,
				  true, &bytes))
			dcm_uffd_copy(&pg->uffd, va + off + bytes,
				      src + off + bytes, len - bytes, 0);
	}
}

/* Move the block's pages under @mask to an empty frame. */
static int block_unmap_move(struct dcm_pg_lane *l, struct dcm_unmap *v,
			    u16 mask)
{
	struct dcm_pager *pg = l->pg;
	u64 va = dcm_guest_va(&pg->guest, v->gfn), bytes;
	bool full = false;
	u32 frame = dcm_frame_get(pg, v->order, &full);
	char *dst = dcm_frame_addr(&pg->frames, frame);
	unsigned int i = 0, n;
	u16 moved = 0;

	for (; mask_next_run(mask, &i, &n); i += n) {
		u64 off = (u64)i * DCM_PAGE_SIZE;
		int err = dcm_uffd_move(&pg->uffd, (u64)dst + off, va + off,
					n * DCM_PAGE_SIZE, false, &bytes);

		moved |= (u16)(((1u << (bytes >> DCM_PAGE_SHIFT)) - 1) << i);
		if (!err)
			continue;
		moved &= (u16)~dcm_sample_mask(pg, v->gfn, v->order);
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
	for (; mask_next_run(mask, &i, &n); i += n) {
		u64 off = (u64)i * DCM_PAGE_SIZE;
		size_t len = (size_t)n * DCM_PAGE_SIZE;

		/* Dirty, and no MOVE: stop writers first. */
		if (v->dirty)
			dcm_uffd_protect(&pg->uffd, va + off, len, true);
		memcpy(dst + off, (void *)(va + off), len);
		l->iov[(*nr_iov)++] = (struct iovec){ (void *)(va + off), len };
	}
}

/* Large clean blocks: moving beats copying if no frame has memory. */
static bool block_wants_move(struct dcm_pager *pg, const struct dcm_unmap *v)
{
	if (!pg->uffd.move)
		return false;
	if (v->dirty)
		return true;
	return v->order > 1 && !READ_ONCE(pg->frames.slots[v->order].nr_full);
}

static void op_unmap(struct dcm_lane *lane, struct dcm_unmap *v,
		     unsigned int nr)
{
	struct dcm_pager *pg = pager_of(lane);
	struct dcm_pg_lane *l = pg_lane_of(lane);
	unsigned int nr_iov = 0, i;

	/* Pairs with dcm_pager_pin(). */
	__atomic_fetch_add(&l->unmap_seq, 1, __ATOMIC_SEQ_CST);
	for (i = 0; i < nr; i++, v++) {
		u16 hidden, mask;

		/* The next victim is no longer in the CPU's cache. */
		if (i + 1 < nr && !v[1].dirty && !v[1].drop)
			page_prefetch(
				(char *)dcm_guest_va(&pg->guest, v[1].gfn));
		if (block_is_pinned(&pg->guest, v->gfn, v->order)) {
			v->err = -EBUSY;
			continue;
		}
		hidden = dcm_sample_mask(pg, v->gfn, v->order);
		mask = dcm_guest_mask(&pg->guest, v->gfn, v->order) &
		       (u16)~hidden;
		v->observed |= hidden;
		if (v->drop) {
			/* A donor has its bytes: keep nothing. */
			drop_add(l, dcm_guest_va(&pg->guest, v->gfn), mask,
				 &nr_iov);
			if (hidden)
				pages_collect_hidden(l, v->gfn, hidden, NULL);
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
		/* Also if MOVE can't: several mappings, or read-only. */
		if (v->err)
			block_unmap_copy(l, v, mask, &nr_iov);
		v->err = 0;
		if (hidden)
			pages_collect_hidden(l, v->gfn, hidden,
					     dcm_frame_addr(&pg->frames,
							    v->frame));
	}
	dcm_uffd_drop(&pg->uffd, l->iov, nr_iov);
	__atomic_fetch_add(&l->unmap_seq, 1, __ATOMIC_SEQ_CST);
}

/*
 * Dirty pages are moved out, which shows whether I/O uses them, and copies of
 * them are mapped write-protected, so that the next write faults.
 */
static void op_copy(struct dcm_lane *lane, struct dcm_unmap *v)
{
	struct dcm_pager *pg = pager_of(lane);
	struct dcm_pg_lane *l = pg_lane_of(lane);
	u64 va = dcm_guest_va(&pg->guest, v->gfn);
	u16 mask = dcm_guest_mask(&pg->guest, v->gfn, v->order) & v->dirty;
	u16 hidden = dcm_sample_mask(pg, v->gfn, v->order), done = 0;
	unsigned int stays = 0;
	char *bytes;

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
			pages_collect_hidden(l, v->gfn, hidden, bytes);
		pages_copy_in(pg, va, bytes, v->err ? hidden : mask,
			      DCM_UFFD_WP, &done);
		v->err = 0;
	}
	__atomic_fetch_add(&l->unmap_seq, 1, __ATOMIC_SEQ_CST);
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

static void op_discard(struct dcm_lane *lane, u32 gfn, unsigned int order)
{
	struct dcm_pager *pg = pager_of(lane);
	struct dcm_pg_lane *l = pg_lane_of(lane);
	u16 hidden = dcm_sample_mask(pg, gfn, order);

	if (hidden)
		pages_collect_hidden(l, gfn, hidden, NULL);
	pages_take_out(l, dcm_guest_va(&pg->guest, gfn),
		 dcm_guest_mask(&pg->guest, gfn, order) & (u16)~hidden);
}

/* ---- I/O ---- */

/*
 * A move from a slab of shm to another slab: the donor may cut off the source
 * while the WRITE reads it, so the bytes go through the fetch's buffer.
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
	.install = op_install,
	.remap = op_remap,
	.reveal = op_reveal,
	.unprotect = op_unprotect,
	.unmap = op_unmap,
	.copy = op_copy,
	.wake = op_wake,
	.zero_mask = op_zero_mask,
	.frame_data = op_frame_data,
	.release = op_release,
	.discard = op_discard,
	.io_post = op_io_post,
	.io_flush = op_io_flush,
	.io_poll = op_io_poll,
	.want_slab = op_want_slab,
	.lost = op_lost,
	.now_ns = dcm_now_ns,
	.relax = op_relax,
};

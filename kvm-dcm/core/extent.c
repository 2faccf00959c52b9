// SPDX-License-Identifier: GPL-2.0-only
/*
 * extent.c - extents and the slabs under them: attach, move, lose
 *
 * An extent is a slab-sized, slab-aligned part of the VM; page p of it is at
 * offset p of its slab, always. While it moves to another donor it has two
 * slabs, and one bit of each page (PD_SLAB1) says which has that page's remote
 * copy. New write-backs go to the new slab at once, and dcm_extent_move()
 * copies the pages that were not written: page by page the old slab empties
 * while the guest runs. The paper's eviction (infiniswap-nsdi17, 4.4) drops
 * the remote copy and falls back on disk; here nothing is dropped.
 *
 *	old   x x x x x x        old   . x . x . .       old  gone: DONE
 *	new   . . . . . .   -->  new   x . x . x x  -->  new  x x x x x x
 *
 * When a donor dies its pages are marked: those also in direct memory become
 * dirty and will be written elsewhere, the others LOST.
 *
 * Locking: slab pointers, cur and gone are written by the slab worker
 * alone. A lane counts an I/O before it looks at gone (a write-back: closed);
 * the slab worker sets the flag before it looks at the count: once the flag
 * is set and the count is zero, no lane posts (or writes) any more.
 */
#include "internal.h"

/**
 * dcm_extent_io() - post an I/O on the slab under a page
 * @lane: caller's lane
 * @gfn: first page of the I/O
 * @slab_idx: which of the extent's slabs
 * @io: op, bytes, data, owner and posted_ns set
 *
 * Return: 0, -EAGAIN (queue full), -ESTALE (slab gone for good), or another
 * errno of the transport. The caller ends it with dcm_extent_io_end().
 */
int dcm_extent_io(struct dcm_lane *lane, u32 gfn, u8 slab_idx,
		  struct dcm_io *io)
{
	struct dcm_vm *vm = lane->vm;
	struct dcm_extent *e = extent_of(vm, gfn);
	bool gone;
	int err;

	atomic_fetch_inc(&e->inflight[slab_idx]);
	/* Pairs with dcm_extent_lost(): it sees our count, or we its flag. */
	gone = smp_load_acquire(&e->gone[slab_idx]);
	/* Pairs with dcm_extent_attach(): a slab we see is set up. */
	io->slab = smp_load_acquire(&e->slab[slab_idx]);
	if (gone || !io->slab) {
		dcm_extent_io_end(vm, gfn, slab_idx);
		return -ESTALE;
	}
	io->offset = (u64)(gfn & (vm->extent_pages - 1)) << DCM_PAGE_SHIFT;
	io->status = 0;
	io->next = NULL;
	if (unlikely(io->offset + io->bytes > io->slab->bytes)) {
		dcm_extent_io_end(vm, gfn, slab_idx);
		return -ERANGE;
	}
	err = vm->ops->io_post(lane, io);
	if (err) {
		dcm_extent_io_end(vm, gfn, slab_idx);
		return err;
	}
	return 0;
}

void dcm_extent_io_end(struct dcm_vm *vm, u32 gfn, u8 slab_idx)
{
	atomic_dec_return_release(&extent_of(vm, gfn)->inflight[slab_idx]);
}

/*
 * Begin a write-back of this page's extent to slab @slab_idx. It counts as one
 * I/O until dcm_extent_io_end(), so that a slab with a write-back that has
 * not set its pages' flags yet is never taken for empty. False: no writes now.
 */
bool dcm_extent_write_begin(struct dcm_vm *vm, u32 gfn, u8 slab_idx)
{
	struct dcm_extent *e = extent_of(vm, gfn);

	atomic_fetch_inc(&e->inflight[slab_idx]);
	if (smp_load_acquire(&e->slab[slab_idx]) && /* dcm_extent_attach() */
	    smp_load_acquire(&e->cur) == slab_idx && /* dcm_extent_attach() */
	    !smp_load_acquire(&e->gone[slab_idx]) && /* dcm_extent_lost() */
	    !smp_load_acquire(&e->closed[slab_idx])) /* dcm_extent_move() */
		return true;
	dcm_extent_io_end(vm, gfn, slab_idx);
	return false;
}

static int slab_index(const struct dcm_extent *e,
		      const struct dcm_slab_ref *slab)
{
	if (slab && READ_ONCE(e->slab[0]) == slab)
		return 0;
	if (slab && READ_ONCE(e->slab[1]) == slab)
		return 1;
	return -ENOENT;
}

int dcm_extent_attach(struct dcm_vm *vm, u32 extent, struct dcm_slab_ref *slab)
{
	struct dcm_extent *e;
	u8 cur, to;

	if (extent >= vm->nr_extents || !slab ||
	    slab->bytes < (u64)vm->extent_pages << DCM_PAGE_SHIFT)
		return -EINVAL;
	e = &vm->extent[extent];
	cur = READ_ONCE(e->cur);
	to = e->slab[cur] ? !cur : cur;
	if (e->slab[to])
		return -EBUSY;
	WRITE_ONCE(e->gone[to], false);
	WRITE_ONCE(e->closed[to], false);
	WRITE_ONCE(e->attached[to], e->attached[to] + 1);
	/* Pair with dcm_extent_io(): a slab it sees is set up, with flags. */
	smp_store_release(&e->slab[to], slab);
	smp_store_release(&e->cur, to); /* after the slab it names */
	return 0;
}

/* No page is on slab @i any more. */
static void slab_detach(struct dcm_extent *e, unsigned int i)
{
	/* After the end of the last operation, for dcm_extent_io(). */
	smp_store_release(&e->slab[i], (struct dcm_slab_ref *)NULL);
}

/* ---- moving ---- */

static void move_op_end(struct dcm_lane *lane, struct dcm_move_op *m, int err)
{
	struct dcm_vm *vm = lane->vm;
	struct dcm_pd *head = pd_of(vm, m->gfn);
	u32 i;

	if (!err) {
		u32 to = lane->move.from ? 0 : PD_SLAB1;

		for (i = 0; i < m->nr; i++)
			pd_assign(pd_of(vm, m->gfn + m->first + i), PD_SLAB1,
				  to);
		dcm_count(lane, DCM_C_MOVED_PAGES, m->nr);
	}
	m->unreadable = err == -ESTALE && m->phase == DCM_MV_READ;
	m->phase = err ? DCM_MV_FAILED : DCM_MV_FREE;
	lane->move.left--;
	pd_lock(head);
	dcm_block_unbusy(lane, m->gfn, pd_order(pd_word(head)));
}

/* The first @nr pages of a block. */
static u16 page_run(unsigned int nr)
{
	return (u16)((1u << nr) - 1);
}

static void move_post(struct dcm_lane *lane, struct dcm_move_op *m)
{
	u8 from = lane->move.from;
	bool write = m->phase == DCM_MV_WRITE;
	int err;

	m->io.op = write ? DCM_IO_WRITE : DCM_IO_READ;
	m->io.zero = false;
	m->io.bytes = m->nr * DCM_PAGE_SIZE;
	m->io.owner = m;
	m->io.kind = DCM_IO_MOVE;
	m->io.posted_ns = 0;
	if (!write)
		m->io.data = lane->fetch[m - lane->move.op].buf;
	err = dcm_extent_io(lane, m->gfn + m->first, write ? !from : from,
			    &m->io);
	if (err)
		move_op_end(lane, m, err);
}

void dcm_move_io_done(struct dcm_lane *lane, struct dcm_move_op *m)
{
	u8 from = lane->move.from;
	bool write = m->phase == DCM_MV_WRITE;

	if (write && m->io.status == -ENOTCONN)
		dcm_doubt_add(lane, m->gfn + m->first, page_run(m->nr), !from,
			      m->io.slab->peer);
	dcm_extent_io_end(lane->vm, m->gfn, write ? !from : from);
	if (m->io.status) {
		move_op_end(lane, m, m->io.status);
	} else if (write) {
		move_op_end(lane, m, 0);
	} else {
		m->phase = DCM_MV_WRITE;
		move_post(lane, m);
	}
}

/* Is the remote copy of this page on slab @idx? */
static bool page_on(const struct dcm_vm *vm, u32 gfn, u8 idx)
{
	return (pd_word(pd_of(vm, gfn)) & (PD_REMOTE | PD_SLAB1)) ==
	       (PD_REMOTE | (idx ? PD_SLAB1 : 0u));
}

/* Pages of the block whose remote copy is on slab @from. */
static u16 block_on(const struct dcm_vm *vm, u32 head, unsigned int order,
		    u8 from)
{
	u16 remote = dcm_block_flag(vm, head, order, PD_REMOTE);
	u16 second = dcm_block_flag(vm, head, order, PD_SLAB1);

	return remote & (from ? second : (u16)~second);
}

static bool mask_contiguous(u16 m)
{
	u32 x = m >> (ffs_u32(m) - 1);

	return !(x & (x + 1));
}

enum step {
	STEP_NEXT, /* the block is done */
	STEP_AGAIN, /* its size changed: look again */
	STEP_LATER, /* another lane works on it */
	STEP_STARTED, /* an I/O was started */
	STEP_FULL, /* direct memory has no room */
};

/*
 * Move one block off slab @from. A direct block only forgets its remote copy:
 * its bytes are here and will be written to the new slab.
 */
static enum step move_block(struct dcm_lane *lane, u32 gfn, u8 from, bool pull,
			    u32 *next)
{
	struct dcm_vm *vm = lane->vm;
	struct dcm_move *mv = &lane->move;
	unsigned int order, i;
	u32 head = dcm_block_lock(vm, gfn, &order);
	struct dcm_pd *pd = pd_of(vm, head);
	u16 mask = block_on(vm, head, order, from);
	struct dcm_move_op *m;
	struct dcm_fetch *f;

	*next = head + (1u << order);
	if ((pd_word(pd) & PD_BUSY) || pd_state(pd_word(pd)) == DCM_WRITEBACK) {
		pd_unlock(pd);
		return STEP_LATER;
	}
	if (!mask) {
		pd_unlock(pd);
		return STEP_NEXT;
	}
	if (pd_state(pd_word(pd)) != DCM_NOTDIRECT) {
		for (i = 0; i < 1u << order; i++)
			if (mask & (1u << i))
				pd_assign(pd_of(vm, head + i), PD_REMOTE,
					  PD_DIRTY);
		pd_unlock(pd);
		return STEP_NEXT;
	}
	if (order && (!mask_contiguous(mask) ||
		      dcm_block_flag(vm, head, order, PD_LOST) ||
		      dcm_block_flag(vm, head, order, PD_REMOTE) != mask)) {
		dcm_eblk_reduce(lane, head, order);
		pd_unlock(pd);
		*next = gfn;
		return STEP_AGAIN;
	}
	if (pull) {
		if (!dcm_frames_take(vm, 1u << order)) {
			pd_unlock(pd);
			return STEP_FULL;
		}
		f = dcm_fetch_begin(lane, head, order, DCM_NIL, false);
		pd_unlock(pd);
		if (!f) {
			dcm_frames_put(vm, 1u << order);
			return STEP_LATER;
		}
		dcm_count(lane, DCM_C_PULLED_PAGES, hweight16(mask));
		dcm_fetch_start(lane, f);
		return STEP_STARTED;
	}
	if (!dcm_doubt_room(lane)) {
		pd_unlock(pd);
		return STEP_LATER;
	}
	m = &mv->op[mv->nr++];
	m->gfn = head;
	m->first = (u8)(ffs_u32(mask) - 1);
	m->nr = (u8)hweight16(mask);
	m->phase = DCM_MV_READ;
	mv->left++;
	mv->from = from;
	pd_set(pd, PD_BUSY);
	pd_unlock(pd);
	move_post(lane, m);
	return STEP_STARTED;
}

/* The batch is complete. -EIO: a page could not be read. */
static int move_collect(struct dcm_lane *lane)
{
	struct dcm_move *mv = &lane->move;
	int err = 0;
	u32 i;

	for (i = 0; i < mv->nr; i++)
		if (mv->op[i].phase == DCM_MV_FAILED && mv->op[i].unreadable)
			err = -EIO;
	mv->nr = 0;
	return err;
}

int dcm_extent_move(struct dcm_lane *lane, u32 extent,
		    struct dcm_slab_ref *slab, u32 *cursor)
{
	struct dcm_vm *vm = lane->vm;
	struct dcm_move *mv = &lane->move;
	struct dcm_extent *e;
	u32 first, end, gfn, next;
	bool pull, later = false, full = false;
	int idx, err;

	if (extent >= vm->nr_extents)
		return -ENOENT;
	dcm_poll(lane);
	if (mv->left)
		return -EAGAIN;
	err = move_collect(lane);
	if (err)
		return err;
	e = &vm->extent[extent];
	idx = slab_index(e, slab);
	if (idx < 0)
		return idx;
	pull = READ_ONCE(e->cur) == idx;
	if (!pull && (!e->slab[e->cur] || e->gone[e->cur])) {
		vm->ops->want_slab(vm, extent);
		return -EAGAIN;
	}
	/* Moves use the fetches' buffers: let pulls end first. */
	if (!pull && lane->nr_fetch)
		return -EAGAIN;
	/* Pairs with dcm_extent_write_begin(): no new write from here on. */
	smp_store_release(&e->closed[idx], true);
	first = extent << vm->extent_shift;
	end = min(first + vm->extent_pages, vm->nr_pages);
	gfn = (u32)dcm_chunk_next(vm, first + min(*cursor, end - first), end);
	while (gfn < end && mv->nr < DCM_MOVES_MAX && !full) {
		switch (move_block(lane, gfn, (u8)idx, pull, &next)) {
		case STEP_LATER:
			later = true;
			break;
		case STEP_FULL:
			full = true;
			continue;
		default:
			break;
		}
		gfn = (u32)dcm_chunk_next(vm, next, end);
		if (pull && lane->nr_fetch >= DCM_MOVES_MAX)
			break;
	}
	vm->ops->io_flush(lane);
	*cursor = gfn - first;
	if (full)
		return -ENOSPC;
	if (gfn < end || mv->nr)
		return -EAGAIN;
	*cursor = 0;
	if (later)
		return -EAGAIN;
	/* No I/O under way there: now no page may be left there. */
	if (atomic_fetch_or(0, &e->inflight[idx]))
		return -EAGAIN;
	for (gfn = first; (gfn = (u32)dcm_chunk_next(vm, gfn, end)) < end;
	     gfn++)
		if (page_on(vm, gfn, (u8)idx))
			return -EAGAIN;
	slab_detach(e, (unsigned int)idx);
	return 0;
}

/* ---- losing ---- */

/* One page whose remote copy is gone. False: another lane has its block. */
static bool page_lose(struct dcm_lane *lane, struct dcm_extent *e, u32 gfn,
		      u8 idx)
{
	struct dcm_vm *vm = lane->vm;
	struct dcm_pd *pd = pd_of(vm, gfn);
	u32 head, hw;
	unsigned int order;
	bool done = true;

	if (!page_on(vm, gfn, idx))
		return true;
	head = dcm_block_lock(vm, gfn, &order);
	hw = pd_word(pd_of(vm, head));
	if (!page_on(vm, gfn, idx)) {
		;
	} else if ((hw & PD_BUSY) || pd_state(hw) == DCM_WRITEBACK) {
		done = false;
	} else if (pd_state(hw) == DCM_NOTDIRECT) {
		pd_assign(pd, PD_REMOTE, PD_LOST);
		atomic64_add(1, &e->lost_pages);
		dcm_count(lane, DCM_C_LOST_PAGES, 1);
	} else {
		pd_assign(pd, PD_REMOTE, PD_DIRTY);
	}
	pd_unlock(pd_of(vm, head));
	return done;
}

s64 dcm_extent_lost(struct dcm_lane *lane, u32 extent,
		    struct dcm_slab_ref *slab)
{
	struct dcm_vm *vm = lane->vm;
	struct dcm_extent *e;
	u32 gfn, end;
	bool again = false;
	int idx;

	if (extent >= vm->nr_extents)
		return -ENOENT;
	e = &vm->extent[extent];
	idx = slab_index(e, slab);
	if (idx < 0)
		return idx;
	/* Pairs with dcm_extent_io(): no new operation from here on. */
	smp_store_release(&e->gone[idx], true);
	dcm_poll(lane);
	if (atomic_fetch_or(0, &e->inflight[idx]))
		return -EAGAIN;
	gfn = extent << vm->extent_shift;
	end = min(gfn + vm->extent_pages, vm->nr_pages);
	for (; (gfn = (u32)dcm_chunk_next(vm, gfn, end)) < end; gfn++)
		again |= !page_lose(lane, e, gfn, (u8)idx);
	if (again)
		return -EAGAIN;
	slab_detach(e, (unsigned int)idx);
	return atomic64_xchg(&e->lost_pages, 0);
}

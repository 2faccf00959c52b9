// SPDX-License-Identifier: GPL-2.0-only
/*
 * move.c - copy pages from slot to slot: fill, drain, and the operations of spread.c
 *
 * dcm_extent_fill() copies to each open slot the pages that it lacks: those of a
 * slab that was just attached, and thin ones. dcm_extent_drain() takes all pages
 * off one slot, so that its slab can be given back. If another slot has the page too,
 * this slot just leaves its set; if not, the page is copied to the open slots, or if
 * there are none brought into direct memory (pulled).
 *
 *	fill   slot 0   x x x x        x x x x        drain   x x x x      . . . .
 *	       slot 1   . x . x  --->  x x x x        of 0    . x x .  ->  x x x x
 *
 * A fill skips direct blocks. Once it has ended (%DCM_FILL_DONE), eviction writes
 * clean pages to the slots that lack them before it drops them (evict.c); else it could
 * drop a page while the only donor that has it dies.
 *
 * All this goes on page by page while the guest runs. The paper's eviction
 * (infiniswap-nsdi17, 4.4) drops the remote copy and falls back on disk; here nothing
 * is dropped.
 *
 * An operation is for a run of adjacent pages of a block with the same set: a READ
 * from any slot that has them, then a WRITE to each slot that lacks them. The
 * block is BUSY meanwhile. Pages whose operation failed are found by the next pass.
 *
 * Locking: operations belong to the slab worker's lane, whose fetches' buffers
 * they use.
 */
#include "internal.h"

/* at a time: faults wait behind them, a fill is not urgent */
#define FILL_RUNS 2u

/* ---- one run of pages ---- */

/* The operation ends: the slots that were written well enter the pages' sets. */
static void move_op_end(struct dcm_lane *lane, struct dcm_move_op *m)
{
	struct dcm_vm *vm = lane->vm;
	struct dcm_extent *e = extent_of(vm, m->gfn);
	u8 well = m->well & (u8)~READ_ONCE(e->gone);
	u32 i;

	for (i = 0; well && i < m->nr; i++)
		pd_assign(pd_of(vm, m->gfn + m->first + i), pd_at_bits(m->off),
			  pd_at_bits(well));
	if (well)
		dcm_count(lane,
			  m->changed ? DCM_C_SPREAD_PAGES :
			  m->off     ? DCM_C_MOVED_PAGES :
					 DCM_C_FILLED_PAGES,
			  m->nr);
	if (m->changed && (!m->data || m->cut))
		lane->move.failed = min(lane->move.failed, m->gfn + m->first);
	if (well == m->targets)
		;
	else if (m->off || m->changed)
		WRITE_ONCE(e->thin, true);
	else
		dcm_lag_fill_leaves(vm, e, m->nr);
	dcm_slots_end(vm, m->gfn, m->targets);
	lane->move.left--;
	pd_lock(pd_of(vm, m->gfn));
	dcm_block_unbusy(lane, m->gfn, pd_order(pd_word(pd_of(vm, m->gfn))));
}

/* WRITE to the next slot; slots whose donor is down come last. */
static void move_write(struct dcm_lane *lane, struct dcm_move_op *m)
{
	int slot = dcm_slot_pick(lane, m->gfn, m->targets & (u8)~m->well);
	int err;

	m->io.op = DCM_IO_WRITE;
	m->io.data = m->data;
	m->io.posted_ns = 0;
	if (slot < 0) {
		move_op_end(lane, m);
		return;
	}
	err = dcm_slot_io(lane, m->gfn + m->first, (u8)slot, &m->io);
	if (err) {
		m->cut = err == -ENOTCONN;
		move_op_end(lane, m);
	}
}

/* READ from the best slot on which no READ has failed. */
static void move_read(struct dcm_lane *lane, struct dcm_move_op *m)
{
	int slot, err;

	m->io.op = DCM_IO_READ;
	m->io.data = lane->fetch[m - lane->move.op].buf;
	while ((slot = dcm_slot_pick(lane, m->gfn, m->sources)) >= 0) {
		err = dcm_slot_io(lane, m->gfn + m->first, (u8)slot, &m->io);
		if (!err)
			return;
		m->later |= err != -ESTALE;
		m->sources &= (u8) ~(1u << slot);
	}
	move_op_end(lane, m);
}

/* The pages of a run of @nr, counted from its first. */
static u16 page_run(unsigned int nr)
{
	return (u16)((1u << nr) - 1);
}

/*
 * Did the READ bring wrong bytes? They are not written anywhere. -EAGAIN: read once
 * more from the same slot; -EIO: the slot has left the pages' sets.
 */
static int move_wrong(struct dcm_lane *lane, struct dcm_move_op *m)
{
	u32 gfn = m->gfn + m->first;
	u16 wrong;

	wrong = dcm_pages_wrong(lane, gfn, &m->io, page_run(m->nr), true);
	if (likely(!wrong))
		return 0;
	if (!m->reread && dcm_wrong_again(lane, gfn, wrong, m->io.slot)) {
		m->reread = true;
		return -EAGAIN;
	}
	dcm_wrong_strike(lane, gfn, wrong, m->io.slot);
	return -EIO;
}

/*
 * Pages that a GC worker changed were read from the primary. Until they are written
 * elsewhere only the primary has them, so all other slots leave their sets. (The READ
 * still counts in the primary's @inflight, so dcm_extent_lost() has not taken pages off
 * it.)
 */
static void move_changed(struct dcm_lane *lane, struct dcm_move_op *m)
{
	u32 gfn = m->gfn + m->first, i;

	if (dcm_sums_same(lane, gfn, &m->io, page_run(m->nr))) {
		m->well = m->off & m->targets;
		m->off = 0;
		return;
	}
	for (i = 0; i < m->nr; i++)
		pd_clear(pd_of(lane->vm, gfn + i), pd_at_bits(m->off));
	dcm_sums_renew(lane, gfn, &m->io, page_run(m->nr));
}

void dcm_move_io_done(struct dcm_lane *lane, struct dcm_move_op *m)
{
	u8 bit = (u8)(1u << m->io.slot);
	int err = m->io.status;
	bool again = false;

	if (!err && m->io.op == DCM_IO_READ && m->changed) {
		move_changed(lane, m);
	} else if (!err && m->io.op == DCM_IO_READ) {
		err = move_wrong(lane, m);
		again = err == -EAGAIN;
	}

	/* While the move still counts in the slots' @inflight. */
	if (m->io.op == DCM_IO_WRITE && err == -ENOTCONN)
		dcm_doubt_add(lane, m->gfn + m->first, page_run(m->nr), bit);
	dcm_slot_io_end(lane->vm, m->gfn, m->io.slot);
	if (m->io.op == DCM_IO_READ) {
		if (err) {
			m->later |= err != -ESTALE;
			if (!again)
				m->sources &= (u8)~bit;
			move_read(lane, m);
			return;
		}
		m->data = m->io.data;
		move_write(lane, m);
		return;
	}
	if (err) {
		/* A page is in one doubt at a time: no more WRITEs. */
		m->cut = err == -ENOTCONN;
		move_op_end(lane, m);
		return;
	}
	m->well |= bit;
	move_write(lane, m);
}

/* ---- a block ---- */

/**
 * dcm_move_start() - start to read pages of a block, and to write them elsewhere
 * @lane: a lane with buffers for moves, not all of them in use
 * @what: its @gfn, @first, @nr, @sources, @targets, @off and @changed; the block is
 *	locked, NotDirect and not BUSY
 *
 * Return: false: no target is open, and nothing has changed; else the block is not
 * locked any more, and BUSY until the operation has ended.
 */
bool dcm_move_start(struct dcm_lane *lane, const struct dcm_move_op *what)
{
	struct dcm_vm *vm = lane->vm;
	struct dcm_move *mv = &lane->move;
	struct dcm_move_op *m = &mv->op[mv->nr];
	u8 targets = what->targets;

	if (targets)
		targets = dcm_slots_begin(vm, what->gfn, targets);
	if (!targets)
		return false;
	*m = *what;
	m->targets = targets;
	m->io.bytes = m->nr * DCM_PAGE_SIZE;
	m->io.owner = m;
	m->io.kind = DCM_IO_MOVE;
	mv->nr++;
	mv->left++;
	pd_set(pd_of(vm, m->gfn), PD_BUSY);
	pd_unlock(pd_of(vm, m->gfn));
	move_read(lane, m);
	return true;
}

enum step {
	STEP_NEXT, /* the block is done, or under way */
	STEP_AGAIN, /* its size changed: look again */
	STEP_LATER, /* a part of it has to wait */
	STEP_FULL, /* direct memory has no room */
};

/**
 * struct run - adjacent pages of a block that have the same set, and need a copy
 * @first: index of the first
 * @nr: how many
 * @at: their set
 * @more: other pages of the block need a copy too
 */
struct run {
	u32 first;
	u32 nr;
	u8 at;
	bool more;
};

static void run_add(struct run *r, u32 i, u8 at)
{
	if (!r->nr) {
		r->first = i;
		r->at = at;
	}
	if (i == r->first + r->nr && at == r->at)
		r->nr++;
	else
		r->more = true;
}

/*
 * Start the operation on a run of pages of a block: locked and not BUSY; not
 * locked on return.
 */
static enum step run_start(struct dcm_lane *lane, u32 head, const struct run *r,
			   u8 lack, u8 off)
{
	struct dcm_move_op what = {
		.gfn = head,
		.first = (u8)r->first,
		.nr = (u8)r->nr,
		.sources = r->at,
		.off = off,
	};

	if (dcm_doubt_room(lane))
		what.targets = dcm_slots_well(lane, head, lack);
	if (!dcm_move_start(lane, &what)) {
		pd_unlock(pd_of(lane->vm, head));
		return STEP_LATER;
	}
	return r->more || what.targets != lack ? STEP_LATER : STEP_NEXT;
}

/* Can anything be done with the block now? */
static bool block_free(u32 w)
{
	return !(w & PD_BUSY) && pd_state(w) != DCM_WRITEBACK;
}

/*
 * Copy pages of a block to open slots that lack them. @left: out: how many pages may
 * lag if the block, or a part of it, has to wait.
 */
static enum step block_fill(struct dcm_lane *lane, u32 gfn, u32 *next,
			    u32 *left)
{
	struct dcm_vm *vm = lane->vm;
	unsigned int order;
	u32 head = dcm_block_lock(vm, gfn, &order), i;
	struct dcm_pd *pd = pd_of(vm, head);
	u8 open = READ_ONCE(extent_of(vm, head)->open);
	struct run r = { 0 };
	bool wait = !block_free(pd_word(pd));

	*next = head + (1u << order);
	*left = dcm_lag_left(vm, head, order);
	/* a direct block's thin pages are written when it leaves: pages_owed() */
	if (wait || pd_state(pd_word(pd)) != DCM_NOTDIRECT) {
		pd_unlock(pd);
		return wait ? STEP_LATER : STEP_NEXT;
	}
	for (i = 0; i < 1u << order; i++) {
		u32 w = pd_word(&pd[i]);

		if (!pd_lacks(w, open))
			continue;
		if (pd_inflight(&pd[i]))
			wait = true;
		else
			run_add(&r, i, pd_at(w));
	}
	r.more |= wait;
	if (r.nr)
		return run_start(lane, head, &r, open & (u8)~r.at, 0);
	pd_unlock(pd);
	return wait ? STEP_LATER : STEP_NEXT;
}

/* Bring a block into direct memory. Locked and not BUSY; not locked on return. */
static enum step block_pull(struct dcm_lane *lane, u32 head, unsigned int order,
			    u32 *next)
{
	struct dcm_vm *vm = lane->vm;
	struct dcm_sets sets = dcm_block_at(vm, head, order);
	struct dcm_fetch *f;

	if (!sets.at) {
		dcm_eblk_reduce(lane, head, order);
		pd_unlock(pd_of(vm, head));
		*next = head;
		return STEP_AGAIN;
	}
	if (!dcm_frames_take(vm, 1u << order)) {
		pd_unlock(pd_of(vm, head));
		return STEP_FULL;
	}
	f = dcm_fetch_begin(lane, head, order, DCM_NIL, DCM_FOR_PULL, sets);
	pd_unlock(pd_of(vm, head));
	if (!f) {
		dcm_frames_put(vm, 1u << order);
		return STEP_LATER;
	}
	dcm_count(lane, DCM_C_PULLED_PAGES, hweight16(sets.some));
	dcm_fetch_start(lane, f);
	return STEP_NEXT;
}

/*
 * Take a page off a slot, if another has it, or if its bytes are here (@direct).
 * False: it has to be read first.
 */
static bool page_off(struct dcm_pd *pd, u8 off, u8 gone, bool direct)
{
	u8 others = pd_at(pd_word(pd)) & (u8)~off;

	if (direct)
		pd_assign(pd, pd_at_bits(off), others ? 0 : PD_DIRTY);
	else if (others & (u8)~gone)
		pd_clear(pd, pd_at_bits(off));
	else
		return false;
	return true;
}

/* Take the pages of a block off slot @off. */
static enum step block_drain(struct dcm_lane *lane, u32 gfn, u8 off, bool pull,
			     u32 *next)
{
	struct dcm_vm *vm = lane->vm;
	unsigned int order;
	u32 head = dcm_block_lock(vm, gfn, &order), i;
	struct dcm_pd *pd = pd_of(vm, head);
	const struct dcm_extent *e = extent_of(vm, head);
	bool direct = pd_state(pd_word(pd)) != DCM_NOTDIRECT;
	u8 open = READ_ONCE(e->open), gone = READ_ONCE(e->gone);
	struct run r = { 0 };
	bool wait = false;

	*next = head + (1u << order);
	if (!block_free(pd_word(pd))) {
		pd_unlock(pd);
		return STEP_LATER;
	}
	for (i = 0; i < 1u << order; i++) {
		u8 at = pd_at(pd_word(&pd[i]));

		if (!(at & off) || page_off(&pd[i], off, gone, direct))
			continue;
		if (!pull && pd_inflight(&pd[i]))
			wait = true;
		else
			run_add(&r, i, at);
	}
	r.more |= wait;
	if (r.nr && pull)
		return block_pull(lane, head, order, next);
	if (r.nr)
		return run_start(lane, head, &r, open, off);
	pd_unlock(pd);
	return wait ? STEP_LATER : STEP_NEXT;
}

/* ---- an extent ---- */

int dcm_extent_fill(struct dcm_lane *lane, u32 extent, u32 *cursor)
{
	struct dcm_vm *vm = lane->vm;
	struct dcm_move *mv = &lane->move;
	struct dcm_extent *e;
	u32 first, end, gfn, next, left;

	if (extent >= vm->nr_extents)
		return -ENOENT;
	e = &vm->extent[extent];
	dcm_poll(lane);
	/* Pulls use the same buffers. */
	if (mv->left || lane->nr_fetch)
		return -EAGAIN;
	mv->nr = 0;
	if (!*cursor)
		dcm_lag_fill_begins(e);
	first = extent << vm->extent_shift;
	end = min(first + vm->extent_pages, vm->nr_pages);
	gfn = (u32)dcm_chunk_next(vm, first + min(*cursor, end - first), end);
	for (; gfn < end && mv->nr < FILL_RUNS;
	     gfn = (u32)dcm_chunk_next(vm, next, end))
		if (block_fill(lane, gfn, &next, &left) == STEP_LATER)
			dcm_lag_fill_leaves(vm, e, left);
	vm->ops->io_flush(lane);
	*cursor = gfn - first;
	if (gfn < end || mv->nr)
		return -EAGAIN;
	*cursor = 0;
	dcm_lag_fill_ends(vm, e);
	if (READ_ONCE(e->thin))
		return -EAGAIN;
	WRITE_ONCE(e->fill, DCM_FILL_DONE);
	return 0;
}

/* The batch is complete. -EIO: all slots that had a page are gone. */
static int move_collect(struct dcm_lane *lane)
{
	struct dcm_move *mv = &lane->move;
	int err = 0;
	u32 i;

	for (i = 0; i < mv->nr; i++)
		if (mv->op[i].off && !mv->op[i].changed && !mv->op[i].later &&
		    !mv->op[i].sources)
			err = -EIO;
	mv->nr = 0;
	return err;
}

/*
 * Decide where the pages of slot @slot go. 0, and @pull: out: into direct memory, as
 * no other slot has a slab; -EAGAIN: to a slab that the extent must get first.
 */
static int drain_where(struct dcm_vm *vm, u32 extent, int slot, bool *pull)
{
	const struct dcm_extent *e = &vm->extent[extent];
	u8 others = e->used & (u8) ~(1u << slot);

	*pull = false;
	if (e->open & others)
		return 0;
	if (e->gone & others) {
		vm->ops->want_slab(vm, extent);
		return -EAGAIN;
	}
	/* the others are emptied into this one, and there is no slot for another */
	if (e->used == DCM_SLOTS_ALL && e->open)
		return -EBUSY;
	*pull = true;
	return 0;
}

/* One batch of a drain. 0: the pass has ended, and this batch had nothing to do. */
static int drain_batch(struct dcm_lane *lane, u32 extent, u8 off, bool pull,
		       u32 *cursor)
{
	struct dcm_vm *vm = lane->vm;
	struct dcm_move *mv = &lane->move;
	u32 first = extent << vm->extent_shift, next;
	u32 end = min(first + vm->extent_pages, vm->nr_pages);
	u32 gfn =
		(u32)dcm_chunk_next(vm, first + min(*cursor, end - first), end);
	bool later = false;
	enum step step = STEP_NEXT;

	while (gfn < end && mv->nr < DCM_MOVES_MAX) {
		if (pull && lane->nr_fetch >= DCM_MOVES_MAX)
			break;
		step = block_drain(lane, gfn, off, pull, &next);
		if (step == STEP_FULL)
			break;
		later |= step == STEP_LATER;
		gfn = (u32)dcm_chunk_next(vm, next, end);
	}
	vm->ops->io_flush(lane);
	*cursor = gfn - first;
	if (step == STEP_FULL) {
		vm->ops->want_slab(vm, extent);
		return -ENOSPC;
	}
	if (gfn < end || mv->nr)
		return -EAGAIN;
	*cursor = 0;
	return later ? -EAGAIN : 0;
}

int dcm_extent_drain(struct dcm_lane *lane, u32 extent,
		     struct dcm_slab_ref *slab, u32 *cursor)
{
	struct dcm_vm *vm = lane->vm;
	struct dcm_extent *e;
	bool pull;
	int slot, err;

	if (extent >= vm->nr_extents)
		return -ENOENT;
	dcm_poll(lane);
	if (lane->move.left)
		return -EAGAIN;
	err = move_collect(lane);
	if (err)
		return err;
	e = &vm->extent[extent];
	slot = dcm_slot_of(e, slab);
	if (slot < 0)
		return slot;
	err = drain_where(vm, extent, slot, &pull);
	if (err)
		return err;
	/* Moves use the fetches' buffers: let pulls end first. */
	if (!pull && lane->nr_fetch)
		return -EAGAIN;
	/* Pairs with dcm_slots_begin(): no new write from here on. */
	smp_store_release(&e->open, (u8)(e->open & ~(1u << slot)));
	err = drain_batch(lane, extent, (u8)(1u << slot), pull, cursor);
	if (err)
		return err;
	return dcm_slot_detach(vm, extent, slot) ? 0 : -EAGAIN;
}

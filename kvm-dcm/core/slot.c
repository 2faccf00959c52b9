// SPDX-License-Identifier: GPL-2.0-only
/*
 * slot.c - the slots of an extent: choose those to write to and to read from; I/O
 *
 * An extent has slots for slabs, and each page has a set: the slots that hold
 * its content. A write-back goes to every open slot. A page may be read from
 * any slot of its set. The nearest one is read; if several are equally near, they
 * take turns by 64 KiB of the VM, so that they share the load.
 *
 * Each lane has connections of its own. When its connection to a donor has
 * failed, and nothing has gone well there since, that donor is *down* for the
 * lane. A page is read from such a donor only if no other has it. For a while
 * (thin_after) write-backs that would go there too wait. After that the lane
 * leaves the donor out: pages go to the other slots only, and are *thin*. Ten
 * times a second one write-back goes to the donor all the same, to notice that it
 * is back. A donor that has let the lane connect again stays *cut* until a WRITE
 * has gone well: one that breaks off at each WRITE holds no page here for longer than
 * thin_after either. An extent with one open slot needs none of this: its write-back goes
 * there, and fails if the donor is down.
 *
 * How many slots an extent has is the control plane's decision (extent.c).
 * dcm-tc18 has one copy; infiniswap-nsdi17 has a second on a local disk.
 *
 * Locking: slab pointers, open and gone are written by the slab worker
 * alone. A lane counts an I/O before it looks at gone (a write-back: open);
 * the slab worker changes the bit before it looks at the count: once the bit
 * is changed and the count is zero, no lane posts (or writes) any more. Each lane
 * has its own record of which donors are down.
 */
#include "internal.h"

#define MS 1000000ull
#define PROBE_NS (100 * MS)

/* Count an I/O, or a write-back, that begins on each of these slots. */
static void slots_count(struct dcm_extent *e, u8 slots)
{
	for (; slots; slots &= slots - 1)
		atomic_fetch_inc(&e->slot[ffs_u32(slots) - 1].inflight);
}

void dcm_slots_end_each(struct dcm_extent *e, u8 slots)
{
	for (; slots; slots &= slots - 1)
		atomic_dec_return_release(
			&e->slot[ffs_u32(slots) - 1].inflight);
}

/**
 * dcm_slots_begin() - begin to write pages of an extent
 * @vm: the VM
 * @gfn: a page of the extent
 * @slots: the slots to write to
 *
 * Counts as one I/O on each slot until dcm_slots_end(). So a slot is not taken for
 * empty while a write to it has not yet set its bit in the pages' sets.
 *
 * Return: those of @slots that are open; the write has begun only on these.
 */
u8 dcm_slots_begin(struct dcm_vm *vm, u32 gfn, u8 slots)
{
	struct dcm_extent *e = extent_of(vm, gfn);
	u8 open;

	slots_count(e, slots);
	/* Pairs with dcm_extent_attach(), dcm_extent_drain(), dcm_extent_lost(). */
	open = slots & smp_load_acquire(&e->open);
	if (unlikely(open != slots))
		dcm_slots_end_each(e, slots & (u8)~open);
	return open;
}

/**
 * dcm_slot_primary() - the slot of the slab that GC workers of donors use
 * @e: the extent
 *
 * Of the open slots the one that has been attached for the longest; one on a file
 * only if all are, as donors of files have no workers. So a slab stays the primary
 * until it is emptied or lost, and is not the primary again after that.
 *
 * Return: the slot, or -1: none is open.
 */
int dcm_slot_primary(const struct dcm_extent *e)
{
	u64 first = U64_MAX;
	int slot = -1;
	u8 m;

	for (m = READ_ONCE(e->open); m; m &= m - 1) {
		unsigned int s = ffs_u32(m) - 1;
		u64 at = READ_ONCE(e->slot[s].since);

		if (READ_ONCE(e->rank[s]) == DCM_RANK_FILE)
			at |= 1ull << 32;
		if (at < first) {
			first = at;
			slot = (int)s;
		}
	}
	return slot;
}

/**
 * dcm_primary_bits() - the primary, as a mask of a page's set
 * @vm: the VM
 * @gfn: a page of the extent
 *
 * Return: the bit of the primary. With no open slot there is no primary and no worker
 * can be used: then the bits of all slots, so that a page on any slot will do.
 */
u32 dcm_primary_bits(const struct dcm_vm *vm, u32 gfn)
{
	int slot = dcm_slot_primary(extent_of(vm, gfn));

	return slot < 0 ? PD_AT : pd_at_bits(1u << slot);
}

/* ---- donors that are down ---- */

static u64 thin_after_ns(const struct dcm_lane *lane)
{
	return dcm_tune(lane->vm, DCM_T_thin_after) * MS;
}

/*
 * The lane's connection to a donor failed: note that it is down, and since when. A donor
 * that lets the lane connect again, but breaks off at each WRITE, is not well in between.
 */
void dcm_lane_down(struct dcm_lane *lane, u32 peer)
{
	u64 now = lane->vm->ops->now_ns(), bit = 1ull << peer;

	if (!(lane->down & bit) &&
	    (!(lane->cut & bit) ||
	     now - lane->probed_ns[peer] > thin_after_ns(lane)))
		lane->down_ns[peer] = now;
	lane->down |= bit;
	lane->cut |= bit;
	lane->probed_ns[peer] = now;
}

/* An I/O went well on a donor that was down, or to which a WRITE failed. */
void dcm_lane_up(struct dcm_lane *lane, u32 peer, bool write)
{
	lane->down &= ~(1ull << peer);
	if (write)
		lane->cut &= ~(1ull << peer);
}

/*
 * Should the lane write to this donor? If it is down, only once in %PROBE_NS, to notice
 * that it is back.
 */
static bool slot_well(struct dcm_lane *lane, u32 peer, u64 now)
{
	if (!(lane->down >> peer & 1))
		return true;
	if (now - lane->probed_ns[peer] < PROBE_NS)
		return false;
	lane->probed_ns[peer] = now;
	return true;
}

/**
 * dcm_slots_well() - leave out slots whose donor is down
 * @lane: caller's lane
 * @gfn: a page of the extent
 * @slots: where pages should be written to
 *
 * Return: the others; 0: none is left.
 */
u8 dcm_slots_well(struct dcm_lane *lane, u32 gfn, u8 slots)
{
	const struct dcm_extent *e = extent_of(lane->vm, gfn);
	u8 well = 0, m;
	u64 now;

	if (likely(!lane->down))
		return slots;
	now = lane->vm->ops->now_ns();
	for (m = slots; m; m &= m - 1) {
		unsigned int s = ffs_u32(m) - 1;

		if (slot_well(lane, READ_ONCE(e->peer[s]), now))
			well |= (u8)(1u << s);
	}
	return well;
}

/* Is the donor of one of these slots down, or has a WRITE to it failed just now? */
bool dcm_slots_cut(const struct dcm_lane *lane, u32 gfn, u8 slots)
{
	const struct dcm_extent *e = extent_of(lane->vm, gfn);
	u64 now;

	if (likely(!lane->cut))
		return false;
	now = lane->vm->ops->now_ns();
	for (; slots; slots &= slots - 1) {
		u32 peer = READ_ONCE(e->peer[ffs_u32(slots) - 1]);

		if (lane->down >> peer & 1 ||
		    (lane->cut >> peer & 1 &&
		     now - lane->probed_ns[peer] < PROBE_NS))
			return true;
	}
	return false;
}

/* Have WRITEs to one of these slots failed for less than thin_after? */
bool dcm_slots_wait(const struct dcm_lane *lane, u32 gfn, u8 slots)
{
	const struct dcm_extent *e = extent_of(lane->vm, gfn);
	u64 after = thin_after_ns(lane), now;

	if (likely(!lane->cut))
		return false;
	now = lane->vm->ops->now_ns();
	for (; slots; slots &= slots - 1) {
		u32 peer = READ_ONCE(e->peer[ffs_u32(slots) - 1]);

		if ((lane->cut >> peer & 1) &&
		    now - lane->down_ns[peer] < after)
			return true;
	}
	return false;
}

/* Are the donors of all these slots among @peers, a bit each? */
static bool slots_all(const struct dcm_lane *lane, u32 gfn, u8 slots, u64 peers)
{
	const struct dcm_extent *e = extent_of(lane->vm, gfn);

	for (; slots; slots &= slots - 1)
		if (!(peers >> READ_ONCE(e->peer[ffs_u32(slots) - 1]) & 1))
			return false;
	return true;
}

/*
 * A WRITE to each of these slots failed with its connection. Is one of them well again,
 * or may it be within thin_after?
 */
bool dcm_slots_soon(const struct dcm_lane *lane, u32 gfn, u8 slots)
{
	return !slots_all(lane, gfn, slots, lane->cut) ||
	       dcm_slots_wait(lane, gfn, slots);
}

/* Are the donors of all these slots down? */
bool dcm_slots_down(const struct dcm_lane *lane, u32 gfn, u8 slots)
{
	return slots_all(lane, gfn, slots, lane->down);
}

/*
 * Of the slots that a write-back has begun on, leave out those whose donor is
 * down, unless all are.
 */
static u8 slots_leave(struct dcm_lane *lane, u32 gfn, u8 slots, int *err)
{
	u8 well;

	if (dcm_slots_down(lane, gfn, slots))
		return slots;
	well = dcm_slots_well(lane, gfn, slots);
	if (dcm_slots_wait(lane, gfn, slots & (u8)~well)) {
		dcm_slots_end_each(extent_of(lane->vm, gfn), slots);
		*err = -EBUSY;
		return 0;
	}
	dcm_slots_end_each(extent_of(lane->vm, gfn), slots & (u8)~well);
	return well;
}

/**
 * dcm_slots_target() - begin a write-back, and choose the slots to write to
 * @lane: caller's lane
 * @gfn: a page of the block
 * @leave: slots to leave out (lag.c)
 * @err: out: why there is none: -ENODEV no slot is open; -EBUSY a donor has been down
 *	for less than thin_after
 *
 * Return: slots, at least one; end it by dcm_slots_end(). 0: none.
 */
u8 dcm_slots_target(struct dcm_lane *lane, u32 gfn, u8 leave, int *err)
{
	struct dcm_extent *e = extent_of(lane->vm, gfn);
	u8 open = READ_ONCE(e->open) & (u8)~leave;

	*err = -ENODEV;
	if (unlikely(!open))
		return 0;
	open = dcm_slots_begin(lane->vm, gfn, open);
	if (unlikely(lane->down) && (open & (open - 1)))
		open = slots_leave(lane, gfn, open, err);
	return open;
}

/* ---- reading ---- */

/* Of @slots, those that are best to read from: donor not down, slab nearest. */
static u8 slots_best(const struct dcm_lane *lane, const struct dcm_extent *e,
		     u8 slots)
{
	u32 best = U32_MAX;
	u8 m, set = 0;

	for (m = slots; m; m &= m - 1) {
		unsigned int s = ffs_u32(m) - 1;
		u32 far = READ_ONCE(e->rank[s]);

		if (lane->down >> READ_ONCE(e->peer[s]) & 1)
			far += DCM_RANKS;
		if (far < best) {
			best = far;
			set = 0;
		}
		if (far == best)
			set |= (u8)(1u << s);
	}
	return set;
}

/**
 * dcm_slot_pick() - choose the slot to read a block from
 * @lane: caller's lane
 * @gfn: a page of it; the block is BUSY by the caller
 * @slots: slots that hold it, and on which no READ has failed
 *
 * Return: a slot, or -1: all are gone.
 */
int dcm_slot_pick(const struct dcm_lane *lane, u32 gfn, u8 slots)
{
	const struct dcm_extent *e = extent_of(lane->vm, gfn);
	unsigned int skip;

	if (likely(!(slots & (slots - 1))))
		return (int)ffs_u32(slots) - 1;
	slots &= (u8)~READ_ONCE(e->gone);
	slots = slots_best(lane, e, slots);
	if (!slots)
		return -1;
	skip = (gfn >> DCM_ORDER_MAX) % hweight16(slots);
	while (skip--)
		slots &= slots - 1;
	return (int)ffs_u32(slots) - 1;
}

/* ---- I/O ---- */

/**
 * dcm_slot_io() - post an I/O on the slab under a page
 * @lane: caller's lane
 * @gfn: first page of the I/O; to be read, it must have @slot in its set
 * @slot: which of the extent's slots
 * @io: op, bytes, data, owner and posted_ns set
 *
 * Return: 0, -EAGAIN (queue full), -ESTALE (slab gone for good), or another
 * errno of the transport. The caller ends it with dcm_slots_end().
 */
int dcm_slot_io(struct dcm_lane *lane, u32 gfn, u8 slot, struct dcm_io *io)
{
	struct dcm_vm *vm = lane->vm;
	struct dcm_extent *e = extent_of(vm, gfn);
	int err = -ESTALE;
	u8 gone;

	atomic_fetch_inc(&e->slot[slot].inflight);
	/* Pairs with dcm_extent_lost(): it sees our count, or we its bit. */
	gone = smp_load_acquire(&e->gone);
	/* Pairs with dcm_extent_attach(): a slab we see is set up. */
	io->slab = smp_load_acquire(&e->slot[slot].slab);
	if ((gone >> slot & 1) || !io->slab)
		goto fail;
	/* The slot may have another slab since: then the page is not on it. */
	if (io->op == DCM_IO_READ &&
	    !(pd_at(pd_word(pd_of(vm, gfn))) >> slot & 1))
		goto fail;
	io->slot = slot;
	io->offset = (u64)(gfn & (vm->extent_pages - 1)) << DCM_PAGE_SHIFT;
	io->status = 0;
	io->next = NULL;
	err = -ERANGE;
	if (unlikely(io->offset + io->bytes > io->slab->bytes))
		goto fail;
	err = vm->ops->io_post(lane, io);
	if (likely(!err))
		return 0;
	if (err == -ENOTCONN)
		dcm_lane_down(lane, io->slab->peer);
fail:
	atomic_dec_return_release(&e->slot[slot].inflight);
	return err;
}

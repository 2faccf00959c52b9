// SPDX-License-Identifier: GPL-2.0-only
/*
 * evict.c - choosing victims and letting them go
 *
 * One victim is chosen for each block that is fetched, after the fetch was posted
 * and while it is in flight (dcm-tc18, 3.3): no reclaim thread, no speculation
 * about demand. The oldest Inactive block leaves, or the next one if that block
 * gets a second round (fifo.c): it is dropped when clean, forgotten when all zero,
 * written back when dirty. When Inactive falls under its share, the oldest of Active
 * are unmapped (demote.c).
 *
 * Differences from the paper: it names no shares. Here nothing is unmapped
 * before the budget is nearly used.
 *
 * Nothing here allocates or waits. A block that can't go now (no slab yet, its
 * donor does not answer, a write of it still in flight, too many write-backs,
 * pinned by I/O) goes to the end of the Inactive queue of the lane that tried,
 * and the next one is tried, in the other lanes' queues too: a lane that has
 * lost its connection tries blocks in vain, and they gather in its queue, where
 * lanes that can write them have to find them. When one donor is silent, its
 * dirty pages gather in Inactive until nothing else is there; then more is
 * unmapped, all but an eighth of the budget at most, so that pages of the other
 * donors still come and go.
 */
#include "internal.h"

#define EVICT_LOOKS 16 /* blocks tried in vain before giving up for now */
/* how often a page that was guessed to be written counts as written, in 256 */
#define GUESS_LEAST 128u
#define GUESS_MOST 240u

/* Frames that are kept free, so that a fault need not wait for an eviction. */
u64 dcm_evict_reserve(const struct dcm_vm *vm)
{
	u64 r = dcm_tune(vm, DCM_T_reserve_pages);

	return max(min(r, READ_ONCE(vm->budget) / 256), (u64)1);
}

static u64 inactive_share(const struct dcm_vm *vm)
{
	return max(dcm_share_pages(vm, DCM_T_inactive_share), (u64)1);
}

/*
 * The most that Proactive may hold. Whatever the shares are set to and however
 * many blocks are kept, an eighth of the budget is left for Active: with less,
 * the block that was just fetched is the next victim, and the access that needs
 * it may starve.
 */
static u64 proactive_share(struct dcm_vm *vm, u64 inactive)
{
	u64 budget = READ_ONCE(vm->budget);
	u64 others = inactive + READ_ONCE(vm->kept.nr_pages) + budget / 8;

	return min(dcm_ghost_share(vm), budget - min(others, budget));
}

/* Inactive is full of blocks that can't go: may it grow further? */
static bool inactive_may_grow(const struct dcm_vm *vm)
{
	u64 budget = READ_ONCE(vm->budget);

	return atomic64_read(&vm->inactive_pages) < (s64)(budget - budget / 8);
}

/*
 * Learn from a block's stay in direct memory when it ends, and note in each page
 * when it left. Returns whether the block is to be split (REDUCE).
 */
static bool residency_end(struct dcm_lane *lane, u32 head, unsigned int order)
{
	struct dcm_vm *vm = lane->vm;
	bool apart = order && dcm_eblk_judge(lane, head, order);
	unsigned int seen = 0, hit = 0, known = 0, written = 0;
	u32 chance = (u32)dcm_random(lane) & 255;
	u32 rewritten = READ_ONCE(habit_of(vm, head)->rewritten);
	u32 now = (u32)atomic64_add_return(1 << order, &vm->evicted);
	struct dcm_pd *pd = pd_of(vm, head), *end = pd + (1u << order);

	for (; pd < end; pd++) {
		u32 w = pd_word(pd), wrote = 0;

		if ((w & (PD_OBSERVED | PD_TOUCHED)) && (w & PD_PREFETCHED)) {
			seen++;
			hit += !!(w & PD_TOUCHED);
		}
		/*
		 * Was the page written? If that was only guessed
		 * (PD_GUESSED), it counts as written as often as fetched pages
		 * of these 2 MiB are, within bounds. For a new page the first
		 * write tells nothing: it counts so, too, without bounds.
		 */
		if (w & PD_FRESH) {
			if (chance < rewritten)
				wrote = PD_WROTE;
		} else if (!(w & PD_GUESSED)) {
			known++;
			if (w & PD_DIRTY) {
				written++;
				wrote = PD_WROTE;
			}
		} else if (chance <
			   max(GUESS_LEAST, min(rewritten, GUESS_MOST))) {
			wrote = PD_WROTE;
		}
		pd_assign(pd, PD_RESIDENCY, wrote);
		dcm_ghost_make(vm, pd, w, now);
	}
	if (known)
		dcm_learn(&habit_of(vm, head)->rewritten, written * 2 >= known);
	dcm_count(lane, DCM_C_PREFETCH_SEEN, seen);
	dcm_count(lane, DCM_C_PREFETCH_HIT, hit);
	return apart;
}

/**
 * dcm_evict_finish() - a block leaves direct memory
 * @lane: caller's lane
 * @head: locked, Active, Inactive or Writeback, in no queue; BUSY or not
 * @order: its size
 * @frame: its frame, or %DCM_NIL
 *
 * Unlocks the block. All its pages are on a donor or zero.
 */
void dcm_evict_finish(struct dcm_lane *lane, u32 head, unsigned int order,
		      u32 frame)
{
	struct dcm_vm *vm = lane->vm;
	struct dcm_pd *pd = pd_of(vm, head);
	bool waiter;

	dcm_state_set(lane, head, DCM_NOTDIRECT);
	pd->frame = DCM_NIL;
	waiter = pd_word(pd) & PD_WAITER;
	pd_clear(pd, PD_BUSY | PD_WAITER);
	if (residency_end(lane, head, order))
		dcm_eblk_reduce(lane, head, order);
	pd_unlock(pd);
	if (frame != DCM_NIL)
		vm->ops->release(lane, frame, order);
	dcm_frames_put(vm, 1u << order);
	if (waiter)
		vm->ops->wake(lane, head, 1u << order);
}

/* Back to the end of Inactive. BUSY on entry, not locked. */
static void evict_postpone(struct dcm_lane *lane, u32 head, unsigned int order)
{
	pd_lock(pd_of(lane->vm, head));
	dcm_queue_in(lane, head, order);
	dcm_block_unbusy(lane, head, order);
}

enum evict_result {
	EVICT_NONE, /* nothing in the queue */
	EVICT_GONE, /* a frame came free */
	EVICT_WRITING, /* a frame will come free */
	EVICT_STUCK, /* this block can't go now */
	EVICT_CUT, /* this block can't go soon: its donor does not answer */
};

/* As dcm_pages_thin(), for an extent with several slots. */
u16 dcm_copies_thin(const struct dcm_lane *lane, u32 head, unsigned int order,
		    u16 lag)
{
	const struct dcm_vm *vm = lane->vm;
	u8 open = READ_ONCE(extent_of(vm, head)->open);
	u16 thin = 0;
	u32 i;

	if (unlikely(lag))
		open &= (u8)~dcm_lag_slots(lane, head, 1u << order);
	for (i = 0; i < 1u << order; i++) {
		u32 w = pd_word(pd_of(vm, head + i));

		if (!(w & PD_DIRTY) && pd_lacks(w, open))
			thin |= (u16)(1u << i);
	}
	return thin;
}

/* Of @thin: pages in doubt (doubt.c), of which a donor that is not down has a copy. */
static u16 pages_in_doubt(const struct dcm_lane *lane, u32 head,
			  unsigned int order, u16 thin)
{
	u16 doubt = thin & dcm_block_inflight(lane->vm, head, order), m;
	u32 i;

	for (m = doubt; unlikely(m); m &= m - 1) {
		i = ffs_u32(m) - 1;
		if (dcm_slots_down(lane, head,
				   pd_at(pd_word(pd_of(lane->vm, head + i)))))
			doubt &= (u16) ~(1u << i);
	}
	return doubt;
}

/*
 * Which pages under @thin of a locked block must be written before the block leaves?
 *
 * - All of them while WRITEs to an open slot have failed for less than thin_after.
 * - All of them once a fill of the extent has ended (%DCM_FILL_DONE). A fill skips
 *   direct blocks and relies on eviction to write their thin pages, as from then on the
 *   client lets the donors that have these pages die.
 * - Else those in doubt, unless a donor of this lane has been down for longer.
 */
static u16 pages_owed(const struct dcm_lane *lane, u32 head, unsigned int order,
		      u16 thin)
{
	const struct dcm_extent *e = extent_of(lane->vm, head);
	u16 doubt, owed = READ_ONCE(e->fill) & DCM_FILL_DONE ? thin : 0;

	if (likely(!thin))
		return 0;
	if (dcm_slots_wait(lane, head, READ_ONCE(e->open)))
		return thin;
	doubt = pages_in_doubt(lane, head, order, thin);
	/* only the lane that was cut off knows for how long */
	return lane->down ? owed & (u16)~doubt : owed | doubt;
}

/* Pages leave thin: a fill that skipped them, as they were direct, must come again. */
static void leave_thin(const struct dcm_lane *lane, u32 head)
{
	WRITE_ONCE(extent_of(lane->vm, head)->thin, true);
}

/* A clean block, locked, BUSY or not, leaves without a write: as dcm_evict_finish(). */
void dcm_evict_clean(struct dcm_lane *lane, u32 head, unsigned int order,
		     u32 frame)
{
	dcm_count(lane, DCM_C_CLEAN_DROPS, 1);
	dcm_evict_finish(lane, head, order, frame);
}

/*
 * Let an Inactive block go: locked, in no queue; not locked on return. @whole:
 * write zero pages too, so that the primary has all of them.
 */
static enum evict_result evict_block(struct dcm_lane *lane, u32 head,
				     bool whole)
{
	struct dcm_vm *vm = lane->vm;
	struct dcm_pd *pd = pd_of(vm, head);
	unsigned int order = pd_order(pd_word(pd)), i;
	u16 dirty = dcm_block_flag(vm, head, order, PD_DIRTY);
	enum evict_result result = EVICT_STUCK;
	u16 lag = dcm_lag_pages(vm, head, order);
	u16 zero, pages, thin = dcm_pages_thin(lane, head, order, lag);
	u16 owed = pages_owed(lane, head, order, thin), more = owed;
	u32 frame = pd->frame;

	if (whole)
		more |= page_mask(order) &
			(u16)~dcm_block_flag(vm, head, order,
					     dcm_primary_bits(vm, head));
	/* Write thin pages now: their bytes are here, a fill would READ them. */
	else if (unlikely(thin) &&
		 (lag || !dcm_slots_cut(lane, head,
					READ_ONCE(extent_of(vm, head)->open))))
		more |= thin & (u16)~dcm_block_inflight(vm, head, order);
	more &= (u16)~dirty;
	if (unlikely(thin & (u16)~more))
		leave_thin(lane, head);
	if (!(dirty | more) && dcm_lag_drop(vm, head, lag)) {
		dcm_evict_clean(lane, head, order, frame);
		return EVICT_GONE;
	}
	pd_set(pd, PD_BUSY);
	pd_unlock(pd);
	pages = dirty | more;
	zero = vm->ops->zero_mask(lane, frame, order, pages);
	if (!whole) {
		pages &= (u16)~zero;
		lag &= (u16)~zero;
	}
	if (!pages && dcm_lag_drop(vm, head, lag)) {
		pd_lock(pd);
		for (i = 0; i < 1u << order; i++)
			if (zero & (1u << i))
				pd_clear(pd_of(vm, head + i), PD_AT);
		dcm_count(lane, DCM_C_ZERO_PAGES, hweight16(zero));
		dcm_evict_finish(lane, head, order, frame);
		return EVICT_GONE;
	}
	if (pages && !(pages & dcm_block_inflight(vm, head, order))) {
		int err = dcm_wb_start(lane, head, order, pages, zero,
				       pages & more, lag);

		if (err == -ENODEV)
			vm->ops->want_slab(vm, head >> vm->extent_shift);
		if (!err) {
			dcm_count(lane, DCM_C_ZERO_PAGES,
				  hweight16(zero & (u16)~pages));
			return EVICT_WRITING;
		}
		if (err == -EIO)
			return EVICT_CUT;
		if (err == -EBUSY)
			result = EVICT_CUT;
	} else if (atomic64_read(&vm->doubts)) {
		result = EVICT_CUT;
	}
	/* Only thin pages that are not owed could not be written: drop them now. */
	if (unlikely(!(dirty | owed)) && !whole &&
	    dcm_lag_drop(vm, head, lag)) {
		pd_lock(pd);
		if (unlikely(thin))
			leave_thin(lane, head);
		dcm_evict_clean(lane, head, order, frame);
		return EVICT_GONE;
	}
	evict_postpone(lane, head, order);
	return result;
}

bool dcm_evict_block(struct dcm_lane *lane, u32 head, bool whole)
{
	enum evict_result r = evict_block(lane, head, whole);

	return r == EVICT_GONE || r == EVICT_WRITING;
}

/**
 * struct evict_looks - how long eviction tries before it gives up for now
 * @own: blocks of the lane's own queue that may still be tried in vain
 * @others: blocks of the other lanes' queues that may still be tried in vain
 * @stuck: a block could not go
 * @cut: a block could not go, and its donor does not answer
 */
struct evict_looks {
	unsigned int own;
	unsigned int others;
	bool stuck;
	bool cut;
};

static const struct evict_looks all_looks = {
	.own = EVICT_LOOKS,
	.others = EVICT_LOOKS,
};

static enum evict_result evict_from(struct dcm_lane *lane,
				    struct dcm_lane *from)
{
	u32 head = dcm_fifo_pop_locked(lane->vm, &from->inactive);

	return head == DCM_NIL ? EVICT_NONE : evict_block(lane, head, false);
}

/*
 * Let one block of a lane's Inactive queue go, the oldest that can. A block that
 * can't goes to the tail, and no more blocks are tried than there were at first; so
 * none is tried twice.
 */
static bool evict_oldest(struct dcm_lane *lane, struct dcm_lane *from,
			 unsigned int *looks, struct evict_looks *l)
{
	u32 n = min(READ_ONCE(from->inactive.nr_blocks), *looks);

	for (; n; n--) {
		enum evict_result r = evict_from(lane, from);

		if (r == EVICT_GONE || r == EVICT_WRITING)
			return true;
		if (r == EVICT_NONE)
			break;
		l->stuck = true;
		l->cut |= r == EVICT_CUT;
		--*looks;
	}
	return false;
}

/*
 * Evict one block: from the lane's own queue, or else from the other lanes' queues
 * in turns. Each call goes on where the last one stopped, so all queues are reached
 * however many blocks are stuck in one: the only blocks that can go may be in the
 * queue of a lane that has lost its connection. Returns steps taken: 0 or 1.
 */
static unsigned int evict_one(struct dcm_lane *lane, struct evict_looks *l)
{
	struct dcm_vm *vm = lane->vm;
	u32 i;

	if (evict_oldest(lane, lane, &l->own, l))
		return 1;
	for (i = 0; i < vm->nr_lanes && l->others; i++) {
		struct dcm_lane *from = &vm->lane[lane->look_at];

		if (from != lane && evict_oldest(lane, from, &l->others, l))
			return 1;
		lane->look_at = (lane->look_at + 1) % vm->nr_lanes;
	}
	return 0;
}

/**
 * dcm_evict_for() - evict until @room pages and the reserve fit
 * @lane: caller's lane
 * @room: pages a fault needs at once; 0: the reserve only
 *
 * The reserve alone may be smaller than a block: a fault must ask for all that
 * it needs, or it would wait for ever.
 *
 * Return: steps taken; 0: balanced, or stuck until I/O completes.
 */
unsigned int dcm_evict_for(struct dcm_lane *lane, u32 room)
{
	struct dcm_vm *vm = lane->vm;
	u64 budget = READ_ONCE(vm->budget);
	u64 reserve = min(max(dcm_evict_reserve(vm), (u64)room), budget);
	u64 goal = budget - reserve;
	u64 share = inactive_share(vm);
	struct evict_looks looks = all_looks;
	unsigned int steps = 0, n;
	s64 lack;

	/* Where all memory may be direct nothing ever needs room. */
	if (atomic64_read(&vm->direct) + (s64)reserve < (s64)goal ||
	    budget >= vm->nr_pages)
		return 0;
	/* With a small budget most blocks can be in buffers, not in queues. */
	if (!READ_ONCE(vm->active.nr_blocks))
		dcm_buffers_flush(vm);
	dcm_proactive_trim(lane, proactive_share(vm, share));
	if (READ_ONCE(vm->kept.nr_blocks))
		dcm_hint_trim(lane);
	for (n = 0; n < DCM_BATCH_MAX; n++) {
		s64 staying = atomic64_read(&vm->direct) -
			      atomic64_read(&vm->wb_pages);

		if (staying <= (s64)goal)
			break;
		if (evict_one(lane, &looks)) {
			steps++;
			continue;
		}
		if (looks.stuck) {
			if (!looks.cut || !inactive_may_grow(vm))
				break;
			looks = all_looks;
		}
		if (!dcm_demote(lane, share))
			break;
		steps++;
	}
	lack = (s64)share - atomic64_read(&vm->inactive_pages);
	/* Without keep_clean, dropped blocks are free memory, not Inactive. */
	if (!dcm_tune(vm, DCM_T_keep_clean))
		lack -= max((s64)goal - (atomic64_read(&vm->direct) -
					 atomic64_read(&vm->wb_pages)),
			    (s64)0);
	/* Wait for a batch, unless the share itself is smaller. */
	if (lack >= (s64)min(dcm_tune(vm, DCM_T_batch_blocks), share / 2 + 1))
		dcm_demote_active(lane, (u64)lack);
	if (lane->nr_wb)
		vm->ops->io_flush(lane);
	return steps;
}

unsigned int dcm_balance(struct dcm_lane *lane)
{
	return dcm_evict_for(lane, 0);
}

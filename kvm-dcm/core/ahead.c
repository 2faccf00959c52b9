// SPDX-License-Identifier: GPL-2.0-only
/*
 * ahead.c - blocks that are brought in before an access needs them
 *
 * The owner of pages may know which it reads next: a garbage collector knows the
 * regions of its next pause for minutes. A range it names (DCM_HINT_FETCH) is queued,
 * and fetched in the order in which it was named, on a lane that takes no faults.
 * The paper has no such thing.
 *
 *	dcm_hint() --> [ranges] --> dcm_ahead() --> READs, 8 at most --> Active
 *
 * Room. A VM that uses more memory than its budget has no free frames, so a hint that
 * took only free frames would do nothing. Blocks are evicted for a hint as for a
 * fault: the oldest of Inactive leave, and the oldest of Active are unmapped in their
 * place. These are the coldest blocks, and one that is still used has time to come
 * back from Inactive. Proactive and kept blocks stay.
 *
 * The queue has an allowance, set when the first extent enters an empty queue: the
 * frames that are free then, and a quarter of the budget. Once that many pages have
 * come in, the rest of the queue is dropped; so it is if nothing can be evicted for a
 * while. So wrong hints, and too many hints, leave most of the direct memory in
 * place; hints given one after another, each once the queue is empty, all work.
 *
 * Only pages that a donor has are brought in: an access to any other page needs no
 * network. A block in Inactive is mapped again and becomes Proactive, as by an
 * access. Adjacent blocks of one hint are merged up to the largest size before they
 * are fetched: all their pages are wanted, so one READ may bring 16 of them.
 *
 * A hint may have no effect. A block is given up when no slot answers its READ, and
 * skipped when a lane works on it, when it is being written, or when it is frozen for
 * a GC worker. Only %DCM_AHEAD_MAX READs are in flight, which bounds how long the READ
 * of a fault waits behind them. An access to a block that is on its way waits for it,
 * as it would for another lane's fetch.
 *
 * Locking: ahead.lock guards the queue. Only the one lane that calls dcm_ahead() takes
 * extents off its front; dcm_ahead_drop(), on any lane, removes extents by range.
 */
#include "internal.h"

#define AHEAD_LOOKS 256u /* blocks looked at in one step */
#define AHEAD_SHARE 4u /* a quarter of the budget may be evicted */
#define AHEAD_VAIN 16u /* steps without a victim, until the rest is dropped */
#define AHEAD_WAIT_MS 1 /* for frames of write-backs */

/* The number of free frames, less the reserve that is kept free for faults. */
u64 dcm_ahead_room(const struct dcm_vm *vm)
{
	u64 used = (u64)max(atomic64_read(&vm->direct), (s64)0) +
		   dcm_evict_reserve(vm);
	u64 budget = READ_ONCE(vm->budget);

	return budget - min(used, budget);
}

/* ---- the queue ---- */

/**
 * dcm_ahead_add() - queue pages to be brought in, as far as the queue has room
 * @lane: caller's lane
 * @gfn: first page
 * @nr: how many; all exist
 */
void dcm_ahead_add(struct dcm_lane *lane, u32 gfn, u32 nr)
{
	struct dcm_vm *vm = lane->vm;
	struct dcm_ahead *a = &vm->ahead;
	u32 take, last;

	spin_lock(&a->lock);
	if (!a->nr) {
		WRITE_ONCE(a->room, dcm_ahead_room(vm) + READ_ONCE(vm->budget) /
							      AHEAD_SHARE);
		a->vain = 0;
	}
	/* more pages than the VM has would be repetitions */
	take = (u32)min((u64)nr, vm->nr_pages - a->pages);
	last = (a->first + a->nr - 1) % DCM_AHEAD_EXTENTS;
	if (a->nr && a->extent[last].gfn + a->extent[last].nr == gfn) {
		a->extent[last].nr += take;
	} else if (take && a->nr < DCM_AHEAD_EXTENTS) {
		last = (a->first + a->nr++) % DCM_AHEAD_EXTENTS;
		a->extent[last].gfn = gfn;
		a->extent[last].nr = take;
	} else {
		take = 0;
	}
	WRITE_ONCE(a->pages, a->pages + take);
	spin_unlock(&a->lock);
	if (take < nr)
		dcm_count(lane, DCM_C_AHEAD_DROPPED, nr - take);
}

/* The range at the front of the queue; false: the queue is empty. */
static bool queue_first(struct dcm_ahead *a, u32 *gfn, u32 *end)
{
	bool any;

	spin_lock(&a->lock);
	any = a->nr;
	if (any) {
		*gfn = a->extent[a->first].gfn;
		*end = *gfn + a->extent[a->first].nr;
	}
	spin_unlock(&a->lock);
	return any;
}

/* The pages from @gfn to @to are done: remove them if they still are at the front. */
static void queue_pass(struct dcm_ahead *a, u32 gfn, u32 to)
{
	u32 n;

	spin_lock(&a->lock);
	if (a->nr && a->extent[a->first].gfn == gfn) {
		n = min(to - gfn, a->extent[a->first].nr);
		a->extent[a->first].gfn += n;
		a->extent[a->first].nr -= n;
		WRITE_ONCE(a->pages, a->pages - n);
		if (!a->extent[a->first].nr) {
			a->first = (a->first + 1) % DCM_AHEAD_EXTENTS;
			a->nr--;
		}
	}
	spin_unlock(&a->lock);
}

/**
 * dcm_ahead_drop() - forget queued extents that have a page of a range
 * @lane: caller's lane
 * @gfn: first page
 * @nr: number of pages
 */
void dcm_ahead_drop(struct dcm_lane *lane, u64 gfn, u64 nr)
{
	struct dcm_ahead *a = &lane->vm->ahead;
	u32 i, kept = 0;
	u64 pages = 0;

	spin_lock(&a->lock);
	for (i = 0; i < a->nr; i++) {
		u32 at = (a->first + i) % DCM_AHEAD_EXTENTS;
		u32 from = a->extent[at].gfn, n = a->extent[at].nr;

		if (from < gfn + nr && from + (u64)n > gfn) {
			pages += n;
			continue;
		}
		at = (a->first + kept++) % DCM_AHEAD_EXTENTS;
		a->extent[at].gfn = from;
		a->extent[at].nr = n;
	}
	a->nr = kept;
	WRITE_ONCE(a->pages, a->pages - pages);
	spin_unlock(&a->lock);
	dcm_count(lane, DCM_C_AHEAD_DROPPED, pages);
}

static void drop_all(struct dcm_lane *lane)
{
	dcm_ahead_drop(lane, 0, lane->vm->nr_pages);
}

/* ---- room ---- */

/* Does the queue's allowance have room for @nr more pages? */
static bool room_left(const struct dcm_ahead *a, u32 nr)
{
	return READ_ONCE(a->room) >= nr;
}

static void room_use(struct dcm_ahead *a, u32 nr)
{
	spin_lock(&a->lock);
	WRITE_ONCE(a->room, a->room - min(a->room, (u64)nr));
	spin_unlock(&a->lock);
}

/* Count steps in a row that made no room; true: %AHEAD_VAIN of them. */
static bool room_vain(struct dcm_ahead *a, bool vain)
{
	bool long_since;

	spin_lock(&a->lock);
	a->vain = vain ? a->vain + 1 : 0;
	long_since = a->vain >= AHEAD_VAIN;
	spin_unlock(&a->lock);
	return long_since;
}

/* Evict for @nr pages. Returns how long to wait for their frames, in ms. */
static int room_make(struct dcm_lane *lane, u32 nr)
{
	struct dcm_vm *vm = lane->vm;
	u32 need = nr + (u32)dcm_evict_reserve(vm);
	unsigned int steps = dcm_evict_for(lane, need) + dcm_poll(lane);
	bool here = dcm_ahead_room(vm) >= nr;

	/* frames on their way out come free when donors have answered */
	if (room_vain(&vm->ahead,
		      !here && !steps && !atomic64_read(&vm->wb_pages)))
		drop_all(lane);
	return here ? 0 : AHEAD_WAIT_MS;
}

/* ---- a block ---- */

/* Map an Inactive block again. Locked and not BUSY; not locked on return. */
static void block_use(struct dcm_lane *lane, u32 head, unsigned int order)
{
	struct dcm_vm *vm = lane->vm;
	struct dcm_pd *pd = pd_of(vm, head);
	u16 dirty = dcm_block_flag(vm, head, order, PD_DIRTY);
	u16 sampled = dcm_reuse_mask(vm, head, order, DCM_NIL);
	u32 frame = pd->frame;

	dcm_queue_out(vm, head, order);
	pd_set(pd, PD_BUSY);
	dcm_state_set(lane, head, DCM_PROACTIVE);
	pd->frame = DCM_NIL;
	pd_unlock(pd);
	vm->ops->remap(lane, head, order, frame, dirty, 0, false);
	if (unlikely(sampled))
		dcm_reuse_mapped(lane, head + ffs_u32(sampled) - 1, false);
	pd_lock(pd);
	dcm_queue_in(lane, head, order);
	dcm_block_unbusy(lane, head, order);
}

static u32 block_look(struct dcm_lane *lane, struct dcm_ahead_want *want,
		      u32 *next);

/* Split the block? Only one of its pages is wanted, or no fetch can bring all of it. */
static bool block_apart(const struct dcm_vm *vm, unsigned int order, u8 at,
			const struct dcm_ahead_want *want)
{
	if (!order)
		return false;
	if (want->single && dcm_tune(vm, DCM_T_elastic))
		return true;
	return !at || (4ull << order) > READ_ONCE(vm->budget);
}

/*
 * Begin to fetch a block: locked, NotDirect and not BUSY; not locked on return.
 * Returns the number of pages for which no frames are free; else 0, and in @next the
 * page to look at next.
 */
static u32 block_fetch(struct dcm_lane *lane, u32 head, unsigned int order,
		       struct dcm_ahead_want *want, u32 *next)
{
	struct dcm_vm *vm = lane->vm;
	struct dcm_fetch *f;
	struct dcm_sets sets;
	u32 nr;

	if (!dcm_block_flag(vm, head, order, PD_AT)) {
		pd_unlock(pd_of(vm, head));
		return 0;
	}
	/* a hint's pages are all wanted, of a stream's some may go unused */
	if (!want->alone && !want->single &&
	    (want->what == DCM_FOR_AHEAD ||
	     !READ_ONCE(habit_of(vm, head)->waste)))
		head = dcm_eblk_grow_ahead(lane, head, &order, want->from,
					   want->end);
	nr = 1u << order;
	sets = dcm_block_at(vm, head, order);
	if (block_apart(vm, order, sets.at, want)) {
		dcm_eblk_reduce(lane, head, order);
		pd_unlock(pd_of(vm, head));
		if (want->alone)
			return 0;
		want->alone = true;
		return block_look(lane, want, next);
	}
	if (want->what == DCM_FOR_AHEAD && !room_left(&vm->ahead, nr)) {
		pd_unlock(pd_of(vm, head));
		drop_all(lane);
		return 0;
	}
	if (dcm_ahead_room(vm) < nr || !dcm_frames_take(vm, nr)) {
		pd_unlock(pd_of(vm, head));
		*next = want->gfn;
		return nr;
	}
	/* never %NULL: fewer than DCM_AHEAD_MAX are in use */
	f = dcm_fetch_begin(lane, head, order, DCM_NIL, want->what, sets);
	if (want->mark >= head && want->mark - head < nr)
		f->hide = (u16)(1u << (want->mark - head)) & (u16)~f->zero;
	pd_unlock(pd_of(vm, head));
	if (want->what == DCM_FOR_AHEAD)
		room_use(&vm->ahead, nr);
	*next = (u32)min((u64)head + nr, (u64)want->end);
	dcm_fetch_start(lane, f);
	return 0;
}

/* Look at the block of page @want->gfn. Returns as block_fetch(). */
static u32 block_look(struct dcm_lane *lane, struct dcm_ahead_want *want,
		      u32 *next)
{
	struct dcm_vm *vm = lane->vm;
	unsigned int order;
	u32 head = dcm_block_lock(vm, want->gfn, &order);
	u32 w = pd_word(pd_of(vm, head));

	*next = (u32)min((u64)head + (1u << order), (u64)want->end);
	if (!(w & PD_BUSY) &&
	    !(vm->ops->frozen && vm->ops->frozen(lane, head))) {
		if (pd_state(w) == DCM_NOTDIRECT)
			return block_fetch(lane, head, order, want, next);
		/* a stream leaves it: an access needs no donor, and shows it is used */
		if (pd_state(w) == DCM_INACTIVE &&
		    want->what == DCM_FOR_AHEAD) {
			block_use(lane, head, order);
			return 0;
		}
	}
	pd_unlock(pd_of(vm, head));
	return 0;
}

/** dcm_ahead_may() - may another block that no access asked for be fetched now? */
bool dcm_ahead_may(struct dcm_lane *lane)
{
	/* READs that need no network have completed: collect them first */
	if (lane->nr_ahead == DCM_AHEAD_MAX) {
		lane->vm->ops->io_flush(lane);
		dcm_poll(lane);
	}
	return lane->nr_ahead < DCM_AHEAD_MAX;
}

/**
 * dcm_ahead_bring() - begin to bring in a block before an access needs it
 * @lane: caller's lane, and dcm_ahead_may() is true
 * @want: what is wanted
 *
 * Moves @want->gfn on, over the block, or over pages that no chunk has.
 *
 * Return: pages for which no frames are free; 0: go on.
 */
u32 dcm_ahead_bring(struct dcm_lane *lane, struct dcm_ahead_want *want)
{
	u32 next = (u32)dcm_chunk_next(lane->vm, want->gfn, want->end);
	u32 lack = 0;

	want->alone = false;
	if (next == want->gfn)
		lack = block_look(lane, want, &next);
	want->gfn = next;
	return lack;
}

int dcm_ahead(struct dcm_lane *lane)
{
	struct dcm_vm *vm = lane->vm;
	struct dcm_ahead *a = &vm->ahead;
	struct dcm_ahead_want want = {
		.what = DCM_FOR_AHEAD,
		.mark = DCM_NIL,
	};
	u32 i, lack;
	int again = 0;

	for (i = 0; i < AHEAD_LOOKS && !again; i++) {
		if (!dcm_ahead_may(lane) ||
		    !queue_first(a, &want.from, &want.end))
			break;
		want.gfn = want.from;
		lack = dcm_ahead_bring(lane, &want);
		queue_pass(a, want.from, want.gfn);
		if (lack)
			again = room_make(lane, lack);
	}
	vm->ops->io_flush(lane);
	dcm_poll(lane);
	if (lane->nr_ahead == DCM_AHEAD_MAX || !READ_ONCE(vm->ahead.pages))
		return -1;
	return again;
}

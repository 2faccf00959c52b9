/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * internal.h - shared by the core's files; core.h is the interface
 *
 * Lock order: lane.buf_lock -> fifo.lock -> block lock only by trylock;
 * block lock -> lane.buf_lock -> fifo.lock. A block lock is never waited for
 * with another lock held, so the two orders can't deadlock. Block locks are
 * held for nanoseconds: around an op the block is BUSY instead, and only the
 * lane that set BUSY may clear it. A BUSY block keeps its order and is in no
 * queue, except that a mapped block may be BUSY in its queue while a page of
 * it is mapped or unprotected.
 */
#ifndef DCM_INTERNAL_H
#define DCM_INTERNAL_H

#include "core.h"
#include "reuse.h"

static inline void dcm_count(struct dcm_lane *lane, enum dcm_counter_id id,
			     u64 n)
{
	WRITE_ONCE(lane->count[id], lane->count[id] + n);
}

static inline u64 dcm_tune(const struct dcm_vm *vm, enum dcm_tunable_id id)
{
	return READ_ONCE(vm->tunable[id]);
}

static inline u64 dcm_share_pages(const struct dcm_vm *vm,
				  enum dcm_tunable_id id)
{
	return READ_ONCE(vm->budget) * dcm_tune(vm, id) / 10000;
}

/* xorshift64*: random enough for policy, and the same everywhere. */
static inline u64 dcm_random(struct dcm_lane *lane)
{
	u64 x = lane->rng;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	lane->rng = x;
	return (x * 0x2545f4914f6cdd1dull) >> 16;
}

static inline bool dcm_chance(struct dcm_lane *lane, u64 bp)
{
	return bp && dcm_random(lane) % 10000 < bp;
}

static inline u16 page_mask(unsigned int order)
{
	return (u16)((1u << (1u << order)) - 1);
}

static inline struct dcm_extent *extent_of(const struct dcm_vm *vm, u32 gfn)
{
	return &vm->extent[gfn >> vm->extent_shift];
}

static inline struct dcm_habit *habit_of(const struct dcm_vm *vm, u32 gfn)
{
	return &vm->habit[gfn >> DCM_HABIT_SHIFT];
}

/* Move a learned figure towards 255 or 0. If lanes race, a lost update does no harm. */
static inline void dcm_learn(u8 *figure, bool yes)
{
	u8 v = READ_ONCE(*figure);

	WRITE_ONCE(*figure, yes ? v + (255 - v) / 4 : v - (v + 3) / 4);
}

/* chunk.c */
u64 dcm_chunk_bytes(u64 nr_pages, bool sparse);
bool dcm_chunks_init(struct dcm_vm *vm, bool sparse);
void dcm_chunks_exit(struct dcm_vm *vm);

/* pd.c */
u32 dcm_block_lock(struct dcm_vm *vm, u32 gfn, unsigned int *order);
bool dcm_state_legal(enum dcm_state from, enum dcm_state to);
bool dcm_state_illegal(struct dcm_lane *lane, u32 head, enum dcm_state from,
		       enum dcm_state to);

/* States from which each state may be reached (pd.c): a bit each. */
static const u8 dcm_from[DCM_NR_STATES] = {
	[DCM_NOTDIRECT] = 1u << DCM_ACTIVE | 1u << DCM_PROACTIVE |
			  1u << DCM_INACTIVE | 1u << DCM_WRITEBACK,
	[DCM_ACTIVE] = 1u << DCM_NOTDIRECT | 1u << DCM_PROACTIVE,
	[DCM_PROACTIVE] = 1u << DCM_ACTIVE | 1u << DCM_INACTIVE |
			  1u << DCM_WRITEBACK,
	[DCM_INACTIVE] = 1u << DCM_ACTIVE | 1u << DCM_WRITEBACK,
	[DCM_WRITEBACK] = 1u << DCM_INACTIVE,
};

/**
 * dcm_state_set() - move a block to another state
 * @lane: counts the move if it is illegal
 * @head: locked, or BUSY by the caller
 * @to: new state
 *
 * Return: false, and nothing changed, when the table does not allow the move.
 */
static inline bool dcm_state_set(struct dcm_lane *lane, u32 head,
				 enum dcm_state to)
{
	struct dcm_pd *pd = pd_of(lane->vm, head);
	u32 w = pd_word(pd);

	if (unlikely(!(dcm_from[to] >> pd_state(w) & 1)))
		return dcm_state_illegal(lane, head, pd_state(w), to);
	pd_assign(pd, PD_STATE_MASK, (u32)to << PD_STATE_SHIFT);
	dcm_trace_state(lane->vm->priv, head, pd_order(w), pd_state(w), to);
	return true;
}

/**
 * struct dcm_sets - where the pages of a block are
 * @some: pages that some slot holds, a bit each
 * @at: slots that hold all of @some; none if a page is LOST
 */
struct dcm_sets {
	u16 some;
	u8 at;
};

u16 dcm_block_flags(const struct dcm_pd *pd, unsigned int order, u32 flag);
struct dcm_sets dcm_block_sets(const struct dcm_pd *pd, unsigned int order);
void dcm_block_unbusy(struct dcm_lane *lane, u32 head, unsigned int order);

/* Pages of a block that have a flag: a bit each. Locked or BUSY. */
static inline u16 dcm_block_flag(const struct dcm_vm *vm, u32 head,
				 unsigned int order, u32 flag)
{
	const struct dcm_pd *pd = pd_of(vm, head);

	return order ? dcm_block_flags(pd, order, flag) :
		       !!(pd_word(pd) & flag);
}

/* Where a block's pages are. Locked or BUSY. */
static inline struct dcm_sets dcm_block_at(const struct dcm_vm *vm, u32 head,
					   unsigned int order)
{
	const struct dcm_pd *pd = pd_of(vm, head);
	struct dcm_sets s;
	u32 w;

	if (order)
		return dcm_block_sets(pd, order);
	w = pd_word(pd);
	s.at = pd_at(w);
	s.some = !!s.at;
	if (unlikely(!s.at))
		s.at = w & PD_LOST ? 0 : DCM_SLOTS_ALL;
	return s;
}

/* fifo.c */
void dcm_fifo_init(struct dcm_fifo *f);
void dcm_queue_in(struct dcm_lane *lane, u32 head, unsigned int order);
void dcm_queue_out(struct dcm_vm *vm, u32 head, unsigned int order);
void dcm_queue_first(struct dcm_vm *vm, u32 head, unsigned int order);
void dcm_queue_keep(struct dcm_vm *vm, u32 head, unsigned int order);
u32 dcm_victim_take(struct dcm_lane *lane);
u32 dcm_fifo_pop_locked(struct dcm_vm *vm, struct dcm_fifo *f);
void dcm_buffers_flush(struct dcm_vm *vm);

/* eblk.c */
u32 dcm_eblk_stretch(struct dcm_lane *lane, u32 head, unsigned int *order);
void dcm_eblk_reduce(struct dcm_lane *lane, u32 head, unsigned int order);
bool dcm_eblk_worth(struct dcm_lane *lane, u32 head);
u64 dcm_eblk_sample_bp(const struct dcm_vm *vm, u32 head);
u32 dcm_eblk_grow_fresh(struct dcm_lane *lane, u32 head, unsigned int *order);
u32 dcm_eblk_grow_empty(struct dcm_lane *lane, u32 head, unsigned int *order);
u32 dcm_eblk_grow_cold(struct dcm_lane *lane, u32 head, unsigned int *order);
u32 dcm_eblk_grow_ahead(struct dcm_lane *lane, u32 head, unsigned int *order,
			u32 from, u32 end);
bool dcm_eblk_judge(struct dcm_lane *lane, u32 head, unsigned int order);
unsigned int dcm_eblk_order_max(const struct dcm_vm *vm);
unsigned int dcm_eblk_order_fresh(const struct dcm_vm *vm);
bool dcm_eblk_gather(struct dcm_vm *vm, u32 base, unsigned int order);

/* fresh.c */
u32 dcm_fresh_run(struct dcm_lane *lane, u32 head, unsigned int order);
bool dcm_fresh_make(struct dcm_lane *lane, u32 gfn, u32 nr, bool write);

/* fetch.c */

/* The purpose of a fetch. */
enum dcm_fetch_for {
	DCM_FOR_READ,
	DCM_FOR_WRITE,
	DCM_FOR_PULL, /* its slab is being emptied */
	DCM_FOR_AHEAD, /* its owner expects an access (ahead.c) */
	DCM_FOR_STREAM, /* a stream of accesses foretells one (stream.c) */
};

struct dcm_fetch *dcm_fetch_begin(struct dcm_lane *lane, u32 head,
				  unsigned int order, u32 page,
				  enum dcm_fetch_for what,
				  struct dcm_sets sets);
void dcm_fetch_start(struct dcm_lane *lane, struct dcm_fetch *f);
void dcm_fetch_io_done(struct dcm_lane *lane, struct dcm_fetch *f);
unsigned int dcm_fetch_retry(struct dcm_lane *lane);
bool dcm_frames_take(struct dcm_vm *vm, u32 nr);
void dcm_frames_put(struct dcm_vm *vm, u32 nr);

/* writeback.c */
int dcm_wb_start(struct dcm_lane *lane, u32 head, unsigned int order, u16 pages,
		 u16 zero, u16 clean, u16 lag);
void dcm_wb_io_done(struct dcm_lane *lane, struct dcm_wb *wb,
		    struct dcm_io *io);
unsigned int dcm_wb_post(struct dcm_lane *lane);
unsigned int dcm_wb_unpark(struct dcm_lane *lane);
struct dcm_wb *dcm_wb_cancel(struct dcm_lane *lane, u32 head, bool hold);
void dcm_wb_unhold(struct dcm_wb *wb);
struct dcm_wb *dcm_wb_claim(struct dcm_lane *lane, u32 head, u16 pages, u16 lag,
			    int *err);
void dcm_wb_unclaim(struct dcm_lane *lane, struct dcm_wb *wb);
void dcm_pages_write_over(struct dcm_wb *wb, u16 pages);
void dcm_wb_copy(struct dcm_lane *lane, struct dcm_wb *wb, unsigned int order,
		 u16 pages, bool open, u32 frame);

/* doubt.c */
u16 dcm_block_inflight(const struct dcm_vm *vm, u32 head, unsigned int order);
bool dcm_doubt_room(const struct dcm_lane *lane);
void dcm_doubt_add(struct dcm_lane *lane, u32 gfn, u16 pages, u8 slots);
void dcm_doubt_fence(struct dcm_lane *lane);
unsigned int dcm_doubt_poll(struct dcm_lane *lane);

/* sync.c */
void dcm_sync_failed(struct dcm_lane *lane, u32 head, unsigned int order);

/* ghost.c */
u64 dcm_ghost_share(struct dcm_vm *vm);
void dcm_ghost_make(struct dcm_vm *vm, struct dcm_pd *pd, u32 w, u32 now);
bool dcm_ghost_back(struct dcm_lane *lane, u32 gfn, u32 nr);

/* evict.c */
u64 dcm_evict_reserve(const struct dcm_vm *vm);
unsigned int dcm_evict_for(struct dcm_lane *lane, u32 room);
bool dcm_evict_block(struct dcm_lane *lane, u32 head, bool whole);
void dcm_evict_finish(struct dcm_lane *lane, u32 head, unsigned int order,
		      u32 frame);
void dcm_evict_clean(struct dcm_lane *lane, u32 head, unsigned int order,
		     u32 frame);
u16 dcm_copies_thin(const struct dcm_lane *lane, u32 head, unsigned int order,
		    u16 lag);

/*
 * Clean pages of a locked block that are on some slot, but not on all open slots.
 * @lag is dcm_lag_pages(); if these may lag, slots of files are not asked for.
 */
static inline u16 dcm_pages_thin(const struct dcm_lane *lane, u32 head,
				 unsigned int order, u16 lag)
{
	u8 used = READ_ONCE(extent_of(lane->vm, head)->used);

	return likely(!(used & (used - 1))) ?
		       0 :
		       dcm_copies_thin(lane, head, order, lag);
}

/* demote.c */
unsigned int dcm_demoted(struct dcm_lane *lane, const struct dcm_unmap *v);
void dcm_unmap_note(struct dcm_vm *vm, const struct dcm_unmap *v);
unsigned int dcm_proactive_trim(struct dcm_lane *lane, u64 share);
unsigned int dcm_demote_active(struct dcm_lane *lane, u64 want);
unsigned int dcm_demote(struct dcm_lane *lane, u64 want);

/* hint.c */
bool dcm_hint_keep(struct dcm_lane *lane, u32 head, unsigned int order);
void dcm_hint_trim(struct dcm_lane *lane);

/* ahead.c */

/**
 * struct dcm_ahead_want - a range of pages to bring in before an access needs them
 * @what: %DCM_FOR_AHEAD or %DCM_FOR_STREAM
 * @gfn: the next page to look at
 * @from: first page of the range
 * @end: first page past the range
 * @mark: a page to be left unmapped; or %DCM_NIL
 * @single: of each block only the page @gfn is wanted, not the rest
 * @alone: for ahead.c: the block was split, so bring in one page of it
 */
struct dcm_ahead_want {
	enum dcm_fetch_for what;
	u32 gfn;
	u32 from;
	u32 end;
	u32 mark;
	bool single;
	bool alone;
};

void dcm_ahead_add(struct dcm_lane *lane, u32 gfn, u32 nr);
void dcm_ahead_drop(struct dcm_lane *lane, u64 gfn, u64 nr);
u64 dcm_ahead_room(const struct dcm_vm *vm);
bool dcm_ahead_may(struct dcm_lane *lane);
u32 dcm_ahead_bring(struct dcm_lane *lane, struct dcm_ahead_want *want);

/* stream.c */
void dcm_stream_access(struct dcm_lane *lane, u32 gfn,
		       const struct dcm_miss *miss);

/* slot.c */
u8 dcm_slots_begin(struct dcm_vm *vm, u32 gfn, u8 slots);
void dcm_slots_end_each(struct dcm_extent *e, u8 slots);

/* A write, or an I/O, has ended on each of these slots; @slots is not empty. */
static inline void dcm_slots_end(struct dcm_vm *vm, u32 gfn, u8 slots)
{
	struct dcm_extent *e = extent_of(vm, gfn);

	if (unlikely(slots & (slots - 1)))
		dcm_slots_end_each(e, slots);
	else
		atomic_dec_return_release(
			&e->slot[ffs_u32(slots) - 1].inflight);
}

/* An I/O on a slot has ended. */
static inline void dcm_slot_io_end(struct dcm_vm *vm, u32 gfn, u8 slot)
{
	atomic_dec_return_release(&extent_of(vm, gfn)->slot[slot].inflight);
}

u8 dcm_slots_target(struct dcm_lane *lane, u32 gfn, u8 leave, int *err);
bool dcm_slots_down(const struct dcm_lane *lane, u32 gfn, u8 slots);
int dcm_slot_pick(const struct dcm_lane *lane, u32 gfn, u8 slots);
int dcm_slot_io(struct dcm_lane *lane, u32 gfn, u8 slot, struct dcm_io *io);
void dcm_lane_down(struct dcm_lane *lane, u32 peer);
void dcm_lane_up(struct dcm_lane *lane, u32 peer, bool write);

u8 dcm_slots_well(struct dcm_lane *lane, u32 gfn, u8 slots);
bool dcm_slots_cut(const struct dcm_lane *lane, u32 gfn, u8 slots);
bool dcm_slots_wait(const struct dcm_lane *lane, u32 gfn, u8 slots);
bool dcm_slots_soon(const struct dcm_lane *lane, u32 gfn, u8 slots);
u32 dcm_primary_bits(const struct dcm_vm *vm, u32 gfn);

/* lag.c */
u16 dcm_lag_pages(const struct dcm_vm *vm, u32 head, unsigned int order);
u32 dcm_lag_left(const struct dcm_vm *vm, u32 head, unsigned int order);
u8 dcm_lag_slots(const struct dcm_lane *lane, u32 gfn, u32 pages);
bool dcm_lag_take(struct dcm_vm *vm, u32 gfn, u32 pages);
bool dcm_lag_drop(struct dcm_vm *vm, u32 head, u16 pages);
void dcm_lag_fill_begins(struct dcm_extent *e);
void dcm_lag_fill_leaves(struct dcm_vm *vm, struct dcm_extent *e, u32 pages);
void dcm_lag_fill_ends(struct dcm_vm *vm, struct dcm_extent *e);
void dcm_lag_forget(struct dcm_vm *vm, struct dcm_extent *e);

/* sum.c */
/* The extent's table of sums; %NULL: it has none. */
static inline u32 *dcm_sums_of(const struct dcm_vm *vm, u32 gfn)
{
	/* Pairs with dcm_extent_sums(). */
	return smp_load_acquire(&extent_of(vm, gfn)->sum);
}

/**
 * dcm_sums_soon() - prefetch the sums of pages that are about to be read
 * @vm: VM
 * @gfn: first page; its block is BUSY by the caller
 *
 * So they are in the CPU's cache when the READ has been answered.
 */
static inline void dcm_sums_soon(const struct dcm_vm *vm, u32 gfn)
{
	const u32 *sum = dcm_sums_of(vm, gfn);

	if (sum)
		__builtin_prefetch(&sum[gfn & (vm->extent_pages - 1)]);
}

void dcm_sums_set(struct dcm_lane *lane, u32 head, u32 frame, u16 pages);
u16 dcm_sums_wrong(struct dcm_lane *lane, u32 gfn, const struct dcm_io *io,
		   u16 pages, bool learn);
bool dcm_sums_same(struct dcm_lane *lane, u32 gfn, const struct dcm_io *io,
		   u16 pages);
void dcm_sums_renew(struct dcm_lane *lane, u32 gfn, const struct dcm_io *io,
		    u16 pages);
void dcm_sums_forget(struct dcm_vm *vm, u32 extent);

/* seal.c */
bool dcm_seals_set(struct dcm_lane *lane, struct dcm_wb *wb);
u16 dcm_seals_wrong(struct dcm_lane *lane, u32 gfn, const struct dcm_io *io,
		    u16 pages, bool keep);

/* wrong.c */
u16 dcm_pages_wrong(struct dcm_lane *lane, u32 gfn, const struct dcm_io *io,
		    u16 pages, bool move);
bool dcm_wrong_again(struct dcm_lane *lane, u32 gfn, u16 wrong, u8 slot);
void dcm_wrong_strike(struct dcm_lane *lane, u32 gfn, u16 wrong, u8 slot);

/* extent.c */
bool dcm_slot_detach(struct dcm_vm *vm, u32 extent, int slot);

/* move.c */
bool dcm_move_start(struct dcm_lane *lane, const struct dcm_move_op *what);
void dcm_move_io_done(struct dcm_lane *lane, struct dcm_move_op *m);

#endif /* DCM_INTERNAL_H */

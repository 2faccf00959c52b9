// SPDX-License-Identifier: GPL-2.0-only
/*
 * eblk.c - elastic blocks: STRETCH and REDUCE
 *
 * A block doubles in size when a fault brings it in beside a mapped buddy of
 * the same size; once a fault, so blocks grow slowly. A block falls apart
 * into 4 KiB pages at once when too few of them were touched (dcm-tc18, 4.2,
 * CSAR, algorithms 1 and 2).
 *
 *	fault on C, buddy B is Active      fault on b3 of a 16K block, evicted
 *
 *	  | B | C |  ->  |  B  C  |          | b0 b1 b2 b3* | -> |b0|b1|b2|b3|
 *
 * Differences from the paper:
 * - Too few is three quarters, where the paper says half: a prefetched page
 *   that is not used takes the room of a page that is, and with half of each
 *   block unused that costs as many faults as the other half saves.
 * - A block is judged also when it is re-referenced in Inactive, not only when
 *   it is evicted. A re-referenced block is never evicted, so one hot page
 *   would keep the others for good. Pages not touched go to the tail of
 *   Active.
 * - A buddy counts only while it is mapped (Active, Proactive). The bytes of
 *   an Inactive one are in a frame; its next re-reference is another fault.
 * - Where prefetched pages of the same 2 MiB recently went unused, a stretch
 *   is less likely, down to one in sixteen chances. With half of the memory
 *   direct any page's buddy is there half of the time, and random accesses
 *   would stretch what REDUCE then undoes.
 * - A merged block always goes to the tail of its queue; the paper leaves a
 *   Proactive buddy in place.
 * - Where a pager can't tell for every page whether it was touched, only pages
 *   of which it can tell are judged (PD_OBSERVED); if that is only the page
 *   that was asked for, nothing is decided. So that it can tell of one more, that page
 *   stays unmapped when the block is fetched, and when it is re-referenced: a block
 *   that is never evicted is never fetched.
 * - Pages never written are made in blocks as large as the adjacent one
 *   (dcm_eblk_grow_fresh()); the paper's start at 4 KiB.
 * - With the tunable elastic off every block has the largest size: blocks are
 *   merged before they are fetched (dcm_eblk_grow_cold()), as in the paper's dcmXk.
 *
 * Locking: STRETCH holds both heads' locks, the buddy's only by trylock;
 * REDUCE takes all members' locks so that no lane can use a size while it
 * changes (dcm-tc18, 4.3).
 */
#include "internal.h"

#define WASTE_LITTLE 8

/* Were enough pages of a block used to justify fetching it as one? */
static bool block_well_used(unsigned int used, unsigned int known)
{
	return used * 4 > known * 3;
}

/* A block size among the tunables, as an order. */
static unsigned int tuned_order(const struct dcm_vm *vm, enum dcm_tunable_id id)
{
	return (unsigned int)ilog2(dcm_tune(vm, id)) - DCM_PAGE_SHIFT;
}

unsigned int dcm_eblk_order_max(const struct dcm_vm *vm)
{
	return tuned_order(vm, DCM_T_largest_block);
}

/* The largest block of pages that are touched for the first time. */
unsigned int dcm_eblk_order_fresh(const struct dcm_vm *vm)
{
	return min(tuned_order(vm, DCM_T_fresh_block), dcm_eblk_order_max(vm));
}

static void orders_set(struct dcm_vm *vm, u32 head, unsigned int order)
{
	struct dcm_pd *pd = pd_of(vm, head);
	u32 i;

	for (i = 0; i < 1u << order; i++)
		pd_set_order(&pd[i], order);
}

/* Lock the buddy if it is one block of this size. Returns its head. */
static u32 buddy_lock(struct dcm_vm *vm, u32 head, unsigned int order)
{
	u32 buddy = head ^ (1u << order);
	struct dcm_pd *pd;

	if ((u64)buddy + (1u << order) > vm->nr_pages)
		return DCM_NIL;
	pd = pd_of(vm, buddy);
	if (pd_order(pd_word(pd)) != order || !pd_trylock(pd))
		return DCM_NIL;
	if (pd_order(pd_word(pd)) != order || (pd_word(pd) & PD_BUSY)) {
		pd_unlock(pd);
		return DCM_NIL;
	}
	return buddy;
}

/*
 * Two locked blocks become one; the upper head stops being one. Its lock is
 * dropped last: a waiter for it finds the new size and starts over.
 */
static u32 blocks_merge(struct dcm_vm *vm, u32 a, u32 b, unsigned int order)
{
	u32 lo = min(a, b), hi = max(a, b);
	struct dcm_pd *upper = pd_of(vm, hi);

	orders_set(vm, lo, order + 1);
	pd_clear(upper, PD_BUSY | PD_WAITER | PD_WHERE_MASK);
	pd_unlock(upper);
	return lo;
}

/* Prefetch here? Yes if it has paid in these 2 MiB, else now and then, at random. */
bool dcm_eblk_worth(struct dcm_lane *lane, u32 head)
{
	u8 w = READ_ONCE(habit_of(lane->vm, head)->waste);

	return !w || (dcm_random(lane) & 255) >= (u64)min(w, (u8)240);
}

/*
 * How often to check whether a block's prefetched pages are touched. A check
 * costs a fault: check rarely where they have been touched so far.
 */
u64 dcm_eblk_sample_bp(const struct dcm_vm *vm, u32 head)
{
	u8 w = READ_ONCE(habit_of(vm, head)->waste);
	u64 bp = dcm_tune(vm, DCM_T_sample_bp);

	return w < WASTE_LITTLE ? bp / 8 : bp;
}

/**
 * dcm_eblk_stretch() - STRETCH, once: merge a block with its buddy
 * @lane: caller's lane
 * @head: block just installed: locked, BUSY by the caller, Active or
 *	Proactive, in no queue
 * @order: in and out: its size
 *
 * Return: the head of the block that now holds it, locked, BUSY, in no queue;
 * its state is the buddy's when there was one.
 */
u32 dcm_eblk_stretch(struct dcm_lane *lane, u32 head, unsigned int *order)
{
	struct dcm_vm *vm = lane->vm;
	unsigned int o = *order;
	struct dcm_pd *pd;
	u32 buddy, lo, carry;
	enum dcm_state s;

	if (!dcm_tune(vm, DCM_T_elastic) || o >= dcm_eblk_order_max(vm) ||
	    !dcm_eblk_worth(lane, head))
		return head;
	buddy = buddy_lock(vm, head, o);
	if (buddy == DCM_NIL)
		return head;
	pd = pd_of(vm, buddy);
	s = pd_state(pd_word(pd));
	if (s != DCM_ACTIVE && s != DCM_PROACTIVE) {
		pd_unlock(pd);
		return head;
	}
	dcm_queue_out(vm, buddy, o);
	carry = pd_word(pd_of(vm, head)) & (PD_BUSY | PD_WAITER);
	lo = blocks_merge(vm, head, buddy, o);
	pd_assign(pd_of(vm, lo), PD_STATE_MASK, ((u32)s << PD_STATE_SHIFT));
	pd_set(pd_of(vm, lo), carry);
	*order = o + 1;
	dcm_count(lane, DCM_C_STRETCH, 1);
	return lo;
}

/**
 * dcm_eblk_judge() - judge and learn how a block was used while mapped
 * @lane: caller's lane
 * @head: locked
 * @order: its size, more than a page
 *
 * Return: whether the block should fall apart.
 */
bool dcm_eblk_judge(struct dcm_lane *lane, u32 head, unsigned int order)
{
	struct dcm_vm *vm = lane->vm;
	u16 observed, touched, prefetched;

	observed = dcm_block_flag(vm, head, order, PD_OBSERVED);
	touched = dcm_block_flag(vm, head, order, PD_TOUCHED) & observed;
	prefetched = dcm_block_flag(vm, head, order, PD_PREFETCHED) & observed;
	if (prefetched)
		dcm_learn(&habit_of(vm, head)->waste,
			  !block_well_used(hweight16(prefetched & touched),
				     hweight16(prefetched)));
	if (order > dcm_eblk_order_max(vm))
		return true;
	return dcm_tune(vm, DCM_T_elastic) && hweight16(observed) > 1 &&
	       !block_well_used(hweight16(touched), hweight16(observed));
}

/**
 * dcm_eblk_reduce() - a block becomes pages of 4 KiB, all in its state
 * @lane: caller's lane
 * @head: locked, in no queue, mapped or NotDirect; stays so
 * @order: its size
 *
 * A BUSY head stays BUSY, the other pages are not. Mapped pages are queued;
 * Proactive pages that were not touched become Active.
 */
void dcm_eblk_reduce(struct dcm_lane *lane, u32 head, unsigned int order)
{
	struct dcm_vm *vm = lane->vm;
	struct dcm_pd *pd = pd_of(vm, head);
	u32 state = pd_word(pd) & PD_STATE_MASK, i;

	if (!order)
		return;
	for (i = 1; i < 1u << order; i++) {
		pd_lock(&pd[i]);
		pd_assign(&pd[i],
			  PD_STATE_MASK | PD_BUSY | PD_WAITER | PD_WHERE_MASK,
			  state);
	}
	for (i = 0; i < 1u << order; i++)
		pd_set_order(&pd[i], 0);
	for (i = 1; i < 1u << order; i++) {
		if (pd_state(state) == DCM_PROACTIVE &&
		    !(pd_word(&pd[i]) & PD_TOUCHED))
			dcm_state_set(lane, head + i, DCM_ACTIVE);
		if (pd_state(state) != DCM_NOTDIRECT)
			dcm_queue_in(lane, head + i, 0);
		pd_unlock(&pd[i]);
	}
	dcm_count(lane, DCM_C_REDUCE, 1);
}

/*
 * Merge the blocks of 2^order NotDirect pages into one, if no page has a flag
 * of @without. Returns true with the block locked. Block locks are only tried.
 */
static bool blocks_gather(struct dcm_vm *vm, u32 base, unsigned int order,
		      u32 without)
{
	u32 half = base + (1u << order) / 2;
	struct dcm_pd *pd = pd_of(vm, base);

	if (pd_order(pd_word(pd)) < order) {
		if (!blocks_gather(vm, base, order - 1, without))
			return false;
		if (!blocks_gather(vm, half, order - 1, without)) {
			pd_unlock(pd);
			return false;
		}
		blocks_merge(vm, base, half, order - 1);
		return true;
	}
	if (!pd_trylock(pd))
		return false;
	if (pd_order(pd_word(pd)) == order && !(pd_word(pd) & PD_BUSY) &&
	    pd_state(pd_word(pd)) == DCM_NOTDIRECT &&
	    !dcm_block_flag(vm, base, order, without))
		return true;
	pd_unlock(pd);
	return false;
}

/**
 * dcm_eblk_gather() - make 2^@order pages that were never written one block
 * @vm: the VM
 * @base: the first, aligned
 * @order: size
 *
 * Return: true: the block is locked, NotDirect and not BUSY. Locks are only tried.
 */
bool dcm_eblk_gather(struct dcm_vm *vm, u32 base, unsigned int order)
{
	return blocks_gather(vm, base, order, PD_LOST | PD_AT);
}

static u32 block_grow(struct dcm_vm *vm, u32 head, unsigned int *order,
		unsigned int top, u32 without)
{
	while (*order < top) {
		u32 buddy = head ^ (1u << *order);

		if ((u64)buddy + (1u << *order) > vm->nr_pages ||
		    !blocks_gather(vm, buddy, *order, without))
			break;
		head = blocks_merge(vm, head, buddy, *order);
		(*order)++;
	}
	return head;
}

/**
 * dcm_eblk_grow_cold() - make a block that is not direct the largest size
 * @lane: caller's lane
 * @head: locked, NotDirect, not BUSY
 * @order: in and out: its size
 *
 * Return: the head of the grown block, locked.
 */
u32 dcm_eblk_grow_cold(struct dcm_lane *lane, u32 head, unsigned int *order)
{
	struct dcm_vm *vm = lane->vm;

	return block_grow(vm, head, order, dcm_eblk_order_max(vm), PD_LOST);
}

/* Does some slot of @at hold every page of the block? A hint: no lock is held. */
static bool block_whole(const struct dcm_vm *vm, u32 head, unsigned int order,
			u8 at)
{
	struct dcm_sets s = dcm_block_sets(pd_of(vm, head), order);

	return s.some == page_mask(order) && (s.at & at);
}

/**
 * dcm_eblk_grow_ahead() - merge a block with its neighbours, as all are wanted
 * @lane: caller's lane
 * @head: locked, NotDirect, not BUSY
 * @order: in and out: its size
 * @from: first page that is wanted
 * @end: first page past those
 *
 * The block grows as long as all its pages are wanted and one slot holds them all:
 * then one READ brings them.
 *
 * Return: the head of the grown block, locked.
 */
u32 dcm_eblk_grow_ahead(struct dcm_lane *lane, u32 head, unsigned int *order,
			u32 from, u32 end)
{
	struct dcm_vm *vm = lane->vm;
	unsigned int top = dcm_eblk_order_max(vm);
	struct dcm_sets s;

	if (!dcm_tune(vm, DCM_T_elastic))
		return dcm_eblk_grow_cold(lane, head, order);
	/* a fault brings in no larger ones */
	while (top && (4ull << top) > READ_ONCE(vm->budget))
		top--;
	s = dcm_block_at(vm, head, *order);
	while (*order < top && s.some == page_mask(*order) && s.at) {
		u32 buddy = head ^ (1u << *order), low = min(head, buddy);

		if (low < from || (u64)low + (2u << *order) > end ||
		    pd_order(pd_word(pd_of(vm, buddy))) > *order ||
		    !block_whole(vm, buddy, *order, s.at) ||
		    !blocks_gather(vm, buddy, *order, PD_LOST))
			break;
		head = blocks_merge(vm, head, buddy, *order);
		(*order)++;
		s = dcm_block_at(vm, head, *order);
	}
	return head;
}

/**
 * dcm_eblk_grow_empty() - make a block without content the largest size
 * @lane: caller's lane
 * @head: locked, NotDirect, not BUSY, no page of it on a donor or LOST
 * @order: in and out: its size
 *
 * For pages that are all to be written as zeroes.
 *
 * Return: the head of the grown block, locked.
 */
u32 dcm_eblk_grow_empty(struct dcm_lane *lane, u32 head, unsigned int *order)
{
	struct dcm_vm *vm = lane->vm;
	unsigned int top = dcm_eblk_order_max(vm);

	/* a fault brings in no larger ones */
	while (top && (4ull << top) > READ_ONCE(vm->budget))
		top--;
	return block_grow(vm, head, order, top, PD_LOST | PD_AT);
}

/* Order of a page's block, 0 if it is not direct. A hint: no lock is held. */
static unsigned int order_here(const struct dcm_vm *vm, u32 gfn)
{
	unsigned int o = pd_order(pd_word(pd_of(vm, gfn)));
	u32 head = gfn & ~((1u << o) - 1);

	return pd_state(pd_word(pd_of(vm, head))) == DCM_NOTDIRECT ? 0 : o;
}

/**
 * dcm_eblk_grow_fresh() - make a block never written as large as one beside it
 * @lane: caller's lane
 * @head: locked, NotDirect, not BUSY, no page of it on a donor or LOST
 * @order: in and out: its size
 *
 * Memory is mostly first touched in order, upwards or downwards. A fresh
 * page's neighbours are as likely to follow as those of the adjacent block
 * were, and that block's size says how likely. fresh_block is the limit,
 * because how memory is filled says little about how it is used later.
 *
 * Return: the head of the grown block, locked.
 */
u32 dcm_eblk_grow_fresh(struct dcm_lane *lane, u32 head, unsigned int *order)
{
	struct dcm_vm *vm = lane->vm;
	unsigned int near = 0;
	u32 after = head + (1u << *order);

	if (!dcm_eblk_worth(lane, head))
		return head;
	if (head)
		near = order_here(vm, head - 1);
	if (after < vm->nr_pages)
		near = max(near, order_here(vm, after));
	return block_grow(vm, head, order, min(near, dcm_eblk_order_fresh(vm)),
			  PD_LOST | PD_AT);
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * hint.c - the owner of pages tells the core about their use
 *
 * The queues infer what is hot from re-references; a program (say, a garbage
 * collector) may know earlier. It can give three hints:
 *
 *   keep   when a block with such a page would become a victim, it leaves
 *          Active for a queue (vm->kept) that no victim is taken from. That
 *          queue holds a quarter of the budget at most; blocks beyond it are
 *          treated as any other, so the rest of the budget stays usable
 *   cold   the block goes to the front of its queue: it is evicted next
 *   fetch  the pages are brought in, in the background. The coldest blocks make room
 *          for them, a quarter of the budget at most; ahead.c says why
 *
 * Nothing is fetched or evicted here. A kept block is Active in all respects:
 * code that takes a block out of its queue (discard, sync, STRETCH) takes it
 * out of this one, and it returns when it is next chosen as a victim.
 * PD_DIRECT is each page's own, and stays until the page is discarded.
 */
#include "internal.h"

static u64 kept_most(const struct dcm_vm *vm)
{
	return READ_ONCE(vm->budget) / 4;
}

/**
 * dcm_hint_keep() - keep a block if its owner wants that and there is room
 * @lane: caller's lane
 * @head: locked, Active, in no queue
 * @order: its size
 */
bool dcm_hint_keep(struct dcm_lane *lane, u32 head, unsigned int order)
{
	struct dcm_vm *vm = lane->vm;

	if (!dcm_block_flag(vm, head, order, PD_DIRECT) ||
	    READ_ONCE(vm->kept.nr_pages) + (1ull << order) > kept_most(vm))
		return false;
	dcm_queue_keep(vm, head, order);
	dcm_count(lane, DCM_C_KEPT, 1);
	return true;
}

/* The budget was reduced: the oldest kept blocks become ordinary again. */
void dcm_hint_trim(struct dcm_lane *lane)
{
	struct dcm_vm *vm = lane->vm;
	unsigned int n;
	u32 head;

	for (n = 0;
	     n < DCM_BATCH_MAX && READ_ONCE(vm->kept.nr_pages) > kept_most(vm);
	     n++) {
		head = dcm_fifo_pop_locked(vm, &vm->kept);
		if (head == DCM_NIL)
			return;
		dcm_queue_in(lane, head, pd_order(pd_word(pd_of(vm, head))));
		pd_unlock(pd_of(vm, head));
	}
}

/* Take a mapped block, locked and not BUSY, out of its queue, as Active. */
static void block_take(struct dcm_lane *lane, u32 head, unsigned int order)
{
	dcm_queue_out(lane->vm, head, order);
	if (pd_state(pd_word(pd_of(lane->vm, head))) == DCM_PROACTIVE)
		dcm_state_set(lane, head, DCM_ACTIVE);
}

/* Apply a hint to a block: locked and not BUSY on entry. */
static void hint_block(struct dcm_lane *lane, u32 head, unsigned int order,
		       enum dcm_hint what)
{
	struct dcm_vm *vm = lane->vm;
	u32 w = pd_word(pd_of(vm, head));
	enum dcm_state s = pd_state(w);
	bool mapped = s == DCM_ACTIVE || s == DCM_PROACTIVE;

	if (what == DCM_HINT_COLD &&
	    (mapped || (s == DCM_INACTIVE && pd_where(w) == DCM_W_QUEUE))) {
		if (mapped)
			block_take(lane, head, order);
		else
			dcm_queue_out(vm, head, order);
		dcm_queue_first(vm, head, order);
		dcm_count(lane, DCM_C_COLD, 1);
	} else if (what == DCM_HINT_DIRECT && mapped && !(w & PD_KEPT)) {
		block_take(lane, head, order);
		if (!dcm_hint_keep(lane, head, order))
			dcm_queue_in(lane, head, order);
	} else if (what == DCM_HINT_NORMAL && (w & PD_KEPT) &&
		   !dcm_block_flag(vm, head, order, PD_DIRECT)) {
		block_take(lane, head, order);
		dcm_queue_in(lane, head, order);
	}
}

bool dcm_hint(struct dcm_lane *lane, u64 gfn, u64 nr, enum dcm_hint what)
{
	struct dcm_vm *vm = lane->vm;
	u64 end = gfn + nr;

	if (gfn >= vm->nr_pages || end < gfn)
		return true;
	end = min(end, (u64)vm->nr_pages);
	if (what == DCM_HINT_FETCH || what == DCM_HINT_FORGET) {
		if (what == DCM_HINT_FETCH)
			dcm_ahead_add(lane, (u32)gfn, (u32)(end - gfn));
		else
			dcm_ahead_drop(lane, gfn, end - gfn);
		return true;
	}
	while ((gfn = dcm_chunk_next(vm, gfn, end)) < end) {
		unsigned int order;
		u32 head = dcm_block_lock(vm, (u32)gfn, &order);
		u64 past = min(head + (1ull << order), end);

		if (pd_word(pd_of(vm, head)) & PD_BUSY) {
			pd_unlock(pd_of(vm, head));
			dcm_poll(lane);
			if (!vm->ops->relax(lane))
				return false;
			continue;
		}
		for (; gfn < past; gfn++)
			pd_assign(pd_of(vm, (u32)gfn), PD_DIRECT,
				  what == DCM_HINT_DIRECT ? PD_DIRECT : 0);
		hint_block(lane, head, order, what);
		pd_unlock(pd_of(vm, head));
	}
	/* This lane may be rarely used: blocks must not stay in its buffer. */
	dcm_buffers_flush(vm);
	return true;
}

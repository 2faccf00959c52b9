// SPDX-License-Identifier: GPL-2.0-only
/*
 * demote.c - blocks that are unmapped, and become Inactive
 *
 *	Proactive --over its share--> Active --oldest, a batch--> Inactive
 *	                                     --clean, near------> not direct
 *
 * Unmapping is done in batches, because one TLB flush then serves many blocks.
 * The paper (dcm-tc18, 3.3) unmaps one victim at a time.
 *
 * Where donors are as near as memory, a clean victim is dropped when it is
 * unmapped (keep_clean): keeping its bytes would cost a copy, as fetching does.
 *
 * Locking: a block is locked, taken out of its queue, made BUSY and unlocked; then
 * ops->unmap works on the batch. Nothing here allocates or waits.
 */
#include "internal.h"

/**
 * dcm_proactive_trim() - move Proactive's oldest blocks to Active
 * @lane: caller's lane
 * @share: stop when Proactive has no more pages than this
 *
 * Return: blocks moved; at most %DCM_BUFFER_MAX.
 */
unsigned int dcm_proactive_trim(struct dcm_lane *lane, u64 share)
{
	struct dcm_vm *vm = lane->vm;
	unsigned int n = 0;

	while (n < DCM_BUFFER_MAX &&
	       READ_ONCE(vm->proactive.nr_pages) > share) {
		u32 head = dcm_fifo_pop_locked(vm, &vm->proactive);
		unsigned int order;

		if (head == DCM_NIL)
			break;
		order = pd_order(pd_word(pd_of(vm, head)));
		dcm_state_set(lane, head, DCM_ACTIVE);
		dcm_queue_in(lane, head, order);
		pd_unlock(pd_of(vm, head));
		n++;
	}
	return n;
}

/* Record what ops->unmap found in the descriptors. */
void dcm_unmap_note(struct dcm_vm *vm, const struct dcm_unmap *v)
{
	struct dcm_pd *pd = pd_of(vm, v->gfn);
	u32 i;

	for (i = 0; i < 1u << v->order; i++) {
		u32 set = 0;

		if (v->dirty & (1u << i))
			set |= PD_DIRTY;
		if (v->touched & (1u << i))
			set |= PD_TOUCHED | PD_OBSERVED;
		if (v->observed & (1u << i))
			set |= PD_OBSERVED;
		if (set)
			pd_set(&pd[i], set);
	}
}

/**
 * dcm_demoted() - ops->unmap is done with a block: queue or free it
 * @lane: caller's lane
 * @v: what ops->unmap found
 *
 * Return: 0 when the block had to stay mapped.
 */
unsigned int dcm_demoted(struct dcm_lane *lane, const struct dcm_unmap *v)
{
	struct dcm_vm *vm = lane->vm;
	struct dcm_pd *pd = pd_of(vm, v->gfn);

	if (v->err) {
		dcm_count(lane, DCM_C_PINNED, 1);
		pd_lock(pd);
		dcm_queue_in(lane, v->gfn, v->order);
		dcm_block_unbusy(lane, v->gfn, v->order);
		return 0;
	}
	dcm_unmap_note(vm, v);
	pd_lock(pd);
	if (v->frame == DCM_NIL) {
		dcm_evict_clean(lane, v->gfn, v->order, DCM_NIL);
		return 1;
	}
	pd->frame = v->frame;
	dcm_state_set(lane, v->gfn, DCM_INACTIVE);
	dcm_queue_in(lane, v->gfn, v->order);
	dcm_count(lane, DCM_C_DEMOTED, 1);
	dcm_block_unbusy(lane, v->gfn, v->order);
	return 1;
}

/**
 * dcm_demote_active() - unmap the oldest of Active, in one batch
 * @lane: caller's lane
 * @want: how many pages, at least, as far as one batch has room
 *
 * Return: how many blocks became Inactive, or NotDirect.
 */
unsigned int dcm_demote_active(struct dcm_lane *lane, u64 want)
{
	struct dcm_vm *vm = lane->vm;
	unsigned int limit = (unsigned int)dcm_tune(vm, DCM_T_batch_blocks);
	unsigned int n = 0, done = 0, i;
	u64 pages = 0;

	while (n < limit && pages < want) {
		u32 head = dcm_victim_take(lane);
		struct dcm_unmap *v = &lane->unmap[n];

		if (head == DCM_NIL)
			break;
		v->gfn = head;
		v->order = (u8)pd_order(pd_word(pd_of(vm, head)));
		if (dcm_hint_keep(lane, head, v->order)) {
			pd_unlock(pd_of(vm, head));
			continue;
		}
		v->dirty = dcm_block_flag(vm, head, v->order, PD_DIRTY);
		v->drop = !v->dirty && !dcm_tune(vm, DCM_T_keep_clean) &&
			  !dcm_lag_pages(vm, head, v->order) &&
			  !dcm_pages_thin(lane, head, v->order, 0);
		v->touched = 0;
		v->observed = 0;
		v->frame = DCM_NIL;
		v->err = 0;
		pd_set(pd_of(vm, head), PD_BUSY);
		pd_unlock(pd_of(vm, head));
		pages += 1u << v->order;
		n++;
	}
	if (!n)
		return 0;
	vm->ops->unmap(lane, lane->unmap, n);
	for (i = 0; i < n; i++)
		done += dcm_demoted(lane, &lane->unmap[i]);
	return done;
}

/** dcm_demote() - as dcm_demote_active(), from any queue that has a mapped block */
unsigned int dcm_demote(struct dcm_lane *lane, u64 want)
{
	unsigned int n = dcm_demote_active(lane, want);

	if (n)
		return n;
	dcm_buffers_flush(lane->vm);
	n = dcm_demote_active(lane, want);
	if (!n && dcm_proactive_trim(lane, 0)) {
		dcm_buffers_flush(lane->vm);
		n = dcm_demote_active(lane, want);
	}
	return n;
}

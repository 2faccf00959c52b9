// SPDX-License-Identifier: GPL-2.0-only
/*
 * fresh.c - many pages that are touched for the first time, brought in at once
 *
 * A program that fits in its budget should run as fast as without kvm-dcm. The kernel
 * would give it memory in huge pages, not by a fault for each 16 KiB. So
 * while the budget has room a first touch may bring in a *run*: up to 2 MiB of
 * pages that were never written, all zero, by one operation of the pager. The
 * paper has no such thing.
 *
 *	here, without a gap     run: as many pages again
 *	[################]      [................]
 *	                        ^ first touch
 *
 * A touch says little about pages far from it, so a run is no longer than the stretch
 * of direct pages that it adjoins: memory that is filled in order is brought in by
 * doubling steps, and a page that is touched alone comes alone. Memory that is filled
 * at random has gaps until the end; so one touch in %LOOK_EVERY checks whether half of
 * the pages around it are direct, and if so brings in the others.
 *
 * The blocks of a run are no larger than those of single faults (fresh_block): each
 * is evicted by itself, and its pages that were never used are all zero, so they need
 * no donor. There are no runs when less than an eighth of the budget is free,
 * unless all of the VM's memory may be direct.
 *
 * A pager may also ask for a *span* (%DCM_FF_SPAN): the whole aligned 2 MiB around
 * the touched page, even if no other page of it is direct. So the pager can map one
 * huge page, as the kernel would.
 *
 * Locking: the blocks of a run are BUSY from when they are found NotDirect until
 * they are mapped. Locks are only tried: a block that another lane works on is
 * left out.
 */
#include "internal.h"

#define RUN_MAX (1u << DCM_HABIT_SHIFT) /* pages: 2 MiB */
#define RUN_SHARE 16 /* the longest run is 1/16 of the budget */
#define FREE_SHARE 8 /* 1/8 of the budget is left free by runs */
#define LOOK_EVERY 16 /* one first touch in 16 looks around */

/* The longest run that there is room for; 0: none. */
static u32 run_room(const struct dcm_vm *vm)
{
	u64 budget = READ_ONCE(vm->budget), most = budget / RUN_SHARE;
	s64 room = (s64)(budget - budget / FREE_SHARE);

	/* The budget covers the whole VM: nothing will have to be evicted. */
	if (budget >= vm->nr_pages) {
		most = RUN_MAX;
		room = (s64)budget;
	}
	room -= atomic64_read(&vm->direct);
	if (room <= 0)
		return 0;
	return (u32)min(min((u64)room, most), (u64)RUN_MAX);
}

/* The block that a page is in, if it is here. A hint: no lock is held. */
static bool block_here(const struct dcm_vm *vm, u32 gfn, u32 *head, u32 *past)
{
	unsigned int o = pd_order(pd_word(pd_of(vm, gfn)));

	*head = gfn & ~((1u << o) - 1);
	*past = *head + (1u << o);
	return pd_state(pd_word(pd_of(vm, *head))) != DCM_NOTDIRECT;
}

/* How many pages before a block are here, without a gap. */
static u32 here_before(const struct dcm_vm *vm, u32 gfn, u32 most)
{
	u32 at = gfn, head, past;

	while (at && gfn - at < most && block_here(vm, at - 1, &head, &past))
		at = head;
	return min(gfn - at, most);
}

static u32 here_after(const struct dcm_vm *vm, u32 gfn, u32 most)
{
	u32 at = gfn, head, past;

	while (at < vm->nr_pages && at - gfn < most &&
	       block_here(vm, at, &head, &past))
		at = past;
	return min(at - gfn, most);
}

/* Are half of these pages here? */
static bool run_dense(const struct dcm_vm *vm, u32 gfn, u32 nr)
{
	u32 end = gfn + nr, here = 0, head, past, n;

	for (; gfn < end; gfn += n) {
		bool yes = block_here(vm, gfn, &head, &past);

		n = min(past, end) - gfn;
		here += yes ? n : 0;
	}
	return here * 2 >= nr;
}

static u32 power_of_two(u32 n)
{
	return n ? 1u << ilog2((u64)n) : 0;
}

/**
 * dcm_fresh_run() - how long a run a first touch should bring in
 * @lane: caller's lane
 * @head: the touched block: locked, NotDirect
 * @order: its size
 *
 * Return: the pages, a power of two, of the aligned run that has the block in it; 0:
 * bring in the block alone.
 */
u32 dcm_fresh_run(struct dcm_lane *lane, u32 head, unsigned int order)
{
	struct dcm_vm *vm = lane->vm;
	u32 most, nr, after = head + (1u << order);
	struct dcm_sets sets;

	if (!vm->ops->fresh || !dcm_tune(vm, DCM_T_elastic))
		return 0;
	most = power_of_two(run_room(vm));
	if (likely(most <= 1u << dcm_eblk_order_fresh(vm)))
		return 0;
	sets = dcm_block_at(vm, head, order);
	if (sets.some || !sets.at || !dcm_eblk_worth(lane, head))
		return 0;
	nr = power_of_two(
		max(here_before(vm, head, most), here_after(vm, after, most)));
	if (nr < most && !(lane->count[DCM_C_FAULT_ZERO] % LOOK_EVERY) &&
	    (head & ~(most - 1)) + (u64)most <= vm->nr_pages &&
	    run_dense(vm, head & ~(most - 1), most))
		nr = most;
	while (nr && (head & ~(nr - 1)) + (u64)nr > vm->nr_pages)
		nr >>= 1;
	return nr > 1u << dcm_eblk_order_fresh(vm) ? nr : 0;
}

u32 dcm_fresh_span(const struct dcm_vm *vm, u32 gfn)
{
	if (!dcm_tune(vm, DCM_T_elastic) || run_room(vm) < RUN_MAX ||
	    (gfn & ~(RUN_MAX - 1)) + (u64)RUN_MAX > vm->nr_pages)
		return 0;
	return RUN_MAX;
}

/*
 * Make a block of pages that were never written BUSY, as large as fits. Returns
 * its pages; 0: there is none at @gfn.
 */
static u32 block_take(struct dcm_vm *vm, u32 gfn, u32 end)
{
	unsigned int o = max(dcm_eblk_order_fresh(vm),
			     pd_order(pd_word(pd_of(vm, gfn))));

	for (;; o--) {
		if (!(gfn & ((1u << o) - 1)) && gfn + (1u << o) <= end &&
		    dcm_eblk_gather(vm, gfn, o)) {
			pd_set(pd_of(vm, gfn), PD_BUSY);
			pd_unlock(pd_of(vm, gfn));
			return 1u << o;
		}
		if (!o)
			return 0;
	}
}

/* The next part of [@gfn, @end) that can come in; the blocks of it are BUSY. */
static u32 part_take(struct dcm_vm *vm, u32 *gfn, u32 end)
{
	u32 at = *gfn, n;

	while (at < end) {
		/* A lane that takes faults adds no descriptors. */
		n = dcm_chunk_there(vm, at) ? block_take(vm, at, end) : 0;
		if (n) {
			at += n;
			continue;
		}
		if (at > *gfn)
			break;
		*gfn = ++at;
	}
	return at - *gfn;
}

/* A page of a run was mapped writable: set the flags that a fault of its own would. */
static void page_made(struct dcm_pd *pd, bool asked, bool write)
{
	u32 set = PD_DIRTY | PD_FRESH;

	if (!asked || !write)
		set |= PD_GUESSED;
	if (asked)
		set |= PD_TOUCHED | PD_OBSERVED;
	pd_assign(pd, PD_RESIDENCY, set);
}

/* A page of the sample (reuse.c) has come in unasked. */
static void run_sampled(struct dcm_lane *lane, u32 head, unsigned int order,
			u32 asked)
{
	u16 page = dcm_reuse_mask(lane->vm, head, order, asked);

	if (unlikely(page))
		dcm_reuse_mapped(lane, head + ffs_u32(page) - 1, true);
}

/* End a part: queue its blocks if they were @made, else make them NotDirect again. */
static void part_end(struct dcm_lane *lane, u32 head, u32 end, u32 asked,
		     bool write, bool made)
{
	struct dcm_vm *vm = lane->vm;

	while (head < end) {
		struct dcm_pd *pd = pd_of(vm, head);
		unsigned int order = pd_order(pd_word(pd));
		u32 nr = 1u << order, i;

		for (i = 0; made && i < nr; i++)
			page_made(&pd[i], head + i == asked, write);
		pd_lock(pd);
		if (made) {
			dcm_state_set(lane, head, DCM_ACTIVE);
			dcm_queue_in(lane, head, order);
			dcm_count(lane, DCM_C_MIX_4K + order, nr);
			run_sampled(lane, head, order, asked);
		}
		dcm_block_unbusy(lane, head, order);
		head += nr;
	}
}

/**
 * dcm_fresh_make() - bring in a run, and wake the access
 * @lane: caller's lane
 * @gfn: the touched page
 * @nr: the number of pages that dcm_fresh_run() returned
 * @write: the access is a write
 *
 * Return: whether the touched page has come in.
 */
bool dcm_fresh_make(struct dcm_lane *lane, u32 gfn, u32 nr, bool write)
{
	struct dcm_vm *vm = lane->vm;
	u32 at = gfn & ~(nr - 1), end = at + nr, n, made = 0;
	u64 began = vm->ops->now_ns();
	bool asked = false;

	if (!dcm_frames_take(vm, nr))
		return false;
	while ((n = part_take(vm, &at, end))) {
		bool ok = !vm->ops->fresh(lane, at, n);

		part_end(lane, at, at + n, gfn, write, ok);
		if (ok) {
			made += n;
			asked |= gfn - at < n;
		}
		at += n;
	}
	dcm_frames_put(vm, nr - made);
	dcm_count(lane, DCM_C_FRESH_PAGES, made);
	if (asked) {
		dcm_count(lane, DCM_C_FAULT_ZERO, 1);
		dcm_hist_add(&lane->hist[DCM_H_FAULT],
			     vm->ops->now_ns() - began);
	}
	return asked;
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * ghost.c - when evicted pages left, and what to learn if they come back soon
 *
 * A NotDirect page is in no queue, so its descriptor's @next is free to hold a
 * *ghost*: the time of its eviction, counted in evicted pages of the VM, and in
 * the lowest bit whether it was re-referenced while it was direct. Such a ghost
 * list takes no memory. The paper (dcm-tc18) has none; ARC, 2Q and S3-FIFO do.
 *
 * A block that comes back soon was evicted too early: it goes to Proactive as
 * if re-referenced in Inactive.
 *
 * Its ghost also moves Proactive's share of the budget, as ARC's ghosts do. If a
 * page comes back before as many pages as the budget has were evicted after it, the
 * share grows if the page was re-referenced (Proactive is for such pages), and
 * shrinks if it was used once. The step is larger for the kind of page of which
 * fewer were evicted lately, by the ratio of the two.
 *
 * Unlike in ARC, the smallest step is a page and a half, since not all hits are
 * seen: steps of two pages were worse on most of ten programs' traces. And Active
 * keeps its eighth of the budget (evict.c).
 *
 * Locking: a ghost is guarded by its block's lock. struct dcm_ghosts has no lock:
 * lanes may race there, and a lost update does no harm.
 */
#include "internal.h"

#define STEP 3u /* half pages, by which a ghost changes the share */
#define WHOLE U32_MAX /* the budget, as a part of itself */
#define MOST ((u32)((u64)WHOLE * 9 / 10)) /* the tunable's own bound */

/* The learned share; it starts at the tunable's value, anew when that is changed. */
static u32 share_now(struct dcm_ghosts *g, u64 start)
{
	if (unlikely(READ_ONCE(g->start) != start)) {
		WRITE_ONCE(g->share, (u32)(WHOLE * start / 10000));
		WRITE_ONCE(g->start, (u32)start);
	}
	return READ_ONCE(g->share);
}

/**
 * dcm_ghost_share() - the most pages that Proactive should hold
 * @vm: the VM
 *
 * Return: pages; 0 if the tunable proactive_share is 0.
 */
u64 dcm_ghost_share(struct dcm_vm *vm)
{
	u64 start = dcm_tune(vm, DCM_T_proactive_share);

	if (!start)
		return 0;
	return READ_ONCE(vm->budget) * share_now(&vm->ghosts, start) >> 32;
}

/* Was the page re-referenced while it was direct? By its descriptor's word. */
static bool page_again(u32 w)
{
	return w & PD_AGAIN || (w & (PD_TOUCHED | PD_OBSERVED)) == PD_TOUCHED;
}

/**
 * dcm_ghost_make() - note that a page is gone
 * @vm: the VM
 * @pd: the page; its block is locked
 * @w: its word before the eviction cleared flags
 * @now: vm->evicted
 */
void dcm_ghost_make(struct dcm_vm *vm, struct dcm_pd *pd, u32 w, u32 now)
{
	struct dcm_ghosts *g = &vm->ghosts;
	bool again = page_again(w);
	u32 *nr = &g->gone[again];

	pd->next = (now & ~1u) | again;
	WRITE_ONCE(*nr, READ_ONCE(*nr) + 1);
	/* Halve both counts when they add up to the budget: they are about "lately". */
	if (READ_ONCE(g->gone[0]) + READ_ONCE(g->gone[1]) >
	    READ_ONCE(vm->budget)) {
		WRITE_ONCE(g->gone[0], READ_ONCE(g->gone[0]) / 2);
		WRITE_ONCE(g->gone[1], READ_ONCE(g->gone[1]) / 2);
	}
}

/* @nr pages of one kind (re-referenced or not) came back: give that kind more. */
static void share_learn(struct dcm_vm *vm, bool again, u32 nr, u64 budget)
{
	struct dcm_ghosts *g = &vm->ghosts;
	u64 start = dcm_tune(vm, DCM_T_proactive_share);
	u32 mine = READ_ONCE(g->gone[again]),
	    other = READ_ONCE(g->gone[!again]);
	u64 step = ((u64)STEP * nr << 31) / budget;
	u32 share;

	if (!start)
		return;
	share = share_now(g, start);
	step = min(step * max(mine, other) / max(mine, 1u), (u64)MOST);
	if (again)
		share = (u32)min(share + step, (u64)MOST);
	else
		share -= (u32)min(step, (u64)share);
	WRITE_ONCE(g->share, share);
}

/**
 * dcm_ghost_back() - pages that an access needs come back
 * @lane: caller's lane
 * @gfn: the page asked for; its block is locked, NotDirect
 * @nr: pages that are fetched with it
 *
 * Counts, by how many pages were evicted after them (lane->away): from this follows
 * how many fetches a larger budget would save.
 *
 * Return: true: so few were evicted after them that the block should go to
 * Proactive (tunable ghost_share).
 */
bool dcm_ghost_back(struct dcm_lane *lane, u32 gfn, u32 nr)
{
	struct dcm_vm *vm = lane->vm;
	u64 budget = READ_ONCE(vm->budget);
	u32 ghost = pd_of(vm, gfn)->next;
	u32 since = (u32)atomic64_read(&vm->evicted) - (ghost & ~1u);

	dcm_hist_add_n(&lane->away, since, nr);
	if (since < budget)
		share_learn(vm, ghost & 1, nr, budget);
	return since < dcm_share_pages(vm, DCM_T_ghost_share);
}

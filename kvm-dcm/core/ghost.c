// SPDX-License-Identifier: GPL-2.0-only
/*
 * ghost.c - what a page's descriptor still knows when the page is gone
 *
 * A NotDirect page is in no queue, so its descriptor's next holds the time at
 * which it was evicted, in pages evicted before it, and in the lowest bit
 * whether it had been re-referenced while it was here. Such a ghost list takes
 * no memory. The paper has none (dcm-tc18); ARC, 2Q and S3-FIFO do.
 *
 * A block that comes back soon was evicted too early: it goes to Proactive as
 * if re-referenced in Inactive. And it tells which of the two kinds of pages
 * has too little of the budget, as ARC's ghosts do: Proactive, which has the
 * re-referenced ones, gets more when one of these comes back within as many
 * evictions as the budget has pages, and less when one comes back that was
 * used once. A kind of which fewer are evicted counts for more.
 *
 * Differs from ARC: a step is a page and a half, since fewer hits are seen than
 * there are; of ten programs' traces one of two pages was worse on most. And
 * Active keeps its eighth of the budget (evict.c).
 *
 * Locking: ghosts are guarded by their block's lock. What was learned has no
 * lock: lanes may race there, and a lost update does no harm.
 */
#include "internal.h"

#define STEP 3u /* half pages, by which a ghost changes the share */
#define WHOLE U32_MAX /* the budget, as a part of itself */
#define MOST ((u32)((u64)WHOLE * 9 / 10)) /* the tunable's own bound */

/* The share begins where the tunable has it, and again when that changes. */
static u32 share_now(struct dcm_ghosts *g, u64 start)
{
	if (unlikely(READ_ONCE(g->start) != start)) {
		WRITE_ONCE(g->share, (u32)(WHOLE * start / 10000));
		WRITE_ONCE(g->start, (u32)start);
	}
	return READ_ONCE(g->share);
}

/**
 * dcm_ghost_share() - the most that Proactive is to have
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

/* Was the page re-referenced while it was here? */
static bool page_again(u32 w)
{
	return w & PD_AGAIN || (w & (PD_TOUCHED | PD_OBSERVED)) == PD_TOUCHED;
}

/**
 * dcm_ghost_make() - note that a page is gone
 * @vm: the VM
 * @pd: the page; its block is locked
 * @w: its word, as it was while it was here
 * @now: vm->evicted
 */
void dcm_ghost_make(struct dcm_vm *vm, struct dcm_pd *pd, u32 w, u32 now)
{
	struct dcm_ghosts *g = &vm->ghosts;
	bool again = page_again(w);
	u32 *nr = &g->gone[again];

	pd->next = (now & ~1u) | again;
	WRITE_ONCE(*nr, READ_ONCE(*nr) + 1);
	/* Of what was counted before, half is forgotten once a budget. */
	if (READ_ONCE(g->gone[0]) + READ_ONCE(g->gone[1]) >
	    READ_ONCE(vm->budget)) {
		WRITE_ONCE(g->gone[0], READ_ONCE(g->gone[0]) / 2);
		WRITE_ONCE(g->gone[1], READ_ONCE(g->gone[1]) / 2);
	}
}

/* @nr pages of one kind were evicted too early: it gets more of the budget. */
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
 * How many pages were evicted since they were is counted: it tells what a larger
 * budget would save.
 *
 * Return: were they evicted so recently that with a little more memory they
 * would still be here?
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

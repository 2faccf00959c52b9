// SPDX-License-Identifier: GPL-2.0-only
/*
 * reuse.c - how many fetches any other budget would cost, by a sample of pages
 *
 * A few pages, the *sample*, are watched so that each touch of them is noticed,
 * direct or not. The *distance* of a touch is the number of other pages that were
 * touched since the last touch of the same page. Under LRU the page would still be
 * direct if the budget were larger than that. So a histogram of distances says how
 * often pages would have to be fetched with any budget, smaller ones too (Mattson,
 * 1970), and a sample gives it nearly as well as all pages (SHARDS, FAST'15). The
 * paper (dcm-tc18) has nothing of the kind; it leaves the budget to the administrator.
 *
 *	now                                                  longest ago
 *	[ touched | touched | . . . | watched | watched | . . . ]
 *	 <-- an eighth of the budget -->          each waits for a fault
 *	     (up to a quarter)
 *
 * Sample: one page of each 64 KiB whose hash is below a bound. So no block has two
 * sampled pages, and one hash tells whether a block has any. (SHARDS hashes pages, but
 * neighbours would mostly tell the same.) The sample has room for %DCM_WATCHED_MAX
 * pages: when it is full the bound is halved, and pages whose hash is above it are
 * dropped; when it has few the bound is doubled. A sampled page stands for as many
 * pages as the rate of the sample said at its last touch.
 *
 * Seeing touches: a touch of a page that is not direct faults, one of a mapped page
 * does not. So a sampled page is hidden (ops->hide: unmapped, but direct) once pages of
 * an eighth of the budget were touched after it; a nearer touch would be a hit with
 * any budget of interest. A sampled page that comes in with its block, but was not
 * asked for, is left unmapped at once. The next touch of a hidden page is a cheap
 * fault, which ops->reveal resolves. Before a page was hidden it may have been touched
 * unseen, which makes the distance of its next touch less (distance_likely()). A page
 * that the pager can't hide (pinned, part of a huge page) is *blind*, and tried again
 * after some seconds.
 *
 * Cost: as many pages may be hidden as the tunable `reuse` says a second, and one for
 * each 512 fetches. When that is not enough, the sample is halved. When it has few pages
 * left, pages are hidden later instead, after up to a quarter of the budget. When that
 * is not enough or too slow, the sample rests: no page is hidden and no touch is
 * counted until two seconds' worth may be hidden. After a rest, the first touch of
 * each page only gives it its place in the order of touches; its next one counts. So a
 * distance that takes longer than from rest to rest is never counted.
 * Pagers without ops->hide have no sample.
 *
 * Locking: one lock, which faults only try; a touch that finds it taken is not
 * counted. No block's lock is taken while it is held, nor is it taken under one.
 */
#include "internal.h"
#include "watched.h"

#define SHIFT_MAX 24u
#define NEAR_UNITS 256 /* of these make a budget */
#define NEAR_MIN 32 /* pages are hidden after 1/8 of the budget, */
#define NEAR_MAX 64 /* or after up to 1/4 */
#define FEW 128u /* with so few pages the sample is not halved */
#define BURST 2 /* unused hides are saved up, to this many seconds' worth */
#define TICK_NS (100ull * 1000 * 1000)
#define TICK_MIN_NS (5ull * 1000 * 1000)
#define WINDOW_NS (1000ull * 1000 * 1000)
#define NSEC 1000000000ull
#define FETCHES_A_HIDE 512
#define BATCH 16u /* as many pages are hidden in a tick at most */
#define VERIFY_NS (6ull * 1000 * 1000 * 1000)
#define VERIFY_IDLE_NS (60ull * 1000 * 1000 * 1000)
#define LIKELY 4 /* first guess: the guest uses 4 times the budget */
#define CALM_WINDOWS 4u /* without a halving, before the bound is doubled */

/**
 * struct dcm_reuse - a VM's sample
 * @lock: guards all but @hides and @tokens
 * @shift: rate: one page of 2^@shift * 64 KiB
 * @near: pages are hidden after this share of the budget, in 1/%NEAR_UNITS
 * @watched: the pages of the sample
 * @passed: touches since the last tick, scaled by the rate
 * @unknown: touches of pages that have content, but whose last touch is not known
 * @distance: touches by distance in pages; scaled by the rate
 * @hides: pages hidden since the last tick
 * @tokens: how many more pages may be hidden now
 * @earned: a part of one more, in 1/%NSEC
 * @used: pages hidden in this window (of a second)
 * @resting: the sample rests until @tokens are saved up
 * @rested_ns: for how long it has rested in all, until the last tick
 * @calm: windows since the rate was halved
 * @window_ns: when the window began
 * @missing: fetches counted until the last tick
 * @tick_ns: time of the last tick
 * @next_ns: time of the next tick
 * @verified_ns: when all pages were last tried again
 * @stale: touches were seen since
 */
struct dcm_reuse {
	spinlock_t lock;
	u32 shift;
	u32 near;
	struct dcm_watched watched;
	u64 passed;
	u64 unknown;
	struct dcm_hist distance;
	atomic64_t hides;
	atomic64_t tokens;
	u64 earned;
	u64 used;
	bool resting;
	u64 rested_ns;
	u32 calm;
	u64 window_ns;
	u64 missing;
	u64 tick_ns;
	u64 next_ns;
	u64 verified_ns;
	bool stale;
};

/* ---- rate ---- */

static u32 pages_of(u32 shift)
{
	return (u32)DCM_BLOCK_MAX << shift;
}

static void rate_set(struct dcm_vm *vm, u32 shift)
{
	vm->reuse->shift = shift;
	WRITE_ONCE(vm->reuse_below, 1ull << (32 - shift));
}

/* Halve the rate: about half of the sample's pages are dropped. */
static void rate_halve(struct dcm_vm *vm)
{
	struct dcm_reuse *r = vm->reuse;
	u32 slot;

	if (r->shift == SHIFT_MAX)
		return;
	rate_set(vm, r->shift + 1);
	r->calm = 0;
	for (slot = 0; slot < r->watched.now; slot++) {
		struct dcm_watched_page *p = dcm_watched_at(&r->watched, slot);

		if (!p)
			continue;
		if (dcm_reuse_page(vm, p->gfn) != p->gfn)
			dcm_watched_drop(&r->watched, p);
		else
			p->stands_for = max(p->stands_for, pages_of(r->shift));
	}
	dcm_watched_pack(&r->watched);
}

static void page_add(struct dcm_vm *vm, u32 gfn)
{
	struct dcm_reuse *r = vm->reuse;

	while (r->watched.nr == DCM_WATCHED_MAX && r->shift < SHIFT_MAX)
		rate_halve(vm);
	if (r->watched.nr < DCM_WATCHED_MAX && dcm_reuse_page(vm, gfn) == gfn)
		dcm_watched_add(&r->watched, gfn, pages_of(r->shift));
}

/* ---- touches ---- */

/*
 * Estimate a touch's distance. Since the last touch of the page that was seen, @pages
 * others were touched; it was not hidden until @near of them were, so a touch in that
 * time went unseen. If its touches come at random, the rest, @pages - @near, tells how
 * often: a page that is touched soon after it was hidden was likely touched before,
 * too, and then the distance is less than @pages. 1 - e^-x is taken as
 * x / (1 + x/2 + x^2/12).
 */
static u64 distance_likely(u64 pages, u64 near)
{
	u64 rest = pages - min(near, pages), x;

	if (!near)
		return pages;
	x = min(256 * near / max(rest, (u64)1), (u64)3 * 256);
	return rest + min(rest, near * 65536 / (65536 + 128 * x + x * x / 12));
}

/**
 * dcm_reuse_touched() - an access to a page of the sample has faulted
 * @lane: caller's lane
 * @gfn: the page
 */
void dcm_reuse_touched(struct dcm_lane *lane, u32 gfn)
{
	struct dcm_vm *vm = lane->vm;
	struct dcm_reuse *r = vm->reuse;
	struct dcm_watched_page *p;
	u32 counts;

	dcm_count(lane, DCM_C_REUSE_TOUCHES, 1);
	if (!spin_trylock(&r->lock)) {
		dcm_count(lane, DCM_C_REUSE_SKIPPED, 1);
		return;
	}
	counts = pages_of(r->shift);
	r->passed += counts;
	p = dcm_watched_find(&r->watched, gfn);
	if (!p) {
		/* a new page has had no touch before, so none is unknown */
		if (pd_word(pd_of(vm, gfn)) & PD_AT)
			WRITE_ONCE(r->unknown, r->unknown + counts);
		page_add(vm, gfn);
	} else {
		u64 after = dcm_watched_after(&r->watched, p->slot);

		if (likely(!p->missed && !READ_ONCE(r->resting)))
			dcm_hist_add_n(&r->distance,
				       distance_likely(after, p->near), counts);
		dcm_watched_touch(&r->watched, p, counts);
	}
	spin_unlock(&r->lock);
}

/**
 * dcm_reuse_mapped() - a page of the sample was mapped though nobody asked for it
 * @lane: caller's lane
 * @gfn: the page
 * @fresh: it was never written; count it as touched, as a page beside it was
 */
void dcm_reuse_mapped(struct dcm_lane *lane, u32 gfn, bool fresh)
{
	struct dcm_reuse *r = lane->vm->reuse;
	struct dcm_watched_page *p;

	if (!spin_trylock(&r->lock)) {
		dcm_count(lane, DCM_C_REUSE_SKIPPED, 1);
		return;
	}
	p = dcm_watched_find(&r->watched, gfn);
	if (p) {
		p->hidden = false;
		p->missed = true;
	} else if (fresh) {
		page_add(lane->vm, gfn);
	}
	spin_unlock(&r->lock);
}

/* A page of the sample was discarded: watch it no more. */
void dcm_reuse_forget(struct dcm_vm *vm, u32 gfn)
{
	struct dcm_reuse *r = vm->reuse;
	struct dcm_watched_page *p;

	spin_lock(&r->lock);
	p = dcm_watched_find(&r->watched, gfn);
	if (p)
		dcm_watched_drop(&r->watched, p);
	spin_unlock(&r->lock);
}

static void hide_count(struct dcm_lane *lane)
{
	atomic64_add(1, &lane->vm->reuse->hides);
	atomic64_sub(1, &lane->vm->reuse->tokens);
	dcm_count(lane, DCM_C_REUSE_HIDDEN, 1);
}

/**
 * dcm_reuse_hide() - may a page of the sample come in hidden?
 * @lane: caller's lane
 * @mask: the page: dcm_reuse_mask()
 *
 * Return: @mask; or 0: no more may be hidden now.
 */
u16 dcm_reuse_hide(struct dcm_lane *lane, u16 mask)
{
	struct dcm_reuse *r = lane->vm->reuse;

	if (READ_ONCE(r->resting))
		return 0;
	if (atomic64_read(&r->tokens) <= 0) {
		WRITE_ONCE(r->resting, true);
		return 0;
	}
	hide_count(lane);
	return mask;
}

/* ---- the tick ---- */

/* Touches after which a page is hidden. */
static u64 near_pages(const struct dcm_vm *vm)
{
	return READ_ONCE(vm->budget) * vm->reuse->near / NEAR_UNITS;
}

/*
 * Hide a page, so that the next access to it is a fault. 0; 1: it is not mapped, so
 * that is so already; or a negative errno. Whether it was touched while it was mapped
 * is not known: it counts as touched.
 */
static int page_hide(struct dcm_lane *lane, u32 gfn)
{
	struct dcm_vm *vm = lane->vm;
	unsigned int order;
	struct dcm_pd *pd;
	u32 head, w;
	int r;

	if (!dcm_chunk_there(vm, gfn))
		return 1;
	head = dcm_block_lock(vm, gfn, &order);
	pd = pd_of(vm, head);
	w = pd_word(pd);
	if (w & PD_BUSY) {
		pd_unlock(pd);
		return -EBUSY;
	}
	if (pd_state(w) != DCM_ACTIVE && pd_state(w) != DCM_PROACTIVE) {
		pd_unlock(pd);
		return 1;
	}
	pd_set(pd, PD_BUSY);
	pd_unlock(pd);
	r = vm->ops->hide(lane, gfn, pd_word(pd_of(vm, gfn)) & PD_DIRTY);
	if (!r)
		pd_set(pd_of(vm, gfn), PD_TOUCHED | PD_OBSERVED);
	pd_lock(pd);
	dcm_block_unbusy(lane, head, order);
	return r;
}

/*
 * Take up to @most pages that are due to be hidden: near_pages() were touched after
 * them. They count as hidden from here on.
 */
static u32 batch_take(struct dcm_vm *vm, u32 *gfn, u32 most)
{
	struct dcm_reuse *r = vm->reuse;
	u32 slot, n = 0;

	slot = dcm_watched_slot(&r->watched, near_pages(vm));
	while (slot-- && n < most) {
		struct dcm_watched_page *p = dcm_watched_at(&r->watched, slot);

		if (!p || p->hidden)
			continue;
		p->hidden = true;
		p->blind = false;
		if (!p->near)
			p->near = (u32)min(dcm_watched_after(&r->watched, slot),
					   (u64)U32_MAX);
		gfn[n++] = p->gfn;
	}
	return n;
}

/* The same, as far as @tokens allow. */
static u32 batch_allowed(struct dcm_vm *vm, u32 *gfn)
{
	struct dcm_reuse *r = vm->reuse;
	s64 left = atomic64_read(&r->tokens);
	u32 n;

	if (left > 0)
		return batch_take(vm, gfn, (u32)min(left, (s64)BATCH));
	n = batch_take(vm, gfn, 1);
	if (n) {
		/* pages are due, but none may be hidden: rest */
		dcm_watched_find(&r->watched, gfn[0])->hidden = false;
		WRITE_ONCE(r->resting, true);
	}
	return 0;
}

/* A page could not be hidden: it is tried again when all are (verify()). */
static void batch_failed(struct dcm_reuse *r, u32 gfn)
{
	struct dcm_watched_page *p;

	spin_lock(&r->lock);
	p = dcm_watched_find(&r->watched, gfn);
	if (p) {
		p->missed = true;
		p->blind = true;
	}
	spin_unlock(&r->lock);
}

static void batch_hide(struct dcm_lane *lane, const u32 *gfn, u32 n)
{
	u32 i;

	for (i = 0; i < n; i++) {
		int err = page_hide(lane, gfn[i]);

		if (!err)
			hide_count(lane);
		else if (err < 0)
			batch_failed(lane->vm->reuse, gfn[i]);
	}
}

/*
 * The sample has rested: pages are hidden again. Touches during the rest went unseen,
 * so the next touch of each page is not counted (@missed).
 */
static void rest_end(struct dcm_reuse *r)
{
	u32 slot;

	WRITE_ONCE(r->resting, false);
	for (slot = 0; slot < r->watched.now; slot++) {
		struct dcm_watched_page *p = dcm_watched_at(&r->watched, slot);

		if (!p)
			continue;
		p->hidden = false;
		p->missed = true;
	}
}

static u64 fetches_count(const struct dcm_vm *vm)
{
	u64 n = 0;
	u32 i;

	for (i = 0; i < vm->nr_lanes; i++)
		n += READ_ONCE(vm->lane[i].count[DCM_C_FAULT_MISSING]);
	return n;
}

/*
 * Allow more pages to be hidden: @most a second, and one for 512 fetches. If they are
 * used up faster than that, halve the sample; if it has few pages, hide them later. Once
 * a second's worth is saved up, hide them sooner again.
 */
static void tokens_add(struct dcm_vm *vm, u64 most, u64 took, u64 missing)
{
	struct dcm_reuse *r = vm->reuse;
	s64 hides = atomic64_xchg(&r->hides, 0), add, have;

	/* a tick may be too short for a whole one */
	r->earned +=
		most * took + (missing - r->missing) * (NSEC / FETCHES_A_HIDE);
	add = (s64)(r->earned / NSEC);
	r->earned %= NSEC;
	r->missing = missing;
	r->used += (u64)hides;
	have = atomic64_add_return(add, &r->tokens);
	if (have >= (s64)most) {
		r->near = max(r->near - r->near / 16, (u32)NEAR_MIN);
	} else if (hides > add && r->watched.nr <= FEW) {
		r->near = min(r->near + r->near / 8, (u32)NEAR_MAX);
	} else if (have <= (s64)most / 2 && hides > add) {
		rate_halve(vm);
		have = atomic64_add_return((s64)most / 4, &r->tokens);
	}
	if (have >= (s64)most * BURST) {
		atomic64_sub(have - (s64)most * BURST, &r->tokens);
		if (r->resting)
			rest_end(r);
	}
}

/* A second is over. If few pages were hidden in it, double the sample's rate. */
static void window_end(struct dcm_vm *vm, u64 now, u64 most)
{
	struct dcm_reuse *r = vm->reuse;

	r->calm++;
	if (r->calm > CALM_WINDOWS && r->shift &&
	    r->watched.nr < DCM_WATCHED_MAX / 4 && r->used < most / 8 * 3)
		rate_set(vm, r->shift - 1);
	r->used = 0;
	r->window_ns = now;
}

/*
 * How long until the next tick: about as long as it takes to touch half of near_pages().
 * While no touch is seen, twice as long each time, up to a second. Under the lock.
 */
static u64 tick_after(const struct dcm_vm *vm, u64 took)
{
	u64 near = near_pages(vm) / 2;
	u64 passed = vm->reuse->passed, ns;

	if (!passed)
		return max(min(2 * took, WINDOW_NS), TICK_MIN_NS);
	ns = took / passed * max(near, (u64)1);
	return max(min(ns, TICK_NS), TICK_MIN_NS);
}

/*
 * Try to hide all pages again: some may be marked as hidden though a touch has found the
 * lock taken, and some were blind. If no page was touched, do so seldom, as an idle VM
 * is to stay asleep.
 */
static void verify(struct dcm_reuse *r, u64 now)
{
	u32 i;

	r->stale |= r->passed > 0;
	if (now - r->verified_ns < (r->stale ? VERIFY_NS : VERIFY_IDLE_NS))
		return;
	for (i = 0; i < DCM_WATCHED_MAX; i++)
		r->watched.page[i].hidden = false;
	r->verified_ns = now;
	r->stale = false;
}

static unsigned int ms_until(u64 now, u64 then)
{
	return then > now ? (unsigned int)((then - now) / 1000000) + 1 : 1;
}

unsigned int dcm_reuse_tick(struct dcm_lane *lane)
{
	struct dcm_vm *vm = lane->vm;
	struct dcm_reuse *r = vm->reuse;
	u64 most = dcm_tune(vm, DCM_T_reuse), now, missing, took, next;
	u32 gfn[BATCH], n = 0;

	if (!r)
		return TICK_NS / 1000000;
	now = vm->ops->now_ns();
	next = READ_ONCE(r->next_ns);
	if (now < next)
		return ms_until(now, next);
	spin_lock(&r->lock);
	next = r->next_ns;
	if (now < next) {
		/* another lane was faster */
		spin_unlock(&r->lock);
		return ms_until(now, next);
	}
	missing = fetches_count(vm);
	took = min(now - r->tick_ns, WINDOW_NS);
	if (READ_ONCE(r->resting))
		r->rested_ns += now - r->tick_ns;
	r->tick_ns = now;
	if (!most && READ_ONCE(vm->reuse_below)) {
		WRITE_ONCE(vm->reuse_below, 0);
		dcm_watched_clear(&r->watched);
	} else if (most && !READ_ONCE(vm->reuse_below)) {
		rate_set(vm, r->shift);
	}
	if (most)
		tokens_add(vm, most, took, missing);
	if (now - r->window_ns >= WINDOW_NS)
		window_end(vm, now, most);
	verify(r, now);
	if (most && !READ_ONCE(r->resting))
		n = batch_allowed(vm, gfn);
	/* after a full batch more pages may be due */
	next = now + (n == BATCH ? TICK_MIN_NS : tick_after(vm, took));
	WRITE_ONCE(r->next_ns, next);
	r->passed = 0;
	spin_unlock(&r->lock);
	batch_hide(lane, gfn, n);
	return ms_until(now, next);
}

/* ---- life ---- */

/* The @shift with which @pages pages of the guest fill half of the sample's room. */
static u32 shift_for(u64 pages)
{
	u32 shift = 0;

	while ((pages >> DCM_ORDER_MAX >> shift) > DCM_WATCHED_MAX / 2)
		shift++;
	return shift;
}

/* Without ops->hide there is no sample: touches of mapped pages can't be seen. */
bool dcm_reuse_init(struct dcm_vm *vm, u64 budget)
{
	struct dcm_reuse *r;

	if (!vm->ops->hide)
		return true;
	r = vzalloc(sizeof(*r));
	vm->reuse = r;
	if (!r)
		return false;
	spin_lock_init(&r->lock);
	r->near = NEAR_MIN;
	dcm_watched_clear(&r->watched);
	atomic64_set(&r->tokens, (s64)dcm_tune(vm, DCM_T_reuse));
	rate_set(vm, shift_for(min((u64)vm->nr_pages, LIKELY * budget)));
	return true;
}

void dcm_reuse_exit(struct dcm_vm *vm)
{
	vfree(vm->reuse);
}

u64 dcm_reuse_bytes(const struct dcm_ops *ops)
{
	return ops->hide ? sizeof(struct dcm_reuse) : 0;
}

void dcm_vm_reuse(const struct dcm_vm *vm, struct dcm_reuse_stats *st)
{
	struct dcm_reuse *r = vm->reuse;
	u32 i;

	memset(st, 0, sizeof(*st));
	if (!r)
		return;
	spin_lock(&r->lock);
	st->distance = r->distance;
	st->unknown = r->unknown;
	st->pages = r->watched.pages;
	st->watched = r->watched.nr;
	st->rested_ms = r->rested_ns / 1000000;
	for (i = 0; i < r->watched.now; i++) {
		const struct dcm_watched_page *p =
			dcm_watched_at(&r->watched, i);

		if (p && p->blind)
			st->blind += p->stands_for;
	}
	spin_unlock(&r->lock);
}

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * fake_guest.c - accesses of the guest, and calls of the fake backend into the core
 */
#include "fake_backend.h"
#include "fake_priv.h"

#include <stdio.h>

#define PATIENCE 200000 /* rounds until something counts as stuck */

static bool page_hold(struct fake_backend *fb, u32 gfn)
{
	return !__atomic_exchange_n(&fb->wlock[gfn], 1, __ATOMIC_ACQUIRE);
}

static void page_let(struct fake_backend *fb, u32 gfn)
{
	__atomic_store_n(&fb->wlock[gfn], 0, __ATOMIC_RELEASE);
}

static u64 next_version(struct fake_backend *fb, u32 gfn, bool zero)
{
	return (u64)gfn << FH_GFN_SHIFT | (u64)++fb->seq[gfn] << FH_SEQ_SHIFT |
	       zero;
}

bool fb_present(const struct fake_backend *fb, u32 gfn)
{
	return READ_ONCE(fb->page[gfn]) & FH_PRESENT;
}

bool fb_is_lost(const struct fake_backend *fb, u32 gfn)
{
	return READ_ONCE(fb->truth[gfn]) == FH_LOST;
}

int fb_read(struct fake_backend *fb, u32 gfn, u64 *content)
{
	u64 w = __atomic_load_n(&fb->page[gfn], __ATOMIC_ACQUIRE);

	do {
		if (!(w & FH_PRESENT) || (w & FH_HIDDEN))
			return 0;
	} while (!(w & FH_ACCESSED) &&
		 !__atomic_compare_exchange_n(&fb->page[gfn], &w,
					      w | FH_ACCESSED, false,
					      __ATOMIC_ACQ_REL,
					      __ATOMIC_ACQUIRE));
	*content = w & FH_CONTENT;
	return FH_OK;
}

int fb_read_checked(struct fake_backend *fb, u32 gfn)
{
	u64 t = __atomic_load_n(&fb->truth[gfn], __ATOMIC_ACQUIRE);
	u64 m = __atomic_load_n(&fb->maybe[gfn], __ATOMIC_ACQUIRE);
	u64 c;
	int r = fb_read(fb, gfn, &c);

	if (r != FH_OK || t != m ||
	    t != __atomic_load_n(&fb->truth[gfn], __ATOMIC_ACQUIRE) ||
	    t != __atomic_load_n(&fb->maybe[gfn], __ATOMIC_ACQUIRE))
		return r;
	if (t == FH_LOST || c != (t & 1 ? 0 : t))
		fb_violation(fb, "the guest reads %#llx from %s",
			     (unsigned long long)c, fb_page_text(fb, gfn));
	return r;
}

int fb_write(struct fake_backend *fb, u32 gfn, bool zero)
{
	u64 w, v;
	int r;

	if (!page_hold(fb, gfn))
		return FH_HELD;
	v = next_version(fb, gfn, zero);
	w = READ_ONCE(fb->page[gfn]);
	__atomic_store_n(&fb->maybe[gfn], v, __ATOMIC_RELEASE);
	for (;;) {
		u64 n = (w & ~FH_CONTENT) | FH_DIRTY | FH_ACCESSED |
			(zero ? 0 : v);

		r = FH_OK;
		if (!(w & FH_PRESENT) || (w & FH_HIDDEN))
			r = DCM_FF_WRITE;
		else if (!(w & FH_WRITABLE))
			r = DCM_FF_WRITE | DCM_FF_WP;
		if (r != FH_OK)
			break;
		if (__atomic_compare_exchange_n(&fb->page[gfn], &w, n, false,
						__ATOMIC_ACQ_REL,
						__ATOMIC_ACQUIRE))
			break;
	}
	if (r == FH_OK && fb_is_lost(fb, gfn))
		fb_violation(fb, "the guest writes to lost %s",
			     fb_page_text(fb, gfn));
	if (r == FH_OK)
		__atomic_store_n(&fb->truth[gfn], v, __ATOMIC_RELEASE);
	else
		__atomic_store_n(&fb->maybe[gfn], READ_ONCE(fb->truth[gfn]),
				 __ATOMIC_RELEASE);
	page_let(fb, gfn);
	return r;
}

/* No slab that takes writes has the content @t, written there and answered. */
static void check_nowhere(struct fake_backend *fb, u32 gfn, u64 t)
{
	const struct dcm_extent *e =
		&fb->vm->extent[gfn >> fb->vm->extent_shift];
	u32 page = gfn & (fb->vm->extent_pages - 1), i;

	for (i = 0; i < DCM_SLOTS; i++) {
		const struct fb_slab *s;

		if (!(e->open >> i & 1))
			continue;
		s = fb_slab_of(fb, e->slot[i].slab);
		if (s->state == FH_SLAB_LIVE && s->sure[page] &&
		    fb->store[s->base + page] == t)
			fb_violation(fb, "called lost, but slab %u has it: %s",
				     (u32)s->ref.id, fb_page_text(fb, gfn));
	}
}

/* The core reports a lost page: check that it is lost. */
void fb_note_lost(struct fake_backend *fb, u32 gfn)
{
	struct dcm_vm *vm = fb->vm;
	u64 t;

	if (!page_hold(fb, gfn))
		return;
	t = READ_ONCE(fb->truth[gfn]);
	if (t == FH_LOST)
		goto out;
	if (!(pd_word(pd_of(vm, gfn)) & PD_LOST)) {
		if (!fb->cfg.threads)
			fb_violation(fb, "told lost, but is not: %s",
				     fb_page_text(fb, gfn));
		goto out;
	}
	if (fb_present(fb, gfn))
		fb_violation(fb, "lost while mapped: %s",
			     fb_page_text(fb, gfn));
	/* unless it was written to a donor as zeroes */
	if ((t & 1) && !fb->cfg.syncs)
		fb_violation(fb, "a page that is zero can't be lost: %s",
			     fb_page_text(fb, gfn));
	if (!fb->cfg.threads)
		check_nowhere(fb, gfn, t);
	__atomic_store_n(&fb->truth[gfn], FH_LOST, __ATOMIC_RELEASE);
	__atomic_store_n(&fb->maybe[gfn], FH_LOST, __ATOMIC_RELEASE);
out:
	page_let(fb, gfn);
}

u32 fb_lost_scan(struct fake_backend *fb, u32 extent)
{
	struct dcm_vm *vm = fb->vm;
	u32 gfn = extent << vm->extent_shift, n = 0;
	u32 end = min(gfn + vm->extent_pages, vm->nr_pages);

	for (; gfn < end; gfn++) {
		if (!(pd_word(pd_of(vm, gfn)) & PD_LOST))
			continue;
		fb_note_lost(fb, gfn);
		n++;
	}
	return n;
}

/* ---- into the core ---- */

static struct dcm_lane *enter(struct fake_backend *fb, u32 lane)
{
	if (fb->lane[lane].in_core)
		fb_violation(fb, "test enters lane %u twice", lane);
	fb->lane[lane].in_core = true;
	return &fb->vm->lane[lane];
}

static void leave(struct fake_backend *fb, u32 lane)
{
	fb->lane[lane].in_core = false;
	if (!fb->cfg.threads)
		fb->relaxed = 0;
}

/* As long as there is anything in use it was zero from the start. */
static void describe(struct fake_backend *fb, u32 gfn)
{
	u32 first = gfn & ~(DCM_PDS_PAGES - 1);

	if (!fb->cfg.sparse)
		fb_violation(fb, "page %u has no descriptor", gfn);
	__atomic_fetch_add(&fb->nr_bare, 1, __ATOMIC_RELAXED);
	/* False: another thread was quicker. */
	if (!dcm_chunk_add(fb->vm, gfn, &fb->descriptors[first]) &&
	    !fb->cfg.threads)
		fb_violation(fb, "page %u has a descriptor: %s", gfn,
			     fb_page_text(fb, gfn));
}

/* Free unused descriptors, while no lane is inside the core. */
static void undescribe(struct fake_backend *fb, u32 first, u32 end)
{
	u32 i;

	for (i = 0; i < fb->cfg.nr_lanes; i++)
		if (fb->lane[i].in_core)
			return;
	for (i = first; i < end; i += DCM_PDS_PAGES) {
		struct dcm_pd *pd = dcm_chunk_remove(fb->vm, i, false);

		if (!pd)
			continue;
		if (pd != &fb->descriptors[i])
			fb_violation(fb, "page %u: not what was given", i);
		memset(pd, 0, DCM_PDS_PAGES * sizeof(*pd));
		fb->nr_undescribed++;
	}
}

enum dcm_fault_result fb_fault(struct fake_backend *fb, u32 lane, u32 gfn,
			       u32 flags)
{
	u32 gen = __atomic_load_n(&fb->wakes[gfn], __ATOMIC_ACQUIRE);
	enum dcm_fault_result r;

	if (fb->cfg.spans)
		flags |= DCM_FF_SPAN;
	do {
		r = dcm_fault(enter(fb, lane), gfn, flags);
		leave(fb, lane);
		if (r == DCM_FAULT_BARE)
			describe(fb, gfn);
	} while (r == DCM_FAULT_BARE);
	if (r == DCM_FAULT_DONE &&
	    gen == __atomic_load_n(&fb->wakes[gfn], __ATOMIC_ACQUIRE))
		fb_violation(fb, "fault DONE and nobody woken: %s",
			     fb_page_text(fb, gfn));
	if (r == DCM_FAULT_LOST && !fb->cfg.threads && !fb->wlock[gfn] &&
	    !fb_is_lost(fb, gfn))
		fb_violation(fb, "LOST without ops->lost(): %s",
			     fb_page_text(fb, gfn));
	return r;
}

unsigned int fb_poll(struct fake_backend *fb, u32 lane)
{
	unsigned int n = dcm_poll(enter(fb, lane));

	leave(fb, lane);
	return n;
}

unsigned int fb_tick(struct fake_backend *fb, u32 lane)
{
	unsigned int ms = dcm_reuse_tick(enter(fb, lane));

	leave(fb, lane);
	return ms;
}

unsigned int fb_balance(struct fake_backend *fb, u32 lane)
{
	unsigned int n = dcm_balance(enter(fb, lane));

	leave(fb, lane);
	return n;
}

void fb_discard(struct fake_backend *fb, u32 lane, u32 gfn, u32 nr)
{
	u32 i, end;

	/* Drop pages that no other lane holds; stop at the first that one does. */
	for (i = gfn; i < gfn + nr && page_hold(fb, i); i++)
		__atomic_store_n(&fb->maybe[i], next_version(fb, i, true),
				 __ATOMIC_RELEASE);
	end = i;
	if (end > gfn) {
		dcm_discard(enter(fb, lane), gfn, end - gfn);
		leave(fb, lane);
		if (fb->cfg.sparse && !fb->cfg.threads)
			undescribe(fb,
				   (gfn + DCM_PDS_PAGES - 1) &
					   ~(DCM_PDS_PAGES - 1),
				   end & ~(DCM_PDS_PAGES - 1));
	}
	for (i = gfn; i < end; i++) {
		__atomic_store_n(&fb->truth[i], READ_ONCE(fb->maybe[i]),
				 __ATOMIC_RELEASE);
		page_let(fb, i);
	}
}

int fb_to_donors(struct fake_backend *fb, u32 lane, u64 *gfn, u64 end,
		 bool keep, u64 ticks)
{
	struct dcm_lane *l = enter(fb, lane);
	enum dcm_sync_how kept = fb->cfg.guesses ? DCM_SYNC_KEEP :
						   DCM_SYNC_EXACT;
	int err = dcm_sync(l, gfn, end, keep ? kept : DCM_SYNC_OUT,
			   fb->vm->ops->now_ns() + ticks);

	leave(fb, lane);
	return err;
}

int fb_to_donor(struct fake_backend *fb, u32 lane, u32 gfn, u32 nr, bool keep,
		u64 ticks)
{
	u64 at = gfn;

	return fb_to_donors(fb, lane, &at, at + nr, keep, ticks);
}

void fb_hint(struct fake_backend *fb, u32 lane, u32 gfn, u32 nr,
	     enum dcm_hint what)
{
	dcm_hint(enter(fb, lane), gfn, nr, what);
	leave(fb, lane);
}

int fb_ahead(struct fake_backend *fb, u32 lane)
{
	struct dcm_lane *l = enter(fb, lane);
	int again = dcm_ahead(l);

	if (l->nr_ahead > DCM_AHEAD_MAX)
		fb_violation(fb, "%u fetches ahead of accesses", l->nr_ahead);
	leave(fb, lane);
	return again;
}

int fb_budget(struct fake_backend *fb, u64 pages)
{
	int err = dcm_set_budget(fb->vm, pages);

	if (!err && pages > fb->limit)
		fb->limit = pages;
	return err;
}

static void turn(struct fake_backend *fb, u32 lane, u32 round)
{
	u32 i, k;

	fb_advance(fb, round < 100 ? 10 : 1000);
	fb_give_slabs(fb, round);
	for (i = 0; i < fb->cfg.nr_lanes; i++) {
		k = (lane + i) % fb->cfg.nr_lanes;
		if (!fb->lane[k].in_core)
			fb_poll(fb, k);
	}
}

int fb_access(struct fake_backend *fb, u32 lane, u32 gfn, bool write, bool zero)
{
	u32 round = 0, gen;

	for (;;) {
		int flags = write ? fb_write(fb, gfn, zero) :
				    fb_read_checked(fb, gfn);
		enum dcm_fault_result r;

		if (flags == FH_OK)
			return 0;
		if (round++ > PATIENCE)
			fb_violation(fb, "access never goes through: %s",
				     fb_page_text(fb, gfn));
		if (flags == FH_HELD)
			continue;
		gen = fb->wakes[gfn];
		r = fb_fault(fb, lane, gfn, (u32)flags);
		switch (r) {
		case DCM_FAULT_DONE:
			/* gone again: others' fetches hold the budget */
			if (round > 100)
				turn(fb, lane, round);
			break;
		case DCM_FAULT_LOST:
			return -EIO;
		case DCM_FAULT_STALL:
			turn(fb, lane, round);
			fb_balance(fb, lane);
			break;
		default:
			while (gen == fb->wakes[gfn]) {
				turn(fb, lane, round);
				if (round++ > PATIENCE)
					fb_violation(fb, "never woken: %s",
						     fb_page_text(fb, gfn));
			}
		}
	}
}

void fb_sync(struct fake_backend *fb)
{
	u32 round, i, idle = 0;

	for (round = 0; idle < 3; round++) {
		bool pending = false;
		unsigned int steps = 0;

		turn(fb, 0, round);
		for (i = 0; i < fb->cfg.nr_lanes; i++)
			steps += fb_balance(fb, i);
		for (i = 0; i < fb->cfg.nr_lanes; i++)
			pending |= dcm_pending(&fb->vm->lane[i]) ||
				   dcm_doubtful(&fb->vm->lane[i]);
		idle = pending || steps ? 0 : idle + 1;
		if (round > PATIENCE)
			fb_violation(fb, "never syncs: %s, %u steps",
				     pending ? "I/O pending" : "no I/O", steps);
	}
}

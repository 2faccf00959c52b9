// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * fake_guest.c - what the guest does, and how its home enters the core
 */
#include "fake_home.h"
#include "fake_priv.h"

#include <stdio.h>

#define PATIENCE 200000 /* rounds until something counts as stuck */

static bool page_hold(struct fake_home *fh, u32 gfn)
{
	return !__atomic_exchange_n(&fh->wlock[gfn], 1, __ATOMIC_ACQUIRE);
}

static void page_let(struct fake_home *fh, u32 gfn)
{
	__atomic_store_n(&fh->wlock[gfn], 0, __ATOMIC_RELEASE);
}

static u64 next_version(struct fake_home *fh, u32 gfn, bool zero)
{
	return (u64)gfn << FH_GFN_SHIFT | (u64)++fh->seq[gfn] << FH_SEQ_SHIFT |
	       zero;
}

bool fh_present(const struct fake_home *fh, u32 gfn)
{
	return READ_ONCE(fh->page[gfn]) & FH_PRESENT;
}

bool fh_is_lost(const struct fake_home *fh, u32 gfn)
{
	return READ_ONCE(fh->truth[gfn]) == FH_LOST;
}

int fh_read(struct fake_home *fh, u32 gfn, u64 *content)
{
	u64 w = __atomic_load_n(&fh->page[gfn], __ATOMIC_ACQUIRE);

	do {
		if (!(w & FH_PRESENT) || (w & FH_HIDDEN))
			return 0;
	} while (!(w & FH_ACCESSED) &&
		 !__atomic_compare_exchange_n(&fh->page[gfn], &w,
					      w | FH_ACCESSED, false,
					      __ATOMIC_ACQ_REL,
					      __ATOMIC_ACQUIRE));
	*content = w & FH_CONTENT;
	return FH_OK;
}

int fh_read_checked(struct fake_home *fh, u32 gfn)
{
	u64 t = __atomic_load_n(&fh->truth[gfn], __ATOMIC_ACQUIRE);
	u64 m = __atomic_load_n(&fh->maybe[gfn], __ATOMIC_ACQUIRE);
	u64 c;
	int r = fh_read(fh, gfn, &c);

	if (r != FH_OK || t != m ||
	    t != __atomic_load_n(&fh->truth[gfn], __ATOMIC_ACQUIRE) ||
	    t != __atomic_load_n(&fh->maybe[gfn], __ATOMIC_ACQUIRE))
		return r;
	if (t == FH_LOST || c != (t & 1 ? 0 : t))
		fh_violation(fh, "the guest reads %#llx from %s",
			     (unsigned long long)c, fh_page_text(fh, gfn));
	return r;
}

int fh_write(struct fake_home *fh, u32 gfn, bool zero)
{
	u64 w, v;
	int r;

	if (!page_hold(fh, gfn))
		return FH_HELD;
	v = next_version(fh, gfn, zero);
	w = READ_ONCE(fh->page[gfn]);
	__atomic_store_n(&fh->maybe[gfn], v, __ATOMIC_RELEASE);
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
		if (__atomic_compare_exchange_n(&fh->page[gfn], &w, n, false,
						__ATOMIC_ACQ_REL,
						__ATOMIC_ACQUIRE))
			break;
	}
	if (r == FH_OK && fh_is_lost(fh, gfn))
		fh_violation(fh, "the guest writes to lost %s",
			     fh_page_text(fh, gfn));
	if (r == FH_OK)
		__atomic_store_n(&fh->truth[gfn], v, __ATOMIC_RELEASE);
	else
		__atomic_store_n(&fh->maybe[gfn], READ_ONCE(fh->truth[gfn]),
				 __ATOMIC_RELEASE);
	page_let(fh, gfn);
	return r;
}

/* The core says that a page is lost. Is it? */
void fh_note_lost(struct fake_home *fh, u32 gfn)
{
	struct dcm_vm *vm = fh->vm;
	struct dcm_extent *e = &vm->extent[gfn >> vm->extent_shift];
	struct dcm_slab_ref *ref;
	u64 t;

	if (!page_hold(fh, gfn))
		return;
	t = READ_ONCE(fh->truth[gfn]);
	if (t == FH_LOST)
		goto out;
	if (!(pd_word(pd_of(vm, gfn)) & PD_LOST)) {
		if (!fh->cfg.threads)
			fh_violation(fh, "told lost, but is not: %s",
				     fh_page_text(fh, gfn));
		goto out;
	}
	if (fh_present(fh, gfn))
		fh_violation(fh, "lost while mapped: %s",
			     fh_page_text(fh, gfn));
	/* unless it was written to a donor as it was */
	if ((t & 1) && !fh->cfg.settles)
		fh_violation(fh, "a page that is zero can't be lost: %s",
			     fh_page_text(fh, gfn));
	/* The other slab of a move may have a copy that nobody counts on. */
	ref = READ_ONCE(e->slab[!!(pd_word(pd_of(vm, gfn)) & PD_HOME)]);
	if (ref && !fh->cfg.threads) {
		struct fh_slab *s = fh_slab_of(fh, ref);

		if (s->state == FH_SLAB_LIVE &&
		    fh->store[s->base + (gfn & (vm->extent_pages - 1))] == t)
			fh_violation(fh, "called lost, but slab %u has it: %s",
				     (u32)ref->id, fh_page_text(fh, gfn));
	}
	__atomic_store_n(&fh->truth[gfn], FH_LOST, __ATOMIC_RELEASE);
	__atomic_store_n(&fh->maybe[gfn], FH_LOST, __ATOMIC_RELEASE);
out:
	page_let(fh, gfn);
}

u32 fh_lost_scan(struct fake_home *fh, u32 extent)
{
	struct dcm_vm *vm = fh->vm;
	u32 gfn = extent << vm->extent_shift, n = 0;
	u32 end = min(gfn + vm->extent_pages, vm->nr_pages);

	for (; gfn < end; gfn++) {
		if (!(pd_word(pd_of(vm, gfn)) & PD_LOST))
			continue;
		fh_note_lost(fh, gfn);
		n++;
	}
	return n;
}

/* ---- into the core ---- */

static struct dcm_lane *enter(struct fake_home *fh, u32 lane)
{
	if (fh->lane[lane].in_core)
		fh_violation(fh, "test enters lane %u twice", lane);
	fh->lane[lane].in_core = true;
	return &fh->vm->lane[lane];
}

static void leave(struct fake_home *fh, u32 lane)
{
	fh->lane[lane].in_core = false;
	if (!fh->cfg.threads)
		fh->relaxed = 0;
}

/* As long as there is anything in use it was zero from the start. */
static void describe(struct fake_home *fh, u32 gfn)
{
	u32 first = gfn & ~(DCM_PDS_PAGES - 1);

	if (!fh->cfg.sparse)
		fh_violation(fh, "page %u has no descriptor", gfn);
	__atomic_fetch_add(&fh->nr_bare, 1, __ATOMIC_RELAXED);
	/* False: another thread was quicker. */
	if (!dcm_chunk_add(fh->vm, gfn, &fh->descriptors[first]) &&
	    !fh->cfg.threads)
		fh_violation(fh, "page %u has a descriptor: %s", gfn,
			     fh_page_text(fh, gfn));
}

/* Take back what nobody uses; while no lane is inside the core. */
static void undescribe(struct fake_home *fh, u32 first, u32 end)
{
	u32 i;

	for (i = 0; i < fh->cfg.nr_lanes; i++)
		if (fh->lane[i].in_core)
			return;
	for (i = first; i < end; i += DCM_PDS_PAGES) {
		struct dcm_pd *pd = dcm_chunk_remove(fh->vm, i, false);

		if (!pd)
			continue;
		if (pd != &fh->descriptors[i])
			fh_violation(fh, "page %u: not what was given", i);
		memset(pd, 0, DCM_PDS_PAGES * sizeof(*pd));
		fh->nr_undescribed++;
	}
}

enum dcm_fault_result fh_fault(struct fake_home *fh, u32 lane, u32 gfn,
			       u32 flags)
{
	u32 gen = __atomic_load_n(&fh->wakes[gfn], __ATOMIC_ACQUIRE);
	enum dcm_fault_result r;

	do {
		r = dcm_fault(enter(fh, lane), gfn, flags);
		leave(fh, lane);
		if (r == DCM_FAULT_BARE)
			describe(fh, gfn);
	} while (r == DCM_FAULT_BARE);
	if (r == DCM_FAULT_DONE &&
	    gen == __atomic_load_n(&fh->wakes[gfn], __ATOMIC_ACQUIRE))
		fh_violation(fh, "fault DONE and nobody woken: %s",
			     fh_page_text(fh, gfn));
	if (r == DCM_FAULT_LOST && !fh->cfg.threads && !fh->wlock[gfn] &&
	    !fh_is_lost(fh, gfn))
		fh_violation(fh, "LOST without ops->lost(): %s",
			     fh_page_text(fh, gfn));
	return r;
}

unsigned int fh_poll(struct fake_home *fh, u32 lane)
{
	unsigned int n = dcm_poll(enter(fh, lane));

	leave(fh, lane);
	return n;
}

unsigned int fh_balance(struct fake_home *fh, u32 lane)
{
	unsigned int n = dcm_balance(enter(fh, lane));

	leave(fh, lane);
	return n;
}

void fh_discard(struct fake_home *fh, u32 lane, u32 gfn, u32 nr)
{
	u32 i, end;

	/* Give up pages nobody else holds; stop at the first that is. */
	for (i = gfn; i < gfn + nr && page_hold(fh, i); i++)
		__atomic_store_n(&fh->maybe[i], next_version(fh, i, true),
				 __ATOMIC_RELEASE);
	end = i;
	if (end > gfn) {
		dcm_discard(enter(fh, lane), gfn, end - gfn);
		leave(fh, lane);
		if (fh->cfg.sparse && !fh->cfg.threads)
			undescribe(fh,
				   (gfn + DCM_PDS_PAGES - 1) &
					   ~(DCM_PDS_PAGES - 1),
				   end & ~(DCM_PDS_PAGES - 1));
	}
	for (i = gfn; i < end; i++) {
		__atomic_store_n(&fh->truth[i], READ_ONCE(fh->maybe[i]),
				 __ATOMIC_RELEASE);
		page_let(fh, i);
	}
}

int fh_to_donors(struct fake_home *fh, u32 lane, u64 *gfn, u64 end, bool keep,
		 u64 ticks)
{
	struct dcm_lane *l = enter(fh, lane);
	int err = dcm_settle(l, gfn, end, keep, fh->vm->ops->now_ns() + ticks);

	leave(fh, lane);
	return err;
}

int fh_to_donor(struct fake_home *fh, u32 lane, u32 gfn, u32 nr, bool keep,
		u64 ticks)
{
	u64 at = gfn;

	return fh_to_donors(fh, lane, &at, at + nr, keep, ticks);
}

void fh_hint(struct fake_home *fh, u32 lane, u32 gfn, u32 nr,
	     enum dcm_hint what)
{
	dcm_hint(enter(fh, lane), gfn, nr, what);
	leave(fh, lane);
}

int fh_budget(struct fake_home *fh, u64 pages)
{
	int err = dcm_set_budget(fh->vm, pages);

	if (!err && pages > fh->limit)
		fh->limit = pages;
	return err;
}

static void turn(struct fake_home *fh, u32 lane, u32 round)
{
	u32 i, k;

	fh_advance(fh, round < 100 ? 10 : 1000);
	fh_give_slabs(fh, round);
	for (i = 0; i < fh->cfg.nr_lanes; i++) {
		k = (lane + i) % fh->cfg.nr_lanes;
		if (!fh->lane[k].in_core)
			fh_poll(fh, k);
	}
}

int fh_access(struct fake_home *fh, u32 lane, u32 gfn, bool write, bool zero)
{
	u32 round = 0, gen;

	for (;;) {
		int flags = write ? fh_write(fh, gfn, zero) :
				    fh_read_checked(fh, gfn);
		enum dcm_fault_result r;

		if (flags == FH_OK)
			return 0;
		if (round++ > PATIENCE)
			fh_violation(fh, "access never goes through: %s",
				     fh_page_text(fh, gfn));
		if (flags == FH_HELD)
			continue;
		gen = fh->wakes[gfn];
		r = fh_fault(fh, lane, gfn, (u32)flags);
		switch (r) {
		case DCM_FAULT_DONE:
			/* gone again: others' fetches hold the budget */
			if (round > 100)
				turn(fh, lane, round);
			break;
		case DCM_FAULT_LOST:
			return -EIO;
		case DCM_FAULT_STALL:
			turn(fh, lane, round);
			fh_balance(fh, lane);
			break;
		default:
			while (gen == fh->wakes[gfn]) {
				turn(fh, lane, round);
				if (round++ > PATIENCE)
					fh_violation(fh, "never woken: %s",
						     fh_page_text(fh, gfn));
			}
		}
	}
}

void fh_settle(struct fake_home *fh)
{
	u32 round, i, idle = 0;

	for (round = 0; idle < 3; round++) {
		bool pending = false;
		unsigned int steps = 0;

		turn(fh, 0, round);
		for (i = 0; i < fh->cfg.nr_lanes; i++)
			steps += fh_balance(fh, i);
		for (i = 0; i < fh->cfg.nr_lanes; i++)
			pending |= dcm_pending(&fh->vm->lane[i]) ||
				   dcm_doubtful(&fh->vm->lane[i]);
		idle = pending || steps ? 0 : idle + 1;
		if (round > PATIENCE)
			fh_violation(fh, "never settles: %s, %u steps",
				     pending ? "I/O pending" : "no I/O", steps);
	}
}

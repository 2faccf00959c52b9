// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * model_worker.c - GC workers of core_model_test: they change pages of an extent
 *
 * As the host side of virtio-gc does, it freezes a range, syncs it, lets a worker
 * change some pages of the primary, and has them spread, or reverted: because the
 * worker failed, the spread takes too long, or the primary is another one. Donors
 * die and fall silent meanwhile, and other extents are moved and filled on the same
 * lane.
 *
 * Locking: none, there is one thread.
 */
#include "model.h"

#include "fake_priv.h"

static struct dcm_slab_ref *primary_of(struct model_world *w, u32 gfn)
{
	struct dcm_vm *vm = w->fb->vm;
	struct dcm_extent *e = &vm->extent[gfn >> vm->extent_shift];
	int slot = dcm_slot_primary(e);

	return slot < 0 ? NULL : e->slot[slot].slab;
}

/* The primary has all of the range, and none of it is here. */
static void check_synced(struct model_world *w, u32 gfn, u32 nr)
{
	struct dcm_vm *vm = w->fb->vm;
	u32 bits = dcm_primary_bits(vm, gfn);

	for (; nr; nr--, gfn++) {
		unsigned int order;
		u32 head = dcm_block_lock(vm, gfn, &order);
		enum dcm_state s = pd_state(pd_word(pd_of(vm, head)));

		pd_unlock(pd_of(vm, head));
		if (s != DCM_NOTDIRECT || !(pd_word(pd_of(vm, gfn)) & bits))
			fb_violation(w->fb,
				     "synced, but the primary lacks it: %s",
				     fb_page_text(w->fb, gfn));
	}
}

bool model_worker_on(const struct model_world *w, u32 extent)
{
	return w->gc.on && w->gc.gfn >> w->fb->vm->extent_shift == extent;
}

bool model_worker_holds(const struct model_world *w, u32 gfn)
{
	return w->gc.on && gfn >= w->gc.gfn && gfn < w->gc.gfn + w->gc.nr;
}

void model_worker_begin(struct model_world *w)
{
	struct fake_backend *fb = w->fb;
	u32 pages = fb->cfg.nr_pages & ~(DCM_BLOCK_MAX - 1);
	u32 nr = DCM_BLOCK_MAX << model_random(w, 3), i;
	struct model_gc *gc = &w->gc;
	struct dcm_slab_ref *ref;
	u32 gfn, extent;

	nr = min(nr, fb->cfg.extent_pages);
	gfn = (u32)model_random(w, pages) & ~(nr - 1);
	extent = gfn >> fb->vm->extent_shift;
	/* donors collect no garbage of sealed memory */
	if (fb->cfg.seal || gc->on || gfn + nr > pages ||
	    (w->mv.on && w->mv.extent == extent))
		return;
	ref = primary_of(w, gfn);
	if (!ref || !fb_freeze(fb, gfn, nr))
		return;
	*gc = (struct model_gc){ .on = true, .gfn = gfn, .nr = nr };
	if (fb_to_donor(fb, (u32)model_random(w, w->workers), gfn, nr, false,
			2000 + model_random(w, 20000)) ||
	    primary_of(w, gfn) != ref) {
		gc->on = false;
		fb_thaw(fb, gfn, nr);
		fb_lost_scan(fb, extent);
		return;
	}
	check_synced(w, gfn, nr);
	fb_unsure(fb, gfn, nr);
	for (i = 0; i < nr; i++)
		if (!model_one_in(w, 3))
			fb_page_change(fb, fb_slab_of(fb, ref), gfn + i);
	gc->at = gfn;
	gc->slab = ref;
	gc->reverts = model_one_in(w, 4);
	gc->keeps = model_one_in(w, 3);
	gc->until = fb->tick + model_random(w, 20000);
	w->n_workers++;
}

static void worker_end(struct model_world *w)
{
	struct model_gc *gc = &w->gc;

	gc->on = false;
	fb_thaw(w->fb, gc->gfn, gc->nr);
	fb_lost_scan(w->fb, gc->gfn >> w->fb->vm->extent_shift);
}

static void revert_step(struct model_world *w, struct dcm_lane *lane)
{
	struct model_gc *gc = &w->gc;
	u32 i;

	if (gc->keeps ? dcm_keep(lane, &gc->at, gc->gfn + gc->nr) :
			dcm_revert(lane, &gc->at, gc->gfn + gc->nr))
		return;
	for (i = 0; i < gc->nr; i++)
		fb_page_settled(w->fb, gc->gfn + i);
	w->n_reverts++;
	worker_end(w);
}

static void page_spread(struct fake_backend *fb, u32 gfn)
{
	fb_page_changed(fb, gfn, true);
	fb_sure(fb, gfn);
}

static void spread_step(struct model_world *w, struct dcm_lane *lane)
{
	struct model_gc *gc = &w->gc;
	int err = dcm_spread(lane, &gc->at, gc->gfn + gc->nr);
	u32 i;

	if (primary_of(w, gc->gfn) != gc->slab ||
	    (err && w->fb->tick > gc->until)) {
		gc->reverts = true;
		gc->at = gc->gfn;
	} else if (!err) {
		for (i = 0; i < gc->nr; i++)
			page_spread(w->fb, gc->gfn + i);
		w->n_spreads++;
		worker_end(w);
	}
}

void model_worker_step(struct model_world *w)
{
	struct dcm_lane *lane = &w->fb->vm->lane[w->client];

	if (!w->gc.on || !w->gc.slab || w->fb->lane[w->client].in_core)
		return;
	w->fb->lane[w->client].in_core = true;
	if (w->gc.reverts)
		revert_step(w, lane);
	else
		spread_step(w, lane);
	w->fb->lane[w->client].in_core = false;
}

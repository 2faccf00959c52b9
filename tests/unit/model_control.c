// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * model_control.c - the control plane of core_model_test, and the donors' faults
 *
 * It gives extents more slabs and fills these, moves extents, pulls them back,
 * loses slabs, one or two donors at once, and changes budget and tunables, as the client thread, the slab worker and an operator do; it also
 * discards and syncs pages, and makes donors die, fall silent and come back.
 *
 * It has a lane of its own (@client) for moves and losses. Discards and syncs
 * use a vCPU's lane: they may wait for a loss. At most one move is on at a time.
 * A lost slab is lent again only when the core has given it up.
 *
 * Locking: none, there is one thread.
 */
#include "model.h"

#include "fake_priv.h"

static void lose(struct model_world *w, u32 extent, struct dcm_slab_ref *ref)
{
	struct fake_backend *fb = w->fb;
	struct fb_slab *s = fb_slab_of(fb, ref);
	s64 r;

	fb->lane[w->client].in_core = true;
	r = dcm_extent_lost(&fb->vm->lane[w->client], extent, ref);
	fb->lane[w->client].in_core = false;
	if (r == -EAGAIN)
		return;
	fb_lost_scan(fb, extent);
	if (r >= 0) {
		fb_slab_free(fb, s);
		w->n_slabs_lost++;
	} else if (r != -ENOENT) {
		fb_violation(fb, "dcm_extent_lost: %lld", (long long)r);
	}
}

/* Slabs that died under their extents: tell the core, again and again. */
void model_lose_dead(struct model_world *w)
{
	struct dcm_vm *vm = w->fb->vm;
	u32 e, i;

	for (e = 0; e < vm->nr_extents; e++) {
		for (i = 0; i < DCM_SLOTS; i++) {
			struct dcm_slab_ref *ref = vm->extent[e].slot[i].slab;

			if (ref &&
			    fb_slab_of(w->fb, ref)->state == FH_SLAB_DEAD)
				lose(w, e, ref);
		}
	}
}

static bool attach_new(struct model_world *w, u32 extent, s32 not_donor)
{
	struct fake_backend *fb = w->fb;
	struct fb_slab *s = fb_slab_take(fb, model_random(w, 1000), not_donor);
	int err;

	if (!s)
		return false;
	err = fb_slab_attach(fb, s, extent);
	if (err && err != -EBUSY)
		fb_violation(fb, "dcm_extent_attach: %d", err);
	return !err;
}

void model_fill_begin(struct model_world *w)
{
	struct dcm_vm *vm = w->fb->vm;
	u32 e = (u32)model_random(w, vm->nr_extents);
	u8 open = vm->extent[e].open;

	if (w->mv.on || !open || model_worker_on(w, e))
		return;
	if (hweight16(open) < w->copies &&
	    !attach_new(w, e, (s32)fb_slab_open(w->fb, e)->donor))
		return;
	w->mv = (struct model_move){ .on = true, .extent = e };
}

static void move_begin(struct model_world *w)
{
	struct dcm_vm *vm = w->fb->vm;
	u32 e = (u32)model_random(w, vm->nr_extents);
	struct dcm_slab_ref *old = NULL;
	u32 i, n = 0;

	if (w->mv.on || model_worker_on(w, e))
		return;
	for (i = 0; i < DCM_SLOTS; i++) {
		struct dcm_slab_ref *ref = vm->extent[e].slot[i].slab;

		if (!ref)
			continue;
		/* of two that of an earlier, unfinished move */
		if (!old || !(vm->extent[e].open >> i & 1))
			old = ref;
		n++;
	}
	/* a slab that can't be moved may still be taken off */
	if (!old)
		return;
	if (n <= w->copies && !model_one_in(w, 3) &&
	    !attach_new(w, e, (s32)fb_slab_of(w->fb, old)->donor))
		return;
	w->mv = (struct model_move){ .on = true, .extent = e, .slab = old };
}

static void fill_step(struct model_world *w)
{
	struct fake_backend *fb = w->fb;
	struct model_move *m = &w->mv;
	int r;

	fb->lane[w->client].in_core = true;
	fb->filling = m->extent;
	r = dcm_extent_fill(&fb->vm->lane[w->client], m->extent, &m->cursor);
	fb->lane[w->client].in_core = false;
	if (r == -EAGAIN)
		return;
	fb->filling = DCM_NIL;
	m->on = false;
	if (r)
		fb_violation(fb, "dcm_extent_fill: %d", r);
	w->n_fills++;
}

void model_move_step(struct model_world *w)
{
	struct fake_backend *fb = w->fb;
	struct model_move *m = &w->mv;
	struct fb_slab *s;
	int r;

	if (!m->on)
		return;
	if (!m->slab) {
		fill_step(w);
		return;
	}
	fb->lane[w->client].in_core = true;
	r = dcm_extent_drain(&fb->vm->lane[w->client], m->extent, m->slab,
			    &m->cursor);
	fb->lane[w->client].in_core = false;
	s = fb_slab_of(fb, m->slab);
	switch (r) {
	case -EAGAIN:
		return;
	case 0:
		fb_slab_free(fb, s);
		w->n_moves++;
		break;
	case -ENOSPC:
		/* no room to pull: find a donor, or give up for now */
		w->n_pulls++;
		if (attach_new(w, m->extent, (s32)s->donor)) {
			m->cursor = 0;
			return;
		}
		break;
	case -EIO:
		if (s->state == FH_SLAB_LIVE)
			fb_violation(fb,
				     "move says that slab %u of extent %u can't be read, but it can",
				     (u32)s->ref.id, m->extent);
		break;
	case -ENOENT:
	case -EBUSY:
		break;
	default:
		fb_violation(fb, "dcm_extent_drain: %d", r);
	}
	m->on = false;
}

static void donor_event(struct model_world *w)
{
	struct fake_backend *fb = w->fb;
	u32 d = (u32)model_random(w, fb->cfg.nr_donors);
	u32 s;

	switch (model_random(w, 10)) {
	case 0: /* dies, is back with nothing a while later */
		if (model_one_in(w, 4)) {
			fb_donor_kill(fb, d);
			w->n_kills++;
			if (model_one_in(w, 4)) {
				fb_donor_kill(fb, (d + 1) % fb->cfg.nr_donors);
				w->n_doubles++;
			}
		}
		break;
	case 1: /* takes one slab back at once */
		s = (u32)model_random(w, fb->cfg.nr_slabs);
		if (model_one_in(w, 3) && fb->slab[s].state == FH_SLAB_LIVE) {
			fb_slab_kill(fb, &fb->slab[s]);
			w->n_kills++;
		}
		break;
	case 2:
	case 3:
		fb->donor[d].silent_until = fb->tick + model_random(w, 20000);
		break;
	case 4:
		fb->donor[d].unreachable_until =
			fb->tick + model_random(w, 20000);
		break;
	case 5:
	case 6:
		fb_way_break(fb, (u32)model_random(w, fb->cfg.nr_lanes), d);
		break;
	default:
		fb->donor[d].dead = false;
	}
}

/* A connection breaks while something is on its way. */
void model_break_way(struct model_world *w)
{
	u32 lane = (u32)model_random(w, w->fb->cfg.nr_lanes);
	const struct fb_lane *l = &w->fb->lane[lane];

	if (l->nr_io && l->io[0].io && l->io[0].io->op == DCM_IO_WRITE)
		fb_way_break(w->fb, lane, l->io[0].io->slab->peer);
}

static void change_tunable(struct model_world *w)
{
	const struct dcm_tunable *t = &dcm_tunables[model_random(w, DCM_T_NR)];
	u64 v = t->lo + model_random(w, t->hi - t->lo + 1);
	int err;

	switch (model_random(w, 4)) {
	case 0:
		v = t->lo;
		break;
	case 1:
		v = t->hi;
		break;
	case 2:
		v = t->def;
		break;
	default:
		break;
	}
	if (t == &dcm_tunables[DCM_T_largest_block] ||
	    t == &dcm_tunables[DCM_T_fresh_block])
		v = 4096ull << model_random(w, 5);
	/* worlds are small */
	if (t == &dcm_tunables[DCM_T_lag_pages])
		v = model_random(w, 100);
	err = fb_tunable(w->fb, t->name, v);
	if (err)
		fb_violation(w->fb, "tunable %s=%llu: %d", t->name,
			     (unsigned long long)v, err);
}

static void change_budget(struct model_world *w)
{
	u64 lo = dcm_min_budget(w->fb->vm), hi = w->fb->cfg.nr_pages;

	fb_check_budget(w->fb);
	if (fb_budget(w->fb,
		      model_one_in(w, 3) ? lo : lo + model_random(w, hi)))
		fb_violation(w->fb, "budget refused");
	w->n_budget++;
}

static void discard(struct model_world *w)
{
	u32 n = w->fb->cfg.nr_pages, gfn = (u32)model_random(w, n);
	u32 len = 1 + (u32)model_random(w, model_one_in(w, 8) ? n : 24);

	/* never on the control lane: it has to declare slabs lost meanwhile */
	fb_discard(w->fb, (u32)model_random(w, w->workers), gfn,
		   min(len, n - gfn));
	w->n_discards++;
}

/* Content is no other, whatever is said of its use. */
static void hint(struct model_world *w)
{
	u32 n = w->fb->cfg.nr_pages, gfn = (u32)model_random(w, n);
	u32 len = 1 + (u32)model_random(w, model_one_in(w, 8) ? n : 64);

	fb_hint(w->fb, (u32)model_random(w, w->workers), gfn, min(len, n - gfn),
		(enum dcm_hint)model_random(w, 5));
}

/* The pager's turn at what hints have queued. */
void model_ahead(struct model_world *w)
{
	struct fake_backend *fb = w->fb;
	u32 n = fb->cfg.nr_pages, gfn = (u32)model_random(w, n);

	switch (model_random(w, 200)) {
	case 0:
		fb_hint(fb, w->client, 0, n, DCM_HINT_FORGET);
		break;
	case 1 ... 20:
		fb_hint(fb, w->client, gfn,
			min(1 + (u32)model_random(w, 64), n - gfn),
			DCM_HINT_FETCH);
		break;
	default:
		fb_ahead(fb, w->client);
	}
}

/* Whatever is queued comes to its end. */
static void ahead_all(struct model_world *w)
{
	struct fake_backend *fb = w->fb;
	u32 i, round;

	for (round = 0; fb->vm->ahead.nr; round++) {
		if (round > 100000)
			fb_violation(fb, "fetching ahead never ends");
		fb_ahead(fb, w->client);
		fb_advance(fb, 500);
		for (i = 0; i <= w->workers; i++)
			fb_poll(fb, i);
		fb_give_slabs(fb, round);
	}
}

/* Sync a random range with a random time limit, with or without @keep. */
static void sync(struct model_world *w)
{
	u32 n = w->fb->cfg.nr_pages & ~(DCM_BLOCK_MAX - 1);
	u32 gfn = (u32)model_random(w, n) & ~(DCM_BLOCK_MAX - 1);
	u32 len = DCM_BLOCK_MAX << model_random(w, 3);

	fb_to_donor(w->fb, (u32)model_random(w, w->workers), gfn,
		    min(len, n - gfn), model_one_in(w, 2),
		    1 + model_random(w, 2000));
}

/* Thin pages get the copies they lack, while slabs may still be found lost. */
static void fill_all(struct model_world *w)
{
	struct fake_backend *fb = w->fb;
	u32 e, i, round;

	for (e = 0; w->copies > 1 && e < fb->vm->nr_extents; e++) {
		for (round = 0; w->mv.on; round++) {
			fb_advance(fb, 500);
			for (i = 0; i <= w->workers; i++)
				fb_poll(fb, i);
			model_move_step(w);
			model_lose_dead(w);
			if (round > 100000)
				fb_violation(fb, "a fill or move never ends");
			fb_give_slabs(fb, round);
			if (round % 64 == 63)
				fb_balance(fb, w->client);
		}
		if (fb->vm->extent[e].open &&
		    (fb->vm->extent[e].thin || dcm_extent_lag(fb->vm, e)) &&
		    !model_worker_on(w, e))
			w->mv = (struct model_move){ .on = true, .extent = e };
	}
}

/* Everybody well again; every move and loss comes to its end. */
void model_heal(struct model_world *w)
{
	struct fake_backend *fb = w->fb;
	u32 i, round = 0;
	bool dead;

	for (i = 0; i < fb->cfg.nr_donors; i++)
		fb->donor[i] = (struct fb_donor){ 0 };
	fb->cfg.p_error = 0;
	fb->cfg.p_no_seal = 0;
	fill_all(w);
	do {
		fb_advance(fb, 500);
		for (i = 0; i <= w->workers; i++)
			fb_poll(fb, i);
		fb_give_slabs(fb, round);
		model_move_step(w);
		model_worker_step(w);
		model_lose_dead(w);
		dead = false;
		for (i = 0; i < fb->cfg.nr_slabs; i++)
			dead |= fb->slab[i].state == FH_SLAB_DEAD;
		if (++round > 100000)
			fb_violation(fb, "%s never ends",
				     w->mv.on ? "a move" :
				     w->gc.on ? "a worker's range" :
						"a loss");
		if (w->mv.on && round % 64 == 0)
			fb_balance(fb, w->client);
	} while (w->mv.on || w->gc.on || dead);
	ahead_all(w);
}

void model_control(struct model_world *w)
{
	struct fake_backend *fb = w->fb;

	switch (model_random(w, 24)) {
	case 0:
	case 1:
		change_budget(w);
		break;
	case 2:
	case 3:
		change_tunable(w);
		break;
	case 4 ... 6:
		discard(w);
		break;
	case 7:
		if (!w->fb->cfg.syncs || model_one_in(w, 2))
			hint(w);
		else
			sync(w);
		break;
	case 8 ... 10:
		if (w->copies > 1 && !model_one_in(w, 3))
			model_fill_begin(w);
		else
			move_begin(w);
		break;
	case 11 ... 14:
		if (!w->calm)
			donor_event(w);
		break;
	case 15:
		w->hot = (u32)model_random(w, fb->cfg.nr_pages);
		break;
	case 16:
		fb->cfg.p_again =
			model_one_in(w, 2) ? 0 : (u32)model_random(w, 5000);
		fb->cfg.p_error = w->calm || model_one_in(w, 2) ?
					  0 :
							    (u32)model_random(w, 2000);
		fb->cfg.p_pinned =
			model_one_in(w, 2) ? 0 : (u32)model_random(w, 5000);
		fb->cfg.p_install_fail =
			model_one_in(w, 2) ? 0 : (u32)model_random(w, 2000);
		fb->cfg.max_delay =
			(u32)model_random(w, model_one_in(w, 2) ? 10 : 2000);
		break;
	case 17:
		if (model_one_in(w, 4)) {
			model_heal(w);
			fb_sync(fb);
			fb_fsck(fb, true);
		}
		break;
	default:
		fb_fsck(fb, false);
		fb_check_budget(fb);
		w->n_lag += atomic64_read(&fb->vm->lag) > 0;
	}
}

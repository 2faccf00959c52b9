// SPDX-License-Identifier: GPL-2.0-or-later
/* links: CORE FAKE */
/*
 * core_model_test.c - millions of random steps of the core against a model
 *
 * One thread plays everything: vCPUs that read, write and zero, lanes that
 * poll and evict, a control plane that moves extents, pulls them back, loses
 * donors, changes budget and tunables, discards. Inside ops other lanes run,
 * so that races between lanes happen at every point where they can. All of it
 * is a function of the seed. The checks are in fake_backend.h.
 *
 *	SEED=n    first round's seed (default: fixed); each round prints its own
 *	STEPS=n   steps in all
 *	ROUND=n   steps of one round, then a new world
 *	VERBOSE=1 a line for each round
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "fake_backend.h"
#include "fake_priv.h"

#if defined(__SANITIZE_THREAD__) || defined(THREAD_SANITIZER)
#define STEPS 400000 /* nothing to see here for TSan, and ten times as slow */
#else
#define STEPS 4000000
#endif
#define VCPUS_MAX 12
#define WAIT_MAX 5000000 /* ticks after which an access counts as stuck */

enum vstate { IDLE, TRY, WAIT, STALLED };

struct vcpu {
	enum vstate state;
	bool busy;
	u32 lane;
	u32 gfn;
	u32 gen;
	bool write, zero;
	u64 since;
};

struct move {
	bool on;
	u32 extent;
	u32 cursor;
	struct dcm_slab_ref *slab;
};

struct world {
	struct fake_backend *fb;
	u64 rng;
	u32 workers; /* lanes of vCPUs */
	u32 client; /* the control plane's lane */
	u32 nv;
	u32 seq_at;
	u32 hot, hot_len;
	bool calm;
	bool breaks; /* connections break all the time */
	struct vcpu v[VCPUS_MAX];
	struct move mv;
	u64 n_ok, n_lost, n_moves, n_pulls, n_slabs_lost, n_kills, n_discards;
	u64 n_waits, n_budget;
};

static u64 rnd(struct world *w, u64 n)
{
	return fb_random(&w->rng) % n;
}

static bool one_in(struct world *w, u64 n)
{
	return rnd(w, n) == 0;
}

/* ---- vCPUs ---- */

static u32 pick_page(struct world *w)
{
	u32 n = w->fb->cfg.nr_pages;

	switch (rnd(w, 4)) {
	case 0:
		return (u32)rnd(w, n);
	case 1:
		w->seq_at = (w->seq_at + 1) % n;
		return w->seq_at;
	default:
		return (w->hot + (u32)rnd(w, w->hot_len)) % n;
	}
}

static void vcpu_fault(struct world *w, struct vcpu *v, u32 flags)
{
	struct fake_backend *fb = w->fb;

	v->gen = fb->wakes[v->gfn];
	switch (fb_fault(fb, v->lane, v->gfn, flags)) {
	case DCM_FAULT_DONE:
		v->state = TRY;
		break;
	case DCM_FAULT_LOST:
		v->state = IDLE;
		w->n_lost++;
		break;
	case DCM_FAULT_STALL:
		v->state = STALLED;
		break;
	default:
		v->state = WAIT;
		w->n_waits++;
	}
}

static void vcpu_step(struct world *w, struct vcpu *v)
{
	struct fake_backend *fb = w->fb;
	int r;

	if (v->busy || fb->lane[v->lane].in_core)
		return;
	v->busy = true;
	if (v->state == IDLE) {
		v->gfn = pick_page(w);
		v->write = one_in(w, 2);
		v->zero = v->write && one_in(w, 6);
		v->state = TRY;
		v->since = fb->tick;
	}
	if (fb->tick - v->since > WAIT_MAX)
		fb_violation(fb, "access stuck (%s): %s",
			     v->state == WAIT ? "never woken" : "stalls",
			     fb_page_text(fb, v->gfn));
	if (v->state == WAIT && fb->wakes[v->gfn] != v->gen)
		v->state = TRY;
	if (v->state == STALLED) {
		fb_poll(fb, v->lane);
		v->state = TRY;
	} else if (v->state == TRY) {
		r = v->write ? fb_write(fb, v->gfn, v->zero) :
			       fb_read_checked(fb, v->gfn);
		if (r == FH_OK) {
			v->state = IDLE;
			w->n_ok++;
		} else if (r != FH_HELD) {
			vcpu_fault(w, v, (u32)r);
		}
	}
	v->busy = false;
}

/* Another lane's turn, in the middle of an op. */
static void nest(void *arg, u32 lane)
{
	struct world *w = arg;

	switch (rnd(w, 4)) {
	case 0:
		fb_poll(w->fb, lane);
		break;
	case 1:
		fb_balance(w->fb, lane);
		break;
	default:
		if (lane < w->workers) {
			u32 i, at = (u32)rnd(w, w->nv);

			for (i = 0; i < w->nv; i++)
				if (w->v[(at + i) % w->nv].lane == lane)
					break;
			vcpu_step(w, &w->v[(at + i) % w->nv]);
		}
	}
}

/* ---- control plane ---- */

static void lose(struct world *w, u32 extent, struct dcm_slab_ref *ref)
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
static void lose_dead(struct world *w)
{
	struct dcm_vm *vm = w->fb->vm;
	u32 e;
	int i;

	for (e = 0; e < vm->nr_extents; e++) {
		for (i = 0; i < 2; i++) {
			struct dcm_slab_ref *ref = vm->extent[e].slab[i];

			if (ref &&
			    fb_slab_of(w->fb, ref)->state == FH_SLAB_DEAD)
				lose(w, e, ref);
		}
	}
}

static bool attach_new(struct world *w, u32 extent, s32 not_donor)
{
	struct fake_backend *fb = w->fb;
	struct fb_slab *s = fb_slab_take(fb, rnd(w, 1000), not_donor);
	int err;

	if (!s)
		return false;
	s->extent = extent;
	s->state = FH_SLAB_LIVE;
	err = dcm_extent_attach(fb->vm, extent, &s->ref);
	if (err)
		s->state = FH_SLAB_FREE;
	if (err && err != -EBUSY)
		fb_violation(fb, "dcm_extent_attach: %d", err);
	return !err;
}

static void move_begin(struct world *w)
{
	struct dcm_vm *vm = w->fb->vm;
	u32 e = (u32)rnd(w, vm->nr_extents);
	struct dcm_slab_ref *old = vm->extent[e].slab[vm->extent[e].cur];

	if (w->mv.on || !old)
		return;
	if (vm->extent[e].slab[!vm->extent[e].cur]) {
		/* the second slab of an earlier, unfinished move */
		old = vm->extent[e].slab[!vm->extent[e].cur];
	} else if (!one_in(w, 3) &&
		   !attach_new(w, e, (s32)fb_slab_of(w->fb, old)->donor)) {
		return;
	}
	w->mv = (struct move){ .on = true, .extent = e, .slab = old };
}

static void move_step(struct world *w)
{
	struct fake_backend *fb = w->fb;
	struct move *m = &w->mv;
	struct fb_slab *s;
	int r;

	if (!m->on)
		return;
	fb->lane[w->client].in_core = true;
	r = dcm_extent_move(&fb->vm->lane[w->client], m->extent, m->slab,
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
		break;
	default:
		fb_violation(fb, "dcm_extent_move: %d", r);
	}
	m->on = false;
}

static void donor_event(struct world *w)
{
	struct fake_backend *fb = w->fb;
	u32 d = (u32)rnd(w, fb->cfg.nr_donors);
	u32 s;

	switch (rnd(w, 10)) {
	case 0: /* dies, is back with nothing a while later */
		if (one_in(w, 4)) {
			fb_donor_kill(fb, d);
			w->n_kills++;
		}
		break;
	case 1: /* takes one slab back at once */
		s = (u32)rnd(w, fb->cfg.nr_slabs);
		if (one_in(w, 3) && fb->slab[s].state == FH_SLAB_LIVE) {
			fb_slab_kill(fb, &fb->slab[s]);
			w->n_kills++;
		}
		break;
	case 2:
	case 3:
		fb->donor[d].silent_until = fb->tick + rnd(w, 20000);
		break;
	case 4:
		fb->donor[d].unreachable_until = fb->tick + rnd(w, 20000);
		break;
	case 5:
	case 6:
		fb_way_break(fb, (u32)rnd(w, fb->cfg.nr_lanes), d);
		break;
	default:
		fb->donor[d].dead = false;
	}
}

/* A connection breaks while something is on its way. */
static void break_way(struct world *w)
{
	u32 lane = (u32)rnd(w, w->fb->cfg.nr_lanes);
	const struct fb_lane *l = &w->fb->lane[lane];

	if (l->nr_io && l->io[0].io && l->io[0].io->op == DCM_IO_WRITE)
		fb_way_break(w->fb, lane, l->io[0].io->slab->peer);
}

static void change_tunable(struct world *w)
{
	const struct dcm_tunable *t = &dcm_tunables[rnd(w, DCM_T_NR)];
	u64 v = t->lo + rnd(w, t->hi - t->lo + 1);
	int err;

	switch (rnd(w, 4)) {
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
		v = 4096ull << rnd(w, 5);
	err = dcm_tunable_set(w->fb->vm, t->name, v);
	if (err)
		fb_violation(w->fb, "tunable %s=%llu: %d", t->name,
			     (unsigned long long)v, err);
}

static void change_budget(struct world *w)
{
	u64 lo = dcm_min_budget(w->fb->vm), hi = w->fb->cfg.nr_pages;

	fb_check_budget(w->fb);
	if (fb_budget(w->fb, one_in(w, 3) ? lo : lo + rnd(w, hi)))
		fb_violation(w->fb, "budget refused");
	w->n_budget++;
}

static void discard(struct world *w)
{
	u32 n = w->fb->cfg.nr_pages, gfn = (u32)rnd(w, n);
	u32 len = 1 + (u32)rnd(w, one_in(w, 8) ? n : 24);

	/* never on the control lane: it has to declare slabs lost meanwhile */
	fb_discard(w->fb, (u32)rnd(w, w->workers), gfn, min(len, n - gfn));
	w->n_discards++;
}

/* Content is no other, whatever is said of its use. */
static void hint(struct world *w)
{
	u32 n = w->fb->cfg.nr_pages, gfn = (u32)rnd(w, n);
	u32 len = 1 + (u32)rnd(w, one_in(w, 8) ? n : 64);

	fb_hint(w->fb, (u32)rnd(w, w->workers), gfn, min(len, n - gfn),
		(enum dcm_hint)rnd(w, 3));
}

/* Sync a random range with a random time limit, with or without @keep. */
static void sync(struct world *w)
{
	u32 n = w->fb->cfg.nr_pages & ~(DCM_BLOCK_MAX - 1);
	u32 gfn = (u32)rnd(w, n) & ~(DCM_BLOCK_MAX - 1);
	u32 len = DCM_BLOCK_MAX << rnd(w, 3);

	fb_to_donor(w->fb, (u32)rnd(w, w->workers), gfn, min(len, n - gfn),
		    one_in(w, 2), 1 + rnd(w, 2000));
}

/* Everybody well again; every move and loss comes to its end. */
static void heal(struct world *w)
{
	struct fake_backend *fb = w->fb;
	u32 i, round = 0;
	bool dead;

	for (i = 0; i < fb->cfg.nr_donors; i++)
		fb->donor[i] = (struct fb_donor){ 0 };
	fb->cfg.p_error = 0;
	do {
		fb_advance(fb, 500);
		for (i = 0; i <= w->workers; i++)
			fb_poll(fb, i);
		fb_give_slabs(fb, round);
		move_step(w);
		lose_dead(w);
		dead = false;
		for (i = 0; i < fb->cfg.nr_slabs; i++)
			dead |= fb->slab[i].state == FH_SLAB_DEAD;
		if (++round > 100000)
			fb_violation(fb, "%s never ends",
				     w->mv.on ? "a move" : "a loss");
		if (w->mv.on && round % 64 == 0)
			fb_balance(fb, w->client);
	} while (w->mv.on || dead);
}

static void control(struct world *w)
{
	struct fake_backend *fb = w->fb;

	switch (rnd(w, 24)) {
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
		if (!w->fb->cfg.syncs || one_in(w, 2))
			hint(w);
		else
			sync(w);
		break;
	case 8 ... 10:
		move_begin(w);
		break;
	case 11 ... 14:
		if (!w->calm)
			donor_event(w);
		break;
	case 15:
		w->hot = (u32)rnd(w, fb->cfg.nr_pages);
		break;
	case 16:
		fb->cfg.p_again = one_in(w, 2) ? 0 : (u32)rnd(w, 5000);
		fb->cfg.p_error = w->calm || one_in(w, 2) ? 0 :
							    (u32)rnd(w, 2000);
		fb->cfg.p_pinned = one_in(w, 2) ? 0 : (u32)rnd(w, 5000);
		fb->cfg.p_install_fail = one_in(w, 2) ? 0 : (u32)rnd(w, 2000);
		fb->cfg.max_delay = (u32)rnd(w, one_in(w, 2) ? 10 : 2000);
		break;
	case 17:
		if (one_in(w, 4)) {
			heal(w);
			fb_sync(fb);
			fb_fsck(fb, true);
		}
		break;
	default:
		fb_fsck(fb, false);
		fb_check_budget(fb);
	}
}

static void step(struct world *w)
{
	struct fake_backend *fb = w->fb;

	fb_advance(fb, rnd(w, 20));
	switch (rnd(w, 32)) {
	case 0 ... 3:
		fb_poll(fb, (u32)rnd(w, w->workers + 1));
		break;
	case 4:
		fb_balance(fb, (u32)rnd(w, w->workers + 1));
		break;
	case 5:
		fb_give_slabs(fb, rnd(w, 100));
		break;
	case 6:
		move_step(w);
		break;
	case 7:
		if (one_in(w, 4))
			lose_dead(w);
		break;
	case 8:
		if (one_in(w, 8))
			control(w);
		break;
	case 9:
		if (w->breaks)
			break_way(w);
		break;
	default:
		vcpu_step(w, &w->v[rnd(w, w->nv)]);
	}
}

/* At the end the guest looks at everything once more. */
static void read_all(struct world *w)
{
	struct fake_backend *fb = w->fb;
	u32 i;

	for (i = 0; i < fb->cfg.nr_pages; i++) {
		int r = fb_access(fb, i % w->workers, i, false, false);

		if (r && !fb_is_lost(fb, i))
			fb_violation(fb, "page %u: %d", i, r);
	}
}

/* Somebody waits inside the core; the control thread goes on. */
static void idle(void *arg)
{
	struct world *w = arg;

	if (w->fb->lane[w->client].in_core || !one_in(w, 16))
		return;
	lose_dead(w);
	move_step(w);
}

static struct fb_config random_config(struct world *w, u64 seed)
{
	struct fb_config c = { 0 };

	w->workers = 1 + (u32)rnd(w, 4);
	w->client = w->workers;
	w->nv = w->workers * (1 + (u32)rnd(w, 3));
	c.nr_lanes = w->workers + 1;
	c.extent_pages = 16u << rnd(w, 6);
	c.nr_pages = 300 + (u32)rnd(w, 1500);
	c.nr_donors = 2 + (u32)rnd(w, 4);
	c.nr_slabs = 3 * (c.nr_pages / c.extent_pages + 1) + 4;
	c.budget = 64 + 16 * c.nr_lanes + rnd(w, c.nr_pages / 2);
	c.seed = seed;
	c.dirty_bits = one_in(w, 3);
	c.touched_bits = one_in(w, 2);
	c.direct = one_in(w, 2);
	c.sparse = one_in(w, 2);
	c.syncs = !c.sparse && one_in(w, 2);
	c.max_delay = (u32)rnd(w, 200);
	c.qdepth = 1 + (u32)rnd(w, 64);
	c.p_nest = one_in(w, 4) ? 0 : 200 + (u32)rnd(w, 2000);
	c.nest = nest;
	c.idle = idle;
	c.arg = w;
	return c;
}

static void round_run(u64 seed, u64 steps, struct world *w)
{
	struct fb_config c;
	u64 i;

	memset(w, 0, sizeof(*w));
	w->rng = seed;
	snprintf(fb_repro, sizeof(fb_repro),
		 "SEED=%llu STEPS=%llu ROUND=%llu core_model_test",
		 (unsigned long long)seed, (unsigned long long)steps,
		 (unsigned long long)steps);
	c = random_config(w, seed);
	w->calm = one_in(w, 4);
	w->breaks = one_in(w, 4);
	w->fb = fb_create(&c);
	w->hot_len = 1 + (u32)rnd(w, c.nr_pages / 4);
	for (i = 0; i < w->nv; i++)
		w->v[i].lane = (u32)i % w->workers;
	for (i = 0; i < steps; i++)
		step(w);
	heal(w);
	fb_sync(w->fb);
	fb_fsck(w->fb, true);
	read_all(w);
	heal(w);
	fb_sync(w->fb);
	fb_fsck(w->fb, true);
	fb_check_budget(w->fb);
}

static u64 env_u64(const char *name, u64 def)
{
	const char *s = getenv(name);

	return s && *s ? strtoull(s, NULL, 0) : def;
}

static void test_model(void **state)
{
	u64 seed = env_u64("SEED", 20181), steps = env_u64("STEPS", STEPS);
	u64 round = env_u64("ROUND", 20000), done = 0, ok = 0, lost = 0;
	u64 faults = 0, cancelled = 0, stretch = 0, reduce = 0, n = 0;
	u64 undescribed = 0, late = 0;
	struct world *w = calloc(1, sizeof(*w));
	struct dcm_stats st;

	(void)state;
	assert_non_null(w);
	printf("# seed %llu, %llu steps\n", (unsigned long long)seed,
	       (unsigned long long)steps);
	for (; done < steps; done += round, seed++, n++) {
		round_run(seed, min(round, steps), w);
		dcm_vm_stats(w->fb->vm, &st);
		ok += w->n_ok;
		lost += w->n_lost;
		faults += st.count[DCM_C_FAULTS];
		cancelled += st.count[DCM_C_CANCELLED];
		stretch += st.count[DCM_C_STRETCH];
		reduce += st.count[DCM_C_REDUCE];
		undescribed += w->fb->nr_undescribed;
		late += w->fb->nr_late;
		if (getenv("VERBOSE"))
			printf("# seed %llu: %llu accesses, %llu lost, %llu faults, %llu wb, %llu cancelled, %llu moved, %llu pulled, %llu slabs lost, %llu nested\n",
			       (unsigned long long)seed,
			       (unsigned long long)w->n_ok,
			       (unsigned long long)w->n_lost,
			       (unsigned long long)st.count[DCM_C_FAULTS],
			       (unsigned long long)st.count[DCM_C_WRITEBACKS],
			       (unsigned long long)st.count[DCM_C_CANCELLED],
			       (unsigned long long)w->n_moves,
			       (unsigned long long)w->n_pulls,
			       (unsigned long long)w->n_slabs_lost,
			       (unsigned long long)w->fb->nr_nested);
		fb_destroy(w->fb);
		assert_int_equal(fb_alloc_live, 0);
	}
	printf("# %llu worlds, %llu accesses checked, %llu of lost pages, %llu faults, %llu cancelled, %llu STRETCH, %llu REDUCE, %llu chunks taken back, %llu pages written late\n",
	       (unsigned long long)n, (unsigned long long)ok,
	       (unsigned long long)lost, (unsigned long long)faults,
	       (unsigned long long)cancelled, (unsigned long long)stretch,
	       (unsigned long long)reduce, (unsigned long long)undescribed,
	       (unsigned long long)late);
	/* A run that exercised nothing proves nothing. */
	if (steps >= 200000) {
		assert_true(ok > steps / 20);
		assert_true(cancelled && stretch && reduce && undescribed &&
			    late);
	}
	free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_model) };

	setvbuf(stdout, NULL, _IOLBF, 0);
	return cmocka_run_group_tests_name("core_model", tests, NULL, NULL);
}

// SPDX-License-Identifier: GPL-2.0-or-later
/* links: CORE FAKE tests/unit/model_control.c tests/unit/model_worker.c */
/* threads: one */
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

#include "fake_priv.h"
#include "model.h"

#if defined(__SANITIZE_THREAD__) || defined(THREAD_SANITIZER)
#define STEPS 400000 /* nothing to see here for TSan, and ten times as slow */
#else
#define STEPS 4000000
#endif
/* An access counts as stuck after this many ticks and turns of its vCPU. */
#define WAIT_MAX 5000000
#define TURNS_MAX 1000

/* ---- vCPUs ---- */

static u32 pick_page(struct model_world *w)
{
	u32 n = w->fb->cfg.nr_pages;

	switch (model_random(w, 4)) {
	case 0:
		return (u32)model_random(w, n);
	case 1:
		w->seq_at = (w->seq_at + 1) % n;
		return w->seq_at;
	default:
		return (w->hot + (u32)model_random(w, w->hot_len)) % n;
	}
}

static void vcpu_fault(struct model_world *w, struct model_vcpu *v, u32 flags)
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

static void vcpu_step(struct model_world *w, struct model_vcpu *v)
{
	struct fake_backend *fb = w->fb;
	int r;

	if (v->busy || fb->lane[v->lane].in_core)
		return;
	v->busy = true;
	if (v->state == IDLE) {
		v->gfn = pick_page(w);
		v->write = model_one_in(w, 2);
		v->zero = v->write && model_one_in(w, 6);
		v->state = TRY;
		v->since = fb->tick;
		v->turns = 0;
	}
	if (++v->turns > TURNS_MAX && fb->tick - v->since > WAIT_MAX)
		fb_violation(fb, "access stuck (%s): %s",
			     v->state == WAIT ? "never woken" : "stalls",
			     fb_page_text(fb, v->gfn));
	if (v->state == WAIT && fb->wakes[v->gfn] != v->gen)
		v->state = TRY;
	if (v->state == STALLED) {
		fb_poll(fb, v->lane);
		v->state = TRY;
	} else if (v->state == TRY && !model_worker_holds(w, v->gfn)) {
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
	struct model_world *w = arg;

	switch (model_random(w, 4)) {
	case 0:
		fb_poll(w->fb, lane);
		break;
	case 1:
		if (lane == w->client && model_one_in(w, 2))
			model_ahead(w);
		else
			fb_balance(w->fb, lane);
		break;
	default:
		if (lane < w->workers) {
			u32 i, at = (u32)model_random(w, w->nv);

			for (i = 0; i < w->nv; i++)
				if (w->v[(at + i) % w->nv].lane == lane)
					break;
			vcpu_step(w, &w->v[(at + i) % w->nv]);
		}
	}
}

static void step(struct model_world *w)
{
	struct fake_backend *fb = w->fb;

	fb_advance(fb, model_random(w, 20));
	switch (model_random(w, 32)) {
	case 0 ... 3:
		fb_poll(fb, (u32)model_random(w, w->workers + 1));
		break;
	case 4:
		fb_balance(fb, (u32)model_random(w, w->workers + 1));
		fb_tick(fb, w->client);
		break;
	case 5:
		fb_give_slabs(fb, model_random(w, 100));
		if (w->copies > 1 && model_one_in(w, 4))
			model_fill_begin(w);
		break;
	case 6:
		model_move_step(w);
		model_worker_step(w);
		if (fb->cfg.syncs && w->copies > 1 && model_one_in(w, 16))
			model_worker_begin(w);
		break;
	case 7:
		if (model_one_in(w, 4))
			model_lose_dead(w);
		break;
	case 8:
		if (model_one_in(w, 8))
			model_control(w);
		break;
	case 9:
		if (w->breaks)
			model_break_way(w);
		break;
	case 10:
		model_ahead(w);
		break;
	default:
		vcpu_step(w, &w->v[model_random(w, w->nv)]);
	}
}

/* At the end the guest looks at everything once more. */
static void read_all(struct model_world *w)
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
	struct model_world *w = arg;

	if (w->fb->lane[w->client].in_core || !model_one_in(w, 16))
		return;
	model_lose_dead(w);
	model_move_step(w);
	model_worker_step(w);
}

static struct fb_config random_config(struct model_world *w, u64 seed)
{
	struct fb_config c = { 0 };

	w->workers = 1 + (u32)model_random(w, 4);
	w->client = w->workers;
	w->nv = w->workers * (1 + (u32)model_random(w, 3));
	c.nr_lanes = w->workers + 1;
	c.extent_pages = 16u << model_random(w, 6);
	c.nr_pages = 300 + (u32)model_random(w, 1500);
	c.nr_donors = 2 + (u32)model_random(w, 4);
	w->copies = 1 + (u32)model_random(w, 3);
	c.files = w->copies > 1 && model_one_in(w, 2) ? 1 : 0;
	c.nr_slabs = (w->copies + 2) * (c.nr_pages / c.extent_pages + 1) + 4;
	c.budget = 64 + 16 * c.nr_lanes + model_random(w, c.nr_pages / 2);
	c.seed = seed;
	c.dirty_bits = model_one_in(w, 3);
	c.waits = model_one_in(w, 3);
	c.touched_bits = model_one_in(w, 2);
	c.direct = model_one_in(w, 2);
	c.sparse = model_one_in(w, 2);
	c.syncs = !c.sparse && model_one_in(w, 2);
	c.fresh = seed & 1;
	c.guesses = seed % 3;
	c.watch = seed % 4 == 0;
	c.seal = model_one_in(w, 3);
	c.p_no_seal = model_one_in(w, 2) ? 500 : 0;
	c.sums = !c.seal && w->copies > 1 && !model_one_in(w, 4);
	c.p_wrong = (c.sums || c.seal) && model_one_in(w, 2) ? 1000 : 0;
	c.max_delay = (u32)model_random(w, 200);
	c.qdepth = 1 + (u32)model_random(w, 64);
	c.p_nest = model_one_in(w, 4) ? 0 : 200 + (u32)model_random(w, 2000);
	c.nest = nest;
	c.idle = idle;
	c.arg = w;
	return c;
}

static void round_run(u64 seed, u64 steps, struct model_world *w)
{
	struct dcm_stats st;
	struct fb_config c;
	u64 i;

	memset(w, 0, sizeof(*w));
	w->rng = seed;
	snprintf(fb_repro, sizeof(fb_repro),
		 "SEED=%llu STEPS=%llu ROUND=%llu core_model_test",
		 (unsigned long long)seed, (unsigned long long)steps,
		 (unsigned long long)steps);
	c = random_config(w, seed);
	w->calm = model_one_in(w, 4);
	w->breaks = model_one_in(w, 4);
	w->fb = fb_create(&c);
	if (c.files)
		fb_tunable(w->fb, "lag_pages", 1 + model_random(w, 100));
	w->hot_len = 1 + (u32)model_random(w, c.nr_pages / 4);
	for (i = 0; i < w->nv; i++)
		w->v[i].lane = (u32)i % w->workers;
	for (i = 0; i < steps; i++)
		step(w);
	model_heal(w);
	fb_sync(w->fb);
	fb_fsck(w->fb, true);
	read_all(w);
	model_heal(w);
	fb_sync(w->fb);
	fb_fsck(w->fb, true);
	fb_check_budget(w->fb);
	dcm_vm_stats(w->fb->vm, &st);
	if (st.count[DCM_C_WRONG_PAGES] != w->fb->nr_wrong)
		fb_violation(w->fb,
			     "of %llu pages with wrong bytes %llu were noticed",
			     (unsigned long long)w->fb->nr_wrong,
			     (unsigned long long)st.count[DCM_C_WRONG_PAGES]);
}

static u64 env_u64(const char *name, u64 def)
{
	const char *s = getenv(name);

	return s && *s ? strtoull(s, NULL, 0) : def;
}

/*
 * Worlds where a clean page was written over its only copy, the WRITE failed half
 * done, and the page left as clean.
 */
static void test_a_copy_written_over_comes_torn(void **state)
{
	static const u64 seeds[] = { 31201, 31271, 33978 };
	struct model_world *w = calloc(1, sizeof(*w));
	size_t i;

	(void)state;
	assert_non_null(w);
	for (i = 0; i < sizeof(seeds) / sizeof(seeds[0]); i++) {
		round_run(seeds[i], 20000, w);
		assert_true(w->n_ok > 0);
		fb_destroy(w->fb);
		assert_int_equal(fb_alloc_live, 0);
	}
	free(w);
}

static void test_model(void **state)
{
	u64 seed = env_u64("SEED", 20181), steps = env_u64("STEPS", STEPS);
	u64 round = env_u64("ROUND", 20000), done = 0, ok = 0, lost = 0;
	u64 faults = 0, cancelled = 0, stretch = 0, reduce = 0, n = 0;
	u64 undescribed = 0, late = 0, fills = 0, thin = 0, failovers = 0;
	u64 doubles = 0, wrong = 0, sealed = 0, lag = 0, spreads = 0;
	u64 reverts = 0, fresh = 0, ahead = 0, hides = 0, streams = 0;
	struct model_world *w = calloc(1, sizeof(*w));
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
		fills += w->n_fills;
		doubles += w->n_doubles;
		thin += st.count[DCM_C_THIN_PAGES];
		failovers += st.count[DCM_C_FAILOVERS];
		wrong += w->fb->nr_wrong;
		sealed += w->fb->cfg.seal ? w->fb->nr_wrong : 0;
		lag += w->n_lag;
		spreads += w->n_spreads;
		reverts += w->n_reverts;
		fresh += w->fb->nr_fresh;
		ahead += st.count[DCM_C_AHEAD_PAGES];
		streams += st.count[DCM_C_STREAM_PAGES];
		hides += w->fb->nr_hides;
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
	printf("# %llu worlds, %llu accesses checked, %llu of lost pages, %llu faults, %llu cancelled, %llu STRETCH, %llu REDUCE, %llu chunks taken back, %llu pages written late, %llu fills, %llu thin pages, %llu failovers, %llu double deaths, %llu pages read wrong, %llu of them sealed, %llu looks while pages lagged, %llu spreads, %llu reverts, %llu runs of new pages, %llu pages fetched ahead, %llu pages hidden, %llu pages of streams\n",
	       (unsigned long long)n, (unsigned long long)ok,
	       (unsigned long long)lost, (unsigned long long)faults,
	       (unsigned long long)cancelled, (unsigned long long)stretch,
	       (unsigned long long)reduce, (unsigned long long)undescribed,
	       (unsigned long long)late, (unsigned long long)fills,
	       (unsigned long long)thin, (unsigned long long)failovers,
	       (unsigned long long)doubles, (unsigned long long)wrong,
	       (unsigned long long)sealed, (unsigned long long)lag,
	       (unsigned long long)spreads, (unsigned long long)reverts,
	       (unsigned long long)fresh, (unsigned long long)ahead,
	       (unsigned long long)hides, (unsigned long long)streams);
	/* A run that exercised nothing proves nothing. */
	if (steps >= 1000000) {
		assert_true(ok > steps / 20);
		assert_true(cancelled && stretch && reduce && undescribed &&
			    late && fills && thin && failovers && doubles &&
			    wrong > sealed && sealed && lag && spreads &&
			    reverts && fresh && ahead && hides && streams);
	}
	free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_model),
		cmocka_unit_test(test_a_copy_written_over_comes_torn),
	};

	setvbuf(stdout, NULL, _IOLBF, 0);
	return cmocka_run_group_tests_name("core_model", tests, NULL, NULL);
}

// SPDX-License-Identifier: GPL-2.0-or-later
/* links: CORE FAKE */
/*
 * core_threads_test.c - real threads on one VM, for ThreadSanitizer and ASan
 *
 * One thread a lane: a vCPU and its fault handler in one. One more is the
 * control plane: budget, tunables, discards, extents moved, pulled and lost.
 * Each page's words are plain memory where no MMU would make them atomic, so
 * TSan reports accesses that the core does not order. Ends after a number of accesses,
 * not after a time; then one thread puts everything right and checks all.
 *
 *	SEED=n STEPS=n (accesses of each thread) ROUNDS=n
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <pthread.h>
#include <unistd.h>
#include <cmocka.h>

#include "fake_backend.h"
#include "fake_priv.h"

#define WORKERS_MAX 4

struct ctx {
	struct fake_backend *fb;
	u32 workers;
	u64 steps;
	u32 running; /* workers not done */
	u64 ok, lost;
};

struct worker {
	struct ctx *c;
	u32 lane;
	u64 rng;
	u64 ok, lost;
};

static u64 rnd(u64 *rng, u64 n)
{
	return fb_random(rng) % n;
}

static u32 wakes(struct fake_backend *fb, u32 gfn)
{
	return __atomic_load_n(&fb->wakes[gfn], __ATOMIC_ACQUIRE);
}

/* One access, which sleeps until it is woken, as a guest's thread does. */
static void access_page(struct worker *w, u32 gfn, bool write, bool zero)
{
	struct fake_backend *fb = w->c->fb;

	u32 turns = 0;

	for (;;) {
		u32 gen = wakes(fb, gfn);
		int r = write ? fb_write(fb, gfn, zero) :
				fb_read_checked(fb, gfn);

		if (r == FH_OK) {
			w->ok++;
			return;
		}
		if (r == FH_HELD) {
			fb_poll(fb, w->lane);
			sched_yield();
			continue;
		}
		switch (fb_fault(fb, w->lane, gfn, (u32)r)) {
		case DCM_FAULT_DONE:
			continue;
		case DCM_FAULT_LOST:
			w->lost++;
			return;
		case DCM_FAULT_STALL:
			fb_poll(fb, w->lane);
			sched_yield();
			continue;
		default:
			while (wakes(fb, gfn) == gen) {
				if (!fb_poll(fb, w->lane) && ++turns % 32 == 0)
					sched_yield();
			}
		}
	}
}

static void *worker_run(void *arg)
{
	struct worker *w = arg;
	struct fake_backend *fb = w->c->fb;
	u32 n = fb->cfg.nr_pages, seq = (u32)rnd(&w->rng, n), gfn;
	u64 i;

	for (i = 0; i < w->c->steps; i++) {
		switch (rnd(&w->rng, 4)) {
		case 0:
			gfn = (u32)rnd(&w->rng, n);
			break;
		case 1:
			gfn = seq = (seq + 1) % n;
			break;
		default: /* all threads fight over these */
			gfn = (u32)rnd(&w->rng, n / 8);
		}
		access_page(w, gfn, rnd(&w->rng, 2), !rnd(&w->rng, 6));
		if (!rnd(&w->rng, 64))
			fb_balance(fb, w->lane);
		if (!rnd(&w->rng, 200))
			fb_discard(fb, w->lane, gfn,
				   min(1 + (u32)rnd(&w->rng, 40), n - gfn));
		if (!rnd(&w->rng, 200))
			fb_hint(fb, w->lane, gfn,
				min(1 + (u32)rnd(&w->rng, 40), n - gfn),
				(enum dcm_hint)rnd(&w->rng, 5));
		if (fb->cfg.syncs && !rnd(&w->rng, 200))
			fb_to_donor(fb, w->lane, gfn & ~(DCM_BLOCK_MAX - 1),
				    DCM_BLOCK_MAX, rnd(&w->rng, 2),
				    1 + rnd(&w->rng, 2000));
	}
	__atomic_sub_fetch(&w->c->running, 1, __ATOMIC_RELEASE);
	/* Others may wait for what this lane has in flight. */
	while (__atomic_load_n(&w->c->running, __ATOMIC_ACQUIRE)) {
		fb_poll(fb, w->lane);
		sched_yield();
	}
	return NULL;
}

/* ---- the control plane ---- */

struct control {
	struct ctx *c;
	u64 rng;
	u32 lane;
	bool moving;
	u32 extent, cursor;
	struct dcm_slab_ref *slab;
	u32 copies; /* slabs that an extent should have */
	u64 moves, losses, kills, fills;
};

static void lose_dead(struct control *k)
{
	struct fake_backend *fb = k->c->fb;
	struct dcm_vm *vm = fb->vm;
	u32 e, i;

	for (e = 0; e < vm->nr_extents; e++) {
		for (i = 0; i < DCM_SLOTS; i++) {
			struct dcm_slab_ref *ref = vm->extent[e].slot[i].slab;
			struct fb_slab *s;

			if (!ref)
				continue;
			s = fb_slab_of(fb, ref);
			if (s->state != FH_SLAB_DEAD ||
			    dcm_extent_lost(&vm->lane[k->lane], e, ref) < 0)
				continue;
			fb_slab_free(fb, s);
			k->losses++;
		}
	}
}

/* A slab more for an extent; it may be from the same donor as another. */
static bool attach_more(struct control *k, u32 e)
{
	struct fake_backend *fb = k->c->fb;
	struct fb_slab *s = fb_slab_take(fb, rnd(&k->rng, 100), -1);

	return s && !fb_slab_attach(fb, s, e);
}

/* Begin a drain of an extent's slab, or a fill (of no slab). */
static void move_begin(struct control *k)
{
	struct dcm_vm *vm = k->c->fb->vm;
	u32 e = (u32)rnd(&k->rng, vm->nr_extents), i, n = 0;
	struct dcm_slab_ref *old = NULL;
	u8 open = vm->extent[e].open;

	for (i = 0; i < DCM_SLOTS; i++) {
		struct dcm_slab_ref *ref = vm->extent[e].slot[i].slab;

		n += !!ref;
		if (ref && (!old || !(open >> i & 1)))
			old = ref;
	}
	if (!old)
		return;
	if (k->copies > 1 && open && rnd(&k->rng, 3)) {
		if (n < k->copies && !attach_more(k, e))
			return;
		old = NULL;
	} else if (n <= k->copies && rnd(&k->rng, 3)) {
		attach_more(k, e);
	}
	k->moving = true;
	k->extent = e;
	k->cursor = 0;
	k->slab = old;
}

static void move(struct control *k)
{
	struct fake_backend *fb = k->c->fb;
	struct dcm_lane *lane = &fb->vm->lane[k->lane];
	struct fb_slab *s;
	int r;

	if (!k->moving)
		move_begin(k);
	if (!k->moving)
		return;
	if (!k->slab) {
		r = dcm_extent_fill(lane, k->extent, &k->cursor);
		k->moving = r == -EAGAIN;
		k->fills += !r;
		return;
	}
	r = dcm_extent_drain(lane, k->extent, k->slab, &k->cursor);
	if (r == -EAGAIN)
		return;
	s = fb_slab_of(fb, k->slab);
	if (r == -EIO && s->state == FH_SLAB_LIVE)
		fb_violation(fb,
			     "drain says that slab %u can't be read, but it can",
			     (u32)s->ref.id);
	if (!r) {
		fb_slab_free(fb, s);
		k->moves++;
	}
	k->moving = false;
}

static void donor_event(struct control *k)
{
	struct fake_backend *fb = k->c->fb;
	struct fb_donor *d = &fb->donor[rnd(&k->rng, fb->cfg.nr_donors)];
	u64 until = READ_ONCE(fb->tick) + rnd(&k->rng, 20000);
	u32 s;

	switch (rnd(&k->rng, 8)) {
	case 0:
		s = (u32)rnd(&k->rng, fb->cfg.nr_slabs);
		if (!rnd(&k->rng, 3) &&
		    READ_ONCE(fb->slab[s].state) == FH_SLAB_LIVE) {
			fb_slab_kill(fb, &fb->slab[s]);
			k->kills++;
		}
		break;
	case 1:
	case 2:
		__atomic_store_n(&d->silent_until, until, __ATOMIC_RELAXED);
		break;
	case 3:
		__atomic_store_n(&d->unreachable_until, until,
				 __ATOMIC_RELAXED);
		break;
	default:
		break;
	}
}

static void control_step(struct control *k)
{
	struct fake_backend *fb = k->c->fb;
	const struct dcm_tunable *t;
	u64 v;

	fb_give_slabs(fb, rnd(&k->rng, 100));
	lose_dead(k);
	if (dcm_pending(&fb->vm->lane[k->lane]) || rnd(&k->rng, 2))
		move(k);
	switch (rnd(&k->rng, 64)) {
	case 0:
		v = dcm_min_budget(fb->vm);
		fb_budget(fb, rnd(&k->rng, 2) ? v : v + rnd(&k->rng, 600));
		break;
	case 1:
		t = &dcm_tunables[rnd(&k->rng, DCM_T_NR)];
		v = t->lo + rnd(&k->rng, t->hi - t->lo + 1);
		if (t == &dcm_tunables[DCM_T_largest_block] ||
		    t == &dcm_tunables[DCM_T_fresh_block])
			v = 4096ull << rnd(&k->rng, 5);
		if (t == &dcm_tunables[DCM_T_lag_pages])
			v = rnd(&k->rng, 100);
		if (fb_tunable(fb, t->name, v))
			fb_violation(fb, "tunable %s", t->name);
		break;
	case 2 ... 5:
		donor_event(k);
		break;
	case 6 ... 10:
		fb_balance(fb, k->lane);
		fb_tick(fb, k->lane);
		break;
	case 11:
		fb_hint(fb, k->lane, 0, fb->cfg.nr_pages, DCM_HINT_FORGET);
		break;
	case 12 ... 40:
		fb_ahead(fb, k->lane);
		break;
	default:
		fb_poll(fb, k->lane);
	}
	sched_yield();
}

/* One thread from here on: end moves and losses, then look at everything. */
static void check_all(struct ctx *c, struct control *k)
{
	struct fake_backend *fb = c->fb;
	u32 i, round;
	bool dead = true;

	memset(fb->donor, 0, sizeof(fb->donor));
	for (round = 0; k->moving || dead; round++) {
		if (round > 1000000)
			fb_violation(fb, "%s never ends",
				     k->moving ? "a move" : "a loss");
		fb_advance(fb, 500);
		for (i = 0; i <= c->workers; i++)
			fb_poll(fb, i);
		fb_give_slabs(fb, round);
		lose_dead(k);
		if (k->moving)
			move(k);
		dead = false;
		for (i = 0; i < fb->cfg.nr_slabs; i++)
			dead |= fb->slab[i].state == FH_SLAB_DEAD;
	}
	fb_sync(fb);
	for (i = 0; i < fb->vm->nr_extents; i++)
		fb_lost_scan(fb, i);
	fb_fsck(fb, true);
	for (i = 0; i < fb->cfg.nr_pages; i++)
		if (fb_access(fb, i % c->workers, i, false, false) &&
		    !fb_is_lost(fb, i))
			fb_violation(fb, "page %u can't be read", i);
	fb_sync(fb);
	fb_fsck(fb, true);
}

static void round_run(u64 seed, u64 steps, u64 *ok, u64 *lost)
{
	u64 rng = seed;
	struct fb_config cfg = { .nr_pages = 600 + (u32)rnd(&rng, 600),
				 .extent_pages = 64,
				 .nr_slabs = 128,
				 .nr_donors = 4,
				 .seed = seed,
				 .threads = true };
	struct ctx c = { .workers = 2 + (u32)rnd(&rng, WORKERS_MAX - 1),
			 .steps = steps };
	struct worker w[WORKERS_MAX];
	pthread_t th[WORKERS_MAX];
	struct control k = { .c = &c,
			     .rng = seed * 31 + 7,
			     .copies = 1 + (u32)seed % DCM_SLOTS };
	u32 i;

	cfg.nr_lanes = c.workers + 1;
	cfg.budget = 64 + 16 * cfg.nr_lanes + rnd(&rng, 200);
	cfg.dirty_bits = rnd(&rng, 2);
	cfg.waits = rnd(&rng, 2);
	cfg.touched_bits = rnd(&rng, 2);
	cfg.direct = rnd(&rng, 2);
	cfg.seal = !cfg.direct && rnd(&rng, 2);
	cfg.sparse = rnd(&rng, 2);
	cfg.syncs = !cfg.sparse && rnd(&rng, 2);
	cfg.files = k.copies > 1 && rnd(&rng, 2) ? 1 : 0;
	cfg.fresh = seed & 1;
	cfg.guesses = seed % 3;
	cfg.watch = seed & 2;
	cfg.max_delay = (u32)rnd(&rng, 2000);
	cfg.qdepth = 2 + (u32)rnd(&rng, 60);
	cfg.p_again = (u32)rnd(&rng, 1000);
	cfg.p_error = (u32)rnd(&rng, 500);
	cfg.p_pinned = (u32)rnd(&rng, 500);
	cfg.p_install_fail = (u32)rnd(&rng, 200);
	snprintf(fb_repro, sizeof(fb_repro),
		 "SEED=%llu STEPS=%llu ROUNDS=1 core_threads_test",
		 (unsigned long long)seed, (unsigned long long)steps);
	c.fb = fb_create(&cfg);
	if (cfg.files)
		fb_tunable(c.fb, "lag_pages", 1 + rnd(&rng, 100));
	k.lane = c.workers;
	c.running = c.workers;
	for (i = 0; i < c.workers; i++) {
		w[i] = (struct worker){ .c = &c,
					.lane = i,
					.rng = seed * 1000 + i };
		assert_int_equal(pthread_create(&th[i], NULL, worker_run,
						&w[i]),
				 0);
	}
	while (__atomic_load_n(&c.running, __ATOMIC_ACQUIRE))
		control_step(&k);
	for (i = 0; i < c.workers; i++) {
		pthread_join(th[i], NULL);
		*ok += w[i].ok;
		*lost += w[i].lost;
	}
	check_all(&c, &k);
	if (getenv("VERBOSE"))
		printf("# seed %llu: %u threads, %u slabs each, %llu moves, %llu fills, %llu slabs lost\n",
		       (unsigned long long)seed, c.workers, k.copies,
		       (unsigned long long)k.moves, (unsigned long long)k.fills,
		       (unsigned long long)k.losses);
	fb_destroy(c.fb);
}

static u64 env_u64(const char *name, u64 def)
{
	const char *s = getenv(name);

	return s && *s ? strtoull(s, NULL, 0) : def;
}

static void test_threads(void **state)
{
	u64 seed = env_u64("SEED", 77), rounds = env_u64("ROUNDS", 5), i;
	u64 steps = env_u64("STEPS", 25000), ok = 0, lost = 0;

	(void)state;
	printf("# seed %llu\n", (unsigned long long)seed);
	for (i = 0; i < rounds; i++)
		round_run(seed + i, steps, &ok, &lost);
	printf("# %llu worlds, %llu accesses checked, %llu of lost pages\n",
	       (unsigned long long)rounds, (unsigned long long)ok,
	       (unsigned long long)lost);
	assert_true(ok > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_threads) };

	setvbuf(stdout, NULL, _IOLBF, 0);
	return cmocka_run_group_tests_name("core_threads", tests, NULL, NULL);
}

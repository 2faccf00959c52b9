// SPDX-License-Identifier: GPL-2.0-or-later
/* links: CORE FAKE */
/*
 * core_threads_test.c - real threads on one VM, for ThreadSanitizer and ASan
 *
 * One thread a lane: a vCPU and its fault handler in one. One more is the
 * control plane: budget, tunables, discards, extents moved, pulled and lost.
 * Each page's words are plain memory where no MMU would make them atomic, so
 * what the core does not order, TSan sees. Ends after a number of accesses,
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

#include "fake_home.h"
#include "fake_priv.h"

#define WORKERS_MAX 4

struct ctx {
	struct fake_home *fh;
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
	return fh_random(rng) % n;
}

static u32 wakes(struct fake_home *fh, u32 gfn)
{
	return __atomic_load_n(&fh->wakes[gfn], __ATOMIC_ACQUIRE);
}

/* One access; a guest thread sleeps until it is woken, so does this. */
static void access_page(struct worker *w, u32 gfn, bool write, bool zero)
{
	struct fake_home *fh = w->c->fh;

	u32 turns = 0;

	for (;;) {
		u32 gen = wakes(fh, gfn);
		int r = write ? fh_write(fh, gfn, zero) :
				fh_read_checked(fh, gfn);

		if (r == FH_OK) {
			w->ok++;
			return;
		}
		if (r == FH_HELD) {
			fh_poll(fh, w->lane);
			sched_yield();
			continue;
		}
		switch (fh_fault(fh, w->lane, gfn, (u32)r)) {
		case DCM_FAULT_DONE:
			continue;
		case DCM_FAULT_LOST:
			w->lost++;
			return;
		case DCM_FAULT_STALL:
			fh_poll(fh, w->lane);
			sched_yield();
			continue;
		default:
			while (wakes(fh, gfn) == gen) {
				if (!fh_poll(fh, w->lane) && ++turns % 32 == 0)
					sched_yield();
			}
		}
	}
}

static void *worker_run(void *arg)
{
	struct worker *w = arg;
	struct fake_home *fh = w->c->fh;
	u32 n = fh->cfg.nr_pages, seq = (u32)rnd(&w->rng, n), gfn;
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
			fh_balance(fh, w->lane);
		if (!rnd(&w->rng, 200))
			fh_discard(fh, w->lane, gfn,
				   min(1 + (u32)rnd(&w->rng, 40), n - gfn));
		if (!rnd(&w->rng, 200))
			fh_hint(fh, w->lane, gfn,
				min(1 + (u32)rnd(&w->rng, 40), n - gfn),
				(enum dcm_hint)rnd(&w->rng, 3));
		if (fh->cfg.settles && !rnd(&w->rng, 200))
			fh_to_donor(fh, w->lane, gfn & ~(DCM_BLOCK_MAX - 1),
				    DCM_BLOCK_MAX, rnd(&w->rng, 2),
				    1 + rnd(&w->rng, 2000));
	}
	__atomic_sub_fetch(&w->c->running, 1, __ATOMIC_RELEASE);
	/* Others may wait for what this lane has in flight. */
	while (__atomic_load_n(&w->c->running, __ATOMIC_ACQUIRE)) {
		fh_poll(fh, w->lane);
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
	u64 moves, losses, kills;
};

static void lose_dead(struct control *k)
{
	struct fake_home *fh = k->c->fh;
	struct dcm_vm *vm = fh->vm;
	u32 e;
	int i;

	for (e = 0; e < vm->nr_extents; e++) {
		for (i = 0; i < 2; i++) {
			struct dcm_slab_ref *ref = vm->extent[e].slab[i];
			struct fh_slab *s;

			if (!ref)
				continue;
			s = fh_slab_of(fh, ref);
			if (s->state != FH_SLAB_DEAD ||
			    dcm_extent_lost(&vm->lane[k->lane], e, ref) < 0)
				continue;
			fh_slab_free(fh, s);
			k->losses++;
		}
	}
}

static void move(struct control *k)
{
	struct fake_home *fh = k->c->fh;
	struct dcm_vm *vm = fh->vm;
	struct fh_slab *s;
	int r;

	if (!k->moving) {
		u32 e = (u32)rnd(&k->rng, vm->nr_extents);
		u8 cur = vm->extent[e].cur;
		struct dcm_slab_ref *old = vm->extent[e].slab[cur];

		if (!old)
			return;
		if (vm->extent[e].slab[!cur]) {
			old = vm->extent[e].slab[!cur];
		} else if (rnd(&k->rng, 3)) {
			s = fh_slab_take(fh, rnd(&k->rng, 100), -1);
			if (!s)
				return;
			s->extent = e;
			__atomic_store_n(&s->state, FH_SLAB_LIVE,
					 __ATOMIC_RELEASE);
			if (dcm_extent_attach(vm, e, &s->ref))
				__atomic_store_n(&s->state, FH_SLAB_FREE,
						 __ATOMIC_RELEASE);
		}
		k->moving = true;
		k->extent = e;
		k->cursor = 0;
		k->slab = old;
	}
	r = dcm_extent_move(&vm->lane[k->lane], k->extent, k->slab, &k->cursor);
	if (r == -EAGAIN)
		return;
	s = fh_slab_of(fh, k->slab);
	if (r == -EIO && s->state == FH_SLAB_LIVE)
		fh_violation(fh,
			     "move says that slab %u can't be read, but it can",
			     (u32)s->ref.id);
	if (!r) {
		fh_slab_free(fh, s);
		k->moves++;
	}
	k->moving = false;
}

static void donor_event(struct control *k)
{
	struct fake_home *fh = k->c->fh;
	struct fh_donor *d = &fh->donor[rnd(&k->rng, fh->cfg.nr_donors)];
	u64 until = READ_ONCE(fh->tick) + rnd(&k->rng, 20000);
	u32 s;

	switch (rnd(&k->rng, 8)) {
	case 0:
		s = (u32)rnd(&k->rng, fh->cfg.nr_slabs);
		if (!rnd(&k->rng, 3) &&
		    READ_ONCE(fh->slab[s].state) == FH_SLAB_LIVE) {
			fh_slab_kill(fh, &fh->slab[s]);
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
	struct fake_home *fh = k->c->fh;
	const struct dcm_tunable *t;
	u64 v;

	fh_give_slabs(fh, rnd(&k->rng, 100));
	lose_dead(k);
	if (dcm_pending(&fh->vm->lane[k->lane]) || rnd(&k->rng, 2))
		move(k);
	switch (rnd(&k->rng, 64)) {
	case 0:
		v = dcm_min_budget(fh->vm);
		fh_budget(fh, rnd(&k->rng, 2) ? v : v + rnd(&k->rng, 600));
		break;
	case 1:
		t = &dcm_tunables[rnd(&k->rng, DCM_T_NR)];
		v = t->lo + rnd(&k->rng, t->hi - t->lo + 1);
		if (t == &dcm_tunables[DCM_T_largest_block] ||
		    t == &dcm_tunables[DCM_T_fresh_block])
			v = 4096ull << rnd(&k->rng, 5);
		if (dcm_tunable_set(fh->vm, t->name, v))
			fh_violation(fh, "tunable %s", t->name);
		break;
	case 2 ... 5:
		donor_event(k);
		break;
	case 6 ... 10:
		fh_balance(fh, k->lane);
		break;
	default:
		fh_poll(fh, k->lane);
	}
	sched_yield();
}

/* One thread from here on: end moves and losses, then look at everything. */
static void check_all(struct ctx *c, struct control *k)
{
	struct fake_home *fh = c->fh;
	u32 i, round;
	bool dead = true;

	memset(fh->donor, 0, sizeof(fh->donor));
	for (round = 0; k->moving || dead; round++) {
		if (round > 1000000)
			fh_violation(fh, "%s never ends",
				     k->moving ? "a move" : "a loss");
		fh_advance(fh, 500);
		for (i = 0; i <= c->workers; i++)
			fh_poll(fh, i);
		fh_give_slabs(fh, round);
		lose_dead(k);
		if (k->moving)
			move(k);
		dead = false;
		for (i = 0; i < fh->cfg.nr_slabs; i++)
			dead |= fh->slab[i].state == FH_SLAB_DEAD;
	}
	fh_settle(fh);
	for (i = 0; i < fh->vm->nr_extents; i++)
		fh_lost_scan(fh, i);
	fh_fsck(fh, true);
	for (i = 0; i < fh->cfg.nr_pages; i++)
		if (fh_access(fh, i % c->workers, i, false, false) &&
		    !fh_is_lost(fh, i))
			fh_violation(fh, "page %u can't be read", i);
	fh_settle(fh);
	fh_fsck(fh, true);
}

static void round_run(u64 seed, u64 steps, u64 *ok, u64 *lost)
{
	u64 rng = seed;
	struct fh_config cfg = { .nr_pages = 600 + (u32)rnd(&rng, 600),
				 .extent_pages = 64,
				 .nr_slabs = 64,
				 .nr_donors = 4,
				 .seed = seed,
				 .threads = true };
	struct ctx c = { .workers = 2 + (u32)rnd(&rng, WORKERS_MAX - 1),
			 .steps = steps };
	struct worker w[WORKERS_MAX];
	pthread_t th[WORKERS_MAX];
	struct control k = { .c = &c, .rng = seed * 31 + 7 };
	u32 i;

	cfg.nr_lanes = c.workers + 1;
	cfg.budget = 64 + 16 * cfg.nr_lanes + rnd(&rng, 200);
	cfg.dirty_bits = rnd(&rng, 2);
	cfg.touched_bits = rnd(&rng, 2);
	cfg.direct = rnd(&rng, 2);
	cfg.sparse = rnd(&rng, 2);
	cfg.settles = !cfg.sparse && rnd(&rng, 2);
	cfg.max_delay = (u32)rnd(&rng, 2000);
	cfg.qdepth = 2 + (u32)rnd(&rng, 60);
	cfg.p_again = (u32)rnd(&rng, 1000);
	cfg.p_error = (u32)rnd(&rng, 500);
	cfg.p_pinned = (u32)rnd(&rng, 500);
	cfg.p_install_fail = (u32)rnd(&rng, 200);
	snprintf(fh_repro, sizeof(fh_repro),
		 "SEED=%llu STEPS=%llu ROUNDS=1 core_threads_test",
		 (unsigned long long)seed, (unsigned long long)steps);
	c.fh = fh_create(&cfg);
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
		printf("# seed %llu: %u threads, %llu moves, %llu slabs lost\n",
		       (unsigned long long)seed, c.workers,
		       (unsigned long long)k.moves,
		       (unsigned long long)k.losses);
	fh_destroy(c.fh);
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

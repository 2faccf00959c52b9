// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * herd_test.c - bursts of extents of several VMs at once, on donors of which
 * some are slow
 *
 * The real donor.c, placement.c and choose.c of client/, one instance for each
 * VM; herd_world.c simulates connections, donors and time.
 *
 * A burst: every VM wants its extents at once, or one after the other. Judged
 * is how much the most loaded donor has, and that all extents are placed in
 * time, whatever one donor does.
 *
 *	SEED=n	of the first burst of each kind (default: fixed); a burst that
 *		fails prints its own
 */
/* links: tests/unit/herd_world.c kvm-dcm/client/donor.c kvm-dcm/client/list.c kvm-dcm/client/session.c kvm-dcm/client/exposed.c kvm-dcm/client/tier.c kvm-dcm/client/placement.c kvm-dcm/client/request.c kvm-dcm/client/choose.c kvm-dcm/client/address.c kvm-dcm/proto/wire.c kvm-dcm/lib/thread.c kvm-dcm/lib/log.c kvm-dcm/client/redundancy.c */
/* threads: one */
/* pkg: gnutls */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "herd_world.h"

#define BURSTS 100u

/* Extents each VM wants, all at once or one after the other. */
struct burst {
	u32 extents;
	bool together;
};

/* Give every VM its extents; the time in milliseconds, 0: longer than @within_ms. */
static u64 burst(const struct burst *b, u64 within_ms)
{
	u64 begin = herd.now;
	u32 v, n;

	do {
		for (n = 0, v = 0; v < herd.nr_vms; v++) {
			struct herd_vm *vm = &herd.vm[v];
			u32 e, to = b->together ?
					    b->extents :
					    min(vm->attached + 1, b->extents);

			for (e = 0; e < to; e++)
				if (!vm->has[e])
					dcm_client_want(&vm->client, e);
			n += vm->attached == b->extents;
		}
		if (n == herd.nr_vms)
			return (herd.now - begin) / HERD_MS + 1;
		herd_step();
	} while (herd.now < begin + within_ms * HERD_MS);
	return 0;
}

static u64 env_u64(const char *name, u64 def)
{
	const char *s = getenv(name);

	return s ? strtoull(s, NULL, 0) : def;
}

/* Of @slow donors at random messages take up to @slow_ms, there and back. */
static void slow_down(u32 slow, u32 slow_ms)
{
	u32 i, k, n;

	for (i = 0; i < slow; i++) {
		do
			k = (u32)herd_random(herd.nr_donors);
		while (herd.donor[k].one_way > HERD_MS);
		n = 50 + (u32)herd_random(slow_ms - 50);
		herd.donor[k].one_way = n * HERD_MS / 2;
		herd.donor[k].jitter = n * HERD_MS / 8;
	}
}

static void up(void)
{
	u32 v, i;
	bool all;

	do {
		herd_step();
		for (all = true, v = 0; v < herd.nr_vms; v++)
			for (i = 0; i < herd.nr_donors; i++)
				all = all &&
				      herd.vm[v].client.donor[i].load.known;
	} while (!all);
}

/* One random burst; how far the fullest donor is above the bound. */
static double one(u64 seed, u32 nr_donors, bool at_start)
{
	static const u32 vms[] = { 1, 2, 4, 8 };
	u32 slow_ms = at_start ? 300 : 1500, i, slow;
	struct burst b = { .extents = 64, .together = true };
	u64 most = 0, sum = 0, took;
	double mean;

	herd.rng = seed;
	herd_init(dcm_choose_random(&herd.rng), nr_donors, vms[herd_random(4)]);
	slow = (u32)herd_random(nr_donors / 2 + 1);
	slow_down(slow, slow_ms);
	if (!at_start) {
		up();
		herd_run(herd_random(1000) * HERD_MS);
		if (!herd_random(4)) {
			b.together = false;
			b.extents = 16;
		}
	}
	took = burst(&b, 60000);
	for (i = 0; i < nr_donors; i++) {
		most = max(most, herd.donor[i].used);
		sum += herd.donor[i].used;
	}
	mean = (double)sum / nr_donors;
	if (!took || (double)most > 1.25 * mean + 1)
		fail_msg("SEED=%llu: %u donors, %u slow, %u VMs, %u extents%s: most %llu, mean %.1f, %llu ms",
			 (unsigned long long)seed, nr_donors, slow, herd.nr_vms,
			 b.extents, b.together ? " at once" : " one by one",
			 (unsigned long long)most, mean,
			 (unsigned long long)took);
	herd_free();
	return ((double)most - 1) / mean;
}

static void bursts_of(u64 seed, u32 nr, u32 nr_donors, bool at_start)
{
	double worst = 0, x;
	u64 i;

	for (i = 0; i < nr; i++) {
		x = one(seed + i, nr_donors, at_start);
		worst = x > worst ? x : worst;
	}
	printf("# %u donors%s: %u bursts, the fullest less one is at most %.2f of the mean\n",
	       nr_donors, at_start ? ", at the start" : "", nr, worst);
}

static void bursts(u32 nr_donors, bool at_start)
{
	bursts_of(env_u64("SEED", 1618), BURSTS, nr_donors, at_start);
}

static void test_2_donors(void **state)
{
	(void)state;
	bursts(2, false);
}

static void test_4_donors(void **state)
{
	(void)state;
	bursts(4, false);
}

static void test_16_donors(void **state)
{
	(void)state;
	bursts(16, false);
}

/* The first donor that is connected must not get all. */
static void test_at_start(void **state)
{
	(void)state;
	bursts(2, true);
	bursts(4, true);
	bursts(16, true);
}

/*
 * An extent lands on a donor that has more than its part if all of its draws
 * were two such donors: three draws were too few in one burst of 200.
 */
static void test_unlucky_draws_at_start(void **state)
{
	(void)state;
	bursts_of(env_u64("SEED", 9080), 20, 16, true);
	bursts_of(env_u64("SEED", 77780), 20, 16, true);
	bursts_of(env_u64("SEED", 500450), 20, 16, true);
	bursts_of(env_u64("SEED", 500550), 20, 16, true);
}

/* One that says nothing any more: the others get all, soon. */
static void test_silent(void **state)
{
	struct burst b = { .extents = 64, .together = true };
	u64 took;

	(void)state;
	herd_init(2, 4, 2);
	up();
	herd.donor[1].deaf = true;
	took = burst(&b, 5000);
	assert_true(took > 0);
	assert_int_equal(herd.vm[0].on[1] + herd.vm[1].on[1], 0);
	assert_int_equal(herd.vm[0].nr_starved + herd.vm[1].nr_starved, 0);
	herd_free();
}

/* Slow ones of hundreds of extents: those of others don't wait for them. */
static void test_slow_holds_up_nobody(void **state)
{
	struct burst b = { .extents = 64, .together = true };
	u32 v;

	(void)state;
	herd_init(3, 2, 1);
	herd.donor[0].one_way = 1500 * HERD_MS;
	up();
	v = herd.vm[0].on[1];
	assert_int_equal(burst(&b, 1000), 0);
	/* half of them, at once; the slow one's are on their way */
	v = herd.vm[0].on[1] - v;
	assert_in_range(v, 24, 40);
	assert_true(burst(&b, 20000) > 0);
	herd_free();
}

/* A quarter of the memory, a quarter of the slabs, its earlier ones included. */
static void test_unequal(void **state)
{
	struct burst b = { .extents = 64, .together = true };
	u32 i;

	(void)state;
	for (i = 0; i < 40; i++) {
		bool alone = i & 1;

		herd_init(4 + i, 2, alone ? 1 : 4);
		herd.donor[0].total = 64;
		herd.donor[1].total = 256;
		if (alone)
			herd.donor[1].used = i;
		slow_down(i >> 1 & 1, 1500);
		up();
		assert_true(burst(&b, 60000) > 0);
		if (alone)
			/* 13 of the 64 extents, and those that the other VM has already */
			assert_in_range(herd.donor[0].used, 11, 13 + i / 5 + 3);
		else
			assert_in_range(herd.donor[0].used, 45, 57);
		herd_free();
	}
}

/* Full donors are not asked for more slabs than they have, and no extent waits. */
static void test_full(void **state)
{
	struct burst b = { .extents = 64, .together = true };

	(void)state;
	herd_init(5, 4, 2);
	herd.donor[2].used = herd.donor[2].total;
	herd.donor[3].used = herd.donor[3].total - 5;
	up();
	assert_true(burst(&b, 2000) > 0);
	assert_int_equal(herd.vm[0].nr_starved + herd.vm[1].nr_starved, 0);
	assert_int_equal(herd.donor[2].used, herd.donor[2].total);
	/* 61 and 62 */
	assert_in_range(max(herd.donor[0].used, herd.donor[1].used), 61, 77);
	herd_free();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_2_donors),
		cmocka_unit_test(test_4_donors),
		cmocka_unit_test(test_16_donors),
		cmocka_unit_test(test_at_start),
		cmocka_unit_test(test_unlucky_draws_at_start),
		cmocka_unit_test(test_silent),
		cmocka_unit_test(test_slow_holds_up_nobody),
		cmocka_unit_test(test_unequal),
		cmocka_unit_test(test_full),
	};

	dcm_log_setup((enum dcm_log_level)env_u64("LOG", 0), 2);
	return cmocka_run_group_tests_name("herd", tests, NULL, NULL);
}

// SPDX-License-Identifier: GPL-2.0-or-later
/* links: tests/unit/slab_worker_world.c kvm-dcm/client/slab_worker.c kvm-dcm/client/slab_look.c kvm-dcm/client/loss.c kvm-dcm/client/risk.c */
/* slab_worker_fill_test.c - slabs that lack pages are filled from others */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>
#include <cmocka.h>

#include "slab_worker_world.h"

static void test_a_second_slab_is_filled(void **state)
{
	struct fake_slab *a = fake_slab_lend(3, 0), *b;

	(void)state;
	rounds();
	assert_int_equal(world.fills, 0);
	world.fill = -EAGAIN;
	b = fake_slab_lend(3, 1);
	assert_int_equal(dcm_slab_worker_round(&worker), 0);
	assert_int_equal(dcm_slab_worker_round(&worker), 0);
	assert_true(a->has && b->has);
	assert_int_equal(worker.nr_filling, 1);
	assert_int_equal(world.fills, 1);
	/* there is no hurry */
	world.fill = 20;
	assert_in_range(dcm_slab_worker_round(&worker), 1, 20);
	assert_int_equal(worker.nr_filling, 1);
	assert_int_equal(world.fills, 2);
	world.fill = 0;
	rounds();
	assert_int_equal(worker.nr_filling, 0);
	assert_int_equal(world.fills, 3);
}

/*
 * A donor asks for a slab while a GC worker changes it: a copy of its pages made
 * then would be out of date afterwards.
 */
static void test_no_copy_of_what_a_gc_worker_changes(void **state)
{
	struct fake_slab *old = fake_slab_lend(9, 0), *l;
	u32 i;

	(void)state;
	rounds();
	world.held = true;
	dcm_slab_worker_evict(&worker, &old->slab);
	l = fake_slab_lend(9, 1);
	for (i = 0; i < 5; i++)
		assert_true(dcm_slab_worker_round(&worker) >= 0);
	assert_true(l->has && old->has);
	assert_int_equal(world.fills, 0);
	assert_false(where_is(old) || where_is(l));
	world.held = false;
	rounds();
	assert_true(world.fills > 0 && !old->has && old->released == 1);
	assert_true(where_is(l));
}

/* The slab that is being filled is lost: another of its extent goes on. */
static void test_a_fill_that_was_begun_is_not_left(void **state)
{
	struct fake_slab *l[3];
	u32 i;

	(void)state;
	for (i = 0; i < 2; i++)
		l[i] = fake_slab_lend(3, 0);
	rounds();
	assert_int_equal(world.fills, 1);
	world.fill = -EAGAIN;
	world.thin = 3;
	worker.looked_ns = 0;
	assert_int_equal(dcm_slab_worker_round(&worker), 0);
	assert_int_equal(world.fills, 2);
	assert_int_equal(worker.nr_filling, 1);
	/* the newest was found thin */
	lose(l[1]);
	while (!l[1]->released)
		usleep((useconds_t)max(dcm_slab_worker_round(&worker), 0) *
		       1000);
	l[2] = fake_slab_lend(3, 1);
	world.fill = 0;
	rounds();
	assert_true(l[0]->has && l[2]->has);
	assert_int_equal(worker.nr_filling, 0);
	assert_int_equal(world.thin, EXTENTS);
}

/* A donor was away for a while: what it has missed is found, once. */
static void test_thin_extents_are_found(void **state)
{
	u32 before;

	(void)state;
	fake_slab_lend(3, 0);
	fake_slab_lend(3, 1);
	fake_slab_lend(4, 0);
	rounds();
	before = world.fills;
	world.thin = 3;
	rounds();
	assert_int_equal(world.fills, before);
	worker.looked_ns = 0;
	rounds();
	assert_int_equal(world.fills, before + 1);
	/* of one slab nothing can be filled */
	world.thin = 4;
	worker.looked_ns = 0;
	rounds();
	assert_int_equal(world.fills, before + 1);
}

/* A slab that is better elsewhere goes when that is filled; at once if its donor asks. */
static void test_the_copy_comes_first(void **state)
{
	struct fake_slab *old[2];
	u32 i, k;

	(void)state;
	world.most = 3;
	for (k = 0; k < 2; k++) {
		world.fill = 0;
		old[k] = fake_slab_lend(3 + k, 0);
		fake_slab_lend(3 + k, 0);
		rounds();
		world.fill = -EAGAIN;
		fake_slab_lend(3 + k, 1);
		for (i = 0; i < 2; i++)
			dcm_slab_worker_round(&worker);
		old[k]->slab.leaving = true;
		old[k]->slab.evicting = k == 1;
		dcm_slab_worker_evict(&worker, &old[k]->slab);
		for (i = 0; i < 5; i++)
			assert_true(dcm_slab_worker_round(&worker) >= 0);
		assert_int_equal(old[k]->has, k == 0);
		world.fill = 0;
		rounds();
		assert_false(old[k]->has);
		assert_int_equal(old[k]->released, 1);
	}
}

/* Files are filled behind: at the rebuild's pace, and in a hurry when it is much. */
static void test_what_lags_is_filled(void **state)
{
	struct fake_slab *file;
	struct dcm_risk risk;

	(void)state;
	fake_slab_lend(3, 0);
	file = fake_slab_lend(3, 1);
	file->slab.ref.rank = DCM_RANK_FILE;
	rounds();
	assert_int_equal(world.lag_bound, 0);
	world.fills = 0;
	worker.lag_most = 100;
	world.lag = 50;
	worker.looked_ns = 0;
	rounds();
	assert_int_equal(world.lag_bound, 100);
	assert_int_equal(world.fills, 1);
	assert_int_equal(world.hurried, 0);
	assert_int_equal(worker.nr_filling, 0);
	/* it is no exposed extent, and dies in part with the donor of memory */
	dcm_slab_worker_risk(&worker, &risk);
	assert_int_equal(dcm_risk_exposed(&risk, 2), 0);
	assert_int_equal(risk.lag_pages, 50);
	assert_int_equal(dcm_risk_alone(&risk, 0, 1 << 20), 50 * 4096);
	assert_int_equal(dcm_risk_alone(&risk, 1, 1 << 20), 0);
	world.lag = 51;
	worker.looked_ns = 0;
	assert_in_range(dcm_slab_worker_round(&worker), 0, DCM_LAG_LOOK_MS);
	assert_int_equal(world.hurried, 1);
	assert_int_equal(world.lag, 0);
	worker.looked_ns = 0;
	assert_int_equal(dcm_slab_worker_round(&worker), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		TEST(test_a_second_slab_is_filled),
		TEST(test_no_copy_of_what_a_gc_worker_changes),
		TEST(test_a_fill_that_was_begun_is_not_left),
		TEST(test_thin_extents_are_found),
		TEST(test_the_copy_comes_first),
		TEST(test_what_lags_is_filled),
#undef TEST
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

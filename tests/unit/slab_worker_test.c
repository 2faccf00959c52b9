// SPDX-License-Identifier: GPL-2.0-or-later
/* links: tests/unit/slab_worker_world.c kvm-dcm/client/slab_worker.c kvm-dcm/client/slab_look.c kvm-dcm/client/loss.c kvm-dcm/client/risk.c */
/* slab_worker_test.c - slabs come and go: attached once, moved, lost, given back */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "slab_worker_world.h"

static void test_a_slab_is_attached_and_found(void **state)
{
	struct fake_slab *l = fake_slab_lend(5, 1);

	(void)state;
	assert_int_equal(world.wakes, 1);
	assert_false(where_is(l));
	rounds();
	assert_true(l->has && where_is(l));
	assert_ptr_equal(dcm_slab_worker_first(&worker, 5)->slab, &l->slab);
	assert_null(dcm_slab_worker_first(&worker, EXTENTS));
	assert_int_equal(l->released, 0);
}

static void test_refused_by_the_pager_is_given_back(void **state)
{
	struct fake_slab *l;

	(void)state;
	world.attach = -EINVAL;
	l = fake_slab_lend(0, 0);
	rounds();
	assert_int_equal(l->released, 1);
	assert_null(l->slab.priv);
	assert_null(dcm_slab_worker_first(&worker, 0));
}

static void test_no_such_extent(void **state)
{
	struct fake_slab *l = fake_slab_lend(EXTENTS, 0);

	(void)state;
	assert_int_equal(l->released, 1);
	assert_int_equal(dcm_slab_worker_round(&worker), -1);
}

static void test_asked_back_before_the_pager_has_it(void **state)
{
	struct fake_slab *l = fake_slab_lend(1, 0);

	(void)state;
	dcm_slab_worker_evict(&worker, &l->slab);
	rounds();
	assert_int_equal(l->attached, 0);
	assert_int_equal(l->released, 1);
	assert_int_equal(l->others, 1);
	/* crosses the release */
	dcm_slab_worker_evict(&worker, &l->slab);
	lose(l);
	assert_int_equal(dcm_slab_worker_round(&worker), -1);
	assert_false(dcm_slab_worker_losing(&worker));
}

static void test_moved_to_another(void **state)
{
	struct fake_slab *a = fake_slab_lend(7, 0), *b, *c;

	(void)state;
	rounds();
	world.move = -EAGAIN;
	dcm_slab_worker_evict(&worker, &a->slab);
	assert_false(where_is(a));
	assert_int_equal(dcm_slab_worker_round(&worker), 0);
	b = fake_slab_lend(7, 1);
	c = fake_slab_lend(7, 1);
	assert_int_equal(dcm_slab_worker_round(&worker), 0);
	assert_true(a->has && b->has && !c->has);
	assert_ptr_equal(dcm_slab_worker_other(&worker, a->slab.priv)->slab,
			 &b->slab);
	world.move = 0;
	rounds();
	assert_true(b->has && c->has && a->released == 1);
	/* the older one is the one that GC workers use */
	assert_true(where_is(b) && !where_is(c));
	dcm_slab_worker_evict(&worker, &c->slab);
	rounds();
	assert_true(where_is(b));
}

static void test_waits_for_the_other_one(void **state)
{
	struct fake_slab *a = fake_slab_lend(7, 0), *b;

	(void)state;
	ops.other_wait_ns = 3600ull * 1000000000;
	rounds();
	dcm_slab_worker_evict(&worker, &a->slab);
	assert_true(dcm_slab_worker_round(&worker) > 0);
	assert_true(a->has);
	b = fake_slab_lend(7, 1);
	rounds();
	assert_int_equal(a->released, 1);
	assert_true(where_is(b));
	/* its time is over: moved without another */
	ops.other_wait_ns = 0;
	dcm_slab_worker_evict(&worker, &b->slab);
	rounds();
	assert_int_equal(b->released, 1);
}

static void test_one_at_a_time(void **state)
{
	struct fake_slab *l[3] = { fake_slab_lend(1, 0), fake_slab_lend(2, 0),
				   fake_slab_lend(3, 0) };
	u32 i;

	(void)state;
	ops.one_move = true;
	rounds();
	for (i = 0; i < 3; i++)
		dcm_slab_worker_evict(&worker, &l[i]->slab);
	for (i = 0; i < 3; i++) {
		assert_int_equal(l[0]->released + l[1]->released +
					 l[2]->released,
				 i);
		dcm_slab_worker_round(&worker);
	}
	assert_int_equal(dcm_slab_worker_round(&worker), -1);
}

static void test_what_cannot_be_moved(void **state)
{
	struct fake_slab *l = fake_slab_lend(1, 0);

	(void)state;
	rounds();
	world.held = true;
	dcm_slab_worker_evict(&worker, &l->slab);
	assert_true(dcm_slab_worker_round(&worker) > 0);
	assert_int_equal(l->others, 1);
	world.held = false;
	world.move = -ENOSPC;
	assert_true(dcm_slab_worker_round(&worker) > 0);
	assert_int_equal(l->others, 2);
	world.move = -EIO;
	assert_true(dcm_slab_worker_round(&worker) > 0);
	assert_int_equal(l->stale, 1);
	assert_true(l->has && !l->released);
	lose(l);
	rounds();
	assert_int_equal(l->released, 1);
	assert_int_equal(world.lines, 0); /* no page was lost */
}

/* Two donors are lost at the same moment: a line for each, with its own extents. */
static void test_a_line_for_each_lost_donor(void **state)
{
	struct fake_slab *l[20];
	u32 i;

	(void)state;
	for (i = 0; i < 20; i++)
		l[i] = fake_slab_lend(i, i == 17);
	rounds();
	world.lose = -EAGAIN;
	for (i = 0; i < 20; i++)
		lose(l[i]);
	lose(l[3]); /* once more */
	assert_true(dcm_slab_worker_losing(&worker));
	assert_true(dcm_slab_worker_round(&worker) > 0);
	assert_true(l[0]->has); /* more may follow */
	usleep(60000);
	assert_int_equal(dcm_slab_worker_round(&worker), 1);
	assert_int_equal(world.lines, 0);
	world.lose = 16;
	rounds();
	assert_false(dcm_slab_worker_losing(&worker));
	assert_int_equal(worker.nr_lost, 20);
	assert_int_equal(world.lines, 2);
	assert_string_equal(
		world.line[0],
		"donor near (unix:/run/d) lost: 1216 KiB of VM test in extents 0,1,2,3,4,5,6,7,8,9,10,11,... had no other copy: accesses to it block");
	assert_string_equal(
		world.line[1],
		"donor far (tcp:far:9740) lost: 64 KiB of VM test in extent 17 had no other copy: accesses to it block");
	for (i = 0; i < 20; i++)
		assert_int_equal(l[i]->released, 1);
}

static void each_count(struct dcm_slab_worker *w, struct dcm_slab_record *r,
		       void *arg)
{
	assert_ptr_equal(w, &worker);
	*(u32 *)arg += r->extent;
}

static void test_taken_over(void **state)
{
	struct fake_slab *a = fake_slab_new(9, 0), *b = fake_slab_new(9, 1);
	u32 sum = 0;

	(void)state;
	a->has = b->has = true;
	world.slabs_of[9] = 2;
	assert_non_null(dcm_slab_worker_adopt(&worker, &a->slab, 1, true));
	assert_non_null(dcm_slab_worker_adopt(&worker, &b->slab, 2, false));
	dcm_slab_worker_each(&worker, each_count, &sum);
	assert_int_equal(sum, 18);
	rounds();
	assert_int_equal(a->released, 1);
	assert_true(where_is(b));
	sum = 0;
	dcm_slab_worker_each(&worker, each_count, &sum);
	assert_int_equal(sum, 9);
}

static void test_starved_is_said_once(void **state)
{
	(void)state;
	dcm_slab_worker_starved(&worker, 3);
	dcm_slab_worker_starved(&worker, 4);
	assert_int_equal(world.lines, 1);
	assert_non_null(strstr(world.line[0],
			       "VM test: no donor has a slab for extent 3"));
}

/* ---- threads ---- */

static bool over;

static void *client_thread(void *arg)
{
	unsigned int seed = 1;
	u32 i;

	(void)arg;
	for (i = 0; i < SLABS; i++) {
		struct fake_slab *l =
			fake_slab_lend((u32)rand_r(&seed) % EXTENTS,
				      (u32)rand_r(&seed) % 2);
		/* one that may have been released already */
		struct fake_slab *old =
			world.fakes[(u32)rand_r(&seed) % world.nr_fakes];

		if (rand_r(&seed) % 3)
			dcm_slab_worker_evict(&worker, &old->slab);
		else
			lose(old);
		if (rand_r(&seed) % 8 == 0)
			dcm_slab_worker_evict(&worker, &l->slab);
	}
	for (i = 0; i < SLABS; i++)
		lose(world.fakes[i]);
	__atomic_store_n(&over, true, __ATOMIC_RELEASE);
	return NULL;
}

static void *looking_thread(void *arg)
{
	u32 donor, i = 0, *seen = arg;
	u64 id;

	while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE)) {
		*seen += dcm_slab_worker_where(&worker, i++ % EXTENTS, &donor,
					       &id);
		*seen += dcm_slab_worker_losing(&worker);
	}
	return NULL;
}

static void test_threads_cross(void **state)
{
	pthread_t client, looking;
	u32 seen = 0, i;

	(void)state;
	over = false;
	world.lose = 1;
	assert_int_equal(pthread_create(&client, NULL, client_thread, NULL), 0);
	assert_int_equal(pthread_create(&looking, NULL, looking_thread, &seen),
			 0);
	while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE))
		dcm_slab_worker_round(&worker);
	pthread_join(client, NULL);
	pthread_join(looking, NULL);
	rounds();
	assert_int_equal(world.nr_fakes, SLABS);
	for (i = 0; i < SLABS; i++)
		assert_true(world.fakes[i]->released == 1 &&
			    !world.fakes[i]->has);
	for (i = 0; i < EXTENTS; i++)
		assert_null(dcm_slab_worker_first(&worker, i));
	assert_false(dcm_slab_worker_losing(&worker));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		TEST(test_a_slab_is_attached_and_found),
		TEST(test_refused_by_the_pager_is_given_back),
		TEST(test_no_such_extent),
		TEST(test_asked_back_before_the_pager_has_it),
		TEST(test_moved_to_another),
		TEST(test_waits_for_the_other_one),
		TEST(test_one_at_a_time),
		TEST(test_what_cannot_be_moved),
		TEST(test_a_line_for_each_lost_donor),
		TEST(test_taken_over),
		TEST(test_starved_is_said_once),
		TEST(test_threads_cross),
#undef TEST
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

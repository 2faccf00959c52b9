// SPDX-License-Identifier: GPL-2.0-or-later
/* links: kvm-dcm/client/slab_worker.c kvm-dcm/client/loss.c kvm-dcm/client/risk.c */
/*
 * slab_worker_test.c - slabs come and go: attached once, moved, lost, given back
 *
 * The pager is the test's: it says of each slab whether it has it, and answers
 * as it is told to. The client is the test's too: it counts what is given back.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/slab_worker.h"

#define EXTENTS 64u
#define SLABS 512u
#define LINES 8u

/* A slab, and what was done with it; in the threads' test, atomic. */
struct fake_slab {
	bool has; /* the pager has it */
	u32 released;
	u32 stale;
	u32 others;
	u32 attached;
	struct dcm_client_slab slab; /* last: it ends with an array */
};

static struct fake_slab *fakes[SLABS];
static u32 nr_fakes;
static char line[LINES][300];
static u32 lines;
static u32 wakes;
static int attach_is, move_is, fill_is;
static u32 fills; /* calls since setup() */
static u32 thin_extent; /* EXTENTS: none */
static s64 lose_is;
static bool held_is;
static u32 slabs_of[EXTENTS]; /* of each extent, that the pager has */

/* ---- the client ---- */

void dcm_client_release(struct dcm_client *client, struct dcm_client_slab *slab)
{
	struct fake_slab *l = container_of(slab, struct fake_slab, slab);

	(void)client;
	assert_false(l->has);
	assert_int_equal(__atomic_add_fetch(&l->released, 1, __ATOMIC_SEQ_CST),
			 1);
}

void dcm_client_want_other(struct dcm_client *client,
			   struct dcm_client_slab *slab)
{
	(void)client;
	__atomic_add_fetch(&container_of(slab, struct fake_slab, slab)->others,
			   1, __ATOMIC_SEQ_CST);
}

void dcm_client_stale(struct dcm_client *client, struct dcm_client_slab *slab)
{
	(void)client;
	container_of(slab, struct fake_slab, slab)->stale++;
}

void dcm_log(enum dcm_log_level level, const char *fmt, ...)
{
	va_list ap;

	assert_true(level <= DCM_LOG_WARNING);
	va_start(ap, fmt);
	vsnprintf(line[lines++ % LINES], sizeof(line[0]), fmt, ap);
	va_end(ap);
}

bool dcm_log_allow(struct dcm_log_rate *rate, uint64_t now, uint64_t every_ms)
{
	(void)now;
	assert_true(every_ms > 0);
	return !rate->held++;
}

/* ---- the pager ---- */

static struct fake_slab *fake_slab_of(struct dcm_slab_record *r)
{
	return container_of(r->slab, struct fake_slab, slab);
}

static void pager_wake(struct dcm_slab_worker *w)
{
	assert_non_null(w);
	__atomic_add_fetch(&wakes, 1, __ATOMIC_SEQ_CST);
}

static int pager_attach(struct dcm_slab_worker *w, struct dcm_slab_record *r)
{
	struct fake_slab *l = fake_slab_of(r);

	(void)w;
	assert_false(l->has);
	if (slabs_of[r->extent] == 2)
		return -EAGAIN;
	if (attach_is)
		return attach_is;
	l->has = true;
	l->attached++;
	slabs_of[r->extent]++;
	return 0;
}

static bool pager_held(struct dcm_slab_worker *w, u32 extent)
{
	assert_true(extent < w->nr_extents);
	return held_is;
}

static void slab_drop(struct dcm_slab_record *r)
{
	fake_slab_of(r)->has = false;
	slabs_of[r->extent]--;
}

static int pager_move(struct dcm_slab_worker *w, struct dcm_slab_record *r)
{
	(void)w;
	assert_true(fake_slab_of(r)->has);
	if (!move_is)
		slab_drop(r);
	return move_is;
}

static int pager_fill(struct dcm_slab_worker *w, struct dcm_slab_record *r)
{
	(void)w;
	assert_true(fake_slab_of(r)->has);
	assert_false(held_is);
	fills++;
	if (!fill_is && r->extent == thin_extent)
		thin_extent = EXTENTS;
	return fill_is;
}

static bool pager_thin(struct dcm_slab_worker *w, u32 extent)
{
	(void)w;
	assert_true(slabs_of[extent] > 0);
	return extent == thin_extent;
}

static s64 pager_lose(struct dcm_slab_worker *w, struct dcm_slab_record *r)
{
	(void)w;
	assert_true(fake_slab_of(r)->has);
	if (lose_is != -EAGAIN)
		slab_drop(r);
	return lose_is;
}

static struct dcm_slab_worker_ops ops;
static struct dcm_slab_worker worker;
static const struct dcm_host_donor donors[] = {
	{ .name = "near", .address = "unix:/run/d" },
	{ .name = "far", .address = "tcp:far:9740" },
};

static int setup(void **state)
{
	(void)state;
	ops = (struct dcm_slab_worker_ops){
		.record_bytes = sizeof(struct dcm_slab_record) + 16,
		.wake = pager_wake,
		.attach = pager_attach,
		.held = pager_held,
		.move = pager_move,
		.fill = pager_fill,
		.thin = pager_thin,
		.lose = pager_lose,
	};
	memset(&worker, 0, sizeof(worker));
	memset(slabs_of, 0, sizeof(slabs_of));
	nr_fakes = lines = wakes = 0;
	attach_is = move_is = fill_is = 0;
	fills = 0;
	thin_extent = EXTENTS;
	lose_is = 0;
	held_is = false;
	return dcm_slab_worker_init(&worker, &ops, "VM test", "block", EXTENTS);
}

static int teardown(void **state)
{
	(void)state;
	dcm_slab_worker_free(&worker);
	while (nr_fakes)
		free(fakes[--nr_fakes]);
	return 0;
}

static struct fake_slab *fake_slab_new(u32 extent, u32 donor)
{
	struct fake_slab *l = calloc(1, sizeof(*l));

	assert_non_null(l);
	l->slab.extent = extent;
	l->slab.donor = donor;
	l->slab.ref.id = 1000 + nr_fakes;
	fakes[nr_fakes++] = l;
	return l;
}

static struct fake_slab *fake_slab_lend(u32 extent, u32 donor)
{
	struct fake_slab *l = fake_slab_new(extent, donor);

	dcm_slab_worker_attached(&worker, extent, &l->slab);
	return l;
}

static void lose(struct fake_slab *l)
{
	dcm_slab_worker_lost(&worker, &l->slab, &donors[l->slab.donor]);
}

/* Rounds until there is nothing to do. */
static void rounds(void)
{
	int ms;

	while ((ms = dcm_slab_worker_round(&worker)) >= 0)
		usleep((useconds_t)ms * 1000);
}

static bool where_is(const struct fake_slab *l)
{
	u32 donor;
	u64 id;

	return dcm_slab_worker_where(&worker, l->slab.extent, &donor, &id) &&
	       donor == l->slab.donor && id == l->slab.ref.id;
}

static void test_a_slab_is_attached_and_found(void **state)
{
	struct fake_slab *l = fake_slab_lend(5, 1);

	(void)state;
	assert_int_equal(wakes, 1);
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
	attach_is = -EINVAL;
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
	move_is = -EAGAIN;
	dcm_slab_worker_evict(&worker, &a->slab);
	assert_false(where_is(a));
	assert_int_equal(dcm_slab_worker_round(&worker), 0);
	b = fake_slab_lend(7, 1);
	c = fake_slab_lend(7, 1);
	assert_int_equal(dcm_slab_worker_round(&worker), 0);
	assert_true(a->has && b->has && !c->has);
	assert_ptr_equal(dcm_slab_worker_other(&worker, a->slab.priv)->slab,
			 &b->slab);
	move_is = 0;
	rounds();
	assert_true(b->has && c->has && a->released == 1);
	assert_false(where_is(b));
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
	held_is = true;
	dcm_slab_worker_evict(&worker, &l->slab);
	assert_true(dcm_slab_worker_round(&worker) > 0);
	assert_int_equal(l->others, 1);
	held_is = false;
	move_is = -ENOSPC;
	assert_true(dcm_slab_worker_round(&worker) > 0);
	assert_int_equal(l->others, 2);
	move_is = -EIO;
	assert_true(dcm_slab_worker_round(&worker) > 0);
	assert_int_equal(l->stale, 1);
	assert_true(l->has && !l->released);
	lose(l);
	rounds();
	assert_int_equal(l->released, 1);
	assert_int_equal(lines, 0); /* no page was lost */
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
	lose_is = -EAGAIN;
	for (i = 0; i < 20; i++)
		lose(l[i]);
	lose(l[3]); /* once more */
	assert_true(dcm_slab_worker_losing(&worker));
	assert_true(dcm_slab_worker_round(&worker) > 0);
	assert_true(l[0]->has); /* more may follow */
	usleep(60000);
	assert_int_equal(dcm_slab_worker_round(&worker), 1);
	assert_int_equal(lines, 0);
	lose_is = 16;
	rounds();
	assert_false(dcm_slab_worker_losing(&worker));
	assert_int_equal(worker.nr_lost, 20);
	assert_int_equal(lines, 2);
	assert_string_equal(
		line[0],
		"donor near (unix:/run/d) lost: 1216 KiB of VM test in extents 0,1,2,3,4,5,6,7,8,9,10,11,... had no other copy: accesses to it block");
	assert_string_equal(
		line[1],
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
	slabs_of[9] = 2;
	assert_non_null(dcm_slab_worker_adopt(&worker, &a->slab, true));
	assert_non_null(dcm_slab_worker_adopt(&worker, &b->slab, false));
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
	assert_int_equal(lines, 1);
	assert_non_null(
		strstr(line[0], "VM test: no donor has a slab for extent 3"));
}

static void test_a_second_slab_is_filled(void **state)
{
	struct fake_slab *a = fake_slab_lend(3, 0), *b;

	(void)state;
	rounds();
	assert_int_equal(fills, 0);
	fill_is = -EAGAIN;
	b = fake_slab_lend(3, 1);
	assert_int_equal(dcm_slab_worker_round(&worker), 0);
	assert_int_equal(dcm_slab_worker_round(&worker), 0);
	assert_true(a->has && b->has);
	assert_int_equal(worker.nr_filling, 1);
	assert_int_equal(fills, 1);
	/* there is no hurry */
	fill_is = 20;
	assert_in_range(dcm_slab_worker_round(&worker), 1, 20);
	assert_int_equal(worker.nr_filling, 1);
	assert_int_equal(fills, 2);
	fill_is = 0;
	rounds();
	assert_int_equal(worker.nr_filling, 0);
	assert_int_equal(fills, 3);
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
	held_is = true;
	dcm_slab_worker_evict(&worker, &old->slab);
	l = fake_slab_lend(9, 1);
	for (i = 0; i < 5; i++)
		assert_true(dcm_slab_worker_round(&worker) >= 0);
	assert_true(l->has && old->has);
	assert_int_equal(fills, 0);
	assert_false(where_is(old) || where_is(l));
	held_is = false;
	rounds();
	assert_true(fills > 0 && !old->has && old->released == 1);
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
	assert_int_equal(fills, 1);
	fill_is = -EAGAIN;
	thin_extent = 3;
	worker.looked_ns = 0;
	assert_int_equal(dcm_slab_worker_round(&worker), 0);
	assert_int_equal(fills, 2);
	assert_int_equal(worker.nr_filling, 1);
	/* the newest was found thin */
	lose(l[1]);
	while (!l[1]->released)
		usleep((useconds_t)max(dcm_slab_worker_round(&worker), 0) *
		       1000);
	l[2] = fake_slab_lend(3, 1);
	fill_is = 0;
	rounds();
	assert_true(l[0]->has && l[2]->has);
	assert_int_equal(worker.nr_filling, 0);
	assert_int_equal(thin_extent, EXTENTS);
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
	before = fills;
	thin_extent = 3;
	rounds();
	assert_int_equal(fills, before);
	worker.looked_ns = 0;
	rounds();
	assert_int_equal(fills, before + 1);
	/* of one slab nothing can be filled */
	thin_extent = 4;
	worker.looked_ns = 0;
	rounds();
	assert_int_equal(fills, before + 1);
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
		struct fake_slab *old = fakes[(u32)rand_r(&seed) % nr_fakes];

		if (rand_r(&seed) % 3)
			dcm_slab_worker_evict(&worker, &old->slab);
		else
			lose(old);
		if (rand_r(&seed) % 8 == 0)
			dcm_slab_worker_evict(&worker, &l->slab);
	}
	for (i = 0; i < SLABS; i++)
		lose(fakes[i]);
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
	lose_is = 1;
	assert_int_equal(pthread_create(&client, NULL, client_thread, NULL), 0);
	assert_int_equal(pthread_create(&looking, NULL, looking_thread, &seen),
			 0);
	while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE))
		dcm_slab_worker_round(&worker);
	pthread_join(client, NULL);
	pthread_join(looking, NULL);
	rounds();
	assert_int_equal(nr_fakes, SLABS);
	for (i = 0; i < SLABS; i++)
		assert_true(fakes[i]->released == 1 && !fakes[i]->has);
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
		TEST(test_a_second_slab_is_filled),
		TEST(test_no_copy_of_what_a_gc_worker_changes),
		TEST(test_a_fill_that_was_begun_is_not_left),
		TEST(test_thin_extents_are_found),
		TEST(test_threads_cross),
#undef TEST
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

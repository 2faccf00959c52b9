// SPDX-License-Identifier: GPL-2.0-or-later
/* links: donor-daemon/data_poll.c */
/*
 * data_poll_test.c - a data worker polls where that pays, and gives way
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <cmocka.h>

#include "../../donor-daemon/data_poll.h"

#define US 1000u
#define MS (1000u * US)

static cpu_set_t all;

static struct dcm_poll begin(void)
{
	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	return (struct dcm_poll){ .ns = 100 * US, .cpus = &all, .home = -1 };
}

static void learn(struct dcm_poll *p, unsigned int nr, u64 now, u64 idle_ns)
{
	while (nr--)
		dcm_poll_learn(p, now, idle_ns);
}

/* Every second request comes soon: it stays as it is, @on or not. */
static void half_come_soon(struct dcm_poll *p, bool on)
{
	for (unsigned int i = 0; i < 1000; i++) {
		learn(p, 1, 0, 10 * US);
		learn(p, 1, 0, 5 * MS);
		assert_int_equal(p->on, on);
	}
}

/* It begins when most requests come soon, and ends when few do. */
static void test_dense(void **state)
{
	struct dcm_poll p = begin();

	(void)state;
	learn(&p, 1000, 0, 101 * US);
	assert_false(p.on);
	learn(&p, 8, 0, 100 * US);
	assert_false(p.on);
	learn(&p, 40, 0, 10 * US);
	assert_true(p.on);
	half_come_soon(&p, true);
	learn(&p, 40, 0, 5 * MS);
	assert_false(p.on);
	half_come_soon(&p, false);
}

/* With poll-us = 0 it never does. */
static void test_never(void **state)
{
	struct dcm_poll p = begin();

	(void)state;
	p.ns = 0;
	learn(&p, 1000, 0, 1);
	assert_false(p.on);
}

/* A thread that wants the CPU gets it, for longer each time; a short loss is none. */
static void test_gives_way(void **state)
{
	struct dcm_poll p = begin();
	u64 now = 1000 * MS, leave = 4 * MS;
	unsigned int i;

	(void)state;
	learn(&p, 100, now, US);
	assert_true(p.on);
	assert_false(dcm_poll_lost(&p, now, 499 * US));
	assert_true(p.on);
	for (i = 0; i < 20; i++) {
		assert_true(dcm_poll_lost(&p, now, 3 * MS));
		assert_false(p.on);
		learn(&p, 100, now + leave - 1, US);
		assert_false(p.on);
		now += leave;
		learn(&p, 1, now, US);
		assert_true(p.on);
		leave = leave < 1000 * MS ? 2 * leave : leave;
	}
	assert_true(leave < 2000 * MS);
	/* much later another time: short again */
	now += 11 * MS;
	assert_true(dcm_poll_lost(&p, now, 3 * MS));
	learn(&p, 1, now + 4 * MS, US);
	assert_true(p.on);
}

/* Where a pinned worker sleeps there runs what it waits for: it polls elsewhere. */
static void test_polls_on_another_cpu(void **state)
{
	struct dcm_poll p = begin();
	cpu_set_t now;
	int home = 0;

	(void)state;
	if (CPU_COUNT(&all) < 2)
		skip();
	while (!CPU_ISSET(home, &all))
		home++;
	p.home = home;
	learn(&p, 100, 0, US);
	assert_true(p.on);
	sched_getaffinity(0, sizeof(now), &now);
	assert_false(CPU_ISSET(home, &now));
	assert_int_equal(CPU_COUNT(&now), CPU_COUNT(&all) - 1);
	learn(&p, 100, 0, MS);
	assert_false(p.on);
	sched_getaffinity(0, sizeof(now), &now);
	assert_true(CPU_ISSET(home, &now));
	assert_int_equal(CPU_COUNT(&now), 1);
	pthread_setaffinity_np(pthread_self(), sizeof(all), &all);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_dense),
		cmocka_unit_test(test_never),
		cmocka_unit_test(test_gives_way),
		cmocka_unit_test(test_polls_on_another_cpu),
	};

	return cmocka_run_group_tests_name("data_poll", tests, NULL, NULL);
}

// SPDX-License-Identifier: GPL-2.0-or-later
/* fair_test.c - turns among tenants: shares, delays, and what gains nothing */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <cmocka.h>

#include "../../donor-daemon/fair.h"

#define MANY 200

static const int tenant_a, tenant_b, tenant_c;

/* Give the next flow a turn that costs @cost; returns the flow's owner. */
static const void *turn(struct dcm_fair *fair, u64 cost, bool again)
{
	struct dcm_fair_entry *e = dcm_fair_take(fair);
	struct dcm_flow *flow;
	const void *owner;

	if (!e)
		return NULL;
	flow = e->flow;
	owner = flow->owner;
	if (again)
		dcm_fair_add(fair, e);
	dcm_fair_charge(fair, flow, cost);
	dcm_fair_done(fair, flow);
	return owner;
}

static void join(struct dcm_fair *fair, struct dcm_fair_entry *e, size_t n,
		 const void *owner)
{
	for (size_t i = 0; i < n; i++) {
		e[i] = (struct dcm_fair_entry){ 0 };
		assert_int_equal(dcm_fair_join(fair, &e[i], owner), 0);
	}
}

static void leave(struct dcm_fair *fair, struct dcm_fair_entry *e, size_t n)
{
	for (size_t i = 0; i < n; i++)
		dcm_fair_leave(fair, &e[i]);
}

/* Two hundred entries get as much as one does, by cost and not by turns. */
static void many_gain_nothing(void **state)
{
	struct dcm_fair_entry a[MANY], b;
	struct dcm_fair fair;
	u64 got_a = 0, got_b = 0;

	(void)state;
	dcm_fair_init(&fair);
	join(&fair, a, MANY, &tenant_a);
	join(&fair, &b, 1, &tenant_b);
	for (int i = 0; i < MANY; i++)
		dcm_fair_add(&fair, &a[i]);
	dcm_fair_add(&fair, &b);
	for (int i = 0; i < 10000; i++) {
		struct dcm_fair_entry *e = dcm_fair_take(&fair);
		u64 cost = e == &b ? 3 : 40;

		*(e == &b ? &got_b : &got_a) += cost;
		dcm_fair_add(&fair, e);
		dcm_fair_charge(&fair, e->flow, cost);
		dcm_fair_done(&fair, e->flow);
	}
	assert_true(got_a < got_b + 80 && got_b < got_a + 80);
	leave(&fair, a, MANY);
	leave(&fair, &b, 1);
	assert_true(dcm_list_empty(&fair.flows) && dcm_fair_idle(&fair));
}

/* One that wants little waits for the turn that goes on, whatever waits behind. */
static void little_is_next(void **state)
{
	struct dcm_fair_entry a[MANY], b;
	struct dcm_fair fair;

	(void)state;
	dcm_fair_init(&fair);
	join(&fair, a, MANY, &tenant_a);
	join(&fair, &b, 1, &tenant_b);
	for (int i = 0; i < MANY; i++)
		dcm_fair_add(&fair, &a[i]);
	for (int i = 0; i < 1000; i++) {
		assert_ptr_equal(turn(&fair, 40, true), &tenant_a);
		dcm_fair_add(&fair, &b);
		assert_ptr_equal(turn(&fair, 1, false), &tenant_b);
	}
	leave(&fair, a, MANY);
	leave(&fair, &b, 1);
}

/* An idle flow gains no credit; a flow that comes back soon still owes its turn. */
static void nothing_is_saved(void **state)
{
	struct dcm_fair_entry a, b;
	struct dcm_fair fair;
	int got_b = 0;

	(void)state;
	dcm_fair_init(&fair);
	join(&fair, &a, 1, &tenant_a);
	join(&fair, &b, 1, &tenant_b);
	dcm_fair_add(&fair, &a);
	for (int i = 0; i < 1000; i++)
		assert_ptr_equal(turn(&fair, 10, true), &tenant_a);
	dcm_fair_add(&fair, &b);
	for (int i = 0; i < 100; i++)
		got_b += turn(&fair, 10, true) == &tenant_b;
	assert_in_range(got_b, 49, 51);
	dcm_fair_leave(&fair, &b);
	join(&fair, &b, 1, &tenant_b);
	got_b = 0;
	/* b goes and comes between any two turns */
	for (int i = 0; i < 100; i++) {
		dcm_fair_add(&fair, &b);
		got_b += turn(&fair, 10, false) == &tenant_b;
		dcm_fair_add(&fair, &a);
	}
	assert_in_range(got_b, 49, 51);
	leave(&fair, &a, 1);
	leave(&fair, &b, 1);
}

/* Entries that leave in any state; flows that turns go on of stay until these end. */
static void at_random(void **state)
{
	static const void *const owners[] = { &tenant_a, &tenant_b, &tenant_c };
	struct dcm_fair_entry e[30] = { 0 };
	unsigned int seed = (unsigned int)time(NULL);
	struct dcm_flow *flow;
	struct dcm_fair fair;
	u64 start;

	(void)state;
	printf("seed %u\n", seed);
	srand(seed);
	dcm_fair_init(&fair);
	for (int i = 0; i < 200000; i++) {
		struct dcm_fair_entry *x = &e[rand() % 30], *t;

		if (!x->flow)
			join(&fair, x, 1, owners[rand() % 3]);
		else if (rand() % 16)
			dcm_fair_add(&fair, x);
		else if (rand() % 2)
			dcm_fair_drop(x);
		else
			dcm_fair_leave(&fair, x);
		if (rand() % 2) {
			t = dcm_fair_take(&fair);
			if (!t)
				continue;
			flow = t->flow;
			if (rand() % 2)
				dcm_fair_add(&fair, t);
			else
				dcm_fair_leave(&fair, t);
			dcm_fair_charge(&fair, flow, (u64)(rand() % 100));
			dcm_fair_done(&fair, flow);
		}
		start = 0;
		dcm_list_for_each(flow, &fair.active, struct dcm_flow,
				  active_node) {
			assert_true(flow->start >= start);
			assert_false(dcm_list_empty(&flow->waiting));
			start = flow->start;
		}
	}
	leave(&fair, e, 30);
	assert_true(dcm_list_empty(&fair.flows) && dcm_fair_idle(&fair));
}

/* A flow's wait is the cost of others' turns since the look before the flow was found. */
static void waits_are_counted(void **state)
{
	struct dcm_fair_entry a[2], b;
	struct dcm_fair fair;

	(void)state;
	dcm_fair_init(&fair);
	join(&fair, a, 2, &tenant_a);
	join(&fair, &b, 1, &tenant_b);
	dcm_fair_ask(&fair);
	dcm_fair_add(&fair, &a[0]);
	dcm_fair_add(&fair, &a[1]);
	turn(&fair, 40, true);
	turn(&fair, 40, true);
	assert_int_equal(a[0].flow->waited, 0);
	/* b wants its turn at any time from here on, and is found by the next look */
	dcm_fair_ask(&fair);
	turn(&fair, 40, true);
	dcm_fair_ask(&fair);
	dcm_fair_add(&fair, &b);
	assert_ptr_equal(turn(&fair, 50, true), &tenant_b);
	assert_int_equal(b.flow->waited, 0);
	assert_ptr_equal(turn(&fair, 40, true), &tenant_a);
	assert_int_equal(a[0].flow->waited, 50);
	dcm_fair_ask(&fair);
	assert_ptr_equal(turn(&fair, 40, true), &tenant_b);
	assert_int_equal(b.flow->waited, 40);
	assert_ptr_equal(turn(&fair, 40, true), &tenant_a);
	/* b had a turn since the look, and wanted the next one after that turn */
	dcm_fair_leave(&fair, &b);
	join(&fair, &b, 1, &tenant_b);
	dcm_fair_ask(&fair);
	dcm_fair_add(&fair, &b);
	while (turn(&fair, 30, false) != &tenant_b)
		dcm_fair_add(&fair, &a[0]);
	dcm_fair_add(&fair, &b);
	while (turn(&fair, 30, false) != &tenant_b)
		;
	assert_in_range(b.flow->waited, 0, 60);
	leave(&fair, a, 2);
	leave(&fair, &b, 1);
}

/* dcm_fair_shared() is true if two flows were charged of late. */
static void shared_of_late(void **state)
{
	struct dcm_fair_entry a, b;
	struct dcm_fair fair;

	(void)state;
	dcm_fair_init(&fair);
	join(&fair, &a, 1, &tenant_a);
	join(&fair, &b, 1, &tenant_b);
	dcm_fair_add(&fair, &a);
	turn(&fair, 10, true);
	assert_false(dcm_fair_shared(&fair, 50));
	dcm_fair_add(&fair, &b);
	turn(&fair, 1, true);
	turn(&fair, 1, false);
	assert_true(dcm_fair_shared(&fair, 50));
	for (int i = 0; i < 6; i++)
		turn(&fair, 10, true);
	assert_false(dcm_fair_shared(&fair, 50));
	leave(&fair, &a, 1);
	leave(&fair, &b, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(many_gain_nothing),
		cmocka_unit_test(little_is_next),
		cmocka_unit_test(nothing_is_saved),
		cmocka_unit_test(at_random),
		cmocka_unit_test(waits_are_counted),
		cmocka_unit_test(shared_of_late),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: GPL-2.0-or-later
/* activity_test.c - the activity average against one in floating point */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <cmocka.h>

#include "../../kvm-dcm/client/activity.h"

#define S DCM_ACTIVITY_PERIOD_NS

static void test_formula(void **state)
{
	static const u64 rates[] = { 100, 0, 0, 5000, 5000, 1, 70000, 0 };
	struct dcm_activity a;
	double model = 0;
	u64 total = 7, now = 3 * S;
	unsigned int i;

	(void)state;
	dcm_activity_init(&a, total, now);
	for (i = 0; i < ARRAY_SIZE(rates); i++) {
		total += rates[i];
		now += S;
		assert_true(dcm_activity_update(&a, total, now));
		model = i ? 0.2 * rates[i] + 0.8 * model : rates[i];
		assert_true(fabs(model * 1000 - (double)a.ewma_milli) < 10);
	}
}

static void test_period(void **state)
{
	struct dcm_activity a, b;
	u64 v;

	(void)state;
	dcm_activity_init(&a, 0, 0);
	assert_false(dcm_activity_update(&a, 10, S - 1));
	assert_true(dcm_activity_update(&a, 10, S));
	v = a.ewma_milli;
	assert_int_equal(v, 10000);
	assert_false(dcm_activity_update(&a, 99, S + S / 2));
	assert_int_equal(a.ewma_milli, v);
	/* late by three periods: as if it had been called three times */
	b = a;
	assert_true(dcm_activity_update(&a, 10 + 300, 4 * S));
	assert_true(dcm_activity_update(&b, 10 + 100, 2 * S));
	assert_true(dcm_activity_update(&b, 10 + 200, 3 * S));
	assert_true(dcm_activity_update(&b, 10 + 300, 4 * S));
	assert_int_equal(a.ewma_milli, b.ewma_milli);
	/* time that runs backwards changes nothing */
	assert_false(dcm_activity_update(&a, 1000, 0));
}

static void test_idle_is_zero(void **state)
{
	struct dcm_activity a;
	u64 now = 0;
	int i;

	(void)state;
	dcm_activity_init(&a, 0, now);
	dcm_activity_update(&a, 1000000, now += S);
	for (i = 0; i < 150; i++)
		dcm_activity_update(&a, 1000000, now += S);
	assert_int_equal(a.ewma_milli, 0);
	/* and at once after a long stop */
	dcm_activity_update(&a, 2000000, now += S);
	assert_true(a.ewma_milli > 0);
	dcm_activity_update(&a, 2000000, now += 100000 * S);
	assert_int_equal(a.ewma_milli, 0);
}

/* Cold is less than one operation a second, and for how long only time that was seen. */
static void test_cold(void **state)
{
	struct dcm_activity a;
	u64 now = 0, total = 0;
	unsigned int i;

	(void)state;
	dcm_activity_init(&a, 0, now);
	assert_int_equal(a.cold_s, 0);
	for (i = 1; i <= 10; i++) {
		dcm_activity_update(&a, total, now += S);
		assert_int_equal(a.cold_s, i);
	}
	/* stopped for an hour: as if for a second */
	dcm_activity_update(&a, total, now += 3600 * S);
	assert_int_equal(a.cold_s, 11);
	/* one operation does not make it warm, a few do */
	dcm_activity_update(&a, total += 1, now += S);
	assert_int_equal(a.cold_s, 12);
	dcm_activity_update(&a, total += 9, now += S);
	assert_int_equal(a.cold_s, 0);
	for (i = 0; i < 20 && !a.cold_s; i++)
		dcm_activity_update(&a, total, now += S);
	assert_true(a.ewma_milli < DCM_ACTIVITY_COLD_MILLI);
	assert_in_range(i, 2, 10);
	/* at one operation a second it is not cold */
	dcm_activity_init(&a, total, now);
	for (i = 0; i < 10; i++)
		dcm_activity_update(&a, total += 1, now += S);
	assert_int_equal(a.cold_s, 0);
}

static void test_extremes(void **state)
{
	struct dcm_activity a;

	(void)state;
	dcm_activity_init(&a, 0, 0);
	assert_true(dcm_activity_update(&a, U64_MAX, S));
	assert_true(a.ewma_milli <= DCM_ACTIVITY_MAX_MILLI);
	/* a counter that went backwards is no activity */
	assert_true(dcm_activity_update(&a, 0, 2 * S));
	assert_true(a.ewma_milli < DCM_ACTIVITY_MAX_MILLI);
	assert_true(dcm_activity_update(&a, 1, U64_MAX));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_formula),
		cmocka_unit_test(test_period),
		cmocka_unit_test(test_idle_is_zero),
		cmocka_unit_test(test_cold),
		cmocka_unit_test(test_extremes),
	};

	return cmocka_run_group_tests_name("activity", tests, NULL, NULL);
}

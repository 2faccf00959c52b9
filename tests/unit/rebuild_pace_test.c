// SPDX-License-Identifier: GPL-2.0-or-later
/* links: kvm-dcm/client/rebuild_pace.c kvm-dcm/core/hist.c */
/*
 * rebuild_pace_test.c - a rebuild keeps to its rate, and slows for the guest
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "client/rebuild_pace.h"

#define SECOND 1000000000ull
#define LOOK (SECOND / 4)
#define STEP 10000000ull /* 10 ms */
#define LIMIT (100u << 20)
#define BLOCK 65536u

static struct dcm_rebuild_pace pace;
static struct dcm_hist faults;
static u64 now, copied;

static void begin(u64 limit)
{
	memset(&pace, 0, sizeof(pace));
	memset(&faults, 0, sizeof(faults));
	pace.limit = limit;
	now = 100 * SECOND;
	copied = 0;
}

/* The guest has faults that take so long. */
static void guest(u32 nr, u64 ns)
{
	while (nr--)
		dcm_hist_add(&faults, ns);
}

/* Copy as much as is allowed for @looks looks; returns how many bytes. */
static u64 copy(u32 looks)
{
	u64 end = now + looks * LOOK, before = copied;

	for (; now < end; now += STEP) {
		if (dcm_rebuild_pace_looks(&pace, now))
			dcm_rebuild_pace_look(&pace, now, &faults);
		while (!dcm_rebuild_pace_wait(&pace, now)) {
			copied += BLOCK;
			dcm_rebuild_pace_copied(&pace, copied, false);
		}
	}
	return copied - before;
}

/* Within 20 ms' bytes, and one block. */
static void test_rate(void **state)
{
	u64 bytes;

	(void)state;
	begin(LIMIT);
	bytes = copy(40);
	assert_in_range(bytes, 10ull * LIMIT - LIMIT / 50,
			10ull * LIMIT + LIMIT / 50 + BLOCK);
	/* a pause gives nothing to catch up with */
	now += 60 * SECOND;
	bytes = copy(4);
	assert_in_range(bytes, LIMIT - LIMIT / 50, LIMIT + LIMIT / 25 + BLOCK);
}

/* After the wait that it returns more may be copied; the wait is not much too long. */
static void test_waits_as_long_as_it_must(void **state)
{
	static const u64 limits[] = { 1, 1000, 20u << 20, LIMIT, 1ull << 40 };
	unsigned int i, n;
	int ms;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(limits); i++) {
		begin(limits[i]);
		copy(1);
		copied += BLOCK;
		dcm_rebuild_pace_copied(&pace, copied, false);
		for (n = 0; n < 100; n++) {
			ms = dcm_rebuild_pace_wait(&pace, now);
			assert_in_range(ms, 0, 1000);
			if (!ms)
				break;
			if (ms > 1)
				assert_true(dcm_rebuild_pace_wait(
					&pace, now + SECOND / 1000));
			now += (u64)ms * SECOND / 1000;
		}
		/* 1 byte a second is what it is */
		assert_true(n <= 1 || BLOCK / limits[i] > 60);
	}
}

static void test_no_limit(void **state)
{
	(void)state;
	begin(0);
	assert_false(dcm_rebuild_pace_looks(&pace, now));
	assert_int_equal(dcm_rebuild_pace_wait(&pace, now), 0);
	dcm_rebuild_pace_copied(&pace, 1ull << 50, false);
	assert_int_equal(dcm_rebuild_pace_wait(&pace, now), 0);
}

static void test_slows_for_the_guest(void **state)
{
	u64 before;
	u32 i;

	(void)state;
	begin(LIMIT);
	guest(1000, 20000);
	copy(1);
	assert_int_equal(pace.rate, LIMIT);
	/* as before, and not much worse */
	guest(1000, 30000);
	copy(1);
	assert_int_equal(pace.rate, LIMIT);
	/* once: a stop of the host, perhaps */
	guest(1000, 200000);
	copy(1);
	assert_int_equal(pace.rate, LIMIT);
	guest(1000, 20000);
	copy(1);
	guest(1000, 200000);
	copy(1);
	assert_int_equal(pace.rate, LIMIT);
	for (i = 0; i < 3; i++) {
		guest(1000, 200000);
		before = pace.rate;
		copy(1);
		assert_int_equal(pace.rate, before / 2);
	}
	assert_true(copy(1) > 0);
	/* never so slow that it does not end */
	for (i = 0; i < 20; i++) {
		guest(1000, 200000);
		assert_true(copy(1) > 0);
	}
	assert_int_equal(pace.rate, LIMIT / 64);
	for (i = 0; i < 6; i++) {
		guest(1000, 20000);
		copy(1);
	}
	assert_int_equal(pace.rate, LIMIT);
}

/* Too few faults before the rebuild to know what is usual: the limit alone. */
static void test_calm_is_not_known(void **state)
{
	(void)state;
	begin(LIMIT);
	guest(10, 20000);
	copy(1);
	guest(1000, 5000000);
	copy(2);
	assert_int_equal(pace.rate, LIMIT);
}

/* The usual latency is learnt anew before each rebuild. */
static void test_another_rebuild(void **state)
{
	(void)state;
	begin(LIMIT);
	guest(1000, 20000);
	copy(1);
	guest(1000, 900000);
	now += 30 * SECOND;
	copy(1);
	assert_int_equal(pace.rate, LIMIT);
	guest(1000, 900000);
	copy(1);
	assert_int_equal(pace.rate, LIMIT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rate),
		cmocka_unit_test(test_waits_as_long_as_it_must),
		cmocka_unit_test(test_no_limit),
		cmocka_unit_test(test_slows_for_the_guest),
		cmocka_unit_test(test_calm_is_not_known),
		cmocka_unit_test(test_another_rebuild),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

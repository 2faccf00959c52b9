// SPDX-License-Identifier: GPL-2.0-or-later
/* links: kvm-dcm/hostd/choice.c kvm-dcm/client/redundancy.c */
/*
 * hostd_choice_test.c - what the lines of a file's choice say
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "hostd/hostd.h"

static struct hostd h;

static const struct hostd_choice *lines(const char *text)
{
	static struct hostd_choice c;

	strcpy(c.text, text);
	return &c;
}

/* A file's own lines count; the configuration's values where there are none. */
static void test_seal(void **state)
{
	(void)state;
	for (int yes = 0; yes < 2; yes++) {
		h.cfg.seal = yes;
		assert_int_equal(hostd_choice_seal(lines(""), &h), yes);
		assert_int_equal(hostd_choice_seal(lines("near\n@seal\n"), &h),
				 yes);
		assert_int_equal(hostd_choice_seal(lines("*\nseal = maybe\n"),
						   &h),
			yes);
		assert_int_equal(hostd_choice_seal(lines("seal = yes now\n"),
						   &h),
				 yes);
		assert_true(hostd_choice_seal(lines("*\nseal = yes\n"), &h));
		assert_true(hostd_choice_seal(
			lines("far\nredundancy = disk\nseal = yes"), &h));
		assert_false(hostd_choice_seal(lines("*\nseal = no\n"), &h));
	}
}

static void test_redundancy(void **state)
{
	(void)state;
	h.cfg.redundancy = DCM_REDUNDANCY_DISK;
	assert_int_equal(hostd_choice_redundancy(lines("*\nseal = yes\n"), &h),
			 DCM_REDUNDANCY_DISK);
	assert_int_equal(hostd_choice_redundancy(
				 lines("*\nredundancy = replica:2\nseal = no\n"),
				 &h),
		DCM_REDUNDANCY_REPLICA_2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_seal),
		cmocka_unit_test(test_redundancy),
	};

	return cmocka_run_group_tests_name("hostd_choice", tests, NULL, NULL);
}

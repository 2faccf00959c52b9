// SPDX-License-Identifier: GPL-2.0-or-later
/* links: kvm-dcm/client/risk.c */
/*
 * risk_test.c - what donors' deaths would cost, counted by their sets
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "client/risk.h"

static struct dcm_risk risk;
static struct dcm_client_status st;

static int setup(void **state)
{
	(void)state;
	memset(&risk, 0, sizeof(risk));
	st = (struct dcm_client_status){ .nr_donors = 3 };
	/* a donor that has left is not among them: numbers are not places */
	st.donor[0] =
		(struct dcm_client_donor_status){ .number = 0, .name = "near" };
	st.donor[1] =
		(struct dcm_client_donor_status){ .number = 2, .name = "far" };
	st.donor[2] = (struct dcm_client_donor_status){ .number = 63,
							.name = "last" };
	return 0;
}

static void test_one_slab_dies_with_its_donor(void **state)
{
	(void)state;
	dcm_risk_add(&risk, 1ull << 63, false);
	dcm_risk_add(&risk, 1ull << 63, false);
	dcm_risk_add(&risk, 4, false);
	assert_int_equal(risk.alone[63], 2);
	assert_int_equal(risk.alone[2], 1);
	assert_int_equal(risk.nr_sets, 0);
}

static void test_two_slabs_die_with_both(void **state)
{
	(void)state;
	dcm_risk_add(&risk, 5, false);
	dcm_risk_add(&risk, 1ull << 63 | 1, false);
	dcm_risk_add(&risk, 5, false);
	assert_int_equal(risk.nr_sets, 2);
	assert_int_equal(risk.set[0].donors, 5);
	assert_int_equal(risk.set[0].extents, 2);
	assert_int_equal(risk.set[1].extents, 1);
	assert_int_equal(risk.alone[0] + risk.alone[2] + risk.alone[63], 0);
}

/* Until a slab has all pages, each of them may be the only one that has some. */
static void test_a_slab_that_is_being_filled_protects_nothing(void **state)
{
	(void)state;
	dcm_risk_add(&risk, 5, true);
	assert_int_equal(risk.nr_sets, 0);
	assert_int_equal(risk.alone[0], 1);
	assert_int_equal(risk.alone[2], 1);
}

static void test_more_sets_than_there_is_room_for(void **state)
{
	u32 i, k, n = 0;

	(void)state;
	for (i = 0; i < 64; i++)
		for (k = i + 1; k < 64; k++, n++)
			dcm_risk_add(&risk, 1ull << i | 1ull << k, false);
	assert_int_equal(risk.nr_sets, DCM_RISK_SETS);
	assert_int_equal(risk.others, n - DCM_RISK_SETS);
	dcm_risk_add(&risk, 3, false);
	assert_int_equal(risk.set[0].extents, 2);
}

static void test_exposed_is_what_has_fewer_copies(void **state)
{
	(void)state;
	risk.thin = 100;
	risk.with[1] = 10;
	risk.with[2] = 1;
	assert_int_equal(dcm_risk_exposed(&risk, 1), 0);
	assert_int_equal(dcm_risk_exposed(&risk, 2), 110);
	assert_int_equal(dcm_risk_exposed(&risk, 3), 111);
}

static void test_names(void **state)
{
	char text[9];

	(void)state;
	dcm_risk_names(5, &st, text, sizeof(text));
	assert_string_equal(text, "near+far");
	dcm_risk_names(1ull << 63 | 5, &st, text, sizeof(text));
	assert_string_equal(text, "near+far");
	dcm_risk_names(2, &st, text, sizeof(text));
	assert_string_equal(text, "");
}

#define TEST(name) cmocka_unit_test_setup(name, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_one_slab_dies_with_its_donor),
		TEST(test_two_slabs_die_with_both),
		TEST(test_a_slab_that_is_being_filled_protects_nothing),
		TEST(test_more_sets_than_there_is_room_for),
		TEST(test_exposed_is_what_has_fewer_copies),
		TEST(test_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: GPL-2.0-or-later
/* links: kvm-dcm/client/request.c */
/* request_test.c - the table of requests that wait for their answers */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "client/client_int.h"

static struct client_donor d;
static struct client_job job[CLIENT_JOBS];
static struct dcm_client_slab *slab = (struct dcm_client_slab *)&d;

static int setup(void **state)
{
	(void)state;
	d.tag = 0;
	d.nr_requests = 0;
	return 0;
}

static void test_an_answer_finds_its_request(void **state)
{
	u64 a = client_request_add(&d, REQUEST_MAP, &job[0]);
	u64 b = client_request_add(&d, REQUEST_UNMAP, slab);
	u64 c = client_request_add(&d, REQUEST_MAP, &job[1]);

	(void)state;
	assert_true(a && b == a + 1 && c == b + 1);
	assert_ptr_equal(client_request_take(&d, b, REQUEST_ANY).slab, slab);
	assert_ptr_equal(client_request_take(&d, c, REQUEST_MAP).job, &job[1]);
	assert_ptr_equal(client_request_take(&d, a, REQUEST_MAP).job, &job[0]);
	assert_int_equal(d.nr_requests, 0);
}

static void test_it_is_answered_once(void **state)
{
	u64 a = client_request_add(&d, REQUEST_QUERY, NULL);
	u64 b = client_request_add(&d, REQUEST_QUERY, NULL);

	(void)state;
	assert_int_equal(client_request_take(&d, a, REQUEST_ANY).kind,
			 REQUEST_QUERY);
	assert_int_equal(client_request_take(&d, a, REQUEST_ANY).kind,
			 REQUEST_NONE);
	client_request_drop(&d, b);
	client_request_drop(&d, b);
	assert_int_equal(client_request_take(&d, b, REQUEST_ANY).kind,
			 REQUEST_NONE);
}

static void test_an_answer_of_another_kind(void **state)
{
	u64 a = client_request_add(&d, REQUEST_UNMAP, slab);

	(void)state;
	assert_int_equal(client_request_take(&d, a,
					     REQUEST_ANY & ~REQUEST_UNMAP)
				 .kind,
		REQUEST_NONE);
	assert_int_equal(client_request_take(&d, a, REQUEST_UNMAP).kind,
			 REQUEST_UNMAP);
}

static void test_tags_of_no_request(void **state)
{
	u64 a = client_request_add(&d, REQUEST_UNMAP, slab);
	static const u64 none[] = { 0, U32_MAX, U64_MAX };
	u32 i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(none); i++)
		assert_int_equal(client_request_take(&d, none[i], REQUEST_ANY)
					 .kind,
			REQUEST_NONE);
	assert_int_equal(client_request_take(&d, a + 1, REQUEST_ANY).kind,
			 REQUEST_NONE);
	assert_int_equal(d.nr_requests, 1);
}

/* However many slabs are given back, there is room for all the others. */
static void test_no_unmap_takes_the_room_of_others(void **state)
{
	u32 i, n = 0;
	u64 first = 0;

	(void)state;
	while (client_request_add(&d, REQUEST_UNMAP, slab)) {
		first = first ? first : d.tag;
		n++;
	}
	assert_int_equal(n, CLIENT_UNMAPS_MAX);
	for (i = 0; i < CLIENT_JOBS; i++)
		assert_true(client_request_add(&d, REQUEST_MAP, &job[i]) > 0);
	for (i = 0; i < DCM_CLIENT_LANES_MAX; i++)
		assert_true(client_request_add(&d, REQUEST_TICKET, slab) > 0);
	assert_true(client_request_add(&d, REQUEST_QUERY, NULL) > 0);
	assert_int_equal(d.nr_requests, CLIENT_REQUESTS_MAX);
	assert_int_equal(client_request_add(&d, REQUEST_QUERY, NULL), 0);
	for (i = 0; i < CLIENT_REQUESTS_MAX; i++)
		assert_int_not_equal(client_request_take(&d, first + i,
							 REQUEST_ANY)
					     .kind,
			REQUEST_NONE);
	assert_true(client_request_add(&d, REQUEST_UNMAP, slab) > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup(name, setup)
		TEST(test_an_answer_finds_its_request),
		TEST(test_it_is_answered_once),
		TEST(test_an_answer_of_another_kind),
		TEST(test_tags_of_no_request),
		TEST(test_no_unmap_takes_the_room_of_others),
#undef TEST
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

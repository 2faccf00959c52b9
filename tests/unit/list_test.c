// SPDX-License-Identifier: GPL-2.0-or-later
/* links: kvm-dcm/client/list.c kvm-dcm/lib/log.c kvm-dcm/lib/thread.c */
/* list_test.c - LIST of a client, with donors that answer well, and that do not */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "client/client_int.h"

#define NOW 5u

static struct client_donor d;
static struct dcm_wire_msg sent;
static u64 returned[256];
static u32 nr_returned;

/* Slabs with even ids are known. */
bool client_slab_known(struct client_donor *donor, u64 id)
{
	assert_ptr_equal(donor, &d);
	return !(id & 1);
}

void client_slab_refuse(struct client_donor *donor, u64 id, u64 now)
{
	assert_ptr_equal(donor, &d);
	assert_int_equal(now, NOW);
	returned[nr_returned++] = id;
}

void client_donor_send(struct client_donor *donor, struct dcm_wire_msg *msg,
		       u64 now)
{
	assert_ptr_equal(donor, &d);
	assert_int_equal(now, NOW);
	sent = *msg;
}

static int setup(void **state)
{
	(void)state;
	memset(&d, 0, sizeof(d));
	memset(&sent, 0, sizeof(sent));
	nr_returned = 0;
	d.tag = 40;
	return 0;
}

static bool answer(u64 tag, u64 slab, bool more)
{
	struct dcm_wire_msg m = {
		.type = DCM_MSG_SLAB_IS,
		.tag = tag,
		.slab_is = { .slab = slab, .flags = more },
	};

	return client_list_answer(&d, &m, NOW);
}

static void test_unknown_slabs_go_back(void **state)
{
	(void)state;
	client_list_ask(&d, 0, NOW);
	assert_int_equal(sent.type, DCM_MSG_LIST);
	assert_int_equal(sent.tag, 41);
	assert_int_equal(sent.list.after, 0);
	assert_true(answer(41, 2, true));
	assert_true(answer(41, 3, true));
	assert_true(answer(41, 4, true));
	assert_true(answer(41, 7, false));
	assert_int_equal(nr_returned, 2);
	assert_int_equal(returned[0], 3);
	assert_int_equal(returned[1], 7);
	/* that was the last */
	assert_false(answer(41, 9, false));
	assert_int_equal(nr_returned, 2);
}

static void test_no_slab(void **state)
{
	(void)state;
	client_list_ask(&d, 0, NOW);
	assert_true(answer(41, 0, false));
	assert_int_equal(nr_returned, 0);
	assert_false(answer(41, 0, false));
}

static void test_it_asks_for_the_rest(void **state)
{
	u64 id;

	(void)state;
	client_list_ask(&d, 0, NOW);
	for (id = 1; id < DCM_WIRE_LIST_MAX; id++)
		assert_true(answer(41, id, true));
	assert_int_equal(sent.tag, 41);
	assert_true(answer(41, id, true));
	assert_int_equal(sent.type, DCM_MSG_LIST);
	assert_int_equal(sent.tag, 42);
	assert_int_equal(sent.list.after, DCM_WIRE_LIST_MAX);
	/* of the first answer there is no more */
	assert_false(answer(41, id + 1, true));
	assert_true(answer(42, id + 1, false));
	assert_int_equal(nr_returned, DCM_WIRE_LIST_MAX / 2 + 1);
}

/* The last one of a full answer. */
static void test_a_full_answer_may_be_all(void **state)
{
	u64 id;

	(void)state;
	client_list_ask(&d, 0, NOW);
	for (id = 1; id < DCM_WIRE_LIST_MAX; id++)
		assert_true(answer(41, id, true));
	assert_true(answer(41, id, false));
	assert_int_equal(sent.tag, 41);
	assert_false(answer(41, id + 1, false));
}

static void test_what_is_no_answer(void **state)
{
	(void)state;
	/* nothing was asked */
	assert_false(answer(0, 3, false));
	assert_false(answer(41, 3, false));
	client_list_ask(&d, 0, NOW);
	assert_false(answer(40, 3, false));
	assert_true(answer(41, 8, true));
	/* ids ascend, and none is none from the beginning */
	assert_false(answer(41, 8, true));
	assert_false(answer(41, 7, false));
	assert_false(answer(41, 0, false));
	assert_int_equal(nr_returned, 0);
	/* the connection is lost */
	client_list_down(&d);
	assert_false(answer(41, 9, false));
	assert_int_equal(nr_returned, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_unknown_slabs_go_back, setup),
		cmocka_unit_test_setup(test_no_slab, setup),
		cmocka_unit_test_setup(test_it_asks_for_the_rest, setup),
		cmocka_unit_test_setup(test_a_full_answer_may_be_all, setup),
		cmocka_unit_test_setup(test_what_is_no_answer, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

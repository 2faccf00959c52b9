// SPDX-License-Identifier: GPL-2.0-or-later
/* ticket_test.c - tickets: shown once, in time, with the right secret */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "../../donor-daemon/ticket.h"

static int alice, bob;	/* sessions */

static struct dcm_wire_shown show(const struct dcm_ticket *t)
{
	struct dcm_wire_shown s = { .version = 1, .number = t->number };

	memcpy(s.secret, t->secret, sizeof(s.secret));
	return s;
}

static bool take(struct dcm_tickets *ts, const struct dcm_wire_shown *s,
		 u64 now)
{
	void *owner = NULL;
	u16 lane = 0;
	bool ok = dcm_ticket_take(ts, s, now, &owner, &lane);

	assert_true(ok == (owner != NULL));
	assert_true(ok == (lane != 0));
	return ok;
}

static void test_once(void **state)
{
	struct dcm_tickets ts;
	struct dcm_wire_shown s;
	void *owner;
	u16 lane;

	(void)state;
	dcm_tickets_init(&ts);
	s = show(dcm_ticket_issue(&ts, &alice, 7, 1000));
	assert_true(dcm_ticket_take(&ts, &s, 1001, &owner, &lane));
	assert_ptr_equal(owner, &alice);
	assert_int_equal(lane, 7);
	/* a replay */
	assert_false(take(&ts, &s, 1001));
	assert_int_equal(ts.nr, 0);
	assert_int_equal(ts.used, 1);
	assert_int_equal(ts.bad, 1);
}

static void test_wrong_secret(void **state)
{
	struct dcm_tickets ts;
	struct dcm_wire_shown s, wrong;

	(void)state;
	dcm_tickets_init(&ts);
	s = show(dcm_ticket_issue(&ts, &alice, 1, 0));
	for (int bit = 0; bit < 128; bit++) {
		wrong = s;
		wrong.secret[bit / 8] ^= (u8)(1 << bit % 8);
		assert_false(take(&ts, &wrong, 1));
	}
	wrong = s;
	wrong.number++;
	assert_false(take(&ts, &wrong, 1));
	/* a wrong guess does not take the ticket from its owner */
	assert_true(take(&ts, &s, 1));
	assert_int_equal(ts.bad, 129);
}

static void test_too_late(void **state)
{
	struct dcm_tickets ts;
	struct dcm_wire_shown a, b;

	(void)state;
	dcm_tickets_init(&ts);
	a = show(dcm_ticket_issue(&ts, &alice, 1, 100));
	b = show(dcm_ticket_issue(&ts, &alice, 2, 100));
	assert_true(take(&ts, &a, 100 + DCM_TICKET_MS - 1));
	assert_false(take(&ts, &b, 100 + DCM_TICKET_MS));
	assert_int_equal(ts.nr, 1);
	dcm_tickets_expire(&ts, 100 + DCM_TICKET_MS - 1);
	assert_int_equal(ts.nr, 1);
	dcm_tickets_expire(&ts, 100 + DCM_TICKET_MS);
	assert_int_equal(ts.nr, 0);
	assert_int_equal(ts.expired, 1);
}

/* However often a session asks, it has one ticket for each lane. */
static void test_bounded(void **state)
{
	struct dcm_tickets ts;
	struct dcm_wire_shown first, last, other;

	(void)state;
	dcm_tickets_init(&ts);
	other = show(dcm_ticket_issue(&ts, &bob, 3, 0));
	first = show(dcm_ticket_issue(&ts, &alice, 3, 0));
	for (int i = 0; i < 1000; i++)
		last = show(dcm_ticket_issue(&ts, &alice, 3, 0));
	assert_int_equal(ts.nr, 2);
	assert_false(take(&ts, &first, 1));
	assert_true(take(&ts, &last, 1));
	assert_true(take(&ts, &other, 1));
	assert_int_equal(ts.issued, 1002);
}

static void test_dropped(void **state)
{
	struct dcm_tickets ts;
	struct dcm_wire_shown a, b, c;

	(void)state;
	dcm_tickets_init(&ts);
	a = show(dcm_ticket_issue(&ts, &alice, 1, 0));
	b = show(dcm_ticket_issue(&ts, &alice, 2, 0));
	c = show(dcm_ticket_issue(&ts, &bob, 1, 0));
	dcm_tickets_drop(&ts, &alice, 1);
	assert_false(take(&ts, &a, 1));
	assert_int_equal(ts.nr, 2);
	dcm_tickets_drop(&ts, &alice, 0);
	assert_false(take(&ts, &b, 1));
	assert_true(take(&ts, &c, 1));
	assert_int_equal(ts.nr, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_once),
		cmocka_unit_test(test_wrong_secret),
		cmocka_unit_test(test_too_late),
		cmocka_unit_test(test_bounded),
		cmocka_unit_test(test_dropped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

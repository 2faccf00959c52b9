// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * admission_test.c - which connection a donor drops when there are too many
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "../../donor-daemon/admission.h"

#define SEATS 2048u

static struct dcm_admission admission;
static struct dcm_seat seats[SEATS];

static struct dcm_origin address(const char *text)
{
	struct sockaddr_storage ss = { .ss_family = AF_INET };
	struct sockaddr_in *in4 = (void *)&ss;
	struct sockaddr_in6 *in6 = (void *)&ss;
	struct dcm_origin o;

	if (strchr(text, ':')) {
		ss.ss_family = AF_INET6;
		assert_int_equal(inet_pton(AF_INET6, text, &in6->sin6_addr), 1);
	} else {
		assert_int_equal(inet_pton(AF_INET, text, &in4->sin_addr), 1);
	}
	dcm_origin_of(&o, &ss);
	return o;
}

static void enter(u32 seat, const char *text)
{
	const struct dcm_origin o = address(text);

	assert_int_equal(dcm_admission_enter(&admission, &seats[seat], &o), 0);
}

static u32 victim(void)
{
	struct dcm_seat *seat = dcm_admission_victim(&admission);

	assert_non_null(seat);
	return (u32)(seat - seats);
}

static int begin(void **state)
{
	(void)state;
	dcm_admission_init(&admission, 77);
	memset(seats, 0, sizeof(seats));
	return 0;
}

static int end(void **state)
{
	(void)state;
	for (u32 i = 0; i < SEATS; i++)
		dcm_admission_leave(&seats[i]);
	assert_null(dcm_admission_victim(&admission));
	assert_int_equal(admission.nr_seats, 0);
	assert_int_equal(admission.nr_sources, 0);
	return 0;
}

static void the_oldest_of_the_crowd_is_dropped(void **state)
{
	(void)state;
	enter(0, "10.0.0.1");
	for (u32 i = 1; i < 100; i++)
		enter(i, "10.0.0.2");
	for (u32 i = 1; i < 99; i++) {
		assert_int_equal(victim(), i);
		dcm_admission_leave(&seats[i]);
	}
	/* now both have one, and the other came first */
	assert_int_equal(victim(), 0);
}

static void of_equal_sources_the_oldest_is_dropped(void **state)
{
	char text[16];

	(void)state;
	for (u32 i = 0; i < 200; i++) {
		snprintf(text, sizeof(text), "10.0.1.%u", i);
		enter(i, text);
	}
	for (u32 i = 0; i < 200; i++) {
		assert_int_equal(victim(), i);
		dcm_admission_leave(&seats[i]);
	}
}

static void a_network_of_ipv6_is_one_source(void **state)
{
	(void)state;
	enter(0, "2001:db8:0:1::1");
	enter(1, "2001:db8:0:2::1");
	enter(2, "2001:db8:0:2:ffff::7");
	assert_int_equal(admission.nr_sources, 2);
	assert_int_equal(victim(), 1);
	/* however an IPv4 address is written, and not as a network of IPv6 */
	enter(3, "10.0.0.1");
	enter(4, "::ffff:10.0.0.1");
	enter(5, "::1");
	assert_int_equal(admission.nr_sources, 4);
}

static void seats_are_reserved_for_sources_with_sessions(void **state)
{
	const struct dcm_origin host = address("10.0.0.1");
	struct dcm_source *reserved = dcm_admission_reserve(&admission, &host);
	u32 i;

	(void)state;
	assert_non_null(reserved);
	for (i = 0; i < DCM_ADMISSION_RESERVED; i++)
		enter(i, "10.0.0.1");
	enter(i, "10.0.0.2");
	assert_int_equal(victim(), i);
	/* beyond the reserved seats it is a crowd like others */
	enter(i + 1, "10.0.0.1");
	enter(i + 2, "10.0.0.1");
	assert_int_equal(victim(), 0);
	dcm_admission_unreserve(reserved);
	dcm_admission_leave(&seats[i + 1]);
	dcm_admission_leave(&seats[i + 2]);
	assert_int_equal(victim(), 0);
	/* a source that only has sessions exists, and is no victim */
	for (u32 n = 0; n <= i; n++)
		dcm_admission_leave(&seats[n]);
	reserved = dcm_admission_reserve(&admission, &host);
	assert_int_equal(admission.nr_sources, 1);
	assert_null(dcm_admission_victim(&admission));
	dcm_admission_unreserve(reserved);
}

/* Compare with counts reserved here: the victim is of a source with most seats. */
static void the_larger_crowd_is_dropped_first(void **state)
{
	unsigned int seed = (unsigned int)time(NULL);
	u32 count[8] = { 0 }, of[SEATS], most, v;
	char text[16];

	(void)state;
	print_message("seed %u\n", seed);
	srand(seed);
	for (u32 i = 0; i < SEATS; i++) {
		of[i] = (u32)rand() % 8 * ((u32)rand() % 8) / 8;
		snprintf(text, sizeof(text), "10.0.2.%u", of[i]);
		enter(i, text);
		count[of[i]]++;
		if (rand() % 4)
			continue;
		v = victim();
		most = 0;
		for (u32 n = 0; n < 8; n++)
			most = count[n] > most ? count[n] : most;
		if (most < DCM_ADMISSION_RANKS)
			assert_int_equal(count[of[v]], most);
		else
			assert_true(count[of[v]] >= DCM_ADMISSION_RANKS);
		for (u32 n = 0; n < v; n++)
			assert_true(of[n] != of[v] || !seats[n].source);
		count[of[v]]--;
		dcm_admission_leave(&seats[v]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(the_oldest_of_the_crowd_is_dropped,
						begin, end),
		cmocka_unit_test_setup_teardown(
			of_equal_sources_the_oldest_is_dropped, begin, end),
		cmocka_unit_test_setup_teardown(a_network_of_ipv6_is_one_source,
						begin, end),
		cmocka_unit_test_setup_teardown(
			seats_are_reserved_for_sources_with_sessions, begin,
			end),
		cmocka_unit_test_setup_teardown(the_larger_crowd_is_dropped_first,
						begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

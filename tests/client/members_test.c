// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * members_test.c - donors that drain, are added and are removed
 *
 * Slabs of a donor that drains or is removed are moved to the others; nothing
 * is lost unless the host is too slow.
 */
#include <signal.h>
#include <stdio.h>

#include "two.h"

static void drained(bool local)
{
	struct two t;
	u32 e, mine;

	two_start(&t, local);
	t.h.other = true;
	two_fill(&t, 4);
	mine = on_donor(&t.h, 4, 0);
	donor_signal(&t.d[0], SIGTERM);
	WAIT(get(&t.h, &t.h.evicts) == mine);
	WAIT(get(&t.h, &t.h.attached) == 4 + mine);
	WAIT(status(&t.h, 0).state == DCM_DONOR_DRAINING);
	two_move(&t, 0, 1);
	/* the drained donor ends with status 0: no slab was left */
	assert_int_equal(donor_wait(&t.d[0]), 0);
	assert_int_equal(get(&t.h, &t.h.losts), 0);
	for (e = 0; e < 4; e++)
		check_slab(&t.h, t.h.slab[e], e, 1);
	two_end(&t);
}

static void test_drained_tcp(void **state)
{
	(void)state;
	drained(false);
}

static void test_drained_shm(void **state)
{
	(void)state;
	drained(true);
}

/* A host that does not give back in time loses the slabs, and is told. */
static void test_drain_forced(void **state)
{
	static const char *const opts[] = {
		"--capacity",  "64M", "--slab-size",	 "2M",
		"--head-room", "0",   "--drain-timeout", "1s",
		NULL
	};
	struct donor d;
	struct host h = { 0 };

	(void)state;
	donor_start(&d, NULL, 0, host_keys, opts);
	host_donor(&h, "a", d.tcp);
	host_start(&h);
	want(&h, 0, 2);
	WAIT(get(&h, &h.attached) == 2);
	write_extent(&h, 0, 1);
	donor_signal(&d, SIGTERM);
	WAIT(get(&h, &h.losts) == 2);
	assert_int_equal(get(&h, &h.evicts), 2);
	assert_int_equal(h.lost_of[0], 1);
	assert_true(donor_wait(&d) != 0);
	host_stop(&h);
	donor_end(&d);
}

static u32 members(struct host *h)
{
	static struct dcm_client_status st;

	dcm_client_status(h->client, &st);
	return st.nr_donors;
}

/* Left, used again, removed and added, by the host's own will. */
static void members_change(bool local)
{
	struct dcm_host_donor a, c = { .name = "c" }, d;
	struct dcm_client_slab *kept[4];
	struct two t;
	u32 e, mine;

	two_start(&t, local);
	t.h.other = true;
	a = d = t.h.donors[0];
	two_fill(&t, 4);
	mine = on_donor(&t.h, 4, 0);
	assert_in_range(mine, 1, 3);
	assert_int_equal(dcm_client_donor_drain(t.h.client, "no", true),
			 -ENOENT);
	assert_int_equal(dcm_client_donor_remove(t.h.client, "no"), -ENOENT);
	assert_int_equal(dcm_client_donor_add(t.h.client, &a), -EALREADY);
	strcpy(c.address, a.address);
	assert_int_equal(dcm_client_donor_add(t.h.client, &c), -EADDRINUSE);
	strcpy(d.address, "unix:/nowhere");
	assert_int_equal(dcm_client_donor_add(t.h.client, &d), -EEXIST);
	strcpy(d.address, "tcp:no.such.host.invalid:1");
	assert_int_equal(dcm_client_donor_add(t.h.client, &d), -EHOSTUNREACH);
	assert_int_equal(members(&t.h), 2);

	assert_int_equal(dcm_client_donor_drain(t.h.client, "a", true), 0);
	assert_int_equal(dcm_client_donor_drain(t.h.client, "a", true),
			 -EALREADY);
	assert_int_equal(status(&t.h, 0).state, DCM_DONOR_DRAINING);
	WAIT(get(&t.h, &t.h.evicts) == mine);
	WAIT(get(&t.h, &t.h.attached) == 4 + mine);
	two_move(&t, 0, 1);
	WAIT(!status(&t.h, 0).slabs);
	/* the donor has its slabs back, and is asked for none */
	WAIT(status(&t.h, 0).slabs_free == 32);
	want(&t.h, 4, 12);
	WAIT(get(&t.h, &t.h.attached) == 12 + mine);
	WAIT(status(&t.h, 1).slabs == 12);
	assert_int_equal(status(&t.h, 0).slabs, 0);

	/* undrained, the donor has no slab yet, so it is chosen first */
	assert_int_equal(dcm_client_donor_drain(t.h.client, "a", false), 0);
	assert_int_equal(dcm_client_donor_drain(t.h.client, "a", false),
			 -EALREADY);
	WAIT(status(&t.h, 0).state == DCM_DONOR_UP);
	want(&t.h, 12, 13);
	WAIT(status(&t.h, 0).slabs == 1);
	write_extent(&t.h, 12, 1);

	/* the other one goes: its twelve need room, which is there */
	for (e = 0; e < 4; e++)
		kept[e] = t.h.slab[e];
	assert_int_equal(dcm_client_donor_remove(t.h.client, "b"), 0);
	assert_int_equal(dcm_client_donor_remove(t.h.client, "b"), -EALREADY);
	WAIT(get(&t.h, &t.h.evicts) == mine + 12);
	WAIT(get(&t.h, &t.h.attached) == 13 + mine + 12);
	for (e = 0; e < 4; e++)
		assert_ptr_equal(t.h.old[e], kept[e]);
	two_move(&t, 1, 0);
	assert_int_equal(members(&t.h), 2);
	for (e = 4; e < 12; e++)
		dcm_client_release(t.h.client, t.h.old[e]);
	WAIT(members(&t.h) == 1);
	assert_string_equal(status(&t.h, 0).name, "a");
	/* no slab of this host is there any more: nothing is lost with the donor */
	donor_end(&t.d[1]);
	for (e = 0; e < 4; e++)
		check_slab(&t.h, t.h.slab[e], e, 1);
	assert_int_equal(logged(&t.h, "is lost"), 0);

	/* another one comes, and one of the old name */
	donor_start(&t.d[1], NULL, 0, host_keys, donor_small);
	strcpy(c.address, t.d[1].tcp);
	assert_int_equal(dcm_client_donor_add(t.h.client, &c), 0);
	WAIT(members(&t.h) == 2 && status(&t.h, 1).state == DCM_DONOR_UP);
	want(&t.h, 20, 21);
	WAIT(status(&t.h, 1).slabs == 1);
	write_extent(&t.h, 20, 1);
	check_slab(&t.h, t.h.slab[20], 20, 1);
	/* its end is a loss again */
	donor_signal(&t.d[1], SIGKILL);
	WAIT(get(&t.h, &t.h.losts) == 1);
	assert_string_equal(t.h.lost_name[20], "c");
	assert_int_equal(dcm_client_donor_remove(t.h.client, "c"), 0);
	dcm_client_release(t.h.client, t.h.slab[20]);
	WAIT(members(&t.h) == 1);
	check_slab(&t.h, t.h.slab[12], 12, 1);
	two_end(&t);
}

static void test_members_change_tcp(void **state)
{
	(void)state;
	members_change(false);
}

static void test_members_change_shm(void **state)
{
	(void)state;
	members_change(true);
}

/* More donors than there are places, one after the other. */
static void test_many(void **state)
{
	struct dcm_host_donor d;
	struct donor real;
	struct host h = { 0 };
	u32 i;

	(void)state;
	donor_start(&real, NULL, 0, host_keys, donor_small);
	host_start(&h);
	for (i = 0; i < DCM_CONFIG_DONORS_MAX + 16; i++) {
		snprintf(d.name, sizeof(d.name), "d%u", i);
		snprintf(d.address, sizeof(d.address), "%s",
			 i % 16 ? "tcp:127.0.0.1:1" : real.tcp);
		assert_int_equal(dcm_client_donor_add(h.client, &d), 0);
		if (!(i % 16)) {
			WAIT(status(&h, 0).state == DCM_DONOR_UP);
			want(&h, 0, 1);
			WAIT(status(&h, 0).slabs == 1);
			write_extent(&h, 0, i + 1);
			check_slab(&h, h.slab[0], 0, i + 1);
			dcm_client_release(h.client, h.slab[0]);
		}
		assert_int_equal(dcm_client_donor_remove(h.client, d.name), 0);
		WAIT(!members(&h));
	}
	assert_int_equal(get(&h, &h.losts), 0);
	for (i = 0; i < DCM_CONFIG_DONORS_MAX; i++) {
		snprintf(d.name, sizeof(d.name), "e%u", i);
		snprintf(d.address, sizeof(d.address), "tcp:127.0.0.1:%u",
			 i + 1);
		assert_int_equal(dcm_client_donor_add(h.client, &d), 0);
	}
	strcpy(d.name, "more");
	strcpy(d.address, real.tcp);
	assert_int_equal(dcm_client_donor_add(h.client, &d), -ENOSPC);
	host_stop(&h);
	donor_end(&real);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_drained_tcp),
		cmocka_unit_test(test_drained_shm),
		cmocka_unit_test(test_drain_forced),
		cmocka_unit_test(test_members_change_tcp),
		cmocka_unit_test(test_members_change_shm),
		cmocka_unit_test(test_many),
	};

	return host_run("members", tests, sizeof(tests) / sizeof(tests[0]),
			argc > 1 ? argv[1] : NULL);
}

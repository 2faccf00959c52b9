// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * slab_test.c - slabs of real donors: lent, refused, given back
 *
 * The client spreads its slabs over donors, over every transport; a donor that
 * is full, has another slab size or another key lends none; a slab lent again
 * is zero.
 */
#include <signal.h>
#include <stdio.h>

#include "donor.h"
#include "host.h"

static void spread(struct dcm_client_config cfg, const char *donor_opt,
		   bool local)
{
	const char *opts[16] = { NULL };
	struct donor a, b;
	struct host h = { 0 };
	char pa[128], pb[128], addr[160];
	u32 e, n = 0, n0;

	while (donor_small[n]) {
		opts[n] = donor_small[n];
		n++;
	}
	if (donor_opt) {
		opts[n++] = "--data-encryption";
		opts[n++] = donor_opt;
	}
	snprintf(pa, sizeof(pa), "%s/a.sock", host_dir);
	snprintf(pb, sizeof(pb), "%s/b.sock", host_dir);
	donor_start(&a, local ? pa : NULL, local ? -1 : 0, host_keys, opts);
	donor_start(&b, local ? pb : NULL, local ? -1 : 0, host_keys, opts);
	snprintf(addr, sizeof(addr), "unix:%s", pa);
	host_donor(&h, "a", local ? addr : a.tcp);
	snprintf(addr, sizeof(addr), "unix:%s", pb);
	host_donor(&h, "b", local ? addr : b.tcp);
	host_start_cfg(&h, cfg);
	assert_int_equal(dcm_client_extent_bytes(h.client, 10000), SLAB);
	/* both there first, or the first takes all */
	WAIT(status(&h, 0).state == DCM_DONOR_UP &&
	     status(&h, 1).state == DCM_DONOR_UP);
	want(&h, 0, 8);
	WAIT(get(&h, &h.attached) == 8);
	n0 = on_donor(&h, 8, 0);
	assert_in_range(n0, 2, 6);
	assert_int_equal(n0 + on_donor(&h, 8, 1), 8);
	for (e = 0; e < 8; e++) {
		assert_int_equal(h.slab[e]->transport,
				 local ? DCM_WT_SHM : DCM_WT_TCP);
		write_extent(&h, e, 1);
	}
	for (e = 0; e < 8; e++)
		check_slab(&h, h.slab[e], e, 1);
	WAIT(status(&h, 0).reads == n0 * SLAB / PAGE / 16);
	assert_int_equal(status(&h, 0).writes, n0 * SLAB / PAGE / 16);
	assert_int_equal(status(&h, 1).slabs, 8 - n0);
	assert_int_equal(status(&h, 1).bytes, (8 - n0) * SLAB);
	assert_true(status(&h, 1).rtt_ns > 0);
	WAIT(READ_ONCE(h.slab[0]->activity_milli) > 0);
	/* outside, and not aligned: the donor or we say no */
	{
		static u8 buf[PAGE];

		assert_int_equal(io(&h, h.slab[0], DCM_IO_READ, SLAB, PAGE,
				    buf),
				 -ERANGE);
	}
	/* give back: the donor has the memory again */
	for (e = 0; e < 4; e++)
		dcm_client_release(h.client, h.slab[e]);
	WAIT(status(&h, 0).slabs + status(&h, 1).slabs == 4);
	WAIT(status(&h, 0).slabs_free + status(&h, 1).slabs_free == 60);
	want(&h, 0, 4);
	WAIT(get(&h, &h.attached) == 12);
	/* a slab lent again is zero */
	for (e = 0; e < 4; e++) {
		static u8 buf[65536];
		u32 i;

		memset(buf, 1, sizeof(buf));
		assert_int_equal(io(&h, h.slab[e], DCM_IO_READ, 65536, 65536,
				    buf),
				 0);
		for (i = 0; i < sizeof(buf); i++)
			assert_int_equal(buf[i], 0);
	}
	assert_int_equal(get(&h, &h.attached), 12);
	assert_int_equal(h.losts + h.evicts + h.starved, 0);
	host_stop(&h);
	donor_end(&a);
	donor_end(&b);
}

static void test_spread_tls(void **state)
{
	(void)state;
	spread((struct dcm_client_config){ .extent = SLAB,
					   .data_encryption = true },
	       NULL, false);
}

static void test_spread_plain(void **state)
{
	(void)state;
	spread((struct dcm_client_config){ .extent = SLAB }, "no", false);
}

static void test_spread_insists(void **state)
{
	(void)state;
	spread((struct dcm_client_config){ 0 }, "yes", false);
}

static void test_spread_shm(void **state)
{
	(void)state;
	spread((struct dcm_client_config){ .data_encryption = true }, NULL,
	       true);
}

/* Two hosts that want seven slabs before they are connected: 4 and 3 each. */
static void test_spread_at_start(void **state)
{
	struct host h[2] = { 0 };
	struct donor a, b;
	char path[128], addr[160];
	u32 i, n;

	(void)state;
	snprintf(path, sizeof(path), "%s/a.sock", host_dir);
	donor_start(&a, path, -1, host_keys, donor_small);
	donor_start(&b, NULL, 0, host_keys, donor_small);
	snprintf(addr, sizeof(addr), "unix:%s", path);
	for (i = 0; i < 2; i++) {
		host_donor(&h[i], "a", addr);
		host_donor(&h[i], "b", b.tcp);
	}
	for (i = 0; i < 2; i++) {
		host_start(&h[i]);
		want(&h[i], 0, 7);
	}
	for (n = 0, i = 0; i < 2; i++) {
		WAIT(get(&h[i], &h[i].attached) == 7);
		n += on_donor(&h[i], 7, 0);
	}
	/* 7 of 14: at most 1.25 times that, and one */
	print_message("# %u and %u\n", n, 14 - n);
	assert_in_range(n, 5, 9);
	for (i = 0; i < 2; i++)
		host_stop(&h[i]);
	donor_end(&a);
	donor_end(&b);
}

static void test_wrong_key(void **state)
{
	struct donor d;
	struct host h = { 0 };

	(void)state;
	donor_start(&d, NULL, 0, host_bad_keys, donor_small);
	host_donor(&h, "a", d.tcp);
	host_start(&h);
	want(&h, 0, 1);
	WAIT(logged(&h, "compare our key file with the donor's"));
	WAIT(get(&h, &h.starved) == 1);
	usleep(2000000);
	/* said once, not at every try */
	assert_int_equal(logged(&h, "compare our key file"), 1);
	assert_int_equal(logged(&h, "no donor can lend"), 1);
	assert_int_equal(get(&h, &h.attached), 0);
	assert_int_equal(status(&h, 0).state, DCM_DONOR_CONNECTING);
	assert_true(status(&h, 0).why[0]);
	host_stop(&h);
	donor_end(&d);
}

static void test_full(void **state)
{
	static const char *const opts[] = {
		"--capacity",	 "4M", "--slab-size", "2M", "--head-room", "0",
		"--spare-slabs", "0",  NULL
	};
	struct donor d;
	struct host h = { 0 };

	(void)state;
	donor_start(&d, NULL, 0, host_keys, opts);
	host_donor(&h, "a", d.tcp);
	host_start(&h);
	want(&h, 0, 2);
	WAIT(get(&h, &h.attached) == 2);
	want(&h, 2, 4);
	WAIT(get(&h, &h.starved) >= 1);
	assert_int_equal(get(&h, &h.attached), 2);
	dcm_client_release(h.client, h.slab[0]);
	WAIT(get(&h, &h.attached) == 3);
	dcm_client_release(h.client, h.slab[1]);
	WAIT(get(&h, &h.attached) == 4);
	assert_true(h.slab[2] && h.slab[3]);
	assert_int_equal(logged(&h, "no donor can lend"), 1);
	host_stop(&h);
	donor_end(&d);
}

static void test_wrong_size(void **state)
{
	static const char *const opts[] = { "--capacity",  "64M",
					    "--slab-size", "4M",
					    "--head-room", "0",
					    NULL };
	struct donor d, good;
	struct host h = { 0 };

	(void)state;
	donor_start(&d, NULL, 0, host_keys, opts);
	donor_start(&good, NULL, 0, host_keys, donor_small);
	host_donor(&h, "odd", d.tcp);
	host_donor(&h, "good", good.tcp);
	host_start(&h);
	WAIT(logged(&h, "donor odd") && logged(&h, "give all donors the same"));
	want(&h, 0, 3);
	WAIT(get(&h, &h.attached) == 3);
	assert_int_equal(on_donor(&h, 3, 1), 3);
	host_stop(&h);
	donor_end(&d);
	donor_end(&good);
}

/* The donor's side of a clean end: all is back at once. */
static void test_goodbye(void **state)
{
	struct donor d;
	struct host h = { 0 }, g = { 0 };

	(void)state;
	donor_start(&d, NULL, 0, host_keys, donor_small);
	host_donor(&h, "a", d.tcp);
	host_donor(&g, "a", d.tcp);
	host_start(&h);
	want(&h, 0, 32);
	WAIT(get(&h, &h.attached) == 32);
	host_stop(&h);
	host_start(&g);
	want(&g, 0, 32);
	WAIT(get(&g, &g.attached) == 32);
	host_stop(&g);
	donor_end(&d);
}

/* Over the session, and again when it has changed. */
static void test_a_donor_tells_of_itself(void **state)
{
	struct dcm_client_donor_status st;
	struct host h = { 0 };
	struct donor d;

	(void)state;
	donor_start(&d, NULL, 0, host_keys, donor_small);
	host_donor(&h, "a", d.tcp);
	host_start(&h);
	WAIT(status(&h, 0).told);
	want(&h, 0, 3);
	WAIT(status(&h, 0).lent_bytes == 3 * SLAB);
	st = status(&h, 0);
	assert_int_equal(st.capacity_bytes, 64 << 20);
	assert_int_equal(st.head_room_bytes, 0);
	assert_int_equal(st.sessions, 1);
	donor_signal(&d, SIGKILL);
	WAIT(!status(&h, 0).told);
	host_stop(&h);
	donor_end(&d);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_spread_tls),
		cmocka_unit_test(test_spread_plain),
		cmocka_unit_test(test_spread_insists),
		cmocka_unit_test(test_spread_shm),
		cmocka_unit_test(test_spread_at_start),
		cmocka_unit_test(test_wrong_key),
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_wrong_size),
		cmocka_unit_test(test_goodbye),
		cmocka_unit_test(test_a_donor_tells_of_itself),
	};

	return host_run("slab", tests, sizeof(tests) / sizeof(tests[0]),
			argc > 1 ? argv[1] : NULL);
}

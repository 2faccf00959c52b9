// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * cut_test.c - a connection to a donor that is cut, or carries nothing
 *
 * The donor runs all the time, behind a proxy that closes connections or drops
 * bytes. Data comes through once the proxy does; a slab is lost only when the
 * patience is over.
 */
#include <stdio.h>

#include "../framework/proxy.h"
#include "donor.h"
#include "host.h"

struct cut {
	struct host *h;
	struct proxy *p;
};

/* The other lane: its connection is given up, too, as something is on its way. */
static void *open_later(void *arg)
{
	static u8 page[PAGE];
	struct cut *c = arg;
	struct dcm_io *done, req = { .slab = &c->h->slab[0]->ref,
				     .bytes = PAGE,
				     .op = DCM_IO_READ,
				     .data = page };
	u64 end = now_ms() + 13000;
	int given_up = 0;

	if (dcm_client_io_post(c->h->client, 1, &req))
		return NULL;
	dcm_client_io_flush(c->h->client, 1);
	while (now_ms() < end) {
		if (dcm_client_io_poll(c->h->client, 1, &done, 8))
			given_up = req.status == -ENOTCONN;
		usleep(10000);
	}
	proxy_open(c->p);
	return given_up ? c : NULL;
}

/* A network that is cut for longer than connections are waited for. */
static void cut_off(int ways)
{
	static u8 buf[PAGE];
	struct dcm_client_config cfg = { .extent = SLAB };
	struct host h = { 0 };
	struct donor d;
	struct proxy *p;
	pthread_t later;
	char addr[64];
	void *given_up;
	struct cut c;
	u64 since;

	donor_start(&d, NULL, 0, host_keys, donor_small);
	p = proxy_start(d.tcp, addr, sizeof(addr));
	host_donor(&h, "a", addr);
	host_start_cfg(&h, cfg);
	want(&h, 0, 3);
	WAIT(get(&h, &h.attached) == 3);
	write_extent(&h, 0, 1);
	/* so that the other lane has taken its connection */
	WAIT(({
		dcm_client_lane_look(h.client, 1);
		dcm_client_endpoint(h.client, h.slab[0], 1);
	}));
	proxy_hush(p, ways, false);
	since = now_ms();
	c = (struct cut){ &h, p };
	pthread_create(&later, NULL, open_later, &c);
	/* a write is on its way: its connection is given up, again and again */
	memset(buf, 0x5a, sizeof(buf));
	assert_int_equal(io(&h, h.slab[1], DCM_IO_WRITE, 0, PAGE, buf), 0);
	printf("cut off for 13 s: a write took %llu ms\n",
	       (unsigned long long)(now_ms() - since));
	pthread_join(later, &given_up);
	assert_ptr_equal(given_up, &c);
	check_slab(&h, h.slab[0], 0, 1);
	write_extent(&h, 2, 7);
	check_slab(&h, h.slab[2], 2, 7);
	assert_int_equal(get(&h, &h.losts), 0);
	/* here heartbeats of the donor got through if only the other way was cut */
	assert_int_equal(logged(&h, "reached again after"),
			 ways & FROM_DONOR ? 1 : 0);
	host_stop(&h);
	proxy_stop(p);
	donor_end(&d);
}

static void test_cut_off(void **state)
{
	(void)state;
	cut_off(FROM_HOST | FROM_DONOR);
}

/* The donor hears that connections are closed, and the host hears nothing. */
static void test_cut_off_from_the_donor(void **state)
{
	(void)state;
	cut_off(FROM_DONOR);
}

static void test_cut_off_from_the_host(void **state)
{
	(void)state;
	cut_off(FROM_HOST);
}

/* Only the control side of a donor is silent: the donor is drained, not given up. */
static void test_silent_but_serving(void **state)
{
	struct host h = { 0 };
	struct donor d[2];
	struct proxy *p;
	char addr[64];
	u32 e, moved;
	u64 end;

	(void)state;
	donor_start(&d[0], NULL, 0, host_keys, donor_small);
	donor_start(&d[1], NULL, 0, host_keys, donor_small);
	p = proxy_start(d[0].tcp, addr, sizeof(addr));
	host_donor(&h, "a", addr);
	host_start_cfg(&h, (struct dcm_client_config){ .extent = SLAB,
						       .patience_ms = 6000 });
	h.other = true;
	want(&h, 0, 6);
	WAIT(get(&h, &h.attached) == 6);
	for (e = 0; e < 6; e++)
		write_extent(&h, e, 1);
	proxy_hush(p, FROM_HOST | FROM_DONOR, true);
	for (end = now_ms() + 10000; now_ms() < end;)
		check_slab(&h, h.slab[0], 0, 1);
	assert_int_equal(get(&h, &h.losts), 0);
	assert_int_equal(status(&h, 0).state, DCM_DONOR_SILENT);
	/* no other donor has room: no slab was asked to move */
	assert_int_equal(get(&h, &h.evicts), 0);
	host_donor(&h, "b", d[1].tcp);
	assert_int_equal(dcm_client_donor_add(h.client, &h.donors[1]), 0);
	for (moved = 0; moved < 6;) {
		/* each slab is used until it has been moved */
		check_slab(&h, h.slab[5], 5, 1);
		moved += moved_release(&h, 6);
		assert_true(now_ms() < end + 40000);
	}
	assert_int_equal(on_donor(&h, 6, 1), 6);
	assert_int_equal(get(&h, &h.losts), 0);
	for (e = 0; e < 6; e++)
		check_slab(&h, h.slab[e], e, 1);
	proxy_open(p);
	host_stop(&h);
	proxy_stop(p);
	donor_end(&d[0]);
	donor_end(&d[1]);
}

/* The line is cut, the donor is not: a pause, no loss. */
static void test_resume(void **state)
{
	struct donor d;
	struct host h = { 0 };
	struct proxy *p;
	char addr[64];
	u32 e, round;

	(void)state;
	donor_start(&d, NULL, 0, host_keys, donor_small);
	p = proxy_start(d.tcp, addr, sizeof(addr));
	host_donor(&h, "a", addr);
	host_start_cfg(&h, (struct dcm_client_config){ .extent = SLAB,
						       .data_encryption = true,
						       .patience_ms = 5000 });
	want(&h, 0, 3);
	WAIT(get(&h, &h.attached) == 3);
	for (e = 0; e < 3; e++)
		write_extent(&h, e, 1);
	for (round = 0; round < 3; round++) {
		proxy_cut(p, true);
		if (round == 1) {
			/* given back while there is no connection */
			dcm_client_release(h.client, h.slab[2]);
			h.slab[2] = NULL;
		}
		usleep(1500000);
		proxy_open(p);
		for (e = 0; e < 2; e++) {
			check_slab(&h, h.slab[e], e, round + 1);
			write_extent(&h, e, round + 2);
		}
		WAIT(logged(&h, "nothing lost") == round + 1);
	}
	WAIT(status(&h, 0).slabs_free == 30);
	assert_int_equal(get(&h, &h.losts), 0);
	/* cut for good: lost, once, as silence */
	proxy_cut(p, true);
	WAIT(get(&h, &h.losts) == 2);
	assert_int_equal(logged(&h, "is lost: not heard of for 5 s"), 1);
	/* and the donor has freed them */
	proxy_open(p);
	WAIT(status(&h, 0).state == DCM_DONOR_UP);
	WAIT(status(&h, 0).slabs_free == 32);
	host_stop(&h);
	proxy_stop(p);
	donor_end(&d);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cut_off),
		cmocka_unit_test(test_cut_off_from_the_donor),
		cmocka_unit_test(test_cut_off_from_the_host),
		cmocka_unit_test(test_silent_but_serving),
		cmocka_unit_test(test_resume),
	};

	return host_run("cut", tests, sizeof(tests) / sizeof(tests[0]),
			argc > 1 ? argv[1] : NULL);
}

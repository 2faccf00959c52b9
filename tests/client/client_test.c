// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * client_test.c - the control plane against real donors
 *
 * Donors are started, stopped, continued, killed, drained and cut off; every
 * page written carries its extent, its number and a version, and is read back.
 * No time is measured: a wait ends when its condition holds, or fails after
 * half a minute.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "../../kvm-dcm/transport/hostile.h"
#include "donor.h"
#include "host.h"

static const char *const small[] = {
	"--capacity", "64M",	       "--slab-size", "2M", "--head-room",
	"0",	      "--spare-slabs", "0",	      NULL
};
/* the same, with a patience of 3 s */
static const char *const hasty[] = { "--capacity",
				     "64M",
				     "--slab-size",
				     "2M",
				     "--head-room",
				     "0",
				     "--spare-slabs",
				     "0",
				     "--set",
				     "limits.patience=3s",
				     NULL };

static void spread(struct dcm_client_config cfg, const char *donor_opt,
		   bool local)
{
	const char *opts[16] = { NULL };
	struct donor a, b;
	struct host h = { 0 };
	char pa[128], pb[128], addr[160];
	u32 e, n = 0, n0;

	while (small[n]) {
		opts[n] = small[n];
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

struct two {
	struct donor d[2];
	struct host h;
};

static void two_start_cfg(struct two *t, bool local, u32 patience_ms)
{
	char path[128], addr[160];
	int i;

	memset(t, 0, sizeof(*t));
	for (i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/%c.sock", host_dir, 'a' + i);
		donor_start(&t->d[i], local ? path : NULL, local ? -1 : 0,
			    host_keys, small);
		snprintf(addr, sizeof(addr), "unix:%s", path);
		host_donor(&t->h, i ? "b" : "a", local ? addr : t->d[i].tcp);
	}
	host_start_cfg(&t->h, (struct dcm_client_config){
				      .extent = SLAB,
				      .data_encryption = true,
				      .patience_ms = patience_ms });
	WAIT(status(&t->h, 0).state == DCM_DONOR_UP &&
	     status(&t->h, 1).state == DCM_DONOR_UP);
}

static void two_start(struct two *t, bool local)
{
	two_start_cfg(t, local, 0);
}

static void two_fill(struct two *t, u32 nr)
{
	u32 e;

	want(&t->h, 0, nr);
	WAIT(get(&t->h, &t->h.attached) == nr);
	for (e = 0; e < nr; e++)
		write_extent(&t->h, e, 1);
}

static void two_end(struct two *t)
{
	host_stop(&t->h);
	donor_end(&t->d[0]);
	donor_end(&t->d[1]);
}

static void killed(bool local)
{
	static u8 buf[PAGE];
	struct two t;
	u32 e, mine;
	u64 since;

	two_start(&t, local);
	two_fill(&t, 6);
	mine = on_donor(&t.h, 6, 0);
	assert_in_range(mine, 1, 5);
	since = now_ms();
	donor_signal(&t.d[0], SIGKILL);
	WAIT(get(&t.h, &t.h.losts) == mine);
	printf("a donor that died was lost after %llu ms\n",
	       (unsigned long long)(now_ms() - since));
	assert_int_equal(logged(&t.h, "nothing listens at its address"), 1);
	for (e = 0; e < 6; e++) {
		if (t.h.slab[e]->donor) {
			assert_int_equal(t.h.lost_of[e], 0);
			check_slab(&t.h, t.h.slab[e], e, 1);
			continue;
		}
		assert_int_equal(t.h.lost_of[e], 1);
		assert_string_equal(t.h.lost_name[e], "a");
		assert_int_equal(io(&t.h, t.h.slab[e], DCM_IO_READ, 0, PAGE,
				    buf),
				 -ESTALE);
	}
	assert_int_equal(logged(&t.h, "is lost"), 1);
	assert_int_equal(logged(&t.h, "silent for"), 0);
	WAIT(status(&t.h, 0).state == DCM_DONOR_LOST);
	/* lost extents get new slabs, from the other */
	for (e = 0; e < 6; e++)
		if (!t.h.slab[e]->donor) {
			dcm_client_release(t.h.client, t.h.slab[e]);
			t.h.slab[e] = NULL;
		}
	want(&t.h, 0, 6);
	WAIT(get(&t.h, &t.h.attached) == 6 + mine);
	assert_int_equal(on_donor(&t.h, 6, 1), 6);
	assert_int_equal(get(&t.h, &t.h.losts), mine);
	two_end(&t);
}

static void test_killed_tcp(void **state)
{
	(void)state;
	killed(false);
}

static void test_killed_shm(void **state)
{
	(void)state;
	killed(true);
}

/* Of four extents: those that have a slab of @to too are moved there. */
static void two_move(struct two *t, u32 from, u32 to)
{
	static u8 buf[65536];
	u32 e, off;

	for (e = 0; e < 4; e++) {
		struct dcm_client_slab *old = t->h.old[e], *new = t->h.slab[e];

		if (!old)
			continue;
		assert_int_equal(old->donor, from);
		assert_int_equal(new->donor, to);
		for (off = 0; off < SLAB; off += sizeof(buf)) {
			assert_int_equal(io(&t->h, old, DCM_IO_READ, off,
					    sizeof(buf), buf),
					 0);
			assert_int_equal(io(&t->h, new, DCM_IO_WRITE, off,
					    sizeof(buf), buf),
					 0);
		}
		t->h.old[e] = NULL;
		dcm_client_release(t->h.client, old);
		check_slab(&t->h, new, e, 1);
	}
}

static void test_stopped_short(void **state)
{
	struct two t;
	u32 e;

	(void)state;
	two_start(&t, false);
	two_fill(&t, 4);
	donor_signal(&t.d[0], SIGSTOP);
	usleep(3000000);
	/* operations that wait for this donor get through */
	donor_signal(&t.d[0], SIGCONT);
	for (e = 0; e < 4; e++) {
		write_extent(&t.h, e, 2);
		check_slab(&t.h, t.h.slab[e], e, 2);
	}
	/* and nothing is declared later on */
	usleep(3000000);
	assert_int_equal(get(&t.h, &t.h.losts), 0);
	assert_int_equal(status(&t.h, 0).state, DCM_DONOR_UP);
	two_end(&t);
}

/* For longer than any connection is waited for: a pause, and nothing is lost. */
static void test_stopped_long(void **state)
{
	struct two t;
	u32 e;

	(void)state;
	two_start(&t, false);
	two_fill(&t, 4);
	donor_signal(&t.d[0], SIGSTOP);
	WAIT(status(&t.h, 0).state == DCM_DONOR_SILENT);
	assert_in_range(status(&t.h, 0).silent_ms, 4900, 60000);
	assert_int_equal(status(&t.h, 0).patience_ms, 60000);
	usleep(4000000);
	donor_signal(&t.d[0], SIGCONT);
	for (e = 0; e < 4; e++) {
		check_slab(&t.h, t.h.slab[e], e, 1);
		write_extent(&t.h, e, 2);
		check_slab(&t.h, t.h.slab[e], e, 2);
	}
	WAIT(status(&t.h, 0).state == DCM_DONOR_UP);
	assert_int_equal(get(&t.h, &t.h.losts), 0);
	assert_int_equal(get(&t.h, &t.h.evicts), 0);
	assert_int_equal(logged(&t.h, "silent for 5 s"), 1);
	assert_int_equal(logged(&t.h, "reached again after"), 1);
	two_end(&t);
}

/* A stopped donor's shm slabs can still be read: they are moved, never given up. */
static void test_stopped_shm(void **state)
{
	struct two t;
	u32 e, mine;

	(void)state;
	two_start_cfg(&t, true, 6000);
	two_fill(&t, 4);
	mine = on_donor(&t.h, 4, 0);
	assert_in_range(mine, 1, 3);
	t.h.other = true;
	donor_signal(&t.d[0], SIGSTOP);
	WAIT(get(&t.h, &t.h.attached) == 4 + mine);
	assert_int_equal(get(&t.h, &t.h.evicts), mine);
	assert_int_equal(status(&t.h, 0).state, DCM_DONOR_SILENT);
	usleep(3000000);
	assert_int_equal(get(&t.h, &t.h.losts), 0);
	two_move(&t, 0, 1);
	donor_signal(&t.d[0], SIGCONT);
	WAIT(status(&t.h, 0).state == DCM_DONOR_UP && !status(&t.h, 0).slabs);
	for (e = 0; e < 4; e++)
		check_slab(&t.h, t.h.slab[e], e, 1);
	two_end(&t);
}

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

	donor_start(&d, NULL, 0, host_keys, small);
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
	donor_start(&d[0], NULL, 0, host_keys, small);
	donor_start(&d[1], NULL, 0, host_keys, small);
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
		for (e = 0; e < 6; e++) {
			struct dcm_client_slab *old;

			pthread_mutex_lock(&h.lock);
			old = h.old[e];
			h.old[e] = NULL;
			pthread_mutex_unlock(&h.lock);
			if (!old)
				continue;
			check_slab(&h, old, e, 1);
			write_extent(&h, e, 1);
			dcm_client_release(h.client, old);
			moved++;
		}
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

/* Longer than our patience. */
static void test_patience_is_over(void **state)
{
	struct two t;
	u32 e, mine;

	(void)state;
	two_start_cfg(&t, false, 6000);
	two_fill(&t, 4);
	mine = on_donor(&t.h, 4, 1);
	donor_signal(&t.d[1], SIGSTOP);
	WAIT(get(&t.h, &t.h.losts) == mine);
	assert_int_equal(logged(&t.h, "is lost: not heard of for 6 s"), 1);
	usleep(3000000);
	donor_signal(&t.d[1], SIGCONT);
	for (e = 0; e < 4; e++)
		if (t.h.slab[e]->donor == 1) {
			assert_string_equal(t.h.lost_name[e], "b");
			assert_int_equal(t.h.lost_of[e], 1);
			dcm_client_release(t.h.client, t.h.slab[e]);
			t.h.slab[e] = NULL;
		} else {
			check_slab(&t.h, t.h.slab[e], e, 1);
		}
	/* the donor is used again, for new slabs: unused donors come first */
	WAIT(status(&t.h, 1).state == DCM_DONOR_UP);
	want(&t.h, 0, 4);
	WAIT(get(&t.h, &t.h.attached) == 4 + mine);
	for (e = 4; !on_donor(&t.h, EXTENTS, 1) && e < 30; e++) {
		want(&t.h, e, e + 1);
		WAIT(get(&t.h, &t.h.attached) == 5 + mine + e - 4);
	}
	assert_true(on_donor(&t.h, EXTENTS, 1) >= 1);
	for (e = 0; e < 4; e++) {
		write_extent(&t.h, e, 3);
		check_slab(&t.h, t.h.slab[e], e, 3);
	}
	assert_int_equal(get(&t.h, &t.h.losts), mine);
	two_end(&t);
}

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

/* The line is cut, the donor is not: a pause, no loss. */
static void test_resume(void **state)
{
	struct donor d;
	struct host h = { 0 };
	struct proxy *p;
	char addr[64];
	u32 e, round;

	(void)state;
	donor_start(&d, NULL, 0, host_keys, small);
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

static void test_restarted(void **state)
{
	struct donor d;
	struct host h = { 0 };
	int port;

	(void)state;
	donor_start(&d, NULL, 0, host_keys, small);
	port = atoi(strrchr(d.tcp, ':') + 1);
	host_donor(&h, "a", d.tcp);
	host_start(&h);
	want(&h, 0, 2);
	WAIT(get(&h, &h.attached) == 2);
	write_extent(&h, 0, 1);
	donor_signal(&d, SIGKILL);
	donor_start(&d, NULL, port, host_keys, small);
	WAIT(get(&h, &h.losts) == 2);
	assert_int_equal(logged(&h, "not heard of"), 0);
	dcm_client_release(h.client, h.slab[0]);
	dcm_client_release(h.client, h.slab[1]);
	h.slab[0] = h.slab[1] = NULL;
	want(&h, 0, 2);
	WAIT(get(&h, &h.attached) == 4);
	write_extent(&h, 0, 5);
	check_slab(&h, h.slab[0], 0, 5);
	assert_int_equal(get(&h, &h.losts), 2);
	host_stop(&h);
	donor_end(&d);
}

static void test_wrong_key(void **state)
{
	struct donor d;
	struct host h = { 0 };

	(void)state;
	donor_start(&d, NULL, 0, host_bad_keys, small);
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
	donor_start(&good, NULL, 0, host_keys, small);
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

/* A host process that is stopped for a while; runs in a child. */
static int stopped_host(struct donor *d, int to, bool lose, u32 patience_ms)
{
	struct dcm_client_config cfg = { .extent = SLAB,
					 .data_encryption = true,
					 .patience_ms = patience_ms };
	struct host h = { 0 };
	char c = 'x';
	u32 e;

	host_donor(&h, "a", d->tcp);
	host_start_cfg(&h, cfg);
	want(&h, 0, 2);
	WAIT(get(&h, &h.attached) == 2);
	for (e = 0; e < 2; e++)
		write_extent(&h, e, 1);
	if (write(to, &c, 1) != 1)
		return 1;
	if (lose) {
		WAIT(get(&h, &h.losts) == 2);
		for (e = 0; e < 2; e++) {
			dcm_client_release(h.client, h.slab[e]);
			h.slab[e] = NULL;
		}
		want(&h, 0, 2);
		WAIT(get(&h, &h.attached) == 4);
		write_extent(&h, 0, 2);
		check_slab(&h, h.slab[0], 0, 2);
	} else {
		u64 end = now_ms() + 6000;

		/* over the stop, and long enough to regret */
		while (now_ms() < end)
			for (e = 0; e < 2; e++)
				check_slab(&h, h.slab[e], e, 1);
		assert_int_equal(get(&h, &h.losts), 0);
	}
	host_stop(&h);
	return 0;
}

/* @both: the donor too, and before; @lose: for longer than that waits. */
static void stop_host(unsigned int seconds, bool both, bool lose)
{
	struct donor d;
	int fds[2], st;
	pid_t pid;
	char c;

	donor_start(&d, NULL, 0, host_keys, lose ? hasty : small);
	assert_int_equal(pipe(fds), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(stopped_host(&d, fds[1], lose, both ? 6000 : 0));
	}
	assert_int_equal(read(fds[0], &c, 1), 1);
	if (both) {
		donor_signal(&d, SIGSTOP);
		sleep(4);
	}
	kill(pid, SIGSTOP);
	sleep(seconds);
	if (both)
		donor_signal(&d, SIGCONT);
	kill(pid, SIGCONT);
	assert_int_equal(waitpid(pid, &st, 0), pid);
	assert_true(WIFEXITED(st));
	assert_int_equal(WEXITSTATUS(st), 0);
	close(fds[0]);
	close(fds[1]);
	donor_end(&d);
}

/*
 * The donor is stopped, then the host that waits for the donor: the time in which
 * the host itself was stopped does not count as patience. Both go on at once.
 */
static void test_both_stopped(void **state)
{
	(void)state;
	stop_host(7, true, false);
}

/* The donor spoke to deaf ears, and has not given up: neither does the host. */
static void test_host_stopped(void **state)
{
	(void)state;
	stop_host(8, false, false);
}

/* The donor has freed everything; the host must find out and say so. */
static void test_host_stopped_too_long(void **state)
{
	(void)state;
	stop_host(8, false, true);
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
	donor_start(&t.d[1], NULL, 0, host_keys, small);
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

/* Two hosts that want seven slabs before they are connected: 4 and 3 each. */
static void test_spread_at_start(void **state)
{
	struct host h[2] = { 0 };
	struct donor a, b;
	char path[128], addr[160];
	u32 i, n;

	(void)state;
	snprintf(path, sizeof(path), "%s/a.sock", host_dir);
	donor_start(&a, path, -1, host_keys, small);
	donor_start(&b, NULL, 0, host_keys, small);
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

/* More donors than there are places, one after the other. */
static void test_many(void **state)
{
	struct dcm_host_donor d;
	struct donor real;
	struct host h = { 0 };
	u32 i;

	(void)state;
	donor_start(&real, NULL, 0, host_keys, small);
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

/* The donor's side of a clean end: all is back at once. */
static void test_goodbye(void **state)
{
	struct donor d;
	struct host h = { 0 }, g = { 0 };

	(void)state;
	donor_start(&d, NULL, 0, host_keys, small);
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

static struct dcm_hostile dials = { .delay_ns = 2000000 };

static struct dcm_endpoint *wrap(void *arg, struct dcm_endpoint *ep)
{
	static u64 seed;
	struct dcm_hostile_args args = { .inner = ep,
					 .dials = &dials,
					 .seed = ++seed };
	int err;

	(void)arg;
	ep = dcm_transport_hostile.open(&args, &err);
	assert_non_null(ep);
	return ep;
}

/*
 * Many operations in flight on a transport that does its worst, before real
 * donors: every write that was reported as done is there.
 */
static void hostile(bool local)
{
	enum { NR = 48 };
	struct job {
		struct dcm_io io;
		u64 buf[PAGE / 8];
		u32 e, p;
		u64 version;
		bool busy;
	};
	static struct job job[NR];
	static u64 at[4][NR]; /* version certain to be there */
	static bool sure[4][NR];
	struct dcm_client_config cfg = { .extent = SLAB, .wrap = wrap };
	struct donor d[2];
	struct host h = { 0 };
	u64 rng = 12345, checked = 0, version = 0, end = now_ms() + 60000;
	char path[128], addr[160];
	u32 i, k, steps = 0, deaths;

	memset(job, 0, sizeof(job));
	memset(sure, 0, sizeof(sure));
	memset(&dials.count, 0, sizeof(dials.count));
	for (i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/%c.sock", host_dir,
			 'a' + (int)i);
		donor_start(&d[i], local ? path : NULL, local ? -1 : 0,
			    host_keys, small);
		snprintf(addr, sizeof(addr), "unix:%s", path);
		host_donor(&h, i ? "b" : "a", local ? addr : d[i].tcp);
	}
	for (i = 0; i < DCM_HOSTILE_NR; i++)
		WRITE_ONCE(dials.ppm[i], 0);
	host_start_cfg(&h, cfg);
	want(&h, 0, 4);
	WAIT(get(&h, &h.attached) == 4);
	for (i = 0; i < DCM_HOSTILE_NR; i++)
		WRITE_ONCE(dials.ppm[i], 30000);
	WRITE_ONCE(dials.ppm[DCM_HOSTILE_SILENCE], 0);
	WRITE_ONCE(dials.ppm[DCM_HOSTILE_ESTALE], 0);
	WRITE_ONCE(dials.ppm[DCM_HOSTILE_DIE], local ? 0 : 300);
	while (steps < 60000) {
		struct dcm_io *done;

		assert_true(now_ms() < end);
		for (i = 0; i < NR; i++) {
			struct job *j = &job[i];
			int ret;

			if (j->busy)
				continue;
			rng ^= rng << 13;
			rng ^= rng >> 7;
			rng ^= rng << 17;
			/* a page is one job's, as in the core */
			j->e = rng % 4;
			j->p = i;
			j->io = (struct dcm_io){
				.slab = &h.slab[j->e]->ref,
				.offset = (u64)i * PAGE,
				.bytes = PAGE,
				.op = rng >> 20 & 1 ? DCM_IO_READ :
						      DCM_IO_WRITE,
				.data = j->buf,
			};
			if (j->io.op == DCM_IO_WRITE) {
				j->version = ++version;
				fill(j->buf, j->e, j->p, j->version);
			}
			ret = dcm_client_io_post(h.client, 0, &j->io);
			if (ret == -EAGAIN || ret == -ENOTCONN)
				break;
			assert_int_equal(ret, 0);
			if (j->io.op == DCM_IO_WRITE)
				sure[j->e][i] = false;
			j->busy = true;
		}
		dcm_client_io_flush(h.client, 0);
		dcm_client_io_poll(h.client, 0, &done, 16);
		for (; done; done = done->next) {
			struct job *j = container_of(done, struct job, io);
			static u64 want_buf[PAGE / 8];

			steps++;
			j->busy = false;
			if (done->status)
				continue;
			if (done->op == DCM_IO_WRITE) {
				at[j->e][j->p] = j->version;
				sure[j->e][j->p] = true;
				continue;
			}
			if (!sure[j->e][j->p])
				continue;
			fill(want_buf, j->e, j->p, at[j->e][j->p]);
			assert_memory_equal(done->data, want_buf, PAGE);
			checked++;
		}
	}
	assert_true(checked > 5000);
	deaths = (u32)READ_ONCE(dials.count[DCM_HOSTILE_DIE]);
	assert_true(local ? !deaths : deaths > 0);
	/* let operations in flight end: they use this function's memory */
	for (i = 0; i < DCM_HOSTILE_NR; i++)
		WRITE_ONCE(dials.ppm[i], 0);
	for (k = 0; dcm_client_io_in_flight(h.client, 0); k++) {
		struct dcm_io *done;

		assert_true(now_ms() < end);
		dcm_client_io_poll(h.client, 0, &done, 16);
	}
	assert_int_equal(h.losts, 0);
	host_stop(&h);
	donor_end(&d[0]);
	donor_end(&d[1]);
}

static void test_hostile_tcp(void **state)
{
	(void)state;
	hostile(false);
}

static void test_hostile_shm(void **state)
{
	(void)state;
	hostile(true);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_spread_tls),
		cmocka_unit_test(test_spread_plain),
		cmocka_unit_test(test_spread_insists),
		cmocka_unit_test(test_spread_shm),
		cmocka_unit_test(test_spread_at_start),
		cmocka_unit_test(test_killed_tcp),
		cmocka_unit_test(test_killed_shm),
		cmocka_unit_test(test_stopped_short),
		cmocka_unit_test(test_stopped_long),
		cmocka_unit_test(test_stopped_shm),
		cmocka_unit_test(test_cut_off),
		cmocka_unit_test(test_cut_off_from_the_donor),
		cmocka_unit_test(test_cut_off_from_the_host),
		cmocka_unit_test(test_silent_but_serving),
		cmocka_unit_test(test_patience_is_over),
		cmocka_unit_test(test_drained_tcp),
		cmocka_unit_test(test_drained_shm),
		cmocka_unit_test(test_drain_forced),
		cmocka_unit_test(test_resume),
		cmocka_unit_test(test_restarted),
		cmocka_unit_test(test_wrong_key),
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_wrong_size),
		cmocka_unit_test(test_goodbye),
		cmocka_unit_test(test_members_change_tcp),
		cmocka_unit_test(test_members_change_shm),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_both_stopped),
		cmocka_unit_test(test_host_stopped),
		cmocka_unit_test(test_host_stopped_too_long),
		cmocka_unit_test(test_hostile_tcp),
		cmocka_unit_test(test_hostile_shm),
	};

	return host_run("client", tests, sizeof(tests) / sizeof(tests[0]),
			argc > 1 ? argv[1] : NULL);
}

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * ctl_test.c - the control plane against real donors
 *
 * Donors are started, stopped, continued, killed, drained and cut off; every
 * page written carries its extent, its number and a version, and is read back.
 * Nothing is measured: waits end when what is waited for is there, or fail
 * after half a minute.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../kvm-dcm/core/wire_format.h"
#include "../../kvm-dcm/transport/hostile.h"
#include "../../kvm-dcm/user/ctl.h"
#include "../../kvm-dcm/user/log.h"
#include "donor.h"

#define PAGE 4096u
#define SLAB (2u << 20)
#define EXTENTS 64u
#define WAIT_S 30

static char dir[] = "/tmp/dcm-ctl-XXXXXX";
static char keys[128], bad_keys[128];
static const u8 key[16] = { 0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77,
			    0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff };

static const char *const small[] = { "--capacity", "64M", "--slab-size", "2M",
				     "--head-room", "0", "--spare-slabs", "0",
				     NULL };

/* What a pager would remember. */
struct host {
	struct dcm_ctl *ctl;
	pthread_mutex_t lock;
	struct dcm_ctl_slab *slab[EXTENTS];
	struct dcm_ctl_slab *old[EXTENTS];
	unsigned int attached;
	unsigned int evicts;
	unsigned int losts;
	unsigned int lost_of[EXTENTS];
	char lost_name[EXTENTS][64];
	unsigned int starved;
	bool other;	/* answer EVICT with want_other */
	int log;
	struct dcm_host_donor donors[4];
	unsigned int nr_donors;
};

static void on_attached(void *arg, u32 extent, struct dcm_ctl_slab *slab)
{
	struct host *h = arg;

	pthread_mutex_lock(&h->lock);
	assert_true(extent < EXTENTS);
	assert_int_equal(slab->extent, extent);
	if (h->slab[extent])
		h->old[extent] = h->slab[extent];
	h->slab[extent] = slab;
	h->attached++;
	pthread_mutex_unlock(&h->lock);
}

static void on_evict(void *arg, struct dcm_ctl_slab *slab)
{
	struct host *h = arg;

	pthread_mutex_lock(&h->lock);
	h->evicts++;
	if (h->other)
		dcm_ctl_want_other(h->ctl, slab->extent, slab);
	pthread_mutex_unlock(&h->lock);
}

static void on_lost(void *arg, struct dcm_ctl_slab *slab, const char *donor)
{
	struct host *h = arg;

	pthread_mutex_lock(&h->lock);
	h->losts++;
	h->lost_of[slab->extent]++;
	snprintf(h->lost_name[slab->extent], 64, "%s", donor);
	pthread_mutex_unlock(&h->lock);
}

static void on_starved(void *arg, u32 extent)
{
	struct host *h = arg;

	(void)extent;
	pthread_mutex_lock(&h->lock);
	h->starved++;
	pthread_mutex_unlock(&h->lock);
}

static const struct dcm_ctl_ops ops = {
	.attached = on_attached,
	.evict = on_evict,
	.lost = on_lost,
	.starved = on_starved,
};

static unsigned int get(struct host *h, const unsigned int *v)
{
	unsigned int n;

	pthread_mutex_lock(&h->lock);
	n = *v;
	pthread_mutex_unlock(&h->lock);
	return n;
}

static u64 now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (u64)ts.tv_sec * 1000 + (u64)ts.tv_nsec / 1000000;
}

/* Until @cond, or the test fails. */
#define WAIT(cond)                                                       \
	do {                                                             \
		u64 end_ = now_ms() + WAIT_S * 1000;                     \
		while (!(cond)) {                                        \
			if (now_ms() > end_)                             \
				fail_msg("waited in vain: %s", #cond);   \
			usleep(5000);                                    \
		}                                                        \
	} while (0)

static void host_donor(struct host *h, const char *name, const char *address)
{
	struct dcm_host_donor *d = &h->donors[h->nr_donors++];

	snprintf(d->name, sizeof(d->name), "%s", name);
	snprintf(d->address, sizeof(d->address), "%s", address);
}

static void host_start_cfg(struct host *h, struct dcm_ctl_config cfg)
{
	static int n;
	char path[160];

	snprintf(path, sizeof(path), "%s/log%d", dir, n++);
	h->log = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	dcm_log_setup(DCM_LOG_DEBUG, h->log);
	pthread_mutex_init(&h->lock, NULL);
	cfg.donors = h->donors;
	cfg.nr_donors = h->nr_donors;
	cfg.tenant = "lab";
	cfg.key = cfg.key ? cfg.key : key;
	cfg.key_len = 16;
	cfg.nr_lanes = 2;
	cfg.size = (u64)EXTENTS * SLAB;
	cfg.seed = 7;
	assert_int_equal(dcm_ctl_start(&cfg, &ops, h, &h->ctl), 0);
}

static void host_start(struct host *h)
{
	host_start_cfg(h, (struct dcm_ctl_config){ .extent = SLAB,
						   .data_encryption = true });
}

static void host_stop(struct host *h)
{
	dcm_ctl_stop(h->ctl);
	dcm_log_setup(DCM_LOG_INFO, 2);
	close(h->log);
	pthread_mutex_destroy(&h->lock);
}

/* How many lines of the log have @what in them. */
static unsigned int logged(struct host *h, const char *what)
{
	static char buf[65536];
	unsigned int n = 0;
	char *p;
	ssize_t len = pread(h->log, buf, sizeof(buf) - 1, 0);

	buf[len > 0 ? len : 0] = 0;
	for (p = buf; (p = strstr(p, what)); n++)
		p += strcspn(p, "\n");
	return n;
}

/* ---- a lane's I/O, one operation at a time or many ---- */

static u64 mark(u32 extent, u32 page, u64 version)
{
	return ((u64)extent << 48 | (u64)page << 32 | version) *
	       0x9e3779b97f4a7c15ull;
}

static void fill(u64 *p, u32 extent, u32 page, u64 version)
{
	u32 i;

	for (i = 0; i < PAGE / 8; i++)
		p[i] = mark(extent, page, version) + i;
}

/* One operation to its end. -ENOTCONN is tried again for a while. */
static int io(struct host *h, struct dcm_ctl_slab *s, enum dcm_io_op op,
	      u64 off, u32 bytes, void *buf)
{
	u64 end = now_ms() + WAIT_S * 1000;
	struct dcm_io req = { .slab = &s->ref, .offset = off, .bytes = bytes,
			      .op = op, .data = buf };
	struct dcm_io *done;
	struct pollfd fds[DCM_CTL_FDS_MAX];
	int ret, n;

	for (;;) {
		if (now_ms() > end)
			return -ETIMEDOUT;
		req.data = buf;
		ret = dcm_ctl_io_post(h->ctl, 0, &req);
		if (ret == -ENOTCONN) {
			usleep(2000);
			continue;
		}
		if (ret)
			return ret;
		dcm_ctl_io_flush(h->ctl, 0);
		while (!dcm_ctl_io_poll(h->ctl, 0, &done, 8)) {
			n = dcm_ctl_io_fds(h->ctl, 0, fds, DCM_CTL_FDS_MAX);
			if (n)
				poll(fds, (nfds_t)n, 50);
			if (now_ms() > end)
				fail_msg("operation never completed");
		}
		assert_ptr_equal(done, &req);
		if (req.status != -ENOTCONN)
			break;
	}
	if (!req.status && op == DCM_IO_READ && req.data != buf) {
		/* shm: read() would be as good; the kernel copies */
		assert_int_equal(pread(s->ref.fd, buf, bytes, (off_t)off),
				 bytes);
		assert_ptr_equal(req.data, (char *)s->ref.map + off);
	}
	return req.status;
}

static void write_extent(struct host *h, u32 e, u64 version)
{
	static u64 buf[16 * PAGE / 8];
	u32 p, k;

	for (p = 0; p < SLAB / PAGE; p += 16) {
		for (k = 0; k < 16; k++)
			fill(buf + k * PAGE / 8, e, p + k, version);
		assert_int_equal(io(h, h->slab[e], DCM_IO_WRITE,
				    (u64)p * PAGE, 16 * PAGE, buf),
				 0);
	}
}

static void check_slab(struct host *h, struct dcm_ctl_slab *s, u32 e,
		       u64 version)
{
	static u64 buf[16 * PAGE / 8], want[PAGE / 8];
	u32 p, k;

	for (p = 0; p < SLAB / PAGE; p += 16) {
		memset(buf, 0xee, sizeof(buf));
		assert_int_equal(io(h, s, DCM_IO_READ, (u64)p * PAGE, 16 * PAGE,
				    buf),
				 0);
		for (k = 0; k < 16; k++) {
			fill(want, e, p + k, version);
			assert_memory_equal(buf + k * PAGE / 8, want, PAGE);
		}
	}
}

static void want(struct host *h, u32 from, u32 to)
{
	u32 e, i;

	/* again and again, as lanes do */
	for (i = 0; i < 3; i++)
		for (e = from; e < to; e++)
			dcm_ctl_want(h->ctl, e);
}

static unsigned int on_donor(struct host *h, u32 nr, u32 donor)
{
	unsigned int n = 0;
	u32 e;

	for (e = 0; e < nr; e++)
		n += h->slab[e] && h->slab[e]->donor == donor &&
		     !__atomic_load_n(&h->slab[e]->dead, __ATOMIC_ACQUIRE);
	return n;
}

static struct dcm_ctl_donor_status status(struct host *h, u32 donor)
{
	struct dcm_ctl_status st;

	dcm_ctl_status(h->ctl, &st);
	return st.donor[donor];
}

/* ---- the tests ---- */

static void spread(struct dcm_ctl_config cfg, const char *donor_opt, bool local)
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
	snprintf(pa, sizeof(pa), "%s/a.sock", dir);
	snprintf(pb, sizeof(pb), "%s/b.sock", dir);
	donor_start(&a, local ? pa : NULL, local ? -1 : 0, keys, opts);
	donor_start(&b, local ? pb : NULL, local ? -1 : 0, keys, opts);
	snprintf(addr, sizeof(addr), "unix:%s", pa);
	host_donor(&h, "a", local ? addr : a.tcp);
	snprintf(addr, sizeof(addr), "unix:%s", pb);
	host_donor(&h, "b", local ? addr : b.tcp);
	host_start_cfg(&h, cfg);
	assert_int_equal(dcm_ctl_extent_bytes(h.ctl, 10000), SLAB);
	/* both there first, or the first takes all */
	WAIT(status(&h, 0).state == DCM_DONOR_UP &&
	     status(&h, 1).state == DCM_DONOR_UP);
	want(&h, 0, 8);
	WAIT(get(&h, &h.attached) == 8);
	/* 4 and 4 as a rule; a donor too slow to answer gets less */
	n0 = on_donor(&h, 8, 0);
	assert_in_range(n0, 1, 7);
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
	/* give back: the donor has it again */
	for (e = 0; e < 4; e++)
		dcm_ctl_release(h.ctl, h.slab[e]);
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
	spread((struct dcm_ctl_config){ .extent = SLAB,
					.data_encryption = true },
	       NULL, false);
}

static void test_spread_plain(void **state)
{
	(void)state;
	spread((struct dcm_ctl_config){ .extent = SLAB }, "no", false);
}

static void test_spread_insists(void **state)
{
	(void)state;
	spread((struct dcm_ctl_config){ 0 }, "yes", false);
}

static void test_spread_shm(void **state)
{
	(void)state;
	spread((struct dcm_ctl_config){ .data_encryption = true }, NULL, true);
}

struct two {
	struct donor d[2];
	struct host h;
};

static void two_start(struct two *t, bool local)
{
	char path[128], addr[160];
	int i;

	memset(t, 0, sizeof(*t));
	for (i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/%c.sock", dir, 'a' + i);
		donor_start(&t->d[i], local ? path : NULL, local ? -1 : 0, keys,
			    small);
		snprintf(addr, sizeof(addr), "unix:%s", path);
		host_donor(&t->h, i ? "b" : "a", local ? addr : t->d[i].tcp);
	}
	host_start(&t->h);
	WAIT(status(&t->h, 0).state == DCM_DONOR_UP &&
	     status(&t->h, 1).state == DCM_DONOR_UP);
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

	two_start(&t, local);
	two_fill(&t, 6);
	mine = on_donor(&t.h, 6, 0);
	assert_in_range(mine, 1, 5);
	donor_signal(&t.d[0], SIGKILL);
	WAIT(get(&t.h, &t.h.losts) == mine);
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
	assert_int_equal(status(&t.h, 0).state, DCM_DONOR_LOST);
	/* lost extents get new slabs, from the other */
	for (e = 0; e < 6; e++)
		if (!t.h.slab[e]->donor) {
			dcm_ctl_release(t.h.ctl, t.h.slab[e]);
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

static void test_stopped_short(void **state)
{
	struct two t;
	u32 e;

	(void)state;
	two_start(&t, false);
	two_fill(&t, 4);
	donor_signal(&t.d[0], SIGSTOP);
	usleep(3000000);
	/* an operation that waits for it gets through */
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

static void test_stopped_long(void **state)
{
	struct two t;
	u32 e, mine;

	(void)state;
	two_start(&t, false);
	two_fill(&t, 4);
	mine = on_donor(&t.h, 4, 1);
	donor_signal(&t.d[1], SIGSTOP);
	WAIT(get(&t.h, &t.h.losts) == mine);
	usleep(3000000);
	donor_signal(&t.d[1], SIGCONT);
	for (e = 0; e < 4; e++)
		if (t.h.slab[e]->donor == 1) {
			assert_string_equal(t.h.lost_name[e], "b");
			assert_int_equal(t.h.lost_of[e], 1);
			dcm_ctl_release(t.h.ctl, t.h.slab[e]);
			t.h.slab[e] = NULL;
		} else {
			check_slab(&t.h, t.h.slab[e], e, 1);
		}
	/* it is used again, for new slabs: unused donors come first */
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
	for (e = 0; e < 4; e++) {
		static u8 buf[65536];
		u32 off;

		if (!t.h.old[e])
			continue;
		assert_int_equal(t.h.old[e]->donor, 0);
		assert_int_equal(t.h.slab[e]->donor, 1);
		for (off = 0; off < SLAB; off += sizeof(buf)) {
			assert_int_equal(io(&t.h, t.h.old[e], DCM_IO_READ, off,
					    sizeof(buf), buf),
					 0);
			assert_int_equal(io(&t.h, t.h.slab[e], DCM_IO_WRITE,
					    off, sizeof(buf), buf),
					 0);
		}
		dcm_ctl_release(t.h.ctl, t.h.old[e]);
		check_slab(&t.h, t.h.slab[e], e, 1);
	}
	/* it ends by itself, and content: nothing was left */
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

/* A host that does not give back in time loses the slabs, and hears of it. */
static void test_drain_forced(void **state)
{
	static const char *const opts[] = { "--capacity", "64M", "--slab-size",
					    "2M", "--head-room", "0",
					    "--drain-timeout", "1s", NULL };
	struct donor d;
	struct host h = { 0 };

	(void)state;
	donor_start(&d, NULL, 0, keys, opts);
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
	donor_start(&d, NULL, 0, keys, small);
	p = proxy_start(d.tcp, addr, sizeof(addr));
	host_donor(&h, "a", addr);
	host_start(&h);
	want(&h, 0, 3);
	WAIT(get(&h, &h.attached) == 3);
	for (e = 0; e < 3; e++)
		write_extent(&h, e, 1);
	for (round = 0; round < 3; round++) {
		proxy_cut(p, true);
		if (round == 1) {
			/* given back while nobody listens */
			dcm_ctl_release(h.ctl, h.slab[2]);
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
	assert_int_equal(logged(&h, "not heard of for 5 seconds"), 1);
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
	donor_start(&d, NULL, 0, keys, small);
	port = atoi(strrchr(d.tcp, ':') + 1);
	host_donor(&h, "a", d.tcp);
	host_start(&h);
	want(&h, 0, 2);
	WAIT(get(&h, &h.attached) == 2);
	write_extent(&h, 0, 1);
	donor_signal(&d, SIGKILL);
	donor_start(&d, NULL, port, keys, small);
	WAIT(get(&h, &h.losts) == 2);
	assert_int_equal(logged(&h, "not heard of"), 0);
	dcm_ctl_release(h.ctl, h.slab[0]);
	dcm_ctl_release(h.ctl, h.slab[1]);
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
	donor_start(&d, NULL, 0, bad_keys, small);
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
	static const char *const opts[] = { "--capacity", "4M", "--slab-size",
					    "2M", "--head-room", "0",
					    "--spare-slabs", "0", NULL };
	struct donor d;
	struct host h = { 0 };

	(void)state;
	donor_start(&d, NULL, 0, keys, opts);
	host_donor(&h, "a", d.tcp);
	host_start(&h);
	want(&h, 0, 2);
	WAIT(get(&h, &h.attached) == 2);
	want(&h, 2, 4);
	WAIT(get(&h, &h.starved) >= 1);
	assert_int_equal(get(&h, &h.attached), 2);
	dcm_ctl_release(h.ctl, h.slab[0]);
	WAIT(get(&h, &h.attached) == 3);
	dcm_ctl_release(h.ctl, h.slab[1]);
	WAIT(get(&h, &h.attached) == 4);
	assert_true(h.slab[2] && h.slab[3]);
	assert_int_equal(logged(&h, "no donor can lend"), 1);
	host_stop(&h);
	donor_end(&d);
}

static void test_wrong_size(void **state)
{
	static const char *const opts[] = { "--capacity", "64M", "--slab-size",
					    "4M", "--head-room", "0", NULL };
	struct donor d, good;
	struct host h = { 0 };

	(void)state;
	donor_start(&d, NULL, 0, keys, opts);
	donor_start(&good, NULL, 0, keys, small);
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

/* What a host process that is stopped for a while does; in a child. */
static int stopped_host(struct donor *d, int to, bool lose)
{
	struct host h = { 0 };
	char c = 'x';
	u32 e;

	host_donor(&h, "a", d->tcp);
	host_start(&h);
	want(&h, 0, 2);
	WAIT(get(&h, &h.attached) == 2);
	for (e = 0; e < 2; e++)
		write_extent(&h, e, 1);
	if (write(to, &c, 1) != 1)
		return 1;
	if (lose) {
		WAIT(get(&h, &h.losts) == 2);
		for (e = 0; e < 2; e++) {
			dcm_ctl_release(h.ctl, h.slab[e]);
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

static void stop_host(unsigned int seconds, bool lose)
{
	struct donor d;
	int fds[2], st;
	pid_t pid;
	char c;

	donor_start(&d, NULL, 0, keys, small);
	assert_int_equal(pipe(fds), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(stopped_host(&d, fds[1], lose));
	}
	assert_int_equal(read(fds[0], &c, 1), 1);
	kill(pid, SIGSTOP);
	sleep(seconds);
	kill(pid, SIGCONT);
	assert_int_equal(waitpid(pid, &st, 0), pid);
	assert_true(WIFEXITED(st));
	assert_int_equal(WEXITSTATUS(st), 0);
	close(fds[0]);
	close(fds[1]);
	donor_end(&d);
}

/* The donor spoke to deaf ears, and has not given up: neither does the host. */
static void test_host_stopped_short(void **state)
{
	(void)state;
	stop_host(3, false);
}

/* The donor has freed everything; the host must find out and say so. */
static void test_host_stopped_long(void **state)
{
	(void)state;
	stop_host(8, true);
}

/* The donor's side of a clean end: all is back at once. */
static void test_goodbye(void **state)
{
	struct donor d;
	struct host h = { 0 }, g = { 0 };

	(void)state;
	donor_start(&d, NULL, 0, keys, small);
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
	struct dcm_hostile_args args = { .inner = ep, .dials = &dials,
					 .seed = ++seed };
	int err;

	(void)arg;
	ep = dcm_transport_hostile.open(&args, &err);
	assert_non_null(ep);
	return ep;
}

/*
 * Many operations in flight on a transport that does its worst, before real
 * donors: what was reported as written is there, whatever came in between.
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
	static u64 at[4][NR];		/* version certain to be there */
	static bool sure[4][NR];
	struct dcm_ctl_config cfg = { .extent = SLAB, .wrap = wrap };
	struct donor d[2];
	struct host h = { 0 };
	u64 rng = 12345, checked = 0, version = 0, end = now_ms() + 60000;
	char path[128], addr[160];
	u32 i, k, steps = 0, deaths;

	memset(job, 0, sizeof(job));
	memset(sure, 0, sizeof(sure));
	memset(&dials.count, 0, sizeof(dials.count));
	for (i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/%c.sock", dir, 'a' + (int)i);
		donor_start(&d[i], local ? path : NULL, local ? -1 : 0, keys,
			    small);
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
				.op = rng >> 20 & 1 ? DCM_IO_READ : DCM_IO_WRITE,
				.data = j->buf,
			};
			if (j->io.op == DCM_IO_WRITE) {
				j->version = ++version;
				fill(j->buf, j->e, j->p, j->version);
			}
			ret = dcm_ctl_io_post(h.ctl, 0, &j->io);
			if (ret == -EAGAIN || ret == -ENOTCONN)
				break;
			assert_int_equal(ret, 0);
			if (j->io.op == DCM_IO_WRITE)
				sure[j->e][i] = false;
			j->busy = true;
		}
		dcm_ctl_io_flush(h.ctl, 0);
		dcm_ctl_io_poll(h.ctl, 0, &done, 16);
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
	deaths = (u32)atomic64_read(&dials.count[DCM_HOSTILE_DIE]);
	assert_true(local ? !deaths : deaths > 0);
	/* let what is in flight go, for its memory is ours */
	for (i = 0; i < DCM_HOSTILE_NR; i++)
		WRITE_ONCE(dials.ppm[i], 0);
	for (k = 0; dcm_ctl_io_in_flight(h.ctl, 0); k++) {
		struct dcm_io *done;

		assert_true(now_ms() < end);
		dcm_ctl_io_poll(h.ctl, 0, &done, 16);
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

static void key_file(char *path, const char *name, const char *text)
{
	int fd;

	snprintf(path, 128, "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		exit(99);
	close(fd);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_spread_tls),
		cmocka_unit_test(test_spread_plain),
		cmocka_unit_test(test_spread_insists),
		cmocka_unit_test(test_spread_shm),
		cmocka_unit_test(test_killed_tcp),
		cmocka_unit_test(test_killed_shm),
		cmocka_unit_test(test_stopped_short),
		cmocka_unit_test(test_stopped_long),
		cmocka_unit_test(test_drained_tcp),
		cmocka_unit_test(test_drained_shm),
		cmocka_unit_test(test_drain_forced),
		cmocka_unit_test(test_resume),
		cmocka_unit_test(test_restarted),
		cmocka_unit_test(test_wrong_key),
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_wrong_size),
		cmocka_unit_test(test_goodbye),
		cmocka_unit_test(test_host_stopped_short),
		cmocka_unit_test(test_host_stopped_long),
		cmocka_unit_test(test_hostile_tcp),
		cmocka_unit_test(test_hostile_shm),
	};
	struct CMUnitTest some[sizeof(tests) / sizeof(tests[0])];
	unsigned int share = 0, of = 1, i;
	char cmd[64];
	size_t n = 0;
	int ret;

	if (!mkdtemp(dir))
		return 99;
	key_file(keys, "keys", "lab:00112233445566778899aabbccddeeff\n");
	key_file(bad_keys, "bad", "lab:ff112233445566778899aabbccddeeff\n");
	/* "1/4": every fourth, from the second on; else a pattern of names */
	if (argc > 1 && sscanf(argv[1], "%u/%u", &share, &of) != 2)
		cmocka_set_test_filter(argv[1]);
	for (i = share; i < sizeof(tests) / sizeof(tests[0]); i += of ? of : 1)
		some[n++] = tests[i];
	ret = _cmocka_run_group_tests("ctl", some, n, NULL, NULL);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	if (ret || system(cmd))
		fprintf(stderr, "logs are in %s\n", dir);
	return ret;
}

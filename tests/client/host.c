// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * host.c - a host of donors as a pager would be one, for tests
 *
 * Records the calls of the control plane's callbacks, does a lane's I/O one
 * operation at a time, and knows the content of every page.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

#include "../../kvm-dcm/lib/thread.h"
#include "../../kvm-dcm/client/client_int.h"
#include "host.h"

char host_dir[] = "/tmp/dcm-client-XXXXXX";
char host_keys[128], host_bad_keys[128];
static const u8 key[16] = { 0,	  0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77,
			    0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff };

static void on_attached(void *arg, u32 extent, struct dcm_client_slab *slab)
{
	struct host *h = arg;

	pthread_mutex_lock(&h->lock);
	/* else the preload shim would page the control thread's allocations */
	assert_true(dcm_thread_inside);
	assert_true(extent < EXTENTS);
	assert_int_equal(slab->extent, extent);
	if (h->slab[extent])
		h->old[extent] = h->slab[extent];
	h->slab[extent] = slab;
	h->attached++;
	pthread_mutex_unlock(&h->lock);
}

static void on_evict(void *arg, struct dcm_client_slab *slab)
{
	struct host *h = arg;

	pthread_mutex_lock(&h->lock);
	h->evicts++;
	h->leaving[slab->extent] = slab;
	if (h->other)
		dcm_client_want_other(h->client, slab);
	pthread_mutex_unlock(&h->lock);
}

static void on_lost(void *arg, struct dcm_client_slab *slab,
		    const struct dcm_host_donor *donor)
{
	struct host *h = arg;

	pthread_mutex_lock(&h->lock);
	h->losts++;
	h->lost_late += slab->client->exposed_ms != 0;
	h->lost_of[slab->extent]++;
	snprintf(h->lost_name[slab->extent], 64, "%s", donor->name);
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

static const struct dcm_client_ops ops = {
	.attached = on_attached,
	.evict = on_evict,
	.lost = on_lost,
	.starved = on_starved,
};

unsigned int get(struct host *h, const unsigned int *v)
{
	unsigned int n;

	pthread_mutex_lock(&h->lock);
	n = *v;
	pthread_mutex_unlock(&h->lock);
	return n;
}

u64 now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (u64)ts.tv_sec * 1000 + (u64)ts.tv_nsec / 1000000;
}

void host_donor(struct host *h, const char *name, const char *address)
{
	struct dcm_host_donor *d = &h->donors[h->nr_donors++];

	snprintf(d->name, sizeof(d->name), "%s", name);
	snprintf(d->address, sizeof(d->address), "%s", address);
}

void host_start_cfg(struct host *h, struct dcm_client_config cfg)
{
	static int n;
	char path[160];

	snprintf(path, sizeof(path), "%s/log%d", host_dir, n++);
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
	assert_int_equal(dcm_client_start(&cfg, &ops, h, &h->client), 0);
}

void host_start(struct host *h)
{
	host_start_cfg(h, (struct dcm_client_config){
				  .extent = SLAB, .data_encryption = true });
}

void host_start_redundant(struct host *h, enum dcm_host_redundancy redundancy,
			  u32 extents)
{
	u32 i;

	host_start_cfg(h,
		       (struct dcm_client_config){ .extent = SLAB,
						   .data_encryption = true,
						   .redundancy = redundancy });
	for (i = 0; i < h->nr_donors; i++)
		WAIT(status(h, i).state == DCM_DONOR_UP);
	want(h, 0, extents);
	WAIT(get(h, &h->attached) ==
	     dcm_redundancies[redundancy].copies * extents);
}

void host_stop(struct host *h)
{
	dcm_client_stop(h->client);
	dcm_log_setup(DCM_LOG_INFO, 2);
	close(h->log);
	pthread_mutex_destroy(&h->lock);
}

/* How many lines of the log have @what in them. */
unsigned int logged(struct host *h, const char *what)
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

void fill(u64 *p, u32 extent, u32 page, u64 version)
{
	u32 i;

	for (i = 0; i < PAGE / 8; i++)
		p[i] = mark(extent, page, version) + i;
}

static int io_as(struct host *h, enum dcm_io_kind kind,
		 struct dcm_client_slab *s, enum dcm_io_op op, u64 off,
		 u32 bytes, void *buf)
{
	u64 end = now_ms() + WAIT_S * 1000;
	struct dcm_io req = { .slab = &s->ref,
			      .offset = off,
			      .bytes = bytes,
			      .op = op,
			      .kind = kind,
			      .data = buf };
	struct dcm_io *done;
	struct pollfd fds[DCM_CLIENT_FDS_MAX];
	int ret, n;

	for (;;) {
		if (now_ms() > end)
			return -ETIMEDOUT;
		req.data = buf;
		ret = dcm_client_io_post(h->client, 0, &req);
		if (ret == -ENOTCONN) {
			usleep(2000);
			continue;
		}
		if (ret)
			return ret;
		dcm_client_io_flush(h->client, 0);
		while (!dcm_client_io_poll(h->client, 0, &done, 8)) {
			n = dcm_client_io_fds(h->client, 0, fds,
					      DCM_CLIENT_FDS_MAX);
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

/* One operation to its end. -ENOTCONN is tried again for a while. */
int io(struct host *h, struct dcm_client_slab *s, enum dcm_io_op op, u64 off,
       u32 bytes, void *buf)
{
	return io_as(h, DCM_IO_FETCH, s, op, off, bytes, buf);
}

void slab_copy(struct host *h, struct dcm_client_slab *to,
	       struct dcm_client_slab *from)
{
	static u64 buf[16 * PAGE / 8];
	u64 off;

	for (off = 0; off < SLAB; off += sizeof(buf)) {
		assert_int_equal(io_as(h, DCM_IO_MOVE, from, DCM_IO_READ, off,
				       sizeof(buf), buf),
				 0);
		assert_int_equal(io_as(h, DCM_IO_MOVE, to, DCM_IO_WRITE, off,
				       sizeof(buf), buf),
				 0);
	}
}

void write_extent(struct host *h, u32 e, u64 version)
{
	static u64 buf[16 * PAGE / 8];
	u32 p, k;

	for (p = 0; p < SLAB / PAGE; p += 16) {
		for (k = 0; k < 16; k++)
			fill(buf + k * PAGE / 8, e, p + k, version);
		assert_int_equal(io(h, slab_of(h, e), DCM_IO_WRITE,
				    (u64)p * PAGE, 16 * PAGE, buf),
				 0);
	}
}

void check_slab(struct host *h, struct dcm_client_slab *s, u32 e, u64 version)
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

void want(struct host *h, u32 from, u32 to)
{
	u32 e, i;

	/* again and again, as lanes do */
	for (i = 0; i < 3; i++)
		for (e = from; e < to; e++)
			dcm_client_want(h->client, e);
}

unsigned int on_donor(struct host *h, u32 nr, u32 donor)
{
	unsigned int n = 0;
	u32 e;

	pthread_mutex_lock(&h->lock);
	for (e = 0; e < nr; e++)
		n += h->slab[e] && h->slab[e]->donor == donor &&
		     !__atomic_load_n(&h->slab[e]->dead, __ATOMIC_ACQUIRE);
	pthread_mutex_unlock(&h->lock);
	return n;
}

struct dcm_client_slab *slab_of(struct host *h, u32 extent)
{
	struct dcm_client_slab *s;

	pthread_mutex_lock(&h->lock);
	s = h->slab[extent];
	pthread_mutex_unlock(&h->lock);
	return s;
}

struct dcm_client_slab *taken(struct host *h, struct dcm_client_slab **at)
{
	struct dcm_client_slab *s;

	pthread_mutex_lock(&h->lock);
	s = *at;
	*at = NULL;
	pthread_mutex_unlock(&h->lock);
	return s;
}

unsigned int moved_release(struct host *h, u32 nr)
{
	unsigned int n = 0;
	u32 e;

	for (e = 0; e < nr; e++) {
		struct dcm_client_slab *old = taken(h, &h->old[e]);

		if (!old)
			continue;
		check_slab(h, old, e, 1);
		write_extent(h, e, 1);
		dcm_client_release(h->client, old);
		n++;
	}
	return n;
}

struct dcm_client_donor_status status(struct host *h, u32 donor)
{
	struct dcm_client_status st;

	dcm_client_status(h->client, &st);
	return st.donor[donor];
}

static void key_file(char *path, const char *name, const char *text)
{
	int fd;

	snprintf(path, 128, "%s/%s", host_dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		exit(99);
	close(fd);
}

static int files(void)
{
	if (!mkdtemp(host_dir))
		return -1;
	key_file(host_keys, "keys", "lab:00112233445566778899aabbccddeeff\n");
	key_file(host_bad_keys, "bad",
		 "lab:ff112233445566778899aabbccddeeff\n");
	return 0;
}

int host_run(const char *group, const struct CMUnitTest *tests, size_t nr,
	     const char *some)
{
	struct CMUnitTest chosen[128];
	unsigned int share = 0, of = 1;
	char cmd[64];
	size_t n = 0;
	int ret;

	if (nr > sizeof(chosen) / sizeof(chosen[0]) || files())
		return 99;
	if (some && sscanf(some, "%u/%u", &share, &of) != 2)
		cmocka_set_test_filter(some);
	for (size_t i = share; i < nr; i += of ? of : 1)
		chosen[n++] = tests[i];
	ret = _cmocka_run_group_tests(group, chosen, n, NULL, NULL);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", host_dir);
	if (ret || system(cmd))
		fprintf(stderr, "logs are in %s\n", host_dir);
	return ret;
}

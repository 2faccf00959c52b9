// SPDX-License-Identifier: GPL-2.0-or-later
/* links: kvm-dcm/hostd/gc.c kvm-dcm/hostd/window.c kvm-dcm/gc/ipc.c kvm-dcm/gc/queue.c kvm-dcm/gc/command.c kvm-dcm/gc/api.c kvm-dcm/gc/space.c kvm-dcm/gc/proxy.c kvm-dcm/gc/proxy_connect.c kvm-dcm/lib/thread.c kvm-dcm/lib/log.c kvm-dcm/proto/gc_request.c */
/*
 * gc_parts_test.c - answers longer than a message, from dcm-hostd to a device
 *
 * Both ends are real: a device (gc/proxy.c), and dcm-hostd's window with its queue
 * of requests. The workers are the test's, and answer with bytes that say what
 * was asked. The file is a memfd.
 */
#include <endian.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "gc/ipc.h"
#include "gc/backend.h"
#include "hostd/hostd.h"
#include "hostd_stubs.h"

#define PAGES	16384u
#define REGION	(2ull << 20)
#define BITMAP	((u32)(REGION / 64))
#define DONE	sizeof(struct virtio_gc_done)

static char folder[] = "/tmp/gc_parts_XXXXXX";
static char path[64];
static struct hostd h = { .gc = -1 };
static struct hostd_file f = { .fd = -1, .path = (char *)"file" };
static int file;
static void *window;

/* ---- the workers ---- */

static char workers;

u32 dcm_client_donors(const struct dcm_client *client)
{
	(void)client;
	return 1;
}

struct dcm_gc_workers *dcm_gc_workers_new(struct dcm_client *client, u64 bytes,
					  const struct dcm_gc_workers_ops *ops,
					  void *arg)
{
	(void)client;
	(void)bytes;
	(void)ops;
	(void)arg;
	return (struct dcm_gc_workers *)&workers;
}

void dcm_gc_workers_free(struct dcm_gc_workers *t)
{
	(void)t;
}

/* Byte @i of the bitmaps from region @first on: none is like its neighbours. */
static u8 bits_of(u32 first, u32 i)
{
	return (u8)((i * 2654435761u >> 13) + first * 31);
}

void dcm_gc_workers_do(struct dcm_gc_workers *t, const struct dcm_gc_request *r,
		       const void *raw, size_t bytes, u64 expires_ms,
		       struct dcm_gc_reply *out)
{
	const struct virtio_gc_range *range = r->body;

	(void)t;
	(void)raw;
	(void)bytes;
	(void)expires_ms;
	dcm_gc_reply_clear(out);
	if (r->command != VIRTIO_GC_TRACE_BITMAPS)
		return;
	for (u32 i = 0; i < r->answer; i++)
		out->entries[i] = bits_of(le32toh(range->first), i);
	out->done.count = r->answer;
}

bool dcm_gc_workers_rests(struct dcm_gc_workers *t,
			  const struct dcm_gc_request *r)
{
	(void)t;
	(void)r;
	return true;
}

bool dcm_gc_workers_idle(struct dcm_gc_workers *t, int wake)
{
	(void)t;
	(void)wake;
	return false;
}

void dcm_gc_workers_reset(struct dcm_gc_workers *t)
{
	(void)t;
}

/* ---- dcm-hostd's main thread ---- */

static pthread_t main_thread;
static bool ends;

static void *main_loop(void *arg)
{
	(void)arg;
	while (!READ_ONCE(ends)) {
		struct pollfd p[2] = { { .fd = h.ended, .events = POLLIN } };
		u32 n = hostd_gc_poll(&h, p + 1);
		eventfd_t count;

		poll(p, 1 + n, 20);
		if (p[0].revents && !eventfd_read(h.ended, &count))
			hostd_gc_reap(&h);
		hostd_gc_handle(&h, p + 1, n);
	}
	hostd_gc_end(&h, path);
	return NULL;
}

/* It interrupts connections that take long to end. */
static void on_alarm(int signum)
{
	(void)signum;
}

static int start(void **state)
{
	struct sigaction alarm = { .sa_handler = on_alarm };
	char name[32];
	struct stat st;

	(void)state;
	sigaction(SIGALRM, &alarm, NULL);
	dcm_log_setup(DCM_LOG_ERR, -1);
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/gc", folder);
	file = memfd_create("file", MFD_CLOEXEC);
	assert_int_equal(ftruncate(file, (off_t)PAGES * 4096), 0);
	assert_int_equal(fstat(file, &st), 0);
	window = mmap(NULL, PAGES * 4096ul, PROT_READ | PROT_WRITE, MAP_SHARED,
		      file, 0);
	assert_true(window != MAP_FAILED);
	snprintf(name, sizeof(name), "/proc/self/fd/%d", file);
	f.fd = open(name, O_RDONLY | O_CLOEXEC);
	f.dev = st.st_dev;
	f.ino = st.st_ino;
	f.nr_donors = 1;
	f.info.pages = PAGES;
	f.info.extent_pages = 512;
	h.ended = f.ended = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	h.files = &f;
	hostd_gc_start(&h, path);
	if (h.gc < 0)
		return -1;
	return pthread_create(&main_thread, NULL, main_loop, NULL);
}

static int stop(void **state)
{
	(void)state;
	WRITE_ONCE(ends, true);
	pthread_join(main_thread, NULL);
	munmap(window, PAGES * 4096ul);
	close(f.fd);
	close(file);
	close(h.ended);
	rmdir(folder);
	return !!h.callers;
}

/* ---- the device ---- */

struct call {
	bool done;
	size_t bytes;
	u8 answer[DONE + VIRTIO_GC_BITMAPS_MAX];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;

static void answered(void *priv, void *token, const void *answer, size_t bytes)
{
	struct call *c = token;

	(void)priv;
	pthread_mutex_lock(&lock);
	assert_false(c->done);
	assert_true(bytes <= sizeof(c->answer));
	memcpy(c->answer, answer, bytes);
	c->bytes = bytes;
	c->done = true;
	pthread_cond_broadcast(&moved);
	pthread_mutex_unlock(&lock);
}

static u32 wait_for(struct call *c)
{
	const struct virtio_gc_done *done = (void *)c->answer;

	pthread_mutex_lock(&lock);
	while (!c->done)
		pthread_cond_wait(&moved, &lock);
	pthread_mutex_unlock(&lock);
	assert_true(c->bytes >= DONE);
	return le32toh(done->status);
}

static void submit(struct dcm_gc_host *gc, u16 command, u32 epoch,
		   const void *body, size_t bytes, struct call *c)
{
	struct {
		struct virtio_gc_req r;
		u64 body[8];
	} q = { .r = { .command = htole16(command), .epoch = htole32(epoch) } };

	assert_true(bytes <= sizeof(q.body));
	if (bytes)
		memcpy(q.body, body, bytes);
	c->done = false;
	dcm_gc_host_submit(gc, &q, sizeof(q.r) + bytes, sizeof(c->answer), c);
}

static void submit_bitmaps(struct dcm_gc_host *gc, u32 first, u32 n,
			   struct call *c)
{
	const struct virtio_gc_range range = {
		.first = htole32(first),
		.regions = htole32(n),
		.bitmaps = htole64(BITMAP),
	};

	submit(gc, VIRTIO_GC_TRACE_BITMAPS, 1, &range, sizeof(range), c);
}

/* Long and short answers after each other: each comes whole, to its request. */
static void test_long_answers(void **state)
{
	static const struct dcm_gc_host_ops ops = { .answered = answered };
	/* below a message, over one by the head alone, and as long as can be */
	static const struct {
		u32 first, n;
	} asked[] = { { 0, 32 }, { 5, 1 }, { 6, 2 }, { 9, 0 },
		      { 1, 31 }, { 7, 3 }, { 0, 32 } };
	const struct virtio_gc_space space = {
		.bytes = htole64(PAGES * 4096ull),
		.region_bytes = htole64(REGION),
		.address = htole64(1ull << 40),
		.ref_bytes = 8,
		.type_bytes = 4,
		.type_mask = htole32(0xffff),
	};
	static struct call call[2 * ARRAY_SIZE(asked)], made;
	struct dcm_gc_host *gc;
	char err[256];

	(void)state;
	gc = dcm_gc_host_connect(path, file, window, PAGES * 4096ul, &ops, NULL,
				 err, sizeof(err));
	assert_non_null(gc);
	assert_true(dcm_gc_host_features(gc) >> VIRTIO_GC_F_BITMAPS & 1);
	dcm_gc_host_start(gc, dcm_gc_host_features(gc));
	submit(gc, VIRTIO_GC_SPACE_CREATE, 0, &space, sizeof(space), &made);
	assert_int_equal(wait_for(&made), 0);
	for (u32 i = 0; i < ARRAY_SIZE(asked); i++) {
		submit_bitmaps(gc, asked[i].first, asked[i].n, &call[2 * i]);
		submit(gc, VIRTIO_GC_TRACE_STATE, 1, NULL, 0, &call[2 * i + 1]);
	}
	for (u32 i = 0; i < ARRAY_SIZE(asked); i++) {
		const struct call *c = &call[2 * i];
		u32 n = asked[i].n * BITMAP;

		/* [VGC-D-66] */
		assert_int_equal(wait_for(&call[2 * i]), 0);
		assert_int_equal(c->bytes, DONE + n);
		for (u32 k = 0; k < n; k++)
			if (c->answer[DONE + k] != bits_of(asked[i].first, k))
				fail_msg("answer %u, byte %u", i, k);
		assert_int_equal(wait_for(&call[2 * i + 1]), 0);
		assert_int_equal(call[2 * i + 1].bytes, DONE);
	}
	dcm_gc_host_close(gc);
}

/* The features that dcm-hostd offers a device which says @knows in HELLO. */
static u64 offered(u32 knows)
{
	struct {
		struct dcm_gc_ipc s;
		struct dcm_gc_ipc_file file;
	} hello = { .s = { .kind = DCM_GC_IPC_HELLO,
			   .room = knows,
			   .value = DCM_GC_IPC_VERSION },
		    .file = { f.dev, f.ino } };
	struct {
		struct dcm_gc_ipc s;
		struct virtio_gc_config config;
	} m;
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	struct flock l = { .l_type = F_WRLCK, .l_len = 1 };
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", path);
	do {
		/* until the connection before is over */
		close(sock);
		sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
		assert_int_equal(connect(sock, (struct sockaddr *)&sa,
					 sizeof(sa)),
				 0);
		assert_int_equal(send(sock, &hello, sizeof(hello), 0),
				 sizeof(hello));
		assert_true(recv(sock, &m, sizeof(m), 0) > 0);
		assert_int_equal(m.s.kind, DCM_GC_IPC_PROVE);
		l.l_start = (off_t)m.s.value;
		l.l_type = F_WRLCK;
		assert_int_equal(fcntl(file, F_OFD_SETLK, &l), 0);
		m.s = (struct dcm_gc_ipc){ .kind = DCM_GC_IPC_PROVED };
		assert_int_equal(dcm_gc_ipc_send(sock, &m.s, NULL, 0), 0);
		assert_true(recv(sock, &m, sizeof(m), 0) > 0);
		l.l_type = F_UNLCK;
		assert_int_equal(fcntl(file, F_OFD_SETLK, &l), 0);
	} while (m.s.kind == DCM_GC_IPC_REFUSED);
	assert_int_equal(m.s.kind, DCM_GC_IPC_WELCOME);
	close(sock);
	return m.s.value;
}

/* A device of an older version works as before. */
static void test_older_device(void **state)
{
	const u64 bitmaps = 1ull << VIRTIO_GC_F_BITMAPS;
	const u64 budget = 1ull << VIRTIO_GC_F_BUDGET;
	/* what a newer one may say */
	const u64 all = offered(UINT32_MAX);

	(void)state;
	assert_int_equal(all & (bitmaps | budget), bitmaps | budget);
	assert_int_equal(offered(0), all & ~(bitmaps | budget));
	assert_int_equal(offered(DCM_GC_IPC_KNOWS_PART), all & ~budget);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_long_answers),
		cmocka_unit_test(test_older_device),
	};

	return cmocka_run_group_tests(tests, start, stop);
}

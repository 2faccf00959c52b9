// SPDX-License-Identifier: GPL-2.0-or-later
/* links: kvm-dcm/gc/proxy.c kvm-dcm/gc/proxy_connect.c kvm-dcm/gc/ipc.c kvm-dcm/gc/api.c kvm-dcm/lib/thread.c kvm-dcm/lib/log.c */
/*
 * gc_proxy_test.c - a virtio-gc device that forwards requests to dcm-hostd
 *
 * This test stands for the daemon, and sends valid messages, invalid ones, or
 * nothing more. The file is a memfd.
 */
#include <endian.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "gc/backend.h"
#include "gc/ipc.h"

#define MIB (1ull << 20)
#define WINDOW (4u << 20)
#define ROOM 4096u
#define FEATURES 31u

static char folder[] = "/tmp/gc_remote_XXXXXX";
static char path[64];
static int listener, file;
static char *window;
static struct dcm_gc_host *gc;

/* ---- the device ---- */

struct call {
	bool done;
	size_t bytes;
	struct virtio_gc_done d;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
static uint32_t changes;
static uint8_t last[2u << 20]; /* answer */

static void answered(void *priv, void *token, const void *answer, size_t bytes)
{
	struct call *c = token;

	assert_ptr_equal(priv, &lock);
	pthread_mutex_lock(&lock);
	assert_false(c->done);
	c->done = true;
	c->bytes = bytes;
	assert_true(bytes <= sizeof(last));
	if (bytes) {
		memcpy(&c->d, answer, sizeof(c->d));
		memcpy(last, answer, bytes);
	}
	pthread_cond_broadcast(&moved);
	pthread_mutex_unlock(&lock);
}

static void config_changed(void *priv)
{
	assert_ptr_equal(priv, &lock);
	pthread_mutex_lock(&lock);
	changes++;
	pthread_cond_broadcast(&moved);
	pthread_mutex_unlock(&lock);
}

static const struct dcm_gc_host_ops ops = { .answered = answered,
					    .config_changed = config_changed };

static uint32_t status_of(struct call *c)
{
	pthread_mutex_lock(&lock);
	while (!c->done)
		pthread_cond_wait(&moved, &lock);
	pthread_mutex_unlock(&lock);
	return le32toh(c->d.status);
}

struct request {
	struct virtio_gc_req r;
	uint64_t more[4];
};

static struct request request(uint16_t command, uint32_t space, uint64_t more)
{
	return (struct request){
		.r = { .command = htole16(command), .space = htole32(space) },
		.more = { more, ~more },
	};
}

static void submit(const struct request *q, size_t room, struct call *c)
{
	memset(c, 0, sizeof(*c));
	dcm_gc_host_submit(gc, q, sizeof(*q), room, c);
}

/* ---- the daemon ---- */

struct heard {
	struct dcm_gc_ipc s;
	uint8_t more[512];
	size_t bytes;
};

static struct heard hear(int sock)
{
	struct heard h;
	struct iovec iov[] = { { &h.s, sizeof(h.s) },
			       { h.more, sizeof(h.more) } };
	ssize_t n = readv(sock, iov, 2);

	assert_true(n >= (ssize_t)sizeof(h.s));
	h.bytes = (size_t)n - sizeof(h.s);
	return h;
}

static void say(int sock, uint32_t kind, uint64_t token, uint64_t value,
		const void *more, size_t bytes)
{
	struct dcm_gc_ipc s = { .kind = kind, .token = token, .value = value };

	assert_int_equal(dcm_gc_ipc_send(sock, &s, more, bytes), 0);
}

static void say_done(int sock, uint64_t token, uint32_t status)
{
	const struct virtio_gc_done d = { .status = htole32(status) };

	say(sock, DCM_GC_IPC_ANSWER, token, 0, &d, sizeof(d));
}

static int listen_on(void)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };

	strcpy(sa.sun_path, path);
	listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	return bind(listener, (struct sockaddr *)&sa, sizeof(sa)) ||
	       listen(listener, 4);
}

static void listen_off(void)
{
	close(listener);
	unlink(path);
}

/* Does somebody have the file locked at @at? */
static bool locked(uint64_t at)
{
	struct flock l = { .l_type = F_RDLCK,
			   .l_start = (off_t)at,
			   .l_len = 1 };
	char name[32];
	int fd;

	snprintf(name, sizeof(name), "/proc/self/fd/%d", file);
	fd = open(name, O_RDONLY);
	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_OFD_GETLK, &l), 0);
	close(fd);
	return l.l_type == F_WRLCK;
}

/* A client connects, shows that it owns the file, and is accepted. */
static int let_in(uint32_t donors)
{
	const struct virtio_gc_config c = { .window_bytes = htole64(WINDOW),
					    .donors = htole32(donors) };
	const uint64_t at = (1ull << 62) + 77;
	int sock = accept(listener, NULL, NULL);
	struct dcm_gc_ipc_file shown;
	struct heard h = hear(sock);
	struct stat ours;

	assert_int_equal(h.s.kind, DCM_GC_IPC_HELLO);
	assert_int_equal(h.s.value, DCM_GC_IPC_VERSION);
	assert_int_equal(h.s.room, DCM_GC_IPC_KNOWS_PART |
					   DCM_GC_IPC_KNOWS_BUDGET |
				 DCM_GC_IPC_KNOWS_MOVED);
	assert_int_equal(h.bytes, sizeof(shown));
	memcpy(&shown, h.more, sizeof(shown));
	assert_int_equal(fstat(file, &ours), 0);
	assert_true(ours.st_ino == shown.ino && ours.st_dev == shown.dev);
	assert_false(locked(at));
	say(sock, DCM_GC_IPC_PROVE, 0, at, NULL, 0);
	h = hear(sock);
	assert_int_equal(h.s.kind, DCM_GC_IPC_PROVED);
	assert_true(locked(at));
	say(sock, DCM_GC_IPC_WELCOME, donors * MIB, FEATURES, &c,
	    DCM_GC_CONFIG_BYTES);
	while (locked(at))
		usleep(1000);
	return sock;
}

static void *let_in_thread(void *sock)
{
	*(int *)sock = let_in(2);
	return NULL;
}

/* A device, and its daemon's end of it. */
static int up(void)
{
	char err[256];
	pthread_t t;
	int sock;

	assert_int_equal(pthread_create(&t, NULL, let_in_thread, &sock), 0);
	gc = dcm_gc_host_connect(path, file, window, WINDOW, &ops, &lock, err,
				 sizeof(err));
	pthread_join(t, NULL);
	assert_non_null(gc);
	return sock;
}

static void *ready_thread(void *arg)
{
	int sock = *(int *)arg;
	struct heard h;

	do {
		h = hear(sock);
	} while (h.s.kind != DCM_GC_IPC_RESET);
	say(sock, DCM_GC_IPC_READY, 0, 0, NULL, 0);
	return NULL;
}

static void down(int sock)
{
	pthread_t t;

	assert_int_equal(pthread_create(&t, NULL, ready_thread, &sock), 0);
	dcm_gc_host_close(gc);
	pthread_join(t, NULL);
	close(sock);
}

/* ---- tests ---- */

static void test_passed_on(void **state)
{
	struct request a = request(VIRTIO_GC_TRACE_FINISH, 3, 77), b = a;
	struct virtio_gc_config c;
	struct call first, second;
	struct heard h[2];
	int sock = up();

	(void)state;
	dcm_gc_host_config(gc, &c);
	assert_int_equal(le32toh(c.donors), 2);
	assert_int_equal(dcm_gc_host_budget(gc), 2 * MIB);
	assert_int_equal(dcm_gc_host_features(gc), FEATURES);
	dcm_gc_host_start(gc, 5);
	h[0] = hear(sock);
	assert_int_equal(h[0].s.kind, DCM_GC_IPC_START);
	assert_int_equal(h[0].s.value, 5);

	b.more[0] = 78;
	submit(&a, ROOM, &first);
	submit(&b, 33, &second);
	h[0] = hear(sock);
	h[1] = hear(sock);
	assert_int_equal(h[0].s.kind, DCM_GC_IPC_REQUEST);
	assert_int_equal(h[0].s.room, ROOM);
	assert_int_equal(h[1].s.room, 33);
	assert_int_equal(h[0].bytes, sizeof(a));
	assert_memory_equal(h[0].more, &a, sizeof(a));
	assert_memory_equal(h[1].more, &b, sizeof(b));
	/* in any order; bits are there before their answer */
	say(sock, DCM_GC_IPC_BITS, 0, WINDOW - 4, "abcd", 4);
	window[0] = 'x';
	say(sock, DCM_GC_IPC_DISCARD, 4096, 0, NULL, 0);
	say_done(sock, h[1].s.token, VIRTIO_GC_BUSY);
	say_done(sock, h[0].s.token, VIRTIO_GC_OK);
	assert_int_equal(status_of(&second), VIRTIO_GC_BUSY);
	assert_memory_equal(window + WINDOW - 4, "abcd", 4);
	assert_int_equal(window[0], 0);
	assert_int_equal(status_of(&first), VIRTIO_GC_OK);

	down(sock);
	/* closed is reset */
	assert_int_equal(window[WINDOW - 1], 0);
}

/* Another daemon may know of another number of donors. */
static void test_another_daemon(void **state)
{
	struct request create = request(VIRTIO_GC_SPACE_CREATE, 1, 1),
		       wrong = request(VIRTIO_GC_SPACE_CREATE, 2, 2),
		       types = request(VIRTIO_GC_TYPES_ADD, 1, 3),
		       start = request(VIRTIO_GC_TRACE_START, 1, 4),
		       none = request(VIRTIO_GC_TYPES_ADD, 1, 5),
		       replace = request(VIRTIO_GC_TYPES_ADD, 1, 6),
		       more = request(VIRTIO_GC_TYPES_ADD, 1, 7);
	/* the odd ones need not be replayed */
	const struct request *made[] = { &create, &wrong, &replace,
					 &none,	  &more,  &types };
	const uint32_t order[] = { 0, 1, 5, 3, 2, 4 };
	struct virtio_gc_config c;
	struct call call;
	struct heard h;
	int sock = up();
	uint32_t i;

	(void)state;
	dcm_gc_host_start(gc, FEATURES);
	hear(sock);
	types.r.count = replace.r.count = more.r.count = htole32(1);
	replace.r.flags = htole16(VIRTIO_GC_TYPES_REPLACE);
	for (uint32_t k = 0; k < 6; k++) {
		i = order[k];
		submit(made[i], ROOM, &call);
		h = hear(sock);
		say_done(sock, h.s.token, i == 1 ? VIRTIO_GC_INVALID : 0);
		assert_int_equal(status_of(&call),
				 i == 1 ? VIRTIO_GC_INVALID : VIRTIO_GC_OK);
	}
	submit(&start, ROOM, &call);
	hear(sock);
	listen_off();
	close(sock);
	assert_int_equal(status_of(&call), VIRTIO_GC_WORKER_LOST);
	/* there is none yet */
	submit(&start, ROOM, &call);
	assert_int_equal(status_of(&call), VIRTIO_GC_WORKER_LOST);
	assert_int_equal(le32toh(call.d.donor), VIRTIO_GC_NO_DONOR);
	submit(&start, 3, &call);
	status_of(&call);
	assert_int_equal(call.bytes, 0);

	changes = 0;
	assert_int_equal(listen_on(), 0);
	sock = let_in(3);
	h = hear(sock);
	assert_true(h.s.kind == DCM_GC_IPC_START && h.s.value == FEATURES);
	for (i = 0; i < 6; i += 2) {
		h = hear(sock);
		assert_int_equal(h.s.kind, DCM_GC_IPC_REQUEST);
		assert_memory_equal(h.more, made[i], sizeof(*made[i]));
		say_done(sock, h.s.token, VIRTIO_GC_OK);
	}
	pthread_mutex_lock(&lock);
	while (!changes)
		pthread_cond_wait(&moved, &lock);
	pthread_mutex_unlock(&lock);
	assert_int_equal(changes, 1);
	dcm_gc_host_config(gc, &c);
	assert_int_equal(le32toh(c.donors), 3);
	assert_int_equal(dcm_gc_host_budget(gc), 3 * MIB);
	submit(&start, ROOM, &call);
	h = hear(sock);
	assert_memory_equal(h.more, &start, sizeof(start));
	/* and so may the same */
	c.donors = htole32(4);
	say(sock, DCM_GC_IPC_WELCOME, 5 * MIB, FEATURES, &c,
	    DCM_GC_CONFIG_BYTES);
	say_done(sock, h.s.token, VIRTIO_GC_OK);
	assert_int_equal(status_of(&call), VIRTIO_GC_OK);
	/* [VGC-D-4] */
	assert_int_equal(changes, 2);
	dcm_gc_host_config(gc, &c);
	assert_int_equal(le32toh(c.donors), 4);
	assert_int_equal(dcm_gc_host_budget(gc), 5 * MIB);
	down(sock);
}

/* Until the device has accepted a new daemon it answers by itself. */
static uint64_t submit_heard(int sock, const struct request *q, struct call *c)
{
	char byte;

	do {
		submit(q, ROOM, c);
	} while (recv(sock, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
		 status_of(c) == VIRTIO_GC_WORKER_LOST);
	return hear(sock).s.token;
}

/* A guest starts while a new daemon gets the replay: it hears of the start. */
static void test_a_start_beside_a_new_connection(void **state)
{
	struct request create = request(VIRTIO_GC_SPACE_CREATE, 1, 1),
		       finish = request(VIRTIO_GC_TRACE_FINISH, 1, 2);
	struct call call;
	struct heard h;
	int sock = up(), i;
	char end;

	(void)state;
	dcm_gc_host_start(gc, FEATURES);
	hear(sock);
	submit(&create, ROOM, &call);
	h = hear(sock);
	say_done(sock, h.s.token, VIRTIO_GC_OK);
	assert_int_equal(status_of(&call), VIRTIO_GC_OK);
	close(sock);
	for (i = 0; i < 2; i++) {
		sock = let_in(2);
		h = hear(sock);
		assert_int_equal(h.s.kind, DCM_GC_IPC_START);
		assert_int_equal(h.s.value, i ? 5 : FEATURES);
		h = hear(sock);
		assert_memory_equal(h.more, &create, sizeof(create));
		if (!i)
			dcm_gc_host_start(gc, 5);
		say_done(sock, h.s.token, VIRTIO_GC_OK);
		if (!i) {
			assert_int_equal(read(sock, &end, 1), 0);
			close(sock);
		}
	}
	/* a reset beside it would end this connection too */
	say_done(sock, submit_heard(sock, &finish, &call), VIRTIO_GC_OK);
	assert_int_equal(status_of(&call), VIRTIO_GC_OK);
	down(sock);
}

/* An invalid message ends the connection, and changes nothing. */
static void test_nonsense(void **state)
{
	static const struct {
		uint32_t kind;
		uint64_t token, value;
		size_t bytes;
	} wrong[] = {
		{ DCM_GC_IPC_BITS, 0, WINDOW - 3, 4 },
		{ DCM_GC_IPC_BITS, 0, WINDOW + 1, 0 },
		{ DCM_GC_IPC_BITS, 0, UINT64_MAX - 3, 4 },
		{ DCM_GC_IPC_BITS, 0, UINT64_MAX, 200 },
		{ DCM_GC_IPC_ANSWER, 0, 0, 32 },
		{ DCM_GC_IPC_ANSWER, 1 << 20, 0, 32 },
		{ DCM_GC_IPC_PART, 0, 0, 8 },
		{ DCM_GC_IPC_PART, 1, 0, 0 },
		{ DCM_GC_IPC_WELCOME, 0, 31, 8 },
		{ DCM_GC_IPC_HELLO, 0, 1, 0 },
		{ 0, 0, 0, 0 },
		{ UINT32_MAX, 1, 1, 1 },
	};
	const struct request q = request(VIRTIO_GC_TRACE_FINISH, 1, 1);
	uint8_t junk[200];
	struct call call;
	int sock = up();
	size_t i;

	(void)state;
	memset(junk, 0xa5, sizeof(junk));
	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		submit(&q, ROOM, &call);
		hear(sock);
		say(sock, wrong[i].kind, wrong[i].token, wrong[i].value, junk,
		    wrong[i].bytes);
		assert_int_equal(status_of(&call), VIRTIO_GC_WORKER_LOST);
		close(sock);
		sock = let_in(2);
		say_done(sock, submit_heard(sock, &q, &call), VIRTIO_GC_OK);
		assert_int_equal(status_of(&call), VIRTIO_GC_OK);
	}
	for (i = 0; i < WINDOW; i++)
		assert_int_equal(window[i], 0);
	down(sock);
}

/* @n parts of an answer, then its end: the answer's bytes. */
static size_t parts_say(int sock, uint64_t token, uint32_t n)
{
	static uint8_t piece[DCM_GC_IPC_PIECE];

	for (uint32_t i = 0; i < n; i++) {
		memset(piece, (int)i, sizeof(piece));
		say(sock, DCM_GC_IPC_PART, token, 0, piece, sizeof(piece));
	}
	memset(piece, 0xee, sizeof(piece));
	say(sock, DCM_GC_IPC_ANSWER, token, 0, piece,
	    sizeof(struct virtio_gc_done));
	return n * sizeof(piece) + sizeof(struct virtio_gc_done);
}

/* An answer in parts comes whole; parts that do not fit each other end it. */
static void test_parts(void **state)
{
	/* parts, then an odd message, to the same request or the next */
	static const uint32_t wrong[][3] = { { 2, DCM_GC_IPC_PART, 1 },
					     { 1, DCM_GC_IPC_ANSWER, 1 },
					     { 16, DCM_GC_IPC_ANSWER, 0 } };
	const struct request q = request(VIRTIO_GC_TRACE_BITMAPS, 1, 1);
	static uint8_t piece[DCM_GC_IPC_PIECE];
	struct call call;
	int sock = up();
	uint64_t token;
	size_t bytes;

	(void)state;
	for (uint32_t n = 0; n <= 16; n += n ? n : 1) {
		submit(&q, ROOM, &call);
		bytes = parts_say(sock, hear(sock).s.token, n);
		status_of(&call);
		assert_int_equal(call.bytes, bytes);
		for (uint32_t i = 0; i < n; i++)
			assert_true(last[i * sizeof(piece)] == i &&
				    last[(i + 1) * sizeof(piece) - 1] == i);
		assert_int_equal(last[bytes - 1], 0xee);
	}
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		submit(&q, ROOM, &call);
		token = hear(sock).s.token;
		for (uint32_t n = 0; n < wrong[i][0]; n++)
			say(sock, DCM_GC_IPC_PART, token, 0, piece,
			    sizeof(piece));
		/* one byte too many of the last one's */
		say(sock, wrong[i][1], token + wrong[i][2], 0, piece,
		    sizeof(struct virtio_gc_done) + 1);
		assert_int_equal(status_of(&call), VIRTIO_GC_WORKER_LOST);
		close(sock);
		/* the next daemon's answers have nothing of it */
		sock = let_in(2);
		say_done(sock, submit_heard(sock, &q, &call), VIRTIO_GC_BUSY);
		assert_int_equal(status_of(&call), VIRTIO_GC_BUSY);
		assert_int_equal(call.bytes, sizeof(struct virtio_gc_done));
	}
	down(sock);
}

/* Fill in the answer that tells the runtime of @nr moves; returns its bytes. */
static size_t moves_fill(uint8_t *buf, uint32_t nr)
{
	struct virtio_gc_done d = { .status = htole32(VIRTIO_GC_WORKER_LOST),
				    .count = htole32(nr) };

	memcpy(buf, &d, sizeof(d));
	memset(buf + sizeof(d), 0x77, nr * sizeof(struct virtio_gc_moved));
	return sizeof(d) + nr * sizeof(struct virtio_gc_moved);
}

/*
 * The daemon is killed when objects have moved, and references to some are updated: the
 * runtime learns where the moves' tables are. Another request in flight is just lost.
 */
static void test_daemon_killed_after_objects_have_moved(void **state)
{
	static uint8_t buf[DCM_GC_IPC_PIECE];
	const struct request q = request(VIRTIO_GC_COMPACT, 1, 1);
	struct call call, other, first;
	uint64_t token;
	size_t bytes;
	int sock = up();

	(void)state;
	for (uint32_t i = 0; i < 4; i++) {
		token = submit_heard(sock, &q, &first);
		submit(&q, ROOM, &call);
		/* what follows is read when the connection has been reset */
		if (i == 1)
			pthread_mutex_lock(&lock);
		say_done(sock, token, VIRTIO_GC_OK);
		token = hear(sock).s.token;
		bytes = moves_fill(buf, 5);
		say(sock, DCM_GC_IPC_MOVED, token, 0, buf, 100);
		/* @i: all of it; all, with a reset; a part; none of this one's */
		if (i != 2)
			say(sock, DCM_GC_IPC_MOVED, token, 0, buf + 100,
			    bytes - 100);
		submit(&q, ROOM, &other);
		if (i != 1)
			token = hear(sock).s.token;
		if (i == 3)
			say_done(sock, token - 1, VIRTIO_GC_OK);
		close(sock);
		if (i == 1)
			pthread_mutex_unlock(&lock);
		assert_int_equal(status_of(&first), VIRTIO_GC_OK);
		assert_int_equal(status_of(&call),
				 i == 3 ? VIRTIO_GC_OK : VIRTIO_GC_WORKER_LOST);
		assert_int_equal(le32toh(call.d.count), i < 2 ? 5 : 0);
		assert_int_equal(call.bytes, i < 2 ? bytes : sizeof(call.d));
		assert_int_equal(status_of(&other), VIRTIO_GC_WORKER_LOST);
		assert_int_equal(le32toh(other.d.count), 0);
		sock = let_in(2);
	}
	/* more than an answer has */
	token = submit_heard(sock, &q, &call);
	for (bytes = 0; bytes <= VIRTIO_GC_BITMAPS_MAX; bytes += sizeof(buf))
		say(sock, DCM_GC_IPC_MOVED, token, 0, buf, sizeof(buf));
	assert_int_equal(status_of(&call), VIRTIO_GC_WORKER_LOST);
	assert_int_equal(call.bytes, sizeof(call.d));
	close(sock);
	sock = let_in(2);
	down(sock);
}

static void *refuse_thread(void *why)
{
	int sock = accept(listener, NULL, NULL);

	hear(sock);
	say(sock, DCM_GC_IPC_REFUSED, 0, 0, why, strlen(why));
	close(sock);
	return NULL;
}

static void test_refused(void **state)
{
	char err[256], away[80], why[300];
	pthread_t t;

	(void)state;
	memset(why, 'x', sizeof(why) - 1);
	why[sizeof(why) - 1] = 0;
	assert_int_equal(pthread_create(&t, NULL, refuse_thread, why), 0);
	assert_null(dcm_gc_host_connect(path, file, window, WINDOW, &ops, &lock,
					err, sizeof(err)));
	pthread_join(t, NULL);
	assert_int_equal(strlen(err), 200);
	snprintf(away, sizeof(away), "%s/none", folder);
	assert_null(dcm_gc_host_connect(away, file, window, WINDOW, &ops, &lock,
					err, sizeof(err)));
	assert_non_null(strstr(err, "is dcm-hostd running?"));
	memset(why, 'y', 200);
	why[200] = 0;
	assert_null(dcm_gc_host_connect(why, file, window, WINDOW, &ops, &lock,
					err, sizeof(err)));
	assert_non_null(strstr(err, "too long"));
}

static int all_up(void **state)
{
	(void)state;
	if (!mkdtemp(folder))
		return -1;
	snprintf(path, sizeof(path), "%s/gc.sock", folder);
	file = memfd_create("window", MFD_CLOEXEC);
	if (ftruncate(file, WINDOW) || listen_on())
		return -1;
	window =
		mmap(NULL, WINDOW, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	return window == MAP_FAILED ? -1 : 0;
}

static int all_down(void **state)
{
	(void)state;
	munmap(window, WINDOW);
	close(file);
	listen_off();
	return rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_passed_on),
		cmocka_unit_test(test_another_daemon),
		cmocka_unit_test(test_a_start_beside_a_new_connection),
		cmocka_unit_test(test_nonsense),
		cmocka_unit_test(test_parts),
		cmocka_unit_test(test_daemon_killed_after_objects_have_moved),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, all_up, all_down);
}

// SPDX-License-Identifier: GPL-2.0-or-later
/* links: kvm-dcm/hostd/gc.c kvm-dcm/hostd/window.c kvm-dcm/gc/ipc.c kvm-dcm/gc/queue.c kvm-dcm/gc/command.c kvm-dcm/gc/api.c kvm-dcm/gc/space.c kvm-dcm/lib/thread.c kvm-dcm/lib/log.c kvm-dcm/proto/gc_request.c */
/*
 * hostd_gc_test.c - which devices dcm-hostd serves, and that none can block it
 *
 * This test stands for the main thread of dcm-hostd, and does only what that thread
 * does in its loop; devices are threads of the test. There are no donors, and the file is a
 * memfd. Descriptors that strangers pass are real: a file of a FUSE file system that answers
 * neither FLUSH nor RELEASE nor GETATTR, and a TCP socket that lingers over what
 * nobody reads.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
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
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <netinet/in.h>
#include <unistd.h>

#include <cmocka.h>

struct dcm_pager {
	int unused;
};

#include "../../kvm-dcm/include/libdcm_gc.h"
#include "gc_no_donors.h"
#include "gc/ipc.h"
#include "hostd/hostd.h"
#include "hostd_stubs.h"

#define PAGES 8192u
#define PASS_RIGHTS 83

static char folder[] = "/tmp/hostd_gc_XXXXXX";
static char path[64];
static struct hostd h = { .gc = -1 };
static struct hostd_file f = { .fd = -1, .path = (char *)"file" };
static int file;

/* ---- no pager in this process ---- */

uint64_t dcm_pager_extent(struct dcm_pager *p, const void *addr)
{
	(void)p;
	(void)addr;
	return 0;
}

uint32_t dcm_pager_donors(struct dcm_pager *p)
{
	(void)p;
	return 0;
}

int dcm_pager_discard(struct dcm_pager *p, void *addr, size_t bytes)
{
	(void)p;
	(void)addr;
	(void)bytes;
	return 0;
}

/* ---- the main thread ---- */

/* A turn of dcm-hostd's loop. */
static void turn(void)
{
	struct pollfd p[2] = { { .fd = h.ended, .events = POLLIN } };
	u32 n = hostd_gc_poll(&h, p + 1);
	eventfd_t count;

	poll(p, 1 + n, 50);
	if (p[0].revents && !eventfd_read(h.ended, &count))
		hostd_gc_reap(&h);
	hostd_gc_handle(&h, p + 1, n);
}

static void on_alarm(int signum)
{
	(void)signum;
}

static int start(void **state)
{
	struct sigaction alarm = { .sa_handler = on_alarm };
	const int yes = 1;
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
	snprintf(name, sizeof(name), "/proc/self/fd/%d", file);
	f.fd = open(name, O_RDONLY | O_CLOEXEC);
	f.dev = st.st_dev;
	f.ino = st.st_ino;
	f.info.pages = PAGES;
	f.info.extent_pages = 512;
	h.ended = f.ended = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	h.files = &f;
	hostd_gc_start(&h, path);
	/* kernels before 6.16 let any process pass descriptors */
	setsockopt(h.gc, SOL_SOCKET, PASS_RIGHTS, &yes, sizeof(yes));
	return h.gc < 0;
}

static int stop(void **state)
{
	(void)state;
	hostd_gc_end(&h, path);
	close(f.fd);
	close(file);
	close(h.ended);
	rmdir(folder);
	return !!h.callers;
}

/* ---- devices ---- */

static int dial(void)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", path);
	assert_int_equal(connect(sock, (struct sockaddr *)&sa, sizeof(sa)), 0);
	return sock;
}

/* HELLO about @of, with a descriptor if @fd is one. */
static void hello(int sock, int of, int fd)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct {
		struct dcm_gc_ipc s;
		struct dcm_gc_ipc_file file;
	} say = { .s = { .kind = DCM_GC_IPC_HELLO,
			 .value = DCM_GC_IPC_VERSION } };
	struct iovec v = { &say, sizeof(say) };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };
	struct stat st;

	assert_int_equal(fstat(of, &st), 0);
	say.file = (struct dcm_gc_ipc_file){ st.st_dev, st.st_ino };
	if (fd >= 0) {
		control.align.cmsg_level = SOL_SOCKET;
		control.align.cmsg_type = SCM_RIGHTS;
		control.align.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.align), &fd, sizeof(int));
		m.msg_control = &control;
		m.msg_controllen = sizeof(control);
	}
	assert_int_equal(sendmsg(sock, &m, MSG_NOSIGNAL), sizeof(say));
}

static char said[256]; /* why a device was refused last */

/* The next message's kind, while the main thread goes on; 0: disconnected. */
static u32 hear(int sock, struct dcm_gc_ipc *s)
{
	u8 buf[4096];

	for (;;) {
		ssize_t n = recv(sock, buf, sizeof(buf), MSG_DONTWAIT);

		if (n < 0 && errno == EAGAIN) {
			turn();
			continue;
		}
		if (n < (ssize_t)sizeof(*s))
			return 0;
		memcpy(s, buf, sizeof(*s));
		if (s->kind == DCM_GC_IPC_REFUSED)
			snprintf(said, sizeof(said), "%.*s",
				 (int)(n - (ssize_t)sizeof(*s)),
				 (const char *)buf + sizeof(*s));
		return s->kind;
	}
}

static void lock(int fd, u64 at, short type)
{
	struct flock l = { .l_type = type, .l_start = (off_t)at, .l_len = 1 };

	assert_int_equal(fcntl(fd, F_OFD_SETLK, &l), 0);
}

/* dcm-hostd's last message to a device that has the file open as @fd. */
static u32 introduce(int sock, int fd, bool proves)
{
	struct dcm_gc_ipc s;
	u32 kind;
	u64 at;

	hello(sock, file, -1);
	assert_int_equal(hear(sock, &s), DCM_GC_IPC_PROVE);
	at = s.value;
	if (proves)
		lock(fd, at, F_WRLCK);
	s = (struct dcm_gc_ipc){ .kind = DCM_GC_IPC_PROVED };
	assert_int_equal(dcm_gc_ipc_send(sock, &s, NULL, 0), 0);
	kind = hear(sock, &s);
	if (proves)
		lock(fd, at, F_UNLCK);
	return kind;
}

/* A device of somebody else is let in, and goes. */
static void others_get_in(void)
{
	int sock = dial();

	assert_int_equal(introduce(sock, file, true), DCM_GC_IPC_WELCOME);
	assert_non_null(f.gc);
	close(sock);
	while (f.gc)
		turn();
}

static void nobody_left(void)
{
	while (h.callers)
		turn();
	assert_int_equal(h.nr_callers, 0);
}

/* ---- tests ---- */

/* Only a process that has the file open to write, and one at a time. */
static void test_who_may(void **state)
{
	int sock = dial(), second, reads, other;
	struct dcm_gc_ipc s;
	char name[32];

	(void)state;
	/* claims to have the file open, and has not */
	assert_int_equal(introduce(sock, file, false), DCM_GC_IPC_REFUSED);
	assert_int_equal(hear(sock, &s), 0);
	close(sock);
	/* has the file open read-only: the lock can't be taken */
	snprintf(name, sizeof(name), "/proc/self/fd/%d", file);
	reads = open(name, O_RDONLY | O_CLOEXEC);
	assert_true(fcntl(reads, F_OFD_SETLK,
			  &(struct flock){ .l_type = F_WRLCK,
					   .l_start = 1,
					   .l_len = 1 }) < 0);
	close(reads);
	/* a file that is not served */
	other = memfd_create("other", MFD_CLOEXEC);
	sock = dial();
	hello(sock, other, -1);
	assert_int_equal(hear(sock, &s), DCM_GC_IPC_PROVE);
	lock(other, s.value, F_WRLCK);
	s = (struct dcm_gc_ipc){ .kind = DCM_GC_IPC_PROVED };
	assert_int_equal(dcm_gc_ipc_send(sock, &s, NULL, 0), 0);
	assert_int_equal(hear(sock, &s), DCM_GC_IPC_REFUSED);
	close(sock);
	close(other);
	/* another lock of another's, and a lock of more than was asked for */
	sock = dial();
	hello(sock, file, -1);
	assert_int_equal(hear(sock, &s), DCM_GC_IPC_PROVE);
	lock(file, s.value - 1, F_WRLCK);
	s = (struct dcm_gc_ipc){ .kind = DCM_GC_IPC_PROVED };
	assert_int_equal(dcm_gc_ipc_send(sock, &s, NULL, 0), 0);
	assert_int_equal(hear(sock, &s), DCM_GC_IPC_REFUSED);
	close(sock);

	sock = dial();
	assert_int_equal(introduce(sock, file, true), DCM_GC_IPC_WELCOME);
	second = dial();
	assert_int_equal(introduce(second, file, true), DCM_GC_IPC_REFUSED);
	close(second);
	close(sock);
	while (f.gc)
		turn();
	others_get_in();
	nobody_left();
}

/* A runtime looks at its limits, closes, and connects again at once to make its space. */
static void test_second_connection_of_a_runtime_is_not_refused(void **state)
{
	(void)state;
	for (u32 i = 0; i < 200; i++) {
		int sock = dial();

		assert_int_equal(introduce(sock, file, true),
				 DCM_GC_IPC_WELCOME);
		close(sock);
	}
	while (f.gc)
		turn();
	nobody_left();
}

/* Donors can't read a sealed file; those with copies they collect. */
static void test_what_donors_collect(void **state)
{
	int sock = dial();

	(void)state;
	f.sealed = true;
	assert_int_equal(introduce(sock, file, true), DCM_GC_IPC_REFUSED);
	assert_non_null(strstr(said, "pages are sealed: set seal = no"));
	close(sock);
	f.sealed = false;
	f.redundancy = DCM_REDUNDANCY_REPLICA_2;
	others_get_in();
	f.redundancy = DCM_REDUNDANCY_NONE;
	nobody_left();
}

/* A device that sends no HELLO, or nothing, is disconnected. */
static void test_nonsense(void **state)
{
	const struct dcm_gc_ipc odd[] = {
		{ .kind = DCM_GC_IPC_REQUEST },
		{ .kind = DCM_GC_IPC_HELLO, .value = DCM_GC_IPC_VERSION },
		{ .kind = 99 },
	};
	struct dcm_gc_ipc s;
	int sock;

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(odd); i++) {
		sock = dial();
		assert_int_equal(dcm_gc_ipc_send(sock, &odd[i], NULL, 0), 0);
		assert_int_equal(hear(sock, &s), 0);
		close(sock);
	}
	sock = dial();
	assert_int_equal(hear(sock, &s), 0);
	close(sock);
	nobody_left();
}

/* A user with very many connections soon leaves room for others. */
static void test_crowd(void **state)
{
	enum { CROWD = 100 };
	int sock[CROWD], hung_up = 0;
	char c;

	(void)state;
	for (u32 i = 0; i < CROWD; i++) {
		sock[i] = dial();
		turn();
		assert_true(h.nr_callers <= HOSTD_CALLERS_MAX);
	}
	/* by a thread each, which a busy machine runs late */
	for (u32 n = 0; n < 600 && hung_up < CROWD - 8; n++) {
		turn();
		hung_up = 0;
		for (u32 i = 0; i < CROWD; i++)
			hung_up += !recv(sock[i], &c, 1, MSG_DONTWAIT);
	}
	assert_true(hung_up >= CROWD - 8);
	nobody_left();
	others_get_in();
	for (u32 i = 0; i < CROWD; i++)
		close(sock[i]);
	nobody_left();
}

/* ---- a file system that never answers ---- */

struct never {
	int dev;
	pthread_t thread;
	u32 flushes; /* __atomic */
	char at[64];
};

static void fuse_say(int dev, u64 unique, const void *more, size_t bytes)
{
	struct fuse_out_header out = { .len = (u32)(sizeof(out) + bytes),
				       .unique = unique };
	struct iovec v[] = { { &out, sizeof(out) }, { (void *)more, bytes } };

	if (writev(dev, v, 2) < 0)
		return; /* unmounted meanwhile */
}

/* One file that can be opened; no later request on it is answered. */
static void *never_main(void *arg)
{
	static u64 buf[(1u << 20) / 8];
	struct never *fs = arg;
	struct fuse_attr attr = { .ino = 2,
				  .mode = S_IFREG | 0666,
				  .nlink = 1 };
	struct fuse_attr root = { .ino = 1,
				  .mode = S_IFDIR | 0777,
				  .nlink = 2 };

	while (read(fs->dev, buf, sizeof(buf)) > 0) {
		const struct fuse_in_header *in = (void *)buf;
		struct fuse_init_out init = { .major = FUSE_KERNEL_VERSION,
					      .minor = 31,
					      .max_write = 4096 };
		struct fuse_entry_out entry = { .nodeid = 2, .attr = attr };
		struct fuse_attr_out got = { .attr = root };
		struct fuse_open_out opened = { .fh = 1 };

		switch (in->opcode) {
		case FUSE_INIT:
			fuse_say(fs->dev, in->unique, &init, sizeof(init));
			break;
		case FUSE_LOOKUP:
			fuse_say(fs->dev, in->unique, &entry, sizeof(entry));
			break;
		case FUSE_GETATTR:
			if (in->nodeid == 1)
				fuse_say(fs->dev, in->unique, &got,
					 sizeof(got));
			break;
		case FUSE_OPEN:
			fuse_say(fs->dev, in->unique, &opened, sizeof(opened));
			break;
		case FUSE_FLUSH:
		case FUSE_RELEASE:
			__atomic_add_fetch(&fs->flushes, 1, __ATOMIC_RELAXED);
			break;
		}
	}
	return NULL;
}

static bool never_mount(struct never *fs)
{
	char how[96];

	snprintf(fs->at, sizeof(fs->at), "%s/fs", folder);
	fs->dev = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (fs->dev < 0 || mkdir(fs->at, 0755))
		return false;
	snprintf(how, sizeof(how), "fd=%d,rootmode=40000,user_id=0,group_id=0",
		 fs->dev);
	if (mount("never", fs->at, "fuse", MS_NODEV | MS_NOSUID, how)) {
		rmdir(fs->at);
		close(fs->dev);
		return false;
	}
	assert_int_equal(pthread_create(&fs->thread, NULL, never_main, fs), 0);
	return true;
}

/* Waiting processes go on. */
static void never_unmount(struct never *fs)
{
	umount2(fs->at, MNT_FORCE);
	umount2(fs->at, MNT_DETACH);
	pthread_join(fs->thread, NULL);
	close(fs->dev);
	rmdir(fs->at);
}

static void *close_main(void *fd)
{
	close(*(int *)fd);
	return NULL;
}

/* Pass @fd with HELLO and with later messages: dcm-hostd still serves others. */
static void pass_everywhere(int fd)
{
	struct dcm_gc_ipc s;
	int sock[3];

	/* with the first message, with one that is not read, with none at all */
	for (u32 i = 0; i < 3; i++) {
		sock[i] = dial();
		hello(sock[i], file, fd);
		if (i)
			hello(sock[i], file, fd);
	}
	close(sock[2]);
	others_get_in();
	/* of a connection that is a file's */
	sock[2] = dial();
	assert_int_equal(introduce(sock[2], file, true), DCM_GC_IPC_WELCOME);
	hello(sock[2], file, fd);
	while (hear(sock[2], &s))
		;
	for (u32 i = 0; i < 3; i++)
		close(sock[i]);
	while (f.gc)
		turn();
}

/* A file whose close() never returns. */
static void test_close_never_returns(void **state)
{
	struct never fs = { 0 };
	pthread_t closes;
	char name[80];
	int fd;

	(void)state;
	if (!never_mount(&fs)) {
		print_message("# no FUSE here (%s)\n", strerror(errno));
		skip();
	}
	snprintf(name, sizeof(name), "%s/x", fs.at);
	fd = open(name, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	pass_everywhere(fd);
	nobody_left();
	/* dcm-hostd did not use the file, and closing it does block */
	assert_int_equal(__atomic_load_n(&fs.flushes, __ATOMIC_RELAXED), 0);
	assert_int_equal(pthread_create(&closes, NULL, close_main, &fd), 0);
	while (!__atomic_load_n(&fs.flushes, __ATOMIC_RELAXED))
		usleep(1000);
	assert_int_equal(pthread_tryjoin_np(closes, NULL), EBUSY);
	never_unmount(&fs);
	pthread_join(closes, NULL);
}

/* A socket that lingers for an hour when the last that has it goes. */
static int lingers(int *peer)
{
	struct sockaddr_in sa = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	const struct linger hour = { .l_onoff = 1, .l_linger = 3600 };
	int l = socket(AF_INET, SOCK_STREAM, 0), fd, small = 4096;
	socklen_t len = sizeof(sa);
	static char junk[1 << 16];

	setsockopt(l, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	assert_int_equal(bind(l, (struct sockaddr *)&sa, sizeof(sa)), 0);
	assert_int_equal(listen(l, 1), 0);
	assert_int_equal(getsockname(l, (struct sockaddr *)&sa, &len), 0);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	*peer = accept(l, NULL, NULL);
	close(l);
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &hour, sizeof(hour));
	while (send(fd, junk, sizeof(junk), MSG_DONTWAIT) > 0)
		;
	return fd;
}

static void test_socket_lingers(void **state)
{
	int peer, fd = lingers(&peer), sock = dial();

	(void)state;
	hello(sock, file, fd);
	/* the last one is dcm-hostd's to drop */
	close(fd);
	others_get_in();
	nobody_left();
	close(sock);
	close(peer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_who_may),
		cmocka_unit_test(
			test_second_connection_of_a_runtime_is_not_refused),
		cmocka_unit_test(test_what_donors_collect),
		cmocka_unit_test(test_nonsense),
		cmocka_unit_test(test_crowd),
		cmocka_unit_test(test_close_never_returns),
		cmocka_unit_test(test_socket_lingers),
	};

	return cmocka_run_group_tests(tests, start, stop);
}

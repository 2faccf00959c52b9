// SPDX-License-Identifier: GPL-2.0-or-later
/* links: kvm-dcm/hostd/gc.c kvm-dcm/hostd/window.c kvm-dcm/gc/ipc.c kvm-dcm/gc/queue.c kvm-dcm/gc/command.c kvm-dcm/gc/api.c kvm-dcm/gc/space.c kvm-dcm/lib/thread.c kvm-dcm/lib/log.c kvm-dcm/proto/gc_request.c */
/*
 * hostd_gc_fuzz.c - libFuzzer on what a virtio-gc device says to dcm-hostd
 *
 * An input is a connection: a byte that says which file it says it has, and
 * which it has locked, then messages one after the other, two bytes of length
 * and the bytes. The main thread is this program; there are no donors, and the
 * file's ioctls all fail. Whatever is said, in the end nothing is left of the
 * connection but the file.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

struct dcm_pager {
	int unused;
};

#include "../../kvm-dcm/include/libdcm_gc.h"
#include "../unit/gc_no_donors.h"
#include "../unit/hostd_no_slabs.h"
#include "gc/ipc.h"
#include "hostd/hostd.h"
#include "../framework/expect.h"

#define PAGES 8192u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- what of dcm-hostd is not here ---- */

void hostd_unlisten(int *fd, const char *path)
{
	(void)fd;
	(void)path;
}

int hostd_listen(const char *path, int type, mode_t mode, u32 backlog)
{
	(void)path;
	(void)type;
	(void)mode;
	(void)backlog;
	return -1;
}

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

/* ---- the device ---- */

/* Answers, for as long as there are any. */
static void drain(int sock)
{
	static uint8_t buf[1 << 17];

	while (recv(sock, buf, sizeof(buf), MSG_DONTWAIT) > 0)
		;
}

static bool tell(int sock, const void *bytes, size_t n)
{
	while (send(sock, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
		struct pollfd p = { .fd = sock, .events = POLLIN | POLLOUT };

		if (errno != EAGAIN)
			return false;
		poll(&p, 1, 100);
		drain(sock);
	}
	return true;
}

static struct hostd h = { .gc = -1 };

/* Until dcm-hostd has told the connection what becomes of it, or it is over. */
static void until_told(int sock)
{
	struct pollfd p[] = { { .fd = h.ended, .events = POLLIN },
			      { .fd = sock, .events = POLLIN } };
	eventfd_t n;

	poll(p, 2, 1000);
	eventfd_read(h.ended, &n);
	hostd_gc_reap(&h);
}

static u64 proof(int sock)
{
	struct dcm_gc_ipc s = { 0 };

	return recv(sock, &s, sizeof(s), MSG_DONTWAIT) == (ssize_t)sizeof(s) &&
			       s.kind == DCM_GC_IPC_PROVE ?
		       s.value :
		       0;
}

/* HELLO, and the proof; @how: which file, and whether it is so. */
static void introduce(int sock, u32 how, const int *fds)
{
	struct dcm_gc_ipc s = { .kind = DCM_GC_IPC_HELLO,
				/* mostly the right one */
				.value = DCM_GC_IPC_VERSION + (how >> 5 == 7) };
	struct dcm_gc_ipc_file file;
	struct flock l = { .l_type = F_WRLCK, .l_len = 1 };
	struct stat st;
	u64 at;

	EXPECT(!fstat(fds[how & 4 ? how & 1 : 0], &st));
	file = (struct dcm_gc_ipc_file){ st.st_dev, st.st_ino };
	EXPECT(!dcm_gc_ipc_send(sock, &s, &file, sizeof(file)));
	until_told(sock);
	at = proof(sock);
	if (!at)
		return;
	l.l_start = (off_t)at;
	/* of one that is open to read only there is none */
	fcntl(fds[how & 4 ? how & 3 : 0], F_OFD_SETLK, &l);
	s = (struct dcm_gc_ipc){ .kind = DCM_GC_IPC_PROVED };
	if (dcm_gc_ipc_send(sock, &s, NULL, 0))
		return;
	until_told(sock);
	l.l_type = F_UNLCK;
	fcntl(fds[how & 4 ? how & 3 : 0], F_OFD_SETLK, &l);
}

/* The listener's: connections come as those of a socket do. */
static int dial(const struct sockaddr_un *sa)
{
	struct pollfd p[2] = { { .fd = -1 } };
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);

	EXPECT(!connect(sock, (const struct sockaddr *)sa, sizeof(*sa)));
	EXPECT(hostd_gc_poll(&h, p) == 1);
	p->revents = POLLIN;
	hostd_gc_handle(&h, p, 1);
	return sock;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct hostd_file f = { .fd = -1, .path = (char *)"file" };
	static struct sockaddr_un sa = { .sun_family = AF_UNIX };
	static int fds[4] = { -1 };
	const uint8_t *end = data + size;
	int sock;

	if (fds[0] < 0) {
		char path[32];
		struct stat st;

		dcm_log_setup(0, -1);
		fds[0] = memfd_create("file", 0);
		fds[1] = memfd_create("other", 0);
		EXPECT(!ftruncate(fds[0], (off_t)PAGES * 4096) &&
		       !fstat(fds[0], &st));
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fds[0]);
		fds[2] = fds[3] = open(path, O_RDONLY);
		f.fd = fds[2];
		f.dev = st.st_dev;
		f.ino = st.st_ino;
		f.info.pages = PAGES;
		f.info.extent_pages = 512;
		h.ended = f.ended = eventfd(0, EFD_NONBLOCK);
		h.files = &f;
		/* an abstract name */
		snprintf(sa.sun_path + 1, sizeof(sa.sun_path) - 1,
			 "hostd_gc_fuzz.%d", (int)getpid());
		h.gc = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
		EXPECT(!bind(h.gc, (struct sockaddr *)&sa, sizeof(sa)) &&
		       !listen(h.gc, 4));
	}
	if (!size)
		return 0;
	sock = dial(&sa);
	introduce(sock, *data++, fds);
	while (end - data >= 2) {
		size_t n = data[0] | (size_t)data[1] << 8;

		data += 2;
		if (n > (size_t)(end - data))
			n = (size_t)(end - data);
		if (n && !tell(sock, data, n))
			break;
		data += n;
		drain(sock);
	}
	/* All that was said is heard before the end is. */
	shutdown(sock, SHUT_WR);
	while (h.callers) {
		struct pollfd gone = { .fd = h.ended, .events = POLLIN };
		eventfd_t n;

		while (poll(&gone, 1, 1) != 1)
			drain(sock);
		eventfd_read(h.ended, &n);
		hostd_gc_reap(&h);
	}
	EXPECT(!f.gc && !h.nr_callers);
	close(sock);
	return 0;
}

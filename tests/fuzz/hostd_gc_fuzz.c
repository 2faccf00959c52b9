// SPDX-License-Identifier: GPL-2.0-or-later
/* links: kvm-dcm/user/hostd_gc.c kvm-dcm/user/gc_say.c kvm-dcm/user/gc_host.c kvm-dcm/user/gc_command.c kvm-dcm/user/gc_api.c kvm-dcm/user/gc_space.c kvm-dcm/user/inside.c kvm-dcm/user/log.c donor-daemon/gc/request.c */
/*
 * hostd_gc_fuzz.c - libFuzzer on what a virtio-gc device says to dcm-hostd
 *
 * An input is a connection: a byte that says what comes with HELLO (the file, a
 * wrong one, one that is open to read only, none), then messages one after the
 * other, two bytes of length and the bytes. The main thread is this program;
 * there are no donors, and the file's ioctls all fail. Whatever is said, in the
 * end nothing is left of the connection but the file.
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
#include <unistd.h>

struct dcm_pager {
	int unused;
};

#include "../../kvm-dcm/include/libdcm_gc.h"
#include "../unit/gc_no_donors.h"
#include "gc_say.h"
#include "hostd.h"

#define PAGES 8192u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int ok)
{
	if (!ok)
		abort();
}

/* ---- what of dcm-hostd is not here ---- */

void hostd_unlisten(int *fd, const char *path)
{
	(void)fd;
	(void)path;
}

u64 hostd_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (u64)ts.tv_sec * 1000000000u + (u64)ts.tv_nsec;
}

bool hostd_slab_where(struct hostd_file *f, u32 extent, u32 *donor, u64 *slab)
{
	(void)f;
	(void)extent;
	(void)donor;
	(void)slab;
	return false;
}

bool hostd_slab_losing(struct hostd_file *f)
{
	(void)f;
	return false;
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct hostd h = { .gc = -1 };
	static struct hostd_file f = { .fd = -1, .path = (char *)"file" };
	static int file = -1, other, reads;
	struct dcm_gc_say s = { .kind = DCM_GC_SAY_HELLO,
				.value = DCM_GC_SAY_VERSION };
	struct pollfd p[1 + HOSTD_HELLO_MAX] = { { .fd = -1 } };
	const uint8_t *end = data + size;
	int pair[2], fds[4];

	if (file < 0) {
		char path[32];
		struct stat st;

		dcm_log_setup(0, -1);
		file = memfd_create("file", 0);
		other = memfd_create("other", 0);
		must(!ftruncate(file, (off_t)PAGES * 4096) &&
		     !fstat(file, &st));
		snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
		reads = open(path, O_RDONLY);
		f.dev = st.st_dev;
		f.ino = st.st_ino;
		f.info.pages = PAGES;
		f.info.extent_pages = 512;
		f.ended = eventfd(0, EFD_NONBLOCK);
		pthread_mutex_init(&f.lock, NULL);
		h.files = &f;
	}
	if (!size)
		return 0;
	fds[0] = file;
	fds[1] = other;
	fds[2] = reads;
	fds[3] = -1;
	must(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair));
	/* mostly the right one */
	s.value += *data >> 5 == 7;
	must(!dcm_gc_say(pair[0], &s, NULL, 0, fds[*data & 4 ? *data & 3 : 0]));
	data++;
	h.hello[0] = (struct hostd_hello){ pair[1], hostd_now_ns() };
	h.nr_hello = 1;
	p[1] = (struct pollfd){ .fd = pair[1], .revents = POLLIN };
	hostd_gc_heard(&h, p, 2);
	must(!h.nr_hello);
	while (end - data >= 2) {
		size_t n = data[0] | (size_t)data[1] << 8;

		data += 2;
		if (n > (size_t)(end - data))
			n = (size_t)(end - data);
		if (n && !tell(pair[0], data, n))
			break;
		data += n;
		drain(pair[0]);
	}
	/* All that was said is heard before the end is. */
	shutdown(pair[0], SHUT_WR);
	if (f.gc) {
		struct pollfd gone = { .fd = f.ended, .events = POLLIN };
		eventfd_t n;

		while (poll(&gone, 1, 1) != 1)
			drain(pair[0]);
		eventfd_read(f.ended, &n);
		hostd_gc_reap(&h);
		must(!f.gc);
	}
	close(pair[0]);
	return 0;
}

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * vgc_check.c - /dev/vgcN as processes use it, and as they should not
 *
 *	vgc_check basic DEV		what a runtime does, once
 *	vgc_check wrong DEV		every wrong call by itself
 *	vgc_check loop DEV		spaces, for ever; made to be killed
 *	vgc_check fuzz DEV SEED TURNS	nonsense, from several threads
 *	vgc_check gone DEV		uses its space until the device goes
 *	vgc_check hold DEV		has a space, and what is in it, until SIGTERM
 *	vgc_check whole DEV		the whole window is free, and all zero
 *
 * Runs in a guest, linked statically; 0 and "ok", or 1 and what was wrong.
 */
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "vgc_check.h"

static const char *device;

int dev_open(void)
{
	int fd = open(device, O_RDWR | O_CLOEXEC);

	EXPECT(fd >= 0);
	return fd;
}

struct vgc_create space(uint64_t bytes)
{
	struct vgc_create c = {
		.space = {
			.bytes = bytes,
			.region_bytes = REGION,
			.address = ADDRESS,
			.ref_bytes = 8,
			.type_bytes = 4,
			.type_mask = 0xffff,
		},
	};

	return c;
}

/* Others' spaces go some time after their processes. */
int create(int fd, uint64_t bytes)
{
	struct vgc_create c = space(bytes);
	int i, rc;

	for (i = 0; i < 3000; i++) {
		rc = ioctl(fd, VGC_IOC_CREATE, &c);
		if (!rc || errno != ENOSPC)
			return rc;
		usleep(10000);
	}
	return rc;
}

char *map(int fd, uint64_t bytes)
{
	char *m = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	EXPECT(m != MAP_FAILED);
	return m;
}

struct cancel cancel(void)
{
	struct cancel q = { .r = { .command = VIRTIO_GC_CANCEL } };

	return q;
}

int submit(int fd, const void *request, uint32_t bytes, void *answer,
		  uint32_t room, uint64_t cookie)
{
	struct vgc_submit s = {
		.request = (uintptr_t)request,
		.answer = (uintptr_t)answer,
		.request_bytes = bytes,
		.answer_room = room,
		.cookie = cookie,
	};

	return ioctl(fd, VGC_IOC_SUBMIT, &s);
}

struct vgc_reap reap(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	struct vgc_reap r;

	EXPECT(poll(&p, 1, 30000) == 1 && p.revents & POLLIN);
	EXPECT(!ioctl(fd, VGC_IOC_REAP, &r));
	return r;
}

/* ---- what a runtime does ---- */

static void basic(void)
{
	struct virtio_gc_done d[8];
	struct vgc_info info;
	struct cancel q = cancel();
	struct vgc_reap r;
	uint64_t seen = 0, at;
	int a = dev_open(), b = dev_open(), i;
	char *m, *n;

	EXPECT(!ioctl(a, VGC_IOC_INFO, &info));
	EXPECT(info.window_bytes >= 2 * BYTES && info.donors > 0);
	EXPECT(info.region_bytes_min <= REGION && info.commands_max >= 8);
	EXPECT(!create(a, BYTES) && !create(b, BYTES));
	m = map(a, BYTES);
	n = map(b, BYTES);
	for (at = 0; at < BYTES; at += 4096) {
		EXPECT(!*(uint64_t *)(m + at) && !*(uint64_t *)(n + at));
		*(uint64_t *)(m + at) = at + 1;
		*(uint64_t *)(n + at) = ~at;
	}
	for (at = 0; at < BYTES; at += 4096) {
		EXPECT(*(uint64_t *)(m + at) == at + 1);
		EXPECT(*(uint64_t *)(n + at) == ~at);
	}
	/* The kernel's own accesses. */
	i = open("/dev/zero", O_RDONLY);
	EXPECT(read(i, m, 8192) == 8192 && !m[0] && !m[8191]);
	close(i);

	memset(d, 0xff, sizeof(d));
	for (i = 0; i < 8; i++)
		EXPECT(!submit(a, &q, sizeof(q), &d[i], sizeof(d[i]), 100 + i));
	for (i = 0; i < 8; i++) {
		r = reap(a);
		EXPECT(r.cookie >= 100 && r.cookie < 108 &&
		      r.answer_bytes == sizeof(d[0]));
		seen |= 1 << (r.cookie - 100);
		EXPECT(d[r.cookie - 100].status == VIRTIO_GC_OK);
	}
	EXPECT(seen == 0xff);
	/* A command of a feature that is not there. */
	q.r.command = VIRTIO_GC_TRACE_FINISH;
	EXPECT(!submit(a, &q, sizeof(q.r), &d[0], sizeof(d[0]), 1));
	reap(a);
	EXPECT(d[0].status == VIRTIO_GC_UNSUPPORTED ||
	      d[0].status == VIRTIO_GC_NO_TRACE);

	/* The space lives as long as its mapping. */
	close(a);
	EXPECT(*(uint64_t *)(m + BYTES - 4096) == BYTES - 4096 + 1);
	munmap(m, BYTES);
	close(b);
	munmap(n, BYTES);
}

static void whole(void)
{
	struct vgc_info info;
	int fd = dev_open();
	uint64_t at;
	char *m;

	EXPECT(!ioctl(fd, VGC_IOC_INFO, &info));
	EXPECT(!create(fd, info.window_bytes));
	m = map(fd, info.window_bytes);
	/* nothing of another's, nor by its commands [VGC-G-4] [VGC-D-17] */
	for (at = 0; at < info.window_bytes; at += 4096)
		EXPECT(!*(uint64_t *)(m + at));
}

/* ---- for ever ---- */

static void loop(void)
{
	struct cancel q = cancel();
	struct virtio_gc_done d;
	uint64_t at;
	int i, fd;
	char *m;

	for (;;) {
		fd = dev_open();
		EXPECT(!create(fd, BYTES));
		m = map(fd, BYTES);
		for (at = 0; at < BYTES; at += 4096) {
			EXPECT(!*(uint64_t *)(m + at));
			*(uint64_t *)(m + at) = at + 1;
		}
		for (i = 0; i < 16; i++)
			EXPECT(!submit(fd, &q, sizeof(q), &d, sizeof(d), i));
		if (fork() == 0)
			_exit(0);
		wait(NULL);
		munmap(m, BYTES);
		close(fd);
	}
}

static sigjmp_buf out;

static void on_bus(int sig)
{
	(void)sig;
	siglongjmp(out, 1);
}

static void gone(void)
{
	struct cancel q = cancel();
	struct virtio_gc_done d;
	struct pollfd p = { .events = 0 };
	struct vgc_info info;
	struct vgc_reap r;
	volatile char *m;
	int fd = dev_open(), left;

	EXPECT(!create(fd, BYTES));
	m = map(fd, BYTES);
	signal(SIGBUS, on_bus);
	printf("up\n");
	fflush(stdout);
	if (!sigsetjmp(out, 1))
		for (;;) {
			m[(unsigned int)rand() % BYTES]++;
			/* Some answers stay, some requests are on their way. */
			submit(fd, &q, sizeof(q), &d, sizeof(d), 1);
			if (rand() % 3)
				ioctl(fd, VGC_IOC_REAP, &r);
		}
	p.fd = fd;
	EXPECT(poll(&p, 1, 0) == 1 && p.revents & POLLHUP);
	FAILS(ioctl(fd, VGC_IOC_INFO, &info), ENODEV);
	FAILS(submit(fd, &q, sizeof(q), &d, sizeof(d), 1), ENODEV);
	/* Earlier answers can still be read, and then there are none. */
	for (left = 0; left < 1000; left++)
		if (ioctl(fd, VGC_IOC_REAP, &r) && errno == ENODEV)
			break;
	EXPECT(left < 1000);
	munmap((void *)m, BYTES);
	close(fd);
}

static void hold(void)
{
	int fd = dev_open(), sig;
	sigset_t term;
	uint64_t at;
	char *m;

	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	sigprocmask(SIG_BLOCK, &term, NULL);
	EXPECT(!create(fd, BYTES));
	m = map(fd, BYTES);
	for (at = 0; at < BYTES; at += 4096)
		*(uint64_t *)(m + at) = at + 1;
	printf("up\n");
	fflush(stdout);
	EXPECT(!sigwait(&term, &sig));
	for (at = 0; at < BYTES; at += 4096)
		EXPECT(*(uint64_t *)(m + at) == at + 1);
}

int main(int argc, char **argv)
{
	EXPECT(argc >= 3);
	device = argv[2];
	if (!strcmp(argv[1], "basic"))
		basic();
	else if (!strcmp(argv[1], "wrong"))
		wrong();
	else if (!strcmp(argv[1], "loop"))
		loop();
	else if (!strcmp(argv[1], "gone"))
		gone();
	else if (!strcmp(argv[1], "hold"))
		hold();
	else if (!strcmp(argv[1], "whole"))
		whole();
	else if (!strcmp(argv[1], "fuzz") && argc == 5)
		fuzz((unsigned int)strtoul(argv[3], NULL, 10),
		     strtoul(argv[4], NULL, 10));
	else
		EXPECT(!"a mode");
	printf("ok\n");
	return 0;
}

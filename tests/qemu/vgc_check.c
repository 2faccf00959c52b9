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
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "vgc.h"
#include "../framework/expect.h"

#define REGION	(64ul << 10)
#define BYTES	(4ul << 20)
#define ADDRESS	0x200000000000ul

#define FAILS(call, why) EXPECT((call) < 0 && errno == (why))

static const char *device;

static int dev_open(void)
{
	int fd = open(device, O_RDWR | O_CLOEXEC);

	EXPECT(fd >= 0);
	return fd;
}

static struct vgc_create space(uint64_t bytes)
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
static int create(int fd, uint64_t bytes)
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

static char *map(int fd, uint64_t bytes)
{
	char *m = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	EXPECT(m != MAP_FAILED);
	return m;
}

struct cancel {
	struct virtio_gc_req r;
	struct virtio_gc_cancel c;
};

static struct cancel cancel(void)
{
	struct cancel q = { .r = { .command = VIRTIO_GC_CANCEL } };

	return q;
}

static int submit(int fd, const void *request, uint32_t bytes, void *answer,
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

static struct vgc_reap reap(int fd)
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

/* ---- wrong calls ---- */

static void wrong_create(void)
{
	int fd = dev_open();
	struct vgc_create c;

#define WRONG(change)                                          \
	do {                                                   \
		c = space(BYTES);                              \
		change;                                        \
		FAILS(ioctl(fd, VGC_IOC_CREATE, &c), EINVAL);  \
	} while (0)
	WRONG(c.flags = 1);
	WRONG(c.reserved = 1);
	WRONG(c.space.window = REGION);
	WRONG(c.space.bytes = 0);
	WRONG(c.space.bytes = BYTES + 4096);
	WRONG(c.space.bytes = -REGION);
	WRONG(c.space.region_bytes = 0);
	WRONG(c.space.region_bytes = 4096);
	WRONG(c.space.region_bytes = 3 * REGION);
	WRONG(c.space.region_bytes = 1ul << 63);
	WRONG(c.space.ref_bytes = 3);
	WRONG(c.space.type_mask = 0);
	WRONG(c.space.address = ADDRESS + 8);
#undef WRONG
	FAILS(ioctl(fd, VGC_IOC_CREATE, NULL), EFAULT);
	FAILS(ioctl(fd, VGC_IOC_CREATE, (void *)-4096l), EFAULT);
	/* None of them has left anything. */
	EXPECT(!create(fd, BYTES));
	c = space(BYTES);
	FAILS(ioctl(fd, VGC_IOC_CREATE, &c), EEXIST);
	close(fd);
}

static void wrong_submit(int fd, const struct vgc_info *info)
{
	struct cancel q = cancel();
	struct virtio_gc_done d;
	struct vgc_submit s;
	uint32_t i;
	char *none;

	q.r.command = VIRTIO_GC_SPACE_CREATE;
	/* which space it is the driver says [VGC-G-3] */
	FAILS(submit(fd, &q, sizeof(q), &d, sizeof(d), 0), EPERM);
	q.r.command = VIRTIO_GC_SPACE_DESTROY;
	FAILS(submit(fd, &q, sizeof(q.r), &d, sizeof(d), 0), EPERM);
	q = cancel();
	q.r.space = 1;
	FAILS(submit(fd, &q, sizeof(q), &d, sizeof(d), 0), EINVAL);
	q = cancel();
	FAILS(submit(fd, &q, sizeof(q.r) - 1, &d, sizeof(d), 0), EINVAL);
	FAILS(submit(fd, &q, info->request_max + 1, &d, sizeof(d), 0), EINVAL);
	FAILS(submit(fd, &q, sizeof(q), &d, sizeof(d) - 1, 0), EINVAL);
	FAILS(submit(fd, &q, sizeof(q), &d, info->response_max + 1, 0), EINVAL);
	FAILS(submit(fd, NULL, sizeof(q), &d, sizeof(d), 0), EFAULT);
	FAILS(submit(fd, (void *)-4096l, 4096, &d, sizeof(d), 0), EFAULT);
	memset(&s, 0, sizeof(s));
	s.flags = 1;
	FAILS(ioctl(fd, VGC_IOC_SUBMIT, &s), EINVAL);
	FAILS(ioctl(fd, VGC_IOC_SUBMIT, NULL), EFAULT);
	FAILS(ioctl(fd, VGC_IOC_REAP, &s), EAGAIN);
	FAILS(ioctl(fd, _IO('V', 0x7f), NULL), ENOTTY);

	/* As many as there may be, and none more before one is reaped. */
	for (i = 0; i < info->commands_max; i++)
		EXPECT(!submit(fd, &q, sizeof(q), &d, sizeof(d), i));
	FAILS(submit(fd, &q, sizeof(q), &d, sizeof(d), i), EAGAIN);
	for (i = 0; i < info->commands_max; i++)
		reap(fd);
	/* An answer nobody can take is gone, its place is not. */
	none = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (i = 0; i < info->commands_max + 2; i++) {
		struct pollfd p = { .fd = fd, .events = POLLIN };

		EXPECT(!submit(fd, &q, sizeof(q), none, sizeof(d), i));
		EXPECT(poll(&p, 1, 30000) == 1);
		FAILS(ioctl(fd, VGC_IOC_REAP, &s), EFAULT);
	}
	/* The largest there may be, which the device refuses. */
	none = mmap(NULL, info->request_max, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memcpy(none, &q, sizeof(q));
	EXPECT(!submit(fd, none, info->request_max, &d, sizeof(d), 5));
	reap(fd);
	EXPECT(d.status == VIRTIO_GC_INVALID);
}

/* The kernel would log one that is not caught. */
static void on_segv(int sig)
{
	(void)sig;
	_exit(77);
}

static void wrong_map(int fd)
{
	long page = 4096;
	pid_t child;
	int status;
	char *m;

#define NO_MAP(bytes, flags, at) \
	EXPECT(mmap(NULL, bytes, PROT_READ, flags, fd, at) == MAP_FAILED)
	NO_MAP(BYTES + page, MAP_SHARED, 0);
	NO_MAP(BYTES, MAP_SHARED, page);
	NO_MAP(page, MAP_SHARED, (long)BYTES);
	NO_MAP(page, MAP_SHARED, -page);
	NO_MAP(page, MAP_PRIVATE, 0);
#undef NO_MAP
	m = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		 (long)BYTES - page);
	EXPECT(m != MAP_FAILED);
	m[0] = 1;
	EXPECT(mremap(m, page, 2 * page, MREMAP_MAYMOVE) == MAP_FAILED);
	/* A child has the file, and not the memory. */
	child = fork();
	if (!child) {
		signal(SIGSEGV, on_segv);
		_exit(*(volatile char *)m);
	}
	EXPECT(waitpid(child, &status, 0) == child);
	EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 77);
	munmap(m, page);
}

static void wrong(void)
{
	struct virtio_gc_done d;
	struct cancel q = cancel();
	struct vgc_info info;
	struct vgc_reap r;
	int fd = dev_open();

	FAILS(ioctl(fd, VGC_IOC_INFO, NULL), EFAULT);
	EXPECT(!ioctl(fd, VGC_IOC_INFO, &info));
	FAILS(submit(fd, &q, sizeof(q), &d, sizeof(d), 0), ENXIO);
	FAILS(ioctl(fd, VGC_IOC_REAP, &r), EAGAIN);
	EXPECT(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED);
	EXPECT(!create(fd, BYTES));
	wrong_submit(fd, &info);
	wrong_map(fd);
	close(fd);
	wrong_create();
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
	/* What was answered before is still there, and then nothing is. */
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

/* ---- nonsense ---- */

#define THREADS 3

static int fds[THREADS];	/* each replaced by any */
static unsigned long turns;

static uint64_t wild(unsigned int *seed)
{
	static const uint64_t odd[] = {
		0,	   1,
		8,	   4095,
		4096,	   REGION,
		BYTES,	   1ul << 31,
		1ul << 32, 1ul << 47,
		1ul << 63, -4096ul,
		-1ul,	   0x7fffffffffffffff,
	};

	if (rand_r(seed) % 3)
		return odd[(unsigned int)rand_r(seed) %
			   (sizeof(odd) / sizeof(odd[0]))];
	return (uint64_t)rand_r(seed) << 32 ^ (uint64_t)rand_r(seed) << 8;
}

/* Some bytes of something that would be right are not. */
static void spoil(void *p, size_t bytes, unsigned int *seed)
{
	int n = rand_r(seed) % 4;

	while (n--) {
		uint64_t v = wild(seed);
		size_t at = (size_t)rand_r(seed) % bytes;

		memcpy((char *)p + at, &v, bytes - at < 8 ? bytes - at : 8);
	}
}

struct wild_request {
	struct virtio_gc_req r;
	uint8_t more[480];
};

/*
 * As long as its command says, with numbers that may be something: regions,
 * places in the space, epochs. Those are what donors get to see.
 */
static uint32_t shaped(struct wild_request *q, unsigned int *seed)
{
	static const struct {
		uint16_t command, body, entry;
	} shapes[] = {
		{ VIRTIO_GC_SPACE_DONORS, sizeof(struct virtio_gc_range), 0 },
		{ VIRTIO_GC_TYPES_ADD, sizeof(struct virtio_gc_types),
		  sizeof(struct virtio_gc_type) },
		{ VIRTIO_GC_CLEAN, 0, sizeof(struct virtio_gc_region) },
		{ VIRTIO_GC_TRACE_START, 0, sizeof(struct virtio_gc_region) },
		{ VIRTIO_GC_TRACE_START, 0, sizeof(struct virtio_gc_region) },
		{ VIRTIO_GC_TRACE_ROOTS, 0, 8 },
		{ VIRTIO_GC_TRACE_MET, sizeof(struct virtio_gc_met), 0 },
		{ VIRTIO_GC_TRACE_FINISH, 0, 0 },
		{ VIRTIO_GC_TRACE_FINISH, 0, 0 },
		{ VIRTIO_GC_TRACE_RESULTS, sizeof(struct virtio_gc_range), 0 },
		{ VIRTIO_GC_EVACUATE, 0, sizeof(struct virtio_gc_move) },
		{ VIRTIO_GC_UPDATE, 0, sizeof(struct virtio_gc_region) },
		{ VIRTIO_GC_FORWARD, 0, 8 },
		{ VIRTIO_GC_RELEASE, 0, sizeof(struct virtio_gc_region) },
		{ VIRTIO_GC_COMPACT, sizeof(struct virtio_gc_area),
		  sizeof(struct virtio_gc_region) },
		{ VIRTIO_GC_HINT, sizeof(struct virtio_gc_hint),
		  sizeof(struct virtio_gc_extent) },
		{ VIRTIO_GC_CANCEL, sizeof(struct virtio_gc_cancel), 0 },
	};
	unsigned int k = (unsigned int)rand_r(seed) %
			 (sizeof(shapes) / sizeof(shapes[0]));
	uint32_t i, bytes;

	memset(q, 0, sizeof(*q));
	q->r.command = shapes[k].command;
	q->r.flags = !(rand_r(seed) % 4);
	q->r.count = shapes[k].entry ? (uint32_t)rand_r(seed) % 4 : 0;
	q->r.epoch = q->r.command < VIRTIO_GC_TRACE_START ||
				     q->r.command > VIRTIO_GC_COMPACT ?
			     0 :
			     1 + (uint32_t)rand_r(seed) % 3;
	q->r.deadline_ms = 1000;
	bytes = shapes[k].body + q->r.count * shapes[k].entry;
	for (i = 0; i < bytes; i += 4) {
		uint32_t v = 0;

		switch (rand_r(seed) % 4) {
		case 0:
			v = (uint32_t)rand_r(seed) % 4;
			break;
		case 1:
			v = (uint32_t)(rand_r(seed) % 4 * REGION);
			break;
		}
		memcpy(q->more + i, &v, 4);
	}
	return sizeof(q->r) + bytes;
}

static void fuzz_submit(int fd, char *area, unsigned int *seed)
{
	struct wild_request *q = (void *)area;
	struct vgc_submit s = {
		.request = (uintptr_t)q,
		.answer = (uintptr_t)area + 4096,
		.request_bytes = sizeof(q->r) + (uint32_t)rand_r(seed) % 480,
		.answer_room = 32 + (uint32_t)rand_r(seed) % 4000,
		.cookie = wild(seed),
	};
	size_t i;

	memset(q, 0, sizeof(*q));
	q->r.command = (uint16_t)(rand_r(seed) % 70);
	q->r.count = (uint32_t)rand_r(seed) % 8;
	for (i = 0; i < sizeof(q->more); i += 8) {
		uint64_t v = rand_r(seed) % 2 ? wild(seed) : 0;

		memcpy(q->more + i, &v, 8);
	}
	spoil(q, sizeof(*q), seed);
	if (rand_r(seed) % 2)
		s.request_bytes = shaped(q, seed);
	else
		spoil(&s, sizeof(s), seed);
	/* Whatever it became: not our own memory. */
	if (s.answer != (uintptr_t)area + 4096 && rand_r(seed) % 2)
		s.answer = 0;
	if (s.answer - (uintptr_t)area > 65536)
		s.answer &= 4095;
	ioctl(fd, VGC_IOC_SUBMIT, &s);
}

static void fuzz_map(int fd, unsigned int *seed)
{
	uint64_t bytes = (1 + (uint64_t)rand_r(seed) % 64) * 4096;
	char *m = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       rand_r(seed) % 8 ? MAP_SHARED : MAP_PRIVATE, fd,
		       (long)(wild(seed) & ~4095ul));

	if (m == MAP_FAILED)
		return;
	m[(uint64_t)rand_r(seed) % bytes] = 1;
	mprotect(m, 4096, PROT_READ);
	madvise(m, bytes, rand_r(seed) % 30);
	/* In two, and neither again: another thread may be there by then. */
	if (bytes > 4096)
		munmap(m + 4096, bytes - 4096);
	munmap(m, 4096);
}

static void *fuzzer(void *arg)
{
	unsigned int seed = (unsigned int)(uintptr_t)arg;
	char *area = mmap(NULL, 65536, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned long i;

	for (i = 0; i < turns; i++) {
		int k = rand_r(&seed) % THREADS;
		int fd = __atomic_load_n(&fds[k], __ATOMIC_RELAXED);
		struct vgc_create c;

		switch (rand_r(&seed) % 12) {
		case 0:
			c = space((1 + (uint64_t)rand_r(&seed) % 16) * REGION);
			spoil(&c, sizeof(c), &seed);
			ioctl(fd, VGC_IOC_CREATE, &c);
			break;
		case 1:
			ioctl(fd, VGC_IOC_INFO, area);
			break;
		case 2:
			ioctl(fd, (unsigned long)wild(&seed), area);
			break;
		case 3: {
			int new = dev_open();

			fd = __atomic_exchange_n(&fds[k], new,
						 __ATOMIC_RELAXED);
			close(fd);
			break;
		}
		case 4:
		case 5:
			fuzz_map(fd, &seed);
			break;
		case 6:
		case 7:
		case 8:
			ioctl(fd, VGC_IOC_REAP,
			      rand_r(&seed) % 16 ? area + 60000 : NULL);
			break;
		default:
			fuzz_submit(fd, area, &seed);
		}
	}
	return NULL;
}

static void fuzz(unsigned int seed)
{
	pthread_t t[THREADS];
	uintptr_t i;

	for (i = 0; i < THREADS; i++)
		fds[i] = dev_open();
	for (i = 0; i < THREADS; i++)
		EXPECT(!pthread_create(&t[i], NULL, fuzzer,
				      (void *)(seed * THREADS + i)));
	for (i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
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
	else if (!strcmp(argv[1], "fuzz") && argc == 5) {
		turns = strtoul(argv[4], NULL, 10);
		fuzz((unsigned int)strtoul(argv[3], NULL, 10));
	} else
		EXPECT(!"a mode");
	printf("ok\n");
	return 0;
}

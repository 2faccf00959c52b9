// SPDX-License-Identifier: GPL-2.0-or-later
/* vgc_fuzz.c - calls of /dev/vgcN with random arguments, from several threads */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "vgc_check.h"

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
			v = (uint32_t)rand_r(seed) % 5;
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

void fuzz(unsigned int seed, unsigned long each)
{
	pthread_t t[THREADS];
	uintptr_t i;

	turns = each;
	for (i = 0; i < THREADS; i++)
		fds[i] = dev_open();
	for (i = 0; i < THREADS; i++)
		EXPECT(!pthread_create(&t[i], NULL, fuzzer,
				      (void *)(seed * THREADS + i)));
	for (i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
}

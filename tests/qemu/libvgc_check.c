// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * libvgc_check.c - libvgc as a runtime uses it, on a real device
 *
 *	libvgc_check [DEV [over]]
 *
 * With "over", only heaps over reserved ranges: a device that has one space at a
 * time (libdcm's) can do no more. Runs in a guest, linked statically; 0 and "ok", or 1 and what was wrong.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "libvgc.h"
#include "../framework/expect.h"

#define BYTES	(8ul << 20)
#define ADDRESS	0x300000000000ul
#define THREADS	6
#define TURNS	200

static const char *device;

static struct virtio_gc_space space(void)
{
	struct virtio_gc_space s = {
		.bytes = BYTES,
		.region_bytes = 64 << 10,
		.address = ADDRESS,
		.ref_bytes = 4,
		.ref_shift = 3,
		.ref_base = ADDRESS,
		.type_bytes = 4,
		.type_mask = 0xffffff,
	};

	return s;
}

static struct vgc_call cancel(const struct virtio_gc_cancel *c,
			      struct virtio_gc_done *d)
{
	struct vgc_call call = {
		.command = VIRTIO_GC_CANCEL,
		.arg = c,
		.arg_bytes = sizeof(*c),
		.answer = d,
		.answer_room = sizeof(*d),
	};

	memset(d, 0xff, sizeof(*d));
	return call;
}

/* Many wait at once, each for its own; half of them for two in any order. */
static void *caller(void *arg)
{
	struct virtio_gc_cancel none = { .tag = 12345 };
	struct virtio_gc_done d[2];
	struct vgc_call c[2];
	struct vgc *v = arg;
	int i, k, rc;

	for (i = 0; i < TURNS; i++) {
		for (k = 0; k < 2; k++) {
			c[k] = cancel(&none, &d[k]);
			do
				rc = vgc_start(v, &c[k]);
			while (rc == -EAGAIN);
			EXPECT(!rc);
		}
		for (k = i & 1; k >= 0 && k < 2; k += i & 1 ? -1 : 1) {
			EXPECT(!vgc_wait(v, &c[k], i % 3 ? -1 : 30000));
			EXPECT(c[k].answer_bytes == sizeof(d[k]));
			EXPECT(d[k].status == VIRTIO_GC_OK && !d[k].count);
		}
		/* A second time there is nothing to wait for. */
		EXPECT(vgc_wait(v, &c[0], 0) == -EINVAL);
	}
	return NULL;
}

static void wrong(struct vgc *v)
{
	const struct vgc_info *info = vgc_info(v);
	char err[200], *big = calloc(1, info->request_max);
	struct virtio_gc_cancel none = { 0 };
	struct virtio_gc_done d;
	struct vgc_call c;

	EXPECT(!vgc_open("/dev/nothing", err, sizeof(err)) && errno == ENOENT);
	EXPECT(strstr(err, "/dev/nothing: no such device"));
	EXPECT(!vgc_open("/dev/null", err, sizeof(err)));
	EXPECT(strstr(err, "not a virtio-gc device"));

	c = cancel(&none, &d);
	c.answer_room = sizeof(d) - 1;
	EXPECT(vgc_do(v, &c) == -EMSGSIZE);
	c = cancel(&none, &d);
	c.entries = big;
	c.entry_bytes = 1u << 31;
	c.count = 1u << 31;
	EXPECT(vgc_do(v, &c) == -EMSGSIZE);
	c = cancel(&none, &d);
	c.command = VIRTIO_GC_SPACE_DESTROY;
	EXPECT(vgc_do(v, &c) == -EPERM);
	/* The device's answer comes back as a status. */
	c = cancel(&none, &d);
	c.entries = big;
	c.entry_bytes = 8;
	c.count = 3;
	EXPECT(!vgc_do(v, &c) && d.status == VIRTIO_GC_INVALID);
	c = cancel(&none, &d);
	c.command = 999;
	EXPECT(!vgc_do(v, &c) && d.status == VIRTIO_GC_UNSUPPORTED);
	free(big);
}

/* Over a range that is reserved: only it changes, and it is given back. */
static void over(void)
{
	struct virtio_gc_space s = space();
	uint64_t unit, bytes;
	char err[200], *range, *heap;
	struct vgc *v;

	v = vgc_open(device, err, sizeof(err));
	EXPECT(v);
	unit = vgc_info(v)->region_bytes_max;
	bytes = (BYTES + unit - 1) / unit * unit;
	/* a page before and one behind belong to somebody else */
	range = mmap((void *)(ADDRESS - 4096), bytes + 8192, PROT_NONE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE |
			     MAP_FIXED_NOREPLACE,
		     -1, 0);
	EXPECT(range == (char *)(ADDRESS - 4096));
	EXPECT(!mprotect(range, 4096, PROT_READ | PROT_WRITE));
	EXPECT(!mprotect(range + 4096 + bytes, 4096, PROT_READ | PROT_WRITE));
	range[4095] = 1;
	range[4096 + bytes] = 2;

	s.bytes = bytes - 4096;
	EXPECT(!vgc_create_over(v, &s) && errno == EINVAL);
	s.bytes = 0;
	EXPECT(!vgc_create_over(v, &s) && errno == EINVAL);
	s.bytes = bytes;
	s.address = ADDRESS + 8;
	EXPECT(!vgc_create_over(v, &s) && errno == EINVAL);
	s.address = -unit;
	s.bytes = 2 * unit;
	EXPECT(!vgc_create_over(v, &s) && errno == EINVAL);
	s.address = ADDRESS;
	s.bytes = bytes;
	s.ref_bytes = 3;
	EXPECT(!vgc_create_over(v, &s) && errno == EINVAL);
	/* the addresses are still reserved: a mapping that replaces none fails */
	EXPECT(mmap((void *)ADDRESS, bytes, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE |
			    MAP_FIXED_NOREPLACE,
		    -1, 0) == MAP_FAILED &&
	       errno == EEXIST);
	s.ref_bytes = 4;
	heap = vgc_create_over(v, &s);
	EXPECT(heap == (char *)ADDRESS);
	EXPECT(!vgc_create_over(v, &s) && errno == EEXIST);
	EXPECT(!heap[0] && !heap[bytes - 1]);
	heap[0] = 3;
	heap[bytes - 1] = 4;
	EXPECT(heap[0] == 3 && heap[bytes - 1] == 4);
	vgc_close(v);
	EXPECT(range[4095] == 1 && range[4096 + bytes] == 2);
	/* reserved without content again */
	EXPECT(!mprotect(heap, bytes, PROT_READ));
	EXPECT(!heap[0] && !heap[bytes - 1]);
	EXPECT(!munmap(range, bytes + 8192));
}

int main(int argc, char **argv)
{
	struct virtio_gc_space s = space();
	struct vgc *v, *w;
	pthread_t t[THREADS];
	char err[200], *heap;
	size_t at;
	void *in_the_way;
	int i;

	device = argc > 1 ? argv[1] : NULL;
	over();
	if (argc > 2) {
		printf("ok\n");
		return 0;
	}
	v = vgc_open(device, err, sizeof(err));
	if (!v)
		printf("%s\n", err);
	EXPECT(v);

	/* Not over what is there; and after that the space can be had. */
	in_the_way = mmap((void *)(ADDRESS + BYTES / 2), 4096, PROT_READ,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	EXPECT(in_the_way != MAP_FAILED);
	EXPECT(!vgc_create(v, &s) && errno == EEXIST);
	munmap(in_the_way, 4096);
	s.ref_bytes = 3;
	EXPECT(!vgc_create(v, &s) && errno == EINVAL);
	s.ref_bytes = 4;
	heap = vgc_create(v, &s);
	EXPECT(heap == (char *)ADDRESS);
	EXPECT(!vgc_create(v, &s));
	for (at = 0; at < BYTES; at += 4096) {
		EXPECT(!heap[at]);
		heap[at] = (char)(at >> 12) | 1;
	}

	/* Another space, elsewhere, of the same process. */
	w = vgc_open(device, err, sizeof(err));
	s.address = ADDRESS + 4 * BYTES;
	EXPECT(w && vgc_create(w, &s) == (void *)s.address);
	EXPECT(!*(char *)s.address);
	*(char *)s.address = 1;

	wrong(v);
	for (i = 0; i < THREADS; i++)
		EXPECT(!pthread_create(&t[i], NULL, caller, i % 3 ? v : w));
	for (i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	for (at = 0; at < BYTES; at += 4096)
		EXPECT(heap[at] == (char)((char)(at >> 12) | 1));
	vgc_close(w);
	vgc_close(v);
	printf("ok\n");
	return 0;
}

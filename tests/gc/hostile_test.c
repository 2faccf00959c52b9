// SPDX-License-Identifier: GPL-2.0-or-later
/* hostile_test.c - heaps whose headers and references lie, or that are too large */
#include <endian.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <cmocka.h>

#include "mesh.h"

#define HEAPS	(getenv("GC_HEAPS") ? (u32)atoi(getenv("GC_HEAPS")) : 1500u)
#define REGION	(64ull << 10)
#ifdef __SANITIZE_THREAD__
#define TSAN	1
#else
#define TSAN	0
#endif
#define ADDRESS	(1ull << 32)
#define WALL	(1ull << 20)	/* at both ends of a heap: never accessed */

enum { NODE = 1, REFS, DATA, SELF };

/* One donor, class word at 0, references of 8 bytes that are addresses. */
struct heap {
	struct dcm_gc_space *s;
	u8 *memory;
	u64 bytes;
	u32 regions;
	struct virtio_gc_region *list;
};

static void heap_make(struct heap *h, u32 regions, u64 region_bytes, u8 flags)
{
	struct dcm_gc_layout l = {
		.bytes = regions * region_bytes,
		.region_bytes = region_bytes,
		.address = ADDRESS,
		.ref_bytes = 8,
		.flags = flags,
		.type_bytes = 4,
		.type_mask = 0xffff,
	};
	struct {
		struct virtio_gc_type type[4];
		struct virtio_gc_run run[1];
	} types = {
		.type = {
			{ .id = htole32(NODE), .kind = VIRTIO_GC_FIXED,
			  .bytes = htole32(16), .runs = htole16(1) },
			{ .id = htole32(REFS), .kind = VIRTIO_GC_REFS,
			  .length_bytes = 8, .length_offset = htole32(8),
			  .first = htole32(16) },
			{ .id = htole32(DATA), .kind = VIRTIO_GC_DATA,
			  .length_bytes = 8, .length_offset = htole32(8),
			  .first = htole32(16), .shift = 3 },
			{ .id = htole32(SELF), .kind = VIRTIO_GC_SELF,
			  .length_bytes = 8, .length_offset = htole32(8),
			  .size_bytes = 8, .size_offset = htole32(16),
			  .first = htole32(24), .shift = 3 },
		},
		.run = { { htole32(8), htole32(1) } },
	};
	u8 *wall;
	u32 status;

	h->bytes = l.bytes;
	h->regions = regions;
	/* an access beyond either end is fatal [VGC-D-11] */
	wall = mmap(NULL, h->bytes + 2 * WALL, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(wall != MAP_FAILED);
	h->memory = wall + WALL;
	assert_int_equal(mprotect(h->memory, h->bytes, PROT_READ | PROT_WRITE),
			 0);
	h->s = dcm_gc_space_new(&l, 0, &status);
	assert_non_null(h->s);
	assert_int_equal(dcm_gc_types_add(h->s, &types, sizeof(types), 4, 1),
			 0);
	h->list = calloc(regions, sizeof(*h->list));
	assert_non_null(h->list);
	for (u32 i = 0; i < regions; i++) {
		assert_int_equal(dcm_gc_space_place(h->s, i, 0,
						    h->memory +
							    i * region_bytes,
						    NULL),
			0);
		h->list[i].region = htole32(i);
		h->list[i].top = htole64((i + 1) * region_bytes);
	}
}

static void heap_free(struct heap *h)
{
	dcm_gc_space_free(h->s);
	munmap(h->memory - WALL, h->bytes + 2 * WALL);
	free(h->list);
}

static void put(struct heap *h, u64 at, u64 value)
{
	value = htole64(value);
	memcpy(h->memory + at, &value, 8);
}

static struct dcm_gc_result trace(struct heap *h, u32 epoch, u32 threads,
				  u64 root)
{
	struct dcm_gc_start how = {
		.epoch = epoch,
		.threads = threads,
		.regions = h->list,
		.nr_regions = h->regions,
	};
	struct dcm_gc_flags flags[1];
	struct dcm_gc_quiet quiet = { 0 };
	__le64 address = htole64(ADDRESS + root);

	assert_int_equal(dcm_gc_trace_start(h->s, &how), 0);
	assert_int_equal(dcm_gc_trace_roots(h->s, epoch, &address, 1).status,
			 0);
	do {
		dcm_gc_trace_wait(h->s, 1000000000);
		assert_int_equal(dcm_gc_trace_poll(h->s, epoch, flags), 0);
	} while (!flags->result.status &&
		 !dcm_gc_quiet_round(&quiet, flags, 1));
	return dcm_gc_trace_finish(h->s, epoch);
}

static void expect(struct heap *h, u32 epoch, u64 root, u32 status, u64 at)
{
	struct dcm_gc_result got = trace(h, epoch, 1, root);
	struct virtio_gc_live live;

	assert_int_equal(got.status, status);
	assert_int_equal(got.at, at);
	/* no results of half a trace [VGC-D-29] [VGC-D-34] */
	assert_int_equal(dcm_gc_trace_live(h->s, epoch, 0, &live),
			 status ? VIRTIO_GC_BUSY : 0);
	assert_int_equal(dcm_gc_trace_live(h->s, epoch + 1, 0, &live),
			 VIRTIO_GC_NO_TRACE);
}

static void test_lies(void **state)
{
	struct heap h, outside;

	(void)state;
	heap_make(&h, 4, REGION, 0);
	put(&h, 0, NODE);
	put(&h, 8, ADDRESS + 64);
	put(&h, 64, NODE);
	expect(&h, 1, 0, VIRTIO_GC_OK, VIRTIO_GC_NONE);
	/* an unknown type; nothing at all is type 0 [VGC-D-28] */
	put(&h, 8, ADDRESS + 128);
	expect(&h, 2, 0, VIRTIO_GC_BAD_TYPE, ADDRESS + 128);
	/* out of the space, just so and far away, and crooked [VGC-D-27] */
	put(&h, 8, ADDRESS + 4 * REGION);
	expect(&h, 3, 0, VIRTIO_GC_BAD_REFERENCE, ADDRESS + 4 * REGION);
	put(&h, 8, ADDRESS - 8);
	expect(&h, 4, 0, VIRTIO_GC_BAD_REFERENCE, ADDRESS - 8);
	put(&h, 8, U64_MAX);
	expect(&h, 5, 0, VIRTIO_GC_BAD_REFERENCE, U64_MAX);
	put(&h, 8, ADDRESS + 68);
	expect(&h, 6, 0, VIRTIO_GC_BAD_REFERENCE, ADDRESS + 68);
	/* objects that leave their region, by a little and by all there is */
	put(&h, 8, ADDRESS + REGION - 8);
	put(&h, REGION - 8, NODE);
	/* [VGC-D-28] */
	expect(&h, 7, 0, VIRTIO_GC_BAD_OBJECT, ADDRESS + REGION - 8);
	put(&h, 8, ADDRESS + 1024);
	for (u32 type = REFS; type <= SELF; type++) {
		const u64 lengths[] = { (REGION - 1024 - 16) / 8 + 1,
					1ull << 61, 1ull << 63, U64_MAX };

		put(&h, 1024, type);
		put(&h, 1024 + 16, type == SELF ? 4 : 0);
		for (u32 i = 0; i < 4; i++) {
			put(&h, 1024 + 8, lengths[i]);
			expect(&h, 10 + type * 4 + i, 0, VIRTIO_GC_BAD_OBJECT,
			       ADDRESS + 1024);
		}
		put(&h, 1024 + 8, 1);
		expect(&h, 50 + type, 0, VIRTIO_GC_OK, VIRTIO_GC_NONE);
	}
	/* a size smaller than the object's fields, and larger than the region */
	put(&h, 1024 + 16, 2);
	expect(&h, 60, 0, VIRTIO_GC_BAD_OBJECT, ADDRESS + 1024);
	put(&h, 1024 + 16, 1ull << 61);
	expect(&h, 61, 0, VIRTIO_GC_BAD_OBJECT, ADDRESS + 1024);
	put(&h, 1024 + 16, (REGION - 1024) / 8 + 1);
	expect(&h, 62, 0, VIRTIO_GC_BAD_OBJECT, ADDRESS + 1024);
	heap_free(&h);

	heap_make(&outside, 1, REGION, VIRTIO_GC_SPACE_OUTSIDE);
	put(&outside, 0, NODE);
	put(&outside, 8, 12345);
	expect(&outside, 1, 0, VIRTIO_GC_OK, VIRTIO_GC_NONE);
	heap_free(&outside);
}

/* A batch of roots with a bad one in it: none is taken. */
static void test_bad_roots(void **state)
{
	const u64 bad[] = { ADDRESS - 8, ADDRESS + 4 * REGION, ADDRESS + 4, 1 };
	struct heap h;

	(void)state;
	heap_make(&h, 4, REGION, 0);
	put(&h, 0, NODE);
	for (u32 i = 0; i < 4; i++) {
		__le64 roots[3] = { htole64(ADDRESS), 0, htole64(bad[i]) };
		struct dcm_gc_start how = {
			.epoch = i + 1,
			.threads = 2,
			.regions = h.list,
			.nr_regions = h.regions,
		};
		struct dcm_gc_result got;
		struct virtio_gc_live live;

		assert_int_equal(dcm_gc_trace_start(h.s, &how), 0);
		got = dcm_gc_trace_roots(h.s, i + 1, roots, 3);
		/* [VGC-D-27] */
		assert_int_equal(got.status, VIRTIO_GC_BAD_REFERENCE);
		assert_int_equal(got.at, bad[i]);
		dcm_gc_trace_wait(h.s, 1000000000);
		assert_int_equal(dcm_gc_trace_finish(h.s, i + 1).status, 0);
		assert_int_equal(dcm_gc_trace_live(h.s, i + 1, 0, &live), 0);
		assert_int_equal(live.objects, 0);
	}
	heap_free(&h);
}

static void test_bad_start(void **state)
{
	struct heap h;
	struct virtio_gc_region list[2];
	struct dcm_gc_start good = {
		.epoch = 5,
		.threads = 1,
		.regions = list,
		.nr_regions = 2,
	}, bad;

	(void)state;
	heap_make(&h, 4, REGION, 0);
	memcpy(list, h.list, sizeof(list));
	assert_int_equal(dcm_gc_trace_start(h.s, &good), 0);
	assert_int_equal(dcm_gc_trace_start(h.s, &good), VIRTIO_GC_INVALID);
	bad = good;
	bad.epoch = 0;
	/* [VGC-D-22] */
	assert_int_equal(dcm_gc_trace_start(h.s, &bad), VIRTIO_GC_INVALID);
	bad.epoch = 6;
	bad.flags = VIRTIO_GC_TRACE_CONCURRENT | VIRTIO_GC_TRACE_LOCAL;
	assert_int_equal(dcm_gc_trace_start(h.s, &bad), VIRTIO_GC_INVALID);
	bad.flags = 4;
	assert_int_equal(dcm_gc_trace_start(h.s, &bad), VIRTIO_GC_INVALID);
	bad.flags = 0;
	list[1].region = list[0].region;
	assert_int_equal(dcm_gc_trace_start(h.s, &bad), VIRTIO_GC_INVALID);
	list[1].region = htole32(4);
	assert_int_equal(dcm_gc_trace_start(h.s, &bad), VIRTIO_GC_INVALID);
	list[1].region = htole32(1);
	list[1].top = htole64(2 * REGION + 8);
	assert_int_equal(dcm_gc_trace_start(h.s, &bad), VIRTIO_GC_INVALID);
	list[1].top = htole64(REGION - 8);
	assert_int_equal(dcm_gc_trace_start(h.s, &bad), VIRTIO_GC_INVALID);
	list[1].top = htole64(REGION + 4);
	assert_int_equal(dcm_gc_trace_start(h.s, &bad), VIRTIO_GC_INVALID);
	list[1].top = htole64(REGION);
	assert_int_equal(dcm_gc_trace_start(h.s, &bad), 0);
	heap_free(&h);
}

/* A list of 10^7 objects, and the bound on memory. */
static void test_long_list(void **state)
{
	const u64 region = 16ull << 20, n = 10000000;
	struct virtio_gc_live live;
	u64 objects = 0, stride = 7919;
	struct heap h;

	(void)state;
	heap_make(&h, 10, region, 0);
	/* the next is far away: (i + 1) * stride mod n, all of them once */
	for (u64 i = 0; i < n; i++) {
		u64 at = i * stride % n * 16, to = (i + 1) * stride % n * 16;

		put(&h, at, NODE);
		put(&h, at + 8, i + 1 < n ? ADDRESS + to : 0);
	}
	assert_int_equal(trace(&h, 1, 2, 0).status, 0);
	for (u32 i = 0; i < h.regions; i++) {
		assert_int_equal(dcm_gc_trace_live(h.s, 1, i, &live), 0);
		objects += le64toh(live.objects);
	}
	assert_int_equal(objects, n);
	/* [VGC-D-31] */
	assert_true(dcm_gc_space_memory(h.s) <=
		    h.bytes * 25 / 1000 + (4u << 20));
	heap_free(&h);
}

/*
 * Arrays whose last element is the next array, and all others objects of
 * their own: rings and batches overflow, and nothing is lost.
 */
static void test_wide(void **state)
{
	const u32 arrays = 150, length = 600;
	const u64 region = 1ull << 20;
	struct virtio_gc_live live;
	u64 objects = 0, at = 0;
	struct heap h;

	(void)state;
	for (u32 threads = 1; threads <= 3; threads++) {
		objects = 0;
		at = 0;
		heap_make(&h, 16, region, 0);
		for (u32 i = 0; i < arrays; i++) {
			u64 self = at;

			/* arrays and their elements, in one region */
			if (at % region + 32768 > region)
				self = at = (at / region + 1) * region;
			put(&h, self, REFS);
			put(&h, self + 8, length);
			at += 16 + length * 8;
			for (u32 k = 0; k + 1 < length; k++, at += 16) {
				put(&h, self + 16 + k * 8, ADDRESS + at);
				put(&h, at, NODE);
			}
			if ((at % region) + 32768 > region)
				at = (at / region + 1) * region;
			put(&h, self + 16 + (length - 1) * 8,
			    i + 1 < arrays ? ADDRESS + at : 0);
		}
		assert_int_equal(trace(&h, threads, threads, 0).status, 0);
		for (u32 i = 0; i < h.regions; i++) {
			assert_int_equal(dcm_gc_trace_live(h.s, threads, i,
							   &live),
					 0);
			objects += le64toh(live.objects);
		}
		assert_int_equal(objects, (u64)arrays * length);
		heap_free(&h);
	}
}

/* Anything: traced, moved, updated; some status, in the end. */
static void test_noise(void **state)
{
	u32 statuses[VIRTIO_GC_STATUSES] = { 0 };
	struct mut rng = { .rng = 20261121 };

	(void)state;
	for (u32 i = 0; i < HEAPS; i++) {
		struct virtio_gc_move move = {
			.to = htole32(2),
			.start = htole64(2 * REGION),
			.table = htole64(3 * REGION),
			.table_bytes = htole64(REGION),
		};
		struct virtio_gc_moved moved;
		struct dcm_gc_result got;
		struct heap h;
		u64 updated;

		heap_make(&h, 4, REGION, i & 1);
		for (u64 at = 0; at < h.bytes; at += 8) {
			u64 r = mut_rand(&rng), v = r;

			switch (r >> 32 & 7) {
			case 0:
			case 1:
			case 2:
				v = r & 4;
				v = v ? v : 1 + (r & 3);
				break;
			case 3:
				v = r % 64;
				break;
			case 4:
			case 5:
			case 6:
				v = ADDRESS + r % h.bytes / 8 * 8;
				break;
			}
			put(&h, at, v);
		}
		got = trace(&h, 1, 1 + i % 2, 0);
		statuses[got.status]++;
		if (!got.status) {
			dcm_gc_move(h.s, 1, &move, i & 1, &moved);
			dcm_gc_update(h.s, h.list, h.regions, NULL, &updated);
		}
		heap_free(&h);
	}
	assert_true(statuses[VIRTIO_GC_BAD_TYPE]);
	assert_true(statuses[VIRTIO_GC_BAD_OBJECT]);
	printf("# noise: ok %u, type %u, object %u, reference %u\n",
	       statuses[VIRTIO_GC_OK], statuses[VIRTIO_GC_BAD_TYPE],
	       statuses[VIRTIO_GC_BAD_OBJECT],
	       statuses[VIRTIO_GC_BAD_REFERENCE]);
}

struct flipper {
	struct heap *h;
	u32 stop;
};

static void *flip(void *arg)
{
	struct flipper *f = arg;
	struct mut rng = { .rng = 77 };

	while (!__atomic_load_n(&f->stop, __ATOMIC_RELAXED)) {
		u64 r = mut_rand(&rng), v = 1 + (r >> 40 & 3);

		switch (r >> 61) {
		case 0:
			v = ADDRESS + r % f->h->bytes / 8 * 8;
			break;
		case 1:
			v = r % 9000;
			break;
		case 2:
			v = 0;
			break;
		}
		WRITE_ONCE(((u64 *)f->h->memory)[r % (f->h->bytes / 8)],
			   htole64(v));
	}
	return NULL;
}

/* Another writes the heap all the while, sizes and types too. */
static void test_shifting(void **state)
{
	u32 ok = 0, bad = 0;

	(void)state;
	for (u32 i = 0; i < HEAPS / 30; i++) {
		struct virtio_gc_move move = {
			.to = htole32(2),
			.start = htole64(2 * REGION),
			.table = htole64(3 * REGION),
			.table_bytes = htole64(REGION),
		};
		struct virtio_gc_moved moved;
		struct flipper f = { 0 };
		pthread_t thread;
		struct heap h;
		u64 updated;

		heap_make(&h, 4, REGION, 1);
		f.h = &h;
		/* lists of nodes, to begin with */
		for (u64 at = 0; at < h.bytes; at += 16) {
			put(&h, at, NODE);
			put(&h, at + 8, ADDRESS + (at + 48) % h.bytes);
		}
		assert_int_equal(pthread_create(&thread, NULL, flip, &f), 0);
		for (u32 epoch = 1; epoch < 20; epoch++) {
			if (trace(&h, epoch, 2, epoch * 16).status) {
				bad++;
				continue;
			}
			ok++;
			/* copying is memcpy(): this race is intended */
			if (TSAN)
				continue;
			dcm_gc_move(h.s, epoch, &move, epoch & 1, &moved);
			dcm_gc_update(h.s, h.list, h.regions, NULL, &updated);
			dcm_gc_release(h.s, 0);
		}
		__atomic_store_n(&f.stop, 1, __ATOMIC_RELAXED);
		pthread_join(thread, NULL);
		heap_free(&h);
	}
	printf("# shifting: %u traces ended well, %u not\n", ok, bad);
	assert_true(ok + bad);
}

/* Nodes of 16 bytes, each of which leads to the next. */
static void ring(struct heap *h, u64 n)
{
	for (u64 i = 0; i < n; i++) {
		put(h, i * 16, NODE);
		put(h, i * 16 + 8, ADDRESS + (i + 1) % n * 16);
	}
}

/* A trace that is cancelled ends, and so does one that waits for its opaque objects to be taken. */
static void test_cancel(void **state)
{
	const u64 region = 16ull << 20, n = 1 << 20;
	struct dcm_gc_start how = { .epoch = 1, .threads = 2 };
	__le64 root = htole64(ADDRESS);
	struct dcm_gc_result got;
	struct heap h;

	(void)state;
	heap_make(&h, 1, region, 0);
	ring(&h, n);
	how.regions = h.list;
	how.nr_regions = 1;
	assert_int_equal(dcm_gc_trace_start(h.s, &how), 0);
	assert_int_equal(dcm_gc_trace_roots(h.s, 1, &root, 1).status, 0);
	dcm_gc_trace_cancel(h.s, VIRTIO_GC_CANCELLED);
	got = dcm_gc_trace_finish(h.s, 1);
	assert_int_equal(got.status, VIRTIO_GC_CANCELLED);
	/* and a space can go while it is traced */
	how.epoch = 2;
	assert_int_equal(dcm_gc_trace_start(h.s, &how), 0);
	assert_int_equal(dcm_gc_trace_roots(h.s, 2, &root, 1).status, 0);
	heap_free(&h);
}

/* Types added while a trace runs apply to objects scanned later. */
static void test_late_types(void **state)
{
	const u64 region = 4ull << 20, n = 1 << 18;
	struct dcm_gc_start how = { .epoch = 1, .threads = 2 };
	struct virtio_gc_type late = {
		.kind = VIRTIO_GC_FIXED,
		.bytes = htole32(16),
	};
	__le64 root = htole64(ADDRESS);
	struct virtio_gc_live live;
	struct heap h;

	(void)state;
	heap_make(&h, 2, region, 0);
	ring(&h, n);
	how.regions = h.list;
	how.nr_regions = 2;
	assert_int_equal(dcm_gc_trace_start(h.s, &how), 0);
	assert_int_equal(dcm_gc_trace_roots(h.s, 1, &root, 1).status, 0);
	for (u32 i = 0; i < 200; i++) {
		put(&h, region + i * 16, 1000 + i);
		late.id = htole32(1000 + i);
		assert_int_equal(dcm_gc_types_add(h.s, &late, sizeof(late), 1,
						  0),
				 0);
		root = htole64(ADDRESS + region + i * 16);
		assert_int_equal(dcm_gc_trace_roots(h.s, 1, &root, 1).status,
				 0);
	}
	dcm_gc_trace_wait(h.s, 20000000000ull);
	assert_int_equal(dcm_gc_trace_finish(h.s, 1).status, 0);
	assert_int_equal(dcm_gc_trace_live(h.s, 1, 1, &live), 0);
	/* [VGC-D-20] */
	assert_int_equal(le64toh(live.objects), 200);
	assert_int_equal(dcm_gc_trace_live(h.s, 1, 0, &live), 0);
	assert_int_equal(le64toh(live.objects), n);
	heap_free(&h);
}

static bool unreachable(void *arg, u32 epoch, u32 donor, const u64 *offsets,
			u32 n)
{
	(void)arg;
	(void)epoch;
	(void)donor;
	(void)offsets;
	(void)n;
	return false;
}

/* Another donor holds the rest, and is gone. */
static void test_lost(void **state)
{
	struct dcm_gc_peers peers = { .ghosts = unreachable };
	struct dcm_gc_start how = { .epoch = 1, .threads = 2, .peers = &peers };
	__le64 root = htole64(ADDRESS);
	struct heap h;

	(void)state;
	heap_make(&h, 2, REGION, 0);
	assert_int_equal(dcm_gc_space_place(h.s, 1, 1, NULL, NULL), 0);
	put(&h, 0, NODE);
	put(&h, 8, ADDRESS + REGION);
	how.regions = h.list;
	how.nr_regions = 2;
	assert_int_equal(dcm_gc_trace_start(h.s, &how), 0);
	assert_int_equal(dcm_gc_trace_roots(h.s, 1, &root, 1).status, 0);
	dcm_gc_trace_wait(h.s, 10000000000ull);
	/* [VGC-D-13] */
	assert_int_equal(dcm_gc_trace_finish(h.s, 1).status,
			 VIRTIO_GC_DONOR_LOST);
	/* acknowledgements and ghosts of no trace mean nothing */
	dcm_gc_trace_acked(h.s, 1, 1);
	dcm_gc_trace_acked(h.s, 9, 99);
	assert_int_equal(dcm_gc_trace_ghosts(h.s, 9, NULL, 0),
			 VIRTIO_GC_NO_TRACE);
	heap_free(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lies),
		cmocka_unit_test(test_bad_roots),
		cmocka_unit_test(test_bad_start),
		cmocka_unit_test(test_long_list),
		cmocka_unit_test(test_wide),
		cmocka_unit_test(test_noise),
		cmocka_unit_test(test_shifting),
		cmocka_unit_test(test_cancel),
		cmocka_unit_test(test_late_types),
		cmocka_unit_test(test_lost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

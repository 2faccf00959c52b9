// SPDX-License-Identifier: GPL-2.0-or-later
/* hostile_test.c - headers, references, roots and requests that lie, and a donor that is gone */
#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "raw_heap.h"

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
	/* a tail that ends where the region does, and one word behind */
	for (u64 words = 0; words < 2; words++) {
		u64 at = REGION - 16 - 32 * 8 - 8 + words * 8;

		put(&h, 8, ADDRESS + at);
		put(&h, at, TAIL);
		put(&h, at + 8, 32);
		/* [VGC-D-56] */
		expect(&h, 70 + (u32)words, 0,
		       words ? VIRTIO_GC_BAD_OBJECT : VIRTIO_GC_OK,
		       words ? ADDRESS + at : VIRTIO_GC_NONE);
	}
	put(&h, 8, ADDRESS + 1024);
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
	list[1].top = htole64(REGION + 8);
	/* [VGC-D-53] */
	list[1].flags = htole32(VIRTIO_GC_REGION_SAY);
	assert_int_equal(dcm_gc_trace_start(h.s, &bad), VIRTIO_GC_INVALID);
	list[1].flags = htole32(4);
	assert_int_equal(dcm_gc_trace_start(h.s, &bad), VIRTIO_GC_INVALID);
	list[1].flags = 0;
	list[1].top = htole64(REGION + 4);
	assert_int_equal(dcm_gc_trace_start(h.s, &bad), VIRTIO_GC_INVALID);
	list[1].top = htole64(REGION);
	assert_int_equal(dcm_gc_trace_start(h.s, &bad), 0);
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
		cmocka_unit_test(test_lost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

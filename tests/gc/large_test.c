// SPDX-License-Identifier: GPL-2.0-or-later
/* large_test.c - heaps that take long to trace: a long list, wide arrays, a ring that is cancelled */
#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "raw_heap.h"

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_long_list),
		cmocka_unit_test(test_wide),
		cmocka_unit_test(test_cancel),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

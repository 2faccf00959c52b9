// SPDX-License-Identifier: GPL-2.0-or-later
/* weak_test.c - weak objects by the thousand, close together and far apart */
#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "raw_heap.h"

#define WEAK	9u
#define LARGE	(16ull << 20)	/* a region */

/*
 * An array in region 0 leads to @n weak objects in region 1, one each @step
 * bytes; they refer to region 2, where there is one object.
 */
static void weak_heap(struct heap *h, u64 region_bytes, u32 n, u32 step)
{
	/* the class word, and the referent */
	const struct virtio_gc_type weak_type = {
		.id = htole32(WEAK),
		.kind = VIRTIO_GC_FIXED,
		.flags = VIRTIO_GC_TYPE_WEAK,
		.bytes = htole32(16),
		.referent = htole32(8),
	};

	heap_make(h, 4, region_bytes, 0);
	assert_int_equal(dcm_gc_types_add(h->s, 0, &weak_type,
					  sizeof(weak_type), 1, 0),
			 0);
	put(h, 0, REFS);
	put(h, 8, n);
	put(h, 2 * region_bytes, DATA);
	for (u32 i = 0; i < n; i++) {
		u64 at = region_bytes + (u64)i * step;

		put(h, 16 + i * 8, ADDRESS + at);
		put(h, at, WEAK);
		put(h, at + 8, ADDRESS + 2 * region_bytes);
	}
}

/* Referents that are none do not count, and there is no limit but @max. */
static void test_many(void **state)
{
	const u32 n = REGION / 16, odd = 4;
	struct virtio_gc_weak *weak = calloc(n, sizeof(*weak));
	struct heap h;
	u32 got, all;
	u64 left;

	(void)state;
	assert_non_null(weak);
	weak_heap(&h, REGION, n / 2, 16);
	/* odd, outside, far outside, and an object that was met */
	put(&h, REGION + 8, 1);
	put(&h, REGION + 24, ADDRESS + 4 * REGION);
	put(&h, REGION + 40, U64_MAX);
	put(&h, REGION + 56, ADDRESS);
	expect(&h, 1, 0, VIRTIO_GC_OK, VIRTIO_GC_NONE);
	assert_int_equal(dcm_gc_trace_clear(h.s, 1, 0, weak, n, &got, &left),
			 0);
	/* [VGC-D-67] */
	assert_int_equal(got, n / 2 - odd);
	assert_int_equal(left, 0);
	for (u32 i = 0; i < got; i++) {
		u64 object = ADDRESS + REGION + (i + odd) * 16;

		assert_int_equal(le64toh(weak[i].object), object);
		assert_int_equal(le64toh(weak[i].referent),
				 ADDRESS + 2 * REGION);
	}
	/* nothing comes behind the last one; then some at a time, again */
	assert_int_equal(dcm_gc_trace_clear(h.s, 1, 0, weak, n, &got, &left),
			 0);
	assert_int_equal(got + left, 0);
	for (u32 max = 1; max < 1000; max = max * 7 + 1) {
		u32 flags = VIRTIO_GC_MET_AGAIN;

		for (all = 0; flags || left; flags = 0) {
			assert_int_equal(dcm_gc_trace_clear(h.s, 1, flags, weak,
							    max, &got, &left),
					 0);
			assert_true(got == max || !left);
			for (u32 i = 0; i < got; i++, all++)
				/* [VGC-D-67] */
				assert_int_equal(le64toh(weak[i].object),
						 ADDRESS + REGION +
							 (all + odd) * 16);
		}
		assert_int_equal(all, n / 2 - odd);
	}
	/* with no room it is still said whether there are any */
	assert_int_equal(dcm_gc_trace_clear(h.s, 1, VIRTIO_GC_MET_AGAIN, weak,
					    0, &got, &left),
			 0);
	assert_int_equal(got, 0);
	assert_true(left);
	/* the next trace has none of them */
	expect(&h, 2, 2 * REGION, VIRTIO_GC_OK, VIRTIO_GC_NONE);
	assert_int_equal(dcm_gc_trace_clear(h.s, 2, 0, weak, n, &got, &left),
			 0);
	/* [VGC-D-67] */
	assert_int_equal(got, 0);
	assert_int_equal(dcm_gc_trace_clear(h.s, 1, 0, weak, n, &got, &left),
			 VIRTIO_GC_NO_TRACE);
	heap_free(&h);
	free(weak);
}

/*
 * One request looks only so far, whether it finds any or not, and all of them
 * come in the end: to be cleared, and all weak ones.
 */
static void test_far_apart(void **state)
{
	const u32 n = LARGE / 512, look = 16384;
	struct virtio_gc_weak *weak = calloc(n, sizeof(*weak));
	u32 calls = 0, all = 0, got;
	struct heap h;
	u64 left;

	(void)state;
	assert_non_null(weak);
	weak_heap(&h, LARGE, n, 512);
	expect(&h, 1, 0, VIRTIO_GC_OK, VIRTIO_GC_NONE);
	do {
		assert_int_equal(dcm_gc_trace_clear(h.s, 1, 0, weak, n, &got,
						    &left),
				 0);
		assert_in_range(got, 1, look);
		all += got;
		calls++;
	} while (left);
	/* [VGC-D-67] */
	assert_int_equal(all, n);
	assert_true(calls >= n / look);
	for (all = 0, left = 1; left; all += got) {
		assert_int_equal(dcm_gc_trace_met(h.s, 1, VIRTIO_GC_MET_WEAK,
						  (void *)weak, n, &got, &left),
				 0);
		assert_in_range(got, 1, look);
	}
	/* [VGC-D-32] */
	assert_int_equal(all, n);
	/* the referent is met now: none is to be cleared, which takes as long */
	put(&h, 8, n + 1);
	put(&h, 16 + n * 8, ADDRESS + 2 * LARGE);
	expect(&h, 2, 0, VIRTIO_GC_OK, VIRTIO_GC_NONE);
	for (calls = 0, left = 1; left; calls++) {
		assert_int_equal(dcm_gc_trace_clear(h.s, 2, 0, weak, n, &got,
						    &left),
				 0);
		/* [VGC-D-67] */
		assert_int_equal(got, 0);
	}
	assert_true(calls >= n / look);
	/* what is kept is a bit for each 512 bytes [VGC-D-31] */
	assert_true(dcm_gc_space_memory(h.s) <= 4 * LARGE / 40 + (4u << 20));
	heap_free(&h);
	free(weak);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_far_apart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

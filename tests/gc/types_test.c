// SPDX-License-Identifier: GPL-2.0-or-later
/* types_test.c - types that are added while a trace runs, or replaced */
#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "raw_heap.h"

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
	/* the tables of types grow meanwhile */
	for (u32 i = 0; i < 1000; i++) {
		put(&h, region + i * 16, 1000 + i);
		late.id = htole32(1000 + i);
		assert_int_equal(dcm_gc_types_add(h.s, 0, &late, sizeof(late),
						  1, 0),
				 0);
		root = htole64(ADDRESS + region + i * 16);
		assert_int_equal(dcm_gc_trace_roots(h.s, 1, &root, 1).status,
				 0);
	}
	dcm_gc_trace_wait(h.s, 20000000000ull);
	assert_int_equal(dcm_gc_trace_finish(h.s, 1).status, 0);
	assert_int_equal(dcm_gc_trace_live(h.s, 1, 1, &live), 0);
	/* [VGC-D-20] */
	assert_int_equal(le64toh(live.objects), 1000);
	assert_int_equal(dcm_gc_trace_live(h.s, 1, 0, &live), 0);
	assert_int_equal(le64toh(live.objects), n);
	heap_free(&h);
}

/* All types go: not while a trace runs, and not for types that are wrong. */
static void test_replace(void **state)
{
	const u64 n = 1 << 20;
	struct virtio_gc_type two[2] = {
		{ .id = htole32(9),
		  .kind = VIRTIO_GC_FIXED,
		  .bytes = htole32(16) },
		{ .id = htole32(9),
		  .kind = VIRTIO_GC_FIXED,
		  .bytes = htole32(16) },
	};
	const u32 replace = VIRTIO_GC_TYPES_REPLACE;
	struct dcm_gc_start how = { .epoch = 1, .threads = 2 };
	__le64 root = htole64(ADDRESS), met;
	struct virtio_gc_weak weak;
	struct virtio_gc_live live;
	struct heap h;
	u64 left;
	u32 got;

	(void)state;
	heap_make(&h, 1, n * 16, 0);
	ring(&h, n);
	how.regions = h.list;
	how.nr_regions = 1;
	assert_int_equal(dcm_gc_trace_start(h.s, &how), 0);
	/* [VGC-D-57] */
	assert_int_equal(dcm_gc_types_add(h.s, replace, two, 32, 1, 0),
			 VIRTIO_GC_BUSY);
	assert_int_equal(dcm_gc_trace_roots(h.s, 1, &root, 1).status, 0);
	assert_int_equal(dcm_gc_types_add(h.s, replace, two, 32, 1, 0),
			 VIRTIO_GC_BUSY);
	dcm_gc_trace_wait(h.s, 20000000000ull);
	assert_int_equal(dcm_gc_trace_finish(h.s, 1).status, 0);
	/* one that is refused changes nothing */
	assert_int_equal(dcm_gc_types_add(h.s, replace, two, 64, 2, 0),
			 VIRTIO_GC_INVALID);
	assert_int_equal(dcm_gc_trace_met(h.s, 1, VIRTIO_GC_MET_TYPES, &met, 1,
					  &got, &left),
			 0);
	assert_int_equal(got, 1);
	assert_int_equal(le64toh(met), NODE);
	expect(&h, 2, 0, VIRTIO_GC_OK, VIRTIO_GC_NONE);
	assert_int_equal(dcm_gc_types_add(h.s, replace, two, 32, 1, 0), 0);
	/* results stay, but for types [VGC-D-58] */
	assert_int_equal(dcm_gc_trace_live(h.s, 2, 0, &live), 0);
	assert_int_equal(le64toh(live.objects), n);
	for (u32 what = VIRTIO_GC_MET_OPAQUE; what <= VIRTIO_GC_MET_TYPES;
	     what++)
		/* [VGC-D-58] */
		assert_int_equal(dcm_gc_trace_met(h.s, 2, what, &met, 1, &got,
						  &left),
				 VIRTIO_GC_NO_TRACE);
	assert_int_equal(dcm_gc_trace_clear(h.s, 2, 0, &weak, 1, &got, &left),
			 VIRTIO_GC_NO_TRACE);
	/* [VGC-D-57] */
	expect(&h, 3, 0, VIRTIO_GC_BAD_TYPE, ADDRESS);
	put(&h, 0, 9);
	/* that trace had failed: it does not run any more */
	assert_int_equal(dcm_gc_types_add(h.s, replace, two, 32, 1, 0), 0);
	expect(&h, 4, 0, VIRTIO_GC_OK, VIRTIO_GC_NONE);
	how.epoch = 5;
	assert_int_equal(dcm_gc_trace_start(h.s, &how), 0);
	dcm_gc_trace_cancel(h.s, VIRTIO_GC_CANCELLED);
	assert_int_equal(dcm_gc_types_add(h.s, replace, NULL, 0, 0, 0), 0);
	heap_free(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_late_types),
		cmocka_unit_test(test_replace),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

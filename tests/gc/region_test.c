// SPDX-License-Identifier: GPL-2.0-or-later
/* region_test.c - regions that are not read: one large object, or ranges of references */
#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "raw_heap.h"

/*
 * Regions that are one object: references into it are wrong, its bytes and what
 * lies behind it are never read, and nothing is moved out of it or behind it.
 */
static void test_whole(void **state)
{
	struct virtio_gc_move move = {
		.from = htole32(1),
		.to = htole32(3),
		.start = htole64(3 * REGION),
		.table = htole64(3 * REGION + REGION / 2),
		.table_bytes = htole64(REGION / 2),
	};
	__le64 inside = htole64(ADDRESS + REGION + 8), met;
	struct virtio_gc_moved moved[4];
	struct virtio_gc_live live;
	u64 left, updated;
	struct heap h;
	u32 n;

	(void)state;
	heap_make(&h, 4, REGION, 0);
	h.list[1].flags = htole32(VIRTIO_GC_REGION_WHOLE);
	/* 2 is where it goes on, and 3 is not listed either */
	h.regions = 2;
	put(&h, 0, NODE);
	put(&h, 8, ADDRESS + REGION);
	/* its type is unknown, its references lead nowhere [VGC-D-53] */
	memset(h.memory + REGION, 0xff, 2 * REGION);
	expect(&h, 1, 0, VIRTIO_GC_OK, VIRTIO_GC_NONE);
	assert_int_equal(dcm_gc_trace_live(h.s, 1, 1, &live), 0);
	/* [VGC-D-54] */
	assert_int_equal(le64toh(live.objects), 1);
	assert_int_equal(live.bytes, 0);
	assert_int_equal(dcm_gc_trace_bitmap(h.s, 1, 1)[0], 1);
	/* moves and updates leave it alone */
	dcm_gc_move(h.s, 1, &move, 0, &moved[0]);
	/* [VGC-D-37] */
	assert_int_equal(le32toh(moved[0].status), VIRTIO_GC_INVALID);
	move.from = htole32(0);
	move.to = htole32(1);
	move.start = htole64(2 * REGION);
	dcm_gc_move(h.s, 1, &move, 0, &moved[0]);
	assert_int_equal(le32toh(moved[0].status), VIRTIO_GC_INVALID);
	assert_int_equal(dcm_gc_update(h.s, h.list + 1, 1, NULL, &updated)
				 .status,
			 VIRTIO_GC_INVALID);
	h.list[1].flags = 0;
	assert_int_equal(dcm_gc_compact(h.s, 1, h.list, 2, 3 * REGION, REGION,
					moved, &n),
			 0);
	assert_int_equal(n, 0);
	assert_int_equal(dcm_gc_update(h.s, h.list + 1, 1, NULL, &updated)
				 .status,
			 0);
	assert_int_equal(updated, 0);
	/* references to within, at its end, and behind it */
	h.list[1].flags =
		htole32(VIRTIO_GC_REGION_WHOLE | VIRTIO_GC_REGION_SAY);
	put(&h, 8, ADDRESS + REGION + 8);
	/* [VGC-D-55] */
	expect(&h, 2, 0, VIRTIO_GC_BAD_REFERENCE, ADDRESS + REGION + 8);
	put(&h, 8, ADDRESS + 2 * REGION - 8);
	expect(&h, 3, 0, VIRTIO_GC_BAD_REFERENCE, ADDRESS + 2 * REGION - 8);
	put(&h, 8, ADDRESS + 2 * REGION);
	expect(&h, 4, 0, VIRTIO_GC_OK, VIRTIO_GC_NONE);
	/* one that is met, from outside too, has to be taken, once */
	put(&h, 8, ADDRESS + REGION);
	for (u32 epoch = 5; epoch < 7; epoch++) {
		u64 root = epoch == 5 ? 0 : REGION;

		assert_int_equal(trace(&h, epoch, 2, root).status,
				 VIRTIO_GC_MET);
		for (u32 i = 0; i < 2; i++) {
			assert_int_equal(dcm_gc_trace_met(h.s, epoch,
							  VIRTIO_GC_MET_OPAQUE,
							  &met, 1, &n, &left),
					 0);
			/* [VGC-D-32] */
			assert_int_equal(n, !i);
			assert_int_equal(left, 0);
		}
		assert_int_equal(le64toh(met), ADDRESS + REGION);
		assert_int_equal(dcm_gc_trace_roots(h.s, epoch, &inside, 1)
					 .status,
				 VIRTIO_GC_BAD_REFERENCE);
		assert_int_equal(dcm_gc_trace_finish(h.s, epoch).status, 0);
	}
	/* a lying donor's reference to within is as if it had sent none */
	expect(&h, 7, REGION, VIRTIO_GC_MET, VIRTIO_GC_NONE);
	assert_int_equal(dcm_gc_trace_ghosts(h.s, 7, &(u64){ REGION + 8 }, 1),
			 0);
	assert_int_equal(dcm_gc_trace_met(h.s, 7, VIRTIO_GC_MET_OPAQUE, &met, 1,
					  &n, &left),
			 0);
	assert_int_equal(n, 1);
	assert_int_equal(dcm_gc_trace_finish(h.s, 7).status, 0);
	assert_int_equal(dcm_gc_trace_bitmap(h.s, 7, 1)[0], 1);
	h.regions = 4;
	heap_free(&h);
}

/*
 * Ranges of references in a region that is not read: objects are found and, when
 * they have moved, updated; the from-region is never written.
 */
static void test_ranges(void **state)
{
	struct virtio_gc_move move = {
		.from = htole32(0),
		.to = htole32(2),
		.start = htole64(2 * REGION),
		.table = htole64(3 * REGION),
		.table_bytes = htole64(REGION),
	};
	struct virtio_gc_refs refs = { htole64(ADDRESS + REGION + 64),
				       htole64(REGION / 8 - 8) };
	struct virtio_gc_refs many[5] = { refs, refs, refs, refs, refs };
	struct dcm_gc_start how = { .epoch = 1, .threads = 2 };
	struct virtio_gc_moved moved;
	struct virtio_gc_live live;
	u64 updated, field, before;
	u32 more = 0;
	struct heap h;

	(void)state;
	heap_make(&h, 4, REGION, 0);
	/* one region only: nothing else is of the trace */
	how.regions = h.list;
	how.nr_regions = 1;
	for (u32 i = 0; i < 1000; i++) {
		put(&h, i * 16, NODE);
		put(&h, REGION + 64 + i * 24, ADDRESS + i * 16);
	}
	put(&h, 8, ADDRESS + 999 * 16);
	assert_int_equal(dcm_gc_trace_ranges(h.s, 1, &refs, 1).status,
			 VIRTIO_GC_NO_TRACE);
	assert_int_equal(dcm_gc_trace_start(h.s, &how), 0);
	assert_int_equal(dcm_gc_trace_ranges(h.s, 1, many, 5).status, 0);
	refs.count = htole64(3 * REGION / 8 - 7);
	/* [VGC-D-59] */
	assert_int_equal(dcm_gc_trace_ranges(h.s, 1, &refs, 1).status,
			 VIRTIO_GC_INVALID);
	refs.count = htole64(3 * REGION / 8 - 8);
	dcm_gc_trace_wait(h.s, 10000000000ull);
	assert_int_equal(dcm_gc_trace_finish(h.s, 1).status, 0);
	assert_int_equal(dcm_gc_trace_live(h.s, 1, 0, &live), 0);
	/* [VGC-D-59] */
	assert_int_equal(le64toh(live.objects), 1000);
	assert_int_equal(dcm_gc_trace_ranges(h.s, 1, &refs, 1).status,
			 VIRTIO_GC_NO_TRACE);
	dcm_gc_move(h.s, 1, &move, 0, &moved);
	assert_int_equal(le32toh(moved.status), 0);
	memcpy(&before, h.memory + 8, 8);
	refs.address = htole64(ADDRESS);
	refs.count = htole64(4 * REGION / 8 + 1);
	/* [VGC-D-61] */
	assert_int_equal(dcm_gc_update_ranges(h.s, &refs, 1, NULL, &updated)
				 .status,
			 VIRTIO_GC_INVALID);
	refs.count = htole64(2 * REGION / 8);
	assert_int_equal(dcm_gc_update_ranges(h.s, &refs, 1, NULL, &updated)
				 .status,
			 0);
	assert_int_equal(updated, 1000);
	for (u32 i = 0; i < 1000; i++) {
		memcpy(&field, h.memory + REGION + 64 + i * 24, 8);
		field = le64toh(field);
		assert_in_range(field, ADDRESS + 2 * REGION,
				ADDRESS + 3 * REGION - 16);
		more += field == ADDRESS + 2 * REGION;
	}
	assert_int_equal(more, 1);
	memcpy(&field, h.memory + 8, 8);
	/* [VGC-D-39] */
	assert_int_equal(field, before);
	/* references that are none stop the trace, and an update */
	put(&h, REGION + 64 + 4000, 3);
	how.epoch = 2;
	assert_int_equal(dcm_gc_trace_start(h.s, &how), 0);
	assert_int_equal(dcm_gc_trace_ranges(h.s, 2, many, 1).status, 0);
	dcm_gc_trace_wait(h.s, 10000000000ull);
	/* [VGC-D-27] */
	assert_int_equal(dcm_gc_trace_finish(h.s, 2).status,
			 VIRTIO_GC_BAD_REFERENCE);
	/* regions that are traced for themselves */
	how.epoch = 3;
	how.flags = VIRTIO_GC_TRACE_LOCAL;
	assert_int_equal(dcm_gc_trace_start(h.s, &how), 0);
	/* [VGC-D-59] */
	assert_int_equal(dcm_gc_trace_ranges(h.s, 3, many, 1).status,
			 VIRTIO_GC_INVALID);
	heap_free(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole),
		cmocka_unit_test(test_ranges),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

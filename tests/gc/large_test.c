// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * large_test.c - heaps with much to trace: a long list, wide arrays, a ring that is
 * cancelled, very many stacks
 */
#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
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

/* Begin a trace with @n stacks as roots; none is taken meanwhile. */
static void stacks_give(struct heap *h, u32 epoch, u32 n)
{
	struct dcm_gc_start how = {
		.epoch = epoch,
		.threads = 2,
		.regions = h->list,
		.nr_regions = h->regions,
	};
	__le64 roots[512];

	assert_int_equal(dcm_gc_trace_start(h->s, &how), 0);
	for (u32 i = 0, have = 0; i < n; i++) {
		put(h, i * 16, STACK);
		roots[have++] = htole64(ADDRESS + i * 16);
		if (have < 512 && i + 1 < n)
			continue;
		assert_int_equal(dcm_gc_trace_roots(h->s, epoch, roots, have)
					 .status,
				 0);
		have = 0;
	}
}

/* Take the stacks that wait, none of which may have been @seen: how many. */
static u32 stacks_take(struct heap *h, u32 epoch, bool *seen)
{
	__le64 met[512];
	u64 left;
	u32 got;

	assert_int_equal(dcm_gc_trace_met(h->s, epoch, VIRTIO_GC_MET_OPAQUE,
					  met, 512, &got, &left),
			 0);
	for (u32 i = 0; i < got; i++) {
		u64 which = (le64toh(met[i]) - ADDRESS) / 16;

		assert_false(seen[which]);
		seen[which] = true;
	}
	return got;
}

/*
 * More roots are opaque than threads queue, as if a program had parked 40000 threads:
 * each is taken once. There is a limit, though.
 */
static void test_many_stacks(void **state)
{
	const u32 n = 40000, too_many = 60000;
	struct dcm_gc_quiet quiet = { 0 };
	struct dcm_gc_flags flags[1];
	u32 taken = 0;
	struct heap h;
	bool *seen;

	(void)state;
	heap_make(&h, 8, 16ull << 20, 0);
	seen = calloc(h.bytes / 16, sizeof(*seen));
	assert_non_null(seen);
	stacks_give(&h, 1, n);
	do {
		taken += stacks_take(&h, 1, seen);
		dcm_gc_trace_wait(h.s, 1000000000);
		assert_int_equal(dcm_gc_trace_poll(h.s, 1, flags), 0);
		assert_int_equal(flags->result.status, 0);
	} while (flags->opaque || !dcm_gc_quiet_round(&quiet, flags, 1));
	assert_int_equal(taken, n);
	assert_int_equal(dcm_gc_trace_finish(h.s, 1).status, 0);
	free(seen);
	stacks_give(&h, 2, too_many);
	assert_int_equal(dcm_gc_trace_finish(h.s, 2).status, VIRTIO_GC_LIMIT);
	heap_free(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_long_list),
		cmocka_unit_test(test_wide),
		cmocka_unit_test(test_cancel),
		cmocka_unit_test(test_many_stacks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * gc_test.c - a host has its donors trace: real donors, real workers
 *
 * The workers' results are compared with those of the runtime's own collector.
 * Failures are gc_loss_test.c's, stale regions gc_stale_test.c's, a trace that is
 * followed gc_state_test.c's, and moves gc_move_test.c's.
 */
#include <endian.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "gc_world.h"

static void trace_heaps(bool local)
{
	struct world w;

	world_donors(&w, local);
	for (u32 i = 0; i < 8; i++) {
		world_heap(&w, i);
		space_make(&w);
		for (u32 epoch = 1; epoch < 3; epoch++) {
			assert_int_equal(trace(&w, epoch), 0);
			results_check(&w, epoch);
			/* another's epoch, and the same again */
			assert_int_equal(roots_send(&w, epoch + 7),
					 VIRTIO_GC_NO_TRACE);
			assert_int_equal(trace_start(&w, epoch),
					 VIRTIO_GC_INVALID);
		}
		assert_int_equal(request(&w, VIRTIO_GC_SPACE_DESTROY, 0, 0, 0,
					 NULL, 0, NULL, 0),
				 0);
		/* the last space: no worker is left */
		for (u32 d = 0; d < DONORS; d++)
			no_workers(&w, d);
		assert_int_equal(trace_start(&w, 9), VIRTIO_GC_INVALID);
		world_heap_free(&w);
	}
	world_donors_end(&w);
}

static void test_trace_tcp(void **state)
{
	(void)state;
	trace_heaps(false);
}

static void test_trace_shm(void **state)
{
	(void)state;
	trace_heaps(true);
}

/* SET_TYPES of another space, cancelled after @looks; true: it ended before. */
static bool types_cancelled(struct world *w, u32 looks)
{
	struct virtio_gc_space space = mut_space_le(w->m);
	struct virtio_gc_types types = { .runs = htole32(w->m->nr_runs) };
	u8 bytes[16 * 32 + 128 * 8];
	size_t n = mut_types_le(w->m, bytes);
	u32 status;

	w->beside = 1;
	assert_int_equal(request(w, VIRTIO_GC_SPACE_CREATE, 0, 0, 0, &space,
				 sizeof(space), NULL, 0),
			 0);
	w->cancel_at = looks;
	status = request(w, VIRTIO_GC_TYPES_ADD, 0, 0, w->m->nr_types, &types,
			 sizeof(types), bytes, n);
	w->cancel_at = 0;
	assert_true(!status || status == VIRTIO_GC_CANCELLED);
	/* SPACE_DESTROY can't be cancelled */
	w->cancel = true;
	assert_int_equal(request(w, VIRTIO_GC_SPACE_DESTROY, 0, 0, 0, NULL, 0,
				 NULL, 0),
			 0);
	w->cancel = false;
	w->beside = 0;
	return !status;
}

/* A space's requests, however they end, end no other space's trace. */
static void test_others_traces_stay(void **state)
{
	struct world w;
	pid_t pid[DONORS];
	u32 looks = 0;

	(void)state;
	world_tracing(&w);
	for (u32 d = 0; d < DONORS; d++)
		pid[d] = worker_of(&w, d);
	while (!types_cancelled(&w, ++looks))
		assert_true(looks < 200);
	assert_true(looks > 1);
	assert_int_equal(trace_finish(&w, 2), 0);
	results_check(&w, 2);
	for (u32 d = 0; d < DONORS; d++)
		assert_int_equal(worker_of(&w, d), pid[d]);
	world_heap_free(&w);
	world_donors_end(&w);
}

/* The heap's types, and as many others; %VIRTIO_GC_TYPES_REPLACE in @flags. */
static u32 types_make(struct world *w, u16 flags, u32 others)
{
	const struct mut *m = w->m;
	struct virtio_gc_types types = { .runs = htole32(m->nr_runs) };
	struct virtio_gc_type *list = calloc(2048, sizeof(*list));
	u32 n = m->nr_types, status;

	assert_true(list && n + others < 2048 - 32);
	for (u32 i = 0; i < n; i++)
		list[i] = m->types[i].le;
	for (u32 i = n; i < n + others; i++)
		list[i] = (struct virtio_gc_type){
			.id = htole32(100000 + i),
			.kind = VIRTIO_GC_FIXED,
			.bytes = htole32(16),
		};
	n += others;
	memcpy(list + n, m->runs, m->nr_runs * sizeof(*m->runs));
	status = request(w, VIRTIO_GC_TYPES_ADD, flags, 0, n, &types,
			 sizeof(types), list,
			 n * sizeof(*list) + m->nr_runs * sizeof(*m->runs));
	free(list);
	return status;
}

/*
 * Types are replaced: not while a trace runs; the new ones are all there is,
 * for workers that start later too, and what was before is not kept.
 */
static void test_types_replaced(void **state)
{
	const u16 replace = VIRTIO_GC_TYPES_REPLACE;
	struct world w;

	(void)state;
	world_donors(&w, false);
	world_heap(&w, 4);
	space_make(&w);
	assert_int_equal(trace_start(&w, 1), 0);
	/* [VGC-D-57] */
	assert_int_equal(types_make(&w, replace, 0), VIRTIO_GC_BUSY);
	assert_int_equal(roots_send(&w, 1), 0);
	assert_int_equal(trace_finish(&w, 1), 0);
	results_check(&w, 1);
	/* more than could be kept of all of them: 1000 times 60 KiB */
	for (u32 i = 0; i < 1000; i++)
		assert_int_equal(types_make(&w, replace, 1900), 0);
	/* [VGC-D-58] */
	results_check(&w, 1);
	kill(worker_of(&w, 1), SIGKILL);
	no_workers(&w, 1);
	for (u32 i = 2; trace(&w, i) || i == 2; i++)
		assert_true(i < 5);
	assert_int_equal(trace(&w, 9), 0);
	results_check(&w, 9);
	/* the heap's types go */
	assert_int_equal(request(&w, VIRTIO_GC_TYPES_ADD, replace, 0, 0,
				 &(struct virtio_gc_types){ 0 },
				 sizeof(struct virtio_gc_types), NULL, 0),
			 0);
	assert_int_equal(trace(&w, 10), VIRTIO_GC_BAD_TYPE);
	/* and come back, though that trace never ended well */
	assert_int_equal(types_make(&w, replace, 1), 0);
	assert_int_equal(trace(&w, 11), 0);
	results_check(&w, 11);
	world_heap_free(&w);
	world_donors_end(&w);
}

/*
 * Ranges in regions that are not traced: such a region may get its first place
 * while the trace runs, but not another.
 */
static void test_ranges(void **state)
{
	struct virtio_gc_region list[64];
	struct virtio_gc_refs refs;
	struct virtio_gc_met met = { .max = htole32(64) };
	struct world w;
	u32 spare, n;
	__le64 root;
	u64 ref;

	(void)state;
	world_donors(&w, false);
	world_heap(&w, 6);
	space_make(&w);
	spare = w.m->c.regions - 1;
	/* a region that is not listed has the only root */
	root = mut_address_le(w.m, mut_root(w.m));
	ref = htole64(mut_ref(w.m, mut_root(w.m)));
	memset(w.m->donors + (u64)spare * REGION, 0, REGION);
	memcpy(w.m->donors + (u64)spare * REGION + 800, &ref, w.m->c.ref_bytes);
	heap_io(&w, DCM_IO_WRITE);
	refs.address = htole64(w.m->l.address + (u64)spare * REGION);
	refs.count = htole64(REGION / w.m->c.ref_bytes);
	n = mut_regions_le(w.m, list);
	while (n && le32toh(list[n - 1].region) >= spare)
		n--;
	w.nowhere[spare] = true;
	for (u32 i = 0; i < 3; i++) {
		u32 epoch = 1 + i;

		assert_int_equal(request(&w, VIRTIO_GC_TRACE_START, 0, epoch, n,
					 NULL, 0, list, n * sizeof(*list)),
				 0);
		if (i == 2)
			w.at[spare] += REGION;
		else
			w.nowhere[spare] = !i;
		/* [VGC-D-60] */
		assert_int_equal(request(&w, VIRTIO_GC_TRACE_ROOTS,
					 VIRTIO_GC_RANGES, epoch, 1, NULL, 0,
					 &refs, sizeof(refs)),
				 i == 1 ? VIRTIO_GC_OK : VIRTIO_GC_STALE);
		/* the trace goes on */
		if (i != 1)
			assert_int_equal(request(&w, VIRTIO_GC_TRACE_ROOTS, 0,
						 epoch, 1, NULL, 0, &root, 8),
					 0);
		assert_int_equal(request(&w, VIRTIO_GC_TRACE_MET,
					 VIRTIO_GC_MET_WAIT, epoch, 0, &met,
					 sizeof(met), NULL, 0),
				 0);
		assert_int_equal(trace_finish(&w, epoch), 0);
		w.nowhere[spare] = !i;
	}
	world_heap_free(&w);
	world_donors_end(&w);
}

/* A heap that is none. */
static void test_bad_heap(void **state)
{
	struct world w;
	u32 status;

	(void)state;
	world_donors(&w, true);
	world_heap(&w, 2);
	space_make(&w);
	for (u64 i = 0; i < w.m->l.bytes; i++)
		w.m->donors[i] = (u8)mut_rand(w.m);
	heap_io(&w, DCM_IO_WRITE);
	for (u32 epoch = 1; epoch < 6; epoch++) {
		struct virtio_gc_range range = {
			.regions = htole32(1),
			.bitmaps = htole64(VIRTIO_GC_NONE),
		};
		const struct virtio_gc_live *live = (void *)w.out.entries;

		status = trace(&w, epoch);
		assert_true(status == VIRTIO_GC_BAD_TYPE ||
			    status == VIRTIO_GC_BAD_OBJECT ||
			    status == VIRTIO_GC_BAD_REFERENCE);
		assert_true(w.out.done.at != VIRTIO_GC_NONE);
		/* no results [VGC-D-29] */
		assert_int_equal(request(&w, VIRTIO_GC_TRACE_RESULTS, 0, epoch,
					 0, &range, sizeof(range), NULL, 0),
				 0);
		assert_int_equal(le32toh(live->status), VIRTIO_GC_BUSY);
	}
	world_heap_free(&w);
	world_donors_end(&w);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_trace_tcp),
		cmocka_unit_test(test_trace_shm),
		cmocka_unit_test(test_others_traces_stay),
		cmocka_unit_test(test_types_replaced),
		cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_bad_heap),
	};

	return host_run("gc", tests, sizeof(tests) / sizeof(tests[0]),
			argc > 1 ? argv[1] : NULL);
}

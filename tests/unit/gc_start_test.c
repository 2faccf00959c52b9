// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * gc_start_test.c - TRACE_START: before its answer, after it, and late failures
 *
 * Pages are synced, and workers answer, as gc_start_world.h's world says.
 */
/* links: tests/unit/gc_start_world.c kvm-dcm/gc/queue.c kvm-dcm/gc/command.c kvm-dcm/gc/api.c kvm-dcm/gc/space.c kvm-dcm/lib/thread.c kvm-dcm/proto/gc_request.c */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <endian.h>
#include <unistd.h>
#include <cmocka.h>

#include "gc_start_world.h"

/* Without the barrier no write is let in until donors have all pages. */
static void test_stopped_waits(void **state)
{
	struct call start;

	(void)state;
	stop(true);
	submit_start(&start, 1, 0);
	wait_syncing();
	assert_false(is_done(&start));
	stop(false);
	assert_int_equal(wait_for(&start), VIRTIO_GC_OK);
	assert_true(world.frozen_when_synced);
	assert_false(world.frozen);
	assert_int_equal(world.command, VIRTIO_GC_TRACE_START);
}

/*
 * Ranges of references: the regions they lie in are synced first, and no
 * others; the guest goes on. One that is wrong reaches neither pages nor workers.
 */
static void test_ranges_synced(void **state)
{
	struct virtio_gc_refs refs[2] = {
		{ htole64((1ull << 40) + REGION - 16), htole64(4) },
		{ htole64((1ull << 40) + 3 * REGION), htole64(1) },
	};
	struct call c;
	u32 before;

	(void)state;
	submit_start(&c, 1, VIRTIO_GC_TRACE_CONCURRENT);
	assert_int_equal(wait_for(&c), VIRTIO_GC_OK);
	assert_int_equal(ask(VIRTIO_GC_TRACE_MET, 1), VIRTIO_GC_OK);
	world.nr_synced = 0;
	world.synced_bytes = 0;
	submit(&c, VIRTIO_GC_TRACE_ROOTS, 1, VIRTIO_GC_RANGES, refs,
	       sizeof(refs), 2);
	assert_int_equal(wait_for(&c), VIRTIO_GC_OK);
	/* 0 and 1 at once, and 3 [VGC-D-60] */
	assert_int_equal(world.nr_synced, 2);
	assert_int_equal(world.synced_bytes, 3 * REGION);
	assert_false(world.frozen_when_synced);
	assert_int_equal(world.command, VIRTIO_GC_TRACE_ROOTS);
	before = world.nr_commands;
	refs[1].count = htole64(REGION / 8 + 1);
	submit(&c, VIRTIO_GC_TRACE_ROOTS, 1, VIRTIO_GC_RANGES, refs,
	       sizeof(refs), 2);
	/* [VGC-D-59] */
	assert_int_equal(wait_for(&c), VIRTIO_GC_INVALID);
	assert_int_equal(world.nr_synced, 2);
	assert_int_equal(world.nr_commands, before);
}

/* A host whose answers are small does not offer large ones. */
static void test_small_answers(void **state)
{
	const u64 bitmaps = 1ull << VIRTIO_GC_F_BITMAPS;
	struct dcm_gc_host *small;

	(void)state;
	small = host_new(bitmaps);
	assert_non_null(small);
	/* [VGC-D-66] */
	assert_int_equal(dcm_gc_host_features(gc) & bitmaps, bitmaps);
	assert_int_equal(dcm_gc_host_features(small),
			 dcm_gc_host_features(gc) & ~bitmaps);
	dcm_gc_host_close(small);
}

/* CONCURRENT: TRACE_START waits for nothing, and roots wait for the whole start. */
static void test_concurrent_does_not_wait(void **state)
{
	struct call start, roots;
	u32 before = world.nr_commands;

	(void)state;
	stop(true);
	submit_start(&start, 1, VIRTIO_GC_TRACE_CONCURRENT);
	/* no donor takes anything [VGC-D-49] */
	assert_int_equal(wait_for(&start), VIRTIO_GC_OK);
	assert_int_equal(le32toh(start.d.donor), VIRTIO_GC_NO_DONOR);
	submit(&roots, VIRTIO_GC_TRACE_ROOTS, 1, 0, NULL, 0, 0);
	wait_syncing();
	assert_false(is_done(&roots));
	assert_int_equal(world.nr_commands, before);
	stop(false);
	assert_int_equal(wait_for(&roots), VIRTIO_GC_OK);
	assert_false(world.frozen_when_synced);
	/* TRACE_START, then the roots */
	assert_int_equal(world.nr_commands, before + 2);
	assert_int_equal(world.command, VIRTIO_GC_TRACE_ROOTS);
}

static void starts_late(u32 sync, u32 start, u32 want, u32 donor)
{
	static const u16 asks[] = { VIRTIO_GC_TRACE_ROOTS, VIRTIO_GC_TRACE_MET,
				    VIRTIO_GC_TRACE_FINISH,
				    VIRTIO_GC_TRACE_STATE,
				    VIRTIO_GC_TRACE_ASK };
	static u32 epoch = 10;
	struct call c;

	world.sync = sync;
	world.start = start;
	epoch++;
	submit_start(&c, epoch, VIRTIO_GC_TRACE_CONCURRENT);
	assert_int_equal(wait_for(&c), VIRTIO_GC_OK);
	for (u32 i = 0; i < ARRAY_SIZE(asks); i++) {
		u32 before;

		submit(&c, VIRTIO_GC_TRACE_ROOTS, epoch, 0, NULL, 0, 0);
		/* [VGC-D-50] */
		assert_int_equal(wait_for(&c), want);
		assert_int_equal(le32toh(c.d.donor), donor);
		assert_int_equal(c.d.count, 0);
		before = world.nr_commands;
		assert_int_equal(ask(asks[i], epoch), want);
		assert_int_equal(world.nr_commands, before);
		/* nothing of another epoch's trace */
		assert_int_equal(ask(asks[i], epoch - 1), VIRTIO_GC_OK);
	}
	/* the trace that was answered with OK is the previous epoch's */
	submit_start(&c, epoch, VIRTIO_GC_TRACE_CONCURRENT);
	assert_int_equal(wait_for(&c), VIRTIO_GC_INVALID);
	/* and the next one is as if there had been none */
	world.sync = VIRTIO_GC_OK;
	world.start = VIRTIO_GC_OK;
	epoch++;
	submit_start(&c, epoch, epoch & 1 ? VIRTIO_GC_TRACE_CONCURRENT : 0);
	assert_int_equal(wait_for(&c), VIRTIO_GC_OK);
	assert_int_equal(ask(VIRTIO_GC_TRACE_FINISH, epoch), VIRTIO_GC_OK);
}

static void test_what_fails_later_is_said(void **state)
{
	(void)state;
	starts_late(VIRTIO_GC_DONOR_LOST, 0, VIRTIO_GC_DONOR_LOST,
		    VIRTIO_GC_NO_DONOR);
	starts_late(0, VIRTIO_GC_WORKER_LOST, VIRTIO_GC_WORKER_LOST, WORKER);
	starts_late(VIRTIO_GC_TIMED_OUT, 0, VIRTIO_GC_TIMED_OUT,
		    VIRTIO_GC_NO_DONOR);
	/* BUSY would be asked again, for ever */
	starts_late(VIRTIO_GC_BUSY, 0, VIRTIO_GC_TIMED_OUT, VIRTIO_GC_NO_DONOR);
}

/* The start waits until the region has moved, then syncs again. */
static void test_moving_is_waited_for(void **state)
{
	(void)state;
	for (u32 epoch = 1; epoch < 3; epoch++) {
		struct call c;

		world.nr_synced = 0;
		world.moving = 2;
		world.nowhere = 5;
		submit_start(&c, epoch,
			     epoch & 1 ? 0 : VIRTIO_GC_TRACE_CONCURRENT);
		assert_int_equal(wait_for(&c), VIRTIO_GC_OK);
		assert_int_equal(ask(VIRTIO_GC_TRACE_ROOTS, epoch),
				 VIRTIO_GC_OK);
		assert_int_equal(world.nr_synced, 3);
		assert_int_equal(world.moving + world.nowhere, 0);
		assert_false(world.frozen);
	}
}

/* START once timed out when its sync had waited for a donor, and a region then moved. */
static void test_moving_after_a_long_sync(void **state)
{
	struct call c;

	(void)state;
	for (u32 epoch = 1; epoch < 3; epoch++) {
		stop(true);
		world.moving = 1;
		world.nowhere = 1;
		submit_start(&c, epoch,
			     epoch & 1 ? 0 : VIRTIO_GC_TRACE_CONCURRENT);
		wait_syncing();
		usleep(2100000);
		stop(false);
		assert_int_equal(wait_for(&c), VIRTIO_GC_OK);
		assert_int_equal(ask(VIRTIO_GC_TRACE_ROOTS, epoch),
				 VIRTIO_GC_OK);
	}
}

/* Without the runtime's barrier pages must not be written back on a guess. */
static void test_guesses(void **state)
{
	static const struct {
		u32 flags;
		enum dcm_gc_sync how;
	} traces[] = {
		{ 0, DCM_GC_SYNC_EXACT },
		{ VIRTIO_GC_TRACE_CONCURRENT, DCM_GC_SYNC_KEEP },
		{ 0, DCM_GC_SYNC_EXACT },
	};
	struct virtio_gc_region region = { htole32(1), 0, 0 };
	enum dcm_gc_sync before = DCM_GC_SYNC_EXACT;
	struct call c;

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(traces); i++) {
		/* CLEAN is for the next trace, of a kind not known yet: the last one's */
		submit(&c, VIRTIO_GC_CLEAN, 0, 0, &region, sizeof(region), 1);
		assert_int_equal(wait_for(&c), VIRTIO_GC_OK);
		assert_int_equal(world.how, before);
		submit_start(&c, i + 1, traces[i].flags);
		assert_int_equal(wait_for(&c), VIRTIO_GC_OK);
		assert_int_equal(ask(VIRTIO_GC_TRACE_ROOTS, i + 1),
				 VIRTIO_GC_OK);
		assert_int_equal(world.how, traces[i].how);
		before = traces[i].how;
	}
}

/* But not for ever. */
static void test_moving_for_ever(void **state)
{
	struct call c;

	(void)state;
	world.moving = U32_MAX;
	world.nowhere = U32_MAX;
	submit_start(&c, 1, 0);
	/* [VGC-D-51] */
	assert_int_equal(wait_for(&c), VIRTIO_GC_TIMED_OUT);
	assert_false(world.frozen);
	submit_start(&c, 1, VIRTIO_GC_TRACE_CONCURRENT);
	assert_int_equal(wait_for(&c), VIRTIO_GC_OK);
	assert_int_equal(ask(VIRTIO_GC_TRACE_FINISH, 1), VIRTIO_GC_TIMED_OUT);
}

/* An invalid TRACE_START is refused at once, and changes nothing. */
static void test_bad_start(void **state)
{
	static const struct {
		u32 region;
		u64 top;
		u16 flags;
		u32 epoch;
	} bad[] = {
		{ 1, 2 * REGION, VIRTIO_GC_TRACE_CONCURRENT, 0 },
		{ 1, 2 * REGION, VIRTIO_GC_TRACE_CONCURRENT, 1 },
		{ 1, 2 * REGION,
		  VIRTIO_GC_TRACE_CONCURRENT | VIRTIO_GC_TRACE_LOCAL, 2 },
		{ REGIONS, REGION, VIRTIO_GC_TRACE_CONCURRENT, 2 },
		{ UINT32_MAX, REGION, VIRTIO_GC_TRACE_CONCURRENT, 2 },
		{ 1, REGION - 8, VIRTIO_GC_TRACE_CONCURRENT, 2 },
		{ 1, 2 * REGION + 8, VIRTIO_GC_TRACE_CONCURRENT, 2 },
		{ 1, REGION + 4, VIRTIO_GC_TRACE_CONCURRENT, 2 },
		/* twice */
		{ 0, REGION, VIRTIO_GC_TRACE_CONCURRENT, 2 },
	};
	struct call c;
	u32 before;

	(void)state;
	submit_start(&c, 1, VIRTIO_GC_TRACE_CONCURRENT);
	assert_int_equal(wait_for(&c), VIRTIO_GC_OK);
	assert_int_equal(ask(VIRTIO_GC_TRACE_FINISH, 1), VIRTIO_GC_OK);
	before = world.nr_commands;
	for (u32 i = 0; i < ARRAY_SIZE(bad); i++) {
		struct virtio_gc_region list[2] = {
			{ .region = 0, .top = htole64(REGION) },
			{ .region = htole32(bad[i].region),
			  .top = htole64(bad[i].top) },
		};

		submit(&c, VIRTIO_GC_TRACE_START, bad[i].epoch, bad[i].flags,
		       list, sizeof(list), 2);
		/* [VGC-D-22] */
		assert_int_equal(wait_for(&c), VIRTIO_GC_INVALID);
	}
	assert_int_equal(world.nr_commands, before);
	assert_int_equal(ask(VIRTIO_GC_TRACE_FINISH, 1), VIRTIO_GC_OK);
}

/* CANCEL of an answered request does nothing. */
static void test_cancel_is_too_late(void **state)
{
	struct virtio_gc_cancel tag = { .tag = htole64(VIRTIO_GC_TRACE_START) };
	struct call start, cancel;

	(void)state;
	stop(true);
	submit_start(&start, 1, VIRTIO_GC_TRACE_CONCURRENT);
	assert_int_equal(wait_for(&start), VIRTIO_GC_OK);
	wait_syncing();
	submit(&cancel, VIRTIO_GC_CANCEL, 0, 0, &tag, sizeof(tag), 0);
	stop(false);
	/* [VGC-D-48] */
	assert_int_equal(wait_for(&cancel), VIRTIO_GC_OK);
	assert_int_equal(ask(VIRTIO_GC_TRACE_ROOTS, 1), VIRTIO_GC_OK);
}

/*
 * While a donor's pages are lost one after the other no worker is told that they
 * are current; the start can be cancelled.
 */
static void test_lost_page_by_page(void **state)
{
	struct virtio_gc_cancel tag = { htole64(VIRTIO_GC_TRACE_START) };
	struct call start, cancel;

	(void)state;
	for (u32 epoch = 1; epoch < 3; epoch++) {
		world.losing = 5;
		world.nr_synced = 0;
		submit_start(&start, epoch, 0);
		assert_int_equal(wait_for(&start), VIRTIO_GC_OK);
		assert_int_equal(world.nr_synced, 1);
		assert_int_equal(world.losing, 0);
	}
	world.losing = U32_MAX;
	submit_start(&start, 3, 0);
	submit(&cancel, VIRTIO_GC_CANCEL, 0, 0, &tag, sizeof(tag), 0);
	assert_int_equal(wait_for(&start), VIRTIO_GC_CANCELLED);
	assert_int_equal(wait_for(&cancel), VIRTIO_GC_OK);
	world.losing = 0;
	assert_int_equal(world.nr_synced, 1);
}

static void *let_go(void *arg)
{
	wait_syncing();
	stop(false);
	return arg;
}

/* A reset waits for the work under way, and leaves none of it. */
static void test_reset_meanwhile(void **state)
{
	struct call start;
	pthread_t t;

	(void)state;
	stop(true);
	world.sync = VIRTIO_GC_DONOR_LOST;
	submit_start(&start, 1, VIRTIO_GC_TRACE_CONCURRENT);
	assert_int_equal(wait_for(&start), VIRTIO_GC_OK);
	assert_int_equal(pthread_create(&t, NULL, let_go, NULL), 0);
	dcm_gc_host_reset(gc);
	pthread_join(t, NULL);
	assert_false(world.syncing);
	dcm_gc_host_start(gc, dcm_gc_host_features(gc));
	assert_int_equal(ask(VIRTIO_GC_TRACE_ROOTS, 1), VIRTIO_GC_INVALID);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_stopped_waits, up, down),
		cmocka_unit_test_setup_teardown(test_concurrent_does_not_wait,
						up, down),
		cmocka_unit_test_setup_teardown(test_what_fails_later_is_said,
						up, down),
		cmocka_unit_test_setup_teardown(test_moving_is_waited_for, up,
						down),
		cmocka_unit_test_setup_teardown(test_moving_after_a_long_sync,
						up, down),
		cmocka_unit_test_setup_teardown(test_moving_for_ever, up, down),
		cmocka_unit_test_setup_teardown(test_guesses, up, down),
		cmocka_unit_test_setup_teardown(test_bad_start, up, down),
		cmocka_unit_test_setup_teardown(test_cancel_is_too_late, up,
						down),
		cmocka_unit_test_setup_teardown(test_lost_page_by_page, up,
						down),
		cmocka_unit_test_setup_teardown(test_ranges_synced, up, down),
		cmocka_unit_test_setup_teardown(test_small_answers, up, down),
		cmocka_unit_test_setup_teardown(test_reset_meanwhile, up, down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

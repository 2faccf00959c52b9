// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * gc_start_test.c - TRACE_START: before its answer, after it, and late failures
 *
 * Pages are synced, and workers answer, as this file says:
 * when, and with which status.
 */
/* links: kvm-dcm/gc/queue.c kvm-dcm/gc/command.c kvm-dcm/gc/api.c kvm-dcm/gc/space.c kvm-dcm/lib/thread.c kvm-dcm/proto/gc_request.c */
#include <setjmp.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <endian.h>
#include <pthread.h>
#include <string.h>
#include <cmocka.h>

#include "../../kvm-dcm/gc/backend.h"

#define REGION (64ul << 10)
#define REGIONS 4u
#define ROOM 4096u
#define WORKER 2u /* the donor that fails */

/*
 * Pages and workers
 * @stop: syncing waits while this is set
 * @syncing: a sync is under way, or about to begin
 * @frozen: accesses wait; @frozen_when_synced: they did
 * @sync: status of a sync; @start: status of a trace's start
 * @nr_synced: times
 * @moving: so often they say that a region is on its way; @nowhere: and for so
 *	many looks it is
 * @losing: for so many looks a donor's pages are not yet lost
 * @command: the last that the workers got; @nr_commands: how many
 */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t moved;
	bool stop;
	bool syncing;
	bool frozen;
	bool frozen_when_synced;
	u32 sync;
	u32 start;
	u32 nr_synced;
	u32 moving;
	u32 nowhere;
	u32 losing;
	u16 command;
	u32 nr_commands;
} world = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.moved = PTHREAD_COND_INITIALIZER,
};

/* ---- pages ---- */

static u32 backend_freeze(void *priv, u64 at, u64 bytes)
{
	(void)priv;
	(void)at;
	(void)bytes;
	world.frozen = true;
	return VIRTIO_GC_OK;
}

static void backend_thaw(void *priv)
{
	(void)priv;
	world.frozen = false;
}

static u32 backend_sync(void *priv, u64 *at, u64 end, bool keep, u64 until_ms)
{
	u32 status;

	(void)priv;
	(void)until_ms;
	assert_true(keep);
	pthread_mutex_lock(&world.lock);
	assert_int_equal(world.losing, 0);
	world.syncing = true;
	pthread_cond_broadcast(&world.moved);
	while (world.stop)
		pthread_cond_wait(&world.moved, &world.lock);
	world.syncing = false;
	world.nr_synced++;
	world.frozen_when_synced = world.frozen;
	status = world.sync;
	pthread_mutex_unlock(&world.lock);
	if (!status)
		*at = end;
	return status;
}

static bool backend_losing(void *priv)
{
	bool losing;

	(void)priv;
	pthread_mutex_lock(&world.lock);
	losing = world.losing;
	world.losing -= losing;
	pthread_mutex_unlock(&world.lock);
	return losing;
}

static int backend_discard(void *priv, u64 at, u64 bytes)
{
	(void)priv;
	(void)at;
	(void)bytes;
	return 0;
}

static void backend_end(void *priv)
{
	(void)priv;
}

static const struct dcm_gc_backend_ops backend_ops = {
	.freeze = backend_freeze,
	.thaw = backend_thaw,
	.sync = backend_sync,
	.losing = backend_losing,
	.discard = backend_discard,
	.end = backend_end,
};

static void stop(bool on)
{
	pthread_mutex_lock(&world.lock);
	world.stop = on;
	pthread_cond_broadcast(&world.moved);
	pthread_mutex_unlock(&world.lock);
}

static void wait_syncing(void)
{
	pthread_mutex_lock(&world.lock);
	while (!world.syncing)
		pthread_cond_wait(&world.moved, &world.lock);
	pthread_mutex_unlock(&world.lock);
}

/* ---- workers ---- */

static char workers;

u32 dcm_client_donors(const struct dcm_client *client)
{
	(void)client;
	return 3;
}

struct dcm_gc_workers *dcm_gc_workers_new(struct dcm_client *client, u64 bytes,
					  const struct dcm_gc_workers_ops *ops,
					  void *arg)
{
	(void)client;
	(void)bytes;
	(void)ops;
	(void)arg;
	return (struct dcm_gc_workers *)&workers;
}

void dcm_gc_workers_free(struct dcm_gc_workers *t)
{
	(void)t;
}

void dcm_gc_workers_do(struct dcm_gc_workers *t, const struct dcm_gc_request *r,
		       const void *raw, size_t bytes, u64 expires_ms,
		       struct dcm_gc_reply *out)
{
	bool starts = r->command == VIRTIO_GC_TRACE_START;
	bool fails = starts && world.start;

	(void)t;
	(void)raw;
	(void)bytes;
	(void)expires_ms;
	world.command = r->command;
	world.nr_commands++;
	out->done = (struct dcm_gc_done){
		.status = fails ? world.start : VIRTIO_GC_OK,
		.donor = fails ? WORKER : VIRTIO_GC_NO_DONOR,
		.at = VIRTIO_GC_NONE,
	};
	if (starts && world.moving) {
		world.moving -= world.moving != U32_MAX;
		out->done.status = DCM_GC_WORKERS_MOVING;
	}
}

/* Frozen pages do not move: none may be frozen here. */
bool dcm_gc_workers_rests(struct dcm_gc_workers *t,
			  const struct dcm_gc_request *r)
{
	(void)t;
	(void)r;
	assert_false(world.frozen);
	if (world.nowhere && world.nowhere != U32_MAX)
		return !world.nowhere--;
	return !world.nowhere;
}

bool dcm_gc_workers_idle(struct dcm_gc_workers *t, int wake)
{
	(void)t;
	(void)wake;
	return false;
}

void dcm_gc_workers_reset(struct dcm_gc_workers *t)
{
	(void)t;
}

/* ---- the device ---- */

struct call {
	bool done;
	struct virtio_gc_done d;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t done = PTHREAD_COND_INITIALIZER;
static struct dcm_gc_host *gc;

static void answered(void *priv, void *token, const void *answer, size_t bytes)
{
	struct call *c = token;

	(void)priv;
	assert_int_equal(bytes, sizeof(c->d));
	pthread_mutex_lock(&lock);
	assert_false(c->done);
	memcpy(&c->d, answer, sizeof(c->d));
	c->done = true;
	pthread_cond_broadcast(&done);
	pthread_mutex_unlock(&lock);
}

static bool is_done(struct call *c)
{
	bool is;

	pthread_mutex_lock(&lock);
	is = c->done;
	pthread_mutex_unlock(&lock);
	return is;
}

static u32 wait_for(struct call *c)
{
	pthread_mutex_lock(&lock);
	while (!c->done)
		pthread_cond_wait(&done, &lock);
	pthread_mutex_unlock(&lock);
	return le32toh(c->d.status);
}

struct request {
	struct virtio_gc_req r;
	u8 more[REGIONS * sizeof(struct virtio_gc_region)];
};

static void submit(struct call *c, u16 command, u32 epoch, u16 flags,
		   const void *more, size_t bytes, u32 count)
{
	struct request q = {
		.r.command = htole16(command),
		.r.flags = htole16(flags),
		.r.space = htole32(1),
		.r.epoch = htole32(epoch),
		.r.count = htole32(count),
		.r.tag = htole64(command),
	};

	assert_true(bytes <= sizeof(q.more));
	if (bytes)
		memcpy(q.more, more, bytes);
	memset(c, 0, sizeof(*c));
	dcm_gc_host_submit(gc, &q, sizeof(q.r) + bytes, ROOM, c);
}

static void submit_start(struct call *c, u32 epoch, u16 flags)
{
	struct virtio_gc_region list[REGIONS] = { 0 };

	for (u32 i = 0; i < REGIONS; i++) {
		list[i].region = htole32(i);
		list[i].top = htole64((i + 1) * REGION);
	}
	submit(c, VIRTIO_GC_TRACE_START, epoch, flags, list, sizeof(list),
	       REGIONS);
}

static u32 ask(u16 command, u32 epoch)
{
	struct virtio_gc_met met = { .max = htole32(1) };
	bool has = command == VIRTIO_GC_TRACE_MET;
	struct call c;

	submit(&c, command, epoch, 0, &met, has ? sizeof(met) : 0, 0);
	return wait_for(&c);
}

static int up(void **state)
{
	const struct dcm_gc_backend backend = {
		.ops = &backend_ops,
		.donors = 3,
		.bytes = REGIONS * REGION,
		.extent = REGION,
	};
	static const struct dcm_gc_host_ops ops = { .answered = answered };
	const struct virtio_gc_space space = {
		.bytes = htole64(REGIONS * REGION),
		.region_bytes = htole64(REGION),
		.address = htole64(1ull << 40),
		.ref_bytes = 8,
		.type_bytes = 4,
		.type_mask = htole32(0xffff),
	};
	struct call c;
	char err[256];

	(void)state;
	gc = dcm_gc_host_new(&backend, &ops, NULL, err, sizeof(err));
	if (!gc)
		return -1;
	dcm_gc_host_start(gc, dcm_gc_host_features(gc));
	world.sync = VIRTIO_GC_OK;
	world.start = VIRTIO_GC_OK;
	world.moving = 0;
	world.nowhere = 0;
	world.losing = 0;
	submit(&c, VIRTIO_GC_SPACE_CREATE, 0, 0, &space, sizeof(space), 0);
	return (int)wait_for(&c);
}

static int down(void **state)
{
	(void)state;
	stop(false);
	dcm_gc_host_close(gc);
	return 0;
}

/* ---- tests ---- */

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
				    VIRTIO_GC_TRACE_FINISH };
	static u32 epoch = 10;
	struct call c;

	world.sync = sync;
	world.start = start;
	epoch++;
	submit_start(&c, epoch, VIRTIO_GC_TRACE_CONCURRENT);
	assert_int_equal(wait_for(&c), VIRTIO_GC_OK);
	for (u32 i = 0; i < 3; i++) {
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
		cmocka_unit_test_setup_teardown(test_moving_for_ever, up, down),
		cmocka_unit_test_setup_teardown(test_bad_start, up, down),
		cmocka_unit_test_setup_teardown(test_cancel_is_too_late, up,
						down),
		cmocka_unit_test_setup_teardown(test_lost_page_by_page, up,
						down),
		cmocka_unit_test_setup_teardown(test_reset_meanwhile, up, down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

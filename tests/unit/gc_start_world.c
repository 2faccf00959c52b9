// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * gc_start_world.c - the host side of a space whose pages and workers a test
 * commands; see gc_start_world.h
 *
 * Defines what gc/queue.c calls of the client and of its workers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <endian.h>
#include <string.h>
#include <cmocka.h>

#include "gc_start_world.h"

#define ROOM 4096u

struct gc_start_world world = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.moved = PTHREAD_COND_INITIALIZER,
};

struct dcm_gc_host *gc;

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

static u32 backend_sync(void *priv, u64 *at, u64 end, enum dcm_gc_sync how,
			u64 until_ms)
{
	u32 status;

	(void)priv;
	(void)until_ms;
	assert_int_not_equal(how, DCM_GC_SYNC_OUT);
	pthread_mutex_lock(&world.lock);
	world.how = how;
	assert_int_equal(world.losing, 0);
	world.syncing = true;
	pthread_cond_broadcast(&world.moved);
	while (world.stop)
		pthread_cond_wait(&world.moved, &world.lock);
	world.syncing = false;
	world.nr_synced++;
	world.synced_bytes += end - *at;
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

static void backend_forget(void *priv, u64 at, u64 bytes)
{
	(void)priv;
	(void)at;
	(void)bytes;
}

static u64 backend_budget(void *priv)
{
	(void)priv;
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
	.forget = backend_forget,
	.budget = backend_budget,
	.end = backend_end,
};

void stop(bool on)
{
	pthread_mutex_lock(&world.lock);
	world.stop = on;
	pthread_cond_broadcast(&world.moved);
	pthread_mutex_unlock(&world.lock);
}

void wait_syncing(void)
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

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t done = PTHREAD_COND_INITIALIZER;

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

bool is_done(struct call *c)
{
	bool is;

	pthread_mutex_lock(&lock);
	is = c->done;
	pthread_mutex_unlock(&lock);
	return is;
}

u32 wait_for(struct call *c)
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

void submit(struct call *c, u16 command, u32 epoch, u16 flags, const void *more,
	    size_t bytes, u32 count)
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

void submit_start(struct call *c, u32 epoch, u16 flags)
{
	struct virtio_gc_region list[REGIONS] = { 0 };

	for (u32 i = 0; i < REGIONS; i++) {
		list[i].region = htole32(i);
		list[i].top = htole64((i + 1) * REGION);
	}
	submit(c, VIRTIO_GC_TRACE_START, epoch, flags, list, sizeof(list),
	       REGIONS);
}

u32 ask(u16 command, u32 epoch)
{
	struct virtio_gc_met met = { .max = htole32(1) };
	bool has = command == VIRTIO_GC_TRACE_MET;
	struct call c;

	submit(&c, command, epoch, 0, &met, has ? sizeof(met) : 0, 0);
	return wait_for(&c);
}

struct dcm_gc_host *host_new(u64 hidden)
{
	const struct dcm_gc_backend backend = {
		.ops = &backend_ops,
		.donors = 3,
		.bytes = REGIONS * REGION,
		.extent = REGION,
		.hidden = hidden,
	};
	static const struct dcm_gc_host_ops ops = { .answered = answered };
	char err[256];

	return dcm_gc_host_new(&backend, &ops, NULL, err, sizeof(err));
}

int up(void **state)
{
	const struct virtio_gc_space space = {
		.bytes = htole64(REGIONS * REGION),
		.region_bytes = htole64(REGION),
		.address = htole64(1ull << 40),
		.ref_bytes = 8,
		.type_bytes = 4,
		.type_mask = htole32(0xffff),
	};
	struct call c;

	(void)state;
	gc = host_new(0);
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

int down(void **state)
{
	(void)state;
	stop(false);
	dcm_gc_host_close(gc);
	return 0;
}

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * slab_worker_world.c - a pager and a client that a test commands; see
 * slab_worker_world.h
 *
 * Defines what client/slab_worker.c calls of the client and of the log.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "slab_worker_world.h"

struct slab_worker_world world;
struct dcm_slab_worker worker;
struct dcm_slab_worker_ops ops;

/* ---- the client ---- */

void dcm_client_release(struct dcm_client *client, struct dcm_client_slab *slab)
{
	struct fake_slab *l = container_of(slab, struct fake_slab, slab);

	(void)client;
	assert_false(l->has);
	assert_int_equal(__atomic_add_fetch(&l->released, 1, __ATOMIC_SEQ_CST),
			 1);
}

void dcm_client_want_other(struct dcm_client *client,
			   struct dcm_client_slab *slab)
{
	(void)client;
	__atomic_add_fetch(&container_of(slab, struct fake_slab, slab)->others,
			   1, __ATOMIC_SEQ_CST);
}

void dcm_client_stale(struct dcm_client *client, struct dcm_client_slab *slab)
{
	(void)client;
	container_of(slab, struct fake_slab, slab)->stale++;
}

void dcm_log(enum dcm_log_level level, const char *fmt, ...)
{
	va_list ap;

	assert_true(level <= DCM_LOG_WARNING);
	va_start(ap, fmt);
	vsnprintf(world.line[world.lines++ % LINES], sizeof(world.line[0]), fmt,
		  ap);
	va_end(ap);
}

bool dcm_log_allow(struct dcm_log_rate *rate, uint64_t now, uint64_t every_ms)
{
	(void)now;
	assert_true(every_ms > 0);
	return !rate->held++;
}

/* ---- the pager ---- */

static struct fake_slab *fake_slab_of(struct dcm_slab_record *r)
{
	return container_of(r->slab, struct fake_slab, slab);
}

static void pager_wake(struct dcm_slab_worker *w)
{
	assert_non_null(w);
	__atomic_add_fetch(&world.wakes, 1, __ATOMIC_SEQ_CST);
}

static int pager_attach(struct dcm_slab_worker *w, struct dcm_slab_record *r)
{
	struct fake_slab *l = fake_slab_of(r);

	(void)w;
	assert_false(l->has);
	if (world.slabs_of[r->extent] == world.most)
		return -EAGAIN;
	if (world.attach)
		return world.attach;
	l->has = true;
	l->attached++;
	world.slabs_of[r->extent]++;
	return 0;
}

static bool pager_held(struct dcm_slab_worker *w, u32 extent)
{
	assert_true(extent < w->nr_extents);
	return world.held;
}

static void slab_drop(struct dcm_slab_record *r)
{
	fake_slab_of(r)->has = false;
	world.slabs_of[r->extent]--;
}

static int pager_move(struct dcm_slab_worker *w, struct dcm_slab_record *r)
{
	(void)w;
	assert_true(fake_slab_of(r)->has);
	if (!world.move)
		slab_drop(r);
	return world.move;
}

static int pager_fill(struct dcm_slab_worker *w, struct dcm_slab_record *r)
{
	assert_true(fake_slab_of(r)->has);
	assert_false(world.held);
	world.fills++;
	world.hurried += w->hurry;
	if (!world.fill && r->extent == 3)
		world.lag = 0;
	if (!world.fill && r->extent == world.thin)
		world.thin = EXTENTS;
	return world.fill;
}

static bool pager_thin(struct dcm_slab_worker *w, u32 extent)
{
	(void)w;
	assert_true(world.slabs_of[extent] > 0);
	return extent == world.thin;
}

static u64 pager_lag(struct dcm_slab_worker *w, u32 extent)
{
	(void)w;
	return extent == 3 ? world.lag : 0;
}

static void pager_lag_bound(struct dcm_slab_worker *w, u64 pages)
{
	(void)w;
	world.lag_bound = pages;
}

static s64 pager_lose(struct dcm_slab_worker *w, struct dcm_slab_record *r)
{
	(void)w;
	assert_true(fake_slab_of(r)->has);
	if (world.lose != -EAGAIN)
		slab_drop(r);
	return world.lose;
}

/* ---- slabs ---- */

static const struct dcm_host_donor donors[] = {
	{ .name = "near", .address = "unix:/run/d" },
	{ .name = "far", .address = "tcp:far:9740" },
};

int setup(void **state)
{
	(void)state;
	ops = (struct dcm_slab_worker_ops){
		.record_bytes = sizeof(struct dcm_slab_record) + 16,
		.wake = pager_wake,
		.attach = pager_attach,
		.held = pager_held,
		.move = pager_move,
		.fill = pager_fill,
		.thin = pager_thin,
		.lag = pager_lag,
		.lag_bound = pager_lag_bound,
		.lose = pager_lose,
	};
	memset(&worker, 0, sizeof(worker));
	world = (struct slab_worker_world){ .thin = EXTENTS, .most = 2 };
	return dcm_slab_worker_init(&worker, &ops, "VM test", "block", EXTENTS);
}

int teardown(void **state)
{
	(void)state;
	dcm_slab_worker_free(&worker);
	while (world.nr_fakes)
		free(world.fakes[--world.nr_fakes]);
	return 0;
}

struct fake_slab *fake_slab_new(u32 extent, u32 donor)
{
	struct fake_slab *l = calloc(1, sizeof(*l));

	assert_non_null(l);
	l->slab.extent = extent;
	l->slab.donor = donor;
	l->slab.ref.id = 1000 + world.nr_fakes;
	world.fakes[world.nr_fakes++] = l;
	return l;
}

struct fake_slab *fake_slab_lend(u32 extent, u32 donor)
{
	struct fake_slab *l = fake_slab_new(extent, donor);

	dcm_slab_worker_attached(&worker, extent, &l->slab);
	return l;
}

void lose(struct fake_slab *l)
{
	dcm_slab_worker_lost(&worker, &l->slab, &donors[l->slab.donor]);
}

void rounds(void)
{
	int ms;

	while ((ms = dcm_slab_worker_round(&worker)) >= 0)
		usleep((useconds_t)ms * 1000);
}

bool where_is(const struct fake_slab *l)
{
	u32 donor;
	u64 id;

	return dcm_slab_worker_where(&worker, l->slab.extent, &donor, &id) &&
	       donor == l->slab.donor && id == l->slab.ref.id;
}

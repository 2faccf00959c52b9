// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * gc_queue_test.c - the host side of virtio-gc: every request is answered, and
 * only valid ones change anything
 *
 * The window is plain memory; the functions below stand for its pager.
 */
/* links: kvm-dcm/gc/queue.c kvm-dcm/gc/command.c kvm-dcm/gc/api.c kvm-dcm/gc/space.c kvm-dcm/lib/thread.c kvm-dcm/proto/gc_request.c */
#include <setjmp.h>
#include <stdbool.h>
#include <time.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <endian.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "../../kvm-dcm/include/libdcm_gc.h"
#include "gc_no_donors.h"

#define EXTENT	(2ul << 20)
#define WINDOW	(8 * EXTENT)
#define ROOM	4096u

/* ---- the pager ---- */

struct dcm_pager {
	pthread_mutex_t lock;
	pthread_cond_t moved;
	char *base;
	bool hold;		/* discards wait while this is set */
	uint32_t inside;	/* discards that wait */
	uint64_t discarded;
};

static struct dcm_pager pager = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.moved = PTHREAD_COND_INITIALIZER,
};

uint64_t dcm_pager_extent(struct dcm_pager *p, const void *addr)
{
	return ((const char *)addr - p->base) % EXTENT ? 0 : EXTENT;
}

uint32_t dcm_pager_donors(struct dcm_pager *p)
{
	(void)p;
	return 3;
}

int dcm_pager_discard(struct dcm_pager *p, void *addr, size_t bytes)
{
	pthread_mutex_lock(&p->lock);
	p->inside++;
	pthread_cond_broadcast(&p->moved);
	while (p->hold)
		pthread_cond_wait(&p->moved, &p->lock);
	p->inside--;
	memset(addr, 0, bytes);
	p->discarded += bytes;
	pthread_mutex_unlock(&p->lock);
	return 0;
}

static void hold(bool on)
{
	pthread_mutex_lock(&pager.lock);
	pager.hold = on;
	pthread_cond_broadcast(&pager.moved);
	pthread_mutex_unlock(&pager.lock);
}

static void wait_inside(void)
{
	pthread_mutex_lock(&pager.lock);
	while (!pager.inside)
		pthread_cond_wait(&pager.moved, &pager.lock);
	pthread_mutex_unlock(&pager.lock);
}

/* ---- the device ---- */

struct call {
	bool done;
	size_t bytes;
	uint32_t order;
	struct virtio_gc_done d;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t done = PTHREAD_COND_INITIALIZER;
static uint32_t answers;
static struct dcm_gc_host *gc;

static void answered(void *priv, void *token, const void *answer, size_t bytes)
{
	struct call *c = token;

	assert_ptr_equal(priv, &pager);
	pthread_mutex_lock(&lock);
	assert_false(c->done);
	c->done = true;
	c->bytes = bytes;
	c->order = ++answers;
	if (bytes)
		memcpy(&c->d, answer, sizeof(c->d));
	pthread_cond_broadcast(&done);
	pthread_mutex_unlock(&lock);
}

static uint32_t changes;

static void config_changed(void *priv)
{
	assert_ptr_equal(priv, &pager);
	changes++;
}

static const struct dcm_gc_host_ops ops = { .answered = answered,
					    .config_changed = config_changed };

static uint32_t wait_for(struct call *c)
{
	pthread_mutex_lock(&lock);
	while (!c->done)
		pthread_cond_wait(&done, &lock);
	pthread_mutex_unlock(&lock);
	if (c->bytes) {
		assert_int_equal(c->bytes, sizeof(c->d));
		assert_int_equal(c->d.count, 0);
		assert_int_equal(le32toh(c->d.donor), VIRTIO_GC_NO_DONOR);
	}
	return le32toh(c->d.status);
}

struct request {
	struct virtio_gc_req r;
	union {
		struct virtio_gc_space space;
		struct virtio_gc_cancel cancel;
		uint8_t more[64];
	} u;
} __attribute__((packed));

static struct request request(uint16_t command, uint32_t space)
{
	struct request q;

	memset(&q, 0, sizeof(q));
	q.r.command = htole16(command);
	q.r.space = htole32(space);
	return q;
}

static uint32_t ask(const struct request *q, size_t more)
{
	struct call c = { 0 };

	dcm_gc_host_submit(gc, q, sizeof(q->r) + more, ROOM, &c);
	return wait_for(&c);
}

static struct request create(uint32_t id, uint64_t window, uint64_t bytes)
{
	struct request q = request(VIRTIO_GC_SPACE_CREATE, id);

	q.u.space.window = htole64(window);
	q.u.space.bytes = htole64(bytes);
	q.u.space.region_bytes = htole64(64 << 10);
	q.u.space.address = htole64(1ull << 40);
	q.u.space.ref_bytes = 8;
	q.u.space.type_bytes = 4;
	q.u.space.type_mask = htole32(0xffff);
	return q;
}

static uint32_t ask_create(const struct request *q)
{
	return ask(q, sizeof(q->u.space));
}

static uint32_t ask_destroy(uint32_t id)
{
	struct request q = request(VIRTIO_GC_SPACE_DESTROY, id);

	return ask(&q, 0);
}

static int up(void **state)
{
	char err[256];

	(void)state;
	pager.base = aligned_alloc(EXTENT, WINDOW);
	memset(pager.base, 0, WINDOW);
	pager.discarded = 0;
	gc = dcm_gc_host_open(&pager, pager.base, WINDOW, &ops, &pager, err,
			      sizeof(err));
	return gc ? 0 : -1;
}

static int down(void **state)
{
	(void)state;
	dcm_gc_host_close(gc);
	free(pager.base);
	return 0;
}

/* ---- tests ---- */

static void test_open_refuses(void **state)
{
	char err[256] = "";

	(void)state;
	assert_null(dcm_gc_host_open(&pager, pager.base, EXTENT + 4096, &ops,
				     &pager, err, sizeof(err)));
	assert_non_null(strstr(err, "whole extents"));
	assert_null(dcm_gc_host_open(&pager, pager.base + 4096, EXTENT, &ops,
				     &pager, err, sizeof(err)));
	assert_null(dcm_gc_host_open(&pager, pager.base, 0, &ops, &pager, err,
				     sizeof(err)));
}

#define F(name) (1ull << VIRTIO_GC_F_##name)

static void test_config(void **state)
{
	struct request q = create(1, 0, 1 << 20);
	struct virtio_gc_config c = { .budget_mib = 7, .reserved = 8 };
	struct virtio_gc_config later = c;
	uint64_t min, max, features;

	(void)state;
	dcm_gc_host_config(gc, &c);
	min = le64toh(c.region_bytes_min);
	max = le64toh(c.region_bytes_max);
	assert_int_equal(le64toh(c.window_bytes), WINDOW);
	/* [VGC-D-3] */
	assert_true(min >= 4096 && !(min & (min - 1)) && !(max & (max - 1)));
	assert_int_equal(le64toh(c.window_bytes) % max, 0);
	assert_int_equal(le32toh(c.donors), 3);
	/* a program may have been built when that was all */
	assert_int_equal(c.budget_mib, 7);
	assert_int_equal(c.reserved, 8);
	/* nor does anything that is asked change any of it [VGC-D-3] */
	assert_int_equal(ask_create(&q), VIRTIO_GC_OK);
	assert_int_equal(ask_destroy(1), VIRTIO_GC_OK);
	dcm_gc_host_config(gc, &later);
	assert_memory_equal(&later, &c, sizeof(c));
	/* no feature without donors, nor without the features it depends on */
	assert_int_equal(dcm_gc_host_features(gc), 0);
	features = dcm_gc_config_fill(3, 2 * EXTENT, EXTENT, &c);
	/* [VGC-D-1] */
	assert_true(features & F(TRACE) ||
		    !(features & ~(F(HINTS) | F(BUDGET))));
	assert_true(features & F(EVACUATE) || !(features & F(COMPACT)));
	assert_true(features & F(HINTS) || !(features & F(FETCH)));
	assert_int_equal(le64toh(c.window_bytes), 2 * EXTENT);
}

/* The device hears of another budget at the latest with the next request. */
static void test_the_budget_changes(void **state)
{
	struct request q = create(1, 0, 1 << 20);

	(void)state;
	changes = 0;
	assert_int_equal(ask_create(&q), VIRTIO_GC_OK);
	assert_int_equal(changes, 0);
	__atomic_store_n(&budget_bytes, 64ull << 20, __ATOMIC_SEQ_CST);
	assert_int_equal(dcm_gc_host_budget(gc), 64ull << 20);
	assert_int_equal(ask_destroy(1), VIRTIO_GC_OK);
	/* [VGC-D-4] */
	assert_int_equal(changes, 1);
	assert_int_equal(ask_create(&q), VIRTIO_GC_OK);
	assert_int_equal(changes, 1);
}

/* Each condition by itself, from a request that is right */
static void test_create_refuses(void **state)
{
	struct request q;
	uint32_t most;
	struct virtio_gc_config c;

	(void)state;
#define WRONG(change)                                                      \
	do {                                                               \
		q = create(1, 0, 1 << 20);                                 \
		change;                                                    \
		assert_int_equal(ask_create(&q), VIRTIO_GC_INVALID);       \
	} while (0)
	dcm_gc_host_config(gc, &c);
	most = le32toh(c.spaces_max);
	/* [VGC-D-14] */
	WRONG(q.r.space = htole32(most));
	WRONG(q.r.space = ~0u);
	WRONG(q.u.space.bytes = 0);
	WRONG(q.u.space.bytes = htole64((1 << 20) + 4096));
	WRONG(q.u.space.window = htole64(4096));
	WRONG(q.u.space.window = htole64(WINDOW));
	WRONG(q.u.space.window = htole64(WINDOW - (64 << 10)));
	WRONG(q.u.space.window = htole64(-(1ull << 20)));
	WRONG(q.u.space.bytes = htole64(-(1ull << 20)));
	WRONG(q.u.space.address = htole64((1ull << 40) + 4096));
	WRONG(q.u.space.address = htole64(-(64ull << 10)));
	WRONG(q.u.space.region_bytes = htole64(3 << 16));
	WRONG(q.u.space.region_bytes = 0);
	WRONG(q.u.space.region_bytes = htole64(4096));
	WRONG(q.u.space.region_bytes = htole64(2 * EXTENT));
	WRONG(q.u.space.ref_bytes = 2);
	WRONG(q.u.space.ref_bytes = 0);
	WRONG(q.u.space.ref_shift = 9);
	WRONG(q.u.space.type_bytes = 3);
	WRONG(q.u.space.type_bytes = 0);
	WRONG(q.u.space.type_shift = 32);
	WRONG(q.u.space.type_offset = htole16(2));
	WRONG(q.u.space.type_mask = 0);
	WRONG(q.u.space.flags = 2);
	WRONG(q.u.space.reserved = 1);
	WRONG(q.u.space.reserved2 = 1);
	WRONG(q.r.reserved = 1);
	WRONG(q.r.count = htole32(1));
	WRONG(q.r.epoch = htole32(1));
#undef WRONG
	q = create(1, 0, 1 << 20);
	assert_int_equal(ask_create(&q), VIRTIO_GC_OK);
	assert_int_equal(ask_create(&q), VIRTIO_GC_INVALID);
}

static void test_overlap(void **state)
{
	struct request q = create(1, 1 << 20, 1 << 20);

	(void)state;
	assert_int_equal(ask_create(&q), VIRTIO_GC_OK);
	q = create(2, (1 << 20) - (64 << 10), 128 << 10);
	assert_int_equal(ask_create(&q), VIRTIO_GC_INVALID);
	q = create(2, 0, WINDOW);
	assert_int_equal(ask_create(&q), VIRTIO_GC_INVALID);
	q = create(2, (1 << 20) + (64 << 10), 64 << 10);
	assert_int_equal(ask_create(&q), VIRTIO_GC_INVALID);
	/* side by side */
	q = create(2, 0, 1 << 20);
	assert_int_equal(ask_create(&q), VIRTIO_GC_OK);
	q = create(3, 2 << 20, 1 << 20);
	assert_int_equal(ask_create(&q), VIRTIO_GC_OK);
}

static void test_destroy(void **state)
{
	struct request q = create(7, 1 << 20, 1 << 20);

	(void)state;
	/* [VGC-D-15] */
	assert_int_equal(ask_destroy(7), VIRTIO_GC_INVALID);
	assert_int_equal(ask_create(&q), VIRTIO_GC_OK);
	memset(pager.base, 0x55, WINDOW);
	assert_int_equal(ask_destroy(7), VIRTIO_GC_OK);
	/* [VGC-D-17] */
	assert_int_equal(pager.base[(1 << 20) - 1], 0x55);
	assert_int_equal(pager.base[1 << 20], 0);
	assert_int_equal(pager.base[(2 << 20) - 1], 0);
	assert_int_equal(pager.base[2 << 20], 0x55);
	assert_int_equal(ask_destroy(7), VIRTIO_GC_INVALID);
	assert_int_equal(ask_create(&q), VIRTIO_GC_OK);
}

/* Every length of every command number, every flag */
static void test_shapes(void **state)
{
	uint8_t *big = calloc(1, (1 << 20) + 1);
	struct request q;
	struct call c;
	uint32_t command, bytes, status;

	(void)state;
	for (command = 0; command < 80; command++) {
		q = create(1, 0, 1 << 20);
		q.r.command = htole16((uint16_t)command);
		for (bytes = 0; bytes <= sizeof(q); bytes++) {
			if (command == VIRTIO_GC_SPACE_CREATE &&
			    bytes == sizeof(q.r) + sizeof(q.u.space))
				continue;
			memset(&c, 0, sizeof(c));
			dcm_gc_host_submit(gc, &q, bytes, ROOM, &c);
			status = wait_for(&c);
			/* [VGC-D-2] [VGC-D-8] */
			assert_true(status == VIRTIO_GC_INVALID ||
				    status == VIRTIO_GC_UNSUPPORTED);
			assert_true(bytes >= sizeof(q.r) ||
				    status == VIRTIO_GC_INVALID);
		}
	}
	q = create(1, 0, 1 << 20);
	q.r.flags = htole16(1);
	assert_int_equal(ask_create(&q), VIRTIO_GC_UNSUPPORTED);
	memcpy(big, &q, sizeof(q));
	memset(&c, 0, sizeof(c));
	dcm_gc_host_submit(gc, big, (1 << 20) + 1, ROOM, &c);
	assert_int_equal(wait_for(&c), VIRTIO_GC_INVALID);
	free(big);
	/* None of it made a space. */
	assert_int_equal(ask_destroy(1), VIRTIO_GC_INVALID);
}

static void test_no_room(void **state)
{
	struct request q = create(1, 0, 1 << 20);
	struct call c = { 0 };

	(void)state;
	dcm_gc_host_submit(gc, &q, sizeof(q.r) + sizeof(q.u.space),
			   sizeof(struct virtio_gc_done) - 1, &c);
	wait_for(&c);
	/* [VGC-D-9] */
	assert_int_equal(c.bytes, 0);
	assert_int_equal(ask_destroy(1), VIRTIO_GC_INVALID);
}

/* commands_max requests may be under way at once; any more are refused with LIMIT. */
static void test_too_many(void **state)
{
	struct request q = create(1, 0, 1 << 20);
	struct virtio_gc_config conf;
	struct call *c;
	uint32_t n, i, refused = 0;

	(void)state;
	dcm_gc_host_config(gc, &conf);
	n = le32toh(conf.commands_max);
	c = calloc(n + 5, sizeof(*c));
	assert_int_equal(ask_create(&q), VIRTIO_GC_OK);
	hold(true);
	q = request(VIRTIO_GC_SPACE_DESTROY, 1);
	for (i = 0; i < n + 5; i++)
		dcm_gc_host_submit(gc, &q, sizeof(q.r), ROOM, &c[i]);
	wait_inside();
	hold(false);
	for (i = 0; i < n + 5; i++)
		refused += wait_for(&c[i]) == VIRTIO_GC_LIMIT;
	/* [VGC-D-10] */
	assert_int_equal(refused, 5);
	assert_int_equal(le32toh(c[0].d.status), VIRTIO_GC_OK);
	free(c);
	/* And they are available again. */
	q = create(1, 0, 1 << 20);
	assert_int_equal(ask_create(&q), VIRTIO_GC_OK);
}

static void test_cancel(void **state)
{
	struct request q = create(1, 0, 1 << 20);
	struct call a = { 0 }, b = { 0 }, c = { 0 };

	(void)state;
	assert_int_equal(ask_create(&q), VIRTIO_GC_OK);
	q = create(2, 1 << 20, 1 << 20);
	assert_int_equal(ask_create(&q), VIRTIO_GC_OK);
	hold(true);
	q = request(VIRTIO_GC_SPACE_DESTROY, 1);
	dcm_gc_host_submit(gc, &q, sizeof(q.r), ROOM, &a);
	wait_inside();
	q = request(VIRTIO_GC_SPACE_DESTROY, 2);
	q.r.tag = htole64(77);
	dcm_gc_host_submit(gc, &q, sizeof(q.r), ROOM, &b);
	q = request(VIRTIO_GC_CANCEL, 2);
	q.u.cancel.tag = htole64(77);
	dcm_gc_host_submit(gc, &q, sizeof(q.r) + sizeof(q.u.cancel), ROOM, &c);
	hold(false);
	/* [VGC-D-48] */
	assert_int_equal(wait_for(&c), VIRTIO_GC_OK);
	assert_int_equal(wait_for(&b), VIRTIO_GC_CANCELLED);
	assert_int_equal(wait_for(&a), VIRTIO_GC_OK);
	assert_true(b.order < c.order);
	/* of another space: nothing is cancelled; of none: INVALID */
	assert_int_equal(ask(&q, sizeof(q.u.cancel)), VIRTIO_GC_OK);
	q.r.space = htole32(1);
	assert_int_equal(ask(&q, sizeof(q.u.cancel)), VIRTIO_GC_INVALID);
	assert_int_equal(ask_destroy(2), VIRTIO_GC_OK);
}

/* CANCELs with a tag that the next one names: nothing cancels a CANCEL */
static void test_cancels_of_cancels(void **state)
{
	struct request q = create(1, 0, 1 << 20);

	(void)state;
	assert_int_equal(ask_create(&q), VIRTIO_GC_OK);
	q = request(VIRTIO_GC_CANCEL, 1);
	for (u32 round = 0; round < 2000; round++) {
		struct call c[8] = { 0 };

		for (u32 i = 0; i < 8; i++)
			dcm_gc_host_submit(gc, &q,
					   sizeof(q.r) + sizeof(q.u.cancel),
					   ROOM, &c[i]);
		for (u32 i = 0; i < 8; i++)
			assert_int_equal(wait_for(&c[i]), VIRTIO_GC_OK);
	}
	assert_int_equal(ask_destroy(1), VIRTIO_GC_OK);
}

/* A request that has waited beyond its deadline is not begun */
static void test_deadline(void **state)
{
	struct request q = create(1, 0, 1 << 20);
	struct call a = { 0 }, b = { 0 };
	struct timespec ms = { .tv_nsec = 3000000 };

	(void)state;
	assert_int_equal(ask_create(&q), VIRTIO_GC_OK);
	hold(true);
	q = request(VIRTIO_GC_SPACE_DESTROY, 1);
	dcm_gc_host_submit(gc, &q, sizeof(q.r), ROOM, &a);
	wait_inside();
	q = create(2, 1 << 20, 1 << 20);
	q.r.deadline_ms = htole32(1);
	dcm_gc_host_submit(gc, &q, sizeof(q.r) + sizeof(q.u.space), ROOM, &b);
	nanosleep(&ms, NULL);
	hold(false);
	/* [VGC-D-7] */
	assert_int_equal(wait_for(&b), VIRTIO_GC_TIMED_OUT);
	assert_int_equal(wait_for(&a), VIRTIO_GC_OK);
	assert_int_equal(ask_destroy(2), VIRTIO_GC_INVALID);
}

static void *release(void *arg)
{
	(void)arg;
	wait_inside();
	hold(false);
	return NULL;
}

/* With one running and others waiting */
static void test_reset(void **state)
{
	struct request q = create(1, 0, 1 << 20);
	struct call a = { 0 }, b[8] = { 0 };
	pthread_t t;
	uint32_t i;

	(void)state;
	assert_int_equal(ask_create(&q), VIRTIO_GC_OK);
	memset(pager.base, 0x55, WINDOW);
	hold(true);
	q = request(VIRTIO_GC_SPACE_DESTROY, 1);
	dcm_gc_host_submit(gc, &q, sizeof(q.r), ROOM, &a);
	wait_inside();
	for (i = 0; i < 8; i++) {
		q = create(i + 2, (i + 2) << 20, 1 << 20);
		dcm_gc_host_submit(gc, &q, sizeof(q.r) + sizeof(q.u.space),
				   ROOM, &b[i]);
	}
	assert_int_equal(pthread_create(&t, NULL, release, NULL), 0);
	dcm_gc_host_reset(gc);
	pthread_join(t, NULL);
	assert_true(a.done);
	for (i = 0; i < 8; i++) {
		uint32_t status;

		/* Before reset returned; begun by then or not. [VGC-D-5] */
		assert_true(b[i].done);
		status = wait_for(&b[i]);
		assert_true(status == VIRTIO_GC_OK ||
			    status == VIRTIO_GC_CANCELLED);
		assert_int_equal(ask_destroy(i + 2), VIRTIO_GC_INVALID);
	}
	for (i = 0; i < WINDOW; i++)
		assert_int_equal(pager.base[i], 0);
	q = create(1, 0, WINDOW);
	assert_int_equal(ask_create(&q), VIRTIO_GC_OK);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_open_refuses, up, down),
		cmocka_unit_test_setup_teardown(test_config, up, down),
		cmocka_unit_test_setup_teardown(test_the_budget_changes, up,
						down),
		cmocka_unit_test_setup_teardown(test_create_refuses, up, down),
		cmocka_unit_test_setup_teardown(test_overlap, up, down),
		cmocka_unit_test_setup_teardown(test_destroy, up, down),
		cmocka_unit_test_setup_teardown(test_shapes, up, down),
		cmocka_unit_test_setup_teardown(test_no_room, up, down),
		cmocka_unit_test_setup_teardown(test_too_many, up, down),
		cmocka_unit_test_setup_teardown(test_cancel, up, down),
		cmocka_unit_test_setup_teardown(test_cancels_of_cancels, up,
						down),
		cmocka_unit_test_setup_teardown(test_deadline, up, down),
		cmocka_unit_test_setup_teardown(test_reset, up, down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

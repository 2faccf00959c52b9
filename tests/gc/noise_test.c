// SPDX-License-Identifier: GPL-2.0-or-later
/* noise_test.c - heaps of random words, and heaps that another writes meanwhile */
#include <endian.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "mutator.h"
#include "raw_heap.h"

#define HEAPS	(getenv("GC_HEAPS") ? (u32)atoi(getenv("GC_HEAPS")) : 1500u)
#ifdef __SANITIZE_THREAD__
#define TSAN	1
#else
#define TSAN	0
#endif

/* Anything: traced, moved, updated; some status, in the end. */
static void test_noise(void **state)
{
	u32 statuses[VIRTIO_GC_STATUSES] = { 0 };
	struct mut rng = { .rng = 20261121 };

	(void)state;
	for (u32 i = 0; i < HEAPS; i++) {
		struct virtio_gc_move move = {
			.to = htole32(2),
			.start = htole64(2 * REGION),
			.table = htole64(3 * REGION),
			.table_bytes = htole64(REGION),
		};
		struct virtio_gc_moved moved;
		struct dcm_gc_result got;
		struct heap h;
		u64 updated;

		heap_make(&h, 4, REGION, i & 1);
		for (u64 at = 0; at < h.bytes; at += 8) {
			u64 r = mut_rand(&rng), v = r;

			switch (r >> 32 & 7) {
			case 0:
			case 1:
			case 2:
				v = r & 4;
				v = v ? v : 1 + (r & 3);
				break;
			case 3:
				v = r % 64;
				break;
			case 4:
			case 5:
			case 6:
				v = ADDRESS + r % h.bytes / 8 * 8;
				break;
			}
			put(&h, at, v);
		}
		got = trace(&h, 1, 1 + i % 2, 0);
		statuses[got.status]++;
		if (!got.status) {
			dcm_gc_move(h.s, 1, &move, i & 1, &moved);
			dcm_gc_update(h.s, h.list, h.regions, NULL, &updated);
		}
		heap_free(&h);
	}
	assert_true(statuses[VIRTIO_GC_BAD_TYPE]);
	assert_true(statuses[VIRTIO_GC_BAD_OBJECT]);
	printf("# noise: ok %u, type %u, object %u, reference %u\n",
	       statuses[VIRTIO_GC_OK], statuses[VIRTIO_GC_BAD_TYPE],
	       statuses[VIRTIO_GC_BAD_OBJECT],
	       statuses[VIRTIO_GC_BAD_REFERENCE]);
}

struct flipper {
	struct heap *h;
	u32 stop;
};

static void *flip(void *arg)
{
	struct flipper *f = arg;
	struct mut rng = { .rng = 77 };

	while (!__atomic_load_n(&f->stop, __ATOMIC_RELAXED)) {
		u64 r = mut_rand(&rng), v = 1 + (r >> 40 & 3);

		switch (r >> 61) {
		case 0:
			v = ADDRESS + r % f->h->bytes / 8 * 8;
			break;
		case 1:
			v = r % 9000;
			break;
		case 2:
			v = 0;
			break;
		}
		WRITE_ONCE(((u64 *)f->h->memory)[r % (f->h->bytes / 8)],
			   htole64(v));
	}
	return NULL;
}

/* Another writes the heap all the while, sizes and types too. */
static void test_shifting(void **state)
{
	u32 ok = 0, bad = 0;

	(void)state;
	for (u32 i = 0; i < HEAPS / 30; i++) {
		struct virtio_gc_move move = {
			.to = htole32(2),
			.start = htole64(2 * REGION),
			.table = htole64(3 * REGION),
			.table_bytes = htole64(REGION),
		};
		struct virtio_gc_moved moved;
		struct flipper f = { 0 };
		pthread_t thread;
		struct heap h;
		u64 updated;

		heap_make(&h, 4, REGION, 1);
		f.h = &h;
		/* lists of nodes, to begin with */
		for (u64 at = 0; at < h.bytes; at += 16) {
			put(&h, at, NODE);
			put(&h, at + 8, ADDRESS + (at + 48) % h.bytes);
		}
		assert_int_equal(pthread_create(&thread, NULL, flip, &f), 0);
		for (u32 epoch = 1; epoch < 20; epoch++) {
			if (trace(&h, epoch, 2, epoch * 16).status) {
				bad++;
				continue;
			}
			ok++;
			/* copying is memcpy(): this race is intended */
			if (TSAN)
				continue;
			dcm_gc_move(h.s, epoch, &move, epoch & 1, &moved);
			dcm_gc_update(h.s, h.list, h.regions, NULL, &updated);
			dcm_gc_release(h.s, 0);
		}
		__atomic_store_n(&f.stop, 1, __ATOMIC_RELAXED);
		pthread_join(thread, NULL);
		heap_free(&h);
	}
	printf("# shifting: %u traces ended well, %u not\n", ok, bad);
	assert_true(ok + bad);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_noise),
		cmocka_unit_test(test_shifting),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

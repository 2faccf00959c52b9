// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * gc_state_test.c - a host follows a trace without waiting for it: real donors
 *
 * It asks whether the trace is quiet, and takes types, opaque and weak objects as
 * they are met.
 */
#include <endian.h>
#include <stdlib.h>

#include "gc_world.h"

/* One root of the first trace; others may follow. */
static void first_root_send(struct world *w)
{
	__le64 root = mut_address_le(w->m, mut_root(w->m));

	assert_int_equal(request(w, VIRTIO_GC_TRACE_ROOTS, 0, 1, 1, NULL, 0,
				 &root, 8),
			 0);
}

/* Ask until the trace is quiet: how often it was not. */
static u32 state_wait(struct world *w, u32 epoch, u64 other)
{
	u32 times = 0;

	for (;; times++) {
		assert_int_equal(request(w, VIRTIO_GC_TRACE_STATE, 0, epoch, 0,
					 NULL, 0, NULL, 0),
				 0);
		assert_int_equal(w->out.done.value &
					 ~(u64)VIRTIO_GC_STATE_QUIET,
				 other);
		if (w->out.done.value & VIRTIO_GC_STATE_QUIET)
			return times;
		assert_true(times < 100000);
	}
}

/* Types that TRACE_MET has, a bit each; they come once. */
static u64 types_met(struct world *w, u32 epoch, u32 max)
{
	struct virtio_gc_met met = { .what = htole32(VIRTIO_GC_MET_TYPES),
				     .max = htole32(max) };
	const struct mut *m = w->m;
	u64 got = 0;

	do {
		const __le64 *id = (void *)w->out.entries;

		/* [VGC-D-63] */
		assert_int_equal(request(w, VIRTIO_GC_TRACE_MET, 0, epoch, 0,
					 &met, sizeof(met), NULL, 0),
				 0);
		for (u32 i = 0; i < w->out.done.count; i++)
			for (u32 k = 0; k < m->nr_types; k++)
				if (le32toh(m->types[k].le.id) ==
				    le64toh(id[i]))
					got |= 1ull << k;
	} while (w->out.done.value);
	return got;
}

/* Weak objects that have to be cleared, a few at a time; how many. */
static u32 clear_count(struct world *w, u32 epoch, u32 max)
{
	struct virtio_gc_met met = { .what = htole32(VIRTIO_GC_MET_CLEAR),
				     .max = htole32(max) };
	const struct mut *m = w->m;
	u16 flags = VIRTIO_GC_MET_AGAIN;
	u32 n = 0;

	do {
		const struct virtio_gc_weak *weak = (void *)w->out.entries;

		assert_int_equal(request(w, VIRTIO_GC_TRACE_MET, flags, epoch,
					 0, &met, sizeof(met), NULL, 0),
				 0);
		flags = 0;
		for (u32 i = 0; i < w->out.done.count; i++, n++) {
			u64 at = le64toh(weak[i].object) - m->l.address;
			u64 to = le64toh(weak[i].referent) - m->l.address;
			u32 o = m->at_unit[at / 8] - 1;
			u32 referent = m->types[m->objects[o].type].referent;

			/* [VGC-D-67] */
			assert_true(referent && w->live[o]);
			assert_int_equal(mut_read(m, at + referent), to);
			assert_false(w->live[m->at_unit[to / 8] - 1]);
		}
	} while (w->out.done.value);
	return n;
}

/* Taking opaque objects does not make a quiet trace busy. */
static void test_types_after_opaque_objects(void **state)
{
	struct virtio_gc_met opaque = { .max = htole32(1024) };
	struct world w;
	u64 is;
	u32 n;

	(void)state;
	world_donors(&w, false);
	world_heap(&w, 3);
	space_make(&w);
	assert_int_equal(trace_start(&w, 1), 0);
	first_root_send(&w);
	for (n = 0, is = 0; !(is & VIRTIO_GC_STATE_QUIET); n++) {
		assert_true(n < 100000);
		assert_int_equal(request(&w, VIRTIO_GC_TRACE_STATE, 0, 1, 0,
					 NULL, 0, NULL, 0),
				 0);
		is = w.out.done.value;
	}
	assert_true(is & VIRTIO_GC_STATE_MET);
	assert_int_equal(request(&w, VIRTIO_GC_TRACE_MET, 0, 1, 0, &opaque,
				 sizeof(opaque), NULL, 0),
			 0);
	assert_true(w.out.done.count > 0);
	/* [VGC-D-63] */
	assert_true(types_met(&w, 1, 64));
	/* [VGC-D-67] */
	opaque.what = htole32(VIRTIO_GC_MET_CLEAR);
	assert_int_equal(request(&w, VIRTIO_GC_TRACE_MET, 0, 1, 0, &opaque,
				 sizeof(opaque), NULL, 0),
			 0);
	world_heap_free(&w);
	world_donors_end(&w);
}

/* A trace is followed without waiting for it; types come as they are met. */
static void test_state(void **state)
{
	struct virtio_gc_met met = { .what = htole32(VIRTIO_GC_MET_TYPES),
				     .max = htole32(64) };
	const struct virtio_gc_range range = {
		.regions = htole32(1),
		.bitmaps = htole64(REGION / 64),
	};
	u64 objects = 0, types = 0, first, second;
	u32 dead = 0;
	struct world w;

	(void)state;
	world_donors(&w, false);
	world_heap(&w, 3);
	/* no object is opaque in this heap: its references were cleared */
	space_make(&w);
	assert_int_equal(trace_start(&w, 1), 0);
	first_root_send(&w);
	/* opaque objects wait meanwhile, or not */
	do {
		struct virtio_gc_met all = { .max = htole32(1024) };

		assert_int_equal(request(&w, VIRTIO_GC_TRACE_MET,
					 VIRTIO_GC_MET_WAIT, 1, 0, &all,
					 sizeof(all), NULL, 0),
				 0);
	} while (w.out.done.count);
	state_wait(&w, 1, 0);
	/* [VGC-D-62] */
	assert_true(w.out.done.at > 0);
	first = w.out.done.at;
	types = types_met(&w, 1, 2);
	assert_true(types);
	met.what = htole32(VIRTIO_GC_MET_CLEAR);
	assert_int_equal(request(&w, VIRTIO_GC_TRACE_MET, 0, 1, 0, &met,
				 sizeof(met), NULL, 0),
			 0);
	/* each came once */
	assert_int_equal(types_met(&w, 1, 2), 0);
	met.what = htole32(VIRTIO_GC_MET_WEAK);
	assert_int_equal(request(&w, VIRTIO_GC_TRACE_MET, 0, 1, 0, &met,
				 sizeof(met), NULL, 0),
			 VIRTIO_GC_BUSY);
	assert_int_equal(roots_send(&w, 1), 0);
	do {
		struct virtio_gc_met all = { .max = htole32(1024) };

		assert_int_equal(request(&w, VIRTIO_GC_TRACE_MET,
					 VIRTIO_GC_MET_WAIT, 1, 0, &all,
					 sizeof(all), NULL, 0),
				 0);
	} while (w.out.done.count);
	state_wait(&w, 1, 0);
	second = w.out.done.at;
	assert_true(second >= first);
	types |= types_met(&w, 1, 64);
	assert_int_equal(trace_finish(&w, 1), 0);
	types |= types_met(&w, 1, 1);
	for (u32 o = 0; o < w.m->nr_objects; o++) {
		objects += w.live[o];
		if (w.live[o])
			assert_true(types >> w.m->objects[o].type & 1);
	}
	/* all there are were met when it was quiet [VGC-D-62] */
	assert_int_equal(second, objects);
	results_check(&w, 1);
	for (u32 o = 0; o < w.m->nr_objects; o++) {
		u32 referent = w.m->types[w.m->objects[o].type].referent;
		u64 to = MUT_NULL;

		if (referent && w.live[o])
			to = mut_read(w.m, w.m->objects[o].at + referent);
		dead += to != MUT_NULL && !w.live[w.m->at_unit[to / 8] - 1];
	}
	/* [VGC-D-67] */
	assert_int_equal(clear_count(&w, 1, 3), dead);
	assert_int_equal(clear_count(&w, 1, 1000), dead);
	assert_true(dead);
	for (u32 o = 0; o < w.m->nr_objects; o += 999) {
		u32 n = min(w.m->nr_objects - o, 999u);
		__le64 a[999];

		for (u32 i = 0; i < n; i++)
			a[i] = mut_address_le(w.m, w.m->objects[o + i].at);
		assert_int_equal(request(&w, VIRTIO_GC_TRACE_ASK, 0, 1, n, NULL,
					 0, a, n * 8),
				 0);
		assert_int_equal(w.out.done.count, (n + 7) / 8);
		for (u32 i = 0; i < n; i++)
			/* [VGC-D-64] */
			assert_int_equal(w.out.entries[i / 8] >> i % 8 & 1,
					 w.live[o + i]);
	}
	/* without the feature nothing is said before the end */
	w.without = 1u << VIRTIO_GC_F_STATE;
	assert_int_equal(trace_start(&w, 2), 0);
	/* [VGC-D-65] */
	assert_int_equal(request(&w, VIRTIO_GC_TRACE_BITMAPS, 0, 2, 0, &range,
				 sizeof(range), NULL, 0),
			 VIRTIO_GC_BUSY);
	met.what = htole32(VIRTIO_GC_MET_TYPES);
	/* [VGC-D-63] */
	assert_int_equal(request(&w, VIRTIO_GC_TRACE_MET, 0, 2, 0, &met,
				 sizeof(met), NULL, 0),
			 VIRTIO_GC_BUSY);
	world_heap_free(&w);
	world_donors_end(&w);
}

/* A byte for each card of 512 bytes and region, and one for opaque objects. */
#define CARD_COLUMNS(m) ((m)->c.regions + 1)

/* The oracle: regions without large objects are sources, odd ones targets. */
static void cards_wanted(const struct world *w, u8 *want)
{
	const struct mut *m = w->m;

	for (u32 o = 0; o < m->nr_objects; o++) {
		const struct mut_object *at = &m->objects[o];
		const struct mut_type *t = &m->types[at->type];
		u64 slots = mut_slots(m, at);

		if (!w->live[o] || mut_is_whole(m, at))
			continue;
		if (t->flags & VIRTIO_GC_TYPE_OPAQUE) {
			want[at->at / 512 * CARD_COLUMNS(m) + m->c.regions] = 1;
			continue;
		}
		for (u64 i = 0; i < slots + !!t->referent; i++) {
			u64 slot = i < slots ? mut_slot(m, at, i) :
					       at->at + t->referent;
			u64 to = mut_read(m, slot);

			if (to != MUT_NULL && to / REGION != slot / REGION &&
			    to / REGION % 2)
				want[slot / 512 * CARD_COLUMNS(m) + to / REGION] =
					1;
		}
	}
}

static u32 cards_list(const struct mut *m, struct virtio_gc_region *list)
{
	u32 n = 0;

	for (u32 r = 0; r < m->c.regions; r++) {
		bool source = m->whole[r] == MUT_PARTS && m->top[r];
		u32 flags = (source ? VIRTIO_GC_REGION_SOURCE : 0) |
			    (r % 2 ? VIRTIO_GC_REGION_TARGET : 0);

		if (!flags)
			continue;
		list[n].region = htole32(r);
		list[n].flags = htole32(flags);
		list[n++].top =
			htole64(source ? (u64)r * REGION + m->top[r] : 0);
	}
	return n;
}

static u32 cards_ask(struct world *w, u32 epoch, u32 max,
		     const struct virtio_gc_region *list, u32 n)
{
	const struct virtio_gc_cards cards = { .max = htole32(max),
					       .shift = list ? 9 : 0 };

	return request(w, VIRTIO_GC_TRACE_CARDS,
		       list ? VIRTIO_GC_CARDS_BEGIN : 0, epoch, n, &cards,
		       sizeof(cards), list, n * sizeof(*list));
}

/* Three donors search at a time, and find all that the runtime does. */
static void test_cards(void **state)
{
	struct virtio_gc_region list[64];
	u8 *want, *got;
	struct world w;
	u32 n, said = 0;
	size_t bytes;

	(void)state;
	world_donors(&w, false);
	world_heap(&w, 3);
	space_make(&w);
	n = cards_list(w.m, list);
	assert_int_equal(trace_start(&w, 1), 0);
	/* [VGC-D-71] */
	assert_int_equal(cards_ask(&w, 1, 100, list, n), VIRTIO_GC_BUSY);
	assert_int_equal(roots_send(&w, 1), 0);
	assert_int_equal(trace_finish(&w, 1), 0);
	/* [VGC-D-71] */
	assert_int_equal(cards_ask(&w, 1, 100, NULL, 0), VIRTIO_GC_NO_TRACE);
	assert_int_equal(cards_ask(&w, 2, 100, list, n), VIRTIO_GC_NO_TRACE);
	/* [VGC-D-69] */
	assert_int_equal(cards_ask(&w, 1, DONORS - 1, list, n),
			 VIRTIO_GC_INVALID);
	bytes = w.m->l.bytes / 512 * CARD_COLUMNS(w.m);
	want = calloc(bytes, 1);
	got = calloc(bytes, 1);
	assert_true(want && got);
	cards_wanted(&w, want);
	assert_int_equal(cards_ask(&w, 1, 50, list, n), 0);
	for (;;) {
		const struct virtio_gc_card *c = (void *)w.out.entries;

		for (u32 i = 0; i < w.out.done.count; i++, said++) {
			u32 region = le32toh(c[i].region);

			if (region == VIRTIO_GC_NO_REGION)
				region = w.m->c.regions;
			assert_true(le32toh(c[i].card) < w.m->l.bytes / 512 &&
				    region <= w.m->c.regions);
			got[le32toh(c[i].card) * CARD_COLUMNS(w.m) + region] =
				1;
		}
		if (!w.out.done.value)
			break;
		assert_int_equal(cards_ask(&w, 1, 50, NULL, 0), 0);
	}
	assert_true(said > 50);
	/* [VGC-D-68] */
	assert_memory_equal(want, got, bytes);
	/* a source that has come to another place; then the search is over */
	assert_int_equal(cards_ask(&w, 1, DONORS, list, n), 0);
	for (u32 r = 0; r < w.m->c.regions; r++)
		w.nowhere[r] = w.m->whole[r] == MUT_PARTS && w.m->top[r];
	/* [VGC-D-71] */
	assert_int_equal(cards_ask(&w, 1, DONORS, NULL, 0), VIRTIO_GC_STALE);
	assert_int_equal(w.out.done.at % REGION, 0);
	memset(w.nowhere, 0, sizeof(w.nowhere));
	assert_int_equal(cards_ask(&w, 1, DONORS, NULL, 0), VIRTIO_GC_NO_TRACE);
	assert_int_equal(cards_ask(&w, 1, DONORS, list, n), 0);
	free(want);
	free(got);
	world_heap_free(&w);
	world_donors_end(&w);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_state),
		cmocka_unit_test(test_types_after_opaque_objects),
		cmocka_unit_test(test_cards),
	};

	return host_run("gcstate", tests, sizeof(tests) / sizeof(tests[0]),
			argc > 1 ? argv[1] : NULL);
}

// SPDX-License-Identifier: GPL-2.0-or-later
/* cards_test.c - cards that refer into regions, compared with the runtime's own search */
#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "mesh.h"
#include "raw_heap.h"

#ifdef __SANITIZE_THREAD__
#define HEAPS 60u
#else
#define HEAPS 400u
#endif
#define SAY_MAX 100000u

/*
 * A search, and what it has to find: a byte for each card and region, the last
 * column for opaque objects.
 */
struct search {
	struct mut *m;
	struct mesh *x;
	u32 shift;
	u32 columns;
	u32 cards;
	u8 *want;
	u8 *got;
	u32 said;
	u32 weak;
	struct virtio_gc_region *list;
	u64 *tops;	/* of the trace, in the region */
};

/* Trace tops that lie before the end of a region's objects, and in none. */
static void tops_make(struct search *q)
{
	struct mut *m = q->m;

	for (u32 r = 0; r < m->c.regions; r++) {
		q->tops[r] = m->top[r];
		if (!m->whole[r] && mut_below(m, 2))
			q->tops[r] = mut_rand(m) % (m->top[r] / 8 + 1) * 8;
	}
	mut_tops_fit(m, q->tops);
}

/* Regions are sources, targets, both, or neither; oracle and list agree. */
static u32 list_make(struct search *q)
{
	struct mut *m = q->m;
	u32 n = 0;

	for (u32 r = 0; r < m->c.regions; r++) {
		u32 flags = mut_below(m, 4) * VIRTIO_GC_REGION_SOURCE;
		u64 top = r * m->l.region_bytes + m->top[r];

		/* no object begins where a large one goes on */
		if (m->whole[r] == MUT_BEHIND)
			flags &= ~VIRTIO_GC_REGION_SOURCE;
		if (!flags)
			continue;
		q->list[n].region = htole32(r);
		q->list[n].flags = htole32(flags);
		q->list[n++].top =
			htole64(flags & VIRTIO_GC_REGION_SOURCE ? top : 0);
	}
	return n;
}

static u32 flags_of(const struct search *q, u32 n, u32 region)
{
	for (u32 i = 0; i < n; i++)
		if (le32toh(q->list[i].region) == region)
			return le32toh(q->list[i].flags);
	return 0;
}

/* A field of a source: one more that has to be found. */
static void want_field(struct search *q, u32 n, u64 slot)
{
	const struct mut *m = q->m;
	u64 to = mut_read(m, slot);
	u32 from = (u32)(slot / m->l.region_bytes), region;

	if (to == MUT_NULL)
		return;
	region = (u32)(to / m->l.region_bytes);
	if (region != from && flags_of(q, n, region) & VIRTIO_GC_REGION_TARGET)
		q->want[(slot >> q->shift) * q->columns + region] = 1;
}

static void want_object(struct search *q, u32 n, const struct mut_object *o)
{
	const struct mut *m = q->m;
	const struct mut_type *t = &m->types[o->type];

	if (t->flags & VIRTIO_GC_TYPE_OPAQUE && !mut_is_whole(m, o)) {
		q->want[(o->at >> q->shift) * q->columns + q->columns - 1] = 1;
		return;
	}
	for (u64 i = 0; i < mut_slots(m, o); i++)
		want_field(q, n, mut_slot(m, o, i));
	if (t->flags & VIRTIO_GC_TYPE_WEAK) {
		want_field(q, n, o->at + t->referent);
		q->weak++;
	}
}

static void want_make(struct search *q, u32 n, const u8 *live)
{
	const struct mut *m = q->m;

	for (u32 i = 0; i < m->nr_objects; i++) {
		const struct mut_object *o = &m->objects[i];
		u32 region = (u32)(o->at / m->l.region_bytes);

		if (!mut_is_whole(m, o) &&
		    flags_of(q, n, region) & VIRTIO_GC_REGION_SOURCE &&
		    (live[i] || o->at % m->l.region_bytes >= q->tops[region]))
			want_object(q, n, o);
	}
}

/* A large object's references are ranges: all donors get all of them. */
static void ranges_add(struct search *q, u32 n)
{
	const struct mut *m = q->m;

	for (u32 i = 0; i < m->nr_objects; i++) {
		const struct mut_object *o = &m->objects[i];
		struct virtio_gc_refs refs;

		if (!mut_is_whole(m, o) || !mut_slots(m, o))
			continue;
		refs.address = htole64(m->l.address + mut_slot(m, o, 0));
		refs.count = htole64(mut_slots(m, o));
		for (u32 d = 0; d < m->c.donors; d++)
			assert_int_equal(dcm_gc_cards_ranges(mesh_space(q->x,
									d),
							     1, &refs, 1),
					 0);
		for (u64 k = 0; k < mut_slots(m, o); k++)
			want_field(q, n, mut_slot(m, o, k));
	}
}

/* Ask a donor until it has no more. */
static void got_take(struct search *q, u32 donor)
{
	struct virtio_gc_card card[37];
	u64 left = 1;
	u32 n;

	while (left) {
		u32 max = 1 + mut_below(q->m, 37);

		assert_int_equal(dcm_gc_cards_next(mesh_space(q->x, donor), 1,
						   card, max, &n, &left)
					 .status,
				 0);
		assert_true(n == max || !left);
		for (u32 i = 0; i < n; i++) {
			u32 region = le32toh(card[i].region);

			if (region == VIRTIO_GC_NO_REGION)
				region = q->columns - 1;
			assert_true(le32toh(card[i].card) < q->cards &&
				    region < q->columns);
			q->got[le32toh(card[i].card) * q->columns + region] = 1;
		}
		q->said += n;
		assert_true(q->said < SAY_MAX);
	}
	/* nothing comes behind the last one */
	assert_int_equal(dcm_gc_cards_next(mesh_space(q->x, donor), 1, card, 9,
					   &n, &left)
				 .status,
			 0);
	assert_int_equal(n + left, 0);
}

static void search_run(struct search *q, const u8 *live)
{
	struct mut *m = q->m;
	u32 n = list_make(q), distinct = 0, opaque = 0;

	q->shift = 7 + mut_below(m, 10);
	q->columns = m->c.regions + 1;
	q->cards = (u32)(m->l.bytes >> q->shift);
	q->want = calloc(q->cards, q->columns);
	q->got = calloc(q->cards, q->columns);
	assert_true(q->want && q->got);
	q->said = 0;
	q->weak = 0;
	want_make(q, n, live);
	for (u32 d = 0; d < m->c.donors; d++)
		assert_int_equal(dcm_gc_cards_begin(mesh_space(q->x, d), 1,
						    q->shift, q->list, n),
				 0);
	if (mut_below(m, 2))
		ranges_add(q, n);
	for (u32 d = 0; d < m->c.donors; d++)
		got_take(q, d);
	/* [VGC-D-68] */
	if (memcmp(q->want, q->got, (size_t)q->cards * q->columns))
		fail_msg("seed %llu: other cards than the runtime finds",
			 (unsigned long long)m->c.seed);
	for (u32 i = 0; i < m->nr_objects; i++)
		opaque += !!(m->types[m->objects[i].type].flags &
			     VIRTIO_GC_TYPE_OPAQUE);
	for (size_t i = 0; i < (size_t)q->cards * q->columns; i++)
		distinct += q->want[i];
	/* a card is not said for each of its references */
	assert_true(q->said <= distinct + 2 * q->weak + opaque);
	free(q->want);
	free(q->got);
}

/* Random heaps and lists on up to three donors: exactly what the runtime finds. */
static void test_random(void **state)
{
	u64 said = 0;

	(void)state;
	for (u32 i = 0; i < HEAPS; i++) {
		struct mut_config c = mut_config_any(20261127 + i, i, !(i % 3));
		struct mut *m = mut_new(&c);
		struct search q = { .m = m, .x = mesh_new(m, c.seed) };
		struct virtio_gc_region *r = calloc(c.regions, sizeof(*r));
		u8 *live;
		u32 n;

		mut_fill(m);
		mut_clean(m);
		live = calloc(m->nr_objects, 1);
		q.list = calloc(c.regions, sizeof(*q.list));
		q.tops = calloc(c.regions, sizeof(*q.tops));
		assert_true(r && live && q.list && q.tops);
		tops_make(&q);
		n = mut_regions_le(m, r);
		for (u32 k = 0; k < n; k++)
			if (!r[k].flags)
				r[k].top =
					htole64(le32toh(r[k].region) *
						m->l.region_bytes +
					q.tops[le32toh(r[k].region)]);
		mut_trace(m, live, q.tops);
		assert_int_equal(mesh_start(q.x, 1, 0, 1 + i % 3, r, n), 0);
		assert_int_equal(mesh_roots_all(q.x, 1), 0);
		assert_int_equal(mesh_finish(q.x, 1, true), 0);
		for (u32 k = 0; k < 3; k++) {
			search_run(&q, live);
			said += q.said;
		}
		mesh_free(q.x);
		mut_free(m);
		free(r);
		free(live);
		free(q.list);
		free(q.tops);
	}
	printf("# %u heaps, %llu cards\n", HEAPS, (unsigned long long)said);
	assert_true(said > HEAPS);
}

/* Regions 0 and 1 are sources, region 1 and those behind it targets. */
static void list_sources(struct heap *h, u64 end)
{
	for (u32 i = 0; i < h->regions; i++) {
		u32 flags = (i < 2 ? VIRTIO_GC_REGION_SOURCE : 0) |
			    (i ? VIRTIO_GC_REGION_TARGET : 0);

		h->list[i].flags = htole32(flags);
		h->list[i].top = htole64(i < 2 ? i * REGION + end : 0);
	}
}

static u32 next_status(struct heap *h, u64 *at)
{
	struct virtio_gc_card card[64];
	struct dcm_gc_result result;
	u64 left;
	u32 n;

	do
		result = dcm_gc_cards_next(h->s, 1, card, 64, &n, &left);
	while (!result.status && left);
	*at = result.at;
	return result.status;
}

/* An error in the heap ends the search, with its place. */
static void test_wrong_heaps(void **state)
{
	static const struct {
		u64 offset, word;
		u32 status;
	} wrong[] = {
		{ 16, 77, VIRTIO_GC_BAD_TYPE },
		{ 24, ADDRESS + 4, VIRTIO_GC_BAD_REFERENCE },
		{ 24, ADDRESS + 4 * REGION, VIRTIO_GC_BAD_REFERENCE },
	};
	struct heap h;
	u64 at;

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(wrong); i++) {
		heap_make(&h, 4, REGION, 0);
		ring(&h, 4);
		expect(&h, 1, 0, VIRTIO_GC_OK, VIRTIO_GC_NONE);
		list_sources(&h, 64);
		put(&h, wrong[i].offset, wrong[i].word);
		assert_int_equal(dcm_gc_cards_begin(h.s, 1, 9, h.list, 4), 0);
		/* [VGC-D-70] */
		assert_int_equal(next_status(&h, &at), wrong[i].status);
		assert_int_equal(at, ADDRESS + 16);
		assert_int_equal(next_status(&h, &at), VIRTIO_GC_NO_TRACE);
		heap_free(&h);
	}
	/* above the trace's top objects are walked one by one: this one is too long */
	heap_make(&h, 4, REGION, 0);
	ring(&h, 4);
	h.list[0].top = htole64(64);
	expect(&h, 1, 0, VIRTIO_GC_OK, VIRTIO_GC_NONE);
	put(&h, 64, REFS);
	put(&h, 72, 100);
	list_sources(&h, 128);
	assert_int_equal(dcm_gc_cards_begin(h.s, 1, 9, h.list, 4), 0);
	/* [VGC-D-70] */
	assert_int_equal(next_status(&h, &at), VIRTIO_GC_BAD_OBJECT);
	assert_int_equal(at, ADDRESS + 64);
	heap_free(&h);
}

/* Lists and ranges that are refused, and searches that are not there. */
static void test_refused(void **state)
{
	struct virtio_gc_refs refs = { htole64(ADDRESS), htole64(2) };
	struct virtio_gc_region list[2] = { 0 };
	struct heap h;
	u64 at;

	(void)state;
	heap_make(&h, 4, REGION, 0);
	ring(&h, 4);
	list_sources(&h, 64);
	assert_int_equal(dcm_gc_cards_begin(h.s, 1, 9, h.list, 4),
			 VIRTIO_GC_NO_TRACE);
	for (u32 i = 0; i < 4; i++) {
		h.list[i].flags = 0;
		h.list[i].top = htole64((i + 1) * REGION);
	}
	expect(&h, 1, 0, VIRTIO_GC_OK, VIRTIO_GC_NONE);
	list_sources(&h, 64);
	assert_int_equal(next_status(&h, &at), VIRTIO_GC_NO_TRACE);
	assert_int_equal(dcm_gc_cards_ranges(h.s, 1, &refs, 1),
			 VIRTIO_GC_NO_TRACE);
	/* [VGC-D-69] */
	assert_int_equal(dcm_gc_cards_begin(h.s, 1, 6, h.list, 4),
			 VIRTIO_GC_INVALID);
	assert_int_equal(dcm_gc_cards_begin(h.s, 1, 17, h.list, 4),
			 VIRTIO_GC_INVALID);
	for (u32 i = 0; i < 7; i++) {
		static const struct {
			u32 region, flags;
			u64 top;
		} wrong[] = {
			{ 4, VIRTIO_GC_REGION_TARGET, 0 },
			{ 0, 0, 0 },
			{ 0, VIRTIO_GC_REGION_WHOLE, 0 },
			{ 0, VIRTIO_GC_REGION_TARGET, 8 },
			{ 0, VIRTIO_GC_REGION_SOURCE, 4 },
			{ 0, VIRTIO_GC_REGION_SOURCE, REGION + 8 },
			{ 1, VIRTIO_GC_REGION_SOURCE, REGION - 8 },
		};

		list[0].region = htole32(wrong[i].region);
		list[0].flags = htole32(wrong[i].flags);
		list[0].top = htole64(wrong[i].top);
		/* [VGC-D-69] */
		assert_int_equal(dcm_gc_cards_begin(h.s, 1, 9, list, 1),
				 VIRTIO_GC_INVALID);
	}
	list[0] = h.list[2];
	list[1] = h.list[2];
	/* [VGC-D-69] */
	assert_int_equal(dcm_gc_cards_begin(h.s, 1, 9, list, 2),
			 VIRTIO_GC_INVALID);
	assert_int_equal(dcm_gc_cards_begin(h.s, 2, 9, h.list, 4),
			 VIRTIO_GC_NO_TRACE);
	assert_int_equal(dcm_gc_cards_begin(h.s, 1, 9, h.list, 4), 0);
	refs.count = 0;
	/* [VGC-D-69] */
	assert_int_equal(dcm_gc_cards_ranges(h.s, 1, &refs, 1),
			 VIRTIO_GC_INVALID);
	refs.count = htole64(1);
	for (u32 i = 0; i < 16384; i++)
		assert_int_equal(dcm_gc_cards_ranges(h.s, 1, &refs, 1), 0);
	assert_int_equal(dcm_gc_cards_ranges(h.s, 1, &refs, 1),
			 VIRTIO_GC_LIMIT);
	dcm_gc_stop(h.s, VIRTIO_GC_CANCELLED);
	assert_int_equal(next_status(&h, &at), VIRTIO_GC_CANCELLED);
	dcm_gc_stop(h.s, 0);
	assert_int_equal(next_status(&h, &at), VIRTIO_GC_NO_TRACE);
	heap_free(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_wrong_heaps),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: GPL-2.0-or-later
/* graph_test.c - donors' live objects, compared with the runtime's own trace */
#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "mesh.h"

#ifdef __SANITIZE_THREAD__
#define HEAPS_DEFAULT 150u
#else
#define HEAPS_DEFAULT 1200u
#endif
#define HEAPS \
	(getenv("GC_HEAPS") ? (u32)atoi(getenv("GC_HEAPS")) : HEAPS_DEFAULT)

static u64 seed_of(u32 i)
{
	const char *text = getenv("GC_SEED");

	return (text ? strtoull(text, NULL, 0) : 20261121) + i;
}

static struct mut_config config_of(u32 i)
{
	return mut_config_any(seed_of(i), i, !(i % 5));
}

static struct virtio_gc_region *regions_of(const struct mut *m, u32 *n)
{
	struct virtio_gc_region *r = calloc(m->c.regions, sizeof(*r));

	assert_non_null(r);
	*n = mut_regions_le(m, r);
	return r;
}

/* Compare one region's results with @live, bit by bit. */
static void region_check(struct mesh *x, const struct mut *m, u32 epoch,
			 u32 region, const u8 *live, bool exact)
{
	struct dcm_gc_space *s = mesh_space(x, m->owner[region]);
	u64 start = region * m->l.region_bytes, bytes = 0, objects = 0, got = 0;
	const u64 *bits = dcm_gc_trace_bitmap(s, epoch, region);
	struct virtio_gc_live result;

	assert_int_equal(dcm_gc_trace_live(s, epoch, region, &result), 0);
	for (u64 unit = 0; bits && unit < m->l.region_bytes / 8; unit++) {
		u32 o = m->at_unit[start / 8 + unit];
		bool bit = bits[unit / 64] >> unit % 64 & 1;

		got += bit;
		/* an object that another donor should have reported is missing [VGC-D-26] */
		if (bit && !o)
			fail_msg("seed %llu: no object at %llx",
				 (unsigned long long)m->c.seed,
				 (unsigned long long)(start + unit * 8));
		/* [VGC-D-23] [VGC-D-24] */
		if (o && (exact ? bit != live[o - 1] : live[o - 1] && !bit))
			fail_msg("seed %llu: object %u at %llx, type %u: %s",
				 (unsigned long long)m->c.seed, o - 1,
				 (unsigned long long)(start + unit * 8),
				 m->objects[o - 1].type,
				 bit ? "dead, but marked" :
				       "live, but not marked");
		if (bit) {
			/* one that is not read counts without bytes */
			bytes += mut_is_whole(m, &m->objects[o - 1]) ?
					 0 :
					 m->objects[o - 1].bytes;
			objects++;
		}
	}
	assert_int_equal(got, objects);
	/* [VGC-D-54] */
	assert_int_equal(le64toh(result.objects), objects);
	assert_int_equal(le64toh(result.bytes), bytes);
}

/* Ask for all objects, and for what is none. */
static void asked_check(struct mesh *x, const struct mut *m, u32 epoch,
			const u8 *live)
{
	const u64 end = m->l.address + m->l.bytes;
	const __le64 none[9] = { 0,
				 htole64(end),
				 htole64(m->l.address - 8),
				 htole64(m->l.address + 4),
				 htole64(U64_MAX),
				 htole64(1ull << 63),
				 htole64(end - 4),
				 htole64(1),
				 htole64(end + (1ull << 40)) };
	__le64 *a = calloc(m->nr_objects + 1, sizeof(*a));
	u8 *bits = calloc(m->nr_objects / 8 + 2, 1);

	assert_true(a && bits);
	for (u32 o = 0; o < m->nr_objects; o++)
		a[o] = mut_address_le(m, m->objects[o].at);
	for (u32 d = 0; d < m->c.donors; d++) {
		memset(bits, 0xff, m->nr_objects / 8 + 1);
		assert_int_equal(dcm_gc_trace_ask(mesh_space(x, d), epoch, a,
						  m->nr_objects, bits),
				 0);
		for (u32 o = 0; o < m->nr_objects; o++) {
			u32 owner =
				m->owner[m->objects[o].at / m->l.region_bytes];

			/* [VGC-D-64] */
			assert_int_equal(bits[o / 8] >> o % 8 & 1,
					 owner == d && live[o]);
		}
		assert_int_equal(dcm_gc_trace_ask(mesh_space(x, d), epoch, none,
						  9, bits),
				 0);
		/* [VGC-D-64] */
		assert_int_equal(bits[0] | bits[1], 0);
		assert_int_equal(dcm_gc_trace_ask(mesh_space(x, d), epoch + 1,
						  none, 9, bits),
				 VIRTIO_GC_NO_TRACE);
	}
	free(a);
	free(bits);
}

static void weak_check(struct mesh *x, const struct mut *m, u32 epoch,
		       const u8 *live)
{
	u32 want = 0, got = 0, n;
	u8 *seen = calloc(m->nr_objects, 1);
	u64 left;

	assert_non_null(seen);
	for (u32 i = 0; i < m->nr_objects; i++)
		want += live[i] && m->types[m->objects[i].type].flags &
					   VIRTIO_GC_TYPE_WEAK;
	for (u32 d = 0; d < m->c.donors; d++) {
		__le64 at[5];

		do {
			assert_int_equal(dcm_gc_trace_met(mesh_space(x, d),
							  epoch,
							  VIRTIO_GC_MET_WEAK,
							  at, 5, &n, &left),
				0);
			for (u32 i = 0; i < n; i++) {
				u32 o = m->at_unit[(le64toh(at[i]) -
						    m->l.address) /
						   8];

				/* [VGC-D-32] */
				assert_true(o && live[o - 1] && !seen[o - 1]);
				seen[o - 1] = 1;
				got++;
			}
		} while (left);
	}
	assert_int_equal(got, want);
	free(seen);
}

/* Has the weak object's referent to be cleared? */
static bool cleared(const struct mut *m, const struct mut_object *o,
		    const u8 *live, u64 *referent)
{
	const struct mut_type *t = &m->types[o->type];

	if (!(t->flags & VIRTIO_GC_TYPE_WEAK))
		return false;
	*referent = mut_read(m, o->at + t->referent);
	return *referent != MUT_NULL &&
	       *referent % m->l.region_bytes <
		       m->top[*referent / m->l.region_bytes] &&
	       !live[m->at_unit[*referent / 8] - 1];
}

/* All weak objects with dead referents, twice; other donors' are asked about. */
static void clear_check(struct mesh *x, const struct mut *m, u32 epoch,
			const u8 *live)
{
	u32 want = 0, got = 0, n;
	u8 *seen = calloc(m->nr_objects, 1);
	u64 left, referent;

	assert_non_null(seen);
	for (u32 i = 0; i < m->nr_objects; i++)
		want += live[i] && cleared(m, &m->objects[i], live, &referent);
	for (u32 k = 0; k < 2 * m->c.donors; k++) {
		struct dcm_gc_space *s = mesh_space(x, k / 2);
		u32 flags = VIRTIO_GC_MET_AGAIN;
		struct virtio_gc_weak weak[5];

		do {
			assert_int_equal(dcm_gc_trace_clear(s, epoch, flags,
							    weak, 5, &n, &left),
					 0);
			flags = 0;
			for (u32 i = 0; i < n; i++) {
				u64 at = le64toh(weak[i].object) - m->l.address;
				u64 to = le64toh(weak[i].referent) -
					 m->l.address;
				u32 o = m->at_unit[at / 8], owner;
				u8 met;

				owner = m->owner[to / m->l.region_bytes];
				assert_int_equal(
					dcm_gc_trace_ask(mesh_space(x, owner),
							 epoch,
							 &weak[i].referent, 1,
							 &met),
					0);
				if (met)
					continue;
				/* [VGC-D-67] */
				assert_true(o && live[o - 1] &&
					    seen[o - 1] == k % 2 &&
					    cleared(m, &m->objects[o - 1], live,
						    &referent));
				assert_int_equal(to, referent);
				seen[o - 1]++;
				got++;
			}
		} while (left);
	}
	/* [VGC-D-67] */
	assert_int_equal(got, 2 * want);
	free(seen);
}

static void types_check(struct mesh *x, const struct mut *m, u32 epoch,
			const u8 *live)
{
	u32 want = 0, got = 0, n;
	u64 left;

	for (u32 i = 0; i < m->nr_objects; i++)
		if (live[i] && !mut_is_whole(m, &m->objects[i]))
			want |= 1u << m->objects[i].type;
	for (u32 d = 0; d < m->c.donors; d++) {
		__le64 id[3];

		do {
			assert_int_equal(dcm_gc_trace_met(mesh_space(x, d),
							  epoch,
							  VIRTIO_GC_MET_TYPES,
							  id, 3, &n, &left),
				0);
			for (u32 i = 0; i < n; i++)
				for (u32 t = 0; t < m->nr_types; t++)
					if (m->types[t].le.id ==
					    htole32((u32)le64toh(id[i])))
						got |= 1u << t;
		} while (left);
	}
	assert_int_equal(got, want);
}

/* Is there one the runtime has to look into? */
static bool opaque_lives(const struct mut *m, const u8 *live)
{
	for (u32 i = 0; i < m->nr_objects; i++) {
		const struct mut_object *o = &m->objects[i];

		if (live[i] &&
		    (mut_is_whole(m, o) ?
			     mut_slots(m, o) > 0 :
			     m->types[o->type].flags & VIRTIO_GC_TYPE_OPAQUE))
			return true;
	}
	return false;
}

/*
 * The runtime is stopped: the live set is exact, in every region, with any
 * number of threads and donors.
 */
static void test_stopped(void **state)
{
	u64 messages = 0, opaques = 0;

	(void)state;
	for (u32 i = 0; i < HEAPS; i++) {
		struct mut_config c = config_of(i);
		struct mut *m = mut_new(&c);
		struct mesh *x = mesh_new(m, c.seed);
		u8 *live, *before = malloc(m->l.bytes);
		struct virtio_gc_region *r;
		u32 n, status;

		mut_fill(m);
		mut_clean(m);
		/* some tops are below where allocation is */
		for (u32 k = 0; k < c.regions; k++)
			if (!(mut_rand(m) % 4) && !m->whole[k])
				m->top[k] =
					mut_rand(m) % (m->top[k] / 8 + 1) * 8;
		mut_tops_fit(m, m->top);
		live = calloc(m->nr_objects, 1);
		assert_true(live && before);
		mut_trace(m, live, m->top);
		memcpy(before, m->donors, m->l.bytes);
		r = regions_of(m, &n);
		for (u32 epoch = 1; epoch < 3; epoch++) {
			assert_int_equal(mesh_start(x, epoch, 0,
						    1 + (i / 3) % 3, r, n),
					 0);
			assert_int_equal(mesh_roots_all(x, epoch), 0);
			status = mesh_finish(x, epoch, false);
			/* [VGC-D-33] */
			assert_int_equal(status == VIRTIO_GC_MET,
					 opaque_lives(m, live));
			if (status)
				status = mesh_finish(x, epoch, true);
			if (status)
				fail_msg("seed %llu: status %u",
					 (unsigned long long)c.seed, status);
			for (u32 k = 0; k < c.regions; k++)
				region_check(x, m, epoch, k, live, true);
			/* [VGC-D-36] */
			for (u32 k = 0; k < c.regions; k++)
				region_check(x, m, epoch, k, live, true);
			weak_check(x, m, epoch, live);
			types_check(x, m, epoch, live);
			asked_check(x, m, epoch, live);
			clear_check(x, m, epoch, live);
			opaques += mesh_opaques(x);
		}
		/* [VGC-D-30] */
		assert_memory_equal(before, m->donors, m->l.bytes);
		messages += mesh_messages(x);
		free(r);
		free(live);
		free(before);
		mesh_free(x);
		mut_free(m);
	}
	assert_true(messages && opaques);
	printf("# %u heaps, %llu messages between donors, %llu opaque objects\n",
	       HEAPS, (unsigned long long)messages,
	       (unsigned long long)opaques);
}

static void satb_send(struct mesh *x, struct mut *m, u32 epoch)
{
	assert_int_equal(mesh_roots(x, epoch, (__le64 *)m->satb, m->nr_satb),
			 0);
	m->nr_satb = 0;
}

/*
 * The program stores, allocates, drops roots, and pages are written back, all
 * while donors trace: objects that were reachable at the start are marked, and
 * unmarked objects are not reachable at the end.
 */
static void test_running(void **state)
{
	u64 steps = 0;

	(void)state;
	for (u32 i = 0; i < HEAPS; i++) {
		struct mut_config c = config_of(i + 1000000);
		struct mut *m = mut_new(&c);
		struct mesh *x = mesh_new(m, c.seed);
		struct virtio_gc_region *r;
		u8 *live, *end;
		u64 *tops;
		u32 n, status;

		c.objects /= 2;
		m->c.objects = c.objects;
		mut_fill(m);
		mut_clean(m);
		live = calloc(m->l.bytes / 16, 1);
		end = calloc(m->l.bytes / 16, 1);
		tops = malloc(c.regions * sizeof(*tops));
		m->satb_max = 4096;
		m->satb = malloc(m->satb_max * sizeof(*m->satb));
		assert_true(live && end && tops && m->satb);
		memcpy(tops, m->top, c.regions * sizeof(*tops));
		mut_trace(m, live, NULL);
		mut_run(m, live);
		r = regions_of(m, &n);
		assert_int_equal(mesh_start(x, 1, VIRTIO_GC_TRACE_CONCURRENT,
					    1 + (i / 3) % 3, r, n),
				 0);
		assert_int_equal(mesh_roots_all(x, 1), 0);
		for (u32 k = 0; k < 40; k++, steps++) {
			mut_step(m, true);
			/* an opaque object may be scanned at any time */
			if (!(k % 8))
				satb_send(x, m, 1);
		}
		do {
			satb_send(x, m, 1);
			status = mesh_finish(x, 1, true);
		} while (status == VIRTIO_GC_MET);
		if (status)
			fail_msg("seed %llu: status %u",
				 (unsigned long long)c.seed, status);
		mut_trace(m, end, NULL);
		for (u32 o = 0; o < m->nr_objects; o++) {
			u64 at = m->objects[o].at;

			/* new ones are above the tops and live anyway */
			if (at % m->l.region_bytes >=
			    tops[at / m->l.region_bytes])
				end[o] = live[o] = 0;
			else
				live[o] |= end[o];
		}
		for (u32 k = 0; k < c.regions; k++)
			region_check(x, m, 1, k, live, false);
		free(r);
		free(live);
		free(end);
		free(tops);
		mesh_free(x);
		mut_free(m);
	}
	printf("# %u heaps, %llu steps of the program\n", HEAPS,
	       (unsigned long long)steps);
}

/*
 * Each region for itself: its roots are the references from outside; a region that
 * is written meanwhile is stale and the others are not. Without LOCAL the whole
 * trace is stale.
 */
static void test_local(void **state)
{
	u32 stale = 0, fresh = 0;

	(void)state;
	for (u32 i = 0; i < HEAPS / 4; i++) {
		struct mut_config c = config_of(i + 2000000);
		struct mut *m = mut_new(&c);
		struct mesh *x = mesh_new(m, c.seed);
		u32 n, region = (u32)(c.seed % c.regions), nr = 0;
		u32 nr_roots = 0;
		struct virtio_gc_region *r;
		struct virtio_gc_live result;
		u64 *roots;
		u8 *live;

		mut_fill(m);
		mut_clean(m);
		live = calloc(m->nr_objects, 1);
		roots = calloc(m->l.bytes / 8, sizeof(*roots));
		assert_true(live && roots);
		for (u32 o = 0; o < m->nr_objects; o++) {
			const struct mut_object *from = &m->objects[o];

			for (u64 s = 0; s < mut_slots(m, from); s++) {
				u64 to = mut_read(m, mut_slot(m, from, s));

				if (to != MUT_NULL &&
				    to / m->l.region_bytes !=
					    from->at / m->l.region_bytes &&
				    (to / 8 % 3 || mut_is_whole(m, from) ||
				     m->types[from->type].flags &
					     VIRTIO_GC_TYPE_OPAQUE))
					roots[nr_roots++] = to;
			}
		}
		memcpy(roots + nr_roots, m->roots,
		       m->nr_roots * sizeof(*roots));
		free(m->roots);
		m->roots = roots;
		m->nr_roots += nr_roots;
		/* the oracle, with references that leave regions cut */
		for (u32 o = 0; o < m->nr_objects; o++) {
			const struct mut_object *from = &m->objects[o];

			for (u64 s = 0; s < mut_slots(m, from); s++) {
				u64 slot = mut_slot(m, from, s);
				u64 to = mut_read(m, slot);

				if (to != MUT_NULL &&
				    to / m->l.region_bytes !=
					    from->at / m->l.region_bytes)
					mut_write(m, slot, MUT_NULL);
			}
		}
		mut_trace(m, live, NULL);
		mut_invalidate(m);
		r = regions_of(m, &n);
		assert_int_equal(mesh_start(x, 1, VIRTIO_GC_TRACE_LOCAL, 2, r,
					    n),
				 0);
		assert_int_equal(mesh_roots_all(x, 1), 0);
		if (m->top[region]) {
			m->dirty[region * (m->l.region_bytes / MUT_PAGE)] = 1;
			mut_evict(m, region * (m->l.region_bytes / MUT_PAGE));
		}
		assert_int_equal(mesh_finish(x, 1, true), 0);
		for (u32 k = 0; k < c.regions; k++) {
			u32 status =
				dcm_gc_trace_live(mesh_space(x, m->owner[k]), 1,
						  k, &result);

			if (k == region && m->top[k] &&
			    m->whole[k] != MUT_BEHIND) {
				/* [VGC-D-25] */
				assert_int_equal(status, VIRTIO_GC_STALE);
				stale++;
			} else {
				region_check(x, m, 1, k, live, true);
				fresh++;
			}
		}
		/* and the whole of it, if references may leave */
		nr = n;
		assert_int_equal(mesh_start(x, 2, 0, 2, r, nr), 0);
		assert_int_equal(mesh_roots_all(x, 2), 0);
		if (m->top[region] && m->whole[region] != MUT_BEHIND) {
			m->dirty[region * (m->l.region_bytes / MUT_PAGE)] = 1;
			mut_evict(m, region * (m->l.region_bytes / MUT_PAGE));
			assert_int_equal(mesh_finish(x, 2, true),
					 VIRTIO_GC_STALE);
			assert_int_equal(
				dcm_gc_trace_live(mesh_space(x,
							     m->owner[region]),
						  2, region, &result),
				VIRTIO_GC_BUSY);
		}
		free(r);
		free(live);
		mesh_free(x);
		mut_free(m);
	}
	assert_true(stale && fresh);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stopped),
		cmocka_unit_test(test_running),
		cmocka_unit_test(test_local),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

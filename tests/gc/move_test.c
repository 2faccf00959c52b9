// SPDX-License-Identifier: GPL-2.0-or-later
/* move_test.c - evacuation, updating, compaction: the graph stays the same */
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
#define HEAPS_DEFAULT 40u
#else
#define HEAPS_DEFAULT 400u
#endif
#define HEAPS \
	(getenv("GC_HEAPS") ? (u32)atoi(getenv("GC_HEAPS")) : HEAPS_DEFAULT)
#define REGION	(64ull << 10)

static struct mut_config config_of(u32 i)
{
	const char *text = getenv("GC_SEED");
	u64 seed = (text ? strtoull(text, NULL, 0) : 20261121) + i;
	u64 r = seed * 0x9e3779b97f4a7c15ull >> 20;
	u32 donors = 1 + i % 3;

	return (struct mut_config){
		.seed = seed,
		.regions = 4 + (u32)(r % 5) + 4 * donors,
		.spare = 4 * donors,
		.region_bytes = REGION,
		.donors = donors,
		.ref_bytes = i & 4 ? 8 : 4,
		.header = (u32)(r >> 8),
		.shape = (enum mut_shape)((r >> 16) % MUT_SHAPES),
		.objects = 200 + (u32)((r >> 20) % 2500),
		.roots = 1 + (u32)((r >> 10) % 20),
		.array_max = 300,
	};
}

/* A heap, its mesh, and a finished trace of it. */
struct world {
	struct mut *m;
	struct mesh *x;
	u8 *live;
	u8 *old;	/* the donors' memory before anything moved */
	struct virtio_gc_region *regions;
	u32 n;
	u8 *from;	/* regions that were moved */
};

static void world_make(struct world *w, u32 i)
{
	struct mut_config c = config_of(i);

	w->m = mut_new(&c);
	w->x = mesh_new(w->m, c.seed);
	mut_fill(w->m);
	mut_clean(w->m);
	w->live = calloc(w->m->nr_objects, 1);
	w->old = malloc(w->m->l.bytes);
	w->regions = calloc(c.regions, sizeof(*w->regions));
	w->from = calloc(c.regions, 1);
	assert_true(w->live && w->old && w->regions && w->from);
	mut_trace(w->m, w->live, NULL);
	memcpy(w->old, w->m->donors, w->m->l.bytes);
	w->n = mut_regions_le(w->m, w->regions);
	assert_int_equal(mesh_start(w->x, 1, 0, 1 + i % 2, w->regions, w->n),
			 0);
	assert_int_equal(mesh_roots_all(w->x, 1), 0);
	assert_int_equal(mesh_finish(w->x, 1, true), 0);
}

static void world_free(struct world *w)
{
	mesh_free(w->x);
	mut_free(w->m);
	free(w->live);
	free(w->old);
	free(w->regions);
	free(w->from);
}

static u32 spare_of(const struct mut *m, u32 donor, u32 nth)
{
	for (u32 r = m->c.regions - m->c.spare; r < m->c.regions; r++)
		if (m->owner[r] == donor && !nth--)
			return r;
	fail_msg("no spare region");
	return 0;
}

static u64 forward(struct world *w, u64 at)
{
	if (at != MUT_NULL)
		dcm_gc_forward(mesh_space(w->x, w->m->owner[at / REGION]), &at,
			       1);
	return at;
}

/* Every donor updates its regions. */
static u64 update_all(struct world *w)
{
	u64 updated = 0, n;

	for (u32 d = 0; d < w->m->c.donors; d++) {
		struct dcm_gc_result result =
			dcm_gc_update(mesh_space(w->x, d), w->regions, w->n,
			mesh_peers(w->x, d), &n);

		assert_int_equal(result.status, 0);
		updated += n;
	}
	return updated;
}

static void moved_tell(struct world *w, u32 from)
{
	w->from[from] = 1;
	for (u32 d = 0; d < w->m->c.donors; d++)
		if (d != w->m->owner[from])
			assert_int_equal(dcm_gc_moved_there(mesh_space(w->x, d),
							    from),
				0);
}

static u64 old_ref(const struct world *w, u64 slot)
{
	u64 r = 0;

	memcpy(&r, w->old + slot, w->m->c.ref_bytes);
	r = le64toh(r);
	return r ? w->m->l.ref_base + (r << w->m->l.ref_shift) -
			   w->m->l.address :
		   MUT_NULL;
}

/*
 * The objects live before, at their new places: all bytes but references are
 * the same, all references are to the new places of their objects.
 */
static void same_graph(struct world *w)
{
	const struct mut *m = w->m;
	u64 *now = malloc(m->nr_objects * sizeof(*now));
	u8 *taken = calloc(m->l.bytes / 8, 1), *bytes = malloc(REGION);

	assert_true(now && taken && bytes);
	for (u32 i = 0; i < m->nr_objects; i++) {
		if (!w->live[i])
			continue;
		now[i] = forward(w, m->objects[i].at);
		assert_true(now[i] < m->l.bytes && !(now[i] & 7));
		/* no object is left in its from-region [VGC-D-45] */
		assert_false(w->from[now[i] / REGION]);
		assert_true(now[i] % REGION + m->objects[i].bytes <= REGION);
		assert_int_equal(w->from[m->objects[i].at / REGION],
				 now[i] != m->objects[i].at);
		for (u64 b = 0; b < m->objects[i].bytes; b += 8)
			assert_false(taken[(now[i] + b) / 8]++);
	}
	for (u32 i = 0; i < m->nr_objects; i++) {
		const struct mut_object *o = &m->objects[i];
		const struct mut_type *t = &m->types[o->type];
		u64 slots = mut_slots(m, o);

		if (!w->live[i])
			continue;
		memcpy(bytes, m->donors + now[i], o->bytes);
		for (u64 s = 0; s <= slots; s++) {
			u64 slot, to, got = 0, want;
			u32 target;

			if (t->flags & VIRTIO_GC_TYPE_OPAQUE)
				break;
			if (s == slots && !t->referent)
				break;
			slot = s < slots ? mut_slot(m, o, s) :
					   o->at + t->referent;
			to = old_ref(w, slot);
			target = to == MUT_NULL ? 0 : m->at_unit[to / 8] - 1;
			want = to == MUT_NULL || !w->live[target] ? to :
				       now[target];
			memcpy(&got, bytes + (slot - o->at), m->c.ref_bytes);
			if (le64toh(got) != mut_ref(m, want))
				fail_msg("seed %llu: object %u field %llu",
					 (unsigned long long)m->c.seed, i,
					 (unsigned long long)s);
			memcpy(bytes + (slot - o->at), w->old + slot,
			       m->c.ref_bytes);
		}
		/* [VGC-D-40] */
		assert_memory_equal(bytes, w->old + o->at, o->bytes);
	}
	/* [VGC-D-39] */
	for (u32 r = 0; r < m->c.regions; r++)
		if (w->from[r])
			assert_memory_equal(m->donors + r * REGION,
					    w->old + r * REGION, REGION);
	free(now);
	free(taken);
	free(bytes);
}

/* As many objects and bytes are alive as before. */
static void same_live(struct world *w, u32 epoch)
{
	const struct mut *m = w->m;
	u64 objects = 0, bytes = 0;

	for (u32 i = 0; i < m->nr_objects; i++) {
		if (!w->live[i])
			continue;
		objects++;
		bytes += m->objects[i].bytes;
	}
	assert_int_equal(mesh_start(w->x, epoch, 0, 2, w->regions, w->n), 0);
	for (u32 i = 0; i < m->nr_roots; i++)
		if (m->roots[i] != MUT_NULL) {
			__le64 a = htole64(m->l.address + m->roots[i]);

			assert_int_equal(mesh_roots(w->x, epoch, &a, 1), 0);
		}
	/* the runtime's own part: opaque objects' references, at new places */
	for (u32 i = 0; i < m->nr_objects; i++) {
		const struct mut_object *o = &m->objects[i];

		if (!w->live[i] ||
		    !(m->types[o->type].flags & VIRTIO_GC_TYPE_OPAQUE))
			continue;
		for (u64 s = 0; s < mut_slots(m, o); s++) {
			u64 to = mut_read(m, mut_slot(m, o, s));
			__le64 a = htole64(m->l.address + to);

			if (to != MUT_NULL)
				assert_int_equal(mesh_roots(w->x, epoch, &a, 1),
						 0);
		}
	}
	for (u32 d = 0; d < m->c.donors; d++) {
		__le64 out[64];
		u64 left;
		u32 n;

		do {
			dcm_gc_trace_wait(mesh_space(w->x, d), 1000000000);
			assert_int_equal(dcm_gc_trace_met(mesh_space(w->x, d),
							  epoch,
							  VIRTIO_GC_MET_OPAQUE,
							  out, 64, &n, &left),
				0);
		} while (left);
	}
	while (mesh_finish(w->x, epoch, false) == VIRTIO_GC_MET) {
		__le64 out[64];
		u64 left;
		u32 n;

		for (u32 d = 0; d < m->c.donors; d++)
			dcm_gc_trace_met(mesh_space(w->x, d), epoch,
					 VIRTIO_GC_MET_OPAQUE, out, 64, &n,
					 &left);
	}
	for (u32 r = 0; r < m->c.regions; r++) {
		struct virtio_gc_live live;

		assert_int_equal(dcm_gc_trace_live(mesh_space(w->x,
							      m->owner[r]),
						   epoch, r, &live),
			0);
		objects -= le64toh(live.objects);
		bytes -= le64toh(live.bytes);
	}
	assert_int_equal(objects, 0);
	assert_int_equal(bytes, 0);
}

static void finish_check(struct world *w)
{
	u8 *image = malloc(w->m->l.bytes);
	struct mut *m = w->m;

	assert_non_null(image);
	update_all(w);
	same_graph(w);
	memcpy(image, m->donors, m->l.bytes);
	/* [VGC-D-41] */
	assert_int_equal(update_all(w), 0);
	assert_memory_equal(image, m->donors, m->l.bytes);
	free(image);
	/* the runtime's part: roots, opaque objects; then from-regions go */
	for (u32 i = 0; i < m->nr_roots; i++)
		m->roots[i] = forward(w, m->roots[i]);
	for (u32 i = 0; i < m->nr_objects; i++) {
		const struct mut_object *o = &m->objects[i];

		if (!w->live[i] ||
		    !(m->types[o->type].flags & VIRTIO_GC_TYPE_OPAQUE))
			continue;
		for (u64 s = 0; s < mut_slots(m, o); s++)
			mut_write(m, mut_slot(m, o, s),
				  forward(w, mut_read(m, mut_slot(m, o, s))));
	}
	for (u32 r = 0; r < m->c.regions; r++) {
		if (!w->from[r])
			continue;
		for (u32 d = 0; d < m->c.donors; d++)
			assert_int_equal(dcm_gc_release(mesh_space(w->x, d), r),
					 0);
		w->regions[r].top = htole64(r * REGION);
	}
	same_live(w, 2);
}

static void test_evacuate(void **state)
{
	u64 moves = 0, objects = 0;

	(void)state;
	for (u32 i = 0; i < HEAPS; i++) {
		struct world w;
		struct mut *m;

		world_make(&w, i);
		m = w.m;
		for (u32 r = 0; r < m->c.regions - m->c.spare; r++) {
			u32 d = m->owner[r], to = spare_of(m, d, 0);
			u32 tables = spare_of(m, d, 1);
			struct virtio_gc_move move = {
				.from = htole32(r),
				.to = htole32(to),
				.start = htole64(to * REGION + m->top[to]),
				.table = htole64(tables * REGION +
						 m->top[tables]),
				.table_bytes = htole64(REGION - m->top[tables]),
			};
			struct virtio_gc_moved moved;
			u32 status;

			if (!m->top[r] || mut_rand(m) & 1)
				continue;
			status = dcm_gc_move(mesh_space(w.x, d), 1, &move,
					     mut_rand(m) & 1, &moved);
			assert_int_equal(le32toh(moved.status), status);
			if (status == VIRTIO_GC_NO_SPACE)
				continue;
			assert_int_equal(status, 0);
			m->top[to] = le64toh(moved.end) - to * REGION;
			m->top[tables] += (le64toh(moved.table_bytes) + 15) &
					  ~15ull;
			w.regions[to].top = moved.end;
			moved_tell(&w, r);
			moves++;
			objects += le32toh(moved.objects);
		}
		finish_check(&w);
		world_free(&w);
	}
	assert_true(moves && objects);
	printf("# %llu moves of %llu objects\n", (unsigned long long)moves,
	       (unsigned long long)objects);
}

static void test_compact(void **state)
{
	u64 moves = 0, targets = 0;

	(void)state;
	for (u32 i = 0; i < HEAPS; i++) {
		struct virtio_gc_region *list;
		struct virtio_gc_moved *moved;
		struct world w;
		struct mut *m;
		u32 nr = 0;

		world_make(&w, i + 50000);
		m = w.m;
		list = calloc(w.n, sizeof(*list));
		moved = calloc(w.n, sizeof(*moved));
		assert_true(list && moved);
		/* the last of each donor's spare regions are for tables */
		for (u32 r = 0; r < w.n - 2 * m->c.donors; r++)
			list[nr++] = w.regions[r];
		for (u32 d = 0; d < m->c.donors; d++) {
			u8 *to = calloc(w.n, 1);
			u32 n;

			assert_int_equal(dcm_gc_compact(mesh_space(w.x, d), 1,
							list, nr,
							(w.n - 2 * m->c.donors) *
								REGION,
							2 * m->c.donors *
								REGION,
							moved, &n),
				0);
			for (u32 k = 0; k < n; k++) {
				u32 t = le32toh(moved[k].to);

				targets += !to[t];
				to[t] = 1;
				w.regions[t].top = moved[k].end;
				moved_tell(&w, le32toh(moved[k].from));
			}
			free(to);
			moves += n;
		}
		finish_check(&w);
		free(list);
		free(moved);
		world_free(&w);
	}
	assert_true(moves > targets);
	printf("# %llu regions moved into %llu\n", (unsigned long long)moves,
	       (unsigned long long)targets);
}

/* A list comes out as one piece depth first, a tree by levels breadth first. */
static void test_order(void **state)
{
	(void)state;
	for (u32 breadth = 0; breadth < 2; breadth++) {
		struct mut_config c = {
			.seed = 7,
			.regions = 4,
			.spare = 3,
			.region_bytes = REGION,
			.donors = 1,
			.ref_bytes = 8,
			.roots = 1,
		};
		struct mut *m = mut_new(&c);
		struct mesh *x = mesh_new(m, 1);
		struct virtio_gc_move move = {
			.to = htole32(1),
			.start = htole64(REGION + 64),
			.table = htole64(2 * REGION),
			.table_bytes = htole64(REGION),
		};
		struct virtio_gc_region regions[4];
		struct virtio_gc_moved moved;
		u32 order[255], n = 255;
		u64 size = 0, at;

		/* arrays of two references, in random order of places */
		for (u32 i = 0; i < n; i++) {
			u32 j = (u32)(mut_rand(m) % (i + 1));

			order[i] = order[j];
			order[j] = i;
			assert_int_not_equal(mut_alloc(m, 7, 2), U32_MAX);
		}
		/* the first place is the root's: traversal starts there */
		for (u32 i = 0; i < n; i++)
			if (!order[i]) {
				order[i] = order[0];
				order[0] = 0;
			}
		for (u32 i = 0; i < n; i++) {
			const struct mut_object *o = &m->objects[order[i]];

			size = o->bytes;
			for (u32 s = 0; s < 2; s++) {
				u32 to = breadth ? 2 * i + 1 + s :
					 s	 ? n :
						   i + 1;

				mut_write(m, mut_slot(m, o, s),
					  to < n ? m->objects[order[to]].at :
						   MUT_NULL);
			}
		}
		m->roots[m->nr_roots++] = m->objects[order[0]].at;
		mut_clean(m);
		assert_int_equal(mesh_start(x, 9, 0, 1, regions,
					    mut_regions_le(m, regions)),
				 0);
		assert_int_equal(mesh_roots_all(x, 9), 0);
		assert_int_equal(mesh_finish(x, 9, true), 0);
		assert_int_equal(dcm_gc_move(mesh_space(x, 0), 9, &move,
					     breadth, &moved),
				 0);
		assert_int_equal(le32toh(moved.objects), n);
		for (u32 i = 0; i < n; i++) {
			at = m->objects[order[i]].at;
			dcm_gc_forward(mesh_space(x, 0), &at, 1);
			assert_int_equal(at, REGION + 64 + i * size);
		}
		mesh_free(x);
		mut_free(m);
	}
}

/* A refused request changes nothing. */
static void test_refused(void **state)
{
	struct virtio_gc_moved moved;
	struct virtio_gc_move other;
	struct virtio_gc_live live;
	struct dcm_gc_space *s;
	struct world w;
	struct mut *m;
	u32 r = 0, to, tables;
	u64 size;

	(void)state;
	world_make(&w, 8); /* three donors */
	m = w.m;
	assert_int_equal(m->c.donors, 3);
	while (!m->top[r])
		r++;
	s = mesh_space(w.x, m->owner[r]);
	to = spare_of(m, m->owner[r], 0);
	tables = spare_of(m, m->owner[r], 1);
	assert_int_equal(dcm_gc_trace_live(s, 1, r, &live), 0);
	size = REGION / 512 * 16 + le64toh(live.objects) * 4;
	assert_true(le64toh(live.bytes));
	struct virtio_gc_move good = {
		.from = htole32(r),
		.to = htole32(to),
		.start = htole64(to * REGION),
		.table = htole64(tables * REGION),
		.table_bytes = htole64(size),
	};
#define REFUSED(want, field, value)                                         \
	do {                                                                \
		struct virtio_gc_move bad = good;                           \
		bad.field = value;                                          \
		assert_int_equal(dcm_gc_move(s, 1, &bad, 0, &moved), want); \
		assert_int_equal(le32toh(moved.status), want);              \
	} while (0)
	/* [VGC-D-37] */
	REFUSED(VIRTIO_GC_INVALID, from, htole32(m->c.regions));
	REFUSED(VIRTIO_GC_INVALID, to, htole32(m->c.regions));
	REFUSED(VIRTIO_GC_INVALID, to, good.from);
	REFUSED(VIRTIO_GC_INVALID, start, htole64(to * REGION + 4));
	REFUSED(VIRTIO_GC_INVALID, start, htole64(to * REGION - 8));
	REFUSED(VIRTIO_GC_INVALID, start, htole64(to * REGION + REGION + 8));
	REFUSED(VIRTIO_GC_INVALID, table, htole64(tables * REGION + 8));
	REFUSED(VIRTIO_GC_INVALID, table, htole64(r * REGION));
	REFUSED(VIRTIO_GC_INVALID, table, htole64(m->l.bytes));
	REFUSED(VIRTIO_GC_INVALID, table, htole64(to * REGION));
	REFUSED(VIRTIO_GC_INVALID, table_bytes, htole64(U64_MAX));
	REFUSED(VIRTIO_GC_NO_SPACE, table_bytes, htole64(size - 1));
	REFUSED(VIRTIO_GC_NO_SPACE, start,
		htole64(to * REGION + REGION - le64toh(live.bytes) + 8));
	other = good;
	other.to = htole32(spare_of(m, (m->owner[r] + 1) % 3, 0));
	other.start = htole64(le32toh(other.to) * REGION);
	assert_int_equal(dcm_gc_move(s, 1, &other, 0, &moved),
			 VIRTIO_GC_CROSS_DONOR);
	REFUSED(VIRTIO_GC_CROSS_DONOR, table,
		htole64(spare_of(m, (m->owner[r] + 1) % 3, 0) * REGION));
	REFUSED(VIRTIO_GC_NO_TRACE, from, htole32(spare_of(m, m->owner[r], 3)));
	assert_int_equal(dcm_gc_move(s, 2, &good, 0, &moved),
			 VIRTIO_GC_NO_TRACE);
	dcm_gc_stop(s, VIRTIO_GC_TIMED_OUT);
	assert_int_equal(dcm_gc_move(s, 1, &good, 0, &moved),
			 VIRTIO_GC_TIMED_OUT);
	dcm_gc_stop(s, 0);
	assert_memory_equal(m->donors + r * REGION, w.old + r * REGION, REGION);
	assert_int_equal(dcm_gc_move(s, 1, &good, 0, &moved), 0);
	/* once is enough; and where objects went nothing else goes from */
	assert_int_equal(dcm_gc_move(s, 1, &good, 0, &moved),
			 VIRTIO_GC_INVALID);
	world_free(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_evacuate),
		cmocka_unit_test(test_compact),
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * gc_stale_test.c - regions that are written to while donors trace them
 *
 * Their results are stale, and the others' are the runtime's own. Regions are
 * cut off from each other first, as for a trace of each by itself.
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "gc_world.h"

/* No reference leaves its region; some objects are roots instead. */
static void regions_cut(struct world *w)
{
	struct mut *m = w->m;
	u64 *roots = calloc(64, sizeof(*roots));

	assert_non_null(roots);
	memcpy(roots, m->roots, m->nr_roots * sizeof(*roots));
	free(m->roots);
	m->roots = roots;
	for (u32 o = 0; o < m->nr_objects; o++) {
		const struct mut_object *from = &m->objects[o];

		for (u64 s = 0; s < mut_slots(m, from); s++) {
			u64 slot = mut_slot(m, from, s);
			u64 to = mut_read(m, slot);

			if (to == MUT_NULL || to / REGION == from->at / REGION)
				continue;
			mut_write(m, slot, MUT_NULL);
			if (o % 7 == 0 && m->nr_roots < 64)
				roots[m->nr_roots++] = to;
		}
	}
	mut_clean(m);
	heap_io(w, DCM_IO_WRITE);
	memset(w->live, 0, m->nr_objects);
	mut_trace(m, w->live, NULL);
}

/* A page of region @r is written back: as it is, or changed beyond reading. */
static void page_write(struct world *w, u32 r, bool noise)
{
	static u8 page[PAGE];

	memcpy(page, w->m->donors + (u64)r * REGION, PAGE);
	for (u32 i = 0; noise && i < PAGE; i++)
		page[i] = (u8)(mut_rand(w->m) | 1);
	assert_int_equal(io(&w->h, w->slab[w->m->owner[r]], DCM_IO_WRITE,
			    w->at[r], PAGE, page),
			 0);
}

/* Each region's result: @stale has none, the others the runtime's own. */
static void regions_check(struct world *w, u32 epoch, u32 stale)
{
	struct virtio_gc_range range = {
		.regions = htole32(w->m->c.regions),
		.bitmaps = htole64(VIRTIO_GC_NONE),
	};
	const struct virtio_gc_live *l = (void *)w->out.entries;
	u64 objects[64] = { 0 };

	for (u32 o = 0; o < w->m->nr_objects; o++)
		objects[w->m->objects[o].at / REGION] += w->live[o];
	assert_int_equal(request(w, VIRTIO_GC_TRACE_RESULTS, 0, epoch, 0,
				 &range, sizeof(range), NULL, 0),
			 0);
	for (u32 r = 0; r < w->m->c.regions; r++) {
		/* [VGC-D-25] */
		assert_int_equal(le32toh(l[r].status),
				 r == stale ? VIRTIO_GC_STALE : VIRTIO_GC_OK);
		if (r != stale)
			assert_int_equal(le64toh(l[r].objects), objects[r]);
	}
}

/* A region without a result can't be moved. */
static void move_refused(struct world *w, u32 epoch, u32 from, u32 status)
{
	const struct virtio_gc_moved *moved = (void *)w->out.entries;
	struct virtio_gc_move move;
	u32 to, table, other;

	spares_choose(w, from, &to, &table, &other);
	move = move_of(from, to, table);
	request(w, VIRTIO_GC_EVACUATE, 0, epoch, 1, NULL, 0, &move,
		sizeof(move));
	assert_int_equal(w->out.done.count, 1);
	/* [VGC-D-37] */
	assert_int_equal(le32toh(moved->status), status);
}

/*
 * A region that is written to after its trace began is stale, the others are
 * not; without LOCAL the whole trace is, and objects that such a write damages
 * are no bug of the runtime's. With the barrier nothing is stale.
 */
static void stale_heaps(bool local)
{
	struct world w;

	world_donors(&w, local);
	for (u32 i = 1; i < 6; i += 2) {
		u32 epoch = 1, victim, spare;

		world_heap(&w, i);
		regions_cut(&w);
		space_make(&w);
		spare = w.m->c.regions - w.m->c.spare;
		for (victim = i; !w.m->top[victim]; victim++)
			;
		assert_true(victim < spare);

		/* a write before the trace began, and one where nothing is traced */
		page_write(&w, victim, false);
		assert_int_equal(trace_begin(&w, epoch, VIRTIO_GC_TRACE_LOCAL),
				 0);
		page_write(&w, spare, false);
		heap_io(&w, DCM_IO_READ);
		assert_int_equal(roots_send(&w, epoch), 0);
		assert_int_equal(trace_finish(&w, epoch), 0);
		regions_check(&w, epoch++, U32_MAX);

		/* writes during the trace, early and late */
		for (u32 k = 0; k < 2; k++) {
			assert_int_equal(trace_begin(&w, epoch,
						     VIRTIO_GC_TRACE_LOCAL),
					 0);
			if (!k)
				page_write(&w, victim, false);
			assert_int_equal(roots_send(&w, epoch), 0);
			if (k)
				page_write(&w, victim, false);
			assert_int_equal(trace_finish(&w, epoch), 0);
			/* a write after the trace */
			page_write(&w, (victim + 1) % spare, false);
			regions_check(&w, epoch, victim);
			move_refused(&w, epoch, victim, VIRTIO_GC_STALE);
			epoch++;
		}

		/* a trace of the whole space, and none */
		assert_int_equal(trace_start(&w, epoch), 0);
		page_write(&w, victim, false);
		assert_int_equal(roots_send(&w, epoch), 0);
		/* [VGC-D-24] */
		assert_int_equal(trace_finish(&w, epoch), VIRTIO_GC_STALE);
		move_refused(&w, epoch, victim, VIRTIO_GC_BUSY);
		epoch++;
		assert_int_equal(trace_begin(&w, epoch,
					     VIRTIO_GC_TRACE_CONCURRENT),
				 0);
		page_write(&w, victim, false);
		assert_int_equal(roots_send(&w, epoch), 0);
		assert_int_equal(trace_finish(&w, epoch), 0);
		regions_check(&w, epoch++, U32_MAX);

		/* the traced memory is no heap any more: not the runtime's fault */
		victim = (u32)(mut_root(w.m) / REGION);
		for (u32 k = 0; k < 2; k++) {
			assert_int_equal(trace_begin(&w, epoch,
						     k ? VIRTIO_GC_TRACE_LOCAL :
							 0),
					 0);
			for (u32 page = 0; page < REGION / PAGE; page++) {
				w.at[victim] += page * PAGE;
				page_write(&w, victim, true);
				w.at[victim] -= page * PAGE;
			}
			assert_int_equal(roots_send(&w, epoch), 0);
			assert_int_equal(trace_finish(&w, epoch),
					 VIRTIO_GC_STALE);
			epoch++;
			heap_io(&w, DCM_IO_WRITE);
		}
		/* and the next one is right */
		assert_int_equal(trace(&w, epoch), 0);
		results_check(&w, epoch);
		assert_int_equal(request(&w, VIRTIO_GC_SPACE_DESTROY, 0, 0, 0,
					 NULL, 0, NULL, 0),
				 0);
		world_heap_free(&w);
	}
	world_donors_end(&w);
}

static void test_stale_tcp(void **state)
{
	(void)state;
	stale_heaps(false);
}

static void test_stale_shm(void **state)
{
	(void)state;
	stale_heaps(true);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stale_tcp),
		cmocka_unit_test(test_stale_shm),
	};

	return host_run("gcstale", tests, sizeof(tests) / sizeof(tests[0]),
			argc > 1 ? argv[1] : NULL);
}

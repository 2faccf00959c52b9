// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * gc_move_test.c - a host has its donors move objects: real donors, real workers
 *
 * Moved objects are where the answers say. Donors are killed at each step, and
 * workers lie: the result is an error status, and memory that the command may not
 * write is unchanged.
 */
#include <endian.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "gc_liar.h"
#include "gc_world.h"

#define VICTIM 1u

/* Compact all regions; the last of each donor's spare ones is for tables. A status. */
static u32 compact(struct world *w, struct virtio_gc_region list[64])
{
	u32 regions = w->m->c.regions - DONORS;
	struct virtio_gc_area area = {
		.tables = htole64((u64)regions * REGION),
		.bytes = htole64((u64)DONORS * REGION),
	};

	for (u32 r = 0; r < regions; r++)
		list[r] = (struct virtio_gc_region){
			.region = htole32(r),
			.top = htole64((u64)r * REGION + w->m->top[r]),
		};
	w->told = 0;
	return request(w, VIRTIO_GC_COMPACT, 0, 1, regions, &area, sizeof(area),
		       list, regions * sizeof(*list));
}

/* As much is alive afterwards, in fewer regions, and the roots lead there. */
static void test_compact(void **state)
{
	u64 moves = 0;
	struct world w;

	(void)state;
	world_donors(&w, false);
	for (u32 i = 1; i < 8; i += 2) {
		struct virtio_gc_region list[64];
		struct virtio_gc_moved moved[64];
		u64 objects = 0, bytes = 0;
		__le64 a[64];
		struct mut *m;
		u32 n;

		world_heap(&w, i);
		m = w.m;
		space_make(&w);
		assert_int_equal(trace(&w, 1), 0);
		assert_int_equal(compact(&w, list), 0);
		n = w.out.done.count;
		assert_int_equal(w.told, n);
		assert_true(n <= 64);
		memcpy(moved, w.out.entries, n * sizeof(*moved));
		moves += n;
		mut_roots_le(m, a);
		assert_int_equal(request(&w, VIRTIO_GC_FORWARD, 0, 1,
					 m->nr_roots, NULL, 0, a,
					 m->nr_roots * 8),
				 0);
		memcpy(a, w.out.entries, m->nr_roots * 8);
		for (u32 k = 0; k < m->nr_roots; k++) {
			assert_int_equal(!a[k], m->roots[k] == MUT_NULL);
			if (a[k])
				m->roots[k] = le64toh(a[k]) - m->l.address;
		}
		for (u32 k = 0; k < n; k++) {
			u32 to = le32toh(moved[k].to);

			assert_int_equal(le32toh(moved[k].status), 0);
			m->top[to] = le64toh(moved[k].end) - (u64)to * REGION;
			m->top[le32toh(moved[k].from)] = 0;
			list[k].region = moved[k].from;
			list[k].top = 0;
		}
		/* the from-regions are no one's any more */
		assert_int_equal(request(&w, VIRTIO_GC_RELEASE, 0, 1, n, NULL,
					 0, list, n * sizeof(*list)),
				 0);
		assert_int_equal(trace_start(&w, 2), 0);
		assert_int_equal(roots_send(&w, 2), 0);
		/* nothing is at an opaque object's old place; none refers on */
		for (u32 status = VIRTIO_GC_MET; status;) {
			struct virtio_gc_met met = { .max = htole32(64) };

			status = request(&w, VIRTIO_GC_TRACE_FINISH, 0, 2, 0,
					 NULL, 0, NULL, 0);
			assert_true(!status || status == VIRTIO_GC_MET);
			if (status)
				assert_int_equal(request(&w,
							 VIRTIO_GC_TRACE_MET, 0,
							 2, 0, &met,
							 sizeof(met), NULL, 0),
						 0);
		}
		for (u32 o = 0; o < m->nr_objects; o++) {
			objects += w.live[o];
			bytes += w.live[o] ? m->objects[o].bytes : 0;
		}
		for (u32 r = 0; r < m->c.regions; r++) {
			struct virtio_gc_range range = {
				.first = htole32(r),
				.regions = htole32(1),
				.bitmaps = htole64(VIRTIO_GC_NONE),
			};
			const struct virtio_gc_live *l = (void *)w.out.entries;

			assert_int_equal(request(&w, VIRTIO_GC_TRACE_RESULTS, 0,
						 2, 0, &range, sizeof(range),
						 NULL, 0),
					 0);
			objects -= le64toh(l->objects);
			bytes -= le64toh(l->bytes);
		}
		assert_int_equal(objects, 0);
		assert_int_equal(bytes, 0);
		world_heap_free(&w);
	}
	assert_true(moves);
	world_donors_end(&w);
}

/* Regions whose objects are not as they were written. */
static u32 changed(struct world *w)
{
	static u8 now[REGION];
	struct mut *m = w->m;
	u32 n = 0;

	for (u32 r = 0; r < m->c.regions; r++) {
		assert_int_equal(io(&w->h, w->slab[m->owner[r]], DCM_IO_READ,
				    w->at[r], REGION, now),
				 0);
		n += !!memcmp(now, m->donors + (u64)r * REGION, m->top[r]);
	}
	return n;
}

/* The runtime is told of moves before references are updated, or none is updated. */
static void test_references_wait_until_moves_are_told(void **state)
{
	struct virtio_gc_region list[64];
	u32 updated = 0, told = 0, status;
	struct world w;

	(void)state;
	world_donors(&w, false);
	for (u32 i = 0; i < 8; i++) {
		w.deaf = i & 1;
		world_heap(&w, i / 2 * 2 + 1);
		space_make(&w);
		assert_int_equal(trace(&w, 1), 0);
		status = compact(&w, list);
		assert_int_equal(status,
				 w.deaf && w.told ? VIRTIO_GC_WORKER_LOST : 0);
		assert_int_equal(w.out.done.count, w.told);
		if (!w.deaf) {
			updated += changed(&w);
		} else {
			told += w.told;
			assert_int_equal(changed(&w), 0);
		}
		world_heap_free(&w);
	}
	assert_true(told && updated);
	world_donors_end(&w);
}

/* One region on its donor; the same to another's is refused. */
static void test_evacuate(void **state)
{
	struct world w;
	u32 same, other, table, from;

	(void)state;
	world_donors(&w, false);
	world_heap(&w, 3);
	space_make(&w);
	assert_int_equal(trace(&w, 1), 0);
	for (from = 0; !w.m->top[from]; from++)
		;
	spares_choose(&w, from, &same, &table, &other);
	for (u32 k = 0; k < 3; k++) {
		struct virtio_gc_move move =
			move_of(from, k ? same : other, table);
		const struct virtio_gc_moved *moved = (void *)w.out.entries;
		static const u32 want_status[] = { VIRTIO_GC_CROSS_DONOR, 0,
						   VIRTIO_GC_INVALID };

		request(&w, VIRTIO_GC_EVACUATE, 0, 1, 1, NULL, 0, &move,
			sizeof(move));
		assert_int_equal(w.out.done.count, 1);
		assert_int_equal(le32toh(moved->from), from);
		/* [VGC-D-37] */
		assert_int_equal(le32toh(moved->status), want_status[k]);
		if (!k)
			assert_int_equal(w.out.done.status, 0);
	}
	world_heap_free(&w);
	world_donors_end(&w);
}

/* A live object with a reference to another in @region, and which one that is. */
static const struct mut_object *referrer(const struct world *w, u32 region,
					 u64 *slot)
{
	const struct mut *m = w->m;

	for (u32 i = 0; i < m->nr_objects; i++) {
		const struct mut_object *o = &m->objects[i];

		if (!w->live[i] || o->at / REGION == region ||
		    m->types[o->type].flags & VIRTIO_GC_TYPE_OPAQUE)
			continue;
		for (u64 k = 0; k < mut_slots(m, o); k++) {
			*slot = mut_slot(m, o, k);
			if (mut_read(m, *slot) != MUT_NULL &&
			    mut_read(m, *slot) / REGION == region)
				return o;
		}
	}
	return NULL;
}

/*
 * A region with objects that is between two places is neither traced without
 * nor updated without: that would be OK, and its objects dead or wrong. One that
 * was empty and nowhere is updated once it is somewhere.
 */
static void test_region_between_places(void **state)
{
	struct virtio_gc_region list[1] = { 0 };
	u32 from, fresh, to, table;
	struct virtio_gc_move move;
	const struct mut_object *o;
	struct world w;
	__le64 address;
	u64 slot, now;
	u8 *field;

	(void)state;
	world_donors(&w, false);
	world_heap(&w, 3);
	space_make(&w);
	for (from = 0; !w.m->top[from] || !referrer(&w, from, &slot); from++)
		;
	w.nowhere[from] = true;
	/* [VGC-D-51] */
	assert_int_equal(trace_start(&w, 1), DCM_GC_WORKERS_MOVING);
	assert_int_not_equal(roots_send(&w, 1), 0);
	w.nowhere[from] = false;

	spares_choose(&w, from, &to, &table, &fresh);
	w.nowhere[fresh] = true;
	assert_int_equal(trace_start(&w, 2), 0);
	assert_int_equal(roots_send(&w, 2), 0);
	/* too early, which does the trace no harm */
	w.nowhere[fresh] = false;
	assert_int_equal(request(&w, VIRTIO_GC_UPDATE, 0, 2, 1, NULL, 0, list,
				 sizeof(*list)),
			 VIRTIO_GC_BUSY);
	w.nowhere[fresh] = true;
	assert_int_equal(trace_finish(&w, 2), 0);
	move = move_of(from, to, table);
	assert_int_equal(request(&w, VIRTIO_GC_EVACUATE, 0, 2, 1, NULL, 0,
				 &move, sizeof(move)),
			 0);
	heap_io(&w, DCM_IO_READ);

	/* the program made a copy there meanwhile */
	o = referrer(&w, from, &slot);
	field = w.m->donors + (u64)fresh * REGION;
	memcpy(field, w.m->donors + o->at, o->bytes);
	field += slot - o->at;
	heap_io(&w, DCM_IO_WRITE);
	list[0].region = htole32(fresh);
	list[0].top = htole64((u64)fresh * REGION + o->bytes);
	/* [VGC-D-51] */
	assert_int_equal(request(&w, VIRTIO_GC_UPDATE, 0, 2, 1, NULL, 0, list,
				 sizeof(*list)),
			 VIRTIO_GC_WORKER_LOST);
	w.nowhere[fresh] = false;
	assert_int_equal(request(&w, VIRTIO_GC_UPDATE, 0, 2, 1, NULL, 0, list,
				 sizeof(*list)),
			 0);
	address = mut_address_le(w.m, mut_read(w.m, slot));
	assert_int_equal(request(&w, VIRTIO_GC_FORWARD, 0, 2, 1, NULL, 0,
				 &address, sizeof(address)),
			 0);
	memcpy(&address, w.out.entries, sizeof(address));
	now = le64toh(address) - w.m->l.address;
	assert_int_equal(now / REGION, to);
	heap_io(&w, DCM_IO_READ);
	now = htole64(mut_ref(w.m, now));
	assert_memory_equal(field, &now, w.m->l.ref_bytes);
	world_heap_free(&w);
	world_donors_end(&w);
}

/* A request of a @command that moves or updates. */
static u32 moving(struct world *w, u16 command, u32 epoch,
		  const struct virtio_gc_move *move)
{
	u32 from = le32toh(move->from), nr = w->m->c.regions - w->m->c.spare;
	struct virtio_gc_region list[64] = { 0 };
	struct virtio_gc_area area = { move->table, move->table_bytes };
	__le64 roots[64];

	for (u32 r = 0; r < nr; r++) {
		list[r].region = htole32(r);
		list[r].top = htole64((u64)r * REGION + w->m->top[r]);
	}
	switch (command) {
	case VIRTIO_GC_EVACUATE:
		return request(w, command, 0, epoch, 1, NULL, 0, move,
			       sizeof(*move));
	case VIRTIO_GC_UPDATE:
		/* all regions but the moved one */
		list[from] = list[--nr];
		return request(w, command, 0, epoch, nr, NULL, 0, list,
			       nr * sizeof(*list));
	case VIRTIO_GC_FORWARD:
		mut_roots_le(w->m, roots);
		return request(w, command, 0, epoch, w->m->nr_roots, NULL, 0,
			       roots, w->m->nr_roots * sizeof(*roots));
	case VIRTIO_GC_COMPACT:
		list[nr].region = move->to;
		list[nr++].top = move->start;
		return request(w, command, 0, epoch, nr, &area, sizeof(area),
			       list, nr * sizeof(*list));
	default:
		list[0] = (struct virtio_gc_region){ .region = move->from };
		return request(w, command, 0, epoch, 1, NULL, 0, list,
			       sizeof(*list));
	}
}

/* Regions of donors that are left, but for those of @move, and of UPDATE. */
static void survivors_same(struct world *w, u16 command,
			   const struct virtio_gc_move *move)
{
	static u8 now[REGION];
	struct mut *m = w->m;

	for (u32 r = 0; r < m->c.regions; r++) {
		if (m->owner[r] == VICTIM || r == le32toh(move->to) ||
		    r == le64toh(move->table) / REGION ||
		    (r != le32toh(move->from) && m->top[r] &&
		     command != VIRTIO_GC_EVACUATE))
			continue;
		assert_int_equal(io(&w->h, w->slab[m->owner[r]], DCM_IO_READ,
				    w->at[r], REGION, now),
				 0);
		/* [VGC-D-12] [VGC-D-38] [VGC-D-39] */
		assert_memory_equal(now, m->donors + (u64)r * REGION, REGION);
	}
}

static void donor_kill(struct world *w)
{
	donor_signal(&w->donor[VICTIM], SIGKILL);
}

/*
 * A heap of three donors, of which one is killed when @command looks around for
 * the @look'th time; false: the command ended before.
 */
static bool killed_at(u16 command, u32 mover, u32 look)
{
	u32 from = 0, to, table, other, status;
	struct virtio_gc_move move;
	pid_t before[DONORS];
	struct world w;
	bool killed;

	world_donors(&w, false);
	world_heap(&w, 3);
	space_make(&w);
	assert_int_equal(trace(&w, 1), 0);
	while (!w.m->top[from] || w.m->owner[from] != mover)
		from++;
	spares_choose(&w, from, &to, &table, &other);
	move = move_of(from, to, table);
	if (command != VIRTIO_GC_EVACUATE && command != VIRTIO_GC_COMPACT)
		assert_int_equal(moving(&w, VIRTIO_GC_EVACUATE, 1, &move), 0);
	for (u32 d = 0; d < DONORS; d++)
		before[d] = worker_of(&w, d);

	w.kill = donor_kill;
	w.kill_at = look;
	status = moving(&w, command, 1, &move);
	killed = !w.kill_at;
	w.kill_at = 0;
	if (!killed) {
		assert_true(!status || status == VIRTIO_GC_NO_SPACE);
	} else {
		assert_true(!status || status == VIRTIO_GC_WORKER_LOST ||
			    status == VIRTIO_GC_DONOR_LOST);
		if (status)
			assert_int_equal(w.out.done.donor, VICTIM);
		survivors_same(&w, command, &move);
		for (u32 d = 0; d < DONORS; d++)
			if (d != VICTIM)
				assert_int_equal(worker_of(&w, d), before[d]);
		status = trace_start(&w, 2);
		assert_true(status == VIRTIO_GC_WORKER_LOST ||
			    status == VIRTIO_GC_DONOR_LOST);
	}
	world_heap_free(&w);
	world_donors_end(&w);
	return killed;
}

/*
 * A donor, the one that moves or another, is killed in each step of commands that
 * move and update: an error status, and memory that the command may not write is
 * unchanged.
 * The others' workers stop, and live.
 */
static void test_donor_killed_while_it_moves(void **state)
{
	static const u16 commands[] = { VIRTIO_GC_EVACUATE, VIRTIO_GC_UPDATE,
					VIRTIO_GC_FORWARD, VIRTIO_GC_RELEASE,
					VIRTIO_GC_COMPACT };
	u32 kills = 0;

	(void)state;
	for (u32 i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		u32 look = 1;

		while (killed_at(commands[i], look % 2 ? VICTIM : 0, look))
			look++;
		assert_true(look > 1);
		kills += look - 1;
	}
	printf("# killed %u times\n", kills);
}

/* Beside this program. */
static void world_of_liars(struct world *w)
{
	char config[128], path[400];
	const char *const opts[] = { DONOR_SMALL, "--config", config, NULL };
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 16);
	FILE *f;

	assert_true(n > 0);
	path[n] = 0;
	memcpy(strrchr(path, '/') + 1, "gc_liar", sizeof("gc_liar"));
	snprintf(config, sizeof(config), "%s/liars.ini", host_dir);
	f = fopen(config, "we");
	assert_non_null(f);
	assert_true(fprintf(f, "[gc]\nworker = %s\n", path) > 0);
	assert_int_equal(fclose(f), 0);
	world_donors_of(w, false, opts);
}

/*
 * False answers about moves lead no runtime out of the space, nor to regions of
 * other donors: the worker is given up instead.
 */
static void test_lies_about_moves(void **state)
{
	u32 to, table, other, lies = 0, epoch = 1;
	struct virtio_gc_move move;
	struct world w;

	(void)state;
	world_of_liars(&w);
	world_heap(&w, 3);
	space_make(&w);
	for (u32 from = 0; from < w.m->c.regions - w.m->c.spare; from++) {
		if (!w.m->top[from])
			continue;
		spares_choose(&w, from, &to, &table, &other);
		move = move_of(from, to, table);
		for (u32 k = 0; k < 2; k++) {
			u16 command = k ? VIRTIO_GC_COMPACT :
					  VIRTIO_GC_EVACUATE;
			pid_t before;

			assert_int_equal(trace(&w, epoch), 0);
			before = worker_of(&w, w.m->owner[from]);
			/* [VGC-D-13] [VGC-D-52] */
			assert_int_equal(moving(&w, command, epoch, &move),
					 VIRTIO_GC_WORKER_LOST);
			/* of a compaction none is answered, as the first is one */
			if (k)
				assert_int_equal(w.out.done.count, 0);
			else
				assert_int_equal(w.out.done.donor,
						 w.m->owner[from]);
			if (!k)
				WAIT(kill(before, 0));
			epoch++;
		}
		lies |= 1u << from % GC_LIES;
	}
	assert_int_equal(lies, (1u << GC_LIES) - 1);
	world_heap_free(&w);
	world_donors_end(&w);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_compact),
		cmocka_unit_test(test_references_wait_until_moves_are_told),
		cmocka_unit_test(test_evacuate),
		cmocka_unit_test(test_region_between_places),
		cmocka_unit_test(test_donor_killed_while_it_moves),
		cmocka_unit_test(test_lies_about_moves),
	};

	return host_run("gcmove", tests, sizeof(tests) / sizeof(tests[0]),
			argc > 1 ? argv[1] : NULL);
}

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * gc_test.c - a host has its donors trace: real donors, real workers
 *
 * The workers' results are compared with those of the runtime's own collector.
 * Workers and donors are killed and stopped meanwhile: a status, and the
 * next trace is right. Moves are gc_move_test.c's.
 */
#include <endian.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "gc_world.h"

static void trace_heaps(bool local)
{
	struct world w;

	world_donors(&w, local);
	for (u32 i = 0; i < 8; i++) {
		world_heap(&w, i);
		space_make(&w);
		for (u32 epoch = 1; epoch < 3; epoch++) {
			assert_int_equal(trace(&w, epoch), 0);
			results_check(&w, epoch);
			/* another's epoch, and the same again */
			assert_int_equal(roots_send(&w, epoch + 7),
					 VIRTIO_GC_NO_TRACE);
			assert_int_equal(trace_start(&w, epoch),
					 VIRTIO_GC_INVALID);
		}
		assert_int_equal(request(&w, VIRTIO_GC_SPACE_DESTROY, 0, 0, 0,
					 NULL, 0, NULL, 0),
				 0);
		/* the last space: no worker is left */
		for (u32 d = 0; d < DONORS; d++)
			no_workers(&w, d);
		assert_int_equal(trace_start(&w, 9), VIRTIO_GC_INVALID);
		world_heap_free(&w);
	}
	world_donors_end(&w);
}

static void test_trace_tcp(void **state)
{
	(void)state;
	trace_heaps(false);
}

static void test_trace_shm(void **state)
{
	(void)state;
	trace_heaps(true);
}

/* A heap traced once, and a second trace that has its roots. */
static void world_tracing(struct world *w)
{
	world_donors(w, false);
	world_heap(w, 2);
	space_make(w);
	assert_int_equal(trace(w, 1), 0);
	assert_int_equal(trace_start(w, 2), 0);
	assert_int_equal(roots_send(w, 2), 0);
}

/* Killed at any moment: a status, then the next trace is right. */
static void test_worker_killed(void **state)
{
	struct world w;
	u32 noticed = 0, epoch = 1;

	(void)state;
	world_donors(&w, false);
	world_heap(&w, 2);
	space_make(&w);
	assert_int_equal(trace(&w, epoch++), 0);
	for (u32 k = 0; k < 9; k++) {
		u32 victim = k % DONORS, status;

		/* before the trace, while roots are sent, while the trace is finished */
		if (k / 3 == 0)
			kill(worker_of(&w, victim), SIGKILL);
		status = trace_start(&w, epoch);
		if (!status && k / 3 == 1)
			kill(worker_of(&w, victim), SIGKILL);
		if (!status)
			status = roots_send(&w, epoch);
		if (!status && k / 3 == 2)
			kill(worker_of(&w, victim), SIGKILL);
		if (!status)
			status = trace_finish(&w, epoch);
		if (status) {
			/* [VGC-D-13] */
			assert_int_equal(status, VIRTIO_GC_WORKER_LOST);
			assert_int_equal(w.out.done.donor, victim);
			status = roots_send(&w, epoch);
			assert_true(status == VIRTIO_GC_WORKER_LOST ||
				    status == VIRTIO_GC_NO_TRACE);
			noticed++;
		}
		epoch++;
		assert_int_equal(trace(&w, epoch), 0);
		results_check(&w, epoch++);
	}
	assert_true(noticed >= 3);
	world_heap_free(&w);
	world_donors_end(&w);
}

/* How many there were: a donor may be just about to start one. */
static u32 workers_kill(struct world *w, u32 d)
{
	pid_t pids[8];
	u32 n = workers(w, d, pids);

	for (u32 i = 0; i < n; i++)
		kill(pids[i], SIGKILL);
	return n;
}

/* Of the donor that is asked first. */
static void worker_kill(struct world *w)
{
	workers_kill(w, 0);
}

/*
 * Kill a worker at each step of a trace's beginning: the next worker there gets
 * the whole replay, or the new worker would refuse every later trace.
 */
static void test_worker_killed_invalid_ever_after(void **state)
{
	u32 epoch = 1, look = 0, status;
	bool killed = true;
	struct world w;

	(void)state;
	world_donors(&w, false);
	world_heap(&w, 2);
	space_make(&w);
	w.kill = worker_kill;
	while (killed) {
		/* with no worker there, all is replayed */
		for (u32 d = 0; d < DONORS; d++)
			WAIT(!workers_kill(&w, d));
		w.kill_at = ++look;
		status = trace_start(&w, epoch++);
		killed = !w.kill_at;
		w.kill_at = 0;
		assert_true(!status || status == VIRTIO_GC_WORKER_LOST);
		/* the loss of the worker may not have been noticed yet */
		for (u32 i = 0; i < 3 && (status || !i); i++) {
			status = trace(&w, epoch++);
			assert_true(!status || status == VIRTIO_GC_WORKER_LOST);
		}
		assert_int_equal(status, 0);
		results_check(&w, epoch - 1);
	}
	assert_true(look > 4);
	printf("# killed %u times\n", look - 1);
	world_heap_free(&w);
	world_donors_end(&w);
}

/* A stopped worker: the deadline holds, the worker is killed, others go on. */
static void test_worker_stopped(void **state)
{
	struct world w;
	u64 before;
	pid_t pid;

	(void)state;
	world_tracing(&w);
	pid = worker_of(&w, 1);
	kill(pid, SIGSTOP);
	w.deadline_ms = 300;
	before = now_ms();
	assert_int_equal(trace_finish(&w, 2), VIRTIO_GC_TIMED_OUT);
	assert_true(now_ms() - before >= 300);
	assert_int_equal(w.out.done.donor, 1);
	WAIT(kill(pid, 0));
	w.deadline_ms = 0;
	assert_int_equal(trace(&w, 3), 0);
	results_check(&w, 3);
	/* and the runtime can cancel the trace */
	assert_int_equal(trace_start(&w, 4), 0);
	kill(worker_of(&w, 0), SIGSTOP);
	w.cancel = true;
	assert_int_equal(roots_send(&w, 4), VIRTIO_GC_CANCELLED);
	w.cancel = false;
	assert_int_equal(trace(&w, 5), 0);
	results_check(&w, 5);
	world_heap_free(&w);
	world_donors_end(&w);
}

/* SET_TYPES of another space, cancelled after @looks; true: it ended before. */
static bool types_cancelled(struct world *w, u32 looks)
{
	struct virtio_gc_space space = mut_space_le(w->m);
	struct virtio_gc_types types = { .runs = htole32(w->m->nr_runs) };
	u8 bytes[16 * 32 + 128 * 8];
	size_t n = mut_types_le(w->m, bytes);
	u32 status;

	w->beside = 1;
	assert_int_equal(request(w, VIRTIO_GC_SPACE_CREATE, 0, 0, 0, &space,
				 sizeof(space), NULL, 0),
			 0);
	w->cancel_at = looks;
	status = request(w, VIRTIO_GC_TYPES_ADD, 0, 0, w->m->nr_types, &types,
			 sizeof(types), bytes, n);
	w->cancel_at = 0;
	assert_true(!status || status == VIRTIO_GC_CANCELLED);
	/* SPACE_DESTROY can't be cancelled */
	w->cancel = true;
	assert_int_equal(request(w, VIRTIO_GC_SPACE_DESTROY, 0, 0, 0, NULL, 0,
				 NULL, 0),
			 0);
	w->cancel = false;
	w->beside = 0;
	return !status;
}

/* A space's requests, however they end, end no other space's trace. */
static void test_others_traces_stay(void **state)
{
	struct world w;
	pid_t pid[DONORS];
	u32 looks = 0;

	(void)state;
	world_tracing(&w);
	for (u32 d = 0; d < DONORS; d++)
		pid[d] = worker_of(&w, d);
	while (!types_cancelled(&w, ++looks))
		assert_true(looks < 200);
	assert_true(looks > 1);
	assert_int_equal(trace_finish(&w, 2), 0);
	results_check(&w, 2);
	for (u32 d = 0; d < DONORS; d++)
		assert_int_equal(worker_of(&w, d), pid[d]);
	world_heap_free(&w);
	world_donors_end(&w);
}

/* A donor is killed, with its part of the heap; other donors' workers end in order. */
static void test_donor_killed(void **state)
{
	struct world w;
	u32 status;

	(void)state;
	world_donors(&w, false);
	world_heap(&w, 2);
	space_make(&w);
	assert_int_equal(trace(&w, 1), 0);
	assert_int_equal(trace_start(&w, 2), 0);
	donor_signal(&w.donor[1], SIGKILL);
	status = roots_send(&w, 2);
	if (!status)
		status = trace_finish(&w, 2);
	assert_true(status == VIRTIO_GC_WORKER_LOST ||
		    status == VIRTIO_GC_DONOR_LOST);
	assert_int_equal(w.out.done.donor, 1);
	WAIT(get(&w.h, &w.h.losts));
	assert_int_equal(trace_start(&w, 3), VIRTIO_GC_DONOR_LOST);
	assert_int_equal(w.out.done.donor, 1);
	dcm_gc_workers_reset(w.workers);
	no_workers(&w, 0);
	no_workers(&w, 2);
	world_heap_free(&w);
	world_donors_end(&w);
}

/* A heap that is none. */
static void test_bad_heap(void **state)
{
	struct world w;
	u32 status;

	(void)state;
	world_donors(&w, true);
	world_heap(&w, 2);
	space_make(&w);
	for (u64 i = 0; i < w.m->l.bytes; i++)
		w.m->donors[i] = (u8)mut_rand(w.m);
	heap_io(&w, DCM_IO_WRITE);
	for (u32 epoch = 1; epoch < 6; epoch++) {
		struct virtio_gc_range range = {
			.regions = htole32(1),
			.bitmaps = htole64(VIRTIO_GC_NONE),
		};
		const struct virtio_gc_live *live = (void *)w.out.entries;

		status = trace(&w, epoch);
		assert_true(status == VIRTIO_GC_BAD_TYPE ||
			    status == VIRTIO_GC_BAD_OBJECT ||
			    status == VIRTIO_GC_BAD_REFERENCE);
		assert_true(w.out.done.at != VIRTIO_GC_NONE);
		/* no results [VGC-D-29] */
		assert_int_equal(request(&w, VIRTIO_GC_TRACE_RESULTS, 0, epoch,
					 0, &range, sizeof(range), NULL, 0),
				 0);
		assert_int_equal(le32toh(live->status), VIRTIO_GC_BUSY);
	}
	world_heap_free(&w);
	world_donors_end(&w);
}

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
		cmocka_unit_test(test_trace_tcp),
		cmocka_unit_test(test_trace_shm),
		cmocka_unit_test(test_worker_killed),
		cmocka_unit_test(test_worker_killed_invalid_ever_after),
		cmocka_unit_test(test_worker_stopped),
		cmocka_unit_test(test_others_traces_stay),
		cmocka_unit_test(test_donor_killed),
		cmocka_unit_test(test_bad_heap),
		cmocka_unit_test(test_stale_tcp),
		cmocka_unit_test(test_stale_shm),
	};

	return host_run("gc", tests, sizeof(tests) / sizeof(tests[0]),
			argc > 1 ? argv[1] : NULL);
}

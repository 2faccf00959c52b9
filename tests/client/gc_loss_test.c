// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * gc_loss_test.c - a host whose workers and donors fail while they trace
 *
 * They are killed and stopped at each step: a status, and the next trace is
 * right.
 */
#include <signal.h>
#include <stdio.h>

#include "gc_world.h"

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

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_worker_killed),
		cmocka_unit_test(test_worker_killed_invalid_ever_after),
		cmocka_unit_test(test_worker_stopped),
		cmocka_unit_test(test_donor_killed),
	};

	return host_run("gcloss", tests, sizeof(tests) / sizeof(tests[0]),
			argc > 1 ? argv[1] : NULL);
}

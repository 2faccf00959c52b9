// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * yield.c - a fault thread that yields its CPU to the thread it serves
 *
 * The scheduler puts a woken thread on an idle CPU if there is one. The CPU
 * that faulting thread and lane shared is not idle, as the lane still runs on
 * it. So they end up apart, and every fault costs two wake-ups across CPUs. A
 * CPU that runs only SCHED_IDLE threads counts as idle. A SCHED_IDLE lane is
 * preempted by the thread it wakes, on the same CPU, and runs again when that
 * thread faults again: two context switches, no interrupt.
 *
 * The price is that such a lane preempts no other thread. A lane is SCHED_IDLE
 * only while faults come densely from one thread on the lane's CPU, and returns
 * to SCHED_OTHER
 *  - after 2 ms without a fault,
 *  - when a fault of another thread is found late, and so may have waited,
 *  - when the lane waited for its CPU while the faulting thread was not running
 *    there: another thread needs that CPU. Every millisecond the lane's waiting
 *    time (schedstat) is compared with the faulting thread's CPU time.
 * In the last two cases yielding has cost another thread time. Then the lane stays
 * SCHED_OTHER for a while: for as long as the time that was lost, if it had yielded for
 * much longer than that; else for several times as long, longer each time, up to a
 * fifth of a second.
 *
 * Returning takes CAP_SYS_NICE or a nice limit (RLIMIT_NICE) of the process's
 * nice value; without it lanes never yield. Nor do they under seccomp, which
 * may kill the process for asking (QEMU's -sandbox on,resourcecontrol=deny).
 *
 * All functions but dcm_yield_can() are called by the lane's own thread.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "../lib/thread.h"
#include "affinity.h"
#include "yield.h"

/* faults are dense if closer to each other than this */
#define DENSE_NS (1000u * 1000)
#define LATE_NS (100u * 1000) /* another thread's fault waited */
#define CHECK_NS (1000u * 1000)
/* yielding was worth it if it lasted 8 times the time that it cost */
#define WORTH 8u
#define HOLD_MAX_NS (200u * 1000 * 1000)

static bool policy_set(int policy)
{
	const struct sched_param none = { 0 };

	return !sched_setscheduler(0, policy, &none);
}

static void *policy_try(void *arg)
{
	*(bool *)arg = policy_set(SCHED_IDLE) && policy_set(SCHED_OTHER);
	return NULL;
}

/** dcm_yield_can() - may a thread become SCHED_IDLE, and SCHED_OTHER again? */
bool dcm_yield_can(void)
{
	pthread_t thread;
	bool can = false;

	if (sched_getscheduler(0) != SCHED_OTHER || prctl(PR_GET_SECCOMP) ||
	    dcm_thread_start(&thread, policy_try, &can))
		return false;
	pthread_join(thread, NULL);
	return can;
}

/* For how many nanoseconds this thread was ready to run but did not. */
static bool thread_waited_ns(const struct dcm_yield *p, u64 *ns)
{
	char text[80], *end;
	ssize_t n = pread(p->schedstat, text, sizeof(text) - 1, 0);

	if (n <= 0)
		return false;
	text[n] = 0;
	strtoull(text, &end, 10);
	*ns = strtoull(end, NULL, 10);
	return true;
}

/* CPU time of another thread of this process. */
static bool thread_ran_ns(pid_t tid, u64 *ns)
{
	/* The kernel's encoding: per thread (4), CPU time by scheduler (2). */
	clockid_t clock = (clockid_t)(~(unsigned int)tid << 3 | 6u);
	struct timespec ts;

	if (clock_gettime(clock, &ts))
		return false;
	*ns = (u64)ts.tv_sec * 1000000000 + (u64)ts.tv_nsec;
	return true;
}

/** dcm_yield_start() - set up a lane; the first of these calls, in the lane's thread */
void dcm_yield_start(struct dcm_pg_lane *l)
{
	l->yield.schedstat = -1;
	if (l->pg->can_yield)
		l->yield.schedstat = open("/proc/thread-self/schedstat",
					   O_RDONLY | O_CLOEXEC);
}

void dcm_yield_stop(struct dcm_pg_lane *l)
{
	if (l->yield.schedstat >= 0)
		close(l->yield.schedstat);
}

static bool times_mark(struct dcm_yield *p, pid_t tid, u64 now)
{
	p->tid = tid;
	p->checked_ns = now;
	return thread_waited_ns(p, &p->waited_ns) &&
	       thread_ran_ns(tid, &p->ran_ns);
}

static void policy_leave(struct dcm_yield *p)
{
	/* Seccomp was set since dcm_yield_can(): the lane could not return. */
	if (prctl(PR_GET_SECCOMP)) {
		close(p->schedstat);
		p->schedstat = -1;
		return;
	}
	policy_set(SCHED_OTHER);
	p->on = false;
}

/* Yielding has made a thread wait for @lost_ns: return to SCHED_OTHER for a while. */
static void yield_regret(struct dcm_yield *p, u64 now, u64 lost_ns)
{
	if (now - p->since_ns > WORTH * lost_ns)
		p->hold_ns = min(lost_ns, (u64)HOLD_MAX_NS);
	else
		p->hold_ns = min(max(WORTH * lost_ns, 2 * p->hold_ns),
				 (u64)HOLD_MAX_NS);
	p->until_ns = now + p->hold_ns;
	WRITE_ONCE(p->regrets, p->regrets + 1);
	policy_leave(p);
}

/** dcm_yield_may() - can the lane yield, and has it paused long enough? */
bool dcm_yield_may(const struct dcm_pg_lane *l)
{
	return l->yield.schedstat >= 0 && l->yield.seen_ns >= l->yield.until_ns;
}

/**
 * dcm_yield_be() - yield if it pays: @tid faults on the CPU of this lane
 *
 * Does nothing unless faults are dense and dcm_yield_may().
 */
void dcm_yield_be(struct dcm_pg_lane *l, pid_t tid)
{
	struct dcm_yield *p = &l->yield;
	u64 now = p->seen_ns;

	if (p->on || !p->dense || !dcm_yield_may(l))
		return;
	if (prctl(PR_GET_SECCOMP) || !times_mark(p, tid, now))
		return;
	p->since_ns = now;
	p->on = policy_set(SCHED_IDLE);
}

/** dcm_yield_fault() - a fault of @tid was read: go on yielding? */
void dcm_yield_fault(struct dcm_pg_lane *l, pid_t tid)
{
	struct dcm_yield *p = &l->yield;
	u64 now, gap, waited, ran, others;

	if (p->schedstat < 0)
		return;
	now = dcm_now_ns();
	gap = now - p->seen_ns;
	p->seen_ns = now;
	p->dense = gap < DENSE_NS;
	if (!p->on)
		return;
	WRITE_ONCE(p->served, p->served + 1);
	if (tid != p->tid && gap > LATE_NS && !dcm_affinity_served(l, tid)) {
		yield_regret(p, now, gap);
		return;
	}
	if (now - p->checked_ns < CHECK_NS)
		return;
	if (tid != p->tid) {
		if (!times_mark(p, tid, now))
			policy_leave(p);
		return;
	}
	waited = p->waited_ns;
	ran = p->ran_ns;
	gap = now - p->checked_ns;
	if (!times_mark(p, tid, now)) {
		policy_leave(p);
		return;
	}
	waited = p->waited_ns - waited;
	ran = p->ran_ns - ran;
	others = waited > ran ? waited - ran : 0;
	if (others > gap / 2)
		yield_regret(p, now, others);
}

/** dcm_yield_silence() - there was no fault for DCM_YIELD_MS: stop yielding */
void dcm_yield_silence(struct dcm_pg_lane *l)
{
	if (l->yield.on && l->yield.schedstat >= 0)
		policy_leave(&l->yield);
}

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * lane.c - the fault threads
 *
 * One userfaultfd serves the process. Lane 0 always reads it. Others join when
 * reads often find many faults, or when several threads fault on CPUs of their
 * own; they leave when all faults come from one thread, or when they wake
 * without a fault (every lane in poll() is woken for every fault). Up to half
 * of the CPUs get a lane, or all of them if lanes may yield (yield.c). A lane
 * takes all faults it can in one read(), calls the core for each, polls its
 * connections while I/O is in flight, and sleeps in poll() on all of that.
 *
 * A wake-up across CPUs costs several times what the fault does, so a lane
 * that is alone follows the faulting thread: when faults come from one other
 * CPU several times in a row it moves there by sched_setaffinity(), and the
 * hand-over becomes a context switch (affinity.c).
 *
 * A lane also hides pages of the core's sample between faults. Were that another
 * thread's work, each of its wake-ups would disturb a lane that follows its thread.
 *
 * A fault that finds no frame free (STALL) is kept and taken again after
 * progress. Nothing here allocates.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../lib/thread.h"
#include "../lib/log.h"
#include "pager.h"
#include "affinity.h"
#include "yield.h"

#define WAIT_FDS (2 + DCM_CLIENT_FDS_MAX)
#define IDLE_MS 50 /* with frames to drop */
#define RETRY_MS 1 /* with something to try again */
#define SILENT_MS 100 /* with I/O in flight, or in doubt */
#define SPIN_IO_NS (60u * 1000)
#define CROWD 4 /* faults in one read that are too many for one lane */
/* reads with a crowd, less those without: another lane joins */
#define JOIN_AFTER 8
#define ALONE_TURNS 64 /* reads between two looks at which threads fault */
#define ALONE_MAX 8 /* looks in a row that saw only one thread: a lane leaves */
#define HIDE_FAULTS 64 /* between two looks for pages to hide (core/reuse.c) */
#define LEAVE_AFTER 64 /* wake-ups without a fault */
#define LEAVE_YIELDING 1024 /* the same, if lanes yield */

void dcm_lane_kick(struct dcm_pg_lane *l)
{
	u64 one = 1;

	if (write(l->wake_fd, &one, sizeof(one)) < 0)
		return;
}

/* Give a message to the core; false: STALL, take it again later. */
static bool fault_handle(struct dcm_pg_lane *l, const struct uffd_msg *msg)
{
	struct dcm_pager *pg = l->pg;
	u64 va = msg->arg.pagefault.address & ~(u64)(DCM_PAGE_SIZE - 1);
	enum dcm_fault_result result = DCM_FAULT_STALL;
	u32 flags = 0;
	u64 gfn;

	if (msg->event != UFFD_EVENT_PAGEFAULT)
		return true;
	if (!dcm_guest_gfn(&pg->guest, va, &gfn)) {
		/* Unmapped since: the thread retries and finds out. */
		dcm_uffd_wake(&pg->uffd, va, DCM_PAGE_SIZE);
		return true;
	}
	if (unlikely(!READ_ONCE(pg->guest.used[gfn >> DCM_SPAN_SHIFT])))
		__atomic_store_n(&pg->guest.used[gfn >> DCM_SPAN_SHIFT], 1,
				 __ATOMIC_SEQ_CST);
	if (msg->arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WP)
		flags = DCM_FF_WP | DCM_FF_WRITE;
	else if (msg->arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WRITE)
		flags = DCM_FF_WRITE;
	/* Pairs with lanes_wait() in gc_pages.c. */
	__atomic_fetch_add(&l->fault_seq, 1, __ATOMIC_SEQ_CST);
	if (likely(!dcm_guest_frozen(&pg->guest, gfn)))
		result = dcm_fault(l->core, gfn, flags);
	smp_store_release(&l->fault_seq, l->fault_seq + 1);
	return result != DCM_FAULT_STALL;
}

/* Count the time that faults without a frame (@stalled) have waited, all together. */
static void stalled_count(struct dcm_pg_lane *l)
{
	u64 now = dcm_now_ns();

	/* While pages are frozen some of these faults may wait for the thaw instead. */
	if (l->nr_stalled &&
	    !__atomic_load_n(&l->pg->guest.any_frozen, __ATOMIC_RELAXED))
		dcm_waited(l->core, dcm_stall_cause(l->core),
			   (now - l->stalled_ns) * l->nr_stalled);
	l->stalled_ns = now;
}

static bool stalled_retry(struct dcm_pg_lane *l)
{
	u32 i, n = 0;

	if (!l->nr_stalled)
		return false;
	stalled_count(l);
	for (i = 0; i < l->nr_stalled; i++)
		if (!fault_handle(l, &l->stalled[i]))
			l->stalled[n++] = l->stalled[i];
	i = l->nr_stalled;
	l->nr_stalled = n;
	return n < i;
}

/* Change the number of lanes that read faults to @to, if it still is @from. */
static void crew_resize(struct dcm_pager *pg, u32 from, u32 to)
{
	if (to < 1 || to > pg->crew_max)
		return;
	if (!__atomic_compare_exchange_n(&pg->active, &from, to, false,
					 __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		return;
	if (to > from)
		dcm_lane_kick(&pg->lane[to - 1]);
}

/* Did the last faults come from more than one thread? */
static bool crew_has_many_threads(const struct dcm_pager *pg)
{
	u32 first = READ_ONCE(pg->recent[0]);
	unsigned int i;

	for (i = 1; i < ARRAY_SIZE(pg->recent); i++)
		if (READ_ONCE(pg->recent[i]) != first)
			return true;
	return false;
}

/* Faults also come from @cpu, where no lane runs: let another lane join there. */
static void crew_ask(struct dcm_pg_lane *l, int cpu)
{
	struct dcm_pager *pg = l->pg;
	u32 active = READ_ONCE(pg->active);

	if (active >= pg->crew_max)
		return;
	WRITE_ONCE(pg->lane[active].go_cpu, cpu);
	crew_resize(pg, active, active + 1);
}

/*
 * Several lanes pay while several threads fault at the same time: faults are
 * found waiting, or come from CPUs that could have a lane of their own. A
 * single thread is served best by one lane next to it.
 */
static void crew_adapt(struct dcm_pg_lane *l, int nr)
{
	struct dcm_pager *pg = l->pg;
	u32 active = READ_ONCE(pg->active);

	if (nr > 0) {
		WRITE_ONCE(pg->recent[l->turn++ % ARRAY_SIZE(pg->recent)],
			   l->msg[nr - 1].arg.pagefault.feat.ptid);
		l->nothing = 0;
	}
	if (nr >= CROWD) {
		l->company += 2;
		if (l->company > JOIN_AFTER) {
			l->company = 0;
			crew_resize(pg, active, active + 1);
		}
	} else if (nr > 0) {
		if (l->company)
			l->company--;
		if (active == 1 || l->turn % ALONE_TURNS)
			return;
		l->alone = crew_has_many_threads(pg) ? 0 : l->alone + 1;
		if (l->alone > ALONE_MAX && pg->uffd.thread_id) {
			l->alone = 0;
			crew_resize(pg, active, active - 1);
		}
	} else if (l->id && l->id == active - 1 &&
		   ++l->nothing >
			   (l->yield.on ? LEAVE_YIELDING : LEAVE_AFTER)) {
		l->nothing = 0;
		crew_resize(pg, active, active - 1);
	}
}

static bool lane_reads(const struct dcm_pg_lane *l)
{
	return l->id < READ_ONCE(l->pg->active) &&
	       l->nr_stalled + DCM_PG_MESSAGES <= DCM_PG_STALLED_MAX;
}

/*
 * Take the waiting faults, and hide pages once in a while. Returns the number of
 * faults. The raw system call, unlike read(), is no cancellation point.
 */
static int messages_take(struct dcm_pg_lane *l)
{
	ssize_t n = syscall(SYS_read, l->pg->uffd.fd, l->msg, sizeof(l->msg));
	int nr = n > 0 ? (int)((size_t)n / sizeof(l->msg[0])) : 0, i;
	u64 began = nr > 1 ? dcm_now_ns() : 0, before = l->messages;

	if (!nr)
		return 0;
	WRITE_ONCE(l->messages, before + (u64)nr);
	if (READ_ONCE(l->pg->follow) || l->pg->spin) {
		int cpu = dcm_affinity_look(l, &l->msg[0],
					  crew_has_many_threads(l->pg));

		if (cpu >= 0)
			crew_ask(l, cpu);
	}
	for (i = 0; i < nr; i++) {
		/* The last fault waited while all others were handled. */
		if (i && i == nr - 1)
			dcm_waited(l->core, DCM_C_WAIT_QUEUE_NS,
				   (dcm_now_ns() - began) * (u64)nr / 2);
		if (fault_handle(l, &l->msg[i]))
			continue;
		stalled_count(l);
		l->stalled[l->nr_stalled++] = l->msg[i];
	}
	if (before / HIDE_FAULTS != l->messages / HIDE_FAULTS)
		dcm_reuse_tick(l->core);
	return nr;
}

/* Spin for the next fault, if it is due soon from a thread on another CPU. */
static bool lane_spin(struct dcm_pg_lane *l)
{
	u64 until;
	int n;

	if (!dcm_affinity_spin(l, &until))
		return false;
	do {
		n = messages_take(l);
		if (n) {
			WRITE_ONCE(l->spin_hits, l->spin_hits + 1);
			return true;
		}
		cpu_relax();
	} while (dcm_now_ns() < until);
	return false;
}

/*
 * Spin for a donor's answer, if the lane yields: then only the thread that waits for
 * the fetch ran on this CPU, and to sleep and wake would take longer than the answer.
 * Any other thread that wants the CPU preempts a yielding lane at once.
 */
static bool lane_spin_io(struct dcm_pg_lane *l, bool read_faults)
{
	u64 until;

	if (!l->yield.on || !l->pg->spin || !l->core->nr_fetch)
		return false;
	until = dcm_now_ns() + SPIN_IO_NS;
	do {
		if (dcm_poll(l->core) || (read_faults && messages_take(l)))
			return true;
		cpu_relax();
	} while (dcm_now_ns() < until);
	return false;
}

static int lane_wait_ms(struct dcm_pg_lane *l)
{
	if (l->nr_stalled || l->core->nr_retry || l->core->wb_unposted ||
	    l->core->wb_parked)
		return RETRY_MS;
	if (l->nr_drop)
		return IDLE_MS;
	/* A new connection, which ends doubts, does not wake the lane: look for it. */
	return dcm_doubtful(l->core) ? SILENT_MS : -1;
}

static void lane_wait(struct dcm_pg_lane *l, bool read_faults)
{
	struct dcm_pager *pg = l->pg;
	struct pollfd pfd[WAIT_FDS];
	int nr = 1, ms = lane_wait_ms(l), n;
	bool quiet;
	u64 junk;

	pfd[0] = (struct pollfd){ l->wake_fd, POLLIN, 0 };
	if (read_faults)
		pfd[nr++] = (struct pollfd){ pg->uffd.fd, POLLIN, 0 };
	if (dcm_pending(l->core)) {
		n = dcm_client_io_fds(pg->client, l->id, pfd + nr,
				      DCM_CLIENT_FDS_MAX);
		/* A donor that falls silent wakes nobody: look now and then. */
		if (ms < 0)
			ms = n ? SILENT_MS : RETRY_MS;
		nr += n;
	}
	quiet = l->yield.on && (ms < 0 || ms > DCM_YIELD_MS);
	n = (int)syscall(SYS_poll, pfd, nr, quiet ? DCM_YIELD_MS : ms);
	if (!n && quiet) {
		dcm_yield_silence(l);
		return;
	}
	if (n > 0 && (pfd[0].revents & POLLIN) &&
	    read(l->wake_fd, &junk, sizeof(junk)) < 0)
		return;
	if (!n && l->nr_drop && ms == IDLE_MS)
		dcm_frames_drop(l);
}

static void *lane_main(void *arg)
{
	struct dcm_pg_lane *l = arg;
	struct dcm_pager *pg = l->pg;
	char name[16];

	dcm_thread_inside = 1;
	snprintf(name, sizeof(name), "dcm-fault-%u", l->id);
	prctl(PR_SET_NAME, name);
	l->tid = (pid_t)syscall(SYS_gettid);
	dcm_yield_start(l);
	while (!smp_load_acquire(&pg->stop)) {
		bool rd = lane_reads(l);
		int n = rd ? messages_take(l) : 0;
		bool step = n;

		if (rd && (n || l->woken))
			crew_adapt(l, n);
		l->woken = false;
		while (dcm_poll(l->core))
			step = true;
		step |= stalled_retry(l);
		if (step || lane_spin_io(l, rd) || (rd && lane_spin(l)))
			continue;
		lane_wait(l, rd);
		l->woken = true;
	}
	dcm_yield_stop(l);
	return NULL;
}

int dcm_lanes_start(struct dcm_pager *pg)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	u32 i;

	/* Lanes that yield take no CPU time from the threads that they serve. */
	if (pg->can_yield)
		cpus *= 2;
	pg->crew_max = min(pg->nr_fault, (u32)max(cpus / 2, 1L));
	for (i = 0; i < pg->nr_fault; i++) {
		struct dcm_pg_lane *l = &pg->lane[i];
		int err = dcm_thread_start(&l->thread, lane_main, l);

		if (err)
			return err;
		l->started = true;
	}
	return 0;
}

void dcm_lanes_stop(struct dcm_pager *pg)
{
	u32 i;

	smp_store_release(&pg->stop, true);
	for (i = 0; i < pg->nr_fault; i++) {
		if (!pg->lane[i].started)
			continue;
		dcm_lane_kick(&pg->lane[i]);
		pthread_join(pg->lane[i].thread, NULL);
		pg->lane[i].started = false;
	}
}

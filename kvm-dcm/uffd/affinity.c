// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * affinity.c - run fault threads on the CPUs that fault
 *
 * Between two CPUs a hand-over costs an interrupt and often the exit from an
 * idle state, each way; on one CPU it costs a context switch. So a lane moves
 * to the CPU that the faulting thread last ran on, when several faults in a row
 * came from the same other CPU, and then not again for a while.
 *
 * The number of the CPU that a thread last ran on is in its restartable-sequences
 * area, which glibc (2.35 and later) registers for every thread, at a fixed distance
 * from the robust list head in the thread's control block. The kernel gives the
 * address of that head for any thread of this process. Everything is read by
 * process_vm_readv(), so a thread that has ended does no harm; a control block
 * in paged memory is not read. If any of this is missing, lanes stay where the
 * scheduler puts them. yield.c keeps the faulting thread on that CPU, too.
 *
 * A lane that could not move to that CPU may spin for the next fault: only while faults
 * come soon after one another, and for about as long as a wake-up would take.
 */
#include <linux/futex.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "affinity.h"
#include "yield.h"

extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned int __rseq_size __attribute__((weak));

#define FOLLOW_AFTER 3u /* faults in a row from one other CPU */
/* faults to skip before the next look, if the CPU is right */
#define RIGHT_SKIP 15u
#define MANY_SKIP 3u /* the same, while several threads fault */
#define AWAY_MAX 32u /* faults from other CPUs: another lane joins */
#define MOVE_MIN_NS (200u * 1000)
#define MOVE_MAX_NS (50u * 1000 * 1000)
/* longest pause, if the lane may yield */
#define MOVE_YIELDING_NS (1000u * 1000)
#define SPIN_NS (20u * 1000)

static ptrdiff_t robust_offset;
static pthread_once_t robust_once = PTHREAD_ONCE_INIT;

static char *robust_head(pid_t tid)
{
	void *head = NULL;
	size_t len = 0;

	if (syscall(SYS_get_robust_list, tid, &head, &len))
		return NULL;
	return head;
}

/* Measure the distance, once: it is the same for all threads and pagers. */
static void robust_offset_measure(void)
{
	char *head = robust_head(0);

	if (head)
		robust_offset = head - (char *)pthread_self();
}

/** dcm_affinity_init() - find out whether a new pager's lanes can follow its threads */
void dcm_affinity_init(struct dcm_pager *pg)
{
	bool can;

	pthread_once(&robust_once, robust_offset_measure);
	can = pg->uffd.thread_id && robust_offset && &__rseq_offset &&
	      &__rseq_size && __rseq_size && sysconf(_SC_NPROCESSORS_ONLN) > 1;
	pg->follow &= can;
	pg->spin &= can;
	pg->can_yield = pg->follow && dcm_yield_can();
}

/* The CPU a thread of this process last ran on in user space, or -1. */
static int cpu_of(struct dcm_pager *pg, pid_t tid)
{
	char *head = robust_head(tid), *at;
	struct iovec to, from;
	int cpu = -1;
	u64 gfn;

	if (!head)
		return -1;
	/* struct rseq: cpu_id_start, then cpu_id */
	at = head - robust_offset + __rseq_offset + 4;
	if (dcm_guest_gfn(&pg->guest, (u64)at & ~(u64)(DCM_PAGE_SIZE - 1),
			  &gfn))
		return -1;
	to = (struct iovec){ &cpu, sizeof(cpu) };
	from = (struct iovec){ at, sizeof(cpu) };
	if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) != sizeof(cpu))
		return -1;
	return cpu;
}

/* Does another lane that reads faults run on that CPU? */
static bool cpu_is_taken(const struct dcm_pg_lane *l, int cpu)
{
	struct dcm_pager *pg = l->pg;
	u32 active = READ_ONCE(pg->active), i;

	for (i = 0; i < active; i++)
		if (i != l->id && READ_ONCE(pg->lane[i].cpu) == cpu)
			return true;
	return false;
}

static bool lane_move(struct dcm_pg_lane *l, int cpu)
{
	u64 longest = dcm_yield_may(l) ? MOVE_YIELDING_NS : MOVE_MAX_NS;
	u64 now = dcm_now_ns();
	cpu_set_t set;

	if (now - l->moved_ns < min(l->hold_ns, longest))
		return false;
	if (cpu_is_taken(l, cpu))
		return false;
	/* QEMU's -sandbox on,resourcecontrol=deny kills a caller. */
	if (prctl(PR_GET_SECCOMP)) {
		WRITE_ONCE(l->pg->follow, false);
		return false;
	}
	/* Frequent moves cost more than a wrong CPU: pause longer after each. */
	if (now - l->moved_ns > 16 * (u64)MOVE_MAX_NS)
		l->hold_ns = MOVE_MIN_NS;
	else
		l->hold_ns = min(l->hold_ns * 2, longest);
	l->moved_ns = now;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		return false;
	WRITE_ONCE(l->migrations, l->migrations + 1);
	WRITE_ONCE(l->cpu, cpu);
	return true;
}

/** dcm_affinity_served() - is a lane on the CPU that a thread last ran on? */
bool dcm_affinity_served(struct dcm_pg_lane *l, pid_t tid)
{
	int cpu = cpu_of(l->pg, tid);

	return cpu >= 0 && (cpu == l->cpu || cpu_is_taken(l, cpu));
}

/* This lane has joined because of faults from CPU @go_cpu: move there. */
static void lane_go(struct dcm_pg_lane *l)
{
	int cpu = READ_ONCE(l->go_cpu);

	l->go_cpu = -1;
	l->moved_ns = 0;
	if (READ_ONCE(l->pg->follow))
		lane_move(l, cpu);
}

/**
 * dcm_affinity_look() - a fault was taken: is this lane on the right CPU?
 * @l: the lane; called by its own thread
 * @msg: the fault
 * @many: several threads fault
 *
 * Return: a CPU that many faults come from and that has no lane, or -1.
 */
int dcm_affinity_look(struct dcm_pg_lane *l, const struct uffd_msg *msg,
		    bool many)
{
	pid_t tid = (pid_t)msg->arg.pagefault.feat.ptid;
	int cpu;

	if (l->go_cpu >= 0)
		lane_go(l);
	dcm_yield_fault(l, tid);
	if (l->skip) {
		l->skip--;
		return -1;
	}
	cpu = cpu_of(l->pg, tid);
	if (cpu < 0)
		return -1;
	WRITE_ONCE(l->cpu, sched_getcpu());
	if (cpu == l->cpu) {
		l->follow_hits = 0;
		l->follow_cpu = cpu;
		l->skip = many ? MANY_SKIP : RIGHT_SKIP;
		l->away -= !!l->away;
		if (READ_ONCE(l->pg->follow))
			dcm_yield_be(l, tid);
		return -1;
	}
	if (many && READ_ONCE(l->pg->follow) && l->pg->can_yield) {
		if (cpu_is_taken(l, cpu))
			return -1;
		l->away += 2;
		if (l->away > AWAY_MAX) {
			l->away = 0;
			return cpu;
		}
	}
	if (cpu != l->follow_cpu)
		l->follow_hits = 0;
	l->follow_cpu = cpu;
	if (++l->follow_hits >= FOLLOW_AFTER) {
		l->follow_hits = 0;
		if (READ_ONCE(l->pg->follow) && lane_move(l, cpu))
			dcm_yield_be(l, tid);
	}
	return -1;
}

/** dcm_affinity_spin() - should a lane spin for the next fault, and until when? */
bool dcm_affinity_spin(struct dcm_pg_lane *l, u64 *until)
{
	u64 now;

	if (!l->pg->spin || l->follow_cpu == l->cpu || !l->messages)
		return false;
	if (l->messages == l->spun_at)
		return false;
	l->spun_at = l->messages;
	now = dcm_now_ns();
	*until = now + SPIN_NS;
	if (now - l->last_ns < 4 * (u64)SPIN_NS) {
		l->last_ns = now;
		return true;
	}
	l->last_ns = now;
	return false;
}

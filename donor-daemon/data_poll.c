// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * data_poll.c - whether a data worker polls for the next request, or sleeps
 *
 * To wake a sleeping thread takes longer than a READ: 20 to 50 us, most of it on the
 * way to an idle CPU. A worker that polls answers at once, and takes a whole CPU.
 * infiniswap-nsdi17 and semeru-osdi20 have no such choice to make: their donors' CPUs
 * serve no READ at all.
 *
 * So a worker polls while requests come densely: while most of them come within "poll-us"
 * of the one before. It learns that from how long it was idle, asleep or not, so that
 * it need not poll to find out.
 *
 * Two more things keep it from doing harm. A pinned worker sleeps on the CPU on which
 * requests arrive (data_worker.c); there the sender runs, if it is on this host, or the
 * network card's interrupt. While it polls it runs on any other CPU. And it yields
 * between looks: if another thread takes the CPU, the worker sleeps in place of
 * polling for %LEAVE_NS, as the scheduler gives the CPU to a thread that wakes up sooner
 * than to one that yields. If that happens again within %AGAIN_NS of polling, the time
 * doubles.
 *
 *	sleeps --more than ON--> polls --less than OFF, or a thread wants the CPU--> sleeps
 */
#include <pthread.h>

#include "../kvm-dcm/lib/clock.h"
#include "data_poll.h"

#define ON 160 /* of 255 */
#define OFF 96
#define LOST_NS (500u * 1000) /* a longer yield: another had the CPU */
#define LEAVE_NS (4u * 1000 * 1000)
#define AGAIN_NS (10u * 1000 * 1000)
#define LEAVE_MAX_NS (1000u * 1000 * 1000)

static void turn_on(struct dcm_poll *p, bool on)
{
	cpu_set_t set = *p->cpus;

	p->on = on;
	if (p->home < 0)
		return;
	if (on && CPU_COUNT(&set) > 1) {
		CPU_CLR(p->home, &set);
	} else {
		CPU_ZERO(&set);
		CPU_SET(p->home, &set);
	}
	/* if it fails, the worker polls where it is, and yields there */
	pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

void dcm_poll_learn(struct dcm_poll *p, u64 now, u64 idle_ns)
{
	if (idle_ns <= p->ns)
		p->soon += (255 - p->soon + 15) / 16;
	else
		p->soon -= (p->soon + 15) / 16;
	if (p->on ? p->soon < OFF : p->soon > ON && now >= p->not_before)
		turn_on(p, !p->on);
}

bool dcm_poll_lost(struct dcm_poll *p, u64 now, u64 lost_ns)
{
	if (lost_ns < LOST_NS)
		return false;
	if (now >= p->not_before + AGAIN_NS)
		p->leave_ns = LEAVE_NS;
	else if (p->leave_ns < LEAVE_MAX_NS)
		p->leave_ns *= 2;
	p->not_before = now + p->leave_ns;
	turn_on(p, false);
	return true;
}

bool dcm_poll_yield(struct dcm_poll *p)
{
	u64 before = dcm_clock_ns(), now;

	sched_yield();
	now = dcm_clock_ns();
	return !dcm_poll_lost(p, now, now - before);
}

/* SPDX-License-Identifier: GPL-2.0-or-later */
/* data_poll.h - whether a data worker polls for the next request, or sleeps */
#ifndef DCM_DATA_POLL_H
#define DCM_DATA_POLL_H

#include <sched.h>
#include <stdbool.h>

#include "../kvm-dcm/proto/wire.h"

/**
 * struct dcm_poll - one worker's decision; only its thread uses it
 * @ns: how long to poll; 0: never
 * @cpus: the CPUs on which the donor may run
 * @home: the CPU that the worker is pinned to while it sleeps; -1: not pinned
 * @soon: how often the next request came within @ns; 0: never, 255: always
 * @on: it polls, and does not stay on @home
 * @not_before: when it may poll again: another thread wanted the CPU
 * @leave_ns: for how long it did not poll the last time that this happened
 */
struct dcm_poll {
	u64 ns;
	const cpu_set_t *cpus;
	int home;
	u8 soon;
	bool on;
	u64 not_before;
	u64 leave_ns;
};

/**
 * dcm_poll_learn() - a request came
 * @p: the worker's
 * @now: when, by dcm_clock_ns()
 * @idle_ns: how long there had been nothing to do
 *
 * May change the CPUs that the calling thread runs on.
 */
void dcm_poll_learn(struct dcm_poll *p, u64 now, u64 idle_ns);

/**
 * dcm_poll_lost() - the worker was without its CPU while it polled
 * @p: the worker's, which polls
 * @now: when it had the CPU again, by dcm_clock_ns()
 * @lost_ns: for how long it was without
 *
 * Return: true: so long that another thread wanted it, and the worker now sleeps. It
 * does not poll for 4 ms, longer each time that this happens soon again, 1 s at most.
 */
bool dcm_poll_lost(struct dcm_poll *p, u64 now, u64 lost_ns);

/**
 * dcm_poll_yield() - between two looks: let another thread have the CPU
 * @p: the worker's, which polls
 *
 * Return: false: dcm_poll_lost().
 */
bool dcm_poll_yield(struct dcm_poll *p);

#endif /* DCM_DATA_POLL_H */

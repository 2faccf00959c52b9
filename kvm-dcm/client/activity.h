/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * activity.h - how busy a slab is: page operations a second, smoothed
 *
 * infiniswap-nsdi17, 4.1: A = alpha * measured + (1 - alpha) * A_old, period
 * one second, alpha 0.2. A host answers CHECK_ACTIVITY with it, and a donor
 * evicts the least active slab.
 */
#ifndef DCM_CLIENT_ACTIVITY_H
#define DCM_CLIENT_ACTIVITY_H

#include "../lib/dcm_context.h"

#define DCM_ACTIVITY_PERIOD_NS 1000000000ull
/* alpha = 1 / 5 */
#define DCM_ACTIVITY_DIV 5u
/* More than any memory can do; keeps every sum far from overflow. */
#define DCM_ACTIVITY_MAX_MILLI (1ull << 48)
/* A slab with fewer than one page operation a second is cold. */
#define DCM_ACTIVITY_COLD_MILLI 1000u

/**
 * struct dcm_activity - one slab's average
 * @ewma_milli: page operations a second, times 1000
 * @total: operations counted at the last update
 * @last_ns: time of the last update
 * @cold_s: for how many updates in a row it has been cold: about as many seconds; an
 *	update that comes late counts once
 */
struct dcm_activity {
	u64 ewma_milli;
	u64 total;
	u64 last_ns;
	u64 cold_s;
};

/**
 * dcm_activity_init() - start without any activity
 * @total: the counter's value now
 * @now_ns: monotonic time now
 */
void dcm_activity_init(struct dcm_activity *a, u64 total, u64 now_ns);

/**
 * dcm_activity_update() - include what happened since the last update
 * @total: page operations so far; if it went backwards none are counted
 * @now_ns: monotonic time now
 *
 * Call it about once a period. Called earlier it does nothing; called late,
 * it spreads the operations evenly over the periods missed.
 *
 * Return: true when @a->ewma_milli was brought up to date.
 */
bool dcm_activity_update(struct dcm_activity *a, u64 total, u64 now_ns);

#endif /* DCM_CLIENT_ACTIVITY_H */

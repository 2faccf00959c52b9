// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * activity.c - EWMA of a slab's page operations, in integers
 *
 * The paper's formula with alpha 0.2 and a period of one second, with two
 * differences. The caller's timer may be late: a late update counts as many
 * periods as have passed, each with the same share, so a donor that asks after
 * the host was stopped for a minute gets an idle slab's figure, not a burst's.
 * And the average starts from the first period's own rate instead of zero:
 * else a new slab would be the least active for ten seconds, and be evicted
 * first.
 *
 * No locking: one thread owns a struct dcm_activity. Rounding is downwards, so
 * an idle slab reaches exactly zero.
 */
#include "activity.h"

/* After so many periods without operations the old value has no weight. */
#define PERIODS_MAX 256u

void dcm_activity_init(struct dcm_activity *a, u64 total, u64 now_ns)
{
	a->ewma_milli = U64_MAX;
	a->total = total;
	a->last_ns = now_ns;
	a->cold_s = 0;
}

bool dcm_activity_update(struct dcm_activity *a, u64 total, u64 now_ns)
{
	u64 elapsed, ops, periods, rate;
	u64 i;

	if (now_ns < a->last_ns || now_ns - a->last_ns < DCM_ACTIVITY_PERIOD_NS)
		return false;
	elapsed = now_ns - a->last_ns;
	periods = elapsed / DCM_ACTIVITY_PERIOD_NS;
	ops = total > a->total ? total - a->total : 0;
	/* ops * 1000 / seconds, without overflow: elapsed in ms is enough */
	ops = min(ops, (u64)(U64_MAX / 1000000u));
	rate = ops * 1000000u / (elapsed / 1000000u);
	rate = min(rate, (u64)DCM_ACTIVITY_MAX_MILLI);
	if (a->ewma_milli == U64_MAX)
		a->ewma_milli = rate;
	for (i = 0; i < min(periods, (u64)PERIODS_MAX); i++)
		a->ewma_milli =
			(rate + (DCM_ACTIVITY_DIV - 1) * a->ewma_milli) /
			DCM_ACTIVITY_DIV;
	a->cold_s = a->ewma_milli < DCM_ACTIVITY_COLD_MILLI ? a->cold_s + 1 : 0;
	a->total = total;
	/* keep the phase: the remainder belongs to the next period */
	a->last_ns += periods * DCM_ACTIVITY_PERIOD_NS;
	return true;
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * jitter.c - random delays and failures, for tests
 *
 * Only in modules built with DCM_JITTER=1. At the points that jitter.h names, where
 * another thread may do something between two steps, the thread yields its CPU or
 * sleeps, at random. Frame allocations fail at random. Module parameters, which can be
 * changed at any time:
 *
 *	jitter_delay	chance of a delay at a point, in 1/10000
 *	jitter_fail	chance that there is no frame, in 1/10000
 *	jitter_seed	of the random numbers
 *	jitter_delays, jitter_fails	how often it happened; delays by point
 *
 * What happens at the n-th call follows from the seed and n; which thread makes
 * that call does not.
 */
#include <linux/atomic.h>
#include <linux/delay.h>
#include <linux/moduleparam.h>
#include <linux/sched.h>

#include "jitter.h"

static unsigned int jitter_delay;
static unsigned int jitter_fail;
static unsigned long jitter_seed;
/* Counters; a race may lose an update. */
static unsigned int jitter_delays[DCMFS_NR_POINTS];
static unsigned int jitter_fails;
static atomic64_t calls;

module_param(jitter_delay, uint, 0644);
module_param(jitter_fail, uint, 0644);
module_param(jitter_seed, ulong, 0644);
module_param_array(jitter_delays, uint, NULL, 0444);
module_param(jitter_fails, uint, 0444);

/* splitmix64 */
static u64 next_random(void)
{
	u64 x = READ_ONCE(jitter_seed) +
		(u64)atomic64_inc_return(&calls) * 0x9e3779b97f4a7c15ull;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

/** dcmfs_jitter() - perhaps delay the caller; may sleep */
void dcmfs_jitter(enum dcmfs_point where)
{
	unsigned int chance = READ_ONCE(jitter_delay);
	u64 x;

	might_sleep();
	if (!chance)
		return;
	x = next_random();
	if ((u32)x % 10000 >= chance)
		return;
	WRITE_ONCE(jitter_delays[where], READ_ONCE(jitter_delays[where]) + 1);
	switch (x >> 32 & 7) {
	case 0:
		schedule_timeout_uninterruptible(1 + (x >> 40 & 3));
		break;
	case 1:
	case 2:
		usleep_range(10, 500);
		break;
	default:
		schedule();
	}
}

/** dcmfs_jitter_fails() - should this frame allocation fail? */
bool dcmfs_jitter_fails(void)
{
	unsigned int chance = READ_ONCE(jitter_fail);

	if (!chance || (u32)next_random() % 10000 >= chance)
		return false;
	WRITE_ONCE(jitter_fails, READ_ONCE(jitter_fails) + 1);
	return true;
}

/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * clock.h - read the monotonic clock, in nanoseconds or milliseconds
 */
#ifndef DCM_CLOCK_H
#define DCM_CLOCK_H

#include <stdint.h>
#include <time.h>

#define DCM_NS_PER_MS 1000000u

/* The time of @clock, in nanoseconds. */
static inline uint64_t dcm_clock_read_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Monotonic time in nanoseconds, from some start. */
static inline uint64_t dcm_clock_ns(void)
{
	return dcm_clock_read_ns(CLOCK_MONOTONIC);
}

static inline uint64_t dcm_clock_ms(void)
{
	return dcm_clock_ns() / DCM_NS_PER_MS;
}

#endif /* DCM_CLOCK_H */

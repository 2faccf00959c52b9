// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * log_limit.c - limit how many lines a second peers can cause
 *
 * kvm-dcm/lib/log.c writes the lines.
 *
 * Locking: the limiter has a mutex.
 */
#include <pthread.h>
#include <stdbool.h>
#include <time.h>

#include "log_limit.h"

#define LIMIT_LINES	20	/* of dcm_log_limited() in a second */

static enum dcm_log_level log_level = DCM_LOG_INFO;

static struct {
	pthread_mutex_t lock;
	time_t second;
	unsigned int lines;
	unsigned long dropped;
} limit = { .lock = PTHREAD_MUTEX_INITIALIZER };

void dcm_log_init(enum dcm_log_level level)
{
	log_level = level;
	dcm_log_name("dcm-donord", true);
	dcm_log_setup(level, -1);
}

void dcm_log_limited(enum dcm_log_level level, const char *fmt, ...)
{
	struct timespec now;
	unsigned long dropped = 0;
	bool allowed;
	va_list ap;

	if (level > log_level)
		return;
	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	pthread_mutex_lock(&limit.lock);
	if (now.tv_sec != limit.second) {
		limit.second = now.tv_sec;
		limit.lines = 0;
		dropped = limit.dropped;
		limit.dropped = 0;
	}
	allowed = limit.lines < LIMIT_LINES;
	if (allowed)
		limit.lines++;
	else
		limit.dropped++;
	pthread_mutex_unlock(&limit.lock);
	if (dropped)
		dcm_log(level,
			"%lu more lines like these were left out of the log",
			dropped);
	if (!allowed)
		return;
	va_start(ap, fmt);
	dcm_vlog(level, fmt, ap);
	va_end(ap);
}

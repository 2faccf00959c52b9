// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * log.c - one clear line each, on stderr
 *
 * Under systemd (JOURNAL_STREAM is set) a line begins with "<N>", which the
 * journal turns into its priority and stamps itself; elsewhere with the time
 * and a word. A line is one write(), so lines of threads never mix. Bytes
 * that are no printable ASCII become '?': names from the network go through
 * here.
 *
 * Locking: the limiter has a mutex; the rest is immutable after init.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "log.h"

#define LIMIT_LINES	20	/* of dcm_log_limited() in a second */

static enum dcm_log_level log_level = DCM_LOG_INFO;
static bool log_journal;

static struct {
	pthread_mutex_t lock;
	time_t second;
	unsigned int lines;
	unsigned long dropped;
} limit = { .lock = PTHREAD_MUTEX_INITIALIZER };

void dcm_log_init(enum dcm_log_level level)
{
	log_level = level;
	log_journal = getenv("JOURNAL_STREAM") != NULL;
}

static const char *level_word(enum dcm_log_level level)
{
	switch (level) {
	case DCM_LOG_ERR:
		return "error";
	case DCM_LOG_WARNING:
		return "warning";
	case DCM_LOG_NOTICE:
		return "notice";
	case DCM_LOG_INFO:
		return "info";
	default:
		return "debug";
	}
}

__attribute__((format(printf, 2, 0))) static void
log_line(enum dcm_log_level level, const char *fmt, va_list ap)
{
	char line[1024];
	struct timespec ts;
	struct tm tm;
	size_t n, max = sizeof(line) - 1;
	int r;

	if (log_journal) {
		n = (size_t)snprintf(line, sizeof(line), "<%d>", (int)level);
	} else {
		clock_gettime(CLOCK_REALTIME, &ts);
		gmtime_r(&ts.tv_sec, &tm);
		n = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S", &tm);
		n += (size_t)snprintf(line + n, sizeof(line) - n,
				      ".%03ldZ dcm-donord %s: ",
				      ts.tv_nsec / 1000000, level_word(level));
	}
	r = vsnprintf(line + n, sizeof(line) - n, fmt, ap);
	if (r < 0)
		return;
	for (size_t i = n; line[i]; i++)
		if ((unsigned char)line[i] < ' ' || line[i] == 127)
			line[i] = '?';
	n += (size_t)r;
	if (n > max - 1)
		n = max - 1;
	line[n++] = '\n';
	if (write(STDERR_FILENO, line, n) < 0) {
		/* there is nowhere left to say so */
	}
}

void dcm_log(enum dcm_log_level level, const char *fmt, ...)
{
	va_list ap;

	if (level > log_level)
		return;
	va_start(ap, fmt);
	log_line(level, fmt, ap);
	va_end(ap);
}

void dcm_log_limited(enum dcm_log_level level, const char *fmt, ...)
{
	struct timespec now;
	unsigned long dropped = 0;
	bool say;
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
	say = limit.lines < LIMIT_LINES;
	if (say)
		limit.lines++;
	else
		limit.dropped++;
	pthread_mutex_unlock(&limit.lock);
	if (dropped)
		dcm_log(level, "%lu more lines like these were left out",
			dropped);
	if (!say)
		return;
	va_start(ap, fmt);
	log_line(level, fmt, ap);
	va_end(ap);
}

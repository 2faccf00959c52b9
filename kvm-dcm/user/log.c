// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * log.c - one line, one write(2)
 *
 * libdcm lives inside someone else's process and logs from threads that may
 * not touch paged memory and may not wait for stdio's locks, which another
 * thread can hold while it faults. So: a buffer on the stack and write(). The
 * host process's standard error is journald's or a terminal's business; with
 * JOURNAL_STREAM set, a "<N>" prefix tells journald the level.
 *
 * Locking: none; a line below PIPE_BUF is written in one piece.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "log.h"

static int log_max = DCM_LOG_INFO;
static int log_fd = STDERR_FILENO;
static int log_journal = -1;
static const char *log_name = "libdcm";

void dcm_log_setup(enum dcm_log_level max, int fd)
{
	__atomic_store_n(&log_max, (int)max, __ATOMIC_RELAXED);
	if (fd >= 0)
		__atomic_store_n(&log_fd, fd, __ATOMIC_RELAXED);
}

void dcm_log_name(const char *name)
{
	__atomic_store_n(&log_name, name, __ATOMIC_RELAXED);
}

void dcm_log(enum dcm_log_level level, const char *fmt, ...)
{
	const char *name = __atomic_load_n(&log_name, __ATOMIC_RELAXED);
	int saved = errno, fd = __atomic_load_n(&log_fd, __ATOMIC_RELAXED);
	int journal = __atomic_load_n(&log_journal, __ATOMIC_RELAXED);
	char buf[1024];
	va_list ap;
	size_t len;
	int n;

	if ((int)level > __atomic_load_n(&log_max, __ATOMIC_RELAXED))
		return;
	if (journal < 0) {
		journal = getenv("JOURNAL_STREAM") != NULL;
		__atomic_store_n(&log_journal, journal, __ATOMIC_RELAXED);
	}
	len = (size_t)(journal ? snprintf(buf, 32, "<%d>%.20s: ", (int)level,
					  name) :
			       snprintf(buf, 32, "%.20s: ", name));
	va_start(ap, fmt);
	n = vsnprintf(buf + len, sizeof(buf) - len - 1, fmt, ap);
	va_end(ap);
	if (n > 0)
		len += (size_t)n;
	if (len > sizeof(buf) - 2)
		len = sizeof(buf) - 2;
	buf[len++] = '\n';
	while (write(fd, buf, len) < 0 && errno == EINTR)
		;
	errno = saved;
}

bool dcm_log_allow(struct dcm_log_rate *rate, uint64_t now_ms,
		   uint64_t every_ms)
{
	if (rate->last_ms && now_ms - rate->last_ms < every_ms) {
		rate->held++;
		return false;
	}
	rate->last_ms = now_ms ? now_ms : 1;
	rate->held = 0;
	return true;
}

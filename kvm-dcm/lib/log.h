/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * log.h - the log of libdcm and of the daemons: lines to standard error
 */
#ifndef DCM_USER_LOG_H
#define DCM_USER_LOG_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* as syslog's, which the journal reads from "<N>" */
enum dcm_log_level {
	DCM_LOG_ERR = 3,
	DCM_LOG_WARNING = 4,
	DCM_LOG_NOTICE = 5,
	DCM_LOG_INFO = 6,
	DCM_LOG_DEBUG = 7,
};

/**
 * struct dcm_log_rate - limits how often one message is logged; all zero at first
 * @last_ms: when the message was last allowed; 0: never
 * @held: how many were not allowed since
 */
struct dcm_log_rate {
	uint64_t last_ms;
	uint32_t held;
};

/**
 * dcm_log() - log one line
 * @level: left out when above what dcm_log_setup() set (%DCM_LOG_INFO)
 * @fmt: without newline; what is beyond 1000 bytes is cut off
 *
 * Any thread, async-signal-safe as far as vsnprintf() is. Never allocates and
 * never waits for the reader of the log: a line that the log has no room for is
 * dropped, and a later line says how many were.
 */
void dcm_log(enum dcm_log_level level, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void dcm_vlog(enum dcm_log_level level, const char *fmt, va_list ap)
	__attribute__((format(printf, 2, 0)));

/**
 * dcm_log_now() - write bytes to the log, if it takes them at once
 *
 * For signal handlers.
 *
 * Return: false: nothing was written.
 */
bool dcm_log_now(const char *text, size_t len);

/**
 * dcm_log_start() - start the thread that writes the lines from now on
 *
 * Without it, also in children of fork(), a line is dropped when the log is not
 * ready for it at that instant. May be called again. 0 or -errno.
 */
int dcm_log_start(void);

/**
 * dcm_log_flush() - wait until the lines so far are written, @ms at most
 *
 * For a process that is about to end without exit(); exit() waits as well.
 */
void dcm_log_flush(unsigned int ms);

/**
 * dcm_log_allow() - may this message be logged again?
 * @rate: the message's record; used by one thread
 * @now: monotonic time in milliseconds
 * @every_ms: the shortest time between two of them
 */
bool dcm_log_allow(struct dcm_log_rate *rate, uint64_t now, uint64_t every_ms);

/* Set the highest level that is logged, and the descriptor (-1: don't change it). */
void dcm_log_setup(enum dcm_log_level max, int fd);

/*
 * Set the program's name, which stands before each line; "libdcm" when never called.
 * Not copied. With @stamp the time and the level stand there too, if the lines do not
 * go to the journal, which has both.
 */
void dcm_log_name(const char *name, bool stamp);

#endif /* DCM_USER_LOG_H */

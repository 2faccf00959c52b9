/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * log.h - what libdcm says: one line, one write(2), to standard error
 */
#ifndef DCM_LOG_H
#define DCM_LOG_H

#include <stdbool.h>
#include <stdint.h>

/* as syslog's */
enum dcm_log_level {
	DCM_LOG_ERR = 3,
	DCM_LOG_WARNING = 4,
	DCM_LOG_NOTICE = 5,
	DCM_LOG_INFO = 6,
	DCM_LOG_DEBUG = 7,
};

/**
 * struct dcm_log_rate - one message's memory, all zero at first
 * @last_ms: when it was last let through; 0: never
 * @held: how many were not since
 */
struct dcm_log_rate {
	uint64_t last_ms;
	uint32_t held;
};

/**
 * dcm_log() - say one line
 * @level: left out when above what dcm_log_setup() set (%DCM_LOG_INFO)
 * @fmt: without newline; what is beyond 1000 bytes is cut off
 *
 * Any thread, async-signal-safe as far as vsnprintf() is. Never allocates. A
 * standard error that is full or closed loses the line.
 */
void dcm_log(enum dcm_log_level level, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/**
 * dcm_log_allow() - may this message be said again?
 * @rate: its memory, one thread's
 * @now_ms: monotonic time
 * @every_ms: at most once in so long
 */
bool dcm_log_allow(struct dcm_log_rate *rate, uint64_t now_ms,
		   uint64_t every_ms);

/* Highest level that is said, and where to (-1: leave it). */
void dcm_log_setup(enum dcm_log_level max, int fd);

/* Who says it, before each line; "libdcm" when never called. Not copied. */
void dcm_log_name(const char *name);

#endif /* DCM_LOG_H */

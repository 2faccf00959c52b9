/* SPDX-License-Identifier: GPL-2.0-or-later */
/* log.h - one clear line each, on stderr */
#ifndef DCM_LOG_H
#define DCM_LOG_H

#include <stdarg.h>

/* syslog's numbers, which the journal reads from "<N>" */
enum dcm_log_level {
	DCM_LOG_ERR = 3,
	DCM_LOG_WARNING = 4,
	DCM_LOG_NOTICE = 5,
	DCM_LOG_INFO = 6,
	DCM_LOG_DEBUG = 7,
};

/* Lines above @level are dropped. Looks at JOURNAL_STREAM once. */
void dcm_log_init(enum dcm_log_level level);

__attribute__((format(printf, 2, 3))) void dcm_log(enum dcm_log_level level,
						   const char *fmt, ...);

/* For what a stranger can cause: some lines a second, then a count. */
__attribute__((format(printf, 2, 3))) void
dcm_log_limited(enum dcm_log_level level, const char *fmt, ...);

#define dcm_err(...) dcm_log(DCM_LOG_ERR, __VA_ARGS__)
#define dcm_warn(...) dcm_log(DCM_LOG_WARNING, __VA_ARGS__)
#define dcm_notice(...) dcm_log(DCM_LOG_NOTICE, __VA_ARGS__)
#define dcm_info(...) dcm_log(DCM_LOG_INFO, __VA_ARGS__)
#define dcm_debug(...) dcm_log(DCM_LOG_DEBUG, __VA_ARGS__)

#endif /* DCM_LOG_H */

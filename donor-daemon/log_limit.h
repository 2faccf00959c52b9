/* SPDX-License-Identifier: GPL-2.0-or-later */
/* log_limit.h - the log of lib/log.h, with a limit for lines that peers cause */
#ifndef DCM_LOG_LIMIT_H
#define DCM_LOG_LIMIT_H

#include "../kvm-dcm/lib/log.h"

/* Lines above @level are dropped. */
void dcm_log_init(enum dcm_log_level level);

/* A line that peers can cause: at most 20 of all such lines a second. */
__attribute__((format(printf, 2, 3))) void
dcm_log_limited(enum dcm_log_level level, const char *fmt, ...);

#define dcm_err(...) dcm_log(DCM_LOG_ERR, __VA_ARGS__)
#define dcm_warn(...) dcm_log(DCM_LOG_WARNING, __VA_ARGS__)
#define dcm_notice(...) dcm_log(DCM_LOG_NOTICE, __VA_ARGS__)
#define dcm_info(...) dcm_log(DCM_LOG_INFO, __VA_ARGS__)

#endif /* DCM_LOG_LIMIT_H */

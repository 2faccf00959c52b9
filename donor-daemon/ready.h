/* SPDX-License-Identifier: GPL-2.0-or-later */
/* ready.h - telling whoever started us how we are */
#ifndef DCM_READY_H
#define DCM_READY_H

struct dcm_donor;

/* Once, when everything listens. @fd: -1 or one to write the addresses to. */
void dcm_ready(const struct dcm_donor *donor, int fd);

/* For WatchdogSec=; call once a second. */
void dcm_notify_watchdog(void);

#endif /* DCM_READY_H */

/* SPDX-License-Identifier: GPL-2.0-or-later */
/* ready.h - report readiness to the process that started the daemon */
#ifndef DCM_READY_H
#define DCM_READY_H

struct dcm_donor;

/* Call once, when all sockets listen. @fd: gets the addresses; -1: none. */
void dcm_ready_report(const struct dcm_donor *donor, int fd);

/* For WatchdogSec=; call once a second. */
void dcm_ready_watchdog(void);

#endif /* DCM_READY_H */

/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * notify.h - what a daemon tells systemd about itself
 */
#ifndef DCM_NOTIFY_H
#define DCM_NOTIFY_H

/**
 * dcm_notify() - sd_notify(3), without libsystemd
 * @fmt: NAME=VALUE lines, 511 bytes at most
 *
 * Does nothing without NOTIFY_SOCKET in the environment. A message that cannot
 * be sent is a warning in the log.
 */
__attribute__((format(printf, 1, 2))) void dcm_notify(const char *fmt, ...);

#endif /* DCM_NOTIFY_H */

/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * notify.h - send a daemon's state to systemd: sd_notify(3)
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

/**
 * dcm_notify_fd() - send a message with a descriptor, for systemd's descriptor store
 * @fd: stays open here; -1: none
 * @fmt: FDSTORE=1 and FDNAME=NAME, or FDSTOREREMOVE=1 and FDNAME=NAME
 *
 * Waits for a tenth of a second at most.
 *
 * Return: 0, or a negative errno: -ENOENT without NOTIFY_SOCKET.
 */
__attribute__((format(printf, 2, 3))) int dcm_notify_fd(int fd, const char *fmt,
							...);

#endif /* DCM_NOTIFY_H */

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * notify.c - send a daemon's state to systemd: sd_notify(3)
 *
 * One datagram to the socket that NOTIFY_SOCKET names: a path, or an abstract
 * address that begins with '@'. Its protocol is documented (sd_notify(3)) and
 * small, so libsystemd is not needed; NOTIFY_SOCKET may be any supervisor's.
 *
 * No state, no locks.
 */
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "log.h"
#include "notify.h"

/* Fill in the address that NOTIFY_SOCKET names. Returns its length, or 0. */
static socklen_t notify_address(struct sockaddr_un *sun)
{
	const char *path = getenv("NOTIFY_SOCKET");
	size_t len;

	if (!path || (*path != '/' && *path != '@'))
		return 0;
	len = strlen(path);
	if (len >= sizeof(sun->sun_path))
		return 0;
	memset(sun, 0, sizeof(*sun));
	sun->sun_family = AF_UNIX;
	memcpy(sun->sun_path, path, len);
	if (*path == '@')
		sun->sun_path[0] = 0;
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
}

/* Send a message, and @fd. @wait: the most time that it may take; %NULL: no limit. */
static int notify_send(int fd, const char *text, size_t len,
		       const struct timeval *wait)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { .head = { .cmsg_len = CMSG_LEN(sizeof(int)),
				.cmsg_level = SOL_SOCKET,
				.cmsg_type = SCM_RIGHTS } };
	struct iovec iov = { .iov_base = (void *)text, .iov_len = len };
	struct sockaddr_un sun;
	struct msghdr msg = { .msg_name = &sun,
			      .msg_iov = &iov,
			      .msg_iovlen = 1 };
	int sock, ret = 0;

	msg.msg_namelen = notify_address(&sun);
	if (!msg.msg_namelen)
		return -ENOENT;
	if (fd >= 0) {
		memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
		msg.msg_control = &control;
		msg.msg_controllen = sizeof(control);
	}
	sock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (sock < 0)
		return -errno;
	if (wait &&
	    setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, wait, sizeof(*wait)))
		ret = -errno;
	else if (sendmsg(sock, &msg, MSG_NOSIGNAL) < 0)
		ret = -errno;
	close(sock);
	return ret;
}

void dcm_notify(const char *fmt, ...)
{
	char text[512];
	va_list ap;
	int n, ret;

	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= sizeof(text))
		return;
	ret = notify_send(-1, text, (size_t)n, NULL);
	if (ret && ret != -ENOENT)
		dcm_log(DCM_LOG_WARNING, "NOTIFY_SOCKET %s: %s",
			getenv("NOTIFY_SOCKET"), strerror(-ret));
}

int dcm_notify_fd(int fd, const char *fmt, ...)
{
	static const struct timeval soon = { .tv_usec = 100000 };
	char text[512];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= sizeof(text))
		return -EINVAL;
	return notify_send(fd, text, (size_t)n, &soon);
}

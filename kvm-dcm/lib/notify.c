// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * notify.c - what a daemon tells systemd about itself
 *
 * One datagram to the socket that NOTIFY_SOCKET names: a path, or an abstract
 * address that begins with '@'.
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
#include <sys/un.h>
#include <unistd.h>

#include "log.h"
#include "notify.h"

void dcm_notify(const char *fmt, ...)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	char text[512];
	va_list ap;
	size_t len;
	int fd, n;

	if (!path || (*path != '/' && *path != '@'))
		return;
	len = strlen(path);
	if (len >= sizeof(sun.sun_path))
		return;
	memcpy(sun.sun_path, path, len);
	if (*path == '@')
		sun.sun_path[0] = 0;
	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= sizeof(text))
		return;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	if (sendto(fd, text, (size_t)n, MSG_NOSIGNAL, (struct sockaddr *)&sun,
		   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) <
	    0)
		dcm_log(DCM_LOG_WARNING, "NOTIFY_SOCKET %s: %s", path,
			strerror(errno));
	close(fd);
}

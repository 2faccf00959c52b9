// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * ready.c - telling whoever started us how we are
 *
 * Two ways: systemd's datagram (NOTIFY_SOCKET), and --ready-fd for scripts,
 * which get the addresses that were really bound (a port 0 has become one),
 * one NAME=VALUE a line, then end of file.
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

#include "donor.h"
#include "log.h"
#include "rdma.h"
#include "ready.h"

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
		dcm_log_limited(DCM_LOG_WARNING, "NOTIFY_SOCKET %s: %s", path,
				strerror(errno));
	close(fd);
}

void dcm_notify_watchdog(void)
{
	if (getenv("WATCHDOG_USEC"))
		dcm_notify("WATCHDOG=1");
}

void dcm_ready(const struct dcm_donor *donor, int fd)
{
	struct dcm_rdma_status rdma;

	dcm_notify("READY=1\nSTATUS=lending up to %llu MiB in slabs of %llu MiB",
		   (unsigned long long)(donor->pool.capacity >> 20),
		   (unsigned long long)(donor->pool.slab_bytes >> 20));
	if (fd < 0)
		return;
	dprintf(fd, "READY=1\nPID=%d\n", (int)getpid());
	for (u32 i = 0; i < donor->nr_listeners; i++)
		dprintf(fd, "LISTEN=%s\n", donor->listeners[i].name);
	dprintf(fd, "HTTP=%s\n", donor->http_name);
	dcm_rdma_look(donor, &rdma);
	dprintf(fd, "RDMA=%s\n", rdma.name);
	close(fd);
}

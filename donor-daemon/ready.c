// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * ready.c - report readiness to the process that started the daemon
 *
 * Two ways: systemd's datagram (NOTIFY_SOCKET), and --ready-fd for scripts,
 * which get the addresses that were bound (port 0 has become a real one), one
 * NAME=VALUE a line, then end of file.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../kvm-dcm/lib/notify.h"
#include "donor.h"
#include "rdma.h"
#include "ready.h"

void dcm_ready_watchdog(void)
{
	if (getenv("WATCHDOG_USEC"))
		dcm_notify("WATCHDOG=1");
}

void dcm_ready_report(const struct dcm_donor *donor, int fd)
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
	dcm_rdma_status_read(donor, &rdma);
	dprintf(fd, "RDMA=%s\n", rdma.name);
	close(fd);
}

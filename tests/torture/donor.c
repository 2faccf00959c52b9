// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * donor.c - starting, squeezing and ending real donors
 */
#include "../framework/donord.h"
#include "../framework/proxy.h"
#include "torture.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void config_write(const struct donor *d)
{
	char path[160];

	snprintf(path, sizeof(path), "%s/donor.conf", d->dir);
	write_file(path,
		   "[donor]\nlisten = 127.0.0.1:%d\nunix = %s\nkeys = %s/keys\n"
		   "capacity = %dM\nhead-room = 64M\nslab-size = 2M\n"
		   "drain-timeout = 60s\nspare-slabs = 1\n"
		   "[eviction]\nevict-timeout = 60s\n[http]\nlisten = off\n",
		   d->port, d->sock, top_dir, d->capacity_mib);
}

void donor_init(struct donor *d, int i)
{
	memset(d, 0, sizeof(*d));
	snprintf(d->name, sizeof(d->name), "d%d", i);
	snprintf(d->dir, sizeof(d->dir), "%s/%s", top_dir, d->name);
	snprintf(d->sock, sizeof(d->sock), "%s/sock", d->dir);
	d->shm = i % 2 == 0;
	d->capacity_mib = 128;
	if (mkdir(d->dir, 0700))
		die("mkdir %s: %s", d->dir, strerror(errno));
}

void donor_start(struct donor *d)
{
	char conf[160], log[160];
	const char *args[] = { "--config", conf, NULL };
	struct donord started;

	config_write(d);
	unlink(d->sock);
	snprintf(conf, sizeof(conf), "%s/donor.conf", d->dir);
	snprintf(log, sizeof(log), "%s/log", d->dir);
	if (!donord_start(&started, donord, args, log) || !started.tcp[0])
		die("donor %s did not start; see %s", d->name, log);
	d->pid = started.pid;
	d->port = atoi(strrchr(started.tcp, ':') + 1);
	if (!d->shm && !d->proxy)
		d->proxy = proxy_start(started.tcp, d->line, sizeof(d->line));
	d->starts++;
	d->back_at = 0;
	d->cont_at = 0;
	d->draining = false;
}

void donor_capacity(struct donor *d, int mib)
{
	d->capacity_mib = mib;
	config_write(d);
	kill(d->pid, SIGHUP);
}

void donor_kill(struct donor *d, int sig)
{
	if (d->pid > 0)
		kill(d->pid, sig);
}

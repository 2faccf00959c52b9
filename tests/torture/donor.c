// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * donor.c - starting, squeezing and ending real donors
 */
#include "torture.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
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

/* NAME=VALUE lines until end of file: LISTEN tells the port. */
static void read_ready(struct donor *d, int fd)
{
	char text[1024];
	size_t n = 0;
	double end = now_s() + 30;
	char *at;

	for (;;) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		ssize_t r;

		if (poll(&p, 1, (int)((end - now_s()) * 1000)) <= 0)
			die("donor %s is not ready; see %s/log", d->name,
			    d->dir);
		r = read(fd, text + n, sizeof(text) - 1 - n);
		if (r <= 0)
			break;
		n += (size_t)r;
	}
	text[n] = 0;
	at = strstr(text, "LISTEN=tcp:127.0.0.1:");
	if (!at || !strstr(text, "READY=1"))
		die("donor %s did not start; see %s/log", d->name, d->dir);
	d->port = atoi(at + 21);
}

void donor_start(struct donor *d)
{
	char conf[160], log[160], fd_arg[32];
	int fd[2], out;

	config_write(d);
	unlink(d->sock);
	snprintf(conf, sizeof(conf), "%s/donor.conf", d->dir);
	snprintf(log, sizeof(log), "%s/log", d->dir);
	if (pipe2(fd, O_CLOEXEC))
		die("pipe: %s", strerror(errno));
	d->pid = fork();
	if (d->pid < 0)
		die("fork: %s", strerror(errno));
	if (!d->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		signal(SIGINT, SIG_IGN);
		out = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
		dup2(out, 1);
		dup2(out, 2);
		fcntl(fd[1], F_SETFD, 0);
		snprintf(fd_arg, sizeof(fd_arg), "--ready-fd=%d", fd[1]);
		execl(donord, donord, "--config", conf, fd_arg, (char *)NULL);
		perror(donord);
		_exit(127);
	}
	close(fd[1]);
	read_ready(d, fd[0]);
	close(fd[0]);
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

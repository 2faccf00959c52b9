// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * donor.c - real donors, for tests
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../framework/donord.h"
#include "donor.h"

#define DIE(...) (fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), exit(99))

const char *const donor_small[] = { DONOR_SMALL, NULL };

void donor_start(struct donor *d, const char *unix_path, int port,
		 const char *keys, const char *const *opts)
{
	const char *args[47], *binary = getenv("DONORD");
	struct donord started;
	char listen_arg[64];
	int n = 0;

	memset(d, 0, sizeof(*d));
	if (!binary)
		binary = "build/bin/dcm-donord";
	if (port >= 0) {
		/*
		 * An address of this process alone: while a donor is away its
		 * port is given to no connection, and no other test's donor.
		 */
		snprintf(listen_arg, sizeof(listen_arg), "127.1.%d.%d:%d",
			 getpid() >> 8 & 255, getpid() & 255, port);
		args[n++] = "--listen";
		args[n++] = listen_arg;
	}
	if (unix_path) {
		args[n++] = "--unix";
		args[n++] = unix_path;
		snprintf(d->sock, sizeof(d->sock), "%s", unix_path);
	}
	args[n++] = "--keys";
	args[n++] = keys;
	while (opts && *opts && n < 46)
		args[n++] = *opts++;
	args[n] = NULL;
	if (!donord_start(&started, binary, args,
			  getenv("DONOR_LOG") ? NULL : "/dev/null"))
		DIE("%s does not start (set DONOR_LOG=1 to see why)", binary);
	d->pid = started.pid;
	memcpy(d->tcp, started.tcp, sizeof(d->tcp));
}

void donor_signal(struct donor *d, int sig)
{
	if (kill(d->pid, sig))
		DIE("kill");
	if (sig == SIGKILL)
		donor_wait(d);
}

int donor_wait(struct donor *d)
{
	int st;

	while (waitpid(d->pid, &st, 0) < 0)
		if (errno != EINTR)
			DIE("waitpid");
	d->pid = 0;
	return WIFEXITED(st) ? WEXITSTATUS(st) : 128 + WTERMSIG(st);
}

void donor_end(struct donor *d)
{
	if (d->pid)
		donor_signal(d, SIGKILL);
	if (d->sock[0])
		unlink(d->sock);
}

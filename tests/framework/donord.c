// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * donord.c - start a real dcm-donord from a test program
 *
 * The daemon writes NAME=VALUE lines into the pipe that --ready-fd names, READY=1 among
 * them, and closes it. A daemon that fails closes it without that line.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "donord.h"
#include "expect.h"
#include "orphan.h"

#define ARGS_MAX	48
#define READY_MAX_MS	30000

static long now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* Execute the daemon; called in the child. */
static void daemon_exec(const char *binary, const char *const *args,
			const char *log, int ready)
{
	const char *argv[ARGS_MAX + 3];
	char fd_arg[16];
	int n = 0, out;

	signal(SIGINT, SIG_IGN);
	if (log) {
		out = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
		if (out < 0)
			_exit(126);
		dup2(out, 1);
		dup2(out, 2);
	}
	fcntl(ready, F_SETFD, 0);
	snprintf(fd_arg, sizeof(fd_arg), "%d", ready);
	argv[n++] = binary;
	argv[n++] = "--ready-fd";
	argv[n++] = fd_arg;
	while (*args && n < ARGS_MAX + 2)
		argv[n++] = *args++;
	argv[n] = NULL;
	execv(binary, (char **)argv);
	perror(binary);
	_exit(127);
}

/* Read the pipe to its end into a string; false: the time is over. */
static bool ready_read(int fd, char *text, size_t len)
{
	long end = now_ms() + READY_MAX_MS;
	size_t n = 0;

	for (;;) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		long left = end - now_ms();
		ssize_t got;

		if (left <= 0)
			return false;
		if (poll(&p, 1, (int)left) <= 0)
			continue;
		got = read(fd, text + n, len - 1 - n);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		n += (size_t)got;
	}
	text[n] = 0;
	return true;
}

bool donord_start(struct donord *d, const char *binary, const char *const *args,
		  const char *log)
{
	char text[1024];
	const char *line;
	int fds[2];
	bool ready;

	memset(d, 0, sizeof(*d));
	EXPECT(!pipe2(fds, O_CLOEXEC));
	d->pid = fork_no_orphan();
	EXPECT(d->pid >= 0);
	if (!d->pid)
		daemon_exec(binary, args, log, fds[1]);
	close(fds[1]);
	ready = ready_read(fds[0], text, sizeof(text)) &&
		strstr(text, "READY=1");
	close(fds[0]);
	if (!ready) {
		kill(d->pid, SIGKILL);
		waitpid(d->pid, NULL, 0);
		return false;
	}
	line = strstr(text, "LISTEN=tcp:");
	if (line)
		snprintf(d->tcp, sizeof(d->tcp), "%.*s",
			 (int)strcspn(line + 7, "\n"), line + 7);
	return true;
}

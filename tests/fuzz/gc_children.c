// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * gc_children.c - a donor's GC workers, as an input says
 *
 * In place of processes: fork() makes none, and the worker's end of its socket is
 * the input's. One that was killed is reaped at the second try.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gc_children.h"
#include "proto/gc_message.h"

#define CHILDREN 4u

int __wrap_socketpair(int domain, int type, int protocol, int pair[2]);
int __real_socketpair(int domain, int type, int protocol, int pair[2]);
pid_t __wrap_fork(void);
int __wrap_kill(pid_t pid, int sig);
pid_t __wrap_waitpid(pid_t pid, int *status, int options);

/* @fd: the worker's end, -1: closed; @pid 0: there is none */
struct child {
	pid_t pid;
	int fd;
	bool killed;
	bool ended;
};

static struct child children[CHILDREN];
static int child_end = -1;
static pid_t next_pid = 1 << 20;

int __wrap_socketpair(int domain, int type, int protocol, int pair[2])
{
	int ret = __real_socketpair(domain, type, protocol, pair);

	if (!ret && (type & 0xf) == SOCK_SEQPACKET) {
		EXPECT(child_end < 0);
		child_end = fcntl(pair[1], F_DUPFD_CLOEXEC, 0);
	}
	return ret;
}

pid_t __wrap_fork(void)
{
	for (u32 i = 0; i < CHILDREN; i++) {
		if (children[i].pid)
			continue;
		children[i] =
			(struct child){ .pid = next_pid++, .fd = child_end };
		fcntl(child_end, F_SETFL, O_NONBLOCK);
		child_end = -1;
		return children[i].pid;
	}
	close(child_end);
	child_end = -1;
	errno = EAGAIN;
	return -1;
}

static struct child *child_of(pid_t pid)
{
	for (u32 i = 0; i < CHILDREN; i++)
		if (children[i].pid == pid)
			return &children[i];
	abort();
}

static void child_close(struct child *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
	c->ended = true;
}

int __wrap_kill(pid_t pid, int sig)
{
	struct child *c = child_of(pid);

	EXPECT(sig == SIGKILL);
	c->killed = true;
	child_close(c);
	return 0;
}

/* One that was killed takes a while to go. */
pid_t __wrap_waitpid(pid_t pid, int *status, int options)
{
	struct child *c = child_of(pid);

	EXPECT(c->ended);
	if (options & WNOHANG && c->killed) {
		c->killed = false;
		return 0;
	}
	*status = SIGKILL;
	*c = (struct child){ .fd = -1 };
	return pid;
}

void gc_child_step(struct in *in)
{
	static u8 buf[sizeof(struct dcm_gc_message) + DCM_GC_PAYLOAD_MAX + 8];
	struct child *c = &children[byte(in) % CHILDREN];
	struct dcm_gc_message *msg = (void *)buf;
	const u32 how = byte(in);
	size_t n = some(in, 64) % (DCM_GC_PAYLOAD_MAX + 9);
	ssize_t ret;

	if (c->fd < 0)
		return;
	if (how & 1)
		while (recv(c->fd, buf, sizeof(buf), MSG_DONTWAIT) > 0)
			;
	if (how & 2)
		child_close(c);
	if (!(how & 4) || c->fd < 0)
		return;
	*msg = (struct dcm_gc_message){
		.kind = htole32((u32)some(in, DCM_GC_KINDS)),
		.tag = htole64(byte(in)),
		.donor = htole32((u32)some(in, 4)),
		.bytes = htole32((u32)n + (how & 8 ? byte(in) : 0)),
	};
	n += how & 0x10 ? 0 : sizeof(*msg);
	for (u32 i = 0; i < (how & 0x20 ? 40 : 1); i++) {
		ret = send(c->fd, buf, n, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (ret < 0)
			break;
	}
}

void gc_children_begin(void)
{
	for (u32 i = 0; i < CHILDREN; i++)
		children[i].fd = -1;
}

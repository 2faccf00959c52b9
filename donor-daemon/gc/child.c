// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * child.c - start a GC worker, exchange messages with it, end it
 *
 * The worker gets one descriptor, its socket, and nothing else that the donor
 * has open: no keys, no other sessions' slabs, no connections. It dies with the
 * donor. Between fork and exec only async-signal-safe functions are called, as
 * the donor has threads.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "child.h"
#include "../../kvm-dcm/proto/gc_message.h"

#define CHILD_FD	3

/* Make the OOM killer choose the worker before the donor, which serves many hosts. */
static void child_first_to_go(void)
{
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd >= 0 && write(fd, "900", 3) < 0)
		return;	/* then the worker keeps the donor's score */
}

static _Noreturn void child_exec(const struct dcm_gc_child_how *how, int fd,
				 char *const argv[], pid_t parent)
{
	static char *const env[] = { NULL };
	sigset_t none;
	int null;

	/* the donor's signal mask is not the worker's */
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	null = open("/dev/null", O_RDWR);
	/* join the cgroup first, so that all it uses is counted there */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) || getppid() != parent ||
	    (how->group >= 0 && write(how->group, "0", 1) != 1) || null < 0 ||
	    dup2(null, 0) < 0 || dup2(null, 1) < 0 ||
	    (fd == CHILD_FD ? fcntl(fd, F_SETFD, 0) : dup2(fd, CHILD_FD)) < 0 ||
	    syscall(SYS_close_range, CHILD_FD + 1, ~0u, 0))
		_exit(126);
	child_first_to_go();
	execve(how->path, argv, env);
	_exit(127);
}

int dcm_gc_child_start(struct dcm_gc_child *c,
		       const struct dcm_gc_child_how *how)
{
	char text[4][24], fd_text[] = { '0' + CHILD_FD, 0 };
	char *argv[] = { "dcm-gc-worker", fd_text, text[0], text[1],
			 text[2],	  text[3], NULL };
	pid_t parent = getpid();
	int pair[2];

	snprintf(text[0], sizeof(text[0]), "%u", how->donor);
	snprintf(text[1], sizeof(text[1]), "%u", how->threads);
	snprintf(text[2], sizeof(text[2]), "%llu",
		 (unsigned long long)how->memory);
	snprintf(text[3], sizeof(text[3]), "%llu",
		 (unsigned long long)how->slabs);
	if (access(how->path, X_OK) ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return -errno;
	c->pid = fork();
	if (!c->pid)
		child_exec(how, pair[1], argv, parent);
	close(pair[1]);
	if (c->pid < 0 || fcntl(pair[0], F_SETFL, O_NONBLOCK)) {
		close(pair[0]);
		c->pid = 0;
		return -EAGAIN;
	}
	c->fd = pair[0];
	return 0;
}

u64 dcm_gc_child_memory(u64 space_bytes, u32 threads)
{
	/* the engine's 2.5 %, tables of types, buffers and stacks */
	return space_bytes / 40 + (24ull << 20) + threads * (5ull << 20);
}

u64 dcm_gc_child_backed(const struct dcm_gc_child *c)
{
	unsigned long long size, resident, shared;
	char path[32], text[128];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/statm", (int)c->pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = 0;
	if (sscanf(text, "%llu %llu %llu", &size, &resident, &shared) != 3 ||
	    shared > resident)
		return 0;
	return (resident - shared) * (u64)sysconf(_SC_PAGESIZE);
}

void dcm_gc_child_kill(struct dcm_gc_child *c)
{
	if (!c->pid)
		return;
	kill(c->pid, SIGKILL);
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
}

bool dcm_gc_child_reap(struct dcm_gc_child *c, bool wait, int *status)
{
	pid_t pid;

	*status = 0;
	if (!c->pid)
		return true;
	do {
		pid = waitpid(c->pid, status, wait ? 0 : WNOHANG);
	} while (pid < 0 && errno == EINTR);
	if (!pid)
		return false;
	c->pid = 0;
	return true;
}

void dcm_gc_child_end(struct dcm_gc_child *c)
{
	int status;

	dcm_gc_child_kill(c);
	dcm_gc_child_reap(c, true, &status);
}

int dcm_gc_child_send(struct dcm_gc_child *c, const struct dcm_gc_message *msg,
		      const void *payload, int fd)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec v[2] = {
		{ (void *)msg, sizeof(*msg) },
		{ (void *)payload, le32toh(msg->bytes) },
	};
	struct msghdr h = { .msg_iov = v, .msg_iovlen = 2 };
	ssize_t ret;

	if (fd >= 0) {
		struct cmsghdr *m;

		memset(&control, 0, sizeof(control));
		h.msg_control = &control;
		h.msg_controllen = sizeof(control);
		m = CMSG_FIRSTHDR(&h);
		m->cmsg_level = SOL_SOCKET;
		m->cmsg_type = SCM_RIGHTS;
		m->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(m), &fd, sizeof(int));
	}
	do {
		ret = sendmsg(c->fd, &h, MSG_NOSIGNAL);
	} while (ret < 0 && errno == EINTR);
	if (ret >= 0)
		return 0;
	return errno == EAGAIN || errno == EWOULDBLOCK ? -EAGAIN : -EPIPE;
}

ssize_t dcm_gc_child_receive(struct dcm_gc_child *c, void *buf, size_t room)
{
	const struct dcm_gc_message *msg = buf;
	struct iovec v = { buf, room };
	struct msghdr h = { .msg_iov = &v, .msg_iovlen = 1 };
	ssize_t n;

	do {
		n = recvmsg(c->fd, &h, 0);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EAGAIN || errno == EWOULDBLOCK ? -EAGAIN : 0;
	if (!n)
		return 0;
	/* a worker may not pass descriptors; if it did, the kernel has closed them */
	if (h.msg_flags & (MSG_TRUNC | MSG_CTRUNC) ||
	    (size_t)n < sizeof(*msg) ||
	    (size_t)n != sizeof(*msg) + le32toh(msg->bytes))
		return -EPROTO;
	return n;
}

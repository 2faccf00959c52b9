// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * main.c - dcm-gc-worker: a process that collects garbage for one session
 *
 *   dcm-gc-worker FD DONOR THREADS MEMORY SLABS
 *
 * The donor starts it with one socket, FD; it ends when that is closed. DONOR
 * is this donor's number among the session's donors, MEMORY the bytes that its
 * tables may take, SLABS the bytes of slabs that it may be sent. Slabs come as
 * memfds. A slab that the donor takes back is truncated, and a worker that
 * still accesses it dies of SIGBUS, as the donor expects.
 *
 * One thread reads messages and answers those that take no time (message.c).
 * Requests are in job.c, which has a thread for those that take long. Tracing
 * has threads of its own (trace.c).
 *
 * Locking: none; each message is sent whole, by any thread.
 */
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "job.h"
#include "sandbox.h"

/* Address space for code, libraries, the first stack, and rounding. */
#define PROGRAM_BYTES (64ull << 20)

u32 worker_donor;
u32 worker_threads;

static int sock;

/* Exit at once, with all threads: there is nothing to clean up. */
_Noreturn void worker_end(int status)
{
	for (;;)
		syscall(SYS_exit_group, status);
}

/* Send a message; exits if the donor is gone, or does not read. */
void worker_send(const struct dcm_gc_message *msg, const void *payload)
{
	struct iovec v[2] = {
		{ (void *)msg, sizeof(*msg) },
		{ (void *)payload, le32toh(msg->bytes) },
	};
	ssize_t ret;

	do {
		ret = writev(sock, v, 2);
	} while (ret < 0 && errno == EINTR);
	if (ret < 0)
		worker_end(0);
}

/* Receive a message, and its descriptor if it has one. */
static ssize_t msg_receive(void *buf, int *fd)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec v = { buf, WORKER_BUFFER };
	struct msghdr h = {
		.msg_iov = &v,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *c;
	ssize_t n;

	do {
		n = recvmsg(sock, &h, MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	*fd = -1;
	c = n < 0 ? NULL : CMSG_FIRSTHDR(&h);
	if (c && c->cmsg_type == SCM_RIGHTS &&
	    c->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(fd, CMSG_DATA(c), sizeof(int));
	if (n > 0 && h.msg_flags & (MSG_TRUNC | MSG_CTRUNC))
		worker_end(8);
	return n;
}

/* Log to the donor's stderr if that is writable: its reader may be stuck. */
__attribute__((format(printf, 1, 2))) static void line_write(const char *fmt,
							     ...)
{
	struct pollfd p = { .fd = STDERR_FILENO, .events = POLLOUT };
	char line[256];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	if (n >= (int)sizeof(line))
		n = sizeof(line) - 1;
	if (n > 0 && poll(&p, 1, 0) == 1 &&
	    (p.revents & (POLLOUT | POLLERR)) == POLLOUT &&
	    write(STDERR_FILENO, line, (size_t)n) < 0)
		return;
}

static u64 number_read(const char *text, u64 max)
{
	char *rest;
	unsigned long long v = strtoull(text, &rest, 10);

	if (!*text || *rest || v > max) {
		line_write("dcm-gc-worker: '%s': not a number up to %llu\n",
			   text, (unsigned long long)max);
		exit(2);
	}
	return v;
}

int main(int argc, char **argv)
{
	static u64 buf[WORKER_BUFFER / 8];
	struct dcm_gc_message *msg = (void *)buf;
	const char *what;
	int ret;

	if (argc != 6) {
		line_write(
			"dcm-gc-worker is started by dcm-donord: FD DONOR THREADS MEMORY SLABS\n");
		return 2;
	}
	sock = (int)number_read(argv[1], 1 << 20);
	worker_donor = (u32)number_read(argv[2], DCM_WIRE_GC_DONORS - 1);
	worker_threads = (u32)number_read(argv[3], DCM_GC_THREADS_MAX);
	ret = dcm_gc_sandbox(sock, number_read(argv[4], 1ull << 50),
			     number_read(argv[5], 1ull << 60) + PROGRAM_BYTES,
			     &what);
	if (ret) {
		line_write("dcm-gc-worker: %s: %s\n", what, strerror(-ret));
		return 1;
	}
	if (job_start())
		return 1;
	for (;;) {
		int fd;
		ssize_t n = msg_receive(buf, &fd);

		if (n <= 0)
			worker_end(0);
		if ((size_t)n < sizeof(*msg) ||
		    (size_t)n != sizeof(*msg) + le32toh(msg->bytes))
			worker_end(9);
		worker_handle(msg, msg + 1, le32toh(msg->bytes), fd);
	}
}

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * pair.c - a connected pair of stream sockets, in this process's memory
 *
 * In place of the system's, which take most of a short input's time (an input's
 * program is linked with --wrap for each call here). There is one pair at a time.
 * It does as a pair of the system's that never waits: it takes what there is room
 * for; what came before an end can still be read; who closes with bytes unread
 * resets the other end.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "input.h"

#define FD0 (1 << 20) /* no descriptor of the system's */
#define ROOM (208u << 10)

int __wrap_socketpair(int domain, int type, int protocol, int fds[2]);
int __wrap_setsockopt(int fd, int level, int name, const void *value,
		      socklen_t len);
ssize_t __wrap_send(int fd, const void *bytes, size_t n, int flags);
ssize_t __wrap_recv(int fd, void *bytes, size_t n, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags);
int __wrap_poll(struct pollfd *fds, nfds_t nr, int ms);
int __wrap_shutdown(int fd, int how);
int __wrap_close(int fd);

/**
 * struct end - one of the two sockets
 * @room: bytes that may be unread of it
 * @in_shut: nothing more will come
 * @out_shut: nothing more may be sent
 * @reset: it is not told yet
 * @bytes: what has come: @nr from @at on, around the end
 */
struct end {
	bool open;
	bool in_shut;
	bool out_shut;
	bool reset;
	size_t room;
	size_t at;
	size_t nr;
	u8 bytes[ROOM];
};

static struct end ends[2];

UNTRACED static struct end *end_of(int fd)
{
	EXPECT((fd == FD0 || fd == FD0 + 1) && ends[fd - FD0].open);
	return &ends[fd - FD0];
}

static struct end *other(struct end *e)
{
	return e == &ends[0] ? &ends[1] : &ends[0];
}

static void end_open(struct end *e)
{
	EXPECT(!e->open);
	memset(e, 0, offsetof(struct end, bytes));
	e->open = true;
	e->room = ROOM;
}

int __wrap_socketpair(int domain, int type, int protocol, int fds[2])
{
	EXPECT(domain == AF_UNIX && type & SOCK_STREAM && !protocol);
	for (int i = 0; i < 2; i++) {
		end_open(&ends[i]);
		fds[i] = FD0 + i;
	}
	return 0;
}

int __wrap_setsockopt(int fd, int level, int name, const void *value,
		      socklen_t len)
{
	struct end *e = end_of(fd);
	int room;

	EXPECT(level == SOL_SOCKET);
	if (name == SO_SNDBUF) {
		EXPECT(len == sizeof(room));
		memcpy(&room, value, sizeof(room));
		other(e)->room = min((size_t)room, (size_t)ROOM);
	}
	return 0;
}

/* Bytes that are sent go behind what the other end has: so many have room. */
UNTRACED static size_t put(struct end *to, const u8 *p, size_t n)
{
	const size_t tail = (to->at + to->nr) % ROOM;
	size_t first;

	n = min(n, to->nr < to->room ? to->room - to->nr : 0);
	first = min(n, ROOM - tail);
	memcpy(to->bytes + tail, p, first);
	memcpy(to->bytes, p + first, n - first);
	to->nr += n;
	return n;
}

UNTRACED static size_t get(struct end *e, u8 *p, size_t n)
{
	size_t first;

	n = min(n, e->nr);
	first = min(n, ROOM - e->at);
	memcpy(p, e->bytes + e->at, first);
	memcpy(p + first, e->bytes, n - first);
	e->at = (e->at + n) % ROOM;
	e->nr -= n;
	return n;
}

static ssize_t fails(int err)
{
	errno = err;
	return -1;
}

UNTRACED static ssize_t send_all(struct end *e, const struct iovec *v,
				 size_t nr)
{
	size_t done = 0, n;

	if (e->reset) {
		e->reset = false;
		return fails(ECONNRESET);
	}
	if (e->out_shut)
		return fails(EPIPE);
	for (size_t i = 0; i < nr; i++) {
		n = put(other(e), v[i].iov_base, v[i].iov_len);
		done += n;
		if (n < v[i].iov_len)
			return done ? (ssize_t)done : fails(EAGAIN);
	}
	return (ssize_t)done;
}

UNTRACED static ssize_t recv_all(struct end *e, const struct iovec *v,
				 size_t nr)
{
	size_t done = 0;

	if (!e->nr && e->reset) {
		e->reset = false;
		return fails(ECONNRESET);
	}
	if (!e->nr)
		return e->in_shut ? 0 : fails(EAGAIN);
	for (size_t i = 0; i < nr && e->nr; i++)
		done += get(e, v[i].iov_base, v[i].iov_len);
	return (ssize_t)done;
}

ssize_t __wrap_send(int fd, const void *bytes, size_t n, int flags)
{
	const struct iovec v = { (void *)bytes, n };

	EXPECT(flags == (MSG_DONTWAIT | MSG_NOSIGNAL));
	return send_all(end_of(fd), &v, 1);
}

ssize_t __wrap_recv(int fd, void *bytes, size_t n, int flags)
{
	const struct iovec v = { bytes, n };

	EXPECT(flags == MSG_DONTWAIT);
	return recv_all(end_of(fd), &v, 1);
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	EXPECT(flags == (MSG_DONTWAIT | MSG_NOSIGNAL) && !msg->msg_controllen);
	return send_all(end_of(fd), msg->msg_iov, msg->msg_iovlen);
}

ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags)
{
	EXPECT(flags == MSG_DONTWAIT && !msg->msg_controllen);
	return recv_all(end_of(fd), msg->msg_iov, msg->msg_iovlen);
}

UNTRACED int __wrap_poll(struct pollfd *p, nfds_t nr, int ms)
{
	struct end *e = end_of(p->fd);
	const bool full = other(e)->nr >= other(e)->room;
	int is = 0;

	EXPECT(nr == 1 && !ms);
	is |= e->nr || e->in_shut ? POLLIN : 0;
	is |= full ? 0 : POLLOUT;
	is |= e->in_shut ? POLLRDHUP : 0;
	p->revents = (short)(is & p->events);
	p->revents |= e->in_shut && e->out_shut ? POLLHUP : 0;
	p->revents |= e->reset ? POLLERR : 0;
	return !!p->revents;
}

int __wrap_shutdown(int fd, int how)
{
	struct end *e = end_of(fd), *o = other(e);

	if (how != SHUT_WR)
		e->in_shut = o->out_shut = true;
	if (how != SHUT_RD)
		e->out_shut = o->in_shut = true;
	return 0;
}

int __wrap_close(int fd)
{
	struct end *e = end_of(fd), *o = other(e);

	o->in_shut = o->out_shut = true;
	o->reset |= e->nr;
	e->open = false;
	return 0;
}

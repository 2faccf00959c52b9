// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * sockets.c - UNIX stream sockets and eventfds, in this process's memory
 *
 * In place of the system's, which take most of a short input's time (an input's
 * program is linked with --wrap for each call here that it makes). A socket does as one
 * of the system's that never waits: it takes what there is room for; what came
 * before an end can still be read; closing one with bytes unread resets the
 * other end. Descriptors come with the first byte they were sent with, and no
 * byte that was sent later comes in the same call.
 *
 * Numbers from FD0 on are of this file, all others the system's.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "sockets.h"

#define FD0 (1 << 20)
#define SOCKETS 64u
#define ROOM (208u << 10)
#define BACKLOG 16u
#define PARCEL_FDS 8u
/* A program with donors of its own connects to these instead. */
#define WEAK __attribute__((weak))

int __wrap_socket(int domain, int type, int protocol);
int __wrap_socketpair(int domain, int type, int protocol, int fds[2]);
int __wrap_eventfd(unsigned int count, int flags);
int __wrap_bind(int fd, const struct sockaddr *sa, socklen_t len);
int __wrap_listen(int fd, int backlog);
int __wrap_connect(int fd, const struct sockaddr *sa, socklen_t len);
int __wrap_accept4(int fd, struct sockaddr *sa, socklen_t *len, int flags);
int __wrap_setsockopt(int fd, int level, int name, const void *value,
		      socklen_t len);
ssize_t __wrap_send(int fd, const void *bytes, size_t n, int flags);
ssize_t __wrap_recv(int fd, void *bytes, size_t n, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags);
ssize_t __wrap_read(int fd, void *bytes, size_t n);
ssize_t __real_read(int fd, void *bytes, size_t n);
ssize_t __wrap_write(int fd, const void *bytes, size_t n);
ssize_t __real_write(int fd, const void *bytes, size_t n);
int __wrap_shutdown(int fd, int how);
int __wrap_close(int fd);
int __real_close(int fd);

/**
 * struct parcel - descriptors on their way, by the sender's numbers
 * @at: position of the first byte that came with them, of all bytes that ever came
 *	to this socket
 * @bytes: how many bytes were sent with them
 */
struct parcel {
	u64 at;
	size_t bytes;
	u32 nr;
	int fd[PARCEL_FDS];
};

/**
 * struct end - a socket or an eventfd
 * @is: END_FREE: its number is free
 * @to: the other end; NULL: none, or closed
 * @in_shut: nothing more will come
 * @out_shut: nothing more may be sent
 * @reset: the other end closed with bytes unread; the next call says so, once
 * @room: bytes that may be unread here
 * @listening: connections that may wait in @waits, less one; 0: it does not listen
 * @count: an eventfd's
 * @taken: bytes read so far
 * @bytes: what has come: @nr from @at on, around the end
 */
struct end {
	enum { END_FREE, END_SOCKET, END_EVENT } is;
	struct end *to;
	bool in_shut;
	bool out_shut;
	bool reset;
	size_t room;
	u32 listening;
	u32 nr_waits;
	u64 count;
	u64 taken;
	u32 nr_parcels;
	size_t at;
	size_t nr;
	struct sockaddr_un name;
	struct end *waits[BACKLOG];
	struct parcel parcel[SOCKETS_PARCELS];
	u8 bytes[ROOM];
};

static struct end ends[SOCKETS];
static u32 nr_open;

static ssize_t fails(int err)
{
	errno = err;
	return -1;
}

static bool ours(int fd)
{
	return fd >= FD0 && fd < FD0 + (int)SOCKETS;
}

UNTRACED static struct end *end_of(int fd)
{
	EXPECT(ours(fd) && ends[fd - FD0].is);
	return &ends[fd - FD0];
}

static int number(const struct end *e)
{
	return FD0 + (int)(e - ends);
}

UNTRACED static struct end *end_open(u32 is)
{
	struct end *e = ends;

	while (e->is)
		EXPECT(++e < ends + SOCKETS);
	memset(e, 0, offsetof(struct end, name));
	e->name.sun_path[0] = 0;
	e->is = is;
	e->room = ROOM;
	nr_open++;
	return e;
}

static void join(struct end *a, struct end *b)
{
	a->to = b;
	b->to = a;
}

static void end_close(struct end *e)
{
	for (u32 i = 0; i < e->nr_waits; i++) {
		if (e->waits[i]->to)
			e->waits[i]->to->reset = true;
		end_close(e->waits[i]);
	}
	if (e->to) {
		e->to->in_shut = e->to->out_shut = true;
		e->to->reset |= e->nr;
		e->to->to = NULL;
	}
	e->is = END_FREE;
	nr_open--;
}

u32 sockets_open(void)
{
	return nr_open;
}

/* ---- from open to close ---- */

WEAK UNTRACED int __wrap_socket(int domain, int type, int protocol)
{
	EXPECT(domain == AF_UNIX && type & SOCK_STREAM && !protocol);
	return number(end_open(END_SOCKET));
}

UNTRACED int __wrap_socketpair(int domain, int type, int protocol, int fds[2])
{
	struct end *a, *b;

	EXPECT(domain == AF_UNIX && type & SOCK_STREAM && !protocol);
	a = end_open(END_SOCKET);
	b = end_open(END_SOCKET);
	join(a, b);
	fds[0] = number(a);
	fds[1] = number(b);
	return 0;
}

int __wrap_eventfd(unsigned int count, int flags)
{
	struct end *e = end_open(END_EVENT);

	(void)flags;
	e->count = count;
	return number(e);
}

int __wrap_bind(int fd, const struct sockaddr *sa, socklen_t len)
{
	EXPECT(sa->sa_family == AF_UNIX && len <= sizeof(struct sockaddr_un));
	memcpy(&end_of(fd)->name, sa, len);
	return 0;
}

int __wrap_listen(int fd, int backlog)
{
	EXPECT(backlog > 0 && (u32)backlog < BACKLOG);
	end_of(fd)->listening = (u32)backlog;
	return 0;
}

WEAK UNTRACED int __wrap_connect(int fd, const struct sockaddr *sa,
				 socklen_t len)
{
	const struct sockaddr_un *un = (const void *)sa;
	struct end *e = end_of(fd), *at = NULL, *other;

	EXPECT(sa->sa_family == AF_UNIX && len == sizeof(*un));
	for (u32 i = 0; i < SOCKETS; i++)
		if (ends[i].is == END_SOCKET && ends[i].listening &&
		    !strcmp(ends[i].name.sun_path, un->sun_path))
			at = &ends[i];
	if (!at)
		return (int)fails(ECONNREFUSED);
	if (at->nr_waits > at->listening)
		return (int)fails(EAGAIN);
	other = end_open(END_SOCKET);
	join(e, other);
	at->waits[at->nr_waits++] = other;
	return 0;
}

int __wrap_accept4(int fd, struct sockaddr *sa, socklen_t *len, int flags)
{
	struct end *e = end_of(fd), *first = e->waits[0];

	(void)flags;
	EXPECT(e->listening && !sa && !len);
	if (!e->nr_waits)
		return (int)fails(EAGAIN);
	memmove(e->waits, e->waits + 1, --e->nr_waits * sizeof(first));
	return number(first);
}

/* Of either buffer's size comes the same: room where bytes wait. */
int __wrap_setsockopt(int fd, int level, int name, const void *value,
		      socklen_t len)
{
	struct end *e = end_of(fd);
	int room;

	if (level != SOL_SOCKET)
		return (int)fails(EOPNOTSUPP);
	if (name == SO_SNDBUF && e->to) {
		EXPECT(len == sizeof(room));
		memcpy(&room, value, sizeof(room));
		e->to->room = min((size_t)room, (size_t)ROOM);
	}
	if (name == SO_RCVBUF) {
		EXPECT(len == sizeof(room));
		memcpy(&room, value, sizeof(room));
		e->room = min((size_t)room, (size_t)ROOM);
	}
	return 0;
}

int __wrap_shutdown(int fd, int how)
{
	struct end *e = end_of(fd);

	if (how != SHUT_WR) {
		e->in_shut = true;
		if (e->to)
			e->to->out_shut = true;
	}
	if (how != SHUT_RD) {
		e->out_shut = true;
		if (e->to)
			e->to->in_shut = true;
	}
	return 0;
}

UNTRACED int __wrap_close(int fd)
{
	if (!ours(fd))
		return __real_close(fd);
	end_close(end_of(fd));
	return 0;
}

/* ---- bytes ---- */

/* Put sent bytes behind those that the other end has; returns how many had room. */
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
	e->taken += n;
	/* the same few bytes again: they are in the cache */
	if (!e->nr)
		e->at = 0;
	return n;
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
	EXPECT(e->to);
	for (size_t i = 0; i < nr; i++) {
		n = put(e->to, v[i].iov_base, v[i].iov_len);
		done += n;
		if (n < v[i].iov_len)
			return done ? (ssize_t)done : fails(EAGAIN);
	}
	return (ssize_t)done;
}

/* At most @max bytes. */
UNTRACED static ssize_t recv_all(struct end *e, const struct iovec *v,
				 size_t nr, size_t max)
{
	size_t done = 0;

	if (!e->nr && e->reset) {
		e->reset = false;
		return fails(ECONNRESET);
	}
	if (!e->nr)
		return e->in_shut ? 0 : fails(EAGAIN);
	for (size_t i = 0; i < nr && e->nr && done < max; i++)
		done += get(e, v[i].iov_base, min(v[i].iov_len, max - done));
	return (ssize_t)done;
}

/* ---- descriptors ---- */

/* Those of @msg go with the @n bytes that were sent last. */
UNTRACED static void parcel_put(struct end *to, const struct msghdr *msg,
				size_t n)
{
	const struct cmsghdr *cm = CMSG_FIRSTHDR(msg);
	struct parcel *p = &to->parcel[to->nr_parcels++];

	EXPECT(cm->cmsg_level == SOL_SOCKET && cm->cmsg_type == SCM_RIGHTS);
	p->nr = (u32)((cm->cmsg_len - CMSG_LEN(0)) / sizeof(int));
	p->at = to->taken + to->nr - n;
	p->bytes = n;
	EXPECT(p->nr && p->nr <= PARCEL_FDS);
	memcpy(p->fd, CMSG_DATA(cm), p->nr * sizeof(int));
}

/* Where the first descriptors are among the next @n bytes, or NULL. */
UNTRACED static struct parcel *parcel_in(struct end *e, size_t n)
{
	struct parcel *p = e->parcel;

	return e->nr_parcels && p->at < e->taken + min(n, e->nr) ? p : NULL;
}

UNTRACED static void parcel_drop(struct end *e)
{
	memmove(e->parcel, e->parcel + 1,
		--e->nr_parcels * sizeof(e->parcel[0]));
}

/* They become descriptors of the receiver's, as many as there is room for. */
UNTRACED static void parcel_get(const struct parcel *p, struct msghdr *msg)
{
	struct cmsghdr *cm = CMSG_FIRSTHDR(msg);
	const size_t room =
		cm ? (msg->msg_controllen - CMSG_LEN(0)) / sizeof(int) : 0;
	const u32 nr = (u32)min((size_t)p->nr, room);

	if (nr < p->nr)
		msg->msg_flags |= MSG_CTRUNC;
	msg->msg_controllen = nr ? CMSG_SPACE(nr * sizeof(int)) : 0;
	if (!nr)
		return;
	cm->cmsg_level = SOL_SOCKET;
	cm->cmsg_type = SCM_RIGHTS;
	cm->cmsg_len = CMSG_LEN(nr * sizeof(int));
	for (u32 i = 0; i < nr; i++) {
		const int fd = fcntl(p->fd[i], F_DUPFD_CLOEXEC, 0);

		EXPECT(fd >= 0);
		memcpy(CMSG_DATA(cm) + i * sizeof(int), &fd, sizeof(fd));
	}
}

/* ---- calls ---- */

UNTRACED ssize_t __wrap_send(int fd, const void *bytes, size_t n, int flags)
{
	const struct iovec v = { (void *)bytes, n };

	EXPECT((flags | MSG_NOSIGNAL) == (MSG_DONTWAIT | MSG_NOSIGNAL));
	return send_all(end_of(fd), &v, 1);
}

UNTRACED ssize_t __wrap_recv(int fd, void *bytes, size_t n, int flags)
{
	const struct iovec v = { bytes, n };
	struct msghdr msg = { .msg_iov = (void *)&v, .msg_iovlen = 1 };

	return __wrap_recvmsg(fd, &msg, flags);
}

UNTRACED ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	struct end *e = end_of(fd);
	ssize_t n;

	EXPECT(flags == (MSG_DONTWAIT | MSG_NOSIGNAL));
	if (msg->msg_controllen && e->to &&
	    e->to->nr_parcels == SOCKETS_PARCELS)
		return fails(ETOOMANYREFS);
	n = send_all(e, msg->msg_iov, msg->msg_iovlen);
	if (n > 0 && msg->msg_controllen)
		parcel_put(e->to, msg, (size_t)n);
	return n;
}

UNTRACED ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags)
{
	struct end *e = end_of(fd);
	struct parcel *p;
	size_t max = 0;
	ssize_t n;

	EXPECT((flags & ~MSG_CMSG_CLOEXEC) == MSG_DONTWAIT);
	msg->msg_flags = 0;
	for (size_t i = 0; i < msg->msg_iovlen; i++)
		max += msg->msg_iov[i].iov_len;
	if (!max && e->nr)
		return 0;
	p = parcel_in(e, max);
	if (p)
		max = min(max, (size_t)(p->at + p->bytes - e->taken));
	n = recv_all(e, msg->msg_iov, msg->msg_iovlen, max);
	if (p) {
		parcel_get(p, msg);
		parcel_drop(e);
	} else {
		msg->msg_controllen = 0;
	}
	return n;
}

UNTRACED ssize_t __wrap_read(int fd, void *bytes, size_t n)
{
	struct end *e;

	if (!ours(fd))
		return __real_read(fd, bytes, n);
	e = end_of(fd);
	EXPECT(e->is == END_EVENT && n == sizeof(e->count));
	if (!e->count)
		return fails(EAGAIN);
	memcpy(bytes, &e->count, n);
	e->count = 0;
	return (ssize_t)n;
}

UNTRACED ssize_t __wrap_write(int fd, const void *bytes, size_t n)
{
	struct end *e;
	u64 more;

	if (!ours(fd))
		return __real_write(fd, bytes, n);
	e = end_of(fd);
	EXPECT(e->is == END_EVENT && n == sizeof(more));
	memcpy(&more, bytes, n);
	e->count += more;
	return (ssize_t)n;
}

UNTRACED static int events_of(const struct end *e)
{
	int is = 0;

	if (e->is == END_EVENT)
		return (e->count ? POLLIN : 0) | POLLOUT;
	if (e->listening)
		return e->nr_waits ? POLLIN : 0;
	is |= e->nr || e->in_shut ? POLLIN : 0;
	is |= e->to && e->to->nr >= e->to->room ? 0 : POLLOUT;
	is |= e->in_shut ? POLLRDHUP : 0;
	is |= e->in_shut && e->out_shut ? POLLHUP : 0;
	is |= e->reset ? POLLERR : 0;
	return is;
}

UNTRACED int sockets_poll(struct pollfd *p, nfds_t nr)
{
	int n = 0;

	for (; nr; nr--, p++) {
		p->revents = 0;
		if (p->fd < 0)
			continue;
		p->revents = (short)(events_of(end_of(p->fd)) &
				     (p->events | POLLHUP | POLLERR));
		n += !!p->revents;
	}
	return n;
}

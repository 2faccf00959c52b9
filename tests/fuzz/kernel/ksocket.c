// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * ksocket.c - the kernel's calls of sockets, on the system's
 *
 * There is one socket. A call may end as the kernel's may: with less than was
 * asked for, or with no memory, for the moment.
 */
#include <errno.h>
#include <poll.h>
#include <sys/types.h>
#include <unistd.h>

#include "../input.h"
#include "kernel.h"

/* <sys/socket.h> has another struct msghdr */
ssize_t send(int fd, const void *bytes, size_t n, int flags);
ssize_t recv(int fd, void *bytes, size_t n, int flags);
int shutdown(int fd, int how);

/* A byte of what is not said to be in kernel.h. */
#define HOW_NO_MEMORY 0x1
#define HOW_INTERRUPTED 0x2
#define HOW_SHORT 0x4
#define SHORTS 24u /* calls of a step: enough for a head, and more */

static u32 how, shorts;
static struct sock sk;
static struct socket the_socket;

void ksocket_how(u32 h)
{
	how = h;
	shorts = h & HOW_SHORT ? SHORTS : 0;
}

static void event(struct sock *s)
{
	EXPECT(s == &sk);
}

struct socket *sockfd_lookup(int fd, int *err)
{
	sk = (struct sock){
		.sk_family = AF_INET,
		.sk_type = SOCK_STREAM,
		.sk_protocol = IPPROTO_TCP,
		.sk_state = TCP_ESTABLISHED,
		.sk_data_ready = event,
		.sk_write_space = event,
		.sk_state_change = event,
	};
	the_socket = (struct socket){ &sk, fd };
	*err = 0;
	return &the_socket;
}

void sockfd_put(struct socket *sock)
{
	EXPECT(sock == &the_socket && !sk.sk_user_data);
	EXPECT(sk.sk_data_ready == event && sk.sk_write_space == event &&
	     sk.sk_state_change == event);
	close(sock->fd);
}

void kernel_sock_shutdown(struct socket *sock, int what)
{
	shutdown(sock->fd, what);
	sock->sk->sk_state = TCP_CLOSE_WAIT;
}

void ksocket_events(struct socket *sock)
{
	struct pollfd p = { .fd = sock->fd,
			    .events = POLLIN | POLLOUT | POLLRDHUP };

	poll(&p, 1, 0);
	if (p.revents & (POLLHUP | POLLRDHUP | POLLERR)) {
		sock->sk->sk_state = TCP_CLOSE_WAIT;
		sock->sk->sk_state_change(sock->sk);
	}
	if (p.revents & POLLIN)
		sock->sk->sk_data_ready(sock->sk);
	if (p.revents & POLLOUT)
		sock->sk->sk_write_space(sock->sk);
}

/* @n bytes at @p go or come; what is wrong with it is wrong once. */
static int one(struct socket *sock, void *p, size_t n, bool out, int flags)
{
	ssize_t ret;

	EXPECT(flags & MSG_DONTWAIT && n);
	if (how & HOW_NO_MEMORY && out) {
		how &= ~(u32)HOW_NO_MEMORY;
		return n & 1 ? -ENOMEM : -ENOBUFS;
	}
	/* to receive never waits, so is never interrupted */
	if (how & HOW_INTERRUPTED && out) {
		how &= ~(u32)HOW_INTERRUPTED;
		return -EINTR;
	}
	if (shorts) {
		shorts--;
		n = 1 + (how >> 3) % n;
	}
	ret = out ? send(sock->fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL) :
		    recv(sock->fd, p, n, MSG_DONTWAIT);
	return ret < 0 ? -errno : (int)ret;
}

UNTRACED static int pages(struct socket *sock, struct msghdr *msg, bool out)
{
	const struct iov_iter *i = &msg->msg_iter;
	size_t sum = 0;
	int done = 0;

	for (unsigned long k = 0; k < i->nr; k++) {
		const struct bio_vec *bv = &i->bvec[k];

		EXPECT(bv->bv_len && bv->bv_offset + bv->bv_len <= PAGE_SIZE);
		sum += bv->bv_len;
	}
	EXPECT(sum == i->count);
	for (unsigned long k = 0; k < i->nr; k++) {
		const struct bio_vec *bv = &i->bvec[k];
		int n = one(sock, bv->bv_page->bytes + bv->bv_offset,
			    bv->bv_len, out, msg->msg_flags);

		if (n <= 0)
			return done ? done : n;
		done += n;
		if ((unsigned int)n < bv->bv_len)
			break;
	}
	return done;
}

int sock_sendmsg(struct socket *sock, struct msghdr *msg)
{
	EXPECT(msg->msg_flags & MSG_SPLICE_PAGES);
	return pages(sock, msg, true);
}

int sock_recvmsg(struct socket *sock, struct msghdr *msg, int flags)
{
	msg->msg_flags = flags;
	return pages(sock, msg, false);
}

int kernel_sendmsg(struct socket *sock, struct msghdr *msg, struct kvec *vec,
		   size_t nr, size_t bytes)
{
	EXPECT(nr == 1 && vec->iov_len == bytes);
	return one(sock, vec->iov_base, bytes, true, msg->msg_flags);
}

int kernel_recvmsg(struct socket *sock, struct msghdr *msg, struct kvec *vec,
		   size_t nr, size_t bytes, int flags)
{
	(void)msg;
	EXPECT(nr == 1 && vec->iov_len == bytes);
	return one(sock, vec->iov_base, bytes, false, flags);
}

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * conn.c - one connection to a donor
 *
 * TLS is used over AF_UNIX as well: the socket's permissions decide which users
 * may connect, the key which tenants may borrow. A slab's memfd arrives with
 * the record of its MR_INFO; the pull function takes descriptors as they pass,
 * in order, and bounds them: a donor that sends more than were asked for is
 * disconnected.
 *
 * States: CLOSED -> CONNECTING -> HANDSHAKE -> OPEN, any -> FAILED, any ->
 * CLOSED by close(). The codec refuses messages that this phase and side do not
 * have; control messages have no payload, so one head of %DCM_WIRE_HEAD_MAX
 * bytes is all that is ever kept.
 *
 * Locking: none, only the client thread uses it.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/un.h>
#include <unistd.h>

#include "conn.h"

#ifndef TCP_RTO_MAX_MS
#define TCP_RTO_MAX_MS 44
#endif

void dcm_conn_fail(struct dcm_conn *c, const char *fmt, ...)
{
	va_list ap;

	if (c->state == DCM_CONN_FAILED)
		return;
	c->state = DCM_CONN_FAILED;
	va_start(ap, fmt);
	vsnprintf(c->why, sizeof(c->why), fmt, ap);
	va_end(ap);
}

static void fds_take(struct dcm_conn *c, struct msghdr *msg)
{
	struct cmsghdr *cm;

	for (cm = CMSG_FIRSTHDR(msg); cm; cm = CMSG_NXTHDR(msg, cm)) {
		size_t n, i;

		if (cm->cmsg_level != SOL_SOCKET || cm->cmsg_type != SCM_RIGHTS)
			continue;
		n = (cm->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(cm) + i * sizeof(int),
			       sizeof(fd));
			if (c->nr_fds < DCM_CONN_FDS_MAX) {
				c->fds[c->nr_fds++] = fd;
			} else {
				close(fd);
				dcm_conn_fail(
					c,
					"sends descriptors that nobody asked for");
			}
		}
	}
	if (msg->msg_flags & MSG_CTRUNC)
		dcm_conn_fail(
			c,
			"descriptor lost: too many at once, or the limit on open files (ulimit -n) is reached");
}

static ssize_t conn_pull(gnutls_transport_ptr_t ptr, void *buf, size_t len)
{
	struct dcm_conn *c = ptr;
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(4 * sizeof(int))];
	} control;
	struct iovec iov = { buf, len };
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.buf,
		.msg_controllen = sizeof(control.buf),
	};
	ssize_t n;

	n = recvmsg(c->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n >= 0)
		fds_take(c, &msg);
	return n;
}

/* As conn_pull(), for a connection that brings no descriptors. */
static ssize_t fd_pull(gnutls_transport_ptr_t ptr, void *buf, size_t len)
{
	return recv((int)(intptr_t)ptr, buf, len, MSG_DONTWAIT);
}

static int conn_pull_timeout(gnutls_transport_ptr_t ptr, unsigned int ms)
{
	struct dcm_conn *c = ptr;
	struct pollfd p = { .fd = c->fd, .events = POLLIN };

	(void)ms;	/* never sleep */
	return poll(&p, 1, 0);
}

static void conn_refused(struct dcm_conn *c, int err)
{
	c->refused = err == ECONNREFUSED || (c->local && err == ENOENT);
	dcm_conn_fail(c, "connect: %s", strerror(err));
}

void dcm_conn_start(struct dcm_conn *c, struct dcm_tls *tls,
		    const struct sockaddr *sa, socklen_t len, u64 now_ms)
{
	int one = 1, rto = 1000, ret;

	memset(c, 0, offsetof(struct dcm_conn, fds));
	c->why[0] = 0;
	c->phase = DCM_PHASE_HELLO;
	c->since_ms = now_ms;
	c->local = sa->sa_family == AF_UNIX;
	c->state = DCM_CONN_CONNECTING;
	c->fd = socket(sa->sa_family,
		       SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (c->fd < 0) {
		dcm_conn_fail(c, "socket: %s", strerror(errno));
		return;
	}
	if (!c->local) {
		setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		/* since Linux 6.15: so TCP retries soon after a few seconds' break */
		setsockopt(c->fd, IPPROTO_TCP, TCP_RTO_MAX_MS, &rto,
			   sizeof(rto));
	}
	ret = dcm_tls_session(tls, c->fd, &c->tls);
	if (ret) {
		c->tls = NULL;
		dcm_conn_fail(c, "TLS: %s", gnutls_strerror(ret));
		return;
	}
	gnutls_transport_set_ptr2(c->tls, c, (void *)(intptr_t)c->fd);
	gnutls_transport_set_pull_function(c->tls, conn_pull);
	gnutls_transport_set_pull_timeout_function(c->tls, conn_pull_timeout);
	if (!connect(c->fd, sa, len)) {
		c->state = DCM_CONN_HANDSHAKE;
		dcm_conn_step(c);
	} else if (errno != EINPROGRESS) {
		/* AF_UNIX with a full backlog: EAGAIN; try again later */
		conn_refused(c, errno);
	}
}

short dcm_conn_events(const struct dcm_conn *c)
{
	switch (c->state) {
	case DCM_CONN_CONNECTING:
		return POLLOUT;
	case DCM_CONN_HANDSHAKE:
		return gnutls_record_get_direction(c->tls) ? POLLOUT : POLLIN;
	case DCM_CONN_OPEN:
		return c->out_len ? POLLIN | POLLOUT : POLLIN;
	default:
		return 0;
	}
}

static void conn_flush(struct dcm_conn *c)
{
	ssize_t ret;

	while (c->state == DCM_CONN_OPEN && c->out_len) {
		size_t len = c->record ? c->record : c->out_len;

		if (c->record)
			ret = gnutls_record_send(c->tls, NULL, 0);
		else
			ret = gnutls_record_send(c->tls, c->out, len);
		if (ret == GNUTLS_E_AGAIN || ret == GNUTLS_E_INTERRUPTED) {
			c->record = len;
			if (ret == GNUTLS_E_AGAIN)
				return;
			continue;
		}
		if (ret < 0) {
			c->broken = true;
			dcm_conn_fail(c, "connection lost: %s",
				      gnutls_strerror((int)ret));
			return;
		}
		if (!c->record)
			len = (size_t)ret;
		c->record = 0;
		c->out_len -= len;
		memmove(c->out, c->out + len, c->out_len);
	}
}

static void conn_handshake(struct dcm_conn *c)
{
	int ret;

	do {
		ret = gnutls_handshake(c->tls);
	} while (ret == GNUTLS_E_INTERRUPTED);
	if (c->state == DCM_CONN_FAILED || ret == GNUTLS_E_AGAIN)
		return;
	if (!ret) {
		c->state = DCM_CONN_OPEN;
		return;
	}
	if (ret == GNUTLS_E_FATAL_ALERT_RECEIVED) {
		c->auth = true;
		dcm_conn_fail(c, "TLS handshake refused (%s)",
			      gnutls_alert_get_name(gnutls_alert_get(c->tls)));
	} else {
		/* a donor may close on a wrong key without an alert */
		c->auth = ret == GNUTLS_E_PREMATURE_TERMINATION ||
			  ret == GNUTLS_E_PUSH_ERROR ||
			  ret == GNUTLS_E_PULL_ERROR;
		dcm_conn_fail(c, "TLS handshake failed: %s",
			      gnutls_strerror(ret));
	}
}

void dcm_conn_step(struct dcm_conn *c)
{
	socklen_t len = sizeof(int);
	int err = 0;

	if (c->state == DCM_CONN_CONNECTING) {
		if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &err, &len))
			err = errno;
		if (err) {
			conn_refused(c, err);
			return;
		}
		c->state = DCM_CONN_HANDSHAKE;
	}
	if (c->state == DCM_CONN_HANDSHAKE)
		conn_handshake(c);
	conn_flush(c);
}

void dcm_conn_send(struct dcm_conn *c, const struct dcm_wire_msg *msg)
{
	int n;

	if (c->state != DCM_CONN_OPEN)
		return;
	n = dcm_wire_encode(c->out + c->out_len, DCM_CONN_OUT_MAX - c->out_len,
			    msg);
	if (n < 0) {
		dcm_conn_fail(c, n == DCM_WIRE_E_ROOM ?
					 "does not read our messages" :
					 "message can't be encoded");
		return;
	}
	c->out_len += (size_t)n;
	conn_flush(c);
}

bool dcm_conn_recv(struct dcm_conn *c, struct dcm_wire_msg *msg)
{
	size_t bytes;
	ssize_t n;
	int ret;

	while (c->state == DCM_CONN_OPEN) {
		ret = dcm_wire_head(c->in, c->in_len, c->phase, DCM_SIDE_DONOR,
				    msg, &bytes);
		if (ret == DCM_WIRE_OK) {
			/* each read ends with its head: nothing is left in @in */
			c->in_len = 0;
			if (msg->payload_bytes) {
				dcm_conn_fail(
					c,
					"sends payload with a message that may have none");
				return false;
			}
			return true;
		}
		if (ret != DCM_WIRE_MORE) {
			dcm_conn_fail(c, "speaks another protocol: %s",
				      dcm_wire_error_text(ret));
			return false;
		}
		n = gnutls_record_recv(c->tls, c->in + c->in_len, bytes);
		if (n == GNUTLS_E_INTERRUPTED)
			continue;
		if (n == GNUTLS_E_AGAIN)
			return false;
		if (n <= 0) {
			c->broken = true;
			dcm_conn_fail(c, "connection lost: %s",
				      n ? gnutls_strerror((int)n) :
					  "closed by the donor");
			return false;
		}
		c->in_len += (size_t)n;
	}
	return false;
}

int dcm_conn_take_fd(struct dcm_conn *c)
{
	int fd;

	if (!c->nr_fds)
		return -1;
	fd = c->fds[0];
	c->nr_fds--;
	memmove(c->fds, c->fds + 1, c->nr_fds * sizeof(int));
	return fd;
}

void dcm_conn_close(struct dcm_conn *c)
{
	if (c->state == DCM_CONN_CLOSED)
		return;
	while (c->nr_fds)
		close(dcm_conn_take_fd(c));
	if (c->tls)
		gnutls_deinit(c->tls);
	c->tls = NULL;
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
	c->state = DCM_CONN_CLOSED;
	explicit_bzero(c->out, sizeof(c->out));
	explicit_bzero(c->in, sizeof(c->in));
}

int dcm_conn_hold(struct dcm_conn *c)
{
	int fd = c->fd;

	c->fd = -1;
	dcm_conn_close(c);
	return fd;
}

int dcm_conn_detach(struct dcm_conn *c, gnutls_session_t *tls)
{
	int fd = c->fd;

	if (c->state != DCM_CONN_OPEN || c->in_len || c->out_len || c->nr_fds ||
	    gnutls_record_check_pending(c->tls)) {
		dcm_conn_fail(c, "sends a message that nobody asked for");
		return -1;
	}
	/* the TLS session outlives @c: its pull function must not point here */
	gnutls_transport_set_int(c->tls, fd);
	gnutls_transport_set_pull_function(c->tls, fd_pull);
	gnutls_transport_set_pull_timeout_function(c->tls,
						   gnutls_system_recv_timeout);
	*tls = c->tls;
	c->tls = NULL;
	c->fd = -1;
	dcm_conn_close(c);
	return fd;
}

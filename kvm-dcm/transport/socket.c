// SPDX-License-Identifier: GPL-2.0-only
/*
 * socket.c - a stream socket to a donor, plain or under TLS
 *
 * Bytes are gathered from a list of places and scattered to a list of places.
 * On a plain connection that is one sendmsg() or recvmsg(), and GnuTLS is not
 * called. Under TLS gnutls_record_recv() walks the list, and sending goes
 * through a buffer of one record. GnuTLS asks for the five bytes of a record's
 * header, then for the rest. One recv() fills @ahead with the bytes that are there, and
 * GnuTLS gets both from it. Bytes beyond @ahead are received where GnuTLS wants them.
 *
 * A caller that scatters bytes before it has read their headers may find that some
 * have landed in the wrong place. It returns these (dcm_socket_return()), and receives
 * them again, from @back.
 *
 * States: open, ended by either side. GnuTLS takes a record as a whole: while
 * @tx_record is set, a send only tells GnuTLS to go on with that record.
 *
 * The peer's bytes are not looked at here. A list bounds how many are received,
 * and @back has room for all of a list.
 *
 * Locking: none, one thread uses a socket. dcm_socket_kill() only shuts down
 * the socket.
 */
#include <errno.h>
#include <gnutls/gnutls.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "socket.h"

/* ---- sending ---- */

static ssize_t plain_send(struct dcm_socket *s, struct iovec *iov,
			  unsigned int n)
{
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = n };
	ssize_t ret;

	do {
		ret = sendmsg(s->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
	} while (ret < 0 && errno == EINTR);
	if (ret >= 0)
		return ret;
	return errno == EAGAIN ? -EAGAIN : -ENOTCONN;
}

static size_t record_fill(struct dcm_socket *s, const struct iovec *iov,
			  unsigned int n)
{
	size_t len = 0;
	unsigned int i;

	for (i = 0; i < n; i++) {
		memcpy(s->record + len, iov[i].iov_base, iov[i].iov_len);
		len += iov[i].iov_len;
	}
	return len;
}

static ssize_t tls_send(struct dcm_socket *s, struct iovec *iov, unsigned int n)
{
	size_t len = s->tx_record ? s->tx_record : record_fill(s, iov, n);
	ssize_t ret;

	for (;;) {
		ret = s->tx_record ? gnutls_record_send(s->tls, NULL, 0) :
				     gnutls_record_send(s->tls, s->record, len);
		if (ret != GNUTLS_E_AGAIN && ret != GNUTLS_E_INTERRUPTED)
			break;
		s->tx_record = len;
		if (ret == GNUTLS_E_AGAIN)
			return -EAGAIN;
	}
	if (ret < 0)
		return -ENOTCONN;
	if (s->tx_record)
		ret = (ssize_t)len;
	s->tx_record = 0;
	return ret;
}

ssize_t dcm_socket_send(struct dcm_socket *s, struct iovec *iov, unsigned int n)
{
	return s->tls ? tls_send(s, iov, n) : plain_send(s, iov, n);
}

/* ---- receiving ---- */

static ssize_t plain_recv(struct dcm_socket *s, struct iovec *iov,
			  unsigned int n, bool *more)
{
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = n };
	size_t asked = 0;
	unsigned int i;
	ssize_t ret;

	do {
		ret = recvmsg(s->fd, &msg, MSG_DONTWAIT);
	} while (ret < 0 && errno == EINTR);
	if (ret <= 0)
		return ret < 0 && errno == EAGAIN ? -EAGAIN : -ENOTCONN;
	for (i = 0; i < n; i++)
		asked += iov[i].iov_len;
	/* a short read has emptied the socket */
	*more = (size_t)ret == asked;
	return ret;
}

/* GnuTLS's pull function: give it @len bytes of the connection, from @ahead first. */
static ssize_t tls_pull(gnutls_transport_ptr_t ptr, void *data, size_t len)
{
	struct dcm_socket *s = ptr;
	bool ahead = len < sizeof(s->ahead);
	size_t room = ahead ? sizeof(s->ahead) : len;
	ssize_t ret;

	if (s->ahead_pos == s->ahead_len) {
		if (s->drained) {
			errno = EAGAIN;
			return -1;
		}
		ret = recv(s->fd, ahead ? s->ahead : data, room, MSG_DONTWAIT);
		if (ret <= 0)
			return ret;
		/* a short read has emptied the socket */
		s->drained = (size_t)ret < room;
		if (!ahead)
			return ret;
		s->ahead_pos = 0;
		s->ahead_len = (size_t)ret;
	}
	len = min(len, s->ahead_len - s->ahead_pos);
	memcpy(data, s->ahead + s->ahead_pos, len);
	s->ahead_pos += len;
	return (ssize_t)len;
}

/* Sessions do not block, so never wait: say that bytes may be there. */
static int tls_pull_timeout(gnutls_transport_ptr_t ptr, unsigned int ms)
{
	(void)ptr;
	(void)ms;
	return 1;
}

void dcm_socket_tls(struct dcm_socket *s, struct gnutls_session_int *tls)
{
	s->tls = tls;
	if (!tls)
		return;
	gnutls_transport_set_ptr2(tls, s, (void *)(intptr_t)s->fd);
	gnutls_transport_set_pull_function(tls, tls_pull);
	gnutls_transport_set_pull_timeout_function(tls, tls_pull_timeout);
}

static ssize_t tls_recv(struct dcm_socket *s, struct iovec *iov, unsigned int n,
			bool *more)
{
	size_t total = 0, off = 0;
	unsigned int i = 0;
	ssize_t ret;

	s->drained = false;
	while (i < n) {
		ret = gnutls_record_recv(s->tls, (char *)iov[i].iov_base + off,
					 iov[i].iov_len - off);
		if (ret == GNUTLS_E_INTERRUPTED)
			continue;
		if (ret == GNUTLS_E_AGAIN)
			break;
		/* bytes that came before the end are valid */
		if (ret <= 0)
			return total ? (ssize_t)total : -ENOTCONN;
		total += (size_t)ret;
		off += (size_t)ret;
		if (off == iov[i].iov_len) {
			i++;
			off = 0;
		}
	}
	/* if the list was not filled, GnuTLS found the socket empty */
	*more = i == n && (!s->drained || s->ahead_pos < s->ahead_len ||
			   gnutls_record_check_pending(s->tls));
	return total ? (ssize_t)total : -EAGAIN;
}

static ssize_t back_recv(struct dcm_socket *s, const struct iovec *iov)
{
	size_t len = min(iov->iov_len, s->back_len - s->back_pos);

	memcpy(iov->iov_base, s->back + s->back_pos, len);
	s->back_pos += len;
	if (s->back_pos == s->back_len) {
		s->back_pos = 0;
		s->back_len = 0;
	}
	return (ssize_t)len;
}

ssize_t dcm_socket_recv(struct dcm_socket *s, struct iovec *iov, unsigned int n,
			bool *more)
{
	*more = true;
	if (dcm_socket_has_returned(s))
		return back_recv(s, iov);
	return s->tls ? tls_recv(s, iov, n, more) : plain_recv(s, iov, n, more);
}

void dcm_socket_return(struct dcm_socket *s, const struct iovec *iov,
		       size_t total, size_t left)
{
	size_t skip = total - left, len;

	for (; left; iov++) {
		if (skip >= iov->iov_len) {
			skip -= iov->iov_len;
			continue;
		}
		len = min(iov->iov_len - skip, left);
		memcpy(s->back + s->back_len, (char *)iov->iov_base + skip,
		       len);
		s->back_len += len;
		left -= len;
		skip = 0;
	}
}

/* ---- the end ---- */

void dcm_socket_kill(struct dcm_socket *s)
{
	shutdown(s->fd, SHUT_RDWR);
}

void dcm_socket_close(struct dcm_socket *s, bool reset)
{
	struct linger drop = { .l_onoff = 1 };

	if (reset)
		setsockopt(s->fd, SOL_SOCKET, SO_LINGER, &drop, sizeof(drop));
	if (s->tls)
		gnutls_deinit(s->tls);
	close(s->fd);
}

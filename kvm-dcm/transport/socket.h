/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * socket.h - a stream socket to a donor, plain or under TLS
 *
 * Calls of one socket are made by one thread, but for dcm_socket_kill().
 */
#ifndef DCM_SOCKET_H
#define DCM_SOCKET_H

#include <sys/types.h>
#include <sys/uio.h>

#include "../lib/dcm_context.h"

#define DCM_SOCKET_RECORD 16384u
/* room for a record with the answer to a READ of a page, and a little more */
#define DCM_SOCKET_AHEAD 4608u

struct gnutls_session_int;

/**
 * struct dcm_socket - a stream socket and its TLS session
 * @fd: a connected socket (TCP or UNIX)
 * @tls: its TLS session; %NULL: plain bytes
 * @back: bytes that were received and returned; has room for as many as one
 *	dcm_socket_recv() may receive
 * @back_pos: next byte of @back to be received again
 * @back_len: end of the bytes in @back
 * @tx_record: bytes of @record that GnuTLS has taken and not sent yet
 * @drained: the last recv() has emptied the socket
 * @ahead_pos: next byte of @ahead that GnuTLS gets
 * @ahead_len: end of the bytes in @ahead
 * @ahead: bytes that were received before GnuTLS asked for them
 */
struct dcm_socket {
	int fd;
	struct gnutls_session_int *tls;
	u8 *back;
	size_t back_pos;
	size_t back_len;
	size_t tx_record;
	bool drained;
	size_t ahead_pos;
	size_t ahead_len;
	u8 ahead[DCM_SOCKET_AHEAD];
	u8 record[DCM_SOCKET_RECORD];
};

/*
 * Set the TLS session (%NULL: none) of a socket that has its @fd, and its pull
 * function.
 */
void dcm_socket_tls(struct dcm_socket *s, struct gnutls_session_int *tls);

/* The most bytes that one dcm_socket_send() may be given. */
static inline size_t dcm_socket_send_max(const struct dcm_socket *s)
{
	return s->tls ? DCM_SOCKET_RECORD : SIZE_MAX;
}

/* Are returned bytes left? The next dcm_socket_recv() receives these first. */
static inline bool dcm_socket_has_returned(const struct dcm_socket *s)
{
	return s->back_len > 0;
}

/*
 * Send as many of the bytes in @iov as can be sent now. After -EAGAIN the next
 * call must give the same bytes again, and may give more. Never sleeps.
 *
 * Return: how many were sent, -EAGAIN (none, now), -ENOTCONN.
 */
ssize_t dcm_socket_send(struct dcm_socket *s, struct iovec *iov,
			unsigned int n);

/*
 * Receive bytes into @iov. *@more: out: false if no more bytes are there now. Never
 * sleeps.
 *
 * Return: how many were received, -EAGAIN (none, now), -ENOTCONN.
 */
ssize_t dcm_socket_recv(struct dcm_socket *s, struct iovec *iov, unsigned int n,
			bool *more);

/*
 * Return the last @left of @total bytes that dcm_socket_recv() has just
 * received into @iov from the socket: they are received again, elsewhere.
 */
void dcm_socket_return(struct dcm_socket *s, const struct iovec *iov,
		       size_t total, size_t left);

/* Shut the connection down: calls soon return -ENOTCONN. By any thread. */
void dcm_socket_kill(struct dcm_socket *s);

/* Close it. @reset: bytes that TCP has not sent yet are dropped. */
void dcm_socket_close(struct dcm_socket *s, bool reset);

#endif /* DCM_SOCKET_H */

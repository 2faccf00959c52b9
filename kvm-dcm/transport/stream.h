/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * stream.h - a byte stream to a donor, plain or under TLS
 *
 * Calls of one stream are made by one thread, but for dcm_stream_kill().
 */
#ifndef DCM_STREAM_H
#define DCM_STREAM_H

#include <sys/types.h>
#include <sys/uio.h>

#include "../lib/dcm_context.h"

#define DCM_STREAM_RECORD 16384u

struct gnutls_session_int;

/**
 * struct dcm_stream - one end of a byte stream
 * @fd: a connected stream socket (TCP or UNIX)
 * @tls: its TLS session; %NULL: plain bytes
 * @back: bytes that were received and returned; has room for as many as one
 *	dcm_stream_recv() may receive
 * @back_pos: next byte of @back to be received again
 * @back_len: end of the bytes in @back
 * @tx_record: bytes of @record that GnuTLS has taken and not sent yet
 */
struct dcm_stream {
	int fd;
	struct gnutls_session_int *tls;
	u8 *back;
	size_t back_pos;
	size_t back_len;
	size_t tx_record;
	u8 record[DCM_STREAM_RECORD];
};

/* The most bytes that one dcm_stream_send() may be given. */
static inline size_t dcm_stream_send_max(const struct dcm_stream *s)
{
	return s->tls ? DCM_STREAM_RECORD : SIZE_MAX;
}

/* Returned bytes are left. The next dcm_stream_recv() receives these first. */
static inline bool dcm_stream_has_returned(const struct dcm_stream *s)
{
	return s->back_len > 0;
}

/*
 * Send as many of the bytes in @iov as can be sent now. After -EAGAIN the next
 * call must give the same bytes again, and may give more. Never sleeps.
 *
 * Return: how many were sent, -EAGAIN (none, now), -ENOTCONN.
 */
ssize_t dcm_stream_send(struct dcm_stream *s, struct iovec *iov,
			unsigned int n);

/*
 * Receive bytes into @iov. *@more: false if there are no others now. Never
 * sleeps.
 *
 * Return: how many have come, -EAGAIN (none, now), -ENOTCONN.
 */
ssize_t dcm_stream_recv(struct dcm_stream *s, struct iovec *iov, unsigned int n,
			bool *more);

/*
 * Return the last @left of @total bytes that dcm_stream_recv() has just
 * received into @iov from the socket: they are received again, elsewhere.
 */
void dcm_stream_return(struct dcm_stream *s, const struct iovec *iov,
		       size_t total, size_t left);

/* Shut the connection down: calls soon return -ENOTCONN. By any thread. */
void dcm_stream_kill(struct dcm_stream *s);

/* Close it. @reset: bytes that TCP has not sent yet are dropped. */
void dcm_stream_close(struct dcm_stream *s, bool reset);

#endif /* DCM_STREAM_H */

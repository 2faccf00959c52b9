/* SPDX-License-Identifier: GPL-2.0-or-later */
/* chan.h - bytes to and from one peer: TLS or plain, buffered, never blocking */
#ifndef DCM_CHAN_H
#define DCM_CHAN_H

#include <sys/uio.h>

#include "buf.h"
#include "tls_server.h"

#define DCM_CHAN_FDS	2u	/* descriptors waiting to be passed */

/**
 * struct dcm_chan - one connected socket
 * @tls: %NULL when the bytes are plain
 * @rx: ciphertext as received
 * @in: the peer's bytes, not yet consumed
 * @tx: bytes for the socket
 * @tx_at: how many bytes of the stream came before @tx.head
 * @pass: descriptors to send with the byte at a position of the stream
 * @error: errno that ended it; 0: the peer closed it
 * @more: dcm_chan_read() stopped for lack of room, or at its limit of records,
 *	not for lack of bytes
 * @records: records read so far
 * @behind: whole records may be left in @rx
 *
 * Used by one thread at a time (the event loop, then perhaps a worker).
 */
struct dcm_chan {
	int fd;
	gnutls_session_t tls;
	struct dcm_buf rx;
	struct dcm_buf in;
	struct dcm_buf tx;
	u64 tx_at;
	u64 records;
	struct {
		u64 at;
		int fd;
	} pass[DCM_CHAN_FDS];
	u32 nr_pass;
	int error;
	bool eof;
	bool more;
	bool behind;
	bool broken;
	bool established;
};

/* Make a channel, which owns @fd. %NULL: out of memory, and @fd is closed. */
struct dcm_chan *dcm_chan_new(int fd, struct dcm_tls_server *tls);
void dcm_chan_free(struct dcm_chan *ch);

/**
 * dcm_chan_handshake() - continue the handshake
 *
 * Return: 1: done, 0: waits for the peer; or nothing was sent, and -EPROTO:
 * this is no TLS handshake, -EACCES: GnuTLS refused it, -EPIPE: the peer has
 * closed, or another negative errno.
 */
int dcm_chan_handshake(struct dcm_chan *ch);

/* The proven identity; not terminated. Call after the handshake. */
int dcm_chan_identity(struct dcm_chan *ch, const void **name, size_t *len);

/* Make room for @bytes in @in. */
int dcm_chan_room(struct dcm_chan *ch, size_t bytes);

/**
 * dcm_chan_read() - read new bytes: at most one recv() and 64 records
 *
 * Return: 1: @in has new bytes, 0: nothing came, a negative errno: the end;
 * -EPIPE when the peer has closed.
 */
int dcm_chan_read(struct dcm_chan *ch);

/* Drop the first @n bytes of @in. */
void dcm_chan_consume(struct dcm_chan *ch, size_t n);

/* Queue bytes for dcm_chan_flush(); a negative errno: the channel is broken. */
int dcm_chan_write(struct dcm_chan *ch, const void *data, size_t len);

/*
 * Send a duplicate of @fd with the next byte written. Negative errno: that is
 * not possible, and nothing has changed.
 */
int dcm_chan_pass_fd(struct dcm_chan *ch, int fd);

/*
 * Plain channels: send without a copy; bytes that the socket does not take are queued.
 */
int dcm_chan_writev(struct dcm_chan *ch, struct iovec *iov, int nr);

/* 1: all is sent; 0: the socket is full; a negative errno: broken. */
int dcm_chan_flush(struct dcm_chan *ch);

/*
 * Did the network end the channel, as bytes could not be delivered for too long? Then
 * the peer has not closed it, and may still be alive.
 */
bool dcm_chan_cut(const struct dcm_chan *ch);

/* End TLS, in both directions; -EPROTO: the peer has sent too early. */
int dcm_chan_plain(struct dcm_chan *ch);

/*
 * Has the peer shown a valid key? For use before the handshake is done. Yes if the
 * donor has something to send, as it sends nothing else before. (The peer may have
 * replayed a record of another peer.)
 */
static inline bool dcm_chan_shown(const struct dcm_chan *ch)
{
	return ch->tx_at || dcm_buf_used(&ch->tx);
}

static inline size_t dcm_chan_queued(const struct dcm_chan *ch)
{
	return dcm_buf_used(&ch->tx);
}

#endif /* DCM_CHAN_H */

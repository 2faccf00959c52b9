/* SPDX-License-Identifier: GPL-2.0-or-later */
/* chan.h - bytes to and from one peer: TLS or plain, buffered, never blocking */
#ifndef DCM_CHAN_H
#define DCM_CHAN_H

#include <gnutls/gnutls.h>
#include <sys/uio.h>

#include "../kvm-dcm/proto/wire.h"

#define DCM_CHAN_FDS	2u	/* descriptors waiting to be passed */

struct dcm_buf {
	u8 *p;
	size_t head;
	size_t tail;
	size_t cap;
};

/**
 * struct dcm_chan - one connected socket
 * @tls: %NULL once (or when) the bytes are plain
 * @rx: ciphertext as it came
 * @in: what the peer said, not yet consumed
 * @tx: bytes for the socket
 * @tx_at: how many bytes of the stream came before @tx.head
 * @pass: descriptors to send with the byte at a position of the stream
 * @error: errno that ended it; 0: the peer closed it
 * @more: dcm_chan_read() stopped for want of room, or at its limit of records, not
 *	for want of bytes
 * @records: that were read, in all
 * @behind: whole records may be left in @rx
 *
 * One thread at a time; who that is may change (event loop, then a worker).
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

/* What all channels share: key lookup and cipher choice. */
struct dcm_tls;
typedef int (*dcm_psk_fn)(void *arg, const void *name, size_t len,
			  const u8 **key, size_t *key_bytes);
struct dcm_tls *dcm_tls_new(dcm_psk_fn find, void *arg, char *err,
			    size_t err_len);
void dcm_tls_free(struct dcm_tls *tls);

/* Takes @fd; small until bytes come. %NULL: out of memory, @fd is closed. */
struct dcm_chan *dcm_chan_new(int fd, struct dcm_tls *tls);
void dcm_chan_free(struct dcm_chan *ch);

/**
 * dcm_chan_handshake() - go on with it
 *
 * Return: 1 done, 0 waits for the peer, -1 failed (nothing was said).
 */
int dcm_chan_handshake(struct dcm_chan *ch);

/* The proven identity; not terminated. After the handshake. */
int dcm_chan_identity(struct dcm_chan *ch, const void **name, size_t *len);

/* Room for @bytes in @in at least. */
int dcm_chan_room(struct dcm_chan *ch, size_t bytes);

/**
 * dcm_chan_read() - what has come since, at most one recv() and 64 records
 *
 * Return: 1 something new is in @in, 0 nothing, -1 the end.
 */
int dcm_chan_read(struct dcm_chan *ch);

/* @n bytes of @in are understood. */
void dcm_chan_consume(struct dcm_chan *ch, size_t n);

/* Queue; sent by dcm_chan_flush(). -1: the channel is broken. */
int dcm_chan_write(struct dcm_chan *ch, const void *data, size_t len);

/*
 * The next byte written takes a duplicate of @fd with it. Negative errno: it can't
 * be, and nothing is changed.
 */
int dcm_chan_pass_fd(struct dcm_chan *ch, int fd);

/* Plain channels: straight from where the bytes lie; the rest is queued. */
int dcm_chan_writev(struct dcm_chan *ch, struct iovec *iov, int nr);

/* 1: all is out; 0: the socket is full; -1: broken. */
int dcm_chan_flush(struct dcm_chan *ch);

/*
 * It is broken, and not because the peer (or we) wanted that: the network has
 * not delivered for too long. Of the peer that says nothing.
 */
bool dcm_chan_cut(const struct dcm_chan *ch);

/* No more TLS from here on, both ways. -1 when the peer spoke too early. */
int dcm_chan_plain(struct dcm_chan *ch);

/*
 * Before the handshake is done: the peer has shown a key that is good, or one
 * who had it has recorded that, or the donor would have said nothing.
 */
static inline bool dcm_chan_shown(const struct dcm_chan *ch)
{
	return ch->tx_at || ch->tx.tail != ch->tx.head;
}

static inline size_t dcm_chan_queued(const struct dcm_chan *ch)
{
	return ch->tx.tail - ch->tx.head;
}

#endif /* DCM_CHAN_H */

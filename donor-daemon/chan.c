// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * chan.c - bytes to and from one peer: TLS or plain, buffered, never blocking
 *
 * GnuTLS never uses the socket. Its pull function takes bytes from @rx, which one
 * large recv() fills, and its push function adds to @tx, which one send()
 * empties: a batch of answers is one system call, however many records it has. It also
 * lets the donor stay silent to strangers: the alert that a failed handshake would send
 * is dropped with @tx. No TLS session is made before the first record, of at most
 * %IN_BYTES, has come as a whole: so a peer that sends a few bytes and waits takes that
 * buffer and no more memory. tls_server.c has keys and ciphers.
 *
 * Locking: none; a channel has one user at a time.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "chan.h"

#define RX_BYTES (32u << 10)
#define IN_BYTES (4u << 10)
#define TX_BYTES (4u << 10)
#define TX_MAX (8u << 20) /* callers stop far below */
#define RECORD_MAX 16384u
#define RECORD_HEAD 5u
#define RECORD_HANDSHAKE 22u
#define HANDSHAKE_TURN 8u /* reads in one event, for fairness */
#define READ_RECORDS 64u /* in one dcm_chan_read(): they may be tiny */

struct chan_tls {
	struct dcm_chan ch;
	struct dcm_tls_server *tls;
};

/* The error that ended it; -EPIPE: the peer closed it, or TLS failed. */
static int chan_error(const struct dcm_chan *ch)
{
	return ch->error ? -ch->error : -EPIPE;
}

static ssize_t chan_pull(gnutls_transport_ptr_t ptr, void *data, size_t len)
{
	struct chan_tls *ct = ptr;
	struct dcm_buf *rx = &ct->ch.rx;
	size_t n = dcm_buf_used(rx);

	if (!n) {
		if (ct->ch.eof)
			return 0;
		gnutls_transport_set_errno(ct->ch.tls, EAGAIN);
		return -1;
	}
	if (n > len)
		n = len;
	memcpy(data, rx->p + rx->head, n);
	dcm_buf_take(rx, n);
	return (ssize_t)n;
}

static ssize_t chan_push(gnutls_transport_ptr_t ptr, const giovec_t *iov,
			 int nr)
{
	struct chan_tls *ct = ptr;
	size_t n = 0;

	for (int i = 0; i < nr; i++)
		n += iov[i].iov_len;
	if (dcm_buf_room(&ct->ch.tx, n, TX_MAX)) {
		ct->ch.broken = true;
		gnutls_transport_set_errno(ct->ch.tls, EPIPE);
		return -1;
	}
	for (int i = 0; i < nr; i++) {
		memcpy(ct->ch.tx.p + ct->ch.tx.tail, iov[i].iov_base,
		       iov[i].iov_len);
		ct->ch.tx.tail += iov[i].iov_len;
	}
	return (ssize_t)n;
}

/* Do bytes wait in the buffer? The socket was read before. */
static int chan_pull_timeout(gnutls_transport_ptr_t ptr, unsigned int ms)
{
	struct chan_tls *ct = ptr;

	(void)ms;
	return ct->ch.rx.tail > ct->ch.rx.head || ct->ch.eof;
}

struct dcm_chan *dcm_chan_new(int fd, struct dcm_tls_server *tls)
{
	struct chan_tls *ct = calloc(1, sizeof(*ct));

	if (!ct) {
		close(fd);
		return NULL;
	}
	ct->ch.fd = fd;
	ct->tls = tls;
	return &ct->ch;
}

static int chan_start(struct dcm_chan *ch)
{
	struct chan_tls *ct = (struct chan_tls *)ch;

	if (dcm_buf_room(&ch->in, IN_BYTES, IN_BYTES) ||
	    dcm_buf_room(&ch->tx, TX_BYTES, TX_BYTES) ||
	    dcm_tls_server_session(ct->tls, &ch->tls))
		return -ENOMEM;
	gnutls_transport_set_ptr(ch->tls, ct);
	gnutls_transport_set_pull_function(ch->tls, chan_pull);
	gnutls_transport_set_pull_timeout_function(ch->tls, chan_pull_timeout);
	gnutls_transport_set_vec_push_function(ch->tls, chan_push);
	return 0;
}

void dcm_chan_free(struct dcm_chan *ch)
{
	if (!ch)
		return;
	if (ch->tls)
		gnutls_deinit(ch->tls);
	for (u32 i = 0; i < ch->nr_pass; i++)
		close(ch->pass[i].fd);
	close(ch->fd);
	free(ch->rx.p);
	free(ch->in.p);
	free(ch->tx.p);
	free((struct chan_tls *)ch);
}

int dcm_chan_room(struct dcm_chan *ch, size_t bytes)
{
	size_t used = dcm_buf_used(&ch->in);

	if (ch->tls &&
	    dcm_buf_room(&ch->rx, RX_BYTES - dcm_buf_used(&ch->rx), RX_BYTES))
		return -ENOMEM;
	if (bytes <= used)
		return 0;
	return dcm_buf_room(&ch->in, bytes - used, bytes * 2);
}

/* One recv() into @b. 1: bytes came; 0: none were there; or a negative errno. */
static int chan_fill(struct dcm_chan *ch, struct dcm_buf *b)
{
	size_t room = b->cap - b->tail;
	ssize_t n;

	if (!room && b->head) {
		memmove(b->p, b->p + b->head, dcm_buf_used(b));
		b->tail -= b->head;
		b->head = 0;
		room = b->cap - b->tail;
	}
	if (!room) {
		ch->more = true;
		return 0;
	}
	do
		n = recv(ch->fd, b->p + b->tail, room, MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n > 0) {
		b->tail += (size_t)n;
		ch->more = (size_t)n == room;
		return 1;
	}
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		return 0;
	if (n < 0 && !ch->error)
		ch->error = errno;
	ch->eof = true;
	return chan_error(ch);
}

/* Has the first record come? 1: yes, 0: not yet, -EPROTO: this is no handshake. */
static int chan_first_record(const struct dcm_chan *ch)
{
	const u8 *p = ch->rx.p + ch->rx.head;
	size_t have = dcm_buf_used(&ch->rx);
	size_t bytes;

	if ((have > 0 && p[0] != RECORD_HANDSHAKE) || (have > 1 && p[1] != 3))
		return -EPROTO;
	if (have < RECORD_HEAD)
		return 0;
	bytes = (size_t)p[3] << 8 | p[4];
	if (!bytes || bytes > IN_BYTES - RECORD_HEAD)
		return -EPROTO;
	return have >= RECORD_HEAD + bytes;
}

int dcm_chan_handshake(struct dcm_chan *ch)
{
	unsigned int turn = 0;
	int ret;

	if (dcm_buf_room(&ch->rx, IN_BYTES - dcm_buf_used(&ch->rx), IN_BYTES))
		return -ENOMEM;
	for (;;) {
		ch->more = false;
		ret = chan_fill(ch, &ch->rx);
		if (ret < 0)
			return ret;
		if (!ch->tls) {
			ret = chan_first_record(ch);
			if (ret <= 0)
				return ret;
			ret = chan_start(ch);
			if (ret)
				return ret;
		}
		ret = gnutls_handshake(ch->tls);
		if (ret == GNUTLS_E_SUCCESS) {
			ch->established = true;
			ret = dcm_chan_flush(ch);
			return ret < 0 ? ret : 1;
		}
		if (ret != GNUTLS_E_AGAIN && ret != GNUTLS_E_INTERRUPTED) {
			/* fail on a warning alert, too: no real host sends one */
			ch->tx.head = ch->tx.tail = 0;
			return -EACCES;
		}
		if (dcm_chan_flush(ch) < 0)
			return chan_error(ch);
		/* if bytes are left in the socket, epoll raises another event */
		if ((ret == GNUTLS_E_AGAIN && !ch->more) ||
		    ++turn == HANDSHAKE_TURN)
			return 0;
	}
}

int dcm_chan_identity(struct dcm_chan *ch, const void **name, size_t *len)
{
	gnutls_datum_t d;

	if (gnutls_psk_server_get_username2(ch->tls, &d))
		return -EACCES;
	*name = d.data;
	*len = d.size;
	return 0;
}

/* Decrypt @rx into @in; a negative errno at the stream's end or on a forged record. */
static int chan_decrypt(struct dcm_chan *ch)
{
	unsigned int records = 0;
	int got = 0;
	ssize_t n;

	for (;;) {
		size_t room = ch->in.cap - ch->in.tail;

		if (!room && ch->in.head) {
			dcm_buf_room(&ch->in, 1, ch->in.cap);
			room = ch->in.cap - ch->in.tail;
		}
		if (!room || records == READ_RECORDS) {
			ch->more = true;
			ch->behind = true;
			return got;
		}
		n = gnutls_record_recv(ch->tls, ch->in.p + ch->in.tail, room);
		records++;
		if (n > 0) {
			ch->in.tail += (size_t)n;
			ch->records++;
			got = 1;
			continue;
		}
		if (n == GNUTLS_E_AGAIN)
			return got;
		/* key updates and the like; a flood of them ends it */
		if (n < 0 && !gnutls_error_is_fatal((int)n) &&
		    (got || records < READ_RECORDS))
			continue;
		ch->eof = true;
		ch->more = true; /* read again to get the end */
		return got ? got : -EPIPE;
	}
}

int dcm_chan_read(struct dcm_chan *ch)
{
	int ret, got;

	ch->more = false;
	if (ch->broken || ch->eof)
		return chan_error(ch);
	if (!ch->tls)
		return chan_fill(ch, &ch->in);
	if (ch->behind) {
		/* decrypt what is there before reading: the socket may have ended */
		ch->behind = false;
		got = chan_decrypt(ch);
		if (got) {
			ch->more = true;
			return got;
		}
	}
	ret = chan_fill(ch, &ch->rx);
	got = chan_decrypt(ch);
	if (got > 0) {
		ch->more |= ret < 0;
		return 1;
	}
	return ret < 0 ? ret : got;
}

void dcm_chan_consume(struct dcm_chan *ch, size_t n)
{
	dcm_buf_take(&ch->in, n);
}

int dcm_chan_write(struct dcm_chan *ch, const void *data, size_t len)
{
	const u8 *p = data;
	ssize_t n;

	if (ch->broken)
		return chan_error(ch);
	if (!ch->tls) {
		if (dcm_buf_room(&ch->tx, len, TX_MAX)) {
			ch->broken = true;
			return -ENOBUFS;
		}
		memcpy(ch->tx.p + ch->tx.tail, data, len);
		ch->tx.tail += len;
		return 0;
	}
	while (len) {
		n = gnutls_record_send(ch->tls, p,
				       len < RECORD_MAX ? len : RECORD_MAX);
		if (n == GNUTLS_E_INTERRUPTED)
			continue;
		if (n <= 0) {
			ch->broken = true;
			return chan_error(ch);
		}
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

int dcm_chan_pass_fd(struct dcm_chan *ch, int fd)
{
	int copy;

	if (ch->nr_pass == DCM_CHAN_FDS)
		return -EAGAIN;
	copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (copy < 0)
		return -errno;
	ch->pass[ch->nr_pass].fd = copy;
	ch->pass[ch->nr_pass++].at = ch->tx_at + dcm_chan_queued(ch);
	return 0;
}

/* send(), together with the first waiting descriptor if it is due at the first byte. */
static ssize_t chan_send(struct dcm_chan *ch, const void *data, size_t len)
{
	union {
		struct cmsghdr align;
		char space[CMSG_SPACE(sizeof(int))];
	} client;
	struct iovec iov = { .iov_base = (void *)data, .iov_len = len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	bool with = ch->nr_pass && ch->pass[0].at == ch->tx_at;
	u32 next = with ? 1 : 0;
	ssize_t n;

	if (ch->nr_pass > next && ch->pass[next].at - ch->tx_at < len)
		iov.iov_len = (size_t)(ch->pass[next].at - ch->tx_at);
	if (with) {
		struct cmsghdr *c;

		memset(&client, 0, sizeof(client));
		msg.msg_control = &client;
		msg.msg_controllen = sizeof(client.space);
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &ch->pass[0].fd, sizeof(int));
	}
	n = sendmsg(ch->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n > 0 && with) {
		close(ch->pass[0].fd);
		ch->nr_pass--;
		memmove(&ch->pass[0], &ch->pass[1],
			ch->nr_pass * sizeof(ch->pass[0]));
	}
	return n;
}

int dcm_chan_flush(struct dcm_chan *ch)
{
	ssize_t n;

	while (dcm_chan_queued(ch) && !ch->broken) {
		n = chan_send(ch, ch->tx.p + ch->tx.head, dcm_chan_queued(ch));
		if (n > 0) {
			ch->tx_at += (u64)n;
			dcm_buf_take(&ch->tx, (size_t)n);
			continue;
		}
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return 0;
		if (n < 0 && !ch->error)
			ch->error = errno;
		ch->broken = true;
	}
	return ch->broken ? chan_error(ch) : 1;
}

int dcm_chan_writev(struct dcm_chan *ch, struct iovec *iov, int nr)
{
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = (size_t)nr };
	ssize_t n = 0;
	int ret;

	if (ch->broken)
		return chan_error(ch);
	if (!dcm_chan_queued(ch)) {
		do
			n = sendmsg(ch->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
		while (n < 0 && errno == EINTR);
		if (n < 0) {
			if (errno != EAGAIN && errno != EWOULDBLOCK) {
				if (!ch->error)
					ch->error = errno;
				ch->broken = true;
				return chan_error(ch);
			}
			n = 0;
		}
		ch->tx_at += (u64)n;
	}
	for (int i = 0; i < nr; i++) {
		size_t skip = (size_t)n < iov[i].iov_len ? (size_t)n :
							   iov[i].iov_len;

		n -= (ssize_t)skip;
		if (skip < iov[i].iov_len) {
			ret = dcm_chan_write(ch, (u8 *)iov[i].iov_base + skip,
					     iov[i].iov_len - skip);
			if (ret)
				return ret;
		}
	}
	return 0;
}

bool dcm_chan_cut(const struct dcm_chan *ch)
{
	socklen_t len = sizeof(int);
	int error = ch->error;

	/* an event loop may have seen the error without reading it */
	if (!error && getsockopt(ch->fd, SOL_SOCKET, SO_ERROR, &error, &len))
		return false;
	return error == ETIMEDOUT || error == EHOSTUNREACH ||
	       error == ENETUNREACH || error == EHOSTDOWN || error == ENETDOWN;
}

int dcm_chan_plain(struct dcm_chan *ch)
{
	if (dcm_buf_used(&ch->rx) || dcm_buf_used(&ch->in) ||
	    gnutls_record_check_pending(ch->tls))
		return -EPROTO;
	gnutls_deinit(ch->tls);
	ch->tls = NULL;
	free(ch->rx.p);
	memset(&ch->rx, 0, sizeof(ch->rx));
	return 0;
}

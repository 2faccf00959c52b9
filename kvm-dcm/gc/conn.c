// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * conn.c - the GC connection to one donor
 *
 * client/conn.c connects and does the handshake and HELLO; then socket and TLS
 * session are taken over, because later messages have payloads and several are
 * in flight. The codec bounds the donor's messages before memory is allocated
 * for them; what the donor has not taken is bounded by %DCM_GC_CONN_OUT_MAX,
 * and the connection fails beyond that.
 *
 * Locking: none, only the GC thread uses it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "conn.h"

void dcm_gc_conn_fail(struct dcm_gc_conn *c, const char *why)
{
	if (c->state == DCM_GC_CONN_FAILED)
		return;
	c->state = DCM_GC_CONN_FAILED;
	snprintf(c->why, sizeof(c->why), "%s", why);
}

void dcm_gc_conn_close(struct dcm_gc_conn *c)
{
	if (c->state == DCM_GC_CONN_CLOSED)
		return;
	dcm_conn_close(&c->conn);
	if (c->tls)
		gnutls_deinit(c->tls);
	if (c->fd >= 0)
		close(c->fd);
	free(c->in);
	free(c->out);
	explicit_bzero(&c->session, sizeof(c->session));
	memset(c, 0, sizeof(*c));
	c->fd = -1;
}

void dcm_gc_conn_start(struct dcm_gc_conn *c,
		       const struct dcm_client_session_ref *ref, u32 number,
		       u64 bytes, u64 now_ms)
{
	dcm_gc_conn_close(c);
	c->state = DCM_GC_CONN_CONNECTING;
	c->fd = -1;
	c->session = ref->s;
	c->number = number;
	c->bytes = bytes;
	c->in = malloc(DCM_WIRE_MSG_MAX);
	if (!c->in) {
		dcm_gc_conn_fail(c, "no memory");
		return;
	}
	dcm_conn_start(&c->conn, ref->tls, (const struct sockaddr *)ref->sa,
		       ref->sa_len, now_ms);
	dcm_gc_conn_step(c);
}

void dcm_gc_conn_poll(const struct dcm_gc_conn *c, struct pollfd *p)
{
	*p = (struct pollfd){ .fd = -1 };
	switch (c->state) {
	case DCM_GC_CONN_CONNECTING:
		p->fd = c->conn.fd;
		p->events = dcm_conn_events(&c->conn);
		break;
	case DCM_GC_CONN_OPENING:
	case DCM_GC_CONN_UP:
		p->fd = c->fd;
		p->events = c->out_len ? POLLIN | POLLOUT : POLLIN;
		break;
	default:
		break;
	}
}

static void conn_flush(struct dcm_gc_conn *c)
{
	while (c->state != DCM_GC_CONN_FAILED && c->out_len) {
		size_t len = c->record ? c->record : c->out_len;
		ssize_t ret;

		if (c->record)
			ret = gnutls_record_send(c->tls, NULL, 0);
		else
			ret = gnutls_record_send(c->tls, c->out + c->out_at,
						 len);
		if (ret == GNUTLS_E_AGAIN || ret == GNUTLS_E_INTERRUPTED) {
			c->record = len;
			if (ret == GNUTLS_E_AGAIN)
				return;
			continue;
		}
		if (ret < 0) {
			dcm_gc_conn_fail(c, gnutls_strerror((int)ret));
			return;
		}
		len = (size_t)ret;
		c->record = 0;
		c->out_at += len;
		c->out_len -= len;
		if (!c->out_len)
			c->out_at = 0;
	}
}

/* Make room in @out for @n bytes behind those that wait to be sent. */
static bool conn_room(struct dcm_gc_conn *c, size_t n)
{
	size_t room = c->out_room ? c->out_room : 4096;
	u8 *p;

	if (c->out_len + n > DCM_GC_CONN_OUT_MAX)
		return false;
	/* the bytes may be moved: GnuTLS has a copy of the record it is sending */
	if (c->out_at && c->out_at + c->out_len + n > c->out_room) {
		memmove(c->out, c->out + c->out_at, c->out_len);
		c->out_at = 0;
	}
	if (c->out_len + n <= c->out_room)
		return true;
	while (room < c->out_len + n)
		room *= 2;
	p = realloc(c->out, room);
	if (!p)
		return false;
	c->out = p;
	c->out_room = room;
	return true;
}

void dcm_gc_conn_send(struct dcm_gc_conn *c, const struct dcm_wire_msg *msg)
{
	u8 *p;
	int n;

	if (c->state != DCM_GC_CONN_UP && c->state != DCM_GC_CONN_OPENING)
		return;
	if (!conn_room(c, DCM_WIRE_HEAD_MAX + msg->payload_bytes)) {
		dcm_gc_conn_fail(c, "the donor does not read");
		return;
	}
	p = c->out + c->out_at + c->out_len;
	n = dcm_wire_encode(p, DCM_WIRE_HEAD_MAX, msg);
	if (n < 0) {
		dcm_gc_conn_fail(c, "a message can't be encoded");
		return;
	}
	if (msg->payload_bytes)
		memcpy(p + n, msg->payload, msg->payload_bytes);
	c->out_len += (size_t)n + msg->payload_bytes;
	conn_flush(c);
}

static void conn_refused(struct dcm_gc_conn *c, const struct dcm_wire_msg *msg)
{
	c->refused = msg->error.status;
	dcm_gc_conn_fail(c, dcm_wire_status_text(msg->error.status));
}

/* WELCOME has come: take the connection over. */
static void conn_welcome(struct dcm_gc_conn *c, const struct dcm_wire_msg *msg)
{
	struct dcm_wire_msg open = {
		.type = DCM_MSG_GC_OPEN,
		.tag = 1,
		.gc_open = { .bytes = c->bytes, .donor = c->number },
	};

	if (msg->type != DCM_MSG_WELCOME) {
		conn_refused(c, msg);
		return;
	}
	if (msg->welcome.session != c->session.id ||
	    msg->welcome.donor_id != c->session.donor_id) {
		dcm_gc_conn_fail(c,
				 "the donor answered HELLO for another session");
		return;
	}
	c->fd = dcm_conn_detach(&c->conn, &c->tls);
	if (c->fd < 0) {
		dcm_gc_conn_fail(c, c->conn.why);
		return;
	}
	c->state = DCM_GC_CONN_OPENING;
	dcm_gc_conn_send(c, &open);
}

static void conn_connect(struct dcm_gc_conn *c)
{
	struct dcm_wire_msg hello = {
		.type = DCM_MSG_HELLO,
		.tag = 1,
		.hello = {
			.version_min = DCM_WIRE_VERSION_MIN,
			.version_max = DCM_WIRE_VERSION_MAX,
			.role = DCM_ROLE_GC,
			.session = c->session.id,
		},
	}, msg;

	dcm_conn_step(&c->conn);
	if (c->conn.state == DCM_CONN_OPEN && !c->hello) {
		memcpy(hello.hello.secret, c->session.secret,
		       sizeof(c->session.secret));
		dcm_conn_send(&c->conn, &hello);
		explicit_bzero(&hello, sizeof(hello));
		c->hello = true;
	}
	if (dcm_conn_recv(&c->conn, &msg))
		conn_welcome(c, &msg);
	else if (c->conn.state == DCM_CONN_FAILED)
		dcm_gc_conn_fail(c, c->conn.why);
}

void dcm_gc_conn_step(struct dcm_gc_conn *c)
{
	if (c->state == DCM_GC_CONN_CONNECTING)
		conn_connect(c);
	else if (c->state == DCM_GC_CONN_OPENING || c->state == DCM_GC_CONN_UP)
		conn_flush(c);
}

/* Read a whole message into @in; false: it is not complete yet. */
static bool conn_read(struct dcm_gc_conn *c, struct dcm_wire_msg *msg)
{
	size_t bytes;

	for (;;) {
		int ret = dcm_wire_decode(c->in, c->in_len, DCM_PHASE_GC,
					  DCM_SIDE_DONOR, msg, &bytes);
		ssize_t n;

		if (ret == DCM_WIRE_OK) {
			c->in_used = bytes;
			return true;
		}
		if (ret != DCM_WIRE_MORE) {
			dcm_gc_conn_fail(c, dcm_wire_error_text(ret));
			return false;
		}
		n = gnutls_record_recv(c->tls, c->in + c->in_len, bytes);
		if (n == GNUTLS_E_INTERRUPTED)
			continue;
		if (n == GNUTLS_E_AGAIN)
			return false;
		if (n <= 0) {
			dcm_gc_conn_fail(c, n ? gnutls_strerror((int)n) :
						"closed by the donor");
			return false;
		}
		c->in_len += (size_t)n;
	}
}

bool dcm_gc_conn_recv(struct dcm_gc_conn *c, struct dcm_wire_msg *msg)
{
	if (c->state == DCM_GC_CONN_CONNECTING)
		conn_connect(c);
	while (c->state == DCM_GC_CONN_OPENING || c->state == DCM_GC_CONN_UP) {
		/* never more than one message: the decoder asks for its bytes only */
		if (c->in_used)
			c->in_len = 0;
		c->in_used = 0;
		if (!conn_read(c, msg))
			return false;
		if (c->state == DCM_GC_CONN_UP && msg->type == DCM_MSG_GC)
			return true;
		if (msg->type == DCM_MSG_ERROR) {
			if (c->state == DCM_GC_CONN_UP && msg->tag)
				return true;
			conn_refused(c, msg);
		} else if (c->state == DCM_GC_CONN_OPENING &&
			   msg->type == DCM_MSG_GC_OPENED) {
			c->threads = msg->gc_opened.threads;
			c->state = DCM_GC_CONN_UP;
		} else {
			dcm_gc_conn_fail(c,
					 "the donor sent a message out of turn");
		}
	}
	return false;
}

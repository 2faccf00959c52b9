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

void dcm_gc_conn_fail(struct dcm_gc_conn *l, const char *why)
{
	if (l->state == DCM_GC_CONN_FAILED)
		return;
	l->state = DCM_GC_CONN_FAILED;
	snprintf(l->why, sizeof(l->why), "%s", why);
}

void dcm_gc_conn_close(struct dcm_gc_conn *l)
{
	if (l->state == DCM_GC_CONN_CLOSED)
		return;
	dcm_conn_close(&l->conn);
	if (l->tls)
		gnutls_deinit(l->tls);
	if (l->fd >= 0)
		close(l->fd);
	free(l->in);
	free(l->out);
	explicit_bzero(&l->session, sizeof(l->session));
	memset(l, 0, sizeof(*l));
	l->fd = -1;
}

void dcm_gc_conn_start(struct dcm_gc_conn *l,
		       const struct dcm_client_door *door, u32 number,
		       u64 bytes, u64 now_ms)
{
	dcm_gc_conn_close(l);
	l->state = DCM_GC_CONN_CONNECTING;
	l->fd = -1;
	l->session = door->s;
	l->number = number;
	l->bytes = bytes;
	l->in = malloc(DCM_WIRE_MSG_MAX);
	if (!l->in) {
		dcm_gc_conn_fail(l, "no memory");
		return;
	}
	dcm_conn_start(&l->conn, door->tls, (const struct sockaddr *)door->sa,
		       door->sa_len, now_ms);
	dcm_gc_conn_step(l);
}

void dcm_gc_conn_poll(const struct dcm_gc_conn *l, struct pollfd *p)
{
	*p = (struct pollfd){ .fd = -1 };
	switch (l->state) {
	case DCM_GC_CONN_CONNECTING:
		p->fd = l->conn.fd;
		p->events = dcm_conn_events(&l->conn);
		break;
	case DCM_GC_CONN_OPENING:
	case DCM_GC_CONN_UP:
		p->fd = l->fd;
		p->events = l->out_len ? POLLIN | POLLOUT : POLLIN;
		break;
	default:
		break;
	}
}

static void link_flush(struct dcm_gc_conn *l)
{
	while (l->state != DCM_GC_CONN_FAILED && l->out_len) {
		size_t len = l->record ? l->record : l->out_len;
		ssize_t ret;

		if (l->record)
			ret = gnutls_record_send(l->tls, NULL, 0);
		else
			ret = gnutls_record_send(l->tls, l->out + l->out_at,
						 len);
		if (ret == GNUTLS_E_AGAIN || ret == GNUTLS_E_INTERRUPTED) {
			l->record = len;
			if (ret == GNUTLS_E_AGAIN)
				return;
			continue;
		}
		if (ret < 0) {
			dcm_gc_conn_fail(l, gnutls_strerror((int)ret));
			return;
		}
		len = (size_t)ret;
		l->record = 0;
		l->out_at += len;
		l->out_len -= len;
		if (!l->out_len)
			l->out_at = 0;
	}
}

/* Make room for @n bytes behind those that wait. */
static bool link_room(struct dcm_gc_conn *l, size_t n)
{
	size_t room = l->out_room ? l->out_room : 4096;
	u8 *p;

	if (l->out_len + n > DCM_GC_CONN_OUT_MAX)
		return false;
	/* GnuTLS has copied the record it works on: the rest may move */
	if (l->out_at && l->out_at + l->out_len + n > l->out_room) {
		memmove(l->out, l->out + l->out_at, l->out_len);
		l->out_at = 0;
	}
	if (l->out_len + n <= l->out_room)
		return true;
	while (room < l->out_len + n)
		room *= 2;
	p = realloc(l->out, room);
	if (!p)
		return false;
	l->out = p;
	l->out_room = room;
	return true;
}

void dcm_gc_conn_send(struct dcm_gc_conn *l, const struct dcm_wire_msg *msg)
{
	u8 *p;
	int n;

	if (l->state != DCM_GC_CONN_UP && l->state != DCM_GC_CONN_OPENING)
		return;
	if (!link_room(l, DCM_WIRE_HEAD_MAX + msg->payload_bytes)) {
		dcm_gc_conn_fail(l, "does not take what we send");
		return;
	}
	p = l->out + l->out_at + l->out_len;
	n = dcm_wire_encode(p, DCM_WIRE_HEAD_MAX, msg);
	if (n < 0) {
		dcm_gc_conn_fail(l, "message can't be encoded");
		return;
	}
	if (msg->payload_bytes)
		memcpy(p + n, msg->payload, msg->payload_bytes);
	l->out_len += (size_t)n + msg->payload_bytes;
	link_flush(l);
}

static void link_refused(struct dcm_gc_conn *l, const struct dcm_wire_msg *msg)
{
	l->refused = msg->error.status;
	dcm_gc_conn_fail(l, dcm_wire_status_text(msg->error.status));
}

/* WELCOME has come: take the connection over. */
static void link_welcome(struct dcm_gc_conn *l, const struct dcm_wire_msg *msg)
{
	struct dcm_wire_msg open = {
		.type = DCM_MSG_GC_OPEN,
		.tag = 1,
		.gc_open = { .bytes = l->bytes, .donor = l->number },
	};

	if (msg->type != DCM_MSG_WELCOME) {
		link_refused(l, msg);
		return;
	}
	if (msg->welcome.session != l->session.id ||
	    msg->welcome.donor_id != l->session.donor_id) {
		dcm_gc_conn_fail(l, "answers HELLO with nonsense");
		return;
	}
	l->fd = dcm_conn_detach(&l->conn, &l->tls);
	if (l->fd < 0) {
		dcm_gc_conn_fail(l, l->conn.why);
		return;
	}
	l->state = DCM_GC_CONN_OPENING;
	dcm_gc_conn_send(l, &open);
}

static void link_connect(struct dcm_gc_conn *l)
{
	struct dcm_wire_msg hello = {
		.type = DCM_MSG_HELLO,
		.tag = 1,
		.hello = {
			.version_min = DCM_WIRE_VERSION_MIN,
			.version_max = DCM_WIRE_VERSION_MAX,
			.role = DCM_ROLE_GC,
			.session = l->session.id,
		},
	}, msg;

	dcm_conn_step(&l->conn);
	if (l->conn.state == DCM_CONN_OPEN && !l->hello) {
		memcpy(hello.hello.secret, l->session.secret,
		       sizeof(l->session.secret));
		dcm_conn_send(&l->conn, &hello);
		explicit_bzero(&hello, sizeof(hello));
		l->hello = true;
	}
	if (dcm_conn_recv(&l->conn, &msg))
		link_welcome(l, &msg);
	else if (l->conn.state == DCM_CONN_FAILED)
		dcm_gc_conn_fail(l, l->conn.why);
}

void dcm_gc_conn_step(struct dcm_gc_conn *l)
{
	if (l->state == DCM_GC_CONN_CONNECTING)
		link_connect(l);
	else if (l->state == DCM_GC_CONN_OPENING || l->state == DCM_GC_CONN_UP)
		link_flush(l);
}

/* Read a whole message into @in; false: it is not complete yet. */
static bool link_read(struct dcm_gc_conn *l, struct dcm_wire_msg *msg)
{
	size_t bytes;

	for (;;) {
		int ret = dcm_wire_decode(l->in, l->in_len, DCM_PHASE_GC,
					  DCM_SIDE_DONOR, msg, &bytes);
		ssize_t n;

		if (ret == DCM_WIRE_OK) {
			l->in_used = bytes;
			return true;
		}
		if (ret != DCM_WIRE_MORE) {
			dcm_gc_conn_fail(l, dcm_wire_error_text(ret));
			return false;
		}
		n = gnutls_record_recv(l->tls, l->in + l->in_len, bytes);
		if (n == GNUTLS_E_INTERRUPTED)
			continue;
		if (n == GNUTLS_E_AGAIN)
			return false;
		if (n <= 0) {
			dcm_gc_conn_fail(l, n ? gnutls_strerror((int)n) :
						"closed by the donor");
			return false;
		}
		l->in_len += (size_t)n;
	}
}

bool dcm_gc_conn_recv(struct dcm_gc_conn *l, struct dcm_wire_msg *msg)
{
	if (l->state == DCM_GC_CONN_CONNECTING)
		link_connect(l);
	while (l->state == DCM_GC_CONN_OPENING || l->state == DCM_GC_CONN_UP) {
		/* decode asks for the missing bytes only: one message */
		if (l->in_used)
			l->in_len = 0;
		l->in_used = 0;
		if (!link_read(l, msg))
			return false;
		if (l->state == DCM_GC_CONN_UP && msg->type == DCM_MSG_GC)
			return true;
		if (msg->type == DCM_MSG_ERROR) {
			if (l->state == DCM_GC_CONN_UP && msg->tag)
				return true;
			link_refused(l, msg);
		} else if (l->state == DCM_GC_CONN_OPENING &&
			   msg->type == DCM_MSG_GC_OPENED) {
			l->threads = msg->gc_opened.threads;
			l->state = DCM_GC_CONN_UP;
		} else {
			dcm_gc_conn_fail(l, "says what nobody asked for");
		}
	}
	return false;
}

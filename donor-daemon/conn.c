// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * conn.c - connections on the event loop: handshake, HELLO, control
 *
 * States are in donor.h. The memory that a peer can make the donor hold is bounded:
 * there are limits on the number of connections, the seats of those without a role
 * (admission.c), the time until HELLO, the bytes of one message, and the bytes of
 * answers that the peer has not read (above %TX_STOP nothing more is read from it).
 * Messages that are no answers wait until fewer than %TX_ROOM bytes are queued. The
 * work of one event is bounded, too, whatever comes meanwhile.
 *
 *	accept -> [seat of its listener] -> key shown -> [proven seat] -> HELLO -> role
 *	             |                                       |  ^
 *	             '-- dropped, too late, no key           |  '-- refused: LINGER
 *	                                                     '-- dropped, too late
 *
 * Strangers can take all seats of a listener. But only a peer that has shown a key gets
 * one of the proven seats (donor->proven), so strangers don't delay hosts from the rest
 * of their handshakes on. A tenant's host that does not go on, or is refused and stays,
 * can delay other hosts only by keeping a proven seat.
 *
 * A connection is freed in its poll handle's close callback, so it may be
 * closed from anywhere, also while its own event is handled.
 */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gc_session.h"
#include "donor.h"
#include "log_limit.h"

#define TX_STOP		(16u << 10)
#define TX_ROOM		(32u << 10)
#define FDS_STOP	(DCM_CHAN_FDS / 2)
#define LINGER_MS	1000u
#define TURN_MAX	16u	/* reads in one event, for fairness */
#define TURN_MESSAGES	64u	/* messages handled in one event */

static void conn_ready(uv_poll_t *poll, int status, int events);

static void conn_freed(uv_handle_t *handle)
{
	struct dcm_conn *conn = handle->data;

	free(conn);
}

void dcm_conn_uncount(struct dcm_donor *donor, struct dcm_tenant *tenant)
{
	donor->nr_conns--;
	if (tenant) {
		tenant->connections--;
		dcm_tenant_put(tenant);
	}
}

bool dcm_conn_full(const struct dcm_donor *donor)
{
	return donor->nr_conns - donor->nr_handshakes + donor->nr_lost >=
	       donor->cfg.connections;
}

void dcm_conn_seat_release(struct dcm_conn *conn)
{
	if (!conn->seat.source)
		return;
	dcm_admission_leave(&conn->seat);
	conn->donor->nr_handshakes--;
}

/* Close with a reset: bytes that are queued are dropped. */
static void conn_reset(struct dcm_conn *conn)
{
	static const struct linger now = { .l_onoff = 1 };

	setsockopt(conn->chan->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	conn->chan->broken = true;
	dcm_conn_close(conn);
}

bool dcm_conn_drop(struct dcm_donor *donor, struct dcm_admission *adm)
{
	struct dcm_seat *seat = dcm_admission_victim(adm);
	struct dcm_conn *conn;

	if (!seat)
		return false;
	conn = dcm_list_entry(seat, struct dcm_conn, seat);
	donor->stats.handshake_dropped++;
	dcm_log_limited(
		DCM_LOG_WARNING,
		"%s: dropped after %llu ms to make room for others: %u of the %u handshakes under way are from its address, the rest from up to %u more",
		conn->peer, (unsigned long long)(dcm_now(donor) - conn->since),
		seat->source->nr_seats, adm->nr_seats, adm->nr_sources - 1);
	conn_reset(conn);
	return true;
}

/* Take a seat of @adm; if none is free, drop another connection. */
static int conn_seat_take(struct dcm_conn *conn, struct dcm_admission *adm)
{
	struct dcm_donor *donor = conn->donor;
	int ret;

	dcm_conn_seat_release(conn);
	while (adm->nr_seats >= donor->cfg.handshakes &&
	       dcm_conn_drop(donor, adm))
		;
	ret = dcm_admission_enter(adm, &conn->seat, &conn->origin);
	if (ret)
		return ret;
	donor->nr_handshakes++;
	return 0;
}

/* Detach a connection from the session or worker that its state refers to. */
static void conn_detach_role(struct dcm_conn *conn)
{
	if (conn->gc)
		dcm_gc_session_detach(conn);
	if (conn->session) {
		struct dcm_session *s = conn->session;

		conn->session = NULL;
		dcm_session_detach(s, dcm_chan_cut(conn->chan));
	}
}

static void conn_end(struct dcm_conn *conn, bool forget)
{
	conn_detach_role(conn);
	dcm_conn_seat_release(conn);
	conn->state = DCM_CONN_CLOSED;
	dcm_list_del(&conn->node);
	uv_close((uv_handle_t *)&conn->poll, conn_freed);
	if (forget)
		dcm_conn_uncount(conn->donor, conn->tenant);
}

void dcm_conn_close(struct dcm_conn *conn)
{
	struct dcm_chan *ch = conn->chan;

	if (conn->state == DCM_CONN_CLOSED)
		return;
	conn_end(conn, true);
	if (ch->established && ch->tls && !ch->broken) {
		gnutls_bye(ch->tls, GNUTLS_SHUT_WR);
		dcm_chan_flush(ch);
	}
	conn->chan = NULL;
	dcm_chan_free(ch);
}

struct dcm_chan *dcm_conn_detach(struct dcm_conn *conn)
{
	struct dcm_chan *ch = conn->chan;

	conn->chan = NULL;
	conn_end(conn, false);
	return ch;
}

/* Are few enough answers queued that another request may be handled? */
static bool conn_can_answer(const struct dcm_chan *ch)
{
	return dcm_chan_queued(ch) < TX_STOP && ch->nr_pass < FDS_STOP;
}

/* Can the next message be handled? If not, another event resumes the connection. */
static bool conn_can_handle(const struct dcm_conn *conn)
{
	return conn_can_answer(conn->chan) &&
	       !(conn->session && conn->session->want_busy) &&
	       !dcm_gc_session_stuck(conn);
}

static void conn_update(struct dcm_conn *conn)
{
	const struct dcm_chan *ch = conn->chan;
	int events = 0;

	if (conn->state == DCM_CONN_CLOSED || conn->in_event)
		return;
	dcm_gc_session_update(conn);
	/* to continue a turn that was cut short, wait for the socket to be writable */
	if (dcm_chan_queued(ch) || conn->again || conn->held)
		events |= UV_WRITABLE;
	if (conn_can_handle(conn))
		events |= UV_READABLE;
	if (events == conn->events)
		return;
	conn->events = events;
	if (events)
		uv_poll_start(&conn->poll, events, conn_ready);
	else
		uv_poll_stop(&conn->poll);
}

bool dcm_conn_has_room(const struct dcm_conn *conn)
{
	return conn && conn->state == DCM_CONN_CONTROL &&
	       dcm_chan_queued(conn->chan) < TX_ROOM;
}

int dcm_conn_send(struct dcm_conn *conn, const struct dcm_wire_msg *msg)
{
	u8 head[DCM_WIRE_HEAD_MAX];
	int ret;

	if (conn->state == DCM_CONN_CLOSED)
		return -EPIPE;
	ret = dcm_wire_encode(head, sizeof(head), msg);
	if (ret >= 0)
		ret = dcm_chan_write(conn->chan, head, (size_t)ret);
	if (!ret)
		ret = dcm_chan_write(conn->chan, msg->payload,
				     msg->payload_bytes);
	if (!ret && !conn->in_event)
		ret = dcm_chan_flush(conn->chan);
	if (ret < 0) {
		dcm_conn_close(conn);
		return ret;
	}
	conn_update(conn);
	return 0;
}

int dcm_conn_error(struct dcm_conn *conn, u64 tag, u32 status)
{
	struct dcm_wire_msg msg = {
		.type = DCM_MSG_ERROR,
		.tag = tag,
		.error.status = status,
	};

	return dcm_conn_send(conn, &msg);
}

void dcm_conn_refuse(struct dcm_conn *conn, u64 tag, u32 status)
{
	if (dcm_conn_error(conn, tag, status))
		return;
	dcm_log_limited(DCM_LOG_WARNING, "%s (%s): refused: %s", conn->peer,
			conn->tenant ? conn->tenant->name : "?",
			dcm_wire_status_text(status));
	conn_detach_role(conn);
	conn->state = DCM_CONN_LINGER;
	conn->deadline = dcm_now(conn->donor) + LINGER_MS;
	if (!conn->seat.source && conn_seat_take(conn, &conn->donor->proven)) {
		dcm_conn_close(conn);
		return;
	}
	gnutls_bye(conn->chan->tls, GNUTLS_SHUT_WR);
	if (dcm_chan_flush(conn->chan) > 0)
		shutdown(conn->chan->fd, SHUT_WR);
	conn_update(conn);
}

static void conn_peer(struct dcm_conn *conn,
		      const struct sockaddr_storage *peer)
{
	struct ucred uc = { .uid = (uid_t)-1 };
	socklen_t len = sizeof(uc);
	char host[46], serv[8];

	if (conn->is_unix) {
		if (!getsockopt(conn->chan->fd, SOL_SOCKET, SO_PEERCRED, &uc,
				&len))
			snprintf(conn->peer, sizeof(conn->peer),
				 "unix:pid=%d,uid=%u", uc.pid, uc.uid);
		else
			snprintf(conn->peer, sizeof(conn->peer), "unix");
		dcm_origin_user(&conn->origin, uc.uid);
		return;
	}
	dcm_origin_of(&conn->origin, peer);
	if (getnameinfo((const struct sockaddr *)peer, sizeof(*peer), host,
			sizeof(host), serv, sizeof(serv),
			NI_NUMERICHOST | NI_NUMERICSERV))
		snprintf(conn->peer, sizeof(conn->peer), "tcp:?");
	else
		snprintf(conn->peer, sizeof(conn->peer), "tcp:%s:%s", host,
			 serv);
}

void dcm_conn_accept(struct dcm_donor *donor, struct dcm_admission *adm, int fd,
		     bool is_unix, const struct sockaddr_storage *peer)
{
	struct dcm_conn *conn = calloc(1, sizeof(*conn));
	int one = 1;

	donor->stats.accepted++;
	if (!conn) {
		close(fd);
		return;
	}
	conn->chan = dcm_chan_new(fd, donor->tls);
	if (!conn->chan || uv_poll_init(&donor->loop, &conn->poll, fd)) {
		dcm_chan_free(conn->chan);
		free(conn);
		return;
	}
	if (!is_unix)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	conn->poll.data = conn;
	conn->donor = donor;
	conn->is_unix = is_unix;
	conn->state = DCM_CONN_HANDSHAKE;
	conn->since = dcm_now(donor);
	conn->deadline = conn->since + donor->cfg.handshake_ms;
	conn->admission = adm;
	dcm_list_add_tail(&conn->node, &donor->conns);
	donor->nr_conns++;
	conn_peer(conn, peer);
	if (conn_seat_take(conn, adm)) {
		dcm_conn_close(conn);
		return;
	}
	conn_update(conn);
}

/* Why a handshake failed. @ret: its result; 0: its tenant is gone meanwhile. */
static const char *handshake_error_text(int ret)
{
	switch (ret) {
	case 0:
	case -EACCES:
		return "no key, an unknown name or a wrong key";
	case -EPROTO:
		return "not a TLS handshake";
	case -EPIPE:
		return "the peer closed the connection";
	default:
		return strerror(-ret);
	}
}

static void conn_handshake(struct dcm_conn *conn)
{
	struct dcm_donor *donor = conn->donor;
	struct dcm_tenant *t = NULL;
	const void *name;
	size_t len;
	int ret = dcm_chan_handshake(conn->chan);

	/* only once it has shown a key: move to a proven seat */
	if (ret >= 0 && dcm_chan_shown(conn->chan) &&
	    conn->seat.source->admission == conn->admission &&
	    conn_seat_take(conn, &donor->proven))
		ret = -ENOMEM;
	if (!ret)
		return;
	if (ret > 0)
		ret = dcm_chan_identity(conn->chan, &name, &len);
	if (!ret)
		t = dcm_tenant_find(&donor->tenants, name, len);
	if (!t) {
		donor->stats.handshake_failed++;
		dcm_log_limited(
			DCM_LOG_WARNING,
				"%s: handshake failed: %s; the connection was closed without an answer",
				conn->peer, handshake_error_text(ret));
		dcm_conn_close(conn);
		return;
	}
	dcm_tenant_get(t);
	t->connections++;
	conn->tenant = t;
	conn->state = DCM_CONN_HELLO;
}

static bool conn_takes_messages(const struct dcm_conn *conn)
{
	return conn->state == DCM_CONN_HELLO ||
	       conn->state == DCM_CONN_CONTROL || conn->state == DCM_CONN_GC;
}

/* The peer sent an invalid message, or one not allowed here. */
static void conn_protocol_error(struct dcm_conn *conn, int error)
{
	conn->donor->stats.protocol_errors++;
	dcm_log_limited(DCM_LOG_WARNING, "%s (%s): %s: %s", conn->peer,
			conn->tenant->name, dcm_wire_error_name(error),
			dcm_wire_error_text(error));
	dcm_conn_refuse(conn, 0, DCM_WS_PROTOCOL);
}

/* Handle one message of the GC role, with its payload; false: not now. */
static bool conn_gc_message(struct dcm_conn *conn)
{
	struct dcm_chan *ch = conn->chan;
	struct dcm_wire_msg msg;
	size_t bytes;
	int ret = dcm_wire_decode(ch->in.p + ch->in.head, dcm_buf_used(&ch->in),
				  DCM_PHASE_GC, DCM_SIDE_HOST, &msg, &bytes);

	if (ret == DCM_WIRE_MORE)
		return false;
	if (ret != DCM_WIRE_OK) {
		conn_protocol_error(conn, ret);
		return false;
	}
	if (!dcm_gc_session_message(conn, &msg))
		return false;
	if (conn->state == DCM_CONN_GC)
		dcm_chan_consume(ch, bytes);
	return true;
}

/* Handle the complete messages in the buffer, as far as @left allows. */
static void conn_messages(struct dcm_conn *conn, unsigned int *left)
{
	struct dcm_wire_msg msg;
	size_t bytes;
	int ret;

	conn->held = false;
	while (conn_takes_messages(conn)) {
		struct dcm_chan *ch = conn->chan;

		/*
		 * leave the rest: the socket is full, a MAP is busy, or the turn is
		 * over
		 */
		conn->held = !conn_can_answer(ch) || !*left;
		if (conn->held || (conn->session && conn->session->want_busy))
			return;
		--*left;
		if (conn->state == DCM_CONN_GC) {
			if (!conn_gc_message(conn))
				return;
			continue;
		}
		ret = dcm_wire_head(ch->in.p + ch->in.head,
				    dcm_buf_used(&ch->in),
				    conn->state == DCM_CONN_HELLO ?
					    DCM_PHASE_HELLO :
					    DCM_PHASE_CONTROL,
				    DCM_SIDE_HOST, &msg, &bytes);
		if (ret == DCM_WIRE_MORE)
			return;
		if (ret != DCM_WIRE_OK) {
			conn_protocol_error(conn, ret);
			return;
		}
		dcm_chan_consume(ch, bytes);
		if (conn->state == DCM_CONN_HELLO)
			dcm_hello_handle(conn, &msg);
		else
			dcm_control_handle(conn, &msg);
	}
}

/* Discard bytes that come, a little at a time, as the peer may never stop. */
static void conn_linger(struct dcm_conn *conn)
{
	int ret = dcm_chan_flush(conn->chan);
	char sink[16384];
	ssize_t n;

	if (ret > 0)
		shutdown(conn->chan->fd, SHUT_WR);
	do
		n = recv(conn->chan->fd, sink, sizeof(sink), MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (ret < 0 || n == 0 ||
	    (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK))
		dcm_conn_close(conn);
}

/*
 * Handle an event. @reset: the host has reset the connection; messages sent before are
 * still read, as one may be a GOODBYE.
 */
static void conn_io(struct dcm_conn *conn, bool reset)
{
	unsigned int turn = 0, left = TURN_MESSAGES;
	int ret;

	if (conn->state == DCM_CONN_LINGER) {
		conn_linger(conn);
		return;
	}
	if (conn->state == DCM_CONN_HANDSHAKE && !reset)
		conn_handshake(conn);
	if (conn->state == DCM_CONN_HANDSHAKE || conn->state == DCM_CONN_CLOSED)
		return;
	do {
		if (!reset && dcm_chan_flush(conn->chan) < 0) {
			dcm_conn_close(conn);
			return;
		}
		ret = dcm_chan_read(conn->chan);
		conn_messages(conn, &left);
		if (!conn_takes_messages(conn))
			return;
		if (ret < 0 || dcm_chan_flush(conn->chan) < 0) {
			dcm_conn_close(conn);
			return;
		}
		/* bytes left in the buffers raise no event: come back by @again */
		conn->again = conn_can_handle(conn) &&
			      (conn->chan->more || conn->held);
	} while (conn->again && left && ++turn < TURN_MAX);
	if (conn->session)
		dcm_evict_pump(conn->session, false);
}

static void conn_ready(uv_poll_t *poll, int status, int events)
{
	struct dcm_conn *conn = poll->data;

	(void)events;
	conn->in_event = true;
	conn_io(conn, status < 0);
	if (status < 0)
		dcm_conn_close(conn);
	conn->in_event = false;
	if (conn->state == DCM_CONN_CLOSED)
		return;
	if (dcm_chan_flush(conn->chan) < 0)
		dcm_conn_close(conn);
	else
		conn_update(conn);
}

void dcm_conn_resume(struct dcm_conn *conn)
{
	if (conn->state == DCM_CONN_CLOSED)
		return;
	/* messages left in the buffer raise no event */
	conn_ready(&conn->poll, 0, 0);
}

void dcm_conn_deadlines(struct dcm_donor *donor)
{
	u64 now = dcm_now(donor);
	struct dcm_conn *conn, *tmp;

	dcm_list_for_each_safe(conn, tmp, &donor->conns, struct dcm_conn,
			       node) {
		if (conn->state == DCM_CONN_CONTROL ||
		    conn->state == DCM_CONN_GC || now < conn->deadline)
			continue;
		if (conn->state == DCM_CONN_LINGER) {
			conn_reset(conn);
			continue;
		}
		donor->stats.handshake_timeout++;
		dcm_log_limited(
			DCM_LOG_INFO,
				"%s: closed: no key and HELLO within %u ms (handshake-timeout)",
				conn->peer, donor->cfg.handshake_ms);
		dcm_conn_close(conn);
	}
}

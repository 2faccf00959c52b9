// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * data.c - data connections: one for each lane and donor
 *
 * The client thread connects, shakes hands, joins the session with its secret
 * and wraps the socket in an endpoint; the lane does the I/O. Two words in
 * struct client_lane_slot connect them, each written by one side and exchanged
 * by the other: @next brings a new endpoint to the lane, @spent brings a dead
 * one back to be closed. No lock, no wait. While the lane has an endpoint this
 * thread only calls its kill(), such as a shutdown() of a socket that only this
 * thread closes.
 *
 * A session that uses verbs first tries a queue pair (verbs.c), and after a few
 * failures a data connection: its slabs can be reached both ways. When that
 * connection breaks, a queue pair is tried again.
 *
 * States of a slot: no endpoint and no connection (retry at @retry_ms),
 * connecting, HELLO sent, the lane has an endpoint (@live).
 *
 * A session whose control connection is down keeps its data connections: the
 * donor counts both as signs of life.
 */
#include "client_int.h"

static void data_close(struct client_lane_slot *s, struct dcm_endpoint *ep)
{
	if (ep == s->live)
		s->live = NULL;
	ep->ops->close(ep);
}

/* Retry later, and more slowly each time. */
void client_data_retry(struct client_lane_slot *s, u64 now)
{
	s->retry_ms = now + s->backoff_ms;
	s->backoff_ms = min(max(s->backoff_ms * 2, CLIENT_BACKOFF_MIN_MS),
			    CLIENT_BACKOFF_MAX_MS / 4);
}

/* Give a new endpoint to the lane. */
void client_data_out(struct client_lane_slot *s, struct dcm_endpoint *ep)
{
	struct dcm_client *client = s->donor->client;

	s->backoff_ms = 0;
	s->raw = ep;
	if (client->wrap)
		ep = client->wrap(client->wrap_arg, ep);
	s->live = ep;
	smp_store_release(&s->next, ep);
}

static void data_failed(struct client_donor *d, struct client_lane_slot *s,
			u64 now)
{
	if (dcm_log_allow(&d->say_data, now, CLIENT_SAY_MS))
		dcm_log(DCM_LOG_WARNING,
			"donor %s (%s): data connection: %s; trying again",
			d->name, d->address, s->conn.why);
	dcm_conn_close(&s->conn);
	s->hello_sent = false;
	client_data_retry(s, now);
}

static void data_open(struct client_donor *d, struct client_lane_slot *s,
		      const struct dcm_wire_msg *m)
{
	struct dcm_tcp_args args = {
		.depth = min(m->welcome.inflight_max, DCM_WIRE_INFLIGHT_MAX),
		.silence_ns = client_donor_late_ms(d) * 1000000ull,
	};
	bool plain = m->welcome.flags & DCM_WELCOME_PLAIN_DATA;
	struct dcm_endpoint *ep;
	gnutls_session_t tls;
	int err;

	if (m->type != DCM_MSG_WELCOME) {
		dcm_conn_fail(&s->conn, "refused: %s",
			      dcm_wire_status_text(m->error.status));
		return;
	}
	if (m->welcome.session != d->session ||
	    m->welcome.donor_id != d->donor_id || !args.depth ||
	    (plain && d->client->data_encryption)) {
		dcm_conn_fail(&s->conn,
			      "answers HELLO with an invalid message");
		return;
	}
	args.fd = dcm_conn_detach(&s->conn, &tls);
	if (args.fd < 0)
		return;
	if (plain) {
		gnutls_deinit(tls);
		tls = NULL;
	}
	args.tls = tls;
	ep = d->client->links ?
		     d->client->links->data(d->client->arg, d->idx,
					    (u32)(s - d->slot), &args, &err) :
		     dcm_transport_tcp.open(&args, &err);
	if (!ep) {
		if (tls)
			gnutls_deinit(tls);
		close(args.fd);
		s->retry_ms = client_now_ms() + CLIENT_BACKOFF_MAX_MS;
		if (dcm_log_allow(&d->say_data, client_now_ms(), CLIENT_SAY_MS))
			dcm_log(DCM_LOG_ERR,
				"donor %s (%s): data connection: %s", d->name,
				d->address, strerror(-err));
		return;
	}
	if (!d->client->data_encryption && !plain &&
	    dcm_log_allow(&d->say_data, client_now_ms(), CLIENT_SAY_MS))
		dcm_log(DCM_LOG_NOTICE,
			"donor %s (%s): insists on encrypted data", d->name,
			d->address);
	s->hello_sent = false;
	/* when this one breaks, a queue pair is tried again */
	s->pair.fails = 0;
	client_data_out(s, ep);
}

static void data_hello(struct client_donor *d, struct client_lane_slot *s)
{
	struct dcm_wire_msg msg = {
		.type = DCM_MSG_HELLO,
		.tag = 1,
		.hello = {
			.version_min = DCM_WIRE_VERSION_MIN,
			.version_max = DCM_WIRE_VERSION_MAX,
			.role = DCM_ROLE_DATA,
			.lane = (u16)(s - d->slot + 1),
			.session = d->session,
			.flags = d->client->data_encryption ?
					 0 :
					 DCM_HELLO_PLAIN_DATA,
		},
	};

	memcpy(msg.hello.secret, d->secret, sizeof(d->secret));
	dcm_conn_send(&s->conn, &msg);
	s->hello_sent = true;
}

void client_data_io(struct client_donor *d, u32 lane, short revents, u64 now)
{
	struct client_lane_slot *s = &d->slot[lane];
	struct dcm_wire_msg msg;

	if (s->conn.state == DCM_CONN_CLOSED)
		return;
	if (revents)
		dcm_conn_step(&s->conn);
	if (s->conn.state == DCM_CONN_OPEN && !s->hello_sent)
		data_hello(d, s);
	if (dcm_conn_recv(&s->conn, &msg))
		data_open(d, s, &msg);
	if (s->conn.state == DCM_CONN_OPEN ||
	    s->conn.state == DCM_CONN_CONNECTING ||
	    s->conn.state == DCM_CONN_HANDSHAKE) {
		if (now - s->conn.since_ms > CLIENT_CONNECT_MS)
			dcm_conn_fail(&s->conn, "no answer");
	}
	if (s->conn.state == DCM_CONN_FAILED)
		data_failed(d, s, now);
}

void client_data_timers(struct client_donor *d, u64 now)
{
	struct dcm_endpoint *ep;
	u32 lane;

	for (lane = 0; lane < d->client->nr_lanes; lane++) {
		struct client_lane_slot *s = &d->slot[lane];

		ep = __atomic_exchange_n(&s->spent, NULL, __ATOMIC_ACQUIRE);
		if (ep) {
			if (d->session &&
			    dcm_log_allow(&d->say_data, now, CLIENT_SAY_MS))
				dcm_log(DCM_LOG_WARNING,
					"donor %s (%s): data connection: %s",
					d->name, d->address,
					s->raw->ops->why(s->raw));
			data_close(s, ep);
		}
		if (client_verbs_timers(s, now))
			continue;
		/* if the lane still has one of an old session: wait until it is back */
		if (!d->want_data || d->st != SESSION_UP ||
		    (s->live && d->verbs != VERBS_TRY) ||
		    s->conn.state != DCM_CONN_CLOSED || now < s->retry_ms)
			continue;
		if (d->verbs != VERBS_OFF &&
		    s->pair.fails < CLIENT_PAIR_FAILS) {
			client_verbs_start(s, now);
		} else {
			s->hello_sent = false;
			dcm_conn_start(&s->conn, &d->client->tls,
				       (struct sockaddr *)&d->sa, d->sa_len,
				       now);
			client_data_io(d, lane, 0, now);
		}
	}
}

void client_data_kill(struct client_donor *d)
{
	struct dcm_endpoint *ep;
	u32 lane;

	for (lane = 0; lane < d->client->nr_lanes; lane++) {
		struct client_lane_slot *s = &d->slot[lane];

		dcm_conn_close(&s->conn);
		client_verbs_abort(s);
		ep = __atomic_exchange_n(&s->next, NULL, __ATOMIC_ACQ_REL);
		if (ep)
			data_close(s, ep); /* never got to the lane */
		ep = __atomic_exchange_n(&s->spent, NULL, __ATOMIC_ACQUIRE);
		if (ep)
			data_close(s, ep);
		if (!s->live)
			continue;
		s->raw->ops->kill(s->raw);
	}
}

/* At the end: lanes have stopped, so all endpoints are this thread's. */
void client_data_close(struct client_donor *d)
{
	u32 lane;

	for (lane = 0; lane < d->client->nr_lanes; lane++) {
		struct client_lane_slot *s = &d->slot[lane];

		dcm_conn_close(&s->conn);
		client_verbs_abort(s);
		if (s->live)
			data_close(s, s->live);
		if (s->shm)
			s->shm->ops->close(s->shm);
		s->next = s->spent = s->cur = s->shm = NULL;
	}
}

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * rdma.c - queue pairs of sessions
 *
 * The donor's CPU has no part in a one-sided operation; it only decides which
 * hosts may do any. A session gets a ticket (ticket.c) over TLS and shows it in
 * the private data of a connection request; a request without a valid ticket is
 * rejected. Else the host gets a reliable connection without receives in the
 * session's protection domain (rdma_pd.c).
 *
 *	request -> rejected
 *	        '-> ACCEPTED -> OPEN -> gone: closed, failed, lane or session ended
 *	                 '-- 5 s ------^
 *
 * Every event of the connection manager and of devices is acknowledged before
 * it is handled, since destroying waits for acknowledgements. None ends the
 * daemon: an event that belongs to nothing known is dropped.
 *
 * Differences from infiniswap-nsdi17 (5.1): there a client is a connection,
 * its private data is ignored, and when it ends all of the client's slabs are freed.
 * Here a client is a session, whose queue pairs come and go like data connections.
 *
 * All on the event loop. Invariant: a lane has one connection, a queue pair or
 * a data connection; the old one is gone before the new one is welcomed.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "log_limit.h"
#include "rdma_int.h"

#define ESTABLISH_MS	5000u

void dcm_rdma_conn_close(struct rdma_conn *c, const char *why)
{
	struct dcm_rdma *r = c->rdma;
	struct dcm_session *s = c->session;

	dcm_log_limited(DCM_LOG_DEBUG, "session %llx, lane %u: queue pair: %s",
			(unsigned long long)s->id, c->lane, why);
	dcm_list_del(&c->node);
	dcm_list_del(&c->session_node);
	if (c->pd->asked == c)
		c->pd->asked = NULL;
	r->nr_conns--;
	if (c->open)
		rdma_disconnect(c->id);
	/* after this no operation over it takes effect any more */
	if (c->id->qp)
		rdma_destroy_qp(c->id);
	rdma_destroy_id(c->id);
	dcm_rdma_pd_put(c->pd);
	s->nr_rdma--;
	dcm_session_left(s);
	dcm_session_put(s);
	dcm_conn_uncount(r->donor, c->tenant);
	free(c);
}

/* ---- connection requests ---- */

/* Get the session's protection domain; its first queue pair decides the device. */
static struct dcm_rdma_pd *rdma_pd_of_session(struct dcm_session *s,
				     struct ibv_context *ctx)
{
	if (!s->pd)
		s->pd = dcm_rdma_pd_new(ctx);
	if (!s->pd || s->pd->ctx != ctx || s->pd->dead)
		return NULL;
	return s->pd;
}

/* May this session have one more queue pair? %NULL, or the reason why not. */
static const char *conn_limits(const struct dcm_donor *donor,
			       const struct dcm_session *s)
{
	const struct dcm_tenant *t = s->tenant;

	if (t->gone)
		return "its tenant's key was removed";
	if (t->connections >= t->quota_connections)
		return "the tenant has as many connections as it may (tenant-connections)";
	if (dcm_conn_full(donor))
		return "the donor has as many connections as it may (connections)";
	return NULL;
}

static int conn_accept(struct rdma_conn *c, const struct rdma_conn_param *asked)
{
	struct ibv_qp_init_attr attr = {
		.qp_context = c,
		.send_cq = c->pd->cq,
		.recv_cq = c->pd->cq,
		.cap = { .max_send_wr = 1,
			 .max_recv_wr = 1,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct rdma_conn_param param = { .rnr_retry_count = 7 };
	struct ibv_device_attr dev;
	int ret;

	ret = ibv_query_device(c->id->verbs, &dev);
	if (ret)
		return -ret;
	/* READs that the host may have in flight */
	param.responder_resources = asked->responder_resources;
	if (param.responder_resources > dev.max_qp_rd_atom)
		param.responder_resources = (u8)dev.max_qp_rd_atom;
	if (rdma_create_qp(c->id, c->pd->ibv, &attr))
		return -errno;
	return rdma_accept(c->id, &param) ? -errno : 0;
}

/*
 * Accept a queue pair for @lane of @s, whose ticket was valid. %NULL, or why it failed.
 */
static const char *conn_new(struct dcm_rdma *r, struct rdma_cm_id *id,
			    struct dcm_session *s, u16 lane,
			    const struct rdma_conn_param *asked)
{
	struct dcm_donor *donor = r->donor;
	const char *why = conn_limits(donor, s);
	struct dcm_rdma_pd *pd;
	struct rdma_conn *c;
	int ret;

	if (why)
		return why;
	if (!id->verbs || !dcm_rdma_device_of(r, id->verbs))
		return "its RDMA device was added after the donor's start";
	dcm_rdma_lane_close(s, lane);
	pd = rdma_pd_of_session(s, id->verbs);
	if (!pd)
		return "the session's protection domain is on another device, or can't be made";
	c = calloc(1, sizeof(*c));
	if (!c)
		return "out of memory";
	c->rdma = r;
	c->id = id;
	c->session = s;
	c->tenant = s->tenant;
	c->pd = dcm_rdma_pd_get(pd);
	c->lane = lane;
	c->deadline = dcm_now(donor) + ESTABLISH_MS;
	ret = conn_accept(c, asked);
	if (ret) {
		if (id->qp)
			rdma_destroy_qp(id);
		dcm_rdma_pd_put(c->pd);
		free(c);
		return strerror(-ret);
	}
	id->context = c;
	dcm_session_get(s);
	dcm_tenant_get(c->tenant);
	c->tenant->connections++;
	donor->nr_conns++;
	s->nr_rdma++;
	r->nr_conns++;
	dcm_list_add_tail(&c->node, &r->conns);
	dcm_list_add_tail(&c->session_node, &s->rdma);
	return NULL;
}

static void on_request(struct dcm_rdma *r, struct rdma_cm_id *id,
		       const struct rdma_conn_param *asked, const u8 *data)
{
	struct dcm_wire_shown shown;
	struct dcm_session *s;
	const char *why;
	void *owner;
	u16 lane;

	id->context = NULL;
	if (dcm_wire_show_get(data, asked->private_data_len, &shown)) {
		why = "it has no ticket";
		r->tickets.bad++;
	} else if (!dcm_ticket_take(&r->tickets, &shown, dcm_now(r->donor),
				    &owner, &lane)) {
		why = "its ticket is unknown, used or too old";
	} else {
		s = owner;
		why = conn_new(r, id, s, lane, asked);
	}
	if (!why)
		return;
	r->rejected++;
	dcm_log_limited(DCM_LOG_WARNING, "RDMA connection request rejected: %s",
			why);
	rdma_reject(id, NULL, 0);
	rdma_destroy_id(id);
}

/* ---- events of the connection manager ---- */

static void listener_gone(struct dcm_rdma *r)
{
	dcm_err("the RDMA address %s is gone: no queue pairs until the donor is restarted",
		r->name);
	snprintf(r->donor->rdma_why, sizeof(r->donor->rdma_why),
		 "its address or device is gone");
	rdma_destroy_id(r->listener);
	r->listener = NULL;
}

static void on_event(struct dcm_rdma *r, struct rdma_cm_event *ev)
{
	enum rdma_cm_event_type type = ev->event;
	struct rdma_cm_id *id = ev->id;
	struct rdma_conn_param asked = ev->param.conn;
	struct rdma_device *dev;
	u8 data[256] = { 0 };
	struct rdma_conn *c;

	/* the length is at most 255, by its type */
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST && asked.private_data)
		memcpy(data, asked.private_data, asked.private_data_len);
	else
		asked.private_data_len = 0;
	rdma_ack_cm_event(ev);
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
		on_request(r, id, &asked, data);
		return;
	}
	if (id == r->listener) {
		if (type == RDMA_CM_EVENT_DEVICE_REMOVAL ||
		    type == RDMA_CM_EVENT_ADDR_CHANGE) {
			dev = id->verbs ? dcm_rdma_device_of(r, id->verbs) :
					  NULL;
			listener_gone(r);
			if (dev && type == RDMA_CM_EVENT_DEVICE_REMOVAL)
				dcm_rdma_device_gone(r, dev);
		}
		return;
	}
	c = id->context;
	if (!c)
		return;
	switch (type) {
	case RDMA_CM_EVENT_ESTABLISHED:
		c->open = true;
		r->opened++;
		return;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		dev = dcm_rdma_device_of(r, c->pd->ctx);
		if (dev)
			dcm_rdma_device_gone(r, dev);
		return;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		return;
	case RDMA_CM_EVENT_UNREACHABLE:
		WRITE_ONCE(c->session->cut, true);
		dcm_rdma_conn_close(c, rdma_event_str(type));
		return;
	default:
		/* disconnected, rejected and so on: the queue pair has ended */
		dcm_rdma_conn_close(c, rdma_event_str(type));
	}
}

void dcm_rdma_channel_ready(uv_poll_t *poll, int status, int events)
{
	struct dcm_rdma *r = poll->data;
	struct rdma_cm_event *ev;

	(void)events;
	if (status < 0)
		return;
	for (int i = 0; i < RDMA_TURN_MAX; i++) {
		if (rdma_get_cm_event(r->channel, &ev))
			return;
		on_event(r, ev);
	}
}

/* ---- for sessions ---- */

bool dcm_rdma_on(const struct dcm_conn *conn)
{
	const struct dcm_rdma *r = conn->donor->rdma;

	/* hosts on this machine use shm */
	return r && r->listener && !conn->is_unix;
}

bool dcm_rdma_ready(const struct dcm_session *s)
{
	return s->pd && !s->pd->dead;
}

u32 dcm_rdma_ticket(struct dcm_conn *conn, u16 lane, struct dcm_wire_msg *msg)
{
	struct dcm_donor *donor = conn->donor;
	struct dcm_session *s = conn->session;
	struct dcm_rdma *r = donor->rdma;
	const struct dcm_ticket *t;

	if (!dcm_rdma_on(conn) || s->no_verbs)
		return DCM_WS_TRANSPORT;
	if (!lane || lane > DCM_TICKET_LANES)
		return DCM_WS_RANGE;
	dcm_rdma_lane_close(s, lane);
	if (dcm_data_ending(s, lane))
		return DCM_WS_BUSY;
	if (conn->tenant->connections >= conn->tenant->quota_connections) {
		conn->tenant->refusals++;
		return DCM_WS_QUOTA;
	}
	if (conn_limits(donor, s))
		return DCM_WS_BUSY;
	t = dcm_ticket_issue(&r->tickets, s, lane, dcm_now(donor));
	if (!t)
		return DCM_WS_BUSY;
	msg->type = DCM_MSG_TICKET;
	msg->ticket.number = t->number;
	memcpy(msg->ticket.secret, t->secret, sizeof(t->secret));
	memcpy(msg->ticket.addr, r->addr, sizeof(r->addr));
	msg->ticket.port = r->port;
	msg->ticket.valid_ms = DCM_TICKET_MS;
	return DCM_WS_OK;
}

void dcm_rdma_lane_close(struct dcm_session *s, u16 lane)
{
	struct rdma_conn *c, *tmp;

	if (!s->donor->rdma || !lane)
		return;
	dcm_tickets_drop(&s->donor->rdma->tickets, s, lane);
	dcm_list_for_each_safe(c, tmp, &s->rdma, struct rdma_conn,
			       session_node) {
		if (c->lane == lane)
			dcm_rdma_conn_close(c,
					    "another connection takes its lane");
	}
}

void dcm_rdma_session_end(struct dcm_session *s)
{
	struct rdma_conn *c, *tmp;

	if (!s->donor->rdma)
		return;
	dcm_tickets_drop(&s->donor->rdma->tickets, s, 0);
	dcm_list_for_each_safe(c, tmp, &s->rdma, struct rdma_conn, session_node)
		dcm_rdma_conn_close(c, "the session ends");
	dcm_rdma_pd_put(s->pd);
	s->pd = NULL;
}

void dcm_rdma_deadlines(struct dcm_donor *donor)
{
	struct dcm_rdma *r = donor->rdma;
	u64 now = dcm_now(donor);
	struct rdma_conn *c, *tmp;

	if (!r)
		return;
	dcm_tickets_expire(&r->tickets, now);
	dcm_rdma_pings(donor);
	dcm_list_for_each_safe(c, tmp, &r->conns, struct rdma_conn, node) {
		if (!c->open && now >= c->deadline)
			dcm_rdma_conn_close(c, "not established in time");
	}
}

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * hello.c - HELLO: a proven peer asks for a session's control, data or GC role
 *
 * The peer has shown a tenant's key, so refusals are answered. A session is
 * named by its id and a secret of 16 random bytes that only its host was told:
 * no other tenant, and no other host of the same tenant, can use it.
 */
#include <string.h>

#include "gc_session.h"
#include "donor.h"
#include "log_limit.h"
#include "rdma.h"

static void hello_welcome(struct dcm_conn *conn, u64 tag,
			  const struct dcm_session *s, bool fresh, u16 flags)
{
	struct dcm_wire_msg msg = {
		.type = DCM_MSG_WELCOME,
		.tag = tag,
		.welcome = {
			.version = DCM_WIRE_VERSION_MAX,
			.flags = flags,
			.inflight_max = DCM_WIRE_INFLIGHT_MAX,
			.session = s->id,
			.slab_bytes = conn->donor->pool.slab_bytes,
			.donor_id = conn->donor->donor_id,
		},
	};

	if (fresh)
		memcpy(msg.welcome.secret, s->secret, sizeof(s->secret));
	dcm_conn_send(conn, &msg);
}

static void hello_control(struct dcm_conn *conn, const struct dcm_wire_msg *msg)
{
	struct dcm_donor *donor = conn->donor;
	struct dcm_session *s;
	bool fresh = !msg->hello.session;
	u16 flags = 0;

	if (fresh) {
		u32 status = DCM_WS_BUSY;

		if (donor->draining || donor->stopping)
			status = DCM_WS_DRAINING;
		else if (dcm_conn_full(donor))
			status = DCM_WS_BUSY;
		else if (conn->tenant->sessions >=
			 conn->tenant->quota_connections)
			status = DCM_WS_QUOTA; /* lost sessions still count */
		else if (donor->nr_sessions < donor->cfg.sessions)
			status = DCM_WS_OK;
		s = status ? NULL : dcm_session_new(conn);
		if (!s) {
			donor->stats.hello_refused++;
			dcm_conn_refuse(conn, msg->tag,
					status ? status : DCM_WS_BUSY);
			return;
		}
		donor->stats.sessions_made++;
		dcm_log_limited(DCM_LOG_INFO,
				"session %llx of %s from %s begins",
			 (unsigned long long)s->id, conn->tenant->name,
			 conn->peer);
	} else {
		s = dcm_session_find(donor, msg->hello.session,
				     msg->hello.secret, conn->tenant);
		if (!s) {
			donor->stats.hello_refused++;
			dcm_conn_refuse(conn, msg->tag, DCM_WS_NO_SESSION);
			return;
		}
		donor->stats.sessions_resumed++;
		dcm_log_limited(DCM_LOG_INFO,
				"session %llx of %s is resumed from %s",
			 (unsigned long long)s->id, conn->tenant->name,
			 conn->peer);
	}
	dcm_conn_seat_release(conn);
	conn->state = DCM_CONN_CONTROL;
	dcm_session_attach(s, conn);
	if ((msg->hello.flags & DCM_HELLO_VERBS) && dcm_rdma_on(conn))
		flags |= DCM_WELCOME_VERBS;
	if (msg->hello.flags & DCM_HELLO_LIST)
		flags |= DCM_WELCOME_LIST;
	conn->wants_about = msg->hello.flags & DCM_HELLO_ABOUT;
	if (conn->wants_about)
		flags |= DCM_WELCOME_ABOUT;
	hello_welcome(conn, msg->tag, s, fresh, flags);
	if (!fresh && conn->state == DCM_CONN_CONTROL)
		dcm_evict_pump(s, true);
}

static void hello_data(struct dcm_conn *conn, const struct dcm_wire_msg *msg)
{
	struct dcm_donor *donor = conn->donor;
	struct dcm_tenant *tenant = conn->tenant;
	struct dcm_session *s;
	struct dcm_chan *ch;
	bool plain = (msg->hello.flags & DCM_HELLO_PLAIN_DATA) &&
		     !donor->cfg.data_encryption;

	s = dcm_session_find(donor, msg->hello.session, msg->hello.secret,
			     tenant);
	if (!s) {
		donor->stats.hello_refused++;
		dcm_conn_refuse(conn, msg->tag, DCM_WS_NO_SESSION);
		return;
	}
	dcm_rdma_lane_close(s, msg->hello.lane);
	if (dcm_data_ending(s, msg->hello.lane) || dcm_conn_full(donor)) {
		dcm_conn_refuse(conn, msg->tag, DCM_WS_BUSY);
		return;
	}
	hello_welcome(conn, msg->tag, s, false,
		      plain ? DCM_WELCOME_PLAIN_DATA : 0);
	if (conn->state != DCM_CONN_HELLO)
		return;
	/* bytes after HELLO would be read as TLS but are sent as plain */
	if (plain && dcm_chan_plain(conn->chan)) {
		donor->stats.protocol_errors++;
		dcm_conn_close(conn);
		return;
	}
	ch = dcm_conn_detach(conn);
	if (dcm_data_adopt(donor, s, tenant, ch, msg->hello.lane)) {
		dcm_chan_free(ch);
		dcm_conn_uncount(donor, tenant);
		return;
	}
	donor->stats.data_connections++;
}

static void hello_gc(struct dcm_conn *conn, const struct dcm_wire_msg *msg)
{
	struct dcm_donor *donor = conn->donor;
	struct dcm_session *s = dcm_session_find(donor, msg->hello.session,
						 msg->hello.secret,
				 conn->tenant);
	u32 status = DCM_WS_NO_SESSION;

	if (s)
		status = dcm_conn_full(donor) ? DCM_WS_BUSY :
						dcm_gc_session_attach(conn, s);
	if (status) {
		donor->stats.hello_refused++;
		dcm_conn_refuse(conn, msg->tag, status);
		return;
	}
	dcm_conn_seat_release(conn);
	conn->state = DCM_CONN_GC;
	hello_welcome(conn, msg->tag, s, false, 0);
}

void dcm_hello_handle(struct dcm_conn *conn, const struct dcm_wire_msg *msg)
{
	struct dcm_tenant *t = conn->tenant;

	if (msg->hello.version_min > DCM_WIRE_VERSION_MAX ||
	    msg->hello.version_max < DCM_WIRE_VERSION_MIN) {
		conn->donor->stats.hello_refused++;
		dcm_conn_refuse(conn, msg->tag, DCM_WS_VERSION);
		return;
	}
	if (t->connections > t->quota_connections) {
		t->refusals++;
		conn->donor->stats.hello_refused++;
		dcm_conn_refuse(conn, msg->tag, DCM_WS_QUOTA);
		return;
	}
	if (msg->hello.role == DCM_ROLE_CONTROL)
		hello_control(conn, msg);
	else if (msg->hello.role == DCM_ROLE_GC)
		hello_gc(conn, msg);
	else
		hello_data(conn, msg);
}

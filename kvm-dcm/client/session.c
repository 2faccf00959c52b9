// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * session.c - the session with a donor: HELLO, WELCOME, and every message after
 *
 * A HELLO names the session to be resumed, or none. The donor resumes that session,
 * or says that it does not know it: then all slabs are lost, and the next HELLO
 * begins a new one. This file takes messages apart and calls the file that acts on
 * them: placement.c, slab.c, verbs.c, donor.c.
 *
 * A message that the protocol does not allow at this point ends the connection,
 * not the session.
 *
 * Locking: @published under the client's lock, as other threads read it; the
 * rest is the client thread's.
 */
#include <stdio.h>

#include "client_int.h"

/* Make the session known to other threads and to the pager. */
void client_session_publish(struct client_donor *d)
{
	const struct dcm_client_ops *cb = d->client->cb;
	struct dcm_client_session s = { .id = d->session,
					.donor_id = d->donor_id };

	memcpy(s.secret, d->secret, sizeof(s.secret));
	pthread_mutex_lock(&d->client->lock);
	d->published = s;
	pthread_mutex_unlock(&d->client->lock);
	if (cb->session)
		cb->session(d->client->arg, d->idx, s.id ? &s : NULL);
	explicit_bzero(&s, sizeof(s));
}

bool dcm_client_session_ref_get(struct dcm_client *client, u32 donor,
		     struct dcm_client_session_ref *ref)
{
	struct client_donor *d = &client->donor[donor];

	*ref = (struct dcm_client_session_ref){
		.sa = &d->sa,
		.sa_len = d->sa_len,
		.tls = &client->tls,
	};
	pthread_mutex_lock(&client->lock);
	ref->s = d->published;
	pthread_mutex_unlock(&client->lock);
	return ref->s.id;
}

u32 dcm_client_donors(const struct dcm_client *client)
{
	return smp_load_acquire(&client->nr_donors);
}

void dcm_client_adopt_session(struct dcm_client *client, u32 donor,
			      const struct dcm_client_session *s)
{
	struct client_donor *d = &client->donor[donor];

	d->session = s->id;
	d->donor_id = s->donor_id;
	memcpy(d->secret, s->secret, sizeof(d->secret));
	d->published = *s;
	/* Measure the donor's silence from now on. */
	d->heard_ms = client_now_ms();
}

void client_session_hello(struct client_donor *d, u64 now)
{
	struct dcm_wire_msg msg = {
		.type = DCM_MSG_HELLO,
		.tag = ++d->tag,
		.hello = {
			.version_min = DCM_WIRE_VERSION_MIN,
			.version_max = DCM_WIRE_VERSION_MAX,
			.role = DCM_ROLE_CONTROL,
			.flags = DCM_HELLO_LIST | DCM_HELLO_ABOUT,
			.session = d->session,
		},
	};

	if (d->client->has_verbs && !d->local)
		msg.hello.flags |= DCM_HELLO_VERBS;
	memcpy(msg.hello.secret, d->secret, sizeof(d->secret));
	client_donor_send(d, &msg, now);
	d->st = SESSION_HELLO;
}

/* Can the donor's slabs be used: are they as large as extents? */
static bool extent_fits(struct client_donor *d, u64 bytes, u64 now)
{
	struct dcm_client *client = d->client;
	u64 have = READ_ONCE(client->extent_bytes);

	if (bytes < DCM_WIRE_SLAB_MIN || bytes > DCM_WIRE_SLAB_MAX ||
	    bytes & (bytes - 1)) {
		dcm_conn_fail(&d->conn, "says its slabs have %llu bytes",
			      (unsigned long long)bytes);
		return false;
	}
	if (!have) {
		pthread_mutex_lock(&client->lock);
		WRITE_ONCE(client->extent_bytes, bytes);
		pthread_cond_broadcast(&client->cond);
		pthread_mutex_unlock(&client->lock);
		return true;
	}
	if (have == bytes)
		return true;
	if (dcm_log_allow(&d->say_refused, now, CLIENT_SAY_MS))
		dcm_log(DCM_LOG_ERR,
			"donor %s (%s): lends slabs of %llu MiB, this VM has extents of %llu MiB: it is not used; give all donors the same slab size",
			d->name, d->address, (unsigned long long)bytes >> 20,
			(unsigned long long)have >> 20);
	dcm_conn_fail(&d->conn, "lends slabs of another size");
	d->backoff_ms = CLIENT_BACKOFF_MAX_MS;
	return false;
}

static void on_welcome(struct client_donor *d, const struct dcm_wire_msg *m,
		       u64 silent_from, u64 now)
{
	bool verbs = d->client->has_verbs &&
		     m->welcome.flags & DCM_WELCOME_VERBS;
	bool resume = d->session != 0;
	char after[32] = "";

	if (m->welcome.version < DCM_WIRE_VERSION_MIN ||
	    m->welcome.version > DCM_WIRE_VERSION_MAX || !m->welcome.session ||
	    !m->welcome.inflight_max) {
		dcm_conn_fail(&d->conn,
			      "answers HELLO with an invalid message");
		return;
	}
	if (resume && (m->welcome.donor_id != d->donor_id ||
		       m->welcome.session != d->session)) {
		/* it has resumed a session that another donor process gave */
		client_donor_lost(d, "it was restarted");
		dcm_conn_fail(&d->conn, "was restarted");
		return;
	}
	if (!extent_fits(d, m->welcome.slab_bytes, now))
		return;
	if (d->client->transport == DCM_TRANSPORT_VERBS && !d->local &&
	    !verbs) {
		if (dcm_log_allow(&d->say_refused, now, CLIENT_SAY_MS))
			dcm_log(DCM_LOG_ERR,
				"donor %s (%s): lends nothing over verbs, and transport = verbs: it is not used",
				d->name, d->address);
		dcm_conn_fail(&d->conn, "lends nothing over verbs");
		d->backoff_ms = CLIENT_BACKOFF_MAX_MS;
		return;
	}
	if (!resume) {
		d->session = m->welcome.session;
		d->donor_id = m->welcome.donor_id;
		memcpy(d->secret, m->welcome.secret, sizeof(d->secret));
		client_session_publish(d);
	}
	d->inflight_max = min(m->welcome.inflight_max, DCM_WIRE_INFLIGHT_MAX);
	d->conn.phase = DCM_PHASE_CONTROL;
	d->st = SESSION_UP;
	d->up_ms = now;
	d->full_until_ms = 0;
	d->load.up = true;
	d->load.draining = false;
	d->was_lost = false;
	d->client->was_up = true;
	d->why[0] = 0;
	if (!d->local)
		d->want_data = true;
	client_verbs_welcome(d, verbs && !d->local, resume);
	memset(&d->say_refused, 0, sizeof(d->say_refused));
	client_donor_held_close(d);
	d->refused_ms = 0;
	d->gone = false;
	if (d->silent)
		snprintf(after, sizeof(after), " after %llu s",
			 (unsigned long long)(now - silent_from) / 1000);
	d->silent = false;
	if (resume)
		dcm_log(DCM_LOG_NOTICE,
			"donor %s (%s): reached again%s, nothing lost", d->name,
			d->address, after);
	else
		dcm_log(DCM_LOG_INFO, "donor %s (%s): connected", d->name,
			d->address);
	client_donor_query(d, now);
	if (resume) {
		client_slabs_resumed(d);
		client_orphans_resumed(d);
	}
	if (resume && m->welcome.flags & DCM_WELCOME_LIST)
		client_list_ask(d, 0, now);
	client_place_soon(d->client, now);
	if (d->client->cb->welcomed)
		d->client->cb->welcomed(d->client->arg, d->idx, d->conn.fd);
	if (d->client->cb->up)
		d->client->cb->up(d->client->arg, d->name);
}

static void on_free_mem(struct client_donor *d, const struct dcm_wire_msg *m,
			u64 now)
{
	struct dcm_choose_donor *p = &d->load;
	bool had = p->known && p->slabs_free;

	if (!p->draining && m->free_mem.flags & DCM_FREE_DRAINING)
		dcm_log(DCM_LOG_NOTICE, "donor %s (%s): is draining", d->name,
			d->address);
	p->draining = m->free_mem.flags & DCM_FREE_DRAINING;
	p->file = m->free_mem.flags & DCM_FREE_FILE;
	if (client_request_take(d, m->tag, REQUEST_QUERY).kind) {
		u64 rtt = client_now_ns() - d->query_ns;

		d->rtt_ns = d->rtt_ns ? d->rtt_ns - d->rtt_ns / 8 + rtt / 8 :
					rtt;
		d->query_tag = 0;
	}
	client_place_free_mem(d, m, now);
	if (!had && p->slabs_free)
		client_place_soon(d->client, now);
}

static void on_hello_error(struct client_donor *d, u32 status, u64 now)
{
	if (status == DCM_WS_NO_SESSION && d->session) {
		client_donor_lost(d,
				  "it has ended our session or was restarted");
		d->backoff_ms = 0;
	}
	d->load.draining = status == DCM_WS_DRAINING;
	dcm_conn_fail(&d->conn, "refuses us: %s", dcm_wire_status_text(status));
	(void)now;
}

static void on_mr_info(struct client_donor *d, const struct dcm_wire_msg *m,
		       u64 now)
{
	u32 extent;
	int fd = -1;

	/* take the descriptor even if it is not used: they come in message order */
	if (m->mr_info.transport == DCM_WT_SHM) {
		fd = dcm_conn_take_fd(&d->conn);
		if (fd < 0) {
			dcm_conn_fail(&d->conn,
				      "sends no descriptor with a slab");
			return;
		}
	}
	if (client_place_mr_info(d, m->tag, &extent, now)) {
		client_slab_attach(d, extent, m, fd, now);
		return;
	}
	/* the slab is no longer wanted: give it back */
	if (fd >= 0)
		close(fd);
	client_slab_refuse(d, m->mr_info.slab, now);
}

static void on_error(struct client_donor *d, const struct dcm_wire_msg *m,
		     u64 now)
{
	struct client_request r;

	if (m->error.status == DCM_WS_NO_SESSION) {
		client_donor_lost(d, "it has ended our session");
		dcm_conn_fail(&d->conn, "has ended our session");
		return;
	}
	r = client_request_take(d, m->tag, REQUEST_ANY);
	switch (r.kind) {
	case REQUEST_QUERY:
		d->query_tag = 0;
		break;
	case REQUEST_MAP:
		client_place_refused(d, r.job, m->error.status, now);
		break;
	case REQUEST_TICKET:
		client_verbs_refused(r.slot, m->error.status, now);
		break;
	case REQUEST_UNMAP:
		client_slab_unmapped(r.slab);
		break;
	default:
		/* the request was given up; or, above @tag, was never sent */
		if (m->tag > d->tag)
			dcm_conn_fail(&d->conn, "says: %s",
				      dcm_wire_status_text(m->error.status));
	}
}

static void on_done(struct client_donor *d, const struct dcm_wire_msg *m)
{
	struct client_request r;

	if (!m->tag) {
		client_slab_taken(d, m->slab.slab);
		return;
	}
	r = client_request_take(d, m->tag, REQUEST_UNMAP);
	if (r.kind)
		client_slab_unmapped(r.slab);
}

/* A message on the control connection. */
void client_session_message(struct client_donor *d,
			    const struct dcm_wire_msg *m, u64 now)
{
	u64 before = d->heard_ms;

	d->heard_ms = now;
	if (d->st == SESSION_HELLO) {
		if (m->type == DCM_MSG_WELCOME)
			on_welcome(d, m, before, now);
		else
			on_hello_error(d, m->error.status, now);
		return;
	}
	switch (m->type) {
	case DCM_MSG_HEARTBEAT:
		break;
	case DCM_MSG_FREE_MEM:
		on_free_mem(d, m, now);
		break;
	case DCM_MSG_ABOUT:
		/* only shown to users, nothing is decided by it: DCM_HELLO_ABOUT */
		d->told = true;
		d->about = m->about;
		break;
	case DCM_MSG_MR_INFO:
		on_mr_info(d, m, now);
		break;
	case DCM_MSG_TICKET:
		if (!client_verbs_ticket(d, m, now))
			dcm_conn_fail(&d->conn,
				      "sends a ticket that nobody asked for");
		break;
	case DCM_MSG_SLAB_IS:
		if (!client_list_answer(d, m, now))
			dcm_conn_fail(&d->conn,
				      "sends a list that nobody asked for");
		break;
	case DCM_MSG_CHECK_ACTIVITY:
		client_slab_activity(d, m->slab.slab, m->tag, now);
		break;
	case DCM_MSG_EVICT:
		client_slab_evict(d, m->slab.slab, m->tag, now);
		break;
	case DCM_MSG_DONE:
		on_done(d, m);
		break;
	case DCM_MSG_ERROR:
		on_error(d, m, now);
		break;
	default:
		dcm_conn_fail(&d->conn, "sends %s here",
			      dcm_wire_type_name(m->type));
	}
}

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * donor.c - one donor's session
 *
 * The papers take the end of a reliable connection for the end of the donor
 * (infiniswap-nsdi17, 4.5, names a time-out as a possible optimization). Here
 * a session is more than its connections: slabs stay the VM's until the donor
 * is *gone*, or has been *silent* for longer than the patience (a minute). A
 * switch that reboots, a donor that is stopped or suspended, a network cut for
 * half a minute cost a pause and no page.
 *
 * States: DOWN -> CONNECTING -> HELLO -> UP, and from all of them to DOWN when
 * the connection breaks. @session survives DOWN until
 *   - the donor says it does not know it, or has another donor_id;
 *   - the donor is gone: for %DCM_WIRE_SILENCE_MS its machine has answered
 *     all attempts that nothing listens there. No answer, or no route, is
 *     silence;
 *   - the patience has passed without a message;
 * then every slab there is lost, once, and the next connection is a new
 * session. A sign of life is any message on the control connection; QUERY_MEM
 * asks for one every second (its answer also has what placement needs, and
 * gives the round trip time). So is an operation on the donor's memory that
 * succeeds: if those go on while the control side is silent, the slabs are
 * moved to other donors (dcm-tc18, 3.5). Memory of this host (shm) can be used
 * for as long as the donor's process has it, so it is not given up while the
 * connection to that process stands.
 *
 * A control connection that is silent is given up early, as a new one may get
 * through. But its socket stays open until the donor's next WELCOME: a donor
 * that sees all connections of a client closed takes the client for gone, and
 * if only one direction of the network works it would see nothing else.
 *
 * Silence is judged only after everything that has arrived was read, and time in
 * which this thread did not run does not count, so a host that was itself
 * stopped does not blame the donor.
 *
 * Locking: none, only the client thread uses it.
 */
#include <stdio.h>

#include "client_int.h"

#define REFUSED ": the key or the tenant is not one it knows"

static void session_tell(struct client_donor *d)
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
	return __atomic_load_n(&client->nr_donors, __ATOMIC_ACQUIRE);
}

void dcm_client_adopt_session(struct dcm_client *client, u32 donor,
			      const struct dcm_client_session *s)
{
	struct client_donor *d = &client->donor[donor];

	d->session = s->id;
	d->donor_id = s->donor_id;
	memcpy(d->secret, s->secret, sizeof(d->secret));
	d->published = *s;
	/* Its silence counts from now. */
	d->heard_ms = client_now_ms();
}

void client_donor_init(struct client_donor *d)
{
	u32 i;

	d->conn.fd = -1;
	for (i = 0; i < CLIENT_HELD_MAX; i++)
		d->held[i] = -1;
}

static void held_close(struct client_donor *d)
{
	u32 i;

	for (i = 0; i < CLIENT_HELD_MAX; i++) {
		if (d->held[i] >= 0)
			close(d->held[i]);
		d->held[i] = -1;
	}
}

void client_donor_exit(struct client_donor *d)
{
	held_close(d);
	dcm_conn_close(&d->conn);
}

/* Give the connection up, but keep its socket: the donor may rely on it. */
static void conn_hold(struct client_donor *d)
{
	if (d->held[CLIENT_HELD_MAX - 1] >= 0)
		close(d->held[CLIENT_HELD_MAX - 1]);
	memmove(d->held + 1, d->held,
		(CLIENT_HELD_MAX - 1) * sizeof(d->held[0]));
	d->held[0] = dcm_conn_hold(&d->conn);
}

/* Whether the newest connection's other end is still open. */
static bool conn_stands(const struct client_donor *d)
{
	struct pollfd p = { .fd = d->st == SESSION_UP ? d->conn.fd : d->held[0],
			    .events = POLLRDHUP };

	return p.fd >= 0 && poll(&p, 1, 0) <= 0;
}

static void donor_lost(struct client_donor *d, const char *why)
{
	if (!d->session)
		return;
	d->session = 0;
	d->silent = false;
	d->refused_ms = 0;
	held_close(d);
	session_tell(d);
	d->was_lost = d->place.mine > 0;
	explicit_bzero(d->secret, sizeof(d->secret));
	d->place.known = false;
	client_data_kill(d);
	client_slabs_lost(d, why);
	d->place.draining = false;
}

/* Nothing listens at the donor's address; after a while it is lost. */
static void donor_refused(struct client_donor *d, u64 now)
{
	if (!d->session || !d->conn.refused) {
		d->refused_ms = 0;
		return;
	}
	if (!d->refused_ms)
		d->refused_ms = now;
	if (now - d->refused_ms >= DCM_WIRE_SILENCE_MS &&
	    now - d->data_ms >= DCM_WIRE_SILENCE_MS)
		donor_lost(d, "it has ended: nothing listens at its address");
}

/* The connection has ended; the session may go on. */
static void donor_down(struct client_donor *d, u64 now)
{
	bool was_up = d->st == SESSION_UP;
	bool auth = d->conn.auth;

	if (d->conn.why[0])
		snprintf(d->why, sizeof(d->why), "%.110s%s", d->conn.why,
			 auth ? REFUSED : "");
	donor_refused(d, now);
	/* the donor may have read HELLO and use this connection since */
	if (d->session && (was_up || d->st == SESSION_HELLO) && !d->conn.broken)
		conn_hold(d);
	else
		dcm_conn_close(&d->conn);
	d->st = SESSION_DOWN;
	d->query_tag = 0;
	d->place.up = false;
	client_verbs_down(d);
	/*
	 * Retry at once after a break, then more and more slowly, at random
	 * times. A donor whose session ended soon is not retried at once.
	 */
	if (was_up && now - d->up_ms > CLIENT_BACKOFF_MAX_MS)
		d->backoff_ms = 0;
	d->retry_ms =
		now + d->backoff_ms +
		      dcm_choose_random(&d->client->rng) % CLIENT_BACKOFF_MIN_MS;
	d->backoff_ms = min(max(d->backoff_ms * 2, CLIENT_BACKOFF_MIN_MS),
			    d->session ? CLIENT_BACKOFF_MAX_MS / 4 :
					 CLIENT_BACKOFF_MAX_MS);
	client_place_down(d, now);
	d->nr_requests = 0;
	if (auth && dcm_log_allow(&d->say_refused, now, CLIENT_SAY_MS))
		dcm_log(DCM_LOG_ERR,
			"donor %s (%s): %s; compare our key file with the donor's",
			d->name, d->address, d->why);
	else if (!auth && dcm_log_allow(&d->say_conn, now,
					was_up ? 1000 : CLIENT_SAY_MS))
		dcm_log(DCM_LOG_WARNING, "donor %s (%s): %s; trying again",
			d->name, d->address, d->why);
}

void client_donor_send(struct client_donor *d, struct dcm_wire_msg *msg,
		       u64 now)
{
	dcm_conn_send(&d->conn, msg);
	d->sent_ms = now;
}

u64 client_donor_query(struct client_donor *d, u64 now)
{
	struct dcm_wire_msg msg = { .type = DCM_MSG_QUERY_MEM };

	if (!d->query_tag) {
		d->query_tag = client_request_add(d, REQUEST_QUERY, NULL);
		d->query_ns = client_now_ns();
		d->query_ms = now;
		msg.tag = d->query_tag;
		client_donor_send(d, &msg, now);
	}
	return d->query_tag;
}

bool client_donor_usable(const struct client_donor *d, u64 now)
{
	return d->st == SESSION_UP && d->member == MEMBER_IN &&
	       !d->place.draining && d->verbs != VERBS_TRY &&
	       now >= d->full_until_ms && now - d->heard_ms <= CLIENT_SILENT_MS;
}

static void hello_send(struct client_donor *d, u64 now)
{
	struct dcm_wire_msg msg = {
		.type = DCM_MSG_HELLO,
		.tag = ++d->tag,
		.hello = {
			.version_min = DCM_WIRE_VERSION_MIN,
			.version_max = DCM_WIRE_VERSION_MAX,
			.role = DCM_ROLE_CONTROL,
			.flags = d->client->has_verbs && !d->local ?
					 DCM_HELLO_VERBS :
					 0,
			.session = d->session,
		},
	};

	memcpy(msg.hello.secret, d->secret, sizeof(d->secret));
	client_donor_send(d, &msg, now);
	d->st = SESSION_HELLO;
}

/* Whether the donor's slab size can be used. */
static bool extent_fits(struct client_donor *d, u64 bytes, u64 now)
{
	struct dcm_client *client = d->client;
	u64 have = READ_ONCE(client->extent_bytes);

	if (bytes < DCM_WIRE_SLAB_MIN || bytes & (bytes - 1)) {
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
		dcm_conn_fail(&d->conn, "answers HELLO with nonsense");
		return;
	}
	if (resume && (m->welcome.donor_id != d->donor_id ||
		       m->welcome.session != d->session)) {
		/* the donor answered for the old session: start afresh */
		donor_lost(d, "it was restarted");
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
		session_tell(d);
	}
	d->inflight_max = min(m->welcome.inflight_max, DCM_WIRE_INFLIGHT_MAX);
	d->conn.phase = DCM_PHASE_CONTROL;
	d->st = SESSION_UP;
	d->up_ms = now;
	d->full_until_ms = 0;
	d->place.up = true;
	d->place.draining = false;
	d->was_lost = false;
	d->client->was_up = true;
	d->why[0] = 0;
	if (!d->local)
		d->want_data = true;
	client_verbs_welcome(d, verbs && !d->local, resume);
	memset(&d->say_refused, 0, sizeof(d->say_refused));
	held_close(d);
	d->refused_ms = 0;
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
	if (resume)
		client_slabs_resumed(d);
	client_place_soon(d->client, now);
	if (d->client->cb->up)
		d->client->cb->up(d->client->arg, d->name);
}

static void on_free_mem(struct client_donor *d, const struct dcm_wire_msg *m,
			u64 now)
{
	struct dcm_choose_donor *p = &d->place;
	bool had = p->known && p->slabs_free;

	if (!p->draining && m->free_mem.flags & DCM_FREE_DRAINING)
		dcm_log(DCM_LOG_NOTICE, "donor %s (%s): is draining", d->name,
			d->address);
	p->draining = m->free_mem.flags & DCM_FREE_DRAINING;
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
		donor_lost(d, "it has ended our session or was restarted");
		d->backoff_ms = 0;
	}
	d->place.draining = status == DCM_WS_DRAINING;
	dcm_conn_fail(&d->conn, "refuses us: %s", dcm_wire_status_text(status));
	(void)now;
}

static void on_mr_info(struct client_donor *d, const struct dcm_wire_msg *m,
		       u64 now)
{
	u32 extent;
	int fd = -1;

	/* take it in any case, to keep descriptors and messages in step */
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
	/* no longer wanted: give it back */
	if (fd >= 0)
		close(fd);
	client_slab_refuse(d, m->mr_info.slab, now);
}

static void on_error(struct client_donor *d, const struct dcm_wire_msg *m,
		     u64 now)
{
	struct client_request r;

	if (m->error.status == DCM_WS_NO_SESSION) {
		donor_lost(d, "it has ended our session");
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
		/* of a request that was given up, or of none that was sent */
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

static void on_message(struct client_donor *d, const struct dcm_wire_msg *m,
		       u64 now)
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
	case DCM_MSG_MR_INFO:
		on_mr_info(d, m, now);
		break;
	case DCM_MSG_TICKET:
		if (!client_verbs_ticket(d, m, now))
			dcm_conn_fail(&d->conn,
				      "sends a ticket nobody asked for");
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

void client_donor_io(struct client_donor *d, short revents, u64 now)
{
	struct dcm_wire_msg msg;

	if (d->st == SESSION_DOWN)
		return;
	if (revents)
		dcm_conn_step(&d->conn);
	if (d->st == SESSION_CONNECTING && d->conn.state == DCM_CONN_OPEN)
		hello_send(d, now);
	/* bounded: a donor that never stops must not starve others */
	for (int i = 0; i < 64 && dcm_conn_recv(&d->conn, &msg); i++)
		on_message(d, &msg, now);
	if (d->conn.state == DCM_CONN_FAILED)
		donor_down(d, now);
}

/* This host was stopped for so long: that is no silence of the donor. */
void client_donor_stalled(struct client_donor *d, u64 ms)
{
	d->heard_ms += ms;
	if (d->refused_ms)
		d->refused_ms += ms;
}

/* Whether its memory can be used, whatever its control side does. */
static bool data_works(const struct client_donor *d, u64 now)
{
	return d->local ? conn_stands(d) : now < d->data_ms + CLIENT_SERVES_MS;
}

/* The session has been silent for a while. */
static void donor_silent(struct client_donor *d, u64 now)
{
	bool works = data_works(d, now);
	char why[64];

	/* most likely gone: donor_refused() decides */
	if (d->refused_ms && !works)
		return;
	if (!d->silent) {
		d->silent = true;
		dcm_log(DCM_LOG_WARNING,
			"donor %s (%s): silent for %u s; it holds %llu slabs of ours: %s; look at that host and at the network",
			d->name, d->address,
			min(DCM_WIRE_SILENCE_MS, (u32)d->client->patience_ms) /
				1000,
			(unsigned long long)d->place.mine,
			works ? "they can be used, and are moved to other donors" :
				"accesses to them wait, and they are lost if it stays silent for longer than our patience");
	}
	if (works) {
		client_member_relieve(d, now);
		return;
	}
	if (now <= max(d->heard_ms, d->data_ms) + d->client->patience_ms)
		return;
	snprintf(why, sizeof(why), "not heard of for %llu s",
		 (unsigned long long)(now - d->heard_ms) / 1000);
	donor_lost(d, why);
	if (d->st != SESSION_DOWN) {
		dcm_conn_fail(&d->conn, "%s", why);
		donor_down(d, now);
	}
}

void client_donor_timers(struct client_donor *d, u64 now)
{
	struct dcm_wire_msg beat = { .type = DCM_MSG_HEARTBEAT };

	if (d->session && now > d->heard_ms &&
	    now - d->heard_ms >=
		    min((u64)DCM_WIRE_SILENCE_MS, d->client->patience_ms))
		donor_silent(d, now);
	switch (d->st) {
	case SESSION_DOWN:
		if (d->member == MEMBER_NONE || now < d->retry_ms)
			return;
		d->st = SESSION_CONNECTING;
		dcm_conn_start(&d->conn, &d->client->tls,
			       (struct sockaddr *)&d->sa, d->sa_len, now);
		client_donor_io(d, 0, now);
		return;
	case SESSION_CONNECTING:
	case SESSION_HELLO:
		if (now - d->conn.since_ms > CLIENT_CONNECT_MS) {
			dcm_conn_fail(&d->conn, "does not answer");
			donor_down(d, now);
		}
		return;
	case SESSION_UP:
		/*
		 * After lost packets TCP may retry later than the patience
		 * allows; a new connection tries at once.
		 */
		if (now > d->heard_ms &&
		    now - d->heard_ms > CLIENT_RECONNECT_MS) {
			dcm_conn_fail(&d->conn, "not heard of for %u ms",
				      CLIENT_RECONNECT_MS);
			donor_down(d, now);
			return;
		}
		if (now - d->sent_ms < DCM_WIRE_HEARTBEAT_MS)
			return;
		if (!d->query_tag) {
			client_donor_query(d, now);
		} else {
			client_donor_send(d, &beat, now);
		}
		if (d->conn.state == DCM_CONN_FAILED)
			donor_down(d, now);
		return;
	}
}

void client_donor_goodbye(struct client_donor *d)
{
	struct dcm_wire_msg msg = { .type = DCM_MSG_GOODBYE };

	if (d->st == SESSION_UP) {
		dcm_conn_send(&d->conn, &msg);
		d->session = 0;
	}
}

/* The client has no slab there: end the session and all connections. */
void client_donor_forget(struct client_donor *d)
{
	client_donor_goodbye(d);
	d->session = 0;
	session_tell(d);
	explicit_bzero(d->secret, sizeof(d->secret));
	client_verbs_down(d);
	client_data_kill(d);
	client_donor_exit(d);
	d->st = SESSION_DOWN;
	d->silent = false;
	d->refused_ms = 0;
	d->data_ms = 0;
	d->want_data = false;
	d->query_tag = 0;
	d->nr_requests = 0;
	d->why[0] = 0;
	memset(&d->place, 0, sizeof(d->place));
}

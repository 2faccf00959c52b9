// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * donor.c - one donor's connection: connect, notice silence, declare lost
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
 * gives the round trip time). An operation on the donor's memory that succeeds is
 * a sign of life, too: if these go on while the control side is silent, the slabs are
 * moved to other donors (dcm-tc18, 3.5). Slabs of shm, memory of this host, are not
 * given up while the connection to the donor's process stands. They even outlive the
 * process (orphan.c): then the session is kept, as the donor may be started again with
 * the slabs that it had lent.
 *
 * A control connection that is silent is given up early, as a new one may get
 * through. But its socket stays open until the donor's next WELCOME: a donor
 * that sees all connections of a client closed takes the client for gone. If only
 * the direction to the donor works, it would see the old ones close, and no new one
 * come up.
 *
 * Silence is judged only after everything that has arrived was read, and time in
 * which this thread did not run does not count, so a host that was itself
 * stopped does not blame the donor.
 *
 * Locking: none, only the client thread uses it.
 */
#include <stdio.h>

#include "client_int.h"

/* A donor is silent to strangers, and closes. So does one that ends meanwhile. */
#define REFUSED ": the key or the tenant is not one it knows"
#define CUT ": it has ended, or no longer knows the key"

void client_donor_init(struct client_donor *d)
{
	u32 i;

	d->conn.fd = -1;
	for (i = 0; i < CLIENT_HELD_MAX; i++)
		d->held[i] = -1;
}

/* Close the sockets of connections that were given up. */
void client_donor_held_close(struct client_donor *d)
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
	client_donor_held_close(d);
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

/* Is the other end of the newest connection still open? */
static bool conn_stands(const struct client_donor *d)
{
	struct pollfd p = { .fd = d->st == SESSION_UP ? d->conn.fd : d->held[0],
			    .events = POLLRDHUP };

	return p.fd >= 0 && poll(&p, 1, 0) <= 0;
}

/*
 * The session is over: all its slabs are lost, except those whose bytes are here
 * (orphans). Does nothing if there is no session.
 */
void client_donor_lost(struct client_donor *d, const char *why)
{
	if (!d->session)
		return;
	d->session = 0;
	d->silent = false;
	d->gone = false;
	d->refused_ms = 0;
	client_donor_held_close(d);
	client_session_publish(d);
	d->was_lost = d->load.mine > 0;
	explicit_bzero(d->secret, sizeof(d->secret));
	d->load.known = false;
	d->told = false;
	client_data_kill(d);
	client_slabs_lost(d, why);
	d->load.draining = false;
}

/* If the last attempt was refused, note since when; after a while the donor is gone. */
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
		client_donor_gone(d,
				  "it has ended: nothing listens at its address");
}

/* The connection has ended; the session may go on. */
static void donor_down(struct client_donor *d, u64 now)
{
	bool was_up = d->st == SESSION_UP;
	/* a donor that gave us a session has accepted our key */
	bool auth = d->conn.auth && !d->session;
	const char *cause = "";

	if (d->conn.auth)
		cause = auth ? REFUSED : CUT;
	if (d->conn.why[0])
		snprintf(d->why, sizeof(d->why), "%.110s%s", d->conn.why,
			 cause);
	donor_refused(d, now);
	/* once HELLO was sent the donor may count this connection as a sign of life */
	if (d->session && (was_up || d->st == SESSION_HELLO) && !d->conn.broken)
		conn_hold(d);
	else
		dcm_conn_close(&d->conn);
	d->st = SESSION_DOWN;
	d->query_tag = 0;
	d->load.up = false;
	client_verbs_down(d);
	client_list_down(d);
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
	       !d->load.draining && d->verbs != VERBS_TRY &&
	       now >= d->full_until_ms && now - d->heard_ms <= CLIENT_SILENT_MS;
}

void client_donor_io(struct client_donor *d, short revents, u64 now)
{
	struct dcm_wire_msg msg;

	if (d->st == SESSION_DOWN)
		return;
	if (revents)
		dcm_conn_step(&d->conn);
	if (d->st == SESSION_CONNECTING && d->conn.state == DCM_CONN_OPEN)
		client_session_hello(d, now);
	/* bounded: a donor that never stops must not starve others */
	for (int i = 0; i < 64 && dcm_conn_recv(&d->conn, &msg); i++)
		client_session_message(d, &msg, now);
	if (d->conn.state == DCM_CONN_FAILED)
		donor_down(d, now);
}

/* This host was stopped for @ms: don't count that as the donor's silence. */
void client_donor_stalled(struct client_donor *d, u64 ms)
{
	d->heard_ms += ms;
	if (d->refused_ms)
		d->refused_ms += ms;
}

/* Can its memory be used, though its control connection is silent? */
static bool data_works(const struct client_donor *d, u64 now)
{
	return d->local ? conn_stands(d) : now < d->data_ms + CLIENT_SERVES_MS;
}

/* The session has been silent for a while. */
static void donor_silent(struct client_donor *d, u64 now)
{
	bool works = data_works(d, now);
	char why[64];

	/* most likely its process has ended: donor_refused() decides */
	if (d->refused_ms && !works)
		return;
	if (!d->silent) {
		d->silent = true;
		dcm_log(DCM_LOG_WARNING,
			"donor %s (%s): silent for %u s; it holds %llu slabs of ours: %s; look at that host and at the network",
			d->name, d->address,
			min(DCM_WIRE_SILENCE_MS, (u32)d->client->patience_ms) /
				1000,
			(unsigned long long)d->load.mine,
			works ? "they can be used, and are moved to other donors" :
				"accesses to them wait, and they are lost if it stays silent for longer than our patience");
	}
	if (works) {
		client_donor_relieve(d, false, now);
		return;
	}
	if (now <= max(d->heard_ms, d->data_ms) + d->client->patience_ms)
		return;
	snprintf(why, sizeof(why), "not heard of for %llu s",
		 (unsigned long long)(now - d->heard_ms) / 1000);
	client_donor_lost(d, why);
	if (d->st != SESSION_DOWN) {
		dcm_conn_fail(&d->conn, "%s", why);
		donor_down(d, now);
	}
}

void client_donor_timers(struct client_donor *d, u64 now)
{
	struct dcm_wire_msg beat = { .type = DCM_MSG_HEARTBEAT };

	if (d->orphans)
		client_donor_relieve(d, true, now);
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
	client_session_publish(d);
	explicit_bzero(d->secret, sizeof(d->secret));
	client_verbs_down(d);
	client_list_down(d);
	client_data_kill(d);
	client_donor_exit(d);
	d->st = SESSION_DOWN;
	d->silent = false;
	d->gone = false;
	d->refused_ms = 0;
	d->data_ms = 0;
	d->want_data = false;
	d->told = false;
	d->query_tag = 0;
	d->nr_requests = 0;
	d->why[0] = 0;
	memset(&d->load, 0, sizeof(d->load));
}

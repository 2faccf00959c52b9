// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * session.c - one host's life with this donor
 *
 * A session outlives its connections; HELLO with its id and secret resumes it,
 * with its slabs and data connections. It ends, and the donor takes all its slabs back
 * at once (the paper's remote failure, seen from the donor), when
 *
 *  - its host is gone: it has closed or reset every connection, as the kernel
 *    does for a process that dies, and has not come back within
 *    %DCM_WIRE_SILENCE_MS. The last connection's end decides, so a host that is
 *    cut off but keeps one open is not gone. Nor is one whose connection the
 *    network ended (ETIMEDOUT, no route): that shows nothing about the host;
 *  - its host was silent for as long as its tenant's patience. The host may be
 *    cut off, stopped or suspended, and then still needs its memory; or its
 *    machine has lost power. Requests over data connections are signs of life: a
 *    host that uses its memory is alive, even if its control connection is silent.
 *    So are queue pairs that answer (rdma_ping.c).
 *
 * Slabs of a silent session are the first to be asked back when memory is short
 * (evict.c). The begin and the end of its silence are logged.
 *
 * After the donor itself was stopped (SIGSTOP, a paused VM, a suspended host)
 * hosts look silent only because nothing was read. The quarter-second timer
 * notices the gap and all times begin anew. And a session that seems dead is
 * checked again %PROBATION_MS later, after bytes that waited in the sockets have
 * been read.
 *
 * After a restart that keeps slabs (restart.c) a session begins as one whose
 * connections the network ended: its host has the patience to come back.
 *
 * A host on this machine whose control connection is open is not dead, however long
 * it is silent: the kernel closes the connection when the host's process ends. For a
 * VM of the kernel pager the VM's memory holds the connection open, even while
 * dcm-hostd is not running. Its slabs are asked back first, like any silent host's.
 *
 * Nor does a host count as silent while the donor works on its MAP, because it
 * reads nothing of that host then.
 *
 * All on the event loop; workers only touch the fields marked so in donor.h and
 * the list of data connections, under its lock.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "gc_session.h"
#include "donor.h"
#include "log_limit.h"
#include "rdma.h"
#include "restart.h"

#define PROBATION_MS	200u
#define STALL_MS	2000u	/* a gap that means the donor was stopped */
#define LOOK_MS		1000u	/* most time between two checks of a session */

static void session_timer(uv_timer_t *timer);

static struct dcm_session *session_make(struct dcm_donor *donor,
					struct dcm_tenant *tenant, u64 id,
					const void *secret)
{
	struct dcm_session *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	if (dcm_pool_want_init(&donor->pool, &s->want, tenant)) {
		free(s);
		return NULL;
	}
	s->id = id;
	memcpy(s->secret, secret, sizeof(s->secret));
	s->donor = donor;
	s->tenant = tenant;
	dcm_tenant_get(s->tenant);
	s->tenant->sessions++;
	s->refs = 1;
	s->made_at = dcm_now(donor);
	s->heard_at = s->made_at;
	dcm_list_init(&s->slabs);
	dcm_list_init(&s->data);
	dcm_list_init(&s->rdma);
	s->want.fn = dcm_control_want_ready;
	pthread_mutex_init(&s->data_lock, NULL);
	uv_timer_init(&donor->loop, &s->timer);
	s->timer.data = s;
	uv_timer_start(&s->timer, session_timer, LOOK_MS, 0);
	dcm_list_add_tail(&s->node, &donor->sessions);
	donor->nr_sessions++;
	donor->nr_lost++;
	return s;
}

struct dcm_session *dcm_session_new(struct dcm_conn *conn)
{
	struct dcm_donor *donor = conn->donor;
	struct dcm_session *s;
	u64 seed[3];

	do {
		if (getrandom(seed, sizeof(seed), 0) != sizeof(seed))
			return NULL;
	} while (!seed[0] || dcm_session_find(donor, seed[0], NULL, NULL));
	s = session_make(donor, conn->tenant, seed[0], &seed[1]);
	explicit_bzero(seed, sizeof(seed));
	if (s)
		dcm_restart_session(s);
	return s;
}

struct dcm_session *dcm_session_restore(struct dcm_donor *donor,
					struct dcm_tenant *tenant, u64 id,
					const u8 *secret)
{
	struct dcm_session *s = session_make(donor, tenant, id, secret);

	if (!s)
		return NULL;
	/* the donor's own restart ended its connections: the host may live */
	s->cut = true;
	s->left_at = s->made_at;
	snprintf(s->peer, sizeof(s->peer), "(before the restart)");
	return s;
}

static bool secret_equal(const u8 *a, const u8 *b)
{
	unsigned int diff = 0;

	for (int i = 0; i < 16; i++)
		diff |= a[i] ^ b[i];
	return !diff;
}

/* Find a session by id and secret; with @secret %NULL by its id only. */
struct dcm_session *dcm_session_find(struct dcm_donor *donor, u64 id,
				     const u8 *secret,
				     const struct dcm_tenant *tenant)
{
	struct dcm_session *s;

	dcm_list_for_each(s, &donor->sessions, struct dcm_session, node)
		if (s->id == id)
			return !secret || (s->tenant == tenant &&
					   secret_equal(s->secret, secret)) ?
				       s :
				       NULL;
	return NULL;
}

void dcm_session_heard(struct dcm_session *s)
{
	WRITE_ONCE(s->heard_at, dcm_now(s->donor));
}

/* Reserve seats for the host's address, in case it loses its connections. */
static void session_reserve_seats(struct dcm_session *s,
			       const struct dcm_conn *conn)
{
	struct dcm_source *old[2] = { s->sources[0], s->sources[1] };

	s->sources[0] = dcm_admission_reserve(conn->admission, &conn->origin);
	s->sources[1] = dcm_admission_reserve(&s->donor->proven, &conn->origin);
	dcm_admission_unreserve(old[0]);
	dcm_admission_unreserve(old[1]);
}

void dcm_session_attach(struct dcm_session *s, struct dcm_conn *conn)
{
	struct dcm_conn *old = s->conn;

	/* a MAP that still waits came over the old connection: it gets no answer */
	dcm_control_want_cancel(s);
	s->map_serial++;
	if (old) {
		/* the host closed the old connection before we noticed */
		old->session = NULL;
		s->conn = NULL;
		s->donor->nr_lost++;
		dcm_conn_close(old);
	}
	s->conn = conn;
	s->donor->nr_lost--;
	WRITE_ONCE(s->cut, false);
	conn->session = s;
	session_reserve_seats(s, conn);
	snprintf(s->peer, sizeof(s->peer), "%s", conn->peer);
	dcm_session_heard(s);
}

void dcm_session_left(struct dcm_session *s)
{
	s->left_at = dcm_now(s->donor);
}

static bool session_connected(const struct dcm_session *s)
{
	return s->conn || s->nr_joined || s->nr_rdma || s->gc;
}

/* Does the host seem to have ended all of its connections? */
static bool session_gone(const struct dcm_session *s)
{
	return !session_connected(s) && !READ_ONCE(s->cut);
}

/* Is the host on this machine, with its control connection open? */
static bool session_here(const struct dcm_session *s)
{
	return s->conn && s->conn->is_unix;
}

void dcm_session_detach(struct dcm_session *s, bool cut)
{
	s->conn = NULL;
	s->donor->nr_lost += !s->ended;
	if (cut)
		WRITE_ONCE(s->cut, true);
	dcm_session_left(s);
	if (!s->ended)
		dcm_log_limited(
			DCM_LOG_INFO,
			"session %llx of %s: control connection %s; its %u slabs are kept for up to %u ms",
			(unsigned long long)s->id, s->tenant->name,
			cut ? "broken by the network" : "lost", s->nr_slabs,
			session_gone(s) ? DCM_WIRE_SILENCE_MS :
					  s->tenant->patience_ms);
}

void dcm_session_get(struct dcm_session *s)
{
	s->refs++;
}

static void session_freed(uv_handle_t *handle)
{
	struct dcm_session *s = handle->data;

	pthread_mutex_destroy(&s->data_lock);
	explicit_bzero(s->secret, sizeof(s->secret));
	free(s);
}

void dcm_session_put(struct dcm_session *s)
{
	if (--s->refs)
		return;
	s->tenant->sessions--;
	dcm_tenant_put(s->tenant);
	uv_close((uv_handle_t *)&s->timer, session_freed);
}

void dcm_session_end(struct dcm_session *s, const char *why)
{
	struct dcm_donor *donor = s->donor;
	struct dcm_slab *slab, *tmp;
	struct dcm_conn *conn = s->conn;

	if (s->ended)
		return;
	dcm_log_limited(DCM_LOG_NOTICE,
			"session %llx of %s ends: %s; %u slabs come back",
			(unsigned long long)s->id, s->tenant->name, why,
			s->nr_slabs);
	smp_store_release(&s->ended, true);
	dcm_restart_session_end(s);
	uv_timer_stop(&s->timer);
	dcm_list_del(&s->node);
	donor->nr_sessions--;
	donor->nr_lost -= !conn;
	dcm_admission_unreserve(s->sources[0]);
	dcm_admission_unreserve(s->sources[1]);
	dcm_control_want_cancel(s);
	dcm_pool_want_end(&donor->pool, &s->want);
	dcm_gc_session_end(s);
	dcm_list_for_each_safe(slab, tmp, &s->slabs, struct dcm_slab,
			       session_node)
		dcm_pool_release(&donor->pool, slab);
	s->nr_slabs = 0;
	dcm_data_shutdown(s);
	dcm_rdma_session_end(s);
	if (conn) {
		s->conn = NULL;
		conn->session = NULL;
		dcm_conn_close(conn);
	}
	dcm_session_put(s);
}

/* Log the begin and the end of a host's silence. */
static void session_log_silence(struct dcm_session *s, u64 heard, u64 now)
{
	bool silent = now - heard >= DCM_WIRE_SILENCE_MS && !session_gone(s);
	char kept[48];

	if (silent == s->silent)
		return;
	s->silent = silent;
	if (silent) {
		s->silent_from = heard;
		if (session_here(s))
			snprintf(kept, sizeof(kept),
				 "as long as its connection is open");
		else if (s->nr_rdma)
			snprintf(kept, sizeof(kept),
				 "as long as its queue pairs answer");
		else
			snprintf(kept, sizeof(kept),
				 "for %u s in all (patience)",
				 s->tenant->patience_ms / 1000);
		dcm_log_limited(
			DCM_LOG_WARNING,
			"session %llx of %s from %s: silent for %u s; its %u slabs are kept %s, and are the first to be asked back if memory gets short here; look at that host and at the network",
			(unsigned long long)s->id, s->tenant->name, s->peer,
			DCM_WIRE_SILENCE_MS / 1000, s->nr_slabs, kept);
	} else if (heard > s->silent_from) {
		dcm_log_limited(
			DCM_LOG_NOTICE,
			"session %llx of %s from %s: heard again after %llu s; it has %u slabs",
			(unsigned long long)s->id, s->tenant->name, s->peer,
			(unsigned long long)(heard - s->silent_from) / 1000,
			s->nr_slabs);
	}
}

static void session_timer(uv_timer_t *timer)
{
	struct dcm_session *s = timer->data;
	struct dcm_donor *donor = s->donor;
	u64 now = dcm_now(donor);
	u64 heard = READ_ONCE(s->heard_at);
	u64 left = s->left_at, due;
	bool gone = session_gone(s);
	char why[96];

	if (now > donor->quarter_at + STALL_MS)
		donor->stalled_at = now;
	if (s->conn && s->want_busy) {
		dcm_session_heard(s);
		heard = now;
	}
	/* a worker's clock may be slightly ahead of the loop's */
	heard = min(max(heard, donor->stalled_at), now);
	left = max(left, donor->stalled_at);
	session_log_silence(s, heard, now);
	if (session_here(s)) {
		s->probation = false;
		uv_timer_start(timer, session_timer, LOOK_MS, 0);
		return;
	}
	due = max(heard, s->answered_at) + s->tenant->patience_ms;
	if (gone)
		due = min(due, left + DCM_WIRE_SILENCE_MS);
	if (now + PROBATION_MS < due) {
		s->probation = false;
		uv_timer_start(timer, session_timer,
			       min(due - PROBATION_MS - now, (u64)LOOK_MS), 0);
		return;
	}
	if (!s->probation) {
		s->probation = true;
		uv_timer_start(timer, session_timer, PROBATION_MS * 3 / 4, 0);
		return;
	}
	if (gone) {
		donor->stats.sessions_gone++;
		dcm_session_end(
			s,
			"its host closed its connections and did not come back");
		return;
	}
	donor->stats.sessions_silent++;
	snprintf(why, sizeof(why), "nothing was heard of it for %llu s",
		 (unsigned long long)(now - heard + PROBATION_MS) / 1000);
	dcm_session_end(s, why);
}

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * gc_session.c - a session's GC worker, and the connection it is used over
 *
 * semeru-osdi20, 4.1 and mako-pldi22, 3 run a collector process on each memory
 * server, which trusts it. Here it is one process for one session, in a sandbox
 * (gc/worker/sandbox.c), and it lives exactly as long as the connection of the
 * gc role that asked for it: when the host closes that the worker is killed,
 * and when the worker ends, for any reason, the host gets an error and the
 * connection is closed. So no other state has to be kept consistent, and a host can
 * always end a worker, even one that does not respond. Slabs belong to the session: the
 * death of a worker does not affect them.
 *
 *	HELLO -> [attached] -> GC_OPEN -> [a worker runs] -> killed -> reaped
 *	            '------------- closed -------------------^
 *
 * Messages are passed on unchanged; the codec has checked their sizes. In both
 * directions a message waits at its source while the other side does not read:
 * the host's in the connection's buffer, the worker's in its socket. So no
 * queue grows without bound. There is no deadlock, as the host reads while it writes.
 *
 * A worker is charged to its tenant: what it may take (dcm_gc_child_memory(),
 * which its limits enforce) counts against the tenant's bytes and against what
 * the host can spare (dcm_pool_charge()), from GC_OPEN on. A tenant has a
 * number of workers, from HELLO on, and a share of the CPU (gc_cpu.c).
 *
 * Killed workers are reaped every quarter second, as freeing an address space may take
 * long. Until then a worker's memory is still reserved on this machine. As many workers
 * may be dying as may live: so a tenant can have another one at once, but can't start
 * workers faster than they can be reaped.
 *
 * Locking: none, all on the event loop.
 */
#include <endian.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gc_session.h"
#include "gc/child.h"
#include "../kvm-dcm/proto/gc_message.h"
#include "log_limit.h"
#include "gc_cpu.h"

#define TX_STOP		(256u << 10)	/* answers the host has not read */
#define TURN_MAX	16u		/* messages of a worker in one event */

/**
 * struct dcm_gc_session - a worker, from HELLO until it is reaped
 * @node: in donor->gc_sessions
 * @conn: %NULL once it is closed
 * @tenant: its tenant, a reference
 * @memory: bytes that the tenant is charged for it; 0: not yet
 * @stuck: the worker does not read now
 * @events: events that @poll waits for
 * @killed: the donor has killed it
 */
struct dcm_gc_session {
	struct dcm_list node;
	struct dcm_donor *donor;
	struct dcm_session *session;
	struct dcm_tenant *tenant;
	u64 memory;
	u64 session_id;
	struct dcm_conn *conn;
	struct dcm_gc_child child;
	uv_poll_t poll;
	int events;
	bool polls;
	bool stuck;
	bool killed;
};

static void worker_ready(uv_poll_t *poll, int status, int events);

static bool gc_session_charge(struct dcm_gc_session *gs, u64 memory)
{
	if (!dcm_pool_charge(&gs->donor->pool, memory))
		return false;
	gs->memory = memory;
	gs->tenant->bytes += memory;
	gs->tenant->gc_bytes += memory;
	return true;
}

/*
 * Stop charging the tenant. The donor reserves the memory until the worker is reaped.
 */
static void gc_session_uncharge(struct dcm_gc_session *gs)
{
	gs->tenant->bytes -= gs->memory;
	gs->tenant->gc_bytes -= gs->memory;
}

static bool gc_session_runs(const struct dcm_gc_session *gs,
			 const struct dcm_tenant *tenant)
{
	return gs->tenant == tenant && gs->child.pid && !gs->killed;
}

/*
 * Set the niceness of all workers of a tenant by their number, counting @more that are
 * not started yet. Returns the niceness.
 */
static int gc_session_renice(struct dcm_donor *donor,
			  const struct dcm_tenant *tenant, u32 more)
{
	struct dcm_gc_session *gs;
	u32 n = more;
	int nice;

	dcm_list_for_each(gs, &donor->gc_sessions, struct dcm_gc_session, node)
		n += gc_session_runs(gs, tenant);
	nice = dcm_gc_cpu_nice(donor->gc_cgroup < 0 ? n : 1);
	dcm_list_for_each(gs, &donor->gc_sessions, struct dcm_gc_session, node)
		if (donor->gc_cgroup < 0 && gc_session_runs(gs, tenant))
			dcm_gc_cpu_renice(gs->child.pid, nice);
	return nice;
}

static void gc_session_free(struct dcm_gc_session *gs)
{
	struct dcm_tenant *t = gs->tenant;

	dcm_list_del(&gs->node);
	gs->donor->nr_gc_sessions--;
	dcm_pool_uncharge(&gs->donor->pool, gs->memory);
	t->dying -= gs->killed;
	gs->donor->nr_dying -= gs->killed;
	if (!--t->workers)
		dcm_gc_cpu_leave(gs->donor, t);
	dcm_tenant_put(t);
	free(gs);
}

/* The worker has ended: free its record, and log an unexpected end. */
static void gc_session_ended(struct dcm_gc_session *gs, int status)
{
	bool by_us = gs->killed && WIFSIGNALED(status) &&
		     WTERMSIG(status) == SIGKILL;

	if (!by_us)
		dcm_log_limited(DCM_LOG_WARNING,
				"session %llx: its GC worker ended %s %d",
				(unsigned long long)gs->session_id,
				WIFSIGNALED(status) ? "by signal" :
						      "with status",
				WIFSIGNALED(status) ? WTERMSIG(status) :
						      WEXITSTATUS(status));
	gc_session_free(gs);
}

void dcm_gc_session_reap(struct dcm_donor *donor)
{
	struct dcm_gc_session *gs, *tmp;
	int status;

	dcm_list_for_each_safe(gs, tmp, &donor->gc_sessions,
			       struct dcm_gc_session, node)
		if (!gs->conn && !gs->polls &&
		    dcm_gc_child_reap(&gs->child, false, &status))
			gc_session_ended(gs, status);
}

void dcm_gc_session_measure(struct dcm_donor *donor)
{
	struct dcm_gc_session *gs;
	u64 backed = 0;

	dcm_list_for_each(gs, &donor->gc_sessions, struct dcm_gc_session, node)
		if (gs->child.pid)
			backed += min(dcm_gc_child_backed(&gs->child),
				      gs->memory);
	donor->pool.charged_backed = backed;
}

void dcm_gc_session_stop(struct dcm_donor *donor)
{
	struct dcm_gc_session *gs;
	int status;

	while (!dcm_list_empty(&donor->gc_sessions)) {
		gs = dcm_list_first(&donor->gc_sessions, struct dcm_gc_session,
				    node);
		if (gs->polls) {
			uv_run(&donor->loop, UV_RUN_ONCE);
			continue;
		}
		dcm_gc_child_reap(&gs->child, true, &status);
		gc_session_ended(gs, status);
	}
	dcm_gc_cpu_stop(donor);
}

static void poll_closed(uv_handle_t *handle)
{
	struct dcm_gc_session *gs = handle->data;

	gs->polls = false;
}

void dcm_gc_session_detach(struct dcm_conn *conn)
{
	struct dcm_gc_session *gs = conn->gc;

	conn->gc = NULL;
	gs->conn = NULL;
	if (gs->session) {
		gs->session->gc = NULL;
		dcm_session_left(gs->session);
	}
	gs->session = NULL;
	if (!gs->child.pid) {
		gc_session_free(gs);
		return;
	}
	gs->killed = true;
	gs->tenant->dying++;
	gs->donor->nr_dying++;
	gc_session_uncharge(gs);
	gc_session_renice(gs->donor, gs->tenant, 0);
	uv_close((uv_handle_t *)&gs->poll, poll_closed);
	dcm_gc_child_kill(&gs->child);
}

void dcm_gc_session_end(struct dcm_session *s)
{
	if (s->gc)
		dcm_conn_close(s->gc->conn);
}

u32 dcm_gc_session_attach(struct dcm_conn *conn, struct dcm_session *s)
{
	struct dcm_donor *donor = conn->donor;
	struct dcm_tenant *t = s->tenant;
	struct dcm_gc_session *gs;

	if (!donor->gc_path[0] || !donor->cfg.gc_workers)
		return DCM_WS_NO_GC;
	if (donor->draining || donor->stopping)
		return DCM_WS_DRAINING;
	/* the host closed the old connection before we noticed */
	dcm_gc_session_end(s);
	if (donor->nr_dying)
		dcm_gc_session_reap(donor);
	if (t->workers - t->dying >= t->quota_workers) {
		t->refusals++;
		return DCM_WS_QUOTA;
	}
	if (donor->nr_gc_sessions - donor->nr_dying >= donor->cfg.gc_workers ||
	    donor->nr_dying >= donor->cfg.gc_workers ||
	    t->dying >= t->quota_workers ||
	    dcm_chan_room(conn->chan, DCM_WIRE_MSG_MAX))
		return DCM_WS_BUSY;
	gs = calloc(1, sizeof(*gs));
	if (!gs)
		return DCM_WS_BUSY;
	gs->donor = donor;
	gs->session = s;
	gs->tenant = t;
	dcm_tenant_get(t);
	t->workers++;
	gs->session_id = s->id;
	gs->conn = conn;
	gs->child.fd = -1;
	conn->gc = gs;
	s->gc = gs;
	dcm_list_add_tail(&gs->node, &donor->gc_sessions);
	donor->nr_gc_sessions++;
	return DCM_WS_OK;
}

u32 dcm_gc_session_threads(const struct dcm_donor *donor)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	if (donor->cfg.gc_threads)
		return donor->cfg.gc_threads;
	return cpus > 3 ? (u32)min(cpus / 2, 64L) : 1;
}

static void gc_session_open(struct dcm_gc_session *gs,
			    const struct dcm_wire_msg *msg)
{
	struct dcm_donor *donor = gs->donor;
	struct dcm_wire_msg answer = {
		.type = DCM_MSG_GC_OPENED,
		.tag = msg->tag,
		.gc_opened.threads = dcm_gc_session_threads(donor),
	};
	struct dcm_tenant *t = gs->tenant;
	struct dcm_gc_child_how how = {
		.path = donor->gc_path,
		.donor = msg->gc_open.donor,
		.threads = answer.gc_opened.threads,
		.slabs = t->quota_bytes,
	};
	u64 memory = dcm_gc_child_memory(msg->gc_open.bytes, how.threads);
	int nice, ret;

	if (memory > dcm_size_bytes(&donor->cfg.gc_memory, donor->pool.total) ||
	    t->bytes > t->quota_bytes || memory > t->quota_bytes - t->bytes) {
		t->refusals++;
		dcm_conn_error(gs->conn, msg->tag, DCM_WS_QUOTA);
		return;
	}
	if (!gc_session_charge(gs, memory)) {
		dcm_conn_error(gs->conn, msg->tag, DCM_WS_NO_MEMORY);
		return;
	}
	how.memory = memory;
	nice = gc_session_renice(donor, t, 1);
	how.group = dcm_gc_cpu_join(donor, t);
	ret = dcm_gc_child_start(&gs->child, &how);
	if (how.group >= 0)
		close(how.group);
	if (!ret)
		ret = uv_poll_init(&donor->loop, &gs->poll, gs->child.fd);
	if (ret) {
		dcm_log_limited(DCM_LOG_ERR,
				"session %llx: GC worker %s can't be started: %s",
				(unsigned long long)gs->session_id,
				donor->gc_path, strerror(-ret));
		dcm_gc_child_end(&gs->child);
		gc_session_uncharge(gs);
		dcm_pool_uncharge(&donor->pool, memory);
		gs->memory = 0;
		gc_session_renice(donor, t, 0);
		dcm_conn_error(gs->conn, msg->tag, DCM_WS_NO_GC);
		return;
	}
	/* here and not in the child, which may run after the number has changed */
	dcm_gc_cpu_renice(gs->child.pid, nice);
	gs->poll.data = gs;
	gs->polls = true;
	donor->stats.gc_started++;
	dcm_log_limited(DCM_LOG_INFO, "session %llx: GC worker %d starts",
			(unsigned long long)gs->session_id, (int)gs->child.pid);
	dcm_gc_session_update(gs->conn);
	dcm_conn_send(gs->conn, &answer);
}

/* The worker has ended, or sent an invalid message. */
static void gc_session_lost(struct dcm_gc_session *gs)
{
	gs->donor->stats.gc_lost++;
	dcm_conn_refuse(gs->conn, 0, DCM_WS_WORKER);
}

/*
 * Send a worker a message. False: it does not read now. That it has ended shows later.
 */
static bool worker_send(struct dcm_gc_session *gs,
			const struct dcm_gc_message *msg, const void *payload,
			int fd)
{
	gs->stuck = dcm_gc_child_send(&gs->child, msg, payload, fd) == -EAGAIN;
	if (gs->stuck)
		dcm_gc_session_update(gs->conn);
	return !gs->stuck;
}

static bool gc_session_slab(struct dcm_gc_session *gs,
			    const struct dcm_wire_msg *msg)
{
	const struct dcm_slab *slab =
		dcm_slab_find(&gs->donor->pool, msg->gc_slab.slab, gs->session);
	struct dcm_gc_message m = {
		.kind = htole32(DCM_GC_SLAB),
		.n = htole32(msg->gc_slab.number),
	};

	if (!slab) {
		dcm_conn_error(gs->conn, msg->tag, DCM_WS_NO_SLAB);
		return true;
	}
	m.value = htole64(slab->bytes);
	return worker_send(gs, &m, NULL, slab->fd);
}

bool dcm_gc_session_message(struct dcm_conn *conn,
			    const struct dcm_wire_msg *msg)
{
	struct dcm_gc_session *gs = conn->gc;
	struct dcm_gc_message m;

	dcm_session_heard(gs->session);
	if ((msg->type == DCM_MSG_GC_OPEN) != !gs->child.pid) {
		conn->donor->stats.protocol_errors++;
		dcm_conn_refuse(conn, msg->tag, DCM_WS_PROTOCOL);
		return true;
	}
	switch (msg->type) {
	case DCM_MSG_GC_OPEN:
		gc_session_open(gs, msg);
		return true;
	case DCM_MSG_GC_SLAB:
		return gc_session_slab(gs, msg);
	default:
		/* the codec lets only GC through */
		m = (struct dcm_gc_message){
			.kind = htole32(msg->gc.kind),
			.space = htole32(msg->gc.space),
			.tag = htole64(msg->tag),
			.epoch = htole32(msg->gc.epoch),
			.n = htole32(msg->gc.n),
			.value = htole64(msg->gc.value),
			.donor = htole32(msg->gc.donor),
			.bytes = htole32(msg->payload_bytes),
		};
		return worker_send(gs, &m, msg->payload, -1);
	}
}

bool dcm_gc_session_stuck(const struct dcm_conn *conn)
{
	return conn->gc && conn->gc->stuck;
}

void dcm_gc_session_update(struct dcm_conn *conn)
{
	struct dcm_gc_session *gs = conn->gc;
	int events = 0;

	if (!gs || !gs->polls)
		return;
	if (gs->stuck)
		events |= UV_WRITABLE;
	if (dcm_chan_queued(conn->chan) < TX_STOP)
		events |= UV_READABLE;
	if (events == gs->events)
		return;
	gs->events = events;
	if (events)
		uv_poll_start(&gs->poll, events, worker_ready);
	else
		uv_poll_stop(&gs->poll);
}

/* Pass on one message of the worker; false: there is no more now. */
static bool worker_receive(struct dcm_gc_session *gs)
{
	static u64 buf[(sizeof(struct dcm_gc_message) + DCM_GC_PAYLOAD_MAX) / 8];
	const struct dcm_gc_message *m = (void *)buf;
	ssize_t n = dcm_gc_child_receive(&gs->child, buf, sizeof(buf));
	struct dcm_wire_msg msg = { .type = DCM_MSG_GC };

	if (n == -EAGAIN)
		return false;
	if (n <= 0 || !(dcm_wire_gc_from(le32toh(m->kind)) & DCM_SIDE_DONOR)) {
		gc_session_lost(gs);
		return false;
	}
	msg.tag = le64toh(m->tag);
	msg.gc.kind = le32toh(m->kind);
	msg.gc.space = le32toh(m->space);
	msg.gc.epoch = le32toh(m->epoch);
	msg.gc.n = le32toh(m->n);
	msg.gc.value = le64toh(m->value);
	msg.gc.donor = le32toh(m->donor);
	msg.payload_bytes = le32toh(m->bytes);
	msg.payload = m + 1;
	return !dcm_conn_send(gs->conn, &msg) &&
	       dcm_chan_queued(gs->conn->chan) < TX_STOP;
}

static void worker_ready(uv_poll_t *poll, int status, int events)
{
	struct dcm_gc_session *gs = poll->data;
	struct dcm_conn *conn = gs->conn;

	if (status < 0) {
		gc_session_lost(gs);
		return;
	}
	for (u32 i = 0; i < TURN_MAX && worker_receive(gs); i++)
		;
	if (!gs->conn)
		return;
	if (events & UV_WRITABLE) {
		gs->stuck = false;
		dcm_conn_resume(conn);
		if (!gs->conn)
			return;
	}
	dcm_gc_session_update(conn);
}

/* Find the worker's program: beside the daemon's, as built, or as installed. */
void dcm_gc_session_start(struct dcm_donor *donor)
{
	static const char *const places[] = { "", "/../libexec/kvm-dcm" };
	char self[DCM_CONFIG_PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	dcm_list_init(&donor->gc_sessions);
	donor->gc_cgroup = -1;
	/* no workers for files: they map slabs, and would read the disk page by page */
	if (!donor->cfg.gc_workers || donor->cfg.medium == DCM_MEDIUM_FILE)
		return;
	if (donor->cfg.gc_worker[0]) {
		snprintf(donor->gc_path, sizeof(donor->gc_path), "%s",
			 donor->cfg.gc_worker);
	} else if (n > 0) {
		self[n] = 0;
		slash = strrchr(self, '/');
		for (u32 i = 0; slash && i < ARRAY_SIZE(places); i++) {
			snprintf(donor->gc_path, sizeof(donor->gc_path),
				 "%.*s%s/dcm-gc-worker", (int)(slash - self),
				 self, places[i]);
			if (!access(donor->gc_path, X_OK))
				break;
		}
	}
	if (access(donor->gc_path, X_OK)) {
		dcm_warn("no GC worker at %s: hosts' heaps are not collected here; set worker in [gc], or workers = 0",
			 donor->gc_path);
		donor->gc_path[0] = 0;
	}
}

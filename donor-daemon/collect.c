// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * collect.c - a session's GC worker, and the connection it is used over
 *
 * semeru-osdi20, 4.1 and mako-pldi22, 3 run a collector process on each memory
 * server, which trusts it. Here it is one process for one session, in a sandbox
 * (gc/worker/sandbox.c), and it lives exactly as long as the connection of the
 * gc role that asked for it: when the host closes that the worker is killed,
 * and when the worker ends, for any reason, the host gets an error and the
 * connection is closed. Nothing else has to be kept in step, and a host that
 * wants a worker to end need not rely on the worker. Slabs belong to the
 * session: the death of a worker does not affect them.
 *
 *	HELLO -> [attached] -> GC_OPEN -> [a worker runs] -> killed -> buried
 *	            '------------- closed -------------------^
 *
 * Messages are passed on unchanged; the codec has bounded them. In both
 * directions a message waits at its source when the other side does not read:
 * the host's in the connection's buffer, the worker's in its socket. So no
 * queue grows without bound, and as the host reads while it writes, there is no
 * deadlock.
 *
 * A worker is charged to its tenant: what it may take (dcm_gc_child_memory(),
 * which its limits enforce) counts against the tenant's bytes and against what
 * the host can spare (dcm_pool_charge()), from GC_OPEN on. A tenant has a
 * number of workers, from HELLO on, and a share of the CPU (share.c).
 *
 * A killed worker is looked for every quarter second: freeing an address space
 * may take long. Until then its memory is still charged to the host, and as
 * many workers may be dying as may live: a tenant can have another one at once,
 * but can't make them faster than they can be buried.
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

#include "collect.h"
#include "gc/child.h"
#include "../kvm-dcm/proto/gc_message.h"
#include "log.h"
#include "share.h"

#define TX_STOP		(256u << 10)	/* answers the host has not read */
#define TURN_MAX	16u		/* messages of a worker in one event */

/**
 * struct dcm_collect - a worker, from HELLO until it is buried
 * @node: in donor->collects
 * @conn: %NULL once it is closed
 * @tenant: a reference
 * @memory: bytes charged to it; 0: not yet
 * @stuck: the worker does not read now
 * @events: events that @poll waits for
 * @killed: by the donor
 */
struct dcm_collect {
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

static bool collect_charge(struct dcm_collect *c, u64 memory)
{
	if (!dcm_pool_charge(&c->donor->pool, memory))
		return false;
	c->memory = memory;
	c->tenant->bytes += memory;
	c->tenant->gc_bytes += memory;
	return true;
}

/* The tenant is no longer charged; the host is until the burial. */
static void collect_uncharge(struct dcm_collect *c)
{
	c->tenant->bytes -= c->memory;
	c->tenant->gc_bytes -= c->memory;
}

static bool collect_runs(const struct dcm_collect *c,
			 const struct dcm_tenant *tenant)
{
	return c->tenant == tenant && c->child.pid && !c->killed;
}

/*
 * Set the niceness of each of a tenant's workers for their number, plus @more
 * that are not started yet; returns the niceness.
 */
static int collect_renice(struct dcm_donor *donor,
			  const struct dcm_tenant *tenant, u32 more)
{
	struct dcm_collect *c;
	u32 n = more;
	int nice;

	dcm_list_for_each(c, &donor->collects, struct dcm_collect, node)
		n += collect_runs(c, tenant);
	nice = dcm_share_nice(donor->gc_cgroup < 0 ? n : 1);
	dcm_list_for_each(c, &donor->collects, struct dcm_collect, node)
		if (donor->gc_cgroup < 0 && collect_runs(c, tenant))
			dcm_share_renice(c->child.pid, nice);
	return nice;
}

static void collect_free(struct dcm_collect *c)
{
	struct dcm_tenant *t = c->tenant;

	dcm_list_del(&c->node);
	c->donor->nr_collects--;
	dcm_pool_uncharge(&c->donor->pool, c->memory);
	t->dying -= c->killed;
	c->donor->nr_dying -= c->killed;
	if (!--t->workers)
		dcm_share_leave(c->donor, t);
	dcm_tenant_put(t);
	free(c);
}

/* It has ended: free the record, and log an unexpected end. */
static void collect_bury(struct dcm_collect *c, int status)
{
	bool by_us = c->killed && WIFSIGNALED(status) &&
		     WTERMSIG(status) == SIGKILL;

	if (!by_us)
		dcm_log_limited(DCM_LOG_WARNING,
				"session %llx: its GC worker ended %s %d",
				(unsigned long long)c->session_id,
				WIFSIGNALED(status) ? "by signal" :
						      "with status",
				WIFSIGNALED(status) ? WTERMSIG(status) :
						      WEXITSTATUS(status));
	collect_free(c);
}

void dcm_collect_quarter(struct dcm_donor *donor)
{
	struct dcm_collect *c, *tmp;
	int status;

	dcm_list_for_each_safe(c, tmp, &donor->collects, struct dcm_collect,
			       node)
		if (!c->conn && !c->polls &&
		    dcm_gc_child_reap(&c->child, false, &status))
			collect_bury(c, status);
}

void dcm_collect_second(struct dcm_donor *donor)
{
	struct dcm_collect *c;
	u64 backed = 0;

	dcm_list_for_each(c, &donor->collects, struct dcm_collect, node)
		if (c->child.pid)
			backed +=
				min(dcm_gc_child_backed(&c->child), c->memory);
	donor->pool.charged_backed = backed;
}

void dcm_collect_stop(struct dcm_donor *donor)
{
	struct dcm_collect *c;
	int status;

	while (!dcm_list_empty(&donor->collects)) {
		c = dcm_list_first(&donor->collects, struct dcm_collect, node);
		if (c->polls) {
			uv_run(&donor->loop, UV_RUN_ONCE);
			continue;
		}
		dcm_gc_child_reap(&c->child, true, &status);
		collect_bury(c, status);
	}
	dcm_share_stop(donor);
}

static void poll_closed(uv_handle_t *handle)
{
	struct dcm_collect *c = handle->data;

	c->polls = false;
}

void dcm_collect_detach(struct dcm_conn *conn)
{
	struct dcm_collect *c = conn->collect;

	conn->collect = NULL;
	c->conn = NULL;
	if (c->session) {
		c->session->collect = NULL;
		dcm_session_left(c->session);
	}
	c->session = NULL;
	if (!c->child.pid) {
		collect_free(c);
		return;
	}
	c->killed = true;
	c->tenant->dying++;
	c->donor->nr_dying++;
	collect_uncharge(c);
	collect_renice(c->donor, c->tenant, 0);
	uv_close((uv_handle_t *)&c->poll, poll_closed);
	dcm_gc_child_kill(&c->child);
}

void dcm_collect_session_end(struct dcm_session *s)
{
	if (s->collect)
		dcm_conn_close(s->collect->conn);
}

u32 dcm_collect_attach(struct dcm_conn *conn, struct dcm_session *s)
{
	struct dcm_donor *donor = conn->donor;
	struct dcm_tenant *t = s->tenant;
	struct dcm_collect *c;

	if (!donor->gc_path[0] || !donor->cfg.gc_workers)
		return DCM_WS_NO_GC;
	if (donor->draining || donor->stopping)
		return DCM_WS_DRAINING;
	/* the host closed the old connection before we noticed */
	dcm_collect_session_end(s);
	if (donor->nr_dying)
		dcm_collect_quarter(donor);
	if (t->workers - t->dying >= t->quota_workers) {
		t->refusals++;
		return DCM_WS_QUOTA;
	}
	if (donor->nr_collects - donor->nr_dying >= donor->cfg.gc_workers ||
	    donor->nr_dying >= donor->cfg.gc_workers ||
	    t->dying >= t->quota_workers ||
	    dcm_chan_room(conn->chan, DCM_WIRE_MSG_MAX))
		return DCM_WS_BUSY;
	c = calloc(1, sizeof(*c));
	if (!c)
		return DCM_WS_BUSY;
	c->donor = donor;
	c->session = s;
	c->tenant = t;
	dcm_tenant_get(t);
	t->workers++;
	c->session_id = s->id;
	c->conn = conn;
	c->child.fd = -1;
	conn->collect = c;
	s->collect = c;
	dcm_list_add_tail(&c->node, &donor->collects);
	donor->nr_collects++;
	return DCM_WS_OK;
}

u32 dcm_collect_threads(const struct dcm_donor *donor)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	if (donor->cfg.gc_threads)
		return donor->cfg.gc_threads;
	return cpus > 3 ? (u32)min(cpus / 2, 64L) : 1;
}

static void collect_open(struct dcm_collect *c, const struct dcm_wire_msg *msg)
{
	struct dcm_donor *donor = c->donor;
	struct dcm_wire_msg answer = {
		.type = DCM_MSG_GC_OPENED,
		.tag = msg->tag,
		.gc_opened.threads = dcm_collect_threads(donor),
	};
	struct dcm_tenant *t = c->tenant;
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
		dcm_conn_error(c->conn, msg->tag, DCM_WS_QUOTA);
		return;
	}
	if (!collect_charge(c, memory)) {
		dcm_conn_error(c->conn, msg->tag, DCM_WS_NO_MEMORY);
		return;
	}
	how.memory = memory;
	nice = collect_renice(donor, t, 1);
	how.group = dcm_share_join(donor, t);
	ret = dcm_gc_child_start(&c->child, &how);
	if (how.group >= 0)
		close(how.group);
	if (!ret)
		ret = uv_poll_init(&donor->loop, &c->poll, c->child.fd);
	if (ret) {
		dcm_log_limited(DCM_LOG_ERR, "%s can't be started: %s",
				donor->gc_path, strerror(-ret));
		dcm_gc_child_end(&c->child);
		collect_uncharge(c);
		dcm_pool_uncharge(&donor->pool, memory);
		c->memory = 0;
		collect_renice(donor, t, 0);
		dcm_conn_error(c->conn, msg->tag, DCM_WS_NO_GC);
		return;
	}
	/* not in the child, which may run after the number has changed again */
	dcm_share_renice(c->child.pid, nice);
	c->poll.data = c;
	c->polls = true;
	donor->stats.gc_started++;
	dcm_log_limited(DCM_LOG_INFO, "session %llx: GC worker %d starts",
			(unsigned long long)c->session_id, (int)c->child.pid);
	dcm_collect_update(c->conn);
	dcm_conn_send(c->conn, &answer);
}

/* The worker has ended, or sent an invalid message. */
static void collect_lost(struct dcm_collect *c)
{
	c->donor->stats.gc_lost++;
	dcm_conn_refuse(c->conn, 0, DCM_WS_WORKER);
}

/* False: it does not read now. If it has ended, its socket shows that. */
static bool to_worker(struct dcm_collect *c, const struct dcm_gc_message *msg,
		      const void *payload, int fd)
{
	c->stuck = dcm_gc_child_send(&c->child, msg, payload, fd) == -EAGAIN;
	if (c->stuck)
		dcm_collect_update(c->conn);
	return !c->stuck;
}

static bool collect_slab(struct dcm_collect *c, const struct dcm_wire_msg *msg)
{
	const struct dcm_slab *slab =
		dcm_pool_find(&c->donor->pool, msg->gc_slab.slab, c->session);
	struct dcm_gc_message m = {
		.kind = htole32(DCM_GC_SLAB),
		.n = htole32(msg->gc_slab.number),
	};

	if (!slab) {
		dcm_conn_error(c->conn, msg->tag, DCM_WS_NO_SLAB);
		return true;
	}
	m.value = htole64(slab->bytes);
	return to_worker(c, &m, NULL, slab->fd);
}

bool dcm_collect_message(struct dcm_conn *conn, const struct dcm_wire_msg *msg)
{
	struct dcm_collect *c = conn->collect;
	struct dcm_gc_message m;

	dcm_session_heard(c->session);
	if ((msg->type == DCM_MSG_GC_OPEN) != !c->child.pid) {
		conn->donor->stats.protocol_errors++;
		dcm_conn_refuse(conn, msg->tag, DCM_WS_PROTOCOL);
		return true;
	}
	switch (msg->type) {
	case DCM_MSG_GC_OPEN:
		collect_open(c, msg);
		return true;
	case DCM_MSG_GC_SLAB:
		return collect_slab(c, msg);
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
		return to_worker(c, &m, msg->payload, -1);
	}
}

bool dcm_collect_stuck(const struct dcm_conn *conn)
{
	return conn->collect && conn->collect->stuck;
}

void dcm_collect_update(struct dcm_conn *conn)
{
	struct dcm_collect *c = conn->collect;
	int events = 0;

	if (!c || !c->polls)
		return;
	if (c->stuck)
		events |= UV_WRITABLE;
	if (dcm_chan_queued(conn->chan) < TX_STOP)
		events |= UV_READABLE;
	if (events == c->events)
		return;
	c->events = events;
	if (events)
		uv_poll_start(&c->poll, events, worker_ready);
	else
		uv_poll_stop(&c->poll);
}

/* Pass on one message of the worker; false: there is no more now. */
static bool from_worker(struct dcm_collect *c)
{
	static u64 buf[(sizeof(struct dcm_gc_message) + DCM_GC_PAYLOAD_MAX) / 8];
	const struct dcm_gc_message *m = (void *)buf;
	ssize_t n = dcm_gc_child_receive(&c->child, buf, sizeof(buf));
	struct dcm_wire_msg msg = { .type = DCM_MSG_GC };

	if (n == -EAGAIN)
		return false;
	if (n <= 0 || !(dcm_wire_gc_from(le32toh(m->kind)) & DCM_SIDE_DONOR)) {
		collect_lost(c);
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
	return !dcm_conn_send(c->conn, &msg) &&
	       dcm_chan_queued(c->conn->chan) < TX_STOP;
}

static void worker_ready(uv_poll_t *poll, int status, int events)
{
	struct dcm_collect *c = poll->data;
	struct dcm_conn *conn = c->conn;

	if (status < 0) {
		collect_lost(c);
		return;
	}
	for (u32 i = 0; i < TURN_MAX && from_worker(c); i++)
		;
	if (!c->conn)
		return;
	if (events & UV_WRITABLE) {
		c->stuck = false;
		dcm_conn_resume(conn);
		if (!c->conn)
			return;
	}
	dcm_collect_update(conn);
}

/* Beside the daemon's program, as built; or where both are installed. */
void dcm_collect_start(struct dcm_donor *donor)
{
	static const char *const places[] = { "", "/../libexec/kvm-dcm" };
	char self[DCM_CONFIG_PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	dcm_list_init(&donor->collects);
	donor->gc_cgroup = -1;
	if (!donor->cfg.gc_workers)
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

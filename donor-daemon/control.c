// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * control.c - control messages: infiniswap-nsdi17, appendix B.1, and more
 *
 *   host                          donor
 *   QUERY_MEM ------------------> how much could this session map?
 *                    <----------- FREE_MEM, and ABOUT if that has changed
 *   MAP ------------------------> take a slab, make it reachable
 *                    <----------- MR_INFO (+ memfd for shm)
 *   ASK_TICKET -----------------> the right to a queue pair (rdma.c)
 *                    <----------- TICKET
 *   LIST -----------------------> which slabs has this session?
 *                    <----------- SLAB_IS, for each
 *   UNMAP ----------------------> revoke, free
 *                    <----------- DONE, when the memory is free
 *                    <----------- CHECK_ACTIVITY   (evict.c)
 *   ACTIVITY ------------------->
 *                    <----------- EVICT
 *   DONE -----------------------> revoke, free
 *
 * A request that the donor can't grant is answered by ERROR and the connection
 * stays; only an error of framing or of order closes it.
 *
 * Locking: none, all on the event loop.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rdma_pd.h"
#include "donor.h"
#include "log_limit.h"
#include "rdma.h"
#include "restart.h"

static u64 bytes_lent(const struct dcm_pool *pool)
{
	return (u64)(pool->nr_mapped + pool->nr_evicting) * pool->slab_bytes;
}

/*
 * Send ABOUT, the donor's figures, if the host understands it and the figures have
 * changed. Totals only, as tenants must not learn about each other.
 */
static void control_about(struct dcm_conn *conn, u64 tag)
{
	const struct dcm_donor *donor = conn->donor;
	const struct dcm_pool *pool = &donor->pool;
	struct dcm_wire_msg msg = {
		.type = DCM_MSG_ABOUT,
		.tag = tag,
		.about = {
			.capacity_bytes = pool->capacity,
			.lent_bytes = bytes_lent(pool),
			.head_room_bytes = pool->head_room,
			.sessions = donor->nr_sessions,
			.flags = donor->draining ? DCM_ABOUT_DRAINING : 0,
		},
	};

	if (!conn->wants_about ||
	    (conn->told_about &&
	     !memcmp(&conn->about, &msg.about, sizeof(msg.about))))
		return;
	conn->told_about = true;
	conn->about = msg.about;
	dcm_conn_send(conn, &msg);
}

static void control_query(struct dcm_conn *conn, u64 tag)
{
	const struct dcm_donor *donor = conn->donor;
	const struct dcm_pool *pool = &donor->pool;
	const struct dcm_tenant *t = conn->tenant;
	u64 free_slabs = dcm_pool_free_slabs(pool);
	u64 quota = t->bytes < t->quota_bytes ?
			    (t->quota_bytes - t->bytes) / pool->slab_bytes :
			    0;
	struct dcm_wire_msg msg = {
		.type = DCM_MSG_FREE_MEM,
		.tag = tag,
		.free_mem = {
			.slabs_total = pool->capacity / pool->slab_bytes,
			.slab_bytes = pool->slab_bytes,
			.used_bytes = bytes_lent(pool),
		},
	};

	if (pool->dir >= 0)
		msg.free_mem.flags |= DCM_FREE_FILE;
	if (donor->draining || t->gone)
		msg.free_mem.flags |= DCM_FREE_DRAINING;
	else
		msg.free_mem.slabs_free = free_slabs < quota ? free_slabs :
							       quota;
	if (!dcm_conn_send(conn, &msg))
		control_about(conn, tag);
}

/* A slab being registered for a session, in a thread of the pool. */
struct map_job {
	uv_work_t work;
	struct dcm_session *session;
	struct dcm_slab *slab;
	const struct dcm_export_ops *export;
	u64 tag;
	u32 serial;
	int error;
};

static void map_refuse(struct dcm_conn *conn, u64 tag, u32 status)
{
	conn->donor->stats.maps_refused++;
	if (status == DCM_WS_QUOTA)
		conn->tenant->refusals++;
	dcm_conn_error(conn, tag, status);
}

/* publish() has returned @ret. Announce the slab to its host, or release it. */
static void map_finish(struct dcm_session *s, struct dcm_slab *slab, u64 tag,
		       const struct dcm_export_ops *export, int ret)
{
	struct dcm_donor *donor = s->donor;
	struct dcm_wire_msg msg = { .type = DCM_MSG_MR_INFO, .tag = tag };

	if (!ret) {
		slab->export = export;
		/* it is sent with the first byte of the answer */
		if (export->pass_fd)
			ret = dcm_chan_pass_fd(s->conn->chan, slab->fd);
	}
	if (ret) {
		dcm_log_limited(DCM_LOG_WARNING,
				"slab %llu can't be lent over %s: %s%s",
				(unsigned long long)slab->id, export->name,
				strerror(-ret),
				ret == -ENOMEM && export->slow ?
					"; raise LimitMEMLOCK" :
				ret == -EMFILE ? "; raise LimitNOFILE" :
						 "");
		dcm_pool_release(&donor->pool, slab);
		map_refuse(s->conn, tag, DCM_WS_NO_MEMORY);
		return;
	}
	dcm_slab_lend(slab, s, export);
	dcm_list_add_tail(&slab->session_node, &s->slabs);
	s->nr_slabs++;
	/* store it before the host is told about it */
	dcm_restart_slab(slab);
	donor->stats.maps++;
	msg.mr_info.slab = slab->id;
	msg.mr_info.bytes = slab->bytes;
	msg.mr_info.addr = slab->addr;
	msg.mr_info.rkey = slab->rkey;
	msg.mr_info.transport = export->transport;
	dcm_conn_send(s->conn, &msg);
	dcm_pool_balance(&donor->pool);
}

static void map_publish(uv_work_t *work)
{
	struct map_job *job = work->data;

	job->error = job->export->publish(job->slab);
}

static void map_published(uv_work_t *work, int status)
{
	struct map_job *job = work->data;
	struct dcm_session *s = job->session;
	struct dcm_pool *pool = &s->donor->pool;
	int error = status < 0 ? status : job->error;

	pool->jobs--;
	if (s->ended || !s->conn || s->map_serial != job->serial) {
		/* nobody waits for it: its host is gone, or asks again */
		if (!error)
			job->slab->export = job->export;
		dcm_pool_release(pool, job->slab);
	} else {
		s->want_busy = false;
		map_finish(s, job->slab, job->tag, job->export, error);
		if (s->conn)
			dcm_conn_resume(s->conn);
	}
	dcm_session_put(s);
	free(job);
}

/* Begin to publish @slab, MAPPED and without a session. Charges the tenant. */
static void map_start(struct dcm_session *s, struct dcm_slab *slab, u64 tag,
		      u64 cookie, const struct dcm_export_ops *export)
{
	struct dcm_pool *pool = &s->donor->pool;
	struct map_job *job;

	slab->tenant = s->tenant;
	dcm_tenant_get(slab->tenant);
	slab->tenant->bytes += slab->bytes;
	slab->cookie = cookie;
	if (!export->slow) {
		map_finish(s, slab, tag, export, export->publish(slab));
		return;
	}
	job = calloc(1, sizeof(*job));
	if (!job) {
		map_finish(s, slab, tag, export, -ENOMEM);
		return;
	}
	job->work.data = job;
	job->session = s;
	job->slab = slab;
	job->export = export;
	job->tag = tag;
	job->serial = s->map_serial;
	slab->pd = dcm_rdma_pd_get(s->pd);
	dcm_session_get(s);
	pool->jobs++;
	/* meanwhile no other request of this session is read */
	s->want_busy = true;
	uv_queue_work(pool->loop, &job->work, map_publish, map_published);
}

static void control_map(struct dcm_conn *conn, const struct dcm_wire_msg *msg)
{
	struct dcm_donor *donor = conn->donor;
	struct dcm_session *s = conn->session;
	struct dcm_tenant *t = conn->tenant;
	const struct dcm_export_ops *export =
		dcm_export_choose(msg->map.transports, conn->is_unix,
				  dcm_rdma_ready(s), donor->pool.dir >= 0);
	struct dcm_slab *slab;
	u32 status;

	if (donor->draining || t->gone) {
		map_refuse(conn, msg->tag, DCM_WS_DRAINING);
		return;
	}
	if (msg->map.slab_bytes != donor->pool.slab_bytes) {
		map_refuse(conn, msg->tag, DCM_WS_SIZE);
		return;
	}
	if (!export) {
		map_refuse(conn, msg->tag, DCM_WS_TRANSPORT);
		return;
	}
	if (t->bytes + donor->pool.slab_bytes > t->quota_bytes) {
		map_refuse(conn, msg->tag, DCM_WS_QUOTA);
		return;
	}
	slab = dcm_pool_take(&donor->pool, &s->want, &status);
	if (slab) {
		map_start(s, slab, msg->tag, msg->map.cookie, export);
	} else if (status == DCM_WS_OK) {
		/* meanwhile no other request of this session is read */
		s->want_busy = true;
		/* charge the tenant for the slab it waits for */
		t->bytes += donor->pool.slab_bytes;
		s->want_tag = msg->tag;
		s->want_cookie = msg->map.cookie;
		s->want_export = export;
	} else {
		map_refuse(conn, msg->tag, status);
	}
}

void dcm_control_want_cancel(struct dcm_session *s)
{
	struct dcm_pool *pool = &s->donor->pool;

	if (dcm_pool_want_waits(&s->want))
		s->tenant->bytes -= pool->slab_bytes;
	dcm_pool_want_cancel(pool, &s->want);
	s->want_busy = false;
}

void dcm_control_want_ready(struct dcm_pool_want *want, struct dcm_slab *slab)
{
	struct dcm_session *s = dcm_list_entry(want, struct dcm_session, want);
	struct dcm_conn *conn;

	s->want_busy = false;
	/* take back the charge for the waiting MAP: map_start() charges the slab */
	s->tenant->bytes -= s->donor->pool.slab_bytes;
	/* the connection is lost, so the host can't get the answer: it maps again */
	if (!s->conn) {
		if (slab)
			dcm_pool_release(&s->donor->pool, slab);
		return;
	}
	conn = s->conn;
	/* its protection domain may be gone with the device meanwhile */
	if (slab && s->want_export->slow && !dcm_rdma_ready(s)) {
		dcm_pool_release(&s->donor->pool, slab);
		slab = NULL;
	}
	if (slab)
		map_start(s, slab, s->want_tag, s->want_cookie, s->want_export);
	else
		map_refuse(conn, s->want_tag, DCM_WS_NO_MEMORY);
	if (s->conn)
		dcm_conn_resume(s->conn);
}

static void slab_give_back(struct dcm_session *s, struct dcm_slab *slab)
{
	s->nr_slabs--;
	dcm_pool_release(&s->donor->pool, slab);
}

static void control_unmap(struct dcm_conn *conn, const struct dcm_wire_msg *msg)
{
	struct dcm_donor *donor = conn->donor;
	struct dcm_slab *slab =
		dcm_slab_find(&donor->pool, msg->slab.slab, conn->session);

	if (!slab) {
		dcm_conn_error(conn, msg->tag, DCM_WS_NO_SLAB);
		return;
	}
	if (slab->state == DCM_SLAB_EVICTING)
		donor->stats.evict_done++;
	donor->stats.unmaps++;
	slab->done_wanted = true;
	slab->done_session = conn->session->id;
	slab->done_tag = msg->tag;
	slab_give_back(conn->session, slab);
}

static void control_done(struct dcm_conn *conn, const struct dcm_wire_msg *msg)
{
	struct dcm_donor *donor = conn->donor;
	struct dcm_slab *slab =
		dcm_slab_find(&donor->pool, msg->slab.slab, conn->session);

	/* the donor may have taken the slab by force before this DONE came */
	if (!slab)
		return;
	if (slab->state != DCM_SLAB_EVICTING && !slab->restored) {
		dcm_conn_error(conn, msg->tag, DCM_WS_NO_SLAB);
		return;
	}
	donor->stats.evict_done++;
	slab_give_back(conn->session, slab);
}

void dcm_control_slab_gone(void *arg, struct dcm_slab *slab)
{
	struct dcm_donor *donor = arg;
	struct dcm_wire_msg msg = { .type = DCM_MSG_DONE };
	struct dcm_session *s;

	dcm_restart_slab_freed(donor, slab);
	if (slab->tenant) {
		slab->tenant->bytes -= slab->bytes;
		dcm_tenant_put(slab->tenant);
	}
	dcm_rdma_pd_put(slab->pd);
	if (!slab->done_wanted)
		return;
	s = dcm_session_find(donor, slab->done_session, NULL, NULL);
	if (!s || !s->conn)
		return;
	msg.tag = slab->done_tag;
	msg.slab.slab = slab->id;
	dcm_conn_send(s->conn, &msg);
}

static void control_ticket(struct dcm_conn *conn,
			   const struct dcm_wire_msg *msg)
{
	struct dcm_wire_msg answer = { .tag = msg->tag };
	u32 status = dcm_rdma_ticket(conn, msg->ask_ticket.lane, &answer);

	if (status == DCM_WS_OK)
		dcm_conn_send(conn, &answer);
	else
		dcm_conn_error(conn, msg->tag, status);
	explicit_bzero(&answer, sizeof(answer));
}

/*
 * Find the slabs with the lowest ids above @after, in one pass over all slabs. @low:
 * out: these slabs, ascending. Returns how many; *@more: out: there are others.
 */
static u32 slabs_above(const struct dcm_session *s, u64 after,
		       const struct dcm_slab **low, bool *more)
{
	const struct dcm_slab *slab;
	u32 nr = 0, at;

	*more = false;
	dcm_list_for_each(slab, &s->slabs, struct dcm_slab, session_node) {
		if (slab->id <= after)
			continue;
		if (nr == DCM_WIRE_LIST_MAX) {
			*more = true;
			if (slab->id > low[nr - 1]->id)
				continue;
			nr--;
		}
		for (at = nr++; at && low[at - 1]->id > slab->id; at--)
			low[at] = low[at - 1];
		low[at] = slab;
	}
	return nr;
}

static void control_list(struct dcm_conn *conn, const struct dcm_wire_msg *msg)
{
	const struct dcm_slab *low[DCM_WIRE_LIST_MAX];
	struct dcm_wire_msg answer = { .type = DCM_MSG_SLAB_IS,
				       .tag = msg->tag };
	bool more;
	u32 nr = slabs_above(conn->session, msg->list.after, low, &more);

	if (!nr)
		dcm_conn_send(conn, &answer);
	for (u32 i = 0; i < nr; i++) {
		answer.slab_is.slab = low[i]->id;
		answer.slab_is.cookie = low[i]->cookie;
		answer.slab_is.addr = low[i]->addr;
		answer.slab_is.rkey = low[i]->rkey;
		answer.slab_is.flags = i + 1 < nr || more ? DCM_SLAB_IS_MORE :
							    0;
		if (dcm_conn_send(conn, &answer))
			return; /* the connection is closed, and slabs may be gone */
	}
}

void dcm_control_handle(struct dcm_conn *conn, const struct dcm_wire_msg *msg)
{
	struct dcm_slab *slab;

	dcm_session_heard(conn->session);
	switch (msg->type) {
	case DCM_MSG_HEARTBEAT:
		return;
	case DCM_MSG_GOODBYE:
		conn->donor->stats.sessions_goodbye++;
		dcm_session_end(conn->session, "its host said goodbye");
		return;
	case DCM_MSG_QUERY_MEM:
		control_query(conn, msg->tag);
		return;
	case DCM_MSG_MAP:
		control_map(conn, msg);
		return;
	case DCM_MSG_UNMAP:
		control_unmap(conn, msg);
		return;
	case DCM_MSG_LIST:
		control_list(conn, msg);
		return;
	case DCM_MSG_ASK_TICKET:
		control_ticket(conn, msg);
		return;
	case DCM_MSG_ACTIVITY:
		slab = dcm_slab_find(&conn->donor->pool, msg->activity.slab,
				     conn->session);
		if (slab)
			dcm_evict_answer(conn->donor, slab,
					 msg->activity.ewma_milli);
		return;
	case DCM_MSG_DONE:
		control_done(conn, msg);
		return;
	default:
		/* not reached: the codec lets no other message through */
		dcm_conn_refuse(conn, msg->tag, DCM_WS_PROTOCOL);
	}
}

void dcm_control_heartbeats(struct dcm_donor *donor)
{
	static const struct dcm_wire_msg beat = { .type = DCM_MSG_HEARTBEAT };
	struct dcm_session *s, *tmp;

	dcm_list_for_each_safe(s, tmp, &donor->sessions, struct dcm_session,
			       node)
		/* if bytes are queued the host does not read: don't add heartbeats */
		if (s->conn && !dcm_chan_queued(s->conn->chan))
			dcm_conn_send(s->conn, &beat);
}

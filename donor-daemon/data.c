// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * data.c - data connections: READ and WRITE
 *
 * This is in the path of a page fault, so it is short: one recv() takes the bytes that
 * have come, every whole request in them is carried out in order, and one sendmsg()
 * answers them all. On a plain connection READs are sent from the slab's
 * mapping without a copy; before a later WRITE of the same batch to the same bytes the
 * gathered answers are sent, so that requests take effect in their order. Under TLS
 * answers are gathered in a buffer of one record and encrypted into the channel's
 * buffer. For slabs that are files data_file.c does the I/O; answers are sent from here
 * when it has done them.
 *
 * A WRITE changes the slab only when all of its bytes have come, so if a host dies in
 * the middle of one the old bytes stay. A WRITE without a payload writes zeroes. While
 * answers wait for the socket no requests are read (back-pressure). A request that
 * can't be granted is answered with its status; a stream whose framing is wrong is
 * closed.
 *
 * All this is done in turns, whose length the worker sets (data_worker.c): a
 * turn that has used its allowance leaves the rest in the buffer.
 *
 *	adopted -> a worker's -> [another's ->] closed -> forgotten
 *
 * Locking: a data connection is its worker's alone (data_worker.c). Ending a
 * session shuts the socket down under session->data_lock, where the worker
 * takes the connection off the list before it closes the descriptor; the
 * session and tenant references are dropped on the event loop (donor->gone). A
 * reference keeps a slab from its lookup until its bytes are sent or copied.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "data_int.h"
#include "log_limit.h"

#define PAGE_BYTES 4096u
#define BATCH_BYTES (256u << 10)

/*
 * Cost of a turn, in bytes sent on a plain connection; about its CPU time, so
 * that many small operations pay for system calls, and encrypted ones for
 * encryption. Measured by a busy worker's CPU time on loopback (Linux 6.18, 2
 * virtual CPUs): 0.066 ns a byte, 0.12 us a request, 0.28 to 0.32 ns a byte
 * under TLS, and 0.33 us a record received.
 */
#define COST_REQUEST (2u << 10)
#define COST_TLS 4u /* each byte */
#define COST_RECORD  (5u << 10)
#define COST_ANSWERS \
	(40u << 10) /* the system calls of a turn, without recv() */

static void counter_add(u64 *counter, u64 n)
{
	__atomic_fetch_add(counter, n, __ATOMIC_RELAXED);
}

/* Send the batch (plain) or the rest of the scratch buffer (TLS). */
static int batch_send(struct dcm_worker *w, struct dcm_data *d)
{
	int ret = 0;

	if (w->nr_iov)
		ret = dcm_chan_writev(d->chan, w->iov, (int)w->nr_iov);
	else if (w->scratch_used)
		ret = dcm_chan_write(d->chan, w->scratch, w->scratch_used);
	for (u32 i = 0; i < w->nr; i++)
		if (w->held[i])
			dcm_slab_put(w->held[i]);
	w->nr = 0;
	w->nr_iov = 0;
	w->bytes = 0;
	w->scratch_used = 0;
	return ret;
}

/* Send the batch, and what the channel had queued as far as possible. */
static int batch_flush(struct dcm_worker *w, struct dcm_data *d)
{
	int ret = batch_send(w, d);

	if (!ret)
		ret = dcm_chan_flush(d->chan);
	return ret < 0 ? ret : 0;
}

/* Add bytes for a TLS channel; a full record is sent. */
static int scratch_add(struct dcm_worker *w, struct dcm_data *d,
		       const void *data, size_t len)
{
	const u8 *p = data;
	size_t n;
	int ret;

	while (len) {
		n = DATA_SCRATCH_BYTES - w->scratch_used;
		if (n > len)
			n = len;
		memcpy(w->scratch + w->scratch_used, p, n);
		w->scratch_used += n;
		p += n;
		len -= n;
		if (w->scratch_used < DATA_SCRATCH_BYTES)
			break;
		w->scratch_used = 0;
		ret = dcm_chan_write(d->chan, w->scratch, DATA_SCRATCH_BYTES);
		if (ret)
			return ret;
	}
	return 0;
}

/* Add an answer; the batch owns @slab's reference from here on. */
static int batch_add(struct dcm_worker *w, struct dcm_data *d,
		     const struct dcm_wire_msg *msg, struct dcm_slab *slab,
		     const void *payload)
{
	u8 *head = w->heads[w->nr];
	int n = dcm_wire_encode(head, DATA_DONE_BYTES, msg);
	int ret;

	if (!d->chan->tls) {
		w->held[w->nr++] = slab;
		w->iov[w->nr_iov].iov_base = head;
		w->iov[w->nr_iov++].iov_len = (size_t)n;
		if (payload) {
			w->iov[w->nr_iov].iov_base = (void *)payload;
			w->iov[w->nr_iov++].iov_len = msg->payload_bytes;
		}
	} else {
		ret = scratch_add(w, d, head, (size_t)n);
		if (!ret && payload)
			ret = scratch_add(w, d, payload, msg->payload_bytes);
		if (slab)
			dcm_slab_put(slab);
		if (ret)
			return ret;
		w->held[w->nr++] = NULL;
	}
	w->bytes += (size_t)n + msg->payload_bytes;
	w->cost += COST_REQUEST + ((u64)n + msg->payload_bytes) *
					  (d->chan->tls ? COST_TLS : 1);
	return 0;
}

/* Does a gathered READ still point into [@at, @at + @len)? */
static bool batch_overlaps(const struct dcm_worker *w, const u8 *at, size_t len)
{
	for (u32 i = 0; i < w->nr_iov; i++) {
		const u8 *p = w->iov[i].iov_base;

		if (p < at + len && at < p + w->iov[i].iov_len)
			return true;
	}
	return false;
}

static u32 io_check(const struct dcm_wire_msg *req, const struct dcm_slab *slab)
{
	u64 bytes = req->io.bytes;

	if (!slab)
		return DCM_WS_NO_SLAB;
	if (!bytes || bytes > DCM_WIRE_PAYLOAD_MAX || bytes % PAGE_BYTES ||
	    req->io.offset % PAGE_BYTES || bytes > slab->bytes ||
	    req->io.offset > slab->bytes - bytes)
		return DCM_WS_RANGE;
	return DCM_WS_OK;
}

/* Count an operation that was answered with @ans. */
static void io_count(struct dcm_worker *w, struct dcm_session *s,
		     const struct dcm_wire_msg *ans)
{
	u32 bytes = ans->io_done.bytes;

	if (ans->type == DCM_MSG_DATA) {
		counter_add(&w->count.reads, 1);
		counter_add(&w->count.read_bytes, bytes);
		counter_add(&s->reads, 1);
		counter_add(&s->read_bytes, bytes);
	} else {
		counter_add(&w->count.writes, 1);
		counter_add(&w->count.written_bytes, bytes);
		counter_add(&s->writes, 1);
		counter_add(&s->written_bytes, bytes);
	}
}

/* Carry out a request; @payload is whole for a WRITE, or %NULL for zeroes. */
static int data_request(struct dcm_worker *w, struct dcm_data *d,
			const struct dcm_wire_msg *req, const u8 *payload)
{
	struct dcm_session *s = d->session;
	struct dcm_slab *slab = dcm_slab_get(&w->donor->pool, req->io.slab, s);
	struct dcm_wire_msg ans = { .tag = req->tag };
	u32 status = io_check(req, slab);
	int ret = 0;
	u8 *at;

	ans.type = req->type == DCM_MSG_READ ? DCM_MSG_DATA : DCM_MSG_WRITTEN;
	ans.io_done.status = status;
	if (status) {
		if (slab)
			dcm_slab_put(slab);
		slab = NULL;
		counter_add(&w->count.refused, 1);
	} else {
		counter_add(&slab->ops, req->io.bytes / PAGE_BYTES);
	}
	if (w->file) {
		/* charge the request here; sending is charged when it is sent */
		w->cost += COST_REQUEST + (status ? 0 : req->io.bytes);
		dcm_data_file_request(w, d, req, slab, status, payload);
		return 0;
	}
	if (status)
		return batch_add(w, d, &ans, NULL, NULL);
	at = (u8 *)slab->map + req->io.offset;
	ans.io_done.bytes = req->io.bytes;
	if (req->type == DCM_MSG_READ) {
		ans.payload_bytes = req->io.bytes;
		io_count(w, s, &ans);
		return batch_add(w, d, &ans, slab, at);
	}
	if (batch_overlaps(w, at, req->io.bytes))
		ret = batch_send(w, d);
	if (ret) {
		dcm_slab_put(slab);
		return ret;
	}
	if (payload) {
		memcpy(at, payload, req->io.bytes);
	} else {
		memset(at, 0, req->io.bytes);
		w->cost += req->io.bytes;
	}
	io_count(w, s, &ans);
	dcm_slab_put(slab);
	return batch_add(w, d, &ans, NULL, NULL);
}

/* Send answers that data_file.c has done, as many as the channel takes. 0 or -errno. */
static int answers_send(struct dcm_worker *w, struct dcm_data *d)
{
	struct dcm_wire_msg ans;
	const u8 *bytes;
	int ret = 0;

	while (!ret && dcm_data_file_next(d, &ans, &bytes)) {
		if (!ans.io_done.status)
			io_count(w, d->session, &ans);
		ret = batch_add(w, d, &ans, NULL, bytes);
		if (!ret && (w->nr == DATA_BATCH || w->bytes >= BATCH_BYTES)) {
			ret = batch_flush(w, d);
			dcm_data_file_sent(w, d);
		}
	}
	if (w->nr)
		counter_add(&w->count.batches, 1);
	if (ret)
		batch_send(w, d);
	else
		ret = batch_flush(w, d);
	dcm_data_file_sent(w, d);
	return ret;
}

int dcm_data_answer(struct dcm_worker *w, struct dcm_data *d)
{
	struct dcm_chan *ch = d->chan;
	bool out;
	int ret;

	w->cost = COST_ANSWERS;
	ret = answers_send(w, d);
	dcm_fair_charge(&w->fair, d->turn.flow, w->cost);
	counter_add(&d->tenant->data_cost, w->cost);
	out = dcm_chan_queued(ch);
	if (!ret && out && !d->want_out) {
		d->want_out = true;
		ret = dcm_data_watch(w, d, EPOLL_CTL_MOD);
	}
	if (ret) {
		ch->broken = true;
		dcm_fair_add(&w->fair, &d->turn);
	}
	return ret;
}

/* Must requests of @d wait until the disk has done others? */
static bool data_stuck(const struct dcm_worker *w, const struct dcm_data *d)
{
	return w->file && (dcm_data_file_full(w) || dcm_data_file_held(d));
}

/*
 * Carry out the whole requests in the buffer, or as many as the turn allows: 0,
 * or a negative errno when the connection must be closed.
 */
static int data_requests(struct dcm_worker *w, struct dcm_data *d)
{
	struct dcm_chan *ch = d->chan;
	struct dcm_wire_msg req;
	size_t bytes;
	int ret;

	/* GnuTLS may have messages of its own to send */
	ret = dcm_chan_flush(ch);
	if (ret < 0)
		return ret;
	while (!dcm_chan_queued(ch) || (ch->tls && w->nr)) {
		const u8 *p = ch->in.p + ch->in.head;

		if (w->nr == DATA_BATCH || w->bytes >= BATCH_BYTES) {
			ret = batch_flush(w, d);
			if (ret)
				return ret;
			continue;
		}
		if (w->cost >= w->cost_max || data_stuck(w, d)) {
			d->left = ch->in.tail > ch->in.head;
			break;
		}
		ret = dcm_wire_decode(p, dcm_buf_used(&ch->in), DCM_PHASE_DATA,
				      DCM_SIDE_HOST, &req, &bytes);
		if (ret == DCM_WIRE_MORE)
			break;
		if (ret != DCM_WIRE_OK) {
			dcm_log_limited(DCM_LOG_WARNING,
					"data connection of %s: %s: %s; closed",
					d->tenant->name,
					dcm_wire_error_name(ret),
					dcm_wire_error_text(ret));
			return -EPROTO;
		}
		ret = data_request(w, d, &req,
				   req.payload_bytes ? req.payload : NULL);
		if (ret)
			return ret;
		dcm_chan_consume(ch, bytes);
	}
	if (w->file) {
		dcm_data_file_submit(w);
		return answers_send(w, d);
	}
	if (w->nr)
		counter_add(&w->count.batches, 1);
	return batch_flush(w, d);
}

static void data_forget(struct dcm_data *d)
{
	struct dcm_donor *donor = d->worker->donor;

	pthread_mutex_lock(&donor->gone_lock);
	dcm_list_add_tail(&d->node, &donor->gone);
	pthread_mutex_unlock(&donor->gone_lock);
	uv_async_send(&donor->gone_async);
}

void dcm_data_close(struct dcm_data *d)
{
	struct dcm_worker *w = d->worker;
	struct dcm_session *s = d->session;
	struct dcm_chan *ch = d->chan;

	if (w->file && dcm_data_file_drop(w, d))
		return;
	if (dcm_chan_cut(ch))
		WRITE_ONCE(s->cut, true);
	dcm_list_del(&d->node);
	dcm_data_leave(w, d);
	pthread_mutex_lock(&s->data_lock);
	dcm_list_del(&d->session_node);
	s->nr_data--;
	pthread_mutex_unlock(&s->data_lock);
	if (ch->tls && !ch->broken && !ch->eof) {
		gnutls_bye(ch->tls, GNUTLS_SHUT_WR);
		dcm_chan_flush(ch);
	}
	dcm_chan_free(ch);
	d->chan = NULL;
	__atomic_fetch_sub(&w->connections, 1, __ATOMIC_RELAXED);
	data_forget(d);
}

/* Read new bytes: as dcm_chan_read(). */
static int data_read(struct dcm_worker *w, struct dcm_data *d)
{
	struct dcm_chan *ch = d->chan;
	size_t had = dcm_buf_used(&ch->in);
	u64 records = ch->records;
	int ret = dcm_chan_read(ch);

	if (ret > 0) {
		w->cost += (dcm_buf_used(&ch->in) - had) *
				   (ch->tls ? COST_TLS : 1) +
			   (ch->records - records) * COST_RECORD;
		WRITE_ONCE(d->session->heard_at,
			   dcm_clock_read_ns(CLOCK_MONOTONIC_COARSE) / 1000000);
	}
	return ret;
}

static void counter_raise(u64 *most, u64 n)
{
	u64 old = READ_ONCE(*most);

	while (n > old &&
	       !__atomic_compare_exchange_n(most, &old, n, true,
					    __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

/*
 * Count a turn for its tenant. @d is open, and this worker's: else the tenant may be
 * gone.
 */
static void turn_count(const struct dcm_worker *w, const struct dcm_data *d)
{
	struct dcm_tenant *t = d->tenant;

	counter_add(&t->data_turns, 1);
	counter_add(&t->data_cost, w->cost);
	counter_raise(&t->data_turn_max, w->cost);
	counter_raise(&t->data_wait_max, d->turn.flow->waited);
}

int dcm_data_serve(struct dcm_worker *w, struct dcm_data *d)
{
	struct dcm_chan *ch = d->chan;
	int ret, served = 0;
	bool more = false, left, out;

	do {
		ret = dcm_chan_flush(ch);
		if (ret < 0)
			goto dead;
		if (!ret)
			break;
		left = d->left;
		ret = left ? 1 : data_read(w, d);
		d->left = false;
		served |= ret > 0;
		if (smp_load_acquire(&d->session->ended) ||
		    data_requests(w, d) || ret < 0)
			goto dead;
		/*
		 * epoll reports a hang-up once, and recv() may say EAGAIN for a
		 * moment after that: read until it returns the end
		 */
		more = left || d->left || ch->more || d->hung_up;
	} while (more && !dcm_chan_queued(ch) && w->cost < w->cost_max &&
		 !data_stuck(w, d));
	out = dcm_chan_queued(ch);
	if (d->want_out != out) {
		d->want_out = out;
		if (dcm_data_watch(w, d, EPOLL_CTL_MOD))
			goto dead;
	}
	turn_count(w, d);
	if (served && dcm_data_follow(w, d))
		return -ENOTCONN;
	d->held = w->file && more && !out && dcm_data_file_held(d);
	if (more && !out && !d->held)
		dcm_fair_add(&w->fair, &d->turn);
	return served;
dead:
	/* after an error the batch still has references to slabs: drop these */
	ch->broken = true;
	batch_send(w, d);
	turn_count(w, d);
	dcm_data_close(d);
	return -ENOTCONN;
}

int dcm_data_adopt(struct dcm_donor *donor, struct dcm_session *session,
		   struct dcm_tenant *tenant, struct dcm_chan *chan, u16 lane)
{
	struct dcm_data *d = calloc(1, sizeof(*d));
	struct dcm_worker *w;

	if (!d)
		return -ENOMEM;
	d->chan = chan;
	d->session = session;
	d->tenant = tenant;
	d->lane = lane;
	dcm_list_init(&d->session_node);
	dcm_list_init(&d->ops);
	dcm_list_init(&d->heard_node);
	dcm_session_get(session);
	pthread_mutex_lock(&session->data_lock);
	w = dcm_data_worker_choose(donor, session, chan);
	d->worker = w;
	dcm_list_add_tail(&d->session_node, &session->data);
	session->nr_data++;
	pthread_mutex_unlock(&session->data_lock);
	session->nr_joined++;
	dcm_data_worker_give(w, d);
	return 0;
}

void dcm_data_shutdown(struct dcm_session *session)
{
	struct dcm_data *d;

	pthread_mutex_lock(&session->data_lock);
	dcm_list_for_each(d, &session->data, struct dcm_data, session_node)
		shutdown(d->chan->fd, SHUT_RDWR);
	pthread_mutex_unlock(&session->data_lock);
}

bool dcm_data_ending(struct dcm_session *session, u16 lane)
{
	struct dcm_data *d;
	bool ending = false;

	pthread_mutex_lock(&session->data_lock);
	dcm_list_for_each(d, &session->data, struct dcm_data, session_node) {
		struct pollfd p = { .fd = d->chan->fd, .events = POLLRDHUP };

		if (lane && d->lane == lane)
			shutdown(d->chan->fd, SHUT_RDWR);
		ending |= poll(&p, 1, 0) > 0;
	}
	pthread_mutex_unlock(&session->data_lock);
	return ending;
}

void dcm_data_gone(uv_async_t *async)
{
	struct dcm_donor *donor = async->data;
	struct dcm_list gone;
	struct dcm_data *d, *tmp;

	dcm_list_init(&gone);
	pthread_mutex_lock(&donor->gone_lock);
	dcm_list_for_each_safe(d, tmp, &donor->gone, struct dcm_data, node) {
		dcm_list_del(&d->node);
		dcm_list_add_tail(&d->node, &gone);
	}
	pthread_mutex_unlock(&donor->gone_lock);
	dcm_list_for_each_safe(d, tmp, &gone, struct dcm_data, node) {
		d->session->nr_joined--;
		dcm_session_left(d->session);
		dcm_session_put(d->session);
		dcm_conn_uncount(donor, d->tenant);
		free(d);
	}
}

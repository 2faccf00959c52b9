// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * data.c - data connections: READ and WRITE served by worker threads
 *
 * This is in the path of a page fault, so it is short: one recv() takes what
 * has come, every whole request of it is carried out in order, one sendmsg()
 * answers them all. On a plain connection READs are sent from the slab's
 * mapping without a copy; a later WRITE to the same bytes in the same batch
 * first sends what is gathered, so that the order of the requests is the
 * order of their effects. Under TLS the answers are gathered in a buffer of
 * one record and encrypted into the channel's.
 *
 * A WRITE touches the slab when all of it is here, so a host that dies in
 * the middle of one leaves the old bytes. Back-pressure: while answers wait
 * for the socket nothing is read. A request that can't be granted is answered
 * with its status; a stream that lost its framing is closed.
 *
 * Waking a sleeping thread of another CPU costs more than the operation, by
 * far. So with a worker for every CPU each is pinned to its own, and a
 * connection is moved to the worker of the CPU its bytes arrive on, when they
 * have kept arriving there: on loopback that is where the faulting thread
 * runs, elsewhere the network card's queue.
 *
 * The other way: with "poll-us" a worker that has just served something looks at that
 * connection without sleeping for so long. It adapts: a worker whose looks
 * were in vain lately sleeps at once. Workers that look are not pinned, or
 * they would take the CPU from the one they wait for.
 *
 * Locking: a data connection is its worker's alone. Adopting goes through
 * the worker's inbox (its lock, an eventfd); ending a session shuts the
 * socket down under session->data_lock, where the worker takes the
 * connection off the list before it closes the descriptor; the session and
 * tenant references go back on the event loop (donor->gone). A slab is held
 * by a reference from the lookup until its bytes are sent or copied.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "donor.h"
#include "log.h"

#define PAGE_BYTES	4096u
#define IN_BYTES	(160u << 10)	/* two whole WRITEs and some */
#define BATCH		64u
#define BATCH_BYTES	(256u << 10)
#define DONE_BYTES	(DCM_WIRE_HDR_BYTES + sizeof(struct dcm_wire_io_done))
#define SCRATCH_BYTES	16384u		/* one TLS record */
#define EVENTS		64
#define LOOKS		8		/* at one connection between two at all */
#define TURN_MAX	4u		/* reads in a row: others want theirs */
#define FOLLOW_EVERY	16u		/* batches between looks at the CPU */
#define FOLLOW_AFTER	3u		/* looks in a row before it is moved */

struct dcm_data {
	struct dcm_list node;		/* worker's, its inbox, or donor->gone */
	struct dcm_list session_node;	/* under session->data_lock */
	struct dcm_worker *worker;
	struct dcm_chan *chan;
	struct dcm_session *session;
	struct dcm_tenant *tenant;
	u16 lane;			/* the host's number; 0: none */
	bool want_out;
	unsigned int served;
	unsigned int astray;	/* looks that found it on another CPU */
};

struct counters {
	u64 reads;
	u64 writes;
	u64 read_bytes;
	u64 written_bytes;
	u64 refused;
	u64 batches;
};

struct dcm_worker {
	pthread_t thread;
	struct dcm_donor *donor;
	int epfd;
	int evfd;
	int cpu;		/* pinned to; -1: not */
	pthread_mutex_t lock;
	struct dcm_list inbox;
	bool stop;
	bool started;
	u32 connections;	/* __atomic */
	u64 poll_ns;
	struct dcm_list conns;
	struct counters count;	/* written here, read anywhere: __atomic */
	unsigned int vain;	/* looks in a row that found nothing */
	/* the batch being gathered */
	struct iovec iov[2 * BATCH];
	u8 heads[BATCH][DONE_BYTES];
	struct dcm_slab *held[BATCH];
	u32 nr;
	u32 nr_iov;
	size_t bytes;
	u8 scratch[SCRATCH_BYTES];
	size_t scratch_used;
};

static void count(u64 *counter, u64 n)
{
	__atomic_fetch_add(counter, n, __ATOMIC_RELAXED);
}

static u64 clock_ns(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (u64)ts.tv_sec * 1000000000u + (u64)ts.tv_nsec;
}

/* Send the batch (plain) or what is left of the scratch (TLS). */
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

/* Bytes for a TLS channel; a record is closed when it is full. */
static int scratch_add(struct dcm_worker *w, struct dcm_data *d,
		       const void *data, size_t len)
{
	const u8 *p = data;
	size_t n;

	while (len) {
		n = SCRATCH_BYTES - w->scratch_used;
		if (n > len)
			n = len;
		memcpy(w->scratch + w->scratch_used, p, n);
		w->scratch_used += n;
		p += n;
		len -= n;
		if (w->scratch_used < SCRATCH_BYTES)
			break;
		w->scratch_used = 0;
		if (dcm_chan_write(d->chan, w->scratch, SCRATCH_BYTES))
			return -1;
	}
	return 0;
}

/* One answer; @slab's reference is the batch's from here. */
static int batch_add(struct dcm_worker *w, struct dcm_data *d,
		     const struct dcm_wire_msg *msg, struct dcm_slab *slab,
		     const void *payload)
{
	u8 *head = w->heads[w->nr];
	int n = dcm_wire_encode(head, DONE_BYTES, msg);
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

/* Carry out one request; @payload is whole for a WRITE. */
static int data_request(struct dcm_worker *w, struct dcm_data *d,
			const struct dcm_wire_msg *req, const u8 *payload)
{
	struct dcm_session *s = d->session;
	struct dcm_slab *slab = dcm_slab_get(&w->donor->pool, req->io.slab, s);
	struct dcm_wire_msg ans = { .tag = req->tag };
	u32 status = io_check(req, slab);
	u8 *at;

	ans.type = req->type == DCM_MSG_READ ? DCM_MSG_DATA : DCM_MSG_WRITTEN;
	ans.io_done.status = status;
	if (status) {
		if (slab)
			dcm_slab_put(slab);
		count(&w->count.refused, 1);
		return batch_add(w, d, &ans, NULL, NULL);
	}
	at = (u8 *)slab->map + req->io.offset;
	ans.io_done.bytes = req->io.bytes;
	count(&slab->ops, req->io.bytes / PAGE_BYTES);
	if (req->type == DCM_MSG_READ) {
		count(&w->count.reads, 1);
		count(&w->count.read_bytes, req->io.bytes);
		count(&s->reads, 1);
		count(&s->read_bytes, req->io.bytes);
		ans.payload_bytes = req->io.bytes;
		return batch_add(w, d, &ans, slab, at);
	}
	if (batch_overlaps(w, at, req->io.bytes) && batch_send(w, d)) {
		dcm_slab_put(slab);
		return -1;
	}
	memcpy(at, payload, req->io.bytes);
	count(&w->count.writes, 1);
	count(&w->count.written_bytes, req->io.bytes);
	count(&s->writes, 1);
	count(&s->written_bytes, req->io.bytes);
	dcm_slab_put(slab);
	return batch_add(w, d, &ans, NULL, NULL);
}

/* All whole requests in the buffer: 0, or -1 when the connection must go. */
static int data_requests(struct dcm_worker *w, struct dcm_data *d)
{
	struct dcm_chan *ch = d->chan;
	struct dcm_wire_msg req;
	size_t bytes;
	int ret;

	/* GnuTLS may have something of its own to say */
	if (dcm_chan_flush(ch) < 0)
		return -1;
	while (!dcm_chan_queued(ch) || (ch->tls && w->nr)) {
		const u8 *p = ch->in.p + ch->in.head;

		if (w->nr == BATCH || w->bytes >= BATCH_BYTES) {
			if (batch_send(w, d) || dcm_chan_flush(ch) < 0)
				return -1;
			continue;
		}
		ret = dcm_wire_decode(p, ch->in.tail - ch->in.head,
				      DCM_PHASE_DATA, DCM_SIDE_HOST, &req,
				      &bytes);
		if (ret == DCM_WIRE_MORE)
			break;
		if (ret != DCM_WIRE_OK) {
			dcm_log_limited(DCM_LOG_WARNING,
					"data connection of %s: %s: %s; closed",
					d->tenant->name,
					dcm_wire_error_name(ret),
					dcm_wire_error_text(ret));
			return -1;
		}
		if (data_request(w, d, &req, req.payload))
			return -1;
		dcm_chan_consume(ch, bytes);
	}
	if (w->nr)
		count(&w->count.batches, 1);
	return batch_send(w, d) || dcm_chan_flush(ch) < 0 ? -1 : 0;
}

static void data_forget(struct dcm_data *d)
{
	struct dcm_donor *donor = d->worker->donor;

	pthread_mutex_lock(&donor->gone_lock);
	dcm_list_add_tail(&d->node, &donor->gone);
	pthread_mutex_unlock(&donor->gone_lock);
	uv_async_send(&donor->gone_async);
}

static void data_close(struct dcm_data *d)
{
	struct dcm_worker *w = d->worker;
	struct dcm_session *s = d->session;
	struct dcm_chan *ch = d->chan;

	dcm_list_del(&d->node);
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

/* The worker of the CPU that @chan's bytes arrive on, or %NULL. */
static struct dcm_worker *worker_near(struct dcm_donor *donor,
				      const struct dcm_chan *chan)
{
	socklen_t len = sizeof(int);
	int cpu;

	if (donor->workers[0].cpu < 0 ||
	    getsockopt(chan->fd, SOL_SOCKET, SO_INCOMING_CPU, &cpu, &len))
		return NULL;
	for (u32 i = 0; i < donor->nr_workers; i++)
		if (donor->workers[i].cpu == cpu)
			return &donor->workers[i];
	return NULL;
}

static void worker_give(struct dcm_worker *w, struct dcm_data *d)
{
	u64 one = 1;

	d->worker = w;
	d->astray = 0;
	__atomic_fetch_add(&w->connections, 1, __ATOMIC_RELAXED);
	pthread_mutex_lock(&w->lock);
	dcm_list_add_tail(&d->node, &w->inbox);
	pthread_mutex_unlock(&w->lock);
	if (write(w->evfd, &one, sizeof(one)) < 0)
		dcm_err("worker: eventfd: %s", strerror(errno));
}

/* True when @d now is another worker's: it may be gone already. */
static bool data_follow(struct dcm_worker *w, struct dcm_data *d)
{
	struct dcm_worker *near;

	if (w->cpu < 0 || d->want_out || ++d->served % FOLLOW_EVERY)
		return false;
	near = worker_near(w->donor, d->chan);
	if (!near || near == w) {
		d->astray = 0;
		return false;
	}
	if (++d->astray < FOLLOW_AFTER ||
	    epoll_ctl(w->epfd, EPOLL_CTL_DEL, d->chan->fd, NULL))
		return false;
	dcm_list_del(&d->node);
	__atomic_fetch_sub(&w->connections, 1, __ATOMIC_RELAXED);
	worker_give(near, d);
	return true;
}

/*
 * 1: something came and was served; 0: nothing did; -1: @d is not ours any
 * more (closed, or another worker's).
 */
static int data_serve(struct dcm_worker *w, struct dcm_data *d)
{
	struct dcm_chan *ch = d->chan;
	struct epoll_event ev = { .data.ptr = d };
	unsigned int turn = 0;
	int ret, served = 0;
	bool out;

	do {
		ret = dcm_chan_flush(ch);
		if (ret < 0)
			goto dead;
		if (!ret)
			break;
		ret = dcm_chan_read(ch);
		if (ret > 0) {
			served = 1;
			__atomic_store_n(&d->session->heard_at,
					 clock_ns(CLOCK_MONOTONIC_COARSE) /
						 1000000,
					 __ATOMIC_RELAXED);
		}
		if (__atomic_load_n(&d->session->ended, __ATOMIC_ACQUIRE) ||
		    data_requests(w, d) || ret < 0)
			goto dead;
	} while (ch->more && !dcm_chan_queued(ch) && ++turn < TURN_MAX);
	/* a writable socket is also how a turn cut short comes again */
	out = dcm_chan_queued(ch) || (served && ch->more);
	if (d->want_out != out) {
		d->want_out = out;
		ev.events = out ? EPOLLOUT : EPOLLIN;
		if (epoll_ctl(w->epfd, EPOLL_CTL_MOD, ch->fd, &ev))
			goto dead;
	}
	return served && data_follow(w, d) ? -1 : served;
dead:
	/* a batch cut short by an error still holds its slabs */
	ch->broken = true;
	batch_send(w, d);
	data_close(d);
	return -1;
}

static void worker_inbox(struct dcm_worker *w)
{
	struct epoll_event ev = { .events = EPOLLIN };
	struct dcm_list inbox;
	struct dcm_data *d, *tmp;
	u64 n;

	if (read(w->evfd, &n, sizeof(n)) < 0 && errno != EAGAIN)
		dcm_err("worker: eventfd: %s", strerror(errno));
	dcm_list_init(&inbox);
	pthread_mutex_lock(&w->lock);
	dcm_list_for_each_safe(d, tmp, &w->inbox, struct dcm_data, node)
	{
		dcm_list_del(&d->node);
		dcm_list_add_tail(&d->node, &inbox);
	}
	pthread_mutex_unlock(&w->lock);
	dcm_list_for_each_safe(d, tmp, &inbox, struct dcm_data, node)
	{
		dcm_list_del(&d->node);
		dcm_list_add_tail(&d->node, &w->conns);
		ev.data.ptr = d;
		if (dcm_chan_room(d->chan, IN_BYTES) ||
		    epoll_ctl(w->epfd, EPOLL_CTL_ADD, d->chan->fd, &ev)) {
			dcm_log_limited(DCM_LOG_WARNING,
					"no memory for a data connection of %s",
					d->tenant->name);
			data_close(d);
			continue;
		}
		/* requests may have come along with HELLO */
		d->chan->more = true;
		data_serve(w, d);
	}
}

/*
 * Look at @d for a while instead of sleeping. 1: something was there, and
 * *@nr events of others; 0: nothing; -1: @d is closed.
 */
static int worker_poll(struct dcm_worker *w, struct dcm_data *d,
		       struct epoll_event *events, int *nr)
{
	u64 until;
	int ret;

	*nr = 0;
	if (!w->poll_ns || d->want_out || (w->vain > 3 && ++w->vain % 64))
		return 0;
	until = clock_ns(CLOCK_MONOTONIC) + w->poll_ns;
	do {
		/* the one that spoke last, most of the time */
		for (int look = 0; look < LOOKS; look++) {
			ret = data_serve(w, d);
			if (ret) {
				w->vain = 0;
				return ret;
			}
		}
		*nr = epoll_wait(w->epfd, events, EVENTS, 0);
		if (*nr > 0) {
			w->vain = 0;
			return 1;
		}
	} while (clock_ns(CLOCK_MONOTONIC) < until);
	w->vain++;
	return 0;
}

static void *worker_run(void *arg)
{
	struct dcm_worker *w = arg;
	struct epoll_event events[EVENTS];
	struct dcm_data *last = NULL, *d, *tmp;
	int nr, ret;

	while (!__atomic_load_n(&w->stop, __ATOMIC_ACQUIRE)) {
		nr = 0;
		ret = last ? worker_poll(w, last, events, &nr) : 0;
		if (ret > 0 && !nr)
			continue;
		if (!ret)
			nr = epoll_wait(w->epfd, events, EVENTS, -1);
		last = NULL;
		for (int i = 0; i < nr; i++) {
			d = events[i].data.ptr;
			if (!d)
				worker_inbox(w);
			else if (data_serve(w, d) >= 0)
				last = d;
		}
	}
	worker_inbox(w);
	dcm_list_for_each_safe(d, tmp, &w->conns, struct dcm_data, node)
		data_close(d);
	return NULL;
}

int dcm_data_adopt(struct dcm_donor *donor, struct dcm_session *session,
		   struct dcm_tenant *tenant, struct dcm_chan *chan, u16 lane)
{
	struct dcm_data *d = calloc(1, sizeof(*d));
	struct dcm_worker *w = worker_near(donor, chan);

	if (!d)
		return -1;
	for (u32 i = 0; i < donor->nr_workers; i++)
		if (!w || (w->cpu < 0 &&
			   __atomic_load_n(&donor->workers[i].connections,
					   __ATOMIC_RELAXED) <
				   __atomic_load_n(&w->connections,
						   __ATOMIC_RELAXED)))
			w = &donor->workers[i];
	d->chan = chan;
	d->session = session;
	d->tenant = tenant;
	d->lane = lane;
	dcm_list_init(&d->session_node);
	dcm_session_get(session);
	pthread_mutex_lock(&session->data_lock);
	dcm_list_add_tail(&d->session_node, &session->data);
	session->nr_data++;
	pthread_mutex_unlock(&session->data_lock);
	worker_give(w, d);
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
	dcm_list_for_each(d, &session->data, struct dcm_data, session_node)
	{
		struct pollfd p = { .fd = d->chan->fd, .events = POLLRDHUP };

		if (lane && d->lane == lane)
			shutdown(d->chan->fd, SHUT_RDWR);
		ending |= poll(&p, 1, 0) > 0;
	}
	pthread_mutex_unlock(&session->data_lock);
	return ending;
}

static void data_gone(uv_async_t *async)
{
	struct dcm_donor *donor = async->data;
	struct dcm_list gone;
	struct dcm_data *d, *tmp;

	dcm_list_init(&gone);
	pthread_mutex_lock(&donor->gone_lock);
	dcm_list_for_each_safe(d, tmp, &donor->gone, struct dcm_data, node)
	{
		dcm_list_del(&d->node);
		dcm_list_add_tail(&d->node, &gone);
	}
	pthread_mutex_unlock(&donor->gone_lock);
	dcm_list_for_each_safe(d, tmp, &gone, struct dcm_data, node)
	{
		dcm_session_put(d->session);
		dcm_conn_forget(donor, d->tenant);
		free(d);
	}
}

/* The CPUs this process may run on: how many, and the @n-th of them. */
static u32 cpus(u32 n, int *cpu)
{
	cpu_set_t set;
	u32 count = 0;

	*cpu = -1;
	if (sched_getaffinity(0, sizeof(set), &set))
		return 1;
	for (int i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &set) && count++ == n)
			*cpu = i;
	return count;
}

static void worker_pin(struct dcm_worker *w, u32 n)
{
	cpu_set_t set;

	cpus(n, &w->cpu);
	CPU_ZERO(&set);
	if (w->cpu >= 0)
		CPU_SET(w->cpu, &set);
	if (w->cpu < 0 || pthread_setaffinity_np(w->thread, sizeof(set), &set))
		w->cpu = -1;
}

int dcm_data_start(struct dcm_donor *donor, char *err, size_t err_len)
{
	struct epoll_event ev = { .events = EPOLLIN };
	int any;
	u32 nr_cpus = cpus(0, &any);
	u32 nr = donor->cfg.threads ? donor->cfg.threads :
		 nr_cpus < 64	    ? nr_cpus :
				      64;

	pthread_mutex_init(&donor->gone_lock, NULL);
	dcm_list_init(&donor->gone);
	donor->gone_async.data = donor;
	uv_async_init(&donor->loop, &donor->gone_async, data_gone);
	donor->workers = calloc(nr, sizeof(*donor->workers));
	if (!donor->workers) {
		snprintf(err, err_len, "out of memory");
		return -1;
	}
	for (u32 i = 0; i < nr; i++) {
		struct dcm_worker *w = &donor->workers[i];

		w->donor = donor;
		w->cpu = -1;
		w->poll_ns = (u64)donor->cfg.poll_us * 1000;
		dcm_list_init(&w->inbox);
		dcm_list_init(&w->conns);
		pthread_mutex_init(&w->lock, NULL);
		w->epfd = epoll_create1(EPOLL_CLOEXEC);
		w->evfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		donor->nr_workers++;
		if (w->epfd < 0 || w->evfd < 0 ||
		    epoll_ctl(w->epfd, EPOLL_CTL_ADD, w->evfd, &ev) ||
		    pthread_create(&w->thread, NULL, worker_run, w)) {
			snprintf(err, err_len, "no worker thread: %s",
				 strerror(errno));
			return -1;
		}
		w->started = true;
	}
	/* before the first connection: workers only read it then */
	for (u32 i = 0; i < nr && nr == nr_cpus && !donor->cfg.poll_us; i++)
		worker_pin(&donor->workers[i], i);
	return 0;
}

void dcm_data_stop(struct dcm_donor *donor)
{
	u64 one = 1;

	for (u32 i = 0; i < donor->nr_workers; i++) {
		struct dcm_worker *w = &donor->workers[i];

		__atomic_store_n(&w->stop, true, __ATOMIC_RELEASE);
		if (w->started && write(w->evfd, &one, sizeof(one)) > 0)
			pthread_join(w->thread, NULL);
		if (w->epfd >= 0)
			close(w->epfd);
		if (w->evfd >= 0)
			close(w->evfd);
		pthread_mutex_destroy(&w->lock);
	}
	data_gone(&donor->gone_async);
	free(donor->workers);
	donor->workers = NULL;
	donor->nr_workers = 0;
	uv_close((uv_handle_t *)&donor->gone_async, NULL);
}

void dcm_data_totals(const struct dcm_donor *donor, struct dcm_data_totals *t)
{
	memset(t, 0, sizeof(*t));
	for (u32 i = 0; i < donor->nr_workers; i++) {
		const struct dcm_worker *w = &donor->workers[i];

#define SUM(f) t->f += __atomic_load_n(&w->count.f, __ATOMIC_RELAXED)
		SUM(reads);
		SUM(writes);
		SUM(read_bytes);
		SUM(written_bytes);
		SUM(refused);
		SUM(batches);
#undef SUM
		t->connections +=
			__atomic_load_n(&w->connections, __ATOMIC_RELAXED);
	}
}

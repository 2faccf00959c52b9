// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * data_worker.c - the threads that serve data connections
 *
 * Waking a sleeping thread on another CPU costs far more than the operation. So
 * if there is a worker for every CPU, each is pinned to its own, and a
 * connection is moved to the worker of the CPU its bytes arrive on, once they
 * have kept arriving there: on loopback that is where the faulting thread runs,
 * elsewhere the network card's queue.
 *
 * While requests come densely, a worker polls in place of sleeping (data_poll.c): the
 * connection that it served last, and now and then all of them. If slabs are files, it
 * would have to sleep twice for a READ, for the disk and for the next request.
 *
 * Tenants take turns at each worker (fair.c), whatever the number of their
 * connections and of waiting requests; a tenant's connections share its turns.
 * Events from epoll queue connections, and epoll is asked again after about one
 * turn. So a request of a tenant that wants less than its share waits for at
 * most one turn of each other tenant. Each worker is fair, not the donor as a
 * whole: with pinned workers the network decides which connections a worker
 * has, else each session's connections are spread over all workers.
 *
 * Locking: a worker's connections and its batch are its thread's alone. A
 * connection is given to it through its inbox (its lock, an eventfd), by the
 * event loop or by the worker that had it, which then no longer touches it. The
 * CPU a worker is pinned to is written before there are connections.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "data_int.h"
#include "log_limit.h"

#define IN_BYTES (160u << 10) /* two whole WRITEs and some */
#define EVENTS 64

/*
 * Costs are in bytes sent on a plain connection (data.c says how they were
 * measured). The system calls of a turn were 5.8 us, including the kernel's
 * work for the receiver on loopback, which otherwise another machine does. A
 * tenant that shares a worker has short turns, also when the other tenant had
 * nothing to do for a moment.
 */
#define COST_TURN (80u << 10) /* system calls of a turn */
#define TURN_SHARED (192u << 10) /* more than COST_TURN */
#define TURN_ALONE (1u << 20)
#define SHARED_SPAN (16u << 20)
#define POLL_US 100 /* poll-us = auto */
#define UNSENT_MS 10 /* until the kernel is asked again to take disk I/O */
#define LOOKS 8 /* polls of one connection between two calls of epoll */
#define FOLLOW_EVERY 16u /* batches between two looks at the bytes' CPU */
#define FOLLOW_AFTER 3u /* looks in a row that find another CPU: then move */

struct dcm_worker *dcm_data_worker_near(struct dcm_donor *donor,
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

/* Connections that @w has: of @session (high half), and of all sessions (low half). */
static u64 worker_load(const struct dcm_worker *w,
		       const struct dcm_session *session)
{
	u64 own = 0;
	struct dcm_data *d;

	dcm_list_for_each(d, &session->data, struct dcm_data, session_node)
		own += d->worker == w;
	return own << 32 | READ_ONCE(w->connections);
}

struct dcm_worker *dcm_data_worker_choose(struct dcm_donor *donor,
					  const struct dcm_session *session,
					  const struct dcm_chan *chan)
{
	struct dcm_worker *w = dcm_data_worker_near(donor, chan);
	u64 least = ~0ull, load;

	if (w || donor->workers[0].cpu >= 0)
		return w ? w : &donor->workers[0];
	for (u32 i = 0; i < donor->nr_workers; i++) {
		load = worker_load(&donor->workers[i], session);
		if (load < least) {
			least = load;
			w = &donor->workers[i];
		}
	}
	return w;
}

void dcm_data_worker_give(struct dcm_worker *w, struct dcm_data *d)
{
	u64 one = 1;

	d->worker = w;
	d->astray = 0;
	__atomic_fetch_add(&w->connections, 1, __ATOMIC_RELAXED);
	pthread_mutex_lock(&w->lock);
	dcm_list_add_tail(&d->node, &w->inbox);
	pthread_mutex_unlock(&w->lock);
	if (write(w->evfd, &one, sizeof(one)) < 0)
		dcm_err("a data worker can't be woken for a connection: %s",
			strerror(errno));
}

bool dcm_data_follow(struct dcm_worker *w, struct dcm_data *d)
{
	struct dcm_worker *near;

	if (w->cpu < 0 || d->want_out || !dcm_list_empty(&d->ops) ||
	    ++d->served % FOLLOW_EVERY)
		return false;
	near = dcm_data_worker_near(w->donor, d->chan);
	if (!near || near == w) {
		d->astray = 0;
		return false;
	}
	if (++d->astray < FOLLOW_AFTER)
		return false;
	dcm_list_del(&d->node);
	dcm_data_leave(w, d);
	__atomic_fetch_sub(&w->connections, 1, __ATOMIC_RELAXED);
	dcm_data_worker_give(near, d);
	return true;
}

int dcm_data_watch(struct dcm_worker *w, struct dcm_data *d, int op)
{
	struct epoll_event ev = {
		/* edges only: a waiting connection is not reported again */
		.events = EPOLLET |
			  (d->want_out ? EPOLLOUT : EPOLLIN | EPOLLRDHUP),
		.data.ptr = d,
	};

	return epoll_ctl(w->epfd, op, d->chan->fd, &ev);
}

void dcm_data_leave(struct dcm_worker *w, struct dcm_data *d)
{
	/*
	 * Closing the descriptor is not enough: epoll reports a socket as long as
	 * any process has it open, and a child just forked has it until execve().
	 */
	epoll_ctl(w->epfd, EPOLL_CTL_DEL, d->chan->fd, NULL);
	dcm_fair_leave(&w->fair, &d->turn);
	if (w->last == d)
		w->last = NULL;
}

static void worker_inbox(struct dcm_worker *w)
{
	struct dcm_list inbox;
	struct dcm_data *d, *tmp;
	u64 n;

	if (read(w->evfd, &n, sizeof(n)) < 0 && errno != EAGAIN)
		dcm_err("data worker: its eventfd can't be read: %s",
			strerror(errno));
	dcm_list_init(&inbox);
	pthread_mutex_lock(&w->lock);
	dcm_list_for_each_safe(d, tmp, &w->inbox, struct dcm_data, node) {
		dcm_list_del(&d->node);
		dcm_list_add_tail(&d->node, &inbox);
	}
	pthread_mutex_unlock(&w->lock);
	dcm_list_for_each_safe(d, tmp, &inbox, struct dcm_data, node) {
		dcm_list_del(&d->node);
		dcm_list_add_tail(&d->node, &w->conns);
		if (dcm_fair_join(&w->fair, &d->turn, d->tenant) ||
		    dcm_chan_room(d->chan, IN_BYTES) ||
		    dcm_data_watch(w, d, EPOLL_CTL_ADD)) {
			dcm_log_limited(
				DCM_LOG_WARNING,
					"data connection of %s: out of memory; closed",
					d->tenant->name);
			dcm_data_close(d);
			continue;
		}
		/* give it a turn at once: requests may have come with HELLO */
		d->chan->more = true;
		dcm_fair_add(&w->fair, &d->turn);
	}
}

/* Queue connections with events; @timeout as for epoll_wait(). */
static int worker_listen(struct dcm_worker *w, int timeout)
{
	u32 rounds = READ_ONCE(w->connections) / EVENTS;
	struct epoll_event events[EVENTS];
	bool disk = false;
	int nr, heard = 0;

	if (w->file)
		dcm_data_file_submit(w);
	if (timeout < 0 && dcm_data_file_unsent(w))
		timeout = UNSENT_MS;
	dcm_fair_ask(&w->fair);
	do {
		nr = epoll_wait(w->epfd, events, EVENTS, timeout);
		timeout = 0;
		for (int i = 0; i < nr; i++) {
			struct dcm_data *d = events[i].data.ptr;

			if (!d) {
				worker_inbox(w);
				continue;
			}
			if (events[i].data.ptr == w) {
				disk = true;
				continue;
			}
			if (events[i].events &
			    (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
				d->hung_up = true;
			dcm_fair_add(&w->fair, &d->turn);
		}
		heard |= nr > 0;
	} while (nr == EVENTS && rounds--);
	/* after all events were handled: it may close connections that have some */
	if (disk)
		dcm_data_file_reap(w);
	return heard;
}

/* One turn of @d, taken from the queue: as dcm_data_serve(). */
static int worker_turn(struct dcm_worker *w, struct dcm_data *d, u64 cost_max)
{
	struct dcm_flow *flow = d->turn.flow;
	int ret;

	w->cost = COST_TURN;
	w->cost_max = cost_max;
	ret = dcm_data_serve(w, d);
	dcm_fair_charge(&w->fair, flow, w->cost);
	dcm_fair_done(&w->fair, flow);
	return ret;
}

/* Give turns to connections that wait, until it is time to ask epoll again. */
static void worker_turns(struct dcm_worker *w)
{
	struct dcm_fair_entry *e;
	u64 spent = 0, turn;

	do {
		/* no op is free: the next in turn gets the first one that is */
		e = dcm_data_file_full(w) ? NULL : dcm_fair_take(&w->fair);
		if (!e)
			break;
		w->last = dcm_list_entry(e, struct dcm_data, turn);
		turn = dcm_fair_shared(&w->fair, SHARED_SPAN) ? TURN_SHARED :
								TURN_ALONE;
		worker_turn(w, w->last, turn);
		spent += w->cost;
	} while (spent < turn);
}

/*
 * Can requests of @d be taken now? If not, it gets a turn when the disk has done some.
 */
static bool worker_takes(const struct dcm_worker *w, const struct dcm_data *d)
{
	return !w->file || !(d->held || dcm_data_file_full(w));
}

/*
 * Poll the connection that had the last turn for a while instead of sleeping; there is
 * nothing to do since @from. True: it had a request, or is gone, or there are other
 * events.
 */
static bool worker_poll(struct dcm_worker *w, u64 from)
{
	struct dcm_data *d = w->last;
	u64 until;

	if (!w->poll.on || d->want_out)
		return false;
	until = from + w->poll.ns;
	do {
		/* most often the next request comes over the same connection */
		for (int look = 0; look < LOOKS && worker_takes(w, d); look++) {
			dcm_fair_add(&w->fair, &d->turn);
			dcm_fair_take(&w->fair);
			if (worker_turn(w, d, TURN_SHARED))
				return true;
		}
		if (worker_listen(w, 0))
			return true;
	} while (dcm_poll_yield(&w->poll) && dcm_clock_ns() < until);
	return false;
}

static void *worker_run(void *arg)
{
	struct dcm_worker *w = arg;
	struct dcm_data *d, *tmp;
	unsigned int unheard = 0;
	bool idle, full, poll;
	u64 from, now;

	while (!smp_load_acquire(&w->stop)) {
		idle = dcm_fair_idle(&w->fair);
		full = dcm_data_file_full(w);
		/* after LOOKS polls ask epoll, whatever comes on this connection */
		poll = w->last && idle && !full && unheard < LOOKS;
		from = poll && w->poll.ns ? dcm_clock_ns() : 0;
		if (poll && worker_poll(w, from)) {
			unheard++;
		} else {
			worker_listen(w, (idle && unheard < LOOKS) || full ?
						 -1 :
						 0);
			unheard = 0;
		}
		if (from) {
			now = dcm_clock_ns();
			dcm_poll_learn(&w->poll, now, now - from);
		}
		if (!dcm_fair_idle(&w->fair))
			worker_turns(w);
	}
	worker_inbox(w);
	dcm_list_for_each_safe(d, tmp, &w->conns, struct dcm_data, node)
		dcm_data_close(d);
	dcm_data_file_finish(w);
	return NULL;
}

/* Pin @w to the @n-th of the CPUs that the donor may run on. */
static void worker_pin(struct dcm_worker *w, u32 n)
{
	cpu_set_t set;
	u32 count = 0;

	CPU_ZERO(&set);
	for (int i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &w->donor->cpus) && count++ == n) {
			CPU_SET(i, &set);
			w->cpu = i;
		}
	if (pthread_setaffinity_np(w->thread, sizeof(set), &set))
		w->cpu = -1;
	w->poll.home = w->cpu;
}

static int worker_start(struct dcm_worker *w)
{
	struct epoll_event ev = { .events = EPOLLIN };

	w->epfd = epoll_create1(EPOLL_CLOEXEC);
	if (w->epfd < 0)
		return -errno;
	w->evfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (w->evfd < 0)
		return -errno;
	if (epoll_ctl(w->epfd, EPOLL_CTL_ADD, w->evfd, &ev))
		return -errno;
	if (w->donor->pool.dir >= 0) {
		int ret = dcm_data_file_start(w);

		if (ret)
			return ret;
	}
	return -pthread_create(&w->thread, NULL, worker_run, w);
}

int dcm_data_start(struct dcm_donor *donor, char *err, size_t err_len)
{
	u32 poll = donor->cfg.poll_us == DCM_POLL_AUTO ? POLL_US :
							 donor->cfg.poll_us;
	u32 nr_cpus = 1, nr;
	int ret;

	if (!sched_getaffinity(0, sizeof(donor->cpus), &donor->cpus))
		nr_cpus = (u32)CPU_COUNT(&donor->cpus);
	nr = donor->cfg.threads ? donor->cfg.threads :
	     nr_cpus < 64	? nr_cpus :
				  64;
	pthread_mutex_init(&donor->gone_lock, NULL);
	dcm_list_init(&donor->gone);
	donor->gone_async.data = donor;
	uv_async_init(&donor->loop, &donor->gone_async, dcm_data_gone);
	donor->workers = calloc(nr, sizeof(*donor->workers));
	if (!donor->workers) {
		snprintf(err, err_len, "out of memory");
		return -ENOMEM;
	}
	for (u32 i = 0; i < nr; i++) {
		struct dcm_worker *w = &donor->workers[i];

		w->donor = donor;
		w->cpu = -1;
		w->poll = (struct dcm_poll){ .ns = (u64)poll * 1000,
					     .cpus = &donor->cpus,
					     .home = -1 };
		dcm_list_init(&w->inbox);
		dcm_list_init(&w->conns);
		dcm_fair_init(&w->fair);
		pthread_mutex_init(&w->lock, NULL);
		donor->nr_workers++;
		ret = worker_start(w);
		if (ret) {
			snprintf(err, err_len,
				 "data worker %u of %u can't be started: %s%s",
				 i, nr, strerror(-ret),
				 donor->pool.dir >= 0 ?
					 "; medium = file needs io_uring (see /proc/sys/kernel/io_uring_disabled)" :
					 "");
			return ret;
		}
		w->started = true;
	}
	/* before the first connection: after that it is only read */
	for (u32 i = 0; i < nr && nr == nr_cpus; i++)
		worker_pin(&donor->workers[i], i);
	return 0;
}

void dcm_data_stop(struct dcm_donor *donor)
{
	struct dcm_data *d, *tmp;
	u64 one = 1;

	for (u32 i = 0; i < donor->nr_workers; i++) {
		struct dcm_worker *w = &donor->workers[i];

		smp_store_release(&w->stop, true);
		/* if the counter is full the worker is awake */
		if (w->started && write(w->evfd, &one, sizeof(one)) < 0 &&
		    errno != EAGAIN)
			dcm_err("a data worker can't be woken to end: %s",
				strerror(errno));
	}
	for (u32 i = 0; i < donor->nr_workers; i++)
		if (donor->workers[i].started)
			pthread_join(donor->workers[i].thread, NULL);
	for (u32 i = 0; i < donor->nr_workers; i++) {
		struct dcm_worker *w = &donor->workers[i];

		/* a running worker may have given them to one that had ended */
		dcm_list_for_each_safe(d, tmp, &w->inbox, struct dcm_data, node)
			dcm_data_close(d);
		dcm_data_file_stop(w);
		if (w->epfd >= 0)
			close(w->epfd);
		if (w->evfd >= 0)
			close(w->evfd);
		pthread_mutex_destroy(&w->lock);
	}
	dcm_data_gone(&donor->gone_async);
	free(donor->workers);
	donor->workers = NULL;
	donor->nr_workers = 0;
	uv_close((uv_handle_t *)&donor->gone_async, NULL);
}

u32 dcm_data_totals(const struct dcm_donor *donor, struct dcm_data_counters *t)
{
	u32 connections = 0;

	memset(t, 0, sizeof(*t));
	for (u32 i = 0; i < donor->nr_workers; i++) {
		const struct dcm_worker *w = &donor->workers[i];

#define SUM(f) t->f += READ_ONCE(w->count.f)
		SUM(reads);
		SUM(writes);
		SUM(read_bytes);
		SUM(written_bytes);
		SUM(refused);
		SUM(batches);
		SUM(disk_errors);
#undef SUM
		connections += READ_ONCE(w->connections);
	}
	return connections;
}

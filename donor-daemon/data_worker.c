// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * data_worker.c - the threads that serve data connections
 *
 * Waking a sleeping thread of another CPU costs more than the operation, by
 * far. So with a worker for every CPU each is pinned to its own, and a
 * connection is moved to the worker of the CPU its bytes arrive on, when they
 * have kept arriving there: on loopback that is where the faulting thread
 * runs, elsewhere the network card's queue.
 *
 * The other way: with "poll-us" a worker that has just served something looks
 * at that connection without sleeping for so long. It adapts: a worker whose
 * looks were in vain lately sleeps at once. Workers that look are not pinned,
 * or they would take the CPU from the one they wait for.
 *
 * Locking: a worker's connections and its batch are its thread's alone. A
 * connection is given to it through its inbox (its lock, an eventfd), by the
 * event loop or by the worker that had it, which then touches it no more. What
 * a worker is pinned to is written before there are connections.
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
#include "log.h"

#define IN_BYTES	(160u << 10)	/* two whole WRITEs and some */
#define EVENTS		64
#define LOOKS		8		/* at one connection between two at all */
#define FOLLOW_EVERY	16u		/* batches between looks at the CPU */
#define FOLLOW_AFTER	3u		/* looks in a row before it is moved */

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
		dcm_err("worker: eventfd: %s", strerror(errno));
}

bool dcm_data_follow(struct dcm_worker *w, struct dcm_data *d)
{
	struct dcm_worker *near;

	if (w->cpu < 0 || d->want_out || ++d->served % FOLLOW_EVERY)
		return false;
	near = dcm_data_worker_near(w->donor, d->chan);
	if (!near || near == w) {
		d->astray = 0;
		return false;
	}
	if (++d->astray < FOLLOW_AFTER ||
	    epoll_ctl(w->epfd, EPOLL_CTL_DEL, d->chan->fd, NULL))
		return false;
	dcm_list_del(&d->node);
	__atomic_fetch_sub(&w->connections, 1, __ATOMIC_RELAXED);
	dcm_data_worker_give(near, d);
	return true;
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
			dcm_data_close(d);
			continue;
		}
		/* requests may have come along with HELLO */
		d->chan->more = true;
		dcm_data_serve(w, d);
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
	until = data_clock_ns(CLOCK_MONOTONIC) + w->poll_ns;
	do {
		/* the one that spoke last, most of the time */
		for (int look = 0; look < LOOKS; look++) {
			ret = dcm_data_serve(w, d);
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
	} while (data_clock_ns(CLOCK_MONOTONIC) < until);
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
			else if (dcm_data_serve(w, d) >= 0)
				last = d;
		}
	}
	worker_inbox(w);
	dcm_list_for_each_safe(d, tmp, &w->conns, struct dcm_data, node)
		dcm_data_close(d);
	return NULL;
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
	uv_async_init(&donor->loop, &donor->gone_async, dcm_data_gone);
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
	struct dcm_data *d, *tmp;
	u64 one = 1;

	for (u32 i = 0; i < donor->nr_workers; i++) {
		struct dcm_worker *w = &donor->workers[i];

		__atomic_store_n(&w->stop, true, __ATOMIC_RELEASE);
		/* full: then it is awake */
		if (w->started && write(w->evfd, &one, sizeof(one)) < 0 &&
		    errno != EAGAIN)
			dcm_err("worker: eventfd: %s", strerror(errno));
	}
	for (u32 i = 0; i < donor->nr_workers; i++)
		if (donor->workers[i].started)
			pthread_join(donor->workers[i].thread, NULL);
	for (u32 i = 0; i < donor->nr_workers; i++) {
		struct dcm_worker *w = &donor->workers[i];

		/* given to one that had ended, by another that had not */
		dcm_list_for_each_safe(d, tmp, &w->inbox, struct dcm_data, node)
			dcm_data_close(d);
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

#define SUM(f) t->f += __atomic_load_n(&w->count.f, __ATOMIC_RELAXED)
		SUM(reads);
		SUM(writes);
		SUM(read_bytes);
		SUM(written_bytes);
		SUM(refused);
		SUM(batches);
#undef SUM
		connections +=
			__atomic_load_n(&w->connections, __ATOMIC_RELAXED);
	}
	return connections;
}

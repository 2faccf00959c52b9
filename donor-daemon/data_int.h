/* SPDX-License-Identifier: GPL-2.0-or-later */
/* data_int.h - what data.c and data_worker.c share; donor.h is the outside */
#ifndef DCM_DATA_INT_H
#define DCM_DATA_INT_H

#include "../kvm-dcm/lib/clock.h"
#include "donor.h"
#include "fair.h"

#define DATA_BATCH	64u
#define DATA_DONE_BYTES	(DCM_WIRE_HDR_BYTES + sizeof(struct dcm_wire_io_done))
#define DATA_SCRATCH_BYTES 16384u	/* one TLS record */

struct dcm_data {
	struct dcm_list node;		/* worker's, its inbox, or donor->gone */
	struct dcm_list session_node;	/* under session->data_lock */
	struct dcm_worker *worker;
	struct dcm_chan *chan;
	struct dcm_session *session;
	struct dcm_tenant *tenant;
	struct dcm_fair_entry turn;	/* of its worker's tenants */
	u16 lane;			/* the host's number; 0: none */
	bool want_out;
	bool left;		/* a turn ended with requests in the buffer */
	bool hung_up;		/* said by epoll, not yet by the socket */
	unsigned int served;
	unsigned int astray;	/* looks that found it on another CPU */
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
	struct dcm_fair fair;
	/* the turn: what it has cost, and when it ends */
	u64 cost;
	u64 cost_max;
	/* written here, read anywhere: __atomic */
	struct dcm_data_counters count;
	unsigned int vain;	/* looks in a row that found nothing */
	/* the batch being gathered */
	struct iovec iov[2 * DATA_BATCH];
	u8 heads[DATA_BATCH][DATA_DONE_BYTES];
	struct dcm_slab *held[DATA_BATCH];
	u32 nr;
	u32 nr_iov;
	size_t bytes;
	u8 scratch[DATA_SCRATCH_BYTES];
	size_t scratch_used;
};

/* data.c */
/**
 * dcm_data_serve() - a turn: what has come on a connection, and waits to go
 *
 * It ends when nothing is left to do, or with the request that brings @w->cost to
 * @w->cost_max; then the connection waits for another turn.
 *
 * Return: 1: something came and was served; 0: nothing did; -1: @d is not ours
 * any more (closed, or another worker's).
 */
int dcm_data_serve(struct dcm_worker *w, struct dcm_data *d);

/** dcm_data_close() - the socket; the rest is given to dcm_data_gone() */
void dcm_data_close(struct dcm_data *d);

/** dcm_data_gone() - forget what workers have closed; the event loop's */
void dcm_data_gone(uv_async_t *async);

/* data_worker.c */
/**
 * dcm_data_worker_near() - the worker of the CPU that @chan's bytes arrive on
 *
 * Return: %NULL if there is none, or workers are not pinned.
 */
struct dcm_worker *dcm_data_worker_near(struct dcm_donor *donor,
					const struct dcm_chan *chan);

/* For a new connection of @session, under its data_lock. */
struct dcm_worker *dcm_data_worker_choose(struct dcm_donor *donor,
					  const struct dcm_session *session,
					  const struct dcm_chan *chan);

/* What epoll is to tell of @d from now on, and if it is so already. */
int dcm_data_watch(struct dcm_worker *w, struct dcm_data *d, int op);

/** dcm_data_worker_give() - @d is @w's from here on */
void dcm_data_worker_give(struct dcm_worker *w, struct dcm_data *d);

/**
 * dcm_data_follow() - to the worker of the CPU its bytes arrive on
 *
 * Return: true when @d now is another worker's: it may be gone already.
 */
bool dcm_data_follow(struct dcm_worker *w, struct dcm_data *d);

#endif /* DCM_DATA_INT_H */

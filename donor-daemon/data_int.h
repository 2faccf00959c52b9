/* SPDX-License-Identifier: GPL-2.0-or-later */
/* data_int.h - shared by data.c and data_worker.c; donor.h is the interface */
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
	struct dcm_fair_entry turn;	/* among its worker's tenants */
	u16 lane;			/* the host's number; 0: none */
	bool want_out;
	bool left;		/* a turn ended with requests in the buffer */
	bool hung_up;		/* by the host, as epoll says: to be read */
	unsigned int served;
	unsigned int astray;	/* looks, in a row, that found another CPU */
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
	/* cost of the current turn so far, and its limit */
	u64 cost;
	u64 cost_max;
	/* written by this thread, read by any: __atomic */
	struct dcm_data_counters count;
	unsigned int vain;	/* looks in a row without a request */
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
 * dcm_data_serve() - a turn: serve requests of a connection, send answers
 *
 * It ends when nothing is left to do, or with the request that brings @w->cost to
 * @w->cost_max; then the connection waits for another turn.
 *
 * Return: 1: requests were served; 0: none came; -ENOTCONN: @d is not
 * this worker's any more (closed, or another worker's).
 */
int dcm_data_serve(struct dcm_worker *w, struct dcm_data *d);

/** dcm_data_close() - close the socket; dcm_data_gone() does the rest */
void dcm_data_close(struct dcm_data *d);

/** dcm_data_gone() - free what workers have closed; on the event loop */
void dcm_data_gone(uv_async_t *async);

/* data_worker.c */
/**
 * dcm_data_worker_near() - the worker of the CPU that @chan's bytes arrive on
 *
 * Return: %NULL if there is none, or workers are not pinned.
 */
struct dcm_worker *dcm_data_worker_near(struct dcm_donor *donor,
					const struct dcm_chan *chan);

/* Choose for a new connection of @session, under its data_lock. */
struct dcm_worker *dcm_data_worker_choose(struct dcm_donor *donor,
					  const struct dcm_session *session,
					  const struct dcm_chan *chan);

/* Set the events that epoll reports for @d; also those that are already due. */
int dcm_data_watch(struct dcm_worker *w, struct dcm_data *d, int op);

/** dcm_data_worker_give() - hand @d over to @w */
void dcm_data_worker_give(struct dcm_worker *w, struct dcm_data *d);

/**
 * dcm_data_follow() - move @d to the worker of the CPU its bytes arrive on
 *
 * Return: true if @d is another worker's now: it may be freed already.
 */
bool dcm_data_follow(struct dcm_worker *w, struct dcm_data *d);

#endif /* DCM_DATA_INT_H */

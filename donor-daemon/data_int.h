/* SPDX-License-Identifier: GPL-2.0-or-later */
/* data_int.h - shared by data.c and data_worker.c; donor.h is the interface */
#ifndef DCM_DATA_INT_H
#define DCM_DATA_INT_H

#include "../kvm-dcm/lib/clock.h"
#include "data_poll.h"
#include "donor.h"
#include "fair.h"

#define DATA_BATCH	64u
#define DATA_DONE_BYTES	(DCM_WIRE_HDR_BYTES + sizeof(struct dcm_wire_io_done))
#define DATA_SCRATCH_BYTES 16384u	/* one TLS record */
#define DATA_FILE_OPS	128u	/* ops of a worker */
#define DATA_FILE_BYTES	(256u << 10) /* bytes of a connection's ops together */

struct dcm_data_file;

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
	bool hung_up;		/* epoll says that the host has closed: read the end */
	unsigned int served;
	unsigned int astray;	/* looks in a row that found bytes on another CPU */
	/* slabs that are files, data_file.c */
	struct dcm_list ops;	/* in the order of requests */
	struct dcm_list heard_node;
	u64 op_bytes;
	u32 started;		/* how many of @ops the disk has */
	u32 waiting;		/* how many of @ops wait for others of them */
	bool held;		/* requests wait until ops are done */
	bool ending;		/* closed when the disk is done */
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
	struct dcm_poll poll;
	struct dcm_data_file *file;	/* %NULL: slabs are memory */
	struct dcm_list conns;
	struct dcm_fair fair;
	struct dcm_data
		*last; /* the connection with the last turn; %NULL: gone */
	/* cost of the current turn so far, and its limit */
	u64 cost;
	u64 cost_max;
	/* written by this thread, read by any: __atomic */
	struct dcm_data_counters count;
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

/**
 * dcm_data_answer() - answer the requests that the disk has done
 *
 * Return: 0, or a negative errno: the connection is broken, and waits for a turn,
 * in which dcm_data_serve() closes it.
 */
int dcm_data_answer(struct dcm_worker *w, struct dcm_data *d);

/**
 * dcm_data_close() - close the socket; dcm_data_gone() does the rest
 *
 * While the disk still works for it, that is put off until the disk is done.
 */
void dcm_data_close(struct dcm_data *d);

/** dcm_data_gone() - free connections that workers have closed; on the event loop */
void dcm_data_gone(uv_async_t *async);

/* data_worker.c */
/**
 * dcm_data_worker_near() - the worker of the CPU that @chan's bytes arrive on
 *
 * Return: %NULL if there is none, or workers are not pinned.
 */
struct dcm_worker *dcm_data_worker_near(struct dcm_donor *donor,
					const struct dcm_chan *chan);

/* Choose the worker for a new connection of @session, under its data_lock. */
struct dcm_worker *dcm_data_worker_choose(struct dcm_donor *donor,
					  const struct dcm_session *session,
					  const struct dcm_chan *chan);

/* Set the events that epoll reports for @d; also those that are already due. */
int dcm_data_watch(struct dcm_worker *w, struct dcm_data *d, int op);

/* @d gets no events and no turns of @w any more; its socket is still open. */
void dcm_data_leave(struct dcm_worker *w, struct dcm_data *d);

/** dcm_data_worker_give() - hand @d over to @w */
void dcm_data_worker_give(struct dcm_worker *w, struct dcm_data *d);

/**
 * dcm_data_follow() - move @d to the worker of the CPU its bytes arrive on
 *
 * Return: true if @d is another worker's now: it may be freed already.
 */
bool dcm_data_follow(struct dcm_worker *w, struct dcm_data *d);

/* data_file.c, for workers with @file */
/* Make the ring and put it into the epoll of @w: 0 or a negative errno. */
int dcm_data_file_start(struct dcm_worker *w);
void dcm_data_file_stop(struct dcm_worker *w);

/* Wait until the disk is done with all that @w has closed. */
void dcm_data_file_finish(struct dcm_worker *w);

/* Can no request be taken now: from any connection of @w; from @d? */
bool dcm_data_file_full(const struct dcm_worker *w);
bool dcm_data_file_held(const struct dcm_data *d);

/**
 * dcm_data_file_request() - take a request; @w is not full
 * @status: not 0: the request is refused with it
 * @slab: a reference, which this owns; %NULL for a refused one
 * @payload: of a WRITE; %NULL: zeroes. It is copied
 */
void dcm_data_file_request(struct dcm_worker *w, struct dcm_data *d,
			   const struct dcm_wire_msg *req,
			   struct dcm_slab *slab, u32 status,
			   const u8 *payload);

/*
 * Give the kernel the requests that were taken. Second: has it not taken all of them?
 */
void dcm_data_file_submit(struct dcm_worker *w);
bool dcm_data_file_unsent(const struct dcm_worker *w);

/* Handle ops that the disk has done: answer them, and let connections go on. */
void dcm_data_file_reap(struct dcm_worker *w);

/**
 * dcm_data_file_next() - the next answer of @d, in the order of requests
 * @bytes: the payload, valid until dcm_data_file_sent()
 *
 * Return: false if the request that is next is not done.
 */
bool dcm_data_file_next(struct dcm_data *d, struct dcm_wire_msg *ans,
			const u8 **bytes);

/* The channel has the answers that dcm_data_file_next() returned: free their ops. */
void dcm_data_file_sent(struct dcm_worker *w, struct dcm_data *d);

/**
 * dcm_data_file_drop() - @d ends: forget its requests
 *
 * Return: true: the disk still works for it, and @d stays until then, though
 * without turns and events.
 */
bool dcm_data_file_drop(struct dcm_worker *w, struct dcm_data *d);

#endif /* DCM_DATA_INT_H */

// SPDX-License-Identifier: GPL-2.0-only
/*
 * verbs.c - slabs of a donor, read and written by its network card
 *
 * One reliable connection, one completion queue, in user space by libibverbs.
 * post() makes a work request, flush() hands all of them over with one
 * ibv_post_send(), poll() takes completions, and wait_fd() requests an event
 * only when the caller is about to sleep.
 *
 * Memory that the card accesses must be pinned. The pager's frames can't be: a
 * pinned page can't be moved, and the pager evicts pages by moving them into
 * frames. So a WRITE is copied into a ring of the endpoint's own, of
 * %DCM_VERBS_RING_BYTES, and goes to the donor from there: a copy of 4 KiB is
 * small beside the rest of a write-back, which no access waits for. A READ
 * lands in its destination if that is in the registered area (the lanes'
 * landing buffers are), else in the ring too. (infiniswap-nsdi17 registers a
 * buffer for each request and copies as well; dcm-tc18 is in the kernel and
 * maps pages.)
 *
 * Each request asks for a completion: it ends a fault, or gives a frame back. None is
 * sent inline: a card takes some hundred bytes inline, and the least here is a page.
 *
 *	head   posted                 [rung, head): in the list for flush()
 *	rung   handed over            [tail, rung): the card has them
 *	tail   completed              done list
 *
 * A queue pair completes in order. That is checked, as the ring relies on it.
 * The first operation that fails ends the queue pair: that operation gets the
 * donor's error (-ESTALE: the key is no longer valid, the slab was taken back),
 * those behind it -ENOTCONN. No operation completes before the card has stopped
 * using its memory: a late READ must not land in a buffer that is used again.
 * If the card does not report that in time, the queue pair is destroyed first.
 *
 * Writes reach the slab in a safe order, as over tcp: a donor ends the lane's
 * old queue pair before it gives a ticket for the next.
 *
 * Locking: one lane uses an endpoint, except for verbs_kill(), which another thread may
 * call; @lock serialises that with the queue pair's destruction. open() allocates all
 * memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../lib/clock.h"
#include "../proto/wire_format.h"
#include "verbs.h"

#define VERBS_REAP 16
/* time for the card to complete what is in flight */
#define VERBS_FLUSH_NS 1000000000u
#define RING_NONE U64_MAX

/**
 * struct verbs_op - one operation in flight
 * @io: the caller's
 * @at: its offset in the ring, %RING_NONE: it does not use the ring
 * @ring_end: value for @ring_tail when it has completed
 */
struct verbs_op {
	struct dcm_io *io;
	u64 at;
	u64 ring_end;
	struct ibv_send_wr wr;
	struct ibv_sge sge;
};

/**
 * struct verbs_endpoint - one queue pair
 * @killed: another thread wants it dead
 * @qp_gone: the queue pair is destroyed; under @lock
 * @armed: the next completion raises an event
 * @events: number of events taken from the channel and not acknowledged
 * @ready: an eventfd that is always readable
 * @heard_ns: time of the last completion, or since when one is awaited
 * @dying_ns: since when the endpoint waits for the card to stop using memory
 * @ring_head: bytes of the ring ever taken, skipped ones included
 * @ring_tail: bytes of @ring_head that were freed again
 */
struct verbs_endpoint {
	struct dcm_endpoint ep;
	struct rdma_cm_id *id;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mr *ring_mr;
	char *ring;
	const char *area;
	u64 area_bytes;
	u32 area_lkey;
	bool dead;
	bool killed;
	bool qp_gone;
	bool armed;
	unsigned int events;
	int ready;
	const char *why;
	pthread_mutex_t lock;
	u64 head;
	u64 rung;
	u64 tail;
	u64 ring_head;
	u64 ring_tail;
	u64 silence_ns;
	u64 heard_ns;
	u64 dying_ns;
	struct dcm_done done;
	struct verbs_op op[DCM_VERBS_DEPTH];
};

static inline struct verbs_endpoint *to_verbs(struct dcm_endpoint *ep)
{
	return container_of(ep, struct verbs_endpoint, ep);
}

static inline struct verbs_op *op_at(struct verbs_endpoint *v, u64 seq)
{
	return &v->op[seq % DCM_VERBS_DEPTH];
}

/* ---- completing ---- */

static void op_complete(struct verbs_endpoint *v, int status)
{
	struct verbs_op *op = op_at(v, v->tail);
	struct dcm_io *io = op->io;

	if (!status && op->at != RING_NONE && io->op == DCM_IO_READ)
		memcpy(io->data, v->ring + op->at, io->bytes);
	v->ring_tail = op->ring_end;
	v->tail++;
	dcm_done_add(&v->done, io, status);
}

static void qp_destroy(struct verbs_endpoint *v)
{
	pthread_mutex_lock(&v->lock);
	if (!v->qp_gone) {
		v->qp_gone = true;
		rdma_destroy_qp(v->id);
	}
	pthread_mutex_unlock(&v->lock);
}

/* End the endpoint: post nothing more, and make the card flush what it has. */
static void endpoint_fail(struct verbs_endpoint *v, const char *why)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	if (v->dead)
		return;
	v->dead = true;
	v->why = why;
	v->dying_ns = dcm_clock_ns();
	if (v->tail < v->rung && ibv_modify_qp(v->id->qp, &attr, IBV_QP_STATE))
		qp_destroy(v);
}

/*
 * Complete all operations once the card has flushed; if it takes too long, destroy it.
 */
static void die_finish(struct verbs_endpoint *v)
{
	if (v->tail < v->rung && !v->qp_gone) {
		if (dcm_clock_ns() - v->dying_ns < VERBS_FLUSH_NS)
			return;
		qp_destroy(v);
	}
	while (v->tail < v->head)
		op_complete(v, -ENOTCONN);
	v->rung = v->head;
}

static int wc_errno(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_SUCCESS:
		return 0;
	case IBV_WC_REM_ACCESS_ERR:
		return -ESTALE;
	default:
		return -ENOTCONN;
	}
}

/* Take completions, up to @enough in the done list. */
static void completions_reap(struct verbs_endpoint *v, u32 enough)
{
	struct ibv_wc wc[VERBS_REAP];
	int n, i;

	while (v->tail < v->rung && v->done.nr < enough && !v->qp_gone) {
		n = ibv_poll_cq(v->cq, VERBS_REAP, wc);
		if (n < 0) {
			endpoint_fail(v, "the completion queue failed");
			qp_destroy(v);
			return;
		}
		if (n)
			v->heard_ns = 0;
		for (i = 0; i < n; i++) {
			if (wc[i].wr_id != v->tail) {
				/* the ring can't be used any more */
				endpoint_fail(v, "completions out of order");
				qp_destroy(v);
				return;
			}
			op_complete(v, wc_errno(wc[i].status));
			if (wc[i].status)
				endpoint_fail(v,
					     ibv_wc_status_str(wc[i].status));
		}
		if (n < VERBS_REAP)
			return;
	}
}

/* ---- posting ---- */

/* Take @bytes of the ring in one piece; %RING_NONE: no room now. */
static u64 ring_take(struct verbs_endpoint *v, u32 bytes)
{
	u64 at = v->ring_head % DCM_VERBS_RING_BYTES, skip = 0;

	if (at + bytes > DCM_VERBS_RING_BYTES) {
		skip = DCM_VERBS_RING_BYTES - at;
		at = 0;
	}
	if (v->ring_head + skip + bytes - v->ring_tail > DCM_VERBS_RING_BYTES)
		return RING_NONE;
	v->ring_head += skip + bytes;
	return at;
}

static bool in_area(const struct verbs_endpoint *v, const struct dcm_io *io)
{
	u64 off = (u64)((const char *)io->data - v->area);

	return v->area && off < v->area_bytes &&
	       io->bytes <= v->area_bytes - off;
}

static int verbs_post(struct dcm_endpoint *ep, struct dcm_io *io)
{
	struct verbs_endpoint *v = to_verbs(ep);
	struct verbs_op *op;

	if (v->dead || READ_ONCE(v->killed))
		return -ENOTCONN;
	if (!dcm_io_fits(io))
		return -ERANGE;
	if (v->head - v->tail >= DCM_VERBS_DEPTH)
		return -EAGAIN;
	op = op_at(v, v->head);
	op->at = RING_NONE;
	op->sge.addr = (u64)io->data;
	op->sge.lkey = v->area_lkey;
	if (!in_area(v, io)) {
		op->at = ring_take(v, io->bytes);
		if (op->at == RING_NONE)
			return -EAGAIN;
		if (io->op == DCM_IO_WRITE)
			memcpy(v->ring + op->at, io->data, io->bytes);
		op->sge.addr = (u64)(v->ring + op->at);
		op->sge.lkey = v->ring_mr->lkey;
	}
	op->sge.length = io->bytes;
	op->ring_end = v->ring_head;
	op->io = io;
	op->wr = (struct ibv_send_wr){
		.wr_id = v->head,
		.sg_list = &op->sge,
		.num_sge = 1,
		.opcode = io->op == DCM_IO_READ ? IBV_WR_RDMA_READ :
						  IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = io->slab->base + io->offset,
			     .rkey = io->slab->rkey },
	};
	io->posted_ns = dcm_clock_ns();
	if (v->head == v->tail)
		v->heard_ns = 0;
	v->head++;
	return 0;
}

static void verbs_flush(struct dcm_endpoint *ep)
{
	struct verbs_endpoint *v = to_verbs(ep);
	struct ibv_send_wr *bad = NULL;
	u64 seq;

	if (v->dead || v->rung == v->head)
		return;
	for (seq = v->rung; seq + 1 < v->head; seq++)
		op_at(v, seq)->wr.next = &op_at(v, seq + 1)->wr;
	if (!ibv_post_send(v->id->qp, &op_at(v, v->rung)->wr, &bad)) {
		v->rung = v->head;
		return;
	}
	/* the card has taken the requests before @bad */
	while (v->rung < v->head && &op_at(v, v->rung)->wr != bad)
		v->rung++;
	endpoint_fail(v, "the queue pair takes no more");
}

static int verbs_poll(struct dcm_endpoint *ep, struct dcm_io **done, int max)
{
	struct verbs_endpoint *v = to_verbs(ep);
	u64 now;

	*done = NULL;
	if (max <= 0)
		return 0;
	verbs_flush(ep);
	if (READ_ONCE(v->killed))
		endpoint_fail(v, "closed by the donor, or given up");
	completions_reap(v, (u32)max);
	/* silence is timed from the first look at which nothing completed */
	if (!v->dead && v->silence_ns && v->tail < v->head && !v->done.nr) {
		now = dcm_clock_ns();
		if (!v->heard_ns)
			v->heard_ns = now;
		else if (now - v->heard_ns > v->silence_ns)
			endpoint_fail(v, "no answer");
	}
	if (v->dead)
		die_finish(v);
	return dcm_done_take(&v->done, done, max);
}

/* Take events; all must be acknowledged before the queue is destroyed. */
static bool events_take(struct verbs_endpoint *v)
{
	struct ibv_cq *cq;
	bool any = false;
	void *ctx;

	while (!ibv_get_cq_event(v->channel, &cq, &ctx)) {
		any = true;
		v->events++;
	}
	if (v->events >= 1024) {
		ibv_ack_cq_events(v->cq, v->events);
		v->events = 0;
	}
	return any;
}

static int verbs_wait_fd(struct dcm_endpoint *ep, short *events)
{
	struct verbs_endpoint *v = to_verbs(ep);

	*events = POLLIN;
	if (events_take(v))
		v->armed = false;
	if (!v->armed && !v->dead) {
		if (ibv_req_notify_cq(v->cq, 0))
			endpoint_fail(v, "the completion queue failed");
		v->armed = true;
		/* a completion from before the request raises no event: look for it */
		completions_reap(v, 1);
	}
	return v->done.nr || v->dead ? v->ready : v->channel->fd;
}

static u32 verbs_in_flight(struct dcm_endpoint *ep)
{
	struct verbs_endpoint *v = to_verbs(ep);

	return (u32)(v->head - v->tail) + v->done.nr;
}

static bool verbs_dead(struct dcm_endpoint *ep)
{
	struct verbs_endpoint *v = to_verbs(ep);

	return v->dead || READ_ONCE(v->killed);
}

/* ---- from open() to close() ---- */

static void verbs_free(struct verbs_endpoint *v)
{
	if (v->cq) {
		if (v->events)
			ibv_ack_cq_events(v->cq, v->events);
		ibv_destroy_cq(v->cq);
	}
	if (v->channel)
		ibv_destroy_comp_channel(v->channel);
	if (v->ring_mr)
		ibv_dereg_mr(v->ring_mr);
	if (v->ring != MAP_FAILED)
		munmap(v->ring, DCM_VERBS_RING_BYTES);
	if (v->ready >= 0)
		close(v->ready);
	pthread_mutex_destroy(&v->lock);
	munmap(v, sizeof(*v));
}

static int verbs_make(struct verbs_endpoint *v, const struct dcm_verbs_args *a)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = DCM_VERBS_DEPTH,
			 .max_recv_wr = 1,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	int flags;

	v->ring = mmap(NULL, DCM_VERBS_RING_BYTES, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (v->ring == MAP_FAILED)
		return -ENOMEM;
	madvise(v->ring, DCM_VERBS_RING_BYTES, MADV_DONTFORK);
	v->ready = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
	v->channel = ibv_create_comp_channel(a->id->verbs);
	if (v->ready < 0 || !v->channel)
		return -errno;
	flags = fcntl(v->channel->fd, F_GETFL);
	if (flags < 0 || fcntl(v->channel->fd, F_SETFL, flags | O_NONBLOCK))
		return -errno;
	v->cq = ibv_create_cq(a->id->verbs, (int)DCM_VERBS_DEPTH + 1, NULL,
			      v->channel, 0);
	v->ring_mr = v->cq ? ibv_reg_mr(a->pd, v->ring, DCM_VERBS_RING_BYTES,
					IBV_ACCESS_LOCAL_WRITE) :
			     NULL;
	if (!v->ring_mr)
		return errno ? -errno : -ENOMEM;
	attr.send_cq = v->cq;
	attr.recv_cq = v->cq;
	if (rdma_create_qp(a->id, a->pd, &attr))
		return -errno;
	return 0;
}

static struct dcm_endpoint *verbs_open(const void *arg, int *err)
{
	const struct dcm_verbs_args *a = arg;
	struct verbs_endpoint *v;

	v = mmap(NULL, sizeof(*v), PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (v == MAP_FAILED) {
		*err = -ENOMEM;
		return NULL;
	}
	v->ep.ops = &dcm_transport_verbs;
	v->ready = -1;
	v->why = "";
	dcm_done_init(&v->done);
	v->silence_ns = a->silence_ns;
	pthread_mutex_init(&v->lock, NULL);
	if (a->area) {
		v->area = a->area->addr;
		v->area_bytes = a->area->length;
		v->area_lkey = a->area->lkey;
	}
	*err = verbs_make(v, a);
	if (*err) {
		verbs_free(v);
		return NULL;
	}
	v->id = a->id;
	return &v->ep;
}

static void verbs_close(struct dcm_endpoint *ep)
{
	struct verbs_endpoint *v = to_verbs(ep);
	struct rdma_cm_id *id = v->id;

	/* tell the donor, which then need not wait for its timers */
	if (!v->qp_gone)
		rdma_disconnect(id);
	qp_destroy(v);
	verbs_free(v);
	rdma_destroy_id(id);
}

static void verbs_kill(struct dcm_endpoint *ep)
{
	struct verbs_endpoint *v = to_verbs(ep);

	WRITE_ONCE(v->killed, true);
	/* operations in flight complete with errors, which wakes the lane */
	pthread_mutex_lock(&v->lock);
	if (!v->qp_gone)
		rdma_disconnect(v->id);
	pthread_mutex_unlock(&v->lock);
}

static const char *verbs_why(struct dcm_endpoint *ep)
{
	return to_verbs(ep)->why;
}

struct rdma_cm_id *dcm_verbs_id(struct dcm_endpoint *ep)
{
	return ep->ops == &dcm_transport_verbs ? to_verbs(ep)->id : NULL;
}

const struct dcm_transport_ops dcm_transport_verbs = {
	.name = "verbs",
	.caps = DCM_TR_ORDERED,
	.open = verbs_open,
	.close = verbs_close,
	.post = verbs_post,
	.flush = verbs_flush,
	.poll = verbs_poll,
	.wait_fd = verbs_wait_fd,
	.in_flight = verbs_in_flight,
	.dead = verbs_dead,
	.kill = verbs_kill,
	.why = verbs_why,
};

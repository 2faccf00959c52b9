// SPDX-License-Identifier: GPL-2.0-only
/*
 * verbs.c - slabs of a donor, read and written by its network card
 *
 * kvm-dcm-verbs.ko, a module of its own because many hosts have no RDMA, and
 * some kernels lack the symbols. kvm-dcm.ko requests it when first needed.
 *
 * A link is one reliable connection and one completion queue. The control plane
 * gets a ticket from the donor; the connection is made here, and shows the ticket. A
 * READ scatters into the frames that the guest will have, and a WRITE gathers from
 * frames that are being evicted (dcm-tc18, 3.3). Each takes as many work requests as
 * its pages need, of which the last signals the end. Nothing is copied.
 *
 *	ADDRESS -> ROUTE -> CONNECT -> UP -> DEAD
 *	   '---------'---------'---------------^
 *
 * The first operation that fails ends the queue pair: that operation gets the
 * donor's error (-ESTALE: the key is no longer valid, the slab was taken back),
 * those behind it -ENOTCONN, and only after the queue pair is destroyed,
 * because a late READ must not land in a frame that is used again.
 *
 * Writes reach the slab in a safe order, as over tcp: a donor ends the lane's
 * old queue pair before it gives a ticket for the next.
 *
 * Locking: a link belongs to one lane and is used under its lock, but for the
 * connection manager's handler and the completion handler. The first makes the
 * queue pair, under @lock, unless the link is dead; the second only wakes the
 * lane.
 */
#include <linux/module.h>
#include <linux/nsproxy.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>

#include "../proto/wire_format.h"
#include "dcmfs.h"

#define DEPTH 32u
#define REAP 16
#define RESOLVE_MS 2000
/* 4.096 us << 16: 0.27 s for an acknowledgement, and seven retries */
#define ACK_TIMEOUT 16
#define RETRIES 7

enum pair_state {
	PAIR_ADDRESS,
	PAIR_ROUTE,
	PAIR_CONNECT,
	PAIR_UP,
	PAIR_DEAD,
};

/**
 * struct pair_op - one operation in flight
 * @io: the core's
 * @nr: its number of pages
 * @sge: their addresses, for the card
 * @wr: work requests, each for some of @sge
 */
struct pair_op {
	struct dcm_io *io;
	unsigned int nr;
	struct ib_sge sge[DCM_BLOCK_MAX];
	struct ib_rdma_wr wr[DCM_BLOCK_MAX];
};

/**
 * struct pair - one queue pair
 * @ep: for link.c
 * @vm: the VM
 * @lane: the lane, woken when something completes
 * @end: shows the state to the control plane
 * @id: the connection
 * @pd: protection domain
 * @cq: completion queue
 * @lock: serialises the connection manager's handler and pair_close()
 * @state: enum pair_state
 * @why: why it died
 * @shown: private data of the connection request: the ticket
 * @sges: most pages in a work request
 * @armed: the next completion calls the handler
 * @head: sequence number of the next operation posted
 * @tail: number of the oldest operation not completed
 * @late: ticks of silence after which it is given up
 * @heard: when something last completed, or since when a completion is awaited
 * @done: operations complete and not polled
 * @op: operations in flight, by their number modulo DEPTH
 */
struct pair {
	struct dcm_endpoint ep;
	struct dcmfs_vm *vm;
	struct dcmfs_lane *lane;
	struct dcmfs_link_end *end;
	struct rdma_cm_id *id;
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct mutex lock;
	int state;
	const char *why;
	u8 shown[DCM_WIRE_SHOW_BYTES];
	unsigned int sges;
	bool armed;
	u64 head;
	u64 tail;
	unsigned long late;
	unsigned long heard;
	struct dcm_done done;
	struct pair_op op[DEPTH];
};

static struct pair *to_pair(struct dcm_endpoint *ep)
{
	return container_of(ep, struct pair, ep);
}

static struct pair_op *op_at(struct pair *p, u64 seq)
{
	return &p->op[seq % DEPTH];
}

static enum dma_data_direction op_direction(const struct dcm_io *io)
{
	return io->op == DCM_IO_READ ? DMA_FROM_DEVICE : DMA_TO_DEVICE;
}

/* ---- dying ---- */

static void op_unmap_first(struct pair *p, struct pair_op *op, unsigned int nr)
{
	while (nr--)
		ib_dma_unmap_page(p->id->device, op->sge[nr].addr, PAGE_SIZE,
				  op_direction(op->io));
}

static void op_complete(struct pair *p, int status)
{
	struct pair_op *op = op_at(p, p->tail);

	op_unmap_first(p, op, op->nr);
	p->tail++;
	dcm_done_add(&p->done, op->io, status);
}

/* Mark the queue pair dead. Operations in flight are not completed yet. May sleep. */
static void pair_over(struct pair *p, const char *why)
{
	if (xchg(&p->state, PAIR_DEAD) == PAIR_DEAD)
		return;
	p->why = why;
	dcmfs_link_end_tell(p->end, DCMFS_LINK_DEAD);
	dcmfs_lane_event(p->vm, p->lane);
}

/*
 * In the lane: destroy a dead queue pair, so that the card uses no memory any more, and
 * complete its operations.
 */
static void pair_finish(struct pair *p)
{
	if (p->id->qp)
		rdma_destroy_qp(p->id);
	while (p->tail < p->head)
		op_complete(p, -ENOTCONN);
}

/* ---- the connection ---- */

static void on_completion(struct ib_cq *cq, void *arg)
{
	struct pair *p = arg;

	dcmfs_lane_event(p->vm, p->lane);
}

static int queues_make(struct pair *p)
{
	struct ib_device *dev = p->id->device;
	struct ib_cq_init_attr cq = { .cqe = DEPTH * DCM_BLOCK_MAX };
	struct ib_qp_init_attr qp = {
		.cap = {
			.max_send_wr = DEPTH,
			.max_recv_wr = 1,
			.max_recv_sge = 1,
		},
		.sq_sig_type = IB_SIGNAL_REQ_WR,
		.qp_type = IB_QPT_RC,
	};
	unsigned int wrs;
	int err;

	p->sges = min3((unsigned int)dev->attrs.max_send_sge,
		       (unsigned int)dev->attrs.max_sge_rd, DCM_BLOCK_MAX);
	p->sges = max(p->sges, 1u);
	wrs = DEPTH * DIV_ROUND_UP(DCM_BLOCK_MAX, p->sges);
	qp.cap.max_send_wr = min(wrs, (unsigned int)dev->attrs.max_qp_wr);
	qp.cap.max_send_sge = p->sges;
	cq.cqe = min_t(unsigned int, wrs, (unsigned int)dev->attrs.max_cqe);
	p->pd = ib_alloc_pd(dev, 0);
	if (IS_ERR(p->pd)) {
		err = PTR_ERR(p->pd);
		p->pd = NULL;
		return err;
	}
	p->cq = ib_create_cq(dev, on_completion, NULL, p, &cq);
	if (IS_ERR(p->cq)) {
		err = PTR_ERR(p->cq);
		p->cq = NULL;
		return err;
	}
	qp.send_cq = p->cq;
	qp.recv_cq = p->cq;
	return rdma_create_qp(p->id, p->pd, &qp);
}

static const char *pair_connect(struct pair *p)
{
	struct rdma_conn_param param = {
		.private_data = p->shown,
		.private_data_len = sizeof(p->shown),
		.initiator_depth =
			(u8)min(p->id->device->attrs.max_qp_init_rd_atom, 255),
		.retry_count = RETRIES,
	};

	if (queues_make(p))
		return "the device has no room for another queue pair";
	rdma_set_ack_timeout(p->id, ACK_TIMEOUT);
	if (rdma_connect_locked(p->id, &param))
		return "can't connect";
	return NULL;
}

static const char *pair_event(struct pair *p, enum rdma_cm_event_type type)
{
	switch (type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		if (cmpxchg(&p->state, PAIR_ADDRESS, PAIR_ROUTE) !=
		    PAIR_ADDRESS)
			return NULL;
		return rdma_resolve_route(p->id, RESOLVE_MS) ? "no route" :
							       NULL;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		if (cmpxchg(&p->state, PAIR_ROUTE, PAIR_CONNECT) != PAIR_ROUTE)
			return NULL;
		return pair_connect(p);
	case RDMA_CM_EVENT_ESTABLISHED:
		if (cmpxchg(&p->state, PAIR_CONNECT, PAIR_UP) != PAIR_CONNECT)
			return NULL;
		dcmfs_link_end_tell(p->end, DCMFS_LINK_UP);
		dcmfs_lane_event(p->vm, p->lane);
		return NULL;
	case RDMA_CM_EVENT_REJECTED:
		return "rejected by the donor";
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		return "the device is gone";
	case RDMA_CM_EVENT_ADDR_CHANGE:
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		return NULL;
	default:
		return rdma_event_msg(type);
	}
}

static int on_event(struct rdma_cm_id *id, struct rdma_cm_event *ev)
{
	struct pair *p = id->context;
	const char *why = NULL;

	mutex_lock(&p->lock);
	if (READ_ONCE(p->state) != PAIR_DEAD)
		why = pair_event(p, ev->event);
	if (why)
		pair_over(p, why);
	mutex_unlock(&p->lock);
	return 0;
}

/* ---- I/O ---- */

static int wc_errno(enum ib_wc_status status)
{
	switch (status) {
	case IB_WC_SUCCESS:
		return 0;
	case IB_WC_REM_ACCESS_ERR:
		return -ESTALE;
	default:
		return -ENOTCONN;
	}
}

/* Handle a completion: of an operation, or of a failed part of one. */
static void pair_completed(struct pair *p, const struct ib_wc *wc)
{
	if (READ_ONCE(p->state) == PAIR_DEAD || wc->wr_id != p->tail) {
		pair_over(p, "completions out of order");
		return;
	}
	if (wc->status == IB_WC_SUCCESS) {
		op_complete(p, 0);
		return;
	}
	pair_over(p, ib_wc_status_msg(wc->status));
	/* The card may still work on other parts of the failed operation. */
	if (p->id->qp)
		rdma_destroy_qp(p->id);
	op_complete(p, wc_errno(wc->status));
}

static void pair_reap(struct pair *p)
{
	struct ib_wc wc[REAP];
	int n, i;

	while (p->tail < p->head && READ_ONCE(p->state) == PAIR_UP) {
		n = ib_poll_cq(p->cq, REAP, wc);
		if (n < 0) {
			pair_over(p, "the completion queue failed");
			return;
		}
		for (i = 0; i < n; i++)
			pair_completed(p, &wc[i]);
		if (n) {
			p->heard = jiffies;
			p->armed = false;
			continue;
		}
		/* Arm the handler. If that says that more has completed: poll again. */
		if (p->armed ||
		    ib_req_notify_cq(p->cq,
				     IB_CQ_NEXT_COMP |
					     IB_CQ_REPORT_MISSED_EVENTS) <= 0)
			break;
	}
	p->armed = p->tail < p->head;
}

static void pair_check_silence(struct pair *p)
{
	if (p->tail < p->head && !p->done.nr &&
	    time_after(jiffies, p->heard + p->late))
		pair_over(p, "no answer");
}

static int pair_poll(struct dcm_endpoint *ep, struct dcm_io **done, int max)
{
	struct pair *p = to_pair(ep);

	pair_reap(p);
	pair_check_silence(p);
	if (READ_ONCE(p->state) == PAIR_DEAD && p->tail < p->head)
		pair_finish(p);
	return dcm_done_take(&p->done, done, max);
}

/* Map the pages of an operation for the card. */
static int op_map(struct pair *p, struct pair_op *op)
{
	struct ib_device *dev = p->id->device;
	struct page *page = op->io->data;
	unsigned int i;

	op->nr = op->io->bytes >> PAGE_SHIFT;
	for (i = 0; i < op->nr; i++) {
		op->sge[i].addr = ib_dma_map_page(dev, page, 0, PAGE_SIZE,
						  op_direction(op->io));
		if (ib_dma_mapping_error(dev, op->sge[i].addr)) {
			op_unmap_first(p, op, i);
			return -EAGAIN;
		}
		op->sge[i].length = PAGE_SIZE;
		op->sge[i].lkey = p->pd->local_dma_lkey;
		page = dcmfs_chain_next(page);
	}
	return 0;
}

static void op_requests(struct pair *p, struct pair_op *op)
{
	const struct dcm_slab_ref *slab = op->io->slab;
	unsigned int i, n, nr = 0;

	for (i = 0; i < op->nr; i += n) {
		struct ib_rdma_wr *wr = &op->wr[nr++];

		n = min(op->nr - i, p->sges);
		memset(wr, 0, sizeof(*wr));
		wr->wr.wr_id = p->head;
		wr->wr.opcode = op->io->op == DCM_IO_READ ? IB_WR_RDMA_READ :
							    IB_WR_RDMA_WRITE;
		wr->wr.sg_list = &op->sge[i];
		wr->wr.num_sge = (int)n;
		wr->remote_addr =
			slab->base + op->io->offset + ((u64)i << PAGE_SHIFT);
		wr->rkey = slab->rkey;
		if (i + n < op->nr)
			wr->wr.next = &op->wr[nr].wr;
		else
			wr->wr.send_flags = IB_SEND_SIGNALED;
	}
}

static int pair_post(struct dcm_endpoint *ep, struct dcm_io *io)
{
	struct pair *p = to_pair(ep);
	const struct ib_send_wr *bad;
	struct pair_op *op;

	if (READ_ONCE(p->state) != PAIR_UP)
		return -ENOTCONN;
	if (!dcm_io_fits(io))
		return -ERANGE;
	if (p->head - p->tail >= DEPTH)
		return -EAGAIN;
	op = op_at(p, p->head);
	op->io = io;
	if (op_map(p, op))
		return -EAGAIN;
	op_requests(p, op);
	if (p->head == p->tail)
		p->heard = jiffies;
	io->posted_ns = ktime_get_ns();
	p->head++;
	/* The card may have taken a part of it: it ends with the queue pair. */
	if (ib_post_send(p->id->qp, &op->wr[0].wr, &bad))
		pair_over(p, "the queue pair takes no more");
	return 0;
}

/* Nothing to do: each request goes to the card when it is posted. */
static void pair_flush(struct dcm_endpoint *ep)
{
}

static u32 pair_in_flight(struct dcm_endpoint *ep)
{
	struct pair *p = to_pair(ep);

	return (u32)(p->head - p->tail) + p->done.nr;
}

static bool pair_dead(struct dcm_endpoint *ep)
{
	return READ_ONCE(to_pair(ep)->state) == PAIR_DEAD;
}

static bool pair_ready(struct dcm_endpoint *ep)
{
	return READ_ONCE(to_pair(ep)->state) == PAIR_UP;
}

static void pair_kill(struct dcm_endpoint *ep)
{
	pair_over(to_pair(ep), "given up");
}

static const char *pair_why(struct dcm_endpoint *ep)
{
	return to_pair(ep)->why;
}

static void pair_close(struct dcm_endpoint *ep)
{
	struct pair *p = to_pair(ep);

	mutex_lock(&p->lock);
	pair_over(p, "closed");
	/* Tell the donor, which then need not wait for its timers. */
	rdma_disconnect(p->id);
	if (p->id->qp)
		rdma_destroy_qp(p->id);
	mutex_unlock(&p->lock);
	if (p->cq)
		ib_destroy_cq(p->cq);
	if (p->pd)
		ib_dealloc_pd(p->pd);
	rdma_destroy_id(p->id);
	dcmfs_link_end_put(p->end);
	kvfree_sensitive(p, sizeof(*p));
}

static const struct dcm_transport_ops pair_ops = {
	.owner = THIS_MODULE,
	.name = "verbs",
	.caps = DCM_TR_ORDERED,
	.close = pair_close,
	.post = pair_post,
	.flush = pair_flush,
	.poll = pair_poll,
	.in_flight = pair_in_flight,
	.dead = pair_dead,
	.ready = pair_ready,
	.kill = pair_kill,
	.why = pair_why,
};

static void pair_address(const struct dcmfs_pair *arg,
			 struct sockaddr_storage *ss)
{
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ss;
	struct sockaddr_in *in = (struct sockaddr_in *)ss;

	memset(ss, 0, sizeof(*ss));
	memcpy(&in6->sin6_addr, arg->addr, sizeof(in6->sin6_addr));
	if (ipv6_addr_v4mapped(&in6->sin6_addr)) {
		__be32 v4 = in6->sin6_addr.s6_addr32[3];

		memset(ss, 0, sizeof(*ss));
		in->sin_family = AF_INET;
		in->sin_addr.s_addr = v4;
		in->sin_port = htons(arg->port);
	} else {
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons(arg->port);
		in6->sin6_scope_id = arg->scope;
	}
}

/* struct dcmfs_pair_maker; the caller holds this module. */
static struct dcm_endpoint *pair_open(struct dcmfs_vm *vm,
				      struct dcmfs_lane *lane,
				      const struct dcmfs_pair *arg,
				      struct dcmfs_link_end *end, int *err)
{
	struct sockaddr_storage ss;
	struct pair *p = kvzalloc(sizeof(*p), GFP_KERNEL);

	*err = -ENOMEM;
	if (!p)
		return NULL;
	p->ep.ops = &pair_ops;
	p->vm = vm;
	p->lane = lane;
	p->end = end;
	p->why = "";
	p->late = dcmfs_late_ticks(arg->late_ms);
	dcm_done_init(&p->done);
	mutex_init(&p->lock);
	memcpy(p->shown, arg->shown, sizeof(p->shown));
	pair_address(arg, &ss);
	p->id = rdma_create_id(current->nsproxy->net_ns, on_event, p,
			       RDMA_PS_TCP, IB_QPT_RC);
	if (IS_ERR(p->id)) {
		*err = PTR_ERR(p->id);
		kvfree_sensitive(p, sizeof(*p));
		return NULL;
	}
	*err = rdma_resolve_addr(p->id, NULL, (struct sockaddr *)&ss,
				 RESOLVE_MS);
	if (*err) {
		rdma_destroy_id(p->id);
		kvfree_sensitive(p, sizeof(*p));
		return NULL;
	}
	return &p->ep;
}

static const struct dcmfs_pair_maker maker = {
	.owner = THIS_MODULE,
	.open = pair_open,
};

static int __init verbs_init(void)
{
	return dcmfs_pair_maker_set(&maker);
}

static void __exit verbs_exit(void)
{
	dcmfs_pair_maker_set(NULL);
}

module_init(verbs_init);
module_exit(verbs_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("kvm-dcm: links to donors over RDMA");

// SPDX-License-Identifier: GPL-2.0-only
/*
 * tcp.c - slabs of a donor at the other end of a byte stream
 *
 * What a network card does for a queue pair is done here by two system calls a
 * batch: one sendmsg() for everything posted since the last one, which gathers headers
 * and payloads from where they are, and one recvmsg() that scatters the answers' heads
 * and payloads to where they belong. The places are known before the bytes come,
 * because a donor answers in order, and every answer is a head of 24 bytes and, if it
 * grants a READ, exactly the payload asked for. The one exception is a refusal, which
 * has no payload: then the bytes behind it have landed in the wrong places, and are
 * returned to the socket (socket.c), to be received again. (dcm-tc18 has RDMA only; its
 * data path has no such case.)
 *
 * States: alive, then dead for good. Operations are numbered: [sent, head) are posted,
 * [tail, sent) are sent, and completed ones are in the done list.
 *
 * Nothing the donor sends is trusted: the tag must be that of the oldest
 * operation, the type must fit it, the length must be the one asked for; else
 * the endpoint dies. No length from the wire is ever used as one. All that is
 * in flight when it dies, for whatever reason, completes with -ENOTCONN.
 *
 * A WRITE that failed here may still be under way. The dead endpoint is closed with a
 * reset before the client opens another one. Before the donor welcomes the lane again
 * it closes the lane's older connection, and finishes the requests that came over it.
 * Until then the core does not write those pages over any other connection
 * (core/doubt.c).
 *
 * Locking: none, one lane uses an endpoint. All memory is mapped at open().
 */
#include <errno.h>
#include <sys/mman.h>
#include <poll.h>

#include "../lib/clock.h"
#include "../proto/wire.h"
#include "socket.h"
#include "tcp.h"

#define TCP_REQ_BYTES (DCM_WIRE_HDR_BYTES + sizeof(struct dcm_wire_io))
#define TCP_ANS_BYTES (DCM_WIRE_HDR_BYTES + sizeof(struct dcm_wire_io_done))
/* operations in one sendmsg() and in one recvmsg() */
#define TCP_TX_OPS 32u
#define TCP_RX_OPS 8u
#define TCP_BACK_BYTES (TCP_RX_OPS * (TCP_ANS_BYTES + DCM_WIRE_PAYLOAD_MAX))

static_assert(DCM_IO_BYTES_MAX == DCM_WIRE_PAYLOAD_MAX,
	      "payload of one message");
/* one answer's head fits all three messages a donor may send here */
static_assert(sizeof(struct dcm_wire_io_done) == sizeof(struct dcm_wire_error),
	      "answers differ in length");

/**
 * struct tcp_op - one operation in flight
 * @io: the caller's
 * @req: its request's head
 * @ans: its answer's head, as far as it has come
 */
struct tcp_op {
	struct dcm_io *io;
	u8 req[TCP_REQ_BYTES];
	u8 ans[TCP_ANS_BYTES];
};

/**
 * struct tcp_endpoint - one data connection
 * @head: sequence number (and tag) of the next operation posted
 * @sent: number of the first operation not sent in full
 * @tail: number of the oldest operation not answered in full
 * @tx_off: how many bytes of operation @sent are sent
 * @rx_off: how many bytes of operation @tail's answer have come
 * @heard_ns: when bytes last came, or since when they are awaited
 * @back: memory for the socket's returned bytes
 */
struct tcp_endpoint {
	struct dcm_endpoint ep;
	bool dead;
	u32 depth;
	const char *why;
	u64 head;
	u64 sent;
	u64 tail;
	size_t tx_off;
	size_t rx_off;
	u64 silence_ns;
	u64 heard_ns;
	struct dcm_done done;
	struct tcp_op op[DCM_WIRE_INFLIGHT_MAX];
	struct dcm_socket socket;
	u8 back[TCP_BACK_BYTES];
};

static inline struct tcp_endpoint *to_tcp(struct dcm_endpoint *ep)
{
	return container_of(ep, struct tcp_endpoint, ep);
}

static inline struct tcp_op *op_at(struct tcp_endpoint *t, u64 seq)
{
	return &t->op[seq % DCM_WIRE_INFLIGHT_MAX];
}

/* The number of payload bytes that follow the request's head. */
static inline size_t tx_payload(const struct dcm_io *io)
{
	return io->op == DCM_IO_WRITE && !io->zero ? io->bytes : 0;
}

/*
 * The number of payload bytes that follow the answer's head if the request is granted.
 */
static inline size_t rx_payload(const struct dcm_io *io)
{
	return io->op == DCM_IO_READ ? io->bytes : 0;
}

static void op_complete(struct tcp_endpoint *t, int status)
{
	struct dcm_io *io = op_at(t, t->tail)->io;

	t->tail++;
	t->rx_off = 0;
	dcm_done_add(&t->done, io, status);
}

/* End the endpoint. Operations in flight may be done already, later, or never. */
static void endpoint_fail(struct tcp_endpoint *t, const char *why)
{
	if (t->dead)
		return;
	t->dead = true;
	t->why = why;
	while (t->tail < t->head)
		op_complete(t, -ENOTCONN);
	t->sent = t->head;
	dcm_socket_kill(&t->socket);
}

/* ---- sending ---- */

/* List the bytes to send next, at most @limit. */
static unsigned int tx_list(struct tcp_endpoint *t, struct iovec *iov,
			    size_t limit)
{
	u64 seq, end = min(t->head, t->sent + TCP_TX_OPS);
	size_t skip = t->tx_off;
	unsigned int n = 0;

	for (seq = t->sent; seq < end && limit; seq++) {
		struct tcp_op *op = op_at(t, seq);
		size_t payload = tx_payload(op->io), len;

		if (skip < TCP_REQ_BYTES) {
			len = min(TCP_REQ_BYTES - skip, limit);
			iov[n++] = (struct iovec){ op->req + skip, len };
			limit -= len;
			skip = TCP_REQ_BYTES;
		}
		skip -= TCP_REQ_BYTES;
		if (payload > skip && limit) {
			len = min(payload - skip, limit);
			iov[n++] = (struct iovec){ (char *)op->io->data + skip,
						   len };
			limit -= len;
		}
		skip = 0;
	}
	return n;
}

static void tx_advance(struct tcp_endpoint *t, size_t bytes)
{
	t->tx_off += bytes;
	while (t->sent < t->head) {
		size_t len = TCP_REQ_BYTES + tx_payload(op_at(t, t->sent)->io);

		if (t->tx_off < len)
			break;
		t->tx_off -= len;
		t->sent++;
	}
}

static void tcp_flush(struct dcm_endpoint *ep)
{
	struct tcp_endpoint *t = to_tcp(ep);
	struct iovec iov[2 * TCP_TX_OPS];
	unsigned int n;
	ssize_t sent;

	while (t->sent < t->head) {
		n = tx_list(t, iov, dcm_socket_send_max(&t->socket));
		sent = dcm_socket_send(&t->socket, iov, n);
		if (sent == -EAGAIN)
			return;
		if (sent < 0) {
			endpoint_fail(t, "connection lost");
			return;
		}
		tx_advance(t, (size_t)sent);
	}
}

/* ---- receiving ---- */

/*
 * List the places of the next bytes to come, assuming that all requests are granted.
 * With @sure assume nothing: list only to the end of a head, or of a granted answer's
 * payload.
 */
static unsigned int rx_list(struct tcp_endpoint *t, struct iovec *iov,
			    bool sure)
{
	u64 seq, end = min(t->sent, t->tail + (sure ? 1 : TCP_RX_OPS));
	size_t skip = t->rx_off;
	unsigned int n = 0;

	for (seq = t->tail; seq < end; seq++) {
		struct tcp_op *op = op_at(t, seq);
		size_t payload = rx_payload(op->io);

		if (skip < TCP_ANS_BYTES) {
			iov[n++] = (struct iovec){ op->ans + skip,
						   TCP_ANS_BYTES - skip };
			if (sure)
				break;
			skip = TCP_ANS_BYTES;
		}
		skip -= TCP_ANS_BYTES;
		if (payload > skip)
			iov[n++] = (struct iovec){ (char *)op->io->data + skip,
						   payload - skip };
		skip = 0;
	}
	return n;
}

/*
 * The head of the oldest operation's answer has come. 1: it is granted, 0:
 * refused with *@status, -EPROTO: the endpoint is dead.
 */
static int rx_head(struct tcp_endpoint *t, int *status)
{
	const struct tcp_op *op = op_at(t, t->tail);
	const struct dcm_wire_msg asked = {
		.type = op->io->op == DCM_IO_READ ? DCM_MSG_READ :
						    DCM_MSG_WRITE,
		.tag = t->tail,
		.io.bytes = op->io->bytes,
	};
	const char *why =
		dcm_wire_answer(op->ans, TCP_ANS_BYTES, &asked, status);

	if (!why)
		return !*status;
	endpoint_fail(t, why);
	return -EPROTO;
}

/* Handle @total bytes that have come into the places of rx_list(). */
static void rx_advance(struct tcp_endpoint *t, const struct iovec *iov,
		       size_t total)
{
	size_t left = total, len, want;
	int status, ret;

	while (left) {
		/* an operation exists: lists hold no room for other bytes */
		struct dcm_io *io = op_at(t, t->tail)->io;

		if (t->rx_off < TCP_ANS_BYTES) {
			len = min(TCP_ANS_BYTES - t->rx_off, left);
			t->rx_off += len;
			left -= len;
			if (t->rx_off < TCP_ANS_BYTES)
				return;
			ret = rx_head(t, &status);
			if (ret < 0)
				return;
			if (!ret) {
				if (rx_payload(io) && left) {
					dcm_socket_return(&t->socket, iov,
							  total, left);
					left = 0;
				}
				op_complete(t, status);
				continue;
			}
		}
		want = TCP_ANS_BYTES + rx_payload(io);
		len = min(want - t->rx_off, left);
		t->rx_off += len;
		left -= len;
		if (t->rx_off == want)
			op_complete(t, 0);
	}
}

/* Receive what has come, until @enough operations are complete. */
static void answers_receive(struct tcp_endpoint *t, u32 enough)
{
	struct iovec iov[2 * TCP_RX_OPS], scratch;
	struct dcm_socket *s = &t->socket;
	unsigned int n;
	ssize_t got;
	bool more;
	u8 byte;

	while (!t->dead && t->done.nr < enough) {
		n = rx_list(t, iov, dcm_socket_has_returned(s));
		if (!n) {
			/* no answer is awaited: only look for the connection's end */
			scratch = (struct iovec){ &byte, 1 };
			got = dcm_socket_recv(s, &scratch, 1, &more);
			if (got > 0)
				endpoint_fail(t, "data that nobody asked for");
			else if (got != -EAGAIN)
				endpoint_fail(t, "connection lost");
			return;
		}
		got = dcm_socket_recv(s, iov, n, &more);
		if (got == -EAGAIN)
			return;
		if (got < 0) {
			endpoint_fail(t, "connection lost");
			return;
		}
		t->heard_ns = 0;
		rx_advance(t, iov, (size_t)got);
		/* bytes beyond the last answer are noticed at the next poll */
		if ((!more || t->tail == t->sent) &&
		    !dcm_socket_has_returned(s))
			return;
	}
}

static int tcp_poll(struct dcm_endpoint *ep, struct dcm_io **done, int max)
{
	struct tcp_endpoint *t = to_tcp(ep);
	u64 now;

	*done = NULL;
	if (max <= 0)
		return 0;
	tcp_flush(ep);
	if (!t->dead && t->done.nr < (u32)max) {
		answers_receive(t, (u32)max);
		/* silence is timed from the first look at which nothing came */
		if (!t->dead && t->silence_ns && t->tail < t->head &&
		    !t->done.nr) {
			now = dcm_clock_ns();
			if (!t->heard_ns)
				t->heard_ns = now;
			else if (now - t->heard_ns > t->silence_ns)
				endpoint_fail(t, "no answer");
		}
	}
	return dcm_done_take(&t->done, done, max);
}

/* ---- the rest ---- */

static int tcp_post(struct dcm_endpoint *ep, struct dcm_io *io)
{
	struct tcp_endpoint *t = to_tcp(ep);
	struct dcm_wire_msg msg = { 0 };
	struct tcp_op *op;

	if (t->dead)
		return -ENOTCONN;
	if (!dcm_io_fits(io))
		return -ERANGE;
	if (t->head - t->tail >= t->depth)
		return -EAGAIN;
	msg.type = io->op == DCM_IO_READ ? DCM_MSG_READ : DCM_MSG_WRITE;
	msg.tag = t->head;
	msg.payload_bytes = (u32)tx_payload(io);
	msg.io.slab = io->slab->id;
	msg.io.offset = io->offset;
	msg.io.bytes = io->bytes;
	op = op_at(t, t->head);
	if (dcm_wire_encode(op->req, sizeof(op->req), &msg) !=
	    (int)TCP_REQ_BYTES)
		return -ERANGE;
	op->io = io;
	io->posted_ns = dcm_clock_ns();
	if (t->head == t->tail)
		t->heard_ns = 0;
	t->head++;
	return 0;
}

static int tcp_wait_fd(struct dcm_endpoint *ep, short *events)
{
	struct tcp_endpoint *t = to_tcp(ep);

	*events = t->sent < t->head ? POLLIN | POLLOUT : POLLIN;
	return t->socket.fd;
}

static u32 tcp_in_flight(struct dcm_endpoint *ep)
{
	struct tcp_endpoint *t = to_tcp(ep);

	return (u32)(t->head - t->tail) + t->done.nr;
}

static bool tcp_dead(struct dcm_endpoint *ep)
{
	return to_tcp(ep)->dead;
}

static struct dcm_endpoint *tcp_open(const void *arg, int *err)
{
	const struct dcm_tcp_args *a = arg;
	struct tcp_endpoint *t;

	if (a->fd < 0 || !a->depth || a->depth > DCM_WIRE_INFLIGHT_MAX) {
		*err = -EINVAL;
		return NULL;
	}
	/* @back is seldom used and takes no memory until then */
	t = mmap(NULL, sizeof(*t), PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (t == MAP_FAILED) {
		*err = -ENOMEM;
		return NULL;
	}
	t->ep.ops = &dcm_transport_tcp;
	t->socket.fd = a->fd;
	dcm_socket_tls(&t->socket, a->tls);
	t->socket.back = t->back;
	t->depth = a->depth;
	t->silence_ns = a->silence_ns;
	t->why = "";
	dcm_done_init(&t->done);
	*err = 0;
	return &t->ep;
}

static void tcp_close(struct dcm_endpoint *ep)
{
	struct tcp_endpoint *t = to_tcp(ep);

	/*
	 * Failed WRITEs may be done again over another connection, so
	 * none of them may be sent from here any more. A reset drops
	 * what TCP has queued; before the donor lets the lane join
	 * again it finishes what it has received.
	 */
	dcm_socket_close(&t->socket, t->dead || t->tail < t->head);
	munmap(t, sizeof(*t));
}

static void tcp_kill(struct dcm_endpoint *ep)
{
	dcm_socket_kill(&to_tcp(ep)->socket);
}

static const char *tcp_why(struct dcm_endpoint *ep)
{
	return to_tcp(ep)->why;
}

const struct dcm_transport_ops dcm_transport_tcp = {
	.name = "tcp",
	.caps = DCM_TR_ORDERED,
	.open = tcp_open,
	.close = tcp_close,
	.post = tcp_post,
	.flush = tcp_flush,
	.poll = tcp_poll,
	.wait_fd = tcp_wait_fd,
	.in_flight = tcp_in_flight,
	.dead = tcp_dead,
	.kill = tcp_kill,
	.why = tcp_why,
};

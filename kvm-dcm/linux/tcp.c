// SPDX-License-Identifier: GPL-2.0-only
/*
 * tcp.c - slabs of a donor at the other end of a socket
 *
 * The control plane connects and authenticates, and passes the socket in, with
 * kTLS on it if data is to be encrypted; from then on this file sends READ and
 * WRITE and receives DATA and WRITTEN, the only messages the kernel handles. A
 * donor answers in order. A WRITE is sent from the guest's frames, and a READ
 * is received into the frames the guest will have.
 *
 * Unlike here, in transport/tcp.c (libdcm's) a system call costs more than a
 * copy, so answers are received many at a time and sorted afterwards; here one
 * call receives a head and one its payload.
 *
 * A link that is idle sends a ping once a second (link.c): a READ of slab 0, which
 * no donor has, so the answer is a refusal without bytes. The donor counts it as a
 * sign of life, also while dcm-hostd is not running. A ping that is not answered does
 * not kill the link; only an operation that an access waits for does.
 *
 * States: alive, then dead for good: the socket is shut down; the control plane sees
 * that, and makes a new link. Operations are numbered: [sent, head) are posted, [tail,
 * sent) are sent, and completed ones are in the done list.
 *
 * Nothing the donor sends is trusted: tag, type and length must be those of the
 * oldest operation, and no length from the wire is used as one; else the
 * endpoint dies. All that is in flight then completes with -ENOTCONN.
 *
 * Locking: an endpoint belongs to one lane and is used under its lock; the
 * socket's callbacks, in softirq context, only wake threads. Sending may allocate from
 * the kernel's reserves, as WRITEs are sent to free memory.
 */
#include <linux/file.h>
#include <linux/net.h>
#include <linux/sched/mm.h>
#include <linux/tcp.h>
#include <net/sock.h>

#include "../proto/wire.h"
#include "dcmfs.h"

#define REQ_BYTES (DCM_WIRE_HDR_BYTES + sizeof(struct dcm_wire_io))
#define ANS_BYTES (DCM_WIRE_HDR_BYTES + sizeof(struct dcm_wire_io_done))

/* One head fits all three messages a donor may send here. */
static_assert(sizeof(struct dcm_wire_io_done) == sizeof(struct dcm_wire_error),
	      "answers differ in length");

/**
 * struct tcp_op - one operation in flight
 * @io: the core's
 * @req: its request's head
 */
struct tcp_op {
	struct dcm_io *io;
	u8 req[REQ_BYTES];
};

/**
 * struct tcp_endpoint - one data connection
 * @ep: for link.c
 * @vm: the VM
 * @lane: the lane, woken when something arrives
 * @sock: the socket; its file is held
 * @data_ready: the socket's original callback
 * @write_space: the same
 * @state_change: the same
 * @why: why it died
 * @dead: it has failed, for good
 * @depth: most operations in flight
 * @late: ticks of silence after which it is given up
 * @head: sequence number (and tag) of the next operation posted
 * @sent: number of the first operation not sent in full
 * @tail: number of the oldest operation not answered in full
 * @tx_off: how many bytes of operation @sent are sent
 * @rx_off: how many bytes of operation @tail's answer have come
 * @ans: head of that answer, as far as it has come
 * @heard: when something last came, or since when an answer is awaited
 * @ping: the READ of slab 0; posted only when nothing is in flight
 * @nothing: slab 0, the ping's target
 * @done: operations complete and not polled
 * @op: operations in flight, by their number modulo @depth
 */
struct tcp_endpoint {
	struct dcm_endpoint ep;
	struct dcmfs_vm *vm;
	struct dcmfs_lane *lane;
	struct socket *sock;
	void (*data_ready)(struct sock *sk);
	void (*write_space)(struct sock *sk);
	void (*state_change)(struct sock *sk);
	const char *why;
	bool dead;
	u32 depth;
	unsigned long late;
	u64 head;
	u64 sent;
	u64 tail;
	size_t tx_off;
	size_t rx_off;
	u8 ans[ANS_BYTES];
	unsigned long heard;
	struct dcm_io ping;
	struct dcm_slab_ref nothing;
	struct dcm_done done;
	struct tcp_op op[];
};

static struct tcp_endpoint *to_tcp(struct dcm_endpoint *ep)
{
	return container_of(ep, struct tcp_endpoint, ep);
}

static struct tcp_op *op_at(struct tcp_endpoint *t, u64 seq)
{
	return &t->op[(u32)seq % t->depth];
}

static size_t tx_payload(const struct dcm_io *io)
{
	return io->op == DCM_IO_WRITE && !io->zero ? io->bytes : 0;
}

static size_t rx_payload(const struct dcm_io *io)
{
	return io->op == DCM_IO_READ ? io->bytes : 0;
}

static void op_complete(struct tcp_endpoint *t, int status)
{
	struct dcm_io *io = op_at(t, t->tail)->io;

	t->tail++;
	t->rx_off = 0;
	if (io != &t->ping)
		dcm_done_add(&t->done, io, status);
}

/* Does any operation except a ping wait for its answer? */
static bool answer_awaited(const struct tcp_endpoint *t)
{
	u64 nr = t->head - t->tail;

	return nr > 1 || (nr && t->op[(u32)t->tail % t->depth].io != &t->ping);
}

/*
 * End the endpoint. Operations in flight may have been done, may still be done, or
 * never will be. @err: 0, or why this side gives the connection up: the control plane
 * reads it as the socket's error (SO_ERROR).
 */
static void endpoint_fail(struct tcp_endpoint *t, const char *why, int err)
{
	if (t->dead)
		return;
	WRITE_ONCE(t->dead, true);
	t->why = why;
	if (err)
		WRITE_ONCE(t->sock->sk->sk_err, err);
	while (t->tail < t->head)
		op_complete(t, -ENOTCONN);
	t->sent = t->head;
	/* The control plane, which passed the socket in, polls it. */
	kernel_sock_shutdown(t->sock, SHUT_RDWR);
}

/* Pages of a chain from byte @off on, as a list for the socket. */
static unsigned int chain_bvecs(const struct dcm_io *io, size_t off,
			       struct bio_vec *bv)
{
	struct page *page = io->data;
	size_t left = io->bytes - off;
	unsigned int n = 0;

	for (; off >= PAGE_SIZE; off -= PAGE_SIZE)
		page = dcmfs_chain_next(page);
	while (left) {
		size_t len = min(left, PAGE_SIZE - off);

		bvec_set_page(&bv[n++], page, (unsigned int)len,
			      (unsigned int)off);
		left -= len;
		off = 0;
		if (left)
			page = dcmfs_chain_next(page);
	}
	return n;
}

/* ---- sending ---- */

static int tx_head(struct tcp_endpoint *t, struct tcp_op *op, bool more)
{
	struct kvec vec = { .iov_base = op->req + t->tx_off,
			    .iov_len = REQ_BYTES - t->tx_off };
	struct msghdr msg = { .msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL };

	if (more)
		msg.msg_flags |= MSG_MORE;
	return kernel_sendmsg(t->sock, &msg, &vec, 1, vec.iov_len);
}

/* Send the frames themselves: they do not change until WRITTEN has come. */
static int tx_pages(struct tcp_endpoint *t, struct tcp_op *op, bool more)
{
	struct bio_vec bv[DCM_BLOCK_MAX];
	struct msghdr msg = { .msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL |
					   MSG_SPLICE_PAGES };
	size_t off = t->tx_off - REQ_BYTES;

	if (more)
		msg.msg_flags |= MSG_MORE;
	iov_iter_bvec(&msg.msg_iter, ITER_SOURCE, bv,
		      chain_bvecs(op->io, off, bv), op->io->bytes - off);
	return sock_sendmsg(t->sock, &msg);
}

static void tcp_tx(struct tcp_endpoint *t)
{
	unsigned int noreclaim = memalloc_noreclaim_save();

	while (t->sent < t->head) {
		struct tcp_op *op = op_at(t, t->sent);
		size_t payload = tx_payload(op->io);
		bool last = t->sent + 1 == t->head;
		int n;

		n = t->tx_off < REQ_BYTES ? tx_head(t, op, payload || !last) :
					    tx_pages(t, op, !last);
		if (n == -EAGAIN || n == -EINTR || n == -ENOBUFS ||
		    n == -ENOMEM)
			break;
		if (n <= 0) {
			endpoint_fail(t, "connection lost", 0);
			break;
		}
		t->tx_off += (size_t)n;
		if (t->tx_off == REQ_BYTES + payload) {
			t->tx_off = 0;
			t->sent++;
		}
	}
	memalloc_noreclaim_restore(noreclaim);
}

static void tcp_flush(struct dcm_endpoint *ep)
{
	struct tcp_endpoint *t = to_tcp(ep);

	if (!t->dead && t->sent < t->head)
		tcp_tx(t);
}

/* ---- receiving ---- */

/*
 * The head of the oldest operation's answer has come. 1: its payload follows,
 * 0: it is complete with *@status, -1: the endpoint is dead.
 */
static int rx_head(struct tcp_endpoint *t, int *status)
{
	const struct dcm_io *io = op_at(t, t->tail)->io;
	const struct dcm_wire_msg asked = {
		.type = io->op == DCM_IO_READ ? DCM_MSG_READ : DCM_MSG_WRITE,
		.tag = t->tail,
		.io.bytes = io->bytes,
	};
	const char *why = dcm_wire_answer(t->ans, ANS_BYTES, &asked, status);

	if (!why && io == &t->ping && !*status)
		why = "sends bytes of no slab";
	if (!why)
		return !*status && rx_payload(io);
	endpoint_fail(t, why, EPROTO);
	return -1;
}

/* Receive more of the oldest operation's answer; result as recvmsg(). */
static int rx_some(struct tcp_endpoint *t)
{
	const struct dcm_io *io = op_at(t, t->tail)->io;
	struct msghdr msg = { .msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL };
	struct bio_vec bv[DCM_BLOCK_MAX];
	struct kvec vec;
	size_t off;

	if (t->rx_off < ANS_BYTES) {
		vec.iov_base = t->ans + t->rx_off;
		vec.iov_len = ANS_BYTES - t->rx_off;
		return kernel_recvmsg(t->sock, &msg, &vec, 1, vec.iov_len,
				      msg.msg_flags);
	}
	off = t->rx_off - ANS_BYTES;
	iov_iter_bvec(&msg.msg_iter, ITER_DEST, bv, chain_bvecs(io, off, bv),
		      io->bytes - off);
	return sock_recvmsg(t->sock, &msg, msg.msg_flags);
}

static void answers_receive(struct tcp_endpoint *t, u32 enough)
{
	while (!t->dead && t->tail < t->sent && t->done.nr < enough) {
		size_t payload = rx_payload(op_at(t, t->tail)->io);
		int n = rx_some(t), status = 0;

		if (n == -EAGAIN || n == -EINTR)
			return;
		if (n <= 0) {
			endpoint_fail(t, "connection lost", 0);
			return;
		}
		t->heard = jiffies;
		t->rx_off += (size_t)n;
		if (t->rx_off == ANS_BYTES) {
			int ret = rx_head(t, &status);

			if (ret < 0)
				return;
			if (!ret)
				op_complete(t, status);
		} else if (t->rx_off == ANS_BYTES + payload) {
			op_complete(t, 0);
		}
	}
}

static void tcp_check_silence(struct tcp_endpoint *t)
{
	if (answer_awaited(t) && !t->done.nr &&
	    time_after(jiffies, t->heard + t->late))
		endpoint_fail(t, "no answer", ETIMEDOUT);
}

static int tcp_poll(struct dcm_endpoint *ep, struct dcm_io **done, int max)
{
	struct tcp_endpoint *t = to_tcp(ep);

	tcp_flush(ep);
	if (!t->dead && t->done.nr < (u32)max)
		answers_receive(t, (u32)max);
	if (!t->dead)
		tcp_check_silence(t);
	return dcm_done_take(&t->done, done, max);
}

/* ---- the rest ---- */

/* Queue an operation that fits; 0 or -ERANGE. */
static int op_queue(struct tcp_endpoint *t, struct dcm_io *io)
{
	struct dcm_wire_msg msg = {};
	struct tcp_op *op;

	msg.type = io->op == DCM_IO_READ ? DCM_MSG_READ : DCM_MSG_WRITE;
	msg.tag = t->head;
	msg.payload_bytes = (u32)tx_payload(io);
	msg.io.slab = io->slab->id;
	msg.io.offset = io->offset;
	msg.io.bytes = io->bytes;
	op = op_at(t, t->head);
	if (dcm_wire_encode(op->req, sizeof(op->req), &msg) != (int)REQ_BYTES)
		return -ERANGE;
	op->io = io;
	io->posted_ns = ktime_get_ns();
	if (!answer_awaited(t))
		t->heard = jiffies;
	t->head++;
	return 0;
}

static int tcp_post(struct dcm_endpoint *ep, struct dcm_io *io)
{
	struct tcp_endpoint *t = to_tcp(ep);

	if (t->dead)
		return -ENOTCONN;
	if (!dcm_io_fits(io))
		return -ERANGE;
	if (t->head - t->tail >= t->depth)
		return -EAGAIN;
	return op_queue(t, io);
}

static void tcp_ping(struct dcm_endpoint *ep)
{
	struct tcp_endpoint *t = to_tcp(ep);

	if (t->dead || t->head != t->tail)
		return;
	t->ping.slab = &t->nothing;
	t->ping.op = DCM_IO_READ;
	t->ping.bytes = PAGE_SIZE;
	if (!op_queue(t, &t->ping))
		tcp_tx(t);
}

static u32 tcp_in_flight(struct dcm_endpoint *ep)
{
	struct tcp_endpoint *t = to_tcp(ep);

	return (u32)(t->head - t->tail) + t->done.nr;
}

static bool tcp_dead(struct dcm_endpoint *ep)
{
	const struct tcp_endpoint *t = to_tcp(ep);

	return t->dead || (!answer_awaited(t) &&
		READ_ONCE(t->sock->sk->sk_state) != TCP_ESTABLISHED);
}

static void sock_event(struct sock *sk)
{
	struct tcp_endpoint *t;

	read_lock_bh(&sk->sk_callback_lock);
	t = sk->sk_user_data;
	if (t)
		dcmfs_lane_event(t->vm, t->lane);
	read_unlock_bh(&sk->sk_callback_lock);
}

static void sock_state_change(struct sock *sk)
{
	struct tcp_endpoint *t;

	read_lock_bh(&sk->sk_callback_lock);
	t = sk->sk_user_data;
	if (t) {
		/* The control plane waits for the socket's end too. */
		t->state_change(sk);
		dcmfs_lane_event(t->vm, t->lane);
	}
	read_unlock_bh(&sk->sk_callback_lock);
}

static void sock_write_space(struct sock *sk)
{
	struct tcp_endpoint *t;

	read_lock_bh(&sk->sk_callback_lock);
	t = sk->sk_user_data;
	if (t) {
		t->write_space(sk);
		dcmfs_lane_event(t->vm, t->lane);
	}
	read_unlock_bh(&sk->sk_callback_lock);
}

/* Take a TCP socket that is connected and in no other use; or an errno. */
static int sock_take(struct tcp_endpoint *t)
{
	struct sock *sk = t->sock->sk;
	int err = 0;

	if ((sk->sk_family != AF_INET && sk->sk_family != AF_INET6) ||
	    sk->sk_type != SOCK_STREAM || sk->sk_protocol != IPPROTO_TCP)
		return -EINVAL;
	write_lock_bh(&sk->sk_callback_lock);
	if (sk->sk_user_data)
		err = -EBUSY;
	else if (sk->sk_state != TCP_ESTABLISHED)
		err = -ENOTCONN;
	if (!err) {
		t->data_ready = sk->sk_data_ready;
		t->write_space = sk->sk_write_space;
		t->state_change = sk->sk_state_change;
		sk->sk_user_data = t;
		sk->sk_data_ready = sock_event;
		sk->sk_write_space = sock_write_space;
		sk->sk_state_change = sock_state_change;
	}
	write_unlock_bh(&sk->sk_callback_lock);
	return err;
}

/*
 * Prepare a socket for the kernel's use. Faults use it under the mmap lock, so user
 * space must not use it any more.
 */
static void sock_prepare(struct sock *sk)
{
	static struct lock_class_key key;

	lockdep_set_class_and_name(&sk->sk_lock, &key, "sk_lock-dcm");
	sk->sk_allocation = GFP_NOIO | __GFP_NOWARN;
	sk->sk_use_task_frag = false;
	sk_set_memalloc(sk);
	tcp_sock_set_nodelay(sk);
	/* On close, drop what is queued: see transport/tcp.c. */
	sock_no_linger(sk);
}

static void tcp_close(struct dcm_endpoint *ep)
{
	struct tcp_endpoint *t = to_tcp(ep);
	struct sock *sk = t->sock->sk;

	kernel_sock_shutdown(t->sock, SHUT_RDWR);
	write_lock_bh(&sk->sk_callback_lock);
	sk->sk_user_data = NULL;
	sk->sk_data_ready = t->data_ready;
	sk->sk_write_space = t->write_space;
	sk->sk_state_change = t->state_change;
	write_unlock_bh(&sk->sk_callback_lock);
	sockfd_put(t->sock);
	kvfree(t);
}

static void tcp_kill(struct dcm_endpoint *ep)
{
	endpoint_fail(to_tcp(ep), "given up", 0);
}

static const char *tcp_why(struct dcm_endpoint *ep)
{
	return to_tcp(ep)->why;
}

static const struct dcm_transport_ops tcp_ops = {
	.name = "tcp",
	.caps = DCM_TR_ORDERED,
	.close = tcp_close,
	.post = tcp_post,
	.flush = tcp_flush,
	.poll = tcp_poll,
	.in_flight = tcp_in_flight,
	.dead = tcp_dead,
	.kill = tcp_kill,
	.ping = tcp_ping,
	.why = tcp_why,
};

/**
 * dcmfs_tcp_open() - make an endpoint of a connection
 * @vm: the VM
 * @lane: the lane
 * @arg: from user space, checked: a connected TCP socket, past HELLO
 * @err: out: -EBADF, -ENOTSOCK, -EINVAL, -EBUSY, -ENOTCONN, -ENOMEM
 *
 * Return: the endpoint, or %NULL. May sleep.
 */
struct dcm_endpoint *dcmfs_tcp_open(struct dcmfs_vm *vm,
				    struct dcmfs_lane *lane,
				    const struct dcmfs_link *arg, int *err)
{
	struct tcp_endpoint *t =
		kvzalloc(struct_size(t, op, arg->window), GFP_KERNEL);

	*err = -ENOMEM;
	if (!t)
		return NULL;
	t->ep.ops = &tcp_ops;
	t->vm = vm;
	t->lane = lane;
	t->depth = arg->window;
	t->late = dcmfs_late_ticks(arg->late_ms);
	dcm_done_init(&t->done);
	t->sock = sockfd_lookup(arg->fd, err);
	if (!t->sock)
		goto fail;
	*err = sock_take(t);
	if (*err) {
		sockfd_put(t->sock);
		goto fail;
	}
	sock_prepare(t->sock->sk);
	return &t->ep;
fail:
	kvfree(t);
	return NULL;
}

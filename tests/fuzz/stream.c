// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * stream.c - a data connection whose other end is an input's
 *
 * What the donor is to say is collected and delivered in pieces, so that where
 * a message begins and where a piece ends have nothing to do with each other.
 *
 * The naive reader takes all that was delivered from its beginning: operation k
 * is answered by a head of 24 bytes and, if that is a good one to a READ, by as
 * many bytes as were asked for. So it is known of each operation how it ends,
 * and with what bytes. An endpoint may die only for a reason: an answer that
 * fits nothing, one that was not asked for, an end of the connection, silence.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "../../kvm-dcm/proto/wire.h"
#include "sockets.h"
#include "stream.h"

#define OPS 48u
#define ANSWER (DCM_WIRE_HDR_BYTES + 8u)
#define SAID (3u << 20)
#define HEARD (2 * DCM_WIRE_MSG_MAX)
#define SLAB_ID 77u
#define SLAB_BYTES (1u << 20)

int __wrap_poll(struct pollfd *p, nfds_t nr, int ms);

struct op {
	struct dcm_io io;
	bool done;
};

static const struct stream_transport *transport;
static struct dcm_endpoint *ep;
static struct dcm_slab_ref slab;
static struct op ops[OPS];
static u32 posted, completed, requested, answered;
static int donor_fd;
static bool deaf, ended, early;
static u8 said[SAID], heard[HEARD];
static size_t nr_said, nr_delivered, nr_heard;
static u64 nr_taken; /* bytes heard in all */
static u64 waited_ms; /* since something was delivered or posted */

/* ---- the naive reader ---- */

/**
 * struct ending - how an operation ends
 * @status: 1: it does not yet; -ENOTCONN: never, as the answer makes no sense
 * @payload: of a READ that ends well
 * @next: where the next one's answer begins
 */
struct ending {
	int status;
	size_t payload;
	size_t next;
};

UNTRACED static void read_answer(u32 k, size_t at, struct ending *e)
{
	const struct dcm_io *io = &ops[k].io;
	const struct dcm_wire_msg asked = {
		.type = io->op == DCM_IO_READ ? DCM_MSG_READ : DCM_MSG_WRITE,
		.tag = k,
		.io.bytes = io->bytes,
	};
	const size_t more = io->op == DCM_IO_READ ? io->bytes : 0;

	e->status = 1;
	e->payload = at + ANSWER;
	e->next = e->payload;
	if (nr_delivered < e->payload)
		return;
	if (dcm_wire_answer(said + at, ANSWER, &asked, &e->status)) {
		e->status = -ENOTCONN;
		return;
	}
	if (e->status)
		return;
	e->next += more;
	if (nr_delivered < e->next)
		e->status = 1;
}

/* How operation @k ends; false: what was before it has not ended well enough. */
UNTRACED static bool ending_of(u32 k, struct ending *e)
{
	size_t at = 0;

	for (u32 i = 0; i <= k; i++) {
		read_answer(i, at, e);
		if (e->status == 1 || e->status == -ENOTCONN)
			return i == k;
		at = e->next;
	}
	return true;
}

/**
 * struct sum - the outcome of the first operations
 * @ended: how many of them end
 * @bad: the next one's answer makes no sense
 * @surplus: all end, and there is more
 */
struct sum {
	u32 ended;
	bool bad;
	bool surplus;
};

UNTRACED static struct sum sum_of(u32 nr)
{
	struct sum s = { 0 };
	struct ending e;
	size_t at = 0;

	for (; s.ended < nr; s.ended++) {
		read_answer(s.ended, at, &e);
		s.bad = e.status == -ENOTCONN;
		if (s.bad || e.status == 1)
			return s;
		at = e.next;
	}
	s.surplus = nr_delivered > at;
	return s;
}

/* ---- the donor ---- */

/* The byte at @offset of an operation's source. */
UNTRACED static u8 pattern(u32 k, u32 offset)
{
	return (u8)(1 + k * 37 + offset / STREAM_BYTES);
}

/* Byte by byte as it was posted? */
UNTRACED static void source_check(u32 k, const u8 *bytes)
{
	const struct dcm_io *io = &ops[k].io;

	for (u32 at = 0; at < io->bytes; at += STREAM_BYTES) {
		const u8 *p = bytes ? bytes + at : transport->at(io->data, at);

		for (u32 i = 0; i < STREAM_BYTES; i += 63)
			EXPECT(p[i] == pattern(k, at));
		EXPECT(p[STREAM_BYTES - 1] == pattern(k, at));
	}
}

static void request_check(const struct dcm_wire_msg *m)
{
	const u32 k = requested;
	const struct dcm_io *io = &ops[k].io;

	EXPECT(k < posted && m->tag == k && m->io.slab == SLAB_ID);
	EXPECT(m->io.offset == io->offset && m->io.bytes == io->bytes);
	EXPECT(m->type ==
	       (io->op == DCM_IO_READ ? DCM_MSG_READ : DCM_MSG_WRITE));
	EXPECT(m->payload_bytes || m->type != DCM_MSG_WRITE || io->zero);
	if (m->payload_bytes)
		source_check(k, m->payload);
	requested++;
}

UNTRACED static void donor_read(void)
{
	struct dcm_wire_msg msg;
	size_t bytes, at, end;
	ssize_t n;

	while (!deaf && donor_fd >= 0) {
		n = recv(donor_fd, heard + nr_heard, HEARD - nr_heard,
			 MSG_DONTWAIT);
		if (n > 0) {
			nr_heard += (size_t)n;
			nr_taken += (size_t)n;
		}
		end = nr_heard - (nr_taken - min(nr_taken, transport->whole()));
		for (at = 0;; at += bytes) {
			int ret = dcm_wire_decode(heard + at, end - at,
						  DCM_PHASE_DATA, DCM_SIDE_HOST,
						  &msg, &bytes);

			if (ret == DCM_WIRE_MORE)
				break;
			EXPECT(ret == DCM_WIRE_OK);
			request_check(&msg);
		}
		nr_heard -= at;
		memmove(heard, heard + at, nr_heard);
		if (n <= 0)
			return;
	}
}

/* Send @bytes of the bytes that are to be sent, or as many as there is room for. */
static void deliver(size_t bytes)
{
	const size_t left = min(bytes, nr_said - nr_delivered);
	ssize_t n;

	donor_read();
	if (!left || donor_fd < 0 || ended)
		return;
	n = send(donor_fd, said + nr_delivered, left,
		 MSG_DONTWAIT | MSG_NOSIGNAL);
	if (n <= 0)
		return;
	nr_delivered += (size_t)n;
	waited_ms = 0;
	/* of one that is not known to have been sent */
	early |= sum_of(requested).surplus;
}

static void put(const void *bytes, size_t n)
{
	n = min(n, SAID - nr_said);
	memcpy(said + nr_said, bytes, n);
	nr_said += n;
}

/* An answer to operation @k, or something like it. */
static void answer(struct in *in, u32 k, u32 status, u32 lie)
{
	static u8 payload[DCM_WIRE_PAYLOAD_MAX];
	const struct dcm_io *io = &ops[k % OPS].io;
	const bool more = io->op == DCM_IO_READ && !status;
	struct dcm_wire_msg msg = {
		.type = io->op == DCM_IO_READ ? DCM_MSG_DATA : DCM_MSG_WRITTEN,
		.tag = k,
		.io_done = { .status = status,
			     .bytes = status ? 0 : io->bytes },
	};
	u8 head[DCM_WIRE_HEAD_MAX];
	int n;

	msg.payload_bytes = more ? io->bytes : 0;
	if (lie & 1)
		msg.tag += some(in, 4);
	if (lie & 2)
		msg.io_done.bytes = (u32)some(in, 4) * STREAM_BYTES;
	if (lie & 4)
		msg.type = byte(in) & 1 ? DCM_MSG_ERROR : DCM_MSG_WRITTEN;
	if (lie & 2 || lie & 4)
		msg.payload_bytes = msg.type == DCM_MSG_DATA &&
						    !msg.io_done.status ?
				msg.io_done.bytes :
				0;
	n = dcm_wire_encode(head, sizeof(head), &msg);
	if (n < 0)
		return;
	if (lie & 8)
		head[byte(in) % (u32)n] = (u8)byte(in);
	put(head, (size_t)n);
	memset(payload, (int)(k * 5 + nr_said), sizeof(payload));
	put(payload, min(msg.payload_bytes, DCM_WIRE_PAYLOAD_MAX));
}

static void junk(struct in *in)
{
	u8 buf[64];
	const u32 n = byte(in) % sizeof(buf);

	for (u32 i = 0; i < n; i++)
		buf[i] = (u8)byte(in);
	put(buf, n);
}

/* ---- the host ---- */

static void post(u32 how)
{
	struct dcm_io *io = &ops[posted % OPS].io;
	int ret;

	if (posted == OPS)
		return;
	io->slab = &slab;
	io->op = how & 1 ? DCM_IO_WRITE : DCM_IO_READ;
	io->bytes = (1 + (how >> 1 & 15)) * STREAM_BYTES;
	io->offset = (u64)(how >> 5) * STREAM_BYTES;
	io->status = 1;
	io->data = transport->memory(io->bytes);
	for (u32 at = 0; at < io->bytes; at += STREAM_BYTES)
		memset(transport->at(io->data, at), pattern(posted, at),
		       STREAM_BYTES);
	ret = ep->ops->post(ep, io);
	if (!ret) {
		posted++;
		waited_ms = posted - completed == 1 ? 0 : waited_ms;
		return;
	}
	EXPECT(ret == -EAGAIN || (ret == -ENOTCONN && ep->ops->dead(ep)));
	transport->free(io->data, io->bytes);
}

UNTRACED static void data_check(u32 k, const struct ending *e)
{
	const struct dcm_io *io = &ops[k].io;

	for (u32 at = 0; at < io->bytes; at += STREAM_BYTES)
		EXPECT(!memcmp(transport->at(io->data, at),
			       said + e->payload + at, STREAM_BYTES));
}

static void completed_check(struct dcm_io *io)
{
	const u32 k = completed++;
	struct ending e;

	EXPECT(k < posted && io == &ops[k].io && !ops[k].done);
	ops[k].done = true;
	if (io->status == -ENOTCONN) {
		EXPECT(ep->ops->dead(ep));
	} else {
		EXPECT(ending_of(k, &e) && e.status == io->status);
		if (!io->status && io->op == DCM_IO_READ)
			data_check(k, &e);
	}
	if (io->op == DCM_IO_WRITE)
		source_check(k, NULL);
	transport->free(io->data, io->bytes);
}

/* It may be dead only for a reason. */
static void death_check(void)
{
	const struct sum s = sum_of(posted);

	EXPECT(!ep->ops->dead(ep) || s.bad || s.surplus || early || ended ||
	     waited_ms > DCM_WIRE_SILENCE_MS);
}

static int host_poll(int max)
{
	struct dcm_io *io, *next;
	int n, seen = 0;

	ep->ops->flush(ep);
	n = ep->ops->poll(ep, &io, max);
	for (; io; io = next) {
		next = io->next;
		seen++;
		completed_check(io);
	}
	EXPECT(seen == n && n <= max);
	death_check();
	EXPECT(ep->ops->in_flight(ep) == posted - completed);
	return n;
}

/* Nobody takes what was not asked for, so not all of it has room. */
static bool surplus_stays(const struct sum *s)
{
	return s->surplus && !transport->looks;
}

/* All has been said and taken: what has an answer has ended. */
static void drain(void)
{
	struct sum s;

	deaf = false;
	for (u32 i = 0; i < 4096 && !ended; i++) {
		const u64 before = nr_delivered + nr_taken + completed;

		transport->begin(0);
		host_poll(16);
		deliver(SIZE_MAX);
		s = sum_of(posted);
		if (before == nr_delivered + nr_taken + completed &&
		    (nr_delivered == nr_said || surplus_stays(&s) ||
		     ep->ops->dead(ep)))
			break;
	}
	if (ended)
		return;
	s = sum_of(posted);
	EXPECT(completed >= s.ended);
	if (ep->ops->dead(ep))
		return;
	EXPECT(nr_delivered == nr_said || surplus_stays(&s));
	EXPECT(requested == posted && !s.bad);
	EXPECT(!s.surplus || !transport->looks);
}

static void end(u32 how)
{
	ended = true;
	if (how & 1)
		ep->ops->kill(ep);
	else if (how & 2)
		shutdown(donor_fd, how & 4 ? SHUT_WR : SHUT_RDWR);
	else
		close(donor_fd);
	if (!(how & 3))
		donor_fd = -1;
}

static void step(struct in *in)
{
	const u32 what = byte(in), which = what >> 4;
	u32 lie, ms;

	transport->begin(which & 8 ? byte(in) : 0);
	switch (what & 15) {
	case 0:
	case 1:
	case 2:
		post(byte(in));
		break;
	case 3:
	case 4:
		host_poll((int)which + 1);
		break;
	case 5:
	case 6:
		if (answered < posted)
			answer(in, answered++, 0, 0);
		break;
	case 7:
		for (; answered < posted; answered++)
			answer(in, answered, which & 1 ? answered % 3 : 0, 0);
		break;
	case 8:
		lie = byte(in);
		answered += lie >> 4 & 1;
		answer(in, answered + (which & 3), byte(in) % 14, lie);
		break;
	case 9:
		junk(in);
		break;
	case 10:
	case 11:
		deliver(which & 1 ? SIZE_MAX : some(in, 200));
		break;
	case 12:
		donor_read();
		deaf = which & 1;
		break;
	case 13:
		ms = byte(in) * 40;
		transport->pass(ms);
		waited_ms += ms;
		break;
	case 14:
		if (!ended && which & 1)
			end(byte(in));
		break;
	default:
		drain();
	}
}

int __wrap_poll(struct pollfd *p, nfds_t nr, int ms)
{
	EXPECT(!ms);
	return sockets_poll(p, nr);
}

void stream_run(const struct stream_transport *h, const u8 *data, size_t size)
{
	struct in in = { data, data + size };
	const int room = 4096;
	u32 how;
	int fds[2];

	transport = h;
	memset(ops, 0, sizeof(ops));
	posted = completed = requested = answered = 0;
	deaf = ended = early = false;
	nr_said = nr_delivered = nr_heard = nr_taken = 0;
	waited_ms = 0;
	slab = (struct dcm_slab_ref){ .id = SLAB_ID,
				      .bytes = SLAB_BYTES,
				      .fd = -1 };
	EXPECT(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds));
	donor_fd = fds[1];
	how = byte(&in);
	/* little is taken at a time */
	if (how & 1)
		setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	ep = transport->open(fds[0], 1 + byte(&in) % 32, how >> 1);
	while (in.at < in.end)
		step(&in);
	drain();
	/* what is in flight is forgotten, or completes */
	if (how & 0x80) {
		if (!ended)
			end(1);
		transport->begin(0);
		host_poll((int)OPS);
		/* what can't be sent is given up then, at the latest */
		transport->pass(DCM_WIRE_SILENCE_MS + 1000);
		host_poll((int)OPS);
		host_poll((int)OPS);
		EXPECT(completed == posted && ep->ops->dead(ep));
	}
	ep->ops->close(ep);
	for (; completed < posted; completed++)
		transport->free(ops[completed].io.data,
				ops[completed].io.bytes);
	if (donor_fd >= 0)
		close(donor_fd);
	EXPECT(!sockets_open());
}

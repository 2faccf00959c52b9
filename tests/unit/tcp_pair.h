/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tcp_pair.h - the tcp transport and its peer, for tests of the transport
 *
 * The peer is the other end of a socket pair in the same thread: its messages come
 * at exact points of the test, and nothing is timed.
 */
#ifndef TCP_PAIR_H
#define TCP_PAIR_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../kvm-dcm/proto/wire.h"
#include "../../kvm-dcm/transport/tcp.h"

#define PAGE 4096u
#define SLAB (64u * 65536u)
#define REQ 40u /* the head of a request */
#define ANS 24u /* that of an answer */

static struct dcm_slab_ref slab = { .id = 77, .bytes = SLAB, .fd = -1 };

/**
 * struct pair - the transport and its peer
 * @ep: the transport
 * @peer: the other end of its socket; -1: closed
 */
struct pair {
	struct dcm_endpoint *ep;
	int peer;
};

static inline struct pair pair_open(u32 depth)
{
	struct dcm_tcp_args args = { .depth = depth };
	struct pair p;
	int fds[2], err;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	args.fd = fds[0];
	p.peer = fds[1];
	p.ep = dcm_transport_tcp.open(&args, &err);
	assert_non_null(p.ep);
	return p;
}

static inline void pair_close(struct pair *p)
{
	p->ep->ops->close(p->ep);
	if (p->peer >= 0)
		close(p->peer);
}

static inline void peer_read(struct pair *p, void *buf, size_t len)
{
	size_t got = 0;

	while (got < len) {
		ssize_t n = read(p->peer, (char *)buf + got, len - got);

		assert_true(n > 0);
		got += (size_t)n;
	}
}

/* The peer reads a request; its payload, if it has one, goes to @payload. */
static inline struct dcm_wire_msg peer_request(struct pair *p, u8 *payload)
{
	struct dcm_wire_msg m;
	u8 head[REQ];
	size_t bytes;

	peer_read(p, head, sizeof(head));
	assert_int_equal(dcm_wire_head(head, sizeof(head), DCM_PHASE_DATA,
				       DCM_SIDE_HOST, &m, &bytes),
			 DCM_WIRE_OK);
	assert_int_equal(bytes, REQ);
	assert_int_equal(m.io.slab, 77);
	if (m.payload_bytes)
		peer_read(p, payload, m.payload_bytes);
	return m;
}

/* An answer as bytes, with a payload of @fill if one belongs to it; how many. */
static inline size_t answer(u8 *buf, u16 type, u64 tag, u32 status, u32 bytes,
			    int fill)
{
	struct dcm_wire_msg m = {
		.type = type,
		.tag = tag,
		.io_done = { .status = status, .bytes = bytes },
	};
	int n;

	if (type == DCM_MSG_DATA && !status)
		m.payload_bytes = bytes;
	n = dcm_wire_encode(buf, ANS, &m);
	assert_int_equal(n, ANS);
	memset(buf + n, fill, m.payload_bytes);
	return (size_t)n + m.payload_bytes;
}

static inline void peer_answer(struct pair *p, u16 type, u64 tag, u32 status,
			       u32 bytes, int fill)
{
	static u8 buf[ANS + DCM_WIRE_PAYLOAD_MAX];
	size_t len = answer(buf, type, tag, status, bytes, fill);

	assert_int_equal(send(p->peer, buf, len, 0), len);
}

/* An operation on the slab, with a buffer of its own that is full of @fill. */
static inline struct dcm_io *io_new(enum dcm_io_op op, u64 offset, u32 bytes,
				    int fill)
{
	struct dcm_io *io = calloc(1, sizeof(*io));

	assert_non_null(io);
	io->slab = &slab;
	io->op = op;
	io->offset = offset;
	io->bytes = bytes;
	io->data = malloc(bytes); /* exact: the sanitizer sees the edge */
	assert_non_null(io->data);
	memset(io->data, fill, bytes);
	return io;
}

static inline void io_free(struct dcm_io *io)
{
	free(io->data);
	free(io);
}

static inline bool filled(const struct dcm_io *io, int fill)
{
	u32 i;

	for (i = 0; i < io->bytes; i++)
		if (((u8 *)io->data)[i] != fill)
			return false;
	return true;
}

static inline void post(struct pair *p, struct dcm_io *io)
{
	assert_int_equal(p->ep->ops->post(p->ep, io), 0);
}

/* Take one completion, which must be @io with @status. */
static inline void expect(struct pair *p, struct dcm_io *io, int status)
{
	struct dcm_io *done;

	assert_int_equal(p->ep->ops->poll(p->ep, &done, 1), 1);
	assert_ptr_equal(done, io);
	assert_null(done->next);
	assert_int_equal(done->status, status);
}

static inline void expect_none(struct pair *p)
{
	struct dcm_io *done;

	assert_int_equal(p->ep->ops->poll(p->ep, &done, 64), 0);
	assert_null(done);
}

#endif /* TCP_PAIR_H */

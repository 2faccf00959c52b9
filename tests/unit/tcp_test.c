// SPDX-License-Identifier: GPL-2.0-or-later
/* tcp_test.c - the tcp transport against a peer that tells the truth */
/* links: kvm-dcm/transport/socket.c kvm-dcm/transport/tcp.c kvm-dcm/proto/wire.c */
/* pkg: gnutls */
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tcp_pair.h"

/* A WRITE that is all zero is its head only; what comes behind it is in step. */
static void test_zeroes(void **state)
{
	struct pair p = pair_open(8);
	struct dcm_io *zero = io_new(DCM_IO_WRITE, 0, 16 * PAGE, 0);
	struct dcm_io *other = io_new(DCM_IO_WRITE, 65536, PAGE, 7);
	static u8 payload[65536];
	struct dcm_wire_msg m;

	(void)state;
	zero->zero = true;
	post(&p, zero);
	post(&p, other);
	p.ep->ops->flush(p.ep);
	m = peer_request(&p, payload);
	assert_int_equal(m.type, DCM_MSG_WRITE);
	assert_int_equal(m.io.bytes, 16 * PAGE);
	assert_int_equal(m.payload_bytes, 0);
	m = peer_request(&p, payload);
	assert_int_equal(m.payload_bytes, PAGE);
	assert_int_equal(payload[PAGE - 1], 7);
	peer_answer(&p, DCM_MSG_WRITTEN, 0, 0, 16 * PAGE, 0);
	peer_answer(&p, DCM_MSG_WRITTEN, 1, 0, PAGE, 0);
	expect(&p, zero, 0);
	expect(&p, other, 0);
	io_free(zero);
	io_free(other);
	pair_close(&p);
}

static void test_pipeline(void **state)
{
	struct pair p = pair_open(8);
	struct dcm_io *io[8], *extra = io_new(DCM_IO_READ, 0, PAGE, 0);
	static u8 payload[65536];
	unsigned int i;
	short ev;

	(void)state;
	assert_int_equal(p.ep->ops->wait_fd(p.ep, &ev) >= 0, 1);
	for (i = 0; i < 8; i++) {
		io[i] = io_new(i % 2 ? DCM_IO_WRITE : DCM_IO_READ, i * 65536u,
			       (i + 1) * PAGE, 0x40 + (int)i);
		post(&p, io[i]);
	}
	assert_int_equal(p.ep->ops->post(p.ep, extra), -EAGAIN);
	assert_int_equal(p.ep->ops->in_flight(p.ep), 8);
	p.ep->ops->flush(p.ep);
	for (i = 0; i < 8; i++) {
		struct dcm_wire_msg m = peer_request(&p, payload);
		u32 k;

		assert_int_equal(m.type, i % 2 ? DCM_MSG_WRITE : DCM_MSG_READ);
		assert_int_equal(m.io.offset, i * 65536u);
		assert_int_equal(m.io.bytes, (i + 1) * PAGE);
		assert_int_equal(m.tag, i);
		for (k = 0; i % 2 && k < m.io.bytes; k++)
			assert_int_equal(payload[k], 0x40 + i);
	}
	expect_none(&p);
	for (i = 0; i < 8; i++)
		peer_answer(&p, i % 2 ? DCM_MSG_WRITTEN : DCM_MSG_DATA, i, 0,
			    (i + 1) * PAGE, 0x80 + (int)i);
	for (i = 0; i < 8; i++) {
		expect(&p, io[i], 0);
		assert_true(filled(io[i], (i % 2 ? 0x40 : 0x80) + (int)i));
	}
	assert_int_equal(p.ep->ops->in_flight(p.ep), 0);
	assert_false(p.ep->ops->dead(p.ep));
	for (i = 0; i < 8; i++)
		io_free(io[i]);
	io_free(extra);
	pair_close(&p);
}

static void test_range(void **state)
{
	struct pair p = pair_open(8);
	struct dcm_io *io = io_new(DCM_IO_READ, SLAB - PAGE, 2 * PAGE, 0);

	(void)state;
	assert_int_equal(p.ep->ops->post(p.ep, io), -ERANGE);
	io->offset = U64_MAX - PAGE + 1;
	assert_int_equal(p.ep->ops->post(p.ep, io), -ERANGE);
	io->offset = 0;
	io->bytes = 0;
	assert_int_equal(p.ep->ops->post(p.ep, io), -ERANGE);
	io->bytes = DCM_WIRE_PAYLOAD_MAX + PAGE;
	assert_int_equal(p.ep->ops->post(p.ep, io), -ERANGE);
	assert_int_equal(p.ep->ops->in_flight(p.ep), 0);
	io_free(io);
	pair_close(&p);
}

/* Refusals bring no payload: the payload behind them must land in its own buffer. */
static void test_refusals(void **state)
{
	static const u32 status[6] = {
		0, DCM_WS_NO_SLAB, 0, DCM_WS_RANGE, 0, 0
	};
	static const int want[6] = { 0, -ESTALE, 0, -EIO, 0, 0 };
	unsigned int cut, i;

	(void)state;
	/* all that arrives in one piece, and cut at every odd place */
	for (cut = 1; cut < 3 * PAGE; cut += 509) {
		struct pair p = pair_open(8);
		struct dcm_io *io[6];
		static u8 buf[8 * (ANS + PAGE)];
		size_t len = 0, pos;

		for (i = 0; i < 6; i++) {
			io[i] = io_new(DCM_IO_READ, i * PAGE, PAGE, 1);
			post(&p, io[i]);
		}
		p.ep->ops->flush(p.ep);
		for (i = 0; i < 6; i++) {
			peer_request(&p, NULL);
			len += answer(buf + len, DCM_MSG_DATA, i, status[i],
				      status[i] ? 0 : PAGE, 0x80 + (int)i);
		}
		for (pos = 0, i = 0; pos < len; pos += cut) {
			struct dcm_io *done, *next;
			size_t n = cut < len - pos ? cut : len - pos;

			assert_int_equal(send(p.peer, buf + pos, n, 0), n);
			p.ep->ops->poll(p.ep, &done, 64);
			for (; done; done = next, i++) {
				next = done->next;
				assert_ptr_equal(done, io[i]);
				assert_int_equal(done->status, want[i]);
				if (!want[i])
					assert_true(
						filled(done, 0x80 + (int)i));
			}
		}
		assert_int_equal(i, 6);
		assert_false(p.ep->ops->dead(p.ep));
		for (i = 0; i < 6; i++)
			io_free(io[i]);
		pair_close(&p);
	}
}

/* A reader that takes only @max completions at a time gets all of them. */
static void test_small_polls(void **state)
{
	struct pair p = pair_open(16);
	struct dcm_io *io[12];
	unsigned int i;

	(void)state;
	for (i = 0; i < 12; i++) {
		io[i] = io_new(DCM_IO_READ, 0, PAGE, 0);
		post(&p, io[i]);
	}
	p.ep->ops->flush(p.ep);
	for (i = 0; i < 12; i++) {
		peer_request(&p, NULL);
		peer_answer(&p, DCM_MSG_DATA, i, i % 3 ? 0 : DCM_WS_RANGE,
			    i % 3 ? PAGE : 0, (int)i);
	}
	for (i = 0; i < 12; i++) {
		expect(&p, io[i], i % 3 ? 0 : -EIO);
		if (i % 3)
			assert_true(filled(io[i], (int)i));
	}
	expect_none(&p);
	for (i = 0; i < 12; i++)
		io_free(io[i]);
	pair_close(&p);
}

/* Sent and received a few bytes at a time, through a full socket. */
static void test_partial(void **state)
{
	struct pair p = pair_open(64);
	struct dcm_io *io[32];
	static u8 payload[65536];
	int small = 4096;
	unsigned int i, done_n = 0, asked = 0;
	struct dcm_io *done;
	short ev;
	int fd = p.ep->ops->wait_fd(p.ep, &ev);

	(void)state;
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	setsockopt(p.peer, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	fcntl(p.peer, F_SETFL, O_NONBLOCK);
	for (i = 0; i < 32; i++) {
		io[i] = io_new(DCM_IO_WRITE, i * 65536u, 65536, (int)i);
		post(&p, io[i]);
	}
	p.ep->ops->flush(p.ep);
	p.ep->ops->wait_fd(p.ep, &ev);
	assert_true(ev & POLLOUT);
	while (done_n < 32) {
		static u8 head[REQ];
		static size_t have, body;
		ssize_t n;

		/* the peer reads 1000 bytes at a time and answers whole requests */
		if (have < REQ)
			n = read(p.peer, head + have, REQ - have);
		else
			n = read(p.peer, payload + body,
				 65536 - body < 1000 ? 65536 - body : 1000);
		if (n > 0 && have < REQ)
			have += (size_t)n;
		else if (n > 0)
			body += (size_t)n;
		if (body == 65536) {
			for (i = 0; i < 65536; i++)
				assert_int_equal(payload[i], asked);
			peer_answer(&p, DCM_MSG_WRITTEN, asked++, 0, 65536, 0);
			have = body = 0;
		}
		p.ep->ops->poll(p.ep, &done, 64);
		for (; done; done = done->next) {
			assert_ptr_equal(done, io[done_n++]);
			assert_int_equal(done->status, 0);
		}
	}
	for (i = 0; i < 32; i++)
		io_free(io[i]);
	pair_close(&p);
}

static void test_close(void **state)
{
	unsigned int when;

	(void)state;
	/* at every point of an exchange of two operations */
	for (when = 0; when < 2 * (ANS + PAGE); when += 97) {
		struct pair p = pair_open(8);
		struct dcm_io *a = io_new(DCM_IO_READ, 0, PAGE, 1);
		struct dcm_io *b = io_new(DCM_IO_READ, 0, PAGE, 1);
		static u8 buf[2 * (ANS + PAGE)];
		struct dcm_io *done;
		unsigned int n = 0, polls;
		size_t len;

		post(&p, a);
		post(&p, b);
		p.ep->ops->flush(p.ep);
		peer_request(&p, NULL);
		peer_request(&p, NULL);
		len = answer(buf, DCM_MSG_DATA, 0, 0, PAGE, 0x11);
		answer(buf + len, DCM_MSG_DATA, 1, 0, PAGE, 0x22);
		if (when)
			assert_int_equal(send(p.peer, buf, when, 0), when);
		close(p.peer);
		p.peer = -1;
		/* one poll for the completions that came, one for the end */
		for (polls = 0; p.ep->ops->in_flight(p.ep); polls++) {
			assert_true(polls < 4);
			p.ep->ops->poll(p.ep, &done, 8);
			for (; done; done = done->next)
				n++;
		}
		assert_int_equal(n, 2);
		assert_int_equal(a->status, when >= ANS + PAGE ? 0 : -ENOTCONN);
		assert_int_equal(b->status, -ENOTCONN);
		if (!a->status)
			assert_true(filled(a, 0x11));
		assert_true(p.ep->ops->dead(p.ep));
		io_free(a);
		io_free(b);
		pair_close(&p);
	}
}

static void test_kill_and_error(void **state)
{
	struct pair p = pair_open(8);
	struct dcm_io *a = io_new(DCM_IO_READ, 0, PAGE, 1);
	struct dcm_wire_msg m = { .type = DCM_MSG_ERROR,
				  .error.status = DCM_WS_NO_SESSION };
	u8 head[ANS];

	(void)state;
	post(&p, a);
	p.ep->ops->flush(p.ep);
	p.ep->ops->kill(p.ep);
	expect(&p, a, -ENOTCONN);
	assert_true(p.ep->ops->dead(p.ep));
	pair_close(&p);

	p = pair_open(8);
	post(&p, a);
	p.ep->ops->flush(p.ep);
	assert_int_equal(dcm_wire_encode(head, sizeof(head), &m), ANS);
	assert_int_equal(send(p.peer, head, ANS, 0), ANS);
	expect(&p, a, -ENOTCONN);
	assert_string_equal(p.ep->ops->why(p.ep),
			    dcm_wire_status_text(DCM_WS_NO_SESSION));
	pair_close(&p);
	io_free(a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_zeroes),
		cmocka_unit_test(test_pipeline),
		cmocka_unit_test(test_range),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_small_polls),
		cmocka_unit_test(test_partial),
		cmocka_unit_test(test_close),
		cmocka_unit_test(test_kill_and_error),
	};

	return cmocka_run_group_tests_name("tcp", tests, NULL, NULL);
}

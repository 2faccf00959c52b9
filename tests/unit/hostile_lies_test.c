// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * hostile_lies_test.c - WRITEs that the hostile transport does late, and donors
 * that lie behind it
 *
 * In front of a tcp endpoint, whose peer is the test.
 */
/* links: kvm-dcm/transport/hostile.c kvm-dcm/transport/socket.c kvm-dcm/transport/tcp.c kvm-dcm/proto/wire.c */
/* pkg: gnutls */
#include <poll.h>

#include "../../kvm-dcm/transport/hostile.h"
#include "tcp_pair.h"

#define ALWAYS 1000000u

static u8 payload[65536];

static struct pair hostile_pair(struct dcm_hostile *dials)
{
	struct pair p = pair_open(8);
	struct dcm_hostile_args args = { .inner = p.ep,
					 .dials = dials,
					 .seed = 7 };
	int err;

	p.ep = dcm_transport_hostile.open(&args, &err);
	assert_non_null(p.ep);
	return p;
}

/* Wait for an operation; its status. */
static int end_of(struct pair *p, struct dcm_io *io)
{
	struct dcm_io *done = NULL;
	struct pollfd fd;
	short events;

	p->ep->ops->flush(p->ep);
	while (!p->ep->ops->poll(p->ep, &done, 1)) {
		fd.fd = p->ep->ops->wait_fd(p->ep, &events);
		fd.events = events;
		assert_true(poll(&fd, 1, 10000) > 0);
	}
	assert_ptr_equal(done, io);
	assert_null(done->next);
	return done->status;
}

static bool peer_hears_nothing(const struct pair *p)
{
	struct pollfd fd = { .fd = p->peer, .events = POLLIN };

	return !poll(&fd, 1, 0);
}

/* The other end has closed its socket. */
static void peer_sees_end(const struct pair *p)
{
	char c;

	assert_int_equal(read(p->peer, &c, 1), 0);
}

/* It is done after all was said to have failed, with the bytes that it had. */
static void test_late(void **state)
{
	static struct dcm_hostile dials = { .late_ns = 3000000 };
	struct pair p = hostile_pair(&dials);
	struct dcm_io *io = io_new(DCM_IO_WRITE, 8 * PAGE, 16 * PAGE, 7);
	struct dcm_wire_msg m;

	(void)state;
	dials.ppm[DCM_HOSTILE_LATE] = ALWAYS;
	post(&p, io);
	assert_int_equal(p.ep->ops->post(p.ep, io), -EAGAIN);
	assert_int_equal(end_of(&p, io), -ENOTCONN);
	assert_true(p.ep->ops->dead(p.ep));
	assert_true(peer_hears_nothing(&p));
	io_free(io); /* its poster uses the memory again */
	p.ep->ops->close(p.ep);
	m = peer_request(&p, payload);
	assert_int_equal(m.type, DCM_MSG_WRITE);
	assert_int_equal(m.io.offset, 8 * PAGE);
	assert_int_equal(m.payload_bytes, 16 * PAGE);
	for (u32 i = 0; i < 16 * PAGE; i++)
		assert_int_equal(payload[i], 7);
	peer_answer(&p, DCM_MSG_WRITTEN, m.tag, 0, 16 * PAGE, 0);
	peer_sees_end(&p);
	assert_int_equal(READ_ONCE(dials.late_done), 1);
	close(p.peer);
}

/* Operations in flight beside it end as usual before the endpoint dies. */
static void test_late_beside_others(void **state)
{
	static struct dcm_hostile dials;
	struct pair p = hostile_pair(&dials);
	struct dcm_io *first = io_new(DCM_IO_READ, 0, PAGE, 0);
	struct dcm_io *late = io_new(DCM_IO_WRITE, PAGE, PAGE, 7);
	struct dcm_wire_msg m;

	(void)state;
	post(&p, first);
	dials.ppm[DCM_HOSTILE_LATE] = ALWAYS;
	post(&p, late);
	p.ep->ops->flush(p.ep);
	m = peer_request(&p, payload);
	assert_int_equal(m.type, DCM_MSG_READ);
	assert_false(p.ep->ops->dead(p.ep));
	peer_answer(&p, DCM_MSG_DATA, m.tag, 0, PAGE, 5);
	assert_int_equal(end_of(&p, first), 0);
	assert_true(filled(first, 5));
	assert_int_equal(end_of(&p, late), -ENOTCONN);
	assert_true(p.ep->ops->dead(p.ep));
	io_free(first);
	io_free(late);
	/* the donor has ended the connection: it was fenced off */
	shutdown(p.peer, SHUT_WR);
	p.ep->ops->close(p.ep);
	m = peer_request(&p, payload);
	assert_int_equal(m.type, DCM_MSG_WRITE);
	peer_sees_end(&p);
	assert_int_equal(READ_ONCE(dials.late_done), 0);
	close(p.peer);
}

static void test_flip(void **state)
{
	struct dcm_hostile dials = { .ppm[DCM_HOSTILE_FLIP] = ALWAYS };
	struct pair p = hostile_pair(&dials);
	struct dcm_io *io = io_new(DCM_IO_READ, 0, 4 * PAGE, 0);
	struct dcm_wire_msg m;
	u32 bits = 0;

	(void)state;
	post(&p, io);
	p.ep->ops->flush(p.ep);
	m = peer_request(&p, payload);
	peer_answer(&p, DCM_MSG_DATA, m.tag, 0, 4 * PAGE, 0x5a);
	assert_int_equal(end_of(&p, io), 0);
	for (u32 i = 0; i < io->bytes; i++)
		bits += (u32)__builtin_popcount(((u8 *)io->data)[i] ^ 0x5a);
	assert_int_equal(bits, 1);
	assert_int_equal(READ_ONCE(dials.count[DCM_HOSTILE_FLIP]), 1);
	io_free(io);
	pair_close(&p);
}

static void test_swap(void **state)
{
	struct dcm_hostile dials = { .ppm[DCM_HOSTILE_SWAP] = ALWAYS };
	struct pair p = hostile_pair(&dials);
	struct dcm_wire_msg m;

	(void)state;
	for (u32 i = 0; i < 200; i++) {
		u32 bytes = (i % 16 + 1) * PAGE;
		u64 at = i % 3 ? i * PAGE : i % 2 ? SLAB - bytes : 0;
		struct dcm_io *io = io_new(DCM_IO_READ, at, bytes, 0);

		post(&p, io);
		p.ep->ops->flush(p.ep);
		m = peer_request(&p, payload);
		assert_int_not_equal(m.io.offset, at);
		assert_int_equal(m.io.offset % PAGE, 0);
		assert_true(m.io.offset + bytes <= SLAB);
		peer_answer(&p, DCM_MSG_DATA, m.tag, 0, bytes, 9);
		assert_int_equal(end_of(&p, io), 0);
		assert_true(filled(io, 9));
		io_free(io);
	}
	pair_close(&p);
}

static void test_old(void **state)
{
	struct dcm_hostile dials = { .ppm[DCM_HOSTILE_OLD] = ALWAYS };
	struct pair p = hostile_pair(&dials);
	struct dcm_io *io = io_new(DCM_IO_WRITE, 0, PAGE, 3);

	(void)state;
	post(&p, io);
	assert_int_equal(end_of(&p, io), 0);
	assert_true(peer_hears_nothing(&p));
	assert_int_equal(READ_ONCE(dials.count[DCM_HOSTILE_OLD]), 1);
	io_free(io);
	pair_close(&p);
}

/* Other donors' pages are as they are. */
static void test_others_do_not_lie(void **state)
{
	struct dcm_hostile dials = { .ppm[DCM_HOSTILE_FLIP] = ALWAYS,
				     .ppm[DCM_HOSTILE_SWAP] = ALWAYS,
				     .ppm[DCM_HOSTILE_OLD] = ALWAYS,
				     .liar = 1 };
	struct pair p = hostile_pair(&dials);
	struct dcm_io *io = io_new(DCM_IO_WRITE, PAGE, PAGE, 3);
	struct dcm_wire_msg m;

	(void)state;
	post(&p, io);
	p.ep->ops->flush(p.ep);
	m = peer_request(&p, payload);
	peer_answer(&p, DCM_MSG_WRITTEN, m.tag, 0, PAGE, 0);
	assert_int_equal(end_of(&p, io), 0);
	io_free(io);
	io = io_new(DCM_IO_READ, PAGE, PAGE, 0);
	post(&p, io);
	p.ep->ops->flush(p.ep);
	m = peer_request(&p, payload);
	assert_int_equal(m.io.offset, PAGE);
	peer_answer(&p, DCM_MSG_DATA, m.tag, 0, PAGE, 4);
	assert_int_equal(end_of(&p, io), 0);
	assert_true(filled(io, 4));
	for (u32 i = 0; i < DCM_HOSTILE_NR; i++)
		assert_int_equal(READ_ONCE(dials.count[i]), 0);
	io_free(io);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_late),
		cmocka_unit_test(test_late_beside_others),
		cmocka_unit_test(test_flip),
		cmocka_unit_test(test_swap),
		cmocka_unit_test(test_old),
		cmocka_unit_test(test_others_do_not_lie),
	};

	return cmocka_run_group_tests_name("hostile lies", tests, NULL, NULL);
}

// SPDX-License-Identifier: GPL-2.0-or-later
/* tcp_liar_test.c - the tcp transport against a peer that lies */
/* links: kvm-dcm/transport/socket.c kvm-dcm/transport/tcp.c kvm-dcm/proto/wire.c */
/* pkg: gnutls */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tcp_pair.h"

enum lie {
	LIE_TAG,
	LIE_TYPE,
	LIE_LONG,
	LIE_SHORT,
	LIE_MAGIC,
	LIE_HUGE,
	LIE_UNKNOWN,
	LIE_WRITTEN_SHORT,
	LIE_NR
};

static void test_lies(void **state)
{
	int lie;

	(void)state;
	for (lie = 0; lie < LIE_NR; lie++) {
		struct pair p = pair_open(8);
		struct dcm_io *a = io_new(DCM_IO_READ, 0, PAGE, 1);
		struct dcm_io *b = io_new(DCM_IO_WRITE, 0, PAGE, 1);
		static u8 buf[ANS + 65536];
		struct dcm_io *done;
		size_t len;

		if (lie == LIE_WRITTEN_SHORT) {
			struct dcm_io *t = a;

			a = b;
			b = t;
		}
		post(&p, a);
		post(&p, b);
		p.ep->ops->flush(p.ep);
		len = answer(buf, DCM_MSG_DATA, lie == LIE_TAG ? 1 : 0, 0,
			     lie == LIE_LONG  ? 2 * PAGE :
			     lie == LIE_SHORT ? 2048 :
						PAGE,
			     0xff);
		if (lie == LIE_TYPE)
			len = answer(buf, DCM_MSG_WRITTEN, 0, 0, PAGE, 0);
		if (lie == LIE_WRITTEN_SHORT)
			len = answer(buf, DCM_MSG_WRITTEN, 0, 0, PAGE / 2, 0);
		if (lie == LIE_MAGIC)
			buf[0] ^= 1;
		if (lie == LIE_HUGE)
			memset(buf + 4, 0xff, 4);
		if (lie == LIE_UNKNOWN)
			buf[2] = 200;
		assert_int_equal(send(p.peer, buf, len, 0), len);
		assert_int_equal(p.ep->ops->poll(p.ep, &done, 8), 2);
		assert_ptr_equal(done, a);
		assert_ptr_equal(done->next, b);
		/* a liar may have done them, or may do them yet */
		assert_int_equal(a->status, -ENOTCONN);
		assert_int_equal(b->status, -ENOTCONN);
		assert_true(p.ep->ops->dead(p.ep));
		assert_true(p.ep->ops->why(p.ep)[0]);
		assert_int_equal(p.ep->ops->post(p.ep, a), -ENOTCONN);
		assert_int_equal(p.ep->ops->in_flight(p.ep), 0);
		expect_none(&p);
		io_free(a);
		io_free(b);
		pair_close(&p);
	}
}

/* A lie that follows a refusal in the same packet, and junk after the last. */
static void test_unasked(void **state)
{
	struct pair p = pair_open(8);
	struct dcm_io *a = io_new(DCM_IO_READ, 0, PAGE, 1);
	static u8 buf[4 * ANS];
	struct dcm_io *done;
	size_t len;

	(void)state;
	post(&p, a);
	p.ep->ops->flush(p.ep);
	len = answer(buf, DCM_MSG_DATA, 0, DCM_WS_RANGE, 0, 0);
	len += answer(buf + len, DCM_MSG_DATA, 1, DCM_WS_RANGE, 0, 0);
	assert_int_equal(send(p.peer, buf, len, 0), len);
	assert_int_equal(p.ep->ops->poll(p.ep, &done, 8), 1);
	assert_int_equal(a->status, -EIO);
	p.ep->ops->poll(p.ep, &done, 8);
	assert_true(p.ep->ops->dead(p.ep));
	io_free(a);
	pair_close(&p);

	/* before anything was asked */
	p = pair_open(8);
	assert_int_equal(send(p.peer, buf, ANS, 0), ANS);
	expect_none(&p);
	assert_true(p.ep->ops->dead(p.ep));
	pair_close(&p);
}

/* Random chatter: whatever comes, no byte outside the buffers is touched. */
static void test_noise(void **state)
{
	unsigned int round, i;
	u64 rng = 88172645463325252ull;

	(void)state;
	for (round = 0; round < 3000; round++) {
		struct pair p = pair_open(8);
		struct dcm_io *io[4];
		static u8 buf[4 * (ANS + PAGE)];
		struct dcm_io *done;
		size_t len = 0;

		for (i = 0; i < 4; i++) {
			rng ^= rng << 13;
			rng ^= rng >> 7;
			rng ^= rng << 17;
			io[i] = io_new(rng & 1 ? DCM_IO_READ : DCM_IO_WRITE, 0,
				       PAGE, 1);
			post(&p, io[i]);
			len += answer(buf + len,
				      rng & 1 ? DCM_MSG_DATA : DCM_MSG_WRITTEN,
				      i, rng & 2 ? 0 : DCM_WS_RANGE,
				      rng & 2 ? PAGE : 0, 9);
		}
		/* flip a few bits, anywhere in heads most of the time */
		for (i = 0; i < 3; i++) {
			rng ^= rng << 13;
			rng ^= rng >> 7;
			rng ^= rng << 17;
			buf[(rng >> 8) % (rng & 4 ? ANS : len)] ^=
				(u8)(1u << (rng & 7));
		}
		p.ep->ops->flush(p.ep);
		assert_int_equal(send(p.peer, buf, len, 0), len);
		close(p.peer);
		p.peer = -1;
		for (i = 0; p.ep->ops->in_flight(p.ep); i++) {
			assert_true(i < 10);
			p.ep->ops->poll(p.ep, &done, 4);
		}
		for (i = 0; i < 4; i++)
			io_free(io[i]);
		pair_close(&p);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lies),
		cmocka_unit_test(test_unasked),
		cmocka_unit_test(test_noise),
	};

	return cmocka_run_group_tests_name("tcp_liar", tests, NULL, NULL);
}

// SPDX-License-Identifier: GPL-2.0-or-later
/* tcp_calls_test.c - how many system calls the tcp transport makes, plain and under TLS */
/* links: kvm-dcm/transport/socket.c kvm-dcm/transport/tcp.c kvm-dcm/proto/wire.c kvm-dcm/lib/tls.c */
/* libs: -Wl,--wrap=recv,--wrap=recvmsg,--wrap=sendmsg */
/* pkg: gnutls */
/* threads: one */
#include <gnutls/gnutls.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../kvm-dcm/lib/tls.h"
#include "tcp_pair.h"

static const u8 key[16] = { 7, 11, 13 };
static unsigned int received, sent;

ssize_t __real_recv(int fd, void *buf, size_t len, int flags);
ssize_t __wrap_recv(int fd, void *buf, size_t len, int flags);
ssize_t __real_recvmsg(int fd, struct msghdr *msg, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags);
ssize_t __real_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags);

ssize_t __wrap_recv(int fd, void *buf, size_t len, int flags)
{
	received++;
	return __real_recv(fd, buf, len, flags);
}

ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags)
{
	received++;
	return __real_recvmsg(fd, msg, flags);
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	sent++;
	return __real_sendmsg(fd, msg, flags);
}

/* ---- a pair under TLS ---- */

/**
 * struct tls_pair - the transport and its peer
 * @peer: the peer's session, %NULL: plain
 */
struct tls_pair {
	struct pair p;
	struct dcm_tls tls;
	gnutls_psk_server_credentials_t cred;
	gnutls_session_t peer;
};

static int key_of(gnutls_session_t s, const char *name, gnutls_datum_t *k)
{
	(void)s;
	assert_string_equal(name, "tenant");
	k->data = gnutls_malloc(sizeof(key));
	assert_non_null(k->data);
	memcpy(k->data, key, sizeof(key));
	k->size = sizeof(key);
	return 0;
}

static void tls_open(struct tls_pair *t)
{
	struct dcm_tcp_args args = { .depth = 128 };
	int fds[2], err, a = GNUTLS_E_AGAIN, b = a;
	gnutls_session_t host;

	memset(t, 0, sizeof(*t));
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0,
				    fds),
			 0);
	assert_int_equal(dcm_tls_init(&t->tls, "tenant", key, sizeof(key)), 0);
	assert_int_equal(dcm_tls_session(&t->tls, fds[0], &host), 0);
	gnutls_psk_allocate_server_credentials(&t->cred);
	gnutls_psk_set_server_credentials_function(t->cred, key_of);
	gnutls_init(&t->peer,
		    GNUTLS_SERVER | GNUTLS_NONBLOCK | GNUTLS_NO_TICKETS);
	gnutls_priority_set_direct(
		t->peer, "NORMAL:-VERS-ALL:+VERS-TLS1.3:+ECDHE-PSK:+DHE-PSK",
		NULL);
	gnutls_credentials_set(t->peer, GNUTLS_CRD_PSK, t->cred);
	gnutls_transport_set_int(t->peer, fds[1]);
	do {
		a = a ? gnutls_handshake(host) : 0;
		b = b ? gnutls_handshake(t->peer) : 0;
		assert_true((!a || a == GNUTLS_E_AGAIN) &&
			    (!b || b == GNUTLS_E_AGAIN));
	} while (a || b);
	args.fd = fds[0];
	args.tls = host;
	t->p.peer = fds[1];
	t->p.ep = dcm_transport_tcp.open(&args, &err);
	assert_non_null(t->p.ep);
}

static void tls_close(struct tls_pair *t)
{
	pair_close(&t->p);
	gnutls_deinit(t->peer);
	gnutls_psk_free_server_credentials(t->cred);
	dcm_tls_exit(&t->tls);
}

/* All requests that the transport has sent are read, and not looked at. */
static void peer_drain(struct tls_pair *t)
{
	static u8 buf[16384];

	if (!t->peer) {
		while (recv(t->p.peer, buf, sizeof(buf), MSG_DONTWAIT) > 0)
			;
		return;
	}
	while (gnutls_record_recv(t->peer, buf, sizeof(buf)) > 0)
		;
}

static void peer_say(struct tls_pair *t, const u8 *buf, size_t len)
{
	if (!t->peer) {
		assert_int_equal(send(t->p.peer, buf, len, 0), len);
		return;
	}
	while (len) {
		ssize_t n = gnutls_record_send(t->peer, buf, len);

		assert_true(n > 0);
		buf += n;
		len -= (size_t)n;
	}
}

/* ---- tests ---- */

/* Calls that @nr READs of @bytes take, one after another. */
static void reads(struct tls_pair *t, unsigned int nr, u32 bytes)
{
	static u8 buf[ANS + DCM_WIRE_PAYLOAD_MAX];
	struct dcm_io *io = io_new(DCM_IO_READ, 0, bytes, 0), *done;
	unsigned int i, s = 0, r = 0;
	int n;

	for (i = 0; i < nr; i++) {
		sent = 0;
		post(&t->p, io);
		t->p.ep->ops->flush(t->p.ep);
		s += sent;
		peer_drain(t);
		peer_say(t, buf, answer(buf, DCM_MSG_DATA, i, 0, bytes, 9));
		received = 0;
		do {
			n = t->p.ep->ops->poll(t->p.ep, &done, 16);
		} while (!n);
		assert_int_equal(n, 1);
		r += received;
		assert_ptr_equal(done, io);
		assert_int_equal(done->status, 0);
		assert_true(filled(io, 9));
	}
	io_free(io);
	sent = s;
	received = r;
}

/* A fault waits for each: one call to ask, one for the answer. */
static void test_read_of_a_page_takes_two_calls(void **state)
{
	struct tls_pair t = { .p = pair_open(8) };

	(void)state;
	reads(&t, 100, PAGE);
	assert_int_equal(sent, 100);
	assert_int_equal(received, 100);
	pair_close(&t.p);

	tls_open(&t);
	reads(&t, 100, PAGE);
	assert_int_equal(received, 100);
	tls_close(&t);
}

/* A block of 64 KiB is five records: two calls each, as GnuTLS itself needs. */
static void
test_large_read_takes_no_more_than_without_reading_ahead(void **state)
{
	struct tls_pair t;

	(void)state;
	tls_open(&t);
	reads(&t, 20, 16 * PAGE);
	assert_in_range(received, 20, 20 * 5 * 2);
	tls_close(&t);
}

/*
 * Bytes that were read ahead wake nobody up: what poll() leaves when it returns less
 * than it may would wait for ever.
 */
static void test_answers_that_came_together_are_all_taken(void **state)
{
	static u8 buf[100 * (ANS + 2 * PAGE)];
	struct dcm_io *io[100], *done;
	struct tls_pair t;
	unsigned int round, i;
	size_t len;

	(void)state;
	tls_open(&t);
	for (round = 0; round < 3; round++) {
		unsigned int got = 0;
		int n;

		for (i = 0, len = 0; i < 100; i++) {
			io[i] = io_new(i % 5 ? DCM_IO_WRITE : DCM_IO_READ,
				       i * PAGE, i % 3 ? PAGE : 2 * PAGE, 1);
			io[i]->zero = i % 5;
			post(&t.p, io[i]);
			len += answer(buf + len,
				      i % 5 ? DCM_MSG_WRITTEN : DCM_MSG_DATA,
				      round * 100 + i, 0, io[i]->bytes, 9);
		}
		t.p.ep->ops->flush(t.p.ep);
		peer_drain(&t);
		peer_say(&t, buf, len);
		do {
			n = t.p.ep->ops->poll(t.p.ep, &done, 16);
			assert_true(n >= 0);
			got += (unsigned int)n;
		} while (n == 16);
		assert_int_equal(got, 100);
		for (i = 0; i < 100; i++) {
			assert_int_equal(io[i]->status, 0);
			assert_true(filled(io[i], i % 5 ? 1 : 9));
			io_free(io[i]);
		}
	}
	expect_none(&t.p);
	assert_false(t.p.ep->ops->dead(t.p.ep));
	tls_close(&t);
}

/* The end comes behind an answer, in the same bytes: the answer counts. */
static void test_end_behind_an_answer(void **state)
{
	static u8 buf[ANS + PAGE];
	struct dcm_io *io = io_new(DCM_IO_READ, 0, PAGE, 0);
	struct tls_pair t;

	(void)state;
	tls_open(&t);
	post(&t.p, io);
	t.p.ep->ops->flush(t.p.ep);
	peer_drain(&t);
	peer_say(&t, buf, answer(buf, DCM_MSG_DATA, 0, 0, PAGE, 9));
	gnutls_bye(t.peer, GNUTLS_SHUT_WR);
	shutdown(t.p.peer, SHUT_WR);
	expect(&t.p, io, 0);
	assert_true(filled(io, 9));
	expect_none(&t.p);
	assert_true(t.p.ep->ops->dead(t.p.ep));
	io_free(io);
	tls_close(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_read_of_a_page_takes_two_calls),
		cmocka_unit_test(
			test_large_read_takes_no_more_than_without_reading_ahead),
		cmocka_unit_test(test_answers_that_came_together_are_all_taken),
		cmocka_unit_test(test_end_behind_an_answer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: GPL-2.0-or-later
/* links: kvm-dcm/hostd/link.c kvm-dcm/proto/wire.c */
/*
 * hostd_link_test.c - dcm-hostd's log lines about connections that can't be encrypted
 *
 * The connection is a real socket; the kernel's answer to "encrypt this" is the
 * test's.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "hostd/hostd.h"
#include "hostd/ktls.h"
#include "transport/tcp.h"

static int answer; /* of the kernel */
static unsigned int lines; /* logged */

int dcm_ktls_start(gnutls_session_t tls, int fd)
{
	assert_non_null(tls);
	assert_true(fd >= 0);
	return answer;
}

void dcm_log(enum dcm_log_level level, const char *fmt, ...)
{
	assert_int_equal(level, DCM_LOG_ERR);
	assert_non_null(strstr(fmt, "can't encrypt"));
	lines++;
}

bool dcm_log_allow(struct dcm_log_rate *rate, uint64_t now, uint64_t every_ms)
{
	(void)rate;
	(void)now;
	assert_true(every_ms > 0);
	return true;
}

u64 hostd_now_ns(void)
{
	return 1;
}

void dcm_client_lane_look(struct dcm_client *client, u32 lane)
{
	(void)client;
	(void)lane;
	fail();
}

void gnutls_deinit(gnutls_session_t tls)
{
	(void)tls;
	fail(); /* a session that the kernel did not take over is the caller's */
}

/* Offer the kernel a connection that it answers with @err; the number of log lines. */
static unsigned int offer(int err)
{
	struct hostd_file f = { .fd = -1, .path = (char *)"file" };
	struct dcm_tcp_args args = { .tls = (void *)&f, .depth = 1 };
	int fd[2], got = 0;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
	args.fd = fd[0];
	answer = err;
	lines = 0;
	assert_null(hostd_links.data(&f.slabs, 0, 0, &args, &got));
	assert_int_equal(got, err);
	close(fd[0]);
	close(fd[1]);
	return lines;
}

static void test_a_donor_that_hung_up_is_no_kernel_without_tls(void **state)
{
	(void)state;
	assert_int_equal(offer(-ENOENT), 1);
	assert_int_equal(offer(-EOPNOTSUPP), 1);
	assert_int_equal(offer(-ENOTCONN), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_a_donor_that_hung_up_is_no_kernel_without_tls),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * liar_test.c - the control plane against a donor that has the key and lies
 *
 * The donor is a thread with a GnuTLS server that follows one script a test.
 * Whatever the donor sends, the host must not crash, must not attach a slab that it
 * did not ask for, must leak no descriptor, and must log one line with the error.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <gnutls/gnutls.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "../../kvm-dcm/proto/wire.h"
#include "../../kvm-dcm/client/client.h"
#include "../../kvm-dcm/lib/log.h"

#define SLAB (2u << 20)
#define PRIORITY                                                   \
	"NONE:+VERS-TLS1.3:+AES-128-GCM:+CHACHA20-POLY1305:+AEAD:" \
	"+ECDHE-PSK:+DHE-PSK:+GROUP-X25519:+GROUP-SECP256R1:+SIGN-ALL"

static const u8 key[16] = { 1, 2,  3,  4,  5,  6,  7,  8,
			    9, 10, 11, 12, 13, 14, 15, 16 };

/* The donor's behaviour; see serve(). */
enum script {
	HONEST,
	NO_SESSION_ID,
	ODD_SLABS,
	VAST_SLABS,
	OTHER_VERSION,
	NO_DEPTH,
	DATA_ON_CONTROL,
	JUNK,
	FLOOD,
	HUGE_FIGURES,
	EVICT_UNKNOWN,
	DONE_UNKNOWN,
	ERROR_UNKNOWN,
	MR_UNASKED,
	MR_NO_FD,
	MR_SHORT_FD,
	MR_UNSEALED,
	MR_NO_MEMFD,
	MR_READ_ONLY,
	MR_MANY_FDS,
	MR_VERBS,
	MR_OTHER_BYTES,
	MR_SAME_ID,
	VERBS_UNASKED,
	TICKET_UNASKED,
	NR_SCRIPTS
};

/* The text that must be in the log; NULL: the donor stays in use. */
static const char *const says[NR_SCRIPTS] = {
	[NO_SESSION_ID] = "answers HELLO with an invalid message",
	[ODD_SLABS] = "says its slabs have",
	[VAST_SLABS] = "says its slabs have",
	[OTHER_VERSION] = "answers HELLO with an invalid message",
	[NO_DEPTH] = "answers HELLO with an invalid message",
	[DATA_ON_CONTROL] = "speaks another protocol",
	[JUNK] = "speaks another protocol",
	[MR_NO_FD] = "no descriptor with a slab",
	[MR_SHORT_FD] = "another size than the slab",
	[MR_UNSEALED] = "not sealed against growing",
	[MR_NO_MEMFD] = "is no memfd",
	[MR_READ_ONLY] = "can't be written",
	[MR_MANY_FDS] = "descriptor lost",
	[MR_VERBS] = "slab that we did not ask for",
	[MR_OTHER_BYTES] = "slab that we did not ask for",
	[MR_SAME_ID] = "slab that we did not ask for",
	[TICKET_UNASKED] = "a ticket that nobody asked for",
};

struct liar {
	pthread_t thread;
	enum script script;
	int listen;
	int conn;
	bool stop;
	gnutls_psk_server_credentials_t cred;
	gnutls_session_t tls;
	int pass[16];
	int nr_pass;
	unsigned int unmaps;
	unsigned int dones;
	u64 done_tag;
	u64 slab;
};

static char dir[] = "/tmp/dcm-liar-XXXXXX";
static char sock_path[64];
static unsigned int attached, losts;

static void on_attached(void *arg, u32 extent, struct dcm_client_slab *slab)
{
	(void)arg;
	(void)extent;
	(void)slab;
	__atomic_add_fetch(&attached, 1, __ATOMIC_SEQ_CST);
}

static void on_evict(void *arg, struct dcm_client_slab *slab)
{
	(void)arg;
	(void)slab;
	fail_msg("nothing of ours was asked back");
}

static void on_lost(void *arg, struct dcm_client_slab *slab,
		    const struct dcm_host_donor *donor)
{
	(void)arg;
	(void)slab;
	(void)donor;
	__atomic_add_fetch(&losts, 1, __ATOMIC_SEQ_CST);
}

static void on_starved(void *arg, u32 extent)
{
	(void)arg;
	(void)extent;
}

static const struct dcm_client_ops ops = {
	.attached = on_attached,
	.evict = on_evict,
	.lost = on_lost,
	.starved = on_starved,
};

static int psk(gnutls_session_t s, const char *name, gnutls_datum_t *k)
{
	(void)s;
	(void)name;
	k->data = gnutls_malloc(sizeof(key));
	memcpy(k->data, key, sizeof(key));
	k->size = sizeof(key);
	return 0;
}

/* Bytes out, with descriptors if some are to be passed. */
static ssize_t push(gnutls_transport_ptr_t ptr, const void *buf, size_t len)
{
	struct liar *l = ptr;
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(16 * sizeof(int))];
	} c;
	struct iovec iov = { (void *)buf, len };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *cm;

	if (l->nr_pass) {
		m.msg_control = c.buf;
		m.msg_controllen = CMSG_SPACE((size_t)l->nr_pass * sizeof(int));
		memset(&c, 0, sizeof(c));
		cm = CMSG_FIRSTHDR(&m);
		cm->cmsg_level = SOL_SOCKET;
		cm->cmsg_type = SCM_RIGHTS;
		cm->cmsg_len = CMSG_LEN((size_t)l->nr_pass * sizeof(int));
		memcpy(CMSG_DATA(cm), l->pass,
		       (size_t)l->nr_pass * sizeof(int));
		l->nr_pass = 0;
	}
	return sendmsg(l->conn, &m, MSG_NOSIGNAL);
}

static ssize_t pull(gnutls_transport_ptr_t ptr, void *buf, size_t len)
{
	return recv(((struct liar *)ptr)->conn, buf, len, 0);
}

static void say(struct liar *l, const struct dcm_wire_msg *m)
{
	u8 buf[DCM_WIRE_HEAD_MAX + 4096];
	int n = dcm_wire_encode(buf, sizeof(buf), m);

	memset(buf + n, 0x55, m->payload_bytes);
	gnutls_record_send(l->tls, buf, (size_t)n + m->payload_bytes);
}

static bool hear(struct liar *l, enum dcm_wire_phase phase,
		 struct dcm_wire_msg *m)
{
	u8 buf[DCM_WIRE_HEAD_MAX];
	size_t len = 0, need;
	ssize_t n;

	while (dcm_wire_head(buf, len, phase, DCM_SIDE_HOST, m, &need) ==
	       DCM_WIRE_MORE) {
		n = gnutls_record_recv(l->tls, buf + len, need);
		if (n == GNUTLS_E_INTERRUPTED)
			continue;
		if (n <= 0)
			return false;
		len += (size_t)n;
	}
	return true;
}

static int memfd(size_t bytes, int seals)
{
	int fd = memfd_create("liar", MFD_ALLOW_SEALING | MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, (off_t)bytes) ||
	    (seals && fcntl(fd, F_ADD_SEALS, seals)))
		abort();
	return fd;
}

static void lend(struct liar *l, u64 tag)
{
	struct dcm_wire_msg m = {
		.type = DCM_MSG_MR_INFO,
		.tag = tag,
		.mr_info = { .slab = ++l->slab,
			     .bytes = SLAB,
			     .transport = DCM_WT_SHM },
	};
	int fd = -1, more[16], n = 1, i;
	char path[64];

	switch (l->script) {
	case MR_NO_FD:
		n = 0;
		break;
	case MR_SHORT_FD:
		fd = memfd(SLAB / 2, F_SEAL_GROW | F_SEAL_SEAL);
		break;
	case MR_UNSEALED:
		fd = memfd(SLAB, 0);
		break;
	case MR_NO_MEMFD:
		fd = open("/dev/zero", O_RDWR | O_CLOEXEC);
		break;
	case MR_READ_ONLY:
		i = memfd(SLAB, F_SEAL_GROW | F_SEAL_SEAL);
		snprintf(path, sizeof(path), "/proc/self/fd/%d", i);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		close(i);
		break;
	case MR_VERBS:
		m.mr_info.transport = DCM_WT_VERBS;
		n = 0;
		break;
	case MR_OTHER_BYTES:
		m.mr_info.bytes = U64_MAX & ~4095ull;
		break;
	case MR_SAME_ID:
		m.mr_info.slab = 7;
		break;
	case MR_MANY_FDS:
		n = 12;
		break;
	default:
		break;
	}
	if (n && fd < 0)
		fd = memfd(SLAB, F_SEAL_GROW | F_SEAL_SEAL);
	for (i = 0; i < n; i++)
		more[i] = l->pass[i] = fd;
	l->nr_pass = n;
	say(l, &m);
	if (n)
		close(more[0]);
}

static void figures(struct liar *l, u64 tag)
{
	struct dcm_wire_msg m = {
		.type = DCM_MSG_FREE_MEM,
		.tag = tag,
		.free_mem = { .slabs_free = 4,
			      .slabs_total = 8,
			      .slab_bytes = SLAB,
			      .used_bytes = SLAB },
	};

	if (l->script == HUGE_FIGURES) {
		m.free_mem.slabs_total = U64_MAX;
		m.free_mem.slabs_free = U64_MAX;
		m.free_mem.used_bytes = U64_MAX;
		m.free_mem.slab_bytes = 0;
		m.free_mem.flags = ~DCM_FREE_DRAINING;
	}
	say(l, &m);
}

static void lies_at_once(struct liar *l)
{
	struct dcm_wire_msg m = { .type = DCM_MSG_HEARTBEAT };
	u8 junk[333];
	int i;

	switch (l->script) {
	case DATA_ON_CONTROL:
		m.type = DCM_MSG_DATA;
		m.payload_bytes = m.io_done.bytes = 4096;
		say(l, &m);
		break;
	case JUNK:
		memset(junk, 0xa5, sizeof(junk));
		gnutls_record_send(l->tls, junk, sizeof(junk));
		break;
	case FLOOD:
		for (i = 0; i < 20000; i++)
			say(l, &m);
		break;
	case EVICT_UNKNOWN:
		m.type = DCM_MSG_EVICT;
		m.tag = 4711;
		m.slab.slab = 99;
		say(l, &m);
		m.type = DCM_MSG_CHECK_ACTIVITY;
		say(l, &m);
		break;
	case DONE_UNKNOWN:
		m.type = DCM_MSG_DONE;
		m.slab.slab = 99;
		say(l, &m);
		m.tag = 12345;
		say(l, &m);
		break;
	case ERROR_UNKNOWN:
		m.type = DCM_MSG_ERROR;
		m.error.status = 0xffffffff;
		say(l, &m);
		break;
	case MR_UNASKED:
		lend(l, 99999);
		break;
	case TICKET_UNASKED:
		m.type = DCM_MSG_TICKET;
		m.tag = 99999;
		m.ticket.port = 4791;
		say(l, &m);
		break;
	default:
		break;
	}
}

static void serve(struct liar *l)
{
	struct dcm_wire_msg m, w = { .type = DCM_MSG_WELCOME };

	if (!hear(l, DCM_PHASE_HELLO, &m))
		return;
	w.tag = m.tag;
	/* a script that sets its own flags gets them */
	w.welcome.flags = l->script == VERBS_UNASKED ? 0xffff : 0;
	w.welcome.version = l->script == OTHER_VERSION ? 9 : 1;
	w.welcome.inflight_max = l->script == NO_DEPTH ? 0 : 16;
	w.welcome.session = l->script == NO_SESSION_ID ? 0 : 5;
	w.welcome.donor_id = 6;
	w.welcome.slab_bytes = l->script == ODD_SLABS  ? 3 << 20 :
			       l->script == VAST_SLABS ? 1ull << 46 :
							 SLAB;
	say(l, &w);
	lies_at_once(l);
	while (hear(l, DCM_PHASE_CONTROL, &m)) {
		struct dcm_wire_msg a = { .type = DCM_MSG_DONE, .tag = m.tag };

		switch (m.type) {
		case DCM_MSG_QUERY_MEM:
			figures(l, m.tag);
			break;
		case DCM_MSG_MAP:
			lend(l, m.tag);
			break;
		case DCM_MSG_UNMAP:
			__atomic_add_fetch(&l->unmaps, 1, __ATOMIC_SEQ_CST);
			a.slab.slab = m.slab.slab;
			say(l, &a);
			break;
		case DCM_MSG_DONE:
			l->done_tag = m.tag;
			__atomic_add_fetch(&l->dones, 1, __ATOMIC_SEQ_CST);
			break;
		default:
			break;
		}
	}
}

static void *liar_main(void *arg)
{
	struct liar *l = arg;

	while (!__atomic_load_n(&l->stop, __ATOMIC_ACQUIRE)) {
		int fd = accept(l->listen, NULL, NULL), ret;

		if (fd < 0)
			continue;
		__atomic_store_n(&l->conn, fd, __ATOMIC_RELEASE);
		gnutls_init(&l->tls, GNUTLS_SERVER | GNUTLS_NO_TICKETS);
		gnutls_priority_set_direct(l->tls, PRIORITY, NULL);
		gnutls_credentials_set(l->tls, GNUTLS_CRD_PSK, l->cred);
		gnutls_transport_set_ptr(l->tls, l);
		gnutls_transport_set_push_function(l->tls, push);
		gnutls_transport_set_pull_function(l->tls, pull);
		do {
			ret = gnutls_handshake(l->tls);
		} while (ret < 0 && !gnutls_error_is_fatal(ret));
		if (!ret)
			serve(l);
		gnutls_deinit(l->tls);
		close(fd);
	}
	return NULL;
}

static void liar_start(struct liar *l, enum script script)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };

	memset(l, 0, sizeof(*l));
	l->script = script;
	l->conn = -1;
	snprintf(sun.sun_path, sizeof(sun.sun_path), "%s", sock_path);
	unlink(sock_path);
	l->listen = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(l->listen, (struct sockaddr *)&sun, sizeof(sun)),
			 0);
	assert_int_equal(listen(l->listen, 8), 0);
	gnutls_psk_allocate_server_credentials(&l->cred);
	gnutls_psk_set_server_credentials_function(l->cred, psk);
	assert_int_equal(pthread_create(&l->thread, NULL, liar_main, l), 0);
}

static void liar_stop(struct liar *l)
{
	__atomic_store_n(&l->stop, true, __ATOMIC_RELEASE);
	shutdown(l->listen, SHUT_RDWR);
	pthread_join(l->thread, NULL);
	close(l->listen);
	gnutls_psk_free_server_credentials(l->cred);
}

static unsigned int open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned int n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static bool logged(int fd, const char *what)
{
	static char buf[65536];
	ssize_t n = pread(fd, buf, sizeof(buf) - 1, 0);

	buf[n > 0 ? n : 0] = 0;
	return strstr(buf, what);
}

static u64 now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (u64)ts.tv_sec * 1000 + (u64)ts.tv_nsec / 1000000;
}

#define WAIT(cond)                                                        \
	do {                                                              \
		u64 end_ = now_ms() + 30000;                              \
		while (!(cond)) {                                         \
			if (now_ms() > end_)                              \
				fail_msg("script %d: waited in vain: %s", \
					 (int)script, #cond);             \
			usleep(2000);                                     \
		}                                                         \
	} while (0)
#define LOAD(x) __atomic_load_n(&(x), __ATOMIC_SEQ_CST)

static void run(enum script script)
{
	struct dcm_host_donor donor = { .name = "liar" };
	struct dcm_client_config cfg = {
		.donors = &donor,
		.nr_donors = 1,
		.tenant = "lab",
		.key = key,
		.key_len = sizeof(key),
		.nr_lanes = 1,
		.size = 64ull * SLAB,
		.extent = SLAB,
		.data_encryption = true,
		.seed = 1,
	};
	unsigned int fds = open_fds();
	struct dcm_client *client;
	struct liar l;
	char path[64];
	int log;

	attached = losts = 0;
	snprintf(donor.address, sizeof(donor.address), "unix:%s", sock_path);
	snprintf(path, sizeof(path), "%s/log", dir);
	log = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	dcm_log_setup(DCM_LOG_DEBUG, log);
	liar_start(&l, script);
	assert_int_equal(dcm_client_start(&cfg, &ops, NULL, &client), 0);
	dcm_client_want(client, 3);
	if (script == MR_SAME_ID) {
		WAIT(LOAD(attached) == 1);
		dcm_client_want(client, 4);
	}
	if (says[script])
		WAIT(logged(log, says[script]));
	else
		WAIT(LOAD(attached) == 1);
	if (script == MR_UNASKED)
		WAIT(LOAD(l.unmaps) == 1);
	if (script == EVICT_UNKNOWN) {
		WAIT(LOAD(l.dones) == 1);
		assert_int_equal(l.done_tag, 4711);
	}
	assert_int_equal(LOAD(attached), script == MR_SAME_ID || !says[script]);
	dcm_client_stop(client);
	liar_stop(&l);
	dcm_log_setup(DCM_LOG_INFO, 2);
	close(log);
	assert_int_equal(open_fds(), fds);
}

static void test_scripts(void **state)
{
	enum script s;

	(void)state;
	for (s = 0; s < NR_SCRIPTS; s++)
		run(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_scripts),
	};
	char cmd[64];
	int ret;

	if (!mkdtemp(dir))
		return 99;
	snprintf(sock_path, sizeof(sock_path), "%s/s", dir);
	ret = cmocka_run_group_tests_name("liar", tests, NULL, NULL);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	if (ret || system(cmd))
		fprintf(stderr, "the log is in %s\n", dir);
	return ret;
}

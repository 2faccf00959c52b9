// SPDX-License-Identifier: GPL-2.0-or-later
/* links: donor-daemon/chan.c donor-daemon/collect.c donor-daemon/config.c donor-daemon/conn.c donor-daemon/control.c donor-daemon/data.c donor-daemon/data_worker.c donor-daemon/door.c donor-daemon/evict.c donor-daemon/fair.c donor-daemon/gc/child.c donor-daemon/hello.c donor-daemon/hostmem.c donor-daemon/lend.c donor-daemon/log.c donor-daemon/pool.c donor-daemon/session.c donor-daemon/share.c donor-daemon/tenant.c kvm-dcm/proto/wire.c kvm-dcm/lib/inside.c kvm-dcm/lib/log.c */
/* libs: -linih -Wl,--wrap=socketpair,--wrap=fork,--wrap=kill,--wrap=waitpid */
/* pkg: libuv */
/*
 * donor_fuzz.c - libFuzzer on a donor's connections, sessions and GC workers
 *
 * An input is all that happens to a donor: connections of two tenants are opened,
 * say HELLO, control, data and GC messages, whole, in parts or as junk, read
 * their answers or do not, and are closed; strangers come and stay at the doors,
 * which have few seats; GC workers say anything, or end; the
 * capacity changes, a key is taken out, the donor drains; time passes. Sessions
 * and slabs are named by what the donor has said of them. Whatever happens: the
 * donor sends nothing that its own codec does not take, and once all hosts are
 * gone for 6 seconds nothing of them is left.
 *
 * The donor's parts are the real ones on libuv, but for five that the harness
 * has in their place: the cipher (bytes are as they are; a handshake is a record
 * of a byte that says who it is, or that, an answer and one more), the clock, processes, RDMA, and main.c's timers.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "collect.h"
#include "domain.h"
#include "donor.h"
#include "proto/gc_message.h"
#include "../../donor-daemon/log.h"
#include "rdma.h"

#define CONNS	 8u
#define SESSIONS 6u
#define SLABS	 8u
#define CHILDREN 4u
#define SLAB	 (2ull << 20)
#define HEARD	 (1u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int __wrap_socketpair(int domain, int type, int protocol, int pair[2]);
int __real_socketpair(int domain, int type, int protocol, int pair[2]);
pid_t __wrap_fork(void);
int __wrap_kill(pid_t pid, int sig);
pid_t __wrap_waitpid(pid_t pid, int *status, int options);

static struct dcm_donor donor;
static u64 skew_ns;

static void must(bool what)
{
	if (!what)
		abort();
}

/* ---- the clock ---- */

/* libuv's too: this program's comes first. */
int clock_gettime(clockid_t id, struct timespec *ts)
{
	int ret = (int)syscall(SYS_clock_gettime, id, ts);
	u64 ns;

	if (!ret && (id == CLOCK_MONOTONIC || id == CLOCK_MONOTONIC_COARSE)) {
		ns = (u64)ts->tv_sec * 1000000000u + (u64)ts->tv_nsec +
		     __atomic_load_n(&skew_ns, __ATOMIC_RELAXED);
		ts->tv_sec = (time_t)(ns / 1000000000u);
		ts->tv_nsec = (long)(ns % 1000000000u);
	}
	return ret;
}

/* ---- the cipher: none ---- */

struct gnutls_session_int {
	void *ptr;
	gnutls_transport_ptr_t transport;
	gnutls_pull_func pull;
	gnutls_vec_push_func push;
	int error;
	bool answered;
	char name[8];
};

static void *plain_malloc(size_t n)
{
	return malloc(n);
}

gnutls_alloc_function gnutls_malloc = plain_malloc;

int gnutls_init(gnutls_session_t *s, unsigned int flags)
{
	(void)flags;
	*s = calloc(1, sizeof(**s));
	return *s ? 0 : GNUTLS_E_MEMORY_ERROR;
}

void gnutls_deinit(gnutls_session_t s)
{
	free(s);
}

void gnutls_session_set_ptr(gnutls_session_t s, void *ptr)
{
	s->ptr = ptr;
}

void *gnutls_session_get_ptr(gnutls_session_t s)
{
	return s->ptr;
}

void gnutls_transport_set_ptr(gnutls_session_t s, gnutls_transport_ptr_t ptr)
{
	s->transport = ptr;
}

void gnutls_transport_set_pull_function(gnutls_session_t s, gnutls_pull_func f)
{
	s->pull = f;
}

void gnutls_transport_set_pull_timeout_function(gnutls_session_t s,
						gnutls_pull_timeout_func f)
{
	(void)s;
	(void)f;
}

void gnutls_transport_set_vec_push_function(gnutls_session_t s,
					    gnutls_vec_push_func f)
{
	s->push = f;
}

void gnutls_transport_set_errno(gnutls_session_t s, int err)
{
	s->error = err;
}

void gnutls_handshake_set_timeout(gnutls_session_t s, unsigned int ms)
{
	(void)s;
	(void)ms;
}

void gnutls_handshake_set_hook_function(gnutls_session_t s, unsigned int type,
					int when, gnutls_handshake_hook_func f)
{
	(void)s;
	(void)type;
	(void)when;
	(void)f;
}

int gnutls_priority_init(gnutls_priority_t *p, const char *text,
			 const char **where)
{
	(void)text;
	(void)where;
	*p = NULL;
	return 0;
}

void gnutls_priority_deinit(gnutls_priority_t p)
{
	(void)p;
}

int gnutls_priority_set(gnutls_session_t s, gnutls_priority_t p)
{
	(void)s;
	(void)p;
	return 0;
}

int gnutls_psk_allocate_server_credentials(gnutls_psk_server_credentials_t *c)
{
	*c = NULL;
	return 0;
}

void gnutls_psk_free_server_credentials(gnutls_psk_server_credentials_t c)
{
	(void)c;
}

void gnutls_psk_set_server_credentials_function2(
	gnutls_psk_server_credentials_t c,
	gnutls_psk_server_credentials_function2 *f)
{
	(void)c;
	(void)f;
}

int gnutls_credentials_set(gnutls_session_t s, gnutls_credentials_type_t type,
			   void *c)
{
	(void)s;
	(void)type;
	(void)c;
	return 0;
}

const char *gnutls_strerror(int error)
{
	(void)error;
	return "";
}

/* A byte: 'a' and 'b' are tenants, 'z' has no key that fits. 'A': one more comes. */
int gnutls_handshake(gnutls_session_t s)
{
	char record[6], more;
	giovec_t v = { (void *)"s", 1 };
	ssize_t n;

	if (!*s->name) {
		/* a channel starts no handshake before the record is whole */
		must(s->pull(s->transport, record, 6) == 6 && record[0] == 22);
		*s->name = record[5];
	}
	if ((*s->name | 0x20) == 'z')
		return GNUTLS_E_DECRYPTION_FAILED;
	if (*s->name < 'A' || *s->name > 'Y')
		return 0;
	if (!s->answered && s->push(s->transport, &v, 1) != 1)
		return GNUTLS_E_PUSH_ERROR;
	s->answered = true;
	n = s->pull(s->transport, &more, 1);
	if (n != 1)
		return n < 0 ? GNUTLS_E_AGAIN : GNUTLS_E_PREMATURE_TERMINATION;
	*s->name |= 0x20;
	return 0;
}

int gnutls_psk_server_get_username2(gnutls_session_t s, gnutls_datum_t *name)
{
	name->data = (unsigned char *)s->name;
	name->size = 1;
	return 0;
}

ssize_t gnutls_record_recv(gnutls_session_t s, void *to, size_t room)
{
	ssize_t n = s->pull(s->transport, to, room);

	return n < 0 ? GNUTLS_E_AGAIN : n;
}

ssize_t gnutls_record_send(gnutls_session_t s, const void *from, size_t n)
{
	giovec_t v = { (void *)from, n };
	ssize_t ret = s->push(s->transport, &v, 1);

	return ret < 0 ? GNUTLS_E_PUSH_ERROR : ret;
}

size_t gnutls_record_check_pending(gnutls_session_t s)
{
	(void)s;
	return 0;
}

int gnutls_error_is_fatal(int error)
{
	return error != GNUTLS_E_AGAIN;
}

int gnutls_bye(gnutls_session_t s, gnutls_close_request_t how)
{
	must(s);
	(void)how;
	return 0;
}

/* ---- no RDMA ---- */

const struct dcm_lend_ops dcm_lend_verbs = { .name = "verbs", .slow = true };

bool dcm_rdma_on(const struct dcm_conn *conn)
{
	(void)conn;
	return false;
}

bool dcm_rdma_ready(const struct dcm_session *s)
{
	(void)s;
	return false;
}

u32 dcm_rdma_ticket(struct dcm_conn *conn, u16 lane, struct dcm_wire_msg *msg)
{
	(void)conn;
	(void)lane;
	(void)msg;
	return DCM_WS_TRANSPORT;
}

void dcm_rdma_lane_close(struct dcm_session *s, u16 lane)
{
	(void)s;
	(void)lane;
}

void dcm_rdma_session_end(struct dcm_session *s)
{
	(void)s;
}

struct dcm_domain *dcm_domain_get(struct dcm_domain *dom)
{
	return dom;
}

void dcm_domain_put(struct dcm_domain *dom)
{
	(void)dom;
}

/* ---- GC workers: sockets, and what the input says ---- */

/* @fd: the worker's end, -1: closed; @pid 0: there is none */
struct child {
	pid_t pid;
	int fd;
	bool killed;
	bool ended;
};

static struct child children[CHILDREN];
static int child_end = -1;
static pid_t next_pid = 1 << 20;

int __wrap_socketpair(int domain, int type, int protocol, int pair[2])
{
	int ret = __real_socketpair(domain, type, protocol, pair);

	if (!ret && type & SOCK_SEQPACKET) {
		must(child_end < 0);
		child_end = fcntl(pair[1], F_DUPFD_CLOEXEC, 0);
	}
	return ret;
}

pid_t __wrap_fork(void)
{
	for (u32 i = 0; i < CHILDREN; i++) {
		if (children[i].pid)
			continue;
		children[i] =
			(struct child){ .pid = next_pid++, .fd = child_end };
		fcntl(child_end, F_SETFL, O_NONBLOCK);
		child_end = -1;
		return children[i].pid;
	}
	close(child_end);
	child_end = -1;
	errno = EAGAIN;
	return -1;
}

static struct child *child_of(pid_t pid)
{
	for (u32 i = 0; i < CHILDREN; i++)
		if (children[i].pid == pid)
			return &children[i];
	abort();
}

static void child_close(struct child *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
	c->ended = true;
}

int __wrap_kill(pid_t pid, int sig)
{
	struct child *c = child_of(pid);

	must(sig == SIGKILL);
	c->killed = true;
	child_close(c);
	return 0;
}

/* One that was killed takes a while to go. */
pid_t __wrap_waitpid(pid_t pid, int *status, int options)
{
	struct child *c = child_of(pid);

	must(c->ended);
	if (options & WNOHANG && c->killed) {
		c->killed = false;
		return 0;
	}
	*status = SIGKILL;
	*c = (struct child){ .fd = -1 };
	return pid;
}

/* ---- the input ---- */

struct in {
	const u8 *at;
	const u8 *end;
};

static u32 byte(struct in *in)
{
	return in->at < in->end ? *in->at++ : 0;
}

static u64 some(struct in *in, u32 usual)
{
	u32 b = byte(in);
	u64 v = 0;

	if (b < 0xf0)
		return b % usual;
	for (u32 i = 0; i < 8; i++)
		v |= (u64)byte(in) << 8 * i;
	return b & 1 ? v : usual + (v & 7);
}

/* ---- hosts ---- */

/**
 * struct host - a connection, as who opened it sees it
 * @fd: -1: none
 * @deaf: answers are not read
 * @welcome: it has been answered: what it is now is in what the donor says
 * @half: its handshake has two steps, and one is done: a byte is the other
 * @skip: bytes of the handshake to come
 * @got: bytes that are no whole message yet
 */
struct host {
	int fd;
	bool deaf;
	bool welcome;
	bool half;
	u32 skip;
	size_t n;
	u8 *got;
};

struct known {
	u64 id;
	u8 secret[16];
	u8 tenant;
};

static struct host hosts[CONNS];
static struct known sessions[SESSIONS];
static u32 nr_sessions;
static u64 slabs[SLABS];
static u32 nr_slabs;

static void host_close(struct host *h)
{
	if (h->fd >= 0)
		close(h->fd);
	h->fd = -1;
	h->n = 0;
}

static void welcomed(struct host *h, const struct dcm_wire_msg *msg)
{
	static const u8 none[16];

	h->welcome = true;
	if (!memcmp(msg->welcome.secret, none, sizeof(none)))
		return;
	sessions[nr_sessions % SESSIONS].id = msg->welcome.session;
	memcpy(sessions[nr_sessions++ % SESSIONS].secret, msg->welcome.secret,
	       16);
}

/* What the donor has said, whole messages of it. */
static void host_heard(struct host *h)
{
	static const enum dcm_wire_phase phases[] = {
		DCM_PHASE_CONTROL,
		DCM_PHASE_DATA,
		DCM_PHASE_GC,
	};
	struct dcm_wire_msg msg;
	size_t bytes, at = 0;

	while (at < h->n) {
		int ret = DCM_WIRE_E_PHASE;

		/* in which role HELLO came the input may have left open */
		for (u32 i = 0; ret == DCM_WIRE_E_PHASE && i < 3; i++)
			ret = dcm_wire_decode(h->got + at, h->n - at,
					      h->welcome ? phases[i] :
							   DCM_PHASE_HELLO,
					      DCM_SIDE_DONOR, &msg, &bytes);
		if (ret == DCM_WIRE_MORE)
			break;
		must(ret == DCM_WIRE_OK);
		at += bytes;
		if (msg.type == DCM_MSG_WELCOME)
			welcomed(h, &msg);
		if (msg.type == DCM_MSG_MR_INFO)
			slabs[nr_slabs++ % SLABS] = msg.mr_info.slab;
	}
	memmove(h->got, h->got + at, h->n - at);
	h->n -= at;
}

static void host_read(struct host *h)
{
	ssize_t n;

	if (h->fd < 0 || h->deaf)
		return;
	n = recv(h->fd, h->got + h->n, HEARD - h->n, MSG_DONTWAIT);
	if (n <= 0)
		return;
	h->n += (size_t)n;
	if (h->skip) {
		must(h->got[0] == 's');
		memmove(h->got, h->got + 1, --h->n);
		h->skip = 0;
	}
	host_heard(h);
}

static void turn(void)
{
	const struct dcm_tenant *t;

	uv_run(&donor.loop, UV_RUN_NOWAIT);
	dcm_list_for_each(t, &donor.tenants.list, struct dcm_tenant, node)
		must(t->bytes <= t->quota_bytes);
	for (u32 i = 0; i < CONNS; i++)
		host_read(&hosts[i]);
}

static void host_open(struct in *in)
{
	static const struct sockaddr_storage nobody;
	struct host *h = &hosts[byte(in) % CONNS];
	const u32 how = byte(in);
	u8 who = (u8) "aabz"[how & 3];
	u8 record[6] = { 22, 3, 1, 0, 1, who & (how & 0x10 ? 0xdf : 0xff) };
	struct dcm_listener *l = &donor.listeners[how >> 2 & 1];
	int pair[2];

	host_close(h);
	must(!__real_socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair));
	h->fd = pair[0];
	h->welcome = false;
	h->deaf = how & 0x20;
	h->half = how & 0x10;
	h->skip = h->half;
	dcm_conn_accept(&donor, &l->door, pair[1], how & 4, &nobody);
	must(l->door.nr_seats <= donor.cfg.handshakes);
	if (!(how & 8) && send(h->fd, record, 6, MSG_NOSIGNAL) != 6)
		must(false);
	sessions[nr_sessions % SESSIONS].tenant = who;
}

/* Whole, or what of it there is room for: the rest is not said. */
static void host_send(struct host *h, const void *bytes, size_t n)
{
	if (h->fd >= 0 &&
	    send(h->fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		must(errno == EAGAIN || errno == EPIPE || errno == ECONNRESET);
}

static void host_say(struct host *h, struct dcm_wire_msg *msg,
		     const void *payload, u32 bytes, u32 cut)
{
	static u8 buf[DCM_WIRE_MSG_MAX];
	int n;

	msg->payload_bytes = bytes;
	n = dcm_wire_encode(buf, sizeof(buf), msg);
	if (n < 0)
		return;
	if (bytes)
		memcpy(buf + n, payload, bytes);
	n += (int)bytes;
	if (cut && cut < (u32)n)
		n = (int)cut;
	host_send(h, buf, (size_t)n);
}

static void say_hello(struct in *in)
{
	struct host *h = &hosts[byte(in) % CONNS];
	const u32 how = byte(in);
	struct dcm_wire_msg msg = {
		.type = DCM_MSG_HELLO,
		.tag = 1,
		.hello = {
			.version_min = (how & 0x30) == 0x30 ? 2 : 1,
			.version_max = (how & 0x30) == 0x30 ? 3 : 1,
			.role = (u8)(1 + (how & 3) % 3),
			.flags = how >> 6,
		},
	};
	const u32 which = byte(in);

	if (h->half)
		host_send(h, "f", 1);
	h->half = false;
	if (msg.hello.role == DCM_ROLE_DATA)
		msg.hello.lane = (u16)(which >> 4);
	if (msg.hello.role != DCM_ROLE_CONTROL || how & 4) {
		msg.hello.session = sessions[which % SESSIONS].id;
		memcpy(msg.hello.secret, sessions[which % SESSIONS].secret, 16);
		msg.hello.secret[3] ^= how >> 3 & 1;
	}
	host_say(h, &msg, NULL, 0, byte(in));
	turn();
}

static u64 slab_of(struct in *in)
{
	const u64 n = some(in, SLABS);

	return n < SLABS ? slabs[n] : n;
}

static void say_control(struct in *in)
{
	static const u16 types[] = {
		DCM_MSG_HEARTBEAT, DCM_MSG_GOODBYE,    DCM_MSG_QUERY_MEM,
		DCM_MSG_MAP,	   DCM_MSG_MAP,	       DCM_MSG_UNMAP,
		DCM_MSG_ACTIVITY,  DCM_MSG_ASK_TICKET, DCM_MSG_DONE,
	};
	struct host *h = &hosts[byte(in) % CONNS];
	struct dcm_wire_msg msg = { .type = types[byte(in) % ARRAY_SIZE(types)],
				    .tag = byte(in) };

	switch (msg.type) {
	case DCM_MSG_MAP:
		msg.map.slab_bytes = byte(in) == 0xff ? SLAB / 2 : SLAB;
		msg.map.transports = 1 + byte(in) % 7;
		break;
	case DCM_MSG_ACTIVITY:
		msg.activity.slab = slab_of(in);
		msg.activity.ewma_milli = some(in, 100);
		break;
	case DCM_MSG_ASK_TICKET:
		msg.ask_ticket.lane = (u16)some(in, 4);
		break;
	default:
		msg.slab.slab = slab_of(in);
	}
	host_say(h, &msg, NULL, 0, 0);
}

static void say_data(struct in *in)
{
	static const u8 page[DCM_WIRE_PAYLOAD_MAX];
	struct host *h = &hosts[byte(in) % CONNS];
	const u32 how = byte(in);
	const u32 bytes = (u32)(1 + some(in, 3)) * 4096 % (80u << 10);
	struct dcm_wire_msg msg = {
		.type = how & 1 ? DCM_MSG_WRITE : DCM_MSG_READ,
		.tag = 5,
		.io = { .slab = slab_of(in),
			.offset = some(in, 3) * 4096 + (how & 2),
			.bytes = bytes },
	};
	/* its thread has its turn, or not yet */
	struct pollfd p = { .fd = h->fd, .events = POLLIN };

	host_say(h, &msg, page, how & 1 && bytes <= sizeof(page) ? bytes : 0,
		 how & 4 ? byte(in) * 40 : 0);
	if (how & 8 && h->fd >= 0)
		poll(&p, 1, 1);
}

static void say_gc(struct in *in)
{
	struct host *h = &hosts[byte(in) % CONNS];
	const u32 how = byte(in);
	u8 payload[64];
	const u32 n = byte(in) % sizeof(payload);
	struct dcm_wire_msg msg = { .type = DCM_MSG_GC, .tag = byte(in) };

	memset(payload, (int)how, sizeof(payload));
	if (how % 4 == 0) {
		msg.type = DCM_MSG_GC_OPEN;
		msg.gc_open.bytes = some(in, 64) << 20;
		msg.gc_open.donor = (u32)some(in, 64);
	} else if (how % 4 == 1) {
		msg.type = DCM_MSG_GC_SLAB;
		msg.gc_slab.slab = slab_of(in);
		msg.gc_slab.number = (u32)some(in, 4);
	} else {
		msg.gc.kind = (u32)some(in, DCM_GC_KINDS);
		msg.gc.space = (u32)some(in, 4);
		msg.gc.donor = (u32)some(in, 4);
	}
	host_say(h, &msg, payload, msg.type == DCM_MSG_GC ? n : 0,
		 how & 0x40 ? byte(in) : 0);
	/* many, so that a worker that does not read is full */
	for (u32 i = 0; how & 0x80 && i < 64; i++)
		host_say(h, &msg, payload,
			 msg.type == DCM_MSG_GC ? sizeof(payload) : 0, 0);
}

static void say_junk(struct in *in)
{
	struct host *h = &hosts[byte(in) % CONNS];
	u8 buf[64];
	const u32 n = byte(in) % sizeof(buf);

	for (u32 i = 0; i < n; i++)
		buf[i] = (u8)byte(in);
	host_send(h, buf, n);
}

static void host_leave(struct in *in)
{
	const u32 how = byte(in);
	struct host *h = &hosts[how % CONNS];

	if (h->fd < 0)
		return;
	if (how & 0x80)
		shutdown(h->fd, how & 0x40 ? SHUT_WR : SHUT_RDWR);
	else
		host_close(h);
}

/* ---- a GC worker ---- */

static void child_says(struct in *in)
{
	static u8 buf[sizeof(struct dcm_gc_message) + DCM_GC_PAYLOAD_MAX + 8];
	struct child *c = &children[byte(in) % CHILDREN];
	struct dcm_gc_message *msg = (void *)buf;
	const u32 how = byte(in);
	size_t n = some(in, 64) % (DCM_GC_PAYLOAD_MAX + 9);
	ssize_t ret;

	if (c->fd < 0)
		return;
	if (how & 1)
		while (recv(c->fd, buf, sizeof(buf), MSG_DONTWAIT) > 0)
			;
	if (how & 2)
		child_close(c);
	if (!(how & 4) || c->fd < 0)
		return;
	*msg = (struct dcm_gc_message){
		.kind = htole32((u32)some(in, DCM_GC_KINDS)),
		.tag = htole64(byte(in)),
		.donor = htole32((u32)some(in, 4)),
		.bytes = htole32((u32)n + (how & 8 ? byte(in) : 0)),
	};
	n += how & 0x10 ? 0 : sizeof(*msg);
	for (u32 i = 0; i < (how & 0x20 ? 40 : 1); i++) {
		ret = send(c->fd, buf, n, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (ret < 0)
			break;
	}
}

/* ---- what main.c does ---- */

static void pass(u32 ms)
{
	__atomic_add_fetch(&skew_ns, ms * 1000000ull, __ATOMIC_RELAXED);
	uv_update_time(&donor.loop);
}

static void quarter(u32 ms)
{
	u64 now;

	pass(ms);
	now = dcm_now(&donor);
	if (now > donor.quarter_at + 2000)
		donor.stalled_at = now;
	donor.quarter_at = now;
	dcm_conn_deadlines(&donor);
	dcm_collect_quarter(&donor);
	dcm_evict_quarter(&donor);
}

static void second(void)
{
	dcm_pool_sample(&donor.pool, false);
	if (!donor.draining) {
		dcm_pool_balance(&donor.pool);
		dcm_evict_second(&donor);
	}
	dcm_control_heartbeats(&donor);
}

static void capacity(u32 n)
{
	donor.cfg.capacity.bytes = n * SLAB;
	dcm_pool_limits(&donor.pool, &donor.cfg);
	dcm_tenants_quota(&donor.tenants, &donor.cfg, donor.pool.total);
	dcm_pool_balance(&donor.pool);
	dcm_evict_second(&donor);
}

/* Both tenants have a key, or one of them. */
static void keys(u32 which)
{
	static const char *const files[] = {
		"a:11111111111111111111111111111111\nb:22222222222222222222222222222222\n",
		"a:11111111111111111111111111111111\n",
		"b:22222222222222222222222222222222\n",
	};
	char text[128], err[128];

	snprintf(text, sizeof(text), "%s", files[which % 3]);
	must(!dcm_tenants_parse(&donor.tenants, "keys", text, strlen(text), err,
				sizeof(err)));
	dcm_tenants_quota(&donor.tenants, &donor.cfg, donor.pool.total);
}

static void drain(void)
{
	donor.draining = true;
	donor.drain_deadline = dcm_now(&donor) + donor.cfg.drain_ms;
	dcm_evict_quarter(&donor);
}

static void step(struct in *in)
{
	u32 what = byte(in);

	switch (what % 16) {
	case 0:
	case 1:
		host_open(in);
		break;
	case 2:
	case 3:
		say_hello(in);
		break;
	case 4:
	case 5:
		say_control(in);
		break;
	case 6:
		say_data(in);
		break;
	case 7:
	case 8:
		say_gc(in);
		break;
	case 9:
		say_junk(in);
		break;
	case 10:
		host_leave(in);
		break;
	case 11:
		child_says(in);
		break;
	case 12:
		quarter(byte(in) & 0x80 ? 3000 : 250);
		break;
	case 13:
		second();
		break;
	case 14:
		hosts[what >> 4 & 7].deaf ^= 1;
		break;
	default:
		what = byte(in);
		if (what < 0xe0)
			capacity(what % 9);
		else if (what < 0xf8)
			keys(what);
		else
			drain();
	}
	if (!(what & 0x80))
		turn();
}

/* ---- the donor's life ---- */

static void start(void)
{
	char err[256] = "";

	signal(SIGPIPE, SIG_IGN);
	prctl(PR_SET_TIMERSLACK, 1000);
	dcm_log_init((enum dcm_log_level)0);
	dcm_config_init(&donor.cfg);
	donor.cfg.slab_bytes = SLAB;
	donor.cfg.capacity = (struct dcm_size){ .bytes = 8 * SLAB };
	donor.cfg.head_room = (struct dcm_size){ .bytes = 0 };
	donor.cfg.tenant_bytes = (struct dcm_size){ .bytes = 160ull << 20 };
	donor.cfg.tenant_connections = 6;
	donor.cfg.connections = 6;
	donor.cfg.handshakes = 3;
	donor.cfg.sessions = 4;
	donor.cfg.spare_slabs = 0;
	donor.cfg.threads = 1;
	donor.cfg.data_encryption = false;
	donor.cfg.gc_workers = 3;
	donor.cfg.gc_threads = 1;
	donor.cfg.gc_memory = (struct dcm_size){ .bytes = 64ull << 20 };
	snprintf(donor.cfg.gc_worker, sizeof(donor.cfg.gc_worker), "/bin/true");
	dcm_tenants_init(&donor.tenants);
	dcm_list_init(&donor.conns);
	dcm_list_init(&donor.sessions);
	dcm_door_init(&donor.hall, 1);
	dcm_door_init(&donor.listeners[0].door, 2);
	dcm_door_init(&donor.listeners[1].door, 3);
	dcm_collect_start(&donor);
	must(donor.gc_path[0]);
	donor.tls = dcm_tls_new(NULL, NULL, err, sizeof(err));
	uv_loop_init(&donor.loop);
	must(!dcm_pool_init(&donor.pool, &donor.loop, &donor.cfg, err,
			    sizeof(err)));
	donor.pool.done = dcm_control_slab_gone;
	donor.pool.done_arg = &donor;
	must(!dcm_data_start(&donor, err, sizeof(err)));
	for (u32 i = 0; i < CONNS; i++) {
		hosts[i].fd = -1;
		hosts[i].got = malloc(HEARD);
		must(hosts[i].got);
	}
	for (u32 i = 0; i < CHILDREN; i++)
		children[i].fd = -1;
}

static bool all_gone(void)
{
	const struct dcm_tenant *t;

	dcm_list_for_each(t, &donor.tenants.list, struct dcm_tenant,
			  node) if (t->bytes || t->gc_bytes || t->workers ||
				    t->dying || t->connections || t->sessions ||
				    t->users) return false;
	for (u32 i = 0; i < 2; i++)
		if (donor.listeners[i].door.nr_seats ||
		    donor.listeners[i].door.nr_sources)
			return false;
	return !donor.nr_conns && !donor.nr_handshakes && !donor.nr_sessions &&
	       !donor.nr_lost && !donor.hall.nr_seats &&
	       !donor.hall.nr_sources && !donor.nr_collects &&
	       !donor.nr_dying && !donor.pool.charged &&
	       !donor.pool.nr_mapped && !donor.pool.nr_evicting &&
	       !donor.pool.nr_releasing && !donor.pool.nr_wants;
}

/* Hosts are gone: so is, six seconds later, all that they had. */
static void finish(void)
{
	struct timespec nap = { .tv_nsec = 20000 };

	for (u32 i = 0; i < CONNS; i++)
		host_close(&hosts[i]);
	turn();
	/* then threads have slabs and data connections to give back */
	for (u32 i = 0; !all_gone(); i++) {
		must(i < 200000);
		quarter(i < 7 ? 900 : 1);
		turn();
		if (i >= 7)
			nanosleep(&nap, NULL);
	}
	donor.draining = false;
	donor.evict.asking = false;
	nr_sessions = 0;
	nr_slabs = 0;
	memset(sessions, 0, sizeof(sessions));
	memset(slabs, 0, sizeof(slabs));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static bool started;
	struct in in = { data, data + size };

	if (size > 1024)
		return 0;
	if (!started)
		start();
	started = true;
	keys(0);
	capacity(8);
	donor.quarter_at = dcm_now(&donor);
	while (in.at < in.end)
		step(&in);
	finish();
	return 0;
}

// SPDX-License-Identifier: GPL-2.0-or-later
/* links: donor-daemon/buf.c donor-daemon/chan.c donor-daemon/gc_session.c donor-daemon/config.c donor-daemon/conn.c donor-daemon/control.c donor-daemon/data.c donor-daemon/data_worker.c donor-daemon/admission.c donor-daemon/evict.c donor-daemon/fair.c donor-daemon/gc/child.c donor-daemon/hello.c donor-daemon/export.c donor-daemon/log_limit.c donor-daemon/pool.c donor-daemon/session.c donor-daemon/slab.c donor-daemon/gc_cpu.c donor-daemon/tenant.c donor-daemon/tls_server.c kvm-dcm/proto/wire.c kvm-dcm/lib/file.c kvm-dcm/lib/ini.c kvm-dcm/lib/keyfile.c kvm-dcm/lib/value.c kvm-dcm/lib/thread.c kvm-dcm/lib/log.c tests/fuzz/plain_tls.c */
/* libs: -Wl,--wrap=socketpair,--wrap=fork,--wrap=kill,--wrap=waitpid,--wrap=fallocate,--wrap=uv_queue_work,--wrap=pthread_create,--wrap=pthread_mutex_lock,--wrap=pthread_mutex_unlock,--wrap=epoll_wait,--wrap=dcm_slab_get,--wrap=dcm_slab_put */
/* pkg: libuv */
/*
 * donor_fuzz.c - libFuzzer on a donor's connections, sessions and GC workers
 *
 * An input is all that happens to a donor: connections of two tenants are opened,
 * say HELLO, control, data and GC messages, whole, in parts or as junk, read
 * their answers or do not, and are closed; strangers take the listeners' seats,
 * which have few seats; GC workers say anything, or end; the
 * capacity changes, a key is taken out, the donor drains; time passes. Sessions
 * and slabs are named by what the donor has said of them. Whatever happens: the
 * donor sends nothing that its own codec does not take, and once all hosts are
 * gone for as long as their patience nothing of them is left.
 *
 * The donor's parts are the real ones on libuv, but for those that the harness
 * has in their place: the cipher (plain_tls.c), the clock, the host's memory,
 * processes, RDMA, and main.c's timers.
 *
 * There is one thread, so that an input does the same each time, and nothing
 * waits. libuv's jobs are done when the input says, in the order it says. The data
 * worker's loop runs on a stack of its own (a fiber): it goes on at each turn, and
 * stops where it would sleep, or where the input says: before it takes a lock, and
 * while it holds a slab. So whatever the event loop does comes between.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sanitizer/common_interface_defs.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "gc_session.h"
#include "rdma_pd.h"
#include "donor.h"
#include "hostmem.h"
#include "input.h"
#include "proto/gc_message.h"
#include "../../donor-daemon/log_limit.h"
#include "rdma.h"

#define CONNS	 8u
#define SESSIONS 6u
#define SLABS	 8u
#define CHILDREN 4u
#define SLAB	 (2ull << 20)
#define HEARD	 (1u << 20)
#define JOBS	 16u
#define STACK	 (256u << 10)
#define MEMORY	 (16ull << 30) /* of the host */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int __wrap_socketpair(int domain, int type, int protocol, int pair[2]);
int __real_socketpair(int domain, int type, int protocol, int pair[2]);
pid_t __wrap_fork(void);
int __wrap_kill(pid_t pid, int sig);
pid_t __wrap_waitpid(pid_t pid, int *status, int options);
int __wrap_fallocate(int fd, int mode, off_t at, off_t n);
int __wrap_uv_queue_work(uv_loop_t *loop, uv_work_t *work, uv_work_cb fn,
			 uv_after_work_cb after);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr,
			  void *(*fn)(void *), void *arg);
int __wrap_pthread_mutex_lock(pthread_mutex_t *m);
int __real_pthread_mutex_unlock(pthread_mutex_t *m);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *m);
int __real_epoll_wait(int fd, struct epoll_event *ev, int max, int ms);
int __wrap_epoll_wait(int fd, struct epoll_event *ev, int max, int ms);
struct dcm_slab *__real_dcm_slab_get(struct dcm_pool *pool, u64 id,
				     const struct dcm_session *session);
struct dcm_slab *__wrap_dcm_slab_get(struct dcm_pool *pool, u64 id,
				     const struct dcm_session *session);
void __real_dcm_slab_put(struct dcm_slab *slab);
void __wrap_dcm_slab_put(struct dcm_slab *slab);

static struct dcm_donor donor;
static u64 now_ns = 1000000000000u;

/* ---- the clock ---- */

/* libuv's too: this program's comes first. Other clocks are the fuzzer's own. */
int clock_gettime(clockid_t id, struct timespec *ts)
{
	if (id != CLOCK_MONOTONIC && id != CLOCK_MONOTONIC_COARSE)
		return (int)syscall(SYS_clock_gettime, id, ts);
	ts->tv_sec = (time_t)(now_ns / 1000000000u);
	ts->tv_nsec = (long)(now_ns % 1000000000u);
	return 0;
}

/* ---- the host's memory ---- */

static u64 memory_free = MEMORY;
static bool no_pages;

int dcm_hostmem_read(const char *root, uint64_t huge_bytes,
		     struct dcm_hostmem *hm)
{
	EXPECT(!*root && !huge_bytes);
	hm->total = MEMORY;
	hm->free = memory_free;
	return 0;
}

uint64_t dcm_hostmem_huge_default(const char *root)
{
	(void)root;
	return 0;
}

/* A page comes when it is touched: what the kernel takes time for is to zero it. */
int __wrap_fallocate(int fd, int mode, off_t at, off_t n)
{
	EXPECT(fd >= 0 && !mode && !(at % 4096) && n > 0);
	errno = ENOSPC;
	return no_pages ? -1 : 0;
}

/* ---- libuv's threads: jobs ---- */

struct job {
	uv_work_t *work;
	uv_work_cb fn;
	uv_after_work_cb after;
};

static struct job jobs[JOBS];
static u32 nr_jobs, jobs_wait;
static bool jobs_last_first;

int __wrap_uv_queue_work(uv_loop_t *loop, uv_work_t *work, uv_work_cb fn,
			 uv_after_work_cb after)
{
	EXPECT(loop == &donor.loop && nr_jobs < JOBS);
	jobs[nr_jobs++] = (struct job){ work, fn, after };
	return 0;
}

static void jobs_turn(void)
{
	struct job j;
	u32 i;

	if (jobs_wait && jobs_wait--)
		return;
	/* what is done may ask for more, but not without end */
	for (u32 n = 0; nr_jobs; n++) {
		EXPECT(n < 4 * JOBS);
		i = jobs_last_first ? nr_jobs - 1 : 0;
		j = jobs[i];
		memmove(&jobs[i], &jobs[i + 1],
			(--nr_jobs - i) * sizeof(*jobs));
		j.fn(j.work);
		j.after(j.work, 0);
	}
}

/* ---- the data worker: a fiber ---- */

static struct {
	ucontext_t main;
	ucontext_t worker;
	void *(*fn)(void *);
	void *arg;
	/* the sanitizer is told of each change of stacks */
	void *main_fake;
	void *worker_fake;
	const void *main_stack;
	size_t main_size;
	bool runs;
	u32 locks;
	u32 stop_in; /* places where it can stop; 0: it does not */
	u32 wait; /* turns until it goes on */
} fiber;

static u8 fiber_stack[STACK] __attribute__((aligned(64)));

static void fiber_begin(void)
{
	__sanitizer_finish_switch_fiber(NULL, &fiber.main_stack,
					&fiber.main_size);
	fiber.fn(fiber.arg);
	abort();
}

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr,
			  void *(*fn)(void *), void *arg)
{
	EXPECT(!attr && !fiber.fn);
	*t = pthread_self();
	fiber.fn = fn;
	fiber.arg = arg;
	EXPECT(!getcontext(&fiber.worker));
	fiber.worker.uc_stack.ss_sp = fiber_stack;
	fiber.worker.uc_stack.ss_size = sizeof(fiber_stack);
	makecontext(&fiber.worker, fiber_begin, 0);
	/* or what is known of its variables is forgotten at each change */
	fiber.worker.uc_stack.ss_size = 0;
	return 0;
}

/* Until it would sleep, or is to stop. */
static void fiber_go(void)
{
	EXPECT(!fiber.runs);
	if (fiber.wait && fiber.wait--)
		return;
	fiber.runs = true;
	__sanitizer_start_switch_fiber(&fiber.main_fake, fiber_stack,
				       sizeof(fiber_stack));
	EXPECT(!swapcontext(&fiber.main, &fiber.worker));
	__sanitizer_finish_switch_fiber(fiber.main_fake, NULL, NULL);
	fiber.runs = false;
}

static void fiber_stop(void)
{
	__sanitizer_start_switch_fiber(&fiber.worker_fake, fiber.main_stack,
				       fiber.main_size);
	EXPECT(!swapcontext(&fiber.worker, &fiber.main));
	__sanitizer_finish_switch_fiber(fiber.worker_fake, NULL, NULL);
}

/* Here something else may come between. */
static void fiber_place(void)
{
	if (fiber.runs && !fiber.locks && fiber.stop_in && !--fiber.stop_in)
		fiber_stop();
}

int __wrap_epoll_wait(int fd, struct epoll_event *ev, int max, int ms)
{
	int n;

	EXPECT(fiber.runs && !fiber.locks && (!ms || ms == -1));
	fiber_place();
	while (!(n = __real_epoll_wait(fd, ev, max, 0)) && ms)
		fiber_stop();
	return n;
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *m)
{
	fiber_place();
	fiber.locks += fiber.runs;
	/* a lock that is held would be waited for without end */
	EXPECT(!pthread_mutex_trylock(m));
	return 0;
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *m)
{
	fiber.locks -= fiber.runs;
	return __real_pthread_mutex_unlock(m);
}

struct dcm_slab *__wrap_dcm_slab_get(struct dcm_pool *pool, u64 id,
				     const struct dcm_session *session)
{
	struct dcm_slab *slab = __real_dcm_slab_get(pool, id, session);

	fiber_place();
	return slab;
}

void __wrap_dcm_slab_put(struct dcm_slab *slab)
{
	fiber_place();
	__real_dcm_slab_put(slab);
}

/* ---- no RDMA ---- */

const struct dcm_export_ops dcm_export_verbs = { .name = "verbs",
						 .slow = true };

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

struct dcm_rdma_pd *dcm_rdma_pd_get(struct dcm_rdma_pd *pd)
{
	return pd;
}

void dcm_rdma_pd_put(struct dcm_rdma_pd *pd)
{
	(void)pd;
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
		EXPECT(child_end < 0);
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

	EXPECT(sig == SIGKILL);
	c->killed = true;
	child_close(c);
	return 0;
}

/* One that was killed takes a while to go. */
pid_t __wrap_waitpid(pid_t pid, int *status, int options)
{
	struct child *c = child_of(pid);

	EXPECT(c->ended);
	if (options & WNOHANG && c->killed) {
		c->killed = false;
		return 0;
	}
	*status = SIGKILL;
	*c = (struct child){ .fd = -1 };
	return pid;
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
static u32 nr_sessions, key_file;
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
		EXPECT(ret == DCM_WIRE_OK);
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
		EXPECT(h->got[0] == 's');
		memmove(h->got, h->got + 1, --h->n);
		h->skip = 0;
	}
	host_heard(h);
}

static void turn(void)
{
	const struct dcm_tenant *t;

	uv_run(&donor.loop, UV_RUN_NOWAIT);
	jobs_turn();
	fiber_go();
	dcm_list_for_each(t, &donor.tenants.list, struct dcm_tenant, node)
		EXPECT(t->bytes <= t->quota_bytes);
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
	EXPECT(!__real_socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0,
				  pair));
	h->fd = pair[0];
	h->welcome = false;
	h->deaf = how & 0x20;
	h->half = how & 0x10;
	h->skip = h->half;
	dcm_conn_accept(&donor, &l->admission, pair[1], how & 4, &nobody);
	EXPECT(l->admission.nr_seats <= donor.cfg.handshakes);
	if (!(how & 8) && send(h->fd, record, 6, MSG_NOSIGNAL) != 6)
		EXPECT(false);
	sessions[nr_sessions % SESSIONS].tenant = who;
}

/* Whole, or what of it there is room for: the rest is not said. */
static void host_send(struct host *h, const void *bytes, size_t n)
{
	if (h->fd >= 0 &&
	    send(h->fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		EXPECT(errno == EAGAIN || errno == EPIPE ||
		       errno == ECONNRESET);
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
	host_say(h, &msg, page, how & 1 && bytes <= sizeof(page) ? bytes : 0,
		 how & 4 ? byte(in) * 40 : 0);
	/* its thread has its turn, or not yet */
	if (how & 8)
		fiber_go();
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
	now_ns += ms * 1000000ull;
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
	dcm_gc_session_reap(&donor);
	dcm_evict_proceed(&donor);
}

static void second(void)
{
	dcm_pool_sample(&donor.pool, true);
	if (!donor.draining) {
		dcm_pool_balance(&donor.pool);
		dcm_evict_start(&donor);
	}
	dcm_control_heartbeats(&donor);
}

static void capacity(u32 n)
{
	donor.cfg.capacity.bytes = n * SLAB;
	dcm_pool_limits(&donor.pool, &donor.cfg);
	dcm_tenants_quota(&donor.tenants, &donor.cfg, donor.pool.total);
	dcm_pool_balance(&donor.pool);
	dcm_evict_start(&donor);
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

	key_file = which % 3;
	snprintf(text, sizeof(text), "%s", files[key_file]);
	EXPECT(!dcm_tenants_parse(&donor.tenants, "keys", text, strlen(text),
				  err, sizeof(err)));
	dcm_tenants_quota(&donor.tenants, &donor.cfg, donor.pool.total);
}

/* How much the host has free, and whether a slab gets its pages. */
static void memory(u32 how)
{
	memory_free = MEMORY >> (how & 3) * 4;
	no_pages = how & 4;
}

/* When jobs are done, and where the data worker stops, and for how long. */
static void threads(u32 how)
{
	if (how & 0x80) {
		jobs_last_first = how & 0x40;
		jobs_wait = how & 7;
	} else {
		fiber.stop_in = 1 + (how & 15);
		fiber.wait = how >> 4;
	}
}

static void drain(void)
{
	donor.draining = true;
	donor.drain_deadline = dcm_now(&donor) + donor.cfg.drain_ms;
	dcm_evict_proceed(&donor);
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
		if (what < 0x80)
			capacity(what % 9);
		else if (what < 0xc0)
			threads(byte(in));
		else if (what < 0xe0)
			memory(what);
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
	dcm_admission_init(&donor.proven, 1);
	dcm_admission_init(&donor.listeners[0].admission, 2);
	dcm_admission_init(&donor.listeners[1].admission, 3);
	dcm_gc_session_start(&donor);
	EXPECT(donor.gc_path[0]);
	donor.tls = dcm_tls_server_new(NULL, NULL, err, sizeof(err));
	uv_loop_init(&donor.loop);
	EXPECT(!dcm_pool_init(&donor.pool, &donor.loop, &donor.cfg, err,
			    sizeof(err)));
	donor.pool.done = dcm_control_slab_gone;
	donor.pool.done_arg = &donor;
	EXPECT(!dcm_data_start(&donor, err, sizeof(err)));
	for (u32 i = 0; i < CONNS; i++) {
		hosts[i].fd = -1;
		hosts[i].got = malloc(HEARD);
		EXPECT(hosts[i].got);
	}
	for (u32 i = 0; i < CHILDREN; i++)
		children[i].fd = -1;
	keys(0);
}

static bool all_gone(void)
{
	const struct dcm_tenant *t;

	dcm_list_for_each(t, &donor.tenants.list, struct dcm_tenant, node)
		if (t->bytes || t->gc_bytes || t->workers || t->dying ||
		    t->connections || t->sessions || t->users)
			return false;
	for (u32 i = 0; i < 2; i++)
		if (donor.listeners[i].admission.nr_seats ||
		    donor.listeners[i].admission.nr_sources)
			return false;
	return !donor.nr_conns && !donor.nr_handshakes && !donor.nr_sessions &&
	       !donor.nr_lost && !donor.proven.nr_seats &&
	       !donor.proven.nr_sources && !donor.nr_gc_sessions &&
	       !donor.nr_dying && !donor.pool.charged &&
	       !donor.pool.nr_mapped && !donor.pool.nr_evicting &&
	       !donor.pool.nr_releasing && !donor.pool.nr_wants;
}

/* Hosts are gone: so is, when their patience is over, all that they had. */
static void finish(void)
{
	for (u32 i = 0; i < CONNS; i++)
		host_close(&hosts[i]);
	fiber.stop_in = fiber.wait = jobs_wait = 0;
	turn();
	/* then threads have slabs and data connections to give back */
	for (u32 i = 0; !all_gone(); i++) {
		EXPECT(i < 64);
		quarter(i < 7 ? 900 : 1900);
		turn();
	}
	EXPECT(!nr_jobs);
	donor.draining = false;
	donor.evict.asking = false;
	nr_sessions = 0;
	nr_slabs = 0;
	memset(sessions, 0, sizeof(sessions));
	memset(slabs, 0, sizeof(slabs));
}

/* As every input finds it. */
static void begin(void)
{
	memory(0);
	jobs_last_first = false;
	donor.pool.room_known = false;
	donor.pool.retry_at = 0;
	dcm_pool_sample(&donor.pool, true);
	if (key_file)
		keys(0);
	capacity(8);
	donor.quarter_at = dcm_now(&donor);
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
	begin();
	while (in.at < in.end)
		step(&in);
	finish();
	return 0;
}

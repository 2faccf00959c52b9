// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * fake_net.c - donors and the ways to them, as an input says
 *
 * Each connection of a host's is a peer here. What hosts say is decoded, which
 * has to succeed, and the latest requests are kept, so that an input can answer
 * them: well, or with anything in it changed.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "../../kvm-dcm/proto/wire.h"
#include "fake_net.h"

#define PEERS 24u
#define DONORS 6u
#define ASKS 8u
#define SLABS 16u
#define HEARD (2 * DCM_WIRE_MSG_MAX)
#define SLAB ((u64)DCM_WIRE_SLAB_MIN)
#define FDS 128

int __wrap_clock_gettime(clockid_t id, struct timespec *ts);
int __real_poll(struct pollfd *fds, nfds_t nr, int ms);
int __wrap_socket(int domain, int type, int protocol);
int __wrap_connect(int fd, const struct sockaddr *sa, socklen_t len);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *len);
int __wrap_getaddrinfo(const char *host, const char *port,
		       const struct addrinfo *hints, struct addrinfo **ai);
void __wrap_freeaddrinfo(struct addrinfo *ai);
DIR *__wrap_opendir(const char *path);
DIR *__real_opendir(const char *path);

/* A request of a host's; @session is HELLO's. */
struct ask {
	u16 type;
	u64 tag;
	u64 slab;
	u64 session;
	u32 bytes;
	u32 transports;
	bool plain;
};

/**
 * struct peer - a connection's other end
 * @host: the host's end, a number only; -1: it is another's by now
 * @donor: to which one
 * @phase: of what the host says
 * @greeted: the handshake's byte was said
 * @deaf: what the host says is not read
 * @got: bytes that are no whole message yet
 */
struct peer {
	int fd;
	int host;
	u32 donor;
	bool connected;
	bool greeted;
	bool deaf;
	enum dcm_wire_phase phase;
	size_t n;
	u32 nr_asks;
	struct ask ask[ASKS];
	u8 got[HEARD];
};

/**
 * struct donor - what one says when it says what is so
 * @willing: answers by itself
 */
struct donor {
	u64 id;
	bool willing;
	bool draining;
	bool verbs;
	u32 inflight;
	u64 free;
	u64 used;
	u64 slab_bytes;
};

/* Descriptors a donor may send. */
enum {
	FD_SLAB,
	FD_FILLED,
	FD_SMALL,
	FD_UNSEALED,
	FD_SEALED_WRITE,
	FD_READ_ONLY,
	FD_NULL,
	FD_PIPE,
	FD_KINDS
};

static struct peer peers[PEERS];
static struct donor donors[DONORS];
static int kinds[FD_KINDS];
static struct pollfd opened[FDS];
static u64 now_ns;
static u64 next_session, next_slab;
static u64 slabs[SLABS];
static u32 connect_how;
static bool ended;

/* ---- the clock, names, devices ---- */

int __wrap_clock_gettime(clockid_t id, struct timespec *ts)
{
	(void)id;
	ts->tv_sec = (time_t)(now_ns / 1000000000u);
	ts->tv_nsec = (long)(now_ns % 1000000000u);
	return 0;
}

void net_pass(u32 ms)
{
	now_ns += ms * 1000000ull;
}

static struct sockaddr_in address;
static struct addrinfo answer = {
	.ai_family = AF_INET,
	.ai_addr = (struct sockaddr *)&address,
	.ai_addrlen = sizeof(address),
};

int __wrap_getaddrinfo(const char *host, const char *port,
		       const struct addrinfo *hints, struct addrinfo **ai)
{
	(void)host;
	(void)hints;
	address.sin_family = AF_INET;
	address.sin_port = htons((u16)atoi(port));
	*ai = &answer;
	return 0;
}

void __wrap_freeaddrinfo(struct addrinfo *ai)
{
	EXPECT(ai == &answer);
}

/* Where RDMA devices are listed: there are some. */
DIR *__wrap_opendir(const char *path)
{
	return __real_opendir(!strcmp(path, "/sys/class/infiniband") ? "/" :
								       path);
}

/* ---- sockets ---- */

static void peer_close(struct peer *p)
{
	if (p->fd >= 0)
		close(p->fd);
	p->fd = -1;
	p->host = -1;
}

int __wrap_socket(int domain, int type, int protocol)
{
	struct peer *p = NULL;
	int pair[2];

	(void)domain;
	(void)protocol;
	for (u32 i = 0; i < PEERS; i++)
		if (peers[i].fd < 0)
			p = &peers[i];
	if (!p) {
		errno = EMFILE;
		return -1;
	}
	EXPECT(!socketpair(AF_UNIX, type, 0, pair));
	for (u32 i = 0; i < PEERS; i++)
		if (peers[i].host == pair[0])
			peers[i].host = -1;
	memset(p, 0, offsetof(struct peer, got));
	p->fd = pair[1];
	p->host = pair[0];
	p->phase = DCM_PHASE_HELLO;
	return pair[0];
}

static struct peer *peer_of(int host)
{
	for (u32 i = 0; i < PEERS; i++)
		if (peers[i].fd >= 0 && peers[i].host == host)
			return &peers[i];
	return NULL;
}

int __wrap_connect(int fd, const struct sockaddr *sa, socklen_t len)
{
	const struct sockaddr_in *in = (const void *)sa;
	const struct sockaddr_un *un = (const void *)sa;
	struct peer *p = peer_of(fd);

	(void)len;
	p->donor = sa->sa_family == AF_UNIX ?
			   (u32)atoi(un->sun_path + 2) % DONORS :
			   ntohs(in->sin_port) % DONORS;
	p->connected = !ended && connect_how < 3;
	if (donors[p->donor].willing && !ended)
		p->connected = true;
	if (p->connected && connect_how != 1)
		return 0;
	errno = !p->connected && connect_how == 4 ? ECONNREFUSED :
	       sa->sa_family == AF_UNIX		  ? EAGAIN :
						    EINPROGRESS;
	return -1;
}

int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
	const struct peer *p = peer_of(fd);
	int *err = value;

	(void)level;
	EXPECT(name == SO_ERROR && *len == sizeof(*err));
	*err = p && p->connected ? 0 : EHOSTUNREACH;
	return 0;
}

/* ---- descriptors ---- */

static int memory(u64 bytes, unsigned int seals)
{
	int fd = memfd_create("slab", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	EXPECT(fd >= 0 && !ftruncate(fd, (off_t)bytes));
	EXPECT(!fcntl(fd, F_ADD_SEALS, seals));
	return fd;
}

static void kinds_make(void)
{
	const unsigned int seals = F_SEAL_GROW | F_SEAL_SEAL;
	char path[64];
	int pair[2];

	kinds[FD_SLAB] = memory(SLAB, seals);
	kinds[FD_FILLED] = memory(SLAB, seals);
	EXPECT(!posix_fallocate(kinds[FD_FILLED], 0, (off_t)SLAB));
	kinds[FD_SMALL] = memory(SLAB / 2, seals);
	kinds[FD_UNSEALED] = memory(SLAB, 0);
	kinds[FD_SEALED_WRITE] = memory(SLAB, seals | F_SEAL_WRITE);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", kinds[FD_SLAB]);
	kinds[FD_READ_ONLY] = open(path, O_RDONLY | O_CLOEXEC);
	kinds[FD_NULL] = open("/dev/null", O_RDWR | O_CLOEXEC);
	EXPECT(!pipe2(pair, O_CLOEXEC));
	kinds[FD_PIPE] = pair[0];
	for (u32 i = 0; i < FD_KINDS; i++)
		EXPECT(kinds[i] >= 0);
}

/* ---- what donors say ---- */

/* Whole, or what of it there is room for, with @nr descriptors from @kind on. */
static void say_bytes(struct peer *p, const void *bytes, size_t n, u32 kind,
		      u32 nr)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(FD_KINDS * sizeof(int))];
	} control = { 0 };
	struct iovec iov = { (void *)bytes, n };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *cm = &control.align;

	if (p->fd < 0 || !n)
		return;
	if (nr) {
		cm->cmsg_level = SOL_SOCKET;
		cm->cmsg_type = SCM_RIGHTS;
		cm->cmsg_len = CMSG_LEN(nr * sizeof(int));
		for (u32 i = 0; i < nr; i++)
			memcpy(CMSG_DATA(cm) + i * sizeof(int),
			       &kinds[(kind + i) % FD_KINDS], sizeof(int));
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(nr * sizeof(int));
	}
	if (sendmsg(p->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		EXPECT(errno == EAGAIN || errno == EPIPE ||
		       errno == ECONNRESET || errno == ETOOMANYREFS);
}

/**
 * struct lie - how a message differs from what is so
 * @at: a byte of it has another @value; 0: none
 * @cut: only so many bytes are said; 0: all
 * @more: so many bytes of payload too many
 */
struct lie {
	u32 at;
	u8 value;
	u32 cut;
	u32 more;
	bool twice;
};

static void say(struct peer *p, struct dcm_wire_msg *msg, u32 payload, u32 kind,
		u32 nr, const struct lie *lie)
{
	static u8 buf[DCM_WIRE_MSG_MAX + 4096];
	size_t len;
	int n;

	msg->payload_bytes = payload;
	n = dcm_wire_encode(buf, sizeof(buf), msg);
	if (n < 0)
		return;
	len = (size_t)n;
	memset(buf + len, 0x5a, payload + lie->more);
	len += payload + lie->more;
	if (lie->at)
		buf[lie->at % (u32)n] = lie->value;
	if (lie->cut && lie->cut < len)
		len = lie->cut;
	say_bytes(p, buf, len, kind, nr);
	if (lie->twice)
		say_bytes(p, buf, len, kind, nr);
}

static void fill_welcome(struct peer *p, const struct ask *a,
			 struct dcm_wire_msg *msg)
{
	const struct donor *d = &donors[p->donor];

	msg->type = DCM_MSG_WELCOME;
	msg->welcome.version = DCM_WIRE_VERSION_MAX;
	msg->welcome.inflight_max = d->inflight;
	msg->welcome.session = a->session ? a->session : ++next_session;
	msg->welcome.slab_bytes = d->slab_bytes;
	msg->welcome.donor_id = d->id;
	if (p->phase == DCM_PHASE_DATA)
		msg->welcome.flags = a->plain ? DCM_WELCOME_PLAIN_DATA : 0;
	else
		msg->welcome.flags = d->verbs ? DCM_WELCOME_VERBS : 0;
	if (!a->session)
		memset(msg->welcome.secret, 7, sizeof(msg->welcome.secret));
}

static void fill_free(const struct donor *d, struct dcm_wire_msg *msg)
{
	msg->type = DCM_MSG_FREE_MEM;
	msg->free_mem.slabs_free = d->free;
	msg->free_mem.slabs_total = d->free + 4;
	msg->free_mem.slab_bytes = d->slab_bytes;
	msg->free_mem.used_bytes = d->used;
	msg->free_mem.flags = d->draining ? DCM_FREE_DRAINING : 0;
}

static void fill_slab(const struct donor *d, const struct ask *a,
		      struct dcm_wire_msg *msg)
{
	msg->type = DCM_MSG_MR_INFO;
	msg->mr_info.slab = ++next_slab;
	msg->mr_info.bytes = d->slab_bytes;
	msg->mr_info.transport = a->transports & DCM_WT_SHM ? DCM_WT_SHM :
				 a->transports & DCM_WT_TCP ? DCM_WT_TCP :
							      DCM_WT_VERBS;
	slabs[next_slab % SLABS] = next_slab;
}

/* What is asked for, or (@status) that it is refused. */
static void answer_ask(struct peer *p, const struct ask *a, u32 status,
		       const struct lie *lie)
{
	const struct donor *d = &donors[p->donor];
	struct dcm_wire_msg msg = { .tag = a->tag };
	u32 payload = 0, nr = 0;

	switch (a->type) {
	case DCM_MSG_HELLO:
		fill_welcome(p, a, &msg);
		break;
	case DCM_MSG_QUERY_MEM:
		fill_free(d, &msg);
		break;
	case DCM_MSG_MAP:
		fill_slab(d, a, &msg);
		nr = msg.mr_info.transport == DCM_WT_SHM;
		break;
	case DCM_MSG_UNMAP:
		msg.type = DCM_MSG_DONE;
		msg.slab.slab = a->slab;
		break;
	case DCM_MSG_ASK_TICKET:
		msg.type = DCM_MSG_TICKET;
		msg.ticket.number = a->tag;
		msg.ticket.port = 1;
		break;
	default: /* READ, WRITE */
		msg.type = a->type == DCM_MSG_READ ? DCM_MSG_DATA :
						     DCM_MSG_WRITTEN;
		msg.io_done.status = status;
		msg.io_done.bytes = status ? 0 : a->bytes;
		payload = a->type == DCM_MSG_READ && !status ? a->bytes : 0;
		status = 0;
	}
	if (status) {
		memset(&msg, 0, sizeof(msg));
		msg.type = DCM_MSG_ERROR;
		msg.tag = a->tag;
		msg.error.status = status;
		nr = 0;
	}
	/* every other slab is one whose pages are there already */
	say(p, &msg, payload, next_slab & 1, nr, lie);
}

static bool ask_take(struct peer *p, struct ask *a)
{
	if (!p->nr_asks)
		return false;
	*a = p->ask[0];
	p->nr_asks--;
	memmove(p->ask, p->ask + 1, p->nr_asks * sizeof(*a));
	return true;
}

/* ---- what hosts say ---- */

static void heard(struct peer *p, const struct dcm_wire_msg *m)
{
	struct ask a = { .type = m->type, .tag = m->tag };

	switch (m->type) {
	case DCM_MSG_HELLO:
		p->phase = m->hello.role == DCM_ROLE_CONTROL ?
				   DCM_PHASE_CONTROL :
				   DCM_PHASE_DATA;
		a.session = m->hello.session;
		a.plain = m->hello.flags & DCM_HELLO_PLAIN_DATA;
		break;
	case DCM_MSG_MAP:
		a.transports = m->map.transports;
		break;
	case DCM_MSG_UNMAP:
		a.slab = m->slab.slab;
		break;
	case DCM_MSG_READ:
	case DCM_MSG_WRITE:
		a.bytes = m->io.bytes;
		break;
	case DCM_MSG_QUERY_MEM:
	case DCM_MSG_ASK_TICKET:
		break;
	default:
		return;
	}
	if (p->nr_asks == ASKS)
		memmove(p->ask, p->ask + 1, --p->nr_asks * sizeof(a));
	p->ask[p->nr_asks++] = a;
}

static void peer_read(struct peer *p)
{
	struct dcm_wire_msg msg;
	size_t bytes, at = 0;
	ssize_t n;

	if (p->fd < 0)
		return;
	n = recv(p->fd, p->got + p->n, p->deaf ? 0 : HEARD - p->n,
		 MSG_DONTWAIT);
	if (p->deaf)
		return;
	if (n <= 0) {
		if (!n || errno != EAGAIN)
			peer_close(p);
		return;
	}
	p->n += (size_t)n;
	for (;; at += bytes) {
		int ret = dcm_wire_decode(p->got + at, p->n - at, p->phase,
					  DCM_SIDE_HOST, &msg, &bytes);

		if (ret == DCM_WIRE_MORE)
			break;
		EXPECT(ret == DCM_WIRE_OK);
		heard(p, &msg);
	}
	memmove(p->got, p->got + at, p->n - at);
	p->n -= at;
}

void net_turn(void)
{
	static const struct lie truth;
	struct ask a;

	for (u32 i = 0; i < PEERS; i++) {
		struct peer *p = &peers[i];

		peer_read(p);
		if (p->fd < 0 || !donors[p->donor].willing)
			continue;
		if (!p->greeted)
			say_bytes(p, "y", 1, 0, 0);
		p->greeted = true;
		while (ask_take(p, &a))
			answer_ask(p, &a, 0, &truth);
	}
}

/* ---- steps ---- */

static struct peer *some_peer(struct in *in)
{
	u32 first = byte(in);

	for (u32 i = 0; i < PEERS; i++)
		if (peers[(first + i) % PEERS].fd >= 0)
			return &peers[(first + i) % PEERS];
	return &peers[0];
}

static u64 some_slab(struct in *in)
{
	const u64 n = some(in, SLABS);

	return n < SLABS ? slabs[n] : n;
}

static void lie_read(struct in *in, struct lie *lie)
{
	const u32 how = byte(in);

	*lie = (struct lie){ .twice = how & 0x10 };
	if (how & 1) {
		lie->at = byte(in);
		lie->value = (u8)byte(in);
	}
	if (how & 2)
		lie->cut = byte(in) * (how & 8 ? 300 : 1);
	if (how & 4)
		lie->more = byte(in) * 16;
}

static void step_answer(struct in *in, bool lies, u32 which)
{
	struct peer *p = some_peer(in);
	struct lie lie = { 0 };
	struct ask a;

	if (lies)
		lie_read(in, &lie);
	/* not the oldest: out of order */
	for (u32 i = 0; i < (which >> 1) && p->nr_asks > 1; i++)
		ask_take(p, &a);
	if (ask_take(p, &a))
		answer_ask(p, &a, which & 1 ? (u32)some(in, 14) : 0, &lie);
}

static void step_say(struct in *in, u32 which)
{
	static const u16 types[] = {
		DCM_MSG_HEARTBEAT, DCM_MSG_FREE_MEM, DCM_MSG_CHECK_ACTIVITY,
		DCM_MSG_EVICT,	   DCM_MSG_DONE,     DCM_MSG_MR_INFO,
		DCM_MSG_ERROR,	   DCM_MSG_TICKET,
	};
	struct peer *p = some_peer(in);
	struct dcm_wire_msg msg = { .type = types[which] };
	const struct lie truth = { .twice = false };
	u32 nr = 0;

	msg.tag = some(in, 32);
	switch (msg.type) {
	case DCM_MSG_FREE_MEM:
		msg.free_mem.slabs_free = some(in, 4);
		msg.free_mem.slabs_total = some(in, 8);
		msg.free_mem.slab_bytes = some(in, 2) * SLAB;
		msg.free_mem.used_bytes = some(in, 8) * SLAB;
		msg.free_mem.flags = byte(in) & 1;
		break;
	case DCM_MSG_MR_INFO:
		msg.mr_info.slab = some_slab(in);
		msg.mr_info.bytes = (1 + some(in, 1)) * SLAB;
		msg.mr_info.addr = some(in, 2);
		msg.mr_info.rkey = (u32)some(in, 2);
		msg.mr_info.transport = 1u << byte(in) % 3;
		nr = byte(in) % 3;
		break;
	case DCM_MSG_ERROR:
		msg.error.status = (u32)some(in, 14);
		break;
	case DCM_MSG_TICKET:
		msg.ticket.port = (u16)some(in, 4);
		memset(msg.ticket.addr, (int)byte(in), 12);
		break;
	case DCM_MSG_HEARTBEAT:
		break;
	default:
		msg.slab.slab = some_slab(in);
	}
	say(p, &msg, 0, byte(in), nr, &truth);
}

/* Of the handshake, and how connecting goes from now on. */
static void step_connect(struct in *in, u32 which)
{
	static const char bytes[] = "yyynnyz\0";

	struct peer *p;

	connect_how = byte(in) % 5;
	p = some_peer(in);
	say_bytes(p, bytes + which, 1, 0, 0);
	p->greeted = true;
}

static void step_junk(struct in *in)
{
	struct peer *p = some_peer(in);
	u8 buf[64];
	const u32 n = byte(in) % sizeof(buf);

	for (u32 i = 0; i < n; i++)
		buf[i] = (u8)byte(in);
	say_bytes(p, buf, n, 0, 0);
}

static void step_leave(struct in *in, u32 which)
{
	struct peer *p = some_peer(in);

	if (which & 1)
		p->deaf ^= 1;
	else if (which & 2 && p->fd >= 0)
		shutdown(p->fd, which & 4 ? SHUT_WR : SHUT_RDWR);
	else
		peer_close(p);
}

/* With a beat: descriptors that nobody asked for. */
static void step_fds(struct in *in, u32 which)
{
	struct dcm_wire_msg msg = { .type = DCM_MSG_HEARTBEAT };
	const struct lie truth = { .twice = false };
	struct peer *p = some_peer(in);

	say(p, &msg, 0, byte(in), 1 + which % FD_KINDS, &truth);
}

/* What it is that donors say, if it is so. */
static void step_donor(struct in *in, u32 which)
{
	struct donor *d = &donors[which % DONORS];
	const u32 how = byte(in);

	d->willing = how & 1;
	d->draining = (how & 6) == 6;
	d->verbs = how & 8;
	d->free = how >> 4 & 7;
	if (how & 0x80) {
		d->id = some(in, 4);
		d->inflight = (u32)some(in, 300);
		d->used = some(in, 4);
		d->slab_bytes = SLAB * (1 + some(in, 2));
	}
}

void net_step(struct in *in, u32 kind, u32 which)
{
	switch (kind) {
	case 0:
		step_donor(in, which);
		break;
	case 1:
	case 2:
		step_answer(in, kind == 2, which);
		break;
	case 3:
		step_say(in, which);
		break;
	case 4:
		step_connect(in, which);
		break;
	case 5:
		step_junk(in);
		break;
	case 6:
		step_leave(in, which);
		break;
	case 7:
		step_fds(in, which);
		break;
	default:
		/* all of them, for a while */
		for (u32 i = 0; i < DONORS; i++)
			donors[i].willing = which & 1;
	}
}

/* Which are open, now and between any two inputs: poll() says that of all at once. */
static void descriptors_see(void)
{
	for (int fd = 0; fd < FDS; fd++)
		opened[fd] = (struct pollfd){
			.fd = fd,
			.events = fcntl(fd, F_GETFD) >= 0,
		};
}

void net_begin(void)
{
	if (!kinds[0])
		kinds_make();
	if (!opened[1].fd)
		descriptors_see();
	for (u32 i = 0; i < PEERS; i++)
		peers[i].fd = peers[i].host = -1;
	for (u32 i = 0; i < DONORS; i++)
		donors[i] = (struct donor){ .id = i + 1,
					    .inflight = 16,
					    .free = 4,
					    .slab_bytes = SLAB };
	memset(slabs, 0, sizeof(slabs));
	now_ns = 1000000000u;
	next_session = 0;
	next_slab = 0;
	connect_how = 0;
	ended = false;
}

void net_end(void)
{
	ended = true;
	for (u32 i = 0; i < PEERS; i++)
		peer_close(&peers[i]);
	for (u32 i = 0; i < DONORS; i++)
		donors[i].willing = false;
}

void net_left(void)
{
	for (u32 i = 0; i < PEERS; i++)
		peer_close(&peers[i]);
	__real_poll(opened, FDS, 0);
	for (int fd = 0; fd < FDS; fd++)
		EXPECT(!opened[fd].events == !!(opened[fd].revents & POLLNVAL));
}

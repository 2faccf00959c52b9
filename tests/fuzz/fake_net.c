// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * fake_net.c - the ways to donors, as an input says
 *
 * Each connection of a host's is a peer here. Messages of hosts are decoded, which
 * has to succeed, and the latest requests are kept, so that donors can answer
 * them (fake_donors.c).
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "fake_donors.h"
#include "fake_net.h"

#define PEERS 24u
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

static struct peer peers[PEERS];
static struct pollfd opened[FDS];
static u64 now_ns;
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
	if (donor_willing(p->donor) && !ended)
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
	case DCM_MSG_LIST:
		a.slab = m->list.after;
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
	for (u32 i = 0; i < PEERS; i++) {
		peer_read(&peers[i]);
		if (peers[i].fd >= 0 && donor_willing(peers[i].donor))
			donor_answer_all(&peers[i]);
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

/* Of the handshake, and how connecting goes from now on. */
static void step_connect(struct in *in, u32 which)
{
	static const char bytes[] = "yyynnyz\0";

	struct peer *p;

	connect_how = byte(in) % 5;
	p = some_peer(in);
	peer_say(p, bytes + which, 1, 0, 0);
	p->greeted = true;
}

static void step_junk(struct in *in)
{
	struct peer *p = some_peer(in);
	u8 buf[64];
	const u32 n = byte(in) % sizeof(buf);

	for (u32 i = 0; i < n; i++)
		buf[i] = (u8)byte(in);
	peer_say(p, buf, n, 0, 0);
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

void net_step(struct in *in, u32 kind, u32 which)
{
	switch (kind) {
	case 0:
		donor_step(in, which);
		break;
	case 1:
	case 2:
		donor_answer_step(some_peer(in), in, kind == 2, which);
		break;
	case 3:
		donor_say_step(some_peer(in), in, which);
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
		donor_fds_step(some_peer(in), in, which);
		break;
	default:
		/* all of them, for a while */
		donors_willing(which & 1);
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
	donors_begin();
	if (!opened[1].fd)
		descriptors_see();
	for (u32 i = 0; i < PEERS; i++)
		peers[i].fd = peers[i].host = -1;
	now_ns = 1000000000u;
	connect_how = 0;
	ended = false;
}

void net_end(void)
{
	ended = true;
	for (u32 i = 0; i < PEERS; i++)
		peer_close(&peers[i]);
	donors_willing(false);
}

void net_left(void)
{
	for (u32 i = 0; i < PEERS; i++)
		peer_close(&peers[i]);
	__real_poll(opened, FDS, 0);
	for (int fd = 0; fd < FDS; fd++)
		EXPECT(!opened[fd].events == !!(opened[fd].revents & POLLNVAL));
}

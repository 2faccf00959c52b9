// SPDX-License-Identifier: GPL-2.0-or-later
/* links: kvm-dcm/client/conn.c kvm-dcm/client/client.c kvm-dcm/client/address.c kvm-dcm/client/data.c kvm-dcm/client/donor.c kvm-dcm/client/lane.c kvm-dcm/client/member.c kvm-dcm/client/exposed.c kvm-dcm/client/tier.c kvm-dcm/client/placement.c kvm-dcm/client/request.c kvm-dcm/client/list.c kvm-dcm/client/orphan.c kvm-dcm/client/session.c kvm-dcm/client/slab_map.c kvm-dcm/client/slab.c kvm-dcm/client/status.c kvm-dcm/client/verbs.c kvm-dcm/lib/log.c kvm-dcm/lib/tls.c kvm-dcm/transport/shm.c kvm-dcm/transport/socket.c kvm-dcm/transport/tcp.c kvm-dcm/transport/verbs.c kvm-dcm/client/activity.c kvm-dcm/client/choose.c kvm-dcm/proto/wire.c tests/fuzz/fake_donors.c tests/fuzz/fake_links.c tests/fuzz/fake_net.c tests/fuzz/fake_pager.c tests/fuzz/plain_tls.c tests/fuzz/sockets.c kvm-dcm/client/redundancy.c */
/* libs: -lrdmacm -libverbs -Wl,--wrap=socketpair,--wrap=setsockopt,--wrap=send,--wrap=recv,--wrap=sendmsg,--wrap=recvmsg,--wrap=read,--wrap=write,--wrap=shutdown,--wrap=close,--wrap=poll,--wrap=eventfd,--wrap=clock_gettime,--wrap=socket,--wrap=connect,--wrap=getsockopt,--wrap=getaddrinfo,--wrap=freeaddrinfo,--wrap=opendir,--wrap=pthread_join,--wrap=pthread_setname_np,--wrap=pthread_cond_timedwait,--wrap=mmap,--wrap=munmap,--wrap=madvise,--wrap=calloc,--wrap=free */
/*
 * client_fuzz.c - libFuzzer on what donors say to a host, over all connections
 *
 * An input is all that happens to a control plane: connections that are made or
 * not, donors that say anything on them, whole, in parts or as junk, answer well
 * by themselves for a while, send descriptors, do not read, hang up; a pager that
 * wants extents and gives slabs back, lanes with operations on them, donors
 * added, drained and removed, copies that are to be more or fewer; time passes.
 * Donors answer with names and tags that the host has sent.
 *
 * Whatever happens: the pager gets only the calls that fake_pager.c allows; the
 * host's own codec decodes every message that the host sends; the host's lists and
 * counters fit each other; and once donors are gone for good and the pager has
 * released all, no slab, mapping or descriptor is left.
 *
 * The real control thread's loop runs, in this thread: its poll() takes an input's
 * steps. The harness replaces the cipher, the clock, connect(), name lookup and
 * RDMA; donors are in fake_donors.c, links in fake_links.c, sockets in sockets.c.
 */
#include <errno.h>
#include <poll.h>
#include <sanitizer/asan_interface.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "../../kvm-dcm/client/client_int.h"
#include "../../kvm-dcm/lib/thread.h"
#include "fake_links.h"
#include "fake_net.h"
#include "fake_pager.h"
#include "input.h"
#include "sockets.h"

#define SLAB ((u64)DCM_WIRE_SLAB_MIN)
#define DONORS 6u /* names there are */
#define CALM 2000u /* rounds */
/*
 * Rounds until donors that are gone hold nothing: a read ends behind each message
 * with descriptors, and of those a socket holds SOCKETS_PARCELS.
 */
#define GONE (64 + SOCKETS_PARCELS)

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int __wrap_poll(struct pollfd *fds, nfds_t nr, int ms);
int __wrap_pthread_join(pthread_t t, void **ret);
int __wrap_pthread_setname_np(pthread_t t, const char *name);
int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m,
				  const struct timespec *end);
void *__real_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t o);
int __real_munmap(void *at, size_t bytes);
void *__wrap_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t o);
int __wrap_munmap(void *at, size_t bytes);
int __wrap_madvise(void *at, size_t bytes, int advice);
void *__real_calloc(size_t n, size_t size);
void __real_free(void *p);
void *__wrap_calloc(size_t n, size_t size);
void __wrap_free(void *p);

static struct dcm_client *client;
static struct in in;
static void *(*thread_fn)(void *);
static void *thread_arg;
static u32 nr_maps;
static bool anew; /* poll() has to be called with other sockets */
static bool no_populate; /* it fails */
static u32 busy; /* rounds in which there was something to do */

/* ---- what is not the control plane's ---- */

__thread int dcm_thread_inside;

int dcm_thread_start(pthread_t *t, void *(*fn)(void *), void *arg)
{
	*t = pthread_self();
	thread_fn = fn;
	thread_arg = arg;
	return 0;
}

int __wrap_pthread_join(pthread_t t, void **ret)
{
	(void)t;
	(void)ret;
	return 0;
}

int __wrap_pthread_setname_np(pthread_t t, const char *name)
{
	(void)t;
	(void)name;
	return 0;
}

/* A thread that asks about a donor waits here for the control thread. */
int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m,
				  const struct timespec *end)
{
	(void)c;
	(void)end;
	/* it may close sockets of which poll() was told */
	anew |= client->ask.op == ASK_REDUNDANCY;
	pthread_mutex_unlock(m);
	client_member_step(client, client_now_ms());
	pthread_mutex_lock(m);
	return 0;
}

void *__wrap_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t o)
{
	void *p = __real_mmap(at, bytes, prot, flags, fd, o);

	nr_maps += p != MAP_FAILED;
	return p;
}

int __wrap_munmap(void *at, size_t bytes)
{
	EXPECT(nr_maps);
	nr_maps--;
	return __real_munmap(at, bytes);
}

/*
 * The control plane's donors are more than a megabyte, of which little is used: an
 * allocator would clear, poison and map all of it each time.
 */
static struct client_donor room[DCM_CONFIG_DONORS_MAX];
static u32 room_used; /* donors of the last one */
static bool room_taken;

UNTRACED void *__wrap_calloc(size_t n, size_t size)
{
	if (n != DCM_CONFIG_DONORS_MAX || size != sizeof(*room))
		return __real_calloc(n, size);
	EXPECT(!room_taken);
	room_taken = true;
	ASAN_UNPOISON_MEMORY_REGION(room, sizeof(room));
	memset(room, 0, room_used * sizeof(*room));
	room_used = 0;
	return room;
}

UNTRACED void __wrap_free(void *p)
{
	if (p != room) {
		__real_free(p);
		return;
	}
	EXPECT(room_taken && room_used);
	room_taken = false;
	ASAN_POISON_MEMORY_REGION(room, sizeof(room));
}

/* Slabs are not populated: that takes longer than all the rest. It may fail. */
int __wrap_madvise(void *at, size_t bytes, int advice)
{
	EXPECT(at && bytes);
	if (advice != MADV_POPULATE_READ || !no_populate)
		return 0;
	errno = EFAULT;
	return -1;
}

/* ---- what has to be so at any time ---- */

UNTRACED static u32 jobs_of(u32 extent)
{
	u32 n = 0;

	for (u32 i = 0; i < CLIENT_JOBS; i++)
		n += client->job[i].st != JOB_FREE &&
		     client->job[i].extent == extent;
	return n;
}

/* Members of an extent are on different donors, and not too many. */
UNTRACED static void members_check(u32 extent)
{
	const struct dcm_client_slab *s = client->of_extent[extent];
	u64 donors = 0;

	EXPECT(client_slab_members(client, extent) <= client->copies ||
	       client->uneven);
	for (; s; s = s->next_of_extent) {
		if (!s->member)
			continue;
		EXPECT(!(donors >> s->donor & 1));
		donors |= 1ull << s->donor;
	}
}

UNTRACED static void slabs_check(void)
{
	u64 mine[DCM_CONFIG_DONORS_MAX] = { 0 };
	const struct dcm_client_slab *s;
	u32 n = 0;

	for (s = client->slabs; s; s = s->next) {
		EXPECT(++n <= 4096 && s->extent < client->nr_extents);
		EXPECT(s->donor < client->nr_donors &&
		       s->state <= SLAB_UNMAPPING);
		mine[s->donor] += !s->dead && !s->disowned;
		EXPECT(!s->member || (!s->dead && s->state == SLAB_ATTACHED));
	}
	for (u32 i = 0; i < EXTENTS; i++)
		members_check(i);
	for (u32 i = 0; i < CLIENT_JOBS; i++)
		if (client->job[i].st == JOB_MAP)
			mine[client->job[i].pick[0]]++;
	for (u32 i = 0; i < client->nr_donors; i++)
		EXPECT(mine[i] == client->donor[i].load.mine);
}

UNTRACED static void conn_check(const struct dcm_conn *c)
{
	EXPECT(c->nr_fds <= DCM_CONN_FDS_MAX &&
	       c->in_len <= DCM_WIRE_HEAD_MAX &&
	       c->out_len <= DCM_CONN_OUT_MAX);
}

UNTRACED static void check(void)
{
	u32 pending = 0;

	slabs_check();
	pager_check();
	for (u32 i = 0; i < EXTENTS; i++) {
		pending += bit_test(client->pending, i);
		EXPECT(jobs_of(i) == bit_test(client->placing, i));
		EXPECT(!bit_test(client->pending, i) ||
		       !bit_test(client->placing, i));
	}
	EXPECT(pending == client->nr_pending);
	for (u32 i = 0; i < client->nr_donors; i++) {
		conn_check(&client->donor[i].conn);
		for (u32 lane = 0; lane < client->nr_lanes; lane++)
			conn_check(&client->donor[i].slot[lane].conn);
	}
}

/* ---- steps ---- */

static void donor_name(struct dcm_host_donor *d, u32 i)
{
	memset(d, 0, sizeof(*d));
	snprintf(d->name, sizeof(d->name), "d%u", i);
	/* every third is on this host */
	snprintf(d->address, sizeof(d->address),
		 i % 3 == 2 ? "unix:/d%u" : "tcp:10.0.0.1:%u", i);
	strcpy(d->group, i & 2 ? "rack" : "");
}

static void member_step(void)
{
	const u32 how = byte(&in);
	struct dcm_host_donor d;

	donor_name(&d, (how >> 2) % DONORS);
	switch (how & 3) {
	case 0:
		dcm_client_donor_add(client, &d);
		break;
	case 1:
		dcm_client_donor_drain(client, d.name, how & 0x40);
		break;
	case 2:
		dcm_client_donor_remove(client, d.name);
		break;
	default:
		if (how & 0x80) {
			pager_many();
			dcm_client_redundancy_set(client, how >> 4 & 7);
			break;
		}
		links_set(how >> 2);
		no_populate = how & 0x40;
	}
}

static u32 step(void)
{
	const u32 what = byte(&in);

	switch (what % 16) {
	case 0:
	case 1:
		pager_want(what >> 4);
		break;
	case 2:
		pager_slab_step(&in);
		break;
	case 3:
	case 4:
		pager_lane_step(&in);
		break;
	case 5:
		member_step();
		break;
	case 6:
		net_pass(byte(&in) * (what & 0x40 ? 40 : 1));
		break;
	default:
		net_step(&in, what % 16 - 7, what >> 4 & 7);
	}
	return what;
}

/* ---- the control thread's poll() ---- */

static bool all_gone(void)
{
	return pager_idle() && !client->slabs;
}

/* Donors are gone, and the pager gives up all it has. */
static bool finish(void)
{
	static u32 rounds;

	if (!rounds)
		net_end();
	pager_release();
	/* longer, and the client would take it for a stop of this host */
	net_pass(350);
	EXPECT(++rounds < GONE);
	/* a session that was not heard of for the patience is none */
	if (rounds < 20 || !all_gone())
		return false;
	rounds = 0;
	return true;
}

/* With nothing said and no time passing there comes an end of what to do. */
static void calm(int ms, int ready, bool *calmed)
{
	*calmed |= ms && !ready;
	busy = ms && !ready ? 0 : busy + 1;
	EXPECT(busy < CALM);
}

int __wrap_poll(struct pollfd *fds, nfds_t nr, int ms)
{
	static bool calmed;
	const bool more = in.at < in.end;
	int n;

	if (!client || fds != client->fds)
		return sockets_poll(fds, nr);
	check();
	if (more)
		while (step() & 0x80 && in.at < in.end)
			;
	else if (calmed && finish())
		client->stop = true;
	if (anew) {
		anew = false;
		for (nfds_t i = 0; i < nr; i++)
			fds[i].revents = 0;
		return 0;
	}
	net_turn();
	n = sockets_poll(fds, nr);
	if (more || client->stop)
		calmed = false;
	else
		calm(ms, n, &calmed);
	if (!n)
		net_pass((u32)ms);
	return n;
}

/* ---- a control plane's life ---- */

static void life(void)
{
	static const u8 key[DCM_WIRE_KEY_MIN];
	const u32 how = byte(&in), donors = byte(&in);
	struct dcm_host_donor names[3];
	struct dcm_client_config cfg = {
		.donors = names,
		.nr_donors = donors % 4,
		.tenant = "t",
		.key = key,
		.key_len = sizeof(key),
		.nr_lanes = LANES,
		.size = EXTENTS * SLAB,
		.extent = how & 1 ? SLAB : 0,
		.data_encryption = how & 2,
		.transport = (how >> 2 & 3) % 3,
		.no_populate = how & 0x10,
		.seed = 1 + how,
		.links = how & 0x20 ? &fake_links : NULL,
		.patience_ms = DCM_WIRE_SILENCE_MS,
		.redundancy = (how >> 6) % DCM_REDUNDANCY_NR,
	};

	for (u32 i = 0; i < 3; i++)
		donor_name(&names[i], i + (donors >> 2 & 1));
	/* there is no device but with links */
	if (cfg.transport == DCM_TRANSPORT_VERBS &&
	    (cfg.data_encryption || !cfg.links))
		cfg.transport = DCM_TRANSPORT_TCP;
	links_set(4);
	no_populate = false;
	client = pager_start(&cfg);
	EXPECT(client->nr_extents == EXTENTS);
	thread_fn(thread_arg);
	/* and one that was refused */
	room_used = min(client->nr_donors + 1, DCM_CONFIG_DONORS_MAX);
	dcm_client_stop(client);
	client = NULL;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	signal(SIGPIPE, SIG_IGN);
	dcm_log_setup((enum dcm_log_level)0, -1);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size > 1024)
		return 0;
	in = (struct in){ data, data + size };
	busy = 0;
	net_begin();
	life();
	net_left();
	EXPECT(!links_paired() && !nr_maps && !sockets_open());
	return 0;
}

// SPDX-License-Identifier: GPL-2.0-or-later
/* links: kvm-dcm/client/conn.c kvm-dcm/client/client.c kvm-dcm/client/address.c kvm-dcm/client/data.c kvm-dcm/client/donor.c kvm-dcm/client/lane.c kvm-dcm/client/member.c kvm-dcm/client/placement.c kvm-dcm/client/request.c kvm-dcm/client/session.c kvm-dcm/client/slab_map.c kvm-dcm/client/slab.c kvm-dcm/client/status.c kvm-dcm/client/verbs.c kvm-dcm/lib/log.c kvm-dcm/lib/tls.c kvm-dcm/transport/shm.c kvm-dcm/transport/tcp.c kvm-dcm/transport/verbs.c kvm-dcm/client/activity.c kvm-dcm/client/choose.c kvm-dcm/proto/wire.c tests/fuzz/fake_net.c tests/fuzz/plain_tls.c tests/fuzz/sockets.c */
/* libs: -lrdmacm -libverbs -Wl,--wrap=socketpair,--wrap=setsockopt,--wrap=send,--wrap=recv,--wrap=sendmsg,--wrap=recvmsg,--wrap=read,--wrap=write,--wrap=shutdown,--wrap=close,--wrap=poll,--wrap=eventfd,--wrap=clock_gettime,--wrap=socket,--wrap=connect,--wrap=getsockopt,--wrap=getaddrinfo,--wrap=freeaddrinfo,--wrap=opendir,--wrap=pthread_join,--wrap=pthread_setname_np,--wrap=pthread_cond_timedwait,--wrap=mmap,--wrap=munmap,--wrap=madvise,--wrap=calloc,--wrap=free */
/*
 * client_fuzz.c - libFuzzer on what donors say to a host, over all connections
 *
 * An input is all that happens to a control plane: connections that are made or
 * not, donors that say anything on them, whole, in parts or as junk, answer well
 * by themselves for a while, send descriptors, do not read, hang up; a pager that
 * wants extents and gives slabs back, lanes with operations on them, donors
 * added, drained and removed; time passes. Names and tags are what the host has
 * said.
 *
 * Whatever happens: an extent gets a slab only if it was asked for, and no second
 * one unless that was; every callback comes as client.h says; every operation
 * completes once; what the host sends is what its own codec takes; its lists and
 * counters fit each other; and once donors are gone for good and the pager has
 * released all, no slab, mapping or descriptor is left.
 *
 * The real control thread's loop runs, in this thread: its poll() is where an
 * input's steps are taken. In its place the harness has the cipher, the clock,
 * connect(), name lookup and RDMA; sockets are sockets.c's.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sanitizer/asan_interface.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "../../kvm-dcm/client/client_int.h"
#include "../../kvm-dcm/lib/thread.h"
#include "fake_net.h"
#include "input.h"
#include "sockets.h"

#define EXTENTS 6u
#define LANES 2u
#define SLAB ((u64)DCM_WIRE_SLAB_MIN)
#define DONORS 6u /* names there are */
#define HELD 48u
#define IOS 24u
#define CALM 2000u /* rounds */
/*
 * Rounds until donors that are gone hold nothing: a read ends behind each message
 * with descriptors, and of those a socket holds SOCKETS_PARCELS.
 */
#define GONE (32 + SOCKETS_PARCELS)

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

/**
 * struct held - a slab the pager has, or its operations still use
 * @dropped: released: no callback names it any more
 */
struct held {
	struct dcm_client_slab *slab;
	u32 extent;
	u32 in_flight;
	bool evicted;
	bool lost;
	bool dropped;
};

struct op {
	struct dcm_io io;
	struct held *held;
	u32 lane;
	bool shm;
	bool busy;
	u8 *buf;
};

/* A queue pair of links: it never carries anything. */
struct pair {
	struct dcm_endpoint ep;
	bool up;
	bool dead;
};

static struct dcm_client *client;
static struct in in;
static void *(*thread_fn)(void *);
static void *thread_arg;

static struct held held[HELD];
static struct held *current[EXTENTS];
/* asked for and not to be forgotten, asked for, asked for besides @current */
static bool wanted[EXTENTS], asked[EXTENTS], other[EXTENTS], starved[EXTENTS];
static bool session_on[DCM_CONFIG_DONORS_MAX];
static struct op ops[IOS];
static u32 nr_pairs, nr_maps, pair_how;
static bool use_links, polling;
static u64 fenced; /* donors, a bit each, while polling */
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

/* Who asks about a donor waits here for the control thread. */
int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m,
				  const struct timespec *end)
{
	(void)c;
	(void)end;
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
	if (advice != MADV_POPULATE_READ || !(pair_how & 0x10))
		return 0;
	errno = EFAULT;
	return -1;
}

/* ---- the pager: callbacks ---- */

static struct held *held_of(const struct dcm_client_slab *slab)
{
	for (u32 i = 0; i < HELD; i++)
		if (held[i].slab == slab && !held[i].dropped)
			return &held[i];
	abort();
}

static void drop(struct held *h)
{
	if (current[h->extent] == h)
		current[h->extent] = NULL;
	h->dropped = true;
	dcm_client_release(client, h->slab);
	if (!h->in_flight)
		h->slab = NULL;
}

static void cb_attached(void *arg, u32 extent, struct dcm_client_slab *slab)
{
	struct held *h = NULL;

	(void)arg;
	EXPECT(extent < EXTENTS && slab->extent == extent);
	EXPECT(slab->ref.bytes == client->extent_bytes);
	EXPECT((slab->transport == DCM_WT_SHM) ==
	     (slab->ref.map && slab->ref.fd >= 0));
	EXPECT(asked[extent] && (!current[extent] || other[extent]));
	wanted[extent] = false;
	asked[extent] = bit_test(client->want, extent);
	other[extent] = false;
	starved[extent] = false;
	for (u32 i = 0; i < HELD; i++) {
		EXPECT(!held[i].slab || held[i].dropped ||
		       held[i].slab != slab);
		if (!held[i].slab)
			h = &held[i];
	}
	if (!h) {
		current[extent] = NULL;
		dcm_client_release(client, slab);
		return;
	}
	*h = (struct held){ .slab = slab, .extent = extent };
	current[extent] = h;
}

static void want_other(struct held *h)
{
	/* of one that is not the newest: nothing is done */
	if (!current[h->extent] || current[h->extent] == h)
		wanted[h->extent] = true;
	asked[h->extent] = true;
	if (current[h->extent] == h)
		other[h->extent] = true;
	dcm_client_want_other(client, h->slab);
}

static void cb_evict(void *arg, struct dcm_client_slab *slab)
{
	struct held *h = held_of(slab);

	(void)arg;
	EXPECT(!h->evicted && !h->lost);
	h->evicted = true;
	want_other(h);
}

static void cb_lost(void *arg, struct dcm_client_slab *slab,
		    const struct dcm_host_donor *donor)
{
	struct held *h = held_of(slab);

	(void)arg;
	EXPECT(!h->lost && slab->dead && strlen(donor->name) <= DCM_NAME_MAX &&
	     strlen(donor->address) <= DCM_ADDRESS_MAX);
	h->lost = true;
	if (current[h->extent] == h)
		current[h->extent] = NULL;
}

static void cb_starved(void *arg, u32 extent)
{
	(void)arg;
	EXPECT(extent < EXTENTS && asked[extent] && !starved[extent]);
	starved[extent] = true;
}

static void cb_session(void *arg, u32 donor, const struct dcm_client_session *s)
{
	(void)arg;
	EXPECT(donor < DCM_CONFIG_DONORS_MAX);
	EXPECT(!s || (s->id && !session_on[donor]));
	session_on[donor] = s;
}

static void cb_donor(void *arg, u32 donor, const struct dcm_host_donor *d)
{
	(void)arg;
	EXPECT(donor < DCM_CONFIG_DONORS_MAX && d->name[0] == 'd');
}

/* All that was posted over the older connection has been polled. */
UNTRACED static void fenced_check(u32 lane, u64 donors)
{
	for (u32 i = 0; i < IOS; i++)
		EXPECT(!ops[i].busy || ops[i].shm || ops[i].lane != lane ||
		     !(donors >> ops[i].held->slab->donor & 1));
}

static void cb_fenced(void *arg, u32 lane, u32 donor)
{
	(void)arg;
	/* what dcm_client_io_poll() is about to return counts as polled */
	if (polling)
		fenced |= 1ull << donor;
	else
		fenced_check(lane, 1ull << donor);
}

static const struct dcm_client_ops callbacks = {
	.attached = cb_attached,
	.evict = cb_evict,
	.lost = cb_lost,
	.starved = cb_starved,
	.session = cb_session,
	.donor = cb_donor,
	.fenced = cb_fenced,
};

/* ---- lanes ---- */

static void post(u32 lane, u32 how, struct held *h)
{
	struct op *op = NULL;

	for (u32 i = 0; i < IOS; i++)
		if (!ops[i].busy)
			op = &ops[i];
	if (!op || !h->slab || h->dropped)
		return;
	*op = (struct op){ .held = h, .lane = lane };
	op->shm = h->slab->transport == DCM_WT_SHM;
	op->io.slab = &h->slab->ref;
	op->io.op = how & 1 ? DCM_IO_WRITE : DCM_IO_READ;
	op->io.bytes = (1 + (how >> 1) % 16) * 4096;
	op->io.offset = (u64)(how >> 5) * 65536;
	op->io.status = 1;
	op->buf = calloc(1, op->io.bytes);
	op->io.data = op->buf;
	EXPECT(op->buf);
	op->busy = !dcm_client_io_post(client, lane, &op->io);
	if (op->busy)
		h->in_flight++;
	else
		free(op->buf);
}

static void lane_poll(u32 lane, int max)
{
	struct dcm_io *io, *next;
	int n, seen = 0;

	dcm_client_io_flush(client, lane);
	polling = true;
	n = dcm_client_io_poll(client, lane, &io, max);
	polling = false;
	for (; io; io = next) {
		struct op *op = container_of(io, struct op, io);

		next = io->next;
		seen++;
		EXPECT(op->busy && op->lane == lane && io->status <= 0);
		op->busy = false;
		free(op->buf);
		if (!--op->held->in_flight && op->held->dropped)
			op->held->slab = NULL;
	}
	EXPECT(seen == n && n <= max);
	fenced_check(lane, fenced);
	fenced = 0;
}

static void lane_step(void)
{
	const u32 how = byte(&in), lane = how % LANES;
	struct pollfd fds[DCM_CLIENT_FDS_MAX];

	if (use_links) {
		dcm_client_lane_look(client, lane);
		return;
	}
	for (u32 i = 0; i < (how >> 1 & 3); i++) {
		const u32 what = byte(&in);

		post(lane, what, &held[byte(&in) % HELD]);
	}
	/* of the newest as well: those there are */
	for (u32 i = 0; how & 0x20 && i < HELD; i++)
		if (held[i].slab && !held[i].dropped)
			post(lane, how >> 3, &held[i]);
	lane_poll(lane, 1 + (int)(how >> 6) * 7);
	EXPECT(dcm_client_io_fds(client, lane, fds, DCM_CLIENT_FDS_MAX) >= 0);
	if (!dcm_client_io_in_flight(client, lane))
		for (u32 i = 0; i < IOS; i++)
			EXPECT(!ops[i].busy || ops[i].lane != lane);
}

/* ---- links: a pager that moves data by itself ---- */

static void pair_close(struct dcm_endpoint *ep)
{
	nr_pairs--;
	free(container_of(ep, struct pair, ep));
}

static bool pair_dead(struct dcm_endpoint *ep)
{
	return container_of(ep, struct pair, ep)->dead;
}

static void pair_kill(struct dcm_endpoint *ep)
{
	container_of(ep, struct pair, ep)->dead = true;
}

static const char *pair_why(struct dcm_endpoint *ep)
{
	(void)ep;
	return "";
}

static u32 pair_in_flight(struct dcm_endpoint *ep)
{
	(void)ep;
	return 0;
}

static const struct dcm_transport_ops pair_ops = {
	.name = "pair",
	.close = pair_close,
	.dead = pair_dead,
	.kill = pair_kill,
	.why = pair_why,
	.in_flight = pair_in_flight,
};

static struct dcm_endpoint *link_data(void *arg, u32 donor, u32 lane,
				      const struct dcm_tcp_args *args, int *err)
{
	(void)arg;
	EXPECT(donor < DCM_CONFIG_DONORS_MAX && lane < LANES && args->fd >= 0);
	*err = -EBUSY;
	return pair_how & 1 ? NULL : dcm_transport_tcp.open(args, err);
}

static struct dcm_endpoint *link_pair(void *arg, u32 donor, u32 lane,
				      const struct sockaddr_storage *to,
				      const struct dcm_wire_shown *shown,
				      int *err)
{
	struct pair *p;

	(void)arg;
	(void)shown;
	EXPECT(donor < DCM_CONFIG_DONORS_MAX && lane < LANES);
	EXPECT(to->ss_family == AF_INET || to->ss_family == AF_INET6);
	*err = -EBUSY;
	if (pair_how & 2)
		return NULL;
	p = calloc(1, sizeof(*p));
	EXPECT(p);
	p->ep.ops = &pair_ops;
	p->up = pair_how & 4;
	p->dead = pair_how & 8;
	nr_pairs++;
	return &p->ep;
}

static bool link_paired(struct dcm_endpoint *ep)
{
	struct pair *p = container_of(ep, struct pair, ep);

	p->up |= (bool)(pair_how & 4);
	return p->up;
}

static const struct dcm_client_links links = {
	.data = link_data,
	.pair = link_pair,
	.paired = link_paired,
};

/* ---- what has to be so at any time ---- */

UNTRACED static u32 jobs_of(u32 extent)
{
	u32 n = 0;

	for (u32 i = 0; i < CLIENT_JOBS; i++)
		n += client->job[i].st != JOB_FREE &&
		     client->job[i].extent == extent;
	return n;
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
		mine[s->donor] += !s->dead;
		EXPECT(client->cur[s->extent] != s ||
		     (!s->dead && s->state == SLAB_ATTACHED));
	}
	for (u32 i = 0; i < CLIENT_JOBS; i++)
		if (client->job[i].st == JOB_MAP)
			mine[client->job[i].pick[0]]++;
	for (u32 i = 0; i < client->nr_donors; i++)
		EXPECT(mine[i] == client->donor[i].load.mine);
	for (u32 i = 0; i < HELD; i++) {
		if (!held[i].slab)
			continue;
		for (s = client->slabs; s && s != held[i].slab; s = s->next)
			;
		EXPECT(s && s->extent == held[i].extent);
	}
}

UNTRACED static void conn_check(const struct dcm_conn *c)
{
	EXPECT(c->nr_fds <= DCM_CONN_FDS_MAX &&
	       c->in_len <= DCM_WIRE_HEAD_MAX &&
	     c->out_len <= DCM_CONN_OUT_MAX);
}

/* The pager has asked, and the control thread has not read that yet. */
UNTRACED static bool other_noted(u32 extent)
{
	for (struct dcm_client_slab *s = client->slabs; s; s = s->next)
		if (s->extent == extent && READ_ONCE(s->notes) & NOTE_OTHER)
			return true;
	return false;
}

UNTRACED static void check(void)
{
	u32 pending = 0;

	slabs_check();
	for (u32 i = 0; i < EXTENTS; i++) {
		pending += bit_test(client->pending, i);
		EXPECT(jobs_of(i) == bit_test(client->placing, i));
		EXPECT(!bit_test(client->pending, i) ||
		     !bit_test(client->placing, i));
		/* what was asked for is not forgotten */
		EXPECT(!wanted[i] || bit_test(client->want, i) ||
		     bit_test(client->pending, i) ||
		     bit_test(client->placing, i) || current[i] ||
		     other_noted(i));
	}
	EXPECT(pending == client->nr_pending);
	for (u32 i = 0; i < client->nr_donors; i++) {
		conn_check(&client->donor[i].conn);
		for (u32 lane = 0; lane < client->nr_lanes; lane++)
			conn_check(&client->donor[i].slot[lane].conn);
	}
}

/* ---- steps ---- */

static void want_step(u32 how)
{
	const u32 extent = how % EXTENTS;

	if (!current[extent])
		wanted[extent] = true;
	asked[extent] = true;
	dcm_client_want(client, extent);
}

static void slab_step(void)
{
	const u32 how = byte(&in);
	struct held *h = &held[byte(&in) % HELD];

	/* one that is there, as few are */
	for (u32 i = 0; i < HELD && (!h->slab || h->dropped); i++)
		h = &held[i];
	if (!h->slab || h->dropped)
		return;
	if (how & 1)
		want_other(h);
	if (how & 2)
		dcm_client_stale(client, h->slab);
	if (how & 4)
		drop(h);
	else
		dcm_client_write_count(client, h->slab->donor, h->slab->ref.id,
			       how << 14, how << 12);
}

static void donor_name(struct dcm_host_donor *d, u32 i)
{
	memset(d, 0, sizeof(*d));
	snprintf(d->name, sizeof(d->name), "d%u", i);
	/* every third is on this host */
	snprintf(d->address, sizeof(d->address),
		 i % 3 == 2 ? "unix:/d%u" : "tcp:10.0.0.1:%u", i);
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
		pair_how = how >> 2;
	}
}

static u32 step(void)
{
	const u32 what = byte(&in);

	switch (what % 16) {
	case 0:
	case 1:
		want_step(what >> 4);
		break;
	case 2:
		slab_step();
		break;
	case 3:
	case 4:
		lane_step();
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
	for (u32 i = 0; i < IOS; i++)
		if (ops[i].busy)
			return false;
	return !client->slabs;
}

/* Donors are gone, and the pager gives up all it has. */
static bool finish(void)
{
	static u32 rounds;

	if (!rounds)
		net_end();
	for (u32 i = 0; i < HELD; i++)
		if (held[i].slab && !held[i].dropped)
			drop(&held[i]);
	for (u32 lane = 0; lane < LANES; lane++) {
		if (use_links)
			dcm_client_lane_look(client, lane);
		else
			lane_poll(lane, IOS);
	}
	net_pass(900);
	EXPECT(++rounds < GONE);
	/* a session that was not heard of for the patience is none */
	if (rounds < 8 || !all_gone())
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

static void start(const struct dcm_client_config *cfg)
{
	EXPECT(!dcm_client_start(cfg, &callbacks, NULL, &client));
	EXPECT(client->nr_extents == EXTENTS);
}

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
		.links = how & 0x20 ? &links : NULL,
		.patience_ms = DCM_WIRE_SILENCE_MS,
	};

	use_links = cfg.links;
	for (u32 i = 0; i < 3; i++)
		donor_name(&names[i], i + (donors >> 2 & 1));
	/* there is no device but with links */
	if (cfg.transport == DCM_TRANSPORT_VERBS &&
	    (cfg.data_encryption || !use_links))
		cfg.transport = DCM_TRANSPORT_TCP;
	pair_how = 4;
	start(&cfg);
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
	memset(held, 0, sizeof(held));
	memset(current, 0, sizeof(current));
	memset(wanted, 0, sizeof(wanted));
	memset(asked, 0, sizeof(asked));
	memset(other, 0, sizeof(other));
	memset(starved, 0, sizeof(starved));
	memset(session_on, 0, sizeof(session_on));
	memset(ops, 0, sizeof(ops));
	busy = 0;
	net_begin();
	life();
	net_left();
	EXPECT(!nr_pairs && !nr_maps && !sockets_open());
	return 0;
}

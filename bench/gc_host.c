// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * gc_host.c - a heap in paged memory, traced by the donors that hold it
 *
 *   gc_host trace CONFIG MIB RUNS     a trace by donors, and the plain tracer
 *                                     through the pager, in turn
 *   gc_host mutator CONFIG MIB RUNS   how much a program gets done while donors
 *                                     trace and while nothing does, in turn
 *   gc_host pause CONFIG MIB RUNS     the pause that starts a trace, by what
 *                                     was written since CLEAN, and sending
 *                                     just that over TCP on loopback; how long
 *                                     after it donors have begun
 *
 * The heap is gc_heap.h's, in a window of libdcm, which is asked as a device
 * asks (libdcm_gc.h). How much is direct CONFIG says.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gc_heap.h"
#include "libdcm_gc.h"

#define ROOM		65536u
#define ROOTS_MAX	2000u	/* in one request */
#define SATB_MAX	(4u << 20)
#define WALK		16u	/* objects a step of the program visits */
#define REGIONS_MAX	1024u
#define CLEANED		4u	/* regions a CLEAN is of */

struct world {
	struct dcm_pager *pager;
	struct dcm_gc_host *gc;
	struct gc_heap h;
	u32 regions;
	u32 epoch;
};

struct call {
	pthread_mutex_t lock;
	pthread_cond_t done;
	bool over;
	struct virtio_gc_done head;
	u8 entries[ROOM];
};

static void answered(void *priv, void *token, const void *answer, size_t bytes)
{
	struct call *c = token;

	(void)priv;
	if (bytes < sizeof(c->head) || bytes > sizeof(c->head) + ROOM)
		die("gc_host: an answer of %zu bytes", bytes);
	pthread_mutex_lock(&c->lock);
	memcpy(&c->head, answer, sizeof(c->head));
	memcpy(c->entries, (const u8 *)answer + sizeof(c->head),
	       bytes - sizeof(c->head));
	c->over = true;
	pthread_cond_signal(&c->done);
	pthread_mutex_unlock(&c->lock);
}

static struct call call = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.done = PTHREAD_COND_INITIALIZER,
};

static u32 ask(struct world *w, u16 command, u16 flags, u32 count,
	       const void *body, size_t body_bytes, const void *entries,
	       size_t bytes)
{
	static u8 buf[ROOM];
	struct virtio_gc_req req = {
		.command = htole16(command),
		.flags = htole16(flags),
		.space = htole32(1),
		.epoch = htole32(command == VIRTIO_GC_CLEAN ? 0 : w->epoch),
		.count = htole32(count),
	};
	size_t len = sizeof(req) + body_bytes + bytes;

	if (len > sizeof(buf))
		die("gc_host: a request of %zu bytes", len);
	memcpy(buf, &req, sizeof(req));
	if (body_bytes)
		memcpy(buf + sizeof(req), body, body_bytes);
	if (bytes)
		memcpy(buf + sizeof(req) + body_bytes, entries, bytes);
	call.over = false;
	dcm_gc_host_submit(w->gc, buf, len, sizeof(call.head) + ROOM, &call);
	pthread_mutex_lock(&call.lock);
	while (!call.over)
		pthread_cond_wait(&call.done, &call.lock);
	pthread_mutex_unlock(&call.lock);
	return le32toh(call.head.status);
}

static void must(u32 status, const char *what)
{
	if (status)
		die("gc_host: %s: status %u", what, status);
}

static void world_open(struct world *w, const char *config, u64 mib)
{
	static const struct dcm_gc_host_ops ops = { .answered = answered };
	char err[512];
	u8 *window;
	u64 extent;

	w->h.bytes = mib << 20;
	w->pager = dcm_pager_open(config, err, sizeof(err));
	if (!w->pager)
		die("gc_host: %s", err);
	window = dcm_pager_map(w->pager, w->h.bytes);
	if (!window)
		die("gc_host: no window");
	extent = dcm_pager_extent(w->pager, window);
	w->h.region_bytes = min(extent, 16ull << 20);
	if (!extent || w->h.bytes % extent)
		die("gc_host: %llu MiB are not whole extents of %llu bytes",
		    (unsigned long long)mib, (unsigned long long)extent);
	w->regions = (u32)(w->h.bytes / w->h.region_bytes);
	w->gc = dcm_gc_host_open(w->pager, window, w->h.bytes, &ops, w, err,
				 sizeof(err));
	if (!w->gc)
		die("gc_host: %s", err);
	dcm_gc_host_start(w->gc, dcm_gc_host_features(w->gc));
	w->h.memory = gc_heap_map(w->h.bytes);
	gc_heap_fill(&w->h, w->regions, 1000);
	/* made elsewhere: pages in any order would take minutes */
	memcpy(window, w->h.memory, w->h.bytes);
	munmap(w->h.memory, w->h.bytes);
	w->h.memory = window;
}

static void space_make(struct world *w)
{
	const struct virtio_gc_space space = {
		.bytes = htole64(w->h.bytes),
		.region_bytes = htole64(w->h.region_bytes),
		.address = htole64(GC_HEAP_ADDRESS),
		.ref_base = htole64(GC_HEAP_ADDRESS - 8),
		.ref_bytes = 4,
		.ref_shift = 3,
		.type_bytes = 4,
		.type_offset = htole16(8),
		.type_mask = htole32(U32_MAX),
	};
	const struct virtio_gc_types types = {
		.runs = htole32(GC_HEAP_RUNS),
	};

	must(ask(w, VIRTIO_GC_SPACE_CREATE, 0, 0, &space, sizeof(space), NULL,
		 0),
	     "SPACE_CREATE");
	must(ask(w, VIRTIO_GC_TYPES_ADD, 0, GC_HEAP_TYPES, &types,
		 sizeof(types), &gc_heap_types, sizeof(gc_heap_types)),
	     "TYPES_ADD");
}

/* A piece at a time: on a machine with much else to do all of it takes long. */
static void clean(struct world *w)
{
	struct virtio_gc_region list[CLEANED] = { 0 };

	for (u32 r = 0; r < w->regions; r += CLEANED) {
		u32 n = min(w->regions - r, CLEANED);

		for (u32 i = 0; i < n; i++)
			list[i].region = htole32(r + i);
		must(ask(w, VIRTIO_GC_CLEAN, 0, n, NULL, 0, list,
			 n * sizeof(*list)),
		     "CLEAN");
	}
}

/* For as long no program may run. */
static void trace_start(struct world *w, u16 flags)
{
	struct virtio_gc_region list[REGIONS_MAX] = { 0 };

	if (w->regions > REGIONS_MAX)
		die("gc_host: %u regions", w->regions);
	for (u32 r = 0; r < w->regions; r++) {
		list[r].region = htole32(r);
		list[r].top = htole64((r + 1) * w->h.region_bytes);
	}
	w->epoch++;
	must(ask(w, VIRTIO_GC_TRACE_START, flags, w->regions, NULL, 0, list,
		 w->regions * sizeof(*list)),
	     "TRACE_START");
}

/* @root: an address; 0: nothing is reachable */
static void trace_root(struct world *w, u64 root)
{
	const __le64 le = htole64(root);

	must(ask(w, VIRTIO_GC_TRACE_ROOTS, 0, 1, NULL, 0, &le, 8),
	     "TRACE_ROOTS");
}

static u64 root_of(const struct world *w)
{
	return GC_HEAP_ADDRESS + w->h.at[0];
}

static u64 trace_finish(struct world *w)
{
	struct virtio_gc_range range = {
		.regions = htole32(w->regions),
		.bitmaps = htole64(VIRTIO_GC_NONE),
	};
	const struct virtio_gc_live *live = (const void *)call.entries;
	u64 objects = 0;

	must(ask(w, VIRTIO_GC_TRACE_FINISH, 0, 0, NULL, 0, NULL, 0),
	     "TRACE_FINISH");
	must(ask(w, VIRTIO_GC_TRACE_RESULTS, 0, 0, &range, sizeof(range), NULL,
		 0),
	     "TRACE_RESULTS");
	for (u32 r = 0; r < w->regions; r++)
		objects += le64toh(live[r].objects);
	return objects;
}

static u64 bytes_live(const struct world *w)
{
	u64 bytes = 0;

	for (u32 i = 0; i < w->h.n; i++)
		bytes += gc_heap_object_bytes(w->h.memory + w->h.at[i]);
	return bytes;
}

/* ---- trace ---- */

static void bench_trace(struct world *w, u32 runs)
{
	u64 *marks = gc_heap_map(w->h.bytes / 64), live[REGIONS_MAX];
	u32 *queue = gc_heap_map(w->h.n * sizeof(*queue));
	u64 bytes = bytes_live(w);

	space_make(w);
	printf("{\"objects\":%u,\"bytes\":%llu,\"runs\":[", w->h.n,
	       (unsigned long long)bytes);
	for (u32 i = 0; i < runs; i++) {
		u64 cleaned = bench_now_ns(), donor, plain;

		/* as a runtime does before it needs the result */
		clean(w);
		donor = bench_now_ns();
		cleaned = donor - cleaned;
		trace_start(w, 0);
		trace_root(w, root_of(w));
		if (trace_finish(w) != w->h.n)
			die("gc_host: the donors' trace is wrong");
		donor = bench_now_ns() - donor;
		memset(marks, 0, w->h.bytes / 64);
		plain = bench_now_ns();
		if (gc_heap_trace(&w->h, marks, queue, live) != w->h.n)
			die("gc_host: the tracers don't agree");
		plain = bench_now_ns() - plain;
		printf("%s{\"clean_ns\":%llu,\"donor_ns\":%llu,"
		       "\"plain_ns\":%llu}",
		       i ? "," : "", (unsigned long long)cleaned,
		       (unsigned long long)donor, (unsigned long long)plain);
	}
	printf("]}\n");
}

/* ---- mutator ---- */

/**
 * struct program - what uses the heap meanwhile
 * @ops: steps done (__atomic)
 * @satb: references that a trace must know of, @nr_satb (__atomic)
 * @tracing: the barrier is on (__atomic)
 * @hold: the program is to stand still; @held: it does (both __atomic)
 */
struct program {
	struct world *w;
	pthread_t thread;
	u64 ops;
	__le64 *satb;
	u32 nr_satb;
	bool tracing;
	bool hold;
	bool held;
	bool end;
	u64 sum;
};

/* All but one of a hundred are in a sixteenth of the heap. */
static u32 object_pick(const struct world *w, u64 r)
{
	u32 n = r % 100 ? w->h.n / 16 : w->h.n;

	return (u32)((r >> 16) % n);
}

/* Two references of an object change places; the barrier keeps both. */
static void swap(struct program *p, u8 *object)
{
	u32 *ref = (u32 *)(object + 16), a = ref[0], b = ref[1];

	if (__atomic_load_n(&p->tracing, __ATOMIC_ACQUIRE)) {
		u32 n = p->nr_satb;

		if (n + 2 > SATB_MAX)
			die("gc_host: the barrier's buffer is full");
		p->satb[n] = htole64(GC_HEAP_ADDRESS + a * 8ull - 8);
		p->satb[n + 1] = htole64(GC_HEAP_ADDRESS + b * 8ull - 8);
		__atomic_store_n(&p->nr_satb, n + 2, __ATOMIC_RELEASE);
	}
	__atomic_store_n(&ref[0], b, __ATOMIC_RELAXED);
	__atomic_store_n(&ref[1], a, __ATOMIC_RELAXED);
}

static void *program_run(void *arg)
{
	struct program *p = arg;
	struct world *w = p->w;
	u64 rng = 4711, sum = 0;

	while (!__atomic_load_n(&p->end, __ATOMIC_RELAXED)) {
		u8 *object = NULL;

		while (__atomic_load_n(&p->hold, __ATOMIC_ACQUIRE)) {
			__atomic_store_n(&p->held, true, __ATOMIC_RELEASE);
			usleep(20);
		}
		__atomic_store_n(&p->held, false, __ATOMIC_RELEASE);
		for (u32 i = 0; i < WALK; i++) {
			object = w->h.memory +
				 w->h.at[object_pick(w, bench_rand(&rng))];
			sum += gc_heap_object_bytes(object);
		}
		if (gc_heap_object_refs(object) > 1)
			swap(p, object);
		__atomic_fetch_add(&p->ops, 1, __ATOMIC_RELAXED);
	}
	p->sum = sum;
	return NULL;
}

static void program_hold(struct program *p)
{
	__atomic_store_n(&p->held, false, __ATOMIC_RELEASE);
	__atomic_store_n(&p->hold, true, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&p->held, __ATOMIC_ACQUIRE))
		usleep(20);
}

static void program_go_on(struct program *p)
{
	__atomic_store_n(&p->hold, false, __ATOMIC_RELEASE);
}

/* What the barrier has gathered from @from on; how much there was. */
static u32 satb_send(struct program *p, u32 from)
{
	u32 n = __atomic_load_n(&p->nr_satb, __ATOMIC_ACQUIRE);

	for (u32 some; from < n; from += some) {
		some = min(n - from, ROOTS_MAX);
		must(ask(p->w, VIRTIO_GC_TRACE_ROOTS, 0, some, NULL, 0,
			 p->satb + from, some * 8ull),
		     "TRACE_ROOTS");
	}
	return n;
}

static u64 ops_since(struct program *p, u64 before)
{
	return __atomic_load_n(&p->ops, __ATOMIC_RELAXED) - before;
}

/* Until the donors are through with what they have been told of. */
static void trace_settle(struct world *w)
{
	struct virtio_gc_met met = { .max = htole32(16) };

	must(ask(w, VIRTIO_GC_TRACE_MET, VIRTIO_GC_MET_WAIT, 0, &met,
		 sizeof(met), NULL, 0),
	     "TRACE_MET");
}

static void bench_mutator(struct world *w, u32 runs)
{
	struct program p = { .w = w };

	p.satb = gc_heap_map(SATB_MAX * sizeof(*p.satb));
	space_make(w);
	if (pthread_create(&p.thread, NULL, program_run, &p))
		die("gc_host: no thread");
	usleep(500000);
	printf("{\"objects\":%u,\"runs\":[", w->h.n);
	for (u32 i = 0; i < runs; i++) {
		u64 t, pause, ops, settled, settling, traced, quiet, ns;
		u32 sent = 0, satb;

		t = bench_now_ns();
		program_hold(&p);
		p.nr_satb = 0;
		__atomic_store_n(&p.tracing, true, __ATOMIC_RELEASE);
		trace_start(w, VIRTIO_GC_TRACE_CONCURRENT);
		program_go_on(&p);
		pause = bench_now_ns() - t;
		ops = p.ops;
		t = bench_now_ns();
		/* which is taken when the donors have begun */
		trace_root(w, root_of(w));
		settling = bench_now_ns() - t;
		settled = ops_since(&p, ops);
		ops += settled;
		t += settling;
		trace_settle(w);
		sent = satb_send(&p, sent);
		program_hold(&p);
		satb = satb_send(&p, sent);
		__atomic_store_n(&p.tracing, false, __ATOMIC_RELEASE);
		if (trace_finish(w) != w->h.n)
			die("gc_host: the donors' trace is wrong");
		program_go_on(&p);
		ns = bench_now_ns() - t;
		traced = ops_since(&p, ops);
		/* as long again, and nothing is traced */
		ops = __atomic_load_n(&p.ops, __ATOMIC_RELAXED);
		t = bench_now_ns();
		usleep((useconds_t)(ns / 1000));
		quiet = ops_since(&p, ops);
		printf("%s{\"pause_ns\":%llu,\"settle_ns\":%llu,"
		       "\"settle_ops\":%llu,\"trace_ns\":%llu,"
		       "\"trace_ops\":%llu,\"quiet_ns\":%llu,"
		       "\"quiet_ops\":%llu,\"satb\":%u}",
		       i ? "," : "", (unsigned long long)pause,
		       (unsigned long long)settling,
		       (unsigned long long)settled, (unsigned long long)ns,
		       (unsigned long long)traced,
		       (unsigned long long)(bench_now_ns() - t),
		       (unsigned long long)quiet, satb);
	}
	printf("]}\n");
	__atomic_store_n(&p.end, true, __ATOMIC_RELAXED);
	pthread_join(p.thread, NULL);
}

/* ---- pause ---- */

static void receive(int fd, void *buf, size_t n)
{
	for (ssize_t r; n; n -= (size_t)r) {
		r = recv(fd, buf, n, 0);
		if (r <= 0)
			_exit(0);
		buf = (u8 *)buf + r;
	}
}

/* A process that takes pages into memory and says when it has them. */
static int sink_start(u64 bytes)
{
	struct sockaddr_in a = { .sin_family = AF_INET };
	socklen_t len = sizeof(a);
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fd;
	pid_t pid;

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (l < 0 || bind(l, (struct sockaddr *)&a, sizeof(a)) ||
	    listen(l, 1) || getsockname(l, (struct sockaddr *)&a, &len))
		die("gc_host: no TCP on loopback");
	pid = fork();
	if (pid < 0)
		die("gc_host: no process");
	if (!pid) {
		u8 *to = gc_heap_map(bytes);

		fd = accept(l, NULL, NULL);
		for (;;) {
			u64 n;

			receive(fd, &n, sizeof(n));
			receive(fd, to, n);
			if (send(fd, to, 1, MSG_NOSIGNAL) != 1)
				_exit(0);
		}
	}
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)))
		die("gc_host: no connection to the sink");
	close(l);
	return fd;
}

static u64 pages_send(int fd, const struct gc_heap *h, const u8 *dirty, u64 n)
{
	u64 bytes = n * PAGE, t = bench_now_ns();
	struct iovec v[64];
	u32 nv = 0;
	u8 said;

	if (send(fd, &bytes, sizeof(bytes), 0) != sizeof(bytes))
		die("gc_host: the sink is gone");
	for (u64 p = 0; p <= h->bytes / PAGE; p++) {
		struct msghdr m = { .msg_iov = v };

		if (p < h->bytes / PAGE && dirty[p])
			v[nv++] = (struct iovec){ h->memory + p * PAGE, PAGE };
		if (!nv || (nv < 64 && p < h->bytes / PAGE))
			continue;
		m.msg_iovlen = nv;
		/* a blocking socket takes all of it */
		if (sendmsg(fd, &m, 0) != (ssize_t)(nv * PAGE))
			die("gc_host: the sink is gone");
		nv = 0;
	}
	receive(fd, &said, 1);
	return bench_now_ns() - t;
}

/* Write to @n pages, wherever; which is in @dirty. */
static void pages_write(struct gc_heap *h, u8 *dirty, u64 n, u64 *rng)
{
	memset(dirty, 0, h->bytes / PAGE);
	while (n) {
		u64 at = h->at[bench_rand(rng) % h->n];

		/* an object's first word says nothing */
		*(volatile u64 *)(h->memory + at) = *rng;
		n -= !dirty[at / PAGE];
		dirty[at / PAGE] = 1;
	}
}

/*
 * The first of a pair of runs is for a trace that goes on beside the program,
 * the second for one that it waits for.
 */
static void bench_pause(struct world *w, u32 runs, int fd)
{
	u64 pages = w->h.bytes / PAGE, rng = 99, sum = 0;
	u8 *dirty = gc_heap_map(pages);

	space_make(w);
	printf("{\"pages\":%llu,\"runs\":[", (unsigned long long)pages);
	/* nothing, and what a quarter, a half and one second write */
	for (u32 i = 0; i < runs * 8; i++) {
		u64 n = pages / 10 * (u64[]){ 0, 1, 2, 4 }[i / 2 % 4] / 4;
		u64 cleaned, pause, begun, copy;
		bool beside = !(i % 2);

		for (u64 p = 0; p < pages; p++)
			sum += *(volatile u8 *)(w->h.memory + p * PAGE);
		pages_write(&w->h, dirty, pages / 10, &rng);
		cleaned = bench_now_ns();
		clean(w);
		cleaned = bench_now_ns() - cleaned;
		pages_write(&w->h, dirty, n, &rng);
		copy = n ? pages_send(fd, &w->h, dirty, n) : 0;
		/*
		 * What the trace finds is no matter here, and a donor that has
		 * little of a processor would not find it in time.
		 */
		pause = bench_now_ns();
		trace_start(w, beside ? VIRTIO_GC_TRACE_CONCURRENT : 0);
		begun = bench_now_ns();
		pause = begun - pause;
		/* which is taken when the donors have begun */
		trace_root(w, 0);
		begun = bench_now_ns() - begun;
		if (trace_finish(w))
			die("gc_host: what nothing refers to lives");
		printf("%s{\"beside\":%u,\"dirty\":%llu,\"clean_ns\":%llu,"
		       "\"pause_ns\":%llu,\"begun_ns\":%llu,"
		       "\"copy_ns\":%llu}",
		       i ? "," : "", beside, (unsigned long long)n,
		       (unsigned long long)cleaned, (unsigned long long)pause,
		       (unsigned long long)begun, (unsigned long long)copy);
	}
	printf("],\"sum\":%llu}\n", (unsigned long long)sum);
	close(fd);
	wait(NULL);
}

int main(int argc, char **argv)
{
	struct world w = { .epoch = 0 };
	u64 mib = argc == 5 ? strtoull(argv[3], NULL, 10) : 0;
	u32 runs = argc == 5 ? (u32)atoi(argv[4]) : 0;
	int sink = -1;

	if (!mib || !runs)
		die("usage: gc_host trace|mutator|pause CONFIG MIB RUNS");
	if (!strcmp(argv[1], "pause"))	/* before there are threads */
		sink = sink_start(mib << 20);
	world_open(&w, argv[2], mib);
	if (!strcmp(argv[1], "trace"))
		bench_trace(&w, runs);
	else if (!strcmp(argv[1], "mutator"))
		bench_mutator(&w, runs);
	else if (!strcmp(argv[1], "pause"))
		bench_pause(&w, runs, sink);
	else
		die("gc_host: no %s", argv[1]);
	dcm_gc_host_close(w.gc);
	dcm_pager_close(w.pager);
	return 0;
}

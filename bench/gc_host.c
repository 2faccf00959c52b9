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
 *                                     after it donors have begun, and for how
 *                                     long at most a program that runs
 *                                     meanwhile stood still
 *   gc_host evacuate CONFIG MIB RUNS  bytes over the network for moving one
 *                                     region's objects, half of it live
 *   gc_host busy CONFIG MIB 1         trace after trace until it is killed; a
 *                                     line when the first is done; SIGUSR1
 *                                     for a rest, SIGUSR2 to go on
 *
 * The heap is gc_world.h's. How much of it is direct CONFIG says.
 */
#include <endian.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "gc_world.h"

#define ROOTS_MAX	2000u	/* in one request */
#define SATB_MAX	(4u << 20)
#define WALK		16u	/* objects a step of the program visits */

/* ---- trace ---- */

static u64 bytes_live(const struct gc_world *w)
{
	u64 bytes = 0;

	for (u32 i = 0; i < w->h.n; i++)
		bytes += gc_heap_object_bytes(w->h.memory + w->h.at[i]);
	return bytes;
}

static void bench_trace(struct gc_world *w, u32 runs)
{
	u64 *marks = gc_heap_map(w->h.bytes / 64), live[GC_WORLD_REGIONS];
	u32 *queue = gc_heap_map(w->h.n * sizeof(*queue));
	u64 bytes = bytes_live(w);

	gc_space_make(w);
	printf("{\"objects\":%u,\"bytes\":%llu,\"runs\":[", w->h.n,
	       (unsigned long long)bytes);
	for (u32 i = 0; i < runs; i++) {
		u64 cleaned = bench_now_ns(), donor, plain;

		/* as a runtime does before it needs the result */
		gc_clean(w);
		donor = bench_now_ns();
		cleaned = donor - cleaned;
		gc_trace_start(w, 0);
		gc_trace_root(w, gc_root_of(w));
		if (gc_trace_finish(w) != w->h.n)
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
	struct gc_world *w;
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
static u32 object_pick(const struct gc_world *w, u64 r)
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
	struct gc_world *w = p->w;
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

/* Send the references that the barrier has gathered, from @from on; their number. */
static u32 satb_send(struct program *p, u32 from)
{
	u32 n = __atomic_load_n(&p->nr_satb, __ATOMIC_ACQUIRE);

	for (u32 some; from < n; from += some) {
		some = min(n - from, ROOTS_MAX);
		gc_must(gc_ask(p->w, VIRTIO_GC_TRACE_ROOTS, 0, some, NULL, 0,
			       p->satb + from, some * 8ull),
			"TRACE_ROOTS");
	}
	return n;
}

static u64 ops_since(struct program *p, u64 before)
{
	return __atomic_load_n(&p->ops, __ATOMIC_RELAXED) - before;
}

/* Wait until the donors have scanned all objects that they were told of. */
static void trace_met_wait(struct gc_world *w)
{
	struct virtio_gc_met met = { .max = htole32(16) };

	gc_must(gc_ask(w, VIRTIO_GC_TRACE_MET, VIRTIO_GC_MET_WAIT, 0, &met,
		       sizeof(met), NULL, 0),
		"TRACE_MET");
}

static void bench_mutator(struct gc_world *w, u32 runs)
{
	struct program p = { .w = w };

	p.satb = gc_heap_map(SATB_MAX * sizeof(*p.satb));
	gc_space_make(w);
	if (pthread_create(&p.thread, NULL, program_run, &p))
		die("gc_host: can't start a thread");
	usleep(500000);
	printf("{\"objects\":%u,\"runs\":[", w->h.n);
	for (u32 i = 0; i < runs; i++) {
		u64 t, pause, ops, sync_ops, sync_ns, traced, quiet, ns;
		u32 sent = 0, satb;

		t = bench_now_ns();
		program_hold(&p);
		p.nr_satb = 0;
		__atomic_store_n(&p.tracing, true, __ATOMIC_RELEASE);
		gc_trace_start(w, VIRTIO_GC_TRACE_CONCURRENT);
		program_go_on(&p);
		pause = bench_now_ns() - t;
		ops = p.ops;
		t = bench_now_ns();
		/* which is taken when the donors have begun */
		gc_trace_root(w, gc_root_of(w));
		sync_ns = bench_now_ns() - t;
		sync_ops = ops_since(&p, ops);
		ops += sync_ops;
		t += sync_ns;
		trace_met_wait(w);
		sent = satb_send(&p, sent);
		program_hold(&p);
		satb = satb_send(&p, sent);
		__atomic_store_n(&p.tracing, false, __ATOMIC_RELEASE);
		if (gc_trace_finish(w) != w->h.n)
			die("gc_host: the donors' trace is wrong");
		program_go_on(&p);
		ns = bench_now_ns() - t;
		traced = ops_since(&p, ops);
		/* as long again, and nothing is traced */
		ops = __atomic_load_n(&p.ops, __ATOMIC_RELAXED);
		t = bench_now_ns();
		usleep((useconds_t)(ns / 1000));
		quiet = ops_since(&p, ops);
		printf("%s{\"pause_ns\":%llu,\"sync_ns\":%llu,"
		       "\"sync_ops\":%llu,\"trace_ns\":%llu,"
		       "\"trace_ops\":%llu,\"quiet_ns\":%llu,"
		       "\"quiet_ops\":%llu,\"satb\":%u}",
		       i ? "," : "", (unsigned long long)pause,
		       (unsigned long long)sync_ns,
		       (unsigned long long)sync_ops, (unsigned long long)ns,
		       (unsigned long long)traced,
		       (unsigned long long)(bench_now_ns() - t),
		       (unsigned long long)quiet, satb);
	}
	printf("]}\n");
	__atomic_store_n(&p.end, true, __ATOMIC_RELAXED);
	pthread_join(p.thread, NULL);
}

/* ---- busy ---- */

static volatile sig_atomic_t resting;

static void rest(int sig)
{
	resting = sig == SIGUSR1;
}

static _Noreturn void bench_busy(struct gc_world *w)
{
	signal(SIGUSR1, rest);
	signal(SIGUSR2, rest);
	gc_space_make(w);
	gc_clean(w);
	for (u64 n = 0;; n++) {
		gc_trace_start(w, 0);
		gc_trace_root(w, gc_root_of(w));
		if (gc_trace_finish(w) != w->h.n)
			die("gc_host: the donors' trace is wrong");
		while (resting)
			usleep(1000);
		if (n)
			continue;
		printf("busy\n");
		fflush(stdout);
	}
}

int main(int argc, char **argv)
{
	struct gc_world w = { .epoch = 0 };
	u64 mib = argc == 5 ? strtoull(argv[3], NULL, 10) : 0;
	u32 runs = argc == 5 ? (u32)atoi(argv[4]) : 0;
	int sink = -1;

	if (!mib || !runs)
		die("usage: gc_host trace|mutator|pause|evacuate|busy CONFIG MIB RUNS");
	if (!strcmp(argv[1], "pause"))	/* before there are threads */
		sink = gc_sink_start(mib << 20);
	if (!strcmp(argv[1], "evacuate"))
		gc_world_open(&w, argv[2], mib, 1, 500);
	else
		gc_world_open(&w, argv[2], mib, 0, 1000);
	if (!strcmp(argv[1], "trace"))
		bench_trace(&w, runs);
	else if (!strcmp(argv[1], "mutator"))
		bench_mutator(&w, runs);
	else if (!strcmp(argv[1], "pause"))
		gc_bench_pause(&w, runs, sink);
	else if (!strcmp(argv[1], "evacuate"))
		gc_bench_evacuate(&w, runs);
	else if (!strcmp(argv[1], "busy"))
		bench_busy(&w);
	else
		die("gc_host: no %s", argv[1]);
	dcm_gc_host_close(w.gc);
	dcm_pager_close(w.pager);
	return 0;
}

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * gc.c - the engine of GC workers, beside the simplest thing that does the same
 *
 *   gc trace MIB THREADS [huge] the engine's tracer and a plain one, in turn;
 *                               the heap of huge pages for both
 *   gc evacuate MIB RUNS        one region of MIB MiB, half live, and
 *                               memcpy() of its live bytes
 *   gc dump MIB FILE            the graph, for a program that builds an equal
 *                               one: for each object its type, bytes, number of
 *                               references, and the numbers of their objects
 */
#include <endian.h>
#include <sys/mman.h>

#include "../donor-daemon/gc/gc.h"
#include "gc_heap.h"

/* The engine's space over a heap. */
struct heap {
	struct gc_heap g;
	struct dcm_gc_space *s;
	u32 regions;
	struct virtio_gc_region *list;
};

static void space_make(struct heap *h, bool huge)
{
	struct dcm_gc_layout l = {
		.bytes = h->g.bytes,
		.region_bytes = h->g.region_bytes,
		.address = GC_HEAP_ADDRESS,
		.ref_base = GC_HEAP_ADDRESS - 8,
		.ref_bytes = 4,
		.ref_shift = 3,
		.type_offset = 8,
		.type_bytes = 4,
		.type_mask = U32_MAX,
	};
	u32 status;

	h->regions = (u32)(h->g.bytes / h->g.region_bytes);
	h->g.memory = huge ? gc_heap_map_huge(h->g.bytes) :
			     gc_heap_map(h->g.bytes);
	h->list = calloc(h->regions, sizeof(*h->list));
	h->s = dcm_gc_space_new(&l, 0, &status);
	if (!h->s || !h->list ||
	    dcm_gc_types_add(h->s, 0, &gc_heap_types, sizeof(gc_heap_types),
			     GC_HEAP_TYPES, GC_HEAP_RUNS))
		die("gc: no space: %u", status);
	for (u32 i = 0; i < h->regions; i++) {
		dcm_gc_space_place(h->s, i, 0,
				   h->g.memory + i * h->g.region_bytes, NULL);
		h->list[i].region = i;
		h->list[i].top = (i + 1) * h->g.region_bytes;
	}
}

static void trace_engine(struct heap *h, u32 epoch, u32 threads)
{
	struct dcm_gc_start how = {
		.epoch = epoch,
		.threads = threads,
		.regions = h->list,
		.nr_regions = h->regions,
	};
	__le64 root = GC_HEAP_ADDRESS + h->g.at[0];
	struct dcm_gc_result result;

	if (dcm_gc_trace_start(h->s, &how) ||
	    dcm_gc_trace_roots(h->s, epoch, &root, 1).status)
		die("gc: the trace does not start");
	dcm_gc_trace_wait(h->s, 1000000000000ull);
	result = dcm_gc_trace_finish(h->s, epoch);
	if (result.status)
		die("gc: status %u at %llx", result.status,
		    (unsigned long long)result.at);
}

static u64 engine_objects(struct heap *h, u32 epoch, u64 *bytes)
{
	u64 objects = 0;

	*bytes = 0;
	for (u32 i = 0; i < h->regions; i++) {
		struct virtio_gc_live live;

		dcm_gc_trace_live(h->s, epoch, i, &live);
		objects += live.objects;
		*bytes += live.bytes;
	}
	return objects;
}

static void bench_trace(u64 mib, u32 threads, bool huge)
{
	struct heap h = { .g.bytes = mib << 20, .g.region_bytes = 16 << 20 };
	u64 *marks, engine = U64_MAX, plain = U64_MAX, objects = 0, bytes = 0;
	u64 live[64] = { 0 };
	u32 *queue;

	space_make(&h, huge);
	gc_heap_fill(&h.g, h.regions, 1000);
	marks = gc_heap_map(h.g.bytes / 64);
	queue = gc_heap_map(h.g.n * sizeof(*queue));
	for (u32 i = 1; i <= 5; i++) {
		u64 t = bench_clock_ns(CLOCK_PROCESS_CPUTIME_ID);

		trace_engine(&h, i, threads);
		engine = min(engine,
			     bench_clock_ns(CLOCK_PROCESS_CPUTIME_ID) - t);
		objects = engine_objects(&h, i, &bytes);
		t = bench_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
		memset(marks, 0, h.g.bytes / 64);
		if (gc_heap_trace(&h.g, marks, queue, live) != objects)
			die("gc: the tracers don't agree");
		plain = min(plain,
			    bench_clock_ns(CLOCK_PROCESS_CPUTIME_ID) - t);
	}
	if (objects != h.g.n)
		die("gc: %llu objects of %u", (unsigned long long)objects,
		    h.g.n);
	printf("{\"objects\":%llu,\"bytes\":%llu,\"threads\":%u,"
	       "\"engine_ns\":%llu,\"plain_ns\":%llu}\n",
	       (unsigned long long)objects, (unsigned long long)bytes, threads,
	       (unsigned long long)engine, (unsigned long long)plain);
}

/*
 * memcpy() of the live bytes, from where they lie: each time what lies side by
 * side. Says where its copies end.
 */
static u64 live_copy(const struct gc_heap *h, u8 *to)
{
	u64 at = h->at[0], end = at, done = 0;

	for (u32 i = 0; i < h->n; i++) {
		if (h->at[i] != end) {
			memcpy(to + done, h->memory + at, end - at);
			done += end - at;
			at = h->at[i];
		}
		end = h->at[i] + gc_heap_object_bytes(h->memory + h->at[i]);
	}
	memcpy(to + done, h->memory + at, end - at);
	return done + end - at;
}

/* A region is one of many: when its turn comes it is in no cache. */
static void caches_clear(void)
{
	static const u64 bytes = 128 << 20;
	static u8 *other;
	u8 sum = 0;

	if (!other)
		other = gc_heap_map(bytes);
	for (u64 i = 0; i < bytes; i += 64)
		sum += other[i]++;
	__asm__ volatile("" : : "r"(sum) : "memory");
}

/* Half of the bytes are dead: the live objects are copied one by one. */
static void bench_evacuate(u64 mib, u32 runs)
{
	struct heap h = { .g.bytes = (mib << 20) * 3,
			  .g.region_bytes = mib << 20 };
	struct virtio_gc_move move = {
		.from = 0,
		.to = 1,
		.start = mib << 20,
		.table = (mib << 20) * 2,
		.table_bytes = mib << 20,
	};
	u64 best[4] = { U64_MAX, U64_MAX, U64_MAX, U64_MAX }, live = 0;
	struct virtio_gc_moved moved;
	u8 *to;

	space_make(&h, false);
	/* nothing is in the other two yet */
	for (u32 i = 1; i < h.regions; i++)
		h.list[i].top = i * h.g.region_bytes;
	gc_heap_fill(&h.g, 1, 500);
	to = gc_heap_map(h.g.region_bytes);
	for (u32 i = 0; i < 4 * runs; i++) {
		u64 t;

		/* a region is moved once in a trace */
		trace_engine(&h, i + 1, 1);
		engine_objects(&h, i + 1, &live);
		caches_clear();
		t = bench_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
		if (i % 4 < 2) {
			if (dcm_gc_move(h.s, i + 1, &move, i % 4, &moved))
				die("gc: status %u", moved.status);
		} else if (i % 4 == 2) {
			if (live_copy(&h.g, to) != live)
				die("gc: it is not as much that lives");
		} else {
			memcpy(to, h.g.memory, live);
		}
		t = bench_clock_ns(CLOCK_PROCESS_CPUTIME_ID) - t;
		best[i % 4] = min(best[i % 4], t);
	}
	printf("{\"live\":%llu,\"objects\":%u,\"depth_ns\":%llu,"
	       "\"breadth_ns\":%llu,\"copy_ns\":%llu,\"memcpy_ns\":%llu,"
	       "\"answer\":%zu}\n",
	       (unsigned long long)live, moved.objects,
	       (unsigned long long)best[0], (unsigned long long)best[1],
	       (unsigned long long)best[2], (unsigned long long)best[3],
	       sizeof(moved));
}

/* After their number, of each object in the order of allocation. */
static void dump(u64 mib, const char *path)
{
	struct gc_heap h = { .bytes = mib << 20, .region_bytes = 16 << 20 };
	u32 *number = gc_heap_map(h.bytes / 8 * sizeof(*number));
	FILE *f = fopen(path, "we");

	if (!f)
		die("gc: %s can't be written", path);
	h.memory = gc_heap_map(h.bytes);
	gc_heap_fill(&h, (u32)(h.bytes / h.region_bytes), 1000);
	for (u32 i = 0; i < h.n; i++)
		number[h.at[i] / 8] = i;
	fwrite(&h.n, sizeof(h.n), 1, f);
	for (u32 i = 0; i < h.n; i++) {
		const u8 *p = h.memory + h.at[i];
		const u32 *ref = (const u32 *)(p + 16);
		u32 head[] = { *(const u32 *)(p + 8),
			       (u32)gc_heap_object_bytes(p),
			       gc_heap_object_refs(p) };

		fwrite(head, sizeof(head), 1, f);
		for (u32 k = 0; k < head[2]; k++)
			fwrite(&number[ref[k] - 1], sizeof(*number), 1, f);
	}
	if (fclose(f))
		die("gc: %s can't be written", path);
	printf("{\"objects\":%u}\n", h.n);
}

int main(int argc, char **argv)
{
	u64 mib = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
	u32 n = argc > 3 ? (u32)atoi(argv[3]) : 0;

	if (mib && argc == 4 && !strcmp(argv[1], "dump")) {
		dump(mib, argv[3]);
		return 0;
	}
	if (!mib || !n)
		die("usage: gc trace|evacuate MIB N [huge], gc dump MIB FILE");
	if (!strcmp(argv[1], "trace"))
		bench_trace(mib, n, argc > 4 && !strcmp(argv[4], "huge"));
	else if (!strcmp(argv[1], "evacuate"))
		bench_evacuate(mib, n);
	else
		die("gc: no %s", argv[1]);
	return 0;
}

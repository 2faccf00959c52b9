// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * gc.c - the engine of GC workers, beside the simplest thing that does the same
 *
 *   gc trace MIB THREADS        the engine's tracer and a plain one, in turn
 *   gc evacuate MIB RUNS        one region of so many MiB, half live, and
 *                               memcpy() of its live bytes
 *   gc memory MIB THREADS       what a trace takes beside the space
 *
 * The heap: nodes of two and of four references, arrays of eight, and data of
 * 24 to 152 bytes, 60 bytes on average. Every object is reachable; references
 * go half to one of the 64 objects allocated next, half anywhere, as of a
 * program that has run for a while. The plain tracer has a queue and a bitmap:
 * objects are marked when they are found and scanned in the order they were
 * found, by code made for this heap's four types.
 */
#include <endian.h>
#include <string.h>
#include <sys/mman.h>

#include "../donor-daemon/gc/gc.h"
#include "common.h"

#define ADDRESS	(1ull << 40)

enum { NODE2 = 1, NODE4, REFS, DATA };

struct heap {
	struct dcm_gc_space *s;
	u8 *memory;
	u64 bytes;
	u64 region_bytes;
	u32 regions;
	struct virtio_gc_region *list;
	u64 *at;	/* objects in the order they were allocated */
	u32 n;
};

static void *map(u64 bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (p == MAP_FAILED)
		die("gc: no memory");
	return p;
}

static void space_make(struct heap *h)
{
	struct dcm_gc_layout l = {
		.bytes = h->bytes,
		.region_bytes = h->region_bytes,
		.address = ADDRESS,
		.ref_base = ADDRESS - 8,
		.ref_bytes = 4,
		.ref_shift = 3,
		.type_offset = 8,
		.type_bytes = 4,
		.type_mask = U32_MAX,
	};
	struct {
		struct virtio_gc_type type[4];
		struct virtio_gc_run run[2];
	} types = {
		.type = {
			{ .id = NODE2, .kind = VIRTIO_GC_FIXED, .bytes = 32,
			  .runs = 1 },
			{ .id = NODE4, .kind = VIRTIO_GC_FIXED, .bytes = 40,
			  .runs = 1 },
			{ .id = REFS, .kind = VIRTIO_GC_REFS, .first = 16,
			  .length_bytes = 4, .length_offset = 12 },
			{ .id = DATA, .kind = VIRTIO_GC_DATA, .first = 16,
			  .length_bytes = 4, .length_offset = 12 },
		},
		.run = { { 16, 2 }, { 16, 4 } },
	};
	u32 status;

	h->regions = (u32)(h->bytes / h->region_bytes);
	h->memory = map(h->bytes);
	h->list = calloc(h->regions, sizeof(*h->list));
	h->s = dcm_gc_space_new(&l, 0, &status);
	if (!h->s || !h->list ||
	    dcm_gc_types_add(h->s, &types, sizeof(types), 4, 2))
		die("gc: no space: %u", status);
	for (u32 i = 0; i < h->regions; i++) {
		dcm_gc_space_place(h->s, i, 0, h->memory + i * h->region_bytes,
				   NULL);
		h->list[i].region = i;
		h->list[i].top = (i + 1) * h->region_bytes;
	}
}

static u32 object_type(const u8 *p)
{
	return *(const u32 *)(p + 8);
}

static u32 object_refs(const u8 *p)
{
	switch (object_type(p)) {
	case NODE2:
		return 2;
	case NODE4:
		return 4;
	case REFS:
		return *(const u32 *)(p + 12);
	default:
		return 0;
	}
}

static u64 object_bytes(const u8 *p)
{
	if (object_type(p) == DATA)
		return (16 + *(const u32 *)(p + 12) + 7) & ~7u;
	return (16 + object_refs(p) * 4 + (object_type(p) < REFS ? 8 : 0) + 7) &
	       ~7u;
}

/* Objects in @list's regions up to @fill of each; @live per mille of them. */
static void heap_fill(struct heap *h, u32 fill_regions, u32 live)
{
	u64 rng = 20261121, at = 0, end = fill_regions * h->region_bytes;
	u32 *order, alive = 0;
	u8 *used;

	h->at = map(h->bytes / 32 * sizeof(*h->at));
	while (at < end) {
		u64 r = bench_rand(&rng), left;
		u8 *p = h->memory + at;
		u64 bytes;

		switch (r >> 60) {
		case 0 ... 5:
			*(u32 *)(p + 8) = NODE2;
			break;
		case 6 ... 9:
			*(u32 *)(p + 8) = NODE4;
			break;
		case 10:
			*(u32 *)(p + 8) = REFS;
			*(u32 *)(p + 12) = 8;
			break;
		default:
			*(u32 *)(p + 8) = DATA;
			*(u32 *)(p + 12) = 8 + (r & 127);
		}
		bytes = object_bytes(p);
		left = h->region_bytes - at % h->region_bytes;
		if (bytes > left) {
			*(u64 *)(p + 8) = 0;
			at += left;
			continue;
		}
		if (!h->n)
			*(u32 *)(p + 8) = NODE2;
		bytes = object_bytes(p);
		h->at[h->n++] = at;
		at += bytes;
	}
	order = map((u64)h->n * sizeof(*order));
	used = map(h->n);
	for (u32 i = 0; i < h->n; i++)
		if (!i || bench_rand(&rng) % 1000 < live)
			order[alive++] = i;
	if (object_type(h->memory + h->at[0]) == DATA)
		die("gc: the first object has no references");
	/* each hangs on an earlier one, near by or anywhere */
	for (u32 i = 1, hint = 0; i < alive; i++) {
		u32 from = 0, tries = 0;
		u8 *p;

		do {
			u64 r = bench_rand(&rng);

			from = (u32)((r >> 8) % i);
			if (r & 1)
				from = i - 1 - (u32)((r >> 8) % min(i, 64u));
			if (++tries > 30)
				from = hint++;
		} while (used[from] ==
			 object_refs(h->memory + h->at[order[from]]));
		p = h->memory + h->at[order[from]];
		((u32 *)(p + 16))[used[from]++] =
			(u32)(h->at[order[i]] / 8 + 1);
	}
	/* and the places that are left say anything */
	for (u32 i = 0; i < alive; i++) {
		u8 *p = h->memory + h->at[order[i]];
		u32 n = object_refs(p);

		for (u32 k = 0; k < n; k++) {
			u32 *ref = (u32 *)(p + 16) + k;
			u64 r = bench_rand(&rng);

			if (*ref)
				continue;
			*ref = (u32)(h->at[order[r & 1 ? (r >> 32) % alive :
							 (i + 1 + (r >> 8) % 64) %
							 alive]] /
					     8 +
				     1);
		}
	}
	h->n = alive;
}

static void trace_engine(struct heap *h, u32 epoch, u32 threads)
{
	struct dcm_gc_start how = {
		.epoch = epoch,
		.threads = threads,
		.regions = h->list,
		.nr_regions = h->regions,
	};
	__le64 root = ADDRESS + h->at[0];
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

static u64 trace_plain(const struct heap *h, u64 *marks, u32 *queue)
{
	u64 head = 0, tail = 0;

	queue[tail++] = (u32)(h->at[0] / 8);
	marks[queue[0] >> 6] |= 1ull << (queue[0] & 63);
	while (head < tail) {
		const u8 *p = h->memory + (u64)queue[head++] * 8;
		u32 n = object_refs(p);

		for (u32 i = 0; i < n; i++) {
			u32 unit = ((const u32 *)(p + 16))[i];

			if (!unit--)
				continue;
			if (marks[unit >> 6] & 1ull << (unit & 63))
				continue;
			marks[unit >> 6] |= 1ull << (unit & 63);
			queue[tail++] = unit;
		}
	}
	return tail;
}

static void bench_trace(u64 mib, u32 threads)
{
	struct heap h = { .bytes = mib << 20, .region_bytes = 16 << 20 };
	u64 *marks, engine = U64_MAX, plain = U64_MAX, objects = 0, bytes = 0;
	u32 *queue;

	space_make(&h);
	heap_fill(&h, h.regions, 1000);
	marks = map(h.bytes / 64);
	queue = map(h.n * sizeof(*queue));
	for (u32 i = 1; i <= 5; i++) {
		u64 t = bench_clock_ns(CLOCK_PROCESS_CPUTIME_ID);

		trace_engine(&h, i, threads);
		engine = min(engine,
			     bench_clock_ns(CLOCK_PROCESS_CPUTIME_ID) - t);
		objects = engine_objects(&h, i, &bytes);
		t = bench_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
		memset(marks, 0, h.bytes / 64);
		if (trace_plain(&h, marks, queue) != objects)
			die("gc: the tracers don't agree");
		plain = min(plain,
			    bench_clock_ns(CLOCK_PROCESS_CPUTIME_ID) - t);
	}
	if (objects != h.n)
		die("gc: %llu objects of %u", (unsigned long long)objects, h.n);
	printf("{\"objects\":%llu,\"bytes\":%llu,\"threads\":%u,"
	       "\"engine_ns\":%llu,\"plain_ns\":%llu}\n",
	       (unsigned long long)objects, (unsigned long long)bytes, threads,
	       (unsigned long long)engine, (unsigned long long)plain);
}

static void bench_memory(u64 mib, u32 threads)
{
	struct heap h = { .bytes = mib << 20, .region_bytes = 16 << 20 };

	space_make(&h);
	heap_fill(&h, h.regions, 1000);
	trace_engine(&h, 1, threads);
	printf("{\"space\":%llu,\"memory\":%llu,\"threads\":%u}\n",
	       (unsigned long long)h.bytes,
	       (unsigned long long)dcm_gc_space_memory(h.s), threads);
}

/* Half of the objects are dead: the live ones are copied one by one. */
static void bench_evacuate(u64 mib, u32 runs)
{
	struct heap h = { .bytes = (mib << 20) * 3, .region_bytes = mib << 20 };
	struct virtio_gc_move move = {
		.from = 0,
		.to = 1,
		.start = mib << 20,
		.table = (mib << 20) * 2,
		.table_bytes = mib << 20,
	};
	struct virtio_gc_moved moved;
	u64 best[2] = { U64_MAX, U64_MAX }, copy = U64_MAX, live = 0;
	u8 *to;

	space_make(&h);
	heap_fill(&h, 1, 500);
	to = map(h.region_bytes);
	for (u32 i = 0; i < 2 * runs; i++) {
		u32 order = i & 1;
		u64 t;

		/* a region is moved once in a trace */
		trace_engine(&h, i + 1, 1);
		engine_objects(&h, i + 1, &live);
		t = bench_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
		if (dcm_gc_move(h.s, i + 1, &move, order, &moved))
			die("gc: status %u", moved.status);
		best[order] = min(best[order],
				  bench_clock_ns(CLOCK_PROCESS_CPUTIME_ID) - t);
		t = bench_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
		memcpy(to, h.memory, live);
		copy = min(copy, bench_clock_ns(CLOCK_PROCESS_CPUTIME_ID) - t);
	}
	printf("{\"live\":%llu,\"objects\":%u,\"depth_ns\":%llu,"
	       "\"breadth_ns\":%llu,\"memcpy_ns\":%llu,\"answer\":%zu}\n",
	       (unsigned long long)live, moved.objects,
	       (unsigned long long)best[0], (unsigned long long)best[1],
	       (unsigned long long)copy, sizeof(moved));
}

int main(int argc, char **argv)
{
	u64 mib = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
	u32 n = argc > 3 ? (u32)atoi(argv[3]) : 0;

	if (!mib || !n)
		die("usage: gc trace|evacuate|memory MIB N");
	if (!strcmp(argv[1], "trace"))
		bench_trace(mib, n);
	else if (!strcmp(argv[1], "memory"))
		bench_memory(mib, n);
	else if (!strcmp(argv[1], "evacuate"))
		bench_evacuate(mib, n);
	else
		die("gc: no %s", argv[1]);
	return 0;
}

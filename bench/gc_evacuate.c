// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * gc_evacuate.c - what moving a region's objects sends over the network
 *
 * The whole way: CLEAN, a trace, EVACUATE of region 0 into region 1 with its
 * forward table in region 2, all on one donor. Counted are the bytes of the
 * network's only device, which bench/run-gc gives this program and the donor:
 * a network namespace whose loopback nobody else uses, so that requests,
 * answers, page contents, heartbeats, TCP's and IP's own bytes are all counted.
 *
 * Regions 1 and 2 are zero before each EVACUATE. In the first run they were
 * never used; later their slab has the bytes of the run before, as regions of a
 * runtime have that uses them again.
 */
#include <endian.h>
#include <unistd.h>

#include "gc_world.h"

/* Bytes that the network namespace's loopback has carried. */
static u64 network_bytes(void)
{
	unsigned long long bytes = 0;
	char line[512];
	FILE *f = fopen("/proc/self/net/dev", "re");
	bool found = false;

	while (f && !found && fgets(line, sizeof(line), f))
		found = sscanf(line, " lo: %llu", &bytes) == 1;
	if (!found)
		die("gc_host: no loopback in /proc/self/net/dev");
	fclose(f);
	return bytes;
}

/* One member of the pager's status. */
static u64 pager_count(struct gc_world *w, const char *name)
{
	char *text = dcm_pager_status(w->pager), *at;
	unsigned long long n;

	at = text ? strstr(text, name) : NULL;
	if (!at || sscanf(at + strlen(name), "\":%llu", &n) != 1)
		die("gc_host: no %s in the pager's status", name);
	free(text);
	return n;
}

static void region_clean(struct gc_world *w, u32 region)
{
	struct virtio_gc_region r = { .region = htole32(region) };

	gc_must(gc_ask(w, VIRTIO_GC_CLEAN, 0, 1, NULL, 0, &r, sizeof(r)),
		"CLEAN");
}

static void region_release(struct gc_world *w, u32 region, u16 flags)
{
	struct virtio_gc_region r = { .region = htole32(region) };

	gc_must(gc_ask(w, VIRTIO_GC_RELEASE, flags, 1, NULL, 0, &r, sizeof(r)),
		"RELEASE");
}

static void region_discard(struct gc_world *w, u32 region)
{
	struct virtio_gc_hint what = {
		.what = htole32(VIRTIO_GC_HINT_DISCARD),
	};
	struct virtio_gc_extent e = {
		.offset = htole64(region * w->h.region_bytes),
		.bytes = htole64(w->h.region_bytes),
	};
	u32 epoch = w->epoch;

	w->epoch = 0; /* HINT is of no trace */
	gc_must(gc_ask(w, VIRTIO_GC_HINT, 0, 1, &what, sizeof(what), &e,
		       sizeof(e)),
		"HINT");
	w->epoch = epoch;
}

static void evacuate(struct gc_world *w, struct virtio_gc_moved *moved)
{
	u64 size = w->h.region_bytes;
	struct virtio_gc_move move = {
		.from = htole32(0),
		.to = htole32(1),
		.start = htole64(size),
		.table = htole64(2 * size),
		.table_bytes = htole64(size),
	};

	gc_must(gc_ask(w, VIRTIO_GC_EVACUATE, 0, 1, NULL, 0, &move,
		       sizeof(move)),
		"EVACUATE");
	memcpy(moved, gc_answer(), sizeof(*moved));
	gc_must(le32toh(moved->status), "EVACUATE of region 0");
}

/* As much is where the objects went as lives. */
static u64 moved_check(struct gc_world *w, const struct virtio_gc_moved *moved)
{
	u64 live = 0;

	for (u32 i = 0; i < w->h.n; i++)
		live += gc_heap_object_bytes(w->h.memory + w->h.at[i]);
	if (le32toh(moved->objects) != w->h.n ||
	    le64toh(moved->end) - w->h.region_bytes != live)
		die("gc_host: %u objects of %u were moved",
		    le32toh(moved->objects), w->h.n);
	return live;
}

void gc_bench_evacuate(struct gc_world *w, u32 runs)
{
	struct virtio_gc_moved moved;
	u64 idle;

	gc_space_make(w);
	region_clean(w, 0);
	idle = network_bytes();
	usleep(1000000);
	idle = network_bytes() - idle;
	printf("{\"objects\":%u,\"region\":%llu,\"idle_per_s\":%llu,\"runs\":[",
	       w->h.n, (unsigned long long)w->h.region_bytes,
	       (unsigned long long)idle);
	for (u32 i = 0; i < runs; i++) {
		u64 before, traced, crossed, wrote, ns;

		before = network_bytes();
		gc_trace_start(w, 0);
		gc_trace_root(w, gc_root_of(w));
		if (gc_trace_finish(w) != w->h.n)
			die("gc_host: the donors' trace is wrong");
		traced = network_bytes() - before;
		wrote = pager_count(w, "written_bytes");
		before = network_bytes();
		ns = bench_now_ns();
		evacuate(w, &moved);
		ns = bench_now_ns() - ns;
		crossed = network_bytes() - before;
		wrote = pager_count(w, "written_bytes") - wrote;
		printf("%s{\"live\":%llu,\"trace_bytes\":%llu,"
		       "\"network_bytes\":%llu,\"written_bytes\":%llu,"
		       "\"table_bytes\":%llu,\"evacuate_ns\":%llu}",
		       i ? "," : "", (unsigned long long)moved_check(w, &moved),
		       (unsigned long long)traced, (unsigned long long)crossed,
		       (unsigned long long)wrote,
		       (unsigned long long)le64toh(moved.table_bytes),
		       (unsigned long long)ns);
		region_release(w, 0, 0);
		region_discard(w, 1);
		region_discard(w, 2);
	}
	printf("]}\n");
}

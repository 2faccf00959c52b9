// SPDX-License-Identifier: GPL-2.0-or-later
/* gc_world.c - requests to donors, one at a time; see gc_world.h */
#include <endian.h>
#include <pthread.h>
#include <sys/mman.h>

#include "gc_world.h"

#define ROOM		65536u
#define CLEANED		4u	/* regions a CLEAN is of */

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

u32 gc_ask(struct gc_world *w, u16 command, u16 flags, u32 count,
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

void gc_must(u32 status, const char *what)
{
	if (status)
		die("gc_host: %s: status %u", what, status);
}

const void *gc_answer(void)
{
	return call.entries;
}

void gc_world_open(struct gc_world *w, const char *config, u64 mib, u32 regions,
		   u32 live)
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
	if (regions > w->regions)
		die("gc_host: %llu MiB are not %u regions",
		    (unsigned long long)mib, regions);
	if (regions)
		w->regions = regions;
	w->gc = dcm_gc_host_open(w->pager, window, w->h.bytes, &ops, w, err,
				 sizeof(err));
	if (!w->gc)
		die("gc_host: %s", err);
	dcm_gc_host_start(w->gc, dcm_gc_host_features(w->gc));
	w->h.memory = gc_heap_map(w->h.bytes);
	gc_heap_fill(&w->h, w->regions, live);
	/* made elsewhere: pages in any order would take minutes */
	memcpy(window, w->h.memory, w->regions * w->h.region_bytes);
	munmap(w->h.memory, w->h.bytes);
	w->h.memory = window;
}

void gc_space_make(struct gc_world *w)
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

	gc_must(gc_ask(w, VIRTIO_GC_SPACE_CREATE, 0, 0, &space, sizeof(space),
		       NULL, 0),
		"SPACE_CREATE");
	gc_must(gc_ask(w, VIRTIO_GC_TYPES_ADD, 0, GC_HEAP_TYPES, &types,
		       sizeof(types), &gc_heap_types, sizeof(gc_heap_types)),
		"TYPES_ADD");
}

/* A piece at a time: on a machine with much else to do all of it takes long. */
void gc_clean(struct gc_world *w)
{
	struct virtio_gc_region list[CLEANED] = { 0 };

	for (u32 r = 0; r < w->regions; r += CLEANED) {
		u32 n = min(w->regions - r, CLEANED);

		for (u32 i = 0; i < n; i++)
			list[i].region = htole32(r + i);
		gc_must(gc_ask(w, VIRTIO_GC_CLEAN, 0, n, NULL, 0, list,
			       n * sizeof(*list)),
			"CLEAN");
	}
}

/* For as long no program may run. */
void gc_trace_start(struct gc_world *w, u16 flags)
{
	struct virtio_gc_region list[GC_WORLD_REGIONS] = { 0 };

	if (w->regions > GC_WORLD_REGIONS)
		die("gc_host: %u regions", w->regions);
	for (u32 r = 0; r < w->regions; r++) {
		list[r].region = htole32(r);
		list[r].top = htole64((r + 1) * w->h.region_bytes);
	}
	w->epoch++;
	gc_must(gc_ask(w, VIRTIO_GC_TRACE_START, flags, w->regions, NULL, 0,
		       list, w->regions * sizeof(*list)),
		"TRACE_START");
}

/* @root: an address; 0: nothing is reachable */
void gc_trace_root(struct gc_world *w, u64 root)
{
	const __le64 le = htole64(root);

	gc_must(gc_ask(w, VIRTIO_GC_TRACE_ROOTS, 0, 1, NULL, 0, &le, 8),
		"TRACE_ROOTS");
}

u64 gc_root_of(const struct gc_world *w)
{
	return GC_HEAP_ADDRESS + w->h.at[0];
}

u64 gc_trace_finish(struct gc_world *w)
{
	struct virtio_gc_range range = {
		.regions = htole32(w->regions),
		.bitmaps = htole64(VIRTIO_GC_NONE),
	};
	const struct virtio_gc_live *live = (const void *)call.entries;
	u64 objects = 0;

	gc_must(gc_ask(w, VIRTIO_GC_TRACE_FINISH, 0, 0, NULL, 0, NULL, 0),
		"TRACE_FINISH");
	gc_must(gc_ask(w, VIRTIO_GC_TRACE_RESULTS, 0, 0, &range, sizeof(range),
		       NULL, 0),
		"TRACE_RESULTS");
	for (u32 r = 0; r < w->regions; r++)
		objects += le64toh(live[r].objects);
	return objects;
}

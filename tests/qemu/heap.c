// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * heap.c - tests/gc's runtime on libvgc
 *
 * The heap is made in the runtime's own memory and then copied into the space,
 * which from there on is what it reads and writes. Tracing is compared bit by
 * bit with what its own collector finds; the results that count in a region
 * with a sum over its objects. Moving is compared by walking both graphs, the
 * copy taken before and what is there now, from the roots.
 *
 * Places: objects are in the first regions; then come pairs of a to-region and
 * one for its forward table; the last HEAP_TABLES are for bitmaps. COMPACT's
 * tables are in two free regions, of one donor after the other.
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "heap.h"

#define REGIONS		288u	/* 18 MiB */
#define ADDRESS		(1ull << 30)	/* free in every kind of program */
#define OPAQUES_MAX	1024u
#define ANSWER_MS	60000	/* whatever its deadline, it hangs */

#define PAIRS_AT	(REGIONS - HEAP_SPARE)
#define TABLES_AT	(REGIONS - HEAP_TABLES)

/* ---- requests ---- */

static u32 ask(struct heap *h, u16 command, u16 flags, u32 count,
	       const void *arg, size_t arg_bytes, const void *entries,
	       size_t entry_bytes, const void *tail, size_t tail_bytes)
{
	const struct vgc_info *info = vgc_info(h->v);
	bool of_trace = command >= VIRTIO_GC_TRACE_START &&
			command <= VIRTIO_GC_COMPACT;
	struct vgc_call c = {
		.command = command,
		.flags = flags,
		.epoch = of_trace ? h->epoch : 0,
		.deadline_ms = h->deadline_ms,
		.count = count,
		.arg = arg,
		.arg_bytes = (uint32_t)arg_bytes,
		.entries = entries,
		.entry_bytes = (uint32_t)entry_bytes,
		.tail = tail,
		.tail_bytes = (uint32_t)tail_bytes,
		.answer = &h->answer,
		.answer_room = info->response_max < HEAP_ROOM ?
				       info->response_max :
				       HEAP_ROOM,
	};
	int rc = vgc_start(h->v, &c);

	CHECK(!rc, "command %u: error %d", command, rc);
	rc = vgc_wait(h->v, &c, ANSWER_MS);
	CHECK(!rc, "command %u: error %d", command, rc);
	CHECK(c.answer_bytes >= sizeof(h->answer.done));
	return le32toh(h->answer.done.status);
}

u32 heap_ask(struct heap *h, u16 command, u16 flags, u32 count, const void *arg,
	     size_t arg_bytes, const void *entries, size_t entry_bytes)
{
	return ask(h, command, flags, count, arg, arg_bytes, entries,
		   entry_bytes, NULL, 0);
}

/* ---- life ---- */

static void heap_make(struct heap *h, u32 seed)
{
	struct mut_config c = {
		.seed = 20261121 + seed,
		.regions = REGIONS,
		.spare = HEAP_SPARE,
		.region_bytes = HEAP_REGION,
		.address = ADDRESS,
		.donors = 1,
		.ref_bytes = seed & 1 ? 4 : 8,
		.header = seed,
		.shape = (enum mut_shape)(seed % MUT_SHAPES),
		.objects = 40000,
		.roots = 40,
		.array_max = 6000,
	};

	h->m = mut_new(&c);
	h->bytes = h->m->l.bytes;
	h->regions = REGIONS;
	mut_fill(h->m);
	h->own = h->m->host;
	h->live = calloc(h->bytes / 16, 1);
	h->was = malloc(h->bytes);
	h->now = malloc(h->bytes);
	h->donor = calloc(REGIONS, sizeof(*h->donor));
	CHECK(h->live && h->was && h->now && h->donor);
}

void heap_open(struct heap *h, const char *device, u32 seed)
{
	struct virtio_gc_types types = { 0 };
	struct virtio_gc_space space;
	u8 bytes[16 * 32 + 128 * 8];
	char err[300];

	memset(h, 0, sizeof(*h));
	h->v = vgc_open(device, err, sizeof(err));
	CHECK(h->v, "%s", err);
	/* all there is, through every layer */
	CHECK(vgc_info(h->v)->features == 31, "features %llx",
	      (unsigned long long)vgc_info(h->v)->features);
	heap_make(h, seed);
	space = mut_space_le(h->m);
	/* A space that was goes some time after its process. */
	for (u32 i = 0; !h->space && i < 3000; i++) {
		h->space = vgc_create(h->v, &space);
		CHECK(h->space || errno == ENOSPC, "errno %d", errno);
		if (!h->space)
			usleep(10000);
	}
	/* where it was said to be, or addresses mean nothing [VGC-G-5] */
	CHECK((u64)h->space == h->m->l.address, "errno %d", errno);
	for (u64 i = 0; i < h->bytes; i += 512)
		CHECK(!*(u64 *)(void *)(h->space + i));
	memcpy(h->space, h->own, h->bytes);
	h->m->host = (u8 *)h->space;

	types.runs = htole32(h->m->nr_runs);
	mut_types_le(h->m, bytes);
	heap_must(h,
		  ask(h, VIRTIO_GC_TYPES_ADD, 0, h->m->nr_types, &types,
		      sizeof(types), bytes, sizeof(struct virtio_gc_type),
		      bytes + h->m->nr_types * sizeof(struct virtio_gc_type),
		      h->m->nr_runs * sizeof(struct virtio_gc_run)),
		  VIRTIO_GC_OK);
}

void heap_close(struct heap *h)
{
	vgc_close(h->v);
	h->m->host = h->own;
	mut_free(h->m);
	free(h->live);
	free(h->was);
	free(h->now);
	free(h->donor);
}

void heap_remember(struct heap *h)
{
	memcpy(h->was, h->space, h->bytes);
}

static bool is_target(const struct heap *h, u32 region)
{
	u64 at = region * HEAP_REGION;

	for (u32 i = 0; i < h->nr_moves; i++)
		if (le32toh(h->move[i].to) == region ||
		    (le64toh(h->move[i].table) & ~(HEAP_REGION - 1)) == at)
			return true;
	return false;
}

void heap_same(struct heap *h)
{
	for (u32 r = 0; r < TABLES_AT; r++)
		CHECK(is_target(h, r) ||
			      !memcmp(h->was + r * HEAP_REGION,
				      h->space + r * HEAP_REGION, HEAP_REGION),
		      "region %u", r);
}

/* ---- places ---- */

/* The first @n regions with their tops, but for those that are being moved. */
static u32 regions_of(const struct heap *h, struct virtio_gc_region *list,
		      u32 n)
{
	u32 k = 0;

	for (u32 r = 0; r < n; r++) {
		bool from = false;

		for (u32 i = 0; i < h->nr_moves; i++)
			from |= le32toh(h->move[i].from) == r;
		if (!from)
			list[k++] = (struct virtio_gc_region){
				.region = htole32(r),
				.top = htole64(r * HEAP_REGION + h->m->top[r]),
			};
	}
	return k;
}

void heap_donors(struct heap *h)
{
	struct virtio_gc_range range = { .regions = htole32(h->regions) };
	u64 each = vgc_info(h->v)->region_bytes_max / HEAP_REGION;
	const __le32 *donor = (const void *)(&h->answer.done + 1);
	struct virtio_gc_region list[REGIONS];

	for (u32 r = 0; r < h->regions; r++)
		list[r] = (struct virtio_gc_region){ .region = htole32(r) };
	heap_must(h,
		  heap_ask(h, VIRTIO_GC_CLEAN, 0, h->regions, NULL, 0, list,
			   sizeof(*list)),
		  VIRTIO_GC_OK);
	heap_must(h,
		  heap_ask(h, VIRTIO_GC_SPACE_DONORS, 0, 0, &range,
			   sizeof(range), NULL, 0),
		  VIRTIO_GC_OK);
	CHECK(le32toh(h->answer.done.count) == h->regions);
	/* what shares the largest region there may be is on one [VGC-D-16] */
	for (u32 r = 0; r < h->regions; r++) {
		h->donor[r] = le32toh(donor[r]);
		CHECK(h->donor[r] < vgc_info(h->v)->donors);
		CHECK(h->donor[r] == h->donor[r - r % each]);
	}
	range.first = htole32(1);
	heap_must(h,
		  heap_ask(h, VIRTIO_GC_SPACE_DONORS, 0, 0, &range,
			   sizeof(range), NULL, 0),
		  VIRTIO_GC_INVALID);
}

u32 heap_hint(struct heap *h, u32 what, u64 offset, u64 bytes)
{
	struct virtio_gc_hint hint = { .what = htole32(what) };
	struct virtio_gc_extent e = {
		.offset = htole64(offset),
		.bytes = htole64(bytes),
	};

	return heap_ask(h, VIRTIO_GC_HINT, 0, 1, &hint, sizeof(hint), &e,
			sizeof(e));
}

/* ---- tracing ---- */

/* Addresses, as many as a request takes at a time. */
static u32 roots_send(struct heap *h, const void *addresses, u64 n)
{
	u64 most = (vgc_info(h->v)->request_max - 64) / 8, k;
	const __le64 *at = addresses;
	u32 status = VIRTIO_GC_OK;

	for (; n && !status; n -= k, at += k) {
		k = n < most ? n : most;
		status = heap_ask(h, VIRTIO_GC_TRACE_ROOTS, 0, (u32)k, NULL, 0,
				  at, 8);
	}
	return status;
}

static u32 own_roots_send(struct heap *h)
{
	__le64 le[64];

	CHECK(h->m->nr_roots <= 64);
	mut_roots_le(h->m, le);
	return roots_send(h, le, h->m->nr_roots);
}

/* Opaque objects that were met, scanned by the runtime. */
static u32 opaques_scan(struct heap *h)
{
	struct virtio_gc_met met = { .max = htole32(OPAQUES_MAX) };
	const __le64 *at = (const void *)(&h->answer.done + 1);
	u64 room = 65536, n = 0;
	__le64 *found;
	u32 status = heap_ask(h, VIRTIO_GC_TRACE_MET, 0, 0, &met, sizeof(met),
			      NULL, 0);
	u32 count = le32toh(h->answer.done.count);

	if (status)
		return status;
	CHECK(count <= OPAQUES_MAX);
	found = malloc(room * sizeof(*found));
	CHECK(found);
	for (u32 i = 0; i < count; i++) {
		u64 offset = le64toh(at[i]) - h->m->l.address;
		const struct mut_object *o;
		u64 slots;

		CHECK(offset < h->bytes && h->m->at_unit[offset / 8]);
		o = &h->m->objects[h->m->at_unit[offset / 8] - 1];
		CHECK(h->m->types[o->type].flags & VIRTIO_GC_TYPE_OPAQUE);
		slots = mut_slots(h->m, o);
		if (n + slots > room) {
			room = (n + slots) * 2;
			found = realloc(found, room * sizeof(*found));
			CHECK(found);
		}
		mut_slots_le(h->m, o, found + n);
		n += slots;
	}
	status = roots_send(h, found, n);
	free(found);
	return status;
}

static u32 trace_finish(struct heap *h)
{
	u32 status;

	while ((status = heap_ask(h, VIRTIO_GC_TRACE_FINISH, 0, 0, NULL, 0,
				  NULL, 0)) == VIRTIO_GC_MET) {
		status = opaques_scan(h);
		if (status)
			return status;
	}
	return status;
}

/* Bitmaps of all regions, in the space where they were asked for. */
static u32 results(struct heap *h)
{
	struct virtio_gc_range range = {
		.regions = htole32(h->regions),
		.bitmaps = htole64(TABLES_AT * HEAP_REGION),
	};

	return heap_ask(h, VIRTIO_GC_TRACE_RESULTS, 0, 0, &range, sizeof(range),
			NULL, 0);
}

/* Each unit, and the sums of each region, against the runtime's own. */
static void results_check(struct heap *h)
{
	const struct virtio_gc_live *live = (const void *)(&h->answer.done + 1);
	const u8 *bits = (u8 *)h->space + TABLES_AT * HEAP_REGION;
	u64 bytes[REGIONS] = { 0 }, objects[REGIONS] = { 0 }, wrong = 0;

	CHECK(le32toh(h->answer.done.count) == h->regions);
	mut_trace(h->m, h->live, NULL);
	for (u64 u = 0; u < h->bytes / 8; u++) {
		u32 o = h->m->at_unit[u];

		wrong += (bits[u / 8] >> u % 8 & 1) != (o ? h->live[o - 1] : 0);
	}
	CHECK(!wrong, "%llu objects", (unsigned long long)wrong);
	for (u32 o = 0; o < h->m->nr_objects; o++) {
		u64 r = h->m->objects[o].at / HEAP_REGION;

		bytes[r] += h->live[o] ? h->m->objects[o].bytes : 0;
		objects[r] += h->live[o];
	}
	for (u32 r = 0; r < h->regions; r++) {
		CHECK(le32toh(live[r].region) == r && !live[r].status);
		CHECK(le64toh(live[r].bytes) == bytes[r] &&
			      le64toh(live[r].objects) == objects[r],
		      "region %u", r);
	}
}

u32 heap_trace_start(struct heap *h)
{
	struct virtio_gc_region list[REGIONS];
	u32 n = regions_of(h, list, h->regions);

	h->epoch++;
	return heap_ask(h, VIRTIO_GC_TRACE_START, 0, n, NULL, 0, list,
			sizeof(*list));
}

u32 heap_trace(struct heap *h)
{
	u32 status;

	heap_remember(h);
	status = heap_trace_start(h);
	if (!status)
		status = own_roots_send(h);
	if (!status)
		status = trace_finish(h);
	/* nobody wrote: not the trace [VGC-D-30], nor we [VGC-G-7] */
	heap_same(h);
	if (!status)
		status = results(h);
	if (!status)
		results_check(h);
	return status;
}

static void satb_send(struct heap *h)
{
	heap_must(h, roots_send(h, h->m->satb, h->m->nr_satb), VIRTIO_GC_OK);
	h->m->nr_satb = 0;
}

void heap_trace_running(struct heap *h)
{
	u32 n, before = h->m->nr_objects;
	struct virtio_gc_region list[REGIONS];
	struct mut *m = h->m;
	u64 satb[4096], missed = 0;
	const u8 *bits;

	n = regions_of(h, list, h->regions);
	mut_trace(m, h->live, NULL);
	mut_run(m, h->live);
	m->satb = satb;
	m->satb_max = 4096;
	m->nr_satb = 0;
	h->epoch++;
	heap_must(h,
		  heap_ask(h, VIRTIO_GC_TRACE_START, VIRTIO_GC_TRACE_CONCURRENT,
			   n, NULL, 0, list, sizeof(*list)),
		  VIRTIO_GC_OK);
	heap_must(h, own_roots_send(h), VIRTIO_GC_OK);
	for (u32 i = 0; i < 200; i++) {
		mut_step(m, true);
		if (m->nr_satb > 2000)
			satb_send(h);
	}
	satb_send(h);
	m->satb = NULL;
	heap_must(h, trace_finish(h), VIRTIO_GC_OK);
	heap_must(h, results(h), VIRTIO_GC_OK);
	bits = (u8 *)h->space + TABLES_AT * HEAP_REGION;
	for (u32 o = 0; o < before; o++) {
		u64 u = m->objects[o].at / 8;

		missed += h->live[o] && !(bits[u / 8] >> u % 8 & 1);
	}
	/* [VGC-D-23] */
	CHECK(!missed, "%llu objects", (unsigned long long)missed);
	free(m->usable);
	m->usable = NULL;
	m->nr_usable = 0;
}

/* ---- what a program does ---- */

u32 heap_arrays_clear(struct heap *h)
{
	u32 n = 0;

	for (u32 o = 0; o < h->m->nr_objects; o++) {
		const struct mut_object *obj = &h->m->objects[o];
		u64 slots = mut_slots(h->m, obj);

		if (slots * h->m->l.ref_bytes < 8192 || !h->live[o] || o % 2)
			continue;
		n++;
		for (u64 s = 0; s < slots; s++)
			mut_write(h->m, mut_slot(h->m, obj, s), MUT_NULL);
	}
	return n;
}

static u32 live_count(struct heap *h)
{
	u32 n = 0;

	mut_trace(h->m, h->live, NULL);
	for (u32 o = 0; o < h->m->nr_objects; o++)
		n += h->live[o];
	return n;
}

void heap_drop(struct heap *h, u32 percent)
{
	u64 goal = (u64)live_count(h) * percent / 100;

	for (u32 k = 0; k < 64 && live_count(h) > goal; k++)
		for (u32 o = k; o < h->m->nr_objects; o += 64) {
			const struct mut_object *obj = &h->m->objects[o];

			for (u64 s = 0; s < mut_slots(h->m, obj); s++)
				mut_write(h->m, mut_slot(h->m, obj, s),
					  MUT_NULL);
		}
}

void heap_opaque_clear(struct heap *h)
{
	for (u32 o = 0; o < h->m->nr_objects; o++) {
		const struct mut_object *obj = &h->m->objects[o];

		for (u64 s = 0;
		     h->m->types[obj->type].flags & VIRTIO_GC_TYPE_OPAQUE &&
		     s < mut_slots(h->m, obj);
		     s++)
			mut_write(h->m, mut_slot(h->m, obj, s), MUT_NULL);
	}
}

/* ---- moving ---- */

/* One object of both graphs; what it refers to goes on @todo. */
static u64 same_object(struct heap *h, u64 at, u64 *todo, u64 n)
{
	const struct mut *m = h->m;
	struct mut old = *m, new = *m;
	const struct mut_object *o = &m->objects[m->at_unit[at / 8] - 1];
	const struct mut_type *t = &m->types[o->type];
	u64 slots = mut_slots(m, o), to = h->now[at / 8], k = 0;
	u8 *a = malloc(o->bytes), *b = malloc(o->bytes);

	old.host = h->was;
	new.host = (u8 *)h->space;
	CHECK(a && b && to + o->bytes <= h->bytes);
	memcpy(a, h->was + at, o->bytes);
	memcpy(b, h->space + to, o->bytes);
	for (u64 s = 0; s < slots; s++) {
		u64 field = mut_slot(m, o, s), x, y;

		x = mut_read(&old, field);
		y = mut_read(&new, field - at + to);
		memset(a + field - at, 0, m->l.ref_bytes);
		memset(b + field - at, 0, m->l.ref_bytes);
		CHECK((x == MUT_NULL) == (y == MUT_NULL));
		if (x == MUT_NULL)
			continue;
		if (h->now[x / 8] == U64_MAX) {
			h->now[x / 8] = y;
			todo[n++] = x;
		}
		CHECK(h->now[x / 8] == y, "%llx is at %llx and %llx",
		      (unsigned long long)x, (unsigned long long)h->now[x / 8],
		      (unsigned long long)y);
	}
	if (t->flags & VIRTIO_GC_TYPE_WEAK) {
		memset(a + t->referent, 0, m->l.ref_bytes);
		memset(b + t->referent, 0, m->l.ref_bytes);
	}
	for (; k < o->bytes && a[k] == b[k]; k++)
		;
	/* [VGC-D-40] */
	CHECK(k == o->bytes, "object %llx: byte %llu", (unsigned long long)at,
	      (unsigned long long)k);
	free(a);
	free(b);
	return n;
}

/*
 * Object by object from the roots, @was is the heap before: each is somewhere,
 * in one place, with the same bytes and references. Fills in @now.
 */
static u64 same_graph(struct heap *h, const u64 *roots)
{
	const struct mut *m = h->m;
	u64 *todo = malloc(h->bytes), n = 0, met = 0;

	CHECK(todo);
	memset(h->now, 0xff, h->bytes);
	for (u32 i = 0; i < m->nr_roots; i++) {
		CHECK((m->roots[i] == MUT_NULL) == (roots[i] == MUT_NULL));
		if (m->roots[i] == MUT_NULL)
			continue;
		if (h->now[m->roots[i] / 8] == U64_MAX) {
			h->now[m->roots[i] / 8] = roots[i];
			todo[n++] = m->roots[i];
		}
		CHECK(h->now[m->roots[i] / 8] == roots[i]);
	}
	for (; n; met++)
		n = same_object(h, todo[n - 1], todo, n - 1);
	free(todo);
	return met;
}

/* From now on the runtime knows objects where they are; the dead are gone. */
static void adopt(struct heap *h, const u64 *roots)
{
	struct mut *m = h->m;
	u32 k = 0;

	for (u32 o = 0; o < m->nr_objects; o++) {
		struct mut_object obj = m->objects[o];

		m->at_unit[obj.at / 8] = 0;
		obj.at = h->now[obj.at / 8];
		if (obj.at != U64_MAX)
			m->objects[k++] = obj;
	}
	m->nr_objects = k;
	for (u32 o = 0; o < k; o++) {
		CHECK(!m->at_unit[m->objects[o].at / 8]);
		m->at_unit[m->objects[o].at / 8] = o + 1;
	}
	memcpy(m->roots, roots, m->nr_roots * sizeof(*roots));
}

/* The runtime's own use of a forward table. [VGC-D-38] */
static u64 forward(const struct heap *h, u64 at)
{
	for (u32 i = 0; i < h->nr_moves && at != MUT_NULL; i++) {
		const struct virtio_gc_move *v = &h->move[i];
		const struct virtio_gc_forward *w;
		const __le32 *place;
		u64 unit = at % HEAP_REGION / 8, starts;

		if (at / HEAP_REGION != le32toh(v->from))
			continue;
		w = (const void *)(h->space + le64toh(v->table));
		place = (const void *)(w + HEAP_REGION / 8 / 64);
		w += unit / 64;
		starts = le64toh(w->starts);
		CHECK(starts >> unit % 64 & 1, "%llx did not move",
		      (unsigned long long)at);
		starts &= (1ull << unit % 64) - 1;
		place += le32toh(w->before) + (u32)__builtin_popcountll(starts);
		return le32toh(v->to) * HEAP_REGION + le32toh(*place) * 8ull;
	}
	return at;
}

/* What UPDATE does, or what is left of it. [VGC-D-41] */
static void update_own(struct heap *h)
{
	struct mut *m = h->m;

	for (u32 o = 0; o < m->nr_objects; o++) {
		const struct mut_object *obj = &m->objects[o];
		u64 to = forward(h, h->live[o] ? obj->at : MUT_NULL);

		for (u64 s = 0; to != MUT_NULL && s < mut_slots(m, obj); s++) {
			u64 field = mut_slot(m, obj, s) - obj->at + to;

			mut_write(m, field, forward(h, mut_read(m, field)));
		}
	}
}

/* The roots' new places, by the device or from the tables. */
static void roots_forward(struct heap *h, bool own, u64 *roots)
{
	const __le64 *at = (const void *)(&h->answer.done + 1);
	struct mut *m = h->m;
	__le64 le[64];

	mut_roots_le(m, le);
	own |= heap_ask(h, VIRTIO_GC_FORWARD, 0, m->nr_roots, NULL, 0, le, 8) !=
	       VIRTIO_GC_OK;
	for (u32 i = 0; i < m->nr_roots; i++) {
		roots[i] = own ? forward(h, m->roots[i]) :
			   at[i] ? le64toh(at[i]) - m->l.address :
				   MUT_NULL;
		/* both know the same [VGC-D-42] */
		CHECK(own || !h->nr_moves ||
		      roots[i] == forward(h, m->roots[i]));
	}
}

/* From-regions are free, and empty. [VGC-G-9]: not before. */
static u32 release(struct heap *h, const struct virtio_gc_region *list, u32 n)
{
	u32 status = heap_ask(h, VIRTIO_GC_RELEASE, VIRTIO_GC_RELEASE_DISCARD,
			      n, NULL, 0, list, sizeof(*list));

	for (u32 i = 0; i < n; i++) {
		u64 at = le32toh(list[i].region) * HEAP_REGION;

		for (u64 k = 0; k < HEAP_REGION && !status; k++)
			CHECK(!h->space[at + k]);
		h->m->top[le32toh(list[i].region)] = 0;
	}
	return status;
}

/* A region of objects on each pair's donor, as far as there are. */
static void moves_choose(struct heap *h)
{
	u64 live[REGIONS] = { 0 };
	u32 from = 0;

	for (u32 o = 0; o < h->m->nr_objects; o++)
		live[h->m->objects[o].at / HEAP_REGION] += h->live[o];
	h->nr_moves = 0;
	for (u32 to = PAIRS_AT; to < TABLES_AT && h->nr_moves < HEAP_MOVES;
	     to += 2) {
		u32 k;

		if (h->m->top[to] || h->m->top[to + 1])
			continue;
		for (k = 0; k < PAIRS_AT; k++, from++)
			if (live[from % PAIRS_AT] &&
			    h->donor[from % PAIRS_AT] == h->donor[to] &&
			    h->donor[to + 1] == h->donor[to])
				break;
		if (k == PAIRS_AT)
			continue;
		h->move[h->nr_moves++] = (struct virtio_gc_move){
			.from = htole32(from++ % PAIRS_AT),
			.to = htole32(to),
			.start = htole64(to * HEAP_REGION),
			.table = htole64((to + 1) * HEAP_REGION),
			.table_bytes = htole64(HEAP_REGION),
		};
	}
	for (u32 i = 0; i < h->nr_moves; i++)
		for (u32 k = 0; k < i; k++)
			CHECK(h->move[i].from != h->move[k].from);
}

/* To another donor nothing is moved. */
static void cross_donor(struct heap *h)
{
	const struct virtio_gc_moved *moved =
		(const void *)(&h->answer.done + 1);
	struct virtio_gc_move m = h->move[0];
	u32 to = PAIRS_AT;

	while (to < TABLES_AT && h->donor[to] == h->donor[le32toh(m.from)])
		to++;
	if (to == TABLES_AT)
		return;
	m.to = htole32(to);
	m.start = htole64(to * HEAP_REGION);
	heap_must(h,
		  heap_ask(h, VIRTIO_GC_EVACUATE, 0, 1, NULL, 0, &m, sizeof(m)),
		  VIRTIO_GC_OK);
	CHECK(le32toh(moved->status) == VIRTIO_GC_CROSS_DONOR);
}

u32 heap_evacuate(struct heap *h, u32 *moves)
{
	const struct virtio_gc_moved *moved =
		(const void *)(&h->answer.done + 1);
	struct virtio_gc_region list[REGIONS];
	u64 roots[64];
	u32 n, status;

	*moves = 0;
	moves_choose(h);
	if (!h->nr_moves)
		return VIRTIO_GC_OK;
	if (!h->deadline_ms)
		cross_donor(h);
	heap_remember(h);
	status = heap_ask(h, VIRTIO_GC_EVACUATE,
			  h->epoch & 1 ? VIRTIO_GC_MOVE_BREADTH_FIRST : 0,
			  h->nr_moves, NULL, 0, h->move, sizeof(*h->move));
	/* only copies and tables were written [VGC-D-12] [VGC-D-39] */
	heap_same(h);
	if (status) {
		h->nr_moves = 0;
		return status;
	}
	CHECK(le32toh(h->answer.done.count) == h->nr_moves);
	for (u32 i = 0; i < h->nr_moves; i++) {
		u32 to = le32toh(h->move[i].to);

		CHECK(!moved[i].status && moved[i].from == h->move[i].from);
		CHECK(le64toh(moved[i].end) <= (to + 1) * HEAP_REGION);
		h->m->top[to] = le64toh(moved[i].end) - to * HEAP_REGION;
	}
	n = regions_of(h, list, TABLES_AT);
	status = heap_ask(h, VIRTIO_GC_UPDATE, 0, n, NULL, 0, list,
			  sizeof(*list));
	if (status)
		update_own(h);
	roots_forward(h, !!status, roots);
	for (u32 i = 0; i < h->nr_moves; i++) {
		u64 at = le32toh(h->move[i].from) * HEAP_REGION;

		/* still whole, and ours not to touch [VGC-D-39] [VGC-G-8] */
		CHECK(!memcmp(h->was + at, h->space + at, HEAP_REGION));
		list[i] =
			(struct virtio_gc_region){ .region = h->move[i].from };
	}
	same_graph(h, roots);
	adopt(h, roots);
	*moves = h->nr_moves;
	h->nr_moves = 0;
	n = release(h, list, *moves);
	CHECK(status || !n || h->deadline_ms, "RELEASE: status %u", n);
	return VIRTIO_GC_OK;
}

u32 heap_compact(struct heap *h, u32 donor)
{
	struct virtio_gc_area area = { .bytes = htole64(2 * HEAP_REGION) };
	struct virtio_gc_region list[REGIONS];
	struct virtio_gc_moved moved[REGIONS];
	u32 n = regions_of(h, list, REGIONS), moves, status, at = PAIRS_AT;
	u64 roots[64];

	/* two free regions of its own for tables */
	while (at < REGIONS &&
	       (h->donor[at] != donor || h->m->top[at] || h->m->top[at + 1]))
		at += 2;
	if (at == REGIONS)
		return 0;
	area.tables = htole64(at * HEAP_REGION);
	memmove(list + at, list + at + 2, (n - at - 2) * sizeof(*list));
	heap_remember(h);
	/* no other donor has room for its tables */
	status = heap_ask(h, VIRTIO_GC_COMPACT, 0, n - 2, &area, sizeof(area),
			  list, sizeof(*list));
	CHECK(!status || status == VIRTIO_GC_NO_SPACE, "status %u", status);
	moves = le32toh(h->answer.done.count);
	CHECK(moves <= REGIONS);
	memcpy(moved, &h->answer.done + 1, moves * sizeof(*moved));
	roots_forward(h, false, roots);
	same_graph(h, roots);
	adopt(h, roots);
	for (u32 i = 0; i < moves; i++) {
		u64 from = le32toh(moved[i].from) * HEAP_REGION;
		u32 to = le32toh(moved[i].to);
		u64 end = le64toh(moved[i].end) - to * HEAP_REGION;

		CHECK(!moved[i].status && end <= HEAP_REGION);
		if (h->m->top[to] < end)
			h->m->top[to] = end;
		CHECK(h->donor[from / HEAP_REGION] == donor &&
		      h->donor[to] == donor);
		CHECK(!memcmp(h->was + from, h->space + from, HEAP_REGION));
		list[i] = (struct virtio_gc_region){ .region = moved[i].from };
	}
	heap_must(h, release(h, list, moves), VIRTIO_GC_OK);
	/* nothing live refers to where it was [VGC-D-45] */
	for (u32 o = 0; o < h->m->nr_objects; o++)
		for (u32 i = 0; i < moves; i++)
			CHECK(h->m->objects[o].at / HEAP_REGION !=
			      le32toh(moved[i].from));
	return moves;
}

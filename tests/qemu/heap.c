// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * heap.c - tests/gc's runtime on libvgc
 *
 * The heap is made in the runtime's own memory and then copied into the space,
 * which from there on is what it reads and writes. Tracing is compared bit by
 * bit with what its own collector finds; the results that count in a region
 * with a sum over its objects.
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "heap.h"

/*
 * Free in every kind of program: malloc()'s break begins up to 1 GiB after one
 * that is not position independent, AddressSanitizer's shadow is at 2 GiB.
 */
#define ADDRESS		(3ull << 29)
#define OPAQUES_MAX	1024u
#define ANSWER_MS	60000	/* whatever its deadline, it hangs */
#define TOUCH_LIMIT_MS	30000u	/* an access is not waited for longer */

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
	int rc;

	heap_loss_begin(h, command);
	rc = vgc_start(h->v, &c);
	h->asked = command;
	EXPECT(!rc, "command %u: error %d", command, rc);
	rc = vgc_wait(h->v, &c, ANSWER_MS);
	/* [VGC-D-7] */
	EXPECT(!rc, "command %u: error %d", command, rc);
	EXPECT(c.answer_bytes >= sizeof(h->answer.done));
	heap_loss_end(h, command);
	return le32toh(h->answer.done.status);
}

/*
 * A command that moves or updates was answered: whoever waited for it goes on,
 * with nothing else asked of the device. The second access began after that.
 */
static void touched_on(const struct heap *h)
{
	u64 since, now;

	if (!h->touched)
		return;
	since = __atomic_load_n(h->touched, __ATOMIC_ACQUIRE);
	for (u32 i = 0; i < TOUCH_LIMIT_MS; i++) {
		now = __atomic_load_n(h->touched, __ATOMIC_ACQUIRE);
		if (now - since > 1)
			break;
		usleep(1000);
	}
	/* [VGC-D-43] */
	EXPECT(now - since > 1, "an access waits although command %u is done",
	      h->asked);
}

u32 heap_ask(struct heap *h, u16 command, u16 flags, u32 count, const void *arg,
	     size_t arg_bytes, const void *entries, size_t entry_bytes)
{
	u32 status = ask(h, command, flags, count, arg, arg_bytes, entries,
			 entry_bytes, NULL, 0);

	if (command == VIRTIO_GC_EVACUATE || command == VIRTIO_GC_UPDATE ||
	    command == VIRTIO_GC_COMPACT)
		touched_on(h);
	return status;
}

/* ---- life ---- */

static void heap_make(struct heap *h, u32 seed)
{
	struct mut_config c = {
		.seed = 20261121 + seed,
		.regions = HEAP_REGIONS,
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
	h->regions = HEAP_REGIONS;
	mut_fill(h->m);
	h->own = h->m->host;
	h->live = calloc(h->bytes / 16, 1);
	h->was = malloc(h->bytes);
	h->now = malloc(h->bytes);
	h->donor = calloc(HEAP_REGIONS, sizeof(*h->donor));
	EXPECT(h->live && h->was && h->now && h->donor);
}

void heap_open(struct heap *h, const char *device, u32 seed)
{
	struct virtio_gc_types types = { 0 };
	struct virtio_gc_space space;
	u8 bytes[16 * 32 + 128 * 8];
	char err[300];

	memset(h, 0, sizeof(*h));
	h->v = vgc_open(device, err, sizeof(err));
	EXPECT(h->v, "%s", err);
	/* all there is, through every layer */
	EXPECT(vgc_info(h->v)->features == (2u << VIRTIO_GC_F_BUDGET) - 1,
	       "features %llx", (unsigned long long)vgc_info(h->v)->features);
	/* of the test's pager, whole MiB; a kernel's files have it, too */
	EXPECT(vgc_budget(h->v) && !(vgc_budget(h->v) & 0xfffff), "budget %llx",
	       (unsigned long long)vgc_budget(h->v));
	heap_make(h, seed);
	space = mut_space_le(h->m);
	/* A space that was goes some time after its process. */
	for (u32 i = 0; !h->space && i < 3000; i++) {
		h->space = vgc_create(h->v, &space);
		EXPECT(h->space || errno == ENOSPC, "errno %d", errno);
		if (!h->space)
			usleep(10000);
	}
	/* where it was said to be, or addresses mean nothing [VGC-G-5] */
	EXPECT((u64)h->space == h->m->l.address, "errno %d", errno);
	for (u64 i = 0; i < h->bytes; i += 512)
		EXPECT(!*(u64 *)(void *)(h->space + i));
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
	for (u32 r = 0; r < HEAP_TABLES_AT; r++)
		EXPECT(is_target(h, r) || h->lost[r] ||
			      !memcmp(h->was + r * HEAP_REGION,
				      h->space + r * HEAP_REGION, HEAP_REGION),
		      "region %u", r);
}

/* ---- places ---- */

u32 heap_regions(const struct heap *h, struct virtio_gc_region *list, u32 n)
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

u32 heap_where(struct heap *h)
{
	struct virtio_gc_range range = { .regions = htole32(h->regions) };
	const __le32 *donor = (const void *)(&h->answer.done + 1);
	u32 status = heap_ask(h, VIRTIO_GC_SPACE_DONORS, 0, 0, &range,
			      sizeof(range), NULL, 0);

	/* no other failure: a lost donor's regions have an answer too */
	EXPECT(!status || (status == VIRTIO_GC_WORKER_LOST && h->deadline_ms),
	       "status %u", status);
	if (status)
		return status;
	EXPECT(le32toh(h->answer.done.count) == h->regions);
	for (u32 r = 0; r < h->regions; r++)
		h->donor[r] = le32toh(donor[r]);
	return VIRTIO_GC_OK;
}

void heap_donors(struct heap *h)
{
	struct virtio_gc_range range = { .regions = htole32(h->regions) };
	u64 each = vgc_info(h->v)->region_bytes_max / HEAP_REGION;
	struct virtio_gc_region list[HEAP_REGIONS];
	u64 at = each;

	for (u32 r = 0; r < h->regions; r++)
		list[r] = (struct virtio_gc_region){ .region = htole32(r) };
	heap_must(h,
		  heap_ask(h, VIRTIO_GC_CLEAN, 0, h->regions, NULL, 0, list,
			   sizeof(*list)),
		  VIRTIO_GC_OK);
	heap_must(h, heap_where(h), VIRTIO_GC_OK);
	/*
	 * Regions that lie in one region of the largest size are on one donor. So
	 * the donor changes at most every @each regions, counted from where the
	 * space begins in the window.
	 */
	for (u32 r = 0; r < h->regions; r++) {
		EXPECT(h->donor[r] < vgc_info(h->v)->donors);
		if (!r || h->donor[r] == h->donor[r - 1])
			continue;
		if (at == each)
			at = r % each;
		/* [VGC-D-16] */
		EXPECT(r % each == at, "region %u", r);
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

	EXPECT(h->m->nr_roots <= 64);
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
	EXPECT(count <= OPAQUES_MAX);
	found = malloc(room * sizeof(*found));
	EXPECT(found);
	for (u32 i = 0; i < count; i++) {
		u64 offset = le64toh(at[i]) - h->m->l.address;
		const struct mut_object *o;
		u64 slots;

		EXPECT(offset < h->bytes && h->m->at_unit[offset / 8]);
		o = &h->m->objects[h->m->at_unit[offset / 8] - 1];
		EXPECT(h->m->types[o->type].flags & VIRTIO_GC_TYPE_OPAQUE);
		slots = mut_slots(h->m, o);
		if (n + slots > room) {
			room = (n + slots) * 2;
			found = realloc(found, room * sizeof(*found));
			EXPECT(found);
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
		.bitmaps = htole64(HEAP_TABLES_AT * HEAP_REGION),
	};

	return heap_ask(h, VIRTIO_GC_TRACE_RESULTS, 0, 0, &range, sizeof(range),
			NULL, 0);
}

/* Each unit, and the sums of each region, against the runtime's own. */
static void results_check(struct heap *h)
{
	const struct virtio_gc_live *live = (const void *)(&h->answer.done + 1);
	const u8 *bits = (u8 *)h->space + HEAP_TABLES_AT * HEAP_REGION;
	u64 bytes[HEAP_REGIONS] = { 0 }, objects[HEAP_REGIONS] = { 0 },
	    wrong = 0;

	EXPECT(le32toh(h->answer.done.count) == h->regions);
	mut_trace(h->m, h->live, NULL);
	for (u64 u = 0; u < h->bytes / 8; u++) {
		u32 o = h->m->at_unit[u];

		wrong += (bits[u / 8] >> u % 8 & 1) != (o ? h->live[o - 1] : 0);
	}
	EXPECT(!wrong, "%llu objects", (unsigned long long)wrong);
	for (u32 o = 0; o < h->m->nr_objects; o++) {
		u64 r = h->m->objects[o].at / HEAP_REGION;

		bytes[r] += h->live[o] ? h->m->objects[o].bytes : 0;
		objects[r] += h->live[o];
	}
	for (u32 r = 0; r < h->regions; r++) {
		u32 status = le32toh(live[r].status);

		/* an empty one may be nowhere, where donors come and go */
		if (h->deadline_ms && !h->m->top[r] &&
		    status == VIRTIO_GC_NO_TRACE)
			status = VIRTIO_GC_OK;
		EXPECT(le32toh(live[r].region) == r && !status,
		      "region %u: status %u", r, status);
		EXPECT(le64toh(live[r].bytes) == bytes[r] &&
			      le64toh(live[r].objects) == objects[r],
		      "region %u", r);
	}
}

u32 heap_trace_start(struct heap *h)
{
	struct virtio_gc_region list[HEAP_REGIONS];
	u32 n = heap_regions(h, list, h->regions);

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
		status = heap_bitmaps(h);
	/* nor can the runtime say any more what is right */
	if (!status && !h->loss.happened)
		results_check(h);
	return status;
}

/* A page of a region is written to, and to its donor while the trace runs. */
static void written_back(struct heap *h, u32 region)
{
	struct virtio_gc_region one = { .region = htole32(region) };
	volatile char *page = h->space + region * HEAP_REGION;

	*page = *page;
	heap_must(h,
		  heap_ask(h, VIRTIO_GC_CLEAN, 0, 1, NULL, 0, &one,
			   sizeof(one)),
		  VIRTIO_GC_OK);
}

void heap_trace_stale(struct heap *h)
{
	const struct virtio_gc_live *live = (const void *)(&h->answer.done + 1);
	u32 region = (u32)(mut_root(h->m) / HEAP_REGION);
	struct virtio_gc_region list[HEAP_REGIONS];
	u32 n = heap_regions(h, list, h->regions);

	heap_must(h, heap_trace_start(h), VIRTIO_GC_OK);
	written_back(h, region);
	heap_must(h, own_roots_send(h), VIRTIO_GC_OK);
	heap_must(h, trace_finish(h), VIRTIO_GC_STALE);
	h->epoch++;
	heap_must(h,
		  heap_ask(h, VIRTIO_GC_TRACE_START, VIRTIO_GC_TRACE_LOCAL, n,
			   NULL, 0, list, sizeof(*list)),
		  VIRTIO_GC_OK);
	heap_must(h, own_roots_send(h), VIRTIO_GC_OK);
	written_back(h, region);
	heap_must(h, trace_finish(h), VIRTIO_GC_OK);
	heap_must(h, results(h), VIRTIO_GC_OK);
	for (u32 r = 0; r < h->regions; r++)
		EXPECT(le32toh(live[r].status) ==
			      (r == region ? VIRTIO_GC_STALE : VIRTIO_GC_OK),
		      "region %u, written to was %u: status %u", r, region,
		      le32toh(live[r].status));
}

static u32 satb_send(struct heap *h, u32 status)
{
	if (!status)
		status = roots_send(h, h->m->satb, h->m->nr_satb);
	h->m->nr_satb = 0;
	return status;
}

static void none_missed(const struct heap *h, u32 before)
{
	const u8 *bits = (u8 *)h->space + HEAP_TABLES_AT * HEAP_REGION;
	u64 missed = 0;

	for (u32 o = 0; o < before; o++) {
		u64 u = h->m->objects[o].at / 8;

		missed += h->live[o] && !(bits[u / 8] >> u % 8 & 1);
	}
	/* [VGC-D-23] */
	EXPECT(!missed, "%llu objects", (unsigned long long)missed);
}

u32 heap_trace_running(struct heap *h)
{
	u32 n, before = h->m->nr_objects, status = VIRTIO_GC_OK;
	struct virtio_gc_region list[HEAP_REGIONS];
	struct mut *m = h->m;
	u64 satb[4096];
	u32 nr_roots = m->nr_roots;
	__le64 roots[64];

	n = heap_regions(h, list, h->regions);
	mut_trace(m, h->live, NULL);
	mut_run(m, h->live);
	m->satb = satb;
	m->satb_max = 4096;
	m->nr_satb = 0;
	EXPECT(nr_roots <= 64);
	mut_roots_le(m, roots);
	h->epoch++;
	heap_must(h,
		  heap_ask(h, VIRTIO_GC_TRACE_START, VIRTIO_GC_TRACE_CONCURRENT,
			   n, NULL, 0, list, sizeof(*list)),
		  VIRTIO_GC_OK);
	/* pages are on their way, or not yet, when they are written to */
	for (u32 i = 0; i < 400; i++) {
		mut_step(m, true);
		if (i == 100 && !status)
			status = roots_send(h, roots, nr_roots);
		if (m->nr_satb > 2000)
			status = satb_send(h, status);
	}
	status = satb_send(h, status);
	m->satb = NULL;
	/* [VGC-G-6] */
	EXPECT(!m->nr_satb);
	if (!status)
		status = trace_finish(h);
	if (!status)
		status = results(h);
	if (!status)
		none_missed(h, before);
	free(m->usable);
	m->usable = NULL;
	m->nr_usable = 0;
	return status;
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
		for (u32 o = k; o < h->m->nr_objects; o += 64)
			mut_clear(h->m, &h->m->objects[o]);
}

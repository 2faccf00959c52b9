// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * gc_test.c - a heap in paged memory, collected by the donors that hold it
 *
 *	gc_test CONFIG HEAPS
 *
 * tests/gc's runtime lives in a window of paged memory and asks for its
 * collections as a guest would, by requests to libdcm_gc.h. Its heap is larger
 * than the budget; other threads touch all of it all the time, so that pages
 * come and go while donors work. What donors say is compared with the runtime's
 * own collector, and what they moved, object by object, with what was there.
 */
#include <endian.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../gc/mutator.h"
#include "libdcm_gc.h"

#define REGION	(64ull << 10)
#define REGIONS	288u		/* 18 MiB */
#define TABLES	24u		/* of them, at the end, for forward tables */
#define ROOM	65536u

#define CHECK(cond, ...)                                              \
	do {                                                          \
		if (!(cond)) {                                        \
			fprintf(stderr, "%s:%d: %s:", __FILE__,      \
				__LINE__, #cond);                     \
			fprintf(stderr, " " __VA_ARGS__);              \
			fprintf(stderr, "\n");                        \
			_exit(1);                                     \
		}                                                     \
	} while (0)

struct world {
	struct dcm_pager *pager;
	struct dcm_gc_host *gc;
	char *window;
	size_t bytes;
	struct mut *m;
	u8 *own;		/* the runtime's memory before it was paged */
	u8 *live;
	bool stop;
	u64 touched;
};

/* ---- requests ---- */

struct call {
	pthread_mutex_t lock;
	pthread_cond_t done;
	bool over;
	size_t bytes;
	u64 answer[ROOM / 8];
};

static struct call call = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.done = PTHREAD_COND_INITIALIZER,
};

static void answered(void *priv, void *token, const void *answer, size_t bytes)
{
	struct call *c = token;

	(void)priv;
	CHECK(bytes >= sizeof(struct virtio_gc_done) && bytes <= ROOM);
	pthread_mutex_lock(&c->lock);
	memcpy(c->answer, answer, bytes);
	c->bytes = bytes;
	c->over = true;
	pthread_cond_signal(&c->done);
	pthread_mutex_unlock(&c->lock);
}

static const struct virtio_gc_done *done = (const void *)call.answer;

static u32 ask(struct world *w, u16 command, u16 flags, u32 epoch, u32 count,
	       const void *body, size_t body_bytes, const void *entries,
	       size_t bytes)
{
	static u64 buf[ROOM / 8];
	struct virtio_gc_req req = {
		.command = htole16(command),
		.flags = htole16(flags),
		.space = htole32(5),
		.epoch = htole32(epoch),
		.count = htole32(count),
	};
	size_t len = mut_request_le(buf, sizeof(buf), req, body, body_bytes,
				    entries, bytes);

	CHECK(len);
	call.over = false;
	dcm_gc_host_submit(w->gc, buf, len, ROOM, &call);
	pthread_mutex_lock(&call.lock);
	while (!call.over)
		pthread_cond_wait(&call.done, &call.lock);
	pthread_mutex_unlock(&call.lock);
	return le32toh(done->status);
}

#define MUST(status, want)                                               \
	do {                                                             \
		u32 got_ = (status);                                     \
		CHECK(got_ == (want), "status %u of donor %d, at %llx", \
		      got_, (int)le32toh(done->donor),                  \
		      (unsigned long long)le64toh(done->at));           \
	} while (0)

/* ---- the heap ---- */

/* Reads all pages, in any order, beside who writes them: that is meant. */
__attribute__((no_sanitize_thread)) static void *touch(void *arg)
{
	struct world *w = arg;
	u64 seed = 88172645463325252ull + (u64)(uintptr_t)&seed, sum = 0;

	while (!__atomic_load_n(&w->stop, __ATOMIC_RELAXED)) {
		seed ^= seed << 13;
		seed ^= seed >> 7;
		seed ^= seed << 17;
		sum += *(volatile u64 *)(w->window +
					 seed % (w->bytes / 4096) * 4096 +
					 seed / 7 % 512 * 8);
		__atomic_fetch_add(&w->touched, 1, __ATOMIC_RELAXED);
	}
	return (void *)(uintptr_t)(sum & 1);
}

/* What opaque objects refer to is their own business: nothing. */
static void opaque_clear(struct mut *m)
{
	for (u32 o = 0; o < m->nr_objects; o++) {
		const struct mut_object *obj = &m->objects[o];

		for (u64 s = 0;
		     m->types[obj->type].flags & VIRTIO_GC_TYPE_OPAQUE &&
		     s < mut_slots(m, obj);
		     s++)
			mut_write(m, mut_slot(m, obj, s), MUT_NULL);
	}
}

static void heap_make(struct world *w, u32 i)
{
	struct mut_config c = {
		.seed = 20261121 + i,
		.regions = REGIONS,
		.spare = 72,
		.region_bytes = REGION,
		.donors = 3,
		.ref_bytes = i & 1 ? 4 : 8,
		.header = i,
		.shape = (enum mut_shape)(i % MUT_SHAPES),
		.objects = 40000,
		.roots = 40,
		.array_max = 6000,
	};

	w->m = mut_new(&c);
	CHECK(w->m->l.bytes == w->bytes);
	mut_fill(w->m);
	opaque_clear(w->m);
	/* from here on it is the window that the runtime reads and writes */
	w->own = w->m->host;
	memcpy(w->window, w->own, w->bytes);
	w->m->host = (u8 *)w->window;
	w->live = calloc(w->m->nr_objects, 1);
	CHECK(w->live);
}

static void heap_free(struct world *w)
{
	w->m->host = w->own;
	mut_free(w->m);
	free(w->live);
}

static void space_make(struct world *w)
{
	const struct mut *m = w->m;
	struct virtio_gc_space space = mut_space_le(m);
	struct virtio_gc_types types = { .runs = htole32(m->nr_runs) };
	u8 bytes[16 * 32 + 128 * 8];
	size_t n = mut_types_le(m, bytes);

	MUST(ask(w, VIRTIO_GC_SPACE_CREATE, 0, 0, 0, &space, sizeof(space),
		 NULL, 0),
	     0);
	MUST(ask(w, VIRTIO_GC_TYPES_ADD, 0, 0, m->nr_types, &types,
		 sizeof(types), bytes, n),
	     0);
}

static u32 regions_of(struct world *w, struct virtio_gc_region *list, u32 n)
{
	memset(list, 0, n * sizeof(*list));
	for (u32 r = 0; r < n; r++) {
		list[r].region = htole32(r);
		list[r].top = htole64(r * REGION + w->m->top[r]);
	}
	return n * (u32)sizeof(*list);
}

static void roots_send(struct world *w, u32 epoch)
{
	const struct mut *m = w->m;
	__le64 le[64];

	CHECK(m->nr_roots <= 64);
	mut_roots_le(m, le);
	MUST(ask(w, VIRTIO_GC_TRACE_ROOTS, 0, epoch, m->nr_roots, NULL, 0, le,
		 m->nr_roots * 8ull),
	     0);
}

/* What the barrier has gathered. */
static void satb_send(struct world *w, u32 epoch)
{
	struct mut *m = w->m;

	MUST(ask(w, VIRTIO_GC_TRACE_ROOTS, 0, epoch, m->nr_satb, NULL, 0,
		 m->satb, m->nr_satb * 8ull),
	     0);
	m->nr_satb = 0;
}

static void trace_finish(struct world *w, u32 epoch)
{
	struct virtio_gc_met met = { .max = htole32(1024) };
	u32 status;

	/* opaque objects refer to nothing */
	while ((status = ask(w, VIRTIO_GC_TRACE_FINISH, 0, epoch, 0, NULL, 0,
			     NULL, 0)) == VIRTIO_GC_MET)
		MUST(ask(w, VIRTIO_GC_TRACE_MET, 0, epoch, 0, &met, sizeof(met),
			 NULL, 0),
		     0);
	MUST(status, 0);
}

/* Bitmaps, in the window where they were asked for. */
static const u8 *bitmaps(struct world *w, u32 epoch)
{
	u64 at = (REGIONS - TABLES) * REGION;
	struct virtio_gc_range range = {
		.regions = htole32(REGIONS),
		.bitmaps = htole64(at),
	};

	CHECK(w->bytes / 64 <= TABLES * REGION);
	MUST(ask(w, VIRTIO_GC_TRACE_RESULTS, 0, epoch, 0, &range, sizeof(range),
		 NULL, 0),
	     0);
	CHECK(le32toh(done->count) == REGIONS);
	return (u8 *)w->window + at;
}

/* All of the heap while it stands still: exactly what is reachable. */
static void trace_check(struct world *w, u32 epoch)
{
	struct virtio_gc_region list[REGIONS];
	u32 bytes = regions_of(w, list, REGIONS);
	const u8 *bits;
	u64 wrong = 0;

	MUST(ask(w, VIRTIO_GC_CLEAN, 0, 0, 1, NULL, 0,
		 &(struct virtio_gc_region){ .region = htole32(1) }, 16),
	     0);
	MUST(ask(w, VIRTIO_GC_TRACE_START, 0, epoch, REGIONS, NULL, 0, list,
		 bytes),
	     0);
	roots_send(w, epoch);
	trace_finish(w, epoch);
	memset(w->live, 0, w->m->nr_objects);
	mut_trace(w->m, w->live, NULL);
	bits = bitmaps(w, epoch);
	for (u64 u = 0; u < w->bytes / 8; u++) {
		u32 o = w->m->at_unit[u];

		wrong += (bits[u / 8] >> u % 8 & 1) != (o ? w->live[o - 1] : 0);
	}
	CHECK(!wrong, "%llu objects", (unsigned long long)wrong);
}

/*
 * Large arrays lose all they refer to: pages of them are zero now, which no
 * eviction tells a donor.
 */
static u32 arrays_clear(struct world *w)
{
	u32 n = 0;

	for (u32 o = 0; o < w->m->nr_objects; o++) {
		const struct mut_object *obj = &w->m->objects[o];
		u64 slots = mut_slots(w->m, obj);

		if (slots * w->m->l.ref_bytes < 8192 || !w->live[o] || o % 2)
			continue;
		n++;
		for (u64 s = 0; s < slots; s++)
			mut_write(w->m, mut_slot(w->m, obj, s), MUT_NULL);
	}
	return n;
}

/* ---- moving ---- */

/* Object by object from the roots: @was is the heap before. */
static u64 same_graph(struct world *w, const u8 *was, const u64 *new_roots)
{
	const struct mut *m = w->m;
	u64 *now = malloc(w->bytes), *todo = malloc(w->bytes), n = 0, met = 0;
	struct mut old = *m, new = *m;

	CHECK(now && todo);
	memset(now, 0xff, w->bytes);
	old.host = (u8 *)was;
	for (u32 i = 0; i < m->nr_roots; i++) {
		CHECK((m->roots[i] == MUT_NULL) == (new_roots[i] == MUT_NULL));
		if (m->roots[i] == MUT_NULL || now[m->roots[i] / 8] != U64_MAX)
			continue;
		now[m->roots[i] / 8] = new_roots[i];
		todo[n++] = m->roots[i];
	}
	while (n) {
		u64 at = todo[--n], to = now[at / 8];
		const struct mut_object *o =
			&m->objects[m->at_unit[at / 8] - 1];
		const struct mut_type *t = &m->types[o->type];
		u64 slots = mut_slots(m, o), k = 0;
		u8 *a = malloc(o->bytes), *b = malloc(o->bytes);

		CHECK(a && b && to + o->bytes <= w->bytes);
		met++;
		memcpy(a, was + at, o->bytes);
		memcpy(b, w->window + to, o->bytes);
		for (u64 s = 0; s < slots; s++) {
			u64 field = mut_slot(m, o, s), x, y;

			x = mut_read(&old, field);
			y = mut_read(&new, field - at + to);
			memset(a + field - at, 0, m->l.ref_bytes);
			memset(b + field - at, 0, m->l.ref_bytes);
			CHECK((x == MUT_NULL) == (y == MUT_NULL));
			if (x == MUT_NULL)
				continue;
			if (now[x / 8] == U64_MAX) {
				now[x / 8] = y;
				todo[n++] = x;
			}
			CHECK(now[x / 8] == y, "%llx is at %llx and %llx",
			      (unsigned long long)x,
			      (unsigned long long)now[x / 8],
			      (unsigned long long)y);
		}
		if (t->flags & VIRTIO_GC_TYPE_WEAK) {
			memset(a + t->referent, 0, m->l.ref_bytes);
			memset(b + t->referent, 0, m->l.ref_bytes);
		}
		for (; k < o->bytes && a[k] == b[k]; k++)
			;
		CHECK(k == o->bytes, "object %llx: byte %llu",
		      (unsigned long long)at, (unsigned long long)k);
		free(a);
		free(b);
	}
	free(now);
	free(todo);
	return met;
}

/*
 * Compaction while all of it is touched: who touches what is being moved waits,
 * and sees what the donors did. [VGC-D-43]
 */
static u64 compact(struct world *w, u32 epoch)
{
	u32 n = REGIONS - TABLES;
	struct virtio_gc_region list[REGIONS];
	u32 bytes = regions_of(w, list, n), moves, status;
	struct virtio_gc_area area = {
		.tables = htole64((u64)n * REGION),
		.bytes = htole64(TABLES * REGION),
	};
	struct virtio_gc_moved moved[REGIONS];
	__le64 le[256];
	u64 roots[256], met;
	u8 *was = malloc(w->bytes);

	CHECK(was && w->m->nr_roots <= 256);
	memcpy(was, w->window, w->bytes);
	/* where the tables are no donor but one has room for its own */
	status = ask(w, VIRTIO_GC_COMPACT, 0, epoch, n, &area, sizeof(area),
		     list, bytes);
	CHECK(!status || status == VIRTIO_GC_NO_SPACE, "status %u", status);
	moves = le32toh(done->count);
	CHECK(moves && moves <= REGIONS);
	memcpy(moved, done + 1, moves * sizeof(*moved));
	mut_roots_le(w->m, le);
	MUST(ask(w, VIRTIO_GC_FORWARD, 0, epoch, w->m->nr_roots, NULL, 0, le,
		 w->m->nr_roots * 8ull),
	     0);
	memcpy(le, done + 1, w->m->nr_roots * 8ull);
	for (u32 i = 0; i < w->m->nr_roots; i++)
		roots[i] = le[i] ? le64toh(le[i]) - w->m->l.address : MUT_NULL;
	met = same_graph(w, was, roots);
	for (u32 i = 0; i < moves; i++) {
		CHECK(!moved[i].status);
		list[i] = (struct virtio_gc_region){ .region = moved[i].from };
		/* as it was, until it is released [VGC-D-39] */
		CHECK(!memcmp(was + le32toh(moved[i].from) * REGION,
			      w->window + le32toh(moved[i].from) * REGION,
			      REGION));
	}
	MUST(ask(w, VIRTIO_GC_RELEASE, VIRTIO_GC_RELEASE_DISCARD, epoch, moves,
		 NULL, 0, list, moves * 16ull),
	     0);
	for (u32 i = 0; i < moves; i++)
		for (u64 k = 0; k < REGION; k++)
			CHECK(!w->window[le32toh(moved[i].from) * REGION + k]);
	free(was);
	printf("%u regions moved, %llu objects the same\n", moves,
	       (unsigned long long)met);
	return moves;
}

/* ---- while it runs ---- */

/* With a barrier: what lived when it began is found. [VGC-D-23] */
static void trace_running(struct world *w, u32 epoch)
{
	struct virtio_gc_region list[REGIONS];
	u32 bytes = regions_of(w, list, REGIONS), before = w->m->nr_objects;
	struct mut *m = w->m;
	u64 satb[4096], missed = 0;
	const u8 *bits;

	memset(w->live, 0, before);
	mut_trace(m, w->live, NULL);
	mut_run(m, w->live);
	m->satb = satb;
	m->satb_max = 4096;
	m->nr_satb = 0;
	MUST(ask(w, VIRTIO_GC_TRACE_START, VIRTIO_GC_TRACE_CONCURRENT, epoch,
		 REGIONS, NULL, 0, list, bytes),
	     0);
	roots_send(w, epoch);
	for (u32 i = 0; i < 200; i++) {
		mut_step(m, false);
		if (m->nr_satb > 2000)
			satb_send(w, epoch);
	}
	satb_send(w, epoch);
	m->satb = NULL;
	trace_finish(w, epoch);
	bits = bitmaps(w, epoch);
	for (u32 o = 0; o < before; o++) {
		u64 u = m->objects[o].at / 8;

		missed += w->live[o] && !(bits[u / 8] >> u % 8 & 1);
	}
	CHECK(!missed, "%llu objects", (unsigned long long)missed);
}

/* Written, a region is on a donor, and as many as share an extent on one. */
static void donors_check(struct world *w)
{
	struct virtio_gc_range range = { .regions = htole32(REGIONS) };
	u64 each = dcm_pager_extent(w->pager, w->window) / REGION;
	const __le32 *donor = (const void *)(done + 1);
	struct virtio_gc_config c;

	MUST(ask(w, VIRTIO_GC_SPACE_DONORS, 0, 0, 0, &range, sizeof(range),
		 NULL, 0),
	     0);
	CHECK(le32toh(done->count) == REGIONS);
	dcm_gc_host_config(w->gc, &c);
	/* no region can be larger than what is on one donor [VGC-D-16] */
	CHECK(le64toh(c.region_bytes_max) == each * REGION);
	for (u32 r = 0; r < REGIONS; r++) {
		CHECK(le32toh(donor[r]) < le32toh(c.donors));
		CHECK(donor[r] == donor[r - r % each]);
	}
	range.first = htole32(1);
	MUST(ask(w, VIRTIO_GC_SPACE_DONORS, 0, 0, 0, &range, sizeof(range),
		 NULL, 0),
	     VIRTIO_GC_INVALID);
}

static void one_heap(struct world *w, u32 i)
{
	struct virtio_gc_region list = { 0 };
	pthread_t threads[2];
	u32 cleared;

	heap_make(w, i);
	space_make(w);
	w->stop = false;
	for (u32 k = 0; k < 2; k++)
		CHECK(!pthread_create(&threads[k], NULL, touch, w));
	trace_check(w, 1);
	donors_check(w);
	cleared = arrays_clear(w);
	trace_check(w, 2);
	trace_running(w, 3);
	opaque_clear(w->m);
	trace_check(w, 4);
	compact(w, 4);
	/* the runtime's model is of before; the space goes */
	list.region = htole32(REGIONS);
	MUST(ask(w, VIRTIO_GC_CLEAN, 0, 0, 1, NULL, 0, &list, sizeof(list)),
	     VIRTIO_GC_INVALID);
	MUST(ask(w, VIRTIO_GC_SPACE_DESTROY, 0, 0, 0, NULL, 0, NULL, 0), 0);
	__atomic_store_n(&w->stop, true, __ATOMIC_RELAXED);
	for (u32 k = 0; k < 2; k++)
		pthread_join(threads[k], NULL);
	for (u64 k = 0; k < w->bytes / 8; k += 64)
		CHECK(!((u64 *)(void *)w->window)[k]);
	printf("heap %u: %u arrays cleared, %llu touches\n", i, cleared,
	       (unsigned long long)w->touched);
	heap_free(w);
}

int main(int argc, char **argv)
{
	static const struct dcm_gc_host_ops ops = { .answered = answered };
	struct world w = { .bytes = REGIONS * REGION };
	char err[512];

	if (argc != 3) {
		fprintf(stderr, "usage: gc_test CONFIG HEAPS\n");
		return 2;
	}
	w.pager = dcm_pager_open(argv[1], err, sizeof(err));
	CHECK(w.pager, "%s", err);
	w.window = dcm_pager_map(w.pager, w.bytes);
	CHECK(w.window);
	w.gc = dcm_gc_host_open(w.pager, w.window, w.bytes, &ops, &w, err,
				sizeof(err));
	CHECK(w.gc, "%s", err);
	CHECK(dcm_gc_host_features(w.gc) == 15);
	dcm_gc_host_start(w.gc, 15);
	for (u32 i = 0; i < (u32)atoi(argv[2]); i++)
		one_heap(&w, i);
	dcm_gc_host_close(w.gc);
	dcm_pager_close(w.pager);
	return 0;
}

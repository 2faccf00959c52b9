// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * heap_move.c - objects of a heap moved by donors
 *
 * What is there afterwards is compared with a copy taken before, by walking both
 * graphs from the roots: each object is in one place, whole, and refers to what
 * it did. Then the runtime goes on with objects where they are.
 *
 * Places: a region is moved into the first of a pair of free regions of its
 * donor, and the second has its forward table; COMPACT's tables are in such a
 * pair, of one donor after the other.
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "heap.h"

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
	u64 live[HEAP_REGIONS] = { 0 };
	u32 from = 0;

	for (u32 o = 0; o < h->m->nr_objects; o++)
		live[h->m->objects[o].at / HEAP_REGION] += h->live[o];
	h->nr_moves = 0;
	for (u32 to = HEAP_PAIRS_AT;
	     to < HEAP_TABLES_AT && h->nr_moves < HEAP_MOVES; to += 2) {
		u32 k;

		if (h->m->top[to] || h->m->top[to + 1])
			continue;
		for (k = 0; k < HEAP_PAIRS_AT; k++, from++)
			if (live[from % HEAP_PAIRS_AT] &&
			    h->donor[from % HEAP_PAIRS_AT] == h->donor[to] &&
			    h->donor[to + 1] == h->donor[to])
				break;
		if (k == HEAP_PAIRS_AT)
			continue;
		/* once, though its donor have more pairs than regions */
		from %= HEAP_PAIRS_AT;
		live[from] = 0;
		h->move[h->nr_moves++] = (struct virtio_gc_move){
			.from = htole32(from++),
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
	u32 to = HEAP_PAIRS_AT;

	while (to < HEAP_TABLES_AT && h->donor[to] == h->donor[le32toh(m.from)])
		to++;
	if (to == HEAP_TABLES_AT)
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
	struct virtio_gc_region list[HEAP_REGIONS];
	u64 roots[64];
	u32 n, status;

	*moves = 0;
	heap_where(h);
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
	n = heap_regions(h, list, HEAP_TABLES_AT);
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
	struct virtio_gc_region list[HEAP_REGIONS];
	struct virtio_gc_moved moved[HEAP_REGIONS];
	/* bitmaps come behind, where nothing may be moved to [VGC-D-35] */
	u32 n = heap_regions(h, list, HEAP_TABLES_AT), moves, status,
	    at = HEAP_PAIRS_AT;
	u64 roots[64];

	heap_where(h);
	/* two free regions of its own for tables */
	while (at < HEAP_TABLES_AT &&
	       (h->donor[at] != donor || h->m->top[at] || h->m->top[at + 1]))
		at += 2;
	if (at == HEAP_TABLES_AT)
		return 0;
	area.tables = htole64(at * HEAP_REGION);
	memmove(list + at, list + at + 2, (n - at - 2) * sizeof(*list));
	heap_remember(h);
	/* no other donor has room for its tables */
	status = heap_ask(h, VIRTIO_GC_COMPACT, 0, n - 2, &area, sizeof(area),
			  list, sizeof(*list));
	CHECK(!status || status == VIRTIO_GC_NO_SPACE, "status %u", status);
	moves = le32toh(h->answer.done.count);
	CHECK(moves <= HEAP_REGIONS);
	memcpy(moved, &h->answer.done + 1, moves * sizeof(*moved));
	/* what was nowhere may have been placed for it */
	heap_where(h);
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

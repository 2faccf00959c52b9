// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * heap_move.c - objects of a heap moved by donors
 *
 * What is there afterwards is compared with a copy taken before, by walking both
 * graphs from the roots: each object is in one place, whole, and refers to what
 * it did. Then the runtime goes on with objects where they are.
 *
 * Places: a region is moved into a free region of its donor, and another one has
 * its forward table; COMPACT's tables are in two side by side, of one donor after
 * the other.
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "heap.h"

/* The runtime's own use of a forward table, if there still is one. */
static u64 forward(const struct heap *h, u64 at)
{
	for (u32 i = 0; i < h->nr_moves && at != MUT_NULL; i++) {
		const struct virtio_gc_move *v = &h->move[i];
		const struct virtio_gc_forward *w;
		const __le32 *place;
		u64 unit = at % HEAP_REGION / 8, starts;

		if (at / HEAP_REGION != le32toh(v->from) ||
		    h->lost[at / HEAP_REGION])
			continue;
		w = (const void *)(h->space + le64toh(v->table));
		place = (const void *)(w + HEAP_REGION / 8 / 64);
		w += unit / 64;
		starts = le64toh(w->starts);
		EXPECT(starts >> unit % 64 & 1, "%llx did not move",
		      (unsigned long long)at);
		starts &= (1ull << unit % 64) - 1;
		place += le32toh(w->before) + (u32)__builtin_popcountll(starts);
		return le32toh(v->to) * HEAP_REGION + le32toh(*place) * 8ull;
	}
	return at;
}

/* The object that was at @x is at @y; it goes on @todo if it was not seen before. */
static u64 same_place(struct heap *h, u64 x, u64 y, u64 *todo, u64 n)
{
	EXPECT((x == MUT_NULL) == (y == MUT_NULL));
	if (x == MUT_NULL)
		return n;
	EXPECT(h->lost[x / HEAP_REGION] == h->lost[y / HEAP_REGION],
	      "%llx is at %llx", (unsigned long long)x, (unsigned long long)y);
	if (h->lost[x / HEAP_REGION])
		return n;
	if (h->now[x / 8] == U64_MAX) {
		h->now[x / 8] = y;
		todo[n++] = x;
	}
	EXPECT(h->now[x / 8] == y, "%llx is at %llx and %llx",
	      (unsigned long long)x, (unsigned long long)h->now[x / 8],
	      (unsigned long long)y);
	return n;
}

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
	EXPECT(a && b && to + o->bytes <= h->bytes);
	memcpy(a, h->was + at, o->bytes);
	memcpy(b, h->space + to, o->bytes);
	for (u64 s = 0; s < slots; s++) {
		u64 field = mut_slot(m, o, s), x, y;

		x = mut_read(&old, field);
		y = mut_read(&new, field - at + to);
		memset(a + field - at, 0, m->l.ref_bytes);
		memset(b + field - at, 0, m->l.ref_bytes);
		n = same_place(h, x, y, todo, n);
	}
	if (t->flags & VIRTIO_GC_TYPE_WEAK) {
		memset(a + t->referent, 0, m->l.ref_bytes);
		memset(b + t->referent, 0, m->l.ref_bytes);
	}
	for (; k < o->bytes && a[k] == b[k]; k++)
		;
	/* [VGC-D-40] */
	EXPECT(k == o->bytes, "object %llx: byte %llu", (unsigned long long)at,
	      (unsigned long long)k);
	free(a);
	free(b);
	return n;
}

/*
 * Walk the heap from the roots and compare it with @was, the heap before: each object
 * is in one place, with the same bytes and references. Fills in @now. A lost object
 * leads nowhere, so after a loss the walk begins with all live objects.
 */
static void same_graph(struct heap *h, const u64 *roots)
{
	const struct mut *m = h->m;
	u64 *todo = malloc(h->bytes), n = 0, left = 0;

	EXPECT(todo);
	memset(h->now, 0xff, h->bytes);
	for (u32 i = 0; i < m->nr_roots; i++)
		n = same_place(h, m->roots[i], roots[i], todo, n);
	for (u32 o = 0; h->loss.happened && o < m->nr_objects; o++)
		if (h->live[o])
			n = same_place(h, m->objects[o].at,
				       forward(h, m->objects[o].at), todo, n);
	while (n)
		n = same_object(h, todo[n - 1], todo, n - 1);
	/* the tables say the same */
	for (u32 o = 0; o < m->nr_objects; o++) {
		u64 at = m->objects[o].at;

		if (!h->live[o] || h->lost[at / HEAP_REGION])
			continue;
		EXPECT(h->now[at / 8] == forward(h, at));
		left++;
	}
	EXPECT(left);
	free(todo);
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
		EXPECT(!m->at_unit[m->objects[o].at / 8]);
		m->at_unit[m->objects[o].at / 8] = o + 1;
	}
	memcpy(m->roots, roots, m->nr_roots * sizeof(*roots));
}

/* What UPDATE does, or what is left of it. */
static void update_own(struct heap *h)
{
	struct mut *m = h->m;

	for (u32 o = 0; o < m->nr_objects; o++) {
		const struct mut_object *obj = &m->objects[o];
		u64 to;

		if (!h->live[o] || h->lost[obj->at / HEAP_REGION])
			continue;
		to = forward(h, obj->at);
		for (u64 s = 0; s < mut_slots(m, obj); s++) {
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
	heap_loss_moves(h);
	for (u32 i = 0; i < m->nr_roots; i++) {
		roots[i] = own ? forward(h, m->roots[i]) :
			   at[i] ? le64toh(at[i]) - m->l.address :
				   MUT_NULL;
		/* both know the same [VGC-D-42] */
		EXPECT(own || roots[i] == forward(h, m->roots[i]) ||
		      h->lost[m->roots[i] / HEAP_REGION]);
	}
}

/* From-regions are free, and empty; not before. */
static u32 release(struct heap *h, const struct virtio_gc_region *list, u32 n)
{
	u32 status = heap_ask(h, VIRTIO_GC_RELEASE, VIRTIO_GC_RELEASE_DISCARD,
			      n, NULL, 0, list, sizeof(*list));

	for (u32 i = 0; i < n; i++) {
		u64 at = le32toh(list[i].region) * HEAP_REGION;

		for (u64 k = 0;
		     k < HEAP_REGION && !status && !h->lost[at / HEAP_REGION];
		     k++)
			EXPECT(!h->space[at + k]);
		h->m->top[le32toh(list[i].region)] = 0;
	}
	return status;
}

/* Is it free, there, and not in use yet? */
static bool free_at(const struct heap *h, u32 donor, const u8 *used, u32 r)
{
	return !h->m->top[r] && !used[r] && h->donor[r] == donor;
}

/* The first such region, or HEAP_TABLES_AT. */
static u32 free_take(const struct heap *h, u32 donor, u8 *used)
{
	u32 r = 0;

	while (r < HEAP_TABLES_AT && !free_at(h, donor, used, r))
		r++;
	if (r < HEAP_TABLES_AT)
		used[r] = 1;
	return r;
}

/* The last: tables are side by side, and leave what COMPACT needs. */
static u32 free_take_last(const struct heap *h, u32 donor, u8 *used)
{
	u32 r = HEAP_TABLES_AT;

	while (r > 0 && !free_at(h, donor, used, r - 1))
		r--;
	if (!r)
		return HEAP_TABLES_AT;
	used[r - 1] = 1;
	return r - 1;
}

/* Some regions of objects whose donors have room, others each time. */
static void moves_choose(struct heap *h)
{
	u64 live[HEAP_REGIONS] = { 0 };
	u8 used[HEAP_REGIONS] = { 0 };

	for (u32 o = 0; o < h->m->nr_objects; o++)
		live[h->m->objects[o].at / HEAP_REGION] += h->live[o];
	/* all were released before [VGC-G-9] */
	EXPECT(!h->nr_moves);
	for (u32 k = 0; k < HEAP_TABLES_AT && h->nr_moves < HEAP_MOVES; k++) {
		u32 from = (h->epoch * 13 + k) % HEAP_TABLES_AT, to, table;

		if (!live[from] || h->donor[from] == VIRTIO_GC_NO_DONOR)
			continue;
		to = free_take(h, h->donor[from], used);
		table = free_take_last(h, h->donor[from], used);
		if (table == HEAP_TABLES_AT)
			continue;
		h->move[h->nr_moves++] = (struct virtio_gc_move){
			.from = htole32(from),
			.to = htole32(to),
			.start = htole64(to * HEAP_REGION),
			.table = htole64(table * HEAP_REGION),
			.table_bytes = htole64(HEAP_REGION),
		};
	}
}

/* To another donor nothing is moved. */
static void cross_donor(struct heap *h)
{
	const struct virtio_gc_moved *moved =
		(const void *)(&h->answer.done + 1);
	struct virtio_gc_move m = h->move[0];
	u32 to = 0;

	while (to < HEAP_TABLES_AT &&
	       (h->m->top[to] || h->donor[to] == h->donor[le32toh(m.from)]))
		to++;
	if (to == HEAP_TABLES_AT)
		return;
	m.to = htole32(to);
	m.start = htole64(to * HEAP_REGION);
	heap_must(h,
		  heap_ask(h, VIRTIO_GC_EVACUATE, 0, 1, NULL, 0, &m, sizeof(m)),
		  VIRTIO_GC_OK);
	EXPECT(le32toh(moved->status) == VIRTIO_GC_CROSS_DONOR);
}

/* From-regions are still whole, and not ours to touch. */
static void froms_same(const struct heap *h)
{
	for (u32 i = 0; i < h->nr_moves; i++) {
		u32 from = le32toh(h->move[i].from);
		u64 at = from * HEAP_REGION;

		/* by the donors [VGC-D-39] and by us [VGC-G-8] */
		EXPECT(h->lost[from] ||
		      !memcmp(h->was + at, h->space + at, HEAP_REGION));
	}
}

/*
 * The moves of @h are committed; @updated: UPDATE is done for all of them. Check the
 * moved objects, and let the runtime go on with them. Returns the status of RELEASE.
 */
static u32 moves_finish(struct heap *h, bool updated)
{
	struct virtio_gc_region list[HEAP_REGIONS];
	u64 roots[64];
	u32 n;

	heap_loss_moves(h);
	if (!updated)
		update_own(h);
	roots_forward(h, !updated, roots);
	froms_same(h);
	/* what is committed is whole, whatever the status [VGC-D-38] [VGC-D-44] */
	same_graph(h, roots);
	adopt(h, roots);
	n = h->nr_moves;
	for (u32 i = 0; i < n; i++)
		list[i] =
			(struct virtio_gc_region){ .region = h->move[i].from };
	h->nr_moves = 0;
	return release(h, list, n);
}

/* Where copies end in the region they are in. */
static void moves_tops(struct heap *h, const struct virtio_gc_moved *moved)
{
	for (u32 i = 0; i < h->nr_moves; i++) {
		u32 to = le32toh(moved[i].to);
		u64 end = le64toh(moved[i].end) - to * HEAP_REGION;

		EXPECT(!moved[i].status && end <= HEAP_REGION);
		if (h->m->top[to] < end)
			h->m->top[to] = end;
	}
}

/* Have donors update the regions that lie on them; a status. */
static u32 update(struct heap *h)
{
	struct virtio_gc_region list[HEAP_REGIONS];
	u32 n = heap_regions(h, list, HEAP_TABLES_AT);

	return heap_ask(h, VIRTIO_GC_UPDATE, 0, n, NULL, 0, list,
			sizeof(*list));
}

u32 heap_evacuate(struct heap *h, u32 *moves)
{
	const struct virtio_gc_moved *moved =
		(const void *)(&h->answer.done + 1);
	u32 released, status;

	*moves = 0;
	status = heap_where(h);
	if (status)
		return status;
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
	EXPECT(le32toh(h->answer.done.count) == h->nr_moves);
	for (u32 i = 0; i < h->nr_moves; i++)
		EXPECT(moved[i].from == h->move[i].from &&
		      moved[i].to == h->move[i].to &&
		      moved[i].table == h->move[i].table);
	moves_tops(h, moved);
	*moves = h->nr_moves;
	status = update(h);
	released = moves_finish(h, !status);
	EXPECT(status || !released || h->deadline_ms, "RELEASE: status %u",
	      released);
	return VIRTIO_GC_OK;
}

u32 heap_compact(struct heap *h, u32 donor, u32 *moves)
{
	struct virtio_gc_area area = { .bytes = htole64(2 * HEAP_REGION) };
	struct virtio_gc_region list[HEAP_REGIONS];
	struct virtio_gc_moved moved[HEAP_REGIONS];
	/* bitmaps come behind, where nothing may be moved to */
	u32 n = heap_regions(h, list, HEAP_TABLES_AT), released, status, at = 0;
	bool known;

	*moves = 0;
	status = heap_where(h);
	if (status)
		return status;
	/* two free regions of its own for tables */
	while (at < HEAP_TABLES_AT &&
	       (h->donor[at] != donor || h->donor[at + 1] != donor ||
		h->m->top[at] || h->m->top[at + 1]))
		at += 2;
	if (at == HEAP_TABLES_AT)
		return VIRTIO_GC_OK;
	area.tables = htole64(at * HEAP_REGION);
	memmove(list + at, list + at + 2, (n - at - 2) * sizeof(*list));
	heap_remember(h);
	/* no other donor has room for its tables */
	status = heap_ask(h, VIRTIO_GC_COMPACT, 0, n - 2, &area, sizeof(area),
			  list, sizeof(*list));
	n = le32toh(h->answer.done.count);
	EXPECT(n <= HEAP_REGIONS);
	memcpy(moved, &h->answer.done + 1, n * sizeof(*moved));
	/* what was nowhere may have been placed for it */
	known = !heap_where(h) && !(h->loss.happened && h->loss.copies);
	for (u32 i = 0; i < n; i++) {
		u64 table = le64toh(moved[i].table);

		/* [VGC-D-52] */
		EXPECT(table / HEAP_REGION == at ||
		      table / HEAP_REGION == at + 1);
		EXPECT(!known || h->lost[le32toh(moved[i].from)] ||
		      h->donor[le32toh(moved[i].from)] == donor);
		EXPECT(!known || h->lost[le32toh(moved[i].to)] ||
		      h->donor[le32toh(moved[i].to)] == donor);
		h->move[i] = (struct virtio_gc_move){
			.from = moved[i].from,
			.to = moved[i].to,
			.table = moved[i].table,
		};
	}
	h->nr_moves = n;
	moves_tops(h, moved);
	if (n) {
		bool updated = !status || status == VIRTIO_GC_NO_SPACE ||
			       !update(h);

		/* @nr_objects are fewer, and none refers to where it was */
		released = moves_finish(h, updated);
		EXPECT(!updated || !released || h->deadline_ms,
		      "RELEASE: status %u", released);
	}
	/* [VGC-D-45] */
	for (u32 o = 0; o < h->m->nr_objects; o++)
		for (u32 i = 0; i < n; i++)
			EXPECT(h->m->objects[o].at / HEAP_REGION !=
			      le32toh(moved[i].from));
	*moves = n;
	return status;
}

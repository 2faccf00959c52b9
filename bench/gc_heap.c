// SPDX-License-Identifier: GPL-2.0-or-later
/* gc_heap.c - the heap that garbage collection is measured with */
#include <sys/mman.h>

#include "gc_heap.h"

#define OBJECT_MAX	152u
#define HUGE_BYTES	(2ull << 20)

enum { NODE2 = 1, NODE4, REFS, DATA };

const struct gc_heap_types gc_heap_types = {
	.type = {
		{ .id = NODE2, .kind = VIRTIO_GC_FIXED, .bytes = 32, .runs = 1 },
		{ .id = NODE4, .kind = VIRTIO_GC_FIXED, .bytes = 40, .runs = 1 },
		{ .id = REFS, .kind = VIRTIO_GC_REFS, .first = 16,
		  .length_bytes = 4, .length_offset = 12 },
		{ .id = DATA, .kind = VIRTIO_GC_DATA, .first = 16,
		  .length_bytes = 4, .length_offset = 12 },
	},
	.run = { { 16, 2 }, { 16, 4 } },
};

void *gc_heap_map(u64 bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (p == MAP_FAILED)
		die("gc: no memory");
	return p;
}

void *gc_heap_map_huge(u64 bytes)
{
	u8 *p = mmap(NULL, bytes + HUGE_BYTES, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		die("gc: no memory");
	p += -(uintptr_t)p & (HUGE_BYTES - 1);
	if (madvise(p, bytes, MADV_HUGEPAGE))
		die("gc: no transparent huge pages");
	for (u64 at = 0; at < bytes; at += PAGE)
		p[at] = 0;
	return p;
}

static u32 object_type(const u8 *p)
{
	return *(const u32 *)(p + 8);
}

u32 gc_heap_object_refs(const u8 *p)
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

u64 gc_heap_object_bytes(const u8 *p)
{
	if (object_type(p) == DATA)
		return (16 + *(const u32 *)(p + 12) + 7) & ~7u;
	return (16 + gc_heap_object_refs(p) * 4 +
		(object_type(p) < REFS ? 8 : 0) + 7) &
	       ~7u;
}

/* Objects in @list's regions up to @fill of each; @live per mille of them. */
void gc_heap_fill(struct gc_heap *h, u32 regions, u32 live)
{
	u64 rng = 20261121, at = 0, end = regions * h->region_bytes;
	u32 *order, alive = 0;
	u8 *used;

	h->at = gc_heap_map(h->bytes / 32 * sizeof(*h->at));
	while (at < end) {
		u64 left = h->region_bytes - at % h->region_bytes;
		u64 r = bench_rand(&rng);
		u8 *p = h->memory + at;

		/* no object is larger: nothing is written past the end */
		if (left < OBJECT_MAX) {
			at += left;
			continue;
		}
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
		if (!h->n)
			*(u32 *)(p + 8) = NODE2;
		h->at[h->n++] = at;
		at += gc_heap_object_bytes(p);
	}
	order = gc_heap_map((u64)h->n * sizeof(*order));
	used = gc_heap_map(h->n);
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
			 gc_heap_object_refs(h->memory + h->at[order[from]]));
		p = h->memory + h->at[order[from]];
		((u32 *)(p + 16))[used[from]++] =
			(u32)(h->at[order[i]] / 8 + 1);
	}
	/* and the places that are left say anything */
	for (u32 i = 0; i < alive; i++) {
		u8 *p = h->memory + h->at[order[i]];
		u32 n = gc_heap_object_refs(p);

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
	for (u32 i = 0; i < alive; i++)
		h->at[i] = h->at[order[i]];
	h->n = alive;
}

u64 gc_heap_trace(const struct gc_heap *h, u64 *marks, u32 *queue, u64 *live)
{
	u32 shift = (u32)__builtin_ctzll(h->region_bytes), first_run[4],
	    runs = 0;
	u64 head = 0, tail = 0;

	for (u32 i = 0; i < 4; runs += gc_heap_types.type[i++].runs)
		first_run[i] = runs;

	queue[tail++] = (u32)(h->at[0] / 8);
	marks[queue[0] >> 6] |= 1ull << (queue[0] & 63);
	while (head < tail) {
		u64 at = (u64)queue[head++] * 8, bytes;
		const u8 *p = h->memory + at;
		u32 type = object_type(p) - NODE2, n = 0;
		const struct virtio_gc_type *t = &gc_heap_types.type[type];
		const struct virtio_gc_run *run =
			&gc_heap_types.run[first_run[type]];
		u32 offset = t->first;

		if (t->kind == VIRTIO_GC_FIXED) {
			bytes = t->bytes;
			offset = run->offset;
			n = run->count;
		} else if (t->kind == VIRTIO_GC_REFS) {
			n = *(const u32 *)(p + t->length_offset);
			bytes = (t->first + n * 4ull + 7) & ~7ull;
		} else {
			bytes = *(const u32 *)(p + t->length_offset);
			bytes = (t->first + bytes + 7) & ~7ull;
		}
		live[at >> shift] += bytes;
		for (u32 i = 0; i < n; i++) {
			u32 unit = ((const u32 *)(p + offset))[i];

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

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * arena.c - free addresses of the arena
 *
 * In program mode all large anonymous mappings come out of one paged mapping,
 * so that thousands of them cost neither a kernel mapping nor a paged range each.
 * This file only keeps the free addresses: a sorted table of ranges, first fit,
 * neighbours joined. If the table is full a range that is given back is
 * forgotten, which costs address space.
 *
 * Locking: one spinlock, with signals blocked by the caller.
 */
#include <errno.h>
#include <string.h>

#include "../lib/dcm_context.h"
#include "shim.h"

#define RANGES_MAX 65536u

struct range {
	u64 addr;
	u64 bytes;
};

static struct {
	spinlock_t lock;
	struct range *range;
	u32 nr;
} arena;

int dcm_arena_init(u64 base, u64 bytes)
{
	arena.range = vzalloc(sizeof(*arena.range) * RANGES_MAX);
	if (!arena.range)
		return -ENOMEM;
	arena.range[0] = (struct range){ base, bytes };
	arena.nr = 1;
	return 0;
}

static void range_remove(u32 i)
{
	memmove(&arena.range[i], &arena.range[i + 1],
		(arena.nr - i - 1) * sizeof(*arena.range));
	arena.nr--;
}

static void range_insert(u32 i, u64 addr, u64 bytes)
{
	if (arena.nr == RANGES_MAX)
		return;
	memmove(&arena.range[i + 1], &arena.range[i],
		(arena.nr - i) * sizeof(*arena.range));
	arena.range[i] = (struct range){ addr, bytes };
	arena.nr++;
}

/** dcm_arena_take() - take free addresses; 0: there are none */
u64 dcm_arena_take(u64 bytes, u64 align)
{
	u64 at = 0;
	u32 i;

	spin_lock(&arena.lock);
	for (i = 0; i < arena.nr; i++) {
		struct range r = arena.range[i];

		at = (r.addr + align - 1) & ~(align - 1);
		if (at + bytes < at || at + bytes > r.addr + r.bytes)
			continue;
		range_remove(i);
		if (at + bytes < r.addr + r.bytes)
			range_insert(i, at + bytes,
				     r.addr + r.bytes - at - bytes);
		if (at > r.addr)
			range_insert(i, r.addr, at - r.addr);
		spin_unlock(&arena.lock);
		return at;
	}
	spin_unlock(&arena.lock);
	return 0;
}

/*
 * Give addresses back. Addresses that are free already stay so: a program may
 * unmap more than it has mapped.
 */
void dcm_arena_give(u64 addr, u64 bytes)
{
	u64 end = addr + bytes;
	u32 lo = 0, hi, i;

	spin_lock(&arena.lock);
	hi = arena.nr;
	while (lo < hi) {
		u32 mid = (lo + hi) / 2;

		if (arena.range[mid].addr + arena.range[mid].bytes < addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	/* All ranges that touch or overlap it become one. */
	i = lo;
	while (i < arena.nr && arena.range[i].addr <= end) {
		struct range *r = &arena.range[i];

		addr = min(addr, r->addr);
		end = max(end, r->addr + r->bytes);
		range_remove(i);
	}
	range_insert(i, addr, end - addr);
	spin_unlock(&arena.lock);
}

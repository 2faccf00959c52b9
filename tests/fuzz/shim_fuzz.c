// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * shim_fuzz.c - the shim's own allocators, against what they must be
 *
 * The input is a list of operations. The arena's free addresses are compared
 * with a bitmap: nothing is handed out twice, nothing that is not free, and
 * what a program unmaps twice, or more than it has, changes nothing else. The
 * heap's allocations are filled and checked: none overlaps another, sizes and
 * alignments are what was asked for.
 */
/* links: kvm-dcm/preload/arena.c kvm-dcm/preload/heap.c kvm-dcm/lib/context_user.c */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "preload/shim.h"
#include "../framework/expect.h"

#define BASE	0x100000000000ull
#define PAGES	512u
#define PAGE	4096ull
#define SLOTS	64u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t taken[PAGES];

static void arena_take(unsigned int n, uint64_t align)
{
	uint64_t at = dcm_arena_take(n * PAGE, align), i;
	unsigned int run = 0, found = 0;

	if (!at) {
		/* Then there is none, at any aligned place. */
		for (i = 0; i < PAGES; i++) {
			run = taken[i] ? 0 : run + 1;
			if (run >= n &&
			    !((BASE + (i + 1 - n) * PAGE) & (align - 1)))
				found = 1;
		}
		EXPECT(!found);
		return;
	}
	EXPECT(!(at & (align - 1)) && at >= BASE &&
	      at + n * PAGE <= BASE + PAGES * PAGE);
	for (i = (at - BASE) / PAGE; n; i++, n--) {
		EXPECT(!taken[i]);
		taken[i] = 1;
	}
}

static void arena_give(unsigned int first, unsigned int n)
{
	if (first >= PAGES)
		return;
	if (n > PAGES - first)
		n = PAGES - first;
	if (!n)
		return;
	dcm_arena_give(BASE + first * PAGE, n * PAGE);
	memset(taken + first, 0, n);
}

static struct {
	uint8_t *p;
	size_t n;
	uint8_t mark;
} slot[SLOTS];

static void heap_free(unsigned int k)
{
	size_t i;

	if (!slot[k].p)
		return;
	EXPECT(dcm_heap_owns(slot[k].p));
	EXPECT(dcm_heap_size(slot[k].p) >= slot[k].n);
	for (i = 0; i < slot[k].n; i += slot[k].n / 16 + 1)
		EXPECT(slot[k].p[i] == slot[k].mark);
	if (slot[k].n)
		EXPECT(slot[k].p[slot[k].n - 1] == slot[k].mark);
	dcm_heap_free(slot[k].p);
	slot[k].p = NULL;
}

static void heap_alloc(unsigned int k, size_t n, size_t align, uint8_t mark)
{
	heap_free(k);
	slot[k].p = dcm_heap_alloc(n, align);
	EXPECT(slot[k].p && !((uintptr_t)slot[k].p & (align - 1)));
	memset(slot[k].p, mark, n);
	slot[k].n = n;
	slot[k].mark = mark;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int started;
	unsigned int k;

	if (!started)
		EXPECT(!dcm_arena_init(BASE, PAGES * PAGE));
	started = 1;
	for (; size >= 4; data += 4, size -= 4) {
		unsigned int a = data[1] | (data[2] & 1u) << 8, b = data[3];

		switch (data[0] % 4) {
		case 0:
			arena_take(b + 1, PAGE << (data[2] >> 6));
			break;
		case 1:
			arena_give(a, b);
			break;
		case 2:
			heap_alloc(b % SLOTS, (size_t)a << (data[2] >> 4 & 7),
				   (size_t)16 << (data[0] >> 2 & 7), data[3]);
			break;
		default:
			heap_free(b % SLOTS);
		}
	}
	/* The next input starts from nothing. */
	for (k = 0; k < SLOTS; k++)
		heap_free(k);
	arena_give(0, PAGES);
	return 0;
}

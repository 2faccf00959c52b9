// SPDX-License-Identifier: GPL-2.0-or-later
/* raw_heap.c - a heap of one donor, written word by word; see raw_heap.h */
#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>

#include "raw_heap.h"

#define WALL	(1ull << 20)	/* at both ends of a heap: never accessed */

void heap_make(struct heap *h, u32 regions, u64 region_bytes, u8 flags)
{
	struct dcm_gc_layout l = {
		.bytes = regions * region_bytes,
		.region_bytes = region_bytes,
		.address = ADDRESS,
		.ref_bytes = 8,
		.flags = flags,
		.type_bytes = 4,
		.type_mask = 0xffff,
	};
	struct {
		struct virtio_gc_type type[6];
		struct virtio_gc_run run[1];
	} types = {
		.type = {
			{ .id = htole32(NODE), .kind = VIRTIO_GC_FIXED,
			  .bytes = htole32(16), .runs = htole16(1) },
			{ .id = htole32(REFS), .kind = VIRTIO_GC_REFS,
			  .length_bytes = 8, .length_offset = htole32(8),
			  .first = htole32(16) },
			{ .id = htole32(DATA), .kind = VIRTIO_GC_DATA,
			  .length_bytes = 8, .length_offset = htole32(8),
			  .first = htole32(16), .shift = 3 },
			{ .id = htole32(SELF), .kind = VIRTIO_GC_SELF,
			  .length_bytes = 8, .length_offset = htole32(8),
			  .size_bytes = 8, .size_offset = htole32(16),
			  .first = htole32(24), .shift = 3 },
			{ .id = htole32(TAIL), .kind = VIRTIO_GC_DATA,
			  .length_bytes = 8, .length_offset = htole32(8),
			  .first = htole32(16), .shift = 3, .tail = 2 },
			{ .id = htole32(STACK), .kind = VIRTIO_GC_FIXED,
			  .bytes = htole32(16),
			  .flags = VIRTIO_GC_TYPE_OPAQUE },
		},
		.run = { { htole32(8), htole32(1) } },
	};
	u8 *wall;
	u32 status;

	h->bytes = l.bytes;
	h->regions = regions;
	/* an access beyond either end is fatal [VGC-D-11] */
	wall = mmap(NULL, h->bytes + 2 * WALL, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(wall != MAP_FAILED);
	h->memory = wall + WALL;
	assert_int_equal(mprotect(h->memory, h->bytes, PROT_READ | PROT_WRITE),
			 0);
	h->s = dcm_gc_space_new(&l, 0, &status);
	assert_non_null(h->s);
	assert_int_equal(dcm_gc_types_add(h->s, 0, &types, sizeof(types), 6, 1),
			 0);
	h->list = calloc(regions, sizeof(*h->list));
	assert_non_null(h->list);
	for (u32 i = 0; i < regions; i++) {
		assert_int_equal(dcm_gc_space_place(h->s, i, 0,
						    h->memory +
							    i * region_bytes,
						    NULL),
			0);
		h->list[i].region = htole32(i);
		h->list[i].top = htole64((i + 1) * region_bytes);
	}
}

void heap_free(struct heap *h)
{
	dcm_gc_space_free(h->s);
	munmap(h->memory - WALL, h->bytes + 2 * WALL);
	free(h->list);
}

void put(struct heap *h, u64 at, u64 value)
{
	value = htole64(value);
	memcpy(h->memory + at, &value, 8);
}

void ring(struct heap *h, u64 n)
{
	for (u64 i = 0; i < n; i++) {
		put(h, i * 16, NODE);
		put(h, i * 16 + 8, ADDRESS + (i + 1) % n * 16);
	}
}

struct dcm_gc_result trace(struct heap *h, u32 epoch, u32 threads, u64 root)
{
	struct dcm_gc_start how = {
		.epoch = epoch,
		.threads = threads,
		.regions = h->list,
		.nr_regions = h->regions,
	};
	struct dcm_gc_flags flags[1];
	struct dcm_gc_quiet quiet = { 0 };
	__le64 address = htole64(ADDRESS + root);

	assert_int_equal(dcm_gc_trace_start(h->s, &how), 0);
	assert_int_equal(dcm_gc_trace_roots(h->s, epoch, &address, 1).status,
			 0);
	do {
		dcm_gc_trace_wait(h->s, 1000000000);
		assert_int_equal(dcm_gc_trace_poll(h->s, epoch, flags), 0);
	} while (!flags->result.status &&
		 !dcm_gc_quiet_round(&quiet, flags, 1));
	return dcm_gc_trace_finish(h->s, epoch);
}

void expect(struct heap *h, u32 epoch, u64 root, u32 status, u64 at)
{
	struct dcm_gc_result got = trace(h, epoch, 1, root);
	struct virtio_gc_live live;

	assert_int_equal(got.status, status);
	assert_int_equal(got.at, at);
	/* no results of half a trace [VGC-D-29] [VGC-D-34] */
	assert_int_equal(dcm_gc_trace_live(h->s, epoch, 0, &live),
			 status ? VIRTIO_GC_BUSY : 0);
	assert_int_equal(dcm_gc_trace_live(h->s, epoch + 1, 0, &live),
			 VIRTIO_GC_NO_TRACE);
}

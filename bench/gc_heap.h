/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * gc_heap.h - the heap that garbage collection is measured with
 *
 * Nodes of two and of four references, arrays of eight, and data of 24 to 152
 * bytes: 53 bytes on average. References go half to one of the 64 objects
 * allocated next, half anywhere, as of a program that has run for a while.
 */
#ifndef BENCH_GC_HEAP_H
#define BENCH_GC_HEAP_H

#include "../guest-virtio-gc/include/virtio_gc.h"
#include "../kvm-dcm/lib/dcm_context.h"
#include "common.h"

#define GC_HEAP_ADDRESS	(1ull << 40)
#define GC_HEAP_TYPES	4u
#define GC_HEAP_RUNS	2u

/**
 * struct gc_heap - objects in @memory
 * @at: offsets of the live ones, in the order they were allocated; the first
 *	is the root
 */
struct gc_heap {
	u8 *memory;
	u64 bytes;
	u64 region_bytes;
	u64 *at;
	u32 n;
};

/* As TYPES_ADD wants them. */
extern const struct gc_heap_types {
	struct virtio_gc_type type[GC_HEAP_TYPES];
	struct virtio_gc_run run[GC_HEAP_RUNS];
} gc_heap_types;

/* Memory that is there, zero. */
void *gc_heap_map(u64 bytes);
/* The same, of huge pages, as slabs can be. */
void *gc_heap_map_huge(u64 bytes);

/* Make objects in the first @regions regions; @live per mille of them are reachable. */
void gc_heap_fill(struct gc_heap *h, u32 regions, u32 live);

u64 gc_heap_object_bytes(const u8 *p);
u32 gc_heap_object_refs(const u8 *p);

/**
 * gc_heap_trace() - the least that any tracer must do with such a heap
 * @marks: a bit for each 8 bytes, none set
 * @queue: room for all live objects
 * @live: bytes, added for each region
 *
 * A queue and a bitmap: objects are marked when they are found and scanned in
 * the order they were found. A table of types says what an object is and where its
 * references are, as a class does in a JVM. Nothing in the heap is checked.
 *
 * Return: how many objects.
 */
u64 gc_heap_trace(const struct gc_heap *h, u64 *marks, u32 *queue, u64 *live);

#endif /* BENCH_GC_HEAP_H */

/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * raw_heap.h - a heap of one donor, written word by word
 *
 * Its class word is at 0, its references are addresses of 8 bytes; whatever the
 * test puts there, valid or not, the engine traces. Nothing of it is shared with
 * the runtime of mutator.h. An unexpected failure ends the test.
 */
#ifndef GC_RAW_HEAP_H
#define GC_RAW_HEAP_H

#include "../../donor-daemon/gc/gc.h"

#define REGION	(64ull << 10)
#define ADDRESS	(1ull << 32)

/* Its types: a node has one reference, after the class word; a stack is opaque. */
enum { NODE = 1, REFS, DATA, SELF, TAIL, STACK };

struct heap {
	struct dcm_gc_space *s;
	u8 *memory;
	u64 bytes;
	u32 regions;
	struct virtio_gc_region *list;
};

void heap_make(struct heap *h, u32 regions, u64 region_bytes, u8 flags);
void heap_free(struct heap *h);
/* The word at an offset. */
void put(struct heap *h, u64 at, u64 value);
/* Nodes of 16 bytes, each of which leads to the next. */
void ring(struct heap *h, u64 n);
/* A trace from one root, at an offset, to its end. */
struct dcm_gc_result trace(struct heap *h, u32 epoch, u32 threads, u64 root);
/* The same; its status and where it found what is wrong. */
void expect(struct heap *h, u32 epoch, u64 root, u32 status, u64 at);

#endif /* GC_RAW_HEAP_H */

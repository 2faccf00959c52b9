/* SPDX-License-Identifier: GPL-2.0-or-later */
/* space.h - internals of the engine: a space, its regions and types */
#ifndef DCM_GC_SPACE_H
#define DCM_GC_SPACE_H

#include <endian.h>
#include <pthread.h>

#include "gc.h"

/**
 * struct gc_type - a checked type
 * @head: smallest size of an object; all fields but array elements are within
 */
struct gc_type {
	u32 id;
	u8 kind;
	u8 flags;
	u8 length_bytes;
	u8 size_bytes;
	u32 head;
	u32 bytes;
	u32 length_offset;
	u32 size_offset;
	u32 first;
	u32 referent;
	u32 run;
	u16 runs;
	u8 shift;
} ____cacheline_aligned;

struct gc_run {
	u32 offset;
	u32 count;
};

/**
 * struct gc_reach - what is needed of a region for every reference to it
 * @end: unit of the space where the objects traced here end; 0: none are
 * @zero: address of the space's first byte, if all of it were mapped like this
 *	region
 */
struct gc_reach {
	u64 end;
	uintptr_t zero;
};

/* Other properties of a region. */
struct gc_region {
	u8 *base;	/* %NULL: not on this donor */
	u64 top;	/* offset in the region; 0: not traced */
	u32 donor;
	u32 grey;	/* __atomic: words of the grey bitmap that are not 0 */
	bool stale;
};

/* Properties that are seldom needed. */
struct gc_cold {
	const u32 *write_count;
	u32 count_before;
	u64 live_bytes;		/* __atomic */
	u64 live_objects;	/* __atomic */
	/* moved: its forward table, checked when it was made */
	bool moved;
	bool moved_there;	/* by another donor */
	bool target;
	u32 to;
	u64 table;
	u32 objects;
};

/**
 * struct dcm_gc_space - one donor's view of a space
 * @hash: of types, by id: 0 or index + 1; each is written once (release)
 * @marks: a bit for each unit, from mmap(): only this donor's part is touched
 * @grey: a bit for each 8 units with marked objects that are to be scanned
 * @stop: a status that ends moving and updating
 *
 * Types are added under @types_lock and never change, so that a trace can read
 * them meanwhile. One caller at a time uses the rest, except for what gc.h lets
 * threads call, which @trace's lock guards.
 */
struct dcm_gc_space {
	struct dcm_gc_layout l;
	u32 donor;
	u32 region_shift;
	u32 nr_regions;
	struct gc_region *regions;
	struct gc_reach *reach;
	struct gc_cold *cold;
	u64 *marks;
	u64 marks_bytes;
	u64 *grey;
	u64 grey_bytes;
	struct gc_type *types;
	struct gc_run *runs;
	u32 *hash;
	u32 nr_types;	/* __atomic */
	u32 nr_runs;
	pthread_mutex_t types_lock;
	pthread_mutex_t trace_lock;	/* for the pointer, not the trace */
	struct dcm_gc_trace *trace;
	u32 stop;	/* __atomic */
};

#define GC_HASH_BITS	17u

static_assert((1u << GC_HASH_BITS) >= 2 * DCM_GC_TYPES_MAX, "hash");

static inline const struct gc_type *gc_type_find(const struct dcm_gc_space *s,
						 u32 id)
{
	u32 h = (id * 0x9e3779b1u) >> (32 - GC_HASH_BITS);

	for (;;) {
		u32 i = smp_load_acquire(&s->hash[h]);

		if (!i)
			return NULL;
		if (s->types[i - 1].id == id)
			return &s->types[i - 1];
		h = (h + 1) & ((1u << GC_HASH_BITS) - 1);
	}
}

/* mmap(): zeroed, and only touched pages take memory. */
void *gc_map(u64 bytes);
void gc_unmap(void *p, u64 bytes);

/* Inline: without the instruction the compiler's builtin is a call. */
static inline u32 gc_popcount(u64 v)
{
	v -= v >> 1 & 0x5555555555555555ull;
	v = (v & 0x3333333333333333ull) + (v >> 2 & 0x3333333333333333ull);
	v = (v + (v >> 4)) & 0x0f0f0f0f0f0f0f0full;
	return (u32)(v * 0x0101010101010101ull >> 56);
}

static inline u64 gc_unit_words(const struct dcm_gc_space *s)
{
	return s->l.region_bytes >> 9;
}

/* The marks of a region, 64 units each. */
static inline u64 *gc_region_marks(const struct dcm_gc_space *s, u32 region)
{
	return s->marks + region * gc_unit_words(s);
}

/* Grey words, of 64 times 8 units each. */
static inline u64 gc_grey_words(const struct dcm_gc_space *s)
{
	return s->l.region_bytes >> 12;
}

/* trace.c: OK if the trace of @epoch has finished well, or a status. */
bool gc_trace_running(const struct dcm_gc_space *s);
u32 gc_trace_epoch(const struct dcm_gc_space *s);
u32 gc_trace_finished(const struct dcm_gc_space *s, u32 epoch);
void gc_trace_free(struct dcm_gc_space *s);
u64 gc_trace_memory(const struct dcm_gc_space *s);

#endif /* DCM_GC_SPACE_H */

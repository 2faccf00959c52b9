/* SPDX-License-Identifier: GPL-2.0-or-later */
/* space.h - internals of the engine: a space, its regions and types */
#ifndef DCM_GC_SPACE_H
#define DCM_GC_SPACE_H

#include <endian.h>
#include <pthread.h>

#include "gc.h"

struct gc_run {
	u32 offset;
	u32 count;
};

/**
 * struct gc_type - a checked type
 * @head: smallest size of an object; all fields but array elements are within
 * @index: in the order in which types were added
 * @bit: 1 << @index % 64, which a trace needs at each object
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
	u32 index;
	const struct gc_run *run;
	u16 runs;
	u8 shift;
	u8 tail;
	u64 bit;
} ____cacheline_aligned;

static_assert(sizeof(struct gc_type) == 64, "one cache line");

#define GC_TYPES_CHUNK	4096u

/* Types by id, open addressing; at most half full. Each slot is written once. */
struct gc_hash {
	struct gc_hash *old;	/* a smaller one, which a trace may still read */
	u32 shift;
	u32 mask;
	const struct gc_type *slot[];	/* __atomic */
};

/* Runs of the types of one request. */
struct gc_runs {
	struct gc_runs *next;
	struct gc_run run[];
};

/**
 * struct gc_types - the types of a space
 * @hash: __atomic, replaced by a larger one when it is half full
 * @chunk: types by index, as far as there are any
 * @bytes: bytes of memory that all of this takes
 */
struct gc_types {
	struct gc_hash *hash;
	struct gc_type *chunk[DCM_GC_TYPES_MAX / GC_TYPES_CHUNK];
	struct gc_runs *runs;
	u32 nr;		/* __atomic */
	u32 nr_runs;
	u64 bytes;
};

/**
 * struct gc_reach - properties of a region that every reference to it needs
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
	u8 flags;	/* of TRACE_START: VIRTIO_GC_REGION_* */
	bool say;	/* TRACE_MET must answer it; under the trace's lock */
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
 * @marks: a bit for each unit, from mmap(): only this donor's part is touched
 * @grey: a bit for each 8 units with marked objects that are to be scanned
 * @cards: the search for cards; %NULL: there was none
 * @stop: a status that ends moving, updating, and the search for cards
 *
 * Types are added under @types_lock and never change, so that a trace can read
 * them meanwhile; they are only removed all at once, while nothing reads them. All else
 * is used by one caller at a time, except in functions that gc.h lets threads call:
 * these use @trace's lock.
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
	struct gc_types types;
	pthread_mutex_t types_lock;
	pthread_mutex_t trace_lock;	/* for the pointer, not the trace */
	struct dcm_gc_trace *trace;
	struct gc_cards *cards;
	u32 stop;	/* __atomic */
};

static inline u32 gc_hash_first(const struct gc_hash *h, u32 id)
{
	return (id * 0x9e3779b1u) >> h->shift;
}

static inline const struct gc_type *gc_type_find(const struct gc_types *types,
						 u32 id)
{
	const struct gc_hash *h = smp_load_acquire(&types->hash);
	const struct gc_type *t;

	for (u32 i = gc_hash_first(h, id);; i = (i + 1) & h->mask) {
		t = smp_load_acquire(&h->slot[i]);
		if (!t || t->id == id)
			return t;
	}
}

static inline const struct gc_type *gc_type_at(const struct gc_types *types,
					       u32 index)
{
	return &types->chunk[index / GC_TYPES_CHUNK][index % GC_TYPES_CHUNK];
}

/* Map zeroed memory, of which only touched pages take memory. */
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

/* Is the region one object, which is marked but never read? */
static inline bool gc_region_whole(const struct gc_region *r)
{
	return r->flags & VIRTIO_GC_REGION_WHOLE;
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

/* types.c */
/* Without types; false: no memory. */
bool gc_types_init(struct gc_types *types);
void gc_types_free(struct gc_types *types);

/* trace.c: OK if the trace of @epoch has finished well, or a status. */
bool gc_trace_running(const struct dcm_gc_space *s);
u32 gc_trace_epoch(const struct dcm_gc_space *s);
u32 gc_trace_finished(const struct dcm_gc_space *s, u32 epoch);
void gc_trace_free(struct dcm_gc_space *s);
u64 gc_trace_memory(const struct dcm_gc_space *s);
/* Set the place of a region that the running trace does not use. */
void gc_trace_place(struct dcm_gc_space *s, u32 region, u32 donor,
		    void *memory);
/* Does no trace read the heap: is there none, or has it ended or failed? */
bool gc_trace_rests(struct dcm_gc_space *s);
/*
 * Note that all types were replaced, so that the trace's records of types are invalid.
 */
void gc_trace_types_gone(struct dcm_gc_space *s);
bool gc_trace_types_are_gone(const struct dcm_gc_space *s);

/* cards.c */
void gc_cards_free(struct dcm_gc_space *s);
u64 gc_cards_memory(const struct dcm_gc_space *s);

#endif /* DCM_GC_SPACE_H */

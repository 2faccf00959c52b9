/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * mutator.h - a runtime for tests: a heap, types, roots, a barrier, and a
 * collector of its own, the oracle
 *
 * There are two copies of the heap, as in life: the host's, which the runtime
 * reads and writes, and the donors', which was written back. A page
 * whose host copy is newer is dirty. The oracle looks at the host's copy
 * through a model of every object; it shares no code with the engine.
 */
#ifndef GC_MUTATOR_H
#define GC_MUTATOR_H

#include "../../donor-daemon/gc/gc.h"

#define MUT_DONORS_MAX	4u
#define MUT_SLOTS_MAX	64u
#define MUT_NULL	U64_MAX
#define MUT_PAGE	4096u

struct mut_type {
	struct virtio_gc_type le;
	u32 nr_slots;		/* fields that are followed, runs */
	u32 slot[MUT_SLOTS_MAX];
	u32 bytes;		/* FIXED; else of the head */
	u32 length_offset;	/* 0: none */
	u32 size_offset;
	u32 first;
	u32 referent;
	u8 kind;
	u8 flags;
	u8 shift;
	u8 tail;
};

struct mut_object {
	u64 at;			/* space offset */
	u64 bytes;
	u32 type;
	u32 length;		/* of the array part */
};

enum mut_shape {
	MUT_RANDOM,
	MUT_LIST,
	MUT_TREE,
	MUT_HUBS,
	MUT_SHAPES,
};

enum mut_whole {
	MUT_PARTS,		/* a region of ordinary objects */
	MUT_WHOLE,		/* a large object begins here */
	MUT_BEHIND,		/* and goes on here */
};

struct mut_config {
	u64 seed;
	u32 regions;
	u32 spare;		/* how many of the last stay empty, donors in turn */
	u32 whole;		/* how many before these are for large objects */
	u64 region_bytes;
	u64 address;		/* 0: any */
	u32 donors;
	u32 ref_bytes;
	u32 header;		/* which way of writing types, % 4 */
	enum mut_shape shape;
	u32 objects;
	u32 roots;
	u32 array_max;
};

struct mut {
	struct mut_config c;
	struct dcm_gc_layout l;
	u64 rng;
	u8 *host;
	u8 *donors;		/* all of their copies, side by side */
	u8 *dirty;		/* a byte for each page */
	u32 *write_count;	/* of each region, raised by write-backs */
	u32 *owner;
	u64 *top;		/* in the region: where allocation is */
	u8 *whole;		/* of each region: enum mut_whole */
	u32 current;
	struct mut_type *types;
	u32 nr_types;
	u32 nr_runs;
	struct virtio_gc_run *runs;
	struct mut_object *objects;
	u32 nr_objects;
	u32 *at_unit;		/* object + 1 that starts there */
	/* objects that the running program can reach; NULL: it does not run */
	u32 *usable;
	u32 nr_usable;
	u64 *roots;
	u32 nr_roots;
	/* overwritten references, not yet sent; NULL: no barrier */
	u64 *satb;
	u32 nr_satb;
	u32 satb_max;
};

/* A heap of any kind that follows from @seed and @i; @whole: with large objects. */
struct mut_config mut_config_any(u64 seed, u32 i, bool whole);
struct mut *mut_new(const struct mut_config *c);
void mut_free(struct mut *m);
u64 mut_rand(struct mut *m);
/* Any number below @n. */
u32 mut_below(struct mut *m, u32 n);
/* Lower tops that would cut an object in two. */
void mut_tops_fit(const struct mut *m, u64 *tops);
/* By mut_new(): the space's types. */
void mut_types_make(struct mut *m);

/* Objects of any type with references of the configured shape, and roots. */
void mut_fill(struct mut *m);
/* A new object, or %U32_MAX when the heap is full. @type: %U32_MAX: any. */
u32 mut_alloc(struct mut *m, u32 type, u32 length);

/* A large object, with references or not, in regions of its own. */
u32 mut_alloc_whole(struct mut *m, bool refs, u32 length);
bool mut_is_whole(const struct mut *m, const struct mut_object *o);

u64 mut_slots(const struct mut *m, const struct mut_object *o);
/* Space offset of the @i'th field. */
u64 mut_slot(const struct mut *m, const struct mut_object *o, u64 i);
u64 mut_read(const struct mut *m, u64 slot);		/* offset or MUT_NULL */
void mut_write(struct mut *m, u64 slot, u64 offset);	/* with the barrier */
/* An object refers to nothing any more, or none of those that are opaque. */
void mut_clear(struct mut *m, const struct mut_object *o);
void mut_opaque_clear(struct mut *m);
u64 mut_ref(const struct mut *m, u64 offset);		/* as it is encoded */

/* Write back: one page, or all that are dirty. */
void mut_evict(struct mut *m, u64 page);
void mut_clean(struct mut *m);
/* Drop the host's copy: from now on only the donors have the heap. */
void mut_invalidate(struct mut *m);

/* From now on the program runs: it knows the reachable objects and its new ones. */
void mut_run(struct mut *m, const u8 *live);
/* Some stores, allocations, roots taken and dropped, and evictions. */
void mut_step(struct mut *m, bool allocate);

/**
 * mut_trace() - the oracle
 * @live: a byte for each object
 * @tops: only below these; %NULL: everywhere. References above are not followed.
 *
 * Follows opaque objects' fields, not referents of weak ones.
 */
void mut_trace(const struct mut *m, u8 *live, const u64 *tops);

/* The first root that is not null: its object is reachable. */
u64 mut_root(const struct mut *m);

/* mutator_le.c: the heap as requests say it */

/* The address in requests of the object at @offset; 0: %MUT_NULL. */
__le64 mut_address_le(const struct mut *m, u64 offset);
/* Roots, or an object's references, in the form of TRACE_ROOTS. */
void mut_roots_le(const struct mut *m, __le64 *out);
void mut_slots_le(const struct mut *m, const struct mut_object *o, __le64 *out);
/* Encode a request: its length; 0: @room is too small. */
size_t mut_request_le(void *buf, size_t room, struct virtio_gc_req head,
		      const void *body, size_t body_bytes, const void *entries,
		      size_t bytes);

/* The space as SPACE_CREATE wants it. */
struct virtio_gc_space mut_space_le(const struct mut *m);

/*
 * All regions with the tops of allocation, for TRACE_START: large objects are
 * said if they have references, and regions they go on in are left out.
 */
u32 mut_regions_le(const struct mut *m, struct virtio_gc_region *out);

/* The space's types as TYPES_ADD wants them; bytes. */
size_t mut_types_le(const struct mut *m, void *out);

#endif /* GC_MUTATOR_H */

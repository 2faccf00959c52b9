/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * gc.h - the engine of a GC worker
 *
 * One donor's part of a space: its types, a trace of it, and moving. The engine
 * works on memory that is mapped here, region by region, and reaches other
 * donors only through struct dcm_gc_peers. It knows nothing of sockets,
 * sessions and slabs; see docs/design/virtio-gc.md. Statuses are enum
 * virtio_gc_status.
 *
 * Nothing read from a region is trusted: it may be anything, and change at any
 * time. Sizes given by the caller of the engine are trusted.
 */
#ifndef DCM_GC_H
#define DCM_GC_H

#include "../../kvm-dcm/proto/gc_quiet.h"

struct dcm_gc_space;
struct dcm_gc_trace;

/**
 * dcm_gc_space_new() - make a space, without memory and types
 * @l: its layout, checked here
 * @donor: the number of this donor
 * @status: out: why it failed
 */
struct dcm_gc_space *dcm_gc_space_new(const struct dcm_gc_layout *l, u32 donor,
				      u32 *status);
/* Free a space; ends its trace. */
void dcm_gc_space_free(struct dcm_gc_space *s);

u32 dcm_gc_space_regions(const struct dcm_gc_space *s);
u64 dcm_gc_space_region_bytes(const struct dcm_gc_space *s);
u64 dcm_gc_space_address(const struct dcm_gc_space *s);

/**
 * dcm_gc_space_place() - set where a region is
 * @s: the space; while it is traced, only a region that is not traced can get
 *	a first place, for dcm_gc_trace_ranges()
 * @region: its number
 * @donor: the donor that holds it
 * @memory: its mapping, if that is this donor; read and written
 * @write_count: if not %NULL, changes (__atomic) around writes by others: odd
 *	while one is under way
 *
 * Return: %VIRTIO_GC_OK; %VIRTIO_GC_INVALID for a number out of range;
 * %VIRTIO_GC_BUSY.
 */
u32 dcm_gc_space_place(struct dcm_gc_space *s, u32 region, u32 donor,
		       void *memory, const u32 *write_count);

/* Bytes of memory the engine uses for @s beside its regions. */
u64 dcm_gc_space_memory(const struct dcm_gc_space *s);

/**
 * dcm_gc_types_add() - add types: the part of TYPES_ADD after struct virtio_gc_types
 * @s: the space; it may be traced meanwhile
 * @flags: VIRTIO_GC_TYPES_*; with REPLACE nothing else may use the space
 * @types: @count struct virtio_gc_type, then @runs struct virtio_gc_run
 * @bytes: size of both together
 * @count: number of types
 * @runs: number of runs
 */
u32 dcm_gc_types_add(struct dcm_gc_space *s, u32 flags, const void *types,
		     size_t bytes, u32 count, u32 runs);

/**
 * struct dcm_gc_peers - the way to other donors
 * @ghosts: send @n references (space offsets) to @donor, which will call
 *	dcm_gc_trace_ghosts(); after that dcm_gc_trace_acked() is called here,
 *	once for each call. False: the donor can't be reached.
 * @forward: of @n space offsets in @donor's regions, replace those of moved
 *	objects by the new ones; waits. False: the donor can't be reached.
 *
 * Called by the engine's threads, by several at a time.
 */
struct dcm_gc_peers {
	bool (*ghosts)(void *arg, u32 epoch, u32 donor, const u64 *offsets,
		       u32 n);
	bool (*forward)(void *arg, u32 donor, u64 *offsets, u32 n);
	void *arg;
};

/**
 * struct dcm_gc_start - how to trace
 * @flags: VIRTIO_GC_TRACE_*
 * @threads: at least 1
 * @regions: all of them, other donors' too; little endian
 * @nr_regions: how many
 * @peers: may be %NULL when all regions are here
 */
struct dcm_gc_start {
	u32 epoch;
	u32 flags;
	u32 threads;
	const struct virtio_gc_region *regions;
	u32 nr_regions;
	const struct dcm_gc_peers *peers;
};

/* Begin a trace; this ends the one before. */
u32 dcm_gc_trace_start(struct dcm_gc_space *s, const struct dcm_gc_start *how);

/* Add roots, which are addresses: all of them or none. */
struct dcm_gc_result dcm_gc_trace_roots(struct dcm_gc_space *s, u32 epoch,
					const __le64 *addresses, u32 n);
/*
 * Add the references in ranges as roots, as far as they lie in this donor's regions.
 * All ranges are taken, or none.
 */
struct dcm_gc_result dcm_gc_trace_ranges(struct dcm_gc_space *s, u32 epoch,
					 const struct virtio_gc_refs *refs,
					 u32 n);
/* Add references from another donor, as space offsets. They are counted on return. */
u32 dcm_gc_trace_ghosts(struct dcm_gc_space *s, u32 epoch, const u64 *offsets,
			u32 n);
void dcm_gc_trace_acked(struct dcm_gc_space *s, u32 epoch, u32 donor);

/* %VIRTIO_GC_OK or %VIRTIO_GC_NO_TRACE. */
u32 dcm_gc_trace_poll(struct dcm_gc_space *s, u32 epoch,
		      struct dcm_gc_flags *flags);

/* Wait until this donor has nothing to do, the trace fails, or @ns passed. */
void dcm_gc_trace_wait(struct dcm_gc_space *s, u64 ns);

/*
 * End a trace, as all donors are quiet: end its threads, and make results available.
 * Returns the result of the trace.
 */
struct dcm_gc_result dcm_gc_trace_finish(struct dcm_gc_space *s, u32 epoch);
/* Stop the running trace with @status. */
void dcm_gc_trace_cancel(struct dcm_gc_space *s, u32 status);

/**
 * dcm_gc_trace_met() - take objects or types that the trace met
 * @what: enum virtio_gc_met_what
 * @out: room for @max
 * @n: out: how many were taken
 * @left: out: how many are left; of weak objects only whether there may be any
 *
 * Weak objects: only after dcm_gc_trace_finish(). Types: also while this donor is
 * quiet, which may be several times in a trace; each type comes once.
 */
u32 dcm_gc_trace_met(struct dcm_gc_space *s, u32 epoch, u32 what, __le64 *out,
		     u32 max, u32 *n, u64 *left);

/**
 * dcm_gc_trace_clear() - weak objects met whose referents were not met so far
 * @flags: %VIRTIO_GC_MET_AGAIN: from the first one; else where the last call
 *	stopped
 * @out: room for @max; includes objects whose referent is on another donor, as it is
 *	not known here whether that was met
 * @n: out: how many there are
 * @left: out: whether there may be more; one call does not look for long
 *
 * To be called while this donor is quiet, or after dcm_gc_trace_finish(). Objects come
 * in the order of their addresses.
 */
u32 dcm_gc_trace_clear(struct dcm_gc_space *s, u32 epoch, u32 flags,
		       struct virtio_gc_weak *out, u32 max, u32 *n, u64 *left);

/**
 * dcm_gc_trace_ask() - which of these objects were met so far?
 * @addresses: @n addresses; may be invalid
 * @bits: out: a bit for each, 8 in a byte: 1 if it is on this donor and was met
 */
u32 dcm_gc_trace_ask(struct dcm_gc_space *s, u32 epoch, const __le64 *addresses,
		     u32 n, u8 *bits);

/* Results of one region; %VIRTIO_GC_NO_TRACE if it is not on this donor. */
u32 dcm_gc_trace_live(struct dcm_gc_space *s, u32 epoch, u32 region,
		      struct virtio_gc_live *live);
/* The region's bitmap, region_bytes / 64 bytes, or %NULL. */
const u64 *dcm_gc_trace_bitmap(struct dcm_gc_space *s, u32 epoch, u32 region);

/**
 * dcm_gc_cards_begin() - begin a search for cards that refer into regions
 * @epoch: epoch of the trace, which has finished
 * @shift: log2 of a card's bytes
 * @regions: @n of them, each a source, with the end of its objects, a target, or
 *	both
 */
u32 dcm_gc_cards_begin(struct dcm_gc_space *s, u32 epoch, u32 shift,
		       const struct virtio_gc_region *regions, u32 n);
/* Also search references in ranges. All ranges are taken, or none. */
u32 dcm_gc_cards_ranges(struct dcm_gc_space *s, u32 epoch,
			const struct virtio_gc_refs *refs, u32 n);
/**
 * dcm_gc_cards_next() - go on with the search, in this donor's regions
 * @out: room for @max
 * @n: out: how many there are
 * @left: out: whether there may be more; one call does not look for long
 *
 * References to the region that they lie in do not count. Any other status than
 * %VIRTIO_GC_OK ends the search.
 */
struct dcm_gc_result dcm_gc_cards_next(struct dcm_gc_space *s, u32 epoch,
				       struct virtio_gc_card *out, u32 max,
				       u32 *n, u64 *left);

/* Do one move of EVACUATE, whose regions and table are all on this donor. */
u32 dcm_gc_move(struct dcm_gc_space *s, u32 epoch,
		const struct virtio_gc_move *move, u32 flags,
		struct virtio_gc_moved *moved);
/*
 * Note that another donor has moved @from: references into it are asked of that donor.
 */
u32 dcm_gc_moved_there(struct dcm_gc_space *s, u32 from);

/* UPDATE the regions that are on this donor. @updated counts references. */
struct dcm_gc_result dcm_gc_update(struct dcm_gc_space *s,
				   const struct virtio_gc_region *regions,
				   u32 n, const struct dcm_gc_peers *peers,
				   u64 *updated);
/* As dcm_gc_update(), for ranges of references. */
struct dcm_gc_result
dcm_gc_update_ranges(struct dcm_gc_space *s, const struct virtio_gc_refs *refs,
		     u32 n, const struct dcm_gc_peers *peers, u64 *updated);
/* Replace those of @n space offsets whose objects were moved here. */
void dcm_gc_forward(struct dcm_gc_space *s, u64 *offsets, u32 n);
u32 dcm_gc_release(struct dcm_gc_space *s, u32 from);

/**
 * dcm_gc_compact() - move the least filled regions into free ones
 * @regions: all that take part, with the ends of their objects
 * @tables: space offset of the area for this donor's forward tables
 * @table_bytes: size of that area
 * @moved: room for @nr_regions
 * @nr_moved: out: how many were moved, whatever is returned
 */
u32 dcm_gc_compact(struct dcm_gc_space *s, u32 epoch,
		   const struct virtio_gc_region *regions, u32 nr_regions,
		   u64 tables, u64 table_bytes, struct virtio_gc_moved *moved,
		   u32 *nr_moved);

/* Make moving, updating and a search for cards end with @status, soon; 0: go on. */
void dcm_gc_stop(struct dcm_gc_space *s, u32 status);

#endif /* DCM_GC_H */

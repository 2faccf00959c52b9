/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * gc.h - garbage collection where the heap lies
 *
 * The engine of a GC worker: what one donor knows of a space, its types, a
 * trace of it, and moving. It works on memory that is mapped here, region by
 * region, and reaches other donors only through struct dcm_gc_peers. It knows
 * nothing of sockets, sessions and slabs; docs/design/virtio-gc.md has the
 * story. Statuses are enum virtio_gc_status.
 *
 * Nothing read from a region is believed: it may be anything, and change at
 * any time. Sizes given by whoever embeds the engine are believed.
 */
#ifndef DCM_GC_H
#define DCM_GC_H

#include "../../guest-virtio-gc/include/virtio_gc.h"
#include "../../kvm-dcm/core/dcm_context.h"

#define DCM_GC_SPACE_MAX	(1ull << 44)	/* bytes; see work.h */
#define DCM_GC_REGION_MIN	(64u << 10)
#define DCM_GC_REGION_MAX	(1ull << 31)
#define DCM_GC_TYPES_MAX	65536u
#define DCM_GC_RUNS_MAX		262144u
#define DCM_GC_REGIONS_MAX	65536u
#define DCM_GC_THREADS_MAX	64u
#define DCM_GC_DONORS_MAX	64u
#define DCM_GC_BATCH		512u	/* addresses in one message */
#define DCM_GC_SELF_HEAD_MAX	(1u << 20)

struct dcm_gc_space;
struct dcm_gc_trace;

/* A status, and what it is about (an address, or a reference). */
struct dcm_gc_result {
	u32 status;
	u64 at;
};

/**
 * struct dcm_gc_layout - a space in host order; struct virtio_gc_space
 * @bytes: a multiple of @region_bytes
 */
struct dcm_gc_layout {
	u64 bytes;
	u64 region_bytes;
	u64 address;
	u64 ref_base;
	u32 type_mask;
	u16 type_offset;
	u8 ref_bytes;
	u8 ref_shift;
	u8 flags;
	u8 type_bytes;
	u8 type_shift;
};

/**
 * dcm_gc_space_new() - a space, without memory and types
 * @l: its layout, checked here
 * @donor: the number of this donor
 * @status: why not
 */
struct dcm_gc_space *dcm_gc_space_new(const struct dcm_gc_layout *l, u32 donor,
				      u32 *status);
/* Ends its trace too. */
void dcm_gc_space_free(struct dcm_gc_space *s);

u32 dcm_gc_space_regions(const struct dcm_gc_space *s);
u64 dcm_gc_space_region_bytes(const struct dcm_gc_space *s);
u64 dcm_gc_space_address(const struct dcm_gc_space *s);

/**
 * dcm_gc_space_place() - say where a region is
 * @s: the space, without a trace
 * @region: its number
 * @donor: who holds it
 * @memory: mapped here, if that is us; read and written
 * @tag: if not %NULL, changes (__atomic) around writes by others: odd
 *	while one is on its way
 *
 * Return: %VIRTIO_GC_OK, or %VIRTIO_GC_INVALID for a number out of range.
 */
u32 dcm_gc_space_place(struct dcm_gc_space *s, u32 region, u32 donor,
		       void *memory, const u32 *tag);

/* Bytes of memory the engine uses for @s beside its regions. */
u64 dcm_gc_space_memory(const struct dcm_gc_space *s);

/**
 * dcm_gc_types_add() - TYPES_ADD after its struct virtio_gc_types
 * @s: the space; it may be traced meanwhile
 * @types: @count struct virtio_gc_type, then @runs struct virtio_gc_run
 * @bytes: how much there is
 * @count: of types
 * @runs: of runs
 */
u32 dcm_gc_types_add(struct dcm_gc_space *s, const void *types, size_t bytes,
		     u32 count, u32 runs);

/**
 * struct dcm_gc_peers - the way to other donors
 * @ghosts: hand @n references (space offsets) to @donor, which will call
 *	dcm_gc_trace_ghosts(); when it has, dcm_gc_trace_acked() is called
 *	here, once for each call. False: it can't be reached.
 * @forward: replace by their new places those of @n space offsets in
 *	@donor's regions that were moved; waits. False: it can't be reached.
 *
 * Called by the engine's threads, from several at a time.
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
 * @threads: from 1
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

/* Begin a trace; ends the one before. */
u32 dcm_gc_trace_start(struct dcm_gc_space *s, const struct dcm_gc_start *how);

/* Roots: addresses. All are taken or none. */
struct dcm_gc_result dcm_gc_trace_roots(struct dcm_gc_space *s, u32 epoch,
					const __le64 *addresses, u32 n);
/* From another donor: space offsets. They are taken when this returns. */
u32 dcm_gc_trace_ghosts(struct dcm_gc_space *s, u32 epoch, const u64 *offsets,
			u32 n);
void dcm_gc_trace_acked(struct dcm_gc_space *s, u32 epoch, u32 donor);

/**
 * struct dcm_gc_flags - mako-pldi22, 5.2: quiet when all are false twice
 * @tracing: a thread is at work
 * @roots: what came from others waits
 * @ghosts: what goes to others waits, or is not acknowledged
 * @changed: any of these was true since the last time
 * @opaque: opaque objects wait to be taken, as many
 */
struct dcm_gc_flags {
	bool tracing;
	bool roots;
	bool ghosts;
	bool changed;
	u32 opaque;
	struct dcm_gc_result result;
};

/* %VIRTIO_GC_OK or %VIRTIO_GC_NO_TRACE. */
u32 dcm_gc_trace_poll(struct dcm_gc_space *s, u32 epoch,
		      struct dcm_gc_flags *flags);
/**
 * struct dcm_gc_quiet - are all donors quiet, twice in a row?
 * @rounds: that found all of them quiet, one after the other
 *
 * Ask every donor (dcm_gc_trace_poll()), then dcm_gc_quiet_round().
 */
struct dcm_gc_quiet {
	u32 rounds;
};

static inline bool dcm_gc_quiet_round(struct dcm_gc_quiet *q,
				      const struct dcm_gc_flags *flags, u32 n)
{
	for (u32 i = 0; i < n; i++) {
		if (flags[i].tracing || flags[i].roots || flags[i].ghosts ||
		    flags[i].changed) {
			q->rounds = 0;
			return false;
		}
	}
	return ++q->rounds >= 2;
}

/* Wait until this donor has nothing to do, the trace fails, or @ns passed. */
void dcm_gc_trace_wait(struct dcm_gc_space *s, u64 ns);

/*
 * All donors are quiet: threads end, results are there. Returns what the
 * trace came to.
 */
struct dcm_gc_result dcm_gc_trace_finish(struct dcm_gc_space *s, u32 epoch);
/* Stop whatever runs with @status. */
void dcm_gc_trace_cancel(struct dcm_gc_space *s, u32 status);

/**
 * dcm_gc_trace_met() - take what was met
 * @what: enum virtio_gc_met_what
 * @out: room for @max
 * @n: how many came
 * @left: how many more there are; of weak objects only whether
 *
 * Weak objects and types only after dcm_gc_trace_finish().
 */
u32 dcm_gc_trace_met(struct dcm_gc_space *s, u32 epoch, u32 what, __le64 *out,
		     u32 max, u32 *n, u64 *left);

/* One region of the results; of a region that is not here %VIRTIO_GC_NO_TRACE. */
u32 dcm_gc_trace_live(struct dcm_gc_space *s, u32 epoch, u32 region,
		      struct virtio_gc_live *live);
/* Its bitmap, region_bytes / 64 bytes, or %NULL. */
const u64 *dcm_gc_trace_bitmap(struct dcm_gc_space *s, u32 epoch, u32 region);

/* EVACUATE, one move, all of it on this donor. */
u32 dcm_gc_move(struct dcm_gc_space *s, u32 epoch,
		const struct virtio_gc_move *move, u32 flags,
		struct virtio_gc_moved *moved);
/* A move another donor made: its references are asked for over @peers. */
u32 dcm_gc_moved_there(struct dcm_gc_space *s, u32 from);

/* UPDATE: those of the regions that are here. @updated counts references. */
struct dcm_gc_result dcm_gc_update(struct dcm_gc_space *s,
				   const struct virtio_gc_region *regions,
				   u32 n, const struct dcm_gc_peers *peers,
				   u64 *updated);
/* Those of @n space offsets that a move made here replaced. */
void dcm_gc_forward(struct dcm_gc_space *s, u64 *offsets, u32 n);
u32 dcm_gc_release(struct dcm_gc_space *s, u32 from);

/**
 * dcm_gc_compact() - move the least filled regions into free ones
 * @regions: all that take part, with the ends of their objects
 * @tables: space offset of this donor's room for forward tables
 * @table_bytes: how much
 * @moved: room for @nr_regions
 * @nr_moved: how many were made, whatever is returned
 */
u32 dcm_gc_compact(struct dcm_gc_space *s, u32 epoch,
		   const struct virtio_gc_region *regions, u32 nr_regions,
		   u64 tables, u64 table_bytes, struct virtio_gc_moved *moved,
		   u32 *nr_moved);

/* Moving and updating end with @status at the next object; 0: no longer. */
void dcm_gc_stop(struct dcm_gc_space *s, u32 status);

#endif /* DCM_GC_H */

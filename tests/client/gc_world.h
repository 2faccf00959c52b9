/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * gc_world.h - a heap on three donors, and the workers that collect it
 *
 * tests/gc's runtime fills it; it is written to slabs the way a pager does, over
 * tcp or into shm. An unexpected failure ends the test.
 */
#ifndef TEST_GC_WORLD_H
#define TEST_GC_WORLD_H

#include "../../kvm-dcm/gc/workers.h"
#include "../gc/mutator.h"
#include "donor.h"
#include "host.h"

#define REGION (64u << 10)
#define DONORS 3u

/* A heap on donors. */
struct world {
	struct host h;
	struct donor donor[DONORS];
	struct mut *m;
	struct dcm_gc_workers *workers;
	struct dcm_client_slab *slab[DONORS];
	u64 at[64]; /* of each region, in its slab */
	u8 *live;
	u8 *bits; /* live bitmaps, as they came */
	u64 bits_at;
	bool cancel;
	u32 cancel_at; /* number of the look that finds the request cancelled */
	u32 told; /* moves of the last COMPACT that came to them */
	bool deaf; /* the runtime can't be told of moves */
	u32 kill_at; /* number of the look at which @kill is called */
	void (*kill)(struct world *w);
	u32 beside; /* added to the space's number in requests */
	bool nowhere[64]; /* regions between two places, or on none */
	u64 deadline_ms;
	u32 without; /* features that were not negotiated */
	struct dcm_gc_reply out;
};

/* A request as a device would hand it on. */
u32 request(struct world *w, u16 command, u16 flags, u32 epoch, u32 count,
	    const void *body, size_t body_bytes, const void *entries,
	    size_t bytes);
/* Every region as the runtime's write-backs left it, or back from there. */
void heap_io(struct world *w, enum dcm_io_op op);
/* After donors: the @i'th kind, on them, and a workers without a space. */
void world_heap(struct world *w, u32 i);
void world_heap_free(struct world *w);
/* @local: into shm; else over tcp. @opts: of dcm-donord */
void world_donors_of(struct world *w, bool local, const char *const *opts);
void world_donors(struct world *w, bool local);
void world_donors_end(struct world *w);
/* Space 3 and its types, for the workers. */
void space_make(struct world *w);
/* Commands of a trace of all regions, and all of them; a status. */
u32 trace_begin(struct world *w, u32 epoch, u16 flags);
u32 trace_start(struct world *w, u32 epoch);
u32 roots_send(struct world *w, u32 epoch);
u32 trace_finish(struct world *w, u32 epoch);
u32 trace(struct world *w, u32 epoch);
/* Donors, a heap that was traced once, and a second trace that has its roots. */
void world_tracing(struct world *w);
/* Results and bitmaps, bit by bit against the runtime's own. */
void results_check(struct world *w, u32 epoch);
/* Workers of a donor, its children: up to 8, the only one, or none soon. */
u32 workers(const struct world *w, u32 d, pid_t *pids);
pid_t worker_of(const struct world *w, u32 d);
void no_workers(const struct world *w, u32 d);
/* Empty regions: two on @from's donor, and one on another. */
void spares_choose(const struct world *w, u32 from, u32 *same, u32 *table,
		   u32 *other);
/* All that lives in @from, with all of a region for the table. */
struct virtio_gc_move move_of(u32 from, u32 to, u32 table);

#endif /* TEST_GC_WORLD_H */

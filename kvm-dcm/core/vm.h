/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * vm.h - a VM's state: its lanes, extents, queues and write-backs
 *
 * Only the core's files change it. A pager that embeds the core uses of it: its own
 * pointers (@priv), a lane's fetch buffers, the sizes; and it reads figures. Page
 * descriptors are in pd.h.
 *
 * Locking: a lane's fields belong to the thread that uses the lane, but for
 * @ins, @victims and @inactive, which have locks of their own. Fields of an
 * extent are changed by the slab worker, and read under a block's lock
 * (extent.c).
 */
#ifndef DCM_CORE_VM_H
#define DCM_CORE_VM_H

#include "counter.h"
#include "../lib/dcm_context.h"
#include "io.h"
#include "ops.h"
#include "pd.h"
#include "tunable.h"

#define DCM_LANES_MAX 64u
#define DCM_FETCHES_MAX 32u /* faults in flight per lane */
#define DCM_AHEAD_MAX 8u /* of these, blocks that no access has asked for */
#define DCM_WBS_MAX 64u /* write-backs in flight per lane */
/* blocks of a lane on which a failed WRITE may land */
#define DCM_DOUBTS_MAX 256u
#define DCM_RUNS_MAX 8u /* dirty runs in one block: every second page */
#define DCM_BUFFER_MAX 16u /* blocks in a lane's queue buffers */
#define DCM_BATCH_MAX 64u
#define DCM_AHEAD_EXTENTS 4096u /* ranges that wait to be fetched ahead */
#define DCM_SEEN_MAX 128u /* blocks of the largest size in a sync window */

/**
 * struct dcm_wb - write-back descriptor (dcm-tc18, fig. 8)
 * @io: one WRITE for each run of dirty pages, to each slot
 * @lane: the lane whose array it is in
 * @gfn: head of the block it was made for
 * @order: that block is 2^order pages
 * @nr_io: WRITEs made
 * @pending: WRITEs not completed
 * @posted: WRITEs posted, the rest wait for room in the queue
 * @pages: pages being written, a bit each
 * @zero: pages found zero
 * @clean: of @pages: those that are not dirty: slots that have them keep them, and
 *	they are written only to slots of @targets that lack them
 * @targets: slots it goes to
 * @behind: open slots that it does not go to: the pages lag (lag.c)
 * @written: of @targets: slots to which at least one WRITE goes
 * @bad: of @targets: slots to which a WRITE failed
 * @cut: of @bad: slots to which a WRITE failed with its connection
 * @doubt: pages of WRITEs that failed with their connection, by slot
 * @cancelled: the block was re-referenced: the page descriptor no longer
 *	points here, and all that remains is to give back the frame
 * @held: the lane that cancelled it is still copying out of the frame
 * @parked: all WRITEs have completed, but the frame was still held
 * @failed: it has ended, and no slot has the pages
 * @frame: handle of the bytes
 * @sealed: in a sealed VM: handle of a frame of %DCM_BLOCK_MAX pages, for the bytes
 *	that go out; the pager sets it once, before it seals the VM
 * @t_post: when it was posted
 *
 * Block and descriptor point at each other: pd.prev and pd.next name the
 * descriptor, @gfn names the block. Cancelling removes the block's pointer under
 * the block's lock; @gfn stays.
 */
struct dcm_wb {
	struct dcm_io io[DCM_RUNS_MAX * DCM_SLOTS];
	struct dcm_lane *lane;
	u32 gfn;
	u8 order;
	u8 nr_io;
	u8 posted;
	u8 pending;
	u16 pages;
	u16 zero;
	u16 clean;
	u16 doubt[DCM_SLOTS];
	u8 targets;
	u8 behind;
	u8 written;
	u8 bad;
	u8 cut;
	bool in_use;
	bool cancelled;
	bool held;
	bool parked;
	bool failed;
	bool copy;
	bool open; /* a copy whose pages stay writable, and so dirty */
	u32 frame;
	u32 sealed;
	u64 t_post;
};

/**
 * struct dcm_fifo - a queue of blocks linked through their descriptors
 * @lock: guards prev and next of the queue's blocks; block locks are only
 *	tried, never waited for, under it
 * @head: next victim
 * @tail: newest
 * @nr_blocks: blocks in it
 * @nr_pages: pages in it
 */
struct dcm_fifo {
	spinlock_t lock;
	u32 head;
	u32 tail;
	u32 nr_blocks;
	u32 nr_pages;
} ____cacheline_aligned;

/**
 * struct dcm_buffer - a lane's blocks on their way into a queue or out of one
 * @gfn: heads of the blocks
 * @nr: index at which the next is put
 * @first: index of the next to be taken
 */
struct dcm_buffer {
	u32 gfn[DCM_BUFFER_MAX];
	u32 nr;
	u32 first;
};

/**
 * struct dcm_move_op - pages of a block on their way from slot to slot (move.c)
 * @io: the READ, then a WRITE to each of @targets
 * @data: what was read; %NULL: nothing yet
 * @gfn: head of the block; it is BUSY
 * @first: index of the first page
 * @nr: number of pages
 * @sources: slots that have the pages, and from which no READ failed
 * @targets: slots they are to be written to
 * @well: of @targets: slots they were written to
 * @off: slots that leave the pages' sets once they are written; 0: none
 * @changed: a GC worker has changed them on @sources, the primary (spread.c)
 * @later: a READ failed, but not because its slab is gone: it may work later
 * @cut: a WRITE failed with its connection
 * @reread: a READ brought wrong bytes from the only slot, and was tried again
 */
struct dcm_move_op {
	struct dcm_io io;
	void *data;
	u32 gfn;
	u8 first;
	u8 nr;
	u8 sources;
	u8 targets;
	u8 well;
	u8 off;
	bool later;
	bool cut;
	bool reread;
	bool changed;
};

#define DCM_MOVES_MAX 16u

/**
 * struct dcm_doubt - WRITEs of a block that failed and may still land (doubt.c)
 * @gfn: the first page
 * @pages: pages of the WRITEs, counted from @gfn, a bit each
 * @slots: the extent's slots that they may still land on
 * @peer: by slot: the donor a WRITE was sent to
 * @since: by slot: the slot's @since at that time
 */
struct dcm_doubt {
	u32 gfn;
	u16 pages;
	u8 slots;
	u8 peer[DCM_SLOTS];
	u32 since[DCM_SLOTS];
};

/**
 * struct dcm_move - a lane's batch of operations
 * @nr: operations in @op
 * @left: of these, operations under way
 * @failed: the first page that dcm_spread() has to do again; %DCM_NIL: none
 */
struct dcm_move {
	u32 nr;
	u32 left;
	u32 failed;
	struct dcm_move_op op[DCM_MOVES_MAX];
};

/**
 * struct dcm_lane - one thread's share of a VM
 * @vm: the VM
 * @id: index in vm->lane
 * @priv: the pager's
 * @rng: xorshift state
 * @buf_lock: guards the three buffers; other lanes take it only when they
 *	run dry
 * @ins: blocks on their way to the shared Active (0) and Proactive (1) queue
 * @victims: blocks taken from Active, next to be unmapped
 * @inactive: this lane's Inactive queue
 * @look_at: the other lane in whose queue it looks for victims next
 * @nr_fetch: fetches in use, but for those of @nr_ahead
 * @nr_ahead: the last fetches of @fetch in use: of blocks that no access has asked
 *	for
 * @nr_retry: of those, fetches waiting to be posted again
 * @nr_wb: write-backs in use
 * @wb_unposted: of those, write-backs with WRITEs not posted yet
 * @wb_parked: of those, write-backs whose frame is still held
 * @nr_doubt: entries of @doubt
 * @down: donors, a bit each, to which this lane's connection failed and no operation
 *	has gone well since (slot.c)
 * @cut: the same, and donors that let the lane connect again, and to which no WRITE has
 *	gone well since
 * @down_ns: by donor: since when it is cut
 * @probed_ns: by donor: when its connection last failed, or when the lane last tried to
 *	write to it while it was down
 * @fenced: donors that have closed this lane's older connections, a bit each
 * @doubt: WRITEs of this lane that failed and may still land
 * @seen_from: first page of the window that dcm_sync() works on
 * @seen: the window's pages, a bit each: set once a donor has, or is being
 *	sent, the page as it was at some time since syncing began
 * @unmap: room for one batch of dcm_ops.unmap
 * @move: batch of dcm_extent_fill() or dcm_extent_drain()
 * @landing_ns: the time from the arrival of a block's bytes until it was mapped, of the
 *	last block of which it is known
 * @count: counters, written by this lane only
 * @hist: histograms, written by this lane only
 * @away: pages that were fetched for an access, by how many pages were evicted after
 *	them
 */
struct dcm_lane {
	struct dcm_vm *vm;
	u32 id;
	void *priv;
	u64 rng;
	spinlock_t buf_lock;
	struct dcm_buffer ins[2];
	struct dcm_buffer victims;
	struct dcm_fifo inactive;
	u32 look_at;
	u32 nr_fetch;
	u32 nr_ahead;
	u32 nr_retry;
	u32 nr_wb;
	u32 wb_unposted;
	u32 wb_parked;
	u32 nr_doubt;
	u64 fenced;
	u64 down;
	u64 cut;
	u64 down_ns[DCM_PEERS_MAX];
	u64 probed_ns[DCM_PEERS_MAX];
	u32 seen_from;
	u16 seen[DCM_SEEN_MAX];
	struct dcm_move move;
	struct dcm_unmap unmap[DCM_BATCH_MAX];
	struct dcm_fetch fetch[DCM_FETCHES_MAX];
	struct dcm_wb wb[DCM_WBS_MAX];
	struct dcm_doubt doubt[DCM_DOUBTS_MAX];
	u64 landing_ns;
	u64 count[DCM_C_NR];
	struct dcm_hist hist[DCM_H_NR];
	struct dcm_hist away;
} ____cacheline_aligned;

/**
 * struct dcm_slot - a place for one slab under an extent
 * @slab: the slab, or %NULL
 * @since: dcm_extent.attached when it was attached
 * @inflight: I/Os in flight to it, and write-backs not finished
 */
struct dcm_slot {
	struct dcm_slab_ref *slab;
	u32 since;
	atomic_t inflight;
};

/* struct dcm_extent's @thin was set when the fill that is under way began */
#define DCM_FILL_THIN 1u
/*
 * A fill has ended with @thin clear, and no slot was opened since: only direct pages
 * may still lack a slot, and eviction must write these before they leave (evict.c).
 */
#define DCM_FILL_DONE 2u

/**
 * struct dcm_extent - a slab-sized part of the VM's pages
 * @slot: its slabs; pd_at() says which of them hold a page's content
 * @peer: by slot, the slab's @peer. A copy, for lanes that have no I/O counted on
 *	the slot: they must not follow @slab, which may be freed
 * @rank: by slot, the slab's @rank; a copy as @peer
 * @used: slots that have a slab, a bit each
 * @open: slots that new write-backs go to, a bit each: they have a slab that is
 *	neither being emptied nor gone
 * @gone: slots whose slab is lost with its donor, a bit each: nothing is posted
 *	to them any more
 * @files: slots whose slab is a file, a bit each
 * @thin: pages may be on some slot but not on all open ones: a fill is needed
 * @fill: DCM_FILL_*; changed by the slab worker only
 * @attached: how many slabs have been attached
 * @ops: I/Os that succeeded, for the activity average
 * @lost_pages: pages lost with the slab that is being detached
 * @lag: upper bound of the pages that slots of @files lack though others have them
 *	(lag.c)
 * @lag_old: @lag when the fill that is under way began
 * @sum: the pages' sums (sum.c); %NULL: it never had more than one slab
 * @seal: the pages' seals (seal.c); %NULL: the VM is not sealed, or it had no slab
 */
struct dcm_extent {
	struct dcm_slot slot[DCM_SLOTS];
	u8 peer[DCM_SLOTS];
	u8 rank[DCM_SLOTS];
	u8 used;
	u8 open;
	u8 gone;
	u8 files;
	bool thin;
	u8 fill;
	u32 attached;
	atomic64_t ops;
	atomic64_t lost_pages;
	atomic64_t lag;
	u64 lag_old;
	u32 *sum;
	struct dcm_seal *seal;
};

/**
 * dcm_slot_of() - the slot that a slab is in
 * @e: an extent
 * @slab: the slab
 *
 * Return: its number, or -ENOENT.
 */
int dcm_slot_of(const struct dcm_extent *e, const struct dcm_slab_ref *slab);

/* The slot of the slab that GC workers use (slot.c); -1: no slot is open. */
int dcm_slot_primary(const struct dcm_extent *e);

/**
 * struct dcm_habit - what was learned about 2 MiB of pages; 0: never, 255: always
 * @waste: how often prefetched pages went unused
 * @rewritten: how often fetched pages were written
 */
struct dcm_habit {
	u8 waste;
	u8 rewritten;
};

/**
 * struct dcm_ahead - ranges to be brought in ahead of accesses: a ring (ahead.c)
 * @lock: guards all of it
 * @first: index of the range that is worked on
 * @nr: ranges that are queued, from @first on
 * @pages: pages in all of them
 * @room: how many more pages may come in for the queued ranges
 * @vain: steps in a row in which nothing could be evicted
 * @extent: the ranges: @nr pages from @gfn on
 */
struct dcm_ahead {
	spinlock_t lock;
	u32 first;
	u32 nr;
	u64 pages;
	u64 room;
	u32 vain;
	struct {
		u32 gfn;
		u32 nr;
	} extent[DCM_AHEAD_EXTENTS];
} ____cacheline_aligned;

#define DCM_STREAMS_MAX 16u
#define DCM_PAST_MAX 8u

/**
 * struct dcm_miss - an access that has to wait for a donor's answer
 * @gfn: the page
 * @head: first page of the block that is fetched
 * @end: first page past it; 0: nothing had to be fetched
 */
struct dcm_miss {
	u32 gfn;
	u32 head;
	u32 end;
};

/**
 * struct dcm_stream - accesses in equal steps (stream.c)
 * @next: the page that is expected next; may be outside of the VM
 * @step: pages from each access to the next; 0: this entry is free
 * @used: dcm_streams.clock when an access last continued it
 * @asked: steps from @next on that were asked for and not used yet
 * @went: steps that were asked for and used
 * @sure: accesses that continued it
 * @depth: how many steps ahead to ask for next
 */
struct dcm_stream {
	s64 next;
	s32 step;
	u32 used;
	u16 asked;
	u16 went;
	u16 depth;
	u8 sure;
};

/**
 * struct dcm_streams - a VM's streams
 * @lock: guards all of it
 * @clock: accesses that were looked at
 * @misses: misses so far
 * @asked: steps that all streams have asked for and not used
 * @waste: how often streams ended with unused steps; 0: never, 255: always
 * @past: the last misses, a ring
 * @stream: the streams
 */
struct dcm_streams {
	spinlock_t lock;
	u32 clock;
	u32 misses;
	u32 asked;
	u8 waste;
	struct dcm_miss past[DCM_PAST_MAX];
	struct dcm_stream stream[DCM_STREAMS_MAX];
} ____cacheline_aligned;

/**
 * struct dcm_ghosts - what was learned from pages that came back (ghost.c)
 * @start: the value of the tunable proactive_share that @share started from
 * @share: the most that Proactive should hold, as a part of the budget; 2^32: all of it
 * @gone: pages evicted lately: [0] used once, [1] re-referenced while direct
 */
struct dcm_ghosts {
	u32 start;
	u32 share;
	u32 gone[2];
};

/**
 * struct dcm_vm - one VM
 * @sealed: pages are sealed before they leave (seal.c)
 * @chunk: where the descriptors are, %DCM_PDS_PAGES together
 * @pd: all descriptors, one after another; %NULL in a sparse VM
 * @nr_chunks: chunks that have descriptors
 * @habit: what was learned about accesses, for each 2 MiB
 * @reuse: the sample of pages of which every touch is noticed (reuse.c); %NULL: the
 *	pager can't notice touches
 * @reuse_below: the sample has one page of each 64 KiB whose number hashes to less
 * @direct: pages in direct memory, counted from the start of a fetch until the
 *	frame is given back; at most the budget
 * @wb_pages: of those, pages in Writeback (on their way out)
 * @evicted: pages ever evicted
 * @inactive_pages: of @direct, pages in Inactive
 * @kept: Active blocks that no victim is taken from (dcm_hint())
 * @doubts: failed WRITEs that may still land, of all lanes
 * @lag: pages that lag, of all extents (lag.c)
 * @illegal: the last transition refused: gfn << 8 | from << 4 | to
 */
struct dcm_vm {
	const struct dcm_ops *ops;
	void *priv;
	u32 nr_pages;
	u32 extent_pages;
	u32 extent_shift;
	u32 nr_extents;
	u32 nr_lanes;
	bool dirty_late;
	bool waits;
	bool sealed;
	struct dcm_pd **chunk;
	struct dcm_pd *pd;
	struct dcm_extent *extent;
	struct dcm_lane *lane;
	struct dcm_habit *habit;
	struct dcm_reuse *reuse;
	u64 reuse_below;
	u64 tunable[DCM_T_NR];
	u64 budget;
	atomic64_t direct ____cacheline_aligned;
	atomic64_t wb_pages;
	atomic64_t evicted;
	atomic64_t inactive_pages;
	atomic64_t doubts;
	atomic64_t lag;
	atomic64_t illegal;
	atomic64_t nr_chunks;
	struct dcm_fifo active;
	struct dcm_fifo proactive;
	struct dcm_fifo kept;
	struct dcm_ahead ahead;
	struct dcm_streams streams;
	struct dcm_ghosts ghosts;
};

extern const struct dcm_pd dcm_chunk_absent[DCM_PDS_PAGES];

static inline struct dcm_pd *dcm_chunk_of(const struct dcm_vm *vm, u32 gfn)
{
	return READ_ONCE(vm->chunk[gfn >> DCM_PDS_SHIFT]);
}

/*
 * A page's descriptor. Those of a block are adjacent. For a page whose chunk was not
 * added yet, a shared descriptor of zeroes that can't be written.
 */
static inline struct dcm_pd *pd_of(const struct dcm_vm *vm, u32 gfn)
{
	return &dcm_chunk_of(vm, gfn)[gfn & (DCM_PDS_PAGES - 1)];
}

/** dcm_chunk_there() - does a page have a descriptor of its own? */
static inline bool dcm_chunk_there(const struct dcm_vm *vm, u32 gfn)
{
	return dcm_chunk_of(vm, gfn) != dcm_chunk_absent;
}

#endif /* DCM_CORE_VM_H */

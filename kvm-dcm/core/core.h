/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * core.h - the interface between the core and the pager that embeds it
 *
 * A pager (the kernel module, libdcm, the tests' fake guest) owns the guest's
 * mapping, the frames, the transports and the threads. The core owns state
 * and policy. The core calls out only through struct dcm_ops (ops.h), and
 * neither sleeps nor allocates once a VM is made. In a VM that gets page descriptors
 * only as pages are first used (dcm_vm_config.sparse), the pager allocates
 * them.
 *
 * A lane is one thread of execution inside the core: a fault thread, a vCPU,
 * or the slab worker. A lane may be used by one thread at a time; different
 * lanes run in parallel. The core holds no lock while it calls an op, so an op
 * may take the pager's own locks and, where the pager allows it, sleep.
 *
 * Life of a fault:
 *
 *   dcm_fault() -> DONE                 the page was here, or came from shm
 *               -> PENDING              a fetch is posted, and victims are
 *                                       written back meanwhile. dcm_poll()
 *                                       installs the block and wakes
 *               -> BUSY                 another lane works on the block;
 *                                       ops->wake() follows when that lane is
 *                                       done
 *               -> STALL                no frame is free: call dcm_poll() until
 *                                       it makes progress, then fault again
 *               -> LOST                 the content is gone; ops->lost() has
 *                                       been called
 *               -> BARE                 the page has no descriptor yet: call
 *                                       dcm_chunk_add(), then fault again
 */
#ifndef DCM_CORE_H
#define DCM_CORE_H

#include "ops.h"
#include "vm.h"

enum dcm_fault_result {
	DCM_FAULT_DONE,
	DCM_FAULT_PENDING,
	DCM_FAULT_BUSY,
	DCM_FAULT_STALL,
	DCM_FAULT_LOST,
	DCM_FAULT_BARE,
};

/* dcm_fault() flags */
#define DCM_FF_WRITE 0x1 /* the access is a write */
#define DCM_FF_WP 0x2 /* page is mapped, write-protected */
#define DCM_FF_ALONE 0x4 /* bring in the page's block only, no run of blocks */
#define DCM_FF_SPAN 0x8 /* all of its 2 MiB, if no page of that was ever used */

/**
 * struct dcm_vm_config - what a VM is made with
 * @nr_pages: size in 4 KiB pages, at most 2^32 - 2
 * @extent_pages: pages per extent, a power of two, at least 16
 * @nr_lanes: lanes, 1 to DCM_LANES_MAX
 * @budget_pages: direct budget, in pages
 * @sparse: the pager adds descriptors chunk by chunk
 * @dirty_late: only when a page is unmapped is it known whether it was written and
 *	touched, from page tables
 * @waits: the access waits until dcm_fault() returns, as the thread that makes it
 *	calls it
 * @seed: seed of all randomness
 * @ops: the pager's functions
 * @priv: the pager's
 */
struct dcm_vm_config {
	u64 nr_pages;
	u32 extent_pages;
	u32 nr_lanes;
	u64 budget_pages;
	bool sparse;
	bool dirty_late;
	bool waits;
	u64 seed;
	const struct dcm_ops *ops;
	void *priv;
};

/* ---- life ---- */

/**
 * dcm_vm_create() - make a VM, all of it never written
 * @cfg: read during the call only; @cfg->ops must outlive the VM
 * @err: -EINVAL for a bad configuration, -ENOMEM
 *
 * Return: the VM or %NULL. May sleep.
 */
struct dcm_vm *dcm_vm_create(const struct dcm_vm_config *cfg, int *err);

/**
 * dcm_vm_destroy() - free a VM
 *
 * The caller has stopped every lane and every I/O. Frames are not released
 * one by one: the pager frees their memory, and the chunks it added, as a
 * whole.
 */
void dcm_vm_destroy(struct dcm_vm *vm);

/**
 * dcm_vm_bytes() - bytes that dcm_vm_create() allocates for such a VM
 */
u64 dcm_vm_bytes(const struct dcm_vm_config *cfg);

/* ---- descriptors ---- */

/**
 * dcm_chunk_add() - add the descriptors of the pages around a page
 * @vm: a sparse VM
 * @gfn: the page
 * @mem: sizeof(struct dcm_pd) * DCM_PDS_PAGES, aligned to it, all zero
 *
 * Return: false: there are some already, and the caller keeps @mem.
 */
bool dcm_chunk_add(struct dcm_vm *vm, u32 gfn, void *mem);

/**
 * dcm_chunk_remove() - take back the descriptors of the pages around a page
 * @vm: a sparse VM; no lane is inside the core
 * @gfn: the page
 * @used: take them whatever they hold: the VM is being destroyed
 *
 * Return: the memory, now the caller's; or %NULL: there is none, or it still
 * holds state.
 */
void *dcm_chunk_remove(struct dcm_vm *vm, u32 gfn, bool used);

/**
 * dcm_chunk_next() - skip pages without descriptors
 * @vm: the VM
 * @gfn: first page to look at
 * @end: first page past the range
 *
 * Return: the first page that has a descriptor, or @end.
 */
u64 dcm_chunk_next(const struct dcm_vm *vm, u64 gfn, u64 end);

/* ---- a lane's work ---- */

/**
 * dcm_fault() - an access needs a page
 * @lane: caller's lane
 * @gfn: the page
 * @flags: DCM_FF_*
 *
 * Algorithm: dcm-tc18, 3.2 to 4.3. Chooses victims and starts write-backs
 * after it has posted the fetch.
 */
enum dcm_fault_result dcm_fault(struct dcm_lane *lane, u64 gfn, u32 flags);

/**
 * dcm_fresh_span() - may a first touch bring in its whole 2 MiB?
 * @vm: the VM
 * @gfn: the touched page
 *
 * Return: the pages of a span, or 0: there is no room. Does not check that all of
 * them are new.
 */
u32 dcm_fresh_span(const struct dcm_vm *vm, u32 gfn);

/**
 * dcm_stall_cause() - what an access that found no free frame (STALL) waits for
 * @lane: caller's lane
 *
 * Return: the counter for the time that it waits, to be passed to dcm_waited().
 */
enum dcm_counter_id dcm_stall_cause(const struct dcm_lane *lane);

/**
 * dcm_waited() - count time that accesses waited outside the core
 * @lane: caller's lane
 * @cause: one of DCM_C_WAIT_*: %DCM_C_WAIT_QUEUE_NS if they waited for a lane
 * @ns: the sum of their waits
 */
void dcm_waited(struct dcm_lane *lane, enum dcm_counter_id cause, u64 ns);

/**
 * dcm_poll() - take completions, finish fetches, retry what failed
 *
 * Return: number of steps forward; 0 when nothing could be done.
 */
unsigned int dcm_poll(struct dcm_lane *lane);

/** dcm_pending() - true while the lane has I/O to poll for or to retry */
bool dcm_pending(const struct dcm_lane *lane);

/**
 * dcm_doubtful() - true while a failed WRITE of the lane may still land
 *
 * Such pages can't be written back: poll now and then (100 ms), so that
 * io_poll() finds the lane's next connection to that donor.
 */
bool dcm_doubtful(const struct dcm_lane *lane);

/**
 * dcm_lane_fenced() - a lane's older connections to a donor have ended
 * @lane: the lane
 * @peer: the donor: dcm_slab_ref.peer, below 64
 *
 * The pager calls this in the lane's thread (from inside io_post() and
 * io_poll() too) when the lane has a new connection to that donor, after the
 * donor has welcomed it, and after io_poll() has returned everything posted
 * over older connections: all of that has happened or never will.
 */
void dcm_lane_fenced(struct dcm_lane *lane, u32 peer);

/**
 * dcm_balance() - evict until the budget and the reserve hold
 *
 * Bounded work per call; call until it returns 0. The slab worker calls it
 * after a budget change and once in a while.
 *
 * Return: steps taken; 0: balanced, or stuck until I/O completes.
 */
unsigned int dcm_balance(struct dcm_lane *lane);

/**
 * dcm_discard() - the owner gave up the content of pages: they read zero
 * @gfn: first page
 * @nr: number of pages
 *
 * Return: false when ops->relax() ended the wait: a part is not done.
 *
 * Waits (ops->relax) for blocks that other lanes work on, so never call it
 * from a thread that another lane's progress depends on.
 */
bool dcm_discard(struct dcm_lane *lane, u64 gfn, u64 nr);

/* Where dcm_sync() leaves pages. */
enum dcm_sync_how {
	DCM_SYNC_OUT, /* no page stays in direct memory */
	DCM_SYNC_KEEP, /* mapped pages stay mapped, perhaps writable and dirty */
	DCM_SYNC_EXACT, /* they stay, clean; later only pages written to are written */
};

/**
 * dcm_sync() - write pages back until the donor's copy of them is complete
 * @gfn: in: first page; out: the first page that is not synced, or is lost
 * @end: first page past the range; the range is whole blocks of %DCM_BLOCK_MAX
 * @how: where it leaves them. With %DCM_SYNC_EXACT the core forgets which pages
 *	are commonly written, so that none is mapped writable on a guess, and written
 *	back, when it is next fetched; the first write to it is a fault then
 * @until_ns: when to give up (monotonic clock)
 *
 * Not for a sparse VM: this brings in pages that no donor has, but adds no
 * descriptors. Waits, as dcm_discard() does. If accesses go on meanwhile, the
 * donor gets each kept page as it was at some time since the call began.
 * With %DCM_SYNC_OUT concurrent accesses may prevent completion, and pages may be
 * dirty again on return.
 *
 * Return: 0, -ETIMEDOUT, -EINTR (ops->relax()), -EBUSY: a page is in use by
 * I/O or by a fault that is about to map it (common while accesses go on, for
 * a different page each time): go on from @gfn. -EIO: a page of the block at
 * @gfn is lost.
 */
int dcm_sync(struct dcm_lane *lane, u64 *gfn, u64 end, enum dcm_sync_how how,
	     u64 until_ns);

enum dcm_hint {
	DCM_HINT_DIRECT, /* keep in direct memory, as the budget allows */
	DCM_HINT_NORMAL, /* take DIRECT back */
	DCM_HINT_COLD, /* evict first */
	DCM_HINT_FETCH, /* bring in soon, as far as there is room: dcm_ahead() */
	DCM_HINT_FORGET, /* take FETCH back: drop queued pages */
};

/**
 * dcm_hint() - the owner of pages tells how it will use them
 * @gfn: first page
 * @nr: number of pages
 *
 * Changes no content. Waits, as dcm_discard() does, but for %DCM_HINT_FETCH, which
 * queues the range, and %DCM_HINT_FORGET.
 *
 * Return: false when ops->relax() ended the wait: a part is not done.
 */
bool dcm_hint(struct dcm_lane *lane, u64 gfn, u64 nr, enum dcm_hint what);

/**
 * dcm_ahead() - bring in some of the pages that %DCM_HINT_FETCH named
 * @lane: always the same one of a VM, which takes no faults
 *
 * Bounded work per call. Fetches for hints begin only here, and ops->frozen is asked
 * first, so the pager can keep pages from being fetched.
 *
 * Return: in how many ms to call again; -1: when something has been queued, or
 * dcm_poll() has made progress on this lane.
 */
int dcm_ahead(struct dcm_lane *lane);

/**
 * dcm_reuse_tick() - hide pages of the sample that were not touched for a while
 * @lane: caller's lane; several may call it
 *
 * Hides at most 16 pages, and as many as the tunable `reuse` allows. A call before the
 * time that the last one returned does nothing.
 *
 * Return: ms until the next call is due.
 */
unsigned int dcm_reuse_tick(struct dcm_lane *lane);

/* ---- control ---- */

/**
 * dcm_set_budget() - change the direct budget
 * @pages: new budget; the smallest that works is dcm_min_budget()
 *
 * Return: 0 or -EINVAL. Takes effect at once for new fetches; dcm_balance()
 * evicts what is over the budget.
 */
int dcm_set_budget(struct dcm_vm *vm, u64 pages);
u64 dcm_min_budget(const struct dcm_vm *vm);

/** dcm_tunable_set() - 0, -ENOENT unknown, -ERANGE bounds or no power of two */
int dcm_tunable_set(struct dcm_vm *vm, const char *name, u64 value);
u64 dcm_tunable_get(const struct dcm_vm *vm, enum dcm_tunable_id id);

/**
 * dcm_extent_sums() - give an extent memory for its pages' sums
 * @vm: its ops have sum() and wrong()
 * @extent: has had at most one slab, and no such memory, so far
 * @mem: extent_pages words, all zero; the caller's again after dcm_vm_destroy()
 *
 * From its second slab on, pages are compared with their sums when they are
 * read. Slab worker only.
 */
void dcm_extent_sums(struct dcm_vm *vm, u32 extent, u32 *mem);

/** dcm_extent_sums_of() - the memory of dcm_extent_sums(), or %NULL */
u32 *dcm_extent_sums_of(const struct dcm_vm *vm, u32 extent);

/**
 * dcm_vm_seal() - seal pages before they leave, from now on
 * @vm: has no slab; its ops have seal() and open(), and each write-back of its
 *	lanes has a frame for sealed bytes (struct dcm_wb)
 *
 * Can't be undone. Slab worker only.
 */
void dcm_vm_seal(struct dcm_vm *vm);

/**
 * dcm_extent_seals() - give an extent memory for its pages' seals
 * @vm: a sealed one
 * @extent: has had no slab, and no such memory, so far
 * @mem: extent_pages seals, all zero; the caller's again after dcm_vm_destroy()
 *
 * Slab worker only.
 */
void dcm_extent_seals(struct dcm_vm *vm, u32 extent, struct dcm_seal *mem);

/** dcm_extent_seals_of() - the memory of dcm_extent_seals(), or %NULL */
struct dcm_seal *dcm_extent_seals_of(const struct dcm_vm *vm, u32 extent);

/**
 * dcm_extent_attach() - give an extent a slab
 *
 * The extent may have other slabs: write-backs go to all of them. Slab worker
 * only. @slab must live until the extent has detached it. In a sealed VM the extent
 * must have its seals (dcm_extent_seals()), and @slab->map must be %NULL: sealed
 * bytes can't be used in place.
 *
 * Return: 0, -EINVAL, or -EBUSY: the extent has %DCM_SLOTS slabs.
 */
int dcm_extent_attach(struct dcm_vm *vm, u32 extent, struct dcm_slab_ref *slab);

/**
 * dcm_extent_fill() - copy pages to slabs of their extent that lack them
 * @lane: the slab worker's lane
 * @cursor: in: 0 to begin a pass; out: where the pass stands
 *
 * Never waits: starts a batch of blocks, or continues the batch under way, and
 * returns. One move (fill or drain) at a time on a lane, and none on a lane that
 * takes faults: moves use the fetches' buffers.
 *
 * Return: 0 when every page that is not direct is on all slabs that take writes,
 * -EAGAIN when there is more to do, -ENOENT.
 */
int dcm_extent_fill(struct dcm_lane *lane, u32 extent, u32 *cursor);

/**
 * dcm_extent_drain() - take an extent's pages off one slab
 * @lane: the slab worker's lane
 * @slab: the slab to empty
 * @cursor: in: 0 to begin a pass; out: where the pass stands
 *
 * Never waits, as dcm_extent_fill(). Pages that another slab has too are not copied:
 * this slab just leaves their sets. Others go to the slabs that take writes or, where
 * the extent has no other slab, into direct memory as far as it has room.
 *
 * Return: 0 and the slab detached when nothing is left on it (nothing will
 * touch it again), -EAGAIN when there is more to do, -ENOSPC when direct
 * memory has no room for the rest, -EBUSY and nothing changed when the extent's two
 * other slabs have to be emptied into this one first, -EIO when the slab can't be
 * read (declare it lost), -ENOENT when the extent does not use it.
 */
int dcm_extent_drain(struct dcm_lane *lane, u32 extent,
		     struct dcm_slab_ref *slab, u32 *cursor);

/**
 * dcm_spread() - copy pages that a GC worker changed to their extents' other slabs
 * @lane: a lane with buffers for moves, as for dcm_extent_fill()
 * @gfn: in and out: the first page not done yet
 * @end: first page past the range
 *
 * Reads from the slab in dcm_slot_primary(). The range was synced before the worker
 * began, without @keep, and is frozen. Never waits, as dcm_extent_fill().
 *
 * Return: 0 when each page is on all slabs that take writes, or thin; -EAGAIN when
 * there is more to do. If repeated calls make no progress, the primary does not answer
 * or is lost. A caller that gives up must call dcm_revert() or dcm_keep().
 */
int dcm_spread(struct dcm_lane *lane, u64 *gfn, u64 end);

/**
 * dcm_revert() - undo a GC worker's changes to pages, where copies allow it
 * @lane: the lane of dcm_spread()
 * @gfn: in and out: the first page not done yet
 * @end: first page past the range
 *
 * For a primary whose donor may be dead. The primary leaves the set of each page that
 * another slab has too. The other slabs have the page as it was before the worker
 * began, or as dcm_spread() copied it. A page that only the primary has stays there,
 * changed or not. The range is frozen.
 *
 * Return: 0; -EAGAIN: operations are under way: call again.
 */
int dcm_revert(struct dcm_lane *lane, u64 *gfn, u64 end);

/**
 * dcm_keep() - keep a GC worker's changes to pages, on the primary alone
 * @lane: the lane of dcm_spread()
 * @gfn: in and out: the first page not done yet
 * @end: first page past the range
 *
 * For a primary whose donor is alive while a copy's donor does not answer: with
 * dcm_revert() pages would be on that donor alone. All slabs but the primary leave the
 * pages' sets, so the pages are thin. The range is frozen.
 *
 * Return: as dcm_revert().
 */
int dcm_keep(struct dcm_lane *lane, u64 *gfn, u64 end);

/**
 * dcm_extent_lost() - a slab is gone with its donor
 * @lane: the slab worker's lane
 *
 * Pages that no other slab has are lost; pages that are also direct stay,
 * and are written elsewhere later. Never waits: nothing new is posted to the
 * slab from the first call on. -EAGAIN: lanes still have I/O or blocks under
 * way there; let them run and call again.
 *
 * Return: number of pages lost and the slab detached (nothing will touch it
 * again), -EAGAIN, or -ENOENT when the extent does not use it.
 */
s64 dcm_extent_lost(struct dcm_lane *lane, u32 extent,
		    struct dcm_slab_ref *slab);

/* ---- looking ---- */

/**
 * dcm_extent_lag() - how many pages of an extent are not in its files yet
 *
 * Pages that left direct memory while the files lack them (tunable lag_pages). The
 * number may be too high, never too low. dcm_extent_fill() copies the pages there.
 */
u64 dcm_extent_lag(const struct dcm_vm *vm, u32 extent);

/**
 * struct dcm_stats - a VM's figures, sums over its lanes
 * @metadata: bytes of page descriptors, seals, sums, and all else that grows with
 *	the VM's memory
 * @ahead: pages queued by %DCM_HINT_FETCH and not looked at yet
 * @evicted: pages ever evicted
 * @in_flight_max: the most pages that write-backs may hold beyond the budget
 */
struct dcm_stats {
	u64 count[DCM_C_NR];
	u64 budget;
	u64 direct;
	u64 inactive;
	u64 in_writeback;
	u64 ahead;
	u64 metadata;
	u64 evicted;
	u64 in_flight_max;
};

void dcm_vm_stats(const struct dcm_vm *vm, struct dcm_stats *st);
void dcm_vm_hist(const struct dcm_vm *vm, enum dcm_hist_id id,
		 struct dcm_hist *sum);

/**
 * dcm_vm_away() - how long pages had been away when an access fetched them
 * @sum: out: pages fetched, of all lanes, by how many pages were evicted after them
 */
void dcm_vm_away(const struct dcm_vm *vm, struct dcm_hist *sum);

/**
 * struct dcm_reuse_stats - how far apart the touches of pages are (reuse.c)
 * @distance: touches, by how many other pages were touched since the page's last
 *	one. Touches at less than an eighth of the budget may be missing; of those
 *	farther apart the sample is a random one
 * @unknown: touches of pages whose last touch is not known
 * @pages: pages that were touched, as far as is known
 * @blind: of these, pages whose next touches may go unseen
 * @watched: pages that are sampled; the other figures are scaled from these
 * @rested_ms: for how long nothing was counted, as that would have cost too much
 */
struct dcm_reuse_stats {
	struct dcm_hist distance;
	u64 unknown;
	u64 pages;
	u64 blind;
	u64 watched;
	u64 rested_ms;
};

/** dcm_vm_reuse() - read the figures; all zero: the pager can't hide pages */
void dcm_vm_reuse(const struct dcm_vm *vm, struct dcm_reuse_stats *st);

/** dcm_pd_text() - one descriptor as a line of text; returns its length */
int dcm_pd_text(const struct dcm_vm *vm, u64 gfn, char *buf, unsigned int len);

#endif /* DCM_CORE_H */

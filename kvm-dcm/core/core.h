/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * core.h - the interface between the core and the pager that embeds it
 *
 * A pager (the kernel module, libdcm, the tests' fake guest) owns the guest's
 * mapping, the frames, the transports and the threads. The core owns state
 * and policy. The core calls out only through struct dcm_ops, and neither
 * sleeps nor allocates once a VM is made. In a VM that gets page descriptors
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

#include "counter.h"
#include "../lib/dcm_context.h"
#include "pd.h"
#include "tunable.h"
#include "io.h"

#define DCM_LANES_MAX 64u
#define DCM_FETCHES_MAX 32u /* faults in flight per lane */
#define DCM_WBS_MAX 64u /* write-backs in flight per lane */
#define DCM_DOUBTS_MAX 256u /* failed WRITEs of a lane that may still land */
#define DCM_RUNS_MAX 8u /* dirty runs in one block */
#define DCM_BUFFER_MAX 16u /* blocks in a lane's queue buffers */
#define DCM_BATCH_MAX 64u
#define DCM_SEEN_MAX 128u /* blocks of the largest size in a sync window */

struct dcm_vm;
struct dcm_lane;

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

enum dcm_fetch_state {
	DCM_FETCH_FREE,
	DCM_FETCH_IO, /* READ in flight */
	DCM_FETCH_RETRY, /* READ failed or queue full: again at @again_ns */
};

/**
 * struct dcm_fetch - one block on its way into direct memory
 * @io: the READ; @io.data on completion is where page @first's bytes are
 * @gfn: head of the block
 * @order: block is 2^order pages
 * @state: enum dcm_fetch_state
 * @first: index of the first page in the READ
 * @nr: number of pages in the READ; 0: nothing is read, all pages are zero
 * @zero: pages that are zero whatever the READ brought (bit per page)
 * @writable: pages to map writable; the others are mapped so that their first
 *	write faults with DCM_FF_WP (a pager that learns dirtiness from page
 *	tables may map those in any way)
 * @fault_page: index of the page that was asked for; %DCM_BLOCK_MAX if none
 * @sample: the pager may leave one page unmapped to learn about locality
 * @pull: no access asked for the block: its slab is being emptied
 * @write: the access that asked for the block is a write
 * @again: the block was evicted only recently
 * @hidden: out of install: pages left unmapped; ops->reveal() maps one
 * @buf: the pager's landing buffer, 64 KiB, for transports without
 *	%DCM_TR_DIRECT; the pager sets it once, when it makes the lane
 * @slab_idx: which of the extent's two slabs the block is read from
 * @tries: READs that failed
 * @again_ns: when to try again
 * @t_fault: when the fault was taken
 * @t_read: when the READ ended; 0: there was none
 * @t_there: out of install: when the block was mapped, just before waiting
 *	accesses were woken (they may run before install returns); 0: the core
 *	takes the time after install; %DCM_TIME_NONE: not known
 */
struct dcm_fetch {
	struct dcm_io io;
	u32 gfn;
	u8 order;
	u8 state;
	u8 first;
	u8 nr;
	u16 zero;
	u16 writable;
	u8 fault_page;
	bool sample;
	bool pull;
	bool write;
	bool again;
	u16 hidden;
	u8 slab_idx;
	u16 tries;
	void *buf;
	u64 again_ns;
	u64 t_fault;
	u64 t_read;
	u64 t_there;
};

#define DCM_TIME_NONE (~0ull)

/**
 * struct dcm_unmap - one block to be unmapped from the guest
 * @gfn: head
 * @order: block is 2^order pages
 * @drop: in: the bytes of a block found clean need not be kept
 * @dirty: in: pages the core knows dirty; out: also those the pager knows
 * @touched: out: pages known to have been accessed
 * @observed: out: pages of which it is known whether they were accessed
 * @frame: out: handle of the bytes, or %DCM_NIL where they were not kept
 * @err: out: 0, or -EBUSY when the block is in use by I/O and stays mapped
 */
struct dcm_unmap {
	u32 gfn;
	u8 order;
	bool drop;
	u16 dirty;
	u16 touched;
	u16 observed;
	u32 frame;
	int err;
};

/**
 * struct dcm_ops - what a pager does for the core
 *
 * Every op gets the lane it is called on, and is called without any lock of
 * the core. While an op runs, no op but wake and lost runs for the same pages.
 *
 * @install: map a fetched block and wake the accesses that wait for it.
 *	0, or a negative errno: the block was not installed at all.
 * @remap: map an unmapped block again from @frame and wake. @writable as in
 *	struct dcm_fetch. With @keep the frame's bytes must stay where they
 *	are: a write-back still reads them, and ops->release() follows.
 *	Otherwise the pager takes the frame back. Must not fail.
 * @reveal: a fault hit a page of a mapped block: map it if install left it
 *	out (return 1), else only wake (return 0).
 * @unprotect: let pages be written, wake.
 * @unmap: unmap @nr blocks, so that no access is possible any more on return.
 *	Fills in the out fields.
 * @copy: copy the pages under @v->dirty of a mapped block to their places in
 *	a frame, as @unmap does, but leave all pages mapped; the next write to
 *	a copied page faults. Not called on a pager that learns dirtiness from
 *	page tables: there the core calls unmap and remap.
 * @wake: let every access waiting on these pages try again.
 * @zero_mask: which of the pages under @mask of a frame are all zero.
 * @frame_data: address of page @page of a frame, for a WRITE.
 * @release: give a frame's memory back.
 * @discard: drop the content of mapped pages: unmap and free them.
 * @io_post: start an I/O of this lane; errors as in dcm_transport_ops.post,
 *	-ENOTCONN also while the donor can't be reached.
 * @io_flush: send what io_post() has queued.
 * @io_poll: completions, as in dcm_transport_ops.poll.
 * @want_slab: the extent needs a slab; the pager answers some time later with
 *	dcm_extent_attach(). Called again and again while it is needed.
 * @lost: an access needs pages that are lost. The pager stops that access.
 * @now_ns: monotonic clock.
 * @relax: called in loops that wait for another lane. %false: stop waiting
 *	(the kernel: the waiting process is being killed).
 */
struct dcm_ops {
	int (*install)(struct dcm_lane *lane, struct dcm_fetch *f);
	void (*remap)(struct dcm_lane *lane, u32 gfn, unsigned int order,
		      u32 frame, u16 writable, bool keep);
	int (*reveal)(struct dcm_lane *lane, u32 gfn, bool write);
	void (*unprotect)(struct dcm_lane *lane, u32 gfn, u32 nr);
	void (*unmap)(struct dcm_lane *lane, struct dcm_unmap *v,
		      unsigned int nr);
	void (*copy)(struct dcm_lane *lane, struct dcm_unmap *v);
	void (*wake)(struct dcm_lane *lane, u32 gfn, u32 nr);
	u16 (*zero_mask)(struct dcm_lane *lane, u32 frame, unsigned int order,
			 u16 mask);
	void *(*frame_data)(struct dcm_lane *lane, u32 frame,
			    unsigned int page);
	void (*release)(struct dcm_lane *lane, u32 frame, unsigned int order);
	void (*discard)(struct dcm_lane *lane, u32 gfn, unsigned int order);
	int (*io_post)(struct dcm_lane *lane, struct dcm_io *io);
	void (*io_flush)(struct dcm_lane *lane);
	int (*io_poll)(struct dcm_lane *lane, struct dcm_io **done, int max);
	void (*want_slab)(struct dcm_vm *vm, u32 extent);
	void (*lost)(struct dcm_lane *lane, u32 gfn, u32 nr);
	u64 (*now_ns)(void);
	bool (*relax)(struct dcm_lane *lane);
};

/**
 * struct dcm_wb - write-back descriptor (dcm-tc18, fig. 8)
 * @io: one WRITE for each run of dirty pages
 * @lane: the lane whose array it is in
 * @gfn: head of the block it was made for
 * @order: that block is 2^order pages
 * @nr_io: WRITEs made
 * @pending: WRITEs not completed
 * @posted: WRITEs posted, the rest wait for room in the queue
 * @pages: pages being written, a bit each
 * @zero: pages found zero
 * @slab_idx: which of the extent's slabs it goes to
 * @cancelled: the block was re-referenced: the page descriptor no longer
 *	points here, and all that remains is to give back the frame
 * @held: the lane that cancelled it is still copying out of the frame
 * @parked: all WRITEs have completed, but the frame was still held
 * @failed: a WRITE failed
 * @doubt: pages of WRITEs that failed with their connection, a bit each
 * @peer: the donor it went to, where @doubt is not 0
 * @frame: handle of the bytes
 * @t_post: when it was posted
 *
 * Block and descriptor point at each other: pd.prev/pd.next name the
 * descriptor, @gfn the page.
 * Cancelling removes the first under the block's lock; the second stays.
 */
struct dcm_wb {
	struct dcm_io io[DCM_RUNS_MAX];
	struct dcm_lane *lane;
	u32 gfn;
	u8 order;
	u8 nr_io;
	u8 posted;
	u8 pending;
	u16 pages;
	u16 zero;
	u16 doubt;
	u8 slab_idx;
	bool in_use;
	bool cancelled;
	bool held;
	bool parked;
	bool failed;
	bool copy;
	u32 peer;
	u32 frame;
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

enum dcm_move_phase {
	DCM_MV_FREE,
	DCM_MV_READ,
	DCM_MV_WRITE,
	DCM_MV_FAILED,
};

/**
 * struct dcm_move_op - one block on its way from slab to slab; it is BUSY
 * @io: the READ, then the WRITE
 * @gfn: head of the block
 * @first: index of the first page moved
 * @nr: pages moved
 * @phase: enum dcm_move_phase
 * @unreadable: it failed because its READ failed
 */
struct dcm_move_op {
	struct dcm_io io;
	u32 gfn;
	u8 first;
	u8 nr;
	u8 phase;
	bool unreadable;
};

#define DCM_MOVES_MAX 16u

/**
 * struct dcm_doubt - a WRITE that failed and may still land (doubt.c)
 * @gfn: the first page of the WRITE
 * @peer: the donor the WRITE was sent to
 * @attached: value of dcm_extent.attached at that time
 * @pages: pages of the WRITE, counted from @gfn, a bit each
 * @slab: which of the extent's slabs
 */
struct dcm_doubt {
	u32 gfn;
	u32 peer;
	u32 attached;
	u16 pages;
	u8 slab;
};

struct dcm_move {
	u8 from;
	u32 nr;
	u32 left;
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
 * @nr_fetch: fetches in use
 * @nr_retry: of those, fetches waiting to be posted again
 * @nr_wb: write-backs in use
 * @wb_unposted: of those, write-backs with WRITEs not posted yet
 * @wb_parked: of those, write-backs whose frame is still held
 * @nr_doubt: entries of @doubt
 * @fenced: donors that have closed this lane's older connections, a bit each
 * @doubt: WRITEs of this lane that failed and may still land
 * @seen_from: first page of the window that dcm_sync() works on
 * @seen: the window's pages, a bit each: set once a donor has, or is being
 *	sent, the page as it was at some time since syncing began
 * @unmap: room for one batch of dcm_ops.unmap
 * @move: batch of dcm_extent_move()
 * @count: counters, written by this lane only
 * @hist: histograms, written by this lane only
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
	u32 nr_retry;
	u32 nr_wb;
	u32 wb_unposted;
	u32 wb_parked;
	u32 nr_doubt;
	u64 fenced;
	u32 seen_from;
	u16 seen[DCM_SEEN_MAX];
	struct dcm_move move;
	struct dcm_unmap unmap[DCM_BATCH_MAX];
	struct dcm_fetch fetch[DCM_FETCHES_MAX];
	struct dcm_wb wb[DCM_WBS_MAX];
	struct dcm_doubt doubt[DCM_DOUBTS_MAX];
	u64 count[DCM_C_NR];
	struct dcm_hist hist[DCM_H_NR];
} ____cacheline_aligned;

/**
 * struct dcm_extent - a slab-sized piece of the VM's pages
 * @slab: the slabs that hold its pages: a page's PD_SLAB1 says which of the two;
 *	both are set only while the extent moves
 * @cur: which of the two new write-backs go to
 * @gone: that slab is lost with its donor; nothing is posted to it any more
 * @closed: that slab is being emptied: no new write-backs go there
 * @attached: how many slabs have been attached in each place
 * @inflight: I/Os in flight to each, and write-backs not finished
 * @ops: I/Os that succeeded, for the activity average
 * @lost_pages: pages lost with the slab that is being detached
 */
struct dcm_extent {
	struct dcm_slab_ref *slab[2];
	u8 cur;
	bool gone[2];
	bool closed[2];
	u32 attached[2];
	atomic_t inflight[2];
	atomic64_t ops;
	atomic64_t lost_pages;
};

/**
 * struct dcm_vm_config - what a VM is made with
 * @nr_pages: size in 4 KiB pages, at most 2^32 - 2
 * @extent_pages: pages per extent, a power of two, at least 16
 * @nr_lanes: lanes, 1 to DCM_LANES_MAX
 * @budget_pages: direct budget, in pages
 * @sparse: the pager adds descriptors chunk by chunk
 * @dirty_late: dirtiness is known only when a page is unmapped
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
	u64 seed;
	const struct dcm_ops *ops;
	void *priv;
};

/**
 * struct dcm_habit - learned about 2 MiB of pages; 0: never, 255: always
 * @waste: how often prefetched pages went unused
 * @rewritten: how often fetched pages were written
 */
struct dcm_habit {
	u8 waste;
	u8 rewritten;
};

/**
 * struct dcm_vm - one VM
 * @chunk: where the descriptors are, %DCM_PDS_PAGES together
 * @pd: all descriptors, one after another; %NULL in a sparse VM
 * @nr_chunks: chunks that have descriptors
 * @habit: what was learned, for each 2 MiB
 * @direct: pages in direct memory, counted from the start of a fetch until the
 *	frame is given back: what the budget bounds
 * @wb_pages: of those, pages in Writeback (on their way out)
 * @evicted: pages ever evicted
 * @inactive_pages: of @direct, pages in Inactive
 * @kept: Active blocks that no victim is taken from (dcm_hint())
 * @doubts: failed WRITEs that may still land, of all lanes
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
	struct dcm_pd **chunk;
	struct dcm_pd *pd;
	struct dcm_extent *extent;
	struct dcm_lane *lane;
	struct dcm_habit *habit;
	u64 tunable[DCM_T_NR];
	u64 budget;
	atomic64_t direct ____cacheline_aligned;
	atomic64_t wb_pages;
	atomic64_t evicted;
	atomic64_t inactive_pages;
	atomic64_t doubts;
	atomic64_t illegal;
	atomic64_t nr_chunks;
	struct dcm_fifo active;
	struct dcm_fifo proactive;
	struct dcm_fifo kept;
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

extern const struct dcm_pd dcm_chunk_absent[DCM_PDS_PAGES];

static inline struct dcm_pd *dcm_chunk_of(const struct dcm_vm *vm, u32 gfn)
{
	return READ_ONCE(vm->chunk[gfn >> DCM_PDS_SHIFT]);
}

/*
 * A page's descriptor. Those of a block are adjacent. A page without one gets
 * a descriptor of zeroes that can't be written.
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

/**
 * dcm_sync() - write pages back until the donor's copy of them is complete
 * @gfn: in: first page; out: the first page that is not synced, or is lost
 * @end: first page past the range; the range is whole blocks of %DCM_BLOCK_MAX
 * @keep: mapped pages stay mapped, clean; else no page stays in direct memory
 * @until_ns: when to give up (monotonic clock)
 *
 * Not for a sparse VM: this brings in pages that no donor has, but adds no
 * descriptors. Waits, as dcm_discard() does. If accesses go on meanwhile, the
 * donor gets each kept page as it was at some time since the call began.
 * Without @keep, concurrent accesses may prevent completion, and pages may be
 * dirty again on return.
 *
 * Return: 0, -ETIMEDOUT, -EINTR (ops->relax()), -EBUSY: a page is in use by
 * I/O or by a fault that is about to map it (common while accesses go on, for
 * a different page each time): go on from @gfn. -EIO: a page of the block at
 * @gfn is lost.
 */
int dcm_sync(struct dcm_lane *lane, u64 *gfn, u64 end, bool keep, u64 until_ns);

enum dcm_hint {
	DCM_HINT_DIRECT, /* keep in direct memory, as the budget allows */
	DCM_HINT_NORMAL, /* take DIRECT back */
	DCM_HINT_COLD, /* evict first */
};

/**
 * dcm_hint() - what the owner of pages knows about their use
 * @gfn: first page
 * @nr: number of pages
 *
 * Changes no content. Waits, as dcm_discard() does.
 *
 * Return: false when ops->relax() ended the wait: a part is not done.
 */
bool dcm_hint(struct dcm_lane *lane, u64 gfn, u64 nr, enum dcm_hint what);

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
 * dcm_extent_attach() - give an extent a slab
 *
 * If the extent has a slab already it begins to move: new write-backs go to
 * @slab, dcm_extent_move() brings the rest. Slab worker only. @slab must live
 * until the extent has detached it.
 *
 * Return: 0, -EINVAL, or -EBUSY while a move is still going on.
 */
int dcm_extent_attach(struct dcm_vm *vm, u32 extent, struct dcm_slab_ref *slab);

/**
 * dcm_extent_move() - bring an extent's pages off one slab
 * @lane: the slab worker's lane
 * @slab: the slab to empty
 * @cursor: 0 at first; where the move has got to
 *
 * Never waits: starts a batch of blocks, or continues the batch under way,
 * and returns. Blocks go to the extent's other slab or, where there is none,
 * into direct memory as far as it has room. One move at a time on a lane, and
 * none on a lane that takes faults: moves use the fetches' buffers.
 *
 * Return: 0 and the slab detached when nothing is left on it (nothing will
 * touch it again), -EAGAIN when there is more to do, -ENOSPC when direct
 * memory has no room for the rest, -EIO when the slab can't be read (declare
 * it lost), -ENOENT when the extent does not use it.
 */
int dcm_extent_move(struct dcm_lane *lane, u32 extent,
		    struct dcm_slab_ref *slab, u32 *cursor);

/**
 * dcm_extent_lost() - a slab is gone with its donor
 * @lane: the slab worker's lane
 *
 * Pages that were only on the slab are lost; pages that are also direct stay,
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
 * struct dcm_stats - a VM's figures, sums over its lanes
 * @in_flight_max: the most pages that write-backs may hold beyond the budget
 */
struct dcm_stats {
	u64 count[DCM_C_NR];
	u64 budget;
	u64 direct;
	u64 inactive;
	u64 in_writeback;
	u64 in_flight_max;
};

void dcm_vm_stats(const struct dcm_vm *vm, struct dcm_stats *st);
void dcm_vm_hist(const struct dcm_vm *vm, enum dcm_hist_id id,
		 struct dcm_hist *sum);

/** dcm_pd_text() - one descriptor as a line of text; returns its length */
int dcm_pd_text(const struct dcm_vm *vm, u64 gfn, char *buf, unsigned int len);

#endif /* DCM_CORE_H */

/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * pager.h - shared by the files of the user pager
 *
 * Threads: lanes 0 to nr_fault - 1 take faults (lane.c). One more lane belongs
 * to the slab worker (slab_worker.c) and one to application threads that
 * discard (ranges.c), which take it by a mutex.
 *
 * Rule one: no thread of libdcm touches paged memory, or waits for a thread
 * that may. A lock that application threads also take is taken with all
 * signals blocked, and never held across an access to paged memory.
 */
#ifndef DCM_UFFD_PAGER_H
#define DCM_UFFD_PAGER_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "../core/core.h"
#include "../include/libdcm.h"
#include "../client/config.h"
#include "../client/client.h"
#include "../client/slab_worker.h"
#include "../client/rebuild_pace.h"
#include "page_seal.h"
#include "page_sum.h"
#include "uffd.h"

#define DCM_PG_MESSAGES 16u /* taken in one read() */
#define DCM_PG_STALLED_MAX 512u /* faults kept while no frame is free */
#define DCM_PG_DROPS_MAX 64u /* frames dropped together */

/* A span: 2 MiB of gfn space. A range takes whole ones. */
#define DCM_SPAN_SHIFT 9u
#define DCM_SPAN_PAGES (1u << DCM_SPAN_SHIFT)
#define DCM_RANGES_MAX 4096u

/**
 * struct dcm_range - a range of addresses that is paged
 * @va: first byte
 * @nr: pages, holes included
 * @gfn: of the first page; a multiple of DCM_SPAN_PAGES
 * @holes: pages that are no longer paged
 * @mapped: dcm_pager_map() mapped it, and dcm_guest_free() unmaps it
 */
struct dcm_range {
	u64 va;
	u64 nr;
	u32 gfn;
	u32 holes;
	bool mapped;
};

/**
 * struct dcm_map_call - a system call that unmaps memory, or maps over it
 * @nr: its number
 * @arg: its arguments
 */
struct dcm_map_call {
	long nr;
	u64 arg[5];
};

/**
 * struct dcm_guest - the map from addresses to gfns
 * @lock: serialises changes; readers use @seq
 * @seq: odd while @range changes
 * @nr: number of ranges
 * @range: the ranges, sorted by address
 * @base: by span of gfn space: its address, 0: free
 * @hole: by 64 KiB of gfn space: pages that are not paged, a bit each
 * @pins: by page: its pins and flags (pins.c); allocated sparsely
 * @bus: pages replaced by a mapping that raises SIGBUS, a bit each
 * @used: by span: was a page of it ever asked for?
 * @small: by span: does the kernel map, or has it mapped, single pages of it?
 * @pinned: pages with a pin
 * @frozen: by 64 KiB: do accesses wait (gc_pages.c)? A bit each
 * @any_frozen: some bit of @frozen is set
 */
struct dcm_guest {
	pthread_mutex_t lock;
	u32 seq;
	u32 nr;
	struct dcm_range *range;
	u64 *base;
	u16 *hole;
	u8 *pins;
	u8 *bus;
	u8 *used;
	u8 *small;
	u64 pinned;
	u8 *frozen;
	bool any_frozen;
	u32 nr_spans;
	u32 next_span;
};

/**
 * struct dcm_slots - the frames of one size
 * @lock: guards the stacks
 * @base: address of slot 0
 * @max: number of slots that there is address space for
 * @next: first slot that was never used
 * @empty: stack of slots without memory
 * @full: stack of slots with memory
 */
struct dcm_slots {
	spinlock_t lock;
	u64 base;
	u32 max;
	u32 next;
	u32 nr_empty;
	u32 nr_full;
	u32 *empty;
	u32 *full;
} ____cacheline_aligned;

/* A frame handle: size class above, slot below. */
#define DCM_FRAME_SHIFT 29u
#define DCM_FRAME_SLOT(f) ((f) & ((1u << DCM_FRAME_SHIFT) - 1))
#define DCM_FRAME_ORDER(f) ((f) >> DCM_FRAME_SHIFT)

struct dcm_frames {
	struct dcm_slots slots[DCM_ORDER_MAX + 1];
	u64 base;
	u64 bytes;
	u64 cached_max;
	s64 cached; /* pages in free slots that have memory */
};

/* Up to seven pages left unmapped (sample.c), of blocks with the same hash. */
struct dcm_sample_bucket {
	spinlock_t lock;
	u32 used; /* a bit each; bit 8 + i: map page i writable */
	u32 gfn[7];
	u32 frame[7];
} __attribute__((aligned(64)));

#define DCM_SAMPLE_BUCKETS 8192u

/**
 * struct dcm_yield - state of a lane that yields to its faulting thread (yield.c)
 * @on: the lane is SCHED_IDLE
 * @dense: the last two faults came soon after one another
 * @schedstat: descriptor of the lane's schedstat file; -1: the lane never yields
 * @tid: the thread that faults
 * @seen_ns: time of the last fault
 * @checked_ns: when @waited_ns and @ran_ns were taken
 * @waited_ns: how long the lane has waited for a CPU
 * @ran_ns: CPU time of @tid
 * @since_ns: when the lane last became SCHED_IDLE
 * @until_ns: the lane may not yield before; @hold_ns: length of the last such pause
 * @served: reads of faults while the lane yielded
 * @regrets: times that a thread had to wait because of it
 */
struct dcm_yield {
	bool on;
	bool dense;
	int schedstat;
	pid_t tid;
	u64 seen_ns;
	u64 checked_ns;
	u64 waited_ns;
	u64 ran_ns;
	u64 since_ns;
	u64 until_ns;
	u64 hold_ns;
	u64 served;
	u64 regrets;
};

/**
 * struct dcm_pg_lane - the pager's side of a lane
 * @pg: the pager
 * @core: the core's side
 * @id: index in pg->lane
 * @tid: its thread
 * @wake_fd: an eventfd that wakes the lane
 * @stalled: faults to take again: they found no free frame, or a frozen page
 * @stalled_ns: the time up to which their waiting was counted
 * @drop: frames to be dropped together
 * @unmap_seq: odd while in ops->unmap; a thread that pins waits for a change
 * @fault_seq: odd while the core answers a fault
 * @woken: the lane has slept since its last read
 * @company: reads that found several faults, less those that did not
 * @nothing: wake-ups without a fault, in a row
 * @alone: looks, in a row, that saw only one thread fault
 * @turn: reads that found faults, so far
 * @sealer: encrypts and decrypts, in a sealed VM
 * @nursery: address of 2 MiB in which huge pages are made (fresh.c)
 * @huge: huge pages mapped so far
 * @huge_pause: for how many more runs no huge page is tried
 * @huge_fails: the length of the last such pause; 0: the last tries worked
 * @huge_worked: the nursery held a huge page at the last try
 * @installs: blocks installed while it yields; some are timed
 * @cpu: the CPU it runs on; @follow_cpu: the CPU that faults come from (affinity.c)
 * @go_cpu: CPU to move to when it joins, or -1
 * @away: faults from CPUs without a lane, less those from this lane's CPU
 */
struct dcm_pg_lane {
	struct dcm_pager *pg;
	struct dcm_lane *core;
	u32 id;
	pid_t tid;
	int wake_fd;
	bool started;
	pthread_t thread;
	u32 nr_stalled;
	u32 nr_drop;
	u32 unmap_seq;
	u32 fault_seq;
	struct uffd_msg stalled[DCM_PG_STALLED_MAX];
	u64 stalled_ns;
	u32 drop[DCM_PG_DROPS_MAX];
	struct iovec iov[DCM_BATCH_MAX * DCM_BLOCK_MAX / 2];
	struct uffd_msg msg[DCM_PG_MESSAGES];
	bool woken;
	u32 company;
	u32 turn;
	u32 nothing;
	u32 alone;
	int cpu;
	int follow_cpu;
	u32 follow_hits;
	int go_cpu;
	u32 away;
	u32 skip;
	u64 moved_ns;
	u64 hold_ns;
	u64 last_ns;
	u64 spun_at;
	u64 messages;
	u64 spin_hits;
	u64 migrations;
	struct dcm_page_sealer sealer;
	u64 nursery;
	u64 huge;
	u32 huge_pause;
	u32 huge_fails;
	bool huge_worked;
	u32 installs;
	struct dcm_yield yield;
} ____cacheline_aligned;

struct dcm_pager {
	struct dcm_vm *vm;
	struct dcm_client *client;
	struct dcm_host_config cfg;
	struct dcm_uffd uffd;
	struct dcm_guest guest;
	struct dcm_frames frames;
	struct dcm_sample_bucket *sample;
	s64 sampled;
	void *zero; /* 64 KiB of zeros */
	char *fetch_bufs;
	void *nurseries; /* the lanes' */
	struct dcm_pg_lane *lane;
	u32 nr_fault; /* fault lanes */
	u32 nr_lanes;
	u32 active; /* of them reading the userfaultfd */
	u32 crew_max; /* most that read at a time */
	u32 recent[8]; /* threads that faulted last */
	pthread_mutex_t discard_lock;
	pthread_mutex_t lost_lock; /* see lost.c */
	bool stop;
	u64 budget_bytes; /* as the user said */
	u64 start_ns;
	bool spin;
	bool follow;
	bool can_yield;
	bool have_uffd;
	struct dcm_page_sums sums;
	bool lost_said;
	u64 poisoned;
	struct dcm_slab_worker slabs; /* see slab_worker.c */
	struct dcm_rebuild_pace rebuild; /* the worker's thread's */
	char name[DCM_NAME_MAX + 4]; /* "VM NAME", for log lines */
	u64 illegal_logged;
	struct dcm_vmsock *vmsock;
};

static inline struct dcm_pager *pager_of(struct dcm_lane *lane)
{
	return lane->vm->priv;
}

static inline struct dcm_pg_lane *pg_lane_of(struct dcm_lane *lane)
{
	return lane->priv;
}

u64 dcm_now_ns(void);

/* pager.c */
void *dcm_map_aligned(size_t bytes);
int dcm_pager_redundancy_set(struct dcm_pager *pg,
			     enum dcm_host_redundancy redundancy);

/* ranges.c */
int dcm_guest_init(struct dcm_pager *pg, u64 nr_pages);
void dcm_guest_free(struct dcm_pager *pg);
int dcm_guest_add(struct dcm_pager *pg, u64 va, u64 nr, bool mapped);
int dcm_guest_punch(struct dcm_pager *pg, u64 va, u64 nr);
bool dcm_guest_gfn(const struct dcm_guest *g, u64 va, u64 *gfn);
u64 dcm_guest_next(const struct dcm_guest *g, u64 va, u64 end, u64 *len,
		   u64 *gfn);
void dcm_guest_discard(struct dcm_pager *pg, u64 va, u64 nr);
void dcm_guest_hint(struct dcm_pager *pg, u64 va, u64 bytes,
		    enum dcm_hint what);
void dcm_guest_renew(struct dcm_pager *pg, u64 va);
long dcm_guest_replace(struct dcm_pager *pg, u64 va, u64 nr,
		       const struct dcm_map_call *call);

/* A lane without a thread: the holder of discard_lock uses and polls it. */
static inline struct dcm_pg_lane *dcm_discard_lane(struct dcm_pager *pg)
{
	return &pg->lane[pg->nr_fault + 1];
}

static inline u64 dcm_guest_va(const struct dcm_guest *g, u32 gfn)
{
	return g->base[gfn >> DCM_SPAN_SHIFT] +
	       ((u64)(gfn & (DCM_SPAN_PAGES - 1)) << DCM_PAGE_SHIFT);
}

/* Which of @nr pages in the same 64 KiB are not holes? Bits, counted from @gfn. */
static inline u16 dcm_guest_pages(const struct dcm_guest *g, u32 gfn, u32 nr)
{
	u16 hole = READ_ONCE(g->hole[gfn >> 4]);
	u16 all = (u16)((1u << nr) - 1);

	return all & (u16) ~(hole >> (gfn & 15));
}

/* Pages of a block that are not holes. */
static inline u16 dcm_guest_mask(const struct dcm_guest *g, u32 gfn,
				 unsigned int order)
{
	return dcm_guest_pages(g, gfn, 1u << order);
}

/* How many pages of [@gfn, @end) are in the same 64 KiB as @gfn. */
static inline u32 dcm_guest_piece(u32 gfn, u32 end)
{
	return min(end - gfn, DCM_BLOCK_MAX - (gfn & (DCM_BLOCK_MAX - 1)));
}

/* Note that single pages of this span are mapped or unmapped: no huge page any more. */
static inline void dcm_guest_small(struct dcm_guest *g, u32 gfn)
{
	u8 *small = &g->small[gfn >> DCM_SPAN_SHIFT];

	if (unlikely(!READ_ONCE(*small)))
		WRITE_ONCE(*small, 1);
}

/* Do accesses to this page wait? */
static inline bool dcm_guest_frozen(const struct dcm_guest *g, u64 gfn)
{
	return __atomic_load_n(&g->any_frozen, __ATOMIC_SEQ_CST) &&
	       __atomic_load_n(&g->frozen[gfn >> (DCM_ORDER_MAX + 3)],
			       __ATOMIC_SEQ_CST) >>
			       (gfn >> DCM_ORDER_MAX & 7) &
		       1;
}

/* frames.c */
int dcm_frames_init(struct dcm_pager *pg, u64 nr_pages);
void dcm_frames_free(struct dcm_pager *pg);
u32 dcm_frame_get(struct dcm_pager *pg, unsigned int order, bool *full);
void dcm_frame_put(struct dcm_pg_lane *l, u32 frame, bool full);
void dcm_frames_drop(struct dcm_pg_lane *l);

/* Handle the lane's I/O that has completed by now. */
static inline void dcm_lane_drain(struct dcm_pg_lane *l)
{
	while (dcm_poll(l->core))
		;
	dcm_frames_drop(l);
}
void *dcm_frame_addr(const struct dcm_frames *fr, u32 frame);

/* fresh.c */
int dcm_fresh_init(struct dcm_pager *pg);
void dcm_fresh_free(struct dcm_pager *pg);

/* sample.c */
int dcm_sample_init(struct dcm_pager *pg);
bool dcm_sample_add(struct dcm_pager *pg, u32 gfn, u32 frame, bool writable);
u32 dcm_sample_take(struct dcm_pager *pg, u32 gfn, bool *writable);
u16 dcm_sample_mask(struct dcm_pager *pg, u32 gfn, u32 nr);

/* ops.c */
extern const struct dcm_ops dcm_pager_ops;

/* pins.c; bits in a page's byte of dcm_guest.pins, above its pin count */
#define DCM_PIN_CALL 64u /* a system call is about to replace it */
#define DCM_PIN_HELD 128u /* it may not be read */
void dcm_pins_hold(struct dcm_guest *g, u64 gfn, u64 nr, u8 bit, bool hold);
void dcm_pins_forget(struct dcm_guest *g, u64 gfn, u64 nr);
void dcm_pins_wait(struct dcm_pager *pg);

/* lane.c */
int dcm_lanes_start(struct dcm_pager *pg);
void dcm_lanes_stop(struct dcm_pager *pg);
void dcm_lane_kick(struct dcm_pg_lane *l);

/* lost.c */
void dcm_lost_access(struct dcm_pager *pg, u32 gfn, u32 nr);
void dcm_lost_forget(struct dcm_pager *pg, u64 va, u64 nr);

#endif /* DCM_UFFD_PAGER_H */

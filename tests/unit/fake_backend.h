/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * fake_backend.h - a guest, a host and donors for the core, wholly in memory
 *
 * Implements struct dcm_ops the way a backend does, but every way it may behave
 * is chosen by a seed and as nasty as the contract in core.h and transport.h
 * allows, and every promise the core gives there is checked. A page's content
 * is one 64-bit word: its gfn and a sequence number, or 0 for all zero. The
 * pointers the core handles (frames, landing buffers, slabs) lead into one
 * PROT_NONE window: a core that looked at the bytes would crash.
 *
 * The backend knows what the guest last wrote (@truth), so a wrong byte is found
 * the moment it is mapped, not when somebody reads it.
 *
 * Two ways of running:
 * - single-threaded: the clock is the test's, the run is a function of the
 *   seed; inside ops other lanes may be run (@nest), which is how races
 *   between lanes are played deterministically
 * - threads: one thread a lane. The state of a page is kept in plain
 *   memory, so that ThreadSanitizer sees whether the core really keeps ops on
 *   one page apart; only what a real MMU does atomically is atomic.
 */
#ifndef FAKE_BACKEND_H
#define FAKE_BACKEND_H

#include <pthread.h>

#include "core.h"
#include "internal.h"

#define FH_DONORS_MAX 8
#define FH_QUEUE_MAX 256
#define FH_LATE_MAX (FH_QUEUE_MAX * DCM_BLOCK_MAX)

/* values of the content store that no guest page ever has */
#define FH_POISON 0xdeaddeaddeaddeadull /* a freed frame */
#define FH_UNWRITTEN 0xbadbadbadbadbad1ull /* slab page never written */
#define FH_TORN 0xbadbadbadbadbad2ull /* being or half written */
#define FH_GONE 0xbadbadbadbadbad3ull /* slab revoked or dead */
#define FH_LOST 0xbadbadbadbadbad4ull /* truth: lost with its donor */

/* page words: content, and the bits of a page table */
#define FH_SEQ_SHIFT 1
#define FH_GFN_SHIFT 32
#define FH_PRESENT (1ull << 60)
#define FH_WRITABLE (1ull << 59)
#define FH_DIRTY (1ull << 58)
#define FH_ACCESSED (1ull << 57)
#define FH_HIDDEN (1ull << 56)
#define FH_SAMPLED (1ull << 55)
#define FH_CONTENT ((1ull << 52) - 1)

enum fb_slab_state {
	FH_SLAB_FREE, /* not lent */
	FH_SLAB_LIVE,
	FH_SLAB_DEAD, /* revoked or its donor died: -ESTALE */
	FH_SLAB_DETACHED, /* the core promised not to touch it again */
};

struct fb_slab {
	struct dcm_slab_ref ref;
	u32 state;
	u32 extent;
	u32 donor;
	u32 base; /* index of page 0 in the store */
	u32 lent; /* how often the slab was lent */
	u8 *busy; /* a byte a page: an I/O is in flight on it */
	u8 *sure; /* a byte a page: must be in the page's set (fake_donor.c) */
};

struct fb_donor {
	u64 silent_until;
	u64 unreachable_until;
	bool dead;
};

struct fb_io {
	struct dcm_io *io;
	u64 due;
	u32 cancels[DCM_BLOCK_MAX]; /* of its pages, when it was posted */
	u64 old[DCM_BLOCK_MAX];
	u64 src[DCM_BLOCK_MAX];
};

/* One page of a WRITE that failed with its connection, still on its way. */
struct fb_late {
	struct fb_slab *slab;
	u32 lent; /* it was lent for that time only */
	u32 page;
	u64 content;
};

/**
 * struct fb_way - a lane's connection to one donor
 * @broken: nothing can be posted; operations in flight fail
 * @welcome_at: tick at which the donor welcomes a new one
 * @nr_late: entries of @late
 * @late: what the broken one may still bring, until the welcome
 */
struct fb_way {
	bool broken;
	u64 welcome_at;
	u32 nr_late;
	struct fb_late late[FH_LATE_MAX];
};

struct fb_lane {
	u64 rng;
	bool in_core;
	u32 nr_io;
	struct fb_io io[FH_QUEUE_MAX];
	struct fb_way way[FH_DONORS_MAX];
	u8 wb_bad[DCM_WBS_MAX]; /* slots on which a WRITE of that one failed */
};

/**
 * struct fb_config - behaviour of the backend and its donors
 * @dirty_bits: the backend learns dirtiness from page tables (kernel pager);
 *	else by write protection
 * @waits: accesses wait for dcm_fault() (kernel pager)
 * @touched_bits: the backend knows of every page whether it was touched
 * @direct: READ leaves the data in the slab
 * @sparse: descriptors are given by the backend
 * @files: donors that lend files, a bit each
 * @max_delay: ticks until an I/O completes, at most
 * @qdepth: I/Os in flight per lane before post() says -EAGAIN
 * @p_*: chances per 10000
 * @nest: runs another lane from inside an op; NULL: never
 * @idle: called while the core waits for others: the control plane's turn
 * @threads: one thread a lane
 */
struct fb_config {
	u32 nr_pages;
	u32 extent_pages;
	u32 nr_lanes;
	u32 nr_slabs;
	u32 nr_donors;
	u32 files;
	u64 budget;
	u64 seed;
	bool dirty_bits;
	bool waits;
	bool touched_bits;
	bool direct;
	bool sparse;
	bool syncs; /* dcm_sync() is used */
	bool guesses; /* with DCM_SYNC_KEEP in place of DCM_SYNC_EXACT */
	bool seal; /* pages are sealed; never @direct then */
	bool fresh; /* it makes runs of new pages */
	bool spans; /* it asks for whole spans, and makes no other runs */
	bool watch; /* it hides pages */
	bool sums; /* extents with several slabs have sums */
	bool threads;
	u32 max_delay;
	u32 qdepth;
	u32 p_again;
	u32 p_error;
	u32 p_pinned;
	u32 p_install_fail;
	u32 p_no_seal; /* the backend can't seal a page */
	u32 p_wrong; /* a page that is read, and has a sum or a seal, comes with wrong bytes */
	u32 p_nest;
	void (*nest)(void *arg, u32 lane);
	void (*idle)(void *arg);
	void *arg;
};

struct fake_backend {
	struct fb_config cfg;
	struct dcm_ops ops;
	struct dcm_vm *vm;
	u64 tick;
	u64 polled_at; /* the tick of the last poll */
	u32 polls; /* in that tick */
	u64 *page; /* page words */
	u64 *truth; /* version last written (bit 0: zero) */
	u64 *maybe; /* version being written */
	u32 *seq; /* versions made */
	u32 *wakes; /* wake-ups seen, per page */
	u8 *op; /* an op runs on the page */
	u32 *witness; /* plain: for ThreadSanitizer */
	u8 *wlock; /* a guest thread writes the page */
	bool *want; /* extents that want a slab */
	u32 *sums; /* the core's, a word a page */
	struct dcm_seal *seals; /* likewise */
	u64 *sealed; /* the highest version that a page was sealed with */
	u32 *cancels; /* write-backs of the page that were cancelled */
	u32 frozen, nr_frozen; /* pages that a GC worker uses */
	u32 filling; /* a fill of this extent is under way; DCM_NIL: none */
	struct dcm_pd *descriptors; /* to be given, in a sparse VM */
	u32 nr_groups;
	u32 *group; /* live pages of a group of 16 frames */
	u32 group_hint;
	u64 *store; /* contents: frames, landing buffers, slabs */
	char *window; /* PROT_NONE, 4 KiB a store entry */
	u64 nr_store;
	struct fb_slab *slab;
	pthread_mutex_t late_lock; /* late bytes against a slab's end */
	struct fb_donor donor[FH_DONORS_MAX];
	struct fb_lane *lane;
	s64 mapped;
	s64 frames;
	s64 direct_max;
	u64 limit; /* of direct, follows the budget */
	u64 promised; /* pages in flight, at most */
	u64 lag_most; /* the largest lag_pages there was */
	u32 depth;
	u64 relaxed;
	bool give_up; /* a thread that waits for another lane is killed */
	/* what happened, for tests */
	u64 nr_posts, nr_reads, nr_writes, nr_installs, nr_unmaps, nr_remaps;
	u64 nr_lost_calls, nr_zero_written, nr_zero_said, nr_errors, nr_pinned,
		nr_nested;
	u64 nr_release, nr_discards, nr_discard_ops, nr_fresh, nr_bare,
		nr_undescribed, nr_copies;
	u64 nr_hides;
	u64 nr_late; /* pages written after their WRITE had failed */
	u64 nr_wrong; /* pages read with wrong bytes */
	u32 astray; /* how many of the next READs of pages with sums or seals bring wrong bytes */
};

/* dcm_tunable_set() */
int fb_tunable(struct fake_backend *fb, const char *name, u64 value);

struct fake_backend *fb_create(const struct fb_config *cfg);
void fb_destroy(struct fake_backend *fb);

/* Print the broken rule and how to reproduce it; does not return. */
void fb_violation(const struct fake_backend *fb, const char *fmt, ...)
	__attribute__((noreturn, format(printf, 2, 3)));
/* Printed with every violation: how to run the same thing again. */
extern char fb_repro[160];

/* ---- the guest ---- */

#define FH_OK (-1)
#define FH_HELD (-2) /* another guest thread writes or discards the page */

/* FH_OK when the access went through, FH_HELD, or flags for dcm_fault(). */
int fb_read(struct fake_backend *fb, u32 gfn, u64 *content);
int fb_write(struct fake_backend *fb, u32 gfn, bool zero);
/* Read with everything checked against the truth. */
int fb_read_checked(struct fake_backend *fb, u32 gfn);
bool fb_present(const struct fake_backend *fb, u32 gfn);
bool fb_is_lost(const struct fake_backend *fb, u32 gfn);

/*
 * Access @gfn on @lane and do what the result says until it went through.
 * Return: 0, or -EIO when the page is lost.
 */
int fb_access(struct fake_backend *fb, u32 lane, u32 gfn, bool write,
	      bool zero);

/* ---- the core, entered as a backend would ---- */

enum dcm_fault_result fb_fault(struct fake_backend *fb, u32 lane, u32 gfn,
			       u32 flags);
unsigned int fb_poll(struct fake_backend *fb, u32 lane);
unsigned int fb_balance(struct fake_backend *fb, u32 lane);
/* dcm_reuse_tick() */
unsigned int fb_tick(struct fake_backend *fb, u32 lane);
void fb_discard(struct fake_backend *fb, u32 lane, u32 gfn, u32 nr);
void fb_hint(struct fake_backend *fb, u32 lane, u32 gfn, u32 nr,
	     enum dcm_hint what);
int fb_ahead(struct fake_backend *fb, u32 lane);
/* dcm_sync(), until @ticks from now. */
int fb_to_donors(struct fake_backend *fb, u32 lane, u64 *gfn, u64 end,
		 bool keep, u64 ticks);
int fb_to_donor(struct fake_backend *fb, u32 lane, u32 gfn, u32 nr, bool keep,
		u64 ticks);
int fb_budget(struct fake_backend *fb, u64 pages);

/* Poll and balance every lane until nothing is in flight. */
void fb_sync(struct fake_backend *fb);

/* ---- donors ---- */

/* A free slab of a living donor other than @not, or NULL. */
struct fb_slab *fb_slab_take(struct fake_backend *fb, u64 pick, s32 not );
int fb_slab_attach(struct fake_backend *fb, struct fb_slab *s, u32 extent);
/* Attach a slab to every extent that asked. Returns how many. */
unsigned int fb_give_slabs(struct fake_backend *fb, u64 pick);
void fb_slab_kill(struct fake_backend *fb, struct fb_slab *s);
void fb_slab_free(struct fake_backend *fb, struct fb_slab *s);
void fb_donor_kill(struct fake_backend *fb, u32 donor);
/* A lane's connection to a donor breaks, with all that is in flight on it. */
void fb_way_break(struct fake_backend *fb, u32 lane, u32 donor);
struct fb_slab *fb_slab_of(struct fake_backend *fb,
			   const struct dcm_slab_ref *ref);
/* The slab that write-backs of an extent go to, or NULL. */
struct fb_slab *fb_slab_open(struct fake_backend *fb, u32 extent);
/* After dcm_extent_lost(): pages that the core calls lost must be lost. */
u32 fb_lost_scan(struct fake_backend *fb, u32 extent);

/* ---- a GC worker (fake_worker.c); single-threaded ---- */

/* Accesses to a range wait; false: one is under way. */
bool fb_freeze(struct fake_backend *fb, u32 gfn, u32 nr);
void fb_thaw(struct fake_backend *fb, u32 gfn, u32 nr);
/* It writes to a page in a slab, if that still lives. */
void fb_page_change(struct fake_backend *fb, struct fb_slab *s, u32 gfn);
/* That counts from now on; or what was there before. */
void fb_page_changed(struct fake_backend *fb, u32 gfn, bool changed);
/* All slabs of a page's set say which of both; whether it is what it wrote. */
bool fb_page_settled(struct fake_backend *fb, u32 gfn);

/* ---- checks ---- */

/* Everything in its place; call when no lane is inside the core. */
void fb_fsck(struct fake_backend *fb, bool quiet);
/* Direct memory against the budget. */
void fb_check_budget(struct fake_backend *fb);
u64 fb_in_flight_bound(const struct fake_backend *fb);

u64 fb_random(u64 *state);

/* vzalloc() fails at the Nth call from now; 0: never. */
extern unsigned int fb_alloc_fail_at;
extern unsigned int fb_alloc_calls;
extern long fb_alloc_live;

#endif /* FAKE_BACKEND_H */

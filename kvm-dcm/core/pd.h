/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * pd.h - page descriptors: 16 bytes for each guest page
 *
 * Descriptors are found by gfn, in chunks (chunk.c). A block of 2^order pages
 * is named by its first page, the head; state, queue and lock are the head's,
 * the other flags are each page's own. All zero is a valid descriptor:
 * NotDirect, order 0, never written; so new ones need no initialisation.
 */
#ifndef DCM_PD_H
#define DCM_PD_H

#include "../lib/dcm_context.h"

#define DCM_ORDER_MAX 4u /* 64 KiB */
#define DCM_BLOCK_MAX (1u << DCM_ORDER_MAX)
#define DCM_PAGE_SHIFT 12
#define DCM_PAGE_SIZE 4096u
#define DCM_HABIT_SHIFT 9 /* 2 MiB, in pages: unit of struct dcm_habit */
#define DCM_PDS_SHIFT 8 /* log2 of the descriptors in a chunk */
#define DCM_PDS_PAGES (1u << DCM_PDS_SHIFT)
#define DCM_NIL U32_MAX /* no page, no frame */
#define DCM_SLOTS 3u /* places for slabs that an extent has */
#define DCM_SLOTS_ALL ((1u << DCM_SLOTS) - 1)

/* dcm-tc18, 3.2 */
enum dcm_state {
	DCM_NOTDIRECT = 0, /* not here: on a donor, all zero, or lost */
	DCM_ACTIVE, /* here and mapped */
	DCM_PROACTIVE, /* here and mapped, known to be re-referenced */
	DCM_INACTIVE, /* here, unmapped */
	DCM_WRITEBACK, /* here, unmapped, on its way to a donor */
	DCM_NR_STATES
};

/* Which queue a head is in, beside its state. */
enum dcm_where {
	DCM_W_NONE = 0, /* in no queue: NotDirect, Writeback or BUSY */
	DCM_W_QUEUE, /* in the fifo of its state */
	DCM_W_BUFFER, /* in a lane's insert buffer */
	DCM_W_VICTIM, /* in a lane's victim buffer */
};

#define PD_LOCK 0x00000001 /* head: block lock */
#define PD_STATE_SHIFT 1 /* head: enum dcm_state */
#define PD_STATE_MASK 0x0000000e
#define PD_ORDER_SHIFT 4 /* every page: block is 2^order pages */
#define PD_ORDER_MASK 0x00000070
#define PD_AT_SHIFT 7 /* slots of the extent that hold this content: */
#define PD_AT 0x00000380 /* a set, one bit a slot; empty: none */
#define PD_DIRTY 0x00000400 /* direct copy is newer than the donor's */
#define PD_TOUCHED 0x00000800 /* accessed since it was fetched */
#define PD_OBSERVED 0x00001000 /* TOUCHED is known, set or not */
#define PD_WROTE 0x00002000 /* gone: was written the last time it was here */
#define PD_INFLIGHT 0x00004000 /* a WRITE of it may still land: don't write */
#define PD_PREFETCHED 0x00008000 /* fetched without being asked for */
#define PD_BUSY 0x00010000 /* head: a lane works on the block */
#define PD_WAITER 0x00020000 /* head: wake when no longer BUSY */
#define PD_WHERE_SHIFT 18 /* head: enum dcm_where */
#define PD_WHERE_MASK 0x000c0000
#define PD_LANE_SHIFT 20 /* head: lane of its inactive queue */
#define PD_LANE_MASK 0x03f00000
#define PD_GUESSED 0x04000000 /* DIRTY, though no write of it is known */
#define PD_FRESH 0x08000000 /* was new, zero, when it came in */
#define PD_DIRECT 0x10000000 /* its owner wants it kept here */
#define PD_KEPT 0x20000000 /* head: in vm->kept, not in Active */
#define PD_SYNCED \
	0x40000000 /* head: dcm_sync() has copied it to a donor */
#define PD_LOST 0x80000000 /* content went with its donors */

/*
 * While a page is direct PD_WROTE's bit has another meaning: the page was
 * re-referenced, and has not had its second round in Inactive for that yet (fifo.c).
 * Once it has had it, the page has PD_TOUCHED without PD_OBSERVED instead.
 */
#define PD_AGAIN PD_WROTE

/* Flags of one residency of a page in direct memory. */
#define PD_RESIDENCY                                                           \
	(PD_DIRTY | PD_GUESSED | PD_TOUCHED | PD_OBSERVED | PD_PREFETCHED |    \
	 PD_FRESH | PD_SYNCED | PD_AGAIN)

/**
 * struct dcm_pd - page descriptor
 * @word: PD_*; changed only by atomic operations, and under the block's lock
 *	(but for PD_LOCK itself)
 * @prev: previous in the queue (a gfn), guarded by the queue's lock; of a block in
 *	Writeback the index of its write-back descriptor, guarded by the
 *	block's lock
 * @next: next in the queue, as @prev; of a block in Writeback the lane of that
 *	descriptor; of any page of a NotDirect block its ghost: when it was
 *	evicted (ghost.c); both guarded by the block's lock
 * @frame: of a head, Inactive or Writeback: the pager's handle of the bytes. Of a
 *	mapped block, and of pages that are no head: for the pager's use. While
 *	NotDirect unused
 */
struct dcm_pd {
	atomic_t word;
	u32 prev;
	u32 next;
	u32 frame;
};

static_assert(sizeof(struct dcm_pd) == 16, "16 bytes a page, all included");

static inline enum dcm_state pd_state(u32 w)
{
	return (enum dcm_state)((w & PD_STATE_MASK) >> PD_STATE_SHIFT);
}

/* The set of slots that hold the page's content: bit s is slot s. */
static inline u8 pd_at(u32 w)
{
	return (u8)((w & PD_AT) >> PD_AT_SHIFT);
}

/* Is the page on some slot, but not on all of @open? */
static inline bool pd_lacks(u32 w, u8 open)
{
	return (w & PD_AT) && (open & (u8)~pd_at(w));
}

static inline u32 pd_at_bits(u32 slots)
{
	return slots << PD_AT_SHIFT;
}

static inline unsigned int pd_order(u32 w)
{
	return (w & PD_ORDER_MASK) >> PD_ORDER_SHIFT;
}

static inline enum dcm_where pd_where(u32 w)
{
	return (enum dcm_where)((w & PD_WHERE_MASK) >> PD_WHERE_SHIFT);
}

static inline unsigned int pd_lane(u32 w)
{
	return (w & PD_LANE_MASK) >> PD_LANE_SHIFT;
}

static inline u32 pd_word(const struct dcm_pd *pd)
{
	return (u32)atomic_read(&pd->word);
}

static inline void pd_set(struct dcm_pd *pd, u32 bits)
{
	atomic_or((int)bits, &pd->word);
}

static inline void pd_clear(struct dcm_pd *pd, u32 bits)
{
	atomic_andnot((int)bits, &pd->word);
}

/* A WRITE has ended. All it changed is seen by whoever sees the bit clear. */
static inline void pd_landed(struct dcm_pd *pd)
{
	dcm_andnot_release(PD_INFLIGHT, &pd->word);
}

/* May a WRITE of the page still land? Pairs with pd_landed(). */
static inline bool pd_inflight(const struct dcm_pd *pd)
{
	return (u32)atomic_read_acquire(&pd->word) & PD_INFLIGHT;
}

/* Replace the bits under @mask by @bits. */
static inline void pd_assign(struct dcm_pd *pd, u32 mask, u32 bits)
{
	int old = atomic_read(&pd->word);

	while (!atomic_try_cmpxchg(&pd->word, &old,
				   (int)(((u32)old & ~mask) | bits)))
		;
}

static inline void pd_set_where(struct dcm_pd *pd, enum dcm_where where)
{
	pd_assign(pd, PD_WHERE_MASK, (u32)where << PD_WHERE_SHIFT);
}

static inline void pd_set_order(struct dcm_pd *pd, unsigned int order)
{
	pd_assign(pd, PD_ORDER_MASK, order << PD_ORDER_SHIFT);
}

/* Waiters spin, so in the kernel the holder must not be preempted. */
static inline bool pd_trylock(struct dcm_pd *pd)
{
	int old = atomic_read(&pd->word);

	preempt_disable();
	while (!((u32)old & PD_LOCK))
		if (atomic_try_cmpxchg_acquire(&pd->word, &old,
					       (int)((u32)old | PD_LOCK)))
			return true;
	preempt_enable();
	return false;
}

static inline void pd_lock(struct dcm_pd *pd)
{
	while (!pd_trylock(pd))
		cpu_relax();
}

/* Unlock and clear these bits in one step. */
static inline void pd_unlock_clear(struct dcm_pd *pd, u32 bits)
{
	dcm_andnot_release((int)(PD_LOCK | bits), &pd->word);
	preempt_enable();
}

static inline void pd_unlock(struct dcm_pd *pd)
{
	pd_unlock_clear(pd, 0);
}

extern const char *const dcm_state_names[DCM_NR_STATES];

#endif /* DCM_PD_H */

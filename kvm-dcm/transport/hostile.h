/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * hostile.h - the hostile transport's parameters, for tests
 *
 * It wraps another endpoint and does to its operations what networks and
 * donors may do. The dials can be changed while it runs.
 */
#ifndef DCM_HOSTILE_H
#define DCM_HOSTILE_H

#include "transport.h"

/*
 * X(id, text): one thing that the hostile transport does to operations. The last
 * three are what a lying donor does, and no broken network. FLIP and SWAP need READs
 * that come into the poster's memory (no %DCM_TR_DIRECT).
 */
#define DCM_HOSTILE_KINDS(X)                                                 \
	X(AGAIN, "post() says the queue is full")                            \
	X(SPLIT, "done in two pieces, one after the other")                  \
	X(DELAY, "held back for up to @delay_ns")                            \
	X(REORDER, "overtaken by one posted later")                          \
	X(EIO, "refused by the donor, not done")                             \
	X(EIO_LATE, "done, but reported as failed")                          \
	X(ESTALE, "slab not ours any more, not done")                        \
	X(SILENCE, "never completes until the endpoint dies or is closed")   \
	X(DIE, "the endpoint dies with all that is in flight")               \
	X(LATE, "a WRITE that fails as the endpoint dies, and is done later") \
	X(FLIP, "a READ has a wrong bit")                                    \
	X(SWAP, "a READ brings another page's bytes")                        \
	X(OLD, "a WRITE is answered, not done: the older bytes stay")

enum dcm_hostile_kind {
#define X(id, text) DCM_HOSTILE_##id,
	DCM_HOSTILE_KINDS(X)
#undef X
	DCM_HOSTILE_NR
};

/**
 * struct dcm_hostile - the dials, and counters
 * @ppm: how often each kind happens, of a million operations
 * @delay_ns: longest delay
 * @late_ns: longest time from the end of a LATE WRITE to its taking effect; the
 *	donor may have fenced it off by then
 * @liar: the donor (dcm_slab_ref.peer) of %DCM_HOSTILE_FLIP, SWAP and OLD
 * @count: how often each kind happened; written by endpoints only
 * @late_done: LATE WRITEs that took effect; written by endpoints only
 * @ops: operations taken
 *
 * Any thread may change or read it at any time with READ_ONCE/WRITE_ONCE and
 * atomic64_*(); several endpoints may share one.
 */
struct dcm_hostile {
	u32 ppm[DCM_HOSTILE_NR];
	u64 delay_ns;
	u64 late_ns;
	u32 liar;
	u64 count[DCM_HOSTILE_NR];
	u64 late_done;
	u64 ops;
};

/**
 * struct dcm_hostile_args - parameters of a hostile endpoint
 * @inner: the endpoint it wraps; closed with it, or by a thread that still has
 *	LATE WRITEs to do
 * @dials: must outlive it, and that thread
 * @seed: all its random decisions follow from it
 *
 * The endpoint's own ops table has the inner one's caps without
 * %DCM_TR_ORDERED and %DCM_TR_INLINE.
 */
struct dcm_hostile_args {
	struct dcm_endpoint *inner;
	struct dcm_hostile *dials;
	u64 seed;
};

const char *dcm_hostile_kind_name(enum dcm_hostile_kind kind);

#endif /* DCM_HOSTILE_H */

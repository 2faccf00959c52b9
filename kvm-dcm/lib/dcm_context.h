/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dcm_context.h - the only header from outside for everything in core/
 *
 * The core is written in a short list of kernel words: fixed-size types,
 * atomic_t, atomic64_t, spinlock_t, preempt_disable, READ_ONCE/WRITE_ONCE,
 * vzalloc/vfree, errno names. In the kernel they are the kernel's; in user space context_user.h
 * supplies them. A word that is missing here is one the core may not use;
 * scripts/check-core-symbols compares what the objects really call.
 */
#ifndef DCM_CONTEXT_H
#define DCM_CONTEXT_H

#ifdef __KERNEL__
#include <linux/atomic.h>
#include <linux/bitops.h>
#include <linux/bug.h>
#include <linux/cache.h>
#include <linux/errno.h>
#include <linux/kernel.h>
#include <linux/log2.h>
#include <linux/minmax.h>
#include <linux/preempt.h>
#include <linux/processor.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/tracepoint-defs.h>
#include <linux/types.h>
#include <linux/vmalloc.h>

#define ffs_u32(v) ((unsigned int)ffs((int)(v)))

/* The kernel's atomic_fetch_andnot_release() is a loop on x86, for the old value. */
static inline void dcm_andnot_release(int m, atomic_t *v)
{
	smp_mb__before_atomic(); /* what was done before is seen before */
	atomic_andnot(m, v);
}

DECLARE_TRACEPOINT(dcm_state);
void dcm_trace_state_now(const void *priv, u32 gfn, u32 order, u32 from,
			 u32 to);

/* A block moves from state to state; @priv is dcm_vm.priv. */
static inline void dcm_trace_state(const void *priv, u32 gfn, u32 order,
				   u32 from, u32 to)
{
	if (tracepoint_enabled(dcm_state))
		dcm_trace_state_now(priv, gfn, order, from, to);
}
#else
#include "context_user.h"
#endif

#endif /* DCM_CONTEXT_H */

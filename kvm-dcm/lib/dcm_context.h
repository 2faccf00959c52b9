/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dcm_context.h - the only header from outside that core/ includes
 *
 * The core uses a short list of the kernel's names: fixed-size types,
 * atomic_t, atomic64_t, spinlock_t, preempt_disable, READ_ONCE/WRITE_ONCE,
 * vzalloc/vfree, errno names. In the kernel they are the kernel's own; in user space
 * context_user.h defines them. The core may not use a name that is missing here;
 * scripts/check-core-symbols checks the functions that its objects call.
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

/* Clear bits, with release order. atomic_fetch_andnot_release() is a loop on x86. */
static inline void dcm_andnot_release(int m, atomic_t *v)
{
	smp_mb__before_atomic(); /* earlier stores are seen first */
	atomic_andnot(m, v);
}

DECLARE_TRACEPOINT(dcm_state);
void dcm_trace_state_now(const void *priv, u32 gfn, u32 order, u32 from,
			 u32 to);

/* Tracepoint: a block goes from one state to another; @priv is dcm_vm.priv. */
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

// SPDX-License-Identifier: GPL-2.0-only
/*
 * trace.c - the tracepoints' code
 *
 * The core knows no files, so its transitions are reported through a function
 * here, which is called only while the tracepoint is enabled.
 */
#include "compat.h"
#include "dcmfs.h"

#define CREATE_TRACE_POINTS
#include "trace.h"

/** dcm_trace_state_now() - a block has a new state, and the event is enabled */
void dcm_trace_state_now(const void *priv, u32 gfn, u32 order, u32 from, u32 to)
{
	const struct dcmfs_vm *vm = priv;

	trace_dcm_state(dcmfs_ino(vm->inode), gfn, order, from, to);
}

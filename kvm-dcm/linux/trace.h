/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * trace.h - tracepoints
 *
 *	dcm:dcm_state	a block goes from one state to another
 *	dcm:dcm_fault	a fault on a file has been served
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM dcm

#if !defined(DCMFS_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define DCMFS_TRACE_H

#include <linux/tracepoint.h>

/* clang-format off */
#define dcm_show_state(s)                                                  \
	__print_symbolic(s, { 0, "NotDirect" }, { 1, "Active" },           \
			 { 2, "Proactive" }, { 3, "Inactive" },            \
			 { 4, "Writeback" })

TRACE_EVENT(dcm_state,
	TP_PROTO(unsigned long ino, u32 gfn, u32 order, u32 from, u32 to),
	TP_ARGS(ino, gfn, order, from, to),
	TP_STRUCT__entry(
		__field(unsigned long, ino)
		__field(u32, gfn)
		__field(u32, order)
		__field(u32, from)
		__field(u32, to)
	),
	TP_fast_assign(
		__entry->ino = ino;
		__entry->gfn = gfn;
		__entry->order = order;
		__entry->from = from;
		__entry->to = to;
	),
	TP_printk("ino=%lu gfn=%u pages=%u %s->%s", __entry->ino, __entry->gfn,
		  1u << __entry->order, dcm_show_state(__entry->from),
		  dcm_show_state(__entry->to))
);

TRACE_EVENT(dcm_fault,
	TP_PROTO(unsigned long ino, u32 gfn, bool write, u32 result, u64 ns),
	TP_ARGS(ino, gfn, write, result, ns),
	TP_STRUCT__entry(
		__field(unsigned long, ino)
		__field(u32, gfn)
		__field(bool, write)
		__field(u32, result)
		__field(u64, ns)
	),
	TP_fast_assign(
		__entry->ino = ino;
		__entry->gfn = gfn;
		__entry->write = write;
		__entry->result = result;
		__entry->ns = ns;
	),
	TP_printk("ino=%lu gfn=%u write=%d result=%#x ns=%llu", __entry->ino,
		  __entry->gfn, __entry->write, __entry->result, __entry->ns)
);
/* clang-format on */

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>

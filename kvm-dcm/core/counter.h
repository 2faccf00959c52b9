/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * counter.h - the list of counters, and of latency histograms
 *
 * Counters live in lanes and are written by their lane alone, so counting
 * costs no shared cache line; dcm_vm_stats() sums over lanes.
 */
#ifndef DCM_COUNTER_H
#define DCM_COUNTER_H

#include "hist.h"

/* X(id, text) */
#define DCM_COUNTERS(X)                                                    \
	X(FAULTS, "faults taken")                                          \
	X(FAULT_MISSING, "block had to be fetched")                        \
	X(FAULT_ZERO, "block never written or all zero: no network")       \
	X(FAULT_MINOR, "re-reference of an Inactive block")                \
	X(FAULT_CANCEL, "re-reference of a block in Writeback")            \
	X(FAULT_WP, "first write to a clean page")                         \
	X(FAULT_SAMPLE, "first touch of a page left unmapped to sample")   \
	X(FAULT_SPURIOUS, "page was there already")                        \
	X(FAULT_BUSY, "block was being worked on")                         \
	X(FAULT_STALL, "no free frame: had to wait for an eviction")       \
	X(FAULT_LOST, "page lost with its donor")                          \
	X(FETCHES, "blocks fetched")                                       \
	X(FETCHED_PAGES, "pages fetched")                                  \
	X(FETCH_RETRIES, "fetches posted again after an error")            \
	X(FAILOVERS, "of those, fetches posted to another donor at once")  \
	X(WRITEBACKS, "blocks written back")                               \
	X(WRITTEN_PAGES, "pages written back")                             \
	X(WRITE_ERRORS, "write-backs that failed; the block stays direct") \
	X(THIN_PAGES, "pages written to fewer donors than are open")       \
	X(DOUBTED_PAGES, "pages whose write failed and might still land")  \
	X(CANCELLED, "write-backs cancelled by a re-reference")            \
	X(CLEAN_DROPS, "blocks dropped without a write")                   \
	X(ZERO_PAGES, "pages found all zero at eviction")                  \
	X(DEMOTED, "blocks unmapped: Active to Inactive")                  \
	X(PINNED, "blocks that could not be unmapped: in use by I/O")      \
	X(KEPT, "blocks kept from eviction, as their owner wants them")    \
	X(COLD, "blocks that were to go first, as their owner wants them") \
	X(AHEAD_PAGES, "pages fetched before an access, as their owner wants") \
	X(AHEAD_DROPPED, "pages that their owner wanted so: no room, or late") \
	X(STREAM_PAGES, "pages fetched before accesses that follow in steps") \
	X(PROMOTED, "random promotions to Proactive")                      \
	X(STRETCH, "blocks merged with their buddy")                       \
	X(REDUCE, "blocks reduced to 4 KiB")                               \
	X(PREFETCHED, "pages fetched that were not asked for")             \
	X(PREFETCH_SEEN, "of those, pages whose use is known at eviction") \
	X(PREFETCH_HIT, "of those known, pages touched before eviction")   \
	X(REUSE_HIDDEN, "pages hidden so that their next touch is seen")   \
	X(REUSE_TOUCHES, "accesses to pages of that sample")               \
	X(REUSE_SKIPPED, "of these, accesses not counted: another was")    \
	X(MIX_4K, "pages brought in or made zero in blocks of 4 KiB")      \
	X(MIX_8K, "pages brought in or made zero in blocks of 8 KiB")      \
	X(MIX_16K, "pages brought in or made zero in blocks of 16 KiB")    \
	X(MIX_32K, "pages brought in or made zero in blocks of 32 KiB")    \
	X(MIX_64K, "pages brought in or made zero in blocks of 64 KiB")    \
	X(FRESH_PAGES, "of the pages made zero, those made in runs")       \
	X(MOVED_PAGES, "pages moved to another donor")                     \
	X(FILLED_PAGES, "pages copied to donors that lacked them")         \
	X(SPREAD_PAGES, "pages that GC workers used, copied to other donors") \
	X(PULLED_PAGES, "pages moved from a donor into direct memory")     \
	X(DISCARDED_PAGES, "pages discarded by their owner")               \
	X(LOST_PAGES, "pages lost with a donor")                           \
	X(WRONG_PAGES, "pages that a READ brought with wrong bytes")       \
	X(WAIT_DONOR_NS, "ns that accesses waited for donors' answers")    \
	X(WAIT_QUEUE_NS, "ns that they waited in queues of this host")     \
	X(WAIT_HERE_NS, "ns that this host itself worked on them")         \
	X(WAIT_FRAMES_NS, "ns that they waited for a free frame")          \
	X(WAIT_OUT_NS, "ns that they waited for a block on its way out")   \
	X(WAIT_RETRY_NS, "ns that they waited as a donor failed them")     \
	X(ILLEGAL, "illegal state transitions refused")

enum dcm_counter_id {
#define X(id, text) DCM_C_##id,
	DCM_COUNTERS(X)
#undef X
		DCM_C_NR
};

extern const char *const dcm_counter_names[DCM_C_NR];
extern const char *const dcm_counter_texts[DCM_C_NR];

enum dcm_hist_id {
	DCM_H_FAULT, /* fault taken to block installed */
	DCM_H_FETCH, /* fetch posted to data here */
	DCM_H_WRITEBACK, /* write-back posted to acknowledged */
	DCM_H_NR
};

extern const char *const dcm_hist_names[DCM_H_NR];

#endif /* DCM_COUNTER_H */

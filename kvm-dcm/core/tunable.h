/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * tunable.h - the core's tunables: name, unit, default, bounds, reason
 *
 * One list makes the enum, the table and the documentation. All can be
 * changed while a VM runs; a new value is seen by the next decision that
 * reads it. Shares are basis points (1/10000) of the direct budget.
 */
#ifndef DCM_TUNABLE_H
#define DCM_TUNABLE_H

#include "../lib/dcm_context.h"

/* X(id, unit, default, min, max, reason) */
#define DCM_TUNABLES(X)                                                        \
	X(epsilon, "bp", 100, 0, 10000,                                        \
	  "chance that a fetched block goes to Proactive at once; keeps part " \
	  "of a scan resident. 0: never; the paper only says small")           \
	X(proactive_share, "bp", 7000, 0, 9000,                                \
	  "most of the budget that Proactive may hold at first; above it the " \
	  "oldest is demoted to Active. It then follows what comes back too "  \
	  "early. 0: plain FIFO with a second chance, always")                 \
	X(inactive_share, "bp", 700, 100, 5000,                               \
	  "part of the budget kept unmapped to notice re-references; larger "  \
	  "tells hot from cold better and costs more minor faults")            \
	X(keep_clean, "bool", 1, 0, 1,                                         \
	  "clean blocks go through Inactive too; off: they are dropped when "  \
	  "they are unmapped, for donors as near as memory")                   \
	X(ghost_share, "bp", 4000, 0, 40000,                                   \
	  "a block fetched again before this share of the budget was "         \
	  "evicted after it goes to Proactive, as if re-referenced. 0: "       \
	  "what is gone is forgotten")                                         \
	X(reserve_pages, "pages", 64, 1, 65536,                                \
	  "frames kept free so that a fetch never waits for an eviction; at "  \
	  "most 1/256 of the budget is used for it")                            \
	X(batch_blocks, "blocks", 32, 1, 64,                                   \
	  "blocks unmapped together: one TLB flush for all")                   \
	X(largest_block, "bytes", 65536, 4096, 65536,                          \
	  "upper bound of elastic blocks, a power of two; with elastic off "   \
	  "the size of every block")                                           \
	X(elastic, "bool", 1, 0, 1,                                            \
	  "STRETCH and REDUCE; off: every block has largest_block")            \
	X(fresh_block, "bytes", 16384, 4096, 65536,                            \
	  "upper bound of blocks of pages touched for the first time; larger " \
	  "takes fewer faults while a program fills its memory, and wastes "   \
	  "more where it later reads at random")                               \
	X(sample_bp, "bp", 5000, 0, 10000,                                     \
	  "user pager: chance that a block, when it is fetched or mapped "     \
	  "again, leaves one page unmapped to learn whether its pages are "    \
	  "touched. 0: never learns, blocks only grow")                        \
	X(reuse, "pages/s", 150, 0, 1000000,                                   \
	  "pages hidden a second, at most, so that their next touch is seen: " \
	  "from this comes what another budget would give. Each costs two "    \
	  "system calls and a fault. 0: nothing is foretold")                  \
	X(stream, "blocks", 8, 0, 64,                                          \
	  "blocks of 64 KiB, or four pages each, brought in ahead of accesses " \
	  "that follow each other in equal steps; all streams together hold "  \
	  "at most 1/8 of the budget so. 0: none")                                \
	X(writebacks, "blocks", 32, 1, 64,                                     \
	  "write-backs in flight per lane; bounds the memory above budget")    \
	X(thin_after, "ms", 200, 0, 10000,                                     \
	  "how long write-backs wait for one donor of several that does not "  \
	  "answer, before they go to the others only; longer keeps all "       \
	  "copies equal, shorter frees memory sooner. 0: at once")             \
	X(lag_pages, "pages", 0, 0, 1u << 28,                                  \
	  "most pages that are in donors' memory and not in files yet, where " \
	  "an extent has both; more lets memory leave faster than disks "      \
	  "write, and is lost if all donors of memory die. 0: none. "          \
	  "redundancy = disk:lazy sets it to disk-lag")                        \
	X(sums, "bool", 1, 0, 1,                                               \
	  "pages with copies are compared with a sum that this host keeps "    \
	  "whenever they come back, so that a donor's wrong bytes are read "   \
	  "from another donor; 4 bytes a page, and CPU time for each that "    \
	  "leaves and comes back. 0: what donors give is believed")

enum dcm_tunable_id {
#define X(id, unit, def, lo, hi, why) DCM_T_##id,
	DCM_TUNABLES(X)
#undef X
		DCM_T_NR
};

/**
 * struct dcm_tunable - description of a tunable
 * @name: as users write it
 * @unit: "bp", "pages", "pages/s", "blocks", "bytes", "bool", "ms"
 * @def: default
 * @lo: smallest value allowed
 * @hi: largest value allowed
 * @why: what it trades, and what 0 means
 */
struct dcm_tunable {
	const char *name;
	const char *unit;
	u64 def;
	u64 lo;
	u64 hi;
	const char *why;
};

extern const struct dcm_tunable dcm_tunables[DCM_T_NR];

#endif /* DCM_TUNABLE_H */

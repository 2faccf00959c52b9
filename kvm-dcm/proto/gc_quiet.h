/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * gc_quiet.h - the end of a trace on several donors
 *
 * Mako's four flags (mako-pldi22, 5.2): the host asks each donor for them, and
 * the trace has ended when all flags of all donors were false in two rounds.
 */
#ifndef DCM_GC_QUIET_H
#define DCM_GC_QUIET_H

#include "gc_layout.h"

/**
 * struct dcm_gc_flags - mako-pldi22, 5.2: quiet when all are false twice
 * @tracing: a thread is tracing
 * @roots: references from other donors wait
 * @ghosts: references to other donors wait, or are not acknowledged
 * @changed: any of these was true since the last time
 * @opaque: number of opaque objects that wait to be taken
 * @objects: met so far, modulo 2^32
 */
struct dcm_gc_flags {
	bool tracing;
	bool roots;
	bool ghosts;
	bool changed;
	u32 opaque;
	u32 objects;
	struct dcm_gc_result result;
};

/**
 * struct dcm_gc_quiet - rounds of asking all donors
 * @rounds: how many in a row found all of them quiet
 *
 * Ask every donor (dcm_gc_trace_poll()), then dcm_gc_quiet_round().
 */
struct dcm_gc_quiet {
	u32 rounds;
};

static inline bool dcm_gc_quiet_round(struct dcm_gc_quiet *q,
				      const struct dcm_gc_flags *flags, u32 n)
{
	for (u32 i = 0; i < n; i++) {
		if (flags[i].tracing || flags[i].roots || flags[i].ghosts ||
		    flags[i].changed) {
			q->rounds = 0;
			return false;
		}
	}
	return ++q->rounds >= 2;
}

#endif /* DCM_GC_QUIET_H */

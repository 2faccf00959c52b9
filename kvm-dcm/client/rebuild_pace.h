/* SPDX-License-Identifier: GPL-2.0-or-later */
/* rebuild_pace.h - how fast copies that were lost are made again */
#ifndef DCM_REBUILD_PACE_H
#define DCM_REBUILD_PACE_H

#include "../core/hist.h"

/**
 * struct dcm_rebuild_pace - bytes a second that a rebuild may copy
 * @limit: the highest rate, in bytes a second; 0: no limit, and nothing here is used
 * @rate: the rate just now
 * @copied: bytes copied so far
 * @left: bytes that may be copied now; negative: so many were copied too early
 * @at_ns: when @left was last added to; 0: never
 * @look_ns: when faults were last looked at
 * @calm_ns: 99th percentile of faults while nothing was rebuilt; 0: not known
 * @worse: faults were much slower at the last look
 * @faults: all faults up to @look_ns
 *
 * Zero it, and set @limit.
 */
struct dcm_rebuild_pace {
	u64 limit;
	u64 rate;
	u64 copied;
	s64 left;
	u64 at_ns;
	u64 look_ns;
	u64 calm_ns;
	bool worse;
	struct dcm_hist faults;
};

/**
 * dcm_rebuild_pace_look() - let the rate follow the guest's faults
 * @p: the pace
 * @now: ns
 * @faults: all faults so far
 *
 * Call it before each step of a rebuild when dcm_rebuild_pace_looks().
 */
void dcm_rebuild_pace_look(struct dcm_rebuild_pace *p, u64 now,
			   const struct dcm_hist *faults);

/** dcm_rebuild_pace_looks() - is it time for dcm_rebuild_pace_look()? */
bool dcm_rebuild_pace_looks(const struct dcm_rebuild_pace *p, u64 now);

/** dcm_rebuild_pace_wait() - milliseconds until more may be copied; 0: it may now */
int dcm_rebuild_pace_wait(struct dcm_rebuild_pace *p, u64 now);

/**
 * dcm_rebuild_pace_copied() - note how many bytes were copied
 * @bytes: in all so far
 * @hurry: bytes since the last call were copied regardless of the rate, and don't count
 */
void dcm_rebuild_pace_copied(struct dcm_rebuild_pace *p, u64 bytes, bool hurry);

#endif /* DCM_REBUILD_PACE_H */

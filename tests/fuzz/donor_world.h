/* SPDX-License-Identifier: GPL-2.0-or-later */
/* donor_world.h - a donor and all that happens to it, as an input says */
#ifndef FUZZ_DONOR_WORLD_H
#define FUZZ_DONOR_WORLD_H

#include "config.h"

/**
 * struct donor_medium - what slabs are made of
 * @medium: enum dcm_medium
 * @turn: called at each turn; %NULL: nothing to do
 * @set: how the disk does from now on; 0: well. %NULL: there is none
 */
struct donor_medium {
	u32 medium;
	void (*turn)(void);
	void (*set)(u32 how);
};

/* The program's choice. */
extern const struct donor_medium donor_medium;

/* Bytes that the host, or its disk, has free now, and in all. */
u64 donor_world_free(u64 *total);

/* So much time passes. */
void donor_world_pass(u64 ns);

/* One input; 0, for libFuzzer. */
int donor_world_run(const uint8_t *data, size_t size);

#endif /* FUZZ_DONOR_WORLD_H */

/* SPDX-License-Identifier: GPL-2.0-or-later */
/* tier.h - choose the extents that are on files in place of memory */
#ifndef DCM_CLIENT_TIER_H
#define DCM_CLIENT_TIER_H

#include "exposed.h"

/* extents that a look may send to memory, and away from it */
#define TIER_MAX 4u

/**
 * struct tier_list - the extents with the highest weights
 * @nr: how many
 * @extent: the heaviest first
 * @weight: of each
 */
struct tier_list {
	u32 nr;
	u32 extent[TIER_MAX];
	u64 weight[TIER_MAX];
};

/**
 * struct client_tier - the result of a look at all extents
 * @memory: donors of memory with room, a bit each
 * @files: donors of files with room, a bit each
 * @left: how many extents gave a file back at this look, as memory has room
 * @busy: the busiest extents on files in place of memory
 * @cold: the extents in memory that have been cold for longest
 */
struct client_tier {
	u64 memory;
	u64 files;
	u32 left;
	struct tier_list busy;
	struct tier_list cold;
};

void client_tier_full(struct dcm_client *client, struct client_tier *t,
		      u32 extent);
void client_tier_lacks(const struct dcm_client *client, struct client_tier *t,
		       u32 extent);
void client_tier_has(const struct dcm_client *client, struct client_tier *t,
		     u32 extent);
bool client_tier_exchanges(const struct dcm_client *client, u32 extent);
bool client_tier_moves(const struct dcm_client *client, u32 extent, u64 roomy,
		       u64 *to);
void client_tier_step(struct dcm_client *client, const struct client_tier *t,
		      bool exposed, u64 now);

#endif /* DCM_CLIENT_TIER_H */

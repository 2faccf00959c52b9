/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * slab_worker_world.h - a pager and a client that a test commands
 *
 * The pager says of each slab whether it has it, and answers as it is told to.
 * The client counts what is given back. Lines of the log are kept.
 */
#ifndef SLAB_WORKER_WORLD_H
#define SLAB_WORKER_WORLD_H

#include <stdbool.h>

#include "client/slab_worker.h"

#define EXTENTS 64u
#define SLABS 512u
#define LINES 8u

/* A slab, and what was done with it; in the threads' test, atomic. */
struct fake_slab {
	bool has; /* the pager has it */
	u32 released;
	u32 stale;
	u32 others;
	u32 attached;
	struct dcm_client_slab slab; /* last: it ends with an array */
};

/**
 * struct slab_worker_world - what is so, and what happened since setup()
 * @fakes: all slabs; @nr_fakes: how many
 * @line: of the log, the last ones; @lines: how many in all
 * @wakes: of the pager
 * @attach: what the pager answers; @move, @fill, @lose: the same
 * @most: slabs that an extent may have
 * @fills: calls
 * @thin: the extent with a thin slab; %EXTENTS: none
 * @lag: pages of extent 3 that lag; @lag_bound: what the pager was told
 * @hurried: fills that keep to no rate
 * @held: a GC worker uses all slabs
 * @slabs_of: of each extent, that the pager has
 */
struct slab_worker_world {
	struct fake_slab *fakes[SLABS];
	u32 nr_fakes;
	char line[LINES][300];
	u32 lines;
	u32 wakes;
	int attach;
	int move;
	int fill;
	s64 lose;
	u32 most;
	u32 fills;
	u32 thin;
	u64 lag;
	u64 lag_bound;
	u32 hurried;
	bool held;
	u32 slabs_of[EXTENTS];
};

extern struct slab_worker_world world;
extern struct dcm_slab_worker worker;
extern struct dcm_slab_worker_ops ops; /* the pager's */

/* A slab for an extent; one that the worker is given as well. */
struct fake_slab *fake_slab_new(u32 extent, u32 donor);
struct fake_slab *fake_slab_lend(u32 extent, u32 donor);
/* The slab's donor is lost. */
void lose(struct fake_slab *l);
/* Rounds until there is nothing to do. */
void rounds(void);
/* Whether it is the slab of its extent, and is not being moved. */
bool where_is(const struct fake_slab *l);

/* Before and after each test. */
int setup(void **state);
int teardown(void **state);

#endif /* SLAB_WORKER_WORLD_H */

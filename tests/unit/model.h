/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * model.h - shared by core_model_test.c and model_control.c
 *
 * One thread plays everything, and all that happens is a function of @rng.
 */
#ifndef MODEL_H
#define MODEL_H

#include "fake_backend.h"

#define VCPUS_MAX 12

enum model_vstate { IDLE, TRY, WAIT, STALLED };

struct model_vcpu {
	enum model_vstate state;
	bool busy;
	u32 lane;
	u32 gfn;
	u32 gen;
	bool write, zero;
	u64 since; /* ticks */
	u32 turns; /* since then */
};

/* A drain of one of an extent's slabs; or a fill, without @slab. */
struct model_move {
	bool on;
	u32 extent;
	u32 cursor;
	struct dcm_slab_ref *slab;
};

/**
 * struct model_gc - a GC worker of a donor has changed a range (model_worker.c)
 * @on: the range is frozen
 * @at: how far it is spread, or reverted
 * @slab: that the worker used; %NULL: the range is being synced
 * @reverts: the spread is given up
 * @keeps: then what the worker did counts all the same
 * @until: tick at which the spread is given up
 */
struct model_gc {
	bool on;
	bool reverts;
	bool keeps;
	u32 gfn;
	u32 nr;
	u64 at;
	u64 until;
	struct dcm_slab_ref *slab;
};

struct model_world {
	struct fake_backend *fb;
	u64 rng;
	u32 workers; /* lanes of vCPUs */
	u32 client; /* the control plane's lane */
	u32 nv; /* vCPUs */
	u32 copies; /* slabs that an extent should have */
	u32 seq_at;
	u32 hot, hot_len;
	bool calm;
	bool breaks; /* connections break all the time */
	struct model_vcpu v[VCPUS_MAX];
	struct model_move mv;
	struct model_gc gc;
	u64 n_ok, n_lost, n_moves, n_pulls, n_slabs_lost, n_kills, n_discards;
	u64 n_waits, n_budget, n_fills, n_doubles;
	u64 n_lag; /* looks while pages lagged */
	u64 n_workers, n_spreads, n_reverts;
};

static inline u64 model_random(struct model_world *w, u64 n)
{
	return fb_random(&w->rng) % n;
}

static inline bool model_one_in(struct model_world *w, u64 n)
{
	return model_random(w, n) == 0;
}

/* model_control.c */

/* Do one random thing to donors, slabs, budget, tunables or pages. */
void model_control(struct model_world *w);
/* Give an extent a slab more if it has fewer than it should, and fill it. */
void model_fill_begin(struct model_world *w);
/* Go on with the move of an extent, if there is one. */
void model_move_step(struct model_world *w);
/* Tell the core of slabs that died; it may have to be told several times. */
void model_lose_dead(struct model_world *w);
/* Break the connection of a lane that has a WRITE on its way. */
void model_break_way(struct model_world *w);
/* Fetch some of the pages that hints have named; the client's lane is idle. */
void model_ahead(struct model_world *w);
/* Make donors well again, and let every move and loss come to its end. */
void model_heal(struct model_world *w);

/* model_worker.c */

/* A GC worker changes some pages. */
void model_worker_begin(struct model_world *w);
/* Go on with what it changed: spread or revert. */
void model_worker_step(struct model_world *w);
/* Is the page frozen? */
bool model_worker_holds(const struct model_world *w, u32 gfn);
/* Are pages of the extent frozen? */
bool model_worker_on(const struct model_world *w, u32 extent);

#endif /* MODEL_H */

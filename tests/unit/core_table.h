/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * core_table.h - what the table tests of the core share
 *
 * One lane, a small VM, a calm home: no delays, no errors, no sampling. Each
 * test then makes the one thing hostile that it is about.
 */
#ifndef CORE_TABLE_H
#define CORE_TABLE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "fake_home.h"
#include "fake_priv.h"

#define FLOOD_AT 1536u /* pages from here on only push others out */

static inline struct fh_config calm(void)
{
	return (struct fh_config){
		.nr_pages = 3072,
		.extent_pages = 64,
		.nr_lanes = 1,
		.nr_slabs = 128,
		.nr_donors = 2,
		.budget = 96,
		.seed = 1,
		.touched_bits = true,
	};
}

static inline void tune(struct fake_home *fh, const char *name, u64 v)
{
	assert_int_equal(dcm_tunable_set(fh->vm, name, v), 0);
}

/* A world in which nothing is left to chance. */
static inline struct fake_home *world(struct fh_config cfg)
{
	struct fake_home *fh;

	fh_alloc_live = 0; /* an earlier test may have failed half way */
	fh = fh_create(&cfg);

	tune(fh, "epsilon", 0);
	tune(fh, "sample_bp", 0);
	tune(fh, "largest_block", 4096);
	return fh;
}

static inline void end(struct fake_home *fh)
{
	fh_settle(fh);
	fh_fsck(fh, true);
	fh_destroy(fh);
	assert_int_equal(fh_alloc_live, 0);
}

static inline u64 count(const struct fake_home *fh, enum dcm_counter_id id)
{
	struct dcm_stats st;

	dcm_vm_stats(fh->vm, &st);
	return st.count[id];
}

static inline enum dcm_state state_of(const struct fake_home *fh, u32 gfn)
{
	unsigned int o = pd_order(pd_word(pd_of(fh->vm, gfn)));

	return pd_state(pd_word(pd_of(fh->vm, gfn & ~((1u << o) - 1))));
}

static inline u32 pages_of(const struct fake_home *fh, u32 gfn)
{
	return 1u << pd_order(pd_word(pd_of(fh->vm, gfn)));
}

static inline void get(struct fake_home *fh, u32 gfn)
{
	assert_int_equal(fh_access(fh, 0, gfn, false, false), 0);
}

static inline void put(struct fake_home *fh, u32 gfn)
{
	assert_int_equal(fh_access(fh, 0, gfn, true, false), 0);
}

/* Once through pages nobody cares for, until everything else is out. */
static inline void flood(struct fake_home *fh, u32 nr)
{
	static u32 at;
	u32 i;

	for (i = 0; i < nr; i++, at++)
		put(fh, FLOOD_AT + at % (fh->cfg.nr_pages - FLOOD_AT));
	fh_settle(fh);
}

static inline void push_out(struct fake_home *fh, u32 gfn, u32 nr)
{
	u64 share = dcm_tunable_get(fh->vm, DCM_T_proactive_share);
	u32 i, n;

	/* Proactive gives nothing up below its share, however long it takes. */
	tune(fh, "proactive_share", 0);
	for (n = 0; n < 50; n++) {
		bool out = true;

		/* Nor does what waits in a lane's buffer. */
		dcm_buffers_flush(fh->vm);
		for (i = gfn; i < gfn + nr; i++)
			out &= state_of(fh, i) == DCM_NOTDIRECT;
		if (out) {
			tune(fh, "proactive_share", share);
			return;
		}
		flood(fh, 400);
	}
	fh_violation(fh, "page %u can't be pushed out: %s", gfn,
		     fh_page_text(fh, gfn));
}

#endif /* CORE_TABLE_H */

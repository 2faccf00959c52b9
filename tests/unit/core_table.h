/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * core_table.h - shared by the table tests of the core
 *
 * One lane, a small VM, a calm backend: no delays, no errors, no sampling. Each
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

#include "fake_backend.h"
#include "fake_priv.h"

#define FLOOD_AT 1536u /* pages from here on only push others out */

static inline struct fb_config calm(void)
{
	return (struct fb_config){
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

static inline void tune(struct fake_backend *fb, const char *name, u64 v)
{
	assert_int_equal(fb_tunable(fb, name, v), 0);
}

/* A world in which nothing is left to chance. */
static inline struct fake_backend *world(struct fb_config cfg)
{
	struct fake_backend *fb;

	fb_alloc_live = 0; /* an earlier test may have failed half way */
	fb = fb_create(&cfg);

	tune(fb, "epsilon", 0);
	tune(fb, "sample_bp", 0);
	tune(fb, "stream", 0);
	tune(fb, "largest_block", 4096);
	return fb;
}

/* Read a page once, without waiting for it. */
static inline void glance(struct fake_backend *fb, u32 gfn)
{
	u64 content;
	int flags = fb_read(fb, gfn, &content);

	if (flags >= 0)
		fb_fault(fb, 0, gfn, (u32)flags);
	fb_advance(fb, 10);
	fb_poll(fb, 0);
}

static inline void end(struct fake_backend *fb)
{
	fb_sync(fb);
	fb_fsck(fb, true);
	fb_destroy(fb);
	assert_int_equal(fb_alloc_live, 0);
}

static inline u64 count(const struct fake_backend *fb, enum dcm_counter_id id)
{
	struct dcm_stats st;

	dcm_vm_stats(fb->vm, &st);
	return st.count[id];
}

static inline enum dcm_state state_of(const struct fake_backend *fb, u32 gfn)
{
	unsigned int o = pd_order(pd_word(pd_of(fb->vm, gfn)));

	return pd_state(pd_word(pd_of(fb->vm, gfn & ~((1u << o) - 1))));
}

static inline u32 pages_of(const struct fake_backend *fb, u32 gfn)
{
	return 1u << pd_order(pd_word(pd_of(fb->vm, gfn)));
}

static inline void get(struct fake_backend *fb, u32 gfn)
{
	assert_int_equal(fb_access(fb, 0, gfn, false, false), 0);
}

static inline void put(struct fake_backend *fb, u32 gfn)
{
	assert_int_equal(fb_access(fb, 0, gfn, true, false), 0);
}

/* Use other pages once each, until all pages of the test are evicted. */
static inline void flood(struct fake_backend *fb, u32 nr)
{
	static u32 at;
	u32 i;

	for (i = 0; i < nr; i++, at++)
		put(fb, FLOOD_AT + at % (fb->cfg.nr_pages - FLOOD_AT));
	fb_sync(fb);
}

static inline void push_out(struct fake_backend *fb, u32 gfn, u32 nr)
{
	u64 share = dcm_tunable_get(fb->vm, DCM_T_proactive_share);
	u32 i, n;

	/* Proactive never shrinks below its share: set that to 0. */
	tune(fb, "proactive_share", 0);
	for (n = 0; n < 50; n++) {
		bool out = true;

		/* Blocks in a lane's buffer are no victims either: flush it. */
		dcm_buffers_flush(fb->vm);
		for (i = gfn; i < gfn + nr; i++)
			out &= state_of(fb, i) == DCM_NOTDIRECT;
		if (out) {
			tune(fb, "proactive_share", share);
			return;
		}
		flood(fb, 400);
	}
	fb_violation(fb, "page %u can't be pushed out: %s", gfn,
		     fb_page_text(fb, gfn));
}

#endif /* CORE_TABLE_H */

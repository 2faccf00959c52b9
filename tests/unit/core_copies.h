/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * core_copies.h - an extent with several slabs, for the table tests of the core
 *
 * The first extent has several slabs, on different donors, and all its pages are
 * there. The other extents have one slab each.
 */
#ifndef CORE_COPIES_H
#define CORE_COPIES_H

#include "core_table.h"

#define PAGES 64u /* of the first extent */
#define PAGE 9u

/* Another slab for an extent, of a donor. */
static inline struct fb_slab *attach(struct fake_backend *fb, u32 extent,
				     u32 donor)
{
	u32 i;

	for (i = 0; i < fb->cfg.nr_slabs; i++)
		if (fb->slab[i].state == FH_SLAB_FREE &&
		    fb->slab[i].donor == donor)
			break;
	assert_true(i < fb->cfg.nr_slabs);
	assert_ptr_equal(fb_slab_take(fb, i, -1), &fb->slab[i]);
	assert_int_equal(fb_slab_attach(fb, &fb->slab[i], extent), 0);
	return &fb->slab[i];
}

/* The first extent has @copies slabs; its pages have left. With sums, or sealed. */
static inline struct fake_backend *copies_world_of(u32 copies, bool seal)
{
	struct fb_config cfg = calm();
	struct fake_backend *fb;
	u32 i;

	cfg.seal = seal;
	cfg.nr_lanes = 2;
	cfg.nr_donors = 4;
	cfg.nr_slabs = 256;
	cfg.sums = !seal;
	fb = world(cfg);
	for (i = 0; i < copies; i++)
		attach(fb, 0, i);
	for (i = 1; i < fb->vm->nr_extents; i++)
		attach(fb, i, 3);
	for (i = 0; i < PAGES; i++)
		put(fb, i);
	push_out(fb, 0, PAGES);
	return fb;
}

static inline struct fake_backend *copies_world(u32 copies)
{
	return copies_world_of(copies, false);
}

/* The slots that have a page, a bit each. */
static inline u8 at(const struct fake_backend *fb, u32 gfn)
{
	return pd_at(pd_word(pd_of(fb->vm, gfn)));
}

/* The slab in a slot of the first extent. */
static inline struct fb_slab *slab(struct fake_backend *fb, u32 slot)
{
	return fb_slab_of(fb, fb->vm->extent[0].slot[slot].slab);
}

/* That slab is lost; how many pages are, or an errno. */
static inline s64 lose(struct fake_backend *fb, u32 slot)
{
	struct fb_slab *s = slab(fb, slot);
	s64 r = -EAGAIN;
	u32 n;

	fb_slab_kill(fb, s);
	for (n = 0; n < 1000 && r == -EAGAIN; n++) {
		r = dcm_extent_lost(&fb->vm->lane[1], 0, &s->ref);
		fb_advance(fb, 100);
		fb_poll(fb, 0);
		fb_poll(fb, 1);
	}
	fb_lost_scan(fb, 0);
	fb_slab_free(fb, s);
	return r;
}

/* All connections to a donor break, until then. */
static inline void break_ways(struct fake_backend *fb, u32 donor,
			      u64 welcome_at)
{
	u32 i;

	for (i = 0; i < fb->cfg.nr_lanes; i++) {
		fb_way_break(fb, i, donor);
		fb->lane[i].way[donor].welcome_at = welcome_at;
	}
}

/* Go on with a fill of the first extent, while both lanes run; the second is the control plane's. */
static inline void fill_on(struct fake_backend *fb, u32 cursor)
{
	u32 n;

	for (n = 0; dcm_extent_fill(&fb->vm->lane[1], 0, &cursor); n++) {
		assert_true(n < 100000);
		fb_advance(fb, 10);
		fb_poll(fb, 0);
		fb_poll(fb, 1);
	}
	assert_false(fb->vm->extent[0].thin);
}

/* Copy what slabs of the first extent lack. */
static inline void fill(struct fake_backend *fb)
{
	fill_on(fb, 0);
}

/* Pages from here on are on no slab, zero; to be looked at, so that others leave. */
#define ZEROES 1100u

/* Read a page that is not expected to be written, when no other is dirty. */
static inline void get_clean(struct fake_backend *fb, u32 gfn)
{
	u32 i;

	for (i = 0; i < 300; i++)
		get(fb, ZEROES + i);
	pd_clear(pd_of(fb->vm, gfn), PD_WROTE);
	get(fb, gfn);
}

/* Take all pages off a slab of the first extent, and give it back. */
static inline int drain(struct fake_backend *fb, struct fb_slab *s)
{
	u32 cursor = 0, n;
	int r = -EAGAIN;

	for (n = 0; n < 100000 && r == -EAGAIN; n++) {
		r = dcm_extent_drain(&fb->vm->lane[1], 0, &s->ref, &cursor);
		fb_advance(fb, 10);
		fb_poll(fb, 0);
		fb_poll(fb, 1);
	}
	if (!r)
		fb_slab_free(fb, s);
	return r;
}

#endif /* CORE_COPIES_H */

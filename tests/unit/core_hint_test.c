// SPDX-License-Identifier: GPL-2.0-or-later
/* links: CORE FAKE */
/*
 * core_hint_test.c - the queues obey the hints of the owner of pages
 */
#include "core_table.h"

#define BUDGET	256u
#define KEPT	48u	/* less than a quarter of it */

/* The control plane's turn. */
static void give(void *arg)
{
	fb_give_slabs(*(struct fake_backend **)arg, 1);
}

static struct fake_backend *fake;

static u32 here(struct fake_backend *fb, u32 from, u32 nr)
{
	u32 n = 0, i;

	for (i = from; i < from + nr; i++)
		n += state_of(fb, i) != DCM_NOTDIRECT;
	return n;
}

static void check(struct fake_backend *fb, u32 gfn)
{
	get(fb, gfn);
	assert_int_equal(fb_read_checked(fb, gfn), FH_OK);
}

static struct fake_backend *hint_world(u64 block)
{
	struct fb_config cfg = calm();

	cfg.budget = BUDGET;
	cfg.idle = give;
	cfg.arg = &fake;
	fake = world(cfg);
	tune(fake, "largest_block", block);
	tune(fake, "fresh_block", block);
	/* pages that come back soon would become Proactive without a hint */
	tune(fake, "ghost_share", 0);
	return fake;
}

/* Pages with a hint stay direct, whether direct at the hint or not, until NORMAL. */
static void kept_of(u64 block)
{
	struct fake_backend *fb = hint_world(block);
	u32 i;

	for (i = 0; i < KEPT / 2; i++)
		put(fb, i);
	fb_hint(fb, 0, 0, KEPT, DCM_HINT_DIRECT);
	for (i = KEPT / 2; i < KEPT; i++)
		put(fb, i);
	flood(fb, 4 * BUDGET);
	assert_int_equal(here(fb, 0, KEPT), KEPT);
	assert_true(count(fb, DCM_C_KEPT) > 0);
	fb_fsck(fb, false);

	/* synced, as for a collection, they are evicted; once back they stay again */
	assert_int_equal(fb_to_donor(fb, 0, 0, KEPT, false, 1000000000ull), 0);
	assert_int_equal(here(fb, 0, KEPT), 0);
	assert_int_equal(fb->vm->kept.nr_pages, 0);
	for (i = 0; i < KEPT; i++)
		get(fb, i);
	flood(fb, 4 * BUDGET);
	assert_int_equal(here(fb, 0, KEPT), KEPT);

	fb_hint(fb, 0, 0, KEPT, DCM_HINT_NORMAL);
	assert_int_equal(fb->vm->kept.nr_pages, 0);
	flood(fb, 4 * BUDGET);
	assert_in_range(here(fb, 0, KEPT), 0, KEPT / 4);
	/* the content is unchanged */
	for (i = 0; i < KEPT; i++)
		check(fb, i);
	fb_fsck(fb, false);
	end(fb);
}

static void kept(void **state)
{
	(void)state;
	kept_of(4096);
	kept_of(65536);
}

/* A quarter of the budget at most; a smaller budget keeps less. */
static void kept_bounded(void **state)
{
	struct fake_backend *fb = hint_world(16384);
	u32 i;

	(void)state;
	fb_hint(fb, 0, 0, 1024, DCM_HINT_DIRECT);
	for (i = 0; i < 1024; i++)
		put(fb, i);
	flood(fb, 4 * BUDGET);
	/* [VGC-D-47] */
	assert_in_range(fb->vm->kept.nr_pages, BUDGET / 4 - 16, BUDGET / 4);
	/* the rest of the memory is usable */
	for (i = FLOOD_AT; i < FLOOD_AT + 1024; i++)
		check(fb, i);
	assert_int_equal(fb_budget(fb, BUDGET / 2), 0);
	flood(fb, 4 * BUDGET);
	assert_in_range(fb->vm->kept.nr_pages, BUDGET / 8 - 16, BUDGET / 8);
	fb_fsck(fb, false);
	end(fb);
}

/*
 * Kept and Proactive pages left no room for others: a page that had just been fetched
 * was unmapped before it could be used.
 */
static void fetched_beside_kept(void **state)
{
	struct fake_backend *fb = hint_world(4096);
	u32 i, n, gone = 0;

	(void)state;
	fb_hint(fb, 0, 0, BUDGET / 4, DCM_HINT_DIRECT);
	for (i = 0; i < BUDGET / 4; i++)
		put(fb, i);
	/* what comes back soon fills Proactive */
	tune(fb, "ghost_share", 40000);
	for (n = 0; n < 4; n++)
		for (i = 512; i < 512 + BUDGET; i++)
			put(fb, i);
	tune(fb, "ghost_share", 0);
	flood(fb, 2 * BUDGET);
	assert_int_equal(fb->vm->kept.nr_pages, BUDGET / 4);
	for (i = 1024; i < 1024 + 64; i++) {
		put(fb, i);
		fb_balance(fb, 0);
		gone += state_of(fb, i) != DCM_ACTIVE;
	}
	assert_int_equal(gone, 0);
	fb_fsck(fb, false);
	end(fb);
}

/* Given up, the memory's next owner has no hints. */
static void kept_discarded(void **state)
{
	struct fake_backend *fb = hint_world(16384);
	u32 i;

	(void)state;
	fb_hint(fb, 0, 0, KEPT, DCM_HINT_DIRECT);
	for (i = 0; i < KEPT; i++)
		put(fb, i);
	flood(fb, 4 * BUDGET);
	assert_true(fb->vm->kept.nr_pages > 0);
	fb_discard(fb, 0, 0, KEPT);
	assert_int_equal(fb->vm->kept.nr_pages, 0);
	for (i = 0; i < KEPT; i++)
		put(fb, i);
	flood(fb, 4 * BUDGET);
	assert_int_equal(fb->vm->kept.nr_pages, 0);
	fb_fsck(fb, false);
	end(fb);
}

/* The newest goes before all that is older. */
static void cold(void **state)
{
	struct fake_backend *fb = hint_world(4096);
	u32 i;

	(void)state;
	for (i = 0; i < BUDGET - 80; i++)
		put(fb, i);
	fb_hint(fb, 0, BUDGET - 80 - 32, 32, DCM_HINT_COLD);
	assert_int_equal(count(fb, DCM_C_COLD), 32);
	for (i = FLOOD_AT; i < FLOOD_AT + 120; i++)
		put(fb, i);
	assert_in_range(here(fb, BUDGET - 80 - 32, 32), 0, 8);
	assert_true(here(fb, 0, BUDGET - 80 - 32) > 100);
	for (i = 0; i < BUDGET - 80; i++)
		check(fb, i);
	fb_fsck(fb, false);
	end(fb);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kept),
		cmocka_unit_test(kept_bounded),
		cmocka_unit_test(fetched_beside_kept),
		cmocka_unit_test(kept_discarded),
		cmocka_unit_test(cold),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

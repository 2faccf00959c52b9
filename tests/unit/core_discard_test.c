// SPDX-License-Identifier: GPL-2.0-or-later
/* links: CORE FAKE */
/*
 * core_discard_test.c - any part of a block, in any state
 */
#include "core_table.h"

/* A block of 16 pages at 32, written, in state @s. */
static struct fake_backend *block_in(enum dcm_state s, bool zero_hole)
{
	struct fb_config cfg = calm();
	struct fake_backend *fb;
	u32 i, n;

	cfg.budget = 256;
	fb = world(cfg);
	tune(fb, "largest_block", 65536);
	tune(fb, "elastic", 0);
	for (i = 32; i < 48; i++)
		assert_int_equal(fb_access(fb, 0, i, true,
					   zero_hole && i % 5 == 0),
				 0);
	assert_int_equal(pages_of(fb, 32), 16);
	if (s == DCM_ACTIVE)
		return fb;
	if (s == DCM_NOTDIRECT) {
		push_out(fb, 32, 16);
		return fb;
	}
	/* Step by step, until the page is in state @s. */
	fb->cfg.max_delay = s == DCM_WRITEBACK ? 500 : 0;
	for (n = FLOOD_AT; n < FLOOD_AT + 1400; n++) {
		enum dcm_state want = s == DCM_PROACTIVE ? DCM_INACTIVE : s;
		int f;

		if (state_of(fb, 32) == want)
			break;
		fb_give_slabs(fb, n);
		f = fb_write(fb, n, false);
		if (f >= 0)
			fb_fault(fb, 0, n, (u32)f);
		fb_write(fb, n, false);
		fb_advance(fb, 1);
		fb_poll(fb, 0);
		if (s == DCM_WRITEBACK)
			fb_balance(fb, 0);
	}
	if (s == DCM_PROACTIVE)
		get(fb, 32);
	assert_int_equal(state_of(fb, 32), s);
	assert_int_equal(pages_of(fb, 32), 16);
	return fb;
}

static void one(enum dcm_state s, u32 from, u32 nr, bool hole)
{
	struct fake_backend *fb = block_in(s, hole);
	bool was_zero[16];
	u32 i;

	for (i = 0; i < 16; i++)
		was_zero[i] = fb->truth[32 + i] & 1;
	fb_discard(fb, 0, 32 + from, nr);
	fb_fsck(fb, false);
	/* discarded pages are zero, the rest are unchanged */
	for (i = 0; i < 16; i++) {
		bool gone = i >= from && i < from + nr;

		assert_int_equal(!!(fb->truth[32 + i] & 1),
				 gone || was_zero[i]);
		if (gone)
			assert_false(pd_word(pd_of(fb->vm, 32 + i)) &
				     (PD_AT | PD_LOST | PD_DIRTY));
	}
	for (i = 0; i < 16; i++)
		get(fb, 32 + i);
	fb->cfg.max_delay = 0;
	fb_advance(fb, 200000);
	push_out(fb, 32, 16);
	for (i = 0; i < 16; i++)
		get(fb, 32 + i);
	/* and the pages can be used again */
	for (i = 0; i < 16; i++)
		put(fb, 32 + i);
	push_out(fb, 32, 16);
	for (i = 0; i < 16; i++)
		get(fb, 32 + i);
	assert_int_equal(count(fb, DCM_C_DISCARDED_PAGES), nr);
	end(fb);
}

static void test_every_state(void **state)
{
	static const u32 part[][2] = {
		{ 0, 16 }, { 0, 1 }, { 15, 1 }, { 0, 8 },
		{ 5, 3 },  { 8, 8 }, { 1, 15 }, { 0, 15 }
	};
	u32 s, i, hole;

	(void)state;
	for (s = 0; s < DCM_NR_STATES; s++)
		for (i = 0; i < ARRAY_SIZE(part); i++)
			for (hole = 0; hole < 2; hole++)
				one((enum dcm_state)s, part[i][0], part[i][1],
				    hole);
}

/* A discard while the block is being fetched waits, and still wins. */
static void test_while_fetched(void **state)
{
	struct fake_backend *fb = block_in(DCM_NOTDIRECT, false);
	u32 i;

	(void)state;
	fb->cfg.max_delay = 500;
	assert_int_equal(fb_fault(fb, 0, 34, 0), DCM_FAULT_PENDING);
	fb_discard(fb, 0, 33, 4);
	for (i = 32; i < 48; i++)
		get(fb, i);
	end(fb);
}

/*
 * A discard is killed while it waits for a fetch that no donor answers: it ends,
 * and pages that it had not reached are unchanged. (Discards were not killable.)
 */
static void test_given_up(void **state)
{
	struct fake_backend *fb = block_in(DCM_NOTDIRECT, false);
	struct dcm_lane *lane = &fb->vm->lane[0];
	u32 i;

	(void)state;
	fb->cfg.max_delay = 1000000;
	assert_int_equal(fb_fault(fb, 0, 34, 0), DCM_FAULT_PENDING);
	fb->give_up = true;
	assert_false(dcm_discard(lane, 32, 16));
	fb->give_up = false;
	fb->cfg.max_delay = 100;
	for (i = 32; i < 48; i++)
		get(fb, i);
	end(fb);
}

/* Over everything, and beyond the end. */
static void test_ranges(void **state)
{
	struct fb_config cfg = calm();
	struct fake_backend *fb = world(cfg);
	u32 i;

	(void)state;
	for (i = 0; i < 700; i++)
		put(fb, i);
	dcm_discard(&fb->vm->lane[0], cfg.nr_pages, 1);
	dcm_discard(&fb->vm->lane[0], U64_MAX, 5);
	dcm_discard(&fb->vm->lane[0], 5, 0);
	dcm_discard(&fb->vm->lane[0], 5, U64_MAX);
	fb_fsck(fb, false);
	for (i = 0; i < 700; i++)
		get(fb, i);
	fb_discard(fb, 0, 0, cfg.nr_pages);
	assert_int_equal(fb->mapped, 0);
	for (i = 0; i < 700; i++)
		get(fb, i);
	assert_int_equal(count(fb, DCM_C_LOST_PAGES), 0);
	end(fb);
}

/* Discarded, its write-back cancelled in flight, written again: the new one. */
static void test_write_after(void **state)
{
	struct fake_backend *fb = block_in(DCM_WRITEBACK, false);
	u32 i;

	(void)state;
	fb_discard(fb, 0, 32, 16);
	for (i = 32; i < 48; i++)
		put(fb, i);
	fb->cfg.max_delay = 100;
	for (i = 0; i < 600; i++)
		put(fb, FLOOD_AT + i);
	fb_advance(fb, 200000);
	push_out(fb, 32, 16);
	for (i = 32; i < 48; i++)
		get(fb, i);
	end(fb);
}

/* Freed memory is dropped by one operation, not by one a block. */
static void test_together(void **state)
{
	struct fb_config cfg = calm();
	struct fake_backend *fb;
	u64 ops;
	u32 i;

	(void)state;
	cfg.budget = 1200;
	fb = world(cfg);
	for (i = 0; i < 600; i++)
		put(fb, i);
	fb_discard(fb, 0, 3, 550);
	ops = fb->nr_discard_ops;
	assert_in_range(ops, 1, 2);
	assert_int_equal(fb->mapped, 50);
	fb_fsck(fb, false);
	/* a page that is not here parts them */
	for (i = 3; i < 553; i++)
		if (i != 200)
			put(fb, i);
	ops = fb->nr_discard_ops;
	fb_discard(fb, 0, 3, 550);
	assert_in_range(fb->nr_discard_ops - ops, 2, 3);
	assert_int_equal(fb->mapped, 50);
	for (i = 0; i < 600; i++)
		get(fb, i);
	end(fb);
}

/* Pages of different 2 MiB are dropped in calls of their own: huge pages go whole. */
static void test_spans_apart(void **state)
{
	struct fb_config cfg = calm();
	struct fake_backend *fb;
	u32 i;

	(void)state;
	cfg.budget = 2048;
	fb = world(cfg);
	for (i = 0; i < 1536; i++)
		put(fb, i);
	fb_discard(fb, 0, 300, 1000);
	assert_int_equal(fb->nr_discard_ops, 3);
	assert_int_equal(fb->mapped, 536);
	fb_fsck(fb, false);
	end(fb);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_state),
		cmocka_unit_test(test_while_fetched),
		cmocka_unit_test(test_given_up),
		cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_write_after),
		cmocka_unit_test(test_together),
		cmocka_unit_test(test_spans_apart),
	};

	return cmocka_run_group_tests_name("core_discard", tests, NULL, NULL);
}

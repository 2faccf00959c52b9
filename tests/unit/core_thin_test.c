// SPDX-License-Identifier: GPL-2.0-or-later
/* links: CORE FAKE */
/*
 * core_thin_test.c - pages that not every slab of their extent has
 *
 * A donor does not answer, or breaks off while a page is on its way: the page is
 * thin, or in doubt, until that donor is well.
 */
#include "core_copies.h"

/* Use other pages, of extents with one slab, some of them written. */
static void use_others(struct fake_backend *fb, u32 nr)
{
	static u32 page;
	u32 i;

	for (i = 0; i < nr; i++, page++) {
		u32 gfn = FLOOD_AT + page % 1000;

		assert_int_equal(fb_access(fb, 0, gfn, page & 1, false), 0);
		fb_balance(fb, 0);
	}
}

static bool leave_all(const struct fake_backend *fb)
{
	u32 i;

	for (i = 0; i < 4; i++)
		if (state_of(fb, PAGE + i) != DCM_NOTDIRECT)
			return false;
	return true;
}

/* Written while one donor does not answer: the page waits, and then is thin. */
static void test_thin_after_a_while(void **state)
{
	struct fake_backend *fb = copies_world(2);
	u64 began;
	u32 i;

	(void)state;
	tune(fb, "proactive_share", 0);
	break_ways(fb, 1, ~0ull);
	began = fb->tick;
	put(fb, PAGE);
	/* the first write-back finds out, and goes to one slot */
	for (i = 1; i < 4; i++)
		put(fb, PAGE + i);
	for (i = 0; !leave_all(fb); i++) {
		assert_true(i < 20000);
		use_others(fb, 1);
		fb_advance(fb, 100); /* 0.1 ms */
		if (fb->tick - began < 150000)
			/* one that found out, and one that tried again */
			assert_true(count(fb, DCM_C_THIN_PAGES) <= 2);
	}
	for (i = 0; i < 4; i++)
		assert_int_equal(at(fb, PAGE + i), 1);
	assert_true(count(fb, DCM_C_THIN_PAGES) >= 4);
	assert_true(fb->tick - began >= 200000);
	assert_true(fb->vm->extent[0].thin);
	/* the others are as they were, and all can be read */
	assert_int_equal(at(fb, PAGE + 4), 3);
	for (i = 0; i < PAGES; i++)
		get(fb, i);
	end(fb);
}

/*
 * A thin page that is clean, and here, is written to the slot that lacks it when
 * it leaves, once its donor is well.
 */
static void test_thin_page_is_made_whole_when_it_leaves(void **state)
{
	struct fake_backend *fb = copies_world(2);
	u64 writes;
	u32 i;

	(void)state;
	tune(fb, "thin_after", 0);
	tune(fb, "proactive_share", 0);
	break_ways(fb, 1, ~0ull);
	put(fb, PAGE);
	push_out(fb, PAGE, 1);
	assert_int_equal(at(fb, PAGE), 1);
	break_ways(fb, 1, 0);
	fb_advance(fb, 1000000);
	/* no write is expected any more of a page that was just read */
	pd_clear(pd_of(fb->vm, PAGE), PD_WROTE);
	get(fb, PAGE);
	assert_false(pd_word(pd_of(fb->vm, PAGE)) & PD_DIRTY);
	writes = fb->nr_writes;
	for (i = 0; state_of(fb, PAGE) != DCM_NOTDIRECT; i++) {
		assert_true(i < 4000);
		glance(fb, i % 400 + FLOOD_AT);
	}
	assert_true(fb->nr_writes > writes);
	assert_int_equal(at(fb, PAGE), 3);
	end(fb);
}

/*
 * PAGE is on its way to two donors. The first lane's connections to donors of
 * @broken, a bit each, break; the others' WRITEs arrive.
 */
static struct fake_backend *cut_world(u8 broken, u64 thin_after)
{
	struct fake_backend *fb = copies_world(2);
	u32 i;

	tune(fb, "proactive_share", 0);
	tune(fb, "thin_after", thin_after);
	/* no other page is dirty */
	for (i = 0; i < 300; i++)
		get(fb, ZEROES + i);
	fb_sync(fb);
	put(fb, PAGE);
	fb_sync(fb);
	fb->cfg.max_delay = 1000000000;
	for (i = 0; state_of(fb, PAGE) != DCM_WRITEBACK; i++) {
		assert_true(i < 2000);
		glance(fb, ZEROES + i % 400);
	}
	fb->cfg.max_delay = 0;
	for (i = 0; i < 2; i++) {
		if (!(broken >> i & 1))
			continue;
		fb_way_break(fb, 0, i);
		fb->lane[0].way[i].welcome_at = ~0ull;
	}
	return fb;
}

/* All WRITEs end. */
static void writes_end(struct fake_backend *fb)
{
	u32 i;

	for (i = 0; i < fb->lane[0].nr_io; i++)
		fb->lane[0].io[i].due = fb->tick;
	fb_poll(fb, 0);
}

/* As cut_world(), and the WRITEs have ended. */
static struct fake_backend *doubt_world(u8 broken, u64 thin_after)
{
	struct fake_backend *fb = cut_world(broken, thin_after);

	writes_end(fb);
	assert_true(pd_inflight(pd_of(fb->vm, PAGE)));
	return fb;
}

static void welcome(struct fake_backend *fb, u32 donor)
{
	fb->lane[0].way[donor].welcome_at = 0;
	fb_poll(fb, 0);
	fb_poll(fb, 0);
}

/*
 * One WRITE of two fails with its connection. The page is on the other slot, and
 * may be read; but it is not written again before that WRITE can't land.
 */
static void test_half_in_doubt(void **state)
{
	struct fake_backend *fb = doubt_world(2, 0);
	u32 i;

	(void)state;
	assert_int_equal(state_of(fb, PAGE), DCM_NOTDIRECT);
	assert_int_equal(at(fb, PAGE), 1);
	assert_true(pd_inflight(pd_of(fb->vm, PAGE)));
	assert_int_equal(fb_access(fb, 1, PAGE, true, false), 0);
	for (i = 0; i < 300; i++)
		assert_int_equal(fb_access(fb, 1, FLOOD_AT + i, true, false),
				 0);
	assert_int_not_equal(state_of(fb, PAGE), DCM_NOTDIRECT);
	fb->lane[0].way[1].welcome_at = 0;
	fb_sync(fb);
	assert_false(pd_inflight(pd_of(fb->vm, PAGE)));
	push_out(fb, PAGE, 1);
	assert_int_equal(at(fb, PAGE), 3);
	end(fb);
}

/* A lane takes PAGE's block for a victim. */
static bool evict(struct fake_backend *fb, u32 lane)
{
	unsigned int order;
	u32 head = dcm_block_lock(fb->vm, PAGE, &order);

	dcm_queue_out(fb->vm, head, order);
	return dcm_evict_block(&fb->vm->lane[lane], head, false);
}

/* Use pages of other extents on both lanes, which evict what can go. */
static void use_both(struct fake_backend *fb)
{
	u32 i;

	for (i = 0; i < 600; i++)
		assert_int_equal(fb_access(fb, i & 1, FLOOD_AT + i % 500, false,
					   false),
				 0);
}

/* A lane takes PAGE's block for a victim: both donors get it. The test is over. */
static void leaves_whole(struct fake_backend *fb, u32 lane)
{
	assert_true(evict(fb, lane));
	fb_sync(fb);
	assert_int_equal(state_of(fb, PAGE), DCM_NOTDIRECT);
	assert_int_equal(at(fb, PAGE), 3);
	end(fb);
}

/*
 * One WRITE of two fails with its connection, which is there again soon: the page
 * does not leave before both donors have it.
 */
static void test_cut_off_for_a_moment_makes_nothing_thin(void **state)
{
	struct fake_backend *fb = doubt_world(2, 200);

	(void)state;
	assert_int_equal(state_of(fb, PAGE), DCM_INACTIVE);
	assert_int_equal(at(fb, PAGE), 1);
	use_both(fb);
	assert_int_equal(state_of(fb, PAGE), DCM_INACTIVE);
	/* nor does a lane that was not cut off take it for a victim */
	assert_false(evict(fb, 1));
	assert_int_equal(state_of(fb, PAGE), DCM_INACTIVE);
	welcome(fb, 1);
	assert_false(pd_inflight(pd_of(fb->vm, PAGE)));
	leaves_whole(fb, 1);
}

/*
 * As above, and the donor is back before the other one has answered: no donor is down
 * when the write-back ends.
 */
static void test_donor_back_before_the_other_answers(void **state)
{
	struct fake_backend *fb = cut_world(2, 200);

	(void)state;
	fb_poll(fb, 0);
	assert_int_equal(state_of(fb, PAGE), DCM_WRITEBACK);
	assert_true(fb->vm->lane[0].down);
	welcome(fb, 1);
	assert_int_equal(fb->vm->lane[0].down, 0);
	assert_int_equal(state_of(fb, PAGE), DCM_WRITEBACK);
	writes_end(fb);
	assert_int_equal(state_of(fb, PAGE), DCM_INACTIVE);
	assert_int_equal(at(fb, PAGE), 1);
	leaves_whole(fb, 0);
}

/*
 * A donor that lets the lane connect, and breaks off at each WRITE: the page leaves all the
 * same once that has gone on for thin_after, so such a donor holds up nobody.
 */
static void test_donor_that_breaks_off_at_each_write(void **state)
{
	struct fake_backend *fb = doubt_world(2, 200);
	u32 i;

	(void)state;
	for (i = 0; state_of(fb, PAGE) == DCM_INACTIVE; i++) {
		assert_true(i < 20);
		welcome(fb, 1);
		fb_advance(fb, 20000);
		fb->cfg.max_delay = 1000000000;
		evict(fb, 0);
		fb->cfg.max_delay = 0;
		if (state_of(fb, PAGE) != DCM_WRITEBACK)
			continue;
		fb_way_break(fb, 0, 1);
		fb->lane[0].way[1].welcome_at = ~0ull;
		writes_end(fb);
	}
	assert_int_equal(state_of(fb, PAGE), DCM_NOTDIRECT);
	assert_int_equal(at(fb, PAGE), 1);
	assert_true(fb->vm->extent[0].thin);
	/* it tried for about as long */
	assert_in_range(i, 9, 13);
	welcome(fb, 1);
	fill(fb);
	assert_int_equal(at(fb, PAGE), 3);
	end(fb);
}

/* It stays for thin_after, and no longer. */
static void test_cut_off_for_long_keeps_no_page(void **state)
{
	struct fake_backend *fb = doubt_world(2, 200);

	(void)state;
	assert_int_equal(state_of(fb, PAGE), DCM_INACTIVE);
	fb_advance(fb, 300000);
	use_both(fb);
	assert_int_equal(state_of(fb, PAGE), DCM_NOTDIRECT);
	assert_int_equal(at(fb, PAGE), 1);
	assert_true(fb->vm->extent[0].thin);
	welcome(fb, 1);
	fill(fb);
	assert_int_equal(at(fb, PAGE), 3);
	end(fb);
}

/* Both WRITEs fail: the doubt ends with the last of both donors' welcomes. */
static void test_all_in_doubt(void **state)
{
	struct fake_backend *fb = doubt_world(3, 0);

	(void)state;
	assert_int_equal(state_of(fb, PAGE), DCM_INACTIVE);
	assert_int_equal(fb->vm->lane[0].nr_doubt, 1);
	welcome(fb, 1);
	assert_true(pd_inflight(pd_of(fb->vm, PAGE)));
	welcome(fb, 0);
	assert_false(pd_inflight(pd_of(fb->vm, PAGE)));
	push_out(fb, PAGE, 1);
	assert_int_equal(at(fb, PAGE), 3);
	end(fb);
}

/* A lane whose connection is well does not fill in what is in doubt either. */
static void test_no_fill_in_doubt(void **state)
{
	struct fake_backend *fb = doubt_world(2, 0);
	u32 cursor = 0, i;

	(void)state;
	assert_int_equal(at(fb, PAGE), 1);
	for (i = 0; i < 20; i++) {
		assert_int_equal(dcm_extent_fill(&fb->vm->lane[1], 0, &cursor),
				 -EAGAIN);
		fb_advance(fb, 10);
		fb_poll(fb, 1);
	}
	assert_int_equal(at(fb, PAGE), 1);
	welcome(fb, 1);
	for (i = 0; dcm_extent_fill(&fb->vm->lane[1], 0, &cursor); i++) {
		assert_true(i < 100);
		fb_advance(fb, 10);
		fb_poll(fb, 1);
	}
	assert_int_equal(at(fb, PAGE), 3);
	end(fb);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_thin_after_a_while),
		cmocka_unit_test(test_thin_page_is_made_whole_when_it_leaves),
		cmocka_unit_test(test_half_in_doubt),
		cmocka_unit_test(test_cut_off_for_a_moment_makes_nothing_thin),
		cmocka_unit_test(test_donor_back_before_the_other_answers),
		cmocka_unit_test(test_donor_that_breaks_off_at_each_write),
		cmocka_unit_test(test_cut_off_for_long_keeps_no_page),
		cmocka_unit_test(test_all_in_doubt),
		cmocka_unit_test(test_no_fill_in_doubt),
	};

	return cmocka_run_group_tests_name("core_thin", tests, NULL, NULL);
}

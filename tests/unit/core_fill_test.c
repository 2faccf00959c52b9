// SPDX-License-Identifier: GPL-2.0-or-later
/* links: CORE FAKE */
/*
 * core_fill_test.c - a slab that is added is filled, one that goes is drained
 *
 * By a lane of the control plane, while the guest's uses the extent; donors fall
 * silent and die meanwhile.
 */
#include "core_copies.h"

static void test_fill(void **state)
{
	struct fake_backend *fb = copies_world(1);
	u32 cursor = 0, i;

	(void)state;
	assert_int_equal(dcm_extent_fill(&fb->vm->lane[1], 0, &cursor), 0);
	assert_int_equal(count(fb, DCM_C_FILLED_PAGES), 0);
	get(fb, 5); /* here: copied when it leaves */
	fb_discard(fb, 0, 6, 1); /* zero: on no slab */
	attach(fb, 0, 1);
	attach(fb, 0, 2);
	assert_true(fb->vm->extent[0].thin);
	fill(fb);
	assert_int_equal(count(fb, DCM_C_FILLED_PAGES), PAGES - 2);
	push_out(fb, 5, 1);
	for (i = 0; i < PAGES; i++)
		assert_int_equal(at(fb, i), i == 6 ? 0 : 7);
	fb_fsck(fb, true);
	assert_int_equal(lose(fb, 0), 0);
	assert_int_equal(lose(fb, 1), 0);
	for (i = 0; i < PAGES; i++)
		get(fb, i);
	end(fb);
}

/*
 * A page is here, clean, when a second slab is filled. Then the donor that alone
 * had it falls silent, the page leaves, and that donor is given up.
 */
static void filled_while_here(bool thin)
{
	struct fake_backend *fb = copies_world(1);

	tune(fb, "thin_after", 0);
	tune(fb, "proactive_share", 0);
	pd_clear(pd_of(fb->vm, PAGE), PD_WROTE);
	get(fb, PAGE);
	assert_false(pd_word(pd_of(fb->vm, PAGE)) & PD_DIRTY);
	attach(fb, 0, 1);
	fill(fb);
	assert_int_not_equal(state_of(fb, PAGE), DCM_NOTDIRECT);
	break_ways(fb, 0, ~0ull);
	/* the lane finds out by another page, which may be thin already */
	fb->vm->extent[0].thin = thin;
	put(fb, PAGE + 1);
	push_out(fb, PAGE + 1, 1);
	push_out(fb, PAGE, 1);
	assert_int_equal(lose(fb, 0), 0);
	get(fb, PAGE);
	end(fb);
}

static void test_filled_while_here_and_clean(void **state)
{
	(void)state;
	filled_while_here(false);
	filled_while_here(true);
}

/*
 * A page leaves, clean, when the fill has passed it by, and the lane can't write it to
 * the slot that lacks it: the fill comes again.
 */
static void test_leaves_behind_the_fill(void **state)
{
	struct fake_backend *fb = copies_world(1);
	u32 cursor = 0;

	(void)state;
	tune(fb, "thin_after", 0);
	tune(fb, "proactive_share", 0);
	pd_clear(pd_of(fb->vm, 0), PD_WROTE);
	get(fb, 0);
	attach(fb, 0, 1);
	assert_int_equal(dcm_extent_fill(&fb->vm->lane[1], 0, &cursor),
			 -EAGAIN);
	assert_true(cursor > 0 && cursor < PAGES);
	dcm_lane_down(&fb->vm->lane[0], 1);
	push_out(fb, 0, 1);
	assert_int_equal(at(fb, 0), 1);
	fill_on(fb, cursor);
	assert_int_equal(at(fb, 0), 3);
	end(fb);
}

/* Both donors fall silent: the page stays until one takes it. */
static void test_filled_while_here_and_none_answers(void **state)
{
	struct fake_backend *fb = copies_world(1);
	u32 i;

	(void)state;
	tune(fb, "thin_after", 0);
	tune(fb, "proactive_share", 0);
	get_clean(fb, PAGE);
	attach(fb, 0, 1);
	fill(fb);
	break_ways(fb, 0, ~0ull);
	break_ways(fb, 1, ~0ull);
	for (i = 0; i < 4000; i++)
		glance(fb, ZEROES + i % 400);
	assert_int_equal(state_of(fb, PAGE), DCM_INACTIVE);
	/* the second can be reached again */
	break_ways(fb, 1, 0);
	assert_int_equal(lose(fb, 0), 0);
	push_out(fb, PAGE, 1);
	assert_int_equal(at(fb, PAGE), 2);
	get(fb, PAGE);
	end(fb);
}

/*
 * As above, and both donors are well: the page goes to the second one only. The
 * first is the primary, and its GC worker would see a write.
 */
static void test_here_when_filled_and_written_to_one(void **state)
{
	struct fake_backend *fb = copies_world(1);
	u64 writes;
	u32 i;

	(void)state;
	tune(fb, "proactive_share", 0);
	get_clean(fb, PAGE);
	attach(fb, 0, 1);
	fill(fb);
	assert_int_equal(at(fb, PAGE), 1);
	writes = fb->nr_writes;
	for (i = 0; state_of(fb, PAGE) != DCM_NOTDIRECT; i++) {
		assert_true(i < 4000);
		glance(fb, ZEROES + i % 400);
	}
	assert_int_equal(fb->nr_writes - writes, 1);
	assert_int_equal(at(fb, PAGE), 3);
	get(fb, PAGE);
	end(fb);
}

/* Thin pages within a block: only they are copied, and the block stays one. Copying is no use. */
static void test_fill_of_a_part(void **state)
{
	struct fake_backend *fb = copies_world(2);
	u64 reads;
	s64 ops;
	u32 i;

	(void)state;
	tune(fb, "largest_block", 65536);
	tune(fb, "elastic", 0);
	get(fb, 0);
	push_out(fb, 0, 16);
	assert_int_equal(pages_of(fb, 0), 16);
	for (i = 3; i < 6; i++)
		pd_clear(pd_of(fb->vm, i), pd_at_bits(2));
	pd_clear(pd_of(fb->vm, 9), pd_at_bits(1));
	fb->vm->extent[0].thin = true;
	reads = fb->nr_reads;
	ops = atomic64_read(&fb->vm->extent[0].ops);
	assert_true(ops > 0);
	fill(fb);
	assert_int_equal(atomic64_read(&fb->vm->extent[0].ops), ops);
	assert_int_equal(fb->nr_reads - reads, 2);
	assert_int_equal(count(fb, DCM_C_FILLED_PAGES), 4);
	assert_int_equal(pages_of(fb, 0), 16);
	for (i = 0; i < 16; i++)
		assert_int_equal(at(fb, i), 3);
	end(fb);
}

/* One step of a drain: its slab takes no writes any more. */
static void drain_begins(struct fake_backend *fb, struct fb_slab *s)
{
	u32 cursor = 0;

	assert_int_equal(dcm_extent_drain(&fb->vm->lane[1], 0, &s->ref,
					  &cursor),
			 -EAGAIN);
	fb_advance(fb, 10);
	fb_poll(fb, 1);
}

/*
 * All three slabs of an extent are asked back before one of them is empty: the
 * last goes on taking writes until a slot is free for another slab.
 */
static void test_all_three_slabs_are_wanted_back(void **state)
{
	struct fake_backend *fb = copies_world(1);
	struct fb_slab *first = slab(fb, 0), *second, *third;
	u32 i, cursor = 0;

	(void)state;
	second = attach(fb, 0, 1);
	drain_begins(fb, first);
	third = attach(fb, 0, 2);
	drain_begins(fb, second);
	assert_int_equal(dcm_extent_drain(&fb->vm->lane[1], 0, &third->ref,
					  &cursor),
			 -EBUSY);
	assert_int_equal(fb->vm->extent[0].open, 4);
	assert_int_equal(drain(fb, first), 0);
	assert_int_equal(drain(fb, second), 0);
	attach(fb, 0, 1);
	assert_int_equal(drain(fb, third), 0);
	for (i = 0; i < PAGES; i++) {
		assert_int_equal(at(fb, i), 1);
		get(fb, i);
	}
	end(fb);
}

/* Pages that another slab has too are only taken off: none is read or written. */
static void test_drain_of_a_copy(void **state)
{
	struct fake_backend *fb = copies_world(2);
	u64 reads = fb->nr_reads, writes = fb->nr_writes;
	u32 i;

	(void)state;
	assert_int_equal(drain(fb, slab(fb, 0)), 0);
	assert_int_equal(fb->nr_reads - reads, 0);
	assert_int_equal(fb->nr_writes - writes, 0);
	for (i = 0; i < PAGES; i++)
		assert_int_equal(at(fb, i), 2);
	/* and of the last, to a new one in the place of the first */
	attach(fb, 0, 2);
	assert_int_equal(drain(fb, slab(fb, 1)), 0);
	for (i = 0; i < PAGES; i++)
		assert_int_equal(at(fb, i), 1);
	for (i = 0; i < PAGES; i++)
		get(fb, i);
	end(fb);
}

/*
 * A slab is emptied whose donor can't be reached for a while, and the only other one
 * that has its pages is being lost: it is read later, and not said to be lost too.
 */
static void
test_drain_of_a_slab_that_fails_beside_one_that_is_lost(void **state)
{
	struct fake_backend *fb = copies_world(2);
	struct fb_slab *s = slab(fb, 0);
	u32 cursor = 0, n;

	(void)state;
	attach(fb, 0, 2);
	fb->vm->extent[0].gone = 2;
	fb_way_break(fb, 1, 0);
	fb->lane[1].way[0].welcome_at = ~0ull;
	for (n = 0; n < 200; n++) {
		assert_int_equal(dcm_extent_drain(&fb->vm->lane[1], 0, &s->ref,
						  &cursor),
				 -EAGAIN);
		fb_advance(fb, 10);
		fb_poll(fb, 1);
	}
	fb->lane[1].way[0].welcome_at = 0;
	fb->vm->extent[0].gone = 0;
	fb_advance(fb, 1000000);
	assert_int_equal(drain(fb, s), 0);
	for (n = 0; n < PAGES; n++)
		get(fb, n);
	end(fb);
}

/* The new slab's donor can't be reached for a while: what failed is done again. */
static void test_fill_of_a_slab_that_fails(void **state)
{
	struct fake_backend *fb = copies_world(1);
	u32 cursor = 0, i;

	(void)state;
	attach(fb, 0, 1);
	assert_int_equal(dcm_extent_fill(&fb->vm->lane[1], 0, &cursor),
			 -EAGAIN);
	fb->cfg.max_delay = 1000000000;
	fb_poll(fb, 1);
	fb_way_break(fb, 1, 1);
	fb->lane[1].way[1].welcome_at = fb->tick + 1000000;
	fb_poll(fb, 1);
	fb->cfg.max_delay = 0;
	assert_true(dcm_doubtful(&fb->vm->lane[1]));
	for (i = 0; i < 200; i++) {
		assert_int_equal(dcm_extent_fill(&fb->vm->lane[1], 0, &cursor),
				 -EAGAIN);
		fb_advance(fb, 1000);
		fb_poll(fb, 1);
	}
	assert_true(fb->vm->extent[0].thin || cursor);
	fb_advance(fb, 1000000);
	fill(fb);
	for (i = 0; i < PAGES; i++)
		assert_int_equal(at(fb, i), 3);
	end(fb);
}

/* The slab that is filled dies, and another takes its slot: none is mistaken. */
static void test_fill_of_a_slab_that_dies(void **state)
{
	struct fake_backend *fb = copies_world(1);
	u32 cursor, i, n;

	(void)state;
	fb->cfg.max_delay = 50;
	for (n = 0; n < 20; n++) {
		attach(fb, 0, 1 + n % 2);
		cursor = 0;
		for (i = 0; i < n; i++) {
			dcm_extent_fill(&fb->vm->lane[1], 0, &cursor);
			fb_advance(fb, 20);
			fb_poll(fb, 1);
		}
		assert_int_equal(lose(fb, 1), 0);
		fb_fsck(fb, false);
	}
	attach(fb, 0, 1);
	fill(fb);
	assert_int_equal(lose(fb, 0), 0);
	for (i = 0; i < PAGES; i++)
		get(fb, i);
	end(fb);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fill),
		cmocka_unit_test(test_filled_while_here_and_clean),
		cmocka_unit_test(test_leaves_behind_the_fill),
		cmocka_unit_test(test_filled_while_here_and_none_answers),
		cmocka_unit_test(test_here_when_filled_and_written_to_one),
		cmocka_unit_test(test_fill_of_a_part),
		cmocka_unit_test(test_drain_of_a_copy),
		cmocka_unit_test(test_all_three_slabs_are_wanted_back),
		cmocka_unit_test(test_fill_of_a_slab_that_fails),
		cmocka_unit_test(
			test_drain_of_a_slab_that_fails_beside_one_that_is_lost),
		cmocka_unit_test(test_fill_of_a_slab_that_dies),
	};

	return cmocka_run_group_tests_name("core_fill", tests, NULL, NULL);
}

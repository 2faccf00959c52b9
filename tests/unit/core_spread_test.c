// SPDX-License-Identifier: GPL-2.0-or-later
/* links: CORE FAKE */
/*
 * core_spread_test.c - pages that a GC worker changes, of an extent with copies
 *
 * The worker writes to the slab of the primary behind the core's back, as one of a
 * donor does. Its pages are copied to the other slabs, or taken off the primary; the
 * primary's donor, or that of a copy, dies at any moment of it.
 */
#include "core_copies.h"

#define LONG 1000000000ull
#define FROM 16u
#define NR 32u

/* The slab that GC workers use. */
static struct fb_slab *primary(struct fake_backend *fb)
{
	return slab(fb, (u32)dcm_slot_primary(&fb->vm->extent[0]));
}

static void sync_out(struct fake_backend *fb)
{
	u32 i;

	assert_int_equal(fb_to_donor(fb, 0, FROM, NR, false, LONG), 0);
	for (i = FROM; i < FROM + NR; i++) {
		assert_int_equal(state_of(fb, i), DCM_NOTDIRECT);
		assert_true(pd_word(pd_of(fb->vm, i)) &
			    dcm_primary_bits(fb->vm, i));
	}
}

/* A worker changes every other page of the range. */
static void work(struct fake_backend *fb)
{
	u32 i;

	for (i = FROM; i < FROM + NR; i += 2)
		fb_page_change(fb, primary(fb), i);
}

/* Pages have the worker's bytes (@changed), or those from before. */
static void outcome(struct fake_backend *fb, bool changed)
{
	u32 i;

	for (i = FROM; i < FROM + NR; i++)
		fb_page_changed(fb, i, changed);
	for (i = 0; i < PAGES; i++)
		get(fb, i);
	assert_int_equal(count(fb, DCM_C_WRONG_PAGES), 0);
	assert_int_equal(count(fb, DCM_C_LOST_PAGES), 0);
}

/* Spread the range: how many steps it took. */
static u32 spread(struct fake_backend *fb)
{
	u64 at = FROM;
	u32 n;

	for (n = 0; dcm_spread(&fb->vm->lane[1], &at, FROM + NR); n++) {
		assert_true(n < 10000);
		fb_advance(fb, 10);
		fb_poll(fb, 0);
		fb_poll(fb, 1);
	}
	return n;
}

static void revert(struct fake_backend *fb)
{
	u64 at = FROM;
	u32 n;

	for (n = 0; dcm_revert(&fb->vm->lane[1], &at, FROM + NR); n++) {
		assert_true(n < 10000);
		fb_advance(fb, 10);
		fb_poll(fb, 0);
		fb_poll(fb, 1);
	}
}

/* The oldest slab, memory before files, for as long as it takes writes. */
static void test_the_primary(void **state)
{
	struct fake_backend *fb = copies_world(3);
	struct fb_slab *s[3];
	u32 i;

	(void)state;
	for (i = 0; i < 3; i++)
		s[i] = slab(fb, i);
	assert_ptr_equal(primary(fb), s[0]);
	assert_int_equal(lose(fb, 0), 0);
	assert_ptr_equal(primary(fb), s[1]);
	/* in a lower slot, but newer */
	attach(fb, 0, 3);
	assert_int_equal(dcm_slot_of(&fb->vm->extent[0], &s[1]->ref), 1);
	assert_ptr_equal(primary(fb), s[1]);
	fill(fb);
	fb->vm->extent[0].rank[1] = DCM_RANK_FILE;
	assert_ptr_equal(primary(fb), s[2]);
	fb->vm->extent[0].rank[1] = DCM_RANK_MEMORY;
	assert_int_equal(drain(fb, s[1]), 0);
	assert_ptr_equal(primary(fb), s[2]);
	end(fb);
}

/* Pages that only the copy has are on the primary when a worker begins. */
static void test_thin_pages_are_synced(void **state)
{
	u32 keep, i;

	(void)state;
	for (keep = 0; keep < 2; keep++) {
		struct fake_backend *fb = copies_world(2);

		for (i = FROM; i < FROM + NR; i++) {
			slab(fb, 0)->sure[i] = false;
			if (i % 3)
				pd_clear(pd_of(fb->vm, i), pd_at_bits(1));
		}
		fb->vm->extent[0].thin = true;
		/* here and clean, on the copy alone */
		get(fb, FROM + 1);
		assert_int_equal(fb_to_donor(fb, 0, FROM, NR, keep, LONG), 0);
		for (i = FROM; i < FROM + NR; i++)
			assert_int_equal(at(fb, i), 3);
		fb_fsck(fb, false);
		end(fb);
	}
}

/*
 * Pages stay here while they are synced, and the WRITE to the primary fails, or is
 * not made: they are written again, until the primary has them.
 */
static void test_writes_to_the_primary_that_fail_are_repeated(void **state)
{
	u32 after, i;

	(void)state;
	for (after = 0; after < 2; after++) {
		struct fake_backend *fb = copies_world(2);

		tune(fb, "thin_after", after * 200);
		for (i = FROM; i < FROM + NR; i++)
			put(fb, i);
		assert_true(dcm_slot_primary(&fb->vm->extent[0]) == 0);
		break_ways(fb, 0, fb->tick + 50000);
		assert_int_equal(fb_to_donor(fb, 0, FROM, NR, true, LONG), 0);
		for (i = FROM; i < FROM + NR; i++) {
			assert_true(at(fb, i) & 1);
			assert_false(pd_word(pd_of(fb->vm, i)) & PD_DIRTY);
		}
		fb_fsck(fb, false);
		end(fb);
	}
}

/* All slabs have what the worker did; what it left alone is not written again. */
static void test_spread(void **state)
{
	u32 copies;

	(void)state;
	for (copies = 1; copies <= 3; copies++) {
		struct fake_backend *fb = copies_world(copies);
		u64 writes;
		u32 i;

		sync_out(fb);
		work(fb);
		writes = fb->nr_writes;
		spread(fb);
		assert_int_equal(fb->nr_writes - writes, (copies - 1) * NR / 2);
		for (i = FROM; i < FROM + NR; i++)
			assert_int_equal(at(fb, i), (1u << copies) - 1);
		for (i = FROM; i < FROM + NR; i++)
			fb_page_changed(fb, i, true);
		fb_fsck(fb, true);
		/* a new sum: a donor's wrong bytes are noticed again */
		outcome(fb, true);
		end(fb);
	}
}

/* It was killed: what was there before counts, and goes to the primary again. */
static void test_revert(void **state)
{
	struct fake_backend *fb = copies_world(2);
	u32 i;

	(void)state;
	sync_out(fb);
	work(fb);
	revert(fb);
	for (i = FROM; i < FROM + NR; i++)
		assert_int_equal(at(fb, i), 2);
	assert_true(fb->vm->extent[0].thin);
	for (i = FROM; i < FROM + NR; i++)
		fb_page_changed(fb, i, false);
	fill(fb);
	for (i = FROM; i < FROM + NR; i++)
		assert_int_equal(at(fb, i), 3);
	outcome(fb, false);
	end(fb);
}

/* A copy's donor does not answer: what the worker did is on the primary alone. */
static void test_keep(void **state)
{
	struct fake_backend *fb = copies_world(2);
	u64 gfn = FROM;
	u32 i;

	(void)state;
	sync_out(fb);
	work(fb);
	assert_int_equal(dcm_keep(&fb->vm->lane[1], &gfn, FROM + NR), 0);
	for (i = FROM; i < FROM + NR; i++)
		assert_int_equal(at(fb, i), 1);
	assert_true(fb->vm->extent[0].thin);
	outcome(fb, true);
	push_out(fb, 0, PAGES);
	fill(fb);
	assert_int_equal(lose(fb, 0), 0);
	outcome(fb, true);
	end(fb);
}

/* Thin pages have no copy: they are what the worker made of them, without a sum. */
static void test_revert_without_a_copy(void **state)
{
	struct fake_backend *fb = copies_world(2);
	u32 i;

	(void)state;
	sync_out(fb);
	for (i = FROM; i < FROM + NR; i++) {
		slab(fb, 1)->sure[i] = false;
		pd_clear(pd_of(fb->vm, i), pd_at_bits(2));
	}
	fb->vm->extent[0].thin = true;
	work(fb);
	revert(fb);
	for (i = FROM; i < FROM + NR; i++)
		assert_int_equal(at(fb, i), 1);
	outcome(fb, true);
	end(fb);
}

/* The primary's donor dies while the worker works: the copy is as it was. */
static void test_the_primary_dies(void **state)
{
	struct fake_backend *fb = copies_world(2);

	(void)state;
	sync_out(fb);
	work(fb);
	assert_int_equal(lose(fb, 0), 0);
	spread(fb);
	revert(fb);
	outcome(fb, false);
	end(fb);
}

/*
 * It dies at any step of the spread: each page is as before, or as after, and none is
 * lost. Without delays a page's WRITE has ended when the donor dies.
 */
static void test_the_primary_dies_while_it_is_spread(void **state)
{
	bool before = false, after = false;
	u32 steps, i;

	(void)state;
	for (steps = 0; steps < 12; steps++) {
		struct fake_backend *fb = copies_world(2);
		u64 gfn = FROM;

		sync_out(fb);
		work(fb);
		for (i = 0; i < steps; i++)
			dcm_spread(&fb->vm->lane[1], &gfn, FROM + NR);
		for (i = 0; fb->vm->lane[1].move.left; i++) {
			assert_true(i < 1000);
			fb_poll(fb, 1);
		}
		assert_int_equal(lose(fb, 0), 0);
		revert(fb);
		for (i = FROM; i < FROM + NR; i += 2) {
			bool changed = fb_page_settled(fb, i);

			before |= !changed;
			after |= changed;
		}
		outcome(fb, true);
		end(fb);
	}
	assert_true(before && after);
}

/* The copy's donor dies, or can't be reached: the worker's pages are thin. */
static void test_the_copy_dies(void **state)
{
	u32 kind, i;

	(void)state;
	for (kind = 0; kind < 2; kind++) {
		struct fake_backend *fb = copies_world(2);

		tune(fb, "thin_after", 0);
		sync_out(fb);
		work(fb);
		if (kind)
			break_ways(fb, 1, ~0ull);
		else
			assert_int_equal(lose(fb, 1), 0);
		spread(fb);
		/* the copy of what the worker left alone may be as good as it was */
		for (i = FROM; i < FROM + NR; i += 2)
			assert_int_equal(at(fb, i), 1);
		assert_int_equal(fb->vm->extent[0].thin, kind);
		outcome(fb, true);
		for (i = 0; i < fb->cfg.nr_lanes; i++)
			fb->lane[i].way[1].welcome_at = 0;
		end(fb);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_primary),
		cmocka_unit_test(test_thin_pages_are_synced),
		cmocka_unit_test(
			test_writes_to_the_primary_that_fail_are_repeated),
		cmocka_unit_test(test_spread),
		cmocka_unit_test(test_revert),
		cmocka_unit_test(test_keep),
		cmocka_unit_test(test_revert_without_a_copy),
		cmocka_unit_test(test_the_primary_dies),
		cmocka_unit_test(test_the_primary_dies_while_it_is_spread),
		cmocka_unit_test(test_the_copy_dies),
	};

	return cmocka_run_group_tests_name("core_spread", tests, NULL, NULL);
}

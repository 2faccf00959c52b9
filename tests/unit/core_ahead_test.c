// SPDX-License-Identifier: GPL-2.0-or-later
/* links: CORE FAKE */
/*
 * core_ahead_test.c - pages that come in before an access needs them
 *
 * Lane 0 takes faults, lane 1 is the slab worker's, which fetches ahead.
 */
#include "core_table.h"

#define BUDGET 512u
#define QUARTER (BUDGET / 4)
#define CONTROL 1u
#define FEW 96u /* pages that a hint may bring in */

static struct fake_backend *fake;

/* The control plane's turn. */
static void give(void *arg)
{
	fb_give_slabs(*(struct fake_backend **)arg, 1);
}

static struct fb_config config(void)
{
	struct fb_config cfg = calm();

	cfg.nr_lanes = 2;
	cfg.budget = BUDGET;
	cfg.idle = give;
	cfg.arg = &fake;
	return cfg;
}

/* The first @nr pages are on donors and not here; the budget is used. */
static struct fake_backend *away(struct fb_config cfg, u32 nr)
{
	u32 i;

	fake = world(cfg);
	for (i = 0; i < nr; i++)
		put(fake, i);
	push_out(fake, 0, nr);
	return fake;
}

/* The same, with room for them all. */
static struct fake_backend *away_with_room(u32 delay)
{
	struct fb_config cfg = config();

	cfg.max_delay = delay;
	fake = away(cfg, FEW);
	assert_int_equal(fb_budget(fake, 4 * BUDGET), 0);
	return fake;
}

static u32 here(struct fake_backend *fb, u32 from, u32 nr)
{
	u32 n = 0, i;

	for (i = from; i < from + nr; i++)
		n += state_of(fb, i) != DCM_NOTDIRECT;
	return n;
}

static void turn(struct fake_backend *fb)
{
	fb_advance(fb, 100);
	fb_give_slabs(fb, 1);
	fb_poll(fb, 0);
	fb_poll(fb, CONTROL);
	fb_ahead(fb, CONTROL);
}

/* Let the pager go on until nothing is queued and nothing in flight. */
static void bring(struct fake_backend *fb)
{
	u32 n;

	for (n = 0; fb->vm->ahead.nr || fb->vm->lane[CONTROL].nr_ahead; n++) {
		assert_true(n < 10000);
		turn(fb);
	}
	fb_sync(fb);
	fb_fsck(fb, true);
}

static void check(struct fake_backend *fb, u32 gfn)
{
	get(fb, gfn);
	assert_int_equal(fb_read_checked(fb, gfn), FH_OK);
}

/* All of it comes in, by large READs, and accesses find it: none fetches. */
static void test_brought(void **state)
{
	struct fake_backend *fb = away(config(), FEW);
	u64 reads = fb->nr_reads, missing, pages;
	u32 i;

	(void)state;
	tune(fb, "largest_block", 65536);
	missing = count(fb, DCM_C_FAULT_MISSING);
	pages = count(fb, DCM_C_FETCHED_PAGES);
	fb_hint(fb, 0, 0, FEW, DCM_HINT_FETCH);
	/* [VGC-D-72] */
	assert_int_equal(fb->nr_reads, reads);
	bring(fb);
	assert_int_equal(here(fb, 0, FEW), FEW);
	assert_int_equal(count(fb, DCM_C_AHEAD_PAGES), FEW);
	assert_int_equal(count(fb, DCM_C_FETCHED_PAGES) - pages, FEW);
	assert_int_equal(count(fb, DCM_C_AHEAD_DROPPED), 0);
	assert_int_equal(fb->nr_reads - reads, FEW / 16);
	for (i = 0; i < FEW; i++)
		check(fb, i);
	assert_int_equal(count(fb, DCM_C_FAULT_MISSING), missing);
	assert_int_equal(fb->nr_reads - reads, FEW / 16);
	end(fb);
}

/* No more than was asked for; and with blocks of one size, whole blocks. */
static void test_parts(void **state)
{
	struct fake_backend *fb = away(config(), FEW);

	(void)state;
	tune(fb, "largest_block", 65536);
	fb_hint(fb, 0, 3, 30, DCM_HINT_FETCH);
	bring(fb);
	assert_int_equal(here(fb, 3, 30), 30);
	assert_int_equal(here(fb, 0, FEW), 30);
	tune(fb, "elastic", 0);
	fb_hint(fb, 0, 50, 1, DCM_HINT_FETCH);
	bring(fb);
	assert_int_equal(here(fb, 48, 16), 16);
	assert_int_equal(here(fb, 0, FEW), 46);
	end(fb);
}

/* In the order in which they were named. */
static void test_order(void **state)
{
	struct fake_backend *fb = away_with_room(10);
	u32 n;

	(void)state;
	fb_hint(fb, 0, 64, 16, DCM_HINT_FETCH);
	fb_hint(fb, 0, 0, 16, DCM_HINT_FETCH);
	/* what follows is one extent with what it follows */
	fb_hint(fb, 0, 16, 16, DCM_HINT_FETCH);
	assert_int_equal(fb->vm->ahead.nr, 2);
	assert_int_equal(fb->vm->ahead.pages, 48);
	for (n = 0; fb->vm->ahead.nr; n++) {
		assert_true(n < 1000);
		turn(fb);
		/* all but those that are in flight beside it */
		if (here(fb, 0, 32))
			assert_true(here(fb, 64, 16) > 16 - DCM_AHEAD_MAX);
	}
	bring(fb);
	assert_int_equal(here(fb, 0, FEW), 48);
	end(fb);
}

/* A few READs are in flight, however many pages are queued. */
static void test_few_in_flight(void **state)
{
	struct fake_backend *fb = away_with_room(1000);
	u32 n, most = 0;

	(void)state;
	fb_hint(fb, 0, 0, FEW, DCM_HINT_FETCH);
	for (n = 0; n < 4; n++) {
		fb_ahead(fb, CONTROL);
		most = max(most, fb->vm->lane[CONTROL].nr_ahead);
	}
	assert_int_equal(most, DCM_AHEAD_MAX);
	/* an access to a block that is on its way waits for it */
	assert_int_equal(fb_fault(fb, 0, 0, 0), DCM_FAULT_BUSY);
	check(fb, 0);
	bring(fb);
	assert_int_equal(here(fb, 0, FEW), FEW);
	end(fb);
}

/* Over the room there is: the coldest blocks go, and no others. */
static void test_hot_stay(void **state)
{
	struct fake_backend *fb = away(config(), 1024);
	u64 minor, missing;
	u32 i;

	(void)state;
	/* read in this order: 256 pages that are cold then, 128 that are not */
	for (i = 1024; i < 1024 + 384; i++)
		put(fb, i);
	missing = count(fb, DCM_C_FAULT_MISSING);
	minor = count(fb, DCM_C_FAULT_MINOR);
	fb_hint(fb, 0, 0, 1024, DCM_HINT_FETCH);
	bring(fb);
	/* [VGC-D-73] */
	assert_in_range(count(fb, DCM_C_AHEAD_PAGES), QUARTER - 16,
			QUARTER + BUDGET / 256);
	assert_int_equal(count(fb, DCM_C_AHEAD_PAGES) +
				 count(fb, DCM_C_AHEAD_DROPPED),
			 1024);
	assert_int_equal(here(fb, 0, 1024), count(fb, DCM_C_AHEAD_PAGES));
	for (i = 1024 + 256; i < 1024 + 384; i++)
		check(fb, i);
	assert_int_equal(count(fb, DCM_C_FAULT_MISSING), missing);
	assert_int_equal(count(fb, DCM_C_FAULT_MINOR), minor);
	/* what came first is what was named first */
	assert_int_equal(here(fb, 0, QUARTER - 16), QUARTER - 16);
	end(fb);
}

/* Hints go on when those before have come to their end. */
static void test_again_and_again(void **state)
{
	struct fake_backend *fb = away(config(), 1024);
	u32 i;

	(void)state;
	for (i = 0; i < 1024; i += 64) {
		fb_hint(fb, 0, i, 64, DCM_HINT_FETCH);
		bring(fb);
		assert_int_equal(here(fb, i, 64), 64);
	}
	assert_int_equal(count(fb, DCM_C_AHEAD_PAGES), 1024);
	fb_check_budget(fb);
	end(fb);
}

/* Frames that are free are used, all but those for faults. */
static void test_free_frames(void **state)
{
	struct fake_backend *fb = away(config(), 1024);
	u64 evicted;

	(void)state;
	assert_int_equal(fb_budget(fb, 2048), 0);
	evicted = (u64)atomic64_read(&fb->vm->evicted);
	fb_hint(fb, 0, 0, 1024, DCM_HINT_FETCH);
	bring(fb);
	assert_int_equal(here(fb, 0, 1024), 1024);
	assert_int_equal(atomic64_read(&fb->vm->evicted), evicted);
	end(fb);
}

/* Only what donors have: nothing is made, and what is lost stays so. */
static void test_only_remote(void **state)
{
	struct fake_backend *fb = away(config(), FEW);
	struct fb_slab *s = fb_slab_open(fb, 0);

	(void)state;
	fb_discard(fb, 0, 64, 16);
	fb_slab_kill(fb, s);
	while (dcm_extent_lost(&fb->vm->lane[CONTROL], 0, &s->ref) == -EAGAIN)
		turn(fb);
	fb_slab_free(fb, s);
	fb_lost_scan(fb, 0);
	fb_hint(fb, 0, 0, FLOOD_AT, DCM_HINT_FETCH);
	bring(fb);
	assert_int_equal(here(fb, 0, FLOOD_AT), FEW - 80);
	assert_int_equal(here(fb, 80, 16), 16);
	assert_int_equal(fb_access(fb, 0, 5, false, false), -EIO);
	end(fb);
}

/* In Inactive: mapped again, without I/O. */
static void test_inactive(void **state)
{
	struct fake_backend *fb = away(config(), FEW);
	u64 reads, remaps = fb->nr_remaps;
	u32 i, n = 0;

	(void)state;
	for (i = FLOOD_AT; i < fb->cfg.nr_pages; i++) {
		if (state_of(fb, i) != DCM_INACTIVE)
			continue;
		fb_hint(fb, 0, i, 1, DCM_HINT_FETCH);
		n++;
	}
	assert_true(n > 10);
	reads = fb->nr_reads;
	bring(fb);
	assert_int_equal(fb->nr_remaps - remaps, n);
	assert_int_equal(fb->nr_reads, reads);
	end(fb);
}

/* A GC worker uses the pages: they stay where they are. */
static void test_frozen(void **state)
{
	struct fake_backend *fb = away(config(), FEW);

	(void)state;
	assert_true(fb_freeze(fb, 16, 32));
	fb_hint(fb, 0, 0, FEW, DCM_HINT_FETCH);
	bring(fb);
	assert_int_equal(here(fb, 16, 32), 0);
	assert_int_equal(here(fb, 0, FEW), FEW - 32);
	fb_thaw(fb, 16, 32);
	end(fb);
}

/* Queued pages are forgotten at once; pages in flight come in. */
static void test_drop(void **state)
{
	struct fake_backend *fb = away_with_room(1000);

	(void)state;
	fb_hint(fb, 0, 0, FEW, DCM_HINT_FETCH);
	fb_ahead(fb, CONTROL);
	assert_int_equal(fb->vm->lane[CONTROL].nr_ahead, DCM_AHEAD_MAX);
	/* of another range nothing is */
	fb_hint(fb, 0, FEW, 64, DCM_HINT_FORGET);
	assert_true(fb->vm->ahead.pages >= FEW - DCM_AHEAD_MAX);
	fb_hint(fb, 0, 60, 1, DCM_HINT_FORGET);
	/* [VGC-D-74] */
	assert_int_equal(fb->vm->ahead.nr, 0);
	assert_int_equal(fb->vm->ahead.pages, 0);
	bring(fb);
	assert_int_equal(count(fb, DCM_C_AHEAD_PAGES) +
				 count(fb, DCM_C_AHEAD_DROPPED),
			 FEW);
	assert_int_equal(here(fb, 0, FEW), count(fb, DCM_C_AHEAD_PAGES));
	end(fb);
}

/* The queue is bounded, by extents and by pages; what is beyond is counted. */
static void test_queue_bounds(void **state)
{
	struct fb_config cfg = config();
	struct fake_backend *fb;
	u32 i;

	(void)state;
	cfg.nr_pages = 3 * DCM_AHEAD_EXTENTS;
	cfg.nr_slabs = 256;
	fb = away(cfg, FEW);
	for (i = 0; i < DCM_AHEAD_EXTENTS + 10; i++)
		fb_hint(fb, 0, 2 * i, 1, DCM_HINT_FETCH);
	/* [VGC-D-73] */
	assert_int_equal(fb->vm->ahead.nr, DCM_AHEAD_EXTENTS);
	assert_int_equal(count(fb, DCM_C_AHEAD_DROPPED), 10);
	fb_fsck(fb, false);
	bring(fb);
	assert_int_equal(here(fb, 0, FEW), FEW / 2);
	fb_hint(fb, 0, 0, cfg.nr_pages, DCM_HINT_FETCH);
	fb_hint(fb, 0, 0, cfg.nr_pages, DCM_HINT_FETCH);
	assert_int_equal(fb->vm->ahead.pages, cfg.nr_pages);
	bring(fb);
	end(fb);
}

/*
 * Donors can't be reached: what is in flight and what follows is given up, an access
 * that waits for such a block is woken, and nothing is lost.
 */
static void test_given_up(void **state)
{
	struct fake_backend *fb = away_with_room(1000);
	u32 i, n, woken;

	(void)state;
	fb_hint(fb, 0, 0, FEW, DCM_HINT_FETCH);
	fb_ahead(fb, CONTROL);
	woken = fb->wakes[0];
	assert_int_equal(fb_fault(fb, 0, 0, 0), DCM_FAULT_BUSY);
	for (i = 0; i < fb->cfg.nr_donors; i++)
		fb->donor[i].unreachable_until = fb->tick + 1000000000ull;
	for (n = 0; fb->vm->ahead.nr || fb->vm->lane[CONTROL].nr_ahead; n++) {
		assert_true(n < 10000);
		turn(fb);
	}
	assert_int_not_equal(fb->wakes[0], woken);
	assert_int_equal(here(fb, 0, FEW), 0);
	assert_int_equal(count(fb, DCM_C_AHEAD_PAGES), 0);
	assert_int_equal(count(fb, DCM_C_AHEAD_DROPPED), FEW);
	assert_int_equal(count(fb, DCM_C_LOST_PAGES), 0);
	for (i = 0; i < fb->cfg.nr_donors; i++)
		fb->donor[i].unreachable_until = 0;
	for (i = 0; i < FEW; i++)
		check(fb, i);
	end(fb);
}

/* Nothing can be evicted, as no donor has room: the rest is dropped. */
static void test_no_room(void **state)
{
	struct fake_backend *fb = away(config(), FEW);
	u32 i, n;

	(void)state;
	/* fill the budget with pages that can't leave */
	for (i = 0; i < fb->cfg.nr_donors; i++)
		fb->donor[i].unreachable_until = fb->tick + 1000000000ull;
	for (i = FLOOD_AT; i < fb->cfg.nr_pages; i++)
		if (state_of(fb, i) != DCM_NOTDIRECT)
			put(fb, i);
	fb_hint(fb, 0, 0, FEW, DCM_HINT_FETCH);
	for (n = 0; fb->vm->ahead.nr; n++) {
		assert_true(n < 1000);
		turn(fb);
	}
	assert_int_equal(count(fb, DCM_C_AHEAD_PAGES), 0);
	for (i = 0; i < fb->cfg.nr_donors; i++)
		fb->donor[i].unreachable_until = 0;
	fb_sync(fb);
	for (i = 0; i < FEW; i++)
		check(fb, i);
	end(fb);
}

/* A smaller budget is kept to while pages come in. */
static void test_budget_shrinks(void **state)
{
	struct fb_config cfg = config();
	struct fake_backend *fb;
	u32 n;

	(void)state;
	cfg.max_delay = 100;
	fb = away(cfg, FEW);
	fb_hint(fb, 0, 0, FEW, DCM_HINT_FETCH);
	fb_ahead(fb, CONTROL);
	assert_int_equal(fb_budget(fb, BUDGET / 4), 0);
	for (n = 0; fb->vm->ahead.nr; n++) {
		assert_true(n < 10000);
		turn(fb);
		fb_balance(fb, 0);
		fb_check_budget(fb);
	}
	bring(fb);
	assert_true(atomic64_read(&fb->vm->direct) <= BUDGET / 4);
	end(fb);
}

/* An extent is moved, and its pages are fetched, on the same lane. */
static void test_beside_a_move(void **state)
{
	struct fb_config cfg = config();
	struct fb_slab *old, *new;
	struct fake_backend *fb;
	u32 cursor = 0, n, i;
	int r = -EAGAIN;

	(void)state;
	cfg.max_delay = 100;
	fb = away(cfg, FEW);
	old = fb_slab_open(fb, 0);
	new = fb_slab_take(fb, 7, (s32)old->donor);
	assert_int_equal(fb_slab_attach(fb, new, 0), 0);
	fb_hint(fb, 0, 32, 64, DCM_HINT_FETCH);
	for (n = 0; r == -EAGAIN; n++) {
		assert_true(n < 10000);
		turn(fb);
		r = dcm_extent_drain(&fb->vm->lane[CONTROL], 0, &old->ref,
				     &cursor);
	}
	assert_int_equal(r, 0);
	fb_slab_free(fb, old);
	bring(fb);
	/* those that were just being moved are passed over */
	assert_true(here(fb, 32, 64) > 16);
	assert_true(count(fb, DCM_C_MOVED_PAGES) > 16);
	for (i = 0; i < FEW; i++)
		check(fb, i);
	end(fb);
}

/*
 * Pages of a block lie on different slabs, and blocks have one size: it was taken
 * apart, put together and taken apart again, without an end.
 */
static void test_block_on_two_slabs_looked_at_for_ever(void **state)
{
	struct fake_backend *fb = away(config(), FEW);
	struct fb_slab *old = fb_slab_open(fb, 0), *new;
	u32 cursor = 0, i;

	(void)state;
	new = fb_slab_take(fb, 7, (s32)old->donor);
	assert_int_equal(fb_slab_attach(fb, new, 0), 0);
	assert_int_equal(dcm_extent_drain(&fb->vm->lane[CONTROL], 0, &old->ref,
					  &cursor),
			 -EAGAIN);
	assert_true(cursor <= 48);
	put(fb, 50);
	push_out(fb, 50, 1);
	tune(fb, "largest_block", 65536);
	tune(fb, "elastic", 0);
	fb_hint(fb, 0, 48, 16, DCM_HINT_FETCH);
	bring(fb);
	assert_int_equal(here(fb, 48, 16), 16);
	for (i = 48; i < 64; i++)
		check(fb, i);
	end(fb);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_brought),
		cmocka_unit_test(test_parts),
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_few_in_flight),
		cmocka_unit_test(test_hot_stay),
		cmocka_unit_test(test_again_and_again),
		cmocka_unit_test(test_free_frames),
		cmocka_unit_test(test_only_remote),
		cmocka_unit_test(test_inactive),
		cmocka_unit_test(test_frozen),
		cmocka_unit_test(test_drop),
		cmocka_unit_test(test_queue_bounds),
		cmocka_unit_test(test_given_up),
		cmocka_unit_test(test_no_room),
		cmocka_unit_test(test_budget_shrinks),
		cmocka_unit_test(test_beside_a_move),
		cmocka_unit_test(test_block_on_two_slabs_looked_at_for_ever),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

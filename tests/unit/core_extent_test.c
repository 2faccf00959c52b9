// SPDX-License-Identifier: GPL-2.0-or-later
/* links: CORE FAKE */
/*
 * core_extent_test.c - extents: attach, move, pull, lose; and the races there
 */
#include "core_table.h"

static struct fb_slab *attach(struct fake_backend *fb, u32 extent)
{
	struct fb_slab *s = fb_slab_take(fb, 77, -1);

	assert_non_null(s);
	assert_int_equal(fb_slab_attach(fb, s, extent), 0);
	return s;
}

/* Move to the end while other lanes run; the control lane is 1. */
static int move(struct fake_backend *fb, u32 extent, struct fb_slab *s)
{
	u32 cursor = 0, n;
	int r = -EAGAIN;

	for (n = 0; n < 100000 && r == -EAGAIN; n++) {
		r = dcm_extent_drain(&fb->vm->lane[1], extent, &s->ref,
				     &cursor);
		fb_advance(fb, 10);
		fb_poll(fb, 0);
		fb_poll(fb, 1);
	}
	if (!r)
		fb_slab_free(fb, s);
	return r;
}

static s64 lose(struct fake_backend *fb, u32 extent, struct fb_slab *s)
{
	s64 r = -EAGAIN;
	u32 n;

	for (n = 0; n < 100000 && r == -EAGAIN; n++) {
		r = dcm_extent_lost(&fb->vm->lane[1], extent, &s->ref);
		fb_advance(fb, 100);
		fb_poll(fb, 0);
		fb_poll(fb, 1);
	}
	fb_lost_scan(fb, extent);
	if (r >= 0)
		fb_slab_free(fb, s);
	return r;
}

/* Pages 0 to 63, the first extent, written and out on a slab. */
static struct fake_backend *filled(struct fb_config cfg)
{
	struct fake_backend *fb;
	u32 i;

	cfg.nr_lanes = 2;
	cfg.budget = 112;
	fb = world(cfg);
	for (i = 0; i < 64; i++)
		put(fb, i);
	push_out(fb, 0, 64);
	assert_non_null(fb_slab_open(fb, 0));
	return fb;
}

static void test_attach(void **state)
{
	struct fake_backend *fb = world(calm());
	struct fb_slab *a, *c;
	struct dcm_slab_ref small = { .bytes = 4096 };

	(void)state;
	a = attach(fb, 3);
	assert_ptr_equal(fb_slab_open(fb, 3), a);
	attach(fb, 3);
	attach(fb, 3);
	assert_ptr_equal(fb_slab_open(fb, 3), a);
	assert_int_equal(fb->vm->extent[3].open, DCM_SLOTS_ALL);
	c = fb_slab_take(fb, 9, -1);
	assert_int_equal(dcm_extent_attach(fb->vm, 3, &c->ref), -EBUSY);
	assert_int_equal(dcm_extent_attach(fb->vm, fb->vm->nr_extents, &c->ref),
			 -EINVAL);
	assert_int_equal(dcm_extent_attach(fb->vm, 4, NULL), -EINVAL);
	assert_int_equal(dcm_extent_attach(fb->vm, 4, &small), -EINVAL);
	end(fb);
}

static void test_move(void **state)
{
	struct fake_backend *fb = filled(calm());
	struct fb_slab *old = fb_slab_open(fb, 0);
	u64 reads = fb->nr_reads;
	u32 i, cursor = 0;

	(void)state;
	/* two of the pages are here meanwhile, one of them changed */
	get(fb, 5);
	put(fb, 6);
	attach(fb, 0);
	assert_int_equal(move(fb, 0, old), 0);
	assert_int_equal(dcm_extent_drain(&fb->vm->lane[1], 0, &old->ref,
					 &cursor),
			 -ENOENT);
	assert_true(fb->nr_reads - reads >= 62);
	assert_int_equal(count(fb, DCM_C_MOVED_PAGES), 62);
	fb_sync(fb);
	fb_fsck(fb, true);
	for (i = 0; i < 64; i++)
		get(fb, i);
	end(fb);
}

static void test_pull(void **state)
{
	struct fake_backend *fb = filled(calm());
	struct fb_slab *old = fb_slab_open(fb, 0);
	u32 cursor = 0, i;
	int r;

	(void)state;
	/* 64 pages don't fit beside the others */
	r = move(fb, 0, old);
	assert_true(r == -ENOSPC || r == 0);
	fb_budget(fb, 512);
	assert_int_equal(move(fb, 0, old), 0);
	assert_null(fb_slab_open(fb, 0));
	for (i = 0; i < 64; i++)
		assert_int_not_equal(state_of(fb, i), DCM_NOTDIRECT);
	assert_int_equal(dcm_extent_drain(&fb->vm->lane[1], 0, &old->ref,
					 &cursor),
			 -ENOENT);
	fb_sync(fb);
	fb_fsck(fb, true);
	for (i = 0; i < 64; i++)
		get(fb, i);
	end(fb);
}

static void test_lost(void **state)
{
	struct fake_backend *fb = filled(calm());
	struct fb_slab *s = fb_slab_open(fb, 0);
	u64 calls;
	u32 i;

	(void)state;
	get(fb, 1); /* clean, here: stays, becomes dirty */
	put(fb, 2); /* dirty, here */
	fb_discard(fb, 0, 3, 1); /* zero: can't be lost */
	fb_slab_kill(fb, s);
	assert_int_equal(lose(fb, 0, s), 61);
	assert_int_equal(count(fb, DCM_C_LOST_PAGES), 61);
	calls = fb->nr_lost_calls;
	for (i = 0; i < 64; i++) {
		bool lost = i == 0 || i > 3;

		assert_int_equal(fb_access(fb, 0, i, i & 1, false),
				 lost ? -EIO : 0);
		assert_int_equal(fb_present(fb, i), !lost);
		assert_int_equal(fb_is_lost(fb, i), lost);
	}
	assert_int_equal(fb->nr_lost_calls - calls, 61);
	assert_int_equal(count(fb, DCM_C_FAULT_LOST), 61);
	/* Direct pages go to another donor; lost pages stay lost until a discard. */
	flood(fb, 1500);
	get(fb, 1);
	get(fb, 2);
	assert_int_equal(fb_access(fb, 0, 4, false, false), -EIO);
	fb_discard(fb, 0, 4, 1);
	get(fb, 4);
	assert_int_equal(fb_access(fb, 0, 5, false, false), -EIO);
	end(fb);
}

/* The donor is silent, then back: nothing is lost, the fault waits. */
static void test_silence(void **state)
{
	struct fake_backend *fb = filled(calm());
	struct fb_slab *s = fb_slab_open(fb, 0);
	u32 gen = fb->wakes[9], i;

	(void)state;
	fb->donor[s->donor].unreachable_until = fb->tick + 500000;
	assert_int_equal(fb_fault(fb, 0, 9, 0), DCM_FAULT_PENDING);
	for (i = 0; i < 400; i++) {
		fb_advance(fb, 1000);
		fb_poll(fb, 0);
		assert_int_equal(fb->wakes[9], gen);
		assert_false(fb_present(fb, 9));
	}
	for (i = 0; i < 400; i++) {
		fb_advance(fb, 1000);
		fb_poll(fb, 0);
	}
	assert_true(fb_present(fb, 9));
	get(fb, 9);
	assert_true(count(fb, DCM_C_FETCHES) > 0);
	end(fb);
}

/*
 * R1: a write-back with several runs, one done, the next waiting for room in
 * the queue. The slab is lost and another attached in its place: the
 * new slab does not have the first run's pages.
 */
static void test_lost_between_runs(void **state)
{
	struct fb_config cfg = calm();
	struct fb_slab *old;
	struct fake_backend *fb;
	u32 i, n;

	(void)state;
	cfg.nr_lanes = 2;
	cfg.budget = 112;
	cfg.qdepth = 1;
	cfg.touched_bits = false;
	fb = world(cfg);
	tune(fb, "largest_block", 65536);
	tune(fb, "elastic", 0);
	for (i = 0; i < 64; i++)
		put(fb, i);
	push_out(fb, 0, 64);
	old = fb_slab_open(fb, 0);
	/* every second page dirty: many runs */
	for (n = 0; n < 200; n++) {
		for (i = 0; i < 64; i += 2)
			if (fb_access(fb, 0, i, true, false))
				fb_discard(fb, 0, i, 1);
		for (i = 0; i < 30; i++) {
			int f = fb_write(fb, FLOOD_AT + (n * 30 + i) % 1000,
					 false);

			fb_give_slabs(fb, n);
			if (f >= 0)
				fb_fault(fb, 0, FLOOD_AT + (n * 30 + i) % 1000,
					 (u32)f);
		}
		if (n % 5 == 4 && fb_slab_open(fb, 0)) {
			s64 r;

			old = fb_slab_open(fb, 0);
			fb_slab_kill(fb, old);
			do {
				r = dcm_extent_lost(&fb->vm->lane[1], 0,
						    &old->ref);
				if (r >= 0)
					break;
				fb_poll(fb, 0);
				fb_advance(fb, 1);
			} while (r == -EAGAIN);
			fb_lost_scan(fb, 0);
			fb_slab_free(fb, old);
			attach(fb, 0);
		}
		fb_poll(fb, 0);
		fb_fsck(fb, false);
	}
	for (i = 0; i < 64; i++)
		if (fb_access(fb, 0, i, false, false))
			assert_true(fb_is_lost(fb, i));
	end(fb);
}

/* R2: the destination of a move dies: that says nothing about the source. */
static void test_destination_dies(void **state)
{
	struct fake_backend *fb = filled(calm());
	struct fb_slab *old = fb_slab_open(fb, 0), *new;
	u32 cursor = 0, n, i;
	int r;

	(void)state;
	fb->cfg.max_delay = 50;
	new = attach(fb, 0);
	for (n = 0; n < 4; n++) {
		r = dcm_extent_drain(&fb->vm->lane[1], 0, &old->ref, &cursor);
		assert_int_equal(r, -EAGAIN);
	}
	fb_slab_kill(fb, new);
	for (n = 0; n < 200; n++) {
		r = dcm_extent_drain(&fb->vm->lane[1], 0, &old->ref, &cursor);
		assert_int_not_equal(r, -EIO);
		assert_int_not_equal(r, 0);
		fb_advance(fb, 20);
		fb_poll(fb, 1);
	}
	lose(fb, 0, new);
	for (n = 0; n < 200; n++) {
		r = dcm_extent_drain(&fb->vm->lane[1], 0, &old->ref, &cursor);
		assert_int_not_equal(r, -EIO);
		fb_advance(fb, 20);
		fb_poll(fb, 1);
	}
	fb_give_slabs(fb, 3);
	cursor = 0;
	assert_int_equal(move(fb, 0, old), 0);
	/* only pages that were on the dead donor are lost */
	for (n = 0, i = 0; i < 64; i++)
		n += fb_access(fb, 0, i, false, false) != 0;
	assert_true(n < 64);
	end(fb);
}

/* The source dies under a move: -EIO, and then the extent is lost. */
static void test_source_dies(void **state)
{
	struct fake_backend *fb = filled(calm());
	struct fb_slab *old = fb_slab_open(fb, 0);
	u32 i, lost = 0;
	s64 n;

	(void)state;
	attach(fb, 0);
	fb_slab_kill(fb, old);
	assert_int_equal(move(fb, 0, old), -EIO);
	n = lose(fb, 0, old);
	assert_int_equal(n, 64);
	for (i = 0; i < 64; i++)
		lost += fb_access(fb, 0, i, false, false) == -EIO;
	assert_int_equal(lost, 64);
	end(fb);
}

/* R4: pulled back while write-backs to the slab are under way: none is lost. */
static void test_pull_against_writeback(void **state)
{
	struct fb_config cfg = calm();
	struct fake_backend *fb;
	struct fb_slab *old;
	u32 i, n, cursor;
	int r;

	(void)state;
	for (n = 0; n < 20; n++) {
		cfg.seed = n + 1;
		fb = filled(cfg);
		fb->cfg.max_delay = 300;
		old = fb_slab_open(fb, 0);
		fb_budget(fb, 300);
		cursor = 0;
		r = -EAGAIN;
		for (i = 0; i < 3000 && r == -EAGAIN; i++) {
			u32 p = i % 3 ? i % 64 : FLOOD_AT + i % 500;
			int f = fb_write(fb, p, false);

			if (f >= 0)
				fb_fault(fb, 0, p, (u32)f);
			fb_give_slabs(fb, i);
			r = dcm_extent_drain(&fb->vm->lane[1], 0, &old->ref,
					    &cursor);
			if (r == -ENOSPC) {
				r = -EAGAIN;
				cursor = 0;
				fb_balance(fb, 0);
			}
			fb_advance(fb, 7);
			fb_poll(fb, 0);
		}
		if (!r)
			fb_slab_free(fb, old);
		fb_sync(fb);
		assert_int_equal(count(fb, DCM_C_LOST_PAGES), 0);
		for (i = 0; i < 64; i++)
			get(fb, i);
		end(fb);
	}
}

/* While pages are synced, exactly the lost page is reported as lost. */
static void test_syncing_names_what_is_lost(void **state)
{
	struct fb_config cfg = calm();
	struct fake_backend *fb;
	u64 at = 0;
	u32 i;

	(void)state;
	cfg.max_delay = 50;
	fb = filled(cfg);
	for (i = 64; i < 128; i++)
		put(fb, i);
	push_out(fb, 64, 64);
	assert_true(lose(fb, 1, fb_slab_open(fb, 1)) > 0);
	for (i = 0; i < 64; i++)
		put(fb, i);
	assert_int_equal(fb_to_donors(fb, 0, &at, 128, true, 1000000000ull),
			 -EIO);
	assert_int_equal(at, 64);
	end(fb);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_attach),
		cmocka_unit_test(test_move),
		cmocka_unit_test(test_pull),
		cmocka_unit_test(test_lost),
		cmocka_unit_test(test_silence),
		cmocka_unit_test(test_lost_between_runs),
		cmocka_unit_test(test_destination_dies),
		cmocka_unit_test(test_source_dies),
		cmocka_unit_test(test_pull_against_writeback),
		cmocka_unit_test(test_syncing_names_what_is_lost),
	};

	return cmocka_run_group_tests_name("core_extent", tests, NULL, NULL);
}

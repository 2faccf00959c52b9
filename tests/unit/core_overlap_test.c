// SPDX-License-Identifier: GPL-2.0-or-later
/* links: CORE FAKE */
/* threads: one */
/*
 * core_overlap_test.c - fetch and write-back at the same time, the budget that bounds
 * them, and accesses that need no network
 */
#include "core_table.h"

static bool io_in_flight(struct fake_backend *fb, enum dcm_io_op op)
{
	u32 i;

	for (i = 0; i < fb->lane[0].nr_io; i++)
		if (fb->lane[0].io[i].io->op == op)
			return true;
	return false;
}

/* The fetch is posted, then victims are chosen and written back beside it. */
static void test_overlap(void **state)
{
	struct fb_config cfg = calm();
	struct fake_backend *fb;
	u32 i, both = 0;
	u64 stalls;

	(void)state;
	fb = world(cfg);
	for (i = 0; i < 400; i++)
		put(fb, i);
	fb_sync(fb);
	stalls = count(fb, DCM_C_FAULT_STALL); /* until slabs were there */
	fb->cfg.max_delay = 1000000;
	for (i = 0; i < 40 && !both; i++) {
		if (state_of(fb, i) != DCM_NOTDIRECT)
			continue;
		if (fb_fault(fb, 0, i, 0) != DCM_FAULT_PENDING)
			break;
		both += io_in_flight(fb, DCM_IO_READ) &&
			io_in_flight(fb, DCM_IO_WRITE);
	}
	assert_int_equal(both, 1);
	/* no frame was waited for */
	assert_int_equal(count(fb, DCM_C_FAULT_STALL), stalls);
	fb_advance(fb, 2000000);
	end(fb);
}

/* Zero pages: no network in, none out, and never a slab. */
static void test_zero(void **state)
{
	struct fb_config cfg = calm();
	struct fake_backend *fb;
	u32 i, e;

	(void)state;
	for (e = 0; e < 4; e++) {
		cfg.dirty_bits = e & 1;
		fb = world(cfg);
		if (e & 2)
			tune(fb, "largest_block", 65536);
		for (i = 0; i < 1000; i++)
			assert_int_equal(fb_access(fb, 0, i, i % 3 == 0, true),
					 0);
		assert_int_equal(fb->nr_posts, 0);
		assert_int_equal(count(fb, DCM_C_FETCHES), 0);
		assert_int_equal(count(fb, DCM_C_WRITEBACKS), 0);
		for (i = 0; i < fb->vm->nr_extents; i++) {
			assert_false(fb->want[i]);
			assert_null(fb->vm->extent[i].slot[0].slab);
		}
		/* one that is not zero, and is again later */
		put(fb, 3);
		push_out(fb, 3, 1);
		assert_true(pd_word(pd_of(fb->vm, 3)) & PD_AT);
		assert_int_equal(fb_access(fb, 0, 3, true, true), 0);
		push_out(fb, 3, 1);
		assert_false(pd_word(pd_of(fb->vm, 3)) & PD_AT);
		assert_int_equal(fb->nr_zero_written, 0);
		get(fb, 3);
		end(fb);
	}
}

/* Read and not written: dropped, not written back. */
static void test_clean_drop(void **state)
{
	struct fb_config cfg = calm();
	struct fake_backend *fb;
	u64 writes;
	u32 i, n;

	(void)state;
	for (n = 0; n < 2; n++) {
		cfg.dirty_bits = n;
		fb = world(cfg);
		for (i = 0; i < 400; i++)
			put(fb, i);
		fb_sync(fb);
		/* a page written once is guessed to be written again, once or
		 * twice: after some rounds it is known to be read only */
		for (n = 0; n < 12; n++) {
			for (i = 0; i < 400; i++)
				get(fb, i);
		}
		n = cfg.dirty_bits;
		writes = count(fb, DCM_C_WRITTEN_PAGES);
		for (i = 0; i < 400; i++)
			get(fb, i);
		fb_sync(fb);
		assert_true(count(fb, DCM_C_WRITTEN_PAGES) - writes <= 8);
		assert_true(count(fb, DCM_C_CLEAN_DROPS) > 1000);
		end(fb);
	}
}

/*
 * Pages that are written each time they are here: only now and then one is mapped
 * read-only, to see whether it still is. Before, every third of them took two faults.
 */
static void test_always_written(void **state)
{
	struct fake_backend *fb = world(calm());
	u64 wp = 0, missing = 0;
	u32 i, n;

	(void)state;
	tune(fb, "largest_block", 4096);
	for (n = 0; n < 40; n++) {
		if (n == 20) {
			wp = count(fb, DCM_C_FAULT_WP);
			missing = count(fb, DCM_C_FAULT_MISSING);
		}
		for (i = 0; i < 400; i++) {
			get(fb, i);
			put(fb, i);
		}
	}
	wp = count(fb, DCM_C_FAULT_WP) - wp;
	missing = count(fb, DCM_C_FAULT_MISSING) - missing;
	assert_true(missing > 4000);
	assert_in_range(wp, 1, missing / 8);
	end(fb);
}

/*
 * The first write to new memory predicts no other: a page that is only read then
 * is written back once and dropped later. Where new pages are written again, the
 * core expects the same of their neighbours.
 */
static void test_filled_once(void **state)
{
	struct fake_backend *fb = world(calm());
	u64 writes, wp;
	u32 i, n;

	(void)state;
	for (i = 0; i < 300; i++)
		put(fb, i);
	push_out(fb, 0, 300);
	writes = count(fb, DCM_C_WRITTEN_PAGES);
	for (i = 0; i < 300; i++)
		get(fb, i);
	fb_sync(fb);
	/* pages that push_out() filled are still being written back */
	assert_true(count(fb, DCM_C_WRITTEN_PAGES) - writes <= 96);
	/* every page is written after its second fetch: the core learns that */
	for (n = 0; n < 2; n++)
		for (i = 600; i < 700; i++)
			put(fb, i);
	push_out(fb, 600, 100);
	for (i = 700; i < 900; i++)
		put(fb, i);
	push_out(fb, 700, 200);
	wp = count(fb, DCM_C_FAULT_WP);
	for (i = 700; i < 900; i++) {
		get(fb, i);
		put(fb, i);
	}
	assert_true(count(fb, DCM_C_FAULT_WP) - wp < 100);
	end(fb);
}

/* After a cancelled write-back, the next one starts only when the first is done. */
static void test_cancel_order(void **state)
{
	struct fb_config cfg = calm();
	struct fake_backend *fb;
	u32 i, n, cancelled;

	(void)state;
	/* Two slow lanes and few pages: cancelled and evicted over and over.
	 * That no two writes of a page are in flight is the fake backend's to
	 * see, and that the last one stays. */
	for (n = 0; n < 10; n++) {
		cfg.seed = n + 1;
		cfg.nr_lanes = 2;
		cfg.budget = 96;
		cfg.max_delay = 3000;
		cfg.p_error = n % 2 ? 2000 : 0;
		fb = world(cfg);
		for (i = 0; i < 6000; i++) {
			u32 p = (u32)(fb_random(&cfg.seed) % 140);
			int f = fb_write(fb, p, false);

			fb_give_slabs(fb, i);
			if (f >= 0)
				fb_fault(fb, i & 1, p, (u32)f);
			fb_advance(fb, 5);
			fb_poll(fb, i & 1);
			if (i % 64 == 0) {
				fb_check_budget(fb);
				fb_fsck(fb, false);
			}
		}
		cancelled = (u32)count(fb, DCM_C_CANCELLED);
		assert_true(cancelled > 20);
		fb_sync(fb);
		for (i = 0; i < 140; i++)
			get(fb, i);
		end(fb);
	}
}

/* A write-back that fails leaves the block here, and is tried again. */
static void test_write_errors(void **state)
{
	struct fb_config cfg = calm();
	struct fake_backend *fb;
	u32 i;

	(void)state;
	cfg.p_error = 7000;
	fb = world(cfg);
	for (i = 0; i < 500; i++)
		put(fb, i);
	assert_true(count(fb, DCM_C_WRITE_ERRORS) > 100);
	fb->cfg.p_error = 0;
	fb_sync(fb);
	for (i = 0; i < 500; i++)
		get(fb, i);
	end(fb);
}

/* No donor takes anything: faults stall, nothing is over, nothing is lost. */
static void test_no_slab(void **state)
{
	struct fb_config cfg = calm();
	enum dcm_fault_result r = DCM_FAULT_DONE;
	struct fake_backend *fb;
	u32 i, n, stalled = 0;

	(void)state;
	cfg.nr_slabs = 1;
	fb = world(cfg);
	fb->donor[0].dead = true; /* nobody lends */
	for (i = 0; i < 200; i++) {
		int f = fb_write(fb, i, false);

		for (n = 0; n < 20 && f >= 0; n++) {
			r = fb_fault(fb, 0, i, (u32)f);
			f = fb_write(fb, i, false);
		}
		stalled += r == DCM_FAULT_STALL;
		fb_check_budget(fb);
	}
	assert_true(stalled > 100);
	assert_true(fb->mapped + fb->frames <= 96);
	assert_true(count(fb, DCM_C_FAULT_STALL) > 100);
	assert_true(fb->want[0]);
	/* dcm_balance() has nothing to do, and says so */
	for (n = 0; n < 100 && fb_balance(fb, 0); n++)
		;
	assert_true(n < 100);
	for (i = 0; i < 64; i++)
		get(fb, i);
	fb_fsck(fb, false);
	fb_destroy(fb);
}

/* The budget holds through all sizes, down to the least and back. */
static void test_budget(void **state)
{
	struct fb_config cfg = calm();
	struct fake_backend *fb;
	u64 lo, b;
	u32 i, n, m;

	(void)state;
	for (m = 0; m < 4; m++) {
		cfg.nr_lanes = 1 + m;
		cfg.budget = 1000;
		cfg.max_delay = 30 * m;
		fb = world(cfg);
		tune(fb, "largest_block", 65536);
		lo = dcm_min_budget(fb->vm);
		for (n = 0; n < 12; n++) {
			static const u32 part[] = { 1000, 0, 500, 10, 900, 3 };

			b = lo + (1000 - lo) * part[n % 6] / 1000;
			assert_int_equal(fb_budget(fb, b), 0);
			for (i = 0; i < 700; i++) {
				u32 p = (u32)(fb_random(&cfg.seed) % 1400);

				assert_int_equal(fb_access(fb, i % cfg.nr_lanes,
							   p, i & 1, false),
						 0);
				fb_check_budget(fb);
			}
			fb_sync(fb);
			fb_check_budget(fb);
			assert_true((u64)(fb->mapped + fb->frames) <= b);
			assert_int_equal(atomic64_read(&fb->vm->direct),
					 fb->mapped + fb->frames);
		}
		for (i = 0; i < 1400; i++)
			get(fb, i);
		end(fb);
	}
}

/* With a budget of its size a VM evicts nothing, and unmaps nothing. */
static void test_nothing_leaves_where_all_may_be_direct(void **state)
{
	struct fb_config cfg = calm();
	struct fake_backend *fb;
	u32 i;

	(void)state;
	cfg.budget = cfg.nr_pages;
	fb = world(cfg);
	for (i = 0; i < 2 * cfg.nr_pages; i++)
		put(fb, i % cfg.nr_pages);
	for (i = 0; i < cfg.nr_pages; i++)
		assert_true(fb_present(fb, i));
	assert_int_equal(atomic64_read(&fb->vm->evicted), 0);
	assert_int_equal(atomic64_read(&fb->vm->inactive_pages), 0);
	/* a smaller budget is kept to at once, as ever */
	assert_int_equal(dcm_set_budget(fb->vm, cfg.nr_pages - 256), 0);
	for (i = 0; i < cfg.nr_pages; i++)
		get(fb, i);
	fb_sync(fb);
	assert_true(atomic64_read(&fb->vm->direct) <= (s64)cfg.nr_pages - 256);
	end(fb);
}

/* The smallest budget and the largest blocks still get everywhere. */
static void test_tiny(void **state)
{
	struct fb_config cfg = calm();
	struct fake_backend *fb;
	u32 i, k;

	(void)state;
	for (k = 0; k < 8; k++) {
		cfg.nr_lanes = 1 + k % 4;
		cfg.budget = 64 + 16 * cfg.nr_lanes;
		cfg.touched_bits = k & 1;
		cfg.dirty_bits = k & 2;
		fb = world(cfg);
		tune(fb, "largest_block", 65536);
		tune(fb, "elastic", k < 4);
		tune(fb, "proactive_share", 9000);
		tune(fb, "inactive_share", 5000);
		tune(fb, "reserve_pages", k & 1 ? 1 : 65536);
		for (i = 0; i < 4000; i++)
			assert_int_equal(fb_access(fb, i % cfg.nr_lanes,
						   (u32)(fb_random(&cfg.seed) %
							 700),
						   i & 1, false),
					 0);
		end(fb);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_overlap),
		cmocka_unit_test(test_zero),
		cmocka_unit_test(test_clean_drop),
		cmocka_unit_test(test_always_written),
		cmocka_unit_test(test_filled_once),
		cmocka_unit_test(test_cancel_order),
		cmocka_unit_test(test_write_errors),
		cmocka_unit_test(test_no_slab),
		cmocka_unit_test(test_budget),
		cmocka_unit_test(test_nothing_leaves_where_all_may_be_direct),
		cmocka_unit_test(test_tiny),
	};

	return cmocka_run_group_tests_name("core_overlap", tests, NULL, NULL);
}

// SPDX-License-Identifier: GPL-2.0-or-later
/* links: CORE FAKE */
/*
 * core_fresh_test.c - how many pages a first touch brings in
 */
#include "core_table.h"

#define BUDGET 10000u /* runs of up to 512 pages, until 8750 are here */

static struct fake_backend *roomy(u64 budget)
{
	struct fb_config cfg = calm();
	struct fake_backend *fb;

	cfg.nr_pages = 12288;
	cfg.nr_slabs = 256;
	cfg.budget = budget;
	cfg.fresh = true;
	fb = world(cfg);
	tune(fb, "largest_block", 65536);
	return fb;
}

/* Memory that is filled in order takes a fault for each doubling, then one for 2 MiB. */
static void test_in_order(void **state)
{
	struct fake_backend *fb = roomy(BUDGET);
	u64 faults;
	u32 i;

	(void)state;
	for (i = 0; i < 1024; i++)
		put(fb, i);
	faults = count(fb, DCM_C_FAULTS);
	assert_in_range(faults, 8, 16);
	for (; i < 4096; i++)
		put(fb, i);
	assert_int_equal(count(fb, DCM_C_FAULTS) - faults, 6);
	/* each block can go by itself */
	for (i = 1024; i < 4096; i++)
		assert_int_equal(pages_of(fb, i), 4);
	fb_fsck(fb, false);
	end(fb);
}

/* Downwards as well. */
static void test_backwards(void **state)
{
	struct fake_backend *fb = roomy(BUDGET);
	u32 i;

	(void)state;
	for (i = 4096; i-- > 0;)
		put(fb, i);
	assert_in_range(count(fb, DCM_C_FAULTS), 14, 24);
	end(fb);
}

/* Pages that are touched alone come alone. */
static void test_sparse(void **state)
{
	struct fake_backend *fb = roomy(BUDGET);
	u32 i;

	(void)state;
	for (i = 0; i < 12000; i += 8)
		put(fb, i);
	assert_int_equal(fb->mapped, 1500);
	assert_int_equal(fb->nr_fresh, 0);
	end(fb);
}

/* One page in eight is touched, at random: few others are brought in. */
static void test_random_sparse(void **state)
{
	struct fake_backend *fb = roomy(BUDGET);
	u64 rng = 5;
	u32 i, touched = 0;

	(void)state;
	for (i = 0; i < 12288 / 8; i++) {
		u32 gfn = (u32)(fb_random(&rng) % 12288);

		touched += !fb_present(fb, gfn);
		put(fb, gfn);
	}
	assert_true(fb->mapped < touched + touched / 10);
	end(fb);
}

/* Filled at random: once half of it is here the rest comes without a fault a page. */
static void test_random_dense(void **state)
{
	struct fake_backend *fb = roomy(BUDGET);
	u64 rng = 7;
	u32 i;

	(void)state;
	for (i = 0; i < 40000; i++)
		put(fb, (u32)(fb_random(&rng) % 4096));
	assert_true(count(fb, DCM_C_FAULTS) < 4096 * 6 / 10);
	assert_true(fb->mapped <= 4096);
	end(fb);
}

/* No run takes the last eighth of the budget, and none evicts. */
static void test_room(void **state)
{
	struct fake_backend *fb = roomy(2048);
	u32 i;

	(void)state;
	for (i = 0; i < 1792; i++)
		put(fb, i);
	assert_true(fb->mapped <= 1792);
	assert_int_equal(count(fb, DCM_C_DEMOTED), 0);
	i = (u32)fb->nr_fresh;
	assert_true(i > 4);
	put(fb, 1792);
	put(fb, 1793);
	assert_int_equal(fb->nr_fresh, i);
	end(fb);
}

/* Pages that nobody used leave without a donor. */
static void test_unused(void **state)
{
	struct fake_backend *fb = roomy(2048);
	u32 i;

	(void)state;
	for (i = 0; i < 65; i++)
		put(fb, i);
	assert_int_equal(fb->mapped, 128);
	for (i = 2048; i < 8192; i++)
		put(fb, i);
	fb_sync(fb);
	for (i = 0; i < 128; i++) {
		assert_int_equal(state_of(fb, i), DCM_NOTDIRECT);
		assert_int_equal(!!(pd_word(pd_of(fb->vm, i)) & PD_AT), i < 65);
	}
	for (i = 0; i < 128; i++)
		get(fb, i);
	end(fb);
}

/* Pages that a donor has, or has lost, are no part of a run; their neighbours are. */
static void test_around_content(void **state)
{
	struct fake_backend *fb = roomy(2048);
	u32 i;

	(void)state;
	put(fb, 70);
	put(fb, 90);
	for (i = 2048; i < 8192; i++)
		put(fb, i);
	fb_sync(fb);
	assert_true(pd_word(pd_of(fb->vm, 70)) & PD_AT);
	fb_discard(fb, 0, 2048, 6144);
	for (i = 0; i < 128; i++)
		if (i != 70 && i != 90)
			put(fb, i);
	assert_true(fb->nr_fresh > 0);
	assert_true(pd_word(pd_of(fb->vm, 90)) & PD_AT);
	get(fb, 70);
	get(fb, 90);
	fb_fsck(fb, false);
	end(fb);
}

/* The pager can't map a run: the page comes all the same. */
static void test_refused(void **state)
{
	struct fake_backend *fb = roomy(BUDGET);
	u32 i;

	(void)state;
	fb->cfg.p_install_fail = 5000;
	for (i = 0; i < 2048; i++)
		put(fb, i);
	assert_true(fb->nr_fresh > 0);
	fb_fsck(fb, false);
	end(fb);
}

/* A pager that can map 2 MiB by one entry gets them at the first touch. */
static void test_span(void **state)
{
	struct fake_backend *fb = roomy(BUDGET);
	u32 i;

	(void)state;
	fb->cfg.spans = true;
	put(fb, 700);
	assert_int_equal(fb->mapped, 512);
	for (i = 512; i < 1024; i++)
		put(fb, i);
	assert_int_equal(count(fb, DCM_C_FAULTS), 1);
	/* each block can go by itself */
	assert_int_equal(pages_of(fb, 700), 4);
	/* none takes the last eighth of the budget */
	for (i = 1024; i < 12288; i += 512)
		put(fb, i);
	assert_in_range(fb->mapped, 8750 - 512, 8750 + 128);
	assert_int_equal(count(fb, DCM_C_DEMOTED), 0);
	fb_fsck(fb, false);
	end(fb);
}

/* Where all memory may be direct, no part of the budget is kept free of spans. */
static void test_span_all_direct(void **state)
{
	struct fake_backend *fb = roomy(12288);
	u32 i;

	(void)state;
	fb->cfg.spans = true;
	for (i = 0; i < 12288; i++)
		put(fb, i);
	assert_int_equal(count(fb, DCM_C_FAULTS), 24);
	assert_int_equal(fb->nr_fresh, 24);
	end(fb);
}

/* A page of it was used before: the touched page comes, and no span. */
static void test_span_used(void **state)
{
	struct fake_backend *fb = roomy(12288);

	(void)state;
	put(fb, 5);
	fb->cfg.spans = true;
	put(fb, 300);
	assert_int_equal(fb->nr_fresh, 0);
	assert_true(fb->mapped <= 32);
	/* given up, it is as new */
	fb_discard(fb, 0, 0, 512);
	put(fb, 300);
	assert_int_equal(fb->nr_fresh, 1);
	assert_int_equal(fb->mapped, 512);
	fb_fsck(fb, false);
	end(fb);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_in_order),
		cmocka_unit_test(test_backwards),
		cmocka_unit_test(test_sparse),
		cmocka_unit_test(test_random_sparse),
		cmocka_unit_test(test_random_dense),
		cmocka_unit_test(test_room),
		cmocka_unit_test(test_unused),
		cmocka_unit_test(test_around_content),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_span),
		cmocka_unit_test(test_span_all_direct),
		cmocka_unit_test(test_span_used),
	};

	return cmocka_run_group_tests_name("core_fresh", tests, NULL, NULL);
}

// SPDX-License-Identifier: GPL-2.0-or-later
/* links: CORE FAKE */
/*
 * core_lag_test.c - files that are filled behind donors of memory
 *
 * The first extent has a slab in memory, in slot 0, and one in a file, in slot 1;
 * its pages are on both.
 */
#include "core_copies.h"

#define MEMORY 1u /* sets */
#define FILE_ONLY 2u
#define BOTH 3u

static struct fake_backend *lag_world(u64 lag_pages)
{
	struct fake_backend *fb = copies_world(1);
	u32 i;

	for (i = 0; i < fb->cfg.nr_slabs; i++)
		if (fb->slab[i].donor == 1)
			fb->slab[i].ref.rank = DCM_RANK_FILE;
	attach(fb, 0, 1);
	fill(fb);
	tune(fb, "lag_pages", lag_pages);
	return fb;
}

/* Pages of the first extent with that set. */
static u32 pages_on(const struct fake_backend *fb, u8 set)
{
	u32 i, n = 0;

	for (i = 0; i < PAGES; i++)
		n += at(fb, i) == set;
	return n;
}

static void put_all(struct fake_backend *fb)
{
	u32 i;

	for (i = 0; i < PAGES; i++)
		put(fb, i);
	push_out(fb, 0, PAGES);
	fb_fsck(fb, true);
}

static void get_all(struct fake_backend *fb)
{
	u32 i;

	for (i = 0; i < PAGES; i++)
		get(fb, i);
}

/* Write-backs leave the file out; a fill copies to it what it lacks. */
static void test_files_are_filled_behind(void **state)
{
	struct fake_backend *fb = lag_world(1000);

	(void)state;
	put_all(fb);
	assert_int_equal(pages_on(fb, MEMORY), PAGES);
	assert_in_range(dcm_extent_lag(fb->vm, 0), PAGES, 1000);
	assert_false(fb->vm->extent[0].thin);
	fill(fb);
	assert_int_equal(pages_on(fb, BOTH), PAGES);
	assert_int_equal(dcm_extent_lag(fb->vm, 0), 0);
	assert_int_equal(atomic64_read(&fb->vm->lag), 0);
	assert_int_equal(lose(fb, 0), 0);
	get_all(fb);
	end(fb);
}

/* With 0 they go to both. */
static void test_no_lag(void **state)
{
	struct fake_backend *fb = lag_world(0);

	(void)state;
	put_all(fb);
	assert_int_equal(pages_on(fb, BOTH), PAGES);
	assert_int_equal(dcm_extent_lag(fb->vm, 0), 0);
	end(fb);
}

/* At most lag_pages lag; the death of all donors of memory takes these, no more. */
static void test_lag_is_bounded(void **state)
{
	struct fake_backend *fb = lag_world(20);
	u32 lagging, n;

	(void)state;
	for (n = 0; n < 4; n++)
		put_all(fb);
	lagging = pages_on(fb, MEMORY);
	assert_int_equal(lagging + pages_on(fb, BOTH), PAGES);
	assert_true(lagging <= 20);
	fill(fb);
	put_all(fb);
	lagging = pages_on(fb, MEMORY);
	assert_in_range(lagging, 1, 20);
	assert_int_equal(lose(fb, 0), lagging);
	assert_int_equal(count(fb, DCM_C_LOST_PAGES), lagging);
	end(fb);
}

/* A clean page that lags is dropped; without room it is written to the file. */
static void test_clean_pages(void **state)
{
	struct fake_backend *fb = lag_world(1000);
	u64 writes;

	(void)state;
	tune(fb, "proactive_share", 0);
	put(fb, PAGE);
	push_out(fb, PAGE, 1);
	assert_int_equal(at(fb, PAGE), MEMORY);
	pd_clear(pd_of(fb->vm, PAGE), PD_WROTE);
	get(fb, PAGE);
	assert_false(pd_word(pd_of(fb->vm, PAGE)) & PD_DIRTY);
	push_out(fb, PAGE, 1);
	assert_int_equal(at(fb, PAGE), MEMORY);
	fb_fsck(fb, true);
	pd_clear(pd_of(fb->vm, PAGE), PD_WROTE);
	get(fb, PAGE);
	tune(fb, "lag_pages", 0);
	writes = fb->nr_writes;
	push_out(fb, PAGE, 1);
	assert_true(fb->nr_writes > writes);
	assert_int_equal(at(fb, PAGE), BOTH);
	assert_int_equal(lose(fb, 0), 0);
	get(fb, PAGE);
	end(fb);
}

/* A page that is here is not made dirty by a fill: it lags when it leaves. */
static void test_fill_while_here(void **state)
{
	struct fake_backend *fb = lag_world(1000);

	(void)state;
	put(fb, PAGE);
	push_out(fb, PAGE, 1);
	pd_clear(pd_of(fb->vm, PAGE), PD_WROTE);
	get(fb, PAGE);
	fill(fb);
	assert_false(pd_word(pd_of(fb->vm, PAGE)) & PD_DIRTY);
	assert_int_equal(dcm_extent_lag(fb->vm, 0), 0);
	push_out(fb, PAGE, 1);
	fb_fsck(fb, true);
	assert_int_equal(dcm_extent_lag(fb->vm, 0), 1);
	end(fb);
}

/* No frame waits for a disk that does not answer, and the extent is not thin. */
static void test_silent_file(void **state)
{
	struct fake_backend *fb = lag_world(1000);
	u32 cursor = 0, i;

	(void)state;
	break_ways(fb, 1, ~0ull);
	put_all(fb);
	assert_int_equal(pages_on(fb, MEMORY), PAGES);
	assert_false(fb->vm->extent[0].thin);
	for (i = 0; i < 50; i++) {
		dcm_extent_fill(&fb->vm->lane[1], 0, &cursor);
		fb_advance(fb, 1000);
		fb_poll(fb, 1);
	}
	assert_true(dcm_extent_lag(fb->vm, 0) >= PAGES);
	assert_int_equal(pages_on(fb, MEMORY), PAGES);
	fb_fsck(fb, false);
	fb_destroy(fb);
}

/* While the donor of memory does not answer, pages go to the file alone. */
static void test_silent_memory(void **state)
{
	struct fake_backend *fb = lag_world(1000);

	(void)state;
	tune(fb, "thin_after", 0);
	break_ways(fb, 0, ~0ull);
	put(fb, PAGE);
	push_out(fb, PAGE, 1);
	assert_int_equal(at(fb, PAGE), FILE_ONLY);
	assert_true(fb->vm->extent[0].thin);
	assert_int_equal(lose(fb, 0), 0);
	get_all(fb);
	end(fb);
}

/* The file goes: nothing lags behind it any more. Another one is filled. */
static void test_another_file(void **state)
{
	struct fake_backend *fb = lag_world(1000);

	(void)state;
	put_all(fb);
	assert_int_equal(lose(fb, 1), 0);
	assert_int_equal(atomic64_read(&fb->vm->lag), 0);
	attach(fb, 0, 1);
	assert_true(fb->vm->extent[0].thin);
	fill(fb);
	assert_int_equal(pages_on(fb, BOTH), PAGES);
	put_all(fb);
	assert_int_equal(pages_on(fb, MEMORY), PAGES);
	end(fb);
}

/* Without a slab in memory, pages go to the file. */
static void test_files_alone(void **state)
{
	struct fake_backend *fb = lag_world(1000);

	(void)state;
	assert_int_equal(lose(fb, 0), 0);
	put_all(fb);
	assert_int_equal(pages_on(fb, FILE_ONLY), PAGES);
	assert_int_equal(dcm_extent_lag(fb->vm, 0), 0);
	end(fb);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_files_are_filled_behind),
		cmocka_unit_test(test_no_lag),
		cmocka_unit_test(test_lag_is_bounded),
		cmocka_unit_test(test_clean_pages),
		cmocka_unit_test(test_fill_while_here),
		cmocka_unit_test(test_silent_file),
		cmocka_unit_test(test_silent_memory),
		cmocka_unit_test(test_another_file),
		cmocka_unit_test(test_files_alone),
	};

	return cmocka_run_group_tests_name("core_lag", tests, NULL, NULL);
}

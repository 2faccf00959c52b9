// SPDX-License-Identifier: GPL-2.0-or-later
/* links: CORE FAKE */
/*
 * core_sum_test.c - donors that give other bytes than they were given
 *
 * The first extent has slabs on two donors. Bytes in a slab are changed behind
 * the core's back; the guest may never see them.
 */
#include "core_copies.h"

/* The donor's bytes of a page become others. */
static void rot(struct fake_backend *fb, u32 slot, u32 page, u64 content)
{
	slab(fb, slot)->sure[page] = false;
	fb->store[slab(fb, slot)->base + page] = content;
}

/* The slot of two that a page is read from. */
static u32 first_of(u32 gfn)
{
	return gfn / DCM_BLOCK_MAX % 2;
}

/* Torn, zero, or another page's: the other slot's bytes are mapped, and go there again. */
static void test_the_other_copy_is_read(void **state)
{
	u32 kind, i;

	(void)state;
	for (kind = 0; kind < 3; kind++) {
		struct fake_backend *fb = copies_world(2);
		const u64 wrong[] = { FH_TORN, 0,
				      fb->store[slab(fb, 0)->base + 20] };

		for (i = 0; i < PAGES; i++)
			if (i != 20)
				rot(fb, first_of(i), i, wrong[kind]);
		for (i = 0; i < PAGES; i++)
			get(fb, i);
		assert_int_equal(count(fb, DCM_C_WRONG_PAGES), PAGES - 1);
		assert_int_equal(count(fb, DCM_C_FAILOVERS), PAGES - 1);
		assert_int_equal(count(fb, DCM_C_LOST_PAGES), 0);
		push_out(fb, 0, PAGES);
		fill(fb);
		for (i = 0; i < PAGES; i++)
			assert_int_equal(at(fb, i), 3);
		end(fb);
	}
}

/* A page of which no donor has the right bytes is lost: no access gets it. */
static void test_no_right_copy_is_lost(void **state)
{
	struct fake_backend *fb = copies_world(2);

	(void)state;
	rot(fb, 0, PAGE, FH_TORN);
	rot(fb, 1, PAGE, FH_TORN);
	assert_int_equal(fb_access(fb, 0, PAGE, false, false), -EIO);
	/* the second slot, then the last one, is read twice */
	assert_int_equal(count(fb, DCM_C_WRONG_PAGES), 3);
	assert_int_equal(count(fb, DCM_C_LOST_PAGES), 1);
	get(fb, PAGE + 1);
	get(fb, PAGE - 1);
	end(fb);
}

/* Only one slot has the page, and its bytes change on their way: it is read again. */
static void test_the_last_copy_is_read_twice(void **state)
{
	struct fake_backend *fb = copies_world(2);

	(void)state;
	rot(fb, first_of(PAGE), PAGE, FH_TORN);
	fb->astray = 2;
	get(fb, PAGE);
	/* what the bad slot has is not looked at: it is on its way that bytes changed */
	assert_int_equal(count(fb, DCM_C_WRONG_PAGES), 2);
	assert_int_equal(count(fb, DCM_C_LOST_PAGES), 0);
	end(fb);
}

/* The same when it is copied to a slab that lacks it. */
static void test_a_fill_reads_the_last_copy_twice(void **state)
{
	struct fake_backend *fb = copies_world(2);
	u32 i;

	(void)state;
	for (i = 0; i < PAGES; i++) {
		slab(fb, 1)->sure[i] = false;
		pd_clear(pd_of(fb->vm, i), pd_at_bits(2));
	}
	fb->vm->extent[0].thin = true;
	fb->astray = 1;
	fill(fb);
	assert_int_equal(count(fb, DCM_C_WRONG_PAGES), 1);
	assert_int_equal(count(fb, DCM_C_LOST_PAGES), 0);
	for (i = 0; i < PAGES; i++)
		assert_int_equal(at(fb, i), 3);
	end(fb);
}

/* Different pages of a block are wrong on each donor: none is lost. */
static void test_pages_of_a_block_are_wrong_on_different_donors(void **state)
{
	struct fake_backend *fb = copies_world(2);
	u32 i;

	(void)state;
	tune(fb, "largest_block", 65536);
	for (i = 0; i < PAGES; i++)
		get(fb, i);
	push_out(fb, 0, PAGES);
	assert_true(pages_of(fb, 16) > 1);
	for (i = 0; i < PAGES; i++)
		rot(fb, i % 2, i, FH_TORN);
	for (i = 0; i < PAGES; i++)
		get(fb, i);
	assert_true(count(fb, DCM_C_WRONG_PAGES) > 1);
	assert_int_equal(count(fb, DCM_C_LOST_PAGES), 0);
	end(fb);
}

/* A fill reads what it copies: wrong bytes do not spread. */
static void test_a_fill_copies_no_wrong_bytes(void **state)
{
	struct fake_backend *fb = copies_world(2);
	u32 i;

	(void)state;
	for (i = 0; i < PAGES; i++)
		rot(fb, first_of(i), i, FH_TORN);
	attach(fb, 0, 2);
	fill(fb);
	assert_int_equal(count(fb, DCM_C_LOST_PAGES), 0);
	assert_true(count(fb, DCM_C_WRONG_PAGES) > 0);
	for (i = 0; i < PAGES; i++)
		get(fb, i);
	push_out(fb, 0, PAGES);
	fill(fb);
	for (i = 0; i < PAGES; i++)
		assert_int_equal(at(fb, i), 7);
	end(fb);
}

/* Pages that had one copy get their sums when they are copied. */
static void test_a_fill_learns_sums(void **state)
{
	struct fake_backend *fb = copies_world(1);

	(void)state;
	attach(fb, 0, 1);
	fill(fb);
	assert_int_equal(at(fb, PAGE), 3);
	rot(fb, 0, PAGE, FH_TORN);
	rot(fb, 1, PAGE, FH_TORN);
	assert_int_equal(fb_access(fb, 0, PAGE, false, false), -EIO);
	end(fb);
}

/* With one slab again, a GC worker may change its bytes. */
static void test_one_slab_has_no_sums(void **state)
{
	struct fake_backend *fb = copies_world(2);
	const u32 *sum = dcm_extent_sums_of(fb->vm, 0);
	u32 i, n = 0;

	(void)state;
	for (i = 0; i < PAGES; i++)
		n += !!sum[i];
	assert_int_equal(n, PAGES);
	assert_int_equal(drain(fb, slab(fb, 1)), 0);
	for (i = 0; i < PAGES; i++)
		assert_int_equal(sum[i], 0);
	for (i = 0; i < PAGES; i++)
		put(fb, i);
	push_out(fb, 0, PAGES);
	for (i = 0; i < PAGES; i++)
		assert_int_equal(sum[i], 0);
	end(fb);
}

/* A sum that a lane kept just as the extent came to have one slab is not believed later. */
static void test_another_slab_starts_without_sums(void **state)
{
	struct fake_backend *fb = copies_world(2);

	(void)state;
	assert_int_equal(drain(fb, slab(fb, 1)), 0);
	fb->sums[PAGE] = 12345;
	attach(fb, 0, 2);
	fill(fb);
	get(fb, PAGE);
	assert_int_equal(count(fb, DCM_C_WRONG_PAGES), 0);
	end(fb);
}

/* Pages written while sums were off have none when sums are on again. */
static void test_off_and_on_again(void **state)
{
	struct fake_backend *fb = copies_world(2);
	u32 i;

	(void)state;
	tune(fb, "sums", 0);
	for (i = 0; i < PAGES; i++)
		put(fb, i);
	push_out(fb, 0, PAGES);
	tune(fb, "sums", 1);
	for (i = 0; i < PAGES; i++)
		get(fb, i);
	assert_int_equal(count(fb, DCM_C_WRONG_PAGES), 0);
	end(fb);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_other_copy_is_read),
		cmocka_unit_test(test_no_right_copy_is_lost),
		cmocka_unit_test(
			test_pages_of_a_block_are_wrong_on_different_donors),
		cmocka_unit_test(test_the_last_copy_is_read_twice),
		cmocka_unit_test(test_a_fill_reads_the_last_copy_twice),
		cmocka_unit_test(test_a_fill_copies_no_wrong_bytes),
		cmocka_unit_test(test_a_fill_learns_sums),
		cmocka_unit_test(test_one_slab_has_no_sums),
		cmocka_unit_test(test_another_slab_starts_without_sums),
		cmocka_unit_test(test_off_and_on_again),
	};

	return cmocka_run_group_tests_name("core_sum", tests, NULL, NULL);
}

// SPDX-License-Identifier: GPL-2.0-or-later
/* links: CORE FAKE */
/*
 * core_block_test.c - elastic blocks: when they grow, when they fall apart
 */
#include "core_table.h"

static struct fake_home *elastic(u64 budget)
{
	struct fh_config cfg = calm();
	struct fake_home *fh;

	cfg.budget = budget;
	fh = world(cfg);
	tune(fh, "largest_block", 65536);
	tune(fh, "fresh_block", 65536);
	return fh;
}

/* Fresh pages one after the other: each block as large as the one beside it. */
static void test_fresh_sequence(void **state)
{
	static const u32 size[16] = { 1, 2, 4, 4, 8, 8, 8, 8,
				      16, 16, 16, 16, 16, 16, 16, 16 };
	struct fake_home *fh = elastic(1024);
	u64 before;
	u32 i;

	(void)state;
	for (i = 0; i < 16; i++) {
		before = count(fh, DCM_C_STRETCH);
		get(fh, i);
		/* once a fault, and only with a buddy of the same size */
		assert_true(count(fh, DCM_C_STRETCH) - before <= 1);
		assert_int_equal(pages_of(fh, i), size[i]);
	}
	assert_int_equal(count(fh, DCM_C_FAULT_ZERO), 5);
	for (; i < 64; i++)
		get(fh, i);
	assert_int_equal(count(fh, DCM_C_FAULT_ZERO), 8);
	/* Downwards the same. */
	before = count(fh, DCM_C_FAULT_ZERO);
	for (i = 256; i-- > 192;)
		get(fh, i);
	assert_int_equal(count(fh, DCM_C_FAULT_ZERO) - before, 8);
	/* Scattered ones stay small. */
	for (i = 512; i < 1024; i += 32)
		get(fh, i);
	for (i = 512; i < 1024; i += 32)
		assert_int_equal(pages_of(fh, i), 1);
	end(fh);
}

static void test_stretch_twice_fetched(void **state)
{
	struct fake_home *fh = elastic(1024);
	u32 round, i, want = 2;

	(void)state;
	/* Each pass that fetches whole blocks doubles them, up to 64 KiB. */
	tune(fh, "fresh_block", 4096);
	for (i = 0; i < 64; i++)
		put(fh, i);
	for (round = 0; round < 5; round++) {
		fh_budget(fh, 96);
		push_out(fh, 0, 64);
		fh_budget(fh, 1024);
		want = min(want * 2, 16u);
		for (i = 0; i < 64; i++)
			get(fh, i);
		for (i = 0; i < 64; i++)
			assert_int_equal(pages_of(fh, i), want);
	}
	assert_int_equal(want, 16);
	fh_fsck(fh, false);
	end(fh);
}

static void test_stretch_needs_direct_buddy(void **state)
{
	struct fake_home *fh = elastic(96);

	(void)state;
	put(fh, 0);
	put(fh, 2);
	push_out(fh, 0, 1);
	push_out(fh, 2, 1);
	put(fh, 1);
	assert_int_equal(pages_of(fh, 1), 1);
	get(fh, 0);
	assert_int_equal(pages_of(fh, 0), 2);
	get(fh, 2); /* its buddy is 3, not the block of 0 and 1 */
	assert_int_equal(pages_of(fh, 2), 1);
	assert_int_equal(pages_of(fh, 0), 2);
	end(fh);
}

/* How many of 64 pairs of fresh neighbours merge. */
static u64 merges(struct fake_home *fh, u32 gfn)
{
	u64 before = count(fh, DCM_C_STRETCH);
	u32 i;

	for (i = 0; i < 128; i++)
		put(fh, gfn + (i ^ 1));
	return count(fh, DCM_C_STRETCH) - before;
}

/* Where neighbours are fetched for nothing, blocks stop growing; not beside. */
static void test_stretch_learns_waste(void **state)
{
	struct fake_home *fh = elastic(1024);
	u32 round, i;

	(void)state;
	tune(fh, "largest_block", 8192);
	for (round = 0; round < 16; round++) {
		for (i = 512; i < 576; i++)
			put(fh, i);
		fh_budget(fh, 96);
		push_out(fh, 512, 64);
		for (i = 512; i < 576; i += 2) {
			get(fh, i);
			push_out(fh, i, 2);
		}
		fh_budget(fh, 1024);
	}
	assert_true(merges(fh, 640) < 32);
	assert_int_equal(merges(fh, 1024), 64);
	end(fh);
}

static void test_largest_block(void **state)
{
	struct fake_home *fh;
	u32 order, i, round;

	(void)state;
	for (order = 0; order <= DCM_ORDER_MAX; order++) {
		fh = elastic(1024);
		tune(fh, "largest_block", 4096ull << order);
		for (round = 0; round < 6; round++) {
			fh_budget(fh, 1024);
			for (i = 0; i < 64; i++)
				put(fh, i);
			for (i = 0; i < 64; i++)
				assert_true(pages_of(fh, i) <= 1u << order);
			fh_budget(fh, 96);
			push_out(fh, 0, 64);
		}
		fh_budget(fh, 1024);
		for (i = 0; i < 64; i++)
			get(fh, i);
		assert_int_equal(pages_of(fh, 0), 1u << order);
		/* A smaller one later: too large blocks go with their eviction. */
		tune(fh, "largest_block", 4096);
		fh_budget(fh, 96);
		push_out(fh, 0, 64);
		for (i = 0; i < 64; i++)
			assert_int_equal(pages_of(fh, i), 1);
		end(fh);
	}
}

static void test_elastic_off(void **state)
{
	struct fake_home *fh;
	u32 order, i;

	(void)state;
	for (order = 0; order <= DCM_ORDER_MAX; order++) {
		fh = elastic(512);
		tune(fh, "elastic", 0);
		tune(fh, "largest_block", 4096ull << order);
		get(fh, 37);
		assert_int_equal(pages_of(fh, 37), 1u << order);
		assert_int_equal(count(fh, DCM_C_STRETCH), 0);
		for (i = 37 & ~((1u << order) - 1);
		     i < (37u | ((1u << order) - 1)); i++)
			assert_true(fh_present(fh, i));
		/* touched or not: it stays a block */
		flood(fh, 1500);
		assert_int_equal(pages_of(fh, 37), 1u << order);
		end(fh);
	}
}

/* A block of sixteen pages, the first @touch of them used. */
static struct fake_home *block_used(u32 touch)
{
	struct fh_config cfg = calm();
	struct fake_home *fh;
	u32 i;

	cfg.budget = 512;
	fh = world(cfg);
	tune(fh, "largest_block", 65536);
	tune(fh, "elastic", 0);
	for (i = 0; i < 16; i++)
		put(fh, i);
	push_out(fh, 0, 16);
	assert_int_equal(pages_of(fh, 0), 16);
	tune(fh, "elastic", 1);
	for (i = 0; i < touch; i++)
		get(fh, i);
	assert_true(fh_present(fh, 15));
	return fh;
}

/* That block goes out: REDUCE at three quarters or fewer. */
static u32 size_after(u32 touch)
{
	struct fake_home *fh = block_used(touch);
	u32 i, size;

	push_out(fh, 0, 16);
	size = pages_of(fh, 0);
	for (i = 0; i < 16; i++)
		assert_int_equal(pages_of(fh, i), size);
	for (i = 0; i < 16; i++)
		get(fh, i);
	end(fh);
	return size;
}

static void test_reduce(void **state)
{
	u32 touch;

	(void)state;
	for (touch = 1; touch <= 16; touch++)
		assert_int_equal(size_after(touch), touch <= 12 ? 1 : 16);
}

/* That block is re-referenced in Inactive instead. */
static u32 size_promoted(u32 touch)
{
	struct fake_home *fh = block_used(touch);
	u32 i, n, size;

	for (n = 0; n < 1500 && state_of(fh, 0) != DCM_INACTIVE; n++)
		put(fh, FLOOD_AT + n);
	assert_int_equal(state_of(fh, 0), DCM_INACTIVE);
	get(fh, 0);
	size = pages_of(fh, 0);
	for (i = 0; i < 16; i++) {
		assert_int_equal(pages_of(fh, i), size);
		/* What was not touched goes with the next ones to go. */
		assert_int_equal(state_of(fh, i), size == 1 && i >= touch ?
							  DCM_ACTIVE :
							  DCM_PROACTIVE);
	}
	fh_fsck(fh, false);
	for (i = 0; i < 16; i++)
		get(fh, i);
	end(fh);
	return size;
}

/* Blocks that are never evicted were never judged. */
static void test_hot_page_keeps_cold_ones(void **state)
{
	u32 touch;

	(void)state;
	for (touch = 1; touch <= 16; touch++)
		assert_int_equal(size_promoted(touch), touch <= 12 ? 1 : 16);
}

/* Blocks never reach over the end of an extent or of the VM. */
static void test_ends(void **state)
{
	struct fh_config cfg = calm();
	struct fake_home *fh;
	u32 off, i, round;

	(void)state;
	for (off = 0; off < 16; off++) {
		cfg.nr_pages = 512 + 16 + off;
		cfg.extent_pages = 16;
		cfg.budget = 400;
		cfg.nr_slabs = 128;
		for (i = 0; i < 2; i++) {
			u32 p;

			fh = world(cfg);
			tune(fh, "largest_block", 65536);
			tune(fh, "elastic", i);
			for (round = 0; round < 3; round++) {
				for (p = 480; p < cfg.nr_pages; p++)
					put(fh, p);
				for (p = 0; p < 450; p++)
					put(fh, p);
			}
			fh_settle(fh);
			fh_fsck(fh, true); /* checks alignment and the end */
			for (p = 480; p < cfg.nr_pages; p++)
				get(fh, p);
			end(fh);
		}
	}
}

/* Sampling: the page left out is judged by whether it was asked for. */
static void test_sample(void **state)
{
	struct fh_config cfg = calm();
	struct fake_home *fh;
	u64 seen, hit;
	u32 i, n, round;

	(void)state;
	cfg.touched_bits = false;
	cfg.budget = 160;
	fh = world(cfg);
	tune(fh, "largest_block", 65536);
	tune(fh, "elastic", 0);
	for (i = 0; i < 160; i++)
		put(fh, i);
	push_out(fh, 0, 160);
	tune(fh, "elastic", 1);
	tune(fh, "sample_bp", 10000);
	/*
	 * One page of each block only: prefetches prove useless. That is looked
	 * for seldom at first, always once it was seen.
	 */
	for (round = 0, n = 0; round < 40 && n <= 100; round++) {
		for (i = 0; i < 160; i += 16)
			get(fh, i);
		push_out(fh, 0, 160);
		for (n = 0, i = 0; i < 160; i++)
			n += pages_of(fh, i) == 1;
	}
	seen = count(fh, DCM_C_PREFETCH_SEEN);
	hit = count(fh, DCM_C_PREFETCH_HIT);
	assert_true(seen > 0);
	assert_int_equal(hit, 0);
	assert_true(count(fh, DCM_C_REDUCE) > 0);
	assert_true(n > 100);
	assert_true(count(fh, DCM_C_PREFETCHED) >= seen);
	end(fh);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fresh_sequence),
		cmocka_unit_test(test_stretch_twice_fetched),
		cmocka_unit_test(test_stretch_needs_direct_buddy),
		cmocka_unit_test(test_stretch_learns_waste),
		cmocka_unit_test(test_largest_block),
		cmocka_unit_test(test_elastic_off),
		cmocka_unit_test(test_reduce),
		cmocka_unit_test(test_hot_page_keeps_cold_ones),
		cmocka_unit_test(test_ends),
		cmocka_unit_test(test_sample),
	};

	return cmocka_run_group_tests_name("core_block", tests, NULL, NULL);
}

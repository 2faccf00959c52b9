// SPDX-License-Identifier: GPL-2.0-or-later
/* links: CORE FAKE */
/* threads: one */
/*
 * core_block_test.c - elastic blocks: when they grow, when they fall apart
 */
#include "core_table.h"

static struct fake_backend *elastic(u64 budget)
{
	struct fb_config cfg = calm();
	struct fake_backend *fb;

	cfg.budget = budget;
	fb = world(cfg);
	tune(fb, "largest_block", 65536);
	tune(fb, "fresh_block", 65536);
	return fb;
}

/* Fresh pages one after the other: each block as large as its neighbour. */
static void test_fresh_sequence(void **state)
{
	static const u32 size[16] = { 1, 2, 4, 4, 8, 8, 8, 8,
				      16, 16, 16, 16, 16, 16, 16, 16 };
	struct fake_backend *fb = elastic(1024);
	u64 before;
	u32 i;

	(void)state;
	for (i = 0; i < 16; i++) {
		before = count(fb, DCM_C_STRETCH);
		get(fb, i);
		/* once a fault, and only with a buddy of the same size */
		assert_true(count(fb, DCM_C_STRETCH) - before <= 1);
		assert_int_equal(pages_of(fb, i), size[i]);
	}
	assert_int_equal(count(fb, DCM_C_FAULT_ZERO), 5);
	for (; i < 64; i++)
		get(fb, i);
	assert_int_equal(count(fb, DCM_C_FAULT_ZERO), 8);
	/* Downwards the same. */
	before = count(fb, DCM_C_FAULT_ZERO);
	for (i = 256; i-- > 192;)
		get(fb, i);
	assert_int_equal(count(fb, DCM_C_FAULT_ZERO) - before, 8);
	/* Scattered ones stay small. */
	for (i = 512; i < 1024; i += 32)
		get(fb, i);
	for (i = 512; i < 1024; i += 32)
		assert_int_equal(pages_of(fb, i), 1);
	end(fb);
}

static void test_stretch_twice_fetched(void **state)
{
	struct fake_backend *fb = elastic(1024);
	u32 round, i, want = 2;

	(void)state;
	/* Each pass that fetches whole blocks doubles them, up to 64 KiB. */
	tune(fb, "fresh_block", 4096);
	for (i = 0; i < 64; i++)
		put(fb, i);
	for (round = 0; round < 5; round++) {
		fb_budget(fb, 96);
		push_out(fb, 0, 64);
		fb_budget(fb, 1024);
		want = min(want * 2, 16u);
		for (i = 0; i < 64; i++)
			get(fb, i);
		for (i = 0; i < 64; i++)
			assert_int_equal(pages_of(fb, i), want);
	}
	assert_int_equal(want, 16);
	fb_fsck(fb, false);
	end(fb);
}

static void test_stretch_needs_direct_buddy(void **state)
{
	struct fake_backend *fb = elastic(96);

	(void)state;
	put(fb, 0);
	put(fb, 2);
	push_out(fb, 0, 1);
	push_out(fb, 2, 1);
	put(fb, 1);
	assert_int_equal(pages_of(fb, 1), 1);
	get(fb, 0);
	assert_int_equal(pages_of(fb, 0), 2);
	get(fb, 2); /* its buddy is 3, not the block of 0 and 1 */
	assert_int_equal(pages_of(fb, 2), 1);
	assert_int_equal(pages_of(fb, 0), 2);
	end(fb);
}

/* How many of 64 pairs of fresh neighbours merge. */
static u64 merges(struct fake_backend *fb, u32 gfn)
{
	u64 before = count(fb, DCM_C_STRETCH);
	u32 i;

	for (i = 0; i < 128; i++)
		put(fb, gfn + (i ^ 1));
	return count(fb, DCM_C_STRETCH) - before;
}

/* Where neighbours are fetched for nothing, blocks stop growing; not beside. */
static void test_stretch_learns_waste(void **state)
{
	struct fake_backend *fb = elastic(1024);
	u32 round, i;

	(void)state;
	tune(fb, "largest_block", 8192);
	for (round = 0; round < 16; round++) {
		for (i = 512; i < 576; i++)
			put(fb, i);
		fb_budget(fb, 96);
		push_out(fb, 512, 64);
		for (i = 512; i < 576; i += 2) {
			get(fb, i);
			push_out(fb, i, 2);
		}
		fb_budget(fb, 1024);
	}
	assert_true(merges(fb, 640) < 32);
	assert_int_equal(merges(fb, 1024), 64);
	end(fb);
}

static void test_largest_block(void **state)
{
	struct fake_backend *fb;
	u32 order, i, round;

	(void)state;
	for (order = 0; order <= DCM_ORDER_MAX; order++) {
		fb = elastic(1024);
		tune(fb, "largest_block", 4096ull << order);
		for (round = 0; round < 6; round++) {
			fb_budget(fb, 1024);
			for (i = 0; i < 64; i++)
				put(fb, i);
			for (i = 0; i < 64; i++)
				assert_true(pages_of(fb, i) <= 1u << order);
			fb_budget(fb, 96);
			push_out(fb, 0, 64);
		}
		fb_budget(fb, 1024);
		for (i = 0; i < 64; i++)
			get(fb, i);
		assert_int_equal(pages_of(fb, 0), 1u << order);
		/* A smaller one later: too large blocks go with their eviction. */
		tune(fb, "largest_block", 4096);
		fb_budget(fb, 96);
		push_out(fb, 0, 64);
		for (i = 0; i < 64; i++)
			assert_int_equal(pages_of(fb, i), 1);
		end(fb);
	}
}

static void test_elastic_off(void **state)
{
	struct fake_backend *fb;
	u32 order, i;

	(void)state;
	for (order = 0; order <= DCM_ORDER_MAX; order++) {
		fb = elastic(512);
		tune(fb, "elastic", 0);
		tune(fb, "largest_block", 4096ull << order);
		get(fb, 37);
		assert_int_equal(pages_of(fb, 37), 1u << order);
		assert_int_equal(count(fb, DCM_C_STRETCH), 0);
		for (i = 37 & ~((1u << order) - 1);
		     i < (37u | ((1u << order) - 1)); i++)
			assert_true(fb_present(fb, i));
		/* touched or not, it stays one block */
		flood(fb, 1500);
		assert_int_equal(pages_of(fb, 37), 1u << order);
		end(fb);
	}
}

/* A world in which the first @nr pages are out, in blocks of sixteen. */
static struct fake_backend *blocks_out(struct fb_config cfg, u32 nr)
{
	struct fake_backend *fb = world(cfg);
	u32 i;

	tune(fb, "largest_block", 65536);
	tune(fb, "elastic", 0);
	for (i = 0; i < nr; i++)
		put(fb, i);
	push_out(fb, 0, nr);
	for (i = 0; i < nr; i++)
		assert_int_equal(pages_of(fb, i), 16);
	tune(fb, "elastic", 1);
	return fb;
}

/* A block of sixteen pages, the first @touch of them used. */
static struct fake_backend *block_used(u32 touch)
{
	struct fb_config cfg = calm();
	struct fake_backend *fb;
	u32 i;

	cfg.budget = 512;
	fb = blocks_out(cfg, 16);
	for (i = 0; i < touch; i++)
		get(fb, i);
	assert_true(fb_present(fb, 15));
	return fb;
}

/* That block goes out: REDUCE at three quarters or fewer. */
static u32 size_after(u32 touch)
{
	struct fake_backend *fb = block_used(touch);
	u32 i, size;

	push_out(fb, 0, 16);
	size = pages_of(fb, 0);
	for (i = 0; i < 16; i++)
		assert_int_equal(pages_of(fb, i), size);
	for (i = 0; i < 16; i++)
		get(fb, i);
	end(fb);
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
	struct fake_backend *fb = block_used(touch);
	u32 i, n, size;

	for (n = 0; n < 1500 && state_of(fb, 0) != DCM_INACTIVE; n++)
		put(fb, FLOOD_AT + n);
	assert_int_equal(state_of(fb, 0), DCM_INACTIVE);
	get(fb, 0);
	size = pages_of(fb, 0);
	for (i = 0; i < 16; i++) {
		assert_int_equal(pages_of(fb, i), size);
		/* Pages that were not touched are among the next victims. */
		assert_int_equal(state_of(fb, i), size == 1 && i >= touch ?
							  DCM_ACTIVE :
							  DCM_PROACTIVE);
	}
	fb_fsck(fb, false);
	for (i = 0; i < 16; i++)
		get(fb, i);
	end(fb);
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
	struct fb_config cfg = calm();
	struct fake_backend *fb;
	u32 off, i, round;

	(void)state;
	for (off = 0; off < 16; off++) {
		cfg.nr_pages = 512 + 16 + off;
		cfg.extent_pages = 16;
		cfg.budget = 400;
		cfg.nr_slabs = 128;
		for (i = 0; i < 2; i++) {
			u32 p;

			fb = world(cfg);
			tune(fb, "largest_block", 65536);
			tune(fb, "elastic", i);
			for (round = 0; round < 3; round++) {
				for (p = 480; p < cfg.nr_pages; p++)
					put(fb, p);
				for (p = 0; p < 450; p++)
					put(fb, p);
			}
			fb_sync(fb);
			fb_fsck(fb, true); /* checks alignment and the end */
			for (p = 480; p < cfg.nr_pages; p++)
				get(fb, p);
			end(fb);
		}
	}
}

/* Sampling: the page left out of a block counts as used if the guest faulted on it. */
static void test_sample(void **state)
{
	struct fb_config cfg = calm();
	struct fake_backend *fb;
	u64 seen, hit;
	u32 i, n, round;

	(void)state;
	cfg.touched_bits = false;
	cfg.budget = 160;
	fb = blocks_out(cfg, 160);
	tune(fb, "sample_bp", 10000);
	/*
	 * One page of each block only: prefetches prove useless. That is looked
	 * for seldom at first, always once it was seen.
	 */
	for (round = 0, n = 0; round < 40 && n <= 100; round++) {
		for (i = 0; i < 160; i += 16)
			get(fb, i);
		push_out(fb, 0, 160);
		for (n = 0, i = 0; i < 160; i++)
			n += pages_of(fb, i) == 1;
	}
	seen = count(fb, DCM_C_PREFETCH_SEEN);
	hit = count(fb, DCM_C_PREFETCH_HIT);
	assert_true(seen > 0);
	assert_int_equal(hit, 0);
	assert_true(count(fb, DCM_C_REDUCE) > 0);
	assert_true(n > 100);
	assert_true(count(fb, DCM_C_PREFETCHED) >= seen);
	end(fb);
}

/*
 * A block of a pager that can't see touches is re-referenced again and again, and never
 * fetched: @used pages of it are touched each time. Returns its size in the end.
 */
static u32 size_if_kept(u32 used)
{
	struct fb_config cfg = calm();
	struct fake_backend *fb;
	u32 i, n, round;

	cfg.touched_bits = false;
	fb = blocks_out(cfg, 16);
	get(fb, 0);
	assert_int_equal(pages_of(fb, 0), 16);
	tune(fb, "sample_bp", 10000);
	tune(fb, "proactive_share", 0);
	tune(fb, "inactive_share", 3000);
	for (round = 0; round < 20; round++) {
		for (n = 0; n < 1500 && state_of(fb, 0) != DCM_INACTIVE; n++)
			put(fb, FLOOD_AT + n);
		assert_int_equal(state_of(fb, 0), DCM_INACTIVE);
		for (i = 0; i < used; i++)
			get(fb, i);
	}
	n = pages_of(fb, 0);
	fb_fsck(fb, false);
	end(fb);
	return n;
}

/* Only blocks that were fetched were sampled. */
static void test_hot_page_keeps_cold_ones_unsampled(void **state)
{
	(void)state;
	assert_int_equal(size_if_kept(1), 1);
	assert_int_equal(size_if_kept(16), 16);
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
		cmocka_unit_test(test_hot_page_keeps_cold_ones_unsampled),
	};

	return cmocka_run_group_tests_name("core_block", tests, NULL, NULL);
}

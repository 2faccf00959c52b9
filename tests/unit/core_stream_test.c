// SPDX-License-Identifier: GPL-2.0-or-later
/* links: CORE FAKE */
/*
 * core_stream_test.c - accesses in a row, of which the next are brought in ahead
 */
#include <stdlib.h>

#include "core_table.h"

#define PAGES 1024u /* that are gone through */
#define BUDGET 512u
#define SHARE (BUDGET / 8)

/* Pages on donors, none of which is here; some frames are free. */
static struct fake_backend *away(bool waits)
{
	struct fb_config cfg = calm();
	struct fake_backend *fb;
	u32 i;

	cfg.budget = BUDGET;
	cfg.touched_bits = true;
	cfg.waits = waits;
	fb = world(cfg);
	for (i = 0; i < PAGES; i++)
		put(fb, i);
	push_out(fb, 0, PAGES);
	tune(fb, "stream", 8);
	tune(fb, "largest_block", 65536);
	return fb;
}

struct counts {
	u64 faults;
	u64 missing;
	u64 stream;
	u64 fetched;
};

static struct counts counts_of(const struct fake_backend *fb)
{
	return (struct counts){
		.faults = count(fb, DCM_C_FAULTS),
		.missing = count(fb, DCM_C_FAULT_MISSING),
		.stream = count(fb, DCM_C_STREAM_PAGES),
		.fetched = count(fb, DCM_C_FETCHED_PAGES),
	};
}

static struct counts since(const struct fake_backend *fb, struct counts old)
{
	struct counts now = counts_of(fb);

	now.faults -= old.faults;
	now.missing -= old.missing;
	now.stream -= old.stream;
	now.fetched -= old.fetched;
	if (getenv("VERBOSE"))
		printf("# %llu faults, %llu missing, %llu fetched, of these %llu ahead\n",
		       (unsigned long long)now.faults,
		       (unsigned long long)now.missing,
		       (unsigned long long)now.fetched,
		       (unsigned long long)now.stream);
	return now;
}

static void check(struct fake_backend *fb, u32 gfn)
{
	get(fb, gfn);
	assert_int_equal(fb_read_checked(fb, gfn), FH_OK);
}

/* Go through @nr pages from @from on, @step apart. */
static struct counts go(struct fake_backend *fb, u32 from, s32 step, u32 nr)
{
	struct counts old = counts_of(fb);
	u32 i;

	for (i = 0; i < nr; i++)
		check(fb, (u32)((s32)from + (s32)i * step));
	return since(fb, old);
}

/* The same with nothing brought in ahead, in another world. */
static struct counts go_without(u32 from, s32 step, u32 nr)
{
	struct fake_backend *fb = away(false);
	struct counts c;

	tune(fb, "stream", 0);
	c = go(fb, from, step, nr);
	assert_int_equal(c.stream, 0);
	end(fb);
	return c;
}

/* Pages side by side, either way: few accesses wait, and no page comes twice. */
static void test_side_by_side(void **state)
{
	static const struct {
		u32 from;
		s32 step;
	} way[] = { { 0, 1 }, { PAGES - 1, -1 }, { 5, 1 }, { PAGES - 9, -1 } };
	unsigned int i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(way); i++) {
		u32 nr = PAGES - 16;
		struct counts without =
				      go_without(way[i].from, way[i].step, nr),
			      c;
		struct fake_backend *fb = away(false);

		c = go(fb, way[i].from, way[i].step, nr);
		assert_true(c.missing * 4 < without.missing);
		assert_true(c.faults * 2 < without.faults);
		assert_true(c.stream > nr / 2);
		assert_in_range(c.fetched, nr, nr + SHARE);
		end(fb);
	}
}

/* Pages at equal distances, which no block is larger for. */
static void test_steps(void **state)
{
	static const s32 steps[] = { 3, 7, 17, 33, -5, -31 };
	unsigned int i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(steps); i++) {
		s32 step = steps[i];
		u32 from = step > 0 ? 2 : PAGES - 3, nr;
		struct fake_backend *fb = away(false);
		struct counts c;

		tune(fb, "largest_block", 4096);
		nr = PAGES / (u32)(step > 0 ? step : -step) - 1;
		c = go(fb, from, step, nr);
		assert_true(c.missing * 2 < nr);
		assert_true(c.stream * 2 > nr);
		assert_in_range(c.fetched, nr, nr + 8);
		end(fb);
	}
}

/* Of blocks that are large from other accesses only the pages come that are wanted. */
static void test_steps_through_large_blocks(void **state)
{
	const s32 step = 21;
	const u32 nr = PAGES / (u32)step - 1;
	struct fake_backend *fb = away(false);
	struct counts c;
	u32 i, large = 0;

	(void)state;
	tune(fb, "stream", 0);
	tune(fb, "elastic", 0);
	go(fb, 0, 1, PAGES);
	push_out(fb, 0, PAGES);
	tune(fb, "elastic", 1);
	for (i = 0; i < PAGES; i += DCM_BLOCK_MAX)
		large += pd_order(pd_word(pd_of(fb->vm, i))) == DCM_ORDER_MAX;
	assert_true(large > PAGES / DCM_BLOCK_MAX / 2);
	tune(fb, "stream", 8);
	c = go(fb, 2, step, nr);
	assert_true(c.stream * 2 > nr);
	assert_true(c.fetched < 4 * nr);
	end(fb);
}

/* Several at a time, as of several threads: each is found. */
static void test_interleaved(void **state)
{
	struct fake_backend *fb = away(false);
	struct counts old = counts_of(fb), c;
	u32 i;

	(void)state;
	for (i = 0; i < PAGES / 4; i++) {
		check(fb, i);
		check(fb, PAGES / 2 - 1 - i);
		check(fb, PAGES / 2 + i);
	}
	c = since(fb, old);
	assert_true(c.missing * 8 < PAGES / 4 * 3);
	assert_true(c.stream * 2 > PAGES / 4 * 3);
	end(fb);
}

/* Accesses at random: nothing is fetched ahead. */
static void test_random(void **state)
{
	struct fake_backend *fb = away(false);
	struct counts old = counts_of(fb), c;
	u64 rng = 7;
	u32 i;

	(void)state;
	tune(fb, "largest_block", 4096);
	for (i = 0; i < 20000; i++)
		check(fb, (u32)(fb_random(&rng) % PAGES));
	c = since(fb, old);
	assert_true(c.missing > 5000);
	assert_true(c.stream * 200 < c.missing);
	end(fb);
}

/* Rows that end before what was brought in for them is used: fewer are believed. */
static void test_short_rows(void **state)
{
	struct fake_backend *fb = away(false);
	struct counts first, last;
	u64 rng = 5;
	u32 i, n, from;

	(void)state;
	tune(fb, "largest_block", 4096);
	memset(&last, 0, sizeof(last));
	first = last;
	for (n = 0; n < 2000; n++) {
		struct counts old = counts_of(fb);

		from = (u32)(fb_random(&rng) % (PAGES - 8));
		for (i = 0; i < 4; i++)
			check(fb, from + i);
		if (n < 50)
			first.stream += since(fb, old).stream;
		else if (n >= 1950)
			last.stream += since(fb, old).stream;
	}
	assert_true(fb->vm->streams.waste > 128);
	assert_true(last.stream * 3 < first.stream);
	end(fb);
}

/* No more than the share of the budget is brought in and not used. */
static void test_share(void **state)
{
	struct fake_backend *fb = away(false);
	u32 i, n;

	(void)state;
	tune(fb, "stream", 64);
	for (i = 0; i < 64; i++) {
		for (n = 0; n < 8; n++)
			check(fb, 128 * n + i);
		assert_true(fb->vm->streams.asked <= SHARE + 8 * 16);
		fb_check_budget(fb);
	}
	end(fb);
}

/* A page in the middle tells that half of it is used: it is the only fault. */
static void test_mark(void **state)
{
	struct fake_backend *fb = away(false);
	struct counts c;

	(void)state;
	/* all of it has room: nothing waits for dirty pages to leave */
	assert_int_equal(fb_budget(fb, 4 * BUDGET), 0);
	go(fb, 0, 1, 256);
	c = go(fb, 256, 1, 512);
	assert_int_equal(c.missing, 0);
	assert_in_range(c.faults, 2, 512 / 32);
	end(fb);
}

/* It can be turned off. */
static void test_off(void **state)
{
	struct fake_backend *fb = away(false);
	struct counts c;

	(void)state;
	tune(fb, "stream", 0);
	c = go(fb, 0, 1, PAGES);
	assert_int_equal(c.stream, 0);
	assert_int_equal(fb->vm->streams.misses, 0);
	end(fb);
}

/* Pages that are frozen stay where they are; the rest comes. */
static void test_frozen(void **state)
{
	struct fake_backend *fb = away(false);
	u32 i;

	(void)state;
	go(fb, 0, 1, 128);
	assert_true(fb_freeze(fb, 160, 64));
	for (i = 128; i < 160; i++)
		check(fb, i);
	for (i = 160; i < 224; i++)
		assert_int_equal(state_of(fb, i), DCM_NOTDIRECT);
	fb_thaw(fb, 160, 64);
	go(fb, 160, 1, 128);
	end(fb);
}

/* The end of memory, either way, and pages that were never written. */
static void test_borders(void **state)
{
	struct fake_backend *fb = away(false);

	(void)state;
	go(fb, 200, -1, 201);
	go(fb, fb->cfg.nr_pages - 300, 1, 300);
	fb_discard(fb, 0, 512, 128);
	go(fb, 400, 1, 400);
	end(fb);
}

/* Where accesses wait for it, ahead comes only what they would wait for later. */
static void test_nothing_ahead_that_no_access_would_wait_for(void **state)
{
	struct fake_backend *fb = away(true);
	struct counts at_once, late;

	(void)state;
	at_once = go(fb, 0, 1, 256);
	assert_int_equal(at_once.stream, 0);
	fb->cfg.max_delay = 3;
	late = go(fb, 256, 1, 512);
	assert_true(late.stream > 256);
	end(fb);
}

/* Its READs fail: nothing is lost, accesses get their pages. */
static void test_reads_fail(void **state)
{
	struct fake_backend *fb = away(false);
	u32 i;

	(void)state;
	go(fb, 0, 1, 128);
	fb->cfg.p_error = 3000;
	for (i = 128; i < PAGES; i++)
		check(fb, i);
	fb->cfg.p_error = 0;
	end(fb);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_side_by_side),
		cmocka_unit_test(test_steps),
		cmocka_unit_test(test_steps_through_large_blocks),
		cmocka_unit_test(test_interleaved),
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_short_rows),
		cmocka_unit_test(test_share),
		cmocka_unit_test(test_mark),
		cmocka_unit_test(test_off),
		cmocka_unit_test(test_frozen),
		cmocka_unit_test(test_borders),
		cmocka_unit_test(
			test_nothing_ahead_that_no_access_would_wait_for),
		cmocka_unit_test(test_reads_fail),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

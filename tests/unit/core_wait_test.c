// SPDX-License-Identifier: GPL-2.0-or-later
/* links: CORE FAKE */
/*
 * core_wait_test.c - the time of accesses is counted for what they waited for
 *
 * The clock is the test's: it goes on only where a test says so, and then the
 * counter of one cause has that time, and no other counter has any.
 */
#include "core_table.h"

#define PAGE 9u
#define TICKS 500u
#define NS (TICKS * 1000u)
#define NEAR 2u /* the fake donor posts 1 ns after the tick */

static const enum dcm_counter_id causes[] = {
	DCM_C_WAIT_DONOR_NS,  DCM_C_WAIT_QUEUE_NS, DCM_C_WAIT_HERE_NS,
	DCM_C_WAIT_FRAMES_NS, DCM_C_WAIT_OUT_NS,   DCM_C_WAIT_RETRY_NS,
};

/* All that was waited was waited for @cause: about @ns. */
static void assert_only(const struct fake_backend *fb,
			enum dcm_counter_id cause, u64 ns)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(causes); i++) {
		u64 n = count(fb, causes[i]),
		    want = causes[i] == cause ? ns : 0;

		if (n > want + NEAR || n + NEAR < want)
			fb_violation(fb, "%s is %llu, not %llu",
				     dcm_counter_names[causes[i]],
				     (unsigned long long)n,
				     (unsigned long long)want);
	}
}

/* PAGE was written, and is on a donor only. */
static struct fake_backend *page_out(void)
{
	struct fb_config cfg = calm();
	struct fake_backend *fb;
	unsigned int i;

	cfg.budget = 256;
	cfg.nr_lanes = 8; /* an op lets another lane run */
	fb = world(cfg);

	put(fb, PAGE);
	push_out(fb, PAGE, 1);
	for (i = 0; i < ARRAY_SIZE(causes); i++)
		fb->vm->lane[0].count[causes[i]] = 0;
	return fb;
}

static u32 donor_of(const struct fake_backend *fb, u32 gfn)
{
	return fb->vm->extent[gfn >> fb->vm->extent_shift].peer[0];
}

/* Time goes on, and the fetch that was under way comes. */
static void come(struct fake_backend *fb)
{
	fb_advance(fb, TICKS);
	fb_poll(fb, 0);
	assert_int_equal(state_of(fb, PAGE), DCM_ACTIVE);
}

static void test_donor(void **state)
{
	struct fake_backend *fb = page_out();

	(void)state;
	fb->donor[donor_of(fb, PAGE)].silent_until = fb->tick + TICKS;
	assert_int_equal(fb_fault(fb, 0, PAGE, 0), DCM_FAULT_PENDING);
	come(fb);
	assert_only(fb, DCM_C_WAIT_DONOR_NS, NS);
	end(fb);
}

static void test_queue_is_full(void **state)
{
	struct fake_backend *fb = page_out();

	(void)state;
	fb->cfg.p_again = 10000;
	assert_int_equal(fb_fault(fb, 0, PAGE, 0), DCM_FAULT_PENDING);
	fb->cfg.p_again = 0;
	come(fb);
	assert_only(fb, DCM_C_WAIT_QUEUE_NS, NS);
	end(fb);
}

static void test_donor_is_not_reached(void **state)
{
	struct fake_backend *fb = page_out();

	(void)state;
	fb->donor[donor_of(fb, PAGE)].unreachable_until = fb->tick + TICKS;
	assert_int_equal(fb_fault(fb, 0, PAGE, 0), DCM_FAULT_PENDING);
	come(fb);
	assert_only(fb, DCM_C_WAIT_RETRY_NS, NS);
	end(fb);
}

static void later(void *arg, u32 lane)
{
	(void)lane;
	fb_advance(*(struct fake_backend **)arg, 1);
}

/* Every operation of the pager takes a while. */
static void test_own_work(void **state)
{
	struct fake_backend *fb = page_out();
	u64 before, i;

	(void)state;
	fb->cfg.nest = later;
	fb->cfg.arg = &fb;
	fb->cfg.p_nest = 10000;
	get(fb, PAGE);
	assert_true(count(fb, DCM_C_WAIT_HERE_NS) >= 1000);
	/* Of faults that need no fetch, some stand for all. */
	before = count(fb, DCM_C_WAIT_HERE_NS);
	for (i = 0; i < 256; i++)
		fb_fault(fb, 0, PAGE, 0);
	assert_true(count(fb, DCM_C_WAIT_HERE_NS) - before >= 64 * 1000);
	assert_int_equal(count(fb, DCM_C_WAIT_FRAMES_NS), 0);
	fb->cfg.p_nest = 0;
	end(fb);
}

/* The budget is full of dirty pages. */
static struct fake_backend *full(void)
{
	struct fb_config cfg = calm();
	struct fake_backend *fb;
	u32 i;

	cfg.qdepth = FH_QUEUE_MAX;
	fb = world(cfg);
	for (i = 0; i < 2 * cfg.budget; i++)
		put(fb, FLOOD_AT + i);
	fb_sync(fb);
	return fb;
}

static enum dcm_fault_result use_until_stall(struct fake_backend *fb)
{
	enum dcm_fault_result r = DCM_FAULT_DONE;
	u32 i;

	for (i = 0; i < 2 * fb->cfg.budget && r != DCM_FAULT_STALL; i++)
		r = fb_fault(fb, 0, i, DCM_FF_WRITE);
	return r;
}

static void test_no_frames(void **state)
{
	struct fake_backend *fb = full();
	u64 before = count(fb, DCM_C_WAIT_FRAMES_NS);

	(void)state;
	/* what the pager pins can't leave */
	fb->cfg.p_pinned = 10000;
	assert_int_equal(use_until_stall(fb), DCM_FAULT_STALL);
	assert_int_equal(dcm_stall_cause(&fb->vm->lane[0]),
			 DCM_C_WAIT_FRAMES_NS);
	dcm_waited(&fb->vm->lane[0], DCM_C_WAIT_FRAMES_NS, NS);
	assert_int_equal(count(fb, DCM_C_WAIT_FRAMES_NS) - before, NS);
	fb->cfg.p_pinned = 0;
	end(fb);
}

static void test_write_backs_are_behind(void **state)
{
	struct fake_backend *fb = full();
	u32 i;

	(void)state;
	for (i = 0; i < fb->cfg.nr_donors; i++)
		fb->donor[i].silent_until = fb->tick + TICKS;
	assert_int_equal(use_until_stall(fb), DCM_FAULT_STALL);
	assert_int_equal(dcm_stall_cause(&fb->vm->lane[0]), DCM_C_WAIT_OUT_NS);
	fb_advance(fb, TICKS);
	end(fb);
}

static void test_frames_wait_for_a_donor_that_is_down(void **state)
{
	struct fake_backend *fb = full();
	u32 i;

	(void)state;
	for (i = 0; i < fb->cfg.nr_donors; i++)
		fb->donor[i].unreachable_until = fb->tick + TICKS;
	assert_int_equal(use_until_stall(fb), DCM_FAULT_STALL);
	assert_int_equal(dcm_stall_cause(&fb->vm->lane[0]),
			 DCM_C_WAIT_RETRY_NS);
	fb_advance(fb, TICKS);
	end(fb);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_donor),
		cmocka_unit_test(test_queue_is_full),
		cmocka_unit_test(test_donor_is_not_reached),
		cmocka_unit_test(test_own_work),
		cmocka_unit_test(test_no_frames),
		cmocka_unit_test(test_write_backs_are_behind),
		cmocka_unit_test(test_frames_wait_for_a_donor_that_is_down),
	};

	return cmocka_run_group_tests_name("core_wait", tests, NULL, NULL);
}

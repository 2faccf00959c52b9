// SPDX-License-Identifier: GPL-2.0-or-later
/* links: CORE FAKE */
/*
 * core_ghost_test.c - pages that come back too early change Proactive's share
 */
#include "core_table.h"

#define BUDGET 96u
#define PAGES 1000u /* that tests touch again; others are touched once */

static struct fake_backend *begin(void)
{
	struct fb_config cfg = calm();

	cfg.budget = BUDGET;
	return world(cfg);
}

/* A page that was evicted lately, and had or had not been re-referenced. */
static u32 ghost(struct fake_backend *fb, bool again)
{
	u32 now = (u32)atomic64_read(&fb->vm->evicted), i;

	for (i = 0; i < PAGES; i++) {
		u32 next = pd_of(fb->vm, i)->next;

		if (state_of(fb, i) == DCM_NOTDIRECT &&
		    pd_at(pd_word(pd_of(fb->vm, i))) && (next & 1) == again &&
		    now - (next & ~1u) < BUDGET)
			return i;
	}
	return DCM_NIL;
}

/* Touch a page while it is Inactive, then others until it is gone. */
static u32 used_twice(struct fake_backend *fb)
{
	u32 i, page;

	for (i = 0; i < 200; i++)
		put(fb, i);
	for (page = 0; state_of(fb, page) != DCM_INACTIVE; page++)
		assert_true(page < 200);
	get(fb, page);
	assert_int_equal(state_of(fb, page), DCM_PROACTIVE);
	tune(fb, "proactive_share", 0);
	for (i = 0; state_of(fb, page) != DCM_NOTDIRECT; i++) {
		assert_true(i < 800);
		dcm_buffers_flush(fb->vm);
		put(fb, PAGES + i);
	}
	return page;
}

/* A page that was used once comes back: Active was too small. */
static void test_once(void **state)
{
	struct fake_backend *fb = begin();
	u64 before, after;
	u32 i, page;

	(void)state;
	tune(fb, "proactive_share", 5000);
	for (i = 0; i < 200; i++)
		put(fb, i);
	before = dcm_ghost_share(fb->vm);
	assert_in_range(before, 47, 48);
	page = ghost(fb, false);
	assert_int_not_equal(page, DCM_NIL);
	get(fb, page);
	after = dcm_ghost_share(fb->vm);
	assert_in_range(before - after, 1, 2);
	end(fb);
}

/* One that was re-referenced comes back: Proactive was. It may have been let off. */
static void test_again(void **state)
{
	struct fake_backend *fb = begin();
	u32 page = used_twice(fb);

	(void)state;
	assert_true(pd_of(fb->vm, page)->next & 1);
	tune(fb, "proactive_share", 5000);
	assert_in_range(dcm_ghost_share(fb->vm), 47, 48);
	get(fb, page);
	/* few re-referenced pages go, so one of them counts for more */
	assert_in_range(dcm_ghost_share(fb->vm), 50, BUDGET * 9 / 10);
	end(fb);
}

/* A page that was away for longer than the budget lasts tells nothing. */
static void test_late(void **state)
{
	struct fake_backend *fb = begin();
	u64 before;

	(void)state;
	put(fb, 0);
	push_out(fb, 0, 1);
	flood(fb, 200);
	before = dcm_ghost_share(fb->vm);
	get(fb, 0);
	assert_int_equal(dcm_ghost_share(fb->vm), before);
	end(fb);
}

/* The share ends at 0 and at nine tenths; the tunable begins it anew, and 0 stays. */
static void test_bounds(void **state)
{
	struct fake_backend *fb = begin();
	u32 turn, i, page;

	(void)state;
	for (turn = 0; turn < 20; turn++) {
		for (i = 0; i < 200; i++)
			put(fb, i);
		while ((page = ghost(fb, false)) != DCM_NIL && i++ < 300)
			get(fb, page);
	}
	assert_int_equal(dcm_ghost_share(fb->vm), 0);
	tune(fb, "proactive_share", 7000);
	tune(fb, "proactive_share", 6000);
	assert_in_range(dcm_ghost_share(fb->vm), BUDGET * 6 / 10 - 1,
			BUDGET * 6 / 10);
	for (turn = 0; turn < 20; turn++) {
		page = used_twice(fb);
		tune(fb, "proactive_share", 6000);
		get(fb, page);
		assert_true(dcm_ghost_share(fb->vm) <= BUDGET * 9 / 10);
	}
	assert_in_range(dcm_ghost_share(fb->vm), BUDGET * 9 / 10 - 1,
			BUDGET * 9 / 10);
	page = used_twice(fb);
	get(fb, page);
	assert_int_equal(dcm_ghost_share(fb->vm), 0);
	end(fb);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_once),
		cmocka_unit_test(test_again),
		cmocka_unit_test(test_late),
		cmocka_unit_test(test_bounds),
	};

	return cmocka_run_group_tests_name("core_ghost", tests, NULL, NULL);
}

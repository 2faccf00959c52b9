// SPDX-License-Identifier: GPL-2.0-or-later
/* links: CORE FAKE */
/*
 * core_hint_test.c - the queues obey what the owner of pages says of their use
 */
#include "core_table.h"

#define BUDGET	256u
#define KEPT	48u	/* less than a quarter of it */

/* The control plane's turn. */
static void give(void *arg)
{
	fh_give_slabs(*(struct fake_home **)arg, 1);
}

static struct fake_home *home;

static u32 here(struct fake_home *fh, u32 from, u32 nr)
{
	u32 n = 0, i;

	for (i = from; i < from + nr; i++)
		n += state_of(fh, i) != DCM_NOTDIRECT;
	return n;
}

static void check(struct fake_home *fh, u32 gfn)
{
	get(fh, gfn);
	assert_int_equal(fh_read_checked(fh, gfn), FH_OK);
}

static struct fake_home *hint_world(u64 block)
{
	struct fh_config cfg = calm();

	cfg.budget = BUDGET;
	cfg.idle = give;
	cfg.arg = &home;
	home = world(cfg);
	tune(home, "largest_block", block);
	tune(home, "fresh_block", block);
	/* what is back soon would be Proactive by itself */
	tune(home, "ghost_share", 0);
	return home;
}

/* Kept whatever comes, whether here when it was said or not, until NORMAL. */
static void kept_of(u64 block)
{
	struct fake_home *fh = hint_world(block);
	u32 i;

	for (i = 0; i < KEPT / 2; i++)
		put(fh, i);
	fh_hint(fh, 0, 0, KEPT, DCM_HINT_DIRECT);
	for (i = KEPT / 2; i < KEPT; i++)
		put(fh, i);
	flood(fh, 4 * BUDGET);
	assert_int_equal(here(fh, 0, KEPT), KEPT);
	assert_true(count(fh, DCM_C_KEPT) > 0);
	fh_fsck(fh, false);

	/* settled, as for a collection, they go; and are kept when they are back */
	assert_int_equal(fh_to_donor(fh, 0, 0, KEPT, false, 1000000000ull), 0);
	assert_int_equal(here(fh, 0, KEPT), 0);
	assert_int_equal(fh->vm->kept.nr_pages, 0);
	for (i = 0; i < KEPT; i++)
		get(fh, i);
	flood(fh, 4 * BUDGET);
	assert_int_equal(here(fh, 0, KEPT), KEPT);

	fh_hint(fh, 0, 0, KEPT, DCM_HINT_NORMAL);
	assert_int_equal(fh->vm->kept.nr_pages, 0);
	flood(fh, 4 * BUDGET);
	assert_in_range(here(fh, 0, KEPT), 0, KEPT / 4);
	/* content is what it was */
	for (i = 0; i < KEPT; i++)
		check(fh, i);
	fh_fsck(fh, false);
	end(fh);
}

static void kept(void **state)
{
	(void)state;
	kept_of(4096);
	kept_of(65536);
}

/* A quarter of the budget at most; a smaller budget keeps less. */
static void kept_bounded(void **state)
{
	struct fake_home *fh = hint_world(16384);
	u32 i;

	(void)state;
	fh_hint(fh, 0, 0, 1024, DCM_HINT_DIRECT);
	for (i = 0; i < 1024; i++)
		put(fh, i);
	flood(fh, 4 * BUDGET);
	/* [VGC-D-47] */
	assert_in_range(fh->vm->kept.nr_pages, BUDGET / 4 - 16, BUDGET / 4);
	/* the rest of the memory is usable */
	for (i = FLOOD_AT; i < FLOOD_AT + 1024; i++)
		check(fh, i);
	assert_int_equal(fh_budget(fh, BUDGET / 2), 0);
	flood(fh, 4 * BUDGET);
	assert_in_range(fh->vm->kept.nr_pages, BUDGET / 8 - 16, BUDGET / 8);
	fh_fsck(fh, false);
	end(fh);
}

/* Given up, the memory's next owner has no hints. */
static void kept_discarded(void **state)
{
	struct fake_home *fh = hint_world(16384);
	u32 i;

	(void)state;
	fh_hint(fh, 0, 0, KEPT, DCM_HINT_DIRECT);
	for (i = 0; i < KEPT; i++)
		put(fh, i);
	flood(fh, 4 * BUDGET);
	assert_true(fh->vm->kept.nr_pages > 0);
	fh_discard(fh, 0, 0, KEPT);
	assert_int_equal(fh->vm->kept.nr_pages, 0);
	for (i = 0; i < KEPT; i++)
		put(fh, i);
	flood(fh, 4 * BUDGET);
	assert_int_equal(fh->vm->kept.nr_pages, 0);
	fh_fsck(fh, false);
	end(fh);
}

/* The newest goes before all that is older. */
static void cold(void **state)
{
	struct fake_home *fh = hint_world(4096);
	u32 i;

	(void)state;
	for (i = 0; i < BUDGET - 80; i++)
		put(fh, i);
	fh_hint(fh, 0, BUDGET - 80 - 32, 32, DCM_HINT_COLD);
	assert_int_equal(count(fh, DCM_C_COLD), 32);
	for (i = FLOOD_AT; i < FLOOD_AT + 120; i++)
		put(fh, i);
	assert_in_range(here(fh, BUDGET - 80 - 32, 32), 0, 8);
	assert_true(here(fh, 0, BUDGET - 80 - 32) > 100);
	for (i = 0; i < BUDGET - 80; i++)
		check(fh, i);
	fh_fsck(fh, false);
	end(fh);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kept),
		cmocka_unit_test(kept_bounded),
		cmocka_unit_test(kept_discarded),
		cmocka_unit_test(cold),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

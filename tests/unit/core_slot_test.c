// SPDX-License-Identifier: GPL-2.0-or-later
/* links: CORE FAKE */
/*
 * core_slot_test.c - an extent with several slabs: all are written, any is read
 *
 * The first extent has two slabs, or three, on different donors. The guest may
 * notice nothing when donors fall silent or die, as long as one of them is left.
 */
#include "core_copies.h"

/* The slot that the only READ of the first lane goes to. */
static u8 read_from(const struct fake_backend *fb)
{
	const struct fb_lane *l = &fb->lane[0];
	u32 i;

	for (i = 0; i < l->nr_io; i++)
		if (l->io[i].io->op == DCM_IO_READ)
			return l->io[i].io->slot;
	fb_violation(fb, "no READ");
}

/* Operations that were held up complete. */
static void let_go(struct fake_backend *fb)
{
	fb_advance(fb, 1000000);
	fb->cfg.max_delay = 0;
	fb_poll(fb, 0);
	fb->cfg.max_delay = 1000000;
}

static void test_every_slot_is_written(void **state)
{
	u32 copies, i;

	(void)state;
	for (copies = 1; copies <= DCM_SLOTS; copies++) {
		struct fake_backend *fb = copies_world(copies);

		for (i = 0; i < PAGES; i++)
			assert_int_equal(at(fb, i), (1u << copies) - 1);
		assert_int_equal(count(fb, DCM_C_THIN_PAGES), 0);
		end(fb);
	}
}

/* All but one may die, one after another. */
static void test_lost_is_what_no_slot_has(void **state)
{
	struct fake_backend *fb = copies_world(3);
	u32 i;

	(void)state;
	assert_int_equal(lose(fb, 1), 0);
	for (i = 0; i < PAGES; i++)
		assert_int_equal(at(fb, i), 5);
	assert_int_equal(lose(fb, 0), 0);
	for (i = 0; i < PAGES; i++)
		get(fb, i);
	push_out(fb, 0, PAGES);
	get(fb, PAGE);
	/* one page is here; the others were only there */
	i = 0;
	for (u32 n = 0; n < PAGES; n++)
		i += state_of(fb, n) == DCM_NOTDIRECT;
	assert_int_equal(lose(fb, 2), i);
	get(fb, PAGE);
	end(fb);
}

/* Both donors of a block die before the control plane says so of the second. */
static void test_fetch_of_what_is_gone(void **state)
{
	struct fake_backend *fb = copies_world(2);

	(void)state;
	fb_slab_kill(fb, slab(fb, 0));
	fb_slab_kill(fb, slab(fb, 1));
	assert_int_equal(fb_fault(fb, 0, PAGE, 0), DCM_FAULT_PENDING);
	assert_int_equal(lose(fb, 0), 0);
	assert_false(fb_is_lost(fb, PAGE));
	/* with that of PAGE, which its fetch gave up */
	assert_int_equal(lose(fb, 1), PAGES);
	assert_int_equal(fb_access(fb, 0, PAGE, false, false), -EIO);
	end(fb);
}

/* The fetch of a block whose pages are not all on the other donor too. */
static void test_part_of_a_block_is_lost(void **state)
{
	struct fake_backend *fb = copies_world(2);
	u32 i;

	(void)state;
	tune(fb, "largest_block", 65536);
	tune(fb, "elastic", 0);
	get(fb, 0);
	push_out(fb, 0, 16);
	assert_int_equal(pages_of(fb, 0), 16);
	pd_clear(pd_of(fb->vm, 5), pd_at_bits(2));
	slab(fb, 1)->sure[5] = false;
	fb->vm->extent[0].thin = true;
	fb_slab_kill(fb, slab(fb, 0));
	assert_int_equal(fb_fault(fb, 0, 3, 0), DCM_FAULT_PENDING);
	assert_int_equal(lose(fb, 0), 1);
	for (i = 0; i < 16; i++)
		assert_int_equal(fb_access(fb, 0, i, false, false),
				 i == 5 ? -EIO : 0);
	end(fb);
}

/*
 * A fetch waits for two donors. One of them is lost, and another slab takes its
 * slot: that one does not have the page.
 */
static void test_slot_used_again_under_a_fetch(void **state)
{
	struct fake_backend *fb = copies_world(2);
	u32 i;

	(void)state;
	break_ways(fb, 0, ~0ull);
	break_ways(fb, 1, ~0ull);
	assert_int_equal(fb_fault(fb, 0, PAGE, 0), DCM_FAULT_PENDING);
	assert_int_equal(lose(fb, 0), 0);
	attach(fb, 0, 2);
	assert_int_equal(slab(fb, 0)->donor, 2);
	for (i = 0; i < 1000; i++) {
		fb_advance(fb, 1000);
		fb_poll(fb, 0);
	}
	assert_false(fb_present(fb, PAGE));
	break_ways(fb, 1, 0);
	for (i = 0; i < 1000; i++) {
		fb_advance(fb, 1000);
		fb_poll(fb, 0);
	}
	assert_true(fb_present(fb, PAGE));
	get(fb, PAGE);
	end(fb);
}

/* A READ that fails goes to the other donor at once: no time passes here. */
static void test_failover_at_once(void **state)
{
	struct fake_backend *fb = copies_world(2);
	u64 tick;
	u32 d;

	(void)state;
	for (d = 0; d < 2; d++) {
		u32 gfn = 16 * d; /* each of them is read first once */

		fb->cfg.max_delay = 1000000;
		assert_int_equal(fb_fault(fb, 0, gfn, 0), DCM_FAULT_PENDING);
		fb->cfg.max_delay = 0;
		break_ways(fb, read_from(fb), 0);
		tick = fb->tick;
		fb_poll(fb, 0);
		fb_poll(fb, 0);
		assert_int_equal(fb->tick, tick);
		assert_true(fb_present(fb, gfn));
		assert_int_equal(count(fb, DCM_C_FAILOVERS), d + 1);
		fb_sync(fb);
	}
	end(fb);
}

/* Both donors take their part of the reads. */
static void test_reads_are_shared(void **state)
{
	struct fake_backend *fb = copies_world(2);
	u32 from[2] = { 0, 0 }, i;

	(void)state;
	fb->cfg.max_delay = 1000000;
	for (i = 0; i < PAGES; i += 16) {
		assert_int_equal(fb_fault(fb, 0, i, 0), DCM_FAULT_PENDING);
		from[read_from(fb)]++;
		let_go(fb);
	}
	assert_int_equal(from[0], 2);
	assert_int_equal(from[1], 2);
	fb->cfg.max_delay = 0;
	end(fb);
}

/* The nearer of two donors is read while it is well. */
static void test_reads_go_near(void **state)
{
	struct fake_backend *fb = copies_world(2);
	u32 i;

	(void)state;
	fb->vm->extent[0].rank[0] = DCM_RANK_MEMORY;
	fb->cfg.max_delay = 1000000;
	for (i = 0; i < PAGES; i += 16) {
		assert_int_equal(fb_fault(fb, 0, i, 0), DCM_FAULT_PENDING);
		assert_int_equal(read_from(fb), 1);
		let_go(fb);
	}
	fb->cfg.max_delay = 0;
	end(fb);
}

/* A file is read when no memory has the page. */
static void test_files_are_read_last(void **state)
{
	struct fake_backend *fb = copies_world(2);
	u32 i;

	(void)state;
	fb->vm->extent[0].rank[0] = DCM_RANK_FILE;
	fb->vm->extent[0].rank[1] = DCM_RANK_MEMORY;
	fb->cfg.max_delay = 1000000;
	for (i = 0; i < PAGES; i += 16) {
		assert_int_equal(fb_fault(fb, 0, i, 0), DCM_FAULT_PENDING);
		assert_int_equal(read_from(fb), 1);
		let_go(fb);
	}
	fb->cfg.max_delay = 0;
	end(fb);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_slot_is_written),
		cmocka_unit_test(test_lost_is_what_no_slot_has),
		cmocka_unit_test(test_fetch_of_what_is_gone),
		cmocka_unit_test(test_part_of_a_block_is_lost),
		cmocka_unit_test(test_slot_used_again_under_a_fetch),
		cmocka_unit_test(test_failover_at_once),
		cmocka_unit_test(test_reads_are_shared),
		cmocka_unit_test(test_reads_go_near),
		cmocka_unit_test(test_files_are_read_last),
	};

	return cmocka_run_group_tests_name("core_slot", tests, NULL, NULL);
}

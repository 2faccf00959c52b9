// SPDX-License-Identifier: GPL-2.0-or-later
/* links: CORE FAKE */
/*
 * core_sync_test.c - a donor has all of a range afterwards
 */
#include <errno.h>

#include "core_table.h"

#define FROM 32u
#define NR 192u

#define LONG	1000000000ull

/* The control plane's turn. */
static void give(void *arg)
{
	struct fake_backend **fb = arg;

	fb_give_slabs(*fb, 1);
}

static struct fake_backend *fake;

static struct fake_backend *world_with_slabs(struct fb_config cfg)
{
	cfg.idle = give;
	cfg.arg = &fake;
	fake = world(cfg);
	return fake;
}

/* The whole range is on the slab, with its last content. */
static void synced(struct fake_backend *fb, u32 gfn, u32 nr)
{
	u64 reads = fb->nr_reads;
	u32 i;

	for (i = gfn; i < gfn + nr; i++) {
		assert_int_equal(state_of(fb, i), DCM_NOTDIRECT);
		assert_true(pd_word(&fb->vm->pd[i]) & PD_AT);
		assert_false(pd_word(&fb->vm->pd[i]) & PD_DIRTY);
		assert_false(fb_present(fb, i));
	}
	fb_fsck(fb, false);
	for (i = gfn; i < gfn + nr; i++) {
		get(fb, i);
		assert_int_equal(fb_read_checked(fb, i), FH_OK);
	}
	/* no page was taken for zero without a READ */
	assert_true(fb->nr_reads > reads);
}

/* The whole range is on the slab; direct pages are clean and have the same content. */
static void kept(struct fake_backend *fb, u32 gfn, u32 nr)
{
	u32 i;

	for (i = gfn; i < gfn + nr; i++) {
		enum dcm_state s = state_of(fb, i);

		assert_true(pd_word(&fb->vm->pd[i]) & PD_AT);
		assert_false(pd_word(&fb->vm->pd[i]) & PD_DIRTY);
		assert_int_equal(fb_present(fb, i),
				 s == DCM_ACTIVE || s == DCM_PROACTIVE);
	}
	fb_fsck(fb, false);
}

/* Copied and kept, written again in part, copied again; then out and in. */
static void mixed_kept(u64 block, u64 budget, u32 delay, bool dirty_bits)
{
	struct fb_config cfg = calm();
	struct fake_backend *fb;
	u32 i, round;

	cfg.budget = budget;
	cfg.max_delay = delay;
	cfg.dirty_bits = dirty_bits;
	fb = world_with_slabs(cfg);
	tune(fb, "largest_block", block);
	for (round = 0; round < 3; round++) {
		for (i = FROM + round; i < FROM + NR; i += 3)
			put(fb, i);
		for (i = FROM; i < FROM + NR; i += 5)
			assert_int_equal(fb_access(fb, 0, i, true, true), 0);
		assert_int_equal(fb_to_donor(fb, 0, FROM, NR, true, LONG), 0);
		kept(fb, FROM, NR);
	}
	/* Direct pages are evicted without a write, and come back unchanged. */
	assert_int_equal(fb_to_donor(fb, 0, FROM, NR, false, LONG), 0);
	synced(fb, FROM, NR);
	end(fb);
}

static void test_kept(void **state)
{
	(void)state;
	mixed_kept(4096, 512, 0, false);
	mixed_kept(4096, 512, 50, true);
	mixed_kept(65536, 512, 0, true);
	mixed_kept(65536, 512, 50, false);
	mixed_kept(4096, 96, 20, false);
	mixed_kept(65536, 96, 20, true);
}

/* A second sync writes only pages changed since; pages only read cost nothing. */
static void test_only_what_changed(void **state)
{
	struct fb_config cfg = calm();
	struct fake_backend *fb;
	u64 written, faults;
	u32 i;

	(void)state;
	cfg.budget = 512;
	fb = world_with_slabs(cfg);
	for (i = FROM; i < FROM + NR; i++)
		put(fb, i);
	assert_int_equal(fb_to_donor(fb, 0, FROM, NR, true, LONG), 0);
	assert_int_equal(count(fb, DCM_C_WRITTEN_PAGES), NR);
	faults = count(fb, DCM_C_FAULTS);
	for (i = FROM; i < FROM + NR; i++)
		get(fb, i);
	assert_int_equal(count(fb, DCM_C_FAULTS), faults);
	for (i = FROM; i < FROM + NR; i += 16)
		put(fb, i);
	assert_int_equal(count(fb, DCM_C_FAULT_WP), NR / 16);
	written = count(fb, DCM_C_WRITTEN_PAGES);
	assert_int_equal(fb_to_donor(fb, 0, FROM, NR, true, LONG), 0);
	assert_int_equal(count(fb, DCM_C_WRITTEN_PAGES) - written, NR / 16);
	kept(fb, FROM, NR);
	end(fb);
}

/* Write to each page of the range, @rounds times. */
static void write_rounds(struct fake_backend *fb, u32 rounds)
{
	u32 i, round;

	for (round = 0; round < rounds; round++)
		for (i = FROM; i < FROM + NR; i++)
			put(fb, i);
}

/*
 * Pages that used to be written after each fetch, and are now only read, are fetched
 * and evicted without a WRITE: a reader of the donor's copy would see it change.
 */
static void test_read_since_is_not_written(void **state)
{
	static const u64 blocks[] = { 4096, 65536 };

	(void)state;
	for (u32 k = 0; k < ARRAY_SIZE(blocks); k++) {
		struct fb_config cfg = calm();
		u64 written, fetched;
		struct fake_backend *fb;
		u32 i, round;

		cfg.budget = 96;
		fb = world_with_slabs(cfg);
		tune(fb, "largest_block", blocks[k]);
		write_rounds(fb, 4);
		assert_int_equal(fb_to_donor(fb, 0, FROM, NR, true, LONG), 0);
		written = count(fb, DCM_C_WRITTEN_PAGES);
		fetched = count(fb, DCM_C_FETCHED_PAGES);
		for (round = 0; round < 3; round++)
			for (i = FROM; i < FROM + NR; i++)
				get(fb, i);
		assert_true(count(fb, DCM_C_FETCHED_PAGES) > fetched + NR);
		assert_int_equal(count(fb, DCM_C_WRITTEN_PAGES), written);
		end(fb);
	}
}

/* The same for new pages, where new pages are commonly written again. */
static void test_new_and_read_since_is_not_written(void **state)
{
	struct fb_config cfg = calm();
	struct fake_backend *fb;
	u64 written;
	u32 i, round;

	(void)state;
	cfg.budget = 96;
	fb = world_with_slabs(cfg);
	/* so that the core expects that of this neighbourhood */
	for (round = 0; round < 8; round++)
		for (i = FROM + 64; i < FROM + NR; i++)
			put(fb, i);
	for (i = FROM; i < FROM + 64; i++)
		put(fb, i);
	assert_int_equal(fb_to_donor(fb, 0, FROM, NR, true, LONG), 0);
	written = count(fb, DCM_C_WRITTEN_PAGES);
	for (round = 0; round < 4; round++)
		for (i = FROM; i < FROM + NR; i++)
			get(fb, i);
	assert_int_equal(count(fb, DCM_C_WRITTEN_PAGES), written);
	end(fb);
}

/* Faults on read-only pages in rounds of writes to more than the budget, after a sync. */
static u64 write_faults_after(bool guesses)
{
	struct fb_config cfg = calm();
	struct fake_backend *fb;
	u64 before;

	cfg.budget = 96;
	cfg.guesses = guesses;
	fb = world_with_slabs(cfg);
	tune(fb, "largest_block", 16384);
	tune(fb, "elastic", 0);
	write_rounds(fb, 4);
	assert_int_equal(fb_to_donor(fb, 0, FROM, NR, true, LONG), 0);
	before = count(fb, DCM_C_FAULT_WP);
	write_rounds(fb, 1);
	before = count(fb, DCM_C_FAULT_WP) - before;
	end(fb);
	return before;
}

/*
 * A program that writes to its pages again after a trace with a barrier: those that
 * were away come back writable, as before the trace.
 */
static void test_first_writes_after_a_sync(void **state)
{
	u64 exact = write_faults_after(false),
	    guessed = write_faults_after(true);

	(void)state;
	/* one in each block; without them those in blocks that were here, half */
	assert_int_equal(exact, NR / 4);
	assert_in_range(guessed, 1, exact * 2 / 3);
}

/* A trace with a barrier, of a VM whose pages are all here and were all written. */
static struct fake_backend *world_written(void)
{
	struct fb_config cfg = calm();
	struct fake_backend *fb;
	u32 i;

	cfg.budget = 512;
	cfg.guesses = true;
	fb = world_with_slabs(cfg);
	write_rounds(fb, 1);
	assert_int_equal(fb_to_donor(fb, 0, FROM, NR, true, LONG), 0);
	for (i = FROM; i < FROM + NR; i++)
		assert_true(pd_word(&fb->vm->pd[i]) & PD_AT);
	return fb;
}

/* The first write to each page after a trace was a fault. */
static void test_pages_written_before_a_trace_stay_writable(void **state)
{
	struct fake_backend *fb = world_written();
	u64 faults = count(fb, DCM_C_FAULTS);

	(void)state;
	write_rounds(fb, 1);
	assert_int_equal(count(fb, DCM_C_FAULTS), faults);
	/* what they were changed to is not lost */
	assert_int_equal(fb_to_donor(fb, 0, FROM, NR, false, LONG), 0);
	synced(fb, FROM, NR);
	end(fb);
}

/* Pages no longer written to become clean: traces do not write them for ever. */
static void test_pages_that_stay_writable_become_clean(void **state)
{
	struct fake_backend *fb = world_written();
	u64 first = count(fb, DCM_C_WRITTEN_PAGES), last;
	u32 i;

	(void)state;
	for (i = 0; i < 60; i++)
		assert_int_equal(fb_to_donor(fb, 0, FROM, NR, true, LONG), 0);
	last = count(fb, DCM_C_WRITTEN_PAGES);
	/* four times on average, after the one in world_written() */
	assert_in_range(last - first, NR * 2, NR * 6);
	kept(fb, FROM, NR);
	assert_int_equal(fb_to_donor(fb, 0, FROM, NR, true, LONG), 0);
	assert_int_equal(count(fb, DCM_C_WRITTEN_PAGES), last);
	end(fb);
}

/* Only the written pages of a large block, unless they are more than a quarter. */
static void test_few_of_a_block(void **state)
{
	struct fb_config cfg = calm();
	struct fake_backend *fb;
	u32 i, n, head = 128;
	u64 written;

	(void)state;
	cfg.budget = 512;
	fb = world_with_slabs(cfg);
	tune(fb, "largest_block", 65536);
	for (i = 0; i < head + 8; i++)
		put(fb, i);
	assert_int_equal(pd_order(pd_word(&fb->vm->pd[head])), 3);
	assert_int_equal(fb_to_donor(fb, 0, head, 8, true, LONG), 0);
	for (n = 1; n <= 3; n++) {
		for (i = 0; i < n; i++)
			put(fb, head + 7 - 3 * i);
		written = count(fb, DCM_C_WRITTEN_PAGES);
		assert_int_equal(fb_to_donor(fb, 0, head, 8, true, LONG), 0);
		assert_int_equal(count(fb, DCM_C_WRITTEN_PAGES) - written,
				 n > 2 ? 8 : n);
		kept(fb, head, 8);
	}
	assert_int_equal(fb->nr_copies, 4);
	end(fb);
}

/* Pages in every state: written, zero, read only, never touched; twice. */
static void mixed(u64 block, u64 budget, u32 delay, bool dirty_bits)
{
	struct fb_config cfg = calm();
	struct fake_backend *fb;
	u32 i, round;

	cfg.budget = budget;
	cfg.max_delay = delay;
	cfg.dirty_bits = dirty_bits;
	fb = world_with_slabs(cfg);
	tune(fb, "largest_block", block);
	for (round = 0; round < 2; round++) {
		for (i = FROM; i < FROM + NR; i++) {
			if (i % 4 == 0)
				put(fb, i);
			else if (i % 4 == 1)
				assert_int_equal(fb_access(fb, 0, i, true,
							   true),
						 0);
			else if (i % 4 == 2)
				get(fb, i);
		}
		assert_int_equal(fb_to_donor(fb, 0, FROM, NR, false, LONG), 0);
		synced(fb, FROM, NR);
		/* these pages are zero now, which no eviction would write to the donor */
		for (i = FROM; i < FROM + NR; i += 3)
			assert_int_equal(fb_access(fb, 0, i, true, true), 0);
		assert_int_equal(fb_to_donor(fb, 0, FROM, NR, false, LONG), 0);
		synced(fb, FROM, NR);
	}
	end(fb);
}

static void test_mixed(void **state)
{
	(void)state;
	mixed(4096, 512, 0, false);
	mixed(4096, 512, 50, false);
	mixed(65536, 512, 0, false);
	mixed(65536, 512, 50, true);
	/* with far less memory than the range has */
	mixed(4096, 96, 20, false);
	mixed(65536, 96, 20, false);
}

/*
 * Pages that nobody has touched: written as zeroes, in the largest blocks, and
 * none of them sent.
 */
static void test_untouched(void **state)
{
	static const u64 blocks[] = { 4096, 65536 };
	struct fake_backend *fb;
	u64 posts;

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(blocks); i++) {
		fb = world_with_slabs(calm());
		tune(fb, "largest_block", blocks[i]);
		posts = fb->nr_posts;
		assert_int_equal(fb_to_donor(fb, 0, FROM, NR, false, LONG), 0);
		assert_int_equal(fb->nr_posts - posts, NR * 4096 / blocks[i]);
		assert_int_equal(fb->nr_zero_said, NR);
		synced(fb, FROM, NR);
		/* one page of sixteen has content: that block is sent */
		put(fb, FROM + 5);
		assert_int_equal(fb_to_donor(fb, 0, FROM, NR, false, LONG), 0);
		assert_int_equal(fb->nr_zero_said, NR);
		synced(fb, FROM, NR);
		end(fb);
	}
}

/* The whole range is discarded after a sync: the donor reads as zero again. */
static void test_after_discard(void **state)
{
	struct fake_backend *fb = world_with_slabs(calm());
	u32 i;

	(void)state;
	for (i = FROM; i < FROM + 16; i++)
		put(fb, i);
	assert_int_equal(fb_to_donor(fb, 0, FROM, 16, false, LONG), 0);
	fb_discard(fb, 0, FROM, 16);
	assert_int_equal(fb_to_donor(fb, 0, FROM, 16, false, LONG), 0);
	synced(fb, FROM, 16);
	end(fb);
}

/* No donor has room: the sync ends at its time limit, and nothing has changed. */
static void test_no_slab(void **state)
{
	struct fb_config cfg = calm();
	struct fake_backend *fb;
	u32 i;

	(void)state;
	cfg.nr_slabs = 0;
	cfg.budget = 512;
	fb = world_with_slabs(cfg);
	for (i = FROM; i < FROM + 16; i++)
		put(fb, i);
	assert_int_equal(fb_to_donor(fb, 0, FROM, 16, false, 1000), -ETIMEDOUT);
	assert_int_equal(fb_to_donor(fb, 0, FROM, 16, true, 1000), -ETIMEDOUT);
	fb_fsck(fb, false);
	for (i = FROM; i < FROM + 16; i++)
		get(fb, i);
	fb_destroy(fb);
}

/* A page that I/O has its hands on stays, and that is said. */
static void test_pinned(void **state)
{
	struct fb_config cfg = calm();
	struct fake_backend *fb;

	(void)state;
	cfg.p_pinned = 10000;
	fb = world_with_slabs(cfg);
	put(fb, FROM);
	assert_int_equal(fb_to_donor(fb, 0, FROM, 16, true, LONG), -EBUSY);
	assert_int_equal(fb_to_donor(fb, 0, FROM, 16, false, LONG), -EBUSY);
	fb->cfg.p_pinned = 0;
	assert_int_equal(fb_to_donor(fb, 0, FROM, 16, false, LONG), 0);
	synced(fb, FROM, 16);
	end(fb);
}

/*
 * Accesses go on: at any time some page is in use, never the same for long. Each
 * look at dirtiness unmaps a page, so all at a time are never seen idle.
 */
static void test_busy_now_and_then(void **state)
{
	struct fb_config cfg = calm();
	struct fake_backend *fb;
	unsigned int tries = 0;
	u64 at = FROM;

	(void)state;
	cfg.p_pinned = 5000;
	cfg.dirty_bits = true;
	fb = world_with_slabs(cfg);
	for (u32 i = 0; i < 64; i++)
		put(fb, FROM + i);
	while (fb_to_donors(fb, 0, &at, FROM + 64, true, LONG) == -EBUSY)
		assert_true(++tries < 1000);
	assert_int_equal(at, FROM + 64);
	assert_true(tries);
	kept(fb, FROM, 64);
	fb->cfg.p_pinned = 0;
	end(fb);
}

static struct {
	u32 gfn;
	bool waits;
	u64 since, longest; /* ticks */
	u32 done, waited;
} guest;

static void guest_writes(void *arg)
{
	struct fake_backend *fb = fake;
	int flags;

	give(arg);
	if (!guest.waits) {
		guest.gfn = FROM + guest.gfn * 5 % NR;
		guest.since = fb->tick;
	}
	flags = fb_write(fb, guest.gfn, false);
	guest.waits = flags != FH_OK;
	if (guest.waits) {
		fb_fault(fb, 1, guest.gfn, (u32)flags);
		return;
	}
	guest.longest = max(guest.longest, fb->tick - guest.since);
	guest.waited += fb->tick > guest.since;
	guest.gfn = ++guest.done;
}

/*
 * A guest's write to a page that is being copied waits for one WRITE at most; with
 * @guesses, for none.
 */
static void cleaned_under_writes(u64 block, bool guesses)
{
	struct fb_config cfg = calm();
	struct fake_backend *fb;
	u64 begin;

	cfg.nr_lanes = 2;
	cfg.budget = 512;
	cfg.max_delay = 100;
	cfg.guesses = guesses;
	fb = world_with_slabs(cfg);
	tune(fb, "largest_block", block);
	tune(fb, "writebacks", 2);
	memset(&guest, 0, sizeof(guest));
	for (u32 i = 0; i < NR; i++)
		put(fb, FROM + i);
	fb->cfg.idle = guest_writes;
	begin = fb->tick;
	assert_int_equal(fb_to_donor(fb, 0, FROM, NR, true, LONG), 0);
	fb->cfg.idle = give;
	/* that was not over soon */
	assert_true(fb->tick - begin > 4ul * cfg.max_delay);
	assert_true(guest.done > 16);
	if (guesses)
		assert_int_equal(guest.waited, 0);
	else
		assert_true(guest.waited > 4);
	/* and the look that finds it done [VGC-D-21] */
	assert_true(guest.longest <= cfg.max_delay + 4);
	end(fb);
}

static void test_accesses_go_on(void **state)
{
	(void)state;
	cleaned_under_writes(4096, false);
	cleaned_under_writes(65536, false);
	cleaned_under_writes(4096, true);
	cleaned_under_writes(65536, true);
}

/* Some pages are written whenever that can be done. */
static void guest_writes_the_same(void *arg)
{
	struct fake_backend *fb = fake;

	give(arg);
	for (u32 i = 0; i < NR; i += 64) {
		int flags = fb_write(fb, FROM + i, false);

		if (flags != FH_OK)
			fb_fault(fb, 1, FROM + i, (u32)flags);
	}
}

/* The bug: such pages were copied again and again, as they had changed meanwhile. */
static void cleaned_while_always_written(u64 block, bool dirty_bits,
					 bool guesses)
{
	struct fb_config cfg = calm();
	struct fake_backend *fb;
	u64 begin, written;

	cfg.nr_lanes = 2;
	cfg.budget = 512;
	cfg.max_delay = 100;
	cfg.dirty_bits = dirty_bits;
	cfg.guesses = guesses;
	fb = world_with_slabs(cfg);
	tune(fb, "largest_block", block);
	for (u32 i = 0; i < NR; i++)
		put(fb, FROM + i);
	fb->cfg.idle = guest_writes_the_same;
	for (u32 round = 0; round < 3; round++) {
		begin = fb->tick;
		written = count(fb, DCM_C_WRITTEN_PAGES);
		assert_int_equal(fb_to_donor(fb, 0, FROM, NR, true, LONG), 0);
		assert_true(fb->tick > begin);
		/* then those that were written since, and, but for @guesses, no other */
		assert_in_range(count(fb, DCM_C_WRITTEN_PAGES) - written, 1,
				round && !guesses ? NR / 64 * block / 4096 :
						    NR);
	}
	fb->cfg.idle = give;
	assert_int_equal(fb_to_donor(fb, 0, FROM, NR, !guesses, LONG), 0);
	if (guesses)
		synced(fb, FROM, NR);
	else
		kept(fb, FROM, NR);
	end(fb);
}

static void test_what_is_always_written_is_copied_once(void **state)
{
	(void)state;
	for (unsigned int guesses = 0; guesses < 2; guesses++) {
		cleaned_while_always_written(4096, false, guesses);
		cleaned_while_always_written(65536, false, guesses);
	}
	cleaned_while_always_written(4096, true, false);
	cleaned_while_always_written(65536, true, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mixed),
		cmocka_unit_test(test_kept),
		cmocka_unit_test(test_only_what_changed),
		cmocka_unit_test(test_read_since_is_not_written),
		cmocka_unit_test(test_new_and_read_since_is_not_written),
		cmocka_unit_test(test_first_writes_after_a_sync),
		cmocka_unit_test(
			test_pages_written_before_a_trace_stay_writable),
		cmocka_unit_test(test_pages_that_stay_writable_become_clean),
		cmocka_unit_test(test_few_of_a_block),
		cmocka_unit_test(test_untouched),
		cmocka_unit_test(test_after_discard),
		cmocka_unit_test(test_no_slab),
		cmocka_unit_test(test_pinned),
		cmocka_unit_test(test_busy_now_and_then),
		cmocka_unit_test(test_accesses_go_on),
		cmocka_unit_test(test_what_is_always_written_is_copied_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

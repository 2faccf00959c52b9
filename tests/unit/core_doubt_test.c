// SPDX-License-Identifier: GPL-2.0-or-later
/* links: CORE FAKE */
/*
 * core_doubt_test.c - WRITEs that failed with their connection and land late
 *
 * Two lanes. The first one's connection to a donor breaks while a WRITE is on
 * its way; the second one's is well. Until the donor welcomes the first lane
 * again no lane may write that page, or the late bytes could replace newer ones.
 */
#include "core_table.h"

#define PAGE 9u

static bool inflight(const struct fake_backend *fb, u32 gfn)
{
	return pd_word(pd_of(fb->vm, gfn)) & PD_INFLIGHT;
}

/* Pages of the first extent are on their donor, and clean. */
static struct fake_backend *remote_world(void)
{
	struct fb_config cfg = calm();
	struct fake_backend *fb;
	u32 i;

	cfg.nr_lanes = 2;
	fb = world(cfg);
	for (i = 0; i < 64; i++)
		put(fb, i);
	push_out(fb, 0, 64);
	return fb;
}

/* Use one more page on a lane, which writes its victims back. */
static void more_page(struct fake_backend *fb, u32 lane, bool write)
{
	static u32 at;
	u32 gfn = FLOOD_AT + at++ % 1000;
	u64 content;
	int flags = write ? fb_write(fb, gfn, false) :
			    fb_read(fb, gfn, &content);

	fb_give_slabs(fb, 0);
	if (flags >= 0)
		fb_fault(fb, lane, gfn, (u32)flags);
	if (write)
		fb_write(fb, gfn, false);
	fb_advance(fb, 10);
	fb_poll(fb, lane);
}

static void new_page(struct fake_backend *fb, u32 lane)
{
	more_page(fb, lane, true);
}

/* %PAGE, dirty, is being written by the first lane, and stays so. */
static void write_back(struct fake_backend *fb)
{
	u32 i;

	/* no other page is dirty: only this one is written back */
	flood(fb, 300);
	for (i = 0; i < 300; i++)
		more_page(fb, 0, false);
	fb_sync(fb);
	put(fb, PAGE);
	fb_sync(fb);
	tune(fb, "proactive_share", 0);
	fb->cfg.max_delay = 1000000000;
	for (i = 0; state_of(fb, PAGE) != DCM_WRITEBACK; i++) {
		assert_true(i < 2000);
		glance(fb, 1100 + i % 400);
	}
}

/* A lane's connection to @donor breaks, and the donor's WELCOME comes late. */
static void cut(struct fake_backend *fb, u32 lane, u32 donor)
{
	u32 i;

	fb_way_break(fb, lane, donor);
	fb->lane[lane].way[donor].welcome_at = fb->tick + 1000000;
	fb_poll(fb, lane);
	/* other operations on their way arrive */
	fb->cfg.max_delay = 0;
	for (i = 0; i < fb->lane[lane].nr_io; i++)
		fb->lane[lane].io[i].due = fb->tick;
	fb_poll(fb, lane);
}

static void welcome(struct fake_backend *fb, u32 lane, u32 donor)
{
	fb->lane[lane].way[donor].welcome_at = fb->tick;
	/* heard of in the first poll, over with the second */
	fb_poll(fb, lane);
	fb_poll(fb, lane);
	dcm_buffers_flush(fb->vm);
}

/* Evict as much as possible on the second lane only. */
static void evict_elsewhere(struct fake_backend *fb)
{
	u32 i;

	for (i = 0; i < 300; i++) {
		new_page(fb, 1);
		fb_balance(fb, 1);
	}
}

/* The page can be evicted now: use other pages on both lanes until it is. */
static void leave(struct fake_backend *fb)
{
	u32 i;

	for (i = 0; state_of(fb, PAGE) != DCM_NOTDIRECT; i++) {
		assert_true(i < 4000);
		new_page(fb, i % 2);
	}
}

/* The wrong byte: written again over a well connection, then overwritten. */
static void test_write_that_lands_late(void **state)
{
	struct fake_backend *fb = remote_world();
	u32 donor = fb_slab_open(fb, 0)->donor;
	s64 frames;

	(void)state;
	write_back(fb);
	frames = fb->frames;
	cut(fb, 0, donor);
	assert_int_equal(state_of(fb, PAGE), DCM_INACTIVE);
	assert_true(inflight(fb, PAGE));
	assert_true(dcm_doubtful(&fb->vm->lane[0]));
	/* the write-back itself is over */
	assert_int_equal(fb->vm->lane[0].nr_wb, 0);
	assert_true(fb->frames <= frames);
	/* the page may be used and changed here, but not evicted */
	assert_int_equal(fb_access(fb, 1, PAGE, true, false), 0);
	evict_elsewhere(fb);
	assert_true(inflight(fb, PAGE));
	assert_int_not_equal(state_of(fb, PAGE), DCM_NOTDIRECT);
	assert_int_not_equal(state_of(fb, PAGE), DCM_WRITEBACK);
	welcome(fb, 0, donor);
	assert_false(inflight(fb, PAGE));
	assert_false(dcm_doubtful(&fb->vm->lane[0]));
	leave(fb);
	get(fb, PAGE);
	end(fb);
}

/* The same of a write-back that had been cancelled before its WRITE failed. */
static void test_cancelled_write_that_lands_late(void **state)
{
	struct fake_backend *fb = remote_world();
	u32 donor = fb_slab_open(fb, 0)->donor;

	(void)state;
	write_back(fb);
	assert_int_equal(fb_fault(fb, 1, PAGE, DCM_FF_WRITE), DCM_FAULT_DONE);
	assert_int_equal(count(fb, DCM_C_CANCELLED), 1);
	assert_int_equal(fb_write(fb, PAGE, false), FH_OK);
	cut(fb, 0, donor);
	assert_int_equal(fb->vm->lane[0].nr_wb, 0);
	assert_true(inflight(fb, PAGE));
	evict_elsewhere(fb);
	assert_true(inflight(fb, PAGE));
	assert_int_not_equal(state_of(fb, PAGE), DCM_NOTDIRECT);
	welcome(fb, 0, donor);
	assert_false(inflight(fb, PAGE));
	leave(fb);
	get(fb, PAGE);
	end(fb);
}

/* Given up by its owner meanwhile, and new again: the late bytes are older. */
static void test_discarded_page_that_lands_late(void **state)
{
	struct fake_backend *fb = remote_world();
	u32 donor = fb_slab_open(fb, 0)->donor;

	(void)state;
	write_back(fb);
	cut(fb, 0, donor);
	fb_discard(fb, 1, PAGE, 1);
	assert_true(inflight(fb, PAGE));
	assert_int_equal(fb_access(fb, 1, PAGE, true, false), 0);
	evict_elsewhere(fb);
	assert_true(inflight(fb, PAGE));
	assert_int_not_equal(state_of(fb, PAGE), DCM_NOTDIRECT);
	welcome(fb, 0, donor);
	leave(fb);
	get(fb, PAGE);
	end(fb);
}

static struct fb_slab *attach_other(struct fake_backend *fb,
				    const struct fb_slab *s)
{
	struct fb_slab *other = fb_slab_take(fb, 0, (s32)s->donor);

	assert_non_null(other);
	assert_int_equal(fb_slab_attach(fb, other, 0), 0);
	return other;
}

/*
 * A page is copied to another donor and the WRITE there fails. The page may not
 * be written there again, neither by the copy nor by an eviction.
 */
static void test_move_whose_write_lands_late(void **state)
{
	struct fake_backend *fb = remote_world();
	struct fb_slab *old = fb_slab_open(fb, 0), *to = attach_other(fb, old);
	struct dcm_lane *control = &fb->vm->lane[1];
	u32 cursor = 0, i, doubted = 0, at = 0;

	(void)state;
	/* The READs of the first batch complete; its WRITEs are posted and fail. */
	assert_int_equal(dcm_extent_drain(control, 0, &old->ref, &cursor),
			 -EAGAIN);
	fb->cfg.max_delay = 1000000000;
	fb_poll(fb, 1);
	cut(fb, 1, to->donor);
	for (i = 0; i < 64; i++) {
		if (!inflight(fb, i))
			continue;
		doubted++;
		at = i;
	}
	assert_true(doubted > 0);
	for (i = 0; i < 50; i++) {
		assert_int_equal(dcm_extent_drain(control, 0, &old->ref,
						 &cursor),
				 -EAGAIN);
		fb_advance(fb, 10);
		fb_poll(fb, 1);
	}
	/* Fetched, changed, and evicted by a lane whose connection works. */
	assert_int_equal(fb_access(fb, 0, at, true, false), 0);
	tune(fb, "proactive_share", 0);
	for (i = 0; i < 300; i++)
		new_page(fb, 0);
	assert_true(inflight(fb, at));
	assert_int_not_equal(state_of(fb, at), DCM_NOTDIRECT);
	welcome(fb, 1, to->donor);
	for (i = 0; i < 64; i++)
		assert_false(inflight(fb, i));
	for (i = 0; dcm_extent_drain(control, 0, &old->ref, &cursor); i++) {
		assert_true(i < 1000);
		fb_advance(fb, 10);
		fb_poll(fb, 0);
		fb_poll(fb, 1);
	}
	fb_slab_free(fb, old);
	push_out(fb, 0, 64);
	for (i = 0; i < 64; i++)
		get(fb, i);
	end(fb);
}

/* The slab is lost: nothing can land where nothing is read from any more. */
static void test_doubt_ends_with_the_slab(void **state)
{
	struct fake_backend *fb = remote_world();
	struct fb_slab *s = fb_slab_open(fb, 0);
	s64 r;
	u32 i;

	(void)state;
	write_back(fb);
	cut(fb, 0, s->donor);
	assert_true(inflight(fb, PAGE));
	fb_slab_kill(fb, s);
	for (i = 0; i < 100; i++) {
		r = dcm_extent_lost(&fb->vm->lane[1], 0, &s->ref);
		if (r != -EAGAIN)
			break;
		fb_poll(fb, 0);
	}
	assert_int_equal(r, 63);
	fb_lost_scan(fb, 0);
	fb_slab_free(fb, s);
	fb_poll(fb, 0);
	assert_false(inflight(fb, PAGE));
	assert_false(dcm_doubtful(&fb->vm->lane[0]));
	leave(fb);
	get(fb, PAGE);
	end(fb);
}

/* A lane that could not remember another doubt starts nothing that may need to. */
static void test_full_of_doubts(void **state)
{
	struct fake_backend *fb = remote_world();
	struct dcm_lane *lane = &fb->vm->lane[0];
	u32 donor = fb_slab_open(fb, 0)->donor, i;
	u64 begun;

	(void)state;
	write_back(fb);
	cut(fb, 0, donor);
	assert_int_equal(lane->nr_doubt, 1);
	begun = count(fb, DCM_C_WRITEBACKS);
	while (lane->nr_doubt < DCM_DOUBTS_MAX) {
		lane->doubt[lane->nr_doubt] = lane->doubt[0];
		lane->doubt[lane->nr_doubt++].pages = 0;
		atomic64_add(1, &fb->vm->doubts);
	}
	/* the first lane can't write back its dirty pages, though donors are well */
	for (i = 0; i < 300; i++) {
		new_page(fb, 0);
		assert_int_equal(count(fb, DCM_C_WRITEBACKS), begun);
	}
	welcome(fb, 0, donor);
	assert_int_equal(lane->nr_doubt, 0);
	leave(fb);
	get(fb, PAGE);
	end(fb);
}

/* The first page of an extent whose slab is on @donor. */
static u32 first_on(struct fake_backend *fb, u32 donor, u32 extent)
{
	for (; extent < fb->vm->nr_extents; extent++) {
		struct fb_slab *s = fb_slab_open(fb, extent);

		if (s && s->donor == donor)
			return extent * fb->cfg.extent_pages;
	}
	fb_violation(fb, "no extent on donor %u", donor);
}

/*
 * One donor is silent. Its dirty pages can't be written back and gather among the
 * next victims; pages of the other donor must be fetched and evicted all the same.
 */
static void test_silence_of_one_donor_stops_nobody_else(void **state)
{
	struct fb_config cfg = calm();
	struct fake_backend *fb;
	u32 i, n, silent, other, well;

	(void)state;
	cfg.budget = 256;
	fb = world(cfg);
	for (i = 0; i < 1024; i++)
		put(fb, i);
	push_out(fb, 0, 1024);
	silent = first_on(fb, 0, 0);
	well = first_on(fb, 1, 0);
	/* most direct pages are dirty, and of the donor that falls silent */
	for (n = 0; n < 4; n++)
		for (i = 0; i < 64; i++) {
			put(fb, silent + i);
			get(fb, well + i % 8);
		}
	other = first_on(fb, 0, silent / 64 + 1);
	for (i = 0; i < 64; i++)
		put(fb, other + i);
	fb->donor[0].unreachable_until = ~0ull;
	for (n = 0; n < 3; n++)
		for (i = 0; i < 1024; i++)
			if (fb_slab_open(fb, i / 64)->donor == 1)
				assert_int_equal(fb_access(fb, 0, i, i % 2,
							   false),
						 0);
	fb->donor[0].unreachable_until = 0;
	push_out(fb, 0, 1024);
	for (i = 0; i < 1024; i++)
		get(fb, i);
	end(fb);
}

/*
 * The first lane is cut off: its victims can't be written back and gather in its
 * queue. The second lane's own queue has only a page in doubt: the second lane must
 * look at the other queue too, or its accesses wait for ever.
 */
static void test_what_a_cut_off_lane_took_leaves_by_another(void **state)
{
	struct fake_backend *fb = remote_world();
	struct dcm_lane *lane = fb->vm->lane;
	struct dcm_pd *pd = pd_of(fb->vm, PAGE);
	u32 donor = fb_slab_open(fb, 0)->donor, d, gfn;

	(void)state;
	write_back(fb);
	cut(fb, 0, donor);
	cut(fb, 0, !donor);
	for (d = 0; d < 2; d++)
		fb->lane[0].way[d].welcome_at = ~0ull;
	/* the whole budget, new and dirty */
	for (gfn = 128; gfn < 328; gfn++) {
		fb_give_slabs(fb, 0);
		fb_fault(fb, 0, gfn, DCM_FF_WRITE);
		fb_write(fb, gfn, false);
		fb_balance(fb, 0);
	}
	assert_true(lane[0].inactive.nr_pages >= 80);
	pd_lock(pd);
	dcm_queue_out(fb->vm, PAGE, 0);
	dcm_queue_in(&lane[1], PAGE, 0);
	pd_unlock(pd);
	assert_true(inflight(fb, PAGE));
	assert_int_equal(lane[1].inactive.nr_pages, 1);
	for (gfn = 328; gfn < 528; gfn++)
		assert_int_equal(fb_access(fb, 1, gfn, true, false), 0);
	assert_true(inflight(fb, PAGE));
	for (d = 0; d < 2; d++)
		welcome(fb, 0, d);
	leave(fb);
	get(fb, PAGE);
	end(fb);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_write_that_lands_late),
		cmocka_unit_test(test_cancelled_write_that_lands_late),
		cmocka_unit_test(test_discarded_page_that_lands_late),
		cmocka_unit_test(test_move_whose_write_lands_late),
		cmocka_unit_test(test_doubt_ends_with_the_slab),
		cmocka_unit_test(test_full_of_doubts),
		cmocka_unit_test(test_silence_of_one_donor_stops_nobody_else),
		cmocka_unit_test(
			test_what_a_cut_off_lane_took_leaves_by_another),
	};

	return cmocka_run_group_tests_name("core_doubt", tests, NULL, NULL);
}

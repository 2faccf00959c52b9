// SPDX-License-Identifier: GPL-2.0-or-later
/* links: CORE FAKE */
/*
 * core_chunk_test.c - a sparse VM: descriptors that come with the first fault
 */
#include "core_table.h"

#define CHUNK DCM_PDS_PAGES

static struct fake_backend *sparse(void)
{
	struct fb_config cfg = calm();

	cfg.sparse = true;
	cfg.nr_lanes = 2;
	cfg.budget = 112;
	cfg.extent_pages = 1024; /* four chunks */
	cfg.nr_slabs = 12;
	return world(cfg);
}

static u64 chunks(const struct fake_backend *fb)
{
	return (u64)atomic64_read(&fb->vm->nr_chunks);
}

/* Only faults allocate descriptors; the others read as zeroes. */
static void test_first_touch(void **state)
{
	struct fake_backend *fb = sparse();
	char text[128];

	(void)state;
	assert_int_equal(chunks(fb), 0);
	assert_int_equal(dcm_chunk_next(fb->vm, 0, 3072), 3072);
	assert_int_equal(dcm_fault(&fb->vm->lane[0], 700, 0), DCM_FAULT_BARE);
	assert_int_equal(count(fb, DCM_C_FAULTS), 0);
	put(fb, 700);
	get(fb, 3071);
	get(fb, 513);
	assert_int_equal(chunks(fb), 2);
	assert_int_equal(fb->nr_bare, 2);
	assert_int_equal(dcm_chunk_next(fb->vm, 0, 3072), 512);
	assert_int_equal(dcm_chunk_next(fb->vm, 700, 3072), 700);
	assert_int_equal(dcm_chunk_next(fb->vm, 768, 3072), 3071 - 255);
	assert_int_equal(dcm_chunk_next(fb->vm, 768, 1000), 1000);
	dcm_pd_text(fb->vm, 0, text, sizeof(text));
	assert_non_null(strstr(text, "NotDirect"));
	assert_false(dcm_chunk_add(fb->vm, 700, fb->descriptors));
	end(fb);
}

/* The whole VM written and read back with a budget of a 32nd. */
static void test_paging(void **state)
{
	struct fake_backend *fb = sparse();
	u32 i;

	(void)state;
	for (i = 0; i < 3072; i++)
		put(fb, i);
	for (i = 0; i < 3072; i++)
		get(fb, i);
	assert_int_equal(chunks(fb), 3072 / CHUNK);
	assert_true(count(fb, DCM_C_FETCHES) > 2000);
	end(fb);
}

static struct fb_slab *attach(struct fake_backend *fb, u32 extent)
{
	struct fb_slab *s = fb_slab_take(fb, 77, -1);

	assert_int_equal(fb_slab_attach(fb, s, extent), 0);
	return s;
}

/* Discards, moves and losses pass over what has no descriptors. */
static void test_passed_over(void **state)
{
	struct fake_backend *fb = sparse();
	struct dcm_lane *control = &fb->vm->lane[1];
	struct fb_slab *a, *b;
	u32 cursor = 0;
	s64 r;

	(void)state;
	fb_discard(fb, 0, 0, 3072);
	assert_int_equal(chunks(fb), 0);
	a = attach(fb, 0);
	put(fb, 300);
	put(fb, 999);
	push_out(fb, 300, 1);
	push_out(fb, 999, 1);
	b = attach(fb, 0);
	while ((r = dcm_extent_drain(control, 0, &a->ref, &cursor)) == -EAGAIN)
		fb_advance(fb, 10);
	assert_int_equal(r, 0);
	fb_slab_free(fb, a);
	get(fb, 300);
	push_out(fb, 300, 1);
	fb_slab_kill(fb, b);
	while ((r = dcm_extent_lost(control, 0, &b->ref)) == -EAGAIN)
		fb_sync(fb);
	assert_int_equal(r, 2);
	assert_int_equal(fb_lost_scan(fb, 0), 2);
	fb_slab_free(fb, b);
	assert_int_equal(fb_access(fb, 0, 999, false, false), -EIO);
	assert_false(dcm_chunk_there(fb->vm, 0));
	assert_false(dcm_chunk_there(fb->vm, 512));
	end(fb);
}

/* A chunk is freed when no descriptor in it holds state, and not before. */
static void test_taken_back(void **state)
{
	struct fake_backend *fb = sparse();
	u64 before;
	u32 i;

	(void)state;
	for (i = 0; i < 16; i++)
		put(fb, CHUNK + i);
	assert_null(dcm_chunk_remove(fb->vm, 0, false));
	assert_null(dcm_chunk_remove(fb->vm, CHUNK, false)); /* direct */
	push_out(fb, CHUNK, 16);
	assert_null(dcm_chunk_remove(fb->vm, CHUNK, false)); /* remote */
	for (i = 0; i < 16; i++)
		put(fb, CHUNK + i);
	/* Now in a lane's buffer, as a stale hint when the pages are gone. */
	before = chunks(fb);
	fb_discard(fb, 0, CHUNK, CHUNK);
	assert_int_equal(chunks(fb), before - 1);
	assert_int_equal(fb->nr_undescribed, 1);
	flood(fb, 400);
	for (i = 0; i < 16; i++)
		get(fb, CHUNK + i);
	end(fb);
}

/* A cancelled write is still in flight: its pages' flags have to stay. */
static void test_in_flight(void **state)
{
	struct fake_backend *fb = sparse();
	u32 i, n;

	(void)state;
	put(fb, CHUNK);
	fb->cfg.max_delay = 1000000;
	for (n = 0; state_of(fb, CHUNK) != DCM_WRITEBACK; n++) {
		assert_true(n < 1000);
		fb_fault(fb, 0, FLOOD_AT + n, DCM_FF_WRITE);
		fb_give_slabs(fb, n);
		fb_balance(fb, 0);
	}
	fb_discard(fb, 0, CHUNK, CHUNK);
	assert_int_equal(fb->nr_undescribed, 0);
	assert_true(pd_word(pd_of(fb->vm, CHUNK)) & PD_INFLIGHT);
	fb->cfg.max_delay = 0;
	for (i = 0; i < 100 && dcm_pending(&fb->vm->lane[0]); i++) {
		fb_advance(fb, 1000000);
		fb_poll(fb, 0);
	}
	fb_discard(fb, 0, CHUNK, CHUNK);
	assert_int_equal(fb->nr_undescribed, 1);
	end(fb);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_first_touch),
		cmocka_unit_test(test_paging),
		cmocka_unit_test(test_passed_over),
		cmocka_unit_test(test_taken_back),
		cmocka_unit_test(test_in_flight),
	};

	return cmocka_run_group_tests_name("core_chunk", tests, NULL, NULL);
}

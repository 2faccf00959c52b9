// SPDX-License-Identifier: GPL-2.0-or-later
/* links: CORE FAKE */
/*
 * core_chunk_test.c - a sparse VM: descriptors that come with the first fault
 */
#include "core_table.h"

#define CHUNK DCM_PDS_PAGES

static struct fake_home *sparse(void)
{
	struct fh_config cfg = calm();

	cfg.sparse = true;
	cfg.nr_lanes = 2;
	cfg.budget = 112;
	cfg.extent_pages = 1024; /* four chunks */
	cfg.nr_slabs = 12;
	return world(cfg);
}

static u64 chunks(const struct fake_home *fh)
{
	return (u64)atomic64_read(&fh->vm->nr_chunks);
}

/* Only faults bring descriptors; who looks at the others reads zeroes. */
static void test_first_touch(void **state)
{
	struct fake_home *fh = sparse();
	char text[128];

	(void)state;
	assert_int_equal(chunks(fh), 0);
	assert_int_equal(dcm_chunk_next(fh->vm, 0, 3072), 3072);
	assert_int_equal(dcm_fault(&fh->vm->lane[0], 700, 0), DCM_FAULT_BARE);
	assert_int_equal(count(fh, DCM_C_FAULTS), 0);
	put(fh, 700);
	get(fh, 3071);
	get(fh, 513);
	assert_int_equal(chunks(fh), 2);
	assert_int_equal(fh->nr_bare, 2);
	assert_int_equal(dcm_chunk_next(fh->vm, 0, 3072), 512);
	assert_int_equal(dcm_chunk_next(fh->vm, 700, 3072), 700);
	assert_int_equal(dcm_chunk_next(fh->vm, 768, 3072), 3071 - 255);
	assert_int_equal(dcm_chunk_next(fh->vm, 768, 1000), 1000);
	dcm_pd_text(fh->vm, 0, text, sizeof(text));
	assert_non_null(strstr(text, "NotDirect"));
	assert_false(dcm_chunk_add(fh->vm, 700, fh->descriptors));
	end(fh);
}

/* All of it, written and read back with a 32nd here: as any other VM. */
static void test_paging(void **state)
{
	struct fake_home *fh = sparse();
	u32 i;

	(void)state;
	for (i = 0; i < 3072; i++)
		put(fh, i);
	for (i = 0; i < 3072; i++)
		get(fh, i);
	assert_int_equal(chunks(fh), 3072 / CHUNK);
	assert_true(count(fh, DCM_C_FETCHES) > 2000);
	end(fh);
}

static struct fh_slab *attach(struct fake_home *fh, u32 extent)
{
	struct fh_slab *s = fh_slab_take(fh, 77, -1);

	s->extent = extent;
	s->state = FH_SLAB_LIVE;
	assert_int_equal(dcm_extent_attach(fh->vm, extent, &s->ref), 0);
	return s;
}

/* Discards, moves and losses pass over what has no descriptors. */
static void test_passed_over(void **state)
{
	struct fake_home *fh = sparse();
	struct dcm_lane *control = &fh->vm->lane[1];
	struct fh_slab *a, *b;
	u32 cursor = 0;
	s64 r;

	(void)state;
	fh_discard(fh, 0, 0, 3072);
	assert_int_equal(chunks(fh), 0);
	a = attach(fh, 0);
	put(fh, 300);
	put(fh, 999);
	push_out(fh, 300, 1);
	push_out(fh, 999, 1);
	b = attach(fh, 0);
	while ((r = dcm_extent_move(control, 0, &a->ref, &cursor)) == -EAGAIN)
		fh_advance(fh, 10);
	assert_int_equal(r, 0);
	fh_slab_free(fh, a);
	get(fh, 300);
	push_out(fh, 300, 1);
	fh_slab_kill(fh, b);
	while ((r = dcm_extent_lost(control, 0, &b->ref)) == -EAGAIN)
		fh_settle(fh);
	assert_int_equal(r, 2);
	assert_int_equal(fh_lost_scan(fh, 0), 2);
	fh_slab_free(fh, b);
	assert_int_equal(fh_access(fh, 0, 999, false, false), -EIO);
	assert_false(dcm_chunk_there(fh->vm, 0));
	assert_false(dcm_chunk_there(fh->vm, 512));
	end(fh);
}

/* A chunk goes when nothing in it says anything, and not before. */
static void test_taken_back(void **state)
{
	struct fake_home *fh = sparse();
	u64 before;
	u32 i;

	(void)state;
	for (i = 0; i < 16; i++)
		put(fh, CHUNK + i);
	assert_null(dcm_chunk_remove(fh->vm, 0, false));
	assert_null(dcm_chunk_remove(fh->vm, CHUNK, false)); /* direct */
	push_out(fh, CHUNK, 16);
	assert_null(dcm_chunk_remove(fh->vm, CHUNK, false)); /* remote */
	for (i = 0; i < 16; i++)
		put(fh, CHUNK + i);
	/* Now in a lane's buffer: a stale hint when they are gone. */
	before = chunks(fh);
	fh_discard(fh, 0, CHUNK, CHUNK);
	assert_int_equal(chunks(fh), before - 1);
	assert_int_equal(fh->nr_undescribed, 1);
	flood(fh, 400);
	for (i = 0; i < 16; i++)
		get(fh, CHUNK + i);
	end(fh);
}

/* A cancelled write is still in flight: its pages' flags have to stay. */
static void test_in_flight(void **state)
{
	struct fake_home *fh = sparse();
	u32 i, n;

	(void)state;
	put(fh, CHUNK);
	fh->cfg.max_delay = 1000000;
	for (n = 0; state_of(fh, CHUNK) != DCM_WRITEBACK; n++) {
		assert_true(n < 1000);
		fh_fault(fh, 0, FLOOD_AT + n, DCM_FF_WRITE);
		fh_give_slabs(fh, n);
		fh_balance(fh, 0);
	}
	fh_discard(fh, 0, CHUNK, CHUNK);
	assert_int_equal(fh->nr_undescribed, 0);
	assert_true(pd_word(pd_of(fh->vm, CHUNK)) & PD_INFLIGHT);
	fh->cfg.max_delay = 0;
	for (i = 0; i < 100 && dcm_pending(&fh->vm->lane[0]); i++) {
		fh_advance(fh, 1000000);
		fh_poll(fh, 0);
	}
	fh_discard(fh, 0, CHUNK, CHUNK);
	assert_int_equal(fh->nr_undescribed, 1);
	end(fh);
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

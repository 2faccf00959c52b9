// SPDX-License-Identifier: GPL-2.0-or-later
/* links: CORE FAKE */
/*
 * core_extent_test.c - extents: attach, move, pull, lose; and the races there
 */
#include "core_table.h"

static struct fh_slab *slab_of(struct fake_home *fh, u32 extent)
{
	struct dcm_extent *e = &fh->vm->extent[extent];

	return e->slab[e->cur] ? fh_slab_of(fh, e->slab[e->cur]) : NULL;
}

static struct fh_slab *attach(struct fake_home *fh, u32 extent)
{
	struct fh_slab *s = fh_slab_take(fh, 77, -1);

	assert_non_null(s);
	s->extent = extent;
	s->state = FH_SLAB_LIVE;
	assert_int_equal(dcm_extent_attach(fh->vm, extent, &s->ref), 0);
	return s;
}

/* Move until it ends, the world going on meanwhile; the control lane is 1. */
static int move(struct fake_home *fh, u32 extent, struct fh_slab *s)
{
	u32 cursor = 0, n;
	int r = -EAGAIN;

	for (n = 0; n < 100000 && r == -EAGAIN; n++) {
		r = dcm_extent_move(&fh->vm->lane[1], extent, &s->ref, &cursor);
		fh_advance(fh, 10);
		fh_poll(fh, 0);
		fh_poll(fh, 1);
	}
	if (!r)
		fh_slab_free(fh, s);
	return r;
}

static s64 lose(struct fake_home *fh, u32 extent, struct fh_slab *s)
{
	s64 r = -EAGAIN;
	u32 n;

	for (n = 0; n < 100000 && r == -EAGAIN; n++) {
		r = dcm_extent_lost(&fh->vm->lane[1], extent, &s->ref);
		fh_advance(fh, 100);
		fh_poll(fh, 0);
		fh_poll(fh, 1);
	}
	fh_lost_scan(fh, extent);
	if (r >= 0)
		fh_slab_free(fh, s);
	return r;
}

/* Pages 0 to 63, the first extent, written and out on a slab. */
static struct fake_home *filled(struct fh_config cfg)
{
	struct fake_home *fh;
	u32 i;

	cfg.nr_lanes = 2;
	cfg.budget = 112;
	fh = world(cfg);
	for (i = 0; i < 64; i++)
		put(fh, i);
	push_out(fh, 0, 64);
	assert_non_null(slab_of(fh, 0));
	return fh;
}

static void test_attach(void **state)
{
	struct fake_home *fh = world(calm());
	struct fh_slab *a, *b, *c;
	struct dcm_slab_ref small = { .bytes = 4096 };

	(void)state;
	a = attach(fh, 3);
	assert_ptr_equal(slab_of(fh, 3), a);
	b = attach(fh, 3);
	assert_ptr_equal(slab_of(fh, 3), b);
	c = fh_slab_take(fh, 9, -1);
	assert_int_equal(dcm_extent_attach(fh->vm, 3, &c->ref), -EBUSY);
	assert_int_equal(dcm_extent_attach(fh->vm, fh->vm->nr_extents, &c->ref),
			 -EINVAL);
	assert_int_equal(dcm_extent_attach(fh->vm, 4, NULL), -EINVAL);
	assert_int_equal(dcm_extent_attach(fh->vm, 4, &small), -EINVAL);
	end(fh);
}

static void test_move(void **state)
{
	struct fake_home *fh = filled(calm());
	struct fh_slab *old = slab_of(fh, 0);
	u64 reads = fh->nr_reads;
	u32 i, cursor = 0;

	(void)state;
	/* two of the pages are here meanwhile, one of them changed */
	get(fh, 5);
	put(fh, 6);
	attach(fh, 0);
	assert_int_equal(move(fh, 0, old), 0);
	assert_int_equal(dcm_extent_move(&fh->vm->lane[1], 0, &old->ref,
					 &cursor),
			 -ENOENT);
	assert_true(fh->nr_reads - reads >= 62);
	assert_int_equal(count(fh, DCM_C_MOVED_PAGES), 62);
	fh_settle(fh);
	fh_fsck(fh, true);
	for (i = 0; i < 64; i++)
		get(fh, i);
	end(fh);
}

static void test_pull(void **state)
{
	struct fake_home *fh = filled(calm());
	struct fh_slab *old = slab_of(fh, 0);
	u32 cursor = 0, i;
	int r;

	(void)state;
	/* 64 pages don't fit beside the others */
	r = move(fh, 0, old);
	assert_true(r == -ENOSPC || r == 0);
	fh_budget(fh, 512);
	assert_int_equal(move(fh, 0, old), 0);
	assert_null(slab_of(fh, 0));
	for (i = 0; i < 64; i++)
		assert_int_not_equal(state_of(fh, i), DCM_NOTDIRECT);
	assert_int_equal(dcm_extent_move(&fh->vm->lane[1], 0, &old->ref,
					 &cursor),
			 -ENOENT);
	fh_settle(fh);
	fh_fsck(fh, true);
	for (i = 0; i < 64; i++)
		get(fh, i);
	end(fh);
}

static void test_lost(void **state)
{
	struct fake_home *fh = filled(calm());
	struct fh_slab *s = slab_of(fh, 0);
	u64 calls;
	u32 i;

	(void)state;
	get(fh, 1); /* clean, here: stays, becomes dirty */
	put(fh, 2); /* dirty, here */
	fh_discard(fh, 0, 3, 1); /* zero: can't be lost */
	fh_slab_kill(fh, s);
	assert_int_equal(lose(fh, 0, s), 61);
	assert_int_equal(count(fh, DCM_C_LOST_PAGES), 61);
	calls = fh->nr_lost_calls;
	for (i = 0; i < 64; i++) {
		bool lost = i == 0 || i > 3;

		assert_int_equal(fh_access(fh, 0, i, i & 1, false),
				 lost ? -EIO : 0);
		assert_int_equal(fh_present(fh, i), !lost);
		assert_int_equal(fh_is_lost(fh, i), lost);
	}
	assert_int_equal(fh->nr_lost_calls - calls, 61);
	assert_int_equal(count(fh, DCM_C_FAULT_LOST), 61);
	/* What is here goes elsewhere; lost stays lost; a discard ends it. */
	flood(fh, 1500);
	get(fh, 1);
	get(fh, 2);
	assert_int_equal(fh_access(fh, 0, 4, false, false), -EIO);
	fh_discard(fh, 0, 4, 1);
	get(fh, 4);
	assert_int_equal(fh_access(fh, 0, 5, false, false), -EIO);
	end(fh);
}

/* The donor is silent, then back: nothing is lost, the fault waits. */
static void test_silence(void **state)
{
	struct fake_home *fh = filled(calm());
	struct fh_slab *s = slab_of(fh, 0);
	u32 gen = fh->wakes[9], i;

	(void)state;
	fh->donor[s->donor].unreachable_until = fh->tick + 500000;
	assert_int_equal(fh_fault(fh, 0, 9, 0), DCM_FAULT_PENDING);
	for (i = 0; i < 400; i++) {
		fh_advance(fh, 1000);
		fh_poll(fh, 0);
		assert_int_equal(fh->wakes[9], gen);
		assert_false(fh_present(fh, 9));
	}
	for (i = 0; i < 400; i++) {
		fh_advance(fh, 1000);
		fh_poll(fh, 0);
	}
	assert_true(fh_present(fh, 9));
	get(fh, 9);
	assert_true(count(fh, DCM_C_FETCHES) > 0);
	end(fh);
}

/*
 * R1: a write-back with several runs, one done, the next waiting for room in
 * the queue. The slab is lost and another attached in its place: what the
 * first run wrote is not there.
 */
static void test_lost_between_runs(void **state)
{
	struct fh_config cfg = calm();
	struct fh_slab *old;
	struct fake_home *fh;
	u32 i, n;

	(void)state;
	cfg.nr_lanes = 2;
	cfg.budget = 112;
	cfg.qdepth = 1;
	cfg.touched_bits = false;
	fh = world(cfg);
	tune(fh, "largest_block", 65536);
	tune(fh, "elastic", 0);
	for (i = 0; i < 64; i++)
		put(fh, i);
	push_out(fh, 0, 64);
	old = slab_of(fh, 0);
	/* every second page dirty: many runs */
	for (n = 0; n < 200; n++) {
		for (i = 0; i < 64; i += 2)
			if (fh_access(fh, 0, i, true, false))
				fh_discard(fh, 0, i, 1);
		for (i = 0; i < 30; i++) {
			int f = fh_write(fh, FLOOD_AT + (n * 30 + i) % 1000,
					 false);

			fh_give_slabs(fh, n);
			if (f >= 0)
				fh_fault(fh, 0, FLOOD_AT + (n * 30 + i) % 1000,
					 (u32)f);
		}
		if (n % 5 == 4 && slab_of(fh, 0)) {
			s64 r;

			old = slab_of(fh, 0);
			fh_slab_kill(fh, old);
			do {
				r = dcm_extent_lost(&fh->vm->lane[1], 0,
						    &old->ref);
				if (r >= 0)
					break;
				fh_poll(fh, 0);
				fh_advance(fh, 1);
			} while (r == -EAGAIN);
			fh_lost_scan(fh, 0);
			fh_slab_free(fh, old);
			attach(fh, 0);
		}
		fh_poll(fh, 0);
		fh_fsck(fh, false);
	}
	for (i = 0; i < 64; i++)
		if (fh_access(fh, 0, i, false, false))
			assert_true(fh_is_lost(fh, i));
	end(fh);
}

/* R2: the destination of a move dies: that says nothing about the source. */
static void test_destination_dies(void **state)
{
	struct fake_home *fh = filled(calm());
	struct fh_slab *old = slab_of(fh, 0), *new;
	u32 cursor = 0, n, i;
	int r;

	(void)state;
	fh->cfg.max_delay = 50;
	new = attach(fh, 0);
	for (n = 0; n < 4; n++) {
		r = dcm_extent_move(&fh->vm->lane[1], 0, &old->ref, &cursor);
		assert_int_equal(r, -EAGAIN);
	}
	fh_slab_kill(fh, new);
	for (n = 0; n < 200; n++) {
		r = dcm_extent_move(&fh->vm->lane[1], 0, &old->ref, &cursor);
		assert_int_not_equal(r, -EIO);
		assert_int_not_equal(r, 0);
		fh_advance(fh, 20);
		fh_poll(fh, 1);
	}
	lose(fh, 0, new);
	for (n = 0; n < 200; n++) {
		r = dcm_extent_move(&fh->vm->lane[1], 0, &old->ref, &cursor);
		assert_int_not_equal(r, -EIO);
		fh_advance(fh, 20);
		fh_poll(fh, 1);
	}
	fh_give_slabs(fh, 3);
	cursor = 0;
	assert_int_equal(move(fh, 0, old), 0);
	/* only what had gone to the one that died is lost */
	for (n = 0, i = 0; i < 64; i++)
		n += fh_access(fh, 0, i, false, false) != 0;
	assert_true(n < 64);
	end(fh);
}

/* The source dies under a move: -EIO, and then it is lost. */
static void test_source_dies(void **state)
{
	struct fake_home *fh = filled(calm());
	struct fh_slab *old = slab_of(fh, 0);
	u32 i, lost = 0;
	s64 n;

	(void)state;
	attach(fh, 0);
	fh_slab_kill(fh, old);
	assert_int_equal(move(fh, 0, old), -EIO);
	n = lose(fh, 0, old);
	assert_int_equal(n, 64);
	for (i = 0; i < 64; i++)
		lost += fh_access(fh, 0, i, false, false) == -EIO;
	assert_int_equal(lost, 64);
	end(fh);
}

/* R4: pulled back while write-backs to the slab are under way: none is lost. */
static void test_pull_against_writeback(void **state)
{
	struct fh_config cfg = calm();
	struct fake_home *fh;
	struct fh_slab *old;
	u32 i, n, cursor;
	int r;

	(void)state;
	for (n = 0; n < 20; n++) {
		cfg.seed = n + 1;
		fh = filled(cfg);
		fh->cfg.max_delay = 300;
		old = slab_of(fh, 0);
		fh_budget(fh, 300);
		cursor = 0;
		r = -EAGAIN;
		for (i = 0; i < 3000 && r == -EAGAIN; i++) {
			u32 p = i % 3 ? i % 64 : FLOOD_AT + i % 500;
			int f = fh_write(fh, p, false);

			if (f >= 0)
				fh_fault(fh, 0, p, (u32)f);
			fh_give_slabs(fh, i);
			r = dcm_extent_move(&fh->vm->lane[1], 0, &old->ref,
					    &cursor);
			if (r == -ENOSPC) {
				r = -EAGAIN;
				cursor = 0;
				fh_balance(fh, 0);
			}
			fh_advance(fh, 7);
			fh_poll(fh, 0);
		}
		if (!r)
			fh_slab_free(fh, old);
		fh_settle(fh);
		assert_int_equal(count(fh, DCM_C_LOST_PAGES), 0);
		for (i = 0; i < 64; i++)
			get(fh, i);
		end(fh);
	}
}

/* What is settled is on its way: yet the page that is lost is named, no other. */
static void test_settling_names_what_is_lost(void **state)
{
	struct fh_config cfg = calm();
	struct fake_home *fh;
	u64 at = 0;
	u32 i;

	(void)state;
	cfg.max_delay = 50;
	fh = filled(cfg);
	for (i = 64; i < 128; i++)
		put(fh, i);
	push_out(fh, 64, 64);
	assert_true(lose(fh, 1, slab_of(fh, 1)) > 0);
	for (i = 0; i < 64; i++)
		put(fh, i);
	assert_int_equal(fh_to_donors(fh, 0, &at, 128, true, 1000000000ull),
			 -EIO);
	assert_int_equal(at, 64);
	end(fh);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_attach),
		cmocka_unit_test(test_move),
		cmocka_unit_test(test_pull),
		cmocka_unit_test(test_lost),
		cmocka_unit_test(test_silence),
		cmocka_unit_test(test_lost_between_runs),
		cmocka_unit_test(test_destination_dies),
		cmocka_unit_test(test_source_dies),
		cmocka_unit_test(test_pull_against_writeback),
		cmocka_unit_test(test_settling_names_what_is_lost),
	};

	return cmocka_run_group_tests_name("core_extent", tests, NULL, NULL);
}

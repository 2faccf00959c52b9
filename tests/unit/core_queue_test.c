// SPDX-License-Identifier: GPL-2.0-or-later
/* links: CORE FAKE */
/*
 * core_queue_test.c - LRU-3: what stays, what goes, what is promoted
 */
#include "core_table.h"

/* A page that only ever was scanned is gone; re-referenced ones stay. */
static void test_scan_resistance(void **state)
{
	struct fh_config cfg = calm();
	struct fake_home *fh;
	u32 i, n, stayed = 0;

	(void)state;
	cfg.budget = 256;
	fh = world(cfg);
	/* Ten hot pages, touched now and then in a long scan. */
	for (n = 0; n < 40; n++) {
		for (i = 0; i < 10; i++)
			get(fh, i);
		for (i = 0; i < 20; i++)
			get(fh, 100 + n * 20 + i);
	}
	for (i = 0; i < 10; i++)
		stayed += state_of(fh, i) == DCM_PROACTIVE;
	assert_int_equal(stayed, 10);
	/* A scan of three times the budget does not push them out. */
	for (i = 1000; i < 1000 + 3 * 256; i++)
		get(fh, i);
	for (stayed = 0, i = 0; i < 10; i++)
		stayed += state_of(fh, i) != DCM_NOTDIRECT;
	assert_int_equal(stayed, 10);
	/* Of what was scanned once nothing is Proactive. */
	for (i = 100; i < 2048; i++)
		assert_int_not_equal(state_of(fh, i), DCM_PROACTIVE);
	end(fh);
}

/* First in, first out, when nothing is touched twice. */
static void test_fifo_order(void **state)
{
	struct fake_home *fh = world(calm());
	u32 i, in = 0, last_out = 0;

	(void)state;
	for (i = 0; i < 300; i++)
		get(fh, i);
	for (i = 0; i < 300; i++) {
		if (state_of(fh, i) == DCM_NOTDIRECT) {
			last_out = i;
			/* gone although something older is here? Only as far
			 * as the buffers in front of the queues reorder. */
			assert_true(in <= 2 * DCM_BUFFER_MAX);
		} else {
			in++;
		}
	}
	assert_true(last_out < 300 - 32);
	assert_true(in <= 96);
	end(fh);
}

static u32 find(struct fake_home *fh, enum dcm_state s, u32 below)
{
	u32 i;

	for (i = 0; i < below; i++)
		if (state_of(fh, i) == s)
			return i;
	return DCM_NIL;
}

static void test_promote_inactive(void **state)
{
	struct fake_home *fh = world(calm());
	u64 minor;
	u32 i, p;

	(void)state;
	for (i = 0; i < 200; i++)
		get(fh, i);
	p = find(fh, DCM_INACTIVE, 200);
	assert_int_not_equal(p, DCM_NIL);
	minor = count(fh, DCM_C_FAULT_MINOR);
	assert_false(fh_present(fh, p));
	get(fh, p);
	assert_int_equal(count(fh, DCM_C_FAULT_MINOR), minor + 1);
	assert_int_equal(state_of(fh, p), DCM_PROACTIVE);
	assert_true(fh_present(fh, p));
	end(fh);
}

static void test_promote_writeback(void **state)
{
	struct fh_config cfg = calm();
	struct fake_home *fh;
	s64 frames;
	u32 i, p;

	(void)state;
	cfg.max_delay = 1000000;
	fh = world(cfg);
	tune(fh, "inactive_share", 1000);
	for (i = 0; i < 600 && find(fh, DCM_WRITEBACK, 600) == DCM_NIL; i++) {
		u32 flags = (u32)fh_write(fh, i, false);

		fh_give_slabs(fh, 0);
		if ((int)flags >= 0)
			fh_fault(fh, 0, i, flags);
		fh_write(fh, i, false);
	}
	p = find(fh, DCM_WRITEBACK, 600);
	assert_int_not_equal(p, DCM_NIL);
	frames = fh->frames;
	assert_int_equal(fh_fault(fh, 0, p, DCM_FF_WRITE), DCM_FAULT_DONE);
	assert_int_equal(state_of(fh, p), DCM_PROACTIVE);
	assert_int_equal(count(fh, DCM_C_FAULT_CANCEL), 1);
	assert_int_equal(count(fh, DCM_C_CANCELLED), 1);
	/* the write-back keeps its frame until it is back */
	assert_int_equal(fh->frames, frames);
	assert_true(pd_word(pd_of(fh->vm, p)) & PD_INFLIGHT);
	assert_int_equal(fh_write(fh, p, false), FH_OK);
	fh_advance(fh, 2000000);
	fh_settle(fh);
	assert_false(pd_word(pd_of(fh->vm, p)) & PD_INFLIGHT);
	assert_true(fh->frames < frames);
	get(fh, p);
	end(fh);
}

/* What comes back soon after it went is Proactive; what stayed away is not. */
static void test_promote_ghost(void **state)
{
	struct fake_home *fh = world(calm());
	u32 i, p, q, early, late;

	(void)state;
	tune(fh, "ghost_share", 5000); /* of 96 */
	for (i = 0; i < 300; i++)
		put(fh, i);
	push_out(fh, 0, 300);
	for (i = 1000; i < 1096; i++)
		put(fh, i);
	p = find(fh, DCM_ACTIVE, 2048);
	assert_int_not_equal(p, DCM_NIL);
	/* 300 pages have gone since the first did */
	get(fh, 0);
	late = state_of(fh, 0);
	for (i = 2000; state_of(fh, p) != DCM_NOTDIRECT; i++)
		put(fh, i);
	fh_settle(fh);
	for (q = 1095; q > p && state_of(fh, q) != DCM_NOTDIRECT; q--)
		;
	assert_true(q > p);
	get(fh, p);
	early = state_of(fh, p);
	assert_int_equal(late, DCM_ACTIVE);
	assert_int_equal(early, DCM_PROACTIVE);
	tune(fh, "ghost_share", 0);
	get(fh, q);
	assert_int_equal(state_of(fh, q), DCM_ACTIVE);
	end(fh);
}

/* With keep_clean off only what is dirty becomes Inactive. */
static void test_clean_is_dropped(void **state)
{
	struct fake_home *fh = world(calm());
	u64 drops, minor;
	u32 i;

	(void)state;
	for (i = 0; i < 300; i++)
		put(fh, i);
	push_out(fh, 0, 300);
	for (i = 1000; i < 1200; i++)
		get(fh, i % 300);
	fh_settle(fh);
	tune(fh, "keep_clean", 0);
	drops = count(fh, DCM_C_CLEAN_DROPS);
	minor = count(fh, DCM_C_FAULT_MINOR);
	for (i = 0; i < 1200; i++) {
		get(fh, i % 300);
		fh_check_budget(fh);
	}
	fh_settle(fh);
	for (i = 0; i < 300; i++) {
		u32 w = pd_word(pd_of(fh->vm, i));

		if (state_of(fh, i) == DCM_INACTIVE)
			assert_true(w & PD_DIRTY);
	}
	assert_true(count(fh, DCM_C_CLEAN_DROPS) > drops + 300);
	assert_true(count(fh, DCM_C_FAULT_MINOR) < minor + 200);
	end(fh);
}

static void test_epsilon(void **state)
{
	struct fake_home *fh;
	u64 promoted, e;
	u32 i;

	(void)state;
	for (e = 0; e <= 10000; e += 2500) {
		struct fh_config cfg = calm();

		cfg.budget = 1024;
		fh = world(cfg);
		tune(fh, "epsilon", e);
		for (i = 0; i < 800; i++)
			get(fh, i);
		promoted = count(fh, DCM_C_PROMOTED);
		if (e == 0)
			assert_int_equal(promoted, 0);
		else if (e == 10000)
			assert_int_equal(promoted, 800);
		else
			assert_in_range(promoted, 800 * e / 10000 - 80,
					800 * e / 10000 + 80);
		end(fh);
	}
}

/* Proactive above its share gives its oldest back to Active. */
static void test_shares(void **state)
{
	struct fh_config cfg = calm();
	struct fake_home *fh;
	u32 i, proactive = 0, inactive = 0;

	(void)state;
	cfg.budget = 400;
	fh = world(cfg);
	tune(fh, "epsilon", 10000);
	tune(fh, "proactive_share", 2500);
	tune(fh, "inactive_share", 2000);
	for (i = 0; i < 1500; i++)
		get(fh, i);
	fh_settle(fh);
	for (i = 0; i < 1500; i++) {
		proactive += state_of(fh, i) == DCM_PROACTIVE;
		inactive += state_of(fh, i) == DCM_INACTIVE;
	}
	assert_in_range(proactive, 1, 100 + DCM_BUFFER_MAX);
	assert_in_range(inactive, 80 - 33, 80 + 64);
	end(fh);
}

/* A block in use by I/O stays, is counted, and holds nobody up. */
static void test_pinned(void **state)
{
	struct fh_config cfg = calm();
	struct fake_home *fh;
	u32 i;

	(void)state;
	cfg.p_pinned = 5000;
	fh = world(cfg);
	for (i = 0; i < 600; i++)
		put(fh, i);
	assert_true(count(fh, DCM_C_PINNED) > 0);
	assert_int_equal(count(fh, DCM_C_PINNED), fh->nr_pinned);
	fh_settle(fh);
	fh_check_budget(fh);
	end(fh);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_scan_resistance),
		cmocka_unit_test(test_fifo_order),
		cmocka_unit_test(test_promote_inactive),
		cmocka_unit_test(test_promote_writeback),
		cmocka_unit_test(test_promote_ghost),
		cmocka_unit_test(test_clean_is_dropped),
		cmocka_unit_test(test_epsilon),
		cmocka_unit_test(test_shares),
		cmocka_unit_test(test_pinned),
	};

	return cmocka_run_group_tests_name("core_queue", tests, NULL, NULL);
}

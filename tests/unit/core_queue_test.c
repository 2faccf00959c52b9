// SPDX-License-Identifier: GPL-2.0-or-later
/* links: CORE FAKE */
/*
 * core_queue_test.c - LRU-3: which blocks stay, are evicted and are promoted
 */
#include "core_table.h"

/* A page that only ever was scanned is gone; re-referenced ones stay. */
static void test_scan_resistance(void **state)
{
	struct fb_config cfg = calm();
	struct fake_backend *fb;
	u32 i, n, stayed = 0;

	(void)state;
	cfg.budget = 256;
	fb = world(cfg);
	/* Ten hot pages, touched now and then in a long scan. */
	for (n = 0; n < 40; n++) {
		for (i = 0; i < 10; i++)
			get(fb, i);
		for (i = 0; i < 20; i++)
			get(fb, 100 + n * 20 + i);
	}
	for (i = 0; i < 10; i++)
		stayed += state_of(fb, i) == DCM_PROACTIVE;
	assert_int_equal(stayed, 10);
	/* A scan of three times the budget does not push them out. */
	for (i = 1000; i < 1000 + 3 * 256; i++)
		get(fb, i);
	for (stayed = 0, i = 0; i < 10; i++)
		stayed += state_of(fb, i) != DCM_NOTDIRECT;
	assert_int_equal(stayed, 10);
	/* No page that was scanned only once is Proactive. */
	for (i = 100; i < 2048; i++)
		assert_int_not_equal(state_of(fb, i), DCM_PROACTIVE);
	end(fb);
}

/* First in, first out, when nothing is touched twice. */
static void test_fifo_order(void **state)
{
	struct fake_backend *fb = world(calm());
	u32 i, in = 0, last_out = 0;

	(void)state;
	for (i = 0; i < 300; i++)
		get(fb, i);
	for (i = 0; i < 300; i++) {
		if (state_of(fb, i) == DCM_NOTDIRECT) {
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
	end(fb);
}

static u32 find(struct fake_backend *fb, enum dcm_state s, u32 below)
{
	u32 i;

	for (i = 0; i < below; i++)
		if (state_of(fb, i) == s)
			return i;
	return DCM_NIL;
}

static void test_promote_inactive(void **state)
{
	struct fake_backend *fb = world(calm());
	u64 minor;
	u32 i, p;

	(void)state;
	for (i = 0; i < 200; i++)
		get(fb, i);
	p = find(fb, DCM_INACTIVE, 200);
	assert_int_not_equal(p, DCM_NIL);
	minor = count(fb, DCM_C_FAULT_MINOR);
	assert_false(fb_present(fb, p));
	get(fb, p);
	assert_int_equal(count(fb, DCM_C_FAULT_MINOR), minor + 1);
	assert_int_equal(state_of(fb, p), DCM_PROACTIVE);
	assert_true(fb_present(fb, p));
	end(fb);
}

static void test_promote_writeback(void **state)
{
	struct fb_config cfg = calm();
	struct fake_backend *fb;
	s64 frames;
	u32 i, p;

	(void)state;
	cfg.max_delay = 1000000;
	fb = world(cfg);
	tune(fb, "inactive_share", 1000);
	for (i = 0; i < 600 && find(fb, DCM_WRITEBACK, 600) == DCM_NIL; i++) {
		u32 flags = (u32)fb_write(fb, i, false);

		fb_give_slabs(fb, 0);
		if ((int)flags >= 0)
			fb_fault(fb, 0, i, flags);
		fb_write(fb, i, false);
	}
	p = find(fb, DCM_WRITEBACK, 600);
	assert_int_not_equal(p, DCM_NIL);
	frames = fb->frames;
	assert_int_equal(fb_fault(fb, 0, p, DCM_FF_WRITE), DCM_FAULT_DONE);
	assert_int_equal(state_of(fb, p), DCM_PROACTIVE);
	assert_int_equal(count(fb, DCM_C_FAULT_CANCEL), 1);
	assert_int_equal(count(fb, DCM_C_CANCELLED), 1);
	/* the write-back keeps its frame until it is done */
	assert_int_equal(fb->frames, frames);
	assert_true(pd_word(pd_of(fb->vm, p)) & PD_INFLIGHT);
	assert_int_equal(fb_write(fb, p, false), FH_OK);
	fb_advance(fb, 2000000);
	fb_sync(fb);
	assert_false(pd_word(pd_of(fb->vm, p)) & PD_INFLIGHT);
	assert_true(fb->frames < frames);
	get(fb, p);
	end(fb);
}

/* How many pages were evicted since a fetched page was. */
static void test_away(void **state)
{
	struct fb_config cfg = calm();
	struct fake_backend *fb;
	struct dcm_hist before, after;
	struct dcm_stats st;
	u64 gone;
	u32 i, where = 0, n = 0;

	(void)state;
	fb = world(cfg);
	put(fb, 7);
	push_out(fb, 7, 1);
	dcm_vm_stats(fb->vm, &st);
	gone = (u32)st.evicted - pd_of(fb->vm, 7)->next;
	flood(fb, 300);
	dcm_vm_stats(fb->vm, &st);
	assert_true((u32)st.evicted - pd_of(fb->vm, 7)->next > gone + 200);
	gone = (u32)st.evicted - pd_of(fb->vm, 7)->next;
	dcm_vm_away(fb->vm, &before);
	get(fb, 7);
	dcm_vm_away(fb->vm, &after);
	for (i = 0; i < DCM_HIST_BUCKETS; i++) {
		if (after.bucket[i] == before.bucket[i])
			continue;
		n += (u32)(after.bucket[i] - before.bucket[i]);
		where = i;
	}
	assert_int_equal(n, 1);
	/* a frame may have been made free for the fetch */
	assert_true(dcm_hist_floor(where) <= gone + 1);
	assert_true(dcm_hist_floor(where + 1) > gone);
	end(fb);
}

/* A page fetched soon after its eviction is Proactive; a late one is not. */
static void test_promote_ghost(void **state)
{
	struct fake_backend *fb = world(calm());
	u32 i, p, q, early, late;

	(void)state;
	tune(fb, "ghost_share", 5000); /* of 96 */
	for (i = 0; i < 300; i++)
		put(fb, i);
	push_out(fb, 0, 300);
	for (i = 1000; i < 1096; i++)
		put(fb, i);
	p = find(fb, DCM_ACTIVE, 2048);
	assert_int_not_equal(p, DCM_NIL);
	/* 300 pages have gone since the first did */
	get(fb, 0);
	late = state_of(fb, 0);
	for (i = 2000; state_of(fb, p) != DCM_NOTDIRECT; i++)
		put(fb, i);
	fb_sync(fb);
	for (q = 1095; q > p && state_of(fb, q) != DCM_NOTDIRECT; q--)
		;
	assert_true(q > p);
	get(fb, p);
	early = state_of(fb, p);
	assert_int_equal(late, DCM_ACTIVE);
	assert_int_equal(early, DCM_PROACTIVE);
	tune(fb, "ghost_share", 0);
	get(fb, q);
	assert_int_equal(state_of(fb, q), DCM_ACTIVE);
	end(fb);
}

/* Use new pages until this one is in that state. */
static u32 until(struct fake_backend *fb, u32 gfn, enum dcm_state s)
{
	static u32 at = 1000;
	u32 n;

	for (n = 0; n < 400 && state_of(fb, gfn) != s; n++, at++) {
		dcm_buffers_flush(fb->vm);
		get(fb, 1000 + at % 2000);
	}
	assert_int_equal(state_of(fb, gfn), s);
	return n;
}

/* At the end of Inactive a page that was re-referenced is let off, once. */
static void test_let_off(void **state)
{
	struct fake_backend *fb = world(calm());
	u32 i, hot, behind, turn;

	(void)state;
	tune(fb, "proactive_share", 0);
	tune(fb, "ghost_share", 0);
	for (i = 0; i < 200; i++)
		get(fb, i);
	hot = find(fb, DCM_INACTIVE, 200);
	get(fb, hot);
	until(fb, hot, DCM_INACTIVE);
	for (i = 500; pd_of(fb->vm, hot)->next == DCM_NIL; i++)
		get(fb, i);
	behind = pd_of(fb->vm, hot)->next;
	turn = until(fb, behind, DCM_NOTDIRECT);
	assert_int_equal(state_of(fb, hot), DCM_INACTIVE);
	/* once: then it goes when all that were here have gone */
	assert_in_range(until(fb, hot, DCM_NOTDIRECT), 1, 2 * turn + 32);
	end(fb);
}

/* A block that is popped off Inactive, and its size; it is put back. */
static u32 popped(struct fake_backend *fb, u32 *pages)
{
	struct dcm_lane *lane = &fb->vm->lane[0];
	u32 gfn = dcm_fifo_pop_locked(fb->vm, &lane->inactive);

	assert_int_not_equal(gfn, DCM_NIL);
	*pages = pages_of(fb, gfn);
	dcm_queue_in(lane, gfn, (unsigned int)ilog2((u64)*pages));
	pd_unlock(pd_of(fb->vm, gfn));
	return gfn;
}

/* Which victims are let off because they were touched again, and which are not. */
static void test_let_off_whom(void **state)
{
	struct fake_backend *fb = world(calm());
	u32 i, old, pages, left = 0;

	(void)state;
	tune(fb, "inactive_share", 1500);
	for (i = 0; i < 200; i++)
		get(fb, i);
	old = fb->vm->lane[0].inactive.head;
	pd_set(pd_of(fb->vm, old), PD_AGAIN);
	assert_int_not_equal(popped(fb, &pages), old);
	assert_false(pd_word(pd_of(fb->vm, old)) & PD_AGAIN);
	/* however many were re-referenced, one goes soon */
	for (i = 0; i < 200; i++)
		if (state_of(fb, i) == DCM_INACTIVE)
			pd_set(pd_of(fb->vm, i), PD_AGAIN);
	popped(fb, &pages);
	for (i = 0; i < 200; i++)
		left += state_of(fb, i) == DCM_INACTIVE &&
			pd_word(pd_of(fb->vm, i)) & PD_AGAIN;
	assert_int_equal(left, fb->vm->lane[0].inactive.nr_blocks - 8);
	/* not what its owner calls cold */
	old = fb->vm->lane[0].inactive.tail;
	pd_set(pd_of(fb->vm, old), PD_AGAIN);
	fb_hint(fb, 0, old, 1, DCM_HINT_COLD);
	assert_int_equal(popped(fb, &pages), old);
	end(fb);
}

/* A block is not let off: one page of it was touched, the others perhaps not. */
static void test_let_off_no_block(void **state)
{
	struct fake_backend *fb = world(calm());
	u32 i, old, pages;

	(void)state;
	tune(fb, "largest_block", 16384);
	tune(fb, "elastic", 0);
	for (i = 0; i < 400; i++)
		get(fb, i);
	old = fb->vm->lane[0].inactive.head;
	for (i = 0; i < 4; i++)
		pd_set(pd_of(fb->vm, old + i), PD_AGAIN);
	assert_int_equal(popped(fb, &pages), old);
	assert_int_equal(pages, 4);
	end(fb);
}

/* A page counts as re-referenced from that moment until it is gone. */
static void test_again(void **state)
{
	struct fake_backend *fb = world(calm());
	u32 i, p;

	(void)state;
	for (i = 0; i < 200; i++)
		put(fb, i);
	p = find(fb, DCM_INACTIVE, 200);
	assert_false(pd_word(pd_of(fb->vm, p)) & PD_AGAIN);
	get(fb, p);
	assert_true(pd_word(pd_of(fb->vm, p)) & PD_AGAIN);
	/* written the last time is not re-referenced */
	push_out(fb, 0, 200);
	tune(fb, "ghost_share", 0);
	get(fb, p);
	assert_false(pd_word(pd_of(fb->vm, p)) & PD_AGAIN);
	push_out(fb, 0, 200);
	tune(fb, "ghost_share", 40000);
	get(fb, p);
	assert_true(pd_word(pd_of(fb->vm, p)) & PD_AGAIN);
	end(fb);
}

/* With keep_clean off only dirty blocks become Inactive. */
static void test_clean_is_dropped(void **state)
{
	struct fake_backend *fb = world(calm());
	u64 drops, minor;
	u32 i;

	(void)state;
	for (i = 0; i < 300; i++)
		put(fb, i);
	push_out(fb, 0, 300);
	for (i = 1000; i < 1200; i++)
		get(fb, i % 300);
	fb_sync(fb);
	tune(fb, "keep_clean", 0);
	drops = count(fb, DCM_C_CLEAN_DROPS);
	minor = count(fb, DCM_C_FAULT_MINOR);
	for (i = 0; i < 1200; i++) {
		get(fb, i % 300);
		fb_check_budget(fb);
	}
	fb_sync(fb);
	for (i = 0; i < 300; i++) {
		u32 w = pd_word(pd_of(fb->vm, i));

		if (state_of(fb, i) == DCM_INACTIVE)
			assert_true(w & PD_DIRTY);
	}
	assert_true(count(fb, DCM_C_CLEAN_DROPS) > drops + 300);
	assert_true(count(fb, DCM_C_FAULT_MINOR) < minor + 200);
	end(fb);
}

static void test_epsilon(void **state)
{
	struct fake_backend *fb;
	u64 promoted, e;
	u32 i;

	(void)state;
	for (e = 0; e <= 10000; e += 2500) {
		struct fb_config cfg = calm();

		cfg.budget = 1024;
		fb = world(cfg);
		tune(fb, "epsilon", e);
		for (i = 0; i < 800; i++)
			get(fb, i);
		promoted = count(fb, DCM_C_PROMOTED);
		if (e == 0)
			assert_int_equal(promoted, 0);
		else if (e == 10000)
			assert_int_equal(promoted, 800);
		else
			assert_in_range(promoted, 800 * e / 10000 - 80,
					800 * e / 10000 + 80);
		end(fb);
	}
}

/* Proactive above its share gives its oldest back to Active. */
static void test_shares(void **state)
{
	struct fb_config cfg = calm();
	struct fake_backend *fb;
	u32 i, proactive = 0, inactive = 0;

	(void)state;
	cfg.budget = 400;
	fb = world(cfg);
	tune(fb, "epsilon", 10000);
	tune(fb, "proactive_share", 2500);
	tune(fb, "inactive_share", 2000);
	for (i = 0; i < 1500; i++)
		get(fb, i);
	fb_sync(fb);
	for (i = 0; i < 1500; i++) {
		proactive += state_of(fb, i) == DCM_PROACTIVE;
		inactive += state_of(fb, i) == DCM_INACTIVE;
	}
	assert_in_range(proactive, 1, 100 + DCM_BUFFER_MAX);
	assert_in_range(inactive, 80 - 33, 80 + 64);
	end(fb);
}

/* A block in use by I/O stays, is counted, and delays no eviction. */
static void test_pinned(void **state)
{
	struct fb_config cfg = calm();
	struct fake_backend *fb;
	u32 i;

	(void)state;
	cfg.p_pinned = 5000;
	fb = world(cfg);
	for (i = 0; i < 600; i++)
		put(fb, i);
	assert_true(count(fb, DCM_C_PINNED) > 0);
	assert_int_equal(count(fb, DCM_C_PINNED), fb->nr_pinned);
	fb_sync(fb);
	fb_check_budget(fb);
	end(fb);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_scan_resistance),
		cmocka_unit_test(test_fifo_order),
		cmocka_unit_test(test_promote_inactive),
		cmocka_unit_test(test_promote_writeback),
		cmocka_unit_test(test_promote_ghost),
		cmocka_unit_test(test_away),
		cmocka_unit_test(test_let_off),
		cmocka_unit_test(test_let_off_whom),
		cmocka_unit_test(test_let_off_no_block),
		cmocka_unit_test(test_again),
		cmocka_unit_test(test_clean_is_dropped),
		cmocka_unit_test(test_epsilon),
		cmocka_unit_test(test_shares),
		cmocka_unit_test(test_pinned),
	};

	return cmocka_run_group_tests_name("core_queue", tests, NULL, NULL);
}

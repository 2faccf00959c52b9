// SPDX-License-Identifier: GPL-2.0-or-later
/* links: CORE FAKE */
/*
 * core_pd_test.c - tables: transitions, tunables, histograms, descriptors
 */
#include "core_table.h"

#include <string.h>

/* dcm-tc18, 3.2, and what core/pd.c adds to it: from the row to the column. */
static const bool legal[DCM_NR_STATES][DCM_NR_STATES] = {
	/*                 NotDirect Active Proactive Inactive Writeback */
	[DCM_NOTDIRECT] = { false, true, false, false, false },
	[DCM_ACTIVE] = { true, false, true, true, false },
	[DCM_PROACTIVE] = { true, true, false, false, false },
	[DCM_INACTIVE] = { true, false, true, false, true },
	[DCM_WRITEBACK] = { true, false, true, true, false },
};

static void test_transitions(void **state)
{
	struct fake_backend *fb = world(calm());
	struct dcm_lane *lane = &fb->vm->lane[0];
	struct dcm_pd *pd = pd_of(fb->vm, 5);
	u64 illegal = 0;
	u32 from, to;

	(void)state;
	for (from = 0; from < DCM_NR_STATES; from++) {
		for (to = 0; to < DCM_NR_STATES; to++) {
			pd_assign(pd, PD_STATE_MASK, from << PD_STATE_SHIFT);
			assert_int_equal(dcm_state_legal(from, to),
					 legal[from][to]);
			assert_int_equal(dcm_state_set(lane, 5, to),
					 legal[from][to]);
			assert_int_equal(pd_state(pd_word(pd)),
					 legal[from][to] ? to : from);
			illegal += !legal[from][to];
			assert_int_equal(count(fb, DCM_C_ILLEGAL), illegal);
			if (!legal[from][to])
				assert_int_equal(atomic64_read(
							 &fb->vm->illegal),
						 5 << 8 | from << 4 | to);
		}
	}
	assert_false(dcm_state_legal(DCM_NR_STATES, DCM_ACTIVE));
	assert_false(dcm_state_legal(DCM_ACTIVE, DCM_NR_STATES));
	fb_destroy(fb);
}

static void test_block_lock(void **state)
{
	struct fake_backend *fb = world(calm());
	struct dcm_vm *vm = fb->vm;
	unsigned int order, o;
	u32 i, head;

	(void)state;
	for (o = 0; o <= DCM_ORDER_MAX; o++) {
		for (i = 32; i < 32u + (1u << o); i++)
			pd_set_order(pd_of(vm, i), o);
		for (i = 32; i < 32u + (1u << o); i++) {
			head = dcm_block_lock(vm, i, &order);
			assert_int_equal(head, 32);
			assert_int_equal(order, o);
			assert_true(pd_word(pd_of(vm, 32)) & PD_LOCK);
			assert_false(pd_trylock(pd_of(vm, 32)));
			pd_unlock(pd_of(vm, 32));
		}
	}
	fb_destroy(fb);
}

static void test_text(void **state)
{
	struct fake_backend *fb = world(calm());
	char buf[200];
	int n;

	(void)state;
	put(fb, 7);
	n = dcm_pd_text(fb->vm, 7, buf, sizeof(buf));
	assert_int_equal(n, strlen(buf));
	assert_non_null(strstr(buf, "gfn 7 head 7 size 4K Active"));
	assert_non_null(strstr(buf, " dirty"));
	assert_int_equal(dcm_pd_text(fb->vm, 7, buf, 0), 0);
	/* one bit, two names */
	pd_set(pd_of(fb->vm, 7), PD_AGAIN);
	dcm_pd_text(fb->vm, 7, buf, sizeof(buf));
	assert_non_null(strstr(buf, " again"));
	assert_null(strstr(buf, " wrote"));
	pd_set(pd_of(fb->vm, 8), PD_WROTE);
	dcm_pd_text(fb->vm, 8, buf, sizeof(buf));
	assert_non_null(strstr(buf, " wrote"));
	assert_null(strstr(buf, " again"));
	memset(buf, 'x', sizeof(buf));
	n = dcm_pd_text(fb->vm, 7, buf, 8);
	assert_in_range(n, 1, 7);
	assert_int_equal(buf[n], 0);
	assert_int_equal(buf[8], 'x');
	dcm_pd_text(fb->vm, fb->cfg.nr_pages, buf, sizeof(buf));
	assert_string_equal(buf, "no such page");
	end(fb);
}

static void test_tunables(void **state)
{
	struct fake_backend *fb =
		fb_create(&(struct fb_config){ .nr_pages = 256,
					       .extent_pages = 64,
					       .nr_lanes = 2,
					       .nr_slabs = 8,
					       .budget = 128,
					       .seed = 1 });
	struct dcm_vm *vm = fb->vm;
	unsigned int i;

	(void)state;
	for (i = 0; i < DCM_T_NR; i++) {
		const struct dcm_tunable *t = &dcm_tunables[i];

		assert_true(t->lo <= t->def && t->def <= t->hi);
		assert_true(strlen(t->name) && strlen(t->unit) &&
			    strlen(t->why) > 10);
		assert_int_equal(dcm_tunable_get(vm, i), t->def);
		assert_int_equal(dcm_tunable_set(vm, t->name, t->lo), 0);
		assert_int_equal(dcm_tunable_get(vm, i), t->lo);
		assert_int_equal(dcm_tunable_set(vm, t->name, t->hi), 0);
		assert_int_equal(dcm_tunable_get(vm, i), t->hi);
		assert_int_equal(dcm_tunable_set(vm, t->name, t->hi + 1),
				 -ERANGE);
		if (t->lo)
			assert_int_equal(dcm_tunable_set(vm, t->name,
							 t->lo - 1),
					 -ERANGE);
		assert_int_equal(dcm_tunable_set(vm, t->name, U64_MAX),
				 -ERANGE);
		assert_int_equal(dcm_tunable_get(vm, i), t->hi);
	}
	assert_int_equal(dcm_tunable_set(vm, "largest_block", 12288), -ERANGE);
	assert_int_equal(dcm_tunable_set(vm, "largest_block", 8192), 0);
	assert_int_equal(dcm_tunable_set(vm, "epsilo", 1), -ENOENT);
	assert_int_equal(dcm_tunable_set(vm, "epsilonn", 1), -ENOENT);
	assert_int_equal(dcm_tunable_set(vm, "", 1), -ENOENT);

	assert_int_equal(dcm_set_budget(vm, dcm_min_budget(vm) - 1), -EINVAL);
	assert_int_equal(dcm_set_budget(vm, 0), -EINVAL);
	assert_int_equal(dcm_set_budget(vm, U64_MAX), -EINVAL);
	assert_int_equal(dcm_set_budget(vm, dcm_min_budget(vm)), 0);
	fb_destroy(fb);
}

static void test_histogram(void **state)
{
	static struct dcm_hist h;
	u64 v, q;
	unsigned int i;

	(void)state;
	memset(&h, 0, sizeof(h));
	assert_int_equal(dcm_hist_quantile(&h, 5000), 0);
	assert_int_equal(dcm_hist_count(&h), 0);
	/* Each value lands in a bucket whose floor is at most 12.5 % below. */
	for (v = 0; v < 1ull << 40; v = v * 9 / 8 + 1) {
		memset(&h, 0, sizeof(h));
		dcm_hist_add(&h, v);
		q = dcm_hist_quantile(&h, 5000);
		assert_true(q <= v);
		assert_true(v - q <= v / 8);
		assert_int_equal(dcm_hist_quantile(&h, 0), q);
	}
	/* Beyond the last bucket nothing is written. */
	memset(&h, 0, sizeof(h));
	dcm_hist_add(&h, U64_MAX);
	assert_int_equal(dcm_hist_count(&h), 1);
	assert_int_equal(h.bucket[DCM_HIST_BUCKETS - 1], 1);

	memset(&h, 0, sizeof(h));
	for (i = 1; i <= 10000; i++)
		dcm_hist_add(&h, i * 1000ull);
	assert_int_equal(dcm_hist_count(&h), 10000);
	for (i = 1000; i < 10000; i += 500) {
		q = dcm_hist_quantile(&h, i);
		assert_true(q <= i * 1000ull + 1000);
		assert_true(q >= i * 1000ull * 8 / 9 - 1000);
	}
	/* The largest, however few are so large. */
	q = dcm_hist_quantile(&h, 10000);
	assert_in_range(q, 10000 * 1000ull * 8 / 9, 10000 * 1000ull);
	dcm_hist_add(&h, 1ull << 36);
	assert_int_equal(dcm_hist_quantile(&h, 10000), 1ull << 36);
	/* Quantiles don't go down. */
	for (q = 0, i = 0; i <= 10000; i += 7) {
		v = dcm_hist_quantile(&h, i);
		assert_true(v >= q);
		q = v;
	}
}

static void test_create(void **state)
{
	struct fake_backend *fb = world(calm());
	struct dcm_vm_config good = { .nr_pages = 100,
				      .extent_pages = 16,
				      .nr_lanes = 1,
				      .budget_pages = 80,
				      .ops = fb->vm->ops },
			     c;
	struct dcm_vm *vm;
	int err = 0;

	(void)state;
#define BAD(field, value)                             \
	do {                                          \
		c = good;                             \
		c.field = (value);                    \
		assert_null(dcm_vm_create(&c, &err)); \
		assert_int_equal(err, -EINVAL);       \
	} while (0)
	BAD(nr_pages, 0);
	BAD(nr_pages, U32_MAX);
	BAD(nr_pages, 1ull << 40);
	BAD(extent_pages, 0);
	BAD(extent_pages, 8);
	BAD(extent_pages, 48);
	BAD(nr_lanes, 0);
	BAD(nr_lanes, DCM_LANES_MAX + 1);
	BAD(budget_pages, 79);
	BAD(ops, NULL);
#undef BAD
	vm = dcm_vm_create(&good, &err);
	assert_non_null(vm);
	assert_int_equal(err, 0);
	dcm_vm_destroy(vm);
	dcm_vm_destroy(NULL);
	fb_destroy(fb);
	assert_int_equal(fb_alloc_live, 0);
}

/* Every allocation fails once: no leak, -ENOMEM, and none after creation. */
static void test_allocation(void **state)
{
	struct fb_config cfg = calm();
	unsigned int n, calls;
	struct fake_backend *fb;
	u32 i;

	(void)state;
	fb_alloc_calls = 0;
	cfg.watch = true;
	fb = world(cfg);
	calls = fb_alloc_calls;
	assert_true(calls >= 3);
	for (i = 0; i < 400; i++)
		put(fb, i);
	fb_discard(fb, 0, 10, 300);
	flood(fb, 300);
	assert_int_equal(fb_alloc_calls, calls);
	end(fb);
	for (n = 1; n <= calls; n++) {
		fb_alloc_calls = 0;
		fb_alloc_fail_at = n;
		assert_null(fb_create(&cfg));
		assert_int_equal(fb_alloc_live, 0);
	}
	fb_alloc_calls = 0;
	fb_alloc_fail_at = calls + 1;
	fb = fb_create(&cfg);
	assert_non_null(fb);
	fb_alloc_fail_at = 0;
	end(fb);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_transitions),
		cmocka_unit_test(test_block_lock),
		cmocka_unit_test(test_text),
		cmocka_unit_test(test_tunables),
		cmocka_unit_test(test_histogram),
		cmocka_unit_test(test_create),
		cmocka_unit_test(test_allocation),
	};

	return cmocka_run_group_tests_name("core_pd", tests, NULL, NULL);
}

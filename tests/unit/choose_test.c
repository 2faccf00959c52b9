// SPDX-License-Identifier: GPL-2.0-or-later
/* place_test.c - placement: exclusion, spreading, balance, determinism */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "../../kvm-dcm/client/choose.h"

#define N 16u

static struct dcm_choose_donor donor(u64 mine, u64 used, u64 total)
{
	return (struct dcm_choose_donor){
		.mine = mine,
		.slabs_used = used,
		.slabs_total = total,
		.slabs_free = total - used,
		.up = true,
		.known = true,
	};
}

static void test_excluded(void **state)
{
	struct dcm_choose_donor d[6];
	unsigned int pick[2], i;
	u64 rng = 1;

	(void)state;
	for (i = 0; i < 6; i++)
		d[i] = donor(0, 1, 4);
	d[0].up = false;
	d[1].draining = true;
	d[2].slabs_free = 0;
	d[3].excluded = true;
	for (i = 0; i < 1000; i++) {
		assert_int_equal(dcm_choose_two(d, 6, &rng, pick), 2);
		assert_true(pick[0] >= 4 && pick[1] >= 4);
		assert_int_not_equal(pick[0], pick[1]);
	}
	d[4].up = false;
	assert_int_equal(dcm_choose_two(d, 6, &rng, pick), 1);
	assert_int_equal(pick[0], 5);
	/* full as far as is known; nothing is known of one never asked */
	d[5].slabs_free = 0;
	assert_int_equal(dcm_choose_two(d, 6, &rng, pick), 0);
	d[5].known = false;
	assert_int_equal(dcm_choose_two(d, 6, &rng, pick), 1);
	assert_int_equal(dcm_choose_two(d, 0, &rng, pick), 0);
}

static void test_unused_first(void **state)
{
	struct dcm_choose_donor d[3] = { donor(5, 5, 100), donor(0, 99, 100),
					 donor(1, 1, 100) };
	unsigned int pick[2], i;
	u64 rng = 2;

	(void)state;
	for (i = 0; i < 100; i++) {
		assert_int_equal(dcm_choose_two(d, 3, &rng, pick), 1);
		assert_int_equal(pick[0], 1);
	}
	d[1].mine = 1;
	assert_int_equal(dcm_choose_two(d, 3, &rng, pick), 2);
}

static void test_better(void **state)
{
	struct dcm_choose_donor a = donor(0, 2, 10), b = donor(0, 5, 100);

	(void)state;
	/* 20 % against 5 % of a larger one */
	assert_int_equal(dcm_choose_better(&a, &b), 1);
	assert_int_equal(dcm_choose_better(&b, &a), 0);
	b = donor(0, 20, 100);
	assert_int_equal(dcm_choose_better(&a, &b), 0);
	a.mine = 1;
	assert_int_equal(dcm_choose_better(&a, &b), 1);
	b.draining = true;
	assert_int_equal(dcm_choose_better(&a, &b), 0);
	a.slabs_free = 0;
	assert_int_equal(dcm_choose_better(&a, &b), -ENOSPC);
	/* figures of a liar: an answer, no overflow, no division */
	a = donor(0, U64_MAX, U64_MAX);
	b = donor(0, 1, U64_MAX);
	a.slabs_free = 1;
	assert_int_equal(dcm_choose_better(&a, &b), 1);
	a.slabs_total = 0;
	b.slabs_total = 0;
	assert_true(dcm_choose_better(&a, &b) >= 0);
}

/* A donor of files is worse, whatever it lends; its figures say nothing of memory. */
static void test_files_are_worse(void **state)
{
	struct dcm_choose_donor d[2] = { donor(0, 0, 100), donor(5, 9, 10) };

	(void)state;
	d[0].file = true;
	assert_int_equal(dcm_choose_better(&d[0], &d[1]), 1);
	assert_int_equal(dcm_choose_better(&d[1], &d[0]), 0);
	assert_false(dcm_choose_high(d, 2, 1));
	d[0].file = false;
	assert_true(dcm_choose_high(d, 2, 1));
	d[0].file = true;
	d[1].slabs_free = 0;
	assert_int_equal(dcm_choose_better(&d[0], &d[1]), 0);
}

/* Extents placed one by one, as the control plane does it. */
static u64 spread(u64 seed, unsigned int choices, u64 *worst)
{
	struct dcm_choose_donor d[N];
	unsigned int pick[2], i, n, w, e;
	u64 rng = seed, hash = 0;

	for (i = 0; i < N; i++)
		d[i] = donor(0, 0, 4096);
	for (e = 0; e < 32 * N; e++) {
		n = dcm_choose_two(d, N, &rng, pick);
		assert_true(n > 0);
		w = 0;
		if (n == 2 && choices == 2)
			w = (unsigned int)dcm_choose_better(&d[pick[0]],
							    &d[pick[1]]);
		d[pick[w]].mine++;
		d[pick[w]].slabs_used++;
		d[pick[w]].slabs_free--;
		hash = hash * 31 + pick[w];
		/* the first N extents are on N different donors */
		if (e == N - 1)
			for (i = 0; i < N; i++)
				assert_int_equal(d[i].mine, 1);
	}
	*worst = 0;
	for (i = 0; i < N; i++)
		*worst = max(*worst, d[i].mine);
	return hash;
}

static void test_balance(void **state)
{
	u64 one = 0, two = 0, w, seed, h;

	(void)state;
	for (seed = 1; seed <= 50; seed++) {
		spread(seed, 1, &w);
		one += w;
		h = spread(seed, 2, &w);
		two += w;
		assert_true(w <= 32 + 4);
		assert_true(h == spread(seed, 2, &w));
	}
	/* the point of two choices: the fullest is hardly above the mean */
	assert_true(two - 50 * 32 < (one - 50 * 32) / 3);
}

static void test_uniform(void **state)
{
	struct dcm_choose_donor d[5];
	unsigned int count[5] = { 0 }, pick[2], i;
	u64 rng = 0;

	(void)state;
	for (i = 0; i < 5; i++)
		d[i] = donor(0, 0, 8);
	for (i = 0; i < 50000; i++) {
		dcm_choose_two(d, 5, &rng, pick);
		count[pick[0]]++;
		count[pick[1]]++;
	}
	assert_true(rng != 0);
	for (i = 0; i < 5; i++)
		assert_in_range(count[i], 19300, 20700);
}

/* Keys of donors d0, d1, ... */
static u64 ring_of(u32 nr, u64 *key)
{
	char name[16];
	u32 i;

	for (i = 0; i < nr; i++) {
		snprintf(name, sizeof(name), "d%u", i);
		key[i] = dcm_choose_key(name);
	}
	return nr == 64 ? ~0ull : (1ull << nr) - 1;
}

static void test_partners(void **state)
{
	u64 key[64], ring, one, more;
	u32 nr, s, i, k, changed;

	(void)state;
	for (nr = 1; nr <= 64; nr++) {
		ring = ring_of(nr, key);
		for (s = 1; s < 12; s++)
			for (i = 0; i < nr; i++) {
				one = dcm_choose_partners(key, ring, i, s);
				assert_false(one >> i & 1);
				assert_false(one & ~ring);
				assert_int_equal(__builtin_popcountll(one),
						 min(nr - 1, (s + 1) / 2 * 2));
				for (k = 0; k < nr; k++)
					if (one >> k & 1)
						assert_true(
							dcm_choose_partners(key,
									    ring,
									    k,
									    s) >>
								i &
							1);
			}
	}
	/* one donor more changes what its neighbours have, and they alone */
	ring = ring_of(17, key);
	for (i = 0, changed = 0; i < 16; i++) {
		one = dcm_choose_partners(key, ring & ~(1ull << 16), i, 4);
		more = dcm_choose_partners(key, ring, i, 4);
		changed += one != more;
		assert_true(__builtin_popcountll(one & more) >= 3);
	}
	assert_int_equal(changed, 4);
}

/*
 * Two copies of each of many extents on 16 donors that lend the same. Counts pairs of
 * donors that have both copies of one, in 1000 of all pairs: the chance that two
 * deaths at random lose something.
 */
static u32 pairs_hit(u32 scatter)
{
	static bool hit[N][N];
	struct dcm_choose_donor d[N];
	u64 key[N], ring = ring_of(N, key), rng = 7;
	unsigned int pick[2], copy[2];
	u32 e, c, i, k, nr = 0;

	memset(hit, 0, sizeof(hit));
	for (i = 0; i < N; i++)
		d[i] = donor(0, 0, 10000);
	for (e = 0; e < 5000; e++) {
		u64 allowed = ring;

		for (c = 0; c < 2; c++) {
			for (i = 0; i < N; i++)
				d[i].excluded = !(allowed >> i & 1);
			k = dcm_choose_two(d, N, &rng, pick);
			assert_true(k > 0);
			copy[c] = pick[dcm_choose_better(&d[pick[0]],
							 &d[pick[k - 1]])];
			d[copy[c]].mine++;
			d[copy[c]].slabs_used++;
			d[copy[c]].slabs_free--;
			allowed = dcm_choose_partners(key, ring, copy[c],
						      scatter);
		}
		hit[copy[0]][copy[1]] = hit[copy[1]][copy[0]] = true;
	}
	for (i = 0; i < N; i++) {
		/* and all donors have as much */
		assert_in_range(d[i].mine, 500, 750);
		for (k = 0; k < i; k++)
			nr += hit[i][k];
	}
	return nr * 1000 / (N * (N - 1) / 2);
}

static void test_two_deaths_hit_few_pairs(void **state)
{
	u32 s;

	(void)state;
	for (s = 2; s <= 8; s += 2) {
		print_message("# scatter %u: %u of 1000 pairs\n", s,
			      pairs_hit(s));
		assert_int_equal(pairs_hit(s), s * 1000 / (N - 1));
	}
	/* without partners nearly every pair */
	assert_true(pairs_hit(N) > 990);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_excluded),
		cmocka_unit_test(test_unused_first),
		cmocka_unit_test(test_better),
		cmocka_unit_test(test_files_are_worse),
		cmocka_unit_test(test_balance),
		cmocka_unit_test(test_uniform),
		cmocka_unit_test(test_partners),
		cmocka_unit_test(test_two_deaths_hit_few_pairs),
	};

	return cmocka_run_group_tests_name("place", tests, NULL, NULL);
}

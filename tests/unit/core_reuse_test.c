// SPDX-License-Identifier: GPL-2.0-or-later
/* links: CORE FAKE */
/* libs: -lm */
/* threads: one */
/*
 * core_reuse_test.c - how far apart the touches of a page are (reuse.c)
 *
 * Distances are compared with a naive model, and for some programs the curve of
 * misses by budget with that of all pages and all accesses.
 */
#include "core_table.h"

#include <math.h>

#include "../../kvm-dcm/core/watched.h"

#define MS 1000u /* ticks of the fake backend's clock */

static struct fb_config watching(u32 pages, u64 budget)
{
	struct fb_config cfg = calm();

	cfg.nr_pages = pages;
	cfg.budget = budget;
	cfg.nr_slabs = pages / cfg.extent_pages + 8;
	cfg.touched_bits = false;
	cfg.watch = true;
	return cfg;
}

static struct dcm_reuse_stats *stats(const struct fake_backend *fb)
{
	static struct dcm_reuse_stats st;

	dcm_vm_reuse(fb->vm, &st);
	return &st;
}

static bool sampled(const struct fake_backend *fb, u32 gfn)
{
	return dcm_reuse_page(fb->vm, gfn) == gfn;
}

static u32 first_sampled(const struct fake_backend *fb)
{
	u32 i;

	for (i = 0; !sampled(fb, i); i++)
		;
	return i;
}

/* ---- exact ---- */

#define EXACT_PAGES 4096u

/*
 * Every access is a fault here, so that every touch is seen; and the sample stays as
 * it is. Each distance must be what a list in the order of touches says.
 */
static void test_exact(void **state)
{
	struct fake_backend *fb = world(watching(EXACT_PAGES, 512));
	static u32 list[EXACT_PAGES];
	static struct dcm_hist want;
	u32 nr = 0, i, n, at;
	u64 rng = 3;

	(void)state;
	memset(&want, 0, sizeof(want));
	for (n = 0; n < 60000; n++) {
		u32 r = (u32)fb_random(&rng) % EXACT_PAGES;
		/* some pages more often than others, some in order */
		u32 gfn = n % 3 ? r * r / EXACT_PAGES : n / 3 % EXACT_PAGES;

		if (fb_present(fb, gfn))
			fb_fault(fb, 0, gfn, 0);
		get(fb, gfn);
		if (!sampled(fb, gfn))
			continue;
		for (at = 0; at < nr && list[at] != gfn; at++)
			;
		if (at < nr)
			dcm_hist_add_n(&want, at * DCM_BLOCK_MAX,
				       DCM_BLOCK_MAX);
		else
			nr++;
		memmove(list + 1, list, at * sizeof(*list));
		list[0] = gfn;
	}
	assert_int_equal(nr, EXACT_PAGES / DCM_BLOCK_MAX);
	assert_int_equal(stats(fb)->watched, nr);
	assert_int_equal(stats(fb)->pages, EXACT_PAGES);
	/* an access that had to wait has touched the page twice, at distance 0 */
	for (i = 1; i < DCM_HIST_BUCKETS; i++)
		assert_int_equal(stats(fb)->distance.bucket[i], want.bucket[i]);
	assert_true(dcm_hist_count(&want) > 50000);
	end(fb);
}

/* ---- programs ---- */

#define PAGES 24576u
#define BUDGET 8192u
#define ACCESSES 600000u

typedef u32 program(u64 *rng, u32 n);

static u32 uniform(u64 *rng, u32 n)
{
	(void)n;
	return (u32)fb_random(rng) % 16384;
}

static u32 zipf(u64 *rng, u32 n)
{
	double x = (double)(fb_random(rng) % 1000000) / 1e6;

	(void)n;
	/* spread, so that hot pages have cold neighbours */
	return (u32)pow(16384, x) * 7919u % 16384;
}

/* Half a loop over all of it, half at random within a quarter. */
static u32 loop(u64 *rng, u32 n)
{
	return n % 2 ? n / 2 % 16384 : 16384 + (u32)fb_random(rng) % 3000;
}

/* Of all pages and accesses. Sums of marks over time, as a Fenwick tree. */
static void exact_curve(program *access, const u64 *at, double *miss, u32 nr)
{
	static u32 tree[ACCESSES + 1], last[PAGES];
	u64 rng = 11, total = 0;
	u32 n, i, k;

	memset(tree, 0, sizeof(tree));
	memset(last, 0, sizeof(last));
	for (k = 0; k < nr; k++)
		miss[k] = 0;
	for (n = 1; n <= ACCESSES; n++) {
		u32 gfn = access(&rng, n), d = 0;

		if (last[gfn]) {
			for (i = n - 1; i; i -= i & -i)
				d += tree[i];
			for (i = last[gfn]; i; i -= i & -i)
				d -= tree[i];
			for (k = 0; k < nr; k++)
				miss[k] += d >= at[k];
			for (i = last[gfn]; i <= ACCESSES; i += i & -i)
				tree[i]--;
			total++;
		}
		for (i = n; i <= ACCESSES; i += i & -i)
			tree[i]++;
		last[gfn] = n;
	}
	for (k = 0; k < nr; k++)
		miss[k] /= (double)total;
}

static double beyond(const struct dcm_hist *h, u64 pages)
{
	double n = 0;
	u32 i;

	for (i = 0; i < DCM_HIST_BUCKETS; i++) {
		u64 lo = dcm_hist_floor(i), hi = dcm_hist_floor(i + 1);

		if (lo >= pages)
			n += (double)h->bucket[i];
		else if (hi > pages)
			n += (double)h->bucket[i] * (double)(hi - pages) /
			     (double)(hi - lo);
	}
	return n;
}

/* Every page was written once, so that all of them have content. */
static struct fake_backend *written(u32 largest_block, u32 hides)
{
	struct fake_backend *fb = world(watching(PAGES, BUDGET));
	u32 i;

	tune(fb, "largest_block", largest_block);
	tune(fb, "reuse", hides);
	for (i = 0; i < PAGES; i++)
		put(fb, i);
	return fb;
}

static void run(struct fake_backend *fb, program *access)
{
	u64 rng = 11;
	u32 n;

	for (n = 1; n <= ACCESSES; n++) {
		get(fb, access(&rng, n));
		fb_advance(fb, 20);
		if (!(n % 64))
			fb_tick(fb, 0);
	}
}

/*
 * Touches that are nearer than an eighth of the budget go unseen, so the share of all
 * accesses is what the test counts; the core knows the accesses it saw.
 */
static void compare(program *access, bool blocks, u32 bound, const char *name)
{
	static const u64 at[] = { BUDGET / 4, BUDGET / 2, BUDGET * 3 / 4,
				  BUDGET, BUDGET * 3 / 2 };
	struct fake_backend *fb = written(blocks ? 65536 : 4096, bound);
	double miss[ARRAY_SIZE(at)];
	u32 i;

	run(fb, access);
	exact_curve(access, at, miss, ARRAY_SIZE(at));
	for (i = 0; i < ARRAY_SIZE(at); i++) {
		double said = beyond(&stats(fb)->distance, at[i]) / ACCESSES;

		printf("# %s: beyond %u: %.3f of accesses, foretold %.3f\n",
		       name, (u32)at[i], miss[i], said);
		assert_true(fabs(said - miss[i]) < 0.03 + 0.1 * miss[i]);
	}
	assert_true(fb->nr_hides > 100);
	end(fb);
}

static void test_uniform(void **state)
{
	(void)state;
	compare(uniform, false, 1000000, "uniform");
}

static void test_zipf(void **state)
{
	(void)state;
	compare(zipf, false, 1000000, "zipf");
}

static void test_loop(void **state)
{
	(void)state;
	compare(loop, false, 1000000, "loop");
}

/* Pages come in blocks, and pages of the sample hidden in them. */
static void test_blocks(void **state)
{
	(void)state;
	compare(loop, true, 1000000, "loop in blocks");
}

/* ---- bounds ---- */

/* No more is hidden than is allowed; the sample gets smaller instead, and says as much. */
static void test_bound(void **state)
{
	static const u64 at[] = { BUDGET / 2, BUDGET };
	struct fake_backend *fb = written(4096, 100);
	double miss[ARRAY_SIZE(at)], said[ARRAY_SIZE(at)];
	u64 seconds, hidden;
	u32 i;

	(void)state;
	run(fb, uniform);
	seconds = fb->tick / MS / 1000 + 1;
	hidden = count(fb, DCM_C_REUSE_HIDDEN);
	printf("# %llu pages hidden in %llu s, %llu watched\n",
	       (unsigned long long)hidden, (unsigned long long)seconds,
	       (unsigned long long)stats(fb)->watched);
	assert_in_range(hidden, seconds * 10,
			seconds * 100 + count(fb, DCM_C_FAULT_MISSING) / 512 +
				500);
	assert_true(stats(fb)->watched < PAGES / DCM_BLOCK_MAX / 2);
	exact_curve(uniform, at, miss, ARRAY_SIZE(at));
	for (i = 0; i < ARRAY_SIZE(at); i++)
		said[i] = beyond(&stats(fb)->distance, at[i]);
	/* while the sample rests it counts nothing, so only their ratio can be compared */
	printf("# beyond all of it, over beyond half: %.3f, foretold %.3f\n",
	       miss[1] / miss[0], said[1] / said[0]);
	assert_true(fabs(said[1] / said[0] - miss[1] / miss[0]) < 0.1);
	end(fb);
}

/*
 * Few pages are watched, and more of them would have to be hidden than is allowed. They
 * are hidden later, so that the sample need not rest: after each rest the longest
 * distances were not counted.
 */
static void test_long_distances_are_counted(void **state)
{
	static const u64 at[] = { BUDGET / 2, BUDGET, BUDGET * 3 / 2 };
	struct fake_backend *fb = written(4096, 40);
	double miss[ARRAY_SIZE(at)], said[ARRAY_SIZE(at)];
	u64 rested;
	u32 i;

	(void)state;
	run(fb, zipf);
	rested = stats(fb)->rested_ms;
	for (i = 0; i < ARRAY_SIZE(at); i++)
		said[i] = -beyond(&stats(fb)->distance, at[i]);
	run(fb, zipf);
	exact_curve(zipf, at, miss, ARRAY_SIZE(at));
	for (i = 0; i < ARRAY_SIZE(at); i++)
		said[i] += beyond(&stats(fb)->distance, at[i]);
	printf("# %llu watched, rested %llu ms, then %llu\n",
	       (unsigned long long)stats(fb)->watched,
	       (unsigned long long)rested,
	       (unsigned long long)stats(fb)->rested_ms - rested);
	printf("# over beyond all of it: half %.3f, foretold %.3f\n",
	       miss[0] / miss[1], said[0] / said[1]);
	printf("# one and a half %.3f, foretold %.3f\n", miss[2] / miss[1],
	       said[2] / said[1]);
	assert_int_equal(stats(fb)->rested_ms, rested);
	assert_true(fabs(said[0] / said[1] - miss[0] / miss[1]) < 0.4);
	assert_true(fabs(said[2] / said[1] - miss[2] / miss[1]) < 0.15);
	end(fb);
}

/*
 * A small budget is touched in little time, and ticks are short. None of them earns a
 * whole hide, yet as many are hidden as is allowed in all.
 */
static void test_small_budget_is_watched_on(void **state)
{
	struct fake_backend *fb = world(watching(3072, 1024));
	u64 rng = 5, hidden, allowed;
	u32 n;

	(void)state;
	tune(fb, "reuse", 100);
	for (n = 0; n < 3072; n++)
		put(fb, n);
	for (n = 1; n <= 500000; n++) {
		get(fb, (u32)(fb_random(&rng) % 3072));
		fb_advance(fb, 20);
		if (!(n % 64))
			fb_tick(fb, 0);
	}
	hidden = count(fb, DCM_C_REUSE_HIDDEN);
	allowed = fb->tick / MS / 10 + count(fb, DCM_C_FAULT_MISSING) / 512;
	printf("# %llu pages hidden, %llu allowed, rested %llu ms\n",
	       (unsigned long long)hidden, (unsigned long long)allowed,
	       (unsigned long long)stats(fb)->rested_ms);
	assert_in_range(hidden, allowed / 2, allowed + 300);
	end(fb);
}

/* Many pages: few of each part are watched. Few pages: as many as can be. */
static void test_rate(void **state)
{
	u32 pages = 4 * DCM_WATCHED_MAX * DCM_BLOCK_MAX, i, s;
	struct fb_config cfg = watching(pages, 32768);
	struct fake_backend *fb;
	u64 was;

	(void)state;
	cfg.extent_pages = 4096;
	cfg.nr_slabs = pages / 4096 + 8;
	fb = world(cfg);
	was = fb->vm->reuse_below;
	assert_true(was < 1ull << 32);
	for (s = 0; s < 60; s++) {
		fb_advance(fb, 1000 * MS);
		fb_tick(fb, 0);
		get(fb, s);
	}
	assert_true(fb->vm->reuse_below == 1ull << 32);
	for (i = 0; i < pages; i++)
		if (sampled(fb, i))
			put(fb, i);
	assert_true(fb->vm->reuse_below < 1ull << 31);
	assert_in_range(stats(fb)->watched, DCM_WATCHED_MAX / 3,
			DCM_WATCHED_MAX);
	printf("# %llu pages stand for %llu\n",
	       (unsigned long long)stats(fb)->watched,
	       (unsigned long long)stats(fb)->pages);
	/* fewer than all: those that the last rate leaves out were not touched */
	assert_in_range(stats(fb)->pages, pages * 8 / 10, pages * 12 / 10);
	end(fb);
}

/* ---- pages that go, or stay ---- */

/* Touch others, so that the page is hidden. */
static u32 hide_one(struct fake_backend *fb)
{
	u32 gfn = first_sampled(fb), i;

	put(fb, gfn);
	for (i = 64; i < 960; i++)
		put(fb, i);
	fb_advance(fb, 2000 * MS);
	/* a batch at a time */
	for (i = 0; i < 8; i++) {
		fb_tick(fb, 0);
		fb_advance(fb, 5 * MS);
	}
	assert_true(READ_ONCE(fb->page[gfn]) & FH_HIDDEN);
	return gfn;
}

/* A hidden page is found again, with its content. */
static void test_hidden_is_kept(void **state)
{
	struct fake_backend *fb = world(watching(3072, 1024));
	u32 gfn = hide_one(fb);

	(void)state;
	get(fb, gfn);
	assert_int_equal(count(fb, DCM_C_FAULT_SAMPLE), 1);
	put(fb, gfn);
	hide_one(fb);
	fb_to_donor(fb, 0, gfn & ~(DCM_BLOCK_MAX - 1), DCM_BLOCK_MAX, true,
		    1000 * MS);
	get(fb, gfn);
	end(fb);
}

static void test_hidden_is_discarded(void **state)
{
	struct fake_backend *fb = world(watching(3072, 1024));
	u32 gfn = hide_one(fb);
	u64 pages = stats(fb)->pages;

	(void)state;
	fb_discard(fb, 0, gfn, 1);
	assert_int_equal(stats(fb)->pages, pages - DCM_BLOCK_MAX);
	get(fb, gfn);
	put(fb, gfn);
	assert_int_equal(stats(fb)->pages, pages);
	/* it has no last touch */
	assert_int_equal(stats(fb)->unknown, 0);
	end(fb);
}

/* A page that can't be hidden is blind, and is hidden when it can. */
static void test_pinned(void **state)
{
	struct fake_backend *fb = world(watching(3072, 1024));
	u32 gfn = first_sampled(fb), i;

	(void)state;
	fb->cfg.p_pinned = 10000;
	put(fb, gfn);
	for (i = 64; i < 512; i++)
		put(fb, i);
	fb_advance(fb, 2000 * MS);
	fb_tick(fb, 0);
	assert_false(READ_ONCE(fb->page[gfn]) & FH_HIDDEN);
	assert_true(stats(fb)->blind >= DCM_BLOCK_MAX);
	fb->cfg.p_pinned = 0;
	for (i = 0; i < 20; i++) {
		fb_advance(fb, 2000 * MS);
		fb_tick(fb, 0);
	}
	assert_true(READ_ONCE(fb->page[gfn]) & FH_HIDDEN);
	assert_int_equal(stats(fb)->blind, 0);
	end(fb);
}

/* Off: nothing is hidden or known. On again: as before. */
static void test_off(void **state)
{
	struct fake_backend *fb = world(watching(3072, 1024));
	u32 i;

	(void)state;
	hide_one(fb);
	tune(fb, "reuse", 0);
	fb_advance(fb, 2000 * MS);
	fb_tick(fb, 0);
	assert_int_equal(stats(fb)->pages, 0);
	i = (u32)fb->nr_hides;
	for (u32 k = 0; k < 4000; k++) {
		get(fb, k % 3072);
		fb_advance(fb, MS);
		fb_tick(fb, 0);
	}
	assert_int_equal(fb->nr_hides, i);
	assert_int_equal(stats(fb)->watched, 0);
	tune(fb, "reuse", 500);
	fb_advance(fb, 2000 * MS);
	fb_tick(fb, 0);
	get(fb, 2000);
	hide_one(fb);
	assert_true(fb->nr_hides > i);
	end(fb);
}

/* A pager that can't hide pages has no sample. */
static void test_without(void **state)
{
	struct fb_config cfg = watching(3072, 1024);
	struct fake_backend *fb;
	u32 i;

	(void)state;
	cfg.watch = false;
	fb = world(cfg);
	for (i = 0; i < 3072; i++)
		put(fb, i);
	assert_true(fb_tick(fb, 0) > 0);
	assert_int_equal(stats(fb)->pages, 0);
	assert_int_equal(count(fb, DCM_C_REUSE_TOUCHES), 0);
	end(fb);
}

/* Ticks come sooner while memory goes by fast, and never all the time. */
static void test_tick(void **state)
{
	struct fake_backend *fb = world(watching(PAGES, BUDGET));
	u32 i;

	(void)state;
	for (i = 0; i < 6; i++) {
		fb_advance(fb, 1000 * MS);
		fb_tick(fb, 0);
	}
	assert_in_range(fb_tick(fb, 0), 900, 1001);
	fb_advance(fb, 1001 * MS);
	get(fb, first_sampled(fb));
	assert_in_range(fb_tick(fb, 0), 90, 101);
	assert_in_range(fb_tick(fb, 0), 90, 101);
	for (i = 0; i < PAGES; i++)
		put(fb, i);
	fb_advance(fb, 100 * MS);
	assert_in_range(fb_tick(fb, 0), 5, 50);
	end(fb);
}

static u32 ticks_in(struct fake_backend *fb, u32 seconds)
{
	u64 until = fb->tick + (u64)seconds * 1000 * MS;
	u32 n;

	for (n = 0; fb->tick < until; n++)
		fb_advance(fb, (u64)fb_tick(fb, 0) * MS);
	return n;
}

/*
 * All pages are tried again now and then, 16 a tick. That was after 64 ticks, and took as
 * many if a thousand pages are watched: an idle VM had 200 ticks a second.
 */
static void test_an_idle_vm_has_few_ticks(void **state)
{
	struct fake_backend *fb = world(watching(30000, 4000));
	u32 i;

	(void)state;
	for (i = 0; i < 30000; i++) {
		put(fb, i);
		fb_advance(fb, MS);
		if (!(i % 64))
			fb_tick(fb, 0);
	}
	ticks_in(fb, 20);
	assert_true(stats(fb)->watched > 1024);
	assert_in_range(ticks_in(fb, 60), 120, 240);
	/* one touch, and all are tried again within seconds */
	get(fb, first_sampled(fb));
	assert_in_range(ticks_in(fb, 10), 70, 180);
	end(fb);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exact),
		cmocka_unit_test(test_uniform),
		cmocka_unit_test(test_zipf),
		cmocka_unit_test(test_loop),
		cmocka_unit_test(test_blocks),
		cmocka_unit_test(test_bound),
		cmocka_unit_test(test_long_distances_are_counted),
		cmocka_unit_test(test_small_budget_is_watched_on),
		cmocka_unit_test(test_rate),
		cmocka_unit_test(test_hidden_is_kept),
		cmocka_unit_test(test_hidden_is_discarded),
		cmocka_unit_test(test_pinned),
		cmocka_unit_test(test_off),
		cmocka_unit_test(test_without),
		cmocka_unit_test(test_tick),
		cmocka_unit_test(test_an_idle_vm_has_few_ticks),
	};

	setvbuf(stdout, NULL, _IOLBF, 0);
	return cmocka_run_group_tests_name("core_reuse", tests, NULL, NULL);
}

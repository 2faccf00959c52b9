// SPDX-License-Identifier: GPL-2.0-or-later
/* links: CORE FAKE */
/*
 * core_seal_test.c - sealed pages, and donors that are not trusted
 *
 * The first extent has slabs on one donor, or on two. Bytes in a slab are changed
 * behind the core's back; the guest may never see them, and no donor a plain page.
 * fake_seal.c checks that no nonce comes twice.
 */
#include "core_copies.h"

static struct fake_backend *sealed_world(u32 copies)
{
	return copies_world_of(copies, true);
}

/* A donor's place for a page of the first extent. */
static u64 *place(struct fake_backend *fb, u32 slot, u32 page)
{
	return &fb->store[slab(fb, slot)->base + page];
}

/* The donor's bytes of a page become others. */
static void spoil(struct fake_backend *fb, u32 slot, u32 page, u64 word)
{
	slab(fb, slot)->sure[page] = false;
	*place(fb, slot, page) = word;
}

static u64 version_of(const struct fake_backend *fb, u32 page)
{
	return dcm_seal_version(&fb->seals[page]);
}

/* The slot of two that a page is read from. */
static u32 first_of(u32 gfn)
{
	return gfn / DCM_BLOCK_MAX % 2;
}

/* Flipped, another page's, or the page's own of before: the other slot's is mapped. */
static void test_the_other_copy_is_read(void **state)
{
	u64 before[PAGES];
	u32 kind, i;

	(void)state;
	for (kind = 0; kind < 3; kind++) {
		struct fake_backend *fb = sealed_world(2);

		for (i = 0; i < PAGES; i++)
			before[i] = *place(fb, first_of(i), i);
		for (i = 0; i < PAGES; i++)
			put(fb, i);
		push_out(fb, 0, PAGES);
		for (i = 0; i < PAGES; i++) {
			u32 s = first_of(i);

			spoil(fb, s, i,
			      kind == 0 ? *place(fb, s, i) ^ 1 :
			      kind == 1 ? *place(fb, s, (i + 1) % PAGES) :
					  before[i]);
		}
		for (i = 0; i < PAGES; i++)
			get(fb, i);
		assert_int_equal(count(fb, DCM_C_WRONG_PAGES), PAGES);
		assert_int_equal(count(fb, DCM_C_FAILOVERS), PAGES);
		assert_int_equal(count(fb, DCM_C_LOST_PAGES), 0);
		push_out(fb, 0, PAGES);
		fill(fb);
		for (i = 0; i < PAGES; i++)
			assert_int_equal(at(fb, i), 3);
		end(fb);
	}
}

/* With one donor the page is read twice, and then it is lost. */
static void test_the_only_copy_is_lost(void **state)
{
	struct fake_backend *fb = sealed_world(1);

	(void)state;
	spoil(fb, 0, PAGE, *place(fb, 0, PAGE) ^ 1);
	assert_int_equal(fb_access(fb, 0, PAGE, false, false), -EIO);
	assert_int_equal(count(fb, DCM_C_WRONG_PAGES), 2);
	assert_int_equal(count(fb, DCM_C_LOST_PAGES), 1);
	get(fb, PAGE + 1);
	get(fb, PAGE - 1);
	end(fb);
}

/* Bytes that change on their way from the only donor: they are read once more. */
static void test_the_only_copy_is_read_twice(void **state)
{
	struct fake_backend *fb = sealed_world(1);

	(void)state;
	fb->astray = 1;
	get(fb, PAGE);
	assert_int_equal(count(fb, DCM_C_WRONG_PAGES), 1);
	assert_int_equal(count(fb, DCM_C_LOST_PAGES), 0);
	end(fb);
}

/* A fill and a drain carry sealed bytes on: the same on each slab, by one sealing. */
static void test_moves_seal_nothing(void **state)
{
	struct fake_backend *fb = sealed_world(1);
	u64 word[PAGES], version[PAGES];
	u32 i;

	(void)state;
	for (i = 0; i < PAGES; i++) {
		word[i] = *place(fb, 0, i);
		version[i] = version_of(fb, i);
	}
	attach(fb, 0, 1);
	fill(fb);
	assert_int_equal(drain(fb, slab(fb, 0)), 0);
	for (i = 0; i < PAGES; i++) {
		assert_int_equal(at(fb, i), 2);
		assert_true(*place(fb, 1, i) == word[i]);
		assert_true(version_of(fb, i) == version[i]);
		get(fb, i);
	}
	end(fb);
}

/* A fill looks at what it carries: wrong bytes do not spread. */
static void test_a_fill_copies_no_wrong_bytes(void **state)
{
	struct fake_backend *fb = sealed_world(2);
	u32 i;

	(void)state;
	for (i = 0; i < PAGES; i++)
		spoil(fb, first_of(i), i, FH_TORN);
	attach(fb, 0, 2);
	fill(fb);
	assert_int_equal(count(fb, DCM_C_LOST_PAGES), 0);
	assert_true(count(fb, DCM_C_WRONG_PAGES) > 0);
	for (i = 0; i < PAGES; i++)
		get(fb, i);
	end(fb);
}

/* A clean page that a slab lacks gets one new seal, and is written to both. */
static void test_a_thin_clean_page_goes_to_all(void **state)
{
	struct fake_backend *fb = sealed_world(1);
	u64 version[PAGES];
	u32 i;

	(void)state;
	for (i = 0; i < PAGES; i++)
		get(fb, i);
	attach(fb, 0, 1);
	for (i = 0; i < PAGES; i++)
		version[i] = version_of(fb, i);
	push_out(fb, 0, PAGES);
	for (i = 0; i < PAGES; i++) {
		assert_int_equal(at(fb, i), 3);
		assert_true(version_of(fb, i) > version[i]);
		assert_true(*place(fb, 0, i) == *place(fb, 1, i));
		get(fb, i);
	}
	end(fb);
}

/* A WRITE that fails used its nonce up. */
static void test_a_failed_write_counts(void **state)
{
	struct fake_backend *fb = sealed_world(1);
	u64 version[PAGES], more = 0;
	u32 i;

	(void)state;
	for (i = 0; i < PAGES; i++) {
		version[i] = version_of(fb, i);
		put(fb, i);
	}
	fb->cfg.p_error = 5000;
	push_out(fb, 0, PAGES);
	fb->cfg.p_error = 0;
	for (i = 0; i < PAGES; i++)
		more += version_of(fb, i) - version[i];
	assert_true(count(fb, DCM_C_WRITE_ERRORS) > 0);
	assert_true(more > PAGES);
	for (i = 0; i < PAGES; i++)
		get(fb, i);
	end(fb);
}

/* Pages that can't be sealed stay here, and none of their bytes goes out. */
static void stays(struct fake_backend *fb)
{
	u64 writes = fb->nr_writes;

	flood(fb, 400);
	assert_int_not_equal(state_of(fb, PAGE), DCM_NOTDIRECT);
	assert_true(fb->nr_writes > writes);
	get(fb, PAGE);
}

static void test_the_last_version_is_never_used_up(void **state)
{
	struct fake_backend *fb = sealed_world(1);
	struct dcm_seal *s = &fb->seals[PAGE];
	u64 word;

	(void)state;
	put(fb, PAGE);
	s->version = ~0u - 1;
	s->version_high = 0xffff;
	push_out(fb, PAGE, 1);
	assert_true(version_of(fb, PAGE) == (1ull << 48) - 1);
	word = *place(fb, 0, PAGE);
	put(fb, PAGE);
	stays(fb);
	assert_true(version_of(fb, PAGE) == (1ull << 48) - 1);
	assert_true(*place(fb, 0, PAGE) == word);
	fb_discard(fb, 0, PAGE, 1);
	end(fb);
}

/* 32 bits are not all of a version. */
static void test_versions_go_on_past_32_bits(void **state)
{
	struct fake_backend *fb = sealed_world(1);

	(void)state;
	put(fb, PAGE);
	fb->seals[PAGE].version = ~0u;
	push_out(fb, PAGE, 1);
	assert_true(version_of(fb, PAGE) == 1ull << 32);
	get(fb, PAGE);
	end(fb);
}

/* The pager can't encrypt for a while: the page waits. */
static void test_no_seal_no_write(void **state)
{
	struct fake_backend *fb = sealed_world(1);
	u64 word = *place(fb, 0, PAGE);

	(void)state;
	put(fb, PAGE);
	fb->cfg.p_no_seal = 5000;
	push_out(fb, PAGE, 1);
	fb->cfg.p_no_seal = 0;
	assert_true(count(fb, DCM_C_WRITE_ERRORS) > 0);
	assert_true(*place(fb, 0, PAGE) != word);
	get(fb, PAGE);
	end(fb);
}

/* A slab is not used before there is room for its seals, nor read where it lies. */
static void test_attach_needs_seals(void **state)
{
	struct fb_config cfg = calm();
	struct fake_backend *fb;
	struct fb_slab *s;

	(void)state;
	cfg.seal = true;
	fb = world(cfg);
	s = fb_slab_take(fb, 0, -1);
	assert_int_equal(dcm_extent_attach(fb->vm, 0, &s->ref), -EINVAL);
	dcm_extent_seals(fb->vm, 0, fb->seals);
	s->ref.map = fb;
	assert_int_equal(dcm_extent_attach(fb->vm, 0, &s->ref), -EINVAL);
	s->ref.map = NULL;
	assert_int_equal(fb_slab_attach(fb, s, 0), 0);
	fb_destroy(fb);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_other_copy_is_read),
		cmocka_unit_test(test_the_only_copy_is_lost),
		cmocka_unit_test(test_the_only_copy_is_read_twice),
		cmocka_unit_test(test_moves_seal_nothing),
		cmocka_unit_test(test_a_fill_copies_no_wrong_bytes),
		cmocka_unit_test(test_a_thin_clean_page_goes_to_all),
		cmocka_unit_test(test_a_failed_write_counts),
		cmocka_unit_test(test_the_last_version_is_never_used_up),
		cmocka_unit_test(test_versions_go_on_past_32_bits),
		cmocka_unit_test(test_no_seal_no_write),
		cmocka_unit_test(test_attach_needs_seals),
	};

	return cmocka_run_group_tests_name("core_seal", tests, NULL, NULL);
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * seal_test.c - sealed pages: opened as they were sealed, and without memory
 */
#include <linux/file.h>
#include <linux/mman.h>

#include "kunit.h"

/* Each allocation of what a file seals by fails once, or one in some: it is plain then. */
static void is_sealed_whole_or_not(struct kunit *test)
{
	unsigned int nth, refused = 0;
	bool failed = true;

	if (!kunit_fail_nth(0))
		kunit_skip(test, "fault injection is not set up");
	for (nth = 1; failed && nth < 100000; nth += 1 + nth / 8) {
		struct kunit_mem *mem =
			kunit_mem(test, KUNIT_OPTIONS, KUNIT_EXTENT);
		u64 before = dcmfs_metadata_bytes(mem->vm);
		int err;

		kunit_fail_nth(nth);
		err = dcmfs_seal(mem->vm, DCMFS_SEAL_AES_256_GCM);
		failed = kunit_failed();
		refused += err != 0;
		KUNIT_EXPECT_EQ(test, !!err, !mem->vm->cipher);
		KUNIT_EXPECT_EQ(test, !err, mem->vm->core->sealed);
		if (!err)
			continue;
		KUNIT_EXPECT_EQ(test, dcmfs_metadata_bytes(mem->vm), before);
		KUNIT_EXPECT_NULL(test, mem->vm->lane[0].sealer);
		KUNIT_EXPECT_EQ(test, mem->vm->lane[0].core->wb[0].sealed, 0);
	}
	KUNIT_EXPECT_FALSE(test, failed);
	KUNIT_EXPECT_GT(test, refused, 10);
}

/* Sealing and opening need no memory: it is for freeing some. */
static void pages_without_memory(struct kunit *test)
{
	struct kunit_mem *mem = kunit_served(test, true);
	u64 __user *at = kunit_map(test, mem->file, 2 * KUNIT_EXTENT);
	struct dcm_stats *st = kunit_kzalloc(test, sizeof(*st), GFP_KERNEL);
	unsigned long wrong;

	KUNIT_ASSERT_NOT_NULL(test, st);
	kunit_pages_write(test, at);
	kunit_no_memory(test);
	kunit_pages_write(test, at);
	wrong = kunit_pages_wrong(test, at);
	kunit_memory();
	KUNIT_EXPECT_EQ(test, wrong, 0);
	dcm_vm_stats(mem->vm->core, st);
	KUNIT_EXPECT_GE(test, st->count[DCM_C_FETCHED_PAGES], KUNIT_PAGES);
	KUNIT_EXPECT_EQ(test, st->count[DCM_C_WRITE_ERRORS], 0);
	KUNIT_EXPECT_EQ(test, st->count[DCM_C_WRONG_PAGES], 0);
	KUNIT_EXPECT_EQ(test, st->count[DCM_C_LOST_PAGES], 0);
	vm_munmap((unsigned long)at, 2 * KUNIT_EXTENT);
}

/* A page opens with its own gfn, version and tag, and with nothing else. */
static void opens_what_was_sealed(struct kunit *test)
{
	struct dcm_seal seal = { .version = ~0u }, other;
	struct kunit_mem *mem = kunit_served(test, true);
	struct dcmfs_lane *dl = dcmfs_control_get(mem->vm);
	struct dcm_lane *lane = dl->core;
	struct page *plain = alloc_page(GFP_KERNEL), *sealed;
	void *was = kunit_kmalloc(test, PAGE_SIZE, GFP_KERNEL);

	if (!plain || !was) {
		dcmfs_lane_put(mem->vm, dl);
		KUNIT_FAIL_AND_ABORT(test, "no memory");
	}
	memset(page_address(plain), 0, PAGE_SIZE);
	/* the first of a chain is page 0, that after it page 1 */
	sealed = pfn_to_page(lane->wb[0].sealed);
	KUNIT_EXPECT_EQ(test,
			dcmfs_op_seal(lane, dcmfs_chain_next(sealed), plain, 7,
				      &seal),
			0);
	memcpy(was, page_address(dcmfs_chain_next(sealed)), PAGE_SIZE);
	KUNIT_EXPECT_NOT_NULL(test, memchr_inv(was, 0, PAGE_SIZE));
	KUNIT_EXPECT_EQ(test, dcmfs_op_open(lane, sealed, 1, 7, &seal, true),
			0);
	KUNIT_EXPECT_EQ(test, dcmfs_op_open(lane, sealed, 1, 8, &seal, true),
			-EBADMSG);
	KUNIT_EXPECT_EQ(test, dcmfs_op_open(lane, sealed, 0, 7, &seal, true),
			-EBADMSG);
	other = seal;
	other.version--;
	KUNIT_EXPECT_EQ(test, dcmfs_op_open(lane, sealed, 1, 7, &other, true),
			-EBADMSG);
	other = seal;
	other.version_high++;
	KUNIT_EXPECT_EQ(test, dcmfs_op_open(lane, sealed, 1, 7, &other, true),
			-EBADMSG);
	other = seal;
	other.tag[DCM_SEAL_TAG - 1] ^= 0x80;
	KUNIT_EXPECT_EQ(test, dcmfs_op_open(lane, sealed, 1, 7, &other, true),
			-EBADMSG);
	/* looking changes nothing */
	KUNIT_EXPECT_MEMEQ(test, page_address(dcmfs_chain_next(sealed)), was,
			   PAGE_SIZE);
	KUNIT_EXPECT_EQ(test, dcmfs_op_open(lane, sealed, 1, 7, &seal, false),
			0);
	KUNIT_EXPECT_MEMEQ(test, page_address(dcmfs_chain_next(sealed)),
			   page_address(plain), PAGE_SIZE);
	/* the same bytes of the next version are others */
	seal.version_high++;
	KUNIT_EXPECT_EQ(test,
			dcmfs_op_seal(lane, dcmfs_chain_next(sealed), plain, 7,
				      &seal),
			0);
	KUNIT_EXPECT_MEMNEQ(test, page_address(dcmfs_chain_next(sealed)), was,
			    PAGE_SIZE);
	__free_page(plain);
	dcmfs_lane_put(mem->vm, dl);
}

static struct kunit_case seal_cases[] = { KUNIT_CASE_SLOW(
						  is_sealed_whole_or_not),
	KUNIT_CASE_SLOW(pages_without_memory),
	KUNIT_CASE(opens_what_was_sealed),
					  {} };

static struct kunit_suite seal_suite = {
	.name = "dcmfs_seals",
	.test_cases = seal_cases,
};
kunit_test_suite(seal_suite);

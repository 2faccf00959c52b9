// SPDX-License-Identifier: GPL-2.0-only
/*
 * slab_test.c - slabs: what is taken, what is told, I/O on those of this host
 */
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/falloc.h>

#include "kunit.h"

#define DONOR 63 /* the last there can be */

/* ---- what a control plane may give ---- */

struct wrong {
	const char *what;
	struct dcmfs_slab arg;
	int err;
};

static const struct wrong wrongs[] = {
	{ "no id", { .fd = -1, .flags = DCMFS_SLAB_REMOTE }, -EINVAL },
	{ "extent past the end",
	  { .id = 9, .extent = 1, .fd = -1, .flags = DCMFS_SLAB_REMOTE },
	  -EINVAL },
	{ "extent of all ones",
	  { .id = 9, .extent = U32_MAX, .fd = -1, .flags = DCMFS_SLAB_REMOTE },
	  -EINVAL },
	{ "donor past the last",
	  { .id = 9,
	    .fd = -1,
	    .donor = DCMFS_DONORS_MAX,
	    .flags = DCMFS_SLAB_REMOTE },
	  -EINVAL },
	{ "elsewhere, and a file",
	  { .id = 9, .flags = DCMFS_SLAB_REMOTE },
	  -EINVAL },
	{ "past the end of addresses",
	  { .id = 9,
	    .fd = -1,
	    .base = U64_MAX - KUNIT_EXTENT + 1,
	    .flags = DCMFS_SLAB_REMOTE },
	  -EINVAL },
	{ "no file", { .id = 9, .fd = -1 }, -EBADF },
};

static int attach_file(struct dcmfs_vm *vm, struct file *file)
{
	return kunit_attach(vm, file, 9, 0);
}

static void wrong_slabs_are_refused(struct kunit *test)
{
	struct kunit_mem *mem = kunit_mem(test, KUNIT_OPTIONS, KUNIT_EXTENT);
	struct file *good = kunit_memfd(test, KUNIT_EXTENT);
	struct file *small = kunit_memfd(test, KUNIT_EXTENT - PAGE_SIZE);
	struct file *readable;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(wrongs); i++)
		KUNIT_EXPECT_EQ_MSG(test,
				    dcmfs_slab_attach(mem->vm, &wrongs[i].arg),
				    wrongs[i].err, "%s", wrongs[i].what);
	KUNIT_EXPECT_EQ(test, attach_file(mem->vm, small), -EINVAL);
	KUNIT_EXPECT_EQ(test, attach_file(mem->vm, mem->file), -EINVAL);
	readable = dentry_open(&good->f_path, O_RDONLY, current_cred());
	KUNIT_ASSERT_FALSE(test, IS_ERR(readable));
	KUNIT_EXPECT_EQ(test, attach_file(mem->vm, readable), -EINVAL);
	__fput_sync(readable);
	KUNIT_EXPECT_NULL(test, mem->vm->slabs);
	flush_delayed_fput();
	KUNIT_EXPECT_EQ(test, file_count(good), 1);
	KUNIT_EXPECT_EQ(test, file_count(small), 1);

	KUNIT_EXPECT_EQ(test, attach_file(mem->vm, good), 0);
	KUNIT_EXPECT_EQ(test, attach_file(mem->vm, good), -EEXIST);
	KUNIT_EXPECT_EQ(test, kunit_attach(mem->vm, good, 10, 0), 0);
	KUNIT_EXPECT_EQ(test, kunit_attach(mem->vm, good, 11, 0), 0);
	/* An extent has three slabs at most. */
	KUNIT_EXPECT_EQ(test, kunit_attach(mem->vm, good, 12, 0), -EBUSY);
	KUNIT_EXPECT_EQ(test, mem->vm->nr_slabs, DCMFS_SLABS);
	flush_delayed_fput();
	KUNIT_EXPECT_EQ(test, file_count(good), 1 + DCMFS_SLABS);
}

static void slabs_are_told_in_order(struct kunit *test)
{
	static const u64 ids[] = { 7, U64_MAX, 2 };
	struct kunit_mem *mem =
		kunit_mem(test, KUNIT_OPTIONS, 3 * KUNIT_EXTENT);
	struct dcmfs_slab arg = { .fd = -1 };
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(ids); i++) {
		struct dcmfs_slab slab = {
			.extent = i,
			.fd = -1,
			.id = ids[i],
			.flags = DCMFS_SLAB_REMOTE | (i ? 0 : DCMFS_SLAB_FILE),
			.donor = DONOR,
			.remote = 100 + i,
			.base = U64_MAX - KUNIT_EXTENT,
			.rkey = U32_MAX - i,
		};

		KUNIT_ASSERT_EQ(test, dcmfs_slab_attach(mem->vm, &slab), 0);
	}
	for (i = 0; i < ARRAY_SIZE(ids); i++) {
		static const unsigned int order[] = { 2, 0, 1 };

		arg = (struct dcmfs_slab){ .fd = -1, .id = arg.id };
		KUNIT_ASSERT_EQ(test, dcmfs_slab_after(mem->vm, &arg), 0);
		KUNIT_EXPECT_EQ(test, arg.id, ids[order[i]]);
		KUNIT_EXPECT_EQ(test, arg.extent, order[i]);
		KUNIT_EXPECT_EQ(test, arg.remote, 100 + order[i]);
		KUNIT_EXPECT_EQ(test, arg.rkey, U32_MAX - order[i]);
		KUNIT_EXPECT_EQ(test, arg.base, U64_MAX - KUNIT_EXTENT);
		KUNIT_EXPECT_EQ(test, arg.donor, DONOR);
		KUNIT_EXPECT_EQ(test, arg.flags,
				DCMFS_SLAB_REMOTE |
					(order[i] ? 0 : DCMFS_SLAB_FILE));
	}
	KUNIT_EXPECT_EQ(test, dcmfs_slab_after(mem->vm, &arg), -EINVAL);
	arg = (struct dcmfs_slab){ .fd = -1, .id = U64_MAX };
	KUNIT_EXPECT_EQ(test, dcmfs_slab_after(mem->vm, &arg), -ENOENT);
	/* Not under that extent. */
	arg = (struct dcmfs_slab){ .fd = -1, .id = 7, .extent = 1 };
	KUNIT_EXPECT_EQ(test, dcmfs_slab_detach(mem->vm, &arg), -ENOENT);
	arg.extent = 0;
	KUNIT_EXPECT_EQ(test, dcmfs_slab_detach(mem->vm, &arg), 0);
	KUNIT_EXPECT_EQ(test, mem->vm->nr_slabs, 2);
}

static void notes_are_kept(struct kunit *test)
{
	struct kunit_mem *mem = kunit_mem(test, KUNIT_OPTIONS, KUNIT_EXTENT);
	struct dcmfs_note *note =
		kunit_kzalloc(test, sizeof(*note), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, note);
	note->donor = DONOR;
	memset(note->bytes, 0xa5, DCMFS_NOTE_MAX);
	KUNIT_EXPECT_EQ(test, dcmfs_note(mem->vm, note), 0);
	KUNIT_EXPECT_NULL(test, memchr_inv(note->bytes, 0, DCMFS_NOTE_MAX));
	note->set = 1;
	memset(note->bytes, 0x5a, DCMFS_NOTE_MAX);
	KUNIT_EXPECT_EQ(test, dcmfs_note(mem->vm, note), 0);
	note->set = 0;
	memset(note->bytes, 0, DCMFS_NOTE_MAX);
	KUNIT_EXPECT_EQ(test, dcmfs_note(mem->vm, note), 0);
	KUNIT_EXPECT_NULL(test, memchr_inv(note->bytes, 0x5a, DCMFS_NOTE_MAX));
	note->donor = DONOR + 1;
	KUNIT_EXPECT_EQ(test, dcmfs_note(mem->vm, note), -EINVAL);
	note->donor = DONOR;
	note->set = 2;
	KUNIT_EXPECT_EQ(test, dcmfs_note(mem->vm, note), -EINVAL);
}

/* ---- I/O on a slab of this host ---- */

static int chain_io(struct dcmfs_vm_slab *slab, struct page *chain,
		    enum dcm_io_op op, u64 offset)
{
	struct dcm_io io = { .slab = &slab->ref,
			     .op = op,
			     .offset = offset,
			     .bytes = DCM_IO_BYTES_MAX,
			     .data = chain };

	return dcmfs_slab_io(slab, &io);
}

static void chain_fill(struct page *page, u8 with)
{
	for (; page; page = dcmfs_chain_next(page))
		memset(page_address(page), with++, PAGE_SIZE);
}

static unsigned int chain_wrong(struct page *page, u8 with, u8 step)
{
	unsigned int wrong = 0;

	for (; page; page = dcmfs_chain_next(page), with += step)
		wrong += !!memchr_inv(page_address(page), with, PAGE_SIZE);
	return wrong;
}

static void slab_of_this_host(struct kunit *test)
{
	struct kunit_mem *mem = kunit_mem(test, KUNIT_OPTIONS, KUNIT_EXTENT);
	struct file *file = kunit_memfd(test, KUNIT_EXTENT);
	u64 last = KUNIT_EXTENT - DCM_IO_BYTES_MAX;
	struct dcmfs_lane *lane;
	struct dcmfs_vm_slab *slab;
	struct page *chain;

	KUNIT_ASSERT_EQ(test, kunit_attach(mem->vm, file, 1, 0), 0);
	slab = mem->vm->slabs;
	lane = dcmfs_control_get(mem->vm);
	chain = dcmfs_chain_alloc(lane->core, DCM_BLOCK_MAX);
	dcmfs_lane_put(mem->vm, lane);
	KUNIT_ASSERT_NOT_NULL(test, chain);
	chain_fill(chain, 1);
	KUNIT_EXPECT_EQ(test, chain_io(slab, chain, DCM_IO_WRITE, last), 0);
	chain_fill(chain, 100);
	KUNIT_EXPECT_EQ(test, chain_io(slab, chain, DCM_IO_READ, last), 0);
	KUNIT_EXPECT_EQ(test, chain_wrong(chain, 1, 1), 0);
	/* A hole that the donor has punched reads zero. */
	KUNIT_ASSERT_EQ(test,
			vfs_fallocate(file,
				      FALLOC_FL_PUNCH_HOLE |
					      FALLOC_FL_KEEP_SIZE,
				      (loff_t)last, DCM_IO_BYTES_MAX),
			0);
	KUNIT_EXPECT_EQ(test, chain_io(slab, chain, DCM_IO_READ, last), 0);
	KUNIT_EXPECT_EQ(test, chain_wrong(chain, 0, 0), 0);
	KUNIT_EXPECT_FALSE(test, slab->broken);
	/* The part that the donor has truncated is gone for good. */
	KUNIT_ASSERT_EQ(test, vfs_truncate(&file->f_path, (loff_t)last), 0);
	KUNIT_EXPECT_NE(test, chain_io(slab, chain, DCM_IO_READ, last), 0);
	KUNIT_EXPECT_TRUE(test, slab->broken);
	KUNIT_EXPECT_NE(test, chain_io(slab, chain, DCM_IO_WRITE, last), 0);
	lane = dcmfs_control_get(mem->vm);
	dcmfs_chain_free(lane->core, chain, DCM_BLOCK_MAX);
	dcmfs_lane_put(mem->vm, lane);
	KUNIT_EXPECT_EQ(test, atomic64_read(&mem->vm->frames), 0);
}

static struct kunit_case slab_cases[] = { KUNIT_CASE(wrong_slabs_are_refused),
	KUNIT_CASE(slabs_are_told_in_order),
	KUNIT_CASE(notes_are_kept),
	KUNIT_CASE(slab_of_this_host),
					  {} };

static struct kunit_suite slab_suite = {
	.name = "dcmfs_slabs",
	.test_cases = slab_cases,
};
kunit_test_suite(slab_suite);

// SPDX-License-Identifier: GPL-2.0-only
/*
 * memory_test.c - a file's memory: its making, its frames, paging without memory
 */
#include <linux/file.h>
#include <linux/fs_context.h>
#include <linux/mman.h>
#include <linux/pagemap.h>

#include "compat.h"
#include "kunit.h"

#define PAGES KUNIT_PAGES

/* ---- mount options ---- */

struct option {
	const char *key;
	const char *value;
	int err;
	u64 is;
};

static const struct option options[] = {
	{ "budget", "4096", 0, 4096 },
	{ "budget", "3k", 0, 3072 },
	{ "budget", "0x10M", 0, SZ_16M },
	{ "budget", "16T", 0, 1ull << 44 },
	{ "budget", "17592186044417", -EINVAL, 0 },
	{ "budget", "17T", -EINVAL, 0 },
	/* Both of which memparse() would take for something small. */
	{ "budget", "18446744073709551617", -EINVAL, 0 },
	{ "budget", "17179869185G", -EINVAL, 0 },
	{ "budget", "1MM", -EINVAL, 0 },
	{ "budget", "M", -EINVAL, 0 },
	{ "budget", "", -EINVAL, 0 },
	{ "budget", "-1", -EINVAL, 0 },
	{ "budget", "1 M", -EINVAL, 0 },
	{ "budget", "00000000000000000000001M", 0, SZ_1M },
	{ "budget", "000000000000000000000001M", -EINVAL, 0 },
	{ "share", "1", 0, 1 },
	{ "share", "100", 0, 100 },
	{ "share", "0", -EINVAL, 0 },
	{ "share", "101", -EINVAL, 0 },
	{ "extent", "2M", 0, SZ_2M },
	{ "extent", "1T", 0, 1ull << 40 },
	{ "extent", "1M", -EINVAL, 0 },
	{ "extent", "3M", -EINVAL, 0 },
	{ "extent", "2T", -EINVAL, 0 },
	{ "lanes", "32", 0, 32 },
	{ "lanes", "33", -EINVAL, 0 },
	{ "lanes", "0", -EINVAL, 0 },
	{ "on-loss", "pause", 0, 1 },
	{ "on-loss", "sigbus", 0, 0 },
	{ "on-loss", "never", -EINVAL, 0 },
	{ "mode", "7777", 0, 07777 },
	{ "mode", "8", -EINVAL, 0 },
};

static u64 option_of(const struct dcmfs_options *opt, const char *key)
{
	switch (key[0]) {
	case 'b':
		return opt->budget;
	case 's':
		return opt->share;
	case 'e':
		return opt->extent;
	case 'l':
		return opt->lanes;
	case 'm':
		return opt->mode;
	default:
		return opt->pause;
	}
}

static void options_are_as_said(struct kunit *test)
{
	struct file_system_type *type = get_fs_type("dcmfs");
	unsigned int i;

	KUNIT_ASSERT_NOT_NULL(test, type);
	for (i = 0; i < ARRAY_SIZE(options); i++) {
		const struct option *o = &options[i];
		struct fs_context *fc = fs_context_for_mount(type, 0);
		const struct dcmfs_sb *sb;
		int err;

		if (IS_ERR(fc)) {
			KUNIT_FAIL(test, "no context");
			break;
		}
		sb = fc->s_fs_info;
		err = vfs_parse_fs_string(fc, o->key, o->value,
					  strlen(o->value));
		KUNIT_EXPECT_EQ_MSG(test, err, o->err, "%s=%s", o->key,
				    o->value);
		if (!err)
			KUNIT_EXPECT_EQ_MSG(test, option_of(&sb->opt, o->key),
					    o->is, "%s=%s", o->key, o->value);
		put_fs_context(fc);
	}
	module_put(type->owner);
}

/* ---- frames ---- */

/* A lane that keeps nothing for the next fetch, of a VM that is frames only. */
static struct dcm_lane *bare_lane(struct kunit *test)
{
	struct dcmfs_vm *vm = kunit_kzalloc(test, sizeof(*vm), GFP_KERNEL);
	struct dcm_vm *core = kunit_kzalloc(test, sizeof(*core), GFP_KERNEL);
	struct dcm_lane *lane = kunit_kzalloc(test, sizeof(*lane), GFP_KERNEL);
	struct dcmfs_lane *dl = kunit_kzalloc(test, sizeof(*dl), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, vm);
	KUNIT_ASSERT_NOT_NULL(test, core);
	KUNIT_ASSERT_NOT_NULL(test, lane);
	KUNIT_ASSERT_NOT_NULL(test, dl);
	core->priv = vm;
	lane->vm = core;
	lane->priv = dl;
	init_waitqueue_head(&vm->work);
	KUNIT_ASSERT_EQ(test, dcmfs_frames_init(vm), 0);
	return lane;
}

/* As many as there are, chained; how many. */
static unsigned int frames_all(struct dcm_lane *lane, struct page **chain)
{
	unsigned int n;

	*chain = NULL;
	for (n = 0; n < 2 * DCMFS_RESERVE; n++) {
		struct page *page = dcmfs_frame_alloc(lane, false);

		if (!page)
			break;
		set_page_private(page, (unsigned long)*chain);
		*chain = page;
	}
	return n;
}

static void reserve_is_used_and_filled(struct kunit *test)
{
	struct dcm_lane *lane = bare_lane(test);
	struct dcmfs_vm *vm = lane_vm(lane);
	struct page *chain, *page;
	unsigned int n, again;
	bool zero;

	kunit_no_memory(test);
	n = frames_all(lane, &chain);
	kunit_memory();
	KUNIT_EXPECT_EQ(test, n, DCMFS_RESERVE);
	KUNIT_EXPECT_EQ(test, vm->reserve.curr_nr, 0);
	KUNIT_EXPECT_EQ(test, atomic64_read(&vm->frames), n);
	/* The thread has been told, each time: that there was none as well. */
	KUNIT_EXPECT_EQ(test, atomic_read(&vm->short_of), n + 1);
	KUNIT_EXPECT_EQ(test, atomic_read(&vm->kicked), 1);

	for (page = chain; page; page = dcmfs_chain_next(page))
		memset(page_address(page), 0xa5, PAGE_SIZE);
	dcmfs_chain_free(lane, chain, n);
	KUNIT_EXPECT_EQ(test, vm->reserve.curr_nr, DCMFS_RESERVE);
	KUNIT_EXPECT_EQ(test, atomic64_read(&vm->frames), 0);

	/* Nobody gets to see what another had there. */
	kunit_no_memory(test);
	page = dcmfs_frame_alloc(lane, true);
	again = frames_all(lane, &chain);
	kunit_memory();
	KUNIT_EXPECT_EQ(test, again, DCMFS_RESERVE - 1);
	KUNIT_ASSERT_NOT_NULL(test, page);
	zero = !memchr_inv(page_address(page), 0, PAGE_SIZE);
	KUNIT_EXPECT_TRUE(test, zero);
	dcmfs_frame_free(lane, page);
	dcmfs_chain_free(lane, chain, again);
	dcmfs_frames_exit(vm);
}

static void chain_is_whole_or_none(struct kunit *test)
{
	struct dcm_lane *lane = bare_lane(test);
	struct dcmfs_vm *vm = lane_vm(lane);
	struct page *taken, *chain, *page;
	unsigned int n;

	chain = dcmfs_chain_alloc(lane, DCM_BLOCK_MAX);
	KUNIT_ASSERT_NOT_NULL(test, chain);
	for (n = 0, page = chain; page; page = dcmfs_chain_next(page))
		n++;
	KUNIT_EXPECT_EQ(test, n, DCM_BLOCK_MAX);
	/* Some of its beginning go, the rest stays as it is. */
	for (n = 0, page = chain; n < 5; n++)
		page = dcmfs_chain_next(page);
	dcmfs_chain_free(lane, chain, 5);
	KUNIT_EXPECT_EQ(test, atomic64_read(&vm->frames), DCM_BLOCK_MAX - 5);
	for (n = 0, chain = page; page; page = dcmfs_chain_next(page))
		n++;
	KUNIT_EXPECT_EQ(test, n, DCM_BLOCK_MAX - 5);
	dcmfs_chain_free(lane, chain, n);

	/* Seven frames are no block. */
	kunit_no_memory(test);
	taken = dcmfs_chain_alloc(lane, DCMFS_RESERVE - 7);
	chain = dcmfs_chain_alloc(lane, DCM_BLOCK_MAX);
	kunit_memory();
	KUNIT_EXPECT_NOT_NULL(test, taken);
	KUNIT_EXPECT_NULL(test, chain);
	KUNIT_EXPECT_EQ(test, vm->reserve.curr_nr, 7);
	KUNIT_EXPECT_EQ(test, atomic64_read(&vm->frames), DCMFS_RESERVE - 7);
	dcmfs_chain_free(lane, taken, DCMFS_RESERVE - 7);
	KUNIT_EXPECT_EQ(test, atomic64_read(&vm->frames), 0);
	dcmfs_frames_exit(vm);
}

static void frame_in_use_outlives_its_vm(struct kunit *test)
{
	struct dcm_lane *lane = bare_lane(test);
	struct dcmfs_vm *vm = lane_vm(lane);
	struct page *page = dcmfs_frame_alloc(lane, true), *other;
	bool touched;

	KUNIT_ASSERT_NOT_NULL(test, page);
	folio_mark_dirty(page_folio(page));
	folio_set_referenced(page_folio(page));
	KUNIT_EXPECT_TRUE(test, dcmfs_frame_used(page, &touched));
	KUNIT_EXPECT_TRUE(test, touched);
	KUNIT_EXPECT_FALSE(test, dcmfs_frame_used(page, &touched));
	KUNIT_EXPECT_FALSE(test, touched);

	/* The reserve wants it back, but somebody's I/O still writes there. */
	kunit_no_memory(test);
	other = dcmfs_frame_alloc(lane, false);
	kunit_memory();
	get_page(page);
	dcmfs_frame_free(lane, page);
	KUNIT_EXPECT_EQ(test, vm->reserve.curr_nr, DCMFS_RESERVE - 1);
	KUNIT_EXPECT_EQ(test, page_count(page), 1);
	memset(page_address(page), 0xa5, PAGE_SIZE);
	put_page(page);
	KUNIT_ASSERT_NOT_NULL(test, other);
	dcmfs_frame_free(lane, other);
	KUNIT_EXPECT_EQ(test, vm->reserve.curr_nr, DCMFS_RESERVE);
	KUNIT_EXPECT_EQ(test, atomic64_read(&vm->frames), 0);
	dcmfs_frames_exit(vm);
}

/* ---- a whole file ---- */

/* Down to a budget, by this thread alone; what is direct then. */
static s64 evict_to(struct dcmfs_vm *vm, s64 budget)
{
	struct dcm_vm *core = vm->core;
	struct dcm_lane *lane = vm->lane[vm->nr_lanes - 1].core;
	unsigned int idle = 0;

	dcm_set_budget(core, (u64)budget);
	while (atomic64_read(&core->direct) > budget && idle++ < 100)
		if (dcm_poll(lane) || dcm_balance(lane))
			idle = 0;
	return atomic64_read(&core->direct);
}

/* Nothing on the way of freeing memory needs any. */
static void evicts_without_memory(struct kunit *test)
{
	struct kunit_mem *mem = kunit_served(test, false);
	struct dcmfs_vm *vm = mem->vm;
	u64 __user *at = kunit_map(test, mem->file, 2 * KUNIT_EXTENT);
	s64 least = (s64)dcm_min_budget(vm->core), direct, frames;
	struct dcmfs_lane *lane;

	kunit_no_memory(test); /* is it set up? */
	kunit_memory();
	KUNIT_ASSERT_EQ(test, dcm_set_budget(vm->core, 2 * PAGES), 0);
	kunit_pages_write(test, at);
	KUNIT_EXPECT_EQ(test, atomic64_read(&vm->core->direct), PAGES);

	/* The VM's thread waits for the lane: it does nothing of this. */
	lane = dcmfs_control_get(vm);
	/* One of two spans is taken apart: there are frames in spare for one. */
	KUNIT_EXPECT_LE(test, evict_to(vm, PAGES - 1), PAGES - 1);
	kunit_no_memory(test);
	direct = evict_to(vm, least);
	kunit_memory();
	frames = atomic64_read(&vm->frames);
	dcmfs_lane_put(vm, lane);
	KUNIT_EXPECT_LE(test, direct, least);
	KUNIT_EXPECT_LE(test, frames, least);
	KUNIT_EXPECT_EQ(test, vm->reserve.curr_nr, DCMFS_RESERVE);
	KUNIT_EXPECT_EQ(test, atomic_read(&vm->short_of), 0);
	KUNIT_EXPECT_EQ(test, kunit_pages_wrong(test, at), 0);
	vm_munmap((unsigned long)at, 2 * KUNIT_EXTENT);
}

/* A thread that gets no memory at all gets its pages, out of the reserve. */
static void faults_without_memory(struct kunit *test)
{
	struct kunit_mem *mem = kunit_served(test, false);
	u64 __user *at = kunit_map(test, mem->file, 2 * KUNIT_EXTENT);
	unsigned long wrong;
	struct dcm_stats *st = kunit_kzalloc(test, sizeof(*st), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, st);
	kunit_pages_write(test, at);
	kunit_no_memory(test);
	wrong = kunit_pages_wrong(test, at);
	kunit_memory();
	KUNIT_EXPECT_EQ(test, wrong, 0);
	dcm_vm_stats(mem->vm->core, st);
	KUNIT_EXPECT_GE(test, st->count[DCM_C_FETCHED_PAGES], PAGES / 2);
	KUNIT_EXPECT_EQ(test, st->count[DCM_C_ILLEGAL], 0);
	KUNIT_EXPECT_EQ(test, st->count[DCM_C_LOST_PAGES], 0);
	vm_munmap((unsigned long)at, 2 * KUNIT_EXTENT);
}

/* Each allocation of a file's memory fails once: then there is none of it. */
static void is_made_whole_or_not(struct kunit *test)
{
	struct kunit_mem *mem = kunit_mem(test, KUNIT_OPTIONS, 0);
	unsigned int nth, refused = 0;
	bool failed = true;

	if (!kunit_fail_nth(0))
		kunit_skip(test, "fault injection is not set up");
	for (nth = 1; failed && nth < 1000; nth++) {
		struct file *file = kunit_tmpfile(mem);
		struct dcmfs_vm *vm;
		long err;

		KUNIT_ASSERT_NOT_NULL(test, file);
		kunit_fail_nth(nth);
		err = vfs_truncate(&file->f_path, KUNIT_EXTENT);
		failed = kunit_failed();
		vm = dcmfs_vm_of(file_inode(file));
		refused += err != 0;
		if (err)
			KUNIT_EXPECT_EQ(test, err, -ENOMEM);
		KUNIT_EXPECT_EQ(test, !!err, !vm);
		__fput_sync(file);
	}
	KUNIT_EXPECT_FALSE(test, failed);
	/* Each frame of the reserve, and some. */
	KUNIT_EXPECT_GT(test, refused, DCMFS_RESERVE);
}

/* ---- the core calls out without a lock ---- */

static struct {
	struct task_struct *task;
	int depth;
	atomic_t wrong;
	unsigned int install, unmap, release, discard, post, poll, data, zero;
} watch;

static void watched(struct dcm_lane *lane, unsigned int *calls)
{
	might_sleep();
	if (current != watch.task)
		return;
	(*calls)++;
	if (lockdep_depth(current) != watch.depth)
		atomic_inc(&watch.wrong);
}

static int watch_install(struct dcm_lane *lane, struct dcm_fetch *f)
{
	watched(lane, &watch.install);
	return dcmfs_ops.install(lane, f);
}

static void watch_unmap(struct dcm_lane *lane, struct dcm_unmap *v,
			unsigned int nr)
{
	watched(lane, &watch.unmap);
	dcmfs_ops.unmap(lane, v, nr);
}

static void watch_release(struct dcm_lane *lane, u32 frame, unsigned int order)
{
	watched(lane, &watch.release);
	dcmfs_ops.release(lane, frame, order);
}

static void watch_discard(struct dcm_lane *lane, u32 gfn, u32 nr)
{
	watched(lane, &watch.discard);
	dcmfs_ops.discard(lane, gfn, nr);
}

static int watch_post(struct dcm_lane *lane, struct dcm_io *io)
{
	watched(lane, &watch.post);
	return dcmfs_ops.io_post(lane, io);
}

static int watch_poll(struct dcm_lane *lane, struct dcm_io **done, int max)
{
	watched(lane, &watch.poll);
	return dcmfs_ops.io_poll(lane, done, max);
}

static void *watch_data(struct dcm_lane *lane, u32 frame, unsigned int page)
{
	watched(lane, &watch.data);
	return dcmfs_ops.frame_data(lane, frame, page);
}

static u16 watch_zero(struct dcm_lane *lane, u32 frame, unsigned int order,
		      u16 mask)
{
	watched(lane, &watch.zero);
	return dcmfs_ops.zero_mask(lane, frame, order, mask);
}

/* Write a page as a mapper would; its lane is held. */
static bool page_write(struct dcmfs_lane *lane, u32 gfn)
{
	struct dcmfs_access a = { .gfn = gfn, .want = true };
	unsigned int tries;

	lane->access = &a;
	for (tries = 0; !a.page && tries < 10000; tries++) {
		if (dcm_fault(lane->core, gfn, DCM_FF_WRITE) == DCM_FAULT_LOST)
			break;
		while (!a.page && dcm_pending(lane->core))
			dcm_poll(lane->core);
		if (a.busy)
			put_page(a.busy);
		a.busy = NULL;
	}
	lane->access = NULL;
	if (!a.page)
		return false;
	*(u64 *)page_address(a.page) = kunit_word(gfn);
	set_page_dirty(a.page);
	unlock_page(a.page);
	put_page(a.page);
	return true;
}

static void calls_out_without_a_lock(struct kunit *test)
{
	struct kunit_mem *mem = kunit_served(test, false);
	struct dcmfs_vm *vm = mem->vm;
	struct dcmfs_lane *lane;
	static struct dcm_ops ops;
	unsigned long gfn, right = 0;
	bool discarded;

	memset(&watch, 0, sizeof(watch));
	ops = dcmfs_ops;
	ops.install = watch_install;
	ops.unmap = watch_unmap;
	ops.release = watch_release;
	ops.discard = watch_discard;
	ops.io_post = watch_post;
	ops.io_poll = watch_poll;
	ops.frame_data = watch_data;
	ops.zero_mask = watch_zero;
	/* A fault describes its page without a lane; here that comes first. */
	for (gfn = 0; gfn < PAGES; gfn += DCM_PDS_PAGES) {
		void *chunk = dcmfs_chunk_alloc(vm);

		if (!dcm_chunk_add(vm->core, (u32)gfn, chunk))
			dcmfs_chunk_free(vm, chunk);
	}
	lane = &vm->lane[vm->nr_lanes - 2];
	mutex_lock(&lane->lock);
	watch.depth = lockdep_depth(current);
	watch.task = current;
	WRITE_ONCE(vm->core->ops, &ops);
	for (gfn = 0; gfn < PAGES; gfn++)
		right += page_write(lane, (u32)gfn);
	for (gfn = 0; gfn < PAGES; gfn += 3)
		right += page_write(lane, (u32)gfn);
	discarded = dcm_discard(lane->core, PAGES - 64, 64);
	watch.task = NULL;
	dcmfs_lane_put(vm, lane);
	WRITE_ONCE(vm->core->ops, &dcmfs_ops);
	KUNIT_EXPECT_EQ(test, watch.depth, IS_ENABLED(CONFIG_LOCKDEP));
	KUNIT_EXPECT_EQ(test, right, PAGES + (PAGES + 2) / 3);
	KUNIT_EXPECT_TRUE(test, discarded);
	KUNIT_EXPECT_EQ(test, atomic_read(&watch.wrong), 0);
	KUNIT_EXPECT_GE(test, watch.install, PAGES / DCM_BLOCK_MAX);
	KUNIT_EXPECT_GT(test, watch.unmap, 10);
	KUNIT_EXPECT_GT(test, watch.release, 10);
	KUNIT_EXPECT_GT(test, watch.discard, 0);
	KUNIT_EXPECT_GT(test, watch.post, 50);
	KUNIT_EXPECT_GT(test, watch.poll, 50);
	KUNIT_EXPECT_GT(test, watch.data, 50);
	KUNIT_EXPECT_GT(test, watch.zero, 10);
}

/* A page mapped by this file has not been touched until it is. */
static void mapped_is_not_touched(struct kunit *test)
{
	pte_t pte = pfn_pte(1, dcmfs_prot_old(PAGE_SHARED));

	KUNIT_EXPECT_FALSE(test, pte_young(pte));
	KUNIT_EXPECT_TRUE(test, pte_present(pte));
	KUNIT_EXPECT_TRUE(test, pte_write(pte));
}

static struct kunit_case memory_cases[] = {
	KUNIT_CASE(options_are_as_said),
	KUNIT_CASE(reserve_is_used_and_filled),
	KUNIT_CASE(chain_is_whole_or_none),
	KUNIT_CASE(frame_in_use_outlives_its_vm),
	KUNIT_CASE_SLOW(is_made_whole_or_not),
	KUNIT_CASE_SLOW(evicts_without_memory),
	KUNIT_CASE_SLOW(faults_without_memory),
	KUNIT_CASE_SLOW(calls_out_without_a_lock),
	KUNIT_CASE(mapped_is_not_touched),
	{}
};

static struct kunit_suite memory_suite = {
	.name = "dcmfs_memory",
	.test_cases = memory_cases,
};
kunit_test_suite(memory_suite);

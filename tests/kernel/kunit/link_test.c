// SPDX-License-Identifier: GPL-2.0-only
/*
 * link_test.c - links: their making, what they complete, their end
 *
 * As far as link.c knows they are over RDMA; the functions that make them are here,
 * and so is the donor's memory at their other end.
 */
#include <linux/delay.h>
#include <linux/fdtable.h>
#include <linux/file.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/vmalloc.h>

#include "kunit.h"

#define PAGES (KUNIT_EXTENT / PAGE_SIZE)
#define WORDS (PAGE_SIZE / sizeof(u64))
#define DONOR 63 /* the last there can be */

/**
 * struct wire - a link of ours
 * @ep: what link.c sees
 * @end: tells of its state
 * @done: complete, not polled
 * @way: in flight
 * @nr: how many
 * @stop: nothing comes back
 * @status: what comes back
 * @dead: for good
 */
struct wire {
	struct dcm_endpoint ep;
	struct dcmfs_link_end *end;
	struct dcm_done done;
	struct dcm_io *way[4];
	unsigned int nr;
	bool stop;
	int status;
	bool dead;
};

static struct wire *newest; /* of those made */
static int refuse; /* to make one, with this */
static unsigned int closed;
static u8 *donor_memory;

static struct wire *to_wire(struct dcm_endpoint *ep)
{
	return container_of(ep, struct wire, ep);
}

static void wire_copy(const struct dcm_io *io)
{
	u8 *at = donor_memory + io->offset;
	struct page *page = io->data;
	unsigned int n;

	for (n = io->bytes >> PAGE_SHIFT; n--; at += PAGE_SIZE) {
		if (io->op == DCM_IO_READ)
			memcpy(page_address(page), at, PAGE_SIZE);
		else
			memcpy(at, page_address(page), PAGE_SIZE);
		page = dcmfs_chain_next(page);
	}
}

static void wire_complete(struct wire *w, int status)
{
	unsigned int i;

	for (i = 0; i < w->nr; i++) {
		if (!status && donor_memory)
			wire_copy(w->way[i]);
		dcm_done_add(&w->done, w->way[i], status);
	}
	w->nr = 0;
}

static int wire_post(struct dcm_endpoint *ep, struct dcm_io *io)
{
	struct wire *w = to_wire(ep);

	if (w->dead)
		return -ENOTCONN;
	if (w->nr == ARRAY_SIZE(w->way))
		return -EAGAIN;
	w->way[w->nr++] = io;
	return 0;
}

static void wire_flush(struct dcm_endpoint *ep)
{
}

static int wire_poll(struct dcm_endpoint *ep, struct dcm_io **done, int max)
{
	struct wire *w = to_wire(ep);

	if (!w->stop)
		wire_complete(w, w->status);
	return dcm_done_take(&w->done, done, max);
}

static u32 wire_in_flight(struct dcm_endpoint *ep)
{
	return to_wire(ep)->nr + to_wire(ep)->done.nr;
}

static bool wire_dead(struct dcm_endpoint *ep)
{
	return to_wire(ep)->dead;
}

static void wire_kill(struct dcm_endpoint *ep)
{
	to_wire(ep)->dead = true;
	wire_complete(to_wire(ep), -ENOTCONN);
}

static const char *wire_why(struct dcm_endpoint *ep)
{
	return to_wire(ep)->dead ? "killed" : "";
}

static void wire_close(struct dcm_endpoint *ep)
{
	struct wire *w = to_wire(ep);

	dcmfs_link_end_tell(w->end, DCMFS_LINK_DEAD);
	dcmfs_link_end_put(w->end);
	closed++;
	kfree(w);
}

static const struct dcm_transport_ops wire_ops = {
	.name = "kunit",
	.owner = THIS_MODULE,
	.close = wire_close,
	.post = wire_post,
	.flush = wire_flush,
	.poll = wire_poll,
	.in_flight = wire_in_flight,
	.dead = wire_dead,
	.kill = wire_kill,
	.why = wire_why,
};

static struct dcm_endpoint *wire_open(struct dcmfs_vm *vm,
				      struct dcmfs_lane *lane,
				      const struct dcmfs_pair *arg,
				      struct dcmfs_link_end *end, int *err)
{
	struct wire *w = refuse ? NULL : kzalloc(sizeof(*w), GFP_KERNEL);

	*err = refuse ?: -ENOMEM;
	if (!w)
		return NULL;
	w->ep.ops = &wire_ops;
	w->end = end;
	dcm_done_init(&w->done);
	newest = w;
	return &w->ep;
}

static const struct dcmfs_pair_maker maker = {
	.owner = THIS_MODULE,
	.open = wire_open,
};

static int links_init(struct kunit *test)
{
	newest = NULL;
	refuse = 0;
	closed = 0;
	donor_memory = NULL;
	return dcmfs_pair_maker_set(&maker);
}

static void links_exit(struct kunit *test)
{
	dcmfs_pair_maker_set(NULL);
}

/* A link of lane @lane to @donor; its file, to be closed, or %NULL. */
static struct file *link_make(struct dcmfs_vm *vm, s32 __user *to, u32 lane,
			      u32 donor, int *err)
{
	const struct dcmfs_pair arg = { .lane = lane, .donor = donor };
	struct file *file;
	s32 fd = -1;

	*err = dcmfs_pair_set(vm, &arg, to);
	if (*err || get_user(fd, to))
		return NULL;
	file = fget((unsigned int)fd);
	close_fd((unsigned int)fd);
	return file;
}

/* The number that the next file has. */
static int next_fd(void)
{
	int fd = get_unused_fd_flags(0);

	if (fd >= 0)
		put_unused_fd((unsigned int)fd);
	return fd;
}

static void wrong_links_are_refused(struct kunit *test)
{
	struct kunit_mem *mem = kunit_mem(test, KUNIT_OPTIONS, KUNIT_EXTENT);
	s32 __user *to = (s32 __user *)kunit_map(test, NULL, PAGE_SIZE);
	const struct dcmfs_link none = { .fd = -1 };
	int users = module_refcount(THIS_MODULE), fd = next_fd(), err;
	unsigned int nth;

	KUNIT_EXPECT_EQ(test, dcmfs_pair_maker_set(&maker), -EBUSY);
	link_make(mem->vm, to, mem->vm->nr_lanes, 0, &err);
	KUNIT_EXPECT_EQ(test, err, -EINVAL);
	link_make(mem->vm, to, 0, DCMFS_DONORS_MAX, &err);
	KUNIT_EXPECT_EQ(test, err, -EINVAL);
	link_make(mem->vm, (s32 __user *)8, 0, 0, &err);
	KUNIT_EXPECT_EQ(test, err, -EFAULT);
	refuse = -EHOSTUNREACH;
	link_make(mem->vm, to, 0, 0, &err);
	KUNIT_EXPECT_EQ(test, err, -EHOSTUNREACH);
	refuse = 0;
	/* Each allocation fails once. */
	for (nth = 1; nth < 100; nth++) {
		struct file *file;

		if (!kunit_fail_nth(nth)) {
			current->fail_nth = 0;
			kunit_skip(test, "fault injection is not set up");
		}
		file = link_make(mem->vm, to, 0, 0, &err);
		if (!kunit_failed())
			nth = 100;
		KUNIT_EXPECT_EQ(test, !file, !!err);
		if (file)
			__fput_sync(file);
	}
	KUNIT_EXPECT_EQ(test, nth, 101);
	flush_delayed_fput();
	KUNIT_EXPECT_EQ(test, next_fd(), fd);
	/* The one that came of it at last. */
	KUNIT_EXPECT_EQ(test, module_refcount(THIS_MODULE), users + 1);
	KUNIT_EXPECT_EQ(test, dcmfs_link_set(mem->vm, &none), 0);
	KUNIT_EXPECT_EQ(test, module_refcount(THIS_MODULE), users);
}

static void nobody_makes_links(struct kunit *test)
{
	struct kunit_mem *mem = kunit_mem(test, KUNIT_OPTIONS, KUNIT_EXTENT);
	s32 __user *to = (s32 __user *)kunit_map(test, NULL, PAGE_SIZE);
	int fd = next_fd(), err;

	dcmfs_pair_maker_set(NULL);
	link_make(mem->vm, to, 0, 0, &err);
	KUNIT_EXPECT_EQ(test, err, -ENODEV);
	flush_delayed_fput();
	KUNIT_EXPECT_EQ(test, next_fd(), fd);
}

static void end_of_a_link_is_told(struct kunit *test)
{
	struct kunit_mem *mem = kunit_mem(test, KUNIT_OPTIONS, KUNIT_EXTENT);
	s32 __user *to = (s32 __user *)kunit_map(test, NULL, PAGE_SIZE);
	struct file *first, *second;
	u64 dead;
	int err, i;

	first = link_make(mem->vm, to, 1, DONOR, &err);
	KUNIT_ASSERT_NOT_NULL(test, first);
	KUNIT_EXPECT_EQ(test, (__force u32)vfs_poll(first, NULL), 0);
	dcmfs_link_end_tell(newest->end, DCMFS_LINK_UP);
	KUNIT_EXPECT_EQ(test, (__force u32)vfs_poll(first, NULL),
			(__force u32)EPOLLOUT);
	/* Another takes its place. */
	second = link_make(mem->vm, to, 1, DONOR, &err);
	KUNIT_ASSERT_NOT_NULL(test, second);
	KUNIT_EXPECT_EQ(test, closed, 1);
	KUNIT_EXPECT_EQ(test, (__force u32)vfs_poll(first, NULL),
			(__force u32)(EPOLLHUP | EPOLLRDHUP));
	KUNIT_EXPECT_EQ(test, (__force u32)vfs_poll(second, NULL), 0);
	KUNIT_EXPECT_EQ(test, mem->vm->lane[1].links, 1ull << DONOR);
	/* The link of a file that nobody has goes on. */
	__fput_sync(first);
	__fput_sync(second);
	dcmfs_link_end_tell(newest->end, DCMFS_LINK_UP);
	KUNIT_EXPECT_PTR_EQ(test, mem->vm->lane[1].link[DONOR], &newest->ep);
	/* A dead one is taken away, here or by the VM's thread. */
	mutex_lock(&mem->vm->lane[1].lock);
	wire_kill(&newest->ep);
	dead = dcmfs_links_dead(&mem->vm->lane[1]);
	mutex_unlock(&mem->vm->lane[1].lock);
	KUNIT_EXPECT_EQ(test, dead, 1ull << DONOR);
	dcmfs_links_reap(mem->vm, &mem->vm->lane[1], dead);
	for (i = 0; READ_ONCE(closed) < 2 && i < 100; i++)
		msleep(20);
	KUNIT_EXPECT_EQ(test, closed, 2);
	KUNIT_EXPECT_EQ(test, mem->vm->lane[1].links, 0);
}

/* A completion is returned once, and no more at a time than are asked for. */
static void completions_of_several_links(struct kunit *test)
{
	struct kunit_mem *mem =
		kunit_mem(test, KUNIT_OPTIONS, 3 * KUNIT_EXTENT);
	s32 __user *to = (s32 __user *)kunit_map(test, NULL, PAGE_SIZE);
	struct dcmfs_lane *lane = &mem->vm->lane[0];
	static const u32 donors[] = { 0, 31, DONOR };
	struct dcm_io *io = kunit_kcalloc(test, 12, sizeof(*io), GFP_KERNEL);
	struct dcm_io *done;
	struct wire *w[3];
	u32 seen = 0, i;
	int err, n, total = 0;

	KUNIT_ASSERT_NOT_NULL(test, io);
	for (i = 0; i < ARRAY_SIZE(donors); i++) {
		struct dcmfs_slab arg = { .extent = i,
					  .fd = -1,
					  .id = i + 1,
					  .donor = donors[i],
					  .flags = DCMFS_SLAB_REMOTE };
		struct file *file = link_make(mem->vm, to, 0, donors[i], &err);

		KUNIT_ASSERT_NOT_NULL(test, file);
		__fput_sync(file);
		w[i] = newest;
		KUNIT_ASSERT_EQ(test, dcmfs_slab_attach(mem->vm, &arg), 0);
	}
	mutex_lock(&lane->lock);
	for (i = 0; i < 12; i++) {
		struct dcmfs_vm_slab *slab = mem->vm->slabs;

		while (slab->donor != donors[i % 3])
			slab = slab->next;
		io[i].slab = &slab->ref;
		io[i].op = DCM_IO_WRITE;
		io[i].bytes = PAGE_SIZE;
		KUNIT_EXPECT_EQ(test, dcmfs_io_post(lane->core, &io[i]), 0);
	}
	KUNIT_EXPECT_EQ(test, dcmfs_io_post(lane->core, &io[0]), -EAGAIN);
	KUNIT_EXPECT_EQ(test, lane->busy, 1 | 1ull << 31 | 1ull << DONOR);
	w[1]->stop = true;
	w[2]->status = -ESTALE;
	while ((n = dcmfs_io_poll(lane->core, &done, 3)) > 0) {
		KUNIT_EXPECT_LE(test, n, 3);
		total += n;
		for (; done; done = done->next, n--) {
			i = (u32)(done - io);
			seen ^= 1u << i;
			KUNIT_EXPECT_EQ(test, done->status,
					i % 3 == 2 ? -ESTALE : 0);
		}
		KUNIT_EXPECT_EQ(test, n, 0);
	}
	KUNIT_EXPECT_EQ(test, total, 8);
	KUNIT_EXPECT_EQ(test, seen, 0xb6d);
	KUNIT_EXPECT_EQ(test, lane->busy, 1ull << 31);
	/* Its donor has taken that slab back. */
	KUNIT_EXPECT_EQ(test, dcmfs_io_post(lane->core, &io[2]), -ESTALE);
	w[1]->stop = false;
	KUNIT_EXPECT_EQ(test, dcmfs_io_poll(lane->core, &done, 64), 4);
	KUNIT_EXPECT_EQ(test, lane->busy, 0);
	mutex_unlock(&lane->lock);
}

static void memory_end(void *memory)
{
	vfree(memory);
}

/* A new link to every lane, in the place of what it has. */
static void links_all(struct kunit *test, struct dcmfs_vm *vm, s32 __user *to)
{
	u32 i;

	for (i = 0; i < vm->nr_lanes; i++) {
		int err;
		struct file *file = link_make(vm, to, i, DONOR, &err);

		KUNIT_ASSERT_NOT_NULL(test, file);
		__fput_sync(file);
	}
}

/*
 * Paging over links that are replaced again and again, whatever is on its way:
 * it is done again over the next.
 */
static void links_die_under_paging(struct kunit *test)
{
	struct dcmfs_slab arg = {
		.fd = -1, .id = 1, .donor = DONOR, .flags = DCMFS_SLAB_REMOTE
	};
	struct kunit_mem *mem;
	s32 __user *to;
	u64 __user *at;
	unsigned long wrong = 0;
	u32 i, round;

	/* Before the file: what it does last goes there. */
	donor_memory = vzalloc(KUNIT_EXTENT);
	KUNIT_ASSERT_NOT_NULL(test, donor_memory);
	KUNIT_ASSERT_EQ(test, kunit_add_action(test, memory_end, donor_memory),
			0);
	mem = kunit_mem(test, KUNIT_OPTIONS, KUNIT_EXTENT);
	to = (s32 __user *)kunit_map(test, NULL, PAGE_SIZE);
	at = kunit_map(test, mem->file, KUNIT_EXTENT);
	KUNIT_ASSERT_EQ(test, dcmfs_slab_attach(mem->vm, &arg), 0);
	for (round = 1; round <= 4; round++) {
		for (i = 0; i < PAGES; i++) {
			if (!(i % 100))
				links_all(test, mem->vm, to);
			if (round > 1)
				wrong += kunit_peek(test, at + i * WORDS) !=
					 (u64)i * 10 + round - 1;
			kunit_poke(test, at + i * WORDS, (u64)i * 10 + round);
		}
	}
	KUNIT_EXPECT_EQ(test, wrong, 0);
	KUNIT_EXPECT_GT(test, closed, 3 * 6 * mem->vm->nr_lanes);
	vm_munmap((unsigned long)at, KUNIT_EXTENT);
}

static struct kunit_case link_cases[] = {
	KUNIT_CASE(wrong_links_are_refused),
	KUNIT_CASE(nobody_makes_links),
	KUNIT_CASE(end_of_a_link_is_told),
	KUNIT_CASE(completions_of_several_links),
	KUNIT_CASE_SLOW(links_die_under_paging),
	{}
};

static struct kunit_suite link_suite = {
	.name = "dcmfs_links",
	.init = links_init,
	.exit = links_exit,
	.test_cases = link_cases,
};
kunit_test_suite(link_suite);

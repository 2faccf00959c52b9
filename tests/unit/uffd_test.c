// SPDX-License-Identifier: GPL-2.0-or-later
/* uffd_test.c - pages moved by a kernel that does not say so */
/* libs: -Wl,--wrap=ioctl */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../kvm-dcm/uffd/uffd.h"

#define PAGE	4096u
#define PAGES	8u
#define ROUNDS	20000u

int __real_ioctl(int fd, unsigned long request, void *arg);
int __wrap_ioctl(int fd, unsigned long request, void *arg);

/*
 * From the page @forget_from on, @forget pages are moved at once and not said to
 * be. 0: as the kernel is.
 */
static unsigned int forget, forget_from;
static uint64_t forget_src;

/* What Linux 6.18's move_pages() does after an -EAGAIN of its own. */
int __wrap_ioctl(int fd, unsigned long request, void *arg)
{
	struct uffdio_move *m = arg, part;
	uint64_t at;
	int err;

	if (request != UFFDIO_MOVE || !forget)
		return __real_ioctl(fd, request, arg);
	part = *m;
	at = (m->src - forget_src) / PAGE;
	if (at < forget_from) {
		/* up to there it says what it did */
		part.len = (forget_from - at) * PAGE;
		err = __real_ioctl(fd, request, &part);
		assert_int_equal(err, 0);
		m->move = part.move;
		errno = EAGAIN;
		return -1;
	}
	part.len = forget * PAGE;
	part.mode |= UFFDIO_MOVE_MODE_DONTWAKE;
	forget = 0;
	err = __real_ioctl(fd, request, &part);
	assert_int_equal(err, 0);
	/* and looks at the first of them again */
	return __real_ioctl(fd, request, m);
}

struct world {
	struct dcm_uffd u;
	char *src, *dst;
	bool stop;
};

static char *area(struct world *w, bool missing)
{
	char *p = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	madvise(p, PAGES * PAGE, MADV_NOHUGEPAGE);
	assert_int_equal(dcm_uffd_register(&w->u, (uintptr_t)p, PAGES * PAGE,
					   missing),
			 0);
	return p;
}

static void setup(struct world *w)
{
	char err[256] = "";

	memset(w, 0, sizeof(*w));
	assert_int_equal(dcm_uffd_open(&w->u, 0, err, sizeof(err)), 0);
	if (!w->u.move)
		skip();
	w->src = area(w, true);
	w->dst = area(w, false);
	forget = 0;
}

static void teardown(struct world *w)
{
	munmap(w->src, PAGES * PAGE);
	munmap(w->dst, PAGES * PAGE);
	dcm_uffd_close(&w->u);
}

/* Page k of the source is full of @seed + k. */
static void fill(struct world *w, char seed)
{
	char page[PAGE];

	for (unsigned int k = 0; k < PAGES; k++) {
		memset(page, seed + (char)k, sizeof(page));
		assert_int_equal(dcm_uffd_copy(&w->u,
					       (uintptr_t)w->src + k * PAGE,
					       page, PAGE, 0),
				 0);
	}
}

static bool there(const char *p)
{
	unsigned char v = 0;

	assert_int_equal(mincore((void *)p, PAGE, &v), 0);
	return v & 1;
}

static void moved_check(const struct world *w, char seed)
{
	char page[PAGE];

	for (unsigned int k = 0; k < PAGES; k++) {
		assert_false(there(w->src + k * PAGE));
		memset(page, seed + (char)k, sizeof(page));
		assert_memory_equal(w->dst + k * PAGE, page, PAGE);
	}
}

static int move(struct world *w, bool wakes, uint64_t *moved)
{
	return dcm_uffd_move(&w->u, (uintptr_t)w->dst, (uintptr_t)w->src,
			     PAGES * PAGE, wakes, moved);
}

/*
 * The pager took the EEXIST for a slot that was not empty and dropped the page in
 * the slot, the only copy; then it read the lost page, and waited for itself.
 */
static void test_moved_and_not_said(void **state)
{
	uint64_t moved;
	struct world w;

	(void)state;
	setup(&w);
	for (unsigned int from = 0; from < PAGES; from++) {
		for (unsigned int n = 1; from + n <= PAGES; n++) {
			fill(&w, (char)n);
			forget = n;
			forget_from = from;
			forget_src = (uintptr_t)w.src;
			assert_int_equal(move(&w, n & 1, &moved), 0);
			assert_int_equal(moved, PAGES * PAGE);
			assert_int_equal(forget, 0);
			moved_check(&w, (char)n);
			madvise(w.dst, PAGES * PAGE, MADV_DONTNEED);
		}
	}
	teardown(&w);
}

/* Pages at the source and at the destination stay as they are. */
static void test_not_over_a_page(void **state)
{
	uint64_t moved;
	struct world w;

	(void)state;
	setup(&w);
	fill(&w, 1);
	w.dst[3 * PAGE] = 77;
	assert_int_equal(move(&w, false, &moved), -EEXIST);
	assert_int_equal(moved, 3 * PAGE);
	assert_int_equal(w.dst[3 * PAGE], 77);
	for (unsigned int k = 0; k < PAGES; k++)
		assert_int_equal(there(w.src + k * PAGE), k >= 3);
	teardown(&w);
}

static void *cold(void *arg)
{
	struct world *w = arg;

	while (!__atomic_load_n(&w->stop, __ATOMIC_RELAXED))
		madvise(w->src, PAGES * PAGE, MADV_COLD);
	return NULL;
}

static void *touch(void *arg)
{
	struct world *w = arg;
	unsigned int k = 0;

	while (!__atomic_load_n(&w->stop, __ATOMIC_RELAXED))
		__atomic_load_n(&w->src[k++ % PAGES * PAGE], __ATOMIC_RELAXED);
	return NULL;
}

/* Threads that wait for a page try again. */
static void *wake(void *arg)
{
	struct world *w = arg;
	struct uffd_msg msg;

	while (!__atomic_load_n(&w->stop, __ATOMIC_RELAXED)) {
		if (read(w->u.fd, &msg, sizeof(msg)) == sizeof(msg))
			dcm_uffd_wake(&w->u,
				      msg.arg.pagefault.address &
					      ~(uint64_t)(PAGE - 1),
				      PAGE);
		else
			sched_yield();
	}
	return NULL;
}

/* The kernel itself, with accessed bits that change meanwhile. */
static void test_moved_while_bits_change(void **state)
{
	pthread_t thread[3];
	uint64_t moved;
	struct world w;

	(void)state;
	setup(&w);
	assert_int_equal(pthread_create(&thread[0], NULL, cold, &w), 0);
	assert_int_equal(pthread_create(&thread[1], NULL, touch, &w), 0);
	assert_int_equal(pthread_create(&thread[2], NULL, wake, &w), 0);
	for (unsigned int i = 0; i < ROUNDS; i++) {
		fill(&w, (char)i);
		assert_int_equal(move(&w, i & 1, &moved), 0);
		assert_int_equal(moved, PAGES * PAGE);
		moved_check(&w, (char)i);
		madvise(w.dst, PAGES * PAGE, MADV_DONTNEED);
	}
	/* no thread is left waiting */
	fill(&w, 0);
	__atomic_store_n(&w.stop, true, __ATOMIC_RELAXED);
	for (unsigned int i = 0; i < 3; i++)
		pthread_join(thread[i], NULL);
	teardown(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_moved_and_not_said),
		cmocka_unit_test(test_not_over_a_page),
		cmocka_unit_test(test_moved_while_bits_change),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

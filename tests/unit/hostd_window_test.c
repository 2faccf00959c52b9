// SPDX-License-Identifier: GPL-2.0-or-later
/* links: kvm-dcm/hostd/window.c kvm-dcm/gc/ipc.c kvm-dcm/lib/log.c kvm-dcm/lib/thread.c */
/* libs: -Wl,--wrap=ioctl */
/*
 * hostd_window_test.c - what dcm-hostd asks of the kernel after a GC worker
 *
 * The test stands for gc/queue.c, which calls the window, and for the kernel.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>

#include <cmocka.h>

#include "gc/backend.h"
#include "hostd/hostd.h"
#include "hostd/window.h"
#include "hostd_stubs.h"

#define FD 77
#define AT (1ull << 20)
#define END (AT + (3ull << 20))

static struct dcm_gc_backend window;
static struct hostd_file f = { .fd = FD, .path = (char *)"file" };

/* The kernel's answers, one after the other; the last one stays. */
static const int *answers;
static struct dcmfs_range asked[16];
static unsigned long cmd[16];
static u32 nr_asked;
static u64 kernel_budget; /* pages; 0: the kernel says nothing */
static bool device_goes; /* during the next request */

int __wrap_ioctl(int fd, unsigned long request, void *arg);

int __wrap_ioctl(int fd, unsigned long request, void *arg)
{
	struct dcmfs_range *r = arg;

	assert_int_equal(fd, FD);
	if (request == DCMFS_IOC_INFO) {
		((struct dcmfs_info *)arg)->budget_pages = kernel_budget;
		return kernel_budget ? 0 : -1;
	}
	assert_true(nr_asked < ARRAY_SIZE(asked));
	asked[nr_asked] = *r;
	cmd[nr_asked++] = request;
	errno = *answers;
	if (answers[1] >= 0)
		answers++;
	/* a mebibyte of it is done */
	if (errno == ETIMEDOUT) {
		r->first += 256;
		r->pages -= 256;
	}
	if (device_goes)
		hostd_window_end(window.priv);
	return errno ? -1 : 0;
}

struct dcm_gc_host *dcm_gc_host_new(const struct dcm_gc_backend *backend,
				    const struct dcm_gc_host_ops *ops,
				    void *priv, char *err, size_t len)
{
	static struct dcm_gc_host host;

	(void)ops;
	(void)priv;
	(void)err;
	(void)len;
	window = *backend;
	return &host;
}

uint64_t dcm_gc_host_features(const struct dcm_gc_host *gc)
{
	(void)gc;
	return 0;
}

void dcm_gc_host_config(struct dcm_gc_host *gc, struct virtio_gc_config *config)
{
	(void)gc;
	memset(config, 0, sizeof(*config));
}

uint64_t dcm_gc_host_budget(struct dcm_gc_host *gc)
{
	(void)gc;
	return 0;
}

void dcm_gc_host_start(struct dcm_gc_host *gc, uint64_t features)
{
	(void)gc;
	(void)features;
}

void dcm_gc_host_submit(struct dcm_gc_host *gc, const void *request,
			size_t bytes, size_t room, void *token)
{
	(void)gc;
	(void)request;
	(void)bytes;
	(void)room;
	(void)token;
}

void dcm_gc_host_reset(struct dcm_gc_host *gc)
{
	(void)gc;
}

void dcm_gc_host_close(struct dcm_gc_host *gc)
{
	(void)gc;
}

static int begin(void **state)
{
	char why[64];

	dcm_log_setup(DCM_LOG_ERR, -1);
	f.info.pages = 8192;
	f.info.extent_pages = 512;
	nr_asked = 0;
	device_goes = false;
	*state = hostd_window_new(&f, -1, 0, why, sizeof(why));
	return !*state;
}

static int end(void **state)
{
	hostd_window_free(*state);
	return 0;
}

static u32 spread(const int *list, u64 for_ms)
{
	answers = list;
	return window.ops->spread(window.priv, AT, END,
				  hostd_now_ns() / 1000000 + for_ms);
}

/* It goes on with what is left, in slices, until all of it is done. */
static void test_spread(void **state)
{
	static const int list[] = { ETIMEDOUT, ETIMEDOUT, 0, -1 };

	(void)state;
	assert_int_equal(spread(list, 60000), VIRTIO_GC_OK);
	assert_int_equal(nr_asked, 3);
	for (u32 i = 0; i < 3; i++) {
		assert_int_equal(cmd[i], DCMFS_IOC_SPREAD);
		assert_int_equal(asked[i].first, AT / 4096 + 256 * i);
		assert_int_equal(asked[i].pages, (END - AT) / 4096 - 256 * i);
		assert_int_equal(asked[i].flags, 0);
		assert_in_range(asked[i].limit_ms, 1, 500);
	}
}

/* No longer than it may take, nor after an error or the end of the device. */
static void test_spread_ends(void **state)
{
	static const int late[] = { ETIMEDOUT, -1 }, wrong[] = { EINVAL, -1 };

	(void)state;
	assert_int_equal(spread(late, 0), VIRTIO_GC_TIMED_OUT);
	assert_int_equal(nr_asked, 0);
	assert_int_equal(spread(wrong, 60000), VIRTIO_GC_TIMED_OUT);
	assert_int_equal(nr_asked, 1);
	device_goes = true;
	assert_int_equal(spread(late, 60000), VIRTIO_GC_TIMED_OUT);
	assert_int_equal(nr_asked, 2);
	assert_int_equal(spread(late, 60000), VIRTIO_GC_TIMED_OUT);
	assert_int_equal(nr_asked, 2);
}

/* Also when the device is gone: all of it, once. */
static void test_revert(void **state)
{
	static const int list[] = { 0, -1 };

	hostd_window_end(*state);
	answers = list;
	for (u32 keep = 0; keep < 2; keep++) {
		window.ops->revert(window.priv, AT, END, keep);
		assert_int_equal(nr_asked, keep + 1);
		assert_int_equal(cmd[keep], DCMFS_IOC_REVERT);
		assert_int_equal(asked[keep].first, AT / 4096);
		assert_int_equal(asked[keep].pages, (END - AT) / 4096);
		assert_int_equal(asked[keep].flags,
				 keep ? DCMFS_REVERT_KEEP : 0);
		assert_int_equal(asked[keep].limit_ms, 0);
	}
}

/* The primary that the kernel knows may be one that nobody has taken over. */
static void test_commands_wait_for_slabs_to_be_taken_over(void **state)
{
	(void)state;
	f.inherited = false;
	assert_true(window.ops->losing(window.priv));
	f.inherited = true;
	assert_false(window.ops->losing(window.priv));
}

/* It is what the kernel has when it is asked. */
static void test_budget(void **state)
{
	(void)state;
	kernel_budget = 8192;
	assert_int_equal(window.ops->budget(window.priv), 32ull << 20);
	kernel_budget = 4096;
	assert_int_equal(window.ops->budget(window.priv), 16ull << 20);
	kernel_budget = 0;
	assert_int_equal(window.ops->budget(window.priv), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_spread, begin, end),
		cmocka_unit_test_setup_teardown(test_spread_ends, begin, end),
		cmocka_unit_test_setup_teardown(test_revert, begin, end),
		cmocka_unit_test_setup_teardown(test_budget, begin, end),
		cmocka_unit_test_setup_teardown(
			test_commands_wait_for_slabs_to_be_taken_over, begin,
			end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

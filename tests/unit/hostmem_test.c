// SPDX-License-Identifier: GPL-2.0-or-later
/* links: donor-daemon/hostmem.c donor-daemon/config.c kvm-dcm/lib/file.c kvm-dcm/lib/ini.c kvm-dcm/lib/keyfile.c kvm-dcm/lib/value.c kvm-dcm/proto/wire.c */
/* hostmem_test.c - the host's memory, read from made-up /proc and cgroups */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "../../donor-daemon/hostmem.h"

#define GIB (1ull << 30)

static char root[64];

/* mkdir -p of the directory, then the file */
static void put(const char *path, const char *text)
{
	char full[512];
	FILE *f;

	snprintf(full, sizeof(full), "%s%s", root, path);
	for (char *p = full + strlen(root) + 1; *p; p++)
		if (*p == '/') {
			*p = 0;
			mkdir(full, 0700);
			*p = '/';
		}
	f = fopen(full, "w");
	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	fclose(f);
}

static int fresh(void **state)
{
	(void)state;
	snprintf(root, sizeof(root), "/tmp/dcm-hostmem-XXXXXX");
	assert_non_null(mkdtemp(root));
	put("/proc/meminfo", "MemTotal:       16777216 kB\n"
			     "MemFree:         1048576 kB\n"
			     "MemAvailable:    8388608 kB\n"
			     "Hugepagesize:       2048 kB\n");
	put("/proc/self/cgroup", "0::/a/b\n");
	return 0;
}

static int gone(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", root);
	return system(command);
}

static struct dcm_hostmem look(void)
{
	struct dcm_hostmem hm;

	assert_int_equal(dcm_hostmem_read(root, 0, &hm), 0);
	return hm;
}

static void test_host(void **state)
{
	struct dcm_hostmem hm = look();

	(void)state;
	assert_int_equal(hm.total, 16 * GIB);
	assert_int_equal(hm.free, 8 * GIB);
	assert_int_equal(dcm_hostmem_huge_default(root), 2 << 20);
}

/* CommitLimit limits free memory only with vm.overcommit_memory = 2. */
static void test_commit(void **state)
{
	(void)state;
	put("/proc/meminfo", "MemTotal:       16777216 kB\n"
			     "MemAvailable:    8388608 kB\n"
			     "CommitLimit:     8388608 kB\n"
			     "Committed_AS:    6291456 kB\n");
	put("/proc/sys/vm/overcommit_memory", "0\n");
	assert_int_equal(look().free, 8 * GIB);
	put("/proc/sys/vm/overcommit_memory", "2\n");
	assert_int_equal(look().free, 2 * GIB);
	assert_int_equal(look().total, 16 * GIB);
	/* more is committed than the limit, since before the kernel counted */
	put("/proc/meminfo", "MemTotal:       16777216 kB\n"
			     "MemAvailable:    8388608 kB\n"
			     "CommitLimit:     8388608 kB\n"
			     "Committed_AS:   33554432 kB\n");
	assert_int_equal(look().free, 0);
}

/* A limit anywhere on the way up binds; caches of the cgroup count as free. */
static void test_v2(void **state)
{
	struct dcm_hostmem hm;

	(void)state;
	put("/sys/fs/cgroup/a/memory.max", "4294967296\n");
	put("/sys/fs/cgroup/a/memory.current", "3221225472\n");
	put("/sys/fs/cgroup/a/memory.stat",
	    "anon 5\ninactive_file 1073741824\nactive_file 7\n");
	put("/sys/fs/cgroup/a/b/memory.max", "max\n");
	put("/sys/fs/cgroup/a/b/memory.current", "1073741824\n");
	hm = look();
	assert_int_equal(hm.total, 4 * GIB);
	assert_int_equal(hm.free, 2 * GIB);
	/* the inner one is tighter; high is where the kernel starts to reclaim */
	put("/sys/fs/cgroup/a/b/memory.high", "2147483648\n");
	hm = look();
	assert_int_equal(hm.total, 2 * GIB);
	assert_int_equal(hm.free, 1 * GIB);
	/* beyond its limit */
	put("/sys/fs/cgroup/a/b/memory.current", "9073741824\n");
	assert_int_equal(look().free, 0);
	/* one that binds later than the host itself does not count */
	put("/sys/fs/cgroup/a/b/memory.high", "max\n");
	put("/sys/fs/cgroup/a/memory.max", "1099511627776\n");
	hm = look();
	assert_int_equal(hm.total, 16 * GIB);
	assert_int_equal(hm.free, 8 * GIB);
}

static void test_v1(void **state)
{
	struct dcm_hostmem hm;

	(void)state;
	put("/proc/self/cgroup", "9:name=systemd:/\n4:memory:/x\n0::/\n");
	put("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "1073741824\n");
	put("/sys/fs/cgroup/memory/x/memory.usage_in_bytes", "536870912\n");
	put("/sys/fs/cgroup/memory/x/memory.stat", "total_inactive_file 0\n");
	put("/sys/fs/cgroup/memory/memory.limit_in_bytes",
	    "9223372036854771712\n");
	put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "536870912\n");
	hm = look();
	assert_int_equal(hm.total, GIB);
	assert_int_equal(hm.free, GIB / 2);
}

static void test_odd(void **state)
{
	struct dcm_hostmem hm;
	char path[600];

	(void)state;
	put("/proc/self/cgroup",
	    "garbage\n::\n0::/../../elsewhere\n4:memory\n");
	put("/sys/fs/cgroup/memory.max", "not a number\n");
	put("/sys/fs/cgroup/memory.current", "\n");
	assert_int_equal(look().free, 8 * GIB);
	memset(path, 'p', sizeof(path) - 1);
	path[sizeof(path) - 1] = 0;
	memcpy(path, "0::/", 4);
	put("/proc/self/cgroup", path);
	assert_int_equal(look().free, 8 * GIB);
	put("/proc/meminfo", "nothing\n");
	assert_int_equal(dcm_hostmem_read(root, 0, &hm), -EINVAL);
	assert_int_equal(dcm_hostmem_read("/nonexistent", 0, &hm), -ENOENT);
	assert_int_equal(dcm_hostmem_huge_default(root), 0);
}

static void test_huge(void **state)
{
	struct dcm_hostmem hm;

	(void)state;
	assert_int_equal(dcm_hostmem_read(root, 2 << 20, &hm), -ENOENT);
#define DIR "/sys/kernel/mm/hugepages/hugepages-2048kB/"
	put(DIR "nr_hugepages", "10\n");
	put(DIR "free_hugepages", "7\n");
	put(DIR "resv_hugepages", "2\n");
#undef DIR
	assert_int_equal(dcm_hostmem_read(root, 2 << 20, &hm), 0);
	assert_int_equal(hm.total, 20 << 20);
	assert_int_equal(hm.free, 10 << 20);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, fresh, gone)
	const struct CMUnitTest tests[] = {
		T(test_host), T(test_commit), T(test_v2),
		T(test_v1),   T(test_odd),    T(test_huge),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

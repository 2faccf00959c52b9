// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * basics.c - a dcmfs file's calls, one by one
 *
 * Each has a name that is printed when it passed.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dcmfs_test.h"

#define SIZE (16u << 20)
#define SOME 512u /* pages, a quarter of the budget */
#define MAPPED(fd) map_shared(fd, SIZE)

static const char *dir;
static int make(off_t size)
{
	return file_make(dir, size);
}

static void sizes(void)
{
	int fd = open(dir, O_TMPFILE | O_RDWR, 0600);
	struct stat st;
	char *m;

	expect(ftruncate(fd, 100), EINVAL, "a size of 100 bytes");
	expect(ftruncate(fd, 1ll << 44), EFBIG, "16 TiB");
	expect(ftruncate(fd, (1ll << 44) - 2 * PAGE), EFBIG,
	       "8 million extents");
	m = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
	if (readable(m))
		fail("a page of an empty file");
	munmap(m, PAGE);
	if (ftruncate(fd, SIZE) || fstat(fd, &st) || st.st_size != SIZE)
		fail("size");
	expect(ftruncate(fd, 2 * (off_t)SIZE), EFBIG, "growing");
	m = map_shared(fd, 2 * SIZE);
	memset(m, 1, SIZE);
	if (readable(m + SIZE))
		fail("a page past the end");
	if (ftruncate(fd, SIZE / 2))
		fail("shrinking");
	if (readable(m + SIZE / 2) || !readable(m + SIZE / 2 - PAGE))
		fail("the end after shrinking");
	if (ftruncate(fd, SIZE) || m[SIZE / 2] || m[SIZE - 1] || m[0] != 1)
		fail("what was cut off is zero");
	munmap(m, 2 * SIZE);
	close(fd);
}

static void holes(void)
{
	const int hole = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
	int fd = make(SIZE);
	char *m = MAPPED(fd);
	uint64_t before;
	size_t i;

	memset(m, 7, SIZE / 2);
	expect(fallocate(fd, 0, 0, PAGE), EOPNOTSUPP, "fallocate");
	expect(fallocate(fd, hole, 1, PAGE), EINVAL, "hole at byte 1");
	expect(fallocate(fd, hole, 0, 100), EINVAL, "hole of 100 bytes");
	before = info_of(fd).frames;
	if (fallocate(fd, hole, 3 * PAGE, 5 * PAGE) ||
	    fallocate(fd, hole, SIZE / 4, 2 * (off_t)SIZE))
		fail("hole: %s", strerror(errno));
	if (info_of(fd).frames >= before)
		fail("a hole frees no memory");
	for (i = 0; i < SIZE / 2; i += PAGE)
		if (m[i] !=
		    (i < 3 * PAGE || (i >= 8 * PAGE && i < SIZE / 4) ? 7 : 0))
			fail("byte %zu is %d", i, m[i]);
	if (madvise(m, PAGE, MADV_REMOVE) || m[0])
		fail("MADV_REMOVE");
	munmap(m, SIZE);
	close(fd);
}

static void mappers(void)
{
	int fd = make(SIZE), status;
	char *a = MAPPED(fd), *b = MAPPED(fd);
	pid_t pid;

	a[5] = 1;
	if (b[5] != 1)
		fail("two mappings differ");
	pid = fork();
	if (!pid) {
		a[5]++;
		b[PAGE] = 9;
		_exit(b[5] == 2 ? 0 : 1);
	}
	if (waitpid(pid, &status, 0) != pid || status)
		fail("child");
	if (b[5] != 2 || a[PAGE] != 9)
		fail("a child's writes are not seen");
	if (mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0) !=
	    MAP_FAILED)
		fail("a private mapping");
	if (mmap(NULL, PAGE, PROT_READ, MAP_SHARED | MAP_LOCKED, fd, 0) !=
	    MAP_FAILED)
		fail("MAP_LOCKED");
	if (mprotect(a, SIZE, PROT_READ) || a[5] != 2 ||
	    mprotect(a, SIZE, PROT_READ | PROT_WRITE))
		fail("mprotect");
	a[5] = 3;
	a = mremap(a, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, b);
	if (a == MAP_FAILED || a[5] != 3)
		fail("mremap");
	close(fd);
	a[6] = 1;
	munmap(a, SIZE);
}

/* Twice the budget, to a slab and back. */
static void paging(void)
{
	int fd = make(SIZE);
	char *m = MAPPED(fd);
	struct control c;
	size_t i;

	control_open(&c, fd);
	if (control_budget(&c, SIZE / PAGE / 2))
		fail("budget");
	if (control_budget(&c, 1) != ERANGE)
		fail("a budget of one page");
	for (i = 0; i < SIZE; i += PAGE) {
		/* Its first half fits; then somebody has to give slabs. */
		if (i == SIZE / 4) {
			pid_t pid = fork();

			if (!pid) {
				for (;;)
					control_serve(&c, 10);
			}
			c.next_id = (uint64_t)pid;
		}
		*(size_t *)(m + i) = i + 1;
	}
	for (i = 0; i < SIZE; i += PAGE)
		if (*(size_t *)(m + i) != i + 1)
			fail("page %zu holds %zu", i / PAGE,
			     *(size_t *)(m + i));
	c.info = info_of(fd);
	if (c.info.direct_pages > c.info.budget_pages)
		fail("%ju pages direct of %ju", (uintmax_t)c.info.direct_pages,
		     (uintmax_t)c.info.budget_pages);
	kill((pid_t)c.next_id, SIGKILL);
	waitpid((pid_t)c.next_id, NULL, 0);
	munmap(m, SIZE);
	close(fd);
}

/* A slab is lost: an error, not zeroes; what was direct stays. */
static void loss(void)
{
	int fd = make(SIZE);
	char *m = MAPPED(fd);
	size_t i, right = 0, lost = 0;
	struct control c;
	pid_t pid;
	int status;

	control_open(&c, fd);
	if (control_budget(&c, SIZE / PAGE / 2))
		fail("budget");
	pid = fork();
	if (!pid) {
		for (i = 0; i < SIZE; i += PAGE)
			*(size_t *)(m + i) = i + 1;
		_exit(0);
	}
	while (!waitpid(pid, &status, WNOHANG))
		control_serve(&c, 10);
	for (i = 0; i < c.info.extents; i++)
		control_lose(&c, (uint32_t)i);
	for (i = 0; i < SIZE; i += PAGE) {
		if (!readable(m + i))
			lost++;
		else if (*(size_t *)(m + i) == i + 1)
			right++;
		else
			fail("page %zu holds %zu", i / PAGE,
			     *(size_t *)(m + i));
	}
	if (!lost || !right || info_of(fd).lost_pages != lost)
		fail("%zu pages right, %zu lost, %ju told", right, lost,
		     (uintmax_t)info_of(fd).lost_pages);
	if (write(memfd_create("x", 0), m, SIZE) == SIZE)
		fail("a system call read lost memory");
	if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, SIZE))
		fail("hole");
	for (i = 0; i < SIZE; i += PAGE)
		if (m[i])
			fail("a hole in lost memory");
	munmap(m, SIZE);
	close(fd);
}

static pid_t child(void (*run)(int, char *), int fd, char *m)
{
	pid_t pid = fork();

	if (pid < 0)
		fail("fork: %s", strerror(errno));
	if (!pid) {
		run(fd, m);
		_exit(0);
	}
	return pid;
}

static void fill(int fd, char *m)
{
	(void)fd;
	memset(m, 1, SIZE);
}

static void read_all(int fd, char *m)
{
	size_t i;

	(void)fd;
	for (i = 0; i < SIZE; i += PAGE)
		readable(m + i);
}

static void punch_all(int fd, char *m)
{
	(void)m;
	if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, SIZE))
		fail("hole: %s", strerror(errno));
}

/*
 * Slabs cut off by their donor: a fetch can't end, and a hole waits for it.
 * Neither may keep the control plane from saying that they are lost, which
 * ends both.
 */
static void cut_off(void)
{
	int fd = make(SIZE), status;
	char *m = MAPPED(fd);
	struct control c;
	pid_t pid[2];
	uint32_t e;

	control_open(&c, fd);
	if (control_budget(&c, SIZE / PAGE / 2))
		fail("budget");
	pid[0] = child(fill, fd, m);
	while (!waitpid(pid[0], &status, WNOHANG))
		control_serve(&c, 10);
	for (e = 0; e < c.info.extents; e++)
		if (c.slab[e] && ftruncate(c.file[e], 0))
			fail("ftruncate");
	pid[0] = child(read_all, fd, m);
	usleep(300000);
	pid[1] = child(punch_all, fd, m);
	usleep(300000);
	if (waitpid(pid[0], &status, WNOHANG))
		fail("a slab that is cut off was read");
	if (control_budget(&c, SIZE / PAGE))
		fail("budget");
	for (e = 0; e < c.info.extents; e++)
		control_lose(&c, e);
	if (waitpid(pid[0], &status, 0) != pid[0] || status ||
	    waitpid(pid[1], &status, 0) != pid[1] || status)
		fail("a child ended with %#x", status);
	punch_all(fd, m);
	munmap(m, SIZE);
	close(fd);
}

/* Wrong sizes, flags, pointers, files that are not ours. */
static void requests(void)
{
	int fd = make(SIZE), empty = make(0), other = memfd_create("x", 0);
	struct dcmfs_slab s = { .extent = 0, .fd = other, .id = 1 };
	struct dcmfs_tune t = { .name = "epsilon", .value = 20000 };
	struct dcmfs_wanted w = { .first = 99 };
	struct dcmfs_info i;

	expect(ioctl(empty, DCMFS_IOC_INFO, &i), ENODATA, "no size");
	expect(ioctl(fd, DCMFS_IOC_INFO, (void *)8), EFAULT, "bad pointer");
	expect(ioctl(fd, _IO(0xDC, 0x63), 0), ENOTTY, "no such request");
	expect(ioctl(other, DCMFS_IOC_INFO, &i), ENOTTY, "not ours");
	expect(ioctl(fd, DCMFS_IOC_WANTED, &w), ENOENT, "extent 99");
	expect(ioctl(fd, DCMFS_IOC_TUNE, &t), ERANGE, "out of bounds");
	memset(t.name, 'x', sizeof(t.name));
	expect(ioctl(fd, DCMFS_IOC_TUNE, &t), EINVAL, "name without an end");
	strcpy(t.name, "nonsense");
	expect(ioctl(fd, DCMFS_IOC_TUNE, &t), ENOENT, "no such tunable");
	expect(ioctl(fd, DCMFS_IOC_ATTACH, &s), EINVAL, "a small slab");
	if (ftruncate(other, 1 << 30))
		fail("ftruncate");
	s.extent = 1000;
	expect(ioctl(fd, DCMFS_IOC_ATTACH, &s), EINVAL, "extent 1000");
	s.extent = 0;
	s.flags = 1;
	expect(ioctl(fd, DCMFS_IOC_ATTACH, &s), EINVAL, "a flag");
	s.flags = 0;
	s.id = 0;
	expect(ioctl(fd, DCMFS_IOC_ATTACH, &s), EINVAL, "id 0");
	s.id = 1;
	s.fd = fd;
	expect(ioctl(fd, DCMFS_IOC_ATTACH, &s), EINVAL, "itself as a slab");
	s.fd = 9999;
	expect(ioctl(fd, DCMFS_IOC_ATTACH, &s), EBADF, "no file");
	s.fd = other;
	if (ioctl(fd, DCMFS_IOC_ATTACH, &s))
		fail("attach: %s", strerror(errno));
	expect(ioctl(fd, DCMFS_IOC_ATTACH, &s), EEXIST, "the same id");
	s.fd = -1;
	s.id = 2;
	expect(ioctl(fd, DCMFS_IOC_DETACH, &s), ENOENT, "no such slab");
	s.id = 1;
	if (ioctl(fd, DCMFS_IOC_DETACH, &s))
		fail("detach: %s", strerror(errno));
	if (setresuid(1000, 1000, 0))
		fail("setresuid");
	expect(ioctl(fd, DCMFS_IOC_TUNE, &t), EPERM, "not root");
	if (ioctl(fd, DCMFS_IOC_INFO, &i))
		fail("anybody may look");
	if (setresuid(0, 0, 0))
		fail("setresuid");
	close(other);
	close(empty);
	close(fd);
}

/* Killed while it waits for a slab that never comes. */
static void killed(void)
{
	int fd = make(SIZE), status;
	char *m = MAPPED(fd);
	struct control c;
	pid_t pid;

	control_open(&c, fd);
	if (control_budget(&c, c.info.min_budget_pages))
		fail("budget");
	pid = fork();
	if (!pid) {
		memset(m, 1, SIZE);
		_exit(0);
	}
	usleep(500000);
	if (waitpid(pid, &status, WNOHANG))
		fail("it did not wait for a slab");
	kill(pid, SIGKILL);
	if (waitpid(pid, &status, 0) != pid || !WIFSIGNALED(status))
		fail("not killed: %#x", status);
	munmap(m, SIZE);
	close(fd);
}

static void file_system(void)
{
	char name[256], other[256];
	struct statfs st;
	int fd;

	if (statfs(dir, &st) || st.f_type != DCMFS_MAGIC)
		fail("statfs");
	snprintf(name, sizeof(name), "%s/sub", dir);
	if (mkdir(name, 0700))
		fail("mkdir: %s", strerror(errno));
	expect(mkdir(name, 0700), EEXIST, "mkdir twice");
	snprintf(name, sizeof(name), "%s/sub/ram", dir);
	snprintf(other, sizeof(other), "%s/ram2", dir);
	fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
	if (fd < 0 || ftruncate(fd, SIZE) || rename(name, other))
		fail("create: %s", strerror(errno));
	if (read(fd, name, 1) != -1 || write(fd, name, 1) != -1)
		fail("read() or write()");
	if (unlink(other))
		fail("unlink");
	/* Unlinked and still there. */
	MAPPED(fd)[0] = 1;
	close(fd);
	snprintf(name, sizeof(name), "%s/sub", dir);
	if (rmdir(name))
		fail("rmdir: %s", strerror(errno));
}

static long read_some(volatile const char *m)
{
	long before = majors();
	size_t i;

	for (i = 0; i < SOME * PAGE; i += PAGE)
		(void)m[i];
	return majors() - before;
}

/* Fetches, and nothing else, count as major faults. */
static void major_faults(void)
{
	int fd = make(SIZE);
	char *m = MAPPED(fd), *other = MAPPED(fd);
	struct control c;
	long n;
	uint32_t e;

	control_open(&c, fd);
	/* Each block waits for a donor: none is brought in ahead. */
	control_tune(&c, "stream", 0);
	if (control_budget(&c, SIZE / PAGE / 2))
		fail("budget");
	for (e = 0; e < c.info.extents; e++)
		control_provide(&c, e);
	n = majors();
	memset(m, 1, SIZE);
	if (majors() != n)
		fail("%ld of new pages", majors() - n);
	control_squeeze(&c);
	/* A fault brings a block of 64 KiB at most; a few pages stayed. */
	n = read_some(m);
	if (n < (long)SOME / 16 - 4 || n > (long)SOME)
		fail("%ld for %u pages", n, SOME);
	n = read_some(m) + read_some(other);
	if (n)
		fail("%ld of pages that are here", n);
	munmap(other, SIZE);
	munmap(m, SIZE);
	close(fd);
}

static const struct check list[] = {
	{ "file system", file_system },
	{ "sizes", sizes },
	{ "holes", holes },
	{ "mappers", mappers },
	{ "requests", requests },
	{ "paging", paging },
	{ "loss", loss },
	{ "killed", killed },
	{ "cut off", cut_off },
	{ "major faults", major_faults },
};

/* basics DIR */
int basics(int argc, char **argv)
{
	(void)argc;
	dir = argv[2];
	run_checks(list, sizeof(list) / sizeof(list[0]));
	return 0;
}

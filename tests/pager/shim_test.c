// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * shim_test.c - a program that knows nothing of libdcm, run under its shim
 *
 * Maps, remaps, protects, advises, unmaps and forks in the ways programs and
 * allocators do, and checks every byte. The same run without the shim must
 * give the same result: a difference is a bug of the shim.
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../framework/expect.h"

#define PAGE	4096ul
#define MIB	(1ul << 20)

/* The call fails, for this reason. */
#define REFUSED(call, why)                                               \
	do {                                                             \
		errno = 0;                                               \
		EXPECT((call) == MAP_FAILED);                             \
		if (errno != (why)) {                                    \
			fprintf(stderr, "FAILED line %d: %s (not %s)\n", \
				__LINE__, strerror(errno), #why);        \
			exit(1);                                         \
		}                                                        \
	} while (0)

static char *anon(size_t bytes)
{
	char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	EXPECT(p != MAP_FAILED);
	return p;
}

static void fill(char *p, size_t bytes, unsigned int salt)
{
	size_t i;

	for (i = 0; i < bytes; i += PAGE) {
		*(uint64_t *)(p + i) = i + salt;
		*(uint64_t *)(p + i + PAGE - 8) = ~(i + salt);
	}
}

static void check(const char *p, size_t bytes, size_t from, unsigned int salt)
{
	size_t i;

	for (i = 0; i < bytes; i += PAGE) {
		EXPECT(*(uint64_t *)(p + i) == from + i + salt);
		EXPECT(*(uint64_t *)(p + i + PAGE - 8) == ~(from + i + salt));
	}
}

static void zero(const char *p, size_t bytes)
{
	size_t i;

	for (i = 0; i < bytes; i += 8)
		EXPECT(!*(uint64_t *)(p + i));
}

static void maps(void)
{
	char *a = anon(96 * MIB), *b = anon(3 * MIB + 5 * PAGE), *c;

	zero(a, 4 * MIB);
	fill(a, 96 * MIB, 1);
	fill(b, 3 * MIB, 2);
	check(a, 96 * MIB, 0, 1);
	/* middle, end, beginning */
	EXPECT(!munmap(a + 10 * MIB + 3 * PAGE, 2 * MIB));
	EXPECT(!munmap(a + 90 * MIB, 6 * MIB));
	EXPECT(!munmap(a, MIB));
	check(a + MIB, 9 * MIB, MIB, 1);
	check(a + 12 * MIB + 3 * PAGE, 70 * MIB, 12 * MIB + 3 * PAGE, 1);
	/* memory mapped again is zero */
	c = anon(2 * MIB);
	zero(c, 2 * MIB);
	fill(c, 2 * MIB, 3);
	check(b, 3 * MIB, 0, 2);
	check(c, 2 * MIB, 0, 3);
	EXPECT(!munmap(b, 3 * MIB + 5 * PAGE));
	EXPECT(!munmap(c, 2 * MIB));
	EXPECT(!munmap(a + MIB, 89 * MIB));
}

static void over(void)
{
	char *a = anon(16 * MIB), *p;
	char path[] = "/tmp/dcm-shim-XXXXXX";
	int fd = mkstemp(path);

	EXPECT(fd >= 0 && !unlink(path) && !ftruncate(fd, MIB));
	EXPECT(pwrite(fd, "file", 4, 0) == 4);
	fill(a, 16 * MIB, 4);
	/* a file over one part, private anonymous memory over another */
	p = mmap(a + 3 * PAGE, 2 * PAGE, PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_FIXED, fd, 0);
	EXPECT(p == a + 3 * PAGE && !memcmp(p, "file", 4));
	p = mmap(a + 4 * MIB, 2 * MIB, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	EXPECT(p == a + 4 * MIB);
	zero(p, 2 * MIB);
	check(a, 3 * PAGE, 0, 4);
	check(a + 5 * PAGE, 3 * MIB, 5 * PAGE, 4);
	check(a + 6 * MIB, 10 * MIB, 6 * MIB, 4);
	EXPECT(!munmap(a, 16 * MIB));
	close(fd);
	/* and the addresses can be had again */
	a = anon(16 * MIB);
	zero(a, 16 * MIB);
	EXPECT(!munmap(a, 16 * MIB));
}

/* Calls that fail on @bytes of paged memory at @p. */
static void fail_over(char *p, size_t bytes, int read_only)
{
	size_t half = bytes / 2, all = ~0ul - PAGE + 1;
	int rw = PROT_READ | PROT_WRITE, fixed = MAP_PRIVATE | MAP_FIXED;
	char *other = anon(2 * PAGE), *mid = p + half;

	fill(other, 2 * PAGE, 13);
	/* no such descriptor, no such access, offset, length, flags, place */
	REFUSED(mmap(mid, MIB, rw, fixed, -1, 0), EBADF);
	REFUSED(mmap(p, bytes, rw, fixed, 1 << 20, 0), EBADF);
	REFUSED(mmap(mid, MIB, rw, MAP_SHARED | MAP_FIXED, read_only, 0),
		EACCES);
	REFUSED(mmap(mid, MIB, rw, fixed, read_only, 7), EINVAL);
	REFUSED(mmap(mid, MIB, rw, fixed | MAP_ANONYMOUS, -1, 7), EINVAL);
	REFUSED(mmap(mid, 0, rw, fixed | MAP_ANONYMOUS, -1, 0), EINVAL);
	REFUSED(mmap(mid, ~0ul, rw, fixed | MAP_ANONYMOUS, -1, 0), ENOMEM);
	REFUSED(mmap(mid, all, rw, fixed | MAP_ANONYMOUS, -1, 0), ENOMEM);
	REFUSED(mmap(mid, MIB, rw, MAP_ANONYMOUS | MAP_FIXED, -1, 0), EINVAL);
	REFUSED(mmap(mid + 1, MIB, rw, fixed | MAP_ANONYMOUS, -1, 0), EINVAL);
	/* mremap() onto the memory, and of the memory */
	REFUSED(mremap(other, PAGE, PAGE, MREMAP_FIXED, mid), EINVAL);
	REFUSED(mremap(other, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
		       mid + 1),
		EINVAL);
	REFUSED(mremap(other, PAGE, ~0ul, MREMAP_MAYMOVE | MREMAP_FIXED, mid),
		EINVAL);
	REFUSED(mremap(p, bytes, 0, MREMAP_MAYMOVE), EINVAL);
	REFUSED(mremap(p, bytes, ~0ul, MREMAP_MAYMOVE), EINVAL);
	REFUSED(mremap(p, bytes, MIB, MREMAP_MAYMOVE | 1 << 20), EINVAL);
	REFUSED(mremap(p, MIB, MIB, MREMAP_MAYMOVE | MREMAP_FIXED, p + PAGE),
		EINVAL);
	REFUSED(mremap(p, half, half, MREMAP_FIXED, mid), EINVAL);
	REFUSED((void *)(long)munmap(mid, 0), EINVAL);
	REFUSED((void *)(long)munmap(mid + 1, MIB), EINVAL);
	check(other, 2 * PAGE, 0, 13);
	EXPECT(!munmap(other, 2 * PAGE));
}

/* As many mappings as a process may have: nothing more can be cut in two. */
static char *use_up_mappings(size_t bytes)
{
	char *p = mmap(NULL, bytes, PROT_NONE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	size_t i;

	EXPECT(p != MAP_FAILED);
	for (i = 0; i < bytes; i += 2 * PAGE)
		if (mprotect(p + i, PAGE, PROT_READ))
			break;
	if (i < bytes)
		return p;
	fprintf(stderr, "vm.max_map_count is too high to be reached here\n");
	EXPECT(!munmap(p, bytes));
	return NULL;
}

/* Memory is as before a call that fails, whether paged by half or by all. */
static void failures(void)
{
	size_t bytes = 40 * MIB, spare = 1ul << 30, i;
	char *a = anon(bytes), *hole, *b, *p;
	char path[] = "/tmp/dcm-shim-XXXXXX";
	int fd = mkstemp(path), read_only = open(path, O_RDONLY);

	EXPECT(fd >= 0 && read_only >= 0 && !unlink(path));
	EXPECT(!ftruncate(fd, MIB) && pwrite(fd, "file", 4, 0) == 4);
	fill(a, bytes, 10);
	fail_over(a, bytes, read_only);
	check(a, bytes, 0, 10);
	/* paged memory in the middle of memory that is not paged */
	hole = mmap(NULL, 16 * MIB, PROT_READ,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	EXPECT(hole != MAP_FAILED);
	b = mmap(hole + 4 * MIB, 8 * MIB, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	EXPECT(b == hole + 4 * MIB);
	fill(b, 8 * MIB, 11);
	fail_over(b, 8 * MIB, read_only);
	REFUSED(mmap(hole, 16 * MIB, PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_FIXED, read_only, 0),
		EACCES);
	check(a, bytes, 0, 10);
	check(b, 8 * MIB, 0, 11);
	zero(hole, 4 * MIB);

	p = use_up_mappings(spare);
	if (p) {
		REFUSED((void *)(long)munmap(b + MIB, MIB), ENOMEM);
		REFUSED(mmap(b + MIB, MIB, PROT_READ,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
			ENOMEM);
		REFUSED(mmap(a + MIB, MIB, PROT_READ,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
			ENOMEM);
		REFUSED(mmap(a + MIB, MIB, PROT_READ, MAP_SHARED | MAP_FIXED,
			     fd, 0),
			ENOMEM);
		check(b, 8 * MIB, 0, 11);
		check(a, bytes, 0, 10);
		EXPECT(!munmap(p, spare));
	}

	/* After the failures all memory can be written, and the same calls work. */
	fill(a, bytes, 12);
	fill(b, 8 * MIB, 12);
	for (i = 0; i < 200; i++) {
		size_t at = (1 + i % 30) * MIB, n = (1 + i % 5) * PAGE;

		p = mmap(a + at, n, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0);
		EXPECT(p == a + at && !memcmp(p, "file", 4));
		p = mmap(a + at, n, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		EXPECT(p == a + at);
		zero(p, n);
		fill(p, n, 12 + (unsigned int)at);
	}
	check(a, MIB, 0, 12);
	check(a + 31 * MIB, 9 * MIB, 31 * MIB, 12);
	/* an ordinary page takes the place of one that is paged */
	p = anon(PAGE);
	fill(p, PAGE, 14);
	EXPECT(mremap(p, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
		     b + 2 * MIB) == b + 2 * MIB);
	check(b + 2 * MIB, PAGE, 0, 14);
	check(b, 2 * MIB, 0, 12);
	check(b + 2 * MIB + PAGE, 5 * MIB, 2 * MIB + PAGE, 12);
	EXPECT(!munmap(b + MIB, 3 * MIB));
	check(b, MIB, 0, 12);
	check(b + 4 * MIB, 4 * MIB, 4 * MIB, 12);
	EXPECT(!munmap(a, bytes));
	EXPECT(!munmap(hole, 16 * MIB));
	close(fd);
	close(read_only);
}

static void remaps(void)
{
	char *a = anon(8 * MIB), *b;

	fill(a, 8 * MIB, 5);
	b = mremap(a, 8 * MIB, 40 * MIB, MREMAP_MAYMOVE);
	EXPECT(b != MAP_FAILED);
	check(b, 8 * MIB, 0, 5);
	zero(b + 8 * MIB, 32 * MIB);
	b = mremap(b, 40 * MIB, 4 * MIB, 0);
	EXPECT(b != MAP_FAILED);
	check(b, 4 * MIB, 0, 5);
	EXPECT(!munmap(b, 4 * MIB));
}

static void advice(void)
{
	char *a = anon(8 * MIB);

	fill(a, 8 * MIB, 6);
	EXPECT(!madvise(a + 5 * PAGE, MIB, MADV_DONTNEED));
	zero(a + 5 * PAGE, MIB);
	check(a, 5 * PAGE, 0, 6);
	check(a + 5 * PAGE + MIB, 6 * MIB, 5 * PAGE + MIB, 6);
	EXPECT(!madvise(a, 8 * MIB, MADV_WILLNEED));
	EXPECT(!madvise(a, 8 * MIB, MADV_HUGEPAGE));
	EXPECT(!madvise(a, 8 * MIB, MADV_MERGEABLE) || errno == EINVAL);
	EXPECT(!madvise(a, 8 * MIB, MADV_DONTFORK));
	EXPECT(!madvise(a, 8 * MIB, MADV_DOFORK));
	check(a, 5 * PAGE, 0, 6);
	EXPECT(!munmap(a, 8 * MIB));
}

static sigjmp_buf segv;

static void on_segv(int sig)
{
	siglongjmp(segv, sig);
}

static void protection(void)
{
	char *a = anon(48 * MIB);

	signal(SIGSEGV, on_segv);
	fill(a, 48 * MIB, 7);
	EXPECT(!mprotect(a + 3 * PAGE, PAGE, PROT_NONE));
	EXPECT(!mprotect(a + 7 * PAGE, MIB, PROT_READ));
	if (!sigsetjmp(segv, 1)) {
		(void)*(volatile char *)(a + 3 * PAGE);
		EXPECT(!"read what may not be");
	}
	if (!sigsetjmp(segv, 1)) {
		*(volatile char *)(a + 8 * PAGE) = 1;
		EXPECT(!"wrote what may not be");
	}
	check(a + 4 * PAGE, 44 * MIB, 4 * PAGE, 7);
	check(a + 4 * PAGE, 44 * MIB, 4 * PAGE, 7);
	EXPECT(!mprotect(a, 48 * MIB, PROT_READ | PROT_WRITE));
	check(a, 48 * MIB, 0, 7);
	EXPECT(!mprotect(a, 2 * MIB, PROT_NONE));
	EXPECT(!munmap(a, 48 * MIB));
	a = anon(48 * MIB);
	zero(a, 3 * MIB);
	EXPECT(!munmap(a, 48 * MIB));
	signal(SIGSEGV, SIG_DFL);
}

static void system_calls(void)
{
	char *a = anon(64 * MIB), *b = anon(2 * MIB);
	char path[] = "/var/tmp/dcm-shim-XXXXXX";
	int fd = mkstemp(path), direct;

	EXPECT(fd >= 0);
	direct = open(path, O_RDWR | O_DIRECT);
	if (direct < 0)
		direct = dup(fd);
	EXPECT(!unlink(path));
	fill(a, 64 * MIB, 8);
	EXPECT(pwrite(direct, a, 32 * MIB, 0) == (ssize_t)(32 * MIB));
	fill(a, 64 * MIB, 9);
	EXPECT(pread(direct, a, 32 * MIB, 0) == (ssize_t)(32 * MIB));
	check(a, 32 * MIB, 0, 8);
	check(a + 32 * MIB, 32 * MIB, 32 * MIB, 9);
	EXPECT(pread(fd, b, 2 * MIB, MIB) == (ssize_t)(2 * MIB));
	check(b, 2 * MIB, MIB, 8);
	EXPECT(!munmap(a, 64 * MIB) && !munmap(b, 2 * MIB));
	close(fd);
	close(direct);
}

static void *thread_main(void *arg)
{
	char *own = anon(4 * MIB);
	size_t i;
	void *p[64];

	fill(own, 4 * MIB, 20);
	for (i = 0; i < 64; i++) {
		p[i] = malloc((i + 1) * 1000);
		EXPECT(p[i]);
		memset(p[i], (int)i, (i + 1) * 1000);
	}
	check(own, 4 * MIB, 0, 20);
	for (i = 0; i < 64; i++) {
		EXPECT(((char *)p[i])[i * 1000] == (char)i);
		EXPECT(malloc_usable_size(p[i]) >= (i + 1) * 1000);
		p[i] = realloc(p[i], 5000 + i);
		EXPECT(p[i] && ((char *)p[i])[0] == (char)i);
		free(p[i]);
	}
	EXPECT(!munmap(own, 4 * MIB));
	over();
	return arg;
}

/* Threads that live on paged stacks, and give memory back from there. */
static void threads(void)
{
	pthread_t t[4];
	pthread_attr_t attr;
	char *stack = anon(4 * MIB);
	int i;

	for (i = 0; i < 4; i++) {
		EXPECT(!pthread_attr_init(&attr));
		EXPECT(!pthread_attr_setstack(&attr, stack + (size_t)i * MIB,
					     MIB));
		EXPECT(!pthread_create(&t[i], &attr, thread_main, NULL));
	}
	for (i = 0; i < 4; i++)
		EXPECT(!pthread_join(t[i], NULL));
	EXPECT(!munmap(stack, 4 * MIB));
}

static void children(void)
{
	int st;
	pid_t pid = vfork();
	FILE *f;
	char line[64] = "";

	if (!pid) {
		execl("/bin/true", "true", (char *)NULL);
		_exit(126);
	}
	EXPECT(pid > 0 && waitpid(pid, &st, 0) == pid && !st);
	f = popen("echo a child", "r");
	EXPECT(f && fgets(line, sizeof(line), f));
	EXPECT(!strcmp(line, "a child\n") && !pclose(f));
	EXPECT(!system("exit 0"));
	fflush(NULL);
	/* A paged heap is not there in the child: not even its locks. */
	if (getenv("SHIM_TEST_PAGED_HEAP"))
		return;
	pid = fork();
	if (!pid)
		_exit(7);
	EXPECT(pid > 0 && waitpid(pid, &st, 0) == pid);
	EXPECT(WIFEXITED(st) && WEXITSTATUS(st) == 7);
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "child")) {
		char *a = anon(2 * MIB);
		int st;
		pid_t pid;

		a[0] = 1;
		pid = fork();
		if (!pid)
			_exit(a[0]);
		EXPECT(waitpid(pid, &st, 0) == pid);
		EXPECT(WIFSIGNALED(st) && WTERMSIG(st) == SIGSEGV);
		return 0;
	}
	if (argc > 1 && !strcmp(argv[1], "failures")) {
		failures();
		printf("all right\n");
		return 0;
	}
	maps();
	over();
	remaps();
	advice();
	protection();
	system_calls();
	threads();
	children();
	printf("all right\n");
	return 0;
}

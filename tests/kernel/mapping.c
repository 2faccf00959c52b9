// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * mapping.c - what can be done with a mapping of a dcmfs file
 *
 * The checks that the kernel's own mm selftests and xfstests make of a shared mapping
 * of a file, for a file whose pages leave meanwhile. mapping_file.c has the checks
 * that change the file itself.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mapping.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* a C library of before 6.1 has it not */
#endif

const char *dir;
struct control control;
int fd;

uint64_t *word_of(char *m, uint64_t page)
{
	return (uint64_t *)(m + page * PAGE);
}

char *fresh(void)
{
	char *m = control_map(&control, dir, SIZE);
	uint64_t p;

	/* Pages in the page table are counted; this would hide some now and then. */
	control_tune(&control, "reuse", 0);
	fd = control.fd;
	for (p = 0; p < PAGES; p++)
		*word_of(m, p) = p + 1;
	return m;
}

void holds(char *m, uint64_t first, uint64_t end)
{
	uint64_t p;

	for (p = first; p < end; p++)
		if (*word_of(m, p) != p + 1)
			fail("page %ju holds %ju", (uintmax_t)p,
			     (uintmax_t)*word_of(m, p));
}

void done(char *m)
{
	holds(m, 0, PAGES);
	control_squeeze(&control);
	holds(m, 0, PAGES);
	control_unmap(&control, m, SIZE);
}

static uint64_t resident(char *m)
{
	unsigned char there[PAGES];
	uint64_t n = 0, p;

	if (mincore(m, SIZE, there))
		fail("mincore: %s", strerror(errno));
	for (p = 0; p < PAGES; p++)
		n += there[p] & 1;
	return n;
}

static void populate(void)
{
	char *m = fresh(), *all;

	control_squeeze(&control);
	if (resident(m) > 512)
		fail("%ju pages stay", (uintmax_t)resident(m));
	all = mmap(NULL, SIZE, PROT_READ | PROT_WRITE,
		   MAP_SHARED | MAP_POPULATE, fd, 0);
	if (all == MAP_FAILED || resident(all) != PAGES)
		fail("MAP_POPULATE: %ju pages", (uintmax_t)resident(all));
	holds(all, 0, PAGES);
	munmap(all, SIZE);
	done(m);
}

static void populated(char *m, int advice, const char *name)
{
	uint64_t n;

	if (madvise(m, SIZE, advice))
		fail("%s: %s", name, strerror(errno));
	n = resident(m);
	if (n != PAGES)
		fail("%s: %ju pages", name, (uintmax_t)n);
}

static void madv_populate(void)
{
	char *m = fresh();
	char *past = mmap(NULL, SIZE + PAGE, PROT_READ | PROT_WRITE, MAP_SHARED,
			  fd, 0);

	control_squeeze(&control);
	populated(m, MADV_POPULATE_READ, "MADV_POPULATE_READ");
	control_squeeze(&control);
	populated(m, MADV_POPULATE_WRITE, "MADV_POPULATE_WRITE");
	expect(madvise(past, SIZE + PAGE, MADV_POPULATE_WRITE), EFAULT,
	       "MADV_POPULATE_WRITE past the end");
	munmap(past, SIZE + PAGE);
	done(m);
}

static unsigned long status_kib(const char *name)
{
	FILE *f = fopen("/proc/self/status", "r");
	unsigned long kib = ~0ul;
	char line[256];

	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, name, strlen(name)))
			kib = strtoul(line + strlen(name) + 1, NULL, 10);
	if (f)
		fclose(f);
	return kib;
}

/* Nothing is locked: memory of a dcmfs file leaves, whoever wants it to stay. */
static void locked(void)
{
	char *m = fresh();

	if (mlock(m, SIZE) || mlock2(m, SIZE, MLOCK_ONFAULT))
		fail("mlock: %s", strerror(errno));
	if (status_kib("VmLck") != 0)
		fail("%lu KiB locked", status_kib("VmLck"));
	control_squeeze(&control);
	if (resident(m) > 512)
		fail("locked pages stay");
	if (munlock(m, SIZE) || mlockall(MCL_CURRENT))
		fail("mlockall: %s", strerror(errno));
	if (munlockall() || mlockall(MCL_FUTURE))
		fail("mlockall: %s", strerror(errno));
	expect((long)mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, 0), EAGAIN,
	       "a mapping after MCL_FUTURE");
	munlockall();
	done(m);
}

static void moved(void)
{
	char *m = fresh(), *to, *old, *grown;
	uint64_t p;

	/* Moved in part: what is behind it goes along. */
	to = mremap(m + SIZE / 2, SIZE / 2, SIZE / 2,
		    MREMAP_MAYMOVE | MREMAP_FIXED,
		    mmap(NULL, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			 0));
	if (to == MAP_FAILED)
		fail("mremap: %s", strerror(errno));
	for (p = 0; p < PAGES / 2; p++)
		if (*word_of(to, p) != PAGES / 2 + p + 1)
			fail("page %ju after mremap", (uintmax_t)p);
	if (readable(m + SIZE / 2))
		fail("it is still where it was");
	/* Larger than the file: the rest is past the end. */
	grown = mremap(to, SIZE / 2, SIZE, MREMAP_MAYMOVE);
	if (grown == MAP_FAILED || !readable(grown + SIZE / 2 - PAGE) ||
	    readable(grown + SIZE / 2))
		fail("grown: %s", strerror(errno));
	if (mremap(grown, SIZE, PAGE, 0) != grown || readable(grown + PAGE))
		fail("smaller");
	munmap(grown, PAGE);
	/* Both stay, and are the same memory. */
	old = map_shared(fd, SIZE);
	holds(old, 0, PAGES);
	/* glibc 2.36 hands down any address here. */
	to = (char *)syscall(SYS_mremap, old, (size_t)SIZE, (size_t)SIZE,
			     MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
	if (to == MAP_FAILED)
		fail("MREMAP_DONTUNMAP: %s", strerror(errno));
	holds(to, 0, PAGES);
	holds(old, 0, PAGES);
	/* A second mapping out of an old one (an old length of 0). */
	grown = mremap(old, 0, SIZE, MREMAP_MAYMOVE);
	if (grown == MAP_FAILED)
		fail("mremap of 0 bytes: %s", strerror(errno));
	*word_of(grown, 9) = 99;
	if (*word_of(to, 9) != 99 || *word_of(m, 9) != 99)
		fail("mappings differ");
	*word_of(to, 9) = 10;
	munmap(grown, SIZE);
	munmap(old, SIZE);
	munmap(m, SIZE / 2);
	done(to);
}

static void mapped_over(void)
{
	char *m = fresh(), *other = map_shared(fd, SIZE);

	if (mmap(m + 5 * PAGE, 30 * PAGE, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		 0) != m + 5 * PAGE)
		fail("MAP_FIXED: %s", strerror(errno));
	if (*word_of(m, 5) || *word_of(m, 34))
		fail("what was mapped over it is not there");
	*word_of(m, 5) = 1;
	holds(other, 0, PAGES);
	/* And the file over it again, at another place, in the other order. */
	if (mmap(m, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
		 SIZE - PAGE) != m ||
	    *word_of(m, 0) != PAGES)
		fail("the last page in the first one's place");
	if (remap_file_pages(other, PAGE, 0, 7, 0) || *word_of(other, 0) != 8)
		fail("remap_file_pages: %s", strerror(errno));
	munmap(other, SIZE);
	munmap(m, SIZE);
	done(map_shared(fd, SIZE));
}

static void advice(void)
{
	static const int harmless[] = {
		MADV_NORMAL,   MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED,
		MADV_DONTNEED, MADV_COLD,   MADV_PAGEOUT,
	};
	char *m = fresh();
	size_t i;

	for (i = 0; i < sizeof(harmless) / sizeof(harmless[0]); i++) {
		if (madvise(m, SIZE, harmless[i]))
			fail("madvise %d: %s", harmless[i], strerror(errno));
		holds(m, 0, PAGES);
		control_squeeze(&control);
	}
	if (madvise(m, SIZE, MADV_DONTNEED) || resident(m))
		fail("MADV_DONTNEED leaves pages in the page table");
	holds(m, 0, PAGES);
	/* Pages that are on no LRU list are not in core files for good. */
	if (madvise(m, SIZE, MADV_DONTDUMP))
		fail("MADV_DONTDUMP: %s", strerror(errno));
	expect(madvise(m, SIZE, MADV_DODUMP), EINVAL, "MADV_DODUMP");
	expect(madvise(m, SIZE, MADV_FREE), EINVAL, "MADV_FREE");
	expect(madvise(m, SIZE, MADV_COLLAPSE), EINVAL, "MADV_COLLAPSE");
	if (madvise(m + PAGE, 2 * PAGE, MADV_REMOVE) || *word_of(m, 1) ||
	    *word_of(m, 2))
		fail("MADV_REMOVE: %s", strerror(errno));
	*word_of(m, 1) = 2;
	*word_of(m, 2) = 3;
	if (posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) ||
	    posix_fadvise(fd, 0, 0, POSIX_FADV_WILLNEED))
		fail("posix_fadvise");
	done(m);
}

static void not_forked(void)
{
	char *m = fresh();
	int status;
	pid_t pid;

	if (madvise(m, PAGE, MADV_DONTFORK) ||
	    madvise(m + PAGE, PAGE, MADV_WIPEONFORK) != -1)
		fail("madvise");
	pid = fork();
	if (!pid) {
		if (readable(m) || !readable(m + PAGE))
			fail("what is not to be forked");
		_exit(0);
	}
	if (waitpid(pid, &status, 0) != pid || status)
		fail("child: %#x", status);
	madvise(m, PAGE, MADV_DOFORK);
	done(m);
}

/* Children of children write; all see it, also after it left and came back. */
static void forked(void)
{
	char *m = fresh();
	uint64_t depth;
	int status;
	pid_t pid;

	control_squeeze(&control);
	for (depth = 0; depth < 6; depth++) {
		pid = fork();
		if (pid < 0)
			fail("fork: %s", strerror(errno));
		if (pid)
			break;
		*word_of(m, depth * 100) += 1000;
	}
	if (!pid) {
		holds(m, 501, PAGES);
		_exit(0);
	}
	if (waitpid(pid, &status, 0) != pid || status)
		fail("child: %#x", status);
	if (depth)
		_exit(0);
	for (depth = 0; depth < 6; depth++) {
		if (*word_of(m, depth * 100) != depth * 100 + 1001)
			fail("what child %ju wrote", (uintmax_t)depth);
		*word_of(m, depth * 100) -= 1000;
	}
	done(m);
}

static void protected(void)
{
	char *m = fresh(), name[64], *r;
	int read_only;

	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	read_only = open(name, O_RDONLY);
	r = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, read_only, 0);
	if (r == MAP_FAILED)
		fail("a mapping to read: %s", strerror(errno));
	expect((long)mmap(NULL, SIZE, PROT_WRITE, MAP_SHARED, read_only, 0),
	       EACCES, "a mapping to write of a file open to read");
	expect(mprotect(r, SIZE, PROT_READ | PROT_WRITE), EACCES,
	       "writing by mprotect");
	holds(r, 0, PAGES);
	munmap(r, SIZE);
	close(read_only);
	if (mprotect(m, SIZE, PROT_NONE) || readable(m))
		fail("PROT_NONE");
	control_squeeze(&control);
	if (mprotect(m, SIZE, PROT_READ))
		fail("mprotect: %s", strerror(errno));
	holds(m, 0, PAGES);
	if (mprotect(m, SIZE, PROT_READ | PROT_WRITE))
		fail("mprotect: %s", strerror(errno));
	/* Write protected in the page table, then not: a write still counts. */
	*word_of(m, 3) = 33;
	control_squeeze(&control);
	if (*word_of(m, 3) != 33)
		fail("a write after mprotect is gone");
	*word_of(m, 3) = 4;
	done(m);
}

/* Code runs from it: "mov $42, %eax; ret". */
static void executed(void)
{
	static const unsigned char code[] = { 0xb8, 42, 0, 0, 0, 0xc3 };
	char *m = fresh();
	int (*run)(void);

	memcpy(m + PAGE + 64, code, sizeof(code));
	control_squeeze(&control);
	if (mprotect(m, SIZE, PROT_READ | PROT_EXEC))
		fail("mprotect: %s", strerror(errno));
	*(void **)&run = m + PAGE + 64;
	if (run() != 42)
		fail("what ran");
	if (mprotect(m, SIZE, PROT_READ | PROT_WRITE))
		fail("mprotect: %s", strerror(errno));
	done(m);
}

static void refused(void)
{
	char *m = fresh(), name[64];

	expect((long)mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE, fd, 0), EINVAL,
	       "MAP_PRIVATE");
	expect((long)mmap(NULL, SIZE, PROT_READ, MAP_SHARED_VALIDATE | MAP_SYNC,
			  fd, 0),
	       EOPNOTSUPP, "MAP_SYNC");
	expect((long)mmap(NULL, SIZE, PROT_READ, MAP_SHARED | MAP_HUGETLB, fd,
			  0),
	       EINVAL, "MAP_HUGETLB");
	expect((long)mmap(NULL, SIZE, PROT_READ, MAP_SHARED | MAP_LOCKED, fd,
			  0),
	       EAGAIN, "MAP_LOCKED");
	expect((long)mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, 1), EINVAL,
	       "an offset of 1");
	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	expect(open(name, O_RDWR | O_DIRECT), EINVAL, "O_DIRECT");
	expect(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), EINVAL, "a seal");
	done(m);
}

static void no_userfaultfd(void)
{
	static const uint64_t modes[] = { UFFDIO_REGISTER_MODE_MISSING,
					  UFFDIO_REGISTER_MODE_WP,
					  UFFDIO_REGISTER_MODE_MINOR };
	struct uffdio_api api = { .api = UFFD_API };
	int uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	char *m = fresh();
	size_t i;

	if (uffd < 0 || ioctl(uffd, UFFDIO_API, &api))
		fail("userfaultfd: %s", strerror(errno));
	for (i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		struct uffdio_register reg = { .range = { .start = (uintptr_t)m,
							  .len = SIZE },
					       .mode = modes[i] };

		expect(ioctl(uffd, UFFDIO_REGISTER, &reg), EINVAL,
		       "userfaultfd");
	}
	close(uffd);
	done(m);
}

/* smaps and pagemap show what is mapped; but smaps no huge page (linux/huge.c). */
static void proc_files(void)
{
	char *m = fresh(), line[256];
	FILE *f = fopen("/proc/self/smaps", "r");
	bool ours = false, seen = false;
	unsigned long start, end, kib;
	int pagemap = open("/proc/self/pagemap", O_RDONLY);
	uint64_t entry, n = 0, p;

	if (!f || pagemap < 0)
		fail("/proc/self: %s", strerror(errno));
	control_squeeze(&control);
	if (madvise(m, SIZE, MADV_POPULATE_WRITE))
		fail("populate");
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			ours = start == (uintptr_t)m;
		if (ours && sscanf(line, "Rss: %lu kB", &kib) == 1) {
			if (kib != SIZE / 1024)
				fail("smaps: %lu KiB", kib);
			seen = true;
		}
	}
	fclose(f);
	for (p = 0; p < PAGES; p++) {
		if (pread(pagemap, &entry, 8,
			  (off_t)((uintptr_t)m / PAGE + p) * 8) != 8)
			fail("pagemap");
		n += entry >> 63;
		if (entry >> 62 & 1)
			fail("pagemap: page %ju is in swap", (uintmax_t)p);
	}
	close(pagemap);
	if (!seen || n != PAGES)
		fail("%ju pages in the page table", (uintmax_t)n);
	done(m);
}

/* Pages are moved between nodes by nobody; asking harms nothing. */
static void migrated(void)
{
	char *m = fresh();
	void *pages[2] = { m, m + SIZE / 2 };
	int nodes[2] = { 0, 0 }, status[2] = { 1, 1 };
	unsigned long all = ~0ul;

	if (syscall(SYS_move_pages, 0, 2ul, pages, nodes, status, 2) < 0 &&
	    errno != ENOSYS)
		fail("move_pages: %s", strerror(errno));
	if (status[0] > 0 && status[0] != 1)
		fail("move_pages: on node %d", status[0]);
	/* MPOL_BIND, MPOL_MF_MOVE_ALL */
	if (syscall(SYS_mbind, m, (unsigned long)SIZE, 2, &all, 2ul, 4) &&
	    errno != ENOSYS && errno != EINVAL && errno != EIO)
		fail("mbind: %s", strerror(errno));
	done(m);
}

static const struct check list[] = {
	{ "MAP_POPULATE", populate },
	{ "MADV_POPULATE", madv_populate },
	{ "mlock", locked },
	{ "mremap", moved },
	{ "MAP_FIXED", mapped_over },
	{ "madvise", advice },
	{ "MADV_DONTFORK", not_forked },
	{ "fork", forked },
	{ "msync", synced },
	{ "mprotect", protected },
	{ "execution", executed },
	{ "refused", refused },
	{ "userfaultfd", no_userfaultfd },
	{ "smaps and pagemap", proc_files },
	{ "move_pages and mbind", migrated },
	{ "ftruncate", truncated },
	{ "holes", punched },
	{ "names", named },
	{ "last mapping", last_mapping },
};

/* mapping DIR */
int mapping(int argc, char **argv)
{
	(void)argc;
	dir = argv[2];
	run_checks(list, sizeof(list) / sizeof(list[0]));
	return 0;
}

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * uffd_ways.c - what the ways of paging in user space cost
 *
 * The measurements behind docs/design/user-pager.md: ways in (COPY, zero,
 * MOVE, CONTINUE), ways out (DONTNEED one by one and by vector, MOVE, punching
 * holes), ways to know what is dirty (synchronous write-protection,
 * asynchronous with PAGEMAP_SCAN), and a fault there and back. Nothing faults
 * but in the last part: these are costs of system calls with no other thread of
 * the process running, so no TLB shootdowns but where said.
 *
 * Prints one JSON object, nanoseconds a page: {"way": ns, ...}; a way that this
 * kernel does not know is left out.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "../kvm-dcm/uffd/uffd.h"
#include "common.h"

#ifndef UFFD_FEATURE_WP_ASYNC
#define UFFD_FEATURE_WP_ASYNC (1 << 15)
#endif
#ifndef PAGEMAP_SCAN
#define PAGEMAP_SCAN _IOWR('f', 16, struct pm_scan_arg)
#define PM_SCAN_WP_MATCHING (1 << 0)
#define PAGE_IS_WRITTEN (1 << 1)
struct page_region {
	__u64 start;
	__u64 end;
	__u64 categories;
};
struct pm_scan_arg {
	__u64 size;
	__u64 flags;
	__u64 start;
	__u64 end;
	__u64 walk_end;
	__u64 vec;
	__u64 vec_len;
	__u64 max_pages;
	__u64 category_inverted;
	__u64 category_mask;
	__u64 category_anyof_mask;
	__u64 return_mask;
};
#endif

#define PAGES	16384u
#define BYTES	((size_t)PAGES * PAGE)
#define BLOCK	16u
#define BATCH	32u

/* Of this thread: whatever else runs on the machine stays out of it. */
static uint64_t cpu_ns(void)
{
	return bench_clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

static int uffd;
static char *source;
static bool first = true;

static void say(const char *way, uint64_t ns, uint64_t pages)
{
	printf("%s\n \"%s\": %.1f", first ? "{" : ",", way,
	       (double)ns / (double)pages);
	first = false;
}

static bool open_uffd(uint64_t features)
{
	struct uffdio_api api = { .api = UFFD_API, .features = features };

	uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (uffd < 0)
		die("userfaultfd: %s", strerror(errno));
	if (!ioctl(uffd, UFFDIO_API, &api))
		return true;
	close(uffd);
	return false;
}

static char *map(int fd)
{
	char *p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
		       fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd,
		       0);

	if (p == MAP_FAILED)
		die("mmap: %s", strerror(errno));
	madvise(p, BYTES, MADV_NOHUGEPAGE);
	return p;
}

static void enrol(char *p, uint64_t mode)
{
	struct uffdio_register r = { { (uint64_t)p, BYTES }, mode, 0 };

	if (ioctl(uffd, UFFDIO_REGISTER, &r))
		die("UFFDIO_REGISTER: %s", strerror(errno));
}

static void copy(char *to, size_t bytes, bool wp)
{
	struct uffdio_copy c = { (uint64_t)to, (uint64_t)source, bytes,
				 wp ? UFFDIO_COPY_MODE_WP : 0, 0 };

	if (ioctl(uffd, UFFDIO_COPY, &c))
		die("UFFDIO_COPY: %s", strerror(errno));
}

static bool move(char *to, char *from, size_t bytes)
{
	struct uffdio_move m = { (uint64_t)to, (uint64_t)from, bytes,
				 UFFDIO_MOVE_MODE_ALLOW_SRC_HOLES, 0 };

	return !ioctl(uffd, UFFDIO_MOVE, &m);
}

static void protect(char *p, size_t bytes, bool wp)
{
	struct uffdio_writeprotect w = { { (uint64_t)p, bytes },
					 wp ? UFFDIO_WRITEPROTECT_MODE_WP : 0 };

	if (ioctl(uffd, UFFDIO_WRITEPROTECT, &w))
		die("UFFDIO_WRITEPROTECT: %s", strerror(errno));
}

static void fill(char *g, bool wp)
{
	unsigned int i;

	for (i = 0; i < PAGES; i += BLOCK)
		copy(g + (size_t)i * PAGE, BLOCK * PAGE, wp);
}

/* Every other page, @batch ranges a call. */
static bool drop_vector(char *g, int pidfd, unsigned int batch)
{
	struct iovec iov[BATCH];
	unsigned int i, k;

	for (i = 0; i + 2 * batch <= PAGES; i += 2 * batch) {
		for (k = 0; k < batch; k++)
			iov[k] = (struct iovec){ g + (size_t)(i + 2 * k) * PAGE,
						 PAGE };
		if (syscall(SYS_process_madvise, pidfd, iov, batch,
			    MADV_DONTNEED, 0) < 0)
			return false;
	}
	return true;
}

static void anonymous(void)
{
	int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	char *g = map(-1), *s = map(-1);
	bool can_move = open_uffd(UFFD_FEATURE_MOVE);
	uint64_t t;
	unsigned int i;

	if (!can_move)
		open_uffd(0);
	enrol(g, UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP);
	enrol(s, UFFDIO_REGISTER_MODE_WP);
	t = cpu_ns();
	for (i = 0; i < PAGES; i++)
		copy(g + (size_t)i * PAGE, PAGE, true);
	say("anon COPY 4K", cpu_ns() - t, PAGES);
	t = cpu_ns();
	for (i = 0; i < PAGES; i++)
		protect(g + (size_t)i * PAGE, PAGE, false);
	say("anon WRITEPROTECT off 4K", cpu_ns() - t, PAGES);
	t = cpu_ns();
	for (i = 0; i < PAGES; i++)
		memcpy(source + BLOCK * PAGE + (i % 64) * PAGE,
		       g + (size_t)i * PAGE, PAGE);
	say("memcpy 4K to full frame", cpu_ns() - t, PAGES);
	t = cpu_ns();
	for (i = 0; i < PAGES; i += 2)
		madvise(g + (size_t)i * PAGE, PAGE, MADV_DONTNEED);
	say("anon DONTNEED 4K", cpu_ns() - t, PAGES / 2);
	madvise(g, BYTES, MADV_DONTNEED);
	t = cpu_ns();
	fill(g, true);
	say("anon COPY 64K", cpu_ns() - t, PAGES);
	t = cpu_ns();
	if (drop_vector(g, pidfd, BATCH))
		say("anon DONTNEED 32 x 4K by vector", cpu_ns() - t, PAGES / 2);
	madvise(g, BYTES, MADV_DONTNEED);
	fill(g, false);
	if (can_move) {
		t = cpu_ns();
		for (i = 0; i < PAGES; i++)
			if (!move(s + (size_t)i * PAGE, g + (size_t)i * PAGE,
				  PAGE))
				die("UFFDIO_MOVE: %s", strerror(errno));
		say("anon MOVE 4K", cpu_ns() - t, PAGES);
		t = cpu_ns();
		for (i = 0; i < PAGES; i += BLOCK)
			if (!move(g + (size_t)i * PAGE, s + (size_t)i * PAGE,
				  BLOCK * PAGE))
				die("UFFDIO_MOVE: %s", strerror(errno));
		say("anon MOVE 64K", cpu_ns() - t, PAGES);
	}
	munmap(g, BYTES);
	munmap(s, BYTES);
	close(uffd);
	close(pidfd);
}

/**
 * struct round - blocks that go round: in from a slab, out to a frame
 * @fd: the slab, a memfd as a donor's of shm
 * @slab: its mapping
 * @guest: guest memory; %LIVE blocks of it are present at a time
 * @frame: frames that blocks leave to: by memcpy(), or by UFFDIO_MOVE, which moves the
 *	frame's memory
 * @buffer: bytes of one block
 */
struct round {
	int fd;
	char *slab;
	char *guest;
	char *frame;
	char buffer[BLOCK * PAGE];
};

#define LIVE 64u

static void block_read(const struct round *r, char *to, unsigned int block)
{
	if (pread(r->fd, to, BLOCK * PAGE, (off_t)block * BLOCK * PAGE) !=
	    (ssize_t)(BLOCK * PAGE))
		die("pread: %s", strerror(errno));
}

/* As libdcm does: in by COPY, clean out by memcpy() to a frame and DONTNEED for many. */
static void round_copied(struct round *r, int pidfd, unsigned int block)
{
	struct iovec iov[4];
	unsigned int i;

	for (i = 0; i < 4; i++) {
		struct uffdio_copy c = {
			(uint64_t)r->guest + (size_t)(block + i) * BLOCK * PAGE,
			(uint64_t)r->slab + (size_t)(block + i) * BLOCK * PAGE,
			BLOCK * PAGE, UFFDIO_COPY_MODE_WP, 0
		};

		if (ioctl(uffd, UFFDIO_COPY, &c))
			die("UFFDIO_COPY: %s", strerror(errno));
	}
	for (i = 0; block >= LIVE && i < 4; i++) {
		char *p = r->guest + (size_t)(block + i - LIVE) * BLOCK * PAGE;

		memcpy(r->frame + (size_t)i * BLOCK * PAGE, p, BLOCK * PAGE);
		iov[i] = (struct iovec){ p, BLOCK * PAGE };
	}
	if (block >= LIVE &&
	    syscall(SYS_process_madvise, pidfd, iov, 4, MADV_DONTNEED, 0) < 0)
		die("process_madvise: %s", strerror(errno));
}

/*
 * With frames that keep their memory: read into one, MOVE it in; out by MOVE, which is
 * the next one. MOVE maps pages writable. So a block that must be write-protected is
 * compared afterwards with what was read: another thread may have written to it before.
 */
static void round_moved(struct round *r, unsigned int block, bool clean)
{
	char *p = r->guest + (size_t)block * BLOCK * PAGE;
	char *frame = r->frame + (size_t)(block % (LIVE + 1)) * BLOCK * PAGE;

	block_read(r, clean ? r->buffer : frame, block);
	if (clean)
		memcpy(frame, r->buffer, BLOCK * PAGE);
	if (!move(p, frame, BLOCK * PAGE))
		die("UFFDIO_MOVE: %s", strerror(errno));
	if (clean) {
		protect(p, BLOCK * PAGE, true);
		if (memcmp(p, r->buffer, BLOCK * PAGE))
			die("a block changed");
	}
	/* the slot that is used next */
	if (block >= LIVE &&
	    !move(r->frame + (size_t)((block + 1) % (LIVE + 1)) * BLOCK * PAGE,
		  p - (size_t)LIVE * BLOCK * PAGE, BLOCK * PAGE))
		die("UFFDIO_MOVE: %s", strerror(errno));
}

static void rounds(void)
{
	int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	static struct round r;
	unsigned int i, k;
	uint64_t t;

	if (!open_uffd(UFFD_FEATURE_MOVE))
		return;
	r.fd = (int)syscall(SYS_memfd_create, "ways", MFD_CLOEXEC);
	if (r.fd < 0 || ftruncate(r.fd, BYTES))
		die("memfd: %s", strerror(errno));
	r.slab = map(r.fd);
	memset(r.slab, 7, BYTES);
	r.guest = map(-1);
	r.frame = map(-1);
	enrol(r.guest, UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP);
	enrol(r.frame, UFFDIO_REGISTER_MODE_WP);
	memset(r.frame, 1, 4 * BLOCK * PAGE);
	t = cpu_ns();
	for (i = 0; i < PAGES / BLOCK; i += 4)
		round_copied(&r, pidfd, i);
	say("round of 64K: COPY in, memcpy and DONTNEED out", cpu_ns() - t,
	    PAGES);
	for (k = 0; k < 2; k++) {
		madvise(r.guest, BYTES, MADV_DONTNEED);
		memset(r.frame, 1, (LIVE + 1) * BLOCK * PAGE);
		t = cpu_ns();
		for (i = 0; i < PAGES / BLOCK; i++)
			round_moved(&r, i, !k);
		say(k ? "round of 64K, writable: read, MOVE in and out" :
			"round of 64K: read, MOVE in, protect, compare, MOVE out",
		    cpu_ns() - t, PAGES);
	}
	munmap(r.slab, BYTES);
	munmap(r.guest, BYTES);
	munmap(r.frame, BYTES);
	close(r.fd);
	close(uffd);
	close(pidfd);
}

static void shared(void)
{
	int fd = (int)syscall(SYS_memfd_create, "ways", MFD_CLOEXEC);
	int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	static char buf[PAGE];
	uint64_t t;
	unsigned int i;
	char *g;

	if (!open_uffd(UFFD_FEATURE_MINOR_SHMEM | UFFD_FEATURE_MISSING_SHMEM))
		return;
	if (ftruncate(fd, BYTES))
		die("ftruncate: %s", strerror(errno));
	g = map(fd);
	enrol(g, UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_MINOR);
	t = cpu_ns();
	for (i = 0; i < PAGES; i++)
		copy(g + (size_t)i * PAGE, PAGE, false);
	say("shmem COPY 4K", cpu_ns() - t, PAGES);
	t = cpu_ns();
	for (i = 0; i < PAGES; i += 2)
		madvise(g + (size_t)i * PAGE, PAGE, MADV_DONTNEED);
	say("shmem DONTNEED 4K", cpu_ns() - t, PAGES / 2);
	madvise(g, BYTES, MADV_DONTNEED);
	t = cpu_ns();
	for (i = 0; i < PAGES; i++) {
		struct uffdio_continue c = {
			{ (uint64_t)g + (size_t)i * PAGE, PAGE }, 0, 0
		};

		if (ioctl(uffd, UFFDIO_CONTINUE, &c))
			die("UFFDIO_CONTINUE: %s", strerror(errno));
	}
	say("shmem CONTINUE 4K", cpu_ns() - t, PAGES);
	t = cpu_ns();
	if (drop_vector(g, pidfd, BATCH))
		say("shmem DONTNEED 32 x 4K by vector", cpu_ns() - t,
		    PAGES / 2);
	t = cpu_ns();
	for (i = 0; i < PAGES; i += 2)
		if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			      (off_t)i * PAGE, PAGE))
			die("fallocate: %s", strerror(errno));
	say("shmem punch 4K", cpu_ns() - t, PAGES / 2);
	t = cpu_ns();
	for (i = 1; i < PAGES; i += 2)
		if (pread(fd, buf, PAGE, (off_t)i * PAGE) != PAGE)
			die("pread: %s", strerror(errno));
	say("memfd pread 4K", cpu_ns() - t, PAGES / 2);
	t = cpu_ns();
	for (i = 1; i < PAGES; i += 2)
		if (pwrite(fd, buf, PAGE, (off_t)i * PAGE) != PAGE)
			die("pwrite: %s", strerror(errno));
	say("memfd pwrite 4K", cpu_ns() - t, PAGES / 2);
	munmap(g, BYTES);
	close(uffd);
	close(fd);
	close(pidfd);
}

/* Asynchronous write-protection: and what dropping does to its marker. */
static void asynchronous(void)
{
	int pm = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	struct page_region found[BLOCK];
	unsigned int i, kept = 0;
	uint64_t t, entry;
	char *g;

	if (!open_uffd(UFFD_FEATURE_WP_ASYNC | UFFD_FEATURE_WP_UNPOPULATED))
		return;
	g = map(-1);
	enrol(g, UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP);
	fill(g, true);
	t = cpu_ns();
	for (i = 0; i < PAGES; i++)
		*(volatile char *)(g + (size_t)i * PAGE) = 1;
	say("async WP first write", cpu_ns() - t, PAGES);
	t = cpu_ns();
	for (i = 0; i < PAGES; i += BLOCK) {
		struct pm_scan_arg a = {
			.size = sizeof(a),
			.flags = PM_SCAN_WP_MATCHING,
			.start = (uint64_t)g + (size_t)i * PAGE,
			.end = (uint64_t)g + (size_t)(i + BLOCK) * PAGE,
			.vec = (uint64_t)found,
			.vec_len = BLOCK,
			.category_mask = PAGE_IS_WRITTEN,
			.return_mask = PAGE_IS_WRITTEN,
		};

		if (ioctl(pm, PAGEMAP_SCAN, &a) < 0)
			goto out;
	}
	say("PAGEMAP_SCAN with WP, 64K", cpu_ns() - t, PAGES);
	/* A write between scan and drop: does anything remember it? */
	for (i = 0; i < PAGES; i += 2)
		*(volatile char *)(g + (size_t)i * PAGE) = 2;
	madvise(g, BYTES, MADV_DONTNEED);
	for (i = 0; i < PAGES; i += 2) {
		off_t at = (off_t)((uint64_t)g / PAGE + i) * 8;

		if (pread(pm, &entry, 8, at) == 8)
			kept += !!(entry >> 57 & 1);
	}
	say("async WP: late writes remembered after a drop, share", kept,
	    PAGES / 2);
out:
	munmap(g, BYTES);
	close(uffd);
	close(pm);
}

static void *serve(void *arg)
{
	struct pollfd pfd = { uffd, POLLIN, 0 };
	struct uffd_msg m;

	for (;;) {
		if (read(uffd, &m, sizeof(m)) < 0) {
			poll(&pfd, 1, -1);
			pthread_testcancel();
			continue;
		}
		if (m.arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WP)
			protect((char *)(m.arg.pagefault.address &
					 ~(uint64_t)(PAGE - 1)),
				PAGE, false);
		else
			copy((char *)(m.arg.pagefault.address &
				      ~(uint64_t)(PAGE - 1)),
			     PAGE, true);
	}
	return arg;
}

static void round_trips(void)
{
	pthread_t thread;
	static uint32_t ns[PAGES];
	unsigned int i;
	uint64_t t;
	char *g = map(-1);

	open_uffd(0);
	enrol(g, UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP);
	if (pthread_create(&thread, NULL, serve, NULL))
		die("can't start a thread");
	for (i = 0; i < PAGES; i++) {
		t = bench_now_ns();
		(void)*(volatile char *)(g + (size_t)i * PAGE);
		ns[i] = (uint32_t)(bench_now_ns() - t);
	}
	qsort(ns, PAGES, sizeof(*ns), bench_u32_compare);
	say("missing fault, there and back, median", ns[PAGES / 2], 1);
	for (i = 0; i < PAGES; i++) {
		t = bench_now_ns();
		*(volatile char *)(g + (size_t)i * PAGE) = 1;
		ns[i] = (uint32_t)(bench_now_ns() - t);
	}
	qsort(ns, PAGES, sizeof(*ns), bench_u32_compare);
	say("sync WP fault, there and back, median", ns[PAGES / 2], 1);
	pthread_cancel(thread);
	pthread_join(thread, NULL);
	munmap(g, BYTES);
	close(uffd);
}

int main(void)
{
	source = mmap(NULL, 2u << 20, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (source == MAP_FAILED)
		die("mmap: %s", strerror(errno));
	memset(source, 7, 2u << 20);
	anonymous();
	rounds();
	shared();
	asynchronous();
	round_trips();
	printf("\n}\n");
	return 0;
}

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * pager_test.c - libdcm used directly, against real donors
 *
 *	pager_test torture CONFIG MIB SECONDS THREADS SEED
 *	pager_test pin CONFIG
 *	pager_test remap CONFIG
 *	pager_test open CONFIG
 *
 * torture: threads own disjoint pages of memory several times the budget, and
 * write, read, discard and do I/O on them, the kernel's accesses and O_DIRECT
 * included; each page holds its number and a sequence number, every read is
 * checked against the last write. Meanwhile the budget goes down to the smallest
 * and back, and is compared with the resident memory that the kernel reports.
 * SIGTERM ends it early.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "libdcm.h"
#include "fail.h"
#include "status.h"

#define PAGE	4096u
#define WORDS	(PAGE / sizeof(uint64_t))
#define RUN	16u	/* pages of one I/O */

static volatile sig_atomic_t told_to_end;

struct vm {
	struct dcm_pager *pager;
	char *mem;
	uint64_t nr;
	uint32_t *seq;		/* of each page; 0: reads as zero */
	uint64_t until_ns;
	int file;		/* with O_DIRECT if possible */
	uint64_t budget;
	bool stop;
	uint64_t resident_max;
	uint64_t over_max;	/* bytes above the budget, at most */
};

struct worker {
	struct vm *vm;
	pthread_t thread;
	uint64_t first;
	uint64_t nr;
	uint64_t rng;
	uint64_t ops;
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static uint64_t rnd(uint64_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return *s * 0x2545f4914f6cdd1dull >> 11;
}

static struct dcm_pager *pager_open(const char *path)
{
	char err[512];
	struct dcm_pager *p = dcm_pager_open(path, err, sizeof(err));

	if (!p) {
		fprintf(stderr, "%s\n", err);
		exit(3);
	}
	return p;
}

/* ---- the content of a page ---- */

static const unsigned int places[] = { 0, 1, 63, 255, 400, WORDS - 1 };

static uint64_t word(uint64_t page, uint32_t seq, unsigned int place)
{
	return seq ? (page << 32 | seq) ^ (uint64_t)place << 20 : 0;
}

static void page_fill(uint64_t *p, uint64_t page, uint32_t seq)
{
	unsigned int i;

	for (i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		p[places[i]] = word(page, seq, places[i]);
}

static void page_check(const uint64_t *p, uint64_t page, uint32_t seq,
		       const char *how)
{
	unsigned int i;

	for (i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		uint64_t want = word(page, seq, places[i]);
		uint64_t got = p[places[i]];

		if (got != want)
			fail("page %llu word %u (%s): %#llx, not %#llx",
			     (unsigned long long)page, places[i], how,
			     (unsigned long long)got, (unsigned long long)want);
	}
	if (p[100])
		fail("page %llu (%s): word 100 is %#llx, never written",
		     (unsigned long long)page, how, (unsigned long long)p[100]);
}

static uint64_t *page_at(struct vm *vm, uint64_t page)
{
	return (uint64_t *)(vm->mem + page * PAGE);
}

/* ---- operations ---- */

static uint64_t pick(struct worker *w, uint64_t room)
{
	/* half of them near each other, so that blocks grow */
	static __thread uint64_t near;

	if (rnd(&w->rng) & 1)
		near = rnd(&w->rng) % w->nr;
	near = (near + rnd(&w->rng) % 4) % w->nr;
	return w->first + (near + room <= w->nr ? near : w->nr - room);
}

static void op_write(struct worker *w)
{
	uint64_t page = pick(w, 1);

	page_fill(page_at(w->vm, page), page, ++w->vm->seq[page]);
}

static void op_read(struct worker *w)
{
	uint64_t page = pick(w, 1);

	page_check(page_at(w->vm, page), page, w->vm->seq[page], "read");
}

static void op_scan(struct worker *w)
{
	uint64_t page = pick(w, 64), end = page + 64;

	for (; page < end && page < w->first + w->nr; page++)
		page_check(page_at(w->vm, page), page, w->vm->seq[page],
			   "scan");
}

static void op_discard(struct worker *w)
{
	uint64_t n = 1 + rnd(&w->rng) % 40, page = pick(w, n), i;
	int rc =
		dcm_pager_discard(w->vm->pager, page_at(w->vm, page), n * PAGE);

	if (rc)
		fail("discard: %s", strerror(-rc));
	for (i = 0; i < n; i++)
		w->vm->seq[page + i] = 0;
	page_check(page_at(w->vm, page), page, 0, "discarded");
}

static void io(struct worker *w, bool out, void *buf, size_t bytes, off_t at)
{
	size_t done = 0;

	while (done < bytes) {
		ssize_t n = out ? pwrite(w->vm->file, (char *)buf + done,
					 bytes - done, at + (off_t)done) :
				  pread(w->vm->file, (char *)buf + done,
					bytes - done, at + (off_t)done);

		if (n <= 0)
			fail("%s: %s", out ? "pwrite" : "pread",
			     n ? strerror(errno) : "short");
		done += (size_t)n;
	}
}

/* Paged pages to a file and back into others, by the kernel or the device. */
static void op_io(struct worker *w)
{
	uint64_t from = pick(w, RUN), i;
	off_t at = (off_t)(w->first * PAGE);

	io(w, true, page_at(w->vm, from), RUN * PAGE, at);
	for (i = 0; i < RUN; i++)
		memset(page_at(w->vm, from + i), 0xa5, 64);
	io(w, false, page_at(w->vm, from), RUN * PAGE, at);
	for (i = 0; i < RUN; i++)
		page_check(page_at(w->vm, from + i), from + i,
			   w->vm->seq[from + i], "I/O");
}

/* Through a pipe: copies by the kernel to and from user memory. */
static void op_pipe(struct worker *w)
{
	uint64_t page = pick(w, 1);
	uint64_t copy[WORDS];
	int fd[2];

	if (pipe(fd))
		fail("pipe: %s", strerror(errno));
	if (write(fd[1], page_at(w->vm, page), PAGE) != PAGE ||
	    read(fd[0], copy, PAGE) != PAGE)
		fail("pipe: %s", strerror(errno));
	page_check(copy, page, w->vm->seq[page], "pipe out");
	page_fill(copy, page, ++w->vm->seq[page]);
	if (write(fd[1], copy, PAGE) != PAGE ||
	    read(fd[0], page_at(w->vm, page), PAGE) != PAGE)
		fail("pipe: %s", strerror(errno));
	page_check(page_at(w->vm, page), page, w->vm->seq[page], "pipe in");
	close(fd[0]);
	close(fd[1]);
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;

	while (!told_to_end && now_ns() < w->vm->until_ns) {
		unsigned int k;

		for (k = 0; k < 64; k++, w->ops++) {
			uint64_t r = rnd(&w->rng) % 1000;

			if (r < 400)
				op_read(w);
			else if (r < 800)
				op_write(w);
			else if (r < 940)
				op_scan(w);
			else if (r < 960)
				op_discard(w);
			else if (r < 980)
				op_pipe(w);
			else if (r < 990)
				op_io(w);
		}
	}
	return NULL;
}

/* Resident bytes of the pager's memory, as the kernel counts them. */
static uint64_t resident(struct dcm_pager *p)
{
	unsigned long long range[16][2], from, to, kib, sum = 0;
	unsigned int nr = 0, i;
	char *s = dcm_pager_status(p), *at = s, line[512];
	bool ours = false;
	FILE *f = fopen("/proc/self/smaps", "re");

	if (!f || !s)
		fail("smaps: %s", strerror(errno));
	while (nr < 16 && (at = strstr(at, "\"from\":"))) {
		if (sscanf(at, "\"from\":%llu,\"to\":%llu", &range[nr][0],
			   &range[nr][1]) != 2)
			fail("status: ranges");
		nr++;
		at++;
	}
	free(s);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%llx-%llx ", &from, &to) == 2) {
			ours = false;
			for (i = 0; i < nr; i++)
				ours |= from < range[i][1] && to > range[i][0];
		}
		if (ours && sscanf(line, "Rss: %llu kB", &kib) == 1)
			sum += kib << 10;
	}
	fclose(f);
	return sum;
}

/* Lower the budget to the smallest and back; check that it is kept. */
static void *budget_main(void *arg)
{
	struct vm *vm = arg;
	uint64_t least = dcm_pager_min_budget(vm->pager), rng = 99,
		 holds_from = 0;
	struct timespec nap = { 0, 20 * 1000 * 1000 };
	unsigned int i;

	for (i = 0; !__atomic_load_n(&vm->stop, __ATOMIC_ACQUIRE); i++) {
		uint64_t b, over, slack;

		if (i % 32 == 16 || i % 32 == 0) {
			b = i % 32 == 16 ? least + rnd(&rng) % vm->budget / 4 :
					   vm->budget;
			if (i % 128 == 16)
				b = least;
			if (dcm_pager_set_budget(vm->pager, b))
				fail("budget of %llu refused",
				     (unsigned long long)b);
			holds_from = i + 8;
		}
		nanosleep(&nap, NULL);
		b = dcm_pager_budget(vm->pager);
		slack = status_number(vm->pager, "in_flight_max_bytes") +
			(1u << 20);
		over = resident(vm->pager);
		if (over > vm->resident_max)
			vm->resident_max = over;
		over = over > b ? over - b : 0;
		/* Pages over a lowered budget leave soon, not at once. */
		if (i > holds_from && over > vm->over_max)
			vm->over_max = over;
		if (i > holds_from && over > slack && b == vm->budget)
			fail("resident %llu KiB above the budget of %llu",
			     (unsigned long long)over >> 10,
			     (unsigned long long)b >> 10);
	}
	dcm_pager_set_budget(vm->pager, vm->budget);
	return NULL;
}

static int file_open(uint64_t bytes)
{
	char path[] = "/var/tmp/dcm-torture-XXXXXX";
	int fd = mkstemp(path), direct;

	if (fd < 0 || ftruncate(fd, (off_t)bytes))
		fail("%s: %s", path, strerror(errno));
	direct = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
	unlink(path);
	/* Without UFFDIO_MOVE the shim keeps O_DIRECT away. */
	if (direct < 0 || getenv("DCM_WITHOUT"))
		return fd;
	close(fd);
	return direct;
}

static void on_term(int sig)
{
	(void)sig;
	told_to_end = 1;
}

static int torture(char **argv)
{
	static struct worker worker[64];
	struct vm vm = { .nr = strtoull(argv[3], NULL, 10) * 256 };
	unsigned int threads = (unsigned int)atoi(argv[5]), i;
	uint64_t seed = strtoull(argv[6], NULL, 10), ops = 0, p;
	pthread_t budget;

	if (!threads || threads > 64)
		fail("1 to 64 threads");
	signal(SIGTERM, on_term);
	vm.pager = pager_open(argv[2]);
	vm.budget = dcm_pager_budget(vm.pager);
	vm.mem = dcm_pager_map(vm.pager, vm.nr * PAGE);
	vm.seq = mmap(NULL, vm.nr * sizeof(*vm.seq), PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!vm.mem || vm.seq == MAP_FAILED)
		fail("map: %s", strerror(errno));
	vm.file = file_open(vm.nr * PAGE);
	vm.until_ns = now_ns() + strtoull(argv[4], NULL, 10) * 1000000000u;
	for (i = 0; i < threads; i++) {
		struct worker *w = &worker[i];

		w->vm = &vm;
		w->nr = vm.nr / threads;
		w->first = i * w->nr;
		w->rng = (seed + i) * 0x9e3779b97f4a7c15ull | 1;
		pthread_create(&w->thread, NULL, worker_main, w);
	}
	pthread_create(&budget, NULL, budget_main, &vm);
	for (i = 0; i < threads; i++) {
		pthread_join(worker[i].thread, NULL);
		ops += worker[i].ops;
	}
	__atomic_store_n(&vm.stop, true, __ATOMIC_RELEASE);
	pthread_join(budget, NULL);
	for (p = 0; p < vm.nr; p++)
		page_check(page_at(&vm, p), p, vm.seq[p], "at the end");
	if (!vm.resident_max)
		fail("no resident memory seen");
	if (status_number(vm.pager, "ILLEGAL"))
		fail("the core refused transitions");
	printf("%llu operations, %llu faults, %llu evictions cancelled, %llu pages hidden to watch them, at most %llu KiB resident, %llu over the budget, every byte right\n",
	       (unsigned long long)ops,
	       (unsigned long long)status_number(vm.pager, "FAULTS"),
	       (unsigned long long)status_number(vm.pager, "CANCELLED"),
	       (unsigned long long)status_number(vm.pager, "REUSE_HIDDEN"),
	       (unsigned long long)vm.resident_max >> 10,
	       (unsigned long long)vm.over_max >> 10);
	if (dcm_pager_unmap(vm.pager, vm.mem, vm.nr * PAGE))
		fail("unmap");
	dcm_pager_close(vm.pager);
	return 0;
}

/* ---- pins ---- */

static bool page_resident(void *p)
{
	uint64_t entry;
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	bool there;

	if (fd < 0 ||
	    pread(fd, &entry, 8, (off_t)((uintptr_t)p / PAGE * 8)) != 8)
		fail("pagemap: %s", strerror(errno));
	there = entry >> 63;
	close(fd);
	return there;
}

static int pin(char **argv)
{
	struct dcm_pager *pg = pager_open(argv[2]);
	size_t bytes = dcm_pager_budget(pg) * 4, some = 256 * PAGE, i;
	char *m = dcm_pager_map(pg, bytes);
	int rc;

	if (!m)
		fail("map");
	rc = dcm_pager_pin(pg, m, some);
	if (rc)
		fail("pin: %s", strerror(-rc));
	for (i = 0; i < bytes; i += PAGE)
		m[i] = (char)(i / PAGE + 1);
	for (i = some; i < bytes; i += PAGE)
		if (m[i] != (char)(i / PAGE + 1))
			fail("byte %zu", i);
	for (i = 0; i < some; i += PAGE)
		if (!page_resident(m + i))
			fail("pinned page %zu has left", i / PAGE);
	if (status_number(pg, "pinned_bytes") != some)
		fail("pinned bytes");
	if (dcm_pager_pin(pg, m, bytes / 2) != -ENOMEM)
		fail("pinned more than may be");
	if (dcm_pager_unpin(pg, m + some, PAGE) != -EINVAL)
		fail("unpinned what is not");
	if (dcm_pager_unpin(pg, m, some))
		fail("unpin");
	for (i = some; i < bytes; i += PAGE)
		m[i]++;
	for (i = 0; i < some; i += PAGE)
		if (m[i] != (char)(i / PAGE + 1))
			fail("byte %zu after unpin", i);
	dcm_pager_close(pg);
	printf("pins hold\n");
	return 0;
}

/* ---- holes, adoption, permissions ---- */

static int remap(char **argv)
{
	struct dcm_pager *pg = pager_open(argv[2]);
	size_t bytes = dcm_pager_budget(pg) * 2, i;
	char *m = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *hole;
	int rc;

	rc = dcm_pager_adopt(pg, m, bytes);
	if (rc)
		fail("adopt: %s", strerror(-rc));
	if (dcm_pager_adopt(pg, m, bytes) != -EEXIST)
		fail("adopted twice");
	for (i = 0; i < bytes; i += PAGE)
		*(size_t *)(m + i) = i + 1;
	/* Holes in the middle of blocks, with other memory in them. */
	hole = m + 37 * PAGE;
	if (dcm_pager_unmap(pg, hole, 5 * PAGE))
		fail("unmap");
	if (dcm_pager_owns(pg, hole, 5 * PAGE))
		fail("a hole is paged");
	if (mmap(hole, 5 * PAGE, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != hole)
		fail("mmap");
	memset(hole, 0x5a, 5 * PAGE);
	/* A part that may only be read: several mappings under one block. */
	if (mprotect(m + 100 * PAGE, 3 * PAGE, PROT_READ))
		fail("mprotect");
	for (rc = 0; rc < 3; rc++) {
		for (i = 0; i < bytes; i += PAGE) {
			char *p = m + i;

			if (p >= hole && p < hole + 5 * PAGE) {
				if (*p != 0x5a || p[PAGE - 1] != 0x5a)
					fail("hole changed");
			} else if (*(size_t *)p != i + 1) {
				fail("byte %zu: %zu", i, *(size_t *)p);
			} else if (i / PAGE < 100 || i / PAGE > 102) {
				*(volatile size_t *)p = i + 1;
			}
		}
	}
	/* Paged again. */
	if (dcm_pager_adopt(pg, hole, 5 * PAGE))
		fail("adopt a hole");
	for (i = 0; i < 5 * PAGE; i++)
		if (hole[i])
			fail("not zero");
	if (dcm_pager_release(pg, m, bytes))
		fail("release");
	for (i = 0; i < bytes; i += PAGE)
		if (*(size_t *)(m + i))
			fail("released memory is not zero");
	munmap(m, bytes);
	dcm_pager_close(pg);
	printf("holes and permissions\n");
	return 0;
}

static int just_open(char **argv)
{
	dcm_pager_close(pager_open(argv[2]));
	printf("opened\n");
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 7 && !strcmp(argv[1], "torture"))
		return torture(argv);
	if (argc == 3 && !strcmp(argv[1], "pin"))
		return pin(argv);
	if (argc == 3 && !strcmp(argv[1], "remap"))
		return remap(argv);
	if (argc == 3 && !strcmp(argv[1], "open"))
		return just_open(argv);
	fprintf(stderr, "usage: see the top of pager_test.c\n");
	return 2;
}

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * use.c - memory under use while somebody else is the control plane
 *
 * Processes own the pages whose number is theirs modulo how many they are.
 * First each writes all of its pages once, then it reads and writes runs of
 * them at random, and at the end it looks at every page once more. Each read is
 * compared with the last write. A page may answer with SIGBUS
 * instead: then it has to be one that the kernel counts as lost, which the sum
 * at the end tells, as no page is written after it was lost. In a guest, where
 * the file is on tmpfs and all memory is dcmfs without knowing it, no page may
 * be lost.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dcmfs_test.h"

#define PROCESSES_MAX 16u

/* A child's report to the parent. */
struct report {
	uint64_t checked;
	uint64_t lost;
	bool written;
};

struct user {
	char *mem;
	uint64_t pages;
	unsigned int first;
	unsigned int step;
	uint32_t *seq; /* of each page */
	const char *stop;
	uint64_t rng;
	struct report *report;
};

static sigjmp_buf bus;

static void on_bus(int signum)
{
	(void)signum;
	siglongjmp(bus, 1);
}

static uint64_t word(uint64_t page, uint32_t seq, unsigned int i)
{
	return (page << 32 | seq) ^ (uint64_t)i << 20;
}

/* One page: what was written last, then @seq. False: SIGBUS. */
static bool touch(struct user *u, uint64_t page, bool check, uint32_t seq)
{
	volatile uint64_t *p = (volatile uint64_t *)(u->mem + page * PAGE);
	unsigned int i;

	if (sigsetjmp(bus, 1))
		return false;
	for (i = 0; check && i < PAGE / 8; i += 73)
		if (p[i] != word(page, u->seq[page], i))
			fail("page %ju, word %u: %#jx instead of %#jx (written %u times)",
			     (uintmax_t)page, i, (uintmax_t)p[i],
			     (uintmax_t)word(page, u->seq[page], i),
			     u->seq[page]);
	u->report->checked += check;
	for (i = 0; seq && i < PAGE / 8; i += 73)
		p[i] = word(page, seq, i);
	if (seq)
		u->seq[page] = seq;
	return true;
}

static void one_run(struct user *u)
{
	uint64_t n = 1 + rnd(&u->rng) % 32;
	uint64_t page =
		rnd(&u->rng) % (u->pages / u->step) * u->step + u->first;
	bool write = rnd(&u->rng) % 3 == 0;

	for (; n-- && page < u->pages; page += u->step)
		touch(u, page, true, write ? u->seq[page] + 1 : 0);
}

static void child(struct user *u)
{
	struct sigaction sa = { .sa_handler = on_bus };
	uint64_t page;

	sigaction(SIGBUS, &sa, NULL);
	u->seq = calloc(u->pages, sizeof(*u->seq));
	if (!u->seq)
		fail("no memory");
	for (page = u->first; page < u->pages; page += u->step)
		touch(u, page, false, 1);
	u->report->written = true;
	while (access(u->stop, F_OK))
		one_run(u);
	for (page = u->first; page < u->pages; page += u->step)
		u->report->lost += !touch(u, page, true, 0);
	_exit(0);
}

/* use FILE MIB PROCESSES SEED STOP: "using" when all was written once */
int use(int argc, char **argv)
{
	unsigned int n = (unsigned int)atoi(argv[4]), i;
	struct user u = { .pages = strtoull(argv[3], NULL, 0) * 256,
			  .step = n,
			  .stop = argv[6] };
	uint64_t seed = strtoull(argv[5], NULL, 0), checked = 0, lost = 0;
	int fd = open(argv[2], O_RDWR | O_CREAT, 0600), status;
	struct dcmfs_info info = { 0 };
	struct report *report;

	(void)argc;
	if (!n || n > PROCESSES_MAX || u.pages < n)
		fail("bad argument");
	if (fd < 0 || ftruncate(fd, (off_t)(u.pages * PAGE)))
		fail("%s: %s", argv[2], strerror(errno));
	report = mmap(NULL, sizeof(*report) * n, PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	u.mem = mmap(NULL, u.pages * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED,
		     fd, 0);
	if (report == MAP_FAILED || u.mem == MAP_FAILED)
		fail("mmap: %s", strerror(errno));
	for (i = 0; i < n; i++) {
		pid_t pid;

		u.first = i;
		u.report = &report[i];
		u.rng = (seed + i + 1) * 0x9e3779b97f4a7c15ull;
		pid = fork();
		if (pid < 0)
			fail("fork: %s", strerror(errno));
		if (!pid)
			child(&u);
	}
	for (i = 0; i < n; i++)
		while (!*(volatile bool *)&report[i].written) {
			if (waitpid(-1, &status, WNOHANG) > 0)
				fail("a process ended early: %#x", status);
			usleep(20000);
		}
	printf("using\n");
	for (i = 0; i < n; i++)
		if (wait(&status) < 0 || status)
			fail("a process ended with %#x", status);
	for (i = 0; i < n; i++) {
		checked += report[i].checked;
		lost += report[i].lost;
	}
	if (ioctl(fd, DCMFS_IOC_INFO, &info) && errno != ENOTTY)
		fail("DCMFS_IOC_INFO: %s", strerror(errno));
	if (info.lost_pages != lost)
		fail("%ju pages answer SIGBUS, %ju are lost", (uintmax_t)lost,
		     (uintmax_t)info.lost_pages);
	printf("use: %ju pages right, %ju lost\n", (uintmax_t)checked,
	       (uintmax_t)lost);
	return 0;
}

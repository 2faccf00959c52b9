// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * torture.c - processes on one dcmfs file, every byte checked
 *
 * Processes own the pages whose number is theirs modulo how many they are, so
 * a block has pages of all. Each page holds its number and a sequence number,
 * in several places; a read is compared with what was written last. They use
 * memory by loads and stores, through system calls, and punch holes. The parent
 * is the control plane: slabs, budgets down to the smallest and back, moves.
 * With DCMFS_TEST_CGROUP the processes, not the parent, are in that cgroup.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dcmfs_test.h"

#define PROCESSES_MAX 16
#define CGROUP "DCMFS_TEST_CGROUP"
#define ROUNDS_MIN 24 /* of eight, in each a move and the smallest budget */

struct job {
	int fd;
	char *mem;
	uint64_t pages;
	uint32_t *seq; /* of each page; 0: reads as zero */
	uint64_t rng;
	unsigned int first;
	unsigned int step;
	uint64_t checked;
};

/**
 * struct shared - between the parent and its children
 * @stop: they are to look at every page once more, and end
 * @joined: of them, how many have filled their pages
 * @checked: what each has checked
 */
struct shared {
	bool stop;
	uint64_t joined;
	uint64_t checked[PROCESSES_MAX];
};

static const unsigned int places[] = { 0, 1, 63, 255, 400, PAGE / 8 - 1 };
#define NR_PLACES (sizeof(places) / sizeof(places[0]))

static uint64_t word(uint64_t page, uint32_t seq, unsigned int place)
{
	return seq ? (page << 32 | seq) ^ (uint64_t)place << 20 : 0;
}

static void put(uint64_t *p, uint64_t page, uint32_t seq)
{
	unsigned int i;

	for (i = 0; i < NR_PLACES; i++)
		p[places[i]] = word(page, seq, places[i]);
}

static void check(struct job *j, const uint64_t *p, uint64_t page)
{
	unsigned int i;

	for (i = 0; i < NR_PLACES; i++)
		if (p[places[i]] != word(page, j->seq[page], places[i]))
			fail("page %ju, word %u: %#jx instead of %#jx (written %u times)",
			     (uintmax_t)page, places[i],
			     (uintmax_t)p[places[i]],
			     (uintmax_t)word(page, j->seq[page], places[i]),
			     j->seq[page]);
	j->checked++;
}

static uint64_t *at(struct job *j, uint64_t page)
{
	return (uint64_t *)(j->mem + page * PAGE);
}

/* A page of this process; in runs, so that there is something to prefetch. */
static uint64_t pick(struct job *j)
{
	uint64_t n = rnd(&j->rng) % (j->pages / j->step);

	return n * j->step + j->first;
}

static void write_page(struct job *j, uint64_t page)
{
	if (!++j->seq[page])
		j->seq[page] = 1;
	put(at(j, page), page, j->seq[page]);
}

/* The kernel writes the memory, and reads it. */
static void by_system_calls(struct job *j, uint64_t page, int file)
{
	uint64_t buf[PAGE / 8] = { 0 };

	check(j, at(j, page), page);
	if (!++j->seq[page])
		j->seq[page] = 1;
	put(buf, page, j->seq[page]);
	if (pwrite(file, buf, PAGE, 0) != PAGE ||
	    pread(file, at(j, page), PAGE, 0) != PAGE)
		fail("read into page %ju: %s", (uintmax_t)page,
		     strerror(errno));
	if (pwrite(file, at(j, page), PAGE, PAGE) != PAGE ||
	    pread(file, buf, PAGE, PAGE) != PAGE)
		fail("write from page %ju: %s", (uintmax_t)page,
		     strerror(errno));
	check(j, buf, page);
}

static void punch(struct job *j, uint64_t page)
{
	if (fallocate(j->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		      (off_t)(page * PAGE), PAGE))
		fail("punch page %ju: %s", (uintmax_t)page, strerror(errno));
	j->seq[page] = 0;
	check(j, at(j, page), page);
}

static void one_run(struct job *j)
{
	uint64_t page = pick(j), n = 1 + rnd(&j->rng) % 32;
	bool write = rnd(&j->rng) % 3 == 0;

	for (; n-- && page < j->pages; page += j->step) {
		check(j, at(j, page), page);
		if (write)
			write_page(j, page);
	}
}

/* The limits of this cgroup hold for threads that page, but not for the slabs. */
static void join_cgroup(const char *path)
{
	char file[256];
	int fd;

	if (!path)
		return;
	snprintf(file, sizeof(file), "%s/cgroup.procs", path);
	fd = open(file, O_WRONLY);
	if (fd < 0 || write(fd, "0", 1) != 1)
		fail("%s: %s", file, strerror(errno));
	close(fd);
}

static void work(struct job *j, struct shared *s)
{
	int file = memfd_create("torture", MFD_CLOEXEC);
	uint64_t page;

	/* With all that is no frame allocated: page tables, the file. */
	for (page = j->first; page < j->pages; page += j->step)
		write_page(j, page);
	by_system_calls(j, j->first, file);
	join_cgroup(getenv(CGROUP));
	__atomic_fetch_add(&s->joined, 1, __ATOMIC_SEQ_CST);
	while (!__atomic_load_n(&s->stop, __ATOMIC_SEQ_CST)) {
		switch (rnd(&j->rng) % 32) {
		case 0:
			by_system_calls(j, pick(j), file);
			break;
		case 1:
			punch(j, pick(j));
			break;
		case 2:
			if (madvise(at(j, pick(j)), PAGE, MADV_DONTNEED))
				fail("madvise: %s", strerror(errno));
			break;
		default:
			one_run(j);
		}
		s->checked[j->first] = j->checked;
	}
	for (page = j->first; page < j->pages; page += j->step)
		check(j, at(j, page), page);
	s->checked[j->first] = j->checked;
}

static pid_t start(struct job *j, struct shared *s)
{
	pid_t pid = fork();

	if (pid < 0)
		fail("fork: %s", strerror(errno));
	if (pid)
		return pid;
	/* A mapping of its own, beside the one that fork() copied. */
	j->mem = mmap(NULL, j->pages * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED,
		      j->fd, 0);
	j->seq = calloc(j->pages, sizeof(*j->seq));
	if (j->mem == MAP_FAILED || !j->seq)
		fail("child: %s", strerror(errno));
	work(j, s);
	_exit(0);
}

/* Within the budget and what is in flight; soon, when it has just changed. */
static void within_budget(struct control *c)
{
	uint64_t until = now_ns() + 30000000000ull;
	struct dcmfs_info i;

	for (;;) {
		uint64_t flight;

		i = info_of(c->fd);
		flight = i.lanes * 16ull * 32;
		/* Also kept by lanes, in a move's buffers, in the reserve. */
		if (i.frames > i.direct_pages + flight + i.lanes * 16 +
				       16 * 16 + i.reserve)
			fail("%ju frames held for %ju direct pages",
			     (uintmax_t)i.frames, (uintmax_t)i.direct_pages);
		if (i.direct_pages <= i.budget_pages + flight)
			return;
		if (now_ns() > until)
			fail("direct %ju pages, budget %ju",
			     (uintmax_t)i.direct_pages,
			     (uintmax_t)i.budget_pages);
		control_serve(c, 10);
	}
}

/* Before they are told to, none may end. */
static bool all_joined(struct shared *s, unsigned int n)
{
	int status;

	if (waitpid(-1, &status, WNOHANG) > 0)
		fail("a process ended early with %#x", status);
	return __atomic_load_n(&s->joined, __ATOMIC_SEQ_CST) == n;
}

/*
 * Frames were charged to nobody while the memory was filled, and go from hand to
 * hand: have them given back, and the children begin when all that is done.
 */
static void recharge(struct control *c, struct shared *s, unsigned int n)
{
	while (!all_joined(s, n))
		control_serve(c, 20);
	control_squeeze(c);
}

/*
 * The control plane's part: while memory is filled, then for that long, and not
 * before everything was done some times, however slow the machine is.
 */
static void disturb(struct control *c, struct shared *s, unsigned int n,
		    uint64_t ns, uint64_t rng)
{
	uint64_t budget = c->info.budget_pages, until_ns = UINT64_MAX;
	unsigned int round = 0, least = ROUNDS_MIN;

	while (round < least || now_ns() < until_ns) {
		if (until_ns == UINT64_MAX && all_joined(s, n)) {
			until_ns = now_ns() + ns;
			least += round;
		}
		control_serve(c, 50);
		within_budget(c);
		switch (round++ % 8) {
		case 3:
			control_move(c,
				     (uint32_t)(rnd(&rng) % c->info.extents));
			break;
		case 5:
			if (control_budget(c, c->info.min_budget_pages))
				fail("smallest budget refused");
			break;
		case 7:
			if (control_budget(c, budget))
				fail("budget refused");
			break;
		}
	}
	if (control_budget(c, budget))
		fail("budget refused");
	__atomic_store_n(&s->stop, true, __ATOMIC_SEQ_CST);
}

/* torture FILE MIB SECONDS PROCESSES SEED */
int torture(int argc, char **argv)
{
	unsigned int n = (unsigned int)atoi(argv[5]), i, left;
	uint64_t seed = strtoull(argv[6], NULL, 0), sum = 0, ns;
	struct job j = { .pages = strtoull(argv[3], NULL, 0) * 256 };
	struct control c;
	struct shared *s;

	(void)argc;
	if (!n || n > PROCESSES_MAX || !j.pages)
		fail("bad argument");
	j.fd = open(argv[2], O_RDWR | O_CREAT, 0600);
	if (j.fd < 0 || ftruncate(j.fd, (off_t)(j.pages * PAGE)))
		fail("%s: %s", argv[2], strerror(errno));
	s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	j.mem = mmap(NULL, j.pages * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED,
		     j.fd, 0);
	if (s == MAP_FAILED || j.mem == MAP_FAILED)
		fail("mmap: %s", strerror(errno));
	control_open(&c, j.fd);
	ns = strtoull(argv[4], NULL, 0) * 1000000000u;
	j.step = n;
	for (i = 0; i < n; i++) {
		j.first = i;
		j.rng = (seed + i + 1) * 0x9e3779b97f4a7c15ull;
		start(&j, s);
	}
	if (getenv(CGROUP))
		recharge(&c, s, n);
	disturb(&c, s, n, ns, seed * 2 + 1);
	for (left = n; left;) {
		int status;
		pid_t pid = waitpid(-1, &status, WNOHANG);

		if (pid < 0)
			fail("wait: %s", strerror(errno));
		if (!pid) {
			control_serve(&c, 20);
			continue;
		}
		if (status)
			fail("a process ended with %#x", status);
		left--;
	}
	for (i = 0; i < n; i++)
		sum += s->checked[i];
	c.info = info_of(c.fd);
	if (c.info.lost_pages)
		fail("%ju pages lost", (uintmax_t)c.info.lost_pages);
	printf("torture: %ju pages right, %ju extents with slabs\n",
	       (uintmax_t)sum, (uintmax_t)(c.next_id - 1));
	return 0;
}

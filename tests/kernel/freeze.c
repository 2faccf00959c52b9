// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * freeze.c - FREEZE, SYNC and HINT: what garbage collection on donors needs
 *
 * The slabs are memfds of ours, so that every byte a donor would have can be
 * looked at, and changed as its GC worker would.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dcmfs_test.h"

#define SIZE (16u << 20)
#define PAGES (SIZE / PAGE)
#define BLOCK 16u
#define LIMIT_MS 30000u

static const char *dir;
static struct control c;
static int fd;
static char *mem;
static volatile bool stop;

static void range_freeze(uint64_t first, uint64_t pages)
{
	no_error(range_ask(fd, DCMFS_IOC_FREEZE, first, pages, 0, 0), "FREEZE");
}

static void range_sync(uint64_t first, uint64_t pages, bool keep)
{
	no_error(range_ask(fd, DCMFS_IOC_SYNC, first, pages,
		       keep ? DCMFS_SYNC_KEEP : 0, LIMIT_MS),
	     "SYNC");
}

static void *serve_all(void *arg)
{
	while (!stop)
		control_serve(&c, 20);
	return arg;
}

/* The content of a page, different each time it is written. */
static uint64_t word(uint32_t page, uint32_t turn)
{
	return (uint64_t)turn << 32 | (page + 1);
}

static void put(uint32_t page, uint32_t turn)
{
	*(volatile uint64_t *)(mem + (size_t)page * PAGE + page % 500 * 8) =
		word(page, turn);
}

static uint64_t get(uint32_t page)
{
	return *(volatile uint64_t *)(mem + (size_t)page * PAGE +
				      page % 500 * 8);
}

/* The same of its slab. */
static off_t slab_at(uint32_t page, int *file)
{
	*file = c.file[page / c.info.extent_pages];
	return (off_t)(page % c.info.extent_pages) * PAGE + page % 500 * 8;
}

static uint64_t slab_get(uint32_t page)
{
	uint64_t v;
	int file;
	off_t at = slab_at(page, &file);

	if (pread(file, &v, sizeof(v), at) != sizeof(v))
		fail("slab of page %u: %s", page, strerror(errno));
	return v;
}

static void slab_put(uint32_t page, uint64_t v)
{
	int file;
	off_t at = slab_at(page, &file);

	if (pwrite(file, &v, sizeof(v), at) != sizeof(v))
		fail("slab of page %u: %s", page, strerror(errno));
}

/* A donor's memory is never zero by itself. */
static void slabs_spoil(void)
{
	for (uint32_t p = 0; p < PAGES; p++)
		if (c.slab[p / c.info.extent_pages])
			slab_put(p, ~0ull);
}

/* Half of it was written, some was read, the rest never was. */
static void all_on_slabs(void)
{
	for (uint32_t p = 0; p < PAGES; p += 2)
		put(p, 1);
	for (uint32_t p = 1; p < PAGES; p += 4)
		if (get(p))
			fail("page %u is not zero", p);
	/* In range is enough for an extent to get its slab. */
	range_freeze(0, PAGES);
	range_sync(0, PAGES, false);
	for (uint32_t p = 0; p < PAGES; p++)
		if (slab_get(p) != (p % 2 ? 0 : word(p, 1)))
			fail("slab of page %u has %#jx", p,
			     (uintmax_t)slab_get(p));
	if (info_of(fd).direct_pages)
		fail("%ju pages are still here",
		     (uintmax_t)info_of(fd).direct_pages);
	range_freeze(0, 0);
	for (uint32_t p = 0; p < PAGES; p++)
		if (get(p) != (p % 2 ? 0 : word(p, 1)))
			fail("page %u has %#jx", p, (uintmax_t)get(p));
	printf("all of it on slabs: right\n");
}

/* The bytes that a slab had before a page became zero are gone. */
static void zeroes_too(void)
{
	slabs_spoil();
	if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, SIZE))
		fail("hole: %s", strerror(errno));
	range_freeze(0, PAGES);
	range_sync(0, PAGES, false);
	for (uint32_t p = 0; p < PAGES; p++)
		if (slab_get(p))
			fail("slab of page %u has %#jx", p,
			     (uintmax_t)slab_get(p));
	range_freeze(0, 0);
	printf("zeroes too: right\n");
}

struct reader {
	pthread_t thread;
	uint32_t page;
	bool write;
	volatile bool begun, done;
	uint64_t saw;
};

static void *reader_main(void *arg)
{
	struct reader *r = arg;

	r->begun = true;
	if (r->write)
		put(r->page + 1, 9);
	r->saw = get(r->page);
	r->done = true;
	return NULL;
}

/* Accesses wait, and see what was made of it meanwhile. */
static void frozen(void)
{
	struct reader r[8] = { 0 };

	for (uint32_t p = 0; p < PAGES; p++)
		put(p, 2);
	range_freeze(BLOCK, 2 * BLOCK);
	range_freeze(SIZE / 2 / PAGE, BLOCK);
	range_sync(BLOCK, 2 * BLOCK, false);
	range_sync(SIZE / 2 / PAGE, BLOCK, false);
	for (uint32_t i = 0; i < 8; i++) {
		r[i].page = i < 4 ? BLOCK + 8 * i : SIZE / 2 / PAGE + 2 * i - 8;
		r[i].write = i % 2;
		if (pthread_create(&r[i].thread, NULL, reader_main, &r[i]))
			fail("pthread_create");
	}
	for (uint32_t i = 0; i < 8; i++)
		while (!r[i].begun)
			usleep(1000);
	/* Others go on, all of the time. */
	for (uint32_t turn = 0; turn < 20; turn++) {
		usleep(5000);
		for (uint32_t p = 3 * BLOCK; p < SIZE / 2 / PAGE; p++)
			if (get(p) != word(p, 2))
				fail("page %u beside it", p);
		for (uint32_t i = 0; i < 8; i++)
			if (r[i].done)
				fail("page %u was not frozen", r[i].page);
	}
	for (uint32_t i = 0; i < 8; i++) {
		slab_put(r[i].page, word(r[i].page, 3));
		if (slab_get(r[i].page + 1) != word(r[i].page + 1, 2))
			fail("page %u was written while frozen", r[i].page + 1);
	}
	range_freeze(0, 0);
	for (uint32_t i = 0; i < 8; i++) {
		pthread_join(r[i].thread, NULL);
		if (r[i].saw != word(r[i].page, 3))
			fail("page %u: saw %#jx", r[i].page,
			     (uintmax_t)r[i].saw);
		if (r[i].write && get(r[i].page + 1) != word(r[i].page + 1, 9))
			fail("page %u: what was written is gone",
			     r[i].page + 1);
	}
	printf("frozen: right\n");
}

/* Current on the slab and here as well; what is written later is found again. */
static void kept(void)
{
	uint64_t before;

	for (uint32_t p = 0; p < PAGES; p++)
		put(p, 4);
	control_budget(&c, 2 * PAGES);
	for (uint32_t p = 0; p < PAGES; p++)
		if (get(p) != word(p, 4))
			fail("page %u", p);
	before = info_of(fd).direct_pages;
	for (uint32_t turn = 5; turn < 9; turn++) {
		range_sync(0, PAGES, true);
		for (uint32_t p = 0; p < PAGES; p++)
			if (slab_get(p) != get(p))
				fail("slab of page %u has %#jx", p,
				     (uintmax_t)slab_get(p));
		for (uint32_t p = turn; p < PAGES; p += 7)
			put(p, turn);
	}
	range_freeze(0, PAGES);
	range_sync(0, PAGES, true);
	for (uint32_t p = 0; p < PAGES; p++) {
		uint32_t turn = 4;

		for (uint32_t t = 5; t < 9; t++)
			turn = p >= t && (p - t) % 7 == 0 ? t : turn;
		if (slab_get(p) != word(p, turn))
			fail("slab of page %u has %#jx", p,
			     (uintmax_t)slab_get(p));
	}
	if (info_of(fd).direct_pages < before)
		fail("%ju pages here, %ju before",
		     (uintmax_t)info_of(fd).direct_pages, (uintmax_t)before);
	range_freeze(0, 0);
	control_budget(&c, c.info.budget_pages);
	printf("kept: right\n");
}

static void freeze_all(int file)
{
	no_error(range_ask(file, DCMFS_IOC_FREEZE, 0, PAGES, 0, 0), "FREEZE");
}

/* A process that ends thaws what it froze. */
static void freezers(void)
{
	int other = file_again(fd);

	range_freeze(0, PAGES);
	if (range_ask(other, DCMFS_IOC_FREEZE, 0, BLOCK, 0, 0) != EBUSY)
		fail("two freeze");
	/* That is not its to let go. */
	no_error(range_ask(other, DCMFS_IOC_FREEZE, 0, 0, 0, 0),
		 "letting nothing go");
	if (range_ask(other, DCMFS_IOC_FREEZE, 0, BLOCK, 0, 0) != EBUSY)
		fail("another let go");
	range_freeze(0, 0);
	/* Now nobody freezes. */
	freeze_all(other);
	close(other);
	get(0);
	by_killed(fd, freeze_all);
	get(PAGES - 1);
	printf("freezers: right\n");
}

/* When a control plane that hands a block to a worker is about to be killed. */
static volatile uint64_t *killed_at;

static void hand_over(int file)
{
	no_error(range_ask(file, DCMFS_IOC_FREEZE, 0, BLOCK, 0, 0), "FREEZE");
	no_error(range_ask(file, DCMFS_IOC_SYNC, 0, BLOCK, 0, LIMIT_MS),
		 "SYNC");
	*killed_at = now_ns();
}

/* Its donor ends the worker a little later: until then accesses wait. */
static void worker_goes_on(void)
{
	const uint64_t at_least = 200000000;
	uint64_t waited;

	killed_at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (killed_at == MAP_FAILED)
		fail("mmap: %s", strerror(errno));
	put(6, 4);
	by_killed(fd, hand_over);
	slab_put(6, word(6, 5));
	if (get(6) != word(6, 5))
		fail("the worker's last change is lost: %#jx",
		     (uintmax_t)get(6));
	waited = now_ns() - *killed_at;
	if (waited < at_least)
		fail("an access after %ju ns", (uintmax_t)waited);
	/* The next control plane does not wait. */
	by_killed(fd, hand_over);
	range_freeze(0, BLOCK);
	slab_put(6, word(6, 6));
	range_freeze(0, 0);
	if (get(6) != word(6, 6))
		fail("page 6 has %#jx", (uintmax_t)get(6));
	printf("worker goes on: right\n");
}

/* A sync of all fails with @err; it says that pages from @first on are left. */
static void left_over(int file, int err, uint64_t first, uint32_t limit_ms)
{
	struct dcmfs_range r = { .pages = PAGES, .limit_ms = limit_ms };
	int said = ioctl(file, DCMFS_IOC_SYNC, &r) ? errno : 0;

	if (said != err || r.first != first || r.pages != PAGES - first)
		fail("syncing all: %s, left are %ju pages from %ju on",
		     strerror(said), (uintmax_t)r.pages, (uintmax_t)r.first);
}

/* No slab is to be had: a time's end, and a killed process's. */
static void no_slabs(void)
{
	int file = file_make(dir, SIZE), status;
	char *m = map_shared(file, SIZE);
	pid_t pid;

	m[0] = 1;
	if (range_ask(file, DCMFS_IOC_SYNC, 0, BLOCK, 0, 50) != ETIMEDOUT)
		fail("synced without a slab");
	left_over(file, ETIMEDOUT, 0, 50);
	pid = fork();
	if (!pid) {
		range_ask(file, DCMFS_IOC_SYNC, 0, PAGES, 0,
			  DCMFS_LIMIT_MAX_MS);
		_exit(1);
	}
	usleep(100000);
	kill(pid, SIGKILL);
	if (waitpid(pid, &status, 0) != pid || !WIFSIGNALED(status))
		fail("child: %#x", status);
	if (m[0] != 1 || m[PAGE])
		fail("content");
	munmap(m, SIZE);
	close(file);
	printf("no slabs: right\n");
}

/* A process that is killed while it waits for a frozen page is gone at once. */
static void killed(void)
{
	int status;
	pid_t pid;

	range_freeze(0, BLOCK);
	range_sync(0, BLOCK, false);
	pid = fork();
	if (!pid) {
		get(3);
		_exit(1);
	}
	usleep(100000);
	kill(pid, SIGKILL);
	if (waitpid(pid, &status, 0) != pid || !WIFSIGNALED(status))
		fail("child: %#x", status);
	range_freeze(0, 0);
	printf("killed: right\n");
}

static void *mover(void *arg)
{
	control_move(&c, 0);
	return arg;
}

/* An extent with a frozen page stays where it is. */
static void stays(void)
{
	uint64_t slab;
	pthread_t t;

	range_freeze(0, BLOCK);
	range_sync(0, BLOCK, false);
	slab = c.slab[0];
	if (pthread_create(&t, NULL, mover, NULL))
		fail("pthread_create");
	for (uint32_t i = 0; i < 20; i++) {
		usleep(10000);
		if (c.slab[0] != slab)
			fail("it was moved");
	}
	/* what a worker does there is not lost */
	slab_put(5, word(5, 7));
	range_freeze(0, 0);
	pthread_join(t, NULL);
	if (c.slab[0] == slab || get(5) != word(5, 7))
		fail("after the move: %#jx", (uintmax_t)get(5));
	printf("stays: right\n");
}

static uint32_t write_count(uint64_t first, uint64_t pages)
{
	struct dcmfs_write_count arg = { .first = first, .pages = pages };

	no_error(ioctl(fd, DCMFS_IOC_WRITE_COUNT, &arg) ? errno : 0,
		 "WRITE_COUNT");
	return arg.count;
}

/* Each write to the slab is counted where it is, and nothing else is. */
static void write_counts(void)
{
	uint32_t all, one, other;

	for (uint32_t turn = 0; turn < 2; turn++) {
		range_sync(0, PAGES, turn);
		/* by the first of these there are any */
		all = write_count(0, PAGES);
		one = write_count(3 * BLOCK, BLOCK);
		other = write_count(4 * BLOCK, PAGES - 4 * BLOCK);
		/* a page that is only read, or has its first write, stays here */
		get(4 * BLOCK);
		put(3 * BLOCK, 9);
		if (write_count(0, PAGES) != all)
			fail("a write that is not on the slab was counted");
		range_sync(3 * BLOCK, BLOCK, turn);
		if (write_count(3 * BLOCK, BLOCK) == one ||
		    write_count(0, PAGES) == all)
			fail("a write to the slab was not counted");
		if (write_count(4 * BLOCK, PAGES - 4 * BLOCK) != other)
			fail("a write elsewhere was counted");
		one = write_count(3 * BLOCK, BLOCK);
		range_sync(3 * BLOCK, BLOCK, turn);
		if (write_count(3 * BLOCK, BLOCK) != one)
			fail("nothing to write was counted");
	}
	printf("write counts: right\n");
}

static void hints(void)
{
	for (uint32_t p = 0; p < PAGES; p++)
		put(p, 6);
	for (uint32_t i = 0; i < 64; i++) {
		uint32_t at = i * 61 % (PAGES - 64);

		no_error(range_ask(fd, DCMFS_IOC_HINT, at, 64,
				   i % (DCMFS_HINT_FORGET + 1), 0),
			 "HINT");
	}
	for (uint32_t p = 0; p < PAGES; p++)
		if (get(p) != word(p, 6))
			fail("page %u has %#jx", p, (uintmax_t)get(p));
	printf("hints: right\n");
}

/*
 * Pages that FETCH names come in without an access, which then fetches nothing; but
 * those that are frozen do not come.
 */
static void fetched(void)
{
	struct rusage before, after;
	const uint32_t n = 16 * BLOCK;
	uint64_t here;

	for (uint32_t p = 0; p < PAGES; p++)
		put(p, 7);
	range_sync(0, PAGES, false);
	here = info_of(fd).direct_pages + n - 4 * BLOCK;
	range_freeze(0, 4 * BLOCK);
	no_error(range_ask(fd, DCMFS_IOC_HINT, 0, n, DCMFS_HINT_FETCH, 0),
		 "HINT");
	/* in the order of their addresses: the frozen ones were passed over */
	while (info_of(fd).direct_pages < here)
		usleep(1000);
	if (info_of(fd).direct_pages > here)
		fail("%ju pages are here", (uintmax_t)info_of(fd).direct_pages);
	range_freeze(0, 0);
	getrusage(RUSAGE_THREAD, &before);
	for (uint32_t p = 4 * BLOCK; p < n; p++)
		if (get(p) != word(p, 7))
			fail("page %u has %#jx", p, (uintmax_t)get(p));
	getrusage(RUSAGE_THREAD, &after);
	if (after.ru_majflt != before.ru_majflt)
		fail("%ld pages were fetched again",
		     after.ru_majflt - before.ru_majflt);
	no_error(range_ask(fd, DCMFS_IOC_HINT, 0, PAGES, DCMFS_HINT_FETCH, 0),
		 "HINT");
	no_error(range_ask(fd, DCMFS_IOC_HINT, 0, PAGES, DCMFS_HINT_FORGET, 0),
		 "HINT");
	for (uint32_t p = 0; p < PAGES; p++)
		if (get(p) != word(p, 7))
			fail("page %u has %#jx", p, (uintmax_t)get(p));
	printf("fetched: right\n");
}

static void refused(void)
{
	static const struct dcmfs_range wrong[] = {
		{ .first = 1, .pages = BLOCK },
		{ .first = 0, .pages = 1 },
		{ .first = BLOCK },
		{ .first = PAGES, .pages = BLOCK },
		{ .first = PAGES - BLOCK, .pages = 2 * BLOCK },
		{ .first = 0, .pages = PAGES + BLOCK },
		{ .first = BLOCK, .pages = -(uint64_t)BLOCK },
		{ .first = 1ull << 32, .pages = BLOCK },
		{ .first = -(uint64_t)BLOCK, .pages = BLOCK },
		{ .first = -(uint64_t)BLOCK, .pages = 2 * BLOCK },
	};
	static const struct dcmfs_write_count wrong_counts[] = {
		{ .first = 1, .pages = BLOCK },
		{ .first = 0, .pages = 1 },
		{ .first = PAGES - BLOCK, .pages = 2 * BLOCK },
		{ .first = -(uint64_t)BLOCK, .pages = 2 * BLOCK },
		{ .pages = BLOCK, .count = 1 },
		{ .pages = BLOCK, .reserved = 1 },
	};
	size_t n = sizeof(wrong) / sizeof(wrong[0]), i;

	for (i = 0; i < sizeof(wrong_counts) / sizeof(wrong_counts[0]); i++) {
		struct dcmfs_write_count t = wrong_counts[i];

		if (!ioctl(fd, DCMFS_IOC_WRITE_COUNT, &t) || errno != EINVAL)
			fail("write count %zu was taken", i);
	}
	for (i = 0; i < n; i++) {
		if (range_ask(fd, DCMFS_IOC_FREEZE, wrong[i].first,
			      wrong[i].pages, 0, 0) != EINVAL ||
		    range_ask(fd, DCMFS_IOC_SYNC, wrong[i].first,
			      wrong[i].pages, 0, 1) != EINVAL ||
		    range_ask(fd, DCMFS_IOC_SPREAD, wrong[i].first,
			      wrong[i].pages, 0, 1) != EINVAL ||
		    range_ask(fd, DCMFS_IOC_REVERT, wrong[i].first,
			      wrong[i].pages, 0, 0) != EINVAL)
			fail("range %zu was taken", i);
		/* of single pages too */
		if (i > 1 && range_ask(fd, DCMFS_IOC_HINT, wrong[i].first,
				   wrong[i].pages, 0, 0) != EINVAL)
			fail("hint %zu was taken", i);
	}
	for (i = 0; i < 32; i++) {
		if (range_ask(fd, DCMFS_IOC_FREEZE, 0, BLOCK, 1u << i, 0) !=
			    EINVAL ||
		    range_ask(fd, DCMFS_IOC_FREEZE, 0, BLOCK, 0, 1u << i) !=
			    EINVAL ||
		    (i && range_ask(fd, DCMFS_IOC_SYNC, 0, BLOCK, 1u << i, 1) !=
				  EINVAL) ||
		    (i > 2 && range_ask(fd, DCMFS_IOC_HINT, 0, BLOCK, 1u << i,
					0) != EINVAL) ||
		    range_ask(fd, DCMFS_IOC_HINT, 0, BLOCK, 0, 1u << i) !=
			    EINVAL)
			fail("bit %zu was taken", i);
	}
	if (range_ask(fd, DCMFS_IOC_SYNC, 0, BLOCK, 0, 0) != EINVAL ||
	    range_ask(fd, DCMFS_IOC_SYNC, 0, BLOCK, 0,
		      DCMFS_LIMIT_MAX_MS + 1) != EINVAL ||
	    range_ask(fd, DCMFS_IOC_HINT, 0, BLOCK, DCMFS_HINT_FORGET + 1, 0) !=
		    EINVAL)
		fail("a limit or a hint was taken");
	printf("refused: right\n");
}

/* The server has ended: what is asked of it does not come. */
static void lost(void)
{
	uint64_t extent = c.info.extent_pages;

	range_sync(0, PAGES, false);
	control_lose(&c, 3);
	/* Pages before it are written back, which takes time. */
	for (uint32_t p = 0; p < 3 * extent; p++)
		put(p, 8);
	left_over(fd, EIO, 3 * extent, LIMIT_MS);
	left_over(fd, EIO, 3 * extent, LIMIT_MS);
	printf("lost: right\n");
}

/* synced DIR */
int freeze(int argc, char **argv)
{
	pthread_t server;

	(void)argc;
	dir = argv[2];
	fd = file_make(dir, SIZE);
	mem = map_shared(fd, SIZE);
	control_open(&c, fd);
	/* Half of it fits. */
	no_error(control_budget(&c, PAGES / 2), "budget");
	c.info = info_of(fd);
	no_slabs();
	if (pthread_create(&server, NULL, serve_all, NULL))
		fail("pthread_create");
	all_on_slabs();
	zeroes_too();
	frozen();
	kept();
	freezers();
	worker_goes_on();
	killed();
	stays();
	write_counts();
	hints();
	fetched();
	refused();
	stop = true;
	pthread_join(server, NULL);
	lost();
	return 0;
}

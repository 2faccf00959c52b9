// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * touch.c - a known pattern of accesses to memory of either pager
 *
 *	touch anon|FILE MIB seq|rand|zipf WRITES% ACCESSES THREADS SEED
 *
 * Memory is anonymous, for swap, or a file's, for dcmfs. Each page is written
 * once, then a quarter of the accesses are made so that what is measured is
 * not the beginning, then the accesses: to one page each, of which the first
 * word is checked. `seq` goes round and round; each thread has its part of the
 * pages. `rand` is uniform, `zipf` has 1/n for the n-th page of a scattered
 * order; all threads use all pages. Swap gets no other memory of the program,
 * as in arena.c.
 *
 * The command LOOK (environment) is run before and after what is measured; what it
 * prints is there in the output. Between, plugin.c's counters run.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096u
#define THREADS_MAX 64u

/* plugin.c's begin and end; elsewhere these do nothing. */
#define marker(n) __asm__ volatile("nopl 0x64636d0" #n "(%%rax)" ::: "memory")

static struct {
	volatile uint64_t *mem;
	uint64_t pages;
	char pattern;
	unsigned int writes; /* of 100 */
	uint64_t accesses; /* of a thread */
	unsigned int threads;
	uint64_t seed;
	pthread_barrier_t barrier;
} o;

static void fail(const char *what)
{
	fprintf(stderr, "touch: %s: %s\n", what, strerror(errno));
	_exit(1);
}

/* xorshift64* */
static uint64_t rnd(uint64_t *state)
{
	uint64_t x = *state;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	*state = x;
	return (x * 0x2545f4914f6cdd1dull) >> 16;
}

static uint64_t word(uint64_t page)
{
	return (page + 1) * 0x9e3779b97f4a7c15ull;
}

struct who {
	pthread_t thread;
	unsigned int number;
	uint64_t rng;
	uint64_t at;
};

static uint64_t next_page(struct who *w)
{
	uint64_t part = o.pages / o.threads;
	double u;

	switch (o.pattern) {
	case 's':
		return w->number * part + w->at++ % part;
	case 'r':
		return rnd(&w->rng) % o.pages;
	default:
		/* With density 1/x; and the pages, a power of two, scattered. */
		u = (double)(rnd(&w->rng) & 0xffffffff) / 4294967296.0;
		return (uint64_t)exp(u * log((double)o.pages)) * 0x9e3779b1u %
		       o.pages;
	}
}

static void touch(struct who *w, uint64_t accesses)
{
	while (accesses--) {
		uint64_t page = next_page(w);
		volatile uint64_t *p = o.mem + page * (PAGE / 8);

		if (*p != word(page)) {
			fprintf(stderr, "touch: page %ju is wrong: %#jx\n",
				(uintmax_t)page, (uintmax_t)*p);
			_exit(1);
		}
		if (rnd(&w->rng) % 100 < o.writes)
			p[1 + w->number] = accesses;
	}
}

static void *thread(void *arg)
{
	struct who *w = arg;

	touch(w, o.accesses / 4);
	pthread_barrier_wait(&o.barrier); /* warm */
	pthread_barrier_wait(&o.barrier); /* begin */
	touch(w, o.accesses);
	pthread_barrier_wait(&o.barrier); /* end */
	return NULL;
}

static void look(const char *when)
{
	const char *command = getenv("LOOK");

	printf("%s\n", when);
	fflush(stdout);
	if (command && system(command) != 0)
		fail("LOOK");
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

int main(int argc, char **argv)
{
	static struct who who[THREADS_MAX];
	struct rusage before, after;
	unsigned int i;
	uint64_t page, ns;
	int fd = -1;

	if (argc != 8) {
		fprintf(stderr, "usage: see the top of touch.c\n");
		return 2;
	}
	o.pages = strtoull(argv[2], NULL, 0) * 256;
	o.pattern = argv[3][0];
	o.writes = (unsigned int)atoi(argv[4]);
	o.threads = (unsigned int)atoi(argv[6]);
	if (!o.threads || o.threads > THREADS_MAX || o.pages < o.threads ||
	    !strchr("srz", o.pattern) || (o.pages & (o.pages - 1))) {
		fprintf(stderr, "touch: bad argument\n");
		return 2;
	}
	o.accesses = strtoull(argv[5], NULL, 0) / o.threads;
	o.seed = strtoull(argv[7], NULL, 0);
	if (strcmp(argv[1], "anon") != 0) {
		fd = open(argv[1], O_RDWR);
		if (fd < 0)
			fail(argv[1]);
	}
	o.mem = mmap(NULL, o.pages * PAGE, PROT_READ | PROT_WRITE,
		     fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd, 0);
	if (o.mem == MAP_FAILED)
		fail("mmap");
	if (fd < 0 && (mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) ||
		       munlock((void *)o.mem, o.pages * PAGE)))
		fail("mlockall");
	for (page = 0; page < o.pages; page++)
		o.mem[page * (PAGE / 8)] = word(page);
	pthread_barrier_init(&o.barrier, NULL, o.threads + 1);
	for (i = 0; i < o.threads; i++) {
		who[i].number = i;
		who[i].rng = (o.seed + i + 1) * 0x9e3779b97f4a7c15ull;
		errno = pthread_create(&who[i].thread, NULL, thread, &who[i]);
		if (errno)
			fail("pthread_create");
	}
	pthread_barrier_wait(&o.barrier);
	look("before");
	getrusage(RUSAGE_SELF, &before);
	ns = now_ns();
	marker(1);
	pthread_barrier_wait(&o.barrier);
	pthread_barrier_wait(&o.barrier);
	marker(2);
	ns = now_ns() - ns;
	getrusage(RUSAGE_SELF, &after);
	look("after");
	printf("done\nmajflt %ld\nminflt %ld\nns %ju\naccesses %ju\n",
	       after.ru_majflt - before.ru_majflt,
	       after.ru_minflt - before.ru_minflt, (uintmax_t)ns,
	       (uintmax_t)(o.accesses * o.threads));
	for (i = 0; i < o.threads; i++)
		pthread_join(who[i].thread, NULL);
	return 0;
}

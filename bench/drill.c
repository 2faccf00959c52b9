// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * drill.c - a load that tells how it goes while donors are killed under it
 *
 *	drill CONFIG MIB THREADS WRITE_PERCENT
 *
 * Threads touch random pages of paged memory, each its own; every page holds its
 * number and how often it was written, and every touch checks both. Each tenth
 * of a second one line of JSON goes to standard output:
 *
 *	{"ms":1234,"touches":5678,"gap_us":910}
 *
 * touches since the line before, and the longest time that any thread has been
 * without finishing a touch. A wrong page ends the program with status 1. It goes
 * on until standard input ends.
 */
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include "common.h"
#include "libdcm.h"

#define THREADS_MAX 16u
#define LINE_MS 100

/* @last_ns, @gap_ns, @touches are read by the main thread, which takes @gap_ns. */
struct worker {
	pthread_t thread;
	uint64_t first;
	uint64_t nr;
	uint64_t rng;
	uint64_t last_ns;
	uint64_t gap_ns;
	uint64_t touches;
};

static struct worker workers[THREADS_MAX];
static char *memory;
static uint32_t *version; /* of each page: how often it was written */
static unsigned int write_percent;

static void page_write(uint64_t page)
{
	uint64_t *w = (uint64_t *)(memory + page * PAGE);

	version[page]++;
	w[0] = page << 32 | version[page];
	w[PAGE / 8 - 1] = ~w[0];
}

static void page_check(uint64_t page)
{
	const uint64_t *w = (const uint64_t *)(memory + page * PAGE);

	if (w[0] != (page << 32 | version[page]) || w[PAGE / 8 - 1] != ~w[0])
		die("page %llu is wrong: %#llx, version %u",
		    (unsigned long long)page, (unsigned long long)w[0],
		    version[page]);
}

/* The thread has finished a touch. */
static void touched(struct worker *w)
{
	uint64_t now = bench_now_ns();
	uint64_t gap = now - __atomic_load_n(&w->last_ns, __ATOMIC_RELAXED);

	if (gap > __atomic_load_n(&w->gap_ns, __ATOMIC_RELAXED))
		__atomic_store_n(&w->gap_ns, gap, __ATOMIC_RELAXED);
	__atomic_store_n(&w->last_ns, now, __ATOMIC_RELAXED);
	__atomic_fetch_add(&w->touches, 1, __ATOMIC_RELAXED);
}

static void *work(void *arg)
{
	struct worker *w = arg;
	uint64_t page;

	for (;;) {
		page = w->first + bench_rand(&w->rng) % w->nr;
		page_check(page);
		if (bench_rand(&w->rng) % 100 < write_percent)
			page_write(page);
		touched(w);
	}
	return NULL;
}

/* The longest that a thread was, or still is, without finishing a touch. */
static uint64_t gap_take(unsigned int threads)
{
	uint64_t longest = 0, now = bench_now_ns();

	for (unsigned int i = 0; i < threads; i++) {
		struct worker *w = &workers[i];
		uint64_t gap =
			__atomic_exchange_n(&w->gap_ns, 0, __ATOMIC_RELAXED);
		uint64_t last = __atomic_load_n(&w->last_ns, __ATOMIC_RELAXED);

		if (now > last && now - last > gap)
			gap = now - last;
		if (gap > longest)
			longest = gap;
	}
	return longest;
}

static uint64_t touches_take(unsigned int threads)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; i < threads; i++)
		sum += __atomic_exchange_n(&workers[i].touches, 0,
					   __ATOMIC_RELAXED);
	return sum;
}

int main(int argc, char **argv)
{
	struct pollfd end = { .fd = STDIN_FILENO, .events = POLLIN };
	uint64_t pages, start;
	unsigned int threads;
	struct dcm_pager *p;
	char err[512];

	if (argc != 5)
		die("usage: drill CONFIG MIB THREADS WRITE_PERCENT");
	pages = strtoull(argv[2], NULL, 10) << 8;
	threads = (unsigned int)atoi(argv[3]);
	write_percent = (unsigned int)atoi(argv[4]);
	if (!threads || threads > THREADS_MAX || pages < threads ||
	    pages >> 31 || write_percent > 100)
		die("drill: a number is out of range");
	version = calloc(pages, sizeof(*version));
	p = dcm_pager_open(argv[1], err, sizeof(err));
	if (!p)
		die("%s", err);
	memory = dcm_pager_map(p, pages * PAGE);
	if (!memory || !version)
		die("drill: no memory");
	for (uint64_t i = 0; i < pages; i++)
		page_write(i);
	start = bench_now_ns();
	for (unsigned int i = 0; i < threads; i++) {
		workers[i] = (struct worker){
			.first = pages / threads * i,
			.nr = pages / threads,
			.rng = i + 1,
			.last_ns = start,
		};
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
			die("drill: can't start a thread");
	}
	while (!poll(&end, 1, LINE_MS)) {
		printf("{\"ms\":%llu,\"touches\":%llu,\"gap_us\":%llu}\n",
		       (unsigned long long)((bench_now_ns() - start) / 1000000),
		       (unsigned long long)touches_take(threads),
		       (unsigned long long)gap_take(threads) / 1000);
		fflush(stdout);
	}
	/* threads use the memory until the end: the pager is not closed */
	_exit(0);
}

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * victim.c - memory under use while something goes wrong
 *
 *	victim dcm:CONFIG MIB THREADS SEED NAP_US
 *	victim file:PATH MIB THREADS SEED NAP_US
 *
 * The memory is libdcm's, or a file on dcmfs. Each thread owns some of the
 * pages. First it writes all of them, then it reads and writes runs of them at
 * random, with a nap between runs. Every word of a page follows from its
 * number, how often it was written and where the word is, and every read looks
 * at all of them. Nothing is fatal here: bytes that are wrong and pages that
 * answer with SIGBUS are counted, once each, and left alone from then on. How
 * long the slowest access took counts too, and how many took longer than a
 * second, those that still wait included.
 *
 * It says "ready" when all is written. On its standard input "stat" asks for
 * what was counted, "end" for that after every page was read once more, which
 * is also its end. Both answers are one line of JSON.
 *
 * Locking: a thread's counters are its own; others read them with atomics.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "libdcm.h"

#define PAGE 4096u
#define WORDS (PAGE / 8)
#define THREADS_MAX 16u
#define RUN 32u
#define STOP_NS 1000000000u
#define GONE UINT32_MAX /* the page was lost or wrong */

struct user {
	pthread_t thread;
	uint32_t *seq; /* of each page of all; only its own are used */
	char *mem;
	uint64_t pages;
	uint64_t first; /* of its pages */
	uint64_t end;
	uint64_t rng;
	unsigned int nap_us;

	bool filled;
	uint64_t ops;
	uint64_t lost_pages;
	uint64_t wrong_bytes;
	uint64_t found_wrong; /* by the access just made */
	uint64_t since_ns; /* the access that goes on; 0: none */
	uint64_t longest_ns;
	uint64_t stops; /* accesses that took longer than STOP_NS */
};

static struct user users[THREADS_MAX];
static unsigned int nr_users;
static bool stopped;

static __thread sigjmp_buf bus;
static __thread volatile sig_atomic_t expected;

static __attribute__((noreturn, format(printf, 1, 2))) void
fail(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fprintf(stderr, "victim: ");
	vfprintf(stderr, fmt, ap);
	fprintf(stderr, "\n");
	va_end(ap);
	_exit(1);
}

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

static uint64_t load(const uint64_t *p)
{
	return __atomic_load_n(p, __ATOMIC_RELAXED);
}

static void store(uint64_t *p, uint64_t v)
{
	__atomic_store_n(p, v, __ATOMIC_RELAXED);
}

static void on_bus(int sig)
{
	static const char no[] =
		"victim: SIGBUS in a thread that uses nothing\n";

	if (expected)
		siglongjmp(bus, sig);
	if (write(STDERR_FILENO, no, sizeof(no) - 1) < 0)
		_exit(2);
	_exit(1);
}

static uint64_t word(uint64_t page, uint32_t seq, unsigned int i)
{
	return (page << 32 | seq) * 0x9e3779b97f4a7c15ull + i;
}

/* Bytes of the page that are not what was written last. */
static __attribute__((noinline)) uint64_t differ(const volatile uint64_t *p,
						 uint64_t page, uint32_t seq)
{
	uint64_t wrong = 0;
	unsigned int i, b;

	for (i = 0; i < WORDS; i++) {
		uint64_t diff = p[i] ^ word(page, seq, i);

		for (b = 0; diff && b < 64; b += 8)
			wrong += (diff >> b & 0xff) != 0;
	}
	return wrong;
}

static __attribute__((noinline)) void fill(volatile uint64_t *p, uint64_t page,
					   uint32_t seq)
{
	unsigned int i;

	for (i = 0; i < WORDS; i++)
		p[i] = word(page, seq, i);
}

/* Look at a page that was written, then write it if it is to be; false: SIGBUS. */
static bool access_page(struct user *u, uint64_t page, bool change)
{
	volatile uint64_t *p = (volatile uint64_t *)(u->mem + page * PAGE);

	if (sigsetjmp(bus, 1)) {
		expected = 0;
		return false;
	}
	expected = 1;
	u->found_wrong = u->seq[page] ? differ(p, page, u->seq[page]) : 0;
	if (change && !u->found_wrong) {
		fill(p, page, u->seq[page] + 1);
		u->seq[page]++;
	}
	expected = 0;
	return true;
}

static void touch(struct user *u, uint64_t page, bool change)
{
	uint64_t took;

	if (u->seq[page] == GONE)
		return;
	store(&u->since_ns, now_ns());
	if (!access_page(u, page, change)) {
		u->seq[page] = GONE;
		store(&u->lost_pages, u->lost_pages + 1);
	} else if (u->found_wrong) {
		fprintf(stderr,
			"victim: page %llu, written %u times: %llu bytes are wrong\n",
			(unsigned long long)page, u->seq[page],
			(unsigned long long)u->found_wrong);
		u->seq[page] = GONE;
		store(&u->wrong_bytes, u->wrong_bytes + u->found_wrong);
	}
	store(&u->ops, u->ops + 1);
	took = now_ns() - u->since_ns;
	store(&u->since_ns, 0);
	if (took > u->longest_ns)
		store(&u->longest_ns, took);
	if (took > STOP_NS)
		store(&u->stops, u->stops + 1);
}

static void *user_main(void *arg)
{
	struct user *u = arg;
	uint64_t page;

	for (page = u->first; page < u->end; page++)
		touch(u, page, true);
	__atomic_store_n(&u->filled, true, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&stopped, __ATOMIC_ACQUIRE)) {
		uint64_t n = 1 + rnd(&u->rng) % RUN;
		bool change = rnd(&u->rng) % 3 == 0;

		page = u->first + rnd(&u->rng) % (u->end - u->first);
		for (; n-- && page < u->end; page++)
			touch(u, page, change);
		if (u->nap_us)
			usleep(u->nap_us);
	}
	for (page = u->first; page < u->end; page++)
		touch(u, page, false);
	return NULL;
}

static void tell(const char *what)
{
	uint64_t ops = 0, lost = 0, wrong = 0, longest = 0, waiting = 0,
		 stops = 0;
	uint64_t now = now_ns();
	unsigned int i;

	for (i = 0; i < nr_users; i++) {
		struct user *u = &users[i];
		uint64_t since = load(&u->since_ns),
			 took = load(&u->longest_ns);
		uint64_t age = since && since < now ? now - since : 0;

		ops += load(&u->ops);
		lost += load(&u->lost_pages);
		wrong += load(&u->wrong_bytes);
		waiting = age > waiting ? age : waiting;
		took = age > took ? age : took;
		longest = took > longest ? took : longest;
		stops += load(&u->stops) + (age > STOP_NS);
	}
	printf("{\"what\": \"%s\", \"ops\": %llu, \"lost_bytes\": %llu, \"wrong_bytes\": %llu, \"longest_s\": %.3f, \"waiting_s\": %.3f, \"stops\": %llu}\n",
	       what, (unsigned long long)ops, (unsigned long long)lost * PAGE,
	       (unsigned long long)wrong, (double)longest / 1e9,
	       (double)waiting / 1e9, (unsigned long long)stops);
	fflush(stdout);
}

static char *memory(const char *where, uint64_t bytes, struct dcm_pager **pager)
{
	char err[512];
	char *mem;
	int fd;

	if (!strncmp(where, "dcm:", 4)) {
		*pager = dcm_pager_open(where + 4, err, sizeof(err));
		if (!*pager)
			fail("%s", err);
		mem = dcm_pager_map(*pager, bytes);
		if (!mem)
			fail("map: %s", strerror(errno));
		return mem;
	}
	if (strncmp(where, "file:", 5))
		fail("usage: see the top of victim.c");
	fd = open(where + 5, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, (off_t)bytes))
		fail("%s: %s", where + 5, strerror(errno));
	mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (mem == MAP_FAILED)
		fail("%s: mmap: %s", where + 5, strerror(errno));
	return mem;
}

static bool all_filled(void)
{
	unsigned int i;

	for (i = 0; i < nr_users; i++)
		if (!__atomic_load_n(&users[i].filled, __ATOMIC_ACQUIRE))
			return false;
	return true;
}

int main(int argc, char **argv)
{
	struct sigaction sa = { .sa_handler = on_bus };
	struct dcm_pager *pager = NULL;
	uint64_t pages, seed;
	unsigned int i;
	uint32_t *seq;
	char line[64];
	char *mem;

	if (argc != 6)
		fail("usage: see the top of victim.c");
	pages = strtoull(argv[2], NULL, 10) * 256;
	nr_users = (unsigned int)atoi(argv[3]);
	seed = strtoull(argv[4], NULL, 10);
	if (!pages || !nr_users || nr_users > THREADS_MAX)
		fail("usage: see the top of victim.c");
	mem = memory(argv[1], pages * PAGE, &pager);
	sigaction(SIGBUS, &sa, NULL);
	seq = calloc(pages, sizeof(*seq));
	if (!seq)
		fail("no memory");
	for (i = 0; i < nr_users; i++) {
		struct user *u = &users[i];

		u->seq = seq;
		u->mem = mem;
		u->pages = pages;
		u->first = pages * i / nr_users;
		u->end = pages * (i + 1) / nr_users;
		u->rng = (seed + i + 1) * 0x9e3779b97f4a7c15ull | 1;
		u->nap_us = (unsigned int)atoi(argv[5]);
		if (pthread_create(&u->thread, NULL, user_main, u))
			fail("can't start a thread");
	}
	while (!all_filled())
		usleep(10000);
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!strcmp(line, "stat\n"))
			tell("stat");
		if (!strcmp(line, "end\n"))
			break;
	}
	__atomic_store_n(&stopped, true, __ATOMIC_RELEASE);
	for (i = 0; i < nr_users; i++)
		pthread_join(users[i].thread, NULL);
	tell("end");
	if (pager)
		dcm_pager_close(pager);
	return 0;
}

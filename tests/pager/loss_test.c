// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * loss_test.c - a program's accesses to memory that was lost with its donor
 *
 *	loss_test look CONFIG FIFO
 *	loss_test discard CONFIG FIFO SECONDS
 *
 * Both fill memory of four times the budget, say "ready", and wait for a word
 * in FIFO, by which time the donor has been killed. look: every page holds what
 * was written or raises SIGBUS, and after a discard all read zero. discard:
 * threads use the memory, SIGBUS and all, while another discards bits of it;
 * only a thread that accesses a lost page may get the signal.
 */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fail.h"
#include "libdcm.h"

#define PAGE	4096u
#define USERS	3
#define FILL	0x5eedull

static __thread sigjmp_buf bus;
static __thread volatile sig_atomic_t expected;

struct churn {
	struct dcm_pager *pager;
	char *mem;
	uint64_t pages;
	bool stop;
};

struct user {
	struct churn *c;
	pthread_t thread;
	uint64_t rng;
	uint64_t reads;
	uint64_t errors;
};

static uint64_t rnd(uint64_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return *s * 0x2545f4914f6cdd1dull >> 11;
}

static void on_bus(int sig)
{
	static const char no[] = "FAILED: SIGBUS in a thread of the pager\n";

	if (expected)
		siglongjmp(bus, sig);
	if (write(STDERR_FILENO, no, sizeof(no) - 1) < 0)
		_exit(2);
	_exit(1);
}

/* The first word of a page; false: SIGBUS. Writes the second with @write. */
static bool touch(char *page, size_t *v, bool write)
{
	volatile size_t *p = (void *)page;

	if (sigsetjmp(bus, 1)) {
		expected = 0;
		return false;
	}
	expected = 1;
	*v = p[0];
	if (write)
		p[1] = 1;
	expected = 0;
	return true;
}

/* Fill, tell, wait for the donor to be killed. */
static struct dcm_pager *lose(char **argv, char **mem, size_t *bytes)
{
	char err[512], c;
	struct dcm_pager *pg = dcm_pager_open(argv[2], err, sizeof(err));
	size_t i;
	int fd;

	if (!pg)
		fail("%s", err);
	*bytes = dcm_pager_budget(pg) * 4;
	*mem = dcm_pager_map(pg, *bytes);
	if (!*mem)
		fail("no memory");
	signal(SIGBUS, on_bus);
	for (i = 0; i < *bytes; i += PAGE)
		*(size_t *)(*mem + i) = i + FILL;
	printf("ready\n");
	fflush(stdout);
	fd = open(argv[3], O_RDONLY);
	if (fd < 0 || read(fd, &c, 1) < 0)
		fail("fifo");
	close(fd);
	return pg;
}

static int look(char **argv)
{
	size_t bytes, i, v, right = 0, lost = 0;
	struct dcm_pager *pg;
	char *m;

	pg = lose(argv, &m, &bytes);
	for (i = 0; i < bytes; i += PAGE) {
		if (!touch(m + i, &v, false))
			lost++;
		else if (v == i + FILL)
			right++;
		else
			fail("page %zu: %zu instead of an error", i / PAGE, v);
	}
	if (!lost)
		fail("nothing was lost");
	if (!right)
		fail("nothing was kept");
	if (dcm_pager_discard(pg, m, bytes))
		fail("discard");
	for (i = 0; i < bytes; i += PAGE)
		if (*(size_t *)(m + i))
			fail("discarded page %zu is not zero", i / PAGE);
	printf("%zu pages right, %zu lost\n", right, lost);
	fflush(stdout);
	_exit(0);
}

/* A page holds its first content, or is zero since a discard. */
static void *use(void *arg)
{
	struct user *u = arg;
	struct churn *c = u->c;

	while (!__atomic_load_n(&c->stop, __ATOMIC_RELAXED)) {
		uint64_t n = rnd(&u->rng) % c->pages;
		bool write = rnd(&u->rng) % 4 == 0;
		size_t v;

		if (!touch(c->mem + n * PAGE, &v, write))
			u->errors++;
		else if (v && v != n * PAGE + FILL)
			fail("page %ju: %zu", (uintmax_t)n, v);
		else
			u->reads++;
	}
	return NULL;
}

static int discard(char **argv)
{
	struct timespec pause = { 0, 1000000 };
	struct churn c = { .stop = false };
	uint64_t rng = 88172645463325252ull, reads = 0, errors = 0;
	time_t until;
	size_t bytes;
	struct user u[USERS];
	int i;

	c.pager = lose(argv, &c.mem, &bytes);
	c.pages = bytes / PAGE;
	for (i = 0; i < USERS; i++) {
		u[i] = (struct user){ .c = &c,
				      .rng = rng + (uint64_t)i * 7919 };
		if (pthread_create(&u[i].thread, NULL, use, &u[i]))
			fail("thread");
	}
	/* In small bits, so that blocks are put together of both kinds. */
	for (until = time(NULL) + atoi(argv[4]); time(NULL) < until;) {
		uint64_t n = rnd(&rng) % (c.pages - 8);

		if (dcm_pager_discard(c.pager, c.mem + n * PAGE,
				      (1 + rnd(&rng) % 8) * PAGE))
			fail("discard");
		if (rnd(&rng) % 8 == 0)
			nanosleep(&pause, NULL);
	}
	__atomic_store_n(&c.stop, true, __ATOMIC_RELAXED);
	for (i = 0; i < USERS; i++) {
		pthread_join(u[i].thread, NULL);
		reads += u[i].reads;
		errors += u[i].errors;
	}
	if (!errors)
		fail("nothing was lost");
	printf("%ju accesses right, %ju to lost pages\n", (uintmax_t)reads,
	       (uintmax_t)errors);
	fflush(stdout);
	_exit(0);
}

int main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[1], "look"))
		return look(argv);
	if (argc == 5 && !strcmp(argv[1], "discard"))
		return discard(argv);
	fprintf(stderr, "usage: see the top of loss_test.c\n");
	return 2;
}

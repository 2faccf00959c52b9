// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * fsx.c - one file against a buffer that has to hold the same
 *
 * As xfstests' fsx does with only mapped reads and writes: ranges of bytes at
 * random are written and read by a mapping of just these pages, made for it;
 * the file is cut, extended and punched; what is past its end, or was, is zero.
 * Meanwhile the budget goes up and down, slabs move, and all of it leaves.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dcmfs_test.h"

#define PAGES 2048u
#define SIZE ((size_t)PAGES * PAGE)

struct fsx {
	struct control c;
	char *good;
	size_t size; /* of the file */
	uint64_t rng;
	uint64_t bytes;
};

static size_t below(struct fsx *x, size_t n)
{
	return rnd(&x->rng) % n;
}

/* A range within the file, most often a short one. */
static size_t range(struct fsx *x, size_t *from)
{
	size_t most = below(x, 4) ? 3 * PAGE : 300 * PAGE;

	*from = below(x, x->size);
	if (most > x->size - *from)
		most = x->size - *from;
	return 1 + below(x, most);
}

/* The bytes from @from on, in a mapping of their pages. */
static char *map(struct fsx *x, size_t from, size_t bytes, char **base)
{
	size_t start = from & ~(size_t)(PAGE - 1);

	*base = mmap(NULL, from + bytes - start, PROT_READ | PROT_WRITE,
		     MAP_SHARED, x->c.fd, (off_t)start);
	if (*base == MAP_FAILED)
		fail("mmap: %s", strerror(errno));
	return *base + (from - start);
}

static void compare(struct fsx *x, const char *m, size_t from, size_t bytes)
{
	size_t i;

	x->bytes += bytes;
	if (!memcmp(m, x->good + from, bytes))
		return;
	for (i = 0; m[i] == x->good[from + i];)
		i++;
	fail("byte %zu is %d instead of %d", from + i, m[i], x->good[from + i]);
}

static void do_write(struct fsx *x)
{
	size_t from, bytes, i;
	char *base, *m;

	bytes = range(x, &from);
	m = map(x, from, bytes, &base);
	for (i = 0; i < bytes; i++)
		x->good[from + i] = (char)rnd(&x->rng);
	memcpy(m, x->good + from, bytes);
	munmap(base, (size_t)(m - base) + bytes);
}

static void do_read(struct fsx *x)
{
	size_t from, bytes;
	char *base, *m;

	bytes = range(x, &from);
	m = map(x, from, bytes, &base);
	compare(x, m, from, bytes);
	munmap(base, (size_t)(m - base) + bytes);
}

static void do_resize(struct fsx *x)
{
	size_t size = (1 + below(x, PAGES)) * PAGE;

	if (ftruncate(x->c.fd, (off_t)size))
		fail("ftruncate: %s", strerror(errno));
	if (size < x->size)
		memset(x->good + size, 0, x->size - size);
	x->size = size;
}

static void do_punch(struct fsx *x)
{
	size_t from = below(x, x->size / PAGE), n = 1 + below(x, 40);

	if (fallocate(x->c.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		      (off_t)(from * PAGE), (off_t)(n * PAGE)))
		fail("hole: %s", strerror(errno));
	if (n > PAGES - from)
		n = PAGES - from;
	memset(x->good + from * PAGE, 0, n * PAGE);
}

static void do_control(struct fsx *x)
{
	uint64_t least = x->c.info.min_budget_pages;

	switch (below(x, 3)) {
	case 0:
		control_squeeze(&x->c);
		break;
	case 1:
		control_move(&x->c, (uint32_t)below(x, x->c.info.extents));
		break;
	default:
		if (control_budget(&x->c, least + below(x, PAGES)))
			fail("budget");
	}
}

/* fsx DIR OPERATIONS SEED */
int fsx(int argc, char **argv)
{
	static void (*const ops[])(struct fsx *) = {
		do_write, do_write, do_write, do_write, do_write,
		do_read,  do_read,  do_read,  do_read,	do_read,
		do_punch, do_punch, do_resize,
	};
	uint64_t n = strtoull(argv[3], NULL, 0), i;
	struct fsx x = { .size = SIZE };
	char *m, *base;
	uint32_t e;

	(void)argc;
	x.rng = strtoull(argv[4], NULL, 0) * 2 + 1;
	x.good = calloc(1, SIZE);
	control_open(&x.c, file_make(argv[2], SIZE));
	if (!x.good || control_budget(&x.c, x.c.info.min_budget_pages))
		fail("budget");
	/* Whoever faults is the control plane: all slabs are there before. */
	for (e = 0; e < x.c.info.extents; e++)
		control_provide(&x.c, e);
	for (i = 0; i < n; i++) {
		ops[below(&x, sizeof(ops) / sizeof(ops[0]))](&x);
		if (!below(&x, 32))
			do_control(&x);
	}
	m = map(&x, 0, x.size, &base);
	compare(&x, m, 0, x.size);
	printf("fsx: %ju operations, %ju bytes right\n", (uintmax_t)n,
	       (uintmax_t)x.bytes);
	return 0;
}

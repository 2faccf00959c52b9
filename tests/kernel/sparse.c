// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * sparse.c - a file of 1 TiB on a host that could not describe all of it
 *
 * A page has a descriptor when it, or one of the 255 around it, is first used.
 * What is counted here is metadata_bytes: small at first, a page more for each
 * such group that is used, and as at first when all is discarded.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dcmfs_test.h"

#define SIZE (1ull << 40)
#define GROUP (256ull * PAGE) /* described together */
#define USED (2ull << 20)
#define CHILDREN 4u
#define GROUPS 400u

/* Where %USED bytes each are used: the ends, the middle, and across a group's edge. */
static const uint64_t used[] = { 0, SIZE / 2, (SIZE / 3 & ~(GROUP - 1)) + PAGE,
				 SIZE - USED };
#define NR_USED (sizeof(used) / sizeof(used[0]))

static int fd;
static char *m;
static uint64_t made;
static struct control control;

static uint64_t metadata(void)
{
	return info_of(fd).metadata_bytes;
}

static uint64_t *word(uint64_t at)
{
	return (uint64_t *)(m + at);
}

static void write_used(void)
{
	size_t i, p;

	for (i = 0; i < NR_USED; i++)
		for (p = used[i]; p < used[i] + USED; p += PAGE)
			*word(p) = p + 1;
}

static void read_used(uint64_t plus)
{
	size_t i, p;

	for (i = 0; i < NR_USED; i++)
		for (p = used[i]; p < used[i] + USED; p += PAGE)
			if (*word(p) != (plus ? p + plus : 0))
				fail("byte %#zx: %#jx", p, (uintmax_t)*word(p));
}

static void punch(uint64_t from, uint64_t bytes)
{
	if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		      (off_t)from, (off_t)bytes))
		fail("hole: %s", strerror(errno));
}

/* One process more, which does that; slabs are given meanwhile. */
static void meanwhile(void (*what)(void))
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		what();
		_exit(0);
	}
	while (!waitpid(pid, &status, WNOHANG))
		control_serve(&control, 5);
	if (status)
		fail("a child ended with %#x", status);
}

static void read_written(void)
{
	read_used(1);
}

static void new_file(void)
{
	made = metadata();
	if (made * 100 > SIZE / PAGE * 27)
		fail("%ju bytes before anything is in it", (uintmax_t)made);
	/* Nothing is there, and that is soon said. */
	punch(0, SIZE);
	if (metadata() != made)
		fail("a hole where nothing was takes memory");
}

static void paging(void)
{
	uint64_t before, after;

	control_open(&control, fd);
	meanwhile(write_used);
	before = metadata();
	/* 2 MiB are two groups, three where they are not at an edge. */
	if (before < made + (2 * NR_USED + 1) * PAGE ||
	    before > made + (2 * NR_USED + 2) * PAGE)
		fail("%ju bytes for %zu places", (uintmax_t)(before - made),
		     NR_USED);
	control_squeeze(&control);
	meanwhile(read_written);
	control_squeeze(&control);
	/* Slabs are counted too; descriptors of what is on them stay. */
	after = metadata();
	if (after < before)
		fail("%ju bytes, then %ju", (uintmax_t)before,
		     (uintmax_t)after);
	meanwhile(read_written);
	if (info_of(fd).lost_pages)
		fail("pages lost");
}

static void forgotten(void)
{
	uint64_t before = metadata();
	uint32_t e;

	punch(0, GROUP);
	if (metadata() != before)
		fail("descriptors of a small hole are soon wanted again");
	punch(0, SIZE);
	for (e = 0; e < control.info.extents; e++)
		control_lose(&control, e);
	if (metadata() != made)
		fail("%ju bytes more than at first",
		     (uintmax_t)(metadata() - made));
	read_used(0);
	if (info_of(fd).lost_pages)
		fail("pages lost");
}

static void cut(void)
{
	if (ftruncate(fd, PAGE))
		fail("truncate: %s", strerror(errno));
	if (readable(m + PAGE) || !readable(m))
		fail("the end");
	if (metadata() != made + PAGE)
		fail("%ju bytes more than at first",
		     (uintmax_t)(metadata() - made));
	if (ftruncate(fd, 0) || metadata() != made)
		fail("%ju bytes more than at first",
		     (uintmax_t)(metadata() - made));
	if (ftruncate(fd, (off_t)SIZE))
		fail("growing: %s", strerror(errno));
	read_used(0);
}

/* All children are first in the same group, again and again. */
static void races(void)
{
	uint64_t before, *go;
	uint32_t i, g;
	int status;

	punch(0, SIZE);
	before = metadata();
	go = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
		  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (go == MAP_FAILED)
		fail("mmap: %s", strerror(errno));
	for (i = 0; i < CHILDREN; i++) {
		pid_t pid = fork();

		if (pid < 0)
			fail("fork: %s", strerror(errno));
		if (pid)
			continue;
		for (g = 1; g <= GROUPS; g++) {
			char *p = m + g * (SIZE / 1024) + i * 64ull * PAGE;

			__atomic_fetch_add(go, 1, __ATOMIC_SEQ_CST);
			while (__atomic_load_n(go, __ATOMIC_SEQ_CST) <
			       (uint64_t)g * CHILDREN)
				usleep(1);
			*(uint32_t *)p = g * CHILDREN + i;
		}
		_exit(0);
	}
	for (i = 0; i < CHILDREN; i++)
		if (wait(&status) < 0 || status)
			fail("a child ended with %#x", status);
	if (metadata() != before + GROUPS * PAGE)
		fail("%ju bytes for %u groups",
		     (uintmax_t)(metadata() - before), GROUPS);
	for (g = 1; g <= GROUPS; g++)
		for (i = 0; i < CHILDREN; i++)
			if (*(uint32_t *)(m + g * (SIZE / 1024) +
					  i * 64ull * PAGE) != g * CHILDREN + i)
				fail("group %u, child %u", g, i);
	punch(0, SIZE);
	if (metadata() != before)
		fail("groups stay");
	munmap(go, PAGE);
}

static const struct check list[] = {
	{ "new", new_file }, { "paging", paging }, { "forgotten", forgotten },
	{ "cut", cut },	     { "races", races },
};

/* sparse DIR */
int sparse(int argc, char **argv)
{
	(void)argc;
	fd = file_make(argv[2], (off_t)SIZE);
	m = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
		 fd, 0);
	if (m == MAP_FAILED)
		fail("mmap: %s", strerror(errno));
	run_checks(list, sizeof(list) / sizeof(list[0]));
	return 0;
}

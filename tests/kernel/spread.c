// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * spread.c - what GC workers change, where extents have copies
 *
 * This process is the worker too: it writes to the primaries' memfds while the file is
 * frozen. Then that is spread, reverted or kept, or the control plane is killed before.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "copies.h"

#define LIMIT_MS 60000u

static void range_freeze(uint64_t first, uint64_t pages)
{
	no_error(range_ask(world.c.fd, DCMFS_IOC_FREEZE, first, pages, 0, 0),
		 "FREEZE");
}

static void range_spread(int fd, uint64_t first, uint64_t pages)
{
	no_error(range_ask(fd, DCMFS_IOC_SPREAD, first, pages, 0, LIMIT_MS),
		 "SPREAD");
}

/* Freeze and sync all pages: the primaries have them, and accesses wait. */
static void out(int fd)
{
	no_error(range_ask(fd, DCMFS_IOC_FREEZE, 0, COPIES_PAGES, 0, 0),
		 "FREEZE");
	no_error(range_ask(fd, DCMFS_IOC_SYNC, 0, COPIES_PAGES, 0, LIMIT_MS),
		 "SYNC");
}

static off_t word_at(uint64_t page)
{
	return (off_t)(page % world.c.info.extent_pages * PAGE +
		       page % 512 * 8);
}

/* As a worker would: each page on its extent's primary. */
static void work(uint64_t turn)
{
	for (uint64_t i = 0; i < COPIES_PAGES; i++) {
		uint64_t v = copies_word(i, turn);

		if (pwrite(world.c.file[i / world.c.info.extent_pages], &v,
			   sizeof(v), word_at(i)) != sizeof(v))
			fail("pwrite: %s", strerror(errno));
	}
}

static bool thin(uint32_t extent)
{
	struct dcmfs_activity act = { .extent = extent };

	if (ioctl(world.c.fd, DCMFS_IOC_ACTIVITY, &act))
		fail("DCMFS_IOC_ACTIVITY: %s", strerror(errno));
	return act.flags & DCMFS_EXTENT_THIN;
}

static void all_alike(void)
{
	for (uint32_t e = 0; e < world.c.info.extents; e++)
		if (copies_alike(e) != world.c.info.extent_pages)
			fail("slabs of extent %u are not alike", e);
}

static void all_copied(void)
{
	for (uint32_t e = 0; e < world.c.info.extents; e++) {
		copies_add(e);
		copies_fill(e);
	}
}

static uint32_t writes(void)
{
	struct dcmfs_write_count arg = { .pages = COPIES_PAGES };

	if (ioctl(world.c.fd, DCMFS_IOC_WRITE_COUNT, &arg))
		fail("DCMFS_IOC_WRITE_COUNT: %s", strerror(errno));
	return arg.count;
}

/* All of it is on all slabs then; asking once more changes nothing. */
static void spread_all(void)
{
	uint32_t before;

	copies_write(1);
	all_copied();
	out(world.c.fd);
	work(2);
	before = writes();
	range_spread(world.c.fd, 0, COPIES_PAGES);
	all_alike();
	range_spread(world.c.fd, 0, COPIES_PAGES);
	if (writes() != before)
		fail("writes to copies are counted");
	range_freeze(0, 0);
	copies_check(2);
	copies_lose();
	copies_check(2);
	all_copied();
}

/* Of each extent a slab lacks pages, and gets them. */
static void all_fill(void)
{
	for (uint32_t e = 0; e < world.c.info.extents; e++) {
		if (!thin(e))
			fail("extent %u is not thin", e);
		copies_fill(e);
	}
}

/* It never was, and the primaries get what they have missed. */
static void reverted(void)
{
	uint32_t before;

	copies_write(3);
	out(world.c.fd);
	work(4);
	no_error(range_ask(world.c.fd, DCMFS_IOC_REVERT, 0, COPIES_PAGES, 0, 0),
		 "REVERT");
	before = writes();
	range_freeze(0, 0);
	copies_check(3);
	all_fill();
	control_squeeze(&world.c);
	if (writes() == before)
		fail("writes to primaries are not counted");
	copies_lose();
	copies_check(3);
	all_copied();
}

/* It counts, and copies have it after a fill. */
static void kept(void)
{
	copies_write(5);
	out(world.c.fd);
	work(6);
	no_error(range_ask(world.c.fd, DCMFS_IOC_REVERT, 0, COPIES_PAGES,
			   DCMFS_REVERT_KEEP, 0),
	     "REVERT");
	range_freeze(0, 0);
	copies_check(6);
	all_fill();
	control_squeeze(&world.c);
	copies_lose();
	copies_check(6);
	all_copied();
}

static void half_spread(int fd)
{
	out(fd);
	work(8);
	range_spread(fd, 0, COPIES_PAGES / 2);
}

static void only_read(int fd)
{
	no_error(range_ask(fd, DCMFS_IOC_FREEZE, 0, COPIES_PAGES, 0, 0),
		 "FREEZE");
	no_error(range_ask(fd, DCMFS_IOC_SYNC, 0, COPIES_PAGES, DCMFS_SYNC_KEEP,
			   LIMIT_MS),
	     "SYNC");
}

/* A control plane that is killed: what it has not spread yet never was. */
static void killed(void)
{
	copies_write(7);
	by_killed(world.c.fd, half_spread);
	for (uint64_t i = 0; i < COPIES_PAGES; i++) {
		uint64_t is =
			((volatile uint64_t *)(world.mem + i * PAGE))[i % 512];

		if (is != copies_word(i, i < COPIES_PAGES / 2 ? 8 : 7))
			fail("page %ju: %#jx", (uintmax_t)i, (uintmax_t)is);
	}
	for (uint32_t e = 0; e < world.c.info.extents; e++)
		copies_fill(e);
	copies_write(9);
	control_squeeze(&world.c);
	by_killed(world.c.fd, only_read);
	for (uint32_t e = 0; e < world.c.info.extents; e++)
		if (thin(e))
			fail("extent %u is thin, and was only read", e);
	copies_check(9);
}

/* Right after a worker the primaries are lost: nothing has happened. */
static void primaries_lost(void)
{
	copies_write(10);
	out(world.c.fd);
	work(11);
	copies_lose();
	range_spread(world.c.fd, 0, COPIES_PAGES);
	no_error(range_ask(world.c.fd, DCMFS_IOC_REVERT, 0, COPIES_PAGES, 0, 0),
		 "REVERT");
	range_freeze(0, 0);
	copies_check(10);
}

/* With one slab it is what the worker has made of it, in any case. */
static void alone(void)
{
	out(world.c.fd);
	work(12);
	range_spread(world.c.fd, 0, COPIES_PAGES);
	range_freeze(0, 0);
	copies_check(12);
	out(world.c.fd);
	work(13);
	no_error(range_ask(world.c.fd, DCMFS_IOC_REVERT, 0, COPIES_PAGES, 0, 0),
		 "REVERT");
	range_freeze(0, 0);
	copies_check(13);
}

static void refused(int fd, struct dcmfs_range spread, const char *what)
{
	struct dcmfs_range revert = spread;

	if (revert.limit_ms == 1)
		revert.limit_ms = 0;
	expect(ioctl(fd, DCMFS_IOC_SPREAD, &spread), EINVAL, what);
	expect(ioctl(fd, DCMFS_IOC_REVERT, &revert), EINVAL, what);
}

/* Only what this open file has frozen, and nothing of a request may be odd. */
static void not_spread(void)
{
	struct dcmfs_range good = { .pages = 16, .limit_ms = 1 }, r = good;
	int other = file_again(world.c.fd);

	refused(world.c.fd, good, "nothing is frozen");
	range_freeze(0, COPIES_PAGES / 2);
	range_freeze(COPIES_PAGES / 2 + 16, 16);
	for (r.first = 0; r.first <= COPIES_PAGES / 2; r.first += 16) {
		r.pages = COPIES_PAGES / 2 + 32 - r.first;
		refused(world.c.fd, r, "not all is frozen");
	}
	refused(other, good, "another has frozen it");
	for (unsigned int i = 1; i < 32; i++) {
		r = good;
		r.flags = 1u << i;
		refused(world.c.fd, r, "a flag");
		r = good;
		r.limit_ms = DCMFS_LIMIT_MAX_MS + (1u << i);
		refused(world.c.fd, r, "a limit");
	}
	r = good;
	r.flags = DCMFS_REVERT_KEEP;
	expect(ioctl(world.c.fd, DCMFS_IOC_SPREAD, &r), EINVAL, "a flag");
	r.limit_ms = r.flags = 0;
	expect(ioctl(world.c.fd, DCMFS_IOC_SPREAD, &r), EINVAL, "no limit");
	range_freeze(0, 0);
	refused(world.c.fd, good, "nothing is frozen any more");
	close(other);
	copies_check(13);
}

/* spread DIR */
int spread(int argc, char **argv)
{
	static const struct check list[] = {
		{ "spread", spread_all },
		{ "reverted", reverted },
		{ "kept", kept },
		{ "killed", killed },
		{ "primaries lost", primaries_lost },
		{ "alone", alone },
		{ "not spread", not_spread },
	};

	(void)argc;
	copies_open(argv[2]);
	for (uint32_t e = 0; e < world.c.info.extents; e++)
		control_provide(&world.c, e);
	run_checks(list, sizeof(list) / sizeof(list[0]));
	return 0;
}

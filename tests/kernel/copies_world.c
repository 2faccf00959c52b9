// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * copies_world.c - a file whose extents have several slabs, all in this process
 *
 * The slabs are memfds, so that a test can look at what each of them has, and change
 * it. Each page has one word, which says the page and the turn that wrote it.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "copies.h"

struct copies_world world = { .next_id = 1u << 20 };

uint64_t copies_word(uint64_t page, uint64_t turn)
{
	return page << 32 | turn << 8 | 1;
}

void copies_write(uint64_t turn)
{
	for (uint64_t i = 0; i < COPIES_PAGES; i++)
		((volatile uint64_t *)(world.mem + i * PAGE))[i % 512] =
			copies_word(i, turn);
}

void copies_check(uint64_t turn)
{
	struct dcmfs_info info;

	for (uint64_t i = 0; i < COPIES_PAGES; i++) {
		uint64_t is =
			((volatile uint64_t *)(world.mem + i * PAGE))[i % 512];

		if (is != copies_word(i, turn))
			fail("page %ju: %#jx, not %#jx", (uintmax_t)i,
			     (uintmax_t)is, (uintmax_t)copies_word(i, turn));
	}
	info = info_of(world.c.fd);
	if (info.lost_pages)
		fail("%ju pages are lost", (uintmax_t)info.lost_pages);
}

void copies_add(uint32_t extent)
{
	struct dcmfs_slab s = { .extent = extent, .id = world.next_id++ };

	s.fd = memfd_create("copy", MFD_CLOEXEC);
	if (s.fd < 0 ||
	    fallocate(s.fd, 0, 0, (off_t)(world.c.info.extent_pages * PAGE)))
		fail("memfd: %s", strerror(errno));
	if (ioctl(world.c.fd, DCMFS_IOC_ATTACH, &s))
		fail("a slab more for extent %u: %s", extent, strerror(errno));
	world.copy[extent] = s.fd;
	world.id_of[extent] = s.id;
}

/* Pages that were copied. */
uint64_t copies_fill(uint32_t extent)
{
	struct dcmfs_fill f = { .extent = extent };
	struct dcmfs_activity act = { .extent = extent };
	uint64_t until = now_ns() + 60000000000, first = 0;
	bool begun = false;

	while (ioctl(world.c.fd, DCMFS_IOC_FILL, &f)) {
		if (errno != EAGAIN && errno != ENOMEM && errno != EINTR)
			fail("DCMFS_IOC_FILL: %s", strerror(errno));
		if (now_ns() > until)
			fail("a fill of extent %u does not end", extent);
		if (!begun)
			first = f.filled;
		begun = true;
	}
	if (ioctl(world.c.fd, DCMFS_IOC_ACTIVITY, &act) || act.flags)
		fail("extent %u is thin after a fill", extent);
	return f.filled - first;
}

/* The kernel's list of an extent's slabs, in the order of their ids. */
unsigned int copies_slabs(uint32_t extent, struct dcmfs_slab *list)
{
	struct dcmfs_slab s = { .fd = -1 };
	unsigned int n = 0;

	while (!ioctl(world.c.fd, DCMFS_IOC_SLAB, &s)) {
		if (s.extent == extent)
			list[n++] = s;
		s = (struct dcmfs_slab){ .fd = -1, .id = s.id };
	}
	return n;
}

/* Pages of an extent that its first slab and its copy have alike. */
uint64_t copies_alike(uint32_t extent)
{
	static char one[PAGE], other[PAGE];
	uint64_t n = 0;

	for (uint64_t i = 0; i < world.c.info.extent_pages; i++) {
		off_t at = (off_t)(i * PAGE);

		if (pread(world.c.file[extent], one, PAGE, at) != PAGE ||
		    pread(world.copy[extent], other, PAGE, at) != PAGE)
			fail("pread: %s", strerror(errno));
		n += !memcmp(one, other, PAGE);
	}
	return n;
}

/* The first slab of an extent is lost: what was added is its first now. */
void copies_lose_one(uint32_t e)
{
	control_lose(&world.c, e);
	world.c.slab[e] = world.id_of[e];
	world.c.file[e] = world.copy[e];
}

void copies_lose(void)
{
	for (uint32_t e = 0; e < world.c.info.extents; e++)
		copies_lose_one(e);
}

void copies_open(const char *dir)
{
	int fd = file_make(dir, COPIES_SIZE);

	world.mem = map_shared(fd, COPIES_SIZE);
	control_open(&world.c, fd);
	if (world.c.link || world.c.info.extents > COPIES_EXTENTS)
		fail("slabs of this host, and extents of 256 KiB at least");
	control_in_order(&world.c);
}

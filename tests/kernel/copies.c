// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * copies.c - extents with two and three slabs: written, filled, lost, detached
 *
 * The slabs are memfds of this process, so that it can look at what each of them
 * has. Everything that the file has leaves direct memory; then slabs are added,
 * filled and taken away again, and not a byte may be missing.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dcmfs_test.h"

#define SIZE (16u << 20)
#define PAGES (SIZE / PAGE)
#define EXTENTS_MAX 64u
#define FIRST_ID (1u << 20)

static struct control c;
static char *mem;
static int copy[EXTENTS_MAX]; /* memfd of each extent's slab that was added */
static uint64_t id_of[EXTENTS_MAX];
static uint64_t next_id = FIRST_ID;

static uint64_t word(uint64_t page, uint64_t turn)
{
	return page << 32 | turn << 8 | 1;
}

static void all_write(uint64_t turn)
{
	for (uint64_t i = 0; i < PAGES; i++)
		((volatile uint64_t *)(mem + i * PAGE))[i % 512] =
			word(i, turn);
}

static void all_check(uint64_t turn)
{
	struct dcmfs_info info;

	for (uint64_t i = 0; i < PAGES; i++) {
		uint64_t is = ((volatile uint64_t *)(mem + i * PAGE))[i % 512];

		if (is != word(i, turn))
			fail("page %ju: %#jx, not %#jx", (uintmax_t)i,
			     (uintmax_t)is, (uintmax_t)word(i, turn));
	}
	info = info_of(c.fd);
	if (info.lost_pages)
		fail("%ju pages are lost", (uintmax_t)info.lost_pages);
}

static void copy_add(uint32_t extent)
{
	struct dcmfs_slab s = { .extent = extent, .id = next_id++ };

	s.fd = memfd_create("copy", MFD_CLOEXEC);
	if (s.fd < 0 ||
	    fallocate(s.fd, 0, 0, (off_t)(c.info.extent_pages * PAGE)))
		fail("memfd: %s", strerror(errno));
	if (ioctl(c.fd, DCMFS_IOC_ATTACH, &s))
		fail("a slab more for extent %u: %s", extent, strerror(errno));
	copy[extent] = s.fd;
	id_of[extent] = s.id;
}

/* Pages that were copied. */
static uint64_t fill(uint32_t extent)
{
	struct dcmfs_fill f = { .extent = extent };
	struct dcmfs_activity act = { .extent = extent };
	uint64_t until = now_ns() + 60000000000, first = 0;
	bool begun = false;

	while (ioctl(c.fd, DCMFS_IOC_FILL, &f)) {
		if (errno != EAGAIN && errno != ENOMEM && errno != EINTR)
			fail("DCMFS_IOC_FILL: %s", strerror(errno));
		if (now_ns() > until)
			fail("a fill of extent %u does not end", extent);
		if (!begun)
			first = f.filled;
		begun = true;
	}
	if (ioctl(c.fd, DCMFS_IOC_ACTIVITY, &act) || act.flags)
		fail("extent %u is thin after a fill", extent);
	return f.filled - first;
}

/* What the kernel lists of an extent's slabs; in the order of their ids. */
static unsigned int slabs_of(uint32_t extent, struct dcmfs_slab *list)
{
	struct dcmfs_slab s = { .fd = -1 };
	unsigned int n = 0;

	while (!ioctl(c.fd, DCMFS_IOC_SLAB, &s)) {
		if (s.extent == extent)
			list[n++] = s;
		s = (struct dcmfs_slab){ .fd = -1, .id = s.id };
	}
	return n;
}

/* Pages of an extent that its first slab and its copy have alike. */
static uint64_t alike(uint32_t extent)
{
	static char one[PAGE], other[PAGE];
	uint64_t n = 0;

	for (uint64_t i = 0; i < c.info.extent_pages; i++) {
		off_t at = (off_t)(i * PAGE);

		if (pread(c.file[extent], one, PAGE, at) != PAGE ||
		    pread(copy[extent], other, PAGE, at) != PAGE)
			fail("pread: %s", strerror(errno));
		n += !memcmp(one, other, PAGE);
	}
	return n;
}

/* A slab that was empty gets what the other one has; then that one is lost. */
static void filled(void)
{
	struct dcmfs_slab list[DCMFS_SLABS];
	uint64_t copied = 0, same = 0;

	all_write(1);
	control_squeeze(&c);
	for (uint32_t e = 0; e < c.info.extents; e++) {
		copy_add(e);
		copied += fill(e);
		if (slabs_of(e, list) != 2 || list[0].flags || list[1].flags ||
		    list[0].order >= list[1].order)
			fail("slabs of extent %u are not listed as they are",
			     e);
	}
	/* the first batch of each extent is not counted */
	if (copied < PAGES / 2)
		fail("%ju pages were copied", (uintmax_t)copied);
	control_squeeze(&c);
	for (uint32_t e = 0; e < c.info.extents; e++)
		same += alike(e);
	if (same < PAGES - c.info.min_budget_pages - 64)
		fail("%ju of %u pages are on both slabs", (uintmax_t)same,
		     PAGES);
	for (uint32_t e = 0; e < c.info.extents; e++) {
		control_lose(&c, e);
		c.slab[e] = id_of[e];
		c.file[e] = copy[e];
	}
	all_check(1);
}

/* What is written goes to both; one is detached without a page being read. */
static void written(void)
{
	for (uint32_t e = 0; e < c.info.extents; e++)
		copy_add(e);
	all_write(2);
	control_squeeze(&c);
	for (uint32_t e = 0; e < c.info.extents; e++) {
		fill(e);
		control_lose(&c, e);
		c.slab[e] = id_of[e];
		c.file[e] = copy[e];
	}
	all_check(2);
}

/* Three at most; a fourth has to wait. */
static void three(void)
{
	struct dcmfs_slab s = { .id = next_id++ }, list[DCMFS_SLABS];
	struct dcmfs_fill f = { .extent = (uint32_t)c.info.extents };

	copy_add(0);
	copy_add(0);
	if (slabs_of(0, list) != DCMFS_SLABS)
		fail("the extent has no three slabs");
	s.fd = dup(copy[0]);
	expect(ioctl(c.fd, DCMFS_IOC_ATTACH, &s), EBUSY, "a fourth slab");
	close(s.fd);
	expect(ioctl(c.fd, DCMFS_IOC_FILL, &f), ENOENT, "no such extent");
	fill(0);
	for (unsigned int i = 0; i < 2; i++) {
		s = (struct dcmfs_slab){ .fd = -1, .id = list[i].id };
		while (ioctl(c.fd, i ? DCMFS_IOC_LOST : DCMFS_IOC_DETACH, &s))
			if (errno != EINTR && errno != ENOMEM)
				fail("slab %ju: %s", (uintmax_t)s.id,
				     strerror(errno));
	}
	c.slab[0] = id_of[0];
	c.file[0] = copy[0];
	all_check(2);
}

/*
 * A fill that is begun and not gone on with, as when the control plane is killed,
 * does not hold the frames that it copies through.
 */
static void begun(void)
{
	struct dcmfs_fill f = { .extent = 1 };
	uint64_t frames;

	control_squeeze(&c);
	frames = info_of(c.fd).frames;
	copy_add(1);
	expect(ioctl(c.fd, DCMFS_IOC_FILL, &f), EAGAIN, "the first batch");
	control_frames(&c, frames);
	fill(1);
	control_lose(&c, 1);
	c.slab[1] = id_of[1];
	c.file[1] = copy[1];
	all_check(2);
}

/* How long faults took is told. */
static void faults(void)
{
	static struct dcmfs_faults f;
	uint64_t n = 0;

	if (ioctl(c.fd, DCMFS_IOC_FAULTS, &f))
		fail("DCMFS_IOC_FAULTS: %s", strerror(errno));
	for (unsigned int i = 0; i < DCMFS_FAULT_BUCKETS; i++)
		n += f.bucket[i];
	if (n < PAGES / 64)
		fail("%ju faults are told", (uintmax_t)n);
}

/* copies DIR */
int copies(int argc, char **argv)
{
	static const struct check list[] = {
		{ "filled", filled }, { "written", written },
		{ "three", three },   { "begun", begun },
		{ "faults", faults },
	};
	int fd = file_make(argv[2], SIZE);

	(void)argc;
	mem = map_shared(fd, SIZE);
	control_open(&c, fd);
	if (c.link || c.info.extents > EXTENTS_MAX)
		fail("slabs of this host, and extents of 256 KiB at least");
	control_in_order(&c);
	run_checks(list, sizeof(list) / sizeof(list[0]));
	return 0;
}

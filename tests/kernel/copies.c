// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * copies.c - extents with two and three slabs: written, filled, lost, detached
 *
 * The slabs are memfds of this process, so that it can look at what each of them
 * has. Everything that the file has leaves direct memory; then slabs are added,
 * filled and taken away again, and not a byte may be missing.
 *
 * Of a sealed file also: no slab has a plain page, and bytes of slabs that are
 * changed, or that were right before, are never read.
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
static const char *dir;
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

/* An extent's first slab is lost: what was added is its first now. */
static void first_lose(uint32_t extent)
{
	control_lose(&c, extent);
	c.slab[extent] = id_of[extent];
	c.file[extent] = copy[extent];
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
		first_lose(e);
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
		first_lose(e);
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
	first_lose(1);
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

/* ---- a sealed file ---- */

static void seal(int fd)
{
	uint32_t cipher = DCMFS_SEAL_AES_256_GCM;

	if (ioctl(fd, DCMFS_IOC_SEAL, &cipher))
		fail("DCMFS_IOC_SEAL: %s", strerror(errno));
}

/* For good, before the first slab, by a cipher that there is. */
static void asked(void)
{
	uint64_t before = c.info.metadata_bytes, after;
	uint32_t cipher = DCMFS_SEAL_AES_256_GCM;
	struct dcmfs_slab s = { .id = 1 };
	int plain = file_make(dir, SIZE);

	seal(c.fd);
	c.info = info_of(c.fd);
	if (c.info.flags != DCMFS_INFO_SEALED)
		fail("flags are %#jx", (uintmax_t)c.info.flags);
	after = before + c.info.lanes * ((4ull << 20) + PAGE);
	if (c.info.metadata_bytes != after)
		fail("%ju bytes of metadata, %ju before",
		     (uintmax_t)c.info.metadata_bytes, (uintmax_t)before);
	seal(c.fd);
	cipher = 0;
	expect(ioctl(plain, DCMFS_IOC_SEAL, &cipher), EINVAL, "cipher 0");
	cipher = DCMFS_SEAL_AES_256_GCM + 1;
	expect(ioctl(plain, DCMFS_IOC_SEAL, &cipher), EINVAL, "cipher 2");
	s.fd = memfd_create("slab", MFD_CLOEXEC);
	if (s.fd < 0 || ftruncate(s.fd, (off_t)(c.info.extent_pages * PAGE)) ||
	    ioctl(plain, DCMFS_IOC_ATTACH, &s))
		fail("a slab: %s", strerror(errno));
	cipher = DCMFS_SEAL_AES_256_GCM;
	expect(ioctl(plain, DCMFS_IOC_SEAL, &cipher), EBUSY, "it has a slab");
	if (info_of(plain).flags)
		fail("it is sealed all the same");
	close(s.fd);
	close(plain);
}

/* A page of the file has one word, and is zero else: so is a plain one on a slab. */
static void hidden(void)
{
	static const char zero[64];
	static char page[PAGE];
	uint64_t there = 0;

	all_write(3);
	control_squeeze(&c);
	for (uint32_t e = 0; e < c.info.extents; e++)
		for (uint64_t i = 0; i < c.info.extent_pages; i++) {
			if (pread(c.file[e], page, PAGE, (off_t)(i * PAGE)) !=
			    PAGE)
				fail("pread: %s", strerror(errno));
			if (!page[0] && !memcmp(page, page + 1, PAGE - 1))
				continue;
			there++;
			if (memmem(page, PAGE, zero, sizeof(zero)))
				fail("page %ju of extent %u is plain",
				     (uintmax_t)i, e);
		}
	if (there < PAGES - c.info.min_budget_pages - 64)
		fail("%ju pages are on slabs", (uintmax_t)there);
	all_check(3);
}

/* What is moved is sealed as it was. */
static void moved(void)
{
	control_squeeze(&c);
	for (uint32_t e = 0; e < c.info.extents; e++)
		control_move(&c, e);
	all_check(3);
}

/* Change a bit of each page of a slab; another one each time. */
static void spoil(int slab)
{
	for (uint64_t i = 0; i < c.info.extent_pages; i++) {
		off_t at = (off_t)(i * PAGE + i * 37 % PAGE);
		unsigned char byte;

		if (pread(slab, &byte, 1, at) != 1)
			fail("pread: %s", strerror(errno));
		byte ^= (unsigned char)(1u << i % 8);
		if (pwrite(slab, &byte, 1, at) != 1)
			fail("pwrite: %s", strerror(errno));
	}
}

/* One of two slabs has other bytes: all is read from the other. */
static void spoiled(void)
{
	for (uint32_t e = 0; e < c.info.extents; e++) {
		copy_add(e);
		fill(e);
	}
	all_write(4);
	control_squeeze(&c);
	for (uint32_t e = 0; e < c.info.extents; e++)
		spoil(c.file[e]);
	all_check(4);
	control_squeeze(&c);
	for (uint32_t e = 0; e < c.info.extents; e++) {
		fill(e);
		first_lose(e);
	}
	all_check(4);
}

/* The only slab has what it had earlier: a page is right, or lost. */
static void replayed(void)
{
	size_t bytes = c.info.extent_pages * PAGE;
	char *before = malloc(bytes);
	uint64_t lost = 0, i;

	control_squeeze(&c);
	if (!before || pread(c.file[0], before, bytes, 0) != (ssize_t)bytes)
		fail("pread: %s", strerror(errno));
	all_write(5);
	control_squeeze(&c);
	if (pwrite(c.file[0], before, bytes, 0) != (ssize_t)bytes)
		fail("pwrite: %s", strerror(errno));
	free(before);
	for (i = 0; i < PAGES; i++) {
		char *page = mem + i * PAGE;

		if (!readable(page))
			lost++;
		else if (((volatile uint64_t *)page)[i % 512] != word(i, 5))
			fail("page %ju is of an earlier time", (uintmax_t)i);
	}
	if (lost < c.info.extent_pages / 2 || lost > c.info.extent_pages ||
	    info_of(c.fd).lost_pages != lost)
		fail("%ju pages are lost, %ju are counted", (uintmax_t)lost,
		     (uintmax_t)info_of(c.fd).lost_pages);
}

/* copies DIR [seal] */
int copies(int argc, char **argv)
{
	static const struct check list[] = {
		{ "filled", filled }, { "written", written },
		{ "three", three },   { "begun", begun },
		{ "faults", faults },
	};
	static const struct check sealed[] = {
		{ "hidden", hidden },
		{ "moved", moved },
		{ "spoiled", spoiled },
		{ "replayed", replayed },
	};
	static const struct check first[] = { { "asked", asked } };
	int fd = file_make(argv[2], SIZE);

	dir = argv[2];
	mem = map_shared(fd, SIZE);
	control_open(&c, fd);
	if (c.link || c.info.extents > EXTENTS_MAX)
		fail("slabs of this host, and extents of 256 KiB at least");
	control_in_order(&c);
	if (argc > 3)
		run_checks(first, 1);
	run_checks(list, sizeof(list) / sizeof(list[0]));
	if (argc > 3)
		run_checks(sealed, sizeof(sealed) / sizeof(sealed[0]));
	return 0;
}

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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "copies.h"

static const char *dir;

/* A slab that was empty gets what the other one has; then that one is lost. */
static void filled(void)
{
	struct dcmfs_slab list[DCMFS_SLABS];
	uint64_t copied = 0, same = 0;

	copies_write(1);
	control_squeeze(&world.c);
	for (uint32_t e = 0; e < world.c.info.extents; e++) {
		copies_add(e);
		copied += copies_fill(e);
		if (copies_slabs(e, list) != 2 || list[0].flags ||
		    list[1].flags || list[0].order >= list[1].order)
			fail("slabs of extent %u are not listed as they are",
			     e);
	}
	/* the first batch of each extent is not counted */
	if (copied < COPIES_PAGES / 2)
		fail("%ju pages were copied", (uintmax_t)copied);
	control_squeeze(&world.c);
	for (uint32_t e = 0; e < world.c.info.extents; e++)
		same += copies_alike(e);
	if (same < COPIES_PAGES - world.c.info.min_budget_pages - 64)
		fail("%ju of %u pages are on both slabs", (uintmax_t)same,
		     COPIES_PAGES);
	copies_lose();
	copies_check(1);
}

/* Each copy gets what it lacks, and is then the only slab. */
static void fill_and_lose(void)
{
	for (uint32_t e = 0; e < world.c.info.extents; e++) {
		copies_fill(e);
		copies_lose_one(e);
	}
}

/* Written pages go to both slabs; one is detached without a page being read. */
static void written(void)
{
	for (uint32_t e = 0; e < world.c.info.extents; e++)
		copies_add(e);
	copies_write(2);
	control_squeeze(&world.c);
	fill_and_lose();
	copies_check(2);
}

/* Three at most; a fourth has to wait. */
static void three(void)
{
	struct dcmfs_slab s = { .id = world.next_id++ }, list[DCMFS_SLABS];
	struct dcmfs_fill f = { .extent = (uint32_t)world.c.info.extents };

	copies_add(0);
	copies_add(0);
	if (copies_slabs(0, list) != DCMFS_SLABS)
		fail("the extent has no three slabs");
	s.fd = dup(world.copy[0]);
	expect(ioctl(world.c.fd, DCMFS_IOC_ATTACH, &s), EBUSY, "a fourth slab");
	close(s.fd);
	expect(ioctl(world.c.fd, DCMFS_IOC_FILL, &f), ENOENT, "no such extent");
	copies_fill(0);
	for (unsigned int i = 0; i < 2; i++) {
		s = (struct dcmfs_slab){ .fd = -1, .id = list[i].id };
		while (ioctl(world.c.fd, i ? DCMFS_IOC_LOST : DCMFS_IOC_DETACH,
			     &s))
			if (errno != EINTR && errno != ENOMEM)
				fail("slab %ju: %s", (uintmax_t)s.id,
				     strerror(errno));
	}
	world.c.slab[0] = world.id_of[0];
	world.c.file[0] = world.copy[0];
	copies_check(2);
}

/*
 * A fill that is begun and not gone on with, as when the control plane is killed,
 * does not hold the frames that it copies through.
 */
static void begun(void)
{
	struct dcmfs_fill f = { .extent = 1 };
	uint64_t frames;

	control_squeeze(&world.c);
	frames = control_used(&world.c);
	copies_add(1);
	expect(ioctl(world.c.fd, DCMFS_IOC_FILL, &f), EAGAIN,
	       "the first batch");
	control_frames(&world.c, frames);
	copies_fill(1);
	copies_lose_one(1);
	copies_check(2);
}

/* How long faults took is told. */
static void faults(void)
{
	static struct dcmfs_faults f;
	uint64_t n = 0;

	if (ioctl(world.c.fd, DCMFS_IOC_FAULTS, &f))
		fail("DCMFS_IOC_FAULTS: %s", strerror(errno));
	for (unsigned int i = 0; i < DCMFS_FAULT_BUCKETS; i++)
		n += f.bucket[i];
	/* New memory may come 2 MiB a fault. */
	if (n < COPIES_PAGES / 512)
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
	uint64_t before = world.c.info.metadata_bytes, after;
	uint32_t cipher = DCMFS_SEAL_AES_256_GCM;
	struct dcmfs_slab s = { .id = 1 };
	int plain = file_make(dir, COPIES_SIZE);

	seal(world.c.fd);
	world.c.info = info_of(world.c.fd);
	if (world.c.info.flags != DCMFS_INFO_SEALED)
		fail("flags are %#jx", (uintmax_t)world.c.info.flags);
	after = before + world.c.info.lanes * ((4ull << 20) + PAGE);
	if (world.c.info.metadata_bytes != after)
		fail("%ju bytes of metadata, %ju before",
		     (uintmax_t)world.c.info.metadata_bytes, (uintmax_t)before);
	seal(world.c.fd);
	cipher = 0;
	expect(ioctl(plain, DCMFS_IOC_SEAL, &cipher), EINVAL, "cipher 0");
	cipher = DCMFS_SEAL_AES_256_GCM + 1;
	expect(ioctl(plain, DCMFS_IOC_SEAL, &cipher), EINVAL, "cipher 2");
	s.fd = memfd_create("slab", MFD_CLOEXEC);
	if (s.fd < 0 ||
	    ftruncate(s.fd, (off_t)(world.c.info.extent_pages * PAGE)) ||
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

	copies_write(3);
	control_squeeze(&world.c);
	for (uint32_t e = 0; e < world.c.info.extents; e++)
		for (uint64_t i = 0; i < world.c.info.extent_pages; i++) {
			if (pread(world.c.file[e], page, PAGE,
				  (off_t)(i * PAGE)) != PAGE)
				fail("pread: %s", strerror(errno));
			if (!page[0] && !memcmp(page, page + 1, PAGE - 1))
				continue;
			there++;
			if (memmem(page, PAGE, zero, sizeof(zero)))
				fail("page %ju of extent %u is plain",
				     (uintmax_t)i, e);
		}
	if (there < COPIES_PAGES - world.c.info.min_budget_pages - 64)
		fail("%ju pages are on slabs", (uintmax_t)there);
	copies_check(3);
}

/* Pages that are moved stay sealed as they were. */
static void moved(void)
{
	control_squeeze(&world.c);
	for (uint32_t e = 0; e < world.c.info.extents; e++)
		control_move(&world.c, e);
	copies_check(3);
}

/* Change a bit of each page of a slab; another one each time. */
static void spoil(int slab)
{
	for (uint64_t i = 0; i < world.c.info.extent_pages; i++) {
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
	for (uint32_t e = 0; e < world.c.info.extents; e++) {
		copies_add(e);
		copies_fill(e);
	}
	copies_write(4);
	control_squeeze(&world.c);
	for (uint32_t e = 0; e < world.c.info.extents; e++)
		spoil(world.c.file[e]);
	copies_check(4);
	control_squeeze(&world.c);
	fill_and_lose();
	copies_check(4);
}

/* The only slab has what it had earlier: a page is right, or lost. */
static void replayed(void)
{
	size_t bytes = world.c.info.extent_pages * PAGE;
	char *before = malloc(bytes);
	uint64_t lost = 0, i;

	control_squeeze(&world.c);
	if (!before ||
	    pread(world.c.file[0], before, bytes, 0) != (ssize_t)bytes)
		fail("pread: %s", strerror(errno));
	copies_write(5);
	control_squeeze(&world.c);
	if (pwrite(world.c.file[0], before, bytes, 0) != (ssize_t)bytes)
		fail("pwrite: %s", strerror(errno));
	free(before);
	for (i = 0; i < COPIES_PAGES; i++) {
		char *page = world.mem + i * PAGE;

		if (!readable(page))
			lost++;
		else if (((volatile uint64_t *)page)[i % 512] !=
			 copies_word(i, 5))
			fail("page %ju is of an earlier time", (uintmax_t)i);
	}
	if (lost < world.c.info.extent_pages / 2 ||
	    lost > world.c.info.extent_pages ||
	    info_of(world.c.fd).lost_pages != lost)
		fail("%ju pages are lost, %ju are counted", (uintmax_t)lost,
		     (uintmax_t)info_of(world.c.fd).lost_pages);
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

	dir = argv[2];
	copies_open(dir);
	if (argc > 3)
		run_checks(first, 1);
	run_checks(list, sizeof(list) / sizeof(list[0]));
	if (argc > 3)
		run_checks(sealed, sizeof(sealed) / sizeof(sealed[0]));
	return 0;
}

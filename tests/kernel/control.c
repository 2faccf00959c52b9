// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * control.c - a control plane in a few lines
 *
 * Gives every extent that wants one a slab, moves extents from one to another,
 * and takes them away as a dead donor would. A slab is a memfd, which is what a
 * donor on the same host hands over; with DCMFS_TEST_TCP=1 in the environment
 * it is wire_donor.c's, and every lane has a link there.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dcmfs_test.h"
#include "wire_donor.h"

#define DONOR 3
#define WINDOW 32

struct dcmfs_info info_of(int fd)
{
	struct dcmfs_info info;

	if (ioctl(fd, DCMFS_IOC_INFO, &info))
		fail("DCMFS_IOC_INFO: %s", strerror(errno));
	return info;
}

int control_link(struct control *c, uint32_t lane, int fd)
{
	struct dcmfs_link arg = { .donor = DONOR,
				  .lane = lane,
				  .fd = fd,
				  .window = fd < 0 ? 0 : WINDOW };

	return ioctl(c->fd, DCMFS_IOC_LINK, &arg) ? errno : 0;
}

/* Links that have ended are made again; how many. */
unsigned int control_mend(struct control *c)
{
	unsigned int n = 0;
	uint32_t i;

	for (i = 0; c->link && i < c->info.lanes; i++) {
		struct pollfd p = { .fd = c->link[i], .events = POLLRDHUP };
		int err;

		if (p.fd >= 0 && poll(&p, 1, 0) != 1)
			continue;
		if (p.fd >= 0) {
			control_link(c, i, -1);
			close(p.fd);
			n++;
		}
		c->link[i] = wire_donor_connect();
		err = control_link(c, i, c->link[i]);
		if (err)
			fail("DCMFS_IOC_LINK: %s", strerror(err));
	}
	return n;
}

static void links_open(struct control *c)
{
	uint32_t i;

	wire_donor_start(c->info.extent_pages * PAGE);
	c->link = calloc(c->info.lanes, sizeof(*c->link));
	if (!c->link)
		fail("no memory");
	for (i = 0; i < c->info.lanes; i++)
		c->link[i] = -1;
	control_mend(c);
}

void control_open(struct control *c, int fd)
{
	const char *tcp = getenv("DCMFS_TEST_TCP");

	memset(c, 0, sizeof(*c));
	c->fd = fd;
	c->info = info_of(fd);
	c->next_id = 1;
	c->slab = calloc(c->info.extents, sizeof(*c->slab));
	c->file = calloc(c->info.extents, sizeof(*c->file));
	if (!c->slab || !c->file)
		fail("no memory");
	if (tcp && *tcp == '1')
		links_open(c);
}

static int slab_file(const struct control *c)
{
	int fd = memfd_create("slab", MFD_CLOEXEC);

	/* Allocated, as a donor's slabs are: writing back is charged nothing. */
	if (fd < 0 || fallocate(fd, 0, 0, (off_t)(c->info.extent_pages * PAGE)))
		fail("memfd: %s", strerror(errno));
	return fd;
}

/* Returns the memfd, or the donor's name of it; its id is c->next_id - 1. */
static int attach(struct control *c, uint32_t extent)
{
	struct dcmfs_slab arg = { .extent = extent, .id = c->next_id++ };

	if (c->link) {
		arg.fd = -1;
		arg.flags = DCMFS_SLAB_REMOTE;
		arg.donor = DONOR;
		arg.remote = wire_donor_slab();
	} else {
		arg.fd = slab_file(c);
	}
	if (ioctl(c->fd, DCMFS_IOC_ATTACH, &arg))
		fail("DCMFS_IOC_ATTACH of extent %u: %s", extent,
		     strerror(errno));
	return c->link ? (int)arg.remote : arg.fd;
}

static void drop(struct control *c, unsigned long cmd, uint32_t extent)
{
	struct dcmfs_slab arg = { .extent = extent,
				  .fd = -1,
				  .id = c->slab[extent] };

	while (ioctl(c->fd, cmd, &arg)) {
		if (errno == ENOMEM)
			usleep(1000);
		else if (errno != EINTR)
			fail("giving up slab %ju of extent %u: %s",
			     (uintmax_t)arg.id, extent, strerror(errno));
	}
	if (c->link)
		wire_donor_drop((uint64_t)c->file[extent]);
	else
		close(c->file[extent]);
}

/* A slab under an extent that has none. */
void control_provide(struct control *c, uint32_t extent)
{
	if (c->slab[extent])
		fail("extent %u wants a second slab", extent);
	c->file[extent] = attach(c, extent);
	c->slab[extent] = c->next_id - 1;
}

/* Give a slab to each extent that wants one; returns their number. */
unsigned int control_serve(struct control *c, int wait_ms)
{
	struct pollfd p = { .fd = c->fd, .events = POLLPRI };
	struct dcmfs_wanted w = { .first = 0 };
	unsigned int n = 0;

	control_mend(c);
	if (poll(&p, 1, wait_ms) < 0 && errno != EINTR)
		fail("poll: %s", strerror(errno));
	while (!ioctl(c->fd, DCMFS_IOC_WANTED, &w)) {
		control_provide(c, w.extent);
		w.first = w.extent + 1;
		n++;
	}
	if (errno != ENOENT)
		fail("DCMFS_IOC_WANTED: %s", strerror(errno));
	return n;
}

/* From one slab to another, as when a donor wants its memory back. */
void control_move(struct control *c, uint32_t extent)
{
	int file;

	if (!c->slab[extent])
		return;
	file = attach(c, extent);
	drop(c, DCMFS_IOC_DETACH, extent);
	c->file[extent] = file;
	c->slab[extent] = c->next_id - 1;
}

/* As when a donor is dead. */
void control_lose(struct control *c, uint32_t extent)
{
	if (!c->slab[extent])
		return;
	drop(c, DCMFS_IOC_LOST, extent);
	c->slab[extent] = 0;
}

int control_budget(struct control *c, uint64_t pages)
{
	return ioctl(c->fd, DCMFS_IOC_BUDGET, &pages) ? errno : 0;
}

void control_tune(struct control *c, const char *name, uint64_t value)
{
	struct dcmfs_tune tune = { .value = value };

	snprintf(tune.name, sizeof(tune.name), "%s", name);
	if (ioctl(c->fd, DCMFS_IOC_TUNE, &tune))
		fail("DCMFS_IOC_TUNE: %s: %s", name, strerror(errno));
}

/* First in, first out: without it a few blocks stay, whatever comes. */
void control_in_order(struct control *c)
{
	control_tune(c, "epsilon", 0);
}

/* Everything out but the smallest budget; then as it was. */
void control_squeeze(struct control *c)
{
	uint64_t budget = c->info.budget_pages, until = now_ns() + 60000000000;
	struct dcmfs_info i;

	if (control_budget(c, c->info.min_budget_pages))
		fail("budget");
	for (i = info_of(c->fd); i.direct_pages > i.min_budget_pages + 64;
	     i = info_of(c->fd)) {
		if (now_ns() > until)
			fail("%ju pages do not leave",
			     (uintmax_t)i.direct_pages);
		control_serve(c, 10);
	}
	if (control_budget(c, budget))
		fail("budget");
}

/* Frames that the file uses: without those kept for when the host has none. */
uint64_t control_used(const struct control *c)
{
	struct dcmfs_info i = info_of(c->fd);

	return i.frames - i.reserve;
}

/* Wait until the file uses at most that many frames: what is under way ends soon. */
void control_frames(struct control *c, uint64_t frames)
{
	uint64_t until = now_ns() + 60000000000;

	while (control_used(c) > frames) {
		if (now_ns() > until)
			fail("%ju frames used, %ju before; %ju direct",
			     (uintmax_t)control_used(c), (uintmax_t)frames,
			     (uintmax_t)info_of(c->fd).direct_pages);
		control_serve(c, 10);
	}
}

/* A new mapped file, with all its slabs; nothing leaves until it is made to. */
char *control_map(struct control *c, const char *dir, size_t size)
{
	int fd = file_make(dir, (off_t)size);
	char *m = map_shared(fd, size);
	uint32_t e;

	control_open(c, fd);
	control_in_order(c);
	if (c->info.budget_pages < 2 * size / PAGE)
		fail("a budget of %zuM at least", 2 * size >> 20);
	for (e = 0; e < c->info.extents; e++)
		control_provide(c, e);
	return m;
}

/* Nothing keeps it. */
void control_unmap(struct control *c, char *m, size_t size)
{
	uint32_t e;

	munmap(m, size);
	for (e = 0; e < c->info.extents; e++)
		close(c->file[e]);
	free(c->file);
	free(c->slab);
	close(c->fd);
}

/* serve FILE STOP */
int serve(int argc, char **argv)
{
	struct control c;
	int fd = open(argv[2], O_RDWR);

	(void)argc;
	if (fd < 0)
		fail("%s: %s", argv[2], strerror(errno));
	control_open(&c, fd);
	printf("serving\n");
	while (access(argv[3], F_OK))
		control_serve(&c, 20);
	return 0;
}

/* budget FILE PAGES: of a file that somebody else serves */
int budget(int argc, char **argv)
{
	uint64_t pages = strtoull(argv[3], NULL, 0);
	int fd = open(argv[2], O_RDWR);

	(void)argc;
	if (fd < 0 || ioctl(fd, DCMFS_IOC_BUDGET, &pages))
		fail("%s: %s", argv[2], strerror(errno));
	return 0;
}

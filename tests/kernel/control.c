// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * control.c - a control plane in a few lines: memfds for slabs
 *
 * Gives every extent that wants one a memfd, moves extents from one to another,
 * and takes them away as a dead donor would. The memfd is what a donor on the
 * same host hands over.
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

struct dcmfs_info info_of(int fd)
{
	struct dcmfs_info info;

	if (ioctl(fd, DCMFS_IOC_INFO, &info))
		fail("DCMFS_IOC_INFO: %s", strerror(errno));
	return info;
}

void control_open(struct control *c, int fd)
{
	memset(c, 0, sizeof(*c));
	c->fd = fd;
	c->info = info_of(fd);
	c->next_id = 1;
	c->slab = calloc(c->info.extents, sizeof(*c->slab));
	c->file = calloc(c->info.extents, sizeof(*c->file));
	if (!c->slab || !c->file)
		fail("no memory");
}

static int slab_file(const struct control *c)
{
	int fd = memfd_create("slab", MFD_CLOEXEC);

	/* Allocated, as a donor's are: who writes back is charged nothing. */
	if (fd < 0 || fallocate(fd, 0, 0, (off_t)(c->info.extent_pages * PAGE)))
		fail("memfd: %s", strerror(errno));
	return fd;
}

/* Returns the memfd; the slab's id is c->next_id - 1. */
static int attach(struct control *c, uint32_t extent)
{
	struct dcmfs_slab arg = { .extent = extent, .id = c->next_id++ };

	arg.fd = slab_file(c);
	if (ioctl(c->fd, DCMFS_IOC_ATTACH, &arg))
		fail("DCMFS_IOC_ATTACH of extent %u: %s", extent,
		     strerror(errno));
	return arg.fd;
}

static void drop(struct control *c, unsigned long cmd, uint32_t extent)
{
	struct dcmfs_slab arg = { .extent = extent,
				  .fd = -1,
				  .id = c->slab[extent] };

	while (ioctl(c->fd, cmd, &arg))
		if (errno != EINTR)
			fail("giving up slab %ju of extent %u: %s",
			     (uintmax_t)arg.id, extent, strerror(errno));
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

/* Slabs for who wants them; how many. */
unsigned int control_serve(struct control *c, int wait_ms)
{
	struct pollfd p = { .fd = c->fd, .events = POLLPRI };
	struct dcmfs_wanted w = { .first = 0 };
	unsigned int n = 0;

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

static void command(struct control *c, char *line)
{
	unsigned long n = 0;
	char *end = strchr(line, '\n');
	uint32_t e;

	if (end)
		*end = 0;
	if (sscanf(line, "budget %lu", &n) == 1) {
		if (control_budget(c, n))
			fail("budget %lu", n);
	} else if (!strcmp(line, "move")) {
		for (e = 0; e < c->info.extents; e++)
			control_move(c, e);
	} else if (strcmp(line, "info")) {
		fail("no such command: %s", line);
	}
	c->info = info_of(c->fd);
	printf("done %s: direct %ju of %ju, frames %ju, lost %ju\n", line,
	       (uintmax_t)c->info.direct_pages, (uintmax_t)c->info.budget_pages,
	       (uintmax_t)c->info.frames, (uintmax_t)c->info.lost_pages);
}

/* serve FILE STOP: commands are budget PAGES, move, info */
int serve(int argc, char **argv)
{
	struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };
	struct control c;
	char line[128];
	int fd = open(argv[2], O_RDWR);

	(void)argc;
	if (fd < 0)
		fail("%s: %s", argv[2], strerror(errno));
	setvbuf(stdin, NULL, _IONBF, 0);
	control_open(&c, fd);
	printf("serving\n");
	while (access(argv[3], F_OK)) {
		control_serve(&c, 20);
		if (poll(&in, 1, 0) == 1 && (in.revents & POLLIN) &&
		    fgets(line, sizeof(line), stdin))
			command(&c, line);
	}
	return 0;
}

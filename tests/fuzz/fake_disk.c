// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * fake_disk.c - slabs' files, and the ring that reads and writes them
 *
 * In place of donor-daemon/file.c and ring.c. Files are memfds. An operation ends
 * when the input says, in the order that it says, whole, in part, or with an error.
 * Its bytes are moved when it ends: then its file must still be the one that it was
 * posted for, and its buffer must exist.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "donor_world.h"
#include "fake_disk.h"
#include "file.h"
#include "input.h"
#include "ring.h"

#define OPS 256u
#define PAGE 4096u

struct disk_op {
	void *tag;
	u8 *buf;
	size_t bytes;
	u64 offset;
	ino_t file;
	int fd;
	int res;
	bool write;
};

struct dcm_ring {
	int event;
	unsigned int most;
	/* [0, nr_added) is in the ring, not submitted; then under way; then over */
	struct disk_op added[OPS];
	struct disk_op busy[OPS];
	struct disk_op over[OPS];
	u32 nr_added;
	u32 nr_busy;
	u32 nr_over;
};

static struct dcm_ring *disk; /* there is one data worker */
static u32 disk_how, disk_wait;

static ino_t inode_of(int fd)
{
	struct stat st;

	EXPECT(!fstat(fd, &st));
	return st.st_ino;
}

static void op_take(struct disk_op *list, u32 *nr, u32 at)
{
	memmove(&list[at], &list[at + 1], (--*nr - at) * sizeof(*list));
}

/* ---- the directory ---- */

int dcm_file_dir_open(const char *path, char *err, size_t err_len)
{
	(void)path;
	(void)err;
	(void)err_len;
	return open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

int dcm_file_new(int dir)
{
	int fd = memfd_create("file", MFD_CLOEXEC);

	EXPECT(dir >= 0);
	return fd < 0 ? -errno : fd;
}

int dcm_file_space(int dir, struct dcm_hostmem *hm)
{
	EXPECT(dir >= 0);
	hm->free = donor_world_free(&hm->total);
	return 0;
}

/* ---- the ring ---- */

struct dcm_ring *dcm_ring_new(unsigned int ops, int *err)
{
	EXPECT(!disk && ops <= OPS);
	disk = calloc(1, sizeof(*disk));
	EXPECT(disk);
	disk->most = ops;
	disk->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	EXPECT(disk->event >= 0);
	*err = 0;
	return disk;
}

void dcm_ring_free(struct dcm_ring *ring)
{
	close(ring->event);
	free(ring);
	disk = NULL;
}

int dcm_ring_fd(const struct dcm_ring *ring)
{
	return ring->event;
}

void dcm_ring_add(struct dcm_ring *ring, bool write, int fd, void *buf,
		  size_t bytes, uint64_t offset, void *tag)
{
	EXPECT(ring->nr_added + ring->nr_busy + ring->nr_over < ring->most);
	EXPECT(bytes && !(bytes % PAGE) && !(offset % PAGE));
	EXPECT(offset + bytes <= 2u << 20);
	ring->added[ring->nr_added++] = (struct disk_op){
		.tag = tag,
		.buf = buf,
		.bytes = bytes,
		.offset = offset,
		.file = inode_of(fd),
		.fd = fd,
		.write = write,
	};
}

int dcm_ring_submit(struct dcm_ring *ring)
{
	if (disk_how & 0x80)
		return -EAGAIN;
	memcpy(&ring->busy[ring->nr_busy], ring->added,
	       ring->nr_added * sizeof(*ring->added));
	ring->nr_busy += ring->nr_added;
	ring->nr_added = 0;
	return 0;
}

void *dcm_ring_next(struct dcm_ring *ring, int *res)
{
	eventfd_t n;
	void *tag;

	if (!ring->nr_over) {
		eventfd_read(ring->event, &n);
		return NULL;
	}
	tag = ring->over[0].tag;
	*res = ring->over[0].res;
	op_take(ring->over, &ring->nr_over, 0);
	return tag;
}

void dcm_ring_wait(struct dcm_ring *ring)
{
	EXPECT(ring == disk);
	disk_set(0);
	disk_turn();
}

/* ---- the disk ---- */

/* The result of an operation: the bytes that are moved, or an error. */
static int result(const struct disk_op *op)
{
	u32 pages = (u32)(op->bytes / PAGE);

	switch (disk_how >> 3 & 15) {
	case 1:
	case 2:
		return (int)((pages + 1) / 2 * PAGE);
	case 3:
		return PAGE;
	case 4:
		return -EIO;
	case 5:
		return -EINTR;
	case 6:
		return -EAGAIN;
	case 7:
		return 0;
	case 8:
		return (int)op->bytes - 512;
	case 9:
		return -ENOSPC;
	default:
		return (int)op->bytes;
	}
}

static void op_end(struct disk_op *op)
{
	ssize_t n;

	EXPECT(inode_of(op->fd) == op->file);
	op->res = result(op);
	if (op->res <= 0)
		return;
	n = op->write ?
		    pwrite(op->fd, op->buf, (size_t)op->res,
			       (off_t)op->offset) :
		    pread(op->fd, op->buf, (size_t)op->res, (off_t)op->offset);
	EXPECT(n == op->res);
}

void disk_set(u32 how)
{
	disk_how = how;
	disk_wait = how & 3;
}

/* After what is not the whole, the disk is well for a turn: it must come to an end. */
void disk_turn(void)
{
	u32 how = disk_how;

	if (!disk || !(disk->nr_added + disk->nr_busy) ||
	    (disk_wait && disk_wait--))
		return;
	while (disk->nr_busy) {
		u32 at = how & 4 ? disk->nr_busy - 1 : 0;
		struct disk_op op = disk->busy[at];

		op_end(&op);
		op_take(disk->busy, &disk->nr_busy, at);
		disk->over[disk->nr_over++] = op;
	}
	if (disk->nr_over)
		EXPECT(!eventfd_write(disk->event, 1));
	disk_set(how & 3 ? how & 7 : 0);
}

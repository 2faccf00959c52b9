// SPDX-License-Identifier: GPL-2.0-or-later
/* vgc_wrong.c - every wrong call of /dev/vgcN, one by one */
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "vgc_check.h"

static void wrong_create(void)
{
	int fd = dev_open();
	struct vgc_create c;

#define WRONG(change)                                          \
	do {                                                   \
		c = space(BYTES);                              \
		change;                                        \
		FAILS(ioctl(fd, VGC_IOC_CREATE, &c), EINVAL);  \
	} while (0)
	WRONG(c.flags = 1);
	WRONG(c.reserved = 1);
	WRONG(c.space.window = REGION);
	WRONG(c.space.bytes = 0);
	WRONG(c.space.bytes = BYTES + 4096);
	WRONG(c.space.bytes = -REGION);
	WRONG(c.space.region_bytes = 0);
	WRONG(c.space.region_bytes = 4096);
	WRONG(c.space.region_bytes = 3 * REGION);
	WRONG(c.space.region_bytes = 1ul << 63);
	WRONG(c.space.ref_bytes = 3);
	WRONG(c.space.type_mask = 0);
	WRONG(c.space.address = ADDRESS + 8);
#undef WRONG
	FAILS(ioctl(fd, VGC_IOC_CREATE, NULL), EFAULT);
	FAILS(ioctl(fd, VGC_IOC_CREATE, (void *)-4096l), EFAULT);
	/* None of them has left anything. */
	EXPECT(!create(fd, BYTES));
	c = space(BYTES);
	FAILS(ioctl(fd, VGC_IOC_CREATE, &c), EEXIST);
	close(fd);
}

static void wrong_submit(int fd, const struct vgc_info *info)
{
	struct cancel q = cancel();
	struct virtio_gc_done d;
	struct vgc_submit s;
	uint32_t i;
	char *none;

	q.r.command = VIRTIO_GC_SPACE_CREATE;
	/* which space it is the driver says [VGC-G-3] */
	FAILS(submit(fd, &q, sizeof(q), &d, sizeof(d), 0), EPERM);
	q.r.command = VIRTIO_GC_SPACE_DESTROY;
	FAILS(submit(fd, &q, sizeof(q.r), &d, sizeof(d), 0), EPERM);
	q = cancel();
	q.r.space = 1;
	FAILS(submit(fd, &q, sizeof(q), &d, sizeof(d), 0), EINVAL);
	q = cancel();
	FAILS(submit(fd, &q, sizeof(q.r) - 1, &d, sizeof(d), 0), EINVAL);
	FAILS(submit(fd, &q, info->request_max + 1, &d, sizeof(d), 0), EINVAL);
	FAILS(submit(fd, &q, sizeof(q), &d, sizeof(d) - 1, 0), EINVAL);
	FAILS(submit(fd, &q, sizeof(q), &d,
		     sizeof(d) + VIRTIO_GC_BITMAPS_MAX + 1, 0),
	      EINVAL);
	FAILS(submit(fd, NULL, sizeof(q), &d, sizeof(d), 0), EFAULT);
	FAILS(submit(fd, (void *)-4096l, 4096, &d, sizeof(d), 0), EFAULT);
	memset(&s, 0, sizeof(s));
	s.flags = 1;
	FAILS(ioctl(fd, VGC_IOC_SUBMIT, &s), EINVAL);
	FAILS(ioctl(fd, VGC_IOC_SUBMIT, NULL), EFAULT);
	FAILS(ioctl(fd, VGC_IOC_REAP, &s), EAGAIN);
	FAILS(ioctl(fd, _IO('V', 0x7f), NULL), ENOTTY);

	/* As many as there may be, and none more before one is reaped. */
	for (i = 0; i < info->commands_max; i++)
		EXPECT(!submit(fd, &q, sizeof(q), &d, sizeof(d), i));
	FAILS(submit(fd, &q, sizeof(q), &d, sizeof(d), i), EAGAIN);
	for (i = 0; i < info->commands_max; i++)
		reap(fd);
	/* An answer nobody can take is gone, its place is not. */
	none = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (i = 0; i < info->commands_max + 2; i++) {
		struct pollfd p = { .fd = fd, .events = POLLIN };

		EXPECT(!submit(fd, &q, sizeof(q), none, sizeof(d), i));
		EXPECT(poll(&p, 1, 30000) == 1);
		FAILS(ioctl(fd, VGC_IOC_REAP, &s), EFAULT);
	}
	/* The largest there may be, which the device refuses. */
	none = mmap(NULL, info->request_max, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memcpy(none, &q, sizeof(q));
	EXPECT(!submit(fd, none, info->request_max, &d, sizeof(d), 5));
	reap(fd);
	EXPECT(d.status == VIRTIO_GC_INVALID);
}

/* The kernel would log one that is not caught. */
static void on_segv(int sig)
{
	(void)sig;
	_exit(77);
}

static void wrong_map(int fd)
{
	long page = 4096;
	pid_t child;
	int status;
	char *m;

#define NO_MAP(bytes, flags, at) \
	EXPECT(mmap(NULL, bytes, PROT_READ, flags, fd, at) == MAP_FAILED)
	NO_MAP(BYTES + page, MAP_SHARED, 0);
	NO_MAP(BYTES, MAP_SHARED, page);
	NO_MAP(page, MAP_SHARED, (long)BYTES);
	NO_MAP(page, MAP_SHARED, -page);
	NO_MAP(page, MAP_PRIVATE, 0);
#undef NO_MAP
	m = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		 (long)BYTES - page);
	EXPECT(m != MAP_FAILED);
	m[0] = 1;
	EXPECT(mremap(m, page, 2 * page, MREMAP_MAYMOVE) == MAP_FAILED);
	/* A child has the file, and not the memory. */
	child = fork();
	if (!child) {
		signal(SIGSEGV, on_segv);
		_exit(*(volatile char *)m);
	}
	EXPECT(waitpid(child, &status, 0) == child);
	EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 77);
	munmap(m, page);
}

void wrong(void)
{
	struct virtio_gc_done d;
	struct cancel q = cancel();
	struct vgc_info info;
	struct vgc_reap r;
	int fd = dev_open();

	FAILS(ioctl(fd, VGC_IOC_INFO, NULL), EFAULT);
	EXPECT(!ioctl(fd, VGC_IOC_INFO, &info));
	FAILS(submit(fd, &q, sizeof(q), &d, sizeof(d), 0), ENXIO);
	FAILS(ioctl(fd, VGC_IOC_REAP, &r), EAGAIN);
	EXPECT(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED);
	EXPECT(!create(fd, BYTES));
	wrong_submit(fd, &info);
	wrong_map(fd);
	close(fd);
	wrong_create();
}

// SPDX-License-Identifier: BSD-3-Clause
/* driver.c - libvgc's provider for /dev/vgcN of virtio_gc.ko */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "provider.h"

/**
 * struct driver - a device of one space
 * @over: @heap's addresses are the caller's
 */
struct driver {
	int fd;
	void *heap;
	size_t bytes;
	bool over;
};

static const char *open_error_text(int err)
{
	switch (err) {
	case ENOENT:
		return "no such device: load virtio_gc.ko, and add a virtio-gc device to the VM";
	case EACCES:
		return "no permission to open it: join the device's group, or add a udev rule";
	default:
		return strerror(err);
	}
}

static int driver_open(const char *device, void **self, struct vgc_info *info,
		       char *err, size_t len)
{
	struct driver *d = calloc(1, sizeof(*d));
	int rc;

	if (!d)
		return -ENOMEM;
	d->fd = open(device, O_RDWR | O_CLOEXEC);
	if (d->fd < 0) {
		rc = -errno;
		snprintf(err, len, "%s: %s", device, open_error_text(-rc));
		free(d);
		return rc;
	}
	if (ioctl(d->fd, VGC_IOC_INFO, info)) {
		rc = -errno;
		snprintf(err, len,
			 "%s is not a virtio-gc device, or is gone: %s", device,
			 strerror(-rc));
		close(d->fd);
		free(d);
		return rc;
	}
	*self = d;
	return 0;
}

static void heap_end(struct driver *d)
{
	if (d->heap && d->over)
		vgc_reserve(d->heap, d->bytes, true);
	else if (d->heap)
		munmap(d->heap, d->bytes);
	d->heap = NULL;
}

static int driver_create(void *self, const struct virtio_gc_space *space,
			 bool over)
{
	struct vgc_create c = { .space = *space };
	void *want = (void *)(uintptr_t)space->address;
	struct driver *d = self;
	int rc = 0;

	if (d->heap)
		return -EEXIST;
	/* Reserve the addresses first: a space alone can't be taken back. */
	if (!over)
		rc = vgc_reserve(want, space->bytes, false);
	if (rc)
		return rc;
	d->heap = want;
	d->bytes = space->bytes;
	d->over = over;
	if (ioctl(d->fd, VGC_IOC_CREATE, &c) ||
	    mmap(want, d->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
		 d->fd, 0) == MAP_FAILED) {
		rc = -errno;
		heap_end(d);
	}
	return rc;
}

static int driver_submit(void *self, const void *request, uint32_t bytes,
			 void *answer, uint32_t room, uint64_t cookie)
{
	struct driver *d = self;
	struct vgc_submit s = {
		.request = (uintptr_t)request,
		.answer = (uintptr_t)answer,
		.request_bytes = bytes,
		.answer_room = room,
		.cookie = cookie,
	};

	return ioctl(d->fd, VGC_IOC_SUBMIT, &s) ? -errno : 0;
}

static int driver_reap(void *self, uint64_t *cookie, uint32_t *bytes,
		       int timeout_ms)
{
	struct driver *d = self;
	struct pollfd p = { .fd = d->fd, .events = POLLIN };
	struct vgc_reap r;
	int n;

	n = poll(&p, 1, timeout_ms);
	if (n < 0)
		return -errno;
	if (!n)
		return -ETIMEDOUT;
	if (ioctl(d->fd, VGC_IOC_REAP, &r))
		return -errno;
	*cookie = r.cookie;
	*bytes = r.answer_bytes;
	return 0;
}

static void driver_close(void *self)
{
	struct driver *d = self;

	heap_end(d);
	close(d->fd);
	free(d);
}

static uint64_t driver_budget(void *self)
{
	struct driver *d = self;
	struct vgc_info info;

	return ioctl(d->fd, VGC_IOC_INFO, &info) ?
		       0 :
		       (uint64_t)info.budget_mib << 20;
}

const struct vgc_provider vgc_provider_driver = {
	.open = driver_open,
	.create = driver_create,
	.submit = driver_submit,
	.reap = driver_reap,
	.budget = driver_budget,
	.close = driver_close,
};

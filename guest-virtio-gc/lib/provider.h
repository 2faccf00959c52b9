/* SPDX-License-Identifier: BSD-3-Clause */
/* provider.h - what libvgc asks of whatever has the device */
#ifndef VGC_PROVIDER_H
#define VGC_PROVIDER_H

#include <time.h>

#include "libvgc.h"

/* what a device's name begins with that is libdcm's configuration */
#define VGC_LIBDCM "dcm:"
/* or a file of the kernel pager */
#define VGC_DCMFS "dcmfs:"

/**
 * struct vgc_provider - all return 0 or a negative errno
 * @open: fills in @info; @self is handed to the others
 * @create: the space, mapped at its address
 * @submit: the request is copied; @answer is written by @reap. -EAGAIN: later
 * @reap: the next answer there is, in any order; @cookie is submit's.
 *	-ETIMEDOUT. One thread at a time; beside it others may submit
 * @close: the mapping goes too
 */
struct vgc_provider {
	int (*open)(const char *device, void **self, struct vgc_info *info,
		    char *err, size_t len);
	int (*create)(void *self, const struct virtio_gc_space *space);
	int (*submit)(void *self, const void *request, uint32_t bytes,
		      void *answer, uint32_t room, uint64_t cookie);
	int (*reap)(void *self, uint64_t *cookie, uint32_t *bytes,
		    int timeout_ms);
	void (*close)(void *self);
};

/* driver.c: /dev/vgcN */
extern const struct vgc_provider vgc_provider_driver;
/* libdcm.c: "dcm:FILE" or "dcmfs:FILE", without a device in between */
extern const struct vgc_provider vgc_provider_libdcm;

/* When @timeout_ms from now is, by the monotonic clock. */
static inline void vgc_deadline(struct timespec *ts, int timeout_ms)
{
	clock_gettime(CLOCK_MONOTONIC, ts);
	ts->tv_sec += timeout_ms / 1000;
	ts->tv_nsec += (long)(timeout_ms % 1000) * 1000000;
	if (ts->tv_nsec >= 1000000000) {
		ts->tv_nsec -= 1000000000;
		ts->tv_sec++;
	}
}

#endif /* VGC_PROVIDER_H */

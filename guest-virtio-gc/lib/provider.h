/* SPDX-License-Identifier: BSD-3-Clause */
/* provider.h - libvgc's interface to a provider of the device */
#ifndef VGC_PROVIDER_H
#define VGC_PROVIDER_H

#include <errno.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <time.h>

#include "libvgc.h"

/* prefix of a device's name: the rest is libdcm's configuration file */
#define VGC_LIBDCM "dcm:"
/* the rest is a file of the kernel pager */
#define VGC_DCMFS "dcmfs:"
#define VGC_PAGE 4096u

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

/**
 * struct vgc_provider - functions; but for @budget all return 0 or a negative errno
 * @open: fills in @info; @self is passed to the others
 * @create: create the space, mapped at its address. @over: the caller has the
 *	range reserved, and has it again after a failure and after @close
 * @submit: copies the request; @reap writes @answer. -EAGAIN: try later
 * @reap: get the next answer, in any order; @cookie is submit's. -ETIMEDOUT.
 *	One thread at a time; others may submit meanwhile
 * @budget: bytes that the host keeps of the window in its own memory, at most; 0: not
 *	known
 * @close: removes the mapping too
 */
struct vgc_provider {
	int (*open)(const char *device, void **self, struct vgc_info *info,
		    char *err, size_t len);
	int (*create)(void *self, const struct virtio_gc_space *space,
		      bool over);
	int (*submit)(void *self, const void *request, uint32_t bytes,
		      void *answer, uint32_t room, uint64_t cookie);
	int (*reap)(void *self, uint64_t *cookie, uint32_t *bytes,
		    int timeout_ms);
	uint64_t (*budget)(void *self);
	void (*close)(void *self);
};

/* driver.c: /dev/vgcN */
extern const struct vgc_provider vgc_provider_driver;
/* libdcm.c: "dcm:FILE" or "dcmfs:FILE", without a device in between */
extern const struct vgc_provider vgc_provider_libdcm;

/* Reserve addresses: all of them free, or (@over) whatever is there replaced. */
static inline int vgc_reserve(void *at, size_t bytes, bool over)
{
	void *p = mmap(at, bytes, PROT_NONE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE |
			       (over ? MAP_FIXED : MAP_FIXED_NOREPLACE),
		       -1, 0);

	if (p == MAP_FAILED)
		return -errno;
	if (p == at)
		return 0;
	munmap(p, bytes);
	return -EEXIST;
}

/* The time @timeout_ms from now, by the monotonic clock. */
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

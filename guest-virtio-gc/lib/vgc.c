// SPDX-License-Identifier: BSD-3-Clause
/*
 * vgc.c - libvgc: assembles requests, gives answers to the threads that wait
 *
 * A call's cookie is its address. Of the threads that wait, one asks the
 * provider for answers, to any call; the others sleep until theirs has come, or
 * it is their turn to ask. So the library needs no thread of its own.
 *
 * Locking: @lock guards the calls' states and @asking; it is not held while the
 * provider's functions run.
 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "provider.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "libvgc is for little endian machines, as virtio_gc.h's layouts are"
#endif

enum {
	CALL_NEW,
	CALL_STARTED,
	CALL_DONE,
};

struct vgc {
	const struct vgc_provider *ops;
	void *self;
	struct vgc_info info;
	pthread_mutex_t lock;
	pthread_cond_t moved;
	bool asking;
	bool gone;
};

struct vgc *vgc_open(const char *device, char *err, size_t len)
{
	struct vgc *v = calloc(1, sizeof(*v));
	pthread_condattr_t attr;
	int rc;

	if (!device)
		device = getenv("VGC_DEVICE");
	if (!device)
		device = "/dev/vgc0";
	snprintf(err, len, "no memory");
	if (!v)
		return NULL;
	v->ops = &vgc_provider_driver;
	if (!strncmp(device, VGC_LIBDCM, strlen(VGC_LIBDCM)) ||
	    !strncmp(device, VGC_DCMFS, strlen(VGC_DCMFS)))
		v->ops = &vgc_provider_libdcm;
	rc = v->ops->open(device, &v->self, &v->info, err, len);
	if (rc) {
		free(v);
		errno = -rc;
		return NULL;
	}
	pthread_mutex_init(&v->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&v->moved, &attr);
	pthread_condattr_destroy(&attr);
	if (len)
		err[0] = 0;
	return v;
}

void vgc_close(struct vgc *v)
{
	if (!v)
		return;
	v->ops->close(v->self);
	pthread_mutex_destroy(&v->lock);
	pthread_cond_destroy(&v->moved);
	free(v);
}

const struct vgc_info *vgc_info(const struct vgc *v)
{
	return &v->info;
}

uint64_t vgc_budget(const struct vgc *v)
{
	return v->ops->budget(v->self);
}

static void *space_create(struct vgc *v, const struct virtio_gc_space *space,
			  bool over)
{
	int rc = v->ops->create(v->self, space, over);

	if (!rc)
		return (void *)(uintptr_t)space->address;
	errno = -rc;
	return NULL;
}

void *vgc_create(struct vgc *v, const struct virtio_gc_space *space)
{
	return space_create(v, space, false);
}

void *vgc_create_over(struct vgc *v, const struct virtio_gc_space *space)
{
	uint64_t unit = v->info.region_bytes_max;

	/* A provider that rounds up would map over what is behind the range. */
	if (!unit || !space->bytes || space->bytes % unit ||
	    space->address % VGC_PAGE ||
	    space->bytes > UINT64_MAX - space->address) {
		errno = EINVAL;
		return NULL;
	}
	return space_create(v, space, true);
}

/* ---- requests ---- */

static void *bytes_put(void *to, const void *from, size_t bytes)
{
	if (bytes)
		memcpy(to, from, bytes);
	return (char *)to + bytes;
}

static uint32_t answer_max(const struct vgc_info *info)
{
	uint32_t bitmaps =
		sizeof(struct virtio_gc_done) + VIRTIO_GC_BITMAPS_MAX;

	if (!(info->features >> VIRTIO_GC_F_BITMAPS & 1) ||
	    info->response_max > bitmaps)
		return info->response_max;
	return bitmaps;
}

int vgc_start(struct vgc *v, struct vgc_call *c)
{
	struct virtio_gc_req r = {
		.command = c->command,
		.flags = c->flags,
		.tag = c->tag,
		.epoch = c->epoch,
		.deadline_ms = c->deadline_ms,
		.count = c->count,
	};
	uint64_t bytes = sizeof(r) + (uint64_t)c->arg_bytes +
			 (uint64_t)c->count * c->entry_bytes + c->tail_bytes;
	char *request, *p;
	int rc;

	if (bytes > v->info.request_max ||
	    c->answer_room > answer_max(&v->info) ||
	    c->answer_room < sizeof(struct virtio_gc_done))
		return -EMSGSIZE;
	request = malloc(bytes);
	if (!request)
		return -ENOMEM;
	p = bytes_put(request, &r, sizeof(r));
	p = bytes_put(p, c->arg, c->arg_bytes);
	p = bytes_put(p, c->entries, (size_t)c->count * c->entry_bytes);
	bytes_put(p, c->tail, c->tail_bytes);
	c->error = 0;
	c->answer_bytes = 0;
	/* Before the answer can come. */
	pthread_mutex_lock(&v->lock);
	c->state = CALL_STARTED;
	pthread_mutex_unlock(&v->lock);
	rc = v->ops->submit(v->self, request, (uint32_t)bytes, c->answer,
			    c->answer_room, (uintptr_t)c);
	free(request);
	if (rc) {
		pthread_mutex_lock(&v->lock);
		c->state = CALL_NEW;
		pthread_mutex_unlock(&v->lock);
	}
	return rc;
}

/* ---- answers ---- */

static int left_ms(const struct timespec *until)
{
	struct timespec now;
	int64_t ms;

	clock_gettime(CLOCK_MONOTONIC, &now);
	ms = (until->tv_sec - now.tv_sec) * 1000 +
	     (until->tv_nsec - now.tv_nsec + 999999) / 1000000;
	return ms > 0 ? (int)ms : 0;
}

/* Called with the lock held, which it drops: fetch one answer. */
static int answer_fetch(struct vgc *v, int timeout_ms)
{
	uint64_t cookie = 0;
	uint32_t bytes = 0;
	int rc;

	v->asking = true;
	pthread_mutex_unlock(&v->lock);
	rc = v->ops->reap(v->self, &cookie, &bytes, timeout_ms);
	pthread_mutex_lock(&v->lock);
	v->asking = false;
	if (!rc) {
		struct vgc_call *c = (void *)(uintptr_t)cookie;

		c->answer_bytes = bytes;
		c->error = bytes < sizeof(struct virtio_gc_done) ? -EIO : 0;
		c->state = CALL_DONE;
	}
	if (rc == -ENODEV)
		v->gone = true;
	pthread_cond_broadcast(&v->moved);
	return rc;
}

int vgc_wait(struct vgc *v, struct vgc_call *c, int timeout_ms)
{
	struct timespec until = { 0 };
	int rc = 0;

	if (timeout_ms >= 0)
		vgc_deadline(&until, timeout_ms);
	pthread_mutex_lock(&v->lock);
	while (c->state == CALL_STARTED && !v->gone && rc != -ETIMEDOUT) {
		if (!v->asking)
			rc = answer_fetch(v, timeout_ms < 0 ? -1 :
							      left_ms(&until));
		else if (timeout_ms < 0)
			pthread_cond_wait(&v->moved, &v->lock);
		else
			rc = -pthread_cond_timedwait(&v->moved, &v->lock,
						     &until);
		/* Another thread may have been faster, or a signal came. */
		if (rc && rc != -ETIMEDOUT && rc != -EAGAIN && rc != -EINTR &&
		    rc != -ENODEV)
			break;
	}
	if (c->state == CALL_DONE) {
		rc = c->error;
		c->state = CALL_NEW;
	} else if (c->state == CALL_NEW) {
		rc = -EINVAL;
	} else if (v->gone) {
		rc = -ENODEV;
		c->state = CALL_NEW;
	}
	pthread_mutex_unlock(&v->lock);
	return rc;
}

int vgc_do(struct vgc *v, struct vgc_call *c)
{
	int rc = vgc_start(v, c);

	return rc ? rc : vgc_wait(v, c, -1);
}

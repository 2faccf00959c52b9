// SPDX-License-Identifier: BSD-3-Clause
/*
 * libdcm.c - libvgc's provider that uses libdcm in the same process
 *
 * For a space it makes a window: memory at the address that the runtime wants,
 * under a pager that only this space uses, and libdcm's half of a device on
 * that. Requests that a driver would refuse are refused here.
 *
 * On the kernel pager ("dcmfs:FILE") the file is the memory, mapped where the
 * runtime wants it, and dcm-hostd does the work. The window is the whole file;
 * one runtime at a time can use it.
 *
 * libdcm's functions are weak: in a program that is not linked with libdcm,
 * libvgc knows the driver only.
 *
 * Locking: @lock guards @first, @last and @in_flight. Answers come on a thread
 * of libdcm and wait as copies until they are reaped: the runtime's buffer may
 * be in the heap.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "libdcm_gc.h"
#include "provider.h"

#pragma weak dcm_pager_open
#pragma weak dcm_pager_close
#pragma weak dcm_pager_adopt
#pragma weak dcm_pager_unmap
#pragma weak dcm_pager_budget
#pragma weak dcm_pager_release
#pragma weak dcm_gc_host_limits
#pragma weak dcm_gc_host_open
#pragma weak dcm_gc_host_connect
#pragma weak dcm_gc_host_config
#pragma weak dcm_gc_host_budget
#pragma weak dcm_gc_host_features
#pragma weak dcm_gc_host_close
#pragma weak dcm_gc_host_start
#pragma weak dcm_gc_host_reset
#pragma weak dcm_gc_host_submit

#define SPACE_ID 0

/**
 * struct pending - an unanswered request, or its answer
 * @buf: the answer's bytes, once it has come
 */
struct pending {
	struct pending *next;
	struct libdcm *in;
	void *answer;
	uint64_t cookie;
	uint32_t bytes;
	void *buf;
};

/**
 * struct libdcm - a device of one space
 * @pager: %NULL: the kernel pager has the memory
 * @file: its file then
 * @budget: as it was before the space was made
 * @over: @heap's addresses are the caller's
 */
struct libdcm {
	struct dcm_pager *pager;
	int file;
	uint64_t budget;
	struct dcm_gc_host *gc;
	struct vgc_info info;
	void *heap;
	size_t bytes;
	bool over;
	pthread_mutex_t lock;
	pthread_cond_t answered;
	uint32_t in_flight;
	struct pending *first;
	struct pending **last;
};

/* On libdcm's thread. */
static void request_answered(void *priv, void *token, const void *answer,
			     size_t bytes)
{
	struct pending *p = token;
	struct libdcm *d = priv;

	p->buf = bytes ? malloc(bytes) : NULL;
	if (p->buf) {
		memcpy(p->buf, answer, bytes);
		p->bytes = (uint32_t)bytes;
	}
	pthread_mutex_lock(&d->lock);
	p->next = NULL;
	*d->last = p;
	d->last = &p->next;
	pthread_cond_signal(&d->answered);
	pthread_mutex_unlock(&d->lock);
}

static void info_of(struct vgc_info *info, const struct virtio_gc_config *c,
		    uint64_t features)
{
	*info = (struct vgc_info){
		.window_bytes = c->window_bytes,
		.region_bytes_min = c->region_bytes_min,
		.region_bytes_max = c->region_bytes_max,
		.features = features,
		.types_max = c->types_max,
		.regions_max = c->regions_max,
		.request_max = c->request_max,
		.response_max = c->response_max,
		.commands_max = c->commands_max,
		.deadline_max_ms = c->deadline_max_ms,
		.donors = c->donors,
	};
}

static const struct dcm_gc_host_ops host_ops = { .answered = request_answered };

/* Open a pager of our own. */
static int config_open(struct libdcm *d, const char *config,
		       struct virtio_gc_config *c, uint64_t *features,
		       char *err, size_t len)
{
	d->pager = dcm_pager_open(config, err, len);
	if (!d->pager)
		return errno ? -errno : -EIO;
	*features = dcm_gc_host_limits(d->pager, c);
	return 0;
}

/* Open a dcmfs file, and ask dcm-hostd for its limits. */
static int file_open(struct libdcm *d, const char *path,
		     struct virtio_gc_config *c, uint64_t *features, char *err,
		     size_t len)
{
	struct dcm_gc_host *gc;
	int rc;

	d->file = open(path, O_RDWR | O_CLOEXEC);
	if (d->file < 0) {
		rc = -errno;
		snprintf(err, len, "%s: %s", path, strerror(errno));
		return rc;
	}
	gc = dcm_gc_host_connect(getenv("VGC_HOSTD"), d->file, NULL, 0,
				 &host_ops, d, err, len);
	if (!gc) {
		rc = errno ? -errno : -EIO;
		close(d->file);
		return rc;
	}
	dcm_gc_host_config(gc, c);
	*features = dcm_gc_host_features(gc);
	d->budget = dcm_gc_host_budget(gc);
	dcm_gc_host_close(gc);
	return 0;
}

static int libdcm_open(const char *device, void **self, struct vgc_info *info,
		       char *err, size_t len)
{
	size_t pre = strlen(VGC_DCMFS);
	bool kernel = !strncmp(device, VGC_DCMFS, pre);
	const char *name = device + (kernel ? pre : strlen(VGC_LIBDCM));
	struct virtio_gc_config c = { 0 };
	pthread_condattr_t attr;
	uint64_t features = 0;
	struct libdcm *d;
	int rc;

	if (!dcm_gc_host_limits) {
		snprintf(err, len,
			 "%s: the program is not linked with -ldcm (or drops it: -Wl,--no-as-needed)",
			 device);
		return -ENOSYS;
	}
	d = calloc(1, sizeof(*d));
	if (!d)
		return -ENOMEM;
	d->file = -1;
	rc = kernel ? file_open(d, name, &c, &features, err, len) :
		      config_open(d, name, &c, &features, err, len);
	if (rc) {
		free(d);
		return rc;
	}
	info_of(&d->info, &c, features);
	*info = d->info;
	d->last = &d->first;
	pthread_mutex_init(&d->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&d->answered, &attr);
	pthread_condattr_destroy(&attr);
	*self = d;
	return 0;
}

/* ---- requests ---- */

static int request_submit(struct libdcm *d, const void *request, uint32_t bytes,
			  void *answer, uint32_t room, uint64_t cookie)
{
	struct pending *p;

	pthread_mutex_lock(&d->lock);
	if (d->in_flight == d->info.commands_max) {
		pthread_mutex_unlock(&d->lock);
		return -EAGAIN;
	}
	p = calloc(1, sizeof(*p));
	d->in_flight += !!p;
	pthread_mutex_unlock(&d->lock);
	if (!p)
		return -ENOMEM;
	p->in = d;
	p->answer = answer;
	p->cookie = cookie;
	dcm_gc_host_submit(d->gc, request, bytes, room, p);
	return 0;
}

static int libdcm_submit(void *self, const void *request, uint32_t bytes,
			 void *answer, uint32_t room, uint64_t cookie)
{
	const struct virtio_gc_req *r = request;
	struct libdcm *d = self;

	if (!d->gc)
		return -ENXIO;
	if (r->command == VIRTIO_GC_SPACE_CREATE ||
	    r->command == VIRTIO_GC_SPACE_DESTROY)
		return -EPERM;
	return request_submit(d, request, bytes, answer, room, cookie);
}

static int libdcm_reap(void *self, uint64_t *cookie, uint32_t *bytes,
		       int timeout_ms)
{
	struct libdcm *d = self;
	struct timespec end = { 0 };
	struct pending *p;
	int rc = 0;

	if (timeout_ms >= 0)
		vgc_deadline(&end, timeout_ms);
	pthread_mutex_lock(&d->lock);
	while (!d->first && !rc)
		rc = timeout_ms < 0 ?
			     pthread_cond_wait(&d->answered, &d->lock) :
			     pthread_cond_timedwait(&d->answered, &d->lock,
						    &end);
	p = d->first;
	if (p) {
		d->first = p->next;
		if (!d->first)
			d->last = &d->first;
		d->in_flight--;
	}
	pthread_mutex_unlock(&d->lock);
	if (!p)
		return -rc;
	if (p->bytes)
		memcpy(p->answer, p->buf, p->bytes);
	*cookie = p->cookie;
	*bytes = p->bytes;
	free(p->buf);
	free(p);
	return 0;
}

/* ---- the space ---- */

struct create {
	struct virtio_gc_req req;
	struct virtio_gc_space space;
};

static int space_create(struct libdcm *d, const struct virtio_gc_space *space)
{
	struct create c = {
		.req = { .command = VIRTIO_GC_SPACE_CREATE, .space = SPACE_ID },
		.space = *space,
	};
	struct virtio_gc_done done = { 0 };
	uint64_t cookie;
	uint32_t bytes;
	int rc;

	rc = request_submit(d, &c, sizeof(c), &done, sizeof(done), 0);
	if (!rc)
		rc = libdcm_reap(d, &cookie, &bytes, -1);
	if (rc)
		return rc;
	switch (done.status) {
	case VIRTIO_GC_OK:
		return 0;
	case VIRTIO_GC_INVALID:
		return -EINVAL;
	case VIRTIO_GC_LIMIT:
		return -ENOSPC;
	default:
		return -EIO;
	}
}

/* Map memory under the pager at the address; the window is all of it. */
static int window_make(struct libdcm *d, uint64_t address, size_t bytes,
		       bool over)
{
	int flags = d->pager ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE :
			       MAP_SHARED;
	void *want = (void *)(uintptr_t)address, *p;
	char err[256];
	int rc;

	p = mmap(want, bytes, PROT_READ | PROT_WRITE,
		 flags | (over ? MAP_FIXED : MAP_FIXED_NOREPLACE), d->file, 0);
	if (p == MAP_FAILED) {
		rc = -errno;
		/* A failed mmap() may have unmapped what it was to replace. */
		if (over)
			vgc_reserve(want, bytes, true);
		return rc;
	}
	rc = p == want ? 0 : -EEXIST;
	if (!rc && d->pager)
		rc = dcm_pager_adopt(d->pager, p, bytes);
	if (rc && over)
		vgc_reserve(p, bytes, true);
	else if (rc)
		munmap(p, bytes);
	if (rc)
		return rc;
	d->heap = p;
	d->bytes = bytes;
	d->over = over;
	if (d->pager)
		d->gc = dcm_gc_host_open(d->pager, p, bytes, &host_ops, d, err,
					 sizeof(err));
	else
		d->gc = dcm_gc_host_connect(getenv("VGC_HOSTD"), d->file, p,
					    bytes, &host_ops, d, err,
					    sizeof(err));
	if (!d->gc)
		return errno ? -errno : -EIO;
	/* discard what was in the file before */
	if (!d->pager)
		dcm_gc_host_reset(d->gc);
	dcm_gc_host_start(d->gc, d->info.features);
	return 0;
}

static void window_end(struct libdcm *d)
{
	struct pending *p;

	dcm_gc_host_close(d->gc);
	d->gc = NULL;
	if (d->heap && d->over) {
		/* It stays mapped until it is reserved again. */
		if (d->pager)
			dcm_pager_release(d->pager, d->heap, d->bytes);
		vgc_reserve(d->heap, d->bytes, true);
	} else if (d->heap && d->pager) {
		dcm_pager_unmap(d->pager, d->heap, d->bytes);
	} else if (d->heap) {
		munmap(d->heap, d->bytes);
	}
	d->heap = NULL;
	while ((p = d->first)) {
		d->first = p->next;
		free(p->buf);
		free(p);
	}
	d->last = &d->first;
	d->in_flight = 0;
}

static int libdcm_create(void *self, const struct virtio_gc_space *space,
			 bool over)
{
	uint64_t extent, bytes = space->bytes;
	struct libdcm *d = self;
	int rc;

	extent = d->info.region_bytes_max;
	if (d->gc)
		return -EEXIST;
	if (space->window || !bytes || space->address % VGC_PAGE)
		return -EINVAL;
	if (bytes > d->info.window_bytes)
		return -ENOSPC;
	rc = window_make(d, space->address,
			 (bytes + extent - 1) & ~(extent - 1), over);
	if (!rc)
		rc = space_create(d, space);
	if (rc)
		window_end(d);
	return rc;
}

static uint64_t libdcm_budget(void *self)
{
	struct libdcm *d = self;

	if (d->pager)
		return dcm_pager_budget(d->pager);
	return d->gc ? dcm_gc_host_budget(d->gc) : d->budget;
}

static void libdcm_close(void *self)
{
	struct libdcm *d = self;

	window_end(d);
	if (d->pager)
		dcm_pager_close(d->pager);
	else
		close(d->file);
	pthread_mutex_destroy(&d->lock);
	pthread_cond_destroy(&d->answered);
	free(d);
}

const struct vgc_provider vgc_provider_libdcm = {
	.open = libdcm_open,
	.create = libdcm_create,
	.submit = libdcm_submit,
	.reap = libdcm_reap,
	.budget = libdcm_budget,
	.close = libdcm_close,
};

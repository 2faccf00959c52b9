// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * gc_host.c - libdcm_gc.h: requests of a virtio-gc device, from copy to answer
 *
 * A request is copied, read whole by dcm_gc_request_read(), as the workers on
 * donors will read it again, and queued for one thread, which does it and
 * answers. What is refused takes the same way, so that nobody is called back
 * out of his own call.
 *
 *	submit -> [waiting] -> thread: expired, cancelled, refused or done
 *	       -> answered()
 *
 * One thread does all spaces' work in order of arrival: of the commands there
 * are today only SPACE_DESTROY takes time, which is its discard. Features are
 * those whose commands are here: none of tracing, moving and hints yet, so
 * their commands are UNSUPPORTED, and so are TYPES_ADD, CLEAN and
 * SPACE_DONORS, which serve tracing.
 *
 * Locking: @lock guards the queue and @live; the space table is the
 * thread's, and whoever has stopped it. No lock is held over answered() and
 * the pager's functions.
 *
 * Invariant: @live of a space is what was submitted with its id and is not
 * answered, spaces that do not exist included.
 */
#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../include/libdcm_gc.h"
#include "gc_space.h"
#include "inside.h"

#define REGION_MIN	(64ull << 10)
#define REGIONS_MAX	65536u
#define TYPES_MAX	65536u
#define REQUEST_MAX	(256u << 10)
#define RESPONSE_MAX	(256u << 10)
#define COMMANDS_MAX	32u
#define DEADLINE_MAX_MS	10000u

#define FEATURES	0ull

/**
 * struct job - a request on its way
 * @status: refused already, or %VIRTIO_GC_OK
 * @counted: in @live of its space
 * @r: what @request says; points into it
 * @request: the copy
 */
struct job {
	struct job *next;
	void *token;
	uint64_t expires_ms;
	uint32_t status;
	uint32_t space;
	bool counted;
	bool cancelled;
	bool mute;		/* no room for an answer */
	struct dcm_gc_request r;
	uint64_t request[];
};

struct dcm_gc_host {
	struct dcm_pager *pager;
	char *window;
	struct dcm_gc_host_ops ops;
	void *priv;
	struct dcm_gc_pieces spaces;

	pthread_mutex_t lock;
	pthread_cond_t wake;	/* the thread: work, or stop */
	pthread_cond_t idle;	/* reset: nothing waits, nothing runs */
	pthread_t thread;
	bool stop;
	bool resetting;
	struct job *first;
	struct job **last;
	struct job *running;
	uint64_t features;
	uint32_t live[DCM_GC_PIECES_MAX];
};

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* ---- doing ---- */

static uint32_t space_destroy(struct dcm_gc_host *gc, uint32_t id)
{
	struct dcm_gc_piece *p = dcm_gc_piece_find(&gc->spaces, id);

	if (!p)
		return VIRTIO_GC_INVALID;
	/* Nothing else runs: after this nobody reaches the piece. */
	if (dcm_pager_discard(gc->pager, gc->window + p->window, p->bytes))
		return VIRTIO_GC_LIMIT;
	dcm_gc_piece_drop(&gc->spaces, p);
	return VIRTIO_GC_OK;
}

static uint32_t space_create(struct dcm_gc_host *gc, const struct job *j)
{
	struct dcm_gc_layout l;
	uint64_t window;

	dcm_gc_request_layout(&j->r, &l, &window);
	return dcm_gc_piece_add(&gc->spaces, j->space, &l, window);
}

static uint32_t run(struct dcm_gc_host *gc, const struct job *j)
{
	if (j->status != VIRTIO_GC_OK)
		return j->status;
	if (j->cancelled)
		return VIRTIO_GC_CANCELLED;
	if (now_ms() >= j->expires_ms)
		return VIRTIO_GC_TIMED_OUT;
	switch (j->r.command) {
	case VIRTIO_GC_SPACE_CREATE:
		return space_create(gc, j);
	case VIRTIO_GC_SPACE_DESTROY:
		return space_destroy(gc, j->space);
	case VIRTIO_GC_CANCEL:
		/* What it names has been answered: it was before us. */
		return dcm_gc_piece_find(&gc->spaces, j->space) ?
			       VIRTIO_GC_OK :
			       VIRTIO_GC_INVALID;
	}
	return VIRTIO_GC_UNSUPPORTED;
}

static void answer(struct dcm_gc_host *gc, const struct job *j, uint32_t status)
{
	struct virtio_gc_done d = {
		.status = htole32(status),
		.donor = htole32(VIRTIO_GC_NO_DONOR),
		.at = htole64(VIRTIO_GC_NONE),
	};

	gc->ops.answered(gc->priv, j->token, &d, j->mute ? 0 : sizeof(d));
}

static void *gc_main(void *arg)
{
	struct dcm_gc_host *gc = arg;
	struct job *j;

	pthread_mutex_lock(&gc->lock);
	for (;;) {
		while (!gc->first && !gc->stop)
			pthread_cond_wait(&gc->wake, &gc->lock);
		j = gc->first;
		if (!j)
			break;
		gc->first = j->next;
		if (!gc->first)
			gc->last = &gc->first;
		gc->running = j;
		pthread_mutex_unlock(&gc->lock);

		answer(gc, j, run(gc, j));

		pthread_mutex_lock(&gc->lock);
		gc->running = NULL;
		if (j->counted)
			gc->live[j->space]--;
		free(j);
		if (!gc->first)
			pthread_cond_broadcast(&gc->idle);
	}
	pthread_mutex_unlock(&gc->lock);
	return NULL;
}

/* ---- submitting ---- */

/* Under the lock. */
static void cancel_tagged(struct dcm_gc_host *gc, uint32_t space, uint64_t tag)
{
	struct job *j;

	for (j = gc->first; j; j = j->next)
		if (j->space == space && j->r.tag == tag &&
		    j->r.command != VIRTIO_GC_CANCEL)
			j->cancelled = true;
}

static void enqueue(struct dcm_gc_host *gc, struct job *j)
{
	pthread_mutex_lock(&gc->lock);
	if (gc->resetting)
		j->cancelled = true;
	if (j->space < DCM_GC_PIECES_MAX) {
		if (gc->live[j->space] >= COMMANDS_MAX) {
			j->status = VIRTIO_GC_LIMIT;
		} else {
			gc->live[j->space]++;
			j->counted = true;
		}
	}
	if (j->status == VIRTIO_GC_OK && j->r.command == VIRTIO_GC_CANCEL) {
		const struct virtio_gc_cancel *cancel = j->r.body;

		cancel_tagged(gc, j->space, le64toh(cancel->tag));
	}
	*gc->last = j;
	gc->last = &j->next;
	pthread_cond_signal(&gc->wake);
	pthread_mutex_unlock(&gc->lock);
}

void dcm_gc_host_submit(struct dcm_gc_host *gc, const void *request,
			size_t bytes, size_t room, void *token)
{
	const struct dcm_gc_limits limits = {
		.features = (uint32_t)__atomic_load_n(&gc->features,
						      __ATOMIC_RELAXED),
		.spaces_max = DCM_GC_PIECES_MAX,
		.request_max = REQUEST_MAX,
		.response_max = RESPONSE_MAX,
	};
	/* of what is too long only the header is looked at */
	size_t kept = bytes < REQUEST_MAX ? bytes : REQUEST_MAX;
	uint32_t deadline;
	sigset_t old;
	struct job *j;

	dcm_enter(&old);
	j = calloc(1, sizeof(*j) + kept);
	if (!j)
		abort(); /* as the program's own allocator would */
	if (kept)
		memcpy(j->request, request, kept);
	j->token = token;
	j->status =
		dcm_gc_request_read(j->request, bytes, room, &limits, &j->r);
	j->space = bytes < sizeof(struct virtio_gc_req) ? DCM_GC_PIECES_MAX :
							  j->r.space;
	deadline = j->r.deadline_ms;
	if (!deadline || deadline > DEADLINE_MAX_MS)
		deadline = DEADLINE_MAX_MS;
	j->expires_ms = now_ms() + deadline;
	/* A request that can't be answered does nothing. */
	j->mute = room < sizeof(struct virtio_gc_done);
	if (j->mute)
		j->status = VIRTIO_GC_INVALID;
	enqueue(gc, j);
	dcm_leave(&old);
}

/* ---- life ---- */

uint64_t dcm_gc_host_features(const struct dcm_gc_host *gc)
{
	(void)gc;
	return FEATURES;
}

void dcm_gc_host_config(struct dcm_gc_host *gc, struct virtio_gc_config *c)
{
	*c = (struct virtio_gc_config){
		.window_bytes = htole64(gc->spaces.window_bytes),
		.region_bytes_min = htole64(gc->spaces.region_min),
		.region_bytes_max = htole64(gc->spaces.region_max),
		.spaces_max = htole32(DCM_GC_PIECES_MAX),
		.types_max = htole32(TYPES_MAX),
		.regions_max = htole32(gc->spaces.regions_max),
		.request_max = htole32(REQUEST_MAX),
		.response_max = htole32(RESPONSE_MAX),
		.commands_max = htole32(COMMANDS_MAX),
		.deadline_max_ms = htole32(DEADLINE_MAX_MS),
		.donors = htole32(dcm_pager_donors(gc->pager)),
	};
}

void dcm_gc_host_start(struct dcm_gc_host *gc, uint64_t features)
{
	__atomic_store_n(&gc->features, features & FEATURES, __ATOMIC_RELAXED);
}

void dcm_gc_host_reset(struct dcm_gc_host *gc)
{
	struct job *j;
	sigset_t old;
	uint32_t i;

	dcm_enter(&old);
	pthread_mutex_lock(&gc->lock);
	gc->resetting = true;
	for (j = gc->first; j; j = j->next)
		j->cancelled = true;
	while (gc->first || gc->running)
		pthread_cond_wait(&gc->idle, &gc->lock);
	pthread_mutex_unlock(&gc->lock);

	/* The table is ours as long as nothing is submitted. */
	for (i = 0; i < DCM_GC_PIECES_MAX; i++)
		if (gc->spaces.piece[i].bytes)
			dcm_gc_piece_drop(&gc->spaces, &gc->spaces.piece[i]);
	/* What was written outside of all spaces too. */
	dcm_pager_discard(gc->pager, gc->window, gc->spaces.window_bytes);

	pthread_mutex_lock(&gc->lock);
	gc->resetting = false;
	pthread_mutex_unlock(&gc->lock);
	dcm_gc_host_start(gc, 0);
	dcm_leave(&old);
}

static int init(struct dcm_gc_host *gc, char *err, size_t len)
{
	uint64_t extent = dcm_pager_extent(gc->pager, gc->window);
	uint64_t bytes = gc->spaces.window_bytes;

	if (!extent || !bytes || bytes % extent) {
		snprintf(err, len,
			 "a virtio-gc window must be whole extents of its donors (%llu MiB)",
			 (unsigned long long)extent >> 20);
		return -EINVAL;
	}
	if (extent < REGION_MIN) {
		snprintf(err, len, "donors' slabs are too small for regions");
		return -EINVAL;
	}
	gc->spaces.region_min = REGION_MIN;
	gc->spaces.region_max = extent;
	gc->spaces.regions_max = REGIONS_MAX;
	pthread_mutex_init(&gc->lock, NULL);
	pthread_cond_init(&gc->wake, NULL);
	pthread_cond_init(&gc->idle, NULL);
	gc->last = &gc->first;
	snprintf(err, len, "can't start a thread");
	return dcm_thread_start(&gc->thread, gc_main, gc);
}

struct dcm_gc_host *dcm_gc_host_open(struct dcm_pager *p, void *window,
				     size_t bytes,
				     const struct dcm_gc_host_ops *ops,
				     void *priv, char *err, size_t len)
{
	struct dcm_gc_host *gc;
	sigset_t old;
	int rc;

	dcm_enter(&old);
	gc = calloc(1, sizeof(*gc));
	if (!gc) {
		snprintf(err, len, "no memory");
		rc = -ENOMEM;
		goto out;
	}
	gc->pager = p;
	gc->window = window;
	gc->ops = *ops;
	gc->priv = priv;
	gc->spaces.window_bytes = bytes;
	rc = init(gc, err, len);
	if (rc) {
		free(gc);
		gc = NULL;
	}
out:
	dcm_leave(&old);
	if (rc)
		errno = -rc;
	return gc;
}

void dcm_gc_host_close(struct dcm_gc_host *gc)
{
	sigset_t old;

	if (!gc)
		return;
	dcm_gc_host_reset(gc);
	dcm_enter(&old);
	pthread_mutex_lock(&gc->lock);
	gc->stop = true;
	pthread_cond_signal(&gc->wake);
	pthread_mutex_unlock(&gc->lock);
	pthread_join(gc->thread, NULL);
	pthread_mutex_destroy(&gc->lock);
	pthread_cond_destroy(&gc->wake);
	pthread_cond_destroy(&gc->idle);
	free(gc);
	dcm_leave(&old);
}

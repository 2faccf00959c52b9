// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * queue.c - requests of a virtio-gc device, from copy to answer
 *
 * A request is copied, checked as a whole by dcm_gc_request_read() (workers on donors
 * check it again), and queued for one thread, which carries it out (command.c) and
 * answers. Pages belong to the backend (backend.h). A refused request is queued, too,
 * so that answered() is never called from inside submit.
 *
 *	submit -> [waiting] -> thread: expired, cancelled, refused or done
 *	       -> answered() -> for some, work that remains
 *
 * One thread does the work of all spaces in order of arrival, and forwards the
 * workers' messages while there is nothing else to do.
 *
 * Locking: @lock guards the queue and @live. The space table belongs to the
 * thread, or to a caller that has stopped it. No lock is held over answered()
 * and the backend's functions.
 *
 * Invariant: @live of a space counts the requests submitted with its id and not
 * answered, also for ids without a space.
 */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "queue_int.h"
#include "../lib/thread.h"

#define REGION_MIN (64ull << 10)
/* limits of one message to a donor, and from it */
#define REQUEST_MAX DCM_WIRE_PAYLOAD_MAX
#define RESPONSE_MAX DCM_GC_REPLY_MAX
/* most regions that one request can list */
#define REGIONS_MAX ((REQUEST_MAX - 64u) / 16u)
#define COMMANDS_MAX 32u
#ifndef DCM_GC_DEADLINE_MAX_MS /* tests on very slow machines only */
#define DCM_GC_DEADLINE_MAX_MS 10000u
#endif

#define FEATURES                                                      \
	(1ull << VIRTIO_GC_F_TRACE | 1ull << VIRTIO_GC_F_CONCURRENT | \
	 1ull << VIRTIO_GC_F_EVACUATE | 1ull << VIRTIO_GC_F_COMPACT | \
	 1ull << VIRTIO_GC_F_HINTS | 1ull << VIRTIO_GC_F_WHOLE | \
	 1ull << VIRTIO_GC_F_TAIL | 1ull << VIRTIO_GC_F_REPLACE | \
	 1ull << VIRTIO_GC_F_RANGES | 1ull << VIRTIO_GC_F_STATE | \
	 1ull << VIRTIO_GC_F_ASK | 1ull << VIRTIO_GC_F_BITMAPS | \
	 1ull << VIRTIO_GC_F_CLEAR | 1ull << VIRTIO_GC_F_CARDS | \
	 1ull << VIRTIO_GC_F_FETCH | 1ull << VIRTIO_GC_F_BUDGET)

/* ---- the thread ---- */

static u32 donors_count(const struct gc_queue *gc)
{
	return gc->backend.client ? dcm_client_donors(gc->backend.client) :
				    gc->backend.donors;
}

static u64 queue_budget(struct dcm_gc_host *host)
{
	const struct gc_queue *gc = (struct gc_queue *)host;

	return gc->backend.ops->budget(gc->backend.priv);
}

/* [VGC-D-4], at the latest with the next request. */
static void config_check(struct gc_queue *gc)
{
	u64 budget = queue_budget(&gc->api);
	u32 donors = donors_count(gc);

	if (donors == gc->backend.donors && budget == gc->budget)
		return;
	gc->backend.donors = donors;
	gc->budget = budget;
	if (gc->ops.config_changed)
		gc->ops.config_changed(gc->priv);
}

static void job_run(struct gc_queue *gc, struct job *j)
{
	size_t bytes;

	config_check(gc);
	gc->reply->done.status = gc_command_run(gc, j);
	bytes = dcm_gc_reply_pack(gc->reply, j->r.answer_entry);
	/* before the answer: after it the guest may send another [VGC-D-10] */
	pthread_mutex_lock(&gc->lock);
	if (j->counted)
		gc->live[j->space]--;
	j->answered = true;
	pthread_mutex_unlock(&gc->lock);
	gc->ops.answered(gc->priv, j->token, &gc->reply->le,
			 j->mute ? 0 : bytes);
	if (gc->reply->done.status == VIRTIO_GC_OK && gc_command_goes_on(&j->r))
		gc_command_go_on(gc, j);
}

/* Wait for a job, and forward workers' messages. Called under the lock. */
static void queue_idle(struct gc_queue *gc)
{
	u64 junk;
	bool any;

	if (gc->forget) {
		pthread_mutex_unlock(&gc->lock);
		dcm_gc_workers_reset(gc->workers);
		pthread_mutex_lock(&gc->lock);
		gc->forget = false;
		pthread_cond_broadcast(&gc->idle);
		return;
	}
	pthread_mutex_unlock(&gc->lock);
	any = gc->workers && dcm_gc_workers_idle(gc->workers, gc->event);
	pthread_mutex_lock(&gc->lock);
	if (any) {
		if (read(gc->event, &junk, sizeof(junk)) < 0)
			return;
	} else if (!gc->first && !gc->stop && !gc->forget) {
		pthread_cond_wait(&gc->wake, &gc->lock);
	}
}

/* Wake the thread. Under the lock. */
static void queue_wake(struct gc_queue *gc)
{
	u64 one = 1;

	pthread_cond_signal(&gc->wake);
	if (write(gc->event, &one, sizeof(one)) < 0)
		return; /* a full counter wakes the thread as well */
}

static void *gc_main(void *arg)
{
	struct gc_queue *gc = arg;
	struct job *j;

	pthread_mutex_lock(&gc->lock);
	for (;;) {
		while (!gc->first && !gc->stop)
			queue_idle(gc);
		j = gc->first;
		if (!j)
			break;
		gc->first = j->next;
		if (!gc->first)
			gc->last = &gc->first;
		gc->running = j;
		pthread_mutex_unlock(&gc->lock);

		job_run(gc, j);

		pthread_mutex_lock(&gc->lock);
		gc->running = NULL;
		free(j);
		if (!gc->first)
			pthread_cond_broadcast(&gc->idle);
	}
	pthread_mutex_unlock(&gc->lock);
	return NULL;
}

/* ---- submitting ---- */

/* Cancel a job if it has this space and tag; but never a CANCEL. */
static void job_cancel(struct job *j, u32 space, u64 tag)
{
	if (j && j->space == space && j->r.tag == tag && !j->answered &&
	    j->r.command != VIRTIO_GC_CANCEL)
		j->cancelled = true;
}

/* Cancel all jobs that have this space and tag. Under the lock. */
static void jobs_cancel(struct gc_queue *gc, u32 space, u64 tag)
{
	for (struct job *j = gc->first; j; j = j->next)
		job_cancel(j, space, tag);
	job_cancel(gc->running, space, tag);
}

static void job_enqueue(struct gc_queue *gc, struct job *j)
{
	pthread_mutex_lock(&gc->lock);
	if (gc->resetting)
		j->cancelled = true;
	if (j->space < DCM_GC_SPACES_MAX) {
		if (gc->live[j->space] >= COMMANDS_MAX) {
			j->status = VIRTIO_GC_LIMIT;
		} else {
			gc->live[j->space]++;
			j->counted = true;
		}
	}
	if (j->status == VIRTIO_GC_OK && j->r.command == VIRTIO_GC_CANCEL) {
		const struct virtio_gc_cancel *cancel = j->r.body;

		jobs_cancel(gc, j->space, le64toh(cancel->tag));
	}
	*gc->last = j;
	gc->last = &j->next;
	queue_wake(gc);
	pthread_mutex_unlock(&gc->lock);
}

static void queue_submit(struct dcm_gc_host *host, const void *request,
			 size_t bytes, size_t room, void *token)
{
	struct gc_queue *gc = (struct gc_queue *)host;
	const struct dcm_gc_limits limits = {
		.features = (u32)READ_ONCE(gc->features),
		.spaces_max = DCM_GC_SPACES_MAX,
		.request_max = REQUEST_MAX,
		.response_max = RESPONSE_MAX,
	};
	/* only the header of a request that is too long is read */
	size_t kept = bytes < REQUEST_MAX ? bytes : REQUEST_MAX;
	u32 deadline;
	struct job *j;

	j = calloc(1, sizeof(*j) + kept);
	if (!j)
		abort(); /* as the program's own allocator would */
	if (kept)
		memcpy(j->request, request, kept);
	j->token = token;
	j->bytes = kept;
	j->status =
		dcm_gc_request_read(j->request, bytes, room, &limits, &j->r);
	j->space = bytes < sizeof(struct virtio_gc_req) ? DCM_GC_SPACES_MAX :
							  j->r.space;
	deadline = j->r.deadline_ms;
	if (!deadline || deadline > DCM_GC_DEADLINE_MAX_MS)
		deadline = DCM_GC_DEADLINE_MAX_MS;
	j->expires_ms = dcm_clock_ms() + deadline;
	/* A request without room for an answer does nothing. */
	j->mute = room < sizeof(struct virtio_gc_done);
	if (j->mute)
		j->status = VIRTIO_GC_INVALID;
	job_enqueue(gc, j);
}

/* ---- life ---- */

static u64 queue_features(struct dcm_gc_host *host)
{
	const struct gc_queue *gc = (struct gc_queue *)host;

	return gc->workers ? FEATURES & ~gc->backend.hidden : 0;
}

u64 dcm_gc_config_fill(u32 donors, u64 bytes, u64 extent,
		       struct virtio_gc_config *c)
{
	const struct virtio_gc_config now = {
		.window_bytes = htole64(bytes),
		.region_bytes_min = htole64(REGION_MIN),
		.region_bytes_max = htole64(extent),
		.spaces_max = htole32(DCM_GC_SPACES_MAX),
		.types_max = htole32(DCM_GC_TYPES_MAX),
		.regions_max = htole32(REGIONS_MAX),
		.request_max = htole32(REQUEST_MAX),
		.response_max = htole32(RESPONSE_MAX),
		.commands_max = htole32(COMMANDS_MAX),
		.deadline_max_ms = htole32(DCM_GC_DEADLINE_MAX_MS),
		.donors = htole32(donors),
	};

	memcpy(c, &now, DCM_GC_CONFIG_BYTES);
	return FEATURES;
}

static void queue_config(struct dcm_gc_host *host, struct virtio_gc_config *c)
{
	const struct gc_queue *gc = (struct gc_queue *)host;

	dcm_gc_config_fill(donors_count(gc), gc->backend.bytes,
			   gc->backend.extent, c);
}

static void queue_start(struct dcm_gc_host *host, u64 features)
{
	struct gc_queue *gc = (struct gc_queue *)host;

	WRITE_ONCE(gc->features, features);
}

static void queue_reset(struct dcm_gc_host *host)
{
	struct gc_queue *gc = (struct gc_queue *)host;
	struct job *j;
	u32 i;

	pthread_mutex_lock(&gc->lock);
	gc->resetting = true;
	for (j = gc->first; j; j = j->next)
		j->cancelled = true;
	if (gc->running)
		gc->running->cancelled = true;
	gc->forget = gc->workers;
	queue_wake(gc);
	while (gc->first || gc->running || gc->forget)
		pthread_cond_wait(&gc->idle, &gc->lock);
	pthread_mutex_unlock(&gc->lock);

	gc->backend.ops->forget(gc->backend.priv, 0, gc->backend.bytes);
	/* The thread is idle and nothing is submitted: it does not use the table. */
	for (i = 0; i < DCM_GC_SPACES_MAX; i++)
		if (gc->spaces.space[i].bytes)
			dcm_gc_host_space_drop(&gc->spaces,
					       &gc->spaces.space[i]);
	/* Also discard pages that were written outside of all spaces. */
	gc->backend.ops->discard(gc->backend.priv, 0, gc->backend.bytes);

	pthread_mutex_lock(&gc->lock);
	gc->resetting = false;
	pthread_mutex_unlock(&gc->lock);
	queue_start(host, 0);
}

static int queue_init(struct gc_queue *gc, char *err, size_t len)
{
	const struct dcm_gc_backend *backend = &gc->backend;

	if (!backend->extent || !backend->bytes ||
	    backend->bytes % backend->extent) {
		snprintf(err, len,
			 "a virtio-gc window must be whole extents of its donors (%llu MiB)",
			 (unsigned long long)backend->extent >> 20);
		return -EINVAL;
	}
	if (backend->extent < REGION_MIN) {
		snprintf(err, len,
			 "the donors' slabs are smaller than a region (64 KiB)");
		return -EINVAL;
	}
	gc->spaces.window_bytes = backend->bytes;
	gc->spaces.region_min = REGION_MIN;
	gc->spaces.region_max = backend->extent;
	gc->spaces.regions_max = REGIONS_MAX;
	pthread_mutex_init(&gc->lock, NULL);
	pthread_cond_init(&gc->wake, NULL);
	pthread_cond_init(&gc->idle, NULL);
	gc->last = &gc->first;
	gc->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	gc->reply = calloc(1, sizeof(*gc->reply));
	snprintf(err, len, "no memory or no descriptors");
	if (gc->event < 0 || !gc->reply)
		return -ENOMEM;
	/* without donors only commands that need none work */
	gc->workers = dcm_gc_workers_new(backend->client, backend->bytes,
					 &gc_command_workers_ops, gc);
	snprintf(err, len, "can't start a thread");
	return dcm_thread_start(&gc->thread, gc_main, gc);
}

static void queue_free(struct gc_queue *gc)
{
	dcm_gc_workers_free(gc->workers);
	if (gc->event >= 0)
		close(gc->event);
	free(gc->reply);
	free(gc);
}

static void queue_close(struct dcm_gc_host *host)
{
	struct gc_queue *gc = (struct gc_queue *)host;

	queue_reset(host);
	pthread_mutex_lock(&gc->lock);
	gc->stop = true;
	queue_wake(gc);
	pthread_mutex_unlock(&gc->lock);
	pthread_join(gc->thread, NULL);
	pthread_mutex_destroy(&gc->lock);
	pthread_cond_destroy(&gc->wake);
	pthread_cond_destroy(&gc->idle);
	gc->backend.ops->end(gc->backend.priv);
	queue_free(gc);
}

static const struct dcm_gc_kind kind = {
	.close = queue_close,
	.features = queue_features,
	.config = queue_config,
	.budget = queue_budget,
	.start = queue_start,
	.submit = queue_submit,
	.reset = queue_reset,
};

struct dcm_gc_host *dcm_gc_host_new(const struct dcm_gc_backend *backend,
				    const struct dcm_gc_host_ops *ops,
				    void *priv, char *err, size_t len)
{
	struct gc_queue *gc = calloc(1, sizeof(*gc));
	int rc;

	if (!gc) {
		snprintf(err, len, "no memory");
		errno = ENOMEM;
		return NULL;
	}
	gc->api.kind = &kind;
	gc->backend = *backend;
	gc->ops = *ops;
	gc->priv = priv;
	gc->event = -1;
	gc->budget = queue_budget(&gc->api);
	rc = queue_init(gc, err, len);
	if (!rc)
		return &gc->api;
	queue_free(gc);
	errno = -rc;
	return NULL;
}

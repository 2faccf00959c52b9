// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * command.c - commands of virtio-gc: what happens to pages, and to donors
 *
 * The workers' part is workers.c. This is the pages' part: before a trace its
 * regions are settled, that is written to their donors, and accesses wait for
 * so long; before objects are moved or references updated the regions that are
 * written are settled, and accesses wait until the command is done.
 *
 * CLEAN settles without keeping accesses out, so the pause of TRACE_START
 * covers only what was written since. Both leave pages mapped, read-only: the
 * next write to each is a fault.
 *
 * A trace with the runtime's barrier needs no pause for pages at all. This goes
 * beyond semeru-osdi20, 4.1 and mako-pldi22, 5.2, which write all dirty pages
 * in the pause. Take an object that was reachable, by a chain of references,
 * when TRACE_START was answered. When the page of an object in the chain is
 * copied, however late, its reference is still there, or it was overwritten
 * since and the barrier reported it: either way the next object is met. So
 * TRACE_START is answered at once, its regions are settled while the guest
 * runs, as for CLEAN, then the workers begin; roots wait behind it in the
 * queue. If that fails, the trace's next commands end with the failure.
 *
 * The GC thread writes the bitmaps of TRACE_RESULTS into the window, as a guest
 * would. It may wait for a lane of the pager; a lane waits for this thread only
 * on held pages, and none are held then.
 *
 * Locking: all by the GC thread, as is the space table; only whether a request
 * was cancelled is read under the queue's lock.
 * was cancelled is looked up under the queue's lock.
 */
#include <endian.h>
#include <unistd.h>

#include "queue_int.h"

#define DCM_GC_PAGE 4096u /* of hints */
#define DCM_GC_MOVING_MS 2000u /* for a region to stop moving */
#define DCM_GC_TRY_US 2000u

/* ---- spaces ---- */

static size_t workers_do(struct gc_queue *gc, const struct job *j)
{
	return dcm_gc_workers_do(gc->workers, &j->r, j->request, j->bytes,
				 j->expires_ms, gc->reply);
}

static uint32_t workers_status(const struct gc_queue *gc)
{
	return le32toh(gc->reply->done.status);
}

static uint32_t space_create(struct gc_queue *gc, const struct job *j)
{
	struct dcm_gc_layout l;
	uint64_t window;
	uint32_t status;

	dcm_gc_request_layout(&j->r, &l, &window);
	status = dcm_gc_host_space_add(&gc->spaces, j->space, &l, window);
	if (status || !gc->workers)
		return status;
	workers_do(gc, j);
	status = workers_status(gc);
	if (status)
		dcm_gc_host_space_drop(&gc->spaces,
				       dcm_gc_host_space_find(&gc->spaces,
							      j->space));
	return status;
}

static uint32_t space_destroy(struct gc_queue *gc, const struct job *j)
{
	struct dcm_gc_host_space *p =
		dcm_gc_host_space_find(&gc->spaces, j->space);

	/* Whatever the answer, no worker has the space after that. */
	if (gc->workers)
		workers_do(gc, j);
	/* No other command runs: no worker reaches these pages any more. */
	if (gc->home.ops->discard(gc->home.priv, p->window, p->bytes))
		return VIRTIO_GC_LIMIT;
	dcm_gc_host_space_drop(&gc->spaces, p);
	return VIRTIO_GC_OK;
}

static bool op_cancelled(void *arg)
{
	struct gc_queue *gc = arg;
	bool cancelled;

	pthread_mutex_lock(&gc->lock);
	cancelled = gc->running->cancelled;
	pthread_mutex_unlock(&gc->lock);
	return cancelled;
}

/* ---- pages ---- */

enum pages_do {
	PAGES_HOLD,
	PAGES_CLEAN,
	PAGES_SETTLE,
	PAGES_DISCARD,
};

/*
 * After a donor is gone its pages are marked lost one by one, within moments.
 * Until that is done they would seem to be there.
 */
static uint32_t losing_wait(struct gc_queue *gc, const struct job *j)
{
	while (gc->home.ops->losing(gc->home.priv)) {
		if (op_cancelled(gc))
			return VIRTIO_GC_CANCELLED;
		if (dcm_clock_ms() >= j->expires_ms)
			return VIRTIO_GC_TIMED_OUT;
		usleep(DCM_GC_TRY_US);
	}
	return VIRTIO_GC_OK;
}

/* Regions of a space, as far as they exist. */
static uint32_t pages(struct gc_queue *gc, const struct job *j,
		      enum pages_do what, uint64_t first, uint64_t regions)
{
	const struct dcm_gc_host_space *p =
		dcm_gc_host_space_find(&gc->spaces, j->space);
	uint64_t size = p->layout.region_bytes, nr = p->bytes / size;
	const struct dcm_gc_backend_ops *ops = gc->home.ops;
	uint64_t at = p->window + first * size, from = at;
	uint32_t status;

	if (first >= nr)
		return VIRTIO_GC_OK; /* the workers refuse it */
	if (regions > nr - first)
		regions = nr - first;
	switch (what) {
	case PAGES_HOLD:
		return ops->hold(gc->home.priv, at, regions * size);
	case PAGES_CLEAN:
	case PAGES_SETTLE:
		status = losing_wait(gc, j);
		if (status)
			return status;
		status = ops->settle(gc->home.priv, &at, from + regions * size,
				     what == PAGES_CLEAN, j->expires_ms);
		/* the region that lost content */
		if (status == VIRTIO_GC_DONOR_LOST)
			gc->reply->done.at =
				htole64((at - p->window) / size * size);
		return status;
	case PAGES_DISCARD:
		break;
	}
	return ops->discard(gc->home.priv, at, regions * size) ?
		       VIRTIO_GC_LIMIT :
		       VIRTIO_GC_OK;
}

/* The regions that @bytes of space from @at touch. */
static uint32_t pages_at(struct gc_queue *gc, const struct job *j,
			 enum pages_do what, uint64_t at, uint64_t bytes)
{
	uint64_t size = dcm_gc_host_space_find(&gc->spaces, j->space)
				->layout.region_bytes;

	if (!bytes || at > UINT64_MAX - bytes)
		return VIRTIO_GC_OK;
	return pages(gc, j, what, at / size,
		     (at + bytes - 1) / size - at / size + 1);
}

/* The regions that a command names. */
static uint32_t pages_of(struct gc_queue *gc, const struct job *j,
			 enum pages_do what)
{
	const struct virtio_gc_region *region = j->r.entries;
	const struct virtio_gc_move *move = j->r.entries;
	const struct virtio_gc_area *area = j->r.body;
	uint32_t status = VIRTIO_GC_OK, i, n;

	for (i = 0; !status && i < j->r.count; i += n) {
		n = 1;
		if (j->r.command != VIRTIO_GC_EVACUATE) {
			/* adjacent regions are done together */
			uint64_t first = le32toh(region[i].region);

			while (i + n < j->r.count &&
			       le32toh(region[i + n].region) == first + n)
				n++;
			status = pages(gc, j, what, first, n);
			continue;
		}
		status = pages(gc, j, what, le32toh(move[i].from), 1);
		if (!status)
			status = pages(gc, j, what, le32toh(move[i].to), 1);
		if (!status)
			status = pages_at(gc, j, what, le64toh(move[i].table),
					  le64toh(move[i].table_bytes));
	}
	if (!status && j->r.command == VIRTIO_GC_COMPACT)
		status = pages_at(gc, j, what, le64toh(area->tables),
				  le64toh(area->bytes));
	return status;
}

/* The workers do not see this command: check it here. */
static uint32_t clean(struct gc_queue *gc, const struct job *j)
{
	const struct dcm_gc_host_space *p =
		dcm_gc_host_space_find(&gc->spaces, j->space);
	const struct virtio_gc_region *region = j->r.entries;
	uint32_t i;

	for (i = 0; i < j->r.count; i++)
		if (le32toh(region[i].region) >=
			    p->bytes / p->layout.region_bytes ||
		    region[i].top)
			return VIRTIO_GC_INVALID;
	return pages_of(gc, j, PAGES_CLEAN);
}

/* Nor this one. */
static uint32_t hint(struct gc_queue *gc, const struct job *j)
{
	const struct dcm_gc_host_space *p =
		dcm_gc_host_space_find(&gc->spaces, j->space);
	const struct virtio_gc_extent *e = j->r.entries;
	const struct virtio_gc_hint *h = j->r.body;
	uint32_t i;

	for (i = 0; i < j->r.count; i++) {
		uint64_t at = le64toh(e[i].offset), bytes = le64toh(e[i].bytes);

		if ((at | bytes) & (DCM_GC_PAGE - 1) || !bytes ||
		    at >= p->bytes || bytes > p->bytes - at)
			return VIRTIO_GC_INVALID;
	}
	for (i = 0; i < j->r.count; i++) {
		uint64_t at = p->window + le64toh(e[i].offset);
		uint32_t what = le32toh(h->what);

		if (what == VIRTIO_GC_HINT_DISCARD)
			gc->home.ops->discard(gc->home.priv, at,
					      le64toh(e[i].bytes));
		else
			gc->home.ops->hint(gc->home.priv, at,
					   le64toh(e[i].bytes), what);
	}
	return VIRTIO_GC_OK;
}

/*
 * A settled region has a slab, unless its extent is moving: then it has no
 * place and would pass for empty. Wait for the move without holding pages, as
 * held pages do not move. True: try again, beginning with settling.
 */
static bool moving_wait(struct gc_queue *gc, const struct job *j,
			uint64_t since, uint32_t *status)
{
	while (*status == DCM_GC_WORKERS_MOVING) {
		uint64_t now = dcm_clock_ms();

		if (op_cancelled(gc))
			*status = VIRTIO_GC_CANCELLED;
		else if (now >= j->expires_ms ||
			 now - since >= DCM_GC_MOVING_MS)
			*status = VIRTIO_GC_TIMED_OUT;
		else if (dcm_gc_workers_rests(gc->workers, &j->r))
			return true;
		else
			usleep(DCM_GC_TRY_US);
	}
	return false;
}

/* A command that needs its regions settled. */
static size_t settled_do(struct gc_queue *gc, const struct job *j,
			 uint32_t *status)
{
	bool reads = j->r.command == VIRTIO_GC_TRACE_START;
	size_t bytes = sizeof(gc->reply->done);

	*status = pages_of(gc, j, reads ? PAGES_CLEAN : PAGES_SETTLE);
	if (!*status) {
		bytes = workers_do(gc, j);
		*status = workers_status(gc);
	}
	return bytes;
}

/* The same, with accesses kept out. */
static size_t held_do(struct gc_queue *gc, const struct job *j,
		      uint32_t *status)
{
	uint64_t since = dcm_clock_ms();
	size_t bytes;

	do {
		bytes = sizeof(gc->reply->done);
		*status = pages_of(gc, j, PAGES_HOLD);
		if (!*status)
			bytes = settled_do(gc, j, status);
		gc->home.ops->release(gc->home.priv);
	} while (moving_wait(gc, j, since, status));
	return bytes;
}

/* Checked as the workers will, so that it can be answered before they do. */
static size_t trace_start(struct gc_queue *gc, const struct job *j,
			  uint32_t *status)
{
	struct dcm_gc_host_space *p =
		dcm_gc_host_space_find(&gc->spaces, j->space);
	size_t bytes = 0;

	*status = VIRTIO_GC_INVALID;
	if (j->r.epoch && j->r.epoch != p->epoch)
		*status = dcm_gc_start_check(&p->layout, j->r.flags,
					     j->r.entries, j->r.count);
	if (!*status && !gc_command_goes_on(&j->r))
		bytes = held_do(gc, j, status);
	if (!*status) {
		p->epoch = j->r.epoch;
		p->late.status = htole32(VIRTIO_GC_OK);
	}
	return bytes;
}

/* How the trace's start ended, for commands that need it to have begun. */
static size_t trace_late(struct gc_queue *gc, const struct job *j,
			 uint32_t *status)
{
	const struct dcm_gc_host_space *p =
		dcm_gc_host_space_find(&gc->spaces, j->space);
	bool asks = j->r.command == VIRTIO_GC_TRACE_ROOTS ||
		    j->r.command == VIRTIO_GC_TRACE_MET ||
		    j->r.command == VIRTIO_GC_TRACE_FINISH;

	*status = le32toh(p->late.status);
	if (!asks || j->r.epoch != p->epoch || !*status)
		return 0;
	gc->reply->done = p->late;
	return sizeof(p->late);
}

static bool op_place(void *arg, u32 space, u32 region,
		     struct dcm_gc_place_of *place)
{
	struct gc_queue *gc = arg;
	const struct dcm_gc_host_space *p =
		dcm_gc_host_space_find(&gc->spaces, space);

	return gc->home.ops->place(gc->home.priv,
				   p->window + region * p->layout.region_bytes,
				   place);
}

static bool op_tag(void *arg, u32 space, u32 region,
		   const struct dcm_gc_place_of *place, u32 *tag)
{
	struct gc_queue *gc = arg;
	const struct dcm_gc_host_space *p =
		dcm_gc_host_space_find(&gc->spaces, space);
	u64 size = p->layout.region_bytes;

	return gc->home.ops->tag(gc->home.priv, p->window + region * size, size,
				 place, tag);
}

static void op_bits(void *arg, u32 space, u64 at, const void *bits,
		    size_t bytes)
{
	struct gc_queue *gc = arg;
	const struct dcm_gc_host_space *p =
		dcm_gc_host_space_find(&gc->spaces, space);

	gc->home.ops->bits(gc->home.priv, p->window + at, bits, bytes);
}

const struct dcm_gc_workers_ops gc_command_workers_ops = {
	.place = op_place,
	.tag = op_tag,
	.bits = op_bits,
	.cancelled = op_cancelled,
};

/* ---- a command ---- */

uint32_t gc_command_run(struct gc_queue *gc, const struct job *j, size_t *bytes)
{
	uint32_t status = VIRTIO_GC_OK, late;

	if (j->status != VIRTIO_GC_OK)
		return j->status;
	if (op_cancelled(gc))
		return VIRTIO_GC_CANCELLED;
	if (dcm_clock_ms() >= j->expires_ms)
		return VIRTIO_GC_TIMED_OUT;
	if (j->r.command == VIRTIO_GC_SPACE_CREATE)
		return space_create(gc, j);
	if (!dcm_gc_host_space_find(&gc->spaces, j->space))
		return VIRTIO_GC_INVALID;
	switch (j->r.command) {
	case VIRTIO_GC_SPACE_DESTROY:
		return space_destroy(gc, j);
	case VIRTIO_GC_CANCEL:
		/* The request it names came before it, so it was answered. */
		return VIRTIO_GC_OK;
	}
	if (!gc->workers)
		return VIRTIO_GC_UNSUPPORTED;
	*bytes = trace_late(gc, j, &late);
	if (*bytes)
		return late;
	switch (j->r.command) {
	case VIRTIO_GC_CLEAN:
		*bytes = sizeof(gc->reply->done);
		return clean(gc, j);
	case VIRTIO_GC_HINT:
		return hint(gc, j);
	case VIRTIO_GC_TRACE_START:
		*bytes = trace_start(gc, j, &status);
		return status;
	case VIRTIO_GC_EVACUATE:
	case VIRTIO_GC_UPDATE:
	case VIRTIO_GC_COMPACT:
		*bytes = held_do(gc, j, &status);
		return status;
	default:
		*bytes = workers_do(gc, j);
		status = workers_status(gc);
	}
	if (!status && j->r.command == VIRTIO_GC_RELEASE &&
	    j->r.flags & VIRTIO_GC_RELEASE_DISCARD)
		status = pages_of(gc, j, PAGES_DISCARD);
	return status;
}

bool gc_command_goes_on(const struct dcm_gc_request *r)
{
	return r->command == VIRTIO_GC_TRACE_START &&
	       r->flags & VIRTIO_GC_TRACE_CONCURRENT;
}

void gc_command_go_on(struct gc_queue *gc, const struct job *j)
{
	struct dcm_gc_host_space *p =
		dcm_gc_host_space_find(&gc->spaces, j->space);
	uint64_t since = dcm_clock_ms();
	uint32_t status;

	do {
		settled_do(gc, j, &status);
	} while (moving_wait(gc, j, since, &status));
	/* I/O uses a page all the time: the runtime can't help by polling */
	if (status == VIRTIO_GC_BUSY)
		status = VIRTIO_GC_TIMED_OUT;
	p->late = gc->reply->done;
	p->late.status = htole32(status);
}

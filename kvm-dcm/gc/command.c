// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * command.c - the pages' part of virtio-gc's commands
 *
 * commands.h has the table. The workers' part of a command is workers.c. This
 * is the pages' part: regions that workers read are synced, that is written to
 * their donors, and regions that workers write are synced and leave this host.
 * If the table says freeze, accesses to the regions wait until the workers have
 * answered.
 *
 * CLEAN syncs without freezing, so that in its pause TRACE_START has to write only
 * pages that were written since. Both leave pages mapped read-only, so that the next
 * write to each is a fault; for a trace with a barrier most stay writable (core/sync.c).
 *
 * A trace with the runtime's barrier needs no pause for pages at all. This goes
 * beyond semeru-osdi20, 4.1 and mako-pldi22, 5.2, which write all dirty pages
 * in the pause. Take an object that was reachable, by a chain of references,
 * when TRACE_START was answered. When the page of an object in the chain is
 * copied, however late, its reference is still there, or it was overwritten
 * since and the barrier reported it: either way the next object is met. So
 * TRACE_START is answered at once, its regions are synced while the guest runs,
 * as for CLEAN, then the workers begin; roots wait in the queue until then. If the
 * start fails after its answer, the trace's next commands end with that failure.
 *
 * The GC thread writes the bitmaps of TRACE_RESULTS into the window, as a guest
 * would. It may wait for a lane of the pager; a lane waits for this thread only
 * on frozen pages, and none are frozen then.
 *
 * Statuses and numbers are in host order until queue.c sends the answer.
 *
 * Locking: all by the GC thread, as is the space table; only whether a request
 * was cancelled is read under the queue's lock.
 */
#include <endian.h>
#include <stdlib.h>
#include <unistd.h>

#include "commands.h"
#include "queue_int.h"

#define DCM_GC_PAGE 4096u /* hints are about pages of this size */
#define DCM_GC_TRY_US 2000u
/* look so often, about 2 s, whether a region has stopped moving */
#define DCM_GC_MOVING_TRIES 1000u

enum sync {
	SYNC_NONE,
	SYNC_KEEP,
	SYNC_OUT,
};

/* A row of the table, without the columns of workers.c. */
struct command {
	bool freeze;
	enum sync sync;
	u32 (*run)(struct gc_queue *gc, const struct job *j);
};

static const struct command *command_of(const struct job *j);
static enum sync sync_of(const struct job *j);

static bool job_cancelled(void *arg)
{
	struct gc_queue *gc = arg;
	bool cancelled;

	pthread_mutex_lock(&gc->lock);
	cancelled = gc->running->cancelled;
	pthread_mutex_unlock(&gc->lock);
	return cancelled;
}

static struct dcm_gc_host_space *job_space(struct gc_queue *gc,
					   const struct job *j)
{
	return dcm_gc_host_space_find(&gc->spaces, j->space);
}

/* ---- pages ---- */

/* An action on the window's bytes from @at to @end; returns a status. */
typedef u32 (*range_fn)(struct gc_queue *gc, const struct job *j, u64 at,
			u64 end);

static u32 range_freeze(struct gc_queue *gc, const struct job *j, u64 at,
			u64 end)
{
	(void)j;
	return gc->backend.ops->freeze(gc->backend.priv, at, end - at);
}

/*
 * When a donor is gone its pages are marked lost one by one, within moments. Wait until
 * that is done: until then pages that are lost seem to be there.
 */
static u32 losing_wait(struct gc_queue *gc, const struct job *j)
{
	while (gc->backend.ops->losing(gc->backend.priv)) {
		if (job_cancelled(gc))
			return VIRTIO_GC_CANCELLED;
		if (dcm_clock_ms() >= j->expires_ms)
			return VIRTIO_GC_TIMED_OUT;
		usleep(DCM_GC_TRY_US);
	}
	return VIRTIO_GC_OK;
}

/*
 * With the runtime's barrier it does not matter whether a region is written to while it
 * is traced. Without it a page that is written back on a guess costs a region's result,
 * so that no guess may be made; then the first write to each page is a fault. CLEAN does
 * not say which kind of trace it is for: that of the last one.
 */
static enum dcm_gc_sync pages_stay(const struct dcm_gc_host_space *p,
				   const struct job *j)
{
	bool barrier = j->r.command == VIRTIO_GC_TRACE_START ?
			       j->r.flags & VIRTIO_GC_TRACE_CONCURRENT :
			       p->barrier;

	if (sync_of(j) == SYNC_OUT)
		return DCM_GC_SYNC_OUT;
	return barrier ? DCM_GC_SYNC_KEEP : DCM_GC_SYNC_EXACT;
}

static u32 range_sync(struct gc_queue *gc, const struct job *j, u64 at, u64 end)
{
	const struct dcm_gc_host_space *p = job_space(gc, j);
	u64 size = p->layout.region_bytes;
	u32 status = losing_wait(gc, j);

	if (status)
		return status;
	status = gc->backend.ops->sync(gc->backend.priv, &at, end,
				       pages_stay(p, j), j->expires_ms);
	/* tell which region has lost content */
	if (status == VIRTIO_GC_DONOR_LOST)
		gc->reply->done.at = (at - p->window) / size * size;
	return status;
}

static u32 range_discard(struct gc_queue *gc, const struct job *j, u64 at,
			 u64 end)
{
	(void)j;
	return gc->backend.ops->discard(gc->backend.priv, at, end - at) ?
		       VIRTIO_GC_LIMIT :
		       VIRTIO_GC_OK;
}

/* Apply @range to regions of a space, as far as they exist. */
static u32 regions_do(struct gc_queue *gc, const struct job *j, range_fn range,
		      u64 first, u64 regions)
{
	const struct dcm_gc_host_space *p = job_space(gc, j);
	u64 size = p->layout.region_bytes, nr = p->bytes / size;
	u64 at = p->window + first * size;

	if (first >= nr)
		return VIRTIO_GC_OK; /* the workers refuse it */
	if (regions > nr - first)
		regions = nr - first;
	return range(gc, j, at, at + regions * size);
}

/* Apply @range to the regions that contain @bytes of the space from @at on. */
static u32 regions_around(struct gc_queue *gc, const struct job *j,
			       range_fn range, u64 at, u64 bytes)
{
	u64 size = job_space(gc, j)->layout.region_bytes;

	if (!bytes || at > U64_MAX - bytes)
		return VIRTIO_GC_OK;
	return regions_do(gc, j, range, at / size,
			  (at + bytes - 1) / size - at / size + 1);
}

/* Apply @range to the regions that EVACUATE names: sources, destinations, tables. */
static u32 moves_each(struct gc_queue *gc, const struct job *j, range_fn range)
{
	const struct virtio_gc_move *move = j->r.entries;
	u32 status = VIRTIO_GC_OK, i;

	for (i = 0; !status && i < j->r.count; i++) {
		status = regions_do(gc, j, range, le32toh(move[i].from), 1);
		if (!status)
			status = regions_do(gc, j, range, le32toh(move[i].to),
					    1);
		if (!status)
			status = regions_around(gc, j, range,
						le64toh(move[i].table),
						le64toh(move[i].table_bytes));
	}
	return status;
}

/*
 * Apply @range to regions with the request's ranges of references; these are checked.
 */
static u32 ranges_each(struct gc_queue *gc, const struct job *j, range_fn range)
{
	const struct dcm_gc_layout *l = &job_space(gc, j)->layout;
	u64 nr = l->bytes / l->region_bytes, n;
	u32 status = VIRTIO_GC_OK;
	u8 *hit = calloc(nr, 1);

	if (!hit)
		return VIRTIO_GC_LIMIT;
	dcm_gc_ranges_mark(l, j->r.entries, j->r.count, hit);
	for (u64 r = 0; !status && r < nr; r += n) {
		for (n = 1; r + n < nr && hit[r + n] == hit[r]; n++)
			;
		if (hit[r])
			status = regions_do(gc, j, range, r, n);
	}
	free(hit);
	return status;
}

/* Does the command read or write the @i'th region of its list? */
static bool region_used(const struct job *j, u32 i)
{
	const struct virtio_gc_region *region = j->r.entries;

	return j->r.command != VIRTIO_GC_TRACE_CARDS ||
	       le32toh(region[i].flags) & VIRTIO_GC_REGION_SOURCE;
}

/* Apply @range to all regions that a command uses. */
static u32 regions_each(struct gc_queue *gc, const struct job *j,
			     range_fn range)
{
	const struct virtio_gc_region *region = j->r.entries;
	const struct virtio_gc_area *area = j->r.body;
	u32 status = VIRTIO_GC_OK, i, n;

	if (j->r.command == VIRTIO_GC_EVACUATE)
		return moves_each(gc, j, range);
	if (dcm_gc_request_ranges(&j->r))
		return ranges_each(gc, j, range);
	for (i = 0; !status && i < j->r.count; i += n) {
		/* adjacent regions are done together */
		u64 first = le32toh(region[i].region);

		for (n = 1; i + n < j->r.count &&
			    region_used(j, i + n) == region_used(j, i) &&
			    le32toh(region[i + n].region) == first + n;
		     n++)
			;
		if (region_used(j, i))
			status = regions_do(gc, j, range, first, n);
	}
	if (!status && j->r.command == VIRTIO_GC_COMPACT)
		status = regions_around(gc, j, range, le64toh(area->tables),
					le64toh(area->bytes));
	return status;
}

/* ---- workers ---- */

/*
 * A region that was synced has a slab. But while its extent is moving it has no place,
 * and workers would take it for empty. Wait for the move, with all pages thawed, as
 * frozen pages do not move. True: try again, beginning with the freeze. @tries counts
 * looks, not time: a sync may take seconds before a region is first found moving.
 */
static bool moving_wait(struct gc_queue *gc, const struct job *j, u32 *tries)
{
	u32 *status = &gc->reply->done.status;

	while (*status == DCM_GC_WORKERS_MOVING) {
		if (job_cancelled(gc))
			*status = VIRTIO_GC_CANCELLED;
		else if (dcm_clock_ms() >= j->expires_ms ||
			 (*tries)++ == DCM_GC_MOVING_TRIES)
			*status = VIRTIO_GC_TIMED_OUT;
		else if (dcm_gc_workers_rests(gc->workers, &j->r))
			return true;
		else
			usleep(DCM_GC_TRY_US);
	}
	return false;
}

/* Freeze and sync the regions as the table says, and call the workers. */
static u32 workers_call(struct gc_queue *gc, const struct job *j, bool freeze)
{
	struct dcm_gc_done *done = &gc->reply->done;
	u32 tries = 0;

	do {
		dcm_gc_reply_clear(gc->reply);
		if (freeze)
			done->status = regions_each(gc, j, range_freeze);
		if (!done->status && sync_of(j))
			done->status = regions_each(gc, j, range_sync);
		if (!done->status)
			dcm_gc_workers_do(gc->workers, &j->r, j->request,
					  j->bytes, j->expires_ms, gc->reply);
		if (freeze)
			gc->backend.ops->thaw(gc->backend.priv);
	} while (moving_wait(gc, j, &tries));
	return done->status;
}

/* ---- the table's functions ---- */

static u32 run_workers(struct gc_queue *gc, const struct job *j)
{
	return workers_call(gc, j, command_of(j)->freeze);
}

/* Commands with references: check ranges of references before anything is done. */
static u32 run_refs(struct gc_queue *gc, const struct job *j)
{
	if (dcm_gc_request_ranges(&j->r) &&
	    dcm_gc_ranges_check(&job_space(gc, j)->layout, j->r.entries,
				j->r.count))
		return VIRTIO_GC_INVALID;
	return run_workers(gc, j);
}

static u32 run_create(struct gc_queue *gc, const struct job *j)
{
	struct dcm_gc_layout l;
	u64 window;
	u32 status;

	dcm_gc_request_layout(&j->r, &l, &window);
	status = dcm_gc_host_space_add(&gc->spaces, j->space, &l, window);
	if (status || !gc->workers)
		return status;
	status = workers_call(gc, j, false);
	if (status)
		dcm_gc_host_space_drop(&gc->spaces, job_space(gc, j));
	return status;
}

static u32 run_destroy(struct gc_queue *gc, const struct job *j)
{
	struct dcm_gc_host_space *p = job_space(gc, j);

	/* Whatever the answer: the workers have forgotten the space, or were killed. */
	if (gc->workers)
		workers_call(gc, j, false);
	/* No worker uses these pages any more, as no other command runs. */
	if (gc->backend.ops->discard(gc->backend.priv, p->window, p->bytes))
		return VIRTIO_GC_LIMIT;
	dcm_gc_host_space_drop(&gc->spaces, p);
	return VIRTIO_GC_OK;
}

/*
 * The request that CANCEL names was before it in the queue, so it has been answered.
 * Also end the fetches that a HINT has left to be done in the background.
 */
static u32 run_cancel(struct gc_queue *gc, const struct job *j)
{
	const struct dcm_gc_host_space *p = job_space(gc, j);

	gc->backend.ops->forget(gc->backend.priv, p->window, p->bytes);
	return VIRTIO_GC_OK;
}

/* CLEAN is not sent to workers, which check other requests: check it here. */
static u32 run_clean(struct gc_queue *gc, const struct job *j)
{
	const struct dcm_gc_host_space *p = job_space(gc, j);
	const struct virtio_gc_region *region = j->r.entries;
	u32 i;

	for (i = 0; i < j->r.count; i++)
		if (le32toh(region[i].region) >=
			    p->bytes / p->layout.region_bytes ||
		    region[i].top)
			return VIRTIO_GC_INVALID;
	return regions_each(gc, j, range_sync);
}

/* HINT is not sent to workers either: check it here. */
static u32 run_hint(struct gc_queue *gc, const struct job *j)
{
	const struct dcm_gc_host_space *p = job_space(gc, j);
	const struct virtio_gc_extent *e = j->r.entries;
	const struct virtio_gc_hint *h = j->r.body;
	u32 i;

	for (i = 0; i < j->r.count; i++) {
		u64 at = le64toh(e[i].offset), bytes = le64toh(e[i].bytes);

		if ((at | bytes) & (DCM_GC_PAGE - 1) || !bytes ||
		    at >= p->bytes || bytes > p->bytes - at)
			return VIRTIO_GC_INVALID;
	}
	for (i = 0; i < j->r.count; i++) {
		u64 at = p->window + le64toh(e[i].offset);
		u32 what = le32toh(h->what);

		if (what == VIRTIO_GC_HINT_DISCARD)
			gc->backend.ops->discard(gc->backend.priv, at,
						 le64toh(e[i].bytes));
		else
			gc->backend.ops->hint(gc->backend.priv, at,
					      le64toh(e[i].bytes), what);
	}
	return VIRTIO_GC_OK;
}

/* Check TRACE_START as workers do, as it may be answered before they get it. */
static u32 run_start(struct gc_queue *gc, const struct job *j)
{
	struct dcm_gc_host_space *p = job_space(gc, j);
	u32 status = VIRTIO_GC_INVALID;

	if (j->r.epoch && j->r.epoch != p->epoch)
		status = dcm_gc_start_check(&p->layout, j->r.flags,
					    j->r.entries, j->r.count);
	if (!status && !gc_command_goes_on(&j->r))
		status = workers_call(gc, j, command_of(j)->freeze);
	if (!status) {
		p->epoch = j->r.epoch;
		p->barrier = j->r.flags & VIRTIO_GC_TRACE_CONCURRENT;
		p->late.status = VIRTIO_GC_OK;
	}
	return status;
}

static u32 run_release(struct gc_queue *gc, const struct job *j)
{
	u32 status = workers_call(gc, j, command_of(j)->freeze);

	if (!status && j->r.flags & VIRTIO_GC_RELEASE_DISCARD)
		status = regions_each(gc, j, range_discard);
	return status;
}

static const struct command commands[] = {
#define ROW(name, freeze, sync, run, targets, take) \
	[VIRTIO_GC_##name] = { freeze, SYNC_##sync, run },
	DCM_GC_COMMANDS(ROW)
#undef ROW
};

static const struct command *command_of(const struct job *j)
{
	return &commands[j->r.command];
}

static enum sync sync_of(const struct job *j)
{
	if (j->r.command == VIRTIO_GC_TRACE_CARDS ||
	    (j->r.command == VIRTIO_GC_TRACE_ROOTS &&
	     dcm_gc_request_ranges(&j->r)))
		return SYNC_KEEP;
	return command_of(j)->sync;
}

/* ---- callbacks of the workers ---- */

static bool window_place(void *arg, u32 space, u32 region,
			 struct dcm_gc_place_of *place)
{
	struct gc_queue *gc = arg;
	const struct dcm_gc_host_space *p =
		dcm_gc_host_space_find(&gc->spaces, space);

	return gc->backend.ops->place(gc->backend.priv,
				      p->window +
					      region * p->layout.region_bytes,
				      place);
}

static bool window_write_count(void *arg, u32 space, u32 region,
		       const struct dcm_gc_place_of *place, u32 *count)
{
	struct gc_queue *gc = arg;
	const struct dcm_gc_host_space *p =
		dcm_gc_host_space_find(&gc->spaces, space);
	u64 size = p->layout.region_bytes;

	return gc->backend.ops->write_count(gc->backend.priv,
					    p->window + region * size, size,
					    place, count);
}

static u32 window_spread(void *arg, u32 space, u32 region, u32 n, u64 until_ms)
{
	struct gc_queue *gc = arg;
	const struct dcm_gc_host_space *p =
		dcm_gc_host_space_find(&gc->spaces, space);
	u64 size = p->layout.region_bytes, at = p->window + region * size;

	return gc->backend.ops->spread(gc->backend.priv, at, at + n * size,
				       until_ms);
}

static void window_revert(void *arg, u32 space, u32 region, u32 n, bool keep)
{
	struct gc_queue *gc = arg;
	const struct dcm_gc_host_space *p =
		dcm_gc_host_space_find(&gc->spaces, space);
	u64 size = p->layout.region_bytes, at = p->window + region * size;

	gc->backend.ops->revert(gc->backend.priv, at, at + n * size, keep);
}

static bool window_moved(void *arg, u32 n)
{
	struct gc_queue *gc = arg;
	const struct dcm_gc_backend_ops *ops = gc->backend.ops;
	const struct job *j = gc->running;
	struct dcm_gc_done *done = &gc->reply->done;
	const struct dcm_gc_done was = *done;
	size_t bytes;

	if (!ops->moved || j->mute)
		return true;
	done->status = VIRTIO_GC_WORKER_LOST;
	done->count = n;
	bytes = dcm_gc_reply_pack(gc->reply, j->r.answer_entry);
	*done = was;
	return ops->moved(gc->backend.priv, j->token, &gc->reply->le, bytes);
}

static void window_bits(void *arg, u32 space, u64 at, const void *bits,
			size_t bytes)
{
	struct gc_queue *gc = arg;
	const struct dcm_gc_host_space *p =
		dcm_gc_host_space_find(&gc->spaces, space);

	gc->backend.ops->bits(gc->backend.priv, p->window + at, bits, bytes);
}

const struct dcm_gc_workers_ops gc_command_workers_ops = {
	.place = window_place,
	.write_count = window_write_count,
	.spread = window_spread,
	.revert = window_revert,
	.moved = window_moved,
	.bits = window_bits,
	.cancelled = job_cancelled,
};

/* ---- a command ---- */

/* For commands on a trace that was answered before it began: did the start fail? */
static u32 late_status(struct gc_queue *gc, const struct job *j)
{
	const struct dcm_gc_host_space *p = job_space(gc, j);

	if (j->r.command != VIRTIO_GC_TRACE_ROOTS &&
	    j->r.command != VIRTIO_GC_TRACE_MET &&
	    j->r.command != VIRTIO_GC_TRACE_STATE &&
	    j->r.command != VIRTIO_GC_TRACE_ASK &&
	    j->r.command != VIRTIO_GC_TRACE_FINISH)
		return VIRTIO_GC_OK;
	if (j->r.epoch != p->epoch || !p->late.status)
		return VIRTIO_GC_OK;
	gc->reply->done = p->late;
	return p->late.status;
}

u32 gc_command_run(struct gc_queue *gc, const struct job *j)
{
	u32 status;

	dcm_gc_reply_clear(gc->reply);
	if (j->status != VIRTIO_GC_OK)
		return j->status;
	if (job_cancelled(gc))
		return VIRTIO_GC_CANCELLED;
	if (dcm_clock_ms() >= j->expires_ms)
		return VIRTIO_GC_TIMED_OUT;
	if (j->r.command == VIRTIO_GC_SPACE_CREATE)
		return run_create(gc, j);
	if (!job_space(gc, j))
		return VIRTIO_GC_INVALID;
	/* without donors only spaces can be made and destroyed */
	if (!gc->workers && j->r.command != VIRTIO_GC_SPACE_DESTROY &&
	    j->r.command != VIRTIO_GC_CANCEL)
		return VIRTIO_GC_UNSUPPORTED;
	status = late_status(gc, j);
	return status ? status : command_of(j)->run(gc, j);
}

bool gc_command_goes_on(const struct dcm_gc_request *r)
{
	return r->command == VIRTIO_GC_TRACE_START &&
	       r->flags & VIRTIO_GC_TRACE_CONCURRENT;
}

void gc_command_go_on(struct gc_queue *gc, const struct job *j)
{
	struct dcm_gc_host_space *p = job_space(gc, j);

	workers_call(gc, j, false);
	p->late = gc->reply->done;
	/* BUSY would ask the runtime to try again, which the trace can't */
	if (p->late.status == VIRTIO_GC_BUSY)
		p->late.status = VIRTIO_GC_TIMED_OUT;
}

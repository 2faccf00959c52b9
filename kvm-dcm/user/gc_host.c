// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * gc_host.c - requests of a virtio-gc device, from copy to answer
 *
 * A request is copied, read whole by dcm_gc_request_read(), as the workers on
 * donors will read it again, and queued for one thread, which does it and
 * answers. Whose pages they are about is gc_home.h's. What is refused takes the
 * same way, so that nobody is called back out of his own call.
 *
 *	submit -> [waiting] -> thread: expired, cancelled, refused or done
 *	       -> answered()
 *
 * One thread does all spaces' work in order of arrival, and carries what
 * workers say to each other while there is nothing to do. What concerns donors
 * is the team's (gc_team.c). Here is what concerns pages: before a trace its
 * regions are settled, that is written to their donors, and accesses wait as
 * long; before objects are moved or references updated the regions that are
 * written to are, and accesses wait until it is done.
 *
 * With the spec's words: CLEAN settles without keeping accesses out, so the
 * pause of TRACE_START is for what was written since. Both leave pages mapped,
 * read-only: the next write to each is a fault.
 *
 * The bitmaps of TRACE_RESULTS are written by this thread into the window, like
 * a guest would. It may wait for a lane of the pager, and no lane waits for this
 * thread but for held pages, of which there are none then.
 *
 * Locking: @lock guards the queue and @live; the space table is the
 * thread's, and whoever has stopped it. No lock is held over answered() and
 * the home's functions.
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
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "gc_home.h"
#include "gc_space.h"
#include "inside.h"

#define REGION_MIN	(64ull << 10)
#define DCM_GC_PAGE	4096u	/* of hints */
#define TYPES_MAX	65536u
/* what goes to a donor in one message, and comes from it */
#define REQUEST_MAX	DCM_WIRE_PAYLOAD_MAX
#define RESPONSE_MAX	DCM_GC_TEAM_REPLY
/* as many as one request can list */
#define REGIONS_MAX	((REQUEST_MAX - 64u) / 16u)
#define COMMANDS_MAX	32u
#define DEADLINE_MAX_MS	10000u

#define FEATURES                                                    \
	(1ull << VIRTIO_GC_F_TRACE | 1ull << VIRTIO_GC_F_CONCURRENT | \
	 1ull << VIRTIO_GC_F_EVACUATE | 1ull << VIRTIO_GC_F_COMPACT |   \
	 1ull << VIRTIO_GC_F_HINTS)

/**
 * struct job - a request on its way
 * @status: refused already, or %VIRTIO_GC_OK
 * @counted: in @live of its space
 * @r: what @request says; points into it
 * @request: the copy, @bytes of it
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
	size_t bytes;
	uint64_t request[];
};

struct local {
	struct dcm_gc_host api;
	struct dcm_gc_home home;
	struct dcm_gc_host_ops ops;
	void *priv;
	struct dcm_gc_pieces spaces;
	struct dcm_gc_team *team;	/* %NULL: there are no donors */
	struct dcm_gc_reply *reply;
	int event;			/* the thread: look again */

	pthread_mutex_t lock;
	pthread_cond_t wake;	/* the thread: work, or stop */
	pthread_cond_t idle;	/* reset: nothing waits, nothing runs */
	pthread_t thread;
	bool stop;
	bool resetting;
	bool forget;			/* the thread: reset the team */
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

static size_t team_do(struct local *gc, const struct job *j)
{
	return dcm_gc_team_do(gc->team, &j->r, j->request, j->bytes,
			      j->expires_ms, gc->reply);
}

static uint32_t team_status(const struct local *gc)
{
	return le32toh(gc->reply->done.status);
}

static uint32_t space_create(struct local *gc, const struct job *j)
{
	struct dcm_gc_layout l;
	uint64_t window;
	uint32_t status;

	dcm_gc_request_layout(&j->r, &l, &window);
	status = dcm_gc_piece_add(&gc->spaces, j->space, &l, window);
	if (status || !gc->team)
		return status;
	team_do(gc, j);
	status = team_status(gc);
	if (status)
		dcm_gc_piece_drop(&gc->spaces,
				  dcm_gc_piece_find(&gc->spaces, j->space));
	return status;
}

static uint32_t space_destroy(struct local *gc, const struct job *j)
{
	struct dcm_gc_piece *p = dcm_gc_piece_find(&gc->spaces, j->space);

	/* No worker has it any more after that, whatever it answers. */
	if (gc->team)
		team_do(gc, j);
	/* Nothing else runs: after this nobody reaches the piece. */
	if (gc->home.ops->discard(gc->home.priv, p->window, p->bytes))
		return VIRTIO_GC_LIMIT;
	dcm_gc_piece_drop(&gc->spaces, p);
	return VIRTIO_GC_OK;
}

/* ---- pages ---- */

enum pages_do {
	PAGES_HOLD,
	PAGES_CLEAN,
	PAGES_SETTLE,
	PAGES_DISCARD,
};

/* Whole regions of a piece, those there are of them. */
static uint32_t pages(struct local *gc, const struct job *j, enum pages_do what,
		      uint64_t first, uint64_t regions)
{
	const struct dcm_gc_piece *p = dcm_gc_piece_find(&gc->spaces, j->space);
	uint64_t size = p->layout.region_bytes, nr = p->bytes / size;
	const struct dcm_gc_home_ops *ops = gc->home.ops;
	uint64_t at = p->window + first * size, from = at;
	uint32_t status;

	if (first >= nr)
		return VIRTIO_GC_OK; /* the workers' to refuse */
	if (regions > nr - first)
		regions = nr - first;
	switch (what) {
	case PAGES_HOLD:
		return ops->hold(gc->home.priv, at, regions * size);
	case PAGES_CLEAN:
	case PAGES_SETTLE:
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

/* @bytes of space from @at: the regions they touch. */
static uint32_t pages_at(struct local *gc, const struct job *j,
			 enum pages_do what, uint64_t at, uint64_t bytes)
{
	uint64_t size =
		dcm_gc_piece_find(&gc->spaces, j->space)->layout.region_bytes;

	if (!bytes || at > UINT64_MAX - bytes)
		return VIRTIO_GC_OK;
	return pages(gc, j, what, at / size,
		     (at + bytes - 1) / size - at / size + 1);
}

/* The regions a command is about. */
static uint32_t pages_of(struct local *gc, const struct job *j,
			 enum pages_do what)
{
	const struct virtio_gc_region *region = j->r.entries;
	const struct virtio_gc_move *move = j->r.entries;
	const struct virtio_gc_area *area = j->r.body;
	uint32_t status = VIRTIO_GC_OK, i, n;

	for (i = 0; !status && i < j->r.count; i += n) {
		n = 1;
		if (j->r.command != VIRTIO_GC_EVACUATE) {
			/* what lies side by side is done together */
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

/* No worker looks at this one. */
static uint32_t clean(struct local *gc, const struct job *j)
{
	const struct dcm_gc_piece *p = dcm_gc_piece_find(&gc->spaces, j->space);
	const struct virtio_gc_region *region = j->r.entries;
	uint32_t i;

	for (i = 0; i < j->r.count; i++)
		if (le32toh(region[i].region) >=
			    p->bytes / p->layout.region_bytes ||
		    region[i].top)
			return VIRTIO_GC_INVALID;
	return pages_of(gc, j, PAGES_CLEAN);
}

/* Nor at this one. */
static uint32_t hint(struct local *gc, const struct job *j)
{
	const struct dcm_gc_piece *p = dcm_gc_piece_find(&gc->spaces, j->space);
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

/* A command that needs its regions on the donors, and nobody at them. */
static size_t held_do(struct local *gc, const struct job *j, uint32_t *status)
{
	size_t bytes = sizeof(gc->reply->done);
	bool reads = j->r.command == VIRTIO_GC_TRACE_START;

	*status = pages_of(gc, j, PAGES_HOLD);
	if (!*status)
		*status = pages_of(gc, j, reads ? PAGES_CLEAN : PAGES_SETTLE);
	if (!*status) {
		bytes = team_do(gc, j);
		*status = team_status(gc);
	}
	gc->home.ops->release(gc->home.priv);
	return bytes;
}

static bool op_place(void *arg, u32 space, u32 region,
		     struct dcm_gc_place_of *place)
{
	struct local *gc = arg;
	const struct dcm_gc_piece *p = dcm_gc_piece_find(&gc->spaces, space);

	return gc->home.ops->place(gc->home.priv,
				   p->window + region * p->layout.region_bytes,
				   place);
}

static bool op_tag(void *arg, u32 space, u32 region,
		   const struct dcm_gc_place_of *place, u32 *tag)
{
	struct local *gc = arg;
	const struct dcm_gc_piece *p = dcm_gc_piece_find(&gc->spaces, space);
	u64 size = p->layout.region_bytes;

	return gc->home.ops->tag(gc->home.priv, p->window + region * size, size,
				 place, tag);
}

static void op_bits(void *arg, u32 space, u64 at, const void *bits,
		    size_t bytes)
{
	struct local *gc = arg;
	const struct dcm_gc_piece *p = dcm_gc_piece_find(&gc->spaces, space);

	gc->home.ops->bits(gc->home.priv, p->window + at, bits, bytes);
}

static bool op_cancelled(void *arg)
{
	struct local *gc = arg;
	bool cancelled;

	pthread_mutex_lock(&gc->lock);
	cancelled = gc->running->cancelled;
	pthread_mutex_unlock(&gc->lock);
	return cancelled;
}

static const struct dcm_gc_team_ops team_ops = {
	.place = op_place,
	.tag = op_tag,
	.bits = op_bits,
	.cancelled = op_cancelled,
};

static uint32_t donors_of(const struct local *gc)
{
	return gc->home.ctl ? dcm_ctl_donors(gc->home.ctl) : gc->home.donors;
}

/* [VGC-D-4], with the next request at the latest. */
static void donors_look(struct local *gc)
{
	uint32_t now = donors_of(gc);

	if (now == gc->home.donors)
		return;
	gc->home.donors = now;
	if (gc->ops.donors_changed)
		gc->ops.donors_changed(gc->priv);
}

/* ---- a command ---- */

/* What it ends with; @bytes of gc->reply, if more than its header. */
static uint32_t run(struct local *gc, const struct job *j, size_t *bytes)
{
	uint32_t status = VIRTIO_GC_OK;

	if (j->status != VIRTIO_GC_OK)
		return j->status;
	if (op_cancelled(gc))
		return VIRTIO_GC_CANCELLED;
	if (now_ms() >= j->expires_ms)
		return VIRTIO_GC_TIMED_OUT;
	if (j->r.command == VIRTIO_GC_SPACE_CREATE)
		return space_create(gc, j);
	if (!dcm_gc_piece_find(&gc->spaces, j->space))
		return VIRTIO_GC_INVALID;
	switch (j->r.command) {
	case VIRTIO_GC_SPACE_DESTROY:
		return space_destroy(gc, j);
	case VIRTIO_GC_CANCEL:
		/* What it names has been answered: it was before us. */
		return VIRTIO_GC_OK;
	}
	if (!gc->team)
		return VIRTIO_GC_UNSUPPORTED;
	switch (j->r.command) {
	case VIRTIO_GC_CLEAN:
		*bytes = sizeof(gc->reply->done);
		return clean(gc, j);
	case VIRTIO_GC_HINT:
		return hint(gc, j);
	case VIRTIO_GC_TRACE_START:
	case VIRTIO_GC_EVACUATE:
	case VIRTIO_GC_UPDATE:
	case VIRTIO_GC_COMPACT:
		*bytes = held_do(gc, j, &status);
		return status;
	default:
		*bytes = team_do(gc, j);
		status = team_status(gc);
	}
	if (!status && j->r.command == VIRTIO_GC_RELEASE &&
	    j->r.flags & VIRTIO_GC_RELEASE_DISCARD)
		status = pages_of(gc, j, PAGES_DISCARD);
	return status;
}

static void answer(struct local *gc, const struct job *j)
{
	struct virtio_gc_done *d = &gc->reply->done;
	size_t bytes;
	uint32_t status;

	*d = (struct virtio_gc_done){
		.donor = htole32(VIRTIO_GC_NO_DONOR),
		.at = htole64(VIRTIO_GC_NONE),
	};
	bytes = 0;
	donors_look(gc);
	status = run(gc, j, &bytes);
	if (!bytes) {
		/* nothing of a worker's */
		bytes = sizeof(*d);
		*d = (struct virtio_gc_done){
			.donor = htole32(VIRTIO_GC_NO_DONOR),
			.at = htole64(VIRTIO_GC_NONE),
		};
	}
	d->status = htole32(status);
	/* who has the answer may at once send as many again [VGC-D-10] */
	pthread_mutex_lock(&gc->lock);
	if (j->counted)
		gc->live[j->space]--;
	pthread_mutex_unlock(&gc->lock);
	gc->ops.answered(gc->priv, j->token, gc->reply, j->mute ? 0 : bytes);
}

/* Under the lock: there is nothing to do. Workers may have to say something. */
static void idle(struct local *gc)
{
	uint64_t junk;
	bool any;

	if (gc->forget) {
		pthread_mutex_unlock(&gc->lock);
		dcm_gc_team_reset(gc->team);
		pthread_mutex_lock(&gc->lock);
		gc->forget = false;
		pthread_cond_broadcast(&gc->idle);
		return;
	}
	pthread_mutex_unlock(&gc->lock);
	any = gc->team && dcm_gc_team_idle(gc->team, gc->event);
	pthread_mutex_lock(&gc->lock);
	if (any) {
		if (read(gc->event, &junk, sizeof(junk)) < 0)
			return;
	} else if (!gc->first && !gc->stop && !gc->forget) {
		pthread_cond_wait(&gc->wake, &gc->lock);
	}
}

/* Under the lock. */
static void wake(struct local *gc)
{
	uint64_t one = 1;

	pthread_cond_signal(&gc->wake);
	if (write(gc->event, &one, sizeof(one)) < 0)
		return; /* it is full: the thread looks anyway */
}

static void *gc_main(void *arg)
{
	struct local *gc = arg;
	struct job *j;

	pthread_mutex_lock(&gc->lock);
	for (;;) {
		while (!gc->first && !gc->stop)
			idle(gc);
		j = gc->first;
		if (!j)
			break;
		gc->first = j->next;
		if (!gc->first)
			gc->last = &gc->first;
		gc->running = j;
		pthread_mutex_unlock(&gc->lock);

		answer(gc, j);

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

/* Under the lock. */
static void cancel_tagged(struct local *gc, uint32_t space, uint64_t tag)
{
	struct job *j;

	for (j = gc->first; j; j = j->next)
		if (j->space == space && j->r.tag == tag &&
		    j->r.command != VIRTIO_GC_CANCEL)
			j->cancelled = true;
	j = gc->running;
	if (j && j->space == space && j->r.tag == tag)
		j->cancelled = true;
}

static void enqueue(struct local *gc, struct job *j)
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
	wake(gc);
	pthread_mutex_unlock(&gc->lock);
}

static void local_submit(struct dcm_gc_host *host, const void *request,
			 size_t bytes, size_t room, void *token)
{
	struct local *gc = (struct local *)host;
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
}

/* ---- life ---- */

static u64 local_features(struct dcm_gc_host *host)
{
	return ((struct local *)host)->team ? FEATURES : 0;
}

u64 dcm_gc_config_fill(u32 donors, u64 bytes, u64 extent,
		       struct virtio_gc_config *c)
{
	*c = (struct virtio_gc_config){
		.window_bytes = htole64(bytes),
		.region_bytes_min = htole64(REGION_MIN),
		.region_bytes_max = htole64(extent),
		.spaces_max = htole32(DCM_GC_PIECES_MAX),
		.types_max = htole32(TYPES_MAX),
		.regions_max = htole32(REGIONS_MAX),
		.request_max = htole32(REQUEST_MAX),
		.response_max = htole32(RESPONSE_MAX),
		.commands_max = htole32(COMMANDS_MAX),
		.deadline_max_ms = htole32(DEADLINE_MAX_MS),
		.donors = htole32(donors),
	};
	return FEATURES;
}

static void local_config(struct dcm_gc_host *host, struct virtio_gc_config *c)
{
	const struct local *gc = (struct local *)host;

	dcm_gc_config_fill(donors_of(gc), gc->home.bytes, gc->home.extent, c);
}

static void local_start(struct dcm_gc_host *host, u64 features)
{
	struct local *gc = (struct local *)host;

	__atomic_store_n(&gc->features, features, __ATOMIC_RELAXED);
}

static void local_reset(struct dcm_gc_host *host)
{
	struct local *gc = (struct local *)host;
	struct job *j;
	uint32_t i;

	pthread_mutex_lock(&gc->lock);
	gc->resetting = true;
	for (j = gc->first; j; j = j->next)
		j->cancelled = true;
	if (gc->running)
		gc->running->cancelled = true;
	gc->forget = gc->team;
	wake(gc);
	while (gc->first || gc->running || gc->forget)
		pthread_cond_wait(&gc->idle, &gc->lock);
	pthread_mutex_unlock(&gc->lock);

	/* The table is ours as long as nothing is submitted. */
	for (i = 0; i < DCM_GC_PIECES_MAX; i++)
		if (gc->spaces.piece[i].bytes)
			dcm_gc_piece_drop(&gc->spaces, &gc->spaces.piece[i]);
	/* What was written outside of all spaces too. */
	gc->home.ops->discard(gc->home.priv, 0, gc->home.bytes);

	pthread_mutex_lock(&gc->lock);
	gc->resetting = false;
	pthread_mutex_unlock(&gc->lock);
	local_start(host, 0);
}

static int init(struct local *gc, char *err, size_t len)
{
	const struct dcm_gc_home *home = &gc->home;

	if (!home->extent || !home->bytes || home->bytes % home->extent) {
		snprintf(err, len,
			 "a virtio-gc window must be whole extents of its donors (%llu MiB)",
			 (unsigned long long)home->extent >> 20);
		return -EINVAL;
	}
	if (home->extent < REGION_MIN) {
		snprintf(err, len, "donors' slabs are too small for regions");
		return -EINVAL;
	}
	gc->spaces.window_bytes = home->bytes;
	gc->spaces.region_min = REGION_MIN;
	gc->spaces.region_max = home->extent;
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
	/* without donors it does what needs none */
	gc->team = dcm_gc_team_new(home->ctl, home->bytes, &team_ops, gc);
	snprintf(err, len, "can't start a thread");
	return dcm_thread_start(&gc->thread, gc_main, gc);
}

static void local_free(struct local *gc)
{
	dcm_gc_team_free(gc->team);
	if (gc->event >= 0)
		close(gc->event);
	free(gc->reply);
	free(gc);
}

static void local_close(struct dcm_gc_host *host)
{
	struct local *gc = (struct local *)host;

	local_reset(host);
	pthread_mutex_lock(&gc->lock);
	gc->stop = true;
	wake(gc);
	pthread_mutex_unlock(&gc->lock);
	pthread_join(gc->thread, NULL);
	pthread_mutex_destroy(&gc->lock);
	pthread_cond_destroy(&gc->wake);
	pthread_cond_destroy(&gc->idle);
	gc->home.ops->end(gc->home.priv);
	local_free(gc);
}

static const struct dcm_gc_kind kind = {
	.close = local_close,
	.features = local_features,
	.config = local_config,
	.start = local_start,
	.submit = local_submit,
	.reset = local_reset,
};

struct dcm_gc_host *dcm_gc_host_new(const struct dcm_gc_home *home,
				    const struct dcm_gc_host_ops *ops,
				    void *priv, char *err, size_t len)
{
	struct local *gc = calloc(1, sizeof(*gc));
	int rc;

	if (!gc) {
		snprintf(err, len, "no memory");
		errno = ENOMEM;
		return NULL;
	}
	gc->api.kind = &kind;
	gc->home = *home;
	gc->ops = *ops;
	gc->priv = priv;
	gc->event = -1;
	rc = init(gc, err, len);
	if (!rc)
		return &gc->api;
	local_free(gc);
	errno = -rc;
	return NULL;
}

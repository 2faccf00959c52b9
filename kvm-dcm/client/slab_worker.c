// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * slab_worker.c - a pager's slabs as they come and go: attached, moved, lost
 *
 * The client's callbacks run in the client's thread, which has to keep up
 * heartbeats, while moving an extent or marking its pages lost takes long. So
 * the callbacks only put tasks (DCM_SLAB_*) in each slab's record, and the worker,
 * a thread of the pager, does them:
 *
 *	attached -> ATTACH -> in use -> EVICT: wants another, moves, releases
 *	                       ^  |'--> LOST: marks pages, logs, releases
 *	                       '-FILL
 *
 * An extent has one slab, and two while it moves: its records are a list, newest
 * first. A slab that is asked back before the pager has it is given back at once. A
 * slab that the client replaces by a better one keeps its pages until the new one is
 * filled, for up to a minute, if the extent has a third slab.
 *
 * An extent with copies has two or three slabs. When one is added it is filled: pages
 * that the others have are copied to it. The slab of a donor that was away for a while
 * lacks pages. A look at all extents (slab_look.c) finds those, and pages that files
 * lack (lag); the task of filling files is LAG in place of FILL. A fill that was begun
 * is not given up: if its record is freed, another record of the extent gets the task.
 *
 * All slabs of a donor are lost within moments, so the worker waits until no
 * more follow, and logs one line for the donor.
 *
 * Locking: @lock guards the lists of records, the queue, and each record's tasks. It
 * is held for short moments only: no list longer than an extent's records is walked
 * under it. Only the worker's thread removes records, so it reads an extent's records
 * without the lock. A slab's @priv is its record, under the lock, until it is released.
 *
 * Invariant: a slab is released only when the pager does not have it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "slab_worker.h"
#include "../lib/clock.h"

#define AGAIN_MS 50
#define LOSS_DELAY_NS (50ull * 1000 * 1000) /* between losses of one donor */
#define STARVED_MS 10000u
#define PATIENCE_NS (60ull * 1000 * 1000 * 1000)

/**
 * struct round - one round over the queue
 * @now: when it began
 * @moving: a slab is being moved in it
 * @ms: milliseconds until the next round; -1: none is needed
 */
struct round {
	u64 now;
	bool moving;
	int ms;
};

/* Begin the next round in @ms at the latest. */
static void round_again(struct round *rd, int ms)
{
	rd->ms = rd->ms < 0 ? ms : min(rd->ms, ms);
}

/* ---- records ---- */

/* Add tasks to a record, and queue it. Under the lock. */
static void record_queue(struct dcm_slab_worker *w, struct dcm_slab_record *r,
			 u32 todo)
{
	r->todo |= todo;
	if (r->queued || !r->todo)
		return;
	r->queued = true;
	r->next_todo = NULL;
	*w->todo_end = r;
	w->todo_end = &r->next_todo;
}

static struct dcm_slab_record *
record_new(struct dcm_slab_worker *w, struct dcm_client_slab *slab, u32 todo)
{
	struct dcm_slab_record *r, **head;

	if (slab->extent >= w->nr_extents)
		return NULL;
	r = calloc(1, w->ops->record_bytes);
	if (!r) {
		dcm_log(DCM_LOG_ERR,
			"%s: no memory to record a slab of extent %u: the slab is given back",
			w->name, slab->extent);
		return NULL;
	}
	head = &w->record[slab->extent];
	r->slab = slab;
	r->extent = slab->extent;
	r->since_ns = dcm_clock_ns();
	pthread_mutex_lock(&w->lock);
	r->next = *head;
	r->prev = head;
	if (r->next)
		r->next->prev = &r->next;
	smp_store_release(head, r);
	slab->priv = r;
	record_queue(w, r, todo);
	pthread_mutex_unlock(&w->lock);
	return r;
}

/* Forget a slab that the pager does not have, and give it back. */
static void record_release(struct dcm_slab_worker *w, struct dcm_slab_record *r)
{
	struct dcm_client_slab *slab = r->slab;

	pthread_mutex_lock(&w->lock);
	*r->prev = r->next;
	if (r->next)
		r->next->prev = r->prev;
	if (r->todo & DCM_SLAB_LOST) {
		w->donor[slab->donor].nr_losing--;
		w->nr_losing--;
	}
	slab->priv = NULL;
	pthread_mutex_unlock(&w->lock);
	dcm_client_release(slab->client, slab);
	free(r);
}

/* If a record has no task left, mark it as not queued. True: it had none. */
static bool record_rest(struct dcm_slab_worker *w, struct dcm_slab_record *r)
{
	bool rest;

	pthread_mutex_lock(&w->lock);
	rest = !r->todo;
	if (rest)
		r->queued = false;
	pthread_mutex_unlock(&w->lock);
	return rest;
}

struct dcm_slab_record *dcm_slab_worker_first(struct dcm_slab_worker *w,
					      u32 extent)
{
	return extent < w->nr_extents ? smp_load_acquire(&w->record[extent]) :
					NULL;
}

struct dcm_slab_record *dcm_slab_worker_other(struct dcm_slab_worker *w,
					      const struct dcm_slab_record *r)
{
	struct dcm_slab_record *o = dcm_slab_worker_first(w, r->extent);

	while (o && (o == r || !o->attached))
		o = o->next;
	return o;
}

void dcm_slab_worker_each(struct dcm_slab_worker *w,
			  void (*fn)(struct dcm_slab_worker *w,
				     struct dcm_slab_record *r, void *arg),
			  void *arg)
{
	struct dcm_slab_record *r;
	u32 i;

	for (i = 0; i < w->nr_extents; i++)
		for (r = dcm_slab_worker_first(w, i); r; r = r->next)
			if (r->attached)
				fn(w, r, arg);
}

/* ---- any thread ---- */

/* The primary is the record with the lowest rank, as in dcm_slot_primary(). */
static u64 record_rank(const struct dcm_slab_record *r)
{
	return (u64)(r->slab->ref.rank == DCM_RANK_FILE) << 32 | r->order;
}

bool dcm_slab_worker_where(struct dcm_slab_worker *w, u32 extent, u32 *donor,
			   u64 *slab)
{
	const struct dcm_slab_record *r = NULL, *first = NULL;
	bool rests;

	pthread_mutex_lock(&w->lock);
	if (extent < w->nr_extents)
		r = w->record[extent];
	for (; r; r = r->next)
		if (!(r->todo & DCM_SLAB_ATTACH) &&
		    (!first || record_rank(r) < record_rank(first)))
			first = r;
	/* an orphan's donor has ended, and its GC workers with it */
	rests = first && !READ_ONCE(first->slab->orphan) &&
		!(first->todo & ~(u32)(DCM_SLAB_FILL | DCM_SLAB_LAG));
	if (rests) {
		*donor = first->slab->donor;
		*slab = first->slab->ref.id;
	}
	pthread_mutex_unlock(&w->lock);
	return rests;
}

bool dcm_slab_worker_losing(struct dcm_slab_worker *w)
{
	bool losing;

	pthread_mutex_lock(&w->lock);
	losing = w->nr_losing;
	pthread_mutex_unlock(&w->lock);
	return losing;
}

/**
 * dcm_slab_worker_fill() - queue a fill of an extent's slabs; the worker's thread
 * @r: one of its records
 * @how: %DCM_SLAB_FILL or %DCM_SLAB_LAG
 */
void dcm_slab_worker_fill(struct dcm_slab_worker *w, struct dcm_slab_record *r,
			  u32 how)
{
	pthread_mutex_lock(&w->lock);
	if (how & (u32)~r->todo & DCM_SLAB_FILL)
		WRITE_ONCE(w->nr_filling, w->nr_filling + 1);
	record_queue(w, r, how);
	pthread_mutex_unlock(&w->lock);
}

/* ---- callbacks, in the client's thread ---- */

void dcm_slab_worker_attached(void *arg, u32 extent,
			      struct dcm_client_slab *slab)
{
	struct dcm_slab_worker *w = arg;

	(void)extent;
	if (record_new(w, slab, DCM_SLAB_ATTACH))
		w->ops->wake(w);
	else
		dcm_client_release(slab->client, slab);
}

void dcm_slab_worker_evict(void *arg, struct dcm_client_slab *slab)
{
	struct dcm_slab_worker *w = arg;
	struct dcm_slab_record *r;

	dcm_client_want_other(slab->client, slab);
	pthread_mutex_lock(&w->lock);
	r = slab->priv;
	if (r) { /* else it has just been released */
		r->since_ns = dcm_clock_ns();
		r->patient = slab->leaving && !slab->evicting;
		record_queue(w, r, DCM_SLAB_EVICT);
	}
	pthread_mutex_unlock(&w->lock);
	w->ops->wake(w);
}

void dcm_slab_worker_lost(void *arg, struct dcm_client_slab *slab,
			  const struct dcm_host_donor *donor)
{
	struct dcm_slab_worker *w = arg;
	struct dcm_slab_donor *d = &w->donor[slab->donor];
	struct dcm_slab_record *r;

	pthread_mutex_lock(&w->lock);
	r = slab->priv;
	if (r && !(r->todo & DCM_SLAB_LOST)) {
		d->donor = *donor;
		d->since_ns = dcm_clock_ns();
		d->nr_losing++;
		w->nr_losing++;
		record_queue(w, r, DCM_SLAB_LOST);
	}
	pthread_mutex_unlock(&w->lock);
	w->ops->wake(w);
}

void dcm_slab_worker_starved(void *arg, u32 extent)
{
	struct dcm_slab_worker *w = arg;

	if (dcm_log_allow(&w->say_starved, dcm_clock_ms(), STARVED_MS))
		dcm_log(DCM_LOG_WARNING,
			"%s: no donor has a slab for extent %u: its memory can't leave this host until one has; add a donor, or increase a donor's capacity",
			w->name, extent);
}

struct dcm_slab_record *dcm_slab_worker_adopt(struct dcm_slab_worker *w,
					      struct dcm_client_slab *slab,
					      u32 order, bool evict)
{
	struct dcm_slab_record *r =
		record_new(w, slab, evict ? DCM_SLAB_EVICT : 0);

	if (!r)
		return NULL;
	r->attached = true;
	r->order = order;
	w->orders = max(w->orders, order);
	return r;
}

/* ---- the worker's thread; functions return true if the slab can be released ---- */

static bool record_lose(struct dcm_slab_worker *w, struct dcm_slab_record *r,
			struct round *rd)
{
	struct dcm_slab_donor *d = &w->donor[r->slab->donor];
	s64 pages = 0;
	u64 due_ns;

	pthread_mutex_lock(&w->lock);
	due_ns = d->since_ns + LOSS_DELAY_NS;
	pthread_mutex_unlock(&w->lock);
	if (rd->now < due_ns) {
		round_again(rd, (int)((due_ns - rd->now) / 1000000) + 1);
		return false;
	}
	if (r->attached)
		pages = w->ops->lose(w, r);
	if (pages == -EAGAIN) {
		round_again(rd, 1);
		return false;
	}
	r->attached = false;
	if (pages > 0) {
		dcm_loss_add(&d->loss, r->extent, (u64)pages);
		WRITE_ONCE(w->nr_lost, w->nr_lost + 1);
	}
	return true;
}

static bool record_attach(struct dcm_slab_worker *w, struct dcm_slab_record *r,
			  struct round *rd)
{
	int err = w->ops->attach(w, r);

	if (err == -EAGAIN) {
		round_again(rd, AGAIN_MS);
		return false;
	}
	if (err)
		return true;
	r->attached = true;
	pthread_mutex_lock(&w->lock);
	r->order = ++w->orders;
	r->todo &= ~DCM_SLAB_ATTACH;
	pthread_mutex_unlock(&w->lock);
	if (w->ops->fill && dcm_slab_worker_other(w, r))
		dcm_slab_worker_fill(w, r, DCM_SLAB_FILL);
	/* the extent's older slab may have been waiting for this one to move to */
	round_again(rd, 0);
	return false;
}

/*
 * Should a slab that is given back for a better one wait until the extent is filled?
 * Only if the extent has a third slab: with two, moving pages off is as good as a fill.
 */
static bool record_waits(struct dcm_slab_worker *w,
			 const struct dcm_slab_record *r, u64 now, u64 since_ns)
{
	const struct dcm_slab_record *o = dcm_slab_worker_first(w, r->extent);
	u32 attached = 0;

	for (; o; o = o->next)
		attached += o->attached;
	return attached > 2 && now < since_ns + PATIENCE_NS &&
	       dcm_slab_worker_todo(w, r->extent) & DCM_SLAB_FILL;
}

static bool record_move(struct dcm_slab_worker *w, struct dcm_slab_record *r,
			struct round *rd, u64 since_ns)
{
	const struct dcm_slab_worker_ops *ops = w->ops;

	round_again(rd, AGAIN_MS);
	if ((ops->one_move && rd->moving) ||
	    (ops->held && ops->held(w, r->extent)) ||
	    (rd->now < since_ns + ops->other_wait_ns &&
	     !dcm_slab_worker_other(w, r)))
		return false;
	rd->moving = true;
	switch (ops->move(w, r)) {
	case 0:
	case -ENOENT:
		r->attached = false;
		return true;
	case -EAGAIN:
		round_again(rd, 0);
		return false;
	case -EBUSY:
		/* another slab of the extent has to be emptied first */
		rd->moving = false;
		return false;
	case -EIO:
		/* the slab is gone; dcm_slab_worker_lost() follows */
		dcm_client_stale(r->slab->client, r->slab);
		return false;
	default:
		dcm_client_want_other(r->slab->client, r->slab);
		return false;
	}
}

static void record_fill_done(struct dcm_slab_worker *w,
			     struct dcm_slab_record *r)
{
	pthread_mutex_lock(&w->lock);
	if (r->todo & DCM_SLAB_FILL)
		WRITE_ONCE(w->nr_filling, w->nr_filling - 1);
	r->todo &= ~(DCM_SLAB_FILL | DCM_SLAB_LAG);
	pthread_mutex_unlock(&w->lock);
}

static void record_fill(struct dcm_slab_worker *w, struct dcm_slab_record *r,
			struct round *rd, u32 todo)
{
	int err;

	/* a GC worker changes its primary: a copy would be out of date at once */
	if (w->ops->held && w->ops->held(w, r->extent)) {
		round_again(rd, AGAIN_MS);
		return;
	}
	w->hurry = w->lag_presses && !(todo & DCM_SLAB_FILL);
	err = w->ops->fill(w, r);
	if (err == -EAGAIN)
		round_again(rd, 0);
	else if (err > 0)
		round_again(rd, err);
	else
		record_fill_done(w, r);
}

/* A record is about to be freed: pass its fill, if any, to another record. */
static void record_fill_leave(struct dcm_slab_worker *w,
			      struct dcm_slab_record *r)
{
	struct dcm_slab_record *other = dcm_slab_worker_other(w, r);
	bool begun;

	pthread_mutex_lock(&w->lock);
	begun = r->todo & DCM_SLAB_FILL;
	pthread_mutex_unlock(&w->lock);
	if (!begun)
		return;
	record_fill_done(w, r);
	if (other)
		dcm_slab_worker_fill(w, other, DCM_SLAB_FILL);
}

static bool record_work(struct dcm_slab_worker *w, struct dcm_slab_record *r,
			struct round *rd)
{
	bool patient;
	u64 since_ns;
	u32 todo;

	pthread_mutex_lock(&w->lock);
	todo = r->todo;
	since_ns = r->since_ns;
	patient = r->patient;
	pthread_mutex_unlock(&w->lock);
	if (todo & DCM_SLAB_LOST)
		return record_lose(w, r, rd);
	if (todo & DCM_SLAB_ATTACH)
		return todo & DCM_SLAB_EVICT || record_attach(w, r, rd);
	if (todo & DCM_SLAB_EVICT &&
	    !(patient && record_waits(w, r, rd->now, since_ns)))
		return record_move(w, r, rd, since_ns);
	if (todo & DCM_SLAB_EVICT)
		round_again(rd, AGAIN_MS);
	if (todo & (DCM_SLAB_FILL | DCM_SLAB_LAG))
		record_fill(w, r, rd, todo);
	return false;
}

/* Log the losses of a donor, once the pages of all its slabs are marked. */
static void donor_log(struct dcm_slab_worker *w, struct dcm_slab_donor *d)
{
	struct dcm_host_donor donor;
	bool losing;

	pthread_mutex_lock(&w->lock);
	losing = d->nr_losing;
	donor = d->donor;
	pthread_mutex_unlock(&w->lock);
	if (!losing)
		dcm_loss_log(&d->loss, &donor, NULL, w->name, w->on_loss);
}

int dcm_slab_worker_round(struct dcm_slab_worker *w)
{
	struct dcm_slab_record *r, *next, *kept = NULL, **end = &kept;
	struct round rd = { .ms = -1 };
	u32 i;

	rd.now = dcm_clock_ns();
	dcm_slab_worker_look(w, rd.now);
	if (w->lag_presses)
		round_again(&rd, DCM_LAG_LOOK_MS);
	pthread_mutex_lock(&w->lock);
	r = w->todo;
	w->todo = NULL;
	w->todo_end = &w->todo;
	pthread_mutex_unlock(&w->lock);
	for (; r; r = next) {
		next = r->next_todo;
		if (record_work(w, r, &rd)) {
			record_fill_leave(w, r);
			record_release(w, r);
		} else if (!record_rest(w, r)) {
			*end = r;
			end = &r->next_todo;
		}
	}
	*end = NULL;
	if (kept) {
		/* put them in front of records that were queued meanwhile */
		pthread_mutex_lock(&w->lock);
		*end = w->todo;
		if (!w->todo)
			w->todo_end = end;
		w->todo = kept;
		pthread_mutex_unlock(&w->lock);
	}
	for (i = 0; i < DCM_CONFIG_DONORS_MAX; i++)
		if (w->donor[i].loss.nr)
			donor_log(w, &w->donor[i]);
	return rd.ms;
}

/* ---- start and end ---- */

int dcm_slab_worker_init(struct dcm_slab_worker *w,
			 const struct dcm_slab_worker_ops *ops,
			 const char *name, const char *on_loss, u32 nr_extents)
{
	w->record = calloc(nr_extents, sizeof(struct dcm_slab_record *));
	if (!w->record)
		return -ENOMEM;
	w->ops = ops;
	w->name = name;
	w->on_loss = on_loss;
	w->nr_extents = nr_extents;
	w->todo_end = &w->todo;
	w->lag_set = U64_MAX;
	pthread_mutex_init(&w->lock, NULL);
	return 0;
}

void dcm_slab_worker_free(struct dcm_slab_worker *w)
{
	struct dcm_slab_record *r, *next;
	u32 i;

	if (!w->record)
		return;
	for (i = 0; i < w->nr_extents; i++)
		for (r = w->record[i]; r; r = next) {
			next = r->next;
			free(r);
		}
	free(w->record);
	w->record = NULL;
	pthread_mutex_destroy(&w->lock);
}

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * slab_look.c - a look at all extents of a VM, once a second, for its slab worker
 *
 * A look finds extents of which a slab lacks pages, and queues fills for them. It also
 * counts the memory that donors' deaths would take (risk.c). Pages that files lack
 * (lag) are copied there at the pace of a rebuild. When more than half of the pages
 * that may lag do, the guest's write-backs will have to wait for the files soon: then
 * looks are ten times as frequent, and files are filled as fast as possible.
 *
 * Locking: the worker's thread; @risk is under the worker's lock.
 */
#include "slab_worker.h"

#define LOOK_NS (1000ull * 1000 * 1000)

/* All that remains to be done about an extent's slabs: DCM_SLAB_*. */
u32 dcm_slab_worker_todo(struct dcm_slab_worker *w, u32 extent)
{
	const struct dcm_slab_record *r;
	u32 todo = 0;

	pthread_mutex_lock(&w->lock);
	for (r = w->record[extent]; r; r = r->next)
		todo |= r->todo;
	pthread_mutex_unlock(&w->lock);
	return todo;
}

/* Count an extent's risk, and queue a fill if a slab of it lacks pages. */
static void extent_look(struct dcm_slab_worker *w, u32 extent,
			struct dcm_risk *risk)
{
	struct dcm_slab_record *r, *any = NULL;
	bool filled = false, thin = false, orphan = false;
	u64 donors = 0, memory = 0, lag = 0;
	u32 slabs = 0, todo;

	for (r = dcm_slab_worker_first(w, extent); r; r = r->next) {
		u64 bit = 1ull << r->slab->donor;

		if (!r->attached)
			continue;
		any = r;
		slabs++;
		orphan |= READ_ONCE(r->slab->orphan);
		donors |= bit;
		if (r->slab->ref.rank != DCM_RANK_FILE)
			memory |= bit;
	}
	if (!any)
		return;
	todo = dcm_slab_worker_todo(w, extent);
	if (w->ops->fill && slabs > 1) {
		filled = todo & DCM_SLAB_FILL;
		thin = !filled && w->ops->thin(w, extent);
		if (thin)
			dcm_slab_worker_fill(w, any, DCM_SLAB_FILL);
	}
	if (w->ops->lag)
		lag = w->ops->lag(w, extent);
	if (lag && !thin && !(todo & (DCM_SLAB_FILL | DCM_SLAB_LAG)))
		dcm_slab_worker_fill(w, any, DCM_SLAB_LAG);
	if (thin)
		risk->thin++;
	else
		risk->with[min(slabs, DCM_CLIENT_COPIES_MAX)]++;
	risk->lag_pages += lag;
	/* the orphan has all pages, mapped here: no donor's death takes them */
	if (orphan && !thin && !filled)
		return;
	dcm_risk_add(risk, donors, thin || filled);
	if (!thin && !filled)
		dcm_risk_add_lag(risk, memory, lag);
}

/* Tell the pager if @lag_most has changed. */
static void lag_bound(struct dcm_slab_worker *w)
{
	u64 most = READ_ONCE(w->lag_most);

	if (!w->ops->lag || most == w->lag_set)
		return;
	w->ops->lag_bound(w, most);
	w->lag_set = most;
}

/**
 * dcm_slab_worker_look() - look at all extents, if the next look is due
 * @now: dcm_clock_ns()
 */
void dcm_slab_worker_look(struct dcm_slab_worker *w, u64 now)
{
	u64 pause = w->lag_presses ? DCM_LAG_LOOK_MS * 1000000ull : LOOK_NS;
	struct dcm_risk risk = { 0 };
	u32 i;

	if (now - w->looked_ns < pause)
		return;
	w->looked_ns = now;
	lag_bound(w);
	for (i = 0; i < w->nr_extents; i++)
		extent_look(w, i, &risk);
	w->lag_presses = risk.lag_pages > w->lag_set / 2 && w->lag_set;
	pthread_mutex_lock(&w->lock);
	w->risk = risk;
	pthread_mutex_unlock(&w->lock);
}

void dcm_slab_worker_risk(struct dcm_slab_worker *w, struct dcm_risk *risk)
{
	pthread_mutex_lock(&w->lock);
	*risk = w->risk;
	pthread_mutex_unlock(&w->lock);
}

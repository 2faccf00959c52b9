// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * slab_worker.c - the thread that attaches, moves and loses slabs, and balances
 *
 * client/slab_worker.c decides what to do about each slab; this thread calls the
 * core for it, on a lane of its own.
 *
 * The thread also evicts until the budget holds (dcm_balance()): after a budget change,
 * and ten times a second if fault threads have left something over. It brings in pages
 * that hints have named, on the same lane (core/ahead.c), hides pages of the core's
 * sample (core/reuse.c) while there are few faults, and polls the discard lane for I/O
 * that callers of discard and sync did not wait for.
 *
 * Locking: only that of client/slab_worker.c.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "slab_worker.h"
#include "../lib/thread.h"
#include "../lib/log.h"

#define TICK_MS 100
#define BALANCE_MAX 64u
#define MOVE_STEPS 64u

/**
 * struct pager_slab - libdcm's record of a slab
 * @cursor: @cursor of dcm_extent_drain()
 * @filled: @cursor of dcm_extent_fill()
 */
struct pager_slab {
	struct dcm_slab_record record;
	u32 cursor;
	u32 filled;
};

static struct dcm_pager *pager_of_worker(struct dcm_slab_worker *w)
{
	return container_of(w, struct dcm_pager, slabs);
}

static struct dcm_pg_lane *worker_lane(struct dcm_pager *pg)
{
	return &pg->lane[pg->nr_fault];
}

void dcm_pg_worker_wake(struct dcm_pager *pg)
{
	dcm_lane_kick(worker_lane(pg));
}

/* ---- struct dcm_slab_worker_ops ---- */

static void slab_wake(struct dcm_slab_worker *w)
{
	dcm_pg_worker_wake(pager_of_worker(w));
}

static int slab_attach(struct dcm_slab_worker *w, struct dcm_slab_record *r)
{
	struct dcm_pager *pg = pager_of_worker(w);
	int err = 0;
	u32 i;

	if (r->extent < pg->vm->nr_extents) {
		dcm_page_sums_add(pg, r->extent);
		err = dcm_page_seals_add(pg, r->extent);
	}
	if (!err)
		err = dcm_extent_attach(pg->vm, r->extent, &r->slab->ref);
	if (err == -EBUSY)
		return -EAGAIN;
	if (err) {
		dcm_log(DCM_LOG_WARNING,
			"%s: extent %u can't use a slab that a donor lends: %s; another slab is sought",
			w->name, r->extent, strerror(-err));
		return err;
	}
	for (i = 0; i < pg->nr_fault; i++)
		dcm_lane_kick(&pg->lane[i]);
	return 0;
}

/*
 * Is a page of the extent frozen, as a GC worker uses its slab (gc_pages.c)? That ends
 * with the GC command, at the latest at its time limit.
 */
static bool slab_held(struct dcm_slab_worker *w, u32 extent)
{
	struct dcm_pager *pg = pager_of_worker(w);
	u64 gfn = (u64)extent * pg->vm->extent_pages;
	u64 end = gfn + pg->vm->extent_pages;

	if (!__atomic_load_n(&pg->guest.any_frozen, __ATOMIC_SEQ_CST))
		return false;
	for (; gfn < end; gfn += DCM_BLOCK_MAX)
		if (dcm_guest_frozen(&pg->guest, gfn))
			return true;
	return false;
}

static int slab_move(struct dcm_slab_worker *w, struct dcm_slab_record *r)
{
	struct pager_slab *s = container_of(r, struct pager_slab, record);
	struct dcm_pg_lane *l = worker_lane(pager_of_worker(w));
	unsigned int i;
	int err = -EAGAIN;

	for (i = 0; i < MOVE_STEPS && err == -EAGAIN; i++)
		err = dcm_extent_drain(l->core, r->extent, &r->slab->ref,
				      &s->cursor);
	return err;
}

/* Pages that this lane has copied to slabs that lacked them. */
static u64 filled_pages(const struct dcm_pg_lane *l)
{
	return READ_ONCE(l->core->count[DCM_C_FILLED_PAGES]);
}

static int slab_fill(struct dcm_slab_worker *w, struct dcm_slab_record *r)
{
	struct pager_slab *s = container_of(r, struct pager_slab, record);
	struct dcm_pager *pg = pager_of_worker(w);
	struct dcm_pg_lane *l = worker_lane(pg);
	u64 now = dcm_now_ns();
	struct dcm_hist faults;
	int wait, err;

	if (dcm_rebuild_pace_looks(&pg->rebuild, now)) {
		dcm_vm_hist(pg->vm, DCM_H_FAULT, &faults);
		dcm_rebuild_pace_look(&pg->rebuild, now, &faults);
	}
	dcm_rebuild_pace_copied(&pg->rebuild, filled_pages(l) << DCM_PAGE_SHIFT,
				w->hurry);
	wait = w->hurry ? 0 : dcm_rebuild_pace_wait(&pg->rebuild, now);
	if (wait)
		return wait;
	/* Pairs with lanes_wait() in gc_pages.c. */
	__atomic_fetch_add(&l->fault_seq, 1, __ATOMIC_SEQ_CST);
	err = slab_held(w, r->extent) ?
		      DCM_FILL_PASS_MS :
		      dcm_extent_fill(l->core, r->extent, &s->filled);
	smp_store_release(&l->fault_seq, l->fault_seq + 1);
	/* a pass has ended but could not copy all pages: a donor may be silent */
	return err == -EAGAIN && !s->filled && !dcm_pending(l->core) ?
		       DCM_FILL_PASS_MS :
								       err;
}

static bool slab_thin(struct dcm_slab_worker *w, u32 extent)
{
	struct dcm_pager *pg = pager_of_worker(w);

	return extent < pg->vm->nr_extents &&
	       READ_ONCE(pg->vm->extent[extent].thin);
}

static u64 slab_lag(struct dcm_slab_worker *w, u32 extent)
{
	return dcm_extent_lag(pager_of_worker(w)->vm, extent);
}

static void slab_lag_bound(struct dcm_slab_worker *w, u64 pages)
{
	dcm_tunable_set(pager_of_worker(w)->vm, "lag_pages", pages);
}

static s64 slab_lose(struct dcm_slab_worker *w, struct dcm_slab_record *r)
{
	struct dcm_pg_lane *l = worker_lane(pager_of_worker(w));

	return dcm_extent_lost(l->core, r->extent, &r->slab->ref);
}

static const struct dcm_slab_worker_ops worker_ops = {
	.record_bytes = sizeof(struct pager_slab),
	.wake = slab_wake,
	.attach = slab_attach,
	.held = slab_held,
	.move = slab_move,
	.fill = slab_fill,
	.thin = slab_thin,
	.lag = slab_lag,
	.lag_bound = slab_lag_bound,
	.lose = slab_lose,
};

/* ---- callbacks, in the client's thread ---- */

/* dcm_client_ops.fenced, called in the lane's thread. */
static void lane_fenced(void *arg, u32 lane, u32 donor)
{
	struct dcm_pager *pg = pager_of_worker(arg);

	dcm_lane_fenced(pg->lane[lane].core, donor);
}

const struct dcm_client_ops dcm_pg_client_ops = {
	.attached = dcm_slab_worker_attached,
	.evict = dcm_slab_worker_evict,
	.lost = dcm_slab_worker_lost,
	.starved = dcm_slab_worker_starved,
	.fenced = lane_fenced,
};

/* ---- the thread ---- */

/* The core refused a state transition: a defect, worth a line each time. */
static void illegal_log(struct dcm_pager *pg)
{
	u64 v = (u64)atomic64_read(&pg->vm->illegal);

	if (v == pg->illegal_logged)
		return;
	pg->illegal_logged = v;
	dcm_log(DCM_LOG_ERR,
		"%s: defect: page %llu must not go from %s to %s; it stays; please report this",
		pg->slabs.name, (unsigned long long)(v >> 8),
		dcm_state_names[(v >> 4 & 15) % DCM_NR_STATES],
		dcm_state_names[(v & 15) % DCM_NR_STATES]);
}

/*
 * Poll the discard lane, which has no thread: callers of discard and sync poll it, but
 * return before all its I/O has ended. True: poll again.
 */
static bool discard_lane_poll(struct dcm_pager *pg)
{
	struct dcm_pg_lane *l = dcm_discard_lane(pg);
	bool more = false;

	if (pthread_mutex_trylock(&pg->discard_lock))
		return false;
	if (dcm_pending(l->core) || dcm_doubtful(l->core)) {
		dcm_lane_drain(l);
		more = dcm_pending(l->core);
	}
	pthread_mutex_unlock(&pg->discard_lock);
	return more;
}

/* Bring in pages that hints have named. Returns as dcm_ahead(). */
static int ahead_step(struct dcm_pager *pg)
{
	struct dcm_pg_lane *l = worker_lane(pg);
	int again;

	/* Pairs with lanes_wait() in gc_pages.c: frozen pages are not brought in. */
	__atomic_fetch_add(&l->fault_seq, 1, __ATOMIC_SEQ_CST);
	again = dcm_ahead(l->core);
	smp_store_release(&l->fault_seq, l->fault_seq + 1);
	return again;
}

static void *worker_main(void *arg)
{
	struct dcm_pager *pg = arg;
	struct dcm_pg_lane *l = worker_lane(pg);

	dcm_thread_inside = 1;
	prctl(PR_SET_NAME, "dcm-pager");
	l->tid = (pid_t)syscall(SYS_gettid);
	while (!smp_load_acquire(&pg->stop)) {
		struct pollfd pfd[1 + DCM_CLIENT_FDS_MAX];
		int nr = 1, ms = TICK_MS, again, ahead;
		unsigned int i;
		u64 junk;

		again = dcm_slab_worker_round(&pg->slabs);
		illegal_log(pg);
		dcm_page_sums_log(pg, dcm_now_ns());
		/* dcm_poll() ends write-backs, which makes room for the next ones */
		for (i = 0; i < BALANCE_MAX &&
			    (dcm_balance(l->core) || dcm_poll(l->core));
		     i++)
			;
		ahead = ahead_step(pg);
		dcm_lane_drain(l);
		/* While there are faults, their lanes call this in time. */
		dcm_reuse_tick(l->core);
		pfd[0] = (struct pollfd){ l->wake_fd, POLLIN, 0 };
		if (dcm_pending(l->core)) {
			int n = dcm_client_io_fds(pg->client, l->id, pfd + 1,
						  DCM_CLIENT_FDS_MAX);

			nr += n;
			ms = min(ms, n ? 10 : 1);
		}
		if (discard_lane_poll(pg))
			ms = min(ms, 10);
		if (again >= 0)
			ms = min(ms, max(again, 1));
		if (i == BALANCE_MAX)
			ms = 1;
		if (ahead >= 0)
			ms = min(ms, ahead);
		if (poll(pfd, (nfds_t)nr, ms) > 0 &&
		    (pfd[0].revents & POLLIN) &&
		    read(l->wake_fd, &junk, sizeof(junk)) < 0)
			continue;
	}
	return NULL;
}

int dcm_pg_worker_init(struct dcm_pager *pg, u64 nr_pages)
{
	snprintf(pg->name, sizeof(pg->name), "VM %s", pg->cfg.name);
	/* an extent is at least as large as a span */
	return dcm_slab_worker_init(&pg->slabs, &worker_ops, pg->name,
				    pg->cfg.on_loss == DCM_ON_LOSS_SIGBUS ?
					    "raise SIGBUS" :
					    "block",
		(u32)(nr_pages >> DCM_SPAN_SHIFT) + 1);
}

int dcm_pg_worker_start(struct dcm_pager *pg)
{
	struct dcm_pg_lane *l = worker_lane(pg);
	int err = dcm_thread_start(&l->thread, worker_main, pg);

	l->started = !err;
	return err;
}

/* Called with @pg->stop set. */
void dcm_pg_worker_stop(struct dcm_pager *pg)
{
	struct dcm_pg_lane *l = worker_lane(pg);

	if (!l->started)
		return;
	dcm_lane_kick(l);
	pthread_join(l->thread, NULL);
	l->started = false;
}

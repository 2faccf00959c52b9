// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * slab_worker.c - the thread that attaches, moves and loses slabs, and balances
 *
 * The client's callbacks run in the client's thread; they note for each slab
 * what is to be done. This thread does that, on a lane of its own, because
 * moving an extent or marking it lost takes long and heartbeats must go on.
 *
 *	attached -> ATTACH -> in use -> EVICT: wants another, moves, releases
 *	                         '----> LOST: marks pages, logs, releases
 *
 * The thread also balances: after a budget change, and ten times a second what
 * fault threads left over. And it polls the discard lane for I/O that callers
 * of discard and settle did not wait for.
 *
 * Locking: @lock for the list and the flags. Only this thread removes a slab
 * from the list, and it works on one without the lock.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "slab_worker.h"
#include "../lib/inside.h"
#include "../lib/log.h"
#include "../client/loss.h"

#define TICK_MS 100
#define BALANCE_MAX 64u
#define MOVE_STEPS 64u

enum {
	W_ATTACH = 0x1,
	W_EVICT = 0x2,
	W_LOST = 0x4,
};

/**
 * struct slab_work - a slab and what is to be done about it
 * @flags: W_*
 * @cursor: of dcm_extent_move()
 * @attached: the core has the slab
 */
struct slab_work {
	struct slab_work *next;
	struct dcm_client_slab *slab;
	u32 extent;
	u32 flags;
	u32 cursor;
	bool attached;
};

#define LOST_SETTLE_NS (50ull * 1000 * 1000)

struct dcm_control {
	struct dcm_pager *pg;
	pthread_t thread;
	pthread_mutex_t lock;
	struct slab_work *works;
	struct dcm_loss loss;
	u32 lost_extents;
	struct dcm_log_rate starved;
	u64 illegal; /* last one logged */
};

static struct dcm_pg_lane *own_lane(struct dcm_control *c)
{
	return &c->pg->lane[c->pg->nr_fault];
}

void dcm_control_kick(struct dcm_pager *pg)
{
	dcm_lane_kick(&pg->lane[pg->nr_fault]);
}

/* ---- callbacks, in the client's thread ---- */

static void cb_attached(void *arg, u32 extent, struct dcm_client_slab *slab)
{
	struct dcm_pager *pg = arg;
	struct dcm_control *c = pg->control;
	struct slab_work *w = calloc(1, sizeof(*w));

	if (!w) {
		dcm_client_release(pg->client, slab);
		return;
	}
	w->slab = slab;
	w->extent = extent;
	w->flags = W_ATTACH;
	pthread_mutex_lock(&c->lock);
	w->next = c->works;
	c->works = w;
	pthread_mutex_unlock(&c->lock);
	dcm_control_kick(pg);
}

static void note(struct dcm_pager *pg, struct dcm_client_slab *slab, u32 flag)
{
	struct dcm_control *c = pg->control;
	struct slab_work *w;

	/* The slab may have been released a moment ago. */
	pthread_mutex_lock(&c->lock);
	for (w = c->works; w; w = w->next)
		if (w->slab == slab)
			w->flags |= flag;
	pthread_mutex_unlock(&c->lock);
	dcm_control_kick(pg);
}

static void cb_evict(void *arg, struct dcm_client_slab *slab)
{
	struct dcm_pager *pg = arg;

	dcm_client_want_other(pg->client, slab);
	note(pg, slab, W_EVICT);
}

static void cb_lost(void *arg, struct dcm_client_slab *slab, const char *donor)
{
	struct dcm_pager *pg = arg;
	struct dcm_control *c = pg->control;

	pthread_mutex_lock(&c->lock);
	snprintf(c->loss.donor, sizeof(c->loss.donor), "%s", donor);
	c->loss.since_ns = dcm_now_ns();
	pthread_mutex_unlock(&c->lock);
	note(pg, slab, W_LOST);
}

static void cb_starved(void *arg, u32 extent)
{
	struct dcm_pager *pg = arg;
	struct dcm_control *c = pg->control;

	if (dcm_log_allow(&c->starved, dcm_now_ns() / 1000000, 10000))
		dcm_log(DCM_LOG_WARNING,
			"%s: no donor has a slab for extent %u: memory can't leave this host until one has",
			pg->cfg.name, extent);
}

static void cb_fenced(void *arg, u32 lane, u32 donor)
{
	struct dcm_pager *pg = arg;

	dcm_lane_fenced(pg->lane[lane].core, donor);
}

const struct dcm_client_ops dcm_control_ops = {
	.attached = cb_attached,
	.evict = cb_evict,
	.lost = cb_lost,
	.starved = cb_starved,
	.fenced = cb_fenced,
};

bool dcm_control_where(struct dcm_pager *pg, u32 extent, u32 *donor, u64 *slab)
{
	struct dcm_control *c = pg->control;
	const struct slab_work *w, *only = NULL;
	u32 n = 0;

	pthread_mutex_lock(&c->lock);
	for (w = c->works; w; w = w->next) {
		if (w->extent != extent)
			continue;
		n++;
		only = w->flags ? NULL : w;
	}
	if (n == 1 && only) {
		*donor = only->slab->donor;
		*slab = only->slab->ref.id;
	}
	pthread_mutex_unlock(&c->lock);
	return n == 1 && only;
}

bool dcm_control_losing(struct dcm_pager *pg)
{
	struct dcm_control *c = pg->control;
	const struct slab_work *w;
	bool losing = false;

	pthread_mutex_lock(&c->lock);
	for (w = c->works; w; w = w->next)
		losing |= w->flags & W_LOST;
	pthread_mutex_unlock(&c->lock);
	return losing;
}

/* Whether a GC worker uses the extent where it is (gc_pages.c). */
static bool extent_held(struct dcm_pager *pg, u32 extent)
{
	u64 gfn = (u64)extent * pg->vm->extent_pages;
	u64 end = gfn + pg->vm->extent_pages;

	if (!__atomic_load_n(&pg->guest.holds, __ATOMIC_SEQ_CST))
		return false;
	for (; gfn < end; gfn += DCM_BLOCK_MAX)
		if (dcm_guest_held(&pg->guest, gfn))
			return true;
	return false;
}

/* ---- the thread ---- */

static void lanes_kick(struct dcm_pager *pg)
{
	u32 i;

	for (i = 0; i < pg->nr_fault; i++)
		dcm_lane_kick(&pg->lane[i]);
}

static void loss_say(struct dcm_control *c)
{
	struct dcm_pager *pg = c->pg;
	struct dcm_loss *l = &c->loss;
	char extents[DCM_LOSS_TEXT];
	struct dcm_client_status *st = calloc(1, sizeof(*st));
	const char *address = "?";
	u32 i;

	dcm_loss_text(l, extents);
	if (st)
		dcm_client_status(pg->client, st);
	for (i = 0; st && i < st->nr_donors; i++)
		if (!strcmp(st->donor[i].name, l->donor))
			address = st->donor[i].address;
	dcm_log(DCM_LOG_ERR,
		"donor %s (%s) lost: %llu KiB of VM %s in extent%s had no other copy: %s",
		l->donor, address, (unsigned long long)l->pages * 4,
		pg->cfg.name, extents,
		pg->cfg.on_loss == DCM_ON_LOSS_SIGBUS ?
			"accesses to it raise SIGBUS" :
			"accesses to it block");
	free(st);
	l->nr = 0;
	l->pages = 0;
}

static void work_lost(struct dcm_control *c, struct slab_work *w, bool *over)
{
	struct dcm_pg_lane *l = own_lane(c);
	s64 n = -ENOENT;

	if (w->attached)
		n = dcm_extent_lost(l->core, w->extent, &w->slab->ref);
	if (n == -EAGAIN)
		return;
	if (n > 0) {
		dcm_loss_add(&c->loss, w->extent, (u64)n);
		WRITE_ONCE(c->lost_extents, c->lost_extents + 1);
	}
	*over = true;
}

/* Returns true when there is more to do at once. */
static bool work_evict(struct dcm_control *c, struct slab_work *w, bool *over)
{
	struct dcm_pg_lane *l = own_lane(c);
	unsigned int i;
	int err = -EAGAIN;

	/* Wait until the GC command ends, which its time limit bounds. */
	if (extent_held(c->pg, w->extent))
		return false;
	for (i = 0; i < MOVE_STEPS && err == -EAGAIN; i++)
		err = dcm_extent_move(l->core, w->extent, &w->slab->ref,
				      &w->cursor);
	switch (err) {
	case 0:
	case -ENOENT:
		*over = true;
		return false;
	case -EAGAIN:
		return true;
	case -EIO:
		/* The slab is gone meanwhile; ops->lost() follows. */
		dcm_client_stale(c->pg->client, w->slab);
		return false;
	default:
		dcm_client_want_other(c->pg->client, w->slab);
		return false;
	}
}

static bool work_attach(struct dcm_control *c, struct slab_work *w, bool *over)
{
	struct dcm_pager *pg = c->pg;
	int err = dcm_extent_attach(pg->vm, w->extent, &w->slab->ref);

	if (err == -EBUSY)
		return false;
	if (err) {
		dcm_log(DCM_LOG_WARNING, "%s: slab refused for extent %u: %s",
			pg->cfg.name, w->extent, strerror(-err));
		*over = true;
		return false;
	}
	w->attached = true;
	pthread_mutex_lock(&c->lock);
	w->flags &= ~(u32)W_ATTACH;
	pthread_mutex_unlock(&c->lock);
	lanes_kick(pg);
	return true;
}

static void work_remove(struct dcm_control *c, struct slab_work *w)
{
	struct slab_work **p;

	pthread_mutex_lock(&c->lock);
	for (p = &c->works; *p != w; p = &(*p)->next)
		;
	*p = w->next;
	pthread_mutex_unlock(&c->lock);
	dcm_client_release(c->pg->client, w->slab);
	free(w);
}

/* One round over all slabs. True: call again at once. */
static bool works_round(struct dcm_control *c)
{
	struct slab_work *w, *next;
	bool more = false, losing = false, settled;

	pthread_mutex_lock(&c->lock);
	w = c->works;
	/* All slabs of a donor are lost within moments: log one line. */
	settled = dcm_now_ns() - c->loss.since_ns > LOST_SETTLE_NS;
	pthread_mutex_unlock(&c->lock);
	for (; w; w = next) {
		bool over = false;
		u32 flags;

		pthread_mutex_lock(&c->lock);
		next = w->next;
		flags = w->flags;
		pthread_mutex_unlock(&c->lock);
		if (flags & W_LOST) {
			if (settled)
				work_lost(c, w, &over);
			losing |= !over;
		} else if (flags & W_ATTACH) {
			more |= work_attach(c, w, &over);
		} else if (flags & W_EVICT) {
			more |= work_evict(c, w, &over);
		}
		if (over)
			work_remove(c, w);
	}
	if (c->loss.nr && !losing)
		loss_say(c);
	return more || losing;
}

/* The core refused a state transition: a defect, worth a line each time. */
static void illegal_say(struct dcm_control *c)
{
	struct dcm_vm *vm = c->pg->vm;
	u64 v = (u64)atomic64_read(&vm->illegal);

	if (v == c->illegal)
		return;
	c->illegal = v;
	dcm_log(DCM_LOG_ERR,
		"VM %s: defect: page %llu must not go from %s to %s; it stays; please report this",
		c->pg->cfg.name, (unsigned long long)(v >> 8),
		dcm_state_names[(v >> 4 & 15) % DCM_NR_STATES],
		dcm_state_names[(v & 15) % DCM_NR_STATES]);
}

/*
 * The discard lane has no thread: callers of discard and settle poll it, and
 * leave what is not done by then. True: poll again.
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

static void *control_main(void *arg)
{
	struct dcm_control *c = arg;
	struct dcm_pager *pg = c->pg;
	struct dcm_pg_lane *l = own_lane(c);

	dcm_inside = 1;
	prctl(PR_SET_NAME, "dcm-pager");
	l->tid = (pid_t)syscall(SYS_gettid);
	while (!smp_load_acquire(&pg->stop)) {
		struct pollfd pfd[1 + DCM_CLIENT_FDS_MAX];
		unsigned int i;
		bool more;
		u64 junk;
		int nr = 1, ms = TICK_MS;

		more = works_round(c);
		illegal_say(c);
		for (i = 0; i < BALANCE_MAX && dcm_balance(l->core); i++)
			;
		dcm_lane_drain(l);
		pfd[0] = (struct pollfd){ l->wake_fd, POLLIN, 0 };
		if (dcm_pending(l->core)) {
			int n = dcm_client_io_fds(pg->client, l->id, pfd + 1,
						  DCM_CLIENT_FDS_MAX);

			nr += n;
			ms = n ? 10 : 1;
		}
		if (discard_lane_poll(pg))
			ms = min(ms, 10);
		if (more || i == BALANCE_MAX)
			ms = 1;
		if (poll(pfd, (nfds_t)nr, ms) > 0 &&
		    (pfd[0].revents & POLLIN) &&
		    read(l->wake_fd, &junk, sizeof(junk)) < 0)
			continue;
	}
	return NULL;
}

int dcm_control_init(struct dcm_pager *pg)
{
	struct dcm_control *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->pg = pg;
	pthread_mutex_init(&c->lock, NULL);
	pg->control = c;
	return 0;
}

int dcm_control_start(struct dcm_pager *pg)
{
	struct dcm_pg_lane *l = &pg->lane[pg->nr_fault];
	int err = dcm_thread_start(&l->thread, control_main, pg->control);

	l->started = !err;
	return err;
}

/* Called with @pg->stop set. */
void dcm_control_stop(struct dcm_pager *pg)
{
	struct dcm_pg_lane *l = &pg->lane[pg->nr_fault];

	if (!l->started)
		return;
	dcm_lane_kick(l);
	pthread_join(l->thread, NULL);
	l->started = false;
}

/* Called after the client has ended. */
void dcm_control_free(struct dcm_pager *pg)
{
	struct dcm_control *c = pg->control;

	while (c && c->works) {
		struct slab_work *w = c->works;

		c->works = w->next;
		free(w);
	}
	free(c);
}

u32 dcm_control_lost(struct dcm_pager *pg)
{
	return READ_ONCE(pg->control->lost_extents);
}

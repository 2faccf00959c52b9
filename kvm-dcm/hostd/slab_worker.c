// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * slab_worker.c - a file's slabs: given to the kernel, moved, lost
 *
 * The client's callbacks run in the client's thread. They note for each slab
 * what is to be done, and the file's thread does it, since ioctls take long and
 * heartbeats must go on meanwhile:
 *
 *	attached -> ATTACH -> in use -> EVICT: wants another, DETACH, releases
 *	                         '----> LOST: LOST, logs, releases
 *
 * Only one thread calls the kernel about a file: DETACH excludes all other such
 * calls until the slab is empty, yet another slab may have to be attached for
 * that. So DETACH gets a slice of time: a timer's signal ends it (EINTR), other
 * work is done, and DETACH is called again; what was moved stays moved. The
 * timer is periodic, because a single signal that came just before the call
 * would be lost.
 *
 * A slab that is asked back waits a moment for the extent's other one. If no
 * donor has one, DETACH is called all the same; the kernel takes the pages into
 * direct memory if there is room (ENOSPC: there is none; donors are asked
 * again).
 *
 * The kernel's number for a slab is made from its extent and from which of the
 * extent's two slabs it is. Slabs that a killed daemon left with the kernel are
 * taken over (adopt.c) or forgotten by the next.
 *
 * Locking: the file's lock for the list, the flags and the loss. Only the
 * file's thread removes a slab from the list, and works on one without the
 * lock.
 *
 * Invariant: a slab is released only when the kernel does not have it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "../proto/wire_format.h"
#include "hostd.h"

#define SLICE_NS (100l * 1000 * 1000)
#define OTHER_NS (1000ull * 1000 * 1000)
#define REFUSED_NS (5000ull * 1000 * 1000)
#define AGAIN_MS 50
#define LOST_SETTLE_NS (50ull * 1000 * 1000)

enum {
	SLAB_ATTACH = 0x1,
	SLAB_EVICT = 0x2,
	SLAB_LOST = 0x4,
};

/* I/Os of an extent so far. */
static u64 extent_ops(const struct hostd_file *f, u32 extent)
{
	struct dcmfs_activity act = { .extent = extent };

	return ioctl(f->fd, DCMFS_IOC_ACTIVITY, &act) ? 0 : act.ops;
}

/* ---- callbacks, in the client's thread ---- */

static struct hostd_slab *slab_add(struct hostd_file *f,
				   struct dcm_client_slab *slab, u32 flags)
{
	struct hostd_slab *s, **p;

	s = calloc(1, sizeof(*s));
	if (!s) {
		dcm_log(DCM_LOG_ERR, "%s: no memory for a slab's record",
			f->path);
		return NULL;
	}
	s->slab = slab;
	s->extent = slab->extent;
	s->flags = flags;
	s->since_ns = hostd_now_ns();
	pthread_mutex_lock(&f->lock);
	for (p = &f->slabs; *p; p = &(*p)->next)
		;
	*p = s;
	pthread_mutex_unlock(&f->lock);
	return s;
}

static void cb_attached(void *arg, u32 extent, struct dcm_client_slab *slab)
{
	struct hostd_file *f = arg;

	(void)extent;
	if (slab_add(f, slab, SLAB_ATTACH))
		hostd_file_kick(f);
	else
		dcm_client_release(f->client, slab);
}

/**
 * hostd_slab_adopt() - record a slab that the kernel has already
 * @f: its file
 * @slab: the client's record
 * @id: the kernel's number
 * @old: its extent is being moved off it
 *
 * Return: false: no memory.
 */
bool hostd_slab_adopt(struct hostd_file *f, struct dcm_client_slab *slab,
		      u64 id, bool old)
{
	struct hostd_slab *s = slab_add(f, slab, old ? SLAB_EVICT : 0);

	if (!s)
		return false;
	s->id = id;
	s->attached = true;
	s->ops = extent_ops(f, s->extent);
	return true;
}

static void note(struct hostd_file *f, struct dcm_client_slab *slab, u32 flag)
{
	struct hostd_slab *s;

	/* The slab may have been released a moment ago. */
	pthread_mutex_lock(&f->lock);
	for (s = f->slabs; s; s = s->next) {
		if (s->slab != slab)
			continue;
		if (flag == SLAB_EVICT)
			s->since_ns = hostd_now_ns();
		s->flags |= flag;
	}
	pthread_mutex_unlock(&f->lock);
	hostd_file_kick(f);
}

static void cb_evict(void *arg, struct dcm_client_slab *slab)
{
	struct hostd_file *f = arg;

	dcm_client_want_other(f->client, slab);
	note(f, slab, SLAB_EVICT);
}

static void cb_lost(void *arg, struct dcm_client_slab *slab, const char *donor)
{
	struct hostd_file *f = arg;

	pthread_mutex_lock(&f->lock);
	snprintf(f->loss.donor, sizeof(f->loss.donor), "%s", donor);
	f->loss.since_ns = hostd_now_ns();
	pthread_mutex_unlock(&f->lock);
	note(f, slab, SLAB_LOST);
}

static void cb_starved(void *arg, u32 extent)
{
	struct hostd_file *f = arg;

	if (dcm_log_allow(&f->starved, hostd_now_ns() / 1000000, 10000))
		dcm_log(DCM_LOG_WARNING,
			"%s: no donor has a slab for extent %u: memory can't leave this host until one has",
			f->path, extent);
}

const struct dcm_client_ops hostd_ctl_ops = {
	.attached = cb_attached,
	.evict = cb_evict,
	.lost = cb_lost,
	.starved = cb_starved,
	.session = hostd_session,
	.donor = hostd_donor_added,
};

/**
 * hostd_slab_where() - the slab of an extent
 * @donor: by the client's numbers
 * @slab: the donor's id
 *
 * Return: false: it has none, or is being moved. Any thread.
 */
bool hostd_slab_where(struct hostd_file *f, u32 extent, u32 *donor, u64 *slab)
{
	const struct hostd_slab *s;
	u32 n = 0;

	pthread_mutex_lock(&f->lock);
	for (s = f->slabs; s; s = s->next) {
		if (s->extent != extent)
			continue;
		n += s->flags & (SLAB_ATTACH | SLAB_EVICT | SLAB_LOST) ? 2 : 1;
		*donor = s->slab->donor;
		*slab = s->slab->ref.id;
	}
	pthread_mutex_unlock(&f->lock);
	return n == 1;
}

/**
 * hostd_slab_losing() - whether a slab is lost that the kernel still has
 *
 * Any thread.
 */
bool hostd_slab_losing(struct hostd_file *f)
{
	const struct hostd_slab *s;
	bool losing = false;

	pthread_mutex_lock(&f->lock);
	for (s = f->slabs; s; s = s->next)
		losing |= s->flags & SLAB_LOST;
	pthread_mutex_unlock(&f->lock);
	return losing;
}

/* ---- the file's thread ---- */

static int slab_ioctl(struct hostd_file *f, unsigned long cmd,
		      const struct hostd_slab *s)
{
	struct dcmfs_slab arg = { .extent = s->extent, .fd = -1, .id = s->id };

	if (cmd == DCMFS_IOC_ATTACH) {
		arg.donor = f->number[s->slab->donor];
		arg.remote = s->slab->ref.id;
	}
	if (cmd == DCMFS_IOC_ATTACH && s->slab->transport == DCM_WT_SHM) {
		arg.fd = s->slab->ref.fd;
	} else if (cmd == DCMFS_IOC_ATTACH) {
		arg.flags = DCMFS_SLAB_REMOTE;
		arg.base = s->slab->ref.base;
		arg.rkey = s->slab->ref.rkey;
	}
	return ioctl(f->fd, cmd, &arg) ? errno : 0;
}

/* Number of an extent's first or @second slab. Odd: the first. */
static u64 slab_id(u32 extent, bool second)
{
	return 2 * (u64)extent + 1 + second;
}

static void loss_say(struct hostd_file *f, const char *what)
{
	struct dcm_loss *l = &f->loss;
	char extents[DCM_LOSS_TEXT];

	dcm_loss_text(l, extents);
	dcm_log(DCM_LOG_ERR,
		"%s: %llu KiB of %s in extent%s had no other copy: accesses to it raise SIGBUS or block (mount option on_loss)",
		what, (unsigned long long)l->pages * 4, f->path, extents);
	l->nr = 0;
	l->pages = 0;
}

/* Have the kernel mark the slab's pages lost. */
static void lose(struct hostd_file *f, struct hostd_slab *s)
{
	struct dcmfs_info info;
	int err;

	do {
		err = slab_ioctl(f, DCMFS_IOC_LOST, s);
	} while (err == EINTR);
	s->attached = false;
	if (err == ENOENT)
		return;
	if (err) {
		dcm_log(DCM_LOG_ERR,
			"%s: extent %u: the kernel keeps a slab that is lost: %s",
			f->path, s->extent, strerror(err));
		return;
	}
	if (ioctl(f->fd, DCMFS_IOC_INFO, &info) ||
	    info.lost_pages <= f->info.lost_pages)
		return;
	dcm_loss_add(&f->loss, s->extent, info.lost_pages - f->info.lost_pages);
	f->info.lost_pages = info.lost_pages;
}

static void slab_remove(struct hostd_file *f, struct hostd_slab *s)
{
	struct hostd_slab **p;

	pthread_mutex_lock(&f->lock);
	for (p = &f->slabs; *p != s; p = &(*p)->next)
		;
	*p = s->next;
	pthread_mutex_unlock(&f->lock);
	dcm_client_release(f->client, s->slab);
	free(s);
}

static struct hostd_slab *slab_next(struct hostd_file *f,
				    const struct hostd_slab *s)
{
	struct hostd_slab *next;

	pthread_mutex_lock(&f->lock);
	next = s ? s->next : f->slabs;
	pthread_mutex_unlock(&f->lock);
	return next;
}

/* The other slab of its extent that the kernel has. */
static struct hostd_slab *other_of(struct hostd_file *f,
				   const struct hostd_slab *s)
{
	struct hostd_slab *o;

	for (o = slab_next(f, NULL); o; o = slab_next(f, o))
		if (o != s && o->extent == s->extent && o->attached)
			break;
	return o;
}

/* True: done with this slab: remove it. */
static bool slab_attach(struct hostd_file *f, struct hostd_slab *s)
{
	struct hostd_slab *other = other_of(f, s);
	int err;

	s->id = slab_id(s->extent, other && other->id & 1);
	err = slab_ioctl(f, DCMFS_IOC_ATTACH, s);
	/* The extent has two slabs: wait until one is gone. */
	if (err == EBUSY || err == EINTR || (err == EEXIST && other))
		return false;
	if (err) {
		/* The next one may be from the same donor. */
		f->ask_ns = hostd_now_ns() + REFUSED_NS;
		if (dcm_log_allow(&f->refused, hostd_now_ns() / 1000000, 60000))
			dcm_log(DCM_LOG_ERR,
				"%s: the kernel refuses a slab for extent %u: %s%s",
				f->path, s->extent, strerror(err),
				err == EINVAL && s->slab->ref.fd >= 0 ?
					" (it takes none of huge pages: hugepages = no at the donor)" :
					"");
		return true;
	}
	s->attached = true;
	s->ops = extent_ops(f, s->extent);
	pthread_mutex_lock(&f->lock);
	s->flags &= ~(u32)SLAB_ATTACH;
	pthread_mutex_unlock(&f->lock);
	return false;
}

static bool slab_evict(struct hostd_file *f, struct hostd_slab *s, bool *more)
{
	struct itimerspec slice = { .it_value.tv_nsec = SLICE_NS,
				    .it_interval.tv_nsec = SLICE_NS };
	const struct itimerspec off = { 0 };
	int err;

	if (timer_settime(f->slice, 0, &slice, NULL)) {
		dcm_log(DCM_LOG_ERR, "%s: timer: %s", f->path, strerror(errno));
		return false;
	}
	err = slab_ioctl(f, DCMFS_IOC_DETACH, s);
	timer_settime(f->slice, 0, &off, NULL);
	switch (err) {
	case 0:
	case ENOENT:
		s->attached = false;
		return true;
	case EINTR:
		*more = true;
		return false;
	case EIO:
		/* The slab is gone meanwhile; ops->lost() follows. */
		dcm_client_stale(f->client, s->slab);
		return false;
	default:
		/* Try again at the next tick. */
		dcm_client_want_other(f->client, s->slab);
		return false;
	}
}

static bool slab_work(struct hostd_file *f, struct hostd_slab *s, u32 flags,
		      bool settled, bool *moving, bool *more)
{
	if (flags & SLAB_LOST) {
		if (!settled)
			return false;
		if (s->attached)
			lose(f, s);
		return true;
	}
	if (flags & SLAB_ATTACH)
		return flags & SLAB_EVICT || slab_attach(f, s);
	if (!(flags & SLAB_EVICT) || *moving)
		return false;
	if (!other_of(f, s) && hostd_now_ns() - s->since_ns < OTHER_NS)
		return false;
	*moving = true; /* one at a time: an empty slab can be released */
	return slab_evict(f, s, more);
}

/**
 * hostd_slabs_round() - one round over all slabs
 *
 * Return: ms until the next call; -1: there is nothing to do.
 */
int hostd_slabs_round(struct hostd_file *f)
{
	char what[DCM_NAME_MAX + 32];
	struct hostd_slab *s, *next;
	bool more = false, moving = false, left = false, settled;

	pthread_mutex_lock(&f->lock);
	/* All slabs of a donor are lost within moments: log one line. */
	settled = hostd_now_ns() - f->loss.since_ns > LOST_SETTLE_NS;
	snprintf(what, sizeof(what), "donor %s lost", f->loss.donor);
	pthread_mutex_unlock(&f->lock);
	for (s = slab_next(f, NULL); s; s = next) {
		bool over;
		u32 flags;

		pthread_mutex_lock(&f->lock);
		flags = s->flags;
		pthread_mutex_unlock(&f->lock);
		over = flags && slab_work(f, s, flags, settled, &moving, &more);
		left |= flags && !over &&
			(flags != SLAB_ATTACH || !s->attached);
		/* Others may have been added behind it meanwhile. */
		next = slab_next(f, s);
		if (over)
			slab_remove(f, s);
	}
	if (f->loss.nr)
		loss_say(f, what);
	return more ? 0 : left ? AGAIN_MS : -1;
}

/* Count each slab's I/O: donors evict the least active slabs. */
void hostd_slabs_count(struct hostd_file *f)
{
	struct hostd_slab *s;

	for (s = slab_next(f, NULL); s; s = slab_next(f, s))
		if (s->attached)
			dcm_client_count(s->slab,
					 extent_ops(f, s->extent) - s->ops);
}

/* Lose slabs that were not taken over: donors have taken them back. */
void hostd_slabs_inherit(struct hostd_file *f)
{
	struct dcmfs_slab a = { .fd = -1 };

	while (!ioctl(f->fd, DCMFS_IOC_SLAB, &a)) {
		struct hostd_slab left = { .extent = a.extent, .id = a.id };
		const struct hostd_slab *s;

		for (s = slab_next(f, NULL); s; s = slab_next(f, s))
			if (s->attached && s->id == a.id)
				break;
		if (!s)
			lose(f, &left);
		a = (struct dcmfs_slab){ .fd = -1, .id = a.id };
	}
	if (f->loss.nr)
		loss_say(f, "the dcm-hostd before this one ended");
}

/* This process ends: the kernel must stop using the slabs. */
void hostd_slabs_leave(struct hostd_file *f)
{
	struct hostd_slab *s;

	for (s = slab_next(f, NULL); s; s = slab_next(f, s))
		if (s->attached)
			lose(f, s);
	if (f->loss.nr)
		loss_say(f, "dcm-hostd ends");
}

/* Called after the client has ended. */
void hostd_slabs_free(struct hostd_file *f)
{
	while (f->slabs) {
		struct hostd_slab *s = f->slabs;

		f->slabs = s->next;
		free(s);
	}
}

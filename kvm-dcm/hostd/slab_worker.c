// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * slab_worker.c - a file's slabs: given to the kernel, moved, lost
 *
 * client/slab_worker.c decides what to do about each slab; the file's thread makes the
 * kernel do it, by ioctls.
 *
 * Only one thread calls the kernel about a file: DETACH excludes all other such
 * calls until the slab is empty, yet another slab may have to be attached for
 * that. So DETACH gets a slice of time: a timer's signal ends it (EINTR), other
 * work is done, and DETACH is called again; what was moved stays moved. The
 * timer is periodic, because a single signal that came just before the call
 * would be lost.
 *
 * A slab that is asked back waits a moment until the extent gets another one. If no
 * donor has one, DETACH is called all the same; the kernel takes the pages into
 * direct memory if there is room. If not (ENOSPC), donors are asked again.
 *
 * Copies to a slab that lacks pages are made by FILL, a batch a call, at the rate
 * that the guest's faults allow (client/rebuild_pace.c).
 *
 * The kernel's number for a slab is made from its extent and its index among the
 * extent's slabs. Slabs that a killed daemon left with the kernel are taken over by the
 * next one (adopt.c), or marked lost.
 *
 * Locking: only that of client/slab_worker.c.
 *
 * Invariant: a slab is released only when the kernel does not have it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "../proto/wire_format.h"
#include "hostd.h"

#define SLICE_NS (100l * 1000 * 1000)
#define OTHER_NS (1000ull * 1000 * 1000)
#define REFUSED_NS (5000ull * 1000 * 1000)

static_assert(sizeof(struct dcm_hist) == sizeof(struct dcmfs_faults),
	      "histograms differ");

/**
 * struct hostd_slab - a slab of a file
 * @id: the kernel's number for it
 * @ops: how many I/Os its extent had had when it was attached
 * @filled: the cursor of FILL
 */
struct hostd_slab {
	struct dcm_slab_record record;
	u64 id;
	u64 ops;
	u32 filled;
};

static struct hostd_slab *slab_of(struct dcm_slab_record *r)
{
	return container_of(r, struct hostd_slab, record);
}

/* How many I/Os an extent has had so far. */
static u64 extent_ops(const struct hostd_file *f, u32 extent)
{
	struct dcmfs_activity act = { .extent = extent };

	return ioctl(f->fd, DCMFS_IOC_ACTIVITY, &act) ? 0 : act.ops;
}

/**
 * hostd_slab_adopt() - record a slab that the kernel has already
 * @f: its file
 * @slab: the client's record
 * @a: the slab as the kernel lists it
 * @old: its extent is being moved off it
 *
 * Return: false: no memory.
 */
bool hostd_slab_adopt(struct hostd_file *f, struct dcm_client_slab *slab,
		      const struct dcmfs_slab *a, bool old)
{
	struct dcm_slab_record *r =
		dcm_slab_worker_adopt(&f->slabs, slab, a->order, old);

	if (!r)
		return false;
	slab_of(r)->id = a->id;
	slab_of(r)->ops = extent_ops(f, r->extent);
	return true;
}

/* ---- struct dcm_slab_worker_ops, in the file's thread ---- */

static void slab_wake(struct dcm_slab_worker *w)
{
	hostd_file_kick(hostd_file_of(w));
}

/* The kernel's number of an extent's slab @n. */
u64 hostd_slab_number(u32 extent, u32 n)
{
	return DCMFS_SLABS * (u64)extent + 1 + n;
}

/* A free number for a slab of the extent; 0: it has as many slabs as it may. */
static u64 number_free(struct dcm_slab_worker *w, u32 extent)
{
	u64 first = hostd_slab_number(extent, 0);
	struct dcm_slab_record *r;
	u32 taken = 0, i;

	for (r = dcm_slab_worker_first(w, extent); r; r = r->next)
		if (r->attached)
			taken |= 1u << (slab_of(r)->id - first);
	for (i = 0; i < DCMFS_SLABS; i++)
		if (!(taken >> i & 1))
			return first + i;
	return 0;
}

static int slab_attach(struct dcm_slab_worker *w, struct dcm_slab_record *r)
{
	struct hostd_file *f = hostd_file_of(w);
	const struct dcm_client_slab *slab = r->slab;
	struct dcmfs_slab a = {
		.extent = r->extent,
		.fd = -1,
		.id = number_free(w, r->extent),
		.donor = f->number[slab->donor],
		.remote = slab->ref.id,
	};
	int err;

	if (!a.id)
		return -EAGAIN;
	if (slab->transport == DCM_WT_SHM) {
		a.fd = slab->ref.fd;
	} else {
		a.flags = DCMFS_SLAB_REMOTE;
		if (slab->ref.rank == DCM_RANK_FILE)
			a.flags |= DCMFS_SLAB_FILE;
		a.base = slab->ref.base;
		a.rkey = slab->ref.rkey;
	}
	err = ioctl(f->fd, DCMFS_IOC_ATTACH, &a) ? errno : 0;
	/* The extent has all the slabs it may have: wait until one is gone. */
	if (err == EBUSY || err == EINTR ||
	    (err == EEXIST && dcm_slab_worker_other(w, r)))
		return -EAGAIN;
	if (err) {
		/* Ask later: the next slab may be from the same donor. */
		f->ask_ns = hostd_now_ns() + REFUSED_NS;
		if (dcm_log_allow(&f->refused, hostd_now_ns() / 1000000, 60000))
			dcm_log(DCM_LOG_ERR,
				"%s: the kernel refuses a slab for extent %u: %s%s",
				f->path, r->extent, strerror(err),
				err == EINVAL && slab->ref.fd >= 0 ?
					" (it takes none of huge pages: hugepages = no at the donor)" :
					"");
		return -err;
	}
	slab_of(r)->id = a.id;
	slab_of(r)->ops = extent_ops(f, r->extent);
	return 0;
}

static int slab_move(struct dcm_slab_worker *w, struct dcm_slab_record *r)
{
	struct hostd_file *f = hostd_file_of(w);
	struct itimerspec slice = { .it_value.tv_nsec = SLICE_NS,
				    .it_interval.tv_nsec = SLICE_NS };
	const struct itimerspec off = { 0 };
	struct dcmfs_slab a = { .extent = r->extent,
				.fd = -1,
				.id = slab_of(r)->id };
	int err;

	if (timer_settime(f->slice, 0, &slice, NULL)) {
		err = -errno;
		dcm_log(DCM_LOG_ERR,
			"%s: no timer to move a slab off its donor: %s",
			f->path, strerror(-err));
		return err;
	}
	err = ioctl(f->fd, DCMFS_IOC_DETACH, &a) ? -errno : 0;
	timer_settime(f->slice, 0, &off, NULL);
	return err == -EINTR ? -EAGAIN : err;
}

/* ---- copies ---- */

/* Let the rate of a rebuild follow the guest's faults. */
static void rebuild_look(struct hostd_file *f, u64 now)
{
	struct dcm_hist faults;

	if (dcm_rebuild_pace_looks(&f->rebuild, now) &&
	    !ioctl(f->fd, DCMFS_IOC_FAULTS, &faults))
		dcm_rebuild_pace_look(&f->rebuild, now, &faults);
}

static void rebuild_copied(struct hostd_file *f, u64 pages, bool hurry)
{
	if (!f->filling)
		f->rebuild.copied = pages * 4096;
	f->filling = true;
	dcm_rebuild_pace_copied(&f->rebuild, pages * 4096, hurry);
}

static int slab_fill(struct dcm_slab_worker *w, struct dcm_slab_record *r)
{
	struct hostd_file *f = hostd_file_of(w);
	struct dcmfs_fill fill = { .extent = r->extent,
				   .cursor = slab_of(r)->filled };
	u64 now = hostd_now_ns();
	int wait, err;

	rebuild_look(f, now);
	wait = w->hurry ? 0 : dcm_rebuild_pace_wait(&f->rebuild, now);
	if (wait)
		return wait;
	err = ioctl(f->fd, DCMFS_IOC_FILL, &fill) ? errno : 0;
	/* a GC worker uses the extent, or the kernel has no memory just now */
	if (err && err != EAGAIN)
		return err == ENOENT ? 0 : DCM_FILL_PASS_MS;
	slab_of(r)->filled = fill.cursor;
	rebuild_copied(f, fill.filled, w->hurry);
	if (!err)
		return 0;
	return fill.cursor ? -EAGAIN : DCM_FILL_PASS_MS;
}

static bool slab_thin(struct dcm_slab_worker *w, u32 extent)
{
	struct dcmfs_activity act = { .extent = extent };

	return !ioctl(hostd_file_of(w)->fd, DCMFS_IOC_ACTIVITY, &act) &&
	       act.flags & DCMFS_EXTENT_THIN;
}

static u64 slab_lag(struct dcm_slab_worker *w, u32 extent)
{
	struct dcmfs_activity act = { .extent = extent };

	return ioctl(hostd_file_of(w)->fd, DCMFS_IOC_ACTIVITY, &act) ? 0 :
								       act.lag;
}

static void slab_lag_bound(struct dcm_slab_worker *w, u64 pages)
{
	struct dcmfs_tune arg = { .name = "lag_pages", .value = pages };
	struct hostd_file *f = hostd_file_of(w);

	if (ioctl(f->fd, DCMFS_IOC_TUNE, &arg))
		dcm_log(DCM_LOG_ERR,
			"%s: disk-lag can't be set to %llu pages: %s; the kernel keeps its last value",
			f->path, (unsigned long long)pages, strerror(errno));
}

/* ---- losses ---- */

/* Make the kernel mark a slab's pages lost. Returns how many had no other copy. */
static s64 pages_lose(struct hostd_file *f, u32 extent, u64 id)
{
	struct dcmfs_slab a = { .extent = extent, .fd = -1, .id = id };
	struct dcmfs_info info;
	s64 pages;
	int err;

	do {
		err = ioctl(f->fd, DCMFS_IOC_LOST, &a) ? errno : 0;
	} while (err == EINTR);
	if (err && err != ENOENT)
		dcm_log(DCM_LOG_ERR,
			"%s: extent %u: the kernel keeps a slab that is lost: %s",
			f->path, extent, strerror(err));
	if (err || ioctl(f->fd, DCMFS_IOC_INFO, &info) ||
	    info.lost_pages <= f->info.lost_pages)
		return 0;
	pages = (s64)(info.lost_pages - f->info.lost_pages);
	f->info.lost_pages = info.lost_pages;
	return pages;
}

static s64 slab_lose(struct dcm_slab_worker *w, struct dcm_slab_record *r)
{
	return pages_lose(hostd_file_of(w), r->extent, slab_of(r)->id);
}

const struct dcm_slab_worker_ops hostd_slab_ops = {
	.record_bytes = sizeof(struct hostd_slab),
	.other_wait_ns = OTHER_NS,
	.one_move = true,
	.wake = slab_wake,
	.attach = slab_attach,
	.move = slab_move,
	.fill = slab_fill,
	.thin = slab_thin,
	.lag = slab_lag,
	.lag_bound = slab_lag_bound,
	.lose = slab_lose,
};

const struct dcm_client_ops hostd_client_ops = {
	.attached = dcm_slab_worker_attached,
	.evict = dcm_slab_worker_evict,
	.lost = dcm_slab_worker_lost,
	.starved = dcm_slab_worker_starved,
	.session = hostd_session,
	.welcomed = hostd_welcomed,
	.donor = hostd_donor_added,
};

static void slab_count(struct dcm_slab_worker *w, struct dcm_slab_record *r,
		       void *arg)
{
	(void)arg;
	dcm_client_count(r->slab, extent_ops(hostd_file_of(w), r->extent) -
					  slab_of(r)->ops);
}

/* Tell the client each slab's I/O: donors evict the least active slabs. */
void hostd_slabs_count(struct hostd_file *f)
{
	dcm_slab_worker_each(&f->slabs, slab_count, NULL);
}

/* Was a slab that the kernel lists taken over? */
static bool slab_known(struct hostd_file *f, const struct dcmfs_slab *a)
{
	struct dcm_slab_record *r = dcm_slab_worker_first(&f->slabs, a->extent);

	while (r && !(r->attached && slab_of(r)->id == a->id))
		r = r->next;
	return r;
}

static void loss_add(struct dcm_loss *loss, u32 extent, s64 pages)
{
	if (pages > 0)
		dcm_loss_add(loss, extent, (u64)pages);
}

static void loss_log(struct hostd_file *f, struct dcm_loss *loss,
		     const char *cause)
{
	if (loss->nr)
		dcm_loss_log(loss, NULL, cause, f->path, HOSTD_ON_LOSS);
}

/* Mark slabs lost that were not taken over: donors have taken these back. */
void hostd_slabs_inherit(struct hostd_file *f)
{
	struct dcmfs_slab a = { .fd = -1 };
	struct dcm_loss loss = { 0 };

	while (!ioctl(f->fd, DCMFS_IOC_SLAB, &a)) {
		if (!slab_known(f, &a))
			loss_add(&loss, a.extent,
				 pages_lose(f, a.extent, a.id));
		a = (struct dcmfs_slab){ .fd = -1, .id = a.id };
	}
	loss_log(f, &loss, "the dcm-hostd before this one ended");
}

static void slab_leave(struct dcm_slab_worker *w, struct dcm_slab_record *r,
		       void *arg)
{
	loss_add(arg, r->extent, slab_lose(w, r));
	r->attached = false;
}

/* Mark all slabs lost: this process ends, and the kernel must stop using them. */
void hostd_slabs_leave(struct hostd_file *f)
{
	struct dcm_loss loss = { 0 };

	dcm_slab_worker_each(&f->slabs, slab_leave, &loss);
	loss_log(f, &loss, "dcm-hostd ends");
}

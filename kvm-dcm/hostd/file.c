// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * file.c - one file on a dcmfs: its client, its thread, its end
 *
 * A file that is served is open here, for reading only, and an open file keeps
 * its memory: so dcm-hostd must notice when the VM is gone. It uses a lease: F_WRLCK
 * is granted only if this is the only open file of the inode, and a mapping keeps its
 * file open. So it asks for a lease once a second. If it is granted, no other process
 * uses the file; if the file has no name either, none ever will, and it is closed. The
 * lease is given back at once, because it would delay the next open(). A file that
 * still has its name is kept, as on hugetlbfs.
 *
 *	started -> served -> no name, no user: closed, its slabs go back
 *	                '--> told to end: slabs are marked lost, then closed
 *
 * Slabs and sessions that an earlier daemon left with the kernel are taken over
 * (adopt.c). A daemon locks the files that it serves (flock), so that no other daemon
 * takes over files of one that still runs.
 *
 * Some ioctls take long (a DETACH moves a whole slab), so each file has a
 * thread that only does those. It asks for the extents that want slabs when the kernel
 * signals that there are some (POLLPRI) and, until all have one, ten times a second.
 *
 * Locking: see struct hostd_file. The main thread uses a file's descriptor only
 * before the thread is started and after it has ended.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "../lib/clock.h"
#include "hostd.h"

#define LOOK_NS (1000ull * 1000 * 1000)
#define LOOK_MS 1000
#define WANTED_MS 100

u64 hostd_now_ns(void)
{
	return dcm_clock_ns();
}

/* Wake the file's thread. Any thread. */
void hostd_file_kick(struct hostd_file *f)
{
	u64 one = 1;
	ssize_t n = write(f->event, &one, sizeof(one));

	(void)n; /* a full counter wakes the thread as well */
}

/* ---- its thread ---- */

/* Ask donors for the slabs that the kernel wants. True: it wants some. */
static bool wanted_ask(struct hostd_file *f)
{
	struct dcmfs_wanted w = { 0 };
	bool any = false;

	while (!ioctl(f->fd, DCMFS_IOC_WANTED, &w)) {
		if (hostd_now_ns() >= f->ask_ns)
			dcm_client_want(f->client, w.extent);
		any = true;
		w.first = w.extent + 1;
	}
	if (errno != ENOENT)
		dcm_log(DCM_LOG_ERR,
			"%s: the kernel does not say which extents need a slab: %s",
			f->path, strerror(errno));
	return any;
}

/* True: no process has the file, and none can open it any more. */
static bool file_is_unused(struct hostd_file *f)
{
	struct stat st;
	bool alone = !fcntl(f->fd, F_SETLEASE, F_WRLCK);

	if (alone)
		fcntl(f->fd, F_SETLEASE, F_UNLCK);
	WRITE_ONCE(f->used, !alone);
	return alone && !fstat(f->fd, &st) && !st.st_nlink;
}

static void *file_main(void *arg)
{
	struct hostd_file *f = arg;
	struct sigevent ev = { .sigev_notify = SIGEV_THREAD_ID,
			       .sigev_signo = SIGALRM };
	u64 looked = 0, now;

	ev._sigev_un._tid = gettid();
	if (timer_create(CLOCK_MONOTONIC, &ev, &f->slice)) {
		dcm_log(DCM_LOG_ERR, "%s: no timer: %s: it is not served",
			f->path, strerror(errno));
		goto over;
	}
	hostd_slabs_inherit(f);
	smp_store_release(&f->inherited, true);
	while (!smp_load_acquire(&f->stop)) {
		struct pollfd p[] = { { .fd = f->event, .events = POLLIN },
				      { .fd = f->fd, .events = POLLPRI },
				      { .fd = f->links, .events = POLLIN } };
		int again = dcm_slab_worker_round(&f->slabs), ms = LOOK_MS;
		u64 junk;

		if (wanted_ask(f)) {
			/* POLLPRI stays set until it is attached. */
			p[1].fd = -1;
			ms = WANTED_MS;
		}
		now = hostd_now_ns();
		if (now - looked >= LOOK_NS) {
			looked = now;
			f->gone = file_is_unused(f);
			if (f->gone)
				break;
			hostd_links_look(f);
			hostd_slabs_count(f);
		}
		if (again >= 0)
			ms = min(ms, again);
		if (poll(p, 3, ms) <= 0)
			continue;
		if (p[0].revents && read(f->event, &junk, sizeof(junk)) < 0)
			continue;
		if (p[2].revents)
			hostd_links_look(f);
	}
	timer_delete(f->slice);
over:
	smp_store_release(&f->over, true);
	eventfd_write(f->ended, 1);
	return NULL;
}

/* ---- the main thread ---- */

static void file_free(struct hostd_file *f)
{
	if (f->fd >= 0)
		close(f->fd);
	if (f->event >= 0)
		close(f->event);
	if (f->links >= 0)
		close(f->links);
	dcm_slab_worker_free(&f->slabs);
	free(f->path);
	free(f);
}

static void tunables_set(const struct hostd *h, const struct hostd_file *f)
{
	u32 i;

	for (i = 0; i < h->cfg.nr_tunables; i++) {
		const struct dcm_host_tunable *t = &h->cfg.tunable[i];
		struct dcmfs_tune arg = { .value = t->value };

		errno = ENOENT;
		if (strlen(t->name) < sizeof(arg.name))
			strcpy(arg.name, t->name);
		if (!arg.name[0] || ioctl(f->fd, DCMFS_IOC_TUNE, &arg))
			dcm_log(DCM_LOG_WARNING,
				"%s: [tunables] %s = %llu: %s; it keeps its default",
				f->path, t->name, (unsigned long long)t->value,
				errno == ENOENT ? "there is no such tunable" :
				errno == ERANGE ? "out of its range" :
						  strerror(errno));
	}
}

/* Make a file's record. NULL: not to be served; errors are logged. */
static struct hostd_file *file_open(struct hostd *h, const char *path)
{
	struct hostd_file *f;
	struct statfs fs;
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK |
				    O_NOCTTY);

	if (fd < 0) {
		/* Don't log files that are gone again. */
		if (errno != ENOENT && errno != ELOOP)
			dcm_log(DCM_LOG_ERR, "%s: %s: it is not served", path,
				strerror(errno));
		return NULL;
	}
	if (fstat(fd, &st) || fstatfs(fd, &fs) || !S_ISREG(st.st_mode) ||
	    fs.f_type != DCMFS_MAGIC || !st.st_size ||
	    hostd_file_known(h, st.st_dev, st.st_ino)) {
		close(fd);
		return NULL;
	}
	if (flock(fd, LOCK_EX | LOCK_NB)) {
		dcm_log(DCM_LOG_ERR,
			"%s: another dcm-hostd serves it, or somebody has locked it (flock): it is not served",
			path);
		close(fd);
		return NULL;
	}
	f = calloc(1, sizeof(*f));
	if (!f) {
		dcm_log(DCM_LOG_ERR, "%s: no memory: it is not served", path);
		close(fd);
		return NULL;
	}
	f->fd = fd;
	f->dev = st.st_dev;
	f->ino = st.st_ino;
	f->ended = h->ended;
	f->used = true; /* until the thread has looked */
	f->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	f->links = epoll_create1(EPOLL_CLOEXEC);
	f->path = strdup(path);
	if (f->event < 0 || f->links < 0 || !f->path) {
		dcm_log(DCM_LOG_ERR, "%s: %s: it is not served", path,
			strerror(errno));
		goto fail;
	}
	if (ioctl(fd, DCMFS_IOC_INFO, &f->info) ||
	    f->info.version != DCMFS_VERSION || !f->info.pages ||
	    !f->info.extent_pages) {
		dcm_log(DCM_LOG_ERR,
			"%s: this kvm-dcm.ko is not the one this dcm-hostd is made for: it is not served; install both from the same release",
			path);
		goto fail;
	}
	if (dcm_slab_worker_init(&f->slabs, &hostd_slab_ops, f->path,
				 HOSTD_ON_LOSS,
				 (u32)((f->info.pages - 1) /
				       f->info.extent_pages) +
					 1)) {
		dcm_log(DCM_LOG_ERR, "%s: no memory: it is not served", path);
		goto fail;
	}
	return f;
fail:
	file_free(f);
	return NULL;
}

/*
 * Make the kernel seal the file's pages, if they should be sealed. False: it can't, so
 * the file must not be served, as plain pages must not leave.
 */
static bool file_seal(const struct hostd *h, struct hostd_file *f)
{
	const __u32 cipher = DCMFS_SEAL_AES_256_GCM;
	struct hostd_choice choice;

	hostd_choice_read(f, &choice);
	f->sealed = f->info.flags & DCMFS_INFO_SEALED;
	if (f->sealed || !hostd_choice_seal(&choice, h))
		return true;
	f->sealed = !ioctl(f->fd, DCMFS_IOC_SEAL, &cipher);
	if (f->sealed)
		return true;
	if (errno == EBUSY) {
		dcm_log(DCM_LOG_ERR,
			"%s: its pages are not sealed: donors have some already; seal = yes is for files made from now on",
			f->path);
		return true;
	}
	dcm_log(DCM_LOG_ERR,
		"%s: the kernel can't seal its pages: %s%s: it is not served",
		f->path, strerror(errno),
		errno == ENOENT ? " (modprobe gcm)" :
		errno == ENOSPC ? " (mount option metadata)" :
		errno == EFBIG	? " (mount option extent: at most 256G)" :
				  "");
	return false;
}

/*
 * Choose how pages may go to donors. Sealed pages need no other encryption. Plain pages
 * that need encryption never go over RDMA, even if the configuration allows RDMA for
 * sealed files.
 */
static void file_transport(const struct hostd *h, const struct hostd_file *f,
			   struct dcm_client_config *cc)
{
	cc->data_encryption = h->cfg.data_encryption && !f->sealed;
	cc->transport = cc->data_encryption && h->cfg.transport ==
						       DCM_TRANSPORT_VERBS ?
				DCM_TRANSPORT_TCP :
				h->cfg.transport;
}

/* Serve the file at @path, unless it is served already or should not be. */
void hostd_file_start(struct hostd *h, const char *path)
{
	struct dcm_client_config cc = {
		.tenant = h->key.tenant,
		.key = h->key.key,
		.key_len = h->key.len,
		.patience_ms = (u32)h->cfg.patience_ms,
		.links = &hostd_links,
		.adopt = hostd_adopt,
		.no_populate = true,
	};
	struct hostd_file *f;
	int err;

	if (h->nr_files >= HOSTD_FILES_MAX) {
		if (dcm_log_allow(&h->full, hostd_now_ns() / 1000000, 60000))
			dcm_log(DCM_LOG_ERR,
				"%s: not served: there are %u files already",
				path, HOSTD_FILES_MAX);
		return;
	}
	f = file_open(h, path);
	if (!f)
		return;
	tunables_set(h, f);
	if (!file_seal(h, f)) {
		file_free(f);
		return;
	}
	file_transport(h, f, &cc);
	hostd_donors_find(h, f);
	cc.donors = f->donor;
	cc.nr_donors = f->nr_donors;
	cc.nr_lanes = f->info.lanes;
	cc.extent = f->info.extent_pages * 4096;
	cc.size = f->info.pages * 4096;
	cc.redundancy = f->redundancy;
	cc.scatter = h->cfg.scatter;
	cc.cold_after_ms = (u32)h->cfg.cold_after_ms;
	f->rebuild.limit = h->cfg.rebuild_rate;
	f->slabs.lag_most = dcm_redundancy_lag(f->redundancy, h->cfg.disk_lag);
	err = dcm_client_start(&cc, &hostd_client_ops, &f->slabs, &f->client);
	if (err) {
		dcm_log(DCM_LOG_ERR,
			"%s: no client for its donors: %s: it is not served",
			path, strerror(-err));
		file_free(f);
		return;
	}
	err = pthread_create(&f->thread, NULL, file_main, f);
	if (err) {
		dcm_log(DCM_LOG_ERR, "%s: no thread: %s: it is not served",
			path, strerror(err));
		dcm_client_stop(f->client);
		file_free(f);
		return;
	}
	pthread_setname_np(f->thread, "dcm-file");
	hostd_donors_apply(h, f);
	f->next = h->files;
	h->files = f;
	h->nr_files++;
	dcm_log(DCM_LOG_INFO, "%s: served: %llu MiB in extents of %llu MiB",
		path, (unsigned long long)(cc.size >> 20),
		(unsigned long long)(cc.extent >> 20));
}

bool hostd_file_known(const struct hostd *h, dev_t dev, ino_t ino)
{
	const struct hostd_file *f;

	for (f = h->files; f; f = f->next)
		if (f->dev == dev && f->ino == ino)
			return true;
	return false;
}

/*
 * Stop serving a file. Its memory goes first: the kernel must not use slabs
 * that donors may give to others.
 */
void hostd_file_stop(struct hostd *h, struct hostd_file *f)
{
	struct hostd_file **p;

	smp_store_release(&f->stop, true);
	hostd_file_kick(f);
	pthread_join(f->thread, NULL);
	if (f->gone) {
		/* Closing frees its memory, and ends its links. */
		close(f->fd);
		f->fd = -1;
	} else {
		hostd_slabs_leave(f);
	}
	dcm_client_stop(f->client);
	if (f->gone)
		dcm_log(DCM_LOG_INFO, "%s: gone; donors have their memory back",
			f->path);
	for (p = &h->files; *p != f; p = &(*p)->next)
		;
	*p = f->next;
	h->nr_files--;
	file_free(f);
}

/* Stop the files whose thread has ended. */
void hostd_files_reap(struct hostd *h)
{
	struct hostd_file *f, *next;

	for (f = h->files; f; f = next) {
		next = f->next;
		if (!smp_load_acquire(&f->over))
			continue;
		/* if the GC device's thread still runs, wait: it writes @ended */
		hostd_gc_stop(f);
		if (!f->gc)
			hostd_file_stop(h, f);
	}
}

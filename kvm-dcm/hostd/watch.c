// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * watch.c - find the files on each dcmfs
 *
 * Mounts are read from /proc/self/mounts, again whenever the kernel signals a
 * change (poll() on that file). Those of the configuration are used, or all.
 * Directories are watched by inotify, and scanned after the watch is set, so that no
 * file is missed. A file is served once it has a size; setting the size is a
 * modification, which inotify reports. A file that is seen twice is recognized by its
 * inode number (hostd_file_known()).
 *
 * A watch keeps no file system mounted; a file that is served does.
 *
 * Any user who may write to the mount chooses the names: paths, depth and
 * numbers are bounded, names that would spoil a log line are skipped, and
 * nothing leads out of the mount (dcmfs has no symbolic links).
 *
 * Locking: the main thread's.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <mntent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "hostd.h"

#define MOUNTS		"/proc/self/mounts"
#define DIRS_MAX	4096u
#define DEPTH_MAX	16u
#define WATCHED                                                           \
	(IN_CREATE | IN_MOVED_TO | IN_MODIFY | IN_DELETE_SELF | IN_ONLYDIR | \
	 IN_DONT_FOLLOW | IN_EXCL_UNLINK)

/**
 * struct hostd_dir - a directory that is watched
 * @wd: inotify's number
 * @depth: 0: the top of a mount
 * @seen: mark of a scan: its mount is still there, or it was scanned
 */
struct hostd_dir {
	struct hostd_dir *next;
	int wd;
	u32 depth;
	bool seen;
	char path[];
};

static struct hostd_dir *dir_find(const struct hostd *h, int wd)
{
	struct hostd_dir *d;

	for (d = h->dirs; d; d = d->next)
		if (d->wd == wd)
			break;
	return d;
}

static u32 dirs_count(const struct hostd *h)
{
	const struct hostd_dir *d;
	u32 n = 0;

	for (d = h->dirs; d; d = d->next)
		n++;
	return n;
}

static void dir_forget(struct hostd *h, struct hostd_dir *d)
{
	struct hostd_dir **p;

	for (p = &h->dirs; *p != d; p = &(*p)->next)
		;
	*p = d->next;
	if (!d->depth)
		dcm_log(DCM_LOG_INFO, "%s: not mounted any more", d->path);
	free(d);
}

static void dir_add(struct hostd *h, const char *path, u32 depth);

static bool on_dcmfs(const char *path)
{
	struct statfs fs;

	return !statfs(path, &fs) && fs.f_type == DCMFS_MAGIC;
}

static void entry_look(struct hostd *h, const struct hostd_dir *d,
		       const char *name)
{
	char path[HOSTD_PATH_MAX];
	const char *p;
	struct stat st;
	int n = snprintf(path, sizeof(path), "%s/%s", d->path, name);

	/* Skip names with control characters: names go into the log. */
	for (p = name; *p; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			return;
	if (n < 0 || (size_t)n >= sizeof(path) || lstat(path, &st))
		return;
	if (S_ISDIR(st.st_mode))
		dir_add(h, path, d->depth + 1);
	else if (S_ISREG(st.st_mode) && st.st_size &&
		 !hostd_file_known(h, st.st_dev, st.st_ino))
		hostd_file_start(h, path);
}

static void dir_scan(struct hostd *h, const struct hostd_dir *d)
{
	DIR *dir = opendir(d->path);
	struct dirent *e;

	if (!dir)
		return;
	while ((e = readdir(dir)))
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			entry_look(h, d, e->d_name);
	closedir(dir);
}

static void dir_add(struct hostd *h, const char *path, u32 depth)
{
	size_t len = strlen(path) + 1;
	struct hostd_dir *d;
	int wd;

	if (depth > DEPTH_MAX || dirs_count(h) >= DIRS_MAX) {
		if (dcm_log_allow(&h->full, hostd_now_ns() / 1000000, 60000))
			dcm_log(DCM_LOG_ERR,
				"%s: files there are not served: more than %u directories, or %u in each other",
				path, DIRS_MAX, DEPTH_MAX);
		return;
	}
	/* Another file system may be mounted on a directory of this one. */
	if (!on_dcmfs(path))
		return;
	wd = inotify_add_watch(h->inotify, path, WATCHED);
	if (wd < 0) {
		if (errno != ENOENT && errno != ENOTDIR)
			dcm_log(DCM_LOG_ERR,
				"%s: can't be watched, files there are not served: %s",
				path, strerror(errno));
		return;
	}
	d = dir_find(h, wd);
	if (d && strcmp(d->path, path)) {
		/* The directory was renamed. */
		dir_forget(h, d);
		d = NULL;
	}
	if (!d) {
		d = calloc(1, sizeof(*d) + len);
		if (!d) {
			dcm_log(DCM_LOG_ERR, "%s: no memory to watch it", path);
			inotify_rm_watch(h->inotify, wd);
			return;
		}
		memcpy(d->path, path, len);
		d->wd = wd;
		d->depth = depth;
		d->next = h->dirs;
		h->dirs = d;
		if (!depth)
			dcm_log(DCM_LOG_INFO, "%s: files there are served",
				path);
	}
	d->seen = true;
	dir_scan(h, d);
}

static bool mount_chosen(const struct hostd *h, const char *path)
{
	u32 i;

	for (i = 0; i < h->cfg.nr_mounts; i++)
		if (!strcmp(h->cfg.mount[i], path))
			return true;
	return !h->cfg.nr_mounts;
}

static struct hostd_dir *mount_find(const struct hostd *h, const char *path)
{
	struct hostd_dir *d;

	for (d = h->dirs; d; d = d->next)
		if (!d->depth && !strcmp(d->path, path))
			break;
	return d;
}

/* Watch each dcmfs that is mounted now and not watched yet. */
void hostd_watch_mounts(struct hostd *h)
{
	FILE *f = setmntent(MOUNTS, "re");
	struct mntent *m;

	if (!f) {
		dcm_log(DCM_LOG_ERR,
			"%s: %s: files of new mounts are not served until it can be read",
			MOUNTS, strerror(errno));
		return;
	}
	while ((m = getmntent(f)))
		if (!strcmp(m->mnt_type, "dcmfs") &&
		    mount_chosen(h, m->mnt_dir) && !mount_find(h, m->mnt_dir))
			dir_add(h, m->mnt_dir, 0);
	endmntent(f);
}

static void dirs_rescan(struct hostd *h)
{
	struct hostd_dir *d;
	bool more = true;

	dcm_log(DCM_LOG_WARNING,
		"inotify events were lost: looking through all directories again");
	for (d = h->dirs; d; d = d->next)
		d->seen = false;
	/* Start over after each scan, as it changes the list. */
	while (more) {
		more = false;
		for (d = h->dirs; d && !more; d = d->next) {
			if (d->seen)
				continue;
			d->seen = true;
			more = true;
			dir_scan(h, d);
		}
	}
}

static void event_handle(struct hostd *h, const struct inotify_event *e)
{
	struct hostd_dir *d;

	if (e->mask & IN_Q_OVERFLOW) {
		dirs_rescan(h);
		return;
	}
	d = dir_find(h, e->wd);
	if (!d)
		return;
	if (e->mask & IN_IGNORED) {
		bool mount = !d->depth;

		dir_forget(h, d);
		/* Another dcmfs may be mounted there already. */
		if (mount)
			hostd_watch_mounts(h);
	} else if (e->len && memchr(e->name, 0, e->len)) {
		entry_look(h, d, e->name);
	}
}

/* Read inotify's events. */
void hostd_watch_read(struct hostd *h)
{
	char buf[16384] __attribute__((aligned(8)));
	ssize_t n;

	while ((n = read(h->inotify, buf, sizeof(buf))) > 0) {
		const struct inotify_event *e;
		char *p;

		for (p = buf; p < buf + n; p += sizeof(*e) + e->len) {
			e = (const struct inotify_event *)p;
			event_handle(h, e);
		}
	}
}

/* Start to watch. 0 or a negative errno, which has been logged. */
int hostd_watch_start(struct hostd *h)
{
	h->inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	h->mounts = open(MOUNTS, O_RDONLY | O_CLOEXEC);
	if (h->inotify < 0 || h->mounts < 0) {
		int err = -errno;

		dcm_log(DCM_LOG_ERR, "%s: %s",
			h->inotify < 0 ? "inotify" : MOUNTS, strerror(-err));
		return err;
	}
	hostd_watch_mounts(h);
	if (!h->dirs)
		dcm_log(DCM_LOG_NOTICE,
			"no dcmfs is mounted%s; waiting for one (modprobe kvm-dcm; mount -t dcmfs -o budget=4G dcm /mnt/dcm)",
			h->cfg.nr_mounts ? " where [host] mount= says" : "");
	return 0;
}

void hostd_watch_stop(struct hostd *h)
{
	if (h->inotify >= 0)
		close(h->inotify);
	if (h->mounts >= 0)
		close(h->mounts);
	while (h->dirs) {
		struct hostd_dir *d = h->dirs;

		h->dirs = d->next;
		free(d);
	}
}

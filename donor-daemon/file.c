// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * file.c - files as slabs: the directory, a slab's file, the disk's free space
 *
 * With medium = file a slab is a file instead of a memfd, with the same properties: it
 * has one owner in its life, all its blocks are allocated before it is lent, and it
 * reads zero until written. It has no name (O_TMPFILE), so when the donor ends in any
 * way, the file system frees it, and nothing has to be cleaned up at the next start.
 *
 * I/O is direct: the page cache would take memory of this host for pages that
 * their own host has just sent away. File systems without direct I/O, or without
 * O_TMPFILE, are refused at the start.
 *
 * No state, no locks.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "file.h"

#define PAGE_BYTES 4096u

int dcm_file_new(int dir)
{
	int fd = openat(dir, ".", O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC,
			0600);

	return fd < 0 ? -errno : fd;
}

int dcm_file_space(int dir, struct dcm_hostmem *hm)
{
	struct statvfs st;

	if (fstatvfs(dir, &st))
		return -errno;
	hm->total = (u64)st.f_blocks * st.f_frsize;
	hm->free = (u64)st.f_bavail * st.f_frsize;
	return hm->total ? 0 : -EINVAL;
}

/* Try to write and read one page of a new file. %NULL, or what has failed. */
static const char *file_try(int fd, int *error)
{
	void *page = NULL;
	const char *what = NULL;

	*error = -posix_memalign(&page, PAGE_BYTES, PAGE_BYTES);
	if (*error)
		return "no memory to try it";
	memset(page, 0, PAGE_BYTES);
	errno = EIO;
	if (fallocate(fd, 0, 0, PAGE_BYTES))
		what = "its file system can't allocate a file ahead";
	else if (pwrite(fd, page, PAGE_BYTES, 0) != PAGE_BYTES ||
		 pread(fd, page, PAGE_BYTES, 0) != PAGE_BYTES)
		what = "a page can't be written there and read back by direct I/O";
	if (what)
		*error = -errno;
	free(page);
	return what;
}

int dcm_file_dir_open(const char *path, char *err, size_t err_len)
{
	int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const char *what;
	int fd, ret;

	if (dir < 0) {
		ret = -errno;
		snprintf(err, err_len, "[donor] path = %s: %s", path,
			 strerror(-ret));
		return ret;
	}
	fd = dcm_file_new(dir);
	if (fd >= 0) {
		what = file_try(fd, &ret);
		close(fd);
	} else {
		ret = fd;
		what = ret == -EINVAL ?
			       "its file system has no direct I/O; use one that has, such as ext4 or XFS on a disk" :
		       ret == -EOPNOTSUPP || ret == -EISDIR ?
			       "its file system has no files without a name (O_TMPFILE); use one that has, such as ext4 or XFS on a disk" :
			       "no file can be made there";
	}
	if (!what)
		return dir;
	snprintf(err, err_len, "[donor] path = %s: %s: %s", path, what,
		 strerror(-ret));
	close(dir);
	return ret;
}

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * open.c - no O_DIRECT where a page under I/O could be evicted
 *
 * Without UFFDIO_MOVE (before Linux 6.8) the pager can't see that a page is
 * pinned for I/O by a device, which could then write to a page after its
 * eviction. So there files are opened without O_DIRECT, and I/O goes through
 * the page cache. On later kernels these functions only pass the call on.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shim.h"

static int (*next_openat)(int, const char *, int, ...);
static int (*next_fcntl)(int, int, ...);

void dcm_open_ready(void)
{
	next_fcntl = (int (*)(int, int, ...))dlsym(RTLD_NEXT, "fcntl64");
	next_openat = (int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT,
								  "openat64");
}

static int file_open(int dir, const char *path, int flags, va_list ap)
{
	mode_t mode = 0;

	if ((flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE)
		mode = va_arg(ap, mode_t);
	if (dcm_shim.no_direct)
		flags &= ~O_DIRECT;
	if (next_openat)
		return next_openat(dir, path, flags, mode);
	return (int)syscall(SYS_openat, dir, path, flags | O_LARGEFILE, mode);
}

DCM_EXPORT int open(const char *path, int flags, ...)
{
	va_list ap;
	int fd;

	va_start(ap, flags);
	fd = file_open(AT_FDCWD, path, flags, ap);
	va_end(ap);
	return fd;
}

DCM_EXPORT int openat(int dir, const char *path, int flags, ...)
{
	va_list ap;
	int fd;

	va_start(ap, flags);
	fd = file_open(dir, path, flags, ap);
	va_end(ap);
	return fd;
}

DCM_EXPORT int open64(const char *path, int flags, ...)
	__attribute__((alias("open")));
DCM_EXPORT int openat64(int dir, const char *path, int flags, ...)
	__attribute__((alias("openat")));

/* F_SETFL can set it as well. */
DCM_EXPORT int fcntl(int fd, int cmd, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, cmd);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (cmd == F_SETFL && dcm_shim.no_direct)
		arg = (void *)((unsigned long)arg & ~(unsigned long)O_DIRECT);
	if (next_fcntl)
		return next_fcntl(fd, cmd, arg);
	return (int)syscall(SYS_fcntl, fd, cmd, arg);
}

DCM_EXPORT int fcntl64(int fd, int cmd, ...) __attribute__((alias("fcntl")));

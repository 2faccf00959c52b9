// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * uffd.c - userfaultfd: open, probe, and a function for each ioctl used
 *
 * Faults that the kernel takes for the process (a system call on a guest
 * buffer, KVM) must come here too, so user-mode-only userfaultfd is of no use
 * and a permission is needed: access to /dev/userfaultfd (6.1), CAP_SYS_PTRACE,
 * or vm.unprivileged_userfaultfd. Features newer than 6.1 are probed for, and a
 * flag can turn each off, so that the fallback is tested on any kernel.
 *
 * Every function here continues ioctls that the kernel interrupts (EAGAIN, partial
 * copies), so that a caller sees success or failure only.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../core/pd.h"
#include "uffd.h"

#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)
#endif

#define FEATURES_NEEDED (UFFD_FEATURE_PAGEFAULT_FLAG_WP)

static int uffd_open_fd(int *why)
{
	int fd, dev = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);

	if (dev >= 0) {
		fd = ioctl(dev, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
		close(dev);
		if (fd >= 0)
			return fd;
	}
	fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	*why = errno;
	return fd;
}

/* Ask for features, on a descriptor of its own: it can't be used afterwards. */
static int features_probe(u64 *features, int *why)
{
	struct uffdio_api api = { .api = UFFD_API };
	int fd = uffd_open_fd(why), rc;

	if (fd < 0)
		return -1;
	rc = ioctl(fd, UFFDIO_API, &api);
	*why = errno;
	close(fd);
	*features = api.features;
	return rc;
}

/* May this process use process_madvise() on itself: one TLB flush for many ranges? */
static void vector_probe(struct dcm_uffd *u)
{
	char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct iovec iov[2];

	u->vector = false;
	u->pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	if (p == MAP_FAILED)
		return;
	if (u->pidfd >= 0) {
		p[0] = 1;
		iov[0] = (struct iovec){ p, 4096 };
		iov[1] = (struct iovec){ p + 4096, 4096 };
		u->vector = syscall(SYS_process_madvise, u->pidfd, iov, 2,
				    MADV_DONTNEED, 0) == 8192 &&
			    p[0] == 0;
	}
	munmap(p, 8192);
}

static int error_text(char *err, size_t len, int why)
{
	if (why == EPERM || why == EACCES)
		snprintf(err, len,
			 "no permission for userfaultfd: as root run `setfacl -m u:%u:rw /dev/userfaultfd` or `sysctl vm.unprivileged_userfaultfd=1`",
			 (unsigned int)getuid());
	else if (why == ENOSYS)
		snprintf(err, len,
			 "this kernel has no userfaultfd: it needs CONFIG_USERFAULTFD=y");
	else
		snprintf(err, len, "userfaultfd: %s", strerror(why));
	return -why;
}

/**
 * dcm_uffd_open() - open and probe
 * @u: filled in
 * @flags: DCM_UFFD_*: newer features not to use
 * @err: one line on failure
 * @len: size of @err
 */
int dcm_uffd_open(struct dcm_uffd *u, unsigned int flags, char *err, size_t len)
{
	u64 have = 0, want = FEATURES_NEEDED;
	struct uffdio_api api = { .api = UFFD_API };
	int why = 0;

	if (features_probe(&have, &why))
		return error_text(err, len, why);
	if ((have & FEATURES_NEEDED) != FEATURES_NEEDED) {
		snprintf(err, len,
			 "this kernel's userfaultfd can't write-protect: Linux 6.1 or later is needed");
		return -ENOSYS;
	}
	if (flags & DCM_UFFD_NO_MOVE)
		have &= ~(u64)UFFD_FEATURE_MOVE;
	if (flags & DCM_UFFD_NO_POISON)
		have &= ~(u64)UFFD_FEATURE_POISON;
	want |= have & (UFFD_FEATURE_MOVE | UFFD_FEATURE_POISON |
			UFFD_FEATURE_THREAD_ID);
	u->fd = uffd_open_fd(&why);
	if (u->fd < 0)
		return error_text(err, len, why);
	api.features = want;
	if (ioctl(u->fd, UFFDIO_API, &api)) {
		why = errno;
		close(u->fd);
		return error_text(err, len, why);
	}
	u->move = want & UFFD_FEATURE_MOVE;
	u->poison = want & UFFD_FEATURE_POISON;
	u->thread_id = want & UFFD_FEATURE_THREAD_ID;
	vector_probe(u);
	if (flags & DCM_UFFD_NO_VECTOR)
		u->vector = false;
	return 0;
}

void dcm_uffd_close(struct dcm_uffd *u)
{
	close(u->fd);
	if (u->pidfd >= 0)
		close(u->pidfd);
}

int dcm_uffd_register(struct dcm_uffd *u, u64 addr, u64 bytes, bool missing)
{
	struct uffdio_register r = {
		.range = { addr, bytes },
		.mode = UFFDIO_REGISTER_MODE_WP |
			(missing ? UFFDIO_REGISTER_MODE_MISSING : 0),
	};

	return ioctl(u->fd, UFFDIO_REGISTER, &r) ? -errno : 0;
}

int dcm_uffd_unregister(struct dcm_uffd *u, u64 addr, u64 bytes)
{
	struct uffdio_range r = { addr, bytes };

	return ioctl(u->fd, UFFDIO_UNREGISTER, &r) ? -errno : 0;
}

/**
 * dcm_uffd_copy() - map pages with a copy of @src, and wake
 *
 * Return: 0 or a negative errno; on failure some of the pages may be mapped.
 */
int dcm_uffd_copy(struct dcm_uffd *u, u64 dst, const void *src, u64 bytes,
		  unsigned int mode)
{
	u64 done = 0;

	while (done < bytes) {
		struct uffdio_copy c = {
			.dst = dst + done,
			.src = (u64)(uintptr_t)src + done,
			.len = bytes - done,
			.mode = (mode & DCM_UFFD_WP ? UFFDIO_COPY_MODE_WP : 0) |
				(mode & DCM_UFFD_QUIET ?
					 UFFDIO_COPY_MODE_DONTWAKE :
					 0),
		};

		if (!ioctl(u->fd, UFFDIO_COPY, &c))
			return 0;
		if (c.copy > 0)
			done += (u64)c.copy;
		else if (errno != EAGAIN && errno != ENOMEM)
			return -errno;
		else
			sched_yield();
	}
	return 0;
}

static bool page_is_hole(u64 addr)
{
	unsigned char there = 1;

	return !mincore((void *)(uintptr_t)addr, DCM_PAGE_SIZE, &there) &&
	       !there;
}

/**
 * dcm_uffd_move() - move pages to addresses that have none; holes are allowed
 * @moved: out: bytes done, also on failure
 *
 * Linux 6.18 can move pages without counting them: when an accessed bit changes
 * meanwhile it starts over, moves them, does not count them, finds them at @dst
 * and returns EEXIST. A caller that took this for failure would lose them.
 *
 * Return: 0, -EBUSY at a page that is pinned, or another errno.
 */
int dcm_uffd_move(struct dcm_uffd *u, u64 dst, u64 src, u64 bytes, bool wake,
		  u64 *moved)
{
	u64 done = 0;

	while (done < bytes) {
		struct uffdio_move m = {
			.dst = dst + done,
			.src = src + done,
			.len = bytes - done,
			.mode = UFFDIO_MOVE_MODE_ALLOW_SRC_HOLES |
				(wake ? 0 : UFFDIO_MOVE_MODE_DONTWAKE),
		};

		if (!ioctl(u->fd, UFFDIO_MOVE, &m)) {
			done = bytes;
			break;
		}
		/* EAGAIN or another error: @m.move is what was moved so far. */
		if (m.move > 0) {
			done += (u64)m.move;
		} else if (errno == EEXIST && page_is_hole(src + done)) {
			if (wake)
				dcm_uffd_wake(u, dst + done, DCM_PAGE_SIZE);
			done += DCM_PAGE_SIZE;
		} else if (errno != EAGAIN && errno != ENOMEM) {
			*moved = done;
			return -errno;
		} else {
			sched_yield();
		}
	}
	*moved = done;
	return 0;
}

int dcm_uffd_protect(struct dcm_uffd *u, u64 addr, u64 bytes, bool wp)
{
	struct uffdio_writeprotect w = {
		.range = { addr, bytes },
		.mode = wp ? UFFDIO_WRITEPROTECT_MODE_WP : 0,
	};

	while (ioctl(u->fd, UFFDIO_WRITEPROTECT, &w)) {
		if (errno != EAGAIN)
			return -errno;
		sched_yield();
	}
	return 0;
}

void dcm_uffd_wake(struct dcm_uffd *u, u64 addr, u64 bytes)
{
	struct uffdio_range r = { addr, bytes };

	ioctl(u->fd, UFFDIO_WAKE, &r);
}

int dcm_uffd_poison(struct dcm_uffd *u, u64 addr, u64 bytes)
{
	struct uffdio_poison p = { .range = { addr, bytes } };

	while (ioctl(u->fd, UFFDIO_POISON, &p)) {
		if (errno != EAGAIN)
			return -errno;
		sched_yield();
	}
	return 0;
}

/**
 * dcm_uffd_drop() - drop the pages of many ranges
 * @iov: ranges, at most 1024; modified
 *
 * With one TLB flush for all of them where the kernel can do that.
 */
void dcm_uffd_drop(struct dcm_uffd *u, struct iovec *iov, unsigned int nr)
{
	unsigned int i = 0;

	while (u->vector && i < nr) {
		ssize_t n = syscall(SYS_process_madvise, u->pidfd, iov + i,
				    nr - i, MADV_DONTNEED, 0);

		if (n <= 0)
			break;
		while (i < nr && (size_t)n >= iov[i].iov_len)
			n -= (ssize_t)iov[i++].iov_len;
		if (n > 0 && i < nr) {
			iov[i].iov_base = (char *)iov[i].iov_base + n;
			iov[i].iov_len -= (size_t)n;
		}
	}
	for (; i < nr; i++)
		madvise(iov[i].iov_base, iov[i].iov_len, MADV_DONTNEED);
}

/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * hostd_stubs.h - the rest of dcm-hostd for hostd/gc.c and hostd/window.c: a file has no slabs
 *
 * After cmocka.h.
 */
#ifndef TEST_HOSTD_STUBS_H
#define TEST_HOSTD_STUBS_H

#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "hostd/hostd.h"

void hostd_unlisten(int *fd, const char *name)
{
	close(*fd);
	unlink(name);
	*fd = -1;
}

u64 hostd_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (u64)ts.tv_sec * 1000000000u + (u64)ts.tv_nsec;
}

bool dcm_slab_worker_where(struct dcm_slab_worker *w, u32 extent, u32 *donor,
			   u64 *slab)
{
	(void)w;
	(void)extent;
	(void)donor;
	(void)slab;
	return false;
}

bool dcm_slab_worker_losing(struct dcm_slab_worker *w)
{
	(void)w;
	return false;
}

int hostd_listen(const char *name, int type, mode_t mode, u32 backlog)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", name);
	assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	assert_int_equal(chmod(name, mode), 0);
	assert_int_equal(listen(fd, (int)backlog), 0);
	return fd;
}

#endif /* TEST_HOSTD_STUBS_H */

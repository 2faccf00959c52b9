/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * hostd_stubs.h - the rest of dcm-hostd for hostd/gc.c and hostd/window.c
 *
 * A file has no slabs; sockets are real. After cmocka.h.
 */
#ifndef TEST_HOSTD_STUBS_H
#define TEST_HOSTD_STUBS_H

#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "hostd_no_slabs.h"

void hostd_unlisten(int *fd, const char *name)
{
	close(*fd);
	unlink(name);
	*fd = -1;
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

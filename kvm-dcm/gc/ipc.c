// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * ipc.c - one message between a virtio-gc device and dcm-hostd
 *
 * The socket keeps messages apart and sends each whole or not at all, so two
 * threads may send without a lock.
 */
#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "ipc.h"

int dcm_gc_ipc_send(int sock, const struct dcm_gc_ipc *s, const void *more,
		    size_t bytes)
{
	struct iovec iov[] = { { (void *)s, sizeof(*s) },
			       { (void *)more, bytes } };
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = 2 };

	return sendmsg(sock, &m, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

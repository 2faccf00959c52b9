// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * proxy_connect.c - a virtio-gc device connects to dcm-hostd
 *
 * The daemon works on the window's file for this process only if the process
 * proves that it may write to the file (ipc.h). It then gives its features and
 * configuration, and gets the guest's state: the features that were agreed on,
 * and the requests that made spaces and types.
 *
 *	connect -> HELLO, PROVE, PROVED -> WELCOME -> START -> replay
 *
 * If a step fails the socket is closed, and the caller begins anew. A new daemon must
 * answer each request of the replay with OK, as the earlier daemon did.
 *
 * Locking: the caller is the proxy's thread, or has not started it, so nothing
 * else uses @replay and @buf. @lock is taken to change features and
 * configuration. A reset or start that comes meanwhile is noticed before the
 * socket is used (sock_set() in proxy.c).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proxy_int.h"

#define PATIENCE_S 5 /* for messages that are answered at once */

/* Receive a message of @kind; returns its payload's bytes or -errno. */
static ssize_t msg_expect(struct proxy *p, int sock, u32 kind, char *err,
			  size_t len)
{
	const struct dcm_gc_ipc *s = (void *)p->buf;
	ssize_t n = recv(sock, p->buf, sizeof(p->buf), 0);

	if (n < 0)
		return -errno;
	if (n < (ssize_t)sizeof(*s))
		return -ECONNRESET;
	n -= (ssize_t)sizeof(*s);
	if (s->kind == DCM_GC_IPC_REFUSED) {
		snprintf(err, len, "%.*s", (int)min(n, (ssize_t)200),
			 (const char *)(s + 1));
		return -EPERM;
	}
	return s->kind == kind ? n : -EPROTO;
}

/* Send a new daemon the features, and the requests that made the spaces. */
static int spaces_replay(struct proxy *p, int sock)
{
	struct dcm_gc_ipc s = { .kind = DCM_GC_IPC_START,
				.value = p->replayed };
	int err = p->replayed ? dcm_gc_ipc_send(sock, &s, NULL, 0) : 0;
	u32 i;

	s = (struct dcm_gc_ipc){ .kind = DCM_GC_IPC_REQUEST,
				 .room = sizeof(struct virtio_gc_done) };
	for (i = 0; i < DCM_GC_SPACES_MAX; i++) {
		const struct sent *t;

		for (t = p->replay[i]; !err && t; t = t->next) {
			const struct virtio_gc_done *d =
				(void *)((struct dcm_gc_ipc *)p->buf + 1);
			ssize_t n;

			err = dcm_gc_ipc_send(sock, &s, t->raw, t->bytes);
			if (err)
				break;
			n = msg_expect(p, sock, DCM_GC_IPC_ANSWER, NULL, 0);
			if (n < 0)
				err = (int)n;
			else if (n < (ssize_t)sizeof(*d) || d->status)
				err = -EAGAIN;
		}
	}
	return err;
}

/* Lock the byte at @at for our open file, or unlock it: 0 or -errno. */
static int file_lock(const struct proxy *p, u64 at, short type)
{
	struct flock l = { .l_type = type,
			   .l_whence = SEEK_SET,
			   .l_start = (off_t)at,
			   .l_len = 1 };

	return fcntl(p->file, F_OFD_SETLK, &l) ? -errno : 0;
}

/* Name the file, and prove write access to it. Returns the length of the WELCOME. */
static ssize_t file_prove(struct proxy *p, int sock, char *err, size_t len)
{
	struct dcm_gc_ipc s = { .kind = DCM_GC_IPC_HELLO,
				.room = DCM_GC_IPC_KNOWS_PART |
					DCM_GC_IPC_KNOWS_BUDGET |
					DCM_GC_IPC_KNOWS_MOVED,
				.value = DCM_GC_IPC_VERSION };
	const struct dcm_gc_ipc *prove = (void *)p->buf;
	struct dcm_gc_ipc_file file;
	struct stat st;
	ssize_t n;
	u64 at;
	int rc;

	if (fstat(p->file, &st))
		return -errno;
	file = (struct dcm_gc_ipc_file){ st.st_dev, st.st_ino };
	rc = dcm_gc_ipc_send(sock, &s, &file, sizeof(file));
	n = rc ? rc : msg_expect(p, sock, DCM_GC_IPC_PROVE, err, len);
	if (n)
		return n < 0 ? n : -EPROTO;
	at = prove->value;
	rc = file_lock(p, at, F_WRLCK);
	if (rc) {
		snprintf(err, len, "the file can't be locked: %s",
			 strerror(-rc));
		return rc;
	}
	s = (struct dcm_gc_ipc){ .kind = DCM_GC_IPC_PROVED };
	rc = dcm_gc_ipc_send(sock, &s, NULL, 0);
	n = rc ? rc : msg_expect(p, sock, DCM_GC_IPC_WELCOME, err, len);
	file_lock(p, at, F_UNLCK);
	return n;
}

void gc_proxy_welcome(struct proxy *p, const struct dcm_gc_ipc *welcome)
{
	pthread_mutex_lock(&p->lock);
	p->available = welcome->value;
	p->budget = welcome->token;
	memcpy(&p->config, welcome + 1, DCM_GC_CONFIG_BYTES);
	pthread_mutex_unlock(&p->lock);
}

int gc_proxy_connect(struct proxy *p, char *err, size_t len)
{
	struct timeval limit = { .tv_sec = PATIENCE_S };
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), rc;
	const struct dcm_gc_ipc *welcome = (void *)p->buf;
	ssize_t n;

	*err = 0;
	if (sock < 0 ||
	    connect(sock, (struct sockaddr *)&p->sa, sizeof(p->sa))) {
		rc = -errno;
		goto fail;
	}
	setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	n = file_prove(p, sock, err, len);
	rc = n == (ssize_t)DCM_GC_CONFIG_BYTES ? 0 : n < 0 ? (int)n : -EPROTO;
	if (rc)
		goto fail;
	gc_proxy_welcome(p, welcome);
	pthread_mutex_lock(&p->lock);
	p->replayed = p->agreed;
	pthread_mutex_unlock(&p->lock);
	rc = spaces_replay(p, sock);
	if (rc)
		goto fail;
	limit.tv_sec = 0;
	setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	return sock;
fail:
	if (!*err)
		snprintf(err, len, "%s: %s: is dcm-hostd running?",
			 p->sa.sun_path, strerror(-rc));
	if (sock >= 0)
		close(sock);
	return rc;
}

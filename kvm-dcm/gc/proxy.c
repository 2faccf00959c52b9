// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * proxy.c - a virtio-gc device on a file of the kernel pager
 *
 * dcm-hostd has the donors' keys and sessions, so requests are done there
 * (hostd/window.c); the proxy passes requests and answers on unchanged. It also
 * writes live bitmaps into the window, as the guest would, and discards
 * garbage: only this process may write to the file.
 *
 * Sends the daemon the guest's state again after each reconnection
 * (proxy_connect.c):
 *
 *	connecting -> up -> the daemon is gone -> connecting ...
 *
 * When a daemon ends, its workers and all traces end with it. Requests that are
 * unanswered, or made while there is no daemon, are answered with WORKER_LOST. If
 * COMPACT had moved objects, and references to them may have been updated, that answer
 * lists the moves, which the daemon had sent in MOVED. The next daemon gets a replay of
 * the requests that made spaces and types, so the next trace works. No content is lost.
 *
 * Locking: @lock guards everything but @file and the window. @sending is held
 * while a message is sent, so that requests keep their order and the socket is
 * not closed meanwhile; it is taken before @lock. Only the thread reads and
 * answers. No lock is held over answered().
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../lib/thread.h"
#include "../lib/log.h"
#include "proxy_int.h"

#define AGAIN_MS 200
/* the longest answer */
#define PARTS_MAX (sizeof(struct virtio_gc_done) + VIRTIO_GC_BITMAPS_MAX)

static void proxy_wake(struct proxy *p)
{
	u64 one = 1;
	ssize_t n = write(p->event, &one, sizeof(one));

	(void)n; /* a full counter wakes the thread as well */
}

static void sent_free(struct sent **list)
{
	while (*list) {
		struct sent *s = *list;

		*list = s->next;
		free(s);
	}
}

static void sent_append(struct sent **list, struct sent *s)
{
	while (*list)
		list = &(*list)->next;
	s->next = NULL;
	*list = s;
}

/* ---- the thread ---- */

/* Has an answered request made a space, or added types? */
static bool sent_adds(const struct sent *s)
{
	const struct virtio_gc_req *req = (const void *)s->raw;

	return s->command == VIRTIO_GC_SPACE_CREATE || req->count;
}

/* Has it replaced all types of its space? */
static bool sent_replaces(const struct sent *s)
{
	const struct virtio_gc_req *req = (const void *)s->raw;

	return s->command == VIRTIO_GC_TYPES_ADD &&
	       le16toh(req->flags) & VIRTIO_GC_TYPES_REPLACE;
}

/*
 * Keep an answered request for the replay, if it belongs there. Under the lock; takes
 * @s.
 */
static void sent_record(struct proxy *p, struct sent *s, u32 status)
{
	bool there = !status && s->space < DCM_GC_SPACES_MAX;

	if (there && s->command == VIRTIO_GC_SPACE_DESTROY)
		sent_free(&p->replay[s->space]);
	/* new types replace the old ones; SPACE_CREATE itself, the first, stays */
	if (there && s->bytes && p->replay[s->space] && sent_replaces(s))
		sent_free(&p->replay[s->space]->next);
	if (there && s->bytes && sent_adds(s)) {
		sent_append(&p->replay[s->space], s);
		return;
	}
	free(s);
}

static void sent_answer(struct proxy *p, struct sent *s, const void *bytes,
			size_t n)
{
	u32 status =
		n < sizeof(struct virtio_gc_done) ?
			VIRTIO_GC_STATUSES :
			le32toh(((const struct virtio_gc_done *)bytes)->status);

	p->ops.answered(p->priv, s->token, bytes, n);
	pthread_mutex_lock(&p->lock);
	sent_record(p, s, status);
	if (!p->sent)
		pthread_cond_broadcast(&p->quiet);
	pthread_mutex_unlock(&p->lock);
}

/* Take the request with this id out of the list; id 0: any request that is lost. */
static struct sent *sent_take(struct proxy *p, u64 id)
{
	struct sent **at, *s;

	pthread_mutex_lock(&p->lock);
	for (at = &p->sent; *at; at = &(*at)->next)
		if (id ? (*at)->id == id : (*at)->lost)
			break;
	s = *at;
	if (s)
		*at = s->next;
	pthread_mutex_unlock(&p->lock);
	return s;
}

/* Have all parts come: has the answer as many moves as its header says? */
static bool moved_whole(const struct parts *moved)
{
	const struct virtio_gc_done *done = (const void *)moved->bytes;

	return moved->n >= sizeof(*done) &&
	       moved->n ==
		       sizeof(*done) + (size_t)le32toh(done->count) *
						   sizeof(struct virtio_gc_moved);
}

/* Answer the requests that no daemon will answer. */
static void lost_answer(struct proxy *p)
{
	const struct virtio_gc_done done = {
		.status = htole32(VIRTIO_GC_WORKER_LOST),
		.donor = htole32(VIRTIO_GC_NO_DONOR),
		.at = htole64(VIRTIO_GC_NONE),
	};
	struct sent *s;

	while ((s = sent_take(p, 0)))
		if (moved_whole(&p->moved) && s->id == p->moved.of)
			sent_answer(p, s, p->moved.bytes, p->moved.n);
		else
			sent_answer(p, s, &done, s->mute ? 0 : sizeof(done));
}

/* The daemon has forgotten the spaces, or is gone: forget them here too. */
static void spaces_forget(struct proxy *p)
{
	u32 i;

	pthread_mutex_lock(&p->lock);
	for (i = 0; i < DCM_GC_SPACES_MAX; i++)
		sent_free(&p->replay[i]);
	p->forget = false;
	pthread_cond_broadcast(&p->quiet);
	pthread_mutex_unlock(&p->lock);
}

/* End a reset while there is no daemon, which would have to forget the spaces, too. */
static void reset_finish(struct proxy *p)
{
	bool due;

	pthread_mutex_lock(&p->lock);
	due = p->forget;
	pthread_mutex_unlock(&p->lock);
	if (due)
		spaces_forget(p);
}

/* Add bytes to an answer. False: it gets too long, or they are another request's. */
static bool parts_add(struct parts *p, u64 id, const void *bytes, size_t n)
{
	if (!id || (p->n && id != p->of) || n > PARTS_MAX - p->n)
		return false;
	memcpy(p->bytes + p->n, bytes, n);
	p->n += n;
	p->of = id;
	return true;
}

/* Take an answer, or the last part of one. False: no request has this id. */
static bool answer_take(struct proxy *p, u64 id, const void *bytes, size_t n)
{
	struct sent *which;

	if (p->parts.n) {
		if (!parts_add(&p->parts, id, bytes, n))
			return false;
		bytes = p->parts.bytes;
		n = p->parts.n;
		p->parts.n = 0;
	}
	which = id ? sent_take(p, id) : NULL;
	if (!which)
		return false;
	if (id == p->moved.of)
		p->moved.n = 0;
	sent_answer(p, which, bytes, n);
	return true;
}

/* Handle a message. False: it is invalid, drop the connection. */
static bool msg_handle(struct proxy *p, size_t n)
{
	const struct dcm_gc_ipc *s = (void *)p->buf;

	if (n < sizeof(*s) || n == sizeof(p->buf))
		return false;
	n -= sizeof(*s);
	switch (s->kind) {
	case DCM_GC_IPC_ANSWER:
		return answer_take(p, s->token, s + 1, n);
	case DCM_GC_IPC_PART:
		return n && parts_add(&p->parts, s->token, s + 1, n);
	case DCM_GC_IPC_MOVED:
		return n && parts_add(&p->moved, s->token, s + 1, n);
	case DCM_GC_IPC_BITS:
		if (s->value > p->bytes || n > p->bytes - s->value)
			return false;
		memcpy(p->window + s->value, s + 1, n);
		return true;
	case DCM_GC_IPC_DISCARD:
		/* discard now: the answer that follows says that it is done */
		if (!n && !fallocate(p->file,
				     FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				     (off_t)s->value, (off_t)s->token))
			return true;
		dcm_log(DCM_LOG_ERR,
			"a virtio-gc window: garbage can't be discarded: %s",
			strerror(errno));
		return false;
	case DCM_GC_IPC_WELCOME:
		if (n != DCM_GC_CONFIG_BYTES)
			return false;
		gc_proxy_welcome(p, s);
		if (p->ops.config_changed)
			p->ops.config_changed(p->priv);
		return true;
	case DCM_GC_IPC_READY:
		spaces_forget(p);
		return true;
	default:
		return false;
	}
}

/* Begin to use a daemon that got the replay, unless a reset or start came meanwhile. */
static bool sock_set(struct proxy *p, int sock)
{
	bool good;

	pthread_mutex_lock(&p->sending);
	pthread_mutex_lock(&p->lock);
	good = !p->forget && p->replayed == p->agreed;
	pthread_mutex_unlock(&p->lock);
	if (good)
		p->sock = sock;
	pthread_mutex_unlock(&p->sending);
	if (!good)
		close(sock);
	return good;
}

static void sock_close(struct proxy *p)
{
	struct sent *s;

	pthread_mutex_lock(&p->sending);
	pthread_mutex_lock(&p->lock);
	close(p->sock);
	p->sock = -1;
	p->parts.n = 0;
	for (s = p->sent; s; s = s->next)
		s->lost = true;
	pthread_mutex_unlock(&p->lock);
	pthread_mutex_unlock(&p->sending);
}

static void daemon_reconnect(struct proxy *p)
{
	u32 donors = p->config.donors;
	u64 budget = p->budget;
	char err[256];
	int sock = gc_proxy_connect(p, err, sizeof(err));

	if (sock < 0 || !sock_set(p, sock))
		return;
	dcm_log(DCM_LOG_NOTICE,
		"connected to dcm-hostd again: donors can collect garbage");
	/* [VGC-D-4] */
	if ((p->config.donors != donors || p->budget != budget) &&
	    p->ops.config_changed)
		p->ops.config_changed(p->priv);
}

static void *proxy_main(void *arg)
{
	struct proxy *p = arg;

	while (!smp_load_acquire(&p->stop)) {
		struct pollfd fds[] = { { .fd = p->event, .events = POLLIN },
					{ .fd = p->sock, .events = POLLIN } };
		ssize_t n;
		u64 junk;

		poll(fds, 2, p->sock < 0 ? AGAIN_MS : -1);
		if (fds[0].revents && read(p->event, &junk, sizeof(junk)) < 0)
			continue;
		lost_answer(p);
		if (p->sock < 0) {
			reset_finish(p);
			daemon_reconnect(p);
			continue;
		}
		if (!fds[1].revents)
			continue;
		n = recv(p->sock, p->buf, sizeof(p->buf), MSG_DONTWAIT);
		/* ECONNRESET comes once, before messages that came ahead of it */
		if (n < 0 &&
		    (errno == EAGAIN || errno == EINTR || errno == ECONNRESET))
			continue;
		if (n <= 0 || !msg_handle(p, (size_t)n)) {
			dcm_log(DCM_LOG_WARNING,
				"dcm-hostd %s: donors collect no garbage until it can be reached again",
				n > 0 ? "sent an invalid message" :
					"has closed the connection");
			sock_close(p);
			lost_answer(p);
			p->moved.n = 0;
		}
	}
	return NULL;
}

/* ---- a kind of host ---- */

static u64 proxy_features(struct dcm_gc_host *gc)
{
	struct proxy *p = (struct proxy *)gc;
	u64 features;

	pthread_mutex_lock(&p->lock);
	features = p->available;
	pthread_mutex_unlock(&p->lock);
	return features;
}

static void proxy_config(struct dcm_gc_host *gc, struct virtio_gc_config *c)
{
	struct proxy *p = (struct proxy *)gc;

	pthread_mutex_lock(&p->lock);
	memcpy(c, &p->config, DCM_GC_CONFIG_BYTES);
	pthread_mutex_unlock(&p->lock);
}

static u64 proxy_budget(struct dcm_gc_host *gc)
{
	struct proxy *p = (struct proxy *)gc;
	u64 budget;

	pthread_mutex_lock(&p->lock);
	budget = p->budget;
	pthread_mutex_unlock(&p->lock);
	return budget;
}

/*
 * Send a message. If that fails, shut the socket down for the thread. Under @sending.
 */
static void msg_send(struct proxy *p, const struct dcm_gc_ipc *s,
		     const void *more, size_t bytes)
{
	if (p->sock >= 0 && dcm_gc_ipc_send(p->sock, s, more, bytes))
		shutdown(p->sock, SHUT_RDWR);
	proxy_wake(p);
}

static void proxy_start(struct dcm_gc_host *gc, u64 features)
{
	const struct dcm_gc_ipc s = { .kind = DCM_GC_IPC_START,
				      .value = features };
	struct proxy *p = (struct proxy *)gc;

	pthread_mutex_lock(&p->sending);
	pthread_mutex_lock(&p->lock);
	p->agreed = features;
	pthread_mutex_unlock(&p->lock);
	msg_send(p, &s, NULL, 0);
	pthread_mutex_unlock(&p->sending);
}

static void proxy_submit(struct dcm_gc_host *gc, const void *request,
			 size_t bytes, size_t room, void *token)
{
	struct dcm_gc_ipc s = { .kind = DCM_GC_IPC_REQUEST,
				.room = (u32)min(room, (size_t)UINT32_MAX) };
	struct proxy *p = (struct proxy *)gc;
	struct virtio_gc_req head = { 0 };
	struct sent *q;
	u16 command;
	bool keep;

	bytes = min(bytes, (size_t)DCM_GC_IPC_MAX);
	if (bytes)
		memcpy(&head, request, min(bytes, sizeof(head)));
	command = le16toh(head.command);
	keep = command == VIRTIO_GC_SPACE_CREATE ||
	       command == VIRTIO_GC_TYPES_ADD;
	q = calloc(1, sizeof(*q) + (keep ? bytes : 0));
	if (!q)
		abort(); /* as the program's own allocator would */
	q->token = token;
	q->command = command;
	q->space = le32toh(head.space);
	q->mute = room < sizeof(struct virtio_gc_done);
	q->bytes = keep ? bytes : 0;
	if (keep)
		memcpy(q->raw, request, bytes);
	pthread_mutex_lock(&p->sending);
	pthread_mutex_lock(&p->lock);
	q->id = s.token = ++p->id;
	q->lost = p->sock < 0;
	sent_append(&p->sent, q);
	pthread_mutex_unlock(&p->lock);
	msg_send(p, &s, request, bytes);
	pthread_mutex_unlock(&p->sending);
}

static void proxy_reset(struct dcm_gc_host *gc)
{
	const struct dcm_gc_ipc s = { .kind = DCM_GC_IPC_RESET };
	struct proxy *p = (struct proxy *)gc;

	pthread_mutex_lock(&p->sending);
	pthread_mutex_lock(&p->lock);
	p->forget = true;
	p->agreed = 0;
	pthread_mutex_unlock(&p->lock);
	msg_send(p, &s, NULL, 0);
	pthread_mutex_unlock(&p->sending);
	pthread_mutex_lock(&p->lock);
	while (p->forget || p->sent)
		pthread_cond_wait(&p->quiet, &p->lock);
	pthread_mutex_unlock(&p->lock);
	/* Discard the window, also if there was no daemon to do it. */
	if (p->window &&
	    fallocate(p->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
		      (off_t)p->bytes))
		dcm_log(DCM_LOG_ERR, "a virtio-gc window can't be emptied: %s",
			strerror(errno));
}

static void proxy_free(struct proxy *p)
{
	if (p->sock >= 0)
		close(p->sock);
	if (p->event >= 0)
		close(p->event);
	if (p->file >= 0)
		close(p->file);
	pthread_mutex_destroy(&p->sending);
	pthread_mutex_destroy(&p->lock);
	pthread_cond_destroy(&p->quiet);
	free(p->parts.bytes);
	free(p->moved.bytes);
	free(p);
}

static void proxy_close(struct dcm_gc_host *gc)
{
	struct proxy *p = (struct proxy *)gc;

	proxy_reset(gc);
	smp_store_release(&p->stop, true);
	proxy_wake(p);
	pthread_join(p->thread, NULL);
	proxy_free(p);
}

static const struct dcm_gc_kind kind = {
	.close = proxy_close,
	.features = proxy_features,
	.config = proxy_config,
	.budget = proxy_budget,
	.start = proxy_start,
	.submit = proxy_submit,
	.reset = proxy_reset,
};

static int proxy_init(struct proxy *p, const char *path, int fd, char *err,
		      size_t len)
{
	int rc;

	snprintf(err, len, "%s: the path is too long", path);
	if (strlen(path) >= sizeof(p->sa.sun_path))
		return -ENAMETOOLONG;
	p->sa.sun_family = AF_UNIX;
	memcpy(p->sa.sun_path, path, strlen(path) + 1);
	p->file = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	p->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	snprintf(err, len, "no descriptors");
	if (p->file < 0 || p->event < 0)
		return -errno;
	p->parts.bytes = malloc(PARTS_MAX);
	p->moved.bytes = malloc(PARTS_MAX);
	snprintf(err, len, "no memory");
	if (!p->parts.bytes || !p->moved.bytes)
		return -ENOMEM;
	rc = gc_proxy_connect(p, err, len);
	if (rc < 0)
		return rc;
	p->sock = rc;
	if (p->bytes > le64toh(p->config.window_bytes)) {
		snprintf(err, len, "the file has less than %zu MiB",
			 p->bytes >> 20);
		return -EINVAL;
	}
	snprintf(err, len, "can't start a thread");
	return dcm_thread_start(&p->thread, proxy_main, p);
}

struct dcm_gc_host *dcm_gc_host_connect(const char *path, int fd, void *window,
					size_t bytes,
					const struct dcm_gc_host_ops *ops,
					void *priv, char *err, size_t len)
{
	struct proxy *p;
	sigset_t old;
	int rc;

	dcm_thread_enter(&old);
	p = calloc(1, sizeof(*p));
	if (!p) {
		snprintf(err, len, "no memory");
		rc = -ENOMEM;
		goto out;
	}
	p->api.kind = &kind;
	p->ops = *ops;
	p->priv = priv;
	p->window = window;
	p->bytes = window ? bytes : 0;
	p->sock = p->file = p->event = -1;
	pthread_mutex_init(&p->sending, NULL);
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->quiet, NULL);
	rc = proxy_init(p, path ? path : DCM_GC_IPC_SOCKET, fd, err, len);
	if (rc) {
		proxy_free(p);
		p = NULL;
	}
out:
	dcm_thread_leave(&old);
	if (rc)
		errno = -rc;
	return p ? &p->api : NULL;
}

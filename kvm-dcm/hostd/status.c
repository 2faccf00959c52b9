// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * status.c - dcm-hostd's status: its files and their donors
 *
 * A connection to the socket gets one JSON object and the end of the stream.
 * Nothing is read, so there is no input to check. The main thread, which has
 * the list of files, makes the text; a thread of its own sends each text, so that a
 * slow reader delays no one. Only %SENDING_MAX are sent at a time: further connections
 * are closed. A reader has two seconds.
 *
 * If the socket can't be made, that is logged, and files are served all the same.
 *
 * Locking: the main thread's; all threads count @sending.
 */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "../client/about_json.h"
#include "../client/risk_json.h"
#include "hostd.h"

#define DIRECTORY "/run/dcm-hostd"
#define SENDING_MAX 8u
#define SEND_S 2

static u32 sending;

/**
 * struct letter - a text to send
 */
struct letter {
	int fd;
	size_t len;
	char *text;
};

static void json_put(json_t *o, const char *key, u64 value)
{
	json_object_set_new(o, key, json_integer((json_int_t)value));
}

static void json_put_text(json_t *o, const char *key, const char *text)
{
	/* A path may be invalid UTF-8: then null. */
	json_t *s = json_string(text);

	json_object_set_new(o, key, s ? s : json_null());
}

static const char *group_of(const struct hostd *h,
			    const struct dcm_client_donor_status *d)
{
	for (u32 i = 0; i < h->cfg.nr_donors; i++)
		if (!strcmp(h->cfg.donor[i].name, d->name) &&
		    !strcmp(h->cfg.donor[i].address, d->address))
			return h->cfg.donor[i].group;
	return "";
}

static json_t *donor_json(const struct hostd *h,
			  const struct dcm_client_donor_status *d,
			  u64 alone_bytes)
{
	json_t *o = json_object();

	json_put_text(o, "name", d->name);
	json_put_text(o, "group", group_of(h, d));
	json_put_text(o, "address", d->address);
	json_put_text(o, "state", dcm_client_donor_state_name(d->state));
	json_put_text(o, "transport", d->transport ? d->transport : "");
	json_put_text(o, "medium", d->file ? "file" : "memory");
	json_put(o, "slabs", d->slabs);
	json_put(o, "orphans", d->orphans);
	json_put(o, "orphans_waiting", d->orphans_waiting);
	json_put(o, "alone_bytes", alone_bytes);
	json_put(o, "slabs_free", d->slabs_free);
	json_put(o, "slabs_total", d->slabs_total);
	json_put(o, "slabs_used", d->slabs_used);
	dcm_about_put(o, d);
	json_put(o, "silent_ms", d->silent_ms);
	json_put(o, "patience_ms", d->patience_ms);
	json_put(o, "rtt_ns", d->rtt_ns);
	json_put_text(o, "why", d->why);
	return o;
}

static json_t *file_json(const struct hostd *h, struct hostd_file *f,
			 struct dcm_client_status *st)
{
	json_t *o = json_object(), *donors = json_array();
	u64 extent = f->info.extent_pages * 4096;
	struct hostd_choice choice;
	struct dcm_risk risk;
	u32 i;

	hostd_choice_read(f, &choice);
	dcm_client_status(f->client, st);
	dcm_slab_worker_risk(&f->slabs, &risk);
	json_put_text(o, "path", f->path);
	json_put(o, "bytes", f->info.pages * 4096);
	json_put(o, "extent_bytes", extent);
	json_put(o, "extents", f->info.extents);
	json_put(o, "slabs", st->slabs);
	json_put(o, "wanted", st->wanted);
	json_put(o, "slabs_lost", st->lost);
	json_put(o, "copies", hostd_file_copies(f));
	json_put_text(o, "redundancy", dcm_redundancies[f->redundancy].name);
	json_object_set_new(o, "seal", json_boolean(f->sealed));
	json_put(o, "exposed_bytes",
		 dcm_risk_exposed(&risk, hostd_file_copies(f)) * extent);
	json_put(o, "near_bytes", st->near * extent);
	json_put(o, "lag_bytes", risk.lag_pages * 4096);
	json_put(o, "filling", READ_ONCE(f->slabs.nr_filling));
	json_object_set_new(o, "choice", json_boolean(!choice.any));
	json_object_set_new(o, "used", json_boolean(READ_ONCE(f->used)));
	for (i = 0; i < st->nr_donors; i++)
		json_array_append_new(donors,
			donor_json(h, &st->donor[i],
						 dcm_risk_alone(&risk,
								st->donor[i]
									.number,
								extent)));
	json_object_set_new(o, "donors", donors);
	json_object_set_new(o, "together",
			    dcm_risk_together(&risk, st, extent));
	return o;
}

static char *text_of(const struct hostd *h)
{
	struct dcm_client_status *st = calloc(1, sizeof(*st));
	json_t *o = json_object(), *files = json_array();
	struct hostd_file *f;
	char *text;

	json_put_text(o, "version", DCM_VERSION);
	json_put(o, "pid", (u64)getpid());
	for (f = h->files; st && f; f = f->next)
		json_array_append_new(files, file_json(h, f, st));
	json_object_set_new(o, "files", files);
	text = st ? json_dumps(o, JSON_COMPACT) : NULL;
	json_decref(o);
	free(st);
	return text;
}

static void letter_free(struct letter *l)
{
	close(l->fd);
	free(l->text);
	free(l);
	__atomic_fetch_sub(&sending, 1, __ATOMIC_RELAXED);
}

static void *letter_main(void *arg)
{
	struct timeval limit = { .tv_sec = SEND_S };
	struct letter *l = arg;
	size_t at = 0;

	setsockopt(l->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	while (at < l->len) {
		ssize_t n =
			send(l->fd, l->text + at, l->len - at, MSG_NOSIGNAL);

		if (n <= 0)
			break;
		at += (size_t)n;
	}
	letter_free(l);
	return NULL;
}

/* Send the status to a new connection. */
void hostd_status_tell(const struct hostd *h)
{
	int fd = accept4(h->status, NULL, NULL, SOCK_CLOEXEC);
	struct letter *l;
	pthread_attr_t attr;
	pthread_t thread;
	int err;

	if (fd < 0)
		return;
	if (__atomic_add_fetch(&sending, 1, __ATOMIC_RELAXED) > SENDING_MAX) {
		__atomic_fetch_sub(&sending, 1, __ATOMIC_RELAXED);
		close(fd);
		return;
	}
	l = calloc(1, sizeof(*l));
	if (!l) {
		__atomic_fetch_sub(&sending, 1, __ATOMIC_RELAXED);
		close(fd);
		return;
	}
	l->fd = fd;
	l->text = text_of(h);
	l->len = l->text ? strlen(l->text) : 0;
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	err = pthread_create(&thread, &attr, letter_main, l);
	pthread_attr_destroy(&attr);
	if (err)
		letter_free(l);
}

static bool somebody_there(const struct sockaddr_un *sa, int type)
{
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool there = fd >= 0 &&
		     (!connect(fd, (const struct sockaddr *)sa, sizeof(*sa)) ||
		      errno == EAGAIN);

	if (fd >= 0)
		close(fd);
	return there;
}

/**
 * hostd_listen() - make a UNIX socket, unless another process listens on it
 * @type: SOCK_STREAM or SOCK_SEQPACKET
 * @mode: of the socket's file
 *
 * Return: the socket, or a negative errno.
 */
int hostd_listen(const char *path, int type, mode_t mode, u32 backlog)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd, err = 0;
	mode_t mask;

	if (strlen(path) >= sizeof(sa.sun_path))
		return -ENAMETOOLONG;
	memcpy(sa.sun_path, path, strlen(path) + 1);
	if (!strncmp(path, DIRECTORY "/", sizeof(DIRECTORY)))
		mkdir(DIRECTORY, 0755);
	if (somebody_there(&sa, type))
		return -EADDRINUSE;
	unlink(path);
	fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	mask = umask(0777 & ~mode);
	if (fd < 0 || bind(fd, (struct sockaddr *)&sa, sizeof(sa)) ||
	    listen(fd, (int)backlog))
		err = -errno;
	umask(mask);
	if (!err)
		return fd;
	if (fd >= 0)
		close(fd);
	return err;
}

/** hostd_unlisten() - close and unlink a socket of hostd_listen(); sets @fd to -1 */
void hostd_unlisten(int *fd, const char *path)
{
	if (*fd < 0)
		return;
	close(*fd);
	unlink(path);
	*fd = -1;
}

/**
 * hostd_status_start() - listen for connections
 * @h: its @status becomes the socket, or stays -1
 * @path: of the socket
 */
void hostd_status_start(struct hostd *h, const char *path)
{
	h->status = hostd_listen(path, SOCK_STREAM, 0600, SENDING_MAX);
	if (h->status < 0)
		dcm_log(DCM_LOG_WARNING,
			"%s: %s: dcmctl can't ask for the status; mend that and restart dcm-hostd",
			path, strerror(-h->status));
}

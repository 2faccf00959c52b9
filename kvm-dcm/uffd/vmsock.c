// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * vmsock.c - the socket by which dcmctl asks about a VM, and changes it
 *
 * A UNIX stream socket, mode 0600, one JSON object a line each way:
 *
 *	{"cmd":"status"}                        everything, see status.c
 *	{"cmd":"budget","bytes":N}              change the budget
 *	{"cmd":"redundancy","value":"replica:2"}  change on how many donors a page is
 *	{"cmd":"tunables"}                      name, unit, value, bounds, why
 *	{"cmd":"set","name":S,"value":V}        change a tunable
 *	{"cmd":"donor","op":O,"name":S}         O: drain, keep (end the drain)
 *						or remove
 *	{"cmd":"donor","op":"add","name":S,"address":A,"group":G}
 *						G may be left out
 *
 * The answer is {"ok":true,...} or {"ok":false,"error":"one line"}. The socket has a
 * thread of its own. A peer that reads too slowly, or not at all, delays others by
 * SEND_MS at most and is disconnected. Limits: CLIENTS peers at a time, and
 * LINE_MAX_BYTES a line.
 *
 * Locking: none, only the thread uses the connections. Requests take the locks
 * of the parts that they change.
 */
#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "../lib/thread.h"
#include "status.h"
#include "vmsock.h"

#define CLIENTS 8
#define LINE_MAX_BYTES 4096u
#define SEND_MS 1000

struct client {
	int fd;
	size_t len;
	char line[LINE_MAX_BYTES];
};

struct dcm_vmsock {
	struct dcm_pager *pg;
	pthread_t thread;
	bool started;
	int listen_fd;
	int wake_fd;
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
	struct client client[CLIENTS];
};

/* ---- requests ---- */

static json_t *error_json(const char *why)
{
	return json_pack("{s:b,s:s}", "ok", 0, "error", why);
}

static json_t *tunables_json(struct dcm_pager *pg)
{
	json_t *a = json_array(), *o = json_object();
	unsigned int i;

	for (i = 0; i < DCM_T_NR; i++) {
		const struct dcm_tunable *t = &dcm_tunables[i];

		json_array_append_new(a,
				      json_pack("{s:s,s:s,s:I,s:I,s:I,s:I,s:s}",
						"name", t->name, "unit",
						t->unit, "value",
						(json_int_t)
							dcm_tunable_get(pg->vm,
									i),
						"default", (json_int_t)t->def,
						"min", (json_int_t)t->lo, "max",
						(json_int_t)t->hi, "why",
						t->why));
	}
	json_object_set_new(o, "ok", json_true());
	json_object_set_new(o, "tunables", a);
	return o;
}

static json_t *request_budget(struct dcm_pager *pg, json_t *req)
{
	json_t *v = json_object_get(req, "bytes");
	char why[160];

	if (!json_is_integer(v) || json_integer_value(v) < 0)
		return error_json("budget: \"bytes\" must be a number");
	if (dcm_pager_set_budget(pg, (u64)json_integer_value(v))) {
		snprintf(why, sizeof(why),
			 "budget of %llu bytes refused: the smallest is %llu",
			 (unsigned long long)json_integer_value(v),
			 (unsigned long long)dcm_pager_min_budget(pg));
		return error_json(why);
	}
	return json_pack("{s:b,s:I}", "ok", 1, "budget_bytes",
			 (json_int_t)dcm_pager_budget(pg));
}

static json_t *request_redundancy(struct dcm_pager *pg, json_t *req)
{
	const char *value = json_string_value(json_object_get(req, "value"));
	enum dcm_host_redundancy redundancy =
		value ? dcm_redundancy_find(value) : DCM_REDUNDANCY_NR;
	int err;

	if (redundancy == DCM_REDUNDANCY_NR)
		return error_json(
			"redundancy: \"value\" must be none, replica:2, replica:3, disk, disk:lazy or replica:2+disk");
	err = dcm_pager_redundancy_set(pg, redundancy);
	if (err && err != -EALREADY)
		return error_json(strerror(-err));
	return json_pack("{s:b,s:i}", "ok", 1, "copies",
			 (int)dcm_redundancies[redundancy].copies);
}

static json_t *request_set(struct dcm_pager *pg, json_t *req)
{
	const char *name = json_string_value(json_object_get(req, "name"));
	json_t *v = json_object_get(req, "value");
	int rc;

	if (!name || !json_is_integer(v) || json_integer_value(v) < 0)
		return error_json(
			"set: \"name\" must be text and \"value\" a number");
	rc = dcm_pager_set(pg, name, (u64)json_integer_value(v));
	if (rc == -ENOENT)
		return error_json("set: there is no such tunable");
	if (rc)
		return error_json("set: value out of range");
	return json_pack("{s:b,s:s,s:I}", "ok", 1, "name", name, "value",
			 json_integer_value(v));
}

static const char *donor_why(int err)
{
	switch (err) {
	case -ENOENT:
		return "donor: it has none of that name";
	case -EALREADY:
		return "donor: it is so already";
	case -EEXIST:
		return "donor: it has one of that name with another address";
	case -EADDRINUSE:
		return "donor: it has one of another name with that address";
	case -ENOSPC:
		return "donor: it has as many as it can";
	case -EHOSTUNREACH:
		return "donor: the address can't be looked up";
	case -EINVAL:
		return "donor: address: must be tcp:HOST:PORT or unix:/path";
	default:
		return strerror(-err);
	}
}

static json_t *request_donor(struct dcm_pager *pg, json_t *req)
{
	const char *op = json_string_value(json_object_get(req, "op"));
	const char *name = json_string_value(json_object_get(req, "name"));
	const char *address =
		json_string_value(json_object_get(req, "address"));
	const char *group = json_string_value(json_object_get(req, "group"));
	struct dcm_host_donor d = { 0 };
	int err;

	if (!op || !name || !dcm_name_valid(name))
		return error_json(
			"donor: \"op\" and \"name\" must be an operation and a donor's name");
	strcpy(d.name, name);
	if (!strcmp(op, "add")) {
		if (!address || !dcm_address_valid(address))
			return error_json(donor_why(-EINVAL));
		if (group && !dcm_name_valid(group))
			return error_json(
				"donor: group: must be " DCM_NAME_RULE);
		strcpy(d.address, address);
		strcpy(d.group, group ? group : "");
		err = dcm_client_donor_add(pg->client, &d);
	} else if (!strcmp(op, "drain") || !strcmp(op, "keep")) {
		err = dcm_client_donor_drain(pg->client, d.name, *op == 'd');
	} else if (!strcmp(op, "remove")) {
		err = dcm_client_donor_remove(pg->client, d.name);
	} else {
		return error_json(
			"donor: \"op\" must be add, drain, keep or remove");
	}
	if (err)
		return error_json(donor_why(err));
	return json_pack("{s:b,s:s}", "ok", 1, "name", d.name);
}

static json_t *request_answer(struct dcm_pager *pg, const char *line,
			      size_t len)
{
	json_t *req = json_loadb(line, len, JSON_REJECT_DUPLICATES, NULL);
	const char *cmd = json_string_value(json_object_get(req, "cmd"));
	json_t *res;

	if (!cmd)
		res = error_json("not a JSON object with \"cmd\"");
	else if (!strcmp(cmd, "status"))
		res = dcm_status_json(pg);
	else if (!strcmp(cmd, "tunables"))
		res = tunables_json(pg);
	else if (!strcmp(cmd, "budget"))
		res = request_budget(pg, req);
	else if (!strcmp(cmd, "redundancy"))
		res = request_redundancy(pg, req);
	else if (!strcmp(cmd, "set"))
		res = request_set(pg, req);
	else if (!strcmp(cmd, "donor"))
		res = request_donor(pg, req);
	else
		res = error_json(
			"unknown cmd: status, budget, redundancy, tunables, set or donor");
	json_decref(req);
	return res;
}

/* ---- the socket ---- */

/* Send it all, or give up at @end: other peers wait meanwhile. */
static bool client_send(int fd, const char *p, size_t len, u64 end)
{
	while (len) {
		ssize_t n = send(fd, p, len, MSG_NOSIGNAL | MSG_DONTWAIT);
		struct pollfd pfd = { fd, POLLOUT, 0 };
		u64 now;

		if (n > 0) {
			p += n;
			len -= (size_t)n;
			continue;
		}
		if (n < 0 && errno == EINTR)
			continue;
		now = dcm_now_ns();
		if (errno != EAGAIN || now >= end ||
		    poll(&pfd, 1, (int)((end - now) / 1000000) + 1) <= 0)
			return false;
	}
	return true;
}

static bool client_line(struct dcm_vmsock *s, struct client *c, size_t len,
			u64 end)
{
	json_t *res = request_answer(s->pg, c->line, len);
	char *text = json_dumps(res, JSON_COMPACT);
	bool ok = text && client_send(c->fd, text, strlen(text), end) &&
		  client_send(c->fd, "\n", 1, end);

	json_decref(res);
	free(text);
	return ok;
}

/* Read and answer requests. False: close the connection. */
static bool client_read(struct dcm_vmsock *s, struct client *c)
{
	ssize_t n = recv(c->fd, c->line + c->len, sizeof(c->line) - c->len,
			 MSG_DONTWAIT);
	u64 end = dcm_now_ns() + SEND_MS * 1000000ull;
	char *nl;

	if (n <= 0)
		return n < 0 && (errno == EAGAIN || errno == EINTR);
	c->len += (size_t)n;
	while ((nl = memchr(c->line, '\n', c->len))) {
		size_t len = (size_t)(nl - c->line);

		if (!client_line(s, c, len, end))
			return false;
		c->len -= len + 1;
		memmove(c->line, nl + 1, c->len);
	}
	return c->len < sizeof(c->line);
}

static void client_new(struct dcm_vmsock *s)
{
	int fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC), i;

	if (fd < 0)
		return;
	for (i = 0; i < CLIENTS; i++) {
		if (s->client[i].fd >= 0)
			continue;
		s->client[i].fd = fd;
		s->client[i].len = 0;
		return;
	}
	close(fd);
}

static void *vmsock_main(void *arg)
{
	struct dcm_vmsock *s = arg;
	int i;

	prctl(PR_SET_NAME, "dcm-status");
	while (!smp_load_acquire(&s->pg->stop)) {
		struct pollfd pfd[2 + CLIENTS];

		pfd[0] = (struct pollfd){ s->wake_fd, POLLIN, 0 };
		pfd[1] = (struct pollfd){ s->listen_fd, POLLIN, 0 };
		for (i = 0; i < CLIENTS; i++)
			pfd[2 + i] =
				(struct pollfd){ s->client[i].fd, POLLIN, 0 };
		if (poll(pfd, ARRAY_SIZE(pfd), -1) < 0)
			continue;
		for (i = 0; i < CLIENTS; i++) {
			if (!pfd[2 + i].revents ||
			    client_read(s, &s->client[i]))
				continue;
			close(s->client[i].fd);
			s->client[i].fd = -1;
		}
		if (pfd[1].revents)
			client_new(s);
		if (pfd[0].revents)
			break;
	}
	return NULL;
}

/*
 * The directory for root's sockets. It is not in /run/kvm-dcm, which belongs to
 * dcm-donord's user: that user could put a symbolic link in place of a socket.
 */
#define DCM_RUNTIME_ROOT "/run/kvm-dcm-host"

/* Is this a directory that no other user can write to? */
static bool dir_is_ours(const char *path)
{
	struct stat st;

	return !lstat(path, &st) && S_ISDIR(st.st_mode) &&
	       (!st.st_uid || st.st_uid == geteuid()) &&
	       !(st.st_mode & (S_IWGRP | S_IWOTH));
}

/* Make the private directory for sockets: $DCM_RUNTIME_DIR/vm, or the default. */
static int runtime_dir(char *buf, size_t len)
{
	const char *d = getenv("DCM_RUNTIME_DIR"), *x;
	char *p;

	if (d && *d)
		snprintf(buf, len, "%s/vm", d);
	else if (!geteuid())
		snprintf(buf, len, DCM_RUNTIME_ROOT "/vm");
	else if ((x = getenv("XDG_RUNTIME_DIR")) && *x)
		snprintf(buf, len, "%s/kvm-dcm/vm", x);
	else
		snprintf(buf, len, "/tmp/kvm-dcm-%u/vm",
			 (unsigned int)geteuid());
	for (p = buf + 1; *p; p++) {
		if (*p != '/')
			continue;
		*p = 0;
		mkdir(buf, 0755);
		*p = '/';
	}
	if (mkdir(buf, 0700) && errno != EEXIST)
		return -errno;
	return dir_is_ours(buf) ? 0 : -EPERM;
}

static bool socket_is_served(const struct sockaddr_un *sa)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool there;

	if (fd < 0)
		return false;
	there = !connect(fd, (const struct sockaddr *)sa, sizeof(*sa)) ||
		errno == EAGAIN;
	close(fd);
	return there;
}

static int socket_open(struct dcm_vmsock *s, const char *name, char *err,
		       size_t len)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	char dir[128];
	int rc = runtime_dir(dir, sizeof(dir));
	mode_t mask;

	if (rc) {
		snprintf(err, len,
			 "%s: %s: set DCM_RUNTIME_DIR to a directory of yours",
			 dir, strerror(-rc));
		return rc;
	}
	if ((size_t)snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/%s.sock",
			     dir, name) >= sizeof(sa.sun_path)) {
		snprintf(err, len, "%s/%s.sock: too long for a socket", dir,
			 name);
		return -ENAMETOOLONG;
	}
	if (socket_is_served(&sa)) {
		snprintf(err, len, "a VM named %s is running already (%s)",
			 name, sa.sun_path);
		return -EEXIST;
	}
	unlink(sa.sun_path);
	s->listen_fd =
		socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	mask = umask(0177);
	rc = s->listen_fd < 0 ||
	     bind(s->listen_fd, (struct sockaddr *)&sa, sizeof(sa)) ||
	     listen(s->listen_fd, CLIENTS);
	umask(mask);
	if (rc) {
		rc = -errno;
		snprintf(err, len, "%s: %s", sa.sun_path, strerror(-rc));
		return rc;
	}
	memcpy(s->path, sa.sun_path, sizeof(s->path));
	return 0;
}

int dcm_vmsock_start(struct dcm_pager *pg, char *err, size_t len)
{
	struct dcm_vmsock *s = calloc(1, sizeof(*s));
	int rc, i;

	if (!s)
		return -ENOMEM;
	s->pg = pg;
	s->listen_fd = -1;
	for (i = 0; i < CLIENTS; i++)
		s->client[i].fd = -1;
	s->wake_fd = eventfd(0, EFD_CLOEXEC);
	pg->vmsock = s;
	rc = socket_open(s, pg->cfg.name, err, len);
	if (!rc)
		rc = dcm_thread_start(&s->thread, vmsock_main, s);
	s->started = !rc;
	return rc;
}

void dcm_vmsock_stop(struct dcm_pager *pg)
{
	struct dcm_vmsock *s = pg->vmsock;
	u64 one = 1;
	int i;

	if (!s)
		return;
	if (s->started && write(s->wake_fd, &one, sizeof(one)) > 0)
		pthread_join(s->thread, NULL);
	for (i = 0; i < CLIENTS; i++)
		if (s->client[i].fd >= 0)
			close(s->client[i].fd);
	if (s->listen_fd >= 0)
		close(s->listen_fd);
	if (s->path[0])
		unlink(s->path);
	close(s->wake_fd);
	free(s);
	pg->vmsock = NULL;
}

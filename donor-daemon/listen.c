// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * listen.c - the sockets the donor listens on
 *
 * Every connection is accepted, %ACCEPT_BATCH in one event, and gets a seat of
 * this socket, for which another connection may be dropped (admission.c). If
 * connections were left in the kernel's backlog, they would be served in order: a host
 * that lost its connection might have to wait behind thousands that send nothing. Each
 * socket has seats of its own, so strangers at one do not affect the others.
 *
 * Descriptors are reserved at the start (fd_limit.c). If there is none in spite of
 * that, or no memory, a connection with a seat is dropped, too. If that does not help,
 * the socket is tried again a quarter of a second later.
 *
 * Locking: none, all on the event loop.
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "donor.h"
#include "log_limit.h"

#define BACKLOG		4096
#define ACCEPT_BATCH	64

static void listen_pause(struct dcm_listener *l, int error)
{
	dcm_log_limited(
		DCM_LOG_WARNING,
			"%s: a connection can't be accepted: %s; trying again. Raise LimitNOFILE if this repeats",
			l->name, strerror(error));
	uv_poll_stop(&l->poll);
	l->paused = true;
}

/*
 * There is no descriptor, or no memory: drop a connection that has a seat. If there is
 * none, use the spare descriptor to accept and close the new one. False: neither is
 * possible.
 */
static bool listen_free_fd(struct dcm_listener *l)
{
	struct dcm_donor *donor = l->donor;
	int fd;

	if (dcm_conn_drop(donor, &l->admission))
		return true;
	if (donor->spare_fd < 0)
		return false;
	close(donor->spare_fd);
	fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd >= 0)
		close(fd);
	donor->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return fd >= 0;
}

static void listen_ready(uv_poll_t *poll, int status, int events)
{
	struct dcm_listener *l = poll->data;
	struct sockaddr_storage peer;
	socklen_t len;
	int fd, error;

	(void)events;
	if (status < 0)
		return;
	for (int i = 0; i < ACCEPT_BATCH; i++) {
		len = sizeof(peer);
		memset(&peer, 0, sizeof(peer));
		fd = accept4(l->fd, (struct sockaddr *)&peer, &len,
			     SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd >= 0) {
			dcm_conn_accept(l->donor, &l->admission, fd, l->is_unix,
					&peer);
			continue;
		}
		error = errno;
		if (error == EAGAIN || error == EWOULDBLOCK)
			return;
		if ((error == EMFILE || error == ENFILE || error == ENOBUFS ||
		     error == ENOMEM) &&
		    !listen_free_fd(l)) {
			listen_pause(l, error);
			return;
		}
		/* ECONNABORTED and the like: that one is gone, continue */
	}
}

void dcm_listen_resume(struct dcm_donor *donor)
{
	if (donor->spare_fd < 0)
		donor->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	for (u32 i = 0; i < donor->nr_listeners; i++) {
		struct dcm_listener *l = &donor->listeners[i];

		if (l->paused)
			uv_poll_start(&l->poll, UV_READABLE, listen_ready);
		l->paused = false;
	}
}

static int listen_add(struct dcm_donor *donor, int fd, bool is_unix,
		      const char *name, char *err, size_t err_len)
{
	struct dcm_listener *l = &donor->listeners[donor->nr_listeners];
	u64 salt;
	int ret = uv_poll_init(&donor->loop, &l->poll, fd);

	if (!ret && getrandom(&salt, sizeof(salt), 0) != sizeof(salt))
		ret = -errno;
	if (ret) {
		snprintf(err, err_len, "%s: %s", name, strerror(-ret));
		return ret;
	}
	l->poll.data = l;
	l->donor = donor;
	dcm_admission_init(&l->admission, salt);
	l->fd = fd;
	l->is_unix = is_unix;
	snprintf(l->name, sizeof(l->name), "%s", name);
	uv_poll_start(&l->poll, UV_READABLE, listen_ready);
	donor->nr_listeners++;
	dcm_info("listening on %s", l->name);
	return 0;
}

int dcm_address_parse(const char *key, const char *text, const char *port,
		      struct sockaddr_storage *ss, socklen_t *len, char *err,
		      size_t err_len)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM,
				  .ai_flags = AI_PASSIVE | AI_NUMERICSERV };
	char host[DCM_CONFIG_PATH_MAX], *h = host, *colon;
	struct addrinfo *ai;
	int ret;

	if (!strncmp(text, "tcp:", 4))
		text += 4;
	snprintf(host, sizeof(host), "%s", text);
	colon = strrchr(host, ':');
	if (!colon || !colon[1]) {
		snprintf(err, err_len, "%s = %.100s: write HOST:PORT", key,
			 text);
		return -EINVAL;
	}
	*colon++ = 0;
	if (h[0] == '[' && h[strlen(h) - 1] == ']') {
		h[strlen(h) - 1] = 0;
		h++;
	}
	ret = getaddrinfo(*h ? h : NULL, port ? port : colon, &hints, &ai);
	if (ret) {
		snprintf(err, err_len, "%s = %.100s: %s", key, text,
			 gai_strerror(ret));
		return -EINVAL;
	}
	memcpy(ss, ai->ai_addr, ai->ai_addrlen);
	*len = ai->ai_addrlen;
	freeaddrinfo(ai);
	return 0;
}

static int listen_tcp(struct dcm_donor *donor, const char *addr, char *err,
		      size_t err_len)
{
	char name[128], num[80], serv[16];
	struct sockaddr_storage ss;
	socklen_t ss_len;
	int fd, ret, one = 1;

	ret = dcm_address_parse("listen", addr, NULL, &ss, &ss_len, err,
				err_len);
	if (ret)
		return ret;
	fd = socket(ss.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC,
		    0);
	if (fd >= 0)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (fd < 0 || bind(fd, (struct sockaddr *)&ss, ss_len) ||
	    listen(fd, BACKLOG) ||
	    getsockname(fd, (struct sockaddr *)&ss, &ss_len)) {
		ret = -errno;
		snprintf(err, err_len, "listen = %s: %s", addr, strerror(-ret));
		if (fd >= 0)
			close(fd);
		return ret;
	}
	getnameinfo((struct sockaddr *)&ss, ss_len, num, sizeof(num), serv,
		    sizeof(serv), NI_NUMERICHOST | NI_NUMERICSERV);
	snprintf(name, sizeof(name),
		 ss.ss_family == AF_INET6 ? "tcp:[%s]:%s" : "tcp:%s:%s", num,
		 serv);
	return listen_add(donor, fd, false, name, err, err_len);
}

/* Does a socket file refuse connections, as its donor is dead? */
static bool unix_stale(const struct sockaddr_un *sun)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool stale;

	if (fd < 0)
		return false;
	stale = connect(fd, (const struct sockaddr *)sun, sizeof(*sun)) &&
		errno == ECONNREFUSED;
	close(fd);
	return stale;
}

static int listen_unix(struct dcm_donor *donor, const char *path, char *err,
		       size_t err_len)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	char name[sizeof(sun.sun_path) + 8];
	mode_t old;
	int fd, ret;

	if (strlen(path) >= sizeof(sun.sun_path)) {
		snprintf(err, err_len, "unix = %s: longer than %zu bytes", path,
			 sizeof(sun.sun_path) - 1);
		return -ENAMETOOLONG;
	}
	memcpy(sun.sun_path, path, strlen(path) + 1);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0) {
		ret = -errno;
		snprintf(err, err_len, "unix = %s: %s", path, strerror(-ret));
		return ret;
	}
	if (unix_stale(&sun))
		unlink(path);
	old = umask(0777 & ~donor->cfg.unix_mode);
	ret = bind(fd, (struct sockaddr *)&sun, sizeof(sun));
	umask(old);
	if (ret || listen(fd, BACKLOG)) {
		ret = -errno;
		snprintf(err, err_len, "unix = %s: %s%s", path, strerror(-ret),
			 ret == -EADDRINUSE ? "; another donor runs there" :
			 ret == -ENOENT     ? "; make the directory first" :
					      "");
		close(fd);
		return ret;
	}
	snprintf(name, sizeof(name), "unix:%.107s", sun.sun_path);
	return listen_add(donor, fd, true, name, err, err_len);
}

int dcm_listen_start(struct dcm_donor *donor, char *err, size_t err_len)
{
	int ret = 0;

	donor->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	for (u32 i = 0; i < donor->cfg.nr_listen && !ret; i++)
		ret = listen_tcp(donor, donor->cfg.listen[i], err, err_len);
	if (!ret && donor->cfg.unix_path[0])
		ret = listen_unix(donor, donor->cfg.unix_path, err, err_len);
	return ret;
}

void dcm_listen_stop(struct dcm_donor *donor)
{
	for (u32 i = 0; i < donor->nr_listeners; i++) {
		struct dcm_listener *l = &donor->listeners[i];

		uv_close((uv_handle_t *)&l->poll, NULL);
		close(l->fd);
		if (l->is_unix)
			unlink(donor->cfg.unix_path);
	}
	donor->nr_listeners = 0;
	if (donor->spare_fd >= 0)
		close(donor->spare_fd);
	donor->spare_fd = -1;
}

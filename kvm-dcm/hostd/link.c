// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * link.c - a file's data connections: made here, used by the kernel
 *
 * libdcm's client makes the connections and replaces broken ones, as for lanes
 * of its own; but the endpoint here hands the socket to the kernel
 * (DCMFS_IOC_LINK) and does no I/O. With encryption the kernel takes over the
 * TLS session too (ktls.c). Over RDMA the kernel connects by itself, with the
 * donor's ticket (DCMFS_IOC_PAIR), and returns a descriptor that shows its
 * state.
 *
 *	data: welcomed -> TLS in the kernel -> DCMFS_IOC_LINK
 *	pair: DCMFS_IOC_PAIR -> POLLOUT: connected
 *	dead: the socket was shut down, by the donor or by the kernel; POLLHUP
 *	close: DCMFS_IOC_LINK without a socket, and it is closed with a reset
 *
 * The file's thread has an epoll descriptor with all of them. When one ends it gets an
 * event, and makes the client look for ended connections.
 *
 * Threads: the client thread calls all functions; the file's may call dead too.
 */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../proto/wire.h"
#include "../transport/tcp.h"
#include "hostd.h"
#include "ktls.h"

struct hostd_link {
	struct dcm_endpoint ep;
	struct hostd_file *file;
	u32 donor;
	u32 lane;
	int fd;
};

static struct hostd_link *to_link(struct dcm_endpoint *ep)
{
	return container_of(ep, struct hostd_link, ep);
}

static int link_ioctl(const struct hostd_link *l, int fd, u32 window,
		      u32 late_ms)
{
	struct dcmfs_link arg = {
		.donor = l->file->number[l->donor],
		.lane = l->lane,
		.fd = fd,
		.window = window,
		.late_ms = late_ms,
	};

	return ioctl(l->file->fd, DCMFS_IOC_LINK, &arg) ? errno : 0;
}

/* Make the kernel close its link. 0 or an errno. */
static int link_end(const struct hostd_link *l)
{
	return link_ioctl(l, -1, 0, 0);
}

static void link_close(struct dcm_endpoint *ep)
{
	struct hostd_link *l = to_link(ep);

	/* The file may be closed already, and its links with it. */
	while (l->file->fd >= 0 && link_end(l) == EINTR)
		;
	close(l->fd);
	free(l);
}

static void link_kill(struct dcm_endpoint *ep)
{
	struct hostd_link *l = to_link(ep);

	/* shutdown() fails for a queue pair's descriptor, which is no socket. */
	if (shutdown(l->fd, SHUT_RDWR))
		link_end(l);
}

static bool link_dead(struct dcm_endpoint *ep)
{
	struct pollfd p = { .fd = to_link(ep)->fd, .events = POLLRDHUP };

	return poll(&p, 1, 0) > 0;
}

static bool link_paired(struct dcm_endpoint *ep)
{
	struct pollfd p = { .fd = to_link(ep)->fd, .events = POLLOUT };

	return poll(&p, 1, 0) > 0 && p.revents == POLLOUT;
}

/* Why the kernel or the donor ended the link. To be called once: reading clears it. */
static const char *link_why(struct dcm_endpoint *ep)
{
	int err = 0;
	socklen_t len = sizeof(err);

	/* ENOTSOCK: a queue pair's */
	getsockopt(to_link(ep)->fd, SOL_SOCKET, SO_ERROR, &err, &len);
	switch (err) {
	case ETIMEDOUT:
		return "no answer";
	case EPROTO:
		return "what it sends is no answer";
	default:
		return "connection lost";
	}
}

static int link_post(struct dcm_endpoint *ep, struct dcm_io *io)
{
	(void)ep;
	(void)io;
	return -ENOTCONN;
}

static void link_flush(struct dcm_endpoint *ep)
{
	(void)ep;
}

static int link_poll(struct dcm_endpoint *ep, struct dcm_io **done, int max)
{
	(void)ep;
	(void)max;
	*done = NULL;
	return 0;
}

static u32 link_in_flight(struct dcm_endpoint *ep)
{
	(void)ep;
	return 0;
}

static const struct dcm_transport_ops link_ops = {
	.name = "kernel",
	.close = link_close,
	.post = link_post,
	.flush = link_flush,
	.poll = link_poll,
	.in_flight = link_in_flight,
	.dead = link_dead,
	.kill = link_kill,
	.why = link_why,
};

static int tls_start(struct hostd_file *f, const struct dcm_tcp_args *args)
{
	int err;

	if (!args->tls)
		return 0;
	err = dcm_ktls_start(args->tls, args->fd);
	/* -ENOTCONN: the donor has hung up; the client connects again */
	if (err && err != -ENOTCONN &&
	    dcm_log_allow(&f->no_tls, hostd_now_ns() / 1000000, 60000))
		dcm_log(DCM_LOG_ERR,
			"%s: the kernel can't encrypt data: %s%s: no donor on another host can be used unless data-encryption = no",
			f->path, strerror(-err),
			err == -ENOENT ? " (modprobe tls)" : "");
	return err;
}

static struct hostd_link *link_make(struct hostd_file *f, u32 donor, u32 lane,
				    int fd)
{
	struct hostd_link *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->ep.ops = &link_ops;
	l->file = f;
	l->donor = donor;
	l->lane = lane;
	l->fd = fd;
	return l;
}

/* Add a link to the epoll descriptor. 0; or a negative errno: the link was removed. */
static int link_watch(struct hostd_link *l)
{
	struct epoll_event ev = { .events = EPOLLRDHUP | EPOLLONESHOT };
	int err = 0;

	if (epoll_ctl(l->file->links, EPOLL_CTL_ADD, l->fd, &ev)) {
		err = -errno;
		link_end(l);
	}
	return err;
}

static struct dcm_endpoint *link_data(void *arg, u32 donor, u32 lane,
				      const struct dcm_tcp_args *args, int *err)
{
	struct hostd_file *f = hostd_file_of(arg);
	struct hostd_link *l = link_make(f, donor, lane, args->fd);

	*err = -ENOMEM;
	if (!l)
		return NULL;
	*err = tls_start(f, args);
	if (!*err)
		*err = -link_ioctl(l, l->fd, args->depth,
				   (u32)(args->silence_ns / 1000000));
	if (!*err)
		*err = link_watch(l);
	if (*err) {
		free(l);
		return NULL;
	}
	if (args->tls)
		gnutls_deinit(args->tls);
	return &l->ep;
}

static struct dcm_endpoint *link_pair(void *arg, u32 donor, u32 lane,
				      const struct sockaddr_storage *to,
				      const struct dcm_wire_shown *shown,
				      u32 late_ms, int *err)
{
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)to;
	const struct sockaddr_in *in = (const struct sockaddr_in *)to;
	struct hostd_file *f = hostd_file_of(arg);
	struct dcmfs_pair pair = { .donor = f->number[donor],
				   .lane = lane,
				   .late_ms = late_ms };
	struct hostd_link *l;

	if (to->ss_family == AF_INET6) {
		memcpy(pair.addr, &in6->sin6_addr, sizeof(pair.addr));
		pair.scope = in6->sin6_scope_id;
		pair.port = ntohs(in6->sin6_port);
	} else {
		pair.addr[10] = 0xff;
		pair.addr[11] = 0xff;
		memcpy(pair.addr + 12, &in->sin_addr, 4);
		pair.port = ntohs(in->sin_port);
	}
	dcm_wire_show_put(pair.shown, shown);
	*err = ioctl(f->fd, DCMFS_IOC_PAIR, &pair) ? -errno : 0;
	explicit_bzero(pair.shown, sizeof(pair.shown));
	if (*err)
		return NULL;
	l = link_make(f, donor, lane, pair.fd);
	*err = l ? link_watch(l) : -ENOMEM;
	if (!*err)
		return &l->ep;
	close(pair.fd);
	free(l);
	return NULL;
}

const struct dcm_client_links hostd_links = {
	.data = link_data,
	.pair = link_pair,
	.paired = link_paired,
};

/* The file's thread: make the client replace connections that have ended. */
void hostd_links_look(struct hostd_file *f)
{
	struct epoll_event ev[16];
	u32 lane;

	while (epoll_wait(f->links, ev, 16, 0) == 16)
		;
	for (lane = 0; lane < f->info.lanes; lane++)
		dcm_client_lane_look(f->client, lane);
}

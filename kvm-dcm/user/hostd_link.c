// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * hostd_link.c - a file's data connections: made here, used by the kernel
 *
 * libdcm's control plane connects, proves who it is and makes it again when it
 * breaks, as for lanes of its own; but the endpoint it gets is one that hands the
 * socket over (DCMFS_IOC_LINK) and does no I/O. With encryption the TLS session
 * goes on in the kernel (ktls.c).
 *
 *	open: welcomed -> TLS in the kernel -> DCMFS_IOC_LINK
 *	dead: the socket was shut down, by the donor or by the kernel
 *	close: DCMFS_IOC_LINK without a socket, and it is closed with a reset
 *
 * The file's thread has an epoll descriptor with all of them, is told of an end
 * once, and has the control plane look.
 *
 * Threads: open, kill and close are the control thread's, dead is the file's.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

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

static int link_ioctl(const struct hostd_link *l, int fd, u32 window)
{
	struct dcmfs_link arg = {
		.donor = l->donor,
		.lane = l->lane,
		.fd = fd,
		.window = window,
	};

	return ioctl(l->file->fd, DCMFS_IOC_LINK, &arg) ? errno : 0;
}

static void link_close(struct dcm_endpoint *ep)
{
	struct hostd_link *l = to_link(ep);

	/* The file may be closed already, and its links with it. */
	while (l->file->fd >= 0 && link_ioctl(l, -1, 0) == EINTR)
		;
	close(l->fd);
	free(l);
}

static void link_kill(struct dcm_endpoint *ep)
{
	shutdown(to_link(ep)->fd, SHUT_RDWR);
}

static bool link_dead(struct dcm_endpoint *ep)
{
	struct pollfd p = { .fd = to_link(ep)->fd, .events = POLLRDHUP };

	return poll(&p, 1, 0) > 0;
}

static const char *link_why(struct dcm_endpoint *ep)
{
	(void)ep;
	return "connection lost";
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
	if (err && dcm_log_allow(&f->no_tls, hostd_now_ns() / 1000000, 60000))
		dcm_log(DCM_LOG_ERR,
			"%s: the kernel can't encrypt data: %s%s: no donor on another host can be used; data-encryption = no does without",
			f->path, strerror(-err),
			err == -ENOENT ? " (modprobe tls)" : "");
	return err;
}

/* struct dcm_ctl_config.data */
struct dcm_endpoint *hostd_link_open(void *arg, u32 donor, u32 lane,
				     const struct dcm_tcp_args *args, int *err)
{
	struct epoll_event ev = { .events = EPOLLRDHUP | EPOLLONESHOT };
	struct hostd_file *f = arg;
	struct hostd_link *l = calloc(1, sizeof(*l));

	*err = -ENOMEM;
	if (!l)
		return NULL;
	l->ep.ops = &link_ops;
	l->file = f;
	l->donor = donor;
	l->lane = lane;
	l->fd = args->fd;
	*err = tls_start(f, args);
	if (*err)
		goto fail;
	*err = -link_ioctl(l, l->fd, args->depth);
	if (*err)
		goto fail;
	if (epoll_ctl(f->links, EPOLL_CTL_ADD, l->fd, &ev)) {
		*err = -errno;
		link_ioctl(l, -1, 0);
		goto fail;
	}
	if (args->tls)
		gnutls_deinit(args->tls);
	return &l->ep;
fail:
	free(l);
	return NULL;
}

/* The file's thread: connections that have ended are made again. */
void hostd_links_look(struct hostd_file *f)
{
	struct epoll_event ev[16];
	u32 lane;

	while (epoll_wait(f->links, ev, 16, 0) == 16)
		;
	for (lane = 0; lane < f->info.lanes; lane++)
		dcm_ctl_lane_look(f->ctl, lane);
}

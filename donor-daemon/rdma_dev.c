// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * rdma_dev.c - RDMA devices and the address that is listened on
 *
 * A donor must start without RDMA too: unless the configuration insists, a
 * missing device or address is one line in the log and in the status.
 *
 * Devices are those at the start. One that goes away ends its queue pairs;
 * slabs registered on it stay reachable over TCP. If it comes back it is used
 * after a restart.
 *
 * Locking: none, all on the event loop.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "log_limit.h"
#include "rdma_int.h"

#define BACKLOG		64

struct rdma_device *dcm_rdma_device_of(struct dcm_rdma *r,
				     const struct ibv_context *ctx)
{
	for (u32 i = 0; i < r->nr_devices; i++)
		if (r->device[i].ctx == ctx && !r->device[i].gone)
			return &r->device[i];
	return NULL;
}

/* Stop using a device; slabs registered on it stay reachable over TCP. */
void dcm_rdma_device_gone(struct dcm_rdma *r, struct rdma_device *dev)
{
	struct rdma_conn *c, *tmp;
	struct dcm_session *s;

	if (dev->gone)
		return;
	dev->gone = true;
	uv_poll_stop(&dev->poll);
	dcm_err("RDMA device %s is gone: its slabs are lent over TCP; restart the donor when it is there again",
		ibv_get_device_name(dev->ctx->device));
	dcm_list_for_each_safe(c, tmp, &r->conns, struct rdma_conn, node) {
		if (c->pd->ctx == dev->ctx)
			dcm_rdma_conn_close(c, "its device is gone");
	}
	dcm_list_for_each(s, &r->donor->sessions, struct dcm_session, node) {
		if (s->pd && s->pd->ctx == dev->ctx)
			s->pd->dead = true;
	}
}

/* A queue pair failed, nearly always by an operation of its host. */
static void on_qp_error(struct dcm_rdma *r, const struct rdma_conn *which,
			enum ibv_event_type type)
{
	struct rdma_conn *c, *tmp;

	dcm_list_for_each_safe(c, tmp, &r->conns, struct rdma_conn, node) {
		if (c != which)
			continue;
		r->errors++;
		dcm_rdma_conn_close(c, ibv_event_type_str(type));
		return;
	}
}

static void device_ready(uv_poll_t *poll, int status, int events)
{
	struct rdma_device *dev = poll->data;
	struct ibv_async_event ev;
	enum ibv_event_type type;
	const void *which;

	(void)events;
	if (status < 0) {
		dcm_rdma_device_gone(dev->rdma, dev);
		return;
	}
	for (int i = 0; i < RDMA_TURN_MAX && !dev->gone; i++) {
		if (ibv_get_async_event(dev->ctx, &ev))
			return;
		type = ev.event_type;
		which = NULL;
		if (type == IBV_EVENT_QP_FATAL ||
		    type == IBV_EVENT_QP_REQ_ERR ||
		    type == IBV_EVENT_QP_ACCESS_ERR)
			which = ev.element.qp->qp_context;
		ibv_ack_async_event(&ev);
		if (which)
			on_qp_error(dev->rdma, which, type);
		else if (type == IBV_EVENT_DEVICE_FATAL)
			dcm_rdma_device_gone(dev->rdma, dev);
	}
}

static void devices_open(struct dcm_rdma *r)
{
	int nr = 0;

	r->contexts = rdma_get_devices(&nr);
	for (int i = 0; i < nr && r->nr_devices < RDMA_DEVICES_MAX; i++) {
		struct rdma_device *dev = &r->device[r->nr_devices];
		int fd = r->contexts[i]->async_fd;
		int flags = fcntl(fd, F_GETFL);

		if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) ||
		    uv_poll_init(&r->donor->loop, &dev->poll, fd))
			continue;
		dev->rdma = r;
		dev->ctx = r->contexts[i];
		dev->poll.data = dev;
		uv_poll_start(&dev->poll, UV_READABLE, device_ready);
		r->nr_devices++;
	}
}

void dcm_rdma_status_read(const struct dcm_donor *donor,
			  struct dcm_rdma_status *st)
{
	const struct dcm_rdma *r = donor->rdma;

	memset(st, 0, sizeof(*st));
	st->name = "off";
	st->why = donor->rdma_why;
	if (!r)
		return;
	if (r->listener)
		st->name = r->name;
	st->connections = r->nr_conns;
	st->connections_total = r->opened;
	st->tickets = r->tickets.nr;
	st->tickets_total = r->tickets.issued;
	st->tickets_bad = r->tickets.bad;
	st->tickets_expired = r->tickets.expired;
	st->rejected = r->rejected;
	st->errors = r->errors;
	st->registered_bytes = dcm_rdma_pd_registered();
}

/* Make the text and the address for TICKET; an address of zero means any address. */
static void address_name(struct dcm_rdma *r, struct sockaddr *sa)
{
	char host[INET6_ADDRSTRLEN];

	r->port = ntohs(rdma_get_src_port(r->listener));
	if (sa->sa_family == AF_INET6) {
		struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)sa;

		memcpy(r->addr, &in6->sin6_addr, 16);
		inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof(host));
		snprintf(r->name, sizeof(r->name), "[%s]:%u", host, r->port);
	} else {
		struct sockaddr_in *in = (struct sockaddr_in *)sa;

		if (in->sin_addr.s_addr) {
			r->addr[10] = r->addr[11] = 0xff;
			memcpy(r->addr + 12, &in->sin_addr, 4);
		}
		inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host));
		snprintf(r->name, sizeof(r->name), "%s:%u", host, r->port);
	}
}

static int rdma_open(struct dcm_rdma *r, char *err, size_t err_len)
{
	const struct dcm_config *cfg = &r->donor->cfg;
	const char *own = cfg->rdma_listen[0] ? cfg->rdma_listen : NULL;
	struct sockaddr_storage ss;
	socklen_t len;
	int flags, ret;

	/* by default the first TCP address and any port */
	ret = dcm_address_parse("rdma-listen", own ? own : cfg->listen[0],
				own ? NULL : "0", &ss, &len, err, err_len);
	if (ret)
		return ret;
	r->channel = rdma_create_event_channel();
	if (!r->channel) {
		ret = -errno;
		snprintf(err, err_len,
			 "no RDMA device here, or no /dev/infiniband/rdma_cm: %s",
			 strerror(-ret));
		return ret;
	}
	devices_open(r);
	if (!r->nr_devices) {
		snprintf(err, err_len, "no RDMA device here");
		return -ENODEV;
	}
	if (rdma_create_id(r->channel, &r->listener, NULL, RDMA_PS_TCP) ||
	    rdma_bind_addr(r->listener, (struct sockaddr *)&ss) ||
	    rdma_listen(r->listener, BACKLOG)) {
		ret = -errno;
		snprintf(err, err_len,
			 "the RDMA address can't be listened on: %s; set rdma-listen to an address of an RDMA device",
			 strerror(-ret));
		return ret;
	}
	address_name(r, (struct sockaddr *)&ss);
	flags = fcntl(r->channel->fd, F_GETFL);
	if (flags < 0 || fcntl(r->channel->fd, F_SETFL, flags | O_NONBLOCK))
		ret = -errno;
	else
		ret = uv_poll_init(&r->donor->loop, &r->poll, r->channel->fd);
	if (ret) {
		snprintf(err, err_len,
			 "the RDMA event channel can't be used: %s",
			 strerror(-ret));
		return ret;
	}
	r->poll.data = r;
	uv_poll_start(&r->poll, UV_READABLE, dcm_rdma_channel_ready);
	return 0;
}

int dcm_rdma_start(struct dcm_donor *donor, char *err, size_t err_len)
{
	const struct dcm_config *cfg = &donor->cfg;
	char why[256];
	int ret;

	if (cfg->medium == DCM_MEDIUM_FILE) {
		snprintf(donor->rdma_why, sizeof(donor->rdma_why),
			 "medium = file");
		return 0;
	}
	if (cfg->rdma == DCM_RDMA_NO ||
	    (cfg->rdma == DCM_RDMA_AUTO &&
	     (cfg->data_encryption ||
	      (!cfg->nr_listen && !cfg->rdma_listen[0])))) {
		snprintf(donor->rdma_why, sizeof(donor->rdma_why), "%s",
			 cfg->rdma == DCM_RDMA_NO ? "rdma = no" :
			 cfg->data_encryption	  ? "data-encryption = yes" :
						    "no TCP address");
		return 0;
	}
	donor->rdma = calloc(1, sizeof(*donor->rdma));
	if (!donor->rdma) {
		snprintf(err, err_len, "out of memory");
		return -ENOMEM;
	}
	donor->rdma->donor = donor;
	dcm_list_init(&donor->rdma->conns);
	dcm_tickets_init(&donor->rdma->tickets);
	ret = rdma_open(donor->rdma, why, sizeof(why));
	if (!ret) {
		dcm_info("listening on rdma:%s", donor->rdma->name);
		return 0;
	}
	if (cfg->rdma == DCM_RDMA_YES) {
		snprintf(err, err_len, "[donor] rdma = yes: %s", why);
		return ret;
	}
	snprintf(donor->rdma_why, sizeof(donor->rdma_why), "%s", why);
	dcm_info("RDMA is off: %s", why);
	dcm_rdma_stop(donor);
	return 0;
}

static void poll_close(uv_poll_t *poll)
{
	if (poll->data && !uv_is_closing((uv_handle_t *)poll))
		uv_close((uv_handle_t *)poll, NULL);
}

void dcm_rdma_stop(struct dcm_donor *donor)
{
	struct dcm_rdma *r = donor->rdma;

	if (!r)
		return;
	if (r->listener)
		rdma_destroy_id(r->listener);
	r->listener = NULL;
	poll_close(&r->poll);
	for (u32 i = 0; i < r->nr_devices; i++)
		poll_close(&r->device[i].poll);
}

void dcm_rdma_free(struct dcm_donor *donor)
{
	struct dcm_rdma *r = donor->rdma;

	if (!r)
		return;
	if (r->channel)
		rdma_destroy_event_channel(r->channel);
	if (r->contexts)
		rdma_free_devices(r->contexts);
	free(r);
	donor->rdma = NULL;
}

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * verbs.c - queue pairs: one for each lane and donor that has verbs
 *
 * As data.c, with the RDMA connection manager in place of TCP and a ticket in
 * place of a handshake:
 *
 *	NONE -> TICKET -> ADDRESS -> ROUTE -> CONNECT -> READY -> lane has it
 *	  ^        '---------'---------'---------'---------'-- fails: try later
 *
 * With dcm_client_config.links the pager makes the connection: after TICKET
 * comes CONNECT, and ten times a second a check whether it is made.
 *
 * All of this is driven by the client thread's poll(). The connection manager's
 * events come from one channel for all donors. Each is acknowledged before it is
 * handled, because destroying an id waits until its events are acknowledged.
 *
 * Whether a session uses verbs is decided once, before it has a slab: yes if a first
 * queue pair gets connected. Its slabs can then be reached both ways. If
 * %CLIENT_PAIR_FAILS attempts of a lane have failed, the session uses tcp, unless
 * the configuration insists on verbs. Later it changes to tcp only if the donor
 * loses its device. So a donor that can be reached by TCP but not by RDMA (another
 * network, a limit of locked memory) costs a pause and a log line, but is used.
 *
 * Pages are not encrypted over verbs, so nothing here begins without
 * data-encryption = no.
 *
 * Locking: none, only the client thread uses it.
 */
#include <dirent.h>
#include <fcntl.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>

#include "client_int.h"

#define DEVICES_DIR "/sys/class/infiniband"
#define RESOLVE_MS 2000
#define EVENTS_MAX 64
/* 4.096 us << 16: 0.27 s for an acknowledgement, and seven retries */
#define ACK_TIMEOUT 16
#define RETRIES 7

static struct client_lane_slot *slot_of(struct rdma_cm_id *id)
{
	return id->context;
}

static u32 lane_of(const struct client_lane_slot *s)
{
	return (u32)(s - s->donor->slot);
}

/* Drop a queue pair that is being made. */
void client_verbs_abort(struct client_lane_slot *s)
{
	struct client_pair *p = &s->pair;

	if (p->st == PAIR_TICKET)
		client_request_drop(s->donor, p->tag);
	if (p->ep)
		p->ep->ops->close(p->ep);
	else if (p->id)
		rdma_destroy_id(p->id);
	p->ep = NULL;
	p->id = NULL;
	p->st = PAIR_NONE;
	explicit_bzero(&p->shown, sizeof(p->shown));
}

/* Use tcp for this session: it has no slab mapped over verbs yet. */
static void verbs_off(struct client_donor *d, u64 now)
{
	u32 lane;

	d->verbs = VERBS_OFF;
	dcm_log(DCM_LOG_WARNING,
		"donor %s (%s): offers RDMA but can't be reached by it: using tcp",
		d->name, d->address);
	for (lane = 0; lane < d->client->nr_lanes; lane++) {
		client_verbs_abort(&d->slot[lane]);
		d->slot[lane].retry_ms = now;
	}
	client_place_soon(d->client, now);
}

/*
 * The donor has lost its RDMA device. Its slabs are reached over tcp from now
 * on. New slabs, which have no rkey, are taken over tcp once no lane has a queue pair
 * any more: a lane with one could not reach them.
 */
void client_verbs_lost(struct client_donor *d, u64 now)
{
	u32 lane;

	if (d->verbs != VERBS_ON)
		return;
	d->verbs = VERBS_OFF;
	dcm_log(DCM_LOG_WARNING,
		"donor %s (%s): has no RDMA any more: going on over tcp",
		d->name, d->address);
	for (lane = 0; lane < d->client->nr_lanes; lane++) {
		struct client_lane_slot *s = &d->slot[lane];

		client_verbs_abort(s);
		s->retry_ms = now;
		if (s->live)
			s->raw->ops->kill(s->raw);
	}
}

static void pair_failed(struct client_lane_slot *s, const char *why, u64 now)
{
	struct client_donor *d = s->donor;
	bool must = d->client->transport == DCM_TRANSPORT_VERBS;

	client_verbs_abort(s);
	if (dcm_log_allow(&d->say_data, now, CLIENT_SAY_MS))
		dcm_log(DCM_LOG_WARNING,
			"donor %s (%s): queue pair: %s; trying again", d->name,
			d->address, why);
	snprintf(d->why, sizeof(d->why), "queue pair: %s", why);
	client_data_retry(s, now);
	/* only verbs may be used: no slab is sought until a queue pair is connected */
	if (must && d->verbs == VERBS_TRY)
		return;
	if (++s->pair.fails == CLIENT_PAIR_FAILS && d->verbs == VERBS_TRY)
		verbs_off(d, now);
}

/* ---- the ticket ---- */

void client_verbs_welcome(struct client_donor *d, bool offered, bool resume)
{
	u32 lane;

	/* a resumed session keeps its transport */
	if (resume)
		return;
	d->verbs = offered ? VERBS_TRY : VERBS_OFF;
	for (lane = 0; lane < d->client->nr_lanes; lane++)
		d->slot[lane].pair.fails = 0;
}

void client_verbs_start(struct client_lane_slot *s, u64 now)
{
	struct client_donor *d = s->donor;
	struct dcm_wire_msg msg = {
		.type = DCM_MSG_ASK_TICKET,
		.tag = client_request_add(d, REQUEST_TICKET, s),
		.ask_ticket.lane = (u16)(lane_of(s) + 1),
	};

	s->pair.st = PAIR_TICKET;
	s->pair.tag = msg.tag;
	s->pair.since_ms = now;
	client_donor_send(d, &msg, now);
}

/* The control connection that would have brought the answers is lost. */
void client_verbs_down(struct client_donor *d)
{
	u32 lane;

	for (lane = 0; lane < d->client->nr_lanes; lane++)
		if (d->slot[lane].pair.st == PAIR_TICKET)
			client_verbs_abort(&d->slot[lane]);
}

void client_verbs_refused(struct client_lane_slot *s, u32 status, u64 now)
{
	pair_failed(s, dcm_wire_status_text(status), now);
}

/* The address to connect to, where the ticket is shown. */
static void ticket_address(const struct client_donor *d,
			   const struct dcm_wire_msg *m,
		   struct sockaddr_storage *ss)
{
	static const u8 none[16], v4[12] = { [10] = 0xff, [11] = 0xff };
	const u8 *addr = m->ticket.addr;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ss;
	struct sockaddr_in *in = (struct sockaddr_in *)ss;

	memcpy(ss, &d->sa, sizeof(*ss));
	if (!memcmp(addr, v4, sizeof(v4))) {
		memset(ss, 0, sizeof(*ss));
		in->sin_family = AF_INET;
		memcpy(&in->sin_addr, addr + 12, 4);
	} else if (memcmp(addr, none, sizeof(none)) &&
		   (ss->ss_family != AF_INET6 ||
		    memcmp(addr, &in6->sin6_addr, 16) != 0)) {
		memset(ss, 0, sizeof(*ss));
		in6->sin6_family = AF_INET6;
		memcpy(&in6->sin6_addr, addr, 16);
	}
	if (ss->ss_family == AF_INET6)
		in6->sin6_port = htons(m->ticket.port);
	else
		in->sin_port = htons(m->ticket.port);
}

static void pair_elsewhere(struct client_lane_slot *s,
			   const struct sockaddr_storage *to, u64 now)
{
	struct dcm_client *client = s->donor->client;
	struct client_pair *p = &s->pair;
	int err;

	p->st = PAIR_CONNECT;
	p->ep = client->links->pair(client->arg, s->donor->idx, lane_of(s), to,
				    &p->shown, client_late_ms(client), &err);
	if (!p->ep)
		pair_failed(s, strerror(-err), now);
}

bool client_verbs_ticket(struct client_donor *d, const struct dcm_wire_msg *m,
			 u64 now)
{
	struct client_request r =
		client_request_take(d, m->tag, REQUEST_TICKET);
	struct client_lane_slot *s = r.slot;
	struct sockaddr_storage ss;
	struct client_pair *p;

	/* the answer to a request that was given up is allowed, and ignored */
	if (!r.kind)
		return m->tag && m->tag <= d->tag;
	p = &s->pair;
	p->shown.version = DCM_WIRE_VERSION_MAX;
	p->shown.number = m->ticket.number;
	memcpy(p->shown.secret, m->ticket.secret, sizeof(p->shown.secret));
	ticket_address(d, m, &ss);
	if (d->client->links) {
		pair_elsewhere(s, &ss, now);
		return true;
	}
	if (rdma_create_id(d->client->channel, &p->id, s, RDMA_PS_TCP)) {
		p->id = NULL;
		pair_failed(s, strerror(errno), now);
		return true;
	}
	p->st = PAIR_ADDRESS;
	if (rdma_resolve_addr(p->id, NULL, (struct sockaddr *)&ss, RESOLVE_MS))
		pair_failed(s, strerror(errno), now);
	return true;
}

/* ---- the connection ---- */

/* The objects that all endpoints on one device share. On failure %NULL and errno. */
static struct client_verbs_device *device_get(struct dcm_client *client,
					      struct ibv_context *ctx)
{
	struct client_verbs_device *dev;
	u32 i;

	for (i = 0; i < client->nr_devices; i++)
		if (client->device[i].ctx == ctx)
			return &client->device[i];
	if (client->nr_devices == CLIENT_VERBS_DEVICES) {
		errno = ENOSPC;
		return NULL;
	}
	dev = &client->device[client->nr_devices];
	dev->ctx = ctx;
	dev->pd = ibv_alloc_pd(ctx);
	if (!dev->pd)
		return NULL;
	if (client->area) {
		dev->area = ibv_reg_mr(dev->pd, client->area,
				       client->area_bytes,
				       IBV_ACCESS_LOCAL_WRITE);
		if (!dev->area)
			dcm_log(DCM_LOG_WARNING,
				"%zu KiB can't be locked for RDMA: %s; every page is copied once more; raise the limit of locked memory",
				client->area_bytes >> 10, strerror(errno));
	}
	client->nr_devices++;
	return dev;
}

/* The route is known: make the endpoint, then connect it. */
static void pair_connect(struct client_lane_slot *s, u64 now)
{
	struct dcm_client *client = s->donor->client;
	struct client_pair *p = &s->pair;
	struct client_verbs_device *dev = device_get(client, p->id->verbs);
	struct dcm_verbs_args args = {
		.id = p->id,
		.silence_ns = client_late_ms(client) * 1000000ull,
	};
	struct rdma_conn_param param = {
		.private_data_len = DCM_WIRE_SHOW_BYTES,
		.retry_count = RETRIES,
		.rnr_retry_count = 0,
	};
	u8 shown[DCM_WIRE_SHOW_BYTES], ack = ACK_TIMEOUT;
	struct ibv_device_attr attr;
	int err;

	if (!dev || ibv_query_device(dev->ctx, &attr)) {
		pair_failed(s, strerror(errno), now);
		return;
	}
	args.pd = dev->pd;
	args.area = dev->area;
	p->ep = dcm_transport_verbs.open(&args, &err);
	if (!p->ep) {
		pair_failed(s,
			    err == -ENOMEM ?
				    "no memory; the limit of locked memory may be too low" :
				    strerror(-err),
			    now);
		return;
	}
	/* old kernels can't set this, and use their default */
	rdma_set_option(p->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &ack,
			sizeof(ack));
	/* most READs in flight at a time */
	param.initiator_depth = (u8)min(attr.max_qp_init_rd_atom, 255);
	dcm_wire_show_put(shown, &p->shown);
	param.private_data = shown;
	p->st = PAIR_CONNECT;
	if (rdma_connect(p->id, &param))
		pair_failed(s, strerror(errno), now);
	explicit_bzero(shown, sizeof(shown));
}

/* Give a connected queue pair to the lane, as soon as that has no endpoint. */
static void pair_out(struct client_lane_slot *s)
{
	struct dcm_endpoint *ep = s->pair.ep;

	if (s->live)
		return;
	s->pair.ep = NULL;
	s->pair.id = NULL;
	client_verbs_abort(s);
	client_data_out(s, ep);
}

static void pair_established(struct client_lane_slot *s, u64 now)
{
	struct client_donor *d = s->donor;

	s->pair.st = PAIR_READY;
	s->pair.fails = 0;
	pair_out(s);
	if (d->verbs != VERBS_TRY)
		return;
	d->verbs = VERBS_ON;
	d->why[0] = 0;
	dcm_log(DCM_LOG_INFO, "donor %s (%s): reached by RDMA", d->name,
		d->address);
	client_place_soon(d->client, now);
}

/* Handle an event of a connection that is being made. */
static void pair_event(struct client_lane_slot *s, enum rdma_cm_event_type type,
		       u64 now)
{
	struct client_pair *p = &s->pair;

	if (type == RDMA_CM_EVENT_ADDR_RESOLVED && p->st == PAIR_ADDRESS) {
		p->st = PAIR_ROUTE;
		if (rdma_resolve_route(p->id, RESOLVE_MS))
			pair_failed(s, strerror(errno), now);
	} else if (type == RDMA_CM_EVENT_ROUTE_RESOLVED &&
		   p->st == PAIR_ROUTE) {
		pair_connect(s, now);
	} else if (type == RDMA_CM_EVENT_ESTABLISHED && p->st == PAIR_CONNECT) {
		pair_established(s, now);
	} else if (type == RDMA_CM_EVENT_REJECTED) {
		pair_failed(s, "rejected by the donor", now);
	} else if (type != RDMA_CM_EVENT_ADDR_CHANGE) {
		pair_failed(s, rdma_event_str(type), now);
	}
}

int client_verbs_fd(const struct dcm_client *client)
{
	return client->channel ? client->channel->fd : -1;
}

void client_verbs_events(struct dcm_client *client, u64 now)
{
	enum rdma_cm_event_type type;
	struct rdma_cm_event *ev;
	struct client_lane_slot *s;
	struct rdma_cm_id *id;
	int i;

	for (i = 0; i < EVENTS_MAX && client->channel; i++) {
		if (rdma_get_cm_event(client->channel, &ev))
			return;
		type = ev->event;
		id = ev->id;
		rdma_ack_cm_event(ev);
		s = slot_of(id);
		if (s->pair.id == id)
			pair_event(s, type, now);
		else if (s->live && dcm_verbs_id(s->raw) == id &&
			 (type == RDMA_CM_EVENT_DISCONNECTED ||
			  type == RDMA_CM_EVENT_DEVICE_REMOVAL))
			s->raw->ops->kill(s->raw);
	}
}

/* Step the making of a lane's queue pair. True: one is being made. */
bool client_verbs_timers(struct client_lane_slot *s, u64 now)
{
	const struct dcm_client_links *links = s->donor->client->links;

	if (s->pair.st == PAIR_NONE)
		return false;
	if (s->pair.st == PAIR_READY)
		pair_out(s);
	else if (links && s->pair.st == PAIR_CONNECT &&
		 s->pair.ep->ops->dead(s->pair.ep))
		pair_failed(s, s->pair.ep->ops->why(s->pair.ep), now);
	else if (links && s->pair.st == PAIR_CONNECT &&
		 links->paired(s->pair.ep))
		pair_established(s, now);
	else if (now - s->pair.since_ms > CLIENT_CONNECT_MS)
		pair_failed(s, "no answer", now);
	return true;
}

/* ---- start and end ---- */

/* Is there an RDMA device? If not, don't call librdmacm: its setup is costly. */
static bool have_device(void)
{
	DIR *dir = opendir(DEVICES_DIR);
	struct dirent *e;
	bool any = false;

	while (dir && (e = readdir(dir)))
		any |= e->d_name[0] != '.';
	if (dir)
		closedir(dir);
	return any;
}

int client_verbs_init(struct dcm_client *client)
{
	const char *why = "there is none in " DEVICES_DIR;
	int flags;

	if (client->transport == DCM_TRANSPORT_TCP || client->data_encryption)
		return 0;
	client->has_verbs = have_device();
	if (client->has_verbs && client->links)
		return 0;
	if (client->has_verbs) {
		client->channel = rdma_create_event_channel();
		why = strerror(errno);
	}
	if (client->channel) {
		flags = fcntl(client->channel->fd, F_GETFL);
		if (flags >= 0 &&
		    !fcntl(client->channel->fd, F_SETFL, flags | O_NONBLOCK))
			return 0;
		why = strerror(errno);
		client_verbs_exit(client);
	}
	client->has_verbs = false;
	if (client->transport != DCM_TRANSPORT_VERBS)
		return 0;
	dcm_log(DCM_LOG_ERR,
		"transport = verbs: no RDMA device can be used here: %s", why);
	return -ENODEV;
}

/* Called when all endpoints are closed. */
void client_verbs_exit(struct dcm_client *client)
{
	u32 i;

	for (i = 0; i < client->nr_devices; i++) {
		if (client->device[i].area)
			ibv_dereg_mr(client->device[i].area);
		ibv_dealloc_pd(client->device[i].pd);
	}
	client->nr_devices = 0;
	if (client->channel)
		rdma_destroy_event_channel(client->channel);
	client->channel = NULL;
}

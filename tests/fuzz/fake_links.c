// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * fake_links.c - links: a pager that moves data by itself
 *
 * Connections that an input lets fail or not, as links_set() says. A link of
 * queue pairs never carries anything.
 */
#include <errno.h>
#include <stdlib.h>

#include "../../kvm-dcm/transport/tcp.h"
#include "fake_links.h"
#include "fake_pager.h"

struct pair {
	struct dcm_endpoint ep;
	bool up;
	bool dead;
};

static u32 nr_pairs, how;

void links_set(u32 to)
{
	how = to;
}

u32 links_paired(void)
{
	return nr_pairs;
}

static void pair_close(struct dcm_endpoint *ep)
{
	nr_pairs--;
	free(container_of(ep, struct pair, ep));
}

static bool pair_dead(struct dcm_endpoint *ep)
{
	return container_of(ep, struct pair, ep)->dead;
}

static void pair_kill(struct dcm_endpoint *ep)
{
	container_of(ep, struct pair, ep)->dead = true;
}

static const char *pair_why(struct dcm_endpoint *ep)
{
	(void)ep;
	return "";
}

static u32 pair_in_flight(struct dcm_endpoint *ep)
{
	(void)ep;
	return 0;
}

static const struct dcm_transport_ops pair_ops = {
	.name = "pair",
	.close = pair_close,
	.dead = pair_dead,
	.kill = pair_kill,
	.why = pair_why,
	.in_flight = pair_in_flight,
};

static struct dcm_endpoint *link_data(void *arg, u32 donor, u32 lane,
				      const struct dcm_tcp_args *args, int *err)
{
	(void)arg;
	EXPECT(donor < DCM_CONFIG_DONORS_MAX && lane < LANES && args->fd >= 0);
	*err = -EBUSY;
	return how & 1 ? NULL : dcm_transport_tcp.open(args, err);
}

static struct dcm_endpoint *link_pair(void *arg, u32 donor, u32 lane,
				      const struct sockaddr_storage *to,
				      const struct dcm_wire_shown *shown,
				      u32 late_ms, int *err)
{
	struct pair *p;

	(void)arg;
	(void)shown;
	EXPECT(late_ms);
	EXPECT(donor < DCM_CONFIG_DONORS_MAX && lane < LANES);
	EXPECT(to->ss_family == AF_INET || to->ss_family == AF_INET6);
	*err = -EBUSY;
	if (how & 2)
		return NULL;
	p = calloc(1, sizeof(*p));
	EXPECT(p);
	p->ep.ops = &pair_ops;
	p->up = how & 4;
	p->dead = how & 8;
	nr_pairs++;
	return &p->ep;
}

static bool link_paired(struct dcm_endpoint *ep)
{
	struct pair *p = container_of(ep, struct pair, ep);

	p->up |= (bool)(how & 4);
	return p->up;
}

const struct dcm_client_links fake_links = {
	.data = link_data,
	.pair = link_pair,
	.paired = link_paired,
};

/* SPDX-License-Identifier: GPL-2.0-or-later */
/* domain.h - what one session may reach by RDMA, and slabs in it */
#ifndef DCM_DOMAIN_H
#define DCM_DOMAIN_H

#include <infiniband/verbs.h>

#include "../kvm-dcm/proto/wire.h"
#include "lend.h"

/**
 * struct dcm_domain - a session's protection domain
 * @ctx: the device its queue pairs came in over
 * @cq: what queue pairs must have; nothing ever completes there
 * @dead: the device is gone: nothing new is registered
 * @refs: the session's, one of each queue pair and of each slab. The event
 *	loop's.
 */
struct dcm_domain {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	bool dead;
	unsigned int refs;
};

/* On the device of @ctx; %NULL and errno. */
struct dcm_domain *dcm_domain_new(struct ibv_context *ctx);
struct dcm_domain *dcm_domain_get(struct dcm_domain *dom);
/* %NULL is fine. */
void dcm_domain_put(struct dcm_domain *dom);

/* Bytes that are registered now; any thread. */
u64 dcm_domain_registered(void);

#endif /* DCM_DOMAIN_H */

/* SPDX-License-Identifier: GPL-2.0-or-later */
/* domain.h - a session's RDMA protection domain, and slabs in it */
#ifndef DCM_DOMAIN_H
#define DCM_DOMAIN_H

#include <infiniband/verbs.h>

#include "../kvm-dcm/proto/wire.h"
#include "lend.h"

/**
 * struct dcm_domain - a session's protection domain
 * @ctx: the device its queue pairs come in over
 * @cq: queue pairs need one; nothing ever completes there
 * @dead: the device is gone: no slab is registered any more
 * @refs: the session's, and one of each queue pair and each slab. Only the
 *	event loop counts
 */
struct dcm_domain {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	bool dead;
	unsigned int refs;
};

/* Make one on the device of @ctx; %NULL and errno. */
struct dcm_domain *dcm_domain_new(struct ibv_context *ctx);
struct dcm_domain *dcm_domain_get(struct dcm_domain *dom);
/* Does nothing for %NULL. */
void dcm_domain_put(struct dcm_domain *dom);

/* Bytes registered now; any thread. */
u64 dcm_domain_registered(void);

#endif /* DCM_DOMAIN_H */

/* SPDX-License-Identifier: GPL-2.0-or-later */
/* rdma_pd.h - a session's RDMA protection domain, and slabs in it */
#ifndef DCM_RDMA_PD_H
#define DCM_RDMA_PD_H

#include <infiniband/verbs.h>

#include "../kvm-dcm/proto/wire.h"
#include "export.h"

struct rdma_conn;

/**
 * struct dcm_rdma_pd - a session's protection domain
 * @ctx: the device its queue pairs come in over
 * @cq: completion queue of pings (rdma_ping.c)
 * @asked: the queue pair with a ping in flight, or %NULL
 * @dead: the device is gone: no slab is registered any more
 * @refs: references: one of the session, and one of each queue pair and slab. Only
 *	the event loop changes it
 */
struct dcm_rdma_pd {
	struct ibv_context *ctx;
	struct ibv_pd *ibv;
	struct ibv_cq *cq;
	struct rdma_conn *asked;
	bool dead;
	unsigned int refs;
};

/* Make one on the device of @ctx; %NULL and errno. */
struct dcm_rdma_pd *dcm_rdma_pd_new(struct ibv_context *ctx);
struct dcm_rdma_pd *dcm_rdma_pd_get(struct dcm_rdma_pd *pd);
/* Does nothing for %NULL. */
void dcm_rdma_pd_put(struct dcm_rdma_pd *pd);

/* Bytes registered now; any thread. */
u64 dcm_rdma_pd_registered(void);

#endif /* DCM_RDMA_PD_H */

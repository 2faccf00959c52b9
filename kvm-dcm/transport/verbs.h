/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * verbs.h - the verbs transport's parameters, in user space
 *
 * The client resolves the route, opens the endpoint on it, and connects.
 * Operations may be posted once the connection is established.
 */
#ifndef DCM_VERBS_H
#define DCM_VERBS_H

#include "transport.h"

struct ibv_mr;
struct ibv_pd;
struct rdma_cm_id;

/* bytes that each endpoint keeps locked in memory */
#define DCM_VERBS_RING_BYTES (1u << 20)
#define DCM_VERBS_DEPTH 128u

/**
 * struct dcm_verbs_args - parameters of a verbs endpoint
 * @id: with its route resolved; the endpoint owns it after a successful open()
 * @pd: protection domain on the same device, must outlive the endpoint
 * @area: registered memory: operations on it need no copy. %NULL: none
 * @silence_ns: the endpoint dies if operations are in flight and none completes
 *	for so long. 0: never
 */
struct dcm_verbs_args {
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_mr *area;
	u64 silence_ns;
};

extern const struct dcm_transport_ops dcm_transport_verbs;

/* The endpoint's connection; %NULL if it is another transport's. */
struct rdma_cm_id *dcm_verbs_id(struct dcm_endpoint *ep);

#endif /* DCM_VERBS_H */

/* SPDX-License-Identifier: GPL-2.0-or-later */
/* rdma_int.h - shared by rdma.c, rdma_dev.c and rdma_ping.c; rdma.h is the interface */
#ifndef DCM_RDMA_INT_H
#define DCM_RDMA_INT_H

#include <rdma/rdma_cma.h>

#include "rdma_pd.h"
#include "rdma.h"
#include "ticket.h"

#define RDMA_DEVICES_MAX 8
#define RDMA_TURN_MAX	32	/* events handled at a time, for fairness */

struct rdma_device {
	struct dcm_rdma *rdma;
	struct ibv_context *ctx;
	uv_poll_t poll;
	bool gone;
};

struct dcm_rdma {
	struct dcm_donor *donor;
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener;
	struct ibv_context **contexts;
	uv_poll_t poll;
	struct rdma_device device[RDMA_DEVICES_MAX];
	u32 nr_devices;
	struct dcm_tickets tickets;
	struct dcm_list conns;
	u32 nr_conns;
	u64 opened;
	u64 rejected;
	u64 errors;
	u8 addr[16];
	u16 port;
	char name[80];
};

/**
 * struct rdma_conn - one queue pair
 * @id: the connection manager's; its context points back here
 * @open: established
 * @deadline: for becoming established
 */
struct rdma_conn {
	struct dcm_list node;
	struct dcm_list session_node;
	struct dcm_rdma *rdma;
	struct rdma_cm_id *id;
	struct dcm_session *session;
	struct dcm_tenant *tenant;
	struct dcm_rdma_pd *pd;
	u16 lane;
	bool open;
	u64 deadline;
};

/* rdma.c */
void dcm_rdma_conn_close(struct rdma_conn *c, const char *why);
void dcm_rdma_channel_ready(uv_poll_t *poll, int status, int events);

/* rdma_ping.c: four times a second */
void dcm_rdma_pings(struct dcm_donor *donor);

/* rdma_dev.c */
/* The device of @ctx if it was there at the start and still is, or %NULL. */
struct rdma_device *dcm_rdma_device_of(struct dcm_rdma *r,
				       const struct ibv_context *ctx);
void dcm_rdma_device_gone(struct dcm_rdma *r, struct rdma_device *dev);

#endif /* DCM_RDMA_INT_H */

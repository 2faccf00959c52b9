/* SPDX-License-Identifier: GPL-2.0-or-later */
/* rdma.h - queue pairs of sessions: the RDMA port, tickets, devices */
#ifndef DCM_RDMA_H
#define DCM_RDMA_H

#include "donor.h"

/* -1 and one line: only if the configuration says that it must be on. */
int dcm_rdma_start(struct dcm_donor *donor, char *err, size_t err_len);
/* Before the loop's handles are closed; sessions have ended. */
void dcm_rdma_stop(struct dcm_donor *donor);
/* When the loop has ended. */
void dcm_rdma_free(struct dcm_donor *donor);

/* May a session of @conn ask for tickets? */
bool dcm_rdma_on(const struct dcm_conn *conn);

/**
 * dcm_rdma_ticket() - a host asks for a queue pair
 * @conn: its control connection
 * @lane: which
 * @msg: TICKET, all but its tag
 *
 * The lane's queue pair, if it has one, is gone when this returns.
 *
 * Return: enum dcm_wire_status.
 */
u32 dcm_rdma_ticket(struct dcm_conn *conn, u16 lane, struct dcm_wire_msg *msg);

/* The lane gets another connection: its queue pair and ticket are void. */
void dcm_rdma_lane_close(struct dcm_session *s, u16 lane);
void dcm_rdma_session_end(struct dcm_session *s);

/* May slabs be mapped over verbs in this session? */
bool dcm_rdma_ready(const struct dcm_session *s);

/* Deadlines. */
void dcm_rdma_quarter(struct dcm_donor *donor);

/**
 * struct dcm_rdma_status - for people
 * @name: "HOST:PORT", or "off"
 * @why: it is off
 */
struct dcm_rdma_status {
	const char *name;
	const char *why;
	u32 connections;
	u64 connections_total;
	u32 tickets;
	u64 tickets_total;
	u64 tickets_bad;
	u64 tickets_expired;
	u64 rejected;
	u64 errors;
	u64 registered_bytes;
};
void dcm_rdma_look(const struct dcm_donor *donor, struct dcm_rdma_status *st);

#endif /* DCM_RDMA_H */

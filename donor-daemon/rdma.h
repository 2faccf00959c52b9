/* SPDX-License-Identifier: GPL-2.0-or-later */
/* rdma.h - queue pairs of sessions: the RDMA port, tickets, devices */
#ifndef DCM_RDMA_H
#define DCM_RDMA_H

#include "donor.h"

/*
 * Start RDMA. 0; or a negative errno and one line, but only if the configuration
 * insists on RDMA, or if there is no memory.
 */
int dcm_rdma_start(struct dcm_donor *donor, char *err, size_t err_len);
/* After the sessions' end, before the loop's handles are closed. */
void dcm_rdma_stop(struct dcm_donor *donor);
/* After the loop's end. */
void dcm_rdma_free(struct dcm_donor *donor);

/* May a session of @conn ask for tickets? */
bool dcm_rdma_on(const struct dcm_conn *conn);

/**
 * dcm_rdma_ticket() - issue a ticket for a queue pair
 * @conn: its control connection
 * @lane: the lane
 * @msg: filled in as TICKET, except its tag
 *
 * On return the lane's queue pair, if it had one, is gone.
 *
 * Return: enum dcm_wire_status.
 */
u32 dcm_rdma_ticket(struct dcm_conn *conn, u16 lane, struct dcm_wire_msg *msg);

/* The lane gets another connection: drop its queue pair and ticket. */
void dcm_rdma_lane_close(struct dcm_session *s, u16 lane);
void dcm_rdma_session_end(struct dcm_session *s);

/* Can slabs be mapped over verbs in this session? */
bool dcm_rdma_ready(const struct dcm_session *s);

/* Handle deadlines, four times a second. */
void dcm_rdma_deadlines(struct dcm_donor *donor);

/**
 * struct dcm_rdma_status - for status and metrics
 * @name: "HOST:PORT", or "off"
 * @why: why it is off
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
void dcm_rdma_status_read(const struct dcm_donor *donor,
			  struct dcm_rdma_status *st);

#endif /* DCM_RDMA_H */

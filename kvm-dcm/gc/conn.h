/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * conn.h - the GC connection to one donor, whose worker there lives as long as it
 *
 * Never waits. Used by one thread. gc_conn_close() kills the worker.
 */
#ifndef DCM_GC_CONN_H
#define DCM_GC_CONN_H

#include "../client/conn.h"
#include "../client/client.h"

#define DCM_GC_CONN_OUT_MAX (4u << 20) /* bytes the donor has not taken */

enum dcm_gc_conn_state {
	DCM_GC_CONN_CLOSED,
	DCM_GC_CONN_CONNECTING, /* up to WELCOME; @conn's */
	DCM_GC_CONN_OPENING, /* GC_OPEN sent */
	DCM_GC_CONN_UP,
	DCM_GC_CONN_FAILED, /* @why has the reason; only close is left */
};

/**
 * struct dcm_gc_conn - a GC connection; all zero: closed
 * @refused: the status (enum dcm_wire_status) with which the donor refused, if it did
 * @record: bytes of @out that GnuTLS has taken and not sent
 */
struct dcm_gc_conn {
	enum dcm_gc_conn_state state;
	struct dcm_conn conn;
	bool hello;
	struct dcm_client_session session;
	u64 bytes;
	u32 number;
	u32 threads;
	u32 refused;
	int fd;
	gnutls_session_t tls;
	u8 *in;
	size_t in_len;
	size_t in_used;
	u8 *out;
	size_t out_at;
	size_t out_len;
	size_t out_room;
	size_t record;
	char why[160];
};

/**
 * dcm_gc_conn_start() - begin to connect and to start a worker
 * @number: the donor's index in the spaces' lists of donors
 * @bytes: size of all spaces
 *
 * A failure shows in @c->state, now or later.
 */
void dcm_gc_conn_start(struct dcm_gc_conn *c,
		       const struct dcm_client_session_ref *ref, u32 number,
		       u64 bytes, u64 now_ms);

/* Set what to poll() for; @p->fd -1: nothing. */
void dcm_gc_conn_poll(const struct dcm_gc_conn *c, struct pollfd *p);
/* Continue connecting or sending. Call when poll() reports the descriptor. */
void dcm_gc_conn_step(struct dcm_gc_conn *c);

/**
 * dcm_gc_conn_recv() - the next message
 * @msg: GC, or ERROR with a tag; its payload is valid until the next call
 *
 * Call until it returns false: GnuTLS may hold more than poll() reports.
 */
bool dcm_gc_conn_recv(struct dcm_gc_conn *c, struct dcm_wire_msg *msg);

/* Queue a message with its payload and try to send it. */
void dcm_gc_conn_send(struct dcm_gc_conn *c, const struct dcm_wire_msg *msg);

void dcm_gc_conn_fail(struct dcm_gc_conn *c, const char *why);
void dcm_gc_conn_close(struct dcm_gc_conn *c);

#endif /* DCM_GC_CONN_H */

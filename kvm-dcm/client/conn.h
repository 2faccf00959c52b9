/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * conn.h - one connection to a donor, until it is a control or data connection
 *
 * Nonblocking connect, TLS handshake, then messages of wire_format.h in both
 * directions and descriptors from the donor. Used by the client thread alone.
 */
#ifndef DCM_CLIENT_CONN_H
#define DCM_CLIENT_CONN_H

#include <stdbool.h>
#include <sys/socket.h>

#include "../proto/wire.h"
#include "../lib/tls.h"

#define DCM_CONN_OUT_MAX 16384u
#define DCM_CONN_FDS_MAX 8u

enum dcm_conn_state {
	DCM_CONN_CLOSED,
	DCM_CONN_CONNECTING,
	DCM_CONN_HANDSHAKE,
	DCM_CONN_OPEN,
	DCM_CONN_FAILED,	/* @why has the reason; only close() is left */
};

/**
 * struct dcm_conn - a connection
 * @phase: the protocol's phase; set by the owner, HELLO at first
 * @since_ms: when it was started
 * @auth: it failed in the handshake: most likely the key is wrong
 * @refused: the donor's machine answered that nothing listens there
 * @broken: the socket failed; false if a message, or silence, was the reason
 * @record: bytes of @out that GnuTLS has taken and not sent
 * @in: the head of a message, as far as it has been received
 * @fds: descriptors received and not taken yet, oldest first
 */
struct dcm_conn {
	enum dcm_conn_state state;
	enum dcm_wire_phase phase;
	int fd;
	bool local;
	bool auth;
	bool refused;
	bool broken;
	u64 since_ms;
	gnutls_session_t tls;
	size_t in_len;
	size_t out_len;
	size_t record;
	unsigned int nr_fds;
	int fds[DCM_CONN_FDS_MAX];
	u8 in[DCM_WIRE_HEAD_MAX];
	u8 out[DCM_CONN_OUT_MAX];
	char why[160];
};

/**
 * dcm_conn_start() - begin to connect
 * @c: closed or all zero
 * @sa: where to
 *
 * A failure shows in @c->state, now or later.
 */
void dcm_conn_start(struct dcm_conn *c, struct dcm_tls *tls,
		    const struct sockaddr *sa, socklen_t len, u64 now_ms);

/* Events to poll() the descriptor for; 0: none. */
short dcm_conn_events(const struct dcm_conn *c);

/* Connect, shake hands, send. Call when poll() reports the descriptor. */
void dcm_conn_step(struct dcm_conn *c);

/* Queue a message without payload and try to send it. */
void dcm_conn_send(struct dcm_conn *c, const struct dcm_wire_msg *msg);

/**
 * dcm_conn_recv() - take one message
 *
 * Call until it returns false: GnuTLS may hold more than poll() reports. A
 * message that breaks the protocol fails the connection.
 */
bool dcm_conn_recv(struct dcm_conn *c, struct dcm_wire_msg *msg);

/* Oldest descriptor received, now the caller's; -1: none. */
int dcm_conn_take_fd(struct dcm_conn *c);

/* Fail the connection, for the owner's reason. */
void dcm_conn_fail(struct dcm_conn *c, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* End the connection. @c may be started again. */
void dcm_conn_close(struct dcm_conn *c);

/**
 * dcm_conn_hold() - give a connection up, but keep its socket open
 *
 * Ends it here; the donor sees no change.
 *
 * Return: the socket, to be closed by the caller, or -1.
 */
int dcm_conn_hold(struct dcm_conn *c);

/**
 * dcm_conn_detach() - hand over the socket and the TLS session
 * @tls: the session, now the caller's
 *
 * Fails the connection if a part of a message was received and not taken.
 *
 * Return: the socket, or -1.
 */
int dcm_conn_detach(struct dcm_conn *c, gnutls_session_t *tls);

#endif /* DCM_CLIENT_CONN_H */

/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * conn.h - one connection to a donor until it is a control or data connection
 *
 * Nonblocking connect, TLS handshake, then messages of wire_format.h both ways
 * and descriptors inwards. The client thread's alone.
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
	DCM_CONN_FAILED,	/* @why says of what; only close() is left */
};

/**
 * struct dcm_conn - a connection
 * @phase: where the protocol is; the owner's, HELLO at first
 * @since_ms: when it was started
 * @auth: it failed in the handshake: most likely the key
 * @refused: nothing listens there, as the donor's machine says itself
 * @broken: it failed with its socket, not for what was said or not said on it
 * @record: bytes GnuTLS has taken of @out and not sent
 * @in: a message's head as far as it has come
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
 * A failure is in @c->state, now or later.
 */
void dcm_conn_start(struct dcm_conn *c, struct dcm_tls *tls,
		    const struct sockaddr *sa, socklen_t len, u64 now_ms);

/* What to poll() the descriptor for; 0: nothing. */
short dcm_conn_events(const struct dcm_conn *c);

/* Get on with connecting, shaking hands, sending. Call when poll() says so. */
void dcm_conn_step(struct dcm_conn *c);

/* Queue a message without payload and try to send it. */
void dcm_conn_send(struct dcm_conn *c, const struct dcm_wire_msg *msg);

/**
 * dcm_conn_recv() - take one message
 *
 * Call until it returns false: GnuTLS may hold more than poll() knows of.
 * What breaks the protocol fails the connection.
 */
bool dcm_conn_recv(struct dcm_conn *c, struct dcm_wire_msg *msg);

/* Oldest descriptor received, now the caller's; -1: none. */
int dcm_conn_take_fd(struct dcm_conn *c);

/* Fail it for a reason of the owner's. */
void dcm_conn_fail(struct dcm_conn *c, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* End it. @c may be started again. */
void dcm_conn_close(struct dcm_conn *c);

/**
 * dcm_conn_hold() - give it up, but let its socket stand
 *
 * Ends it here; to the donor it is as if nothing had happened.
 *
 * Return: the socket, to be closed by the caller, or -1.
 */
int dcm_conn_hold(struct dcm_conn *c);

/**
 * dcm_conn_detach() - hand over the socket and the TLS session
 * @tls: the session, the caller's now
 *
 * Fails the connection if something came that nobody has read.
 *
 * Return: the socket, or -1.
 */
int dcm_conn_detach(struct dcm_conn *c, gnutls_session_t *tls);

#endif /* DCM_CLIENT_CONN_H */

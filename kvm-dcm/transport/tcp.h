/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * tcp.h - the tcp transport's parameters
 *
 * The control plane connects, shakes hands and joins the session; what
 * dcm_transport_tcp.open() gets is a data connection after its WELCOME.
 */
#ifndef DCM_TCP_H
#define DCM_TCP_H

#include "transport.h"

struct gnutls_session_int;

/**
 * struct dcm_tcp_args - parameters of a tcp endpoint
 * @fd: connected stream socket (TCP or UNIX), becomes the endpoint's with a
 *	successful open()
 * @tls: its TLS session (gnutls_session_t), which becomes the endpoint's too;
 *	%NULL: plain bytes
 * @depth: operations in flight the donor allows; 1 to %DCM_WIRE_INFLIGHT_MAX
 * @silence_ns: operations in flight and not a byte for so long: dead. 0: never
 */
struct dcm_tcp_args {
	int fd;
	struct gnutls_session_int *tls;
	u32 depth;
	u64 silence_ns;
};

/**
 * dcm_tcp_kill() - make an endpoint die soon
 *
 * Shuts the socket down; the owner's next poll() finds it dead and completes
 * what is in flight. May be called by any thread while the endpoint is not
 * being closed. Does nothing to an endpoint of another transport.
 */
void dcm_tcp_kill(struct dcm_endpoint *ep);

/**
 * dcm_tcp_why() - what an endpoint died of
 *
 * For the one who closes it. Return: a static text, "" while it lives.
 */
const char *dcm_tcp_why(struct dcm_endpoint *ep);

#endif /* DCM_TCP_H */

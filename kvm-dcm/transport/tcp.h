/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * tcp.h - the tcp transport's parameters
 *
 * The client connects, shakes hands and joins the session, and passes
 * dcm_transport_tcp.open() a data connection after its WELCOME.
 */
#ifndef DCM_TCP_H
#define DCM_TCP_H

#include "transport.h"

struct gnutls_session_int;

/**
 * struct dcm_tcp_args - parameters of a tcp endpoint
 * @fd: connected stream socket (TCP or UNIX); the endpoint owns it after a
 *	successful open()
 * @tls: its TLS session (gnutls_session_t), which the endpoint then owns too;
 *	%NULL: plain bytes
 * @depth: operations in flight that the donor allows; 1 to
 *	%DCM_WIRE_INFLIGHT_MAX
 * @silence_ns: the endpoint dies if operations are in flight and no byte comes
 *	for so long. 0: never
 */
struct dcm_tcp_args {
	int fd;
	struct gnutls_session_int *tls;
	u32 depth;
	u64 silence_ns;
};

#endif /* DCM_TCP_H */

/* SPDX-License-Identifier: GPL-2.0-or-later */
/* tls_server.h - TLS 1.3 with pre-shared keys, the donor's side */
#ifndef DCM_TLS_SERVER_H
#define DCM_TLS_SERVER_H

#include <gnutls/gnutls.h>

#include "../kvm-dcm/proto/wire.h"

/* Find the key of a tenant's @name, not terminated. 0 or -ENOENT. */
typedef int (*dcm_psk_fn)(void *arg, const void *name, size_t len,
			  const u8 **key, size_t *key_bytes);

/* Key lookup and ciphers, of all connections. */
struct dcm_tls_server;

/**
 * dcm_tls_server_new() - make the credentials of all connections
 * @find: finds keys; runs in handshakes
 * @arg: its argument
 *
 * Return: %NULL, and one line in @err.
 */
struct dcm_tls_server *dcm_tls_server_new(dcm_psk_fn find, void *arg, char *err,
					  size_t err_len);
void dcm_tls_server_free(struct dcm_tls_server *tls);

/**
 * dcm_tls_server_session() - make a connection's TLS session
 * @session: out; the caller sets its transport, and frees it
 *
 * Return: 0 or -ENOMEM.
 */
int dcm_tls_server_session(struct dcm_tls_server *tls,
			   gnutls_session_t *session);

#endif /* DCM_TLS_SERVER_H */

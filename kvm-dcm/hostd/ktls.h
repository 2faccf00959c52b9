/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * ktls.h - hand a TLS session over to the kernel
 */
#ifndef DCM_HOSTD_KTLS_H
#define DCM_HOSTD_KTLS_H

#include <gnutls/gnutls.h>

/**
 * dcm_ktls_start() - let the kernel encrypt and decrypt a socket's data
 * @tls: the socket's session, TLS 1.3, with nothing read ahead or left to send
 * @fd: a connected TCP socket
 *
 * On success the session must only be freed (gnutls_deinit()); the socket then
 * takes and gives plain bytes. On failure the connection can't be used any
 * more.
 *
 * Return: 0; -ENOENT: this kernel has no TLS for sockets; -EOPNOTSUPP: not with
 * this cipher; or another negative errno.
 */
int dcm_ktls_start(gnutls_session_t tls, int fd);

#endif /* DCM_HOSTD_KTLS_H */

/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tls.h - TLS 1.3 with a pre-shared key, host side
 */
#ifndef DCM_TLS_H
#define DCM_TLS_H

#include <gnutls/gnutls.h>
#include <stddef.h>
#include <stdint.h>

/**
 * struct dcm_tls - a tenant's credentials, read-only once made
 */
struct dcm_tls {
	gnutls_psk_client_credentials_t cred;
	gnutls_priority_t priority;
};

/**
 * dcm_tls_init() - credentials from a key; the key is copied
 *
 * Return: 0 or a gnutls error (see gnutls_strerror()).
 */
int dcm_tls_init(struct dcm_tls *tls, const char *tenant, const uint8_t *key,
		 size_t len);
void dcm_tls_exit(struct dcm_tls *tls);

/**
 * dcm_tls_session() - a nonblocking client session over @fd
 * @s: filled in; end it with gnutls_deinit()
 *
 * Return: 0 or a gnutls error.
 */
int dcm_tls_session(struct dcm_tls *tls, int fd, gnutls_session_t *s);

#endif /* DCM_TLS_H */

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tls_server.c - TLS 1.3 with pre-shared keys, the donor's side
 *
 * One set of credentials serves all connections. A hook refuses a
 * HelloRetryRequest, which would be sent before the key is checked. An unknown
 * name gets a random key, so that it fails like a wrong key, at the same step. Session
 * tickets are off: every connection has to prove its key, so a key that was removed
 * opens nothing.
 *
 * The host's side is kvm-dcm/lib/tls.c.
 *
 * Locking: none. The credentials are immutable after dcm_tls_server_new(); the
 * key callback runs only in handshakes, which are on the event loop.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "tls_server.h"

/* an external key is bound to SHA-256 (RFC 8446, 4.2.11), so are the ciphers */
static const char tls_priority[] =
	"NONE:+VERS-TLS1.3:+AES-128-GCM:+CHACHA20-POLY1305:+AEAD:"
	"+ECDHE-PSK:+DHE-PSK:+GROUP-X25519:+GROUP-SECP256R1:+SIGN-ALL";

struct dcm_tls_server {
	gnutls_psk_server_credentials_t cred;
	gnutls_priority_t priority;
	dcm_psk_fn find;
	void *arg;
	u8 decoy[32];
};

static int psk_key(gnutls_session_t s, const gnutls_datum_t *name,
		   gnutls_datum_t *key)
{
	struct dcm_tls_server *tls = gnutls_session_get_ptr(s);
	const u8 *k;
	size_t n;

	/* an unknown name must fail like a wrong key, at the same step */
	if (tls->find(tls->arg, name->data, name->size, &k, &n)) {
		k = tls->decoy;
		n = sizeof(tls->decoy);
	}
	key->data = gnutls_malloc(n);
	if (!key->data)
		return -1;
	memcpy(key->data, k, n);
	key->size = (unsigned int)n;
	return 0;
}

struct dcm_tls_server *dcm_tls_server_new(dcm_psk_fn find, void *arg, char *err,
			    size_t err_len)
{
	struct dcm_tls_server *tls = calloc(1, sizeof(*tls));
	const char *what = "out of memory";
	int ret = 0;

	if (!tls)
		goto fail;
	tls->find = find;
	tls->arg = arg;
	what = "no random numbers";
	if (getrandom(tls->decoy, sizeof(tls->decoy), 0) !=
	    (ssize_t)sizeof(tls->decoy))
		goto fail;
	what = "GnuTLS has no TLS 1.3 with pre-shared keys";
	ret = gnutls_psk_allocate_server_credentials(&tls->cred);
	if (ret)
		goto fail;
	gnutls_psk_set_server_credentials_function2(tls->cred, psk_key);
	ret = gnutls_priority_init(&tls->priority, tls_priority, NULL);
	if (ret)
		goto fail;
	return tls;
fail:
	snprintf(err, err_len, "%s%s%s", what, ret ? ": " : "",
		 ret ? gnutls_strerror(ret) : "");
	dcm_tls_server_free(tls);
	return NULL;
}

/* Refuse a HelloRetryRequest: it would be sent before the key is checked. */
static int retry_refuse(gnutls_session_t s, unsigned int type,
			 unsigned int when, unsigned int incoming,
			 const gnutls_datum_t *msg)
{
	(void)s;
	(void)type;
	(void)when;
	(void)msg;
	return incoming ? 0 : GNUTLS_E_UNWANTED_ALGORITHM;
}

int dcm_tls_server_session(struct dcm_tls_server *tls,
			   gnutls_session_t *session)
{
	gnutls_session_t s;
	int ret = gnutls_init(&s, GNUTLS_SERVER | GNUTLS_NONBLOCK |
				      GNUTLS_NO_TICKETS);

	if (ret)
		return -ENOMEM;
	gnutls_session_set_ptr(s, tls);
	/* the caller has a deadline for the whole handshake */
	gnutls_handshake_set_timeout(s, 0);
	gnutls_handshake_set_hook_function(s,
					   GNUTLS_HANDSHAKE_HELLO_RETRY_REQUEST,
					   GNUTLS_HOOK_BOTH, retry_refuse);
	ret = gnutls_priority_set(s, tls->priority);
	if (!ret)
		ret = gnutls_credentials_set(s, GNUTLS_CRD_PSK, tls->cred);
	if (ret) {
		gnutls_deinit(s);
		return -ENOMEM;
	}
	*session = s;
	return 0;
}

void dcm_tls_server_free(struct dcm_tls_server *tls)
{
	if (!tls)
		return;
	if (tls->priority)
		gnutls_priority_deinit(tls->priority);
	if (tls->cred)
		gnutls_psk_free_server_credentials(tls->cred);
	free(tls);
}

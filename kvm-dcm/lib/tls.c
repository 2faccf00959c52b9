// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tls.c - TLS 1.3 with a pre-shared key, host side
 *
 * Only TLS 1.3, and PSK with an ephemeral key exchange: the key authenticates both
 * ends, and a recorded session can't be decrypted if the key leaks later. There are no
 * certificates, no tickets, and no older version to fall back to. Donors never ask for
 * another group, so a group that they know is offered first.
 *
 * One struct dcm_tls serves all sessions; GnuTLS only reads it.
 *
 * A process may call exit() while a pager's threads run: QEMU does, and so does
 * every program under the preload shim. GnuTLS counts calls of gnutls_global_init(),
 * and its destructor frees data that all sessions use when the count gets to zero. So
 * it is called once more here, and never undone.
 */
#include <pthread.h>
#include <string.h>

#include "tls.h"

/* an external key is bound to SHA-256 (RFC 8446, 4.2.11), so are the ciphers */
#define PRIORITY                                                         \
	"NONE:+VERS-TLS1.3:+AES-128-GCM:+CHACHA20-POLY1305:+AEAD:"       \
	"+ECDHE-PSK:+DHE-PSK:+GROUP-X25519:+GROUP-SECP256R1:+SIGN-ALL"

static void gnutls_stay(void)
{
	/* if this fails, so did the library's constructor, and sessions will fail */
	gnutls_global_init();
}

int dcm_tls_init(struct dcm_tls *tls, const char *tenant, const uint8_t *key,
		 size_t len)
{
	static pthread_once_t stay = PTHREAD_ONCE_INIT;
	gnutls_datum_t k = { (unsigned char *)key, (unsigned int)len };
	int ret;

	pthread_once(&stay, gnutls_stay);
	memset(tls, 0, sizeof(*tls));
	ret = gnutls_priority_init(&tls->priority, PRIORITY, NULL);
	if (!ret)
		ret = gnutls_psk_allocate_client_credentials(&tls->cred);
	if (!ret)
		ret = gnutls_psk_set_client_credentials(tls->cred, tenant, &k,
							GNUTLS_PSK_KEY_RAW);
	if (ret)
		dcm_tls_exit(tls);
	return ret;
}

void dcm_tls_exit(struct dcm_tls *tls)
{
	if (tls->cred)
		gnutls_psk_free_client_credentials(tls->cred);
	if (tls->priority)
		gnutls_priority_deinit(tls->priority);
	memset(tls, 0, sizeof(*tls));
}

int dcm_tls_session(struct dcm_tls *tls, int fd, gnutls_session_t *s)
{
	int ret;

	ret = gnutls_init(s, GNUTLS_CLIENT | GNUTLS_NONBLOCK |
				     GNUTLS_NO_SIGNAL | GNUTLS_NO_TICKETS);
	if (ret)
		return ret;
	ret = gnutls_priority_set(*s, tls->priority);
	if (!ret)
		ret = gnutls_credentials_set(*s, GNUTLS_CRD_PSK, tls->cred);
	if (ret) {
		gnutls_deinit(*s);
		return ret;
	}
	gnutls_transport_set_int(*s, fd);
	return 0;
}

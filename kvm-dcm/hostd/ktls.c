// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * ktls.c - hand a TLS session over to the kernel
 *
 * GnuTLS has shaken hands; its traffic keys, nonces and record numbers are given
 * to the socket, for each direction. GnuTLS can do a part of this itself, but
 * that depends on its build and on a configuration file of the administrator.
 *
 * TLS 1.3 (RFC 8446, 5.3): the nonce of a record is its number, xored into a
 * 12-byte IV. For AES-GCM the kernel takes that IV in two parts.
 */
#include <errno.h>
#include <linux/tls.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include "ktls.h"

#define IV_BYTES 12u
#define SALT_BYTES TLS_CIPHER_AES_GCM_128_SALT_SIZE

union crypto_info {
	struct tls_crypto_info info;
	struct tls12_crypto_info_aes_gcm_128 gcm;
	struct tls12_crypto_info_chacha20_poly1305 chacha;
};

/* Fill in the socket option; returns its length, or a negative errno. */
static int crypto_info(gnutls_session_t tls, unsigned int read,
		       union crypto_info *c)
{
	gnutls_datum_t mac, iv, key;
	unsigned char seq[8];

	memset(c, 0, sizeof(*c));
	if (gnutls_record_get_state(tls, read, &mac, &iv, &key, seq) ||
	    iv.size != IV_BYTES)
		return -EOPNOTSUPP;
	c->info.version = TLS_1_3_VERSION;
	switch (gnutls_cipher_get(tls)) {
	case GNUTLS_CIPHER_AES_128_GCM:
		if (key.size != sizeof(c->gcm.key))
			return -EOPNOTSUPP;
		c->info.cipher_type = TLS_CIPHER_AES_GCM_128;
		memcpy(c->gcm.salt, iv.data, SALT_BYTES);
		memcpy(c->gcm.iv, iv.data + SALT_BYTES, sizeof(c->gcm.iv));
		memcpy(c->gcm.key, key.data, sizeof(c->gcm.key));
		memcpy(c->gcm.rec_seq, seq, sizeof(c->gcm.rec_seq));
		return sizeof(c->gcm);
	case GNUTLS_CIPHER_CHACHA20_POLY1305:
		if (key.size != sizeof(c->chacha.key))
			return -EOPNOTSUPP;
		c->info.cipher_type = TLS_CIPHER_CHACHA20_POLY1305;
		memcpy(c->chacha.iv, iv.data, sizeof(c->chacha.iv));
		memcpy(c->chacha.key, key.data, sizeof(c->chacha.key));
		memcpy(c->chacha.rec_seq, seq, sizeof(c->chacha.rec_seq));
		return sizeof(c->chacha);
	default:
		return -EOPNOTSUPP;
	}
}

static int one_way(gnutls_session_t tls, int fd, unsigned int read)
{
	union crypto_info c;
	int len = crypto_info(tls, read, &c), err = 0;

	if (len < 0)
		return len;
	if (setsockopt(fd, SOL_TLS, read ? TLS_RX : TLS_TX, &c, (socklen_t)len))
		err = -errno;
	explicit_bzero(&c, sizeof(c));
	return err;
}

int dcm_ktls_start(gnutls_session_t tls, int fd)
{
	int err;

	if (gnutls_protocol_get_version(tls) != GNUTLS_TLS1_3)
		return -EOPNOTSUPP;
	if (setsockopt(fd, IPPROTO_TCP, TCP_ULP, "tls", sizeof("tls")))
		return -errno;
	err = one_way(tls, fd, 0);
	return err ? err : one_way(tls, fd, 1);
}

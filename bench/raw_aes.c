// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * raw_aes.c - AES-128-GCM of one page, by the library that does TLS here
 *
 * What TLS adds to a page's way at the very least: one end of it seals the page,
 * the other opens it. No record, no socket, one CPU, a page that is in its cache.
 */
#include <gnutls/crypto.h>

#include "common.h"

#define TAG 16u
#define ROUNDS 4000u

int main(void)
{
	static unsigned char key[16], page[PAGE], sealed[PAGE + TAG];
	static uint32_t seal[ROUNDS], unseal[ROUNDS];
	gnutls_datum_t k = { key, sizeof(key) };
	gnutls_aead_cipher_hd_t cipher;
	uint64_t nonce[2] = { 0 };

	bench_page_fill((char *)page, 1, CONTENT_RANDOM);
	if (gnutls_aead_cipher_init(&cipher, GNUTLS_CIPHER_AES_128_GCM, &k))
		die("raw_aes: GnuTLS has no AES-128-GCM");
	for (unsigned int i = 0; i < ROUNDS; i++) {
		size_t n = sizeof(sealed), m = sizeof(page);
		uint64_t t = bench_now_ns();

		nonce[0] = i;
		if (gnutls_aead_cipher_encrypt(cipher, nonce, 12, NULL, 0, TAG,
					       page, sizeof(page), sealed, &n))
			die("raw_aes: can't encrypt");
		seal[i] = (uint32_t)(bench_now_ns() - t);
		t = bench_now_ns();
		if (gnutls_aead_cipher_decrypt(cipher, nonce, 12, NULL, 0, TAG,
					       sealed, n, page, &m))
			die("raw_aes: can't decrypt");
		unseal[i] = (uint32_t)(bench_now_ns() - t);
	}
	gnutls_aead_cipher_deinit(cipher);
	printf("{");
	bench_percentiles_print("seal", seal, ROUNDS);
	printf(",");
	bench_percentiles_print("open", unseal, ROUNDS);
	printf("}\n");
	return 0;
}

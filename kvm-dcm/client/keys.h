/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * keys.h - a tenant's pre-shared key, read from a file
 */
#ifndef DCM_CLIENT_KEYS_H
#define DCM_CLIENT_KEYS_H

#include <stddef.h>
#include <stdint.h>

#include "../proto/wire_format.h"

#define DCM_KEY_FILE_MAX 65536u
#define DCM_ERR_MAX 320u

/**
 * struct dcm_key - a tenant and its key
 * @tenant: TLS PSK identity
 * @key: the key's bytes
 * @len: length of @key
 */
struct dcm_key {
	char tenant[DCM_WIRE_TENANT_MAX + 1];
	uint8_t key[DCM_WIRE_KEY_MAX];
	size_t len;
};

/**
 * dcm_key_parse() - find a key in the text of a key file
 * @text: lines "tenant:hexkey", empty lines, lines that begin with '#'
 * @len: its bytes; needs no NUL at the end
 * @tenant: whose key; %NULL or "": the only one in the file
 * @key: filled in on success
 * @err: %DCM_ERR_MAX bytes: one line saying what is wrong
 *
 * Every line is checked, not only the wanted one.
 *
 * Return: 0, -EINVAL, -ENOENT when there is none for @tenant.
 */
int dcm_key_parse(const char *text, size_t len, const char *tenant,
		  struct dcm_key *key, char *err);

/**
 * dcm_key_load() - the same, from a file
 * @path: must be a regular file that neither group nor others can read
 *
 * Return: 0 or a negative errno; @err then names @path and what to do.
 */
int dcm_key_load(const char *path, const char *tenant, struct dcm_key *key,
		 char *err);

/* Forget a key. */
void dcm_key_wipe(struct dcm_key *key);

#endif /* DCM_CLIENT_KEYS_H */

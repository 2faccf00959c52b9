/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * keyfile.h - tenants' names, and the files with their pre-shared keys
 *
 * A key file has lines "tenant:hexkey", empty lines, and lines that begin with
 * '#'. It must be a regular file that neither group nor others can read. The same
 * line lies on the host and on the donors; dcmctl/lib/keyfile.py reads and writes
 * such files by the same rules.
 */
#ifndef DCM_KEYFILE_H
#define DCM_KEYFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "file.h"

#define DCM_TENANT_MAX	64u	/* bytes of a name, without NUL */
#define DCM_KEY_MIN	16u	/* bytes of a key */
#define DCM_KEY_MAX	64u
#define DCM_TENANTS_MAX	1024u	/* in one file */
#define DCM_KEYFILE_MAX	(256u << 10)

/* The rule for tenants' names: in key files, configurations, and TLS. */
#define DCM_TENANT_RULE "a tenant's name has 1 to 64 letters, digits, . _ -"

/**
 * struct dcm_key - a tenant and its key
 * @tenant: TLS PSK identity
 * @key: the key's bytes
 * @len: length of @key
 */
struct dcm_key {
	char tenant[DCM_TENANT_MAX + 1];
	uint8_t key[DCM_KEY_MAX];
	size_t len;
};

/* Is @name, of @len bytes, a tenant's name? (%DCM_TENANT_RULE) */
bool dcm_tenant_valid(const char *name, size_t len);

/**
 * typedef dcm_keyfile_fn - take one key
 * @arg: the caller's
 * @key: wiped when this returns
 * @why: what is wrong with its line
 *
 * Return: 0, or -EINVAL with @why, which ends the reading.
 */
typedef int (*dcm_keyfile_fn)(void *arg, const struct dcm_key *key,
			      const char **why);

/**
 * dcm_keyfile_parse() - read the text of a key file
 * @text: needs no NUL at the end
 * @len: its bytes
 * @fn: called for each key, in the file's order; names are not repeated
 * @arg: passed to @fn
 * @err: %DCM_ERR_MAX bytes: "line N: what is wrong"
 *
 * Return: 0, -EINVAL, or -ENOENT if there is no key.
 */
int dcm_keyfile_parse(const char *text, size_t len, dcm_keyfile_fn fn,
		      void *arg, char *err);

/**
 * dcm_keyfile_read() - read a key file's text
 * @path: must be a regular file that neither group nor others can read
 * @text: to be given to dcm_keyfile_free()
 * @len: its bytes
 * @err: %DCM_ERR_MAX bytes: one line that names @path and says what to do
 *
 * Return: 0 or a negative errno.
 */
int dcm_keyfile_read(const char *path, char **text, size_t *len, char *err);

/* Wipe and free the text. */
void dcm_keyfile_free(char *text, size_t len);

/**
 * dcm_key_parse() - find a tenant's key in the text of a key file
 * @text: needs no NUL at the end
 * @len: its bytes
 * @tenant: whose key; %NULL or "": the only one in the file
 * @key: filled in on success, wiped on failure
 * @err: %DCM_ERR_MAX bytes: one line saying what is wrong
 *
 * Every line is checked, not only the wanted one.
 *
 * Return: 0, -EINVAL, -ENOENT when there is none for @tenant.
 */
int dcm_key_parse(const char *text, size_t len, const char *tenant,
		  struct dcm_key *key, char *err);

/* As dcm_key_parse(), from a file. 0 or a negative errno; @err names @path. */
int dcm_key_load(const char *path, const char *tenant, struct dcm_key *key,
		 char *err);

/* Forget a key. */
void dcm_key_wipe(struct dcm_key *key);

#endif /* DCM_KEYFILE_H */

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * keyfile.c - tenants' names, and the files with their pre-shared keys
 *
 * psktool's format. A file that group or others can read is refused, as its keys
 * may have leaked. The whole file is read into memory, which is wiped after use.
 * The first wrong line ends the reading; the error never has a part of a key.
 *
 * No state, no locks.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "keyfile.h"

bool dcm_tenant_valid(const char *name, size_t len)
{
	if (!len || len > DCM_TENANT_MAX)
		return false;
	for (size_t i = 0; i < len; i++)
		if (!name[i] || !strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZ"
					"abcdefghijklmnopqrstuvwxyz"
					"0123456789._-",
					name[i]))
			return false;
	return true;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* Parse a line that is neither empty nor a comment. Returns what is wrong, or %NULL. */
static const char *key_read(const char *s, size_t len, struct dcm_key *key)
{
	static const char bad_key[] =
		"the key must be 16 to 64 bytes in hexadecimal";
	const char *colon = memchr(s, ':', len), *hex;
	size_t n;

	if (!colon)
		return "has no ':'; write tenant:hexkey";
	n = (size_t)(colon - s);
	if (!dcm_tenant_valid(s, n))
		return DCM_TENANT_RULE;
	memcpy(key->tenant, s, n);
	key->tenant[n] = 0;
	hex = colon + 1;
	n = len - n - 1;
	if (n % 2 || n < 2 * DCM_KEY_MIN || n > 2 * DCM_KEY_MAX)
		return bad_key;
	for (size_t i = 0; i < n / 2; i++) {
		int hi = hex_digit(hex[2 * i]), lo = hex_digit(hex[2 * i + 1]);

		if (hi < 0 || lo < 0)
			return bad_key;
		key->key[i] = (uint8_t)(hi << 4 | lo);
	}
	key->len = n / 2;
	return NULL;
}

/* Does a line of @text before @end begin with this tenant's name? */
static bool tenant_known(const char *text, const char *end, const char *tenant)
{
	size_t n = strlen(tenant);
	const char *eol;

	for (; text < end; text = eol + 1) {
		eol = memchr(text, '\n', (size_t)(end - text));
		if (!eol)
			return false;
		if ((size_t)(eol - text) > n && text[n] == ':' &&
		    !memcmp(text, tenant, n))
			return true;
	}
	return false;
}

int dcm_keyfile_parse(const char *text, size_t len, dcm_keyfile_fn fn,
		      void *arg, char *err)
{
	const char *end = text + len, *line, *eol, *why = NULL;
	unsigned int nr = 0, keys = 0;
	struct dcm_key key;

	for (line = text; line < end && !why; line = eol + 1) {
		size_t n;

		nr++;
		eol = memchr(line, '\n', (size_t)(end - line));
		if (!eol)
			eol = end;
		n = (size_t)(eol - line);
		while (n && (line[n - 1] == '\r' || line[n - 1] == ' ' ||
			     line[n - 1] == '\t'))
			n--;
		if (!n || *line == '#')
			continue;
		why = key_read(line, n, &key);
		if (!why && tenant_known(text, line, key.tenant))
			why = "the tenant has a line already";
		if (!why && ++keys > DCM_TENANTS_MAX)
			why = "more than 1024 tenants";
		if (!why)
			fn(arg, &key, &why);
	}
	explicit_bzero(&key, sizeof(key));
	if (why)
		snprintf(err, DCM_ERR_MAX, "line %u: %.200s", nr, why);
	else if (!keys)
		snprintf(err, DCM_ERR_MAX, "has no key");
	return why ? -EINVAL : keys ? 0 : -ENOENT;
}

/*
 * Check that an open file is a regular file that only its owner can read. 0 or -errno.
 */
static int file_check(int fd, const char *path, char *err)
{
	struct stat st;
	int ret;

	if (fstat(fd, &st)) {
		ret = -errno;
		snprintf(err, DCM_ERR_MAX, "key file %.200s: %s", path,
			 strerror(errno));
		return ret;
	}
	if (!S_ISREG(st.st_mode)) {
		snprintf(err, DCM_ERR_MAX, "key file %.200s: not a file", path);
		return -EINVAL;
	}
	if (st.st_mode & (S_IRWXG | S_IRWXO)) {
		snprintf(err, DCM_ERR_MAX,
			 "key file %.160s: others can read it (mode %04o): chmod 600 it, and make a new key if it was there for long",
			 path, (unsigned int)(st.st_mode & 07777));
		return -EACCES;
	}
	return 0;
}

int dcm_keyfile_read(const char *path, char **text, size_t *len, char *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	int ret;

	if (fd < 0) {
		ret = -errno;
		if (ret == -ENOENT)
			snprintf(err, DCM_ERR_MAX,
				 "key file %.120s: there is none; make it with: dcmctl keygen %.120s TENANT",
				 path, path);
		else
			snprintf(err, DCM_ERR_MAX, "key file %.200s: %s", path,
				 strerror(errno));
		return ret;
	}
	ret = file_check(fd, path, err);
	if (ret)
		goto out;
	*text = dcm_fd_read(fd, DCM_KEYFILE_MAX, len);
	if (!*text) {
		ret = -errno;
		snprintf(err, DCM_ERR_MAX, "key file %.200s: %s", path,
			 ret == -EFBIG ? "larger than 256 KiB" :
					 strerror(errno));
	}
out:
	close(fd);
	return ret;
}

void dcm_keyfile_free(char *text, size_t len)
{
	explicit_bzero(text, len);
	free(text);
}

struct choice {
	const char *tenant; /* NULL: the only one */
	struct dcm_key *key;
	bool found;
};

static int choice_take(void *arg, const struct dcm_key *key, const char **why)
{
	struct choice *c = arg;

	if (c->tenant && strcmp(c->tenant, key->tenant))
		return 0;
	if (c->found) {
		*why = "several tenants: say which with tenant=";
		return -EINVAL;
	}
	*c->key = *key;
	c->found = true;
	return 0;
}

int dcm_key_parse(const char *text, size_t len, const char *tenant,
		  struct dcm_key *key, char *err)
{
	struct choice c = { tenant && *tenant ? tenant : NULL, key, false };
	int ret = dcm_keyfile_parse(text, len, choice_take, &c, err);

	if (!ret && !c.found) {
		snprintf(err, DCM_ERR_MAX, "no key for tenant '%.64s'", tenant);
		ret = -ENOENT;
	}
	if (ret)
		dcm_key_wipe(key);
	return ret;
}

int dcm_key_load(const char *path, const char *tenant, struct dcm_key *key,
		 char *err)
{
	char *text, why[DCM_ERR_MAX];
	size_t len;
	int ret = dcm_keyfile_read(path, &text, &len, err);

	if (ret)
		return ret;
	ret = dcm_key_parse(text, len, tenant, key, why);
	if (ret)
		snprintf(err, DCM_ERR_MAX, "key file %.160s: %.140s", path,
			 why);
	dcm_keyfile_free(text, len);
	return ret;
}

void dcm_key_wipe(struct dcm_key *key)
{
	explicit_bzero(key, sizeof(*key));
}

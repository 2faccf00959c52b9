// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * keys.c - key files: lines of "tenant:hexkey", as psktool writes them
 *
 * The whole file is read into a buffer of fixed size and wiped after use. A
 * file that group or others can read is refused, as the key may have leaked.
 *
 * No state, no locks.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "keys.h"

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

static bool tenant_valid(const char *s, size_t len)
{
	size_t i;

	if (!len || len > DCM_WIRE_TENANT_MAX)
		return false;
	for (i = 0; i < len; i++)
		if (s[i] <= ' ' || s[i] > '~')
			return false;
	return true;
}

/* Parse a line that is neither empty nor a comment. */
static int line_parse(const char *s, size_t len, struct dcm_key *key,
		      const char **why)
{
	const char *colon = memchr(s, ':', len), *hex;
	size_t n, i;

	*why = "expected tenant:hexkey";
	if (!colon)
		return -EINVAL;
	n = (size_t)(colon - s);
	if (!tenant_valid(s, n)) {
		*why = "tenant must be 1 to 64 printable characters";
		return -EINVAL;
	}
	memcpy(key->tenant, s, n);
	key->tenant[n] = 0;
	hex = colon + 1;
	n = len - n - 1;
	*why = "key must be 32 to 128 hexadecimal digits";
	if (n % 2 || n < 2 * DCM_WIRE_KEY_MIN || n > 2 * DCM_WIRE_KEY_MAX)
		return -EINVAL;
	for (i = 0; i < n / 2; i++) {
		int hi = hex_digit(hex[2 * i]), lo = hex_digit(hex[2 * i + 1]);

		if (hi < 0 || lo < 0)
			return -EINVAL;
		key->key[i] = (uint8_t)(hi << 4 | lo);
	}
	key->len = n / 2;
	return 0;
}

int dcm_key_parse(const char *text, size_t len, const char *tenant,
		  struct dcm_key *key, char *err)
{
	const char *end = text + len, *why, *eol;
	unsigned int line = 0, found = 0;
	struct dcm_key k;
	int ret = 0;

	if (tenant && !*tenant)
		tenant = NULL;
	for (; text < end; text = eol + 1) {
		size_t n;

		line++;
		eol = memchr(text, '\n', (size_t)(end - text));
		if (!eol)
			eol = end;
		n = (size_t)(eol - text);
		while (n && (text[n - 1] == '\r' || text[n - 1] == ' ' ||
			     text[n - 1] == '\t'))
			n--;
		if (!n || *text == '#')
			continue;
		ret = line_parse(text, n, &k, &why);
		if (ret) {
			snprintf(err, DCM_ERR_MAX, "line %u: %s", line, why);
			break;
		}
		if (tenant && strcmp(tenant, k.tenant))
			continue;
		if (found++) {
			snprintf(err, DCM_ERR_MAX,
				 tenant ?
					 "line %u: a second key for the tenant" :
					  "line %u: several tenants: say which with tenant=",
				 line);
			ret = -EINVAL;
			break;
		}
		*key = k;
	}
	if (!ret && !found) {
		if (tenant)
			snprintf(err, DCM_ERR_MAX, "no key for tenant '%.64s'",
				 tenant);
		else
			snprintf(err, DCM_ERR_MAX, "no key in it");
		ret = -ENOENT;
	}
	explicit_bzero(&k, sizeof(k));
	if (ret)
		explicit_bzero(key, sizeof(*key));
	return ret;
}

int dcm_key_load(const char *path, const char *tenant, struct dcm_key *key,
		 char *err)
{
	char buf[DCM_KEY_FILE_MAX], why[DCM_ERR_MAX];
	struct stat st;
	size_t len = 0;
	ssize_t n;
	int fd, ret;

	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0 || fstat(fd, &st)) {
		ret = -errno;
		snprintf(err, DCM_ERR_MAX, "key file %.200s: %s", path,
			 strerror(errno));
		goto out;
	}
	ret = -EINVAL;
	if (!S_ISREG(st.st_mode)) {
		snprintf(err, DCM_ERR_MAX, "key file %.200s: not a file", path);
		goto out;
	}
	if (st.st_mode & (S_IRWXG | S_IRWXO)) {
		ret = -EACCES;
		snprintf(err, DCM_ERR_MAX,
			 "key file %.160s: others can read it (mode %04o): chmod 600 it, and make a new key if it was there for long",
			 path, (unsigned int)(st.st_mode & 07777));
		goto out;
	}
	while (len < sizeof(buf)) {
		n = read(fd, buf + len, sizeof(buf) - len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			ret = -errno;
			snprintf(err, DCM_ERR_MAX, "key file %.200s: %s", path,
				 strerror(errno));
			goto out;
		}
		if (!n)
			break;
		len += (size_t)n;
	}
	if (len == sizeof(buf)) {
		snprintf(err, DCM_ERR_MAX,
			 "key file %.200s: larger than 64 KiB", path);
		goto out;
	}
	ret = dcm_key_parse(buf, len, tenant, key, why);
	if (ret)
		snprintf(err, DCM_ERR_MAX, "key file %.160s: %.140s", path,
			 why);
out:
	if (fd >= 0)
		close(fd);
	explicit_bzero(buf, sizeof(buf));
	return ret;
}

void dcm_key_wipe(struct dcm_key *key)
{
	explicit_bzero(key, sizeof(*key));
}

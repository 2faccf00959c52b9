// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tenant.c - tenants: keys, quotas and what is used of them
 *
 * The key file is psktool's: "name:hexkey" a line. It is refused if any user
 * but its owner can read it. A tenant lives as long as anything refers to it;
 * one that left the file is no longer found, so it gets no new connection, and
 * the caller drains what it still holds.
 *
 * Locking: none, all on the event loop.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tenant.h"

#define KEYS_MAX_BYTES	(1u << 20)

void dcm_tenants_init(struct dcm_tenants *ts)
{
	dcm_list_init(&ts->list);
}

static void tenant_free(struct dcm_tenant *t)
{
	dcm_list_del(&t->node);
	explicit_bzero(t, sizeof(*t));
	free(t);
}

void dcm_tenants_free(struct dcm_tenants *ts)
{
	struct dcm_tenant *t, *tmp;

	dcm_list_for_each_safe(t, tmp, &ts->list, struct dcm_tenant, node)
		tenant_free(t);
}

struct dcm_tenant *dcm_tenant_find(struct dcm_tenants *ts, const void *name,
				   size_t len)
{
	struct dcm_tenant *t;

	dcm_list_for_each(t, &ts->list, struct dcm_tenant, node)
		if (!t->gone && strlen(t->name) == len &&
		    !memcmp(t->name, name, len))
			return t;
	return NULL;
}

void dcm_tenant_get(struct dcm_tenant *t)
{
	t->users++;
}

void dcm_tenant_put(struct dcm_tenant *t)
{
	if (!--t->users && t->gone)
		tenant_free(t);
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)(c | 0x20);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Parse a line into @t; returns what is wrong with it, or %NULL. */
static const char *line_parse(char *line, struct dcm_tenant *t)
{
	char *colon = strchr(line, ':');
	size_t n, hex;

	if (!colon)
		return "has no ':'; write name:hexkey";
	n = (size_t)(colon - line);
	if (!n || n > DCM_WIRE_TENANT_MAX)
		return "the name must have 1 to 64 characters";
	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)line[i]) && !strchr("._-", line[i]))
			return "the name may have letters, digits, '.', '_' and '-' only";
	memcpy(t->name, line, n);
	t->name[n] = 0;
	hex = strlen(++colon);
	if (hex % 2 || hex < 2 * DCM_WIRE_KEY_MIN || hex > 2 * DCM_WIRE_KEY_MAX)
		return "the key must be 16 to 64 bytes in hexadecimal";
	t->key_bytes = hex / 2;
	for (size_t i = 0; i < t->key_bytes; i++) {
		int hi = hex_digit(colon[2 * i]);
		int lo = hex_digit(colon[2 * i + 1]);

		if (hi < 0 || lo < 0)
			return "the key must be 16 to 64 bytes in hexadecimal";
		t->key[i] = (uint8_t)(hi << 4 | lo);
	}
	return NULL;
}

static void tenants_merge(struct dcm_tenants *ts, struct dcm_tenants *new)
{
	struct dcm_tenant *t, *tmp, *n;

	dcm_list_for_each_safe(t, tmp, &ts->list, struct dcm_tenant, node) {
		n = dcm_tenant_find(new, t->name, strlen(t->name));
		if (n) {
			memcpy(t->key, n->key, sizeof(t->key));
			t->key_bytes = n->key_bytes;
			t->gone = false;
			tenant_free(n);
		} else {
			t->gone = true;
			if (!t->users)
				tenant_free(t);
		}
	}
	dcm_list_for_each_safe(t, tmp, &new->list, struct dcm_tenant, node) {
		dcm_list_del(&t->node);
		dcm_list_add_tail(&t->node, &ts->list);
	}
}

int dcm_tenants_parse(struct dcm_tenants *ts, const char *name, char *text,
		      size_t len, char *err, size_t err_len)
{
	struct dcm_tenants new;
	unsigned int line_nr = 0, count = 0;
	const char *why = NULL;
	char *line, *next, *end = text + len;

	dcm_tenants_init(&new);
	for (line = text; line < end && !why; line = next) {
		struct dcm_tenant *t;
		char *stop = memchr(line, '\n', (size_t)(end - line));

		line_nr++;
		next = stop ? stop + 1 : end;
		if (!stop)
			stop = end;	/* the caller left room for a NUL */
		if (memchr(line, 0, (size_t)(stop - line))) {
			why = "has a NUL byte";
			break;
		}
		*stop = 0;
		if (stop > line && stop[-1] == '\r')
			stop[-1] = 0;
		if (!*line || *line == '#')
			continue;
		t = calloc(1, sizeof(*t));
		if (!t) {
			why = "out of memory";
			break;
		}
		dcm_list_init(&t->node);
		why = line_parse(line, t);
		if (!why && dcm_tenant_find(&new, t->name, strlen(t->name)))
			why = "the name is there twice";
		if (!why && ++count > DCM_CONFIG_TENANTS_MAX)
			why = "more than 1024 tenants";
		dcm_list_add_tail(&t->node, &new.list);
	}
	if (!why && !count) {
		line_nr = 0;
		why = "has no key; make one with: psktool -u NAME -p FILE";
	}
	if (why) {
		if (line_nr)
			snprintf(err, err_len, "%s: line %u: %s", name, line_nr,
				 why);
		else
			snprintf(err, err_len, "%s: %s", name, why);
		dcm_tenants_free(&new);
		return -1;
	}
	tenants_merge(ts, &new);
	return 0;
}

int dcm_tenants_load(struct dcm_tenants *ts, const char *path, char *err,
		     size_t err_len)
{
	struct stat st;
	size_t len;
	char *text;
	int ret;

	if (stat(path, &st)) {
		snprintf(err, err_len,
			 "%s: %s; make it with: psktool -u NAME -p %s", path,
			 strerror(errno), path);
		return -1;
	}
	if (!S_ISREG(st.st_mode) || (st.st_mode & 077)) {
		snprintf(err, err_len,
			 "%s: others can read the keys; run: chmod 600 %s",
			 path, path);
		return -1;
	}
	text = dcm_file_read(path, KEYS_MAX_BYTES, &len);
	if (!text) {
		snprintf(err, err_len, "%s: %s", path, strerror(errno));
		return -1;
	}
	ret = dcm_tenants_parse(ts, path, text, len, err, err_len);
	explicit_bzero(text, len);
	free(text);
	return ret;
}

void dcm_tenants_quota(struct dcm_tenants *ts, const struct dcm_config *cfg,
		       uint64_t total)
{
	struct dcm_tenant *t;
	uint32_t n = 0, share = cfg->gc_tenant_workers;

	dcm_list_for_each(t, &ts->list, struct dcm_tenant, node)
		n += !t->gone;
	/* unused shares are not given to others: they may be needed soon */
	if (!share)
		share = n && cfg->gc_workers > n ? cfg->gc_workers / n : 1;
	dcm_list_for_each(t, &ts->list, struct dcm_tenant, node) {
		const struct dcm_tenant_conf *c =
			dcm_config_tenant(cfg, t->name);
		const struct dcm_size *s = &cfg->tenant_bytes;

		if (c && c->has_bytes)
			s = &c->bytes;
		t->quota_bytes = dcm_size_bytes(s, total);
		t->quota_connections = c && c->has_connections ?
					       c->connections :
					       cfg->tenant_connections;
		t->quota_workers = c && c->has_workers ? c->workers : share;
		t->patience_ms = c && c->has_patience ? c->patience_ms :
							cfg->patience_ms;
	}
}

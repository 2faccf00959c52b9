// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * tenant.c - tenants: keys, quotas and what is used of them
 *
 * Keys come from a key file (lib/keyfile.h). A tenant's record lives as long as
 * anything refers to it. A tenant that was removed from the file is no longer found, so
 * it gets no new connection, and the caller asks its slabs back.
 *
 * Locking: none, all on the event loop.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tenant.h"

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

static int tenant_take(void *arg, const struct dcm_key *key, const char **why)
{
	struct dcm_tenants *new = arg;
	struct dcm_tenant *t = calloc(1, sizeof(*t));

	if (!t) {
		*why = "out of memory";
		return -EINVAL;
	}
	strcpy(t->name, key->tenant);
	memcpy(t->key, key->key, key->len);
	t->key_bytes = key->len;
	dcm_list_add_tail(&t->node, &new->list);
	return 0;
}

int dcm_tenants_parse(struct dcm_tenants *ts, const char *name,
		      const char *text, size_t len, char *err, size_t err_len)
{
	struct dcm_tenants new;
	char why[DCM_ERR_MAX];
	int ret;

	dcm_tenants_init(&new);
	ret = dcm_keyfile_parse(text, len, tenant_take, &new, why);
	if (ret) {
		snprintf(err, err_len, "key file %s: %s", name, why);
		dcm_tenants_free(&new);
		return ret;
	}
	tenants_merge(ts, &new);
	return 0;
}

int dcm_tenants_load(struct dcm_tenants *ts, const char *path, char *err,
		     size_t err_len)
{
	char *text, why[DCM_ERR_MAX];
	size_t len;
	int ret;

	ret = dcm_keyfile_read(path, &text, &len, why);
	if (ret) {
		snprintf(err, err_len, "%s", why);
		return ret;
	}
	ret = dcm_tenants_parse(ts, path, text, len, err, err_len);
	dcm_keyfile_free(text, len);
	return ret;
}

void dcm_tenants_quota(struct dcm_tenants *ts, const struct dcm_config *cfg,
		       u64 total)
{
	struct dcm_tenant *t;
	u32 n = 0, share = cfg->gc_tenant_workers;

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
		t->patience_ms = c && c->has_patience_ms ? c->patience_ms :
							cfg->patience_ms;
	}
}

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * config.c - dcm-donord's options, and reading them
 *
 * One table has every option: section, name, kind, place, bounds. lib/ini.c
 * splits lines, so that an error names the file, the line and what to write
 * there. An unknown section or key is an error: a misspelt quota must not mean no
 * quota. tests/fuzz/config_fuzz.c feeds the same parser hostile text.
 *
 * No state outside the structures passed in.
 */
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../kvm-dcm/lib/ini.h"
#include "../kvm-dcm/lib/value.h"
#include "../kvm-dcm/proto/wire.h"
#include "config.h"

#define FILE_MAX_BYTES	(1u << 20)
#define PATIENCE_MIN_MS	1000u	/* hosts send something every second */
#define PATIENCE_MAX_MS	86400000u

enum kind {
	KIND_TEXT,
	KIND_LISTEN,
	KIND_SIZE,	/* bytes or percent */
	KIND_BYTES,
	KIND_COUNT,
	KIND_OCTAL,
	KIND_TIME,	/* milliseconds */
	KIND_BOOL,
	KIND_HUGE,
	KIND_RDMA,
};

struct option {
	const char *section;
	const char *key;
	enum kind kind;
	size_t at;
	uint64_t min;
	uint64_t max;
};

static const struct option options[] = {
#define O(s, k, kind, field, min, max) \
	{                                                                \
		s, k, kind, offsetof(struct dcm_config, field), min, max \
	}
	O("donor", "listen", KIND_LISTEN, listen, 0, 0),
	O("donor", "unix", KIND_TEXT, unix_path, 0, 107),
	O("donor", "unix-mode", KIND_OCTAL, unix_mode, 0, 0777),
	O("donor", "keys", KIND_TEXT, keys, 0, DCM_CONFIG_PATH_MAX - 1),
	O("donor", "capacity", KIND_SIZE, capacity, 0, 1ull << 50),
	O("donor", "head-room", KIND_SIZE, head_room, 0, 1ull << 50),
	O("donor", "slab-size", KIND_BYTES, slab_bytes, DCM_WIRE_SLAB_MIN,
	  DCM_WIRE_SLAB_MAX),
	O("donor", "spare-slabs", KIND_COUNT, spare_slabs, 0, 1024),
	O("donor", "hugepages", KIND_HUGE, huge_bytes, 0, 0),
	O("donor", "threads", KIND_COUNT, threads, 0, 64),
	O("donor", "poll-us", KIND_COUNT, poll_us, 0, 1000),
	O("donor", "data-encryption", KIND_BOOL, data_encryption, 0, 0),
	O("donor", "rdma", KIND_RDMA, rdma, 0, 0),
	O("donor", "rdma-listen", KIND_TEXT, rdma_listen, 0,
	  DCM_CONFIG_PATH_MAX - 1),
	O("donor", "drain-timeout", KIND_TIME, drain_ms, 0, 86400000),
	O("limits", "connections", KIND_COUNT, connections, 1, 65536),
	O("limits", "handshakes", KIND_COUNT, handshakes, 1, 65536),
	O("limits", "handshake-timeout", KIND_TIME, handshake_ms, 100, 60000),
	O("limits", "sessions", KIND_COUNT, sessions, 1, 65536),
	O("limits", "tenant-bytes", KIND_SIZE, tenant_bytes, 0, 1ull << 50),
	O("limits", "tenant-connections", KIND_COUNT, tenant_connections, 1,
	  65536),
	O("limits", "patience", KIND_TIME, patience_ms, PATIENCE_MIN_MS,
	  PATIENCE_MAX_MS),
	O("eviction", "extra", KIND_COUNT, evict_extra, 0, 100),
	O("eviction", "activity-timeout", KIND_TIME, activity_ms, 10, 60000),
	O("eviction", "evict-timeout", KIND_TIME, evict_ms, 100, 3600000),
	O("gc", "workers", KIND_COUNT, gc_workers, 0, 1024),
	O("gc", "tenant-workers", KIND_COUNT, gc_tenant_workers, 0, 1024),
	O("gc", "threads", KIND_COUNT, gc_threads, 0, 64),
	O("gc", "memory", KIND_SIZE, gc_memory, 0, 1ull << 50),
	O("gc", "worker", KIND_TEXT, gc_worker, 0, DCM_CONFIG_PATH_MAX - 1),
	O("http", "listen", KIND_TEXT, http, 0, DCM_CONFIG_PATH_MAX - 1),
	O("http", "allow-remote", KIND_BOOL, http_allow_remote, 0, 0),
#undef O
};

void dcm_config_init(struct dcm_config *cfg)
{
	memset(cfg, 0, sizeof(*cfg));
	cfg->unix_mode = 0660;
	snprintf(cfg->keys, sizeof(cfg->keys), "/etc/kvm-dcm/donor.keys");
	cfg->capacity.percent = 75;
	cfg->head_room.percent = 12;
	cfg->slab_bytes = 1u << 30;
	cfg->spare_slabs = 1;
	cfg->threads = 0;
	cfg->poll_us = 0;
	cfg->data_encryption = true;
	cfg->rdma = DCM_RDMA_AUTO;
	cfg->drain_ms = 60000;
	cfg->connections = 4096;
	cfg->handshakes = 1024;
	cfg->handshake_ms = 5000;
	cfg->sessions = 4096;
	cfg->tenant_bytes.percent = 100;
	cfg->tenant_connections = 2048;
	cfg->patience_ms = 60000;
	cfg->evict_extra = 100;
	cfg->activity_ms = 500;
	cfg->evict_ms = 30000;
	cfg->gc_workers = 16;
	cfg->gc_memory.percent = 5;
	snprintf(cfg->http, sizeof(cfg->http), "off");
}

void dcm_config_free(struct dcm_config *cfg)
{
	free(cfg->tenants);
	cfg->tenants = NULL;
	cfg->nr_tenants = 0;
}

uint64_t dcm_size_bytes(const struct dcm_size *s, uint64_t total)
{
	/* no host has 2^57 bytes */
	return s->percent ? total * s->percent / 100 : s->bytes;
}

/* A size, or "12%" of the host's memory */
static int size_parse(const char *s, struct dcm_size *size)
{
	size_t len = strlen(s);
	char digits[24];
	uint64_t percent;

	memset(size, 0, sizeof(*size));
	if (!len || s[len - 1] != '%')
		return dcm_size_parse(s, &size->bytes);
	if (len > sizeof(digits))
		return -1;
	memcpy(digits, s, len - 1);
	digits[len - 1] = 0;
	if (dcm_count_parse(digits, &percent) || percent < 1 || percent > 100)
		return -1;
	size->percent = (uint32_t)percent;
	return 0;
}

static int octal_parse(const char *s, uint64_t *v)
{
	*v = 0;
	if (!*s || strlen(s) > 4)
		return -1;
	for (; *s; s++) {
		if (*s < '0' || *s > '7')
			return -1;
		*v = *v * 8 + (uint64_t)(*s - '0');
	}
	return 0;
}

static int option_bad(const struct option *o, const char *value,
		      const char *wanted, char *err, size_t err_len)
{
	snprintf(err, err_len, "[%s] %s = %.60s: %s", o->section, o->key, value,
		 wanted);
	return -1;
}

static int option_range(const struct option *o, const char *value, uint64_t v,
			char *err, size_t err_len)
{
	char wanted[96];

	if (v >= o->min && v <= o->max)
		return 0;
	snprintf(wanted, sizeof(wanted), "must be from %llu to %llu%s",
		 (unsigned long long)o->min, (unsigned long long)o->max,
		 o->kind == KIND_TIME ? " ms" : "");
	return option_bad(o, value, wanted, err, err_len);
}

static int option_set(struct dcm_config *cfg, const struct option *o,
		      const char *value, char *err, size_t err_len)
{
	char *at = (char *)cfg + o->at;
	struct dcm_size size;
	uint64_t v = 0;

	switch (o->kind) {
	case KIND_TEXT:
		if (strlen(value) > o->max)
			return option_bad(o, value, "too long", err, err_len);
		strcpy(at, value);
		return 0;
	case KIND_LISTEN:
		if (strlen(value) >= DCM_CONFIG_PATH_MAX)
			return option_bad(o, value, "too long", err, err_len);
		if (cfg->nr_listen == DCM_CONFIG_LISTEN_MAX)
			return option_bad(o, value, "more than 8 addresses",
					  err, err_len);
		strcpy(cfg->listen[cfg->nr_listen++], value);
		return 0;
	case KIND_SIZE:
		if (size_parse(value, &size))
			return option_bad(o, value,
					  "write bytes, 64M, 2G or 12%", err,
					  err_len);
		if (!size.percent &&
		    option_range(o, value, size.bytes, err, err_len))
			return -1;
		memcpy(at, &size, sizeof(size));
		return 0;
	case KIND_BYTES:
		if (dcm_size_parse(value, &v))
			return option_bad(o, value, "write bytes, 64M or 2G",
					  err, err_len);
		if (option_range(o, value, v, err, err_len))
			return -1;
		memcpy(at, &v, sizeof(v));
		return 0;
	case KIND_COUNT:
		if (dcm_count_parse(value, &v))
			return option_bad(o, value, "write a whole number", err,
					  err_len);
		break;
	case KIND_OCTAL:
		if (octal_parse(value, &v))
			return option_bad(o, value,
					  "write an octal mode such as 0660",
					  err, err_len);
		break;
	case KIND_TIME:
		if (dcm_time_parse(value, &v))
			return option_bad(o, value,
					  "write a time: 500ms, 5s or 2min",
					  err, err_len);
		break;
	case KIND_BOOL:
		if (dcm_bool_parse(value, (bool *)at))
			return option_bad(o, value, "write yes or no", err,
					  err_len);
		return 0;
	case KIND_RDMA: {
		bool on;

		if (!strcmp(value, "auto"))
			v = DCM_RDMA_AUTO;
		else if (!dcm_bool_parse(value, &on))
			v = on ? DCM_RDMA_YES : DCM_RDMA_NO;
		else
			return option_bad(o, value, "write no, auto or yes",
					  err, err_len);
		*(uint32_t *)(void *)at = (uint32_t)v;
		return 0;
	}
	case KIND_HUGE: {
		bool on;

		if (!dcm_bool_parse(value, &on))
			v = on;
		else if (dcm_size_parse(value, &v) || v < (64u << 10) ||
			 (v & (v - 1)))
			return option_bad(o, value, "write no, yes, 2M or 1G",
					  err, err_len);
		memcpy(at, &v, sizeof(v));
		return 0;
	}
	}
	if (option_range(o, value, v, err, err_len))
		return -1;
	*(uint32_t *)(void *)at = (uint32_t)v;
	return 0;
}

static struct dcm_tenant_conf *tenant_get(struct dcm_config *cfg,
					  const char *name)
{
	struct dcm_tenant_conf *t;

	for (uint32_t i = 0; i < cfg->nr_tenants; i++)
		if (!strcmp(cfg->tenants[i].name, name))
			return &cfg->tenants[i];
	if (cfg->nr_tenants == DCM_TENANTS_MAX)
		return NULL;
	t = realloc(cfg->tenants, (cfg->nr_tenants + 1) * sizeof(*t));
	if (!t)
		return NULL;
	cfg->tenants = t;
	t += cfg->nr_tenants++;
	memset(t, 0, sizeof(*t));
	snprintf(t->name, sizeof(t->name), "%s", name);
	return t;
}

const struct dcm_tenant_conf *dcm_config_tenant(const struct dcm_config *cfg,
						const char *name)
{
	for (uint32_t i = 0; i < cfg->nr_tenants; i++)
		if (!strcmp(cfg->tenants[i].name, name))
			return &cfg->tenants[i];
	return NULL;
}

static int tenant_count(const struct option *o, const char *value, uint32_t *to,
			bool *has, char *err, size_t err_len)
{
	uint64_t v;

	if (dcm_count_parse(value, &v))
		return option_bad(o, value, "write a whole number", err,
				  err_len);
	if (option_range(o, value, v, err, err_len))
		return -1;
	*to = (uint32_t)v;
	*has = true;
	return 0;
}

static int tenant_set(struct dcm_config *cfg, const char *name, const char *key,
		      const char *value, char *err, size_t err_len)
{
	static const struct option bytes = { "tenant", "bytes", KIND_SIZE,
					     0,	       0,	1ull << 50 };
	static const struct option conns = { "tenant", "connections",
					     KIND_COUNT, 0,
					     1,		 65536 };
	static const struct option workers = { "tenant", "workers", KIND_COUNT,
					       0,	 0,	    1024 };
	static const struct option patience = {
		"tenant", "patience",	   KIND_TIME,
		0,	  PATIENCE_MIN_MS, PATIENCE_MAX_MS
	};
	struct dcm_tenant_conf *t;

	if (!dcm_tenant_valid(name, strlen(name))) {
		snprintf(err, err_len, "[tenant %.70s]: " DCM_TENANT_RULE,
			 name);
		return -1;
	}
	t = tenant_get(cfg, name);
	if (!t) {
		snprintf(err, err_len, "more than %u [tenant] sections",
			 DCM_TENANTS_MAX);
		return -1;
	}
	if (!strcmp(key, "bytes")) {
		struct dcm_size size;

		if (size_parse(value, &size))
			return option_bad(&bytes, value,
					  "write bytes, 64M, 2G or 12%", err,
					  err_len);
		if (!size.percent &&
		    option_range(&bytes, value, size.bytes, err, err_len))
			return -1;
		t->bytes = size;
		t->has_bytes = true;
		return 0;
	}
	if (!strcmp(key, "connections"))
		return tenant_count(&conns, value, &t->connections,
				    &t->has_connections, err, err_len);
	if (!strcmp(key, "workers"))
		return tenant_count(&workers, value, &t->workers,
				    &t->has_workers, err, err_len);
	if (!strcmp(key, "patience")) {
		uint64_t v;

		if (dcm_time_parse(value, &v))
			return option_bad(&patience, value,
					  "write a time: 30s, 2min or 1500ms",
					  err, err_len);
		if (option_range(&patience, value, v, err, err_len))
			return -1;
		t->patience_ms = (uint32_t)v;
		t->has_patience = true;
		return 0;
	}
	snprintf(err, err_len,
		 "[tenant %s] %.60s: unknown; known are bytes, connections, workers, patience",
		 name, key);
	return -1;
}

int dcm_config_set(struct dcm_config *cfg, const char *section, const char *key,
		   const char *value, char *err, size_t err_len)
{
	bool known = false;

	if (!strncmp(section, "tenant ", 7))
		return tenant_set(cfg, section + 7, key, value, err, err_len);
	for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
		if (strcmp(options[i].section, section))
			continue;
		known = true;
		if (!strcmp(options[i].key, key))
			return option_set(cfg, &options[i], value, err,
					  err_len);
	}
	if (known)
		snprintf(err, err_len, "[%s] %.60s: unknown option", section,
			 key);
	else
		snprintf(err, err_len,
			 "[%.60s]: unknown section; known are donor, limits, eviction, gc, http, tenant NAME",
			 section);
	return -1;
}

static int on_key(void *arg, const char *section, const char *key,
		  const char *value, char *err)
{
	return dcm_config_set(arg, section, key, value, err, DCM_ERR_MAX) ?
		       -EINVAL :
		       0;
}

int dcm_config_parse(struct dcm_config *cfg, const char *name, const char *text,
		     size_t len, char *err, size_t err_len)
{
	char why[DCM_ERR_MAX];

	if (!dcm_ini_parse(text, len, on_key, cfg, why))
		return 0;
	snprintf(err, err_len, "%s: %s", name, why);
	return -1;
}

static int load_one(struct dcm_config *cfg, const char *path, char *err,
		    size_t err_len)
{
	size_t len;
	char *text = dcm_file_read(path, FILE_MAX_BYTES, &len);
	int ret;

	if (!text) {
		snprintf(err, err_len, "%s: %s", path,
			 errno == EFBIG ? "larger than 1 MiB" :
					  strerror(errno));
		return -1;
	}
	ret = dcm_config_parse(cfg, path, text, len, err, err_len);
	free(text);
	return ret;
}

int dcm_config_load(struct dcm_config *cfg, const char *path, char *err,
		    size_t err_len)
{
	char pattern[DCM_CONFIG_PATH_MAX + 16];
	glob_t g;
	int ret;

	ret = load_one(cfg, path, err, err_len);
	if (ret)
		return ret;
	snprintf(pattern, sizeof(pattern), "%s.d/*.conf", path);
	if (glob(pattern, 0, NULL, &g))
		return 0;
	for (size_t i = 0; i < g.gl_pathc && !ret; i++)
		ret = load_one(cfg, g.gl_pathv[i], err, err_len);
	globfree(&g);
	return ret;
}

int dcm_config_check(const struct dcm_config *cfg, char *err, size_t err_len)
{
	if (!cfg->nr_listen && !cfg->unix_path[0]) {
		snprintf(err, err_len,
			 "nothing to listen on: set listen = HOST:PORT or unix = PATH in [donor]");
		return -1;
	}
	if (cfg->slab_bytes & (cfg->slab_bytes - 1)) {
		snprintf(err, err_len,
			 "[donor] slab-size = %llu: must be a power of two",
			 (unsigned long long)cfg->slab_bytes);
		return -1;
	}
	if (cfg->rdma == DCM_RDMA_YES && cfg->data_encryption) {
		snprintf(err, err_len,
			 "[donor] rdma = yes: RDMA is not encrypted, and data-encryption = yes; set one of them to no");
		return -1;
	}
	if (cfg->rdma == DCM_RDMA_YES && !cfg->nr_listen &&
	    !cfg->rdma_listen[0]) {
		snprintf(err, err_len,
			 "[donor] rdma = yes: there is no TCP address to take it from; set rdma-listen = HOST:PORT");
		return -1;
	}
	if (cfg->huge_bytes > cfg->slab_bytes) {
		snprintf(err, err_len,
			 "[donor] hugepages: the page is larger than slab-size");
		return -1;
	}
	if (!cfg->capacity.percent && cfg->capacity.bytes < cfg->slab_bytes) {
		snprintf(err, err_len,
			 "[donor] capacity = %llu: smaller than one slab of %llu",
			 (unsigned long long)cfg->capacity.bytes,
			 (unsigned long long)cfg->slab_bytes);
		return -1;
	}
	return 0;
}

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * config.c - dcm-donord's options, and reading them
 *
 * options.h has every option: section, name, kind, place, bounds, default.
 * lib/ini.c splits lines, so that an error names the file, the line and what to
 * write there. An unknown section or key is an error: a misspelt quota must not
 * mean no quota. tests/fuzz/config_fuzz.c feeds the same parser hostile text.
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
	KIND_POLL,
	KIND_MEDIUM,
};

enum when {
	RELOAD,
	RESTART,
};

const struct dcm_option dcm_options[DCM_OPTIONS_NR] = {
#define X(s, k, type, field, lo, hi, value, name, option, when, text)       \
	{                                                                   \
		.section = s,                                               \
		.key = k,                                                   \
		.kind = KIND_##type,                                        \
		.at = offsetof(struct dcm_config, field),                   \
		.bytes = sizeof(((struct dcm_config *)NULL)->field),        \
		.min = lo,                                                  \
		.max = hi,                                                  \
		.def = value,                                               \
		.arg = name,                                                \
		.flag = option,                                             \
		.restart = (when) == RESTART,                               \
		.help = text,                                               \
	},
	DCM_OPTIONS(X)
#undef X
};

static const struct dcm_option tenant_options[] = {
#define X(k, type, field, lo, hi)                                           \
	{                                                                   \
		.section = "tenant",                                        \
		.key = k,                                                   \
		.kind = KIND_##type,                                        \
		.at = offsetof(struct dcm_tenant_conf, field),              \
		.has = offsetof(struct dcm_tenant_conf, has_##field),       \
		.min = lo,                                                  \
		.max = hi,                                                  \
	},
	DCM_TENANT_OPTIONS(X)
#undef X
};

void dcm_config_free(struct dcm_config *cfg)
{
	free(cfg->tenants);
	cfg->tenants = NULL;
	cfg->nr_tenants = 0;
}

u64 dcm_size_bytes(const struct dcm_size *s, u64 total)
{
	/* no host has 2^57 bytes */
	return s->percent ? total * s->percent / 100 : s->bytes;
}

/* A size, or "12%" of the host's memory */
static int size_parse(const char *s, struct dcm_size *size)
{
	size_t len = strlen(s);
	char digits[24];
	u64 percent;

	memset(size, 0, sizeof(*size));
	if (!len || s[len - 1] != '%')
		return dcm_size_parse(s, &size->bytes);
	if (len > sizeof(digits))
		return -EINVAL;
	memcpy(digits, s, len - 1);
	digits[len - 1] = 0;
	if (dcm_count_parse(digits, &percent) || percent < 1 || percent > 100)
		return -EINVAL;
	size->percent = (u32)percent;
	return 0;
}

static int octal_parse(const char *s, u64 *v)
{
	*v = 0;
	if (!*s || strlen(s) > 4)
		return -EINVAL;
	for (; *s; s++) {
		if (*s < '0' || *s > '7')
			return -EINVAL;
		*v = *v * 8 + (u64)(*s - '0');
	}
	return 0;
}

static int option_bad(const struct dcm_option *o, const char *value,
		      const char *wanted, char *err, size_t err_len)
{
	snprintf(err, err_len, "[%s] %s = %.60s: %s", o->section, o->key, value,
		 wanted);
	return -EINVAL;
}

static int option_range(const struct dcm_option *o, const char *value, u64 v,
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

static int listen_add(struct dcm_config *cfg, const struct dcm_option *o,
		      const char *value, char *err, size_t err_len)
{
	if (strlen(value) >= DCM_CONFIG_PATH_MAX)
		return option_bad(o, value, "too long", err, err_len);
	if (cfg->nr_listen == DCM_CONFIG_LISTEN_MAX)
		return option_bad(o, value, "more than 8 addresses", err,
				  err_len);
	strcpy(cfg->listen[cfg->nr_listen++], value);
	return 0;
}

/* Set option @o from text. @conf: the structure that has its value. */
static int option_set(void *conf, const struct dcm_option *o, const char *value,
		      char *err, size_t err_len)
{
	char *at = (char *)conf + o->at;
	struct dcm_size size;
	u64 v = 0;

	switch ((enum kind)o->kind) {
	case KIND_TEXT:
		if (strlen(value) > o->max)
			return option_bad(o, value, "too long", err, err_len);
		strcpy(at, value);
		return 0;
	case KIND_LISTEN:
		return listen_add(conf, o, value, err, err_len);
	case KIND_SIZE:
		if (size_parse(value, &size))
			return option_bad(o, value,
					  "write bytes, 64M, 2G or 12%", err,
					  err_len);
		if (!size.percent &&
		    option_range(o, value, size.bytes, err, err_len))
			return -EINVAL;
		memcpy(at, &size, sizeof(size));
		return 0;
	case KIND_BYTES:
		if (dcm_size_parse(value, &v))
			return option_bad(o, value, "write bytes, 64M or 2G",
					  err, err_len);
		if (option_range(o, value, v, err, err_len))
			return -EINVAL;
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
		*(u32 *)(void *)at = (u32)v;
		return 0;
	}
	case KIND_POLL:
		if (!strcmp(value, "auto")) {
			*(u32 *)(void *)at = DCM_POLL_AUTO;
			return 0;
		}
		if (dcm_count_parse(value, &v))
			return option_bad(o, value,
					  "write auto or a whole number", err,
					  err_len);
		break;
	case KIND_MEDIUM:
		if (strcmp(value, "memory") && strcmp(value, "file"))
			return option_bad(o, value, "write memory or file", err,
					  err_len);
		*(u32 *)(void *)at = *value == 'f' ? DCM_MEDIUM_FILE :
						     DCM_MEDIUM_MEMORY;
		return 0;
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
		return -EINVAL;
	*(u32 *)(void *)at = (u32)v;
	return 0;
}

void dcm_config_init(struct dcm_config *cfg)
{
	char err[DCM_ERR_MAX];

	memset(cfg, 0, sizeof(*cfg));
	for (size_t i = 0; i < DCM_OPTIONS_NR; i++) {
		const struct dcm_option *o = &dcm_options[i];

		/* if this fails options.h is wrong, and every start fails */
		if (*o->def && option_set(cfg, o, o->def, err, sizeof(err))) {
			fprintf(stderr, "default of %s\n", err);
			abort();
		}
	}
}

static struct dcm_tenant_conf *tenant_get(struct dcm_config *cfg,
					  const char *name)
{
	struct dcm_tenant_conf *t;

	for (u32 i = 0; i < cfg->nr_tenants; i++)
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
	for (u32 i = 0; i < cfg->nr_tenants; i++)
		if (!strcmp(cfg->tenants[i].name, name))
			return &cfg->tenants[i];
	return NULL;
}

static int tenant_set(struct dcm_config *cfg, const char *name, const char *key,
		      const char *value, char *err, size_t err_len)
{
	struct dcm_tenant_conf *t;

	if (!dcm_tenant_valid(name, strlen(name))) {
		snprintf(err, err_len, "[tenant %.70s]: " DCM_TENANT_RULE,
			 name);
		return -EINVAL;
	}
	t = tenant_get(cfg, name);
	if (!t) {
		snprintf(err, err_len, "more than %u [tenant] sections",
			 DCM_TENANTS_MAX);
		return -EINVAL;
	}
	for (size_t i = 0; i < ARRAY_SIZE(tenant_options); i++) {
		const struct dcm_option *o = &tenant_options[i];

		if (strcmp(o->key, key))
			continue;
		if (option_set(t, o, value, err, err_len))
			return -EINVAL;
		*((bool *)t + o->has) = true;
		return 0;
	}
	snprintf(err, err_len,
		 "[tenant %s] %.60s: unknown; known are bytes, connections, workers, patience",
		 name, key);
	return -EINVAL;
}

int dcm_config_set(struct dcm_config *cfg, const char *section, const char *key,
		   const char *value, char *err, size_t err_len)
{
	bool known = false;

	if (!strncmp(section, "tenant ", 7))
		return tenant_set(cfg, section + 7, key, value, err, err_len);
	for (size_t i = 0; i < DCM_OPTIONS_NR; i++) {
		if (strcmp(dcm_options[i].section, section))
			continue;
		known = true;
		if (!strcmp(dcm_options[i].key, key))
			return option_set(cfg, &dcm_options[i], value, err,
					  err_len);
	}
	if (known)
		snprintf(err, err_len, "[%s] %.60s: unknown option", section,
			 key);
	else
		snprintf(err, err_len,
			 "[%.60s]: unknown section; known are donor, limits, eviction, gc, http, tenant NAME",
			 section);
	return -EINVAL;
}

static int on_key(void *arg, const char *section, const char *key,
		  const char *value, char *err)
{
	return dcm_config_set(arg, section, key, value, err, DCM_ERR_MAX);
}

int dcm_config_parse(struct dcm_config *cfg, const char *name, const char *text,
		     size_t len, char *err, size_t err_len)
{
	char why[DCM_ERR_MAX];
	int ret = dcm_ini_parse(text, len, on_key, cfg, why);

	if (ret)
		snprintf(err, err_len, "%s: %s", name, why);
	return ret;
}

static int load_one(struct dcm_config *cfg, const char *path, char *err,
		    size_t err_len)
{
	size_t len;
	char *text = dcm_file_read(path, FILE_MAX_BYTES, &len);
	int ret;

	if (!text) {
		ret = -errno;
		snprintf(err, err_len, "%s: %s", path,
			 ret == -EFBIG ? "larger than 1 MiB" : strerror(-ret));
		return ret;
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

/* Check options that medium = file can't be combined with: %NULL, or one line. */
static const char *medium_check(const struct dcm_config *cfg)
{
	/* a path may be set although it is not used */
	if (cfg->medium == DCM_MEDIUM_MEMORY)
		return NULL;
	if (!cfg->path[0])
		return "medium = file: set path = DIR, the directory of the files";
	if (cfg->huge_bytes)
		return "medium = file: files have no huge pages; set hugepages = no";
	if (cfg->rdma == DCM_RDMA_YES)
		return "medium = file: files can't be lent over RDMA; set rdma = no";
	return NULL;
}

int dcm_config_check(const struct dcm_config *cfg, char *err, size_t err_len)
{
	const char *why = medium_check(cfg);

	if (why) {
		snprintf(err, err_len, "[donor] %s", why);
		return -EINVAL;
	}
	if (!cfg->nr_listen && !cfg->unix_path[0]) {
		snprintf(err, err_len,
			 "nothing to listen on: set listen = HOST:PORT or unix = PATH in [donor]");
		return -EINVAL;
	}
	if (cfg->slab_bytes & (cfg->slab_bytes - 1)) {
		snprintf(err, err_len,
			 "[donor] slab-size = %llu: must be a power of two",
			 (unsigned long long)cfg->slab_bytes);
		return -EINVAL;
	}
	if (cfg->rdma == DCM_RDMA_YES && cfg->data_encryption) {
		snprintf(err, err_len,
			 "[donor] rdma = yes: RDMA is not encrypted, and data-encryption = yes; set one of them to no");
		return -EINVAL;
	}
	if (cfg->rdma == DCM_RDMA_YES && !cfg->nr_listen &&
	    !cfg->rdma_listen[0]) {
		snprintf(err, err_len,
			 "[donor] rdma = yes: there is no TCP address to take it from; set rdma-listen = HOST:PORT");
		return -EINVAL;
	}
	if (cfg->huge_bytes > cfg->slab_bytes) {
		snprintf(err, err_len,
			 "[donor] hugepages: the page is larger than slab-size");
		return -EINVAL;
	}
	if (!cfg->capacity.percent && cfg->capacity.bytes < cfg->slab_bytes) {
		snprintf(err, err_len,
			 "[donor] capacity = %llu: smaller than one slab of %llu",
			 (unsigned long long)cfg->capacity.bytes,
			 (unsigned long long)cfg->slab_bytes);
		return -EINVAL;
	}
	return 0;
}

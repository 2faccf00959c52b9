// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * config.c - libdcm's configuration, and dcm-hostd's
 *
 * lib/ini.c splits lines; options.h has the allowed values of every key. The first
 * error found is reported.
 *
 * The file is 0600 and written by dcmctl run, but a VM's owner may write one:
 * everything in it is bounded, and checked before it is used.
 *
 * No state, no locks.
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../lib/ini.h"
#include "../proto/wire_format.h"
#include "config.h"
#include "options.h"

_Static_assert(DCM_TENANT_MAX == DCM_WIRE_TENANT_MAX &&
		       DCM_KEY_MIN == DCM_WIRE_KEY_MIN &&
		       DCM_KEY_MAX == DCM_WIRE_KEY_MAX,
	       "key files have what the protocol has");

enum kind {
	KIND_SIZE,
	KIND_COUNT,
	KIND_NAME,
	KIND_TEXT,
	KIND_TENANT,
	KIND_CHOICE,
	KIND_BOOL,
	KIND_TIME,
	KIND_MOUNT, /* may be given again */
};

struct option {
	const char *section;
	const char *key;
	enum kind kind;
	size_t offset;
	size_t room; /* of text */
	u64 min;
	u64 max;
	const char *def;
	const char *choices; /* "zero|one|two" */
};

static const struct option options[] = {
#define X(s, k, type, field, lo, hi, value, words)                          \
	{                                                                   \
		.section = s,                                               \
		.key = k,                                                   \
		.kind = KIND_##type,                                        \
		.offset = offsetof(struct dcm_host_config, field),          \
		.room = sizeof(((struct dcm_host_config *)NULL)->field),    \
		.min = lo,                                                  \
		.max = hi,                                                  \
		.def = value,                                               \
		.choices = words,                                           \
	},
	DCM_HOST_OPTIONS(X)
#undef X
};

#define NR_OPTIONS (sizeof(options) / sizeof(options[0]))

struct reader {
	struct dcm_host_config *cfg;
	char *err;
	bool hostd; /* the file is dcm-hostd's */
	bool more; /* a file of donors only, read after the configuration */
	u32 before;
	bool seen[NR_OPTIONS];
};

#define FAIL(r, ...) (snprintf((r)->err, DCM_ERR_MAX, __VA_ARGS__), -EINVAL)

static int mount_set(struct reader *r, const char *value)
{
	struct dcm_host_config *cfg = r->cfg;

	if (value[0] != '/' || strlen(value) > DCM_INI_LINE_MAX)
		return FAIL(r, "mount: must be a path that begins with /");
	if (cfg->nr_mounts == DCM_CONFIG_MOUNTS_MAX)
		return FAIL(r, "more than %u mounts", DCM_CONFIG_MOUNTS_MAX);
	strcpy(cfg->mount[cfg->nr_mounts++], value);
	return 0;
}

static int range_bad(struct reader *r, const struct option *o, const char *what,
		     const char *unit)
{
	return FAIL(r, "%s: must be a %s from %llu to %llu%s", o->key, what,
		    (unsigned long long)o->min, (unsigned long long)o->max,
		    unit);
}

static int option_set(struct reader *r, const struct option *o,
		      const char *value)
{
	void *field = (char *)r->cfg + o->offset;
	u64 v;

	switch (o->kind) {
	case KIND_SIZE:
		if (dcm_size_parse(value, &v) || v < o->min || v > o->max)
			return range_bad(r, o, "size", " bytes");
		memcpy(field, &v, sizeof(v));
		return 0;
	case KIND_TIME:
		if (dcm_time_parse(value, &v) || v < o->min || v > o->max)
			return range_bad(r, o, "time", " ms, such as 60s");
		memcpy(field, &v, sizeof(v));
		return 0;
	case KIND_COUNT:
		if (dcm_count_parse(value, &v) || v < o->min || v > o->max)
			return range_bad(r, o, "number", "");
		*(u32 *)field = (u32)v;
		return 0;
	case KIND_NAME:
		if (!dcm_name_valid(value))
			return FAIL(r, "%s: must be " DCM_NAME_RULE, o->key);
		strcpy(field, value);
		return 0;
	case KIND_TEXT:
		if (!*value || strlen(value) >= o->room)
			return FAIL(r, "%s: must be 1 to %zu bytes", o->key,
				    o->room - 1);
		strcpy(field, value);
		return 0;
	case KIND_TENANT:
		if (!dcm_tenant_valid(value, strlen(value)))
			return FAIL(r, "%s = %.70s: " DCM_TENANT_RULE, o->key,
				    value);
		strcpy(field, value);
		return 0;
	case KIND_BOOL:
		if (dcm_bool_parse(value, field))
			return FAIL(r, "%s: must be yes or no", o->key);
		return 0;
	case KIND_MOUNT:
		return mount_set(r, value);
	case KIND_CHOICE: {
		const char *word = o->choices;
		unsigned int n;

		for (n = 0;; n++, word++) {
			size_t room = strcspn(word, "|");

			if (strlen(value) == room &&
			    !memcmp(value, word, room)) {
				*(unsigned int *)field = n;
				return 0;
			}
			word += room;
			if (!*word)
				return FAIL(r, "%s: must be one of %s", o->key,
					    o->choices);
		}
	}
	}
	return 0;
}

bool dcm_address_valid(const char *s)
{
	const char *colon;
	u64 port;

	if (strlen(s) > DCM_ADDRESS_MAX)
		return false;
	/* sun_path has 108 bytes */
	if (!strncmp(s, "unix:", 5))
		return s[5] == '/' && strlen(s + 5) < 108;
	if (strncmp(s, "tcp:", 4))
		return false;
	colon = strrchr(s + 4, ':');
	return colon && colon > s + 4 && !dcm_count_parse(colon + 1, &port) &&
	       port > 0 && port < 65536;
}

/* The index of the configured donor of that name, or the number of donors. */
static u32 donor_find(const struct dcm_host_config *cfg, const char *name)
{
	u32 i;

	for (i = 0; i < cfg->nr_donors; i++)
		if (!strcmp(cfg->donor[i].name, name))
			break;
	return i;
}

/* Check a donor's status address, which only dcmctl uses, and don't store it. */
static int donor_status_set(struct reader *r, const char *name,
			    const char *value)
{
	(void)name;
	return strlen(value) <= DCM_ADDRESS_MAX ?
		       0 :
		       FAIL(r, "status: must be HOST:PORT");
}

static int donor_drain_set(struct reader *r, const char *name,
			   const char *value)
{
	struct dcm_host_config *cfg = r->cfg;
	u32 i = donor_find(cfg, name);
	bool drain;

	if (i == cfg->nr_donors)
		return FAIL(r, "drain: address= of that donor first");
	if (dcm_bool_parse(value, &drain))
		return FAIL(r, "drain: must be yes or no");
	cfg->drained &= ~(1ull << i);
	cfg->drained |= (u64)drain << i;
	return 0;
}

static int donor_group_set(struct reader *r, const char *name,
			   const char *value)
{
	struct dcm_host_config *cfg = r->cfg;
	u32 i = donor_find(cfg, name);

	if (i == cfg->nr_donors)
		return FAIL(r, "group: address= of that donor first");
	if (!dcm_name_valid(value))
		return FAIL(r, "group: must be " DCM_NAME_RULE);
	strcpy(cfg->donor[i].group, value);
	return 0;
}

static int donor_address_set(struct reader *r, const char *name,
			     const char *value)
{
	struct dcm_host_config *cfg = r->cfg;
	struct dcm_host_donor *d;

	if (!dcm_address_valid(value))
		return FAIL(r, "address: must be tcp:HOST:PORT or unix:/path");
	if (donor_find(cfg, name) < cfg->nr_donors)
		return FAIL(r, "a second address for donor %s", name);
	if (cfg->nr_donors == DCM_CONFIG_DONORS_MAX)
		return FAIL(r, "more than %u donors", DCM_CONFIG_DONORS_MAX);
	d = &cfg->donor[cfg->nr_donors++];
	strcpy(d->name, name);
	strcpy(d->address, value);
	return 0;
}

static const struct {
	const char *key;
	int (*set)(struct reader *r, const char *name, const char *value);
} donor_options[] = {
#define X(k, function) { k, function },
	DCM_DONOR_OPTIONS(X)
#undef X
};

static int donor_set(struct reader *r, const char *name, const char *key,
		     const char *value)
{
	if (!dcm_name_valid(name))
		return FAIL(r, "[donor %.64s]: the name must be " DCM_NAME_RULE,
			    name);
	/* the file with more donors repeats one of the first file: ignore it */
	if (r->more && donor_find(r->cfg, name) < r->before &&
	    strcmp(key, "status"))
		return 0;
	for (size_t i = 0; i < sizeof(donor_options) / sizeof(donor_options[0]);
	     i++)
		if (!strcmp(donor_options[i].key, key))
			return donor_options[i].set(r, name, value);
	return FAIL(r, "unknown key '%.60s' in [donor]", key);
}

static int tunable_set(struct reader *r, const char *key, const char *value)
{
	struct dcm_host_config *cfg = r->cfg;
	struct dcm_host_tunable *t;
	u64 v;
	u32 i;
	bool b;

	if (!*key || strlen(key) >= sizeof(t->name))
		return FAIL(r, "unknown tunable '%.60s'", key);
	if (dcm_size_parse(value, &v)) {
		if (dcm_bool_parse(value, &b))
			return FAIL(r, "%s: not a number", key);
		v = b;
	}
	for (i = 0; i < cfg->nr_tunables; i++)
		if (!strcmp(cfg->tunable[i].name, key))
			return FAIL(r, "%s is there twice", key);
	if (cfg->nr_tunables == DCM_CONFIG_TUNABLES_MAX)
		return FAIL(r, "more than %u tunables",
			    DCM_CONFIG_TUNABLES_MAX);
	t = &cfg->tunable[cfg->nr_tunables++];
	strcpy(t->name, key);
	t->value = v;
	return 0;
}

static int on_key(void *arg, const char *section, const char *key,
		  const char *value, char *err)
{
	struct reader *r = arg;
	size_t i;

	r->err = err;
	if (!strncmp(section, "donor ", 6))
		return donor_set(r, section + 6 + strspn(section + 6, " "), key,
				 value);
	if (r->more)
		return FAIL(r, "only [donor NAME] sections are for this file");
	if (!strcmp(section, "tunables"))
		return tunable_set(r, key, value);
	for (i = 0; i < NR_OPTIONS; i++) {
		if (!strcmp(section, r->hostd ? "vm" : "host"))
			break;
		if (strcmp(options[i].section, section) ||
		    strcmp(options[i].key, key))
			continue;
		if (r->seen[i] && options[i].kind != KIND_MOUNT)
			return FAIL(r, "%s is there twice", key);
		r->seen[i] = true;
		return option_set(r, &options[i], value);
	}
	if (strcmp(section, r->hostd ? "host" : "vm") && strcmp(section, "key"))
		return FAIL(r,
			    "unknown section [%.40s]; there are [%s], [donor NAME], [key] and [tunables]",
			    section, r->hostd ? "host" : "vm");
	return FAIL(r, "unknown key '%.60s' in [%s]", key, section);
}

static int config_check(const struct dcm_host_config *c, bool hostd, char *err)
{
	if (!hostd && !c->budget)
		snprintf(err, DCM_ERR_MAX, "[vm] budget= is missing");
	else if (c->extent && (c->extent < DCM_WIRE_SLAB_MIN ||
			       c->extent > DCM_WIRE_SLAB_MAX ||
			       (c->extent & (c->extent - 1))))
		snprintf(err, DCM_ERR_MAX,
			 "[vm] extent=: must be a power of two from 2M to 1T");
	else if (c->transport == DCM_TRANSPORT_VERBS && c->data_encryption &&
		 !c->seal)
		snprintf(err, DCM_ERR_MAX,
			 "[%s] transport = verbs: RDMA is not encrypted; data-encryption = no must say that this is wanted, or seal = yes that pages are",
			 hostd ? "host" : "vm");
	else if (!c->nr_donors && !c->donors_file[0])
		snprintf(err, DCM_ERR_MAX, "no [donor NAME] section");
	else if (!c->key_file[0])
		snprintf(err, DCM_ERR_MAX, "[key] file= is missing");
	else
		return 0;
	return -EINVAL;
}

static int config_parse(const char *text, size_t len, bool hostd,
			struct dcm_host_config *cfg, char *err)
{
	struct reader r = { .cfg = cfg, .hostd = hostd };

	memset(cfg, 0, sizeof(*cfg));
	r.err = err;
	for (size_t i = 0; i < NR_OPTIONS; i++)
		if (*options[i].def &&
		    option_set(&r, &options[i], options[i].def))
			return -EINVAL; /* options.h is wrong */
	return dcm_ini_parse(text, len, on_key, &r, err) ?
		       -EINVAL :
		       config_check(cfg, hostd, err);
}

int dcm_host_donors_parse(const char *text, size_t len,
			  struct dcm_host_config *cfg, char *err)
{
	struct reader r = { .cfg = cfg,
			    .more = true,
			    .before = cfg->nr_donors };

	return dcm_ini_parse(text, len, on_key, &r, err);
}

int dcm_host_config_parse(const char *text, size_t len,
			  struct dcm_host_config *cfg, char *err)
{
	return config_parse(text, len, false, cfg, err);
}

int dcm_hostd_config_parse(const char *text, size_t len,
			   struct dcm_host_config *cfg, char *err)
{
	return config_parse(text, len, true, cfg, err);
}

typedef int (*parse_fn)(const char *text, size_t len,
			struct dcm_host_config *cfg, char *err);

static int file_load(const char *path, parse_fn parse,
		     struct dcm_host_config *cfg, char *err)
{
	char why[DCM_ERR_MAX], *text;
	size_t len;
	int ret;

	text = dcm_file_read(path, DCM_CONFIG_FILE_MAX, &len);
	if (!text) {
		ret = -errno;
		snprintf(err, DCM_ERR_MAX, "%.200s: %s", path,
			 ret == -EFBIG ? "larger than 64 KiB" :
					 strerror(errno));
		return ret;
	}
	ret = parse(text, len, cfg, why);
	if (ret)
		snprintf(err, DCM_ERR_MAX, "%.140s: %.170s", path, why);
	free(text);
	return ret;
}

static int config_load(const char *path, parse_fn parse,
		       struct dcm_host_config *cfg, char *err)
{
	int ret = file_load(path, parse, cfg, err);

	if (ret || !cfg->donors_file[0])
		return ret;
	ret = file_load(cfg->donors_file, dcm_host_donors_parse, cfg, err);
	return ret == -ENOENT ? 0 : ret;
}

int dcm_host_config_load(const char *path, struct dcm_host_config *cfg,
			 char *err)
{
	return config_load(path, dcm_host_config_parse, cfg, err);
}

int dcm_hostd_config_load(const char *path, struct dcm_host_config *cfg,
			  char *err)
{
	return config_load(path, dcm_hostd_config_parse, cfg, err);
}

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * config.c - libdcm's configuration, and dcm-hostd's
 *
 * inih splits lines; a table has the allowed values of every key. inih cuts
 * lines of more than 200 bytes and takes an indented line for more of the value
 * above it; both would turn a typing error into another configuration, so such
 * lines are refused before inih sees them. The first error found is reported.
 *
 * The file is 0600 and written by dcmctl run, but a VM's owner may write one:
 * everything in it is bounded, and checked before it is used.
 *
 * No state, no locks.
 */
#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config.h"

enum kind {
	KIND_SIZE,
	KIND_COUNT,
	KIND_NAME,
	KIND_TEXT,
	KIND_CHOICE,
	KIND_BOOL,
	KIND_TIME,
};

struct option {
	const char *section;
	const char *key;
	enum kind kind;
	size_t offset;
	uint64_t min;	/* text: room */
	uint64_t max;
	const char *choices;	/* "zero|one|two" */
};

#define AT(field) offsetof(struct dcm_host_config, field)
#define ROOM(field) sizeof(((struct dcm_host_config *)0)->field)

static const struct option options[] = {
	{ "vm", "name", KIND_NAME, AT(name), 0, ROOM(name), NULL },
	{ "vm", "budget", KIND_SIZE, AT(budget), 1 << 20, 1ull << 44, NULL },
	{ "vm", "size", KIND_SIZE, AT(size), 1 << 20, 1ull << 44, NULL },
	{ "vm", "threshold", KIND_SIZE, AT(threshold), 4096, 1ull << 44, NULL },
	{ "vm", "mode", KIND_CHOICE, AT(mode), 0, 0, "qemu|program" },
	{ "vm", "lanes", KIND_COUNT, AT(lanes), 1, 64, NULL },
	{ "vm", "on-loss", KIND_CHOICE, AT(on_loss), 0, 0, "pause|sigbus" },
	{ "vm", "extent", KIND_SIZE, AT(extent), 0, 1ull << 40, NULL },
	{ "vm", "data-encryption", KIND_BOOL, AT(data_encryption), 0, 0, NULL },
	{ "vm", "transport", KIND_CHOICE, AT(transport), 0, 0,
	  "auto|tcp|verbs" },
	{ "host", "data-encryption", KIND_BOOL, AT(data_encryption), 0, 0,
	  NULL },
	{ "host", "transport", KIND_CHOICE, AT(transport), 0, 0,
	  "auto|tcp|verbs" },
	{ "vm", "patience", KIND_TIME, AT(patience_ms), 1000, 86400000, NULL },
	{ "host", "patience", KIND_TIME, AT(patience_ms), 1000, 86400000,
	  NULL },
	{ "vm", "donors", KIND_TEXT, AT(donors_file), 0, ROOM(donors_file),
	  NULL },
	{ "host", "donors", KIND_TEXT, AT(donors_file), 0, ROOM(donors_file),
	  NULL },
	{ "key", "tenant", KIND_TEXT, AT(tenant), 0, ROOM(tenant), NULL },
	{ "key", "file", KIND_TEXT, AT(key_file), 0, ROOM(key_file), NULL },
};

#define NR_OPTIONS (sizeof(options) / sizeof(options[0]))

struct reader {
	struct dcm_host_config *cfg;
	char *err;
	bool hostd; /* the file is dcm-hostd's */
	bool more; /* a file of donors only, read after the configuration */
	uint32_t before;
	bool seen[NR_OPTIONS];
	bool failed;
};

static int count_parse(const char *s, uint64_t *v)
{
	uint64_t n = 0;

	if (!*s)
		return -EINVAL;
	for (; *s >= '0' && *s <= '9'; s++)
		if (__builtin_mul_overflow(n, 10, &n) ||
		    __builtin_add_overflow(n, (uint64_t)(*s - '0'), &n))
			return -EINVAL;
	*v = n;
	return *s ? -EINVAL : 0;
}

/* "500ms", "60s", "2min" */
static int time_parse(const char *s, uint64_t *ms)
{
	size_t digits = strspn(s, "0123456789");
	const char *unit = s + digits;
	char num[24];

	if (digits >= sizeof(num))
		return -EINVAL;
	memcpy(num, s, digits);
	num[digits] = 0;
	if (count_parse(num, ms))
		return -EINVAL;
	return __builtin_mul_overflow(*ms,
				      !strcmp(unit, "ms")  ? 1u :
				      !strcmp(unit, "s")   ? 1000u :
				      !strcmp(unit, "min") ? 60000u :
							     0u,
				      ms) ?
		       -EINVAL :
		       0;
}

int dcm_size_parse(const char *s, uint64_t *bytes)
{
	size_t len = strlen(s);
	unsigned int shift = 0;
	char num[24];

	if (!len || len >= sizeof(num))
		return -EINVAL;
	memcpy(num, s, len + 1);
	switch (num[len - 1]) {
	case 'K':
	case 'k':
		shift = 10;
		break;
	case 'M':
	case 'm':
		shift = 20;
		break;
	case 'G':
	case 'g':
		shift = 30;
		break;
	case 'T':
	case 't':
		shift = 40;
		break;
	}
	if (shift)
		num[len - 1] = 0;
	if (count_parse(num, bytes) || *bytes << shift >> shift != *bytes)
		return -EINVAL;
	*bytes <<= shift;
	return 0;
}

bool dcm_name_valid(const char *s)
{
	size_t i;

	for (i = 0; s[i]; i++)
		if (!strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-",
			    s[i]))
			return false;
	/* it is used as a file name */
	return i && i <= DCM_NAME_MAX && s[0] != '.' && s[0] != '-';
}

static bool bool_parse(const char *s, bool *v)
{
	static const char *const words[] = { "no",    "yes", "off", "on",
					     "false", "true", "0",  "1" };
	unsigned int i;

	for (i = 0; i < 8; i++)
		if (!strcmp(s, words[i])) {
			*v = i & 1;
			return true;
		}
	return false;
}

#define FAIL(r, ...) \
	(snprintf((r)->err, DCM_ERR_MAX, __VA_ARGS__), (r)->failed = true, 0)

static int option_set(struct reader *r, const struct option *o,
		      const char *value)
{
	void *field = (char *)r->cfg + o->offset;
	uint64_t v;

	switch (o->kind) {
	case KIND_SIZE:
		if (dcm_size_parse(value, &v) || v < o->min || v > o->max)
			return FAIL(r, "%s: not a size from %llu to %llu bytes",
				    o->key, (unsigned long long)o->min,
				    (unsigned long long)o->max);
		memcpy(field, &v, sizeof(v));
		return 1;
	case KIND_TIME:
		if (time_parse(value, &v) || v < o->min || v > o->max)
			return FAIL(r,
				    "%s: not a time from 1s to 1440min, such as 60s",
				    o->key);
		memcpy(field, &v, sizeof(v));
		return 1;
	case KIND_COUNT:
		if (count_parse(value, &v) || v < o->min || v > o->max)
			return FAIL(r, "%s: not a number from %llu to %llu",
				    o->key, (unsigned long long)o->min,
				    (unsigned long long)o->max);
		*(uint32_t *)field = (uint32_t)v;
		return 1;
	case KIND_NAME:
		if (!dcm_name_valid(value))
			return FAIL(r,
				    "%s: 1 to 63 letters, digits, . _ - please",
				    o->key);
		strcpy(field, value);
		return 1;
	case KIND_TEXT:
		if (!*value || strlen(value) >= o->max)
			return FAIL(r, "%s: must be 1 to %llu bytes", o->key,
				    (unsigned long long)o->max - 1);
		strcpy(field, value);
		return 1;
	case KIND_BOOL:
		if (!bool_parse(value, field))
			return FAIL(r, "%s: must be yes or no", o->key);
		return 1;
	case KIND_CHOICE: {
		const char *word = o->choices;
		unsigned int n;

		for (n = 0;; n++, word++) {
			size_t room = strcspn(word, "|");

			if (strlen(value) == room &&
			    !memcmp(value, word, room)) {
				*(unsigned int *)field = n;
				return 1;
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
	uint64_t port;

	if (strlen(s) > DCM_ADDRESS_MAX)
		return false;
	/* sun_path has 108 bytes */
	if (!strncmp(s, "unix:", 5))
		return s[5] == '/' && strlen(s + 5) < 108;
	if (strncmp(s, "tcp:", 4))
		return false;
	colon = strrchr(s + 4, ':');
	return colon && colon > s + 4 && !count_parse(colon + 1, &port) &&
	       port > 0 && port < 65536;
}

static int donor_set(struct reader *r, const char *name, const char *key,
		     const char *value)
{
	struct dcm_host_config *cfg = r->cfg;
	struct dcm_host_donor *d;
	uint32_t i;
	bool drain;

	if (!dcm_name_valid(name))
		return FAIL(r,
			    "[donor NAME]: 1 to 63 letters, digits, . _ - please");
	/* the donor's status address: for dcmctl, in the same file */
	if (!strcmp(key, "status"))
		return strlen(value) <= DCM_ADDRESS_MAX ?
			       1 :
		       FAIL(r, "status: must be HOST:PORT");
	for (i = 0; i < cfg->nr_donors; i++)
		if (!strcmp(cfg->donor[i].name, name))
			break;
	if (r->more && i < r->before)
		return 1;
	if (!strcmp(key, "drain")) {
		if (i == cfg->nr_donors)
			return FAIL(r, "drain: address= of that donor first");
		if (!bool_parse(value, &drain))
			return FAIL(r, "drain: must be yes or no");
		cfg->drained &= ~(1ull << i);
		cfg->drained |= (uint64_t)drain << i;
		return 1;
	}
	if (!strcmp(key, "group")) {
		if (i == cfg->nr_donors)
			return FAIL(r, "group: address= of that donor first");
		if (!dcm_name_valid(value))
			return FAIL(r,
				    "group: 1 to 63 letters, digits, . _ - please");
		strcpy(cfg->group[i], value);
		return 1;
	}
	if (strcmp(key, "address"))
		return FAIL(r, "unknown key '%.60s' in [donor]", key);
	if (!dcm_address_valid(value))
		return FAIL(r, "address: must be tcp:HOST:PORT or unix:/path");
	if (i < cfg->nr_donors)
		return FAIL(r, "a second address for donor %s", name);
	if (cfg->nr_donors == DCM_CONFIG_DONORS_MAX)
		return FAIL(r, "more than %u donors", DCM_CONFIG_DONORS_MAX);
	d = &cfg->donor[cfg->nr_donors++];
	strcpy(d->name, name);
	strcpy(d->address, value);
	return 1;
}

static int tunable_set(struct reader *r, const char *key, const char *value)
{
	struct dcm_host_config *cfg = r->cfg;
	struct dcm_host_tunable *t;
	uint64_t v;
	uint32_t i;
	bool b;

	if (!*key || strlen(key) >= sizeof(t->name))
		return FAIL(r, "unknown tunable '%.60s'", key);
	if (dcm_size_parse(value, &v)) {
		if (!bool_parse(value, &b))
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
	return 1;
}

static int mount_set(struct reader *r, const char *value)
{
	struct dcm_host_config *cfg = r->cfg;

	if (value[0] != '/' || strlen(value) > DCM_CONFIG_LINE_MAX)
		return FAIL(r, "mount: must be a path that begins with /");
	if (cfg->nr_mounts == DCM_CONFIG_MOUNTS_MAX)
		return FAIL(r, "more than %u mounts", DCM_CONFIG_MOUNTS_MAX);
	strcpy(cfg->mount[cfg->nr_mounts++], value);
	return 1;
}

static int on_key(void *arg, const char *section, const char *key,
		  const char *value)
{
	struct reader *r = arg;
	size_t i;

	if (r->failed)
		return 1;	/* only the first error is reported */
	if (!strncmp(section, "donor ", 6))
		return donor_set(r, section + 6 + strspn(section + 6, " "), key,
				 value);
	if (r->more)
		return FAIL(r, "only [donor NAME] sections are for this file");
	if (!strcmp(section, "tunables"))
		return tunable_set(r, key, value);
	if (r->hostd && !strcmp(section, "host") && !strcmp(key, "mount"))
		return mount_set(r, value);
	for (i = 0; i < NR_OPTIONS; i++) {
		if (!strcmp(section, r->hostd ? "vm" : "host"))
			break;
		if (strcmp(options[i].section, section) ||
		    strcmp(options[i].key, key))
			continue;
		if (r->seen[i])
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

/* Find lines that inih would misread silently. 0 or the line's number. */
static int lines_check(const char *text, size_t len, const char **why)
{
	const char *end = text + len, *eol;
	int line = 0;

	for (; text < end; text = eol + 1) {
		const char *p;
		size_t n;

		line++;
		eol = memchr(text, '\n', (size_t)(end - text));
		if (!eol)
			eol = end;
		*why = "longer than 190 bytes";
		if ((size_t)(eol - text) > DCM_CONFIG_LINE_MAX)
			return line;
		*why = "has a byte that is not text";
		for (p = text; p < eol; p++)
			if ((unsigned char)*p < ' ' && *p != '\t' && *p != '\r')
				return line;
		*why = "begins with white space";
		if ((*text == ' ' || *text == '\t') &&
		    text + strspn(text, " \t\r") < eol)
			return line;
		/* inih skips such a line: the first error must be reported */
		*why = "neither [section] nor key = value";
		n = (size_t)(eol - text);
		if (n && *text == '[' ? !memchr(text, ']', n) :
		    n && !strchr(";#\r", *text) &&
						!memchr(text, '=', n) &&
						!memchr(text, ':', n))
			return line;
	}
	return 0;
}

static int config_check(const struct dcm_host_config *c, bool hostd, char *err)
{
	if (!hostd && !c->name[0])
		snprintf(err, DCM_ERR_MAX, "[vm] name= is missing");
	else if (!hostd && !c->budget)
		snprintf(err, DCM_ERR_MAX, "[vm] budget= is missing");
	else if (c->extent && (c->extent < DCM_WIRE_SLAB_MIN ||
			       (c->extent & (c->extent - 1))))
		snprintf(err, DCM_ERR_MAX,
			 "[vm] extent=: must be a power of two of 2M or more");
	else if (c->transport == DCM_TRANSPORT_VERBS && c->data_encryption)
		snprintf(err, DCM_ERR_MAX,
			 "[%s] transport = verbs: RDMA is not encrypted; data-encryption = no must say that this is wanted",
			 hostd ? "host" : "vm");
	else if (!c->nr_donors && !c->donors_file[0])
		snprintf(err, DCM_ERR_MAX, "no [donor NAME] section");
	else if (!c->key_file[0])
		snprintf(err, DCM_ERR_MAX, "[key] file= is missing");
	else
		return 0;
	return -EINVAL;
}

static int text_parse(const char *text, size_t len, struct reader *r)
{
	char said[DCM_ERR_MAX], *err = r->err;
	const char *why;
	int line;

	err[0] = 0;
	line = lines_check(text, len, &why);
	if (line) {
		snprintf(err, DCM_ERR_MAX, "line %d: %s", line, why);
		return -EINVAL;
	}
	line = ini_parse_string(text, on_key, r);
	if (line) {
		if (!r->failed)
			snprintf(err, DCM_ERR_MAX,
				 "neither [section] nor key = value");
		memcpy(said, err, sizeof(said));
		snprintf(err, DCM_ERR_MAX, "line %d: %.280s", line, said);
		return -EINVAL;
	}
	return 0;
}

static int config_parse(const char *text, size_t len, bool hostd,
			struct dcm_host_config *cfg, char *err)
{
	struct reader r = { .cfg = cfg, .err = err, .hostd = hostd };

	memset(cfg, 0, sizeof(*cfg));
	cfg->size = 64ull << 30;
	cfg->threshold = 16 << 20;
	cfg->lanes = 2;
	cfg->data_encryption = true;
	cfg->patience_ms = 60000;
	return text_parse(text, len, &r) ? -EINVAL :
					   config_check(cfg, hostd, err);
}

int dcm_host_donors_parse(const char *text, size_t len,
			  struct dcm_host_config *cfg, char *err)
{
	struct reader r = {
		.cfg = cfg, .err = err, .more = true, .before = cfg->nr_donors
	};

	return text_parse(text, len, &r);
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
	char why[DCM_ERR_MAX], *buf;
	size_t len = 0;
	ssize_t n = 0;
	int fd, ret = 0;

	buf = malloc(DCM_CONFIG_FILE_MAX + 1);
	if (!buf) {
		snprintf(err, DCM_ERR_MAX, "no memory");
		return -ENOMEM;
	}
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	while (fd >= 0 && len <= DCM_CONFIG_FILE_MAX) {
		n = read(fd, buf + len, DCM_CONFIG_FILE_MAX + 1 - len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		len += (size_t)n;
	}
	if (fd < 0 || n < 0) {
		ret = -errno;
		snprintf(err, DCM_ERR_MAX, "%.200s: %s", path, strerror(errno));
	} else if (len > DCM_CONFIG_FILE_MAX) {
		ret = -EFBIG;
		snprintf(err, DCM_ERR_MAX, "%.200s: larger than 64 KiB", path);
	} else {
		buf[len] = 0;
		ret = parse(buf, len, cfg, why);
		if (ret)
			snprintf(err, DCM_ERR_MAX, "%.150s: %.160s", path, why);
	}
	if (fd >= 0)
		close(fd);
	free(buf);
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

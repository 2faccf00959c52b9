/* SPDX-License-Identifier: GPL-2.0-or-later */
/* config.h - dcm-donord's options, and reading them */
#ifndef DCM_CONFIG_H
#define DCM_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../kvm-dcm/lib/keyfile.h"
#include "options.h"

#define DCM_CONFIG_LISTEN_MAX	8
#define DCM_CONFIG_PATH_MAX	256

/* [donor] rdma */
enum dcm_rdma_want {
	DCM_RDMA_NO,
	DCM_RDMA_AUTO,	/* if there is a device and data may be unencrypted */
	DCM_RDMA_YES,	/* without RDMA the donor does not start */
};

/* A size in bytes, or a share of the host's memory when @percent is set. */
struct dcm_size {
	uint64_t bytes;
	uint32_t percent;
};

struct dcm_tenant_conf {
	char name[DCM_TENANT_MAX + 1];
	bool has_bytes;
	bool has_connections;
	bool has_workers;
	bool has_patience_ms;
	struct dcm_size bytes;
	uint32_t connections;
	uint32_t workers;
	uint32_t patience_ms;
};

struct dcm_config {
	/* [donor] */
	char listen[DCM_CONFIG_LISTEN_MAX][DCM_CONFIG_PATH_MAX];
	uint32_t nr_listen;
	char unix_path[DCM_CONFIG_PATH_MAX];
	uint32_t unix_mode;
	char keys[DCM_CONFIG_PATH_MAX];
	struct dcm_size capacity;
	struct dcm_size head_room;
	uint64_t slab_bytes;
	uint32_t spare_slabs;
	uint64_t huge_bytes;	/* 0: ordinary pages; 1: the default size */
	uint32_t threads;
	uint32_t poll_us;
	bool data_encryption;
	uint32_t rdma;		/* enum dcm_rdma_want */
	char rdma_listen[DCM_CONFIG_PATH_MAX];
	uint32_t drain_ms;
	uint64_t fd_slabs;	/* set by fd_limit.c; 0: no limit */
	/* [limits] */
	uint32_t connections;
	uint32_t handshakes;
	uint32_t handshake_ms;
	uint32_t sessions;
	struct dcm_size tenant_bytes;
	uint32_t tenant_connections;
	uint32_t patience_ms;	/* with a silent host */
	/* [eviction] */
	uint32_t evict_extra;
	uint32_t activity_ms;
	uint32_t evict_ms;
	/* [gc] */
	uint32_t gc_workers;
	uint32_t gc_tenant_workers;	/* 0: a fair share */
	uint32_t gc_threads;
	struct dcm_size gc_memory;
	char gc_worker[DCM_CONFIG_PATH_MAX];
	/* [http] */
	char http[DCM_CONFIG_PATH_MAX];
	bool http_allow_remote;
	/* [tenant NAME] */
	struct dcm_tenant_conf *tenants;
	uint32_t nr_tenants;
};

/**
 * struct dcm_option - a line of DCM_OPTIONS(), which says more of the members
 * @at: where struct dcm_config, or struct dcm_tenant_conf, has the value
 * @bytes: of the value
 * @has: where the latter has whether the value was given
 * @restart: the running donor keeps the value
 */
struct dcm_option {
	const char *section;
	const char *key;
	unsigned int kind;
	size_t at;
	size_t bytes;
	size_t has;
	uint64_t min;
	uint64_t max;
	const char *def;
	const char *arg;
	const char *flag;
	bool restart;
	const char *help;
};

#define X(...) +1
enum { DCM_OPTIONS_NR = 0 DCM_OPTIONS(X) };
#undef X

extern const struct dcm_option dcm_options[DCM_OPTIONS_NR];

/* With the defaults of DCM_OPTIONS(). */
void dcm_config_init(struct dcm_config *cfg);
void dcm_config_free(struct dcm_config *cfg);

/**
 * dcm_config_parse() - read one file's text into @cfg
 * @cfg: initialised; later values win, "listen" adds
 * @name: of the file, for errors
 * @text: not terminated
 * @len: length of @text
 * @err: one line on failure
 * @err_len: size of @err
 *
 * Return: 0, or -1 with @err.
 */
int dcm_config_parse(struct dcm_config *cfg, const char *name, const char *text,
		     size_t len, char *err, size_t err_len);

/* Read @path and then @path.d/ *.conf in the order of their names. */
int dcm_config_load(struct dcm_config *cfg, const char *path, char *err,
		    size_t err_len);

/* Set one value as a file would. */
int dcm_config_set(struct dcm_config *cfg, const char *section, const char *key,
		   const char *value, char *err, size_t err_len);

/* Check options against each other. */
int dcm_config_check(const struct dcm_config *cfg, char *err, size_t err_len);

const struct dcm_tenant_conf *dcm_config_tenant(const struct dcm_config *cfg,
						const char *name);

/* @s as bytes on a host with @total bytes of memory. */
uint64_t dcm_size_bytes(const struct dcm_size *s, uint64_t total);

#endif /* DCM_CONFIG_H */

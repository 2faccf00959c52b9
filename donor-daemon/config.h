/* SPDX-License-Identifier: GPL-2.0-or-later */
/* config.h - dcm-donord's options, and reading them */
#ifndef DCM_CONFIG_H
#define DCM_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

#include "../kvm-dcm/lib/dcm_context.h"
#include "../kvm-dcm/lib/keyfile.h"
#include "options.h"

#define DCM_CONFIG_LISTEN_MAX	8
#define DCM_CONFIG_PATH_MAX	256
#define DCM_POLL_AUTO		(~0u) /* [donor] poll-us */

/* [donor] rdma */
enum dcm_rdma_want {
	DCM_RDMA_NO,
	DCM_RDMA_AUTO,	/* if there is a device and data may be unencrypted */
	DCM_RDMA_YES,	/* without RDMA the donor does not start */
};

/* [donor] medium: what slabs are made of */
enum dcm_medium {
	DCM_MEDIUM_MEMORY,
	DCM_MEDIUM_FILE,
};

/* A size in bytes, or a share of the host's memory when @percent is set. */
struct dcm_size {
	u64 bytes;
	u32 percent;
};

struct dcm_tenant_conf {
	char name[DCM_TENANT_MAX + 1];
	bool has_bytes;
	bool has_connections;
	bool has_workers;
	bool has_patience_ms;
	struct dcm_size bytes;
	u32 connections;
	u32 workers;
	u32 patience_ms;
};

struct dcm_config {
	/* [donor] */
	char listen[DCM_CONFIG_LISTEN_MAX][DCM_CONFIG_PATH_MAX];
	u32 nr_listen;
	char unix_path[DCM_CONFIG_PATH_MAX];
	u32 unix_mode;
	char keys[DCM_CONFIG_PATH_MAX];
	u32 medium;		/* enum dcm_medium */
	char path[DCM_CONFIG_PATH_MAX];
	struct dcm_size capacity;
	struct dcm_size head_room;
	u64 slab_bytes;
	u32 spare_slabs;
	u64 huge_bytes;	/* 0: ordinary pages; 1: the default size */
	u32 threads;
	u32 poll_us;		/* DCM_POLL_AUTO: as the medium wants */
	bool data_encryption;
	u32 rdma;		/* enum dcm_rdma_want */
	char rdma_listen[DCM_CONFIG_PATH_MAX];
	u32 drain_ms;
	u64 fd_slabs;	/* set by fd_limit.c; 0: no limit */
	/* [limits] */
	u32 connections;
	u32 handshakes;
	u32 handshake_ms;
	u32 sessions;
	struct dcm_size tenant_bytes;
	u32 tenant_connections;
	u32 patience_ms;	/* with a silent host */
	/* [eviction] */
	u32 evict_extra;
	u32 activity_ms;
	u32 evict_ms;
	/* [gc] */
	u32 gc_workers;
	u32 gc_tenant_workers;	/* 0: a fair share */
	u32 gc_threads;
	struct dcm_size gc_memory;
	char gc_worker[DCM_CONFIG_PATH_MAX];
	/* [http] */
	char http[DCM_CONFIG_PATH_MAX];
	bool http_allow_remote;
	/* [tenant NAME] */
	struct dcm_tenant_conf *tenants;
	u32 nr_tenants;
};

/**
 * struct dcm_option - a line of DCM_OPTIONS(), which says more of the members
 * @at: offset of the value in struct dcm_config, or struct dcm_tenant_conf
 * @bytes: size of the value
 * @has: offset in struct dcm_tenant_conf of the flag that the value was given
 * @restart: a reload does not change the value: the running donor keeps it
 */
struct dcm_option {
	const char *section;
	const char *key;
	unsigned int kind;
	size_t at;
	size_t bytes;
	size_t has;
	u64 min;
	u64 max;
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

/* Set all options to the defaults of DCM_OPTIONS(). */
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
 * Return: 0, or -EINVAL with @err.
 */
int dcm_config_parse(struct dcm_config *cfg, const char *name, const char *text,
		     size_t len, char *err, size_t err_len);

/*
 * Read @path and then @path.d/ *.conf in the order of their names. 0, or a
 * negative errno with @err.
 */
int dcm_config_load(struct dcm_config *cfg, const char *path, char *err,
		    size_t err_len);

/* Set one value as a file would. 0, or -EINVAL with @err. */
int dcm_config_set(struct dcm_config *cfg, const char *section, const char *key,
		   const char *value, char *err, size_t err_len);

/* Check options against each other. */
int dcm_config_check(const struct dcm_config *cfg, char *err, size_t err_len);

const struct dcm_tenant_conf *dcm_config_tenant(const struct dcm_config *cfg,
						const char *name);

/* @s as bytes on a host with @total bytes of memory. */
u64 dcm_size_bytes(const struct dcm_size *s, u64 total);

#endif /* DCM_CONFIG_H */

/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * config.h - libdcm's configuration: an INI file named by $DCM_CONFIG
 *
 *	[vm]				; dcm-hostd's has [host] instead
 *	name = web1
 *	budget = 256M
 *	[donor NAME]			; one section each, up to 64
 *	address = tcp:HOST:PORT		; or unix:/path
 *	[key]
 *	file = /etc/kvm-dcm/lab.key
 *	[tunables]
 *	epsilon = 100			; names and values are checked by the core
 *
 * options.h has all keys; configs/host.conf and configs/hostd.conf explain them.
 * lib/ini.h has the lines, lib/value.h the sizes and times. Unknown sections
 * and keys, keys given twice and values out of range are errors that name the
 * line.
 */
#ifndef DCM_CLIENT_CONFIG_H
#define DCM_CLIENT_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

#include "../lib/dcm_context.h"
#include "../lib/ini.h"
#include "../lib/keyfile.h"
#include "../lib/value.h"
#include "redundancy.h"

#define DCM_CONFIG_FILE_MAX 65536u
#define DCM_CONFIG_DONORS_MAX 64u
#define DCM_CONFIG_TUNABLES_MAX 64u
#define DCM_CONFIG_MOUNTS_MAX 8u
#define DCM_ADDRESS_MAX 159u

enum dcm_host_mode {
	DCM_MODE_QEMU,
	DCM_MODE_PROGRAM,
};

enum dcm_host_on_loss {
	DCM_ON_LOSS_PAUSE,
	DCM_ON_LOSS_SIGBUS,
};

enum dcm_host_transport {
	DCM_TRANSPORT_AUTO,
	DCM_TRANSPORT_TCP,
	DCM_TRANSPORT_VERBS,
};

/* @group: "": in none */
struct dcm_host_donor {
	char name[DCM_NAME_MAX + 1];
	char address[DCM_ADDRESS_MAX + 1];
	char group[DCM_NAME_MAX + 1];
};

struct dcm_host_tunable {
	char name[48];
	u64 value;
};

/**
 * struct dcm_host_config - a whole configuration, with defaults
 *
 * Has no pointers and can be copied. A file without name= leaves @name empty:
 * dcm_pager_create() makes one.
 */
struct dcm_host_config {
	char name[DCM_NAME_MAX + 1];
	u64 budget;
	u64 size;
	u64 threshold;
	enum dcm_host_mode mode;
	u32 lanes;
	enum dcm_host_on_loss on_loss;
	enum dcm_host_redundancy redundancy;
	u64 rebuild_rate;
	u64 disk_lag;
	u32 scatter;
	u64 cold_after_ms;
	u64 extent;
	bool data_encryption;
	bool seal;
	u64 patience_ms;
	enum dcm_host_transport transport;
	u32 nr_donors;
	struct dcm_host_donor donor[DCM_CONFIG_DONORS_MAX];
	u64 drained; /* donors not to be used, a bit each */
	char donors_file[DCM_INI_LINE_MAX + 1];
	char tenant[DCM_TENANT_MAX + 1];
	char key_file[DCM_INI_LINE_MAX + 1];
	u32 nr_mounts; /* dcm-hostd's only */
	char mount[DCM_CONFIG_MOUNTS_MAX][DCM_INI_LINE_MAX + 1];
	u32 nr_tunables;
	struct dcm_host_tunable tunable[DCM_CONFIG_TUNABLES_MAX];
};

/**
 * dcm_host_config_parse() - read a configuration from memory
 * @text: needs no NUL at the end
 * @len: its bytes
 * @cfg: filled in; undefined on failure
 * @err: %DCM_ERR_MAX bytes: "line N: what is wrong"
 *
 * Return: 0 or -EINVAL.
 */
int dcm_host_config_parse(const char *text, size_t len,
			  struct dcm_host_config *cfg, char *err);

/* The same from a file; @err names it. 0 or a negative errno. */
int dcm_host_config_load(const char *path, struct dcm_host_config *cfg,
			 char *err);

/* Add donors from a file that has nothing else; those in @cfg win. */
int dcm_host_donors_parse(const char *text, size_t len,
			  struct dcm_host_config *cfg, char *err);

/* The same two for dcm-hostd's file: a VM's fields keep their defaults. */
int dcm_hostd_config_parse(const char *text, size_t len,
			   struct dcm_host_config *cfg, char *err);
int dcm_hostd_config_load(const char *path, struct dcm_host_config *cfg,
			  char *err);

/* Is @s "tcp:HOST:PORT" or "unix:/path"? */
bool dcm_address_valid(const char *s);

#endif /* DCM_CLIENT_CONFIG_H */

/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * config.h - libdcm's configuration: an INI file named by $DCM_CONFIG
 *
 *	[vm]
 *	name = web1			; status socket; 1 to 63 of [A-Za-z0-9._-]
 *	budget = 256M			; direct memory
 *	size = 64G			; address space that can be paged
 *	threshold = 16M			; program mode: smallest mapping to page
 *	mode = qemu			; or program
 *	lanes = 2			; fault threads
 *	on-loss = pause			; or sigbus
 *	extent = 0			; slab size; 0: what the donors lend
 *	data-encryption = yes		; no: page contents go in plain bytes, if
 *					; the donor allows it
 *	patience = 60s			; with a donor that is silent
 *	donors = /run/x.conf		; more [donor NAME] sections, if the file
 *					; exists; the first of a name counts
 *	transport = auto		; tcp, or verbs: to donors that are not on
 *					; this host; auto: verbs where both ends
 *					; have it and data-encryption = no
 *	[donor NAME]			; one section each, up to 64
 *	address = tcp:HOST:PORT		; or unix:/path
 *	drain = no			; yes: it is not to be used
 *	status = HOST:PORT		; dcmctl's
 *	[key]
 *	tenant = lab			; may be left out if the file has one key
 *	file = /etc/kvm-dcm/lab.key
 *	[tunables]
 *	epsilon = 100			; names and values are checked by the core
 *
 * dcm-hostd's has the same sections without [vm], and
 *
 *	[host]
 *	mount = /mnt/dcm		; a dcmfs to serve; up to 8 such lines. None:
 *					; all dcmfs mounts
 *
 * lib/ini.h has the lines, lib/value.h the sizes and times. Unknown sections
 * and keys, keys given twice and values out of range are errors that name the
 * line.
 */
#ifndef DCM_CLIENT_CONFIG_H
#define DCM_CLIENT_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../lib/ini.h"
#include "../lib/keyfile.h"
#include "../lib/value.h"

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

struct dcm_host_donor {
	char name[DCM_NAME_MAX + 1];
	char address[DCM_ADDRESS_MAX + 1];
};

struct dcm_host_tunable {
	char name[48];
	uint64_t value;
};

/**
 * struct dcm_host_config - a whole configuration, with defaults
 *
 * Has no pointers and can be copied.
 */
struct dcm_host_config {
	char name[DCM_NAME_MAX + 1];
	uint64_t budget;
	uint64_t size;
	uint64_t threshold;
	enum dcm_host_mode mode;
	uint32_t lanes;
	enum dcm_host_on_loss on_loss;
	uint64_t extent;
	bool data_encryption;
	uint64_t patience_ms;
	enum dcm_host_transport transport;
	uint32_t nr_donors;
	struct dcm_host_donor donor[DCM_CONFIG_DONORS_MAX];
	uint64_t drained; /* donors not to be used, a bit each */
	char group[DCM_CONFIG_DONORS_MAX][DCM_NAME_MAX + 1]; /* "": in none */
	char donors_file[DCM_INI_LINE_MAX + 1];
	char tenant[DCM_TENANT_MAX + 1];
	char key_file[DCM_INI_LINE_MAX + 1];
	uint32_t nr_mounts; /* dcm-hostd's only */
	char mount[DCM_CONFIG_MOUNTS_MAX][DCM_INI_LINE_MAX + 1];
	uint32_t nr_tunables;
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

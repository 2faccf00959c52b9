/* SPDX-License-Identifier: GPL-2.0-or-later */
/* redundancy.h - on which donors each page of a VM is */
#ifndef DCM_CLIENT_REDUNDANCY_H
#define DCM_CLIENT_REDUNDANCY_H

#include "../lib/dcm_context.h"

enum dcm_host_redundancy {
	DCM_REDUNDANCY_NONE,
	DCM_REDUNDANCY_REPLICA_2,
	DCM_REDUNDANCY_REPLICA_3,
	DCM_REDUNDANCY_DISK,
	DCM_REDUNDANCY_DISK_LAZY,
	DCM_REDUNDANCY_REPLICA_2_DISK,
	DCM_REDUNDANCY_NR,
};

/**
 * struct dcm_redundancy - on which donors each page is
 * @name: the value in configuration files
 * @copies: how many donors have each page
 * @files: how many of these donors lend files
 * @lazy: donors of files get pages later than the others, up to disk-lag bytes behind
 */
struct dcm_redundancy {
	const char *name;
	u32 copies;
	u32 files;
	bool lazy;
};

extern const struct dcm_redundancy dcm_redundancies[DCM_REDUNDANCY_NR];

/* How many pages may lag (the core's lag_pages), with disk-lag = @bytes. */
u64 dcm_redundancy_lag(enum dcm_host_redundancy redundancy, u64 bytes);

/* Find redundancy = @value; %DCM_REDUNDANCY_NR: there is no such value. */
enum dcm_host_redundancy dcm_redundancy_find(const char *value);

#endif /* DCM_CLIENT_REDUNDANCY_H */

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * redundancy.c - the values of redundancy =: on which donors each page of a VM is
 *
 * A disk has room for a copy of all memory when other donors have none, and may
 * be the host's own. infiniswap-nsdi17, 4.1, also writes each page to the host's disk,
 * but later: pages not written yet are lost with the remote copy. With disk a page is
 * on both before it leaves this host. disk:lazy works as in the paper, but at most
 * disk-lag bytes are not on the disk yet.
 *
 * No state, no locks.
 */
#include <string.h>

#include "redundancy.h"

const struct dcm_redundancy dcm_redundancies[DCM_REDUNDANCY_NR] = {
	[DCM_REDUNDANCY_NONE] = { "none", 1, 0, false },
	[DCM_REDUNDANCY_REPLICA_2] = { "replica:2", 2, 0, false },
	[DCM_REDUNDANCY_REPLICA_3] = { "replica:3", 3, 0, false },
	[DCM_REDUNDANCY_DISK] = { "disk", 2, 1, false },
	[DCM_REDUNDANCY_DISK_LAZY] = { "disk:lazy", 2, 1, true },
	[DCM_REDUNDANCY_REPLICA_2_DISK] = { "replica:2+disk", 3, 1, false },
};

u64 dcm_redundancy_lag(enum dcm_host_redundancy redundancy, u64 bytes)
{
	return dcm_redundancies[redundancy].lazy ? bytes / 4096 : 0;
}

enum dcm_host_redundancy dcm_redundancy_find(const char *value)
{
	enum dcm_host_redundancy i;

	for (i = 0; i < DCM_REDUNDANCY_NR; i++)
		if (!strcmp(value, dcm_redundancies[i].name))
			break;
	return i;
}

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * redundancy.c - on which donors each page of a VM is: the values, and what they mean
 *
 * A disk has room for a copy of all memory where other donors have none, and may
 * be the host's own. infiniswap-nsdi17, 4.1, writes each page to the host's disk too,
 * but later: what was not written yet is lost with the remote copy. Here a page is
 * on both before it leaves this host.
 *
 * No state, no locks.
 */
#include <string.h>

#include "redundancy.h"

const struct dcm_redundancy dcm_redundancies[DCM_REDUNDANCY_NR] = {
	[DCM_REDUNDANCY_NONE] = { "none", 1, 0 },
	[DCM_REDUNDANCY_REPLICA_2] = { "replica:2", 2, 0 },
	[DCM_REDUNDANCY_REPLICA_3] = { "replica:3", 3, 0 },
	[DCM_REDUNDANCY_DISK] = { "disk", 2, 1 },
	[DCM_REDUNDANCY_REPLICA_2_DISK] = { "replica:2+disk", 3, 1 },
};

enum dcm_host_redundancy dcm_redundancy_find(const char *value)
{
	enum dcm_host_redundancy i;

	for (i = 0; i < DCM_REDUNDANCY_NR; i++)
		if (!strcmp(value, dcm_redundancies[i].name))
			break;
	return i;
}

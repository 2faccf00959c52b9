/* SPDX-License-Identifier: GPL-2.0-or-later */
/* ioctls.h - what the parts of dcmfs_test's ioctls share */
#ifndef DCMFS_IOCTLS_H
#define DCMFS_IOCTLS_H

#include "dcmfs_test.h"

#define SIZE (16u << 20)
#define PAGES (SIZE / PAGE)
/* Slabs of the control plane have ids from here on: no other id is one. */
#define FIRST_ID (1ull << 50)

/* All there are. */
static const unsigned int requests[] = {
	DCMFS_IOC_INFO,	  DCMFS_IOC_BUDGET, DCMFS_IOC_TUNE,
	DCMFS_IOC_ATTACH, DCMFS_IOC_DETACH, DCMFS_IOC_LOST,
	DCMFS_IOC_WANTED, DCMFS_IOC_LINK,   DCMFS_IOC_PAIR,
	DCMFS_IOC_SLAB,	  DCMFS_IOC_NOTE,   DCMFS_IOC_ACTIVITY,
	DCMFS_IOC_FREEZE,	  DCMFS_IOC_SYNC, DCMFS_IOC_HINT,
	DCMFS_IOC_WRITE_COUNT,  DCMFS_IOC_FILL, DCMFS_IOC_FAULTS,
	DCMFS_IOC_KEEP,	       DCMFS_IOC_SEAL,	 DCMFS_IOC_SPREAD,
	DCMFS_IOC_REVERT,
};
#define NR_REQUESTS (sizeof(requests) / sizeof(requests[0]))

/* ATTACH, DETACH or LOST: its argument is a struct dcmfs_slab. */
bool about_slab(unsigned int cmd);

/* For so long, while the mapping of @c's file in @where is used. */
void ioctls_at_random(struct control *c, const char *where, char *map,
		      uint64_t seconds, uint64_t seed);

#endif /* DCMFS_IOCTLS_H */

/* SPDX-License-Identifier: GPL-2.0-or-later */
/* hostmem.h - how much memory the host has, and how much is free */
#ifndef DCM_HOSTMEM_H
#define DCM_HOSTMEM_H

#include "../kvm-dcm/lib/dcm_context.h"

/**
 * struct dcm_hostmem - the tightest limit on this process
 * @total: of the host, or the tightest cgroup limit
 * @free: bytes that can still be taken within it (page cache counts as free, as
 *	the kernel would drop it)
 */
struct dcm_hostmem {
	u64 total;
	u64 free;
};

/**
 * dcm_hostmem_read() - read the current figures
 * @root: "" or, in a test, a directory with proc/ and sys/fs/cgroup/ in it
 * @huge_bytes: 0; else read the pool of huge pages of this size
 *
 * Return: 0; -ENOENT: no huge pages of that size; another negative errno:
 * /proc/meminfo can't be read.
 */
int dcm_hostmem_read(const char *root, u64 huge_bytes, struct dcm_hostmem *hm);

/* Bytes of the host's default huge page; 0 when it has none. */
u64 dcm_hostmem_huge_default(const char *root);

#endif /* DCM_HOSTMEM_H */

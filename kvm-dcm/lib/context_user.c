// SPDX-License-Identifier: GPL-2.0-only
/*
 * context_user.c - vzalloc() and vfree() for user space
 *
 * They don't use malloc(): the process may have an allocator whose memory is paged.
 * And a table of 16 bytes a page must take no memory for pages that the guest has never
 * used.
 */
#include "dcm_context.h"

#include <sys/mman.h>

struct vz_hdr {
	size_t bytes;
};

#define VZ_HDR 4096ul

void *vzalloc(unsigned long bytes)
{
	struct vz_hdr *h;

	if (!bytes || bytes > SIZE_MAX - 2 * VZ_HDR)
		return NULL;
	h = mmap(NULL, bytes + VZ_HDR, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (h == MAP_FAILED)
		return NULL;
	h->bytes = bytes + VZ_HDR;
	return (char *)h + VZ_HDR;
}

void vfree(const void *p)
{
	struct vz_hdr *h;

	if (!p)
		return;
	h = (struct vz_hdr *)((char *)(uintptr_t)p - VZ_HDR);
	munmap(h, h->bytes);
}

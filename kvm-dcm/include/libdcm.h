/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * libdcm.h - memory that is larger than this host's share of it
 *
 * libdcm pages a process's memory to donors by userfaultfd. A pager holds at
 * most its budget in this host's DRAM; the rest is in slabs of donors and
 * comes back on access, for the program's own accesses and the kernel's alike.
 *
 *	char err[256];
 *	struct dcm_pager *p = dcm_pager_open("/etc/kvm-dcm/vm.ini", err,
 *					     sizeof(err));
 *	if (!p) { fputs(err, stderr); exit(1); }
 *	char *m = dcm_pager_map(p, 4ul << 30);
 *	... use m ...
 *	dcm_pager_unmap(p, m, 4ul << 30);
 *	dcm_pager_close(p);
 *
 * Rules. Link with -ldcm. Every function is thread-safe unless it says
 * otherwise, and returns 0 or a negative errno, or %NULL. Addresses and
 * lengths must be multiples of the page size, 4096. Memory under a pager is
 * private to the process: a child after fork() does not have it. Change its
 * mapping by these functions only: munmap(), mremap() and MADV_DONTNEED behind
 * the pager's back lose data (libdcm-preload.so catches them for programs that
 * don't know of libdcm).
 */
#ifndef LIBDCM_H
#define LIBDCM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DCM_API __attribute__((visibility("default")))

struct dcm_pager;
struct dcm_host_config;

/**
 * dcm_pager_open() - make a pager from an INI file
 * @path: configuration; see libdcm.ini(5)
 * @err: receives one line saying what is wrong and what to do
 * @len: size of @err
 *
 * Starts the threads and the connections to donors. Donors that can't be
 * reached yet are tried again for as long as the pager lives.
 */
DCM_API struct dcm_pager *dcm_pager_open(const char *path, char *err,
					 size_t len);

/**
 * dcm_pager_open_sized() - the same, for a program that knows how much it wants
 * @size: most bytes that are ever paged, instead of the file's size=; 0: that
 * @budget: likewise
 */
DCM_API struct dcm_pager *dcm_pager_open_sized(const char *path, uint64_t size,
					       uint64_t budget, char *err,
					       size_t len);

/**
 * dcm_pager_create() - the same from a struct, as kvm-dcm/client/config.h
 * defines it; read during the call only
 */
DCM_API struct dcm_pager *dcm_pager_create(const struct dcm_host_config *cfg,
					   char *err, size_t len);

/**
 * dcm_pager_close() - give everything back
 *
 * Memory from dcm_pager_map() is unmapped; adopted ranges stay mapped and read
 * as zero. Slabs go back to their donors at once. No thread may use paged
 * memory or the pager any more.
 */
DCM_API void dcm_pager_close(struct dcm_pager *p);

/** dcm_pager_map() - new paged memory, all zero; %NULL and errno if none */
DCM_API void *dcm_pager_map(struct dcm_pager *p, size_t bytes);

/**
 * dcm_pager_adopt() - put an existing private anonymous mapping under a pager
 *
 * It must be readable and writable, not huge TLB memory, and hold nothing that
 * is still needed: its content is dropped. -ENOSPC: the pager's size is used
 * up.
 */
DCM_API int dcm_pager_adopt(struct dcm_pager *p, void *addr, size_t bytes);

/**
 * dcm_pager_unmap() - unmap paged memory, all or part of a mapping
 *
 * For adopted ranges dcm_pager_release() is the call that leaves the mapping
 * in place. If it fails memory is as it was.
 */
DCM_API int dcm_pager_unmap(struct dcm_pager *p, void *addr, size_t bytes);

/** dcm_pager_release() - stop paging a range; it stays mapped, reads as zero */
DCM_API int dcm_pager_release(struct dcm_pager *p, void *addr, size_t bytes);

/** dcm_pager_owns() - 1 if any page of the range is paged */
DCM_API int dcm_pager_owns(struct dcm_pager *p, const void *addr, size_t bytes);

/** dcm_pager_discard() - content is not needed any more: it reads as zero */
DCM_API int dcm_pager_discard(struct dcm_pager *p, void *addr, size_t bytes);

/**
 * dcm_pager_fetch() - content will be needed soon: bring it in, in the background
 *
 * Waits for nothing, and promises nothing: pages that were not used for the longest
 * time make room, but those of a quarter of the budget at most; the rest of what was
 * asked for is ignored. Pages come in the order in which they were asked for.
 */
DCM_API int dcm_pager_fetch(struct dcm_pager *p, void *addr, size_t bytes);

/**
 * dcm_pager_pin() - bring pages in and keep them direct until unpinned
 *
 * Pins of one page count up to 63. All pins together may take half of the
 * budget: -ENOMEM beyond.
 */
DCM_API int dcm_pager_pin(struct dcm_pager *p, void *addr, size_t bytes);
DCM_API int dcm_pager_unpin(struct dcm_pager *p, void *addr, size_t bytes);

/**
 * dcm_pager_set_budget() - change the most memory held in this host
 *
 * Takes effect at once for new faults; what is over it leaves soon after.
 * -EINVAL below dcm_pager_min_budget().
 */
DCM_API int dcm_pager_set_budget(struct dcm_pager *p, uint64_t bytes);
DCM_API uint64_t dcm_pager_budget(struct dcm_pager *p);
DCM_API uint64_t dcm_pager_min_budget(struct dcm_pager *p);

/**
 * dcm_pager_extent() - the unit in which memory is on one donor
 *
 * Return: bytes of an extent if one begins at this address, else 0.
 */
DCM_API uint64_t dcm_pager_extent(struct dcm_pager *p, const void *addr);

/** dcm_pager_donors() - how many donors there are */
DCM_API uint32_t dcm_pager_donors(struct dcm_pager *p);

/** dcm_pager_set() - change a tunable; -ENOENT, -ERANGE */
DCM_API int dcm_pager_set(struct dcm_pager *p, const char *name,
			  uint64_t value);

/** dcm_pager_status() - everything that is counted, one JSON object; free() */
DCM_API char *dcm_pager_status(struct dcm_pager *p);

#ifdef __cplusplus
}
#endif

#endif /* LIBDCM_H */

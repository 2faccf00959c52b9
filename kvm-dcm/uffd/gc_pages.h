/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * gc_pages.h - pages of a window, as donors' GC workers need them
 *
 * A range is whole regions, so at least 64 KiB and on one donor each. The GC
 * thread's, but dcm_gc_pages_held().
 */
#ifndef DCM_UFFD_GC_PAGES_H
#define DCM_UFFD_GC_PAGES_H

#include <stdbool.h>
#include <stdint.h>

struct dcm_client;
struct dcm_gc_place_of;
struct dcm_pager;

/* The client of the donors. */
struct dcm_client *dcm_gc_pages_ctl(struct dcm_pager *pg);

/* Most bytes that are ever paged, and those of an extent. */
uint64_t dcm_gc_pages_most(struct dcm_pager *pg, uint64_t *extent);

/**
 * dcm_gc_pages_hold() - accesses to a range wait from now on
 *
 * Those that came before have been answered when it returns. Ranges may
 * overlap; dcm_gc_pages_release() lets all go on.
 */
void dcm_gc_pages_hold(struct dcm_pager *pg, uint64_t va, uint64_t bytes);
void dcm_gc_pages_release(struct dcm_pager *pg);

/**
 * dcm_gc_pages_settle() - a range's donor has all of it
 * @keep: what is here stays, else nothing is
 * @until_ms: on the monotonic clock
 *
 * Return: a virtio-gc status.
 */
uint32_t dcm_gc_pages_settle(struct dcm_pager *pg, uint64_t va, uint64_t bytes,
			     bool keep, uint64_t until_ms);

/* What a runtime knows about a range's use: enum virtio_gc_hint_what. */
void dcm_gc_pages_hint(struct dcm_pager *pg, uint64_t va, uint64_t bytes,
		       uint32_t what);

/* Where the byte at @va is kept; false: nowhere, or it is moving. */
bool dcm_gc_pages_place(struct dcm_pager *pg, uint64_t va,
			struct dcm_gc_place_of *place);

#endif /* DCM_UFFD_GC_PAGES_H */

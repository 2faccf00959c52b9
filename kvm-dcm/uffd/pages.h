/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * pages.h - map, unmap and collect some pages of a block
 */
#ifndef DCM_UFFD_PAGES_H
#define DCM_UFFD_PAGES_H

#include "pager.h"

/* The next run of set bits in @mask from @i on; false: none. */
static inline bool dcm_mask_next_run(u16 mask, unsigned int *i, unsigned int *n)
{
	u32 m = (u32)mask >> *i;

	if (!m)
		return false;
	*i += ffs_u32(m) - 1;
	m = (u32)mask >> *i;
	*n = ffs_u32(~m) - 1;
	return true;
}

/**
 * dcm_pages_drop_add() - add pages under @mask to the ranges that one call drops
 * @l: caller's lane, whose @iov has the ranges
 * @va: address of the block
 * @nr: in and out: ranges in @iov
 */
void dcm_pages_drop_add(struct dcm_pg_lane *l, u64 va, u16 mask,
			unsigned int *nr);

/** dcm_pages_take_out() - unmap pages that are mapped write-protected */
void dcm_pages_take_out(struct dcm_pg_lane *l, u64 va, u16 mask);

/**
 * dcm_pages_copy_in() - map copies of the pages under @mask
 * @va: address of the block
 * @src: the block's first byte; %NULL: the pages are zero
 * @mode: DCM_UFFD_*
 * @done: pages that are mapped are added here
 *
 * Return: 0, or a negative errno; in both cases the pages in *@done are mapped.
 */
int dcm_pages_copy_in(struct dcm_pager *pg, u64 va, const char *src, u16 mask,
		      unsigned int mode, u16 *done);

/**
 * dcm_pages_move() - move the pages under @mask, to or from a frame
 * @to: where the block's first page goes; the pages have no memory there
 * @from: where it is
 * @wake: wake the accesses that wait for the pages
 * @moved: pages that were moved are added here
 *
 * Return: 0, or a negative errno as dcm_uffd_move() at the first page that can't be
 * moved.
 */
int dcm_pages_move(struct dcm_pager *pg, u64 to, u64 from, u16 mask, bool wake,
		   u16 *moved);

/**
 * dcm_pages_collect_hidden() - free the frames of hidden pages, as their block leaves
 * @gfn: head of the block
 * @hidden: the pages that were left unmapped (sample.c)
 * @dst: the block's frame, to copy their bytes to; %NULL: the bytes are not needed
 */
void dcm_pages_collect_hidden(struct dcm_pg_lane *l, u32 gfn, u16 hidden,
			      char *dst);

#endif /* DCM_UFFD_PAGES_H */

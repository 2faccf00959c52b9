/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * watched.h - the pages whose touches reuse.c sees, in the order of their last touch
 */
#ifndef DCM_CORE_WATCHED_H
#define DCM_CORE_WATCHED_H

#include "../lib/dcm_context.h"

#define DCM_WATCHED_MAX 2048u /* pages */
#define DCM_WATCHED_SLOTS (2 * DCM_WATCHED_MAX)
#define DCM_WATCHED_NONE 0xffffu

/**
 * struct dcm_watched_page - a page whose touches are seen
 * @gfn: the page
 * @slot: when it was touched last
 * @next: the next with the same hash, or the next that is free
 * @stands_for: how many pages it counts for
 * @near: pages that had been touched after it when it was hidden, or 0
 * @hidden: the next access to it will be seen, unless it is @blind
 * @blind: it could not be hidden
 * @missed: touches after the last one seen may have gone unseen
 */
struct dcm_watched_page {
	u32 gfn;
	u16 slot;
	u16 next;
	u32 stands_for;
	u32 near;
	bool hidden;
	bool blind;
	bool missed;
};

/**
 * struct dcm_watched - all watched pages
 * @nr: pages in use
 * @now: next slot
 * @free: first page not in use
 * @head: of each hash, its first page
 * @at: the page of each slot
 * @tree: sums of pages over slots
 * @page: the pages
 * @pages: how many pages all of them stand for
 */
struct dcm_watched {
	u32 nr;
	u32 now;
	u16 free;
	u16 head[DCM_WATCHED_MAX];
	u16 at[DCM_WATCHED_SLOTS];
	u64 tree[DCM_WATCHED_SLOTS + 1];
	struct dcm_watched_page page[DCM_WATCHED_MAX];
	u64 pages;
};

void dcm_watched_clear(struct dcm_watched *w);
struct dcm_watched_page *dcm_watched_find(struct dcm_watched *w, u32 gfn);
struct dcm_watched_page *dcm_watched_add(struct dcm_watched *w, u32 gfn,
					 u32 stands_for);
void dcm_watched_drop(struct dcm_watched *w, struct dcm_watched_page *p);
void dcm_watched_touch(struct dcm_watched *w, struct dcm_watched_page *p,
		       u32 stands_for);
void dcm_watched_pack(struct dcm_watched *w);
u64 dcm_watched_after(const struct dcm_watched *w, u32 slot);
u32 dcm_watched_slot(const struct dcm_watched *w, u64 pages);

/* The page of a slot below @w->now, or NULL. */
static inline struct dcm_watched_page *dcm_watched_at(struct dcm_watched *w,
						      u32 slot)
{
	return w->at[slot] == DCM_WATCHED_NONE ? NULL : &w->page[w->at[slot]];
}

#endif /* DCM_CORE_WATCHED_H */

// SPDX-License-Identifier: GPL-2.0-only
/*
 * watched.c - the pages whose touches reuse.c sees, in the order of their last touch
 *
 * Time is a slot number: at each touch the page leaves its old slot and takes the next
 * one that was never used. A sum tree over slots (Fenwick, 1994) tells how many pages
 * were touched after a slot, each page weighted by how many it stands for. When
 * slots run out, the pages are packed into the first slots.
 *
 *	slot      0       1       2       3       4       5
 *	        [ page ][      ][ page ][ page ][      ][ page ]
 *	touched:  longest ago                             last    next: now
 *
 * A hash table finds a page by its 64 KiB, which have at most one watched page. All
 * memory is one table of fixed size. The paper has no such thing.
 *
 * Locking: the caller's.
 */
#include "pd.h"
#include "watched.h"

#define SLOTS DCM_WATCHED_SLOTS
#define NONE DCM_WATCHED_NONE

/* ---- slots ---- */

static void tree_add(struct dcm_watched *w, u32 slot, s64 pages)
{
	u32 i;

	for (i = slot + 1; i <= SLOTS; i += i & -i)
		w->tree[i] += (u64)pages;
	WRITE_ONCE(w->pages, w->pages + (u64)pages);
}

/** dcm_watched_after() - how many pages were touched later than that of @slot */
u64 dcm_watched_after(const struct dcm_watched *w, u32 slot)
{
	u64 until = 0;
	u32 i;

	for (i = slot + 1; i; i -= i & -i)
		until += w->tree[i];
	return w->pages - until;
}

/**
 * dcm_watched_slot() - find a slot by how many pages were touched after it
 * @w: the pages
 * @pages: how many
 *
 * Return: the first slot after which no more than @pages were touched; or
 * %DCM_WATCHED_SLOTS.
 */
u32 dcm_watched_slot(const struct dcm_watched *w, u64 pages)
{
	u64 left = w->pages - min(w->pages, pages);
	u32 at = 0, step;

	for (step = SLOTS; step; step /= 2) {
		if (at + step > SLOTS || w->tree[at + step] >= left)
			continue;
		at += step;
		left -= w->tree[at];
	}
	return at;
}

/**
 * dcm_watched_pack() - pack pages into the first slots, in the same order
 * @w: the pages; also sums @stands_for anew, which may have been changed
 */
void dcm_watched_pack(struct dcm_watched *w)
{
	u32 from, to = 0, i;

	memset(w->tree, 0, sizeof(w->tree));
	WRITE_ONCE(w->pages, 0);
	for (from = 0; from < w->now; from++) {
		u16 n = w->at[from];

		if (n == NONE)
			continue;
		w->at[from] = NONE;
		w->at[to] = n;
		w->page[n].slot = (u16)to;
		w->tree[to + 1] = w->page[n].stands_for;
		WRITE_ONCE(w->pages, w->pages + w->tree[to + 1]);
		to++;
	}
	w->now = to;
	for (i = 1; i <= SLOTS; i++)
		if (i + (i & -i) <= SLOTS)
			w->tree[i + (i & -i)] += w->tree[i];
}

static void slot_take(struct dcm_watched *w, struct dcm_watched_page *p)
{
	if (w->now == SLOTS)
		dcm_watched_pack(w);
	w->at[w->now] = (u16)(p - w->page);
	p->slot = (u16)w->now;
	tree_add(w, w->now, p->stands_for);
	w->now++;
}

static void slot_leave(struct dcm_watched *w, const struct dcm_watched_page *p)
{
	tree_add(w, p->slot, -(s64)p->stands_for);
	w->at[p->slot] = NONE;
}

/* ---- pages ---- */

static u16 *place_of(struct dcm_watched *w, u32 gfn)
{
	u16 *at = &w->head[(gfn >> DCM_ORDER_MAX) % DCM_WATCHED_MAX];

	while (*at != NONE && w->page[*at].gfn != gfn)
		at = &w->page[*at].next;
	return at;
}

/** dcm_watched_find() - the watched page with that gfn, or %NULL */
struct dcm_watched_page *dcm_watched_find(struct dcm_watched *w, u32 gfn)
{
	u16 n = *place_of(w, gfn);

	return n == NONE ? NULL : &w->page[n];
}

/**
 * dcm_watched_add() - a page is touched for the first time
 * @w: fewer than %DCM_WATCHED_MAX pages
 * @gfn: not one of them
 * @stands_for: how many pages it counts for
 *
 * Return: the page, in the last slot.
 */
struct dcm_watched_page *dcm_watched_add(struct dcm_watched *w, u32 gfn,
					 u32 stands_for)
{
	u16 n = w->free, *at = place_of(w, gfn);
	struct dcm_watched_page *p = &w->page[n];

	w->free = p->next;
	*p = (struct dcm_watched_page){
		.gfn = gfn,
		.next = NONE,
		.stands_for = stands_for,
	};
	*at = n;
	WRITE_ONCE(w->nr, w->nr + 1);
	slot_take(w, p);
	return p;
}

/** dcm_watched_drop() - stop watching a page */
void dcm_watched_drop(struct dcm_watched *w, struct dcm_watched_page *p)
{
	u16 *at = place_of(w, p->gfn), n = *at;

	slot_leave(w, p);
	*at = p->next;
	p->next = w->free;
	w->free = n;
	WRITE_ONCE(w->nr, w->nr - 1);
}

/**
 * dcm_watched_touch() - a page is touched again
 * @w: the pages
 * @p: which
 * @stands_for: how many pages it counts for from now on
 */
void dcm_watched_touch(struct dcm_watched *w, struct dcm_watched_page *p,
		       u32 stands_for)
{
	slot_leave(w, p);
	p->stands_for = stands_for;
	p->near = 0;
	p->hidden = false;
	p->blind = false;
	p->missed = false;
	slot_take(w, p);
}

/** dcm_watched_clear() - stop watching all pages, or begin with none */
void dcm_watched_clear(struct dcm_watched *w)
{
	u32 i;

	memset(w->head, 0xff, sizeof(w->head));
	memset(w->at, 0xff, sizeof(w->at));
	memset(w->tree, 0, sizeof(w->tree));
	for (i = 0; i < DCM_WATCHED_MAX; i++)
		w->page[i].next = i + 1 < DCM_WATCHED_MAX ? (u16)(i + 1) :
							    (u16)NONE;
	w->free = 0;
	WRITE_ONCE(w->nr, 0);
	w->now = 0;
	WRITE_ONCE(w->pages, 0);
}

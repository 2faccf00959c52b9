// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * sample.c - pages left unmapped to learn whether they are touched
 *
 * User space can't read the accessed bits of its own page tables, and REDUCE
 * (dcm-tc18, 4.2) needs to know how much of a block was used. So now and then
 * one page of a block that is fetched or mapped again, not the one asked for, is not
 * mapped. Its bytes wait in a frame; the first access to it is a cheap fault, which
 * shows that the page is used. One page in sixteen is a fair sample over many blocks, and
 * costs at most one fault a block.
 *
 * The pages are in a hash table with buckets of one cache line, hashed by 64 KiB, so
 * that one look finds all such pages of a block. If a bucket is full, no sample is
 * taken. Nothing is allocated.
 *
 * Pages of the core's sample (core/reuse.c) are here too, while they are hidden.
 *
 * Locking: one spinlock a bucket. Only the lane that has set a block BUSY
 * changes the entries of its pages.
 */
#include <errno.h>

#include "pager.h"

int dcm_sample_init(struct dcm_pager *pg)
{
	pg->sample = vzalloc(DCM_SAMPLE_BUCKETS * sizeof(*pg->sample));
	return pg->sample ? 0 : -ENOMEM;
}

static struct dcm_sample_bucket *sample_bucket(struct dcm_pager *pg, u32 gfn)
{
	u32 h = (gfn >> DCM_ORDER_MAX) * 0x9e3779b1u;

	return &pg->sample[h / (U32_MAX / DCM_SAMPLE_BUCKETS + 1)];
}

/** dcm_sample_add() - leave page @gfn unmapped; false: no room, map it */
bool dcm_sample_add(struct dcm_pager *pg, u32 gfn, u32 frame, bool writable)
{
	struct dcm_sample_bucket *b = sample_bucket(pg, gfn);
	unsigned int i;
	bool ok = false;

	spin_lock(&b->lock);
	for (i = 0; i < ARRAY_SIZE(b->gfn); i++) {
		if (b->used & (1u << i))
			continue;
		b->gfn[i] = gfn;
		b->frame[i] = frame;
		b->used &= ~(0x100u << i);
		b->used |= (1u << i) | (writable ? 0x100u << i : 0);
		ok = true;
		break;
	}
	spin_unlock(&b->lock);
	if (ok)
		__atomic_fetch_add(&pg->sampled, 1, __ATOMIC_RELAXED);
	return ok;
}

/** dcm_sample_take() - remove an unmapped page's entry; returns its frame */
u32 dcm_sample_take(struct dcm_pager *pg, u32 gfn, bool *writable)
{
	struct dcm_sample_bucket *b = sample_bucket(pg, gfn);
	u32 frame = DCM_NIL;
	unsigned int i;

	if (!READ_ONCE(pg->sampled))
		return DCM_NIL;
	spin_lock(&b->lock);
	for (i = 0; i < ARRAY_SIZE(b->gfn); i++) {
		if (!(b->used & (1u << i)) || b->gfn[i] != gfn)
			continue;
		frame = b->frame[i];
		*writable = b->used & (0x100u << i);
		b->used &= ~(1u << i);
		break;
	}
	spin_unlock(&b->lock);
	if (frame != DCM_NIL)
		__atomic_fetch_sub(&pg->sampled, 1, __ATOMIC_RELAXED);
	return frame;
}

/** dcm_sample_mask() - of @nr pages in the same 64 KiB, those left unmapped */
u16 dcm_sample_mask(struct dcm_pager *pg, u32 gfn, u32 nr)
{
	struct dcm_sample_bucket *b = sample_bucket(pg, gfn);
	unsigned int i;
	u16 mask = 0;

	if (!READ_ONCE(pg->sampled))
		return 0;
	spin_lock(&b->lock);
	for (i = 0; i < ARRAY_SIZE(b->gfn); i++)
		if ((b->used & (1u << i)) && b->gfn[i] - gfn < nr)
			mask |= (u16)(1u << (b->gfn[i] - gfn));
	spin_unlock(&b->lock);
	return mask;
}

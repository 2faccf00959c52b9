// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * workers_cards.c - find the cards that refer into chosen regions, on all donors
 *
 * Each worker searches its own regions, at the same time as the others, and has
 * an equal share of the answer's room. A worker remembers where its search goes on.
 *
 * A worker reads its slabs. If a source region was moved to another slab, before the
 * search or during it, the search ends: no answer may be given that was read from the
 * old slab.
 *
 * Locking: none, only the GC thread uses it.
 */
#include "workers_int.h"

/* Mark the regions that the search reads from now on. */
static void sources_mark(struct workers_space *sp,
			 const struct dcm_gc_request *r)
{
	const struct virtio_gc_region *region = r->entries;

	if (dcm_gc_request_ranges(r)) {
		dcm_gc_ranges_mark(&sp->l, r->entries, r->count, sp->source);
		return;
	}
	if (!(r->flags & VIRTIO_GC_CARDS_BEGIN))
		return;
	memset(sp->source, 0, sp->nr_regions);
	for (u32 i = 0; i < r->count; i++) {
		u32 n = le32toh(region[i].region);

		sp->source[n] = le32toh(region[i].flags) &
					VIRTIO_GC_REGION_SOURCE &&
				le64toh(region[i].top) > n * sp->l.region_bytes;
	}
}

/* Are all sources still where workers read them? A status; @at: one that is not. */
static u32 sources_stay(const struct dcm_gc_workers *t, u32 space, u64 *at)
{
	const struct workers_space *sp = &t->space[space];

	for (u32 r = 0; r < sp->nr_regions; r++) {
		if (!sp->source[r] ||
		    (sp->place[r].donor != VIRTIO_GC_NO_DONOR &&
				       gc_space_stays_at(t, space, r, 1)))
			continue;
		*at = r * sp->l.region_bytes;
		return VIRTIO_GC_STALE;
	}
	return VIRTIO_GC_OK;
}

static u32 cards_check(const struct workers_space *sp,
		       const struct dcm_gc_request *r)
{
	const struct virtio_gc_cards *cards = r->body;
	u32 status = VIRTIO_GC_OK;

	if (r->flags & VIRTIO_GC_CARDS_BEGIN)
		status = dcm_gc_cards_check(&sp->l, cards->shift, r->entries,
					    r->count);
	/* each worker needs room for one entry at least, to get on */
	if (!status && r->answer < (u32)__builtin_popcountll(sp->mask))
		status = VIRTIO_GC_INVALID;
	if (!status && !sp->finished)
		status = VIRTIO_GC_BUSY;
	if (!status && !(r->flags & VIRTIO_GC_CARDS_BEGIN) &&
	    sp->searched != r->epoch)
		status = VIRTIO_GC_NO_TRACE;
	return status;
}

u32 gc_do_cards(struct dcm_gc_workers *t, const struct gc_call *c)
{
	const struct dcm_gc_request *r = c->r;
	struct workers_space *sp = &t->space[r->space];
	struct entries_ask e = gc_ask_entries(t, c, r->answer_entry);
	u32 donors = (u32)__builtin_popcountll(sp->mask), status;
	struct virtio_gc_cards *cards;
	struct virtio_gc_req *req;

	status = cards_check(sp, r);
	if (status)
		return status;
	sp->searched = 0;
	status = gc_space_grow(t, r->space, false);
	if (status)
		return status;
	sources_mark(sp, r);
	status = sources_stay(t, r->space, &c->out->done.at);
	if (status)
		return status;
	req = malloc(c->bytes);
	if (!req)
		return VIRTIO_GC_LIMIT;
	memcpy(req, c->raw, c->bytes);
	cards = (void *)(req + 1);
	cards->max = htole32(r->answer / max(donors, 1u));
	e.ask.msg.payload = req;
	status = gc_ask(t, &e.ask, sp->mask);
	free(req);
	c->out->done.at = e.ask.at;
	if (!status)
		status = sources_stay(t, r->space, &c->out->done.at);
	if (status)
		return status;
	sp->searched = r->epoch;
	c->out->done.count = e.count;
	c->out->done.value = e.value;
	return VIRTIO_GC_OK;
}

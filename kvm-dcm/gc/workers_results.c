// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * workers_results.c - results of a finished trace: live bytes and bitmaps of regions
 *
 * Each worker answers for all regions; the result of a region is taken from
 * the worker that owns it. A bitmap comes in messages of bounded size, and is
 * zero beyond the part of the region that was traced. It goes into the answer,
 * or into the window at a place that holds no traced object. [VGC-D-35]
 *
 * Locking: none, only the GC thread uses it.
 */
#include "workers_int.h"

/* Take each region's result from the worker that owns it. */
static void take_live(void *arg, u32 donor, const struct dcm_wire_msg *msg)
{
	struct entries_ask *e = arg;
	const struct virtio_gc_range *range = e->r->body;
	const struct virtio_gc_live *live;
	u32 n, first = le32toh(range->first);

	live = gc_take_entries(e, msg, &n);
	if (!live || e->ask.status)
		return;
	if (n != e->r->answer) {
		e->ask.status = VIRTIO_GC_WORKER_LOST;
		return;
	}
	for (u32 i = 0; i < n; i++)
		if (e->sp->place[first + i].donor == donor)
			memcpy(e->out->entries + i * sizeof(*live), &live[i],
			       sizeof(*live));
}

/* May the bitmaps of @n regions be written into the window at @at? [VGC-D-35] */
static bool bitmaps_check(const struct workers_space *sp, u64 at, u32 n)
{
	u64 bytes = sp->l.region_bytes / 64 * n, size = sp->l.region_bytes;

	if (at % 8 || at > sp->l.bytes || bytes > sp->l.bytes - at)
		return false;
	for (u32 i = 0; i < sp->nr_regions; i++)
		if (sp->top[i] > i * size && at < sp->top[i] &&
		    at + bytes > i * size)
			return false;
	return true;
}

/*
 * A question for bitmaps. @out: buffer for them; %NULL: write them at @at of the space
 */
struct bits_ask {
	struct ask ask;
	struct dcm_gc_workers *t;
	u8 *out;
	u64 at;
	u64 left;
	u64 got;
	bool none;
};

static void bits_put(const struct bits_ask *b, const void *bits, u64 bytes)
{
	if (b->out)
		memcpy(b->out + b->at, bits, bytes);
	else
		b->t->ops->bits(b->t->arg, b->ask.space, b->at, bits, bytes);
}

static void take_bits(void *arg, u32 donor, const struct dcm_wire_msg *msg)
{
	struct bits_ask *b = arg;

	(void)donor;
	b->none = !msg->payload_bytes;
	if (msg->gc.kind != DCM_GC_BITS || msg->payload_bytes > b->left) {
		b->ask.status = VIRTIO_GC_WORKER_LOST;
		return;
	}
	b->got = msg->payload_bytes;
	if (b->got)
		bits_put(b, msg->payload, b->got);
}

static u32 bitmap_fetch(struct dcm_gc_workers *t, u32 space, u32 region,
			u8 *out, u64 at)
{
	const struct workers_space *sp = &t->space[space];
	u64 bytes = sp->l.region_bytes / 64, done = 0;
	u32 donor = sp->place[region].donor, status = VIRTIO_GC_OK;
	static const u8 zero[4096];
	struct bits_ask b;

	while (!status && done < bytes && donor != VIRTIO_GC_NO_DONOR) {
		b = (struct bits_ask){
			.ask = { .space = space, .take = take_bits },
			.t = t,
			.out = out,
			.at = at + done,
			.left = bytes - done,
		};

		b.ask.msg.gc.kind = DCM_GC_BITMAP;
		b.ask.msg.gc.epoch = sp->epoch;
		b.ask.msg.gc.n = region;
		b.ask.msg.gc.value = done;
		status = gc_ask(t, &b.ask, 1ull << donor);
		if (b.none)
			break;
		done += b.got;
	}
	/* beyond the traced part nothing is live */
	for (u64 n; !status && done < bytes; done += n) {
		n = min(bytes - done, (u64)sizeof(zero));
		b = (struct bits_ask){
			.ask.space = space, .t = t, .out = out, .at = at + done
		};
		bits_put(&b, zero, n);
	}
	return status;
}

u32 gc_do_results(struct dcm_gc_workers *t, const struct gc_call *c)
{
	const struct dcm_gc_request *r = c->r;
	struct workers_space *sp = &t->space[r->space];
	const struct virtio_gc_range *range = r->body;
	u32 first = le32toh(range->first), n = r->answer, status;
	u64 bitmaps = le64toh(range->bitmaps);
	struct virtio_gc_live *live = (void *)c->out->entries;
	struct entries_ask e = gc_ask_entries(t, c, sizeof(*live));

	if (first > sp->nr_regions || n > sp->nr_regions - first ||
	    (bitmaps != VIRTIO_GC_NONE && !bitmaps_check(sp, bitmaps, n)))
		return VIRTIO_GC_INVALID;
	for (u32 i = 0; i < n; i++) {
		memset(&live[i], 0, sizeof(live[i]));
		live[i].region = htole32(first + i);
		live[i].status = htole32(VIRTIO_GC_NO_TRACE);
	}
	e.ask.take = take_live;
	status = gc_ask(t, &e.ask, sp->mask);
	for (u32 i = 0; !status && bitmaps != VIRTIO_GC_NONE && i < n; i++)
		status = bitmap_fetch(t, r->space, first + i, NULL,
				      bitmaps + i * (sp->l.region_bytes / 64));
	c->out->done.count = status ? 0 : n;
	return status;
}

u32 gc_do_bitmaps(struct dcm_gc_workers *t, const struct gc_call *c)
{
	const struct virtio_gc_range *range = c->r->body;
	const struct workers_space *sp = &t->space[c->r->space];
	u32 first = le32toh(range->first), n = le32toh(range->regions);
	u64 bytes = sp->l.region_bytes / 64;
	u32 status = VIRTIO_GC_OK;

	if (le64toh(range->bitmaps) != bytes || first > sp->nr_regions ||
	    n > sp->nr_regions - first)
		return VIRTIO_GC_INVALID;
	if (!sp->finished)
		return VIRTIO_GC_BUSY;
	for (u32 i = 0; !status && i < n; i++)
		status = bitmap_fetch(t, c->r->space, first + i,
				      c->out->entries, i * bytes);
	c->out->done.count = status ? 0 : c->r->answer;
	return status;
}

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * workers_trace.c - a trace by all donors of a space: mako-pldi22, 5.2
 *
 * A trace begins on all workers, which get the places of all regions. It ends
 * when two rounds of flags in a row found all workers quiet; references between
 * them are forwarded meanwhile. An error that one worker finds ends the trace
 * on all. Results of a region come from the worker that owns it.
 *
 * Without the runtime's barrier a region must not be written to while it is
 * traced: semeru-osdi20, 4.2, fig. 6. There the memory server reads a tag that
 * the host's write-backs change; here the host's pager counts writes, because
 * only it knows of every write, over any transport. It looks when all threads
 * are quiet: bytes that a worker has read were in the slab, so their write had
 * changed the count. Workers get the counts that changed, and mark results as
 * stale.
 *
 * Locking: none, only the GC thread uses it.
 */
#include "workers_int.h"

#define COUNTS_MAX (DCM_WIRE_PAYLOAD_MAX / sizeof(struct dcm_gc_write_count))

/* Whether the worker had begun the trace does not matter. */
static void take_any(void *arg, u32 donor, const struct dcm_wire_msg *msg)
{
	(void)arg;
	(void)donor;
	(void)msg;
}

/* End the trace before: a worker can't be given new places while it runs. */
static u32 trace_end(struct dcm_gc_workers *t, u32 space)
{
	struct workers_space *sp = &t->space[space];
	struct ask ask = { .space = space };
	u64 mask = 0;

	for (u32 i = 0; i < t->nr_donors; i++)
		if (t->donor[i].knows >> space & 1)
			mask |= 1ull << i;
	if (!sp->begun || !mask)
		return VIRTIO_GC_OK;
	ask.msg.gc.kind = DCM_GC_STOP;
	ask.msg.gc.value = VIRTIO_GC_CANCELLED;
	ask.msg.type = DCM_MSG_GC;
	ask.msg.gc.space = space;
	for (u32 i = 0; i < t->nr_donors; i++)
		if (mask >> i & 1)
			dcm_gc_conn_send(&t->donor[i].conn, &ask.msg);
	ask.msg.gc.kind = DCM_GC_FINISH;
	ask.msg.gc.epoch = sp->begun;
	ask.take = take_any;
	return gc_ask(t, &ask, mask);
}

/*
 * Take the write counts of all regions before the trace begins. False: one is
 * unknown, so a write during the trace would not be noticed.
 */
static bool write_counts_take(struct dcm_gc_workers *t, u32 space, u32 flags)
{
	struct workers_space *sp = &t->space[space];
	bool known = true;

	sp->flags = flags;
	for (u32 r = 0; known && r < sp->nr_regions; r++)
		if (!(flags & VIRTIO_GC_TRACE_CONCURRENT) &&
		    sp->place[r].donor != VIRTIO_GC_NO_DONOR)
			known = t->ops->write_count(t->arg, space, r,
						    &sp->place[r],
					    &sp->write_count[r]);
	return known;
}

/* Change of @r's write count since the trace began; 0: it is not traced. */
static u32 write_count_change(struct dcm_gc_workers *t, u32 space, u32 r)
{
	const struct workers_space *sp = &t->space[space];
	u32 count;

	if (sp->flags & VIRTIO_GC_TRACE_CONCURRENT ||
	    sp->place[r].donor == VIRTIO_GC_NO_DONOR ||
	    sp->top[r] <= r * sp->l.region_bytes)
		return 0;
	if (!t->ops->write_count(t->arg, space, r, &sp->place[r], &count))
		return U32_MAX;
	return count - sp->write_count[r];
}

/* Send workers the write counts that changed. @any: there were some. */
static u32 write_counts_send(struct dcm_gc_workers *t, u32 space, bool *any)
{
	const struct workers_space *sp = &t->space[space];
	struct dcm_gc_write_count *le = calloc(COUNTS_MAX, sizeof(*le));
	u32 status = le ? VIRTIO_GC_OK : VIRTIO_GC_LIMIT;

	*any = false;
	for (u32 d = 0; !status && d < t->nr_donors; d++) {
		struct ask ask = { .space = space };
		u32 n = 0;

		for (u32 r = 0; !status && r < sp->nr_regions; r++) {
			u32 change = sp->place[r].donor == d ?
					     write_count_change(t, space, r) :
					     0;

			if (change) {
				le[n].region = htole32(r);
				le[n++].count = htole32(change);
			}
			if (!n || (n < COUNTS_MAX && r + 1 < sp->nr_regions))
				continue;
			*any = true;
			ask.msg.gc.kind = DCM_GC_WRITE_COUNTS;
			ask.msg.gc.n = n;
			ask.msg.payload = le;
			ask.msg.payload_bytes = n * (u32)sizeof(*le);
			status = gc_ask(t, &ask, 1ull << d);
			n = 0;
		}
	}
	free(le);
	return status;
}

/* An error in the heap, which a write during the trace may have caused. */
static bool status_bad_heap(u32 status)
{
	return status == VIRTIO_GC_BAD_TYPE || status == VIRTIO_GC_BAD_OBJECT ||
	       status == VIRTIO_GC_BAD_REFERENCE;
}

u32 gc_do_start(struct dcm_gc_workers *t, const struct gc_call *c)
{
	const struct dcm_gc_request *r = c->r;
	struct workers_space *sp = &t->space[r->space];
	const struct virtio_gc_region *region = r->entries;
	struct ask ask = gc_ask_request(r->space, c->raw, c->bytes);
	u32 status;

	if (!r->epoch || r->epoch == sp->epoch)
		return VIRTIO_GC_INVALID;
	status = trace_end(t, r->space);
	/* a worker lost since the last trace does not matter to this one */
	if (status && status != VIRTIO_GC_WORKER_LOST &&
	    status != VIRTIO_GC_DONOR_LOST)
		return status;
	/*
	 * A page that was synced and is also direct is on no donor once its
	 * extent moves. So none may have moved since before they were synced:
	 * true of a region whose place is the same as at the last look.
	 */
	if (!gc_space_find(t, r->space) || !gc_space_has(t, r))
		return DCM_GC_WORKERS_MOVING;
	status = gc_space_place(t, r->space);
	if (status)
		return status;
	if (!write_counts_take(t, r->space, r->flags))
		return VIRTIO_GC_LIMIT;
	/* on failure some may have begun it: trace_end() has to end it */
	sp->begun = r->epoch;
	status = gc_ask(t, &ask, sp->mask);
	if (status)
		return status;
	sp->epoch = r->epoch;
	memset(sp->top, 0, sp->nr_regions * sizeof(*sp->top));
	/* the workers have checked the regions */
	for (u32 i = 0; i < r->count; i++)
		if (le32toh(region[i].region) < sp->nr_regions)
			sp->top[le32toh(region[i].region)] =
				le64toh(region[i].top);
	return VIRTIO_GC_OK;
}

struct poll_ask {
	struct ask ask;
	u64 mask;
	bool bad;
	struct dcm_gc_flags flags[DCM_WIRE_GC_DONORS];
};

static void take_flags(void *arg, u32 donor, const struct dcm_wire_msg *msg)
{
	struct poll_ask *p =
		container_of((struct ask *)arg, struct poll_ask, ask);
	const struct dcm_gc_flags_le *le = msg->payload;
	struct dcm_gc_flags *f =
		&p->flags[__builtin_popcountll(p->mask & ((1ull << donor) - 1))];

	p->bad |= msg->gc.kind != DCM_GC_FLAGS ||
		  msg->payload_bytes != sizeof(*le);
	if (p->bad)
		return;
	*f = (struct dcm_gc_flags){
		.tracing = le->tracing,
		.roots = le->roots,
		.ghosts = le->ghosts,
		.changed = le->changed,
		.opaque = le32toh(le->opaque),
		.result = { le32toh(le->status), le64toh(le->at) },
	};
}

/* Get all flags; the result is the first trace that has failed. */
static struct dcm_gc_result trace_poll(struct dcm_gc_workers *t, u32 space,
				       struct poll_ask *p, u32 *opaque)
{
	struct workers_space *sp = &t->space[space];
	struct dcm_gc_result result = { VIRTIO_GC_OK, VIRTIO_GC_NONE };
	u32 n = (u32)__builtin_popcountll(sp->mask);

	memset(p, 0, sizeof(*p));
	p->mask = sp->mask;
	p->ask.space = space;
	p->ask.take = take_flags;
	p->ask.msg.gc.kind = DCM_GC_POLL;
	p->ask.msg.gc.epoch = sp->epoch;
	result.status = gc_ask(t, &p->ask, sp->mask);
	if (!result.status && p->bad)
		result.status = VIRTIO_GC_WORKER_LOST;
	*opaque = 0;
	for (u32 i = 0; !result.status && i < n; i++) {
		result = p->flags[i].result;
		*opaque |= p->flags[i].opaque;
	}
	return result;
}

u32 gc_do_finish(struct dcm_gc_workers *t, const struct gc_call *c)
{
	const struct dcm_gc_request *r = c->r;
	struct workers_space *sp = &t->space[r->space];
	u32 n = (u32)__builtin_popcountll(sp->mask), opaque;
	struct ask ask = { .space = r->space };
	struct dcm_gc_quiet quiet = { 0 };
	struct dcm_gc_result result;
	struct poll_ask p;
	bool changed;

	for (;;) {
		result = trace_poll(t, r->space, &p, &opaque);
		if (result.status)
			break;
		if (opaque)
			return VIRTIO_GC_MET;
		if (dcm_gc_quiet_round(&quiet, p.flags, n))
			break;
		/* let references be forwarded meanwhile */
		if (!quiet.rounds)
			gc_workers_turn(t, NULL, -1, 1);
	}
	if (!result.status || status_bad_heap(result.status)) {
		u32 status = write_counts_send(t, r->space, &changed);

		if (status || (result.status && changed))
			result = (struct dcm_gc_result){
				status ? status : VIRTIO_GC_STALE,
				VIRTIO_GC_NONE,
			};
	}
	ask.msg.gc.epoch = sp->epoch;
	ask.msg.gc.kind = DCM_GC_FINISH;
	if (result.status) {
		gc_workers_stop(t, &ask, sp->mask, result.status);
		c->out->done.at = result.at;
		return result.status;
	}
	result.status = gc_ask(t, &ask, sp->mask);
	c->out->done.at = ask.at;
	return result.status;
}

/* Ask one donor after the other, as far as there is room. */
u32 gc_do_met(struct dcm_gc_workers *t, const struct gc_call *c)
{
	const struct dcm_gc_request *r = c->r;
	struct workers_space *sp = &t->space[r->space];
	struct entries_ask e = gc_ask_entries(t, c, sizeof(__le64));
	u8 copy[sizeof(struct virtio_gc_req) + sizeof(struct virtio_gc_met)];
	struct virtio_gc_met *met =
		(void *)(copy + sizeof(struct virtio_gc_req));
	struct virtio_gc_req *req = (void *)copy;
	u32 status = VIRTIO_GC_OK, opaque = 0;
	struct dcm_gc_quiet quiet = { 0 };
	struct dcm_gc_result result;
	struct poll_ask p;

	/* the workers do not wait: waiting is done here */
	memcpy(copy, c->raw, sizeof(copy));
	req->flags = 0;
	while (r->flags & VIRTIO_GC_MET_WAIT && !opaque) {
		result = trace_poll(t, r->space, &p, &opaque);
		if (result.status ||
		    dcm_gc_quiet_round(&quiet, p.flags,
				       (u32)__builtin_popcountll(sp->mask)))
			break;
		if (!opaque && !quiet.rounds)
			gc_workers_turn(t, NULL, -1, 1);
	}
	e.ask.msg.payload = copy;
	for (u32 i = 0; !status && i < t->nr_donors; i++) {
		if (!(sp->mask >> i & 1))
			continue;
		/* with no room left, still ask whether there is more */
		met->max = htole32(e.room - e.count);
		status = gc_ask(t, &e.ask, 1ull << i);
	}
	c->out->done.count = e.count;
	c->out->done.value = e.value;
	return status;
}

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

/* Whether the bitmaps of @n regions may be written there. [VGC-D-35] */
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

struct bits_ask {
	struct ask ask;
	struct dcm_gc_workers *t;
	u64 at;
	u64 left;
	u64 got;
	bool none;
};

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
		b->t->ops->bits(b->t->arg, b->ask.space, b->at, msg->payload,
				b->got);
}

static u32 bitmap_fetch(struct dcm_gc_workers *t, u32 space, u32 region, u64 at)
{
	const struct workers_space *sp = &t->space[space];
	u64 bytes = sp->l.region_bytes / 64, done = 0;
	u32 donor = sp->place[region].donor, status = VIRTIO_GC_OK;
	static const u8 zero[4096];

	while (!status && done < bytes && donor != VIRTIO_GC_NO_DONOR) {
		struct bits_ask b = {
			.ask = { .space = space, .take = take_bits },
			.t = t,
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
		t->ops->bits(t->arg, space, at + done, zero, n);
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
		status = bitmap_fetch(t, r->space, first + i,
				      bitmaps + i * (sp->l.region_bytes / 64));
	c->out->done.count = status ? 0 : n;
	return status;
}

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * workers_trace.c - a trace by all donors of a space: mako-pldi22, 5.2
 *
 * A trace begins on all workers, which get the places of all regions. It ends
 * when two rounds of flags in a row found all workers quiet; references between
 * them are forwarded meanwhile. An error that one worker finds ends the trace
 * on all. workers_results.c reads the trace's results.
 *
 * Without the runtime's barrier a region must not be written to while it is
 * traced: semeru-osdi20, 4.2, fig. 6. There the memory server reads a tag that
 * the host's write-backs change. Here the host's pager counts writes, because
 * only it sees every write, over any transport. The counts are read when all workers
 * are quiet: bytes that a worker has read were in the slab by then, so their write has
 * changed the count. Workers are sent the counts that changed, and mark their results
 * as stale.
 *
 * Locking: none, only the GC thread uses it.
 */
#include "workers_int.h"

#define COUNTS_MAX (DCM_WIRE_PAYLOAD_MAX / sizeof(struct dcm_gc_write_count))

/* Ignore the answer's status: the worker may not have begun the trace. */
static void take_any(void *arg, u32 donor, const struct dcm_wire_msg *msg)
{
	(void)arg;
	(void)donor;
	(void)msg;
}

/* End the space's earlier trace: while it runs workers can't be given new places. */
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
	/* for a new trace it does not matter if a worker of the last one is gone */
	if (status && status != VIRTIO_GC_WORKER_LOST &&
	    status != VIRTIO_GC_DONOR_LOST)
		return status;
	/*
	 * When an extent moves, a page that was synced but is also direct leaves
	 * its donor. So no region may have moved since before it was synced.
	 * That is so if its place is the same as at the last look.
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
	sp->finished = false;
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

/*
 * Ranges of references may lie in regions that are not traced. Such a region may have
 * got its first place since the trace began, or another one: tell the workers.
 */
u32 gc_do_roots(struct dcm_gc_workers *t, const struct gc_call *c)
{
	const struct dcm_gc_request *r = c->r;
	u32 status;

	if (!dcm_gc_request_ranges(r))
		return gc_do_status(t, c);
	if (!gc_space_has_ranges(t, r)) {
		status = gc_space_grow(t, r->space, true);
		if (status)
			return status;
		if (!gc_space_has_ranges(t, r))
			return VIRTIO_GC_STALE;
	}
	return gc_do_status(t, c);
}

/* @asked: why the question failed; @objects: met on all donors */
struct poll_ask {
	struct ask ask;
	u64 mask;
	bool bad;
	u32 asked;
	u32 objects;
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
		.objects = le32toh(le->objects),
		.result = { le32toh(le->status), le64toh(le->at) },
	};
}

/* Get the flags of all workers. Returns a failed worker's result, if there is one. */
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
	p->asked = result.status;
	*opaque = 0;
	for (u32 i = 0; !result.status && i < n; i++) {
		result = p->flags[i].result;
		*opaque |= p->flags[i].opaque;
		p->objects += p->flags[i].objects;
	}
	return result;
}

/*
 * Is a trace quiet? Does not wait for it; a trace that has failed counts as quiet. If
 * the first round of flags is not quiet, ask again: the flag `changed` tells of the
 * time before the round, and the workers may be quiet by now.
 */
static u32 trace_look(struct dcm_gc_workers *t, u32 space, struct poll_ask *p,
		      bool *quiet, u32 *opaque)
{
	u32 n = (u32)__builtin_popcountll(t->space[space].mask), asked = 0;
	struct dcm_gc_quiet rounds = { 0 };
	struct dcm_gc_result result;

	*quiet = false;
	do {
		result = trace_poll(t, space, p, opaque);
		if (p->asked)
			return p->asked;
		*quiet = result.status ||
			 dcm_gc_quiet_round(&rounds, p->flags, n);
	} while (!*quiet && (rounds.rounds || !asked++));
	return VIRTIO_GC_OK;
}

u32 gc_do_state(struct dcm_gc_workers *t, const struct gc_call *c)
{
	struct dcm_gc_done *done = &c->out->done;
	struct poll_ask p;
	u32 status, opaque;
	bool quiet;

	status = trace_look(t, c->r->space, &p, &quiet, &opaque);
	if (status)
		return status;
	done->value = (quiet ? VIRTIO_GC_STATE_QUIET : 0) |
		      (opaque ? VIRTIO_GC_STATE_MET : 0);
	done->at = p.objects;
	return VIRTIO_GC_OK;
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
	sp->finished = !result.status;
	c->out->done.at = ask.at;
	return result.status;
}

/* A question: which of the @n objects at @address were met? */
struct asked_ask {
	struct entries_ask e;
	const __le64 *address;
	u32 n;
	u8 *bits;
};

/* Take each object's bit from the worker that owns its region. */
static void take_asked(void *arg, u32 donor, const struct dcm_wire_msg *msg)
{
	struct asked_ask *q = arg;
	const struct workers_space *sp = q->e.sp;
	const u8 *bits;
	u32 n;

	bits = gc_take_entries(&q->e, msg, &n);
	if (!bits || q->e.ask.status)
		return;
	if (n != (q->n + 7) / 8) {
		q->e.ask.status = VIRTIO_GC_WORKER_LOST;
		return;
	}
	for (u32 i = 0; i < q->n; i++) {
		u64 at = le64toh(q->address[i]) - sp->l.address;

		if (at < sp->l.bytes &&
		    sp->place[at / sp->l.region_bytes].donor == donor)
			q->bits[i / 8] |= bits[i / 8] & 1u << i % 8;
	}
}

/*
 * Set a bit of @bits for each object that was met; @n: at most as a request can have.
 */
static u32 objects_ask(struct dcm_gc_workers *t, const struct dcm_gc_request *r,
		       const __le64 *address, u32 n, u8 *bits)
{
	size_t bytes = sizeof(struct virtio_gc_req) + n * sizeof(*address);
	struct virtio_gc_req *req = malloc(bytes);
	struct asked_ask q = {
		.e = { .sp = &t->space[r->space], .entry = 1 },
		.address = address,
		.n = n,
		.bits = bits,
	};
	u32 status;

	if (!req)
		return VIRTIO_GC_LIMIT;
	*req = (struct virtio_gc_req){
		.command = htole16(VIRTIO_GC_TRACE_ASK),
		.space = htole32(r->space),
		.epoch = htole32(r->epoch),
		.count = htole32(n),
	};
	memcpy(req + 1, address, n * sizeof(*address));
	memset(bits, 0, (n + 7) / 8);
	q.e.ask = gc_ask_request(r->space, req, bytes);
	q.e.ask.take = take_asked;
	status = gc_ask(t, &q.e.ask, t->space[r->space].mask);
	free(req);
	return status;
}

u32 gc_do_trace_ask(struct dcm_gc_workers *t, const struct gc_call *c)
{
	u32 status = objects_ask(t, c->r, c->r->entries, c->r->count,
				 c->out->entries);

	c->out->done.count = status ? 0 : c->r->answer;
	return status;
}

/*
 * Workers list weak objects whose referents are elsewhere, as a worker does not know
 * whether another worker has met these. Remove those whose referents were met.
 */
static u32 clear_filter(struct dcm_gc_workers *t, const struct gc_call *c,
			u32 *count)
{
	struct virtio_gc_weak *weak = (void *)c->out->entries;
	__le64 *address = calloc(*count + 1, sizeof(*address));
	u8 *bits = calloc(*count / 8 + 1, 1);
	u32 status = VIRTIO_GC_LIMIT, left = 0;

	if (address && bits) {
		for (u32 i = 0; i < *count; i++)
			address[i] = weak[i].referent;
		status = objects_ask(t, c->r, address, *count, bits);
	}
	for (u32 i = 0; !status && i < *count; i++)
		if (!(bits[i / 8] >> i % 8 & 1))
			weak[left++] = weak[i];
	*count = left;
	free(address);
	free(bits);
	return status;
}

/* TRACE_MET: ask one donor after the other, as far as the answer has room. */
u32 gc_do_met(struct dcm_gc_workers *t, const struct gc_call *c)
{
	const struct dcm_gc_request *r = c->r;
	struct workers_space *sp = &t->space[r->space];
	struct entries_ask e = gc_ask_entries(t, c, r->answer_entry);
	u8 copy[sizeof(struct virtio_gc_req) + sizeof(struct virtio_gc_met)];
	struct virtio_gc_met *met =
		(void *)(copy + sizeof(struct virtio_gc_req));
	struct virtio_gc_req *req = (void *)copy;
	const u32 what = le32toh(((const struct virtio_gc_met *)r->body)->what);
	u32 status = VIRTIO_GC_OK, opaque = 0;
	struct dcm_gc_quiet quiet = { 0 };
	struct dcm_gc_result result;
	struct poll_ask p;

	/* while a trace runs: OPAQUE; if quiet also CLEAR, and TYPES with STATE */
	if (what != VIRTIO_GC_MET_OPAQUE && !sp->finished) {
		bool quiet = false;

		if (what == VIRTIO_GC_MET_CLEAR ||
		    (what == VIRTIO_GC_MET_TYPES &&
		     r->features & 1u << VIRTIO_GC_F_STATE))
			status = trace_look(t, r->space, &p, &quiet, &opaque);
		if (status || !quiet)
			return status ? status : VIRTIO_GC_BUSY;
		opaque = 0;
	}
	/* leave out the flag to wait: that is done here, not by workers */
	memcpy(copy, c->raw, sizeof(copy));
	req->flags = htole16(r->flags & VIRTIO_GC_MET_AGAIN);
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
	if (!status && what == VIRTIO_GC_MET_CLEAR && e.count)
		status = clear_filter(t, c, &e.count);
	c->out->done.count = e.count;
	c->out->done.value = e.value;
	return status;
}

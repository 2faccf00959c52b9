// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * workers_space.c - send workers a space's layout, types, and places of regions
 *
 * SPACE_CREATE and TYPES_ADD requests are kept unchanged, up to a number of bytes,
 * and sent to every new worker. A TYPES_ADD that replaces all types replaces the
 * earlier ones here, too. A slab of the donor is announced to the worker when a region
 * of the space lies in it, with a number that is valid as long as the worker lives.
 *
 * All workers check types alike, so if the first one refuses them, all would. Workers
 * that have already taken the types then forget the space, and get the replay later; so
 * does a worker that got only a part. No worker is killed for this, because it serves
 * traces of other spaces, too.
 *
 * Locking: none, only the GC thread uses it.
 */
#include "workers_int.h"

/* Bytes of requests kept for all spaces: 2^20 types, or half with some runs. */
#define REPLAY_MAX (40u << 20)
#define PLACES_MAX (DCM_WIRE_PAYLOAD_MAX / sizeof(struct dcm_gc_place))

/* Make sure that a donor has a worker that knows the space and its types. A status. */
static u32 donor_ready(struct dcm_gc_workers *t, u32 donor, u32 space)
{
	struct workers_donor *d = &t->donor[donor];
	u32 status = gc_donor_open(t, donor);

	if (status || d->knows >> space & 1)
		return status;
	for (struct replay *replay = t->space[space].replay; !status && replay;
	     replay = replay->next) {
		struct ask ask =
			gc_ask_request(space, replay->request, replay->bytes);

		status = gc_ask(t, &ask, 1ull << donor);
	}
	if (!status)
		d->knows |= 1u << space;
	else /* it may know a part of it */
		gc_forget(t, donor, space);
	return status;
}

/* Get the worker's number for a slab; a new slab is announced to it. A status. */
static u32 slab_announce(struct dcm_gc_workers *t, u32 donor, u64 id,
			 u32 *number)
{
	struct workers_donor *d = &t->donor[donor];
	struct dcm_wire_msg msg = { .type = DCM_MSG_GC_SLAB };
	u32 i;

	for (i = 0; i < d->nr_slabs && d->slab[i] != id; i++)
		;
	*number = i;
	if (i < d->nr_slabs)
		return VIRTIO_GC_OK;
	if (i == DCM_WIRE_GC_SLABS)
		return VIRTIO_GC_LIMIT;
	d->slab[d->nr_slabs++] = id;
	msg.tag = ++t->tag;
	msg.gc_slab.slab = id;
	msg.gc_slab.number = i;
	dcm_gc_conn_send(&d->conn, &msg);
	return VIRTIO_GC_OK;
}

/* Send one donor the places of all regions. */
static u32 donor_place(struct dcm_gc_workers *t, u32 donor, u32 space)
{
	const struct workers_space *sp = &t->space[space];
	struct dcm_gc_place *le = calloc(PLACES_MAX, sizeof(*le));
	u32 status = le ? VIRTIO_GC_OK : VIRTIO_GC_LIMIT, number = 0;

	for (u32 first = 0; !status && first < sp->nr_regions;
	     first += PLACES_MAX) {
		u32 n = min(sp->nr_regions - first, (u32)PLACES_MAX);
		struct ask ask = { .space = space };

		for (u32 i = 0; !status && i < n; i++) {
			const struct dcm_gc_place_of *p = &sp->place[first + i];

			if (p->donor == donor)
				status = slab_announce(t, donor, p->slab,
						       &number);
			le[i].region = htole32(first + i);
			le[i].donor = htole32(p->donor);
			le[i].slab = htole64(number);
			le[i].offset = htole64(p->offset);
		}
		ask.msg.gc.kind = DCM_GC_PLACE;
		ask.msg.gc.n = n;
		ask.msg.payload = le;
		ask.msg.payload_bytes = n * (u32)sizeof(*le);
		if (!status)
			status = gc_ask(t, &ask, 1ull << donor);
	}
	free(le);
	return status;
}

/* A region's place; false: none, or it is moving. */
static bool region_find(struct dcm_gc_workers *t, u32 space, u32 region,
			struct dcm_gc_place_of *p)
{
	return t->ops->place(t->arg, space, region, p) &&
	       p->donor < t->nr_donors;
}

bool gc_space_has(const struct dcm_gc_workers *t,
		  const struct dcm_gc_request *r)
{
	const struct workers_space *sp = &t->space[r->space];
	const struct virtio_gc_region *region = r->entries;

	for (u32 i = 0; i < r->count; i++) {
		u32 n = le32toh(region[i].region);

		/* skip regions outside of the space: workers refuse those */
		if (n < sp->nr_regions &&
		    le64toh(region[i].top) > n * sp->l.region_bytes &&
		    sp->place[n].donor == VIRTIO_GC_NO_DONOR)
			return false;
	}
	return true;
}

u32 gc_space_grow(struct dcm_gc_workers *t, u32 space, bool traced)
{
	struct workers_space *sp = &t->space[space];
	u8 *grown = calloc(sp->nr_regions, 1);
	u32 status = grown ? VIRTIO_GC_OK : VIRTIO_GC_LIMIT;
	bool any = false, placed = false;

	for (u32 r = 0; grown && r < sp->nr_regions; r++) {
		struct dcm_gc_place_of now;

		if (sp->place[r].donor != VIRTIO_GC_NO_DONOR ||
		    !region_find(t, space, r, &now) ||
		    !(sp->mask >> now.donor & 1))
			continue;
		sp->place[r] = now;
		grown[r] = 1;
		any = true;
	}
	if (any && !traced && !sp->finished)
		status = VIRTIO_GC_BUSY;
	for (u32 i = 0; any && !status && i < t->nr_donors; i++) {
		if (!(sp->mask >> i & 1))
			continue;
		status = donor_place(t, i, space);
		placed |= status != VIRTIO_GC_BUSY;
	}
	/* failed, or the trace still runs: take the new places back */
	for (u32 r = 0; any && status && r < sp->nr_regions; r++)
		if (grown[r])
			sp->place[r].donor = VIRTIO_GC_NO_DONOR;
	sp->lost |= status && placed;
	free(grown);
	return status;
}

static bool place_equal(const struct dcm_gc_place_of *a,
			const struct dcm_gc_place_of *b)
{
	return a->donor == b->donor &&
	       (a->donor == VIRTIO_GC_NO_DONOR ||
		(a->slab == b->slab && a->offset == b->offset));
}

bool gc_space_find(struct dcm_gc_workers *t, u32 space)
{
	struct workers_space *sp = &t->space[space];
	bool same = true;

	sp->mask = 0;
	for (u32 r = 0; r < sp->nr_regions; r++) {
		struct dcm_gc_place_of now;

		if (region_find(t, space, r, &now))
			sp->mask |= 1ull << now.donor;
		else
			now.donor = VIRTIO_GC_NO_DONOR;
		same &= place_equal(&now, &sp->place[r]);
		sp->place[r] = now;
	}
	/* no worker knows of the new places */
	sp->lost = true;
	return same;
}

u32 gc_space_place(struct dcm_gc_workers *t, u32 space)
{
	struct workers_space *sp = &t->space[space];
	u32 status = VIRTIO_GC_OK;

	for (u32 i = 0; !status && i < t->nr_donors; i++)
		if (sp->mask >> i & 1)
			status = donor_ready(t, i, space);
	for (u32 i = 0; !status && i < t->nr_donors; i++)
		if (sp->mask >> i & 1)
			status = donor_place(t, i, space);
	sp->lost = status;
	return status;
}

bool gc_space_stays_at(const struct dcm_gc_workers *t, u32 space, u32 first,
		       u32 n)
{
	const struct workers_space *sp = &t->space[space];

	for (u32 r = first; r < first + n; r++) {
		const struct dcm_gc_place_of *was = &sp->place[r];
		struct dcm_gc_place_of now;

		if (was->donor == VIRTIO_GC_NO_DONOR)
			continue;
		if (!t->ops->place(t->arg, space, r, &now) ||
		    !place_equal(was, &now))
			return false;
	}
	return true;
}

bool gc_space_stays(const struct dcm_gc_workers *t, u32 space)
{
	return gc_space_stays_at(t, space, 0, t->space[space].nr_regions);
}

bool gc_space_has_ranges(const struct dcm_gc_workers *t,
			 const struct dcm_gc_request *r)
{
	const struct workers_space *sp = &t->space[r->space];
	u8 *hit = calloc(sp->nr_regions, 1);
	bool has = hit;

	if (hit)
		dcm_gc_ranges_mark(&sp->l, r->entries, r->count, hit);
	for (u32 n = 0; has && n < sp->nr_regions; n++) {
		struct dcm_gc_place_of now;

		if (hit[n])
			has = sp->place[n].donor != VIRTIO_GC_NO_DONOR &&
			      t->ops->place(t->arg, r->space, n, &now) &&
			      place_equal(&sp->place[n], &now);
	}
	free(hit);
	return has;
}

static struct replay *replay_new(const void *raw, size_t bytes)
{
	struct replay *replay = malloc(sizeof(*replay) + bytes);

	if (!replay)
		return NULL;
	replay->next = NULL;
	replay->bytes = bytes;
	memcpy(replay->request, raw, bytes);
	return replay;
}

static void replay_append(struct workers_space *sp, struct replay *replay)
{
	struct replay **at = sp->replay_end ? sp->replay_end : &sp->replay;

	*at = replay;
	sp->replay_end = &replay->next;
	sp->replay_bytes += sizeof(*replay) + replay->bytes;
}

/* Drop the requests that were kept after @first; %NULL: all. */
static void replay_drop(struct workers_space *sp, struct replay *first)
{
	struct replay **at = first ? &first->next : &sp->replay;

	while (*at) {
		struct replay *replay = *at;

		*at = replay->next;
		sp->replay_bytes -= sizeof(*replay) + replay->bytes;
		free(replay);
	}
	sp->replay_end = at;
}

/* Is there room to keep a request, within the limit for all spaces? */
static bool replay_room(const struct dcm_gc_workers *t, size_t bytes)
{
	u64 all = sizeof(struct replay) + bytes;

	for (u32 i = 0; i < DCM_GC_SPACES_MAX; i++)
		all += t->space[i].replay_bytes;
	return all <= REPLAY_MAX;
}

void gc_space_forget(struct workers_space *sp)
{
	replay_drop(sp, NULL);
	free(sp->place);
	free(sp->top);
	free(sp->write_count);
	free(sp->hit);
	free(sp->source);
	memset(sp, 0, sizeof(*sp));
}

u32 gc_do_create(struct dcm_gc_workers *t, const struct gc_call *c)
{
	struct workers_space *sp = &t->space[c->r->space];
	struct replay *replay;
	u64 window;
	u32 status;

	if (sp->replay)
		return VIRTIO_GC_INVALID;
	dcm_gc_request_layout(c->r, &sp->l, &window);
	status = dcm_gc_layout_check(&sp->l);
	if (status)
		return status;
	sp->nr_regions = (u32)(sp->l.bytes / sp->l.region_bytes);
	sp->place = calloc(sp->nr_regions, sizeof(*sp->place));
	sp->top = calloc(sp->nr_regions, sizeof(*sp->top));
	sp->write_count = calloc(sp->nr_regions, sizeof(*sp->write_count));
	sp->hit = calloc(sp->nr_regions, 1);
	sp->source = calloc(sp->nr_regions, 1);
	for (u32 r = 0; sp->place && r < sp->nr_regions; r++)
		sp->place[r].donor = VIRTIO_GC_NO_DONOR;
	replay = replay_new(c->raw, c->bytes);
	if (replay && sp->place && sp->top && sp->write_count && sp->hit &&
	    sp->source) {
		replay_append(sp, replay);
		return VIRTIO_GC_OK;
	}
	free(replay);
	gc_space_forget(sp);
	return VIRTIO_GC_LIMIT;
}

u32 gc_do_destroy(struct dcm_gc_workers *t, const struct gc_call *c)
{
	u32 space = c->r->space;
	bool last = true;

	for (u32 i = 0; i < t->nr_donors; i++)
		if (t->donor[i].knows >> space & 1)
			gc_forget(t, i, space);
	gc_space_forget(&t->space[space]);
	for (u32 i = 0; i < DCM_GC_SPACES_MAX; i++)
		last &= !t->space[i].replay;
	if (last)
		gc_close_all(t);
	return VIRTIO_GC_OK;
}

/* Send types to all workers. If one refuses them, make the others forget the space. */
static u32 types_send(struct dcm_gc_workers *t, const struct gc_call *c)
{
	u32 status = VIRTIO_GC_DONOR_LOST, space = c->r->space, one;
	u64 taken = 0;

	for (u32 i = 0; i < t->nr_donors; i++) {
		struct ask ask = gc_ask_request(space, c->raw, c->bytes);

		one = donor_ready(t, i, space);
		if (!one) {
			one = gc_ask(t, &ask, 1ull << i);
			/* the worker has taken the types, or may have */
			if (!one || one == VIRTIO_GC_TIMED_OUT ||
			    one == VIRTIO_GC_CANCELLED)
				taken |= 1ull << i;
		}
		if (one == VIRTIO_GC_WORKER_LOST ||
		    one == VIRTIO_GC_DONOR_LOST) {
			/* the worker is gone: later commands that need it fail */
			status = one;
		} else if (one) {
			/* refused: all workers must know the same types again */
			t->space[space].lost |= !!taken;
			for (; taken; taken &= taken - 1)
				gc_forget(t, (u32)__builtin_ctzll(taken),
					  space);
			return one;
		}
	}
	return taken ? VIRTIO_GC_OK : status;
}

u32 gc_do_types(struct dcm_gc_workers *t, const struct gc_call *c)
{
	struct workers_space *sp = &t->space[c->r->space];
	bool replace = c->r->flags & VIRTIO_GC_TYPES_REPLACE;
	struct replay *replay = NULL;
	u32 status;

	if (replay_room(t, c->bytes))
		replay = replay_new(c->raw, c->bytes);
	if (!replay)
		return VIRTIO_GC_LIMIT;
	status = types_send(t, c);
	if (!status && replace)
		replay_drop(sp, sp->replay);
	if (!status && c->r->count)
		replay_append(sp, replay);
	else
		free(replay);
	return status;
}

u32 gc_do_donors(struct dcm_gc_workers *t, const struct gc_call *c)
{
	const struct dcm_gc_request *r = c->r;
	const struct virtio_gc_range *range = r->body;
	u32 first = le32toh(range->first), n = r->answer;
	const struct workers_space *sp = &t->space[r->space];
	__le32 *le = (void *)c->out->entries;

	if (first > sp->nr_regions || n > sp->nr_regions - first)
		return VIRTIO_GC_INVALID;
	for (u32 i = 0; i < n; i++) {
		struct dcm_gc_place_of p;
		bool there = t->ops->place(t->arg, r->space, first + i, &p);

		le[i] = htole32(there ? p.donor : VIRTIO_GC_NO_DONOR);
	}
	c->out->done.count = n;
	return VIRTIO_GC_OK;
}

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * workers_move.c - move objects and update references, by all donors of a space
 *
 * A region moves within one donor, so none of its objects cross the network;
 * the other donors then ask that donor about references into it. Moves
 * are made one by one: if one fails, those before it are committed and known to all
 * workers, and those after it have not begun.
 *
 * Locking: none, only the GC thread uses it.
 */
#include "workers_int.h"

static u32 region_donor(const struct workers_space *sp, u64 region)
{
	return region < sp->nr_regions ? sp->place[region].donor :
					 VIRTIO_GC_NO_DONOR;
}

/*
 * Runtimes rely on the answer, also to find tables: accept it only if it names
 * places that this donor holds, and for EVACUATE those that were asked for.
 */
static bool moved_check(const struct workers_space *sp, u32 donor,
			const struct virtio_gc_moved *moved,
			const struct virtio_gc_move *asked)
{
	u64 size = sp->l.region_bytes, table = le64toh(moved->table);
	u64 table_bytes = le64toh(moved->table_bytes),
	    end = le64toh(moved->end);
	u32 from = le32toh(moved->from), to = le32toh(moved->to);

	if (asked && (moved->from != asked->from || moved->to != asked->to))
		return false;
	if (moved->status)
		return asked;
	if (asked && moved->table != asked->table)
		return false;
	return from != to && region_donor(sp, from) == donor &&
	       region_donor(sp, to) == donor && end >= to * size &&
	       end - to * size <= size && !(table & 15) && table_bytes &&
	       table < sp->l.bytes && table_bytes <= sp->l.bytes - table &&
	       region_donor(sp, table / size) == donor &&
	       region_donor(sp, (table + table_bytes - 1) / size) == donor;
}

/* Check a worker's answer. False: it was wrong, and the worker is killed. */
static bool moved_accept(struct dcm_gc_workers *t, u32 space, u32 donor,
			 const struct virtio_gc_moved *moved, u32 n,
			 const struct virtio_gc_move *asked)
{
	for (u32 i = 0; i < n; i++) {
		if (moved_check(&t->space[space], donor, &moved[i], asked))
			continue;
		dcm_gc_conn_fail(&t->donor[donor].conn,
				 "reported moves of regions that it does not have");
		t->about = donor;
		gc_donor_close(t, donor);
		return false;
	}
	return true;
}

/*
 * Tell the other workers to ask the moving donor's worker for the objects' new places.
 */
static u32 moved_tell(struct dcm_gc_workers *t, u32 space,
		      const struct virtio_gc_moved *moved, u32 n, u32 donor)
{
	const struct workers_space *sp = &t->space[space];
	struct virtio_gc_region *le = calloc(n, sizeof(*le));
	struct ask ask = { .space = space };
	u32 status = VIRTIO_GC_OK, k = 0;

	if (!le)
		return VIRTIO_GC_LIMIT;
	for (u32 i = 0; i < n; i++)
		if (!moved[i].status)
			le[k++].region = moved[i].from;
	ask.msg.gc.kind = DCM_GC_MOVED;
	ask.msg.gc.n = k;
	ask.msg.payload = le;
	ask.msg.payload_bytes = k * (u32)sizeof(*le);
	if (k && sp->mask & ~(1ull << donor))
		status = gc_ask(t, &ask, sp->mask & ~(1ull << donor));
	free(le);
	return status;
}

/* Find the donor that has source, destination and table of a move. A status. */
static u32 move_donor(const struct workers_space *sp,
		      const struct virtio_gc_move *move, u32 *donor)
{
	u64 size = sp->l.region_bytes, table = le64toh(move->table);
	u64 table_bytes = le64toh(move->table_bytes);
	u32 from = le32toh(move->from), to = le32toh(move->to);

	if (from >= sp->nr_regions || to >= sp->nr_regions || !table_bytes ||
	    table >= sp->l.bytes || table_bytes > sp->l.bytes - table)
		return VIRTIO_GC_INVALID;
	*donor = region_donor(sp, from);
	if (*donor == VIRTIO_GC_NO_DONOR)
		return VIRTIO_GC_NO_TRACE;
	if (region_donor(sp, to) != *donor ||
	    region_donor(sp, table / size) != *donor ||
	    region_donor(sp, (table + table_bytes - 1) / size) != *donor)
		return VIRTIO_GC_CROSS_DONOR;
	return VIRTIO_GC_OK;
}

/* Moves are made in order: one may use what an earlier one made free. */
u32 gc_do_evacuate(struct dcm_gc_workers *t, const struct gc_call *c)
{
	const struct dcm_gc_request *r = c->r;
	struct workers_space *sp = &t->space[r->space];
	const struct virtio_gc_move *move = r->entries;
	struct virtio_gc_moved *moved = (void *)c->out->entries;
	u8 copy[sizeof(struct virtio_gc_req) + sizeof(*move)];
	struct virtio_gc_req *req = (void *)copy;
	u32 status = VIRTIO_GC_OK, donor = 0;
	u64 size = sp->l.region_bytes;

	memcpy(copy, c->raw, sizeof(*req));
	req->count = htole32(1);
	for (u32 i = 0; i < r->count; i++) {
		struct entries_ask e = gc_ask_entries(t, c, sizeof(*moved));
		u32 one = status ? status : move_donor(sp, &move[i], &donor);

		if (!one) {
			memcpy(copy + sizeof(*req), &move[i], sizeof(*move));
			e.ask.msg.payload = copy;
			e.ask.msg.payload_bytes = sizeof(copy);
			e.count = i;
			e.room = i + 1;
			gc_hit_none(sp);
			gc_hit_bytes(sp, le32toh(move[i].to) * size, size);
			gc_hit_bytes(sp, le64toh(move[i].table),
				     le64toh(move[i].table_bytes));
			one = gc_ask(t, &e.ask, 1ull << donor);
			if (!one && (e.count != i + 1 ||
				     !moved_accept(t, r->space, donor,
						   &moved[i], 1, &move[i])))
				one = VIRTIO_GC_WORKER_LOST;
			one = gc_changes_spread(t, r->space, one);
			/* a failed move ends all that follow */
			status = one;
			if (!one)
				status = moved_tell(t, r->space, &moved[i], 1,
						    donor);
		}
		if (one)
			moved[i] = (struct virtio_gc_moved){
				.status = htole32(one),
				.from = move[i].from,
				.to = move[i].to,
			};
	}
	c->out->done.count = r->count;
	return status;
}

u32 gc_do_update(struct dcm_gc_workers *t, const struct gc_call *c)
{
	struct entries_ask e = gc_ask_entries(t, c, 8);
	struct workers_space *sp = &t->space[c->r->space];
	u32 status;

	gc_hit_none(sp);
	gc_hit_listed(sp, c->r);
	status = gc_ask(t, &e.ask, sp->mask);
	c->out->done.value = e.value;
	c->out->done.at = e.ask.at;
	return gc_changes_spread(t, c->r->space, status);
}

/* The donor that moved an object returns its new address, others the old. */
static void take_forward(void *arg, u32 donor, const struct dcm_wire_msg *msg)
{
	struct entries_ask *e = arg;
	const __le64 *asked = e->r->entries, *got;
	u32 n;

	(void)donor;
	got = gc_take_entries(e, msg, &n);
	if (!got || e->ask.status)
		return;
	for (u32 i = 0; i < n && i < e->r->count; i++)
		if (got[i] != asked[i])
			memcpy(e->out->entries + i * sizeof(*got), &got[i],
			       sizeof(*got));
}

u32 gc_do_forward(struct dcm_gc_workers *t, const struct gc_call *c)
{
	const struct dcm_gc_request *r = c->r;
	struct entries_ask e = gc_ask_entries(t, c, sizeof(__le64));
	u32 status;

	memcpy(c->out->entries, r->entries, r->count * sizeof(__le64));
	e.ask.take = take_forward;
	status = gc_ask(t, &e.ask, t->space[r->space].mask);
	c->out->done.count = status ? 0 : r->count;
	return status;
}

/* Update references to moved objects in all regions, up to their new ends. */
static u32 compact_update(struct dcm_gc_workers *t,
			  const struct dcm_gc_request *r,
			  const struct virtio_gc_moved *moved, u32 n)
{
	size_t bytes = sizeof(struct virtio_gc_req) +
		       r->count * sizeof(struct virtio_gc_region);
	struct virtio_gc_req *req = malloc(bytes);
	struct virtio_gc_region *region;
	struct ask ask;
	u32 status;

	if (!req)
		return VIRTIO_GC_LIMIT;
	*req = (struct virtio_gc_req){
		.command = htole16(VIRTIO_GC_UPDATE),
		.space = htole32(r->space),
		.epoch = htole32(r->epoch),
		.count = htole32(r->count),
	};
	region = (void *)(req + 1);
	memcpy(region, r->entries, r->count * sizeof(*region));
	for (u32 i = 0; i < r->count; i++)
		for (u32 k = 0; k < n; k++)
			if (region[i].region == moved[k].to)
				region[i].top = moved[k].end;
	ask = gc_ask_request(r->space, req, bytes);
	status = gc_ask(t, &ask, t->space[r->space].mask);
	free(req);
	return status;
}

/* Commit a donor's moves of COMPACT before references are updated: spread them. */
static u32 compact_commit(struct dcm_gc_workers *t, u32 space,
			  const struct virtio_gc_moved *moved, u32 n)
{
	struct workers_space *sp = &t->space[space];
	u64 size = sp->l.region_bytes;

	gc_hit_none(sp);
	for (u32 i = 0; i < n; i++) {
		gc_hit_bytes(sp, le32toh(moved[i].to) * size, size);
		gc_hit_bytes(sp, le64toh(moved[i].table),
			     le64toh(moved[i].table_bytes));
	}
	return gc_changes_spread(t, space, VIRTIO_GC_OK);
}

/* Spread or undo all that COMPACT may have written. Returns the command's status. */
static u32 compact_changed(struct dcm_gc_workers *t, const struct gc_call *c,
			   u32 status)
{
	struct workers_space *sp = &t->space[c->r->space];
	const struct virtio_gc_area *area = c->r->body;

	gc_hit_none(sp);
	gc_hit_listed(sp, c->r);
	gc_hit_bytes(sp, le64toh(area->tables), le64toh(area->bytes));
	return gc_changes_spread(t, c->r->space, status);
}

/*
 * COMPACT, one donor after the other. If a donor has no room for its tables the others
 * go on, and references to the objects that they moved are updated, too. [VGC-D-44]
 */
u32 gc_do_compact(struct dcm_gc_workers *t, const struct gc_call *c)
{
	const struct dcm_gc_request *r = c->r;
	struct workers_space *sp = &t->space[r->space];
	struct virtio_gc_moved *moved = (void *)c->out->entries;
	struct entries_ask e = gc_ask_entries(t, c, sizeof(*moved));
	u32 status = VIRTIO_GC_OK, full = VIRTIO_GC_OK, before;

	for (u32 i = 0; !status && i < t->nr_donors; i++) {
		if (!(sp->mask >> i & 1))
			continue;
		before = e.count;
		status = gc_ask(t, &e.ask, 1ull << i);
		if (!moved_accept(t, r->space, i, moved + before,
				  e.count - before, NULL)) {
			e.count = before;
			status = VIRTIO_GC_WORKER_LOST;
		}
		if (status == VIRTIO_GC_NO_SPACE) {
			full = status;
			status = VIRTIO_GC_OK;
		}
		if (!status && e.count > before) {
			status = compact_commit(t, r->space, moved + before,
						e.count - before);
			if (status)
				e.count = before;
		}
		if (!status && e.count > before)
			status = moved_tell(t, r->space, moved + before,
					    e.count - before, i);
	}
	/* from here on the runtime can't do without the tables */
	if (!status && e.count && !t->ops->moved(t->arg, e.count))
		status = VIRTIO_GC_WORKER_LOST;
	if (!status && e.count)
		status = compact_update(t, r, moved, e.count);
	if (status || full || e.count)
		status = compact_changed(t, c, status);
	c->out->done.count = e.count;
	return status ? status : full;
}

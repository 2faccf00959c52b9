// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * workers.c - the GC workers of a window's donors, working together
 *
 * In mako-pldi22, 3 and 5, the CPU server coordinates; here the runtime is in a
 * guest and has no connections to donors, so the host coordinates. A command becomes
 * a series of questions, each to one worker or to all. While answers are awaited, the
 * workers' messages to each other are forwarded, and the deadline and the runtime's
 * CANCEL are checked.
 *
 * Differences from the paper: memory servers do not talk to each other, as
 * donors have no keys for each other. And a worker may end at any time. It is
 * started again when the next trace begins, and gets the spaces, their types and
 * the places of regions. A trace that it took part in is lost.
 *
 * A worker is trusted about its own regions, which it could overwrite anyway. Lengths,
 * and numbers of other workers, in its messages are checked.
 *
 *	connection: closed -> opening -> up, knows spaces -> failed -> closed
 *	space: no trace -> traced (@epoch) -> lost with a worker of @mask
 *
 * Locking: none, only the GC thread uses it.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "workers_int.h"
#include "commands.h"
#include "../lib/clock.h"
#include "../lib/log.h"

#define OPEN_MS 3000u /* to connect and have a worker started */
#define STOP_MS 1000u /* to answer after STOP, on a busy machine too */
#define TURN_MS 20u /* between looks at CANCEL */
#define SAY_MS 10000u /* between log lines about one donor's worker */
#define PEER_BYTES (DCM_GC_BATCH * 8u)

bool gc_conn_up(const struct dcm_gc_workers *t, u32 donor)
{
	return t->donor[donor].conn.state == DCM_GC_CONN_UP;
}

/* ---- connections ---- */

/* Close the connection to a donor's worker, which ends; its traces are lost. */
void gc_donor_close(struct dcm_gc_workers *t, u32 donor)
{
	struct workers_donor *d = &t->donor[donor];

	/* A guest controls how often this happens: limit the log. */
	if (d->conn.state == DCM_GC_CONN_FAILED &&
	    (!d->logged_ms || dcm_clock_ms() - d->logged_ms >= SAY_MS)) {
		d->logged_ms = dcm_clock_ms();
		dcm_log(DCM_LOG_NOTICE,
			"donor %u: its GC worker failed: %s; the next trace starts another",
			donor, d->conn.why);
	}
	dcm_gc_conn_close(&d->conn);
	d->knows = 0;
	d->nr_slabs = 0;
	d->tag = 0;
	for (u32 i = 0; i < DCM_GC_SPACES_MAX; i++)
		if (t->space[i].mask >> donor & 1)
			t->space[i].lost = true;
}

/* Forward a message from one worker to another. */
static void peer_forward(struct dcm_gc_workers *t, u32 from,
			 struct dcm_wire_msg *msg)
{
	u32 to = msg->gc.donor;

	if (to >= t->nr_donors || to == from ||
	    msg->gc.space >= DCM_GC_SPACES_MAX ||
	    msg->payload_bytes > PEER_BYTES || msg->payload_bytes % 8) {
		dcm_gc_conn_fail(&t->donor[from].conn,
				 "sent an invalid message");
		return;
	}
	/* if the receiver is gone the trace is lost, and the message not needed */
	msg->gc.donor = from;
	dcm_gc_conn_send(&t->donor[to].conn, msg);
}

static void conn_handle(struct dcm_gc_workers *t, u32 donor, struct ask *ask)
{
	struct workers_donor *d = &t->donor[donor];
	struct dcm_wire_msg msg;

	dcm_gc_conn_step(&d->conn);
	/* bounded: a worker that never stops must not starve others */
	for (u32 i = 0; i < 64 && dcm_gc_conn_recv(&d->conn, &msg); i++) {
		if (msg.type == DCM_MSG_ERROR) {
			dcm_gc_conn_fail(
				&d->conn,
				"the donor refuses a slab of this session");
			break;
		}
		switch (msg.gc.kind) {
		case DCM_GC_GHOSTS:
		case DCM_GC_ACKED:
		case DCM_GC_FORWARD:
		case DCM_GC_FORWARDED:
			peer_forward(t, donor, &msg);
			break;
		default:
			/* ignore an answer that nobody waits for any more */
			if (!ask || !d->tag || msg.tag != d->tag)
				break;
			d->tag = 0;
			ask->take(ask, donor, &msg);
		}
	}
	if (d->conn.state == DCM_GC_CONN_FAILED)
		gc_donor_close(t, donor);
}

void gc_workers_turn(struct dcm_gc_workers *t, struct ask *ask, int wake,
		     int ms)
{
	u32 n = t->nr_donors;

	for (u32 i = 0; i < n; i++)
		dcm_gc_conn_poll(&t->donor[i].conn, &t->fds[i]);
	t->fds[n] = (struct pollfd){ .fd = wake, .events = POLLIN };
	poll(t->fds, n + 1, ms);
	for (u32 i = 0; i < n; i++)
		if (t->donor[i].conn.state != DCM_GC_CONN_CLOSED)
			conn_handle(t, i, ask);
}

void gc_close_all(struct dcm_gc_workers *t)
{
	for (u32 i = 0; i < t->nr_donors; i++)
		gc_donor_close(t, i);
}

/* ---- questions ---- */

static u64 donors_waiting(const struct dcm_gc_workers *t)
{
	u64 mask = 0;

	for (u32 i = 0; i < t->nr_donors; i++)
		if (t->donor[i].tag)
			mask |= 1ull << i;
	return mask;
}

/*
 * Send a question to a worker. From now on only its answer is waited for, not that of
 * an earlier question. Does nothing if the worker is gone.
 */
static void ask_send(struct dcm_gc_workers *t, struct ask *ask, u32 donor)
{
	if (!gc_conn_up(t, donor))
		return;
	ask->msg.type = DCM_MSG_GC;
	ask->msg.gc.space = ask->space;
	ask->msg.tag = ++t->tag;
	t->donor[donor].tag = t->tag;
	dcm_gc_conn_send(&t->donor[donor].conn, &ask->msg);
}

/* Wait until all that were asked have answered; kill those that do not. */
static void answers_wait(struct dcm_gc_workers *t, struct ask *ask, u32 ms)
{
	u64 until = dcm_clock_ms() + ms, now;

	while (donors_waiting(t)) {
		now = dcm_clock_ms();
		if (now >= until)
			break;
		gc_workers_turn(t, ask, -1, (int)(until - now));
	}
	for (u32 i = 0; i < t->nr_donors; i++) {
		if (!t->donor[i].tag)
			continue;
		dcm_gc_conn_fail(&t->donor[i].conn,
				 "did not stop in time: killed");
		t->about = i;
		gc_donor_close(t, i);
	}
}

/* Stop the space's trace; a worker that does not answer soon is killed. */
void gc_workers_stop(struct dcm_gc_workers *t, struct ask *ask, u64 mask,
		     u32 status)
{
	struct dcm_wire_msg msg = {
		.type = DCM_MSG_GC,
		.gc = { .kind = DCM_GC_STOP,
			.space = ask->space,
			.value = status },
	};

	for (u32 i = 0; i < t->nr_donors; i++)
		if (mask >> i & 1)
			dcm_gc_conn_send(&t->donor[i].conn, &msg);
	answers_wait(t, ask, STOP_MS);
}

/*
 * Make a worker forget a space, even if the request is cancelled or its deadline has
 * passed. The worker serves other spaces too; it is killed only if it does not forget.
 */
void gc_forget(struct dcm_gc_workers *t, u32 donor, u32 space)
{
	struct virtio_gc_req req = {
		.command = htole16(VIRTIO_GC_SPACE_DESTROY),
		.space = htole32(space),
	};
	struct ask ask = gc_ask_request(space, &req, sizeof(req));
	struct workers_donor *d = &t->donor[donor];
	u32 about = t->about;

	d->knows &= ~(1u << space);
	if (!gc_conn_up(t, donor))
		return;
	ask.take = gc_take_done;
	ask_send(t, &ask, donor);
	answers_wait(t, &ask, STOP_MS);
	/* INVALID: the worker did not know the space yet */
	if (ask.status && ask.status != VIRTIO_GC_INVALID) {
		dcm_gc_conn_fail(&d->conn, "did not forget a space: killed");
		gc_donor_close(t, donor);
	}
	t->about = about;
}

/* The status for a donor that has no worker: is the worker gone, or the donor? */
u32 gc_gone_status(struct dcm_gc_workers *t, u32 donor)
{
	struct dcm_client_session_ref ref;
	bool there = dcm_client_session_ref_get(t->client, donor, &ref);

	explicit_bzero(&ref.s, sizeof(ref.s));
	t->about = donor;
	return there ? VIRTIO_GC_WORKER_LOST : VIRTIO_GC_DONOR_LOST;
}

u32 gc_ask(struct dcm_gc_workers *t, struct ask *ask, u64 mask)
{
	u32 status = VIRTIO_GC_OK;

	if (!ask->take)
		ask->take = gc_take_done;
	ask->status = VIRTIO_GC_OK;
	ask->at = VIRTIO_GC_NONE;
	for (u32 i = 0; i < t->nr_donors; i++)
		if (mask >> i & 1)
			ask_send(t, ask, i);
	for (;;) {
		u64 now = dcm_clock_ms();

		for (u32 i = 0; !status && i < t->nr_donors; i++)
			if (mask >> i & 1 && !gc_conn_up(t, i))
				status = gc_gone_status(t, i);
		if (status || !donors_waiting(t))
			break;
		if (t->ops->cancelled(t->arg))
			status = VIRTIO_GC_CANCELLED;
		else if (now >= t->expires_ms)
			status = VIRTIO_GC_TIMED_OUT;
		else
			gc_workers_turn(t, ask, -1,
					(int)min(t->expires_ms - now,
						 (u64)TURN_MS));
		if (status)
			break;
	}
	if (status)
		gc_workers_stop(t, ask, mask, status);
	return status ? status : ask->status;
}

/* Take a DONE. */
void gc_take_done(void *arg, u32 donor, const struct dcm_wire_msg *msg)
{
	const struct virtio_gc_done *done = msg->payload;
	struct ask *ask = arg;

	(void)donor;
	if (ask->status)
		return;
	if (msg->gc.kind != DCM_GC_DONE || msg->payload_bytes < sizeof(*done))
		ask->status = VIRTIO_GC_WORKER_LOST;
	else
		ask->status = le32toh(done->status);
	if (ask->status && msg->payload_bytes >= sizeof(*done))
		ask->at = le64toh(done->at);
}

struct ask gc_ask_request(u32 space, const void *raw, size_t bytes)
{
	return (struct ask){
		.space = space,
		.msg = { .gc.kind = DCM_GC_REQUEST,
			 .payload = raw,
			 .payload_bytes = (u32)bytes },
	};
}

u32 gc_donor_open(struct dcm_gc_workers *t, u32 donor)
{
	struct workers_donor *d = &t->donor[donor];
	u64 until = min(t->expires_ms, dcm_clock_ms() + OPEN_MS), now;
	struct dcm_client_session_ref ref;

	if (gc_conn_up(t, donor))
		return VIRTIO_GC_OK;
	t->about = donor;
	if (!dcm_client_session_ref_get(t->client, donor, &ref))
		return VIRTIO_GC_DONOR_LOST;
	/* the new worker knows no space and no slab of an earlier one */
	d->knows = 0;
	d->nr_slabs = 0;
	dcm_gc_conn_start(&d->conn, &ref, donor, t->bytes, dcm_clock_ms());
	explicit_bzero(&ref.s, sizeof(ref.s));
	for (;;) {
		now = dcm_clock_ms();
		if (d->conn.state == DCM_GC_CONN_FAILED)
			gc_donor_close(t, donor);
		if (d->conn.state == DCM_GC_CONN_CLOSED)
			return VIRTIO_GC_WORKER_LOST;
		if (gc_conn_up(t, donor))
			return VIRTIO_GC_OK;
		if (now >= until || t->ops->cancelled(t->arg))
			break;
		gc_workers_turn(t, NULL, -1,
				(int)min(until - now, (u64)TURN_MS));
	}
	dcm_gc_conn_fail(&d->conn, "did not start in time");
	gc_donor_close(t, donor);
	return now >= t->expires_ms ? VIRTIO_GC_TIMED_OUT :
				      VIRTIO_GC_WORKER_LOST;
}

const void *gc_take_entries(struct entries_ask *e,
			    const struct dcm_wire_msg *msg, u32 *n)
{
	const struct virtio_gc_done *done = msg->payload;

	gc_take_done(&e->ask, 0, msg);
	if (msg->gc.kind != DCM_GC_DONE || msg->payload_bytes < sizeof(*done))
		return NULL;
	*n = le32toh(done->count);
	if (msg->payload_bytes != sizeof(*done) + (u64)*n * e->entry) {
		e->ask.status = VIRTIO_GC_WORKER_LOST;
		return NULL;
	}
	e->value += le64toh(done->value);
	return done + 1;
}

/* Append the answer's entries to those taken before. */
static void entries_append(void *arg, u32 donor, const struct dcm_wire_msg *msg)
{
	struct entries_ask *e = arg;
	const void *entries;
	u32 n;

	(void)donor;
	entries = gc_take_entries(e, msg, &n);
	if (!entries || !n)
		return;
	if (n > e->room - e->count) {
		e->ask.status = VIRTIO_GC_WORKER_LOST;
		return;
	}
	memcpy(e->out->entries + (size_t)e->count * e->entry, entries,
	       (size_t)n * e->entry);
	e->count += n;
}

struct entries_ask gc_ask_entries(const struct dcm_gc_workers *t,
				  const struct gc_call *c, size_t entry)
{
	struct entries_ask e = {
		.ask = gc_ask_request(c->r->space, c->raw, c->bytes),
		.r = c->r,
		.sp = &t->space[c->r->space],
		.out = c->out,
		.entry = (u32)entry,
		.room = c->r->answer,
	};

	e.ask.take = entries_append;
	return e;
}

/* ---- commands ---- */

/*
 * Check that the trace that a command names exists and has all its workers. A status.
 */
static u32 trace_check(struct dcm_gc_workers *t, const struct dcm_gc_request *r)
{
	struct workers_space *sp = &t->space[r->space];

	if (!r->epoch || sp->epoch != r->epoch)
		return VIRTIO_GC_NO_TRACE;
	for (u32 i = 0; sp->lost && i < t->nr_donors; i++)
		if (sp->mask >> i & 1 && !gc_conn_up(t, i))
			return gc_gone_status(t, i);
	return sp->lost ? VIRTIO_GC_WORKER_LOST : VIRTIO_GC_OK;
}

/* Check that workers know the places of all regions of the command. A status. */
static u32 places_check(struct dcm_gc_workers *t,
			const struct dcm_gc_request *r)
{
	u32 status;

	/* if a region was moved to another slab, its part of the trace is lost */
	if (!gc_space_stays(t, r->space)) {
		t->space[r->space].lost = true;
		return VIRTIO_GC_WORKER_LOST;
	}
	status = gc_space_grow(t, r->space, false);
	/* else references in a region without a place would not be updated */
	if (!status && r->command != VIRTIO_GC_EVACUATE &&
	    !(dcm_gc_request_ranges(r) ? gc_space_has_ranges(t, r) :
					 gc_space_has(t, r)))
		status = VIRTIO_GC_WORKER_LOST;
	return status;
}

/* A command whose answers are only a status. */
u32 gc_do_status(struct dcm_gc_workers *t, const struct gc_call *c)
{
	struct ask ask = gc_ask_request(c->r->space, c->raw, c->bytes);
	u32 status = gc_ask(t, &ask, t->space[c->r->space].mask);

	c->out->done.at = ask.at;
	return status;
}

enum targets {
	TARGETS_NONE,
	TARGETS_SPACE,
	TARGETS_TRACE,
	TARGETS_PLACES,
};

/* A row of the table, without the columns of command.c. */
static const struct {
	enum targets targets;
	u32 (*take)(struct dcm_gc_workers *t, const struct gc_call *c);
} commands[] = {
#define ROW(name, freeze, sync, run, targets, take) \
	[VIRTIO_GC_##name] = { TARGETS_##targets, take },
	DCM_GC_COMMANDS(ROW)
#undef ROW
};

/* Check that the workers that the command needs are there. A status. */
static u32 targets_check(struct dcm_gc_workers *t,
			 const struct dcm_gc_request *r)
{
	enum targets targets = commands[r->command].targets;
	u32 status = VIRTIO_GC_OK;

	if (r->space >= DCM_GC_SPACES_MAX ||
	    (r->command != VIRTIO_GC_SPACE_CREATE &&
	     !t->space[r->space].replay))
		return VIRTIO_GC_INVALID;
	if (targets == TARGETS_NONE)
		return VIRTIO_GC_UNSUPPORTED;
	if (dcm_gc_request_ranges(r) &&
	    dcm_gc_ranges_check(&t->space[r->space].l, r->entries, r->count))
		return VIRTIO_GC_INVALID;
	if (targets >= TARGETS_TRACE)
		status = trace_check(t, r);
	if (!status && targets == TARGETS_PLACES)
		status = places_check(t, r);
	return status;
}

void dcm_gc_workers_do(struct dcm_gc_workers *t, const struct dcm_gc_request *r,
		       const void *raw, size_t bytes, u64 expires_ms,
		       struct dcm_gc_reply *out)
{
	const struct gc_call c = { r, raw, bytes, out };
	u32 status;

	dcm_gc_reply_clear(out);
	t->expires_ms = expires_ms;
	t->about = VIRTIO_GC_NO_DONOR;
	/* a donor's index is never used for another donor */
	t->nr_donors = min(dcm_client_donors(t->client), DCM_WIRE_GC_DONORS);
	status = targets_check(t, r);
	if (!status)
		status = commands[r->command].take(t, &c);
	out->done.status = status;
	if (status)
		out->done.donor = t->about;
}

bool dcm_gc_workers_rests(struct dcm_gc_workers *t,
			  const struct dcm_gc_request *r)
{
	gc_space_find(t, r->space);
	return gc_space_has(t, r);
}

bool dcm_gc_workers_idle(struct dcm_gc_workers *t, int wake)
{
	struct pollfd p = { .fd = wake, .events = POLLIN };
	bool any = false;

	for (u32 i = 0; i < t->nr_donors; i++)
		any |= t->donor[i].conn.state != DCM_GC_CONN_CLOSED;
	if (any && !poll(&p, 1, 0))
		gc_workers_turn(t, NULL, wake, 1000);
	return any;
}

void dcm_gc_workers_reset(struct dcm_gc_workers *t)
{
	gc_close_all(t);
	for (u32 i = 0; i < DCM_GC_SPACES_MAX; i++)
		gc_space_forget(&t->space[i]);
}

struct dcm_gc_workers *dcm_gc_workers_new(struct dcm_client *client, u64 bytes,
					  const struct dcm_gc_workers_ops *ops,
					  void *arg)
{
	struct dcm_gc_workers *t = calloc(1, sizeof(*t));
	bool good;

	if (!t)
		return NULL;
	t->client = client;
	t->ops = ops;
	t->arg = arg;
	t->bytes = bytes;
	t->nr_donors = min(dcm_client_donors(client), DCM_WIRE_GC_DONORS);
	/* donors may be added later */
	t->donor = calloc(DCM_WIRE_GC_DONORS, sizeof(*t->donor));
	t->fds = calloc(DCM_WIRE_GC_DONORS + 1, sizeof(*t->fds));
	good = t->donor && t->fds;
	for (u32 i = 0; good && i < DCM_WIRE_GC_DONORS; i++) {
		t->donor[i].conn.fd = -1;
		t->donor[i].slab =
			calloc(DCM_WIRE_GC_SLABS, sizeof(*t->donor->slab));
		good = t->donor[i].slab;
	}
	if (good)
		return t;
	dcm_gc_workers_free(t);
	return NULL;
}

void dcm_gc_workers_free(struct dcm_gc_workers *t)
{
	if (!t)
		return;
	dcm_gc_workers_reset(t);
	for (u32 i = 0; t->donor && i < DCM_WIRE_GC_DONORS; i++)
		free(t->donor[i].slab);
	free(t->donor);
	free(t->fds);
	free(t);
}

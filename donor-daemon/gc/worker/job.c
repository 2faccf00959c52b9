// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * job.c - requests: done at once, or by another thread if they take long
 *
 * Moving and updating take long: a second thread does one such request after the
 * other, while the first thread goes on with polls, ghosts and questions of
 * other donors. Meanwhile the first thread does only requests that are allowed while a
 * space is in use, and refuses others with BUSY.
 *
 * If the other thread needs an answer of another donor it sends the question,
 * and sleeps until the first thread has the answer, or has to stop.
 *
 *	idle -> busy [-> asking -> answered or stopped -> busy] -> idle, answered
 *
 * Locking: @lock guards struct job, except the request itself, which is the
 * other thread's while @busy. It is not held while a message is sent. The first
 * thread makes and frees spaces, and only while the other is idle.
 */
#include <endian.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "job.h"

/* A request that takes long, and its question to another donor. */
struct job {
	pthread_mutex_t lock;
	pthread_cond_t there;
	bool busy;
	u32 space;
	u32 stop;
	u64 request[WORKER_BUFFER / 8];
	u32 bytes;
	bool asking;
	u64 ask_tag;
	u32 answers;
	u64 answer[DCM_GC_BATCH];
};

struct worker_space worker_spaces[DCM_GC_SPACES_MAX];

static struct job job = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.there = PTHREAD_COND_INITIALIZER,
};

static const struct dcm_gc_limits limits = {
	.features = 1u << VIRTIO_GC_F_TRACE | 1u << VIRTIO_GC_F_CONCURRENT |
		    1u << VIRTIO_GC_F_EVACUATE | 1u << VIRTIO_GC_F_COMPACT |
		    1u << VIRTIO_GC_F_WHOLE | 1u << VIRTIO_GC_F_TAIL |
		    1u << VIRTIO_GC_F_REPLACE | 1u << VIRTIO_GC_F_RANGES |
		    1u << VIRTIO_GC_F_STATE | 1u << VIRTIO_GC_F_ASK |
		    1u << VIRTIO_GC_F_CLEAR | 1u << VIRTIO_GC_F_CARDS,
	.spaces_max = DCM_GC_SPACES_MAX,
	.request_max = DCM_GC_PAYLOAD_MAX,
	.response_max = DCM_GC_PAYLOAD_MAX,
};

/* ---- to other donors, from the engine's threads ---- */

static bool peer_ghosts(void *arg, u32 epoch, u32 donor, const u64 *offsets,
			u32 n)
{
	const struct worker_space *p = arg;
	struct dcm_gc_message msg = {
		.kind = htole32(DCM_GC_GHOSTS),
		.space = htole32(p->number),
		.epoch = htole32(epoch),
		.n = htole32(n),
		.donor = htole32(donor),
		.bytes = htole32(n * (u32)sizeof(*offsets)),
	};
	__le64 le[DCM_GC_BATCH];

	for (u32 i = 0; i < n; i++)
		le[i] = htole64(offsets[i]);
	worker_send(&msg, le);
	return true;
}

static bool peer_forward(void *arg, u32 donor, u64 *offsets, u32 n)
{
	const struct worker_space *p = arg;
	__le64 le[DCM_GC_BATCH];
	struct dcm_gc_message msg;
	bool answered;

	for (u32 i = 0; i < n; i++)
		le[i] = htole64(offsets[i]);
	pthread_mutex_lock(&job.lock);
	job.asking = true;
	job.answers = 0;
	msg = (struct dcm_gc_message){
		.kind = htole32(DCM_GC_FORWARD),
		.space = htole32(p->number),
		.tag = htole64(++job.ask_tag),
		.n = htole32(n),
		.donor = htole32(donor),
		.bytes = htole32(n * (u32)sizeof(*offsets)),
	};
	pthread_mutex_unlock(&job.lock);
	worker_send(&msg, le);
	pthread_mutex_lock(&job.lock);
	while (!job.answers && !job.stop)
		pthread_cond_wait(&job.there, &job.lock);
	answered = job.answers == n;
	if (answered)
		memcpy(offsets, job.answer, n * sizeof(*offsets));
	job.asking = false;
	pthread_mutex_unlock(&job.lock);
	return answered;
}

void job_answered(const struct dcm_gc_message *msg, const __le64 *le, u32 n)
{
	pthread_mutex_lock(&job.lock);
	if (job.asking && le64toh(msg->tag) == job.ask_tag && n &&
	    n <= DCM_GC_BATCH) {
		for (u32 i = 0; i < n; i++)
			job.answer[i] = le64toh(le[i]);
		job.answers = n;
		pthread_cond_broadcast(&job.there);
	}
	pthread_mutex_unlock(&job.lock);
}

/* ---- requests ---- */

/* A command: sets the rest of @out->done, and returns its status. */
typedef u32 (*command_fn)(struct worker_space *p,
			  const struct dcm_gc_request *r,
			  struct dcm_gc_reply *out);

static u32 space_create(struct worker_space *p, const struct dcm_gc_request *r,
			struct dcm_gc_reply *out)
{
	struct dcm_gc_layout l;
	u64 window;
	u32 status;

	(void)out;
	if (p->s)
		return VIRTIO_GC_INVALID;
	dcm_gc_request_layout(r, &l, &window);
	p->s = dcm_gc_space_new(&l, worker_donor, &status);
	if (!p->s)
		return status;
	p->write_counts =
		calloc(dcm_gc_space_regions(p->s), sizeof(*p->write_counts));
	if (!p->write_counts) {
		dcm_gc_space_free(p->s);
		p->s = NULL;
		return VIRTIO_GC_LIMIT;
	}
	p->number = r->space;
	p->peers = (struct dcm_gc_peers){ peer_ghosts, peer_forward, p };
	return VIRTIO_GC_OK;
}

static u32 space_destroy(struct worker_space *p, const struct dcm_gc_request *r,
			 struct dcm_gc_reply *out)
{
	(void)r;
	(void)out;
	dcm_gc_space_free(p->s);
	free(p->write_counts);
	p->s = NULL;
	return VIRTIO_GC_OK;
}

static u32 types_add(struct worker_space *p, const struct dcm_gc_request *r,
		     struct dcm_gc_reply *out)
{
	const struct virtio_gc_types *types = r->body;

	(void)out;
	return dcm_gc_types_add(p->s, r->flags, r->entries, r->entries_bytes,
				r->count, le32toh(types->runs));
}

static u32 trace_start(struct worker_space *p, const struct dcm_gc_request *r,
		       struct dcm_gc_reply *out)
{
	struct dcm_gc_start how = {
		.epoch = r->epoch,
		.flags = r->flags,
		.threads = worker_threads,
		.regions = r->entries,
		.nr_regions = r->count,
		.peers = &p->peers,
	};

	(void)out;
	return dcm_gc_trace_start(p->s, &how);
}

static u32 trace_roots(struct worker_space *p, const struct dcm_gc_request *r,
		       struct dcm_gc_reply *out)
{
	struct dcm_gc_result result =
		dcm_gc_request_ranges(r) ?
			dcm_gc_trace_ranges(p->s, r->epoch, r->entries,
					    r->count) :
			dcm_gc_trace_roots(p->s, r->epoch, r->entries,
					   r->count);

	out->done.at = result.at;
	return result.status;
}

static u32 trace_met(struct worker_space *p, const struct dcm_gc_request *r,
		     struct dcm_gc_reply *out)
{
	const struct virtio_gc_met *what = r->body;

	if (le32toh(what->what) == VIRTIO_GC_MET_CLEAR)
		return dcm_gc_trace_clear(p->s, r->epoch, r->flags,
					  (void *)out->entries, r->answer,
					  &out->done.count, &out->done.value);
	return dcm_gc_trace_met(p->s, r->epoch, le32toh(what->what),
				(void *)out->entries, r->answer,
				&out->done.count, &out->done.value);
}

static u32 trace_ask(struct worker_space *p, const struct dcm_gc_request *r,
		     struct dcm_gc_reply *out)
{
	u32 status = dcm_gc_trace_ask(p->s, r->epoch, r->entries, r->count,
				      out->entries);

	out->done.count = status ? 0 : r->answer;
	return status;
}

static u32 trace_results(struct worker_space *p, const struct dcm_gc_request *r,
			 struct dcm_gc_reply *out)
{
	const struct virtio_gc_range *range = r->body;
	struct virtio_gc_live *live = (void *)out->entries;
	u32 first = le32toh(range->first), n = r->answer;

	if (first >= dcm_gc_space_regions(p->s) ||
	    n > dcm_gc_space_regions(p->s) - first)
		return VIRTIO_GC_INVALID;
	for (u32 i = 0; i < n; i++)
		dcm_gc_trace_live(p->s, r->epoch, first + i, &live[i]);
	out->done.count = n;
	return VIRTIO_GC_OK;
}

static u32 trace_cards(struct worker_space *p, const struct dcm_gc_request *r,
		       struct dcm_gc_reply *out)
{
	const struct virtio_gc_cards *cards = r->body;
	struct dcm_gc_result result = { VIRTIO_GC_OK, VIRTIO_GC_NONE };

	if (r->flags & VIRTIO_GC_CARDS_BEGIN)
		result.status = dcm_gc_cards_begin(p->s, r->epoch, cards->shift,
						   r->entries, r->count);
	else if (dcm_gc_request_ranges(r))
		result.status = dcm_gc_cards_ranges(p->s, r->epoch, r->entries,
						    r->count);
	if (!result.status)
		result = dcm_gc_cards_next(p->s, r->epoch, (void *)out->entries,
					   r->answer, &out->done.count,
					   &out->done.value);
	out->done.at = result.at;
	return result.status;
}

static u32 regions_evacuate(struct worker_space *p,
			    const struct dcm_gc_request *r,
			    struct dcm_gc_reply *out)
{
	const struct virtio_gc_move *move = r->entries;
	struct virtio_gc_moved *moved = (void *)out->entries;

	for (u32 i = 0; i < r->count; i++)
		dcm_gc_move(p->s, r->epoch, &move[i], r->flags, &moved[i]);
	out->done.count = r->count;
	return VIRTIO_GC_OK;
}

static u32 regions_update(struct worker_space *p,
			  const struct dcm_gc_request *r,
			  struct dcm_gc_reply *out)
{
	struct dcm_gc_result result =
		dcm_gc_request_ranges(r) ?
			dcm_gc_update_ranges(p->s, r->entries, r->count,
					     &p->peers, &out->done.value) :
			dcm_gc_update(p->s, r->entries, r->count, &p->peers,
				      &out->done.value);

	out->done.at = result.at;
	return result.status;
}

static u32 references_forward(struct worker_space *p,
			      const struct dcm_gc_request *r,
			      struct dcm_gc_reply *out)
{
	u64 address = dcm_gc_space_address(p->s);
	const __le64 *le = r->entries;
	__le64 *to = (void *)out->entries;

	for (u32 i = 0; i < r->count; i++) {
		u64 offset = le64toh(le[i]) - address;

		/* values outside the space are returned unchanged */
		if (le[i])
			dcm_gc_forward(p->s, &offset, 1);
		to[i] = le[i] ? htole64(offset + address) : 0;
	}
	out->done.count = r->count;
	return VIRTIO_GC_OK;
}

static u32 regions_release(struct worker_space *p,
			   const struct dcm_gc_request *r,
			   struct dcm_gc_reply *out)
{
	const struct virtio_gc_region *region = r->entries;
	u32 status = VIRTIO_GC_OK;

	(void)out;
	for (u32 i = 0; !status && i < r->count; i++)
		status = dcm_gc_release(p->s, le32toh(region[i].region));
	return status;
}

static u32 regions_compact(struct worker_space *p,
			   const struct dcm_gc_request *r,
			   struct dcm_gc_reply *out)
{
	const struct virtio_gc_area *area = r->body;

	return dcm_gc_compact(p->s, r->epoch, r->entries, r->count,
			      le64toh(area->tables), le64toh(area->bytes),
			      (void *)out->entries, &out->done.count);
}

/*
 * The commands of workers; the host asks no worker for the others.
 * @slow: done by the second thread
 * @beside: allowed while the second thread works on another request; but not with
 *	VIRTIO_GC_TYPES_REPLACE
 */
static const struct command {
	command_fn run;
	bool slow;
	bool beside;
} commands[] = {
	[VIRTIO_GC_SPACE_CREATE] = { .run = space_create },
	[VIRTIO_GC_SPACE_DESTROY] = { .run = space_destroy },
	[VIRTIO_GC_TYPES_ADD] = { .run = types_add, .beside = true },
	[VIRTIO_GC_TRACE_START] = { .run = trace_start },
	[VIRTIO_GC_TRACE_ROOTS] = { .run = trace_roots },
	[VIRTIO_GC_TRACE_MET] = { .run = trace_met },
	[VIRTIO_GC_TRACE_ASK] = { .run = trace_ask },
	[VIRTIO_GC_TRACE_RESULTS] = { .run = trace_results },
	[VIRTIO_GC_TRACE_CARDS] = { .run = trace_cards, .slow = true },
	[VIRTIO_GC_EVACUATE] = { .run = regions_evacuate, .slow = true },
	[VIRTIO_GC_UPDATE] = { .run = regions_update, .slow = true },
	[VIRTIO_GC_FORWARD] = { .run = references_forward, .beside = true },
	[VIRTIO_GC_RELEASE] = { .run = regions_release },
	[VIRTIO_GC_COMPACT] = { .run = regions_compact, .slow = true },
};

static const struct command *command_find(u32 number)
{
	static const struct command none;

	return number < ARRAY_SIZE(commands) ? &commands[number] : &none;
}

/* Carry out a request; returns the length of the answer in @out->le. */
static u32 request_reply(const void *bytes, u32 len, struct dcm_gc_reply *out)
{
	struct dcm_gc_request r;
	u32 status =
		dcm_gc_request_read(bytes, len, DCM_GC_REPLY_MAX, &limits, &r);
	command_fn run;

	dcm_gc_reply_clear(out);
	out->done.donor = worker_donor;
	if (!status && r.command != VIRTIO_GC_SPACE_CREATE &&
	    !worker_spaces[r.space].s)
		status = VIRTIO_GC_INVALID;
	if (!status) {
		run = command_find(r.command)->run;
		status = run ? run(&worker_spaces[r.space], &r, out) :
			       VIRTIO_GC_UNSUPPORTED;
	}
	out->done.status = status;
	return (u32)dcm_gc_reply_pack(out, r.answer_entry);
}

static void *job_main(void *arg)
{
	static struct dcm_gc_reply out;
	struct dcm_gc_message msg;
	u32 bytes;

	(void)arg;
	for (;;) {
		pthread_mutex_lock(&job.lock);
		while (!job.busy)
			pthread_cond_wait(&job.there, &job.lock);
		pthread_mutex_unlock(&job.lock);
		memcpy(&msg, job.request, sizeof(msg));
		bytes = request_reply((u8 *)job.request + sizeof(msg),
				      job.bytes, &out);
		pthread_mutex_lock(&job.lock);
		job.busy = false;
		job.stop = 0;
		if (job.space < DCM_GC_SPACES_MAX && worker_spaces[job.space].s)
			dcm_gc_stop(worker_spaces[job.space].s, 0);
		pthread_mutex_unlock(&job.lock);
		/* answer only when not busy: the host may send the next at once */
		worker_answer(&msg, DCM_GC_DONE, &out.le, bytes);
	}
	return NULL;
}

void job_request(const struct dcm_gc_message *msg, const void *bytes, u32 len)
{
	static struct dcm_gc_reply out;
	const struct virtio_gc_req *req = bytes;
	const struct command *command =
		command_find(len < sizeof(*req) ? 0 : le16toh(req->command));
	bool busy;

	pthread_mutex_lock(&job.lock);
	busy = job.busy;
	if (command->slow && !busy) {
		memcpy(job.request, msg, sizeof(*msg));
		memcpy((u8 *)job.request + sizeof(*msg), bytes, len);
		job.bytes = len;
		job.space = le32toh(req->space);
		job.busy = true;
		pthread_cond_broadcast(&job.there);
	}
	pthread_mutex_unlock(&job.lock);
	if (command->slow && !busy)
		return;
	if (busy && (!command->beside ||
		     (command->run == types_add &&
		      le16toh(req->flags) & VIRTIO_GC_TYPES_REPLACE))) {
		worker_done(msg, VIRTIO_GC_BUSY, VIRTIO_GC_NONE);
		return;
	}
	len = request_reply(bytes, len, &out);
	worker_answer(msg, DCM_GC_DONE, &out.le, len);
}

bool job_busy(void)
{
	bool busy;

	pthread_mutex_lock(&job.lock);
	busy = job.busy;
	pthread_mutex_unlock(&job.lock);
	return busy;
}

void job_stop(struct worker_space *p, u32 status)
{
	if (!status || status >= VIRTIO_GC_STATUSES)
		status = VIRTIO_GC_CANCELLED;
	pthread_mutex_lock(&job.lock);
	dcm_gc_trace_cancel(p->s, status);
	if (job.busy && job.space == p->number) {
		dcm_gc_stop(p->s, status);
		job.stop = status;
		pthread_cond_broadcast(&job.there);
	}
	pthread_mutex_unlock(&job.lock);
}

int job_start(void)
{
	pthread_attr_t attr;
	pthread_t thread;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 256 << 10);
	return pthread_create(&thread, &attr, job_main, NULL);
}

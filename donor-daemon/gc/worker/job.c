// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * job.c - requests: done at once, or by another thread if they take long
 *
 * Moving and updating take long: another thread does one such request after the
 * other, while the first thread goes on with polls, ghosts and questions of
 * other donors. Meanwhile the first thread does only requests that a space in
 * use allows, and refuses the others as busy.
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
		    1u << VIRTIO_GC_F_EVACUATE | 1u << VIRTIO_GC_F_COMPACT,
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
	worker_say(&msg, le);
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
	worker_say(&msg, le);
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

struct reply {
	struct virtio_gc_done done;
	u8 entries[DCM_GC_PAYLOAD_MAX - sizeof(struct virtio_gc_done)];
};

static u32 space_create(const struct dcm_gc_request *r)
{
	struct worker_space *p = &worker_spaces[r->space];
	struct dcm_gc_layout l;
	u64 window;
	u32 status;

	if (p->s)
		return VIRTIO_GC_INVALID;
	dcm_gc_request_layout(r, &l, &window);
	p->s = dcm_gc_space_new(&l, worker_donor, &status);
	if (!p->s)
		return status;
	p->tags = calloc(dcm_gc_space_regions(p->s), sizeof(*p->tags));
	if (!p->tags) {
		dcm_gc_space_free(p->s);
		p->s = NULL;
		return VIRTIO_GC_LIMIT;
	}
	p->number = r->space;
	p->peers = (struct dcm_gc_peers){ peer_ghosts, peer_forward, p };
	return VIRTIO_GC_OK;
}

static u32 trace_start(struct worker_space *p, const struct dcm_gc_request *r)
{
	struct dcm_gc_start how = {
		.epoch = r->epoch,
		.flags = r->flags,
		.threads = worker_threads,
		.regions = r->entries,
		.nr_regions = r->count,
		.peers = &p->peers,
	};

	return dcm_gc_trace_start(p->s, &how);
}

static u32 results(struct worker_space *p, const struct dcm_gc_request *r,
		   struct reply *out)
{
	const struct virtio_gc_range *range = r->body;
	struct virtio_gc_live *live = (void *)out->entries;
	u32 first = le32toh(range->first), n = r->answer;

	if (first >= dcm_gc_space_regions(p->s) ||
	    n > dcm_gc_space_regions(p->s) - first)
		return VIRTIO_GC_INVALID;
	for (u32 i = 0; i < n; i++)
		dcm_gc_trace_live(p->s, r->epoch, first + i, &live[i]);
	out->done.count = htole32(n);
	return VIRTIO_GC_OK;
}

static u32 evacuate(struct worker_space *p, const struct dcm_gc_request *r,
		    struct reply *out)
{
	const struct virtio_gc_move *move = r->entries;
	struct virtio_gc_moved *moved = (void *)out->entries;

	for (u32 i = 0; i < r->count; i++)
		dcm_gc_move(p->s, r->epoch, &move[i], r->flags, &moved[i]);
	out->done.count = htole32(r->count);
	return VIRTIO_GC_OK;
}

static u32 forward(struct worker_space *p, const struct dcm_gc_request *r,
		   struct reply *out, u64 address)
{
	const __le64 *le = r->entries;
	__le64 *to = (void *)out->entries;

	for (u32 i = 0; i < r->count; i++) {
		u64 offset = le64toh(le[i]) - address;

		/* values outside the space are returned unchanged */
		if (le[i])
			dcm_gc_forward(p->s, &offset, 1);
		to[i] = le[i] ? htole64(offset + address) : 0;
	}
	out->done.count = htole32(r->count);
	return VIRTIO_GC_OK;
}

static u32 release(struct worker_space *p, const struct dcm_gc_request *r)
{
	const struct virtio_gc_region *region = r->entries;
	u32 status = VIRTIO_GC_OK;

	for (u32 i = 0; !status && i < r->count; i++)
		status = dcm_gc_release(p->s, le32toh(region[i].region));
	return status;
}

static u32 met(struct worker_space *p, const struct dcm_gc_request *r,
	       struct reply *out)
{
	const struct virtio_gc_met *what = r->body;
	u64 left;
	u32 n, status;

	status = dcm_gc_trace_met(p->s, r->epoch, le32toh(what->what),
				  (void *)out->entries, r->answer, &n, &left);
	out->done.count = htole32(n);
	out->done.value = htole64(left);
	return status;
}

/* Carry out a request and fill in the answer. */
static void request_do(struct worker_space *p, const struct dcm_gc_request *r,
		       struct reply *out)
{
	struct dcm_gc_result result = { VIRTIO_GC_OK, VIRTIO_GC_NONE };
	const struct virtio_gc_types *types = r->body;
	const struct virtio_gc_area *area = r->body;
	const struct virtio_gc_region *region = r->entries;
	u64 updated = 0;
	u32 n;

	switch (r->command) {
	case VIRTIO_GC_SPACE_CREATE:
		result.status = space_create(r);
		break;
	case VIRTIO_GC_SPACE_DESTROY:
		dcm_gc_space_free(p->s);
		free(p->tags);
		p->s = NULL;
		break;
	case VIRTIO_GC_TYPES_ADD:
		result.status = dcm_gc_types_add(p->s, r->entries,
						 r->entries_bytes, r->count,
						 le32toh(types->runs));
		break;
	case VIRTIO_GC_TRACE_START:
		result.status = trace_start(p, r);
		break;
	case VIRTIO_GC_TRACE_ROOTS:
		result = dcm_gc_trace_roots(p->s, r->epoch, r->entries,
					    r->count);
		break;
	case VIRTIO_GC_TRACE_MET:
		result.status = met(p, r, out);
		break;
	case VIRTIO_GC_TRACE_RESULTS:
		result.status = results(p, r, out);
		break;
	case VIRTIO_GC_EVACUATE:
		result.status = evacuate(p, r, out);
		break;
	case VIRTIO_GC_UPDATE:
		result = dcm_gc_update(p->s, region, r->count, &p->peers,
				       &updated);
		out->done.value = htole64(updated);
		break;
	case VIRTIO_GC_FORWARD:
		result.status = forward(p, r, out, dcm_gc_space_address(p->s));
		break;
	case VIRTIO_GC_RELEASE:
		result.status = release(p, r);
		break;
	case VIRTIO_GC_COMPACT:
		result.status = dcm_gc_compact(p->s, r->epoch, region, r->count,
					       le64toh(area->tables),
					       le64toh(area->bytes),
					       (void *)out->entries, &n);
		out->done.count = htole32(n);
		break;
	default:
		result.status = VIRTIO_GC_UNSUPPORTED;
	}
	out->done.status = htole32(result.status);
	out->done.at = htole64(result.at);
	out->done.donor = htole32(worker_donor);
}

/* Carry it out; returns the length of the answer in @out. */
static u32 request_reply(const void *bytes, u32 len, struct reply *out)
{
	struct dcm_gc_request r;
	u32 status = dcm_gc_request_read(bytes, len, sizeof(*out), &limits, &r);

	memset(&out->done, 0, sizeof(out->done));
	if (!status && r.command != VIRTIO_GC_SPACE_CREATE &&
	    !worker_spaces[r.space].s)
		status = VIRTIO_GC_INVALID;
	if (status) {
		out->done.status = htole32(status);
		out->done.at = htole64(VIRTIO_GC_NONE);
		out->done.donor = htole32(worker_donor);
		return sizeof(out->done);
	}
	request_do(&worker_spaces[r.space], &r, out);
	return (u32)sizeof(out->done) +
	       le32toh(out->done.count) * r.answer_entry;
}

static bool takes_long(const void *bytes, u32 len)
{
	const struct virtio_gc_req *req = bytes;
	u16 command = len < sizeof(*req) ? 0 : le16toh(req->command);

	return command == VIRTIO_GC_EVACUATE || command == VIRTIO_GC_UPDATE ||
	       command == VIRTIO_GC_COMPACT;
}

static void *job_main(void *arg)
{
	static struct reply out;
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
		/* not busy any more: the host may send the next at once */
		worker_answer(&msg, DCM_GC_DONE, &out, bytes);
	}
	return NULL;
}

void job_request(const struct dcm_gc_message *msg, const void *bytes, u32 len)
{
	static struct reply out;
	bool busy, take = takes_long(bytes, len);
	u16 command = 0;

	if (len >= sizeof(struct virtio_gc_req))
		command =
			le16toh(((const struct virtio_gc_req *)bytes)->command);
	pthread_mutex_lock(&job.lock);
	busy = job.busy;
	if (take && !busy) {
		memcpy(job.request, msg, sizeof(*msg));
		memcpy((u8 *)job.request + sizeof(*msg), bytes, len);
		job.bytes = len;
		job.space =
			le32toh(((const struct virtio_gc_req *)bytes)->space);
		job.busy = true;
		pthread_cond_broadcast(&job.there);
	}
	pthread_mutex_unlock(&job.lock);
	if (take && !busy)
		return;
	if (busy && command != VIRTIO_GC_FORWARD &&
	    command != VIRTIO_GC_TYPES_ADD)
		worker_done(msg, VIRTIO_GC_BUSY, VIRTIO_GC_NONE);
	else
		worker_answer(msg, DCM_GC_DONE, &out,
			      request_reply(bytes, len, &out));
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

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * main.c - dcm-gc-worker: one session's garbage collection, in a process
 *
 *   dcm-gc-worker FD DONOR THREADS MEMORY
 *
 * Started by the donor with one socket, FD; ends when that is closed. DONOR is
 * our number among the session's donors, MEMORY the bytes its tables may
 * take. Slabs come as memfds; one that the donor takes back is cut to nothing,
 * and whoever touches it then dies of SIGBUS, which is what the donor expects.
 *
 * One thread reads messages and answers what takes no time. Moving and
 * updating take long: another thread does one such request after the other,
 * while the first goes on with polls, ghosts and questions of others.
 * Tracing has threads of its own (trace.c).
 *
 * A message that is not understood ends the worker: its donor is broken, or
 * the host is, and neither needs it any more.
 */
#include <endian.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../message.h"
#include "../request.h"
#include "sandbox.h"

#define BUFFER	(sizeof(struct dcm_gc_message) + DCM_GC_PAYLOAD_MAX)

struct slab {
	u8 *memory;
	u64 bytes;
};

/* @tags: of its regions, as the host told of writes since PLACE */
struct space {
	struct dcm_gc_space *s;
	struct dcm_gc_peers peers;
	u32 number;
	u32 *tags;
};

/* A request that takes long, and whoever waits for another donor's answer. */
struct job {
	pthread_mutex_t lock;
	pthread_cond_t there;
	bool busy;
	u32 space;
	u32 stop;
	u64 request[BUFFER / 8];
	u32 bytes;
	bool asking;
	u64 ask_tag;
	u32 told;
	u64 answer[DCM_GC_BATCH];
};

static int sock;
static u32 donor_number;
static u32 threads;
static struct slab slabs[DCM_GC_SLABS_MAX];
static struct space spaces[DCM_GC_SPACES_MAX];
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

/* At once, with whatever threads there are: nothing is ours to clean up. */
_Noreturn static void end(int status)
{
	for (;;)
		syscall(SYS_exit_group, status);
}

/* The donor is gone, or reads no more: nothing is left to do. */
static void say(const struct dcm_gc_message *msg, const void *payload)
{
	struct iovec v[2] = {
		{ (void *)msg, sizeof(*msg) },
		{ (void *)payload, le32toh(msg->bytes) },
	};
	struct msghdr h = { .msg_iov = v, .msg_iovlen = 2 };
	ssize_t ret;

	do {
		ret = sendmsg(sock, &h, MSG_NOSIGNAL);
	} while (ret < 0 && errno == EINTR);
	if (ret < 0)
		end(0);
}

static void answer(const struct dcm_gc_message *to, u32 kind,
		   const void *payload, u32 bytes)
{
	struct dcm_gc_message msg = *to;

	msg.kind = htole32(kind);
	msg.bytes = htole32(bytes);
	say(&msg, payload);
}

static void done(const struct dcm_gc_message *to, u32 status, u64 at)
{
	struct virtio_gc_done d = {
		.status = htole32(status),
		.donor = htole32(donor_number),
		.at = htole64(at),
	};

	answer(to, DCM_GC_DONE, &d, sizeof(d));
}

/* ---- to other donors, from the engine's threads ---- */

static bool peer_ghosts(void *arg, u32 epoch, u32 donor, const u64 *offsets,
			u32 n)
{
	const struct space *p = arg;
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
	say(&msg, le);
	return true;
}

static bool peer_forward(void *arg, u32 donor, u64 *offsets, u32 n)
{
	const struct space *p = arg;
	__le64 le[DCM_GC_BATCH];
	struct dcm_gc_message msg;
	bool told;

	for (u32 i = 0; i < n; i++)
		le[i] = htole64(offsets[i]);
	pthread_mutex_lock(&job.lock);
	job.asking = true;
	job.told = 0;
	msg = (struct dcm_gc_message){
		.kind = htole32(DCM_GC_ASK),
		.space = htole32(p->number),
		.tag = htole64(++job.ask_tag),
		.n = htole32(n),
		.donor = htole32(donor),
		.bytes = htole32(n * (u32)sizeof(*offsets)),
	};
	pthread_mutex_unlock(&job.lock);
	say(&msg, le);
	pthread_mutex_lock(&job.lock);
	while (!job.told && !job.stop)
		pthread_cond_wait(&job.there, &job.lock);
	told = job.told == n;
	if (told)
		memcpy(offsets, job.answer, n * sizeof(*offsets));
	job.asking = false;
	pthread_mutex_unlock(&job.lock);
	return told;
}

static void told(const struct dcm_gc_message *msg, const __le64 *le, u32 n)
{
	pthread_mutex_lock(&job.lock);
	if (job.asking && le64toh(msg->tag) == job.ask_tag && n &&
	    n <= DCM_GC_BATCH) {
		for (u32 i = 0; i < n; i++)
			job.answer[i] = le64toh(le[i]);
		job.told = n;
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
	struct space *p = &spaces[r->space];
	struct dcm_gc_layout l;
	u64 window;
	u32 status;

	if (p->s)
		return VIRTIO_GC_INVALID;
	dcm_gc_request_layout(r, &l, &window);
	p->s = dcm_gc_space_new(&l, donor_number, &status);
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

static u32 trace_start(struct space *p, const struct dcm_gc_request *r)
{
	struct dcm_gc_start how = {
		.epoch = r->epoch,
		.flags = r->flags,
		.threads = threads,
		.regions = r->entries,
		.nr_regions = r->count,
		.peers = &p->peers,
	};

	return dcm_gc_trace_start(p->s, &how);
}

static u32 results(struct space *p, const struct dcm_gc_request *r,
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

static u32 evacuate(struct space *p, const struct dcm_gc_request *r,
		    struct reply *out)
{
	const struct virtio_gc_move *move = r->entries;
	struct virtio_gc_moved *moved = (void *)out->entries;

	for (u32 i = 0; i < r->count; i++)
		dcm_gc_move(p->s, r->epoch, &move[i], r->flags, &moved[i]);
	out->done.count = htole32(r->count);
	return VIRTIO_GC_OK;
}

static u32 forward(struct space *p, const struct dcm_gc_request *r,
		   struct reply *out, u64 address)
{
	const __le64 *le = r->entries;
	__le64 *to = (void *)out->entries;

	for (u32 i = 0; i < r->count; i++) {
		u64 offset = le64toh(le[i]) - address;

		/* not ours to judge what is no address of the space */
		if (le[i])
			dcm_gc_forward(p->s, &offset, 1);
		to[i] = le[i] ? htole64(offset + address) : 0;
	}
	out->done.count = htole32(r->count);
	return VIRTIO_GC_OK;
}

static u32 release(struct space *p, const struct dcm_gc_request *r)
{
	const struct virtio_gc_region *region = r->entries;
	u32 status = VIRTIO_GC_OK;

	for (u32 i = 0; !status && i < r->count; i++)
		status = dcm_gc_release(p->s, le32toh(region[i].region));
	return status;
}

static u32 met(struct space *p, const struct dcm_gc_request *r,
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

/* One request; the answer is whole when this returns. */
static void request_do(struct space *p, const struct dcm_gc_request *r,
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
	out->done.donor = htole32(donor_number);
}

static u32 entry_bytes(u16 command)
{
	switch (command) {
	case VIRTIO_GC_TRACE_RESULTS:
	case VIRTIO_GC_EVACUATE:
	case VIRTIO_GC_COMPACT:
		return 32;
	default:
		return 8;
	}
}

/* Do it; how many bytes of @out are the answer. */
static u32 request_reply(const void *bytes, u32 len, struct reply *out)
{
	struct dcm_gc_request r;
	u32 status = dcm_gc_request_read(bytes, len, sizeof(*out), &limits, &r);

	memset(&out->done, 0, sizeof(out->done));
	if (!status && r.command != VIRTIO_GC_SPACE_CREATE &&
	    !spaces[r.space].s)
		status = VIRTIO_GC_INVALID;
	if (status) {
		out->done.status = htole32(status);
		out->done.at = htole64(VIRTIO_GC_NONE);
		out->done.donor = htole32(donor_number);
		return sizeof(out->done);
	}
	request_do(&spaces[r.space], &r, out);
	return (u32)sizeof(out->done) +
	       le32toh(out->done.count) * entry_bytes(r.command);
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
		if (job.space < DCM_GC_SPACES_MAX && spaces[job.space].s)
			dcm_gc_stop(spaces[job.space].s, 0);
		pthread_mutex_unlock(&job.lock);
		/* who has the answer may ask for the next */
		answer(&msg, DCM_GC_DONE, &out, bytes);
	}
	return NULL;
}

/* While one that takes long runs, only what that can stand is done. */
static void request(const struct dcm_gc_message *msg, const void *bytes,
		    u32 len)
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
		done(msg, VIRTIO_GC_BUSY, VIRTIO_GC_NONE);
	else
		answer(msg, DCM_GC_DONE, &out, request_reply(bytes, len, &out));
}

/* ---- the rest of the messages ---- */

/* Does the other thread work on a space? */
static bool job_busy(void)
{
	bool busy;

	pthread_mutex_lock(&job.lock);
	busy = job.busy;
	pthread_mutex_unlock(&job.lock);
	return busy;
}

static void slab_take(const struct dcm_gc_message *msg, int fd)
{
	u32 n = le32toh(msg->n);
	u64 bytes = le64toh(msg->value);
	struct stat st;

	if (fd < 0 || n >= DCM_GC_SLABS_MAX || fstat(fd, &st) ||
	    (u64)st.st_size < bytes || !bytes)
		end(3);
	if (slabs[n].memory)
		munmap(slabs[n].memory, slabs[n].bytes);
	slabs[n].memory =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	slabs[n].bytes = bytes;
	close(fd);
	if (slabs[n].memory == MAP_FAILED)
		end(4);
}

static u32 place(struct space *p, const struct dcm_gc_place *le, u32 n)
{
	u64 region_bytes = dcm_gc_space_region_bytes(p->s);
	u32 status = VIRTIO_GC_OK;

	for (u32 i = 0; !status && i < n; i++) {
		u32 donor = le32toh(le[i].donor);
		u32 region = le32toh(le[i].region);
		u64 slab = le64toh(le[i].slab), at = le64toh(le[i].offset);
		void *memory = NULL;

		if (region >= dcm_gc_space_regions(p->s))
			return VIRTIO_GC_INVALID;
		if (donor == donor_number) {
			if (slab >= DCM_GC_SLABS_MAX || !slabs[slab].memory ||
			    at & 7 || at > slabs[slab].bytes ||
			    region_bytes > slabs[slab].bytes - at)
				return VIRTIO_GC_INVALID;
			memory = slabs[slab].memory + at;
		}
		status = dcm_gc_space_place(p->s, region, donor, memory,
					    &p->tags[region]);
		if (!status)
			__atomic_store_n(&p->tags[region], 0, __ATOMIC_RELEASE);
	}
	return status;
}

/* Writes that were begun before a trace was quiet, told before FINISH. */
static u32 tags(struct space *p, const struct dcm_gc_tag *le, u32 n)
{
	for (u32 i = 0; i < n; i++) {
		u32 region = le32toh(le[i].region);

		if (region >= dcm_gc_space_regions(p->s))
			return VIRTIO_GC_INVALID;
		__atomic_store_n(&p->tags[region], le32toh(le[i].tag),
				 __ATOMIC_RELEASE);
	}
	return VIRTIO_GC_OK;
}

static void poll_flags(const struct dcm_gc_message *msg, struct dcm_gc_space *s)
{
	struct dcm_gc_flags f;
	struct dcm_gc_flags_le le = { 0 };
	u32 status = dcm_gc_trace_poll(s, le32toh(msg->epoch), &f);

	le.tracing = f.tracing;
	le.roots = f.roots;
	le.ghosts = f.ghosts;
	le.changed = f.changed;
	le.opaque = htole32(f.opaque);
	le.status = htole32(status ? status : f.result.status);
	le.at = htole64(f.result.at);
	answer(msg, DCM_GC_FLAGS, &le, sizeof(le));
}

static void bitmap(const struct dcm_gc_message *msg, struct dcm_gc_space *s)
{
	u64 bytes = dcm_gc_space_region_bytes(s) / 64, at = le64toh(msg->value);
	const u8 *bits = (const u8 *)dcm_gc_trace_bitmap(s, le32toh(msg->epoch),
							 le32toh(msg->n));

	if (!bits || at >= bytes)
		answer(msg, DCM_GC_BITS, NULL, 0);
	else
		answer(msg, DCM_GC_BITS, bits + at,
		       (u32)min(bytes - at, (u64)DCM_GC_PAYLOAD_MAX));
}

/* What runs for this space; others' traces and work go on. */
static void stop(struct space *p, u32 status)
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

static void ghosts(const struct dcm_gc_message *msg, struct dcm_gc_space *s,
		   const __le64 *le, u32 n)
{
	u64 offset[DCM_GC_BATCH];

	if (n > DCM_GC_BATCH)
		end(5);
	for (u32 i = 0; i < n; i++)
		offset[i] = le64toh(le[i]);
	dcm_gc_trace_ghosts(s, le32toh(msg->epoch), offset, n);
	answer(msg, DCM_GC_ACKED, NULL, 0);
}

static void ask(const struct dcm_gc_message *msg, struct dcm_gc_space *s,
		const __le64 *le, u32 n)
{
	u64 offset[DCM_GC_BATCH];

	if (n > DCM_GC_BATCH)
		end(5);
	for (u32 i = 0; i < n; i++)
		offset[i] = le64toh(le[i]);
	dcm_gc_forward(s, offset, n);
	for (u32 i = 0; i < n; i++)
		offset[i] = htole64(offset[i]);
	answer(msg, DCM_GC_TOLD, offset, n * (u32)sizeof(*offset));
}

static u32 moved(struct dcm_gc_space *s, const struct virtio_gc_region *le,
		 u32 n)
{
	u32 status = VIRTIO_GC_OK;

	for (u32 i = 0; !status && i < n; i++)
		status = dcm_gc_moved_there(s, le32toh(le[i].region));
	return status;
}

static void finish(const struct dcm_gc_message *msg, struct dcm_gc_space *s)
{
	struct dcm_gc_result r = dcm_gc_trace_finish(s, le32toh(msg->epoch));

	done(msg, r.status, r.at);
}

static void message(const struct dcm_gc_message *msg, const void *payload,
		    u32 bytes, int fd)
{
	u32 number = le32toh(msg->space), kind = le32toh(msg->kind);
	struct dcm_gc_space *s = NULL;

	if (number < DCM_GC_SPACES_MAX)
		s = spaces[number].s;
	if (kind == DCM_GC_SLAB) {
		slab_take(msg, fd);
		return;
	}
	if (fd >= 0)
		end(6);
	if (kind == DCM_GC_REQUEST) {
		request(msg, payload, bytes);
		return;
	}
	if (kind == DCM_GC_STOP) {
		if (s)
			stop(&spaces[number], (u32)le64toh(msg->value));
		return;
	}
	if (!s) {
		done(msg, VIRTIO_GC_INVALID, VIRTIO_GC_NONE);
		return;
	}
	if ((kind == DCM_GC_PLACE || kind == DCM_GC_MOVED ||
	     kind == DCM_GC_FINISH || kind == DCM_GC_BITMAP) &&
	    job_busy()) {
		done(msg, VIRTIO_GC_BUSY, VIRTIO_GC_NONE);
		return;
	}
	switch (kind) {
	case DCM_GC_PLACE:
		done(msg,
		     place(&spaces[number], payload,
			   bytes / sizeof(struct dcm_gc_place)),
		     VIRTIO_GC_NONE);
		break;
	case DCM_GC_TAGS:
		done(msg,
		     tags(&spaces[number], payload,
			  bytes / sizeof(struct dcm_gc_tag)),
		     VIRTIO_GC_NONE);
		break;
	case DCM_GC_MOVED:
		done(msg,
		     moved(s, payload, bytes / sizeof(struct virtio_gc_region)),
		     VIRTIO_GC_NONE);
		break;
	case DCM_GC_POLL:
		poll_flags(msg, s);
		break;
	case DCM_GC_BITMAP:
		bitmap(msg, s);
		break;
	case DCM_GC_FINISH:
		finish(msg, s);
		break;
	case DCM_GC_GHOSTS:
		ghosts(msg, s, payload, bytes / 8);
		break;
	case DCM_GC_ACKED:
		dcm_gc_trace_acked(s, le32toh(msg->epoch), le32toh(msg->donor));
		break;
	case DCM_GC_ASK:
		ask(msg, s, payload, bytes / 8);
		break;
	case DCM_GC_TOLD:
		told(msg, payload, bytes / 8);
		break;
	default:
		end(7);
	}
}

/* One message; its descriptor, if it brought one. */
static ssize_t receive(void *buf, int *fd)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec v = { buf, BUFFER };
	struct msghdr h = {
		.msg_iov = &v,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *c;
	ssize_t n;

	do {
		n = recvmsg(sock, &h, MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	*fd = -1;
	c = n < 0 ? NULL : CMSG_FIRSTHDR(&h);
	if (c && c->cmsg_type == SCM_RIGHTS &&
	    c->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(fd, CMSG_DATA(c), sizeof(int));
	if (n > 0 && h.msg_flags & (MSG_TRUNC | MSG_CTRUNC))
		end(8);
	return n;
}

static u64 number(const char *text, u64 max)
{
	char *rest;
	unsigned long long v = strtoull(text, &rest, 10);

	if (!*text || *rest || v > max) {
		fprintf(stderr,
			"dcm-gc-worker: '%s': not a number up to %llu\n", text,
			(unsigned long long)max);
		exit(2);
	}
	return v;
}

int main(int argc, char **argv)
{
	static u64 buf[BUFFER / 8];
	struct dcm_gc_message *msg = (void *)buf;
	pthread_attr_t attr;
	pthread_t thread;
	const char *what;

	if (argc != 5) {
		fprintf(stderr,
			"dcm-gc-worker is started by dcm-donord: FD DONOR THREADS MEMORY\n");
		return 2;
	}
	sock = (int)number(argv[1], 1 << 20);
	donor_number = (u32)number(argv[2], DCM_GC_DONORS_MAX - 1);
	threads = (u32)number(argv[3], DCM_GC_THREADS_MAX);
	if (dcm_gc_sandbox(number(argv[4], 1ull << 50), &what)) {
		fprintf(stderr, "dcm-gc-worker: %s: %s\n", what,
			strerror(errno));
		return 1;
	}
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 256 << 10);
	if (pthread_create(&thread, &attr, job_main, NULL))
		return 1;
	for (;;) {
		int fd;
		ssize_t n = receive(buf, &fd);

		if (n <= 0)
			end(0);
		if ((size_t)n < sizeof(*msg) ||
		    (size_t)n != sizeof(*msg) + le32toh(msg->bytes))
			end(9);
		message(msg, msg + 1, le32toh(msg->bytes), fd);
	}
}

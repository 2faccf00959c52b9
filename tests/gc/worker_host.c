// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * worker_host.c - a host of dcm-gc-worker, for tests
 *
 * Real processes, one for each donor, with memfds as slabs. Messages between
 * workers are carried whenever the host waits.
 */
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "worker_host.h"

const char *worker_path;

/* Handle a message of worker @d: to another worker, or the answer. */
static void host_carry(struct host *h, u32 d, struct dcm_gc_message *msg)
{
	u32 to = le32toh(msg->donor), kind = le32toh(msg->kind);

	switch (kind) {
	case DCM_GC_GHOSTS:
	case DCM_GC_ACKED:
	case DCM_GC_FORWARD:
	case DCM_GC_FORWARDED:
		if (h->deaf)
			break;
		assert_true(to < h->n && to != d);
		msg->donor = htole32(d);
		h->carried++;
		host_send(h, to, msg, msg + 1, -1);
		break;
	default:
		if (le64toh(msg->tag) == h->tag) {
			memcpy(h->got, msg, sizeof(*msg) + le32toh(msg->bytes));
			h->got_tag = h->tag;
		}
	}
}

static void host_turn(struct host *h, int patience_ms)
{
	static u64 buf[MUT_DONORS_MAX][BUFFER / 8];
	struct pollfd p[MUT_DONORS_MAX];

	for (u32 d = 0; d < h->n; d++) {
		p[d].fd = h->lost >> d & 1 ? -1 : h->child[d].fd;
		p[d].events = POLLIN;
		p[d].revents = 0;
	}
	if (poll(p, h->n, patience_ms) <= 0)
		return;
	for (u32 d = 0; d < h->n; d++) {
		ssize_t n;

		if (!p[d].revents)
			continue;
		n = dcm_gc_child_receive(&h->child[d], buf[d], BUFFER);
		assert_true(n >= 0 || n == -EAGAIN);
		if (!n)
			h->lost |= 1u << d;
		else if (n > 0)
			host_carry(h, d, (void *)buf[d]);
	}
}

void host_send(struct host *h, u32 d, const struct dcm_gc_message *msg,
		      const void *payload, int fd)
{
	int ret;

	if (h->lost >> d & 1)
		return;
	ret = dcm_gc_child_send(&h->child[d], msg, payload, fd);
	while (ret == -EAGAIN) {
		/* the worker may wait until its own message is read */
		usleep(100);
		ret = dcm_gc_child_send(&h->child[d], msg, payload, fd);
	}
	if (ret)
		h->lost |= 1u << d;
}

struct dcm_gc_message *host_call(struct host *h, u32 d,
				 struct dcm_gc_message msg, const void *payload)
{
	msg.tag = htole64(++h->tag);
	host_send(h, d, &msg, payload, -1);
	while (h->got_tag != h->tag && !(h->lost >> d & 1))
		host_turn(h, 10000);
	return h->got_tag == h->tag ? h->got : NULL;
}

struct virtio_gc_done *host_request(struct host *h, u32 d, u16 command,
				    u32 epoch, u32 count, const void *body,
				    size_t body_bytes, const void *entries,
				    size_t bytes)
{
	static u64 buf[DCM_GC_PAYLOAD_MAX / 8];
	struct virtio_gc_req req = {
		.command = htole16(command),
		.epoch = htole32(epoch),
		.count = htole32(count),
	};
	size_t len = mut_request_le(buf, sizeof(buf), req, body, body_bytes,
				    entries, bytes);
	struct dcm_gc_message *got;

	assert_true(len);
	got = host_call(h, d,
			(struct dcm_gc_message){
				.kind = htole32(DCM_GC_REQUEST),
				.bytes = htole32((u32)len),
			},
			buf);
	if (!got)
		return NULL;
	assert_int_equal(le32toh(got->kind), DCM_GC_DONE);
	assert_true(le32toh(got->bytes) >= sizeof(struct virtio_gc_done));
	return (void *)(got + 1);
}

u32 host_status(struct host *h, u32 d, u16 command, u32 epoch, u32 count,
		       const void *body, size_t body_bytes, const void *entries,
		       size_t bytes)
{
	struct virtio_gc_done *done = host_request(h, d, command, epoch, count,
						   body, body_bytes, entries,
						   bytes);

	return done ? le32toh(done->status) : VIRTIO_GC_WORKER_LOST;
}

u32 done_status(const struct dcm_gc_message *got)
{
	assert_non_null(got);
	assert_int_equal(le32toh(got->kind), DCM_GC_DONE);
	return le32toh(((const struct virtio_gc_done *)(got + 1))->status);
}

void worker_place(struct host *h, u32 d)
{
	const struct mut *m = h->m;
	struct dcm_gc_place *places = calloc(m->c.regions, sizeof(*places));
	struct dcm_gc_message msg = { .kind = htole32(DCM_GC_PLACE) };
	u32 at = 0;

	assert_non_null(places);
	for (u32 r = 0; r < m->c.regions; r++) {
		places[r].region = htole32(r);
		places[r].donor = htole32(m->owner[r]);
		places[r].slab = htole64(3);
		places[r].offset =
			htole64(m->owner[r] == d ? at++ * REGION : 0);
	}
	msg.n = htole32(m->c.regions);
	msg.bytes = htole32(m->c.regions * (u32)sizeof(*places));
	assert_int_equal(done_status(host_call(h, d, msg, places)), 0);
	free(places);
}

void worker_start(struct host *h, u32 d)
{
	const struct mut *m = h->m;
	struct virtio_gc_space space = mut_space_le(m);
	struct virtio_gc_types types = { .runs = htole32(m->nr_runs) };
	struct dcm_gc_message msg = { 0 };
	u8 bytes[16 * 32 + 128 * 8];
	size_t n;

	assert_int_equal(dcm_gc_child_start(
				 &h->child[d],
				   &(struct dcm_gc_child_how){
					   .path = worker_path,
					   .donor = d,
					   .threads = 2,
					 .memory =
						 dcm_gc_child_memory(m->l.bytes,
								     2),
					   .slabs = m->l.bytes,
					   .group = -1 }),
		0);
	h->lost &= ~(1u << d);
	msg.kind = htole32(DCM_GC_SLAB);
	msg.n = htole32(3);
	msg.value = htole64(m->l.bytes);
	host_send(h, d, &msg, NULL, h->slab[d]);
	assert_int_equal(host_status(h, d, VIRTIO_GC_SPACE_CREATE, 0, 0, &space,
				     sizeof(space), NULL, 0),
			 0);
	n = mut_types_le(m, bytes);
	assert_int_equal(host_status(h, d, VIRTIO_GC_TYPES_ADD, 0, m->nr_types,
				     &types, sizeof(types), bytes, n),
			 0);
	worker_place(h, d);
}

void host_start(struct host *h, const struct mut_config *c)
{
	u32 at[MUT_DONORS_MAX] = { 0 };

	memset(h, 0, sizeof(*h));
	h->m = mut_new(c);
	h->n = c->donors;
	h->got = malloc(BUFFER);
	assert_non_null(h->got);
	for (u32 d = 0; d < h->n; d++) {
		h->slab[d] = memfd_create("slab", MFD_CLOEXEC);
		assert_true(h->slab[d] >= 0);
		assert_int_equal(ftruncate(h->slab[d], (off_t)h->m->l.bytes),
				 0);
	}
	for (u32 r = 0; r < c->regions; r++) {
		u32 d = h->m->owner[r];

		assert_true(mmap(h->m->donors + r * REGION, REGION,
				 PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
				 h->slab[d],
				 (off_t)(at[d]++ * REGION)) != MAP_FAILED);
	}
	mut_fill(h->m);
	mut_clean(h->m);
	for (u32 d = 0; d < h->n; d++)
		worker_start(h, d);
}

void host_end(struct host *h)
{
	for (u32 d = 0; d < h->n; d++) {
		dcm_gc_child_end(&h->child[d]);
		close(h->slab[d]);
	}
	mut_free(h->m);
	free(h->got);
}

u32 host_trace_start(struct host *h, u32 epoch)
{
	const struct mut *m = h->m;
	struct virtio_gc_region *list = calloc(m->c.regions, sizeof(*list));
	__le64 *roots = calloc(m->nr_roots, sizeof(*roots));
	u32 status = VIRTIO_GC_OK;

	assert_true(list && roots);
	for (u32 r = 0; r < m->c.regions; r++) {
		list[r].region = htole32(r);
		list[r].top = htole64(r * REGION + m->top[r]);
	}
	mut_roots_le(m, roots);
	for (u32 d = 0; !status && d < h->n; d++)
		status = host_status(h, d, VIRTIO_GC_TRACE_START, epoch,
				     m->c.regions, NULL, 0, list,
				     m->c.regions * sizeof(*list));
	for (u32 d = 0; !status && d < h->n; d++)
		status = host_status(h, d, VIRTIO_GC_TRACE_ROOTS, epoch,
				     m->nr_roots, NULL, 0, roots,
				     m->nr_roots * sizeof(*roots));
	free(list);
	free(roots);
	return status;
}

u32 host_poll(struct host *h, u32 d, u32 epoch, struct dcm_gc_flags *f)
{
	struct dcm_gc_message *got =
		host_call(h, d,
		(struct dcm_gc_message){ .kind = htole32(DCM_GC_POLL),
					 .epoch = htole32(epoch) },
		NULL);
	struct dcm_gc_flags_le *le = (void *)(got + 1);

	if (!got)
		return VIRTIO_GC_WORKER_LOST;
	if (le32toh(got->kind) != DCM_GC_FLAGS)
		return VIRTIO_GC_INVALID;
	*f = (struct dcm_gc_flags){
		.tracing = le->tracing,
		.roots = le->roots,
		.ghosts = le->ghosts,
		.changed = le->changed,
		.opaque = le32toh(le->opaque),
	};
	return le32toh(le->status);
}

/* Take opaque objects of @d, and send their references to all. */
static u32 opaques_scan(struct host *h, u32 d, u32 epoch)
{
	struct virtio_gc_met met = { .max = htole32(64) };
	const struct mut *m = h->m;
	__le64 at[64];
	struct virtio_gc_done *done = host_request(h, d, VIRTIO_GC_TRACE_MET,
						   epoch, 0, &met, sizeof(met),
						   NULL, 0);
	u32 n = done ? le32toh(done->count) : 0, status = VIRTIO_GC_OK;

	assert_true(n <= 64);
	if (n)
		memcpy(at, done + 1, n * sizeof(*at));
	for (u32 i = 0; i < n && !h->opaque_ends; i++) {
		u64 unit = (le64toh(at[i]) - m->l.address) / 8;
		const struct mut_object *o = &m->objects[m->at_unit[unit] - 1];
		u64 slots = mut_slots(m, o);
		__le64 roots[256];

		assert_true(slots <= 256);
		mut_slots_le(m, o, roots);
		for (u32 k = 0; !status && k < h->n; k++)
			status = host_status(h, k, VIRTIO_GC_TRACE_ROOTS, epoch,
					     (u32)slots, NULL, 0, roots,
					     slots * 8);
	}
	return done ? status : VIRTIO_GC_WORKER_LOST;
}

u32 host_trace_finish(struct host *h, u32 epoch)
{
	struct dcm_gc_flags flags[MUT_DONORS_MAX];
	struct dcm_gc_quiet quiet = { 0 };
	u32 status = VIRTIO_GC_OK;

	for (;;) {
		bool opaque = false;

		for (u32 d = 0; !status && d < h->n; d++) {
			status = host_poll(h, d, epoch, &flags[d]);
			if (!status && flags[d].opaque) {
				opaque = true;
				status = opaques_scan(h, d, epoch);
			}
		}
		if (status ||
		    (!opaque && dcm_gc_quiet_round(&quiet, flags, h->n)))
			break;
		if (opaque)
			quiet.rounds = 0;
	}
	for (u32 d = 0; !status && d < h->n; d++) {
		struct dcm_gc_message *got =
			host_call(h, d,
			(struct dcm_gc_message){
				.kind = htole32(DCM_GC_FINISH),
				.epoch = htole32(epoch),
			},
			NULL);

		status = got ? le32toh(((struct virtio_gc_done *)(got + 1))
					       ->status) :
			       VIRTIO_GC_WORKER_LOST;
	}
	return status;
}

void host_check(struct host *h, u32 epoch, const u8 *live)
{
	const struct mut *m = h->m;

	for (u32 r = 0; r < m->c.regions; r++) {
		struct dcm_gc_message *got =
			host_call(h, m->owner[r],
			(struct dcm_gc_message){
				.kind = htole32(DCM_GC_BITMAP),
				.epoch = htole32(epoch),
				.n = htole32(r),
			},
			NULL);
		const u8 *bits = (const u8 *)(got + 1);

		assert_non_null(got);
		assert_int_equal(le32toh(got->bytes),
				 m->top[r] ? REGION / 64 : 0);
		for (u64 u = 0; m->top[r] && u < REGION / 8; u++) {
			u32 o = m->at_unit[r * REGION / 8 + u];

			/* [VGC-D-24] [VGC-D-26] */
			assert_int_equal(bits[u / 8] >> u % 8 & 1,
					 o ? live[o - 1] : 0);
		}
	}
}

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * message.c - a GC worker's handling of messages from the donor and the host
 *
 * Messages that take no time are handled and answered here: where regions are,
 * polls, ghosts, questions of other donors. job.c has requests.
 *
 * The host belongs to the tenant, and may send anything in any order. An error about
 * a space or a trace is answered with a status. A message that no correct host sends
 * (malformed, or with a slab number that is in use) ends the worker.
 *
 * Locking: all of it is the first thread's. While the other thread works on a
 * space (job_busy()) nothing here changes a space.
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "job.h"

struct worker_slab worker_slabs[DCM_GC_SLABS_MAX];

void worker_answer(const struct dcm_gc_message *to, u32 kind,
		   const void *payload, u32 bytes)
{
	struct dcm_gc_message msg = *to;

	msg.kind = htole32(kind);
	msg.bytes = htole32(bytes);
	worker_send(&msg, payload);
}

void worker_done(const struct dcm_gc_message *to, u32 status, u64 at)
{
	struct virtio_gc_done d = {
		.status = htole32(status),
		.donor = htole32(worker_donor),
		.at = htole64(at),
	};

	worker_answer(to, DCM_GC_DONE, &d, sizeof(d));
}

/* ---- messages ---- */

static void slab_take(const struct dcm_gc_message *msg, int fd)
{
	u32 n = le32toh(msg->n);
	u64 bytes = le64toh(msg->value);
	off_t size;

	/* fstat() is newfstatat(), which the sandbox would allow on any file */
	size = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
	if (n >= DCM_GC_SLABS_MAX || size < 0 || (u64)size < bytes || !bytes)
		worker_end(3);
	/* regions may lie in it, and threads may use them */
	if (worker_slabs[n].memory)
		worker_end(10);
	worker_slabs[n].memory =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	worker_slabs[n].bytes = bytes;
	close(fd);
	if (worker_slabs[n].memory == MAP_FAILED)
		worker_end(4);
}

static u32 places_set(struct worker_space *p, const struct dcm_gc_place *le,
		      u32 n)
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
		if (donor == worker_donor) {
			if (slab >= DCM_GC_SLABS_MAX ||
			    !worker_slabs[slab].memory || at & 7 ||
			    at > worker_slabs[slab].bytes ||
			    region_bytes > worker_slabs[slab].bytes - at)
				return VIRTIO_GC_INVALID;
			memory = worker_slabs[slab].memory + at;
		}
		status = dcm_gc_space_place(p->s, region, donor, memory,
					    &p->write_counts[region]);
		if (!status)
			smp_store_release(&p->write_counts[region], 0);
	}
	return status;
}

/*
 * Store the changed write counts that the host sends before FINISH: see trace_stale().
 */
static u32 write_counts_set(struct worker_space *p,
			    const struct dcm_gc_write_count *le, u32 n)
{
	for (u32 i = 0; i < n; i++) {
		u32 region = le32toh(le[i].region);

		if (region >= dcm_gc_space_regions(p->s))
			return VIRTIO_GC_INVALID;
		smp_store_release(&p->write_counts[region],
				  le32toh(le[i].count));
	}
	return VIRTIO_GC_OK;
}

static void flags_answer(const struct dcm_gc_message *msg,
			 struct dcm_gc_space *s)
{
	struct dcm_gc_flags f;
	struct dcm_gc_flags_le le = { 0 };
	u32 status = dcm_gc_trace_poll(s, le32toh(msg->epoch), &f);

	le.tracing = f.tracing;
	le.roots = f.roots;
	le.ghosts = f.ghosts;
	le.changed = f.changed;
	le.opaque = htole32(f.opaque);
	le.objects = htole32(f.objects);
	le.status = htole32(status ? status : f.result.status);
	le.at = htole64(f.result.at);
	worker_answer(msg, DCM_GC_FLAGS, &le, sizeof(le));
}

static void bitmap_answer(const struct dcm_gc_message *msg,
			  struct dcm_gc_space *s)
{
	u64 bytes = dcm_gc_space_region_bytes(s) / 64, at = le64toh(msg->value);
	const u8 *bits = (const u8 *)dcm_gc_trace_bitmap(s, le32toh(msg->epoch),
							 le32toh(msg->n));

	if (!bits || at >= bytes)
		worker_answer(msg, DCM_GC_BITS, NULL, 0);
	else
		worker_answer(msg, DCM_GC_BITS, bits + at,
			      (u32)min(bytes - at, (u64)DCM_GC_PAYLOAD_MAX));
}

/* Read a message's @n offsets, in host order; if there are too many, end the worker. */
static void offsets_read(const __le64 *le, u32 n, u64 offset[DCM_GC_BATCH])
{
	if (n > DCM_GC_BATCH)
		worker_end(5);
	for (u32 i = 0; i < n; i++)
		offset[i] = le64toh(le[i]);
}

static void ghosts_take(const struct dcm_gc_message *msg,
			struct dcm_gc_space *s, const __le64 *le, u32 n)
{
	u64 offset[DCM_GC_BATCH];

	offsets_read(le, n, offset);
	dcm_gc_trace_ghosts(s, le32toh(msg->epoch), offset, n);
	worker_answer(msg, DCM_GC_ACKED, NULL, 0);
}

static void forward_answer(const struct dcm_gc_message *msg,
			   struct dcm_gc_space *s, const __le64 *le, u32 n)
{
	u64 offset[DCM_GC_BATCH];

	offsets_read(le, n, offset);
	dcm_gc_forward(s, offset, n);
	for (u32 i = 0; i < n; i++)
		offset[i] = htole64(offset[i]);
	worker_answer(msg, DCM_GC_FORWARDED, offset, n * (u32)sizeof(*offset));
}

static u32 regions_moved(struct dcm_gc_space *s,
			 const struct virtio_gc_region *le, u32 n)
{
	u32 status = VIRTIO_GC_OK;

	for (u32 i = 0; !status && i < n; i++)
		status = dcm_gc_moved_there(s, le32toh(le[i].region));
	return status;
}

static void trace_finish(const struct dcm_gc_message *msg,
			 struct dcm_gc_space *s)
{
	struct dcm_gc_result r = dcm_gc_trace_finish(s, le32toh(msg->epoch));

	worker_done(msg, r.status, r.at);
}

void worker_handle(const struct dcm_gc_message *msg, const void *payload,
		   u32 bytes, int fd)
{
	u32 number = le32toh(msg->space), kind = le32toh(msg->kind);
	struct dcm_gc_space *s = NULL;

	if (number < DCM_GC_SPACES_MAX)
		s = worker_spaces[number].s;
	if (kind == DCM_GC_SLAB) {
		slab_take(msg, fd);
		return;
	}
	if (fd >= 0)
		worker_end(6);
	if (kind == DCM_GC_REQUEST) {
		job_request(msg, payload, bytes);
		return;
	}
	if (kind == DCM_GC_STOP) {
		if (s)
			job_stop(&worker_spaces[number],
				 (u32)le64toh(msg->value));
		return;
	}
	if (!s) {
		worker_done(msg, VIRTIO_GC_INVALID, VIRTIO_GC_NONE);
		return;
	}
	if ((kind == DCM_GC_PLACE || kind == DCM_GC_MOVED ||
	     kind == DCM_GC_FINISH || kind == DCM_GC_BITMAP) &&
	    job_busy()) {
		worker_done(msg, VIRTIO_GC_BUSY, VIRTIO_GC_NONE);
		return;
	}
	switch (kind) {
	case DCM_GC_PLACE:
		worker_done(msg,
			    places_set(&worker_spaces[number], payload,
				       bytes / sizeof(struct dcm_gc_place)),
			    VIRTIO_GC_NONE);
		break;
	case DCM_GC_WRITE_COUNTS:
		worker_done(msg,
			    write_counts_set(
				    &worker_spaces[number], payload,
				     bytes / sizeof(struct dcm_gc_write_count)),
			    VIRTIO_GC_NONE);
		break;
	case DCM_GC_MOVED:
		worker_done(msg,
			    regions_moved(s, payload,
					  bytes / sizeof(struct virtio_gc_region)),
			    VIRTIO_GC_NONE);
		break;
	case DCM_GC_POLL:
		flags_answer(msg, s);
		break;
	case DCM_GC_BITMAP:
		bitmap_answer(msg, s);
		break;
	case DCM_GC_FINISH:
		trace_finish(msg, s);
		break;
	case DCM_GC_GHOSTS:
		ghosts_take(msg, s, payload, bytes / 8);
		break;
	case DCM_GC_ACKED:
		dcm_gc_trace_acked(s, le32toh(msg->epoch), le32toh(msg->donor));
		break;
	case DCM_GC_FORWARD:
		forward_answer(msg, s, payload, bytes / 8);
		break;
	case DCM_GC_FORWARDED:
		job_answered(msg, payload, bytes / 8);
		break;
	default:
		worker_end(7);
	}
}

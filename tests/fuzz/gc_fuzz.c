// SPDX-License-Identifier: GPL-2.0-or-later
/* links: kvm-dcm/proto/gc_request.c donor-daemon/gc/space.c donor-daemon/gc/types.c donor-daemon/gc/trace.c donor-daemon/gc/scan.c donor-daemon/gc/work.c donor-daemon/gc/ghost.c donor-daemon/gc/met.c donor-daemon/gc/cards.c donor-daemon/gc/move.c donor-daemon/gc/update.c donor-daemon/gc/compact.c */
/*
 * gc_fuzz.c - any bytes as a virtio-gc request, and as a heap
 *
 * An even first byte: the rest is a request. An odd one: a layout, some
 * types, and a heap of four regions that the rest is repeated over; the second
 * may be one object. A heap that is accepted is traced, moved, updated and
 * compacted. Accepted or refused, nothing may be read or written beyond its
 * memory, and every command ends.
 */
#include <endian.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../../kvm-dcm/proto/gc_request.h"
#include "gc/gc.h"
#include "../framework/expect.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REGION	(64u << 10)

/* @how: features that the device has; 0: all */
static void request(const uint8_t *data, size_t size, u32 how)
{
	const struct dcm_gc_limits limits = {
		.features = how ? how * 0x01010101u : U32_MAX,
		.spaces_max = 4,
		.request_max = 1024,
		.response_max = 1024,
	};
	void *copy = malloc(size ? size : 1);
	struct dcm_gc_request r;
	struct dcm_gc_layout l;
	u64 window, sum = 0;

	EXPECT(copy != NULL);
	memcpy(copy, data, size);
	if (!dcm_gc_request_read(copy, size, 1024, &limits, &r)) {
		EXPECT(r.answer_bytes <= 1024 && r.space < 4);
		for (size_t i = 0; i < r.entries_bytes; i++)
			sum += ((const u8 *)r.entries)[i];
		if (r.command == VIRTIO_GC_SPACE_CREATE) {
			dcm_gc_request_layout(&r, &l, &window);
			sum += dcm_gc_layout_check(&l);
		}
		EXPECT(sum != U64_MAX);
	}
	free(copy);
}

/* Memory of a region of its own: what leaves it is seen. */
struct heap {
	u8 *region[4];
	struct virtio_gc_region list[4];
	struct dcm_gc_space *s;
};

static void use(struct heap *h, u8 how)
{
	struct dcm_gc_start start = {
		.epoch = 1,
		.flags = how & 3 ? how & 3 : 0,
		.threads = 1,
		.regions = h->list,
		.nr_regions = 3,
	};
	struct virtio_gc_move move = {
		.to = htole32(3),
		.start = htole64(3 * REGION),
		.table = htole64(2 * REGION),
		.table_bytes = htole64(REGION),
	};
	struct virtio_gc_moved moved[4];
	__le64 root[2] = { htole64(1ull << 32),
			   htole64((1ull << 32) + REGION) };
	u64 updated, left;
	u32 n;

	if (dcm_gc_trace_start(h->s, &start))
		return;
	dcm_gc_trace_roots(h->s, 1, root, 2);
	dcm_gc_trace_wait(h->s, 5000000000ull);
	dcm_gc_trace_met(h->s, 1, VIRTIO_GC_MET_OPAQUE, root, 2, &n, &left);
	if (dcm_gc_trace_finish(h->s, 1).status)
		return;
	dcm_gc_trace_met(h->s, 1, VIRTIO_GC_MET_WEAK, root, 2, &n, &left);
	dcm_gc_trace_met(h->s, 1, VIRTIO_GC_MET_TYPES, root, 2, &n, &left);
	if (how & 4)
		dcm_gc_move(h->s, 1, &move, how >> 3 & 1, moved);
	else
		dcm_gc_compact(h->s, 1, h->list, 2, 2 * REGION, REGION, moved,
			       &n);
	dcm_gc_update(h->s, h->list, 4, NULL, &updated);
}

static void heap(const uint8_t *data, size_t size)
{
	struct dcm_gc_layout l = {
		.bytes = 4 * REGION,
		.region_bytes = REGION,
		.address = 1ull << 32,
	};
	u32 status, types, runs;
	struct heap h;
	size_t bytes;

	if (size < 16)
		return;
	l.ref_bytes = data[0] & 1 ? 4 : 8;
	l.ref_base = l.ref_bytes == 4 ? l.address - 8 : 0;
	l.ref_shift = l.ref_bytes == 4 ? data[0] >> 4 & 7 : 0;
	l.flags = data[0] >> 1 & 1;
	l.type_bytes = data[1];
	l.type_shift = data[2];
	l.type_offset = data[3];
	l.type_mask = 0xff;
	types = data[4] & 15;
	runs = data[5] & 15;
	h.s = dcm_gc_space_new(&l, 0, &status);
	if (!h.s)
		return;
	bytes = types * sizeof(struct virtio_gc_type) +
		runs * sizeof(struct virtio_gc_run);
	if (bytes <= size - 8) {
		void *copy = malloc(bytes ? bytes : 1);

		EXPECT(copy != NULL);
		memcpy(copy, data + 8, bytes);
		status = dcm_gc_types_add(h.s, 0, copy, bytes, types, runs);
		free(copy);
		size -= 8 + bytes;
		if (!status && size) {
			const uint8_t *rest = data + 8 + bytes;

			for (u32 i = 0; i < 4; i++) {
				h.region[i] = malloc(REGION);
				EXPECT(h.region[i] != NULL);
				for (u32 at = 0; at < REGION; at += (u32)size)
					memcpy(h.region[i] + at, rest,
					       size < REGION - at ?
						       size :
						       REGION - at);
				h.list[i].region = htole32(i);
				h.list[i].flags = 0;
				h.list[i].top = htole64((i + 1) * REGION);
				dcm_gc_space_place(h.s, i, 0, h.region[i],
						   NULL);
			}
			h.list[1].top =
				htole64(REGION + (data[7] & 0xf8) * 256);
			if (data[6] & 0x10)
				h.list[1].flags = htole32(data[6] >> 4 & 3);
			use(&h, data[6]);
			for (u32 i = 0; i < 4; i++)
				free(h.region[i]);
		}
	}
	dcm_gc_space_free(h.s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size || size > 8192)
		return 0;
	if (data[0] & 1)
		heap(data + 1, size - 1);
	else
		request(data + 1, size - 1, data[0] >> 1);
	return 0;
}

// SPDX-License-Identifier: GPL-2.0-or-later
/* heap_bitmaps.c - live bitmaps in an answer, longer than any other; see heap.h */
#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "heap.h"

/* Of some regions: of each a message goes to a donor and back. */
u32 heap_bitmaps(struct heap *h)
{
	const u32 most = vgc_info(h->v)->response_max, each = HEAP_REGION / 64;
	const u32 n = most / each + 1, bytes = n * each;
	const u32 room = sizeof(struct virtio_gc_done) + bytes;
	const struct virtio_gc_range range = {
		.regions = htole32(n),
		.bitmaps = htole64(each),
	};
	struct virtio_gc_done *done = malloc(room);
	struct vgc_call c = {
		.command = VIRTIO_GC_TRACE_BITMAPS,
		.epoch = h->epoch,
		.deadline_ms = h->deadline_ms,
		.arg = &range,
		.arg_bytes = sizeof(range),
		.answer = done,
		.answer_room = room,
	};
	u32 status;
	int rc;

	/* only then one message of dcm-hostd's does not hold it */
	EXPECT(done && n <= h->regions && bytes > most);
	rc = vgc_do(h->v, &c);
	h->asked = c.command;
	EXPECT(!rc, "error %d", rc);
	status = le32toh(done->status);
	if (status) {
		h->answer.done = *done;
	} else {
		/* [VGC-D-66] */
		EXPECT(c.answer_bytes == room && le32toh(done->count) == bytes,
		       "%u bytes", c.answer_bytes);
		/* [VGC-D-65] */
		EXPECT(!memcmp(done + 1,
			       h->space + HEAP_TABLES_AT * HEAP_REGION, bytes));
	}
	free(done);
	return status;
}

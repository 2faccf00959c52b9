/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * gc_reply.h - the answer to a virtio-gc request
 *
 * Numbers are in host order until dcm_gc_reply_pack(); entries are as they will
 * be sent. The host and the workers on donors build answers with this.
 */
#ifndef DCM_GC_REPLY_H
#define DCM_GC_REPLY_H

#include <endian.h>

#include "gc_layout.h"

#define DCM_GC_REPLY_MAX DCM_WIRE_PAYLOAD_MAX

/* struct virtio_gc_done in host order */
struct dcm_gc_done {
	u32 status;
	u32 donor;
	u64 at;
	u64 value;
	u32 count;
};

/* @le and @entries are sent. */
struct dcm_gc_reply {
	struct dcm_gc_done done;
	struct virtio_gc_done le;
	u8 entries[VIRTIO_GC_BITMAPS_MAX];
};

/* Set the status to OK, without entries, about no donor and no place. */
static inline void dcm_gc_reply_clear(struct dcm_gc_reply *reply)
{
	reply->done = (struct dcm_gc_done){
		.donor = VIRTIO_GC_NO_DONOR,
		.at = VIRTIO_GC_NONE,
	};
}

/* Fill in @le; returns the bytes to be sent. @entry: bytes of an entry. */
static inline size_t dcm_gc_reply_pack(struct dcm_gc_reply *reply, u32 entry)
{
	const struct dcm_gc_done *done = &reply->done;

	reply->le = (struct virtio_gc_done){
		.status = htole32(done->status),
		.donor = htole32(done->donor),
		.at = htole64(done->at),
		.value = htole64(done->value),
		.count = htole32(done->count),
	};
	return sizeof(reply->le) + (size_t)done->count * entry;
}

#endif /* DCM_GC_REPLY_H */

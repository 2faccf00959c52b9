/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * message.h - what is said to a GC worker, and by it
 *
 * A worker speaks with its donor over one SOCK_SEQPACKET socket; the donor
 * hands on what comes from the session's host and back. A message is a struct
 * dcm_gc_message and its payload, little endian.
 *
 *   to the worker             answered by
 *   SLAB (and the memfd)      -            from the donor itself
 *   PLACE                     DONE         where regions are
 *   REQUEST                   DONE         a virtio-gc request, as it is
 *   POLL                      FLAGS
 *   BITMAP                    BITS         of region @n, from byte @value on
 *   FINISH                    DONE         all donors are quiet
 *   MOVED                     DONE         regions another donor moved
 *   STOP                      -            what runs ends with status @value
 *   GHOSTS                    ACKED        from donor @donor, or to it
 *   ASK                       TOLD         new places; from donor @donor, or to it
 *
 * The host carries GHOSTS, ACKED, ASK and TOLD from worker to worker; @donor is
 * the other one's number on both sides, @tag and @epoch go back as they came.
 */
#ifndef DCM_GC_MESSAGE_H
#define DCM_GC_MESSAGE_H

#include "../../guest-virtio-gc/include/virtio_gc.h"

#define DCM_GC_PAYLOAD_MAX	65536u
#define DCM_GC_SLABS_MAX	1024u	/* of one session */
#define DCM_GC_SPACES_MAX	16u

enum dcm_gc_message_kind {
	DCM_GC_SLAB = 1,
	DCM_GC_PLACE,
	DCM_GC_REQUEST,
	DCM_GC_DONE,
	DCM_GC_POLL,
	DCM_GC_FLAGS,
	DCM_GC_BITMAP,
	DCM_GC_BITS,
	DCM_GC_FINISH,
	DCM_GC_STOP,
	DCM_GC_MOVED,
	DCM_GC_GHOSTS,
	DCM_GC_ACKED,
	DCM_GC_ASK,
	DCM_GC_TOLD,
	DCM_GC_KINDS
};

struct dcm_gc_message {
	__le32 kind;
	__le32 space;
	__le64 tag;
	__le32 epoch;
	__le32 n;
	__le64 value;
	__le32 donor;
	__le32 bytes;	/* of payload */
};

/* PLACE: @n of these */
struct dcm_gc_place {
	__le32 region;
	__le32 donor;
	__le64 slab;	/* our number of it; ignored for other donors' */
	__le64 offset;	/* of the region in it */
};

/* FLAGS */
struct dcm_gc_flags_le {
	__u8 tracing;
	__u8 roots;
	__u8 ghosts;
	__u8 changed;
	__le32 opaque;
	__le32 status;
	__le32 reserved;
	__le64 at;
};

_Static_assert(sizeof(struct dcm_gc_message) == 40, "message");
_Static_assert(sizeof(struct dcm_gc_place) == 24, "place");
_Static_assert(sizeof(struct dcm_gc_flags_le) == 24, "flags");

#endif /* DCM_GC_MESSAGE_H */

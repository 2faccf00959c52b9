/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * gc_message.h - messages between a donor and its GC worker
 *
 * They go over one SOCK_SEQPACKET socket. A message is a struct dcm_gc_message
 * and its payload, little endian. The kinds are those of the wire, described in
 * wire_format.h: the donor forwards the messages of the session's host to the
 * worker, and the worker's to the host. Only SLAB, with its memfd, is the
 * donor's own.
 */
#ifndef DCM_GC_MESSAGE_H
#define DCM_GC_MESSAGE_H

#include "../../guest-virtio-gc/include/virtio_gc.h"
#include "wire_format.h"

#define DCM_GC_PAYLOAD_MAX	DCM_WIRE_PAYLOAD_MAX
#define DCM_GC_SLABS_MAX	DCM_WIRE_GC_SLABS	/* of one session */

#define DCM_GC_SLAB		1u	/* from the donor itself; no answer */

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

_Static_assert(sizeof(struct dcm_gc_message) == 40, "message");
_Static_assert(sizeof(struct dcm_gc_place) == 24, "place");
_Static_assert(sizeof(struct dcm_gc_write_count) == 8, "write count");
_Static_assert(sizeof(struct dcm_gc_flags_le) == 24, "flags");

#endif /* DCM_GC_MESSAGE_H */

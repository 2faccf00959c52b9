/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * wire_fields.h - the fields of each message's body, for wire.c
 *
 * x(how a field is coded, its name in the wire struct and in struct
 * dcm_wire_msg):
 *
 *	u8 .. u64	a number, little endian
 *	raw		bytes as they are
 *	zero16, zero32	reserved: sent as zero, refused if not zero
 */
#ifndef DCM_WIRE_FIELDS_H
#define DCM_WIRE_FIELDS_H

#define DCM_FIELDS_HELLO(x) \
	x(u16, version_min) \
	x(u16, version_max) \
	x(u8, role) \
	x(u8, flags) \
	x(u16, lane) \
	x(u64, session) \
	x(raw, secret)

#define DCM_FIELDS_WELCOME(x) \
	x(u16, version) \
	x(u16, flags) \
	x(u32, inflight_max) \
	x(u64, session) \
	x(raw, secret) \
	x(u64, slab_bytes) \
	x(u64, donor_id)

#define DCM_FIELDS_ERROR(x) \
	x(u32, status) \
	x(zero32, reserved)

#define DCM_FIELDS_FREE_MEM(x) \
	x(u64, slabs_free) \
	x(u64, slabs_total) \
	x(u64, slab_bytes) \
	x(u64, used_bytes) \
	x(u32, flags) \
	x(zero32, reserved)

#define DCM_FIELDS_ABOUT(x) \
	x(u64, capacity_bytes) \
	x(u64, lent_bytes) \
	x(u64, head_room_bytes) \
	x(u32, sessions) \
	x(u32, flags)

#define DCM_FIELDS_MAP(x) \
	x(u64, slab_bytes) \
	x(u64, cookie) \
	x(u32, transports) \
	x(zero32, reserved)

#define DCM_FIELDS_MR_INFO(x) \
	x(u64, slab) \
	x(u64, bytes) \
	x(u64, addr) \
	x(u32, rkey) \
	x(u32, transport)

#define DCM_FIELDS_ASK_TICKET(x) \
	x(u16, lane) \
	x(zero16, reserved) \
	x(zero32, reserved2)

#define DCM_FIELDS_TICKET(x) \
	x(u64, number) \
	x(raw, secret) \
	x(raw, addr) \
	x(u16, port) \
	x(zero16, reserved) \
	x(u32, valid_ms)

#define DCM_FIELDS_LIST(x) \
	x(u64, after)

#define DCM_FIELDS_SLAB_IS(x) \
	x(u64, slab) \
	x(u64, cookie) \
	x(u64, addr) \
	x(u32, rkey) \
	x(u32, flags)

#define DCM_FIELDS_SLAB(x) \
	x(u64, slab)

#define DCM_FIELDS_ACTIVITY(x) \
	x(u64, slab) \
	x(u64, ewma_milli)

#define DCM_FIELDS_IO(x) \
	x(u64, slab) \
	x(u64, offset) \
	x(u32, bytes) \
	x(zero32, reserved)

#define DCM_FIELDS_IO_DONE(x) \
	x(u32, status) \
	x(u32, bytes)

#define DCM_FIELDS_GC_OPEN(x) \
	x(u64, bytes) \
	x(u32, donor) \
	x(zero32, reserved)

#define DCM_FIELDS_GC_OPENED(x) \
	x(u32, threads) \
	x(zero32, reserved)

#define DCM_FIELDS_GC_SLAB(x) \
	x(u64, slab) \
	x(u32, number) \
	x(zero32, reserved)

#define DCM_FIELDS_GC(x) \
	x(u32, kind) \
	x(u32, space) \
	x(u32, epoch) \
	x(u32, n) \
	x(u64, value) \
	x(u32, donor) \
	x(zero32, reserved)

#endif /* DCM_WIRE_FIELDS_H */

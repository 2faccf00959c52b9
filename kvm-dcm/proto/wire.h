/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * wire.h - the only encoder and decoder of wire_format.h
 *
 * Everything is in host byte order on this side. Decoding is incremental:
 * feed what has arrived, get %DCM_WIRE_MORE with how much is missing, or a
 * message, or the name of what is wrong with it. After an error the stream
 * has lost its framing: close the connection.
 */
#ifndef DCM_WIRE_H
#define DCM_WIRE_H

#include "../lib/dcm_context.h"
#include "wire_format.h"

#define DCM_WIRE_HDR_BYTES	16u
/* header and the largest body: no head of a message is longer */
#define DCM_WIRE_HEAD_MAX	(DCM_WIRE_HDR_BYTES + DCM_WIRE_BODY_MAX)
#define DCM_WIRE_MSG_MAX	(DCM_WIRE_HEAD_MAX + DCM_WIRE_PAYLOAD_MAX)

/* The results of dcm_wire_head() and the functions after it. */
#define DCM_WIRE_ERRORS(x)                                              \
	x(MORE, 1, "more bytes are needed")                             \
	x(E_MAGIC, -1, "no message starts here")                        \
	x(E_TYPE, -2, "unknown message type")                           \
	x(E_PHASE, -3, "message not allowed at this point or from this side") \
	x(E_SIZE, -4, "size does not fit the message type")             \
	x(E_RESERVED, -5, "a reserved field is not zero")               \
	x(E_VALUE, -6, "a field has a value that does not exist")       \
	x(E_ROOM, -7, "the buffer is too small to encode into")

enum dcm_wire_error_code {
	DCM_WIRE_OK = 0,
#define DCM_WIRE_ENUM(name, value, text) DCM_WIRE_##name = (value),
	DCM_WIRE_ERRORS(DCM_WIRE_ENUM)
#undef DCM_WIRE_ENUM
};

/**
 * enum dcm_wire_phase - where a connection is in its life
 * @DCM_PHASE_HELLO: nothing agreed yet: HELLO one way, WELCOME or ERROR back
 * @DCM_PHASE_CONTROL: after WELCOME, control role
 * @DCM_PHASE_DATA: after WELCOME, data role
 * @DCM_PHASE_GC: after WELCOME, gc role
 */
enum dcm_wire_phase {
	DCM_PHASE_HELLO = 0x1,
	DCM_PHASE_CONTROL = 0x2,
	DCM_PHASE_DATA = 0x4,
	DCM_PHASE_GC = 0x8,
};

/* Who sent the bytes. */
enum dcm_wire_side {
	DCM_SIDE_HOST = 0x1,
	DCM_SIDE_DONOR = 0x2,
};

/**
 * struct dcm_about - how a donor is: the body of ABOUT
 * @capacity_bytes: may be lent at most
 * @lent_bytes: to anyone
 * @head_room_bytes: kept free for the donor's machine
 * @sessions: with all hosts
 * @flags: DCM_ABOUT_*
 */
struct dcm_about {
	u64 capacity_bytes;
	u64 lent_bytes;
	u64 head_room_bytes;
	u32 sessions;
	u32 flags;
};

/**
 * struct dcm_wire_msg - one message in host order
 * @type: enum dcm_wire_type
 * @tag: requester's number of the request
 * @payload_bytes: bytes that follow the body on the stream (DATA, WRITE,
 *	GC)
 * @payload: set by dcm_wire_decode() only: where they are in its buffer
 *
 * The member of the union is the one named after the type; UNMAP,
 * CHECK_ACTIVITY, EVICT and DONE use @slab, READ and WRITE @io, DATA and
 * WRITTEN @io_done. Types without a body use none.
 */
struct dcm_wire_msg {
	u16 type;
	u64 tag;
	u32 payload_bytes;
	const void *payload;
	union {
		struct {
			u16 version_min;
			u16 version_max;
			u8 role;
			u8 flags;
			u16 lane;
			u64 session;
			u8 secret[16];
		} hello;
		struct {
			u16 version;
			u16 flags;
			u32 inflight_max;
			u64 session;
			u8 secret[16];
			u64 slab_bytes;
			u64 donor_id;
		} welcome;
		struct {
			u32 status;
		} error;
		struct {
			u64 slabs_free;
			u64 slabs_total;
			u64 slab_bytes;
			u64 used_bytes;
			u32 flags;
		} free_mem;
		struct dcm_about about;
		struct {
			u64 slab_bytes;
			u64 cookie;
			u32 transports;
		} map;
		struct {
			u64 slab;
			u64 bytes;
			u64 addr;
			u32 rkey;
			u32 transport;
		} mr_info;
		struct {
			u16 lane;
		} ask_ticket;
		struct {
			u64 number;
			u8 secret[16];
			u8 addr[16];
			u16 port;
			u32 valid_ms;
		} ticket;
		struct {
			u64 after;
		} list;
		struct {
			u64 slab;
			u64 cookie;
			u64 addr;
			u32 rkey;
			u32 flags;
		} slab_is;
		struct {
			u64 slab;
		} slab;
		struct {
			u64 slab;
			u64 ewma_milli;
		} activity;
		struct {
			u64 slab;
			u64 offset;
			u32 bytes;
		} io;
		struct {
			u32 status;
			u32 bytes;
		} io_done;
		struct {
			u64 bytes;
			u32 donor;
		} gc_open;
		struct {
			u32 threads;
		} gc_opened;
		struct {
			u64 slab;
			u32 number;
		} gc_slab;
		struct {
			u32 kind;
			u32 space;
			u32 epoch;
			u32 n;
			u64 value;
			u32 donor;
		} gc;
	};
};

/**
 * dcm_wire_head() - decode the header and body at the start of @buf
 * @buf: bytes as they came
 * @len: how many there are
 * @phase: where the connection is; one value
 * @from: the side that sent them; one value
 * @msg: filled in on %DCM_WIRE_OK, undefined otherwise
 * @bytes: on %DCM_WIRE_OK the length of header and body, after which
 *	@msg->payload_bytes of payload follow; on %DCM_WIRE_MORE how many
 *	bytes beyond @len are needed before the next try can get further
 *
 * A bad header is refused as soon as its 16 bytes are there. Page alignment
 * and the slab's end are not looked at: those have an answer of their own
 * (%DCM_WS_RANGE). Payload is never longer than %DCM_WIRE_PAYLOAD_MAX.
 *
 * Return: %DCM_WIRE_OK, %DCM_WIRE_MORE or a negative enum dcm_wire_error_code.
 */
int dcm_wire_head(const void *buf, size_t len, enum dcm_wire_phase phase,
		  enum dcm_wire_side from, struct dcm_wire_msg *msg,
		  size_t *bytes);

/* The same, but waits for the payload too and counts it in @bytes. */
int dcm_wire_decode(const void *buf, size_t len, enum dcm_wire_phase phase,
		    enum dcm_wire_side from, struct dcm_wire_msg *msg,
		    size_t *bytes);

/**
 * dcm_wire_encode() - header and body of @msg
 * @buf: %DCM_WIRE_HEAD_MAX bytes are always enough
 * @len: room there
 * @msg: what to say; @payload_bytes is announced in the header, the payload
 *	itself is the caller's to send right after
 *
 * Return: bytes written, or %DCM_WIRE_E_TYPE, %DCM_WIRE_E_SIZE (payload with
 * a type that has none, or not the length its body says) or %DCM_WIRE_E_ROOM.
 */
int dcm_wire_encode(void *buf, size_t len, const struct dcm_wire_msg *msg);

/**
 * struct dcm_wire_shown - a ticket as it is shown in private data
 * @version: of the protocol
 * @number: the ticket's
 * @secret: what proves it
 */
struct dcm_wire_shown {
	u16 version;
	u64 number;
	u8 secret[16];
};

/* %DCM_WIRE_SHOW_BYTES of private data for a connection request. */
void dcm_wire_show_put(u8 *buf, const struct dcm_wire_shown *shown);

/**
 * dcm_wire_show_get() - the ticket in a connection request's private data
 * @buf: as it came, from anybody
 * @len: how much; what is beyond the ticket is ignored
 *
 * Return: %DCM_WIRE_OK, %DCM_WIRE_E_SIZE, %DCM_WIRE_E_MAGIC, %DCM_WIRE_E_VALUE
 * (a version that is not spoken here) or %DCM_WIRE_E_RESERVED.
 */
int dcm_wire_show_get(const void *buf, size_t len,
		      struct dcm_wire_shown *shown);

/* The sides that may send GC of this kind: DCM_SIDE_*, a mask; 0: no such kind. */
int dcm_wire_gc_from(u32 kind);

/**
 * dcm_wire_answer() - the head of the answer to one READ or WRITE
 * @buf: as it came
 * @len: its bytes: a header and a body of DATA or WRITTEN
 * @asked: the request: @type, @tag and @io.bytes are looked at
 * @err: out: what the operation ends with if it is refused: -ESTALE (the slab
 *	is not ours) or -EIO
 *
 * No length from the wire need be looked at after this: payload, if there is
 * any, has the length that was asked for.
 *
 * Return: %NULL: it fits what was asked; *@err is 0, and the payload of a READ
 * follows, or it is a refusal, and none does. Else what is wrong with the
 * connection, which has to be ended.
 */
const char *dcm_wire_answer(const void *buf, size_t len,
			    const struct dcm_wire_msg *asked, int *err);

/* Never %NULL; unknown numbers are "?". */
const char *dcm_wire_type_name(u16 type);
const char *dcm_wire_status_text(u32 status);
const char *dcm_wire_error_name(int code);
const char *dcm_wire_error_text(int code);

#endif /* DCM_WIRE_H */

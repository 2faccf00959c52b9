// SPDX-License-Identifier: GPL-2.0-only
/*
 * wire.c - the only encoder and decoder of wire_format.h
 *
 * One list says everything about a type: its body, which side may send it, when, and
 * whether payload follows. The decoder looks at nothing beyond what the list
 * allows, so a type added there is bounded before it is understood.
 *
 * One list for each body (wire_fields.h) says how its fields are coded. The
 * decoder and the encoder are made from it, so they can't differ, and the
 * compiler checks that it has every byte of the wire struct. Fields are read
 * byte by byte at their offset in that struct: no alignment is assumed, no host
 * order leaks, and the compiler makes plain loads of it.
 *
 * No state, no locks, no allocation.
 */
#include "wire.h"
#include "wire_fields.h"

static inline u16 get16(const u8 *p)
{
	return (u16)(p[0] | p[1] << 8);
}

static inline u32 get32(const u8 *p)
{
	return get16(p) | (u32)get16(p + 2) << 16;
}

static inline u64 get64(const u8 *p)
{
	return get32(p) | (u64)get32(p + 4) << 32;
}

static inline void put16(u8 *p, u16 v)
{
	p[0] = (u8)(v & 0xff);
	p[1] = (u8)(v >> 8);
}

static inline void put32(u8 *p, u32 v)
{
	put16(p, (u16)(v & 0xffff));
	put16(p + 2, (u16)(v >> 16));
}

static inline void put64(u8 *p, u64 v)
{
	put32(p, (u32)v);
	put32(p + 4, (u32)(v >> 32));
}

/* How a field of @wire goes into @to, */
#define GET_u8(field) (to->field = wire->field)
#define GET_u16(field) (to->field = get16((const u8 *)&wire->field))
#define GET_u32(field) (to->field = get32((const u8 *)&wire->field))
#define GET_u64(field) (to->field = get64((const u8 *)&wire->field))
#define GET_raw(field) memcpy(to->field, wire->field, sizeof(to->field))
#define GET_zero16(field) (reserved |= get16((const u8 *)&wire->field))
#define GET_zero32(field) (reserved |= get32((const u8 *)&wire->field))
#define GET(kind, field) GET_##kind(field);

/* and one of @from into @wire, which is all zero before. */
#define PUT_u8(field) (wire->field = from->field)
#define PUT_u16(field) put16((u8 *)&wire->field, from->field)
#define PUT_u32(field) put32((u8 *)&wire->field, from->field)
#define PUT_u64(field) put64((u8 *)&wire->field, from->field)
#define PUT_raw(field) memcpy(wire->field, from->field, sizeof(from->field))
#define PUT_zero16(field)
#define PUT_zero32(field)
#define PUT(kind, field) PUT_##kind(field);

/* Its bytes on the wire; an error if a struct has a field of another size. */
#define SAME(a, b) (sizeof(char[(a) == (b) ? 1 : -1]) * (b))
#define BYTES_of(field, n) \
	SAME(sizeof(to->field), SAME(sizeof(wire->field), n))
#define BYTES_u8(field) BYTES_of(field, 1)
#define BYTES_u16(field) BYTES_of(field, 2)
#define BYTES_u32(field) BYTES_of(field, 4)
#define BYTES_u64(field) BYTES_of(field, 8)
#define BYTES_raw(field) BYTES_of(field, sizeof(wire->field))
#define BYTES_zero16(field) SAME(sizeof(wire->field), 2)
#define BYTES_zero32(field) SAME(sizeof(wire->field), 4)
#define BYTES(kind, field) +BYTES_##kind(field)

/* NAME_get(): false if a reserved field is not zero. NAME_put(). */
#define BODY(name, FIELDS) \
	static inline bool name##_get(struct dcm_wire_msg *msg, const u8 *p) \
	{ \
		const struct dcm_wire_##name *wire = (const void *)p; \
		__typeof__(msg->name) *to = &msg->name; \
		u32 reserved = 0; \
\
		static_assert(FIELDS(BYTES) == sizeof(*wire), #name); \
		static_assert(sizeof(*wire) <= DCM_WIRE_BODY_MAX, #name); \
		FIELDS(GET) \
		return !reserved; \
	} \
	static inline void name##_put(const struct dcm_wire_msg *msg, u8 *p) \
	{ \
		const __typeof__(msg->name) *from = &msg->name; \
		struct dcm_wire_##name *wire = (void *)p; \
\
		FIELDS(PUT) \
	}

BODY(hello, DCM_FIELDS_HELLO)
BODY(welcome, DCM_FIELDS_WELCOME)
BODY(error, DCM_FIELDS_ERROR)
BODY(free_mem, DCM_FIELDS_FREE_MEM)
BODY(about, DCM_FIELDS_ABOUT)
BODY(map, DCM_FIELDS_MAP)
BODY(mr_info, DCM_FIELDS_MR_INFO)
BODY(ask_ticket, DCM_FIELDS_ASK_TICKET)
BODY(ticket, DCM_FIELDS_TICKET)
BODY(list, DCM_FIELDS_LIST)
BODY(slab_is, DCM_FIELDS_SLAB_IS)
BODY(slab, DCM_FIELDS_SLAB)
BODY(activity, DCM_FIELDS_ACTIVITY)
BODY(io, DCM_FIELDS_IO)
BODY(io_done, DCM_FIELDS_IO_DONE)
BODY(gc_open, DCM_FIELDS_GC_OPEN)
BODY(gc_opened, DCM_FIELDS_GC_OPENED)
BODY(gc_slab, DCM_FIELDS_GC_SLAB)
BODY(gc, DCM_FIELDS_GC)

/* Of types without a body. */
struct dcm_wire_none {};

static inline bool none_get(struct dcm_wire_msg *msg, const u8 *p)
{
	(void)msg;
	(void)p;
	return true;
}

static inline void none_put(const struct dcm_wire_msg *msg, u8 *p)
{
	(void)msg;
	(void)p;
}

#define H DCM_SIDE_HOST
#define D DCM_SIDE_DONOR
#define NEW DCM_PHASE_HELLO
#define CTL DCM_PHASE_CONTROL
#define DAT DCM_PHASE_DATA
#define COL DCM_PHASE_GC

/*
 * type, body, senders, phases, payload. ERROR on a data connection would have
 * no request to answer: DATA and WRITTEN have a status of their own.
 */
#define TYPES(x) \
	x(HELLO, hello, H, NEW, 0) \
	x(WELCOME, welcome, D, NEW, 0) \
	x(ERROR, error, D, NEW | CTL | DAT | COL, 0) \
	x(HEARTBEAT, none, H | D, CTL, 0) \
	x(GOODBYE, none, H, CTL, 0) \
	x(QUERY_MEM, none, H, CTL, 0) \
	x(FREE_MEM, free_mem, D, CTL, 0) \
	x(MAP, map, H, CTL, 0) \
	x(MR_INFO, mr_info, D, CTL, 0) \
	x(UNMAP, slab, H, CTL, 0) \
	x(ASK_TICKET, ask_ticket, H, CTL, 0) \
	x(TICKET, ticket, D, CTL, 0) \
	x(LIST, list, H, CTL, 0) \
	x(SLAB_IS, slab_is, D, CTL, 0) \
	x(ABOUT, about, D, CTL, 0) \
	x(CHECK_ACTIVITY, slab, D, CTL, 0) \
	x(ACTIVITY, activity, H, CTL, 0) \
	x(EVICT, slab, D, CTL, 0) \
	x(DONE, slab, H | D, CTL, 0) \
	x(READ, io, H, DAT, 0) \
	x(DATA, io_done, D, DAT, 1) \
	x(WRITE, io, H, DAT, 1) \
	x(WRITTEN, io_done, D, DAT, 0) \
	x(GC_OPEN, gc_open, H, COL, 0) \
	x(GC_OPENED, gc_opened, D, COL, 0) \
	x(GC_SLAB, gc_slab, H, COL, 0) \
	x(GC, gc, H | D, COL, 1)

struct wire_type {
	u8 body;
	u8 from;
	u8 phases;
	u8 payload;
	const char *name;
};

static const struct wire_type types[] = {
#define ROW(type, body, from, phases, payload) \
	[DCM_MSG_##type] = { sizeof(struct dcm_wire_##body), from, phases, \
			     payload, #type },
	TYPES(ROW)
#undef ROW
};

static_assert(sizeof(struct dcm_wire_hdr) == DCM_WIRE_HDR_BYTES, "header");

/* A field of the wire struct that @p points at. */
#define AT(p, st, field) ((p) + offsetof(struct dcm_wire_##st, field))

static const struct wire_type *wire_type_find(u16 type)
{
	if (type >= ARRAY_SIZE(types) || !types[type].name)
		return NULL;
	return &types[type];
}

int dcm_wire_gc_from(u32 kind)
{
	switch (kind) {
	case DCM_GC_PLACE:
	case DCM_GC_REQUEST:
	case DCM_GC_POLL:
	case DCM_GC_BITMAP:
	case DCM_GC_FINISH:
	case DCM_GC_STOP:
	case DCM_GC_MOVED:
	case DCM_GC_WRITE_COUNTS:
		return H;
	case DCM_GC_DONE:
	case DCM_GC_FLAGS:
	case DCM_GC_BITS:
		return D;
	case DCM_GC_GHOSTS:
	case DCM_GC_ACKED:
	case DCM_GC_FORWARD:
	case DCM_GC_FORWARDED:
		return H | D;
	default:
		return 0;
	}
}

/* Fields of @msg->type's body at @p, all of it there. False: see NAME_get(). */
static bool wire_fields_get(struct dcm_wire_msg *msg, const u8 *p)
{
	switch (msg->type) {
#define CASE(type, body, from, phases, payload) \
	case DCM_MSG_##type: \
		return body##_get(msg, p);
		TYPES(CASE)
#undef CASE
	default:
		return true;
	}
}

static void wire_fields_put(const struct dcm_wire_msg *msg, u8 *p)
{
	switch (msg->type) {
#define CASE(type, body, from, phases, payload) \
	case DCM_MSG_##type: \
		body##_put(msg, p); \
		break;
		TYPES(CASE)
#undef CASE
	default:
		break;
	}
}

/* Whether there is as much payload as the body says; a WRITE may have none. */
static inline bool wire_payload_fits(const struct dcm_wire_msg *msg)
{
	if (msg->type == DCM_MSG_WRITE)
		return !msg->payload_bytes ||
		       msg->payload_bytes == msg->io.bytes;
	if (msg->type == DCM_MSG_DATA)
		return msg->payload_bytes ==
		       (msg->io_done.status ? 0 : msg->io_done.bytes);
	return true;
}

/* Values that do not exist. Payload is already bounded. */
static int wire_body_check(const struct dcm_wire_msg *msg,
			   enum dcm_wire_side from)
{
	bool ok = true;

	switch (msg->type) {
	case DCM_MSG_HELLO:
		if (msg->hello.role < DCM_ROLE_CONTROL ||
		    msg->hello.role > DCM_ROLE_GC ||
		    msg->hello.version_min > msg->hello.version_max)
			return DCM_WIRE_E_VALUE;
		if (msg->hello.lane && msg->hello.role != DCM_ROLE_DATA)
			return DCM_WIRE_E_RESERVED;
		break;
	case DCM_MSG_MR_INFO:
		ok = msg->mr_info.transport == DCM_WT_TCP ||
		     msg->mr_info.transport == DCM_WT_SHM ||
		     msg->mr_info.transport == DCM_WT_VERBS;
		break;
	case DCM_MSG_SLAB_IS:
		/* none, and more of them */
		ok = msg->slab_is.slab ||
		     !(msg->slab_is.flags & DCM_SLAB_IS_MORE);
		break;
	case DCM_MSG_ASK_TICKET:
		ok = msg->ask_ticket.lane;
		break;
	case DCM_MSG_TICKET:
		ok = msg->ticket.port;
		break;
	case DCM_MSG_WRITE:
	case DCM_MSG_DATA:
		return wire_payload_fits(msg) ? DCM_WIRE_OK : DCM_WIRE_E_SIZE;
	case DCM_MSG_GC_OPEN:
		ok = msg->gc_open.donor < DCM_WIRE_GC_DONORS;
		break;
	case DCM_MSG_GC_SLAB:
		ok = msg->gc_slab.number < DCM_WIRE_GC_SLABS;
		break;
	case DCM_MSG_GC:
		ok = dcm_wire_gc_from(msg->gc.kind) & from;
		break;
	default:
		break;
	}
	return ok ? DCM_WIRE_OK : DCM_WIRE_E_VALUE;
}

int dcm_wire_head(const void *buf, size_t len, enum dcm_wire_phase phase,
		  enum dcm_wire_side from, struct dcm_wire_msg *msg,
		  size_t *bytes)
{
	const u8 *p = buf;
	const struct wire_type *t;
	u32 size;
	size_t head;

	if (len < DCM_WIRE_HDR_BYTES) {
		/* junk is refused at its second byte, not at its 16th */
		if (len >= 2 && get16(p) != DCM_WIRE_MAGIC)
			return DCM_WIRE_E_MAGIC;
		*bytes = DCM_WIRE_HDR_BYTES - len;
		return DCM_WIRE_MORE;
	}
	if (get16(AT(p, hdr, magic)) != DCM_WIRE_MAGIC)
		return DCM_WIRE_E_MAGIC;
	msg->type = get16(AT(p, hdr, type));
	t = wire_type_find(msg->type);
	if (!t)
		return DCM_WIRE_E_TYPE;
	if (!(t->phases & phase) || !(t->from & from))
		return DCM_WIRE_E_PHASE;
	size = get32(AT(p, hdr, bytes));
	if (size < t->body)
		return DCM_WIRE_E_SIZE;
	if (size - t->body > (t->payload ? DCM_WIRE_PAYLOAD_MAX : 0))
		return DCM_WIRE_E_SIZE;
	msg->tag = get64(AT(p, hdr, tag));
	msg->payload_bytes = size - t->body;
	msg->payload = NULL;
	head = DCM_WIRE_HDR_BYTES + t->body;
	if (len < head) {
		*bytes = head - len;
		return DCM_WIRE_MORE;
	}
	*bytes = head;
	if (!wire_fields_get(msg, p + DCM_WIRE_HDR_BYTES))
		return DCM_WIRE_E_RESERVED;
	return wire_body_check(msg, from);
}

int dcm_wire_decode(const void *buf, size_t len, enum dcm_wire_phase phase,
		    enum dcm_wire_side from, struct dcm_wire_msg *msg,
		    size_t *bytes)
{
	int ret = dcm_wire_head(buf, len, phase, from, msg, bytes);

	if (ret != DCM_WIRE_OK)
		return ret;
	if (len - *bytes < msg->payload_bytes) {
		*bytes = msg->payload_bytes - (len - *bytes);
		return DCM_WIRE_MORE;
	}
	if (msg->payload_bytes)
		msg->payload = (const u8 *)buf + *bytes;
	*bytes += msg->payload_bytes;
	return DCM_WIRE_OK;
}

int dcm_wire_encode(void *buf, size_t len, const struct dcm_wire_msg *msg)
{
	const struct wire_type *t = wire_type_find(msg->type);
	u8 *p = buf;
	u32 payload = msg->payload_bytes;

	if (!t)
		return DCM_WIRE_E_TYPE;
	if (payload > (t->payload ? DCM_WIRE_PAYLOAD_MAX : 0))
		return DCM_WIRE_E_SIZE;
	if (!wire_payload_fits(msg))
		return DCM_WIRE_E_SIZE;
	if (len < DCM_WIRE_HDR_BYTES + t->body)
		return DCM_WIRE_E_ROOM;
	put16(AT(p, hdr, magic), DCM_WIRE_MAGIC);
	put16(AT(p, hdr, type), msg->type);
	put32(AT(p, hdr, bytes), t->body + payload);
	put64(AT(p, hdr, tag), msg->tag);
	/* reserved fields, and nothing of the stack, go out */
	memset(p + DCM_WIRE_HDR_BYTES, 0, t->body);
	wire_fields_put(msg, p + DCM_WIRE_HDR_BYTES);
	return (int)(DCM_WIRE_HDR_BYTES + t->body);
}

static_assert(sizeof(struct dcm_wire_show) == DCM_WIRE_SHOW_BYTES, "show");

void dcm_wire_show_put(u8 *buf, const struct dcm_wire_shown *shown)
{
	memset(buf, 0, DCM_WIRE_SHOW_BYTES);
	put32(AT(buf, show, magic), DCM_WIRE_SHOW_MAGIC);
	put16(AT(buf, show, version), shown->version);
	put64(AT(buf, show, number), shown->number);
	memcpy(AT(buf, show, secret), shown->secret, 16);
}

int dcm_wire_show_get(const void *buf, size_t len, struct dcm_wire_shown *shown)
{
	const u8 *p = buf;

	if (len < DCM_WIRE_SHOW_BYTES)
		return DCM_WIRE_E_SIZE;
	if (get32(AT(p, show, magic)) != DCM_WIRE_SHOW_MAGIC)
		return DCM_WIRE_E_MAGIC;
	shown->version = get16(AT(p, show, version));
	if (shown->version < DCM_WIRE_VERSION_MIN ||
	    shown->version > DCM_WIRE_VERSION_MAX)
		return DCM_WIRE_E_VALUE;
	if (get16(AT(p, show, reserved)))
		return DCM_WIRE_E_RESERVED;
	shown->number = get64(AT(p, show, number));
	memcpy(shown->secret, AT(p, show, secret), 16);
	return DCM_WIRE_OK;
}

const char *dcm_wire_type_name(u16 type)
{
	const struct wire_type *t = wire_type_find(type);

	return t ? t->name : "?";
}

static const char *const statuses[] = {
#define STATUS(name, text) [DCM_WS_##name] = text
	STATUS(OK, "done"),
	STATUS(VERSION, "no common protocol version"),
	STATUS(PROTOCOL, "message malformed or not allowed here"),
	STATUS(NO_SESSION, "unknown or ended session"),
	STATUS(QUOTA, "the tenant's quota is used up"),
	STATUS(NO_MEMORY, "no slab to give"),
	STATUS(NO_SLAB, "not a slab of this session"),
	STATUS(RANGE, "outside the slab or not page aligned"),
	STATUS(TRANSPORT, "none of the transports asked for can be had"),
	STATUS(BUSY, "too many connections or sessions"),
	STATUS(DRAINING, "the donor is going away"),
	STATUS(SIZE, "not the donor's slab size"),
	STATUS(NO_GC, "no garbage collection here"),
	STATUS(WORKER, "the garbage collection worker has ended"),
	STATUS(IO, "the donor's disk failed"),
#undef STATUS
};

const char *dcm_wire_status_text(u32 status)
{
	return status < ARRAY_SIZE(statuses) ? statuses[status] :
					       "unknown status";
}

const char *dcm_wire_error_name(int code)
{
	switch (code) {
	case DCM_WIRE_OK:
		return "OK";
#define NAME(name, value, text) \
	case DCM_WIRE_##name:   \
		return #name;
		DCM_WIRE_ERRORS(NAME)
#undef NAME
	default:
		return "?";
	}
}

const char *dcm_wire_error_text(int code)
{
	switch (code) {
	case DCM_WIRE_OK:
		return "ok";
#define TEXT(name, value, text) \
	case DCM_WIRE_##name:   \
		return text;
		DCM_WIRE_ERRORS(TEXT)
#undef TEXT
	default:
		return "unknown error";
	}
}

static int status_errno(u32 status)
{
	switch (status) {
	case DCM_WS_OK:
		return 0;
	case DCM_WS_NO_SLAB:
	case DCM_WS_NO_SESSION:
		return -ESTALE;
	default:
		return -EIO;
	}
}

const char *dcm_wire_answer(const void *buf, size_t len,
			    const struct dcm_wire_msg *asked, int *err)
{
	struct dcm_wire_msg msg;
	size_t bytes;
	int ret = dcm_wire_head(buf, len, DCM_PHASE_DATA, DCM_SIDE_DONOR, &msg,
				&bytes);

	*err = 0;
	if (ret == DCM_WIRE_MORE)
		return "answer of the wrong length";
	if (ret != DCM_WIRE_OK)
		return dcm_wire_error_text(ret);
	if (msg.type == DCM_MSG_ERROR)
		return dcm_wire_status_text(msg.error.status);
	if (msg.tag != asked->tag)
		return "answer to nothing that was asked";
	if (msg.type !=
	    (asked->type == DCM_MSG_READ ? DCM_MSG_DATA : DCM_MSG_WRITTEN))
		return "answer of the wrong type";
	if (msg.io_done.status == DCM_WS_OK &&
	    msg.io_done.bytes != asked->io.bytes)
		return "answer of the wrong length";
	*err = status_errno(msg.io_done.status);
	return NULL;
}

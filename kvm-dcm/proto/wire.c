// SPDX-License-Identifier: GPL-2.0-only
/*
 * wire.c - the only encoder and decoder of wire_format.h
 *
 * One table says everything about a type: its body, who may send it, when,
 * and whether payload follows. The decoder looks at nothing beyond what the
 * table allows, so a type added there is bounded before it is understood.
 * Fields are read byte by byte at their offset in the wire structs: no
 * alignment is assumed, no host order leaks, and the compiler makes plain
 * loads of it.
 *
 * No state, no locks, no allocation.
 */
#include "wire.h"

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

/* A field of the wire struct that @p points at. */
#define AT(p, st, field) ((p) + offsetof(struct dcm_wire_##st, field))

#define H DCM_SIDE_HOST
#define D DCM_SIDE_DONOR
#define NEW DCM_PHASE_HELLO
#define CTL DCM_PHASE_CONTROL
#define DAT DCM_PHASE_DATA
#define COL DCM_PHASE_GC

/*
 * type, bytes of body, senders, phases, payload. ERROR on a data connection
 * would have no request to answer: those have a status of their own.
 */
#define DCM_WIRE_TYPES(x)                                                      \
	x(HELLO, sizeof(struct dcm_wire_hello), H, NEW,                        \
	  0) x(WELCOME, sizeof(struct dcm_wire_welcome), D, NEW,               \
	       0) x(ERROR, sizeof(struct dcm_wire_error), D,                   \
		    NEW | CTL | DAT | COL,                                     \
		    0) x(HEARTBEAT, 0, H | D, CTL,                             \
			 0) x(GOODBYE, 0, H, CTL,                              \
			      0) x(QUERY_MEM, 0, H, CTL,                       \
				   0) x(FREE_MEM,                              \
					sizeof(struct dcm_wire_free_mem), D,   \
					CTL,                                   \
					0) x(MAP, sizeof(struct dcm_wire_map), \
					     H, CTL, 0)                        \
		x(MR_INFO, sizeof(struct dcm_wire_mr_info), D, CTL,            \
		  0) x(UNMAP, sizeof(struct dcm_wire_slab), H, CTL,            \
		       0) x(ASK_TICKET, sizeof(struct dcm_wire_ask_ticket), H, \
			    CTL,                                               \
			    0) x(TICKET, sizeof(struct dcm_wire_ticket), D,    \
				 CTL,                                          \
				 0) x(CHECK_ACTIVITY,                          \
				      sizeof(struct dcm_wire_slab), D, CTL,    \
				      0) x(ACTIVITY,                           \
					   sizeof(struct dcm_wire_activity),   \
					   H, CTL, 0)                          \
			x(EVICT, sizeof(struct dcm_wire_slab), D, CTL,         \
			  0) x(DONE, sizeof(struct dcm_wire_slab), H | D, CTL, \
			       0) x(READ, sizeof(struct dcm_wire_io), H, DAT,  \
				    0) x(DATA,                                 \
					 sizeof(struct dcm_wire_io_done), D,   \
					 DAT, 1) x(WRITE,                      \
						   sizeof(struct dcm_wire_io), \
						   H, DAT, 1)                  \
				x(WRITTEN, sizeof(struct dcm_wire_io_done), D, \
				  DAT,                                         \
				  0) x(GC_OPEN,                                \
				       sizeof(struct dcm_wire_gc_open), H,     \
				       COL,                                    \
				       0) x(GC_OPENED,                         \
					    sizeof(struct dcm_wire_gc_opened), \
					    D, COL, 0)                         \
					x(GC_SLAB,                             \
					  sizeof(struct dcm_wire_gc_slab), H,  \
					  COL,                                 \
					  0) x(GC, sizeof(struct dcm_wire_gc), \
					       H | D, COL, 1)

struct wire_type {
	u8 body;
	u8 from;
	u8 phases;
	u8 payload;
	const char *name;
};

static const struct wire_type types[] = {
#define ROW(name, body, from, phases, payload) \
	[DCM_MSG_##name] = { body, from, phases, payload, #name },
	DCM_WIRE_TYPES(ROW)
#undef ROW
};

#define BOUND(name, body, from, phases, payload) \
	static_assert((body) <= DCM_WIRE_BODY_MAX, #name);
DCM_WIRE_TYPES(BOUND)
#undef BOUND

static_assert(sizeof(struct dcm_wire_hdr) == DCM_WIRE_HDR_BYTES, "header");

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
	case DCM_GC_TAGS:
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

/* Body of @msg->type at @p, all of it there. Payload is already bounded. */
static int wire_body_get(struct dcm_wire_msg *msg, const u8 *p,
			 enum dcm_wire_side from)
{
	switch (msg->type) {
	case DCM_MSG_HELLO:
		msg->hello.version_min = get16(AT(p, hello, version_min));
		msg->hello.version_max = get16(AT(p, hello, version_max));
		msg->hello.role = *AT(p, hello, role);
		msg->hello.flags = *AT(p, hello, flags);
		msg->hello.lane = get16(AT(p, hello, lane));
		msg->hello.session = get64(AT(p, hello, session));
		memcpy(msg->hello.secret, AT(p, hello, secret), 16);
		if (msg->hello.role < DCM_ROLE_CONTROL ||
		    msg->hello.role > DCM_ROLE_GC)
			return DCM_WIRE_E_VALUE;
		if (msg->hello.version_min > msg->hello.version_max)
			return DCM_WIRE_E_VALUE;
		if (msg->hello.lane && msg->hello.role != DCM_ROLE_DATA)
			return DCM_WIRE_E_RESERVED;
		return DCM_WIRE_OK;
	case DCM_MSG_WELCOME:
		msg->welcome.version = get16(AT(p, welcome, version));
		msg->welcome.flags = get16(AT(p, welcome, flags));
		msg->welcome.inflight_max = get32(AT(p, welcome, inflight_max));
		msg->welcome.session = get64(AT(p, welcome, session));
		memcpy(msg->welcome.secret, AT(p, welcome, secret), 16);
		msg->welcome.slab_bytes = get64(AT(p, welcome, slab_bytes));
		msg->welcome.donor_id = get64(AT(p, welcome, donor_id));
		return DCM_WIRE_OK;
	case DCM_MSG_ERROR:
		if (get32(AT(p, error, reserved)))
			return DCM_WIRE_E_RESERVED;
		msg->error.status = get32(AT(p, error, status));
		return DCM_WIRE_OK;
	case DCM_MSG_FREE_MEM:
		if (get32(AT(p, free_mem, reserved)))
			return DCM_WIRE_E_RESERVED;
		msg->free_mem.slabs_free = get64(AT(p, free_mem, slabs_free));
		msg->free_mem.slabs_total = get64(AT(p, free_mem, slabs_total));
		msg->free_mem.slab_bytes = get64(AT(p, free_mem, slab_bytes));
		msg->free_mem.used_bytes = get64(AT(p, free_mem, used_bytes));
		msg->free_mem.flags = get32(AT(p, free_mem, flags));
		return DCM_WIRE_OK;
	case DCM_MSG_MAP:
		if (get32(AT(p, map, reserved)))
			return DCM_WIRE_E_RESERVED;
		msg->map.slab_bytes = get64(AT(p, map, slab_bytes));
		msg->map.cookie = get64(AT(p, map, cookie));
		msg->map.transports = get32(AT(p, map, transports));
		return DCM_WIRE_OK;
	case DCM_MSG_MR_INFO:
		msg->mr_info.slab = get64(AT(p, mr_info, slab));
		msg->mr_info.bytes = get64(AT(p, mr_info, bytes));
		msg->mr_info.addr = get64(AT(p, mr_info, addr));
		msg->mr_info.rkey = get32(AT(p, mr_info, rkey));
		msg->mr_info.transport = get32(AT(p, mr_info, transport));
		if (msg->mr_info.transport != DCM_WT_TCP &&
		    msg->mr_info.transport != DCM_WT_SHM &&
		    msg->mr_info.transport != DCM_WT_VERBS)
			return DCM_WIRE_E_VALUE;
		return DCM_WIRE_OK;
	case DCM_MSG_ASK_TICKET:
		if (get16(AT(p, ask_ticket, reserved)) ||
		    get32(AT(p, ask_ticket, reserved2)))
			return DCM_WIRE_E_RESERVED;
		msg->ask_ticket.lane = get16(AT(p, ask_ticket, lane));
		return msg->ask_ticket.lane ? DCM_WIRE_OK : DCM_WIRE_E_VALUE;
	case DCM_MSG_TICKET:
		if (get16(AT(p, ticket, reserved)))
			return DCM_WIRE_E_RESERVED;
		msg->ticket.number = get64(AT(p, ticket, number));
		memcpy(msg->ticket.secret, AT(p, ticket, secret), 16);
		memcpy(msg->ticket.addr, AT(p, ticket, addr), 16);
		msg->ticket.port = get16(AT(p, ticket, port));
		msg->ticket.valid_ms = get32(AT(p, ticket, valid_ms));
		return msg->ticket.port ? DCM_WIRE_OK : DCM_WIRE_E_VALUE;
	case DCM_MSG_UNMAP:
	case DCM_MSG_CHECK_ACTIVITY:
	case DCM_MSG_EVICT:
	case DCM_MSG_DONE:
		msg->slab.slab = get64(AT(p, slab, slab));
		return DCM_WIRE_OK;
	case DCM_MSG_ACTIVITY:
		msg->activity.slab = get64(AT(p, activity, slab));
		msg->activity.ewma_milli = get64(AT(p, activity, ewma_milli));
		return DCM_WIRE_OK;
	case DCM_MSG_READ:
	case DCM_MSG_WRITE:
		if (get32(AT(p, io, reserved)))
			return DCM_WIRE_E_RESERVED;
		msg->io.slab = get64(AT(p, io, slab));
		msg->io.offset = get64(AT(p, io, offset));
		msg->io.bytes = get32(AT(p, io, bytes));
		if (msg->type == DCM_MSG_WRITE &&
		    msg->io.bytes != msg->payload_bytes)
			return DCM_WIRE_E_SIZE;
		return DCM_WIRE_OK;
	case DCM_MSG_DATA:
	case DCM_MSG_WRITTEN:
		msg->io_done.status = get32(AT(p, io_done, status));
		msg->io_done.bytes = get32(AT(p, io_done, bytes));
		if (msg->type == DCM_MSG_DATA &&
		    msg->payload_bytes !=
			    (msg->io_done.status ? 0 : msg->io_done.bytes))
			return DCM_WIRE_E_SIZE;
		return DCM_WIRE_OK;
	case DCM_MSG_GC_OPEN:
		if (get32(AT(p, gc_open, reserved)))
			return DCM_WIRE_E_RESERVED;
		msg->gc_open.bytes = get64(AT(p, gc_open, bytes));
		msg->gc_open.donor = get32(AT(p, gc_open, donor));
		return msg->gc_open.donor < DCM_WIRE_GC_DONORS ?
			       DCM_WIRE_OK :
			       DCM_WIRE_E_VALUE;
	case DCM_MSG_GC_OPENED:
		if (get32(AT(p, gc_opened, reserved)))
			return DCM_WIRE_E_RESERVED;
		msg->gc_opened.threads = get32(AT(p, gc_opened, threads));
		return DCM_WIRE_OK;
	case DCM_MSG_GC_SLAB:
		if (get32(AT(p, gc_slab, reserved)))
			return DCM_WIRE_E_RESERVED;
		msg->gc_slab.slab = get64(AT(p, gc_slab, slab));
		msg->gc_slab.number = get32(AT(p, gc_slab, number));
		return msg->gc_slab.number < DCM_WIRE_GC_SLABS ?
			       DCM_WIRE_OK :
			       DCM_WIRE_E_VALUE;
	case DCM_MSG_GC:
		if (get32(AT(p, gc, reserved)))
			return DCM_WIRE_E_RESERVED;
		msg->gc.kind = get32(AT(p, gc, kind));
		msg->gc.space = get32(AT(p, gc, space));
		msg->gc.epoch = get32(AT(p, gc, epoch));
		msg->gc.n = get32(AT(p, gc, n));
		msg->gc.value = get64(AT(p, gc, value));
		msg->gc.donor = get32(AT(p, gc, donor));
		return dcm_wire_gc_from(msg->gc.kind) & from ? DCM_WIRE_OK :
							       DCM_WIRE_E_VALUE;
	default:
		return DCM_WIRE_OK;
	}
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
	return wire_body_get(msg, p + DCM_WIRE_HDR_BYTES, from);
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

static void wire_body_put(const struct dcm_wire_msg *msg, u8 *p)
{
	switch (msg->type) {
	case DCM_MSG_HELLO:
		put16(AT(p, hello, version_min), msg->hello.version_min);
		put16(AT(p, hello, version_max), msg->hello.version_max);
		*AT(p, hello, role) = msg->hello.role;
		*AT(p, hello, flags) = msg->hello.flags;
		put16(AT(p, hello, lane), msg->hello.lane);
		put64(AT(p, hello, session), msg->hello.session);
		memcpy(AT(p, hello, secret), msg->hello.secret, 16);
		break;
	case DCM_MSG_WELCOME:
		put16(AT(p, welcome, version), msg->welcome.version);
		put16(AT(p, welcome, flags), msg->welcome.flags);
		put32(AT(p, welcome, inflight_max), msg->welcome.inflight_max);
		put64(AT(p, welcome, session), msg->welcome.session);
		memcpy(AT(p, welcome, secret), msg->welcome.secret, 16);
		put64(AT(p, welcome, slab_bytes), msg->welcome.slab_bytes);
		put64(AT(p, welcome, donor_id), msg->welcome.donor_id);
		break;
	case DCM_MSG_ERROR:
		put32(AT(p, error, status), msg->error.status);
		break;
	case DCM_MSG_FREE_MEM:
		put64(AT(p, free_mem, slabs_free), msg->free_mem.slabs_free);
		put64(AT(p, free_mem, slabs_total), msg->free_mem.slabs_total);
		put64(AT(p, free_mem, slab_bytes), msg->free_mem.slab_bytes);
		put64(AT(p, free_mem, used_bytes), msg->free_mem.used_bytes);
		put32(AT(p, free_mem, flags), msg->free_mem.flags);
		break;
	case DCM_MSG_MAP:
		put64(AT(p, map, slab_bytes), msg->map.slab_bytes);
		put64(AT(p, map, cookie), msg->map.cookie);
		put32(AT(p, map, transports), msg->map.transports);
		break;
	case DCM_MSG_MR_INFO:
		put64(AT(p, mr_info, slab), msg->mr_info.slab);
		put64(AT(p, mr_info, bytes), msg->mr_info.bytes);
		put64(AT(p, mr_info, addr), msg->mr_info.addr);
		put32(AT(p, mr_info, rkey), msg->mr_info.rkey);
		put32(AT(p, mr_info, transport), msg->mr_info.transport);
		break;
	case DCM_MSG_ASK_TICKET:
		put16(AT(p, ask_ticket, lane), msg->ask_ticket.lane);
		break;
	case DCM_MSG_TICKET:
		put64(AT(p, ticket, number), msg->ticket.number);
		memcpy(AT(p, ticket, secret), msg->ticket.secret, 16);
		memcpy(AT(p, ticket, addr), msg->ticket.addr, 16);
		put16(AT(p, ticket, port), msg->ticket.port);
		put32(AT(p, ticket, valid_ms), msg->ticket.valid_ms);
		break;
	case DCM_MSG_UNMAP:
	case DCM_MSG_CHECK_ACTIVITY:
	case DCM_MSG_EVICT:
	case DCM_MSG_DONE:
		put64(AT(p, slab, slab), msg->slab.slab);
		break;
	case DCM_MSG_ACTIVITY:
		put64(AT(p, activity, slab), msg->activity.slab);
		put64(AT(p, activity, ewma_milli), msg->activity.ewma_milli);
		break;
	case DCM_MSG_READ:
	case DCM_MSG_WRITE:
		put64(AT(p, io, slab), msg->io.slab);
		put64(AT(p, io, offset), msg->io.offset);
		put32(AT(p, io, bytes), msg->io.bytes);
		break;
	case DCM_MSG_DATA:
	case DCM_MSG_WRITTEN:
		put32(AT(p, io_done, status), msg->io_done.status);
		put32(AT(p, io_done, bytes), msg->io_done.bytes);
		break;
	case DCM_MSG_GC_OPEN:
		put64(AT(p, gc_open, bytes), msg->gc_open.bytes);
		put32(AT(p, gc_open, donor), msg->gc_open.donor);
		break;
	case DCM_MSG_GC_OPENED:
		put32(AT(p, gc_opened, threads), msg->gc_opened.threads);
		break;
	case DCM_MSG_GC_SLAB:
		put64(AT(p, gc_slab, slab), msg->gc_slab.slab);
		put32(AT(p, gc_slab, number), msg->gc_slab.number);
		break;
	case DCM_MSG_GC:
		put32(AT(p, gc, kind), msg->gc.kind);
		put32(AT(p, gc, space), msg->gc.space);
		put32(AT(p, gc, epoch), msg->gc.epoch);
		put32(AT(p, gc, n), msg->gc.n);
		put64(AT(p, gc, value), msg->gc.value);
		put32(AT(p, gc, donor), msg->gc.donor);
		break;
	default:
		break;
	}
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
	if (msg->type == DCM_MSG_WRITE && payload != msg->io.bytes)
		return DCM_WIRE_E_SIZE;
	if (msg->type == DCM_MSG_DATA &&
	    payload != (msg->io_done.status ? 0 : msg->io_done.bytes))
		return DCM_WIRE_E_SIZE;
	if (len < DCM_WIRE_HDR_BYTES + t->body)
		return DCM_WIRE_E_ROOM;
	put16(AT(p, hdr, magic), DCM_WIRE_MAGIC);
	put16(AT(p, hdr, type), msg->type);
	put32(AT(p, hdr, bytes), t->body + payload);
	put64(AT(p, hdr, tag), msg->tag);
	/* reserved fields, and nothing of the stack, go out */
	memset(p + DCM_WIRE_HDR_BYTES, 0, t->body);
	wire_body_put(msg, p + DCM_WIRE_HDR_BYTES);
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

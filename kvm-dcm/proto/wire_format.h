/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * wire_format.h - what goes over a connection between a host and a donor
 *
 * The prose contract, with limits and sequences, is docs/protocol.md; the
 * only encoder and decoder is wire.c. All integers are little endian. Every
 * message is a header and a body of fixed size for its type, then @bytes of
 * payload for DATA, WRITE and GC only. Nothing is answered before the TLS 1.3
 * pre-shared-key handshake and a HELLO that the donor accepts.
 *
 * The first eight control messages are those of infiniswap-nsdi17, appendix
 * B.1, with their meaning; the rest is what it leaves out: sessions, failure,
 * discard and the way back after a lost connection.
 */
#ifndef DCM_WIRE_FORMAT_H
#define DCM_WIRE_FORMAT_H

#include <linux/types.h>

#define DCM_WIRE_MAGIC		0x4d43	/* "CM" */
#define DCM_WIRE_VERSION_MIN	1
#define DCM_WIRE_VERSION_MAX	1

#define DCM_WIRE_PAYLOAD_MAX	65536u	/* one block */
#define DCM_WIRE_BODY_MAX	64u
#define DCM_WIRE_TENANT_MAX	64u	/* TLS PSK identity, bytes without NUL */
#define DCM_WIRE_KEY_MIN	16u	/* PSK, bytes */
#define DCM_WIRE_KEY_MAX	64u
#define DCM_WIRE_INFLIGHT_MAX	256u	/* data operations per connection */
#define DCM_WIRE_SLAB_MIN	(2u << 20)
#define DCM_WIRE_SLAB_MAX	(1ull << 40)
#define DCM_WIRE_HEARTBEAT_MS	1000u	/* either side sends at least this often */
#ifndef DCM_WIRE_SILENCE_MS /* tests on very slow machines only */
#define DCM_WIRE_SILENCE_MS	5000u	/* silent for this long is dead */
#endif

/* type, name, body struct or 0 */
enum dcm_wire_type {
	/* both roles */
	DCM_MSG_HELLO = 1,		/* host: first message after the handshake */
	DCM_MSG_WELCOME = 2,		/* donor: accepted */
	DCM_MSG_ERROR = 3,		/* donor: refused; tag says which request */
	DCM_MSG_HEARTBEAT = 4,		/* both, control role; no body */
	DCM_MSG_GOODBYE = 5,		/* host: session over, slabs back now; no body */

	/* control role: placement */
	DCM_MSG_QUERY_MEM = 16,		/* host; no body */
	DCM_MSG_FREE_MEM = 17,		/* donor */
	DCM_MSG_MAP = 18,		/* host */
	DCM_MSG_MR_INFO = 19,		/* donor; over AF_UNIX and shm with the memfd */
	DCM_MSG_UNMAP = 20,		/* host gives one slab back; answered by DONE */
	/* control role: queue pairs, if WELCOME says DCM_WELCOME_VERBS */
	DCM_MSG_ASK_TICKET = 21,	/* host wants one for a lane */
	DCM_MSG_TICKET = 22,		/* donor: where, and what to show there */
	/* control role: what a session has, if WELCOME says DCM_WELCOME_LIST */
	DCM_MSG_LIST = 23,		/* host: which slabs have I? */
	DCM_MSG_SLAB_IS =
		24, /* donor: one of them, %DCM_WIRE_LIST_MAX at most */
	/* control role: how the donor is, if both flags say so */
	DCM_MSG_ABOUT = 25,		/* donor, behind FREE_MEM */

	/* control role: eviction */
	DCM_MSG_CHECK_ACTIVITY = 32,	/* donor */
	DCM_MSG_ACTIVITY = 33,		/* host */
	DCM_MSG_EVICT = 34,		/* donor wants one slab back */
	/*
	 * host: nothing uses it any more. donor: answers UNMAP; with tag 0:
	 * taken back by force
	 */
	DCM_MSG_DONE = 35,

	/* data role */
	DCM_MSG_READ = 48,		/* host */
	DCM_MSG_DATA = 49,		/* donor, payload */
	DCM_MSG_WRITE = 50,		/* host, payload; without it: zeroes */
	DCM_MSG_WRITTEN = 51,		/* donor */

	/* gc role: garbage collection where the slabs are */
	DCM_MSG_GC_OPEN = 64,		/* host: start a worker */
	DCM_MSG_GC_OPENED = 65,		/* donor */
	DCM_MSG_GC_SLAB = 66,		/* host: the worker may map this slab */
	DCM_MSG_GC = 67,		/* both, payload: to the worker, or from it */
};

enum dcm_wire_role {
	DCM_ROLE_CONTROL = 1,
	DCM_ROLE_DATA = 2,
	DCM_ROLE_GC = 3,
};

enum dcm_wire_transport {
	DCM_WT_TCP = 1,
	DCM_WT_SHM = 2,
	DCM_WT_VERBS = 4,
};

enum dcm_wire_status {
	DCM_WS_OK = 0,
	DCM_WS_VERSION = 1,	/* no common version */
	DCM_WS_PROTOCOL = 2,	/* message not allowed here or malformed */
	DCM_WS_NO_SESSION = 3,	/* unknown or ended session */
	DCM_WS_QUOTA = 4,	/* the tenant's quota is used up */
	DCM_WS_NO_MEMORY = 5,	/* no slab to give: head room */
	DCM_WS_NO_SLAB = 6,	/* not this session's slab */
	DCM_WS_RANGE = 7,	/* outside the slab, or not page aligned */
	DCM_WS_TRANSPORT = 8,	/* none of the transports asked for */
	DCM_WS_BUSY = 9,	/* a limit on connections or sessions */
	DCM_WS_DRAINING = 10,	/* the donor is going away */
	DCM_WS_SIZE = 11,	/* not the donor's slab size */
	DCM_WS_NO_GC = 12,	/* no GC worker can be had here */
	DCM_WS_WORKER = 13,	/* the GC worker has ended */
	DCM_WS_IO = 14,		/* the donor's disk failed; not done, or in part */
};

/* 16 bytes before every message */
struct dcm_wire_hdr {
	__le16 magic;
	__le16 type;
	__le32 bytes;	/* of body and payload together */
	__le64 tag;	/* requester's; an answer carries its request's */
} __attribute__((packed));

struct dcm_wire_hello {
	__le16 version_min;
	__le16 version_max;
	__u8 role;
	__u8 flags;		/* DCM_HELLO_*; unknown ones are ignored */
	__le16 lane;		/* data role: takes this one's place; else 0 */
	__le64 session;		/* 0: new; else resume (control) or join (data) */
	__u8 secret[16];	/* of the session; 0 with a new one */
} __attribute__((packed));
/* data role: plain bytes instead of TLS records after WELCOME, if both agree */
#define DCM_HELLO_PLAIN_DATA 0x1
/* control role: I know ASK_TICKET and would use verbs */
#define DCM_HELLO_VERBS 0x2
/* control role: I know LIST */
#define DCM_HELLO_LIST 0x4
/* control role: I know ABOUT */
#define DCM_HELLO_ABOUT 0x8

struct dcm_wire_welcome {
	__le16 version;
	__le16 flags;		/* DCM_WELCOME_*: what of the asked-for is on */
	__le32 inflight_max;	/* data operations per connection */
	__le64 session;
	__u8 secret[16];	/* control role of a new session; else 0 */
	__le64 slab_bytes;
	__le64 donor_id;	/* random at each start of the donor */
} __attribute__((packed));
#define DCM_WELCOME_PLAIN_DATA 0x1
#define DCM_WELCOME_VERBS 0x2	/* control role: ASK_TICKET will be understood */
#define DCM_WELCOME_LIST 0x4	/* control role: LIST will be understood */
#define DCM_WELCOME_ABOUT 0x8	/* control role: ABOUT will be sent */

struct dcm_wire_error {
	__le32 status;
	__le32 reserved;
} __attribute__((packed));

struct dcm_wire_free_mem {
	__le64 slabs_free;	/* this session could map now */
	__le64 slabs_total;
	__le64 slab_bytes;
	__le64 used_bytes;	/* lent to anyone: what placement compares */
	__le32 flags;		/* DCM_FREE_*; unknown ones are ignored */
	__le32 reserved;
} __attribute__((packed));
#define DCM_FREE_DRAINING 0x1
#define DCM_FREE_FILE 0x2	/* slabs are files on a disk: slow */

/* Totals: nothing of other tenants but their sum. */
struct dcm_wire_about {
	__le64 capacity_bytes;	/* may be lent at most */
	__le64 lent_bytes;	/* to anyone */
	__le64 head_room_bytes;	/* kept free for the donor's machine */
	__le32 sessions;	/* with all hosts */
	__le32 flags;		/* DCM_ABOUT_*; unknown ones are ignored */
} __attribute__((packed));
#define DCM_ABOUT_DRAINING 0x1	/* it wants all its slabs back */

struct dcm_wire_map {
	__le64 slab_bytes;	/* must be the donor's */
	__le64 cookie;		/* host's extent number, for the donor's status only */
	__le32 transports;	/* mask of dcm_wire_transport the host can use */
	__le32 reserved;
} __attribute__((packed));

struct dcm_wire_mr_info {
	__le64 slab;		/* id, never reused while the donor runs */
	__le64 bytes;
	__le64 addr;		/* verbs */
	__le32 rkey;		/* verbs */
	__le32 transport;	/* the one chosen */
} __attribute__((packed));

struct dcm_wire_ask_ticket {
	__le16 lane;		/* from 1; takes this one's place */
	__le16 reserved;
	__le32 reserved2;
} __attribute__((packed));

struct dcm_wire_ticket {
	__le64 number;
	__u8 secret[16];	/* good for one connection */
	__u8 addr[16];		/* IPv6, or IPv4 mapped; 0: as this connection's */
	__le16 port;		/* of the RDMA connection manager's TCP port space */
	__le16 reserved;
	__le32 valid_ms;	/* to be shown within */
} __attribute__((packed));

/*
 * Private data of the connection request that shows a ticket: not a message.
 * What may follow it, a connection manager's padding, is not looked at.
 */
struct dcm_wire_show {
	__le32 magic;
	__le16 version;		/* the one WELCOME said */
	__le16 reserved;
	__le64 number;
	__u8 secret[16];
} __attribute__((packed));
#define DCM_WIRE_SHOW_MAGIC 0x54534d43	/* "CMST" */
#define DCM_WIRE_SHOW_BYTES 32u

struct dcm_wire_list {
	__le64 after;		/* slabs with ids above this one */
} __attribute__((packed));

/* With the tag of LIST; ids ascend. Without a slab: id 0, once. */
struct dcm_wire_slab_is {
	__le64 slab;
	__le64 cookie;		/* of MAP */
	__le64 addr;		/* verbs */
	__le32 rkey;		/* verbs */
	__le32 flags;		/* DCM_SLAB_IS_*; unknown ones are ignored */
} __attribute__((packed));
#define DCM_SLAB_IS_MORE 0x1	/* there are slabs above this one */
#define DCM_WIRE_LIST_MAX 64u	/* SLAB_IS that answer one LIST */

/* UNMAP, CHECK_ACTIVITY, EVICT, DONE: about one slab */
struct dcm_wire_slab {
	__le64 slab;
} __attribute__((packed));

struct dcm_wire_activity {
	__le64 slab;
	__le64 ewma_milli;	/* page operations a second, EWMA, times 1000 */
} __attribute__((packed));

/* READ, WRITE (payload of @bytes follows, or none, and zeroes are written) */
struct dcm_wire_io {
	__le64 slab;
	__le64 offset;
	__le32 bytes;
	__le32 reserved;
} __attribute__((packed));

/* DATA (payload of @bytes follows when status is OK), WRITTEN */
struct dcm_wire_io_done {
	__le32 status;
	__le32 bytes;
} __attribute__((packed));

struct dcm_wire_gc_open {
	__le64 bytes;		/* of all spaces there will be, other donors' too */
	__le32 donor;		/* the donor's number among those of the spaces */
	__le32 reserved;
} __attribute__((packed));
#define DCM_WIRE_GC_DONORS	64u

struct dcm_wire_gc_opened {
	__le32 threads;		/* that a trace has */
	__le32 reserved;
} __attribute__((packed));

struct dcm_wire_gc_slab {
	__le64 slab;		/* one of the session's */
	__le32 number;		/* what GC_PLACE calls it; used once */
	__le32 reserved;
} __attribute__((packed));
#define DCM_WIRE_GC_SLABS	1024u

/*
 * What is said to a worker, and by it
 *
 *   to the worker             answered by
 *   PLACE                     DONE         where regions are
 *   REQUEST                   DONE         a virtio-gc request, as it is
 *   POLL                      FLAGS
 *   BITMAP                    BITS         of region @n, from byte @value on
 *   FINISH                    DONE         all donors are quiet
 *   WRITE_COUNTS              DONE         regions written to since PLACE
 *   MOVED                     DONE         regions another donor moved
 *   STOP                      -            what runs ends with status @value
 *   GHOSTS                    ACKED        from donor @donor, or to it
 *   FORWARD                   FORWARDED    new places; from donor @donor, or to it
 *
 * The host carries GHOSTS, ACKED, FORWARD and FORWARDED from worker to worker;
 * @donor is the other one's number on both sides, the tag and @epoch go back as
 * they came.
 */
enum dcm_wire_gc_kind {
	DCM_GC_PLACE = 2,
	DCM_GC_REQUEST = 3,
	DCM_GC_DONE = 4,
	DCM_GC_POLL = 5,
	DCM_GC_FLAGS = 6,
	DCM_GC_BITMAP = 7,
	DCM_GC_BITS = 8,
	DCM_GC_FINISH = 9,
	DCM_GC_STOP = 10,
	DCM_GC_MOVED = 11,
	DCM_GC_GHOSTS = 12,
	DCM_GC_ACKED = 13,
	DCM_GC_FORWARD = 14,
	DCM_GC_FORWARDED = 15,
	DCM_GC_WRITE_COUNTS = 16,
	DCM_GC_KINDS
};

/* payload follows */
struct dcm_wire_gc {
	__le32 kind;
	__le32 space;
	__le32 epoch;
	__le32 n;
	__le64 value;
	__le32 donor;
	__le32 reserved;
} __attribute__((packed));

/* PLACE: @n of these */
struct dcm_gc_place {
	__le32 region;
	__le32 donor;
	__le64 slab;	/* GC_SLAB's number of it; ignored for other donors' */
	__le64 offset;	/* of the region in it */
};

/*
 * WRITE_COUNTS: @n of these. A region's count is 0 when PLACE says where it is, and
 * another once it was written to; odd while a write is on its way.
 */
struct dcm_gc_write_count {
	__le32 region;
	__le32 count;
};

/* FLAGS */
struct dcm_gc_flags_le {
	__u8 tracing;
	__u8 roots;
	__u8 ghosts;
	__u8 changed;
	__le32 opaque;
	__le32 status;
	__le32 objects;	/* met so far, modulo 2^32 */
	__le64 at;
};

#endif /* DCM_WIRE_FORMAT_H */

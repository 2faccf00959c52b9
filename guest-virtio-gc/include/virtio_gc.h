/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * virtio_gc.h - messages between a driver and a virtio-gc device
 *
 * The specification is guest-virtio-gc/spec/virtio-gc.md; this is its layout.
 * All integers are little endian, every struct has one size and no padding by
 * the compiler. Reserved fields are written as zero; a request with any other
 * value in one is refused.
 *
 * A request is, in the device-readable part of one descriptor chain,
 *
 *   struct virtio_gc_req | the command's own struct, if any | entries
 *
 * and its answer, in the device-writable part,
 *
 *   struct virtio_gc_done | entries
 *
 * Three kinds of number name a place. An address is where the runtime has the
 * space mapped (virtio_gc_space.address onwards), a window offset counts from
 * the start of shared memory region 0, a space offset from the start of a
 * space. Objects are named by address, everything else by space offset or by
 * region number.
 */
#ifndef VIRTIO_GC_H
#define VIRTIO_GC_H

#include <linux/types.h>

/* experimental: the highest that virtio-pci can carry */
#define VIRTIO_ID_GC			63

/* virtqueues */
#define VIRTIO_GC_VQ_COMMAND		0
#define VIRTIO_GC_NR_VQS		1

/* shared memory region ids */
#define VIRTIO_GC_SHM_WINDOW		0

/* feature bits */
#define VIRTIO_GC_F_TRACE		0
#define VIRTIO_GC_F_CONCURRENT		1
#define VIRTIO_GC_F_EVACUATE		2
#define VIRTIO_GC_F_COMPACT		3
#define VIRTIO_GC_F_HINTS		4
#define VIRTIO_GC_F_WHOLE		5
#define VIRTIO_GC_F_TAIL		6
#define VIRTIO_GC_F_REPLACE		7
#define VIRTIO_GC_F_RANGES		8
#define VIRTIO_GC_F_STATE		9
#define VIRTIO_GC_F_ASK			10
#define VIRTIO_GC_F_BITMAPS		11
#define VIRTIO_GC_F_CLEAR		12
#define VIRTIO_GC_F_CARDS		13
#define VIRTIO_GC_F_FETCH		14
#define VIRTIO_GC_F_BUDGET		15

#define VIRTIO_GC_UNIT_BYTES		8u	/* objects start at multiples */
#define VIRTIO_GC_NONE			(~(__u64)0)	/* no offset or address */
#define VIRTIO_GC_NO_DONOR		(~(__u32)0)
#define VIRTIO_GC_NO_REGION		(~(__u32)0)

struct virtio_gc_config {
	__le64 window_bytes;		/* of shared memory region 0 */
	__le64 region_bytes_min;
	__le64 region_bytes_max;
	__le32 spaces_max;		/* ids are below this */
	__le32 types_max;		/* of one space */
	__le32 regions_max;		/* of one space */
	__le32 request_max;		/* bytes of a device-readable part */
	__le32 response_max;		/* bytes of a device-writable part */
	__le32 commands_max;		/* of one space, not yet answered */
	__le32 deadline_max_ms;
	__le32 donors;			/* current; a change is notified */
	__le32 budget_mib;		/* BUDGET: as donors; 0: not known */
	__le32 reserved;
};

/* command: its struct, the entries of request; -> those of the answer */
enum virtio_gc_command {
	VIRTIO_GC_SPACE_CREATE = 1,	/* space */
	VIRTIO_GC_SPACE_DESTROY = 2,
	VIRTIO_GC_SPACE_DONORS = 3,	/* range; -> __le32 */
	VIRTIO_GC_TYPES_ADD = 4,	/* types; type, run */
	VIRTIO_GC_CLEAN = 8,		/* region */
	VIRTIO_GC_TRACE_START = 16,	/* region */
	VIRTIO_GC_TRACE_ROOTS = 17,	/* __le64, or refs */
	VIRTIO_GC_TRACE_MET = 18,	/* met; -> __le64, or weak */
	VIRTIO_GC_TRACE_FINISH = 19,
	VIRTIO_GC_TRACE_RESULTS = 20,	/* range; -> live */
	VIRTIO_GC_TRACE_STATE = 21,
	VIRTIO_GC_TRACE_ASK = 22,	/* __le64; -> __u8, of 8 bits */
	VIRTIO_GC_TRACE_BITMAPS = 23,	/* range; -> __u8 */
	VIRTIO_GC_TRACE_CARDS = 24,	/* cards; region, or refs; -> card */
	VIRTIO_GC_EVACUATE = 32,	/* move; -> moved */
	VIRTIO_GC_UPDATE = 33,		/* region, or refs */
	VIRTIO_GC_FORWARD = 34,		/* __le64; -> __le64 */
	VIRTIO_GC_RELEASE = 35,		/* region */
	VIRTIO_GC_COMPACT = 36,		/* area; region; -> moved */
	VIRTIO_GC_HINT = 48,		/* hint; extent */
	VIRTIO_GC_CANCEL = 64,		/* cancel */
};

enum virtio_gc_status {
	VIRTIO_GC_OK = 0,
	VIRTIO_GC_STALE = 1,		/* changed while it was traced */
	VIRTIO_GC_DONOR_LOST = 2,	/* with the memory it held */
	VIRTIO_GC_WORKER_LOST = 3,	/* its donor lives, the heap is whole */
	VIRTIO_GC_TIMED_OUT = 4,
	VIRTIO_GC_CANCELLED = 5,
	VIRTIO_GC_BAD_TYPE = 6,		/* at an object: its type is unknown */
	VIRTIO_GC_BAD_OBJECT = 7,	/* at an object: it leaves its region */
	VIRTIO_GC_BAD_REFERENCE = 8,	/* outside the space, or into no object */
	VIRTIO_GC_NO_SPACE = 9,		/* a target or a table is full */
	VIRTIO_GC_CROSS_DONOR = 10,	/* its places are on different donors */
	VIRTIO_GC_MET = 11,		/* opaque objects wait to be taken */
	VIRTIO_GC_NO_TRACE = 12,	/* no trace of this epoch */
	VIRTIO_GC_BUSY = 13,		/* not while another command runs */
	VIRTIO_GC_LIMIT = 14,		/* one of the configuration's, or memory */
	VIRTIO_GC_INVALID = 15,		/* the request itself is wrong */
	VIRTIO_GC_UNSUPPORTED = 16,	/* the device lacks it */
	VIRTIO_GC_STATUSES
};

struct virtio_gc_req {
	__le16 command;
	__le16 flags;		/* the command's */
	__le32 space;
	__le64 tag;		/* the driver's; CANCEL names it */
	__le32 epoch;		/* of the trace it belongs to, else 0 */
	__le32 deadline_ms;	/* 0: the device's longest */
	__le32 count;		/* entries that follow */
	__le32 reserved;
};

struct virtio_gc_done {
	__le32 status;
	__le32 donor;		/* the donor concerned, or NO_DONOR */
	__le64 at;		/* address or space offset concerned, or NONE */
	__le64 value;		/* the command's */
	__le32 count;		/* entries that follow */
	__le32 reserved;
};

/* SPACE_CREATE: a space, and how to read the objects in it */
struct virtio_gc_space {
	__le64 window;		/* window offset of its start */
	__le64 bytes;
	__le64 region_bytes;	/* a power of two */
	__le64 address;		/* where the runtime has its start mapped */
	/* a reference r that is not 0 means address ref_base + (r << ref_shift) */
	__le64 ref_base;
	__u8 ref_bytes;		/* 4 or 8 */
	__u8 ref_shift;		/* 0..8 */
	__u8 flags;		/* VIRTIO_GC_SPACE_* */
	/* an object's type is (field >> type_shift) & type_mask */
	__u8 type_bytes;	/* of the field: 1, 2, 4, 8 */
	__le16 type_offset;	/* of the field in the object */
	__u8 type_shift;
	__u8 reserved;
	__le32 type_mask;
	__le32 reserved2;
};
/* references to outside the space are skipped, and are no error */
#define VIRTIO_GC_SPACE_OUTSIDE		0x1

enum virtio_gc_kind {
	VIRTIO_GC_FIXED = 1,	/* bytes */
	VIRTIO_GC_REFS = 2,	/* first + length references */
	VIRTIO_GC_DATA = 3,	/* first + (length << shift), and the tail */
	VIRTIO_GC_SELF = 4,	/* size field << shift */
};

/* TYPES_ADD: @count of these, then @runs runs in the order of their types */
struct virtio_gc_types {
	__le32 runs;
	__le32 reserved;
};

struct virtio_gc_type {
	__le32 id;
	__u8 kind;
	__u8 flags;		/* VIRTIO_GC_TYPE_* */
	__u8 length_bytes;	/* of the length field: 0, 2, 4, 8 */
	__u8 size_bytes;	/* of the size field (SELF): 2, 4, 8 */
	__le32 bytes;		/* FIXED */
	__le32 length_offset;
	__le32 size_offset;	/* SELF */
	__le32 first;		/* offset of the first element */
	__le32 referent;	/* WEAK: offset of the field */
	__le16 runs;
	__u8 shift;		/* DATA, SELF */
	__u8 tail;		/* DATA: bits for each element behind them, 0..2 */
};
#define VIRTIO_GC_TYPE_WEAK		0x1
#define VIRTIO_GC_TYPE_OPAQUE		0x2

/* adjacent reference fields */
struct virtio_gc_run {
	__le32 offset;
	__le32 count;
};

/* CLEAN, TRACE_START, TRACE_CARDS, UPDATE, RELEASE, COMPACT: one region */
struct virtio_gc_region {
	__le32 region;
	__le32 flags;		/* TRACE_START, TRACE_CARDS: VIRTIO_GC_REGION_* */
	__le64 top;		/* space offset, start to end of the region */
};
/* one object, which starts where the region starts, and may go on behind it */
#define VIRTIO_GC_REGION_WHOLE		0x1
/* of a WHOLE region: when its object is met, TRACE_MET has it as opaque */
#define VIRTIO_GC_REGION_SAY		0x2
/* TRACE_CARDS: its objects' references are looked at; references to it are */
#define VIRTIO_GC_REGION_SOURCE		0x4
#define VIRTIO_GC_REGION_TARGET		0x8

/* flags of TYPES_ADD: forget all types before */
#define VIRTIO_GC_TYPES_REPLACE		0x1
/* flags of TRACE_START */
#define VIRTIO_GC_TRACE_CONCURRENT	0x1	/* the runtime has a SATB barrier */
#define VIRTIO_GC_TRACE_LOCAL		0x2	/* each region for itself */
/* flags of TRACE_ROOTS, TRACE_CARDS, UPDATE: entries are struct virtio_gc_refs */
#define VIRTIO_GC_RANGES		0x1
/* flags of EVACUATE: the traversal order of copies; without it depth first */
#define VIRTIO_GC_MOVE_BREADTH_FIRST	0x1
/* flags of RELEASE: the regions hold garbage, discard it */
#define VIRTIO_GC_RELEASE_DISCARD	0x1
/* flags of TRACE_MET: answer when there is one, or the trace is quiet */
#define VIRTIO_GC_MET_WAIT		0x1
/* of TRACE_MET for CLEAR: from the first one again */
#define VIRTIO_GC_MET_AGAIN		0x2
/* of TRACE_CARDS: look for what these regions say, and forget what was before */
#define VIRTIO_GC_CARDS_BEGIN		0x2

/* done.value of TRACE_STATE; done.at: objects met so far, modulo 2^32 */
#define VIRTIO_GC_STATE_QUIET		0x1	/* it waits for roots, or FINISH */
#define VIRTIO_GC_STATE_MET		0x2	/* opaque objects wait */

/* bytes of TRACE_BITMAPS' bitmaps, whatever response_max is */
#define VIRTIO_GC_BITMAPS_MAX		(1u << 20)

/* references side by side, in any regions */
struct virtio_gc_refs {
	__le64 address;		/* of the first one */
	__le64 count;
};

struct virtio_gc_met {
	__le32 what;		/* enum virtio_gc_met_what */
	__le32 max;		/* entries wanted */
};

enum virtio_gc_met_what {
	VIRTIO_GC_MET_OPAQUE = 0,	/* addresses */
	VIRTIO_GC_MET_WEAK = 1,		/* addresses of the objects, not referents */
	VIRTIO_GC_MET_TYPES = 2,	/* type ids */
	VIRTIO_GC_MET_CLEAR = 3,	/* weak objects whose referents are not met */
};

/* TRACE_MET for CLEAR */
struct virtio_gc_weak {
	__le64 object;		/* addresses */
	__le64 referent;
};

/* TRACE_CARDS */
struct virtio_gc_cards {
	__le32 max;		/* entries wanted */
	__u8 shift;		/* with BEGIN: a card has 1 << shift bytes, 7..16 */
	__u8 reserved[3];
};

/* a card with a reference into a region */
struct virtio_gc_card {
	__le32 card;		/* space offset >> shift */
	__le32 region;		/* or NO_REGION: an opaque object starts in the card */
};

/* SPACE_DONORS, TRACE_RESULTS, TRACE_BITMAPS: regions first .. first + regions */
struct virtio_gc_range {
	__le32 first;
	__le32 regions;
	/* TRACE_RESULTS: space offset, or NONE; TRACE_BITMAPS: bytes of each */
	__le64 bitmaps;
};

/* TRACE_RESULTS: one region */
struct virtio_gc_live {
	__le32 region;
	__le32 status;		/* OK, STALE, NO_TRACE */
	__le64 bytes;		/* of live objects below top */
	__le64 objects;
	__le64 reserved;
};

/* EVACUATE: move the live objects of @from to @to */
struct virtio_gc_move {
	__le32 from;
	__le32 to;
	__le64 start;		/* space offset in @to of the first copy */
	__le64 table;		/* space offset of the forward table */
	__le64 table_bytes;	/* room for it */
};

struct virtio_gc_moved {
	__le32 status;
	__le32 from;
	__le32 to;
	__le32 objects;
	__le64 end;		/* space offset after the last copy */
	__le64 table;		/* space offset of the forward table */
	__le64 table_bytes;	/* size as written */
};

/*
 * A forward table: one word for each 64 units of the from-region, then one
 * __le32 place for each object that moved, in the order of their old offsets.
 * The object that started in unit u of the region is now at unit place[i] of
 * the to-region, i = word[u / 64].before + popcount(word[u / 64].starts below
 * u % 64); it was not live if its bit in starts is 0.
 */
struct virtio_gc_forward {
	__le64 starts;
	__le32 before;
	__le32 reserved;
};

/* COMPACT: room for forward tables */
struct virtio_gc_area {
	__le64 tables;		/* space offset */
	__le64 bytes;
};

struct virtio_gc_hint {
	__le32 what;		/* enum virtio_gc_hint_what */
	__le32 reserved;
};

enum virtio_gc_hint_what {
	VIRTIO_GC_HINT_DIRECT = 0,	/* keep in direct memory */
	VIRTIO_GC_HINT_NORMAL = 1,	/* take DIRECT back */
	VIRTIO_GC_HINT_COLD = 2,	/* evict first */
	VIRTIO_GC_HINT_DISCARD = 3,	/* garbage: reads as zero from now on */
	VIRTIO_GC_HINT_FETCH = 4,	/* bring in soon, in this order */
};

/* a range of a space, whole pages */
struct virtio_gc_extent {
	__le64 offset;		/* space offset */
	__le64 bytes;
};

struct virtio_gc_cancel {
	__le64 tag;
};

#define VIRTIO_GC_SIZE(what, n) \
	_Static_assert(sizeof(struct virtio_gc_##what) == (n), #what)
VIRTIO_GC_SIZE(config, 64);
VIRTIO_GC_SIZE(req, 32);
VIRTIO_GC_SIZE(done, 32);
VIRTIO_GC_SIZE(space, 56);
VIRTIO_GC_SIZE(types, 8);
VIRTIO_GC_SIZE(type, 32);
VIRTIO_GC_SIZE(run, 8);
VIRTIO_GC_SIZE(region, 16);
VIRTIO_GC_SIZE(refs, 16);
VIRTIO_GC_SIZE(met, 8);
VIRTIO_GC_SIZE(weak, 16);
VIRTIO_GC_SIZE(range, 16);
VIRTIO_GC_SIZE(live, 32);
VIRTIO_GC_SIZE(move, 32);
VIRTIO_GC_SIZE(moved, 40);
VIRTIO_GC_SIZE(forward, 16);
VIRTIO_GC_SIZE(area, 16);
VIRTIO_GC_SIZE(hint, 8);
VIRTIO_GC_SIZE(extent, 16);
VIRTIO_GC_SIZE(cancel, 8);
#undef VIRTIO_GC_SIZE

#endif /* VIRTIO_GC_H */

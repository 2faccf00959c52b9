// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * gc_messages.c - messages to a GC worker, of its host and of other workers
 *
 * What a message names is there most of the time, and may be anything.
 */
#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../donor-daemon/gc/worker/job.h"
#include "gc_messages.h"
#include "gc_slabs.h"

#define ENTRIES 8u

static int shown = -1; /* a slab, and the worker may end before it is closed */
static void *held; /* what was said last: of its own size, so that more is seen */

void gc_messages_end(void)
{
	if (shown >= 0)
		close(shown);
	shown = -1;
}

u64 value(struct in *in, u32 usual)
{
	u32 b = byte(in);
	u64 v = 0;

	if (b < 0xf0)
		return b % usual;
	for (u32 i = 0; i < 8; i++)
		v |= (u64)byte(in) << 8 * i;
	switch (b & 3) {
	case 0:
		return v;
	case 1:
		return v & U32_MAX;
	case 2:
		return ~v;
	default:
		return usual + (v & 7);
	}
}

/* A space offset of an object, or of none. */
static u64 offset(struct in *in)
{
	return value(in, 5) * REGION + value(in, 64) * 16;
}

/* Whether a request may write to slabs. */
static bool writes(const struct virtio_gc_req *req, size_t bytes)
{
	const u16 command = bytes < sizeof(*req) ? 0 : le16toh(req->command);

	return command == VIRTIO_GC_EVACUATE || command == VIRTIO_GC_UPDATE ||
	       command == VIRTIO_GC_COMPACT;
}

static void hear(struct dcm_gc_message msg, const void *payload, size_t bytes,
		 int fd)
{
	free(held);
	held = NULL;
	EXPECT(bytes <= DCM_GC_PAYLOAD_MAX &&
	     !posix_memalign(&held, 8, bytes ? bytes : 8));
	if (bytes)
		memcpy(held, payload, bytes);
	msg.bytes = htole32((u32)bytes);
	if (le32toh(msg.kind) == DCM_GC_REQUEST && writes(held, bytes))
		slabs_changed();
	worker_handle(&msg, held, (u32)bytes, fd);
}

static void request(struct in *in, u16 command, u16 flags, u32 count,
		    const void *body, size_t body_bytes, const void *entries,
		    size_t bytes)
{
	static u8 raw[4096];
	const u32 space = (u32)value(in, SPACES);
	struct virtio_gc_req req = {
		.command = htole16(command),
		.flags = htole16(flags),
		.space = htole32(space),
		.epoch = htole32((u32)value(in, 4)),
		.count = htole32(count),
	};

	if (command < VIRTIO_GC_TRACE_START)
		req.epoch = 0;
	EXPECT(sizeof(req) + body_bytes + bytes <= sizeof(raw));
	memcpy(raw, &req, sizeof(req));
	if (body_bytes)
		memcpy(raw + sizeof(req), body, body_bytes);
	if (bytes)
		memcpy(raw + sizeof(req) + body_bytes, entries, bytes);
	hear((struct dcm_gc_message){ .kind = htole32(DCM_GC_REQUEST),
				      .space = htole32(space) },
	     raw, sizeof(req) + body_bytes + bytes, -1);
}

static void say_create(struct in *in)
{
	const u32 how = byte(in);
	struct virtio_gc_space space = {
		.bytes = htole64((1 + value(in, 6)) * REGION),
		.region_bytes = htole64(how & 0x40 ? 2 * REGION : REGION),
		.address = htole64(ADDRESS),
		.ref_bytes = how & 1 ? 4 : 8,
		.ref_shift = how & 1 ? 3 : 0,
		.flags = how >> 1 & 1,
		.type_bytes = 4,
		.type_mask = htole32(0xffff),
	};

	/* what a tenant is charged for bounds how much can be mapped */
	if (le64toh(space.bytes) > 64 * REGION)
		space.bytes = htole64(64 * REGION);
	request(in, VIRTIO_GC_SPACE_CREATE, 0, 0, &space, sizeof(space), NULL,
		0);
}

/* Types 1 to 6: a node, an array, data, a weak and an opaque node, one that says its size. */
static void say_types(struct in *in)
{
	const u32 how = byte(in);
	struct {
		struct virtio_gc_type type[6];
		struct virtio_gc_run run[3];
	} e = {
		.type[0] = { .id = htole32(1 + (how & 0x80)),
			     .kind = VIRTIO_GC_FIXED,
			     .bytes = htole32(16),
			     .runs = htole16(1) },
		.type[1] = { .id = htole32(2),
			     .kind = VIRTIO_GC_REFS,
			     .length_bytes = 4,
			     .length_offset = htole32(4),
			     .first = htole32(8) },
		.type[2] = { .id = htole32(3),
			     .kind = VIRTIO_GC_DATA,
			     .length_bytes = 4,
			     .length_offset = htole32(4),
			     .first = htole32(8),
			     .shift = how & 7,
			     .tail = how >> 4 & 3 },
		.type[3] = { .id = htole32(4),
			     .kind = VIRTIO_GC_FIXED,
			     .flags = VIRTIO_GC_TYPE_WEAK,
			     .bytes = htole32(32),
			     .referent = htole32(16),
			     .runs = htole16(1) },
		.type[4] = { .id = htole32(5),
			     .kind = VIRTIO_GC_FIXED,
			     .flags = VIRTIO_GC_TYPE_OPAQUE,
			     .bytes = htole32(16) },
		.type[5] = { .id = htole32(6),
			     .kind = VIRTIO_GC_SELF,
			     .size_bytes = 4,
			     .size_offset = htole32(4),
			     .runs = htole16(1),
			     .shift = 3 },
		.run = { { htole32(8), htole32(1) },
			 { htole32(8), htole32(1) },
			 { htole32(8), htole32(1) } },
	};
	const struct virtio_gc_types head = { .runs = htole32(3) };

	request(in, VIRTIO_GC_TYPES_ADD, how >> 3 & 1, 6, &head, sizeof(head),
		&e, sizeof(e));
}

static void say_place(struct in *in)
{
	struct dcm_gc_place le[ENTRIES];
	const u32 n = byte(in) % (ENTRIES + 1);
	const u32 space = (u32)value(in, SPACES);

	for (u32 i = 0; i < n; i++) {
		le[i].region = htole32((u32)value(in, 6));
		le[i].donor = htole32((u32)value(in, 3));
		le[i].slab = htole64(value(in, SLABS));
		le[i].offset = htole64(value(in, 5) * REGION);
	}
	hear((struct dcm_gc_message){ .kind = htole32(DCM_GC_PLACE),
				      .space = htole32(space),
				      .n = htole32(n) },
	     le, n * sizeof(*le), -1);
}

/* All of a space's regions, one after the other, in the first slab. */
static void say_place_all(struct in *in)
{
	struct dcm_gc_place le[4];
	const u32 space = (u32)value(in, SPACES);
	const u32 others = byte(in);

	for (u32 i = 0; i < 4; i++) {
		le[i].region = htole32(i);
		le[i].donor = htole32(others >> i & 1);
		le[i].slab = 0;
		le[i].offset = htole64(i * REGION);
	}
	hear((struct dcm_gc_message){ .kind = htole32(DCM_GC_PLACE),
				      .space = htole32(space),
				      .n = htole32(4) },
	     le, sizeof(le), -1);
}

static u32 regions(struct in *in, struct virtio_gc_region *le)
{
	const u32 n = byte(in) % (ENTRIES + 1);

	for (u32 i = 0; i < n; i++) {
		const u64 region = value(in, 6);
		const u64 top = value(in, 66) * 1024;

		le[i].region = htole32((u32)region);
		le[i].flags = 0;
		le[i].top = htole64(region * REGION + top);
	}
	return n;
}

static void say_regions(struct in *in, u16 command)
{
	struct virtio_gc_region le[ENTRIES];
	const u32 n = regions(in, le);
	const u16 flags = command == VIRTIO_GC_TRACE_START	 ? byte(in) % 4 :
				command == VIRTIO_GC_RELEASE ? byte(in) % 2 :
							       0;

	request(in, command, flags, n, NULL, 0, le, n * sizeof(*le));
}

static void say_trace(struct in *in)
{
	struct virtio_gc_region le[4];
	const u32 tops = byte(in), how = byte(in);

	for (u32 i = 0; i < 4; i++) {
		le[i].region = htole32(i);
		le[i].flags = htole32(i < 2 ? how >> (2 + 3 * i) & 7 : 0);
		le[i].top =
			htole64(i * REGION + (tops >> 2 * i & 3) * (20u << 10));
	}
	request(in, VIRTIO_GC_TRACE_START, how % 4, 4, NULL, 0, le, sizeof(le));
}

static void say_compact(struct in *in)
{
	struct virtio_gc_region le[ENTRIES];
	const u32 n = regions(in, le);
	const struct virtio_gc_area area = {
		.tables = htole64(offset(in)),
		.bytes = htole64(value(in, 5) * REGION / 2),
	};

	request(in, VIRTIO_GC_COMPACT, 0, n, &area, sizeof(area), le,
		n * sizeof(*le));
}

static void say_evacuate(struct in *in)
{
	struct virtio_gc_move le[2];
	const u32 n = 1 + byte(in) % 2;

	for (u32 i = 0; i < n; i++) {
		const u64 to = value(in, 5);

		le[i].from = htole32((u32)value(in, 5));
		le[i].to = htole32((u32)to);
		le[i].start = htole64(to * REGION + value(in, 64) * 1024);
		le[i].table = htole64(offset(in));
		le[i].table_bytes = htole64(value(in, 64) * 1024);
	}
	request(in, VIRTIO_GC_EVACUATE, byte(in) % 2, n, NULL, 0, le,
		n * sizeof(*le));
}

static void say_ranges(struct in *in, u16 command, u32 n)
{
	struct virtio_gc_refs le[8];

	for (u32 i = 0; i < n; i++) {
		le[i].address = htole64(ADDRESS + offset(in));
		le[i].count = htole64(value(in, 240) * 64);
	}
	request(in, command, VIRTIO_GC_RANGES, n, NULL, 0, le, n * sizeof(*le));
}

/* TRACE_CARDS, by its flags: a list, ranges, or nothing */
static void say_cards(struct in *in, u32 how)
{
	const u16 flags = how % 4;
	const struct virtio_gc_cards cards = {
		.max = htole32((u32)value(in, 20)),
		.shift = flags & VIRTIO_GC_CARDS_BEGIN ? 6 + byte(in) % 12 : 0,
	};
	struct virtio_gc_region list[ENTRIES];
	struct virtio_gc_refs refs[2];
	u32 n;

	if (flags & VIRTIO_GC_RANGES) {
		n = how / 4 % 3;
		for (u32 i = 0; i < n; i++) {
			refs[i].address = htole64(ADDRESS + offset(in));
			refs[i].count = htole64(value(in, 240) * 64);
		}
		request(in, VIRTIO_GC_TRACE_CARDS, flags, n, &cards,
			sizeof(cards), refs, n * sizeof(*refs));
		return;
	}
	n = flags ? regions(in, list) : 0;
	for (u32 i = 0; i < n; i++) {
		u32 sort = byte(in);

		list[i].flags = htole32(sort << 2);
		if (sort < 4 && !(sort & 1))
			list[i].top = 0;
	}
	request(in, VIRTIO_GC_TRACE_CARDS, flags, n, &cards, sizeof(cards),
		list, n * sizeof(*list));
}

/*
 * 0xf0 and more: ranges, for TRACE_ROOTS, and for UPDATE; 0xe0: TRACE_ASK;
 * 0xd0: TRACE_CARDS
 */
static void say_addresses(struct in *in, u16 command)
{
	__le64 le[16];
	const u32 how = byte(in), n = how % 17;

	if (how >= 0xf0) {
		say_ranges(in,
			   command == VIRTIO_GC_FORWARD ? VIRTIO_GC_UPDATE :
							  command,
			   how & 7);
		return;
	}

	if (how >= 0xd0 && how < 0xe0) {
		say_cards(in, how);
		return;
	}
	if (how >= 0xe0)
		command = VIRTIO_GC_TRACE_ASK;
	for (u32 i = 0; i < n; i++)
		le[i] = htole64(ADDRESS + offset(in));
	request(in, command, 0, n, NULL, 0, le, n * sizeof(*le));
}

/* To the space's trace: GHOSTS, ACKED, ASK, TOLD; with offsets. */
static void say_peer(struct in *in, u32 kind)
{
	__le64 le[16];
	const u32 n = byte(in) % 17;

	for (u32 i = 0; i < n; i++)
		le[i] = htole64(offset(in));
	hear((struct dcm_gc_message){ .kind = htole32(kind),
				      .space = htole32((u32)value(in, SPACES)),
				      .tag = htole64(value(in, 64)),
				      .epoch = htole32((u32)value(in, 4)),
				      .n = htole32(n),
				      .donor = htole32((u32)value(in, 3)) },
	     le, n * sizeof(*le), -1);
}

static void say_short(struct in *in, u32 kind)
{
	hear((struct dcm_gc_message){ .kind = htole32(kind),
				      .space = htole32((u32)value(in, SPACES)),
				      .epoch = htole32((u32)value(in, 4)),
				      .n = htole32((u32)value(in, 6)),
				      .value = htole64(value(in, 16)) },
	     NULL, 0, -1);
}

static void say_moved(struct in *in)
{
	struct virtio_gc_region le[ENTRIES];
	const u32 n = regions(in, le);

	hear((struct dcm_gc_message){ .kind = htole32(DCM_GC_MOVED),
				      .space = htole32((u32)value(in, SPACES)),
				      .n = htole32(n) },
	     le, n * sizeof(*le), -1);
}

static void say_write_counts(struct in *in)
{
	struct dcm_gc_write_count le[4];
	const u32 n = byte(in) % 5;

	for (u32 i = 0; i < n; i++) {
		le[i].region = htole32((u32)value(in, 6));
		le[i].count = htole32((u32)value(in, 4));
	}
	hear((struct dcm_gc_message){ .kind = htole32(DCM_GC_WRITE_COUNTS),
				      .space = htole32((u32)value(in, SPACES)),
				      .n = htole32(n) },
	     le, n * sizeof(*le), -1);
}

static void say_slab(struct in *in)
{
	const u32 which = byte(in) % SLABS;
	const u64 bytes = byte(in) & 0x80 ? value(in, 9) * REGION :
					    slab_bytes[which];

	shown = slab_show(which, bytes, !(byte(in) & 0x80));
	hear((struct dcm_gc_message){ .kind = htole32(DCM_GC_SLAB),
				      .n = htole32((u32)value(in, SLABS)),
				      .value = htole64(bytes) },
	     NULL, 0, shown);
	shown = -1;
}

static void say_met(struct in *in)
{
	const u32 what = (u32)value(in, 4), max = (u32)value(in, 20);
	const struct virtio_gc_met met = { .what = htole32(what),
					   .max = htole32(max) };

	/* an odd number from the first one again */
	request(in, VIRTIO_GC_TRACE_MET,
		what == VIRTIO_GC_MET_CLEAR && max & 1 ? VIRTIO_GC_MET_AGAIN :
							 0,
		0, &met, sizeof(met), NULL, 0);
}

static void say_results(struct in *in)
{
	const struct virtio_gc_range range = {
		.first = htole32((u32)value(in, 6)),
		.regions = htole32((u32)value(in, 7)),
		.bitmaps = htole64(VIRTIO_GC_NONE),
	};

	request(in, VIRTIO_GC_TRACE_RESULTS, 0, 0, &range, sizeof(range), NULL,
		0);
}

/* A message of whatever bytes. */
static void say_raw(struct in *in)
{
	u8 payload[64];
	const u32 n = byte(in) % sizeof(payload);
	const u32 kind = (u32)value(in, DCM_GC_KINDS + 2);

	for (u32 i = 0; i < n; i++)
		payload[i] = (u8)byte(in);
	hear((struct dcm_gc_message){ .kind = htole32(kind),
				      .space = htole32((u32)value(in, SPACES)),
				      .epoch = htole32((u32)value(in, 4)),
				      .n = htole32((u32)value(in, 70)),
				      .value = htole64(value(in, 2000)),
				      .donor = htole32((u32)value(in, 65)) },
	     payload, n, -1);
}

void gc_message(struct in *in, u32 what)
{
	static const u16 addresses[] = { VIRTIO_GC_TRACE_ROOTS,
					 VIRTIO_GC_FORWARD };
	static const u16 lists[] = { VIRTIO_GC_TRACE_START, VIRTIO_GC_UPDATE,
				     VIRTIO_GC_RELEASE };
	static const u32 peers[] = { DCM_GC_GHOSTS, DCM_GC_ACKED,
				     DCM_GC_FORWARD, DCM_GC_FORWARDED };
	static const u32 shorts[] = { DCM_GC_POLL, DCM_GC_BITMAP, DCM_GC_FINISH,
				      DCM_GC_STOP };

	switch (what) {
	case 0:
		say_slab(in);
		break;
	case 1:
		say_create(in);
		break;
	case 2:
		say_types(in);
		break;
	case 3:
		say_place(in);
		break;
	case 4:
		say_place_all(in);
		break;
	case 5:
		say_trace(in);
		break;
	case 6:
	case 7:
		say_addresses(in, addresses[what - 6]);
		break;
	case 8:
	case 9:
	case 10:
		say_regions(in, lists[what - 8]);
		break;
	case 11:
		say_compact(in);
		break;
	case 12:
		say_evacuate(in);
		break;
	case 13:
	case 14:
	case 15:
	case 16:
		say_peer(in, peers[what - 13]);
		break;
	case 17:
	case 18:
	case 19:
	case 20:
		say_short(in, shorts[what - 17]);
		break;
	case 21:
		say_moved(in);
		break;
	case 22:
		say_write_counts(in);
		break;
	case 23:
		say_met(in);
		break;
	case 24:
		say_results(in);
		break;
	case 25:
		request(in, VIRTIO_GC_SPACE_DESTROY, 0, 0, NULL, 0, NULL, 0);
		break;
	default:
		say_raw(in);
	}
}

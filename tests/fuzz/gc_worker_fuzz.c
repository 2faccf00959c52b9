// SPDX-License-Identifier: GPL-2.0-or-later
/* links: donor-daemon/gc/worker/message.c donor-daemon/gc/worker/job.c kvm-dcm/proto/gc_request.c donor-daemon/gc/space.c donor-daemon/gc/types.c donor-daemon/gc/trace.c donor-daemon/gc/scan.c donor-daemon/gc/work.c donor-daemon/gc/ghost.c donor-daemon/gc/met.c donor-daemon/gc/move.c donor-daemon/gc/update.c donor-daemon/gc/compact.c kvm-dcm/proto/wire.c tests/fuzz/fibers.c */
/* libs: -Wl,--wrap=mmap,--wrap=munmap,--wrap=pthread_create,--wrap=pthread_join,--wrap=pthread_mutex_lock,--wrap=pthread_mutex_unlock,--wrap=pthread_cond_wait,--wrap=pthread_cond_timedwait,--wrap=pthread_cond_signal,--wrap=pthread_cond_broadcast */
/*
 * gc_worker_fuzz.c - libFuzzer on what is said to a GC worker, in any order
 *
 * An input is a host: one message after the other, a byte that says which and
 * the bytes of its fields. There are three slabs, as many spaces as are made, and
 * two other donors, whose workers are the input too. Slabs lie between pages
 * that nobody may touch, so an object that leaves its slab is seen, and a slab
 * that is not mapped any more as well: it stays mapped, but poisoned. Whatever is said: every message that has
 * an answer gets one, at most, and in the end all is given back.
 *
 * What ends the worker ends the input here. Its threads are fibers: between two
 * messages they run until they wait, or as far as the input says. No two of them
 * wait for each other.
 */
#include <endian.h>
#include <sanitizer/asan_interface.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../donor-daemon/gc/worker/job.h"
#include "../../kvm-dcm/proto/wire.h"
#include "../framework/expect.h"
#include "fibers.h"

#define REGION	(64u << 10)
#define SLABS	3u
#define ADDRESS	(1ull << 32)
#define GUARD	(64u << 10)
#define SPACES	3u	/* that are used, and one that never is there */
#define ENTRIES 8u
#define MAPS	4u
#define NEVER	127u
#define LOOK	1024u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
void *__real_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t o);
int __real_munmap(void *at, size_t bytes);
void *__wrap_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t o);
int __wrap_munmap(void *at, size_t bytes);

u32 worker_donor;
u32 worker_threads = 1;

static jmp_buf ended;
static int slab_fd[SLABS];
static u8 *slab_memory[SLABS];
static const u64 slab_bytes[SLABS] = { 4 * REGION, 2 * REGION, REGION };
static u64 fresh[4 * REGION / 8]; /* what is in slabs at first */

/* ---- slabs' mappings, in place of the kernel's ---- */

/**
 * struct map - a slab between two guards
 * @memory: NULL: not made yet
 */
static struct map {
	u8 *memory;
	bool used;
} maps[SLABS][MAPS];

static int mapping; /* the slab that is shown; -1: another size of it */

static void *map_make(size_t bytes, int prot, int flags, int fd, off_t o)
{
	u8 *p = __real_mmap(NULL, bytes + 2 * GUARD, PROT_NONE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return p;
	return __real_mmap(p + GUARD, bytes, prot, flags | MAP_FIXED, fd, o);
}

void *__wrap_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t o)
{
	struct map *m;

	if (fd < 0 || at)
		return __real_mmap(at, bytes, prot, flags, fd, o);
	EXPECT(prot == (PROT_READ | PROT_WRITE) && flags == MAP_SHARED && !o);
	if (mapping < 0)
		return map_make(bytes, prot, flags, fd, o);
	EXPECT(bytes == slab_bytes[mapping]);
	for (m = maps[mapping]; m->used;)
		if (++m == maps[mapping] + MAPS)
			return map_make(bytes, prot, flags, fd, o);
	if (!m->memory)
		m->memory = map_make(bytes, prot, flags, fd, o);
	EXPECT((void *)m->memory != MAP_FAILED);
	ASAN_UNPOISON_MEMORY_REGION(m->memory, bytes);
	m->used = true;
	return m->memory;
}

static void map_end(u8 *memory, size_t bytes)
{
	for (u32 i = 0; i < SLABS; i++)
		for (struct map *m = maps[i]; m < maps[i] + MAPS; m++) {
			if (m->memory != memory)
				continue;
			EXPECT(m->used && bytes == slab_bytes[i]);
			ASAN_POISON_MEMORY_REGION(memory, bytes);
			m->used = false;
			return;
		}
	__real_munmap(memory - GUARD, bytes + 2 * GUARD);
}

/* A worker keeps its slabs as long as it lives. */
int __wrap_munmap(void *at, size_t bytes)
{
	for (u32 i = 0; i < SLABS * MAPS; i++)
		EXPECT(!at || maps[i / MAPS][i % MAPS].memory != at);
	return __real_munmap(at, bytes);
}

/* ---- what main.c has ---- */

void worker_end(int status)
{
	EXPECT(status > 1 && fibers_first());
	longjmp(ended, 1);
}

static u32 said;

/* From any thread. What other workers answer is the input's. */
void worker_send(const struct dcm_gc_message *msg, const void *payload)
{
	const u8 *p = payload;
	u32 sum = 0;

	EXPECT(le32toh(msg->bytes) <= DCM_GC_PAYLOAD_MAX);
	EXPECT(dcm_wire_gc_from(le32toh(msg->kind)) & DCM_SIDE_DONOR);
	/* every byte is one that was written */
	for (u32 i = 0; i < le32toh(msg->bytes); i++)
		sum += p[i];
	said += 1 + (sum & 0);
}

/* ---- reading an input ---- */

struct in {
	const u8 *at;
	const u8 *end;
};

static u32 byte(struct in *in)
{
	return in->at < in->end ? *in->at++ : 0;
}

/* Small most of the time: then what it names is there. */
static u64 some(struct in *in, u32 usual)
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
	return some(in, 5) * REGION + some(in, 64) * 16;
}

/* ---- what is said ---- */

static int shown = -1; /* a slab, and the worker may end before it is closed */
static bool written; /* slabs may be */
static void *held; /* what was said last: of its own size, so that more is seen */

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
	written |= le32toh(msg.kind) == DCM_GC_REQUEST && writes(held, bytes);
	worker_handle(&msg, held, (u32)bytes, fd);
}

static void request(struct in *in, u16 command, u16 flags, u32 count,
		    const void *body, size_t body_bytes, const void *entries,
		    size_t bytes)
{
	static u8 raw[4096];
	const u32 space = (u32)some(in, SPACES);
	struct virtio_gc_req req = {
		.command = htole16(command),
		.flags = htole16(flags),
		.space = htole32(space),
		.epoch = htole32((u32)some(in, 4)),
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
		.bytes = htole64((1 + some(in, 6)) * REGION),
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
			     .shift = how & 7 },
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

	request(in, VIRTIO_GC_TYPES_ADD, 0, 6, &head, sizeof(head), &e,
		sizeof(e));
}

static void say_place(struct in *in)
{
	struct dcm_gc_place le[ENTRIES];
	const u32 n = byte(in) % (ENTRIES + 1);
	const u32 space = (u32)some(in, SPACES);

	for (u32 i = 0; i < n; i++) {
		le[i].region = htole32((u32)some(in, 6));
		le[i].donor = htole32((u32)some(in, 3));
		le[i].slab = htole64(some(in, SLABS));
		le[i].offset = htole64(some(in, 5) * REGION);
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
	const u32 space = (u32)some(in, SPACES);
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
		const u64 region = some(in, 6);
		const u64 top = some(in, 66) * 1024;

		le[i].region = htole32((u32)region);
		le[i].reserved = 0;
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
	const u32 tops = byte(in);

	for (u32 i = 0; i < 4; i++) {
		le[i].region = htole32(i);
		le[i].reserved = 0;
		le[i].top =
			htole64(i * REGION + (tops >> 2 * i & 3) * (20u << 10));
	}
	request(in, VIRTIO_GC_TRACE_START, byte(in) % 4, 4, NULL, 0, le,
		sizeof(le));
}

static void say_compact(struct in *in)
{
	struct virtio_gc_region le[ENTRIES];
	const u32 n = regions(in, le);
	const struct virtio_gc_area area = {
		.tables = htole64(offset(in)),
		.bytes = htole64(some(in, 5) * REGION / 2),
	};

	request(in, VIRTIO_GC_COMPACT, 0, n, &area, sizeof(area), le,
		n * sizeof(*le));
}

static void say_evacuate(struct in *in)
{
	struct virtio_gc_move le[2];
	const u32 n = 1 + byte(in) % 2;

	for (u32 i = 0; i < n; i++) {
		const u64 to = some(in, 5);

		le[i].from = htole32((u32)some(in, 5));
		le[i].to = htole32((u32)to);
		le[i].start = htole64(to * REGION + some(in, 64) * 1024);
		le[i].table = htole64(offset(in));
		le[i].table_bytes = htole64(some(in, 64) * 1024);
	}
	request(in, VIRTIO_GC_EVACUATE, byte(in) % 2, n, NULL, 0, le,
		n * sizeof(*le));
}

static void say_addresses(struct in *in, u16 command)
{
	__le64 le[16];
	const u32 n = byte(in) % 17;

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
				      .space = htole32((u32)some(in, SPACES)),
				      .tag = htole64(some(in, 64)),
				      .epoch = htole32((u32)some(in, 4)),
				      .n = htole32(n),
				      .donor = htole32((u32)some(in, 3)) },
	     le, n * sizeof(*le), -1);
}

static void say_short(struct in *in, u32 kind)
{
	hear((struct dcm_gc_message){ .kind = htole32(kind),
				      .space = htole32((u32)some(in, SPACES)),
				      .epoch = htole32((u32)some(in, 4)),
				      .n = htole32((u32)some(in, 6)),
				      .value = htole64(some(in, 16)) },
	     NULL, 0, -1);
}

static void say_moved(struct in *in)
{
	struct virtio_gc_region le[ENTRIES];
	const u32 n = regions(in, le);

	hear((struct dcm_gc_message){ .kind = htole32(DCM_GC_MOVED),
				      .space = htole32((u32)some(in, SPACES)),
				      .n = htole32(n) },
	     le, n * sizeof(*le), -1);
}

static void say_write_counts(struct in *in)
{
	struct dcm_gc_write_count le[4];
	const u32 n = byte(in) % 5;

	for (u32 i = 0; i < n; i++) {
		le[i].region = htole32((u32)some(in, 6));
		le[i].count = htole32((u32)some(in, 4));
	}
	hear((struct dcm_gc_message){ .kind = htole32(DCM_GC_WRITE_COUNTS),
				      .space = htole32((u32)some(in, SPACES)),
				      .n = htole32(n) },
	     le, n * sizeof(*le), -1);
}

static void say_slab(struct in *in)
{
	const u32 which = byte(in) % SLABS;
	const u64 bytes = byte(in) & 0x80 ? some(in, 9) * REGION :
					    slab_bytes[which];

	mapping = bytes == slab_bytes[which] ? (int)which : -1;
	shown = byte(in) & 0x80 ? -1 : dup(slab_fd[which]);
	hear((struct dcm_gc_message){ .kind = htole32(DCM_GC_SLAB),
				      .n = htole32((u32)some(in, SLABS)),
				      .value = htole64(bytes) },
	     NULL, 0, shown);
	shown = -1;
}

static void say_met(struct in *in)
{
	const struct virtio_gc_met met = { .what = htole32((u32)some(in, 4)),
					   .max = htole32((u32)some(in, 20)) };

	request(in, VIRTIO_GC_TRACE_MET, 0, 0, &met, sizeof(met), NULL, 0);
}

static void say_results(struct in *in)
{
	const struct virtio_gc_range range = {
		.first = htole32((u32)some(in, 6)),
		.regions = htole32((u32)some(in, 7)),
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
	const u32 kind = (u32)some(in, DCM_GC_KINDS + 2);

	for (u32 i = 0; i < n; i++)
		payload[i] = (u8)byte(in);
	hear((struct dcm_gc_message){ .kind = htole32(kind),
				      .space = htole32((u32)some(in, SPACES)),
				      .epoch = htole32((u32)some(in, 4)),
				      .n = htole32((u32)some(in, 70)),
				      .value = htole64(some(in, 2000)),
				      .donor = htole32((u32)some(in, 65)) },
	     payload, n, -1);
}

/* The host writes to a slab: an object, or anything, whoever reads it now. */
static void write_slab(struct in *in)
{
	const u32 which = byte(in) % SLABS;
	const u64 at = some(in, (u32)(slab_bytes[which] / 16)) * 16 %
		       slab_bytes[which];
	u32 head[2] = { htole32(byte(in) % 8), htole32((u32)some(in, 9)) };
	u64 ref = some(in, 8);

	ref = ref < 5 ? ADDRESS + ref * REGION + some(in, 64) * 16 : ref & 1;
	written = true;
	memcpy(slab_memory[which] + at, head, sizeof(head));
	ref = htole64(ref);
	memcpy(slab_memory[which] + at + 8, &ref, sizeof(ref));
}

static u32 pace; /* threads go so far after each message; 0: until they wait */

static void others_run(u32 places)
{
	if (places != NEVER)
		fibers_run(places);
}

/* Threads go on until they wait, or so far now and after each message. */
static void wait_a_little(struct in *in)
{
	const u32 space = (u32)some(in, SPACES);
	const u32 how = byte(in);

	if (how & 0x80) {
		pace = how >> 1 & 63;
		others_run(1 + pace);
	} else {
		if (space < DCM_GC_SPACES_MAX && worker_spaces[space].s)
			dcm_gc_trace_wait(worker_spaces[space].s, 1000000);
		others_run(0);
	}
	if (how & 1)
		write_slab(in);
}

static void say(struct in *in)
{
	static const u16 addresses[] = { VIRTIO_GC_TRACE_ROOTS,
					 VIRTIO_GC_FORWARD };
	static const u16 lists[] = { VIRTIO_GC_TRACE_START, VIRTIO_GC_UPDATE,
				     VIRTIO_GC_RELEASE };
	static const u32 peers[] = { DCM_GC_GHOSTS, DCM_GC_ACKED,
				     DCM_GC_FORWARD, DCM_GC_FORWARDED };
	static const u32 shorts[] = { DCM_GC_POLL, DCM_GC_BITMAP, DCM_GC_FINISH,
				      DCM_GC_STOP };
	const u32 what = byte(in) % 28;

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
	case 26:
		say_raw(in);
		break;
	default:
		wait_a_little(in);
	}
	others_run(pace);
}

/* ---- a worker's life ---- */

/* Nodes that refer on, some to other regions; some are opaque. */
static void heap_make(void)
{
	for (u64 o = 0; o < 4 * REGION / 16; o++) {
		const u64 next = o % 64 == 63 ? o * 16 + REGION : o * 16 + 16;

		fresh[2 * o] = htole64(o % 128 == 5 ? 5 : 1);
		fresh[2 * o + 1] = htole64(
			o % 128 == 127 ? 0 : ADDRESS + next % (4 * REGION));
	}
}

/* If nothing was to write to them, nothing has. */
static void slabs_fill(void)
{
	static u32 inputs;

	for (u32 i = 0; i < SLABS; i++) {
		if (written)
			memcpy(slab_memory[i], fresh, slab_bytes[i]);
		else if (!(inputs % LOOK))
			EXPECT(!memcmp(slab_memory[i], fresh, slab_bytes[i]));
	}
	written = false;
	inputs++;
}

static void start_once(void)
{
	if (slab_memory[0])
		return;
	for (u32 i = 0; i < SLABS; i++) {
		slab_fd[i] = memfd_create("slab", MFD_CLOEXEC);
		EXPECT(slab_fd[i] >= 0 &&
		     !ftruncate(slab_fd[i], (off_t)slab_bytes[i]));
		slab_memory[i] = __real_mmap(NULL, slab_bytes[i],
					     PROT_READ | PROT_WRITE, MAP_SHARED,
					     slab_fd[i], 0);
		EXPECT(slab_memory[i] != MAP_FAILED);
	}
	heap_make();
	written = true;
	EXPECT(!job_start());
}

/* Everything the worker has goes, as the process would. */
static void forget(void)
{
	for (u32 i = 0; i < DCM_GC_SPACES_MAX; i++)
		if (worker_spaces[i].s)
			job_stop(&worker_spaces[i], 0);
	fibers_run(0);
	EXPECT(!job_busy());
	for (u32 i = 0; i < DCM_GC_SPACES_MAX; i++) {
		dcm_gc_space_free(worker_spaces[i].s);
		if (worker_spaces[i].s)
			free(worker_spaces[i].write_counts);
		worker_spaces[i].s = NULL;
	}
	for (u32 i = 0; i < DCM_GC_SLABS_MAX; i++) {
		struct worker_slab *s = &worker_slabs[i];

		if (s->memory && (void *)s->memory != MAP_FAILED)
			map_end(s->memory, s->bytes);
		*s = (struct worker_slab){ 0 };
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct in in = { data, data + size };

	if (size > 2048)
		return 0;
	start_once();
	slabs_fill();
	if (!setjmp(ended)) {
		/* most inputs want these */
		const u32 how = byte(&in);

		pace = how >> 1;
		if (how & 1) {
			static const u8 begin[] = { 0, 0, 0, 0, 0,   1, 0, 3,
						    0, 0, 2, 0, 0, 0, 4, 0 };
			struct in first = { begin, begin + sizeof(begin) };

			while (first.at < first.end)
				say(&first);
		}
		while (in.at < in.end)
			say(&in);
	}
	if (shown >= 0)
		close(shown);
	shown = -1;
	forget();
	/* the one that does requests */
	EXPECT(fibers_there() == 1);
	return 0;
}

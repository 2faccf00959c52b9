// SPDX-License-Identifier: GPL-2.0-or-later
/* gc_request_test.c - virtio-gc requests, layouts and types, right and wrong */
/* links: kvm-dcm/proto/gc_request.c donor-daemon/gc/space.c donor-daemon/gc/types.c donor-daemon/gc/trace.c donor-daemon/gc/scan.c donor-daemon/gc/work.c donor-daemon/gc/ghost.c donor-daemon/gc/met.c donor-daemon/gc/cards.c */
#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "../../kvm-dcm/proto/gc_request.h"
#include "gc/gc.h"

static const struct dcm_gc_limits all = {
	.features = U32_MAX,
	.spaces_max = 16,
	.request_max = 4096,
	.response_max = 4096,
};

/* command, bytes after the header, entries, features it needs */
static const struct {
	u16 command;
	u32 bytes;
	u32 count;
	u32 features;
} good[] = {
	{ VIRTIO_GC_SPACE_CREATE, 56, 0, 0 },
	{ VIRTIO_GC_SPACE_DESTROY, 0, 0, 0 },
	{ VIRTIO_GC_SPACE_DONORS, 16, 0, 0 },
	{ VIRTIO_GC_TYPES_ADD, 8 + 32 * 3, 3, 0 },
	{ VIRTIO_GC_CLEAN, 16 * 2, 2, 0 },
	{ VIRTIO_GC_TRACE_START, 16 * 2, 2, 1 },
	{ VIRTIO_GC_TRACE_ROOTS, 8 * 5, 5, 1 },
	{ VIRTIO_GC_TRACE_MET, 8, 0, 1 },
	{ VIRTIO_GC_TRACE_FINISH, 0, 0, 1 },
	{ VIRTIO_GC_TRACE_RESULTS, 16, 0, 1 },
	{ VIRTIO_GC_TRACE_STATE, 0, 0, 1 | 1 << 9 },
	{ VIRTIO_GC_TRACE_ASK, 8 * 9, 9, 1 | 1 << 10 },
	{ VIRTIO_GC_TRACE_BITMAPS, 16, 0, 1 | 1 << 11 },
	{ VIRTIO_GC_TRACE_CARDS, 8, 0, 1 | 1 << 13 },
	{ VIRTIO_GC_EVACUATE, 32, 1, 4 },
	{ VIRTIO_GC_UPDATE, 16, 1, 4 },
	{ VIRTIO_GC_FORWARD, 8 * 2, 2, 4 },
	{ VIRTIO_GC_RELEASE, 16, 1, 4 },
	{ VIRTIO_GC_COMPACT, 16 + 16 * 3, 3, 8 },
	{ VIRTIO_GC_HINT, 8 + 16, 1, 16 },
	{ VIRTIO_GC_CANCEL, 8, 0, 0 },
};

static u32 read_it(const void *buf, size_t len, size_t room,
		   const struct dcm_gc_limits *limits, struct dcm_gc_request *r)
{
	/* an own copy: reading one byte too many is seen */
	void *copy = malloc(len ? len : 1);
	u32 status;

	assert_non_null(copy);
	memcpy(copy, buf, len);
	status = dcm_gc_request_read(copy, len, room, limits, r);
	free(copy);
	return status;
}

/* Each command: just so; shorter, longer, without its feature. */
static void test_shapes(void **state)
{
	struct dcm_gc_request r;

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(good); i++) {
		u64 buf[512] = { 0 };
		struct virtio_gc_req *req = (void *)buf;
		size_t len = sizeof(*req) + good[i].bytes;
		struct dcm_gc_limits few = all;

		req->command = htole16(good[i].command);
		req->space = htole32(15);
		req->tag = htole64(77);
		req->epoch = htole32(good[i].features & 15 ? 5 : 0);
		req->deadline_ms = htole32(100);
		req->count = htole32(good[i].count);
		assert_int_equal(read_it(buf, len, 4096, &all, &r), 0);
		assert_int_equal(r.command, good[i].command);
		assert_int_equal(r.space, 15);
		assert_int_equal(r.tag, 77);
		assert_int_equal(r.epoch, le32toh(req->epoch));
		assert_int_equal(r.deadline_ms, 100);
		assert_int_equal(r.count, good[i].count);
		/* [VGC-D-8] */
		for (size_t n = 0; n < sizeof(buf); n++)
			if (n != len)
				assert_int_equal(read_it(buf, n, 4096, &all,
							 &r),
						 VIRTIO_GC_INVALID);
		req->count = htole32(good[i].count + 1);
		assert_int_equal(read_it(buf, len, 4096, &all, &r),
				 VIRTIO_GC_INVALID);
		req->count = htole32(U32_MAX);
		assert_int_equal(read_it(buf, len, 4096, &all, &r),
				 VIRTIO_GC_INVALID);
		req->count = htole32(good[i].count);
		req->reserved = 1;
		assert_int_equal(read_it(buf, len, 4096, &all, &r),
				 VIRTIO_GC_INVALID);
		req->reserved = 0;
		req->epoch = htole32(6);
		assert_int_equal(read_it(buf, len, 4096, &all, &r),
				 good[i].features & 15 ? VIRTIO_GC_OK :
							 VIRTIO_GC_INVALID);
		req->epoch = 0;
		req->space = htole32(16);
		assert_int_equal(read_it(buf, len, 4096, &all, &r),
				 VIRTIO_GC_INVALID);
		req->space = 0;
		req->flags = htole16(0x8000);
		assert_int_equal(read_it(buf, len, 4096, &all, &r),
				 VIRTIO_GC_UNSUPPORTED);
		req->flags = 0;
		few.features &= ~good[i].features;
		/* [VGC-D-2] */
		assert_int_equal(read_it(buf, len, 4096, &few, &r),
				 good[i].features ? VIRTIO_GC_UNSUPPORTED : 0);
		few = all;
		few.request_max = (u32)len - 1;
		assert_int_equal(read_it(buf, len, 4096, &few, &r),
				 VIRTIO_GC_INVALID);
	}
	for (u32 c = 0; c < 0x10000; c++) {
		struct virtio_gc_req req = { .command = htole16((u16)c) };
		u32 status = read_it(&req, sizeof(req), 4096, &all, &r);
		bool known = false;

		for (u32 i = 0; i < ARRAY_SIZE(good); i++)
			known |= good[i].command == c;
		assert_true(known == (status != VIRTIO_GC_UNSUPPORTED));
	}
}

/* Fields that must be zero, values there are not, features of flags. */
static void test_values(void **state)
{
	u64 buf[64] = { 0 };
	struct virtio_gc_req *req = (void *)buf;
	struct virtio_gc_met *met = (void *)(req + 1);
	struct virtio_gc_region *region = (void *)(req + 1);
	struct dcm_gc_limits few = all;
	struct dcm_gc_request r;

	(void)state;
	req->command = htole16(VIRTIO_GC_TRACE_MET);
	met->what = htole32(VIRTIO_GC_MET_TYPES);
	assert_int_equal(read_it(buf, 40, 4096, &all, &r), 0);
	met->what = htole32(VIRTIO_GC_MET_CLEAR + 1);
	assert_int_equal(read_it(buf, 40, 4096, &all, &r), VIRTIO_GC_INVALID);
	met->what = htole32(VIRTIO_GC_MET_CLEAR);
	met->max = htole32(10);
	assert_int_equal(read_it(buf, 40, 32 + 160, &all, &r), 0);
	assert_int_equal(read_it(buf, 40, 32 + 159, &all, &r),
			 VIRTIO_GC_INVALID);
	/* [VGC-D-8] */
	few.features &= ~(1u << VIRTIO_GC_F_CLEAR);
	assert_int_equal(read_it(buf, 40, 4096, &few, &r), VIRTIO_GC_INVALID);
	req->flags = htole16(VIRTIO_GC_MET_AGAIN);
	assert_int_equal(read_it(buf, 40, 4096, &all, &r), 0);
	assert_int_equal(read_it(buf, 40, 4096, &few, &r),
			 VIRTIO_GC_UNSUPPORTED);
	met->what = htole32(VIRTIO_GC_MET_WEAK);
	assert_int_equal(read_it(buf, 40, 4096, &all, &r), VIRTIO_GC_INVALID);
	req->flags = 0;
	few = all;
	/* room for the answer */
	met->what = 0;
	met->max = htole32(10);
	assert_int_equal(read_it(buf, 40, 32 + 80, &all, &r), 0);
	assert_int_equal(r.answer, 10);
	assert_int_equal(r.answer_bytes, 32 + 80);
	/* [VGC-D-9] */
	assert_int_equal(read_it(buf, 40, 32 + 79, &all, &r),
			 VIRTIO_GC_INVALID);
	met->max = htole32(U32_MAX);
	assert_int_equal(read_it(buf, 40, SIZE_MAX, &all, &r),
			 VIRTIO_GC_INVALID);
	memset(buf, 0, sizeof(buf));
	req->command = htole16(VIRTIO_GC_TRACE_START);
	req->count = htole32(2);
	req->flags = htole16(VIRTIO_GC_TRACE_CONCURRENT);
	assert_int_equal(read_it(buf, 64, 4096, &all, &r), 0);
	few.features &= ~(1u << VIRTIO_GC_F_CONCURRENT);
	assert_int_equal(read_it(buf, 64, 4096, &few, &r),
			 VIRTIO_GC_UNSUPPORTED);
	/* flags of regions are reserved without WHOLE */
	few = all;
	few.features &= ~(1u << VIRTIO_GC_F_WHOLE);
	for (u32 flags = 1; flags < 6; flags++) {
		region[1].flags = htole32(flags);
		/* [VGC-D-8] */
		assert_int_equal(read_it(buf, 64, 4096, &few, &r),
				 VIRTIO_GC_INVALID);
		/* [VGC-D-53] */
		assert_int_equal(read_it(buf, 64, 4096, &all, &r),
				 flags & 1 && flags < 4 ? 0 :
							  VIRTIO_GC_INVALID);
	}
	region[1].flags = htole32(VIRTIO_GC_REGION_WHOLE);
	req->command = htole16(VIRTIO_GC_UPDATE);
	req->flags = 0;
	assert_int_equal(read_it(buf, 64, 4096, &all, &r), VIRTIO_GC_INVALID);
}

/* Hints are five, and FETCH by its feature only. */
static void test_hints(void **state)
{
	u64 buf[64] = { 0 };
	struct virtio_gc_req *req = (void *)buf;
	struct virtio_gc_hint *hint = (void *)(req + 1);
	struct dcm_gc_limits few = all;
	struct dcm_gc_request r;

	(void)state;
	req->command = htole16(VIRTIO_GC_HINT);
	req->count = htole32(1);
	few.features &= ~(1u << VIRTIO_GC_F_FETCH);
	for (u32 what = 0; what < 7; what++) {
		hint->what = htole32(what);
		/* [VGC-D-8] */
		assert_int_equal(read_it(buf, 32 + 8 + 16, 4096, &all, &r),
				 what <= VIRTIO_GC_HINT_FETCH ?
					 0 :
					 VIRTIO_GC_INVALID);
		/* [VGC-D-8] */
		assert_int_equal(read_it(buf, 32 + 8 + 16, 4096, &few, &r),
				 what < VIRTIO_GC_HINT_FETCH ?
					 0 :
					 VIRTIO_GC_INVALID);
	}
}

/* Fields that were reserved once are, without their feature; flags are unknown. */
static void test_values_by_feature(void **state)
{
	u64 buf[64] = { 0 };
	struct virtio_gc_req *req = (void *)buf;
	struct virtio_gc_types *types = (void *)(req + 1);
	struct virtio_gc_type *type = (void *)(types + 1);
	struct dcm_gc_limits few = all;
	struct dcm_gc_request r;

	(void)state;
	req->command = htole16(VIRTIO_GC_TYPES_ADD);
	req->count = htole32(2);
	type[1].tail = 1;
	few.features &= ~(1u << VIRTIO_GC_F_TAIL);
	assert_int_equal(read_it(buf, 32 + 8 + 64, 4096, &all, &r), 0);
	/* [VGC-D-56] */
	assert_int_equal(read_it(buf, 32 + 8 + 64, 4096, &few, &r),
			 VIRTIO_GC_INVALID);
	type[1].tail = 0;
	assert_int_equal(read_it(buf, 32 + 8 + 64, 4096, &few, &r), 0);
	few.features &= ~(1u << VIRTIO_GC_F_REPLACE);
	req->flags = htole16(VIRTIO_GC_TYPES_REPLACE);
	assert_int_equal(read_it(buf, 32 + 8 + 64, 4096, &all, &r), 0);
	/* [VGC-D-2] */
	assert_int_equal(read_it(buf, 32 + 8 + 64, 4096, &few, &r),
			 VIRTIO_GC_UNSUPPORTED);
}

/* The answer has as many bytes as the request says, and no more than it may. */
static void test_bitmaps(void **state)
{
	const struct {
		u32 regions;
		u64 bytes;
		u32 answer;
	} tried[] = {
		{ 0, 1024, 0 },
		{ 3, 1024, 3072 },
		{ 4, 1016, 4064 },
		{ 1024, 1024, 1 << 20 },
		{ 1025, 1024, U32_MAX },
		{ 1, 1 << 20, 1 << 20 },
		{ 1, (1 << 20) + 8, U32_MAX },
		{ 1, 1ull << 32, U32_MAX },
		{ 0, U64_MAX, U32_MAX },
		{ U32_MAX, 1ull << 20, U32_MAX },
		{ 1u << 31, 1ull << 33, U32_MAX },
	};
	u64 buf[8] = { 0 };
	struct virtio_gc_req *req = (void *)buf;
	struct virtio_gc_range *range = (void *)(req + 1);
	struct dcm_gc_request r;

	(void)state;
	req->command = htole16(VIRTIO_GC_TRACE_BITMAPS);
	for (u32 i = 0; i < ARRAY_SIZE(tried); i++) {
		range->regions = htole32(tried[i].regions);
		range->bitmaps = htole64(tried[i].bytes);
		/* [VGC-D-66] */
		assert_int_equal(read_it(buf, 48, SIZE_MAX, &all, &r),
				 tried[i].answer == U32_MAX ?
					 VIRTIO_GC_INVALID :
					 VIRTIO_GC_OK);
		if (tried[i].answer != U32_MAX)
			assert_int_equal(r.answer_bytes, 32 + tried[i].answer);
	}
}

/* Entries are addresses or ranges, regions or ranges. */
static void test_ranges(void **state)
{
	const u16 commands[] = { VIRTIO_GC_TRACE_ROOTS, VIRTIO_GC_UPDATE };
	u64 buf[64] = { 0 };
	struct virtio_gc_req *req = (void *)buf;
	struct virtio_gc_refs *refs = (void *)(req + 1);
	struct dcm_gc_limits few = all;
	struct dcm_gc_request r;

	(void)state;
	few.features &= ~(1u << VIRTIO_GC_F_RANGES);
	req->count = htole32(2);
	refs[0].address = htole64(0x123456789abcdefull);
	refs[1].count = htole64(U64_MAX);
	for (u32 i = 0; i < 2; i++) {
		req->command = htole16(commands[i]);
		req->flags = htole16(VIRTIO_GC_RANGES);
		assert_int_equal(read_it(buf, 32 + 32, 4096, &all, &r), 0);
		assert_true(dcm_gc_request_ranges(&r));
		assert_int_equal(read_it(buf, 32 + 16, 4096, &all, &r),
				 VIRTIO_GC_INVALID);
		/* [VGC-D-2] */
		assert_int_equal(read_it(buf, 32 + 32, 4096, &few, &r),
				 VIRTIO_GC_UNSUPPORTED);
	}
	req->flags = 0;
	assert_int_equal(read_it(buf, 32 + 32, 4096, &all, &r),
			 VIRTIO_GC_INVALID);
}

/* A search for cards begins with regions, gets ranges, or goes on with nothing. */
static void test_cards(void **state)
{
	const struct {
		u16 flags;
		u32 count;
		u8 shift;
		bool good;
	} tried[] = {
		{ 0, 0, 0, true },
		{ 0, 0, 9, false },
		{ 0, 1, 0, false },
		{ VIRTIO_GC_CARDS_BEGIN, 0, 9, true },
		{ VIRTIO_GC_CARDS_BEGIN, 2, 9, true },
		{ VIRTIO_GC_RANGES, 2, 0, true },
		{ VIRTIO_GC_RANGES, 2, 9, false },
		{ VIRTIO_GC_CARDS_BEGIN | VIRTIO_GC_RANGES, 2, 9, false },
	};
	u64 buf[9] = { 0 };
	struct virtio_gc_req *req = (void *)buf;
	struct virtio_gc_cards *cards = (void *)(req + 1);
	struct dcm_gc_request r;

	(void)state;
	req->command = htole16(VIRTIO_GC_TRACE_CARDS);
	cards->max = htole32(5);
	for (u32 i = 0; i < ARRAY_SIZE(tried); i++) {
		size_t len = 40 + tried[i].count * 16;

		req->flags = htole16(tried[i].flags);
		req->count = htole32(tried[i].count);
		cards->shift = tried[i].shift;
		/* [VGC-D-69] */
		assert_int_equal(read_it(buf, len, 32 + 40, &all, &r),
				 tried[i].good ? 0 : VIRTIO_GC_INVALID);
		assert_int_equal(read_it(buf, len, 32 + 39, &all, &r),
				 VIRTIO_GC_INVALID);
		/* [VGC-D-8] */
		cards->reserved[2] = 1;
		assert_int_equal(read_it(buf, len, 4096, &all, &r),
				 VIRTIO_GC_INVALID);
		cards->reserved[2] = 0;
	}
}

static const struct dcm_gc_layout plain = {
	.bytes = 1 << 20,
	.region_bytes = 64 << 10,
	.address = 1ull << 32,
	.ref_bytes = 8,
	.type_offset = 8,
	.type_bytes = 4,
	.type_mask = 0xffffff,
};

static void test_ranges_check(void **state)
{
	const u64 end = plain.address + plain.bytes;
	const struct {
		u64 address;
		u64 count;
		bool good;
	} tried[] = {
		{ plain.address, 1, true },
		{ plain.address, plain.bytes / 8, true },
		{ end - 8, 1, true },
		{ plain.address, 0, false },
		{ plain.address, plain.bytes / 8 + 1, false },
		{ plain.address, 1ull << 61, false },
		{ plain.address + 8, U64_MAX, false },
		{ plain.address + 4, 1, false },
		{ plain.address - 8, 1, false },
		{ end, 1, false },
		{ 0, 1, false },
		{ end - 8, 2, false },
	};

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(tried); i++) {
		struct virtio_gc_refs refs[2] = {
			{ htole64(plain.address), htole64(1) },
			{ htole64(tried[i].address), htole64(tried[i].count) },
		};

		/* [VGC-D-59] */
		assert_int_equal(dcm_gc_ranges_check(&plain, refs, 2),
				 tried[i].good ? 0 : VIRTIO_GC_INVALID);
	}
}

/* A card has a number of 32 bits, and lies in one region. */
static void test_cards_check(void **state)
{
	struct dcm_gc_layout l = plain;
	struct virtio_gc_region list = {
		.region = htole32(15),
		.flags = htole32(VIRTIO_GC_REGION_SOURCE |
				 VIRTIO_GC_REGION_TARGET),
		.top = htole64(1 << 20),
	};

	(void)state;
	/* [VGC-D-69] */
	for (u32 shift = 0; shift < 256; shift++)
		assert_int_equal(dcm_gc_cards_check(&l, shift, &list, 1),
				 shift >= 7 && shift <= 16 ? 0 :
					 VIRTIO_GC_INVALID);
	l.bytes = DCM_GC_SPACE_MAX;
	l.region_bytes = 1 << 30;
	list.top = htole64(16ull << 30);
	for (u32 shift = 7; shift <= 16; shift++)
		assert_int_equal(dcm_gc_cards_check(&l, shift, &list, 1),
				 (DCM_GC_SPACE_MAX >> shift) - 1 < U32_MAX ?
					 0 :
					 VIRTIO_GC_INVALID);
	list.region = htole32(1 << 14);
	assert_int_equal(dcm_gc_cards_check(&l, 16, &list, 1),
			 VIRTIO_GC_INVALID);
	assert_int_equal(dcm_gc_cards_check(&l, 16, NULL, 0), 0);
	assert_int_equal(dcm_gc_cards_check(&l, 16, &list, (1 << 14) + 1),
			 VIRTIO_GC_INVALID);
}

static void test_layout(void **state)
{
	struct dcm_gc_layout l;

	(void)state;
	assert_int_equal(dcm_gc_layout_check(&plain), 0);
#define BAD(field, value)                                              \
	do {                                                           \
		l = plain;                                             \
		l.field = value;                                       \
		assert_int_equal(dcm_gc_layout_check(&l),              \
				 VIRTIO_GC_INVALID);                   \
	} while (0)
	/* [VGC-D-14] */
	BAD(bytes, 0);
	BAD(bytes, (1 << 20) + 4096);
	BAD(bytes, DCM_GC_SPACE_MAX + (64 << 10));
	BAD(region_bytes, 0);
	BAD(region_bytes, 96 << 10);
	BAD(region_bytes, 32 << 10);
	BAD(region_bytes, 1ull << 32);
	BAD(address, 4096);
	BAD(address, 0ull - (64 << 10));
	BAD(ref_bytes, 0);
	BAD(ref_bytes, 2);
	BAD(ref_bytes, 16);
	BAD(ref_shift, 9);
	BAD(flags, 2);
	BAD(type_bytes, 0);
	BAD(type_bytes, 3);
	BAD(type_bytes, 16);
	BAD(type_offset, 6);
	BAD(type_shift, 32);
	BAD(type_mask, 0);
#undef BAD
	l = plain;
	l.bytes = (u64)(DCM_GC_REGIONS_MAX + 1) * l.region_bytes;
	assert_int_equal(dcm_gc_layout_check(&l), VIRTIO_GC_LIMIT);
}

struct one {
	struct virtio_gc_type type;
	struct virtio_gc_run run[2];
};

static u32 add(struct dcm_gc_space *s, const struct one *o, u32 runs)
{
	return dcm_gc_types_add(s, 0, o, 32 + 8 * runs, 1, runs);
}

static void test_types(void **state)
{
	const struct one fixed = {
		.type = { .id = htole32(1),
			  .kind = VIRTIO_GC_FIXED,
			  .bytes = htole32(64),
			  .runs = htole16(2) },
		.run = { { htole32(16), htole32(2) },
			 { htole32(40), htole32(3) } },
	};
	const struct one refs = {
		.type = { .id = htole32(2),
			  .kind = VIRTIO_GC_REFS,
			  .length_bytes = 4,
			  .length_offset = htole32(12),
			  .first = htole32(16) },
	};
	const struct one data = {
		.type = { .id = htole32(3),
			  .kind = VIRTIO_GC_DATA,
			  .length_bytes = 2,
			  .length_offset = htole32(12),
			  .first = htole32(19),
			  .shift = 3 },
	};
	const struct one self = {
		.type = { .id = htole32(4),
			  .kind = VIRTIO_GC_SELF,
			  .length_bytes = 8,
			  .length_offset = htole32(24),
			  .size_bytes = 8,
			  .size_offset = htole32(16),
			  .first = htole32(40),
			  .shift = 3 },
	};
	const struct one weak = {
		.type = { .id = htole32(5),
			  .kind = VIRTIO_GC_FIXED,
			  .flags = VIRTIO_GC_TYPE_WEAK,
			  .bytes = htole32(32),
			  .referent = htole32(16),
			  .runs = htole16(1) },
		.run = { { htole32(24), htole32(1) } },
	};
	struct dcm_gc_space *s;
	struct one o;
	u32 status;

	(void)state;
	s = dcm_gc_space_new(&plain, 0, &status);
	assert_non_null(s);
#define BAD(from, nr, field, value)                                      \
	do {                                                             \
		o = from;                                                \
		o.field = value;                                         \
		assert_int_equal(add(s, &o, nr), VIRTIO_GC_INVALID);     \
	} while (0)
	/* [VGC-D-18] */
	BAD(fixed, 2, type.id, htole32(0x1000000));
	BAD(fixed, 2, type.kind, 0);
	BAD(fixed, 2, type.kind, 5);
	BAD(fixed, 2, type.flags, 4);
	BAD(fixed, 2, type.bytes, 0);
	BAD(fixed, 2, type.bytes, htole32(60));
	BAD(fixed, 2, type.bytes, htole32(56));
	BAD(fixed, 2, type.first, htole32(16));
	BAD(fixed, 2, type.shift, 1);
	BAD(fixed, 2, type.length_bytes, 4);
	BAD(fixed, 2, type.length_offset, htole32(12));
	BAD(fixed, 2, type.size_bytes, 4);
	BAD(fixed, 2, type.size_offset, htole32(16));
	BAD(fixed, 2, type.referent, htole32(16));
	BAD(fixed, 2, type.runs, htole16(1));
	BAD(fixed, 2, type.runs, htole16(3));
	BAD(fixed, 2, run[0].count, 0);
	BAD(fixed, 2, run[0].count, htole32(4));
	BAD(fixed, 2, run[0].count, htole32(U32_MAX));
	BAD(fixed, 2, run[0].offset, htole32(20));
	BAD(fixed, 2, run[0].offset, htole32(48));
	BAD(fixed, 2, run[1].offset, htole32(U32_MAX - 7));
	BAD(refs, 0, type.length_bytes, 0);
	BAD(refs, 0, type.length_bytes, 1);
	BAD(refs, 0, type.length_offset, htole32(10));
	BAD(refs, 0, type.length_offset, htole32(16));
	BAD(refs, 0, type.first, htole32(20));
	BAD(refs, 0, type.first, htole32(8));
	BAD(refs, 0, type.bytes, htole32(16));
	BAD(refs, 0, type.shift, 1);
	BAD(refs, 0, type.flags, VIRTIO_GC_TYPE_WEAK);
	/* [VGC-D-56] */
	BAD(fixed, 2, type.tail, 1);
	BAD(refs, 0, type.tail, 1);
	BAD(self, 0, type.tail, 1);
	BAD(data, 0, type.tail, 3);
	BAD(data, 0, type.shift, 17);
	BAD(data, 0, type.length_offset, htole32(18));
	BAD(data, 0, type.size_bytes, 4);
	BAD(self, 0, type.size_bytes, 0);
	BAD(self, 0, type.size_bytes, 1);
	BAD(self, 0, type.size_offset, htole32(20));
	BAD(self, 0, type.size_offset, htole32(1 << 20));
	BAD(self, 0, type.first, htole32(44));
	BAD(self, 0, type.length_bytes, 0);
	BAD(weak, 1, type.referent, htole32(24));
	BAD(weak, 1, type.referent, htole32(28));
	BAD(weak, 1, type.referent, htole32(32));
#undef BAD
	assert_int_equal(add(s, &fixed, 2), 0);
	assert_int_equal(add(s, &refs, 0), 0);
	assert_int_equal(add(s, &data, 0), 0);
	assert_int_equal(add(s, &self, 0), 0);
	assert_int_equal(add(s, &weak, 1), 0);
	/* a type that exists, and one twice in a request: none of the request is kept */
	assert_int_equal(add(s, &fixed, 2), VIRTIO_GC_INVALID);
	struct virtio_gc_type twice[3] = { refs.type, refs.type, refs.type };

	twice[0].id = htole32(10);
	twice[1].id = htole32(11);
	twice[2].id = htole32(10);
	assert_int_equal(dcm_gc_types_add(s, 0, twice, sizeof(twice), 3, 0),
			 VIRTIO_GC_INVALID);
	twice[2].id = htole32(12);
	assert_int_equal(dcm_gc_types_add(s, 0, twice, sizeof(twice), 3, 0), 0);
	assert_int_equal(dcm_gc_types_add(s, 0, twice, sizeof(twice) - 1, 3, 0),
			 VIRTIO_GC_INVALID);
	dcm_gc_space_free(s);
}

/* As many types as there may be, and one more. */
static void test_types_limit(void **state)
{
	const u32 n = DCM_GC_TYPES_MAX;
	struct virtio_gc_type *t = calloc(n + 1, sizeof(*t));
	struct dcm_gc_space *s;
	u32 status;

	(void)state;
	assert_non_null(t);
	s = dcm_gc_space_new(&plain, 0, &status);
	assert_non_null(s);
	/* ids that all differ only in high bits */
	for (u32 i = 0; i <= n; i++)
		t[i] = (struct virtio_gc_type){
			.id = htole32(i << 4 & 0xffffff),
			.kind = VIRTIO_GC_FIXED,
			.bytes = htole32(16),
		};
	for (u32 i = 0; i < 2; i++)
		assert_int_equal(dcm_gc_types_add(s, 0, t, (n + 1) * sizeof(*t),
						  n + 1, 0),
				 VIRTIO_GC_LIMIT);
	assert_int_equal(dcm_gc_types_add(s, 0, t, n * sizeof(*t), n, 0), 0);
	/* [VGC-D-19] */
	assert_int_equal(dcm_gc_types_add(s, 0, t + n, sizeof(*t), 1, 0),
			 VIRTIO_GC_LIMIT);
	assert_int_equal(dcm_gc_types_add(s, 0, NULL, 0, 0, 0), 0);
	dcm_gc_space_free(s);
	free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shapes),
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_hints),
		cmocka_unit_test(test_values_by_feature),
		cmocka_unit_test(test_bitmaps),
		cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_cards),
		cmocka_unit_test(test_cards_check),
		cmocka_unit_test(test_ranges_check),
		cmocka_unit_test(test_layout),
		cmocka_unit_test(test_types),
		cmocka_unit_test(test_types_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: GPL-2.0-or-later
/* gc_request_test.c - virtio-gc requests, right and wrong */
/* links: kvm-dcm/proto/gc_request.c */
#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "../../kvm-dcm/proto/gc_request.h"

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
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

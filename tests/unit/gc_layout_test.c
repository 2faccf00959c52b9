// SPDX-License-Identifier: GPL-2.0-or-later
/* gc_layout_test.c - layouts, ranges, cards and types of a space, right and wrong */
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
		cmocka_unit_test(test_cards_check),
		cmocka_unit_test(test_ranges_check),
		cmocka_unit_test(test_layout),
		cmocka_unit_test(test_types),
		cmocka_unit_test(test_types_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

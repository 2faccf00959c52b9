// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * wire_golden_test.c - the codec: the very bytes of messages and of a ticket
 * that is shown, and names for logs
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "../../kvm-dcm/proto/wire.h"

/* Bytes that must never change: a change here is another protocol version. */
static void test_golden(void **state)
{
	static const u8 hello[] = {
		0x43, 0x4d, 1,	0,    32,   0,	  0,	0,    8,    7,
		6,    5,    4,	3,    2,    1,	  1,	0,    2,    0,
		2,    1,    9,	0x0a, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33,
		0x22, 0x11, 0,	1,    2,    3,	  4,	5,    6,    7,
		8,    9,    10, 11,   12,   13,	  14,	15,
	};
	static const u8 read[] = {
		0x43, 0x4d, 48, 0, 24, 0, 0, 0, 1, 0, 0, 0,    0, 0,
		0,    0,    2,	0, 0,  0, 0, 0, 0, 0, 0, 0x10, 0, 0,
		3,    0,    0,	0, 0,  0, 1, 0, 0, 0, 0, 0,
	};
	struct dcm_wire_msg m = { .type = DCM_MSG_HELLO,
				  .tag = 0x0102030405060708 };
	u8 buf[DCM_WIRE_HEAD_MAX];

	(void)state;
	m.hello.version_min = 1;
	m.hello.version_max = 2;
	m.hello.role = DCM_ROLE_DATA;
	m.hello.flags = DCM_HELLO_PLAIN_DATA;
	m.hello.lane = 0x0a09;
	m.hello.session = 0x1122334455667788;
	for (int i = 0; i < 16; i++)
		m.hello.secret[i] = (u8)i;
	assert_int_equal(dcm_wire_encode(buf, sizeof(buf), &m), sizeof(hello));
	assert_memory_equal(buf, hello, sizeof(hello));
	memset(&m, 0, sizeof(m));
	m.type = DCM_MSG_READ;
	m.tag = 1;
	m.io.slab = 2;
	m.io.offset = 0x300001000;
	m.io.bytes = 65536;
	assert_int_equal(dcm_wire_encode(buf, sizeof(buf), &m), sizeof(read));
	assert_memory_equal(buf, read, sizeof(read));
}

/* A ticket in private data: any peer that reaches the port may send one. */
static void test_show(void **state)
{
	static const u8 golden[] = {
		0x43, 0x4d, 0x53, 0x54, 1,  0,	0,  0,	8,  7,	6,
		5,    4,    3,	  2,	1,  0,	1,  2,	3,  4,	5,
		6,    7,    8,	  9,	10, 11, 12, 13, 14, 15,
	};
	struct dcm_wire_shown shown = { .version = 1,
					.number = 0x0102030405060708 };
	struct dcm_wire_shown got;
	u8 buf[DCM_WIRE_SHOW_BYTES], padded[56] = { 0 };

	(void)state;
	for (int i = 0; i < 16; i++)
		shown.secret[i] = (u8)i;
	dcm_wire_show_put(buf, &shown);
	assert_int_equal(sizeof(golden), sizeof(buf));
	assert_memory_equal(buf, golden, sizeof(golden));
	/* a connection manager pads private data with any bytes */
	memcpy(padded, buf, sizeof(buf));
	padded[55] = 0xff;
	assert_int_equal(dcm_wire_show_get(padded, sizeof(padded), &got),
			 DCM_WIRE_OK);
	assert_int_equal(got.version, 1);
	assert_int_equal(got.number, shown.number);
	assert_memory_equal(got.secret, shown.secret, 16);
	for (size_t len = 0; len < sizeof(buf); len++) {
		u8 *copy = malloc(len ? len : 1);

		assert_non_null(copy);
		memcpy(copy, buf, len);
		assert_int_equal(dcm_wire_show_get(copy, len, &got),
				 DCM_WIRE_E_SIZE);
		free(copy);
	}
	for (size_t i = 0; i < 8; i++) {
		buf[i] ^= 0x40;
		assert_int_equal(dcm_wire_show_get(buf, sizeof(buf), &got),
				 i < 4 ? DCM_WIRE_E_MAGIC :
				 i < 6 ? DCM_WIRE_E_VALUE :
					 DCM_WIRE_E_RESERVED);
		buf[i] ^= 0x40;
	}
	buf[4] = 0;
	assert_int_equal(dcm_wire_show_get(buf, sizeof(buf), &got),
			 DCM_WIRE_E_VALUE);
}

static void test_names(void **state)
{
	(void)state;
	assert_string_equal(dcm_wire_type_name(DCM_MSG_CHECK_ACTIVITY),
			    "CHECK_ACTIVITY");
	assert_string_equal(dcm_wire_type_name(0), "?");
	assert_string_equal(dcm_wire_type_name(65535), "?");
	assert_string_equal(dcm_wire_status_text(0xffffffff), "unknown status");
	assert_string_equal(dcm_wire_error_name(DCM_WIRE_E_PHASE), "E_PHASE");
	assert_string_equal(dcm_wire_error_name(-99), "?");
	for (int i = 0; i < 14; i++)
		assert_true(strlen(dcm_wire_status_text((u32)i)) > 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_golden),
		cmocka_unit_test(test_show),
		cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

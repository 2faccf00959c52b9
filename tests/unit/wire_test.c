// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * wire_test.c - the codec: what it lets through, byte by byte
 *
 * The size of each type, and which side may send it in which phase, is written
 * down here a second time, from docs/protocol.md and not from wire.c's table.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "../../kvm-dcm/proto/wire.h"

#define HOST DCM_SIDE_HOST
#define DONOR DCM_SIDE_DONOR
#define HELLO DCM_PHASE_HELLO
#define CONTROL DCM_PHASE_CONTROL
#define DATA DCM_PHASE_DATA
#define COLLECT DCM_PHASE_GC

static const struct {
	u16 type;
	u32 body;
	int from;
	int phases;
	bool payload;
} spec[] = {
	{ 1, 32, HOST, HELLO, false },
	{ 2, 48, DONOR, HELLO, false },
	{ 3, 8, DONOR, HELLO | CONTROL | DATA | COLLECT, false },
	{ 4, 0, HOST | DONOR, CONTROL, false },
	{ 5, 0, HOST, CONTROL, false },
	{ 16, 0, HOST, CONTROL, false },
	{ 17, 40, DONOR, CONTROL, false },
	{ 18, 24, HOST, CONTROL, false },
	{ 19, 32, DONOR, CONTROL, false },
	{ 20, 8, HOST, CONTROL, false },
	{ 21, 8, HOST, CONTROL, false },
	{ 22, 48, DONOR, CONTROL, false },
	{ 23, 8, HOST, CONTROL, false },
	{ 24, 32, DONOR, CONTROL, false },
	{ 25, 32, DONOR, CONTROL, false },
	{ 32, 8, DONOR, CONTROL, false },
	{ 33, 16, HOST, CONTROL, false },
	{ 34, 8, DONOR, CONTROL, false },
	{ 35, 8, HOST | DONOR, CONTROL, false },
	{ 48, 24, HOST, DATA, false },
	{ 49, 8, DONOR, DATA, true },
	{ 50, 24, HOST, DATA, true },
	{ 51, 8, DONOR, DATA, false },
	{ 64, 16, HOST, COLLECT, false },
	{ 65, 8, DONOR, COLLECT, false },
	{ 66, 16, HOST, COLLECT, false },
	{ 67, 32, HOST | DONOR, COLLECT, true },
};

static const int phases[] = { HELLO, CONTROL, DATA, COLLECT };
static const int sides[] = { HOST, DONOR };

static const void *spec_of(u16 type, size_t *index)
{
	for (size_t i = 0; i < ARRAY_SIZE(spec); i++)
		if (spec[i].type == type) {
			*index = i;
			return &spec[i];
		}
	return NULL;
}

static u64 rng_state = 88172645463325252ull;

static u64 rng(void)
{
	rng_state ^= rng_state << 13;
	rng_state ^= rng_state >> 7;
	rng_state ^= rng_state << 17;
	return rng_state;
}

/* A valid message of @type with every field random. */
static struct dcm_wire_msg sample(u16 type)
{
	struct dcm_wire_msg m;
	u8 noise[sizeof(m)];

	for (size_t i = 0; i < sizeof(noise); i++)
		noise[i] = (u8)rng();
	memcpy(&m, noise, sizeof(m));
	m.type = type;
	m.payload = NULL;
	m.payload_bytes = 0;
	switch (type) {
	case DCM_MSG_HELLO:
		m.hello.role = (u8)(1 + rng() % 3);
		m.hello.version_max |= 0x8000;
		m.hello.version_min &= 0x7fff;
		if (m.hello.role != DCM_ROLE_DATA)
			m.hello.lane = 0;
		break;
	case DCM_MSG_MR_INFO:
		m.mr_info.transport = 1u << rng() % 3;
		break;
	case DCM_MSG_SLAB_IS:
		m.slab_is.slab |= 1;
		break;
	case DCM_MSG_ASK_TICKET:
		m.ask_ticket.lane |= 1;
		break;
	case DCM_MSG_TICKET:
		m.ticket.port |= 1;
		break;
	case DCM_MSG_WRITE:
		m.payload_bytes = (u32)(rng() % (DCM_WIRE_PAYLOAD_MAX + 1));
		m.io.bytes = m.payload_bytes;
		break;
	case DCM_MSG_DATA:
		m.io_done.status = rng() % 2 ? DCM_WS_OK : DCM_WS_RANGE;
		m.io_done.bytes = (u32)(rng() % (DCM_WIRE_PAYLOAD_MAX + 1));
		if (m.io_done.status == DCM_WS_OK)
			m.payload_bytes = m.io_done.bytes;
		break;
	case DCM_MSG_GC_OPEN:
		m.gc_open.donor %= DCM_WIRE_GC_DONORS;
		break;
	case DCM_MSG_GC_SLAB:
		m.gc_slab.number %= DCM_WIRE_GC_SLABS;
		break;
	case DCM_MSG_GC:
		/* those both sides say */
		m.gc.kind = DCM_GC_GHOSTS + (u32)(rng() % 4);
		m.payload_bytes = (u32)(rng() % (DCM_WIRE_PAYLOAD_MAX + 1));
		break;
	default:
		break;
	}
	return m;
}

/* @m as bytes, its payload included; malloc'ed to size, so ASan sees all. */
static u8 *bytes_of(struct dcm_wire_msg *m, size_t *len)
{
	u8 head[DCM_WIRE_HEAD_MAX];
	int n = dcm_wire_encode(head, sizeof(head), m);
	u8 *p;

	assert_true(n >= (int)DCM_WIRE_HDR_BYTES);
	*len = (size_t)n + m->payload_bytes;
	p = malloc(*len);
	assert_non_null(p);
	memcpy(p, head, (size_t)n);
	for (size_t i = (size_t)n; i < *len; i++)
		p[i] = (u8)i;
	return p;
}

static void same(const struct dcm_wire_msg *a, const struct dcm_wire_msg *b)
{
	u8 x[DCM_WIRE_HEAD_MAX], y[DCM_WIRE_HEAD_MAX];
	int n = dcm_wire_encode(x, sizeof(x), a);

	assert_int_equal(a->type, b->type);
	assert_int_equal(a->tag, b->tag);
	assert_int_equal(a->payload_bytes, b->payload_bytes);
	assert_int_equal(dcm_wire_encode(y, sizeof(y), b), n);
	assert_memory_equal(x, y, (size_t)n);
}

/* Every type, from both sides, in every phase: only those of the table pass. */
static void test_who_and_when(void **state)
{
	(void)state;
	for (u32 type = 0; type < 300; type++) {
		size_t at = 0;
		bool known = spec_of((u16)type, &at) != NULL;
		struct dcm_wire_msg m = sample(known ? (u16)type : 16), got;
		size_t len, used;
		u8 *p = bytes_of(&m, &len);

		p[2] = (u8)type;
		p[3] = (u8)(type >> 8);
		for (int i = 0; i < 8; i++) {
			int want = DCM_WIRE_OK;

			if (!known)
				want = DCM_WIRE_E_TYPE;
			else if (!(spec[at].phases & phases[i % 4]) ||
				 !(spec[at].from & sides[i / 4]))
				want = DCM_WIRE_E_PHASE;
			assert_int_equal(dcm_wire_decode(p, len,
							 (enum dcm_wire_phase)
								 phases[i % 4],
							 (enum dcm_wire_side)
								 sides[i / 4],
						&got, &used),
				want);
			if (want == DCM_WIRE_OK)
				assert_int_equal(used, len);
		}
		free(p);
	}
}

static void test_round_trip(void **state)
{
	(void)state;
	for (int n = 0; n < 4000; n++) {
		size_t i = rng() % ARRAY_SIZE(spec), len, used;
		struct dcm_wire_msg m = sample(spec[i].type), got;
		u8 *p = bytes_of(&m, &len);
		int phase = spec[i].phases & -spec[i].phases;
		int from = spec[i].from & HOST ? HOST : DONOR;

		assert_int_equal(len, DCM_WIRE_HDR_BYTES + spec[i].body +
					      m.payload_bytes);
		assert_int_equal(dcm_wire_decode(p, len,
						 (enum dcm_wire_phase)phase,
						 (enum dcm_wire_side)from, &got,
						 &used),
				 DCM_WIRE_OK);
		assert_int_equal(used, len);
		if (m.payload_bytes)
			assert_ptr_equal(got.payload, p + 16 + spec[i].body);
		else
			assert_null(got.payload);
		same(&m, &got);
		free(p);
	}
}

/* Cut anywhere: never an answer, never a read beyond, and honest about need. */
static void test_incremental(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(spec); i++) {
		struct dcm_wire_msg m = sample(spec[i].type), got;
		int phase = spec[i].phases & -spec[i].phases;
		int from = spec[i].from & HOST ? HOST : DONOR;
		size_t len, used, head = 16 + spec[i].body;
		u8 *p;

		if (m.payload_bytes > 100) {
			m.payload_bytes = 100;
			if (m.type == DCM_MSG_WRITE)
				m.io.bytes = 100;
			else if (m.type == DCM_MSG_DATA)
				m.io_done.bytes = 100;
		}
		p = bytes_of(&m, &len);
		for (size_t cut = 0; cut < len; cut++) {
			u8 *q = malloc(cut + !cut);
			int want = cut < head ? DCM_WIRE_MORE : DCM_WIRE_OK;

			assert_non_null(q);
			memcpy(q, p, cut);
			assert_int_equal(dcm_wire_decode(q, cut,
							 (enum dcm_wire_phase)
								 phase,
							 (enum dcm_wire_side)
								 from,
							 &got, &used),
				DCM_WIRE_MORE);
			assert_int_equal(used, cut < 16	  ? 16 - cut :
					       cut < head ? head - cut :
							    len - cut);
			assert_int_equal(dcm_wire_head(q, cut,
						       (enum dcm_wire_phase)
							       phase,
						       (enum dcm_wire_side)from,
						       &got, &used),
				want);
			if (want == DCM_WIRE_OK)
				assert_int_equal(used, head);
			free(q);
		}
		free(p);
	}
}

static int decode(const void *p, size_t len, int phase, int from)
{
	struct dcm_wire_msg got;
	size_t used;

	return dcm_wire_decode(p, len, (enum dcm_wire_phase)phase,
			       (enum dcm_wire_side)from, &got, &used);
}

static void test_sizes(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(spec); i++) {
		struct dcm_wire_msg m = sample(spec[i].type);
		int phase = spec[i].phases & -spec[i].phases;
		int from = spec[i].from & HOST ? HOST : DONOR;
		size_t len;
		u8 *p = bytes_of(&m, &len);
		u32 ok = spec[i].body, top = ok;
		u32 bad[] = { 0,	  ok - 1,     ok + 1,
			      ok + 65537, 0x7fffffff, 0xffffffff };

		if (spec[i].payload)
			top = ok + DCM_WIRE_PAYLOAD_MAX;
		for (size_t n = 0; n < ARRAY_SIZE(bad); n++) {
			if (bad[n] >= ok && bad[n] <= top)
				continue;
			for (int b = 0; b < 4; b++)
				p[4 + b] = (u8)(bad[n] >> (8 * b));
			/* refused by the header alone */
			assert_int_equal(decode(p, 16, phase, from),
					 DCM_WIRE_E_SIZE);
		}
		free(p);
	}
}

static void test_refusals(void **state)
{
	struct dcm_wire_msg m = sample(DCM_MSG_HELLO);
	size_t len;
	u8 *p;

	(void)state;
	assert_int_equal(decode("", 0, HELLO, HOST), DCM_WIRE_MORE);
	assert_int_equal(decode("C", 1, HELLO, HOST), DCM_WIRE_MORE);
	assert_int_equal(decode("CM", 2, HELLO, HOST), DCM_WIRE_MORE);
	assert_int_equal(decode("MC", 2, HELLO, HOST), DCM_WIRE_E_MAGIC);
	assert_int_equal(decode("GET / HTTP/1.1\r\n", 16, HELLO, HOST),
			 DCM_WIRE_E_MAGIC);
	m.hello.lane = 0;
	p = bytes_of(&m, &len);
	p[16 + 4] = 4;
	assert_int_equal(decode(p, len, HELLO, HOST), DCM_WIRE_E_VALUE);
	p[16 + 4] = 0;
	assert_int_equal(decode(p, len, HELLO, HOST), DCM_WIRE_E_VALUE);
	p[16 + 4] = 1;
	p[16 + 6] = 1;
	assert_int_equal(decode(p, len, HELLO, HOST), DCM_WIRE_E_RESERVED);
	p[16 + 6] = 0;
	p[16 + 1] = 0xff;
	p[16 + 3] = 0x00;
	assert_int_equal(decode(p, len, HELLO, HOST), DCM_WIRE_E_VALUE);
	free(p);

	/* WRITE and DATA must say the same length twice, or WRITE no payload */
	m = sample(DCM_MSG_WRITE);
	m.payload_bytes = 0;
	m.io.bytes = 4096;
	p = bytes_of(&m, &len);
	assert_int_equal(decode(p, len, DATA, HOST), DCM_WIRE_OK);
	free(p);
	m.payload_bytes = m.io.bytes = 4096;
	p = bytes_of(&m, &len);
	p[16 + 16] = 1;
	assert_int_equal(decode(p, len, DATA, HOST), DCM_WIRE_E_SIZE);
	free(p);
	m = sample(DCM_MSG_DATA);
	m.io_done.status = DCM_WS_OK;
	m.payload_bytes = m.io_done.bytes = 4096;
	p = bytes_of(&m, &len);
	p[16] = DCM_WS_NO_SLAB; /* a refusal has no payload */
	assert_int_equal(decode(p, len, DATA, DONOR), DCM_WIRE_E_SIZE);
	free(p);
	m = sample(DCM_MSG_READ);
	p = bytes_of(&m, &len);
	p[16 + 23] = 1;
	assert_int_equal(decode(p, len, DATA, HOST), DCM_WIRE_E_RESERVED);
	free(p);
	m = sample(DCM_MSG_MR_INFO);
	m.mr_info.transport = 3;
	p = bytes_of(&m, &len);
	assert_int_equal(decode(p, len, CONTROL, DONOR), DCM_WIRE_E_VALUE);
	free(p);

	/* lanes count from 1, and nothing listens on port 0 */
	m = sample(DCM_MSG_ASK_TICKET);
	p = bytes_of(&m, &len);
	for (size_t i = 2; i < 8; i++) {
		p[16 + i] = 1;
		assert_int_equal(decode(p, len, CONTROL, HOST),
				 DCM_WIRE_E_RESERVED);
		p[16 + i] = 0;
	}
	p[16] = p[17] = 0;
	assert_int_equal(decode(p, len, CONTROL, HOST), DCM_WIRE_E_VALUE);
	free(p);
	m = sample(DCM_MSG_TICKET);
	p = bytes_of(&m, &len);
	p[16 + 42] = 1;
	assert_int_equal(decode(p, len, CONTROL, DONOR), DCM_WIRE_E_RESERVED);
	p[16 + 42] = 0;
	p[16 + 40] = p[16 + 41] = 0;
	assert_int_equal(decode(p, len, CONTROL, DONOR), DCM_WIRE_E_VALUE);
	free(p);

	/* there is no slab, and there are more */
	m = sample(DCM_MSG_SLAB_IS);
	m.slab_is.slab = 0;
	m.slab_is.flags |= DCM_SLAB_IS_MORE;
	p = bytes_of(&m, &len);
	assert_int_equal(decode(p, len, CONTROL, DONOR), DCM_WIRE_E_VALUE);
	p[16 + 28] &= 0xfe;
	assert_int_equal(decode(p, len, CONTROL, DONOR), DCM_WIRE_OK);
	free(p);
}

/* Each kind from its side only; numbers of donors and slabs have limits. */
static void test_gc(void **state)
{
	static const u32 host[] = { DCM_GC_PLACE,  DCM_GC_REQUEST,
				    DCM_GC_POLL,   DCM_GC_BITMAP,
				    DCM_GC_FINISH, DCM_GC_STOP,
				    DCM_GC_MOVED,  DCM_GC_WRITE_COUNTS };
	static const u32 donor[] = { DCM_GC_DONE, DCM_GC_FLAGS, DCM_GC_BITS };
	u32 from[256] = { 0 };
	struct dcm_wire_msg m;
	size_t len;
	u8 *p;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(host); i++)
		from[host[i]] = HOST;
	for (size_t i = 0; i < ARRAY_SIZE(donor); i++)
		from[donor[i]] = DONOR;
	for (u32 i = DCM_GC_GHOSTS; i <= DCM_GC_FORWARDED; i++)
		from[i] = HOST | DONOR;
	m = sample(DCM_MSG_GC);
	p = bytes_of(&m, &len);
	for (u32 kind = 0; kind < 256; kind++) {
		p[16] = (u8)kind;
		for (int i = 0; i < 2; i++)
			assert_int_equal(decode(p, len, COLLECT, sides[i]),
					 from[kind] & (u32)sides[i] ?
						 DCM_WIRE_OK :
						 DCM_WIRE_E_VALUE);
	}
	p[16] = DCM_GC_GHOSTS;
	p[17] = 1;
	assert_int_equal(decode(p, len, COLLECT, HOST), DCM_WIRE_E_VALUE);
	p[17] = 0;
	p[16 + 31] = 1;
	assert_int_equal(decode(p, len, COLLECT, HOST), DCM_WIRE_E_RESERVED);
	free(p);
	m = sample(DCM_MSG_GC_OPEN);
	m.gc_open.donor = DCM_WIRE_GC_DONORS - 1;
	p = bytes_of(&m, &len);
	assert_int_equal(decode(p, len, COLLECT, HOST), DCM_WIRE_OK);
	p[16 + 8]++;
	assert_int_equal(decode(p, len, COLLECT, HOST), DCM_WIRE_E_VALUE);
	p[16 + 12] = 1;
	assert_int_equal(decode(p, len, COLLECT, HOST), DCM_WIRE_E_RESERVED);
	free(p);
	m = sample(DCM_MSG_GC_SLAB);
	m.gc_slab.number = DCM_WIRE_GC_SLABS - 1;
	p = bytes_of(&m, &len);
	assert_int_equal(decode(p, len, COLLECT, HOST), DCM_WIRE_OK);
	p[16 + 8] = p[16 + 9] = 0xff;
	assert_int_equal(decode(p, len, COLLECT, HOST), DCM_WIRE_E_VALUE);
	free(p);
	m = sample(DCM_MSG_GC_OPENED);
	p = bytes_of(&m, &len);
	p[16 + 7] = 1;
	assert_int_equal(decode(p, len, COLLECT, DONOR), DCM_WIRE_E_RESERVED);
	free(p);
}

static void test_encode_refusals(void **state)
{
	struct dcm_wire_msg m = sample(DCM_MSG_READ);
	u8 buf[DCM_WIRE_HEAD_MAX];

	(void)state;
	assert_int_equal(dcm_wire_encode(buf, 39, &m), DCM_WIRE_E_ROOM);
	assert_int_equal(dcm_wire_encode(buf, 40, &m), 40);
	m.payload_bytes = 1;
	assert_int_equal(dcm_wire_encode(buf, sizeof(buf), &m),
			 DCM_WIRE_E_SIZE);
	m.type = 47;
	assert_int_equal(dcm_wire_encode(buf, sizeof(buf), &m),
			 DCM_WIRE_E_TYPE);
	m = sample(DCM_MSG_WRITE);
	m.payload_bytes = m.io.bytes = DCM_WIRE_PAYLOAD_MAX + 1;
	assert_int_equal(dcm_wire_encode(buf, sizeof(buf), &m),
			 DCM_WIRE_E_SIZE);
	m.payload_bytes = 4096;
	m.io.bytes = 8192;
	assert_int_equal(dcm_wire_encode(buf, sizeof(buf), &m),
			 DCM_WIRE_E_SIZE);
	m = sample(DCM_MSG_DATA);
	m.io_done.status = DCM_WS_RANGE;
	m.payload_bytes = m.io_done.bytes = 4096;
	assert_int_equal(dcm_wire_encode(buf, sizeof(buf), &m),
			 DCM_WIRE_E_SIZE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_who_and_when),
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_incremental),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_gc),
		cmocka_unit_test(test_encode_refusals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

// SPDX-License-Identifier: GPL-2.0-or-later
/* links: kvm-dcm/proto/wire.c */
/*
 * wire_fuzz.c - the decoder on any bytes
 *
 * The first byte chooses phase and side. A message that decodes must encode to the
 * same bytes, except for reserved fields, which are zero in both; every prefix of it
 * must be incomplete or refused, never decode; each call makes progress. The
 * same bytes are also shown as private data.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../../kvm-dcm/proto/wire.h"
#include "../framework/expect.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void show(const uint8_t *data, size_t size)
{
	u8 *copy = malloc(size ? size : 1), back[DCM_WIRE_SHOW_BYTES];
	struct dcm_wire_shown shown;

	EXPECT(copy != NULL);
	memcpy(copy, data, size);
	if (dcm_wire_show_get(copy, size, &shown) == DCM_WIRE_OK) {
		dcm_wire_show_put(back, &shown);
		EXPECT(!memcmp(back, copy, sizeof(back)));
	}
	free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const enum dcm_wire_phase phases[] = { DCM_PHASE_HELLO,
						      DCM_PHASE_CONTROL,
						      DCM_PHASE_DATA };
	enum dcm_wire_phase phase;
	enum dcm_wire_side from;
	struct dcm_wire_msg msg, again;
	u8 head[DCM_WIRE_HEAD_MAX];
	size_t bytes, more;
	int ret, n;

	if (!size)
		return 0;
	phase = data[0] & 0x40 ? DCM_PHASE_GC : phases[(data[0] & 0x3f) % 3];
	from = data[0] & 0x80 ? DCM_SIDE_DONOR : DCM_SIDE_HOST;
	data++;
	size--;
	show(data, size);
	for (;;) {
		/* an own copy: reading one byte too many is seen */
		u8 *copy = malloc(size ? size : 1);

		EXPECT(copy != NULL);
		memcpy(copy, data, size);
		ret = dcm_wire_decode(copy, size, phase, from, &msg, &bytes);
		if (ret == DCM_WIRE_MORE)
			EXPECT(bytes > 0 && bytes <= DCM_WIRE_MSG_MAX);
		EXPECT(strcmp(dcm_wire_error_name(ret), "?") != 0);
		if (ret != DCM_WIRE_OK) {
			free(copy);
			return 0;
		}
		EXPECT(bytes >= DCM_WIRE_HDR_BYTES && bytes <= size);
		EXPECT(msg.payload_bytes <= DCM_WIRE_PAYLOAD_MAX);
		if (msg.payload_bytes)
			EXPECT((const u8 *)msg.payload + msg.payload_bytes ==
			     copy + bytes);
		n = dcm_wire_encode(head, sizeof(head), &msg);
		EXPECT(n > 0 && (size_t)n + msg.payload_bytes == bytes);
		EXPECT(!memcmp(head, copy, (size_t)n));
		EXPECT(dcm_wire_decode(copy, bytes - 1, phase, from, &again,
				     &more) == DCM_WIRE_MORE &&
		     more >= 1);
		free(copy);
		data += bytes;
		size -= bytes;
		if (!size)
			return 0;
	}
}

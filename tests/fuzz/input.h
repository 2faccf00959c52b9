/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * input.h - an input is read as a list of steps
 *
 * A byte says which step, further ones its fields. Bytes beyond the end read as 0.
 */
#ifndef FUZZ_INPUT_H
#define FUZZ_INPUT_H

#include "../../kvm-dcm/lib/dcm_context.h"
#include "../framework/expect.h"

struct in {
	const u8 *at;
	const u8 *end;
};

/* A check of the harness's own: what it compares is no news for the fuzzer. */
#define UNTRACED __attribute__((no_sanitize("coverage")))

static inline u32 byte(struct in *in)
{
	return in->at < in->end ? *in->at++ : 0;
}

/* Mostly below @usual, at times a little beyond, at times anything. */
static inline u64 some(struct in *in, u32 usual)
{
	u32 b = byte(in);
	u64 v = 0;

	if (b < 0xf0)
		return b % usual;
	for (u32 i = 0; i < 8; i++)
		v |= (u64)byte(in) << 8 * i;
	return b & 1 ? v : usual + (v & 7);
}

#endif /* FUZZ_INPUT_H */

/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * stream.h - a data connection; the input decides what the donor sends
 *
 * The same inputs for every endpoint that speaks to a donor over a stream: an
 * input posts operations, has the donor say anything, cut anywhere, and what
 * completes is compared with what a naive reader makes of the same bytes.
 */
#ifndef FUZZ_STREAM_H
#define FUZZ_STREAM_H

#include "../../kvm-dcm/transport/transport.h"
#include "input.h"

#define STREAM_BYTES 4096u /* of memory that lies together */

/**
 * struct stream_transport - the transport of the endpoint
 * @open: of a connected socket; @how: a byte of the input's
 * @begin: before each step, with a byte of the input's: what else may happen
 * @memory: make the @data of an operation of @bytes
 * @at: where the byte at a multiple of %STREAM_BYTES is
 * @pass: the clock goes on
 * @whole: how many of the bytes that it has sent are whole messages
 * @looks: it dies of data that nobody asked for as soon as they are there
 */
struct stream_transport {
	struct dcm_endpoint *(*open)(int fd, u32 depth, u32 how);
	void (*begin)(u32 how);
	void *(*memory)(u32 bytes);
	void (*free)(void *data, u32 bytes);
	u8 *(*at)(void *data, u32 offset);
	void (*pass)(u32 ms);
	u64 (*whole)(void);
	bool looks;
};

void stream_run(const struct stream_transport *transport, const u8 *data,
		size_t size);

#endif /* FUZZ_STREAM_H */

/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * gc_request.h - the only reader of virtio-gc requests
 *
 * The host side, which gets requests from a guest, and the worker, which gets
 * them from a host, both read them with this: no other code reads raw bytes.
 */
#ifndef DCM_GC_REQUEST_H
#define DCM_GC_REQUEST_H

#include "gc_layout.h"

/**
 * struct dcm_gc_limits - the limits in the configuration space
 * @features: a bit for each VIRTIO_GC_F_*, negotiated
 */
struct dcm_gc_limits {
	u32 features;
	u32 spaces_max;
	u32 request_max;
	u32 response_max;
};

/**
 * struct dcm_gc_request - a request whose shape is checked
 * @features: as negotiated
 * @body: the command's own struct, or %NULL
 * @entries: @count of them; for TYPES_ADD types, then runs
 * @answer: entries the answer can have
 * @answer_entry: bytes of each
 * @answer_bytes: of the whole answer, at most
 *
 * Pointers are into the bytes that were read.
 */
struct dcm_gc_request {
	u16 command;
	u16 flags;
	u32 space;
	u64 tag;
	u32 epoch;
	u32 deadline_ms;
	u32 features;
	u32 count;
	const void *body;
	const void *entries;
	size_t entries_bytes;
	u32 answer;
	u32 answer_entry;
	size_t answer_bytes;
};

/**
 * dcm_gc_request_read() - check and read a request
 * @buf: the device-readable part in one piece, aligned to 8; it must not
 *	change any more
 * @len: its length
 * @room: of the device-writable part
 * @r: filled in as far as it was read, zero beyond
 *
 * Numbers of regions, places and types are not checked: the space's owner does
 * that.
 *
 * Return: %VIRTIO_GC_OK, %VIRTIO_GC_INVALID or %VIRTIO_GC_UNSUPPORTED.
 */
u32 dcm_gc_request_read(const void *buf, size_t len, size_t room,
			const struct dcm_gc_limits *limits,
			struct dcm_gc_request *r);

/* The layout in a SPACE_CREATE, not checked: see dcm_gc_layout_check(). */
void dcm_gc_request_layout(const struct dcm_gc_request *r,
			   struct dcm_gc_layout *l, u64 *window);

/**
 * dcm_gc_start_check() - check a TRACE_START
 * @l: the space's layout, checked
 * @flags: of TRACE_START
 * @list: @n regions, each with the end of its objects
 *
 * Return: %VIRTIO_GC_OK; %VIRTIO_GC_INVALID; %VIRTIO_GC_LIMIT: no memory for the check.
 */
u32 dcm_gc_start_check(const struct dcm_gc_layout *l, u32 flags,
		       const struct virtio_gc_region *list, u32 n);

/**
 * dcm_gc_cards_check() - check a TRACE_CARDS with BEGIN
 * @l: the space's layout, checked
 * @shift: of its struct virtio_gc_cards
 * @list: @n regions, each a source with the end of its objects, a target, or both
 *
 * Return: as dcm_gc_start_check().
 */
u32 dcm_gc_cards_check(const struct dcm_gc_layout *l, u32 shift,
		       const struct virtio_gc_region *list, u32 n);

/* Whether its entries are ranges of references. */
bool dcm_gc_request_ranges(const struct dcm_gc_request *r);

/* %VIRTIO_GC_OK, or %VIRTIO_GC_INVALID: one is empty or leaves the space. */
u32 dcm_gc_ranges_check(const struct dcm_gc_layout *l,
			const struct virtio_gc_refs *list, u32 n);

/* Set a byte of @hit for each region that has a part of a checked range. */
void dcm_gc_ranges_mark(const struct dcm_gc_layout *l,
			const struct virtio_gc_refs *list, u32 n, u8 *hit);

/* %VIRTIO_GC_OK, %VIRTIO_GC_INVALID or %VIRTIO_GC_LIMIT. */
u32 dcm_gc_layout_check(const struct dcm_gc_layout *l);

#endif /* DCM_GC_REQUEST_H */

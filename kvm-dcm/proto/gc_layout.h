/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * gc_layout.h - the shape of a virtio-gc space, limits of all of them, results
 *
 * The host side of the device, the donors and their GC workers apply the same
 * limits, so a space that one of them accepts is accepted by all.
 */
#ifndef DCM_GC_LAYOUT_H
#define DCM_GC_LAYOUT_H

#include "../../guest-virtio-gc/include/virtio_gc.h"
#include "../lib/dcm_context.h"
#include "wire_format.h"

#define DCM_GC_SPACE_MAX	(1ull << 44)	/* bytes; see work.h */
#define DCM_GC_SPACES_MAX	16u	/* of one session */
#define DCM_GC_REGION_MIN	(64u << 10)
#define DCM_GC_REGION_MAX	(1ull << 31)
#define DCM_GC_TYPES_MAX	(1u << 20)
#define DCM_GC_RUNS_MAX		(1u << 22)
#define DCM_GC_REGIONS_MAX	65536u
#define DCM_GC_THREADS_MAX	64u
#define DCM_GC_BATCH		512u	/* addresses in one message */
#define DCM_GC_SELF_HEAD_MAX	(1u << 20)
#define DCM_GC_CARD_SHIFT_MIN	7u
#define DCM_GC_CARD_SHIFT_MAX	16u	/* no card is in two regions */

/* A status, and the address or reference it concerns. */
struct dcm_gc_result {
	u32 status;
	u64 at;
};

/**
 * struct dcm_gc_layout - a space in host order; struct virtio_gc_space
 * @bytes: a multiple of @region_bytes
 */
struct dcm_gc_layout {
	u64 bytes;
	u64 region_bytes;
	u64 address;
	u64 ref_base;
	u32 type_mask;
	u16 type_offset;
	u8 ref_bytes;
	u8 ref_shift;
	u8 flags;
	u8 type_bytes;
	u8 type_shift;
};

#endif /* DCM_GC_LAYOUT_H */

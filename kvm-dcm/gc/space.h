/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * space.h - the spaces of a virtio-gc window
 *
 * A table of the parts of the window that are heaps, and of the sizes of their regions.
 * It has nothing to do with queues and donors. The caller serialises calls.
 */
#ifndef DCM_GC_SPACE_H
#define DCM_GC_SPACE_H

#include <stdbool.h>

#include "../proto/gc_reply.h"
#include "../proto/gc_request.h"

/**
 * struct dcm_gc_host_space - a space, in host byte order
 * @bytes: its size; 0: there is no such space
 * @epoch: epoch of the last trace whose TRACE_START was answered with OK
 * @barrier: in that trace the runtime reports references that it overwrites
 * @late: why that trace failed to begin after the answer; its @status is
 *	%VIRTIO_GC_OK if it did begin
 */
struct dcm_gc_host_space {
	u64 window;
	u64 bytes;
	struct dcm_gc_layout layout;
	u32 epoch;
	bool barrier;
	struct dcm_gc_done late;
};

/**
 * struct dcm_gc_host_spaces - all spaces of a window
 * @nr: how many exist; may be read without the caller's lock
 */
struct dcm_gc_host_spaces {
	u64 window_bytes;
	u64 region_min;
	u64 region_max;
	u32 regions_max;
	u32 nr;
	struct dcm_gc_host_space space[DCM_GC_SPACES_MAX];
};

/**
 * dcm_gc_host_space_add() - SPACE_CREATE
 * @l: filled in by dcm_gc_request_layout(), as is @window
 *
 * Return: %VIRTIO_GC_OK; or %VIRTIO_GC_INVALID or %VIRTIO_GC_LIMIT, and nothing
 * has changed.
 */
u32 dcm_gc_host_space_add(struct dcm_gc_host_spaces *t, u32 id,
			       const struct dcm_gc_layout *l, u64 window);

/* The space, or %NULL if there is none with that id. */
struct dcm_gc_host_space *dcm_gc_host_space_find(struct dcm_gc_host_spaces *t,
						 u32 id);

void dcm_gc_host_space_drop(struct dcm_gc_host_spaces *t,
			    struct dcm_gc_host_space *p);

#endif /* DCM_GC_SPACE_H */

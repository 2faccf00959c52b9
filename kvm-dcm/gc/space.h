/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * space.h - the spaces of a virtio-gc window
 *
 * Which pieces of the window are heaps, and how big their regions are. Knows
 * nothing of queues and donors. Who calls serialises.
 */
#ifndef DCM_GC_SPACE_H
#define DCM_GC_SPACE_H

#include <stdbool.h>
#include <stdint.h>

#include "../proto/gc_request.h"

#define DCM_GC_HOST_SPACES_MAX 16u

/**
 * struct dcm_gc_host_space - a space in host order, as far as the host has to know
 * @bytes: 0: there is none
 * @epoch: of the last trace that began, as far as the runtime was told
 * @late: why it did not, found out after that was said; its @status is
 *	%VIRTIO_GC_OK otherwise
 */
struct dcm_gc_host_space {
	uint64_t window;
	uint64_t bytes;
	struct dcm_gc_layout layout;
	uint32_t epoch;
	struct virtio_gc_done late;
};

/**
 * struct dcm_gc_host_spaces - all of a window's
 * @nr: how many there are; may be read without the caller's lock
 */
struct dcm_gc_host_spaces {
	uint64_t window_bytes;
	uint64_t region_min;
	uint64_t region_max;
	uint32_t regions_max;
	uint32_t nr;
	struct dcm_gc_host_space piece[DCM_GC_HOST_SPACES_MAX];
};

/**
 * dcm_gc_host_space_add() - SPACE_CREATE
 * @l: as dcm_gc_request_layout() has read it, and @window too
 *
 * Return: %VIRTIO_GC_OK, or %VIRTIO_GC_INVALID or %VIRTIO_GC_LIMIT and nothing
 * has changed.
 */
uint32_t dcm_gc_host_space_add(struct dcm_gc_host_spaces *t, uint32_t id,
			       const struct dcm_gc_layout *l, uint64_t window);

/* The space, or %NULL if there is none of that id. */
struct dcm_gc_host_space *dcm_gc_host_space_find(struct dcm_gc_host_spaces *t,
						 uint32_t id);

void dcm_gc_host_space_drop(struct dcm_gc_host_spaces *t,
			    struct dcm_gc_host_space *p);

#endif /* DCM_GC_SPACE_H */

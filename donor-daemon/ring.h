/* SPDX-License-Identifier: GPL-2.0-or-later */
/* ring.h - asynchronous reads and writes of files, by io_uring */
#ifndef DCM_RING_H
#define DCM_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dcm_ring;

/**
 * dcm_ring_new() - make a ring
 * @ops: most operations under way at a time; the caller must not exceed it
 * @err: a negative errno on failure
 *
 * Return: %NULL on failure.
 */
struct dcm_ring *dcm_ring_new(unsigned int ops, int *err);
void dcm_ring_free(struct dcm_ring *ring);

/* A descriptor that is readable while dcm_ring_next() has a result. */
int dcm_ring_fd(const struct dcm_ring *ring);

/**
 * dcm_ring_add() - read or write at the next dcm_ring_submit()
 * @tag: what dcm_ring_next() returns when it is over; @buf is used until then
 */
void dcm_ring_add(struct dcm_ring *ring, bool write, int fd, void *buf,
		  size_t bytes, uint64_t offset, void *tag);

/* 0: the kernel has all that was added; a negative errno: not yet. */
int dcm_ring_submit(struct dcm_ring *ring);

/**
 * dcm_ring_next() - take the result of an operation that has ended
 * @res: the bytes moved, or a negative errno
 *
 * Return: its tag; %NULL: there is none.
 */
void *dcm_ring_next(struct dcm_ring *ring, int *res);

/* Wait until an operation has ended; may return early. */
void dcm_ring_wait(struct dcm_ring *ring);

#endif /* DCM_RING_H */

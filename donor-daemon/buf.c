// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * buf.c - a buffer of bytes: added at the tail, taken from the head
 *
 * Locking: the caller's.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"

int dcm_buf_room(struct dcm_buf *b, size_t n, size_t max)
{
	size_t used = dcm_buf_used(b);
	size_t cap;
	u8 *p;

	if (b->cap - b->tail >= n)
		return 0;
	if (b->cap - used >= n) {
		memmove(b->p, b->p + b->head, used);
		b->head = 0;
		b->tail = used;
		return 0;
	}
	if (used + n > max)
		return -ENOBUFS;
	for (cap = b->cap ? b->cap : 1024; cap < used + n;)
		cap *= 2;
	p = malloc(cap);
	if (!p)
		return -ENOMEM;
	if (used)
		memcpy(p, b->p + b->head, used);
	free(b->p);
	b->p = p;
	b->head = 0;
	b->tail = used;
	b->cap = cap;
	return 0;
}

void dcm_buf_take(struct dcm_buf *b, size_t n)
{
	b->head += n;
	if (b->head == b->tail)
		b->head = b->tail = 0;
}

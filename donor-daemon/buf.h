/* SPDX-License-Identifier: GPL-2.0-or-later */
/* buf.h - a buffer of bytes: added at the tail, taken from the head */
#ifndef DCM_BUF_H
#define DCM_BUF_H

#include "../kvm-dcm/proto/wire.h"

/**
 * struct dcm_buf - a buffer; all zero is an empty one
 * @p: malloc'ed, @cap bytes; those from @head to @tail are in use
 */
struct dcm_buf {
	u8 *p;
	size_t head;
	size_t tail;
	size_t cap;
};

static inline size_t dcm_buf_used(const struct dcm_buf *b)
{
	return b->tail - b->head;
}

/**
 * dcm_buf_room() - make room at the tail
 * @n: bytes to add
 * @max: the most bytes that may wait in all
 *
 * Return: 0, -ENOBUFS or -ENOMEM.
 */
int dcm_buf_room(struct dcm_buf *b, size_t n, size_t max);

/* Drop the first @n bytes. */
void dcm_buf_take(struct dcm_buf *b, size_t n);

#endif /* DCM_BUF_H */

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * ring.c - asynchronous reads and writes of files, by io_uring
 *
 * All of liburing that the donor uses is here, because its header brings
 * <stdatomic.h>, whose names are also those of lib/dcm_context.h.
 *
 * The ring has an entry for each operation that may be under way, so it is never full;
 * and the kernel has room for twice as many results.
 *
 * Locking: none; one thread uses a ring.
 */
#include <errno.h>
#include <liburing.h>
#include <stdlib.h>

#include "ring.h"

struct dcm_ring {
	struct io_uring uring;
};

struct dcm_ring *dcm_ring_new(unsigned int ops, int *err)
{
	struct dcm_ring *ring = calloc(1, sizeof(*ring));

	*err = -ENOMEM;
	if (!ring)
		return NULL;
	*err = io_uring_queue_init(ops, &ring->uring, 0);
	if (!*err)
		return ring;
	free(ring);
	return NULL;
}

void dcm_ring_free(struct dcm_ring *ring)
{
	io_uring_queue_exit(&ring->uring);
	free(ring);
}

int dcm_ring_fd(const struct dcm_ring *ring)
{
	return ring->uring.ring_fd;
}

void dcm_ring_add(struct dcm_ring *ring, bool write, int fd, void *buf,
		  size_t bytes, uint64_t offset, void *tag)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ring->uring);

	if (write)
		io_uring_prep_write(sqe, fd, buf, (unsigned int)bytes, offset);
	else
		io_uring_prep_read(sqe, fd, buf, (unsigned int)bytes, offset);
	io_uring_sqe_set_data(sqe, tag);
}

int dcm_ring_submit(struct dcm_ring *ring)
{
	int ret = 0;

	while (ret >= 0 && io_uring_sq_ready(&ring->uring)) {
		ret = io_uring_submit(&ring->uring);
		if (!ret)
			ret = -EAGAIN;
	}
	return ret < 0 ? ret : 0;
}

void *dcm_ring_next(struct dcm_ring *ring, int *res)
{
	struct io_uring_cqe *cqe;
	void *tag;

	if (io_uring_peek_cqe(&ring->uring, &cqe))
		return NULL;
	*res = cqe->res;
	tag = io_uring_cqe_get_data(cqe);
	io_uring_cqe_seen(&ring->uring, cqe);
	return tag;
}

void dcm_ring_wait(struct dcm_ring *ring)
{
	struct io_uring_cqe *cqe;

	io_uring_wait_cqe(&ring->uring, &cqe);
}

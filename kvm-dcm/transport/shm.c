// SPDX-License-Identifier: GPL-2.0-only
/*
 * shm.c - slabs of a donor on the same host
 *
 * A slab is a memfd that the donor made, sealed against growing and never
 * mapped there. READ costs nothing: it returns the address in the client's
 * read-only mapping, and the pager passes it to UFFDIO_COPY. WRITE is one
 * pwrite(). A slab that is not mapped is read by pread(). All operations complete
 * inside post(); poll() only returns them.
 *
 * This process never reads the mapping itself. The donor may revoke a slab by
 * ftruncate(fd, 0) at any instant. Then a load would raise SIGBUS; the kernel's copy
 * (UFFDIO_COPY) fails with EFAULT, and pwrite(), past the end of a file that may not
 * grow, with EPERM. Neither can reach another VM's bytes: the donor never uses a memfd
 * for a second owner.
 *
 * The papers have no such transport. A host uses it for memory of a NUMA node,
 * a CXL device or a donor VM that a local daemon lends, and other transports
 * are measured against it.
 *
 * Locking: none, one lane uses an endpoint. Invariant: an operation taken by
 * post() is in the list at @done until poll() returns it.
 */
#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../lib/clock.h"
#include "shm.h"

#define SHM_DEPTH 256u

struct shm_endpoint {
	struct dcm_endpoint ep;
	u32 depth;
	struct dcm_done done;
};

static inline struct shm_endpoint *to_shm(struct dcm_endpoint *ep)
{
	return container_of(ep, struct shm_endpoint, ep);
}

static struct dcm_endpoint *shm_open_ep(const void *arg, int *err)
{
	const struct dcm_shm_args *a = arg;
	struct shm_endpoint *s;

	s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (s == MAP_FAILED) {
		*err = -ENOMEM;
		return NULL;
	}
	s->ep.ops = &dcm_transport_shm;
	s->depth = a && a->depth ? a->depth : SHM_DEPTH;
	dcm_done_init(&s->done);
	*err = 0;
	return &s->ep;
}

static void shm_close_ep(struct dcm_endpoint *ep)
{
	munmap(to_shm(ep), sizeof(struct shm_endpoint));
}

/*
 * Is the slab lost? That is told by the size of its file, not by the error of a
 * failed write: EPERM means a truncated file, but ENOSPC and ENOMEM
 * mean that this host has no page now, EFBIG a limit of this process, EIO a
 * page that can't be swapped in. The bytes of such a write are still here, and
 * the pager writes them again.
 */
static bool shm_gone(const struct dcm_slab_ref *slab)
{
	struct stat st;

	return fstat(slab->fd, &st) || (u64)st.st_size < slab->bytes;
}

/* Copy all bytes to the slab's file, or from it. */
static int shm_copy(const struct dcm_io *io)
{
	char *p = io->data;
	u64 off = io->offset;
	size_t left = io->bytes;
	ssize_t n;

	while (left) {
		n = io->op == DCM_IO_WRITE ?
			    pwrite(io->slab->fd, p, left, (off_t)off) :
			    pread(io->slab->fd, p, left, (off_t)off);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return shm_gone(io->slab) ? -ESTALE : -EIO;
		p += n;
		off += (u64)n;
		left -= (size_t)n;
	}
	return 0;
}

static int shm_post(struct dcm_endpoint *ep, struct dcm_io *io)
{
	struct shm_endpoint *s = to_shm(ep);
	const struct dcm_slab_ref *slab = io->slab;
	int status = 0;

	if (io->bytes > slab->bytes || io->offset > slab->bytes - io->bytes)
		return -ERANGE;
	if (s->done.nr >= s->depth)
		return -EAGAIN;
	io->posted_ns = dcm_clock_ns();
	if (io->op == DCM_IO_READ && slab->map)
		io->data = (char *)slab->map + io->offset;
	else
		status = shm_copy(io);
	dcm_done_add(&s->done, io, status);
	return 0;
}

static void shm_flush(struct dcm_endpoint *ep)
{
	(void)ep;
}

static int shm_poll(struct dcm_endpoint *ep, struct dcm_io **done, int max)
{
	return dcm_done_take(&to_shm(ep)->done, done, max);
}

static int shm_wait_fd(struct dcm_endpoint *ep, short *events)
{
	(void)ep;
	*events = 0;
	return -1;
}

static u32 shm_in_flight(struct dcm_endpoint *ep)
{
	return to_shm(ep)->done.nr;
}

static bool shm_dead(struct dcm_endpoint *ep)
{
	/* an endpoint of shm never dies; operations on a slab that is gone fail */
	(void)ep;
	return false;
}

const struct dcm_transport_ops dcm_transport_shm = {
	.name = "shm",
	.caps = DCM_TR_ORDERED | DCM_TR_DIRECT | DCM_TR_INLINE,
	.open = shm_open_ep,
	.close = shm_close_ep,
	.post = shm_post,
	.flush = shm_flush,
	.poll = shm_poll,
	.wait_fd = shm_wait_fd,
	.in_flight = shm_in_flight,
	.dead = shm_dead,
};

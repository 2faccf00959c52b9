// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * slab_map.c - map shm slabs, populate the mappings, unmap them
 *
 * A memfd is checked before it is mapped: it must have the slab's size, seals
 * against growing and against other seals, and be writable. The transport
 * handles that the donor may shrink it at any time.
 *
 * A mapping is populated in small steps, between the client thread's other
 * work, and only if all of the memfd is allocated: a page that populating allocates
 * would be charged to this process.
 *
 * Locking: none, only the client thread uses it.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "client_int.h"

#define POPULATE_STEP (2u << 20)

static const char *memfd_check(int fd, u64 bytes)
{
	int seals, flags;
	struct stat st;

	seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0)
		return "what it sent is no memfd";
	if (!(seals & F_SEAL_GROW) || !(seals & F_SEAL_SEAL))
		return "its memfd is not sealed against growing";
	if (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE))
		return "its memfd is sealed against writing";
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || (u64)st.st_size != bytes)
		return "its memfd has another size than the slab";
	flags = fcntl(fd, F_GETFL);
	if (flags < 0 || (flags & O_ACCMODE) != O_RDWR)
		return "its memfd can't be written";
	return NULL;
}

/* Check an shm slab's memfd; map it unless @no_map. On success the slab owns @fd. */
bool client_slab_map(struct client_donor *d, struct dcm_client_slab *s, int fd)
{
	const char *why = memfd_check(fd, s->ref.bytes);
	struct stat st;
	void *p;

	if (why) {
		dcm_conn_fail(&d->conn, "%s", why);
		return false;
	}
	s->populated = s->ref.bytes;
	if (d->client->no_map) {
		s->ref.fd = fd;
		return true;
	}
	p = mmap(NULL, s->ref.bytes, PROT_READ, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED) {
		dcm_log(DCM_LOG_ERR,
			"donor %s (%s): can't map a slab of extent %u: %s: the slab is given back",
			d->name, d->address, s->extent, strerror(errno));
		return false;
	}
	madvise(p, s->ref.bytes, MADV_DONTFORK);
	madvise(p, s->ref.bytes, MADV_DONTDUMP);
	s->ref.map = p;
	s->ref.fd = fd;
	/* only allocated memory: population must not allocate any */
	if (d->client->populate && !fstat(fd, &st) &&
	    (u64)st.st_blocks * 512 >= s->ref.bytes) {
		s->populated = 0;
		d->client->has_populate = true;
	}
	return true;
}

/* Unmap an shm slab, on which no operation is in flight, and close its memfd. */
void client_slab_unmap(struct dcm_client_slab *s)
{
	if (s->ref.map)
		munmap(s->ref.map, s->ref.bytes);
	if (s->ref.fd >= 0)
		close(s->ref.fd);
	s->ref.map = NULL;
	s->ref.fd = -1;
}

/* Populate some pages of one slab's mapping. True: there is more to do. */
bool client_slabs_populate(struct dcm_client *client)
{
	struct dcm_client_slab *s;
	u64 len;

	if (!client->has_populate)
		return false;
	for (s = client->slabs; s; s = s->next) {
		if (!s->ref.map || s->populated >= s->ref.bytes || s->dead ||
		    s->state != SLAB_ATTACHED)
			continue;
		len = min((u64)POPULATE_STEP, s->ref.bytes - s->populated);
		if (madvise((char *)s->ref.map + s->populated, len,
			    MADV_POPULATE_READ))
			s->populated = s->ref.bytes; /* give up */
		else
			s->populated += len;
		return true;
	}
	client->has_populate = false;
	return false;
}

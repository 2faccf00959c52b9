// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * export.c - ways to make a slab reachable for its host
 *
 * shm: the memfd is sized, sealed against growing and against more seals, and
 * sent. Shrinking stays possible on purpose: revoking is ftruncate(0), after
 * which the old owner's mappings give SIGBUS and its descriptor reads nothing;
 * the owner can shrink or punch its own slab too, which hurts no other host.
 * The donor never maps it, so no client can make the donor fault.
 *
 * tcp: the slab is mapped here and no other process has a descriptor of it, so
 * none can truncate it under the mapping.
 *
 * verbs: rdma_pd.c.
 *
 * file: as tcp, but data workers read and write the file (data_file.c), and
 * closing it frees its space. Not even a host on this machine gets its descriptor: a
 * file has no seals, so its owner could grow it, and fill the disk.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "log_limit.h"
#include "pool.h"

void dcm_export_truncate(struct dcm_slab *slab)
{
	if (ftruncate(slab->fd, 0))
		dcm_err("slab %llu can't be truncated: its memory stays until every holder closes it",
			(unsigned long long)slab->id);
}

#define SEAL_EXEC 0x20 /* F_SEAL_EXEC, since Linux 6.3 */
#define SHM_SEALS (F_SEAL_GROW | F_SEAL_SEAL)

static int shm_publish(struct dcm_slab *slab)
{
	if (fcntl(slab->fd, F_ADD_SEALS, SHM_SEALS))
		return -errno;
	return 0;
}

static void shm_revoke(struct dcm_slab *slab)
{
	dcm_export_truncate(slab);
}

static int tcp_publish(struct dcm_slab *slab)
{
	slab->map = mmap(NULL, slab->bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
			 slab->fd, 0);
	if (slab->map == MAP_FAILED) {
		slab->map = NULL;
		return -errno;
	}
	/* a tenant's bytes must not get into a core dump */
	madvise(slab->map, slab->bytes, MADV_DONTDUMP);
	return 0;
}

static void tcp_revoke(struct dcm_slab *slab)
{
	if (slab->map)
		munmap(slab->map, slab->bytes);
	slab->map = NULL;
	dcm_export_truncate(slab);
}

static const struct dcm_export_ops export_shm = {
	.transport = DCM_WT_SHM,
	.name = "shm",
	.pass_fd = true,
	.unseen = true,
	.publish = shm_publish,
	.revoke = shm_revoke,
};

static const struct dcm_export_ops export_tcp = {
	.transport = DCM_WT_TCP,
	.name = "tcp",
	.served = true,
	.publish = tcp_publish,
	.revoke = tcp_revoke,
};

static int file_publish(struct dcm_slab *slab)
{
	(void)slab;
	return 0;
}

static void file_revoke(struct dcm_slab *slab)
{
	(void)slab;
}

static const struct dcm_export_ops export_file = {
	.transport = DCM_WT_TCP,
	.name = "file",
	.served = true,
	.publish = file_publish,
	.revoke = file_revoke,
};

const struct dcm_export_ops *dcm_export_choose(u32 transports, bool is_unix,
					       bool verbs, bool file)
{
	if (file)
		return transports & DCM_WT_TCP ? &export_file : NULL;
	if ((transports & DCM_WT_SHM) && is_unix)
		return &export_shm;
	if ((transports & DCM_WT_VERBS) && verbs)
		return &dcm_export_verbs;
	if (transports & DCM_WT_TCP)
		return &export_tcp;
	return NULL;
}

/* Is it a nameless file, open for direct I/O, on the file system of new slabs? */
static bool file_good(const struct dcm_slab *slab)
{
	int flags = fcntl(slab->fd, F_GETFL);
	struct stat dir, file;

	return flags >= 0 && (flags & O_DIRECT) &&
	       !fstat(slab->pool->dir, &dir) && !fstat(slab->fd, &file) &&
	       file.st_dev == dir.st_dev && !file.st_nlink;
}

const struct dcm_export_ops *dcm_export_again(struct dcm_slab *slab,
					      u32 transport)
{
	int seals = fcntl(slab->fd, F_GET_SEALS);

	if (slab->pool->dir >= 0)
		return transport == DCM_WT_TCP && file_good(slab) ?
			       &export_file :
			       NULL;
	if (seals < 0)
		return NULL;
	/* the kernel adds this seal if vm.memfd_noexec = 1 */
	seals &= ~SEAL_EXEC;
	if (transport == DCM_WT_SHM)
		return seals == SHM_SEALS ? &export_shm : NULL;
	/* without seals it is tcp's; with seals a host has it, and could truncate it */
	return !seals && !export_tcp.publish(slab) ? &export_tcp : NULL;
}

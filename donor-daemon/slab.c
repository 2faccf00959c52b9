// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * slab.c - one slab: its memory, its id, and the references to it
 *
 * A slab is a memfd of its own and has one owner in its life, so the kernel zeroes
 * memory before it is used again. With medium = file it is a file (file.c); then all
 * of this is true as well, with the disk's free space in place of memory.
 *
 * All pages of a slab are allocated before it is lent. If a page were allocated at its
 * first access, there might be none then (vm.overcommit_memory = 2, no free huge page),
 * and the access would get SIGBUS; for a READ or WRITE that is this process. And the
 * page would be charged to the memory cgroup of the process that accesses it first, for
 * shm a VM's. Memory cgroups do not refuse allocations but invoke the OOM killer, so
 * filling stops while half the head room is still free.
 *
 * Making and releasing may take long and are jobs in libuv's threads; only its
 * job uses a slab meanwhile. Jobs end in dcm_pool_slab_made() and
 * dcm_pool_slab_dropped().
 *
 * Locking: everything belongs to the event loop, except that workers look up
 * slabs (a shard's mutex protects table entries) and drop references (the last
 * one puts the slab on @dead under @dead_lock and wakes the loop).
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "file.h"
#include "pool.h"

#define INDEX_BITS	20u
#define INDEX_MAX	(1u << INDEX_BITS)
#define FILL_BYTES	(64ull << 20)

struct slab_job {
	uv_work_t work;
	struct dcm_pool *pool;
	struct dcm_slab *slab;
	u64 keep; /* bytes that must stay free */
	int error;
};

/* Make a sized memfd or file; slab_fill() allocates its pages. */
static int slab_open(const struct dcm_pool *pool)
{
	unsigned int flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	int fd, err;

	if (pool->huge_bytes)
		flags |= MFD_HUGETLB |
			 (unsigned int)__builtin_ctzll(pool->huge_bytes)
				 << MFD_HUGE_SHIFT;
	if (pool->dir >= 0) {
		fd = dcm_file_new(pool->dir);
	} else {
		fd = memfd_create("dcm-slab", flags);
		fd = fd < 0 ? -errno : fd;
	}
	if (fd < 0)
		return fd;
	if (ftruncate(fd, (off_t)pool->slab_bytes)) {
		err = -errno;
		close(fd);
		return err;
	}
	return fd;
}

static pthread_mutex_t *table_shard(struct dcm_pool *pool, u64 id)
{
	return &pool->shards[id % DCM_POOL_SHARDS];
}

static void table_set(struct dcm_pool *pool, u64 id, struct dcm_slab *slab)
{
	pthread_mutex_lock(table_shard(pool, id));
	pool->table[id % INDEX_MAX] = slab;
	pthread_mutex_unlock(table_shard(pool, id));
}

/* Make a slab's id of its serial. No serial is used twice, so no id is. */
u64 dcm_slab_id(u64 serial)
{
	return (serial / INDEX_MAX + 1) << INDEX_BITS | serial % INDEX_MAX;
}

/*
 * Make a slab's record, and put it into the table; lookups fail until dcm_slab_lend().
 */
static struct dcm_slab *slab_add(struct dcm_pool *pool, u64 serial)
{
	struct dcm_slab *slab = calloc(1, sizeof(*slab));

	if (!slab)
		return NULL;
	slab->id = dcm_slab_id(serial);
	slab->serial = serial;
	slab->bytes = pool->slab_bytes;
	slab->fd = -1;
	slab->pool = pool;
	slab->state = DCM_SLAB_SPARE;
	slab->refs = 1;
	dcm_list_init(&slab->node);
	dcm_list_init(&slab->session_node);
	dcm_list_init(&slab->dead_node);
	table_set(pool, slab->id, slab);
	return slab;
}

static struct dcm_slab *slab_new(struct dcm_pool *pool)
{
	u64 tries;

	for (tries = 0; tries < INDEX_MAX; tries++)
		if (!pool->table[++pool->serial % INDEX_MAX])
			return slab_add(pool, pool->serial);
	return NULL;
}

struct dcm_slab *dcm_slab_adopt(struct dcm_pool *pool, u64 serial, int fd)
{
	struct dcm_slab *slab;

	if (pool->table[serial % INDEX_MAX])
		return NULL;
	slab = slab_add(pool, serial);
	if (slab)
		slab->fd = fd;
	return slab;
}

/* Free a slab that never got its memory. */
static void slab_abandon(struct dcm_pool *pool, struct dcm_slab *slab)
{
	if (slab)
		table_set(pool, slab->id, NULL);
	free(slab);
}

/* Would enough bytes stay free after @n more are allocated? */
static bool slab_fits(const struct slab_job *job, u64 n)
{
	struct dcm_hostmem hm;

	/* free huge pages are for slabs only, and taking them is safe */
	if (job->pool->huge_bytes || dcm_pool_space(job->pool, &hm))
		return true;
	return hm.free >= n && hm.free - n >= job->keep;
}

static int slab_fill(const struct slab_job *job, int fd)
{
	u64 bytes = job->pool->slab_bytes, at = 0, n;

	while (at < bytes) {
		n = bytes - at < FILL_BYTES ? bytes - at : FILL_BYTES;
		if (!slab_fits(job, n))
			return job->pool->dir >= 0 ? -ENOSPC : -ENOMEM;
		if (!fallocate(fd, 0, (off_t)at, (off_t)n))
			at += n;
		else if (errno != EINTR)
			return -errno;
	}
	return 0;
}

int dcm_slab_probe(const struct dcm_pool *pool)
{
	int fd = slab_open(pool);

	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

static void slab_make(uv_work_t *work)
{
	struct slab_job *job = work->data;
	int fd = slab_open(job->pool);

	if (fd < 0) {
		job->error = fd;
		return;
	}
	job->error = slab_fill(job, fd);
	if (job->error)
		close(fd);
	else
		job->slab->fd = fd;
}

static void slab_made(uv_work_t *work, int status)
{
	struct slab_job *job = work->data;
	struct dcm_pool *pool = job->pool;
	struct dcm_slab *slab = job->slab;
	int error = status < 0 ? status : job->error;

	free(job);
	if (error) {
		slab_abandon(pool, slab);
		slab = NULL;
	}
	dcm_pool_slab_made(pool, slab, error);
}

bool dcm_slab_make(struct dcm_pool *pool)
{
	struct slab_job *job = calloc(1, sizeof(*job));

	if (!job)
		return false;
	job->work.data = job;
	job->pool = pool;
	job->keep = pool->head_room / 2;
	job->slab = slab_new(pool);
	if (!job->slab ||
	    uv_queue_work(pool->loop, &job->work, slab_make, slab_made)) {
		slab_abandon(pool, job->slab);
		free(job);
		return false;
	}
	return true;
}

static void slab_drop(uv_work_t *work)
{
	struct slab_job *job = work->data;
	struct dcm_slab *slab = job->slab;

	if (slab->export)
		slab->export->revoke(slab);
	close(slab->fd);
}

static void slab_dropped(uv_work_t *work, int status)
{
	struct slab_job *job = work->data;
	struct dcm_slab *slab = job->slab;

	(void)status;
	free(job);
	dcm_pool_slab_dropped(slab->pool, slab);
	free(slab);
}

/* No reference to the slab is left: free it in a job. */
static void slab_drop_start(struct dcm_pool *pool, struct dcm_slab *slab)
{
	struct slab_job *job = calloc(1, sizeof(*job));

	if (!job) {
		/* no memory for the job: try again at the next wake-up */
		pthread_mutex_lock(&pool->dead_lock);
		dcm_list_add_tail(&slab->dead_node, &pool->dead);
		pthread_mutex_unlock(&pool->dead_lock);
		return;
	}
	job->work.data = job;
	job->pool = pool;
	job->slab = slab;
	pool->jobs++;
	uv_queue_work(pool->loop, &job->work, slab_drop, slab_dropped);
}

void dcm_slab_reap(struct dcm_pool *pool)
{
	struct dcm_list dead;
	struct dcm_slab *slab, *tmp;

	dcm_list_init(&dead);
	pthread_mutex_lock(&pool->dead_lock);
	dcm_list_for_each_safe(slab, tmp, &pool->dead, struct dcm_slab,
			       dead_node) {
		dcm_list_del(&slab->dead_node);
		dcm_list_add_tail(&slab->dead_node, &dead);
	}
	pthread_mutex_unlock(&pool->dead_lock);
	dcm_list_for_each_safe(slab, tmp, &dead, struct dcm_slab, dead_node) {
		dcm_list_del(&slab->dead_node);
		slab_drop_start(pool, slab);
	}
}

static void slab_wake(uv_async_t *async)
{
	dcm_slab_reap(async->data);
}

struct dcm_slab *dcm_slab_find(struct dcm_pool *pool, u64 id,
			       const struct dcm_session *session)
{
	struct dcm_slab *slab = pool->table[id % INDEX_MAX];

	if (!slab || slab->id != id || slab->session != session)
		return NULL;
	return slab;
}

struct dcm_slab *dcm_slab_get(struct dcm_pool *pool, u64 id,
			      const struct dcm_session *session)
{
	struct dcm_slab *slab;

	pthread_mutex_lock(table_shard(pool, id));
	slab = dcm_slab_find(pool, id, session);
	if (slab && slab->export->served)
		__atomic_fetch_add(&slab->refs, 1, __ATOMIC_RELAXED);
	else
		slab = NULL;
	pthread_mutex_unlock(table_shard(pool, id));
	return slab;
}

void dcm_slab_put(struct dcm_slab *slab)
{
	struct dcm_pool *pool = slab->pool;

	if (__atomic_sub_fetch(&slab->refs, 1, __ATOMIC_ACQ_REL))
		return;
	pthread_mutex_lock(&pool->dead_lock);
	dcm_list_add_tail(&slab->dead_node, &pool->dead);
	pthread_mutex_unlock(&pool->dead_lock);
	uv_async_send(&pool->async);
}

void dcm_slab_lend(struct dcm_slab *slab, struct dcm_session *session,
		   const struct dcm_export_ops *export)
{
	pthread_mutex_lock(table_shard(slab->pool, slab->id));
	slab->export = export;
	slab->session = session;
	pthread_mutex_unlock(table_shard(slab->pool, slab->id));
}

void dcm_slab_hide(struct dcm_slab *slab)
{
	struct dcm_pool *pool = slab->pool;

	pthread_mutex_lock(table_shard(pool, slab->id));
	pool->table[slab->id % INDEX_MAX] = NULL;
	slab->session = NULL;
	pthread_mutex_unlock(table_shard(pool, slab->id));
	dcm_slab_put(slab);
}

int dcm_slab_table_init(struct dcm_pool *pool)
{
	pool->table = calloc(INDEX_MAX, sizeof(*pool->table));
	if (!pool->table)
		return -ENOMEM;
	dcm_list_init(&pool->dead);
	pthread_mutex_init(&pool->dead_lock, NULL);
	for (u32 i = 0; i < DCM_POOL_SHARDS; i++)
		pthread_mutex_init(&pool->shards[i], NULL);
	pool->async.data = pool;
	return uv_async_init(pool->loop, &pool->async, slab_wake);
}

void dcm_slab_table_free(struct dcm_pool *pool)
{
	if (!pool->table)
		return;
	free(pool->table);
	for (u32 i = 0; i < DCM_POOL_SHARDS; i++)
		pthread_mutex_destroy(&pool->shards[i]);
	pthread_mutex_destroy(&pool->dead_lock);
}

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * pool.c - the slabs: how much memory is lent, and how much may be
 *
 * infiniswap-nsdi17, 5.1, with these differences:
 *  - The EWMA is over what would be free without any slab (total minus the use
 *    of all others). The donor's slabs are added afterwards and exactly, so a
 *    slab given back counts at once and nothing is evicted twice.
 *  - Only @spare_wanted slabs are pre-allocated, not all memory above the head
 *    room: other donors and the page cache need memory too.
 *  - A slab is a memfd of its own and has one owner in its life. So it is
 *    the kernel that zeroes memory before reuse.
 *
 * A slab has all its pages before it is lent, and a MAP that finds no spare slab
 * waits for one to be filled. A page allocated only at its first access may not
 * be available then (vm.overcommit_memory = 2, no free huge page), and the
 * access gets SIGBUS, for a READ or WRITE in this process. And it would be
 * charged to the memory cgroup of the first process, for shm a VM's. Memory
 * cgroups do not refuse but invoke the OOM killer, so filling stops while half
 * the head room is still free.
 *
 * A lent slab counts in full from the moment it is mapped: promised memory
 * can't be promised again. So does the memory that a GC worker may take: that
 * is no part of the capacity, but of what the head room leaves.
 *
 * Locking: everything belongs to the event loop, except that workers look up
 * slabs (a shard's mutex protects table entries) and drop references (the last
 * one puts the slab on @dead under @dead_lock and wakes the loop). Making and
 * releasing may take long and are jobs in libuv's threads; only its job uses a
 * slab meanwhile.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hostmem.h"
#include "log.h"
#include "pool.h"

#define BETA		0.2	/* of the host's memory */
#define ALPHA		0.2	/* of a slab's activity */
#define INDEX_BITS	20u
#define INDEX_MAX	(1u << INDEX_BITS)
#define FILL_CHUNK	(64ull << 20)
#define RETRY_MS	10000u

struct pool_job {
	uv_work_t work;
	struct dcm_pool *pool;
	struct dcm_slab *slab;
	u64 keep; /* bytes that stay free */
	int error;
};

static u64 pool_lent(const struct dcm_pool *pool)
{
	return (u64)(pool->nr_mapped + pool->nr_evicting + pool->nr_releasing) *
	       pool->slab_bytes;
}

/* Make a sized memfd; slab_fill() allocates its pages. */
static int slab_open(const struct dcm_pool *pool)
{
	unsigned int flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	int fd, err;

	if (pool->huge_bytes)
		flags |= MFD_HUGETLB |
			 (unsigned int)__builtin_ctzll(pool->huge_bytes)
				 << MFD_HUGE_SHIFT;
	fd = memfd_create("dcm-slab", flags);
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)pool->slab_bytes)) {
		err = -errno;
		close(fd);
		return err;
	}
	return fd;
}

static pthread_mutex_t *pool_shard(struct dcm_pool *pool, u64 id)
{
	return &pool->shards[id % DCM_POOL_SHARDS];
}

static void pool_table_set(struct dcm_pool *pool, u64 id, struct dcm_slab *slab)
{
	pthread_mutex_lock(pool_shard(pool, id));
	pool->table[id % INDEX_MAX] = slab;
	pthread_mutex_unlock(pool_shard(pool, id));
}

/* It is in the table from here on, but lookups fail until it is published. */
static struct dcm_slab *slab_new(struct dcm_pool *pool)
{
	struct dcm_slab *slab;
	u32 index;
	u64 tries;

	for (tries = 0; tries < INDEX_MAX; tries++) {
		index = (u32)(++pool->serial % INDEX_MAX);
		if (!pool->table[index])
			break;
	}
	if (tries == INDEX_MAX)
		return NULL;
	slab = calloc(1, sizeof(*slab));
	if (!slab)
		return NULL;
	/* serial never repeats a value, so neither does the id */
	slab->id = (pool->serial / INDEX_MAX + 1) << INDEX_BITS | index;
	slab->bytes = pool->slab_bytes;
	slab->fd = -1;
	slab->pool = pool;
	slab->state = DCM_SLAB_SPARE;
	slab->refs = 1;
	dcm_list_init(&slab->node);
	dcm_list_init(&slab->session_node);
	dcm_list_init(&slab->dead_node);
	pool_table_set(pool, slab->id, slab);
	return slab;
}

/* Free a slab that never got its memory. */
static void slab_abandon(struct dcm_pool *pool, struct dcm_slab *slab)
{
	if (slab)
		pool_table_set(pool, slab->id, NULL);
	free(slab);
}

/* Whether enough bytes would stay free after @n more. */
static bool slab_fits(const struct pool_job *job, u64 n)
{
	struct dcm_hostmem hm;

	/* free huge pages are for slabs only, and taking them is safe */
	if (job->pool->huge_bytes || dcm_hostmem_read("", 0, &hm))
		return true;
	return hm.free >= n && hm.free - n >= job->keep;
}

static int slab_fill(const struct pool_job *job, int fd)
{
	u64 bytes = job->pool->slab_bytes, at = 0, n;

	while (at < bytes) {
		n = bytes - at < FILL_CHUNK ? bytes - at : FILL_CHUNK;
		if (!slab_fits(job, n))
			return -ENOMEM;
		if (!fallocate(fd, 0, (off_t)at, (off_t)n))
			at += n;
		else if (errno != EINTR)
			return -errno;
	}
	return 0;
}

static void slab_make(uv_work_t *work)
{
	struct pool_job *job = work->data;
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

/* Take the MAP that is next off the line; %NULL: none waits. */
static struct dcm_pool_want *want_next(struct dcm_pool *pool)
{
	struct dcm_fair_entry *e = dcm_fair_take(&pool->wants);
	struct dcm_flow *flow;

	if (!e)
		return NULL;
	flow = e->flow;
	pool->nr_wants--;
	dcm_fair_charge(&pool->wants, flow, 1);
	dcm_fair_done(&pool->wants, flow);
	return dcm_list_entry(e, struct dcm_pool_want, turn);
}

/* Refuse those that wait now; a refused host may ask again at once. */
static void wants_refuse(struct dcm_pool *pool)
{
	struct dcm_pool_want *want;

	for (u32 nr = pool->nr_wants; nr; nr--) {
		want = want_next(pool);
		if (!want)
			break;
		want->fn(want, NULL);
	}
}

static void slab_made(uv_work_t *work, int status)
{
	struct pool_job *job = work->data;
	struct dcm_pool *pool = job->pool;
	struct dcm_slab *slab = job->slab;
	struct dcm_pool_want *want;
	int error = status < 0 ? status : job->error;

	free(job);
	pool->jobs--;
	pool->creating = false;
	if (error) {
		slab_abandon(pool, slab);
		pool->failed_total++;
		pool->retry_at = uv_now(pool->loop) + RETRY_MS;
		dcm_log_limited(
			DCM_LOG_WARNING,
				"no memory for a slab of %llu MiB%s: %s; hosts that waited for one are refused. If memory seems free, look at memory cgroups, vm.overcommit_memory and head-room",
				(unsigned long long)(pool->slab_bytes >> 20),
				pool->huge_bytes ? " of huge pages" : "",
				strerror(-error));
		wants_refuse(pool);
		return;
	}
	pool->made_total++;
	slab->backed = slab->bytes;
	dcm_list_add_tail(&slab->node, &pool->slabs);
	pool->nr_spare++;
	want = want_next(pool);
	if (want) {
		u32 ws;

		want->fn(want, dcm_pool_take(pool, NULL, &ws));
	}
	dcm_pool_balance(pool);
}

static void slab_make_start(struct dcm_pool *pool)
{
	struct pool_job *job;

	if (pool->creating || pool->stopping)
		return;
	job = calloc(1, sizeof(*job));
	if (!job)
		return;
	job->work.data = job;
	job->pool = pool;
	job->keep = pool->head_room / 2;
	job->slab = slab_new(pool);
	if (!job->slab ||
	    uv_queue_work(pool->loop, &job->work, slab_make, slab_made)) {
		slab_abandon(pool, job->slab);
		free(job);
		return;
	}
	pool->creating = true;
	pool->jobs++;
}

static void slab_drop(uv_work_t *work)
{
	struct pool_job *job = work->data;
	struct dcm_slab *slab = job->slab;

	if (slab->export)
		slab->export->revoke(slab);
	close(slab->fd);
}

static void slab_dropped(uv_work_t *work, int status)
{
	struct pool_job *job = work->data;
	struct dcm_pool *pool = job->pool;
	struct dcm_slab *slab = job->slab;

	(void)status;
	free(job);
	pool->jobs--;
	pool->nr_releasing--;
	pool->released_total++;
	pool->done(pool->done_arg, slab);
	free(slab);
}

/* No reference to the slab is left: free it in a job. */
static void slab_drop_start(struct dcm_pool *pool, struct dcm_slab *slab)
{
	struct pool_job *job = calloc(1, sizeof(*job));

	if (!job) {
		/* try again at the next wake-up: it must be revoked */
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

static void pool_reap(struct dcm_pool *pool)
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

static void pool_wake(uv_async_t *async)
{
	pool_reap(async->data);
}

struct dcm_slab *dcm_pool_find(struct dcm_pool *pool, u64 id,
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

	pthread_mutex_lock(pool_shard(pool, id));
	slab = dcm_pool_find(pool, id, session);
	if (slab && slab->export->served)
		__atomic_fetch_add(&slab->refs, 1, __ATOMIC_RELAXED);
	else
		slab = NULL;
	pthread_mutex_unlock(pool_shard(pool, id));
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

void dcm_pool_lend(struct dcm_pool *pool, struct dcm_slab *slab,
		   struct dcm_session *session,
		   const struct dcm_export_ops *export)
{
	pthread_mutex_lock(pool_shard(pool, slab->id));
	slab->export = export;
	slab->session = session;
	pthread_mutex_unlock(pool_shard(pool, slab->id));
}

void dcm_pool_release(struct dcm_pool *pool, struct dcm_slab *slab)
{
	u32 index = (u32)(slab->id % INDEX_MAX);

	switch (slab->state) {
	case DCM_SLAB_SPARE:
		pool->nr_spare--;
		break;
	case DCM_SLAB_MAPPED:
		pool->nr_mapped--;
		break;
	case DCM_SLAB_EVICTING:
		pool->nr_evicting--;
		break;
	case DCM_SLAB_RELEASING:
		return;
	}
	pool->nr_releasing++;
	slab->state = DCM_SLAB_RELEASING;
	dcm_list_del(&slab->node);
	dcm_list_del(&slab->session_node);
	pthread_mutex_lock(pool_shard(pool, slab->id));
	pool->table[index] = NULL;
	slab->session = NULL;
	pthread_mutex_unlock(pool_shard(pool, slab->id));
	dcm_slab_put(slab);
}

u64 dcm_pool_free_slabs(const struct dcm_pool *pool)
{
	u64 lent = pool_lent(pool);

	return lent < pool->allowed ?
		       (pool->allowed - lent) / pool->slab_bytes :
		       0;
}

u32 dcm_pool_excess_slabs(const struct dcm_pool *pool)
{
	u64 kept = (u64)pool->nr_mapped * pool->slab_bytes;

	if (kept <= pool->allowed)
		return 0;
	return (u32)((kept - pool->allowed + pool->slab_bytes - 1) /
		     pool->slab_bytes);
}

void dcm_pool_balance(struct dcm_pool *pool)
{
	u64 lent = pool_lent(pool) + (u64)pool->nr_wants * pool->slab_bytes;
	u64 may = lent < pool->allowed ?
			  (pool->allowed - lent) / pool->slab_bytes :
			  0;
	struct dcm_slab *slab, *tmp;
	u32 keep = pool->stopping ? 0 : pool->spare_wanted;

	if (keep > may)
		keep = (u32)may;
	dcm_list_for_each_safe(slab, tmp, &pool->slabs, struct dcm_slab, node) {
		if (pool->nr_spare <= keep)
			break;
		if (slab->state == DCM_SLAB_SPARE)
			dcm_pool_release(pool, slab);
	}
	if (pool->nr_wants ||
	    (pool->nr_spare < keep && uv_now(pool->loop) >= pool->retry_at))
		slab_make_start(pool);
}

int dcm_pool_want_init(struct dcm_pool *pool, struct dcm_pool_want *want,
		       const struct dcm_tenant *tenant)
{
	return dcm_fair_join(&pool->wants, &want->turn, tenant);
}

void dcm_pool_want_cancel(struct dcm_pool *pool, struct dcm_pool_want *want)
{
	if (!dcm_pool_want_waits(want))
		return;
	dcm_fair_drop(&want->turn);
	pool->nr_wants--;
}

void dcm_pool_want_end(struct dcm_pool *pool, struct dcm_pool_want *want)
{
	dcm_pool_want_cancel(pool, want);
	dcm_fair_leave(&pool->wants, &want->turn);
}

struct dcm_slab *dcm_pool_take(struct dcm_pool *pool,
			       struct dcm_pool_want *want, u32 *status)
{
	struct dcm_slab *slab;

	*status = DCM_WS_NO_MEMORY;
	if (want && dcm_pool_free_slabs(pool) <= pool->nr_wants)
		return NULL;
	dcm_list_for_each(slab, &pool->slabs, struct dcm_slab, node) {
		if (slab->state != DCM_SLAB_SPARE)
			continue;
		pool->nr_spare--;
		goto found;
	}
	if (!want)
		return NULL;
	dcm_fair_add(&pool->wants, &want->turn);
	pool->nr_wants++;
	slab_make_start(pool);
	*status = DCM_WS_OK;
	return NULL;
found:
	slab->state = DCM_SLAB_MAPPED;
	pool->nr_mapped++;
	*status = DCM_WS_OK;
	return slab;
}

static void pool_allow(struct dcm_pool *pool)
{
	u64 room = pool->room > 0 ? (u64)pool->room : 0;
	u64 kept = pool->head_room;

	/* huge pages are for slabs only */
	if (!pool->huge_bytes)
		kept += pool->charged;
	room = room > kept ? room - kept : 0;
	pool->allowed = room < pool->capacity ? room : pool->capacity;
}

void dcm_pool_sample(struct dcm_pool *pool, bool tick)
{
	struct dcm_hostmem hm;
	struct dcm_slab *slab;
	struct stat st;
	u64 backed = 0, ops;
	double room;

	if (!tick) {
		pool_allow(pool);
		return;
	}
	/* free slabs for which there was no memory for a job */
	pool_reap(pool);
	dcm_list_for_each(slab, &pool->slabs, struct dcm_slab, node) {
		if (!fstat(slab->fd, &st))
			slab->backed = (u64)st.st_blocks * 512;
		backed += slab->backed;
		ops = __atomic_load_n(&slab->ops, __ATOMIC_RELAXED);
		slab->ewma_milli =
			(u64)(ALPHA * 1000.0 * (double)(ops - slab->ops_last) +
			(1 - ALPHA) * (double)slab->ewma_milli);
		slab->ops_last = ops;
	}
	pool->backed = backed;
	if (dcm_hostmem_read("", pool->huge_bytes, &hm)) {
		dcm_log_limited(
			DCM_LOG_ERR,
				"the host's memory can't be read; the last figure stays");
		return;
	}
	pool->free_now = hm.free;
	room = (double)hm.free + (double)backed;
	if (!pool->huge_bytes)
		room += (double)pool->charged_backed;
	if (room > (double)hm.total)
		room = (double)hm.total; /* shm pages of other cgroups */
	pool->room = pool->room_known ? BETA * room + (1 - BETA) * pool->room :
			     room;
	pool->room_known = true;
	pool_allow(pool);
}

/* With huge pages: ordinary memory that is free beyond the head room. */
static u64 pool_ordinary(const struct dcm_pool *pool)
{
	struct dcm_hostmem hm;
	u64 head, promised;

	if (dcm_hostmem_read("", 0, &hm))
		return 0;
	head = dcm_size_bytes(&pool->head_room_size, hm.total);
	promised = pool->charged > pool->charged_backed ?
			   pool->charged - pool->charged_backed :
			   0;
	return hm.free > head + promised ? hm.free - head - promised : 0;
}

bool dcm_pool_charge(struct dcm_pool *pool, u64 bytes)
{
	u64 room = pool->room > 0 ? (u64)pool->room : 0;
	u64 kept = pool->head_room + pool->charged + pool_lent(pool) +
		   (u64)pool->nr_wants * pool->slab_bytes;

	if (pool->huge_bytes)
		room = pool_ordinary(pool);
	else
		room = room > kept ? room - kept : 0;
	if (bytes > room)
		return false;
	pool->charged += bytes;
	pool_allow(pool);
	dcm_pool_balance(pool);
	return true;
}

void dcm_pool_uncharge(struct dcm_pool *pool, u64 bytes)
{
	pool->charged -= bytes;
	pool_allow(pool);
	dcm_pool_balance(pool);
}

void dcm_pool_limits(struct dcm_pool *pool, const struct dcm_config *cfg)
{
	pool->capacity = dcm_size_bytes(&cfg->capacity, pool->total);
	if (cfg->fd_slabs && pool->capacity / pool->slab_bytes > cfg->fd_slabs)
		pool->capacity = cfg->fd_slabs * pool->slab_bytes;
	pool->head_room = dcm_size_bytes(&cfg->head_room, pool->total);
	pool->head_room_size = cfg->head_room;
	pool->spare_wanted = cfg->spare_slabs;
	dcm_pool_sample(pool, false);
}

int dcm_pool_init(struct dcm_pool *pool, uv_loop_t *loop,
		  const struct dcm_config *cfg, char *err, size_t err_len)
{
	struct dcm_hostmem hm;
	int fd;

	memset(pool, 0, sizeof(*pool));
	pool->loop = loop;
	pool->slab_bytes = cfg->slab_bytes;
	pool->huge_bytes = cfg->huge_bytes == 1 ? dcm_hostmem_huge_default("") :
				   cfg->huge_bytes;
	dcm_list_init(&pool->slabs);
	dcm_list_init(&pool->dead);
	dcm_fair_init(&pool->wants);
	pthread_mutex_init(&pool->dead_lock, NULL);
	for (u32 i = 0; i < DCM_POOL_SHARDS; i++)
		pthread_mutex_init(&pool->shards[i], NULL);
	if (dcm_hostmem_read("", pool->huge_bytes, &hm) || !hm.total ||
	    (cfg->huge_bytes && !pool->huge_bytes)) {
		if (cfg->huge_bytes)
			snprintf(err, err_len,
				 "[donor] hugepages: the host has no huge pages of that size reserved; write a number into /proc/sys/vm/nr_hugepages or set hugepages = no");
		else
			snprintf(err, err_len, "/proc/meminfo can't be read");
		return -1;
	}
	pool->total = hm.total;
	fd = slab_open(pool);
	if (fd < 0) {
		snprintf(err, err_len, "no memfd of %llu bytes%s: %s",
			 (unsigned long long)pool->slab_bytes,
			 pool->huge_bytes ? " of huge pages" : "",
			 strerror(-fd));
		return -1;
	}
	close(fd);
	pool->table = calloc(INDEX_MAX, sizeof(*pool->table));
	if (!pool->table) {
		snprintf(err, err_len, "out of memory");
		return -1;
	}
	pool->async.data = pool;
	uv_async_init(loop, &pool->async, pool_wake);
	dcm_pool_limits(pool, cfg);
	dcm_pool_sample(pool, true);
	if (pool->capacity < pool->slab_bytes) {
		snprintf(err, err_len,
			 "[donor] capacity: %llu bytes are less than one slab of %llu",
			 (unsigned long long)pool->capacity,
			 (unsigned long long)pool->slab_bytes);
		return -1;
	}
	return 0;
}

bool dcm_pool_stop(struct dcm_pool *pool)
{
	pool->stopping = true;
	dcm_pool_balance(pool);
	return !pool->jobs && dcm_list_empty(&pool->slabs) &&
	       !pool->nr_releasing;
}

void dcm_pool_free(struct dcm_pool *pool)
{
	free(pool->table);
	for (u32 i = 0; i < DCM_POOL_SHARDS; i++)
		pthread_mutex_destroy(&pool->shards[i]);
	pthread_mutex_destroy(&pool->dead_lock);
}

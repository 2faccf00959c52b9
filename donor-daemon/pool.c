// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * pool.c - how much memory is lent, and how much may be
 *
 * infiniswap-nsdi17, 5.1, with these differences:
 *  - The average (EWMA) is of the memory that would be free without any slab (total
 *    minus the use of all others). The donor's slabs are taken into account after
 *    that, and exactly, so a slab that is given back counts at once, and nothing is
 *    evicted twice.
 *  - Only @spare_wanted slabs are pre-allocated, not all memory above the head
 *    room: other donors and the page cache need memory too.
 *
 * A MAP that finds no spare slab waits for one to be filled (slab.c).
 *
 * A lent slab counts in full from the moment it is mapped: promised memory
 * can't be promised again. So does the memory that a GC worker may take; it does not
 * count against the capacity, but must leave the head room free, too.
 *
 * Locking: everything belongs to the event loop.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file.h"
#include "log_limit.h"
#include "pool.h"
#include "restart.h"

#define BETA		0.2	/* of the host's memory */
#define ALPHA		0.2	/* of a slab's activity */
#define RETRY_MS	10000u

int dcm_pool_space(const struct dcm_pool *pool, struct dcm_hostmem *hm)
{
	return pool->dir >= 0 ? dcm_file_space(pool->dir, hm) :
		       dcm_hostmem_read("", pool->huge_bytes, hm);
}

static u64 pool_lent(const struct dcm_pool *pool)
{
	return (u64)(pool->nr_mapped + pool->nr_evicting + pool->nr_releasing) *
	       pool->slab_bytes;
}

/* Dequeue the next waiting MAP; %NULL: none waits. */
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

/* Refuse all waiting MAPs; a refused host may ask again at once. */
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

/* Start making one slab, unless one is being made. */
static void pool_fill(struct dcm_pool *pool)
{
	if (pool->creating || pool->stopping || !dcm_slab_make(pool))
		return;
	pool->creating = true;
	pool->jobs++;
}

static void pool_said_full(const struct dcm_pool *pool, int error)
{
	if (pool->dir >= 0)
		dcm_log_limited(
			DCM_LOG_WARNING,
			"no file for a slab of %llu MiB in %s: %s; hosts that waited for one are refused",
			(unsigned long long)(pool->slab_bytes >> 20),
			pool->path, strerror(-error));
	else
		dcm_log_limited(
			DCM_LOG_WARNING,
			"no memory for a slab of %llu MiB%s: %s; hosts that waited for one are refused. If memory seems free, look at memory cgroups, vm.overcommit_memory and head-room",
			(unsigned long long)(pool->slab_bytes >> 20),
			pool->huge_bytes ? " of huge pages" : "",
			strerror(-error));
}

void dcm_pool_slab_made(struct dcm_pool *pool, struct dcm_slab *slab, int error)
{
	struct dcm_pool_want *want;

	pool->jobs--;
	pool->creating = false;
	if (error) {
		pool->failed_total++;
		pool->retry_at = uv_now(pool->loop) + RETRY_MS;
		pool_said_full(pool, error);
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

void dcm_pool_slab_dropped(struct dcm_pool *pool, struct dcm_slab *slab)
{
	pool->jobs--;
	pool->nr_releasing--;
	pool->released_total++;
	pool->done(pool->done_arg, slab);
}

void dcm_pool_release(struct dcm_pool *pool, struct dcm_slab *slab)
{
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
	dcm_restart_slab_end(slab);
	dcm_slab_hide(slab);
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
		pool_fill(pool);
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
	pool_fill(pool);
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
	int ret;

	if (!tick) {
		pool_allow(pool);
		return;
	}
	/* try again to free slabs for which there was no memory for a job */
	dcm_slab_reap(pool);
	dcm_list_for_each(slab, &pool->slabs, struct dcm_slab, node) {
		if (!fstat(slab->fd, &st))
			slab->backed = (u64)st.st_blocks * 512;
		backed += slab->backed;
		ops = READ_ONCE(slab->ops);
		slab->ewma_milli =
			(u64)(ALPHA * 1000.0 * (double)(ops - slab->ops_last) +
			(1 - ALPHA) * (double)slab->ewma_milli);
		slab->ops_last = ops;
	}
	pool->backed = backed;
	ret = dcm_pool_space(pool, &hm);
	if (ret) {
		dcm_log_limited(
			DCM_LOG_ERR,
				"can't read how much of %s is free: %s; the last figure stays",
			pool->dir >= 0 ? pool->path : "the host's memory",
				strerror(-ret));
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

/* For slabs of huge pages: how much ordinary memory is free beyond the head room. */
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
	int ret;

	memset(pool, 0, sizeof(*pool));
	pool->loop = loop;
	pool->slab_bytes = cfg->slab_bytes;
	pool->huge_bytes = cfg->huge_bytes == 1 ? dcm_hostmem_huge_default("") :
				   cfg->huge_bytes;
	pool->dir = -1;
	dcm_list_init(&pool->slabs);
	dcm_fair_init(&pool->wants);
	if (cfg->medium == DCM_MEDIUM_FILE) {
		memcpy(pool->path, cfg->path, sizeof(pool->path));
		pool->dir = dcm_file_dir_open(pool->path, err, err_len);
		if (pool->dir < 0)
			return pool->dir;
	}
	ret = dcm_pool_space(pool, &hm);
	if (cfg->huge_bytes && (ret || !hm.total || !pool->huge_bytes)) {
		snprintf(err, err_len,
			 "[donor] hugepages: the host has no huge pages of that size reserved; write a number into /proc/sys/vm/nr_hugepages or set hugepages = no");
		return ret ? ret : -ENOENT;
	}
	if (ret) {
		snprintf(err, err_len, "can't read how much of %s is free: %s",
			 pool->dir >= 0 ? pool->path :
					  "the host's memory (/proc/meminfo)",
			 strerror(-ret));
		return ret;
	}
	pool->total = hm.total;
	ret = dcm_slab_probe(pool);
	if (ret) {
		snprintf(err, err_len, "no %s of %llu bytes%s: %s",
			 pool->dir >= 0 ? "file" : "memfd",
			 (unsigned long long)pool->slab_bytes,
			 pool->huge_bytes ? " of huge pages" : "",
			 strerror(-ret));
		return ret;
	}
	ret = dcm_slab_table_init(pool);
	if (ret) {
		snprintf(err, err_len, "the table of slabs: %s",
			 strerror(-ret));
		return ret;
	}
	dcm_pool_limits(pool, cfg);
	dcm_pool_sample(pool, true);
	if (pool->capacity < pool->slab_bytes) {
		snprintf(err, err_len,
			 "[donor] capacity: %llu bytes are less than one slab of %llu",
			 (unsigned long long)pool->capacity,
			 (unsigned long long)pool->slab_bytes);
		return -EINVAL;
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
	dcm_slab_table_free(pool);
	if (pool->dir >= 0)
		close(pool->dir);
}

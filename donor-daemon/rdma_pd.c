// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * rdma_pd.c - a session's RDMA protection domain
 *
 * A session has a protection domain of its own: a key given to it is useless on
 * other queue pairs. Each slab is one memory region in it, with remote read and
 * write only, and with addresses that count from 0, so that a host learns
 * nothing about addresses in this process.
 *
 * Publishing maps the slab and registers it, which pins every page: that takes
 * time and runs in a thread of the pool. Revoking deregisters it; when that
 * returns the device does not touch the memory any more, and only then is it
 * unmapped and freed. Even if deregistering failed no other host would get
 * these pages: a memfd has one owner in its life, and pinned pages stay with
 * it.
 *
 * The mapping lets READ and WRITE of data connections reach the slab too, for a
 * host whose RDMA network has failed.
 *
 * (infiniswap-nsdi17 registers a memory region of 1 GB for the daemon's life and never
 * takes a key back.)
 *
 * Locking: references are the event loop's; publish and revoke touch only their
 * slab.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "rdma_pd.h"
#include "log_limit.h"
#include "pool.h"

static u64 registered; /* __atomic */

struct dcm_rdma_pd *dcm_rdma_pd_new(struct ibv_context *ctx)
{
	struct dcm_rdma_pd *pd = calloc(1, sizeof(*pd));

	if (!pd)
		return NULL;
	pd->ctx = ctx;
	pd->refs = 1;
	pd->ibv = ibv_alloc_pd(ctx);
	if (pd->ibv)
		pd->cq = ibv_create_cq(ctx, 1, NULL, NULL, 0);
	if (pd->cq)
		return pd;
	if (pd->ibv)
		ibv_dealloc_pd(pd->ibv);
	free(pd);
	return NULL;
}

struct dcm_rdma_pd *dcm_rdma_pd_get(struct dcm_rdma_pd *pd)
{
	pd->refs++;
	return pd;
}

void dcm_rdma_pd_put(struct dcm_rdma_pd *pd)
{
	int ret;

	if (!pd || --pd->refs)
		return;
	ret = ibv_destroy_cq(pd->cq);
	if (!ret)
		ret = ibv_dealloc_pd(pd->ibv);
	if (ret)
		dcm_log_limited(DCM_LOG_WARNING,
				"a protection domain can't be freed: %s",
				strerror(ret));
	free(pd);
}

u64 dcm_rdma_pd_registered(void)
{
	return READ_ONCE(registered);
}

static int verbs_publish(struct dcm_slab *slab)
{
	void *map = mmap(NULL, slab->bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
			 slab->fd, 0);
	int err;

	if (map == MAP_FAILED)
		return -errno;
	madvise(map, slab->bytes, MADV_DONTDUMP);
	slab->mr = ibv_reg_mr_iova(slab->pd->ibv, map, slab->bytes, 0,
				   IBV_ACCESS_LOCAL_WRITE |
					   IBV_ACCESS_REMOTE_READ |
					   IBV_ACCESS_REMOTE_WRITE);
	if (!slab->mr) {
		err = errno ? errno : ENOMEM;
		munmap(map, slab->bytes);
		return -err;
	}
	__atomic_fetch_add(&registered, slab->bytes, __ATOMIC_RELAXED);
	slab->map = map;
	slab->addr = 0;
	slab->rkey = slab->mr->rkey;
	return 0;
}

static void verbs_revoke(struct dcm_slab *slab)
{
	int ret = ibv_dereg_mr(slab->mr);

	if (ret)
		dcm_err("slab %llu can't be deregistered: its memory stays pinned until the donor ends: %s",
			(unsigned long long)slab->id, strerror(ret));
	else
		__atomic_fetch_sub(&registered, slab->bytes, __ATOMIC_RELAXED);
	slab->mr = NULL;
	slab->rkey = 0;
	if (slab->map)
		munmap(slab->map, slab->bytes);
	slab->map = NULL;
	dcm_export_truncate(slab);
}

const struct dcm_export_ops dcm_export_verbs = {
	.transport = DCM_WT_VERBS,
	.name = "verbs",
	.served = true,
	.unseen = true,
	.slow = true,
	.publish = verbs_publish,
	.revoke = verbs_revoke,
};

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * page_sum.c - sums of pages: the function, the tables, and the log of wrong bytes
 *
 * core/sum.c compares sums. A sum is half of XXH3's 64 bits: of pages that are
 * changed by chance one in 2^32 goes unnoticed. The hash is seeded with a secret number
 * of this process, so a donor can't make other bytes with the same sum. Sums are kept
 * in this process, so a donor that gives back an older version of a page is noticed,
 * too. An extent gets its table of sums before its second slab.
 *
 * Locking: lanes count what was wrong; one thread at a time logs it.
 */
#include <sys/random.h>

/* chooses the widest vectors that the processor has */
#include <xxh_x86dispatch.h>

#include "../lib/log.h"
#include "op.h"

#define SAY_NS (10ull * 1000 * 1000 * 1000)

void dcm_page_sums_init(struct dcm_page_sums *s)
{
	pthread_mutex_init(&s->lock, NULL);
	/* early at boot there is no randomness: changes by chance are still noticed */
	if (getrandom(&s->secret, sizeof(s->secret), GRND_NONBLOCK) < 0)
		s->secret = (u64)(uintptr_t)s;
}

u32 dcm_op_sum(struct dcm_lane *lane, const void *data, u32 page)
{
	return (u32)XXH3_64bits_withSeed((const char *)data +
						 page * DCM_PAGE_SIZE,
					 DCM_PAGE_SIZE,
					 pager_of(lane)->sums.secret);
}

void dcm_op_wrong(struct dcm_lane *lane, u32 gfn, u16 pages, u32 peer, u32 lost)
{
	struct dcm_page_sums *s = &pager_of(lane)->sums;

	(void)gfn;
	__atomic_fetch_add(&s->wrong[peer], hweight16(pages), __ATOMIC_RELAXED);
	__atomic_fetch_add(&s->lost, lost, __ATOMIC_RELAXED);
}

void dcm_page_sums_add(struct dcm_pager *pg, u32 extent)
{
	struct dcm_page_sums *s = &pg->sums;
	u32 *mem;

	/*
	 * Sealed pages need no sums. Without copies an extent has a second slab only
	 * while it moves, and needs none either.
	 */
	if (pg->cfg.seal ||
	    !__atomic_load_n(&pg->cfg.redundancy, __ATOMIC_SEQ_CST) ||
	    !pg->vm->extent[extent].used || dcm_extent_sums_of(pg->vm, extent))
		return;
	mem = vzalloc(pg->vm->extent_pages * sizeof(*mem));
	if (mem)
		dcm_extent_sums(pg->vm, extent, mem);
	else if (!s->no_memory)
		dcm_log(DCM_LOG_WARNING,
			"%s: no memory for the sums of extent %u: pages that donors send of it are not checked",
			pg->slabs.name, extent);
	s->no_memory |= !mem;
}

void dcm_page_sums_free(struct dcm_vm *vm)
{
	u32 e;

	for (e = 0; vm && e < vm->nr_extents; e++)
		vfree(dcm_extent_sums_of(vm, e));
}

/* Were there wrong bytes that the log does not mention yet? */
static bool sums_unsaid(const struct dcm_page_sums *s)
{
	u32 i;

	for (i = 0; i < DCM_PEERS_MAX; i++)
		if (__atomic_load_n(&s->wrong[i], __ATOMIC_RELAXED) !=
		    s->said[i])
			return true;
	return false;
}

static void sums_log(struct dcm_pager *pg, u64 now)
{
	struct dcm_page_sums *s = &pg->sums;
	struct dcm_client_status *st;
	char name[DCM_NAME_MAX + 1];
	u64 n;
	u32 i;

	if (now < s->say_ns || !sums_unsaid(s))
		return;
	st = vzalloc(sizeof(*st));
	if (!st)
		return;
	dcm_client_status(pg->client, st);
	for (i = 0; i < DCM_PEERS_MAX; i++) {
		n = __atomic_load_n(&s->wrong[i], __ATOMIC_RELAXED);
		if (n == s->said[i])
			continue;
		dcm_risk_names(1ull << i, st, name, sizeof(name));
		dcm_log(DCM_LOG_ERR,
			"%s: donor %s gave wrong bytes of %llu pages, which were read from another donor if one has them (lost so far: %llu). Drain this donor and check its memory",
			pg->slabs.name, name,
			(unsigned long long)(n - s->said[i]),
			(unsigned long long)__atomic_load_n(&s->lost,
							   __ATOMIC_RELAXED));
		s->said[i] = n;
	}
	s->say_ns = now + SAY_NS;
	vfree(st);
}

void dcm_page_sums_log(struct dcm_pager *pg, u64 now)
{
	pthread_mutex_lock(&pg->sums.lock);
	sums_log(pg, now);
	pthread_mutex_unlock(&pg->sums.lock);
}

/* SPDX-License-Identifier: GPL-2.0-or-later */
/* page_sum.h - sums of pages that donors hold (page_sum.c) */
#ifndef DCM_UFFD_PAGE_SUM_H
#define DCM_UFFD_PAGE_SUM_H

#include <pthread.h>

#include "../core/core.h"

struct dcm_pager;

/**
 * struct dcm_page_sums - counts of pages that came with wrong bytes, for the log
 * @secret: the seed of all sums
 * @wrong: pages of which a donor gave wrong bytes, by its number; lanes count
 * @lost: of these, pages of which no donor has the right bytes; lanes count
 * @lock: guards @said and @say_ns
 * @said: how many of @wrong were logged
 * @say_ns: the earliest time of the next log line
 * @no_memory: it was logged that there is no memory for a table; the slab worker's
 */
struct dcm_page_sums {
	u64 secret;
	u64 wrong[DCM_PEERS_MAX];
	u64 lost;
	pthread_mutex_t lock;
	u64 said[DCM_PEERS_MAX];
	u64 say_ns;
	bool no_memory;
};

/** dcm_page_sums_init() - choose the secret; before any other of these functions */
void dcm_page_sums_init(struct dcm_page_sums *s);

/** dcm_page_sums_add() - give an extent its table before it gets its second slab */
void dcm_page_sums_add(struct dcm_pager *pg, u32 extent);

/** dcm_page_sums_free() - free all tables; no lane is in the core */
void dcm_page_sums_free(struct dcm_vm *vm);

/** dcm_page_sums_log() - log wrong bytes since the last time; any thread */
void dcm_page_sums_log(struct dcm_pager *pg, u64 now);

#endif /* DCM_UFFD_PAGE_SUM_H */

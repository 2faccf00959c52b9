/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * slab_worker.h - the thread that attaches, moves and loses slabs, and balances
 */
#ifndef DCM_UFFD_SLAB_WORKER_H
#define DCM_UFFD_SLAB_WORKER_H

#include "pager.h"

/* The pager's callbacks for the client; their argument is &pg->slabs. */
extern const struct dcm_client_ops dcm_pg_client_ops;

/* Before the client is started. */
int dcm_pg_worker_init(struct dcm_pager *pg, u64 nr_pages);
int dcm_pg_worker_start(struct dcm_pager *pg);
void dcm_pg_worker_stop(struct dcm_pager *pg);
void dcm_pg_worker_wake(struct dcm_pager *pg);

#endif /* DCM_UFFD_SLAB_WORKER_H */

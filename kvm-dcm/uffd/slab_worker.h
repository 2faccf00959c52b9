/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * slab_worker.h - the thread that attaches, moves and loses slabs, and balances
 */
#ifndef DCM_UFFD_SLAB_WORKER_H
#define DCM_UFFD_SLAB_WORKER_H

#include "pager.h"

extern const struct dcm_client_ops dcm_control_ops;

int dcm_control_init(struct dcm_pager *pg);
int dcm_control_start(struct dcm_pager *pg);
void dcm_control_stop(struct dcm_pager *pg);
void dcm_control_free(struct dcm_pager *pg);
void dcm_control_kick(struct dcm_pager *pg);
u32 dcm_control_lost(struct dcm_pager *pg);
/* True while a slab is lost and its pages are not marked yet. */
bool dcm_control_losing(struct dcm_pager *pg);
/* The slab of an extent; false: it has none, or is moving off it. */
bool dcm_control_where(struct dcm_pager *pg, u32 extent, u32 *donor, u64 *slab);

#endif /* DCM_UFFD_SLAB_WORKER_H */

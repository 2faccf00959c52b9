/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * slab_worker.h - the pager's own thread: slabs coming and going, the budget
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
/* A slab is lost, and its pages are not yet. */
bool dcm_control_losing(struct dcm_pager *pg);
/* The one slab that an extent is on; false: none, or it is being left. */
bool dcm_control_where(struct dcm_pager *pg, u32 extent, u32 *donor, u64 *slab);

#endif /* DCM_UFFD_SLAB_WORKER_H */

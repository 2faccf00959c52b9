/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * affinity.h - run fault threads on the CPUs that fault
 */
#ifndef DCM_UFFD_AFFINITY_H
#define DCM_UFFD_AFFINITY_H

#include "pager.h"

void dcm_affinity_init(struct dcm_pager *pg);
int dcm_affinity_look(struct dcm_pg_lane *l, const struct uffd_msg *msg,
		    bool many);
bool dcm_affinity_served(struct dcm_pg_lane *l, pid_t tid);
bool dcm_affinity_spin(struct dcm_pg_lane *l, u64 *until);

#endif /* DCM_UFFD_AFFINITY_H */

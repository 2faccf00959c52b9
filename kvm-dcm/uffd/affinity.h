/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * affinity.h - fault threads where the faults are
 */
#ifndef DCM_PLACE_H
#define DCM_PLACE_H

#include "pager.h"

void dcm_place_init(struct dcm_pager *pg);
int dcm_place_look(struct dcm_pg_lane *l, const struct uffd_msg *msg,
		   bool many);
bool dcm_place_served(struct dcm_pg_lane *l, pid_t tid);
bool dcm_place_spin(struct dcm_pg_lane *l, u64 *until);

#endif /* DCM_PLACE_H */

/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * yield.h - a fault thread that yields its CPU to the thread it serves
 */
#ifndef DCM_UFFD_YIELD_H
#define DCM_UFFD_YIELD_H

#include "pager.h"

#define DCM_YIELD_MS 2

bool dcm_yield_can(void);
void dcm_yield_start(struct dcm_pg_lane *l);
void dcm_yield_stop(struct dcm_pg_lane *l);
void dcm_yield_fault(struct dcm_pg_lane *l, pid_t tid);
bool dcm_yield_may(const struct dcm_pg_lane *l);
void dcm_yield_be(struct dcm_pg_lane *l, pid_t tid);
void dcm_yield_silence(struct dcm_pg_lane *l);

#endif /* DCM_UFFD_YIELD_H */

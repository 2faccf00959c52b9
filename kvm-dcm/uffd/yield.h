/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * yield.h - a fault thread that makes way for the thread it serves
 */
#ifndef DCM_POLITE_H
#define DCM_POLITE_H

#include "pager.h"

#define DCM_POLITE_MS 2

bool dcm_polite_can(void);
void dcm_polite_start(struct dcm_pg_lane *l);
void dcm_polite_stop(struct dcm_pg_lane *l);
void dcm_polite_fault(struct dcm_pg_lane *l, pid_t tid);
bool dcm_polite_may(const struct dcm_pg_lane *l);
void dcm_polite_be(struct dcm_pg_lane *l, pid_t tid);
void dcm_polite_silence(struct dcm_pg_lane *l);

#endif /* DCM_POLITE_H */

/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * status.h - what a pager tells of itself, and the socket it tells it on
 */
#ifndef DCM_UFFD_STATUS_H
#define DCM_UFFD_STATUS_H

#include "pager.h"

/* One JSON object without newline; the caller's to free. */
char *dcm_status_text(struct dcm_pager *pg);

int dcm_status_start(struct dcm_pager *pg, char *err, size_t len);
void dcm_status_stop(struct dcm_pager *pg);

#endif /* DCM_UFFD_STATUS_H */

/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * status.h - a pager's status, and the socket that serves it
 */
#ifndef DCM_UFFD_STATUS_H
#define DCM_UFFD_STATUS_H

#include "pager.h"

/* One JSON object without newline, which the caller frees. */
char *dcm_status_text(struct dcm_pager *pg);

int dcm_status_start(struct dcm_pager *pg, char *err, size_t len);
void dcm_status_stop(struct dcm_pager *pg);

#endif /* DCM_UFFD_STATUS_H */

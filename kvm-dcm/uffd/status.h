/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * status.h - a pager's figures as one JSON object
 */
#ifndef DCM_UFFD_STATUS_H
#define DCM_UFFD_STATUS_H

#include <jansson.h>

#include "pager.h"

/* A new reference to the object. */
json_t *dcm_status_json(struct dcm_pager *pg);

/* dcm_status_json() as text without newline, which the caller frees. */
char *dcm_status_text(struct dcm_pager *pg);

#endif /* DCM_UFFD_STATUS_H */

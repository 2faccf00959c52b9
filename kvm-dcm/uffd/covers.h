/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * covers.h - the pager's functions for the preload shim, beyond libdcm.h
 */
#ifndef DCM_UFFD_COVERS_H
#define DCM_UFFD_COVERS_H

#include <stdbool.h>
#include <stddef.h>

#include "../include/libdcm.h"

bool dcm_pager_covers(struct dcm_pager *pg, void *addr, size_t bytes);
bool dcm_pager_pin_safe(struct dcm_pager *pg);
void dcm_pager_hold(struct dcm_pager *pg, void *addr, size_t bytes, bool hold);
int dcm_pager_replace(struct dcm_pager *pg, void *addr, size_t bytes, void *by,
		      size_t by_bytes, int flags);
int dcm_pager_rest(struct dcm_pager *pg, void *addr, size_t bytes, int advice);

#endif /* DCM_UFFD_COVERS_H */

/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * vmsock.h - the socket by which dcmctl asks about a VM, and changes it
 */
#ifndef DCM_UFFD_VMSOCK_H
#define DCM_UFFD_VMSOCK_H

#include "pager.h"

int dcm_vmsock_start(struct dcm_pager *pg, char *err, size_t len);
void dcm_vmsock_stop(struct dcm_pager *pg);

#endif /* DCM_UFFD_VMSOCK_H */

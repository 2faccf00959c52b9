/* SPDX-License-Identifier: GPL-2.0-or-later */
/* share.h - how much of the CPU the GC workers of a tenant get */
#ifndef DCM_SHARE_H
#define DCM_SHARE_H

#include <sys/types.h>

#include "donor.h"

/* Look whether there is a cgroup to be divided; says so. Once, before workers. */
void dcm_share_start(struct dcm_donor *donor);
void dcm_share_stop(struct dcm_donor *donor);

/* "cgroup" or "nice". */
const char *dcm_share_name(const struct dcm_donor *donor);

/**
 * dcm_share_join() - where a worker that is started says whose it is
 * @tenant: whose worker it will be
 *
 * Return: a descriptor the new process writes "0" to, and the caller closes;
 * -1: there are no cgroups, or not for this one.
 */
int dcm_share_join(struct dcm_donor *donor, const struct dcm_tenant *tenant);

/* @tenant's last worker is gone. */
void dcm_share_leave(struct dcm_donor *donor, const struct dcm_tenant *tenant);

/* How nice each of @workers of one tenant is, when there are no cgroups. */
int dcm_share_nice(u32 workers);

/* All threads of @pid become so nice; what is not allowed is left. */
void dcm_share_renice(pid_t pid, int nice);

#endif /* DCM_SHARE_H */

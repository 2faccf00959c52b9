/* SPDX-License-Identifier: GPL-2.0-or-later */
/* gc_cpu.h - a tenant's share of the CPU for its GC workers */
#ifndef DCM_GC_CPU_H
#define DCM_GC_CPU_H

#include <sys/types.h>

#include "donor.h"

/* Look for a cgroup to divide, and log the result. Once, before workers. */
void dcm_gc_cpu_start(struct dcm_donor *donor);
void dcm_gc_cpu_stop(struct dcm_donor *donor);

/* "cgroup" or "nice". */
const char *dcm_gc_cpu_name(const struct dcm_donor *donor);

/**
 * dcm_gc_cpu_join() - prepare a tenant's cgroup for a new worker
 * @tenant: the worker's tenant
 *
 * Return: a descriptor that the new process writes "0" to, and the caller
 * closes; -ENOENT: there are no cgroups; another negative errno: none for this
 * tenant, which is logged.
 */
int dcm_gc_cpu_join(struct dcm_donor *donor, const struct dcm_tenant *tenant);

/* @tenant's last worker is gone. */
void dcm_gc_cpu_leave(struct dcm_donor *donor, const struct dcm_tenant *tenant);

/* Niceness of each of @workers of one tenant, without cgroups. */
int dcm_gc_cpu_nice(u32 workers);

/* Set the niceness of all threads of @pid, as far as that is allowed. */
void dcm_gc_cpu_renice(pid_t pid, int nice);

#endif /* DCM_GC_CPU_H */

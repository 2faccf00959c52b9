/*
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * memory-backend-dcm: the pager behind the memory, for devices that use it
 */

#ifndef SYSTEM_HOSTMEM_DCM_H
#define SYSTEM_HOSTMEM_DCM_H

#include "system/hostmem.h"

struct dcm_pager;

/**
 * host_memory_backend_dcm_pager: the pager of a backend's memory
 *
 * It must not be used any more when the backend is no longer marked as mapped.
 *
 * Return: NULL if @backend is of another type.
 */
struct dcm_pager *host_memory_backend_dcm_pager(HostMemoryBackend *backend);

#endif

/* SPDX-License-Identifier: GPL-2.0-or-later */
/* sandbox.h - what a GC worker gives up before it looks at anything */
#ifndef DCM_GC_SANDBOX_H
#define DCM_GC_SANDBOX_H

#include <stdint.h>

/**
 * dcm_gc_sandbox() - from here on: memory, threads, one socket
 * @memory: bytes of private memory, tables and stacks, at most
 *
 * Return: 0, or -1 with what failed in *@what.
 */
int dcm_gc_sandbox(uint64_t memory, const char **what);

#endif /* DCM_GC_SANDBOX_H */

/* SPDX-License-Identifier: GPL-2.0-or-later */
/* sandbox.h - restrict a GC worker before it reads any data */
#ifndef DCM_GC_SANDBOX_H
#define DCM_GC_SANDBOX_H

#include <stdint.h>

/**
 * dcm_gc_sandbox() - restrict this process to memory, threads and one socket
 * @sock: the socket: the only descriptor that can be read and written
 * @memory: most bytes of private memory, tables and stacks
 * @address: bytes of slabs that may be mapped, and of the program itself
 * @what: out: the step that failed
 *
 * Called by the first thread, before there are others. Standard output must be
 * /dev/null, and becomes standard error too.
 *
 * Return: 0 or a negative errno.
 */
int dcm_gc_sandbox(int sock, uint64_t memory, uint64_t address,
		   const char **what);

#endif /* DCM_GC_SANDBOX_H */

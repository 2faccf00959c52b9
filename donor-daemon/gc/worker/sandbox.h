/* SPDX-License-Identifier: GPL-2.0-or-later */
/* sandbox.h - what a GC worker gives up before it looks at anything */
#ifndef DCM_GC_SANDBOX_H
#define DCM_GC_SANDBOX_H

#include <stdint.h>

/**
 * dcm_gc_sandbox() - from here on: memory, threads, one socket
 * @sock: the socket: the only descriptor to be written to and read from
 * @memory: bytes of private memory, tables and stacks, at most
 * @address: bytes of slabs that may be mapped, and of what the program is
 * @what: what failed
 *
 * The first thread's, before there are others. Standard output must be
 * /dev/null, and becomes standard error too.
 *
 * Return: 0, or -1 and errno.
 */
int dcm_gc_sandbox(int sock, uint64_t memory, uint64_t address,
		   const char **what);

#endif /* DCM_GC_SANDBOX_H */

/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * shim.h - shared by the files of libdcm-preload.so
 */
#ifndef DCM_PRELOAD_SHIM_H
#define DCM_PRELOAD_SHIM_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

#include "../lib/dcm_context.h"
#include "../lib/thread.h"
#include "../include/libdcm.h"
#include "../client/config.h"
#include "../uffd/covers.h"

#define DCM_EXPORT __attribute__((visibility("default")))
#define SHIM_PAGE 4096ull

/**
 * struct dcm_shim - the one pager of the process
 * @pg: %NULL until it runs, and in a child
 * @mode: enum dcm_host_mode
 * @threshold: smallest mapping that is paged
 * @arena: program mode: address of the range those mappings come from
 * @arena_bytes: its size
 * @protected: a part of the arena was once mprotect()ed
 * @no_direct: O_DIRECT can't be allowed on this kernel
 * @orphan: this process is a child; the pager is its parent's
 */
struct dcm_shim {
	struct dcm_pager *pg;
	enum dcm_host_mode mode;
	u64 threshold;
	u64 arena;
	u64 arena_bytes;
	bool protected;
	bool no_direct;
	bool orphan;
};

extern struct dcm_shim dcm_shim;

/* The pager, for a call of the program; NULL: none, or the call is libdcm's. */
static inline struct dcm_pager *shim_pager(void)
{
	if (dcm_thread_inside)
		return NULL;
	return smp_load_acquire(&dcm_shim.pg);
}

static inline u64 shim_page_up(u64 n)
{
	return (n + SHIM_PAGE - 1) & ~(SHIM_PAGE - 1);
}

/* 0 or a negative errno as system calls' wrappers return it. */
static inline int shim_result(int rc)
{
	if (!rc)
		return 0;
	errno = -rc;
	return -1;
}

/* arena.c: free addresses of the arena */
int dcm_arena_init(u64 base, u64 bytes);
u64 dcm_arena_take(u64 bytes, u64 align);
void dcm_arena_give(u64 addr, u64 bytes);

/* heap.c: libdcm's own heap */
void *dcm_heap_alloc(size_t bytes, size_t align);
void dcm_heap_free(void *p);
size_t dcm_heap_size(const void *p);
bool dcm_heap_owns(const void *p);
void dcm_heap_lock(void);
void dcm_heap_unlock(void);

/* open.c */
void dcm_open_ready(void);

/* malloc.c */
void dcm_malloc_ready(void);

#endif /* DCM_PRELOAD_SHIM_H */

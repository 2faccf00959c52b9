/* SPDX-License-Identifier: GPL-2.0-or-later */
/* gc_slabs.h - slabs that a GC worker maps, between pages nobody may touch */
#ifndef FUZZ_GC_SLABS_H
#define FUZZ_GC_SLABS_H

#include "input.h"

#define REGION	(64u << 10)
#define ADDRESS (1ull << 32) /* of every space */
#define SLABS	3u

extern const u64 slab_bytes[SLABS];

/* Once, before all else. */
void slabs_start(void);
/* Before each input: a heap, if something may have written to the last one. */
void slabs_fill(void);

/*
 * Of a slab @bytes are to be mapped next. A descriptor of it, or -1 if the worker
 * gets none.
 */
int slab_show(u32 which, u64 bytes, bool fd);
/* The worker that had mapped a slab is gone. */
void slab_unmap(u8 *memory, size_t bytes);

/* The worker may write to slabs. */
void slabs_changed(void);
/* The host writes. */
void slab_write(u32 which, u64 at, const void *bytes, size_t n);

#endif /* FUZZ_GC_SLABS_H */

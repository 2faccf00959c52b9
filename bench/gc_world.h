/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * gc_world.h - gc_heap.h's heap in a window of libdcm, with requests as a virtio-gc
 * device makes them (libdcm_gc.h)
 *
 * For a program in which one thread makes requests. Any error ends the program.
 */
#ifndef BENCH_GC_WORLD_H
#define BENCH_GC_WORLD_H

#include "gc_heap.h"
#include "libdcm_gc.h"

#define GC_WORLD_REGIONS	1024u

struct gc_world {
	struct dcm_pager *pager;
	struct dcm_gc_host *gc;
	struct gc_heap h;
	u32 regions;	/* with objects */
	u32 epoch;
};

/*
 * Make a heap of @mib MiB, a multiple of the donors' slab size, with objects in its
 * first @regions regions (0: in all). @live per mille of the objects are reachable.
 */
void gc_world_open(struct gc_world *w, const char *config, u64 mib, u32 regions,
		   u32 live);

/* Make a request for space 1; returns its status. */
u32 gc_ask(struct gc_world *w, u16 command, u16 flags, u32 count,
	   const void *body, size_t body_bytes, const void *entries,
	   size_t bytes);
void gc_must(u32 status, const char *what);

void gc_space_make(struct gc_world *w);
/* CLEAN the space, a piece at a time: on a busy machine the whole takes long. */
void gc_clean(struct gc_world *w);
/* Of all regions that have objects. Without VIRTIO_GC_TRACE_CONCURRENT no program may run. */
void gc_trace_start(struct gc_world *w, u16 flags);
/* @root: an address; 0: nothing is reachable */
void gc_trace_root(struct gc_world *w, u64 root);
u64 gc_root_of(const struct gc_world *w);
/* With the results: how many objects live. */
u64 gc_trace_finish(struct gc_world *w);

/* The answer to the last request, after its head. */
const void *gc_answer(void);

/* gc_evacuate.c: see gc_host.c */
void gc_bench_evacuate(struct gc_world *w, u32 runs);

/* gc_pause.c: see gc_host.c; @sink: of gc_sink_start() */
void gc_bench_pause(struct gc_world *w, u32 runs, int sink);
/* A process that takes @bytes of pages at a time; before there are threads. */
int gc_sink_start(u64 bytes);

#endif /* BENCH_GC_WORLD_H */

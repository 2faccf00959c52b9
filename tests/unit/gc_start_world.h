/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * gc_start_world.h - the host side of a space whose pages and workers a test
 * commands
 *
 * The world says when pages are synced and when workers answer, and with which
 * status. A device sends requests; an unexpected answer ends the test.
 */
#ifndef GC_START_WORLD_H
#define GC_START_WORLD_H

#include <pthread.h>
#include <stdbool.h>

#include "../../kvm-dcm/gc/backend.h"

#define REGION (64ul << 10)
#define REGIONS 4u
#define WORKER 2u /* the donor that fails */

/**
 * struct gc_start_world - pages and workers
 * @stop: syncing waits while this is set
 * @syncing: a sync is under way, or about to begin
 * @frozen: accesses wait; @frozen_when_synced: they did
 * @sync: status of a sync; @start: status of a trace's start
 * @nr_synced: times; @synced_bytes: of how much in all
 * @moving: how often workers say that a region is being moved; @nowhere: for how
 *	many looks it is
 * @losing: for how many looks a donor's pages are not marked lost yet
 * @command: the last that the workers got; @nr_commands: how many
 */
struct gc_start_world {
	pthread_mutex_t lock;
	pthread_cond_t moved;
	bool stop;
	bool syncing;
	bool frozen;
	bool frozen_when_synced;
	enum dcm_gc_sync how; /* of the last sync */
	u32 sync;
	u32 start;
	u32 nr_synced;
	u64 synced_bytes;
	u32 moving;
	u32 nowhere;
	u32 losing;
	u16 command;
	u32 nr_commands;
};

struct call {
	bool done;
	struct virtio_gc_done d;
};

extern struct gc_start_world world;
extern struct dcm_gc_host *gc;

/* Syncing waits, or goes on; until a sync waits. */
void stop(bool on);
void wait_syncing(void);

/* A request of the space; its answer goes to @c, at once or later. */
void submit(struct call *c, u16 command, u32 epoch, u16 flags, const void *more,
	    size_t bytes, u32 count);
/* TRACE_START of all regions. */
void submit_start(struct call *c, u32 epoch, u16 flags);
bool is_done(struct call *c);
/* Until it is answered; the status. */
u32 wait_for(struct call *c);
/* A request without entries, to its answer. */
u32 ask(u16 command, u32 epoch);

/* A host of this world; %NULL: there is none. */
struct dcm_gc_host *host_new(u64 hidden);
/* Before and after each test: @gc, with a space. */
int up(void **state);
int down(void **state);

#endif /* GC_START_WORLD_H */

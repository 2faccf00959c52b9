/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * heap.h - tests/gc's runtime on libvgc: its heap is a space, and every
 * collection is checked against its own
 *
 * One heap, one thread at a time. An error of the device ends the program with a
 * line; an answer that a device may give comes back as a status.
 */
#ifndef QEMU_HEAP_H
#define QEMU_HEAP_H

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "../gc/mutator.h"
#include "libvgc.h"
#include "../framework/expect.h"

#define HEAP_REGION	(64ull << 10)
#define HEAP_REGIONS	288u	/* 18 MiB */
#define HEAP_SPARE	72u	/* regions at the end that begin empty */
#define HEAP_TABLES	24u	/* of those, at the end: bitmaps */
#define HEAP_TABLES_AT	(HEAP_REGIONS - HEAP_TABLES)
#define HEAP_MOVES	8u	/* in one EVACUATE */
#define HEAP_ROOM	65536u

/**
 * struct heap_loss - a donor that is killed while a command is under way
 * @command: 0: none
 * @victim: the process to kill; 0: it is on another machine, and the test that reads
 *	our output kills it
 * @took_us: each command, when it was last done
 * @copies: another donor has what it had: nothing may be lost
 * @happened: it is dead, and @lost of the heap says what that cost
 */
struct heap_loss {
	u16 command;
	pid_t victim;
	pthread_t killer;
	u32 delay_us;
	u64 began_us;
	u32 took_us[VIRTIO_GC_CANCEL + 1];
	bool copies;
	bool happened;
};

/**
 * struct heap - a heap in a space
 * @m: what is in it; its host's copy is the space itself
 * @own: where it was made, before there was a space
 * @live: a byte for each object: what the runtime's own collector last found
 * @was: a copy of the space
 * @now: for each unit of the space the unit where its object is after a move
 * @donor: of each region, as heap_where() found
 * @move: what was asked for, or COMPACT answered; until it is released
 * @deadline_ms: of each command; 0: the device's longest
 * @lost: a byte for each region: a donor took it along
 * @loss: the donor that is killed, and when
 * @answer: the last one
 */
struct heap {
	struct vgc *v;
	struct mut *m;
	char *space;
	u64 bytes;
	u32 regions;
	u32 epoch;
	u32 deadline_ms;
	u8 *own;
	u8 *live;
	u8 *was;
	u64 *now;
	u32 *donor;
	u32 nr_moves;
	struct virtio_gc_move move[HEAP_REGIONS];
	u16 asked;		/* what is answered */
	const u64 *touched;	/* how often another thread has; or NULL */
	u8 lost[HEAP_REGIONS];
	struct heap_loss loss;
	union {
		struct virtio_gc_done done;
		u64 words[HEAP_ROOM / 8];
	} answer;
};

/* A heap of the seed's shape, in a new space of @device. */
void heap_open(struct heap *h, const char *device, u32 seed);
void heap_close(struct heap *h);

/* A command; its status. */
u32 heap_ask(struct heap *h, u16 command, u16 flags, u32 count, const void *arg,
	     size_t arg_bytes, const void *entries, size_t entry_bytes);

/* A status that must be @want. */
#define heap_must(h, status, want)                                   \
	do {                                                         \
		u32 got_ = (status);                                 \
		EXPECT(got_ == (want),                                   \
		      "command %u: status %u of donor %d, at %llx",     \
		      (h)->asked, got_, (int)(h)->answer.done.donor, \
		      (unsigned long long)(h)->answer.done.at);      \
	} while (0)

/* A placement hint; a status. */
u32 heap_hint(struct heap *h, u32 what, u64 offset, u64 bytes);

/* The first @n regions with their tops, but for those that are being moved. */
u32 heap_regions(const struct heap *h, struct virtio_gc_region *list, u32 n);

/*
 * Ask which donor has each region now: what was given back may have gone to
 * another. VIRTIO_GC_OK, or WORKER_LOST where failures are expected.
 */
u32 heap_where(struct heap *h);

/* All of it is with donors: which one has each region. */
void heap_donors(struct heap *h);

/* TRACE_BITMAPS; a status: if OK, they are those that TRACE_RESULTS wrote. */
u32 heap_bitmaps(struct heap *h);

/* The whole heap while it stands still: a status; if OK, the same is live. */
u32 heap_trace(struct heap *h);
/* Its first command alone, which looks at no page. */
u32 heap_trace_start(struct heap *h);
/* Written to meanwhile, without a barrier: stale, as a whole or that region. */
void heap_trace_stale(struct heap *h);
/* With a barrier, while it runs; a status: if OK, what lived is found. */
u32 heap_trace_running(struct heap *h);

/*
 * Regions moved, with the last trace. The status of EVACUATE; once that is OK
 * the move is finished, by the runtime itself where the device fails, and
 * checked object by object.
 */
u32 heap_evacuate(struct heap *h, u32 *moves);
/*
 * Compact the regions on a donor: the status of COMPACT. Its moves are checked as after
 * heap_evacuate(), and the runtime finishes those that COMPACT has not.
 */
u32 heap_compact(struct heap *h, u32 donor, u32 *moves);

/* Large arrays become all zero; how many. */
u32 heap_arrays_clear(struct heap *h);
/* Objects lose all they refer to, until so much of what lives is left. */
void heap_drop(struct heap *h, u32 percent);

/* Regions that are neither being moved nor lost are as they were when @was was taken. */
void heap_remember(struct heap *h);
void heap_same(struct heap *h);

/* Around a command: the one that somebody is to die of. */
void heap_loss_begin(struct heap *h, u16 command);
void heap_loss_end(struct heap *h, u16 command);
/* A move that lost a part, and that the runtime can't finish, is lost as a whole. */
void heap_loss_moves(struct heap *h);
/* The runtime goes on with what is left; how many regions it does without. */
u32 heap_loss_over(struct heap *h);

#endif /* QEMU_HEAP_H */

/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * workers.h - the GC workers of a window's donors, working together
 *
 * One thread's. A command is given whole (dcm_gc_request_read()), and is over
 * when dcm_gc_workers_do() returns; between commands dcm_gc_workers_idle() carries
 * what workers say to each other. Knows nothing of pages: whoever calls has made
 * the donors' copies current before a command that needs it.
 */
#ifndef DCM_GC_WORKERS_H
#define DCM_GC_WORKERS_H

#include "../proto/gc_request.h"
#include "../client/client.h"

#define DCM_GC_WORKERS_SPACES 16u
#define DCM_GC_WORKERS_REPLY DCM_WIRE_PAYLOAD_MAX
/* Of TRACE_START: a region was, or is, between two places; settle, try again. */
#define DCM_GC_WORKERS_MOVING VIRTIO_GC_STATUSES

struct dcm_gc_workers;

/**
 * struct dcm_gc_place_of - where a piece of the window is
 * @donor: index of the client's
 * @slab: its id
 * @offset: in the slab
 */
struct dcm_gc_place_of {
	u32 donor;
	u64 slab;
	u64 offset;
};

/**
 * struct dcm_gc_workers_ops - what the workers of a window ask
 * @place: where region @region of a space is; false: on no donor, or it is
 *	being moved to another
 * @tag: counts writes to a region where it is: the same as before if none began or
 *	ended, and none was on its way then. false: it can't be told
 * @bits: a piece of a live bitmap, for space offset @at
 * @cancelled: is the command that runs to end?
 */
struct dcm_gc_workers_ops {
	bool (*place)(void *arg, u32 space, u32 region,
		      struct dcm_gc_place_of *place);
	bool (*tag)(void *arg, u32 space, u32 region,
		    const struct dcm_gc_place_of *place, u32 *tag);
	void (*bits)(void *arg, u32 space, u64 at, const void *bits,
		     size_t bytes);
	bool (*cancelled)(void *arg);
};

/* An answer: @done, then as many entries as it says. */
struct dcm_gc_reply {
	struct virtio_gc_done done;
	u8 entries[DCM_GC_WORKERS_REPLY - sizeof(struct virtio_gc_done)];
};

/* @bytes: of all spaces there may be. %NULL: no memory. */
struct dcm_gc_workers *dcm_gc_workers_new(struct dcm_client *client, u64 bytes,
					  const struct dcm_gc_workers_ops *ops,
					  void *arg);
void dcm_gc_workers_free(struct dcm_gc_workers *t);

/**
 * dcm_gc_workers_do() - a command of a space, but CLEAN, HINT and CANCEL
 * @r: as read, from @raw
 * @raw: the whole request
 * @bytes: of it
 * @expires_ms: on the monotonic clock
 * @out: the answer
 *
 * Return: bytes of @out. After TIMED_OUT and CANCELLED nothing that a donor
 * still does reaches the space: who could not be stopped was killed.
 */
size_t dcm_gc_workers_do(struct dcm_gc_workers *t,
			 const struct dcm_gc_request *r, const void *raw,
			 size_t bytes, u64 expires_ms,
			 struct dcm_gc_reply *out);

/* After %DCM_GC_WORKERS_MOVING: has each region that @r lists with objects a place? */
bool dcm_gc_workers_rests(struct dcm_gc_workers *t,
			  const struct dcm_gc_request *r);

/* Carry messages until @wake is readable. At once if no worker runs: false. */
bool dcm_gc_workers_idle(struct dcm_gc_workers *t, int wake);

/* All traces, workers and spaces. */
void dcm_gc_workers_reset(struct dcm_gc_workers *t);

#endif /* DCM_GC_WORKERS_H */

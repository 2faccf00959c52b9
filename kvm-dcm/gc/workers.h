/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * workers.h - the GC workers of a window's donors, working together
 *
 * Used by one thread. A command is a whole request (dcm_gc_request_read()), and
 * has ended when dcm_gc_workers_do() returns; between commands
 * dcm_gc_workers_idle() forwards the workers' messages to each other. Knows
 * nothing of pages: the caller has synced them before a command that needs it.
 */
#ifndef DCM_GC_WORKERS_H
#define DCM_GC_WORKERS_H

#include "../proto/gc_reply.h"
#include "../proto/gc_request.h"
#include "../client/client.h"

/* A status of TRACE_START: a region's extent is or was moving: sync and try again. */
#define DCM_GC_WORKERS_MOVING VIRTIO_GC_STATUSES

struct dcm_gc_workers;

/**
 * struct dcm_gc_place_of - where a region of the window is
 * @donor: the client's index of the donor
 * @slab: id of the slab
 * @offset: in the slab, in bytes
 */
struct dcm_gc_place_of {
	u32 donor;
	u64 slab;
	u64 offset;
};

/**
 * struct dcm_gc_workers_ops - callbacks of the workers of a window
 * @place: the place of region @region of a space; false: it is on no donor, or it is
 *	being moved to another
 * @write_count: the write count of a region at its place. If two are equal, no write
 *	began or ended between them; and if the region was synced before the first,
 *	none was under way. false: unknown
 * @spread: workers have changed @n regions and reported success: copy the new bytes
 *	to the other slabs of the extents, if there are any. Returns a virtio-gc
 *	status, at @until_ms at the latest
 * @revert: stop spreading @n regions. With @keep the workers' bytes stay, and only the
 *	slab that they changed has them; without it pages get the bytes from before,
 *	if other slabs have these
 * @moved: the first @n entries of the answer are moves that are committed; references
 *	to the moved objects are updated next. Make sure that the runtime learns of
 *	these moves even if this process ends before it answers. False: that can't be
 *	done
 * @bits: write a part of a live bitmap at space offset @at
 * @cancelled: should the running command end?
 */
struct dcm_gc_workers_ops {
	bool (*place)(void *arg, u32 space, u32 region,
		      struct dcm_gc_place_of *place);
	bool (*write_count)(void *arg, u32 space, u32 region,
			    const struct dcm_gc_place_of *place, u32 *count);
	u32 (*spread)(void *arg, u32 space, u32 region, u32 n, u64 until_ms);
	void (*revert)(void *arg, u32 space, u32 region, u32 n, bool keep);
	bool (*moved)(void *arg, u32 n);
	void (*bits)(void *arg, u32 space, u64 at, const void *bits,
		     size_t bytes);
	bool (*cancelled)(void *arg);
};

/* @bytes: largest total size of all spaces. %NULL: no memory. */
struct dcm_gc_workers *dcm_gc_workers_new(struct dcm_client *client, u64 bytes,
					  const struct dcm_gc_workers_ops *ops,
					  void *arg);
void dcm_gc_workers_free(struct dcm_gc_workers *t);

/**
 * dcm_gc_workers_do() - carry out a command that has targets (commands.h)
 * @r: the request, as read from @raw
 * @raw: the whole request
 * @bytes: its length
 * @expires_ms: on the monotonic clock
 * @out: the answer, filled in
 *
 * After TIMED_OUT and CANCELLED no donor writes to the space any more: a worker
 * that could not be stopped was killed.
 */
void dcm_gc_workers_do(struct dcm_gc_workers *t, const struct dcm_gc_request *r,
		       const void *raw, size_t bytes, u64 expires_ms,
		       struct dcm_gc_reply *out);

/* After %DCM_GC_WORKERS_MOVING: has every region of @r with objects a place now? */
bool dcm_gc_workers_rests(struct dcm_gc_workers *t,
			  const struct dcm_gc_request *r);

/* Forward messages until @wake is readable. False at once if no worker runs. */
bool dcm_gc_workers_idle(struct dcm_gc_workers *t, int wake);

/* Drop all traces, workers and spaces. */
void dcm_gc_workers_reset(struct dcm_gc_workers *t);

#endif /* DCM_GC_WORKERS_H */

/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * backend.h - the pages under queue.c, and the two kinds of host
 *
 * A backend is a window of paged memory: libdcm's, in its own process
 * (uffd/gc_pages.c), or the kernel pager's, in dcm-hostd (hostd/gc.c). A host
 * is a device's other half: it works on a backend (queue.c), or forwards
 * requests to dcm-hostd (proxy.c).
 */
#ifndef DCM_GC_BACKEND_H
#define DCM_GC_BACKEND_H

#include "../include/libdcm_gc.h"
#include "workers.h"

/* Where @sync leaves pages. */
enum dcm_gc_sync {
	DCM_GC_SYNC_OUT, /* none stays direct */
	DCM_GC_SYNC_KEEP, /* they may stay direct */
	DCM_GC_SYNC_EXACT, /* so; later only pages are written that were written to */
};

/**
 * struct dcm_gc_backend_ops - pages of a window, as donors' GC workers need them
 * @freeze: make accesses to a range wait from now on. On return earlier accesses
 *	have been answered. Ranges may overlap
 * @thaw: end every freeze: accesses go on
 * @sync: write the range from @at to @end back until the donors' copy is
 *	complete. On return @at is the first byte that is not synced; with status
 *	DONOR_LOST the byte that is lost. The time limit @until_ms is on the
 *	monotonic clock
 * @losing: slabs are lost, but some of their pages are not yet marked lost:
 *	wait a moment before asking whether pages are left
 * @hint: a runtime's hint about a range: enum virtio_gc_hint_what, but not
 *	DISCARD. FETCH does not wait until pages have come
 * @forget: take FETCH back: pages of the range that are still queued are not fetched
 * @discard: make a range read zero from now on; 0 or a negative errno
 * @place: the donor and slab where workers find a byte; false: it is on no donor, or
 *	its extent is moving
 * @write_count: the write count of the range, which is at @place; see
 *	struct dcm_gc_workers_ops
 * @spread: workers have changed the range at its places: copy the new bytes to the
 *	other slabs, if there are any. The range was synced by DCM_GC_SYNC_OUT, and is
 *	frozen. OK, or TIMED_OUT at @until_ms: then @revert must follow
 * @revert: stop spreading the range. With @keep the workers' bytes stay, and only the
 *	slab that they changed has them; without it pages get the bytes from before,
 *	if other slabs have these
 * @moved: tell the submitter of request @token its answer for the case that this
 *	process ends before it answers; false: the submitter can't be told. %NULL: the
 *	submitter ends together with this process
 * @bits: write bytes into the window
 * @budget: the budget of the memory that the window is in, in bytes; 0: not known. Any
 *	thread
 * @end: the host is being closed
 *
 * Called by the GC thread, except @end, and except that a reset calls @discard and
 * @forget while that thread is idle. Offsets are in the window. Ranges are whole
 * regions, so at least 64 KiB and on one donor each; @discard's, @hint's
 * and @forget's are whole pages. @freeze and @sync return a virtio-gc status.
 */
struct dcm_gc_backend_ops {
	u32 (*freeze)(void *priv, u64 at, u64 bytes);
	void (*thaw)(void *priv);
	u32 (*sync)(void *priv, u64 *at, u64 end, enum dcm_gc_sync how,
		    u64 until_ms);
	bool (*losing)(void *priv);
	void (*hint)(void *priv, u64 at, u64 bytes, u32 what);
	void (*forget)(void *priv, u64 at, u64 bytes);
	int (*discard)(void *priv, u64 at, u64 bytes);
	bool (*place)(void *priv, u64 at, struct dcm_gc_place_of *place);
	bool (*write_count)(void *priv, u64 at, u64 bytes,
		    const struct dcm_gc_place_of *place, u32 *count);
	u32 (*spread)(void *priv, u64 at, u64 end, u64 until_ms);
	void (*revert)(void *priv, u64 at, u64 end, bool keep);
	bool (*moved)(void *priv, void *token, const void *answer,
		      size_t bytes);
	void (*bits)(void *priv, u64 at, const void *bits, size_t bytes);
	u64 (*budget)(void *priv);
	void (*end)(void *priv);
};

/**
 * struct dcm_gc_backend - a window
 * @priv: passed to @ops
 * @client: the client of the donors
 * @donors: number of donors
 * @bytes: size of the window
 * @extent: bytes of an extent; 0: the window does not begin with one
 * @hidden: features that are not offered, 1 << VIRTIO_GC_F_*
 */
struct dcm_gc_backend {
	const struct dcm_gc_backend_ops *ops;
	void *priv;
	struct dcm_client *client;
	u32 donors;
	u64 bytes;
	u64 extent;
	u64 hidden;
};

/* As dcm_gc_host_open(). Copies @backend; on failure @backend stays the caller's. */
struct dcm_gc_host *dcm_gc_host_new(const struct dcm_gc_backend *backend,
				    const struct dcm_gc_host_ops *ops,
				    void *priv, char *err, size_t len);

/* The bytes that dcm_gc_host_config() fills in */
#define DCM_GC_CONFIG_BYTES offsetof(struct virtio_gc_config, budget_mib)

/* Fill in the first DCM_GC_CONFIG_BYTES. Returns the features that can be offered. */
u64 dcm_gc_config_fill(u32 donors, u64 bytes, u64 extent,
		       struct virtio_gc_config *c);

/* The functions of libdcm_gc.h for one kind of host. */
struct dcm_gc_kind {
	void (*close)(struct dcm_gc_host *gc);
	u64 (*features)(struct dcm_gc_host *gc);
	void (*config)(struct dcm_gc_host *gc, struct virtio_gc_config *c);
	u64 (*budget)(struct dcm_gc_host *gc);
	void (*start)(struct dcm_gc_host *gc, u64 features);
	void (*submit)(struct dcm_gc_host *gc, const void *request,
		       size_t bytes, size_t room, void *token);
	void (*reset)(struct dcm_gc_host *gc);
};

/* First member of every kind of host. */
struct dcm_gc_host {
	const struct dcm_gc_kind *kind;
};

#endif /* DCM_GC_BACKEND_H */

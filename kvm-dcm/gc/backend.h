/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * backend.h - what queue.c is put on, and what it is one kind of
 *
 * A home is a window of paged memory: libdcm's, in its own process (gc_pages.c),
 * or the kernel pager's, in dcm-hostd (hostd/gc.c). A host's half of a device is
 * what works on a home (queue.c), or has that done elsewhere (proxy.c).
 */
#ifndef DCM_GC_BACKEND_H
#define DCM_GC_BACKEND_H

#include "../include/libdcm_gc.h"
#include "workers.h"

/**
 * struct dcm_gc_backend_ops - pages of a window, as donors' GC workers need them
 * @hold: accesses to a range wait from now on. Those that came before have been
 *	answered when it returns. Ranges may overlap
 * @release: all go on
 * @settle: a range's donors have all of it, from @at to @end. @at is then the first
 *	that is not settled, for DONOR_LOST what is lost. @keep: what is here stays,
 *	else nothing is. @until_ms: on the monotonic clock
 * @losing: slabs are lost, and pages of theirs still pass for kept: the answer to
 *	what is left has to wait, a moment
 * @hint: what a runtime knows of a range's use: enum virtio_gc_hint_what, but
 *	DISCARD
 * @discard: a range reads zero from now on; 0 or a negative errno
 * @place: where a byte is kept; false: nowhere, or it is moving
 * @tag: counts writes to a piece that is at @place, see struct dcm_gc_workers_ops
 * @bits: bytes are written into the window
 * @end: the host is closed
 *
 * The GC thread's, but @discard, which reset calls too while that rests, and
 * @end. Places are in the window; ranges whole regions, so at least 64 KiB and
 * on one donor each, but @discard's and @hint's, which are whole pages. @hold and
 * @settle return a virtio-gc status.
 */
struct dcm_gc_backend_ops {
	u32 (*hold)(void *home, u64 at, u64 bytes);
	void (*release)(void *home);
	u32 (*settle)(void *home, u64 *at, u64 end, bool keep, u64 until_ms);
	bool (*losing)(void *home);
	void (*hint)(void *home, u64 at, u64 bytes, u32 what);
	int (*discard)(void *home, u64 at, u64 bytes);
	bool (*place)(void *home, u64 at, struct dcm_gc_place_of *place);
	bool (*tag)(void *home, u64 at, u64 bytes,
		    const struct dcm_gc_place_of *place, u32 *tag);
	void (*bits)(void *home, u64 at, const void *bits, size_t bytes);
	void (*end)(void *home);
};

/**
 * struct dcm_gc_backend - a window
 * @priv: handed to @ops
 * @client: the client of the donors
 * @donors: how many it has
 * @bytes: of the window
 * @extent: bytes of an extent; 0: the window does not begin with one
 */
struct dcm_gc_backend {
	const struct dcm_gc_backend_ops *ops;
	void *priv;
	struct dcm_client *client;
	u32 donors;
	u64 bytes;
	u64 extent;
};

/* As dcm_gc_host_open(). @home is copied; after a failure it is the caller's. */
struct dcm_gc_host *dcm_gc_host_new(const struct dcm_gc_backend *home,
				    const struct dcm_gc_host_ops *ops,
				    void *priv, char *err, size_t len);

/* A device's configuration; the features it could offer. */
u64 dcm_gc_config_fill(u32 donors, u64 bytes, u64 extent,
		       struct virtio_gc_config *c);

/* The functions of libdcm_gc.h, of one kind of host. */
struct dcm_gc_kind {
	void (*close)(struct dcm_gc_host *gc);
	u64 (*features)(struct dcm_gc_host *gc);
	void (*config)(struct dcm_gc_host *gc, struct virtio_gc_config *c);
	void (*start)(struct dcm_gc_host *gc, u64 features);
	void (*submit)(struct dcm_gc_host *gc, const void *request,
		       size_t bytes, size_t room, void *token);
	void (*reset)(struct dcm_gc_host *gc);
};

/* First in whatever is a host. */
struct dcm_gc_host {
	const struct dcm_gc_kind *kind;
};

#endif /* DCM_GC_BACKEND_H */

/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * libdcm_gc.h - the host's half of a virtio-gc device
 *
 * A device moves bytes between virtqueues and a window of paged memory; what
 * they mean is known here. All that comes from the guest is handed on as it
 * came, of whatever length, and checked here:
 *
 *	gc = dcm_gc_host_open(pager, window, bytes, &ops, dev, err, sizeof(err));
 *	dcm_gc_host_start(gc, negotiated);
 *	dcm_gc_host_submit(gc, request, bytes, room, chain);
 *		ops.answered(dev, chain, answer, bytes), on a thread of libdcm's
 *	dcm_gc_host_reset(gc);
 *	dcm_gc_host_close(gc);
 *
 * The words are those of the virtio-gc specification, layouts those of
 * virtio_gc.h.
 *
 * Rules. Every request is answered once, also by reset and close, before they
 * return. answered() and donors_changed() may take locks, but none under which
 * a function of this header is called. Requests are taken as fast as they are
 * submitted: the caller bounds how many there are, as a virtqueue does.
 */
#ifndef LIBDCM_GC_H
#define LIBDCM_GC_H

#include "libdcm.h"
#include "virtio_gc.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dcm_gc_host;

/**
 * struct dcm_gc_host_ops - what a device is told
 * @answered: a request is done with. @answer (struct virtio_gc_done and
 *	entries) is valid during the call; 0 @bytes: the chain is to be used
 *	with length 0
 * @config_changed: the number of donors or the budget is another one
 */
struct dcm_gc_host_ops {
	void (*answered)(void *priv, void *token, const void *answer,
			 size_t bytes);
	void (*config_changed)(void *priv);
};

/**
 * dcm_gc_host_open() - a device's half, without spaces
 * @p: pager of the window, which must live longer
 * @window: start of paged memory
 * @bytes: of it: whole extents (dcm_pager_extent())
 * @err: receives one line saying what is wrong and what to do
 */
DCM_API struct dcm_gc_host *dcm_gc_host_open(struct dcm_pager *p, void *window,
					     size_t bytes,
					     const struct dcm_gc_host_ops *ops,
					     void *priv, char *err, size_t len);

/**
 * dcm_gc_host_connect() - the same on a file of the kernel pager
 * @path: of dcm-hostd's socket, which does the work; %NULL: where it usually is
 * @fd: the file, on a dcmfs, open to read and write; kept open
 * @window: where its first @bytes are mapped; %NULL: only the configuration is
 *	wanted, nothing is submitted
 *
 * While dcm-hostd is gone requests end with WORKER_LOST; another goes on.
 */
DCM_API struct dcm_gc_host *
dcm_gc_host_connect(const char *path, int fd, void *window, size_t bytes,
		    const struct dcm_gc_host_ops *ops, void *priv, char *err,
		    size_t len);
DCM_API void dcm_gc_host_close(struct dcm_gc_host *gc);

/** dcm_gc_host_features() - bits that can be offered, 1 << VIRTIO_GC_F_* */
DCM_API uint64_t dcm_gc_host_features(const struct dcm_gc_host *gc);

/**
 * dcm_gc_host_config() - the configuration as it is now
 * @config: filled in up to its @donors, and no further: a program may have been built
 *	when it had no more
 */
DCM_API void dcm_gc_host_config(struct dcm_gc_host *gc,
				struct virtio_gc_config *config);

/**
 * dcm_gc_host_budget() - bytes of the memory with the window that this host keeps in
 *	its own memory, at most; 0: not known
 *
 * May change at any time, which @config_changed tells at the latest with the next
 * request.
 */
DCM_API uint64_t dcm_gc_host_budget(struct dcm_gc_host *gc);

/**
 * dcm_gc_host_limits() - the configuration a window would have, the largest
 *	there can be, filled in as by dcm_gc_host_config()
 *
 * Return: the bits it would offer.
 */
DCM_API uint64_t dcm_gc_host_limits(struct dcm_pager *p,
				    struct virtio_gc_config *config);

/** dcm_gc_host_start() - the features that were agreed on, before requests */
DCM_API void dcm_gc_host_start(struct dcm_gc_host *gc, uint64_t features);

/**
 * dcm_gc_host_submit() - hand over a request of the guest
 * @request: the device-readable part; copied. A request longer than the
 *	configuration's request_max is refused: pass request_max + 1 bytes of it
 * @bytes: of @request
 * @room: bytes of the device-writable part
 * @token: handed to answered()
 */
DCM_API void dcm_gc_host_submit(struct dcm_gc_host *gc, const void *request,
				size_t bytes, size_t room, void *token);

/** dcm_gc_host_reset() - end everything, forget spaces, empty the window */
DCM_API void dcm_gc_host_reset(struct dcm_gc_host *gc);

#ifdef __cplusplus
}
#endif

#endif /* LIBDCM_GC_H */

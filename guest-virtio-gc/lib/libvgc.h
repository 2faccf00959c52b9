/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libvgc.h - virtio-gc for a runtime
 *
 *	struct vgc *v = vgc_open(NULL, err, sizeof(err));
 *	heap = vgc_create(v, &space);
 *	struct vgc_call c = {
 *		.command = VIRTIO_GC_TRACE_ROOTS, .epoch = 1,
 *		.entries = roots, .entry_bytes = 8, .count = n,
 *		.answer = &done, .answer_room = sizeof(done),
 *	};
 *	if (vgc_do(v, &c) || done.status != VIRTIO_GC_OK)
 *		... collect locally ...
 *	vgc_close(v);
 *
 * One struct vgc is one space. Commands and answers are those of virtio_gc.h;
 * the library assembles requests, passes them to the provider of the device,
 * and gives each answer to the thread that waits for it. The provider is the
 * driver in a guest or, for a program that runs where the donors can be
 * reached, libdcm in the same process: its pager's memory is the space.
 *
 * Rules. Link with -lvgc, and -ldcm for libdcm (-Wl,--no-as-needed before it:
 * libvgc does not need it). Every function is thread-safe, but for vgc_close().
 * They return 0 or a negative errno; the answer has the status of a command.
 * -EIO: the device gave the buffer back without an answer; -ENODEV: the device
 * is gone. After any error the heap is as usable as before. Only vgc_open() and
 * vgc_start() allocate memory.
 */
#ifndef LIBVGC_H
#define LIBVGC_H

#include <stddef.h>
#include <stdint.h>

#include "vgc.h"

#ifdef __cplusplus
extern "C" {
#endif

#define VGC_API __attribute__((visibility("default")))

struct vgc;

/**
 * struct vgc_call - a command and its answer
 * @command: enum virtio_gc_command; not SPACE_CREATE and SPACE_DESTROY
 * @flags: the command's
 * @epoch: of the trace it belongs to, else 0
 * @deadline_ms: 0: the device's longest
 * @tag: names the call for CANCEL
 * @arg: the command's own struct, of @arg_bytes
 * @entries: @count of @entry_bytes each
 * @tail: bytes that follow them, @tail_bytes (the runs of TYPES_ADD)
 * @answer: receives struct virtio_gc_done and entries, @answer_room bytes
 * @answer_bytes: how many were received
 *
 * The library owns it from vgc_start() until vgc_wait() has returned for it.
 */
struct vgc_call {
	uint16_t command;
	uint16_t flags;
	uint32_t epoch;
	uint32_t deadline_ms;
	uint32_t count;
	uint64_t tag;
	const void *arg;
	const void *entries;
	const void *tail;
	void *answer;
	uint32_t arg_bytes;
	uint32_t entry_bytes;
	uint32_t tail_bytes;
	uint32_t answer_room;
	uint32_t answer_bytes;

	/* private to the library */
	int error;
	int state;
};

/**
 * vgc_open() - a connection to a device
 * @device: a device node, or "dcm:FILE" for libdcm with this configuration;
 *	%NULL: $VGC_DEVICE, or /dev/vgc0
 * @err: receives one line saying what is wrong and what to do
 */
VGC_API struct vgc *vgc_open(const char *device, char *err, size_t len);

/**
 * vgc_close() - end the space, and drop unanswered calls
 *
 * No thread may use @v, or the space's memory, any more.
 */
VGC_API void vgc_close(struct vgc *v);

/** vgc_info() - the device's limits and features, as they were at open */
VGC_API const struct vgc_info *vgc_info(const struct vgc *v);

/**
 * vgc_budget() - bytes that the host keeps in its own memory, at most, of the memory
 *	with the window; 0: not known
 *
 * It can change at any time. Memory that a runtime uses all the time should fit into it.
 */
VGC_API uint64_t vgc_budget(const struct vgc *v);

/**
 * vgc_create() - create the space, and map it
 * @space: @window is 0; @address: where to map it, which must be free
 *
 * Return: @space->address, or %NULL and errno (see vgc.h).
 */
VGC_API void *vgc_create(struct vgc *v, const struct virtio_gc_space *space);

/**
 * vgc_create_over() - create the space over a range that the caller has reserved
 * @space: as for vgc_create(); @bytes is a multiple of the device's
 *	@region_bytes_max. All of [@address, @address + @bytes) is the caller's
 *	own mapping, which is replaced
 *
 * A runtime that needs its heap at a good place finds the place with
 * mmap(PROT_NONE), and no other thread's mmap() can take the place meanwhile.
 * When this fails, and after vgc_close(), the range is reserved again
 * (PROT_NONE), without its content; the caller unmaps it.
 *
 * Return: @space->address, or %NULL and errno (see vgc.h).
 */
VGC_API void *vgc_create_over(struct vgc *v,
			      const struct virtio_gc_space *space);

/** vgc_do() - run a command and wait for its answer */
VGC_API int vgc_do(struct vgc *v, struct vgc_call *call);

/** vgc_start() - send a command; -EAGAIN: too many are unanswered */
VGC_API int vgc_start(struct vgc *v, struct vgc_call *call);

/**
 * vgc_wait() - wait until a started call is done
 * @timeout_ms: -1: for ever
 *
 * Return: 0, -EIO or -ENODEV, or -ETIMEDOUT: it is still unanswered.
 */
VGC_API int vgc_wait(struct vgc *v, struct vgc_call *call, int timeout_ms);

#ifdef __cplusplus
}
#endif

#endif /* LIBVGC_H */

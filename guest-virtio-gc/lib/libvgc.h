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
 * the library puts requests together, hands them to whatever provides the
 * device, and brings the answers back to whoever waits for them. That is the
 * driver in a guest, or, for a program that runs where the donors can be
 * reached, libdcm in the same process: its pager's memory is the space.
 *
 * Rules. Link with -lvgc, and -ldcm for libdcm (-Wl,--no-as-needed before it:
 * libvgc does without where it is not there). Every function is thread-safe, but for vgc_close().
 * They return 0 or a negative errno; what became of a command is in its answer.
 * -EIO: it was used without an answer, -ENODEV: the device is gone. After any
 * error the heap is as usable as before. Nothing here allocates but vgc_open()
 * and vgc_start().
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
 * @tag: what a CANCEL of it names
 * @arg: the command's own struct, of @arg_bytes
 * @entries: @count of @entry_bytes each
 * @tail: and what follows them, of @tail_bytes (the runs of TYPES_ADD)
 * @answer: receives struct virtio_gc_done and entries, @answer_room bytes
 * @answer_bytes: how many have come
 *
 * It is the library's from vgc_start() until vgc_wait() has returned for it.
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

	/* the library's */
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
 * vgc_close() - end the space, and what is on its way
 *
 * No thread may be in a function for it, or use its memory, any more.
 */
VGC_API void vgc_close(struct vgc *v);

/** vgc_info() - the device's limits and features, as they were at open */
VGC_API const struct vgc_info *vgc_info(const struct vgc *v);

/**
 * vgc_create() - create the space, and map it where it says
 * @space: @window is 0; @address: where to map it, which must be free
 *
 * Return: @space->address, or %NULL and errno (see vgc.h).
 */
VGC_API void *vgc_create(struct vgc *v, const struct virtio_gc_space *space);

/** vgc_do() - a command, and wait for its answer */
VGC_API int vgc_do(struct vgc *v, struct vgc_call *call);

/** vgc_start() - a command on its way; -EAGAIN: too many are */
VGC_API int vgc_start(struct vgc *v, struct vgc_call *call);

/**
 * vgc_wait() - until a call that was started is done with
 * @timeout_ms: -1: for ever
 *
 * Return: 0, -EIO or -ENODEV, or -ETIMEDOUT: it still is on its way.
 */
VGC_API int vgc_wait(struct vgc *v, struct vgc_call *call, int timeout_ms);

#ifdef __cplusplus
}
#endif

#endif /* LIBVGC_H */

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * vgc.h - /dev/vgcN, the interface of virtio_gc.ko for a runtime
 *
 * An open file has at most one space, its own for as long as the file or a
 * mapping of it is open; no other file can name that space.
 *
 *	fd = open("/dev/vgc0", O_RDWR | O_CLOEXEC)
 *	ioctl(fd, VGC_IOC_INFO, &info)		sizes and limits
 *	ioctl(fd, VGC_IOC_CREATE, &create)	the space
 *	mmap(address, bytes, ..., MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0)
 *	ioctl(fd, VGC_IOC_SUBMIT, &submit)	send a request
 *	poll(fd)				POLLIN: an answer has come
 *						POLLOUT: room for a request
 *	ioctl(fd, VGC_IOC_REAP, &reap)		get the answer
 *	close(fd), munmap()			the space is destroyed
 *
 * Requests and answers are those of virtio_gc.h, but only the driver sends
 * SPACE_CREATE and SPACE_DESTROY; it fills in req.space, which must be 0.
 * A child after fork() has the file, but not the mapping.
 *
 * All calls: ENODEV: the device is gone; EFAULT: an address is wrong; EINVAL: a
 * reserved field is not 0, or a size is out of range.
 */
#ifndef VGC_H
#define VGC_H

#include <linux/ioctl.h>
#include <linux/types.h>

#include "virtio_gc.h"

struct vgc_info {
	__u64 window_bytes;
	__u64 region_bytes_min;
	__u64 region_bytes_max;
	__u64 features;		/* 1 << VIRTIO_GC_F_* */
	__u32 types_max;
	__u32 regions_max;
	__u32 request_max;
	__u32 response_max;
	__u32 commands_max;	/* submitted and not reaped, of one file */
	__u32 deadline_max_ms;
	__u32 donors;
	__u32 budget_mib;	/* 0: not known */
};

/* @space: as in virtio_gc.h, but @window is 0: the driver sets it */
struct vgc_create {
	struct virtio_gc_space space;
	__u32 flags;		/* 0 */
	__u32 reserved;
};

/* REAP writes the answer's buffer, which must exist until then. */
struct vgc_submit {
	__u64 request;		/* address */
	__u64 answer;		/* address */
	__u32 request_bytes;
	__u32 answer_room;
	__u64 cookie;		/* comes back with REAP */
	__u32 flags;		/* 0 */
	__u32 reserved;
};

struct vgc_reap {
	__u64 cookie;
	__u32 answer_bytes;	/* 0: the device gave the buffer back empty */
	__u32 reserved;
};

#define VGC_IOC_MAGIC	'V'
#define VGC_IOC_INFO	_IOR(VGC_IOC_MAGIC, 0xc0, struct vgc_info)
/*
 * EEXIST: the file has one; ENOSPC: no room in the window, or too many spaces
 * (EDQUOT: of this user); EINVAL: the device refuses it; EIO: it answered
 * otherwise
 */
#define VGC_IOC_CREATE	_IOW(VGC_IOC_MAGIC, 0xc1, struct vgc_create)
/*
 * ENXIO: there is no space; EPERM: the command is the driver's; EAGAIN: too
 * many are not reaped: reap first
 */
#define VGC_IOC_SUBMIT	_IOW(VGC_IOC_MAGIC, 0xc2, struct vgc_submit)
/* EAGAIN: no answer has come. After EFAULT the answer is lost */
#define VGC_IOC_REAP	_IOR(VGC_IOC_MAGIC, 0xc3, struct vgc_reap)

#endif /* VGC_H */

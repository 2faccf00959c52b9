/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * vgc_drv.h - shared by the files of virtio_gc.ko
 *
 *	main.c	  the virtio device: probe, start, remove
 *	space.c	  spaces, from SPACE_CREATE to SPACE_DESTROY
 *	request.c requests, from buffers to the virtqueue and back
 *	file.c	  /dev/vgcN: ioctl, mmap, poll
 */
#ifndef VGC_DRV_H
#define VGC_DRV_H

#include <linux/completion.h>
#include <linux/idr.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/miscdevice.h>
#include <linux/mutex.h>
#include <linux/rwsem.h>
#include <linux/scatterlist.h>
#include <linux/spinlock.h>
#include <linux/uidgid.h>
#include <linux/virtio.h>
#include <linux/virtio_config.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "vgc.h"

struct vgc_file;
struct vgc_space;

/**
 * struct vgc_dev - a virtio-gc device
 * @ref: held by the driver and by each open file
 * @gone: held for reading while the window is used; @dead is set under it
 * @vq_lock: guards the virtqueue, @waiting, and the states of spaces
 * @waiting: requests of the driver's own that found no room in the virtqueue
 * @lock: guards @files and @spaces
 * @spaces: spaces, by their start
 */
struct vgc_dev {
	struct kref ref;
	struct virtio_device *vdev;
	struct miscdevice misc;
	char name[16];
	int index;
	struct virtio_shm_region window;
	void *mapped;
	struct vgc_info info;
	u32 spaces_max;

	struct rw_semaphore gone;
	bool dead;

	spinlock_t vq_lock;
	struct virtqueue *vq;
	struct list_head waiting;

	struct mutex lock;
	struct list_head files;
	struct list_head spaces;
	struct ida ids;

	struct work_struct free_work;
	struct delayed_work retry_work;
};

enum vgc_space_state {
	VGC_CREATING,
	VGC_LIVE,
	VGC_ORPHAN,	/* being created, but its process was killed */
	VGC_DESTROYING,
	VGC_RETRY,	/* the device could not destroy it: try again */
	VGC_FREE,
};

/**
 * struct vgc_request - a request with its buffers
 * @file: its file, a reference; %NULL: the driver's own
 * @done: called in interrupt context; @used bytes are in @in
 */
struct vgc_request {
	struct list_head list;
	struct vgc_file *file;
	struct vgc_space *space;
	void (*done)(struct vgc_request *r);
	u64 cookie;
	u64 answer;
	void *out;
	void *in;
	u32 out_bytes;
	u32 in_bytes;
	u32 used;
	bool failed;
	unsigned int out_sgs;
	unsigned int in_sgs;
	struct scatterlist sg[];
};

/**
 * struct vgc_space - a space and its part of the window, from before it is created
 *	until after it was destroyed
 * @state: under the device's vq_lock
 * @created: completed with the answer; @status is then valid
 * @request: made for creation, kept for destruction, which must not fail
 */
struct vgc_space {
	struct list_head list;
	struct vgc_dev *dev;
	enum vgc_space_state state;
	u64 start;
	u64 bytes;
	u32 id;
	u32 status;
	kuid_t owner;
	struct completion created;
	struct vgc_request *request;
};

/**
 * struct vgc_file - an open file
 * @ref: held by the file and by each unanswered request
 * @create_lock: one CREATE at a time
 * @space: set once
 * @lock: guards the rest
 * @in_flight: requests submitted and not reaped
 */
struct vgc_file {
	struct kref ref;
	struct list_head list;
	struct vgc_dev *dev;
	struct address_space *mapping;
	struct mutex create_lock;
	struct vgc_space *space;
	spinlock_t lock;
	wait_queue_head_t wait;
	struct list_head answered;
	u32 in_flight;
	bool closed;
};

/* main.c */
void vgc_dev_put(struct vgc_dev *dev);

/* request.c */
struct vgc_request *vgc_request_alloc(u32 out_bytes, u32 in_bytes);
void vgc_request_free(struct vgc_request *r);
int vgc_request_send(struct vgc_dev *dev, struct vgc_request *r);
void vgc_request_must_send(struct vgc_dev *dev, struct vgc_request *r);
void vgc_requests_answered(struct virtqueue *vq);
void vgc_requests_fail(struct vgc_dev *dev);

/* space.c */
struct vgc_space *vgc_space_create(struct vgc_dev *dev,
				   const struct virtio_gc_space *space);
void vgc_space_destroy(struct vgc_space *p);
void vgc_spaces_reap(struct vgc_dev *dev);
void vgc_spaces_retry(struct vgc_dev *dev);
void vgc_spaces_forget(struct vgc_dev *dev);

/* file.c */
extern const struct file_operations vgc_fops;
void vgc_files_gone(struct vgc_dev *dev);

#endif /* VGC_DRV_H */

// SPDX-License-Identifier: GPL-2.0-only
/*
 * request.c - a request's buffers, and the virtqueue
 *
 * Both parts of a request are copies in the kernel's memory: what a process
 * changes after submitting has no effect, and after a process has ended the
 * device writes to none of its memory. A request is freed when the device has
 * answered it, not before, even if no process waits any more.
 *
 * With indirect descriptors each takes one slot of the ring. A process's
 * request may find no room (-EAGAIN); the driver's own, which destroy spaces,
 * wait in
 * @waiting and go first.
 *
 * Locking: vq_lock, for the ring and @waiting. Answers come in interrupt
 * context; the callbacks are called without the lock.
 */
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "vgc_drv.h"

static unsigned int pages_count(const void *buf, u32 bytes)
{
	return DIV_ROUND_UP(offset_in_page(buf) + bytes, PAGE_SIZE);
}

static void pages_fill(struct scatterlist *sg, unsigned int n, void *buf,
		       u32 bytes)
{
	unsigned int i;

	sg_init_table(sg, n);
	for (i = 0; i < n; i++) {
		u32 here = min_t(u32, bytes, PAGE_SIZE - offset_in_page(buf));
		struct page *page = is_vmalloc_addr(buf) ?
					    vmalloc_to_page(buf) :
					    virt_to_page(buf);

		sg_set_page(&sg[i], page, here, offset_in_page(buf));
		buf += here;
		bytes -= here;
	}
}

/* Charged to the process; the device-writable part is zeroed. */
struct vgc_request *vgc_request_alloc(u32 out_bytes, u32 in_bytes)
{
	void *out = kvmalloc(out_bytes, GFP_KERNEL_ACCOUNT);
	void *in = kvzalloc(in_bytes, GFP_KERNEL_ACCOUNT);
	struct vgc_request *r = NULL;
	unsigned int n, m;

	if (!out || !in)
		goto fail;
	n = pages_count(out, out_bytes);
	m = pages_count(in, in_bytes);
	r = kvzalloc(struct_size(r, sg, n + m), GFP_KERNEL_ACCOUNT);
	if (!r)
		goto fail;
	INIT_LIST_HEAD(&r->list);
	r->out = out;
	r->in = in;
	r->out_bytes = out_bytes;
	r->in_bytes = in_bytes;
	r->out_sgs = n;
	r->in_sgs = m;
	pages_fill(r->sg, n, out, out_bytes);
	pages_fill(r->sg + n, m, in, in_bytes);
	return r;
fail:
	kvfree(out);
	kvfree(in);
	return NULL;
}

void vgc_request_free(struct vgc_request *r)
{
	if (!r)
		return;
	kvfree(r->out);
	kvfree(r->in);
	kvfree(r);
}

/* Under vq_lock. */
static int request_add(struct vgc_dev *dev, struct vgc_request *r)
{
	struct scatterlist *sgs[2] = { r->sg, r->sg + r->out_sgs };
	int err;

	if (!dev->vq)
		return -ENODEV;
	r->used = 0;
	r->failed = false;
	err = virtqueue_add_sgs(dev->vq, sgs, 1, 1, r, GFP_ATOMIC);
	if (err == -ENOSPC || err == -ENOMEM)
		return -EAGAIN;
	return err ? -ENODEV : 0;
}

int vgc_request_send(struct vgc_dev *dev, struct vgc_request *r)
{
	bool notify = false;
	unsigned long flags;
	int err;

	down_read(&dev->gone);
	if (dev->dead) {
		up_read(&dev->gone);
		return -ENODEV;
	}
	spin_lock_irqsave(&dev->vq_lock, flags);
	err = list_empty(&dev->waiting) ? request_add(dev, r) : -EAGAIN;
	if (!err)
		notify = virtqueue_kick_prepare(dev->vq);
	spin_unlock_irqrestore(&dev->vq_lock, flags);
	/* Not under the lock: it causes a VM exit. */
	if (notify)
		virtqueue_notify(dev->vq);
	up_read(&dev->gone);
	return err;
}

/*
 * Sent when there is room, at the latest when another is answered. Any context;
 * if the device is gone the request fails at once.
 */
void vgc_request_must_send(struct vgc_dev *dev, struct vgc_request *r)
{
	unsigned long flags;

	spin_lock_irqsave(&dev->vq_lock, flags);
	if (!dev->vq) {
		spin_unlock_irqrestore(&dev->vq_lock, flags);
		r->failed = true;
		r->done(r);
		return;
	}
	if (!list_empty(&dev->waiting) || request_add(dev, r))
		list_add_tail(&r->list, &dev->waiting);
	else
		virtqueue_kick(dev->vq);
	spin_unlock_irqrestore(&dev->vq_lock, flags);
}

/* The device has used buffers. */
void vgc_requests_answered(struct virtqueue *vq)
{
	struct vgc_dev *dev = vq->vdev->priv;
	struct vgc_request *r;
	unsigned long flags;
	unsigned int used;
	LIST_HEAD(done);
	bool sent = false;

	spin_lock_irqsave(&dev->vq_lock, flags);
	do {
		virtqueue_disable_cb(vq);
		while ((r = virtqueue_get_buf(vq, &used))) {
			/* The device's length is not trusted. */
			r->used = min(used, r->in_bytes);
			list_add_tail(&r->list, &done);
		}
	} while (!virtqueue_enable_cb(vq));
	while ((r = list_first_entry_or_null(&dev->waiting, struct vgc_request,
					     list))) {
		list_del_init(&r->list);
		if (request_add(dev, r)) {
			list_add(&r->list, &dev->waiting);
			break;
		}
		sent = true;
	}
	if (sent)
		virtqueue_kick(vq);
	spin_unlock_irqrestore(&dev->vq_lock, flags);

	while ((r = list_first_entry_or_null(&done, struct vgc_request,
					     list))) {
		list_del_init(&r->list);
		r->done(r);
	}
}

/* The device was reset and will answer no request any more. */
void vgc_requests_fail(struct vgc_dev *dev)
{
	struct vgc_request *r;
	unsigned long flags;
	LIST_HEAD(done);

	spin_lock_irqsave(&dev->vq_lock, flags);
	while ((r = virtqueue_detach_unused_buf(dev->vq)))
		list_add_tail(&r->list, &done);
	list_splice_tail_init(&dev->waiting, &done);
	dev->vq = NULL;
	spin_unlock_irqrestore(&dev->vq_lock, flags);

	while ((r = list_first_entry_or_null(&done, struct vgc_request,
					     list))) {
		list_del_init(&r->list);
		r->failed = true;
		r->done(r);
	}
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * space.c - spaces, and which parts of the window are free
 *
 * First fit, aligned to regions, as spaces are few and large. A space has its
 * part of the window from before the device creates it until the device has
 * confirmed that it is destroyed: until then the device may still write there.
 *
 *	CREATING --answer--> LIVE --file closed--> DESTROYING --answer--> FREE
 *	    |                                      ^   |  ^
 *	    | its process was killed               |   v  | a second later
 *	    +----> ORPHAN --answer-----------------+  RETRY
 *
 * When the device goes a space is FREE at once, as a reset forgets all spaces.
 * A work item, or the function that ends the device, takes FREE spaces off the
 * list.
 *
 * Locking: vq_lock for states, as answers come in interrupt context; the
 * device's lock for the list. A space holds a reference to its device.
 */
#include <linux/cred.h>
#include <linux/math64.h>
#include <linux/slab.h>

#include "vgc_drv.h"

#define NO_ANSWER VIRTIO_GC_STATUSES
#define RETRY_DELAY HZ

static unsigned int user_spaces_max = 4;
module_param(user_spaces_max, uint, 0644);
MODULE_PARM_DESC(user_spaces_max,
		 "spaces one user may have, without CAP_SYS_RESOURCE");

static u32 status_of(const struct vgc_request *r)
{
	const struct virtio_gc_done *d = r->in;
	u32 status;

	if (r->failed || r->used < sizeof(*d))
		return NO_ANSWER;
	status = le32_to_cpu(d->status);
	return min_t(u32, status, NO_ANSWER);
}

static void space_free(struct vgc_space *p)
{
	vgc_request_free(p->request);
	kfree(p);
}

/* ---- destroying ---- */

static void space_send_destroy(struct vgc_space *p)
{
	struct virtio_gc_req *q = p->request->out;

	memset(q, 0, sizeof(*q));
	q->command = cpu_to_le16(VIRTIO_GC_SPACE_DESTROY);
	q->space = cpu_to_le32(p->id);
	vgc_request_must_send(p->dev, p->request);
}

static void space_destroyed(struct vgc_request *r)
{
	struct vgc_space *p = r->space;
	struct vgc_dev *dev = p->dev;
	u32 status = status_of(r);
	unsigned long flags;
	bool dead;

	spin_lock_irqsave(&dev->vq_lock, flags);
	/* INVALID: there is no such space. */
	if (r->failed || status == VIRTIO_GC_OK || status == VIRTIO_GC_INVALID)
		p->state = VGC_FREE;
	else
		p->state = VGC_RETRY;
	/* If the device is going, vgc_spaces_forget() frees the space. */
	dead = !dev->vq;
	if (!dead && p->state == VGC_FREE)
		schedule_work(&dev->free_work);
	if (!dead && p->state == VGC_RETRY)
		schedule_delayed_work(&dev->retry_work, RETRY_DELAY);
	spin_unlock_irqrestore(&dev->vq_lock, flags);
}

/* The file is closed and unmapped; the space is no longer the caller's. */
void vgc_space_destroy(struct vgc_space *p)
{
	unsigned long flags;

	spin_lock_irqsave(&p->dev->vq_lock, flags);
	p->state = VGC_DESTROYING;
	spin_unlock_irqrestore(&p->dev->vq_lock, flags);
	space_send_destroy(p);
}

/* Free the spaces that are FREE. */
void vgc_spaces_reap(struct vgc_dev *dev)
{
	struct vgc_space *p, *next;
	LIST_HEAD(gone);

	mutex_lock(&dev->lock);
	spin_lock_irq(&dev->vq_lock);
	list_for_each_entry_safe(p, next, &dev->spaces, list)
		if (p->state == VGC_FREE)
			list_move(&p->list, &gone);
	spin_unlock_irq(&dev->vq_lock);
	list_for_each_entry(p, &gone, list)
		ida_free(&dev->ids, p->id);
	mutex_unlock(&dev->lock);
	list_for_each_entry_safe(p, next, &gone, list) {
		space_free(p);
		vgc_dev_put(dev);
	}
}

void vgc_spaces_retry(struct vgc_dev *dev)
{
	struct vgc_space *p;
	bool ours;

	mutex_lock(&dev->lock);
	list_for_each_entry(p, &dev->spaces, list) {
		spin_lock_irq(&dev->vq_lock);
		ours = p->state == VGC_RETRY;
		if (ours)
			p->state = VGC_DESTROYING;
		spin_unlock_irq(&dev->vq_lock);
		if (ours)
			space_send_destroy(p);
	}
	mutex_unlock(&dev->lock);
}

/* After vgc_requests_fail(): no request is in flight any more. */
void vgc_spaces_forget(struct vgc_dev *dev)
{
	struct vgc_space *p;

	mutex_lock(&dev->lock);
	spin_lock_irq(&dev->vq_lock);
	list_for_each_entry(p, &dev->spaces, list)
		if (p->state == VGC_RETRY)
			p->state = VGC_FREE;
	spin_unlock_irq(&dev->vq_lock);
	mutex_unlock(&dev->lock);
	vgc_spaces_reap(dev);
}

/* ---- creating ---- */

static void space_created(struct vgc_request *r)
{
	struct vgc_space *p = r->space;
	struct vgc_dev *dev = p->dev;
	u32 status = status_of(r);
	unsigned long flags;
	bool orphan;

	vgc_request_free(r);
	spin_lock_irqsave(&dev->vq_lock, flags);
	p->status = status;
	orphan = p->state == VGC_ORPHAN;
	/* Destroy even a refused one later: the space may exist. */
	p->state = orphan ? VGC_DESTROYING : VGC_LIVE;
	spin_unlock_irqrestore(&dev->vq_lock, flags);
	if (orphan)
		space_send_destroy(p);
	else
		complete(&p->created);
}

/* Under the lock: find room for a space; it goes before *@next. */
static bool space_find_room(struct vgc_dev *dev, u64 bytes, u64 align,
			    u64 *start, struct list_head **next)
{
	struct vgc_space *p;
	u64 at = 0;

	list_for_each_entry(p, &dev->spaces, list) {
		if (p->start >= at && p->start - at >= bytes)
			break;
		at = ALIGN(p->start + p->bytes, align);
	}
	*next = &p->list;
	*start = at;
	return at < dev->info.window_bytes &&
	       dev->info.window_bytes - at >= bytes;
}

static bool owner_over_quota(struct vgc_dev *dev, kuid_t uid)
{
	struct vgc_space *p;
	unsigned int n = 0;

	list_for_each_entry(p, &dev->spaces, list)
		n += uid_eq(p->owner, uid);
	return n >= user_spaces_max && !capable(CAP_SYS_RESOURCE);
}

static int space_place(struct vgc_dev *dev, struct vgc_space *p, u64 align)
{
	struct list_head *next;
	int id, err = 0;

	mutex_lock(&dev->lock);
	if (owner_over_quota(dev, p->owner)) {
		err = -EDQUOT;
		goto out;
	}
	if (!space_find_room(dev, p->bytes, align, &p->start, &next)) {
		err = -ENOSPC;
		goto out;
	}
	id = ida_alloc_max(&dev->ids, dev->spaces_max - 1, GFP_KERNEL);
	if (id < 0) {
		err = id;
		goto out;
	}
	p->id = id;
	kref_get(&dev->ref);
	list_add_tail(&p->list, next);
out:
	mutex_unlock(&dev->lock);
	return err;
}

static int errno_of(u32 status)
{
	switch (status) {
	case VIRTIO_GC_OK:
		return 0;
	case VIRTIO_GC_INVALID:
	case VIRTIO_GC_UNSUPPORTED:
		return -EINVAL;
	case VIRTIO_GC_LIMIT:
	case VIRTIO_GC_NO_SPACE:
		return -ENOSPC;
	case VIRTIO_GC_TIMED_OUT:
		return -ETIMEDOUT;
	default:
		return -EIO;
	}
}

/* The device was never asked to create the space. */
static void space_give_back(struct vgc_space *p)
{
	struct vgc_dev *dev = p->dev;

	spin_lock_irq(&dev->vq_lock);
	p->state = VGC_FREE;
	spin_unlock_irq(&dev->vq_lock);
	vgc_spaces_reap(dev);
}

/* True if the caller was killed first: the space is no longer the caller's. */
static bool space_abandoned(struct vgc_space *p)
{
	bool orphan;

	if (!wait_for_completion_killable(&p->created))
		return false;
	spin_lock_irq(&p->dev->vq_lock);
	orphan = p->state == VGC_CREATING;
	if (orphan)
		p->state = VGC_ORPHAN;
	spin_unlock_irq(&p->dev->vq_lock);
	if (!orphan)
		wait_for_completion(&p->created);
	return orphan;
}

static void request_fill_create(struct vgc_request *r,
				const struct vgc_space *p,
				const struct virtio_gc_space *space)
{
	struct virtio_gc_req *q = r->out;
	struct virtio_gc_space *s = (void *)(q + 1);

	memset(q, 0, sizeof(*q));
	q->command = cpu_to_le16(VIRTIO_GC_SPACE_CREATE);
	q->space = cpu_to_le32(p->id);
	*s = *space;
	s->window = cpu_to_le64(p->start);
}

/**
 * vgc_space_create() - take a part of the window, and create a space in it
 * @dev: the device
 * @space: its sizes are checked here as far as the driver needs them
 *
 * Return: the space, or an error.
 */
struct vgc_space *vgc_space_create(struct vgc_dev *dev,
				   const struct virtio_gc_space *space)
{
	u64 align = le64_to_cpu(space->region_bytes);
	u64 bytes = le64_to_cpu(space->bytes);
	struct vgc_request *r;
	struct vgc_space *p;
	int err = -ENOMEM;

	if (align < PAGE_SIZE || !is_power_of_2(align) ||
	    align > dev->info.region_bytes_max ||
	    align < dev->info.region_bytes_min || !bytes ||
	    !IS_ALIGNED(bytes, align) || bytes > dev->info.window_bytes)
		return ERR_PTR(-EINVAL);
	p = kzalloc(sizeof(*p), GFP_KERNEL_ACCOUNT);
	r = vgc_request_alloc(sizeof(struct virtio_gc_req) + sizeof(*space),
			      sizeof(struct virtio_gc_done));
	if (!p || !r)
		goto fail;
	p->request = vgc_request_alloc(sizeof(struct virtio_gc_req),
				       sizeof(struct virtio_gc_done));
	if (!p->request)
		goto fail;
	p->request->space = p;
	p->request->done = space_destroyed;
	p->dev = dev;
	p->bytes = bytes;
	p->owner = current_uid();
	p->state = VGC_CREATING;
	init_completion(&p->created);
	r->space = p;
	r->done = space_created;

	err = space_place(dev, p, align);
	if (err)
		goto fail;
	request_fill_create(r, p, space);
	err = vgc_request_send(dev, r);
	if (err) {
		vgc_request_free(r);
		space_give_back(p);
		return ERR_PTR(err);
	}
	if (space_abandoned(p))
		return ERR_PTR(-EINTR);
	if (p->status == VIRTIO_GC_OK)
		return p;
	err = errno_of(p->status);
	vgc_space_destroy(p);
	return ERR_PTR(READ_ONCE(dev->dead) ? -ENODEV : err);
fail:
	vgc_request_free(r);
	if (p)
		space_free(p);
	return ERR_PTR(err);
}

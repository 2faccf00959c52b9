// SPDX-License-Identifier: GPL-2.0-only
/*
 * file.c - /dev/vgcN: a space for each process that opens it
 *
 * The mapping shows the device's memory, without struct pages: a fault maps
 * some pages at a time. The mapping keeps the file open, so the space ends when
 * the last mapping and the last descriptor are gone, however a process ends.
 * Unanswered requests are not waited for then: they hold the file's memory
 * until they are answered.
 *
 * When a device goes, its mappings are removed; later accesses get SIGBUS, all
 * calls ENODEV.
 *
 * Locking: create_lock, then the device's locks. The file's lock is taken in
 * interrupt context. @space is written once, under create_lock, and read with
 * acquire.
 */
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/poll.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "vgc_drv.h"

#define AROUND_PAGES 16u /* mapped at one fault */

static struct vgc_dev *dev_of(struct file *f)
{
	return container_of(f->private_data, struct vgc_dev, misc);
}

static void file_release(struct kref *ref)
{
	struct vgc_file *vf = container_of(ref, struct vgc_file, ref);

	kfree(vf);
}

static void file_put(struct vgc_file *vf)
{
	kref_put(&vf->ref, file_release);
}

static int vgc_open(struct inode *inode, struct file *f)
{
	struct vgc_dev *dev = dev_of(f);
	struct vgc_file *vf = kzalloc(sizeof(*vf), GFP_KERNEL_ACCOUNT);

	if (!vf)
		return -ENOMEM;
	kref_init(&vf->ref);
	mutex_init(&vf->create_lock);
	spin_lock_init(&vf->lock);
	init_waitqueue_head(&vf->wait);
	INIT_LIST_HEAD(&vf->answered);
	vf->dev = dev;
	vf->mapping = inode->i_mapping;
	f->f_mapping = inode->i_mapping;
	/* misc_deregister() waits for us, so the driver's reference is held. */
	kref_get(&dev->ref);
	mutex_lock(&dev->lock);
	list_add(&vf->list, &dev->files);
	mutex_unlock(&dev->lock);
	f->private_data = vf;
	return nonseekable_open(inode, f);
}

static int vgc_release(struct inode *inode, struct file *f)
{
	struct vgc_file *vf = f->private_data;
	struct vgc_dev *dev = vf->dev;
	struct vgc_request *r, *next;
	LIST_HEAD(answered);

	mutex_lock(&dev->lock);
	list_del(&vf->list);
	mutex_unlock(&dev->lock);

	spin_lock_irq(&vf->lock);
	vf->closed = true;
	list_splice_init(&vf->answered, &answered);
	spin_unlock_irq(&vf->lock);
	list_for_each_entry_safe(r, next, &answered, list)
		vgc_request_free(r);

	if (vf->space)
		vgc_space_destroy(vf->space);
	if (READ_ONCE(dev->dead))
		vgc_spaces_reap(dev);
	file_put(vf);
	vgc_dev_put(dev);
	return 0;
}

/* ---- ioctl ---- */

/* Read the values that change while the device is in use */
static void info_update(struct virtio_device *vdev, struct vgc_info *info)
{
	virtio_cread_le(vdev, struct virtio_gc_config, donors, &info->donors);
	if (!virtio_has_feature(vdev, VIRTIO_GC_F_BUDGET))
		return;
	virtio_cread_le(vdev, struct virtio_gc_config, budget_mib,
			&info->budget_mib);
	/* a QEMU older than its libdcm offers the feature, and has no such field */
	if (info->budget_mib == U32_MAX)
		info->budget_mib = 0;
}

static int file_info(struct vgc_dev *dev, void __user *arg)
{
	struct vgc_info info = dev->info;
	int err = 0;

	down_read(&dev->gone);
	if (dev->dead)
		err = -ENODEV;
	else
		info_update(dev->vdev, &info);
	up_read(&dev->gone);
	if (err)
		return err;
	return copy_to_user(arg, &info, sizeof(info)) ? -EFAULT : 0;
}

static int file_create(struct vgc_file *vf, void __user *arg)
{
	struct vgc_create c;
	struct vgc_space *p;
	int err = 0;

	if (copy_from_user(&c, arg, sizeof(c)))
		return -EFAULT;
	if (c.flags || c.reserved || c.space.window)
		return -EINVAL;
	if (mutex_lock_killable(&vf->create_lock))
		return -EINTR;
	if (vf->space) {
		err = -EEXIST;
		goto out;
	}
	p = vgc_space_create(vf->dev, &c.space);
	if (IS_ERR(p))
		err = PTR_ERR(p);
	else
		smp_store_release(&vf->space, p); /* for file_submit(), mmap */
out:
	mutex_unlock(&vf->create_lock);
	return err;
}

/* Called in interrupt context, or when the device goes. */
static void request_answered(struct vgc_request *r)
{
	struct vgc_file *vf = r->file;
	unsigned long flags;
	bool closed;

	spin_lock_irqsave(&vf->lock, flags);
	closed = vf->closed;
	if (!closed)
		list_add_tail(&r->list, &vf->answered);
	spin_unlock_irqrestore(&vf->lock, flags);
	if (closed)
		vgc_request_free(r);
	else
		wake_up_interruptible(&vf->wait);
	file_put(vf);
}

static u32 answer_max(const struct vgc_info *info)
{
	u32 bitmaps = sizeof(struct virtio_gc_done) + VIRTIO_GC_BITMAPS_MAX;

	if (!(info->features & BIT_ULL(VIRTIO_GC_F_BITMAPS)))
		return info->response_max;
	return max(info->response_max, bitmaps);
}

/* One command is reserved for SPACE_DESTROY. */
static bool file_room(const struct vgc_file *vf)
{
	return READ_ONCE(vf->in_flight) < vf->dev->info.commands_max;
}

static bool file_count_in(struct vgc_file *vf)
{
	bool ok;

	spin_lock_irq(&vf->lock);
	ok = file_room(vf);
	if (ok)
		WRITE_ONCE(vf->in_flight, vf->in_flight + 1);
	spin_unlock_irq(&vf->lock);
	return ok;
}

static void file_count_out(struct vgc_file *vf)
{
	spin_lock_irq(&vf->lock);
	WRITE_ONCE(vf->in_flight, vf->in_flight - 1);
	spin_unlock_irq(&vf->lock);
	wake_up_interruptible(&vf->wait);
}

/* Copy the process's request and set the number of its space. */
static int request_copy(struct vgc_request *r, const struct vgc_submit *s,
			const struct vgc_space *p)
{
	struct virtio_gc_req *q = r->out;

	if (copy_from_user(r->out, u64_to_user_ptr(s->request),
			   s->request_bytes))
		return -EFAULT;
	if (q->space)
		return -EINVAL;
	q->space = cpu_to_le32(p->id);
	switch (le16_to_cpu(q->command)) {
	case VIRTIO_GC_SPACE_CREATE:
	case VIRTIO_GC_SPACE_DESTROY:
		return -EPERM;
	}
	return 0;
}

static int file_submit(struct vgc_file *vf, void __user *arg)
{
	struct vgc_space *p = smp_load_acquire(&vf->space); /* file_create() */
	const struct vgc_info *info = &vf->dev->info;
	struct vgc_request *r;
	struct vgc_submit s;
	int err;

	if (!p)
		return -ENXIO;
	/* Not EAGAIN: there may be nothing to reap. */
	if (READ_ONCE(vf->dev->dead))
		return -ENODEV;
	if (copy_from_user(&s, arg, sizeof(s)))
		return -EFAULT;
	if (s.flags || s.reserved ||
	    s.request_bytes < sizeof(struct virtio_gc_req) ||
	    s.request_bytes > info->request_max ||
	    s.answer_room < sizeof(struct virtio_gc_done) ||
	    s.answer_room > answer_max(info))
		return -EINVAL;
	if (!file_count_in(vf))
		return -EAGAIN;
	err = -ENOMEM;
	r = vgc_request_alloc(s.request_bytes, s.answer_room);
	if (!r)
		goto fail;
	err = request_copy(r, &s, p);
	if (err)
		goto fail;
	r->cookie = s.cookie;
	r->answer = s.answer;
	r->done = request_answered;
	r->file = vf;
	kref_get(&vf->ref);
	err = vgc_request_send(vf->dev, r);
	if (!err)
		return 0;
	file_put(vf);
fail:
	vgc_request_free(r);
	file_count_out(vf);
	return err;
}

static int file_reap(struct vgc_file *vf, void __user *arg)
{
	struct vgc_reap reap = {};
	struct vgc_request *r;
	int err = 0;

	spin_lock_irq(&vf->lock);
	r = list_first_entry_or_null(&vf->answered, struct vgc_request, list);
	if (r)
		list_del_init(&r->list);
	spin_unlock_irq(&vf->lock);
	if (!r)
		return READ_ONCE(vf->dev->dead) ? -ENODEV : -EAGAIN;
	if (r->failed) {
		err = -ENODEV;
		goto out;
	}
	reap.cookie = r->cookie;
	reap.answer_bytes = r->used;
	if (copy_to_user(u64_to_user_ptr(r->answer), r->in, r->used) ||
	    copy_to_user(arg, &reap, sizeof(reap)))
		err = -EFAULT;
out:
	vgc_request_free(r);
	file_count_out(vf);
	return err;
}

static long vgc_ioctl(struct file *f, unsigned int cmd, unsigned long arg)
{
	struct vgc_file *vf = f->private_data;
	void __user *p = (void __user *)arg;

	switch (cmd) {
	case VGC_IOC_INFO:
		return file_info(vf->dev, p);
	case VGC_IOC_CREATE:
		return file_create(vf, p);
	case VGC_IOC_SUBMIT:
		return file_submit(vf, p);
	case VGC_IOC_REAP:
		return file_reap(vf, p);
	default:
		return -ENOTTY;
	}
}

static __poll_t vgc_poll(struct file *f, struct poll_table_struct *table)
{
	struct vgc_file *vf = f->private_data;
	__poll_t mask = 0;

	poll_wait(f, &vf->wait, table);
	spin_lock_irq(&vf->lock);
	if (!list_empty(&vf->answered))
		mask |= EPOLLIN | EPOLLRDNORM;
	if (file_room(vf))
		mask |= EPOLLOUT | EPOLLWRNORM;
	spin_unlock_irq(&vf->lock);
	if (READ_ONCE(vf->dev->dead))
		mask |= EPOLLHUP | EPOLLERR;
	return mask;
}

/* ---- mmap ---- */

static vm_fault_t vgc_fault(struct vm_fault *vmf)
{
	struct vm_area_struct *vma = vmf->vma;
	struct vgc_file *vf = vma->vm_file->private_data;
	struct vgc_space *p = vf->space;
	u64 base = (vf->dev->window.addr + p->start) >> PAGE_SHIFT;
	unsigned long first, last, at;
	vm_fault_t ret = VM_FAULT_SIGBUS;

	first = max(vma->vm_start,
		    ALIGN_DOWN(vmf->address, AROUND_PAGES * PAGE_SIZE));
	last = min(vma->vm_end, first + AROUND_PAGES * PAGE_SIZE);
	down_read(&vf->dev->gone);
	if (!vf->dev->dead)
		/* The faulting page first; the others are a bonus. */
		ret = vmf_insert_pfn(vma, vmf->address, base + vmf->pgoff);
	for (at = first; ret == VM_FAULT_NOPAGE && at < last; at += PAGE_SIZE)
		if (at != (vmf->address & PAGE_MASK) &&
		    vmf_insert_pfn(vma, at,
				   base + vma->vm_pgoff +
					   ((at - vma->vm_start) >>
					    PAGE_SHIFT)) != VM_FAULT_NOPAGE)
			break;
	up_read(&vf->dev->gone);
	return ret;
}

static const struct vm_operations_struct vgc_vm_ops = {
	.fault = vgc_fault,
};

static int vgc_mmap(struct file *f, struct vm_area_struct *vma)
{
	struct vgc_file *vf = f->private_data;
	struct vgc_space *p = smp_load_acquire(&vf->space); /* file_create() */
	u64 pages;

	if (!p)
		return -ENXIO;
	pages = p->bytes >> PAGE_SHIFT;
	if (vma->vm_pgoff >= pages || vma_pages(vma) > pages - vma->vm_pgoff)
		return -EINVAL;
	if (!(vma->vm_flags & VM_SHARED))
		return -EINVAL;
	vm_flags_set(vma,
		     VM_PFNMAP | VM_DONTEXPAND | VM_DONTCOPY | VM_DONTDUMP);
	vma->vm_ops = &vgc_vm_ops;
	return 0;
}

const struct file_operations vgc_fops = {
	.owner = THIS_MODULE,
	.open = vgc_open,
	.release = vgc_release,
	.unlocked_ioctl = vgc_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.poll = vgc_poll,
	.mmap = vgc_mmap,
};

/* The device is dead: remove its memory from processes. */
void vgc_files_gone(struct vgc_dev *dev)
{
	struct vgc_file *vf;

	mutex_lock(&dev->lock);
	list_for_each_entry(vf, &dev->files, list) {
		unmap_mapping_range(vf->mapping, 0, 0, 1);
		wake_up_interruptible(&vf->wait);
	}
	mutex_unlock(&dev->lock);
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * main.c - virtio_gc.ko: a virtio-gc device becomes /dev/vgcN
 *
 * The window is mapped into the kernel once, and that mapping is not used: it
 * makes the window ordinary cached memory for the processes that map it, too.
 *
 * When a device goes (unplugged, or the module is unloaded) the order is: no
 * new files, @dead for open ones, no mappings, reset, unanswered requests fail,
 * spaces are forgotten. The last file frees the memory.
 *
 * Locking: see vgc_drv.h. Order: gone, lock, vq_lock, a file's lock.
 */
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/virtio_ring.h>

#include "vgc_drv.h"

static DEFINE_IDA(vgc_numbers);

static void dev_release(struct kref *ref)
{
	struct vgc_dev *dev = container_of(ref, struct vgc_dev, ref);

	ida_destroy(&dev->ids);
	kfree(dev);
}

void vgc_dev_put(struct vgc_dev *dev)
{
	kref_put(&dev->ref, dev_release);
}

static void free_work(struct work_struct *work)
{
	vgc_spaces_reap(container_of(work, struct vgc_dev, free_work));
}

static void retry_work(struct work_struct *work)
{
	vgc_spaces_retry(container_of(to_delayed_work(work), struct vgc_dev,
				      retry_work));
}

static const unsigned int vgc_features[] = {
	VIRTIO_GC_F_TRACE,   VIRTIO_GC_F_CONCURRENT, VIRTIO_GC_F_EVACUATE,
	VIRTIO_GC_F_COMPACT, VIRTIO_GC_F_HINTS,	     VIRTIO_GC_F_WHOLE,
	VIRTIO_GC_F_TAIL,    VIRTIO_GC_F_REPLACE,    VIRTIO_GC_F_RANGES,
	VIRTIO_GC_F_STATE,   VIRTIO_GC_F_ASK,	     VIRTIO_GC_F_BITMAPS,
	VIRTIO_GC_F_CLEAR,   VIRTIO_GC_F_CARDS,	     VIRTIO_GC_F_FETCH,
	VIRTIO_GC_F_BUDGET,
};

static u64 features_of(struct virtio_device *vdev)
{
	u64 features = 0;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(vgc_features); i++)
		if (virtio_has_feature(vdev, vgc_features[i]))
			features |= BIT_ULL(vgc_features[i]);
	return features;
}

static int config_read(struct vgc_dev *dev)
{
	struct virtio_device *vdev = dev->vdev;
	struct vgc_info *i = &dev->info;

#define CONFIG_FIELD(field, to) \
	virtio_cread_le(vdev, struct virtio_gc_config, field, to)
	CONFIG_FIELD(window_bytes, &i->window_bytes);
	CONFIG_FIELD(region_bytes_min, &i->region_bytes_min);
	CONFIG_FIELD(region_bytes_max, &i->region_bytes_max);
	CONFIG_FIELD(spaces_max, &dev->spaces_max);
	CONFIG_FIELD(types_max, &i->types_max);
	CONFIG_FIELD(regions_max, &i->regions_max);
	CONFIG_FIELD(request_max, &i->request_max);
	CONFIG_FIELD(response_max, &i->response_max);
	CONFIG_FIELD(commands_max, &i->commands_max);
	CONFIG_FIELD(deadline_max_ms, &i->deadline_max_ms);
#undef CONFIG_FIELD
	i->features = features_of(vdev);
	/* The host is trusted; this catches mistakes. */
	if (!i->window_bytes || !is_power_of_2(i->region_bytes_min) ||
	    !is_power_of_2(i->region_bytes_max) ||
	    i->window_bytes % i->region_bytes_max || i->commands_max < 2 ||
	    !dev->spaces_max || dev->spaces_max > INT_MAX ||
	    i->request_max < PAGE_SIZE || i->response_max < PAGE_SIZE) {
		dev_err(&vdev->dev,
			"not used: the host offers an invalid configuration\n");
		return -EINVAL;
	}
	/* One command is reserved for SPACE_DESTROY; buffers are bounded. */
	i->commands_max = min(i->commands_max - 1, 64u);
	i->request_max = min_t(u32, i->request_max, SZ_1M);
	i->response_max = min_t(u32, i->response_max, SZ_1M);
	return 0;
}

/* Without indirect descriptors a request has to fit the ring. */
static void ring_limit(struct vgc_dev *dev)
{
	u32 bytes = (virtqueue_get_vring_size(dev->vq) / 2 - 1) * PAGE_SIZE;

	if (virtio_has_feature(dev->vdev, VIRTIO_RING_F_INDIRECT_DESC))
		return;
	/* live bitmaps do not fit: the runtime is not told that they can be had */
	dev->info.features &= ~BIT_ULL(VIRTIO_GC_F_BITMAPS);
	dev->info.request_max = min(dev->info.request_max, bytes);
	dev->info.response_max = min(dev->info.response_max, bytes);
}

static int window_map(struct vgc_dev *dev)
{
	struct virtio_device *vdev = dev->vdev;

	if (!virtio_get_shm_region(vdev, &dev->window, VIRTIO_GC_SHM_WINDOW) ||
	    dev->window.len < dev->info.window_bytes ||
	    !PAGE_ALIGNED(dev->window.addr)) {
		dev_err(&vdev->dev,
			"not used: the host offers no window, or one that is too small\n");
		return -ENODEV;
	}
	if (!devm_request_mem_region(&vdev->dev, dev->window.addr,
				     dev->info.window_bytes, dev->name)) {
		dev_err(&vdev->dev,
			"not used: another driver has the window's addresses\n");
		return -EBUSY;
	}
	dev->mapped = devm_memremap(&vdev->dev, dev->window.addr,
				    dev->info.window_bytes, MEMREMAP_WB);
	return PTR_ERR_OR_ZERO(dev->mapped);
}

static int dev_start(struct vgc_dev *dev)
{
	struct virtqueue *vq;

	vq = virtio_find_single_vq(dev->vdev, vgc_requests_answered, "command");
	if (IS_ERR(vq))
		return PTR_ERR(vq);
	spin_lock_irq(&dev->vq_lock);
	dev->vq = vq;
	spin_unlock_irq(&dev->vq_lock);
	virtio_device_ready(dev->vdev);
	return 0;
}

/* After this the device does nothing and gets no requests. */
static void dev_stop(struct vgc_dev *dev)
{
	down_write(&dev->gone);
	dev->dead = true;
	up_write(&dev->gone);
	vgc_files_gone(dev);
	virtio_reset_device(dev->vdev);
	vgc_requests_fail(dev);
	dev->vdev->config->del_vqs(dev->vdev);
}

static int vgc_probe(struct virtio_device *vdev)
{
	struct vgc_dev *dev = kzalloc(sizeof(*dev), GFP_KERNEL);
	int err;

	if (!dev)
		return -ENOMEM;
	kref_init(&dev->ref);
	init_rwsem(&dev->gone);
	spin_lock_init(&dev->vq_lock);
	mutex_init(&dev->lock);
	INIT_LIST_HEAD(&dev->waiting);
	INIT_LIST_HEAD(&dev->files);
	INIT_LIST_HEAD(&dev->spaces);
	ida_init(&dev->ids);
	INIT_WORK(&dev->free_work, free_work);
	INIT_DELAYED_WORK(&dev->retry_work, retry_work);
	dev->vdev = vdev;
	vdev->priv = dev;

	dev->index = ida_alloc(&vgc_numbers, GFP_KERNEL);
	if (dev->index < 0) {
		err = dev->index;
		goto fail;
	}
	snprintf(dev->name, sizeof(dev->name), "vgc%d", dev->index);
	err = config_read(dev);
	if (!err)
		err = window_map(dev);
	if (err)
		goto fail_number;
	err = dev_start(dev);
	if (err)
		goto fail_number;
	ring_limit(dev);

	dev->misc.minor = MISC_DYNAMIC_MINOR;
	dev->misc.name = dev->name;
	dev->misc.fops = &vgc_fops;
	dev->misc.parent = &vdev->dev;
	err = misc_register(&dev->misc);
	if (err)
		goto fail_queue;
	dev_info(&vdev->dev, "%s: a window of %llu MiB, features %#llx\n",
		 dev->name, dev->info.window_bytes >> 20, dev->info.features);
	return 0;
fail_queue:
	dev_stop(dev);
fail_number:
	ida_free(&vgc_numbers, dev->index);
fail:
	vgc_dev_put(dev);
	return err;
}

static void vgc_remove(struct virtio_device *vdev)
{
	struct vgc_dev *dev = vdev->priv;

	misc_deregister(&dev->misc);
	dev_stop(dev);
	cancel_delayed_work_sync(&dev->retry_work);
	cancel_work_sync(&dev->free_work);
	vgc_spaces_forget(dev);
	ida_free(&vgc_numbers, dev->index);
	vgc_dev_put(dev);
}

/* VGC-G-1: no feature without those it needs. */
static int vgc_validate(struct virtio_device *vdev)
{
	unsigned int i;

	if (!virtio_has_feature(vdev, VIRTIO_F_VERSION_1)) {
		dev_err(&vdev->dev,
			"not used: the host offers no virtio 1 device\n");
		return -ENODEV;
	}
	for (i = 0; i < ARRAY_SIZE(vgc_features); i++)
		if (vgc_features[i] != VIRTIO_GC_F_HINTS &&
		    vgc_features[i] != VIRTIO_GC_F_BUDGET &&
		    !virtio_has_feature(vdev, VIRTIO_GC_F_TRACE))
			__virtio_clear_bit(vdev, vgc_features[i]);
	if (!virtio_has_feature(vdev, VIRTIO_GC_F_EVACUATE))
		__virtio_clear_bit(vdev, VIRTIO_GC_F_COMPACT);
	if (!virtio_has_feature(vdev, VIRTIO_GC_F_HINTS))
		__virtio_clear_bit(vdev, VIRTIO_GC_F_FETCH);
	return 0;
}

#ifdef CONFIG_PM_SLEEP
/* The window does not survive a reset: with spaces, refuse to sleep. */
static int vgc_freeze(struct virtio_device *vdev)
{
	struct vgc_dev *dev = vdev->priv;
	bool used;

	mutex_lock(&dev->lock);
	used = !list_empty(&dev->spaces);
	mutex_unlock(&dev->lock);
	if (used) {
		dev_info(&vdev->dev, "no sleep while there are spaces\n");
		return -EBUSY;
	}
	dev_stop(dev);
	return 0;
}

static int vgc_restore(struct virtio_device *vdev)
{
	struct vgc_dev *dev = vdev->priv;
	int err = dev_start(dev);

	if (err)
		return err;
	down_write(&dev->gone);
	dev->dead = false;
	up_write(&dev->gone);
	return 0;
}
#endif

static const struct virtio_device_id vgc_ids[] = {
	{ VIRTIO_ID_GC, VIRTIO_DEV_ANY_ID },
	{},
};
MODULE_DEVICE_TABLE(virtio, vgc_ids);

static struct virtio_driver vgc_driver = {
	.feature_table = vgc_features,
	.feature_table_size = ARRAY_SIZE(vgc_features),
	.driver.name = KBUILD_MODNAME,
	.id_table = vgc_ids,
	.validate = vgc_validate,
	.probe = vgc_probe,
	.remove = vgc_remove,
#ifdef CONFIG_PM_SLEEP
	.freeze = vgc_freeze,
	.restore = vgc_restore,
#endif
};
module_virtio_driver(vgc_driver);

MODULE_DESCRIPTION("virtio-gc: garbage collection by memory donors");
MODULE_LICENSE("GPL");

/*
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * virtio-gc: a window of memory on donors, which collect the garbage in it
 *
 * The device is thin: requests are copied out of the virtqueue and handed to
 * libdcm as they are, which checks them, does them and answers on a thread of
 * its own; a bottom half puts the answers back.  The window is the memory of a
 * memory-backend-dcm, or of a memory-backend-file on a dcmfs, the kernel's pager:
 * then libdcm passes requests on to dcm-hostd.  The VM can't be migrated or saved,
 * by the backend's blocker and as the device is not migratable; there is no state
 * here that could be.
 *
 *   guest -> handle_command() -> dcm_gc_host_submit()
 *                                      | a thread of libdcm's
 *   guest <- virtio_gc_bh()  <- virtio_gc_answered()
 *
 * While the VM is stopped answers are kept, as nothing may write its memory
 * then.  Reset and unplug wait until libdcm has answered everything; nothing
 * of it reaches the guest any more.
 */

#include "qemu/osdep.h"
#include "qemu/iov.h"
#include "qemu/lockable.h"
#include "qemu/main-loop.h"
#include "qemu/module.h"
#include "qemu/units.h"
#include "qapi/error.h"
#include "exec/memory.h"
#include "exec/ramblock.h"
#include "hw/qdev-properties.h"
#include "hw/virtio/virtio-gc.h"
#include "migration/vmstate.h"
#include "system/hostmem-dcm.h"
#include "trace.h"

#include <libdcm_gc.h>

#define VIRTIO_GC_QUEUE_SIZE 128

struct VirtIOGCRequest {
    VirtQueueElement elem;
    VirtIOGC *gc;
    void *answer;
    size_t answer_size;
    QSIMPLEQ_ENTRY(VirtIOGCRequest) next;
};

/* On a thread of libdcm's: without the BQL, and never waiting for it. */
static void virtio_gc_answered(void *priv, void *token, const void *answer,
                               size_t bytes)
{
    VirtIOGC *gc = priv;
    VirtIOGCRequest *req = token;

    req->answer = g_memdup2(answer, bytes);
    req->answer_size = bytes;
    WITH_QEMU_LOCK_GUARD(&gc->lock) {
        QSIMPLEQ_INSERT_TAIL(&gc->done, req, next);
    }
    qemu_bh_schedule(gc->bh);
}

static void virtio_gc_config_changed(void *priv)
{
    VirtIOGC *gc = priv;

    qatomic_set(&gc->config_changed, true);
    qemu_bh_schedule(gc->bh);
}

static const struct dcm_gc_host_ops virtio_gc_ops = {
    .answered = virtio_gc_answered,
    .config_changed = virtio_gc_config_changed,
};

static VirtIOGCRequest *virtio_gc_take_done(VirtIOGC *gc)
{
    VirtIOGCRequest *req;

    QEMU_LOCK_GUARD(&gc->lock);
    req = QSIMPLEQ_FIRST(&gc->done);
    if (req) {
        QSIMPLEQ_REMOVE_HEAD(&gc->done, next);
    }
    return req;
}

static void virtio_gc_request_free(VirtIOGCRequest *req)
{
    g_free(req->answer);
    g_free(req);
}

static void virtio_gc_bh(void *opaque)
{
    VirtIOGC *gc = opaque;
    VirtIODevice *vdev = VIRTIO_DEVICE(gc);
    VirtIOGCRequest *req;
    bool any = false;

    if (!vdev->vm_running) {
        return; /* set_status() schedules it again */
    }
    while ((req = virtio_gc_take_done(gc))) {
        size_t len = iov_from_buf(req->elem.in_sg, req->elem.in_num, 0,
                                  req->answer, req->answer_size);

        trace_virtio_gc_answer(vdev, req->elem.index, len);
        virtqueue_push(gc->vq, &req->elem, len);
        virtio_gc_request_free(req);
        any = true;
    }
    if (any) {
        virtio_notify(vdev, gc->vq);
    }
    if (qatomic_xchg(&gc->config_changed, false)) {
        virtio_notify_config(vdev);
    }
}

static void virtio_gc_handle_command(VirtIODevice *vdev, VirtQueue *vq)
{
    VirtIOGC *gc = VIRTIO_GC(vdev);
    struct virtio_gc_config config;
    VirtIOGCRequest *req;
    size_t max;

    dcm_gc_host_config(gc->gc, &config);
    /* One byte beyond what is allowed tells libdcm to refuse it. */
    max = (size_t)le32_to_cpu(config.request_max) + 1;

    while ((req = virtqueue_pop(vq, sizeof(*req)))) {
        size_t size = MIN(iov_size(req->elem.out_sg, req->elem.out_num), max);
        size_t room = iov_size(req->elem.in_sg, req->elem.in_num);
        g_autofree void *buf = g_malloc(size);

        req->gc = gc;
        req->answer = NULL;
        iov_to_buf(req->elem.out_sg, req->elem.out_num, 0, buf, size);
        trace_virtio_gc_request(vdev, req->elem.index, size, room);
        dcm_gc_host_submit(gc->gc, buf, size, room, req);
    }
}

/* libdcm has answered all there was: nobody waits for it any more. */
static void virtio_gc_drop_done(VirtIOGC *gc)
{
    VirtIOGCRequest *req;

    while ((req = virtio_gc_take_done(gc))) {
        virtqueue_detach_element(gc->vq, &req->elem, 0);
        virtio_gc_request_free(req);
    }
    qemu_bh_cancel(gc->bh);
    qatomic_set(&gc->config_changed, false);
}

static void virtio_gc_reset(VirtIODevice *vdev)
{
    VirtIOGC *gc = VIRTIO_GC(vdev);

    trace_virtio_gc_reset(vdev);
    dcm_gc_host_reset(gc->gc);
    virtio_gc_drop_done(gc);
}

static void virtio_gc_set_status(VirtIODevice *vdev, uint8_t status)
{
    VirtIOGC *gc = VIRTIO_GC(vdev);

    if (status & VIRTIO_CONFIG_S_DRIVER_OK &&
        !(vdev->status & VIRTIO_CONFIG_S_DRIVER_OK)) {
        dcm_gc_host_start(gc->gc, vdev->guest_features);
    }
    /* The VM runs again, maybe: answers have been kept. */
    qemu_bh_schedule(gc->bh);
}

static uint64_t virtio_gc_get_features(VirtIODevice *vdev, uint64_t features,
                                       Error **errp)
{
    return features | dcm_gc_host_features(VIRTIO_GC(vdev)->gc);
}

static void virtio_gc_get_config(VirtIODevice *vdev, uint8_t *config)
{
    struct virtio_gc_config now = { 0 };
    VirtIOGC *gc = VIRTIO_GC(vdev);
    uint64_t mib = dcm_gc_host_budget(gc->gc) / MiB;

    dcm_gc_host_config(gc->gc, &now);
    now.budget_mib = cpu_to_le32(MIN(mib, UINT32_MAX));
    memcpy(config, &now, sizeof(now));
}

/* libdcm's half on the backend's memory, whoever pages it. */
static struct dcm_gc_host *virtio_gc_open(VirtIOGC *gc, MemoryRegion *mr,
                                          char *err, size_t len)
{
    struct dcm_pager *pager = host_memory_backend_dcm_pager(gc->memdev);
    void *window = memory_region_get_ram_ptr(mr);
    int fd = memory_region_get_fd(mr);

    if (pager) {
        return dcm_gc_host_open(pager, window, memory_region_size(mr),
                                &virtio_gc_ops, gc, err, len);
    }
    if (fd < 0 || !gc->memdev->share || mr->ram_block->fd_offset) {
        snprintf(err, len,
                 "memdev is not a memory-backend-dcm, nor a "
                 "memory-backend-file on a dcmfs with share=on");
        return NULL;
    }
    return dcm_gc_host_connect(gc->hostd, fd, window, memory_region_size(mr),
                               &virtio_gc_ops, gc, err, len);
}

static void virtio_gc_realize(DeviceState *dev, Error **errp)
{
    VirtIODevice *vdev = VIRTIO_DEVICE(dev);
    VirtIOGC *gc = VIRTIO_GC(dev);
    MemoryRegion *mr;
    char err[256];

    if (!gc->memdev) {
        error_setg(errp, "'%s' property must be set: a memory-backend-dcm",
                   VIRTIO_GC_MEMDEV_PROP);
        return;
    }
    if (host_memory_backend_is_mapped(gc->memdev)) {
        error_setg(errp, "can't use already busy memdev: %s",
                   object_get_canonical_path_component(OBJECT(gc->memdev)));
        return;
    }

    /* Before libdcm may use them. */
    qemu_mutex_init(&gc->lock);
    QSIMPLEQ_INIT(&gc->done);
    gc->bh = virtio_bh_new_guarded(dev, virtio_gc_bh, gc);

    mr = host_memory_backend_get_memory(gc->memdev);
    gc->gc = virtio_gc_open(gc, mr, err, sizeof(err));
    if (!gc->gc) {
        error_setg(errp, "%s", err);
        qemu_bh_delete(gc->bh);
        qemu_mutex_destroy(&gc->lock);
        return;
    }
    host_memory_backend_set_mapped(gc->memdev, true);
    virtio_init(vdev, VIRTIO_ID_GC, sizeof(struct virtio_gc_config));
    gc->vq = virtio_add_queue(vdev, VIRTIO_GC_QUEUE_SIZE,
                              virtio_gc_handle_command);
}

static void virtio_gc_unrealize(DeviceState *dev)
{
    VirtIODevice *vdev = VIRTIO_DEVICE(dev);
    VirtIOGC *gc = VIRTIO_GC(dev);

    dcm_gc_host_close(gc->gc);
    gc->gc = NULL;
    virtio_gc_drop_done(gc);
    qemu_bh_delete(gc->bh);
    qemu_mutex_destroy(&gc->lock);
    host_memory_backend_set_mapped(gc->memdev, false);
    virtio_delete_queue(gc->vq);
    virtio_cleanup(vdev);
}

static const VMStateDescription vmstate_virtio_gc = {
    .name = "virtio-gc",
    .unmigratable = 1,
};

static const Property virtio_gc_properties[] = {
    DEFINE_PROP_LINK(VIRTIO_GC_MEMDEV_PROP, VirtIOGC, memdev,
                     TYPE_MEMORY_BACKEND, HostMemoryBackend *),
    DEFINE_PROP_STRING("hostd", VirtIOGC, hostd),
};

static void virtio_gc_class_init(ObjectClass *klass, void *data)
{
    DeviceClass *dc = DEVICE_CLASS(klass);
    VirtioDeviceClass *vdc = VIRTIO_DEVICE_CLASS(klass);

    device_class_set_props(dc, virtio_gc_properties);
    dc->vmsd = &vmstate_virtio_gc;
    dc->desc = "garbage collection by the donors of the heap";
    set_bit(DEVICE_CATEGORY_MISC, dc->categories);

    vdc->realize = virtio_gc_realize;
    vdc->unrealize = virtio_gc_unrealize;
    vdc->get_features = virtio_gc_get_features;
    vdc->get_config = virtio_gc_get_config;
    vdc->set_status = virtio_gc_set_status;
    vdc->reset = virtio_gc_reset;
}

static const TypeInfo virtio_gc_info = {
    .name = TYPE_VIRTIO_GC,
    .parent = TYPE_VIRTIO_DEVICE,
    .instance_size = sizeof(VirtIOGC),
    .class_init = virtio_gc_class_init,
};

static void virtio_gc_register_types(void)
{
    type_register_static(&virtio_gc_info);
}

type_init(virtio_gc_register_types)

/*
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * virtio-gc: a window of memory on donors, which collect the garbage in it
 */

#ifndef HW_VIRTIO_GC_H
#define HW_VIRTIO_GC_H

#include "hw/virtio/virtio.h"
#include "qemu/queue.h"
#include "qemu/thread.h"
#include "qom/object.h"
#include "system/hostmem.h"

#define TYPE_VIRTIO_GC "virtio-gc-device"
OBJECT_DECLARE_SIMPLE_TYPE(VirtIOGC, VIRTIO_GC)

#define VIRTIO_GC_MEMDEV_PROP "memdev"

struct dcm_gc_host;
typedef struct VirtIOGCRequest VirtIOGCRequest;

struct VirtIOGC {
    VirtIODevice parent_obj;

    HostMemoryBackend *memdev;
    char *hostd; /* dcm-hostd's socket; NULL: the usual one */
    struct dcm_gc_host *gc;
    VirtQueue *vq;
    QEMUBH *bh;

    /* Guards what threads of libdcm hand over to @bh. */
    QemuMutex lock;
    QSIMPLEQ_HEAD(, VirtIOGCRequest) done;
    bool config_changed;
};

#endif

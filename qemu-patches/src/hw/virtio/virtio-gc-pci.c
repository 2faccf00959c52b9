/*
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * virtio-gc on PCI: its window is BAR 4, shared memory region 0
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/host-utils.h"
#include "qemu/module.h"
#include "hw/qdev-properties.h"
#include "hw/virtio/virtio-gc.h"
#include "hw/virtio/virtio-pci.h"
#include "qom/object.h"

#include <virtio_gc.h>

#define TYPE_VIRTIO_GC_PCI "virtio-gc-pci-base"
OBJECT_DECLARE_SIMPLE_TYPE(VirtIOGCPCI, VIRTIO_GC_PCI)

#define VIRTIO_GC_PCI_WINDOW_BAR 4

struct VirtIOGCPCI {
    VirtIOPCIProxy parent_obj;

    VirtIOGC vdev;
    /* A BAR's size is a power of two, a window's is not. */
    MemoryRegion bar;
};

static const Property virtio_gc_pci_properties[] = {
    DEFINE_PROP_UINT32("vectors", VirtIOPCIProxy, nvectors, 2),
};

static void virtio_gc_pci_realize(VirtIOPCIProxy *vpci_dev, Error **errp)
{
    VirtIOGCPCI *dev = VIRTIO_GC_PCI(vpci_dev);
    MemoryRegion *window;
    uint64_t bytes;

    vpci_dev->msix_bar_idx = 1;
    vpci_dev->modern_mem_bar_idx = 2;
    virtio_pci_force_virtio_1(vpci_dev);
    if (!qdev_realize(DEVICE(&dev->vdev), BUS(&vpci_dev->bus), errp)) {
        return;
    }

    window = host_memory_backend_get_memory(dev->vdev.memdev);
    bytes = memory_region_size(window);
    memory_region_init(&dev->bar, OBJECT(dev), "virtio-gc-window",
                       pow2ceil(bytes));
    memory_region_add_subregion(&dev->bar, 0, window);
    pci_register_bar(&vpci_dev->pci_dev, VIRTIO_GC_PCI_WINDOW_BAR,
                     PCI_BASE_ADDRESS_SPACE_MEMORY |
                     PCI_BASE_ADDRESS_MEM_PREFETCH |
                     PCI_BASE_ADDRESS_MEM_TYPE_64, &dev->bar);
    virtio_pci_add_shm_cap(vpci_dev, VIRTIO_GC_PCI_WINDOW_BAR, 0, bytes,
                           VIRTIO_GC_SHM_WINDOW);
}

static void virtio_gc_pci_class_init(ObjectClass *klass, void *data)
{
    DeviceClass *dc = DEVICE_CLASS(klass);
    VirtioPCIClass *k = VIRTIO_PCI_CLASS(klass);
    PCIDeviceClass *pcidev_k = PCI_DEVICE_CLASS(klass);

    device_class_set_props(dc, virtio_gc_pci_properties);
    set_bit(DEVICE_CATEGORY_MISC, dc->categories);
    k->realize = virtio_gc_pci_realize;
    pcidev_k->revision = VIRTIO_PCI_ABI_VERSION;
    pcidev_k->class_id = PCI_CLASS_OTHERS;
}

static void virtio_gc_pci_init(Object *obj)
{
    VirtIOGCPCI *dev = VIRTIO_GC_PCI(obj);

    virtio_instance_init_common(obj, &dev->vdev, sizeof(dev->vdev),
                                TYPE_VIRTIO_GC);
}

static const VirtioPCIDeviceTypeInfo virtio_gc_pci_info = {
    .base_name = TYPE_VIRTIO_GC_PCI,
    .generic_name = "virtio-gc-pci",
    .instance_size = sizeof(VirtIOGCPCI),
    .instance_init = virtio_gc_pci_init,
    .class_init = virtio_gc_pci_class_init,
};

static void virtio_gc_pci_register(void)
{
    virtio_pci_types_register(&virtio_gc_pci_info);
}

type_init(virtio_gc_pci_register)

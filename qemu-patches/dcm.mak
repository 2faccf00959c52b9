# SPDX-License-Identifier: GPL-2.0-or-later
#
# dcm.mak - the devices of scripts/qemu-build: what the tests' machines have
CONFIG_I440FX=y
CONFIG_Q35=y
CONFIG_VIRTIO_PCI=y
CONFIG_VIRTIO_BALLOON=y
CONFIG_VIRTIO_BLK=y
CONFIG_VIRTIO_GC=y
CONFIG_VIRTIO_MEM=y
CONFIG_VIRTIO_NET=y
CONFIG_VIRTIO_RNG=y
CONFIG_VIRTIO_SERIAL=y

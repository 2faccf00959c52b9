# SPDX-License-Identifier: GPL-2.0-or-later
"""virtio_gc.ko and devices that QEMU's is not: what they offer is taken only where it is sound.

A module in L1 is the device. It has no queues, so no driver gets to its end; what it was asked for
and what was accepted before that is in its parameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.framework.paths import BUILD
from tests.vm import debug
from tests.vm.bed import Bed
from tests.vm.kmod import build_module

DRIVER = BUILD / "kernel" / "gc" / "virtio_gc.ko"
WINDOW = 64 << 20
TRACE, CONCURRENT, EVACUATE, COMPACT, HINTS = (1 << bit for bit in range(5))
LATER = 0x3FE0  # features that need no more than TRACE
FETCH, BUDGET = 1 << 14, 1 << 15

DEVICE = r"""
// SPDX-License-Identifier: GPL-2.0-or-later
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/virtio.h>
#include <linux/virtio_config.h>

/* No processor's memory: the driver maps it, and nobody looks. */
#define WINDOW_AT (1ull << 38)

static ulong offered, window, window_bytes = 64 << 20, request_max = 65536;
static ulong accepted, queues;
static uint commands_max = 16;
module_param(offered, ulong, 0444);
module_param(window, ulong, 0444);
module_param(window_bytes, ulong, 0444);
module_param(request_max, ulong, 0444);
module_param(commands_max, uint, 0444);
module_param(accepted, ulong, 0444);
module_param(queues, ulong, 0444);

static struct virtio_device *device;
static u8 status;

static void get(struct virtio_device *vdev, unsigned int at, void *to, unsigned int n)
{
	struct {
		__le64 window_bytes, region_min, region_max;
		__le32 spaces, types, regions, request, response, commands, deadline, donors;
	} c = {
		cpu_to_le64(window_bytes), cpu_to_le64(4096), cpu_to_le64(1 << 20),
		cpu_to_le32(8), cpu_to_le32(64), cpu_to_le32(64), cpu_to_le32(request_max),
		cpu_to_le32(65536), cpu_to_le32(commands_max), cpu_to_le32(1000), cpu_to_le32(1),
	};

	memset(to, 0, n);
	if (at <= sizeof(c) && n <= sizeof(c) - at)
		memcpy(to, (char *)&c + at, n);
}

static u8 get_status(struct virtio_device *vdev)
{
	return status;
}

static void set_status(struct virtio_device *vdev, u8 s)
{
	status = s;
}

static void reset(struct virtio_device *vdev)
{
	status = 0;
}

static int find_vqs(struct virtio_device *vdev, unsigned int n,
	struct virtqueue *vq[], struct virtqueue_info info[],
	struct irq_affinity *desc)
{
	queues++;
	return -ENOENT;
}

static void del_vqs(struct virtio_device *vdev)
{
}

static u64 get_features(struct virtio_device *vdev)
{
	return BIT_ULL(VIRTIO_F_VERSION_1) | offered;
}

static int finalize_features(struct virtio_device *vdev)
{
	accepted = vdev->features & 0xffffff;
	return 0;
}

static bool get_shm_region(struct virtio_device *vdev, struct virtio_shm_region *r, u8 id)
{
	if (id || !window)
		return false;
	r->addr = WINDOW_AT;
	r->len = window;
	return true;
}

static const struct virtio_config_ops ops = {
	.get = get,
	.get_status = get_status,
	.set_status = set_status,
	.reset = reset,
	.find_vqs = find_vqs,
	.del_vqs = del_vqs,
	.get_features = get_features,
	.finalize_features = finalize_features,
	.get_shm_region = get_shm_region,
};

static void release(struct device *d)
{
	kfree(dev_to_virtio(d));
}

static int __init begin(void)
{
	int err;

	device = kzalloc(sizeof(*device), GFP_KERNEL);
	if (!device)
		return -ENOMEM;
	device->id.device = 63;
	device->config = &ops;
	device->dev.release = release;
	err = register_virtio_device(device);
	if (err)
		put_device(&device->dev);
	return err;
}

static void __exit end(void)
{
	unregister_virtio_device(device);
}

module_init(begin);
module_exit(end);
MODULE_DESCRIPTION("a virtio-gc device that is not quite one");
MODULE_LICENSE("GPL");
"""


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_module(tmp_path_factory.mktemp("vgc"), "vgc_device", DEVICE)


@pytest.fixture
def driver(bed: Bed) -> Iterator[Bed]:
    """An L1 with the driver, for devices that come and go."""
    debug.build_modules("6.12")
    name = bed.insmod(DRIVER)
    yield bed
    bed.rmmod(name)


def asked(bed: Bed, device: Path, **said: int) -> tuple[int, int]:
    """A device that says this comes, and goes: features accepted, times queues were asked for."""
    name = bed.insmod(device, *(f"{key}={value}" for key, value in said.items()))
    parameters = f"/sys/module/{name}/parameters"
    accepted, queues = bed.must(f"cd {parameters}; cat accepted queues").split()
    bed.rmmod(name)
    return int(accepted), int(queues)


def test_features_without_what_they_need(driver: Bed, device: Path) -> None:
    """None is accepted without the one it needs."""
    everything = TRACE | CONCURRENT | EVACUATE | COMPACT | HINTS | LATER | FETCH | BUDGET
    for missing in (0, TRACE, EVACUATE, HINTS, TRACE | EVACUATE, everything & ~COMPACT):
        offered = right = everything & ~missing
        if not right & TRACE:
            right &= HINTS | BUDGET
        if not right & EVACUATE:
            right &= ~COMPACT
        if not right & HINTS:
            right &= ~FETCH
        # [VGC-G-1]
        assert asked(driver, device, offered=offered, window=WINDOW) == (right, 1), offered


def test_no_window(driver: Bed, device: Path) -> None:
    """A device without its window, or with a part of it, is not used."""
    for window, used in ((0, 0), (4096, 0), (WINDOW - 4096, 0), (WINDOW, 1), (2 * WINDOW, 1)):
        # [VGC-G-2]
        assert asked(driver, device, offered=31, window=window)[1] == used, window


def test_a_configuration_that_makes_no_sense(driver: Bed, device: Path) -> None:
    for said in ({"window_bytes": 0}, {"window_bytes": WINDOW + 4096}, {"request_max": 100}):
        assert asked(driver, device, offered=31, window=2 * WINDOW, **said)[1] == 0, said
    assert asked(driver, device, offered=31, window=WINDOW, commands_max=1)[1] == 0
    assert asked(driver, device, offered=31, window=WINDOW)[1] == 1

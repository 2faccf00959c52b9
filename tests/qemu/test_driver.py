# SPDX-License-Identifier: GPL-2.0-or-later
"""virtio_gc.ko and libvgc in a Debian 13 guest of the built QEMU, the window on two real donors."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.framework.donor import Donor
from tests.qemu.conftest import Qemu, StartDonor, two_donors, write_config
from tests.qemu.gcbed import DEBUG, WINDOW_MIB, GcBed, build, gc_bed


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    build()


@pytest.fixture
def donors(start_donor: StartDonor) -> tuple[Donor, Donor]:
    return two_donors(start_donor)


@pytest.fixture
def guest(
    qemu: Qemu,
    donors: tuple[Donor, Donor],
    short_tmp: Path,
    request: pytest.FixtureRequest,
) -> Iterator[GcBed]:
    """A guest with the module loaded; judged, and the module taken out, with the test."""
    config = write_config(short_tmp / "gc.ini", *donors, {"name": "gc", "budget": "24M"})
    name = re.sub(r"[^\w.-]+", "-", request.node.name).strip("-")
    with gc_bed(qemu, short_tmp, config, name) as bed:
        yield bed


def test_what_a_runtime_does(guest: GcBed) -> None:
    """Spaces, mapping, requests; then the window is all free and zero; once more after rmmod."""
    assert f"a window of {WINDOW_MIB} MiB" in guest.dmesg()
    guest.check("basic")
    guest.check("whole")
    guest.rmmod("virtio_gc")
    guest.load()
    guest.check("basic")
    guest.check("whole")


def test_wrong_calls(guest: GcBed) -> None:
    """Each is refused with its errno, none leaves anything."""
    guest.check("wrong")
    guest.check("whole")


@pytest.mark.slow
def test_libvgc(guest: GcBed) -> None:
    """The library on the driver: six threads of one process, two spaces."""
    assert guest.must(["/tmp/libvgc_check"], 120) == "ok\n"
    guest.check("whole")


@pytest.mark.slow
def test_quota_of_a_user(guest: GcBed) -> None:
    """A user without privileges gets user_spaces_max spaces, if it may open the device at all."""
    guest.must("echo 1 >/sys/module/virtio_gc/parameters/user_spaces_max")
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    ran = guest.run([*user, "/tmp/vgc_check", "basic", "/dev/vgc0"])
    assert ran.rc == -signal.SIGABRT and "Permission denied" in ran.stderr, ran
    guest.must("chmod 666 /dev/vgc0")
    ran = guest.run([*user, "/tmp/vgc_check", "basic", "/dev/vgc0"])
    assert ran.rc == -signal.SIGABRT, ran
    assert "Disk quota exceeded" in ran.stderr, ran  # for the second space
    guest.check("basic")
    guest.check("whole")


@pytest.mark.timeout(600)
def test_killed_in_the_middle(guest: GcBed) -> None:
    """Killed at any moment, two at a time, processes leave nothing.

    Their spaces are destroyed, and what others get is all zero.
    """
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    rand = random.Random(seed)
    for _ in range(25):
        jobs = [guest.spawn(["/tmp/vgc_check", "loop", "/dev/vgc0"]) for _ in range(2)]
        time.sleep(rand.choice([0, 0.01, 0.1, 0.3]) * rand.random())
        for job in jobs:
            assert job.poll() is None, job.output()
            job.signal(9)
            job.wait(30)
            job.end()
    guest.check("whole")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nonsense(guest: GcBed) -> None:
    """Random calls of random contents from three threads: the guest's kernel and QEMU live."""
    seed = random.SystemRandom().randrange(1 << 20)
    print(f"seed {seed}")
    for turn in range(3):
        guest.check("fuzz", str(seed + turn), os.environ.get("GC_FUZZ_TURNS", "4000"), timeout=180)
    guest.check("basic")
    guest.check("whole")


@pytest.mark.slow
def test_device_goes(guest: GcBed) -> None:
    """Unbound in the middle of it: accesses are SIGBUS, calls ENODEV; bound again, all is new."""
    bound = guest.must("basename /sys/bus/virtio/drivers/virtio_gc/virtio*").strip()
    for _ in range(3):
        job = guest.spawn(["/tmp/vgc_check", "gone", "/dev/vgc0"])
        with contextlib.suppress(subprocess.TimeoutExpired):
            while "up" not in job.output().stdout:
                assert job.poll() is None, job.output()
        guest.must(f"echo {bound} >/sys/bus/virtio/drivers/virtio_gc/unbind")
        assert job.wait(60) == 0, job.output()
        assert job.output().stdout == "up\nok\n"
        job.end()
        guest.must(f"echo {bound} >/sys/bus/virtio/drivers/virtio_gc/bind")
        guest.must("until [ -e /dev/vgc0 ]; do sleep 0.1; done", 30)
        guest.check("whole")


@pytest.mark.slow
def test_sleep(guest: GcBed) -> None:
    """The guest goes to sleep and comes back if there is no space, and stays up if there is."""
    sleep = "echo devices >/sys/power/pm_test && echo freeze >/sys/power/state"
    if DEBUG and guest.run("test -e /sys/power/pm_test").rc:
        pytest.skip("the debug kernel does not sleep (CONFIG_PM_DEBUG)")
    guest.must(sleep, 60)
    guest.check("basic")
    guest.check("whole")
    job = guest.spawn(["/tmp/vgc_check", "hold", "/dev/vgc0"])
    while "up" not in job.output().stdout:
        assert job.poll() is None, job.output()
    ran = guest.run(sleep, 60)
    assert ran.rc != 0, "it slept, and its spaces are gone"
    assert "no sleep while there are spaces" in guest.dmesg()
    job.signal(15)
    assert job.wait(30) == 0, job.output()
    job.end()
    guest.check("whole")


@pytest.mark.slow
def test_evicted_and_back(guest: GcBed) -> None:
    """The window is larger than its budget: what processes wrote comes back from the donors."""
    program = (
        "import fcntl, mmap, os, struct\n"
        "fd = os.open('/dev/vgc0', os.O_RDWR)\n"
        "space = struct.pack('<QQQQQBBBBHBBII', 0, 48 << 20, 65536, 1 << 45, 0,"
        " 8, 0, 0, 4, 0, 0, 0, 0xffff, 0)\n"
        "fcntl.ioctl(fd, 0x404056c1, space + bytes(8))\n"
        "m = mmap.mmap(fd, 48 << 20)\n"
        "for i in range(0, 48 << 20, 4096): m[i:i+8] = struct.pack('<Q', i * 7 + 1)\n"
        "for i in range(0, 48 << 20, 4096): assert m[i:i+8] == struct.pack('<Q', i * 7 + 1)\n"
        "print('ok')\n"
    )
    assert guest.must(["python3", "-c", program], 240) == "ok\n"
    status = guest.pager().status()
    assert status["written_bytes"] > (48 - 24) << 20
    assert status["lost_pages"] == 0

# SPDX-License-Identifier: GPL-2.0-or-later
"""A guest under real KVM, its RAM and its heap's window on the kernel pager.

QEMU with our device runs in L1, on two files of a dcmfs. tests/gc's runtime is in the guest, on
virtio_gc.ko; dcm-hostd has donors' workers collect its heap, most of which is on donors.
"""

from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.framework.paths import BUILD
from tests.qemu.conftest import Qemu
from tests.qemu.gcbed import MODULE, build
from tests.vm import debug
from tests.vm.bed import Bed, Spec
from tests.vm.conftest import LOGS, boot, judge
from tests.vm.l2 import L2
from tests.vm.host import MIB, MOUNT, Host, until
from tests.vm.host import built as built

TOOL = BUILD / "tests-qemu" / "heap_check"
RAM, HEAP = f"{MOUNT}/ram", f"{MOUNT}/heap"
WINDOW = "24M"
OWN = "/tmp/own"  # what L1's Debian has as well, in another make
# Of a processor that is emulated, and emulates another.
LONG = 1200
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3 * LONG)]


class GcGuest(L2):
    """On the built QEMU, with a virtio-gc device, and L1's kernel: the driver is made for that."""

    def command_line(self) -> list[str]:
        cmd = super().command_line()
        for word in ("qemu-system-x86_64", "/var/tmp/vmlinuz", "/var/tmp/initrd.img"):
            cmd[cmd.index(word)] = f"{OWN}/{Path(word).name}"
        cmd[cmd.index("-append") + 1] += " bed_init=/sbin/init"
        backend = f"memory-backend-file,id=window,mem-path={HEAP},size={WINDOW},share=on"
        cmd += ["-object", backend, "-device", "virtio-gc-pci,memdev=window"]
        return ["env", f"LD_LIBRARY_PATH={OWN}", *cmd]


def libraries(binary: Path) -> list[Path]:
    """The libraries that a binary needs, but for those that every Debian has."""
    said = subprocess.run(
        ["ldd", str(binary)],
        env={"LD_LIBRARY_PATH": str(BUILD / "lib"), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    found = re.findall(r"=> (/\S+)", said)
    return [Path(path) for path in found if not re.search(r"/lib(c|m)\.so", path)]


def put_qemu(bed: Bed, qemu: Qemu) -> None:
    for path in (qemu.binary, *libraries(qemu.binary)):
        bed.put(path, f"{OWN}/{path.name}", 0o755)
    bed.put(bed.image.folder / "vmlinuz", f"{OWN}/vmlinuz")
    bed.put(bed.initrd_path, f"{OWN}/initrd.img")


@pytest.fixture
def bed() -> Iterator[Bed]:
    bed = boot(Spec(cpus=3), "qemu-dcmfs")
    try:
        yield bed
        judge(bed.finish(), bed)
    finally:
        bed.close()


def test_collects(bed: Bed, qemu: Qemu) -> None:
    """Traces, evacuation and compaction: the same bits, the same graph."""
    build()
    seed = random.SystemRandom().randrange(1 << 16)
    print(f"seed {seed}")
    # donors look for it when they start
    bed.put(debug.PROGRAMS / "dcm-gc-worker", "/tmp/dcm-gc-worker", 0o755)
    host = Host(bed, budget="128M", capacity="320M")
    put_qemu(bed, qemu)
    for path, size in ((RAM, "256M"), (HEAP, WINDOW)):
        bed.must(["truncate", "-s", size, path])
        until(lambda path=path: host.said(f"{path}: served"), host.log)  # type: ignore[misc]
    bed.must(["/tmp/dcmfs_test", "budget", HEAP, str(9 * MIB // 4096)])
    guest = GcGuest(bed, RAM, payload=[MODULE, TOOL], keep=LOGS / "l2-collects")
    with guest:
        guest.wait_shell(LONG)
        print(f"L2's shell is there after {guest.boot_seconds:.0f} s")
        # Nothing may be executed where the payload is.
        guest.must("cp heap_check /var/tmp && insmod virtio_gc.ko", 120)
        guest.must("until [ -e /dev/vgc0 ]; do sleep 0.1; done", 60)
        said = guest.must(f"/var/tmp/heap_check check /dev/vgc0 {seed} 1", LONG)
        print(said)
        found = re.search(r"(\d+) regions evacuated, (\d+) compacted", said)
        assert found and all(int(n) > 0 for n in found.groups())
        assert said.rstrip().endswith("ok")
        # half of the heap was on donors all the time
        stats = bed.must("cat /sys/kernel/debug/kvm-dcm/*/stats")
        assert max(map(int, re.findall(r"^FETCHED_PAGES (\d+)$", stats, re.M))) * 4096 > 9 * MIB
        guest.must("rmmod virtio_gc", 60)
    for path in (HEAP, RAM):
        bed.must(["rm", path])
        until(lambda path=path: host.said(f"{path}: gone"), host.log)  # type: ignore[misc]
    until(lambda: bed.run(["pgrep", "-f", "dcm-gc-worker"]).rc == 1, "workers are left")
    host.close()

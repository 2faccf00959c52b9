# SPDX-License-Identifier: GPL-2.0-or-later
"""A Debian 13 on the built QEMU with a virtio-gc device, virtio_gc.ko in it, and our programs.

When it ends its kernel log is searched, as the nested bed does it, and QEMU's is. With
DCM_DEBUG_KERNEL (make test-qemu-debug) the guest's kernel has KASAN, lockdep and kmemleak.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.framework.paths import BUILD, TOP
from tests.guest.paged import Pager
from tests.qemu.conftest import Qemu
from tests.vm.bed import Bed, Spec

DEBUG = os.environ.get("DCM_DEBUG_KERNEL")
KERNEL_BUILD = BUILD / "debug-kernel" if DEBUG else BUILD
MODULE = KERNEL_BUILD / "kernel" / "gc" / "virtio_gc.ko"
NAMES = ("vgc_check", "libvgc_check", "heap_check", "lists")
PROGRAMS = [BUILD / "tests-qemu" / name for name in NAMES]
LOGS = KERNEL_BUILD / "test" / "qemu"
WINDOW_MIB = 64


class GcBed(Bed):
    """A Debian 13 on the built QEMU, with a virtio-gc device."""

    def __init__(
        self,
        spec: Spec,
        qemu: Qemu,
        folder: Path,
        config: Path,
        keep: Path,
        window_mib: int = WINDOW_MIB,
    ) -> None:
        super().__init__(spec, keep=keep)
        self.window_mib = window_mib
        self.qemu = qemu
        self.folder = folder
        self.config = config

    def command_line(self, shell: bool = False) -> list[str]:
        env = self.qemu.environment(self.folder)
        words = [f"{name}={env[name]}" for name in ("LD_LIBRARY_PATH", "DCM_RUNTIME_DIR")]
        backend = f"memory-backend-dcm,id=window,size={self.window_mib}M,config={self.config}"
        cmd = [*super().command_line(shell), "-object", backend]
        cmd += ["-device", "virtio-gc-pci,id=gc,memdev=window"]
        return ["env", *words, str(self.qemu.binary), *cmd[1:]]

    def load(self) -> None:
        """The driver, and wait for its device."""
        self.insmod(MODULE)
        self.must("until [ -e /dev/vgc0 ]; do sleep 0.1; done", 30)

    def check(self, *args: str, timeout: float = 120) -> None:
        """Run vgc_check."""
        ran = self.run(["/tmp/vgc_check", args[0], "/dev/vgc0", *args[1:]], timeout)
        assert (ran.rc, ran.stdout) == (0, "ok\n"), (args, ran)

    @staticmethod
    def heap(mode: str, seed: int, *args: str) -> list[str]:
        """heap_check's command line."""
        return ["/tmp/heap_check", mode, "/dev/vgc0", str(seed), *args]

    def pager(self) -> Pager:
        """The window's, by its status socket."""
        return Pager(self.folder / "vm" / "gc.sock")


@cache
def build() -> None:
    """The module and the programs, once a run."""
    module = ["scripts/kernel-check", "6.12"]
    if DEBUG:
        module = ["make", "-C", "guest-virtio-gc/driver", f"KDIR={DEBUG}", f"BUILD={KERNEL_BUILD}"]
    for command in (module, ["make", "-C", "tests/qemu", f"BUILD={BUILD}"]):
        done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def gc_bed(qemu: Qemu, folder: Path, config: Path, name: str) -> Iterator[GcBed]:
    """A guest with the module loaded; judged, and the module taken out, at the end."""
    kernel = Path(DEBUG) / "arch" / "x86" / "boot" / "bzImage" if DEBUG else None
    # Heavier than the distribution's: it keeps what it has allocated for kmemleak.
    spec = Spec(memory_mib=768, kvm=False, guest=False, kernel=kernel)
    bed = GcBed(spec, qemu, folder, config, LOGS / name)
    with bed:
        for program in PROGRAMS:
            bed.put(program, f"/tmp/{program.name}")
        bed.load()
        yield bed
        if bed.run("test -e /sys/module/virtio_gc").rc == 0:
            bed.rmmod("virtio_gc")
        if DEBUG:
            bed.must("echo scan >/sys/kernel/debug/kmemleak; echo scan >/sys/kernel/debug/kmemleak")
            assert bed.must("cat /sys/kernel/debug/kmemleak") == ""
        wrong = bed.finish()
        assert wrong == [], f"{wrong}; the console is in {bed.keep}"
        # Of the host: donors and workers come and go, that is all there is to say, and not often.
        lines = bed.qemu_log().splitlines()
        assert [x for x in lines if not x.startswith("libdcm: donor ")] == []
        assert len(lines) < 100, lines[-5:]

# SPDX-License-Identifier: GPL-2.0-or-later
"""A guest with a virtio-gc device and a Java: Debian's JRE, our libjvm beside it, some programs."""

from __future__ import annotations

from pathlib import Path

from tests.framework.paths import BUILD
from tests.qemu.conftest import Qemu
from tests.qemu.gcbed import GcBed
from tests.vm.bed import Spec

FOLDER = "/src"  # of the programs and of libvgc, in the JRE's root


class JavaBed(GcBed):
    """Its second disk is that of scripts/jdk-image."""

    def __init__(
        self,
        disk: Path,
        qemu: Qemu,
        folder: Path,
        config: Path,
        keep: Path,
        window_mib: int,
        memory_mib: int = 1024,
    ) -> None:
        extra = ("-drive", f"file={disk},format=raw,if=none,id=jdk,readonly=on",
                 "-device", "virtio-blk-pci,drive=jdk,serial=jdk")  # fmt: skip
        spec = Spec(memory_mib=memory_mib, kvm=False, guest=False, extra=extra)
        super().__init__(spec, qemu, folder, config, keep, window_mib)

    def load_java(self, classes: Path) -> None:
        """The driver, the disk as a root, and in it these classes and libvgc."""
        self.load()
        self.must(f"mkdir /tmp/jdk /tmp{FOLDER} && mount -o ro /run/disk/jdk /tmp/jdk", 60)
        for path in sorted(classes.glob("*.class")):
            self.put(path, f"/tmp{FOLDER}/{path.name}")
        self.put(BUILD / "lib" / "libvgc.so.0", f"/tmp{FOLDER}/libvgc.so.0")
        self.must(f"cd /tmp/jdk; mount --bind /tmp{FOLDER} .{FOLDER}; mount --rbind /dev dev; "
                  "mount -t proc proc proc; mount -t tmpfs tmpfs tmp")  # fmt: skip

    def java(self, heap_mib: int, *args: str) -> list[str]:
        """The command of a Java program whose heap is in the window."""
        command = ["chroot", "/tmp/jdk", "env", f"LD_LIBRARY_PATH={FOLDER}", "java"]
        command += ["-XXaltjvm=dcm", "-XX:-UsePerfData", "-XX:DonorHeap=/dev/vgc0"]
        return [*command, "-XX:+UseG1GC", f"-Xmx{heap_mib}m", "-cp", FOLDER, *args]

    def unload(self) -> None:
        """Take the disk and the driver out, which nothing may use any more."""
        self.must("umount -l /tmp/jdk", 60)
        self.rmmod("virtio_gc")

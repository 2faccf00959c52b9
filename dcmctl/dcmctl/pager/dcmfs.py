# SPDX-License-Identifier: GPL-2.0-or-later
"""dcmfs from a program: where it is mounted, and what its files tell (dcmfs.h)."""

from __future__ import annotations

import fcntl
import os
import re
import struct
from dataclasses import dataclass
from pathlib import Path

from dcmctl.lib.errors import DcmError, reason
from dcmctl.lib.units import PAGE, format_size

MOUNTS = Path("/proc/self/mounts")
DEBUG = Path("/sys/kernel/debug/kvm-dcm")
FILESYSTEMS = Path("/proc/filesystems")
VERSION = 4
FOLDER = "libvirt"  # on the mount: what is in it is the hook's

_INFO = struct.Struct("=II11Q32x")


def _ioc(direction: int, number: int, size: int) -> int:
    return direction << 30 | size << 16 | 0xDC << 8 | number


_IOC_INFO = _ioc(2, 1, _INFO.size)
_IOC_BUDGET = _ioc(1, 2, 8)


@dataclass(frozen=True)
class Info:
    """struct dcmfs_info, in bytes."""

    size: int
    extent: int
    extents: int
    budget: int
    min_budget: int
    direct: int
    wanted: int  # extents
    lost: int


def is_loaded() -> bool:
    """Whether this kernel has dcmfs now; mount(8) would load the module."""
    return any(line.split()[-1:] == ["dcmfs"] for line in FILESYSTEMS.read_text().splitlines())


def mounts() -> list[Path]:
    """Where one is mounted, in the order they were."""
    found: list[Path] = []
    for line in MOUNTS.read_text(errors="surrogateescape").splitlines():
        words = line.split(" ")
        if len(words) > 2 and words[2] == "dcmfs":
            # Blanks and such are written as \\040.
            text = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), words[1])
            path = Path(text)
            if path not in found:
                found.append(path)
    return found


def the_mount() -> Path:
    """The one that VMs of libvirt have their memory on."""
    found = mounts()
    if not found:
        what = "no dcmfs is mounted" if is_loaded() else "the kernel module kvm-dcm is not loaded"
        raise DcmError(
            f"{what}: mount -t dcmfs -o budget=4G,extent=64M dcm /mnt/dcm "
            "(with extent= the donors' slab size), and in /etc/fstab"
        )
    if len(found) > 1:
        raise DcmError(
            f"more than one dcmfs is mounted ({', '.join(map(str, found))}): "
            "which one is libvirt's can't be said: unmount the others"
        )
    return found[0]


def path_of(mount: Path, uuid: str) -> Path:
    """The memory of one domain, named as its AppArmor profile, which may have no other."""
    return mount / FOLDER / f"libvirt-{uuid}"


def info(path: Path | int) -> Info:
    """Of a file that has a size."""
    fd = path if isinstance(path, int) else os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = bytearray(_INFO.size)
        fcntl.ioctl(fd, _IOC_INFO, data)
    finally:
        if not isinstance(path, int):
            os.close(fd)
    version, _, pages, extent, extents, budget, least, direct, *rest = _INFO.unpack(data)
    if version != VERSION:
        raise DcmError(f"this kvm-dcm.ko is another version ({version}, not {VERSION}) than dcmctl")
    wanted, lost = rest[3], rest[4]
    return Info(
        size=pages * PAGE,
        extent=extent * PAGE,
        extents=extents,
        budget=budget * PAGE,
        min_budget=least * PAGE,
        direct=direct * PAGE,
        wanted=wanted,
        lost=lost * PAGE,
    )


def stats(path: Path) -> dict[str, int]:
    """Of a file, as the kernel counts; root's, where debugfs is mounted.

    Counters by the core's names; "latency fault p50" and the like, in ns.
    """
    at = path.stat()
    name = f"{os.major(at.st_dev)}:{os.minor(at.st_dev)}-{at.st_ino}"
    text = (DEBUG / name / "stats").read_bytes()[: 1 << 16].decode()
    found: dict[str, int] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) > 1 and words[-1].isdigit():
            found[" ".join(words[:-1])] = int(words[-1])
    return found


def set_budget(path: Path | int, size: int) -> None:
    """The most of the file's memory that is on this host."""
    fd = path if isinstance(path, int) else os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.ioctl(fd, _IOC_BUDGET, struct.pack("=Q", size // PAGE))
    except OSError as exc:
        least = info(fd).min_budget
        if size < least:
            raise DcmError(
                f"a budget of {format_size(size)} is too small: at least {format_size(least)}"
            ) from None
        raise DcmError(f"the budget can't be set: {reason(exc)} (it takes root)") from None
    finally:
        if not isinstance(path, int):
            os.close(fd)

# SPDX-License-Identifier: GPL-2.0-or-later
"""dcmfs, the kernel pager's file system: its mounts, and the ioctls of its files (dcmfs.h)."""

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
VERSION = 7
FOLDER = "libvirt"  # on the mount; the hook makes and removes the files in it

_INFO = struct.Struct("=II12Q24x")
_SEALED = 1  # a flag in struct dcmfs_info


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
    wanted: int  # extents that wait for a slab
    lost: int
    sealed: bool  # pages are encrypted before they leave


def is_loaded() -> bool:
    """Whether the kernel has dcmfs now; unlike mount(8), this does not load the module."""
    return any(line.split()[-1:] == ["dcmfs"] for line in FILESYSTEMS.read_text().splitlines())


def mounts() -> list[Path]:
    """Mount points of dcmfs, oldest first."""
    found: list[Path] = []
    for line in MOUNTS.read_text(errors="surrogateescape").splitlines():
        words = line.split(" ")
        if len(words) > 2 and words[2] == "dcmfs":
            # The kernel writes a blank as \\040.
            text = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), words[1])
            path = Path(text)
            if path not in found:
                found.append(path)
    return found


def the_mount() -> Path:
    """The mount point for the memory of libvirt's VMs; there must be exactly one."""
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
            "unmount all but the one that is for VMs of libvirt"
        )
    return found[0]


def path_of(mount: Path, uuid: str) -> Path:
    """The path of a domain's file. The domain's AppArmor profile allows only this path."""
    return mount / FOLDER / f"libvirt-{uuid}"


def info(path: Path | int) -> Info:
    """Read a file's struct dcmfs_info (DCMFS_IOC_INFO). The file must not be empty."""
    fd = path if isinstance(path, int) else os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = bytearray(_INFO.size)
        fcntl.ioctl(fd, _IOC_INFO, data)
    finally:
        if not isinstance(path, int):
            os.close(fd)
    version, _, pages, extent, extents, budget, least, direct, *rest = _INFO.unpack(data)
    if version != VERSION:
        raise DcmError(
            f"kvm-dcm.ko has interface version {version}, dcmctl {VERSION}: "
            "install both from the same release"
        )
    wanted, lost, flags = rest[3:6]
    return Info(
        size=pages * PAGE,
        extent=extent * PAGE,
        extents=extents,
        budget=budget * PAGE,
        min_budget=least * PAGE,
        direct=direct * PAGE,
        wanted=wanted,
        lost=lost * PAGE,
        sealed=bool(flags & _SEALED),
    )


def stats(path: Path) -> dict[str, int]:
    """Read the counters of a file from debugfs, which only root may read.

    Counters have the core's names; latencies are named like "latency fault p50", in ns.
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
    """Set the budget of a file: the most of its memory on this host."""
    fd = path if isinstance(path, int) else os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.ioctl(fd, _IOC_BUDGET, struct.pack("=Q", size // PAGE))
    except OSError as exc:
        least = info(fd).min_budget
        if size < least:
            raise DcmError(
                f"a budget of {format_size(size)} is too small: at least {format_size(least)}"
            ) from None
        raise DcmError(f"the budget can't be set: {reason(exc)} (only root may set it)") from None
    finally:
        if not isinstance(path, int):
            os.close(fd)

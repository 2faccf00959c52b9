# SPDX-License-Identifier: GPL-2.0-or-later
"""Where the other files of this installation are, and its version.

The package is TOP/dcmctl/dcmctl in the source tree, PREFIX/share/kvm-dcm/dcmctl when installed.
"""

from __future__ import annotations

import platform
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
EMULATOR = "dcm-qemu"


def _in_tree() -> bool:
    return PACKAGE.parent.name == "dcmctl"


def _prefix() -> Path:
    return PACKAGE.parents[2]


def version() -> str:
    """The project's version; "unknown" if its file cannot be read."""
    path = PACKAGE.parents[1] / "VERSION" if _in_tree() else PACKAGE / "VERSION"
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeError):
        return "unknown"


def multiarch() -> str:
    """Debian's multiarch name of this machine, which is the name of its library folder."""
    return f"{platform.machine()}-linux-gnu"


def library_dirs() -> list[Path]:
    """The folders in which libdcm-preload.so may be, best first."""
    if _in_tree():
        return [PACKAGE.parents[1] / "build" / "lib"]
    lib = _prefix() / "lib"
    own = lib / multiarch()
    return [own / "kvm-dcm", lib / "kvm-dcm", own, lib]


def emulator() -> Path:
    """The path of dcm-qemu. It exists only if the package kvm-dcm-libvirt is installed."""
    if _in_tree():
        return PACKAGE.parents[1] / "libvirt-hooks" / EMULATOR
    return _prefix() / "lib" / "kvm-dcm" / EMULATOR


def web_folder() -> Path:
    """The folder of the operator's page's files."""
    return PACKAGE.parent / "web"

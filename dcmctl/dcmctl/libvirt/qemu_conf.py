# SPDX-License-Identifier: GPL-2.0-or-later
"""Settings of libvirt's qemu.conf that matter for guest memory."""

from __future__ import annotations

import os
import re
from pathlib import Path

from dcmctl.lib.errors import DcmError

DEFAULT_RAM = Path("/var/lib/libvirt/qemu/ram")


def path() -> Path:
    return Path(os.environ.get("DCM_QEMU_CONF") or "/etc/libvirt/qemu.conf")


def setting(name: str) -> str | None:
    """The value of a setting; None if it is not set."""
    try:
        text = path().read_text(errors="replace")
    except FileNotFoundError:
        return None
    except PermissionError:
        raise DcmError(f"only root can read {path()}: run this as root") from None
    found = re.findall(rf'^\s*{name}\s*=\s*"?([^"\n]*?)"?\s*$', text, re.M)
    return found[-1] if found else None


def ram_folder() -> Path:
    """The folder in which libvirt makes a folder for each VM whose memory is a file."""
    given = setting("memory_backing_dir")
    return Path(given) / "libvirt" / "qemu" if given else DEFAULT_RAM

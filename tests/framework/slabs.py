# SPDX-License-Identifier: GPL-2.0-or-later
"""The memory that a donor lends, from outside: the descriptors of its slabs."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def open_files(pid: int) -> dict[Path, str]:
    """A process's open files: links in /proc to open them by, and what they lead to."""
    found = {}
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found[link] = os.readlink(link)
    return found


def slab_memfds(pid: int) -> list[Path]:
    """Those of a donor's slabs that are memory."""
    return [link for link, name in open_files(pid).items() if "memfd:dcm-slab" in name]

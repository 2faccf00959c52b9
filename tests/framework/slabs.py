# SPDX-License-Identifier: GPL-2.0-or-later
"""Access to the memory that a donor lends, through the descriptors of its slabs in /proc."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from io import FileIO
from pathlib import Path


def open_files(pid: int) -> dict[Path, str]:
    """A process's open files: links in /proc to open them by, and what they lead to."""
    found = {}
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found[link] = os.readlink(link)
    return found


def slab_memfds(pid: int) -> list[Path]:
    """The links in /proc to a donor's slabs that are memory."""
    return [link for link, name in open_files(pid).items() if "memfd:dcm-slab" in name]


def slabs_opened(pid: int) -> Iterator[FileIO]:
    """Open these slabs one after another; skip slabs that are given back meanwhile."""
    for link in slab_memfds(pid):
        with contextlib.suppress(FileNotFoundError), link.open("r+b", buffering=0) as slab:
            yield slab

# SPDX-License-Identifier: GPL-2.0-or-later
"""dcmctl: run programs and stock guests on donor memory, and look at them.

Standard library only, Python 3.11 or later. Nothing that comes from a socket,
a file or the network is trusted: sizes are bounded, types are checked, and no
text of theirs reaches a terminal with its control characters.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["version"]


def version() -> str:
    """The project's version: next to the package when installed, else the tree's."""
    here = Path(__file__).resolve().parent
    for path in (here / "VERSION", here.parent.parent / "VERSION"):
        try:
            return path.read_text(encoding="ascii").strip()
        except (OSError, UnicodeError):
            continue
    return "unknown"

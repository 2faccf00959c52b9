# SPDX-License-Identifier: GPL-2.0-or-later
"""The output of a demo while it runs."""

from __future__ import annotations

import shutil
import sys
import time


class Screen:
    """Progress: lines that stay, and on a terminal one that changes."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._live = sys.stdout.isatty()
        self._drawn = 0
        self._last = 0.0

    def say(self, text: str) -> None:
        self.clear()
        print(f"[{time.monotonic() - self._start:4.0f} s] {text}", flush=True)

    def clear(self) -> None:
        if self._drawn:
            print("\r" + " " * self._drawn + "\r", end="")
            self._drawn = 0

    def progress(self, text: str) -> None:
        now = time.monotonic()
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            line = f"         {text}"[:width]
            print("\r" + line.ljust(self._drawn), end="", flush=True)
            self._drawn = len(line)
        elif now - self._last >= 5:
            self._last = now
            self.say(f"  {text}")

# SPDX-License-Identifier: GPL-2.0-or-later
"""Where a row is tried: this host, or L1, with a folder of its own."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True)
class Place:
    """The name, the directory and the machine that a row is given."""

    row: str
    scratch: Path  # its path is short: sockets are below it
    vm: bool = False  # in L1: dcmfs, netem, a kernel of our own
    quick: bool = False  # of `make test`

    @property
    def first(self) -> list[str]:
        """The beginning of daemons' commands: an emulated L1 may not run them for seconds."""
        return ["nice", "-n", "-15"] if self.vm else []

    def folder(self, name: str) -> Path:
        """A folder of this row's."""
        path = self.scratch / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def below(self, name: str) -> Place:
        """The same place for a part of the row."""
        return replace(self, scratch=self.folder(name))

    def say(self, text: str) -> None:
        """Progress."""
        print(f"{time.strftime('%H:%M:%S')} {self.row}: {text}", file=sys.stderr, flush=True)

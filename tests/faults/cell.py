# SPDX-License-Identifier: GPL-2.0-or-later
"""The cells of rows: a fault over one transport, to memory under one pager."""

from __future__ import annotations

import dataclasses
import os
from typing import Any


NOTE_MAX = 400
# Times all limits: in L1 on the kernel that finds bugs everything takes longer.
PATIENCE = int(os.environ.get("DCM_FAULTS_PATIENCE", "1"))


class CannotRun(Exception):
    """The row can't be tried here; the text says why."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """One square of a row's matrix: a measured value, or why there is none."""

    name: str  # "tls libdcm"
    value: float | None
    ok: bool
    note: str = ""

    def text(self) -> str:
        """For the row's detail."""
        value = "-" if self.value is None else f"{self.value:g}"
        miss = "" if self.ok else " MISSED"
        note = self.note if len(self.note) <= NOTE_MAX else f"{self.note[:NOTE_MAX]}..."
        return f"{self.name}: {value}{miss}{f' ({note})' if note else ''}"

    @staticmethod
    def read(text: dict[str, Any]) -> Cell:
        """From JSON."""
        return Cell(str(text["name"]), text["value"], bool(text["ok"]), str(text["note"]))


def at_most(name: str, value: float, limit: float, note: str = "") -> Cell:
    """A value that may not be above its target."""
    return Cell(name, round(value, 3), value <= limit, note)


def unknown(name: str, why: str) -> Cell:
    """Not measured is not ok."""
    return Cell(name, None, False, why)

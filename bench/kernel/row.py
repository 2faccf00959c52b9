# SPDX-License-Identifier: GPL-2.0-or-later
"""A row: what it measures, its target, and one line of kernel.json."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

Say = Callable[[str], None]
Raw = dict[str, Any]

# For each row: what it measures, and the target.
WHAT = {
    "fault-insns": (
        "L1 kernel instructions per 4 KiB major fault, eviction included, random, over swap on brd",
        "<= 0.35 x",
    ),
    "seq-insns": ("the same per page brought in, sequential", "<= 0.08 x"),
    "faults-bytes": (
        "major faults over those of the best swap; the worst of all loads",
        "< 1 x, and bytes moved <= 1.3 x",
    ),
    "exits": (
        "KVM exits per page brought in, sequential, elastic",
        "as stock KVM allows: 1 violation, 5 % for those it repeats",
    ),
    "huge": (
        "part of a guest's memory in KVM's 2 MiB entries, all of it direct",
        ">= 0.95, and <= 0.01 exits a page at first touch",
    ),
    "scale-vcpu": (
        "faults a second with 1, 2, 4 threads over those of swap on brd; the lowest",
        "> 1 at every count, and rising",
    ),
    "metadata": ("bytes of metadata for a page in use, of a 1 TiB sparse file", "<= 9"),
}


@dataclass(frozen=True)
class Row:
    """One line of kernel.json."""

    id: str
    what: str
    value: float | None
    target: str
    ok: bool
    repeat: int
    command: str
    detail: str
    raw: Raw  # of each side, run by run


def row(id_: str, value: float | None, ok: bool, raw: Raw, repeat: int, detail: str) -> Row:
    what, target = WHAT[id_]
    command = f"scripts/py python bench/kernel/run --only {id_}"
    number = None if value is None else round(value, 3)
    return Row(id_, what, number, target, ok, repeat, command, detail, raw)


def median(values: Iterable[float]) -> float:
    return float(statistics.median(values))

# SPDX-License-Identifier: GPL-2.0-or-later
"""GC pauses from a JVM's log: percentiles, and the program's share of the time (BMU)."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import re
from collections.abc import Sequence
from pathlib import Path

# The JVM writes this line at the end of a pause, with -Xlog:gc:file=...:uptimenanos
LINE = re.compile(r"^\[(\d+)ns\] GC\(\d+\) Pause .* ([0-9.]+)ms$", re.M)
WINDOWS_MS = (10, 100, 1000)
STEP = 1.1  # from one window to the next larger one


@dataclasses.dataclass(frozen=True)
class Pause:
    """A pause: its start and end, in ms since the JVM's start."""

    start: float
    end: float


def flag(path: Path) -> str:
    """The option with which a JVM writes such a log."""
    return f"-Xlog:gc:file={path}:uptimenanos"


def read(path: Path) -> list[Pause]:
    """Read all pauses from a log, in their order."""
    found = []
    for end, ms in LINE.findall(path.read_text(encoding="utf-8")):
        at = int(end) / 1e6
        found.append(Pause(at - float(ms), at))
    return found


def percentile(pauses: Sequence[Pause], percent: float) -> float:
    """The least time, in ms, that `percent` percent of the pauses do not exceed."""
    lengths = sorted(pause.end - pause.start for pause in pauses)
    return lengths[min(len(lengths) - 1, int(len(lengths) * percent / 100))]


def _most_paused(pauses: Sequence[Pause], window: float) -> float:
    """The most time that pauses take in any window of `window` ms."""
    ends, most = [pause.end for pause in pauses], 0.0
    # A worst window begins where a pause begins, or ends where one ends.
    for start in [*(pause.start for pause in pauses), *(end - window for end in ends)]:
        taken = 0.0
        for one in itertools.islice(pauses, bisect.bisect_right(ends, start), None):
            if one.start >= start + window:
                break
            taken += min(one.end, start + window) - max(one.start, start)
        most = max(most, taken)
    return most


def bounded_utilization(pauses: Sequence[Pause], window: float, total: float) -> float:
    """The program's share of the time in the worst window of `window` ms or more (BMU)."""
    worst, window = 1.0, min(window, total)
    while True:
        worst = min(worst, 1 - _most_paused(pauses, window) / window)
        if window >= total:
            return max(worst, 0.0)
        window = min(window * STEP, total)


def text(pauses: Sequence[Pause], total: float) -> str:
    """A text about the pauses of a program that ran for @total ms."""
    if not pauses:
        return "no pauses"
    lengths = [percentile(pauses, p) for p in (50, 90, 99, 100)]
    shares = [100 * bounded_utilization(pauses, w, total) for w in WINDOWS_MS]
    return (
        f"{len(pauses)} pauses, p50 {lengths[0]:.1f} p90 {lengths[1]:.1f} p99 {lengths[2]:.1f} "
        f"longest {lengths[3]:.1f} ms, BMU {shares[0]:.0f}/{shares[1]:.0f}/{shares[2]:.0f} %"
    )

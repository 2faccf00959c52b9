# SPDX-License-Identifier: GPL-2.0-or-later
"""The baseline: Java's collectors without any help of donors, which only keep the heap's pages.

Each is compared with itself in memory, and on zram with as much memory. This says which programs
lose enough to prove anything with, and what collectors that donors do not help lose.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import host, report, shares
from .java import Bench, Program, counts, pager_config, two_donors
from .shares import PLAIN, geomean

COLLECTORS = ("Parallel", "Serial", "Shenandoah")  # G1 is in the rows of whole programs
PROGRAMS = ("churn", "javac", "tpcc", "graphs")
SHARE = 25
SLOW_MAX = 20  # a run is ended when it takes this many times as long as in memory


@dataclass(frozen=True)
class One:
    """A program with a collector. @turns: (), and @missing says why, if it did not end in time."""

    program: str
    turns: Sequence[shares.Turn]
    missing: str = ""

    def seconds(self, side: str) -> float:
        """The median of a side's times."""
        return report.median([turn[side].seconds for turn in self.turns])

    def ratio(self) -> float:
        """How many times as long as in memory."""
        return self.seconds("ours") / self.seconds("memory")

    def text(self) -> str:
        """This program's part of a row's text."""
        if not self.turns:
            return self.missing
        zram = f"{self.seconds('zram'):.1f} s" if "zram" in self.turns[0] else "not to its end"
        faults = report.median([counts(turn["ours"].pager)["faults"] for turn in self.turns])
        return (
            f"{self.program} {self.ratio():.2f} (all memory {self.seconds('memory'):.1f} s, "
            f"donors {self.seconds('ours'):.1f} s, {faults:.0f} faults, zram {zram})"
        )


@dataclass(frozen=True)
class Found:
    """The results of all programs by collector."""

    by_collector: dict[str, list[One]]
    heap_mib: int
    repeat: int
    algorithm: str

    def value(self) -> float | None:
        """The geometric mean of all that ended, if any did."""
        ended = [one for ones in self.by_collector.values() for one in ones if one.turns]
        return geomean(one.ratio() for one in ended) if ended else None

    def text(self) -> str:
        """The row's text."""
        said = [
            f"{collector}: {', '.join(one.text() for one in ones)}"
            for collector, ones in self.by_collector.items()
        ]
        return (
            f"Timed: the process from its start to its end. {'. '.join(said)}. No help of donors: "
            f"they keep pages. A heap of {self.heap_mib} MiB, {SHARE} % of it direct; two donors "
            "over TCP in the clear, on a CPU beside that of the program and its pager. zram: the "
            "stock JVM in a memory cgroup of the peak that ours has had altogether, with swap on "
            f"zram ({self.algorithm}). Medians of {self.repeat} turns, geometric mean"
        )

    def raw(self) -> dict[str, Any]:
        """The row's raw data."""
        return {
            collector: {
                one.program: [
                    {side: outcome.seconds for side, outcome in turn.items()} for turn in one.turns
                ]
                for one in ones
            }
            for collector, ones in self.by_collector.items()
        }


def _measure(b: Bench, program: Program, collector: str, algorithm: str) -> One:
    with (
        tempfile.TemporaryDirectory(dir=b.folder) as place,
        two_donors(b.scale, Path(place)) as both,
    ):
        flag = f"-XX:DonorHeap=dcm:{pager_config(b.scale, Path(place), both, SHARE)}"
        memory = functools.partial(b.run, program, ours=False, collector=collector)
        turns = []
        for _ in range(b.scale.repeat):
            first = memory()
            limit = SLOW_MAX * first.seconds
            try:
                ours = b.run(
                    program, flag, *PLAIN, ours=True, on=both, collector=collector, limit_s=limit
                )
            except host.BenchError as e:
                return One(program.name, (), str(e))
            if ours.answer != first.answer:
                raise host.BenchError(f"{program.name}: {ours.answer} is not {first.answer}")
            turns.append({"memory": first, "ours": ours})
    swapped, _ = shares.swapped(b, program, turns, algorithm, collector)
    if swapped:
        turns = [{**turn, "zram": other} for turn, other in zip(turns, swapped, strict=True)]
    return One(program.name, turns)


def measure(b: Bench) -> Found:
    """Measure each collector with each program of the baseline."""
    algorithm = host.zram_algorithms()[0] or "lzo-rle"
    chosen = [program for program in b.programs if program.name in PROGRAMS]
    by_collector = {
        collector: [_measure(b, program, collector, algorithm) for program in chosen]
        for collector in COLLECTORS
    }
    return Found(by_collector, b.scale.heap_mib, b.scale.repeat, algorithm)

# SPDX-License-Identifier: GPL-2.0-or-later
"""The baseline: Java's collectors without any help of donors, which only keep the heap's pages.

Each is compared with itself in memory, and on zram with as much memory. This says which programs
lose enough to prove anything with, and what collectors that donors do not help lose.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import host, shares
from .java import Bench, Program, pager_config, two_donors
from .shares import PLAIN, Measured, geomean

COLLECTORS = ("Parallel", "Serial", "Shenandoah")  # G1 is in the rows of whole programs
PROGRAMS = ("churn", "javac", "tpcc", "graphs")
SHARE = 25
SLOW_MAX = 20  # a run is ended when it takes this many times as long as in memory


def _text(one: Measured) -> str:
    """A program's part of the row's text."""
    if not one.turns:
        return one.missing
    zram = f"{one.seconds('zram'):.1f} s" if one.has("zram") else "not to its end"
    return (
        f"{one.name} {one.ratio('ours', 'memory'):.2f} (all memory {one.seconds('memory'):.1f} s, "
        f"donors {one.seconds('ours'):.1f} s, {one.counted('ours')}, zram {zram})"
    )


@dataclass(frozen=True)
class Found:
    """The results of all programs by collector."""

    by_collector: dict[str, list[Measured]]
    heap_mib: int
    repeat: int
    algorithm: str

    def value(self) -> float | None:
        """The geometric mean of all that ended, if any did."""
        ended = [one for ones in self.by_collector.values() for one in ones if one.turns]
        return geomean(one.ratio("ours", "memory") for one in ended) if ended else None

    def text(self) -> str:
        """The row's text."""
        said = [
            f"{collector}: {', '.join(_text(one) for one in ones)}"
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
            collector: {one.name: one.raw() for one in ones if one.turns}
            for collector, ones in self.by_collector.items()
        }


def _measure(b: Bench, program: Program, collector: str, algorithm: str) -> Measured:
    with (
        tempfile.TemporaryDirectory(dir=b.folder) as place,
        two_donors(b.scale, Path(place)) as both,
    ):
        flag = f"-XX:DonorHeap=dcm:{pager_config(b.scale, Path(place), both, SHARE)}"
        turns = []
        for _ in range(b.scale.repeat):
            first = b.run(program, ours=False, collector=collector)
            limit = SLOW_MAX * first.seconds
            try:
                ours = b.run(
                    program, flag, *PLAIN, ours=True, on=both, collector=collector, limit_s=limit
                )
            except host.BenchError as e:
                return Measured(program.name, (), str(e))
            if ours.answer != first.answer:
                raise host.BenchError(f"{program.name}: {ours.answer} is not {first.answer}")
            turns.append({"memory": first, "ours": ours})
    return Measured(program.name, *shares.with_zram(b, program, turns, algorithm, collector))


def measure(b: Bench) -> Found:
    """Measure each collector with each program of the baseline."""
    algorithm = host.zram_algorithms()[0] or "lzo-rle"
    chosen = [program for program in b.programs if program.name in PROGRAMS]
    by_collector = {
        collector: [_measure(b, program, collector, algorithm) for program in chosen]
        for collector in COLLECTORS
    }
    return Found(by_collector, b.scale.heap_mib, b.scale.repeat, algorithm)

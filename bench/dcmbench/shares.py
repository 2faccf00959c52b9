# SPDX-License-Identifier: GPL-2.0-or-later
"""Java programs with a share of their heap direct: in memory, plain, with donors' help, on zram.

The sides run in turn, so that other work of the machine affects all of them alike.
"""

from __future__ import annotations

import functools
import statistics
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import cycles, full, host, pauses, report
from .java import Bench, Outcome, Program, counts, pager_config, two_donors

Turn = dict[str, Outcome]  # by side
MIB = 1 << 20
# G1 without donors' help, and with young collections as without donors
PLAIN = ("-XX:DonorYoungPercent=0",)
OURS = (*cycles.OURS, *full.OURS)
ZRAM_MIB = 1024
ZRAM_SLOW_MAX = 20  # a run on zram is ended when it takes this many times as long as ours


def geomean(values: Iterable[float]) -> float:
    """The geometric mean."""
    return report.geomean(list(values))


def in_turn(b: Bench, program: Program, sides: Mapping[str, Callable[[], Outcome]]) -> list[Turn]:
    """Run all sides in turns, each turn in another order; the first turn does not count.

    An error if the answers differ.
    """
    found = []
    names = list(sides)
    for turn in range(b.scale.repeat + 1):
        outcomes = {name: sides[name]() for name in names}
        answers = {outcome.answer for outcome in outcomes.values()}
        if len(answers) > 1:
            said = [f"{name}: {outcome.answer}" for name, outcome in outcomes.items()]
            raise host.BenchError(f"{program.name}, turn {turn}: {', '.join(said)}")
        found.append(outcomes)
        names = [*names[1:], names[0]]
    return found[1:]


@dataclass(frozen=True)
class Measured:
    """The turns of one program. @missing: why there is no run on zram, or none at all."""

    name: str
    turns: Sequence[Turn]
    missing: str = ""

    def has(self, side: str) -> bool:
        """Whether this side has run to its end."""
        return side in self.turns[0]

    def _median(self, value: Callable[[Turn], float]) -> float:
        return report.median([value(turn) for turn in self.turns])

    def seconds(self, side: str) -> float:
        """The median of a side's times."""
        return self._median(lambda turn: turn[side].seconds)

    def ratio(self, left: str, right: str) -> float:
        """The median over all turns of one side's time divided by the other's."""
        return self._median(lambda turn: turn[left].seconds / turn[right].seconds)

    def workers(self) -> float:
        """The median of donors' CPU time for GC divided by the program's CPU time."""
        return self._median(lambda turn: turn["ours"].workers_s / turn["ours"].cpu_s)

    def pauses(self, side: str) -> Sequence[pauses.Pause]:
        """The pauses in the turn whose time is the median."""
        middle = statistics.median_low([turn[side].seconds for turn in self.turns])
        return next(t[side].pauses for t in self.turns if t[side].seconds == middle)

    def counted(self, side: str) -> str:
        """A text with the medians of the pager's counters."""
        found = [
            report.median([counts(turn[side].pager)[what] for turn in self.turns])
            for what in ("faults", "fetched_pages", "written_pages")
        ]
        return f"{found[0]:.0f} faults, {found[1]:.0f} pages brought in, {found[2]:.0f} written"

    def raw(self) -> dict[str, Any]:
        """This program's part of a row's raw data."""
        return {
            side: [
                {
                    "seconds": turn[side].seconds,
                    "cpu_s": turn[side].cpu_s,
                    "rss": turn[side].rss,
                    "workers_s": turn[side].workers_s,
                    "pager": counts(turn[side].pager),
                    "pauses_ms": [round(p.end - p.start, 3) for p in turn[side].pauses],
                }
                for turn in self.turns
            ]
            for side in self.turns[0]
        }


@dataclass(frozen=True)
class Found:
    """The results of all programs at one share."""

    programs: Sequence[Measured]
    share: int
    heap_mib: int
    repeat: int
    algorithm: str

    def conditions(self) -> str:
        """A text about the conditions, which all rows about whole programs have."""
        ages = [
            turn[side].age_s
            for one in self.programs
            for turn in one.turns
            for side in ("plain", "ours")
        ]
        return (
            f"Ours: DonorMark, DonorRebuild, DonorCompact and a young generation that fits; plain: "
            f"none of these; G1. A heap of {self.heap_mib} MiB, {self.share} % of it direct; two "
            "donors over TCP in the clear, on a CPU beside that of the program and its pager. The "
            f"counts are the pager's, at most {max(ages):.1f} s before the end; medians of "
            f"{self.repeat} turns of all sides, geometric mean over the programs"
        )

    def raw(self) -> dict[str, Any]:
        """A row's raw data."""
        return {one.name: one.raw() for one in self.programs}


def with_zram(
    b: Bench, program: Program, ours: Sequence[Turn], algorithm: str, collector: str = "G1"
) -> tuple[Sequence[Turn], str]:
    """Run the stock JVM on zram: the turns with that side; or as they are, and why it is not."""
    limit = int(report.median([turn["ours"].rss for turn in ours]))
    slowest = ZRAM_SLOW_MAX * max(turn["ours"].seconds for turn in ours)
    ledger = host.Ledger(b.scale.build / "bench" / "leftovers.json")
    ledger.sweep()
    found = []
    try:
        for turn in ours:
            with (
                host.zram(ledger, ZRAM_MIB * MIB, algorithm),
                host.cgroup(ledger, limit) as group,
            ):
                one = b.run(
                    program, ours=False, cgroup=group, limit_s=slowest, collector=collector
                )
            if one.answer != turn["ours"].answer:
                raise host.BenchError(f"{one.answer} is not {turn['ours'].answer}")
            found.append({**turn, "zram": one})
    except host.BenchError as e:
        return ours, f"not on zram: {e}"
    return found, ""


def _measure(b: Bench, program: Program, share: int, algorithm: str) -> Measured:
    with (
        tempfile.TemporaryDirectory(dir=b.folder) as place,
        two_donors(b.scale, Path(place)) as both,
    ):
        flag = f"-XX:DonorHeap=dcm:{pager_config(b.scale, Path(place), both, share)}"
        sides = {
            "memory": functools.partial(b.run, program, ours=False),
            "plain": functools.partial(b.run, program, flag, *PLAIN, ours=True, on=both),
            "ours": functools.partial(b.run, program, flag, *OURS, ours=True, on=both),
        }
        turns = in_turn(b, program, sides)
    if not algorithm:
        return Measured(program.name, turns)
    return Measured(program.name, *with_zram(b, program, turns, algorithm))


def measure(b: Bench, share: int) -> Found:
    """Measure all programs at this share; if it is 25 %, on zram too."""
    algorithm = host.zram_algorithms()[0] or "lzo-rle" if share == 25 else ""
    programs = [_measure(b, program, share, algorithm) for program in b.programs]
    return Found(programs, share, b.scale.heap_mib, b.scale.repeat, algorithm)

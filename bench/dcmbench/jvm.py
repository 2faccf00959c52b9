# SPDX-License-Identifier: GPL-2.0-or-later
"""Rows of our JVM: what its libjvm costs without the flag, and with a heap on donors.

In the first rows G1 collects by itself, donors only keep pages, and a process is timed from its
start to its end. The last rows are of concurrent cycles (cycles.py) and full collections
(full.py).
"""

from __future__ import annotations

import contextlib
import functools
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.jvm import support

from . import cycles, full, host, report
from .java import Bench, Outcome, Scale, counts, pager_config, two_donors

# The ids of the table, in its order: what, target.
ROWS: dict[str, tuple[str, str]] = {
    "off": ("the patched JVM without the flag against the stock one", "0.98 to 1.02 x"),
    "slowdown-50": ("plain G1, half of the heap direct, against all memory", "<= 1.15 x"),
    "slowdown-25": ("plain G1, a quarter of the heap direct, against all memory", "<= 1.5 x"),
    "end-to-end-50": ("half of the heap direct, plain G1's time over that with donors", ">= 1.5 x"),
    "end-to-end-25": ("a quarter direct, plain G1's time over that with donors' help", ">= 2 x"),
    "mark-speed": ("concurrent marking at 25 % direct, plain G1's time over ours", ">= 10 x"),
    "start-pause": ("concurrent start pause at 25 % direct, over plain G1's in memory", "<= 1.1 x"),
    "old-fetched": ("% of the old generation brought in by a concurrent cycle at 25 %", "< 5 %"),
    "full-gc": ("System.gc(), a full collection, at 25 % direct, plain over ours", ">= 10 x"),
}
CYCLES = ("mark-speed", "start-pause", "old-fetched")
MOST = {"slowdown-50": 1.15, "slowdown-25": 1.5}
LEAST = {"end-to-end-50": 1.5, "end-to-end-25": 2.0}


def ratio(runs: Sequence[tuple[Outcome, Outcome]]) -> float:
    """The median of the times of each pair, the left one's over the right one's."""
    return report.median([a.seconds / b.seconds for a, b in runs])


def raw(runs: Sequence[tuple[Outcome, Outcome]]) -> list[dict[str, Any]]:
    """What a row keeps of its runs."""
    return [
        {
            "seconds": a.seconds,
            "cpu_s": a.cpu_s,
            "pager": counts(a.pager),
            "age_s": a.age_s,
            "against": b.seconds,
        }
        for a, b in runs
    ]


def row(
    name: str, value: float | None, ok: bool, detail: str, found: Mapping[str, Any] | None = None
) -> report.Row:
    """A row with the fixed texts of its id."""
    what, target = ROWS[name]
    number = None if value is None else round(value, 3)
    return report.Row(name, what, number, target, ok, detail, found or {})


def off(b: Bench) -> report.Row:
    """Both JVMs with all of the heap in memory, in turn."""
    found, said = {}, []
    for program in b.programs:
        stock_run = functools.partial(b.run, program, ours=False)
        runs = b.pair(program, functools.partial(b.run, program, ours=True), stock_run)
        found[program.name] = runs
        stock = report.median([right.seconds for _, right in runs])
        said.append(f"{program.name} {ratio(runs):.3f} (stock {stock:.1f} s)")
    value = report.geomean([ratio(runs) for runs in found.values()])
    return row(
        "off",
        value,
        0.98 <= value <= 1.02,
        f"Timed: the process from its start to its end. {', '.join(said)}. G1, a heap of "
        f"{b.scale.heap_mib} MiB in memory, no donor; median of {b.scale.repeat} pairs, one after "
        "the other, geometric mean over the programs",
        {name: raw(runs) for name, runs in found.items()},
    )


@contextlib.contextmanager
def heap_on_donors(b: Bench, share: int) -> Iterator[str]:
    """The flag for a heap of which so many percent are direct, on two donors."""
    with (
        tempfile.TemporaryDirectory(dir=b.folder) as place,
        two_donors(b.scale, Path(place)) as both,
    ):
        yield f"-XX:DonorHeap=dcm:{pager_config(b.scale, Path(place), both, share)}"


def counted(outcomes: Sequence[Outcome]) -> str:
    """The medians of what the pagers have counted, in words."""
    middle = {
        what: report.median([counts(outcome.pager)[what] for outcome in outcomes])
        for what in ("faults", "fetched_pages", "written_pages")
    }
    return (
        f"{middle['faults']:.0f} faults, {middle['fetched_pages']:.0f} pages brought in, "
        f"{middle['written_pages']:.0f} written"
    )


def conditions(b: Bench, share: int, ages: Sequence[float]) -> str:
    """What all rows of whole programs with their heap on donors say."""
    return (
        f"A heap of {b.scale.heap_mib} MiB, {share} % of it direct; two donors over TCP in "
        "the clear, on a CPU beside that of the program and its pager. The counts are the "
        f"pager's, at most {max(ages):.1f} s before the end; medians of {b.scale.repeat} pairs, "
        "one after the other, geometric mean over the programs"
    )


def slowdown(b: Bench, name: str, share: int) -> report.Row:
    """Our JVM with its heap on donors against the stock one with all of it in memory, in turn."""
    found, said = {}, []
    for program in b.programs:
        with heap_on_donors(b, share) as flag:
            paged = functools.partial(b.run, program, flag, ours=True, paged=True)
            runs = b.pair(program, paged, functools.partial(b.run, program, ours=False))
        found[program.name] = runs
        plain = report.median([right.seconds for _, right in runs])
        said.append(
            f"{program.name} {ratio(runs):.2f} (all memory {plain:.1f} s; "
            f"{counted([left for left, _ in runs])})"
        )
    value = report.geomean([ratio(runs) for runs in found.values()])
    ages = [left.age_s for runs in found.values() for left, _ in runs]
    return row(
        name,
        value,
        value <= MOST[name],
        f"Timed: the process from its start to its end. {', '.join(said)}. All memory: the stock "
        f"JVM. {conditions(b, share, ages)}. Donors trace nothing here",
        {program: raw(runs) for program, runs in found.items()},
    )


def end_to_end(b: Bench, name: str, share: int) -> report.Row:
    """G1 by itself against G1 with donors' help, both with their heap on donors, in turn."""
    found, said = {}, []
    for program in b.programs:
        with heap_on_donors(b, share) as flag:
            plain = functools.partial(b.run, program, flag, ours=True, paged=True)
            help_flags = (*cycles.OURS, *full.OURS)
            ours = functools.partial(b.run, program, flag, *help_flags, ours=True, paged=True)
            runs = b.pair(program, plain, ours)
        found[program.name] = runs
        said.append(
            f"{program.name} {ratio(runs):.2f} (plain G1 "
            f"{report.median([left.seconds for left, _ in runs]):.1f} s, "
            f"{counted([left for left, _ in runs])}; ours {counted([right for _, right in runs])})"
        )
    value = report.geomean([ratio(runs) for runs in found.values()])
    ages = [run.age_s for runs in found.values() for pair in runs for run in pair]
    return row(
        name,
        value,
        value >= LEAST[name],
        f"Timed: the process from its start to its end. {', '.join(said)}. Ours: DonorMark, "
        f"DonorRebuild and DonorCompact. {conditions(b, share, ages)}",
        {program: raw(runs) for program, runs in found.items()},
    )


def cycle_row(name: str, found: cycles.Found) -> report.Row:
    """One of the rows of concurrent cycles."""
    plain, ours, memory = found.plain, found.ours, found.memory
    if name == "mark-speed":
        value = plain.mark_ms / ours.mark_ms
        ok, timed = value >= 10, "from the start pause's end until all is marked"
    elif name == "start-pause":
        value = ours.pause_ms / memory.pause_ms
        ok, timed = value <= 1.1, "the pause in which a concurrent cycle begins"
    else:
        value = 100 * ours.fetched_pages / ours.old_pages
        ok, timed = value < 5, "nothing: pages are counted, from the cycle's start to its end"
    return row(
        name,
        value,
        ok,
        f"Timed: {timed}. In each: {memory.text('plain G1, all in memory')}; "
        f"{plain.text('plain G1, 25 % direct')}; {ours.text('DonorMark and DonorRebuild, 25 %')}. "
        f"A graph of {found.mib} MiB, of which a thousand references change before each cycle; "
        f"medians of {found.cycles} cycles; a heap of {found.heap_mib} MiB, two donors over TCP "
        "in the clear, on a CPU beside that of the program and its pager",
        found.raw(),
    )


def full_gc(b: Bench) -> report.Row:
    """Full collections."""
    found = full.measure(b)
    value = found.plain.ms / found.ours.ms
    return row(
        "full-gc",
        value,
        value >= 10,
        "Timed: System.gc() as the program sees it. The pauses: "
        f"{found.memory.text('plain G1, all in memory')}; "
        f"{found.plain.text('plain G1, 25 % direct')}; "
        f"{found.ours.text('DonorCompact, 25 %')}. A graph of {found.mib} MiB, of which "
        f"{full.REPLACED} % is replaced before each collection; medians of {found.collections}; a "
        f"heap of {found.heap_mib} MiB, two donors over TCP in the clear, on a CPU beside that of "
        "the program and its pager",
        found.raw(),
    )


def measures(
    build: Path, repeat: int, tiny: bool, folder: Path
) -> dict[str, Callable[[], report.Row]]:
    """By id; a row that fails says why, and the others go on."""
    s = Scale(build, repeat, tiny)
    made: list[Bench] = []
    found: list[cycles.Found] = []

    def attempt(name: str) -> report.Row:
        if why := support.missing():
            return row(name, None, False, f"not measured: {why}")
        try:
            if not made:
                made.append(Bench(s, folder))
            if name == "off":
                return off(made[0])
            if name in CYCLES:
                if not found:
                    found.append(cycles.measure(made[0]))
                return cycle_row(name, found[0])
            if name == "full-gc":
                return full_gc(made[0])
            share = int(name.rpartition("-")[2])
            return (end_to_end if name in LEAST else slowdown)(made[0], name, share)
        except (host.BenchError, OSError, subprocess.SubprocessError) as e:
            return row(name, None, False, f"not measured: {e}")

    return {name: functools.partial(attempt, name) for name in ROWS}

# SPDX-License-Identifier: GPL-2.0-or-later
"""Rows of our JVM: the cost of its libjvm without donors' help, its times with a heap on donors.

Whole programs (shares.py) are timed from the start of a process to its end; their pauses are those
that G1 logs. Other rows measure concurrent cycles (cycles.py) and full collections (full.py), and
compare donors' marks with G1's own (equal.py).
"""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.jvm import support

from . import baseline, cycles, equal, full, host, pauses, report, shares
from .java import Bench, Scale
from .shares import Measured, geomean

# By id, in the table's order: description and target.
ROWS: dict[str, tuple[str, str]] = {
    "off": ("the patched JVM without the flag against the stock one", "0.98 to 1.02 x"),
    "mark-equal": ("donors' marks that are not G1's own, of 10^4 collections", "0"),
    "mark-speed": ("concurrent marking at 25 % direct, plain G1's time over ours", ">= 10 x"),
    "start-pause": ("concurrent start pause at 25 % direct, over plain G1's in memory", "<= 1.1 x"),
    "old-fetched": ("% of the old generation brought in by a concurrent cycle at 25 %", "< 5 %"),
    "full-gc": ("System.gc(), a full collection, at 25 % direct, plain over ours", ">= 10 x"),
    "end-to-end-50": ("half of the heap direct, plain G1's time over that with donors", ">= 1.5 x"),
    "end-to-end-25": ("a quarter direct, plain G1's time over that with donors' help", ">= 2 x"),
    "slowdown-50": ("half of the heap direct, ours against all memory", "<= 1.15 x"),
    "slowdown-25": ("a quarter of the heap direct, ours against all memory", "<= 1.5 x"),
    "vs-zram-25": ("G1 on swap in compressed memory, over ours at a quarter direct", ">= 3 x"),
    "pause-p90": ("p90 of all pauses at 25 % direct, over plain G1's in memory", "<= 1.5 x"),
    "workers-cpu": ("donors' processor time for GC at 25 %, over the program's own", "printed"),
    "baseline": ("other collectors at 25 % direct, without help, against all memory", "printed"),
}
CYCLES = ("mark-speed", "start-pause", "old-fetched")
SLOWDOWN = {50: 1.15, 25: 1.5}
END_TO_END = {50: 1.5, 25: 2.0}
ZRAM_LEAST = 3.0
PAUSE_MOST = 1.5


def row(
    name: str, value: float | None, ok: bool, detail: str, found: Mapping[str, Any] | None = None
) -> report.Row:
    """A row with the fixed texts of its id."""
    what, target = ROWS[name]
    number = None if value is None else round(value, 3)
    return report.Row(name, what, number, target, ok, detail, found or {})


def off(b: Bench) -> report.Row:
    """Compare our JVM with the stock one, both with the whole heap in memory, in turn."""
    found, said = {}, []
    for program in b.programs:
        sides = {
            "ours": functools.partial(b.run, program, ours=True),
            "stock": functools.partial(b.run, program, ours=False),
        }
        measured = Measured(program.name, shares.in_turn(b, program, sides))
        found[program.name] = measured
        stock = measured.seconds("stock")
        said.append(f"{program.name} {measured.ratio('ours', 'stock'):.3f} (stock {stock:.1f} s)")
    value = geomean(one.ratio("ours", "stock") for one in found.values())
    return row(
        "off",
        value,
        0.98 <= value <= 1.02,
        f"Timed: the process from its start to its end. {', '.join(said)}. G1, a heap of "
        f"{b.scale.heap_mib} MiB in memory, no donor; median of {b.scale.repeat} turns, geometric "
        "mean over the programs",
        {name: one.raw() for name, one in found.items()},
    )


def end_to_end(name: str, share: int, found: shares.Found) -> report.Row:
    """Compare G1 by itself with G1 with donors' help, both with their heap on donors."""
    value = geomean(one.ratio("plain", "ours") for one in found.programs)
    said = [
        f"{one.name} {one.ratio('plain', 'ours'):.2f} (plain G1 {one.seconds('plain'):.1f} s, "
        f"{one.counted('plain')}; ours {one.counted('ours')})"
        for one in found.programs
    ]
    return row(
        name,
        value,
        value >= END_TO_END[share],
        f"Timed: the process from its start to its end. {', '.join(said)}. {found.conditions()}",
        found.raw(),
    )


def slowdown(name: str, share: int, found: shares.Found) -> report.Row:
    """Compare G1 with donors' help with the stock JVM whose whole heap is in memory."""
    value = geomean(one.ratio("ours", "memory") for one in found.programs)
    said = [
        f"{one.name} {one.ratio('ours', 'memory'):.2f} (all memory {one.seconds('memory'):.1f} s)"
        for one in found.programs
    ]
    return row(
        name,
        value,
        value <= SLOWDOWN[share],
        f"Timed: the process from its start to its end. {', '.join(said)}. {found.conditions()}",
        found.raw(),
    )


def vs_zram(found: shares.Found) -> report.Row:
    """Compare with the stock JVM in as much memory as ours had, with swap on zram."""
    both = [one for one in found.programs if one.has("zram")]
    said = [
        f"{one.name} {one.ratio('zram', 'ours'):.2f} (zram {one.seconds('zram'):.1f} s)"
        for one in both
    ]
    said += [f"{one.name}: {one.missing}" for one in found.programs if not one.has("zram")]
    value = geomean(one.ratio("zram", "ours") for one in both) if both else None
    return row(
        "vs-zram-25",
        value,
        value is not None and value >= ZRAM_LEAST,
        f"Timed: the process from its start to its end, of programs that finish on both. "
        f"{', '.join(said)}. zram: the stock JVM in a memory cgroup of the peak that our process "
        f"has had altogether, with swap on zram ({found.algorithm}). {found.conditions()}",
    )


def pause_p90(found: shares.Found) -> report.Row:
    """Compare the 90th percentile of GC pauses with that of the heap in memory."""
    values, said = [], []
    for one in found.programs:
        ours, memory = one.pauses("ours"), one.pauses("memory")
        if ours and memory:
            values.append(pauses.percentile(ours, 90) / pauses.percentile(memory, 90))
        took = [1000 * one.seconds(side) for side in ("ours", "memory")]
        said.append(
            f"{one.name}: ours {pauses.text(ours, took[0])}; in memory "
            f"{pauses.text(memory, took[1])}"
        )
    value = geomean(values)
    return row(
        "pause-p90",
        value,
        value <= PAUSE_MOST,
        f"Timed: each pause that G1 logs. {'. '.join(said)}. BMU: the program's share of the worst "
        f"10/100/1000 ms or more. The turn whose time is the median. {found.conditions()}",
    )


def workers_cpu(found: shares.Found) -> report.Row:
    """The CPU time that donors spend on GC, over the program's own."""
    value = geomean(max(one.workers(), 0.01) for one in found.programs)
    said = [f"{one.name} {one.workers():.3f}" for one in found.programs]
    return row(
        "workers-cpu",
        value,
        True,
        f"Processor time of donors' GC workers over that of the JVM with its pager. "
        f"{', '.join(said)}. {found.conditions()}",
    )


def mark_equal(b: Bench) -> report.Row:
    """Compare donors' marks with G1's own in the same concurrent cycles."""
    found = equal.measure(b)
    return row(
        "mark-equal",
        found.differ,
        not found.differ and found.cycles >= found.wanted,
        f"{found.cycles} concurrent cycles were checked, {found.by_itself} more in which donors "
        f"were not asked or failed; {found.objects} objects marked altogether, of which "
        f"{found.late} were late. References of all strengths, classes that come and go, parked "
        f"stacks, large arrays; a heap of {b.scale.heap_mib} MiB, two donors over TCP",
        found.raw(),
    )


def without_help(b: Bench) -> report.Row:
    """Compare collectors that donors do not help with themselves in memory, and on zram."""
    found = baseline.measure(b)
    return row("baseline", found.value(), True, found.text(), found.raw())


def cycle_row(name: str, found: cycles.Found) -> report.Row:
    """Make one of the rows about concurrent cycles."""
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
    """The row about full collections."""
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


def share_row(name: str, found: shares.Found) -> report.Row:
    """Make one of the rows about whole programs."""
    if name == "vs-zram-25":
        return vs_zram(found)
    if name == "pause-p90":
        return pause_p90(found)
    if name == "workers-cpu":
        return workers_cpu(found)
    kind, _, share = name.rpartition("-")
    return (end_to_end if kind == "end-to-end" else slowdown)(name, int(share), found)


def measures(
    build: Path, repeat: int, tiny: bool, folder: Path
) -> dict[str, Callable[[], report.Row]]:
    """The functions that measure rows, by id. If one fails, its row says why; others go on."""

    @functools.cache
    def bench() -> Bench:
        return Bench(Scale(build, repeat, tiny), folder)

    @functools.cache
    def of_cycles() -> cycles.Found:
        return cycles.measure(bench())

    @functools.cache
    def of_share(share: int) -> shares.Found:
        return shares.measure(bench(), share)

    def attempt(name: str) -> report.Row:
        if why := support.missing():
            return row(name, None, False, f"not measured: {why}")
        try:
            if name in CYCLES:
                return cycle_row(name, of_cycles())
            by_name = {
                "off": off,
                "full-gc": full_gc,
                "mark-equal": mark_equal,
                "baseline": without_help,
            }
            if name in by_name:
                return by_name[name](bench())
            return share_row(name, of_share(50 if name.endswith("-50") else 25))
        except (host.BenchError, OSError, subprocess.SubprocessError) as e:
            return row(name, None, False, f"not measured: {e}")

    return {name: functools.partial(attempt, name) for name in ROWS}

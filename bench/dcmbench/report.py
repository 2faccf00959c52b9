# SPDX-License-Identifier: GPL-2.0-or-later
"""Rows, their table, and the machine they were measured on."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path

# The ids of the table, in its order: one row each, always.
IDS: dict[str, str] = {
    "fault-shm": "4 KiB fault, shm donor, budget full, median",
    "fault-tcp": "4 KiB fault, tcp donor on loopback, budget full, median",
    "elastic-seq": "sequential, per page, elastic against fixed 4 KiB, shm",
    "seq-vs-zram": "sequential pass over 4 x the budget against swap on zram",
    "rand-vs-zram": "uniformly random 4 KiB against swap on zram",
    "scale-2": "two threads faulting at random against one",
    "apps": "real programs at 75, 50, 25 % direct against plain and zram",
    "policy": "misses on recorded page traces against LRU, both with blocks of 4 KiB",
    "core-cpu": "core's CPU time per fault outside system calls",
}

KERNEL_HEADING = "## The kernel pager\n"  # in docs/benchmarks.md

TARGETS: dict[str, str] = {
    "fault-shm": "<= 1.4 x RAW",
    "fault-tcp": "<= 1.2 x (RAW + raw TCP)",
    "elastic-seq": "<= 0.25 x",
    "seq-vs-zram": ">= 3 x faster",
    "rand-vs-zram": "<= 1.4 x its time",
    "scale-2": ">= 1.6 x",
    "apps": "<= 10 % at 50 %; faster than zram at 50, 25 %",
    "policy": "< LRU and < CLOCK on each trace",
    "core-cpu": "<= 0.5 us",
}


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of memory.json. `value` is a number with its unit in `what`."""

    id: str
    what: str
    value: float | None
    target: str
    ok: bool
    detail: str


def row(id_: str, value: float | None, ok: bool, detail: str) -> Row:
    """A row with the fixed texts of its id."""
    return Row(id_, IDS[id_], None if value is None else round(value, 3), TARGETS[id_], ok, detail)


def unmeasured(id_: str, why: str) -> Row:
    """A row that could not be measured is not ok, and says why."""
    return row(id_, None, False, f"not measured: {why}")


def median(values: Sequence[float]) -> float:
    return float(statistics.median(values))


def geomean(values: Sequence[float]) -> float:
    return float(statistics.geometric_mean(values))


class Progress:
    """What is being done now, on standard error, with the time since the start."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def elapsed(self) -> float:
        return time.monotonic() - self._start

    def say(self, text: str) -> None:
        minutes, seconds = divmod(int(self.elapsed()), 60)
        print(f"[{minutes:2d}:{seconds:02d}] {text}", file=sys.stderr, flush=True)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "?"


def _version(*argv: str) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "absent"
    return (done.stdout or done.stderr).splitlines()[0] if done.stdout or done.stderr else "?"


def machine() -> dict[str, str]:
    """What a reader needs to judge the numbers."""
    cpu = "?"
    for line in _read("/proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    memory = _read("/proc/meminfo").splitlines()[0].partition(":")[2].strip()
    virt = "yes" if " hypervisor" in _read("/proc/cpuinfo") else "no"
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cpu": f"{cpu}, {os.cpu_count()} CPUs, virtual machine: {virt}",
        "memory": memory,
        "kernel": f"{platform.release()} {_read('/proc/version').rpartition('#')[2][:40]}",
        "distribution": next(
            (
                line.partition("=")[2].strip('"')
                for line in _read("/etc/os-release").splitlines()
                if line.startswith("PRETTY_NAME=")
            ),
            "?",
        ),
        "compiler": _version("gcc", "--version"),
        "transparent hugepages": _read("/sys/kernel/mm/transparent_hugepage/enabled"),
        "vm.swappiness, page-cluster": _read("/proc/sys/vm/swappiness")
        + ", "
        + _read("/proc/sys/vm/page-cluster"),
        "load at the start": _read("/proc/loadavg"),
    }


def table(rows: Sequence[Row]) -> str:
    """The rows for people, details under each."""
    out = []
    for r in rows:
        value = "-" if r.value is None else f"{r.value:g}"
        out.append(f"{'ok ' if r.ok else 'NO '} {r.id:<13} {value:>9}   target {r.target}")
        out.append(f"      {r.what}")
        out.extend(textwrap.wrap(r.detail, 96, initial_indent="      ", subsequent_indent="      "))
    met = sum(r.ok for r in rows)
    out.append(f"{met} of {len(rows)} targets met")
    return "\n".join(out)


def write_json(path: Path, rows: Sequence[Row]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(
        json.dumps([dataclasses.asdict(r) for r in rows], indent=1) + "\n", encoding="utf-8"
    )
    temporary.replace(path)


def write_markdown(path: Path, rows: Sequence[Row], notes: dict[str, str], took: float) -> None:
    """docs/benchmarks.md: the table, the machine, how to repeat it."""
    lines = [
        "# Benchmarks",
        "",
        "Written by `bench/run --write-docs`, which is `make bench` and this page; not edited by",
        "hand.",
        "All pairs were measured in one run, alternating, medians of several; what each number",
        "is and how it is taken is said in `bench/README.md`. A target that is missed says by",
        "how much and what limits it.",
        "",
        "## The machine",
        "",
        "| | |",
        "| --- | --- |",
        *(f"| {k} | {v} |" for k, v in machine().items()),
        f"| the run took | {took / 60:.1f} minutes |",
        "",
        "## Results",
        "",
        "| | what | value | target | met |",
        "| --- | --- | --- | --- | --- |",
    ]
    for r in rows:
        value = "not measured" if r.value is None else f"{r.value:g}"
        lines.append(
            f"| `{r.id}` | {r.what} | {value} | {r.target} | {'yes' if r.ok else '**no**'} |"
        )
    for r in rows:
        lines += ["", f"### {r.id}", "", *textwrap.wrap(r.detail, 100)]
        if r.id in notes:
            lines += ["", "```", *notes[r.id].splitlines(), "```"]
    # The section on the kernel pager is of another program, and written by hand.
    if path.exists():
        _, heading, rest = path.read_text(encoding="utf-8").partition(KERNEL_HEADING)
        lines += ["", heading + rest.rstrip("\n")] if heading else []
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")

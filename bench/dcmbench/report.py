# SPDX-License-Identifier: GPL-2.0-or-later
"""Rows, their table, the file that keeps them, and the machine on which they were measured."""

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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

# By id, in the table's order: description. Each id always has a row.
IDS: dict[str, str] = {
    "fault-shm": "4 KiB fault, shm donor, budget full, median",
    "fault-tcp": "4 KiB fault, tcp donor on loopback, budget full, median",
    "fault-tls": "the same, page contents under TLS 1.3",
    "fault-tail": "99th percentile of such a fault over the median, tcp, one thread",
    "elastic-seq": "sequential, per page, elastic against fixed 4 KiB, shm",
    "seq-vs-zram": "sequential pass over 4 x the budget against swap on zram, shm",
    "stride-vs-zram": "every N-th page against swap on zram, worst of five N, shm",
    "rand-vs-zram": "uniformly random 4 KiB against swap on zram, shm",
    "scale-2": "two threads faulting at random against one, shm",
    "core-cpu": "core's CPU time per fault outside system calls",
    "round-cpu": "CPU time of a page that goes out and comes in, frames by MOVE over ours, 64 KiB",
    "policy-4k": "misses on page traces at 4 KiB over the best of LRU, CLOCK, S3-FIFO, ARC",
    "policy": "misses on page traces, blocks and streams, over Belady's at 4 KiB",
    "all-direct": "ten real programs, budget over their peak, against plain with huge pages, shm",
    "why": "faults a second at 0.5, 0.75, 1.5 x the budget, foretold over measured, worst of four",
    "apps-shm": "ten real programs at 75, 50, 25 % direct against plain and zram, shm",
    "apps-tls": "the same, tcp donor under TLS 1.3",
}

TARGETS: dict[str, str] = {
    "fault-shm": "<= 1.15 x RAW",
    "fault-tcp": "<= 1.15 x (RAW + raw TCP)",
    "fault-tls": "<= 1.2 x (RAW + raw TCP + AES of a page)",
    "fault-tail": "<= 4 x",
    "elastic-seq": "<= 0.25 x",
    "seq-vs-zram": ">= 8 x faster",
    "stride-vs-zram": ">= 2 x faster",
    "rand-vs-zram": "<= 0.8 x its time",
    "scale-2": ">= 1.6 x",
    "all-direct": "<= 1.03 on average, 1.08 the worst",
    "why": "0.8 to 1.25, at <= 1 % of CPU",
    "apps-shm": "<= 10 % slower at 50 %, 40 % at 25 %; each faster than on zram",
    "apps-tls": "<= 10 % slower at 50 %, 40 % at 25 %; each faster than on zram",
    "policy-4k": "<= 1.0 on average, 1.1 the worst",
    "policy": "<= 1.1, pages fetched <= 1.15 x LRU's",
    "core-cpu": "<= 0.5 us",
    "round-cpu": "<= 0.5 x",
}


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of memory.json. `value` is a number with its unit in `what`.

    @raw: figures for tables and pictures; @when: the UTC minute it was measured in.
    """

    id: str
    what: str
    value: float | None
    target: str
    ok: bool
    detail: str
    raw: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    when: str = ""
    seconds: int = 0


def row(
    id_: str, value: float | None, ok: bool, detail: str, raw: Mapping[str, Any] | None = None
) -> Row:
    """A row with the fixed texts of its id."""
    number = None if value is None else round(value, 3)
    return Row(id_, IDS[id_], number, TARGETS[id_], ok, detail, raw or {})


def unmeasured(id_: str, why: str) -> Row:
    """A row for something that could not be measured: it is not ok, and says why."""
    return row(id_, None, False, f"not measured: {why}")


def median(values: Sequence[float]) -> float:
    return float(statistics.median(values))


def geomean(values: Sequence[float]) -> float:
    return float(statistics.geometric_mean(values))


class Progress:
    """Prints the present step on standard error, with the time since the start."""

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
    """The properties of the machine that readers need to judge the figures."""
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
        "kernel": ".".join(platform.release().split(".")[:2]),
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
    """The rows as text, with details under each."""
    out = []
    for r in rows:
        value = "-" if r.value is None else f"{r.value:g}"
        out.append(f"{'ok ' if r.ok else 'NO '} {r.id:<13} {value:>9}   target {r.target}")
        out.append(f"      {r.what}")
        out.extend(textwrap.wrap(r.detail, 96, initial_indent="      ", subsequent_indent="      "))
    met = sum(r.ok for r in rows)
    out.append(f"{met} of {len(rows)} targets met")
    return "\n".join(out)


class Store:
    """A file of rows. Each is written once it is measured, so an interrupted run loses none.

    Rows of earlier runs stay until they are measured again.
    """

    def __init__(self, path: Path, order: Sequence[str]) -> None:
        self.path = path
        self._order = order

    def rows(self) -> list[dict[str, Any]]:
        """The rows that the file has, in the table's order."""
        try:
            found = {r["id"]: r for r in json.loads(self.path.read_text(encoding="utf-8"))}
        except FileNotFoundError:
            return []
        return [found[i] for i in self._order if i in found]

    def row(self, id_: str) -> dict[str, Any] | None:
        return next((r for r in self.rows() if r["id"] == id_), None)

    def measured(self, id_: str) -> bool:
        found = self.row(id_)
        return found is not None and found["value"] is not None

    def put(self, one: Mapping[str, Any]) -> None:
        found = {r["id"]: r for r in self.rows()} | {one["id"]: dict(one)}
        ordered = [found[i] for i in self._order if i in found]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_suffix(".tmp")
        temporary.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
        temporary.replace(self.path)


def now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M")


def measure(
    wanted: Sequence[str],
    measures: Mapping[str, Callable[[], Row]],
    store: Store,
    progress: Progress,
) -> list[Row]:
    """Measure these rows in turn; store each once it is measured."""
    done = []
    for id_ in wanted:
        start = progress.elapsed()
        progress.say(id_)
        r = measures[id_]()
        r = dataclasses.replace(r, when=now(), seconds=round(progress.elapsed() - start))
        store.put(dataclasses.asdict(r))
        progress.say(f"{id_}: {r.value} (target {r.target}) {'ok' if r.ok else 'NOT MET'}")
        done.append(r)
    return done


def write_machine(folder: Path) -> None:
    """Write a description of the machine to the folder of the rows."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "machine.json").write_text(json.dumps(machine(), indent=1) + "\n", encoding="utf-8")


def write_docs(root: Path, folder: Path) -> None:
    """Make the tables of docs/benchmarks.md, and docs/pictures/, from the rows in this folder."""
    subprocess.run(
        [root / "scripts" / "py", "python", root / "bench" / "write-docs", folder],
        env={**os.environ, "DCM_PY_EXTRA": "bench"},
        check=True,
    )

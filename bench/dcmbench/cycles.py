# SPDX-License-Identifier: GPL-2.0-or-later
"""Concurrent cycles of G1 over a large old generation: their times, and the pages they fetch."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tests.jvm import support

from . import donors, gc, host, report
from .java import LIMIT_S, Bench, counts, pager_config, two_donors

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Figures = TypeVar("Figures", bound="DataclassInstance")
SHARE = 25
# System.gc() starts a concurrent cycle, and no cycle starts by itself.
FLAGS = (
    "-XX:+UseG1GC",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxTenuringThreshold=0",
    "-Xlog:gc,gc+marking",
    *support.Asked.ONLY,
)
OURS = ("-XX:+DonorMark", "-XX:+DonorRebuild")
LINES = {
    "pause_ms": re.compile(r"Pause Young \(Concurrent Start\).* ([0-9.]+)ms$", re.M),
    "mark_ms": re.compile(r"Concurrent Mark From Roots ([0-9.]+)ms$", re.M),
    "rebuild_ms": re.compile(
        r"Concurrent Rebuild Remembered Sets and Scrub Regions ([0-9.]+)ms$", re.M
    ),
    "old_mib": re.compile(r"Pause Cleanup [0-9]+M->([0-9]+)M", re.M),
}


@dataclasses.dataclass(frozen=True)
class Cycle:
    """One cycle, or the medians of several. @cycle_ms: how long the program waited for it."""

    pause_ms: float
    mark_ms: float
    rebuild_ms: float
    cycle_ms: float
    old_mib: float
    fetched_pages: float
    faults: float

    @property
    def old_pages(self) -> float:
        """Pages of the heap that are used when the cycle ends."""
        return self.old_mib * 256

    def text(self, which: str) -> str:
        """This cycle as the text of a row."""
        said = (
            f"{which}: pause {self.pause_ms:.1f} ms, marking {self.mark_ms:.0f}, rebuilding "
            f"{self.rebuild_ms:.0f}, all {self.cycle_ms:.0f}"
        )
        if self.faults or self.fetched_pages:
            said += f", {self.fetched_pages:.0f} of {self.old_pages:.0f} pages brought in"
        return said


@dataclasses.dataclass(frozen=True)
class Found:
    """The medians for G1 in memory, G1 with its heap on donors, and G1 with donors' help."""

    memory: Cycle
    plain: Cycle
    ours: Cycle
    mib: int
    heap_mib: int
    cycles: int

    def raw(self) -> dict[str, Any]:
        """The figures as a row's raw data."""
        return dataclasses.asdict(self)


def middle(found: Sequence[Figures]) -> Figures:
    """The median of each figure."""
    kind = type(found[0])
    names = [field.name for field in dataclasses.fields(kind)]
    return kind(*(report.median([getattr(one, name) for one in found]) for name in names))


def logged(line: re.Pattern[str], said: str) -> float:
    """The figure in the last line of a log that matches."""
    found = line.findall(said)
    if not found:
        raise host.BenchError(f"no {line.pattern} in the log: {said[-300:]}")
    return float(found[-1])


class Program:
    """A running Old.java."""

    def __init__(
        self, argv: Sequence[str], env: Mapping[str, str], runtime: Path, limit_s: float
    ) -> None:
        self._runtime = runtime
        self.proc = host.spawn(
            argv,
            cpus=gc.cpus()[0],
            env=env,
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._timer = threading.Timer(limit_s, self.proc.kill)
        self._timer.daemon = True
        self._timer.start()

    def wait(self, word: bytes) -> str:
        """The program's output up to the line `word`."""
        assert self.proc.stdout
        said = ""
        for line in self.proc.stdout:
            if line.strip() == word:
                return said
            said += line.decode(errors="replace")
        raise host.BenchError(f"Old has ended: {said[-300:]}")

    def collect(self) -> str:
        """Make the program collect garbage; return its output meanwhile."""
        assert self.proc.stdin
        self.proc.stdin.write(b"\n")
        self.proc.stdin.flush()
        return self.wait(b"collected")

    def pager(self) -> dict[str, int]:
        """The counters of the program's pager; empty if it has none."""
        for path in (self._runtime / "vm").glob("*.sock"):
            return counts(donors.ask_pager(path))
        return {}

    def collect_counted(self) -> tuple[str, float, dict[str, int]]:
        """Do collect(); return its output, the ms it took, and what the pager counted meanwhile."""
        before = self.pager()
        start = time.monotonic()
        said = self.collect()
        took = time.monotonic() - start
        after = self.pager()
        self.wait(b"changed")
        counted = {name: after[name] - before.get(name, 0) for name in after}
        return said, 1000 * took, counted

    def cycle(self) -> Cycle:
        """Make the program do one cycle; return its figures."""
        said, took, counted = self.collect_counted()
        figures = {name: logged(line, said) for name, line in LINES.items()}
        return Cycle(
            **figures,
            cycle_ms=took,
            fetched_pages=counted.get("fetched_pages", 0),
            faults=counted.get("faults", 0),
        )

    def end(self) -> str:
        """Let the program end; return its answer."""
        said, _ = self.proc.communicate(timeout=LIMIT_S)
        if self.proc.returncode:
            raise host.BenchError(f"Old: status {self.proc.returncode}: {said[-300:]!r}")
        return said.decode(errors="replace").strip().splitlines()[-1]

    def stop(self) -> None:
        """Kill the program if it still runs."""
        self._timer.cancel()
        host.kill_group(self.proc)


@contextlib.contextmanager
def started(
    b: Bench, flags: Sequence[str], *args: str, ours: bool, limit_s: float = LIMIT_S
) -> Iterator[Program]:
    """Start Old.java, and wait until it has made its graph. It is killed after `limit_s`.

    It gets a new runtime folder, so that no other pager's socket is found there.
    """
    with tempfile.TemporaryDirectory(dir=b.folder) as folder, contextlib.ExitStack() as stack:
        runtime = Path(folder)
        argv = b.jvm.command(f"-Xmx{b.scale.heap_mib}m", *flags, "Old", *args, ours=ours)
        program = Program(argv, gc.with_libdcm(b.scale.build, runtime), runtime, limit_s)
        stack.callback(program.stop)
        program.wait(b"changed")
        yield program


def run(b: Bench, mib: int, cycles: int, *flags: str, ours: bool) -> tuple[Cycle, str]:
    """Run `cycles` cycles after two that do not count; return their medians and the answer."""
    with started(b, (*FLAGS, *flags), str(mib), ours=ours) as program:
        found = [program.cycle() for _ in range(2 + cycles)][2:]
        return middle(found), program.end()


def compile_old(b: Bench) -> None:
    """Compile Old.java into the bench's folder."""
    source = Path(__file__).resolve().parent.parent / "Old.java"
    javac = os.fspath(b.jvm.home / "bin" / "javac")
    made = host.run([javac, "-d", b.jvm.classes, source], timeout=LIMIT_S)
    if made.status:
        raise host.BenchError(f"javac: {made.error[-300:]}")


def three_ways(
    b: Bench, ours: Sequence[str], run_old: Callable[..., tuple[Figures, str]]
) -> tuple[Figures, Figures, Figures]:
    """Run Old.java in memory, then with the heap on donors: G1 by itself, G1 with donors' help."""
    compile_old(b)
    memory, answer = run_old(ours=False)
    found = []
    for flags in ((), ours):
        with (
            tempfile.TemporaryDirectory(dir=b.folder) as place,
            two_donors(b.scale, Path(place)) as both,
        ):
            config = pager_config(b.scale, Path(place), both, SHARE)
            figures, said = run_old(f"-XX:DonorHeap=dcm:{config}", *flags, ours=True)
        if said != answer:
            raise host.BenchError(f"Old: {said} is not {answer}")
        found.append(figures)
    return memory, found[0], found[1]


def measure(b: Bench) -> Found:
    """Measure cycles in all three ways."""
    mib = b.scale.heap_mib * 5 // 8
    cycles = 3 if b.scale.tiny else 5
    found = three_ways(b, OURS, functools.partial(run, b, mib, cycles))
    return Found(*found, mib, b.scale.heap_mib, cycles)

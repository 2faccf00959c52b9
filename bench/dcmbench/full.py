# SPDX-License-Identifier: GPL-2.0-or-later
"""Full collections of G1 over a large heap: their times, and the pages they bring in."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import tempfile
from pathlib import Path
from typing import Any

from tests.jvm import support

from . import cycles, gc, host, report
from .java import Bench, pager_config, two_donors

SHARE = 25
REPLACED = 10  # percent of the nodes, before each collection
FLAGS = ("-XX:+UseG1GC", "-Xlog:gc", *support.Asked.ONLY)
OURS = ("-XX:+DonorCompact",)
PAUSE = re.compile(r"Pause Full \(System\.gc\(\)\).* ([0-9.]+)ms$", re.M)


@dataclasses.dataclass(frozen=True)
class Pause:
    """One full collection, or the medians of several. @ms: until the program goes on."""

    pause_ms: float
    ms: float
    fetched_pages: float
    written_pages: float

    def text(self, which: str) -> str:
        """What a row says of it."""
        said = f"{which}: {self.pause_ms:.0f} ms"
        if self.fetched_pages or self.written_pages:
            said += f", {self.fetched_pages:.0f} pages brought in, {self.written_pages:.0f} written"
        return said


@dataclasses.dataclass(frozen=True)
class Found:
    """The medians of all three."""

    memory: Pause
    plain: Pause
    ours: Pause
    mib: int
    heap_mib: int
    collections: int

    def raw(self) -> dict[str, Any]:
        """What the row keeps."""
        return dataclasses.asdict(self)


def middle(pauses: list[Pause]) -> Pause:
    """The median of each figure."""
    names = [field.name for field in dataclasses.fields(Pause)]
    return Pause(*(report.median([getattr(one, name) for one in pauses]) for name in names))


def run(b: Bench, mib: int, collections: int, *flags: str, ours: bool) -> tuple[Pause, str]:
    """The medians of so many collections, after one that does not count, and the answer."""
    runtime = b.folder / "run"
    program = cycles.Program(
        b.jvm.command(
            *FLAGS, f"-Xmx{b.scale.heap_mib}m", *flags, "Old", str(mib), str(REPLACED), ours=ours
        ),
        gc.with_libdcm(b.scale.build, runtime),
        runtime,
    )
    with contextlib.ExitStack() as stack:
        stack.callback(program.stop)
        program.wait(b"changed")
        found = []
        for _ in range(1 + collections):
            said, took, counted = program.collect_counted()
            found.append(
                Pause(
                    cycles.logged(PAUSE, said),
                    took,
                    counted.get("fetched_pages", 0),
                    counted.get("written_pages", 0),
                )
            )
        return middle(found[1:]), program.end()


def measure(b: Bench) -> Found:
    """In memory, then twice with the heap on donors: G1 by itself, and donors."""
    cycles.compile_old(b)
    mib = b.scale.heap_mib * 9 // 16
    collections = 2 if b.scale.tiny else 3
    memory, answer = run(b, mib, collections, ours=False)
    found = []
    for flags in ((), OURS):
        with (
            tempfile.TemporaryDirectory(dir=b.folder) as place,
            two_donors(b.scale, Path(place)) as both,
        ):
            config = pager_config(b.scale, Path(place), both, SHARE)
            pause, said = run(
                b, mib, collections, f"-XX:DonorHeap=dcm:{config}", *flags, ours=True
            )
        if said != answer:
            raise host.BenchError(f"Old: {said} is not {answer}")
        found.append(pause)
    return Found(memory, found[0], found[1], mib, b.scale.heap_mib, collections)

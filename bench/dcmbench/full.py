# SPDX-License-Identifier: GPL-2.0-or-later
"""Full collections of G1 over a large heap: their times, and the pages they fetch."""

from __future__ import annotations

import dataclasses
import functools
import re
from typing import Any

from tests.jvm import support

from . import cycles
from .java import Bench

HEAP_MIB = 2752  # of which 1.5 GiB are alive
LIMIT_S = 3600.0  # plain G1 on donors takes minutes for a collection
REPLACED = 10  # percent of the nodes that Old.java replaces before each collection
FLAGS = ("-XX:+UseG1GC", "-Xlog:gc", *support.Asked.ONLY)
OURS = ("-XX:+DonorCompact",)
PAUSE = re.compile(r"Pause Full \(System\.gc\(\)\).* ([0-9.]+)ms$", re.M)


@dataclasses.dataclass(frozen=True)
class Pause:
    """One full collection, or the medians of several. @ms: how long the program waited for it."""

    pause_ms: float
    ms: float
    fetched_pages: float
    written_pages: float

    def text(self, which: str) -> str:
        """This pause as the text of a row."""
        said = f"{which}: {self.pause_ms:.0f} ms"
        if self.fetched_pages or self.written_pages:
            said += f", {self.fetched_pages:.0f} pages brought in, {self.written_pages:.0f} written"
        return said


@dataclasses.dataclass(frozen=True)
class Found:
    """The medians for G1 in memory, G1 with its heap on donors, and G1 with donors' help."""

    memory: Pause
    plain: Pause
    ours: Pause
    mib: int
    heap_mib: int
    collections: int

    def raw(self) -> dict[str, Any]:
        """The figures as a row's raw data."""
        return dataclasses.asdict(self)


def run(b: Bench, mib: int, collections: int, *flags: str, ours: bool) -> tuple[Pause, str]:
    """Do `collections` collections after one that does not count; return medians and answer."""
    args = (str(mib), str(REPLACED))
    with cycles.started(b, (*FLAGS, *flags), *args, ours=ours, limit_s=LIMIT_S) as program:
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
        return cycles.middle(found[1:]), program.end()


def measure(b: Bench) -> Found:
    """Measure full collections in all three ways."""
    large = b if b.scale.tiny else b.with_heap(HEAP_MIB)
    mib = large.scale.heap_mib * 9 // 16
    collections = 2 if b.scale.tiny else 3
    found = cycles.three_ways(large, OURS, functools.partial(run, large, mib, collections))
    return Found(*found, mib, large.scale.heap_mib, collections)

# SPDX-License-Identifier: GPL-2.0-or-later
"""Compare the marks that donors make in concurrent cycles with G1's own in the same cycles."""

from __future__ import annotations

import dataclasses
import re
import tempfile
from pathlib import Path
from typing import Any

from tests.jvm.test_cycle import CHECK, CHECKED

from . import gc, host
from .java import Bench, pager_config, two_donors

SHARE = 25
LIMIT_S = 7200.0
CYCLES = 10_000
# Each System.gc() is a cycle, and some cycles begin by themselves.
ROUNDS = CYCLES * 101 // 100
BY_ITSELF = re.compile(r"G1 marks by itself|Donors' marks of a concurrent cycle are not checked")


@dataclasses.dataclass(frozen=True)
class Found:
    """The cycles that were compared, and their figures."""

    wanted: int
    cycles: int
    by_itself: int
    objects: int
    differ: int
    late: int

    def raw(self) -> dict[str, Any]:
        """The row's raw data."""
        return dataclasses.asdict(self)


def measure(b: Bench) -> Found:
    """Run Kinds.java, which has objects of each kind, and calls System.gc() in each round."""
    rounds, wanted = (20, 15) if b.scale.tiny else (ROUNDS, CYCLES)
    with (
        tempfile.TemporaryDirectory(dir=b.folder) as place,
        two_donors(b.scale, Path(place)) as both,
    ):
        folder = Path(place)
        config = pager_config(b.scale, folder, both, SHARE)
        log = folder / "gc.log"
        command = b.jvm.command(
            f"-XX:DonorHeap=dcm:{config}",
            "-XX:+UseG1GC",
            f"-Xmx{b.scale.heap_mib}m",
            f"-Xlog:gc+donor:file={log}::filecount=0",
            *CHECK,
            "Kinds",
            str(rounds),
            "3",
            "late",
        )
        ran = host.run(command, timeout=LIMIT_S, env=gc.with_libdcm(b.scale.build, folder / "run"))
        if ran.timed_out or ran.status:
            raise host.BenchError(f"Kinds: status {ran.status}: {ran.error[-300:]}")
        said = log.read_text(encoding="utf-8")
    found = [tuple(map(int, line.groups())) for line in CHECKED.finditer(said)]
    return Found(
        wanted=wanted,
        cycles=len(found),
        by_itself=len(BY_ITSELF.findall(said)),
        objects=sum(objects for objects, _, _ in found),
        differ=sum(differ for _, differ, _ in found),
        late=sum(late for _, _, late in found),
    )

# SPDX-License-Identifier: GPL-2.0-or-later
"""The context of every measurement: sizes, paths, time limits."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

from dcmbench.host import BenchError, Ledger
from dcmbench.report import Progress

MIB = 1 << 20
ROW_MAX_S = 25 * 60.0  # no row takes longer, nor a program of the rows that have all

# The ways to a donor that are measured beside each other, and what each is called.
WAYS = {
    "shm": "shared memory, a donor on this host, in the clear",
    "tcp": "TCP over loopback, in the clear",
    "tls": "TCP over loopback, page contents under TLS 1.3",
}


@dataclasses.dataclass
class Context:
    """Paths, the ledger, and how much to repeat.

    @tiny: sizes that only show that everything runs; the figures mean nothing.
    """

    root: Path
    build: Path
    cache: Path
    scratch: Path
    ledger: Ledger
    progress: Progress
    repeat: int
    tiny: bool = False
    raw: Raw | None = None
    programs: tuple[str, ...] = ()  # of the apps row; none: all
    resume: bool = False  # of the apps row: programs that are measured already stay
    replays: dict[str, dict[int, dict[str, Any]]] = dataclasses.field(default_factory=dict)
    row_start: float = 0.0
    notes: dict[str, str] = dataclasses.field(default_factory=dict)

    def program(self, name: str) -> Path:
        return self.build / "bench" / "bin" / name

    def check_time(self) -> None:
        """Before anything long: is there time for it?"""
        if self.progress.elapsed() - self.row_start > ROW_MAX_S:
            raise BenchError(f"no time left: a row is limited to {ROW_MAX_S / 60:.0f} minutes")

    @property
    def budget(self) -> int:
        """Of the rows that are measured with the access program."""
        return (8 if self.tiny else 64) * MIB

    @property
    def footprint(self) -> int:
        return 4 * self.budget

    @property
    def pages(self) -> int:
        return self.footprint // 4096

    @property
    def donord(self) -> Path:
        return self.build / "bin" / "dcm-donord"

    @property
    def libdir(self) -> Path:
        return self.build / "lib"

    @property
    def environment(self) -> dict[str, str]:
        """For programs that load libdcm or are started by dcmctl."""
        runtime = self.scratch / "run"
        runtime.mkdir(exist_ok=True)
        return {
            "LD_LIBRARY_PATH": os.fspath(self.libdir),
            "DCM_LIBDIR": os.fspath(self.libdir),
            "DCM_RUNTIME_DIR": os.fspath(runtime),
        }


@dataclasses.dataclass(frozen=True)
class Raw:
    """The machine's own round trips, in ns: medians by placement. And AES of a page, one end's."""

    uffd: dict[str, float]
    tcp: dict[str, float]
    aes: float

    @property
    def best_uffd(self) -> float:
        return min(self.uffd.values())

    @property
    def best_tcp(self) -> float:
        return min(self.tcp.values())

    def text(self) -> str:
        def one(values: dict[str, float]) -> str:
            return ", ".join(f"{k} {v / 1e3:.1f}" for k, v in values.items())

        return (
            f"RAW us by placement: {one(self.uffd)}; raw TCP us: {one(self.tcp)}; AES-128-GCM of a "
            f"page, at one end: {self.aes / 1e3:.2f} us"
        )

# SPDX-License-Identifier: GPL-2.0-or-later
"""The context that all measurements share: sizes, paths, time limits."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

from dcmbench.host import BenchError, Ledger
from dcmbench.report import Progress

MIB = 1 << 20
ROW_MAX_S = 25 * 60.0  # limit for a row; in the apps rows, for each program

# The ways to reach a donor, each of which is measured, and their titles.
WAYS = {
    "shm": "shared memory, a donor on this host, in the clear",
    "tcp": "TCP over loopback, in the clear",
    "tls": "TCP over loopback, page contents under TLS 1.3",
}


@dataclasses.dataclass
class Context:
    """Paths, the ledger, and how often to repeat.

    @tiny: use sizes that only show that everything runs; the figures mean nothing then.
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
    programs: tuple[str, ...] = ()  # for the apps rows: only these; none: all
    resume: bool = False  # for the apps rows: keep programs that are measured already
    replays: dict[str, dict[int, dict[str, Any]]] = dataclasses.field(default_factory=dict)
    row_start: float = 0.0
    notes: dict[str, str] = dataclasses.field(default_factory=dict)

    def program(self, name: str) -> Path:
        return self.build / "bench" / "bin" / name

    def check_time(self) -> None:
        """Call this before a long step: BenchError if the row's time is over."""
        if self.progress.elapsed() - self.row_start > ROW_MAX_S:
            raise BenchError(f"no time left: a row is limited to {ROW_MAX_S / 60:.0f} minutes")

    @property
    def budget(self) -> int:
        """The budget, in bytes, of rows that are measured with bench/access.c."""
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
        """The environment of programs that load libdcm or are started by dcmctl."""
        runtime = self.scratch / "run"
        runtime.mkdir(exist_ok=True)
        return {
            "LD_LIBRARY_PATH": os.fspath(self.libdir),
            "DCM_LIBDIR": os.fspath(self.libdir),
            "DCM_RUNTIME_DIR": os.fspath(runtime),
        }


@dataclasses.dataclass(frozen=True)
class Raw:
    """Times of the machine without the pager, in ns: round trips (medians by placement), and AES.

    @aes: encryption or decryption of a page, at one end.
    """

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
